//! Masked fields outside the value: an exception often quotes the value it choked on, and so do headers.

use std::borrow::Cow;

use super::fingerprint::normalise;
use super::json::{self, Kind, Scanner};

/// What stands in the place of a masked field.
pub const MASK: &str = "•••";

/// A value shorter than this many characters hides nothing worth it, and replacing it would garble every text.
const SHORTEST: usize = 3;
/// From this length on a value is hidden wherever it stands, below it only as a word of its own.
const LONG: usize = 6;
/// Larger values are not searched for their masked fields: texts beside them lose everything variable instead.
const SEARCHED: usize = 1024 * 1024;

/// What the masked fields of one value hold, to be hidden in the texts beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaskedValues {
    /// No field of this DLQ is masked, or none of them is in this value.
    Nothing,
    /// Longest first, so that a part of another value does not cut it in two.
    Known(Vec<String>),
    /// The fields cannot be found (no value, no JSON, or too large), so any text may quote them.
    Anything,
}

impl MaskedValues {
    /// Looks the pointers up in a value.
    pub fn of(value: Option<&[u8]>, mask: &[String]) -> MaskedValues {
        if mask.is_empty() {
            return MaskedValues::Nothing;
        }
        let Some(bytes) = value.filter(|bytes| !bytes.is_empty() && bytes.len() <= SEARCHED) else { return MaskedValues::Anything };
        let Ok(found) = json::find(bytes, mask) else { return MaskedValues::Anything };
        let mut known = Vec::new();
        found.iter().for_each(|field| gather(&bytes[field.start..field.end], &mut known));
        known.retain(|text| text.chars().count() >= SHORTEST);
        known.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        known.dedup();
        if known.is_empty() { MaskedValues::Nothing } else { MaskedValues::Known(known) }
    }

    /// The text without those values. Where they are not known, every line but a stack frame is normalised: quoted texts, documents,
    /// addresses and numbers go.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            MaskedValues::Nothing => Cow::Borrowed(text),
            MaskedValues::Known(values) => values.iter().fold(Cow::Borrowed(text), |text, value| match replaced(&text, value) {
                Some(hidden) => Cow::Owned(hidden),
                None => text,
            }),
            MaskedValues::Anything => {
                let is_frame = |line: &str| ["at ", "File \"", "... "].iter().any(|start| line.trim_start().starts_with(start));
                let line = |line: &str| if is_frame(line) { line.to_owned() } else { normalise(line) };
                Cow::Owned(text.lines().map(line).collect::<Vec<_>>().join("\n"))
            }
        }
    }

    /// As [`MaskedValues::hide`], for the name of a class, a stage or a group. Where the values are not known, what reads as a name stays.
    pub fn hide_name<'t>(&self, name: &'t str) -> Cow<'t, str> {
        let is_name = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '$' | '-' | ':'));
        if *self == MaskedValues::Anything && is_name { Cow::Borrowed(name) } else { self.hide(name) }
    }

    /// As [`MaskedValues::hide`], for bytes. Where they are no text they stay as they are, unless a value stands in them.
    pub fn hide_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.hide(text).into_owned().into_bytes();
        }
        let text = String::from_utf8_lossy(bytes);
        match self.hide(&text) {
            hidden if hidden != text => hidden.into_owned().into_bytes(),
            _ => bytes.to_vec(),
        }
    }
}

/// Whether a record's key, or what was made of it, must not be shown or found beside this value. A key that repeats a masked field gives it away, and
/// where the fields cannot be looked up (no value, no JSON, too large) nobody knows what the key repeats.
pub fn hides_key(value: Option<&[u8]>, mask: &[String], key: &[u8]) -> bool {
    match MaskedValues::of(value, mask) {
        MaskedValues::Nothing => false,
        MaskedValues::Anything => !key.is_empty(),
        known => {
            let text = String::from_utf8_lossy(key);
            known.hide(&text) != text
        }
    }
}

/// The scalars of a field, as its text and as it is written.
fn gather(field: &[u8], into: &mut Vec<String>) {
    for token in Scanner::new(field).flatten() {
        let written = &field[token.start..token.end];
        let mut push = |text: &[u8]| into.push(String::from_utf8_lossy(text).into_owned());
        match token.kind {
            Kind::Number => push(written),
            Kind::String => {
                let (text, escaped) = (json::decoded(written), &written[1..written.len() - 1]);
                // A writer of another kind escapes no more than it must.
                let plain = serde_json::Value::String(text.clone()).to_string();
                push(&plain.as_bytes()[1..plain.len() - 1]);
                push(escaped);
                push(text.as_bytes());
            }
            _ => {}
        }
    }
}

/// Replaces every value that a pointer names, null aside, by [`MASK`]; all else stays as it is written. With the pointers that named one.
///
/// # Errors
/// The value is not JSON, so its fields cannot be found.
pub fn masked(value: &[u8], mask: &[String]) -> Result<(String, Vec<String>), json::Fault> {
    let mut found = json::find(value, mask)?;
    found.retain(|field| !field.is_null);
    let (mut out, mut kept) = (Vec::with_capacity(value.len()), 0);
    for field in &found {
        out.extend_from_slice(&value[kept..field.start]);
        out.extend_from_slice(format!("\"{MASK}\"").as_bytes());
        kept = field.end;
    }
    out.extend_from_slice(&value[kept..]);
    let named = mask.iter().enumerate().filter(|(at, _)| found.iter().any(|field| field.pointer == *at));
    // JSON is UTF-8: that it could be read through says so.
    Ok((String::from_utf8_lossy(&out).into_owned(), named.map(|(_, pointer)| pointer.clone()).collect()))
}

