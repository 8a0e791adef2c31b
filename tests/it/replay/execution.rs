//! Execution on a real broker: what is sent, in which order, how fast, when it stops, and that nothing is lost or sent twice whatever happens.

mod away;
mod faults;
mod sending;
mod steps;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lazaret::config::{Config, Purpose};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::audit::By;
use lazaret::domain::clock::Clock;
use lazaret::domain::message::quarantine;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::replay::BatchState;
use lazaret::jobs::Supervisor;
use lazaret::jobs::replay::ReplayJob;
use lazaret::kafka::inspect::Inspector;
use lazaret::services::replay::approval::Decider;
use lazaret::services::replay::check::Checker;
use lazaret::services::replay::executor::Timing;
use lazaret::services::replay::propose::{Prepared, Proposal, Wanted};
use lazaret::services::replay::{Cluster, Replays};
use lazaret::store::Store;
use lazaret::store::messages::{PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::store::replays::Batch;
use serde::{Deserialize, Serialize};

use crate::support::producer::Topics;
use crate::support::{Server, audit_key, postgres_url, unique, variable};

const PATIENCE: Duration = Duration::from_secs(60);
const SCHEMA: &str =
    r#"{"type":"object","required":["payment_id"],"properties":{"payment_id":{"type":"string"},"amount":{"type":"integer"}}}"#;

/// Small times: a dead executor is replaced, and what it left in doubt is resolved, within some three seconds.
fn timing() -> Timing {
    Timing {
        lease: Duration::from_millis(900),
        message_timeout: Duration::from_millis(900),
        margin: Duration::from_millis(600),
        look_every: Duration::from_millis(50),
        ask: Duration::from_secs(5),
        facts_for: Duration::from_millis(500),
        check_patience: Duration::from_millis(500),
    }
}

/// Which database Lazaret's own tables are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Sqlite,
    Postgres,
}

/// Everything another process needs to take part.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place {
    database: String,
    bootstrap: String,
    /// The target; its dead-letter topic is this and `.DLQ`.
    topic: String,
    folder: PathBuf,
    /// What stands in the `[[dlq]]` beside names, key and checks.
    dlq: String,
}

/// A shop of its own: a topic, a database, a ledger, a schema.
struct Rig {
    place: Place,
    store: Store,
    replays: Replays,
    cluster: Cluster,
    clock: Clock,
    _folder: Option<tempfile::TempDir>,
}

/// A dead letter to be taken in.
#[derive(Debug, Clone)]
struct Letter {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<Header>,
    partition: i32,
    offset: i64,
}

impl Letter {
    /// The payment `n` of the user `user`, from partition 0.
    fn payment(n: usize, user: usize) -> Letter {
        Letter {
            key: Some(format!("user-{user}").into_bytes()),
            value: Some(format!("{{\"payment_id\":\"p{n}\",\"amount\":{n}}}").into_bytes()),
            headers: Vec::new(),
            partition: 0,
            offset: i64::try_from(n).expect("small"),
        }
    }
}

/// A record as an independent reader finds it in the target.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrived {
    partition: i32,
    offset: i64,
    key: String,
    value: String,
    headers: String,
}

impl Place {
    fn config(&self) -> Config {
        let Place { bootstrap, topic, folder, dlq, .. } = self;
        let ledger = folder.join("ledger.db");
        let text = format!(
            "[clusters.main]\nbootstrap_servers = '{bootstrap}'\n\
             [ledgers.wallet.durable]\nkind = 'sql'\nurl = 'sqlite://{}'\nquery = 'SELECT id FROM applied WHERE id IN (SELECT value FROM json_each($1))'\n\
             [schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n\
             [[dlq]]\ncluster = 'main'\ntopics = ['{topic}.DLQ']\nbusiness_key = '{{value:/payment_id}}'\n{dlq}\n\
             [dlq.schema]\nuse = 'payment'\n[dlq.idempotency]\nledger = 'wallet'\n",
            ledger.display()
        );
        Config::from_text(&text, "test", folder.clone(), Vec::new(), Purpose::Check).expect("a configuration")
    }

    async fn store(&self) -> Store {
        let store = Store::connect(&self.database).await.expect("the database opens");
        store.migrate().await.expect("it migrates");
        store.with_audit_key(audit_key())
    }

