//! The outbox: notices on their way to channels, written in the transaction of what they tell, and the log of each attempt.
//!
//! An attempt is written down before it is made ([`begin`]) and again when it is over ([`finish`]), each guarded by the row's version. Between the two nobody else takes the
//! row: it is due again only after the longest time that an attempt can take. If the process ends in between, the attempt stays without an outcome, and the
//! message goes once more under the same id: at least once, and for a chat that took the first, twice.

use serde_json::Value;

use super::channels::kind_of;
use super::sql_pieces::{optional_text, text};
use super::{Store, StoreError, Tx};
use crate::domain::delivery::{ChannelKind, GIVE_UP_AFTER_MS};
use crate::domain::notice::{Notice, render, short_key};

/// What became of a notice for one channel. The words are kept in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// On its way, or between two attempts.
    Waiting,
    Delivered,
    /// Refused for good.
    Failed,
    /// Not accepted in a day, or its channel was switched off.
    GivenUp,
}

impl DeliveryState {
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::GivenUp => "given_up",
        }
    }

    fn from_word(word: &str) -> Result<DeliveryState, StoreError> {
        let all = [DeliveryState::Waiting, DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::GivenUp];
        all.into_iter().find(|state| state.as_str() == word).ok_or_else(|| StoreError::unreadable("state of a delivery", word))
    }
}

/// A notice for one channel, as the log shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: i64,
    pub channel_id: i64,
    pub event_id: String,
    /// `NoticeEvent::as_str`.
    pub event: String,
    /// The first line of the message.
    pub headline: String,
    pub state: DeliveryState,
    pub created_at_ms: i64,
    /// When the next attempt is due, while it waits.
    pub due_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    pub version: i64,
    /// Oldest first.
    pub attempts: Vec<LoggedAttempt>,
}

/// One attempt as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LoggedAttempt {
    pub id: i64,
    pub outbox_id: i64,
    pub at_ms: i64,
    /// None: under way, or the process ended before the answer came.
    pub took_ms: Option<i64>,
    pub status: Option<i32>,
    pub body: Option<String>,
    pub error: Option<String>,
}

/// A message that may go now.
#[derive(Debug, Clone)]
pub struct Due {
    pub id: i64,
    pub channel_id: i64,
    pub channel: String,
    pub kind: ChannelKind,
    pub uid: String,
    pub sealed: Vec<u8>,
    pub event_id: String,
    pub body: Vec<u8>,
    pub version: i64,
    /// So far.
    pub attempts: i64,
    pub give_up_at_ms: i64,
    /// Of the channel, in a row.
    pub failures: i64,
}

/// An attempt that is written down and may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begun {
    pub delivery_id: i64,
    pub attempt_id: i64,
    pub channel_id: i64,
    pub version: i64,
}

/// What an attempt came to.
#[derive(Debug, Clone)]
pub struct Finished<'a> {
    pub took_ms: i64,
    pub status: Option<u16>,
    pub body: Option<&'a str>,
    pub error: Option<&'a str>,
    pub state: DeliveryState,
    /// When the next attempt is due, if there is one.
    pub due_at_ms: i64,
    /// How the channel goes on; None: as before.
    pub hold: Option<Hold>,
}

/// What an attempt means for its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Nothing goes before.
    pub not_before_ms: i64,
    /// Attempts in a row that failed in a way that may pass.
    pub failures: i64,
}

/// Puts a notice into the outbox of each of these channels that is in use, rendered for it. Part of the caller's transaction: it is told if that is committed, and only then. A
/// notice that is there already is not put there twice. Returns how many were put.
///
/// # Errors
/// The database could not be asked.
pub async fn enqueue(tx: &mut Tx, notice: &Notice, channels: &[i64], now_ms: i64) -> Result<u64, StoreError> {
    let mut put = 0;
    for channel_id in channels {
        let row = NewRow { channel_id: *channel_id, state: DeliveryState::Waiting, attempts: 0, now_ms };
        put += u64::from(insert(tx, notice, &row).await?.is_some());
    }
    Ok(put)
}

