//! The quarantine table and everything beside it, on PostgreSQL or SQLite.
//!
//! May use: `domain`, sqlx. Called by: `services`, `app`. One file per subject; `sql_pieces` holds what differs by dialect,
//! `bulk` the fast paths, `filter` the one place that builds SQL. Instants are `BIGINT` ms UTC, bound by the caller from its
//! `Clock`; no query asks the database what time it is.

#[macro_use]
mod either;

pub mod alerts;
pub mod audit;
pub mod baselines;
mod bulk;
pub mod channels;
mod connect;
pub mod counters;
pub mod dlqs;
mod error;
mod filter;
pub mod group_status;
pub mod groups;
pub mod heat;
pub mod leases;
pub mod messages;
pub mod notify;
pub mod outbox;
pub mod outcomes;
pub mod positions;
pub mod progress;
pub mod replay_items;
pub mod replay_pages;
pub mod replays;
mod returns;
pub mod review;
pub mod rules;
pub mod samples;
mod sql_pieces;
mod take_in;
pub mod tokens;
pub mod transitions;
pub mod users;
pub mod verdicts;

use std::sync::Arc;

pub use error::StoreError;
use sql_pieces::Dialect as _;

use crate::domain::audit::AuditKey;

/// The database, one of two. Cheap to clone; clones share pools and caches.
#[derive(Debug, Clone)]
pub enum Store {
    Postgres(PostgresStore),
    Sqlite(SqliteStore),
}

/// PostgreSQL: one pool.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pub pool: sqlx::PgPool,
    groups: Arc<groups::KnownGroups>,
    hints: notify::Hints,
    audit_key: Option<AuditKey>,
}

/// SQLite: a pool of readers and the single writer.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub readers: sqlx::SqlitePool,
    /// At most one connection; every transaction on it is `BEGIN IMMEDIATE`.
    pub writer: sqlx::SqlitePool,
    groups: Arc<groups::KnownGroups>,
    hints: notify::Hints,
    audit_key: Option<AuditKey>,
    /// Held for the store's lifetime by [`Store::connect_exclusive`]; the operating system lets go of it when the process ends, however it ends.
    _lock: Option<Arc<std::fs::File>>,
}

/// An open transaction. On SQLite it holds the one writer (`BEGIN IMMEDIATE`). Dropped without a commit, it is rolled back.
/// Statements go to it through `in_tx!`.
pub struct Tx {
    open: OpenTx,
    audit_key: Option<AuditKey>,
}

enum OpenTx {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Store {
    /// The same store, able to write to the trail ([`audit::append`]). The key is kept outside the database.
    pub fn with_audit_key(mut self, key: AuditKey) -> Store {
        match &mut self {
            Store::Postgres(database) => database.audit_key = Some(key),
            Store::Sqlite(database) => database.audit_key = Some(key),
        }
        self
    }

    /// A key for another purpose than the trail, made from the trail's ([`AuditKey::derived`]).
    ///
    /// # Errors
    /// The store was opened without an audit key ([`StoreError::NoAuditKey`]).
    pub fn derived_key(&self, purpose: &str) -> Result<[u8; 32], StoreError> {
        let key = match self {
            Store::Postgres(database) => &database.audit_key,
            Store::Sqlite(database) => &database.audit_key,
        };
        key.as_ref().map(|key| key.derived(purpose)).ok_or(StoreError::NoAuditKey)
    }

    /// Starts a transaction (`BEGIN IMMEDIATE` on the writer for SQLite).
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        either::within(async {
            Ok(match self {
                Store::Postgres(database) => {
                    let tx = database.pool.begin_with(sql_pieces::BEGIN_BY_KEY).await?;
                    Tx { open: OpenTx::Postgres(tx), audit_key: database.audit_key.clone() }
                }
                Store::Sqlite(database) => {
                    let tx = database.writer.begin_with(sql_pieces::BEGIN_IMMEDIATE).await?;
                    Tx { open: OpenTx::Sqlite(tx), audit_key: database.audit_key.clone() }
                }
            })
        })
        .await
    }

    /// Whether only one transaction at a time can write.
    pub fn has_one_writer(&self) -> bool {
        matches!(self, Store::Sqlite(_))
    }

    /// One trivial read, for /readyz.
    pub async fn ping(&self) -> Result<(), StoreError> {
        read!(self, |pool| {
            sqlx::query("SELECT 1").execute(pool).await?;
        })
    }

    /// "PostgreSQL 15.18" or "SQLite 3.46.0".
    pub async fn version(&self) -> Result<String, StoreError> {
        let (name, version): (_, String) = match self {
            Store::Postgres(_) => ("PostgreSQL", self.version_text().await?),
            Store::Sqlite(_) => ("SQLite", self.version_text().await?),
        };
        // PostgreSQL adds its packager: "15.18 (Debian 15.18-0+deb12u1)".
        Ok(format!("{name} {}", version.split_whitespace().next().unwrap_or_default()))
    }

    async fn version_text(&self) -> Result<String, StoreError> {
        read!(self, |pool| { sqlx::query_scalar::<Db, String>(Db::VERSION).fetch_one(pool).await? })
    }

    fn known_groups(&self) -> &groups::KnownGroups {
        match self {
            Store::Postgres(database) => &database.groups,
            Store::Sqlite(database) => &database.groups,
        }
    }
}

impl Tx {
    /// Makes it permanent.
    pub async fn commit(self) -> Result<(), StoreError> {
        either::within(async {
            match self.open {
                OpenTx::Postgres(tx) => tx.commit().await?,
                OpenTx::Sqlite(tx) => tx.commit().await?,
            }
            Ok(())
        })
        .await
    }
}
