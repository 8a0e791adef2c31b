//! The header conventions of the frameworks that dead-letter records: how each says where a record came from and why it failed.

use super::record::{Header, Record};
use super::settings::DialectChoice;

/// A header convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    SpringDlt,
    SpringRetry,
    SpringCloudStream,
    KafkaConnect,
    KafkaStreams,
    ShareGroup,
    Smallrye,
    Uforwarder,
    Arroyo,
    Wolverine,
    Karafka,
    Watermill,
    Masstransit,
    Nservicebus,
    Custom,
    None,
}

impl Dialect {
    /// In the order in which they are tried; the first match wins where the DLQ's own framework is not configured.
    pub const ALL: [Dialect; 16] = [
        Dialect::SpringDlt,
        Dialect::SpringRetry,
        Dialect::SpringCloudStream,
        Dialect::KafkaConnect,
        Dialect::KafkaStreams,
        Dialect::ShareGroup,
        Dialect::Smallrye,
        Dialect::Uforwarder,
        Dialect::Arroyo,
        Dialect::Wolverine,
        Dialect::Karafka,
        Dialect::Watermill,
        Dialect::Masstransit,
        Dialect::Nservicebus,
        Dialect::Custom,
        Dialect::None,
    ];

    /// The name in the configuration, the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::SpringDlt => "spring_dlt",
            Dialect::SpringRetry => "spring_retry",
            Dialect::SpringCloudStream => "spring_cloud_stream",
            Dialect::KafkaConnect => "kafka_connect",
            Dialect::KafkaStreams => "kafka_streams",
            Dialect::ShareGroup => "share_group",
            Dialect::Smallrye => "smallrye",
            Dialect::Uforwarder => "uforwarder",
            Dialect::Arroyo => "arroyo",
            Dialect::Wolverine => "wolverine",
            Dialect::Karafka => "karafka",
            Dialect::Watermill => "watermill",
            Dialect::Masstransit => "masstransit",
            Dialect::Nservicebus => "nservicebus",
            Dialect::Custom => "custom",
            Dialect::None => "none",
        }
    }
}

/// Topic, partition, offset and timestamp of a record before it failed. What the headers do not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    pub timestamp_ms: Option<i64>,
}

/// What tells when a record was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetteredAt {
    /// The framework stamps the dead letter anew: its own timestamp.
    Record,
    /// The framework copies the original's timestamp: when we first saw it.
    FirstSeen,
    /// A header says so, ms since the epoch.
    Header { ms: i64 },
}

/// How one header was read, for the message page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldReading {
    /// Index into the record's headers.
    pub header: usize,
    /// What it means, e.g. "origin offset".
    pub meaning: &'static str,
    /// The value in words, e.g. "404269 (i64 big-endian)".
    pub value: String,
    /// The bytes were not of the documented form but could be read all the same.
    pub odd: bool,
}

/// All that the headers (or, for one dialect, the key) say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub dialect: Dialect,
    /// Other dialects whose headers are on the record too: older failures, shown as history.
    pub history: Vec<Dialect>,
    pub origin: Option<Origin>,
    pub consumer_group: Option<String>,
    pub exception_class: Option<String>,
    pub exception_message: Option<String>,
    pub stacktrace: Option<String>,
    pub attempts: Option<i64>,
    /// Where in the pipeline it failed, for dialects that say so (Kafka Connect's stage).
    pub stage: Option<String>,
    pub dead_lettered_at: DeadLetteredAt,
    pub fields: Vec<FieldReading>,
}

/// Reads a record by the configured dialect, or by the first that is recognised. `configured_group` is used where the headers name no consumer group.
pub fn read(_record: &Record, _choice: &DialectChoice, _configured_group: Option<&str>) -> Reading {
    Reading {
        dialect: Dialect::None,
        history: Vec::new(),
        origin: None,
        consumer_group: None,
        exception_class: None,
        exception_message: None,
        stacktrace: None,
        attempts: None,
        stage: None,
        dead_lettered_at: DeadLetteredAt::FirstSeen,
        fields: Vec::new(),
    }
}

/// The headers that a replay sends: the dialect's own failure headers (every repetition) and `lazaret-*` removed, all others in order.
pub fn replay_headers(record: &Record, _choice: &DialectChoice) -> Vec<Header> {
    record.headers.clone()
}
