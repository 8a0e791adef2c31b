//! Whose a batch is, and what everybody who changes one does: look, lock, tell the log and the trail.

use super::{ReplayError, Replays};
use crate::domain::access::OwnerScope;
use crate::domain::audit::{Action, By, Event};
use crate::domain::replay::{BatchMove, Step};
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, Moved, Reached};
use crate::store::{Tx, audit};

/// A batch in the trail.
pub(super) fn subject(batch_id: i64) -> String {
    format!("replay {batch_id}")
}

/// What a batch calls itself where nobody else acts.
pub(super) fn itself(batch_id: i64) -> By {
    By { actor: subject(batch_id), request_id: None }
}

impl Replays {
    /// # Errors
    /// There is no such batch.
    pub(super) async fn batch(&self, batch_id: i64) -> Result<Batch, ReplayError> {
        self.store.batch(batch_id).await?.ok_or(ReplayError::NotFound(batch_id))
    }

    /// The batch as it is within the transaction, locked.
    pub(super) async fn lock(&self, tx: &mut Tx, batch_id: i64) -> Result<Batch, ReplayError> {
        replays::locked(tx, batch_id).await?.ok_or(ReplayError::NotFound(batch_id))
    }

    /// Whose a DLQ is: as the configuration says now, and where none of its entries covers it any more, as it said last.
    pub(super) async fn owner_of(&self, cluster: &str, topic: &str) -> Result<Option<String>, ReplayError> {
        match crate::domain::settings::settings_for(&self.dlqs, cluster, topic) {
            Some(settings) => Ok(settings.owner.clone()),
            None => Ok(self.store.dlq(cluster, topic).await?.and_then(|dlq| dlq.owner)),
        }
    }

    /// Refuses who may not act on this DLQ; that they tried is on the trail.
    pub(super) async fn in_scope(
        &self,
        by: &By,
        scope: &OwnerScope,
        (cluster, topic): (&str, &str),
        on: String,
    ) -> Result<(), ReplayError> {
        let owner = self.owner_of(cluster, topic).await?;
        if scope.covers(owner.as_deref()) {
            return Ok(());
        }
        let whose = owner.map_or_else(|| "nobody's: only who acts on all owners may act on it".to_owned(), |owner| format!("{owner}'s"));
        Err(self.refuse(by, on, format!("{topic} is {whose}, and {} does not act on it. An admin can change that.", by.actor)).await?)
    }

    /// Puts a refusal on the trail and gives it back.
    pub(super) async fn refuse(&self, by: &By, on: String, why: String) -> Result<ReplayError, ReplayError> {
        let mut event = Event::new(self.clock.now_ms(), by, Action::ReplayRefused, on);
        event.reason = Some(why.clone());
        let mut tx = self.store.begin().await?;
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(ReplayError::Forbidden(why))
    }

    /// Moves a locked batch.
    ///
    /// # Errors
    /// Its state knows no such move: somebody was faster.
    pub(super) async fn shift(&self, tx: &mut Tx, batch: &Batch, movement: BatchMove, note: Option<&str>) -> Result<(), ReplayError> {
        if let Err(error) = batch.state.after(movement) {
            return Err(ReplayError::Conflict(format!("{error}. Reload to see how it stands.")));
        }
        match replays::move_batch(tx, batch, movement, note, self.clock.now_ms()).await? {
            Moved::To(_) => Ok(()),
            Moved::Not => Err(ReplayError::Conflict(format!("replay {} changed meanwhile. Reload to see how it stands.", batch.id))),
        }
    }

    /// What is left of a batch that has ended is given back by the next ticks.
    pub(super) async fn give_back(&self, tx: &mut Tx, batch: &Batch) -> Result<(), ReplayError> {
        let reached = Reached { step: Step::Releasing, step_after: 0, freeze_after: batch.freeze_after, tally: &batch.tally };
        Ok(replays::reach(tx, batch.id, &reached).await?)
    }

    /// Ends a change: a line in the batch's log, the trail, commit, hints. Gives the batch as it is then.
    pub(super) async fn done(&self, mut tx: Tx, batch: &Batch, entry: &str, event: &Event) -> Result<Batch, ReplayError> {
        replays::log(&mut tx, batch.id, event.at_ms, &event.actor, entry).await?;
        audit::append(&mut tx, event).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(batch.dlq_id)]);
        self.batch(batch.id).await
    }
}
