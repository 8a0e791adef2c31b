//! What became of what was sent: proofs, returns, and what is known of consumer groups.
//!
//! Locks are taken in one order by everybody: messages (by id), then items, then the batch, then counters, then the trail.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::notify::Hint;
use super::replays::{self, Batch, RawBatch, batch_row};
use super::returns::{Link, write_links};
use super::sql_pieces::{Dialect as _, rows, text};
use super::{Store, StoreError, Tx, transitions};
use crate::domain::lifecycle::{Outcome, Proof};
use crate::domain::message::MAX_AHEAD_MS;
use crate::domain::proof::Look;
use crate::domain::replay::{BatchMove, BatchState, Progress};

pub use super::returns::VERIFICATION;

/// For so long after it was sent a dead letter is recognised by where it came from: so long it is watched that the target is still the same topic.
pub const RETURNS_KNOWN_FOR_MS: i64 = 30 * 24 * 3_600_000;

/// Rows of one transaction at most.
pub const AT_ONCE: i64 = 2_000;

/// One message in one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, sqlx::FromRow)]
pub struct ItemKey {
    pub batch_id: i64,
    pub message_id: i64,
}

/// How an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub key: ItemKey,
    /// None: it is not stored that it was sent.
    pub outcome: Option<Outcome>,
    pub proof: Option<Proof>,
}

/// An outcome that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolution {
    pub key: ItemKey,
    /// The outcome the caller saw. An item whose message has another by now is left alone.
    pub from: Outcome,
    pub from_proof: Option<Proof>,
    pub to: Outcome,
    /// What shows it; with `confirmed`.
    pub proof: Option<Proof>,
    /// The message as which it came back; with `returned`.
    pub returned_as: Option<i64>,
}

/// What was resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    pub items: u64,
    /// For [`Store::changed`], after the commit.
    pub hints: Vec<Hint>,
}

#[derive(serde::Serialize)]
struct NewOutcome {
    batch_id: i64,
    message_id: i64,
    outcome: &'static str,
    proof: Option<&'static str>,
    returned_as: Option<i64>,
}

fn outcome(word: &str) -> Result<Outcome, StoreError> {
    Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == word).ok_or_else(|| StoreError::unreadable("outcome", word))
}

fn proof(word: &str) -> Result<Proof, StoreError> {
    [Proof::Ledger, Proof::Offset].into_iter().find(|proof| proof.as_str() == word).ok_or_else(|| StoreError::unreadable("proof", word))
}

/// Locks the messages of items, in the order of their ids, and says how the items stand: until the transaction ends nobody changes their outcomes.
pub(super) async fn lock_items(tx: &mut Tx, items: &[ItemKey]) -> Result<Vec<Standing>, StoreError> {
    let ids: Vec<i64> = items.iter().map(|item| item.message_id).collect();
    let found: Vec<(i64, i64, Option<String>, Option<String>)> = in_tx!(tx, |connection| {
        sqlx::query(Db::LOCK_MESSAGES).bind(rows(&ids)).execute(&mut *connection).await?;
        sqlx::query_as::<Db, (i64, i64, Option<String>, Option<String>)>(Db::ITEM_OUTCOMES)
            .bind(rows(items))
            .fetch_all(&mut *connection)
            .await?
    })?;
    found
        .into_iter()
        .map(|(batch_id, message_id, of, by)| {
            let (outcome, proof) = (of.as_deref().map(outcome).transpose()?, by.as_deref().map(proof).transpose()?);
            Ok(Standing { key: ItemKey { batch_id, message_id }, outcome, proof })
        })
        .collect()
}

