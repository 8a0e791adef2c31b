//! What a topic that is to be sent to is like.

use std::time::Duration;

use super::client::KafkaError;
use super::inspect::Inspector;

/// A topic as it is now. What this broker, or this user's permissions, do not tell is None.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// Kafka's own; another one under the same name means that the topic was deleted and made again.
    pub id: Option<String>,
    pub partitions: i32,
    /// Its `cleanup.policy` names `compact`: what was sent there may vanish.
    pub compacted: Option<bool>,
    /// `max.message.bytes`: the largest batch of records that the topic takes.
    pub max_message_bytes: Option<usize>,
}

impl Inspector {
    /// Looks a topic up; None: there is none of that name. Nothing is created by asking. Blocks up to `timeout`.
    ///
    /// # Errors
    /// No broker answers, or the topic may not be described. A configuration that may not be read is no error: it is not known.
    pub fn target(&self, topic: &str, timeout: Duration) -> Result<Option<Target>, KafkaError> {
        let asked = [topic.to_owned()];
        let Some(partitions) = self.topics(timeout)?.into_iter().find(|found| found.name == topic).map(|found| found.partitions) else {
            return Ok(None);
        };
        let Some(id) = self.topic_ids(&asked, timeout)?.remove(topic) else { return Ok(None) };
        let config = self.config_of(topic, timeout);
        let compacted = config.get("cleanup.policy").map(|policy| policy.split(',').any(|word| word.trim() == "compact"));
        let max_message_bytes = config.get("max.message.bytes").and_then(|bytes| bytes.parse().ok());
        Ok(Some(Target { name: topic.to_owned(), id, partitions, compacted, max_message_bytes }))
    }
}
