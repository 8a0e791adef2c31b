//! Reviews: what a person does to messages by hand, of one or of many, with how far it has come.
//!
//! Locks are taken in one order by everybody: messages (by id), then items, then the batch, then counters, then the review, then the trail.

use serde::{Deserialize, Serialize};

use super::messages::MessageFilter;
use super::sql_pieces::{Dialect as _, optional_text, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::access::OwnerScope;
use crate::domain::lifecycle::Move;
use crate::domain::message::MessageState;
use crate::domain::review::{ReviewAction, ReviewState};

/// Which messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Ids(Vec<i64>),
    /// All that match as of the review's maximum id; `query` is the same for people and links.
    Filter {
        filter: Box<MessageFilter>,
        query: String,
    },
    /// What that review archived and nobody touched since.
    ArchivedBy(i64),
}

/// A review as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    pub id: i64,
    pub created_at_ms: i64,
    pub version: i64,
    /// Where it concerns one DLQ.
    pub dlq_id: Option<i64>,
    /// Messages above this id were not there.
    pub as_of_message_id: i64,
    /// Messages from this id on are through, downwards.
    pub cursor: i64,
    /// When it was through with counting.
    pub ran_from_ms: Option<i64>,
    pub progress_at_ms: i64,
    pub ended_at_ms: Option<i64>,
    /// Messages that match; None: not counted yet.
    pub total: Option<i64>,
    /// While it is counted: how many so far.
    pub counted: i64,
    /// Messages that were looked at, and what became of them. The rest of `seen` was left alone: in a state that the action has no move for.
    pub seen: i64,
    pub changed: i64,
    pub in_replay: i64,
    pub not_theirs: i64,
    pub action: ReviewAction,
    pub state: ReviewState,
    pub actor: String,
    pub owners: OwnerScope,
    pub scope: Scope,
    pub reason: Option<String>,
    /// Some of the replays that have messages of it.
    pub replays: Vec<i64>,
}

impl Review {
    /// The version that a review begins with.
    pub const FIRST_VERSION: i64 = 1;
}

/// A review to be stored.
#[derive(Debug, Clone)]
pub struct NewReview<'a> {
    pub created_at_ms: i64,
    pub dlq_id: Option<i64>,
    pub as_of_message_id: i64,
    pub form_id: &'a str,
    pub action: ReviewAction,
    pub state: ReviewState,
    pub actor: &'a str,
    pub owners: &'a OwnerScope,
    pub scope: &'a Scope,
    pub reason: Option<&'a str>,
}

/// What a chunk did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    pub cursor: i64,
    pub state: ReviewState,
    /// Counted now.
    pub total: Option<i64>,
    pub counted: i64,
    pub seen: i64,
    pub changed: i64,
    pub in_replay: i64,
    pub not_theirs: i64,
    /// All that are known now.
    pub replays: Vec<i64>,
}

impl Advance {
    /// To that place and state, with nothing counted or changed.
    pub fn to(cursor: i64, state: ReviewState, replays: Vec<i64>) -> Advance {
        Advance { cursor, state, total: None, counted: 0, seen: 0, changed: 0, in_replay: 0, not_theirs: 0, replays }
    }
}

macro_rules! select_reviews {
    ($rest:literal) => {
        concat!(
            "SELECT id, created_at_ms, version, dlq_id, as_of_message_id, cursor, ran_from_ms, progress_at_ms, ended_at_ms, total, counted, seen, changed,
             in_replay, not_theirs, action, state, actor, owners, scope, reason, replays FROM reviews ",
            $rest
        )
    };
}

#[derive(sqlx::FromRow)]
struct RawReview {
    id: i64,
    created_at_ms: i64,
    version: i64,
    dlq_id: Option<i64>,
    as_of_message_id: i64,
    cursor: i64,
    ran_from_ms: Option<i64>,
    progress_at_ms: i64,
    ended_at_ms: Option<i64>,
    total: Option<i64>,
    counted: i64,
    seen: i64,
    changed: i64,
    in_replay: i64,
    not_theirs: i64,
    action: String,
    state: String,
    actor: String,
    owners: String,
    scope: String,
    reason: Option<String>,
    replays: Option<String>,
}