/// Changes outcomes: of messages, items, progress and counters. At most some 5,000 a call.
///
/// # Errors
/// The database could not be asked, or one outcome may not become the other: nothing was written.
pub async fn resolve(tx: &mut Tx, resolutions: &[Resolution], now_ms: i64) -> Result<Resolved, StoreError> {
    if resolutions.is_empty() {
        return Ok(Resolved::default());
    }
    let wanted: Vec<(i64, Outcome, Outcome)> = resolutions.iter().map(|item| (item.key.message_id, item.from, item.to)).collect();
    let set: HashSet<i64> = transitions::set_outcomes(tx, &wanted).await?.into_iter().collect();
    let mut seen = HashSet::new();
    let done: Vec<&Resolution> =
        resolutions.iter().filter(|item| set.contains(&item.key.message_id) && seen.insert(item.key.message_id)).collect();
    if done.is_empty() {
        return Ok(Resolved::default());
    }
    let outcomes: Vec<NewOutcome> = done
        .iter()
        .map(|item| NewOutcome {
            batch_id: item.key.batch_id,
            message_id: item.key.message_id,
            outcome: item.to.as_str(),
            proof: item.proof.map(Proof::as_str),
            returned_as: item.returned_as,
        })
        .collect();
    let changed: Vec<(i64, i64)> = in_tx!(tx, |connection| {
        sqlx::query(Db::RESOLVE_ITEMS).bind(rows(&outcomes)).bind(now_ms).execute(&mut *connection).await?;
        let ids: Vec<i64> = outcomes.iter().map(|item| item.message_id).collect();
        sqlx::query_as::<Db, (i64, i64)>(Db::PLACES_OF).bind(rows(&ids)).fetch_all(&mut *connection).await?
    })?;
    for (batch_id, progress) in progress(&done) {
        replays::add_progress(tx, batch_id, &progress).await?;
    }
    let hints: BTreeSet<Hint> = changed.into_iter().flat_map(|(dlq_id, group_id)| [Hint::Dlq(dlq_id), Hint::Group(group_id)]).collect();
    Ok(Resolved { items: done.len() as u64, hints: hints.into_iter().collect() })
}

/// What the resolutions add to each batch's progress, in the order of their ids.
fn progress(done: &[&Resolution]) -> BTreeMap<i64, Progress> {
    let mut sums: BTreeMap<i64, Progress> = BTreeMap::new();
    for item in done {
        let sum = sums.entry(item.key.batch_id).or_default();
        if let Some(before) = place(sum, item.from, item.from_proof) {
            *before -= 1;
        }
        if let Some(after) = place(sum, item.to, item.proof) {
            *after += 1;
        }
    }
    sums
}

fn place(progress: &mut Progress, outcome: Outcome, proof: Option<Proof>) -> Option<&mut i64> {
    match (outcome, proof) {
        (Outcome::Pending, _) => None,
        (Outcome::Confirmed, Some(Proof::Ledger)) => Some(&mut progress.confirmed_ledger),
        (Outcome::Confirmed, _) => Some(&mut progress.confirmed_offset),
        (Outcome::Returned, _) => Some(&mut progress.returned),
        (Outcome::Unproven, _) => Some(&mut progress.unproven),
    }
}

/// A pending item that came back before it was stored that it was sent.
#[derive(sqlx::FromRow)]
struct CameBack {
    message_id: i64,
    returned_as: i64,
    lap: i32,
}

