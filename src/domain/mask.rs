//! Masked fields outside the value: an exception often quotes the value it choked on, and so do headers.

use std::borrow::Cow;

use serde_json::Value;

use super::fingerprint::normalise;
use super::json;

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
        let Some(json) = json::parse(bytes) else { return MaskedValues::Anything };
        let mut known = Vec::new();
        mask.iter().filter_map(|pointer| json.pointer(pointer)).for_each(|field| gather(field, &mut known));
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

/// The scalars of a field, as its text and as JSON writes it.
fn gather(field: &Value, into: &mut Vec<String>) {
    match field {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => into.push(number.to_string()),
        Value::String(text) => {
            let quoted = field.to_string();
            let escaped = &quoted[1..quoted.len() - 1];
            if escaped != text {
                into.push(escaped.to_owned());
            }
            into.push(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
        Value::Object(members) => members.values().for_each(|member| gather(member, into)),
    }
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
