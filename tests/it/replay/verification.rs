//! What became of what was sent: returns, proofs, and what proves nothing.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::domain::lifecycle::Move;
use lazaret::domain::message::{MessageState, NewMessage, quarantine};
use lazaret::domain::proof::Look;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::replay::{BatchState, ItemState, Plan, Progress};
use lazaret::domain::settings::{ClusterSettings, DlqSettings, TopicMatch};
use lazaret::domain::terms::ReplayTerms;
use lazaret::domain::verdict::IdempotencyVerdict;
use lazaret::kafka::inspect::Inspector;
use lazaret::kafka::scan::Scanner;
use lazaret::services::verify::{Verifier, VerifyError};
use lazaret::store::leases::HeldLease;
use lazaret::store::messages::{PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::store::replay_items::{ItemMove, move_items};
use lazaret::store::replays::{self, Batch, NewBatch, Scope};
use lazaret::store::transitions::{Cause, Change, move_messages};
use lazaret::store::{Store, outcomes, transitions};

use crate::support::consumer::{TestConsumer, reset_offset};
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::unique;
use crate::web::house::{House, all, text_of};
use crate::{on_both_stores, on_real_kafka};

/// 2026-11-30T00:00:00Z.
const NOW: i64 = 1_796_083_200_000;
const VERIFY_AFTER_S: u64 = 300;

/// A statement of the test's own.
macro_rules! execute {
    ($store:expr, $sql:expr $(, $bind:expr)*) => {
        match $store {
            Store::Postgres(database) => drop(sqlx::query($sql)$(.bind($bind))*.execute(&database.pool).await.expect("the test's statement")),
            Store::Sqlite(database) => drop(sqlx::query($sql)$(.bind($bind))*.execute(&database.writer).await.expect("the test's statement")),
        }
    };
}

/// One row of a query of the test's own.
macro_rules! row {
    ($store:expr, $sql:expr $(, $bind:expr)*) => {
        match $store {
            Store::Postgres(database) => sqlx::query_as($sql)$(.bind($bind))*.fetch_one(&database.pool).await.expect("the test's query"),
            Store::Sqlite(database) => sqlx::query_as($sql)$(.bind($bind))*.fetch_one(&database.readers).await.expect("the test's query"),
        }
    };
}

/// A DLQ of one partition with messages that can be sent by hand, and come back by hand.
struct Bench {
    store: Store,
    clock: Clock,
    settings: DlqSettings,
    terms: ReplayTerms,
    id: PartitionId,
    epoch: i64,
    next: i64,
    target: String,
    target_id: Option<String>,
    group: Option<String>,
}

/// How an item ended, as the database has it: outcome, proof, the message it came back as.
type Ended = (Option<String>, Option<String>, Option<i64>);

impl Bench {
    async fn new(store: &Store) -> Bench {
        Bench::on(store, &unique("orders.DLT"), None, "orders").await
    }

    async fn on(store: &Store, topic: &str, topic_id: Option<&str>, target: &str) -> Bench {
        let (dlq, _) = store.ensure_dlq("main", topic, topic_id, None, NOW - 1_000).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 0 };
        store.ensure_position(id, 0, NOW).await.unwrap();
        let epoch = store.claim_position(id, NOW).await.unwrap().unwrap().owner_epoch;
        Bench {
            store: store.clone(),
            clock: Clock::fake(NOW),
            settings: DlqSettings::for_topics("main", TopicMatch::Names(vec![topic.to_owned()])),
            terms: ReplayTerms { verify_after_s: VERIFY_AFTER_S, ..ReplayTerms::default() },
            id,
            epoch,
            next: 0,
            target: target.to_owned(),
            target_id: None,
            group: None,
        }
    }

    fn topic(&self) -> &str {
        match &self.settings.topics {
            TopicMatch::Names(names) => &names[0],
            TopicMatch::Pattern(_) => unreachable!("named above"),
        }
    }

    fn step(&self, seconds: u64) {
        self.clock.step(Duration::from_secs(seconds));
    }

    /// A dead letter with these headers, dead-lettered now.
    fn dead_letter(&self, headers: &[(&str, Vec<u8>)]) -> NewMessage {
        let headers = headers.iter().map(|(name, value)| Header { name: name.as_bytes().to_vec(), value: Some(value.clone()) });
        let record = Record {
            topic: self.topic().to_owned(),
            partition: 0,
            offset: self.next,
            timestamp_ms: Some(self.clock.now_ms()),
            key: Some(b"key".to_vec()),
            value: Some(format!("value {}", self.next).into_bytes()),
            headers: headers.collect(),
        };
        quarantine(record, &self.settings, &[], self.clock.now_ms())
    }

    /// Takes one dead letter in; its message's id.
    async fn arrives(&mut self, headers: &[(&str, Vec<u8>)]) -> i64 {
        let message = self.dead_letter(headers);
        self.takes_in(vec![message]).await[0]
    }

    async fn takes_in(&mut self, messages: Vec<NewMessage>) -> Vec<i64> {
        let first = self.next;
        let next_offset = first + messages.len() as i64;
        let batch = PartitionBatch { id: self.id, owner_epoch: self.epoch, expected_offset: first, next_offset, messages };
        let taken = self.store.take_in(&[batch], self.clock.now_ms()).await.unwrap();
        assert_eq!(taken, TakeIn::Committed { stored: (next_offset - first) as u64 });
        self.next = next_offset;
        let mut ids = Vec::new();
        for offset in first..next_offset {
            ids.push(self.store.message_at("main", self.topic(), 0, offset, None).await.unwrap().unwrap().id);
        }
        ids
    }

    /// A batch with these messages, executing.
    async fn batch(&self, messages: &[i64]) -> Batch {
        let uid = unique("uid");
        let plan = Plan {
            target: self.target.clone(),
            target_id: self.target_id.clone(),
            target_partitions: 1,
            group: self.group.clone(),
            transform: None,
            max_per_second: 50,
            canary: 0,
            stop_on_returned_pct: 5,
            waivers: Vec::new(),
        };
        let new = NewBatch {
            dlq_id: self.id.dlq_id,
            created_at_ms: self.clock.now_ms(),
            as_of_message_id: i64::MAX - 1,
            quorum: 1,
            emergency: false,
            auto_submit: false,
            form_id: uid.clone(),
            uid,
            proposer: "ana".into(),
            proposer_folded: "ana".into(),
            reason: "test".into(),
            why_now: None,
            incident: None,
            scope: Scope::MessageIds(messages.to_vec()),
            plan,
        };
        let mut tx = self.store.begin().await.unwrap();
        let id = replays::insert(&mut tx, &new).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        const START: &str = "UPDATE batches SET state = 'executing', started_at_ms = $2 WHERE id = $1";
        execute!(&self.store, START, id, self.clock.now_ms());
        for message in messages {
            const ADD: &str = "INSERT INTO replay_items (batch_id, message_id, place, group_id, stage, lap, live, state, body_hash)
                 SELECT $1, m.id, m.id, m.group_id, 0, m.lap, true, 'pending', m.body_hash FROM messages m WHERE m.id = $2";
            execute!(&self.store, ADD, id, *message);
        }
        self.store.batch(id).await.unwrap().unwrap()
    }

    /// Stores the intent to send a message, as the executor does.
    async fn intend(&self, batch: &Batch, message: i64) {
        let mut tx = self.store.begin().await.unwrap();
        let moves = [Move::TakenUp, Move::CheckBegun, Move::SchemaFits];
        let change = Change { message_id: message, from: MessageState::Quarantined, moves: &moves, reason: None, evidence: None };
        let cause = Cause { at_ms: self.clock.now_ms(), actor: "replay", batch_id: Some(batch.id) };
        assert_eq!(move_messages(&mut tx, &[change], &cause).await.unwrap(), [message]);
        let intent = ItemMove {
            target_partition: Some(0),
            lower_bound: Some(0),
            intended_at_ms: Some(self.clock.now_ms()),
            ..ItemMove::new(message, ItemState::Pending, ItemState::Intended)
        };
        assert_eq!(move_items(&mut tx, batch.id, &[intent]).await.unwrap(), 1);
        tx.commit().await.unwrap();
    }

    /// Stores that an intended message was sent to this offset.
    async fn sent(&self, batch: &Batch, message: i64, offset: i64) {
        let mut tx = self.store.begin().await.unwrap();
        let change =
            Change { message_id: message, from: MessageState::IdempotencyCheck, moves: &[Move::Sent], reason: None, evidence: None };
        let cause = Cause { at_ms: self.clock.now_ms(), actor: "replay", batch_id: Some(batch.id) };
        assert_eq!(move_messages(&mut tx, &[change], &cause).await.unwrap(), [message]);
        let sent = ItemMove {
            sent_offset: Some(offset),
            sent_at_ms: Some(self.clock.now_ms()),
            outcome: Some("pending"),
            ..ItemMove::new(message, ItemState::Intended, ItemState::Sent)
        };
        assert_eq!(move_items(&mut tx, batch.id, &[sent]).await.unwrap(), 1);
        replays::add_progress(&mut tx, batch.id, &Progress { sent: 1, ..Progress::default() }).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn sends(&self, batch: &Batch, message: i64, offset: i64) {
        self.intend(batch, message).await;
        self.sent(batch, message, offset).await;
    }

    /// One message, sent to `offset` of the target.
    async fn one_sent(&mut self, offset: i64) -> (Batch, i64) {
        let message = self.arrives(&came_from("orders", 0, 1)).await;
        let batch = self.batch(&[message]).await;
        self.sends(&batch, message, offset).await;
        (batch, message)
    }

    async fn executed(&self, batch: &Batch) {
        const DONE: &str = "UPDATE batches SET state = 'executed' WHERE id = $1";
        execute!(&self.store, DONE, batch.id);
    }

    async fn ended(&self, message: i64) -> Ended {
        row!(
            &self.store,
            "SELECT outcome, proof, returned_as FROM replay_items WHERE message_id = $1 ORDER BY batch_id DESC LIMIT 1",
            message
        )
    }

    async fn outcome(&self, message: i64) -> String {
        let row = self.store.message(message).await.unwrap().unwrap();
        let item = self.ended(message).await.0;
        assert_eq!(row.outcome, item, "message and item agree");
        item.unwrap_or_default()
    }

    /// (lap, the message it came back from).
    async fn lap(&self, message: i64) -> (i32, Option<i64>) {
        row!(&self.store, "SELECT lap, replay_of FROM messages WHERE id = $1", message)
    }

    async fn progress(&self, batch: &Batch) -> Progress {
        self.store.batch(batch.id).await.unwrap().unwrap().progress
    }

    /// What is counted of the DLQ: (pending, confirmed, returned, unproven). Counters agree with the rows, and those of the groups with those of the DLQ.
    async fn counts(&self) -> (i64, i64, i64, i64) {
        let dlq_id = self.id.dlq_id;
        assert_eq!(self.store.check_counters(dlq_id).await.unwrap(), []);
        let all = self.store.dlq_counts(Some(dlq_id)).await.unwrap()[&dlq_id].outcomes;
        (all.pending, all.confirmed, all.returned, all.unproven)
    }

    fn verifier_at(&self, bootstrap: &str) -> Verifier {
        let cluster = ClusterSettings {
            name: "main".into(),
            bootstrap_servers: bootstrap.into(),
            properties: BTreeMap::new(),
            oauth_token: None,
            discovery_interval_s: 1,
            sample_interval_s: 15,
            group_id: unique("lazaret"),
        };
        let clients = (Arc::new(Inspector::connect(&cluster).unwrap()), Arc::new(Scanner::connect(&cluster).unwrap()));
        let (dlqs, terms) = (Arc::from([self.settings.clone()]), Arc::from([self.terms.clone()]));
        Verifier::new(self.store.clone(), self.clock.clone(), "main", clients, dlqs, terms)
    }

    /// One that has no Kafka to ask, and needs none.
    fn verifier(&self) -> Verifier {
        self.verifier_at("127.0.0.1:1")
    }
}

/// A turn in which no ledger is asked.
async fn turn(verifier: &mut Verifier) {
    verifier.begin(None).await.unwrap();
    verifier.conclude(None).await.unwrap();
}

/// What Spring says of where a record came from.
fn came_from(topic: &str, partition: i32, offset: i64) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("kafka_dlt-original-topic", topic.as_bytes().to_vec()),
        ("kafka_dlt-original-partition", partition.to_be_bytes().to_vec()),
        ("kafka_dlt-original-offset", offset.to_be_bytes().to_vec()),
        ("kafka_dlt-exception-fqcn", b"java.lang.RuntimeException".to_vec()),
    ]
}

