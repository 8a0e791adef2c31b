//! How many: a canary first, then ten times more at each step, each step waiting until what went before is proven.

use crate::domain::replay::Progress;
use crate::store::replays::Batch;

/// What comes once all items of the steps so far have ended or been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing is left to send.
    Finish,
    /// Items of this step may go.
    Advance(i32),
    /// From now on it waits for the verification of what was sent.
    BeginToWait,
    Wait(String),
    /// A person has to say how it goes on.
    Pause(String),
}

/// Where a batch stands between two steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// Items of steps up to this one have gone.
    pub stage: i32,
    /// Since when it waits for the verification of what was sent.
    pub since_ms: Option<i64>,
    /// An approver said that it goes on without.
    pub unproven_allowed: bool,
    pub progress: &'a Progress,
}

impl<'a> From<&'a Batch> for Standing<'a> {
    fn from(batch: &'a Batch) -> Standing<'a> {
        let &Batch { stage, stage_since_ms: since_ms, unproven_allowed, ref progress, .. } = batch;
        Standing { stage, since_ms, unproven_allowed, progress }
    }
}

/// `next`: the first step of which items wait; `timeout_s`: how long a step may go without its proof.
pub(super) fn next(standing: Standing<'_>, next: Option<i32>, timeout_s: u64, now_ms: i64) -> Next {
    let Some(next) = next else { return Next::Finish };
    let Standing { stage, since_ms, unproven_allowed, progress } = standing;
    if next <= stage || unproven_allowed || (progress.pending() == 0 && progress.unproven == 0) {
        return Next::Advance(next.max(stage));
    }
    let step = step_words(stage);
    if progress.unproven > 0 {
        return Next::Pause(format!(
            "{step} is not proven: {}. Look at its messages; then stop, or continue unproven (an approver, with a reason).",
            proof_words(progress)
        ));
    }
    let Some(since) = since_ms else { return Next::BeginToWait };
    let timeout_ms = i64::try_from(timeout_s.saturating_mul(1_000)).unwrap_or(i64::MAX);
    if now_ms.saturating_sub(since) >= timeout_ms {
        return Next::Pause(format!(
            "{step} was not proven within {timeout_s} s: {}. Stop, or continue unproven (an approver, with a reason).",
            proof_words(progress)
        ));
    }
    Next::Wait(format!("{step} is sent; the rest waits until it is proven"))
}

fn step_words(stage: i32) -> String {
    if stage == 0 { "The canary".to_owned() } else { format!("Step {}", stage + 1) }
}

fn proof_words(progress: &Progress) -> String {
    let confirmed = progress.confirmed_ledger + progress.confirmed_offset;
    let of = |count: i64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let parts = [
        Some(format!("of {} sent {confirmed} confirmed", progress.sent)),
        of(progress.returned, "returned"),
        of(progress.unproven, "not confirmed in time"),
        of(progress.pending(), "still waiting"),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Progress = Progress {
        items: 100,
        checked: 100,
        sent: 10,
        sent_unchecked: 0,
        already_applied: 0,
        archived: 0,
        held: 0,
        blocked: 0,
        not_sent: 0,
        confirmed_ledger: 0,
        confirmed_offset: 0,
        returned: 0,
        unproven: 0,
    };

    fn after(progress: Progress, since_ms: Option<i64>, unproven_allowed: bool) -> Next {
        next(Standing { stage: 0, since_ms, unproven_allowed, progress: &progress }, Some(1), 60, 100_000)
    }

    #[test]
    fn a_step_waits_for_its_proof_and_pauses_without() {
        assert_eq!(after(SENT, None, false), Next::BeginToWait);
        assert!(matches!(after(SENT, Some(40_001), false), Next::Wait(_)));
        let Next::Pause(why) = after(SENT, Some(40_000), false) else { panic!("60 s are over") };
        assert!(why.contains("of 10 sent 0 confirmed, 10 still waiting"), "{why}");
        assert_eq!(after(SENT, Some(0), true), Next::Advance(1));
        assert_eq!(after(Progress { confirmed_ledger: 4, confirmed_offset: 5, returned: 1, ..SENT }, None, false), Next::Advance(1));
    }

    #[test]
    fn unproven_is_no_proof() {
        let Next::Pause(why) = after(Progress { confirmed_ledger: 9, unproven: 1, ..SENT }, None, false) else {
            panic!("one is not proven")
        };
        assert!(why.contains("9 confirmed, 1 not confirmed in time"), "{why}");
    }

    #[test]
    fn a_step_that_sent_nothing_needs_no_proof_and_the_last_ends() {
        assert_eq!(after(Progress { sent: 0, held: 10, ..SENT }, None, false), Next::Advance(1));
        let standing = Standing { stage: 2, since_ms: None, unproven_allowed: false, progress: &SENT };
        assert_eq!(next(standing, None, 60, 0), Next::Finish);
        assert_eq!(next(standing, Some(1), 60, 0), Next::Advance(2), "what goes once more does not set the step back");
    }
}
