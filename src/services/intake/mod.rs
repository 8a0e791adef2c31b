//! Taking in: from what the consumer read to rows in quarantine.
//!
//! One [`Intake`] per cluster, a state machine driven from outside: a job hands it the consumer's events and calls [`Intake::tick`]
//! when something is due; what it answers are commands for the consumer. It never sleeps and owns no thread. What cannot be stored
//! now stays in hand ([`Intake::is_stalled`]) and is tried again, so that nothing is lost and nothing spins.
//!
//! Several instances may run it at once on the same cluster and database. Each partition's position carries an epoch that a claim
//! raises; rows and position commit together only under the epoch and offset that the reader expects. Whoever was overtaken has its
//! batch refused, throws it away and looks again.
//!
//! `discovery` finds topics, lives of topics and start positions; `claim` says where a partition goes on; `batch` stores.

mod batch;
mod claim;
mod discovery;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::classify::ClassRule;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::{Inspector, TopicPartition};
use crate::kafka::intake::{IntakeCommand, IntakeEvent};
use crate::store::dlqs::Dlq;
use crate::store::positions::PartitionId;
use crate::store::{Store, StoreError};
use crate::telemetry;

use batch::Piece;
pub use status::{ClusterStatus, ClusterView, Connection, Problem, Progress};
use status::{Rate, continued};

/// How long one look-up in Kafka may take.
const LOOK_UP: Duration = Duration::from_secs(10);
/// The first wait after a failure; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long a partition that lies below its log's start may still deliver what was fetched before, until the gap is believed.
const SECOND_LOOK: Duration = Duration::from_millis(1_500);

/// Why intake could not go on just now.
#[derive(Debug, thiserror::Error)]
enum IntakeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    #[error("a look-up ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// A topic that the configuration covers and the cluster has.
#[derive(Debug, Clone)]
struct Topic {
    dlq: Dlq,
    settings: Arc<DlqSettings>,
    partitions: i32,
    /// It appeared while this process was running, so all of it is new.
    appeared: bool,
}

/// A partition that the consumer group gave us.
#[derive(Debug, Clone)]
enum Assigned {
    /// Paused; its position is still to be claimed.
    Waiting,
    Reading(Reading),
    /// Paused: another instance claimed it after us, and our own revocation is probably on its way.
    Overtaken {
        epoch: i64,
        next_offset: i64,
    },
}

/// A partition being read.
#[derive(Debug, Clone)]
struct Reading {
    id: PartitionId,
    epoch: i64,
    /// The stored position.
    next_offset: i64,
    /// Of the last `Start`; what carries another one is void.
    generation: u64,
    /// The log's end when last asked.
    end: Option<i64>,
    /// `next_offset` at the last look that found unread records, and in how many looks in a row it stood there.
    stood: Option<(i64, u32)>,
}

/// Intake of one cluster.
pub struct Intake {
    cluster: String,
    discovery_interval: Duration,
    dlqs: Vec<DlqSettings>,
    rules: Arc<[ClassRule]>,
    store: Store,
    inspector: Arc<Inspector>,
    clock: Clock,
    status: ClusterStatus,
    topics: BTreeMap<String, Topic>,
    /// All topics of the previous full listing; None before the first.
    listed: Option<BTreeSet<String>>,
    subscribed: BTreeSet<String>,
    assigned: BTreeMap<TopicPartition, Assigned>,
    generation: u64,
    /// Read and not yet stored, in order.
    pending: VecDeque<Piece>,
    outbox: Vec<IntakeCommand>,
    /// Failures in a row, and when to try again (monotonic).
    failures: u32,
    retry_at: Option<Duration>,
    discovery_at: Duration,
    /// Listings that failed in a row.
    listing_failures: u32,
    /// Listings that succeeded, for what takes turns.
    listings: usize,
    /// When to look once more at partitions that seemed outside their log or stopped.
    second_look_at: Option<Duration>,
    /// Whether the consumer stopped some partition since the last second look.
    reset: bool,
    rate: Rate,
}

