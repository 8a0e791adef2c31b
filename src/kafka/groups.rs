//! Consumer groups, looked at from outside: who is in them and how far they have come. Nothing here joins one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::KafkaError;
use super::inspect::TopicPartition;
use crate::domain::settings::ClusterSettings;

/// A consumer group as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLook {
    /// Member ids. Empty: nobody reads.
    pub members: Vec<String>,
    /// The committed offset of each partition asked for; None: it has none.
    pub committed: BTreeMap<TopicPartition, Option<i64>>,
}

/// Members and committed offsets of a group. Blocks up to `timeout`: call it from `spawn_blocking`.
///
/// # Errors
/// No broker answers, or the group may not be described.
pub fn look(_cluster: &ClusterSettings, _group: &str, _partitions: &[TopicPartition], _timeout: Duration) -> Result<GroupLook, KafkaError> {
    todo!()
}

/// Groups that have members assigned to, or committed offsets in, this topic. Blocks up to `timeout`.
///
/// # Errors
/// No broker answers, or groups may not be listed.
pub fn readers_of(_cluster: &ClusterSettings, _topic: &str, _timeout: Duration) -> Result<Vec<String>, KafkaError> {
    todo!()
}
