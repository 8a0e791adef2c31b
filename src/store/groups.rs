//! Failure groups: messages with one fingerprint.

use super::{Store, StoreError};
use crate::domain::classify::FailureClass;

/// A failure group with its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: i64,
    pub dlq_id: i64,
    pub cluster: String,
    pub topic: String,
    pub fingerprint: String,
    pub class: FailureClass,
    pub consumer_group: Option<String>,
    pub exception_class: Option<String>,
    pub normalised_text: String,
    pub top_frame: Option<String>,
    /// Messages of it that count towards depth.
    pub open: i64,
    /// Messages of it ever taken in.
    pub total: i64,
    /// By dead-lettered time, ms; None only for a group whose first batch was thrown away.
    pub first_at_ms: Option<i64>,
    pub last_at_ms: Option<i64>,
}

impl Store {
    /// The groups of a DLQ, most open messages first.
    pub async fn groups(&self, _dlq_id: i64, _limit: i64) -> Result<Vec<Group>, StoreError> {
        todo!()
    }
    pub async fn group(&self, _id: i64) -> Result<Option<Group>, StoreError> {
        todo!()
    }
}
