//! Intake's store alone: how fast messages go in, against the fastest way the database itself has.
//!
//! Ours is [`Store::take_in`] as intake calls it: groups, positions, counter deltas, messages and bodies, 2,000 messages a transaction, 512-byte values.
//! The reference puts the same rows into the same tables with the same indexes in the same transactions: `COPY` on PostgreSQL, one prepared
//! multi-row `INSERT` on SQLite, all of its data encoded before the clock starts. Interleaved, median of five rounds, each side in a
//! database of its own that keeps the rows of the rounds before.
//!
//! `cargo bench --bench intake_store`; PostgreSQL takes part when `LAZARET_TEST_POSTGRES` is set. Exit code 1 when a target is missed.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement: it reads the clock, makes databases of its own, and stops at the first surprise"
)]

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lazaret::domain::classify::FailureClass;
use lazaret::domain::dialect::Origin;
use lazaret::domain::message::{GroupIdentity, NewMessage};
use lazaret::domain::record::{Header, Record};
use lazaret::domain::returns::{Place, Traces};
use lazaret::store::Store;
use lazaret::store::messages::{PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use sha2::{Digest as _, Sha256};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, Connection as _, Row as _, TypeInfo as _, ValueRef as _};

const BATCH: i64 = 2_000;
const BATCHES: i64 = 15;
const ROUNDS: usize = 5;
const NOW: i64 = 1_796_083_200_000;
/// Of the reference's speed, on either database.
const TARGET: f64 = 0.6;

/// The tables of a message, each with its key.
const TABLES: [(&str, &str); 2] = [("messages", "id"), ("bodies", "message_id")];

type Times = (Vec<Duration>, Vec<Duration>);

#[tokio::main]
async fn main() {
    // `cargo test --all-targets` runs benches too, without this word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut met = true;
    match std::env::var("LAZARET_TEST_POSTGRES") {
        Ok(server) => met &= report("intake-store-postgres", postgres(&server).await),
        Err(_) => println!(
            "intake-store-postgres not run: LAZARET_TEST_POSTGRES is not set; eval \"$(tests/services/ctl up)\" starts a server and sets it"
        ),
    }
    met &= report("intake-store-sqlite", sqlite().await);
    if !met {
        std::process::exit(1);
    }
}

/// Prints the line. False: the target was missed.
fn report(name: &str, (ours, reference): Times) -> bool {
    let rate = |mut times: Vec<Duration>| {
        times.sort();
        (BATCH * BATCHES) as f64 / times[times.len() / 2].as_secs_f64()
    };
    let (ours, reference) = (rate(ours), rate(reference));
    println!("{name} ours {ours:.0} msg/s reference {reference:.0} msg/s ratio {:.2}", ours / reference);
    ours / reference >= TARGET
}

/// A plausible dead letter: 512 bytes of value, a key, the headers Spring writes, one of 20 groups.
fn message(id: PartitionId, offset: i64) -> NewMessage {
    let value: Vec<u8> = (0..512_i64).map(|n| (32 + (offset * 31 + n * 7) % 90) as u8).collect();
    let exception = format!("com.example.payments.Failure{}", offset % 20);
    let text = format!("wallet {offset} did not answer");
    let header = |name: &str, value: &str| Header { name: name.as_bytes().to_vec(), value: Some(value.as_bytes().to_vec()) };
    NewMessage {
        body_hash: Sha256::digest(&value).into(),
        dialect: "spring_dlt".into(),
        class: FailureClass::Transient,
        class_reason: "built-in: java.net.SocketTimeoutException".into(),
        group: GroupIdentity {
            fingerprint: Sha256::digest(&exception).iter().map(|byte| format!("{byte:02x}")).collect(),
            consumer_group: Some("wallet".into()),
            class: FailureClass::Transient,
            exception_class: Some(exception.clone()),
            normalised_text: "wallet <n> did not answer".into(),
            top_frame: Some("com.example.payments.Wallet.debit".into()),
        },
        record: Record {
            topic: "payments.DLT".into(),
            partition: id.partition,
            offset,
            timestamp_ms: Some(NOW + offset),
            key: Some(format!("user-{}", offset * 7_919 % 100_000).into_bytes()),
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
            timestamp_ms: Some(NOW + offset - 900),
        }),
        traces: Traces {
            places: vec![Place { topic: "payments.initiated".into(), partition: 3, offset: offset * 3 }],
            replay_ids: Vec::new(),
        },
        consumer_group: Some("wallet".into()),
        attempts: Some(3),
        lap: 1,
        key_masked: false,
        business_key: Some(format!("pay-{:016x}", offset.wrapping_mul(-7_046_029_254_386_353_131))),
        tenant: None,
        record_at_ms: Some(NOW + offset),
        dead_lettered_at_ms: NOW + offset * 5,
        timestamp_suspect: false,
        first_seen_at_ms: NOW + 1_000_000,
    }
}

