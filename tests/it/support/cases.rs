//! The cases of `tests/fixtures/records*.jsonl`: records from the field and what must be read out of them.

use std::path::Path;

use lazaret::domain::record::{Header, Record};
use lazaret::domain::settings::{CustomDialect, CustomField, DialectChoice, DlqSettings, Encoding, TopicMatch};
use serde_json::{Map, Value};

/// One record and what is known of it.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    /// Partition 0; the offset is the case's place among all cases.
    pub record: Record,
    /// Only what is named is asserted. Bytes are as in the file; see [`bytes`].
    pub expect: Map<String, Value>,
}

/// Every case, those that came with the specification first.
pub fn records() -> Vec<Case> {
    let lines = ["records.jsonl", "records_by_dialect.jsonl"].into_iter().flat_map(lines);
    lines.enumerate().map(|(at, line)| case(&line, at as i64)).collect()
}

/// The lines of a file in `tests/fixtures`.
pub fn lines(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{file}: {error}: {line}"))).collect();
    assert!(!lines.is_empty(), "{file} is empty");
    lines
}

/// `{"utf8":..}`, `{"hex":..}` or null.
pub fn bytes(value: &Value) -> Option<Vec<u8>> {
    if value.is_null() {
        return None;
    }
    if let Some(text) = value["utf8"].as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let hex = value["hex"].as_str().unwrap_or_else(|| panic!("neither utf8 nor hex: {value}"));
    let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    assert_eq!(digits.len() % 2, 0, "{hex}");
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// `[[name, bytes], ..]`.
pub fn headers(value: &Value) -> Vec<Header> {
    let pairs = value.as_array().expect("a list of headers").iter();
    pairs.map(|pair| Header { name: pair[0].as_str().expect("a name").as_bytes().to_vec(), value: bytes(&pair[1]) }).collect()
}

/// How the DLQ of a case is configured: plain, but for the one that shows `[dlq.custom]` of lazaret.example.toml.
pub fn settings(case: &Case) -> DlqSettings {
    let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec![case.record.topic.clone()]));
    if case.name == "custom_mapping" {
        let text = |header: &str| Some(CustomField { header: header.to_owned(), encoding: Encoding::Text });
        settings.dialect = DialectChoice::Custom(CustomDialect {
            origin_topic: text("src-topic"),
            origin_partition: text("src-partition"),
            exception_class: text("err-type"),
            ..CustomDialect::default()
        });
    }
    settings
}

fn case(line: &Value, offset: i64) -> Case {
    let timestamp_ms = line["timestamp_ms"].as_i64().expect("a timestamp");
    Case {
        name: line["name"].as_str().expect("a name").to_owned(),
        record: Record {
            topic: line["topic"].as_str().expect("a topic").to_owned(),
            partition: 0,
            offset,
            timestamp_ms: (timestamp_ms != -1).then_some(timestamp_ms),
            key: bytes(&line["key"]),
            value: bytes(&line["value"]),
            headers: headers(&line["headers"]),
        },
        expect: line["expect"].as_object().expect("what to expect").clone(),
    }
}
