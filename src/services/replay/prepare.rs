//! What the job does for batches that are not executing: one chunk of the preparation of one of them, what expires, what is given back.

use std::time::Duration;

use serde_json::json;

use super::freeze::same_place;
use super::propose::Prepared;
use super::rights::{itself, subject};
use super::{ReplayError, Replays};
use crate::domain::audit::{Action, Event};
use crate::domain::lifecycle::Move;
use crate::domain::message::MessageState;
use crate::domain::replay::{BatchMove, BatchState, Progress, Step};
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, Reached};
use crate::store::transitions::{Cause, Change, move_messages};

/// Batches looked at in one go.
const LOOKED_AT: i64 = 50;
/// Items that are given back in one transaction.
const RELEASED: i64 = 2_000;

impl Replays {
    /// One chunk of freezing or preflight of a draft of a cluster, or of giving back what a batch that has ended holds; and proposals and approvals that
    /// expire. Called by the job under its lease, again at once while it says [`Prepared::More`]. Several drafts take turns, so that a large one keeps no
    /// small one waiting. The last step of a preflight asks Kafka and may take up to half a minute when that does not answer.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn prepare(&self, cluster: &str) -> Result<Prepared, ReplayError> {
        self.expire(cluster).await?;
        let waiting = self.store.batches_to_prepare(cluster, LOOKED_AT).await?;
        if waiting.is_empty() {
            return Ok(Prepared::Idle);
        }
        let turn = usize::try_from(self.clock.monotonic().as_millis() % waiting.len() as u128).unwrap_or_default();
        self.prepare_batch(&waiting[turn]).await
    }

    /// The next chunk of one batch, as it was read.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn prepare_batch(&self, batch: &Batch) -> Result<Prepared, ReplayError> {
        if batch.step == Step::Releasing {
            return self.release_chunk(batch).await;
        }
        if batch.state != BatchState::Draft {
            return Ok(Prepared::Idle);
        }
        let Some(entry) = self.entry_of(batch) else {
            return self.give_up(batch, "no [[dlq]] entry covers this DLQ any more: nothing of it can be replayed").await;
        };
        match batch.step {
            Step::Freezing => self.freeze_chunk(batch, entry).await,
            Step::Checking if batch.progress.items == 0 => self.give_up(batch, &nothing_left(batch)).await,
            Step::Checking => self.check_chunk(batch, entry).await,
            Step::Blocking => self.block_chunk(batch, entry).await,
            Step::Staging => self.stage_chunk(batch).await,
            Step::Concluding => self.conclude(batch, entry).await,
            Step::Ready | Step::Releasing | Step::Released => Ok(Prepared::Idle),
        }
    }

    /// Ends a draft that can come to nothing.
    async fn give_up(&self, batch: &Batch, why: &str) -> Result<Prepared, ReplayError> {
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if same_place(batch, &now) {
            self.shift(&mut tx, &now, BatchMove::Stop, Some(why)).await?;
            self.give_back(&mut tx, &now).await?;
            let mut event = Event::new(self.clock.now_ms(), &itself(batch.id), Action::ReplayStopped, subject(batch.id));
            event.reason = Some(why.to_owned());
            self.done(tx, &now, why, &event).await?;
        }
        Ok(Prepared::More)
    }

    /// Proposals that nobody answered in time, drafts that nobody submitted, approvals that were not used.
    async fn expire(&self, cluster: &str) -> Result<(), ReplayError> {
        let terms = &self.approval;
        let limits = [
            (BatchState::Draft, terms.proposal_ttl_s, "nobody submitted it in time"),
            (BatchState::AwaitingApproval, terms.proposal_ttl_s, "nobody answered it in time"),
            (BatchState::Approved, terms.approval_ttl_s, "its approval was not used in time"),
        ];
        for (state, ttl_s, why) in limits {
            let until_ms = self.clock.now_ms().saturating_sub(ms(ttl_s));
            for batch in self.store.batches_waiting_since(cluster, state, until_ms, LOOKED_AT).await? {
                self.expire_one(&batch, why, ttl_s).await?;
            }
        }
        Ok(())
    }

    /// Whether an approval was not used in time. What it allowed does not begin any more, also where nobody has come to end the batch yet.
    pub(super) fn approval_is_over(&self, batch: &Batch) -> bool {
        self.clock.now_ms() >= batch.state_since_ms.saturating_add(ms(self.approval.approval_ttl_s))
    }

    async fn expire_one(&self, batch: &Batch, why: &str, ttl_s: u64) -> Result<(), ReplayError> {
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if (now.state, now.state_since_ms) != (batch.state, batch.state_since_ms) {
            return Ok(());
        }
        let why = format!("{why} ({} h)", Duration::from_secs(ttl_s).as_secs() / 3_600);
        self.shift(&mut tx, &now, BatchMove::Expire, Some(&why)).await?;
        self.give_back(&mut tx, &now).await?;
        let mut event = Event::new(self.clock.now_ms(), &itself(batch.id), Action::ReplayExpired, subject(batch.id));
        event.reason = Some(why.clone());
        event.before = Some(json!({ "state": now.state }));
        self.done(tx, &now, &format!("expired: {why}"), &event).await?;
        Ok(())
    }

    /// Gives back one chunk of what a batch holds that has ended. What it had taken up itself goes back to where it was, if nothing was ever sent;
    /// else it stays under review.
    pub(super) async fn release_chunk(&self, batch: &Batch) -> Result<Prepared, ReplayError> {
        let note = batch.note.clone().unwrap_or_else(|| batch.state.as_str().to_owned());
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let released = replays::release(&mut tx, batch.id, RELEASED, &note, now_ms).await?;
        let actor = subject(batch.id);
        if batch.started_at_ms.is_none() {
            let reason = format!("replay {} is {}", batch.id, batch.state.as_str());
            let back = |id: &i64| Change {
                message_id: *id,
                from: MessageState::UnderReview,
                moves: &[Move::Released],
                reason: Some(&reason),
                evidence: None,
            };
            let changes: Vec<Change<'_>> = released.taken_up.iter().map(back).collect();
            move_messages(&mut tx, &changes, &Cause { at_ms: now_ms, actor: &actor, batch_id: Some(batch.id) }).await?;
        }
        let now = self.lock(&mut tx, batch.id).await?;
        let items = i64::try_from(released.items).unwrap_or(i64::MAX);
        if items > 0 {
            replays::add_progress(&mut tx, batch.id, &Progress { not_sent: items, ..Progress::default() }).await?;
        }
        let step = if released.more { Step::Releasing } else { Step::Released };
        // What it was freezing when it ended is of no use any more.
        replays::reach(&mut tx, batch.id, &Reached { step, step_after: 0, freeze_after: None, tally: &now.tally }).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(batch.dlq_id)]);
        Ok(Prepared::More)
    }
}

fn nothing_left(batch: &Batch) -> String {
    let mut why = "nothing to replay: no message of it waits".to_owned();
    for (other, items) in &batch.tally.elsewhere {
        why.push_str(&format!("; {items} are in replay {other}"));
    }
    let strangers: u64 = batch.tally.other_origins.values().sum();
    if strangers > 0 {
        why.push_str(&format!("; {strangers} came from other topics than {}: name a target", batch.plan.target));
    }
    why
}

/// Seconds in ms.
pub(super) fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}
