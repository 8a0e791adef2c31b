//! Recognising, within the transaction of a take-in, that a new dead letter is something we sent: by the replay id it carries, or by a place it came from.
//!
//! Costs one look at an index where nothing was ever replayed. While the outcome of anything is open, places are kept as traces: a return may be taken in
//! before it is stored that it was sent (`store/outcomes.rs` joins the two before anything is confirmed).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::bulk::NewRow;
use super::notify::Hint;
use super::outcomes::{ItemKey, RETURNS_KNOWN_FOR_MS, Resolution, resolve};
use super::sql_pieces::{Dialect as _, rows, text};
use super::{StoreError, Tx, replays};
use crate::domain::lifecycle::Outcome;
use crate::domain::message::MAX_AHEAD_MS;
use crate::domain::returns::Place;

#[derive(serde::Serialize)]
struct NamedId<'a> {
    new_id: i64,
    dlq_id: i64,
    uid: &'a str,
    message_id: i64,
}

#[derive(serde::Serialize)]
struct NamedPlace<'a> {
    new_id: i64,
    dlq_id: i64,
    topic: std::borrow::Cow<'a, str>,
    partition: i32,
    place_offset: i64,
    failed_at_ms: i64,
}

#[derive(serde::Serialize)]
struct Trace<'a> {
    dlq_id: i64,
    topic: std::borrow::Cow<'a, str>,
    partition: i32,
    place_offset: i64,
    message_id: i64,
    at_ms: i64,
}

/// An item that a new message names.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
struct Named {
    new_id: i64,
    batch_id: i64,
    message_id: i64,
    intended_at_ms: i64,
    /// Of the message that was sent.
    lap: i32,
}

impl Named {
    fn item(&self) -> ItemKey {
        ItemKey { batch_id: self.batch_id, message_id: self.message_id }
    }
}

/// A new message and what it came back from, as the statement takes it.
#[derive(Debug, serde::Serialize)]
pub(super) struct Link {
    pub id: i64,
    pub replay_of: i64,
    pub lap: i32,
}

#[derive(serde::Serialize)]
struct Noted {
    batch_id: i64,
    message_id: i64,
    returned_as: i64,
}

#[derive(sqlx::FromRow)]
struct Target {
    dlq_id: i64,
    target: String,
    target_id: Option<String>,
}

