//! A replay: the states of a batch, what was planned, what is forecast, and what became of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::verdict::{Conclusion, Decision, IdempotencyVerdict, SchemaVerdict, Waiver};

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
    /// Archived because the ledger calls them partly applied.
    #[serde(default)]
    pub partly_applied: u64,
    pub held: u64,
    pub blocked: u64,
}

impl Forecast {
    /// All items that were looked at.
    pub fn total(&self) -> u64 {
        self.would_change() + self.held + self.blocked
    }

    /// Items that do not just go back to review.
    pub fn would_change(&self) -> u64 {
        self.would_send() + self.already_applied + self.incompatible + self.partly_applied
    }

    /// Items that would be sent.
    pub fn would_send(&self) -> u64 {
        self.send + self.send_unchecked
    }

    /// The count of one kind.
    pub fn of(&mut self, what: Expected) -> &mut u64 {
        match what {
            Expected::Send => &mut self.send,
            Expected::SendUnchecked => &mut self.send_unchecked,
            Expected::AlreadyApplied => &mut self.already_applied,
            Expected::Incompatible => &mut self.incompatible,
            Expected::Unsafe => &mut self.partly_applied,
            Expected::Held => &mut self.held,
            Expected::Blocked => &mut self.blocked,
        }
    }
}

/// What the preflight expects of one item: what the checks decide, or that an earlier item of its key stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expected {
    Send,
    SendUnchecked,
    AlreadyApplied,
    Incompatible,
    Unsafe,
    Held,
    Blocked,
}

impl Expected {
    pub const ALL: [Expected; 7] = [
        Expected::Send,
        Expected::SendUnchecked,
        Expected::AlreadyApplied,
        Expected::Incompatible,
        Expected::Unsafe,
        Expected::Held,
        Expected::Blocked,
    ];

    /// The word in the database: that of the [`Decision`], or `blocked`.
    pub fn as_str(self) -> &'static str {
        match self {
            Expected::Send => "send",
            Expected::SendUnchecked => "send_unchecked",
            Expected::AlreadyApplied => "already_applied",
            Expected::Incompatible => "incompatible",
            Expected::Unsafe => "unsafe",
            Expected::Held => "held",
            Expected::Blocked => "blocked",
        }
    }
}

impl From<Decision> for Expected {
    fn from(decision: Decision) -> Expected {
        match decision {
            Decision::Send => Expected::Send,
            Decision::SendUnchecked => Expected::SendUnchecked,
            Decision::AlreadyApplied => Expected::AlreadyApplied,
            Decision::Incompatible => Expected::Incompatible,
            Decision::Unsafe => Expected::Unsafe,
            Decision::Held => Expected::Held,
        }
    }
}

/// What is being done to prepare a batch, or to give its messages back. Each step goes in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Freezing,
    Checking,
    /// Which items an earlier one of their key stands in the way of.
    Blocking,
    /// Which items are the canary, and which go at which step after it.
    Staging,
    /// Target, group and warnings.
    Concluding,
    /// Through; also of a batch that was approved and after.
    Ready,
    /// It has ended before all was sent: what is left is given back.
    Releasing,
    Released,
}

impl Step {
    pub const ALL: [Step; 8] =
        [Step::Freezing, Step::Checking, Step::Blocking, Step::Staging, Step::Concluding, Step::Ready, Step::Releasing, Step::Released];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Freezing => "freezing",
            Step::Checking => "checking",
            Step::Blocking => "blocking",
            Step::Staging => "staging",
            Step::Concluding => "concluding",
            Step::Ready => "ready",
            Step::Releasing => "releasing",
            Step::Released => "released",
        }
    }
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        Step::ALL.into_iter().find(|step| step.as_str() == text).ok_or_else(|| format!("unknown step {text:?}"))
    }
}

/// What freeze and preflight count beside the forecast; kept with the batch, since they go in chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Messages that are in another live batch, by its id.
    #[serde(default)]
    pub elsewhere: BTreeMap<i64, u64>,
    /// Messages that came from another topic than the target and were left out, by that topic; the empty name: not known.
    #[serde(default)]
    pub other_origins: BTreeMap<String, u64>,
    /// Of each group in `also_read_by`: items by the word of their verdict.
    #[serde(default)]
    pub others: BTreeMap<String, BTreeMap<String, u64>>,
    /// Items beyond `max_laps`.
    #[serde(default)]
    pub over_laps: u64,
    /// Items whose partition the target does not have.
    #[serde(default)]
    pub repartitioned: u64,
    /// Items that go only because of the batch's own waivers.
    #[serde(default)]
    pub waived: u64,
}

