//! What the intake thread keeps: what each partition does, the batch being gathered, what waits to be handed over.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rdkafka::Message as _;
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::BorrowedMessage;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::callbacks::Rebalance;
use super::{Batch, BatchLimits, IntakeEvent, PartitionRead};
use crate::domain::clock::Clock;
use crate::domain::record::Record;
use crate::kafka::client::{KafkaError, Trouble};
use crate::kafka::ffi;
use crate::kafka::inspect::TopicPartition;

/// The longest wait in one poll: the delay with which a command is noticed.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// A partition that was assigned just now cannot be sought in yet.
const SEEK_AGAIN: Duration = Duration::from_millis(50);
/// Positions are looked at this often even if nothing hints at a change.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// The same error is told again only after this time.
const REPEAT: Duration = Duration::from_secs(60);

/// What a partition is doing.
#[derive(Debug)]
pub(super) enum Flow {
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
pub(super) struct Partition {
    flow: Flow,
    gathered: Vec<Record>,
}

/// Topic, then partition: a record's place is found without copying its topic's name.
pub(super) type Partitions = BTreeMap<String, BTreeMap<i32, Partition>>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Link {
    Unknown,
    Up,
    Down,
}

/// How handing over went.
pub(super) enum Handover {
    Done,
    Full,
    Gone,
}

/// All that changes while records come in, apart from the consumer that lends them.
pub(super) struct Desk {
    pub limits: BatchLimits,
    pub clock: Clock,
    pub events: Sender<IntakeEvent>,
    pub outbox: VecDeque<IntakeEvent>,
    pub partitions: Partitions,
    pub records: usize,
    pub bytes: usize,
    /// When the batch being gathered got its first record, or the first hint that a position moved.
    pub since: Option<Duration>,
    /// All positions are to be looked at, not only those of partitions with records.
    pub look_at_all: bool,
    pub looked_at: Duration,
    pub full_since: Option<Duration>,
    pub held_back: bool,
    pub link: Link,
    /// Why a connection broke; the "all brokers are down" that may follow does not say.
    pub explanation: Option<KafkaError>,
    pub probed_at: Duration,
    pub told: Vec<(Code, String, Duration)>,
    pub to_commit: BTreeMap<TopicPartition, i64>,
    pub committed_at: Duration,
}

impl Desk {
    pub fn new(limits: BatchLimits, events: Sender<IntakeEvent>) -> Desk {
        Desk {
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
        }
    }

    pub fn partition(&mut self, partition: &TopicPartition) -> Option<&mut Partition> {
        self.partitions.get_mut(partition.0.as_str())?.get_mut(&partition.1)
    }

    /// Changes what a partition does and throws away what was gathered of it. False if it is not ours.
    pub fn set_flow(&mut self, partition: &TopicPartition, flow: Flow) -> bool {
        let Some(ours) = self.partition(partition) else { return false };
        ours.flow = flow;
        let gathered = std::mem::take(&mut ours.gathered);
        self.forget(&gathered);
        true
    }

    pub fn forget(&mut self, gathered: &[Record]) {
        self.records -= gathered.len();
        self.bytes -= gathered.iter().map(Record::size).sum::<usize>();
    }

    pub fn all(&self) -> impl Iterator<Item = (TopicPartition, &Partition)> {
        let topics = self.partitions.iter();
        topics.flat_map(|(topic, partitions)| partitions.iter().map(|(number, partition)| ((topic.clone(), *number), partition)))
    }

    pub fn reading(&self) -> Vec<TopicPartition> {
        self.all().filter(|(_, partition)| matches!(partition.flow, Flow::Reading { .. })).map(|(key, _)| key).collect()
    }

    pub fn due_to_start(&self, now: Duration) -> Vec<(TopicPartition, i64)> {
        let due = |(key, partition): (TopicPartition, &Partition)| match partition.flow {
            Flow::Starting { offset, next_try, .. } if next_try <= now => Some((key, offset)),
            _ => None,
        };
        self.all().filter_map(due).collect()
    }

    pub fn tries(&mut self, partition: &TopicPartition) -> u32 {
        match self.partition(partition).map(|ours| &ours.flow) {
            Some(Flow::Starting { tries, .. }) => *tries,
            _ => 0,
        }
    }

    pub fn try_later<'a>(&mut self, partitions: impl Iterator<Item = &'a TopicPartition>, now: Duration) {
        for partition in partitions {
            if let Some(Partition { flow: Flow::Starting { tries, next_try, .. }, .. }) = self.partition(partition) {
                *tries += 1;
                *next_try = now + SEEK_AGAIN;
            }
        }
    }

    pub fn started(&mut self, partition: &TopicPartition) {
        if let Some(ours) = self.partition(partition)
            && let Flow::Starting { generation, .. } = ours.flow
        {
            ours.flow = Flow::Reading { generation, reported: None };
        }
    }

    // ------------------------------------------------------------------------------------------------------------ gathering

    pub fn take_in(&mut self, message: &BorrowedMessage<'_>) {
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

    pub fn look_around(&mut self) {
        self.look_at_all = true;
        self.since.get_or_insert(self.clock.monotonic());
    }

    pub fn is_full(&self) -> bool {
        self.records >= self.limits.records || self.bytes >= self.limits.bytes
    }

    pub fn is_due(&self) -> bool {
        let now = self.clock.monotonic();
        self.is_full() || self.since.is_some_and(|since| now >= since + self.limits.linger) || now >= self.looked_at + LOOK_AROUND
    }

    pub fn time_to_wait(&self) -> Duration {
        let now = self.clock.monotonic();
        self.since.map_or(POLL, |since| (since + self.limits.linger).saturating_sub(now).min(POLL))
    }

    /// Whose position goes into this batch: of all that are read if there is a hint or it is time, else of those with records.
    pub fn choose_partitions(&mut self) -> Vec<TopicPartition> {
        let now = self.clock.monotonic();
        let all = std::mem::take(&mut self.look_at_all) || now >= self.looked_at + LOOK_AROUND;
        if all {
            self.looked_at = now;
        }
        let wanted = |partition: &Partition| matches!(partition.flow, Flow::Reading { .. }) && (all || !partition.gathered.is_empty());
        self.all().filter(|(_, partition)| wanted(partition)).map(|(key, _)| key).collect()
    }

    pub fn batch(&mut self, positions: impl Iterator<Item = (TopicPartition, Option<i64>)>) -> Batch {
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
    pub fn hand_over(&mut self) -> Handover {
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

    pub fn rebalance(&mut self, rebalance: Rebalance) {
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

    pub fn link_is_up(&mut self) {
        if self.link != Link::Up {
            self.link = Link::Up;
            self.told.clear();
            self.explanation = None;
            self.outbox.push_back(IntakeEvent::Connection { up: true, reason: None });
        }
    }

    /// Sorts what librdkafka reported.
    pub fn trouble(&mut self, trouble: &Trouble, error: KafkaError) {
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
    pub fn tell(&mut self, trouble: &Trouble, error: KafkaError) {
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
