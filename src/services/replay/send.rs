//! Sending a batch, chunk by chunk: check, one transaction with the intent, produce, one transaction with the outcome. While a chunk is on its way the
//! next one is checked.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::check::Candidate;
use super::executor::{Executor, Hindrance, Memory, Run, blocking, planted};
use super::{Entry, stage};
use crate::domain::lifecycle::{Move, Outcome};
use crate::domain::message::MessageState;
use crate::domain::pacing::{chunk_size, fair, within_bytes};
use crate::domain::replay::{BatchMove, BatchState, ItemState, Progress};
use crate::domain::sending::{Course, Drift, InTheWay, Stamp, courses, headers, target_partition, too_many_returned};
use crate::domain::verdict::{Checked, Decision, IdempotencyVerdict, SchemaVerdict};
use crate::kafka::producer::{Delivery, Outgoing, Producer};
use crate::kafka::target::Target;
use crate::store::notify::Hint;
use crate::store::replay_items::{self, ItemMove, ToSend};
use crate::store::replays::{self, Batch};
use crate::store::transitions::{Cause, Change, move_messages};
use crate::store::verdicts::{self, Phase};

/// What a chunk that was looked at ahead of its time is good for.
const FRESH: Duration = Duration::from_secs(1);
/// After this the checks are said to be slow.
const SLOW_CHECKS: Duration = Duration::from_secs(3);
/// How the checks of a chunk are called in the note of a batch that waits for them.
const CHECKS: &str = "checks";

/// What became of a message that was on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub message_id: i64,
    pub group_id: i64,
    pub unchecked: bool,
    pub end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The target holds it, at this offset. The words, if any, are for people.
    Sent { offset: i64, note: Option<String> },
    /// It is not in the target.
    NotSent { why: String },
    /// It is not in the target, and goes once more.
    Again,
    /// A person has to look: it may be in the target or not, or what came after it is.
    Held { why: String },
}

impl Known {
    fn was_sent(&self) -> bool {
        matches!(self.end, End::Sent { .. })
    }
}

/// Items that were looked at, and what the checks say of each; None: its bytes are gone.
struct Chunk {
    items: Vec<ToSend>,
    checked: Vec<Option<Checked>>,
    /// By the monotonic clock.
    at: Duration,
}

/// The next chunk, or why there is none yet.
enum Claim {
    Ids(Vec<i64>),
    /// The pace does not allow it before this time is over.
    NotYet(Duration),
    NothingLeft,
}

/// A chunk whose intent is stored.
struct Intended {
    /// As locked in the transaction.
    batch: Batch,
    outgoing: Vec<Outgoing>,
    /// Of each of `outgoing`: message, group, unchecked.
    sent: Vec<(i64, i64, bool)>,
}

/// A chunk that was sent.
struct Went {
    /// As locked with its intent.
    batch: Batch,
    /// The next one, looked at.
    ahead: Option<Chunk>,
    /// Of some of it nobody knows whether it arrived.
    doubts: bool,
}

impl Executor {
    /// Sends what may go of a batch, until it waits for something, has ended, or is stopped.
    pub(super) async fn send(&self, run: &mut Run, mut batch: Batch, stop: &CancellationToken) -> Result<(), Hindrance> {
        let entry = self.entry(&batch)?;
        let mut ahead: Option<Chunk> = None;
        while batch.state == BatchState::Executing && !stop.is_cancelled() {
            let target = match self.guard(&batch, entry).await {
                Ok(target) => target,
                Err(hindrance) => {
                    self.settle(run).await?;
                    return Err(hindrance);
                }
            };
            let chunk = match ahead.take() {
                Some(chunk) if self.replays.clock.monotonic() < chunk.at + FRESH => chunk,
                stale => {
                    self.put_back(run, stale);
                    self.settle(run).await?;
                    match self.claim(run, &batch).await? {
                        Claim::Ids(ids) => self.look(run, &batch, entry, ids).await?,
                        Claim::NotYet(wait) => {
                            // Something else was in the way before; the pace alone is no news.
                            self.says(run, None).await?;
                            tokio::time::sleep(wait.min(self.timing.look_every)).await;
                            let Some(now) = self.replays.store.batch(batch.id).await? else { return Ok(()) };
                            batch = now;
                            continue;
                        }
                        Claim::NothingLeft => return self.step(run, entry).await,
                    }
                }
            };
            // Before the intent: a broker that is away leaves nothing in doubt.
            let producer = self.producer(&target).await?;
            if run.unsettled.iter().any(|known| !known.was_sent()) {
                // It may stand in the way of this chunk.
                self.settle(run).await?;
            }
            // What the chunk before came to is stored beside this one: they have no message in common. Should the process end now, both are in doubt, and both
            // are looked for.
            let before = std::mem::take(&mut run.unsettled);
            let is_intended = Notify::new();
            let chunk_goes = async {
                let went = self.go(run, &batch, entry, (&target, &producer), chunk, &is_intended).await;
                is_intended.notify_one();
                went
            };
            let before_settles = async {
                if self.replays.store.has_one_writer() {
                    // What goes next is the more urgent.
                    is_intended.notified().await;
                }
                self.store_known(batch.id, &before).await
            };
            let (went, settled) = tokio::join!(chunk_goes, before_settles);
            if settled.is_err() {
                run.unsettled.extend(before);
            }
            settled?;
            let Some(went) = went? else { return Ok(()) };
            if went.doubts {
                return self.settle(run).await;
            }
            (batch, ahead) = (went.batch, went.ahead);
        }
        self.put_back(run, ahead);
        self.settle(run).await
    }

