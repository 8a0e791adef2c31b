//! The states of a message and of what was sent, as a machine: which move leads from where to where.
//!
//! The store repeats each move as a compare-and-set and writes a `transitions` row with it (`store/transitions.rs`).

use serde::{Deserialize, Serialize};

use super::message::MessageState;

/// What is done to a message. The words are kept in its history for years: add, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// Picked up by a person, a batch or an approved window.
    TakenUp,
    /// Put back: nobody works on it.
    Released,
    /// Archived without a person's look at each: the line drawn under old dead letters.
    LineDrawn,
    /// Archived because nobody addressed it before the cut-off.
    Retention,
    /// Archived by an approved rule about known noise.
    NoiseRule,
    /// A person decided to archive it.
    Archived,
    /// Candidate for replay, at the time of execution.
    CheckBegun,
    /// Its payload fits, or was made to fit by a named transform.
    SchemaFits,
    /// Its payload does not fit: archived, follow-up open.
    SchemaUnfit,
    /// A check could not run or needs a person, or an earlier item of its key stands in the way.
    Held,
    /// Not sent, and proven absent: stopped, refused by the client, target gone.
    NotSent,
    /// Sent to the target.
    Sent,
    /// Nothing was sent: the ledger says applied.
    AlreadyApplied,
    /// Partly applied: archived, follow-up open.
    Unsafe,
    /// Taken out of the archive.
    Restored,
}

impl Move {
    pub const ALL: [Move; 15] = [
        Move::TakenUp,
        Move::Released,
        Move::LineDrawn,
        Move::Retention,
        Move::NoiseRule,
        Move::Archived,
        Move::CheckBegun,
        Move::SchemaFits,
        Move::SchemaUnfit,
        Move::Held,
        Move::NotSent,
        Move::Sent,
        Move::AlreadyApplied,
        Move::Unsafe,
        Move::Restored,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Move::TakenUp => "taken_up",
            Move::Released => "released",
            Move::LineDrawn => "line_drawn",
            Move::Retention => "retention",
            Move::NoiseRule => "noise_rule",
            Move::Archived => "archived",
            Move::CheckBegun => "check_begun",
            Move::SchemaFits => "schema_fits",
            Move::SchemaUnfit => "schema_unfit",
            Move::Held => "held",
            Move::NotSent => "not_sent",
            Move::Sent => "sent",
            Move::AlreadyApplied => "already_applied",
            Move::Unsafe => "unsafe",
            Move::Restored => "restored",
        }
    }

    /// Whether a move of this kind must say why.
    pub fn needs_reason(self) -> bool {
        matches!(self, Move::Archived | Move::Restored | Move::LineDrawn)
    }
}

/// The move is not one of that state's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message that is {} cannot be {}", .from.as_str(), .movement.as_str())]
pub struct InvalidTransition {
    pub from: MessageState,
    pub movement: Move,
}

/// A correction that no outcome allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a replay that is {} cannot become {}", .from.as_str(), .to.as_str())]
pub struct InvalidOutcome {
    pub from: Outcome,
    pub to: Outcome,
}

impl MessageState {
    /// The state after `movement`.
    ///
    /// # Errors
    /// [`InvalidTransition`] if no such move leads away from this state.
    pub fn after(self, movement: Move) -> Result<MessageState, InvalidTransition> {
        use MessageState::{Archived, IdempotencyCheck, Quarantined, Replayed, SchemaCheck, UnderReview};
        match (self, movement) {
            (Quarantined, Move::TakenUp) => Ok(UnderReview),
            (Quarantined, Move::LineDrawn | Move::Retention | Move::NoiseRule) => Ok(Archived),
            (UnderReview, Move::Released) => Ok(Quarantined),
            (UnderReview, Move::CheckBegun) => Ok(SchemaCheck),
            (UnderReview, Move::Archived) => Ok(Archived),
            (SchemaCheck, Move::SchemaFits) => Ok(IdempotencyCheck),
            (SchemaCheck, Move::SchemaUnfit) => Ok(Archived),
            (SchemaCheck | IdempotencyCheck, Move::Held | Move::NotSent) => Ok(UnderReview),
            (IdempotencyCheck, Move::Sent | Move::AlreadyApplied) => Ok(Replayed),
            (IdempotencyCheck, Move::Unsafe) => Ok(Archived),
            (Archived, Move::Restored) => Ok(UnderReview),
            (from, movement) => Err(InvalidTransition { from, movement }),
        }
    }
}

