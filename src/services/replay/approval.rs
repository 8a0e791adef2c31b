//! Deciding about a proposal.

use super::{ReplayError, Replays};
use crate::domain::access::{OwnerScope, Role};
use crate::domain::audit::By;
use crate::store::replays::Batch;

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decider {
    pub by: By,
    /// The name without letter case and look-alike forms.
    pub folded: String,
    pub role: Role,
    pub scope: OwnerScope,
}

impl Replays {
    /// Approves a proposal as its digest was shown. The batch starts within one tick once its quorum is there.
    ///
    /// # Errors
    /// Forbidden: the proposer themself, in whatever letter case, or another owner's. Conflict: decided already (the text names by whom), changed since, or expired.
    pub async fn approve(
        &self,
        _who: &Decider,
        _batch_id: i64,
        _digest: &str,
        _ticked: &[usize],
        _comment: Option<&str>,
    ) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// Rejects a proposal.
    ///
    /// # Errors
    /// As [`Replays::approve`]; the reason is missing.
    pub async fn reject(&self, _who: &Decider, _batch_id: i64, _reason: &str) -> Result<Batch, ReplayError> {
        todo!()
    }
}