/// Our side: a store, and one partition that it takes in.
struct Ours {
    store: Store,
    id: PartitionId,
    epoch: i64,
    next: i64,
}

impl Ours {
    async fn open(url: &str) -> Ours {
        let store = empty(url).await;
        let (dlq, _) = store.ensure_dlq("main", "payments.DLT", None, None, NOW).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 0 };
        store.ensure_position(id, 0, NOW).await.unwrap();
        let epoch = store.claim_position(id, NOW).await.unwrap().unwrap().owner_epoch;
        Ours { store, id, epoch, next: 0 }
    }

    /// Takes one round in and says how long it took.
    async fn round(&mut self) -> Duration {
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let from = self.next;
            self.next += BATCH;
            let messages = (from..self.next).map(|offset| message(self.id, offset)).collect();
            batches.push(PartitionBatch { id: self.id, owner_epoch: self.epoch, expected_offset: from, next_offset: self.next, messages });
        }
        settle(&self.store).await;
        let started = Instant::now();
        for batch in &batches {
            let taken = self.store.take_in(std::slice::from_ref(batch), NOW).await.unwrap();
            assert_eq!(taken, TakeIn::Committed { stored: BATCH as u64 });
        }
        started.elapsed()
    }
}

async fn empty(url: &str) -> Store {
    let store = Store::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    store
}

/// Writes out what earlier rounds left behind, so that no side pays for the other.
async fn settle(store: &Store) {
    match store {
        Store::Postgres(database) => {
            // On a connection of its own: the store's have a time limit for a statement.
            let mut connection = sqlx::ConnectOptions::connect(database.pool.connect_options().as_ref()).await.unwrap();
            sqlx::query("CHECKPOINT").execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
        Store::Sqlite(database) => drop(sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&database.writer).await.unwrap()),
    }
}

/// The rows of a batch of ours, in the order of their ids.
fn rows_after(table: &str, key: &str, after: i64) -> String {
    format!("SELECT * FROM {table} WHERE {key} > {after} ORDER BY {key} LIMIT {BATCH}")
}