/// Stores a test for one channel with its attempt under way; it is not tried again. None: the channel is gone.
///
/// # Errors
/// The database could not be asked.
pub async fn begin_test(tx: &mut Tx, notice: &Notice, channel_id: i64, now_ms: i64) -> Result<Option<Begun>, StoreError> {
    // Failed until it is known to be delivered: nobody takes it for something to be sent.
    let row = NewRow { channel_id, state: DeliveryState::Failed, attempts: 1, now_ms };
    let Some(delivery_id) = insert(tx, notice, &row).await? else { return Ok(None) };
    let attempt_id = add_attempt(tx, delivery_id, now_ms).await?;
    Ok(Some(Begun { delivery_id, attempt_id, channel_id, version: 1 }))
}

struct NewRow {
    channel_id: i64,
    state: DeliveryState,
    attempts: i64,
    now_ms: i64,
}

async fn insert(tx: &mut Tx, notice: &Notice, row: &NewRow) -> Result<Option<i64>, StoreError> {
    // A disabled channel can be tested.
    const KIND: &str = "SELECT kind FROM channels WHERE id = $1 AND removed_at_ms IS NULL AND (NOT disabled OR $2 = 'failed')";
    const ADD: &str =
        "INSERT INTO outbox (channel_id, created_at_ms, due_at_ms, give_up_at_ms, ended_at_ms, attempts, event_id, dedup_key, event, state,
            headline, notice, body)
         VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (event_id, channel_id) DO NOTHING RETURNING id";
    let kind: Option<String> = in_tx!(tx, |connection| {
        sqlx::query_scalar::<Db, String>(KIND).bind(row.channel_id).bind(row.state.as_str()).fetch_optional(&mut *connection).await?
    })?;
    let Some(kind) = kind else { return Ok(None) };
    let (body, headline) = (render(kind_of(&kind)?, notice), notice.first_line());
    let kept = serde_json::to_string(notice).expect("plain structs of numbers and texts have a JSON form");
    let ended_at_ms = (row.state != DeliveryState::Waiting).then_some(row.now_ms);
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(ADD).bind(row.channel_id).bind(row.now_ms);
        let query = query.bind(row.now_ms.saturating_add(GIVE_UP_AFTER_MS)).bind(ended_at_ms).bind(row.attempts);
        let query = query.bind(notice.event_id.to_string()).bind(text(&short_key(&notice.dedup_key)).into_owned());
        let query = query.bind(notice.event.as_str()).bind(row.state.as_str()).bind(text(&headline)).bind(text(&kept));
        query.bind(body.as_slice()).fetch_optional(&mut *connection).await?
    })
}

async fn add_attempt(tx: &mut Tx, delivery_id: i64, now_ms: i64) -> Result<i64, StoreError> {
    const SQL: &str = "INSERT INTO outbox_attempts (outbox_id, at_ms) VALUES ($1, $2) RETURNING id";
    in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(SQL).bind(delivery_id).bind(now_ms).fetch_one(&mut *connection).await? })
}

/// Writes down that an attempt is about to be made, if the row is still as it was seen. None: it is not. It is due again at `in_doubt_until_ms`, should nobody say
/// what came of this one.
///
/// # Errors
/// The database could not be asked.
pub async fn begin(store: &Store, due: &Due, now_ms: i64, in_doubt_until_ms: i64) -> Result<Option<Begun>, StoreError> {
    const SQL: &str = "UPDATE outbox SET attempts = attempts + 1, version = version + 1, due_at_ms = $3
         WHERE id = $1 AND version = $2 AND state = 'waiting' RETURNING version";
    let mut tx = store.begin().await?;
    let version = in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(due.id).bind(due.version).bind(in_doubt_until_ms);
        query.fetch_optional(&mut *connection).await?
    })?;
    let Some(version) = version else { return Ok(None) };
    let attempt_id = add_attempt(&mut tx, due.id, now_ms).await?;
    tx.commit().await?;
    Ok(Some(Begun { delivery_id: due.id, attempt_id, channel_id: due.channel_id, version }))
}

