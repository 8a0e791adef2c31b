//! Takes what differs from message to message out of an error text: one scan over bytes, no regular expression, bounded in and out.

use super::super::record::clip;

/// No more of the text than this is looked at.
const INPUT_LIMIT: usize = 2 * 1024;
/// No placeholder but JSON stands for more than this; so hostile text costs no more than its length.
const REACH: usize = 256;
/// The result has at most this many bytes; it is stored and indexed.
const OUTPUT_LIMIT: usize = 512;

/// The text with numbers, timestamps, ids, addresses, quoted values and JSON replaced by placeholders such as `<n>`, and white space folded.
///
/// NUL and other control characters become spaces. Two texts with the same result are the same failure, as far as their text tells.
pub fn normalise(text: &str) -> String {
    let mut scan = Scan { bytes: clip(text, INPUT_LIMIT).as_bytes(), at: 0, out: Vec::with_capacity(128) };
    while scan.at < scan.bytes.len() && scan.out.len() < OUTPUT_LIMIT + 8 {
        scan.step();
    }
    let out = String::from_utf8_lossy(&scan.out);
    let out = out.trim();
    if out.len() <= OUTPUT_LIMIT {
        return out.to_owned();
    }
    // "…" takes three bytes.
    format!("{}…", clip(out, OUTPUT_LIMIT - 3))
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

/// Finds its kind of thing at the start of the rest of the text: (length, what stands in its place).
type Finder = fn(&[u8]) -> Option<(usize, &'static str)>;

/// Tried in this order where a word begins; the longer and more special before the shorter.
const AT_WORD_START: [Finder; 8] = [uuid, timestamp, time_of_day, ip_v6, ip_v4, email, hex_number, word_with_digits];

impl Scan<'_> {
    fn step(&mut self) {
        let rest = &self.bytes[self.at..];
        let byte = rest[0];
        let previous = self.at.checked_sub(1).map(|before| self.bytes[before]);
        if byte.is_ascii_whitespace() || byte.is_ascii_control() {
            if self.out.last().is_some_and(|last| *last != b' ') {
                self.out.push(b' ');
            }
            self.at += 1;
            return;
        }
        let found = match byte {
            b'\'' | b'"' => quoted(rest, previous),
            b'{' | b'[' => json(rest),
            b'?' => query(rest, previous),
            b'-' if !previous.is_some_and(is_word) && digits(&rest[1..]) > 0 => Some((1, "")),
            _ if !previous.is_some_and(is_word) => AT_WORD_START.iter().find_map(|find| find(rest)),
            _ => None,
        };
        match found {
            Some((length, placeholder)) => self.replace(length, placeholder),
            None if is_word(byte) => self.copy_word(rest),
            None => self.copy(1),
        }
    }

    /// A word is copied whole, so that nothing in its middle looks like the start of one; numbers in it are replaced.
    fn copy_word(&mut self, rest: &[u8]) {
        let mut left = run(rest, is_word);
        self.at += left;
        let mut word = &rest[..left];
        while left > 0 {
            let plain = run(word, |byte| !byte.is_ascii_digit());
            let number = digits(&word[plain..]);
            self.out.extend_from_slice(&word[..plain]);
            self.out.extend_from_slice(if number > 0 { b"<n>" } else { b"" });
            word = &word[plain + number..];
            left = word.len();
        }
    }

    fn replace(&mut self, length: usize, placeholder: &str) {
        // A list of values is one placeholder, however long it is.
        let is_repetition =
            !placeholder.is_empty() && self.out.ends_with(b", ") && self.out[..self.out.len() - 2].ends_with(placeholder.as_bytes());
        if is_repetition {
            self.out.truncate(self.out.len() - 2);
        } else {
            self.out.extend_from_slice(placeholder.as_bytes());
        }
        self.at += length;
    }

    fn copy(&mut self, length: usize) {
        self.out.extend_from_slice(&self.bytes[self.at..self.at + length]);
        self.at += length;
    }
}

/// Letters and digits; any byte of a character beyond ASCII counts as a letter.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn ends_word(rest: &[u8]) -> bool {
    !rest.first().copied().is_some_and(is_word)
}

