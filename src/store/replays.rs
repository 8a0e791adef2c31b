//! Batches: what was proposed, by whom, where it stands, and how far it has come.
//!
//! Locks are taken in one order by everybody: messages (by id), then items, then the batch, then counters, then the trail.

use super::bulk::short_hash;
use super::messages::MessageFilter;
use super::sql_pieces::{Dialect as _, optional_text, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::digest::Agreement;
use crate::domain::message::MessageState;
use crate::domain::record::{Record, unpack_headers};
use crate::domain::replay::{BatchMove, BatchState, Expected, Forecast, ItemState, Plan, Progress, Step, Tally, Warning};
use crate::domain::stage::Candidate;

/// A batch as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub id: i64,
    pub dlq_id: i64,
    pub cluster: String,
    /// The DLQ's topic.
    pub topic: String,
    /// Raised by each change of state or plan.
    pub version: i64,
    pub created_at_ms: i64,
    /// Messages above this id were not there when it was frozen.
    pub as_of_message_id: i64,
    /// How far freezing has come, downwards; None: it is done.
    pub freeze_after: Option<i64>,
    pub submitted_at_ms: Option<i64>,
    pub approved_at_ms: Option<i64>,
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    pub verified_at_ms: Option<i64>,
    /// Items of stages up to this one may go: 0 is the canary.
    pub stage: i32,
    pub stage_since_ms: Option<i64>,
    pub quorum: u32,
    pub emergency: bool,
    pub auto_submit: bool,
    pub unproven_allowed: bool,
    /// Begins each replay id.
    pub uid: String,
    pub state: BatchState,
    /// The user's name, or "token NAME".
    pub proposer: String,
    pub proposer_folded: String,
    pub reason: String,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    /// Why it is where it is.
    pub note: Option<String>,
    pub scope: Scope,
    pub plan: Plan,
    /// None: the preflight is not through.
    pub forecast: Option<Forecast>,
    pub warnings: Vec<Warning>,
    pub digest: Option<String>,
    /// What the digest was made of.
    pub agreement: Option<Agreement>,
    pub progress: Progress,
    /// What is being prepared.
    pub step: Step,
    /// How far the step has come: the last message id, or a count.
    pub step_after: i64,
    pub tally: Tally,
    /// The pace that was agreed to, where it was lowered after; None: that of the plan.
    pub agreed_per_second: Option<u32>,
    /// When it came into its state.
    pub state_since_ms: i64,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Filter {
        /// The query string of the list of messages, as `/messages?..` takes it; for people.
        query: String,
        /// The same, parsed.
        filter: Box<MessageFilter>,
    },
    MessageIds(Vec<i64>),
}

/// A batch to be stored, in the state `draft`.
#[derive(Debug, Clone)]
pub struct NewBatch {
    pub dlq_id: i64,
    pub created_at_ms: i64,
    pub as_of_message_id: i64,
    pub quorum: u32,
    pub emergency: bool,
    pub auto_submit: bool,
    pub uid: String,
    pub form_id: String,
    pub proposer: String,
    pub proposer_folded: String,
    pub reason: String,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    pub scope: Scope,
    pub plan: Plan,
}

/// Batches, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPage {
    pub items: Vec<Batch>,
    /// Pass as `before` for the following page; None on the last.
    pub next: Option<i64>,
}

/// Which batches. What is None does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchFilter {
    pub dlq_id: Option<i64>,
    pub state: Option<BatchState>,
}

/// An approval that was given.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Approval {
    pub name: String,
    pub name_folded: String,
    pub at_ms: i64,
    pub digest: String,
    pub comment: Option<String>,
}

/// A line of a batch's log.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LogLine {
    pub id: i64,
    pub at_ms: i64,
    pub actor: String,
    pub entry: String,
}

macro_rules! batch_row {
    () => {
        "SELECT b.id, b.dlq_id, d.cluster, d.topic, b.version, b.created_at_ms, b.as_of_message_id, b.freeze_after, b.submitted_at_ms, b.approved_at_ms, \
         b.started_at_ms, b.ended_at_ms, b.verified_at_ms, b.stage, b.stage_since_ms, b.quorum, b.emergency, b.auto_submit, b.unproven_allowed, b.uid, \
         b.state, b.proposer, b.proposer_folded, b.reason, b.why_now, b.incident, b.note, b.scope, b.plan, b.forecast, b.warnings, b.digest, \
         b.items, b.checked, b.sent, b.sent_unchecked, b.already_applied, b.archived, b.held, b.blocked, b.not_sent, b.confirmed_ledger, \
         b.confirmed_offset, b.returned, b.unproven, b.step, b.step_after, b.tally, b.agreement, b.agreed_per_second, b.state_since_ms FROM batches b JOIN dlqs d ON d.id = b.dlq_id "
    };
}

pub(super) use batch_row;

#[derive(sqlx::FromRow)]
pub(super) struct RawBatch {
    id: i64,
    dlq_id: i64,
    cluster: String,
    topic: String,
    version: i64,
    created_at_ms: i64,
    as_of_message_id: i64,
    freeze_after: Option<i64>,
    submitted_at_ms: Option<i64>,
    approved_at_ms: Option<i64>,
    started_at_ms: Option<i64>,
    ended_at_ms: Option<i64>,
    verified_at_ms: Option<i64>,
    stage: i32,
    stage_since_ms: Option<i64>,
    quorum: i32,
    emergency: bool,
    auto_submit: bool,
    unproven_allowed: bool,
    uid: String,
    state: String,
    proposer: String,
    proposer_folded: String,
    reason: String,
    why_now: Option<String>,
    incident: Option<String>,
    note: Option<String>,
    scope: String,
    plan: String,
    forecast: Option<String>,
    warnings: Option<String>,
    digest: Option<String>,
    items: i64,
    checked: i64,
    sent: i64,
    sent_unchecked: i64,
    already_applied: i64,
    archived: i64,
    held: i64,
    blocked: i64,
    not_sent: i64,
    confirmed_ledger: i64,
    confirmed_offset: i64,
    returned: i64,
    unproven: i64,
    step: String,
    step_after: i64,
    tally: String,
    agreement: Option<String>,
    agreed_per_second: Option<i32>,
    state_since_ms: i64,
}