/// Writes down what an attempt came to. The log has it in any case; the row and its channel only if nobody changed the row meanwhile. Whether it was so.
///
/// # Errors
/// The database could not be asked.
pub async fn finish(store: &Store, begun: &Begun, finished: &Finished<'_>, now_ms: i64) -> Result<bool, StoreError> {
    const LOG: &str = "UPDATE outbox_attempts SET took_ms = $2, status = $3, body = $4, error = $5 WHERE id = $1";
    const ROW: &str =
        "UPDATE outbox SET version = version + 1, state = $3, due_at_ms = $4, ended_at_ms = $5 WHERE id = $1 AND version = $2";
    const CHANNEL: &str = "UPDATE channels SET not_before_ms = $2, failures = $3 WHERE id = $1";
    let ended_at_ms = (finished.state != DeliveryState::Waiting).then_some(now_ms);
    let mut tx = store.begin().await?;
    let done = in_tx!(tx, |connection| {
        let row = sqlx::query::<Db>(ROW).bind(begun.delivery_id).bind(begun.version).bind(finished.state.as_str());
        let row = row.bind(finished.due_at_ms).bind(ended_at_ms).execute(&mut *connection).await?.rows_affected() == 1;
        let log = sqlx::query::<Db>(LOG).bind(begun.attempt_id).bind(finished.took_ms).bind(finished.status.map(i32::from));
        log.bind(optional_text(finished.body)).bind(optional_text(finished.error)).execute(&mut *connection).await?;
        if let Some(hold) = finished.hold.filter(|_| row) {
            let channel = sqlx::query::<Db>(CHANNEL).bind(begun.channel_id).bind(hold.not_before_ms);
            channel.bind(hold.failures).execute(&mut *connection).await?;
        }
        row
    })?;
    tx.commit().await?;
    Ok(done)
}

/// Makes a delivery that has ended wait again, due now and for a day, if it is still of this version. Whether it was so.
///
/// # Errors
/// The database could not be asked.
pub async fn send_again(tx: &mut Tx, id: i64, version: i64, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str =
        "UPDATE outbox SET version = version + 1, state = 'waiting', due_at_ms = $3, give_up_at_ms = $4, ended_at_ms = NULL, attempts = 0
         WHERE id = $1 AND version = $2 AND state <> 'waiting'";
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(now_ms).bind(now_ms.saturating_add(GIVE_UP_AFTER_MS));
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Ends all that waits for a channel: it was switched off or removed. Returns how many there were.
///
/// # Errors
/// The database could not be asked.
pub async fn give_up_all(tx: &mut Tx, channel_id: i64, now_ms: i64) -> Result<u64, StoreError> {
    const SQL: &str =
        "UPDATE outbox SET version = version + 1, state = 'given_up', ended_at_ms = $2 WHERE channel_id = $1 AND state = 'waiting'";
    in_tx!(tx, |connection| { sqlx::query::<Db>(SQL).bind(channel_id).bind(now_ms).execute(&mut *connection).await?.rows_affected() })
}

#[derive(sqlx::FromRow)]
struct RawDue {
    id: i64,
    channel_id: i64,
    name: String,
    kind: String,
    uid: String,
    sealed: Vec<u8>,
    event_id: String,
    body: Vec<u8>,
    version: i64,
    attempts: i64,
    give_up_at_ms: i64,
    failures: i64,
}

#[derive(sqlx::FromRow)]
struct RawDelivery {
    id: i64,
    channel_id: i64,
    event_id: String,
    event: String,
    headline: String,
    state: String,
    created_at_ms: i64,
    due_at_ms: i64,
    ended_at_ms: Option<i64>,
    version: i64,
}

impl RawDelivery {
    fn with(self, attempts: Vec<LoggedAttempt>) -> Result<Delivery, StoreError> {
        Ok(Delivery {
            state: DeliveryState::from_word(&self.state)?,
            id: self.id,
            channel_id: self.channel_id,
            event_id: self.event_id,
            event: self.event,
            headline: self.headline,
            created_at_ms: self.created_at_ms,
            due_at_ms: self.due_at_ms,
            ended_at_ms: self.ended_at_ms,
            version: self.version,
            attempts,
        })
    }
}

macro_rules! select_deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT id, channel_id, event_id, event, headline, state, created_at_ms, due_at_ms, ended_at_ms, version FROM outbox WHERE ",
            $rest
        )
    };
}