fn run(bytes: &[u8], of: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| of(**byte)).count()
}

fn digits(bytes: &[u8]) -> usize {
    run(bytes, |byte| byte.is_ascii_digit())
}

/// A quoted value. An apostrophe inside a word opens nothing; the closing quote stands before no letter.
fn quoted(rest: &[u8], previous: Option<u8>) -> Option<(usize, &'static str)> {
    if previous.is_some_and(is_word) {
        return None;
    }
    // Jackson quotes the document it could not read, without escaping it.
    if let Some((length, placeholder)) = rest.get(1..).filter(|inner| !inner.is_empty()).and_then(json) {
        let closing = usize::from(rest.get(1 + length) == Some(&rest[0]));
        return Some((1 + length + closing, placeholder));
    }
    let closes = |at: usize| rest[at] == rest[0] && ends_word(&rest[at + 1..]);
    let end = (1..rest.len().min(REACH)).take_while(|at| rest[*at] != b'\n').find(|at| closes(*at))?;
    Some((end + 1, "<value>"))
}

/// An object or array of JSON, to its end or that of the text.
fn json(rest: &[u8]) -> Option<(usize, &'static str)> {
    let inner = rest[1..].iter().find(|byte| !byte.is_ascii_whitespace())?;
    if !matches!((rest[0], inner), (b'{', b'"' | b'\'') | (b'[', b'{')) {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some((at + 1, "<json>"));
                }
            }
            _ => {}
        }
    }
    Some((rest.len(), "<json>"))
}

/// The query of a URL: what follows '?' without a space.
fn query(rest: &[u8], previous: Option<u8>) -> Option<(usize, &'static str)> {
    let rest = &rest[..rest.len().min(REACH)];
    let length = run(rest, |byte| !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b')' | b'>' | b']'));
    let is_query = previous.is_some_and(|byte| is_word(byte) || byte == b'/') && rest[..length].contains(&b'=');
    is_query.then_some((length, "?<query>"))
}

fn uuid(rest: &[u8]) -> Option<(usize, &'static str)> {
    let candidate = rest.get(..36).filter(|_| ends_word(&rest[36..]))?;
    let fits = |(at, byte): (usize, &u8)| if matches!(at, 8 | 13 | 18 | 23) { *byte == b'-' } else { byte.is_ascii_hexdigit() };
    candidate.iter().enumerate().all(fits).then_some((36, "<uuid>"))
}

/// `2026-01-31`, perhaps with a time and an offset: `2026-01-31T10:00:00.123Z`, `2026-01-31 10:00:00,123 +0100`.
fn timestamp(rest: &[u8]) -> Option<(usize, &'static str)> {
    let date = rest.get(..10)?;
    let is_date = date.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => matches!(byte, b'-' | b'/'),
        _ => byte.is_ascii_digit(),
    });
    if !is_date || rest.get(10).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut end = 10;
    if matches!(rest.get(10), Some(b'T' | b't' | b' '))
        && let Some((length, _)) = time_of_day(&rest[11..])
    {
        end = 11 + length;
    }
    Some((end, "<time>"))
}

/// `10:00`, `10:00:00`, `10:00:00.123Z`, `10:00:00,123+01:00`.
fn time_of_day(rest: &[u8]) -> Option<(usize, &'static str)> {
    let pair = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit) && rest.get(at + 1).is_some_and(u8::is_ascii_digit);
    if !(pair(0) && rest.get(2) == Some(&b':') && pair(3)) {
        return None;
    }
    let mut end = 5;
    if rest.get(5) == Some(&b':') && pair(6) {
        end = 8;
        let fraction = digits(rest.get(9..).unwrap_or_default());
        if matches!(rest.get(8), Some(b'.' | b',' | b':')) && fraction > 0 {
            end = 9 + fraction;
        }
    }
    match rest.get(end) {
        Some(b'Z' | b'z') => end += 1,
        Some(b'+' | b'-') if pair(end + 1) => end += 1 + run(&rest[end + 1..], |byte| byte.is_ascii_digit() || byte == b':'),
        _ => {}
    }
    ends_word(&rest[end..]).then_some((end, "<time>"))
}

