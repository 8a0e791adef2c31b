//! The intake consumer: a `BaseConsumer` on a thread of its own. It decides nothing: it reports assignments, batches and errors as
//! events, and does what it is told by commands. A partition is assigned paused and delivers nothing until told where to start.

use std::collections::BTreeMap;

use super::client::KafkaError;
use super::inspect::TopicPartition;
use crate::domain::record::Record;
use crate::domain::settings::ClusterSettings;

/// What the consumer tells.
#[derive(Debug)]
pub enum IntakeEvent {
    /// Newly assigned, paused. Answer each with [`IntakeCommand::Start`].
    Assigned(Vec<TopicPartition>),
    /// No longer ours; nothing more will come from them.
    Revoked(Vec<TopicPartition>),
    /// Records and new positions of one or several partitions.
    Batch(Batch),
    /// librdkafka had no valid offset for some partition (it does not say which) and stopped fetching it: compare all positions with the ends.
    OffsetReset,
    /// All brokers are down, or the first answered again.
    Connection { up: bool, reason: Option<KafkaError> },
    /// Anything else that a person should see; consumption goes on.
    Error(KafkaError),
    /// The thread ended for good.
    Stopped(Option<KafkaError>),
}

/// What was read since the last batch.
#[derive(Debug, Default)]
pub struct Batch {
    pub partitions: BTreeMap<TopicPartition, PartitionRead>,
}

/// One partition's share of a batch.
#[derive(Debug)]
pub struct PartitionRead {
    /// The generation of the `Start` it follows; older ones are to be thrown away.
    pub generation: u64,
    pub records: Vec<Record>,
    /// `position()` after the last poll: steps over transaction markers, so it may lie past the last record + 1.
    pub position: i64,
}

/// What the consumer is told.
#[derive(Debug)]
pub enum IntakeCommand {
    /// The topics to read, all of them each time.
    Subscribe(Vec<String>),
    /// Read this partition from here; what was read under an older generation is void.
    Start { partition: TopicPartition, offset: i64, generation: u64 },
    /// Stop delivering a partition until the next `Start`.
    Pause(TopicPartition),
}

/// Bounds of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    pub records: usize,
    pub bytes: usize,
    /// A batch that has anything in it is delivered after this time at the latest.
    pub linger: std::time::Duration,
}

/// A running intake consumer. Dropping it leaves the group and ends the thread.
pub struct IntakeConsumer {
    _private: (),
}

impl IntakeConsumer {
    /// Starts the thread. Works while no broker is up: it connects when one is.
    pub fn start(_cluster: &ClusterSettings, _limits: BatchLimits) -> Result<IntakeConsumer, KafkaError> {
        todo!()
    }
    /// The next event. Events wait in a short queue; while it is full the consumer pauses its partitions and keeps polling, so a slow database costs no membership.
    pub async fn next_event(&mut self) -> IntakeEvent {
        todo!()
    }
    pub fn command(&self, _command: IntakeCommand) {
        todo!()
    }
    /// Leaves the group and waits for the thread.
    pub async fn stop(self) {
        todo!()
    }
}
