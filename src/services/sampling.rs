//! Looking at each DLQ from outside: how much is not taken in yet, and whether retention will take it first.
//!
//! What could not be asked is stored as unknown with its reason, never as zero. The cost does not depend on how many messages there
//! are: both ends of all partitions in bulk, and a record only where the oldest one not taken in is not known yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Clock;
use crate::domain::health::{self, AtRisk, OldestUncollected, Retention};
use crate::domain::settings::{ClusterSettings, DlqSettings, settings_for};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::{Inspector, LogEnds, TopicPartition};
use crate::store::counters::DlqCounts;
use crate::store::dlqs::Dlq;
use crate::store::leases::HeldLease;
use crate::store::positions::{PartitionId, Position};
use crate::store::samples::{PartitionSample, Sample};
use crate::store::{Store, StoreError};
use crate::telemetry;

const LOOK_UP: Duration = Duration::from_secs(10);
/// Retention is configuration: it changes rarely and is asked rarely.
const RETENTION_KNOWN_FOR: Duration = Duration::from_secs(600);
/// Records read in one tick at most. Beyond that a DLQ's risk is judged by an older record of the partition, which only errs on the
/// side of alarm, or is unknown this time.
const READS_A_TICK: usize = 50;

/// Why nothing could be sampled at all.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a look-up ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// Nothing was written.
    #[error("another instance samples by now: this look was thrown away")]
    LeaseLost,
}

/// What one tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sampled {
    pub dlqs: usize,
    /// DLQs of which something could not be asked.
    pub failed: usize,
    /// Records read from Kafka.
    pub records_read: usize,
}

/// The record that a partition's risk is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Oldest {
    /// The first offset not taken in, and the log's end, when it was read.
    offset: i64,
    end: Option<i64>,
    at: OldestAt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OldestAt {
    Ms(i64),
    /// The record carries no timestamp.
    Unstamped,
    /// No record is there: transaction markers only, or all compacted away.
    NoRecord,
}

/// Samples the DLQs of one cluster. One instance at a time does, under a lease that its job keeps.
pub struct Sampler {
    cluster: String,
    dlqs: Vec<DlqSettings>,
    store: Store,
    inspector: Arc<Inspector>,
    clock: Clock,
    retention: BTreeMap<String, (Duration, Retention)>,
    oldest: BTreeMap<PartitionId, Oldest>,
}

type Ends = BTreeMap<TopicPartition, Result<LogEnds, KafkaError>>;

impl Sampler {
    pub fn new(store: Store, inspector: Arc<Inspector>, clock: Clock, cluster: &ClusterSettings, dlqs: Vec<DlqSettings>) -> Sampler {
        Sampler { cluster: cluster.name.clone(), dlqs, store, inspector, clock, retention: BTreeMap::new(), oldest: BTreeMap::new() }
    }

