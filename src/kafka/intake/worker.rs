//! The intake thread: carries out commands, polls, gathers batches, hands them over.
//!
//! It never waits for anything but Kafka for longer than a second, and for that second it is the queue to the async side that is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError as RdkafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc::Sender;

use super::callbacks::Callbacks;
use super::desk::{Desk, Flow, Handover, Link, POLL};
use super::{BatchLimits, IntakeCommand, IntakeEvent};
use crate::kafka::client::KafkaError;
use crate::kafka::ffi;
use crate::kafka::inspect::TopicPartition;

/// A full queue is waited for this long before the partitions are paused: pausing throws away what was fetched ahead.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long librdkafka's own thread may take to answer a seek.
const SEEK_TIMEOUT: Duration = Duration::from_millis(500);
/// After so many refused seeks the partition's fetcher is not late but stopped (after an offset reset), and only a new assignment starts it.
const SEEKS: u32 = 10;
/// While no broker answers, or none has yet, this often is tried whether one does.
const PROBE: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often positions are told to Kafka.
const COMMIT: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    consumer: BaseConsumer<Callbacks>,
    commands: Receiver<IntakeCommand>,
    stop: Arc<AtomicBool>,
    desk: Desk,
}

impl Worker {
    pub fn new(
        consumer: BaseConsumer<Callbacks>,
        limits: BatchLimits,
        commands: Receiver<IntakeCommand>,
        events: Sender<IntakeEvent>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let desk = Desk::new(limits, events);
        Worker { consumer, commands, stop, desk }
    }

    /// Runs until told to stop, until nobody listens, or until librdkafka declares the client dead.
    pub fn run(mut self) {
        let fatal = loop {
            if self.stop.load(Ordering::Relaxed) {
                break None;
            }
            self.obey();
            self.start_partitions();
            self.commit();
            self.probe();
            let round = match self.desk.hand_over() {
                Handover::Gone => break None,
                Handover::Full => self.wait(),
                Handover::Done => {
                    self.release();
                    self.gather()
                }
            };
            if let Err(error) = round {
                break Some(error);
            }
        };
        self.end(fatal);
    }

    fn end(self, fatal: Option<KafkaError>) {
        let Worker { consumer, desk, stop, .. } = self;
        // Leaves the group; the partitions go to the others at once.
        drop(consumer);
        if !stop.load(Ordering::Relaxed) {
            for event in desk.outbox {
                let _ = desk.events.blocking_send(event);
            }
            let _ = desk.events.blocking_send(IntakeEvent::Stopped(fatal));
        }
    }