async fn postgres(server: &str) -> Times {
    let mut admin = sqlx::PgConnection::connect(server).await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    let names = ["ours", "reference"].map(|side| format!("bench_{side}_{}", std::process::id()));
    for name in &names {
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.unwrap();
    }
    let mut ours = Ours::open(&format!("{base}/{}", names[0])).await;
    let reference = empty(&format!("{base}/{}", names[1])).await;
    let (Store::Postgres(source), Store::Postgres(target)) = (ours.store.clone(), &reference) else { unreachable!("both are PostgreSQL") };
    let mut times = Times::default();
    for round in 0..ROUNDS {
        times.0.push(ours.round().await);
        let mut batches = Vec::new();
        for batch in 0..BATCHES {
            let after = (round as i64 * BATCHES + batch) * BATCH;
            let mut data = Vec::new();
            for (table, key) in TABLES {
                let mut source = source.pool.acquire().await.unwrap();
                let copy = format!("COPY ({}) TO STDOUT (FORMAT binary)", rows_after(table, key, after));
                let parts: Vec<_> = source.copy_out_raw(&copy).await.unwrap().collect().await;
                data.push((table, parts.into_iter().flat_map(|part| part.unwrap().to_vec()).collect::<Vec<u8>>()));
            }
            batches.push(data);
        }
        settle(&reference).await;
        let mut connection = target.pool.acquire().await.unwrap();
        let started = Instant::now();
        for batch in &batches {
            let mut tx = connection.begin().await.unwrap();
            for (table, data) in batch {
                let mut copy = tx.copy_in_raw(&format!("COPY {table} FROM STDIN (FORMAT binary)")).await.unwrap();
                copy.send(data.as_slice()).await.unwrap();
                copy.finish().await.unwrap();
            }
            tx.commit().await.unwrap();
        }
        times.1.push(started.elapsed());
    }
    let count = "SELECT COUNT(*) FROM messages JOIN bodies ON message_id = id";
    for pool in [&source.pool, &target.pool] {
        assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(pool).await.unwrap(), ROUNDS as i64 * BATCHES * BATCH);
        pool.close().await;
    }
    for name in names {
        sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&mut admin).await.unwrap();
    }
    times
}

/// Rows of one statement of the SQLite reference.
const ROWS: usize = 50;

async fn sqlite() -> Times {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let mut ours = Ours::open(&url("ours.db")).await;
    let reference = empty(&url("reference.db")).await;
    let (Store::Sqlite(source), Store::Sqlite(target)) = (ours.store.clone(), &reference) else { unreachable!("both are SQLite") };
    let mut times = Times::default();
    for round in 0..ROUNDS {
        times.0.push(ours.round().await);
        let mut batches = Vec::new();
        for batch in 0..BATCHES {
            let after = (round as i64 * BATCHES + batch) * BATCH;
            let mut statements = Vec::new();
            for (table, key) in TABLES {
                let rows = sqlx::query(AssertSqlSafe(rows_after(table, key, after))).fetch_all(&source.readers).await.unwrap();
                statements.extend(rows.chunks(ROWS).map(|rows| insert(table, rows)));
            }
            batches.push(statements);
        }
        settle(&reference).await;
        let mut connection = target.writer.acquire().await.unwrap();
        let started = Instant::now();
        for batch in batches {
            let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
            for (sql, values) in batch {
                sqlx::query_with(AssertSqlSafe(sql), values).execute(&mut *tx).await.unwrap();
            }
            tx.commit().await.unwrap();
        }
        times.1.push(started.elapsed());
    }
    let count = "SELECT COUNT(*) FROM messages JOIN bodies ON message_id = id";
    for pool in [&source.readers, &target.readers] {
        assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(pool).await.unwrap(), ROUNDS as i64 * BATCHES * BATCH);
    }
    times
}

/// One multi-row statement, and its values as they were read.
fn insert(table: &str, rows: &[SqliteRow]) -> (String, SqliteArguments) {
    let row = format!("({})", vec!["?"; rows[0].len()].join(","));
    let mut values = SqliteArguments::default();
    for row in rows {
        for column in 0..row.len() {
            let kind = row.try_get_raw(column).unwrap().type_info().name().to_owned();
            let is_null = row.try_get_raw(column).unwrap().is_null();
            match kind.as_str() {
                _ if is_null => values.add(None::<i64>),
                "INTEGER" => values.add(row.get::<i64, _>(column)),
                "BLOB" => values.add(row.get::<Vec<u8>, _>(column)),
                _ => values.add(row.get::<String, _>(column)),
            }
            .unwrap();
        }
    }
    (format!("INSERT INTO {table} VALUES {}", vec![row; rows.len()].join(",")), values)
}
