//! The Kafka room against the in-process broker (plain runs) and against a real one.

mod flow;
mod groups;
mod look_ups;
mod secured;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use lazaret::domain::record::Record;
use lazaret::domain::settings::{ClusterSettings, Secret};
use lazaret::kafka::client::KafkaError;
use lazaret::kafka::inspect::TopicPartition;
use lazaret::kafka::intake::{Batch, BatchLimits, IntakeCommand, IntakeConsumer, IntakeEvent};

use crate::support::unique;

/// Nothing here takes that long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings as the config room would give them.
fn cluster(bootstrap: &str) -> ClusterSettings {
    ClusterSettings {
        name: "main".into(),
        bootstrap_servers: bootstrap.into(),
        properties: BTreeMap::new(),
        oauth_token: None,
        discovery_interval_s: 1,
        sample_interval_s: 15,
        group_id: unique("lazaret"),
    }
}

fn with(mut cluster: ClusterSettings, properties: &[(&str, &str)]) -> ClusterSettings {
    cluster.properties.extend(properties.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))));
    cluster
}

fn limits() -> BatchLimits {
    BatchLimits { records: 500, bytes: 1 << 20, linger: Duration::from_millis(50) }
}

/// Reads as the intake service does: starts what is assigned, keeps records and positions.
struct Reading {
    consumer: IntakeConsumer,
    generation: u64,
    /// Where a partition that is assigned is to start: where this reading stands, else here.
    from: i64,
    positions: BTreeMap<TopicPartition, i64>,
    assigned: Vec<TopicPartition>,
    records: Vec<Record>,
    errors: Vec<KafkaError>,
    resets: usize,
    link: Vec<bool>,
    batches: usize,
}

impl Reading {
    fn of(cluster: &ClusterSettings, topics: &[&str]) -> Reading {
        Reading::with_limits(cluster, topics, limits())
    }

    fn with_limits(cluster: &ClusterSettings, topics: &[&str], limits: BatchLimits) -> Reading {
        let consumer = IntakeConsumer::start(cluster, limits).expect("the settings are fine");
        consumer.command(IntakeCommand::Subscribe(topics.iter().map(|topic| (*topic).to_owned()).collect()));
        Reading {
            consumer,
            generation: 0,
            from: 0,
            positions: BTreeMap::new(),
            assigned: Vec::new(),
            records: Vec::new(),
            errors: Vec::new(),
            resets: 0,
            link: Vec::new(),
            batches: 0,
        }
    }

    fn start(&mut self, partition: TopicPartition, offset: i64) {
        self.generation += 1;
        self.consumer.command(IntakeCommand::Start { partition, offset, generation: self.generation });
    }

    /// Takes one event in. False for those that are of no use to a waiting test.
    async fn step(&mut self) {
        let event = tokio::time::timeout(PATIENCE, self.consumer.next_event()).await.expect("an event in time");
        match event {
            IntakeEvent::Assigned(partitions) => {
                for partition in partitions {
                    let offset = self.positions.get(&partition).copied().unwrap_or(self.from);
                    self.start(partition.clone(), offset);
                    self.assigned.push(partition);
                }
            }
            IntakeEvent::Revoked(partitions) => self.assigned.retain(|ours| !partitions.contains(ours)),
            IntakeEvent::Batch(batch) => self.take(batch),
            IntakeEvent::OffsetReset => self.resets += 1,
            IntakeEvent::Connection { up, .. } => self.link.push(up),
            IntakeEvent::Error(error) => self.errors.push(error),
            IntakeEvent::Stopped(error) => panic!("stopped: {error:?}"),
        }
    }

    fn take(&mut self, batch: Batch) {
        self.batches += 1;
        for (partition, read) in batch.partitions {
            let last = read.records.last().map(|record| record.offset);
            assert!(last.is_none_or(|last| last < read.position), "a position lies past its records: {last:?} {}", read.position);
            self.positions.insert(partition, read.position);
            self.records.extend(read.records);
        }
    }

    async fn until(&mut self, what: &str, mut enough: impl FnMut(&Reading) -> bool) {
        let waiting = async {
            while !enough(self) {
                self.step().await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!(
                "{what}: not in time; {} records, positions {:?}, assigned {:?}, errors {:?}, resets {}",
                self.records.len(),
                self.positions,
                self.assigned,
                self.errors,
                self.resets
            );
        }
    }

    /// Reads until `count` records are in.
    async fn read(&mut self, count: usize) {
        self.until(&format!("{count} records"), |reading| reading.records.len() >= count).await;
        assert_eq!(self.records.len(), count);
    }

    async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.consumer.stop()).await.expect("it leaves in time");
    }

    /// All records in order, each exactly once: partition by partition their offsets count up from `from`.
    fn assert_complete(&self, partition: &TopicPartition, from: i64, count: usize) {
        let offsets: Vec<i64> =
            self.records.iter().filter(|r| (&r.topic, r.partition) == (&partition.0, partition.1)).map(|r| r.offset).collect();
        let expected: Vec<i64> = (from..from + i64::try_from(count).expect("few")).collect();
        assert!(offsets == expected, "{partition:?}: {} offsets, not {count} from {from} on in order", offsets.len());
    }
}

fn values(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()).collect()
}
