//! Messages and their bodies.

use serde::{Deserialize, Serialize};

use super::positions::PartitionId;
use super::sql_pieces::text;
use super::{Store, StoreError};
use crate::domain::classify::FailureClass;
use crate::domain::lifecycle::FollowUp;
use crate::domain::mask::MASK;
use crate::domain::message::{MessageState, NewMessage};
use crate::domain::record::{Header, unpack_headers};

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
    /// Why it was archived, is held, or was not sent.
    pub reason: Option<String>,
    pub follow_up: Option<FollowUp>,
    /// The message that came back as this one.
    pub replay_of: Option<i64>,
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
    /// The record key's bytes; None is a null key, [`MASK`] one that must not be shown.
    pub key: Option<Vec<u8>>,
    /// `key` is not the record's: that one repeats a masked field, or may.
    pub key_masked: bool,
    /// Bytes of key, value and headers.
    pub size: i64,
}

/// The exact bytes of a message. None from [`Store::body`] when they were purged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub hash: Vec<u8>,
}

/// What to list. Every condition that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageFilter {
    pub cluster: Option<String>,
    pub topic: Option<String>,
    /// Of the DLQ.
    pub owner: Option<String>,
    pub state: Option<MessageState>,
    /// Of what a check archived.
    pub follow_up: Option<FollowUp>,
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

/// The columns of [`RawMessage`], of `messages m` and `dlqs d`.
macro_rules! message_row {
    () => {
        "m.id, m.dlq_id, d.cluster, d.topic, m.incarnation, m.partition, m.record_offset, m.state, m.resolution, m.outcome, m.reason, m.follow_up, m.replay_of, m.dialect, m.class, \
         m.class_reason, m.group_id, m.exception_class, m.exception_message, m.origin_topic, m.origin_partition, m.origin_offset, m.origin_at_ms, \
         m.consumer_group, m.attempts, m.lap, m.business_key, m.tenant, m.record_at_ms, m.dead_lettered_at_ms, m.timestamp_suspect, m.first_seen_at_ms, \
         m.record_key, m.record_key IS NOT NULL AND m.key_hash IS NULL AS key_masked, m.size"
    };
}
pub(super) use message_row;

/// A message as the database gives it, its words still texts.
#[derive(sqlx::FromRow)]
pub(super) struct RawMessage {
    id: i64,
    dlq_id: i64,
    cluster: String,
    topic: String,
    incarnation: i32,
    partition: i32,
    record_offset: i64,
    state: String,
    resolution: Option<String>,
    outcome: Option<String>,
    reason: Option<String>,
    follow_up: Option<String>,
    replay_of: Option<i64>,
    dialect: String,
    class: String,
    class_reason: String,
    group_id: i64,
    exception_class: Option<String>,
    exception_message: Option<String>,
    origin_topic: Option<String>,
    origin_partition: Option<i32>,
    origin_offset: Option<i64>,
    origin_at_ms: Option<i64>,
    consumer_group: Option<String>,
    attempts: Option<i64>,
    lap: i32,
    business_key: Option<String>,
    tenant: Option<String>,
    record_at_ms: Option<i64>,
    dead_lettered_at_ms: i64,
    timestamp_suspect: bool,
    first_seen_at_ms: i64,
    record_key: Option<Vec<u8>>,
    /// Only a key that may be found has a hash.
    key_masked: bool,
    size: i64,
}

#[derive(sqlx::FromRow)]
struct RawBody {
    record_key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<u8>,
    body_hash: Vec<u8>,
}

impl TryFrom<RawMessage> for MessageRow {
    type Error = StoreError;

    fn try_from(raw: RawMessage) -> Result<MessageRow, StoreError> {
        Ok(MessageRow {
            state: raw.state.parse().map_err(|_| StoreError::unreadable("state", &raw.state))?,
            class: raw.class.parse().map_err(|_| StoreError::unreadable("class", &raw.class))?,
            id: raw.id,
            dlq_id: raw.dlq_id,
            cluster: raw.cluster,
            topic: raw.topic,
            incarnation: raw.incarnation,
            partition: raw.partition,
            offset: raw.record_offset,
            resolution: raw.resolution,
            outcome: raw.outcome,
            reason: raw.reason,
            follow_up: raw
                .follow_up
                .as_deref()
                .map(str::parse)
                .transpose()
                .map_err(|_| StoreError::unreadable("follow-up", "of a message"))?,
            replay_of: raw.replay_of,
            dialect: raw.dialect,
            class_reason: raw.class_reason,
            group_id: raw.group_id,
            exception_class: raw.exception_class,
            exception_message: raw.exception_message,
            origin_topic: raw.origin_topic,
            origin_partition: raw.origin_partition,
            origin_offset: raw.origin_offset,
            origin_at_ms: raw.origin_at_ms,
            consumer_group: raw.consumer_group,
            attempts: raw.attempts,
            lap: raw.lap,
            business_key: raw.business_key,
            tenant: raw.tenant,
            record_at_ms: raw.record_at_ms,
            dead_lettered_at_ms: raw.dead_lettered_at_ms,
            timestamp_suspect: raw.timestamp_suspect,
            first_seen_at_ms: raw.first_seen_at_ms,
            key_masked: raw.key_masked,
            key: if raw.key_masked { Some(MASK.into()) } else { raw.record_key },
            size: raw.size,
        })
    }
}