fn replay_id(batch: &Batch, message: i64) -> (&'static str, Vec<u8>) {
    ("lazaret-replay-id", format!("{}.{message}", batch.uid).into_bytes())
}

fn some(word: &str) -> Option<String> {
    Some(word.to_owned())
}

// --------------------------------------------------------------------------------------------------------------- what came back

on_both_stores! {
    async fn r6_a_message_that_comes_back_without_our_headers_is_known_by_where_it_was_sent(store: Store) {
        let mut bench = Bench::new(&store).await;
        let mut message = bench.arrives(&came_from("orders", 3, 7)).await;
        assert_eq!(bench.lap(message).await, (1, None));
        for lap in 2..=4 {
            bench.step(10);
            let batch = bench.batch(&[message]).await;
            bench.sends(&batch, message, 100 + i64::from(lap)).await;
            bench.step(1);
            let back = bench.arrives(&came_from("orders", 0, 100 + i64::from(lap))).await;
            assert_eq!(bench.lap(back).await, (lap, Some(message)), "the number of its laps survives");
            assert_eq!(bench.ended(message).await, (some("returned"), None, Some(back)));
            assert_eq!(bench.outcome(message).await, "returned");
            assert_eq!(bench.progress(&batch).await.returned, 1);
            message = back;
        }
        assert_eq!(bench.counts().await, (0, 0, 3, 0));
        let replays = store.replays_of_group(store.message(message).await.unwrap().unwrap().group_id, 2).await.unwrap();
        assert_eq!(replays.iter().map(|replay| (replay.sent, replay.confirmed, replay.returned)).collect::<Vec<_>>(), [(1, 0, 1); 2]);
        assert!(replays[0].id > replays[1].id);
    }

    async fn a_retry_topic_names_every_place_it_came_through(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (_, message) = bench.one_sent(55).await;
        let passes = [("orders", 0, 55), ("orders-retry-0", 2, 9), ("orders-retry-1", 1, 4)];
        let back = bench.arrives(&passes.map(|(topic, partition, offset)| came_from(topic, partition, offset)).concat()).await;
        assert_eq!((bench.outcome(message).await.as_str(), bench.lap(back).await), ("returned", (2, Some(message))));
    }

    async fn a_replay_id_tells_where_no_header_says_where_it_came_from(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        let back = bench.arrives(&[replay_id(&batch, message), ("lazaret-lap", b"1".to_vec())]).await;
        assert_eq!((bench.outcome(message).await.as_str(), bench.lap(back).await), ("returned", (2, Some(message))));
    }

    async fn what_was_not_sent_there_is_no_return(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        let mut other = Bench::new(&store).await;
        bench.step(1);
        other.step(1);
        let strangers = [
            came_from("orders", 0, 54),
            came_from("orders", 1, 55),
            came_from("orders.other", 0, 55),
            vec![("lazaret-replay-id", format!("{}.{}", batch.uid, message + 1).into_bytes())],
            vec![("lazaret-replay-id", format!("other.{message}").into_bytes())],
        ];
        for stranger in strangers {
            let id = bench.arrives(&stranger).await;
            assert_eq!(bench.lap(id).await, (1, None), "{stranger:?}");
        }
        // Another DLQ's, whatever it names: a return is a dead letter of the same DLQ.
        for headers in [came_from("orders", 0, 55), vec![replay_id(&batch, message)]] {
            let id = other.arrives(&headers).await;
            assert_eq!(other.lap(id).await, (1, None));
        }
        assert_eq!(bench.outcome(message).await, "pending");
    }

    async fn what_failed_before_it_was_sent_came_from_an_earlier_topic_of_that_name(store: Store) {
        let mut bench = Bench::new(&store).await;
        let old = bench.dead_letter(&came_from("orders", 0, 55));
        bench.step(3_600);
        let message = bench.arrives(&came_from("orders", 0, 1)).await;
        let batch = bench.batch(&[message]).await;
        bench.sends(&batch, message, 55).await;
        let old = NewMessage { record: Record { offset: bench.next, ..old.record.clone() }, ..old };
        let old = bench.takes_in(vec![old]).await[0];
        assert_eq!((bench.outcome(message).await.as_str(), bench.lap(old).await), ("pending", (1, None)));
    }

    async fn a_place_in_a_topic_that_was_made_again_is_another_place(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        bench.step(60);
        let mut tx = store.begin().await.unwrap();
        outcomes::mark_replaced(&mut tx, batch.id, bench.clock.now_ms()).await.unwrap();
        tx.commit().await.unwrap();
        bench.step(1);
        let stranger = bench.arrives(&came_from("orders", 0, 55)).await;
        assert_eq!((bench.outcome(message).await.as_str(), bench.lap(stranger).await), ("pending", (1, None)));
        // The replay id is ours whatever became of the topic.
        let back = bench.arrives(&[replay_id(&batch, message)]).await;
        assert_eq!((bench.outcome(message).await.as_str(), bench.lap(back).await), ("returned", (2, Some(message))));
    }

    async fn two_dead_letters_of_one_sending_are_one_return(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        let both = [0, 1].map(|n| {
            let message = bench.dead_letter(&came_from("orders", 0, 55));
            NewMessage { record: Record { offset: bench.next + n, ..message.record.clone() }, ..message }
        });
        let ids = bench.takes_in(both.to_vec()).await;
        let third = bench.arrives(&came_from("orders", 0, 55)).await;
        assert_eq!(bench.ended(message).await, (some("returned"), None, Some(ids[0])));
        for id in [ids[0], ids[1], third] {
            assert_eq!(bench.lap(id).await, (2, Some(message)));
        }
        assert_eq!((bench.progress(&batch).await.returned, bench.counts().await), (1, (0, 0, 1, 0)));
    }

    async fn r17_a_late_return_corrects_what_was_confirmed_or_given_up(store: Store) {
        let mut bench = Bench::new(&store).await;
        let messages = [bench.arrives(&came_from("orders", 0, 1)).await, bench.arrives(&came_from("orders", 0, 2)).await, bench.arrives(&came_from("orders", 0, 3)).await];
        let batch = bench.batch(&messages).await;
        for (offset, message) in (60..).zip(messages) {
            bench.sends(&batch, message, offset).await;
        }
        bench.executed(&batch).await;
        let mut verifier = bench.verifier();
        bench.terms.idempotency = None;
        let mut tx = store.begin().await.unwrap();
        use lazaret::domain::lifecycle::{Outcome, Proof};
        outcomes::settle(&mut tx, batch.id, &messages[..1], Outcome::Confirmed, Some(Proof::Offset), NOW).await.unwrap();
        outcomes::settle(&mut tx, batch.id, &messages[1..2], Outcome::Confirmed, Some(Proof::Ledger), NOW).await.unwrap();
        outcomes::settle(&mut tx, batch.id, &messages[2..], Outcome::Unproven, None, NOW).await.unwrap();
        tx.commit().await.unwrap();
        turn(&mut verifier).await;
        assert_eq!(store.batch(batch.id).await.unwrap().unwrap().state, BatchState::Verified);
        let progress = bench.progress(&batch).await;
        assert_eq!((progress.confirmed_offset, progress.confirmed_ledger, progress.unproven, progress.pending()), (1, 1, 1, 0));
        assert_eq!(bench.counts().await, (0, 2, 0, 1));

        // An hour in a retry topic.
        bench.step(3_600);
        for offset in 60..63 {
            bench.arrives(&came_from("orders", 0, offset)).await;
        }
        let progress = bench.progress(&batch).await;
        assert_eq!((progress.confirmed_offset, progress.confirmed_ledger, progress.unproven, progress.returned), (0, 0, 0, 3));
        assert_eq!(bench.counts().await, (0, 0, 3, 0));
        let log: Vec<String> = store.batch_log(batch.id, 10).await.unwrap().into_iter().map(|line| line.entry).collect();
        assert!(log.iter().any(|line| line.contains("came back late") && line.contains("no longer confirmed")), "{log:?}");
    }

    async fn a_return_that_is_taken_in_before_the_sending_is_stored_is_not_lost(store: Store) {
        let mut bench = Bench::new(&store).await;
        let mut messages = Vec::new();
        for offset in 0..3 {
            messages.push(bench.arrives(&came_from("orders", 0, offset)).await);
        }
        let batch = bench.batch(&messages).await;
        for message in &messages {
            bench.intend(&batch, *message).await;
        }
        // The broker has the records, the consumer failed on two of them, and their dead letters are here before the executor could store anything.
        let by_id = bench.arrives(&[replay_id(&batch, messages[0])]).await;
        let by_place = bench.arrives(&came_from("orders", 0, 81)).await;
        for (offset, message) in (80..).zip(&messages) {
            bench.sent(&batch, *message, offset).await;
        }
        bench.executed(&batch).await;
        let mut verifier = bench.verifier();
        turn(&mut verifier).await;
        assert_eq!(bench.ended(messages[0]).await, (some("returned"), None, Some(by_id)));
        assert_eq!(bench.ended(messages[1]).await, (some("returned"), None, Some(by_place)));
        assert_eq!(bench.outcome(messages[2]).await, "pending");
        assert_eq!((bench.lap(by_id).await, bench.lap(by_place).await), ((2, Some(messages[0])), (2, Some(messages[1]))));
        assert_eq!((bench.progress(&batch).await.returned, bench.counts().await), (2, (1, 0, 2, 0)));

        // Once nothing is open any more, nothing is kept of where dead letters came from.
        bench.step(2 * VERIFY_AFTER_S + 1);
        turn(&mut verifier).await;
        assert_eq!(bench.outcome(messages[2]).await, "unproven");
        bench.step(700);
        turn(&mut verifier).await;
        let traces: (i64,) = row!(&store, "SELECT COUNT(*) FROM return_traces");
        assert_eq!(traces, (0,));
    }

    async fn reading_everything_again_changes_nothing(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        let back = bench.arrives(&came_from("orders", 0, 55)).await;
        let again: Vec<NewMessage> = (0..2).map(|offset| {
            let read = bench.dead_letter(&came_from("orders", 0, if offset == 0 { 1 } else { 55 }));
            let value = Some(format!("value {offset}").into_bytes());
            quarantine(Record { offset, value, ..read.record }, &bench.settings, &[], bench.clock.now_ms())
        }).collect();
        const BACK: &str = "UPDATE positions SET next_offset = 0 WHERE dlq_id = $1";
        execute!(&store, BACK, bench.id.dlq_id);
        let batch_again = PartitionBatch { id: bench.id, owner_epoch: bench.epoch, expected_offset: 0, next_offset: 2, messages: again };
        assert_eq!(store.take_in(&[batch_again], bench.clock.now_ms()).await.unwrap(), TakeIn::Committed { stored: 0 });
        assert_eq!(bench.ended(message).await, (some("returned"), None, Some(back)));
        assert_eq!((bench.progress(&batch).await.returned, bench.counts().await), (1, (0, 0, 1, 0)));
    }
}

