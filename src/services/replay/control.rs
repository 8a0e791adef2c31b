//! Pausing, going on, stopping, slowing down.

use serde_json::json;

use super::approval::Decider;
use super::propose::reason;
use super::rights::subject;
use super::{ReplayError, Replays};
use crate::domain::access::Role;
use crate::domain::audit::{Action, Event};
use crate::domain::replay::{BatchMove, BatchState};
use crate::store::Tx;
use crate::store::replays::{self, Batch, Redraft};

impl Replays {
    /// The batch, locked, if the person may control it.
    async fn taken(&self, who: &Decider, batch_id: i64) -> Result<(Tx, Batch), ReplayError> {
        let batch = self.batch(batch_id).await?;
        if who.role < Role::Operator {
            let why = format!("this needs the role operator, and {} has the role {}", who.by.actor, who.role.as_str());
            return Err(self.refuse(&who.by, subject(batch_id), why).await?);
        }
        self.in_scope(&who.by, &who.scope, (&batch.cluster, &batch.topic), subject(batch_id)).await?;
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch_id).await?;
        Ok((tx, now))
    }

    fn event(&self, who: &Decider, action: Action, batch: &Batch, reason: Option<&str>) -> Event {
        let mut event = Event::new(self.clock.now_ms(), &who.by, action, subject(batch.id));
        event.reason = reason.map(str::to_owned);
        event.before = Some(json!({ "state": batch.state }));
        event
    }

    /// Pauses an executing batch; the executor stops within a second.
    ///
    /// # Errors
    /// It is not executing, or not in the person's scope.
    pub async fn pause(&self, who: &Decider, batch_id: i64) -> Result<Batch, ReplayError> {
        let (mut tx, now) = self.taken(who, batch_id).await?;
        let note = format!("paused by {}", who.by.actor);
        self.shift(&mut tx, &now, BatchMove::Pause, Some(&note)).await?;
        self.done(tx, &now, "paused", &self.event(who, Action::ReplayPaused, &now, None)).await
    }

    /// Goes on with a paused batch. `unproven`: although its canary is not proven; an approver only, with a reason. A halted batch, or one whose plan does not
    /// hold any more, is a conflict: it goes back to a draft by [`Replays::reopen`].
    ///
    /// # Errors
    /// As [`Replays::pause`].
    pub async fn resume(&self, who: &Decider, batch_id: i64, unproven: Option<&str>) -> Result<Batch, ReplayError> {
        let unproven = unproven.map(|why| reason("reason", why)).transpose()?;
        if unproven.is_some() && who.role < Role::Approver {
            let why = format!("going on unproven needs the role approver, and {} has the role {}", who.by.actor, who.role.as_str());
            return Err(self.refuse(&who.by, subject(batch_id), why).await?);
        }
        let seen = self.batch(batch_id).await?;
        if seen.state == BatchState::Paused
            && let Some(void) = self.changed_settings(&seen).await?.void()
        {
            let why = format!("{void} since it was approved: stop it, and propose what is left anew");
            return Err(ReplayError::Conflict(why));
        }
        let (mut tx, now) = self.taken(who, batch_id).await?;
        if now.state == BatchState::Halted {
            return Err(ReplayError::Conflict("a guard halted it: going on needs a new approval (Reopen)".to_owned()));
        }
        self.shift(&mut tx, &now, BatchMove::Resume, None).await?;
        replays::set_unproven_allowed(&mut tx, batch_id, now.unproven_allowed || unproven.is_some(), self.clock.now_ms()).await?;
        let entry = unproven.as_ref().map_or_else(|| "resumed".to_owned(), |why| format!("resumed, unproven: {why}"));
        self.done(tx, &now, &entry, &self.event(who, Action::ReplayResumed, &now, unproven.as_deref())).await
    }

    /// Stops a batch for good: what is not sent goes back to review, what was sent is still verified.
    ///
    /// # Errors
    /// As [`Replays::pause`].
    pub async fn stop(&self, who: &Decider, batch_id: i64, why: Option<&str>) -> Result<Batch, ReplayError> {
        let why = why.filter(|why| !why.trim().is_empty()).map(|why| reason("reason", why)).transpose()?;
        let (mut tx, now) = self.taken(who, batch_id).await?;
        let note = match &why {
            Some(why) => format!("stopped by {}: {why}", who.by.actor),
            None => format!("stopped by {}", who.by.actor),
        };
        self.shift(&mut tx, &now, BatchMove::Stop, Some(&note)).await?;
        self.give_back(&mut tx, &now).await?;
        let batch = self.done(tx, &now, &note, &self.event(who, Action::ReplayStopped, &now, why.as_deref())).await?;
        self.release_now(batch).await
    }

    /// A halted batch, or a proposal whose plan does not hold any more, becomes a draft again and is preflighted anew.
    ///
    /// # Errors
    /// As [`Replays::pause`]; it is an emergency replay that was begun.
    pub async fn reopen(&self, who: &Decider, batch_id: i64) -> Result<Batch, ReplayError> {
        let (mut tx, now) = self.taken(who, batch_id).await?;
        if now.emergency && now.started_at_ms.is_some() {
            // Who approved what was sent, and that a second person has to look at it, would be gone with the approval.
            let why = "an emergency replay that was begun is not approved once more: stop it, and propose what is left anew".to_owned();
            return Err(ReplayError::Conflict(why));
        }
        let note = format!("reopened by {}", who.by.actor);
        self.shift(&mut tx, &now, BatchMove::Reopen, Some(&note)).await?;
        // Its proposer, or whoever reopened it, looks at the new forecast before it is put up again.
        let redraft = Redraft { plan: &now.plan, why_now: now.why_now.as_deref(), auto_submit: false, note: Some(&note) };
        replays::preflight_anew(&mut tx, &now, &redraft).await?;
        self.done(tx, &now, "reopened", &self.event(who, Action::ReplayReopened, &now, None)).await
    }

    /// Lowers the pace. Raising it would void the approval and is refused.
    ///
    /// # Errors
    /// As [`Replays::pause`]; the pace is not lower.
    pub async fn slow_down(&self, who: &Decider, batch_id: i64, max_per_second: u32) -> Result<Batch, ReplayError> {
        let (mut tx, now) = self.taken(who, batch_id).await?;
        if !now.state.is_live() {
            return Err(ReplayError::Conflict(format!("replay {batch_id} is {}", now.state.as_str())));
        }
        let pace = now.plan.max_per_second;
        if max_per_second == 0 || max_per_second >= pace {
            let problem = format!(
                "1 to {} messages a second: faster than the {pace} that were agreed to needs a new approval",
                pace.saturating_sub(1)
            );
            return Err(ReplayError::Invalid { field: "max_per_second", problem });
        }
        replays::lower_pace(&mut tx, &now, max_per_second).await?;
        let mut event = self.event(who, Action::ReplaySlowed, &now, None);
        event.before = Some(json!({ "max_per_second": pace }));
        event.after = Some(json!({ "max_per_second": max_per_second }));
        self.done(tx, &now, &format!("slowed down from {pace} to {max_per_second} messages a second"), &event).await
    }

    /// The first chunk of giving back, at once: so a small batch is free for others when its page comes back. The job does the rest.
    pub(super) async fn release_now(&self, batch: Batch) -> Result<Batch, ReplayError> {
        self.release_chunk(&batch).await?;
        self.batch(batch.id).await
    }
}