impl Intake {
    /// Nothing is asked yet; the first [`Intake::tick`] discovers.
    pub fn new(
        store: Store,
        inspector: Arc<Inspector>,
        clock: Clock,
        cluster: &ClusterSettings,
        dlqs: Vec<DlqSettings>,
        rules: Vec<ClassRule>,
        status: ClusterStatus,
    ) -> Intake {
        Intake {
            cluster: cluster.name.clone(),
            discovery_interval: Duration::from_secs(cluster.discovery_interval_s.max(1)),
            dlqs,
            rules: rules.into(),
            store,
            inspector,
            status,
            topics: BTreeMap::new(),
            listed: None,
            subscribed: BTreeSet::new(),
            assigned: BTreeMap::new(),
            generation: 0,
            pending: VecDeque::new(),
            outbox: Vec::new(),
            failures: 0,
            retry_at: None,
            discovery_at: clock.monotonic(),
            listing_failures: 0,
            listings: 0,
            second_look_at: None,
            reset: false,
            rate: Rate::default(),
            clock,
        }
    }

    /// Whether something that was read could not be stored yet: no further event may be taken until [`Intake::tick`] managed to.
    /// The consumer keeps its membership meanwhile; its event queue fills and it pauses.
    pub fn is_stalled(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the cluster answers and nothing waits to be stored: what counts as progress of a job that may well have nothing to do.
    pub fn is_well(&self) -> bool {
        !self.is_stalled() && self.failures == 0 && self.status.view().connection == Connection::Connected
    }

    /// How long until [`Intake::tick`] has something to do.
    pub fn due_in(&self) -> Duration {
        let now = self.clock.monotonic();
        let discovery = if self.is_stalled() { None } else { Some(self.discovery_at) };
        let next = [discovery, self.retry_at, self.second_look_at].into_iter().flatten().min();
        next.unwrap_or(self.discovery_at).saturating_sub(now)
    }

    /// Does what is due: tries again what failed, looks again, discovers.
    pub async fn tick(&mut self) -> Vec<IntakeCommand> {
        let now = self.clock.monotonic();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.flush().await;
            self.claim_waiting().await;
        }
        if !self.is_stalled() && self.second_look_at.is_some_and(|at| at <= now) {
            self.second_look_at = None;
            self.look_at_ends(Look::Second).await;
            self.reset = false;
        }
        if !self.is_stalled() && self.discovery_at <= now {
            return self.discover().await;
        }
        self.answer()
    }

    /// Lists the topics now, whatever is due.
    pub async fn discover(&mut self) -> Vec<IntakeCommand> {
        // What is in hand belongs to the lives we know; store it before learning of new ones.
        self.flush().await;
        if !self.is_stalled() {
            self.list_topics().await;
            self.claim_waiting().await;
            self.look_at_ends(Look::Discovery).await;
        }
        self.answer()
    }

    /// Takes one event of the consumer.
    pub async fn on_event(&mut self, event: IntakeEvent) -> Vec<IntakeCommand> {
        let now_ms = self.clock.now_ms();
        match event {
            IntakeEvent::Assigned(partitions) => {
                // A partition of a topic that the last listing did not have waits for the next one; make that soon.
                if partitions.iter().any(|(topic, _)| !self.topics.contains_key(topic)) {
                    self.hasten_discovery();
                }
                self.assigned.extend(partitions.into_iter().map(|partition| (partition, Assigned::Waiting)));
                self.claim_waiting().await;
            }
            IntakeEvent::Revoked(partitions) => {
                for partition in &partitions {
                    self.assigned.remove(partition);
                }
            }
            IntakeEvent::Batch(batch) => self.take(batch).await,
            IntakeEvent::OffsetReset => {
                self.reset = true;
                self.look_at_ends(Look::First).await;
            }
            IntakeEvent::Connection { up: true, .. } => {
                self.status.connected();
                // Whatever failed while it was away is worth trying at once.
                self.discovery_at = self.clock.monotonic();
            }
            IntakeEvent::Connection { up: false, reason } => {
                self.status.disconnected(now_ms, reason.map_or_else(|| "no broker answers".to_owned(), |reason| reason.to_string()));
            }
            IntakeEvent::Error(error) => self.complain(error.to_string()),
            IntakeEvent::Stopped(error) => {
                self.assigned.clear();
                if let Some(error) = error {
                    self.complain(error.to_string());
                }
            }
        }
        self.answer()
    }

