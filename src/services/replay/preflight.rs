//! Preflight: both checks on every message of a batch, what stands in whose way, and in which steps they go. Moves no message.

use std::collections::{BTreeMap, HashMap};

use super::check::Candidate;
use super::freeze::same_place;
use super::propose::Prepared;
use super::{Entry, ReplayError, Replays};
use crate::domain::pacing::within_bytes;
use crate::domain::replay::{Expected, Progress, Step, Tally};
use crate::domain::stage::{self, spread, stage_of};
use crate::domain::terms::Order;
use crate::domain::verdict::{Checked, Conclusion, Decision};
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, ItemForecast, Reached, Staged, ToCheck};
use crate::store::verdicts::{self, Phase};

/// Messages that are checked in one go, at most.
const CHECKED: i64 = 1_000;
/// Items that are written in one transaction where no message is read.
const WRITTEN: i64 = 2_000;
/// The canary is looked for in so many slices of the batch, in each of which so many items are candidates.
const SLICES: i64 = 20;
const OF_SLICE: i64 = 250;

impl Replays {
    /// Checks the next messages.
    pub(super) async fn check_chunk(&self, batch: &Batch, entry: Entry<'_>) -> Result<Prepared, ReplayError> {
        let after = batch.step_after;
        let next = self.store.pending_after(batch.id, after, CHECKED).await?;
        let fit = within_bytes(next.iter().map(|(_, size)| *size));
        let ids: Vec<i64> = next.iter().take(fit).map(|(id, _)| *id).collect();
        let messages = self.store.to_check(&ids).await?;
        let now_ms = self.clock.now_ms();
        let candidates: Vec<Candidate> = messages.iter().filter_map(candidate).collect();
        let checked = match candidates.is_empty() {
            true => Vec::new(),
            false => self.checker.check(entry, batch.plan.transform.as_deref(), &candidates, now_ms).await,
        };
        drop(candidates);
        let looked = Looked::at(batch, entry, &messages, checked);
        // The rest of the ids too, once no pending item is left.
        let upto = ids.last().copied().unwrap_or(i64::MAX);
        let forecasts: Vec<ItemForecast<'_>> =
            looked.forecasts.iter().map(|(id, expected, note)| forecast(*id, *expected, *note)).collect();
        let mut tx = self.store.begin().await?;
        replays::set_forecasts(&mut tx, batch.id, (after, upto), &forecasts, batch.plan.canary == 0).await?;
        verdicts::append(&mut tx, batch.id, Phase::Preflight, &looked.evidence).await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if !same_place(batch, &now) {
            return Ok(Prepared::More);
        }
        let progress = Progress { checked: i64::try_from(ids.len()).unwrap_or(i64::MAX), ..Progress::default() };
        replays::add_progress(&mut tx, batch.id, &progress).await?;
        let tally = looked.added_to(now.tally);
        let (step, step_after) = if ids.is_empty() { (Step::Blocking, 0) } else { (Step::Checking, upto) };
        self.reached(tx, batch, Reached { step, step_after, freeze_after: None, tally: &tally }).await
    }

    /// Finds, among the next items, those that an earlier one of their key stands in the way of.
    pub(super) async fn block_chunk(&self, batch: &Batch, entry: Entry<'_>) -> Result<Prepared, ReplayError> {
        let ids = match entry.terms.order {
            Order::Key => self.store.pending_after(batch.id, batch.step_after, WRITTEN).await?,
            Order::None => Vec::new(),
        };
        let last = ids.last().map(|(id, _)| *id);
        let mut tx = self.store.begin().await?;
        if let Some(last) = last {
            replays::expect_blocked(&mut tx, batch.id, (batch.step_after, last)).await?;
        }
        let next = if batch.plan.canary == 0 { Step::Concluding } else { Step::Staging };
        let (step, step_after) = last.map_or((next, NOT_PICKED), |last| (Step::Blocking, last));
        let now = self.lock(&mut tx, batch.id).await?;
        if !same_place(batch, &now) {
            return Ok(Prepared::More);
        }
        self.reached(tx, batch, Reached { step, step_after, freeze_after: None, tally: &now.tally }).await
    }

