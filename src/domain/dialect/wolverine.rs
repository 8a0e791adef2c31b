//! Wolverine (.NET) names the origin as a URI: `kafka://topic/orders`, or with a named broker's own scheme.

/// The topic in such a URI; `None` for a destination that is no Kafka topic (`local://durable`, say).
pub(super) fn topic(uri: &[u8]) -> Option<&[u8]> {
    let separator = uri.windows(3).take(64).position(|three| three == b"://")?;
    let name = uri[separator + 3..].strip_prefix(b"topic/")?;
    let end = name.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(name.len());
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::topic;

    #[test]
    fn topics_and_other_destinations() {
        assert_eq!(topic(b"kafka://topic/orders"), Some(&b"orders"[..]));
        assert_eq!(topic(b"backup://topic/orders.v2/?x=1"), Some(&b"orders.v2"[..]));
        for other in [&b"local://durable"[..], b"orders", b"", b"://", b"\xff://topic", b"kafka://group/g"] {
            assert_eq!(topic(other), None, "{other:?}");
        }
    }
}