impl TryFrom<RawReview> for Review {
    type Error = StoreError;

    fn try_from(raw: RawReview) -> Result<Review, StoreError> {
        let unreadable = |what: &'static str, text: &str| StoreError::unreadable(what, text);
        let replays = raw.replays.as_deref().map(|list| serde_json::from_str(list).map_err(|_| unreadable("replays of a review", list)));
        Ok(Review {
            action: raw.action.parse().map_err(|_| unreadable("action of a review", &raw.action))?,
            state: raw.state.parse().map_err(|_| unreadable("state of a review", &raw.state))?,
            scope: serde_json::from_str(&raw.scope).map_err(|_| unreadable("scope of a review", &raw.scope))?,
            owners: OwnerScope::from_text(&raw.owners),
            replays: replays.transpose()?.unwrap_or_default(),
            id: raw.id,
            created_at_ms: raw.created_at_ms,
            version: raw.version,
            dlq_id: raw.dlq_id,
            as_of_message_id: raw.as_of_message_id,
            cursor: raw.cursor,
            ran_from_ms: raw.ran_from_ms,
            progress_at_ms: raw.progress_at_ms,
            ended_at_ms: raw.ended_at_ms,
            total: raw.total,
            counted: raw.counted,
            seen: raw.seen,
            changed: raw.changed,
            in_replay: raw.in_replay,
            not_theirs: raw.not_theirs,
            actor: raw.actor,
            reason: raw.reason,
        })
    }
}

/// Stores a review and returns its id. None: the same form made one before.
///
/// # Errors
/// The database could not be asked.
pub async fn insert(tx: &mut Tx, new: &NewReview<'_>) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "INSERT INTO reviews (created_at_ms, version, dlq_id, as_of_message_id, cursor, progress_at_ms, form_id, action, state, actor, owners,
            scope, reason)
         VALUES ($1, 1, $2, $3, $4, $1, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (form_id) DO NOTHING RETURNING id";
    let scope = serde_json::to_string(new.scope).expect("plain structs of numbers and texts have a JSON form");
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(new.created_at_ms).bind(new.dlq_id).bind(new.as_of_message_id);
        let query = query.bind(new.as_of_message_id.saturating_add(1)).bind(text(new.form_id)).bind(new.action.as_str());
        let query = query.bind(new.state.as_str()).bind(text(new.actor)).bind(new.owners.to_text()).bind(text(&scope));
        query.bind(optional_text(new.reason)).fetch_optional(&mut *connection).await?
    })
}

