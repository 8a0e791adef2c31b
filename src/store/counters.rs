//! Exact counts without `COUNT(*)`: transactions append to `counter_deltas`, a folder sums them into `counters`, readers add both.

use super::{Store, StoreError};
use std::collections::BTreeMap;

/// What the counters say of one DLQ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DlqCounts {
    /// Messages by state word; a missing state is zero (counters start with the DLQ).
    pub by_state: BTreeMap<String, i64>,
    /// Archived messages whose follow-up is open.
    pub follow_up_open: i64,
}

/// A counter that differs from the rows it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterDrift {
    pub dlq_id: i64,
    pub counter: String,
    pub counted: i64,
    pub actual: i64,
}

impl DlqCounts {
    /// Messages not yet replayed or archived.
    pub fn depth(&self) -> i64 {
        use crate::domain::message::MessageState;
        MessageState::ALL.iter().filter(|s| s.is_open()).filter_map(|s| self.by_state.get(s.as_str())).sum()
    }
}

impl Store {
    /// Counts of every DLQ by id.
    pub async fn dlq_counts(&self) -> Result<BTreeMap<i64, DlqCounts>, StoreError> {
        todo!()
    }
    /// Arrivals of each DLQ with dead-lettered time in `[from, to)` ms, by bucket of `bucket_ms` (a multiple of 60,000): (dlq id, bucket start, count). Buckets without arrivals are absent.
    pub async fn arrivals(
        &self,
        _dlq_id: Option<i64>,
        _from_ms: i64,
        _to_ms: i64,
        _bucket_ms: i64,
    ) -> Result<Vec<(i64, i64, i64)>, StoreError> {
        todo!()
    }
    /// Oldest open message of each DLQ: (dlq id, min dead_lettered_at_ms, min origin_at_ms of the open ones where known).
    pub async fn oldest_open(&self) -> Result<Vec<(i64, i64, Option<i64>)>, StoreError> {
        todo!()
    }
    /// Folds at most `limit` deltas. Returns how many; call again while it returns `limit`.
    pub async fn fold_counters(&self, _limit: i64) -> Result<i64, StoreError> {
        todo!()
    }
    /// Compares the counters of one DLQ with its rows (a full count: never on a page's path).
    pub async fn check_counters(&self, _dlq_id: i64) -> Result<Vec<CounterDrift>, StoreError> {
        todo!()
    }
}