/// Four numbers with dots, perhaps with a port.
fn ip_v4(rest: &[u8]) -> Option<(usize, &'static str)> {
    let mut end = 0;
    for group in 0..4 {
        if group > 0 {
            end += usize::from(rest.get(end) == Some(&b'.'));
        }
        let length = digits(&rest[end..]);
        if !(1..=3).contains(&length) || group > 0 && rest[end - 1] != b'.' {
            return None;
        }
        end += length;
    }
    if rest.get(end) == Some(&b'.') && digits(&rest[end + 1..]) > 0 {
        return None;
    }
    let port = if rest.get(end) == Some(&b':') { digits(&rest[end + 1..]) } else { 0 };
    if port > 0 {
        end += 1 + port;
    }
    ends_word(&rest[end..]).then_some((end, "<ip>"))
}

/// At least three groups of hex digits with colons, one of them longer than two digits or left out (so that a time is none).
fn ip_v6(rest: &[u8]) -> Option<(usize, &'static str)> {
    let length = run(&rest[..rest.len().min(64)], |byte| byte.is_ascii_hexdigit() || byte == b':');
    let candidate = &rest[..length];
    let groups: Vec<&[u8]> = candidate.split(|byte| *byte == b':').collect();
    let is_address = (3..=9).contains(&groups.len())
        && groups.iter().all(|group| group.len() <= 4)
        && (candidate.windows(2).any(|two| two == b"::") || groups.len() == 8)
        && ends_word(&rest[length..]);
    is_address.then_some((length, "<ip>"))
}

fn email(rest: &[u8]) -> Option<(usize, &'static str)> {
    let local = run(&rest[..rest.len().min(65)], |byte| is_word(byte) || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'%'));
    if local == 0 || rest.get(local) != Some(&b'@') {
        return None;
    }
    let host = &rest[local + 1..];
    let mut length = run(host, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    while length > 0 && !host[length - 1].is_ascii_alphanumeric() {
        length -= 1;
    }
    // A class with its identity hash, `com.acme.Order@1a2b3c`, has no dot after the '@'.
    let last_dot = host[..length].iter().rposition(|byte| *byte == b'.')?;
    let is_domain = last_dot > 0 && length - last_dot > 2 && host[last_dot + 1..length].iter().all(u8::is_ascii_alphabetic);
    is_domain.then_some((local + 1 + length, "<email>"))
}

fn hex_number(rest: &[u8]) -> Option<(usize, &'static str)> {
    if !(rest.starts_with(b"0x") || rest.starts_with(b"0X")) {
        return None;
    }
    let length = run(&rest[2..], |byte| byte.is_ascii_hexdigit());
    (length > 0 && ends_word(&rest[2 + length..])).then_some((2 + length, "<id>"))
}

/// A number with its fraction, or a word that holds digits: an id, or a name with numbers in it.
fn word_with_digits(rest: &[u8]) -> Option<(usize, &'static str)> {
    let word = &rest[..run(rest, is_word)];
    let number_of_digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    if number_of_digits == 0 {
        return None;
    }
    if word[0].is_ascii_digit()
        && digits(word) + run(&word[digits(word)..], |byte| byte.is_ascii_alphabetic()) == word.len()
        && !is_id(word)
    {
        return Some((number(rest), "<n>"));
    }
    if is_id(word) {
        return Some((word.len(), "<id>"));
    }
    None
}

/// Mixed letters and digits of some length: hex, a ULID, base 62. Neither `utf8` nor `sha256` nor `partition3`.
fn is_id(word: &[u8]) -> bool {
    let mut runs = 0;
    let mut letters = 0;
    let mut previous_is_digit = false;
    for byte in word {
        let is_digit = byte.is_ascii_digit();
        runs += usize::from(is_digit && !previous_is_digit);
        letters += usize::from(!is_digit);
        previous_is_digit = is_digit;
    }
    let is_hex = word.iter().all(u8::is_ascii_hexdigit);
    letters > 0 && runs > 0 && (runs >= 2 && word.len() >= 6 || is_hex && word.len() >= 6)
}

