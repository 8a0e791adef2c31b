//! The quarantine table and everything beside it, on PostgreSQL or SQLite.
//!
//! May use: `domain`, sqlx. Called by: `services`, `app`. One file per subject; `sql_pieces` holds what differs by dialect,
//! `bulk` the fast paths, `filter` the one place that builds SQL. Instants are `BIGINT` ms UTC, bound by the caller from its
//! `Clock`; no query asks the database what time it is.

pub mod counters;
pub mod dlqs;
pub mod groups;
pub mod leases;
pub mod messages;
pub mod positions;
pub mod samples;
pub mod tokens;
pub mod users;

/// The database, one of two.
#[derive(Debug, Clone)]
pub enum Store {
    Postgres(sqlx::PgPool),
    /// Readers' pool and the single writer's.
    Sqlite {
        readers: sqlx::SqlitePool,
        writer: sqlx::SqlitePool,
    },
}

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("migrations: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The URL's scheme or content is not usable; says which are.
    #[error("database.url: {0}")]
    Url(String),
    /// Another `lazaret serve` uses this SQLite file.
    #[error("{0}")]
    InUse(String),
    /// A stored value is not one that this version writes.
    #[error("stored {what} is not readable: {value}")]
    Unreadable { what: &'static str, value: String },
}

impl StoreError {
    /// Whether waiting and trying again may help (connection lost, database starting, pool exhausted, SQLite busy).
    pub fn is_transient(&self) -> bool {
        todo!()
    }
}

/// An open transaction. On SQLite it holds the one writer (`BEGIN IMMEDIATE`).
pub enum Tx {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Store {
    /// Opens `sqlite://path` (made when missing, WAL) or `postgres://..`. Does not migrate. Never shows the URL's password in an error.
    pub async fn connect(_url: &str) -> Result<Store, StoreError> {
        todo!()
    }
    /// A SQLite database held exclusively for one `serve`: a second process gets [`StoreError::InUse`] with a sentence. Postgres: same as connect.
    pub async fn connect_exclusive(_url: &str) -> Result<Store, StoreError> {
        todo!()
    }
    /// Applies the migrations that are missing. Returns how many were applied.
    pub async fn migrate(&self) -> Result<usize, StoreError> {
        todo!()
    }
    /// "PostgreSQL 15.18" or "SQLite 3.46.0".
    pub async fn version(&self) -> Result<String, StoreError> {
        todo!()
    }
    /// Starts a transaction (`BEGIN IMMEDIATE` on the writer for SQLite).
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        todo!()
    }
    /// One trivial read, for /readyz.
    pub async fn ping(&self) -> Result<(), StoreError> {
        todo!()
    }
}

impl Tx {
    pub async fn commit(self) -> Result<(), StoreError> {
        todo!()
    }
}
