//! The health of DLQs as pages, API and metrics show it: one read of counters and samples, judged by `domain::health`.
//!
//! A handful of queries for all DLQs together, whatever their number: 200 cost about what one costs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::domain::baseline::{Band, State, Usual};
use crate::domain::clock::Clock;
use crate::domain::health::{self, AtRisk, Because, Figures, Firing, Looked, Measures, Status, Verdict};
use crate::domain::message::MAX_AHEAD_MS;
use crate::domain::settings::{DlqSettings, settings_for};
use crate::store::alerts::FiringAlert;
use crate::store::counters::{DlqCounts, OutcomeCounts};
use crate::store::dlqs::{Dlq, Incarnation};
use crate::store::groups::Group;
use crate::store::positions::{Gap, Position};
use crate::store::samples::{PartitionSample, Sample};
use crate::store::{Store, StoreError};

const MINUTE_MS: i64 = 60_000;
/// Width of a sparkline's bucket: 48 of them make 24 hours.
pub const BUCKET_MS: i64 = 30 * MINUTE_MS;
const BUCKETS: i64 = 48;
/// How often a cluster is sampled when nobody says.
const USUAL_INTERVAL_MS: i64 = 15_000;
/// Width of a bucket of the chart of one DLQ's arrivals.
const FINE_MS: i64 = 5 * MINUTE_MS;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
const GROUPS_READ: i64 = 1_000;
const GAPS_SHOWN: i64 = 20;

/// The health of DLQs over the store.
#[derive(Debug, Clone)]
pub struct Health {
    pub store: Store,
    pub clock: Clock,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
    /// How often each cluster is sampled, ms.
    pub sample_interval_ms: Arc<BTreeMap<String, i64>>,
}

/// One DLQ, as an overview row and an API item show it. `None` is unknown, never zero.
#[derive(Debug, Clone, PartialEq)]
pub struct DlqHealth {
    pub dlq: Dlq,
    /// The configured consumer group; dialects may name others per message.
    pub consumer_group: Option<String>,
    pub status: Status,
    /// Why it is critical or a warning.
    pub because: Option<Because>,
    /// Messages not yet replayed or archived: exact and known even while the cluster is not, for it counts what is stored.
    pub depth: i64,
    /// How much the depth changed in the last hour; None without a sample from then.
    pub depth_change_1h: Option<i64>,
    pub follow_up_open: i64,
    /// What became of what was sent.
    pub outcomes: OutcomeCounts,
    /// In the topic, not yet taken in; an estimate.
    pub uncollected: Option<i64>,
    /// Age in ms of the oldest of `depth`; None when there is none.
    pub oldest_age_ms: Option<i64>,
    /// Age in ms of the oldest event among them; None when there is none or no header says.
    pub event_age_ms: Option<i64>,
    pub at_risk: AtRisk,
    /// New dead letters per minute over 15 min by dead-lettered time; None while the newest sample says nothing about now.
    pub arrivals_per_min: Option<f64>,
    /// What is usual at this hour, per minute; None: not known. The band is None while it is being learned.
    pub usual: Option<(State, Option<Band>)>,
    /// Arrivals of the last 24 h in buckets of [`BUCKET_MS`], oldest first; None where they cannot be known.
    pub arrivals: Vec<Option<i64>>,
    /// Start of the first of `arrivals`, ms.
    pub arrivals_from_ms: i64,
    /// When the DLQ was last sampled with success, ms. None: never.
    pub sampled_at_ms: Option<i64>,
    /// Why the newest sample failed.
    pub sample_error: Option<String>,
}

impl DlqHealth {
    /// Whether what the cluster says of this DLQ is known as of now.
    pub fn has_data(&self) -> bool {
        self.status != Status::NoData
    }
}

/// One DLQ with everything its page shows beside its messages.
#[derive(Debug, Clone)]
pub struct DlqDetail {
    pub health: DlqHealth,
    /// Oldest first; more than one when the topic was deleted and created again.
    pub incarnations: Vec<Incarnation>,
    /// What reading had to step over, newest first.
    pub gaps: Vec<Gap>,
    /// Those still arriving first ([`health::arriving_from_ms`]), then most open messages first; at most 1,000.
    pub groups: Vec<Group>,
    /// There are more groups than those.
    pub more_groups: bool,
    /// Arrivals of the last 24 h by 5 minutes; None where they cannot be known.
    pub arrivals: Buckets,
    /// Depth over the last 24 h at the end of each bucket, in the last one as of now; None where no look at the DLQ succeeded.
    pub depths: Buckets,
    pub partitions: Vec<PartitionView>,
}

