//! Messages and their bodies.

use super::positions::PartitionId;
use super::{Store, StoreError};
use crate::domain::classify::FailureClass;
use crate::domain::message::{MessageState, NewMessage};
use crate::domain::record::Header;

/// What intake read from one partition: its messages and how far the position moves, guarded by epoch and expected offset.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionBatch {
    pub id: PartitionId,
    pub owner_epoch: i64,
    pub expected_offset: i64,
    /// At least `expected_offset`; may lie past the last record (transaction markers, compaction).
    pub next_offset: i64,
    /// In offset order; may be empty.
    pub messages: Vec<NewMessage>,
}

/// How a take-in ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeIn {
    /// Everything was committed; `stored` new rows (fewer than the messages when some were there already).
    Committed { stored: u64 },
    /// These partitions were moved or claimed by another; nothing at all was written.
    Moved(Vec<PartitionId>),
}

/// One message as lists and pages need it; the body is fetched apart.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    pub id: i64,
    pub dlq_id: i64,
    pub cluster: String,
    pub topic: String,
    pub incarnation: i32,
    pub partition: i32,
    pub offset: i64,
    pub state: MessageState,
    /// sent | already_applied
    pub resolution: Option<String>,
    /// pending | confirmed | returned | unproven
    pub outcome: Option<String>,
    pub reason: Option<String>,
    pub dialect: String,
    pub class: FailureClass,
    pub class_reason: String,
    pub group_id: i64,
    pub exception_class: Option<String>,
    pub exception_message: Option<String>,
    pub origin_topic: Option<String>,
    pub origin_partition: Option<i32>,
    pub origin_offset: Option<i64>,
    pub origin_at_ms: Option<i64>,
    pub consumer_group: Option<String>,
    pub attempts: Option<i64>,
    pub lap: i32,
    pub business_key: Option<String>,
    pub tenant: Option<String>,
    pub record_at_ms: Option<i64>,
    pub dead_lettered_at_ms: i64,
    pub timestamp_suspect: bool,
    pub first_seen_at_ms: i64,
    /// The record key's bytes; None is a null key.
    pub key: Option<Vec<u8>>,
    /// Bytes of key, value and headers.
    pub size: i64,
}

/// The exact bytes of a message. None from [`Store::body`] when they were purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub hash: Vec<u8>,
}

/// What to list. Every condition that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    pub cluster: Option<String>,
    pub topic: Option<String>,
    pub state: Option<MessageState>,
    pub class: Option<FailureClass>,
    pub group_id: Option<i64>,
    pub partition: Option<i32>,
    /// Record key, exact bytes.
    pub key: Option<Vec<u8>>,
    /// Business key exact, record key exact, or a case-insensitive prefix of exception class or normalised text.
    pub q: Option<String>,
    /// On dead-lettered time, ms, half-open `[from, to)`.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
}

/// A page of messages, newest id first.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePage {
    pub items: Vec<MessageRow>,
    /// Pass as `after` for the following page; None on the last.
    pub next: Option<i64>,
}

impl Store {
    /// Stores messages, bodies, counter deltas and moves the positions, all in one transaction (PROTOCOLS: intake). Groups that are
    /// new are made first. Identity is (dlq, incarnation, partition, offset): a row that exists already is kept and not counted again.
    pub async fn take_in(&self, _batches: &[PartitionBatch], _now_ms: i64) -> Result<TakeIn, StoreError> {
        todo!()
    }
    /// Newest first; `after` is the `next` of the previous page; `limit` 1..=500.
    pub async fn messages(&self, _filter: &MessageFilter, _after: Option<i64>, _limit: i64) -> Result<MessagePage, StoreError> {
        todo!()
    }
    pub async fn message(&self, _id: i64) -> Result<Option<MessageRow>, StoreError> {
        todo!()
    }
    /// By coordinates; the newest incarnation that has the offset unless one is named.
    pub async fn message_at(
        &self,
        _cluster: &str,
        _topic: &str,
        _partition: i32,
        _offset: i64,
        _incarnation: Option<i32>,
    ) -> Result<Option<MessageRow>, StoreError> {
        todo!()
    }
    pub async fn body(&self, _message_id: i64) -> Result<Option<Body>, StoreError> {
        todo!()
    }
    /// The newest stored record of a partition: offset, Kafka's timestamp and body hash. For brokers that give no topic id.
    pub async fn newest_record(&self, _id: PartitionId) -> Result<Option<(i64, Option<i64>, Vec<u8>)>, StoreError> {
        todo!()
    }
}
