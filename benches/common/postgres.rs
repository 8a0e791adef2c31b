//! The reference for taking in on PostgreSQL: `COPY` of the same rows into the same tables with the same indexes, in transactions of the
//! same size, all data encoded before the clock starts.

use std::time::Duration;

use futures_util::StreamExt as _;
use lazaret::domain::clock::Clock;
use lazaret::store::Store;
use sqlx::{AssertSqlSafe, Connection as _, PgPool};

/// The tables of a message, each with its key.
const TABLES: [(&str, &str); 2] = [("messages", "id"), ("bodies", "message_id")];

/// Empty, migrated databases on the server, dropped by [`Databases::drop_all`].
pub struct Databases {
    admin: sqlx::PgConnection,
    base: String,
    names: Vec<String>,
}

impl Databases {
    pub async fn on(server: &str) -> Databases {
        let admin = sqlx::PgConnection::connect(server).await.unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        Databases { admin, base: base.to_owned(), names: Vec::new() }
    }

    /// The URL of a new one.
    pub async fn make(&mut self, side: &str) -> String {
        let name = format!("bench_{side}_{}", std::process::id());
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut self.admin).await.unwrap();
        let url = format!("{}/{name}", self.base);
        Store::connect(&url).await.unwrap().migrate().await.unwrap();
        self.names.push(name);
        url
    }

    pub async fn drop_all(mut self) {
        for name in self.names {
            sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&mut self.admin).await.unwrap();
        }
    }
}

/// What one transaction copies: table and encoded rows.
pub type Batch = Vec<(&'static str, Vec<u8>)>;

/// The rows with ids above `after`, in batches of `size`.
pub async fn encode(source: &PgPool, after: i64, rows: i64, size: i64) -> Vec<Batch> {
    let mut batches = Vec::new();
    for skip in (0..rows).step_by(usize::try_from(size).unwrap()) {
        let mut batch = Vec::new();
        for (table, key) in TABLES {
            let copy = format!(
                "COPY (SELECT * FROM {table} WHERE {key} > {after} ORDER BY {key} OFFSET {skip} LIMIT {size}) TO STDOUT (FORMAT binary)"
            );
            let mut source = source.acquire().await.unwrap();
            let parts: Vec<_> = source.copy_out_raw(&copy).await.unwrap().collect().await;
            batch.push((table, parts.into_iter().flat_map(|part| part.unwrap().to_vec()).collect()));
        }
        batches.push(batch);
    }
    batches
}

/// Copies them in and says how long it took.
pub async fn copy(target: &PgPool, batches: &[Batch]) -> Duration {
    let clock = Clock::system();
    let mut connection = target.acquire().await.unwrap();
    let started = clock.monotonic();
    for batch in batches {
        let mut tx = connection.begin().await.unwrap();
        for (table, data) in batch {
            let mut copy = tx.copy_in_raw(&format!("COPY {table} FROM STDIN (FORMAT binary)")).await.unwrap();
            copy.send(data.as_slice()).await.unwrap();
            copy.finish().await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    clock.monotonic() - started
}

/// Writes out what was left behind, so that no side pays for the other.
pub async fn settle(pool: &PgPool) {
    sqlx::query("CHECKPOINT").execute(pool).await.unwrap();
}
