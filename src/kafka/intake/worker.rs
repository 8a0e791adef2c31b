//! The intake thread: carries out commands, polls, gathers batches, hands them over.
//!
//! It never waits for anything but Kafka for longer than a second, and for that second it is the queue to the async side that is full.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError as RdkafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::callbacks::{Callbacks, Rebalance};
use super::{Batch, BatchLimits, IntakeCommand, IntakeEvent, PartitionRead};
use crate::domain::clock::Clock;
use crate::domain::record::Record;
use crate::kafka::client::{KafkaError, Trouble};
use crate::kafka::ffi;
use crate::kafka::inspect::TopicPartition;

/// The longest wait in one poll: the delay with which a command is noticed.
const POLL: Duration = Duration::from_millis(50);
/// A full queue is waited for this long before the partitions are paused: pausing throws away what was fetched ahead.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long librdkafka's own thread may take to answer a seek.
const SEEK_TIMEOUT: Duration = Duration::from_millis(500);
/// A partition that was assigned just now cannot be sought in yet.
const SEEK_AGAIN: Duration = Duration::from_millis(50);
/// After so many refused seeks the partition's fetcher is not late but stopped (after an offset reset), and only a new assignment starts it.
const SEEKS: u32 = 10;
/// Positions are looked at this often even if nothing hints at a change.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// While no broker answers, or none has yet, this often is tried whether one does.
const PROBE: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_millis(250);
/// The same error is told again only after this time.
const REPEAT: Duration = Duration::from_secs(60);
/// How often positions are told to Kafka.
const COMMIT: Duration = Duration::from_secs(5);

/// What a partition is doing.
#[derive(Debug)]
enum Flow {
    /// Assigned, or told to pause: whatever still comes is thrown away.
    Waiting,
    /// Told where to start; the seek is not through.
    Starting {
        offset: i64,
        generation: u64,
        tries: u32,
        next_try: Duration,
    },
    Reading {
        generation: u64,
        reported: Option<i64>,
    },
}

/// One of our partitions.
#[derive(Debug)]
struct Partition {
    flow: Flow,
    gathered: Vec<Record>,
}

/// Topic, then partition: a record's place is found without copying its topic's name.
type Partitions = BTreeMap<String, BTreeMap<i32, Partition>>;

#[derive(Debug, PartialEq, Eq)]
enum Link {
    Unknown,
    Up,
    Down,
}

/// How handing over went.
enum Handover {
    Done,
    Full,
    Gone,
}

pub(super) struct Worker {
    consumer: BaseConsumer<Callbacks>,
    commands: Receiver<IntakeCommand>,
    stop: Arc<AtomicBool>,
    desk: Desk,
}

/// All that changes while records come in, apart from the consumer that lends them.
struct Desk {
    limits: BatchLimits,
    clock: Clock,
    events: Sender<IntakeEvent>,
    outbox: VecDeque<IntakeEvent>,
    partitions: Partitions,
    records: usize,
    bytes: usize,
    /// When the batch being gathered got its first record, or the first hint that a position moved.
    since: Option<Duration>,
    /// All positions are to be looked at, not only those of partitions with records.
    look_at_all: bool,
    looked_at: Duration,
    full_since: Option<Duration>,
    held_back: bool,
    link: Link,
    /// Why a connection broke; the "all brokers are down" that may follow does not say.
    explanation: Option<KafkaError>,
    probed_at: Duration,
    told: Vec<(Code, String, Duration)>,
    to_commit: BTreeMap<TopicPartition, i64>,
    committed_at: Duration,
}

