//! MassTransit (.NET) writes strings raw and everything else as JSON: a retry count is `3`, a timestamp is `"2026-01-01T00:00:00Z"`.

use super::values::instant;

/// A number, or an instant in ms, in JSON; also without the quotes, as a string would be written.
pub(super) fn number(bytes: &[u8]) -> Option<i64> {
    let bytes = bytes.trim_ascii();
    instant(bytes.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn counts_and_timestamps() {
        assert_eq!(number(b"3"), Some(3));
        assert_eq!(number(b"\"2026-01-01T00:00:00.1234567Z\""), Some(1_767_225_600_123));
        assert_eq!(number(b"2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
        for other in [&b""[..], b"\"", b"\"\"", b"{}", b"null", b"3.5"] {
            assert_eq!(number(other), None, "{other:?}");
        }
    }
}
