//! Executes all live batches of one cluster, under one lease: so paces are kept over all of them, and no two processes send the same message.
//!
//! Nothing about a batch is kept here that the database does not hold too. Whoever takes the lease over finds out what was in doubt ([`super::recover`])
//! before anything else of that batch is sent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::pace::Pace;
use super::{Cluster, Entry, ReplayError, Replays};
use crate::domain::audit::{Action, By, Event};
use crate::domain::clock::Clock;
use crate::domain::replay::{BatchMove, BatchState, Plan};
use crate::domain::sending::{Drift, Events, InTheWay};
use crate::kafka::client::KafkaError;
use crate::kafka::producer::Producer;
use crate::kafka::scan::Scanner;
use crate::kafka::target::Target;
use crate::store::leases::{self, HeldLease, LeaseWatch};
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, Moved};
use crate::store::{StoreError, Tx, audit, replay_items};
use crate::telemetry;

/// The times that the promise rests on, and how often things are looked at. Tests use small ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lasts without renewal.
    pub lease: Duration,
    /// After this a record that is not acknowledged is given up (`message.timeout.ms`).
    pub message_timeout: Duration,
    /// How much longer a request may be on its way.
    pub margin: Duration,
    /// Between two looks at what there is to do.
    pub look_every: Duration,
    /// How long Kafka may take to answer a question.
    pub ask: Duration,
    /// How long what is known of a target and of a group's lag is used.
    pub facts_for: Duration,
    /// How long a check that could not run for a few messages is tried again before they are held.
    pub check_patience: Duration,
}

impl Timing {
    /// The defaults beside a lease.
    pub fn of_lease(lease: Duration) -> Timing {
        Timing {
            lease,
            message_timeout: Duration::from_secs(5),
            margin: Duration::from_secs(10),
            look_every: Duration::from_millis(200),
            ask: Duration::from_secs(10),
            facts_for: Duration::from_secs(5),
            check_patience: Duration::from_secs(30),
        }
    }

    /// How long after its intent, or after its sender lost the lease, a record has arrived or never will.
    pub fn settled_after(&self) -> Duration {
        self.lease + self.message_timeout + self.margin
    }
}

/// Something that was looked up, and when by the monotonic clock.
type Looked<T> = (Duration, T);
/// By group and topic.
type Lags = HashMap<(String, String), Looked<Option<u64>>>;

/// The executor of one cluster for as long as one lease is held.
pub struct Executor {
    pub(super) replays: Replays,
    pub(super) cluster: Cluster,
    pub(super) lease: HeldLease,
    pub(super) watch: LeaseWatch,
    pub(super) timing: Timing,
    pub(super) pace: Pace,
    pub(super) scanner: Arc<Scanner>,
    /// When this executor took the lease over, by its own clock.
    pub(super) since: Duration,
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    targets: Mutex<HashMap<String, Looked<Option<Target>>>>,
    lags: Mutex<Lags>,
}

/// What the executor keeps of a batch between two turns.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub batch_id: i64,
    /// Once it is known.
    dlq_id: Option<i64>,
    /// Read from the database when it is needed; forgotten when anything went wrong.
    pub memory: Option<Memory>,
    /// Outcomes that the database does not hold yet.
    pub unsettled: Vec<super::send::Known>,
    /// Since when something that this executor sent is in doubt.
    pub doubt_since: Option<Duration>,
    /// What was said of the first of it.
    pub doubt_reason: Option<String>,
    /// As it was when this turn began.
    state: Option<BatchState>,
    /// This executor has compared the settings with those that were approved.
    compared: bool,
    /// Since when its target is not there.
    pub missing_since: Option<Duration>,
    /// Messages in doubt that would fail again, and why.
    pub lasting: HashMap<i64, String>,
    /// Since when a check could not run.
    pub unchecked_since: Option<Duration>,
    /// The kind and the words of why it waits, as last stored.
    said: Option<(&'static str, String)>,
    /// The last failure that was logged.
    failed: Option<String>,
}

impl Run {
    /// Whether what was said last of why it waits is of this kind: it stands until that is over.
    pub fn says_of(&self, kind: &str) -> bool {
        self.said.as_ref().is_some_and(|(said, _)| *said == kind)
    }
}