/// What became of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pending,
    Confirmed,
    Returned,
    Unproven,
}

impl Outcome {
    pub const ALL: [Outcome; 4] = [Outcome::Pending, Outcome::Confirmed, Outcome::Returned, Outcome::Unproven];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Pending => "pending",
            Outcome::Confirmed => "confirmed",
            Outcome::Returned => "returned",
            Outcome::Unproven => "unproven",
        }
    }

    /// Whether one may become the other: pending anything, and a late return corrects what was thought before.
    pub fn may_become(self, next: Outcome) -> bool {
        match self {
            Outcome::Pending => next != Outcome::Pending,
            Outcome::Confirmed | Outcome::Unproven => next == Outcome::Returned,
            Outcome::Returned => false,
        }
    }
}

/// Whether somebody still has to look after an archived message, because a check archived it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUp {
    Open,
    /// A person closed it, with a reason.
    Closed,
}

impl FollowUp {
    /// The word in the database, the API and the query string.
    pub fn as_str(self) -> &'static str {
        match self {
            FollowUp::Open => "open",
            FollowUp::Closed => "closed",
        }
    }
}

impl std::str::FromStr for FollowUp {
    type Err = String;

    fn from_str(text: &str) -> Result<FollowUp, String> {
        let found = [FollowUp::Open, FollowUp::Closed].into_iter().find(|word| word.as_str() == text);
        found.ok_or_else(|| format!("unknown follow-up {text:?}: use one of open, closed"))
    }
}

/// What shows that a message was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The ledger says applied.
    Ledger,
    /// Its consumer group committed past it, and it did not come back.
    Offset,
}

impl Proof {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Proof::Ledger => "ledger",
            Proof::Offset => "offset",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_json() {
        for movement in Move::ALL {
            assert_eq!(serde_json::to_string(&movement).unwrap(), format!("{:?}", movement.as_str()));
        }
    }

    #[test]
    fn the_diagram_has_these_arrows_and_no_other() {
        let mut arrows: Vec<String> = Vec::new();
        for from in MessageState::ALL {
            for movement in Move::ALL {
                if let Ok(to) = from.after(movement) {
                    arrows.push(format!("{} -{}-> {}", from.as_str(), movement.as_str(), to.as_str()));
                }
            }
        }
        let expected = [
            "quarantined -taken_up-> under_review",
            "quarantined -line_drawn-> archived",
            "quarantined -retention-> archived",
            "quarantined -noise_rule-> archived",
            "under_review -released-> quarantined",
            "under_review -archived-> archived",
            "under_review -check_begun-> schema_check",
            "schema_check -schema_fits-> idempotency_check",
            "schema_check -schema_unfit-> archived",
            "schema_check -held-> under_review",
            "schema_check -not_sent-> under_review",
            "idempotency_check -held-> under_review",
            "idempotency_check -not_sent-> under_review",
            "idempotency_check -sent-> replayed",
            "idempotency_check -already_applied-> replayed",
            "idempotency_check -unsafe-> archived",
            "archived -restored-> under_review",
        ];
        arrows.sort_unstable();
        let mut expected = expected.map(str::to_owned).to_vec();
        expected.sort_unstable();
        assert_eq!(arrows, expected);
    }

    #[test]
    fn only_a_return_corrects_an_outcome() {
        let pairs: Vec<_> = Outcome::ALL
            .into_iter()
            .flat_map(|from| Outcome::ALL.map(|to| (from, to)))
            .filter(|(from, to)| from.may_become(*to))
            .map(|(from, to)| (from.as_str(), to.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("pending", "confirmed"),
                ("pending", "returned"),
                ("pending", "unproven"),
                ("confirmed", "returned"),
                ("unproven", "returned")
            ]
        );
    }
}