impl Worker {
    pub fn new(
        consumer: BaseConsumer<Callbacks>,
        limits: BatchLimits,
        commands: Receiver<IntakeCommand>,
        events: Sender<IntakeEvent>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let desk = Desk {
            limits,
            clock: Clock::system(),
            events,
            outbox: VecDeque::new(),
            partitions: Partitions::new(),
            records: 0,
            bytes: 0,
            since: None,
            look_at_all: false,
            looked_at: Duration::ZERO,
            full_since: None,
            held_back: false,
            link: Link::Unknown,
            explanation: None,
            probed_at: Duration::ZERO,
            told: Vec::new(),
            to_commit: BTreeMap::new(),
            committed_at: Duration::ZERO,
        };
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
        let (mut started, mut stuck, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for (partition, offset) in due {
            let refused = sought.find_partition(&partition.0, partition.1).is_none_or(|element| element.error().is_err());
            match (refused, self.desk.tries(&partition) >= SEEKS) {
                (false, _) => started.push(partition),
                (true, true) => stuck.push((partition, offset)),
                (true, false) => later.push(partition),
            }
        }
        self.desk.try_later(later.iter(), now);
        self.assign_again(&stuck);
        started.extend(stuck.into_iter().map(|(partition, _)| partition));
        for partition in &started {
            self.desk.started(partition);
        }
        if !self.desk.held_back && !started.is_empty() {
            let resumed = self.consumer.resume(&list(started.iter().map(|partition| (partition, Offset::Invalid))));
            self.note(resumed);
        }
    }

    /// Takes partitions out of the assignment and back in at their offset: what starts a fetcher that an offset reset has stopped.
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
        let partitions = self.desk.to_look_at();
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

impl Desk {
    fn partition(&mut self, partition: &TopicPartition) -> Option<&mut Partition> {
        self.partitions.get_mut(partition.0.as_str())?.get_mut(&partition.1)
    }

    /// Changes what a partition does and throws away what was gathered of it. False if it is not ours.
    fn set_flow(&mut self, partition: &TopicPartition, flow: Flow) -> bool {
        let Some(ours) = self.partition(partition) else { return false };
        ours.flow = flow;
        let gathered = std::mem::take(&mut ours.gathered);
        self.forget(&gathered);
        true
    }

    fn forget(&mut self, gathered: &[Record]) {
        self.records -= gathered.len();
        self.bytes -= gathered.iter().map(Record::size).sum::<usize>();
    }

    fn all(&self) -> impl Iterator<Item = (TopicPartition, &Partition)> {
        let topics = self.partitions.iter();
        topics.flat_map(|(topic, partitions)| partitions.iter().map(|(number, partition)| ((topic.clone(), *number), partition)))
    }

    fn reading(&self) -> Vec<TopicPartition> {
        self.all().filter(|(_, partition)| matches!(partition.flow, Flow::Reading { .. })).map(|(key, _)| key).collect()
    }

    fn due_to_start(&self, now: Duration) -> Vec<(TopicPartition, i64)> {
        let due = |(key, partition): (TopicPartition, &Partition)| match partition.flow {
            Flow::Starting { offset, next_try, .. } if next_try <= now => Some((key, offset)),
            _ => None,
        };
        self.all().filter_map(due).collect()
    }

    fn tries(&mut self, partition: &TopicPartition) -> u32 {
        match self.partition(partition).map(|ours| &ours.flow) {
            Some(Flow::Starting { tries, .. }) => *tries,
            _ => 0,
        }
    }

    fn try_later<'a>(&mut self, partitions: impl Iterator<Item = &'a TopicPartition>, now: Duration) {
        for partition in partitions {
            if let Some(Partition { flow: Flow::Starting { tries, next_try, .. }, .. }) = self.partition(partition) {
                *tries += 1;
                *next_try = now + SEEK_AGAIN;
            }
        }
    }

    fn started(&mut self, partition: &TopicPartition) {
        if let Some(ours) = self.partition(partition)
            && let Flow::Starting { generation, .. } = ours.flow
        {
            ours.flow = Flow::Reading { generation, reported: None };
        }
    }

    // ------------------------------------------------------------------------------------------------------------ gathering

    fn take_in(&mut self, message: &BorrowedMessage<'_>) {
        let ours = self.partitions.get_mut(message.topic()).and_then(|partitions| partitions.get_mut(&message.partition()));
        if let Some(ours) = ours
            && matches!(ours.flow, Flow::Reading { .. })
        {
            let record = ffi::record_of(message);
            self.records += 1;
            self.bytes += record.size();
            ours.gathered.push(record);
            if self.since.is_none() {
                self.since = Some(self.clock.monotonic());
            }
        }
    }

    fn look_around(&mut self) {
        self.look_at_all = true;
        self.since.get_or_insert(self.clock.monotonic());
    }

    fn is_full(&self) -> bool {
        self.records >= self.limits.records || self.bytes >= self.limits.bytes
    }

    fn is_due(&self) -> bool {
        let now = self.clock.monotonic();
        self.is_full() || self.since.is_some_and(|since| now >= since + self.limits.linger) || now >= self.looked_at + LOOK_AROUND
    }

    fn time_to_wait(&self) -> Duration {
        let now = self.clock.monotonic();
        self.since.map_or(POLL, |since| (since + self.limits.linger).saturating_sub(now).min(POLL))
    }

    /// Whose position goes into this batch: of all that are read if there is a hint or it is time, else of those with records.
    fn to_look_at(&mut self) -> Vec<TopicPartition> {
        let now = self.clock.monotonic();
        let all = std::mem::take(&mut self.look_at_all) || now >= self.looked_at + LOOK_AROUND;
        if all {
            self.looked_at = now;
        }
        let wanted = |partition: &Partition| matches!(partition.flow, Flow::Reading { .. }) && (all || !partition.gathered.is_empty());
        self.all().filter(|(_, partition)| wanted(partition)).map(|(key, _)| key).collect()
    }

    fn batch(&mut self, positions: impl Iterator<Item = (TopicPartition, Option<i64>)>) -> Batch {
        let mut batch = Batch::default();
        for (key, position) in positions {
            let Some(ours) = self.partition(&key) else { continue };
            let Flow::Reading { generation, reported } = &mut ours.flow else { continue };
            let records = std::mem::take(&mut ours.gathered);
            let after = records.last().map(|record| record.offset + 1);
            // The position is never behind what was polled; it is ahead by the markers that followed.
            let Some(position) = position.max(after) else { continue };
            if records.is_empty() && *reported == Some(position) {
                continue;
            }
            *reported = Some(position);
            batch.partitions.insert(key, PartitionRead { generation: *generation, records, position });
        }
        self.records = 0;
        self.bytes = 0;
        self.since = None;
        batch
    }

    /// Moves events to the async side as far as there is room.
    fn hand_over(&mut self) -> Handover {
        while !self.outbox.is_empty() {
            match self.events.try_reserve() {
                Ok(permit) => {
                    if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    }
                }
                Err(TrySendError::Full(())) => return Handover::Full,
                Err(TrySendError::Closed(())) => return Handover::Gone,
            }
        }
        if self.events.is_closed() { Handover::Gone } else { Handover::Done }
    }