/// The length of a number with its fractions and groups (`1,234.5`, `1.2.3`, `1e-5`); a unit that follows at once stays.
fn number(rest: &[u8]) -> usize {
    let mut end = digits(rest);
    while matches!(rest.get(end), Some(b'.' | b',')) {
        match digits(&rest[end + 1..]) {
            0 => break,
            more => end += 1 + more,
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_differs_from_message_to_message_is_taken_out() {
        for (text, expected) in [
            ("Listener failed; connect timed out after 5000 ms", "Listener failed; connect timed out after <n> ms"),
            ("timed out after 5000ms, attempt 3/10", "timed out after <n>ms, attempt <n>/<n>"),
            ("order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 not found", "order <uuid> not found"),
            ("user-1042 has balance -12.50 of 1,234.00", "user-<n> has balance <n> of <n>"),
            ("Duplicate entry 'abc-123' for key 'PRIMARY'", "Duplicate entry <value> for key <value>"),
            ("can't read it's \"name\" field", "can't read it's <value> field"),
            ("at 2026-01-31T10:00:00.123Z and 2026-01-31 10:00:00,123+01:00", "at <time> and <time>"),
            ("since 10:00:01", "since <time>"),
            ("connect to 10.0.12.7:5432 and fe80::1ff:fe23:4567:890a failed", "connect to <ip> and <ip> failed"),
            ("no account for ana.b+x@mail.example.com.", "no account for <email>."),
            ("com.acme.Order@6d06d69c at 0x7ffe12", "com.acme.Order@<id> at <id>"),
            ("payment pay_8fK2mQ9zL0 and 01HZX3K9QW2E5R7T1Y4U6I8O0P", "payment pay_<id> and <id>"),
            ("GET https://api.acme.com/users/1042/orders?from=3&to=4 -> 503", "GET https://api.acme.com/users/<n>/orders?<query> -> <n>"),
            ("ids [1, 2, 3, 44] of 'a', 'b'", "ids [<n>] of <value>"),
            (r#"bad document {"id": 1, "s": "}\"", "x": [1]} here"#, "bad document <json> here"),
            (r#"at [Source: (String)"{"order_id":"o1"}"; line: 1, column: 5]"#, "at [Source: (String)<json>; line: <n>, column: <n>]"),
            ("utf8 int32 sha256 partition3", "utf<n> int<n> sha<n> partition<n>"),
            ("  a \t\r\n b\0c  ", "a b c"),
            ("Überweisung 12 für Zoë fehlgeschlagen", "Überweisung <n> für Zoë fehlgeschlagen"),
            ("", ""),
        ] {
            assert_eq!(normalise(text), expected, "{text}");
        }
    }

    #[test]
    fn different_failures_stay_different() {
        assert_ne!(normalise("connection refused"), normalise("connection reset"));
        assert_ne!(normalise("column a is null"), normalise("column b is null"));
    }

    #[test]
    fn hostile_text_is_bounded() {
        for text in [
            "'".repeat(1 << 20),
            "a.".repeat(1 << 19),
            "\"{".repeat(1 << 19),
            "a:".repeat(1 << 19),
            "é".repeat(1 << 19),
            "a?".repeat(1 << 19),
        ] {
            assert!(normalise(&text).len() <= OUTPUT_LIMIT);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            let once = normalise(&text);
            prop_assert!(once.len() <= OUTPUT_LIMIT && !once.contains(|char: char| char.is_ascii_control()));
        }

        #[test]
        fn the_numbers_in_a_text_make_no_difference(a in any::<u32>(), b in any::<u32>()) {
            let text = |n: u32| format!("item {n} of order-{n} failed in {n}ms (id={n}, ratio {n}.{n})");
            prop_assert_eq!(normalise(&text(a)), normalise(&text(b)));
        }
    }
}
