//! Looking a stretch of a partition through, record by record: what was really written there. No group is joined and nothing is committed.
//!
//! Everything is read, committed or not: a record that somebody else's open transaction hides from consumers is there all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode as Code;

use super::client::{KafkaError, Reporter, client_config, creation_error};
use super::ffi::{self, Failure, Step};
use super::inspect::{Inspector, LogEnds};
use crate::domain::clock::Clock;
use crate::domain::record::Header;
use crate::domain::settings::ClusterSettings;

/// A record that was passed, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub offset: i64,
    /// ms; None: the record carries none.
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<Header>,
}

impl Seen {
    /// The value of the last header of this name; None: no such header, or a null value.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|header| header.name == name.as_bytes())?.value.as_deref()
    }
}

/// How far a scan came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned {
    /// Every record of the stretch was passed.
    ToTheEnd,
    /// Who asked had seen enough.
    Stopped,
    /// The log begins after the first offset that was asked for: what was there is gone.
    StartIsGone,
    /// The log ends before the stretch does: it was cut off.
    CutOff,
}

/// Reads stretches of one cluster's partitions. Its methods block: call them from `spawn_blocking`.
pub struct Scanner {
    cluster: ClusterSettings,
    inspector: Inspector,
    clock: Clock,
}

/// How long one poll waits: the delay with which a scan notices that nobody wants it any more.
const POLL: Duration = Duration::from_millis(50);

impl Scanner {
    /// Makes the client and returns at once.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] if librdkafka refuses a property.
    pub fn connect(cluster: &ClusterSettings) -> Result<Scanner, KafkaError> {
        Ok(Scanner { cluster: cluster.clone(), inspector: Inspector::connect_uncommitted(cluster)?, clock: Clock::system() })
    }

    /// The first offset of each partition, and the one past its last record, committed or not.
    ///
    /// # Errors
    /// One of them could not be asked: an answer for some is none.
    pub fn ends(&self, topic: &str, partitions: &[i32], timeout: Duration) -> Result<BTreeMap<i32, LogEnds>, KafkaError> {
        let asked: Vec<_> = partitions.iter().map(|partition| (topic.to_owned(), *partition)).collect();
        let ends = self.inspector.log_ends(&asked, timeout);
        ends.into_iter().map(|((_, partition), ends)| Ok((partition, ends?))).collect()
    }

    /// Shows `look` every record of `topic` in `[from, to)`, in order, until it says stop (false). `patience`: how long nothing may come.
    ///
    /// # Errors
    /// No broker answers, the topic may not be read, or nothing came within `patience`.
    pub fn scan(
        &self,
        topic: &str,
        partition: i32,
        from: i64,
        to: i64,
        patience: Duration,
        mut look: impl FnMut(Seen) -> bool,
    ) -> Result<Scanned, KafkaError> {
        if from >= to {
            return Ok(Scanned::ToTheEnd);
        }
        let ends = |patience| self.ends(topic, &[partition], patience).map(|ends| ends.get(&partition).copied());
        if ends(patience)?.is_some_and(|ends| ends.start > from) {
            return Ok(Scanned::StartIsGone);
        }
        let consumer = self.consumer()?;
        let mut heard = self.clock.monotonic();
        let mut came_to: Option<Came> = None;
        let read = ffi::stretch(&consumer, topic, partition, from, POLL, |step| {
            // Requests for a new token, and what librdkafka reports by itself.
            let _ = consumer.poll(Duration::ZERO);
            if matches!(step, Step::Seen(_)) {
                heard = self.clock.monotonic();
            }
            came_to = match step {
                Step::Seen(seen) if seen.offset >= to => Some(Came::To(Scanned::ToTheEnd)),
                Step::Seen(seen) => {
                    let last = seen.offset + 1 >= to;
                    match look(seen) {
                        false => Some(Came::To(Scanned::Stopped)),
                        true => last.then_some(Came::To(Scanned::ToTheEnd)),
                    }
                }
                // All that the log holds was passed; markers of transactions are no records.
                Step::End => Some(Came::ToTheEndOfTheLog),
                Step::Failed(failure) => match failure.code {
                    Code::OffsetOutOfRange | Code::AutoOffsetReset => Some(Came::To(Scanned::StartIsGone)),
                    // A broker that is away is found again by the client itself.
                    Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut | Code::Resolve => None,
                    _ => Some(Came::ToNothing(failure)),
                },
                Step::Nothing => None,
            };
            if came_to.is_none() && self.clock.monotonic() > heard + patience {
                let reason = format!("no record of {topic} partition {partition} came within {} s", patience.as_secs());
                came_to = Some(Came::ToNothing(Failure { code: Code::OperationTimedOut, reason }));
            }
            came_to.is_none()
        });
        let reporter = consumer.context();
        read.map_err(|failure| reporter.kafka_error(failure.code, &failure.reason))?;
        match came_to {
            Some(Came::To(scanned)) => Ok(scanned),
            Some(Came::ToNothing(failure)) => Err(reporter.kafka_error(failure.code, &failure.reason)),
            Some(Came::ToTheEndOfTheLog) | None => {
                let reaches = ends(patience)?.is_some_and(|ends| ends.end >= to);
                Ok(if reaches { Scanned::ToTheEnd } else { Scanned::CutOff })
            }
        }
    }

    /// A client for one stretch. It is in no group: one that is takes as long to end as its coordinator likes.
    fn consumer(&self) -> Result<BaseConsumer<Reporter>, KafkaError> {
        let ours = [("isolation.level", "read_uncommitted"), ("enable.partition.eof", "true")];
        let config = client_config(&self.cluster, &[("fetch.wait.max.ms", "50"), ("queued.max.messages.kbytes", "16384")], &ours)?;
        config.create_with_context(Reporter::new(&self.cluster)).map_err(|error| creation_error(&self.cluster, &error))
    }
}

/// How a read ended.
enum Came {
    To(Scanned),
    ToTheEndOfTheLog,
    ToNothing(Failure),
}
