//! Taking in what intake read: rows, counter deltas and positions in one transaction.
//!
//! The position's row is locked first and compared with what intake expects, so no two instances ever write the same partition. Which of the
//! records are there already (a position that was set back, everything read again) is looked up under that lock,
//! not found out by conflicts: reading everything again stores nothing and is no slower.

use std::collections::{BTreeSet, HashMap};

use super::bulk::{Bulk as _, FIRST_STATE, NewRow};
use super::counters::{Delta, deltas_of_new};
use super::messages::{PartitionBatch, TakeIn};
use super::notify::Hint;
use super::positions::PartitionId;
use super::returns::recognise;
use super::sql_pieces::{Dialect as _, rows};
use super::{Store, StoreError, Tx};
use crate::domain::message::NewMessage;

/// What is stored of a partition's offsets, in `[$4, $5]`.
const STORED: &str = "SELECT record_offset, rewrite, body_hash FROM messages
     WHERE dlq_id = $1 AND incarnation = $2 AND partition = $3 AND record_offset BETWEEN $4 AND $5";

impl Store {
    /// Stores messages, bodies, counter deltas and moves the positions, all in one transaction. Groups that are
    /// new are made first. Identity is (dlq, incarnation, partition, offset): a row that exists already is kept and not counted again.
    /// Only when the bytes at that offset differ (the log was truncated and written again) is the record stored beside the old one.
    ///
    /// On SQLite the whole call is one transaction on the only writer: keep a call to some 2,000 messages (about 100 ms).
    pub async fn take_in(&self, batches: &[PartitionBatch], now_ms: i64) -> Result<TakeIn, StoreError> {
        let groups = self.group_ids(batches).await?;
        let moves: Vec<Move> = batches.iter().map(Move::of).collect();
        let moves = rows(&moves);
        let mut tx = self.begin().await?;
        let held =
            in_tx!(tx, |connection| { sqlx::query_as::<Db, Held>(Db::LOCK_POSITIONS).bind(&moves).fetch_all(&mut *connection).await? })?;
        let moved = moved(batches, &held);
        if !moved.is_empty() {
            return Ok(TakeIn::Moved(moved));
        }
        let new = not_stored(&mut tx, batches, &moves).await?;
        let stored = new.len() as u64;
        let mut changed = BTreeSet::new();
        if stored > 0 {
            let new = insert(&mut tx, new, &groups).await?;
            changed.extend(new.iter().flat_map(|row| [Hint::Dlq(row.partition.dlq_id), Hint::Group(row.group_id)]));
            changed.extend(recognise(&mut tx, &new, now_ms).await?);
        }
        in_tx!(tx, |connection| {
            sqlx::query(Db::MOVE_POSITIONS).bind(&moves).bind(now_ms).execute(&mut *connection).await?;
        })?;
        tx.commit().await?;
        if !changed.is_empty() {
            self.changed(&changed.into_iter().collect::<Vec<_>>());
        }
        Ok(TakeIn::Committed { stored })
    }
}

/// The messages that are not in the table yet, with the `rewrite` number that each gets.
async fn not_stored<'a>(
    tx: &mut Tx,
    batches: &'a [PartitionBatch],
    moves: &str,
) -> Result<Vec<(PartitionId, i32, &'a NewMessage)>, StoreError> {
    in_tx!(tx, |connection| {
        let newest = sqlx::query_as::<Db, Newest>(Db::NEWEST_OFFSETS).bind(moves).fetch_all(&mut *connection).await?;
        let newest: HashMap<PartitionId, i64> = newest.into_iter().filter_map(Newest::entry).collect();
        let mut new = Vec::new();
        for batch in batches {
            let mut stored = Stored::default();
            if let Some((first, last)) = overlap(batch, newest.get(&batch.id).copied()) {
                let id = batch.id;
                let query = sqlx::query_as::<Db, (i64, i32, Vec<u8>)>(STORED).bind(id.dlq_id).bind(id.incarnation).bind(id.partition);
                stored = Stored::from(query.bind(first).bind(last).fetch_all(&mut *connection).await?);
            }
            new.extend(batch.messages.iter().filter_map(|message| Some((batch.id, stored.place(message)?, message))));
        }
        new
    })
}

/// Puts new messages into the table and counts them.
async fn insert<'a>(
    tx: &mut Tx,
    new: Vec<(PartitionId, i32, &'a NewMessage)>,
    groups: &GroupIds<'_>,
) -> Result<Vec<NewRow<'a>>, StoreError> {
    let count = new.len() as i64;
    let ids = in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(Db::MESSAGE_IDS).bind(count).fetch_all(&mut *connection).await? })?;
    let new = with_ids(new, &ids, groups);
    in_tx!(tx, |connection| {
        Db::insert(&mut *connection, &new).await?;
        sqlx::query(Db::ADD_DELTAS).bind(rows(&deltas(&new))).execute(&mut *connection).await?;
    })?;
    Ok(new)
}

