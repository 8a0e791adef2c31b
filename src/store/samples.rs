//! What the sampler saw, and when it could not see. Unknown is a state, never zero.

use super::positions::PartitionId;
use super::{Store, StoreError};

/// One look at one DLQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub dlq_id: i64,
    pub at_ms: i64,
    /// None: some partition could not be asked.
    pub uncollected: Option<i64>,
    pub depth: Option<i64>,
    /// all_stored | at_risk | not_permitted | unlimited | unknown
    pub at_risk_state: String,
    /// ms until the oldest uncollected record expires; only with at_risk.
    pub at_risk_left_ms: Option<i64>,
    /// Why it failed, short and without secrets; None when it succeeded.
    pub error: Option<String>,
}

/// The newest look at one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSample {
    pub id: PartitionId,
    pub at_ms: i64,
    pub position: Option<i64>,
    pub log_start: Option<i64>,
    pub log_end: Option<i64>,
    pub error: Option<String>,
}

impl Store {
    /// Appends samples and replaces the newest partition samples, in one transaction.
    pub async fn save_samples(&self, _samples: &[Sample], _partitions: &[PartitionSample]) -> Result<(), StoreError> {
        todo!()
    }
    /// The newest sample of each DLQ and the newest one that succeeded: (newest, newest successful).
    pub async fn latest_samples(&self) -> Result<Vec<(Sample, Option<Sample>)>, StoreError> {
        todo!()
    }
    /// Samples of one DLQ in `[from, to)`, oldest first.
    pub async fn samples(&self, _dlq_id: i64, _from_ms: i64, _to_ms: i64) -> Result<Vec<Sample>, StoreError> {
        todo!()
    }
    pub async fn partition_samples(&self, _dlq_id: i64) -> Result<Vec<PartitionSample>, StoreError> {
        todo!()
    }
    /// Thins samples older than `before_ms` to one per DLQ and hour, at most `limit` rows a call. Returns how many went.
    pub async fn thin_samples(&self, _before_ms: i64, _limit: i64) -> Result<u64, StoreError> {
        todo!()
    }
}
