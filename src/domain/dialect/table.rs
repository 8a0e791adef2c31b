//! One row per header convention: names, forms, which repetition counts, what its timestamp means. Names and encodings were read from the
//! frameworks' own sources.

use super::super::settings::{CustomDialect, CustomField};
use super::values::Form;
use super::{Dialect, Origin, arroyo};

/// What a header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    OriginTopic,
    OriginPartition,
    OriginOffset,
    OriginTimestamp,
    ConsumerGroup,
    /// Kafka Connect's consumer group is `connect-` and this.
    ConnectorName,
    ExceptionClass,
    CauseClass,
    ExceptionMessage,
    Stacktrace,
    Attempts,
    Stage,
    DeadLetteredAt,
    /// Shown and stripped, used for nothing.
    Detail(&'static str),
}

impl Meaning {
    /// For a page.
    pub(super) fn words(self) -> &'static str {
        match self {
            Meaning::OriginTopic => "origin topic",
            Meaning::OriginPartition => "origin partition",
            Meaning::OriginOffset => "origin offset",
            Meaning::OriginTimestamp => "origin timestamp",
            Meaning::ConsumerGroup => "consumer group",
            Meaning::ConnectorName => "connector",
            Meaning::ExceptionClass => "exception class",
            Meaning::CauseClass => "class of the cause",
            Meaning::ExceptionMessage => "exception message",
            Meaning::Stacktrace => "stack trace",
            Meaning::Attempts => "attempts",
            Meaning::Stage => "stage",
            Meaning::DeadLetteredAt => "dead-lettered at",
            Meaning::Detail(words) => words,
        }
    }

    /// Whether the value is a number or an instant.
    pub(super) fn is_number(self) -> bool {
        use Meaning::{Attempts, DeadLetteredAt, OriginOffset, OriginPartition, OriginTimestamp};
        matches!(self, OriginPartition | OriginOffset | OriginTimestamp | Attempts | DeadLetteredAt)
    }

    /// Whether it tells where the record came from; the others tell how it failed last.
    pub(super) fn is_origin(self) -> bool {
        use Meaning::{ConnectorName, ConsumerGroup, OriginOffset, OriginPartition, OriginTimestamp, OriginTopic};
        matches!(self, OriginTopic | OriginPartition | OriginOffset | OriginTimestamp | ConsumerGroup | ConnectorName)
    }
}

/// A header of a convention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) meaning: Meaning,
    pub(super) form: Form,
}

/// Which repetition of a header is the true origin; the other end is the latest failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeats {
    /// Each pass appends.
    OriginFirst,
    /// Each pass writes its own first and then the copied old ones.
    OriginLast,
}

/// What the dead letter's own timestamp is, where no header tells when it was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordTime {
    /// When it was dead-lettered.
    New,
    /// The original record's.
    Copied,
    /// Nobody knows.
    Unknown,
}

/// One convention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec<'a> {
    pub(super) dialect: Dialect,
    /// The origin-topic header, then those of exception class and reason: any of them on a record, and it is of this dialect.
    pub(super) recognised_by: &'a [&'a str],
    /// Of two fields with one meaning the earlier one is preferred.
    pub(super) fields: &'a [Field<'a>],
    /// Names that begin so are the framework's failure headers too, and are never read.
    pub(super) never_read: &'a [&'a str],
    pub(super) repeats: Repeats,
    pub(super) time: RecordTime,
    /// The exception itself is mostly a wrapper: its cause is what failed.
    pub(super) prefers_cause: bool,
    /// Corrects what this framework is known to write wrongly.
    pub(super) correct: Option<fn(&mut Origin)>,
}

impl Spec<'_> {
    /// Whether a header is this convention's own, so that a replay leaves it out.
    pub(super) fn owns(&self, name: &[u8]) -> bool {
        self.fields.iter().any(|field| field.name.as_bytes() == name) || self.is_never_read(name)
    }

    pub(super) fn is_never_read(&self, name: &[u8]) -> bool {
        self.never_read.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    }
}

const fn field(name: &'static str, meaning: Meaning, form: Form) -> Field<'static> {
    Field { name, meaning, form }
}

const fn text(name: &'static str, meaning: Meaning) -> Field<'static> {
    field(name, meaning, Form::Text)
}

/// What most rows have in common.
const fn spec(
    dialect: Dialect,
    recognised_by: &'static [&'static str],
    fields: &'static [Field<'static>],
    time: RecordTime,
) -> Spec<'static> {
    Spec { dialect, recognised_by, fields, never_read: &[], repeats: Repeats::OriginFirst, time, prefers_cause: false, correct: None }
}

