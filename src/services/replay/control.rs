//! Pausing, going on, stopping, slowing down.

use super::approval::Decider;
use super::{ReplayError, Replays};
use crate::store::replays::Batch;

impl Replays {
    /// Pauses an executing batch; the executor stops within a second.
    ///
    /// # Errors
    /// It is not executing, or not in the person's scope.
    pub async fn pause(&self, _who: &Decider, _batch_id: i64) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// Goes on with a paused batch. `unproven`: although its canary is not proven; an approver only, with a reason. A halted batch, or one whose plan does not
    /// hold any more, is a conflict: it goes back to a draft by [`Replays::reopen`].
    ///
    /// # Errors
    /// As [`Replays::pause`].
    pub async fn resume(&self, _who: &Decider, _batch_id: i64, _unproven: Option<&str>) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// Stops a batch for good: what is not sent goes back to review, what was sent is still verified.
    ///
    /// # Errors
    /// As [`Replays::pause`].
    pub async fn stop(&self, _who: &Decider, _batch_id: i64, _reason: Option<&str>) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// A halted batch, or a proposal whose plan does not hold any more, becomes a draft again and is preflighted anew.
    ///
    /// # Errors
    /// As [`Replays::pause`].
    pub async fn reopen(&self, _who: &Decider, _batch_id: i64) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// Lowers the pace. Raising it would void the approval and is refused.
    ///
    /// # Errors
    /// As [`Replays::pause`]; the pace is not lower.
    pub async fn slow_down(&self, _who: &Decider, _batch_id: i64, _max_per_second: u32) -> Result<Batch, ReplayError> {
        todo!()
    }
}