/// Joins pending items of a batch with what has come back since, at most [`AT_ONCE`]. To be called after intake's positions were read, and before anything is
/// confirmed: a take-in stores its traces together with its positions.
///
/// # Errors
/// The database could not be asked.
pub async fn recover_returns(tx: &mut Tx, batch: &Batch, now_ms: i64) -> Result<Resolved, StoreError> {
    const NOTED: &str = "SELECT i.message_id, i.returned_as, m.lap FROM replay_items i JOIN messages m ON m.id = i.message_id
         WHERE i.batch_id = $1 AND i.outcome = 'pending' AND i.returned_as IS NOT NULL LIMIT $2";
    const TRACED: &str = "SELECT i.message_id, MIN(t.message_id) AS returned_as, o.lap FROM return_traces t
            JOIN replay_items i ON i.batch_id = $1 AND i.target_partition = t.partition AND i.sent_offset = t.\"offset\"
            JOIN batches b ON b.id = i.batch_id
            JOIN messages m ON m.id = t.message_id
            JOIN messages o ON o.id = i.message_id
         WHERE t.dlq_id = $2 AND t.topic IN ($3, $4) AND i.outcome = 'pending' AND m.dead_lettered_at_ms + $5 >= i.intended_at_ms
            AND (b.replaced_at_ms IS NULL OR m.dead_lettered_at_ms < b.replaced_at_ms)
         GROUP BY i.message_id, o.lap LIMIT $6";
    let found: Vec<CameBack> = in_tx!(tx, |connection| {
        let noted = sqlx::query_as::<Db, CameBack>(NOTED).bind(batch.id).bind(AT_ONCE).fetch_all(&mut *connection).await?;
        let query = sqlx::query_as::<Db, CameBack>(TRACED).bind(batch.id).bind(batch.dlq_id).bind(text(&batch.plan.target));
        let query = query.bind(text(batch.plan.target_id.as_deref().unwrap_or(&batch.plan.target))).bind(MAX_AHEAD_MS).bind(AT_ONCE);
        let traced = query.fetch_all(&mut *connection).await?;
        noted.into_iter().chain(traced).collect()
    })?;
    if found.is_empty() {
        return Ok(Resolved::default());
    }
    // Both ends of each link at once: what came back may be another batch's by now, and that is locked after its messages, too.
    let ids: Vec<i64> = found.iter().flat_map(|item| [item.message_id, item.returned_as]).collect();
    transitions::lock(tx, &ids).await?;
    let links: Vec<Link> =
        found.iter().map(|item| Link { id: item.returned_as, replay_of: item.message_id, lap: item.lap.saturating_add(1) }).collect();
    let resolutions: Vec<Resolution> = found
        .iter()
        .map(|item| Resolution {
            key: ItemKey { batch_id: batch.id, message_id: item.message_id },
            from: Outcome::Pending,
            from_proof: None,
            to: Outcome::Returned,
            proof: None,
            returned_as: Some(item.returned_as),
        })
        .collect();
    let resolved = resolve(tx, &resolutions, now_ms).await?;
    write_links(tx, &links).await?;
    Ok(resolved)
}

/// A group's commits in one topic, as they were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLooks {
    pub group: String,
    /// Kafka's id of the topic; its name only where the broker gives none. A topic that is made again under its name begins anew: what was gone over in the
    /// one says nothing of the other.
    pub topic: String,
    /// By partition.
    pub looks: BTreeMap<i32, Look>,
}

#[derive(serde::Serialize)]
struct NewLook<'a> {
    cluster: std::borrow::Cow<'a, str>,
    consumer_group: std::borrow::Cow<'a, str>,
    topic: std::borrow::Cow<'a, str>,
    partition: i32,
    at_ms: i64,
    committed: Option<i64>,
    passed_from: Option<i64>,
    members: String,
}

/// Replaces what is known of groups, unless something newer is stored.
///
/// # Errors
/// The database could not be asked.
pub async fn save_looks(tx: &mut Tx, cluster: &str, at_ms: i64, of: &GroupLooks) -> Result<(), StoreError> {
    let looks: Vec<NewLook<'_>> = of
        .looks
        .iter()
        .map(|(partition, look)| NewLook {
            cluster: text(cluster),
            consumer_group: text(&of.group),
            topic: text(&of.topic),
            partition: *partition,
            at_ms,
            committed: look.committed,
            passed_from: look.passed_from,
            members: text(&rows(&look.members.iter().collect::<Vec<_>>())).into_owned(),
        })
        .collect();
    in_tx!(tx, |connection| {
        sqlx::query(Db::SAVE_LOOKS).bind(rows(&looks)).execute(&mut *connection).await?;
    })
}

#[derive(serde::Serialize)]
struct Stretch {
    partition: i32,
    from_offset: i64,
    to_offset: i64,
}

