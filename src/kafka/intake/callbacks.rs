//! What librdkafka calls back, always on the intake thread and inside `poll`: it is noted here and handled after the poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError as RdkafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use crate::domain::settings::ClusterSettings;
use crate::kafka::client::Reporter;
use crate::kafka::inspect::TopicPartition;

/// A change of what is ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rebalance {
    Assigned(Vec<TopicPartition>),
    Revoked(Vec<TopicPartition>),
}

pub(super) struct Callbacks {
    pub reporter: Reporter,
    rebalances: Mutex<Vec<Rebalance>>,
    /// Something is in `rebalances` or in the reporter's list: a cheap question between two records.
    news: AtomicBool,
    /// The end of some partition was reached: positions may have moved without a record.
    end_reached: AtomicBool,
}

impl Callbacks {
    pub fn new(cluster: &ClusterSettings) -> Callbacks {
        Callbacks {
            reporter: Reporter::new(cluster),
            rebalances: Mutex::new(Vec::new()),
            news: AtomicBool::new(false),
            end_reached: AtomicBool::new(false),
        }
    }

    pub fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::Relaxed)
    }

    pub fn take_end_reached(&self) -> bool {
        self.end_reached.swap(false, Ordering::Relaxed)
    }

    pub fn take_rebalances(&self) -> Vec<Rebalance> {
        std::mem::take(&mut *self.rebalances.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Assigns and pauses before anything can be fetched. The offset given is a placeholder: the earliest is one that no broker
    /// refuses, and a seek replaces it before the partition is resumed.
    fn assign(&self, consumer: &BaseConsumer<Callbacks>, partitions: &mut TopicPartitionList) -> KafkaResult<()> {
        partitions.set_all_offsets(Offset::Beginning)?;
        consumer.incremental_assign(partitions)?;
        if partitions.count() > 0 {
            consumer.pause(partitions)?;
        }
        Ok(())
    }
}

impl ClientContext for Callbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.reporter.log(level, facility, message);
    }
    fn stats_raw(&self, statistics: &[u8]) {
        self.reporter.stats_raw(statistics);
    }
    fn error(&self, error: RdkafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            self.end_reached.store(true, Ordering::Relaxed);
        } else {
            self.reporter.error(error, reason);
            self.news.store(true, Ordering::Relaxed);
        }
    }
    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.reporter.generate_oauth_token(config)
    }
}

impl ConsumerContext for Callbacks {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, error: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let listed: Vec<TopicPartition> =
            partitions.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect();
        let (done, rebalance) = match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => (self.assign(consumer, partitions), Rebalance::Assigned(listed)),
            _ => (consumer.incremental_unassign(partitions), Rebalance::Revoked(listed)),
        };
        if let Err(error) = done {
            // Happens while the consumer closes; else librdkafka reports the consequence as an error of its own.
            tracing::debug!(%error, "a rebalance could not be carried out");
        }
        self.rebalances.lock().unwrap_or_else(PoisonError::into_inner).push(rebalance);
        self.news.store(true, Ordering::Relaxed);
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            // Only informative, so only a detail.
            tracing::debug!(%error, "Kafka did not take the group's positions");
        }
    }
}
