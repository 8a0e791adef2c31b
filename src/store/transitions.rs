//! Moving messages from state to state: compare-and-set, history row and counters in one transaction.

use super::{Store, StoreError, Tx};
use crate::domain::lifecycle::Move;
use crate::domain::message::MessageState;

/// What is to happen to one message: one move or several in a row, each of which gets a row in its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<'a> {
    pub message_id: i64,
    /// The state the caller saw. A message that is in another by now is left alone.
    pub from: MessageState,
    /// At least one; each must lead away from the state before ([`MessageState::after`]).
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
    /// The word of a [`Move`], maybe of a later version.
    #[sqlx(rename = "move")]
    pub movement: String,
    pub actor: String,
    pub batch_id: Option<i64>,
    pub reason: Option<String>,
    pub evidence: Option<String>,
}

/// Moves messages, writes their history, and counts: states, open messages of groups, open follow-ups. What the last move implies is set with it:
/// resolution (`sent`, `already_applied`), outcome (`pending` when sent), reason (of archiving), follow-up (open when archived by a check, gone when restored).
/// Returns the ids that were moved; those that were not in the state the caller saw are not among them.
///
/// At most some 5,000 changes a call. Messages are locked in the order of their ids.
///
/// # Errors
/// The database could not be asked, or a change holds a move that its state does not know ([`StoreError::InvalidMove`]): nothing was written.
pub async fn move_messages(_tx: &mut Tx, _changes: &[Change<'_>], _cause: &Cause<'_>) -> Result<Vec<i64>, StoreError> {
    todo!()
}

impl Store {
    /// The history of a message, oldest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn transitions(&self, _message_id: i64) -> Result<Vec<Transition>, StoreError> {
        todo!()
    }
}
