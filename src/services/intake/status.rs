//! How intake of one cluster is getting on, for pages and API: a handle that is cheap to clone and to read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::telemetry;

/// Whether the cluster answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// Not yet known.
    Connecting,
    Connected,
    /// Since when (ms since the epoch) and why, without secrets.
    Disconnected {
        since_ms: i64,
        reason: String,
    },
}

/// Something that went wrong, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// When it began, ms since the epoch.
    pub since_ms: i64,
    pub text: String,
}

/// How far taking in has come since this process started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Messages taken in by this process.
    pub taken_in: u64,
    /// Records waiting in the partitions that this process reads, an estimate; None while any partition's end is unknown.
    pub uncollected: Option<u64>,
    /// Messages per second over the last half minute; None before there were two batches in it.
    pub per_second: Option<f64>,
}

/// A cluster as intake sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterView {
    pub cluster: String,
    pub connection: Connection,
    /// When the topics were last listed with success, ms since the epoch.
    pub discovered_at_ms: Option<i64>,
    /// Topics that the configuration covers; None before the first listing.
    pub topics: Option<usize>,
    /// How many partitions each topic of the cluster had in the last listing, covered or not; None before the first.
    pub partition_counts: Option<Arc<BTreeMap<String, i32>>>,
    /// Partitions that this process reads; others may be read by other instances.
    pub partitions: usize,
    /// Set while a batch or a position cannot be stored; nothing is lost meanwhile.
    pub stalled: Option<Problem>,
    /// The last listing that failed, until one succeeds.
    pub discovery: Option<Problem>,
    /// The last thing the consumer complained of.
    pub complaint: Option<Problem>,
    pub progress: Progress,
}

/// The handle. Intake writes, everyone may read.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    view: Arc<RwLock<ClusterView>>,
    /// Microseconds of the monotonic clock; [`NEVER`].
    progressed_at: Arc<AtomicU64>,
}

const NEVER: u64 = u64::MAX;

impl ClusterStatus {
    /// Nothing known yet.
    pub fn new(cluster: &str) -> ClusterStatus {
        let view = Arc::new(RwLock::new(ClusterView {
            cluster: cluster.to_owned(),
            connection: Connection::Connecting,
            discovered_at_ms: None,
            topics: None,
            partition_counts: None,
            partitions: 0,
            stalled: None,
            discovery: None,
            complaint: None,
            progress: Progress::default(),
        }));
        ClusterStatus { view, progressed_at: Arc::new(AtomicU64::new(NEVER)) }
    }

    /// The state of this moment.
    pub fn view(&self) -> ClusterView {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Intake did what it is for, at this moment of the monotonic clock.
    pub fn progressed(&self, now: Duration) {
        self.progressed_at.store(u64::try_from(now.as_micros()).unwrap_or(NEVER - 1), Ordering::Relaxed);
    }

    /// When it last did; None: not yet.
    pub fn progressed_at(&self) -> Option<Duration> {
        Some(self.progressed_at.load(Ordering::Relaxed)).filter(|at| *at != NEVER).map(Duration::from_micros)
    }

    /// A listing came: every topic of the cluster with its partition count.
    pub fn listed(&self, partition_counts: BTreeMap<String, i32>) {
        self.change(|view| view.partition_counts = Some(Arc::new(partition_counts)));
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ClusterView)) {
        change(&mut self.view.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn connected(&self) {
        self.change(|view| {
            if view.connection != Connection::Connected {
                view.connection = Connection::Connected;
                telemetry::connection(&view.cluster, true, None);
            }
        });
    }

    /// Keeps the time of the first failure: "disconnected since". For who starts the consumer, and for intake itself.
    pub fn disconnected(&self, now_ms: i64, reason: String) {
        self.change(|view| match &mut view.connection {
            Connection::Disconnected { reason: old, .. } => *old = reason,
            connection => {
                telemetry::connection(&view.cluster, false, Some(&reason));
                *connection = Connection::Disconnected { since_ms: now_ms, reason };
            }
        });
    }
}

/// Keeps "since" while a problem lasts and takes over its newest text.
pub(super) fn continued(problem: &mut Option<Problem>, now_ms: i64, text: String) {
    match problem {
        Some(problem) => problem.text = text,
        None => *problem = Some(Problem { since_ms: now_ms, text }),
    }
}

/// Messages per second over a sliding window, on monotonic time.
#[derive(Debug, Default)]
pub(super) struct Rate {
    batches: VecDeque<(Duration, u64)>,
}

impl Rate {
    const WINDOW: Duration = Duration::from_secs(30);

    pub(super) fn add(&mut self, now: Duration, messages: u64) {
        self.batches.push_back((now, messages));
        self.forget(now);
    }

    fn forget(&mut self, now: Duration) {
        while self.batches.front().is_some_and(|(at, _)| now.saturating_sub(*at) > Rate::WINDOW) {
            self.batches.pop_front();
        }
    }

    /// None before there are two batches: one instant has no rate.
    pub(super) fn per_second(&mut self, now: Duration) -> Option<f64> {
        self.forget(now);
        let (first, _) = *self.batches.front()?;
        let seconds = now.saturating_sub(first).as_secs_f64();
        // The first batch marks where the window begins; what it holds was read before.
        let messages: u64 = self.batches.iter().skip(1).map(|(_, n)| n).sum();
        (self.batches.len() > 1 && seconds > 0.0).then(|| messages as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_batches_and_forgets_old_ones() {
        let mut rate = Rate::default();
        rate.add(Duration::from_secs(1), 500);
        assert_eq!(rate.per_second(Duration::from_secs(2)), None);
        rate.add(Duration::from_secs(3), 100);
        assert_eq!(rate.per_second(Duration::from_secs(5)), Some(25.0));
        assert_eq!(rate.per_second(Duration::from_secs(60)), None);
    }

    #[test]
    fn disconnected_since_keeps_its_first_time() {
        let status = ClusterStatus::new("main");
        assert_eq!(status.view().connection, Connection::Connecting);
        status.disconnected(1_000, "no route".to_owned());
        status.disconnected(9_000, "refused".to_owned());
        assert_eq!(status.view().connection, Connection::Disconnected { since_ms: 1_000, reason: "refused".to_owned() });
        status.connected();
        assert_eq!(status.view().connection, Connection::Connected);
    }
}