// ------------------------------------------------------------------------------------------------- ledger, time, and the batch's end

/// Answers every question so.
async fn turn_with_ledger(verifier: &mut Verifier, says: impl Fn(i64) -> IdempotencyVerdict) -> usize {
    verifier.begin(None).await.unwrap();
    let mut asked = 0;
    while let Some(question) = verifier.next_question().await.unwrap() {
        asked += question.messages.len();
        let verdicts: Vec<_> = question.messages.iter().map(|message| (message.message_id, says(message.message_id))).collect();
        verifier.answer(None, &question, &verdicts).await.unwrap();
    }
    verifier.conclude(None).await.unwrap();
    asked
}

/// Every message there is was sent by the batch `$1` at `$2`, to the offset that it has in the DLQ.
const ALL_SENT: &str = "INSERT INTO replay_items (batch_id, message_id, place, group_id, stage, lap, live, state, body_hash, intended_at_ms, sent_at_ms, sent_offset,
        target_partition, outcome)
     SELECT $1, m.id, m.id, m.group_id, 0, m.lap, false, 'sent', m.body_hash, $2, $2, m.record_offset, 0, 'pending' FROM messages m";

fn with_ledger(bench: &mut Bench) {
    use lazaret::domain::template::KeyTemplate;
    use lazaret::domain::terms::Idempotency;
    bench.terms.idempotency = Some(Idempotency { ledger: "wallet".into(), key: KeyTemplate::parse("{key}").unwrap() });
}