    fn answer(&mut self) -> Vec<IntakeCommand> {
        self.show_progress();
        std::mem::take(&mut self.outbox)
    }

    fn show_progress(&mut self) {
        let uncollected = self
            .assigned
            .values()
            .map(|assigned| match assigned {
                Assigned::Reading(reading) => reading.end.map(|end| u64::try_from(end - reading.next_offset).unwrap_or(0)),
                Assigned::Waiting | Assigned::Overtaken { .. } => None,
            })
            .sum::<Option<u64>>();
        let per_second = self.rate.per_second(self.clock.monotonic());
        let partitions = self.assigned.len();
        self.status.change(|view| {
            view.partitions = partitions;
            view.progress.uncollected = uncollected;
            view.progress.per_second = per_second;
        });
    }

    fn complain(&self, text: String) {
        telemetry::consumer_error(&self.cluster, &text);
        let since_ms = self.clock.now_ms();
        self.status.change(|view| view.complaint = Some(Problem { since_ms, text }));
    }

    /// Notes a failure and when to try again.
    fn stall(&mut self, error: &IntakeError) {
        if let IntakeError::Kafka(KafkaError::Unreachable { .. }) = error {
            self.status.disconnected(self.clock.now_ms(), error.to_string());
        }
        self.failures = self.failures.saturating_add(1);
        telemetry::intake_stalled(&self.cluster, self.failures, &error.to_string());
        self.retry_at = Some(self.clock.monotonic() + wait_after(self.failures));
        let now_ms = self.clock.now_ms();
        self.status.change(|view| continued(&mut view.stalled, now_ms, error.to_string()));
    }

    /// Forgets the failures once everything that waited was done.
    fn recovered(&mut self) {
        if self.failures > 0 {
            telemetry::intake_recovered(&self.cluster, self.failures);
            self.failures = 0;
            self.retry_at = None;
            self.status.change(|view| view.stalled = None);
        }
    }

    /// Asks Kafka off the async threads.
    async fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Inspector) -> T + Send + 'static) -> Result<T, IntakeError> {
        let inspector = Arc::clone(&self.inspector);
        Ok(tokio::task::spawn_blocking(move || question(&inspector)).await?)
    }

    /// Kafka's present ids of these topics; see [`Inspector::topic_ids`].
    async fn topic_ids(&self, topics: Vec<String>) -> Result<BTreeMap<String, Option<String>>, IntakeError> {
        Ok(self.ask(move |inspector| inspector.topic_ids(&topics, LOOK_UP)).await??)
    }

    /// Tells the consumer to read from here and makes everything read before void.
    fn start(&mut self, partition: &TopicPartition, id: PartitionId, epoch: i64, next_offset: i64, end: Option<i64>) {
        self.generation += 1;
        let generation = self.generation;
        let reading = Reading { id, epoch, next_offset, generation, end, stood: None };
        self.assigned.insert(partition.clone(), Assigned::Reading(reading));
        self.outbox.push(IntakeCommand::Start { partition: partition.clone(), offset: next_offset, generation });
    }

    fn reading(&self, partition: &TopicPartition) -> Option<&Reading> {
        match self.assigned.get(partition) {
            Some(Assigned::Reading(reading)) => Some(reading),
            _ => None,
        }
    }

    /// Back to [`Assigned::Waiting`]: what was read is void, the position is claimed anew.
    fn wait(&mut self, partition: &TopicPartition) {
        if let Some(assigned) = self.assigned.get_mut(partition) {
            *assigned = Assigned::Waiting;
            self.outbox.push(IntakeCommand::Pause(partition.clone()));
        }
    }
}

/// Why the ends are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The regular one, after a listing.
    Discovery,
    /// The consumer stopped reading a partition and cannot say which.
    First,
    /// A while after a look that found something odd.
    Second,
}

/// Doubling from [`FIRST_WAIT`] to [`LONGEST_WAIT`].
fn wait_after(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_cap() {
        assert_eq!(wait_after(1), Duration::from_millis(250));
        assert_eq!(wait_after(3), Duration::from_secs(1));
        assert_eq!(wait_after(40), LONGEST_WAIT);
    }
}