    /// Stores the intent of a chunk, sends it, and checks the next one while it is on its way. None: it is not to be sent any more.
    async fn go(
        &self,
        run: &mut Run,
        batch: &Batch,
        entry: Entry<'_>,
        (target, producer): (&Target, &Producer),
        chunk: Chunk,
        is_intended: &Notify,
    ) -> Result<Option<Went>, Hindrance> {
        let Some(intended) = self.intend(run, batch, entry, target, chunk).await? else {
            run.memory = None;
            return Ok(None);
        };
        is_intended.notify_one();
        self.says(run, None).await?;
        let next = match self.claim(run, &intended.batch).await? {
            Claim::Ids(ids) => ids,
            Claim::NotYet(_) | Claim::NothingLeft => Vec::new(),
        };
        let (known, looked) = tokio::join!(self.produce(producer, &intended), self.look_ahead(&intended.batch, entry, &next));
        let doubts = self.take_in(run, target, known?);
        let ahead = match looked {
            Ok(looked) if !doubts => looked,
            _ => {
                self.put_back_ids(run, next);
                None
            }
        };
        Ok(Some(Went { batch: intended.batch, ahead, doubts }))
    }

    /// What must hold before anything is looked at: not too much came back, the target is what was approved, its group keeps up.
    async fn guard(&self, batch: &Batch, entry: Entry<'_>) -> Result<Target, Hindrance> {
        let (progress, limit) = (&batch.progress, batch.plan.stop_on_returned_pct);
        if too_many_returned(progress.returned, progress.sent, limit) {
            // Of what went before it was put up for approval anew, those who approved it knew what came back.
            let (returned, sent) = self.replays.store.returned_of_sent(batch.id, batch.submitted_at_ms.unwrap_or_default()).await?;
            if too_many_returned(returned, sent, limit) {
                return Err(Hindrance::Halts(format!(
                    "{returned} of {sent} sent messages came back: more than the {limit} % that were approved"
                )));
            }
        }
        let target = self.target(batch, false).await?;
        let limit = entry.terms.pause_at_lag;
        match self.lag(batch, &target).await? {
            Some(lag) if lag > limit => {
                let group = batch.plan.group.as_deref().unwrap_or_default();
                let words = format!("{group} has {lag} records of {} still to read (pause_at_lag = {limit})", target.name);
                Err(Hindrance::Waits("lag", words))
            }
            _ => Ok(target),
        }
    }

    // ---------------------------------------------------------------------------------------------------------------- the chunk

    /// The ids of the next chunk, with their tokens taken.
    async fn claim(&self, run: &mut Run, batch: &Batch) -> Result<Claim, Hindrance> {
        let per_second = batch.plan.max_per_second;
        let memory = self.memory(run, batch).await?;
        let next: Vec<i64> = memory.queue.iter().take(chunk_size(per_second)).copied().collect();
        if next.is_empty() {
            return Ok(Claim::NothingLeft);
        }
        if let Err(wait) = self.pace.take(&batch.plan.target, batch.id, per_second, next.len(), self.replays.clock.monotonic()) {
            return Ok(Claim::NotYet(wait));
        }
        let count = within_bytes(self.replays.store.sizes(&next).await?);
        self.pace.give_back(&batch.plan.target, batch.id, next.len() - count);
        let ids = memory.queue.drain(..count).collect();
        fail::fail_point!("replay::claimed");
        Ok(Claim::Ids(ids))
    }

