//! Writes failure headers as each framework does. The reverse of `domain::dialect`, written from the same table and not from its code,
//! so that the demo proves the reader.

use chrono::{DateTime, SecondsFormat};

use crate::domain::dialect::Dialect;
use crate::domain::record::Header;

/// What a framework knows about a record that it gives up on.
#[derive(Debug, Clone)]
pub(super) struct Failed<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// When the original record was produced, ms.
    pub(super) at_ms: i64,
    /// When it was dead-lettered, ms.
    pub(super) dead_lettered_at_ms: i64,
    pub(super) group: &'a str,
    /// The outermost exception; a wrapper where `cause` is given.
    pub(super) exception: &'a str,
    pub(super) cause: Option<&'a str>,
    pub(super) message: String,
    pub(super) trace: String,
    pub(super) attempts: i32,
}

/// The headers that this dialect puts on a dead letter. Dialects that no pipeline of the demo uses put none.
pub(super) fn write(dialect: Dialect, failed: &Failed<'_>) -> Vec<Header> {
    match dialect {
        Dialect::SpringDlt => spring_dlt(failed),
        Dialect::SpringRetry => spring_retry(failed),
        Dialect::KafkaConnect => kafka_connect(failed),
        Dialect::KafkaStreams => kafka_streams(failed),
        Dialect::Smallrye => smallrye(failed),
        Dialect::Watermill => watermill(failed),
        Dialect::Masstransit => masstransit(failed),
        Dialect::Custom => house_convention(failed),
        _ => Vec::new(),
    }
}

fn spring_dlt(failed: &Failed<'_>) -> Vec<Header> {
    let mut headers = vec![
        text("kafka_dlt-original-topic", failed.topic),
        bytes("kafka_dlt-original-partition", &failed.partition.to_be_bytes()),
        bytes("kafka_dlt-original-offset", &failed.offset.to_be_bytes()),
        bytes("kafka_dlt-original-timestamp", &failed.at_ms.to_be_bytes()),
        text("kafka_dlt-original-timestamp-type", "CreateTime"),
        text("kafka_dlt-original-consumer-group", failed.group),
        text("kafka_dlt-exception-fqcn", failed.exception),
    ];
    headers.extend(failed.cause.map(|cause| text("kafka_dlt-exception-cause-fqcn", cause)));
    headers.push(text("kafka_dlt-exception-message", &failed.message));
    headers.push(text("kafka_dlt-exception-stacktrace", &failed.trace));
    headers
}

fn spring_retry(failed: &Failed<'_>) -> Vec<Header> {
    let short = |ms: i64| ms.to_be_bytes()[2..].to_vec();
    let mut headers = vec![
        text("kafka_original-topic", failed.topic),
        bytes("kafka_original-partition", &failed.partition.to_be_bytes()),
        bytes("kafka_original-offset", &failed.offset.to_be_bytes()),
        bytes("kafka_original-timestamp", &failed.at_ms.to_be_bytes()),
        text("kafka_original-timestamp-type", "CreateTime"),
        text("kafka_dlt-original-consumer-group", failed.group),
        text("kafka_exception-fqcn", failed.exception),
    ];
    headers.extend(failed.cause.map(|cause| text("kafka_exception-cause-fqcn", cause)));
    headers.push(text("kafka_exception-message", &failed.message));
    headers.push(text("kafka_exception-stacktrace", &failed.trace));
    headers.push(bytes("retry_topic-attempts", &failed.attempts.to_be_bytes()));
    // Signed big-endian without leading zero bytes: six bytes until the year 10889.
    headers.push(bytes("retry_topic-original-timestamp", &short(failed.at_ms)));
    headers.push(bytes("retry_topic-backoff-timestamp", &short(failed.dead_lettered_at_ms)));
    headers
}