fn json<T: serde::de::DeserializeOwned>(what: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::unreadable(what, text))
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain structs of numbers and texts have a JSON form")
}

impl TryFrom<RawBatch> for Batch {
    type Error = StoreError;

    fn try_from(raw: RawBatch) -> Result<Batch, StoreError> {
        Ok(Batch {
            state: raw.state.parse().map_err(|_| StoreError::unreadable("state of a replay", &raw.state))?,
            scope: json("scope of a replay", &raw.scope)?,
            plan: json("plan of a replay", &raw.plan)?,
            forecast: raw.forecast.as_deref().map(|text| json("forecast of a replay", text)).transpose()?,
            warnings: raw.warnings.as_deref().map_or(Ok(Vec::new()), |text| json("warnings of a replay", text))?,
            quorum: u32::try_from(raw.quorum).unwrap_or(1),
            step: raw.step.parse().map_err(|_| StoreError::unreadable("step of a replay", &raw.step))?,
            tally: json("tally of a replay", &raw.tally)?,
            agreement: raw.agreement.as_deref().map(|text| json("agreement of a replay", text)).transpose()?,
            agreed_per_second: raw.agreed_per_second.and_then(|pace| u32::try_from(pace).ok()),
            progress: Progress {
                items: raw.items,
                checked: raw.checked,
                sent: raw.sent,
                sent_unchecked: raw.sent_unchecked,
                already_applied: raw.already_applied,
                archived: raw.archived,
                held: raw.held,
                blocked: raw.blocked,
                not_sent: raw.not_sent,
                confirmed_ledger: raw.confirmed_ledger,
                confirmed_offset: raw.confirmed_offset,
                returned: raw.returned,
                unproven: raw.unproven,
            },
            id: raw.id,
            dlq_id: raw.dlq_id,
            cluster: raw.cluster,
            topic: raw.topic,
            version: raw.version,
            created_at_ms: raw.created_at_ms,
            as_of_message_id: raw.as_of_message_id,
            freeze_after: raw.freeze_after,
            submitted_at_ms: raw.submitted_at_ms,
            approved_at_ms: raw.approved_at_ms,
            started_at_ms: raw.started_at_ms,
            ended_at_ms: raw.ended_at_ms,
            verified_at_ms: raw.verified_at_ms,
            stage: raw.stage,
            stage_since_ms: raw.stage_since_ms,
            emergency: raw.emergency,
            auto_submit: raw.auto_submit,
            unproven_allowed: raw.unproven_allowed,
            uid: raw.uid,
            proposer: raw.proposer,
            proposer_folded: raw.proposer_folded,
            reason: raw.reason,
            why_now: raw.why_now,
            incident: raw.incident,
            note: raw.note,
            digest: raw.digest,
            step_after: raw.step_after,
            state_since_ms: raw.state_since_ms,
        })
    }
}

impl Store {
    /// One batch; None: there is none of that id.
    ///
    /// # Errors
    /// The database could not be asked, or the row holds something no version wrote.
    pub async fn batch(&self, id: i64) -> Result<Option<Batch>, StoreError> {
        const SQL: &str = concat!(batch_row!(), "WHERE b.id = $1");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawBatch>(SQL).bind(id).fetch_optional(pool).await? })?;
        raw.map(Batch::try_from).transpose()
    }

    /// The batch that a form made, for a form that is sent twice.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn batch_of_form(&self, form_id: &str) -> Result<Option<Batch>, StoreError> {
        const SQL: &str = concat!(batch_row!(), "WHERE b.form_id = $1");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawBatch>(SQL).bind(text(form_id)).fetch_optional(pool).await? })?;
        raw.map(Batch::try_from).transpose()
    }

    /// Batches, newest first: those before the id `before`, at most `limit`.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn batches(&self, filter: &BatchFilter, before: Option<i64>, limit: i64) -> Result<BatchPage, StoreError> {
        const SQL: &str = concat!(
            batch_row!(),
            "WHERE b.id < $1 AND ($2 = 0 OR b.dlq_id = $2) AND (CAST($3 AS TEXT) IS NULL OR b.state = $3) ORDER BY b.id DESC LIMIT $4"
        );
        let rows: Vec<RawBatch> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawBatch>(SQL).bind(before.unwrap_or(i64::MAX)).bind(filter.dlq_id.unwrap_or(0));
            query.bind(filter.state.map(BatchState::as_str)).bind(limit + 1).fetch_all(pool).await?
        })?;
        let mut items = rows.into_iter().map(Batch::try_from).collect::<Result<Vec<_>, _>>()?;
        let more = items.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        items.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let next = items.last().filter(|_| more).map(|batch| batch.id);
        Ok(BatchPage { items, next })
    }

    /// Who has approved a batch, in order.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn approvals(&self, batch_id: i64) -> Result<Vec<Approval>, StoreError> {
        read!(self, |pool| { sqlx::query_as::<Db, Approval>(APPROVALS).bind(batch_id).fetch_all(pool).await? })
    }

    /// The newest lines of a batch's log, newest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn batch_log(&self, batch_id: i64, limit: i64) -> Result<Vec<LogLine>, StoreError> {
        const SQL: &str = "SELECT id, at_ms, actor, entry FROM batch_log WHERE batch_id = $1 ORDER BY id DESC LIMIT $2";
        read!(self, |pool| { sqlx::query_as::<Db, LogLine>(SQL).bind(batch_id).bind(limit).fetch_all(pool).await? })
    }
}

/// The batch as it is within a transaction, locked until that ends.
///
/// # Errors
/// As [`Store::batch`].
pub async fn locked(tx: &mut Tx, id: i64) -> Result<Option<Batch>, StoreError> {
    // An update that changes nothing locks the row on both databases.
    const LOCK: &str = "UPDATE batches SET version = version WHERE id = $1";
    const SQL: &str = concat!(batch_row!(), "WHERE b.id = $1");
    let raw = in_tx!(tx, |connection| {
        sqlx::query(LOCK).bind(id).execute(&mut *connection).await?;
        sqlx::query_as::<Db, RawBatch>(SQL).bind(id).fetch_optional(&mut *connection).await?
    })?;
    raw.map(Batch::try_from).transpose()
}