/// Recognises returns among new rows, which are in the table already. What is learnt of other messages is in the hints.
pub(super) async fn recognise(tx: &mut Tx, new: &[NewRow<'_>], now_ms: i64) -> Result<Vec<Hint>, StoreError> {
    let dlqs: BTreeSet<i64> = new.iter().filter(|row| !row.message.traces.is_empty()).map(|row| row.partition.dlq_id).collect();
    if dlqs.is_empty() {
        return Ok(Vec::new());
    }
    let dlqs: Vec<i64> = dlqs.into_iter().collect();
    let replaying: HashMap<i64, bool> = in_tx!(tx, |connection| {
        let found = sqlx::query_as::<Db, (i64, bool)>(Db::REPLAYING_DLQS).bind(rows(&dlqs)).fetch_all(&mut *connection).await?;
        found.into_iter().collect()
    })?;
    if replaying.is_empty() {
        return Ok(Vec::new());
    }
    let concerned: Vec<&NewRow<'_>> = new.iter().filter(|row| replaying.contains_key(&row.partition.dlq_id)).collect();
    let named = named(tx, &concerned, now_ms).await?;
    link(tx, &named).await?;
    let returned = come_back(tx, &named, now_ms).await?;
    let open: Vec<i64> = replaying.into_iter().filter(|(_, open)| *open).map(|(dlq_id, _)| dlq_id).collect();
    if !open.is_empty() {
        keep_traces(tx, &concerned, &returned.known, &open, now_ms).await?;
    }
    Ok(returned.hints)
}

/// The item that each new message came back from: where several are named, the one that was sent last.
async fn named(tx: &mut Tx, new: &[&NewRow<'_>], now_ms: i64) -> Result<Vec<Named>, StoreError> {
    let ids: Vec<NamedId<'_>> = new
        .iter()
        .flat_map(|row| {
            let (new_id, dlq_id) = (row.id, row.partition.dlq_id);
            row.message.traces.replay_ids.iter().map(move |id| NamedId { new_id, dlq_id, uid: &id.uid, message_id: id.message_id })
        })
        .collect();
    let places: Vec<NamedPlace<'_>> = new
        .iter()
        .flat_map(|row| {
            let (new_id, dlq_id, failed_at_ms) = (row.id, row.partition.dlq_id, row.message.dead_lettered_at_ms);
            row.message.traces.places.iter().map(move |Place { topic, partition, offset }| NamedPlace {
                new_id,
                dlq_id,
                topic: text(topic),
                partition: *partition,
                place_offset: *offset,
                failed_at_ms,
            })
        })
        .collect();
    let mut found: Vec<Named> = in_tx!(tx, |connection| {
        let mut found = Vec::new();
        if !ids.is_empty() {
            found = sqlx::query_as::<Db, Named>(Db::SENT_BY_ID).bind(rows(&ids)).fetch_all(&mut *connection).await?;
        }
        if !places.is_empty() {
            // Whoever stamped it has a clock of its own.
            let query = sqlx::query_as::<Db, Named>(Db::SENT_TO_PLACE).bind(rows(&places)).bind(MAX_AHEAD_MS);
            found.append(&mut query.bind(now_ms.saturating_sub(RETURNS_KNOWN_FOR_MS)).fetch_all(&mut *connection).await?);
        }
        found
    })?;
    found.sort_by_key(|named| (named.new_id, std::cmp::Reverse((named.intended_at_ms, named.message_id))));
    found.dedup_by_key(|named| named.new_id);
    Ok(found)
}

/// Links new messages with what they came back from. A consumer that strips our headers must not make each lap look like the first.
async fn link(tx: &mut Tx, named: &[Named]) -> Result<(), StoreError> {
    let links: Vec<Link> =
        named.iter().map(|named| Link { id: named.new_id, replay_of: named.message_id, lap: named.lap.saturating_add(1) }).collect();
    write_links(tx, &links).await
}

pub(super) async fn write_links(tx: &mut Tx, links: &[Link]) -> Result<(), StoreError> {
    if links.is_empty() {
        return Ok(());
    }
    in_tx!(tx, |connection| {
        sqlx::query(Db::LINK_RETURNS).bind(rows(links)).execute(&mut *connection).await?;
    })
}

#[derive(Default)]
struct ComeBack {
    /// New messages whose item is stored as sent.
    known: HashSet<i64>,
    hints: Vec<Hint>,
}

/// Sets the outcome of what came back. Where it is not stored yet that it was sent, that is noted at the item, for whoever stores it.
async fn come_back(tx: &mut Tx, named: &[Named], now_ms: i64) -> Result<ComeBack, StoreError> {
    // Of two dead letters of one sending the first is what it came back as.
    let mut first: BTreeMap<(i64, i64), &Named> = BTreeMap::new();
    for named in named {
        first.entry((named.message_id, named.batch_id)).or_insert(named);
    }
    if first.is_empty() {
        return Ok(ComeBack::default());
    }
    let items: Vec<ItemKey> = first.values().map(|named| named.item()).collect();
    let standing = super::outcomes::lock_items(tx, &items).await?;
    let returned_as = |key: &ItemKey| first.get(&(key.message_id, key.batch_id)).map(|named| named.new_id);
    let in_doubt: Vec<Noted> = standing
        .iter()
        .filter(|item| item.outcome.is_none())
        .filter_map(|item| {
            Some(Noted { batch_id: item.key.batch_id, message_id: item.key.message_id, returned_as: returned_as(&item.key)? })
        })
        .collect();
    if !in_doubt.is_empty() {
        in_tx!(tx, |connection| {
            sqlx::query(Db::NOTE_RETURNS).bind(rows(&in_doubt)).execute(&mut *connection).await?;
        })?;
    }
    let sent: HashSet<ItemKey> = standing.iter().filter(|item| item.outcome.is_some()).map(|item| item.key).collect();
    let resolutions: Vec<Resolution> = standing
        .iter()
        .filter_map(|item| {
            let from = item.outcome.filter(|outcome| outcome.may_become(Outcome::Returned))?;
            let returned_as = returned_as(&item.key);
            Some(Resolution { key: item.key, from, from_proof: item.proof, to: Outcome::Returned, proof: None, returned_as })
        })
        .collect();
    let resolved = resolve(tx, &resolutions, now_ms).await?;
    log_late(tx, &resolutions, now_ms).await?;
    Ok(ComeBack {
        known: named.iter().filter(|named| sent.contains(&named.item())).map(|named| named.new_id).collect(),
        hints: resolved.hints,
    })
}

/// What was taken for proven and came back all the same must not change in silence.
async fn log_late(tx: &mut Tx, resolutions: &[Resolution], now_ms: i64) -> Result<(), StoreError> {
    let mut late: BTreeMap<(i64, &'static str), usize> = BTreeMap::new();
    for resolution in resolutions.iter().filter(|resolution| resolution.from != Outcome::Pending) {
        *late.entry((resolution.key.batch_id, resolution.from.as_str())).or_default() += 1;
    }
    for ((batch_id, before), count) in late {
        replays::log(tx, batch_id, now_ms, VERIFICATION, &format!("{count} came back late: returned, no longer {before}")).await?;
    }
    Ok(())
}

/// What verification calls itself in a batch's log.
pub const VERIFICATION: &str = "verification";

/// Keeps the places that new messages came from, of DLQs that have something `open`, where it may be that something was sent there. Of messages that are
/// `known` to have come back there is nothing more to learn.
async fn keep_traces(tx: &mut Tx, new: &[&NewRow<'_>], known: &HashSet<i64>, open: &[i64], now_ms: i64) -> Result<(), StoreError> {
    let targets: Vec<Target> =
        in_tx!(tx, |connection| { sqlx::query_as::<Db, Target>(Db::OPEN_TARGETS).bind(rows(open)).fetch_all(&mut *connection).await? })?;
    let is_target = |dlq_id: i64, topic: &str| {
        targets.iter().any(|target| target.dlq_id == dlq_id && (target.target == topic || target.target_id.as_deref() == Some(topic)))
    };
    let mut traces = Vec::new();
    for row in new.iter().filter(|row| !known.contains(&row.id)) {
        let dlq_id = row.partition.dlq_id;
        let places = row.message.traces.places.iter().filter(|place| is_target(dlq_id, &place.topic));
        traces.extend(places.map(|place| Trace {
            dlq_id,
            topic: text(&place.topic),
            partition: place.partition,
            place_offset: place.offset,
            message_id: row.id,
            at_ms: now_ms,
        }));
    }
    if traces.is_empty() {
        return Ok(());
    }
    in_tx!(tx, |connection| {
        sqlx::query(Db::ADD_TRACES).bind(rows(&traces)).execute(&mut *connection).await?;
    })
}
