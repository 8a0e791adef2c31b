//! The store's contract: every public query, on SQLite and on PostgreSQL, by one body.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

use lazaret::domain::classify::FailureClass;
use lazaret::domain::message::{GroupIdentity, NewMessage};
use lazaret::domain::record::{Header, Record};
use lazaret::domain::returns::Traces;
use lazaret::store::Store;
use lazaret::store::messages::{MessageFilter, MessageRow, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;

mod access;
mod audit;
mod connect;
mod counters;
mod dlqs;
mod groups;
mod heat;
mod leases;
mod lists;
mod plans;
mod samples;
mod take_in;

/// 2026-11-30T00:00:00Z, a whole hour.
const NOW: i64 = 1_796_083_200_000;
const MINUTE: i64 = 60_000;

/// A message of `partition` and `offset`, with nothing remarkable about it.
fn message(partition: i32, offset: i64) -> NewMessage {
    let value = format!("value of {partition}/{offset}").into_bytes();
    NewMessage {
        body_hash: hash(&value),
        record: Record {
            topic: "orders.DLQ".into(),
            partition,
            offset,
            timestamp_ms: Some(NOW + offset),
            key: Some(format!("key-{offset}").into_bytes()),
            value: Some(value),
            headers: vec![Header { name: b"kafka_dlt-exception-fqcn".to_vec(), value: Some(b"java.lang.RuntimeException".to_vec()) }],
        },
        dialect: "spring_dlt".into(),
        class: FailureClass::Transient,
        class_reason: "built-in: java.net.SocketTimeoutException".into(),
        group: group("f1", FailureClass::Transient, "java.net.SocketTimeoutException", "read timed out after <n> ms"),
        exception_class: Some("java.net.SocketTimeoutException".into()),
        exception_message: Some("Read timed out after 30 ms".into()),
        origin: None,
        traces: Traces::default(),
        consumer_group: Some("wallet".into()),
        attempts: Some(3),
        lap: 1,
        key_masked: false,
        business_key: Some(format!("pay-{offset}")),
        tenant: None,
        record_at_ms: Some(NOW + offset),
        dead_lettered_at_ms: NOW + offset,
        timestamp_suspect: false,
        first_seen_at_ms: NOW + 5_000,
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

fn group(name: &str, class: FailureClass, exception: &str, text: &str) -> GroupIdentity {
    GroupIdentity {
        fingerprint: hash(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect(),
        consumer_group: Some("wallet".into()),
        class,
        exception_class: Some(exception.into()),
        normalised_text: text.into(),
        top_frame: Some("com.example.Wallet.debit".into()),
    }
}

/// A partition of a DLQ that takes in what it is given: its position and epoch as intake would keep them.
struct Feed {
    id: PartitionId,
    epoch: i64,
    next: i64,
}

impl Feed {
    /// Makes DLQ and position where they are missing, and claims the partition.
    async fn open(store: &Store, topic: &str, partition: i32) -> Feed {
        let (dlq, _) = store.ensure_dlq("main", topic, None, None, NOW).await.expect("a DLQ");
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition };
        store.ensure_position(id, 0, NOW).await.expect("a position");
        let position = store.claim_position(id, NOW).await.expect("a claim").expect("the position is there");
        Feed { id, epoch: position.owner_epoch, next: position.next_offset }
    }

    fn batch(&self, messages: Vec<NewMessage>) -> PartitionBatch {
        let next = messages.iter().map(|message| message.record.offset + 1).max().unwrap_or(0).max(self.next);
        PartitionBatch { id: self.id, owner_epoch: self.epoch, expected_offset: self.next, next_offset: next, messages }
    }

    /// Takes the messages in and moves on.
    async fn take_in(&mut self, store: &Store, messages: Vec<NewMessage>) -> u64 {
        let batch = self.batch(messages);
        let next = batch.next_offset;
        match store.take_in(&[batch], NOW).await.expect("a take-in") {
            TakeIn::Committed { stored } => {
                self.next = next;
                stored
            }
            TakeIn::Moved(moved) => panic!("moved: {moved:?}"),
        }
    }
}

/// Every message that the filter gives, newest first.
async fn all(store: &Store, filter: &MessageFilter) -> Vec<MessageRow> {
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = store.messages(filter, after, 500).await.expect("a page");
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return items;
        }
    }
}

/// A statement of the test's own, as a later issue's code will change states.
async fn change(store: &Store, sql: &'static str) {
    match store {
        Store::Postgres(database) => drop(sqlx::query(sql).execute(&database.pool).await.expect("the test's statement")),
        Store::Sqlite(database) => drop(sqlx::query(sql).execute(&database.writer).await.expect("the test's statement")),
    }
}
