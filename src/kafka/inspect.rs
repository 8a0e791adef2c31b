//! Look-ups that join no consumer group and change nothing. All calls block up to their time-out: call them from `spawn_blocking`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError as RdkafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{KafkaError, Reporter, client_config, creation_error};
use super::ffi::{self, Failure, Read, TopicId};
use crate::domain::clock::Clock;
use crate::domain::health::Retention;
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

/// The two ends of a partition's log: the first offset that exists, and the last stable offset (of a client that reads uncommitted records, too, the one past
/// the last record).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnds {
    pub start: i64,
    pub end: i64,
}

/// What Kafka itself creates; nobody's dead letters. (Names from `org.apache.kafka.common.internals.Topic` and tiered storage.)
const INTERNAL_TOPICS: [&str; 5] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"];

/// Partitions or topics in one request. One request for each partition is some ten times slower; one for all makes a failure costly.
const CHUNK: usize = 500;

/// How long the polling thread sleeps at most: the delay with which it notices that its inspector is gone.
const POLL: Duration = Duration::from_millis(100);
/// How long a failed listing waits for the reason to be reported.
const EXPLANATION: Duration = Duration::from_millis(500);

/// A client for look-ups in one cluster. Its methods may be called from several threads at once.
pub struct Inspector {
    consumer: Arc<BaseConsumer<Reporter>>,
    gone: Arc<AtomicBool>,
    polling: Option<std::thread::JoinHandle<()>>,
    /// librdkafka knows one reader of a partition per client.
    reading: Mutex<()>,
    /// The cluster has a controller, which is asked for topic ids and configuration.
    controlled: AtomicBool,
    clock: Clock,
}

/// The offset of each partition; `None` where a time look-up found no record.
type Offsets = BTreeMap<TopicPartition, Result<Option<i64>, Failure>>;

/// Before each further attempt at partitions that failed. A new or moved leader takes a moment to serve.
const PAUSES: [Duration; 4] = [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(900)];

impl Inspector {
    /// Makes the client and returns at once: it connects by itself, now or when a broker is there.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] if librdkafka refuses a property.
    pub fn connect(cluster: &ClusterSettings) -> Result<Inspector, KafkaError> {
        Inspector::at_level(cluster, "read_committed")
    }

    /// The same, whose ends are those of everything that was written, open and aborted transactions included.
    ///
    /// # Errors
    /// As [`Inspector::connect`].
    pub(super) fn connect_uncommitted(cluster: &ClusterSettings) -> Result<Inspector, KafkaError> {
        Inspector::at_level(cluster, "read_uncommitted")
    }