impl Store {
    /// One message; None if there is none of that id.
    pub async fn message(&self, id: i64) -> Result<Option<MessageRow>, StoreError> {
        const SQL: &str = concat!("SELECT ", message_row!(), " FROM messages m JOIN dlqs d ON d.id = m.dlq_id WHERE m.id = $1");
        read!(self, |pool| {
            let raw = sqlx::query_as::<Db, RawMessage>(SQL).bind(id).fetch_optional(pool).await?;
            raw.map(MessageRow::try_from).transpose()?
        })
    }

    /// By coordinates; the newest incarnation that has the offset unless one is named.
    pub async fn message_at(
        &self,
        cluster: &str,
        topic: &str,
        partition: i32,
        offset: i64,
        incarnation: Option<i32>,
    ) -> Result<Option<MessageRow>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            message_row!(),
            " FROM dlqs d JOIN incarnations i ON i.dlq_id = d.id
              JOIN messages m ON m.dlq_id = d.id AND m.incarnation = i.incarnation AND m.partition = $3 AND m.record_offset = $4
              WHERE d.cluster = $1 AND d.topic = $2 AND ($5 = 0 OR i.incarnation = $5) ORDER BY m.incarnation DESC, m.rewrite DESC LIMIT 1"
        );
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawMessage>(SQL).bind(text(cluster)).bind(text(topic)).bind(partition).bind(offset);
            let raw = query.bind(incarnation.unwrap_or(0)).fetch_optional(pool).await?;
            raw.map(MessageRow::try_from).transpose()?
        })
    }

    /// All messages of these coordinates, newest incarnation first: one for each life of each topic of that name, and for each time the
    /// log was truncated and written again. At most `limit`.
    pub async fn messages_at(
        &self,
        cluster: Option<&str>,
        topic: &str,
        partition: i32,
        offset: i64,
        limit: i64,
    ) -> Result<Vec<MessageRow>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            message_row!(),
            " FROM dlqs d JOIN incarnations i ON i.dlq_id = d.id
              JOIN messages m ON m.dlq_id = d.id AND m.incarnation = i.incarnation AND m.partition = $3 AND m.record_offset = $4
              WHERE ($1 IS NULL OR d.cluster = $1) AND d.topic = $2 ORDER BY m.incarnation DESC, m.rewrite DESC, d.cluster LIMIT $5"
        );
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawMessage>(SQL).bind(cluster.map(text)).bind(text(topic)).bind(partition).bind(offset);
            let raw = query.bind(limit).fetch_all(pool).await?;
            raw.into_iter().map(MessageRow::try_from).collect::<Result<Vec<_>, _>>()?
        })
    }

    /// The exact bytes of a message; None if they were purged or there is no such message.
    pub async fn body(&self, message_id: i64) -> Result<Option<Body>, StoreError> {
        const SQL: &str = "SELECT m.record_key, b.value, b.headers, m.body_hash FROM bodies b JOIN messages m ON m.id = b.message_id WHERE b.message_id = $1";
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawBody>(SQL).bind(message_id).fetch_optional(pool).await? })?;
        raw.map(|raw| {
            let headers = unpack_headers(&raw.headers).map_err(|error| StoreError::unreadable("headers", &error.to_string()))?;
            Ok(Body { key: raw.record_key, value: raw.value, headers, hash: raw.body_hash })
        })
        .transpose()
    }

    /// The newest stored record of a partition: offset, Kafka's timestamp and body hash. For brokers that give no topic id.
    pub async fn newest_record(&self, id: PartitionId) -> Result<Option<(i64, Option<i64>, Vec<u8>)>, StoreError> {
        const SQL: &str =
            "SELECT record_offset, record_at_ms, body_hash FROM messages WHERE dlq_id = $1 AND incarnation = $2 AND partition = $3
             ORDER BY record_offset DESC, rewrite DESC LIMIT 1";
        read!(self, |pool| {
            sqlx::query_as::<Db, _>(SQL).bind(id.dlq_id).bind(id.incarnation).bind(id.partition).fetch_optional(pool).await?
        })
    }
}