    // ----------------------------------------------------------------------------------------------------------------- news

    fn rebalance(&mut self, rebalance: Rebalance) {
        match rebalance {
            Rebalance::Assigned(partitions) => {
                self.link_is_up();
                for (topic, partition) in &partitions {
                    let fresh = Partition { flow: Flow::Waiting, gathered: Vec::new() };
                    self.partitions.entry(topic.clone()).or_default().insert(*partition, fresh);
                }
                if !partitions.is_empty() {
                    self.outbox.push_back(IntakeEvent::Assigned(partitions));
                }
            }
            Rebalance::Revoked(partitions) => {
                for (topic, partition) in &partitions {
                    let gone = self.partitions.get_mut(topic).and_then(|ours| ours.remove(partition));
                    if let Some(gone) = gone {
                        self.forget(&gone.gathered);
                    }
                    self.to_commit.remove(&(topic.clone(), *partition));
                }
                self.partitions.retain(|_, ours| !ours.is_empty());
                if !partitions.is_empty() {
                    self.outbox.push_back(IntakeEvent::Revoked(partitions));
                }
            }
        }
    }

    fn link_is_up(&mut self) {
        if self.link != Link::Up {
            self.link = Link::Up;
            self.told.clear();
            self.explanation = None;
            self.outbox.push_back(IntakeEvent::Connection { up: true, reason: None });
        }
    }

    /// Sorts what librdkafka reported.
    fn trouble(&mut self, trouble: &Trouble, error: KafkaError) {
        match trouble.code {
            Code::AutoOffsetReset => self.outbox.push_back(IntakeEvent::OffsetReset),
            Code::AllBrokersDown => {
                if self.link != Link::Down {
                    self.link = Link::Down;
                    self.probed_at = self.clock.monotonic();
                    self.outbox.push_back(IntakeEvent::Connection { up: false, reason: Some(self.explanation.take().unwrap_or(error)) });
                }
            }
            // One broker's trouble: news only if it was the last one, and then it is the reason.
            Code::BrokerTransportFailure | Code::Resolve | Code::OperationTimedOut => self.explanation = Some(error),
            // A topic that vanished: discovery finds out by itself and subscribes without it.
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition | Code::UnknownTopicId => {
                tracing::debug!(reason = trouble.reason, "a subscribed topic is not there");
            }
            _ => {
                if matches!(error, KafkaError::NotPermitted { .. } | KafkaError::Unreachable { .. }) {
                    self.explanation = Some(error.clone());
                }
                self.tell(trouble, error);
            }
        }
    }

    /// librdkafka repeats an error with each attempt; a person needs it once.
    fn tell(&mut self, trouble: &Trouble, error: KafkaError) {
        let now = self.clock.monotonic();
        self.told.retain(|(_, _, at)| now < *at + REPEAT);
        let text = without_numbers(&trouble.reason);
        if !self.told.iter().any(|(code, told, _)| *code == trouble.code && *told == text) {
            self.told.push((trouble.code, text, now));
            self.outbox.push_back(IntakeEvent::Error(error));
        }
    }
}

/// "(after 3ms in state AUTH_REQ)": the same error with another number is the same error.
fn without_numbers(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_ascii_digit()).collect()
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
