//! Verification: what was sent counts as a success only when proven.
//!
//! In each turn of one cluster, in this order: what came back ([`Verifier::begin`], which looks at consumer groups, too), what the ledgers say
//! ([`Verifier::next_question`], [`Verifier::answer`]: another service asks them), and what the groups' commits prove or time decides
//! ([`Verifier::conclude`]).
//!
//! A message is confirmed by its ledger, or when three things hold: the target's group got past it while somebody was in it ([`crate::domain::proof`]); intake has
//! since read every partition of the DLQ past an end that was sampled `verify_after_s` after that; and the consumer keeps what a return is recognised by.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::clock::Clock;
use crate::domain::lifecycle::{Outcome, Proof};
use crate::domain::pacing::within_bytes;
use crate::domain::proof::Look;
use crate::domain::replay::BatchState;
use crate::domain::settings::{DlqSettings, entry_for};
use crate::domain::terms::ReplayTerms;
use crate::domain::verdict::IdempotencyVerdict;
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::{Inspector, TopicPartition};
use crate::kafka::scan::Scanner;
use crate::store::leases::{self, HeldLease};
use crate::store::notify::Hint;
use crate::store::outcomes::{self, AT_ONCE, GroupLooks, RETURNS_KNOWN_FOR_MS};
use crate::store::replays::{Batch, ToCheck};
use crate::store::{Store, StoreError, Tx};
use crate::telemetry;

const LOOK_UP: Duration = Duration::from_secs(10);
/// Messages of one look-up in a ledger.
const ASKED_AT_ONCE: i64 = 500;
/// Look-ups for one batch in one turn: of a large batch the next ones have their turn next.
const ASKED_A_TURN: usize = 4;
/// How often it is looked whether topics that were sent to are still the same.
const TARGETS_WATCHED_EVERY: Duration = Duration::from_secs(30);
/// How often a group is looked at that nothing was sent to yet, or that could not be looked at.
const LOOKED_AT_RARELY: Duration = Duration::from_secs(20);
/// How often what is not needed any more is dropped.
const TIDIED_EVERY: Duration = Duration::from_secs(60);
/// What nobody proved is given up after `verify_after_s` and as long again, but not sooner than this after it.
const GRACE_AT_LEAST_MS: i64 = 60_000;
/// A look at a group that was not repeated for so long is of no batch any more.
const LOOKS_KEPT_MS: i64 = 3_600_000;
/// Traces are kept at least for so long: a batch may begin at this moment.
const TRACES_KEPT_MS: i64 = 600_000;

/// Why a turn could not be ended.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Kafka could not be asked; what needs no Kafka was done all the same.
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    #[error("a look-up ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// Nothing more was written.
    #[error("another instance verifies by now")]
    LeaseLost,
}

/// Messages that were sent and not proven, for their ledger to be asked.
#[derive(Debug, Clone)]
pub struct Question {
    pub batch_id: i64,
    pub cluster: String,
    /// The DLQ's.
    pub topic: String,
    /// The jq filter of the batch; None: that of the configuration.
    pub transform: Option<String>,
    pub messages: Vec<ToCheck>,
}

/// Ends of a DLQ that intake has to reach before what was passed early enough is confirmed.
#[derive(Debug)]
struct Mark {
    /// Before the ends were asked.
    sampled_at_ms: i64,
    /// Kafka's id of the DLQ then.
    topic_id: Option<String>,
    ends: BTreeMap<i32, i64>,
}

/// Verifies the replays of one cluster. One instance at a time does, under a lease that its job keeps.
pub struct Verifier {
    pub store: Store,
    pub clock: Clock,
    pub cluster: String,
    pub inspector: Arc<Inspector>,
    /// Sees ends as they are, open transactions included: a return may lie behind one.
    pub scanner: Arc<Scanner>,
    pub dlqs: Arc<[DlqSettings]>,
    /// One for each of `dlqs`, in the same order.
    pub terms: Arc<[ReplayTerms]>,
    memory: Memory,
}