impl Store {
    /// For each channel in use the message that goes next, if one is due: of one alert always the oldest, else the one that is due the longest.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn due_deliveries(&self, now_ms: i64) -> Result<Vec<Due>, StoreError> {
        const SQL: &str = "SELECT o.id, o.channel_id, c.name, c.kind, c.uid, c.sealed, o.event_id, o.body, o.version, o.attempts, o.give_up_at_ms, c.failures
             FROM channels c JOIN outbox o ON o.id = (
                SELECT w.id FROM outbox w WHERE w.channel_id = c.id AND w.state = 'waiting' AND w.due_at_ms <= $1
                    AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.channel_id = w.channel_id AND e.dedup_key = w.dedup_key AND e.state = 'waiting' AND e.id < w.id)
                ORDER BY w.due_at_ms, w.id LIMIT 1)
             WHERE c.removed_at_ms IS NULL AND NOT c.disabled AND c.not_before_ms <= $1 AND c.sealed IS NOT NULL ORDER BY o.due_at_ms, o.id";
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawDue>(SQL).bind(now_ms).fetch_all(pool).await? })?;
        let due = |raw: RawDue| {
            Ok(Due {
                kind: kind_of(&raw.kind)?,
                id: raw.id,
                channel_id: raw.channel_id,
                channel: raw.name,
                uid: raw.uid,
                sealed: raw.sealed,
                event_id: raw.event_id,
                body: raw.body,
                version: raw.version,
                attempts: raw.attempts,
                give_up_at_ms: raw.give_up_at_ms,
                failures: raw.failures,
            })
        };
        raw.into_iter().map(due).collect()
    }

    /// Gives up what should have been delivered before `before_ms` and was not even tried: its channel is held up. Returns how many.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn give_up_overdue(&self, before_ms: i64, now_ms: i64) -> Result<u64, StoreError> {
        const SQL: &str = "UPDATE outbox SET version = version + 1, state = 'given_up', ended_at_ms = $2
             WHERE state = 'waiting' AND give_up_at_ms < $1 AND due_at_ms < $2";
        write_one!(self, |pool| { sqlx::query::<Db>(SQL).bind(before_ms).bind(now_ms).execute(pool).await?.rows_affected() })
    }

    /// Drops deliveries that ended before `before_ms` with their attempts, at most `limit` of them. Returns how many.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn sweep_outbox(&self, before_ms: i64, limit: i64) -> Result<u64, StoreError> {
        const OLD: &str = "DELETE FROM outbox_attempts WHERE outbox_id IN (SELECT id FROM outbox WHERE ended_at_ms < $1 ORDER BY ended_at_ms, id LIMIT $2)";
        const ROWS: &str =
            "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE ended_at_ms < $1 ORDER BY ended_at_ms, id LIMIT $2)";
        transaction!(self, |tx| {
            sqlx::query::<Db>(OLD).bind(before_ms).bind(limit).execute(&mut *tx).await?;
            sqlx::query::<Db>(ROWS).bind(before_ms).bind(limit).execute(&mut *tx).await?.rows_affected()
        })
    }

    /// Deliveries of a channel with their attempts, newest first: those before the id `before`.
    ///
    /// # Errors
    /// As [`Store::due_deliveries`].
    pub async fn deliveries(&self, channel_id: i64, before: Option<i64>, limit: i64) -> Result<Vec<Delivery>, StoreError> {
        const ROWS: &str = select_deliveries!("channel_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        const ATTEMPTS: &str = "SELECT id, outbox_id, at_ms, took_ms, status, body, error FROM outbox_attempts
             WHERE outbox_id IN (SELECT id FROM outbox WHERE channel_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3) ORDER BY outbox_id, id";
        let before = before.unwrap_or(i64::MAX);
        let (raw, attempts) = read!(self, |pool| {
            let raw = sqlx::query_as::<Db, RawDelivery>(ROWS).bind(channel_id).bind(before).bind(limit).fetch_all(pool).await?;
            let attempts = sqlx::query_as::<Db, LoggedAttempt>(ATTEMPTS).bind(channel_id).bind(before).bind(limit).fetch_all(pool).await?;
            (raw, attempts)
        })?;
        let of = |id: i64| attempts.iter().filter(|attempt| attempt.outbox_id == id).cloned().collect();
        raw.into_iter()
            .map(|raw| {
                let id = raw.id;
                raw.with(of(id))
            })
            .collect()
    }

    /// One delivery with its attempts.
    ///
    /// # Errors
    /// As [`Store::due_deliveries`].
    pub async fn delivery(&self, id: i64) -> Result<Option<Delivery>, StoreError> {
        const ROW: &str = select_deliveries!("id = $1");
        const ATTEMPTS: &str =
            "SELECT id, outbox_id, at_ms, took_ms, status, body, error FROM outbox_attempts WHERE outbox_id = $1 ORDER BY id";
        let (raw, attempts) = read!(self, |pool| {
            let raw = sqlx::query_as::<Db, RawDelivery>(ROW).bind(id).fetch_optional(pool).await?;
            let attempts = sqlx::query_as::<Db, LoggedAttempt>(ATTEMPTS).bind(id).fetch_all(pool).await?;
            (raw, attempts)
        })?;
        raw.map(|raw| raw.with(attempts)).transpose()
    }

    /// The notice of a delivery as it was stored.
    ///
    /// # Errors
    /// As [`Store::due_deliveries`].
    pub async fn notice_of(&self, delivery_id: i64) -> Result<Option<Value>, StoreError> {
        const SQL: &str = "SELECT notice FROM outbox WHERE id = $1";
        let stored = read!(self, |pool| { sqlx::query_scalar::<Db, String>(SQL).bind(delivery_id).fetch_optional(pool).await? })?;
        stored.map(|stored| serde_json::from_str(&stored).map_err(|_| StoreError::unreadable("notice", &stored))).transpose()
    }

    /// The newest delivery of each channel, with its last attempt alone.
    ///
    /// # Errors
    /// As [`Store::due_deliveries`].
    pub async fn last_deliveries(&self) -> Result<Vec<Delivery>, StoreError> {
        const ROWS: &str = select_deliveries!(
            "id IN (SELECT (SELECT o.id FROM outbox o WHERE o.channel_id = c.id ORDER BY o.id DESC LIMIT 1) FROM channels c)"
        );
        const ATTEMPTS: &str = "SELECT id, outbox_id, at_ms, took_ms, status, body, error FROM outbox_attempts WHERE id IN (
                SELECT (SELECT a.id FROM outbox_attempts a WHERE a.outbox_id = (SELECT o.id FROM outbox o WHERE o.channel_id = c.id ORDER BY o.id DESC LIMIT 1)
                    ORDER BY a.id DESC LIMIT 1) FROM channels c)";
        let (raw, attempts) = read!(self, |pool| {
            let raw = sqlx::query_as::<Db, RawDelivery>(ROWS).fetch_all(pool).await?;
            (raw, sqlx::query_as::<Db, LoggedAttempt>(ATTEMPTS).fetch_all(pool).await?)
        })?;
        let of = |id: i64| attempts.iter().filter(|attempt| attempt.outbox_id == id).cloned().collect();
        raw.into_iter()
            .map(|raw| {
                let id = raw.id;
                raw.with(of(id))
            })
            .collect()
    }
}
