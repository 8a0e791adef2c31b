//! What the pages of replays read beside the batch itself: its items by state, a sample of them, what the checks said, what came in since.
//!
//! Each walks one index for as many rows as it shows, or looks at a bounded number of them and says so.

use super::{Store, StoreError};
use crate::domain::lifecycle::Outcome;
use crate::domain::replay::{BatchState, Expected, ItemState};

/// Which items of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemList {
    /// In the order of their messages' ids.
    All,
    State(ItemState),
    /// Of those sent.
    Outcome(Outcome),
    /// What the preflight said of it, but not [`Expected::Send`]: that is what the rest is.
    Forecast(Expected),
}

/// An item with what a line about its message shows.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ItemRow {
    pub message_id: i64,
    pub stage: i32,
    pub place: i64,
    /// A word of [`ItemState`].
    pub state: String,
    /// A word of [`Outcome`]; None: not sent.
    pub outcome: Option<String>,
    /// A word of [`crate::domain::lifecycle::Proof`].
    pub proof: Option<String>,
    pub forecast: Option<String>,
    pub note: Option<String>,
    /// The message that stands in its way.
    pub blocked_by: Option<i64>,
    /// The message as which it came back.
    pub returned_as: Option<i64>,
    pub target_partition: Option<i32>,
    pub sent_offset: Option<i64>,
    pub unchecked: bool,
    pub lap: i32,
    pub partition: i32,
    #[sqlx(rename = "record_offset")]
    pub offset: i64,
    pub business_key: Option<String>,
    /// Not where it repeats a masked field, or may.
    pub record_key: Option<Vec<u8>>,
    /// There is one that is not shown.
    pub key_masked: bool,
    pub exception_class: Option<String>,
}

/// Where a list of items goes on: the last one shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemCursor {
    pub stage: i32,
    pub place: i64,
    pub message_id: i64,
}

impl ItemCursor {
    /// Before the first.
    pub const START: ItemCursor = ItemCursor { stage: i32::MIN, place: i64::MIN, message_id: i64::MIN };
}

/// Items of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPage {
    pub items: Vec<ItemRow>,
    /// None on the last page.
    pub next: Option<ItemCursor>,
}

/// How often the preflight gave a pair of verdicts, among the items that were looked at.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct VerdictCount {
    /// A word of [`crate::domain::verdict::SchemaVerdict`].
    pub schema: String,
    /// A word of [`crate::domain::verdict::IdempotencyVerdict`].
    pub idempotency: String,
    pub count: i64,
}

/// What is left to be sent, on both sides of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct StageLeft {
    /// Items of this stage or one before it have not ended.
    pub in_stage: bool,
    /// Items of later stages wait.
    pub after_stage: bool,
}

/// A batch that is live, as other pages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenBatch {
    pub id: i64,
    pub dlq_id: i64,
    pub state: BatchState,
}

macro_rules! item_rows {
    ($where:literal) => {
        concat!(
            "SELECT i.message_id, i.stage, i.place, i.state, i.outcome, i.proof, i.forecast, i.note, i.blocked_by, i.returned_as, i.target_partition, \
             i.sent_offset, i.unchecked, i.lap, m.partition, m.record_offset, m.business_key, CASE WHEN m.key_hash IS NOT NULL THEN m.record_key END AS record_key, \
             m.record_key IS NOT NULL AND m.key_hash IS NULL AS key_masked, m.exception_class \
             FROM replay_items i JOIN messages m ON m.id = i.message_id WHERE i.batch_id = $1 ",
            $where
        )
    };
}

/// How a list is read: `$1` the batch, `$2` the message of the cursor, `$3` how many; `$4` the word that is given with it, if there is one; `$5` and `$6`
/// stage and place of the cursor, of a list by state.
pub(super) fn statement(list: ItemList) -> (&'static str, Option<&'static str>) {
    const ALL: &str = item_rows!("AND i.message_id > $2 ORDER BY i.message_id LIMIT $3");
    const OF_STATE: &str =
        item_rows!("AND i.state = $4 AND (i.stage, i.place, i.message_id) > ($5, $6, $2) ORDER BY i.stage, i.place, i.message_id LIMIT $3");
    // The partial indexes are taken only where their own conditions stand in the query, too.
    const OF_OUTCOME: &str =
        item_rows!("AND i.outcome = $4 AND i.outcome IN ('returned', 'unproven') AND i.message_id > $2 ORDER BY i.message_id LIMIT $3");
    const OF_PENDING: &str = item_rows!("AND i.outcome = $4 AND i.message_id > $2 ORDER BY i.message_id LIMIT $3");
    const OF_FORECAST: &str =
        item_rows!("AND i.forecast = $4 AND i.forecast <> 'send' AND i.message_id > $2 ORDER BY i.message_id LIMIT $3");
    match list {
        ItemList::All => (ALL, None),
        ItemList::State(state) => (OF_STATE, Some(state.as_str())),
        ItemList::Outcome(outcome @ (Outcome::Returned | Outcome::Unproven)) => (OF_OUTCOME, Some(outcome.as_str())),
        ItemList::Outcome(outcome) => (OF_PENDING, Some(outcome.as_str())),
        ItemList::Forecast(expected) => (OF_FORECAST, Some(expected.as_str())),
    }
}