    /// What is known of the batch, read from the database where it is not.
    async fn memory<'r>(&self, run: &'r mut Run, batch: &Batch) -> Result<&'r mut Memory, Hindrance> {
        let store = &self.replays.store;
        if let Some(memory) = run.memory.take().filter(|memory| memory.stage == batch.stage) {
            return Ok(run.memory.insert(memory));
        }
        let queue: VecDeque<i64> = fair(store.waiting_items(batch.id, batch.stage).await?).into();
        let mut in_the_way = InTheWay::default();
        for ended in store.items_in_the_way(batch.id).await? {
            in_the_way.add(Some(ended.key_hash), (ended.place, ended.message_id));
        }
        let mut drift = Drift::default();
        for ended in store.item_outcomes(batch.id).await? {
            drift.add(Some(&ended.forecast), found_word(&ended.forecast, ended.state, ended.unchecked), ended.count);
        }
        Ok(run.memory.insert(Memory { stage: batch.stage, queue, in_the_way, drift }))
    }

    /// Loads and checks a chunk, and says so when that takes long.
    async fn look(&self, run: &mut Run, batch: &Batch, entry: Entry<'_>, ids: Vec<i64>) -> Result<Chunk, Hindrance> {
        let mut looking = std::pin::pin!(self.checked(batch, entry, &ids));
        if let Ok(chunk) = tokio::time::timeout(SLOW_CHECKS, &mut looking).await {
            return chunk;
        }
        let words = format!(
            "the checks of {} messages take longer than {} s: a ledger or a schema registry is slow",
            ids.len(),
            SLOW_CHECKS.as_secs()
        );
        self.says(run, Some((CHECKS, words))).await?;
        looking.await
    }

    async fn look_ahead(&self, batch: &Batch, entry: Entry<'_>, ids: &[i64]) -> Result<Option<Chunk>, Hindrance> {
        if ids.is_empty() { Ok(None) } else { self.checked(batch, entry, ids).await.map(Some) }
    }

    async fn checked(&self, batch: &Batch, entry: Entry<'_>, ids: &[i64]) -> Result<Chunk, Hindrance> {
        let timed = self.timed("load");
        let items = self.replays.store.items_to_send(batch.id, ids).await?;
        drop(timed);
        let candidates: Vec<Candidate> = items
            .iter()
            .filter_map(|item| {
                let record = item.record.clone()?;
                let (message_id, origin_at_ms, timestamp_suspect) = (item.message_id, item.origin_at_ms, item.timestamp_suspect);
                Some(Candidate { message_id, record, origin_at_ms, timestamp_suspect })
            })
            .collect();
        let at = self.replays.clock.monotonic();
        let transform = batch.plan.transform.as_deref();
        let timed = self.timed("check");
        let mut verdicts =
            self.replays.checker.check(entry, transform, &candidates, self.replays.clock.now_ms()).await.into_iter().peekable();
        let mut checked = Vec::with_capacity(items.len());
        for item in &items {
            let mut verdict = verdicts.next_if(|verdict| verdict.message_id == item.message_id);
            if let Some(verdict) = verdict.as_mut().filter(|_| planted("replay::no_check")) {
                (verdict.schema, verdict.idempotency) = (SchemaVerdict::Compatible, IdempotencyVerdict::New);
            }
            checked.push(verdict);
        }
        drop(timed);
        fail::fail_point!("replay::checked");
        Ok(Chunk { items, checked, at })
    }

    fn put_back(&self, run: &mut Run, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            self.put_back_ids(run, chunk.items.iter().map(|item| item.message_id).collect());
        }
    }

    /// Ids that were claimed and not sent are read again, in their order. Their tokens are gone, which only makes it slower.
    fn put_back_ids(&self, run: &mut Run, ids: Vec<i64>) {
        if let Some(memory) = run.memory.as_mut() {
            ids.into_iter().rev().for_each(|id| memory.queue.push_front(id));
        }
    }

    // --------------------------------------------------------------------------------------------------------------- the intent

    /// Decides about a chunk and stores it: what ends without being sent has ended, what goes is intended. None: it is not to be sent any more.
    async fn intend(
        &self,
        run: &mut Run,
        batch: &Batch,
        entry: Entry<'_>,
        target: &Target,
        chunk: Chunk,
    ) -> Result<Option<Intended>, Hindrance> {
        let decision = |checked: &Option<Checked>| match checked {
            Some(checked) => checked.decision(&batch.plan.waivers, entry.waives(batch)),
            None => Decision::Held,
        };
        let decisions: Vec<Decision> = chunk.checked.iter().map(decision).collect();
        self.await_checks(run, batch, &chunk, &decisions)?;
        let memory = self.memory(run, batch).await?;
        let mut in_the_way = memory.in_the_way.clone();
        let facts = chunk.items.iter().zip(&decisions).map(|(item, decision)| (item.key_hash, (item.place, item.message_id), *decision));
        let courses = courses(facts, &mut in_the_way);
        let mut drift = memory.drift.clone();
        for (item, course) in chunk.items.iter().zip(&courses) {
            drift.add(item.forecast.as_deref(), course.as_str(), 1);
        }
        if let Some(words) = drift.leaves_forecast(batch.progress.items) {
            return Err(Hindrance::Halts(format!(
                "the checks leave the forecast that was approved ({words}): nothing of these {} messages was archived or sent",
                chunk.items.len()
            )));
        }
        let bounds = self.bounds(entry, target, &chunk, &courses).await?;
        let timed = self.timed("intend");
        let plan = Plan { batch, entry, target, chunk: &chunk, courses: &courses, bounds: &bounds, epoch: self.lease.epoch };
        let now_ms = self.replays.clock.now_ms();
        let mut tx = self.begin().await?;
        let actor = self.actor(batch.id);
        let cause = Cause { at_ms: now_ms, actor: &actor, batch_id: Some(batch.id) };
        let reasons = plan.reasons();
        let moved: HashSet<i64> = move_messages(&mut tx, &plan.changes(&reasons), &cause).await?.into_iter().collect();
        let (moves, progress) = plan.moves(&moved, &reasons, now_ms);
        replay_items::move_items(&mut tx, batch.id, &moves).await?;
        for phase in [Phase::Sending, Phase::InDoubt] {
            verdicts::append(&mut tx, batch.id, phase, &plan.evidence(phase, &decisions)).await?;
        }
        let Some(locked) = replays::locked(&mut tx, batch.id).await?.filter(|locked| locked.state == BatchState::Executing) else {
            return Ok(None);
        };
        replays::add_progress(&mut tx, batch.id, &progress).await?;
        if !planted("replay::no_intent") {
            tx.commit().await?;
        }
        drop(timed);
        fail::fail_point!("replay::intended");
        let outgoing = plan.outgoing(&moved);
        self.pace.give_back(&target.name, batch.id, chunk.items.len() - outgoing.len());
        let moved_elsewhere = chunk.items.iter().filter(|item| !moved.contains(&item.message_id));
        for item in moved_elsewhere {
            in_the_way.add(item.key_hash, (item.place, item.message_id));
        }
        if let Some(memory) = run.memory.as_mut() {
            (memory.in_the_way, memory.drift) = (in_the_way, drift);
        }
        let mut hints: BTreeSet<i64> = BTreeSet::new();
        hints.extend(chunk.items.iter().map(|item| item.group_id));
        let hints: Vec<Hint> = std::iter::once(Hint::Dlq(batch.dlq_id)).chain(hints.into_iter().map(Hint::Group)).collect();
        self.replays.store.changed(&hints);
        let sent = outgoing.iter().map(|(item, unchecked, _)| (item.message_id, item.group_id, *unchecked)).collect();
        let outgoing = outgoing.into_iter().map(|(_, _, outgoing)| outgoing).collect();
        Ok(Some(Intended { batch: locked, outgoing, sent }))
    }

    /// A check that could not run although it could when this was approved is waited for: its cause lies outside and may go. Where it is about a
    /// few messages only, they are held in the end.
    fn await_checks(&self, run: &mut Run, batch: &Batch, chunk: &Chunk, decisions: &[Decision]) -> Result<(), Hindrance> {
        let failed: Vec<&Checked> = chunk
            .items
            .iter()
            .zip(&chunk.checked)
            .zip(decisions)
            .filter(|((item, _), decision)| **decision == Decision::Held && !matches!(item.forecast.as_deref(), Some("held" | "blocked")))
            .filter_map(|((_, checked), _)| checked.as_ref())
            .filter(|checked| checked.schema == SchemaVerdict::CouldNotCheck || checked.idempotency == IdempotencyVerdict::CouldNotCheck)
            .collect();
        let Some(first) = failed.first() else {
            run.unchecked_since = None;
            return Ok(());
        };
        let now = self.replays.clock.monotonic();
        let since = *run.unchecked_since.get_or_insert(now);
        let few = failed.len() < chunk.items.len() && i64::try_from(failed.len()).unwrap_or(i64::MAX) <= (batch.progress.items / 50).max(5);
        if few && now >= since + self.timing.check_patience {
            return Ok(());
        }
        let unknown = || "no reason was given".to_owned();
        let (check, why) = if first.schema == SchemaVerdict::CouldNotCheck {
            ("schema check", first.schema_note.clone().unwrap_or_else(unknown))
        } else {
            ("duplicate check", first.answered.clone().unwrap_or_else(unknown))
        };
        Err(Hindrance::Waits(CHECKS, format!("the {check} cannot run: {why}. Nothing is sent until it can; it is tried again by itself")))
    }

    /// The end of each partition that something is about to go to.
    async fn bounds(
        &self,
        entry: Entry<'_>,
        target: &Target,
        chunk: &Chunk,
        courses: &[Course],
    ) -> Result<std::collections::BTreeMap<i32, i64>, Hindrance> {
        let going = chunk.items.iter().zip(courses).filter(|(_, course)| course.goes());
        let partitions: BTreeSet<i32> = going.filter_map(|(item, _)| goes_to(item, entry, target)).collect();
        if partitions.is_empty() {
            return Ok(Default::default());
        }
        let _timed = self.timed("bounds");
        let (scanner, topic, ask) = (std::sync::Arc::clone(&self.scanner), target.name.clone(), self.timing.ask);
        let partitions: Vec<i32> = partitions.into_iter().collect();
        let ends = blocking(move || scanner.ends(&topic, &partitions, ask)).await?;
        Ok(ends.into_iter().map(|(partition, ends)| (partition, ends.end)).collect())
    }

    // -------------------------------------------------------------------------------------------------------- sending, outcomes

    /// Sends what is intended. An answer for each message that has one.
    async fn produce(&self, producer: &Producer, intended: &Intended) -> Result<Vec<(Known, Option<Delivery>)>, Hindrance> {
        if intended.outgoing.is_empty() {
            return Ok(Vec::new());
        }
        // From here on it is the producer's own time-out that bounds when anything arrives: the last look at the lease is right before it.
        if !self.watch.holds() {
            return Err(Hindrance::Lost);
        }
        let timed = self.timed("produce");
        let deliveries = producer.send(&intended.outgoing).await;
        drop(timed);
        fail::fail_point!("replay::produced");
        let known = |(&(message_id, group_id, unchecked), delivery): (&(i64, i64, bool), Delivery)| {
            let end = match &delivery {
                Delivery::Stored { offset, .. } => End::Sent { offset: *offset, note: None },
                Delivery::Refused { reason } => End::NotSent { why: format!("the Kafka client refused it: {reason}") },
                Delivery::InDoubt { .. } => return (Known { message_id, group_id, unchecked, end: End::Again }, Some(delivery)),
            };
            (Known { message_id, group_id, unchecked, end }, None)
        };
        Ok(intended.sent.iter().zip(deliveries).map(known).collect())
    }

    /// Takes the answers in; true: something is in doubt.
    fn take_in(&self, run: &mut Run, target: &Target, known: Vec<(Known, Option<Delivery>)>) -> bool {
        let mut doubts = false;
        for (known, doubt) in known {
            match doubt {
                Some(Delivery::InDoubt { reason, lasting }) => {
                    if !std::mem::replace(&mut doubts, true) {
                        run.doubt_reason = Some(reason.clone());
                    }
                    if lasting {
                        run.lasting.insert(known.message_id, reason);
                    }
                }
                _ => run.unsettled.push(known),
            }
        }
        if doubts {
            run.doubt_since = Some(self.replays.clock.monotonic());
            run.memory = None;
            self.drop_producer(&target.name);
        }
        doubts
    }

    /// Stores outcomes that are known and not stored yet. Safe to repeat: what is stored already does not move again.
    pub(super) async fn settle(&self, run: &mut Run) -> Result<(), Hindrance> {
        self.store_known(run.batch_id, &run.unsettled).await?;
        if run.unsettled.iter().any(|known| !known.was_sent()) {
            // What was not sent stands in the way of what comes after it.
            run.memory = None;
        }
        run.unsettled.clear();
        Ok(())
    }

    async fn store_known(&self, batch_id: i64, ends: &[Known]) -> Result<(), Hindrance> {
        if ends.is_empty() {
            return Ok(());
        }
        let timed = self.timed("settle");
        let now_ms = self.replays.clock.now_ms();
        let mut tx = self.begin().await?;
        let batch = self.store_ends(&mut tx, batch_id, ends, now_ms).await?;
        fail::fail_point!("replay::mid_outcome");
        tx.commit().await?;
        drop(timed);
        let groups: BTreeSet<i64> = ends.iter().map(|known| known.group_id).collect();
        let hints: Vec<Hint> = batch.map(|batch| Hint::Dlq(batch.dlq_id)).into_iter().chain(groups.into_iter().map(Hint::Group)).collect();
        self.replays.store.changed(&hints);
        Ok(())
    }

    /// Stores how intended items ended: message, item and progress together. Gives the batch, locked.
    pub(super) async fn store_ends(
        &self,
        tx: &mut crate::store::Tx,
        batch_id: i64,
        ends: &[Known],
        now_ms: i64,
    ) -> Result<Option<Batch>, Hindrance> {
        let actor = self.actor(batch_id);
        let cause = Cause { at_ms: now_ms, actor: &actor, batch_id: Some(batch_id) };
        let change = |known: &Known| -> Change<'static> {
            let moves: &[Move] = match &known.end {
                End::Sent { .. } => &[Move::Sent],
                End::NotSent { .. } | End::Again => &[Move::NotSent],
                End::Held { .. } => &[Move::Held],
            };
            Change { message_id: known.message_id, from: MessageState::IdempotencyCheck, moves, reason: None, evidence: None }
        };
        let changes: Vec<Change<'_>> = ends
            .iter()
            .map(|known| {
                let reason = match &known.end {
                    End::Sent { note, .. } => note.as_deref(),
                    End::NotSent { why } | End::Held { why } => Some(why.as_str()),
                    End::Again => Some("proven absent; it goes once more"),
                };
                Change { reason, ..change(known) }
            })
            .collect();
        let moved: HashSet<i64> = move_messages(tx, &changes, &cause).await?.into_iter().collect();
        let mut progress = Progress::default();
        let mut moves = Vec::with_capacity(ends.len());
        for known in ends.iter().filter(|known| moved.contains(&known.message_id)) {
            let item = |to| ItemMove::new(known.message_id, ItemState::Intended, to);
            moves.push(match &known.end {
                End::Sent { offset, note } => {
                    progress.sent += 1;
                    progress.sent_unchecked += i64::from(known.unchecked);
                    let sent = ItemMove {
                        sent_offset: Some(*offset),
                        sent_at_ms: Some(now_ms),
                        outcome: Some(Outcome::Pending.as_str()),
                        ..item(ItemState::Sent)
                    };
                    match note {
                        Some(note) => sent.noted(note.as_str()),
                        None => sent,
                    }
                }
                End::NotSent { why } => {
                    progress.not_sent += 1;
                    item(ItemState::NotSent).noted(why.as_str())
                }
                End::Again => item(ItemState::Pending),
                End::Held { why } => {
                    progress.held += 1;
                    item(ItemState::Held).noted(why.as_str())
                }
            });
        }
        replay_items::move_items(tx, batch_id, &moves).await?;
        let batch = replays::locked(tx, batch_id).await?;
        replays::add_progress(tx, batch_id, &progress).await?;
        Ok(batch)
    }

    // ------------------------------------------------------------------------------------------------------------- step by step

    /// All that may go has gone: the next step, or the end, or a reason to wait.
    async fn step(&self, run: &mut Run, entry: Entry<'_>) -> Result<(), Hindrance> {
        // As it is now: what was seen before the last chunk does not count that one.
        let Some(batch) = self.replays.store.batch(run.batch_id).await? else { return Ok(()) };
        if batch.state != BatchState::Executing {
            return Ok(());
        }
        let batch = &batch;
        let now_ms = self.replays.clock.now_ms();
        let next = self.replays.store.next_stage(batch.id).await?;
        match stage::next(batch.into(), next, entry.terms.canary_timeout_s, now_ms) {
            stage::Next::Finish => {
                self.end_turn(run, BatchMove::Finish, None).await?;
            }
            stage::Next::Pause(why) => {
                self.end_turn(run, BatchMove::Pause, Some(&why)).await?;
            }
            stage::Next::Wait(words) => self.says(run, Some(("stage", words))).await?,
            stage::Next::BeginToWait => self.set_stage(run, batch, batch.stage, Some(now_ms)).await?,
            stage::Next::Advance(stage) => {
                self.says(run, None).await?;
                self.set_stage(run, batch, stage, None).await?;
            }
        }
        Ok(())
    }

    async fn set_stage(&self, run: &mut Run, batch: &Batch, stage: i32, since_ms: Option<i64>) -> Result<(), Hindrance> {
        let mut tx = self.begin().await?;
        let is_as_seen = |locked: &Batch| locked.state == batch.state && locked.stage == batch.stage;
        if replays::locked(&mut tx, batch.id).await?.as_ref().is_some_and(is_as_seen) {
            replay_items::set_stage(&mut tx, batch.id, stage, since_ms).await?;
            tx.commit().await?;
        }
        run.memory = None;
        Ok(())
    }
}