/// Writes down what a chunk did, if the review is still of this version and has not ended. Whether it was so.
///
/// # Errors
/// The database could not be asked.
pub async fn advance(tx: &mut Tx, id: i64, version: i64, to: &Advance, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE reviews SET version = version + 1, progress_at_ms = $3, cursor = $4, state = $5, total = COALESCE($6, total),
            counted = counted + $7, seen = seen + $8, changed = changed + $9, in_replay = in_replay + $10, not_theirs = not_theirs + $11, replays = $12,
            ran_from_ms = CASE WHEN $5 <> 'counting' AND ran_from_ms IS NULL THEN $3 ELSE ran_from_ms END,
            ended_at_ms = CASE WHEN $5 IN ('done', 'stopped') THEN $3 ELSE ended_at_ms END
         WHERE id = $1 AND version = $2 AND ended_at_ms IS NULL";
    let replays = (!to.replays.is_empty()).then(|| rows(&to.replays));
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(now_ms).bind(to.cursor).bind(to.state.as_str());
        let query = query.bind(to.total).bind(to.counted).bind(to.seen).bind(to.changed).bind(to.in_replay).bind(to.not_theirs);
        query.bind(replays).execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Which replays have which of these messages, as (message, batch). Lock the messages first: who puts one into a batch does so, too.
///
/// # Errors
/// The database could not be asked.
pub async fn in_live_replays(tx: &mut Tx, message_ids: &[i64]) -> Result<Vec<(i64, i64)>, StoreError> {
    in_tx!(tx, |connection| { sqlx::query_as::<Db, (i64, i64)>(Db::LIVE_ITEMS).bind(rows(message_ids)).fetch_all(&mut *connection).await? })
}

/// What a review archived and nobody touched since, with the state before: ids before `before`, newest first.
///
/// # Errors
/// The database could not be asked.
pub async fn archived_by(tx: &mut Tx, review_id: i64, before: i64, limit: i64) -> Result<Vec<(i64, MessageState)>, StoreError> {
    const SQL: &str =
        "SELECT t.message_id, t.from_state FROM transitions t WHERE t.review_id = $1 AND t.message_id < $2 AND t.move IN ($3, $4)
            AND NOT EXISTS (SELECT 1 FROM transitions l WHERE l.message_id = t.message_id AND l.id > t.id)
         ORDER BY t.message_id DESC LIMIT $5";
    let found: Vec<(i64, String)> = in_tx!(tx, |connection| {
        let query = sqlx::query_as::<Db, (i64, String)>(SQL).bind(review_id).bind(before);
        query.bind(Move::Archived.as_str()).bind(Move::LineDrawn.as_str()).bind(limit).fetch_all(&mut *connection).await?
    })?;
    let typed = |(id, state): (i64, String)| Ok((id, state.parse().map_err(|_| StoreError::unreadable("state", &state))?));
    found.into_iter().map(typed).collect()
}

/// The highest id of a message; 0 where there is none.
///
/// # Errors
/// The database could not be asked.
pub async fn newest_message(tx: &mut Tx) -> Result<i64, StoreError> {
    const SQL: &str = "SELECT id FROM messages ORDER BY id DESC LIMIT 1";
    let newest = in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(SQL).fetch_optional(&mut *connection).await? })?;
    Ok(newest.unwrap_or(0))
}

impl Store {
    /// The replay that has a message and has not ended.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn live_replay_of(&self, message_id: i64) -> Result<Option<i64>, StoreError> {
        const SQL: &str = "SELECT batch_id FROM replay_items WHERE message_id = $1 AND live";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(message_id).fetch_optional(pool).await? })
    }

    /// One review; None: there is none of that id.
    ///
    /// # Errors
    /// The database could not be asked, or the row holds something no version wrote.
    pub async fn review(&self, id: i64) -> Result<Option<Review>, StoreError> {
        const SQL: &str = select_reviews!("WHERE id = $1");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawReview>(SQL).bind(id).fetch_optional(pool).await? })?;
        raw.map(Review::try_from).transpose()
    }

    /// The review that a form made, for a form that is sent twice.
    ///
    /// # Errors
    /// As [`Store::review`].
    pub async fn review_of_form(&self, form_id: &str) -> Result<Option<Review>, StoreError> {
        const SQL: &str = select_reviews!("WHERE form_id = $1");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawReview>(SQL).bind(text(form_id)).fetch_optional(pool).await? })?;
        raw.map(Review::try_from).transpose()
    }

    /// Reviews that have not ended, oldest first; some of them, where they are many.
    ///
    /// # Errors
    /// As [`Store::review`].
    pub async fn live_reviews(&self) -> Result<Vec<Review>, StoreError> {
        const SQL: &str = select_reviews!("WHERE ended_at_ms IS NULL ORDER BY id LIMIT 20");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawReview>(SQL).fetch_all(pool).await? })?;
        raw.into_iter().map(Review::try_from).collect()
    }

    /// Reviews, newest first: those of all that match in one DLQ, or every one.
    ///
    /// # Errors
    /// As [`Store::review`].
    pub async fn reviews(&self, dlq_id: Option<i64>, before: Option<i64>, limit: i64) -> Result<Vec<Review>, StoreError> {
        const OF_DLQ: &str = select_reviews!("WHERE dlq_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3");
        const ALL: &str = select_reviews!("WHERE $1 = 0 AND id < $2 ORDER BY id DESC LIMIT $3");
        let sql = if dlq_id.is_some() { OF_DLQ } else { ALL };
        let raw = read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawReview>(sql).bind(dlq_id.unwrap_or(0)).bind(before.unwrap_or(i64::MAX));
            query.bind(limit).fetch_all(pool).await?
        })?;
        raw.into_iter().map(Review::try_from).collect()
    }
}