impl Store {
    /// Items of a batch after `after`, at most `limit`: by state in the order in which they go, else in the order of their messages' ids.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn items_of_batch(&self, batch_id: i64, list: ItemList, after: ItemCursor, limit: i64) -> Result<ItemPage, StoreError> {
        let (sql, word) = statement(list);
        let mut items: Vec<ItemRow> = read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, ItemRow>(sql).bind(batch_id).bind(after.message_id).bind(limit.saturating_add(1));
            if let Some(word) = word {
                query = query.bind(word);
            }
            if let ItemList::State(_) = list {
                query = query.bind(after.stage).bind(after.place);
            }
            query.fetch_all(pool).await?
        })?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > most;
        items.truncate(most);
        let cursor = |item: &ItemRow| ItemCursor { stage: item.stage, place: item.place, message_id: item.message_id };
        let next = items.last().filter(|_| more).map(cursor);
        Ok(ItemPage { items, next })
    }

    /// The first item of a batch whose message has this id or a higher one; else its last. None: the batch has no item.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn item_from(&self, batch_id: i64, message_id: i64) -> Result<Option<i64>, StoreError> {
        const FROM: &str = "SELECT message_id FROM replay_items WHERE batch_id = $1 AND message_id >= $2 ORDER BY message_id LIMIT 1";
        const LAST: &str = "SELECT message_id FROM replay_items WHERE batch_id = $1 ORDER BY message_id DESC LIMIT 1";
        read!(self, |pool| {
            match sqlx::query_scalar::<Db, i64>(FROM).bind(batch_id).bind(message_id).fetch_optional(pool).await? {
                Some(id) => Some(id),
                None => sqlx::query_scalar::<Db, i64>(LAST).bind(batch_id).fetch_optional(pool).await?,
            }
        })
    }

    /// What the newest preflight said of the first `most` items, most frequent first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn verdict_counts(&self, batch_id: i64, most: i64) -> Result<Vec<VerdictCount>, StoreError> {
        const SQL: &str = "SELECT v.schema, v.idempotency, CAST(COUNT(*) AS BIGINT) AS count
             FROM (SELECT message_id FROM replay_items WHERE batch_id = $1 ORDER BY message_id LIMIT $2) i
             JOIN verdicts v ON v.id = (SELECT MAX(w.id) FROM verdicts w WHERE w.message_id = i.message_id AND w.batch_id = $1 AND w.phase = 'preflight')
             GROUP BY v.schema, v.idempotency ORDER BY 3 DESC, 1, 2";
        read!(self, |pool| { sqlx::query_as::<Db, VerdictCount>(SQL).bind(batch_id).bind(most).fetch_all(pool).await? })
    }

    /// Messages of a DLQ above an id that nobody has picked up; no more than `most` are counted.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn arrived_above(&self, dlq_id: i64, message_id: i64, most: i64) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT id FROM messages \
             WHERE dlq_id = $1 AND state = 'quarantined' AND id > $2 LIMIT $3) new_ones";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(dlq_id).bind(message_id).bind(most).fetch_one(pool).await? })
    }

    /// What is left to be sent up to a stage, and after it.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn stage_left(&self, batch_id: i64, stage: i32) -> Result<StageLeft, StoreError> {
        const SQL: &str = "SELECT
            EXISTS (SELECT 1 FROM replay_items WHERE batch_id = $1 AND state = 'pending' AND stage <= $2)
                OR EXISTS (SELECT 1 FROM replay_items WHERE batch_id = $1 AND state = 'intended') AS in_stage,
            EXISTS (SELECT 1 FROM replay_items WHERE batch_id = $1 AND state = 'pending' AND stage > $2) AS after_stage";
        read!(self, |pool| { sqlx::query_as::<Db, StageLeft>(SQL).bind(batch_id).bind(stage).fetch_one(pool).await? })
    }

    /// The batches that are live, of one DLQ or of all, oldest first.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn open_batches(&self, dlq_id: Option<i64>) -> Result<Vec<OpenBatch>, StoreError> {
        const SQL: &str = "SELECT id, dlq_id, state FROM batches \
             WHERE state IN ('draft', 'awaiting_approval', 'approved', 'executing', 'paused', 'halted') AND ($1 = 0 OR dlq_id = $1) ORDER BY id";
        let rows: Vec<(i64, i64, String)> =
            read!(self, |pool| { sqlx::query_as::<Db, (i64, i64, String)>(SQL).bind(dlq_id.unwrap_or(0)).fetch_all(pool).await? })?;
        let open = |(id, dlq_id, state): (i64, i64, String)| {
            let state = state.parse().map_err(|_| StoreError::unreadable("state of a replay", &state))?;
            Ok(OpenBatch { id, dlq_id, state })
        };
        rows.into_iter().map(open).collect()
    }
}
