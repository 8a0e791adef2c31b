//! Look-ups that join no consumer group and change nothing. All calls block up to their time-out: call them from `spawn_blocking`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::KafkaError;
use crate::domain::record::Record;
use crate::domain::settings::ClusterSettings;

/// A topic as the cluster lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    pub name: String,
    pub partitions: i32,
}

/// Topic and partition.
pub type TopicPartition = (String, i32);

/// The two ends of a partition's log at `read_committed`: the first offset that exists and the last stable offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnds {
    pub start: i64,
    pub end: i64,
}

/// The retention of a topic as the broker tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Records are deleted this many ms after their timestamp.
    Ms(i64),
    /// Never deleted by time.
    Unlimited,
    /// The broker refuses to tell (no DescribeConfigs).
    NotPermitted,
    /// The broker cannot be asked (the in-process one does not know the request).
    Unknown,
}

/// A client for look-ups in one cluster.
pub struct Inspector {
    _private: (),
}

impl Inspector {
    pub fn connect(_cluster: &ClusterSettings) -> Result<Inspector, KafkaError> {
        todo!()
    }
    /// All topics that the user may see, internal ones left out.
    pub fn topics(&self, _timeout: Duration) -> Result<Vec<TopicInfo>, KafkaError> {
        todo!()
    }
    /// Kafka's topic ids by name. A topic that does not exist is absent; a broker that gives no ids makes every value None.
    pub fn topic_ids(&self, _topics: &[String], _timeout: Duration) -> Result<BTreeMap<String, Option<String>>, KafkaError> {
        todo!()
    }
    /// Both ends of many partitions, asked in bulk (about 500 partitions a request; a failing partition spoils its chunk and is bisected out).
    pub fn log_ends(&self, _partitions: &[TopicPartition], _timeout: Duration) -> BTreeMap<TopicPartition, Result<LogEnds, KafkaError>> {
        todo!()
    }
    /// For each partition the first offset whose record is at or after `at_ms`; the end where there is none.
    pub fn offsets_at(
        &self,
        _partitions: &[TopicPartition],
        _at_ms: i64,
        _timeout: Duration,
    ) -> BTreeMap<TopicPartition, Result<i64, KafkaError>> {
        todo!()
    }
    /// `retention.ms` of each topic.
    pub fn retention(&self, _topics: &[String], _timeout: Duration) -> BTreeMap<String, Retention> {
        todo!()
    }
    /// The first record at or after `offset`, if one is there. Used rarely: the oldest uncollected record, the incarnation check.
    pub fn record_at(&self, _partition: &TopicPartition, _offset: i64, _timeout: Duration) -> Result<Option<Record>, KafkaError> {
        todo!()
    }
}
