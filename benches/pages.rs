//! How long the pages take that everyone looks at first, with 1,000 stored messages and with 1,000,000.
//!
//! Each store has 200 DLQs of five failure groups each, its messages half within the last 24 hours and half over 28 days, and two days of
//! samples at the sampler's interval, which is as much as housekeeping leaves unthinned. The first 10,000 messages go in through `take_in`. Of those the
//! database makes the rest itself, each copy with an id, offset and times of its own but the keys of its model and no body, which no list reads; the
//! counters are then counted anew and compared by `check_counters`. A request goes through the whole router: token, queries, page. Small and
//! large take turns in one run.
//!
//! `cargo bench --bench pages`; PostgreSQL takes part when `LAZARET_TEST_POSTGRES` is set. For a try-out,
//! `LAZARET_BENCH_LARGE` is another number of messages (the lines then name it), `LAZARET_BENCH_ROUNDS` of requests, and `-- sqlite` or
//! `-- postgres` names one database. Exit code 1 when a target is missed: p99 at most 1.5 times that of the small store, or under 10 ms.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement: it reads the clock, makes databases of its own, and stops at the first surprise"
)]

#[allow(dead_code, reason = "its other half copies rows, for another bench")]
#[path = "common/postgres.rs"]
mod postgres;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::audit::AuditKey;
use lazaret::domain::classify::FailureClass;
use lazaret::domain::clock::Clock;
use lazaret::domain::dialect::Origin;
use lazaret::domain::message::{GroupIdentity, NewMessage};
use lazaret::domain::record::{Header, Record};
use lazaret::domain::returns::Traces;
use lazaret::domain::settings::{DlqSettings, TopicMatch};
use lazaret::services::access::Access;
use lazaret::store::Store;
use lazaret::store::messages::{MessageFilter, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::web::{AppState, WebOptions, router};
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;

const DLQS: i64 = 200;
const GROUPS: i64 = 5;
const SMALL: i64 = 1_000;
const LARGE: i64 = 1_000_000;
/// More than these are copies.
const MODELS: i64 = 10_000;
/// Messages of one DLQ in one take-in; all DLQs together make the 2,000 that intake hands over at most.
const EACH: i64 = 10;
const ROUNDS: usize = 400;
const NOW: i64 = 1_796_083_200_000;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
const INTERVAL: i64 = 15_000;
const TOKEN: &str = "a-viewer-token-for-the-bench";
/// At most so many times the small store's p99 ..
const TARGET_RATIO: f64 = 1.5;
/// .. or under this.
const TARGET_MS: f64 = 10.0;

#[tokio::main]
async fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let large: i64 = std::env::var("LAZARET_BENCH_LARGE").map_or(LARGE, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let wanted = |database: &str| {
        let named: Vec<String> = std::env::args().skip(1).filter(|argument| argument == "sqlite" || argument == "postgres").collect();
        named.is_empty() || named.iter().any(|name| name == database)
    };
    let mut met = true;
    if wanted("sqlite") {
        met &= compare("sqlite", &url("small.db"), &url("large.db"), large).await;
    }
    match std::env::var("LAZARET_TEST_POSTGRES") {
        _ if !wanted("postgres") => {}
        Ok(server) => {
            let mut databases = postgres::Databases::on(&server).await;
            let (small, full) = (databases.make("pages_small").await, databases.make("pages_large").await);
            met &= compare("postgres", &small, &full, large).await;
            databases.drop_all().await;
        }
        Err(_) => println!(
            "pages-postgres not run: LAZARET_TEST_POSTGRES is not set; eval \"$(tests/services/ctl up)\" starts a server and sets it"
        ),
    }
    if !met {
        std::process::exit(1);
    }
}

/// Both stores of one database. False: a target was missed.
async fn compare(database: &str, small: &str, large: &str, many: i64) -> bool {
    let (small, large) = tokio::join!(Side::open(small, SMALL), Side::open(large, many));
    let rounds: usize = std::env::var("LAZARET_BENCH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    println!(
        "pages-fill-{database} {} messages in {:.0}s, samples in {:.0}s",
        many,
        large.fill.as_secs_f64(),
        large.sampling.as_secs_f64()
    );
    let mut met = true;
    for case in CASES {
        let (mut few, mut many) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        let (small_path, large_path) = (case.path(&small), case.path(&large));
        for round in 0..rounds + 10 {
            // Whoever comes first alternates; the first rounds warm connections and statements.
            let (a, b) = if round % 2 == 0 {
                let a = small.request(&small_path).await;
                (a, large.request(&large_path).await)
            } else {
                let b = large.request(&large_path).await;
                (small.request(&small_path).await, b)
            };
            if round >= 10 {
                few.push(a);
                many.push(b);
            }
        }
        met &= report(&format!("pages-{}-{database}", case.name), few, many, large.messages);
    }
    met
}

/// Prints the lines of one case. False: the target was missed.
fn report(name: &str, mut small: Vec<Duration>, mut large: Vec<Duration>, messages: i64) -> bool {
    small.sort();
    large.sort();
    let size = if messages == LARGE { "1M".to_owned() } else { messages.to_string() };
    let at = |times: &[Duration], part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)].as_secs_f64() * 1_000.0;
    let mut met = true;
    for (word, part) in [("p50", 0.5), ("p99", 0.99)] {
        let (few, many) = (at(&small, part), at(&large, part));
        println!("{name} {word} 1k {few:.1}ms {size} {many:.1}ms ratio {:.2}", many / few);
        met = many / few <= TARGET_RATIO || many < TARGET_MS;
    }
    met
}

