//! `lazaret check --suggest`: which topics of a cluster look like DLQs, and what one record of each says about itself.
//!
//! Asks only for listings, ends and one record a topic; joins no group and changes nothing.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use crate::domain::dialect::{self, Dialect};
use crate::domain::record::Record;
use crate::domain::settings::DialectChoice;
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::{Inspector, LogEnds, TopicPartition};

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What about a name looks like a dead-letter topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// What was seen: "dlq or dlt in the name".
    pub seen: &'static str,
    /// Whose habit it is.
    pub habit: Option<&'static str>,
}

/// How the field names its dead-letter topics: a regular expression, what it sees, and whose habit it is.
const NAMES: [(&str, &str, Option<&str>); 7] = [
    (
        r"(?i)(^|[._-])dl[qt]([._-]|$)",
        "dlq or dlt in the name",
        Some("Spring's -dlt, uForwarder's __dlq, Kafka Streams and Connect by habit"),
    ),
    (r"[a-z0-9](DLQ|DLT|Dlq|Dlt)$", "DLQ at the end of a name in camel case", None),
    (
        r"(?i)(^|[._-])dead[._-]?letters?([._-]|$)",
        "dead-letter in the name",
        Some("Quarkus' dead-letter-topic-, Wolverine's wolverine-dead-letter-queue"),
    ),
    (r"(?i)(^|[._-])dead[._-]?messages?([._-]|$)", "dead messages in the name", Some("Karafka")),
    (r"(?i)(^|[._-])(poison(ed)?|parking[._-]?lot)([._-]|$)", "poison or parking lot in the name", Some("Watermill and others")),
    (r"(?i)[._-]errors?$|^errors?$", "an error queue", Some("MassTransit's _error, NServiceBus' error")),
    (r"^error\.[^.]+\..+", "error.destination.group", Some("Spring Cloud Stream")),
];

static PATTERNS: LazyLock<Vec<(Regex, Sign)>> = LazyLock::new(|| {
    let compiled = |pattern| Regex::new(pattern).expect("the table above holds regular expressions");
    NAMES.iter().map(|&(pattern, seen, habit)| (compiled(pattern), Sign { seen, habit })).collect()
});

/// A topic that looks like a DLQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub topic: String,
    pub partitions: i32,
    /// What about the name looks like it.
    pub why: Sign,
    /// Offsets between both ends; None: they could not be asked.
    pub records: Option<i64>,
    pub sample: Sample,
}

/// What one record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sample {
    Read {
        dialect: Dialect,
        consumer_group: Option<String>,
    },
    /// There is no record to read.
    Empty,
    /// Why it could not be read.
    Failed(String),
}

/// What about this name looks like a dead-letter topic.
pub fn looks_like_a_dlq(topic: &str) -> Option<Sign> {
    PATTERNS.iter().find(|(pattern, _)| pattern.is_match(topic)).map(|(_, why)| *why)
}

/// The topics that look like DLQs and are not `covered` yet, by name. Blocks up to several time-outs: call it from `spawn_blocking`.
/// `seen` is called with (done, all) before the first topic and after each.
///
/// # Errors
/// The topics cannot be listed. A topic that cannot be read is a suggestion that says so.
pub fn suggest(
    inspector: &Inspector,
    covered: impl Fn(&str) -> bool,
    mut seen: impl FnMut(usize, usize),
) -> Result<Vec<Suggestion>, KafkaError> {
    let mut topics = inspector.topics(TIMEOUT)?;
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    let candidates: Vec<_> = topics
        .into_iter()
        .filter(|topic| !covered(&topic.name))
        .filter_map(|topic| Some((looks_like_a_dlq(&topic.name)?, topic)))
        .collect();
    let partitions: Vec<TopicPartition> =
        candidates.iter().flat_map(|(_, topic)| (0..topic.partitions).map(|partition| (topic.name.clone(), partition))).collect();
    let ends = inspector.log_ends(&partitions, TIMEOUT);
    let mut suggestions = Vec::with_capacity(candidates.len());
    let all = candidates.len();
    seen(0, all);
    for (why, topic) in candidates {
        let ends_of = ends_of(&ends, &topic.name);
        let records = ends_of.iter().map(|(_, ends)| Some(ends.as_ref().ok()?.end - ends.as_ref().ok()?.start)).sum();
        let sample = sample(inspector, &ends_of);
        suggestions.push(Suggestion { topic: topic.name, partitions: topic.partitions, why, records, sample });
        seen(suggestions.len(), all);
    }
    Ok(suggestions)
}

type Ends<'a> = Vec<(&'a TopicPartition, &'a Result<LogEnds, KafkaError>)>;

fn ends_of<'a>(ends: &'a BTreeMap<TopicPartition, Result<LogEnds, KafkaError>>, topic: &str) -> Ends<'a> {
    ends.range((topic.to_owned(), 0)..=(topic.to_owned(), i32::MAX)).collect()
}

/// Reads the newest record of the fullest partition; where that offset holds a transaction marker, the oldest.
fn sample(inspector: &Inspector, ends: &Ends<'_>) -> Sample {
    let known = ends.iter().filter_map(|(partition, ends)| Some((*partition, ends.as_ref().ok()?)));
    let Some((partition, ends_known)) = known.max_by_key(|(_, ends)| ends.end - ends.start) else {
        let error = ends.iter().find_map(|(_, ends)| ends.as_ref().err());
        return error.map_or(Sample::Empty, |error| Sample::Failed(error.to_string()));
    };
    if ends_known.end <= ends_known.start {
        return Sample::Empty;
    }
    for offset in [ends_known.end - 1, ends_known.start] {
        match inspector.record_at(partition, offset, TIMEOUT) {
            Ok(Some(record)) => return read(&record),
            Ok(None) => {}
            Err(error) => return Sample::Failed(error.to_string()),
        }
    }
    Sample::Empty
}

fn read(record: &Record) -> Sample {
    let reading = dialect::read(record, &DialectChoice::Auto, None);
    Sample::Read { dialect: reading.dialect, consumer_group: reading.consumer_group }
}

#[cfg(test)]
mod tests {
    use super::looks_like_a_dlq;

    #[test]
    fn names_of_dead_letter_topics() {
        let yes = [
            "payments.DLQ",
            "orders.DLT",
            "orders-dlt",
            "orders-retry-dlt",
            "wallet__payments__dlq",
            "inventory-sink-dlq",
            "dlq.orders",
            "ordersDLQ",
            "dead-letter-topic-prices",
            "wolverine-dead-letter-queue",
            "my.deadletter",
            "dead_messages",
            "orders.poison",
            "orders-parking-lot",
            "order-submitted_error",
            "error",
            "errors",
            "orders_errors",
            "error.orders.wallet",
        ];
        for topic in yes {
            assert!(looks_like_a_dlq(topic).is_some(), "{topic}");
        }
        let no = [
            "payments",
            "terror",
            "mirrors",
            "handlqueue",
            "dltx",
            "errors-by-hour",
            "undeadletters",
            "orders-retry-0",
            "error-reports.daily",
        ];
        for topic in no {
            assert_eq!(looks_like_a_dlq(topic), None, "{topic}");
        }
    }
}
