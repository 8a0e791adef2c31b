//! JSON of strangers as a tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How serde_json hands a number over that keeps its digits: as an object with this one member. An object of a stranger that looks the
/// same becomes that number: nothing is lost.
const NUMBER: &str = "$serde_json::private::Number";

/// Reads a document. Numbers keep their digits, members their order; of a member given twice the last counts. None: no JSON, or nested
/// deeper than serde_json goes (128).
///
/// `serde_json::Value` reads an object whose only member is `$serde_json::private::RawValue` by parsing its string as JSON again, with
/// the depth counted anew: a record made so overflows the stack, which ends the process. Here it is an object like any other.
pub fn parse(document: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Tree>(document).ok().map(|tree| tree.0)
}

struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            members.insert(name, map.next_value::<Tree>()?.0);
        }
        Ok(number(&members).map_or(Value::Object(members), Value::Number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element::<Tree>()? {
            all.push(item.0);
        }
        Ok(Value::Array(all))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }
    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }
}

fn number(members: &Map<String, Value>) -> Option<Number> {
    let digits = members.get(NUMBER).filter(|_| members.len() == 1)?;
    digits.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(document: &str) -> Option<String> {
        parse(document.as_bytes()).map(|value| value.to_string())
    }

    #[test]
    fn a_document_survives_digit_by_digit() {
        for document in [
            r#"{"b":9007199254740993,"a":[1.10,-0,12e-400,1e+400,null,true,"é\n"],"":{}}"#,
            "123456789012345678901234567890.5",
            r#"{"$serde_json::private::Number":"12x"}"#,
            r#"{"$serde_json::private::Number":"1","x":2}"#,
            r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#,
        ] {
            assert_eq!(again(document).as_deref(), Some(document));
        }
        assert_eq!(again(r#"{"a":1,"a":2}"#).as_deref(), Some(r#"{"a":2}"#));
        for broken in ["", "{", "[1,]", "{} x", "\u{feff}{}", "01", r#""\ud800""#] {
            assert_eq!(parse(broken.as_bytes()), None, "{broken}");
        }
        assert_eq!(parse(b"\"\xff\""), None);
    }

    #[test]
    fn no_document_is_parsed_again_within_itself_until_the_stack_is_full() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(120), "]".repeat(120));
        let mut document = "1".to_owned();
        for _ in 0..17 {
            let again = Value::String(document).to_string();
            document = nested(&format!(r#"{{"$serde_json::private::RawValue":{again}}}"#));
        }
        // A debug build of serde_json's own Value overflows a test's stack of 2 MiB with this.
        assert!(parse(document.as_bytes()).is_some());
        assert_eq!(parse("[".repeat(200_000).as_bytes()), None);
    }
}