/// Stores a new batch and returns its id. None: the same form made one before.
///
/// # Errors
/// The database could not be asked.
pub async fn insert(tx: &mut Tx, new: &NewBatch) -> Result<Option<i64>, StoreError> {
    const SQL: &str =
        "INSERT INTO batches (dlq_id, created_at_ms, version, as_of_message_id, freeze_after, stage, quorum, emergency, auto_submit,
            unproven_allowed, uid, form_id, state, proposer, proposer_folded, reason, why_now, incident, scope, plan, state_since_ms, step,
            step_after, tally)
         VALUES ($1, $2, 1, $3, $4, 0, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $2, $19, 0, '{}')
         ON CONFLICT (form_id) DO NOTHING RETURNING id";
    let (scope, plan) = (to_json(&new.scope), to_json(&new.plan));
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(new.dlq_id).bind(new.created_at_ms).bind(new.as_of_message_id);
        let query = query.bind(new.as_of_message_id.saturating_add(1)).bind(i32::try_from(new.quorum).unwrap_or(i32::MAX));
        let query = query.bind(new.emergency).bind(new.auto_submit).bind(false).bind(text(&new.uid)).bind(text(&new.form_id));
        let query = query.bind(BatchState::Draft.as_str()).bind(text(&new.proposer)).bind(text(&new.proposer_folded));
        let query = query.bind(text(&new.reason)).bind(optional_text(new.why_now.as_deref())).bind(optional_text(new.incident.as_deref()));
        query.bind(text(&scope)).bind(text(&plan)).bind(Step::Freezing.as_str()).fetch_optional(&mut *connection).await?
    })
}

/// How a change of state ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    To(BatchState),
    /// It is in another state by now, or another version: nothing was written.
    Not,
}

/// Moves a batch from the state and version that the caller saw, with a note that says why.
///
/// # Errors
/// The database could not be asked. A move that the machine does not know is [`Moved::Not`].
pub async fn move_batch(tx: &mut Tx, seen: &Batch, movement: BatchMove, note: Option<&str>, now_ms: i64) -> Result<Moved, StoreError> {
    const SQL: &str = "UPDATE batches SET state = $1, version = version + 1, note = $2,
            submitted_at_ms = CASE WHEN $3 = 'submit' THEN $4 ELSE submitted_at_ms END,
            approved_at_ms = CASE WHEN $3 = 'approve' THEN $4 WHEN $3 = 'reopen' THEN NULL ELSE approved_at_ms END,
            started_at_ms = CASE WHEN $3 = 'start' THEN $4 ELSE started_at_ms END,
            ended_at_ms = CASE WHEN $3 IN ('finish', 'stop', 'reject', 'expire') THEN $4 ELSE ended_at_ms END,
            verified_at_ms = CASE WHEN $3 = 'verify' THEN $4 ELSE verified_at_ms END,
            state_since_ms = $4
         WHERE id = $5 AND state = $6 AND version = $7";
    let Ok(next) = seen.state.after(movement) else { return Ok(Moved::Not) };
    let word = serde_json::to_value(movement).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
    let changed = in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(next.as_str()).bind(optional_text(note)).bind(word).bind(now_ms);
        query.bind(seen.id).bind(seen.state.as_str()).bind(seen.version).execute(&mut *connection).await?.rows_affected()
    })?;
    Ok(if changed == 1 { Moved::To(next) } else { Moved::Not })
}

/// Adds a line to a batch's log.
///
/// # Errors
/// The database could not be asked.
pub async fn log(tx: &mut Tx, batch_id: i64, at_ms: i64, actor: &str, entry: &str) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO batch_log (batch_id, at_ms, actor, entry) VALUES ($1, $2, $3, $4)";
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(at_ms).bind(text(actor)).bind(text(entry)).execute(&mut *connection).await?;
    })
}

/// Adds to a batch's progress what a transaction changed; fields are amounts to add.
///
/// # Errors
/// The database could not be asked.
pub async fn add_progress(tx: &mut Tx, batch_id: i64, add: &Progress) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET items = items + $2, checked = checked + $3, sent = sent + $4, sent_unchecked = sent_unchecked + $5,
            already_applied = already_applied + $6, archived = archived + $7, held = held + $8, blocked = blocked + $9, not_sent = not_sent + $10,
            confirmed_ledger = confirmed_ledger + $11, confirmed_offset = confirmed_offset + $12, returned = returned + $13, unproven = unproven + $14
         WHERE id = $1";
    in_tx!(tx, |connection| {
        let mut query = sqlx::query(SQL).bind(batch_id);
        for amount in [
            add.items,
            add.checked,
            add.sent,
            add.sent_unchecked,
            add.already_applied,
            add.archived,
            add.held,
            add.blocked,
            add.not_sent,
            add.confirmed_ledger,
            add.confirmed_offset,
            add.returned,
            add.unproven,
        ] {
            query = query.bind(amount);
        }
        query.execute(&mut *connection).await?;
    })
}

// ------------------------------------------------------------------------------------------------------------------ preparing

/// A message on its way into a batch, locked.
#[derive(sqlx::FromRow)]
struct Wanted {
    id: i64,
    state: String,
    origin_topic: Option<String>,
    key_hash: Option<i64>,
    /// The record key where it has no hash to be found by: it repeats a masked field.
    masked_key: Option<Vec<u8>>,
}

#[derive(serde::Serialize)]
struct NewItem {
    message_id: i64,
    key_hash: Option<i64>,
    taken_up: bool,
}

/// How messages go into a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze<'a> {
    pub batch_id: i64,
    pub dlq_id: i64,
    /// The messages of one key go in the order of their origin.
    pub by_key: bool,
    /// Only messages that came from this topic; None: from wherever.
    pub origin: Option<&'a str>,
}

/// What became of the messages of one chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frozen {
    /// Messages that are in the batch now.
    pub items: u64,
    /// Of those, in the order of their ids: the quarantined ones, which the batch is about to take up.
    pub quarantined: Vec<i64>,
    /// Messages of other live batches, by batch.
    pub elsewhere: Vec<(i64, u64)>,
    /// Messages that came from elsewhere, by topic.
    pub other_origins: Vec<(Option<String>, u64)>,
}

