//! What a person does to messages by hand, and which moves that is for a message in each state.

use serde::{Deserialize, Serialize};

use super::audit::Action;
use super::lifecycle::Move;
use super::message::MessageState;

/// What is asked for. The words are kept with each review: add, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewAction {
    TakeUp,
    Release,
    Archive,
    Restore,
    /// What a check archived is looked after.
    CloseFollowUp,
    /// Archives what nobody has looked at and was dead-lettered before an instant.
    DrawLine,
}

impl ReviewAction {
    pub const ALL: [ReviewAction; 6] = [
        ReviewAction::TakeUp,
        ReviewAction::Release,
        ReviewAction::Archive,
        ReviewAction::Restore,
        ReviewAction::CloseFollowUp,
        ReviewAction::DrawLine,
    ];

    /// The word in the database and in forms.
    pub fn as_str(self) -> &'static str {
        match self {
            ReviewAction::TakeUp => "take_up",
            ReviewAction::Release => "release",
            ReviewAction::Archive => "archive",
            ReviewAction::Restore => "restore",
            ReviewAction::CloseFollowUp => "close_follow_up",
            ReviewAction::DrawLine => "draw_line",
        }
    }

    /// What it is to a message in this state; None: nothing, it is left alone. Closing a follow-up moves nothing.
    pub fn moves(self, state: MessageState) -> Option<&'static [Move]> {
        use MessageState::{Archived, Quarantined, UnderReview};
        match (self, state) {
            (ReviewAction::TakeUp, Quarantined) => Some(&[Move::TakenUp]),
            (ReviewAction::Release, UnderReview) => Some(&[Move::Released]),
            // Who archives has looked at it.
            (ReviewAction::Archive, Quarantined) => Some(&[Move::TakenUp, Move::Archived]),
            (ReviewAction::Archive, UnderReview) => Some(&[Move::Archived]),
            (ReviewAction::Restore, Archived) => Some(&[Move::Restored]),
            (ReviewAction::CloseFollowUp, Archived) => Some(&[]),
            (ReviewAction::DrawLine, Quarantined) => Some(&[Move::LineDrawn]),
            _ => None,
        }
    }

    /// Whether it must say why.
    pub fn needs_reason(self) -> bool {
        !matches!(self, ReviewAction::TakeUp | ReviewAction::Release)
    }

    /// Whether it would take a message away from the replay that has it.
    pub fn disturbs_replays(self) -> bool {
        matches!(self, ReviewAction::Release | ReviewAction::Archive | ReviewAction::DrawLine)
    }

    /// Whether there is a way back: restoring all that it archived.
    pub fn archives(self) -> bool {
        matches!(self, ReviewAction::Archive | ReviewAction::DrawLine)
    }

    /// What the trail calls it.
    pub fn in_trail(self) -> Action {
        match self {
            ReviewAction::TakeUp => Action::MessagesTakenUp,
            ReviewAction::Release => Action::MessagesReleased,
            ReviewAction::Archive => Action::MessagesArchived,
            ReviewAction::Restore => Action::MessagesRestored,
            ReviewAction::CloseFollowUp => Action::FollowUpClosed,
            ReviewAction::DrawLine => Action::LineDrawn,
        }
    }
}

impl std::str::FromStr for ReviewAction {
    type Err = String;

    fn from_str(text: &str) -> Result<ReviewAction, String> {
        ReviewAction::ALL.into_iter().find(|action| action.as_str() == text).ok_or_else(|| {
            let known = ReviewAction::ALL.map(ReviewAction::as_str);
            format!("unknown action {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// The moves that put an archived message back where it was before it was archived.
pub fn way_back(before: MessageState) -> &'static [Move] {
    match before {
        MessageState::Quarantined => &[Move::Restored, Move::Released],
        _ => &[Move::Restored],
    }
}

/// How far a review has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewState {
    /// Finding out how many match; nothing was changed yet.
    Counting,
    Running,
    Done,
    /// Somebody stopped it; what was done stays done.
    Stopped,
}

impl ReviewState {
    /// The word in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ReviewState::Counting => "counting",
            ReviewState::Running => "running",
            ReviewState::Done => "done",
            ReviewState::Stopped => "stopped",
        }
    }

    /// Whether there is more to come.
    pub fn is_live(self) -> bool {
        matches!(self, ReviewState::Counting | ReviewState::Running)
    }
}

impl std::str::FromStr for ReviewState {
    type Err = String;

    fn from_str(text: &str) -> Result<ReviewState, String> {
        let all = [ReviewState::Counting, ReviewState::Running, ReviewState::Done, ReviewState::Stopped];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| format!("unknown state of a review {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_stays_on_the_diagram() {
        for action in ReviewAction::ALL {
            assert_eq!(action.as_str().parse(), Ok(action));
            for state in MessageState::ALL {
                let Some(moves) = action.moves(state) else { continue };
                let end = moves.iter().try_fold(state, |state, movement| state.after(*movement));
                assert!(end.is_ok(), "{} of {}: {end:?}", action.as_str(), state.as_str());
                assert!(!moves.last().is_some_and(|last| last.needs_reason()) || action.needs_reason(), "{}", action.as_str());
            }
        }
    }

    #[test]
    fn the_way_back_ends_where_it_was() {
        for before in [MessageState::Quarantined, MessageState::UnderReview] {
            let end = way_back(before).iter().try_fold(MessageState::Archived, |state, movement| state.after(*movement));
            assert_eq!(end, Ok(before));
        }
    }
}
