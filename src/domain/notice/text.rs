//! Texts made harmless and short.

use url::Url;

use crate::domain::record::deceives;

/// Of one text; what is longer is cut before anything else is done with it.
const LIMIT: usize = 8 * 1024;

/// On one line, with nothing that is not seen: control characters become blanks, what would change how others are shown becomes U+FFFD.
pub(super) fn plain(text: &str) -> String {
    let text = crate::domain::record::clip(text, LIMIT);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() || c.is_whitespace() => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c if deceives(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// At most `limit` UTF-16 units of the text, the last an ellipsis where something was cut. Services count characters as code points or as UTF-16 units and mostly do not say which: this
/// keeps within either.
pub(super) fn cut(text: &str, limit: usize) -> String {
    cut_as(text, limit, |c, out| out.push(c))
}

/// As [`cut`], each character written by `write`, and what it wrote counted: an escape is whole or not there.
pub(super) fn cut_as(text: &str, limit: usize, write: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len().min(limit));
    let (mut units, mut piece) = (0, String::new());
    // The longest beginning that leaves room for the ellipsis.
    let mut with_room = 0;
    for c in text.chars() {
        piece.clear();
        write(c, &mut piece);
        let length = piece.encode_utf16().count();
        if units + length > limit {
            out.truncate(with_room);
            if limit > 0 {
                out.push('…');
            }
            return out;
        }
        out.push_str(&piece);
        units += length;
        if units < limit {
            with_room = out.len();
        }
    }
    out
}

/// The address as browsers write it, if it is an absolute http(s) one of at most `limit` bytes.
pub(super) fn web_address(text: &str, limit: usize) -> Option<String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())?;
    let written = String::from(url);
    (written.len() <= limit).then_some(written)
}

/// Takes the power from a masked link (`[words](address)`), whose words could say anything: a blank between the two, and it is none.
pub(super) fn unlinked(text: &str) -> String {
    text.replace("](", "] (").replace("][", "] [")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cuts_are_on_characters_and_show() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 5), "abcd…");
        assert_eq!(cut("ab", 0), "");
        assert_eq!(cut("a", 1), "a");
        assert_eq!(cut("ab", 1), "…");
        // Two UTF-16 units each.
        assert_eq!(cut("💥💥💥", 5), "💥💥…");
        assert_eq!(cut("💥💥💥", 4), "💥…");
        let amp = |c: char, out: &mut String| if c == '&' { out.push_str("&amp;") } else { out.push(c) };
        assert_eq!(cut_as("a&b", 7, amp), "a&amp;b");
        assert_eq!(cut_as("a&b", 6, amp), "a…");
    }

    #[test]
    fn nothing_invisible_is_left() {
        assert_eq!(plain(" a\n\tb\u{202e}c\0 d  "), "a b\u{fffd}c d");
        assert_eq!(web_address("javascript:alert(1)", 100), None);
        assert_eq!(web_address("https://h/a b", 100).as_deref(), Some("https://h/a%20b"));
        assert_eq!(web_address("https://h/aaaaaaaaaaaaaaaaaaaaa", 10), None);
        assert_eq!(unlinked("[a](https://evil)"), "[a] (https://evil)");
    }

    proptest! {
        #[test]
        fn a_cut_keeps_its_limit(text in any::<String>(), limit in 0_usize..40) {
            let short = cut(&plain(&text), limit);
            prop_assert!(short.encode_utf16().count() <= limit);
            prop_assert!(!short.contains(char::is_control));
        }
    }
}