const fn spring(spec: Spec<'static>) -> Spec<'static> {
    // springDeserializerExceptionKey and ..Value hold a serialised Java object: a failure header that is never read.
    Spec { never_read: &["springDeserializerException"], prefers_cause: true, ..spec }
}

use Meaning as M;

/// DeadLetterPublishingRecoverer.
const SPRING_DLT: Spec<'static> = spring(spec(
    Dialect::SpringDlt,
    &["kafka_dlt-original-topic", "kafka_dlt-exception-fqcn", "kafka_dlt-key-exception-fqcn"],
    &[
        text("kafka_dlt-original-topic", M::OriginTopic),
        field("kafka_dlt-original-partition", M::OriginPartition, Form::I32),
        field("kafka_dlt-original-offset", M::OriginOffset, Form::I64),
        field("kafka_dlt-original-timestamp", M::OriginTimestamp, Form::I64),
        text("kafka_dlt-original-timestamp-type", M::Detail("origin timestamp type")),
        text("kafka_dlt-original-consumer-group", M::ConsumerGroup),
        text("kafka_dlt-exception-fqcn", M::ExceptionClass),
        text("kafka_dlt-exception-cause-fqcn", M::CauseClass),
        text("kafka_dlt-exception-message", M::ExceptionMessage),
        text("kafka_dlt-exception-stacktrace", M::Stacktrace),
        text("kafka_dlt-key-exception-fqcn", M::ExceptionClass),
        text("kafka_dlt-key-exception-cause-fqcn", M::CauseClass),
        text("kafka_dlt-key-exception-message", M::ExceptionMessage),
        text("kafka_dlt-key-exception-stacktrace", M::Stacktrace),
    ],
    RecordTime::New,
));

/// @RetryableTopic. The group keeps the `dlt-` of the row above.
const SPRING_RETRY: Spec<'static> = spring(spec(
    Dialect::SpringRetry,
    &["kafka_original-topic", "kafka_exception-fqcn", "kafka_key-exception-fqcn"],
    &[
        text("kafka_original-topic", M::OriginTopic),
        field("kafka_original-partition", M::OriginPartition, Form::I32),
        field("kafka_original-offset", M::OriginOffset, Form::I64),
        field("kafka_original-timestamp", M::OriginTimestamp, Form::I64),
        text("kafka_original-timestamp-type", M::Detail("origin timestamp type")),
        text("kafka_dlt-original-consumer-group", M::ConsumerGroup),
        text("kafka_exception-fqcn", M::ExceptionClass),
        text("kafka_exception-cause-fqcn", M::CauseClass),
        text("kafka_exception-message", M::ExceptionMessage),
        text("kafka_exception-stacktrace", M::Stacktrace),
        text("kafka_key-exception-fqcn", M::ExceptionClass),
        text("kafka_key-exception-cause-fqcn", M::CauseClass),
        text("kafka_key-exception-message", M::ExceptionMessage),
        text("kafka_key-exception-stacktrace", M::Stacktrace),
        field("retry_topic-attempts", M::Attempts, Form::I32OrByte),
        field("retry_topic-original-timestamp", M::OriginTimestamp, Form::Signed),
        field("retry_topic-backoff-timestamp", M::Detail("not retried before"), Form::Signed),
    ],
    RecordTime::New,
));

const SPRING_CLOUD_STREAM: Spec<'static> = spec(
    Dialect::SpringCloudStream,
    &["x-original-topic", "x-exception-fqcn"],
    &[
        text("x-original-topic", M::OriginTopic),
        field("x-original-partition", M::OriginPartition, Form::I32),
        field("x-original-offset", M::OriginOffset, Form::I64),
        field("x-original-timestamp", M::OriginTimestamp, Form::I64),
        text("x-original-timestamp-type", M::Detail("origin timestamp type")),
        text("x-exception-fqcn", M::ExceptionClass),
        text("x-exception-message", M::ExceptionMessage),
        text("x-exception-stacktrace", M::Stacktrace),
    ],
    RecordTime::New,
);