    /// Samples every DLQ that is configured and exists, and writes it under `lease` (None: nobody else can be sampling). A cluster that
    /// cannot be asked is no error but samples that say so.
    ///
    /// # Errors
    /// The store could not be read or written, or the lease is another's by now.
    pub async fn tick(&mut self, lease: Option<&HeldLease>) -> Result<Sampled, SamplingError> {
        let now_ms = self.clock.now_ms();
        let mut dlqs = self.store.dlqs().await?;
        dlqs.retain(|dlq| {
            dlq.cluster == self.cluster && dlq.gone_since_ms.is_none() && settings_for(&self.dlqs, &dlq.cluster, &dlq.topic).is_some()
        });
        // Positions before ends: an end is then never behind the position it is compared with.
        let positions = self.positions_by_dlq().await?;
        let counts = self.store.dlq_counts(None).await?;
        let oldest: BTreeMap<i64, i64> = self.store.oldest_open(None).await?.into_iter().map(|(dlq, dead, _)| (dlq, dead)).collect();
        let partitions: Vec<TopicPartition> = dlqs
            .iter()
            .flat_map(|dlq| positions.get(&dlq.id).into_iter().flatten().map(|position| (dlq.topic.clone(), position.id.partition)))
            .collect();
        let ends: Ends = match partitions.is_empty() {
            true => Ends::new(),
            false => self.ask(move |inspector| inspector.log_ends(&partitions, LOOK_UP)).await?,
        };
        let mut run = Sampled { dlqs: dlqs.len(), ..Sampled::default() };
        self.learn_retention(&dlqs, &positions, &ends).await?;
        let (mut samples, mut partition_samples) = (Vec::new(), Vec::new());
        for dlq in &dlqs {
            let positions = positions.get(&dlq.id).map_or(&[][..], Vec::as_slice);
            let looks = look_at(dlq, positions, &ends, now_ms);
            let error = match looks.is_empty() {
                true => Some("no partition has a position yet".to_owned()),
                false => looks.iter().find_map(|look| look.error.clone()),
            };
            let uncollected = health::uncollected(looks.iter().map(|look| (look.position, look.log_end)));
            let risk = match uncollected {
                None => AtRisk::Unknown,
                Some(0) => AtRisk::AllStored,
                Some(_) => self.risk(dlq, &looks, now_ms, &mut run).await?,
            };
            if let Some(error) = &error {
                run.failed += 1;
                telemetry::sample_failed(&self.cluster, &dlq.topic, error);
            }
            let counts = counts.get(&dlq.id);
            samples.push(Sample {
                dlq_id: dlq.id,
                at_ms: now_ms,
                uncollected,
                depth: Some(counts.map_or(0, DlqCounts::depth)),
                oldest_open_ms: oldest.get(&dlq.id).copied(),
                follow_up_open: Some(counts.map_or(0, |counts| counts.follow_up_open)),
                confirmed: Some(counts.map_or(0, |counts| counts.outcomes.confirmed)),
                returned: Some(counts.map_or(0, |counts| counts.outcomes.returned)),
                at_risk_state: risk.as_str().to_owned(),
                at_risk_left_ms: risk.left_ms(),
                error,
            });
            partition_samples.extend(looks);
        }
        if !self.store.save_samples(lease, &samples, &partition_samples).await? {
            return Err(SamplingError::LeaseLost);
        }
        self.forget_others(&dlqs);
        Ok(run)
    }

    async fn positions_by_dlq(&self) -> Result<BTreeMap<i64, Vec<Position>>, SamplingError> {
        let mut by_dlq: BTreeMap<i64, Vec<Position>> = BTreeMap::new();
        for position in self.store.positions(None).await? {
            by_dlq.entry(position.id.dlq_id).or_default().push(position);
        }
        Ok(by_dlq)
    }

    /// Asks the retention of topics that have something to lose and whose retention was not asked lately.
    async fn learn_retention(&mut self, dlqs: &[Dlq], positions: &BTreeMap<i64, Vec<Position>>, ends: &Ends) -> Result<(), SamplingError> {
        let now = self.clock.monotonic();
        let unread = |dlq: &&Dlq| {
            positions.get(&dlq.id).into_iter().flatten().any(|position| {
                matches!(ends.get(&(dlq.topic.clone(), position.id.partition)), Some(Ok(ends)) if ends.end > position.next_offset)
            })
        };
        let known = |topic: &str| self.retention.get(topic).is_some_and(|(at, _)| now.saturating_sub(*at) < RETENTION_KNOWN_FOR);
        let topics: Vec<String> = dlqs.iter().filter(unread).map(|dlq| dlq.topic.clone()).filter(|topic| !known(topic)).collect();
        if topics.is_empty() {
            return Ok(());
        }
        let found = self.ask(move |inspector| inspector.retention(&topics, LOOK_UP)).await?;
        // What could not be asked is asked again next time.
        let found = found.into_iter().filter(|(_, retention)| *retention != Retention::Unknown);
        self.retention.extend(found.map(|(topic, retention)| (topic, (now, retention))));
        Ok(())
    }