    /// What a process makes of its configuration.
    async fn replays(&self) -> (Replays, Cluster) {
        let config = self.config();
        let settings = config.clusters[0].clone();
        let cluster = Cluster { inspector: Arc::new(Inspector::connect(&settings).expect("valid settings")), settings };
        let replays = Replays {
            store: self.store().await,
            clock: Clock::system(),
            dlqs: config.dlq_settings().into(),
            terms: config.dlqs.iter().map(|dlq| dlq.replay.clone()).collect::<Vec<_>>().into(),
            approval: config.approval.clone(),
            checker: Checker::new(&config.ledgers, &config.schemas),
            clusters: Arc::new(BTreeMap::from([("main".to_owned(), cluster.clone())])),
        };
        (replays, cluster)
    }
}

impl Rig {
    async fn new(base: Base, partitions: i32, dlq: &str) -> Rig {
        Rig::at(&Server::Kafka.address(), base, partitions, &[], dlq).await
    }

    async fn at(bootstrap: &str, base: Base, partitions: i32, topic_config: &[(&str, &str)], dlq: &str) -> Rig {
        let guard = tempfile::tempdir().expect("a folder");
        let folder = guard.path();
        let database = match base {
            Base::Sqlite => format!("sqlite://{}", folder.join("lazaret.db").display()),
            Base::Postgres => postgres_url().await,
        };
        Rig::on(bootstrap, guard, database, partitions, topic_config, dlq).await
    }

    async fn on(
        bootstrap: &str,
        guard: tempfile::TempDir,
        database: String,
        partitions: i32,
        topic_config: &[(&str, &str)],
        dlq: &str,
    ) -> Rig {
        let folder = guard.path().to_owned();
        let topic = unique("payments");
        Topics::at(bootstrap).create(&topic, partitions, topic_config).await;
        std::fs::write(folder.join("payment.json"), SCHEMA).expect("a schema");
        ledger(&folder, "CREATE TABLE applied (id TEXT PRIMARY KEY)").await;
        let place = Place { database, bootstrap: bootstrap.to_owned(), topic, folder, dlq: dlq.to_owned() };
        let (replays, cluster) = place.replays().await;
        let (store, clock) = (replays.store.clone(), replays.clock.clone());
        Rig { place, store, replays, cluster, clock, _folder: Some(guard) }
    }

    fn dlq(&self) -> String {
        format!("{}.DLQ", self.place.topic)
    }