    fn at_level(cluster: &ClusterSettings, isolation: &str) -> Result<Inspector, KafkaError> {
        // A record is looked at one at a time: nothing is to be fetched ahead.
        let ours = [
            ("enable.partition.eof", "true"),
            ("queued.min.messages", "1"),
            ("queued.max.messages.kbytes", "1024"),
            ("isolation.level", isolation),
        ];
        let config = client_config(cluster, &[], &ours)?;
        let consumer: BaseConsumer<_> =
            config.create_with_context(Reporter::new(cluster)).map_err(|error| creation_error(cluster, &error))?;
        let consumer = Arc::new(consumer);
        let gone = Arc::new(AtomicBool::new(false));
        // Errors, log lines and requests for a new token come only to who polls, and look-ups do not.
        let (polled, over) = (Arc::clone(&consumer), Arc::clone(&gone));
        let polling = std::thread::Builder::new()
            .name(format!("kafka-inspect-{}", cluster.name))
            .spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = polled.poll(POLL);
                }
            })
            .map_err(|error| KafkaError::Other { cluster: cluster.name.clone(), reason: format!("no thread could be started: {error}") })?;
        Ok(Inspector {
            consumer,
            gone,
            polling: Some(polling),
            reading: Mutex::new(()),
            controlled: AtomicBool::new(false),
            clock: Clock::system(),
        })
    }

    /// All topics that the user may see, internal ones left out.
    ///
    /// # Errors
    /// No broker answers, or none lets us in.
    pub fn topics(&self, timeout: Duration) -> Result<Vec<TopicInfo>, KafkaError> {
        let metadata = self.metadata(timeout)?;
        let topics = metadata.topics().iter().filter(|topic| !topic.partitions().is_empty() && !INTERNAL_TOPICS.contains(&topic.name()));
        Ok(topics
            .map(|topic| TopicInfo {
                name: topic.name().to_owned(),
                partitions: i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX),
            })
            .collect())
    }

    /// Kafka's topic ids by name. A topic that does not exist is absent; a broker that gives no ids makes every value None.
    ///
    /// # Errors
    /// No broker answers, or a topic may not be described.
    pub fn topic_ids(&self, topics: &[String], timeout: Duration) -> Result<BTreeMap<String, Option<String>>, KafkaError> {
        let deadline = self.clock.monotonic() + timeout;
        if !self.is_controlled(self.left(deadline))? {
            return self.topics_without_ids(topics, self.left(deadline));
        }
        let mut ids = BTreeMap::new();
        for chunk in topics.chunks(CHUNK) {
            match self.answered(ffi::topic_ids(&self.consumer, chunk, self.left(deadline))) {
                Ok(answers) => ids.extend(answers.into_iter().filter_map(|(name, id)| match id {
                    TopicId::Id(id) => Some((name, Some(id))),
                    TopicId::None => Some((name, None)),
                    TopicId::Missing => None,
                })),
                Err(failure) if is_unsupported(failure.code) => return self.topics_without_ids(topics, self.left(deadline)),
                Err(failure) => return Err(self.error(&failure)),
            }
        }
        Ok(ids)
    }

    /// Whether the controller is one of the brokers. librdkafka sends admin requests to it; the in-process broker names one that does not
    /// exist, and the request would wait for it until the time is over.
    pub(super) fn is_controlled(&self, timeout: Duration) -> Result<bool, KafkaError> {
        if !self.controlled.load(Ordering::Relaxed) {
            let metadata = self.metadata(timeout)?;
            let controller = ffi::controller_id(&self.consumer);
            let controlled = metadata.brokers().iter().any(|broker| broker.id() == controller);
            self.controlled.store(controlled, Ordering::Relaxed);
        }
        Ok(self.controlled.load(Ordering::Relaxed))
    }

    /// A broker that does not know the request: whether the topics exist can be told all the same.
    fn topics_without_ids(&self, topics: &[String], timeout: Duration) -> Result<BTreeMap<String, Option<String>>, KafkaError> {
        let existing: BTreeSet<String> = self.topics(timeout)?.into_iter().map(|topic| topic.name).collect();
        Ok(topics.iter().filter(|name| existing.contains(*name)).map(|name| (name.clone(), None)).collect())
    }

    /// Both ends of many partitions, asked in bulk (about 500 partitions a request; a failing partition spoils its chunk and is bisected out).
    /// Every partition asked for is in the answer.
    pub fn log_ends(&self, partitions: &[TopicPartition], timeout: Duration) -> BTreeMap<TopicPartition, Result<LogEnds, KafkaError>> {
        let deadline = self.clock.monotonic() + timeout;
        // The start first: both only grow, so the end is never below it.
        let starts = self.offsets(partitions, Offset::Beginning, self.left(deadline) / 2);
        let alive: Vec<TopicPartition> = starts.iter().filter(|(_, start)| start.is_ok()).map(|(partition, _)| partition.clone()).collect();
        let mut ends = self.offsets(&alive, Offset::End, self.left(deadline));
        starts
            .into_iter()
            .map(|(partition, start)| {
                let both = start.and_then(|start| {
                    let end = ends.remove(&partition).unwrap_or_else(|| Err(self.error(&unanswered())))?;
                    match (start, end) {
                        (Some(start), Some(end)) => Ok(LogEnds { start, end }),
                        _ => Err(self.error(&unanswered())),
                    }
                });
                (partition, both)
            })
            .collect()
    }

    /// For each partition the first offset whose record is at or after `at_ms`; the end where there is none.
    pub fn offsets_at(
        &self,
        partitions: &[TopicPartition],
        at_ms: i64,
        timeout: Duration,
    ) -> BTreeMap<TopicPartition, Result<i64, KafkaError>> {
        let deadline = self.clock.monotonic() + timeout;
        // Negative times have other meanings in this request; no record is older than 1970.
        let found = self.offsets(partitions, Offset::Offset(at_ms.max(0)), self.left(deadline) / 2);
        let none: Vec<TopicPartition> =
            found.iter().filter(|(_, offset)| matches!(offset, Ok(None))).map(|(partition, _)| partition.clone()).collect();
        let mut ends = self.offsets(&none, Offset::End, self.left(deadline));
        found
            .into_iter()
            .map(|(partition, offset)| {
                let offset = match offset {
                    Ok(None) => ends.remove(&partition).unwrap_or_else(|| Err(self.error(&unanswered()))),
                    other => other,
                };
                (partition, offset.and_then(|offset| offset.ok_or_else(|| self.error(&unanswered()))))
            })
            .collect()
    }

    /// `retention.ms` of each topic. A topic whose `cleanup.policy` has no `delete` keeps its records whatever their age.
    pub fn retention(&self, topics: &[String], timeout: Duration) -> BTreeMap<String, Retention> {
        let deadline = self.clock.monotonic() + timeout;
        let mut retention: BTreeMap<String, Retention> = topics.iter().map(|topic| (topic.clone(), Retention::Unknown)).collect();
        if !self.is_controlled(self.left(deadline)).unwrap_or(false) {
            return retention;
        }
        for chunk in topics.chunks(CHUNK) {
            match self.answered(ffi::topic_configs(&self.consumer, chunk, self.left(deadline))) {
                Ok(configs) => retention.extend(configs.into_iter().map(|(topic, config)| (topic, self.retention_of(config)))),
                Err(failure) => retention.extend(chunk.iter().map(|topic| (topic.clone(), self.retention_of(Err(failure.clone()))))),
            }
        }
        retention
    }

    /// A topic's configuration; empty where it is not told.
    pub(super) fn config_of(&self, topic: &str, timeout: Duration) -> BTreeMap<String, String> {
        let deadline = self.clock.monotonic() + timeout;
        if !self.is_controlled(self.left(deadline)).unwrap_or(false) {
            return BTreeMap::new();
        }
        let answer = self.answered(ffi::topic_configs(&self.consumer, &[topic.to_owned()], self.left(deadline)));
        answer.ok().and_then(|mut configs| configs.remove(topic)?.ok()).unwrap_or_default()
    }

    fn retention_of(&self, config: Result<BTreeMap<String, String>, Failure>) -> Retention {
        match config {
            Err(failure) if matches!(self.error(&failure), KafkaError::NotPermitted { .. }) => Retention::NotPermitted,
            Err(_) => Retention::Unknown,
            Ok(config) => retention_in(&config),
        }
    }

    /// The first record at or after `offset`, if one is there. Used rarely: the oldest uncollected record, the incarnation check.
    ///
    /// # Errors
    /// No answer within the time-out, the partition does not exist or may not be read, or `offset` lies outside the log.
    pub fn record_at(&self, partition: &TopicPartition, offset: i64, timeout: Duration) -> Result<Option<Record>, KafkaError> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        match self.answered(ffi::read_one(&self.consumer, &partition.0, partition.1, offset, timeout)) {
            Ok(Read::Record(record)) => Ok(Some(record)),
            Ok(Read::End) => Ok(None),
            Ok(Read::TimedOut) => {
                let reason = format!("no record of {} partition {} at offset {offset} came in time", partition.0, partition.1);
                Err(self.error(&Failure { code: Code::OperationTimedOut, reason }))
            }
            Err(failure) => Err(self.error(&failure)),
        }
    }

    // ------------------------------------------------------------------------------------------------------ list offsets

    /// Asks in chunks. A chunk that fails is asked again without what cannot answer, leader by leader, so that one dead broker or one
    /// deleted partition costs the others nothing.
    fn offsets(
        &self,
        partitions: &[TopicPartition],
        ask: Offset,
        timeout: Duration,
    ) -> BTreeMap<TopicPartition, Result<Option<i64>, KafkaError>> {
        let deadline = self.clock.monotonic() + timeout;
        let patience = self.clock.monotonic() + timeout / 2;
        let mut offsets = Offsets::new();
        for chunk in partitions.chunks(CHUNK) {
            match self.list_offsets(chunk, ask, self.left(patience)) {
                Ok(answers) => offsets.extend(answers),
                Err(failure) => offsets.extend(all_failed(chunk, &failure)),
            }
        }
        for (round, pause) in PAUSES.into_iter().enumerate() {
            // The failure of a chunk need not be that of each partition in it, so at first all are asked again. Later only those that
            // are on their way to another broker: they answer there in a moment.
            let again = |failure: &Failure| round == 0 || is_moving(failure.code);
            let failed: Vec<TopicPartition> =
                offsets.iter().filter(|(_, offset)| offset.as_ref().is_err_and(again)).map(|(partition, _)| partition.clone()).collect();
            if failed.is_empty() || self.clock.monotonic() + pause >= deadline {
                break;
            }
            std::thread::sleep(pause);
            self.offsets_by_leader(failed, ask, deadline, &mut offsets);
        }
        offsets.into_iter().map(|(partition, offset)| (partition, offset.map_err(|failure| self.error(&failure)))).collect()
    }

    fn offsets_by_leader(&self, partitions: Vec<TopicPartition>, ask: Offset, deadline: Duration, offsets: &mut Offsets) {
        let metadata = match self.consumer.fetch_metadata(None, self.left(deadline)) {
            Ok(metadata) => metadata,
            Err(error) => {
                offsets.extend(all_failed(&partitions, &failure_of(&error)));
                return;
            }
        };
        let leaders = leaders(&metadata);
        let mut groups: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions {
            match leaders.get(&(partition.0.as_str(), partition.1)) {
                Some(leader) if *leader >= 0 => groups.entry(*leader).or_default().push(partition),
                Some(_) => {
                    let reason = format!("{} partition {} has no leader", partition.0, partition.1);
                    offsets.insert(partition, Err(Failure { code: Code::LeaderNotAvailable, reason }));
                }
                None => {
                    let reason = format!("{} has no partition {}", partition.0, partition.1);
                    offsets.insert(partition, Err(Failure { code: Code::UnknownPartition, reason }));
                }
            }
        }
        let mut groups_left = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        for group in groups.values() {
            // An equal share of the time that is left: a broker that hangs must not use up that of the others.
            let share = self.clock.monotonic() + self.left(deadline) / groups_left.max(1);
            for chunk in group.chunks(CHUNK) {
                self.bisect(chunk, ask, share, offsets);
            }
            groups_left = groups_left.saturating_sub(1);
        }
    }

    /// One error among many partitions comes back as the error of all: halve until it stands alone.
    fn bisect(&self, partitions: &[TopicPartition], ask: Offset, deadline: Duration, offsets: &mut Offsets) {
        match self.list_offsets(partitions, ask, self.left(deadline)) {
            Ok(answers) => offsets.extend(answers),
            Err(failure) if partitions.len() == 1 || self.clock.monotonic() >= deadline => offsets.extend(all_failed(partitions, &failure)),
            Err(_) => {
                let (one, other) = partitions.split_at(partitions.len() / 2);
                self.bisect(one, ask, deadline, offsets);
                self.bisect(other, ask, deadline, offsets);
            }
        }
    }

    /// One ListOffsets request for each leader of these partitions. An answer for all, or a failure for all.
    fn list_offsets(&self, partitions: &[TopicPartition], ask: Offset, timeout: Duration) -> Result<Offsets, Failure> {
        let mut offsets = all_failed(partitions, &unanswered()).collect::<Offsets>();
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for (topic, partition) in partitions.iter().filter(|(topic, _)| !topic.contains('\0')) {
            // The offsets that this program makes up can all be represented; anything else would leave the partition unanswered.
            let _ = list.add_partition(topic, *partition).set_offset(ask);
        }
        if list.count() == 0 {
            return Ok(offsets);
        }
        let answers = self.consumer.offsets_for_times(list, timeout).map_err(|error| failure_of(&error))?;
        self.consumer.context().forget();
        for answer in answers.elements() {
            let offset = match (answer.error(), answer.offset()) {
                (Err(error), _) => Err(failure_of(&error)),
                (Ok(()), Offset::Offset(offset)) => Ok(Some(offset)),
                // -1: a time look-up that found nothing. For the ends themselves it means that nobody answered.
                (Ok(()), Offset::End) if matches!(ask, Offset::Offset(_)) => Ok(None),
                (Ok(()), _) => Err(unanswered()),
            };
            offsets.insert((answer.topic().to_owned(), answer.partition()), offset);
        }
        Ok(offsets)
    }

    // ------------------------------------------------------------------------------------------------------------ common

    /// The metadata of all topics. Asking for all names none, so nothing can be created by it.
    fn metadata(&self, timeout: Duration) -> Result<Metadata, KafkaError> {
        let metadata = self.consumer.fetch_metadata(None, timeout).map_err(|error| {
            self.wait_for_explanation();
            self.error(&failure_of(&error))
        })?;
        self.consumer.context().forget();
        Ok(metadata)
    }

    /// A call can fail before the polling thread has seen what librdkafka reports about it: a moment of patience turns "transport
    /// failure" into "certificate verify failed".
    pub(super) fn wait_for_explanation(&self) {
        let deadline = self.clock.monotonic() + EXPLANATION;
        while self.consumer.context().explanation().is_none() && self.clock.monotonic() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The client itself, for requests of the neighbouring files.
    pub(super) fn client(&self) -> &BaseConsumer<Reporter> {
        &self.consumer
    }

    /// What librdkafka reported last that explains why nothing answers.
    pub(super) fn last_trouble(&self) -> Option<Code> {
        self.consumer.context().explanation().map(|trouble| trouble.code)
    }

    /// On the monotonic clock of [`Inspector::left`].
    pub(super) fn deadline(&self, timeout: Duration) -> Duration {
        self.clock.monotonic() + timeout
    }

    /// A minimum of a millisecond: zero means "do not wait" to some calls and "for ever" to others.
    pub(super) fn left(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.clock.monotonic()).max(Duration::from_millis(1))
    }

    pub(super) fn answered<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if answer.is_ok() {
            self.consumer.context().forget();
        }
        answer
    }

    /// A call that only timed out does not know why; what librdkafka reported meanwhile does.
    pub(super) fn error(&self, failure: &Failure) -> KafkaError {
        let reporter = self.consumer.context();
        let error = reporter.kafka_error(failure.code, &failure.reason);
        match (&error, reporter.explanation()) {
            (KafkaError::Unreachable { .. }, Some(trouble)) => reporter.kafka_error(trouble.code, &trouble.reason),
            // librdkafka keeps to itself that a connection was closed before it was of any use (`log.connection.close`).
            (KafkaError::Unreachable { .. }, None) if failure.code == Code::BrokerTransportFailure => {
                reporter.kafka_error(failure.code, reporter.closed_at_once())
            }
            _ => error,
        }
    }
}