const KAFKA_CONNECT: Spec<'static> = spec(
    Dialect::KafkaConnect,
    &["__connect.errors.topic", "__connect.errors.exception.class.name"],
    &[
        text("__connect.errors.topic", M::OriginTopic),
        text("__connect.errors.partition", M::OriginPartition),
        text("__connect.errors.offset", M::OriginOffset),
        text("__connect.errors.connector.name", M::ConnectorName),
        text("__connect.errors.task.id", M::Detail("connector task")),
        text("__connect.errors.stage", M::Stage),
        text("__connect.errors.class.name", M::Detail("class that ran the stage")),
        text("__connect.errors.exception.class.name", M::ExceptionClass),
        text("__connect.errors.exception.message", M::ExceptionMessage),
        text("__connect.errors.exception.stacktrace", M::Stacktrace),
    ],
    RecordTime::Copied,
);

/// KIP-1034.
const KAFKA_STREAMS: Spec<'static> = spec(
    Dialect::KafkaStreams,
    &["__streams.errors.topic", "__streams.errors.exception"],
    &[
        text("__streams.errors.topic", M::OriginTopic),
        text("__streams.errors.partition", M::OriginPartition),
        text("__streams.errors.offset", M::OriginOffset),
        text("__streams.errors.exception", M::ExceptionClass),
        text("__streams.errors.message", M::ExceptionMessage),
        text("__streams.errors.stacktrace", M::Stacktrace),
    ],
    RecordTime::Copied,
);

/// KIP-1191. The topic may be a topic id.
const SHARE_GROUP: Spec<'static> = spec(
    Dialect::ShareGroup,
    &["__dlq.errors.topic", "__dlq.errors.message"],
    &[
        text("__dlq.errors.topic", M::OriginTopic),
        text("__dlq.errors.partition", M::OriginPartition),
        text("__dlq.errors.offset", M::OriginOffset),
        text("__dlq.errors.group", M::ConsumerGroup),
        text("__dlq.errors.delivery.count", M::Attempts),
        text("__dlq.errors.message", M::ExceptionMessage),
    ],
    RecordTime::New,
);

const SMALLRYE: Spec<'static> = Spec {
    repeats: Repeats::OriginLast,
    ..spec(
        Dialect::Smallrye,
        &["dead-letter-topic", "dead-letter-exception-class-name", "dead-letter-reason"],
        &[
            text("dead-letter-topic", M::OriginTopic),
            text("dead-letter-partition", M::OriginPartition),
            text("dead-letter-offset", M::OriginOffset),
            text("dead-letter-exception-class-name", M::ExceptionClass),
            text("dead-letter-cause-class-name", M::CauseClass),
            text("dead-letter-reason", M::ExceptionMessage),
            text("dead-letter-cause", M::Detail("message of the cause")),
        ],
        RecordTime::New,
    )
};

const ARROYO: Spec<'static> = Spec {
    correct: Some(arroyo::doubt_partition),
    // Neither topic nor reason: its two headers are all there is to know it by.
    ..spec(
        Dialect::Arroyo,
        &["original_partition", "original_offset"],
        &[text("original_partition", M::OriginPartition), text("original_offset", M::OriginOffset)],
        RecordTime::Copied,
    )
};

const WOLVERINE: Spec<'static> = spec(
    Dialect::Wolverine,
    &["original-destination", "exception-type"],
    &[
        field("original-destination", M::OriginTopic, Form::TopicUri),
        text("original-partition", M::OriginPartition),
        text("original-offset", M::OriginOffset),
        text("exception-type", M::ExceptionClass),
        text("exception-message", M::ExceptionMessage),
        text("exception-stack", M::Stacktrace),
        field("failed-at", M::DeadLetteredAt, Form::Instant),
    ],
    RecordTime::Unknown,
);

const KARAFKA: Spec<'static> = spec(
    Dialect::Karafka,
    &["source_topic"],
    &[
        text("source_topic", M::OriginTopic),
        text("source_partition", M::OriginPartition),
        text("source_offset", M::OriginOffset),
        text("source_consumer_group", M::ConsumerGroup),
        text("source_attempts", M::Attempts),
        text("source_trace_id", M::Detail("trace")),
    ],
    RecordTime::New,
);

const WATERMILL: Spec<'static> = spec(
    Dialect::Watermill,
    &["topic_poisoned", "reason_poisoned"],
    &[
        text("topic_poisoned", M::OriginTopic),
        text("reason_poisoned", M::ExceptionMessage),
        text("handler_poisoned", M::Detail("handler")),
        text("subscriber_poisoned", M::Detail("subscriber")),
    ],
    RecordTime::New,
);

