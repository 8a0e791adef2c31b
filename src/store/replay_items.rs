//! The items of a batch as the executor moves them: pending, intended, ended.
//!
//! Locks are taken in one order by everybody: messages (by id), then items, then the batch, then counters, then the trail.

use std::borrow::Cow;

use super::sql_pieces::{Dialect as _, optional_text, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::message::MessageState;
use crate::domain::pacing::Waiting;
use crate::domain::record::{Record, unpack_headers};
use crate::domain::replay::ItemState;

/// An item that is about to be sent, with its message.
#[derive(Debug, Clone, PartialEq)]
pub struct ToSend {
    pub message_id: i64,
    /// Its place in the order of its key, before the message id.
    pub place: i64,
    pub key_hash: Option<i64>,
    pub lap: i32,
    /// What the preflight said of it.
    pub forecast: Option<String>,
    /// It was intended before, and is proven absent.
    pub again: bool,
    pub message_state: MessageState,
    pub group_id: i64,
    /// None: its bytes were purged.
    pub record: Option<Record>,
    pub origin_topic: Option<String>,
    pub origin_partition: Option<i32>,
    pub origin_offset: Option<i64>,
    pub origin_at_ms: Option<i64>,
    pub timestamp_suspect: bool,
}

#[derive(sqlx::FromRow)]
struct RawToSend {
    message_id: i64,
    place: i64,
    key_hash: Option<i64>,
    lap: i32,
    forecast: Option<String>,
    intended_at_ms: Option<i64>,
    topic: String,
    partition: i32,
    record_offset: i64,
    record_at_ms: Option<i64>,
    record_key: Option<Vec<u8>>,
    state: String,
    group_id: i64,
    origin_topic: Option<String>,
    origin_partition: Option<i32>,
    origin_offset: Option<i64>,
    origin_at_ms: Option<i64>,
    timestamp_suspect: bool,
    value: Option<Vec<u8>>,
    headers: Option<Vec<u8>>,
}

impl TryFrom<RawToSend> for ToSend {
    type Error = StoreError;

    fn try_from(raw: RawToSend) -> Result<ToSend, StoreError> {
        let headers = raw.headers.as_deref().map(unpack_headers).transpose();
        let headers = headers.map_err(|error| StoreError::unreadable("headers", &error.to_string()))?;
        let record = headers.map(|headers| Record {
            topic: raw.topic,
            partition: raw.partition,
            offset: raw.record_offset,
            timestamp_ms: raw.record_at_ms,
            key: raw.record_key,
            value: raw.value,
            headers,
        });
        Ok(ToSend {
            message_state: raw.state.parse().map_err(|_| StoreError::unreadable("state of a message", &raw.state))?,
            message_id: raw.message_id,
            place: raw.place,
            key_hash: raw.key_hash,
            lap: raw.lap,
            forecast: raw.forecast,
            again: raw.intended_at_ms.is_some(),
            group_id: raw.group_id,
            record,
            origin_topic: raw.origin_topic,
            origin_partition: raw.origin_partition,
            origin_offset: raw.origin_offset,
            origin_at_ms: raw.origin_at_ms,
            timestamp_suspect: raw.timestamp_suspect,
        })
    }
}

/// An item of which nobody knows yet whether it was sent.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct InDoubt {
    pub message_id: i64,
    pub place: i64,
    /// None: order does not matter to it.
    pub key_hash: Option<i64>,
    pub record_key: Option<Vec<u8>>,
    pub group_id: i64,
    pub target_partition: i32,
    /// The end of that partition before it was sent: it can lie nowhere before.
    pub lower_bound: i64,
    /// Of the lease under which it was intended.
    pub epoch: i64,
    pub unchecked: bool,
}

/// What stands in the way of later items of its key, if it ended like that.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Ended {
    pub key_hash: i64,
    pub place: i64,
    pub message_id: i64,
}

/// Items that ended alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes {
    pub forecast: String,
    pub state: ItemState,
    pub unchecked: bool,
    pub count: i64,
}

/// How an item moves on. What is None stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ItemMove<'a> {
    pub message_id: i64,
    #[serde(rename = "from_state", serialize_with = "word")]
    pub from: ItemState,
    #[serde(rename = "to_state", serialize_with = "word")]
    pub to: ItemState,
    /// Whether no other batch may take its message.
    pub live: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_offset: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