/// Numbers of equal spans of time, oldest first. None is "not known".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    pub counts: Vec<Option<i64>>,
    /// Start of the first, ms.
    pub from_ms: i64,
    pub bucket_ms: i64,
}

/// One partition of the newest incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    pub partition: i32,
    /// The next offset to read.
    pub position: Option<i64>,
    pub log_start: Option<i64>,
    pub log_end: Option<i64>,
    /// `max(0, log_end - position)` as of the sample; an estimate.
    pub uncollected: Option<i64>,
    /// When it was last looked at, ms.
    pub sampled_at_ms: Option<i64>,
    pub error: Option<String>,
}

/// How many DLQs have each status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCounts(BTreeMap<&'static str, usize>);

impl StatusCounts {
    /// Counts the rows.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a DlqHealth>) -> StatusCounts {
        let mut counts = BTreeMap::new();
        for row in rows {
            *counts.entry(row.status.as_str()).or_default() += 1;
        }
        StatusCounts(counts)
    }
    pub fn get(&self, status: Status) -> usize {
        self.0.get(status.as_str()).copied().unwrap_or(0)
    }
    pub fn all(&self) -> usize {
        self.0.values().sum()
    }
}

/// What figures are made of.
struct Basics {
    now_ms: i64,
    counts: BTreeMap<i64, DlqCounts>,
    oldest: HashMap<i64, (i64, Option<i64>)>,
    samples: HashMap<i64, (Sample, Option<Sample>)>,
    /// Arrivals by minute.
    recent: HashMap<i64, Vec<(i64, i64)>>,
}

/// What the store says of all DLQs at one moment.
struct Reads {
    basics: Basics,
    /// What fires, by cluster and topic. None: there is no rule that is switched on.
    alerts: Option<HashMap<(String, String), Vec<FiringAlert>>>,
    usual: HashMap<i64, Usual>,
    buckets: HashMap<i64, Vec<(i64, i64)>>,
    buckets_from_ms: i64,
    /// Depth an hour ago.
    depths_then: HashMap<i64, i64>,
}

