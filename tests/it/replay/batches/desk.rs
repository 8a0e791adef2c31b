//! A Lazaret that can propose: a store, librdkafka's in-process broker, a ledger and a schema in files.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lazaret::config::{Config, Purpose};
use lazaret::domain::access::{OwnerScope, Role, look_of_name};
use lazaret::domain::audit::By;
use lazaret::domain::clock::Clock;
use lazaret::domain::lifecycle::Move;
use lazaret::domain::message::{MessageState, quarantine};
use lazaret::domain::record::{Header, Record};
use lazaret::domain::replay::BatchState;
use lazaret::domain::terms::ApprovalTerms;
use lazaret::kafka::inspect::Inspector;
use lazaret::services::replay::approval::Decider;
use lazaret::services::replay::check::Checker;
use lazaret::services::replay::propose::{Prepared, Proposal, Proposed, Wanted};
use lazaret::services::replay::{Cluster, ReplayError, Replays};
use lazaret::store::Store;
use lazaret::store::messages::{MessageFilter, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::store::replays::Batch;
use lazaret::store::transitions::{Cause, Change, move_messages};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::support::unique;

/// 2026-11-30 14:02:11 UTC.
pub const NOW_MS: i64 = 1_796_047_331_000;
pub const HOUR_MS: i64 = 3_600_000;
pub const DLQ: &str = "payments.DLQ";

const SCHEMA: &str = r#"{"type":"object","required":["id","amount_cents"],"properties":{"amount_cents":{"type":"integer"}}}"#;

/// The one `[[dlq]]`, with a ledger and a schema.
pub const CHECKED: &str = "[dlq.schema]\nuse = 'payment'\n[dlq.idempotency]\nledger = 'wallet'\n";

pub struct Desk {
    pub replays: Replays,
    pub store: Store,
    pub clock: Clock,
    text: String,
    folder: Arc<tempfile::TempDir>,
    _broker: Option<Rc<MockCluster<'static, DefaultProducerContext>>>,
    next_offset: Arc<AtomicI64>,
}

/// An item of a batch, as the table has it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Item {
    pub message_id: i64,
    pub place: i64,
    pub key_hash: Option<i64>,
    pub stage: i32,
    pub taken_up: bool,
    pub forecast: String,
    pub blocked_by: Option<i64>,
    pub note: Option<String>,
}

/// A dead letter: payment `n`, which came from offset `n`.
#[derive(Debug, Clone)]
pub struct Letter {
    pub n: i64,
    pub key: Option<&'static str>,
    pub own_key: bool,
    pub value: String,
    pub origin: Option<&'static str>,
    /// Instead of `origin`, for topics whose names are made up.
    pub origin_named: Option<String>,
    pub origin_partition: i32,
    pub failure: &'static str,
    pub age_ms: i64,
    pub lap: Option<i32>,
    /// Its headers name the consumer group.
    pub group: bool,
    /// Another name than "wallet".
    pub group_named: Option<&'static str>,
}