fn word<S: serde::Serializer>(state: &ItemState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

impl<'a> ItemMove<'a> {
    /// From one state to the other; it goes on being live only while it has not ended.
    pub fn new(message_id: i64, from: ItemState, to: ItemState) -> ItemMove<'a> {
        ItemMove {
            message_id,
            from,
            to,
            live: matches!(to, ItemState::Pending | ItemState::Intended),
            note: None,
            blocked_by: None,
            unchecked: None,
            target_partition: None,
            lower_bound: None,
            intended_at_ms: None,
            epoch: None,
            sent_offset: None,
            sent_at_ms: None,
            outcome: None,
        }
    }

    /// With words for people.
    pub fn noted(self, note: impl Into<Cow<'a, str>>) -> ItemMove<'a> {
        ItemMove { note: Some(Cow::Owned(text(&note.into()).into_owned())), ..self }
    }
}

/// Moves items, in one statement; at most some 5,000. Returns how many moved: one that is in another state by now does not.
///
/// # Errors
/// The database could not be asked.
pub async fn move_items(tx: &mut Tx, batch_id: i64, moves: &[ItemMove<'_>]) -> Result<u64, StoreError> {
    if moves.is_empty() {
        return Ok(0);
    }
    let list = rows(moves);
    in_tx!(tx, |connection| { sqlx::query(Db::MOVE_ITEMS).bind(batch_id).bind(&list).execute(&mut *connection).await?.rows_affected() })
}

/// Lets items of steps up to `stage` go; `since_ms`: since when it waits for the verification of what was sent.
///
/// # Errors
/// The database could not be asked.
pub async fn set_stage(tx: &mut Tx, batch_id: i64, stage: i32, since_ms: Option<i64>) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET stage = $2, stage_since_ms = $3 WHERE id = $1";
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(stage).bind(since_ms).execute(&mut *connection).await?;
    })
}

/// Says why a batch that is to go, or goes, waits, or that it goes on (None). Nothing changes for one that is in another state by now: false.
///
/// # Errors
/// The database could not be asked.
pub async fn set_note(tx: &mut Tx, batch_id: i64, note: Option<&str>) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE batches SET note = $2 WHERE id = $1 AND state IN ('approved', 'executing') AND (note IS NULL OR CAST($2 AS TEXT) IS NULL OR note <> $2)";
    let changed = in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(optional_text(note)).execute(&mut *connection).await?.rows_affected()
    })?;
    Ok(changed == 1)
}

