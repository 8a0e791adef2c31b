//! JSON Schema: a compiled schema, and what does not fit, without the payload's own words.

use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::Fit;
use crate::domain::json::BOM;

/// A compiled schema.
#[derive(Debug)]
pub struct JsonSchema {
    validator: Validator,
}

impl JsonSchema {
    /// Compiles a schema. What it refers to must be inside of it: nothing is fetched.
    ///
    /// # Errors
    /// It is no JSON, or no JSON Schema: where and why.
    pub fn compile(text: &[u8]) -> Result<JsonSchema, String> {
        JsonSchema::compile_with(text, &[])
    }

    /// As [`JsonSchema::compile`]; `references`: name and text of what the registry says it refers to.
    ///
    /// # Errors
    /// As there.
    pub fn compile_with(text: &[u8], references: &[(String, String)]) -> Result<JsonSchema, String> {
        let schema: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err("no JSON Schema: it is neither an object nor true or false".to_owned());
        }
        let others = references.iter().map(|(name, text)| {
            let schema =
                serde_json::from_str(text).map_err(|error| format!("no JSON Schema: what it refers to as {name} is no JSON: {error}"))?;
            Ok((name.clone(), schema))
        });
        let others = Referred(others.collect::<Result<_, String>>()?);
        match jsonschema::options().with_retriever(others).build(&schema) {
            Ok(validator) => Ok(JsonSchema { validator }),
            Err(error) => Err(format!("no JSON Schema: at {}: {error}", place(error.instance_path().as_str(), &[]))),
        }
    }

    /// Whether a document fits. Of masked fields (`mask`, JSON pointers) not even the inner places are named.
    pub fn judge(&self, document: &[u8], mask: &[String]) -> Fit {
        let value = match parsed(document) {
            Ok(value) => value,
            Err(fit) => return fit,
        };
        // The quick answer first: most fit.
        if self.validator.is_valid(&value) {
            return Fit::Fits;
        }
        match self.validator.validate(&value) {
            Ok(()) => Fit::Fits,
            Err(error) => unfit(&error, mask),
        }
    }
}

/// What a schema refers to, by the names that the registry has for it. Nothing is fetched.
struct Referred(Vec<(String, Value)>);

impl jsonschema::Retrieve for Referred {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let named = |name: &str| uri.as_str() == name || uri.as_str().strip_suffix(name).is_some_and(|before| before.ends_with('/'));
        let found = self.0.iter().find(|(name, _)| named(name));
        found.map(|(_, schema)| schema.clone()).ok_or_else(|| format!("{uri} is not part of it, and nothing is fetched").into())
    }
}

fn parsed(document: &[u8]) -> Result<Value, Fit> {
    if document.starts_with(BOM) {
        return Err(Fit::Unclear("begins with a byte order mark, which JSON forbids and some consumers skip".to_owned()));
    }
    serde_json::from_slice(document).map_err(|error| match error.to_string() {
        said if said.starts_with("recursion limit") => Fit::Unclear("nests deeper than 128 levels".to_owned()),
        // The parser's own words name what it expected, and no value.
        _ => Fit::Unfit(format!("is no JSON: line {}, column {}", error.line(), error.column())),
    })
}

fn unfit(error: &ValidationError<'_>, mask: &[String]) -> Fit {
    use jsonschema::error::ValidationErrorKind as Kind;
    let at = place(error.instance_path().as_str(), mask);
    let rule = error.schema_path().as_str();
    match error.kind() {
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } | Kind::Referencing(_) => {
            Fit::Unclear(format!("at {at}: the rule {rule} cannot be tried"))
        }
        Kind::Required { property } => Fit::Unfit(format!("at {at}: {property} is missing ({rule})")),
        kind => Fit::Unfit(format!("at {at}: does not meet \"{}\" ({rule})", kind.keyword())),
    }
}