/// Whether an approval holds could not be found out.
fn nobody_knows(error: ReplayError) -> Hindrance {
    match error {
        ReplayError::Store(error) => Hindrance::Store(error),
        error => Hindrance::Waits("start", format!("nobody knows whether the approval still holds: {error}")),
    }
}

/// What is known of a batch while it executes.
#[derive(Debug)]
pub(super) struct Memory {
    pub stage: i32,
    /// What goes next, in an order that is fair between tenants.
    pub queue: VecDeque<i64>,
    pub in_the_way: InTheWay,
    pub events: Events,
    pub drift: Drift,
}

/// Why a turn ended before its work was done.
#[derive(Debug, thiserror::Error)]
pub(super) enum Hindrance {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The lease is another's, or not known to be ours any more.
    #[error("the lease was lost; another instance goes on")]
    Lost,
    /// The cause lies outside and may go by itself: its kind, and words for people.
    #[error("{1}")]
    Waits(&'static str, String),
    /// Going on needs a new approval.
    #[error("{0}")]
    Halts(String),
}

impl Hindrance {
    pub(super) fn kafka(error: &KafkaError) -> Hindrance {
        Hindrance::Waits("kafka", format!("Kafka cannot be asked: {}", error.reason()))
    }
}

impl Executor {
    /// An executor under a lease that was just taken. Nothing is asked yet.
    ///
    /// # Errors
    /// A client property is refused.
    pub fn new(replays: Replays, cluster: Cluster, lease: HeldLease, watch: LeaseWatch, timing: Timing) -> Result<Executor, KafkaError> {
        let scanner = Arc::new(Scanner::connect(&cluster.settings)?);
        let since = replays.clock.monotonic();
        Ok(Executor {
            replays,
            cluster,
            lease,
            watch,
            timing,
            pace: Pace::default(),
            scanner,
            since,
            producers: Mutex::default(),
            targets: Mutex::default(),
            lags: Mutex::default(),
        })
    }

    /// Works until the lease is lost, or until `stop` and all that was begun is stored. Batches go side by side: what one waits for is no other's.
    pub async fn run(&self, stop: &CancellationToken) {
        let mut idle: HashMap<i64, Run> = HashMap::new();
        let mut busy: HashSet<i64> = HashSet::new();
        let mut turns = FuturesUnordered::new();
        let mut look = std::pin::pin!(self.work());
        let mut failed = None;
        loop {
            if !self.watch.holds() || (stop.is_cancelled() && turns.is_empty()) {
                return;
            }
            tokio::select! {
                Some(run) = turns.next(), if !turns.is_empty() => {
                    let run: Run = run;
                    busy.remove(&run.batch_id);
                    idle.insert(run.batch_id, run);
                }
                work = &mut look, if !stop.is_cancelled() => {
                    match work {
                        Ok(work) => {
                            failed = None;
                            idle.retain(|id, run| !run.unsettled.is_empty() || work.contains(id));
                            self.pace.keep(|id| work.contains(&id) || busy.contains(&id));
                            let begun: Vec<i64> = work.iter().copied().chain(idle.keys().copied()).collect();
                            for batch_id in begun {
                                if busy.insert(batch_id) {
                                    let run = idle.remove(&batch_id).unwrap_or_else(|| Run { batch_id, ..Run::default() });
                                    turns.push(self.turn(run, stop));
                                }
                            }
                        }
                        Err(error) => self.failed(&mut failed, &error.to_string()),
                    }
                    look.set(self.work());
                }
                // Nothing but the lease and the end of the process to look for.
                () = tokio::time::sleep(self.timing.look_every) => {}
            }
        }
    }

    /// What there is to do, a look's time from now.
    async fn work(&self) -> Result<Vec<i64>, StoreError> {
        tokio::time::sleep(self.timing.look_every).await;
        self.replays.store.replay_work(&self.cluster.settings.name).await
    }

    /// One turn of a batch: everything that can be done now.
    async fn turn(&self, mut run: Run, stop: &CancellationToken) -> Run {
        let result = self.go_on(&mut run, stop).await;
        if let Err(hindrance) = result {
            run.memory = None;
            self.hindered(&mut run, hindrance).await;
        } else {
            run.failed = None;
        }
        run
    }

