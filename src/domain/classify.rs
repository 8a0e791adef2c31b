//! Which kind of failure a dead letter is: configured rules first, then the built-in ones.

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::dialect::Reading;
use super::record::Record;

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    Transient,
    Deserialization,
    Schema,
    Validation,
    Business,
    Authorization,
    Size,
    Bug,
    Unknown,
}

impl FailureClass {
    pub const ALL: [FailureClass; 9] = [
        FailureClass::Transient,
        FailureClass::Deserialization,
        FailureClass::Schema,
        FailureClass::Validation,
        FailureClass::Business,
        FailureClass::Authorization,
        FailureClass::Size,
        FailureClass::Bug,
        FailureClass::Unknown,
    ];

    /// The word in the database, the API, the query string and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Transient => "transient",
            FailureClass::Deserialization => "deserialization",
            FailureClass::Schema => "schema",
            FailureClass::Validation => "validation",
            FailureClass::Business => "business",
            FailureClass::Authorization => "authorization",
            FailureClass::Size => "size",
            FailureClass::Bug => "bug",
            FailureClass::Unknown => "unknown",
        }
    }
}

impl std::str::FromStr for FailureClass {
    type Err = String;

    fn from_str(text: &str) -> Result<FailureClass, String> {
        FailureClass::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = FailureClass::ALL.iter().map(|class| class.as_str()).collect();
            format!("unknown class {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// One `[[class_rules]]` entry. All conditions that are given must hold; at least one is.
#[derive(Debug, Clone)]
pub struct ClassRule {
    pub exception: Option<Regex>,
    pub message: Option<Regex>,
    pub header: Option<HeaderRule>,
    pub class: FailureClass,
}

/// A header with exactly this name whose value, as text, is exactly this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderRule {
    pub name: String,
    pub value: String,
}

/// The kind of failure and which rule said so, in words for a person ("class_rules[0]", "built-in: SocketTimeoutException").
pub fn classify(_rules: &[ClassRule], _reading: &Reading, _record: &Record) -> (FailureClass, String) {
    (FailureClass::Unknown, "no rule matched".to_owned())
}