impl Health {
    /// All DLQs, worst first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn all(&self) -> Result<Vec<DlqHealth>, StoreError> {
        let dlqs = self.store.dlqs().await?;
        let reads = self.read(None).await?;
        let mut rows: Vec<DlqHealth> = dlqs.into_iter().map(|dlq| self.judge(dlq, &reads)).collect();
        rows.sort_by(|a, b| {
            let places = health::worst_first((a.status, &measures(a)), (b.status, &measures(b)));
            places.then_with(|| (&a.dlq.cluster, &a.dlq.topic).cmp(&(&b.dlq.cluster, &b.dlq.topic)))
        });
        Ok(rows)
    }

    /// All DLQs as rules see them, with their arrivals by minute from `minutes_from_ms` on. Five queries, six where a look failed.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn looks(&self, minutes_from_ms: i64) -> Result<Vec<(Dlq, Looked)>, StoreError> {
        let dlqs = self.store.dlqs().await?;
        let mut basics = self.basics(None, minutes_from_ms).await?;
        let look = |dlq: Dlq| {
            let figures = self.figures(&dlq, &basics);
            let (newest, good) = basics.samples_of(dlq.id);
            let counts = basics.counts.get(&dlq.id);
            let looked = Looked {
                figures,
                replayed: counts.map_or(0, DlqCounts::replayed),
                looked_at_ms: newest.map(|sample| sample.at_ms),
                sampled_at_ms: good.map(|sample| sample.at_ms),
                minutes: Vec::new(),
            };
            (dlq, looked)
        };
        let mut looks: Vec<(Dlq, Looked)> = dlqs.into_iter().map(look).collect();
        for (dlq, looked) in &mut looks {
            looked.minutes = basics.recent.remove(&dlq.id).unwrap_or_default();
        }
        Ok(looks)
    }

    /// One DLQ with its groups, partitions and history. None: no such DLQ was ever seen.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn one(&self, cluster: &str, topic: &str) -> Result<Option<DlqDetail>, StoreError> {
        let Some(dlq) = self.store.dlq(cluster, topic).await? else {
            return Ok(None);
        };
        let id = dlq.id;
        let incarnation = dlq.incarnation;
        let reads = self.read(Some(id)).await?;
        let health = self.judge(dlq, &reads);
        let positions = self.store.positions(Some(id)).await?;
        let samples = self.store.partition_samples(id).await?;
        let mut groups = self.store.groups(id, health::arriving_from_ms(reads.basics.now_ms), GROUPS_READ + 1).await?;
        let more_groups = groups.len() as i64 > GROUPS_READ;
        groups.truncate(GROUPS_READ as usize);
        Ok(Some(DlqDetail {
            arrivals: self.fine_arrivals(&health, reads.basics.now_ms).await?,
            depths: self.depths(&health, reads.basics.now_ms).await?,
            groups,
            more_groups,
            incarnations: self.store.incarnations(id).await?,
            gaps: self.store.gaps(id, GAPS_SHOWN).await?,
            partitions: partition_views(incarnation, &positions, &samples),
            health,
        }))
    }

    async fn fine_arrivals(&self, row: &DlqHealth, now_ms: i64) -> Result<Buckets, StoreError> {
        let from_ms = first_bucket_ms(now_ms, FINE_MS);
        let stored = self.store.arrivals(Some(row.dlq.id), from_ms, from_ms + DAY_MS, FINE_MS).await?;
        let stored = stored.into_iter().map(|(_, start, count)| (start, count)).collect();
        let known = Known::of(&row.dlq, row.sampled_at_ms, row.arrivals_per_min.is_some());
        Ok(Buckets { counts: known.buckets(&stored, from_ms, FINE_MS, DAY_MS / FINE_MS), from_ms, bucket_ms: FINE_MS })
    }

    async fn depths(&self, row: &DlqHealth, now_ms: i64) -> Result<Buckets, StoreError> {
        let interval = self.sample_interval_ms.get(&row.dlq.cluster).copied().unwrap_or(USUAL_INTERVAL_MS);
        // Where a cluster is looked at less often, each bucket still has a look in it.
        let bucket_ms = [15 * MINUTE_MS, 60 * MINUTE_MS].into_iter().find(|bucket| *bucket >= interval).unwrap_or(6 * 60 * MINUTE_MS);
        let from_ms = first_bucket_ms(now_ms, bucket_ms);
        let seen: HashMap<i64, i64> = self.store.depth_history(row.dlq.id, from_ms, now_ms + 1, bucket_ms).await?.into_iter().collect();
        let mut counts: Vec<Option<i64>> = (0..DAY_MS / bucket_ms).map(|index| seen.get(&(from_ms + index * bucket_ms)).copied()).collect();
        if let Some(running) = counts.last_mut() {
            *running = row.arrivals_per_min.map(|_| row.depth);
        }
        Ok(Buckets { counts, from_ms, bucket_ms })
    }

    async fn basics(&self, only: Option<i64>, minutes_from_ms: i64) -> Result<Basics, StoreError> {
        let now_ms = self.clock.now_ms();
        Ok(Basics {
            now_ms,
            counts: self.store.dlq_counts(only).await?,
            oldest: self.store.oldest_open(only).await?.into_iter().map(|(dlq, dead, event)| (dlq, (dead, event))).collect(),
            samples: self.store.latest_samples(only).await?.into_iter().map(|pair| (pair.0.dlq_id, pair)).collect(),
            recent: self.store.arrivals_by_minute(only, minutes_from_ms.min(health::arrivals_from_ms(now_ms)), now_ms + 1).await?,
        })
    }

    async fn read(&self, only: Option<i64>) -> Result<Reads, StoreError> {
        let basics = self.basics(only, i64::MAX).await?;
        let now_ms = basics.now_ms;
        let buckets_from_ms = (now_ms.div_euclid(BUCKET_MS) - (BUCKETS - 1)) * BUCKET_MS;
        let hour_ago = now_ms - 60 * MINUTE_MS;
        let alerts = match self.store.any_rule().await? {
            false => None,
            true => {
                let mut by_dlq: HashMap<(String, String), Vec<FiringAlert>> = HashMap::new();
                for alert in self.store.firing_alerts().await? {
                    by_dlq.entry((alert.cluster.clone(), alert.topic.clone())).or_default().push(alert);
                }
                Some(by_dlq)
            }
        };
        Ok(Reads {
            basics,
            alerts,
            usual: self.store.usual(only).await?,
            buckets: self.store.arrivals_by_half_hour(only, buckets_from_ms).await?,
            buckets_from_ms,
            depths_then: self.store.depths_at(only, hour_ago, hour_ago + 10 * MINUTE_MS).await?.into_iter().collect(),
        })
    }

    fn figures(&self, dlq: &Dlq, basics: &Basics) -> Figures {
        let counts = basics.counts.get(&dlq.id);
        let interval = self.sample_interval_ms.get(&dlq.cluster).copied().unwrap_or(USUAL_INTERVAL_MS);
        // A sample that failed is no data at once, whatever came before it.
        let is_fresh = |sample: &&Sample| sample.error.is_none() && health::is_fresh(Some(sample.at_ms), basics.now_ms, interval);
        let fresh = basics.samples_of(dlq.id).0.filter(is_fresh);
        let recent = basics.recent.get(&dlq.id).into_iter().flatten().copied();
        let rate = health::arrivals_per_minute(recent, basics.now_ms);
        let outcomes = counts.map_or_else(OutcomeCounts::default, |counts| counts.outcomes);
        Figures {
            has_data: fresh.is_some(),
            depth: Some(counts.map_or(0, DlqCounts::depth)),
            oldest_open_ms: basics.oldest.get(&dlq.id).map(|(dead, _)| *dead),
            uncollected: fresh.and_then(|sample| sample.uncollected),
            at_risk: fresh.map_or(AtRisk::Unknown, |sample| AtRisk::from_parts(&sample.at_risk_state, sample.at_risk_left_ms)),
            arrivals_per_minute: fresh.map(|_| rate),
            follow_up_open: Some(counts.map_or(0, |counts| counts.follow_up_open)),
            confirmed: Some(outcomes.confirmed),
            returned: Some(outcomes.returned),
        }
    }

    fn judge(&self, dlq: Dlq, reads: &Reads) -> DlqHealth {
        let now_ms = reads.basics.now_ms;
        let figures = self.figures(&dlq, &reads.basics);
        let (newest, last_good) = reads.basics.samples_of(dlq.id);
        let counts = reads.basics.counts.get(&dlq.id);
        let settings = settings_for(&self.dlqs, &dlq.cluster, &dlq.topic);
        let depth = figures.depth.unwrap_or(0);
        let event_ms = reads.basics.oldest.get(&dlq.id).and_then(|(_, event_ms)| *event_ms);
        let mut row = DlqHealth {
            consumer_group: settings.and_then(|settings| settings.consumer_group.clone()),
            status: Status::NoData,
            because: None,
            depth,
            depth_change_1h: reads.depths_then.get(&dlq.id).map(|then| depth - then),
            follow_up_open: figures.follow_up_open.unwrap_or(0),
            outcomes: counts.map_or_else(OutcomeCounts::default, |counts| counts.outcomes),
            uncollected: figures.uncollected,
            oldest_age_ms: figures.oldest_open_ms.map(|dead_ms| (now_ms - dead_ms).max(0)),
            event_age_ms: event_ms.and_then(|event_ms| event_age_ms(event_ms, now_ms)),
            at_risk: figures.at_risk,
            arrivals_per_min: figures.arrivals_per_minute,
            usual: reads.usual.get(&dlq.id).and_then(|usual| usual.at(now_ms)),
            arrivals: bucketed(reads.buckets.get(&dlq.id), reads, &dlq, last_good.map(|sample| sample.at_ms), figures.has_data),
            arrivals_from_ms: reads.buckets_from_ms,
            sampled_at_ms: last_good.map(|sample| sample.at_ms),
            sample_error: newest.and_then(|sample| sample.error.clone()),
            dlq,
        };
        // A topic that does not exist cannot be looked at, and that is known: what it left behind is what there is to judge.
        let has_data = figures.has_data || row.dlq.gone_since_ms.is_some();
        // Until the rules have looked at a DLQ for the first time they say nothing of it: that is no "healthy".
        let looked_at = reads.usual.contains_key(&row.dlq.id);
        let verdict = match reads.alerts.as_ref().filter(|_| looked_at) {
            None => health::judge(&Measures { has_data, ..measures(&row) }),
            Some(alerts) => {
                let of_dlq = alerts.get(&(row.dlq.cluster.clone(), row.dlq.topic.clone()));
                by_rules(has_data, of_dlq.into_iter().flatten(), now_ms)
            }
        };
        (row.status, row.because) = (verdict.status, verdict.because);
        row
    }
}