/// What outlives a turn and may be lost by a restart.
#[derive(Default)]
struct Memory {
    batches: Vec<Batch>,
    /// By DLQ.
    marks: HashMap<i64, Mark>,
    /// The last message of each batch whose ledger was asked.
    asked: HashMap<i64, i64>,
    /// Batches whose ledger is still to be asked in this turn, and how often.
    to_ask: Vec<(Batch, usize)>,
    targets_watched_at: Option<Duration>,
    tidied_at: Option<Duration>,
    /// When each group, in a topic, is looked at again, unless something was sent since it was looked at.
    next_looks: HashMap<(String, String), (Duration, bool)>,
    /// The first thing that could not be asked in this turn.
    failure: Option<KafkaError>,
}

impl Verifier {
    pub fn new(
        store: Store,
        clock: Clock,
        cluster: &str,
        (inspector, scanner): (Arc<Inspector>, Arc<Scanner>),
        dlqs: Arc<[DlqSettings]>,
        terms: Arc<[ReplayTerms]>,
    ) -> Verifier {
        Verifier { store, clock, cluster: cluster.to_owned(), inspector, scanner, dlqs, terms, memory: Memory::default() }
    }

    /// Begins a turn: finds what there is to verify, what came back, and how far consumer groups have come. `lease` None: nobody else can be verifying.
    ///
    /// # Errors
    /// The store could not be read or written, or the lease is another's by now.
    pub async fn begin(&mut self, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
        self.memory.batches = self.store.batches_to_verify(&self.cluster).await?;
        self.watch_targets(lease).await?;
        for batch in self.begun() {
            self.recover_returns(lease, &batch).await?;
        }
        self.look_at_groups(lease).await?;
        let with_ledger = |batch: &Batch| self.terms_of(batch).is_some_and(|terms| terms.idempotency.is_some());
        self.memory.to_ask = self.begun().into_iter().filter(|batch| with_ledger(batch)).map(|batch| (batch, ASKED_A_TURN)).collect();
        Ok(())
    }

    /// The next messages that a ledger is to be asked about; None: no more in this turn.
    ///
    /// # Errors
    /// The store could not be read.
    pub async fn next_question(&mut self) -> Result<Option<Question>, VerifyError> {
        while let Some((batch, left)) = self.memory.to_ask.pop() {
            let after = self.memory.asked.get(&batch.id).copied().unwrap_or(0);
            let next = self.store.unproven_after(batch.id, after, ASKED_AT_ONCE).await?;
            let fit = within_bytes(next.iter().map(|(_, size)| *size));
            let ids: Vec<i64> = next.iter().take(fit).map(|(message_id, _)| *message_id).collect();
            let Some(last) = ids.last().copied() else {
                // Once around; the next turn begins at the first again.
                self.memory.asked.remove(&batch.id);
                continue;
            };
            let is_more = fit < next.len() || next.len() as i64 == ASKED_AT_ONCE;
            if is_more {
                self.memory.asked.insert(batch.id, last);
            } else {
                self.memory.asked.remove(&batch.id);
            }
            let question = Question {
                batch_id: batch.id,
                cluster: batch.cluster.clone(),
                topic: batch.topic.clone(),
                transform: batch.plan.transform.clone(),
                messages: self.store.to_check(&ids).await?,
            };
            if is_more && left > 1 {
                self.memory.to_ask.push((batch, left - 1));
            }
            return Ok(Some(question));
        }
        Ok(None)
    }

    /// Takes in what the ledger said of messages, given as (message, verdict): those that are applied are confirmed.
    ///
    /// # Errors
    /// As [`Verifier::begin`].
    pub async fn answer(
        &mut self,
        lease: Option<&HeldLease>,
        question: &Question,
        verdicts: &[(i64, IdempotencyVerdict)],
    ) -> Result<(), VerifyError> {
        let applied: Vec<i64> =
            verdicts.iter().filter(|(_, verdict)| *verdict == IdempotencyVerdict::Applied).map(|(message_id, _)| *message_id).collect();
        if !verdicts.is_empty() && verdicts.iter().all(|(_, verdict)| *verdict == IdempotencyVerdict::CouldNotCheck) {
            // It does not answer: the rest of this batch waits for the next turn.
            self.memory.to_ask.retain(|(batch, _)| batch.id != question.batch_id);
        }
        // What was applied may have come back all the same: taken in before it was stored that it was sent.
        if let Some(batch) = self.memory.batches.iter().find(|batch| batch.id == question.batch_id && !applied.is_empty()) {
            self.recover_returns(lease, batch).await?;
        }
        self.settle(lease, question.batch_id, &applied, Outcome::Confirmed, Some(Proof::Ledger)).await
    }

