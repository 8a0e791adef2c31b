//! Freezing: the messages of a scope go into a batch, chunk by chunk, downwards from the newest that was there when it was proposed.

use serde_json::json;

use super::plan::ORIGIN;
use super::propose::Prepared;
use super::rights::subject;
use super::{Entry, ReplayError, Replays};
use crate::domain::audit::{Action, By, Event};
use crate::domain::lifecycle::Move;
use crate::domain::message::MessageState;
use crate::domain::replay::{Progress, Step, Tally};
use crate::domain::terms::Order;
use crate::store::messages::{MessageFilter, MessageRow};
use crate::store::notify::Hint;
use crate::store::replays::{self, Batch, Freeze, Frozen, Reached, Scope};
use crate::store::transitions::{Cause, Change, move_messages};
use crate::store::{StoreError, audit};

/// Messages that are frozen in one transaction, at most: on SQLite intake waits meanwhile.
const CHUNK: usize = 1_000;
/// Messages on a page of the list.
const PAGE: i64 = 500;
/// The states from which a message can go into a batch.
pub(super) const WAITING: [MessageState; 2] = [MessageState::Quarantined, MessageState::UnderReview];

impl Replays {
    /// Freezes one chunk.
    pub(super) async fn freeze_chunk(&self, batch: &Batch, entry: Entry<'_>) -> Result<Prepared, ReplayError> {
        let after = batch.freeze_after.unwrap_or(0);
        let (ids, next) = match &batch.scope {
            Scope::Filter { filter, .. } => self.waiting_before(filter, after).await?,
            Scope::MessageIds(ids) => listed_before(ids, after),
        };
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let how =
            Freeze { batch_id: batch.id, dlq_id: batch.dlq_id, by_key: entry.terms.order == Order::Key, origin: only_origin(batch, entry) };
        let frozen = replays::freeze(&mut tx, how, &ids).await?;
        let changes: Vec<Change<'_>> = frozen.quarantined.iter().map(|id| taken_up(*id)).collect();
        move_messages(&mut tx, &changes, &Cause { at_ms: now_ms, actor: &batch.proposer, batch_id: Some(batch.id) }).await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if !same_place(batch, &now) {
            // Stopped meanwhile, or another instance did this chunk: nothing of it is kept.
            return Ok(Prepared::More);
        }
        let progress = Progress { items: i64::try_from(frozen.items).unwrap_or(i64::MAX), ..Progress::default() };
        replays::add_progress(&mut tx, batch.id, &progress).await?;
        let tally = counted(now.tally, &frozen);
        let step = if next.is_some() { Step::Freezing } else { Step::Checking };
        replays::reach(&mut tx, batch.id, &Reached { step, step_after: 0, freeze_after: next, tally: &tally }).await?;
        if next.is_none() {
            let entry = left_out(now.progress.items + progress.items, &tally);
            replays::log(&mut tx, batch.id, now_ms, &subject(batch.id), &entry).await?;
        }
        if !frozen.quarantined.is_empty() {
            audit::append(&mut tx, &picked_up(batch, &frozen, now_ms)).await?;
        }
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(batch.dlq_id)]);
        Ok(Prepared::More)
    }

    /// The newest waiting messages before `after` that the filter finds, newest first, at most [`CHUNK`]; and where to go on, None: there are no more.
    pub(super) async fn waiting_before(&self, filter: &MessageFilter, after: i64) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let (mut ids, mut after) = (Vec::new(), Some(after));
        while let Some(before) = after.filter(|_| ids.len() + (WAITING.len() * PAGE as usize) <= CHUNK) {
            let (rows, next) = self.waiting_page(filter, before).await?;
            ids.extend(rows.iter().map(|row| row.id));
            after = next;
        }
        Ok((ids, after))
    }

    /// One page of waiting messages before the id `before`, newest first, and where to go on.
    pub(super) async fn waiting_page(&self, filter: &MessageFilter, before: i64) -> Result<(Vec<MessageRow>, Option<i64>), StoreError> {
        let mut rows = Vec::new();
        // Below this id one of the lists has more than was read.
        let mut known_down_to = None;
        for state in WAITING.into_iter().filter(|state| filter.state.is_none_or(|wanted| wanted == *state)) {
            let filter = MessageFilter { state: Some(state), ..filter.clone() };
            let page = self.store.messages(&filter, Some(before), PAGE).await?;
            known_down_to = known_down_to.max(page.next);
            rows.extend(page.items);
        }
        rows.retain(|row| known_down_to.is_none_or(|lowest| row.id >= lowest));
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.id));
        Ok((rows, known_down_to))
    }
}