impl Basics {
    /// The newest sample of a DLQ, and the newest that succeeded.
    fn samples_of(&self, dlq_id: i64) -> (Option<&Sample>, Option<&Sample>) {
        self.samples.get(&dlq_id).map_or((None, None), |(newest, good)| (Some(newest), good.as_ref()))
    }
}

fn by_rules<'a>(has_data: bool, alerts: impl Iterator<Item = &'a FiringAlert>, now_ms: i64) -> Verdict {
    let firing = |alert: &FiringAlert| {
        let firing = alert.alert.firing()?;
        let silenced = alert.alert.is_silenced(now_ms);
        Some(Firing { severity: firing.severity, measure: alert.measure, value: firing.value, silenced })
    };
    let firing: Vec<Firing> = alerts.filter_map(firing).collect();
    health::judge_alerts(has_data, &firing)
}

/// What `domain::health` judges by while there are no rules, and orders by.
fn measures(row: &DlqHealth) -> Measures {
    Measures {
        has_data: row.has_data(),
        at_risk: row.at_risk,
        oldest_age_ms: row.oldest_age_ms,
        arrivals_per_minute: row.arrivals_per_min,
        depth: Some(row.depth),
        uncollected: row.uncollected,
    }
}

/// Start of the first of the buckets that make the last 24 h, the running one included.
fn first_bucket_ms(now_ms: i64, bucket_ms: i64) -> i64 {
    (now_ms.div_euclid(bucket_ms) + 1) * bucket_ms - DAY_MS
}

