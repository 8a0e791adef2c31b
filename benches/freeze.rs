//! Freezing and preflighting a large batch while intake and pages go on.
//!
//! A DLQ of many messages (1,000,000, or the number after `--messages`) is proposed by a filter and prepared as the job does, chunk after chunk. Beside it
//! one task takes in 100 messages every 50 ms and another reads the first page of the list every 20 ms. The line names the rate of freezing and of the preflight
//! (both checks: JSON Schema and a SQLite ledger), and the 99th percentile of a take-in and of a page, without a batch and with it.
//!
//! `cargo bench --bench freeze`; PostgreSQL takes part when `LAZARET_TEST_POSTGRES` is set. Exit code 1 when a preflight of 100,000 takes more than 10 s.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement: it reads the clock, makes databases of its own, and stops at the first surprise"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use lazaret::config::{Config, Purpose};
use lazaret::domain::access::OwnerScope;
use lazaret::domain::audit::{AuditKey, By};
use lazaret::domain::clock::Clock;
use lazaret::domain::message::quarantine;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::replay::Step;
use lazaret::domain::settings::DlqSettings;
use lazaret::kafka::inspect::Inspector;
use lazaret::services::replay::check::Checker;
use lazaret::services::replay::propose::{Prepared, Proposal, Wanted};
use lazaret::services::replay::{Cluster, Replays};
use lazaret::store::Store;
use lazaret::store::messages::{MessageFilter, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use rdkafka::mocking::MockCluster;
use sqlx::{AssertSqlSafe, Connection as _};

const DLQ: &str = "payments.DLQ";
const SCHEMA: &str = r#"{"type":"object","required":["id","amount_cents"],"properties":{"amount_cents":{"type":"integer"}}}"#;
/// How long intake and pages are looked at without a batch.
const CALM: Duration = Duration::from_secs(5);
/// Of 100,000 messages.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let given = arguments.iter().position(|argument| argument == "--messages").and_then(|at| arguments.get(at + 1));
    let messages = given.map_or(1_000_000, |given| given.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("lazaret.db").display());
    let mut met = measure("freeze-sqlite", &url, messages).await;
    match std::env::var("LAZARET_TEST_POSTGRES") {
        Ok(server) => {
            let mut admin = sqlx::PgConnection::connect(&server).await.unwrap();
            let name = format!("bench_freeze_{}", std::process::id());
            sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.unwrap();
            let (base, _) = server.rsplit_once('/').unwrap();
            met &= measure("freeze-postgres", &format!("{base}/{name}"), messages).await;
            sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&mut admin).await.unwrap();
        }
        Err(_) => println!(
            "freeze-postgres not run: LAZARET_TEST_POSTGRES is not set; eval \"$(tests/services/ctl up)\" starts a server and sets it"
        ),
    }
    if !met {
        std::process::exit(1);
    }
}