on_both_stores! {
    async fn what_the_ledger_calls_applied_is_confirmed_and_the_batch_verified(store: Store) {
        let mut bench = Bench::new(&store).await;
        with_ledger(&mut bench);
        let mut messages = Vec::new();
        for offset in 0..3 {
            messages.push(bench.arrives(&came_from("orders", 0, offset)).await);
        }
        let batch = bench.batch(&messages).await;
        for (offset, message) in (10..).zip(&messages) {
            bench.sends(&batch, *message, offset).await;
        }
        let mut verifier = bench.verifier();
        let first = messages[0];
        let says = |message| if message == first { IdempotencyVerdict::Applied } else { IdempotencyVerdict::New };
        assert_eq!(turn_with_ledger(&mut verifier, says).await, 3);
        assert_eq!(bench.ended(first).await, (some("confirmed"), some("ledger"), None));
        assert_eq!((bench.outcome(messages[1]).await, bench.outcome(messages[2]).await), ("pending".into(), "pending".into()));
        bench.executed(&batch).await;
        for verdict in [IdempotencyVerdict::CouldNotCheck, IdempotencyVerdict::InProgress, IdempotencyVerdict::Failed, IdempotencyVerdict::Unprovable] {
            assert_eq!(turn_with_ledger(&mut verifier, |_| verdict).await, 2, "what is confirmed is not asked again");
            assert_eq!(bench.progress(&batch).await.confirmed_ledger, 1, "{verdict:?} confirms nothing");
        }
        turn_with_ledger(&mut verifier, |_| IdempotencyVerdict::Applied).await;
        let batch = store.batch(batch.id).await.unwrap().unwrap();
        assert_eq!((batch.state, batch.verified_at_ms, batch.progress.confirmed_ledger), (BatchState::Verified, Some(bench.clock.now_ms()), 3));
        assert_eq!(bench.counts().await, (0, 3, 0, 0));
    }

    async fn what_came_back_before_it_was_stored_as_sent_is_not_confirmed_by_its_ledger(store: Store) {
        let mut bench = Bench::new(&store).await;
        with_ledger(&mut bench);
        let messages = [bench.arrives(&came_from("orders", 0, 1)).await, bench.arrives(&came_from("orders", 0, 2)).await];
        let batch = bench.batch(&messages).await;
        for message in messages {
            bench.intend(&batch, message).await;
        }
        let mut verifier = bench.verifier();
        verifier.begin(None).await.unwrap();
        // Both were applied, and their consumer failed after that; all of it quicker than the executor could store that it had sent them.
        let by_id = bench.arrives(&[replay_id(&batch, messages[0])]).await;
        let by_place = bench.arrives(&came_from("orders", 0, 81)).await;
        bench.sent(&batch, messages[0], 80).await;
        bench.sent(&batch, messages[1], 81).await;
        let question = verifier.next_question().await.unwrap().unwrap();
        let verdicts = messages.map(|message| (message, IdempotencyVerdict::Applied));
        verifier.answer(None, &question, &verdicts).await.unwrap();
        verifier.conclude(None).await.unwrap();
        assert_eq!(bench.ended(messages[0]).await, (some("returned"), None, Some(by_id)));
        assert_eq!(bench.ended(messages[1]).await, (some("returned"), None, Some(by_place)));
        assert_eq!((bench.progress(&batch).await.returned, bench.counts().await), (2, (0, 0, 2, 0)));
    }

    async fn large_messages_are_asked_about_a_few_at_a_time(store: Store) {
        let mut bench = Bench::new(&store).await;
        with_ledger(&mut bench);
        let arrived: Vec<NewMessage> = (0..50).map(|n| {
            let message = bench.dead_letter(&[]);
            let record = Record { offset: n, value: Some(vec![b'x'; 1_000_000]), ..message.record.clone() };
            quarantine(record, &bench.settings, &[], bench.clock.now_ms())
        }).collect();
        let messages = bench.takes_in(arrived).await;
        let batch = bench.batch(&[]).await;
        execute!(&store, ALL_SENT, batch.id, bench.clock.now_ms());
        let mut verifier = bench.verifier();
        verifier.begin(None).await.unwrap();
        let mut asked = Vec::new();
        while let Some(question) = verifier.next_question().await.unwrap() {
            asked.push(question.messages.iter().map(|message| message.message_id).collect::<Vec<_>>());
        }
        assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [33, 17], "of 1 MB 33 fit into 32 MiB");
        assert_eq!(asked.concat(), messages);
    }

    async fn a_large_batch_is_asked_about_in_turns_and_every_message_has_its_own(store: Store) {
        let mut bench = Bench::new(&store).await;
        with_ledger(&mut bench);
        let arrived: Vec<NewMessage> = (0..2_100).map(|n| {
            let message = bench.dead_letter(&[]);
            NewMessage { record: Record { offset: n, ..message.record.clone() }, ..message }
        }).collect();
        let messages = bench.takes_in(arrived).await;
        let batch = bench.batch(&[]).await;
        execute!(&store, ALL_SENT, batch.id, bench.clock.now_ms());
        let mut verifier = bench.verifier();
        let mut seen = BTreeSet::new();
        let mut asked = Vec::new();
        for _ in 0..3 {
            verifier.begin(None).await.unwrap();
            let mut this_turn = 0;
            while let Some(question) = verifier.next_question().await.unwrap() {
                assert!(question.messages.len() <= 500);
                this_turn += question.messages.len();
                seen.extend(question.messages.iter().map(|message| message.message_id));
            }
            asked.push(this_turn);
        }
        assert_eq!(seen.len(), messages.len());
        assert_eq!(asked, [2_000, 100, 2_000], "four look-ups a turn, then around again");
    }

    async fn r18_without_a_group_or_a_ledger_nothing_is_confirmed_and_nothing_hangs(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        bench.executed(&batch).await;
        let mut verifier = bench.verifier();
        bench.step(2 * VERIFY_AFTER_S - 1);
        assert_eq!(turn_with_ledger(&mut verifier, |_| IdempotencyVerdict::Applied).await, 0, "there is no ledger to ask");
        assert_eq!(bench.outcome(message).await, "pending");
        bench.step(1);
        turn(&mut verifier).await;
        assert_eq!(bench.ended(message).await, (some("unproven"), None, None));
        assert_eq!(store.batch(batch.id).await.unwrap().unwrap().state, BatchState::Verified);
        assert_eq!(bench.counts().await, (0, 0, 0, 1));
    }

    async fn a_stopped_batch_is_verified_too_and_not_before_what_is_in_doubt_is_known(store: Store) {
        let mut bench = Bench::new(&store).await;
        let messages = [bench.arrives(&came_from("orders", 0, 1)).await, bench.arrives(&came_from("orders", 0, 2)).await];
        let batch = bench.batch(&messages).await;
        bench.sends(&batch, messages[0], 55).await;
        bench.intend(&batch, messages[1]).await;
        const STOP: &str = "UPDATE batches SET state = 'cancelled' WHERE id = $1";
        execute!(&store, STOP, batch.id);
        let mut verifier = bench.verifier();
        bench.step(2 * VERIFY_AFTER_S);
        turn(&mut verifier).await;
        assert_eq!(bench.outcome(messages[0]).await, "unproven");
        assert_eq!(store.batch(batch.id).await.unwrap().unwrap().verified_at_ms, None);
        bench.sent(&batch, messages[1], 56).await;
        turn(&mut verifier).await;
        bench.arrives(&came_from("orders", 0, 56)).await;
        turn(&mut verifier).await;
        let batch = store.batch(batch.id).await.unwrap().unwrap();
        assert_eq!((batch.state, batch.verified_at_ms), (BatchState::Cancelled, Some(bench.clock.now_ms())));
        assert_eq!(bench.counts().await, (0, 0, 1, 1));
    }

    async fn nothing_is_written_under_a_lease_that_is_anothers(store: Store) {
        let mut bench = Bench::new(&store).await;
        let (batch, message) = bench.one_sent(55).await;
        bench.executed(&batch).await;
        bench.step(2 * VERIFY_AFTER_S);
        let lost = HeldLease { name: "verify/main".into(), epoch: 1 };
        let row = store.take_lease(&lost.name, "ours", None).await.unwrap();
        store.take_lease(&lost.name, "theirs", row.as_ref()).await.unwrap().unwrap();
        let mut verifier = bench.verifier();
        let began = verifier.begin(Some(&lost)).await;
        assert!(matches!(began, Err(VerifyError::LeaseLost)), "{began:?}");
        assert!(matches!(verifier.conclude(Some(&lost)).await, Err(VerifyError::LeaseLost)));
        assert_eq!(bench.outcome(message).await, "pending");
    }
}

