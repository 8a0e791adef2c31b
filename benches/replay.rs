//! A replay from proposal to the last outcome: 100,000 messages of 1 KiB, JSON Schema, a two-tier ledger (Redis, then SQL), durable intents and outcomes,
//! no limit of pace. On either database, on one real broker.
//!
//! Prints how fast the preflight looks at messages, how fast the replay sends them, their ratio, and what `kcat -C | kcat -P` makes of the same records on
//! the same broker; then where the executor's time went.
//!
//! `eval "$(tests/services/ctl up)" && cargo bench --bench replay [-- MESSAGES]`. Exit code 1 when a target is missed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement: it reads the clock, makes databases of its own, and stops at the first surprise"
)]

#[path = "common/postgres.rs"]
#[allow(dead_code, reason = "shared with the bench of intake")]
mod databases;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use databases::Databases;
use lazaret::config::{Config, Purpose};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::audit::{AuditKey, By};
use lazaret::domain::clock::Clock;
use lazaret::domain::message::quarantine;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::replay::{BatchState, Step};
use lazaret::jobs::Supervisor;
use lazaret::jobs::replay::ReplayJob;
use lazaret::kafka::inspect::Inspector;
use lazaret::services::replay::approval::Decider;
use lazaret::services::replay::check::Checker;
use lazaret::services::replay::executor::Timing;
use lazaret::services::replay::propose::{Proposal, Wanted};
use lazaret::services::replay::{Cluster, Replays};
use lazaret::store::Store;
use lazaret::store::messages::PartitionBatch;
use lazaret::store::positions::PartitionId;
use lazaret::telemetry;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

const MESSAGES: usize = 100_000;
const PARTITIONS: i32 = 6;
/// Of the same run's preflight.
const RATIO: f64 = 0.5;
/// Messages a second.
const RATE: f64 = 5_000.0;
/// Of 100,000 messages.
const PREFLIGHT: Duration = Duration::from_secs(10);
const SCHEMA: &str = r#"{"type":"object","required":["payment_id","amount","currency","note"],"properties":{"payment_id":{"type":"string","minLength":3},
    "amount":{"type":"integer","minimum":0},"currency":{"enum":["EUR","USD"]},"note":{"type":"string"}}}"#;

struct Servers {
    kafka: String,
    postgres: String,
    redis: String,
    kcat: String,
}

/// Seconds of each part, and what the executor was busy with.
struct Measured {
    freeze: Duration,
    preflight: Duration,
    replay: Duration,
    kcat: Duration,
    phases: Vec<(String, f64)>,
}

#[tokio::main]
async fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let variable = |name: &str| std::env::var(name);
    let (Ok(kafka), Ok(postgres), Ok(redis)) =
        (variable("LAZARET_TEST_KAFKA"), variable("LAZARET_TEST_POSTGRES"), variable("LAZARET_TEST_REDIS"))
    else {
        println!("replay not run: it needs a real Kafka, PostgreSQL and Redis; eval \"$(tests/services/ctl up)\" starts them");
        return;
    };
    let servers = Servers { kafka, postgres, redis, kcat: variable("LAZARET_TEST_KCAT").unwrap_or_else(|_| "kcat".to_owned()) };
    let messages = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(MESSAGES);
    rustls::crypto::ring::default_provider().install_default().ok();
    let metrics = telemetry::install_metrics().unwrap();
    let mut databases = Databases::on(&servers.postgres).await;
    let mut met = true;
    for base in ["postgres", "sqlite"] {
        let folder = tempfile::tempdir().unwrap();
        let url = match base {
            "postgres" => databases.make("replay").await,
            _ => format!("sqlite://{}", folder.path().join("lazaret.db").display()),
        };
        let ledger = databases.make(&format!("ledger_{base}")).await;
        databases.settle().await;
        let before = phases(&metrics.render());
        let mut measured = run(&servers, folder.path(), &url, &ledger, messages).await;
        let after = phases(&metrics.render());
        measured.phases = after.into_iter().map(|(phase, sum)| (phase.clone(), sum - before.get(&phase).copied().unwrap_or(0.0))).collect();
        met &= report(base, messages, &measured);
    }
    databases.drop_all().await;
    if !met {
        std::process::exit(1);
    }
}

