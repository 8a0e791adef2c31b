//! Intake as a whole: from a real Kafka to PostgreSQL, broker and database on the same machine.
//!
//! Ours is what the process runs: the consumer's thread, the state machine, reading and classifying, one transaction a batch. The reference is
//! `COPY` of the same rows into the same tables (see `common/postgres.rs`). 512-byte values with the headers Spring writes, four
//! partitions; each of five rounds reads its own records with a new consumer, timed from its first batch, then copies its reference, then
//! reads the same records again. Joining the group is not counted.
//!
//! - `intake-kafka-postgres`: messages a second, ours against COPY (goal: at least 0.35).
//! - `intake-kafka-again`: everything read again from the beginning, against reading it the first time (goal: no slower), no new row.
//! - `intake-memory`: resident megabytes of `lazaret serve` itself, idle (goal: at most 60) and at most while taking in 1,000,000 messages
//!   (goal: at most 200).
//!
//! `cargo bench --bench intake_kafka` with the servers of `tests/services/ctl up`. Exit code 1 when a goal is missed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a measurement: it makes databases of its own, and stops at the first surprise"
)]

#[path = "common/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::domain::settings::{ClusterSettings, DlqSettings, TopicMatch};
use lazaret::domain::template::KeyTemplate;
use lazaret::jobs::intake::LIMITS;
use lazaret::kafka::inspect::Inspector;
use lazaret::kafka::intake::{IntakeConsumer, IntakeEvent};
use lazaret::services::intake::{ClusterStatus, Intake};
use lazaret::store::Store;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

const PARTITIONS: i32 = 4;
const ROUNDS: usize = 5;
const PER_ROUND: i64 = 60_000;
const MEMORY_MESSAGES: i64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (Ok(bootstrap), Ok(server)) = (std::env::var("LAZARET_TEST_KAFKA"), std::env::var("LAZARET_TEST_POSTGRES")) else {
        println!(
            "intake-kafka not run: LAZARET_TEST_KAFKA and LAZARET_TEST_POSTGRES are not set; eval \"$(tests/services/ctl up)\" sets them"
        );
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let met = runtime.block_on(async {
        let speed = speed(&bootstrap, &server).await;
        let memory = memory(&bootstrap, &server).await;
        speed && memory
    });
    if !met {
        std::process::exit(1);
    }
}

async fn speed(bootstrap: &str, server: &str) -> bool {
    let broker = Broker::new(bootstrap);
    let topic = broker.create("speed").await;
    let mut databases = postgres::Databases::on(server).await;
    let (ours, reference) = (databases.make("ours").await, databases.make("reference").await);
    let (ours, reference) = (Store::connect(&ours).await.unwrap(), Store::connect(&reference).await.unwrap());
    let (Store::Postgres(source), Store::Postgres(target)) = (&ours, &reference) else { unreachable!("both are PostgreSQL") };
    let (mut first, mut copied, mut again, mut last_id) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 1..=ROUNDS as i64 {
        broker.produce(&topic, (round - 1) * PER_ROUND, PER_ROUND);
        databases.settle().await;
        first.push(take_in(bootstrap, &topic, &ours, round * PER_ROUND).await);
        let rows = postgres::encode(&source.pool, last_id, PER_ROUND, LIMITS.records as i64).await;
        last_id = sqlx::query_scalar("SELECT MAX(id) FROM messages").fetch_one(&source.pool).await.unwrap();
        databases.settle().await;
        copied.push(postgres::copy(&target.pool, &rows).await);
        let back = "UPDATE positions SET next_offset = next_offset - $1";
        sqlx::query(back).bind(PER_ROUND / i64::from(PARTITIONS)).execute(&source.pool).await.unwrap();
        databases.settle().await;
        again.push(take_in(bootstrap, &topic, &ours, round * PER_ROUND).await);
    }
    let all = ROUNDS as i64 * PER_ROUND;
    let count = "SELECT COUNT(*) FROM messages JOIN bodies ON message_id = id";
    for pool in [&source.pool, &target.pool] {
        assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(pool).await.unwrap(), all, "reading again stores nothing");
    }
    broker.delete(&topic).await;
    source.pool.close().await;
    target.pool.close().await;
    databases.drop_all().await;
    let (first, copied, again) = (rate(first, PER_ROUND), rate(copied, PER_ROUND), rate(again, PER_ROUND));
    line("intake-kafka-postgres", first, copied) >= 0.35 && line("intake-kafka-again", again, first) >= 1.0
}

fn rate(mut times: Vec<Duration>, messages: i64) -> f64 {
    times.sort();
    messages as f64 / times[times.len() / 2].as_secs_f64()
}

fn line(name: &str, ours: f64, reference: f64) -> f64 {
    println!("{name} ours {ours:.0} msg/s reference {reference:.0} msg/s ratio {:.2}", ours / reference);
    ours / reference
}

/// Reads until the positions add up to `until`, with a new consumer; the time from its first batch.
async fn take_in(bootstrap: &str, topic: &str, store: &Store, until: i64) -> Duration {
    let clock = Clock::system();
    let (mut intake, mut consumer) = instance(bootstrap, topic, store, &clock);
    let mut began = None;
    loop {
        let commands = tokio::select! {
            biased;
            event = consumer.next_event(), if !intake.is_stalled() => {
                if began.is_none() && matches!(event, IntakeEvent::Batch(_)) {
                    began = Some(clock.monotonic());
                }
                intake.on_event(event).await
            }
            () = tokio::time::sleep(intake.due_in()) => intake.tick().await,
        };
        for command in commands {
            consumer.command(command);
        }
        if let Some(began) = began
            && read(store).await >= until
        {
            let took = clock.monotonic() - began;
            consumer.stop().await;
            return took;
        }
    }
}