/// One kind of request.
struct Case {
    name: &'static str,
    path: fn(&Side) -> String,
}

impl Case {
    fn path(&self, side: &Side) -> String {
        (self.path)(side)
    }
}

const CASES: &[Case] = &[
    Case { name: "overview", path: |_| "/".to_owned() },
    Case { name: "messages", path: |_| "/messages".to_owned() },
    Case { name: "messages-middle", path: |side| format!("/messages?after={}", side.messages / 2) },
    Case { name: "messages-state", path: |_| "/messages?state=quarantined".to_owned() },
    Case { name: "messages-empty-state", path: |_| "/messages?state=under_review".to_owned() },
    Case { name: "messages-topic", path: |_| format!("/messages?topic={}", topic(7)) },
    Case { name: "messages-class", path: |_| "/messages?class=deserialization".to_owned() },
    Case { name: "messages-group", path: |side| format!("/messages?group={}", side.group) },
    Case { name: "messages-q-key", path: |_| "/messages?q=pay-000000000777".to_owned() },
    Case { name: "messages-q-prefix", path: |_| "/messages?q=com.example.payments.Failure3".to_owned() },
    Case { name: "messages-last-hour", path: |_| format!("/messages?from_ms={}&to_ms={NOW}", NOW - HOUR) },
    Case { name: "messages-old-day", path: |_| format!("/messages?from_ms={}&to_ms={}", NOW - 10 * DAY, NOW - 9 * DAY) },
    Case { name: "messages-topic-range", path: |_| format!("/messages?topic={}&from_ms={}&to_ms={NOW}", topic(7), NOW - 6 * HOUR) },
];

fn topic(dlq: i64) -> String {
    format!("team-{}.service-{dlq}.DLQ", dlq % 17)
}

/// A filled store with its router.
struct Side {
    router: Router,
    messages: i64,
    group: i64,
    fill: Duration,
    sampling: Duration,
}

impl Side {
    async fn open(url: &str, messages: i64) -> Side {
        let store = Store::connect(url).await.unwrap();
        store.migrate().await.unwrap();
        let started = Instant::now();
        fill(&store, messages).await;
        let fill = started.elapsed();
        let started = Instant::now();
        samples(&store).await;
        let sampling = started.elapsed();
        statement(&store, "ANALYZE").await;
        let page =
            store.messages(&MessageFilter { class: Some(FailureClass::Validation), ..MessageFilter::default() }, None, 1).await.unwrap();
        let clock = Clock::fake(NOW);
        let store = store.with_audit_key(AuditKey::new(vec![7; 32]).unwrap());
        let access = Access::new(store.clone(), clock.clone(), 12);
        access.create_token("bench", Role::Viewer, OwnerScope::All, None, Some(TOKEN)).await.unwrap();
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Pattern(regex::Regex::new(".").unwrap()));
        settings.owner = Some("payments".into());
        let options = WebOptions {
            dlqs: vec![settings],
            sample_interval_ms: BTreeMap::from([("main".to_owned(), INTERVAL)]),
            ..WebOptions::default()
        };
        let router = router(AppState::new(store, access, clock, options).unwrap());
        Side { router, messages, group: page.items[0].group_id, fill, sampling }
    }

    /// Asks for a page, reads all of it, and says how long that took.
    async fn request(&self, path: &str) -> Duration {
        let request = Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}")).body(Body::empty()).unwrap();
        let router = self.router.clone();
        let started = Instant::now();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let took = started.elapsed();
        assert_eq!(status, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&body));
        took
    }
}

