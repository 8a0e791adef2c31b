//! Key templates: `{value:/json/pointer}`, `{header:name}`, `{key}` and literal text between them.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::record::Record;

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    source: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// The reference tokens of an RFC 6901 pointer, unescaped.
    Value(Vec<String>),
    Header(Vec<u8>),
    Key,
}

/// Why a template could not be read: where, what, and what to write instead.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("at character {position}: {problem}; {remedy}")]
pub struct TemplateError {
    /// 1-based, in characters.
    pub position: usize,
    pub problem: String,
    pub remedy: &'static str,
}

const PLACEHOLDERS: &str = "use {value:/json/pointer}, {header:name} or {key}";

impl KeyTemplate {
    /// Reads a template. It must hold at least one placeholder: without one, every message would have the same key.
    pub fn parse(source: &str) -> Result<KeyTemplate, TemplateError> {
        let fail =
            |byte: usize, problem: String, remedy| Err(TemplateError { position: source[..byte].chars().count() + 1, problem, remedy });
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(found) = source[at..].find(['{', '}']) {
            let open = at + found;
            if source[open..].starts_with('}') {
                return fail(open, "'}' closes nothing".to_owned(), "remove it, or open a placeholder before it");
            }
            if open > at {
                parts.push(Part::Literal(source[at..open].to_owned()));
            }
            let Some(length) = source[open + 1..].find(['{', '}']).filter(|end| source[open + 1 + end..].starts_with('}')) else {
                return fail(open, "'{' is not closed".to_owned(), "close the placeholder with '}'");
            };
            match placeholder(&source[open + 1..open + 1 + length]) {
                Ok(part) => parts.push(part),
                Err((problem, remedy)) => return fail(open, problem, remedy),
            }
            at = open + length + 2;
        }
        if parts.iter().all(|part| matches!(part, Part::Literal(_))) {
            return fail(0, "no placeholder, so every message would have the same key".to_owned(), PLACEHOLDERS);
        }
        if at < source.len() {
            parts.push(Part::Literal(source[at..].to_owned()));
        }
        Ok(KeyTemplate { source: source.to_owned(), parts })
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether a placeholder reads the field that this JSON pointer names, or something inside it.
    pub fn reads(&self, pointer: &str) -> bool {
        let field = if pointer.is_empty() { Some(Vec::new()) } else { pointer_tokens(pointer) };
        let within = |part: &Part| matches!((part, &field), (Part::Value(tokens), Some(field)) if tokens.starts_with(field));
        self.parts.iter().any(within)
    }

    /// The key of a record, exact: a number keeps its digits as they stand in the JSON, however many there are.
    ///
    /// `None` when any part is missing, null, empty, an object or array, or (key and headers) not UTF-8: a key with a hole in it
    /// would name several messages. Of a repeated header or member the last counts. The text may contain NUL; whoever
    /// shows or stores it as text replaces that.
    pub fn render(&self, record: &Record) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Key => out.push_str(text_of(record.key.as_deref())?),
                Part::Header(name) => {
                    let header = record.headers.iter().rev().find(|header| header.name == *name)?;
                    out.push_str(text_of(header.value.as_deref())?);
                }
                Part::Value(pointer) => {
                    let text = json_scalar(record.value.as_deref()?, pointer)?;
                    if text.is_empty() {
                        return None;
                    }
                    out.push_str(&text);
                }
            }
        }
        Some(out)
    }
}

fn text_of(bytes: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(bytes?).ok().filter(|text| !text.is_empty())
}

/// What stands between the braces, or (problem, remedy).
fn placeholder(inner: &str) -> Result<Part, (String, &'static str)> {
    if inner == "key" {
        return Ok(Part::Key);
    }
    match inner.split_once(':') {
        Some(("header", "")) => Err(("{header:} names no header".to_owned(), "write the header's name after the colon")),
        Some(("header", name)) => Ok(Part::Header(name.as_bytes().to_vec())),
        Some(("value", pointer)) => match pointer_tokens(pointer) {
            Some(tokens) => Ok(Part::Value(tokens)),
            None => Err((
                format!("{pointer:?} is not a JSON pointer"),
                "start it with '/', as in {value:/payment/id}; write '~' as '~0' and '/' in a name as '~1'",
            )),
        },
        _ => Err((format!("unknown placeholder {{{inner}}}"), PLACEHOLDERS)),
    }
}

/// RFC 6901, without the empty pointer: the whole document is no key.
fn pointer_tokens(pointer: &str) -> Option<Vec<String>> {
    let tokens: Vec<&str> = pointer.strip_prefix('/')?.split('/').collect();
    tokens.into_iter().map(unescape).collect()
}

fn unescape(token: &str) -> Option<String> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(char) = chars.next() {
        match char {
            '~' => out.push(match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            }),
            other => out.push(other),
        }
    }
    Some(out)
}

/// The text of the scalar at a pointer. One pass over the document that keeps nothing but the scalar, so a value of
/// many megabytes costs its scan and no memory; the whole document must be valid JSON.
fn json_scalar(document: &[u8], pointer: &[String]) -> Option<String> {
    let mut json = serde_json::Deserializer::from_slice(document);
    let found = At { pointer }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    found
}

/// Walks down to where the pointer leads.
struct At<'p> {
    pointer: &'p [String],
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<String>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        match self.pointer.split_first() {
            None => Ok(scalar_text(<&RawValue as serde::Deserialize>::deserialize(deserializer)?.get())),
            Some((token, rest)) => deserializer.deserialize_any(Step { token, rest }),
        }
    }
}

/// One level of the way: the member or element named `token`.
struct Step<'p> {
    token: &'p str,
    rest: &'p [String],
}

