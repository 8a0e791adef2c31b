//! Deciding about a proposal.
//!
//! Nobody approves their own: names are compared without letter case and look-alike forms, and a role is no way around it. A token counts as a person of its
//! own ("token NAME"), and nobody knows who holds it: tokens are made at the machine's command line alone, each is on the trail, and whoever can make them
//! can approve as another.

use serde_json::json;

use super::prepare::ms;
use super::propose::{reason, said};
use super::rights::subject;
use super::warn::emergency_fault;
use super::{ReplayError, Replays};
use crate::domain::access::{OwnerScope, Role, look_of_name};
use crate::domain::audit::{Action, By, Event};
use crate::domain::replay::{BatchMove, BatchState, Warning};
use crate::store::Tx;
use crate::store::replays::{self, Approval, Batch, EmergencyReview};

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    pub by: By,
    /// The name without letter case and look-alike forms.
    pub folded: String,
    pub role: Role,
    pub scope: OwnerScope,
}

impl Decider {
    /// Whether this is the person of that folded name. What the caller folded is not relied on.
    fn is(&self, folded: &str) -> bool {
        self.folded == folded || look_of_name(&self.by.actor) == folded
    }
}

/// Comments, in characters.
const COMMENT_CHARS: usize = 2_000;
/// Emergency replays of one DLQ in 24 hours.
const EMERGENCIES_A_DAY: i64 = 3;
const DAY_MS: i64 = 24 * 3_600_000;

impl Replays {
    /// Approves a proposal as its digest was shown. The batch starts within one tick once its quorum is there. `ticked`: the places in the batch's warnings
    /// of those that must be ticked ([`Warning::must_be_ticked`]).
    ///
    /// # Errors
    /// Forbidden: the proposer themself, in whatever letter case, or another owner's. Conflict: decided already (the text names by whom), changed since, or expired.
    pub async fn approve(
        &self,
        who: &Decider,
        batch_id: i64,
        digest: &str,
        ticked: &[usize],
        comment: Option<&str>,
    ) -> Result<Batch, ReplayError> {
        let batch = self.batch(batch_id).await?;
        self.may_decide(who, &batch).await?;
        if batch.emergency {
            let why = "an emergency replay is approved with the password given once more, on its page".to_owned();
            return Err(self.refuse(&who.by, subject(batch_id), why).await?);
        }
        if who.is(&batch.proposer_folded) {
            let why = format!("{} proposed it: another approver must look at it", batch.proposer);
            return Err(self.refuse(&who.by, subject(batch_id), why).await?);
        }
        self.grant(who, &batch, digest, ticked, comment).await
    }

    /// Approves an emergency replay: an approver alone, the proposer too, within the limits of the DLQ. The caller has just verified the person's password:
    /// a token has none, so none may.
    ///
    /// # Errors
    /// As [`Replays::approve`]; it is no emergency replay, or its limits are reached.
    pub async fn approve_emergency(
        &self,
        who: &Decider,
        batch_id: i64,
        digest: &str,
        ticked: &[usize],
        comment: Option<&str>,
    ) -> Result<Batch, ReplayError> {
        let batch = self.batch(batch_id).await?;
        self.may_decide(who, &batch).await?;
        if !batch.emergency {
            return Err(ReplayError::Conflict(format!("replay {batch_id} is no emergency replay")));
        }
        let entry = self.entry_of(&batch).ok_or_else(|| ReplayError::Conflict("no [[dlq]] entry covers this DLQ any more".to_owned()))?;
        if let Some(why) = emergency_fault(&batch, entry.terms) {
            return Err(ReplayError::Conflict(why));
        }
        self.grant(who, &batch, digest, ticked, comment).await
    }

    /// Role and owners of who decides.
    async fn may_decide(&self, who: &Decider, batch: &Batch) -> Result<(), ReplayError> {
        if who.role < Role::Approver {
            let why = format!("deciding needs the role approver, and {} has the role {}", who.by.actor, who.role.as_str());
            return Err(self.refuse(&who.by, subject(batch.id), why).await?);
        }
        self.in_scope(&who.by, &who.scope, (&batch.cluster, &batch.topic), subject(batch.id)).await
    }