    /// First picks the canary, then puts the next items into the steps after it, in the order of their origin: so no item goes before an earlier one of
    /// its key.
    pub(super) async fn stage_chunk(&self, batch: &Batch) -> Result<Prepared, ReplayError> {
        let canary = batch.plan.canary;
        let staged: Vec<Staged> = if batch.step_after == NOT_PICKED {
            self.canary(batch).await?.into_iter().map(|message_id| Staged { message_id, stage: 0 }).collect()
        } else {
            let first = u64::try_from(batch.step_after).unwrap_or_default();
            let ids = self.store.unstaged(batch.id, WRITTEN).await?;
            (first..).zip(ids).map(|(ordinal, message_id)| Staged { message_id, stage: stage_of(ordinal, canary) }).collect()
        };
        let mut tx = self.store.begin().await?;
        for chunk in staged.chunks(WRITTEN as usize) {
            replays::set_stages(&mut tx, batch.id, chunk).await?;
        }
        let placed = i64::try_from(staged.len()).unwrap_or(i64::MAX);
        let (step, step_after) = match batch.step_after {
            NOT_PICKED => (Step::Staging, placed),
            _ if placed == 0 => (Step::Concluding, 0),
            before => (Step::Staging, before + placed),
        };
        let now = self.lock(&mut tx, batch.id).await?;
        if !same_place(batch, &now) {
            return Ok(Prepared::More);
        }
        self.reached(tx, batch, Reached { step, step_after, freeze_after: None, tally: &now.tally }).await
    }

    /// The messages of the canary: spread over the batch, and over failure groups, partitions and keys.
    async fn canary(&self, batch: &Batch) -> Result<Vec<i64>, ReplayError> {
        let Some((first, last)) = self.store.item_bounds(batch.id).await? else { return Ok(Vec::new()) };
        let mut candidates: Vec<stage::Candidate> = Vec::new();
        let width = (last - first) / SLICES + 1;
        let mut after = first - 1;
        while after < last {
            candidates.extend(self.store.canary_candidates(batch.id, (after, after + width), OF_SLICE).await?);
            after += width;
        }
        Ok(spread(&candidates, usize::try_from(batch.plan.canary).unwrap_or(usize::MAX)))
    }

    async fn reached(&self, mut tx: crate::store::Tx, batch: &Batch, reached: Reached<'_>) -> Result<Prepared, ReplayError> {
        replays::reach(&mut tx, batch.id, &reached).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(batch.dlq_id)]);
        Ok(Prepared::More)
    }
}

/// The canary is still to be picked.
const NOT_PICKED: i64 = -1;

/// Why a message without its bytes cannot go.
const PURGED: &str = "held: its bytes were removed after their retention";

fn forecast(message_id: i64, expected: Expected, note: Option<&str>) -> ItemForecast<'_> {
    ItemForecast { message_id, expected, note }
}

/// What one chunk of checks came to.
#[derive(Debug, Default)]
struct Looked {
    forecasts: Vec<(i64, Expected, Option<&'static str>)>,
    evidence: Vec<(Checked, Decision)>,
    tally: Tally,
}

impl Looked {
    fn at(batch: &Batch, entry: Entry<'_>, messages: &[ToCheck], checked: Vec<Checked>) -> Looked {
        let mut looked = Looked::default();
        let standing = entry.waives(batch);
        let waivers = &batch.plan.waivers;
        let mut by_id: HashMap<i64, Checked> = checked.into_iter().map(|checked| (checked.message_id, checked)).collect();
        for message in messages {
            looked.tally.over_laps += u64::from(message.lap > entry.settings.max_laps);
            let gone = message.origin_partition.is_some_and(|partition| partition >= batch.plan.target_partitions);
            looked.tally.repartitioned += u64::from(gone && message.origin_topic.as_deref() == Some(batch.plan.target.as_str()));
            let Some(checked) = by_id.remove(&message.message_id) else {
                looked.forecasts.push((message.message_id, Expected::Held, Some(PURGED)));
                continue;
            };
            let decision = checked.decision(waivers, standing);
            let without = checked.decision(&[], standing);
            looked.tally.waived += u64::from(decision == Decision::SendUnchecked && without == Decision::Held);
            for (group, verdict) in &checked.others {
                // New for that group: it is the first time it gets it.
                if verdict.conclusion() != Conclusion::Passed {
                    *looked.tally.others.entry(group.clone()).or_default().entry(verdict.as_str().to_owned()).or_default() += 1;
                }
            }
            looked.forecasts.push((message.message_id, decision.into(), None));
            looked.evidence.push((checked, decision));
        }
        looked
    }

    fn added_to(&self, mut tally: Tally) -> Tally {
        tally.over_laps += self.tally.over_laps;
        tally.repartitioned += self.tally.repartitioned;
        tally.waived += self.tally.waived;
        for (group, verdicts) in &self.tally.others {
            let of_group: &mut BTreeMap<String, u64> = tally.others.entry(group.clone()).or_default();
            for (verdict, items) in verdicts {
                *of_group.entry(verdict.clone()).or_default() += items;
            }
        }
        tally
    }
}

/// A message to be checked; None: its bytes are gone.
fn candidate(message: &ToCheck) -> Option<Candidate> {
    Some(Candidate {
        message_id: message.message_id,
        record: message.record.clone()?,
        origin_at_ms: message.origin_at_ms,
        timestamp_suspect: message.timestamp_suspect,
    })
}