/// Everything that decides what is written about a chunk.
struct Plan<'a> {
    batch: &'a Batch,
    entry: Entry<'a>,
    target: &'a Target,
    chunk: &'a Chunk,
    courses: &'a [Course],
    /// The end of each partition that something goes to.
    bounds: &'a std::collections::BTreeMap<i32, i64>,
    epoch: i64,
}

impl Plan<'_> {
    fn all(&self) -> impl Iterator<Item = (&ToSend, Option<&Checked>, Course)> {
        let items = self.chunk.items.iter().zip(&self.chunk.checked).zip(self.courses);
        items.map(|((item, checked), course)| (item, checked.as_ref(), *course))
    }

    /// Why each item does not go; None: it goes, or nothing is to be said.
    fn reasons(&self) -> Vec<Option<String>> {
        self.all().map(|(_, checked, course)| reason(checked, course)).collect()
    }

    fn changes<'r>(&self, reasons: &'r [Option<String>]) -> Vec<Change<'r>> {
        let changes = self.all().zip(reasons).map(|((item, checked, course), reason)| Change {
            message_id: item.message_id,
            from: MessageState::UnderReview,
            moves: moves_of(checked, course),
            reason: reason.as_deref(),
            evidence: None,
        });
        changes.collect()
    }

    /// How the items move, and what the batch's progress gains. A message that somebody moved meanwhile is held as it is.
    fn moves<'r>(&self, moved: &HashSet<i64>, reasons: &'r [Option<String>], now_ms: i64) -> (Vec<ItemMove<'r>>, Progress) {
        let mut progress = Progress::default();
        let mut moves = Vec::with_capacity(reasons.len());
        for ((item, _, course), reason) in self.all().zip(reasons) {
            let to = if moved.contains(&item.message_id) { item_state(course) } else { ItemState::Held };
            let mut entry = ItemMove::new(item.message_id, ItemState::Pending, to);
            match to {
                ItemState::Intended => {
                    let partition = goes_to(item, self.entry, self.target);
                    entry.target_partition = partition;
                    entry.lower_bound = partition.and_then(|partition| self.bounds.get(&partition).copied());
                    entry.unchecked = Some(course == Course::Checked(Decision::SendUnchecked));
                    entry.intended_at_ms = Some(now_ms);
                    entry.epoch = Some(self.epoch);
                }
                ItemState::AlreadyApplied => progress.already_applied += 1,
                ItemState::Archived => progress.archived += 1,
                ItemState::Blocked => progress.blocked += 1,
                _ => progress.held += 1,
            }
            if let Course::Blocked(by) = course {
                entry.blocked_by = Some(by);
            }
            if !moved.contains(&item.message_id) {
                entry = entry.noted(format!("its message is {} by now: somebody moved it", item.message_state.as_str().replace('_', " ")));
            } else if let Some(reason) = reason {
                entry = entry.noted(reason.as_str());
            }
            moves.push(entry);
        }
        (moves, progress)
    }

    /// The verdicts on items that go for the first time, or once more.
    fn evidence(&self, phase: Phase, decisions: &[Decision]) -> Vec<(Checked, Decision)> {
        let of_phase = self.all().zip(decisions).filter(|((item, ..), _)| item.again == (phase == Phase::InDoubt));
        of_phase.filter_map(|((_, checked, _), decision)| Some((without_bytes(checked?), *decision))).collect()
    }

    /// What goes: the item, whether a check is missing, the record.
    fn outgoing(&self, moved: &HashSet<i64>) -> Vec<(&ToSend, bool, Outgoing)> {
        let going = self.all().filter(|(item, _, course)| course.goes() && moved.contains(&item.message_id));
        going
            .filter_map(|(item, checked, course)| {
                let record = item.record.as_ref()?;
                let stamp = Stamp {
                    uid: &self.batch.uid,
                    batch_id: self.batch.id,
                    message_id: item.message_id,
                    lap: item.lap,
                    origin_topic: item.origin_topic.as_deref(),
                    origin_partition: item.origin_partition,
                    origin_offset: item.origin_offset,
                    origin_at_ms: item.origin_at_ms,
                };
                let outgoing = Outgoing {
                    partition: goes_to(item, self.entry, self.target)?,
                    key: record.key.clone(),
                    value: checked.and_then(|checked| checked.transformed.clone()).or_else(|| record.value.clone()),
                    headers: headers(record, &self.entry.settings.dialect, &stamp),
                };
                Some((item, course == Course::Checked(Decision::SendUnchecked), outgoing))
            })
            .collect()
    }
}