    async fn grant(
        &self,
        who: &Decider,
        batch: &Batch,
        digest: &str,
        ticked: &[usize],
        comment: Option<&str>,
    ) -> Result<Batch, ReplayError> {
        let comment = comment.filter(|comment| !comment.trim().is_empty());
        let comment = comment.map(|comment| said("comment", comment, COMMENT_CHARS)).transpose()?;
        self.still_proposed(batch).await?;
        if batch.digest.as_deref() != Some(digest) {
            let why = format!("the plan of replay {} is not the one that was shown (its fingerprint differs): look at it again", batch.id);
            return Err(ReplayError::Conflict(why));
        }
        unticked(batch, ticked)?;
        // What cannot be asked right now is asked again before the start.
        match self.recompute_digest(batch).await {
            Ok(now) => {
                if let Some(void) = now.void() {
                    return Err(ReplayError::Conflict(format!("{void} since it was proposed: it must be preflighted anew (Reopen)")));
                }
            }
            Err(ReplayError::Kafka(_) | ReplayError::Unready(_)) => {}
            Err(error) => return Err(error),
        }

        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if now.state != BatchState::AwaitingApproval || now.digest != batch.digest {
            drop(tx);
            return Err(self.decided(&now).await?);
        }
        if now.emergency && replays::emergencies_since(&mut tx, now.dlq_id, now_ms - DAY_MS).await? >= EMERGENCIES_A_DAY {
            return Err(ReplayError::Conflict(format!(
                "{EMERGENCIES_A_DAY} emergency replays of this DLQ were approved in the last 24 hours: ask another approver for a usual replay"
            )));
        }
        let approval = Approval {
            name: who.by.actor.clone(),
            name_folded: look_of_name(&who.by.actor),
            at_ms: now_ms,
            digest: digest.to_owned(),
            comment: comment.clone(),
        };
        if !replays::add_approval(&mut tx, batch.id, &approval).await? {
            return Err(ReplayError::Conflict(format!("{} has approved it already: another approver must, too", who.by.actor)));
        }
        self.count(tx, who, &now, comment).await
    }

    /// Moves the batch on if the quorum is there now, and tells log and trail.
    async fn count(&self, mut tx: Tx, who: &Decider, now: &Batch, comment: Option<String>) -> Result<Batch, ReplayError> {
        let given = u32::try_from(replays::approvals(&mut tx, now.id).await?.len()).unwrap_or(u32::MAX);
        let enough = given >= now.quorum;
        if enough {
            self.shift(&mut tx, now, BatchMove::Approve, None).await?;
        }
        let action = if now.emergency { Action::EmergencyReplayed } else { Action::ReplayApproved };
        let mut event = Event::new(self.clock.now_ms(), &who.by, action, subject(now.id));
        event.reason = comment.clone();
        event.after = Some(json!({
            "digest": now.digest,
            "approvals": given,
            "quorum": now.quorum,
            "items": now.progress.items,
            "incident": now.incident,
        }));
        let mut entry = format!("approved ({given} of {})", now.quorum);
        if let Some(comment) = comment {
            entry.push_str(&format!(": {comment}"));
        }
        self.done(tx, now, &entry, &event).await
    }