    /// Ends a turn: confirms what is proven by offsets, gives up what is overdue, and ends batches of which nothing is open.
    ///
    /// # Errors
    /// As [`Verifier::begin`]; or something could not be asked of Kafka in this turn, and everything that does not need it was done.
    pub async fn conclude(&mut self, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
        self.confirm_by_offsets(lease).await?;
        for batch in self.begun() {
            self.give_up(lease, &batch).await?;
            if batch.state.is_live() {
                continue;
            }
            let mut tx = self.begin_write(lease).await?;
            if outcomes::finish(&mut tx, batch.id, self.clock.now_ms()).await? {
                tx.commit().await?;
                self.store.changed(&[Hint::Dlq(batch.dlq_id)]);
            }
        }
        self.tidy().await?;
        let ids: BTreeSet<i64> = self.memory.batches.iter().map(|batch| batch.id).collect();
        let dlqs: BTreeSet<i64> = self.memory.batches.iter().map(|batch| batch.dlq_id).collect();
        self.memory.asked.retain(|batch_id, _| ids.contains(batch_id));
        self.memory.marks.retain(|dlq_id, _| dlqs.contains(dlq_id));
        self.memory.failure.take().map_or(Ok(()), |failure| Err(failure.into()))
    }

    async fn tidy(&mut self) -> Result<(), StoreError> {
        let now = self.clock.monotonic();
        if self.memory.tidied_at.is_some_and(|at| now.saturating_sub(at) < TIDIED_EVERY) {
            return Ok(());
        }
        self.memory.tidied_at = Some(now);
        let now_ms = self.clock.now_ms();
        self.store.forget_looks(&self.cluster, now_ms.saturating_sub(LOOKS_KEPT_MS)).await?;
        while self.store.forget_traces(now_ms.saturating_sub(TRACES_KEPT_MS), AT_ONCE).await? >= AT_ONCE.unsigned_abs() {}
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------------------ what came back

    async fn recover_returns(&self, lease: Option<&HeldLease>, batch: &Batch) -> Result<(), VerifyError> {
        loop {
            let mut tx = self.begin_write(lease).await?;
            let recovered = outcomes::recover_returns(&mut tx, batch, self.clock.now_ms()).await?;
            if recovered.items == 0 {
                return Ok(());
            }
            tx.commit().await?;
            telemetry::settled(&self.cluster, Outcome::Returned.as_str(), recovered.items);
            self.store.changed(&recovered.hints);
        }
    }

    /// Places in a topic that was deleted and made again are not those that were sent to.
    async fn watch_targets(&mut self, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
        let now = self.clock.monotonic();
        if self.memory.targets_watched_at.is_some_and(|at| now.saturating_sub(at) < TARGETS_WATCHED_EVERY) {
            return Ok(());
        }
        self.memory.targets_watched_at = Some(now);
        let now_ms = self.clock.now_ms();
        let sent_to = self.store.targets_sent_to(&self.cluster, now_ms.saturating_sub(RETURNS_KNOWN_FOR_MS)).await?;
        if sent_to.is_empty() {
            return Ok(());
        }
        let topics: BTreeSet<String> = sent_to.iter().map(|(_, target, _)| target.clone()).collect();
        let topics: Vec<String> = topics.into_iter().collect();
        let present = match self.ask(move |inspector| inspector.topic_ids(&topics, LOOK_UP)).await? {
            Ok(present) => present,
            Err(error) => {
                self.memory.failure.get_or_insert(error);
                return Ok(());
            }
        };
        for (batch_id, target, id) in sent_to {
            // One that is absent may be hidden from us; it is another one for certain only once it is there with another id.
            let is_another = matches!(present.get(&target), Some(Some(present)) if *present != id);
            if is_another {
                let mut tx = self.begin_write(lease).await?;
                outcomes::mark_replaced(&mut tx, batch_id, now_ms).await?;
                tx.commit().await?;
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------------------ consumer groups

    /// Looks at the groups of batches that have sent something, or are about to: how a group stood before counts, too.
    async fn look_at_groups(&mut self, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
        // By group and topic: how many partitions, and whether anything was sent there yet.
        let mut groups: BTreeMap<(String, String), (i32, bool)> = BTreeMap::new();
        for batch in self.memory.batches.iter().filter(|batch| self.is_traceable(batch)) {
            if let Some(group) = &batch.plan.group {
                let (partitions, sent) = groups.entry((group.clone(), batch.plan.target.clone())).or_default();
                *partitions = (*partitions).max(batch.plan.target_partitions);
                *sent |= batch.started_at_ms.is_some();
            }
        }
        self.memory.next_looks.retain(|group, _| groups.contains_key(group));
        let now = self.clock.monotonic();
        for ((group, topic), (partitions, sent)) in groups {
            let key = (group.clone(), topic.clone());
            if self.memory.next_looks.get(&key).is_some_and(|(next, had_sent)| now < *next && *had_sent == sent) {
                continue;
            }
            // How it stood before the first sending need not be known to the second.
            let next = if sent { now } else { now + LOOKED_AT_RARELY };
            self.memory.next_looks.insert(key.clone(), (next, sent));
            let asked: Vec<TopicPartition> = (0..partitions).map(|partition| (topic.clone(), partition)).collect();
            let (name, target) = (group.clone(), topic.clone());
            let looked = self
                .ask(move |inspector| {
                    let id = inspector.topic_ids(std::slice::from_ref(&target), LOOK_UP)?.remove(&target).flatten();
                    Ok((id, inspector.group(&name, &asked, LOOK_UP)?))
                })
                .await?;
            match looked {
                Ok((id, seen)) => {
                    let now_ms = self.clock.now_ms();
                    let of_topic = id.clone().unwrap_or_else(|| topic.clone());
                    let before = self.store.group_looks(&self.cluster, &group, &of_topic).await?;
                    let members: BTreeSet<String> = seen.members.into_iter().collect();
                    let looks = seen
                        .committed
                        .into_iter()
                        .map(|((_, partition), committed)| (partition, Look::after(before.get(&partition), committed, members.clone())));
                    let looks = GroupLooks { group, topic: of_topic, looks: looks.collect() };
                    self.take_look(lease, &looks, (topic.as_str(), id.as_deref()), now_ms).await?;
                }
                Err(error) => {
                    // A proof survives the wait, as long as a member does.
                    self.memory.next_looks.insert(key, (now + LOOKED_AT_RARELY, sent));
                    // Brokers that cannot tell about groups (the in-process one cannot) are no failure: only ledgers can confirm here.
                    if !matches!(error, KafkaError::Unsupported { .. }) {
                        self.memory.failure.get_or_insert(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes what the group has passed in a topic (its name and Kafka's id of it), then the look itself: should that be cut short, the next look says it again.
    async fn take_look(
        &self,
        lease: Option<&HeldLease>,
        looks: &GroupLooks,
        (topic, topic_id): (&str, Option<&str>),
        now_ms: i64,
    ) -> Result<(), VerifyError> {
        let concerned = |batch: &&Batch| {
            let plan = &batch.plan;
            let same_topic = plan.target == topic && (plan.target_id.is_none() || plan.target_id.as_deref() == topic_id);
            same_topic && plan.group.as_ref() == Some(&looks.group) && batch.started_at_ms.is_some() && self.is_traceable(batch)
        };
        for batch in self.memory.batches.iter().filter(concerned) {
            loop {
                let mut tx = self.begin_write(lease).await?;
                let passed = outcomes::mark_passed(&mut tx, batch.id, &looks.looks, now_ms, AT_ONCE).await?;
                tx.commit().await?;
                if passed < AT_ONCE.unsigned_abs() {
                    break;
                }
            }
        }
        let mut tx = self.begin_write(lease).await?;
        outcomes::save_looks(&mut tx, &self.cluster, now_ms, looks).await?;
        Ok(tx.commit().await?)
    }

    // -------------------------------------------------------------------------------------------------------- proven, or given up

    async fn confirm_by_offsets(&mut self, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
        let mut by_dlq: BTreeMap<i64, Vec<Batch>> = BTreeMap::new();
        for batch in self.begun().into_iter().filter(|batch| self.is_traceable(batch)) {
            by_dlq.entry(batch.dlq_id).or_default().push(batch);
        }
        for (dlq_id, batches) in by_dlq {
            if !self.memory.marks.contains_key(&dlq_id) {
                let lost_ms = self.store.nothing_lost_since(dlq_id).await?;
                if !self.any_due(&batches, lost_ms).await? {
                    continue;
                }
                match self.sample_ends(&batches[0].topic).await? {
                    Ok(mark) => drop(self.memory.marks.insert(dlq_id, mark)),
                    Err(error) => {
                        self.memory.failure.get_or_insert(error);
                        continue;
                    }
                }
            }
            let Some(mark) = self.memory.marks.get(&dlq_id) else { continue };
            match self.standing_of(mark, &batches[0]).await? {
                Standing::Behind => {}
                Standing::Void => drop(self.memory.marks.remove(&dlq_id)),
                Standing::Reached => {
                    let sampled_at_ms = mark.sampled_at_ms;
                    // Intake's positions may have come there over records that it lost since: asked after them, that is known, too.
                    let lost_ms = self.store.nothing_lost_since(dlq_id).await?;
                    for batch in &batches {
                        self.confirm(lease, batch, sampled_at_ms, lost_ms).await?;
                    }
                    self.memory.marks.remove(&dlq_id);
                }
            }
        }
        Ok(())
    }

    async fn any_due(&self, batches: &[Batch], lost_ms: i64) -> Result<bool, StoreError> {
        for batch in batches {
            let passed_by_ms = self.clock.now_ms().saturating_sub(self.verify_after_ms(batch));
            if !self.store.passed_by(batch.id, passed_by_ms, lost_ms, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The ends of all partitions that the DLQ has now, whether intake knows of them or not.
    async fn sample_ends(&self, topic: &str) -> Result<Result<Mark, KafkaError>, VerifyError> {
        let sampled_at_ms = self.clock.now_ms();
        let (inspector, scanner, topic) = (Arc::clone(&self.inspector), Arc::clone(&self.scanner), topic.to_owned());
        let asked = move || {
            let count = inspector.topics(LOOK_UP)?.into_iter().find(|found| found.name == topic).map_or(0, |found| found.partitions);
            let topic_id = inspector.topic_ids(std::slice::from_ref(&topic), LOOK_UP)?.remove(&topic).flatten();
            let ends = scanner.ends(&topic, &(0..count).collect::<Vec<_>>(), LOOK_UP)?;
            Ok(Mark { sampled_at_ms, topic_id, ends: ends.into_iter().map(|(partition, ends)| (partition, ends.end)).collect() })
        };
        Ok(tokio::task::spawn_blocking(asked).await?)
    }

    /// Whether intake has read all that was there when the mark was made.
    async fn standing_of(&self, mark: &Mark, batch: &Batch) -> Result<Standing, StoreError> {
        let dlq = self.store.dlq(&batch.cluster, &batch.topic).await?;
        let Some(dlq) = dlq.filter(|dlq| dlq.gone_since_ms.is_none() && !mark.ends.is_empty()) else { return Ok(Standing::Void) };
        if let (Some(then), Some(known)) = (&mark.topic_id, &dlq.topic_id)
            && then != known
        {
            // One of the two is of another life of the topic; the next mark will tell.
            return Ok(Standing::Void);
        }
        let positions = self.store.positions(Some(dlq.id)).await?;
        let positions: BTreeMap<i32, i64> = positions.into_iter().map(|position| (position.id.partition, position.next_offset)).collect();
        let read = |(partition, end): (&i32, &i64)| *end == 0 || positions.get(partition).is_some_and(|position| position >= end);
        Ok(if mark.ends.iter().all(read) { Standing::Reached } else { Standing::Behind })
    }

    async fn confirm(&self, lease: Option<&HeldLease>, batch: &Batch, sampled_at_ms: i64, lost_ms: i64) -> Result<(), VerifyError> {
        // Intake's positions were read before this, and with each position its traces were stored.
        self.recover_returns(lease, batch).await?;
        let passed_by_ms = sampled_at_ms.saturating_sub(self.verify_after_ms(batch));
        loop {
            let proven = self.store.passed_by(batch.id, passed_by_ms, lost_ms, AT_ONCE).await?;
            if proven.is_empty() {
                return Ok(());
            }
            self.settle(lease, batch.id, &proven, Outcome::Confirmed, Some(Proof::Offset)).await?;
        }
    }

    async fn give_up(&self, lease: Option<&HeldLease>, batch: &Batch) -> Result<(), VerifyError> {
        let after_ms = self.verify_after_ms(batch);
        let by_ms = self.clock.now_ms().saturating_sub(after_ms).saturating_sub(after_ms.max(GRACE_AT_LEAST_MS));
        loop {
            let overdue = self.store.overdue(batch.id, by_ms, AT_ONCE).await?;
            if overdue.is_empty() {
                return Ok(());
            }
            self.settle(lease, batch.id, &overdue, Outcome::Unproven, None).await?;
        }
    }

    // ------------------------------------------------------------------------------------------------------------------- common

    /// Batches that have begun: only of those something can be open.
    fn begun(&self) -> Vec<Batch> {
        let begun = |batch: &&Batch| batch.started_at_ms.is_some() && batch.verified_at_ms.is_none() && batch.state != BatchState::Verified;
        self.memory.batches.iter().filter(begun).cloned().collect()
    }

    fn terms_of(&self, batch: &Batch) -> Option<&ReplayTerms> {
        let (index, _) = entry_for(&self.dlqs, &batch.cluster, &batch.topic)?;
        self.terms.get(index)
    }

    /// Whether a return would be recognised, so that its absence tells something.
    fn is_traceable(&self, batch: &Batch) -> bool {
        self.terms_of(batch).is_some_and(|terms| terms.returns_traceable)
    }

    /// Where nothing is configured any more: the default of `verify_after_s`.
    fn verify_after_ms(&self, batch: &Batch) -> i64 {
        let seconds = self.terms_of(batch).map_or(300, |terms| terms.verify_after_s);
        i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
    }

    async fn settle(
        &self,
        lease: Option<&HeldLease>,
        batch_id: i64,
        ids: &[i64],
        to: Outcome,
        proof: Option<Proof>,
    ) -> Result<(), VerifyError> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin_write(lease).await?;
        let settled = outcomes::settle(&mut tx, batch_id, ids, to, proof, self.clock.now_ms()).await?;
        tx.commit().await?;
        telemetry::settled(&self.cluster, to.as_str(), settled.items);
        self.store.changed(&settled.hints);
        Ok(())
    }

    async fn begin_write(&self, lease: Option<&HeldLease>) -> Result<Tx, VerifyError> {
        let mut tx = self.store.begin().await?;
        match lease {
            Some(lease) if !leases::holds(&mut tx, lease).await? => Err(VerifyError::LeaseLost),
            _ => Ok(tx),
        }
    }

    async fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Inspector) -> T + Send + 'static) -> Result<T, VerifyError> {
        let inspector = Arc::clone(&self.inspector);
        Ok(tokio::task::spawn_blocking(move || question(&inspector)).await?)
    }
}

/// Where intake stands against a mark.
enum Standing {
    Reached,
    Behind,
    /// It says nothing of the topic that intake reads.
    Void,
}