fn failure_of(error: &RdkafkaError) -> Failure {
    let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
    Failure { code, reason: if code == Code::Unknown { error.to_string() } else { code.to_string() } }
}

fn all_failed(partitions: &[TopicPartition], failure: &Failure) -> impl Iterator<Item = (TopicPartition, Result<Option<i64>, Failure>)> {
    partitions.iter().map(|partition| (partition.clone(), Err(failure.clone())))
}

fn unanswered() -> Failure {
    Failure { code: Code::Unknown, reason: "the broker's answer says nothing of this partition".to_owned() }
}

/// The partition has just been made or its leader has just changed.
fn is_moving(code: Code) -> bool {
    matches!(
        code,
        Code::NotLeaderForPartition
            | Code::LeaderNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::OffsetNotAvailable
    )
}

impl Drop for Inspector {
    /// Waits for the polling thread, at most about [`POLL`], so that the client ends here and now: one that is still shaking hands while
    /// the process exits and OpenSSL clears up behind itself ends in a segmentation fault.
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        if let Some(polling) = self.polling.take() {
            // It cannot panic; if it did, it is gone, which is all that matters here.
            let _ = polling.join();
        }
    }
}

/// The leader's broker id of each partition; -1 where there is none.
fn leaders(metadata: &Metadata) -> BTreeMap<(&str, i32), i32> {
    let topics = metadata.topics().iter();
    topics.flat_map(|topic| topic.partitions().iter().map(|partition| ((topic.name(), partition.id()), partition.leader()))).collect()
}

