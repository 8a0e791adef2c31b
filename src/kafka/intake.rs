//! The intake consumer: a `BaseConsumer` on a thread of its own. It decides nothing: it reports assignments, batches and errors as
//! events, and does what it is told by commands. A partition is assigned paused and delivers nothing until told where to start.
//!
//! The thread itself is in `worker`, what it keeps in `desk`, what librdkafka calls back in `callbacks`.

mod callbacks;
mod desk;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::client::{KafkaError, client_config, creation_error};
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
    /// In offset order, without gaps but those of the log itself. Empty when only transaction markers were passed.
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
    /// This position is in the database. Told to Kafka now and then for whoever watches the group's lag; nothing is ever read back from there.
    Committed { partition: TopicPartition, position: i64 },
}

/// Bounds of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    pub records: usize,
    /// Keys, values and headers together. A single larger record is a batch of its own.
    pub bytes: usize,
    /// A batch that has anything in it is delivered after this time at the latest.
    pub linger: std::time::Duration,
}

/// Batches and other events that wait for the async side; with the one being gathered and the one on hand, this bounds memory.
const EVENT_QUEUE: usize = 2;

/// A running intake consumer. Dropping it leaves the group and ends the thread.
pub struct IntakeConsumer {
    events: mpsc::Receiver<IntakeEvent>,
    commands: std::sync::mpsc::Sender<IntakeCommand>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl IntakeConsumer {
    /// Starts the thread. Works while no broker is up: it connects when one is.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] if librdkafka refuses a property.
    pub fn start(cluster: &ClusterSettings, limits: BatchLimits) -> Result<IntakeConsumer, KafkaError> {
        // New partitions of known topics show up at a metadata refresh; librdkafka's default is 5 minutes.
        let refresh_ms = cluster.discovery_interval_s.clamp(1, 3600).saturating_mul(1000).to_string();
        let tuned = [
            // Long enough for a hiccup, short enough that another instance goes on within 45 s of a death (with its lease of 15 s).
            ("session.timeout.ms", "10000"),
            ("topic.metadata.refresh.interval.ms", refresh_ms.as_str()),
            // What is fetched ahead, over all partitions: 16 MiB of values, at most some 20,000 records of a partition (each costs
            // librdkafka about 500 bytes besides). A partition's share of one answer is small, so that many partitions take turns;
            // a larger record still comes, alone.
            ("queued.max.messages.kbytes", "16384"),
            ("queued.min.messages", "20000"),
            ("fetch.message.max.bytes", "262144"),
            // How long a full queue is left alone: the default of a second would let it run empty.
            ("fetch.queue.backoff.ms", "20"),
        ];
        let ours = [
            ("group.id", cluster.group_id.as_str()),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("enable.partition.eof", "true"),
        ];
        let config = client_config(cluster, &tuned, &ours)?;
        let consumer = config.create_with_context(callbacks::Callbacks::new(cluster)).map_err(|error| creation_error(cluster, &error))?;
        let (event_sender, events) = mpsc::channel(EVENT_QUEUE);
        let (commands, command_receiver) = std::sync::mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = worker::Worker::new(consumer, limits, command_receiver, event_sender, Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name(format!("kafka-intake-{}", cluster.name))
            .spawn(move || worker.run())
            .map_err(|error| KafkaError::Other { cluster: cluster.name.clone(), reason: format!("no thread could be started: {error}") })?;
        Ok(IntakeConsumer { events, commands, stop, thread })
    }

    /// The next event. Events wait in a short queue; while it is full the consumer pauses its partitions and keeps polling, so a slow database costs no membership.
    /// After [`IntakeEvent::Stopped`] nothing else comes but that.
    pub async fn next_event(&mut self) -> IntakeEvent {
        let event = self.events.recv().await.unwrap_or(IntakeEvent::Stopped(None));
        self.thread.thread().unpark();
        event
    }

    /// Takes effect within some 50 ms. Commands are carried out in order; those to partitions that are not ours are forgotten.
    pub fn command(&self, command: IntakeCommand) {
        // The thread is gone: `next_event` says so.
        let _ = self.commands.send(command);
        self.thread.thread().unpark();
    }

    /// Leaves the group and waits for the thread.
    pub async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // The queue closes when the thread has left the group.
        while self.events.recv().await.is_some() {}
    }
}

impl Drop for IntakeConsumer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}
