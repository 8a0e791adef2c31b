//! Replays as they stand in the tables at each step, put there without Kafka: what pages show of them is looked at, not how they came about.

use lazaret::domain::access::look_of_name;
use lazaret::domain::digest::{Agreement, Guards, ItemsHash, shown};
use lazaret::domain::lifecycle::{Move, Outcome, Proof};
use lazaret::domain::message::MessageState;
use lazaret::domain::replay::{BatchMove, Expected, Forecast, Plan, Progress, Step, Tally, Warning};
use lazaret::domain::verdict::{Checked, Decision, IdempotencyVerdict, SchemaVerdict};
use lazaret::store::Store;
use lazaret::store::messages::MessageFilter;
use lazaret::store::replays::{self, Approval, Batch, Freeze, ItemForecast, NewBatch, Preflighted, Reached, Scope, Staged};
use lazaret::store::transitions::{Cause, Change, move_messages};
use lazaret::store::verdicts::{self, Phase};

use crate::web::house::{House, MINUTE_MS, record};

/// A batch, and the house it is in.
pub struct Seeded<'a> {
    pub house: &'a House,
    pub id: i64,
    /// Of its messages, lowest first.
    pub messages: Vec<i64>,
}

/// A plan for `payments.initiated`.
pub fn plan() -> Plan {
    Plan {
        target: "payments.initiated".into(),
        target_id: Some("ZP1xvG4ESfSfK2Tt9eRbZg".into()),
        target_partitions: 6,
        group: Some("wallet".into()),
        transform: None,
        max_per_second: 50,
        canary: 10,
        stop_on_returned_pct: 5,
        waivers: Vec::new(),
    }
}

/// A new batch of everything in `dlq_id`.
pub fn new_batch(dlq_id: i64, as_of: i64, at_ms: i64, proposer: &str) -> NewBatch {
    let uid = format!("{proposer}-{dlq_id}-{as_of}-{at_ms}");
    NewBatch {
        dlq_id,
        created_at_ms: at_ms,
        as_of_message_id: as_of,
        quorum: 1,
        emergency: false,
        auto_submit: false,
        form_id: uid.clone(),
        uid,
        proposer: proposer.into(),
        proposer_folded: look_of_name(proposer),
        reason: "wallet-db is back since 13:40, INC-2291".into(),
        why_now: None,
        incident: None,
        scope: Scope::Filter { query: String::new(), filter: Box::default() },
        plan: plan(),
    }
}

