//! A replay: the states of a batch, what was planned, what is forecast, and what became of it.

use serde::{Deserialize, Serialize};

use super::verdict::Waiver;

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Being frozen and preflighted, or waiting for its proposer to submit it.
    Draft,
    AwaitingApproval,
    Approved,
    Executing,
    Paused,
    /// Every item has ended; what was sent is being verified.
    Executed,
    Verified,
    /// A guard tripped: going on needs a new approval.
    Halted,
    Rejected,
    Expired,
    /// Stopped. What was sent is still verified.
    Cancelled,
}

/// What is done to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchMove {
    Submit,
    /// The quorum is reached (or it is an emergency replay).
    Approve,
    Reject,
    /// Nobody answered the proposal in time, or the approval was not used in time.
    Expire,
    Start,
    /// By a person, by lag, or by a canary that was not verified in time.
    Pause,
    Resume,
    /// A guard.
    Halt,
    Stop,
    /// Nothing is left to send.
    Finish,
    Verify,
    /// A halted batch, or one whose plan was changed, is put up for approval again.
    Reopen,
}

impl BatchState {
    pub const ALL: [BatchState; 11] = [
        BatchState::Draft,
        BatchState::AwaitingApproval,
        BatchState::Approved,
        BatchState::Executing,
        BatchState::Paused,
        BatchState::Executed,
        BatchState::Verified,
        BatchState::Halted,
        BatchState::Rejected,
        BatchState::Expired,
        BatchState::Cancelled,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            BatchState::Draft => "draft",
            BatchState::AwaitingApproval => "awaiting_approval",
            BatchState::Approved => "approved",
            BatchState::Executing => "executing",
            BatchState::Paused => "paused",
            BatchState::Executed => "executed",
            BatchState::Verified => "verified",
            BatchState::Halted => "halted",
            BatchState::Rejected => "rejected",
            BatchState::Expired => "expired",
            BatchState::Cancelled => "cancelled",
        }
    }

    /// Whether its items still belong to it and to no other batch.
    pub fn is_live(self) -> bool {
        matches!(
            self,
            BatchState::Draft
                | BatchState::AwaitingApproval
                | BatchState::Approved
                | BatchState::Executing
                | BatchState::Paused
                | BatchState::Halted
        )
    }

    /// The state after `movement`.
    ///
    /// # Errors
    /// [`InvalidBatchMove`] if no such move leads away from this state.
    pub fn after(self, movement: BatchMove) -> Result<BatchState, InvalidBatchMove> {
        use BatchState::{Approved, AwaitingApproval, Cancelled, Draft, Executed, Executing, Expired, Halted, Paused, Rejected, Verified};
        match (self, movement) {
            (Draft, BatchMove::Submit) => Ok(AwaitingApproval),
            (AwaitingApproval, BatchMove::Approve) => Ok(Approved),
            (AwaitingApproval, BatchMove::Reject) => Ok(Rejected),
            (Draft | AwaitingApproval | Approved, BatchMove::Expire) => Ok(Expired),
            (Approved, BatchMove::Start) => Ok(Executing),
            (Executing, BatchMove::Pause) => Ok(Paused),
            (Paused, BatchMove::Resume) => Ok(Executing),
            (Approved | Executing | Paused, BatchMove::Halt) => Ok(Halted),
            (Draft | AwaitingApproval | Approved | Executing | Paused | Halted, BatchMove::Stop) => Ok(Cancelled),
            (Executing, BatchMove::Finish) => Ok(Executed),
            (Executed, BatchMove::Verify) => Ok(Verified),
            (AwaitingApproval | Approved | Halted, BatchMove::Reopen) => Ok(Draft),
            (from, movement) => Err(InvalidBatchMove { from, movement }),
        }
    }
}

impl std::str::FromStr for BatchState {
    type Err = String;