#[derive(serde::Serialize)]
struct Move {
    dlq_id: i64,
    incarnation: i32,
    partition: i32,
    next_offset: i64,
}

impl Move {
    fn of(batch: &PartitionBatch) -> Move {
        let PartitionId { dlq_id, incarnation, partition } = batch.id;
        Move { dlq_id, incarnation, partition, next_offset: batch.next_offset }
    }
}

#[derive(sqlx::FromRow)]
struct Held {
    dlq_id: i64,
    incarnation: i32,
    partition: i32,
    next_offset: i64,
    owner_epoch: i64,
}

#[derive(sqlx::FromRow)]
struct Newest {
    dlq_id: i64,
    incarnation: i32,
    partition: i32,
    record_offset: Option<i64>,
}

impl Newest {
    fn entry(self) -> Option<(PartitionId, i64)> {
        let id = PartitionId { dlq_id: self.dlq_id, incarnation: self.incarnation, partition: self.partition };
        self.record_offset.map(|offset| (id, offset))
    }
}

/// The batches whose position is not where, or not whose, intake believes.
fn moved(batches: &[PartitionBatch], held: &[Held]) -> Vec<PartitionId> {
    let held: HashMap<PartitionId, (i64, i64)> = held
        .iter()
        .map(|row| {
            let id = PartitionId { dlq_id: row.dlq_id, incarnation: row.incarnation, partition: row.partition };
            (id, (row.owner_epoch, row.next_offset))
        })
        .collect();
    let holds = |batch: &PartitionBatch| held.get(&batch.id) == Some(&(batch.owner_epoch, batch.expected_offset));
    batches.iter().filter(|batch| !holds(batch)).map(|batch| batch.id).collect()
}

/// The offsets of a batch that may be stored already. None: all of them lie past the newest stored one, each past the one before.
fn overlap(batch: &PartitionBatch, newest: Option<i64>) -> Option<(i64, i64)> {
    let offsets = || batch.messages.iter().map(|message| message.record.offset);
    let (first, last) = (offsets().min()?, offsets().max()?);
    let repeated = !offsets().is_sorted_by(|a, b| a < b);
    (repeated || newest.is_some_and(|newest| newest >= first)).then_some((first, last))
}

/// What is stored at the offsets of a batch, by offset: how often each was written, and the hashes of what.
#[derive(Default)]
struct Stored {
    at: HashMap<i64, Vec<(i32, Vec<u8>)>>,
    looked_up: bool,
}

impl From<Vec<(i64, i32, Vec<u8>)>> for Stored {
    fn from(rows: Vec<(i64, i32, Vec<u8>)>) -> Stored {
        let mut at: HashMap<i64, Vec<(i32, Vec<u8>)>> = HashMap::new();
        for (offset, rewrite, hash) in rows {
            at.entry(offset).or_default().push((rewrite, hash));
        }
        Stored { at, looked_up: true }
    }
}

impl Stored {
    /// The `rewrite` number the message gets, or None if it is there already.
    fn place(&mut self, message: &NewMessage) -> Option<i32> {
        if !self.looked_up {
            return Some(0);
        }
        let here = self.at.entry(message.record.offset).or_default();
        if here.iter().any(|(_, hash)| hash.as_slice() == message.body_hash) {
            return None;
        }
        let rewrite = here.iter().map(|(rewrite, _)| rewrite + 1).max().unwrap_or(0);
        here.push((rewrite, message.body_hash.to_vec()));
        Some(rewrite)
    }
}

/// Group ids by DLQ and fingerprint: of every message of the batches they were asked for.
pub(super) type GroupIds<'a> = HashMap<(i64, &'a str), i64>;

fn with_ids<'a>(new: Vec<(PartitionId, i32, &'a NewMessage)>, ids: &[i64], groups: &GroupIds<'_>) -> Vec<NewRow<'a>> {
    new.into_iter()
        .zip(ids)
        .map(|((partition, rewrite, message), &id)| {
            let group_id = groups[&(partition.dlq_id, message.group.fingerprint.as_str())];
            NewRow { id, partition, group_id, rewrite, message }
        })
        .collect()
}

fn deltas(new: &[NewRow<'_>]) -> Vec<Delta> {
    deltas_of_new(FIRST_STATE, new.iter().map(|row| (row.partition.dlq_id, row.group_id, row.message.dead_lettered_at_ms)))
}