    /// Rejects a proposal.
    ///
    /// # Errors
    /// As [`Replays::approve`]; the reason is missing.
    pub async fn reject(&self, who: &Decider, batch_id: i64, why: &str) -> Result<Batch, ReplayError> {
        let batch = self.batch(batch_id).await?;
        self.may_decide(who, &batch).await?;
        let why = reason("reason", why)?;
        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch_id).await?;
        if now.state != BatchState::AwaitingApproval {
            drop(tx);
            return Err(self.decided(&now).await?);
        }
        let note = format!("rejected by {}: {why}", who.by.actor);
        self.shift(&mut tx, &now, BatchMove::Reject, Some(&note)).await?;
        self.give_back(&mut tx, &now).await?;
        let mut event = Event::new(self.clock.now_ms(), &who.by, Action::ReplayRejected, subject(batch_id));
        event.reason = Some(why.clone());
        let batch = self.done(tx, &now, &format!("rejected: {why}"), &event).await?;
        self.release_now(batch).await
    }

    /// A second person has looked at an emergency replay, after the fact.
    ///
    /// # Errors
    /// Forbidden: who proposed or approved it, or another owner's. Conflict: somebody looked already.
    pub async fn review_emergency(&self, who: &Decider, batch_id: i64, comment: &str) -> Result<Batch, ReplayError> {
        let batch = self.batch(batch_id).await?;
        self.may_decide(who, &batch).await?;
        if !batch.emergency || batch.approved_at_ms.is_none() {
            return Err(ReplayError::Conflict(format!("replay {batch_id} is no emergency replay that was approved")));
        }
        let approvals = self.store.approvals(batch_id).await?;
        if who.is(&batch.proposer_folded) || approvals.iter().any(|approval| who.is(&approval.name_folded)) {
            let why = "a second person reviews an emergency replay: not who proposed or approved it".to_owned();
            return Err(self.refuse(&who.by, subject(batch_id), why).await?);
        }
        let comment = said("comment", comment, COMMENT_CHARS)?;
        let now_ms = self.clock.now_ms();
        let review = EmergencyReview {
            at_ms: now_ms,
            name: who.by.actor.clone(),
            name_folded: look_of_name(&who.by.actor),
            comment: comment.clone(),
        };
        let mut tx = self.store.begin().await?;
        if !replays::add_emergency_review(&mut tx, batch_id, &review).await? {
            drop(tx);
            let by = self.store.emergency_review(batch_id).await?.map_or_else(|| "somebody".to_owned(), |review| review.name);
            return Err(ReplayError::Conflict(format!("{by} has reviewed it already")));
        }
        let mut event = Event::new(now_ms, &who.by, Action::EmergencyReviewed, subject(batch_id));
        event.reason = Some(comment.clone());
        self.done(tx, &batch, &format!("reviewed: {comment}"), &event).await
    }

    /// Refuses what is not, or no longer, to be decided about.
    async fn still_proposed(&self, batch: &Batch) -> Result<(), ReplayError> {
        if batch.state != BatchState::AwaitingApproval {
            return Err(self.decided(batch).await?);
        }
        let until = batch.state_since_ms.saturating_add(ms(self.approval.proposal_ttl_s));
        if self.clock.now_ms() >= until {
            return Err(ReplayError::Conflict(format!("the proposal of replay {} has expired: propose it again", batch.id)));
        }
        Ok(())
    }

    /// Why it is too late to decide: who did, or how it stands.
    async fn decided(&self, batch: &Batch) -> Result<ReplayError, ReplayError> {
        let names: Vec<String> = self.store.approvals(batch.id).await?.into_iter().map(|approval| approval.name).collect();
        let why = match (batch.state, &batch.note) {
            (BatchState::AwaitingApproval, _) => format!("the plan of replay {} changed meanwhile: look at it again", batch.id),
            (BatchState::Draft, _) => format!("replay {} is not put up for approval yet", batch.id),
            (BatchState::Rejected | BatchState::Expired | BatchState::Cancelled, Some(note)) => {
                format!("replay {} is {}: {note}", batch.id, batch.state.as_str())
            }
            (state, _) if names.is_empty() => format!("replay {} is {}", batch.id, state.as_str()),
            _ => format!("{} approved replay {} already", names.join(" and "), batch.id),
        };
        Ok(ReplayError::Conflict(why))
    }
}

/// Refuses an approval that leaves a warning unticked that must be.
fn unticked(batch: &Batch, ticked: &[usize]) -> Result<(), ReplayError> {
    let missing = |(at, warning): &(usize, &Warning)| warning.must_be_ticked() && !ticked.contains(at);
    match batch.warnings.iter().enumerate().find(missing) {
        Some((at, Warning::AlsoReadBy { group, why, .. })) => {
            let problem = format!("tick warning {at}: {group} will receive these messages, too, and {why}");
            Err(ReplayError::Invalid { field: "ticked", problem })
        }
        Some((at, _)) => Err(ReplayError::Invalid { field: "ticked", problem: format!("tick warning {at}") }),
        None => Ok(()),
    }
}
