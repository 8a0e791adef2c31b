//! How a header's bytes become a number, a text or an instant. The form is decided by the header's name; its length and content only
//! tell whether the form fits.

use chrono::{DateTime, NaiveDateTime};

use super::super::record::display_text_within;
use super::super::settings::Encoding;
use super::{masstransit, nservicebus, wolverine};

/// How the bytes of a header are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// UTF-8; numbers as ASCII decimal.
    Text,
    /// Big-endian, 4 bytes.
    I32,
    /// Big-endian, 8 bytes.
    I64,
    /// Signed big-endian of 1 to 8 bytes (Java's `BigInteger.toByteArray`).
    Signed,
    /// Big-endian of 4 bytes, or of 1 in old releases.
    I32OrByte,
    /// A Wolverine destination URI; its topic.
    TopicUri,
    /// An NServiceBus address: queue, perhaps with `@machine`.
    Queue,
    /// JSON where MassTransit writes anything but a string.
    Json,
    /// ms as ASCII decimal, or RFC 3339.
    Instant,
    /// NServiceBus's own time format.
    WireTime,
}

impl Form {
    /// The form for a mapping out of the configuration. An instant in text may be written either way.
    pub(super) fn configured(encoding: Encoding, is_instant: bool) -> Form {
        match (encoding, is_instant) {
            (Encoding::Text, true) => Form::Instant,
            (Encoding::Text, false) => Form::Text,
            (Encoding::I32Be, _) => Form::I32,
            (Encoding::I64Be, _) => Form::I64,
        }
    }

    /// For a page: "404269 (i64 big-endian)".
    pub(super) fn words(self) -> &'static str {
        match self {
            Form::Text => "text",
            Form::I32 => "i32 big-endian",
            Form::I64 => "i64 big-endian",
            Form::Signed => "signed big-endian",
            Form::I32OrByte => "i32 or one byte, big-endian",
            Form::TopicUri => "URI",
            Form::Queue => "queue address",
            Form::Json => "JSON",
            Form::Instant => "ms or RFC 3339",
            Form::WireTime => "yyyy-MM-dd HH:mm:ss:ffffff Z",
        }
    }
}

/// A number and whether its bytes were of another form than documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: i64,
    pub(super) odd: bool,
}

/// Reads a whole number or, for the two time forms, an instant in ms. `None`: the bytes hold none.
pub(super) fn number(form: Form, bytes: &[u8]) -> Option<Number> {
    let documented = match form {
        Form::Text | Form::TopicUri | Form::Queue => decimal(bytes),
        Form::I32 => bytes.try_into().ok().map(|four| i64::from(i32::from_be_bytes(four))),
        Form::I64 => bytes.try_into().ok().map(i64::from_be_bytes),
        Form::Signed => signed(bytes),
        Form::I32OrByte if bytes.len() == 1 || bytes.len() == 4 => signed(bytes),
        Form::I32OrByte => None,
        Form::Json => masstransit::number(bytes),
        Form::Instant => instant(bytes),
        Form::WireTime => nservicebus::time_ms(bytes),
    };
    match documented {
        Some(value) => Some(Number { value, odd: false }),
        // A binary name with a text value of another length that is all digits; or a time written another way.
        None => decimal(bytes).or_else(|| instant(bytes)).filter(|_| form != Form::Text).map(|value| Number { value, odd: true }),
    }
}

fn decimal(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_decimal = !digits.is_empty() && digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit);
    if is_decimal { std::str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}

fn signed(bytes: &[u8]) -> Option<i64> {
    let first = *bytes.first().filter(|_| bytes.len() <= 8)?;
    let mut wide = if first & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    Some(i64::from_be_bytes(wide))
}

/// ms as ASCII decimal, or RFC 3339 (also without an offset, which .NET omits: UTC then).
pub(super) fn instant(bytes: &[u8]) -> Option<i64> {
    if let Some(ms) = decimal(bytes) {
        return Some(ms);
    }
    // The longest sensible text; a value of megabytes is not parsed.
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= 64)?.trim();
    match DateTime::parse_from_rfc3339(text) {
        Ok(at) => Some(at.timestamp_millis()),
        Err(_) => Some(NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").ok()?.and_utc().timestamp_millis()),
    }
}

/// Reads a text, cut to about `limit` bytes. `None` when there is nothing in it.
pub(super) fn text(form: Form, bytes: &[u8], limit: usize) -> Option<String> {
    let found = match form {
        Form::TopicUri => wolverine::topic(bytes)?,
        Form::Queue => nservicebus::queue(bytes),
        _ => bytes,
    };
    (!found.is_empty()).then(|| display_text_within(found, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: Form, bytes: &[u8]) -> Option<(i64, bool)> {
        number(form, bytes).map(|number| (number.value, number.odd))
    }

    #[test]
    fn the_name_decides_and_the_length_is_checked() {
        assert_eq!(read(Form::Text, b"12345678"), Some((12_345_678, false)));
        assert_eq!(read(Form::I64, b"\x00\x00\x00\x00\x00\x06\x2b\x2d"), Some((404_269, false)));
        assert_eq!(read(Form::I64, b"12345678"), Some((0x3132_3334_3536_3738, false)), "a binary name stays binary at its own length");
        assert_eq!(read(Form::I64, b"404269"), Some((404_269, true)));
        assert_eq!(read(Form::I32, b"42"), Some((42, true)));
        assert_eq!(read(Form::I32, b"\xff\xff\xff\xff"), Some((-1, false)));
        assert_eq!(read(Form::I32OrByte, b"\x05"), Some((5, false)));
        assert_eq!(read(Form::I32OrByte, b"\x00\x00\x00\x04"), Some((4, false)));
        assert_eq!(read(Form::I32OrByte, b"12"), Some((12, true)));
        assert_eq!(read(Form::Signed, b"\x01\x9b\x76\xda\x98\x00"), Some((1_767_225_595_904, false)));
        assert_eq!(read(Form::Signed, b"\xff"), Some((-1, false)));
        assert_eq!(read(Form::Signed, b"1767225600000"), Some((1_767_225_600_000, true)));
        for form in [Form::Text, Form::I32, Form::I64] {
            for bytes in [&b""[..], b"-", b"+1", b" 1", b"1.5", b"\xff\xfe", b"99999999999999999999", b"one"] {
                assert_eq!(read(form, bytes), None, "{form:?} {bytes:?}");
            }
        }
    }

    #[test]
    fn instants() {
        for (text, ms) in [
            ("1767225600000", 1_767_225_600_000),
            ("2026-01-01T00:00:00Z", 1_767_225_600_000),
            ("2026-01-01T01:00:00.1234567+01:00", 1_767_225_600_123),
            ("2026-01-01T00:00:00.5", 1_767_225_600_500),
        ] {
            assert_eq!(instant(text.as_bytes()), Some(ms), "{text}");
        }
        assert_eq!(instant(b"yesterday"), None);
    }
}