/// Prints the lines of one database. False: a target was missed.
fn report(base: &str, messages: usize, measured: &Measured) -> bool {
    let rate = |time: Duration| messages as f64 / time.as_secs_f64();
    let (preflight, replay, kcat) = (rate(measured.preflight), rate(measured.replay), rate(measured.kcat));
    println!(
        "replay-{base} freeze {:.0} msg/s preflight {preflight:.0} msg/s ({:.1} s) replay {replay:.0} msg/s replay/preflight {:.2} kcat -C | kcat -P {kcat:.0} msg/s replay/kcat {:.3}",
        rate(measured.freeze),
        measured.preflight.as_secs_f64(),
        replay / preflight,
        replay / kcat,
    );
    let total = measured.replay.as_secs_f64();
    let parts: Vec<String> =
        measured.phases.iter().map(|(phase, sum)| format!("{phase} {sum:.1} s ({:.0} %)", 100.0 * sum / total)).collect();
    println!("replay-{base} of {total:.1} s the executor spent: {} (look-ahead runs beside produce)", parts.join(", "));
    let preflight_in_time = messages < MESSAGES || measured.preflight <= PREFLIGHT;
    if replay < RATE {
        println!("replay-{base} is below the {RATE:.0} msg/s that are aimed at");
    }
    replay / preflight >= RATIO && preflight_in_time
}

/// Seconds by phase, as the metrics sum them.
fn phases(metrics: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let rest = line.strip_prefix("lazaret_replay_phase_seconds_sum{phase=\"")?;
        let (phase, sum) = rest.split_once("\"} ")?;
        Some((phase.to_owned(), sum.trim().parse().ok()?))
    };
    metrics.lines().filter_map(line).collect()
}

