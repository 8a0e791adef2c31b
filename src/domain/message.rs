//! A message: a record plus what we decided about it.

use serde::{Deserialize, Serialize};

use super::classify::FailureClass;
use super::dialect::Origin;
use super::record::Record;

/// Where a message stands. `Replayed` and `Archived` are its ends; the others count towards depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    Quarantined,
    UnderReview,
    SchemaCheck,
    IdempotencyCheck,
    Replayed,
    Archived,
}

impl MessageState {
    pub const ALL: [MessageState; 6] = [
        MessageState::Quarantined,
        MessageState::UnderReview,
        MessageState::SchemaCheck,
        MessageState::IdempotencyCheck,
        MessageState::Replayed,
        MessageState::Archived,
    ];

    /// The word in the database, the API and the query string.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageState::Quarantined => "quarantined",
            MessageState::UnderReview => "under_review",
            MessageState::SchemaCheck => "schema_check",
            MessageState::IdempotencyCheck => "idempotency_check",
            MessageState::Replayed => "replayed",
            MessageState::Archived => "archived",
        }
    }

    /// Whether the message still counts towards its DLQ's depth.
    pub fn is_open(self) -> bool {
        !matches!(self, MessageState::Replayed | MessageState::Archived)
    }
}

impl std::str::FromStr for MessageState {
    type Err = String;

    fn from_str(text: &str) -> Result<MessageState, String> {
        MessageState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = MessageState::ALL.iter().map(|state| state.as_str()).collect();
            format!("unknown state {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// What makes one failure group: everything that goes into the fingerprint, kept so that a page can say why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupIdentity {
    /// SHA-256, hex, over DLQ, consumer group, class, root exception, normalised text and top frame.
    pub fingerprint: String,
    pub consumer_group: Option<String>,
    pub class: FailureClass,
    pub exception_class: Option<String>,
    /// The exception's text with numbers, ids and the like replaced; safe for display.
    pub normalised_text: String,
    pub top_frame: Option<String>,
}

/// A record with all that could be read out of it, ready to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    pub record: Record,
    /// SHA-256 over key, value and headers, length-prefixed.
    pub body_hash: [u8; 32],
    /// The dialect's name in DIALECTS terms, e.g. `spring_dlt`.
    pub dialect: String,
    pub class: FailureClass,
    /// Which rule decided the class, in words: "built-in: java.net.SocketTimeoutException" or "class_rules[2]".
    pub class_reason: String,
    pub group: GroupIdentity,
    /// For display: cut to a few kB, never containing NUL.
    pub exception_class: Option<String>,
    pub exception_message: Option<String>,
    pub origin: Option<Origin>,
    pub consumer_group: Option<String>,
    /// The number the framework gives, unchanged.
    pub attempts: Option<i64>,
    /// How often this message has been replayed; 1 for a first failure.
    pub lap: i32,
    pub business_key: Option<String>,
    pub tenant: Option<String>,
    /// Kafka's own timestamp, ms, raw.
    pub record_at_ms: Option<i64>,
    /// When it was dead-lettered, ms: the record's own time, a header's, or when we first saw it.
    pub dead_lettered_at_ms: i64,
    /// The timestamp was missing, before 2000 or over 5 minutes ahead.
    pub timestamp_suspect: bool,
    /// When intake first saw it, ms.
    pub first_seen_at_ms: i64,
}