async fn fill(store: &Store, messages: i64) {
    let mut partitions = Vec::new();
    for dlq in 0..DLQS {
        let (dlq, _) = store.ensure_dlq("main", &topic(dlq), None, Some("payments"), NOW - 30 * DAY).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 0 };
        store.ensure_position(id, 0, NOW).await.unwrap();
        partitions.push((id, store.claim_position(id, NOW).await.unwrap().unwrap().owner_epoch));
    }
    let per_dlq = messages / DLQS;
    let models = messages.min(MODELS) / DLQS;
    for from in (0..models).step_by(EACH as usize) {
        let to = (from + EACH).min(models);
        let batch = |(dlq, (id, owner_epoch)): (usize, &(PartitionId, i64))| PartitionBatch {
            id: *id,
            owner_epoch: *owner_epoch,
            expected_offset: from,
            next_offset: to,
            messages: (from..to).map(|offset| message(dlq as i64, offset, per_dlq)).collect(),
        };
        let batches: Vec<PartitionBatch> = partitions.iter().enumerate().map(batch).collect();
        let taken = store.take_in(&batches, NOW).await.unwrap();
        assert_eq!(taken, TakeIn::Committed { stored: ((to - from) * DLQS) as u64 });
        while store.fold_counters(5_000).await.unwrap() >= 5_000 {}
    }
    while store.fold_counters(5_000).await.unwrap() > 0 {}
    if per_dlq > models {
        copy(store, models, per_dlq).await;
    }
}

/// Makes `per_dlq` messages of each DLQ out of the `models` that are there, with the times that [`at`] gives, and counts them.
async fn copy(store: &Store, models: i64, per_dlq: i64) {
    let (all, half, last) = (models * DLQS, per_dlq / 2, per_dlq / models - 1);
    let (step, fine_step) = (28 * DAY / half, DAY / (per_dlq - half));
    let numbers = format!("WITH RECURSIVE n(k) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT k + 1 FROM n WHERE k < {last})");
    // Where a model's time lies beside the line that all of its DLQ lie on, and the line of its copy.
    let beside = format!("m.dead_lettered_at_ms - {} - {step} * m.record_offset", NOW - 1_000 - 28 * DAY);
    let time = format!(
        "{beside} + CASE WHEN m.record_offset + k * {models} < {half} THEN {} + {step} * (m.record_offset + k * {models}) \
         ELSE {} + {fine_step} * (m.record_offset + k * {models} - {half}) END",
        NOW - 1_000 - 28 * DAY,
        NOW - 1_000 - DAY
    );
    let same = "size, origin_offset, attempts, key_hash, business_hash, incarnation, partition, rewrite, lap, origin_partition, timestamp_suspect, state, \
                class, dialect, class_reason, body_hash, record_key, business_key, tenant, exception_class, exception_message, origin_topic, consumer_group";
    statement(
        store,
        &format!(
            "INSERT INTO messages (id, dlq_id, group_id, record_offset, dead_lettered_at_ms, first_seen_at_ms, record_at_ms, origin_at_ms, {same}) {numbers} \
             SELECT m.id + k * {all}, m.dlq_id, m.group_id, m.record_offset + k * {models}, {time}, m.first_seen_at_ms, {time}, {time} - 900, {same} \
             FROM n CROSS JOIN messages m WHERE m.id <= {all} ORDER BY k, m.id"
        ),
    )
    .await;
    statement(store, "DELETE FROM counters").await;
    let counted = [
        ("'state/quarantined'", "0", "NULL", "NULL"),
        ("'arrivals'", "dead_lettered_at_ms - dead_lettered_at_ms % 60000", "NULL", "NULL"),
        ("'arrivals_30m'", "dead_lettered_at_ms - dead_lettered_at_ms % 1800000", "NULL", "NULL"),
        ("'group_open'", "group_id", "NULL", "NULL"),
        ("'group_total'", "group_id", "MIN(dead_lettered_at_ms)", "MAX(dead_lettered_at_ms)"),
    ];
    for (kind, of, first, last) in counted {
        let sql = format!(
            "INSERT INTO counters (dlq_id, kind, ref, amount, first_ms, last_ms) \
             SELECT dlq_id, {kind}, {of}, COUNT(*), CAST({first} AS BIGINT), CAST({last} AS BIGINT) FROM messages GROUP BY dlq_id, 2, 3"
        );
        statement(store, &sql).await;
    }
    for dlq in store.dlqs().await.unwrap().iter().step_by(67) {
        assert_eq!(store.check_counters(dlq.id).await.unwrap(), []);
        assert_eq!(store.dlq_counts(None).await.unwrap()[&dlq.id].depth(), per_dlq);
    }
}