async fn run(servers: &Servers, folder: &Path, url: &str, ledger_url: &str, messages: usize) -> Measured {
    let topic = format!("bench-replay-{}-{}", std::process::id(), Clock::system().now_ms());
    let reference = format!("{topic}-kcat");
    let admin = topics(&servers.kafka, &[&topic, &reference]).await;
    let ledger = sqlx::PgPool::connect(ledger_url).await.unwrap();
    sqlx::query("CREATE TABLE applied (id TEXT PRIMARY KEY)").execute(&ledger).await.unwrap();
    // A ledger that has something to look through.
    sqlx::query("INSERT INTO applied SELECT 'old-' || n FROM generate_series(1, 100000) n").execute(&ledger).await.unwrap();
    std::fs::write(folder.join("payment.json"), SCHEMA).unwrap();
    let config = config(servers, folder, ledger_url, &topic);
    let settings = config.clusters[0].clone();
    let cluster = Cluster { inspector: Arc::new(Inspector::connect(&settings).unwrap()), settings };
    let store = Store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    let replays = Replays {
        store: store.with_audit_key(AuditKey::new(vec![7; 32]).unwrap()),
        clock: Clock::system(),
        dlqs: config.dlq_settings().into(),
        terms: config.dlqs.iter().map(|dlq| dlq.replay.clone()).collect::<Vec<_>>().into(),
        approval: config.approval.clone(),
        checker: Checker::new(&config.ledgers, &config.schemas),
        clusters: Arc::new(BTreeMap::from([("main".to_owned(), cluster.clone())])),
    };
    take_in(&replays, &topic, messages).await;

    let proposal = Proposal {
        cluster: "main".to_owned(),
        topic: format!("{topic}.DLQ"),
        wanted: Wanted::Filter { filter: Box::default(), query: String::new() },
        reason: "a measurement".to_owned(),
        target: None,
        max_per_second: None,
        canary: None,
        stop_on_returned_pct: None,
        transform: None,
        waivers: Vec::new(),
        why_now: Some("a measurement".to_owned()),
        incident: None,
        auto_submit: true,
        emergency: false,
        form_id: topic.clone(),
    };
    let by = By { actor: "otto".to_owned(), request_id: None };
    let id = replays.propose(&by, &OwnerScope::All, proposal).await.unwrap().batch.id;
    let batch = |replays: &Replays| {
        let store = replays.store.clone();
        async move { store.batch(id).await.unwrap().unwrap() }
    };
    let began = Instant::now();
    while batch(&replays).await.step == Step::Freezing {
        replays.prepare("main").await.unwrap();
    }
    let freeze = began.elapsed();
    let began = Instant::now();
    while batch(&replays).await.state != BatchState::AwaitingApproval {
        replays.prepare("main").await.unwrap();
    }
    let preflight = began.elapsed();
    let proposed = batch(&replays).await;
    for n in 0..proposed.quorum {
        let who = Decider {
            by: By { actor: format!("petra-{n}"), request_id: None },
            folded: format!("petra-{n}"),
            role: Role::Approver,
            scope: OwnerScope::All,
        };
        let ticked: Vec<usize> = (0..proposed.warnings.len()).collect();
        replays.approve(&who, id, proposed.digest.as_deref().unwrap(), &ticked, None).await.unwrap();
    }
    let mut supervisor = Supervisor::new(replays.clock.clone());
    ReplayJob { replays: replays.clone(), cluster, holder: topic.clone(), timing: Timing::of_lease(Duration::from_secs(15)) }
        .spawn(&mut supervisor);
    let started = loop {
        if batch(&replays).await.state == BatchState::Executing {
            break Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let ended = loop {
        let batch = batch(&replays).await;
        assert!(matches!(batch.state, BatchState::Executing | BatchState::Executed), "{:?} {:?}", batch.state, batch.note);
        if batch.state == BatchState::Executed {
            assert_eq!(batch.progress.sent, messages as i64);
            break Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    supervisor.shutdown(Duration::from_secs(20)).await;
    let kcat = copy_with_kcat(servers, &topic, &reference);
    admin.delete_topics(&[&topic, &reference], &AdminOptions::new()).await.unwrap();
    Measured { freeze, preflight, replay: ended - started, kcat, phases: Vec::new() }
}

fn config(servers: &Servers, folder: &Path, ledger_url: &str, topic: &str) -> Config {
    let (kafka, redis) = (&servers.kafka, &servers.redis);
    let text = format!(
        "[clusters.main]\nbootstrap_servers = '{kafka}'\n\
         [ledgers.wallet.hot]\nkind = 'redis'\nurl = '{redis}'\nkey = '{topic}:{{id}}'\nttl_s = 86400\n\
         [ledgers.wallet.durable]\nkind = 'sql'\nurl = '{ledger_url}'\nquery = 'SELECT id FROM applied WHERE id = ANY($1)'\n\
         [schemas.payment]\nkind = 'json_schema'\npath = 'payment.json'\n\
         [[dlq]]\ncluster = 'main'\ntopics = ['{topic}.DLQ']\nbusiness_key = '{{value:/payment_id}}'\ncanary = 0\nmax_per_second = 1000000\n\
         [dlq.schema]\nuse = 'payment'\n[dlq.idempotency]\nledger = 'wallet'\n"
    );
    Config::from_text(&text, "bench", folder.to_owned(), Vec::new(), Purpose::Check).unwrap()
}

/// Messages as intake would have stored them: 1 KiB each, 10,000 keys, an hour old.
async fn take_in(replays: &Replays, topic: &str, messages: usize) {
    let (store, now) = (&replays.store, replays.clock.now_ms());
    let (dlq, _) = store.ensure_dlq("main", &format!("{topic}.DLQ"), None, None, now).await.unwrap();
    let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
    store.ensure_position(id, 0, now).await.unwrap();
    let position = store.claim_position(id, now).await.unwrap().unwrap();
    let header = |name: &str, value: &[u8]| Header { name: name.as_bytes().to_vec(), value: Some(value.to_vec()) };
    let message = |n: usize| {
        let head = format!("{{\"payment_id\":\"pay-{n:08}\",\"amount\":{n},\"currency\":\"EUR\",\"note\":\"");
        let value = format!("{head}{}\"}}", "x".repeat(1024 - head.len() - 2)).into_bytes();
        let headers = vec![
            header("kafka_dlt-original-topic", topic.as_bytes()),
            header("kafka_dlt-original-partition", &i32::try_from(n % 6).unwrap().to_be_bytes()),
            header("kafka_dlt-original-offset", &i64::try_from(n).unwrap().to_be_bytes()),
            header("kafka_dlt-exception-fqcn", b"com.acme.WalletUnavailable"),
        ];
        let key = Some(format!("user-{}", n % 10_000).into_bytes());
        let record = Record {
            topic: format!("{topic}.DLQ"),
            partition: 0,
            offset: n as i64,
            timestamp_ms: Some(now - 3_600_000),
            key,
            value: Some(value),
            headers,
        };
        quarantine(record, &replays.dlqs[0], &[], now)
    };
    for first in (0..messages).step_by(2_000) {
        let last = (first + 2_000).min(messages);
        let messages = (first..last).map(message).collect();
        let batch =
            PartitionBatch { id, owner_epoch: position.owner_epoch, expected_offset: first as i64, next_offset: last as i64, messages };
        store.take_in(&[batch], now).await.unwrap();
    }
    // As housekeeping would have left them.
    while store.fold_counters(5_000).await.unwrap() > 0 {}
}

async fn topics(kafka: &str, names: &[&str]) -> AdminClient<DefaultClientContext> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", kafka).set("allow.auto.create.topics", "false").create().unwrap();
    let new: Vec<NewTopic<'_>> = names.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
    for made in admin.create_topics(&new, &AdminOptions::new()).await.unwrap() {
        made.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    admin
}

/// What a person with a shell would do.
fn copy_with_kcat(servers: &Servers, from: &str, to: &str) -> Duration {
    let began = Instant::now();
    let mut reader = Command::new(&servers.kcat)
        .args(["-C", "-q", "-e", "-b", &servers.kafka, "-t", from, "-o", "beginning", "-K", "\t"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let writer = Command::new(&servers.kcat)
        .args(["-P", "-b", &servers.kafka, "-t", to, "-K", "\t", "-X", "acks=all"])
        .stdin(reader.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(writer.success() && reader.wait().unwrap().success());
    began.elapsed()
}