/// Of which time arrivals are known: where none is stored it is zero, except where nothing could be known. That is after the last
/// successful sample while the DLQ has no data, and before reading began when `start` left older records out.
struct Known {
    from_ms: i64,
    to_ms: i64,
}

impl Known {
    fn of(dlq: &Dlq, last_good_ms: Option<i64>, fresh: bool) -> Known {
        Known {
            from_ms: if dlq.start_note.is_some() { dlq.first_seen_at_ms } else { i64::MIN },
            to_ms: if fresh { i64::MAX } else { last_good_ms.unwrap_or(i64::MIN) },
        }
    }

    fn buckets(&self, stored: &HashMap<i64, i64>, from_ms: i64, bucket_ms: i64, count: i64) -> Vec<Option<i64>> {
        let bucket = |index: i64| {
            let start = from_ms + index * bucket_ms;
            let known = start <= self.to_ms && start + bucket_ms > self.from_ms;
            stored.get(&start).copied().or(known.then_some(0))
        };
        (0..count).map(bucket).collect()
    }
}

/// The sparkline's buckets.
fn bucketed(stored: Option<&Vec<(i64, i64)>>, reads: &Reads, dlq: &Dlq, last_good_ms: Option<i64>, fresh: bool) -> Vec<Option<i64>> {
    let stored: HashMap<i64, i64> = stored.into_iter().flatten().copied().collect();
    Known::of(dlq, last_good_ms, fresh).buckets(&stored, reads.buckets_from_ms, BUCKET_MS, BUCKETS)
}

/// Age of the oldest event. None for one from the future: its clock tells nothing, and 0 would say "just now".
fn event_age_ms(event_ms: i64, now_ms: i64) -> Option<i64> {
    (event_ms <= now_ms.saturating_add(MAX_AHEAD_MS)).then(|| now_ms.saturating_sub(event_ms).max(0))
}

fn partition_views(incarnation: i32, positions: &[Position], samples: &[PartitionSample]) -> Vec<PartitionView> {
    let mut views: BTreeMap<i32, PartitionView> = BTreeMap::new();
    for position in positions.iter().filter(|position| position.id.incarnation == incarnation) {
        let partition = position.id.partition;
        let position = Some(position.next_offset);
        views.insert(
            partition,
            PartitionView { partition, position, log_start: None, log_end: None, uncollected: None, sampled_at_ms: None, error: None },
        );
    }
    for sample in samples.iter().filter(|sample| sample.id.incarnation == incarnation) {
        let partition = sample.id.partition;
        let position = views.get(&partition).and_then(|view| view.position).or(sample.position);
        // From the sample's own pair: it read the position before the end.
        let uncollected = health::uncollected([(sample.position, sample.log_end)]);
        views.insert(
            partition,
            PartitionView {
                partition,
                position,
                log_start: sample.log_start,
                log_end: sample.log_end,
                uncollected,
                sampled_at_ms: Some(sample.at_ms),
                error: sample.error.clone(),
            },
        );
    }
    views.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_buckets_ends_with_the_running_one() {
        for now in [0, 1, FINE_MS - 1, FINE_MS, 1_796_047_331_000] {
            let from = first_bucket_ms(now, FINE_MS);
            assert!(from + DAY_MS > now && from + DAY_MS - FINE_MS <= now, "{now}");
        }
    }

    #[test]
    fn an_event_from_the_future_has_no_age() {
        let now = 1_800_000_000_000;
        for (event, age) in
            [(now - 5, Some(5)), (now + 1, Some(0)), (now + MAX_AHEAD_MS + 1, None), (i64::MAX, None), (i64::MIN, Some(i64::MAX))]
        {
            assert_eq!(event_age_ms(event, now), age, "{event}");
        }
    }
}
