//! How far intake has read each partition, who may move that position, and the gaps that reading had to step over.

use super::{Store, StoreError};

/// Identifies a partition of one life of a DLQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    pub dlq_id: i64,
    pub incarnation: i32,
    pub partition: i32,
}

/// A stored position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub id: PartitionId,
    /// The next offset to read.
    pub next_offset: i64,
    /// Every claim raises it; a write that names an older one fails.
    pub owner_epoch: i64,
    pub updated_at_ms: i64,
}

/// Why offsets were stepped over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapKind {
    /// The log start is past our position: up to that many records were lost to retention.
    Retention,
    /// Our position is past the end of the same topic: the log was truncated.
    Truncation,
}

/// Offsets that intake could not read: `[from_offset, to_offset)`; for a truncation from the old position back to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub id: PartitionId,
    pub kind: GapKind,
    pub from_offset: i64,
    pub to_offset: i64,
    pub noticed_at_ms: i64,
}

impl Store {
    /// Makes the position if there is none. Returns whether it was made.
    pub async fn ensure_position(&self, _id: PartitionId, _next_offset: i64, _now_ms: i64) -> Result<bool, StoreError> {
        todo!()
    }
    /// Takes the partition over: raises the epoch and returns the position, or None if there is no position row.
    pub async fn claim_position(&self, _id: PartitionId, _now_ms: i64) -> Result<Option<Position>, StoreError> {
        todo!()
    }
    /// Positions of the newest incarnation of every DLQ, or of one.
    pub async fn positions(&self, _dlq_id: Option<i64>) -> Result<Vec<Position>, StoreError> {
        todo!()
    }
    /// Records the gap and moves the position over it, in one transaction, if epoch and expected offset still hold. False: they do not, nothing was written.
    pub async fn step_over_gap(&self, _gap: &Gap, _owner_epoch: i64, _expected_offset: i64) -> Result<bool, StoreError> {
        todo!()
    }
    /// Newest first, at most `limit`.
    pub async fn gaps(&self, _dlq_id: i64, _limit: i64) -> Result<Vec<Gap>, StoreError> {
        todo!()
    }
}