fn kafka_connect(failed: &Failed<'_>) -> Vec<Header> {
    let connector = failed.group.strip_prefix("connect-").unwrap_or(failed.group);
    vec![
        text("__connect.errors.topic", failed.topic),
        text("__connect.errors.partition", &failed.partition.to_string()),
        text("__connect.errors.offset", &failed.offset.to_string()),
        text("__connect.errors.connector.name", connector),
        text("__connect.errors.task.id", "0"),
        text("__connect.errors.stage", if failed.exception.ends_with("DataException") { "VALUE_CONVERTER" } else { "TASK_PUT" }),
        text("__connect.errors.class.name", "io.confluent.connect.avro.AvroConverter"),
        text("__connect.errors.exception.class.name", failed.exception),
        text("__connect.errors.exception.message", &failed.message),
        text("__connect.errors.exception.stacktrace", &failed.trace),
    ]
}

fn kafka_streams(failed: &Failed<'_>) -> Vec<Header> {
    vec![
        text("__streams.errors.exception", failed.exception),
        text("__streams.errors.message", &failed.message),
        text("__streams.errors.stacktrace", &failed.trace),
        text("__streams.errors.topic", failed.topic),
        text("__streams.errors.partition", &failed.partition.to_string()),
        text("__streams.errors.offset", &failed.offset.to_string()),
    ]
}

fn smallrye(failed: &Failed<'_>) -> Vec<Header> {
    let mut headers = vec![text("dead-letter-exception-class-name", failed.exception), text("dead-letter-reason", &failed.message)];
    if let Some(cause) = failed.cause {
        headers.push(text("dead-letter-cause-class-name", cause));
        headers.push(text("dead-letter-cause", &failed.message));
    }
    headers.push(text("dead-letter-topic", failed.topic));
    headers.push(text("dead-letter-partition", &failed.partition.to_string()));
    headers.push(text("dead-letter-offset", &failed.offset.to_string()));
    headers
}

fn watermill(failed: &Failed<'_>) -> Vec<Header> {
    vec![
        text("reason_poisoned", &failed.message),
        text("topic_poisoned", failed.topic),
        text("handler_poisoned", "score_payment"),
        text("subscriber_poisoned", "kafka.Subscriber"),
    ]
}

fn masstransit(failed: &Failed<'_>) -> Vec<Header> {
    vec![
        text("MT-Reason", "fault"),
        text("MT-Fault-ExceptionType", failed.exception),
        text("MT-Fault-Message", &failed.message),
        text("MT-Fault-MessageType", "urn:message:Shop.Contracts:OrderSubmitted"),
        text("MT-Fault-ConsumerType", "Shop.Orders.OrderSubmittedConsumer"),
        // Not a string in .NET, so it is written as JSON: with quotes.
        text("MT-Fault-Timestamp", &format!("\"{}\"", utc(failed.dead_lettered_at_ms))),
        text("MT-Fault-StackTrace", &failed.trace),
        text("MT-Fault-RetryCount", &failed.attempts.to_string()),
    ]
}

/// Header names of the made-up shop's own Python and Node consumers; `pipelines` maps them under `[dlq.custom]`'s terms.
fn house_convention(failed: &Failed<'_>) -> Vec<Header> {
    vec![
        text("shop-source-topic", failed.topic),
        text("shop-source-partition", &failed.partition.to_string()),
        text("shop-source-offset", &failed.offset.to_string()),
        text("shop-source-timestamp", &failed.at_ms.to_string()),
        text("shop-consumer-group", failed.group),
        text("shop-error-type", failed.exception),
        text("shop-error-message", &failed.message),
        text("shop-error-trace", &failed.trace),
        text("shop-attempts", &failed.attempts.to_string()),
        text("shop-failed-at", &failed.dead_lettered_at_ms.to_string()),
    ]
}

fn utc(ms: i64) -> String {
    DateTime::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub(super) fn text(name: &str, value: &str) -> Header {
    bytes(name, value.as_bytes())
}

fn bytes(name: &str, value: &[u8]) -> Header {
    Header { name: name.as_bytes().to_vec(), value: Some(value.to_vec()) }
}
