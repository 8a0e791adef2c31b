//! The dead letter as Kafka gave it: immutable bytes, headers in order, coordinates.

use sha2::{Digest as _, Sha256};

/// One record header. Kafka promises neither unique names nor UTF-8; both halves are kept as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The header's name as bytes (almost always UTF-8).
    pub name: Vec<u8>,
    /// The value; `None` is a null value, which differs from an empty one.
    pub value: Option<Vec<u8>>,
}

/// One record read from a DLQ. A null key or value is `None`; an empty one is `Some` of no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Kafka's timestamp in ms since the epoch, raw and unjudged; `None` when the record carries none (-1).
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// All headers, in order, repetitions included.
    pub headers: Vec<Header>,
}

impl Record {
    /// Bytes of key, value and headers together: what a person means by the size of a message.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Vec::len)).sum();
        self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len) + headers
    }
}

/// Why stored headers could not be read back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("stored headers end in the middle of one")]
pub struct TruncatedHeaders;

const NULL: u32 = u32::MAX;

/// Packs headers into one byte string: a count, then name length, name, value length (`u32::MAX` for null), value;
/// all lengths big-endian `u32`. Exact for duplicates, order, null against empty, NUL and invalid UTF-8.
pub fn pack_headers(headers: &[Header]) -> Vec<u8> {
    let size: usize = headers.iter().map(|h| 8 + h.name.len() + h.value.as_ref().map_or(0, Vec::len)).sum();
    let mut out = Vec::with_capacity(4 + size);
    out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    for header in headers {
        out.extend_from_slice(&(header.name.len() as u32).to_be_bytes());
        out.extend_from_slice(&header.name);
        match &header.value {
            None => out.extend_from_slice(&NULL.to_be_bytes()),
            Some(value) => {
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(value);
            }
        }
    }
    out
}

/// The reverse of [`pack_headers`].
pub fn unpack_headers(mut bytes: &[u8]) -> Result<Vec<Header>, TruncatedHeaders> {
    fn number(bytes: &mut &[u8]) -> Result<u32, TruncatedHeaders> {
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(TruncatedHeaders)?;
        *bytes = rest;
        Ok(u32::from_be_bytes(*head))
    }
    fn take(bytes: &mut &[u8], length: u32) -> Result<Vec<u8>, TruncatedHeaders> {
        let (head, rest) = bytes.split_at_checked(length as usize).ok_or(TruncatedHeaders)?;
        *bytes = rest;
        Ok(head.to_vec())
    }
    let count = number(&mut bytes)?;
    // The count is not trusted for the allocation: a header needs at least eight bytes.
    let mut headers = Vec::with_capacity((count as usize).min(bytes.len() / 8));
    for _ in 0..count {
        let length = number(&mut bytes)?;
        let name = take(&mut bytes, length)?;
        let value = match number(&mut bytes)? {
            NULL => None,
            length => Some(take(&mut bytes, length)?),
        };
        headers.push(Header { name, value });
    }
    if bytes.is_empty() { Ok(headers) } else { Err(TruncatedHeaders) }
}

/// Text that any database and page can hold: invalid UTF-8 becomes U+FFFD, NUL becomes U+2400 (its visible picture).
pub fn display_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{2400}")
}

/// Characters that change how others are shown, or take no room: they could make a page say what the record does not.
pub fn deceives(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a person can read anything in it: a reason of blanks, invisible or replacement characters says nothing.
pub fn says_something(text: &str) -> bool {
    text.chars().any(|c| c.is_alphanumeric() && !deceives(c))
}

/// What stands in an index instead of a key of any length: the first 8 bytes of its SHA-256. Whoever looks up compares the whole key too.
pub fn short_hash(bytes: &[u8]) -> i64 {
    let digest = Sha256::digest(bytes);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// The beginning of a text, at most `limit` bytes of it, splitting no character.
pub fn clip(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// As [`display_text`], out of at most `limit` bytes; that something was left out is shown.
pub fn display_text_within(bytes: &[u8], limit: usize) -> String {
    if bytes.len() <= limit {
        return display_text(bytes);
    }
    format!("{}…", display_text(&bytes[..boundary_before(bytes, limit)]))
}

/// As [`display_text_within`], but keeps both ends: the root cause of a long Java trace stands at its end, that of a .NET trace at its start.
pub fn display_both_ends(bytes: &[u8], limit: usize) -> String {
    if bytes.len() <= limit {
        return display_text(bytes);
    }
    let head = boundary_before(bytes, limit / 2);
    let tail = boundary_before(bytes, bytes.len() - limit / 2);
    format!("{}\n…\n{}", display_text(&bytes[..head]), display_text(&bytes[tail..]))
}

/// The nearest place at or before `at` that splits no character, in bytes that are UTF-8.
fn boundary_before(bytes: &[u8], at: usize) -> usize {
    let continues = |i: usize| bytes.get(i).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|i| !continues(*i)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_packing(raw in proptest::collection::vec((any::<Vec<u8>>(), any::<Option<Vec<u8>>>()), 0..8)) {
            let headers: Vec<Header> = raw.into_iter().map(|(name, value)| Header { name, value }).collect();
            prop_assert_eq!(unpack_headers(&pack_headers(&headers)), Ok(headers));
        }

        #[test]
        fn damaged_headers_are_an_error_not_a_panic(bytes in any::<Vec<u8>>()) {
            if let Ok(headers) = unpack_headers(&bytes) {
                prop_assert_eq!(pack_headers(&headers), bytes);
            }
        }
    }

    #[test]
    fn cutting_splits_no_character() {
        let text = "é".repeat(10);
        assert_eq!(clip(&text, 5), "éé");
        assert_eq!(clip(&text, 99), text);
        assert_eq!(display_text_within(text.as_bytes(), 5), "éé…");
        assert_eq!(display_text_within(text.as_bytes(), 20), text);
        assert_eq!(display_both_ends(text.as_bytes(), 6), "é\n…\néé");
        assert_eq!(display_text_within(&[0x80; 9], 4), "\u{fffd}\u{fffd}\u{fffd}\u{fffd}…");
    }

    #[test]
    fn text_for_display_holds_no_nul_and_no_invalid_utf8() {
        assert_eq!(display_text(b"a\0b\xff"), "a\u{2400}b\u{fffd}");
    }

    #[test]
    fn what_nobody_can_read_says_nothing() {
        for empty in ["", "  ", "\u{200b}", "\u{2800}", "\u{ad}", "\u{3164}", "\u{202e}\u{2066}", "\u{fffd}", "..."] {
            assert!(!says_something(empty), "{empty:?}");
        }
        for reason in ["x", "PAY-1", "支払い", "\u{202e}ok"] {
            assert!(says_something(reason), "{reason:?}");
        }
    }
}