/// The partition of the target; None where the record's bytes are gone.
fn goes_to(item: &ToSend, entry: Entry<'_>, target: &Target) -> Option<i32> {
    let key = item.record.as_ref()?.key.as_deref();
    let origin = item.origin_partition.filter(|_| item.origin_topic.as_deref() == Some(target.name.as_str()));
    Some(target_partition(entry.settings.partitioner, key, origin, target.partitions, item.message_id))
}

fn item_state(course: Course) -> ItemState {
    match course {
        Course::Checked(Decision::Send | Decision::SendUnchecked) => ItemState::Intended,
        Course::Checked(Decision::AlreadyApplied) => ItemState::AlreadyApplied,
        Course::Checked(Decision::Incompatible | Decision::Unsafe) => ItemState::Archived,
        Course::Checked(Decision::Held) => ItemState::Held,
        Course::Blocked(_) => ItemState::Blocked,
    }
}

/// The way of the message through its states.
fn moves_of(checked: Option<&Checked>, course: Course) -> &'static [Move] {
    use crate::domain::verdict::Conclusion;
    // Held by the first check, or past it.
    let schema_held = checked.is_none_or(|checked| matches!(checked.schema.conclusion(), Conclusion::Held { .. }));
    match course {
        Course::Checked(Decision::Send | Decision::SendUnchecked) => &[Move::CheckBegun, Move::SchemaFits],
        Course::Checked(Decision::AlreadyApplied) => &[Move::CheckBegun, Move::SchemaFits, Move::AlreadyApplied],
        Course::Checked(Decision::Incompatible) => &[Move::CheckBegun, Move::SchemaUnfit],
        Course::Checked(Decision::Unsafe) => &[Move::CheckBegun, Move::SchemaFits, Move::Unsafe],
        Course::Checked(Decision::Held) if schema_held => &[Move::CheckBegun, Move::Held],
        Course::Checked(Decision::Held) => &[Move::CheckBegun, Move::SchemaFits, Move::Held],
        Course::Blocked(_) => &[Move::CheckBegun, Move::Held],
    }
}