// ------------------------------------------------------------------------------------------------------------------ the order of locks

/// Whether something is still under way after a while in which it would have ended.
async fn waits<T>(task: &tokio::task::JoinHandle<T>) -> bool {
    tokio::time::sleep(Duration::from_millis(500)).await;
    !task.is_finished()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn what_a_group_passed_is_noted_under_the_locks_of_the_messages() {
    let store = crate::support::postgres().await;
    let mut bench = Bench::new(&store).await;
    let (batch, message) = bench.one_sent(55).await;
    let mut other = store.begin().await.unwrap();
    transitions::lock(&mut other, &[message]).await.unwrap();
    #[allow(clippy::disallowed_methods, reason = "its result is asked for")]
    let passing = tokio::spawn({
        let store = store.clone();
        async move {
            let look = Look { committed: Some(60), members: BTreeSet::from(["a".to_owned()]), passed_from: Some(50) };
            let mut tx = store.begin().await.unwrap();
            let passed = outcomes::mark_passed(&mut tx, batch.id, &BTreeMap::from([(0, look)]), NOW, 100).await.unwrap();
            tx.commit().await.unwrap();
            passed
        }
    });
    assert!(waits(&passing).await, "a take-in that locked the message first may need the item next");
    other.commit().await.unwrap();
    assert_eq!(passing.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real PostgreSQL: run tests/run"]
async fn what_came_back_is_locked_before_the_batch_that_sent_it() {
    let store = crate::support::postgres().await;
    let mut bench = Bench::new(&store).await;
    let message = bench.arrives(&came_from("orders", 0, 1)).await;
    let batch = bench.batch(&[message]).await;
    bench.intend(&batch, message).await;
    let back = bench.arrives(&came_from("orders", 0, 55)).await;
    bench.sent(&batch, message, 55).await;
    // Somebody has what came back, and then wants the batch, as everybody does who moves messages of it.
    let mut other = store.begin().await.unwrap();
    transitions::lock(&mut other, &[back]).await.unwrap();
    #[allow(clippy::disallowed_methods, reason = "its result is asked for")]
    let joining = tokio::spawn({
        let (store, batch) = (store.clone(), batch.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            let joined = outcomes::recover_returns(&mut tx, &batch, NOW).await;
            tx.commit().await.unwrap();
            joined
        }
    });
    assert!(waits(&joining).await);
    replays::locked(&mut other, batch.id).await.expect("no deadlock");
    other.commit().await.unwrap();
    assert_eq!(joining.await.unwrap().expect("no deadlock").items, 1);
    assert_eq!((bench.outcome(message).await.as_str(), bench.lap(back).await), ("returned", (2, Some(message))));
}

// -------------------------------------------------------------------------------------------------------------------- what is shown

on_both_stores! {
    async fn the_success_rate_stands_with_what_it_rests_on_wherever_it_is_shown(store: Store) {
        use lazaret::domain::lifecycle::{Outcome, Proof};
        let mut bench = Bench::new(&store).await;
        let mut messages = Vec::new();
        for offset in 0..4 {
            messages.push(bench.arrives(&came_from("orders", 0, offset)).await);
        }
        let house = House::new(store.clone()).await;
        let group = store.message(messages[0]).await.unwrap().unwrap().group_id;
        let dlq_page = format!("/dlqs/main/{}", bench.topic());
        assert!(text_of(&house.page("/").await, "#dlqs tbody tr").contains("no replays"));
        assert!(text_of(&house.page(&dlq_page).await, ".stats").contains("no replays"));
        assert!(!text_of(&house.page(&format!("/groups/{group}")).await, "main").contains("Earlier replays"));

        let batch = bench.batch(&messages).await;
        for (offset, message) in (10..).zip(&messages) {
            bench.sends(&batch, *message, offset).await;
        }
        let mut tx = store.begin().await.unwrap();
        outcomes::settle(&mut tx, batch.id, &messages[..1], Outcome::Confirmed, Some(Proof::Ledger), NOW).await.unwrap();
        outcomes::settle(&mut tx, batch.id, &messages[1..2], Outcome::Unproven, None, NOW).await.unwrap();
        tx.commit().await.unwrap();
        bench.arrives(&came_from("orders", 0, 12)).await;

        let list = house.json("/api/v1/dlqs").await;
        let success = &list["items"][0]["replay_success"];
        assert_eq!((&success["rate"], &success["n"], &success["pending"], &success["unproven"]), (&0.5.into(), &2.into(), &1.into(), &1.into()));
        assert!(success["low"].as_f64().unwrap() < 0.2 && success["high"].as_f64().unwrap() > 0.8, "{success}");
        let row = text_of(&house.page("/").await, "#dlqs tbody tr");
        assert!(row.contains("50% (n = 2)") && row.contains("1 waiting for proof · 1 not confirmed"), "{row}");
        let figures = text_of(&house.page(&dlq_page).await, ".stats");
        assert!(figures.contains("50%") && figures.contains("n = 2 · 95% interval"), "{figures}");
        let page = house.page(&format!("/groups/{group}")).await;
        let replays = text_of(&page, "#replays tbody tr");
        assert!(replays.starts_with(&batch.id.to_string()) && replays.contains("by ana") && replays.contains("sending"), "{replays}");
        assert_eq!(all(&page, "#replays tbody td.num"), ["4", "1", "1", "1"], "sent, confirmed, returned, not confirmed");
        assert!(text_of(&page, ".stats").contains("50%"));
    }
}

// --------------------------------------------------------------------------------------------------- consumer groups on a real broker

/// A bench whose DLQ and target exist, with one record in the target that its group is about to read.
struct Line {
    bench: Bench,
    topics: Topics,
    group: String,
    verifier: Verifier,
    batch: Batch,
    message: i64,
    /// Where the message was sent to.
    offset: i64,
}

impl Line {
    /// One earlier record is in the target, and the message that was sent after it.
    async fn new(store: &Store, change: impl FnOnce(&mut Bench)) -> Line {
        let topics = Topics::real();
        let (dlq, target, group) = (unique("verify.DLT"), unique("verify"), unique("verify-group"));
        topics.create_many(&[&dlq, &target], 1, &[]).await;
        let ids = ids(topics.bootstrap(), &[&dlq, &target]).await;
        let mut bench = Bench::on(store, &dlq, ids[&dlq].as_deref(), &target).await;
        bench.target_id = ids[&target].clone();
        bench.group = Some(group.clone());
        change(&mut bench);
        let producer = TestProducer::at(topics.bootstrap());
        producer.send_all(&dlq, [NewRecord::value("dead")]);
        producer.send_all(&target, [NewRecord::value("earlier")]);
        let message = bench.arrives(&came_from(&target, 0, 0)).await;
        let batch = bench.batch(&[message]).await;
        let verifier = bench.verifier_at(topics.bootstrap());
        Line { bench, topics, group, verifier, batch, message, offset: 1 }
    }

    /// The executor sends it.
    async fn send(&mut self) {
        TestProducer::at(self.topics.bootstrap()).send_all(&self.bench.target, [NewRecord::value("replayed")]);
        self.bench.sends(&self.batch, self.message, self.offset).await;
        self.bench.executed(&self.batch).await;
    }

    async fn join(&self) -> TestConsumer {
        TestConsumer::join(self.topics.bootstrap(), &self.group, &self.bench.target).await
    }

    async fn turn(&mut self) {
        turn(&mut self.verifier).await;
    }

    fn commit(&self, consumer: &TestConsumer, next: i64) {
        consumer.commit(&self.bench.target, 0, next);
    }

    async fn outcome(&self) -> String {
        self.bench.outcome(self.message).await
    }

    async fn end(self) {
        self.topics.delete(&[self.bench.topic(), &self.bench.target]).await;
    }
}

async fn ids(bootstrap: &str, topics: &[&str]) -> BTreeMap<String, Option<String>> {
    let cluster = ClusterSettings {
        name: "main".into(),
        bootstrap_servers: bootstrap.to_owned(),
        properties: BTreeMap::new(),
        oauth_token: None,
        discovery_interval_s: 1,
        sample_interval_s: 15,
        group_id: unique("lazaret"),
    };
    let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let ask = move || Inspector::connect(&cluster).unwrap().topic_ids(&topics, Duration::from_secs(30)).unwrap();
    tokio::task::spawn_blocking(ask).await.unwrap()
}

on_real_kafka! {
    async fn what_a_group_passes_is_confirmed_once_the_dlq_is_read_past_its_end(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        line.turn().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S - 1);
        line.turn().await;
        assert_eq!(line.outcome().await, "pending", "it may still come back");
        line.bench.step(1);
        line.turn().await;
        assert_eq!(line.bench.ended(line.message).await, (some("confirmed"), some("offset"), None));
        assert_eq!(store.batch(line.batch.id).await.unwrap().unwrap().state, BatchState::Verified);
        let progress = line.bench.progress(&line.batch).await;
        assert_eq!((progress.confirmed_offset, progress.pending(), line.bench.counts().await), (1, 0, (0, 1, 0, 0)));
        line.end().await;
    }

    async fn a_consumer_that_was_quicker_than_we_could_store_it_is_proof_all_the_same(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        // It is in the target, read and committed, and looked at, while the executor has not stored that it was sent.
        TestProducer::at(line.topics.bootstrap()).send_all(&line.bench.target, [NewRecord::value("replayed")]);
        line.bench.intend(&line.batch, line.message).await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        line.bench.sent(&line.batch, line.message, line.offset).await;
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.bench.ended(line.message).await, (some("confirmed"), some("offset"), None));
        line.end().await;
    }

    async fn r15_while_intake_stands_still_nothing_is_confirmed(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        // A dead letter comes, and intake does not read it.
        TestProducer::at(line.topics.bootstrap()).send_all(line.bench.topic(), [NewRecord::value("of something else")]);
        line.bench.step(VERIFY_AFTER_S + 10);
        for _ in 0..3 {
            line.turn().await;
            assert_eq!(line.outcome().await, "pending");
            line.bench.step(10);
        }
        line.bench.arrives(&came_from("elsewhere", 0, 0)).await;
        line.turn().await;
        assert_eq!(line.outcome().await, "confirmed");
        line.end().await;
    }

    async fn r15_intake_that_never_reads_on_leaves_it_unproven(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        TestProducer::at(line.topics.bootstrap()).send_all(line.bench.topic(), [NewRecord::value("of something else")]);
        line.bench.step(2 * VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "unproven");
        line.end().await;
    }

    async fn r16_offsets_that_are_reset_to_the_end_confirm_nothing(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        line.turn().await;
        drop(consumer);
        reset_offset(line.topics.bootstrap(), &line.group, &line.bench.target, 0, 2);
        line.turn().await;
        let _back = line.join().await;
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "pending");
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "unproven");
        line.end().await;
    }

    async fn a_first_commit_past_it_proves_nothing(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.turn().await;
        line.send().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "pending");
        line.end().await;
    }

    async fn where_a_return_would_not_be_recognised_its_absence_proves_nothing(store: Store) {
        let mut line = Line::new(&store, |bench| bench.terms.returns_traceable = false).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        line.bench.step(2 * VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "unproven");
        line.end().await;
    }

    async fn a_return_behind_an_open_transaction_is_waited_for(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        consumer.read_past(line.offset).await;
        line.commit(&consumer, 2);
        line.turn().await;
        // Somebody's transaction is open in the DLQ; behind it lies the return, which no consumer is shown yet.
        let somebody = TestProducer::transactional(line.topics.bootstrap(), &unique("open"));
        somebody.begin();
        somebody.send_all(line.bench.topic(), [NewRecord::value("not committed")]);
        TestProducer::at(line.topics.bootstrap()).send_all(line.bench.topic(), [NewRecord::value("the return")]);
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "pending", "intake has read all that it is shown");
        somebody.abort();
        // What was aborted is stepped over.
        line.bench.next = 2;
        const OVER: &str = "UPDATE positions SET next_offset = 2 WHERE dlq_id = $1";
        execute!(&store, OVER, line.bench.id.dlq_id);
        line.bench.arrives(&came_from(&line.bench.target.clone(), 0, line.offset)).await;
        line.turn().await;
        assert_eq!(line.outcome().await, "returned");
        line.end().await;
    }

    async fn a_target_that_was_made_again_confirms_nothing(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.send().await;
        line.turn().await;
        drop(consumer);
        let target = line.bench.target.clone();
        line.topics.delete(&[&target]).await;
        line.topics.create(&target, 1, &[]).await;
        TestProducer::at(line.topics.bootstrap()).send_all(&target, (0..3).map(|_| NewRecord::value("new")));
        let consumer = line.join().await;
        line.commit(&consumer, 1);
        line.bench.step(60);
        line.turn().await;
        consumer.read_past(2).await;
        line.commit(&consumer, 3);
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.outcome().await, "pending");
        // And a dead letter from that offset of the new topic is none of ours.
        let stranger = line.bench.arrives(&came_from(&target, 0, line.offset)).await;
        assert_eq!((line.outcome().await.as_str(), line.bench.lap(stranger).await), ("pending", (1, None)));
        line.end().await;
    }

    /// A member that stays in the group while its topic is made again, and there goes on somewhere in the middle (`auto.offset.reset`).
    async fn what_a_member_went_over_in_an_earlier_topic_of_that_name_proves_nothing(store: Store) {
        let mut line = Line::new(&store, |_| ()).await;
        let (bootstrap, target) = (line.topics.bootstrap().to_owned(), line.bench.target.clone());
        let consumer = TestConsumer::join_with(&bootstrap, &line.group, &target, &[("topic.metadata.refresh.interval.ms", "500")]).await;
        line.commit(&consumer, 1);
        line.turn().await;
        line.topics.delete(&[&target]).await;
        line.topics.create(&target, 1, &[]).await;
        TestProducer::at(&bootstrap).send_all(&target, (0..20).map(|_| NewRecord::value("new")));
        line.bench.target_id = ids(&bootstrap, &[&target]).await[&target].clone();
        assert_ne!(line.bench.target_id, line.batch.plan.target_id);
        let message = line.bench.arrives(&came_from(&target, 0, 1)).await;
        let batch = line.bench.batch(&[message]).await;
        line.bench.sends(&batch, message, 10).await;
        line.bench.executed(&batch).await;
        consumer.read_past(19).await;
        line.commit(&consumer, 15);
        line.turn().await;
        line.bench.step(VERIFY_AFTER_S);
        line.turn().await;
        assert_eq!(line.bench.outcome(message).await, "pending", "nobody saw it come there");
        line.end().await;
    }
}