    async fn go_on(&self, run: &mut Run, stop: &CancellationToken) -> Result<(), Hindrance> {
        self.settle(run).await?;
        let Some(batch) = self.replays.store.batch(run.batch_id).await? else { return Ok(()) };
        if run.dlq_id.is_none() && batch.state == BatchState::Executing {
            // Why it waited under who had the lease before.
            run.said = batch.note.clone().map(|note| ("before", note));
        }
        (run.dlq_id, run.state) = (Some(batch.dlq_id), Some(batch.state));
        if !self.recover(run, &batch).await? {
            return Ok(());
        }
        match batch.state {
            BatchState::Approved => self.start(run, &batch).await,
            BatchState::Executing => {
                self.compare(run, &batch).await?;
                self.send(run, batch, stop).await
            }
            _ => Ok(()),
        }
    }

    async fn hindered(&self, run: &mut Run, hindrance: Hindrance) {
        // Neither a database that is away nor what else is waited for is asked five times a second.
        let pause = !matches!(hindrance, Hindrance::Halts(_));
        let done = match &hindrance {
            Hindrance::Waits(kind, words) => self.says(run, Some((kind, words.clone()))).await,
            Hindrance::Halts(why) => self.end_turn(run, BatchMove::Halt, Some(why)).await.map(drop),
            Hindrance::Store(_) | Hindrance::Lost => Err(hindrance),
        };
        if let Err(error) = done {
            self.failed(&mut run.failed, &error.to_string());
        }
        if pause {
            tokio::time::sleep(self.timing.look_every * 5).await;
        }
    }

    /// Logs what went wrong, once for as long as it is the same.
    fn failed(&self, last: &mut Option<String>, error: &str) {
        if last.as_deref() != Some(error) {
            telemetry::job_failed(&self.lease.name, error);
            *last = Some(error.to_owned());
        }
    }

    // ------------------------------------------------------------------------------------------------------- state of the batch

    /// Once for each executor: settings change with a restart, and what goes on under others was approved by nobody.
    async fn compare(&self, run: &mut Run, batch: &Batch) -> Result<(), Hindrance> {
        if !run.compared {
            // One that is not there, or does not tell its id, is waited for.
            self.target(batch, false).await?;
            let compared = self.replays.changed_settings(batch).await.map_err(nobody_knows)?;
            if let Some(void) = compared.void() {
                return Err(Hindrance::Halts(void));
            }
            run.compared = true;
        }
        Ok(())
    }

    /// Starts an approved batch, if everything still is as it was approved. One whose approval is over is ended by what prepares ([`Replays::prepare`]).
    async fn start(&self, run: &mut Run, batch: &Batch) -> Result<(), Hindrance> {
        if self.replays.approval_is_over(batch) {
            return Ok(());
        }
        self.target(batch, true).await?;
        let recomputed = self.replays.recompute_digest(batch).await.map_err(nobody_knows)?;
        if let Some(void) = recomputed.void() {
            return Err(Hindrance::Halts(void));
        }
        self.end_turn(run, BatchMove::Start, None).await?;
        Ok(())
    }

    /// Moves a batch, with its line in the log and in the trail. False: it was in a state by then that does not take this move.
    pub(super) async fn end_turn(&self, run: &mut Run, movement: BatchMove, note: Option<&str>) -> Result<bool, Hindrance> {
        let now_ms = self.replays.clock.now_ms();
        let mut tx = self.begin().await?;
        let Some(batch) = replays::locked(&mut tx, run.batch_id).await? else { return Ok(false) };
        if replays::move_batch(&mut tx, &batch, movement, note, now_ms).await? == Moved::Not {
            return Ok(false);
        }
        let (action, words) = match movement {
            BatchMove::Start => (Action::ReplayStarted, "started"),
            BatchMove::Pause => (Action::ReplayPaused, "paused"),
            BatchMove::Halt => (Action::ReplayHalted, "halted"),
            _ => (Action::ReplayFinished, "every message has ended or was sent"),
        };
        let (actor, entry) = (self.actor(batch.id), note.map_or_else(|| words.to_owned(), |note| format!("{words}: {note}")));
        replays::log(&mut tx, batch.id, now_ms, &actor, &entry).await?;
        let mut event = Event::new(now_ms, &By { actor: actor.clone(), request_id: None }, action, actor);
        event.reason = note.map(str::to_owned);
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        run.memory = None;
        run.said = None;
        self.replays.store.changed(&[Hint::Dlq(batch.dlq_id)]);
        Ok(true)
    }