    // ---------------------------------------------------------------------------------------------------------- commands

    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                IntakeCommand::Subscribe(topics) => self.subscribe(&topics),
                IntakeCommand::Start { partition, offset, generation } => {
                    let next_try = self.desk.clock.monotonic();
                    self.desk.set_flow(&partition, Flow::Starting { offset: offset.max(0), generation, tries: 0, next_try });
                }
                IntakeCommand::Pause(partition) => {
                    if self.desk.set_flow(&partition, Flow::Waiting) {
                        let paused = self.consumer.pause(&list([(&partition, Offset::Invalid)]));
                        self.note(paused);
                    }
                }
                IntakeCommand::Committed { partition, position } => {
                    if self.desk.partition(&partition).is_some() {
                        self.desk.to_commit.insert(partition, position);
                    }
                }
            }
        }
    }

    fn subscribe(&mut self, topics: &[String]) {
        // A leading ^ would make it a pattern to librdkafka; neither is in any topic's name.
        let names: Vec<&str> = topics.iter().map(String::as_str).filter(|name| !name.starts_with('^') && !name.contains('\0')).collect();
        if names.is_empty() {
            self.consumer.unsubscribe();
        } else {
            let subscribed = self.consumer.subscribe(&names);
            self.note(subscribed);
        }
    }

    /// An error of a call that changes nothing for us: told, and that is all.
    fn note(&mut self, result: Result<(), RdkafkaError>) {
        if let Err(error) = result {
            let error = self.consumer.context().reporter.rdkafka_error(&error);
            self.desk.outbox.push_back(IntakeEvent::Error(error));
        }
    }

    /// Seeks in all partitions that wait for it, and resumes those where it went through.
    fn start_partitions(&mut self) {
        let now = self.desk.clock.monotonic();
        let due: Vec<(TopicPartition, i64)> = self.desk.due_to_start(now);
        if due.is_empty() {
            return;
        }
        let seeks = list(due.iter().map(|(partition, offset)| (partition, Offset::Offset(*offset))));
        let sought = match self.consumer.seek_partitions(seeks, SEEK_TIMEOUT) {
            Ok(sought) => sought,
            Err(error) => {
                tracing::debug!(%error, "seeking did not go through; trying again");
                self.desk.try_later(due.iter().map(|(partition, _)| partition), now);
                return;
            }
        };
        let (started, refused): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|((topic, number), _)| sought.find_partition(topic, *number).is_some_and(|element| element.error().is_ok()));
        self.desk.try_later(refused.iter().map(|(partition, _)| partition), now);
        let stuck: Vec<_> = refused.into_iter().filter(|(partition, _)| self.desk.tries(partition).is_multiple_of(SEEKS)).collect();
        self.assign_again(&stuck);
        let started: Vec<_> = started.into_iter().map(|(partition, _)| partition).collect();
        for partition in &started {
            self.desk.started(partition);
        }
        if !self.desk.held_back && !started.is_empty() {
            let resumed = self.consumer.resume(&list(started.iter().map(|partition| (partition, Offset::Invalid))));
            self.note(resumed);
        }
    }

    /// Takes partitions out of the assignment and back in: what starts a fetcher that an offset reset has stopped. They are sought in all
    /// the same afterwards: librdkafka forgets the old position only when the fetcher is through with stopping, or in a seek.
    fn assign_again(&mut self, partitions: &[(TopicPartition, i64)]) {
        if partitions.is_empty() {
            return;
        }
        let assignment = list(partitions.iter().map(|(partition, offset)| (partition, Offset::Offset(*offset))));
        let done = self.consumer.incremental_unassign(&assignment).and_then(|()| self.consumer.incremental_assign(&assignment));
        self.note(done);
    }

    fn commit(&mut self) {
        let now = self.desk.clock.monotonic();
        if self.desk.to_commit.is_empty() || now < self.desk.committed_at + COMMIT {
            return;
        }
        self.desk.committed_at = now;
        let positions = std::mem::take(&mut self.desk.to_commit);
        let positions = list(positions.iter().map(|(partition, position)| (partition, Offset::Offset(*position))));
        if let Err(error) = self.consumer.commit(&positions, CommitMode::Async) {
            tracing::debug!(%error, "Kafka did not take the group's positions");
        }
    }

    // -------------------------------------------------------------------------------------------------------------- link

    /// librdkafka tells when the last broker went away and not when one is back: as long as none is known to be up, ask.
    fn probe(&mut self) {
        let now = self.desk.clock.monotonic();
        if self.desk.link == Link::Up || now < self.desk.probed_at + PROBE {
            return;
        }
        if ffi::any_broker_answers(&self.consumer, PROBE_TIMEOUT).is_ok() {
            self.desk.link_is_up();
        }
        self.desk.probed_at = self.desk.clock.monotonic();
    }

    // ------------------------------------------------------------------------------------------------------ flow of records

    /// The queue is full. At first this thread just waits; then it pauses everything and polls, which keeps it in the group.
    fn wait(&mut self) -> Result<(), KafkaError> {
        let now = self.desk.clock.monotonic();
        let since = *self.desk.full_since.get_or_insert(now);
        if now.saturating_sub(since) < PATIENCE {
            // Ends at once when an event is taken: `next_event` unparks.
            std::thread::park_timeout(POLL);
            return Ok(());
        }
        if !self.desk.held_back {
            self.desk.held_back = true;
            let reading = self.desk.reading();
            if !reading.is_empty() {
                let paused = self.consumer.pause(&list(reading.iter().map(|partition| (partition, Offset::Invalid))));
                self.note(paused);
            }
        }
        self.poll(POLL).map(|_| ())
    }

    /// There is room again: go on where each partition stood.
    fn release(&mut self) {
        self.desk.full_since = None;
        if !std::mem::take(&mut self.desk.held_back) {
            return;
        }
        let reading = self.desk.reading();
        if !reading.is_empty() {
            let resumed = self.consumer.resume(&list(reading.iter().map(|partition| (partition, Offset::Invalid))));
            self.note(resumed);
        }
    }

    /// Polls until a batch is due, and puts it into the outbox; returns at the latest after one wait.
    fn gather(&mut self) -> Result<(), KafkaError> {
        let mut wait = self.desk.time_to_wait();
        while !self.desk.is_full() && self.poll(wait)? {
            wait = Duration::ZERO;
        }
        if self.desk.is_due() {
            self.finish_batch();
        }
        Ok(())
    }

    /// One poll. True if a record came, so that another may be waiting.
    fn poll(&mut self, wait: Duration) -> Result<bool, KafkaError> {
        let came = match self.consumer.poll(wait) {
            Some(Ok(message)) => {
                self.desk.take_in(&message);
                true
            }
            Some(Err(RdkafkaError::MessageConsumptionFatal(code))) => {
                let reason = self.consumer.client().fatal_error().map_or_else(|| code.to_string(), |(_, reason)| reason);
                return Err(self.consumer.context().reporter.kafka_error(code, &reason));
            }
            // Other errors came with their reason to the callbacks. Another record may be waiting behind this one.
            Some(Err(_)) => true,
            None => false,
        };
        if self.consumer.context().take_end_reached() {
            self.desk.look_around();
        }
        if self.consumer.context().take_news() {
            self.handle_news();
            return Ok(false);
        }
        Ok(came)
    }

    fn finish_batch(&mut self) {
        let partitions = self.desk.choose_partitions();
        let mut positions = list(partitions.iter().map(|partition| (partition, Offset::Invalid)));
        if !partitions.is_empty()
            && let Err(failure) = ffi::fill_positions(&self.consumer, &mut positions)
        {
            tracing::debug!(reason = failure.reason, "positions could not be read");
        }
        let positions = positions.elements().into_iter().map(|element| match element.offset() {
            Offset::Offset(position) => Some(position),
            _ => None,
        });
        let batch = self.desk.batch(partitions.into_iter().zip(positions));
        if !batch.partitions.is_empty() {
            self.desk.outbox.push_back(IntakeEvent::Batch(batch));
        }
    }

    // -------------------------------------------------------------------------------------------------------------- news

    fn handle_news(&mut self) {
        let context = self.consumer.context();
        for rebalance in context.take_rebalances() {
            self.desk.rebalance(rebalance);
        }
        for trouble in context.reporter.take_troubles() {
            let error = context.reporter.kafka_error(trouble.code, &trouble.reason);
            self.desk.trouble(&trouble, error);
        }
    }
}

/// A list for librdkafka. Offsets here are ours and can always be represented.
fn list<'a>(partitions: impl IntoIterator<Item = (&'a TopicPartition, Offset)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for ((topic, partition), offset) in partitions {
        let mut element = list.add_partition(topic, *partition);
        let _ = element.set_offset(offset);
    }
    list
}
