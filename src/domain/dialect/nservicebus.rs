//! NServiceBus has a time format of its own and addresses that may name a machine.

use chrono::NaiveDateTime;

/// `yyyy-MM-dd HH:mm:ss:ffffff Z` (`DateTimeOffsetHelper.ToWireFormattedString`), in ms since the epoch.
pub(super) fn time_ms(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= 40)?;
    Some(NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S:%6f Z").ok()?.and_utc().timestamp_millis())
}

/// The queue of an address: what stands before `@machine`.
pub(super) fn queue(address: &[u8]) -> &[u8] {
    address.split(|byte| *byte == b'@').next().unwrap_or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_time_format() {
        assert_eq!(time_ms(b"2026-01-01 00:00:00:123456 Z"), Some(1_767_225_600_123));
        for other in [&b""[..], b"2026-01-01T00:00:00Z", b"2026-01-01 00:00:00:123456", b"2026-13-01 00:00:00:000000 Z", b"\xff"] {
            assert_eq!(time_ms(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_address_may_name_a_machine() {
        assert_eq!(queue(b"sales@host-1"), b"sales");
        assert_eq!(queue(b"sales"), b"sales");
    }
}