/// None: the value is not in the text.
fn replaced(text: &str, value: &str) -> Option<String> {
    let anywhere = value.chars().count() >= LONG;
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut out, mut kept) = (String::new(), 0);
    for (at, _) in text.match_indices(value) {
        let end = at + value.len();
        if anywhere || !is_word(text[..at].chars().next_back()) && !is_word(text[end..].chars().next()) {
            out.push_str(&text[kept..at]);
            out.push_str(MASK);
            kept = end;
        }
    }
    (kept > 0).then(|| out + &text[kept..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(value: &str, mask: &[&str], text: &str) -> String {
        let mask: Vec<String> = mask.iter().map(|pointer| (*pointer).to_owned()).collect();
        MaskedValues::of(Some(value.as_bytes()), &mask).hide(text).into_owned()
    }

    #[test]
    fn what_a_text_quotes_of_a_masked_field_is_hidden() {
        let value = r#"{"id":"p-1","email":"ana@b.example","card":{"number":4111111111111111,"cvv":"123","name":"A\"B C"}}"#;
        let mask = ["/email", "/card", "/absent"];
        for (text, shown) in [
            ("no account for ana@b.example!", "no account for •••!"),
            ("card 4111111111111111x, cvv 123, attempt 1234", "card •••x, cvv •••, attempt 1234"),
            (r#"cannot read {"name":"A\"B C"} of A"B C"#, r#"cannot read {"name":"•••"} of •••"#),
            ("payment p-1 failed", "payment p-1 failed"),
            ("", ""),
        ] {
            assert_eq!(hidden(value, &mask, text), shown);
        }
        assert_eq!(hidden(value, &[], "ana@b.example"), "ana@b.example");
    }

    #[test]
    fn a_key_that_repeats_a_masked_field_or_may_is_hidden() {
        let value = r#"{"id":"p-1","email":"ana@b.example"}"#;
        let mask = ["/email".to_owned()];
        for (value, key, hidden) in [
            (Some(value), "ana@b.example", true),
            (Some(value), "eu:ana@b.example:7", true),
            (Some(value), "p-1", false),
            (Some(value), "", false),
            (Some(r#"{"id":"p-1"}"#), "ana@b.example", false),
            (Some("email=ana@b.example"), "p-1", true),
            (Some(""), "p-1", true),
            (None, "p-1", true),
        ] {
            assert_eq!(hides_key(value.map(str::as_bytes), &mask, key.as_bytes()), hidden, "{value:?} {key}");
            assert!(!hides_key(value.map(str::as_bytes), &[], key.as_bytes()), "nothing is masked");
        }
    }

    #[test]
    fn where_nobody_knows_what_is_hidden_names_stay_and_other_texts_do_not() {
        for (name, shown) in [
            ("java.net.SocketTimeoutException", "java.net.SocketTimeoutException"),
            ("com.acme.A$B", "com.acme.A$B"),
            ("std::io::Error", "std::io::Error"),
            ("payments-7", "payments-7"),
            ("ana@b.example", "<email>"),
        ] {
            assert_eq!(MaskedValues::Anything.hide_name(name), shown);
            assert_eq!(MaskedValues::Nothing.hide_name(name), name);
        }
        let known = MaskedValues::of(Some(br#"{"id":"payments"}"#), &["/id".to_owned()]);
        assert_eq!(known.hide_name("payments-7"), "•••-7");
    }

    #[test]
    fn bytes_that_are_no_text_hide_it_too() {
        let values = MaskedValues::of(Some(br#"{"pan":"4111111111111111"}"#), &["/pan".to_owned()]);
        assert_eq!(values.hide_bytes(b"\xff4111111111111111"), "\u{fffd}•••".as_bytes());
        assert_eq!(values.hide_bytes(b"\xff\x00"), b"\xff\x00");
    }

    #[test]
    fn a_field_given_twice_is_hidden_both_times() {
        let value = r#"{"email":"ana@b.example","n":1e400,"email":"bob@b.example"}"#;
        assert_eq!(hidden(value, &["/email"], "ana@b.example or bob@b.example"), "••• or •••");
        let (shown, fields) = masked(value.as_bytes(), &["/absent".to_owned(), "/email".to_owned()]).expect("JSON");
        assert_eq!((shown.as_str(), fields), (r#"{"email":"•••","n":1e400,"email":"•••"}"#, vec!["/email".to_owned()]));
    }

    #[test]
    fn a_field_is_hidden_as_written_and_as_meant() {
        let value = r#"{"name":"Jos\u00e9 \"A\/B\""}"#;
        for text in [r#"for Jos\u00e9 \"A\/B\""#, r#"for José "A/B""#, r#"for José \"A/B\""#] {
            assert_eq!(hidden(value, &["/name"], text), "for •••", "{text}");
        }
    }

    #[test]
    fn beside_a_value_that_cannot_be_searched_nothing_variable_stays() {
        let text =
            "Unexpected end in \"{\\\"email\\\": \\\"ana@b.example\\\"\"\n\tat com.acme.Reader.read(Reader.java:12)\nfor ana@b.example";
        let shown = hidden("{\"email\": \"ana@b.example\"", &["/email"], text);
        assert!(!shown.contains("ana@"), "{shown}");
        assert!(shown.contains("\n\tat com.acme.Reader.read(Reader.java:12)\n"), "{shown}");
        let large = format!("{{\"email\":\"ana@b.example\",\"x\":\"{}\"}}", "x".repeat(SEARCHED));
        assert_eq!(hidden(&large, &["/email"], "for ana@b.example"), "for <email>");
    }
}
