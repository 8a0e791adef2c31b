//! Which kind of failure a dead letter is: configured rules first, then the built-in ones of [`builtin`].

mod builtin;

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::dialect::Reading;
use super::record::Record;
use super::stacktrace::{is_class_name, root_exception};

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

impl ClassRule {
    /// Whether all conditions that are given hold. A rule without a condition matches nothing: the configuration refuses it.
    pub fn matches(&self, reading: &Reading, record: &Record) -> bool {
        let is_in = |regex: &Regex, text: &Option<String>| text.as_deref().is_some_and(|text| regex.is_match(text));
        let exception = self.exception.as_ref().map(|regex| is_in(regex, &reading.exception_class) || is_in(regex, &reading.cause_class));
        let message = self.message.as_ref().map(|regex| is_in(regex, &reading.exception_message));
        let header = self.header.as_ref().map(|header| header.is_on(record));
        let mut given = [exception, message, header].into_iter().flatten().peekable();
        given.peek().is_some() && given.all(|holds| holds)
    }
}

impl HeaderRule {
    /// Whether any repetition of the header has exactly the value.
    fn is_on(&self, record: &Record) -> bool {
        let is_it = |value: &Option<Vec<u8>>| value.as_deref() == Some(self.value.as_bytes());
        record.headers.iter().any(|header| header.name == self.name.as_bytes() && is_it(&header.value))
    }
}

/// The kind of failure and which rule said so, in words for a person: "class_rules[0]", "built-in: SocketTimeoutException", "built-in: error text (timeout)".
///
/// Configured rules come first, in their order. Of the built-in ones: Kafka Connect's stage; the cause's and the exception's class; the root cause
/// in the stack trace; a class that the message begins with; what the message says; last, classes that say little by themselves.
pub fn classify(rules: &[ClassRule], reading: &Reading, record: &Record) -> (FailureClass, String) {
    if let Some(at) = rules.iter().position(|rule| rule.matches(reading, record)) {
        return (rules[at].class, format!("class_rules[{at}]"));
    }
    built_in(reading).unwrap_or_else(|| (FailureClass::Unknown, "no rule matched".to_owned()))
}