impl Store {
    /// Batches of a cluster that are approved or executing, and those of whatever state of which something is in doubt; oldest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn replay_work(&self, cluster: &str) -> Result<Vec<i64>, StoreError> {
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(Db::REPLAY_WORK).bind(text(cluster)).fetch_all(pool).await? })
    }

    /// All items of steps up to `stage` that wait to be sent, in the order of their origin.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn waiting_items(&self, batch_id: i64, stage: i32) -> Result<Vec<Waiting>, StoreError> {
        const SQL: &str = "SELECT i.message_id, i.key_hash, m.tenant FROM replay_items i JOIN messages m ON m.id = i.message_id
             WHERE i.batch_id = $1 AND i.state = 'pending' AND i.stage <= $2 ORDER BY i.place, i.message_id";
        let raw: Vec<(i64, Option<i64>, Option<String>)> = read!(self, |pool| {
            sqlx::query_as::<Db, (i64, Option<i64>, Option<String>)>(SQL).bind(batch_id).bind(stage).fetch_all(pool).await?
        })?;
        Ok(raw.into_iter().map(|(message_id, key_hash, tenant)| Waiting { message_id, key_hash, tenant }).collect())
    }

    /// The items among `ids` that wait to be sent, with message and body, in the order of `ids`.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn items_to_send(&self, batch_id: i64, ids: &[i64]) -> Result<Vec<ToSend>, StoreError> {
        let list = rows(ids);
        let raw: Vec<RawToSend> =
            read!(self, |pool| { sqlx::query_as::<Db, RawToSend>(Db::ITEMS_TO_SEND).bind(batch_id).bind(&list).fetch_all(pool).await? })?;
        let mut found = raw
            .into_iter()
            .map(|raw| Ok((raw.message_id, ToSend::try_from(raw)?)))
            .collect::<Result<std::collections::HashMap<_, _>, StoreError>>()?;
        Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
    }

    /// The sizes in bytes of messages, in the order of `ids`; of one that is not there, 0.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn sizes(&self, ids: &[i64]) -> Result<Vec<i64>, StoreError> {
        let list = rows(ids);
        let found: Vec<(i64, i64)> =
            read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(Db::SIZES_OF).bind(&list).fetch_all(pool).await? })?;
        let found: std::collections::HashMap<i64, i64> = found.into_iter().collect();
        Ok(ids.iter().map(|id| found.get(id).copied().unwrap_or_default()).collect())
    }

    /// The first step of which items wait to be sent; None: nothing waits.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn next_stage(&self, batch_id: i64) -> Result<Option<i32>, StoreError> {
        const SQL: &str = "SELECT MIN(stage) FROM replay_items WHERE batch_id = $1 AND state = 'pending'";
        read!(self, |pool| { sqlx::query_scalar::<Db, Option<i32>>(SQL).bind(batch_id).fetch_one(pool).await? })
    }

    /// Items with a key that ended so that later ones of their key must not go.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn items_in_the_way(&self, batch_id: i64) -> Result<Vec<Ended>, StoreError> {
        const SQL: &str = "SELECT key_hash, place, message_id FROM replay_items WHERE batch_id = $1 AND key_hash IS NOT NULL
             AND state IN ('held', 'archived', 'blocked', 'not_sent', 'intended')";
        read!(self, |pool| { sqlx::query_as::<Db, Ended>(SQL).bind(batch_id).fetch_all(pool).await? })
    }

    /// How items with a forecast ended so far.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn item_outcomes(&self, batch_id: i64) -> Result<Vec<Outcomes>, StoreError> {
        const SQL: &str = "SELECT forecast, state, unchecked, COUNT(*) FROM replay_items
             WHERE batch_id = $1 AND forecast IS NOT NULL AND state NOT IN ('pending', 'not_sent') GROUP BY forecast, state, unchecked";
        let raw: Vec<(String, String, bool, i64)> =
            read!(self, |pool| { sqlx::query_as::<Db, (String, String, bool, i64)>(SQL).bind(batch_id).fetch_all(pool).await? })?;
        raw.into_iter()
            .map(|(forecast, word, unchecked, count)| {
                let state = ItemState::ALL.into_iter().find(|state| state.as_str() == word);
                let state = state.ok_or_else(|| StoreError::unreadable("state of an item", &word))?;
                Ok(Outcomes { forecast, state, unchecked, count })
            })
            .collect()
    }

    /// Of the items that were sent at `from_ms` or later: how many came back, and how many there are. Looks at all items of the batch.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn returned_of_sent(&self, batch_id: i64, from_ms: i64) -> Result<(i64, i64), StoreError> {
        const SQL: &str =
            "SELECT CAST(COALESCE(SUM(CASE WHEN outcome = 'returned' THEN 1 ELSE 0 END), 0) AS BIGINT), COUNT(*) FROM replay_items
             WHERE batch_id = $1 AND sent_at_ms >= $2";
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).bind(batch_id).bind(from_ms).fetch_one(pool).await? })
    }

    /// Items of which nobody knows yet whether they were sent, in the order of their origin.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn items_in_doubt(&self, batch_id: i64) -> Result<Vec<InDoubt>, StoreError> {
        const SQL: &str = "SELECT i.message_id, i.place, i.key_hash, m.record_key, i.group_id, i.target_partition, i.lower_bound, i.epoch, i.unchecked
             FROM replay_items i JOIN messages m ON m.id = i.message_id WHERE i.batch_id = $1 AND i.state = 'intended' ORDER BY i.place, i.message_id";
        read!(self, |pool| { sqlx::query_as::<Db, InDoubt>(SQL).bind(batch_id).fetch_all(pool).await? })
    }

    /// Where items stand in the order of their batch: (message, place).
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn places_of_items(&self, batch_id: i64, ids: &[i64]) -> Result<Vec<(i64, i64)>, StoreError> {
        let list = rows(ids);
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(Db::PLACES_OF_ITEMS).bind(batch_id).bind(&list).fetch_all(pool).await? })
    }
}