const MASSTRANSIT: Spec<'static> = spec(
    Dialect::Masstransit,
    &["MT-Fault-ExceptionType", "MT-Reason"],
    &[
        text("MT-Fault-ExceptionType", M::ExceptionClass),
        text("MT-Fault-Message", M::ExceptionMessage),
        text("MT-Fault-StackTrace", M::Stacktrace),
        field("MT-Fault-RetryCount", M::Attempts, Form::Json),
        field("MT-Fault-Timestamp", M::DeadLetteredAt, Form::Json),
        text("MT-Reason", M::Detail("reason")),
        text("MT-Fault-MessageType", M::Detail("message type")),
        text("MT-Fault-ConsumerType", M::Detail("consumer type")),
        text("MT-Fault-InputAddress", M::Detail("input address")),
    ],
    RecordTime::Unknown,
);

const NSERVICEBUS: Spec<'static> = Spec {
    never_read: &["NServiceBus.ExceptionInfo.Data."],
    ..spec(
        Dialect::Nservicebus,
        &["NServiceBus.FailedQ", "NServiceBus.ExceptionInfo.ExceptionType"],
        &[
            field("NServiceBus.FailedQ", M::OriginTopic, Form::Queue),
            text("NServiceBus.ExceptionInfo.ExceptionType", M::ExceptionClass),
            text("NServiceBus.ExceptionInfo.InnerExceptionType", M::CauseClass),
            text("NServiceBus.ExceptionInfo.Message", M::ExceptionMessage),
            text("NServiceBus.ExceptionInfo.StackTrace", M::Stacktrace),
            text("NServiceBus.ExceptionInfo.Source", M::Detail("assembly")),
            text("NServiceBus.ExceptionInfo.HelpLink", M::Detail("help link")),
            field("NServiceBus.TimeOfFailure", M::DeadLetteredAt, Form::WireTime),
        ],
        RecordTime::Unknown,
    )
};

/// The conventions that speak through headers, before and after the one that does not (uforwarder), in the order in which they are tried.
pub(super) static BEFORE_UFORWARDER: [Spec<'static>; 7] =
    [SPRING_DLT, SPRING_RETRY, SPRING_CLOUD_STREAM, KAFKA_CONNECT, KAFKA_STREAMS, SHARE_GROUP, SMALLRYE];
pub(super) static AFTER_UFORWARDER: [Spec<'static>; 6] = [ARROYO, WOLVERINE, KARAFKA, WATERMILL, MASSTRANSIT, NSERVICEBUS];

/// The row of a dialect that speaks through headers; `None` for uforwarder, custom and none.
pub(super) fn row(dialect: Dialect) -> Option<&'static Spec<'static>> {
    BEFORE_UFORWARDER.iter().chain(&AFTER_UFORWARDER).find(|spec| spec.dialect == dialect)
}

/// The row that `[dlq.custom]` describes.
#[derive(Debug)]
pub(super) struct CustomRow<'a> {
    names: Vec<&'a str>,
    fields: Vec<Field<'a>>,
}

impl<'a> CustomRow<'a> {
    pub(super) fn new(mapping: &'a CustomDialect) -> CustomRow<'a> {
        let columns: [(&Option<CustomField>, Meaning); 10] = [
            (&mapping.origin_topic, M::OriginTopic),
            (&mapping.origin_partition, M::OriginPartition),
            (&mapping.origin_offset, M::OriginOffset),
            (&mapping.origin_timestamp, M::OriginTimestamp),
            (&mapping.consumer_group, M::ConsumerGroup),
            (&mapping.exception_class, M::ExceptionClass),
            (&mapping.exception_message, M::ExceptionMessage),
            (&mapping.stacktrace, M::Stacktrace),
            (&mapping.attempts, M::Attempts),
            (&mapping.dead_lettered_at, M::DeadLetteredAt),
        ];
        let mapped = columns.into_iter().filter_map(|(column, meaning)| {
            let CustomField { header, encoding } = column.as_ref()?;
            let is_instant = matches!(meaning, M::OriginTimestamp | M::DeadLetteredAt);
            Some(Field { name: header, meaning, form: Form::configured(*encoding, is_instant) })
        });
        let fields: Vec<Field<'a>> = mapped.collect();
        CustomRow { names: fields.iter().map(|field| field.name).collect(), fields }
    }

    /// As a row of the table. Any of its headers makes a record recognised, for an operator named them all as failure headers.
    pub(super) fn spec(&self) -> Spec<'_> {
        Spec {
            dialect: Dialect::Custom,
            recognised_by: &self.names,
            fields: &self.fields,
            never_read: &[],
            repeats: Repeats::OriginFirst,
            time: RecordTime::Unknown,
            prefers_cause: false,
            correct: None,
        }
    }
}