impl<'de> Visitor<'de> for Step<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(NameIs(self.token))? {
            if is_it {
                found = map.next_value_seed(At { pointer: self.rest })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<String>, A::Error> {
        // RFC 6901: digits without a leading zero.
        let index = (self.token == "0" || !self.token.starts_with('0')).then(|| self.token.parse::<usize>().ok()).flatten();
        let mut found = None;
        for at in 0.. {
            if Some(at) == index {
                match seq.next_element_seed(At { pointer: self.rest })? {
                    Some(text) => found = text,
                    None => break,
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    // A scalar on the way leads nowhere.
    fn visit_bool<E>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Option<String>, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Option<String>, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Option<String>, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }
}

/// Whether a member has this name; nothing is copied.
struct NameIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for NameIs<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// A string's text; a number's or bool's own characters; nothing for null, an object or an array.
fn scalar_text(raw: &str) -> Option<String> {
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok(),
        b'-' | b'0'..=b'9' | b't' | b'f' => Some(raw.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::record::Header;

    fn record(value: &str) -> Record {
        let header = |name: &str, value: Option<&[u8]>| Header { name: name.into(), value: value.map(<[u8]>::to_vec) };
        Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp_ms: None,
            key: Some(b"k1".to_vec()),
            value: Some(value.as_bytes().to_vec()),
            headers: vec![
                header("id", Some(b"first")),
                header("id", Some(b"last")),
                header("null", None),
                header("bad", Some(b"\xff")),
                header("empty", Some(b"")),
            ],
        }
    }

    fn rendered(template: &str, value: &str) -> Option<String> {
        KeyTemplate::parse(template).unwrap().render(&record(value))
    }

    #[test]
    fn digits_beyond_two_to_the_53rd_are_two_keys() {
        assert_eq!(rendered("{value:/id}", r#"{"id":9007199254740992}"#).as_deref(), Some("9007199254740992"));
        assert_eq!(rendered("{value:/id}", r#"{"id":9007199254740993}"#).as_deref(), Some("9007199254740993"));
        let long = "123456789012345678901234567890.12345678901234567890e5";
        assert_eq!(rendered("{value:/id}", &format!(r#"{{"id": {long} }}"#)).as_deref(), Some(long));
    }

    #[test]
    fn parts_are_joined_with_the_text_between() {
        let value = r#"{"a":{"b/c":[{"x":1},{"x":"é\u0000\n"}]},"ok":true,"tilde~":7}"#;
        assert_eq!(rendered("p:{value:/a/b~1c/1/x}-{header:id}/{key}!", value).as_deref(), Some("p:é\0\n-last/k1!"));
        assert_eq!(rendered("{value:/ok}{value:/tilde~0}", value).as_deref(), Some("true7"));
    }

    #[test]
    fn a_missing_part_is_no_key() {
        for value in
            [r#"{}"#, r#"{"id":null}"#, r#"{"id":{}}"#, r#"{"id":[1]}"#, r#"{"id":""}"#, "not json", "", "12", r#""id""#, r#"{"id":1} x"#]
        {
            assert_eq!(rendered("{value:/id}", value), None, "{value}");
        }
        for template in
            ["{header:null}", "{header:bad}", "{header:none}", "{header:empty}", "{key}{value:/a/b}", "{value:/a/01}", "{value:/a/-1}"]
        {
            assert_eq!(rendered(template, r#"{"a":[1,2,3]}"#), None, "{template}");
        }
    }

    #[test]
    fn of_two_members_of_one_name_the_last_counts() {
        assert_eq!(rendered("{value:/id}", r#"{"id":1,"id":2}"#).as_deref(), Some("2"));
        assert_eq!(rendered("{value:/a/b}", r#"{"a":{"b":1},"a":2}"#), None);
    }

    #[test]
    fn a_template_knows_which_fields_it_reads() {
        let template = KeyTemplate::parse("{value:/card/a~1b}-{header:email}").unwrap();
        for (pointer, reads) in [("/card/a~1b", true), ("/card", true), ("", true), ("/card/a", false), ("/email", false), ("/car", false)]
        {
            assert_eq!(template.reads(pointer), reads, "{pointer}");
        }
    }

    #[test]
    fn deep_and_broken_documents_do_no_harm() {
        let deep = "[".repeat(200_000);
        assert_eq!(rendered("{value:/id}", &deep), None);
        assert_eq!(rendered("{value:/0/0}", &deep), None);
        assert_eq!(rendered("{value:/id}", &format!("{{\"id\":{deep}")), None);
        let pointer = format!("{{value:{}}}", "/0".repeat(100_000));
        assert_eq!(rendered(&pointer, &deep), None);
    }

    #[test]
    fn errors_name_place_and_remedy() {
        let message = |source: &str| KeyTemplate::parse(source).unwrap_err().to_string();
        assert_eq!(
            message("ü{value:id}"),
            "at character 2: \"id\" is not a JSON pointer; start it with '/', as in {value:/payment/id}; write '~' as '~0' and '/' in a name as '~1'"
        );
        assert!(message("a{key").starts_with("at character 2: '{' is not closed"));
        assert!(message("a{k{key}").starts_with("at character 2: '{' is not closed"));
        assert!(message("a}").starts_with("at character 2: '}' closes nothing"));
        assert!(message("{valu:/x}").contains("unknown placeholder {valu:/x}; use {value:/json/pointer}"));
        assert!(message("{header:}").contains("names no header"));
        assert!(message("{value:/a~2}").contains("is not a JSON pointer"));
        assert!(message("plain").contains("every message would have the same key"));
        assert!(message("").contains("every message would have the same key"));
    }
}
