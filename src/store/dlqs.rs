//! DLQs and their incarnations.

use super::{Store, StoreError};

/// One dead-letter topic in one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dlq {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    /// The newest incarnation, counting from 1.
    pub incarnation: i32,
    /// Kafka's topic id of the newest incarnation, where the broker gives one.
    pub topic_id: Option<String>,
    pub owner: Option<String>,
    pub first_seen_at_ms: i64,
    /// Set while the topic does not exist in the cluster.
    pub gone_since_ms: Option<i64>,
    /// What `start` left out, in words for the page ("records before 2026-11-23T00:00:00Z were not taken in"); None when nothing was.
    pub start_note: Option<String>,
}

/// One life of a topic under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    pub incarnation: i32,
    pub topic_id: Option<String>,
    pub started_at_ms: i64,
}

impl Store {
    /// Finds the DLQ or makes it (incarnation 1). The flag says whether it was made now.
    pub async fn ensure_dlq(
        &self,
        _cluster: &str,
        _topic: &str,
        _topic_id: Option<&str>,
        _owner: Option<&str>,
        _now_ms: i64,
    ) -> Result<(Dlq, bool), StoreError> {
        todo!()
    }
    /// Sets the topic id of the current incarnation where none was known yet (an upgraded broker). Returns false if one is set already.
    pub async fn learn_topic_id(&self, _dlq_id: i64, _incarnation: i32, _topic_id: &str) -> Result<bool, StoreError> {
        todo!()
    }
    /// Starts incarnation `expected + 1` if the newest still is `expected`. None: someone else was first.
    pub async fn start_incarnation(
        &self,
        _dlq_id: i64,
        _expected: i32,
        _topic_id: Option<&str>,
        _now_ms: i64,
    ) -> Result<Option<i32>, StoreError> {
        todo!()
    }
    /// Sets owner (from the configuration) and start note.
    pub async fn describe_dlq(&self, _dlq_id: i64, _owner: Option<&str>, _start_note: Option<&str>) -> Result<(), StoreError> {
        todo!()
    }
    /// `Some(now)`: the topic is gone since then (kept if already set). `None`: it exists.
    pub async fn set_gone(&self, _dlq_id: i64, _since_ms: Option<i64>) -> Result<(), StoreError> {
        todo!()
    }
    /// All DLQs ever seen, by cluster and topic.
    pub async fn dlqs(&self) -> Result<Vec<Dlq>, StoreError> {
        todo!()
    }
    pub async fn dlq(&self, _cluster: &str, _topic: &str) -> Result<Option<Dlq>, StoreError> {
        todo!()
    }
    pub async fn incarnations(&self, _dlq_id: i64) -> Result<Vec<Incarnation>, StoreError> {
        todo!()
    }
}
