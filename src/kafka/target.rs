//! What a topic that is to be sent to is like.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;

use super::client::KafkaError;
use super::ffi;
use super::inspect::{Inspector, is_unsupported};

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

/// Whether this user may do with a topic what a replay does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rights {
    /// There is no such topic, or this user may not describe it: a broker does not tell the two apart.
    NotSeen,
    /// It is there; what may be done with it, this broker does not tell (before Kafka 2.3).
    NotTold,
    Told {
        write: bool,
        describe_configs: bool,
    },
}

impl Inspector {
    /// What this user may do with each of these topics. Nothing is written to find out: the broker is asked. Blocks up to `timeout`.
    ///
    /// # Errors
    /// No broker answers.
    pub fn rights(&self, topics: &[String], timeout: Duration) -> Result<BTreeMap<String, Rights>, KafkaError> {
        let deadline = self.deadline(timeout);
        let listed = self.topics(timeout)?;
        let seen = |name: &String| listed.iter().any(|topic| topic.name == *name);
        let (seen, unseen): (Vec<String>, Vec<String>) = topics.iter().cloned().partition(seen);
        let mut rights: BTreeMap<String, Rights> = unseen.into_iter().map(|name| (name, Rights::NotSeen)).collect();
        if seen.is_empty() {
            return Ok(rights);
        }
        let told = match self.is_controlled(self.left(deadline))? {
            false => BTreeMap::new(),
            true => match self.answered(ffi::topic_rights(self.client(), &seen, self.left(deadline))) {
                Err(failure) if is_unsupported(failure.code) => BTreeMap::new(),
                told => told.map_err(|failure| self.error(&failure))?,
            },
        };
        for name in seen {
            let of_topic = match told.get(&name) {
                Some(Ok(Some(ffi::Rights { write, describe_configs }))) => {
                    Rights::Told { write: *write, describe_configs: *describe_configs }
                }
                Some(Err(failure)) if matches!(failure.code, Code::TopicAuthorizationFailed | Code::UnknownTopicOrPartition) => {
                    Rights::NotSeen
                }
                Some(Err(failure)) => return Err(self.error(failure)),
                Some(Ok(None)) | None => Rights::NotTold,
            };
            rights.insert(name, of_topic);
        }
        Ok(rights)
    }

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