    /// Takes dead letters in, as intake would.
    async fn take_in(&self, letters: &[Letter]) -> Vec<i64> {
        let (dlq, _) = self.store.ensure_dlq("main", &self.dlq(), None, None, self.clock.now_ms()).await.expect("a DLQ");
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
        self.store.ensure_position(id, 0, self.clock.now_ms()).await.expect("a position");
        let position = self.store.claim_position(id, self.clock.now_ms()).await.expect("a claim").expect("it is there");
        let mut next = position.next_offset;
        let mut epoch = position.owner_epoch;
        for letters in letters.chunks(1_000) {
            let messages: Vec<_> = (next..).zip(letters).map(|(offset, letter)| self.message(letter, offset)).collect();
            let after = next + i64::try_from(messages.len()).expect("few");
            let batch = PartitionBatch { id, owner_epoch: epoch, expected_offset: next, next_offset: after, messages };
            match self.store.take_in(&[batch], self.clock.now_ms()).await.expect("a take-in") {
                TakeIn::Committed { .. } => next = after,
                TakeIn::Moved(_) => panic!("the position moved"),
            }
            epoch = position.owner_epoch;
        }
        let filter = lazaret::store::messages::MessageFilter { topic: Some(self.dlq()), ..Default::default() };
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.messages(&filter, after, 500).await.expect("a page");
            ids.extend(page.items.iter().map(|message| message.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ids.sort_unstable();
        ids
    }

    fn message(&self, letter: &Letter, offset: i64) -> lazaret::domain::message::NewMessage {
        let now = self.clock.now_ms();
        let header = |name: &str, value: &[u8]| Header { name: name.as_bytes().to_vec(), value: Some(value.to_vec()) };
        let mut headers = letter.headers.clone();
        headers.extend([
            header("kafka_dlt-original-topic", self.place.topic.as_bytes()),
            header("kafka_dlt-original-partition", &letter.partition.to_be_bytes()),
            header("kafka_dlt-original-offset", &letter.offset.to_be_bytes()),
            header("kafka_dlt-exception-fqcn", b"com.acme.WalletUnavailable"),
        ]);
        let record = Record {
            topic: self.dlq(),
            partition: 0,
            offset,
            // An hour ago: the cause is not active.
            timestamp_ms: Some(now - 3_600_000),
            key: letter.key.clone(),
            value: letter.value.clone(),
            headers,
        };
        quarantine(record, &self.replays.dlqs[0], &[], now)
    }

    /// Payments 0 to `n`, of `users` users.
    async fn payments(&self, n: usize, users: usize) -> Vec<i64> {
        let letters: Vec<Letter> = (0..n).map(|n| Letter::payment(n, n % users)).collect();
        self.take_in(&letters).await
    }

    /// The ledger says that these payments are applied.
    async fn applied(&self, payments: impl Iterator<Item = usize>) {
        let values: Vec<String> = payments.map(|n| format!("('p{n}')")).collect();
        if !values.is_empty() {
            ledger(&self.place.folder, &format!("INSERT INTO applied VALUES {}", values.join(","))).await;
        }
    }

    fn proposal(&self) -> Proposal {
        Proposal {
            cluster: "main".to_owned(),
            topic: self.dlq(),
            wanted: Wanted::Filter { filter: Box::default(), query: String::new() },
            reason: "the wallet is back".to_owned(),
            target: None,
            max_per_second: None,
            canary: None,
            stop_on_returned_pct: None,
            transform: None,
            waivers: Vec::new(),
            why_now: Some("a test".to_owned()),
            incident: None,
            auto_submit: true,
            emergency: false,
            form_id: unique("form"),
        }
    }

    /// Proposes, freezes, preflights and submits; gives the batch as it waits for approval.
    async fn propose(&self, proposal: Proposal) -> Batch {
        let by = By { actor: "otto".to_owned(), request_id: None };
        let proposed = self.replays.propose(&by, &OwnerScope::All, proposal).await.expect("a proposal");
        let deadline = self.clock.monotonic() + PATIENCE;
        loop {
            let _: Prepared = self.replays.prepare("main").await.expect("it is prepared");
            let batch = self.batch(proposed.batch.id).await;
            if batch.state == BatchState::AwaitingApproval {
                return batch;
            }
            assert!(self.clock.monotonic() < deadline, "not ready: {batch:#?}");
        }
    }

    /// Has a batch approved by as many as it takes.
    async fn approve(&self, batch: &Batch) {
        for n in 0..batch.quorum {
            let digest = batch.digest.clone().expect("a digest");
            let ticked: Vec<usize> = (0..batch.warnings.len()).collect();
            self.replays.approve(&decider(&format!("petra-{n}")), batch.id, &digest, &ticked, None).await.expect("an approval");
        }
    }

    /// Everything that was taken in, proposed and approved.
    async fn approved(&self, proposal: Proposal) -> i64 {
        let batch = self.propose(proposal).await;
        self.approve(&batch).await;
        batch.id
    }

    async fn batch(&self, id: i64) -> Batch {
        self.store.batch(id).await.expect("batches can be read").expect("it is there")
    }

    /// Waits until the batch is as wanted; panics with what it was last.
    async fn until(&self, id: i64, what: &str, holds: impl Fn(&Batch) -> bool) -> Batch {
        let deadline = self.clock.monotonic() + PATIENCE;
        loop {
            let batch = self.batch(id).await;
            if holds(&batch) {
                return batch;
            }
            if self.clock.monotonic() > deadline {
                let log = self.store.batch_log(id, 50).await.expect("a log");
                panic!("waited in vain until {what}: {:?} {:?} {:?}\n{log:#?}", batch.state, batch.note, batch.progress);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_executed(&self, id: i64) -> Batch {
        self.until(id, "everything is sent", |batch| matches!(batch.state, BatchState::Executed | BatchState::Verified)).await
    }

    /// An executor in this process.
    fn execute(&self) -> Execution {
        self.execute_with(timing())
    }

    fn execute_with(&self, timing: Timing) -> Execution {
        let mut supervisor = Supervisor::new(self.clock.clone());
        let (replays, cluster) = (self.replays.clone(), self.cluster.clone());
        ReplayJob { replays, cluster, holder: unique("holder"), timing }.spawn(&mut supervisor);
        Execution(Some(supervisor))
    }

    /// What an independent reader finds in the target, committed or not.
    fn arrived(&self) -> Vec<Arrived> {
        kcat(&self.place.bootstrap, &self.place.topic)
    }

    /// How often each payment arrived.
    fn copies(&self) -> BTreeMap<String, usize> {
        let mut copies = BTreeMap::new();
        for arrived in self.arrived() {
            *copies.entry(payment_of(&arrived.value)).or_default() += 1;
        }
        copies
    }

    /// The states of the batch's messages, counted.
    async fn states(&self, ids: &[i64]) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for id in ids {
            let message = self.store.message(*id).await.expect("messages can be read").expect("it is there");
            let word = match message.resolution {
                Some(resolution) => format!("{}/{resolution}", message.state.as_str()),
                None => message.state.as_str().to_owned(),
            };
            *states.entry(word).or_default() += 1;
        }
        states
    }

    async fn log(&self, id: i64) -> Vec<String> {
        let mut lines: Vec<String> = self.store.batch_log(id, 1_000).await.expect("a log").into_iter().map(|line| line.entry).collect();
        lines.reverse();
        lines
    }

    fn topics(&self) -> Topics {
        Topics::at(&self.place.bootstrap)
    }
}

fn payment_of(value: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(value).expect("JSON");
    value["payment_id"].as_str().expect("a payment").to_owned()
}

fn decider(name: &str) -> Decider {
    Decider { by: By { actor: name.to_owned(), request_id: None }, folded: name.to_owned(), role: Role::Approver, scope: OwnerScope::All }
}

/// A job that ends with its test.
struct Execution(Option<Supervisor>);

impl Execution {
    /// In order: what was begun is stored, the lease is given up.
    async fn end(mut self) {
        if let Some(supervisor) = self.0.take() {
            assert_eq!(supervisor.shutdown(Duration::from_secs(20)).await, Vec::<String>::new());
        }
    }
}

/// A statement of the consumer's own on its ledger.
#[allow(clippy::disallowed_types, reason = "a statement of the test's own")]
async fn ledger(folder: &Path, sql: &str) {
    use sqlx::Connection as _;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.join("ledger.db")).create_if_missing(true);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.expect("the ledger opens");
    sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("the ledger takes it");
    connection.close().await.expect("it closes");
}

/// Reads a topic to its end with kcat.
fn kcat(bootstrap: &str, topic: &str) -> Vec<Arrived> {
    let format = "%p\u{1}%o\u{1}%k\u{1}%s\u{1}%h\u{2}";
    let output = std::process::Command::new(variable("LAZARET_TEST_KCAT"))
        .args(["-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-o", "beginning", "-X", "isolation.level=read_uncommitted", "-f", format])
        .output()
        .expect("kcat runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let record = |line: &str| {
        let parts: Vec<&str> = line.split('\u{1}').collect();
        Arrived {
            partition: parts[0].parse().expect("a partition"),
            offset: parts[1].parse().expect("an offset"),
            key: parts[2].to_owned(),
            value: parts[3].to_owned(),
            headers: parts[4].to_owned(),
        }
    };
    let mut arrived: Vec<Arrived> = text.split('\u{2}').filter(|line| !line.is_empty()).map(record).collect();
    arrived.sort_by_key(|arrived| (arrived.partition, arrived.offset));
    arrived
}

/// Makes one test for each database out of one body.
macro_rules! on_both_bases {
    ($($(#[$meta:meta])* async fn $name:ident($base:ident: Base) $body:block)+) => {$(
        mod $name {
            use super::*;

            async fn body($base: Base) $body

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs a real Kafka: run tests/run"]
            async fn sqlite() {
                body(Base::Sqlite).await;
            }

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs a real Kafka and a real PostgreSQL: run tests/run"]
            async fn postgres() {
                body(Base::Postgres).await;
            }
        }
    )+};
}
use on_both_bases;