async fn measure(name: &str, url: &str, messages: i64) -> bool {
    let store = Store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    let store = store.with_audit_key(AuditKey::new(vec![7; 32]).unwrap());
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("payments.initiated", 12, 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let replays = replays(&store, &broker.bootstrap_servers(), folder.path()).await;
    let mut intake = Intake::open(&store, &replays.dlqs[0], DLQ).await;
    for first in (0..messages).step_by(2_000) {
        intake.take_in(first..(first + 2_000).min(messages)).await;
    }
    // So that the planner knows what it works on, as autovacuum would see to.
    if let Store::Postgres(database) = &store {
        sqlx::query("ANALYZE").execute(&database.pool).await.unwrap();
    }

    let (calm_intake, calm_page) = beside(&store, &replays.dlqs[0], async { tokio::time::sleep(CALM).await }).await.0;
    let ((busy_intake, busy_page), times) = beside(&store, &replays.dlqs[0], prepare(&replays, messages)).await;
    let rate = |time: Duration| messages as f64 / time.as_secs_f64();
    println!(
        "{name} {messages} messages: freeze {:.0} msg/s, preflight {:.0} msg/s (checks {:.1} s, blocking and steps {:.1} s, conclusion {:.1} s); \
         p99 without and with: take-in of 100 {} and {}, page {} and {}",
        rate(times.freeze),
        rate(times.preflight()),
        times.check.as_secs_f64(),
        times.order.as_secs_f64(),
        times.conclude.as_secs_f64(),
        ms(calm_intake),
        ms(busy_intake),
        ms(calm_page),
        ms(busy_page),
    );
    let of_100_000 = times.preflight().mul_f64(100_000.0 / messages as f64);
    of_100_000 <= PREFLIGHT_LIMIT
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

#[derive(Default)]
struct Times {
    freeze: Duration,
    check: Duration,
    order: Duration,
    conclude: Duration,
}

impl Times {
    fn preflight(&self) -> Duration {
        self.check + self.order + self.conclude
    }
}

/// From the proposal to the end of its preflight.
async fn prepare(replays: &Replays, messages: i64) -> Times {
    let proposal = Proposal {
        cluster: "main".into(),
        topic: DLQ.into(),
        wanted: Wanted::Filter { filter: Box::new(MessageFilter::default()), query: String::new() },
        reason: "a measurement".into(),
        target: None,
        max_per_second: None,
        canary: None,
        stop_on_returned_pct: None,
        transform: None,
        waivers: Vec::new(),
        why_now: None,
        incident: None,
        auto_submit: false,
        emergency: false,
        form_id: "bench".into(),
    };
    let by = By { actor: "bench".into(), request_id: None };
    let id = replays.propose(&by, &OwnerScope::All, proposal).await.unwrap().batch.id;
    let mut times = Times::default();
    loop {
        let batch = replays.store.batch(id).await.unwrap().unwrap();
        if batch.step == Step::Ready {
            assert_eq!(batch.forecast.unwrap().send, messages.unsigned_abs(), "{:?}", batch.note);
            return times;
        }
        let began = Instant::now();
        assert_eq!(replays.prepare_batch(&batch).await.unwrap(), Prepared::More);
        let time = match batch.step {
            Step::Freezing => &mut times.freeze,
            Step::Checking => &mut times.check,
            Step::Blocking | Step::Staging => &mut times.order,
            _ => &mut times.conclude,
        };
        *time += began.elapsed();
    }
}

/// Runs `work` while another DLQ takes in and a page is read; gives the 99th percentile of both.
async fn beside<T>(store: &Store, settings: &DlqSettings, work: impl Future<Output = T>) -> ((Duration, Duration), T) {
    let over = Arc::new(AtomicBool::new(false));
    let (ended, taking_store, settings) = (Arc::clone(&over), store.clone(), settings.clone());
    let taking = tokio::spawn(async move {
        static NEXT: AtomicI64 = AtomicI64::new(0);
        let mut intake = Intake::open(&taking_store, &settings, "live.DLQ").await;
        let mut took = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            let first = NEXT.fetch_add(100, Ordering::Relaxed);
            let began = Instant::now();
            intake.take_in(first..first + 100).await;
            took.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        took
    });
    let (ended, reading_store) = (Arc::clone(&over), store.clone());
    let reading = tokio::spawn(async move {
        let filter = MessageFilter { topic: Some(DLQ.into()), ..MessageFilter::default() };
        let mut took = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            let began = Instant::now();
            reading_store.messages(&filter, None, 50).await.unwrap();
            took.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        took
    });
    let done = work.await;
    over.store(true, Ordering::Relaxed);
    ((p99(taking.await.unwrap()), p99(reading.await.unwrap())), done)
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[(times.len() * 99 / 100).min(times.len() - 1)]
}

/// A partition that takes in as intake does.
struct Intake {
    store: Store,
    settings: DlqSettings,
    topic: String,
    id: PartitionId,
}

impl Intake {
    async fn open(store: &Store, settings: &DlqSettings, topic: &str) -> Intake {
        let now = Clock::system().now_ms();
        let (dlq, _) = store.ensure_dlq("main", topic, None, None, now).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
        store.ensure_position(id, 0, now).await.unwrap();
        Intake { store: store.clone(), settings: settings.clone(), topic: topic.into(), id }
    }

    async fn take_in(&mut self, offsets: std::ops::Range<i64>) {
        let now = Clock::system().now_ms();
        let position = self.store.claim_position(self.id, now).await.unwrap().unwrap();
        let (owner_epoch, expected_offset, next_offset) = (position.owner_epoch, position.next_offset, offsets.end);
        let messages = offsets.map(|n| quarantine(record(&self.topic, n, now), &self.settings, &[], now)).collect();
        let batch = PartitionBatch { id: self.id, owner_epoch, expected_offset, next_offset, messages };
        assert!(matches!(self.store.take_in(&[batch], now).await.unwrap(), TakeIn::Committed { .. }));
    }
}

/// Payment `n`, 1 KiB, an hour old, one of 20 failures.
fn record(topic: &str, n: i64, now_ms: i64) -> Record {
    let header = |name: &str, value: Vec<u8>| Header { name: name.into(), value: Some(value) };
    Record {
        topic: topic.into(),
        partition: 0,
        offset: n,
        timestamp_ms: Some(now_ms - 3_600_000),
        key: Some(format!("user-{}", n % 50_000).into_bytes()),
        value: Some(format!(r#"{{"id":{n},"amount_cents":5,"note":"{}"}}"#, "x".repeat(980)).into_bytes()),
        headers: vec![
            header("kafka_dlt-original-topic", b"payments.initiated".to_vec()),
            header("kafka_dlt-original-partition", ((n % 12) as i32).to_be_bytes().to_vec()),
            header("kafka_dlt-original-offset", n.to_be_bytes().to_vec()),
            header("kafka_dlt-original-timestamp", (now_ms - 3_700_000).to_be_bytes().to_vec()),
            header("kafka_dlt-original-consumer-group", b"wallet".to_vec()),
            header("kafka_dlt-exception-fqcn", format!("com.example.Failure{}", n % 20).into_bytes()),
            header("kafka_dlt-exception-message", b"wallet did not answer".to_vec()),
        ],
    }
}

async fn replays(store: &Store, bootstrap: &str, folder: &Path) -> Replays {
    std::fs::write(folder.join("payment.json"), SCHEMA).unwrap();
    let url = format!("sqlite://{}", folder.join("wallet.db").display());
    let ledger = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    sqlx::query("CREATE TABLE applied (event_id TEXT PRIMARY KEY)").execute(&ledger).await.unwrap();
    let text = format!(
        "[clusters.main]\nbootstrap_servers = '{bootstrap}'\n[schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n\
         [ledgers.wallet.durable]\nkind = 'sql'\nurl = '{url}'\nquery = 'SELECT event_id FROM applied WHERE event_id IN (SELECT value FROM json_each($1))'\n\
         [[dlq]]\ncluster = 'main'\ntopics = ['{DLQ}']\nconsumer_group = 'wallet'\nbusiness_key = '{{value:/id}}'\n\
         [dlq.schema]\nuse = 'payment'\n[dlq.idempotency]\nledger = 'wallet'\n"
    );
    let config = Config::from_text(&text, "bench", folder.to_owned(), Vec::new(), Purpose::Check).unwrap();
    let cluster = |settings: &lazaret::domain::settings::ClusterSettings| {
        let inspector = Arc::new(Inspector::connect(settings).unwrap());
        (settings.name.clone(), Cluster { settings: settings.clone(), inspector })
    };
    Replays {
        store: store.clone(),
        clock: Clock::system(),
        dlqs: config.dlq_settings().into(),
        terms: config.dlqs.iter().map(|dlq| dlq.replay.clone()).collect(),
        approval: config.approval.clone(),
        checker: Checker::new(&config.ledgers, &config.schemas),
        clusters: Arc::new(config.clusters.iter().map(cluster).collect()),
    }
}