async fn read(store: &Store) -> i64 {
    store.positions(None).await.unwrap().iter().map(|position| position.next_offset).sum()
}

fn instance(bootstrap: &str, topic: &str, store: &Store, clock: &Clock) -> (Intake, IntakeConsumer) {
    let cluster = ClusterSettings {
        name: "bench".to_owned(),
        bootstrap_servers: bootstrap.to_owned(),
        properties: BTreeMap::new(),
        oauth_token: None,
        discovery_interval_s: 30,
        sample_interval_s: 15,
        group_id: format!("lazaret-bench-{topic}"),
    };
    let mut dlq = DlqSettings::for_topics("bench", TopicMatch::Names(vec![topic.to_owned()]));
    dlq.business_key = Some(KeyTemplate::parse("{value:/payment_id}").unwrap());
    let inspector = Arc::new(Inspector::connect(&cluster).unwrap());
    let status = ClusterStatus::new("bench");
    let intake = Intake::new(store.clone(), inspector, clock.clone(), &cluster, vec![dlq], Vec::new(), status);
    (intake, IntakeConsumer::start(&cluster, LIMITS).unwrap())
}

/// `lazaret serve` takes a million messages in; what it holds when idle, and at most.
async fn memory(bootstrap: &str, server: &str) -> bool {
    let broker = Broker::new(bootstrap);
    let topic = broker.create("memory").await;
    let mut databases = postgres::Databases::on(server).await;
    let url = databases.make("memory").await;
    let folder = tempfile::tempdir().unwrap();
    let mut serve = tokio::process::Command::new(env!("CARGO_BIN_EXE_lazaret"))
        .args(["serve", "--read-only", "--bootstrap", bootstrap, "--dlq", &format!("^{topic}$"), "--listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .env("LAZARET_DATABASE__URL", &url)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let process = serve.id().unwrap();
    let store = Store::connect(&url).await.unwrap();
    until(|| async { !store.dlqs().await.unwrap().is_empty() }).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = resident(process, "VmRSS");
    broker.produce(&topic, 0, MEMORY_MESSAGES);
    until(|| async { read(&store).await == MEMORY_MESSAGES }).await;
    let most = resident(process, "VmHWM");
    serve.kill().await.unwrap();
    broker.delete(&topic).await;
    databases.drop_all().await;
    println!("intake-memory idle {idle:.0} MB goal 60 MB, taking in {MEMORY_MESSAGES} messages at most {most:.0} MB goal 200 MB");
    idle <= 60.0 && most <= 200.0
}

async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    tokio::time::timeout(PATIENCE * 5, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await
    .unwrap();
}

/// A line of a process's status file, in megabytes.
fn resident(process: u32, name: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn header<'a>(key: &'a str, value: &'a [u8]) -> Header<'a, &'a [u8]> {
    Header { key, value: Some(value) }
}

struct Broker {
    admin: AdminClient<DefaultClientContext>,
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl Broker {
    fn new(bootstrap: &str) -> Broker {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("linger.ms", "20").set("queue.buffering.max.messages", "50000");
        Broker { admin: config.create().unwrap(), producer: config.create().unwrap() }
    }

    async fn create(&self, name: &str) -> String {
        let topic = format!("lazaret-bench-{name}-{}", std::process::id());
        let wanted = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1)).set("retention.ms", "-1");
        for made in self.admin.create_topics(&[wanted], &AdminOptions::new().operation_timeout(Some(PATIENCE))).await.unwrap() {
            made.unwrap();
        }
        topic
    }

    async fn delete(&self, topic: &str) {
        self.admin.delete_topics(&[topic], &AdminOptions::new()).await.unwrap();
    }

    /// Records `from..from + count`, spread evenly, each with a 512-byte value.
    fn produce(&self, topic: &str, from: i64, count: i64) {
        for n in from..from + count {
            let mut value = format!("{{\"payment_id\":\"pay-{n:012}\",\"amount\":{},\"note\":\"", n % 10_000);
            while value.len() < 510 {
                value.push(char::from(b'a' + u8::try_from((n + value.len() as i64 * 7) % 26).unwrap()));
            }
            value.push_str("\"}");
            let key = format!("user-{}", n * 7_919 % 100_000);
            let (offset, kind, text) =
                (n.to_be_bytes(), format!("com.example.payments.Failure{}", n % 20), format!("wallet {n} did not answer"));
            let headers = OwnedHeaders::new()
                .insert(header("kafka_dlt-original-topic", b"payments.initiated"))
                .insert(header("kafka_dlt-original-partition", &3_i32.to_be_bytes()))
                .insert(header("kafka_dlt-original-offset", &offset))
                .insert(header("kafka_dlt-original-consumer-group", b"wallet"))
                .insert(header("kafka_dlt-exception-fqcn", kind.as_bytes()))
                .insert(header("kafka_dlt-exception-message", text.as_bytes()));
            let partition = i32::try_from(n % i64::from(PARTITIONS)).unwrap();
            let mut record = BaseRecord::to(topic).key(&key).payload(&value).partition(partition).headers(headers);
            while let Err((error, back)) = self.producer.send(record) {
                assert!(matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)), "{error}");
                self.producer.flush(PATIENCE).unwrap();
                record = back;
            }
        }
        self.producer.flush(PATIENCE).unwrap();
    }
}