/// Why an item does not go.
fn reason(checked: Option<&Checked>, course: Course) -> Option<String> {
    let schema = |checked: &Checked| match &checked.schema_note {
        Some(note) => format!("schema check: {}: {note}", checked.schema.as_str().replace('_', " ")),
        None => format!("schema check: {}", checked.schema.as_str().replace('_', " ")),
    };
    let idempotency = |checked: &Checked| match &checked.answered {
        Some(answer) => format!("duplicate check: {}: {answer}", checked.idempotency.as_str().replace('_', " ")),
        None => format!("duplicate check: {}", checked.idempotency.as_str().replace('_', " ")),
    };
    match course {
        Course::Blocked(by) => Some(format!("message {by}, which comes before it under the same key, stands in the way")),
        Course::Checked(Decision::Send | Decision::SendUnchecked) => None,
        Course::Checked(decision) => Some(match checked {
            None => "its bytes were purged: there is nothing to send".to_owned(),
            Some(checked) if decision == Decision::Incompatible => schema(checked),
            Some(checked) if decision == Decision::Held && moves_of(Some(checked), course).len() == 2 => schema(checked),
            Some(checked) => idempotency(checked),
        }),
    }
}

/// What an ended item was found to be, in the words of the forecast. Where the word does not follow from the state, the forecast is believed.
fn found_word(forecast: &str, state: ItemState, unchecked: bool) -> &str {
    match state {
        ItemState::Sent | ItemState::Intended if unchecked => "send_unchecked",
        ItemState::Sent | ItemState::Intended => "send",
        ItemState::AlreadyApplied => "already_applied",
        ItemState::Archived if forecast == "unsafe" => "unsafe",
        ItemState::Archived => "incompatible",
        // Either way it went back to review, and stands in the way.
        ItemState::Held | ItemState::Blocked if matches!(forecast, "held" | "blocked") => forecast,
        ItemState::Held => "held",
        ItemState::Blocked => "blocked",
        ItemState::Pending | ItemState::NotSent => forecast,
    }
}

/// The evidence of a check; the bytes to be sent are no part of it.
fn without_bytes(checked: &Checked) -> Checked {
    Checked {
        message_id: checked.message_id,
        at_ms: checked.at_ms,
        schema: checked.schema,
        schema_note: checked.schema_note.clone(),
        transformed: None,
        idempotency: checked.idempotency,
        asked: checked.asked.clone(),
        answered: checked.answered.clone(),
        others: checked.others.clone(),
        beyond_waivers: checked.beyond_waivers,
    }
}