impl Letter {
    pub fn of(n: i64) -> Letter {
        Letter {
            n,
            key: None,
            own_key: true,
            value: format!(r#"{{"id":{n},"amount_cents":5}}"#),
            origin: Some("payments.initiated"),
            origin_named: None,
            origin_partition: (n % 4) as i32,
            failure: "down",
            age_ms: HOUR_MS,
            lap: None,
            group: true,
            group_named: None,
        }
    }

    /// From before a migration of the schema.
    pub fn unfit(n: i64) -> Letter {
        Letter { value: format!(r#"{{"id":{n},"amount":0.05}}"#), ..Letter::of(n) }
    }

    fn record(&self, offset: i64, now_ms: i64) -> Record {
        let header = |name: &str, value: Vec<u8>| Header { name: name.into(), value: Some(value) };
        let mut headers = vec![
            header("kafka_dlt-original-partition", self.origin_partition.to_be_bytes().to_vec()),
            header("kafka_dlt-original-offset", self.n.to_be_bytes().to_vec()),
            header("kafka_dlt-original-timestamp", (now_ms - self.age_ms - 60_000).to_be_bytes().to_vec()),
            header("kafka_dlt-exception-fqcn", b"org.postgresql.util.PSQLException".to_vec()),
            header("kafka_dlt-exception-message", self.failure.as_bytes().to_vec()),
        ];
        headers.extend(
            self.group.then(|| header("kafka_dlt-original-consumer-group", self.group_named.unwrap_or("wallet").as_bytes().to_vec())),
        );
        let origin = self.origin_named.as_deref().or(self.origin);
        headers.extend(origin.map(|origin| header("kafka_dlt-original-topic", origin.as_bytes().to_vec())));
        headers.extend(self.lap.map(|lap| header("lazaret-lap", lap.to_string().into_bytes())));
        let own = self.own_key.then(|| format!("key-{}", self.n).into_bytes());
        Record {
            topic: DLQ.into(),
            partition: 0,
            offset,
            timestamp_ms: Some(now_ms - self.age_ms),
            key: self.key.map(|key| key.as_bytes().to_vec()).or(own),
            value: Some(self.value.clone().into_bytes()),
            headers,
        }
    }
}

pub fn by(name: &str) -> By {
    By { actor: name.to_owned(), request_id: None }
}

fn decider(name: &str, role: Role) -> Decider {
    Decider { by: by(name), folded: look_of_name(name), role, scope: OwnerScope::All }
}

/// Proposes, in these tests; an approver by role.
pub fn ana() -> Decider {
    approver("ana")
}

pub fn ben() -> Decider {
    approver("ben")
}

pub fn approver(name: &str) -> Decider {
    decider(name, Role::Approver)
}

pub fn operator(name: &str) -> Decider {
    decider(name, Role::Operator)
}

impl Desk {
    /// With both checks.
    pub async fn with_ledger(store: Store) -> Desk {
        Desk::new(store, CHECKED).await
    }

    /// `dlq`: what follows in the one `[[dlq]]`.
    pub async fn new(store: Store, dlq: &str) -> Desk {
        let broker = MockCluster::new(1).expect("an in-process broker");
        for topic in ["payments.initiated", "payments.retry", "payments.other"] {
            broker.create_topic(topic, 4, 1).expect("a topic");
        }
        let bootstrap = broker.bootstrap_servers();
        Desk::at(store, &bootstrap, "payments.retry", dlq, Some(Rc::new(broker))).await
    }

    /// On a broker that is there already, whose topics are somebody else's to make.
    pub async fn on(store: Store, bootstrap: &str, retry: &str, dlq: &str) -> Desk {
        Desk::at(store, bootstrap, retry, dlq, None).await
    }

    async fn at(
        store: Store,
        bootstrap: &str,
        retry: &str,
        dlq: &str,
        broker: Option<Rc<MockCluster<'static, DefaultProducerContext>>>,
    ) -> Desk {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("payment.json"), SCHEMA).expect("a schema");
        let mut ledgers = String::new();
        for name in ["wallet", "fraud", "other"] {
            let url = format!("sqlite://{}", folder.path().join(format!("{name}.db")).display());
            let pool = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc")).await.expect("a ledger");
            sqlx::query("CREATE TABLE applied (event_id TEXT PRIMARY KEY)").execute(&pool).await.expect("a table");
            let query = "SELECT event_id FROM applied WHERE event_id IN (SELECT value FROM json_each($1))";
            ledgers.push_str(&format!("[ledgers.{name}.durable]\nkind = 'sql'\nurl = '{url}'\nquery = '{query}'\n"));
        }
        let text = format!(
            "[clusters.main]\nbootstrap_servers = '{bootstrap}'\n[schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n{ledgers}\n\
             [[dlq]]\ncluster = 'main'\ntopics = ['{DLQ}']\nowner = 'payments'\nconsumer_group = 'wallet'\nbusiness_key = '{{value:/id}}'\n\
             targets = ['origin', '{retry}']\ntarget_groups = {{ '{retry}' = 'wallet-retry' }}\n{dlq}"
        );
        let clock = Clock::fake(NOW_MS);
        let replays = replays(&store, &clock, &text, folder.path());
        Desk { replays, store, clock, text, folder: Arc::new(folder), _broker: broker, next_offset: Arc::new(AtomicI64::new(0)) }
    }

    /// The same with another configuration.
    pub async fn configured(&self, change: impl FnOnce(&str) -> String) -> Desk {
        let text = change(&self.text);
        assert_ne!(text, self.text, "the configuration is another one");
        let replays = Replays { approval: self.replays.approval.clone(), ..replays(&self.store, &self.clock, &text, self.folder.path()) };
        Desk {
            replays,
            store: self.store.clone(),
            clock: self.clock.clone(),
            text,
            folder: Arc::clone(&self.folder),
            _broker: self._broker.clone(),
            next_offset: Arc::clone(&self.next_offset),
        }
    }

    pub fn approval(mut self, change: impl FnOnce(&mut ApprovalTerms)) -> Desk {
        change(&mut self.replays.approval);
        self
    }

    /// Replaces a file of the configuration's folder.
    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).expect("a file");
    }

