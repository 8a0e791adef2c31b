//! Why a store call failed, and whether waiting helps.

use std::io::ErrorKind;
use std::time::Duration;

/// Why a store call failed. Holds no URL, so no password: sqlx's errors name hosts and users at most.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {}", in_words(.0))]
    Database(#[from] sqlx::Error),
    #[error("migrations: {}", migration_in_words(.0))]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// The URL's scheme or content is not usable; says which are.
    #[error("the database's URL is unusable: {0}")]
    Url(String),
    /// The folder, the database or the lock file of a SQLite database cannot be made.
    #[error("database: {path}: {source}. Let this user write there, or name another place for the database")]
    File { path: String, source: std::io::Error },
    /// Another `lazaret serve` uses this SQLite file.
    #[error("{0}")]
    InUse(String),
    /// The database was migrated by a later version.
    #[error(
        "the database is of a newer Lazaret (its migration {migration} is not known here): run that version or a later one, or give this one a database of its own; nothing was changed"
    )]
    Newer { migration: i64 },
    /// The database, or the network to it, did not answer in this time.
    #[error("database: no answer within {} s", .0.as_secs())]
    Stalled(Duration),
    /// A value that no database takes; Kafka itself allows no record of that size.
    #[error("a value of {0} bytes is more than the database can hold")]
    TooLarge(usize),
    /// The trail needs a key, and the store was opened without.
    #[error("there is no audit key: set audit.key_file")]
    NoAuditKey,
    /// A move that the state machine does not know: a fault of ours, and nothing was written.
    #[error("{0}")]
    InvalidMove(#[from] crate::domain::lifecycle::InvalidTransition),
    /// A correction of an outcome that is none: a fault of ours, and nothing was written.
    #[error("{0}")]
    InvalidOutcome(#[from] crate::domain::lifecycle::InvalidOutcome),
    /// A stored value is not one that this version writes.
    #[error("stored {what} is not readable: {value}")]
    Unreadable { what: &'static str, value: String },
}

/// What happened, without the line of PostgreSQL's own source that sqlx adds to a server's words.
fn in_words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(said) if said.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() => said.message().to_owned(),
        error => error.to_string(),
    }
}

fn migration_in_words(error: &sqlx::migrate::MigrateError) -> String {
    match error {
        sqlx::migrate::MigrateError::Execute(error) => in_words(error),
        error => error.to_string(),
    }
}

/// SQLSTATEs after which the same call may succeed (PostgreSQL manual, appendix A): transaction rolled back for another's sake, a lock or a statement that
/// took too long, too many connections, the server stopping, starting, or gone.
const TRANSIENT_STATES: [&str; 10] = ["40001", "40P01", "53300", "55P03", "57014", "57P01", "57P02", "57P03", "25P03", "08006"];

/// SQLite's primary result codes for "someone else is writing": SQLITE_BUSY and SQLITE_LOCKED.
const BUSY_CODES: [i64; 2] = [5, 6];

/// SQLSTATE classes that blame the rows: data exception, integrity constraint, program limit (PostgreSQL manual, appendix A).
const REFUSING_CLASSES: [&str; 3] = ["22", "23", "54"];

/// The same of SQLite: SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH.
const REFUSALS: [i64; 3] = [18, 19, 20];

/// SQLite's primary code: the low byte of an extended one (sqlite.org/rescode.html).
fn primary_code(code: &str) -> Option<i64> {
    code.parse::<i64>().ok().map(|code| code & 0xff)
}

impl StoreError {
    /// Whether waiting and trying again may help (connection lost, database starting, pool exhausted, SQLite busy).
    pub fn is_transient(&self) -> bool {
        match self {
            StoreError::Database(error) => sqlx_is_transient(error),
            StoreError::Migrate(sqlx::migrate::MigrateError::Execute(error)) => sqlx_is_transient(error),
            StoreError::Stalled(_) => true,
            _ => false,
        }
    }

    /// Whether the database refuses what it was given, so that the same rows would be refused again. Everything else (a full disk, a
    /// server that went read-only, a missing table) says nothing against the rows: they are kept as they are until it is put right.
    pub fn refuses_the_data(&self) -> bool {
        match self {
            StoreError::TooLarge(_) | StoreError::Database(sqlx::Error::Encode(_)) => true,
            StoreError::Database(sqlx::Error::Database(error)) => {
                let Some(code) = error.code() else { return false };
                if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                    return primary_code(&code).is_some_and(|code| REFUSALS.contains(&code));
                }
                REFUSING_CLASSES.contains(&code.get(..2).unwrap_or_default())
            }
            _ => false,
        }
    }

    /// A text in a column that should hold one of our own words.
    pub(super) fn unreadable(what: &'static str, value: &str) -> StoreError {
        StoreError::Unreadable { what, value: value.chars().take(80).collect() }
    }
}

fn sqlx_is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => io_is_transient(error.kind()),
        sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed => true,
        // What sqlx says of a connection whose last exchange was cut off in the middle.
        sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(error) => {
            let Some(code) = error.code() else { return false };
            if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                return primary_code(&code).is_some_and(|code| BUSY_CODES.contains(&code));
            }
            TRANSIENT_STATES.contains(&code.as_ref()) || code.starts_with("08")
        }
        _ => false,
    }
}

fn io_is_transient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::TimedOut
            | ErrorKind::UnexpectedEof
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::Interrupted
    )
}
