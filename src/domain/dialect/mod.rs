//! The header conventions of the frameworks that dead-letter records: how each says where a record came from and why it failed.
//!
//! [`table`] holds one row per convention, [`values`] how bytes become numbers, texts and instants, [`reader`] the rules that hold for all
//! rows (which repetition counts, which values belong together). What fits no row has a file of its own.

mod arroyo;
mod masstransit;
mod nservicebus;
mod reader;
mod table;
mod uforwarder;
mod values;
mod wolverine;

use super::record::{Header, Record};
use super::returns::Place;
use super::settings::DialectChoice;
use reader::{Recognised, recognise, recognised_by_table};

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

impl std::str::FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Dialect, String> {
        Dialect::ALL.into_iter().find(|dialect| dialect.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = Dialect::ALL.iter().map(|dialect| dialect.as_str()).collect();
            format!("unknown dialect {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// Topic, partition, offset and timestamp of a record before it failed. What the headers do not say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    pub topic: Option<String>,
    pub partition: Option<i32>,
    pub offset: Option<i64>,
    /// ms since the epoch, as given: unjudged.
    pub timestamp_ms: Option<i64>,
}

/// What tells when a record was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetteredAt {
    /// The framework stamps the dead letter anew: its own timestamp.
    Record,
    /// The framework copies the original's timestamp: when we first saw it.
    FirstSeen,
    /// A header says so, ms since the epoch, unjudged.
    Header { ms: i64 },
}

/// How one header was read, for the message page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldReading {
    /// Index into the record's headers; `None` when it was read out of the record's key.
    pub header: Option<usize>,
    /// What it means, e.g. "origin offset".
    pub meaning: &'static str,
    /// The value in words, e.g. "404269 (i64 big-endian)".
    pub value: String,
    /// The bytes were not of the documented form, whether they could be read all the same or not.
    pub odd: bool,
}

/// All that the headers (or, for one dialect, the key) say. Texts are safe for display and cut to a bounded length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub dialect: Dialect,
    /// Other dialects whose headers are on the record too: older failures, shown as history.
    pub history: Vec<Dialect>,
    /// `None` when the record says nothing about it.
    pub origin: Option<Origin>,
    pub consumer_group: Option<String>,
    /// Of the latest failure; for Spring, whose outer exception is a wrapper, the cause where it is named.
    pub exception_class: Option<String>,
    /// The class of the cause, where the dialect names it.
    pub cause_class: Option<String>,
    pub exception_message: Option<String>,
    pub stacktrace: Option<String>,
    pub attempts: Option<i64>,
    /// Where in the pipeline it failed, for dialects that say so (Kafka Connect's stage).
    pub stage: Option<String>,
    pub dead_lettered_at: DeadLetteredAt,
    /// Every whole place that the headers of any dialect name, repetitions included: of this failure and of older ones.
    pub places: Vec<Place>,
}

/// Reads a record by the configured dialect, or by the first that is recognised. `configured_group` is used where the headers name no consumer group.
pub fn read(record: &Record, choice: &DialectChoice, configured_group: Option<&str>) -> Reading {
    let recognised = recognise(record, choice);
    let mut reading = match (&recognised, recognised.spec()) {
        (_, Some(spec)) => reader::read(record, &spec),
        (Recognised::Uforwarder(metadata), _) => metadata.reading(),
        _ => nothing(),
    };
    if reading.dialect != Dialect::None {
        let others = recognised_by_table(record).filter(|spec| spec.dialect != reading.dialect);
        for spec in others {
            reading.history.push(spec.dialect);
            reading.places.append(&mut reader::places(record, spec));
        }
    }
    if reading.consumer_group.is_none() {
        reading.consumer_group = configured_group.map(str::to_owned);
    }
    reading
}

/// How each header of the recognised dialect was read, in the record's order. For a page; intake does not need it.
pub fn field_readings(record: &Record, choice: &DialectChoice) -> Vec<FieldReading> {
    let recognised = recognise(record, choice);
    match (&recognised, recognised.spec()) {
        (_, Some(spec)) => reader::field_readings(record, &spec),
        (Recognised::Uforwarder(metadata), _) => metadata.field_readings(),
        _ => Vec::new(),
    }
}

/// The headers that a replay sends: the dialect's own failure headers (every repetition) and `lazaret-*` removed, all others in order.
pub fn replay_headers(record: &Record, choice: &DialectChoice) -> Vec<Header> {
    let recognised = recognise(record, choice);
    let spec = recognised.spec();
    let is_failure = |header: &Header| spec.is_some_and(|spec| spec.owns(&header.name));
    let kept = record.headers.iter().filter(|header| !header.name.starts_with(b"lazaret-") && !is_failure(header));
    kept.cloned().collect()
}

fn nothing() -> Reading {
    Reading {
        dialect: Dialect::None,
        history: Vec::new(),
        origin: None,
        consumer_group: None,
        exception_class: None,
        cause_class: None,
        exception_message: None,
        stacktrace: None,
        attempts: None,
        stage: None,
        dead_lettered_at: DeadLetteredAt::FirstSeen,
        places: Vec::new(),
    }
}