pub(super) fn is_unsupported(code: Code) -> bool {
    matches!(code, Code::UnsupportedFeature | Code::UnsupportedVersion | Code::NotImplemented)
}

/// What a topic's configuration says of time: `retention.ms` of -1 and a policy of `compact` alone both mean "never".
fn retention_in(config: &BTreeMap<String, String>) -> Retention {
    let deletes = config.get("cleanup.policy").is_none_or(|policy| policy.split(',').any(|word| word.trim() == "delete"));
    match config.get("retention.ms").map(|ms| ms.parse::<i64>()) {
        _ if !deletes => Retention::Unlimited,
        Some(Ok(ms)) if ms < 0 => Retention::Unlimited,
        Some(Ok(ms)) => Retention::Ms(ms),
        _ => Retention::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_follows_both_settings() {
        let of = |policy: &str, ms: &str| {
            retention_in(&BTreeMap::from([("cleanup.policy".to_owned(), policy.to_owned()), ("retention.ms".to_owned(), ms.to_owned())]))
        };
        assert_eq!(of("delete", "604800000"), Retention::Ms(604_800_000));
        assert_eq!(of("delete", "-1"), Retention::Unlimited);
        assert_eq!(of("compact", "604800000"), Retention::Unlimited);
        assert_eq!(of("compact,delete", "1000"), Retention::Ms(1000));
        assert_eq!(retention_in(&BTreeMap::new()), Retention::Unknown);
    }
}