    /// How long until the oldest record not taken in expires. No record is read where the retention alone decides.
    async fn risk(&mut self, dlq: &Dlq, looks: &[PartitionSample], now_ms: i64, run: &mut Sampled) -> Result<AtRisk, SamplingError> {
        let retention = self.retention.get(&dlq.topic).map_or(Retention::Unknown, |(_, retention)| *retention);
        let mut oldest = OldestUncollected::Nothing;
        if !matches!(retention, Retention::Ms(_)) {
            return Ok(health::at_risk(OldestUncollected::Unknown, retention, now_ms));
        }
        for look in looks.iter().filter(|look| look.log_end > look.position) {
            match self.oldest_of(dlq, look, run).await? {
                Some(OldestAt::Ms(ms)) => oldest = oldest.or_older(ms),
                Some(OldestAt::NoRecord) => {}
                Some(OldestAt::Unstamped) | None => return Ok(AtRisk::Unknown),
            }
        }
        Ok(health::at_risk(oldest, retention, now_ms))
    }

    /// The time of a partition's oldest record that is not taken in; None when it is not known.
    async fn oldest_of(&mut self, dlq: &Dlq, look: &PartitionSample, run: &mut Sampled) -> Result<Option<OldestAt>, SamplingError> {
        let offset = look.position.unwrap_or(0).max(look.log_start.unwrap_or(0));
        let known = self.oldest.get(&look.id).copied();
        let still = |known: &Oldest| known.offset == offset && (known.at != OldestAt::NoRecord || known.end == look.log_end);
        if let Some(known) = known.filter(still) {
            return Ok(Some(known.at));
        }
        // An earlier record of the partition is no younger: it can only make the risk look greater than it is.
        let earlier = known.filter(|known| known.offset < offset && matches!(known.at, OldestAt::Ms(_))).map(|known| known.at);
        if run.records_read >= READS_A_TICK {
            return Ok(earlier);
        }
        run.records_read += 1;
        let partition = (dlq.topic.clone(), look.id.partition);
        let Ok(found) = self.ask(move |inspector| inspector.record_at(&partition, offset, LOOK_UP)).await? else {
            return Ok(earlier);
        };
        let at = match found.map(|record| record.timestamp_ms) {
            None => OldestAt::NoRecord,
            Some(None) => OldestAt::Unstamped,
            Some(Some(ms)) => OldestAt::Ms(ms),
        };
        self.oldest.insert(look.id, Oldest { offset, end: look.log_end, at });
        Ok(Some(at))
    }

    /// Drops what was remembered of DLQs that are not sampled any more.
    fn forget_others(&mut self, dlqs: &[Dlq]) {
        let lives: BTreeSet<(i64, i32)> = dlqs.iter().map(|dlq| (dlq.id, dlq.incarnation)).collect();
        let topics: BTreeSet<&str> = dlqs.iter().map(|dlq| dlq.topic.as_str()).collect();
        self.oldest.retain(|id, _| lives.contains(&(id.dlq_id, id.incarnation)));
        self.retention.retain(|topic, _| topics.contains(topic.as_str()));
    }

    async fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Inspector) -> T + Send + 'static) -> Result<T, SamplingError> {
        let inspector = Arc::clone(&self.inspector);
        Ok(tokio::task::spawn_blocking(move || question(&inspector)).await?)
    }
}

fn look_at(dlq: &Dlq, positions: &[Position], ends: &Ends, now_ms: i64) -> Vec<PartitionSample> {
    let look = |position: &Position| {
        let found = ends.get(&(dlq.topic.clone(), position.id.partition));
        let (ends, error) = match found {
            Some(Ok(ends)) => (Some(*ends), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, Some("the broker left this partition out of its answer".to_owned())),
        };
        PartitionSample {
            id: position.id,
            at_ms: now_ms,
            position: Some(position.next_offset),
            log_start: ends.map(|ends| ends.start),
            log_end: ends.map(|ends| ends.end),
            error,
        }
    };
    positions.iter().map(look).collect()
}