/// The topic that all messages must come from, where they go back there.
fn only_origin<'a>(batch: &'a Batch, entry: Entry<'_>) -> Option<&'a str> {
    let named = entry.terms.targets.iter().any(|target| target != ORIGIN && *target == batch.plan.target);
    (!named).then_some(batch.plan.target.as_str())
}

fn taken_up(message_id: i64) -> Change<'static> {
    Change { message_id, from: MessageState::Quarantined, moves: &[Move::TakenUp], reason: None, evidence: None }
}

/// The ids below `after`, highest first, at most [`CHUNK`], and where to go on.
fn listed_before(ids: &[i64], after: i64) -> (Vec<i64>, Option<i64>) {
    let mut ids: Vec<i64> = ids.iter().copied().filter(|id| *id < after).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.dedup();
    let more = ids.len() > CHUNK;
    ids.truncate(CHUNK);
    let next = ids.last().copied().filter(|_| more);
    (ids, next)
}

/// Whether nobody has taken the batch further since it was read.
pub(super) fn same_place(seen: &Batch, now: &Batch) -> bool {
    let place = |batch: &Batch| (batch.state, batch.version, batch.step, batch.step_after, batch.freeze_after);
    place(seen) == place(now)
}

fn counted(mut tally: Tally, frozen: &Frozen) -> Tally {
    for (batch, items) in &frozen.elsewhere {
        *tally.elsewhere.entry(*batch).or_default() += items;
    }
    for (origin, items) in &frozen.other_origins {
        tally.left_out(origin.as_deref(), *items);
    }
    tally
}

/// What was frozen and what was not, in a sentence for the log.
fn left_out(items: i64, tally: &Tally) -> String {
    let mut said = format!("{items} messages frozen");
    for (batch, items) in &tally.elsewhere {
        said.push_str(&format!("; {items} are in replay {batch}"));
    }
    for (topic, items) in &tally.other_origins {
        let topic = if topic.is_empty() { "a topic that nobody knows" } else { topic };
        said.push_str(&format!("; {items} left out: they came from {topic}"));
    }
    said
}

fn picked_up(batch: &Batch, frozen: &Frozen, now_ms: i64) -> Event {
    let by = By { actor: batch.proposer.clone(), request_id: None };
    let mut event = Event::new(now_ms, &by, Action::MessagesTakenUp, subject(batch.id));
    event.after = Some(json!({
        "messages": frozen.quarantined.len(),
        "first": frozen.quarantined.first(),
        "last": frozen.quarantined.last(),
    }));
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_ids_goes_downwards_in_chunks_and_each_once() {
        assert_eq!(listed_before(&[3, 1, 2, 3], i64::MAX), (vec![3, 2, 1], None));
        assert_eq!(listed_before(&[3, 1, 2], 3), (vec![2, 1], None));
        let many: Vec<i64> = (1..=2_500).collect();
        let (first, next) = listed_before(&many, i64::MAX);
        assert_eq!((first.len(), first[0], next), (CHUNK, 2_500, Some(1_501)));
        let (second, next) = listed_before(&many, 1_501);
        assert_eq!((second.len(), second[0], next), (CHUNK, 1_500, Some(501)));
        assert_eq!(listed_before(&many, 501).0.len(), 500);
    }
}