/// Puts messages into a batch: those of `ids` (at most some 5,000) that still wait and are in no other live batch. Locks them in the order of their ids.
///
/// # Errors
/// The database could not be asked.
pub async fn freeze(tx: &mut Tx, how: Freeze<'_>, ids: &[i64]) -> Result<Frozen, StoreError> {
    let list = rows(ids);
    let wanted: Vec<Wanted> = in_tx!(tx, |connection| {
        sqlx::query_as::<Db, Wanted>(Db::LOCK_WANTED).bind(&list).bind(how.dlq_id).fetch_all(&mut *connection).await?
    })?;
    let mut frozen = Frozen::default();
    let mut strangers: std::collections::BTreeMap<Option<String>, u64> = std::collections::BTreeMap::new();
    let mut new = Vec::with_capacity(wanted.len());
    for message in &wanted {
        if how.origin.is_some() && message.origin_topic.as_deref() != how.origin {
            *strangers.entry(message.origin_topic.clone()).or_default() += 1;
            continue;
        }
        let key_hash = message.key_hash.or_else(|| message.masked_key.as_deref().map(short_hash)).filter(|_| how.by_key);
        new.push(NewItem { message_id: message.id, key_hash, taken_up: message.state == MessageState::Quarantined.as_str() });
    }
    frozen.other_origins = strangers.into_iter().collect();
    if new.is_empty() {
        return Ok(frozen);
    }
    let list = rows(&new);
    let (inserted, elsewhere): (Vec<i64>, Vec<(i64, i64)>) = in_tx!(tx, |connection| {
        let inserted = sqlx::query_scalar::<Db, i64>(Db::ADD_ITEMS).bind(how.batch_id).bind(&list).fetch_all(&mut *connection).await?;
        let elsewhere = if inserted.len() < new.len() {
            sqlx::query_as::<Db, (i64, i64)>(Db::IN_OTHER_BATCHES).bind(how.batch_id).bind(&list).fetch_all(&mut *connection).await?
        } else {
            Vec::new()
        };
        (inserted, elsewhere)
    })?;
    frozen.items = inserted.len() as u64;
    frozen.elsewhere = elsewhere.into_iter().map(|(batch, items)| (batch, items.unsigned_abs())).collect();
    let inserted: std::collections::HashSet<i64> = inserted.into_iter().collect();
    frozen.quarantined =
        new.iter().filter(|item| item.taken_up && inserted.contains(&item.message_id)).map(|item| item.message_id).collect();
    Ok(frozen)
}

/// Where the preparation of a batch has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached<'a> {
    pub step: Step,
    pub step_after: i64,
    /// See [`Batch::freeze_after`].
    pub freeze_after: Option<i64>,
    pub tally: &'a Tally,
}

/// Stores how far the preparation has come. The caller has locked the batch.
///
/// # Errors
/// The database could not be asked.
pub async fn reach(tx: &mut Tx, batch_id: i64, reached: &Reached<'_>) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET step = $2, step_after = $3, freeze_after = $4, tally = $5 WHERE id = $1";
    let tally = to_json(reached.tally);
    in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch_id).bind(reached.step.as_str()).bind(reached.step_after).bind(reached.freeze_after);
        query.bind(text(&tally)).execute(&mut *connection).await?;
    })
}

/// What the end of the preflight stores.
#[derive(Debug, Clone, PartialEq)]
pub struct Preflighted<'a> {
    pub forecast: &'a Forecast,
    pub warnings: &'a [Warning],
    pub quorum: u32,
    /// Digest and what it is made of; None: it could not be made, and the note says why.
    pub agreement: Option<&'a Agreement>,
    pub note: Option<&'a str>,
}

/// Stores forecast, warnings and digest: the preflight is through. The pace of the plan is the one that is agreed to, also where it was lowered meanwhile.
///
/// # Errors
/// The database could not be asked.
pub async fn set_preflight(tx: &mut Tx, batch_id: i64, through: &Preflighted<'_>) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET step = $2, step_after = 0, forecast = $3, warnings = $4, quorum = $5, digest = $6, agreement = $7, note = $8, \
         agreed_per_second = NULL, version = version + 1 WHERE id = $1";
    let (forecast, warnings) = (to_json(through.forecast), to_json(&through.warnings));
    let (digest, agreement) = (through.agreement.map(Agreement::digest), through.agreement.map(to_json));
    in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch_id).bind(Step::Ready.as_str()).bind(text(&forecast)).bind(text(&warnings));
        let query = query.bind(i32::try_from(through.quorum).unwrap_or(i32::MAX)).bind(digest).bind(agreement.as_deref().map(text));
        query.bind(optional_text(through.note)).execute(&mut *connection).await?;
    })
}

/// What the proposer may still change of a draft.
#[derive(Debug, Clone, PartialEq)]
pub struct Redraft<'a> {
    pub plan: &'a Plan,
    pub why_now: Option<&'a str>,
    pub auto_submit: bool,
    pub note: Option<&'a str>,
}

/// A draft is preflighted anew, on this plan: forecast, warnings, digest and approvals go. What was counted while freezing stays.
///
/// # Errors
/// The database could not be asked.
pub async fn preflight_anew(tx: &mut Tx, batch: &Batch, draft: &Redraft<'_>) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET step = $2, step_after = 0, plan = $3, why_now = $4, auto_submit = $5, note = $6, tally = $7, forecast = NULL,
            warnings = NULL, digest = NULL, agreement = NULL, agreed_per_second = NULL, checked = sent + already_applied + archived + held + blocked + not_sent,
            stage = 0, stage_since_ms = NULL, unproven_allowed = $8, version = version + 1
         WHERE id = $1";
    const FORGET: &str = "DELETE FROM approvals WHERE batch_id = $1";
    let (plan, tally) = (to_json(draft.plan), to_json(&batch.tally.clone().anew()));
    let step = if batch.freeze_after.is_some() { Step::Freezing } else { Step::Checking };
    in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch.id).bind(step.as_str()).bind(text(&plan)).bind(optional_text(draft.why_now));
        let query = query.bind(draft.auto_submit).bind(optional_text(draft.note)).bind(text(&tally)).bind(false);
        query.execute(&mut *connection).await?;
        sqlx::query(FORGET).bind(batch.id).execute(&mut *connection).await?;
    })
}

/// Stores a plan. The caller has locked the batch, and stores a digest of it in the same transaction.
///
/// # Errors
/// The database could not be asked.
pub async fn set_plan(tx: &mut Tx, batch_id: i64, plan: &Plan) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET plan = $2 WHERE id = $1";
    let plan = to_json(plan);
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(text(&plan)).execute(&mut *connection).await?;
    })
}