    /// Takes dead letters in, as intake would.
    pub async fn take_in(&self, letters: impl IntoIterator<Item = Letter>) {
        let now = self.clock.now_ms();
        let (dlq, _) = self.store.ensure_dlq("main", DLQ, None, Some("payments"), now).await.expect("a DLQ");
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
        let settings = &self.replays.dlqs[0];
        let messages: Vec<_> = letters
            .into_iter()
            .map(|letter| quarantine(letter.record(self.next_offset.fetch_add(1, Ordering::SeqCst), NOW_MS), settings, &[], now))
            .collect();
        self.store.ensure_position(id, 0, now).await.expect("a position");
        for chunk in messages.chunks(2_000) {
            let position = self.store.claim_position(id, now).await.expect("a claim").expect("the position is there");
            let next_offset = chunk.last().map_or(position.next_offset, |message| message.record.offset + 1);
            let (owner_epoch, expected_offset) = (position.owner_epoch, position.next_offset);
            let batch = PartitionBatch { id, owner_epoch, expected_offset, next_offset, messages: chunk.to_vec() };
            let taken = self.store.take_in(&[batch], now).await.expect("taken in");
            assert!(matches!(taken, TakeIn::Committed { .. }), "{taken:?}");
        }
    }

    /// All ids, lowest first.
    pub async fn ids(&self) -> Vec<i64> {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.messages(&MessageFilter::default(), after, 500).await.expect("a page");
            ids.extend(page.items.iter().map(|row| row.id));
            after = page.next;
            if after.is_none() {
                ids.reverse();
                return ids;
            }
        }
    }

    /// Messages by state; a state that has none is absent.
    pub async fn states(&self) -> std::collections::HashMap<MessageState, i64> {
        let dlq = self.store.dlq("main", DLQ).await.expect("asked").expect("a DLQ");
        let counts = self.store.dlq_counts(Some(dlq.id)).await.expect("counts").remove(&dlq.id).unwrap_or_default();
        let of = |state: MessageState| Some((state, counts.by_state.get(state.as_str()).copied().filter(|n| *n != 0)?));
        MessageState::ALL.into_iter().filter_map(of).collect()
    }

    pub async fn take_up(&self, ids: &[i64]) {
        self.moved(ids, MessageState::Quarantined, &[Move::TakenUp]).await;
    }

    pub async fn archive(&self, ids: &[i64]) {
        self.moved(ids, MessageState::Quarantined, &[Move::TakenUp, Move::Archived]).await;
    }

    async fn moved(&self, ids: &[i64], from: MessageState, moves: &[Move]) {
        let change = |id: &i64| Change { message_id: *id, from, moves, reason: Some("by hand"), evidence: None };
        let changes: Vec<_> = ids.iter().map(change).collect();
        let mut tx = self.store.begin().await.expect("a transaction");
        let cause = Cause { at_ms: self.clock.now_ms(), actor: "olga", batch_id: None };
        assert_eq!(move_messages(&mut tx, &changes, &cause).await.expect("moved").len(), ids.len());
        tx.commit().await.expect("committed");
    }

    /// Notes in the wallet's ledger that these were applied.
    pub async fn applied(&self, ids: impl IntoIterator<Item = String>) {
        self.applied_in("wallet", ids).await;
    }

    pub async fn applied_in(&self, ledger: &str, ids: impl IntoIterator<Item = String>) {
        let url = format!("sqlite://{}", self.folder.path().join(format!("{ledger}.db")).display());
        let pool = sqlx::SqlitePool::connect(&url).await.expect("the ledger");
        for id in ids {
            sqlx::query("INSERT INTO applied VALUES ($1)").bind(id).execute(&pool).await.expect("a row");
        }
    }

    fn proposal(&self, wanted: Wanted) -> Proposal {
        Proposal {
            cluster: "main".into(),
            topic: DLQ.into(),
            wanted,
            reason: "the wallet database was down".into(),
            target: None,
            max_per_second: None,
            canary: None,
            stop_on_returned_pct: None,
            transform: None,
            waivers: Vec::new(),
            why_now: None,
            incident: None,
            auto_submit: true,
            emergency: false,
            form_id: unique("form"),
        }
    }

    /// Everything of the DLQ.
    pub fn everything(&self) -> Proposal {
        self.filter(MessageFilter::default(), "")
    }

    pub fn filter(&self, filter: MessageFilter, query: &str) -> Proposal {
        self.proposal(Wanted::Filter { filter: Box::new(filter), query: query.into() })
    }

    pub fn named(&self, ids: &[i64]) -> Proposal {
        self.proposal(Wanted::Ids(ids.to_vec()))
    }

    pub async fn propose(&self, proposal: Proposal) -> Result<Proposed, ReplayError> {
        self.replays.propose(&ana().by, &OwnerScope::All, proposal).await
    }

    /// Proposed, preflighted, and put up for approval.
    pub async fn proposed(&self, proposal: Proposal) -> Batch {
        let draft = self.propose(proposal).await.expect("it can be proposed").batch;
        self.prepare().await;
        let batch = self.batch(draft.id).await;
        assert_eq!(batch.state, BatchState::AwaitingApproval, "{:?} {:?}", batch.note, batch.warnings);
        batch
    }

    pub async fn approved(&self, batch: Batch) -> Batch {
        let digest = batch.digest.as_deref().expect("a digest");
        let batch = self.replays.approve(&ben(), batch.id, digest, &[], None).await.expect("approved");
        assert_eq!(batch.state, BatchState::Approved);
        batch
    }

    /// Everything that there is to prepare.
    pub async fn prepare(&self) {
        let mut chunks = 0;
        while self.replays.prepare("main").await.expect("prepared") == Prepared::More {
            chunks += 1;
            assert!(chunks < 1_000, "it never ends");
        }
    }

    pub async fn batch(&self, id: i64) -> Batch {
        self.store.batch(id).await.expect("asked").expect("a batch")
    }

    /// By message id.
    pub async fn items(&self, batch_id: i64) -> Vec<Item> {
        const SQL: &str = "SELECT message_id, place, key_hash, stage, taken_up, forecast, blocked_by, note FROM replay_items WHERE batch_id = $1 ORDER BY message_id";
        match &self.store {
            Store::Postgres(database) => sqlx::query_as(SQL).bind(batch_id).fetch_all(&database.pool).await.expect("items"),
            Store::Sqlite(database) => sqlx::query_as(SQL).bind(batch_id).fetch_all(&database.readers).await.expect("items"),
        }
    }

    /// A statement of the test's own.
    pub async fn change(&self, sql: &'static str) {
        match &self.store {
            Store::Postgres(database) => drop(sqlx::query(sql).execute(&database.pool).await.expect("the test's statement")),
            Store::Sqlite(database) => drop(sqlx::query(sql).execute(&database.writer).await.expect("the test's statement")),
        }
    }
}

fn replays(store: &Store, clock: &Clock, text: &str, folder: &std::path::Path) -> Replays {
    let config = Config::from_text(text, "test", folder.to_owned(), Vec::new(), Purpose::Check).expect("a configuration");
    let cluster = |settings: &lazaret::domain::settings::ClusterSettings| {
        let inspector = Arc::new(Inspector::connect(settings).expect("a client"));
        (settings.name.clone(), Cluster { settings: settings.clone(), inspector })
    };
    Replays {
        store: store.clone(),
        clock: clock.clone(),
        dlqs: config.dlq_settings().into(),
        terms: config.dlqs.iter().map(|dlq| dlq.replay.clone()).collect(),
        approval: config.approval.clone(),
        checker: Checker::new(&config.ledgers, &config.schemas),
        clusters: Arc::new(config.clusters.iter().map(cluster).collect()),
    }
}
