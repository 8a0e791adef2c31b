//! Moving messages from state to state: compare-and-set, history row and counters in one transaction.

use std::borrow::Cow;
use std::collections::HashMap;

use super::counters::{Changes, FOLLOW_UP, GROUP_OPEN, state_kind};
use super::sql_pieces::{Dialect as _, optional_text, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::lifecycle::{FollowUp, InvalidOutcome, Move, Outcome};
use crate::domain::message::MessageState;

/// What is to happen to one message: one move or several in a row, each of which gets a row in its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    pub message_id: i64,
    /// The state the caller saw. A message that is in another by now is left alone.
    pub from: MessageState,
    /// Each must lead away from the state before ([`MessageState::after`]). With none the message is left alone.
    pub moves: &'a [Move],
    /// Why, for people; on the row of the last move.
    pub reason: Option<&'a str>,
    /// What the decision rests on, JSON; on the row of the last move.
    pub evidence: Option<&'a str>,
}

/// Who moves them, when, and on whose behalf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause<'a> {
    pub at_ms: i64,
    /// A user's name, "token NAME", or what automation calls itself, such as "replay 12".
    pub actor: &'a str,
    pub batch_id: Option<i64>,
}

/// One step of a message's history.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Transition {
    pub id: i64,
    pub at_ms: i64,
    pub from_state: String,
    pub to_state: String,
    /// The word of a [`Move`], maybe of a later version; or [`FOLLOW_UP_CLOSED`], which moves nothing.
    #[sqlx(rename = "move")]
    pub movement: String,
    pub actor: String,
    pub batch_id: Option<i64>,
    pub review_id: Option<i64>,
    pub reason: Option<String>,
    pub evidence: Option<String>,
}

/// What stands in the history where a follow-up was closed: the message stays archived.
pub const FOLLOW_UP_CLOSED: &str = "follow_up_closed";

/// How much of a history is read at once: more than laps, holds and hands leave in years.
const HISTORY_LIMIT: i64 = 1_000;

/// A message that nobody else changes before the transaction ends.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Locked {
    pub id: i64,
    pub dlq_id: i64,
    pub group_id: i64,
    /// The word of a [`MessageState`].
    pub state: String,
    pub outcome: Option<String>,
    pub follow_up: Option<String>,
}

impl Locked {
    pub fn follow_up_is_open(&self) -> bool {
        self.follow_up.as_deref() == Some(FollowUp::Open.as_str())
    }
}

/// A message after its moves, as the statement takes it.
#[derive(serde::Serialize)]
struct Rest<'a> {
    id: i64,
    from_state: &'static str,
    to_state: &'static str,
    resolution: Option<&'static str>,
    outcome: Option<&'static str>,
    reason: Option<Cow<'a, str>>,
    follow_up: Option<&'static str>,
}

impl<'a> Rest<'a> {
    /// What the last move leaves on the message. What it says nothing of is empty: nothing of an earlier rest outlives a move.
    fn of(change: &Change<'a>, last: Move, to: MessageState) -> Rest<'a> {
        let reason = optional_text(change.reason);
        let (id, from_state, to_state) = (change.message_id, change.from.as_str(), to.as_str());
        let none = Rest { id, from_state, to_state, resolution: None, outcome: None, reason: None, follow_up: None };
        match last {
            Move::Sent => Rest { resolution: Some("sent"), outcome: Some(Outcome::Pending.as_str()), ..none },
            Move::AlreadyApplied => Rest { resolution: Some("already_applied"), ..none },
            Move::LineDrawn | Move::Retention | Move::NoiseRule | Move::Archived | Move::Held | Move::NotSent => Rest { reason, ..none },
            Move::SchemaUnfit | Move::Unsafe => Rest { reason, follow_up: Some(FollowUp::Open.as_str()), ..none },
            Move::TakenUp | Move::Released | Move::CheckBegun | Move::SchemaFits | Move::Restored => none,
        }
    }
}

/// A row of the history, as the statement takes it.
#[derive(serde::Serialize)]
struct Step<'a> {
    message_id: i64,
    dlq_id: i64,
    at_ms: i64,
    batch_id: Option<i64>,
    review_id: Option<i64>,
    from_state: &'static str,
    to_state: &'static str,
    #[serde(rename = "move")]
    movement: &'static str,
    actor: &'a str,
    reason: Option<Cow<'a, str>>,
    evidence: Option<Cow<'a, str>>,
}

