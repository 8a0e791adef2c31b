//! The DLQs whose arrivals are followed: loaded, begun, looked at and taught.

use std::collections::HashMap;

use super::{Alerting, AlertingError};
use crate::domain::baseline::{Follow, Span, Turn};
use crate::domain::health::Looked;
use crate::store::StoreError;
use crate::store::dlqs::Dlq;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// The width of what is taught.
pub(super) const BUCKET_MS: i64 = 5 * MINUTE_MS;
/// What a baseline remembers.
pub(super) const REMEMBERED_MS: i64 = 28 * 24 * HOUR_MS;
/// DLQs that live through their past in one turn: some 10 ms each.
const BEGUN_AT_ONCE: usize = 20;
/// A DLQ whose old records are still being read begins to be followed after this all the same.
const FIRST_READ_MS: i64 = HOUR_MS;
/// So much of the past is taught in one turn.
const TAUGHT_AT_ONCE_MS: i64 = 6 * HOUR_MS;

/// What has to be stored of a DLQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unsaved {
    Nothing,
    /// Whether something is unusual.
    Watch,
    /// What is usual, too.
    Whole,
}

/// One DLQ that is followed.
pub(super) struct Followed {
    pub follow: Follow,
    /// As it is stored; 0: it is not.
    pub version: i64,
    pub unsaved: Unsaved,
    /// All that was dead-lettered before is taken in, ms. None: nobody saw it so yet.
    read_to_ms: Option<i64>,
}

/// All that are followed, by DLQ.
#[derive(Default)]
pub(super) struct Arrivals {
    pub followed: HashMap<i64, Followed>,
    /// Anomalies that are over and not stored yet.
    pub over: Vec<(i64, Span)>,
}