    /// Stores why an executing batch waits (its kind, and words for people), or that it goes on. One that goes no further, but of which something is still in
    /// doubt, has another note: of it the log alone tells.
    pub(super) async fn says(&self, run: &mut Run, note: Option<(&'static str, String)>) -> Result<(), Hindrance> {
        if run.said == note {
            return Ok(());
        }
        let now_ms = self.replays.clock.now_ms();
        let mut tx = self.begin().await?;
        let words = note.as_ref().map(|(_, words)| words.as_str());
        let noted = replay_items::set_note(&mut tx, run.batch_id, words).await?;
        let goes = matches!(run.state, Some(BatchState::Approved | BatchState::Executing));
        let is_news = run.said.as_ref().map(|(kind, _)| *kind) != note.as_ref().map(|(kind, _)| *kind);
        if is_news && (noted || (!goes && words.is_some())) {
            let entry = words.map_or_else(|| "goes on".to_owned(), |words| format!("waits: {words}"));
            replays::log(&mut tx, run.batch_id, now_ms, &self.actor(run.batch_id), &entry).await?;
        }
        tx.commit().await?;
        run.said = note;
        self.replays.store.changed(&[run.dlq_id.map_or(Hint::All, Hint::Dlq)]);
        Ok(())
    }

    /// A transaction in which the lease is ours.
    pub(super) async fn begin(&self) -> Result<Tx, Hindrance> {
        if !self.watch.holds() {
            return Err(Hindrance::Lost);
        }
        let mut tx = self.replays.store.begin().await?;
        if !planted("replay::no_epoch") && !leases::holds(&mut tx, &self.lease).await? {
            return Err(Hindrance::Lost);
        }
        Ok(tx)
    }

    /// Measures a part of the work until it is dropped.
    pub(super) fn timed(&self, phase: &'static str) -> Timed<'_> {
        Timed { clock: &self.replays.clock, phase, since: self.replays.clock.monotonic() }
    }

    /// What automation calls itself in histories and logs; also the subject of the trail.
    pub(super) fn actor(&self, batch_id: i64) -> String {
        format!("replay {batch_id}")
    }

    /// What is configured for the batch's DLQ.
    pub(super) fn entry(&self, batch: &Batch) -> Result<Entry<'_>, Hindrance> {
        self.replays.entry(&batch.cluster, &batch.topic).ok_or_else(|| {
            Hindrance::Halts(format!(
                "nothing is configured for {} any more: add a [[dlq]] entry that covers it, and have the replay approved anew",
                batch.topic
            ))
        })
    }

    // ------------------------------------------------------------------------------------------------------------------- Kafka

    /// The target as it is, or was a moment ago; `fresh`: as it is now.
    ///
    /// # Errors
    /// It is not there, or not what was approved, or nobody can be asked.
    pub(super) async fn target(&self, batch: &Batch, fresh: bool) -> Result<Target, Hindrance> {
        let plan = &batch.plan;
        let found = self.look_up(&plan.target, fresh).await?;
        let Some(target) = found else {
            return Err(Hindrance::Waits(
                "target",
                format!("the target {} does not exist: nothing is sent, and no topic is created", plan.target),
            ));
        };
        if is_another(plan, &target)? {
            return Err(Hindrance::Halts(format!("{} was deleted and made again since this was approved", plan.target)));
        }
        if target.partitions != plan.target_partitions {
            let (then, now) = (plan.target_partitions, target.partitions);
            return Err(Hindrance::Halts(format!("{} has {now} partitions now and had {then} when this was approved", plan.target)));
        }
        if target.compacted == Some(true) && !self.entry(batch)?.terms.allow_compacted_target {
            return Err(Hindrance::Halts(format!(
                "{} is compacted: what is sent there may vanish (allow_compacted_target in [[dlq]])",
                plan.target
            )));
        }
        Ok(target)
    }

    /// A topic as it is, or was a moment ago; None: there is none.
    pub(super) async fn look_up(&self, topic: &str, fresh: bool) -> Result<Option<Target>, Hindrance> {
        let now = self.replays.clock.monotonic();
        let known = self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        if let Some((at, target)) = known
            && !fresh
            && target.is_some()
            && now < at + self.timing.facts_for
        {
            return Ok(target);
        }
        let (inspector, name, ask) = (Arc::clone(&self.cluster.inspector), topic.to_owned(), self.timing.ask);
        let target = blocking(move || inspector.target(&name, ask)).await?;
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(topic.to_owned(), (now, target.clone()));
        Ok(target)
    }

    /// How many records of the target its group has not read yet; None: that cannot be told.
    pub(super) async fn lag(&self, batch: &Batch, target: &Target) -> Result<Option<u64>, Hindrance> {
        let Some(group) = batch.plan.group.clone() else { return Ok(None) };
        let now = self.replays.clock.monotonic();
        let at = (group.clone(), target.name.clone());
        let known = self.lags.lock().unwrap_or_else(PoisonError::into_inner).get(&at).copied();
        if let Some((looked, lag)) = known
            && now < looked + self.timing.facts_for
        {
            return Ok(lag);
        }
        let (inspector, ask) = (Arc::clone(&self.cluster.inspector), self.timing.ask);
        let partitions: Vec<_> = (0..target.partitions).map(|partition| (target.name.clone(), partition)).collect();
        let looked = blocking(move || match inspector.group(&group, &partitions, ask) {
            Ok(look) => {
                let ends = inspector.log_ends(&partitions, ask);
                let behind = look.committed.into_iter().filter_map(|(partition, committed)| {
                    let end = ends.get(&partition)?.as_ref().ok()?.end;
                    u64::try_from(end - committed?).ok()
                });
                let behind: Vec<u64> = behind.collect();
                Ok((!behind.is_empty()).then(|| behind.iter().sum()))
            }
            Err(error @ KafkaError::Unreachable { .. }) => Err(error),
            // Groups may not be described here: the approver was told.
            Err(_) => Ok(None),
        });
        let lag = looked.await?;
        self.lags.lock().unwrap_or_else(PoisonError::into_inner).insert(at, (now, lag));
        Ok(lag)
    }

    /// The producer of a target, made where there is none, and ready to send.
    pub(super) async fn producer(&self, target: &Target) -> Result<Arc<Producer>, Hindrance> {
        let known = self.producers.lock().unwrap_or_else(PoisonError::into_inner).get(&target.name).cloned();
        if let Some(producer) = known {
            return Ok(producer);
        }
        let made = Producer::connect(&self.cluster.settings, &target.name, self.timing.message_timeout, target.max_message_bytes);
        let producer = Arc::new(made.map_err(|error| Hindrance::kafka(&error))?);
        let (asked, ask) = (Arc::clone(&producer), self.timing.ask);
        blocking(move || asked.make_ready(ask)).await?;
        self.producers.lock().unwrap_or_else(PoisonError::into_inner).insert(target.name.clone(), Arc::clone(&producer));
        Ok(producer)
    }

    /// Lets go of a target's producer: something it sent is in doubt.
    pub(super) fn drop_producer(&self, target: &str) {
        self.producers.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
    }
}

/// Whether a topic is another one than was approved, under the same name.
///
/// # Errors
/// Its id was known when it was approved, and now it is not told: that waits.
pub(super) fn is_another(plan: &Plan, target: &Target) -> Result<bool, Hindrance> {
    match (&plan.target_id, &target.id) {
        (Some(_), None) => {
            let words =
                format!("Kafka does not tell the id of {}: nobody knows whether it still is the topic that was approved", plan.target);
            Err(Hindrance::Waits("target", words))
        }
        (Some(planned), Some(id)) => Ok(planned != id),
        (None, _) => Ok(false),
    }
}

/// How long a part of the work took, told when it is over.
pub(super) struct Timed<'a> {
    clock: &'a Clock,
    phase: &'static str,
    since: Duration,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        telemetry::replay_phase(self.phase, self.clock.monotonic().saturating_sub(self.since));
    }
}

/// Runs a call that blocks beside the others.
pub(super) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static) -> Result<T, Hindrance> {
    match tokio::task::spawn_blocking(call).await {
        Ok(answer) => answer.map_err(|error| Hindrance::kafka(&error)),
        Err(error) => Err(Hindrance::Waits("kafka", format!("a question to Kafka was not answered: {error}"))),
    }
}

/// Whether a test has planted this fault. Always false in a release.
pub(super) fn planted(fault: &str) -> bool {
    let _ = fault;
    fail::fail_point!(fault, |_| true);
    false
}
