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

/// `next`: the first step of which items wait; `timeout_s`: how long a step may go without its proof.
pub(super) fn next(batch: &Batch, next: Option<i32>, timeout_s: u64, now_ms: i64) -> Next {
    let Some(next) = next else { return Next::Finish };
    let progress = &batch.progress;
    if next <= batch.stage || batch.unproven_allowed || (progress.pending() == 0 && progress.unproven == 0) {
        return Next::Advance(next.max(batch.stage));
    }
    let step = step_words(batch.stage);
    if progress.unproven > 0 {
        return Next::Pause(format!(
            "{step} is not proven: {}. Look at its messages; then stop, or continue unproven (an approver, with a reason).",
            proof_words(progress)
        ));
    }
    let Some(since) = batch.stage_since_ms else { return Next::BeginToWait };
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