impl Arrivals {
    /// Takes in what is stored and not known here: at first all of it, later what people accepted.
    pub async fn load(&mut self, alerting: &Alerting, now_ms: i64) -> Result<(), StoreError> {
        let versions = alerting.store.baseline_versions().await?;
        let is_new = |(dlq_id, version): &&(i64, i64)| self.followed.get(dlq_id).is_none_or(|followed| followed.version != *version);
        let ids: Vec<i64> = versions.iter().filter(is_new).map(|(dlq_id, _)| *dlq_id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let only = if let [one] = ids[..] { Some(one) } else { None };
        let mut left_out: HashMap<i64, Vec<Span>> = HashMap::new();
        for anomaly in alerting.store.anomalies(only, now_ms.saturating_sub(REMEMBERED_MS)).await? {
            if anomaly.accepted_by.is_none() {
                left_out.entry(anomaly.dlq_id).or_default().push(anomaly.span);
            }
        }
        for stored in alerting.store.baselines(&ids).await? {
            let follow = Follow::load(stored.history, stored.watch, left_out.remove(&stored.dlq_id).unwrap_or_default());
            let read_to_ms = self.followed.get(&stored.dlq_id).and_then(|before| before.read_to_ms);
            let followed = Followed { follow, version: stored.version, unsaved: Unsaved::Nothing, read_to_ms };
            self.followed.insert(stored.dlq_id, followed);
        }
        Ok(())
    }

    /// Begins to follow DLQs that nobody followed, some of them at a time: they live through what is stored of their past.
    pub async fn begin(&mut self, alerting: &Alerting, looks: &[(&Dlq, &Looked)], now_ms: i64) -> Result<(), AlertingError> {
        let waits = |(dlq, looked): &&(&Dlq, &Looked)| {
            let is_read = is_read(looked) || now_ms.saturating_sub(dlq.first_seen_at_ms) >= FIRST_READ_MS;
            looked.figures.has_data && is_read && !self.followed.contains_key(&dlq.id)
        };
        let new: Vec<&Dlq> = looks.iter().filter(waits).take(BEGUN_AT_ONCE).map(|(dlq, _)| *dlq).collect();
        for dlq in new {
            let from_ms = now_ms.saturating_sub(REMEMBERED_MS);
            let arrivals = alerting.store.arrivals(Some(dlq.id), from_ms, now_ms + 1, MINUTE_MS).await?;
            let minutes: Vec<(i64, i64)> = arrivals.into_iter().map(|(_, start_ms, count)| (start_ms, count)).collect();
            let known_from_ms = known_from_ms(dlq, &minutes);
            let lived = tokio::task::spawn_blocking(move || live(known_from_ms, &minutes, now_ms));
            let (follow, over) = lived.await?;
            self.over.extend(over.into_iter().map(|span| (dlq.id, span)));
            self.followed.insert(dlq.id, Followed { follow, version: 0, unsaved: Unsaved::Whole, read_to_ms: None });
        }
        Ok(())
    }

    /// Looks at what arrived. Where the look from outside failed nobody knows what did, and all stays as it was.
    pub fn look(&mut self, dlq: &Dlq, looked: &Looked, now_ms: i64) {
        let Some(followed) = self.followed.get_mut(&dlq.id).filter(|_| looked.figures.has_data) else { return };
        if is_read(looked) {
            followed.read_to_ms = looked.sampled_at_ms.max(followed.read_to_ms);
        }
        let was_calming = followed.follow.watch().is_calming();
        let turn = followed.follow.look(looked.minutes.iter().copied(), now_ms);
        // A restart is not to begin the calm anew.
        if turn.is_some() || followed.follow.watch().is_calming() != was_calming {
            followed.unsaved = followed.unsaved.max(Unsaved::Watch);
        }
        if let Some(Turn::Closed(span)) = turn {
            self.over.push((dlq.id, span));
        }
    }

    /// Teaches what is due, of all DLQs with one query: about once an hour there is something.
    pub async fn teach(&mut self, alerting: &Alerting, now_ms: i64) -> Result<(), AlertingError> {
        let due = |(dlq_id, followed): (&i64, &Followed)| Some((*dlq_id, followed.follow.history().due(followed.read_to_ms?, now_ms)?));
        let mut due: Vec<(i64, Span)> = self.followed.iter().filter_map(due).collect();
        let Some(from_ms) = due.iter().map(|(_, span)| span.from_ms).min() else { return Ok(()) };
        let until_ms = from_ms + TAUGHT_AT_ONCE_MS;
        due.retain(|(_, span)| span.from_ms < until_ms);
        let to_ms = due.iter().map(|(_, span)| span.to_ms).max().unwrap_or(from_ms).min(until_ms);
        let mut buckets: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
        for (dlq_id, start_ms, count) in alerting.store.arrivals(None, from_ms, to_ms, BUCKET_MS).await? {
            buckets.entry(dlq_id).or_default().push((start_ms, count));
        }
        let taught: Vec<Taught> = due
            .into_iter()
            .filter_map(|(dlq_id, span)| {
                let span = Span { from_ms: span.from_ms, to_ms: span.to_ms.min(to_ms) };
                Some((dlq_id, span, self.followed.remove(&dlq_id)?, buckets.remove(&dlq_id).unwrap_or_default()))
            })
            .collect();
        let teach = move || {
            let teach = |(dlq_id, span, mut followed, buckets): Taught| {
                followed.follow.teach(span, &buckets);
                followed.unsaved = Unsaved::Whole;
                (dlq_id, followed)
            };
            taught.into_iter().map(teach).collect::<Vec<_>>()
        };
        self.followed.extend(tokio::task::spawn_blocking(teach).await?);
        Ok(())
    }
}

/// A DLQ, what is due, what is known of it, and its arrivals: (start in ms, count).
type Taught = (i64, Span, Followed, Vec<(i64, i64)>);

/// Whether what is dead-lettered is taken in, but for what any busy topic has under way: no more is unread than came in a quarter of an hour.
fn is_read(looked: &Looked) -> bool {
    let a_quarter = looked.figures.arrivals_per_minute.unwrap_or(0.0) * 15.0;
    looked.figures.uncollected.is_some_and(|uncollected| uncollected as f64 <= a_quarter)
}

/// Since when all arrivals are known: when the DLQ was first seen, or, where its older records were taken in, since the oldest of these.
pub(super) fn known_from_ms(dlq: &Dlq, minutes: &[(i64, i64)]) -> i64 {
    let oldest_ms = minutes.first().map(|(start_ms, _)| *start_ms).filter(|_| dlq.start_note.is_none());
    oldest_ms.map_or(dlq.first_seen_at_ms, |oldest_ms| oldest_ms.min(dlq.first_seen_at_ms))
}

fn live(known_from_ms: i64, minutes: &[(i64, i64)], now_ms: i64) -> (Follow, Vec<Span>) {
    let to_ms = now_ms.div_euclid(MINUTE_MS) * MINUTE_MS;
    let span = Span { from_ms: known_from_ms.div_euclid(MINUTE_MS) * MINUTE_MS, to_ms };
    let mut follow = Follow::new(known_from_ms);
    let mut over = Vec::new();
    follow.live(minutes, span, |_, _, turn| {
        if let Some(Turn::Closed(span)) = turn {
            over.push(span);
        }
    });
    (follow, over)
}