/// When the message of this offset was dead-lettered: one half over 28 days, then the other over the last 24 hours.
fn at(dlq: i64, offset: i64, of: i64) -> i64 {
    let half = (of / 2).max(1);
    let (span, place, among) = if offset < half { (28 * DAY, offset, half) } else { (DAY, offset - half, (of - half).max(1)) };
    NOW - 1_000 - span + span / among * place + dlq * 37 % 1_000
}

/// A plausible dead letter with 256 bytes of value.
fn message(dlq: i64, offset: i64, of: i64) -> NewMessage {
    let number = dlq + offset * DLQS;
    let mut value = format!("{{\"payment_id\":\"pay-{number:012}\",\"amount\":{},\"note\":\"", number % 10_000).into_bytes();
    value.resize(254, b'x');
    value.extend(b"\"}");
    let kind = (offset + dlq) % GROUPS;
    let class =
        [FailureClass::Transient, FailureClass::Deserialization, FailureClass::Validation, FailureClass::Business, FailureClass::Bug]
            [kind as usize];
    let exception = format!("com.example.payments.Failure{kind}");
    let text = format!("wallet {number} did not answer");
    let header = |name: &str, value: &str| Header { name: name.as_bytes().to_vec(), value: Some(value.as_bytes().to_vec()) };
    let hash: [u8; 32] = Sha256::digest(&value).into();
    NewMessage {
        body_hash: hash,
        dialect: "spring_dlt".into(),
        class,
        class_reason: "built-in: java.net.SocketTimeoutException".into(),
        group: GroupIdentity {
            fingerprint: format!("{kind:064}"),
            consumer_group: Some("wallet".into()),
            class,
            exception_class: Some(exception.clone()),
            normalised_text: "wallet <n> did not answer".into(),
            top_frame: Some("com.example.payments.Wallet.debit".into()),
        },
        record: Record {
            topic: topic(dlq),
            partition: 0,
            offset,
            timestamp_ms: Some(at(dlq, offset, of)),
            key: Some(format!("user-{}", number * 7_919 % 100_000).into_bytes()),
            value: Some(value),
            headers: vec![
                header("kafka_dlt-original-topic", "payments.initiated"),
                header("kafka_dlt-exception-fqcn", &exception),
                header("kafka_dlt-exception-message", &text),
            ],
        },
        exception_class: Some(exception),
        exception_message: Some(text),
        origin: Some(Origin {
            topic: Some("payments.initiated".into()),
            partition: Some(3),
            offset: Some(offset * 3),
            timestamp_ms: Some(at(dlq, offset, of) - 900),
        }),
        traces: Traces::default(),
        consumer_group: Some("wallet".into()),
        attempts: Some(3),
        lap: 1,
        key_masked: false,
        business_key: Some(format!("pay-{number:012}")),
        tenant: None,
        record_at_ms: Some(at(dlq, offset, of)),
        dead_lettered_at_ms: at(dlq, offset, of),
        timestamp_suspect: false,
        first_seen_at_ms: NOW,
    }
}

/// Two days of looks at each DLQ, made by the database itself.
async fn samples(store: &Store) {
    const COLUMNS: &str = "INSERT INTO samples (dlq_id, at_ms, uncollected, depth, at_risk_state)";
    let looks = 2 * DAY / INTERVAL - 1;
    let times = match store {
        Store::Postgres(_) => format!(
            "{COLUMNS} SELECT d.id, {NOW} - k * {INTERVAL}, 0, 100, 'all_stored' FROM dlqs d CROSS JOIN generate_series(0, {looks}) k ORDER BY 1, 2"
        ),
        Store::Sqlite(_) => format!(
            "{COLUMNS} WITH RECURSIVE n(k) AS (SELECT {looks} UNION ALL SELECT k - 1 FROM n WHERE k > 0) \
             SELECT d.id, {NOW} - k * {INTERVAL}, 0, 100, 'all_stored' FROM n CROSS JOIN dlqs d"
        ),
    };
    statement(store, &times).await;
}

/// A statement of the bench's own, outside the store's time limits.
async fn statement(store: &Store, sql: &str) {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    match store {
        Store::Postgres(database) => {
            let mut connection = database.pool.acquire().await.unwrap();
            sqlx::query("SET statement_timeout = 0").execute(&mut *connection).await.unwrap();
            sqlx::query(sql).execute(&mut *connection).await.unwrap();
            sqlx::query("SET statement_timeout = '30s'").execute(&mut *connection).await.unwrap();
        }
        Store::Sqlite(database) => drop(sqlx::query(sql).execute(&database.writer).await.unwrap()),
    }
}