impl<'a> Seeded<'a> {
    /// `count` messages of a topic, taken in and frozen: the preflight has not begun. `change` is made to the batch before it is stored.
    pub async fn frozen(house: &'a House, topic: &str, count: i64, proposer: &str, change: impl FnOnce(&mut NewBatch)) -> Seeded<'a> {
        let from = next_offset(house, topic).await;
        let now = house.clock.now_ms();
        let records = (0..count).map(|n| {
            let value = format!(r#"{{"payment_id":"p-{n}","amount":12.50,"currency":"EUR","card":{{"number":"4111111111111111"}}}}"#);
            record(topic, from + n, now - 40 * MINUTE_MS + n, &value, "Connection to wallet-db timed out after 30000 ms")
        });
        let dlq = house.take_in(topic, records.collect()).await;
        let filter = MessageFilter { topic: Some(topic.into()), state: Some(MessageState::Quarantined), ..MessageFilter::default() };
        let mut messages: Vec<i64> =
            house.store.messages(&filter, None, 5_000).await.expect("messages").items.iter().map(|row| row.id).collect();
        messages.sort_unstable();
        let mut new = new_batch(dlq.id, messages.last().copied().unwrap_or(0), now - 20 * MINUTE_MS, proposer);
        change(&mut new);
        let mut tx = house.store.begin().await.expect("a transaction");
        let id = replays::insert(&mut tx, &new).await.expect("stored").expect("a new batch");
        let how = Freeze { batch_id: id, dlq_id: dlq.id, by_key: true, origin: None };
        let frozen = replays::freeze(&mut tx, how, &messages).await.expect("frozen");
        let change =
            |id: &i64| Change { message_id: *id, from: MessageState::Quarantined, moves: &[Move::TakenUp], reason: None, evidence: None };
        let changes: Vec<Change<'_>> = frozen.quarantined.iter().map(change).collect();
        move_messages(&mut tx, &changes, &Cause { at_ms: now, actor: proposer, batch_id: Some(id) }).await.expect("taken up");
        let items = i64::try_from(frozen.items).expect("a count");
        replays::add_progress(&mut tx, id, &Progress { items, ..Progress::default() }).await.expect("counted");
        let reached = Reached { step: Step::Checking, step_after: 0, freeze_after: None, tally: &Tally::default() };
        replays::reach(&mut tx, id, &reached).await.expect("a step on");
        replays::log(&mut tx, id, now - 19 * MINUTE_MS, proposer, &format!("{items} messages frozen")).await.expect("a line");
        tx.commit().await.expect("committed");
        Seeded { house, id, messages }
    }

    pub async fn batch(&self) -> Batch {
        self.house.store.batch(self.id).await.expect("an answer").expect("the batch")
    }

    /// Says what is expected of the first items, in order; of the rest that they are sent.
    pub async fn preflighted(&self, odd: &[(Expected, i64)], warnings: &[Warning], quorum: u32) {
        let mut expected: Vec<Expected> = odd.iter().flat_map(|(what, count)| std::iter::repeat_n(*what, *count as usize)).collect();
        expected.resize(self.messages.len(), Expected::Send);
        let note = |what: Expected| match what {
            Expected::Incompatible => Some("at /amount_minor: required and missing"),
            Expected::Held => Some("the ledger wallet did not answer within 2 s"),
            _ => None,
        };
        let items: Vec<ItemForecast<'_>> = self
            .messages
            .iter()
            .zip(&expected)
            .map(|(id, what)| ItemForecast { message_id: *id, expected: *what, note: note(*what) })
            .collect();
        let mut forecast = Forecast::default();
        for what in &expected {
            *forecast.of(*what) += 1;
        }
        let evidence: Vec<(Checked, Decision)> = self.messages.iter().zip(&expected).map(|(id, what)| checked(*id, *what)).collect();
        let batch = self.batch().await;
        let mut hash = ItemsHash::default();
        self.messages.iter().for_each(|id| hash.add(*id, &[1; 32]));
        let agreement = Agreement {
            cluster: batch.cluster.clone(),
            topic: batch.topic.clone(),
            plan: batch.plan.clone(),
            delivery: "normal".into(),
            reason: batch.reason.clone(),
            why_now: None,
            incident: None,
            order: "key".into(),
            partitioner: "murmur2_random".into(),
            guards: Guards { pause_at_lag: 10_000, canary_timeout_s: 600, verify_after_s: 300, returns_traceable: true },
            checks: "ab".repeat(32),
            items: hash.finish(),
            shown: shown(Some(&forecast), warnings),
        };
        let stages: Vec<Staged> = self
            .messages
            .iter()
            .enumerate()
            .map(|(n, id)| Staged { message_id: *id, stage: lazaret::domain::stage::stage_of(n as u64, batch.plan.canary) })
            .collect();
        let mut tx = self.house.store.begin().await.expect("a transaction");
        let all = (i64::MIN, i64::MAX);
        replays::set_forecasts(&mut tx, self.id, all, &items, false).await.expect("forecast");
        replays::set_stages(&mut tx, self.id, &stages).await.expect("staged");
        verdicts::append(&mut tx, self.id, Phase::Preflight, &evidence).await.expect("verdicts");
        let counted = Progress { checked: self.messages.len() as i64, ..Progress::default() };
        replays::add_progress(&mut tx, self.id, &counted).await.expect("counted");
        let through = Preflighted { forecast: &forecast, warnings, quorum, agreement: Some(&agreement), note: None };
        replays::set_preflight(&mut tx, self.id, &through).await.expect("preflighted");
        tx.commit().await.expect("committed");
    }

    pub async fn moved(&self, movement: BatchMove, note: Option<&str>) {
        self.moved_at(movement, note, self.house.clock.now_ms()).await;
    }

    pub async fn moved_at(&self, movement: BatchMove, note: Option<&str>, at_ms: i64) {
        let mut tx = self.house.store.begin().await.expect("a transaction");
        let batch = replays::locked(&mut tx, self.id).await.expect("an answer").expect("the batch");
        let moved = replays::move_batch(&mut tx, &batch, movement, note, at_ms).await.expect("an answer");
        assert_ne!(moved, replays::Moved::Not, "{movement:?} from {:?}", batch.state);
        replays::log(&mut tx, self.id, at_ms, "ben", &format!("{movement:?}").to_lowercase()).await.expect("a line");
        tx.commit().await.expect("committed");
    }

    pub async fn approved_by(&self, name: &str, comment: Option<&str>) {
        let digest = self.batch().await.digest.expect("a digest");
        let at_ms = self.house.clock.now_ms() - 10 * MINUTE_MS;
        let approval = Approval { name: name.into(), name_folded: look_of_name(name), at_ms, digest, comment: comment.map(str::to_owned) };
        let mut tx = self.house.store.begin().await.expect("a transaction");
        assert!(replays::add_approval(&mut tx, self.id, &approval).await.expect("an answer"));
        tx.commit().await.expect("committed");
        self.moved_at(BatchMove::Approve, None, at_ms).await;
    }

    /// Ends the items from the place `from` on, `count` of them, in this state, with this outcome of what was sent.
    pub async fn ended(&self, from: usize, count: usize, state: &str, outcome: Option<(Outcome, Option<Proof>)>, note: Option<&str>) {
        const SQL: &str = "UPDATE replay_items SET state = $3, outcome = $4, proof = $5, note = $6, live = $7, target_partition = $8, sent_offset = $9, sent_at_ms = $10
             WHERE batch_id = $1 AND message_id = $2";
        let now = self.house.clock.now_ms();
        for (n, id) in self.messages[from..from + count].iter().enumerate() {
            let sent = state == "sent";
            let (outcome, proof) = outcome.unzip();
            let (outcome, proof) = (outcome.map(Outcome::as_str), proof.flatten().map(Proof::as_str));
            let (partition, offset, at) = (sent.then_some(n as i32 % 6), sent.then_some(88_400 + n as i64), sent.then_some(now));
            match &self.house.store {
                Store::Postgres(database) => {
                    let query = sqlx::query(SQL).bind(self.id).bind(id).bind(state).bind(outcome).bind(proof).bind(note).bind(false);
                    query.bind(partition).bind(offset).bind(at).execute(&database.pool).await.expect("ended");
                }
                Store::Sqlite(database) => {
                    let query = sqlx::query(SQL).bind(self.id).bind(id).bind(state).bind(outcome).bind(proof).bind(note).bind(false);
                    query.bind(partition).bind(offset).bind(at).execute(&database.writer).await.expect("ended");
                }
            }
        }
    }

    pub async fn counted(&self, add: Progress) {
        let mut tx = self.house.store.begin().await.expect("a transaction");
        replays::add_progress(&mut tx, self.id, &add).await.expect("counted");
        tx.commit().await.expect("committed");
    }

    /// Sends of which nothing is known yet, and how long the step has waited for its proof.
    pub async fn waits_since(&self, at_ms: i64) {
        const SQL: &str = "UPDATE batches SET stage_since_ms = $2 WHERE id = $1";
        match &self.house.store {
            Store::Postgres(database) => sqlx::query(SQL).bind(self.id).bind(at_ms).execute(&database.pool).await.map(|_| ()),
            Store::Sqlite(database) => sqlx::query(SQL).bind(self.id).bind(at_ms).execute(&database.writer).await.map(|_| ()),
        }
        .expect("since then");
    }
}

async fn next_offset(house: &House, topic: &str) -> i64 {
    let filter = MessageFilter { topic: Some(topic.into()), ..MessageFilter::default() };
    house.store.messages(&filter, None, 1).await.expect("messages").items.first().map_or(0, |row| row.offset + 1)
}

fn checked(message_id: i64, what: Expected) -> (Checked, Decision) {
    let (schema, idempotency, decision) = match what {
        Expected::Send => (SchemaVerdict::Compatible, IdempotencyVerdict::New, Decision::Send),
        Expected::SendUnchecked => (SchemaVerdict::Compatible, IdempotencyVerdict::NotConfigured, Decision::SendUnchecked),
        Expected::AlreadyApplied => (SchemaVerdict::Compatible, IdempotencyVerdict::Applied, Decision::AlreadyApplied),
        Expected::Incompatible => (SchemaVerdict::Incompatible, IdempotencyVerdict::New, Decision::Incompatible),
        Expected::Unsafe => (SchemaVerdict::Compatible, IdempotencyVerdict::Unsafe, Decision::Unsafe),
        Expected::Held | Expected::Blocked => (SchemaVerdict::Compatible, IdempotencyVerdict::CouldNotCheck, Decision::Held),
    };
    let schema_note = (schema == SchemaVerdict::Incompatible).then(|| "at /amount_minor: required and missing".to_owned());
    let checked = Checked {
        message_id,
        at_ms: 0,
        schema,
        schema_note,
        transformed: None,
        idempotency,
        asked: Some(format!("p-{message_id}")),
        answered: None,
        others: Vec::new(),
        beyond_waivers: false,
    };
    (checked, decision)
}