/// Names of topics come from headers: more than so many are not told apart.
const ORIGINS_KEPT: usize = 20;

impl Tally {
    /// Counts a message that was left out.
    pub fn left_out(&mut self, origin: Option<&str>, items: u64) {
        let name = origin.unwrap_or_default();
        let name = if self.other_origins.len() >= ORIGINS_KEPT && !self.other_origins.contains_key(name) { "…" } else { name };
        *self.other_origins.entry(name.to_owned()).or_default() += items;
    }

    /// What the preflight counted goes, what the freeze counted stays: it is preflighted anew.
    pub fn anew(self) -> Tally {
        Tally { elsewhere: self.elsewhere, other_origins: self.other_origins, ..Tally::default() }
    }
}

/// Why waivers cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaiverFault {
    #[error("the check {check} has no verdict {verdict:?} that can be waived: use {known}")]
    NotWaivable { check: &'static str, verdict: String, known: String },
    #[error("waiving {check} {verdict} needs a reason: whoever goes on without a check says why")]
    NoReason { check: &'static str, verdict: String },
    #[error("the reason for waiving {check} {verdict} is longer than {MAX_WAIVER_REASON} bytes, or holds a NUL character")]
    Reason { check: &'static str, verdict: String },
    #[error("{check} {verdict} is waived twice: once is enough")]
    Twice { check: &'static str, verdict: String },
}

/// The longest reason of a waiver, bytes.
const MAX_WAIVER_REASON: usize = 2_000;

/// Looks at waivers as they were typed: each must be of a verdict that can be waived, once, with a reason.
///
/// # Errors
/// The first that cannot be taken.
pub fn check_waivers(waivers: &[Waiver]) -> Result<(), WaiverFault> {
    use super::verdict::Check;
    let waivable = |conclusion: Conclusion| conclusion == Conclusion::Held { waivable: true };
    let words = |check: Check| -> Vec<&'static str> {
        match check {
            Check::Schema => SchemaVerdict::ALL.into_iter().filter(|v| waivable(v.conclusion())).map(SchemaVerdict::as_str).collect(),
            Check::Idempotency => {
                IdempotencyVerdict::ALL.into_iter().filter(|v| waivable(v.conclusion())).map(IdempotencyVerdict::as_str).collect()
            }
        }
    };
    for (at, waiver) in waivers.iter().enumerate() {
        let (check, verdict, known) = (waiver.check.as_str(), waiver.verdict.clone(), words(waiver.check));
        if !known.contains(&waiver.verdict.as_str()) {
            return Err(WaiverFault::NotWaivable { check, verdict, known: known.join(", ") });
        }
        if !super::record::says_something(&waiver.reason) {
            return Err(WaiverFault::NoReason { check, verdict });
        }
        if waiver.reason.len() > MAX_WAIVER_REASON || waiver.reason.contains('\0') {
            return Err(WaiverFault::Reason { check, verdict });
        }
        if waivers[..at].iter().any(|other| other.check == waiver.check && other.verdict == waiver.verdict) {
            return Err(WaiverFault::Twice { check, verdict });
        }
    }
    Ok(())
}

/// How many must approve: more for many messages, one more for waivers, and for an emergency nobody but its proposer.
pub fn quorum(terms: &super::terms::ApprovalTerms, items: u64, waivers: bool, emergency: bool) -> u32 {
    if emergency {
        return 1;
    }
    let base = if items >= u64::from(terms.large_batch) { terms.large_quorum.max(terms.quorum) } else { terms.quorum };
    base.max(1) + u32::from(waivers)
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
    /// Kafka does not tell who else reads the target.
    ReadersUnknown { why: String },
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
    /// Messages that were asked for and stay where they are: another live batch has them.
    InOtherReplay { batch: i64, items: u64 },
    /// Messages that were asked for and left out: they came from another topic than the target, or nobody knows from where.
    OtherOrigin { topic: Option<String>, items: u64 },
    /// Kafka could not be asked about the target; it is looked at again before the start.
    TargetUnknown { why: String },
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

#[cfg(test)]
mod tests {
    use super::super::terms::ApprovalTerms;
    use super::super::verdict::Check;
    use super::*;

    #[test]
    fn the_batch_has_these_arrows_and_no_other() {
        let moves = [
            BatchMove::Submit,
            BatchMove::Approve,
            BatchMove::Reject,
            BatchMove::Expire,
            BatchMove::Start,
            BatchMove::Pause,
            BatchMove::Resume,
            BatchMove::Halt,
            BatchMove::Stop,
            BatchMove::Finish,
            BatchMove::Verify,
            BatchMove::Reopen,
        ];
        let arrows: Vec<String> = BatchState::ALL
            .into_iter()
            .flat_map(|from| moves.map(|movement| (from, movement)))
            .filter_map(|(from, movement)| Some(format!("{} {movement:?} {}", from.as_str(), from.after(movement).ok()?.as_str())))
            .collect();
        let expected = [
            "draft Submit awaiting_approval",
            "draft Expire expired",
            "draft Stop cancelled",
            "awaiting_approval Approve approved",
            "awaiting_approval Reject rejected",
            "awaiting_approval Expire expired",
            "awaiting_approval Stop cancelled",
            "awaiting_approval Reopen draft",
            "approved Expire expired",
            "approved Start executing",
            "approved Halt halted",
            "approved Stop cancelled",
            "approved Reopen draft",
            "executing Pause paused",
            "executing Halt halted",
            "executing Stop cancelled",
            "executing Finish executed",
            "paused Resume executing",
            "paused Halt halted",
            "paused Stop cancelled",
            "executed Verify verified",
            "halted Stop cancelled",
            "halted Reopen draft",
        ];
        assert_eq!(arrows, expected);
    }

    #[test]
    fn the_words_are_those_of_the_json() {
        for step in Step::ALL {
            assert_eq!(serde_json::to_string(&step).unwrap(), format!("{:?}", step.as_str()));
            assert_eq!(step.as_str().parse(), Ok(step));
        }
        for decision in
            [Decision::Send, Decision::SendUnchecked, Decision::AlreadyApplied, Decision::Incompatible, Decision::Unsafe, Decision::Held]
        {
            assert_eq!(serde_json::to_string(&decision).unwrap(), format!("{:?}", Expected::from(decision).as_str()));
        }
    }

    #[test]
    fn the_forecast_adds_up() {
        let mut forecast = Forecast::default();
        for (n, expected) in (1..).zip(Expected::ALL) {
            *forecast.of(expected) = n;
        }
        assert_eq!((forecast.total(), forecast.would_change(), forecast.would_send()), (28, 15, 3));
    }

    #[test]
    fn only_what_is_held_and_not_at_work_can_be_waived_once_and_with_a_reason() {
        let waiver = |check, verdict: &str, reason: &str| Waiver { check, verdict: verdict.into(), reason: reason.into() };
        let fault = |waivers: &[Waiver]| check_waivers(waivers).unwrap_err().to_string();
        let good = waiver(Check::Idempotency, "not_configured", "looked at each");
        assert_eq!(check_waivers(std::slice::from_ref(&good)), Ok(()));
        assert!(fault(&[waiver(Check::Idempotency, "in_progress", "x")]).contains("use could_not_check, unprovable, not_configured"));
        assert!(fault(&[waiver(Check::Idempotency, "unsafe", "x")]).contains("no verdict \"unsafe\" that can be waived"));
        assert!(fault(&[waiver(Check::Schema, "incompatible", "x")]).contains("use could_not_check, not_configured"));
        assert!(fault(&[waiver(Check::Schema, "not_configured", " \u{200b} ")]).contains("needs a reason"));
        assert!(fault(&[good.clone(), good]).contains("twice"));
    }

    #[test]
    fn the_quorum_grows_with_size_and_waivers() {
        let terms = ApprovalTerms { quorum: 1, large_batch: 1_000, large_quorum: 2, ..ApprovalTerms::default() };
        let of = |items, waivers, emergency| quorum(&terms, items, waivers, emergency);
        assert_eq!((of(1, false, false), of(999, false, false), of(1_000, false, false)), (1, 1, 2));
        assert_eq!((of(1, true, false), of(1_000, true, false), of(200, false, true)), (2, 3, 1));
        let odd = ApprovalTerms { quorum: 3, large_quorum: 2, ..terms };
        assert_eq!(quorum(&odd, 5_000, false, false), 3, "a large batch never needs fewer");
    }

    #[test]
    fn names_from_headers_do_not_grow_the_tally_without_end() {
        let mut tally = Tally::default();
        for n in 0..1_000 {
            tally.left_out(Some(&format!("topic-{n}")), 1);
        }
        tally.left_out(None, 1);
        assert!(tally.other_origins.len() <= ORIGINS_KEPT + 1);
        assert_eq!(tally.other_origins.values().sum::<u64>(), 1_001);
    }
}