/// Notes which pending items of a batch its group has passed, at most `limit`. Returns how many; call again while it returns that many.
///
/// # Errors
/// The database could not be asked.
pub async fn mark_passed(tx: &mut Tx, batch_id: i64, looks: &BTreeMap<i32, Look>, at_ms: i64, limit: i64) -> Result<u64, StoreError> {
    let stretches: Vec<Stretch> = looks
        .iter()
        .filter_map(|(partition, look)| {
            let passed = look.passed()?;
            Some(Stretch { partition: *partition, from_offset: passed.start, to_offset: passed.end })
        })
        .collect();
    if stretches.is_empty() {
        return Ok(0);
    }
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(Db::PASSED_ITEMS).bind(batch_id).bind(rows(&stretches)).bind(limit);
        let list = rows(&query.fetch_all(&mut *connection).await?);
        // As everybody does before the items: a take-in may be learning right now that some of these came back.
        sqlx::query(Db::LOCK_MESSAGES).bind(&list).execute(&mut *connection).await?;
        sqlx::query(Db::MARK_PASSED).bind(batch_id).bind(&list).bind(at_ms).execute(&mut *connection).await?.rows_affected()
    })
}

/// Notes that the topic a batch sent to is another one by now.
///
/// # Errors
/// The database could not be asked.
pub async fn mark_replaced(tx: &mut Tx, batch_id: i64, now_ms: i64) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE batches SET replaced_at_ms = $2 WHERE id = $1 AND replaced_at_ms IS NULL";
    in_tx!(tx, |connection| {
        sqlx::query(SQL).bind(batch_id).bind(now_ms).execute(&mut *connection).await?;
    })
}

/// Ends the verification of a batch of which nothing is open any more: one that is executed becomes verified, one that was stopped says since when it is.
/// False: something is open, or it is in no state to end in.
///
/// # Errors
/// The database could not be asked.
pub async fn finish(tx: &mut Tx, batch_id: i64, now_ms: i64) -> Result<bool, StoreError> {
    const OPEN: &str = "SELECT 1 WHERE EXISTS (SELECT 1 FROM replay_items WHERE batch_id = $1 AND outcome = 'pending')
            OR EXISTS (SELECT 1 FROM replay_items WHERE batch_id = $1 AND state = 'intended')";
    const VERIFIED: &str = "UPDATE batches SET verified_at_ms = $2, version = version + 1 WHERE id = $1 AND verified_at_ms IS NULL";
    let Some(batch) = replays::locked(tx, batch_id).await?.filter(|batch| batch.verified_at_ms.is_none()) else { return Ok(false) };
    let is_end = matches!(batch.state, BatchState::Cancelled | BatchState::Rejected | BatchState::Expired);
    if !is_end && batch.state != BatchState::Executed {
        return Ok(false);
    }
    let open: Option<i32> =
        in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i32>(OPEN).bind(batch_id).fetch_optional(&mut *connection).await? })?;
    if open.is_some() {
        return Ok(false);
    }
    if is_end {
        in_tx!(tx, |connection| {
            sqlx::query(VERIFIED).bind(batch_id).bind(now_ms).execute(&mut *connection).await?;
        })?;
    } else {
        replays::move_batch(tx, &batch, BatchMove::Verify, batch.note.as_deref(), now_ms).await?;
    }
    replays::log(tx, batch_id, now_ms, VERIFICATION, &ended(&batch.progress)).await?;
    Ok(true)
}

fn ended(progress: &Progress) -> String {
    let Progress { sent, confirmed_ledger, confirmed_offset, returned, unproven, .. } = progress;
    let confirmed = confirmed_ledger + confirmed_offset;
    format!("verified: of {sent} sent {confirmed} confirmed ({confirmed_ledger} by ledger), {returned} returned, {unproven} not confirmed")
}

/// A batch that had messages of a failure group, as its page lists it. The counts are the whole batch's.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct EarlierReplay {
    pub id: i64,
    pub state: String,
    pub created_at_ms: i64,
    /// None: it never began.
    pub started_at_ms: Option<i64>,
    pub proposer: String,
    pub sent: i64,
    pub confirmed: i64,
    pub returned: i64,
    pub unproven: i64,
}