    fn from_str(text: &str) -> Result<BatchState, String> {
        BatchState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = BatchState::ALL.iter().map(|state| state.as_str()).collect();
            format!("unknown state {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// The move is not one of that state's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a replay that is {} does not take \"{movement:?}\"", .from.as_str())]
pub struct InvalidBatchMove {
    pub from: BatchState,
    pub movement: BatchMove,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    Pending,
    /// Intended, outcome not known yet: maybe sent.
    Intended,
    Sent,
    AlreadyApplied,
    /// Archived by a check.
    Archived,
    Held,
    /// An earlier item of its key stands in the way.
    Blocked,
    /// Stopped, refused by the client, or the target is gone; proven absent.
    NotSent,
}

impl ItemState {
    pub const ALL: [ItemState; 8] = [
        ItemState::Pending,
        ItemState::Intended,
        ItemState::Sent,
        ItemState::AlreadyApplied,
        ItemState::Archived,
        ItemState::Held,
        ItemState::Blocked,
        ItemState::NotSent,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ItemState::Pending => "pending",
            ItemState::Intended => "intended",
            ItemState::Sent => "sent",
            ItemState::AlreadyApplied => "already_applied",
            ItemState::Archived => "archived",
            ItemState::Held => "held",
            ItemState::Blocked => "blocked",
            ItemState::NotSent => "not_sent",
        }
    }
}

/// What the approver agrees to beside the messages themselves. Stored as JSON with the batch; every field is in the digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The topic that is sent to.
    pub target: String,
    /// Kafka's id of it; None where the broker gives none.
    pub target_id: Option<String>,
    pub target_partitions: i32,
    /// The consumer group that reads the target; None: not known, so success cannot be confirmed by offsets.
    pub group: Option<String>,
    /// The jq filter typed into the batch's form; None: that of the configuration, if any.
    pub transform: Option<String>,
    pub max_per_second: u32,
    /// Messages sent and verified before the rest; 0: none.
    pub canary: u32,
    /// Share of returned messages, in percent, that halts the batch.
    pub stop_on_returned_pct: u32,
    pub waivers: Vec<Waiver>,
}

/// What the preflight expects of each item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    pub send: u64,
    pub send_unchecked: u64,
    pub already_applied: u64,
    pub incompatible: u64,
    pub held: u64,
    pub blocked: u64,
}

/// What became of the items so far; also what one transaction adds to that (a late return takes away from another outcome).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Frozen into the batch.
    pub items: i64,
    /// Looked at by the preflight.
    pub checked: i64,
    /// Sent, those without a check included.
    pub sent: i64,
    pub sent_unchecked: i64,
    pub already_applied: i64,
    pub archived: i64,
    pub held: i64,
    pub blocked: i64,
    pub not_sent: i64,
    /// Of those sent: confirmed because the ledger says applied.
    pub confirmed_ledger: i64,
    /// Of those sent: confirmed because the group committed past them.
    pub confirmed_offset: i64,
    pub returned: i64,
    pub unproven: i64,
}

impl Progress {
    /// Sent, and nothing known yet.
    pub fn pending(&self) -> i64 {
        (self.sent - self.confirmed_ledger - self.confirmed_offset - self.returned - self.unproven).max(0)
    }

    /// Items that have ended one way or another.
    pub fn done(&self) -> i64 {
        self.sent + self.already_applied + self.archived + self.held + self.blocked + self.not_sent
    }
}

/// Something the approver must know. Words for pages are made where they are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// New failures of the same groups in the last 15 minutes.
    CauseActive { arrivals: u64 },
    /// The target's group has no members: nobody would read what is sent.
    GroupEmpty { group: String },
    /// Records the target's group has not read yet.
    Lag { group: String, records: u64 },
    /// Kafka could not be asked about the group.
    GroupUnknown { group: String, why: String },
    /// Newer records of these keys are in the target already (at most some are named).
    NewerOfKey { keys: Vec<String>, count: u64 },
    /// It was not looked through to its end for newer records.
    NewerNotLookedFor { why: String },
    /// Success cannot be confirmed here, and why.
    CannotConfirm { why: String },
    /// A check is missing: what it is and the lines to paste.
    CheckMissing { check: super::verdict::Check, lines: String },
    /// Another group that reads the target: applied, not known, or without a ledger. The approver must tick it.
    AlsoReadBy { group: String, why: String, items: u64 },
    /// Groups that the broker names as readers of the target and that nobody configured.
    OtherGroups { groups: Vec<String> },
    /// The target has another number of partitions than when these were read: they are hashed by key.
    Repartitioned { items: u64 },
    /// Beyond `max_laps`: only a person may replay these.
    Laps { items: u64, max: i32 },
    /// The standing waiver of the DLQ.
    ConsumerIsIdempotent { why: String },
}

impl Warning {
    /// Whether the proposer must say why now.
    pub fn asks_why_now(&self) -> bool {
        matches!(self, Warning::CauseActive { .. } | Warning::GroupEmpty { .. })
    }

    /// Whether each approver must tick it.
    pub fn must_be_ticked(&self) -> bool {
        matches!(self, Warning::AlsoReadBy { .. })
    }
}