/// A JSON pointer for people. A name on the way may be the payload's own, so it ends at a masked field and is cut.
fn place(pointer: &str, mask: &[String]) -> String {
    const LENGTH: usize = 200;
    let inside = |masked: &&String| pointer.strip_prefix(masked.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let shown = mask.iter().find(inside).map_or(pointer, String::as_str);
    match shown {
        "" => "the top".to_owned(),
        shown => crate::domain::record::display_text_within(shown.as_bytes(), LENGTH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{
        "type": "object", "required": ["id", "amount"], "additionalProperties": false,
        "properties": {
            "id": {"type": "integer", "maximum": 9007199254740992},
            "amount": {"type": "number", "multipleOf": 0.01},
            "card": {"additionalProperties": {"type": "integer"}},
            "email": {"type": "string", "pattern": "^[a-z]+@"}
        }
    }"#;

    fn judge(document: &str) -> Fit {
        let mask = ["/card".to_owned(), "/email".to_owned()];
        JsonSchema::compile(SCHEMA.as_bytes()).expect("a schema").judge(document.as_bytes(), &mask)
    }

    #[test]
    fn digits_are_exact_beyond_2_to_the_53rd() {
        assert_eq!(judge(r#"{"id":9007199254740992,"amount":1}"#), Fit::Fits);
        let said = Fit::Unfit(r#"at /id: does not meet "maximum" (/properties/id/maximum)"#.to_owned());
        assert_eq!(judge(r#"{"id":9007199254740993,"amount":1}"#), said);
        assert_eq!(judge(r#"{"id":1,"amount":0.1}"#), Fit::Fits, "0.1 is a multiple of 0.01");
        assert_eq!(judge(r#"{"id":1,"amount":123456789012345678901234567890.01}"#), Fit::Fits);
        assert_ne!(judge(r#"{"id":1,"amount":123456789012345678901234567890.001}"#), Fit::Fits);
    }

    #[test]
    fn what_does_not_fit_is_named_by_place_and_rule_and_never_by_value() {
        for (document, said) in [
            (r#"{"id":1}"#, r#"at the top: "amount" is missing (/required)"#),
            (r#"{"id":"SECRET","amount":1}"#, r#"at /id: does not meet "type" (/properties/id/type)"#),
            (r#"{"id":1,"amount":1,"SECRET":1}"#, r#"at the top: does not meet "additionalProperties" (/additionalProperties)"#),
            (
                r#"{"id":1,"amount":1,"card":{"SECRET":"x"}}"#,
                r#"at /card: does not meet "type" (/properties/card/additionalProperties/type)"#,
            ),
            (r#"{"id":1,"amount":1,"email":"SECRET"}"#, r#"at /email: does not meet "pattern" (/properties/email/pattern)"#),
            ("SECRET", "is no JSON: line 1, column 1"),
            (r#"{"id":1}{"#, "is no JSON: line 1, column 9"),
            ("", "is no JSON: line 1, column 0"),
        ] {
            assert_eq!(judge(document), Fit::Unfit(said.to_owned()), "{document}");
        }
    }

    #[test]
    fn what_a_consumer_may_yet_read_is_not_called_unfit() {
        assert!(matches!(judge(&"[".repeat(1_000)), Fit::Unclear(_)));
        assert!(matches!(judge("\u{feff}{}"), Fit::Unclear(_)));
    }

    #[test]
    fn a_schema_that_is_none_says_where() {
        for (text, said) in [
            ("{", "no JSON: EOF"),
            ("[]", "no JSON Schema: it is neither"),
            (r#"{"type":"objekt"}"#, "no JSON Schema: at /type"),
            (r#"{"properties":{"a":{"pattern":"("}}}"#, "no JSON Schema: at /properties/a/pattern"),
            (r##"{"$ref":"#/$defs/none"}"##, "no JSON Schema"),
            (r#"{"$ref":"https://example.com/schema.json"}"#, "no JSON Schema"),
        ] {
            let fault = JsonSchema::compile(text.as_bytes()).expect_err(text);
            assert!(fault.starts_with(said), "{text}: {fault}");
        }
    }
}