/// Stores why now, for a draft that was only waiting for it; the digest changes with it.
///
/// # Errors
/// The database could not be asked.
pub async fn set_why_now(tx: &mut Tx, batch_id: i64, why_now: &str, agreement: &Agreement) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET why_now = $2, digest = $3, agreement = $4, version = version + 1 WHERE id = $1";
    let stored = to_json(agreement);
    in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch_id).bind(text(why_now)).bind(agreement.digest()).bind(text(&stored));
        query.execute(&mut *connection).await?;
    })
}

/// Lowers the pace; what was agreed to is kept beside it.
///
/// # Errors
/// The database could not be asked.
pub async fn lower_pace(tx: &mut Tx, batch: &Batch, max_per_second: u32) -> Result<(), StoreError> {
    const SQL: &str =
        "UPDATE batches SET plan = $2, agreed_per_second = COALESCE(agreed_per_second, $3), version = version + 1 WHERE id = $1";
    let plan = to_json(&Plan { max_per_second, ..batch.plan.clone() });
    let agreed = i32::try_from(batch.plan.max_per_second).unwrap_or(i32::MAX);
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch.id).bind(text(&plan)).bind(agreed).execute(&mut *connection).await?;
    })
}

/// Goes on without proof that the canary was applied, or waits for it once more from now on.
///
/// # Errors
/// The database could not be asked.
pub async fn set_unproven_allowed(tx: &mut Tx, batch_id: i64, allowed: bool, now_ms: i64) -> Result<(), StoreError> {
    const SQL: &str =
        "UPDATE batches SET unproven_allowed = $2, stage_since_ms = CASE WHEN stage_since_ms IS NULL THEN NULL ELSE $3 END WHERE id = $1";
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(allowed).bind(now_ms).execute(&mut *connection).await?;
    })
}

/// Stores an approval. False: the same person gave one before.
///
/// # Errors
/// The database could not be asked.
pub async fn add_approval(tx: &mut Tx, batch_id: i64, approval: &Approval) -> Result<bool, StoreError> {
    const SQL: &str = "INSERT INTO approvals (batch_id, at_ms, name, name_folded, digest, comment) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT DO NOTHING";
    let added = in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch_id).bind(approval.at_ms).bind(text(&approval.name)).bind(text(&approval.name_folded));
        let query = query.bind(text(&approval.digest)).bind(optional_text(approval.comment.as_deref()));
        query.execute(&mut *connection).await?.rows_affected()
    })?;
    Ok(added == 1)
}

/// Who has approved a batch, within a transaction; see [`Store::approvals`].
///
/// # Errors
/// The database could not be asked.
pub async fn approvals(tx: &mut Tx, batch_id: i64) -> Result<Vec<Approval>, StoreError> {
    in_tx!(tx, |connection| { sqlx::query_as::<Db, Approval>(APPROVALS).bind(batch_id).fetch_all(&mut *connection).await? })
}

const APPROVALS: &str = "SELECT name, name_folded, at_ms, digest, comment FROM approvals WHERE batch_id = $1 ORDER BY at_ms, name_folded";

/// The second look at an emergency replay.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct EmergencyReview {
    pub at_ms: i64,
    pub name: String,
    pub name_folded: String,
    pub comment: String,
}

/// Stores the look of a second person. False: somebody looked before.
///
/// # Errors
/// The database could not be asked.
pub async fn add_emergency_review(tx: &mut Tx, batch_id: i64, review: &EmergencyReview) -> Result<bool, StoreError> {
    const SQL: &str =
        "INSERT INTO emergency_reviews (batch_id, at_ms, name, name_folded, comment) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let added = in_tx!(tx, |connection| {
        let query = sqlx::query(SQL).bind(batch_id).bind(review.at_ms).bind(text(&review.name)).bind(text(&review.name_folded));
        query.bind(text(&review.comment)).execute(&mut *connection).await?.rows_affected()
    })?;
    Ok(added == 1)
}

/// How many emergency replays of a DLQ were approved at `from_ms` or later. In a transaction that holds the DLQ's row, so that two at once are counted
/// one after the other.
///
/// # Errors
/// The database could not be asked.
pub async fn emergencies_since(tx: &mut Tx, dlq_id: i64, from_ms: i64) -> Result<i64, StoreError> {
    // Locks on both databases, as in [`locked`].
    const LOCK: &str = "UPDATE dlqs SET owner = owner WHERE id = $1";
    const SQL: &str = "SELECT COUNT(*) FROM batches WHERE dlq_id = $1 AND emergency AND approved_at_ms >= $2";
    in_tx!(tx, |connection| {
        sqlx::query(LOCK).bind(dlq_id).execute(&mut *connection).await?;
        sqlx::query_scalar::<Db, i64>(SQL).bind(dlq_id).bind(from_ms).fetch_one(&mut *connection).await?
    })
}

/// A message as the checks need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToCheck {
    pub message_id: i64,
    /// None: its bytes were purged.
    pub record: Option<Record>,
    pub origin_at_ms: Option<i64>,
    pub timestamp_suspect: bool,
    pub lap: i32,
    pub origin_topic: Option<String>,
    pub origin_partition: Option<i32>,
}

#[derive(sqlx::FromRow)]
struct RawToCheck {
    id: i64,
    topic: String,
    partition: i32,
    record_offset: i64,
    record_at_ms: Option<i64>,
    record_key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Option<Vec<u8>>,
    origin_at_ms: Option<i64>,
    timestamp_suspect: bool,
    lap: i32,
    origin_topic: Option<String>,
    origin_partition: Option<i32>,
}

impl TryFrom<RawToCheck> for ToCheck {
    type Error = StoreError;

    fn try_from(raw: RawToCheck) -> Result<ToCheck, StoreError> {
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
        Ok(ToCheck {
            message_id: raw.id,
            record,
            origin_at_ms: raw.origin_at_ms,
            timestamp_suspect: raw.timestamp_suspect,
            lap: raw.lap,
            origin_topic: raw.origin_topic,
            origin_partition: raw.origin_partition,
        })
    }
}

/// What the preflight expects of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemForecast<'a> {
    pub message_id: i64,
    pub expected: Expected,
    pub note: Option<&'a str>,
}

