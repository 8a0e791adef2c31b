//! Hostile bytes as text that can only be read: control characters and direction overrides become visible, long text is cut.
//!
//! HTML escaping is askama's and happens on top of this; nothing here is ever marked safe.

use std::fmt::Write as _;

use crate::domain::record::deceives;

/// How much of a value a page shows as text or hex.
pub const VALUE_CAP: usize = 64_000;

fn push_visible(out: &mut String, c: char) {
    match c {
        '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
        '\u{7f}' => out.push('\u{2421}'),
        c if c.is_control() || deceives(c) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "⟨U+{:04X}⟩", c as u32);
        }
        c => out.push(c),
    }
}

/// One line: every control character (line ends and tabs too) has a visible stand-in.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut out, c));
    out
}

/// Several lines: as [`line()`], but line ends and tabs keep their meaning. CR LF counts as one line end.
pub fn block(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c => push_visible(&mut out, c),
        }
    }
    out
}

/// One line, cut to `chars` characters with an ellipsis.
pub fn short_line(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", line(&text[..end])),
        None => line(text),
    }
}

/// Several lines, cut to `chars` characters; how much is missing is said.
pub fn cut_block(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…\n(cut here: {} more)", block(&text[..end]), super::format::bytes((text.len() - end) as i64)),
        None => block(text),
    }
}

/// Bytes as one short line: text where it is UTF-8, else hex.
pub fn bytes_line(bytes: &[u8], chars: usize) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => short_line(text, chars),
        Err(_) => bytes_line_hex(bytes, chars / 2),
    }
}

/// The first `most` bytes as hex.
pub fn bytes_line_hex(bytes: &[u8], most: usize) -> String {
    let shown = &bytes[..bytes.len().min(most)];
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    format!("0x{}{more}", hex(shown))
}

/// Lower-case hex without separators.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The first [`VALUE_CAP`] bytes as text, invalid UTF-8 as U+FFFD. A character that the cap splits is left out whole.
pub fn value_text(bytes: &[u8]) -> String {
    let mut end = bytes.len().min(VALUE_CAP);
    // A UTF-8 character has at most three continuation bytes; only a cut can leave a half one at the end.
    while end < bytes.len() && end > VALUE_CAP - 4 && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    block(&String::from_utf8_lossy(&bytes[..end]))
}

/// A hex dump of the first [`VALUE_CAP`] / 4 bytes: offset, sixteen bytes, and what of them is printable ASCII.
pub fn hex_dump(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(HEX_CAP)];
    let mut out = String::with_capacity(shown.len() * 5);
    for (row, chunk) in shown.chunks(16).enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(out, "{:08x} ", row * 16);
        for place in 0..16 {
            match chunk.get(place) {
                Some(byte) => _ = write!(out, " {byte:02x}"),
                None => out.push_str("   "),
            }
        }
        out.push_str("  ");
        out.extend(chunk.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }));
        out.push('\n');
    }
    out
}

/// How many bytes [`hex_dump`] shows: its text is about four times as long.
pub const HEX_CAP: usize = VALUE_CAP / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_stays_invisible() {
        assert_eq!(line("a\0b\x1bc\x7fd\ne"), "a␀b␛c␡d␊e");
        assert_eq!(line("user\u{202e}gpj.exe"), "user⟨U+202E⟩gpj.exe");
        assert_eq!(line("a\u{200b}b\u{85}c\u{feff}d\u{2066}"), "a⟨U+200B⟩b⟨U+0085⟩c⟨U+FEFF⟩d⟨U+2066⟩");
        assert_eq!(block("a\r\nb\tc\rd"), "a\nb\tc␍d");
        assert_eq!(line("żółć 😀"), "żółć 😀");
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(short_line("żółć", 2), "żó…");
        assert_eq!(short_line("żółć", 4), "żółć");
        assert_eq!(bytes_line(&[0xff, 0, 0xfe], 40), "0xff00fe");
        assert_eq!(bytes_line(&[0xff; 40], 8), "0xffffffff…");
        let mut long = vec![b'a'; VALUE_CAP - 1];
        long.extend("ż and more".as_bytes());
        assert_eq!(value_text(&long).len(), VALUE_CAP - 1, "the split letter is left out, not turned into a replacement");
        assert_eq!(value_text(&vec![0x80; VALUE_CAP * 2]).chars().count(), VALUE_CAP - 4);
    }

    #[test]
    fn a_dump_shows_every_byte() {
        let dump = hex_dump(b"\0\xff{\"a\":\"<b>\"} and on");
        assert_eq!(
            dump,
            "00000000  00 ff 7b 22 61 22 3a 22 3c 62 3e 22 7d 20 61 6e  ..{\"a\":\"<b>\"} an\n\
             00000010  64 20 6f 6e                                      d on\n"
        );
        assert_eq!(hex_dump(&vec![0; HEX_CAP + 1]).lines().count(), HEX_CAP / 16);
    }
}