/// The states that a change passes through: (before, move, after).
fn path(change: &Change<'_>) -> Result<Vec<(MessageState, Move, MessageState)>, StoreError> {
    let mut state = change.from;
    let mut steps = Vec::with_capacity(change.moves.len());
    for &movement in change.moves {
        let next = state.after(movement)?;
        steps.push((state, movement, next));
        state = next;
    }
    Ok(steps)
}

/// Moves messages, writes their history, and counts: states, open messages of groups, open follow-ups, outcomes. What the last move implies is set
/// with it: resolution (`sent`, `already_applied`), outcome (`pending` when sent), reason (of archiving, of a hold, of not having been sent),
/// follow-up (open when archived by a check, gone when restored).
/// Returns the ids that were moved, in order; those that were not in the state the caller saw are not among them. Of two changes of one message the
/// first counts.
///
/// At most some 5,000 changes a call. Messages are locked in the order of their ids.
///
/// # Errors
/// The database could not be asked, or a change holds a move that its state does not know ([`StoreError::InvalidMove`]): nothing was written.
pub async fn move_messages(tx: &mut Tx, changes: &[Change<'_>], cause: &Cause<'_>) -> Result<Vec<i64>, StoreError> {
    move_in_review(tx, changes, cause, None).await
}

/// The same for a review, so that what it did can be found again.
///
/// # Errors
/// As [`move_messages`].
pub async fn move_in_review(
    tx: &mut Tx,
    changes: &[Change<'_>],
    cause: &Cause<'_>,
    review_id: Option<i64>,
) -> Result<Vec<i64>, StoreError> {
    let paths = changes.iter().map(path).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<i64> = changes.iter().map(|change| change.message_id).collect();
    let mut there = lock(tx, &ids).await?;
    let actor = text(cause.actor);
    let (mut rests, mut steps, mut counted, mut moved) = (Vec::new(), Vec::new(), Changes::default(), Vec::new());
    for (change, path) in changes.iter().zip(&paths) {
        let Some(&(_, last, to)) = path.last() else { continue };
        if there.get(&change.message_id).is_none_or(|message| message.state != change.from.as_str()) {
            continue;
        }
        let Some(message) = there.remove(&change.message_id) else { continue };
        let rest = Rest::of(change, last, to);
        count(&mut counted, &message, change.from, to, &rest);
        for (n, &(from, movement, to)) in path.iter().enumerate() {
            let is_last = n + 1 == path.len();
            steps.push(Step {
                message_id: message.id,
                dlq_id: message.dlq_id,
                at_ms: cause.at_ms,
                batch_id: cause.batch_id,
                review_id,
                from_state: from.as_str(),
                to_state: to.as_str(),
                movement: movement.as_str(),
                actor: &actor,
                reason: optional_text(change.reason).filter(|_| is_last),
                evidence: optional_text(change.evidence).filter(|_| is_last),
            });
        }
        moved.push(message.id);
        rests.push(rest);
    }
    if moved.is_empty() {
        return Ok(moved);
    }
    in_tx!(tx, |connection| {
        sqlx::query(Db::MOVE_MESSAGES).bind(rows(&rests)).execute(&mut *connection).await?;
        sqlx::query(Db::ADD_TRANSITIONS).bind(rows(&steps)).execute(&mut *connection).await?;
    })?;
    counted.append(tx).await?;
    moved.sort_unstable();
    Ok(moved)
}

/// Locks messages in the order of their ids; those that do not exist are absent.
///
/// # Errors
/// The database could not be asked.
pub async fn lock(tx: &mut Tx, ids: &[i64]) -> Result<HashMap<i64, Locked>, StoreError> {
    let found =
        in_tx!(tx, |connection| { sqlx::query_as::<Db, Locked>(Db::LOCK_MESSAGES).bind(rows(ids)).fetch_all(&mut *connection).await? })?;
    Ok(found.into_iter().map(|message| (message.id, message)).collect())
}

fn count(counted: &mut Changes, message: &Locked, from: MessageState, to: MessageState, rest: &Rest<'_>) {
    let &Locked { dlq_id, group_id, .. } = message;
    counted.add(dlq_id, state_kind(from), 0, -1);
    counted.add(dlq_id, state_kind(to), 0, 1);
    counted.add(dlq_id, GROUP_OPEN, group_id, i64::from(to.is_open()) - i64::from(from.is_open()));
    let open = rest.follow_up == Some(FollowUp::Open.as_str());
    counted.add(dlq_id, FOLLOW_UP, 0, i64::from(open) - i64::from(message.follow_up_is_open()));
    counted.outcome(dlq_id, group_id, outcome(message.outcome.as_deref()), outcome(rest.outcome));
}

fn outcome(word: Option<&str>) -> Option<Outcome> {
    Outcome::ALL.into_iter().find(|outcome| Some(outcome.as_str()) == word)
}

/// Closes the follow-ups of locked messages that are open, with a row in the history of each. Returns the ids of those, in order.
///
/// # Errors
/// The database could not be asked.
pub async fn close_follow_ups(
    tx: &mut Tx,
    messages: &[&Locked],
    reason: &str,
    cause: &Cause<'_>,
    review_id: i64,
) -> Result<Vec<i64>, StoreError> {
    let open: Vec<&Locked> = messages.iter().copied().filter(|message| message.follow_up_is_open()).collect();
    let mut ids: Vec<i64> = open.iter().map(|message| message.id).collect();
    if ids.is_empty() {
        return Ok(ids);
    }
    let (archived, actor) = (MessageState::Archived.as_str(), text(cause.actor));
    let step = |message: &&Locked| Step {
        message_id: message.id,
        dlq_id: message.dlq_id,
        at_ms: cause.at_ms,
        batch_id: cause.batch_id,
        review_id: Some(review_id),
        from_state: archived,
        to_state: archived,
        movement: FOLLOW_UP_CLOSED,
        actor: &actor,
        reason: Some(text(reason)),
        evidence: None,
    };
    let steps: Vec<Step<'_>> = open.iter().map(step).collect();
    in_tx!(tx, |connection| {
        sqlx::query(Db::CLOSE_FOLLOW_UPS).bind(rows(&ids)).execute(&mut *connection).await?;
        sqlx::query(Db::ADD_TRANSITIONS).bind(rows(&steps)).execute(&mut *connection).await?;
    })?;
    let mut counted = Changes::default();
    open.iter().for_each(|message| counted.add(message.dlq_id, FOLLOW_UP, 0, -1));
    counted.append(tx).await?;
    ids.sort_unstable();
    Ok(ids)
}

/// A message whose outcome is set, as the statement takes it.
#[derive(serde::Serialize)]
struct Corrected {
    id: i64,
    from_outcome: &'static str,
    to_outcome: &'static str,
}

/// Sets outcomes of sent messages, given as (message, outcome the caller saw, next outcome), and counts them by DLQ and group. Returns the ids that were
/// set, in order; those whose outcome is another by now are not among them. Of two corrections of one message the first counts.
///
/// At most some 5,000 a call. Messages are locked in the order of their ids.
///
/// # Errors
/// The database could not be asked, or one outcome may not become the other ([`StoreError::InvalidOutcome`]): nothing was written.
pub async fn set_outcomes(tx: &mut Tx, outcomes: &[(i64, Outcome, Outcome)]) -> Result<Vec<i64>, StoreError> {
    if let Some(&(_, from, to)) = outcomes.iter().find(|(_, from, to)| !from.may_become(*to)) {
        return Err(InvalidOutcome { from, to }.into());
    }
    let ids: Vec<i64> = outcomes.iter().map(|(id, ..)| *id).collect();
    let mut there = lock(tx, &ids).await?;
    let (mut corrected, mut counted) = (Vec::new(), Changes::default());
    for &(id, from, to) in outcomes {
        if there.get(&id).is_none_or(|message| outcome(message.outcome.as_deref()) != Some(from)) {
            continue;
        }
        let Some(message) = there.remove(&id) else { continue };
        counted.outcome(message.dlq_id, message.group_id, Some(from), Some(to));
        corrected.push(Corrected { id, from_outcome: from.as_str(), to_outcome: to.as_str() });
    }
    if corrected.is_empty() {
        return Ok(Vec::new());
    }
    in_tx!(tx, |connection| {
        sqlx::query(Db::SET_OUTCOMES).bind(rows(&corrected)).execute(&mut *connection).await?;
    })?;
    counted.append(tx).await?;
    let mut set: Vec<i64> = corrected.iter().map(|message| message.id).collect();
    set.sort_unstable();
    Ok(set)
}

impl Store {
    /// The history of a message, oldest first; of a very long one the newest part.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn transitions(&self, message_id: i64) -> Result<Vec<Transition>, StoreError> {
        const SQL: &str = "SELECT id, at_ms, from_state, to_state, move, actor, batch_id, review_id, reason, evidence FROM transitions
             WHERE message_id = $1 ORDER BY id DESC LIMIT $2";
        let mut steps =
            read!(self, |pool| { sqlx::query_as::<Db, Transition>(SQL).bind(message_id).bind(HISTORY_LIMIT).fetch_all(pool).await? })?;
        steps.reverse();
        Ok(steps)
    }
}