#[derive(serde::Serialize)]
struct ForecastRow {
    message_id: i64,
    forecast: &'static str,
    note: Option<String>,
}

/// Stores what the preflight expects of items, and that it is not known yet when they go (`staged`: they all go at once). Of ids in `(after, upto]`
/// that have ended before (a halted batch that is preflighted anew) the forecast is how they ended: so it shows what stands in the way of what follows, and
/// they are no part of what execution finds otherwise than was approved.
///
/// # Errors
/// The database could not be asked.
pub async fn set_forecasts(
    tx: &mut Tx,
    batch_id: i64,
    (after, upto): (i64, i64),
    items: &[ItemForecast<'_>],
    staged: bool,
) -> Result<(), StoreError> {
    // What is in doubt keeps its forecast: before anything else goes it is known how that ended.
    macro_rules! as_ended {
        () => {
            "CASE state WHEN 'sent' THEN CASE WHEN unchecked THEN 'send_unchecked' ELSE 'send' END WHEN 'already_applied' THEN 'already_applied'
                WHEN 'archived' THEN CASE WHEN forecast = 'unsafe' THEN 'unsafe' ELSE 'incompatible' END ELSE 'held' END"
        };
    }
    const ENDED: &str = concat!(
        "UPDATE replay_items SET forecast = ",
        as_ended!(),
        " WHERE batch_id = $1 AND message_id > $2 AND message_id <= $3 AND state NOT IN ('pending', 'intended') AND (forecast IS NULL OR forecast <> ",
        as_ended!(),
        ")"
    );
    let row = |item: &ItemForecast<'_>| ForecastRow {
        message_id: item.message_id,
        forecast: item.expected.as_str(),
        note: item.note.map(|note| text(note).into_owned()),
    };
    let list: Vec<ForecastRow> = items.iter().map(row).collect();
    let list = rows(&list);
    in_tx!(tx, |connection| {
        sqlx::query(Db::SET_FORECASTS).bind(batch_id).bind(&list).bind(if staged { 0_i32 } else { -1 }).execute(&mut *connection).await?;
        sqlx::query(ENDED).bind(batch_id).bind(after).bind(upto).execute(&mut *connection).await?;
    })
}

/// Items that an earlier one of their key stands in the way of, among the ids in `(after, upto]`: they are expected to be blocked. To be asked once all
/// items are looked at; the order of the chunks does not matter, since what stands in the way first never is in anything's way itself.
///
/// # Errors
/// The database could not be asked.
pub async fn expect_blocked(tx: &mut Tx, batch_id: i64, (after, upto): (i64, i64)) -> Result<(), StoreError> {
    macro_rules! earlier {
        () => {
            "FROM replay_items e WHERE e.batch_id = replay_items.batch_id AND e.key_hash = replay_items.key_hash
                AND e.key_hash IS NOT NULL AND e.forecast IN ('held', 'incompatible', 'unsafe')
                AND (e.place, e.message_id) < (replay_items.place, replay_items.message_id)"
        };
    }
    const SQL: &str = concat!(
        "UPDATE replay_items SET forecast = 'blocked', blocked_by = (SELECT e.message_id ",
        earlier!(),
        " ORDER BY e.place, e.message_id LIMIT 1)
         WHERE batch_id = $1 AND message_id > $2 AND message_id <= $3 AND state = 'pending' AND key_hash IS NOT NULL AND EXISTS (SELECT 1 ",
        earlier!(),
        ")"
    );
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(after).bind(upto).execute(&mut *connection).await?;
    })
}

/// Puts pending items into a step of the ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Staged {
    pub message_id: i64,
    pub stage: i32,
}

/// Stores at which step items go. At most some 5,000.
///
/// # Errors
/// The database could not be asked.
pub async fn set_stages(tx: &mut Tx, batch_id: i64, items: &[Staged]) -> Result<(), StoreError> {
    let list = rows(items);
    in_tx!(tx, |connection| {
        sqlx::query(Db::SET_STAGES).bind(batch_id).bind(&list).execute(&mut *connection).await?;
    })
}

/// Items of a batch that are given back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    pub items: u64,
    /// Whether more may be left. Somebody else may have given back what was looked at here, so `items` says nothing of that.
    pub more: bool,
    /// Of those, the messages that the batch had taken up.
    pub taken_up: Vec<i64>,
}

/// Ends at most `limit` pending items of a batch that is over: their messages are free for another. Locks the messages first, in the order of their ids.
///
/// # Errors
/// The database could not be asked.
pub async fn release(tx: &mut Tx, batch_id: i64, limit: i64, note: &str, now_ms: i64) -> Result<Released, StoreError> {
    const PICK: &str = "SELECT message_id FROM replay_items WHERE batch_id = $1 AND state = 'pending' ORDER BY message_id LIMIT $2";
    let (looked_at, released): (usize, Vec<(i64, bool)>) = in_tx!(tx, |connection| {
        let ids = sqlx::query_scalar::<Db, i64>(PICK).bind(batch_id).bind(limit).fetch_all(&mut *connection).await?;
        let list = rows(&ids);
        sqlx::query(Db::LOCK_MESSAGES).bind(&list).execute(&mut *connection).await?;
        let query = sqlx::query_as::<Db, (i64, bool)>(Db::RELEASE_ITEMS).bind(batch_id).bind(&list).bind(text(note)).bind(now_ms);
        (ids.len(), query.bind(ItemState::NotSent.as_str()).bind(false).fetch_all(&mut *connection).await?)
    })?;
    let more = i64::try_from(looked_at).is_ok_and(|looked_at| looked_at >= limit);
    let mut taken_up: Vec<i64> = released.iter().filter(|(_, taken_up)| *taken_up).map(|(id, _)| *id).collect();
    taken_up.sort_unstable();
    Ok(Released { items: released.len() as u64, more, taken_up })
}

#[derive(sqlx::FromRow)]
struct RawCandidate {
    message_id: i64,
    key_hash: Option<i64>,
    group_id: i64,
    origin_partition: Option<i32>,
}

/// An item with a key, for the search for newer records of that key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct KeyedItem {
    pub message_id: i64,
    pub key_hash: i64,
    /// In the order of the origin.
    pub place: i64,
    /// It came from the topic that it is to be sent to.
    pub of_target: bool,
    pub origin_partition: Option<i32>,
    pub origin_offset: Option<i64>,
    pub origin_at_ms: Option<i64>,
}