impl Store {
    /// Batches of a cluster that may have something to verify, now or soon, in order: the live ones, whose group is looked at before they send, and all
    /// that have sent and are not verified.
    ///
    /// # Errors
    /// As [`Store::batch`].
    pub async fn batches_to_verify(&self, cluster: &str) -> Result<Vec<Batch>, StoreError> {
        const SQL: &str = concat!(
            batch_row!(),
            "WHERE d.cluster = $1 AND ((b.started_at_ms IS NOT NULL AND b.verified_at_ms IS NULL)
                OR b.state IN ('draft', 'awaiting_approval', 'approved', 'executing', 'paused', 'halted')) ORDER BY b.id"
        );
        let raw: Vec<RawBatch> = read!(self, |pool| { sqlx::query_as::<Db, RawBatch>(SQL).bind(text(cluster)).fetch_all(pool).await? })?;
        raw.into_iter().map(Batch::try_from).collect()
    }

    /// Batches whose target is not known to be replaced, of those that began at `from_ms` or later: (id, target, Kafka's id of it).
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn targets_sent_to(&self, cluster: &str, from_ms: i64) -> Result<Vec<(i64, String, String)>, StoreError> {
        read!(self, |pool| {
            sqlx::query_as::<Db, (i64, String, String)>(Db::TARGETS_SENT_TO).bind(text(cluster)).bind(from_ms).fetch_all(pool).await?
        })
    }

    /// What is known of a group's commits in a topic, named as in [`GroupLooks`].
    ///
    /// # Errors
    /// The database could not be asked, or a list of members cannot be read back.
    pub async fn group_looks(&self, cluster: &str, group: &str, topic: &str) -> Result<BTreeMap<i32, Look>, StoreError> {
        const SQL: &str =
            "SELECT partition, committed, passed_from, members FROM group_looks WHERE cluster = $1 AND consumer_group = $2 AND topic = $3";
        let found: Vec<(i32, Option<i64>, Option<i64>, String)> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i32, Option<i64>, Option<i64>, String)>(SQL);
            query.bind(text(cluster)).bind(text(group)).bind(text(topic)).fetch_all(pool).await?
        })?;
        found
            .into_iter()
            .map(|(partition, committed, passed_from, members)| {
                let members = serde_json::from_str(&members).map_err(|_| StoreError::unreadable("members of a group", &members))?;
                Ok((partition, Look { committed, passed_from, members }))
            })
            .collect()
    }

    /// Forgets what was seen of groups before `before_ms` and not looked at since.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn forget_looks(&self, cluster: &str, before_ms: i64) -> Result<u64, StoreError> {
        const SQL: &str = "DELETE FROM group_looks WHERE cluster = $1 AND at_ms < $2";
        write_one!(self, |pool| { sqlx::query(SQL).bind(text(cluster)).bind(before_ms).execute(pool).await?.rows_affected() })
    }

    /// Forgets traces that no batch needs any more: those of DLQs of which nothing is open; only from before `before_ms`, since a batch may begin at this
    /// moment.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn forget_traces(&self, before_ms: i64, limit: i64) -> Result<u64, StoreError> {
        const SQL: &str = "DELETE FROM return_traces WHERE (dlq_id, topic, partition, \"offset\", message_id) IN (
                SELECT t.dlq_id, t.topic, t.partition, t.\"offset\", t.message_id FROM return_traces t
                WHERE t.at_ms < $1 AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.dlq_id = t.dlq_id AND b.started_at_ms IS NOT NULL AND b.verified_at_ms IS NULL)
                LIMIT $2)";
        write_one!(self, |pool| { sqlx::query(SQL).bind(before_ms).bind(limit).execute(pool).await?.rows_affected() })
    }

    /// Pending items of a batch after a message, with their sizes in bytes, in the order of their ids, at most `limit`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn unproven_after(&self, batch_id: i64, after: i64, limit: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT i.message_id, m.size FROM replay_items i JOIN messages m ON m.id = i.message_id
             WHERE i.batch_id = $1 AND i.message_id > $2 AND i.outcome = 'pending' ORDER BY i.message_id LIMIT $3";
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).bind(batch_id).bind(after).bind(limit).fetch_all(pool).await? })
    }

    /// Since when intake has read all that came into a DLQ: after the last record that was lost to it, in the topic's present life.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn nothing_lost_since(&self, dlq_id: i64) -> Result<i64, StoreError> {
        const SQL: &str = "SELECT i.started_at_ms, (SELECT MAX(g.noticed_at_ms) FROM gaps g WHERE g.dlq_id = d.id)
             FROM dlqs d JOIN incarnations i ON i.dlq_id = d.id AND i.incarnation = d.incarnation WHERE d.id = $1";
        let found: Option<(i64, Option<i64>)> =
            read!(self, |pool| { sqlx::query_as::<Db, (i64, Option<i64>)>(SQL).bind(dlq_id).fetch_optional(pool).await? })?;
        Ok(found.map_or(i64::MAX, |(began, lost)| lost.map_or(began, |lost| lost.max(began))))
    }

    /// Pending items of a batch that its group passed at `passed_by_ms` or before and that were sent after `sent_after_ms`, at most `limit`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn passed_by(&self, batch_id: i64, passed_by_ms: i64, sent_after_ms: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
        const SQL: &str = "SELECT message_id FROM replay_items
             WHERE batch_id = $1 AND outcome = 'pending' AND passed_at_ms <= $2 AND sent_at_ms > $3 LIMIT $4";
        read!(self, |pool| {
            let query = sqlx::query_scalar::<Db, i64>(SQL).bind(batch_id).bind(passed_by_ms).bind(sent_after_ms);
            query.bind(limit).fetch_all(pool).await?
        })
    }

    /// Pending items of a batch of which nothing more is waited for: sent, and where the group passed them passed, at `by_ms` or before. At most `limit`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn overdue(&self, batch_id: i64, by_ms: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
        const SQL: &str = "SELECT message_id FROM replay_items
             WHERE batch_id = $1 AND outcome = 'pending' AND sent_at_ms <= $2 AND (passed_at_ms IS NULL OR passed_at_ms <= $2) LIMIT $3";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(batch_id).bind(by_ms).bind(limit).fetch_all(pool).await? })
    }

    /// The newest batches that had messages of this failure group, at most `limit`, newest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn replays_of_group(&self, group_id: i64, limit: i64) -> Result<Vec<EarlierReplay>, StoreError> {
        // One step down the index for each batch, however many messages it has.
        const SQL: &str = "WITH RECURSIVE touched(id, n) AS (
                SELECT (SELECT MAX(batch_id) FROM replay_items WHERE group_id = $1), 1
                UNION ALL SELECT (SELECT MAX(i.batch_id) FROM replay_items i WHERE i.group_id = $1 AND i.batch_id < t.id), t.n + 1
                FROM touched t WHERE t.id IS NOT NULL AND t.n < $2)
             SELECT b.id, b.state, b.created_at_ms, b.started_at_ms, b.proposer, b.sent, b.confirmed_ledger + b.confirmed_offset AS confirmed, b.returned, b.unproven
             FROM touched t JOIN batches b ON b.id = t.id ORDER BY b.id DESC";
        read!(self, |pool| { sqlx::query_as::<Db, EarlierReplay>(SQL).bind(group_id).bind(limit).fetch_all(pool).await? })
    }
}

/// Confirms pending items, or says that they are not proven. Those that came back meanwhile stay returned.
///
/// # Errors
/// The database could not be asked.
pub async fn settle(
    tx: &mut Tx,
    batch_id: i64,
    ids: &[i64],
    to: Outcome,
    proof: Option<Proof>,
    now_ms: i64,
) -> Result<Resolved, StoreError> {
    let resolution = |message_id: &i64| Resolution {
        key: ItemKey { batch_id, message_id: *message_id },
        from: Outcome::Pending,
        from_proof: None,
        to,
        proof,
        returned_as: None,
    };
    resolve(tx, &ids.iter().map(resolution).collect::<Vec<_>>(), now_ms).await
}
