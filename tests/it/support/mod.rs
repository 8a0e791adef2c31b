//! What several journeys share: real servers, databases of a test's own.

pub mod cases;
pub mod consumer;
pub mod producer;

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use lazaret::domain::audit::AuditKey;
use lazaret::store::Store;

/// A real server that `tests/services/ctl up` started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Kafka,
    KafkaSasl,
    KafkaSaslSsl,
    KafkaOauth,
    Postgres,
    Redis,
    Registry,
    Webdriver,
}

impl Server {
    fn variable(self) -> &'static str {
        match self {
            Server::Kafka => "LAZARET_TEST_KAFKA",
            Server::KafkaSasl => "LAZARET_TEST_KAFKA_SASL",
            Server::KafkaSaslSsl => "LAZARET_TEST_KAFKA_SASL_SSL",
            Server::KafkaOauth => "LAZARET_TEST_KAFKA_OAUTH",
            Server::Postgres => "LAZARET_TEST_POSTGRES",
            Server::Redis => "LAZARET_TEST_REDIS",
            Server::Registry => "LAZARET_TEST_REGISTRY",
            Server::Webdriver => "LAZARET_TEST_WEBDRIVER",
        }
    }

    fn used_as(self) -> &'static str {
        match self {
            Server::Kafka | Server::KafkaSasl | Server::KafkaSaslSsl | Server::KafkaOauth => "kafka",
            Server::Postgres => "postgres",
            Server::Redis => "redis",
            Server::Registry => "registry",
            Server::Webdriver => "chromium",
        }
    }

    /// Its address, noted as used for the closing lines of `tests/run`. Panics when it is not there: the test is `#[ignore]`d
    /// in plain runs, so whoever runs it asked for the real server.
    pub fn address(self) -> String {
        let address = variable(self.variable());
        if let Ok(path) = std::env::var("LAZARET_TEST_USED")
            && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
        {
            let _ = writeln!(file, "{}", self.used_as());
        }
        address
    }
}

/// A `LAZARET_TEST_*` variable that `ctl up` prints.
pub fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} is not set: run this through tests/run, or eval \"$(tests/services/ctl up)\" first"))
}

/// A name that no other test, and no earlier run against the same servers, uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::SeqCst);
    format!("{prefix}-{}-{}-{n}", std::process::id(), lazaret::domain::clock::Clock::system().now_ms())
}

/// The key of the trail in tests' stores.
pub fn audit_key() -> AuditKey {
    AuditKey::new(vec![7; 32]).expect("32 bytes")
}

/// A migrated SQLite database in a folder that goes with the returned guard.
pub async fn sqlite() -> (Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let store = Store::connect(&url).await.expect("SQLite opens");
    store.migrate().await.expect("SQLite migrates");
    (store.with_audit_key(audit_key()), folder)
}

/// A migrated PostgreSQL database of the test's own on the real server.
pub async fn postgres() -> Store {
    let store = Store::connect(&postgres_url().await).await.expect("PostgreSQL opens");
    store.migrate().await.expect("PostgreSQL migrates");
    store.with_audit_key(audit_key())
}

/// The URL of an empty PostgreSQL database of the test's own.
#[allow(clippy::disallowed_types, reason = "CREATE DATABASE takes no bind parameter; the name is our own")]
pub async fn postgres_url() -> String {
    use sqlx::Connection as _;
    let server = Server::Postgres.address();
    let name = unique("t").replace('-', "_");
    let mut admin = sqlx::PgConnection::connect(&server).await.expect("the test PostgreSQL answers");
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.expect("a database of its own");
    let (base, _) = server.rsplit_once('/').expect("a URL with a database");
    format!("{base}/{name}")
}

/// Makes one test for each database out of one body: `on_both_stores! { async fn name(store: Store) { .. } }`.
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[$meta:meta])* async fn $name:ident($store:ident: Store) $body:block)+) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn body($store: lazaret::store::Store) $body

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                let (store, _folder) = $crate::support::sqlite().await;
                body(store).await;
            }

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs a real PostgreSQL: run tests/run"]
            async fn postgres() {
                body($crate::support::postgres().await).await;
            }
        }
    )+};
}