impl KeyedItem {
    /// Where it stands in the topic that it is to be sent to; None: it came from another, or from a partition that is not among its `partitions`.
    pub fn in_target(&self, partitions: i32) -> Option<(i32, i64)> {
        let partition = self.origin_partition.filter(|partition| self.of_target && (0..partitions).contains(partition))?;
        Some((partition, self.origin_offset?))
    }
}

/// What the messages of a scope have in common, or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Messages that wait and are of the DLQ.
    pub messages: u64,
    /// By the topic they came from.
    pub origins: std::collections::BTreeMap<Option<String>, u64>,
    /// By the consumer group that failed.
    pub groups: std::collections::BTreeMap<Option<String>, u64>,
}

/// The next pending items by id: `$1` the batch, `$2` the id before them, `$3` how many. Cut off before anything is joined, or a planner without statistics
/// begins with all messages.
macro_rules! next_pending {
    () => {
        "(SELECT message_id FROM replay_items WHERE batch_id = $1 AND message_id > $2 AND state = 'pending' ORDER BY message_id LIMIT $3)"
    };
}

impl Store {
    /// The newest id of any message; 0: there is none.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn newest_message_id(&self) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT COALESCE(MAX(id), 0) FROM messages";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).fetch_one(pool).await? })
    }

    /// Batches of a cluster that have something left to prepare or to give back, oldest first; at most `limit`.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn batches_to_prepare(&self, cluster: &str, limit: i64) -> Result<Vec<Batch>, StoreError> {
        const SQL: &str = concat!(
            batch_row!(),
            "WHERE b.step NOT IN ('ready', 'released') AND d.cluster = $1 AND (b.state = 'draft' OR b.step = 'releasing') ORDER BY b.id LIMIT $2"
        );
        let rows: Vec<RawBatch> =
            read!(self, |pool| { sqlx::query_as::<Db, RawBatch>(SQL).bind(text(cluster)).bind(limit).fetch_all(pool).await? })?;
        rows.into_iter().map(Batch::try_from).collect()
    }

    /// Batches of a cluster that came into the state at `until_ms` or earlier; at most `limit`.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn batches_waiting_since(
        &self,
        cluster: &str,
        state: BatchState,
        until_ms: i64,
        limit: i64,
    ) -> Result<Vec<Batch>, StoreError> {
        const SQL: &str = concat!(batch_row!(), "WHERE b.state = $1 AND d.cluster = $2 AND b.state_since_ms <= $3 ORDER BY b.id LIMIT $4");
        let rows: Vec<RawBatch> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawBatch>(SQL).bind(state.as_str()).bind(text(cluster)).bind(until_ms);
            query.bind(limit).fetch_all(pool).await?
        })?;
        rows.into_iter().map(Batch::try_from).collect()
    }

    /// Emergency replays that were approved and that no second person has looked at yet, oldest first; of one DLQ or of all.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn emergencies_to_review(&self, dlq_id: Option<i64>, limit: i64) -> Result<Vec<Batch>, StoreError> {
        const SQL: &str = concat!(
            batch_row!(),
            "WHERE b.emergency AND b.approved_at_ms IS NOT NULL AND ($1 = 0 OR b.dlq_id = $1)
                AND NOT EXISTS (SELECT 1 FROM emergency_reviews r WHERE r.batch_id = b.id) ORDER BY b.id LIMIT $2"
        );
        let rows: Vec<RawBatch> =
            read!(self, |pool| { sqlx::query_as::<Db, RawBatch>(SQL).bind(dlq_id.unwrap_or(0)).bind(limit).fetch_all(pool).await? })?;
        rows.into_iter().map(Batch::try_from).collect()
    }

    /// The look of a second person at an emergency replay; None: nobody looked yet.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn emergency_review(&self, batch_id: i64) -> Result<Option<EmergencyReview>, StoreError> {
        const SQL: &str = "SELECT at_ms, name, name_folded, comment FROM emergency_reviews WHERE batch_id = $1";
        read!(self, |pool| { sqlx::query_as::<Db, EmergencyReview>(SQL).bind(batch_id).fetch_optional(pool).await? })
    }

    /// What the messages of `ids` have in common, of those that wait and are of the DLQ.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn waiting_among(&self, dlq_id: i64, ids: &[i64]) -> Result<Listed, StoreError> {
        let list = rows(ids);
        let found: Vec<(Option<String>, Option<String>, i64)> = read!(self, |pool| {
            sqlx::query_as::<Db, (Option<String>, Option<String>, i64)>(Db::WAITING_AMONG).bind(&list).bind(dlq_id).fetch_all(pool).await?
        })?;
        let mut listed = Listed::default();
        for (origin, group, count) in found {
            listed.add(origin, group, count.unsigned_abs());
        }
        Ok(listed)
    }

    /// The ids and sizes of the next pending items of a batch, by id.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn pending_after(&self, batch_id: i64, after: i64, limit: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = concat!(
            "SELECT i.message_id, m.size FROM ",
            next_pending!(),
            " i JOIN messages m ON m.id = i.message_id ORDER BY i.message_id"
        );
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).bind(batch_id).bind(after).bind(limit).fetch_all(pool).await? })
    }

    /// Messages as the checks need them, by id. Ids that are no message's are left out.
    ///
    /// # Errors
    /// The database could not be asked, or headers cannot be read back.
    pub async fn to_check(&self, ids: &[i64]) -> Result<Vec<ToCheck>, StoreError> {
        let list = rows(ids);
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawToCheck>(Db::TO_CHECK).bind(&list).fetch_all(pool).await? })?;
        raw.into_iter().map(ToCheck::try_from).collect()
    }

    /// Items that may be part of the canary, at most `limit` of the ids in `(after, upto]`: expected to be sent, and the first of their key.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn canary_candidates(&self, batch_id: i64, (after, upto): (i64, i64), limit: i64) -> Result<Vec<Candidate>, StoreError> {
        const SQL: &str = "SELECT i.message_id, i.key_hash, i.group_id, i.origin_partition FROM replay_items i
             WHERE i.batch_id = $1 AND i.message_id > $2 AND i.message_id <= $3 AND i.state = 'pending' AND i.forecast IN ('send', 'send_unchecked')
                AND (i.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM replay_items e WHERE e.batch_id = i.batch_id AND e.key_hash = i.key_hash
                    AND (e.place, e.message_id) < (i.place, i.message_id) AND e.state = 'pending'))
             ORDER BY i.message_id LIMIT $4";
        let raw = read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawCandidate>(SQL).bind(batch_id).bind(after).bind(upto);
            query.bind(limit).fetch_all(pool).await?
        })?;
        let candidate = |raw: RawCandidate| Candidate {
            message_id: raw.message_id,
            key_hash: raw.key_hash,
            group_id: raw.group_id,
            origin_partition: raw.origin_partition,
        };
        Ok(raw.into_iter().map(candidate).collect())
    }

    /// The lowest and the highest message id of a batch; None: it has no item.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn item_bounds(&self, batch_id: i64) -> Result<Option<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT (SELECT message_id FROM replay_items WHERE batch_id = $1 ORDER BY message_id LIMIT 1),
             (SELECT message_id FROM replay_items WHERE batch_id = $1 ORDER BY message_id DESC LIMIT 1)";
        let (first, last): (Option<i64>, Option<i64>) =
            read!(self, |pool| { sqlx::query_as::<Db, (Option<i64>, Option<i64>)>(SQL).bind(batch_id).fetch_one(pool).await? })?;
        Ok(first.zip(last))
    }

    /// The next pending items that no step of the ramp has yet, in the order of their origin.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn unstaged(&self, batch_id: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
        const SQL: &str = "SELECT message_id FROM replay_items WHERE batch_id = $1 AND state = 'pending' AND stage = -1
             ORDER BY place, message_id LIMIT $2";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(batch_id).bind(limit).fetch_all(pool).await? })
    }

    /// What the preflight expects of the pending items, counted. Reads all of them: once for each preflight, never on a page's path.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn forecast_of(&self, batch_id: i64) -> Result<Forecast, StoreError> {
        const SQL: &str = "SELECT forecast, COUNT(*) FROM replay_items WHERE batch_id = $1 AND state = 'pending' GROUP BY forecast";
        let counts: Vec<(Option<String>, i64)> =
            read!(self, |pool| { sqlx::query_as::<Db, (Option<String>, i64)>(SQL).bind(batch_id).fetch_all(pool).await? })?;
        let mut forecast = Forecast::default();
        for (word, count) in counts {
            let word = word.unwrap_or_default();
            let expected = Expected::ALL.into_iter().find(|expected| expected.as_str() == word);
            *forecast.of(expected.ok_or_else(|| StoreError::unreadable("forecast of an item", &word))?) += count.unsigned_abs();
        }
        Ok(forecast)
    }

    /// Ids and body hashes of the next pending items, by id: the messages' own hashes as they are now.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn pending_hashes(&self, batch_id: i64, after: i64, limit: i64) -> Result<Vec<(i64, Vec<u8>)>, StoreError> {
        const SQL: &str = concat!(
            "SELECT i.message_id, m.body_hash FROM ",
            next_pending!(),
            " i JOIN messages m ON m.id = i.message_id ORDER BY i.message_id"
        );
        read!(self, |pool| { sqlx::query_as::<Db, (i64, Vec<u8>)>(SQL).bind(batch_id).bind(after).bind(limit).fetch_all(pool).await? })
    }

    /// Whether a pending item of a batch came from another topic than this, or from one that nobody knows. Looks through them until it finds one.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn has_stranger(&self, batch_id: i64, topic: &str) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT EXISTS (SELECT 1 FROM replay_items i JOIN messages m ON m.id = i.message_id
             WHERE i.batch_id = $1 AND i.state = 'pending' AND (m.origin_topic IS NULL OR m.origin_topic <> $2))";
        read!(self, |pool| { sqlx::query_scalar::<Db, bool>(SQL).bind(batch_id).bind(text(topic)).fetch_one(pool).await? })
    }

    /// The failure groups that a batch's pending items are of; at most `limit`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn groups_of_batch(&self, batch_id: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
        // The `+ 0` keeps SQLite from walking the groups of all batches.
        const SQL: &str =
            "SELECT DISTINCT group_id + 0 AS group_id FROM replay_items WHERE batch_id = $1 AND state = 'pending' ORDER BY 1 LIMIT $2";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(batch_id).bind(limit).fetch_all(pool).await? })
    }

    /// Messages of these failure groups that were dead-lettered at `from_ms` or later, among the newest `looked_at` of each.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn arrivals_of_groups(&self, groups: &[i64], from_ms: i64, looked_at: i64) -> Result<u64, StoreError> {
        let list = rows(groups);
        let count: i64 = read!(self, |pool| {
            sqlx::query_scalar::<Db, i64>(Db::ARRIVALS_OF_GROUPS).bind(&list).bind(from_ms).bind(looked_at).fetch_one(pool).await?
        })?;
        Ok(count.unsigned_abs())
    }

    /// The items of a batch that are expected to be sent to `target` and have a key, with where they came from, by id after `after`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn keyed_items(&self, batch_id: i64, target: &str, after: i64, limit: i64) -> Result<Vec<KeyedItem>, StoreError> {
        const SQL: &str = "SELECT i.message_id, i.key_hash, i.place, m.origin_partition, m.origin_offset, m.origin_at_ms,
                CASE WHEN m.origin_topic = $4 THEN true ELSE false END AS of_target
             FROM (SELECT message_id, key_hash, place FROM replay_items WHERE batch_id = $1 AND message_id > $2 AND key_hash IS NOT NULL AND state = 'pending'
                    AND forecast IN ('send', 'send_unchecked') ORDER BY message_id LIMIT $3) i
             JOIN messages m ON m.id = i.message_id ORDER BY i.message_id";
        read!(self, |pool| {
            sqlx::query_as::<Db, KeyedItem>(SQL).bind(batch_id).bind(after).bind(limit).bind(text(target)).fetch_all(pool).await?
        })
    }
}

impl Listed {
    /// Counts messages that came from `origin` and failed in `group`.
    pub fn add(&mut self, origin: Option<String>, group: Option<String>, count: u64) {
        self.messages += count;
        *self.origins.entry(origin).or_default() += count;
        *self.groups.entry(group).or_default() += count;
    }
}