fn built_in(reading: &Reading) -> Option<(FailureClass, String)> {
    if let Some(stage) = reading.stage.as_deref().filter(|stage| stage.ends_with("_CONVERTER")) {
        return Some((FailureClass::Deserialization, format!("built-in: stage {stage}")));
    }
    let message = reading.exception_message.as_deref();
    let in_message = message.and_then(|text| text.split(':').next()).map(str::trim).filter(|word| is_class_name(word));
    let named = || {
        let classes = [reading.cause_class.as_deref(), reading.exception_class.as_deref()];
        classes.into_iter().chain([reading.stacktrace.as_deref().and_then(root_exception), in_message]).flatten()
    };
    let exception = |(class, name): (FailureClass, &str)| (class, format!("built-in: {name}"));
    let text = |(class, about): (FailureClass, &str)| (class, format!("built-in: error text ({about})"));
    (named().find_map(builtin::by_exception).map(exception))
        .or_else(|| message.and_then(builtin::by_message).map(text))
        .or_else(|| named().find_map(builtin::by_vague_exception).map(exception))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::dialect;
    use crate::domain::record::Header;
    use crate::domain::settings::DialectChoice;

    fn record(headers: &[(&str, &str)]) -> Record {
        let headers = headers.iter().map(|(name, value)| Header { name: name.as_bytes().to_vec(), value: Some(value.as_bytes().to_vec()) });
        Record { topic: "t".into(), partition: 0, offset: 0, timestamp_ms: None, key: None, value: None, headers: headers.collect() }
    }

    fn classified(rules: &[ClassRule], headers: &[(&str, &str)]) -> (FailureClass, String) {
        let record = record(headers);
        classify(rules, &dialect::read(&record, &DialectChoice::Auto, None), &record)
    }

    fn by_class(class: &str) -> FailureClass {
        classified(&[], &[("kafka_dlt-exception-fqcn", class)]).0
    }

    fn by_text(text: &str) -> FailureClass {
        classified(&[], &[("reason_poisoned", text)]).0
    }

    #[test]
    fn the_usual_exceptions_of_five_languages() {
        use FailureClass::*;
        for (class, expected) in [
            ("java.net.SocketTimeoutException", Transient),
            ("java.net.ConnectException", Transient),
            ("org.apache.kafka.common.errors.TimeoutException", Transient),
            ("org.springframework.web.client.HttpServerErrorException$ServiceUnavailable", Transient),
            ("com.acme.WalletTimeoutException", Transient),
            ("psycopg2.OperationalError", Transient),
            ("sqlalchemy.exc.OperationalError", Transient),
            ("requests.exceptions.ConnectionError", Transient),
            ("System.TimeoutException", Transient),
            ("System.Net.Http.HttpRequestException", Transient),
            ("*net.OpError", Transient),
            ("MongoNetworkError", Transient),
            ("com.fasterxml.jackson.core.JsonParseException", Deserialization),
            ("org.apache.kafka.common.errors.SerializationException", Deserialization),
            ("org.springframework.messaging.converter.MessageConversionException", Deserialization),
            ("org.apache.kafka.connect.errors.DataException", Deserialization),
            ("json.decoder.JSONDecodeError", Deserialization),
            ("System.Text.Json.JsonException", Deserialization),
            ("*json.SyntaxError", Deserialization),
            ("SyntaxError", Deserialization),
            ("org.apache.avro.AvroTypeException", Schema),
            ("io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException", Schema),
            ("javax.validation.ConstraintViolationException", Validation),
            ("pydantic_core._pydantic_core.ValidationError", Validation),
            ("ZodError", Validation),
            ("ValueError", Validation),
            ("org.hibernate.exception.ConstraintViolationException", Business),
            ("psycopg2.errors.UniqueViolation", Business),
            ("com.acme.InsufficientFundsException", Business),
            ("org.apache.kafka.common.errors.TopicAuthorizationException", Authorization),
            ("System.UnauthorizedAccessException", Authorization),
            ("PermissionError", Authorization),
            ("org.apache.kafka.common.errors.RecordTooLargeException", Size),
            ("PayloadTooLargeError", Size),
            ("java.lang.NullPointerException", Bug),
            ("TypeError", Bug),
            ("AttributeError", Bug),
            ("System.NullReferenceException", Bug),
            ("System.InvalidOperationException", Bug),
            ("runtime.boundsError", Bug),
            ("com.acme.Weird", Unknown),
            ("java.lang.RuntimeException", Unknown),
            ("", Unknown),
        ] {
            assert_eq!(by_class(class), expected, "{class}");
        }
    }

    #[test]
    fn the_usual_error_texts() {
        use FailureClass::*;
        for (text, expected) in [
            ("context deadline exceeded", Transient),
            ("connect ECONNREFUSED 10.0.0.1:5432", Transient),
            ("dial tcp 10.0.0.1:5432: connect: connection refused", Transient),
            ("rpc error: code = Unavailable desc = transport is closing", Transient),
            ("Request failed with status code 503", Transient),
            ("psycopg2.OperationalError: server closed the connection unexpectedly", Transient),
            ("could not reach the schema registry: connection timed out", Transient),
            ("Request failed with status code 403", Authorization),
            ("AccessDenied: user is not allowed", Authorization),
            ("permission denied for table payments", Authorization),
            ("request entity too large", Size),
            ("The message is 1200000 bytes when serialized which is larger than the maximum request size", Size),
            ("schema mismatch: field amount is gone", Schema),
            ("json: cannot unmarshal string into Go struct field", Deserialization),
            ("Unexpected token < in JSON at position 0", Deserialization),
            ("Expecting value: line 1 column 1 (char 0)", Deserialization),
            ("Unknown magic byte!", Deserialization),
            ("panic: runtime error: invalid memory address or nil pointer dereference", Bug),
            ("Cannot read properties of undefined (reading 'id')", Bug),
            ("'NoneType' object has no attribute 'id'", Bug),
            ("Object reference not set to an instance of an object.", Bug),
            ("insufficient funds in account 12", Business),
            ("duplicate key value violates unique constraint \"p\"", Business),
            ("amount must not be null", Validation),
            ("order 503 of 403 items", Unknown),
            ("something went wrong", Unknown),
        ] {
            assert_eq!(by_text(text), expected, "{text}");
        }
    }

    #[test]
    fn a_root_cause_in_the_trace_says_more_than_a_wrapper() {
        let trace = "com.acme.WalletException: no\n\tat a.B.c(B.java:1)\nCaused by: java.net.SocketTimeoutException: timed out\n\tat x.Y.z(Y.java:2)";
        let headers = [("kafka_dlt-exception-fqcn", "com.acme.WalletException"), ("kafka_dlt-exception-stacktrace", trace)];
        assert_eq!(classified(&[], &headers), (FailureClass::Transient, "built-in: SocketTimeoutException".into()));
    }

    #[test]
    fn a_text_says_more_than_a_vague_class() {
        let headers = [("exception-type", "System.InvalidOperationException"), ("exception-message", "connection refused")];
        assert_eq!(classified(&[], &headers), (FailureClass::Transient, "built-in: error text (connection)".into()));
    }

    #[test]
    fn configured_rules_come_first_and_all_their_conditions_must_hold() {
        let regex = |text| Some(Regex::new(text).unwrap());
        let rule = |exception, message, header: Option<(&str, &str)>, class| ClassRule {
            exception,
            message,
            header: header.map(|(name, value)| HeaderRule { name: name.into(), value: value.into() }),
            class,
        };
        let rules = [
            rule(regex("Timeout"), regex("wallet"), None, FailureClass::Business),
            rule(None, None, Some(("kind", "poison")), FailureClass::Bug),
            rule(None, None, None, FailureClass::Size),
        ];
        let timeout = ("kafka_dlt-exception-fqcn", "java.net.SocketTimeoutException");
        let (class, reason) = classified(&rules, &[timeout, ("kafka_dlt-exception-message", "no wallet")]);
        assert_eq!((class, reason.as_str()), (FailureClass::Business, "class_rules[0]"));
        assert_eq!(classified(&rules, &[timeout]).0, FailureClass::Transient, "only one of two conditions holds");
        assert_eq!(classified(&rules, &[timeout, ("kind", "other"), ("kind", "poison")]), (FailureClass::Bug, "class_rules[1]".into()));
        assert_eq!(classified(&rules, &[]), (FailureClass::Unknown, "no rule matched".into()));
    }
}
