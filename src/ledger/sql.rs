//! A SQL table as a ledger: whether it can be reached.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::LedgerError;
use crate::domain::settings::Secret;

/// Connects read-only and asks for nothing but an answer.
///
/// # Errors
/// The URL is unusable, or nobody answers.
pub async fn probe(url: &Secret, timeout: Duration) -> Result<(), LedgerError> {
    tokio::time::timeout(timeout, connect(url.expose())).await.map_err(|_| LedgerError::TimedOut(timeout.as_secs()))?
}

async fn connect(url: &str) -> Result<(), LedgerError> {
    if url.starts_with("sqlite:") {
        let options = SqliteConnectOptions::from_str(url).map_err(|_| LedgerError::Url("sqlite://path/to/file.db"))?;
        let mut connection = options.read_only(true).create_if_missing(false).connect().await.map_err(unreachable)?;
        return connection.ping().await.map_err(unreachable);
    }
    // The parser's own words may quote a part of the URL; ours do not.
    let options = PgConnectOptions::from_str(url).map_err(|_| LedgerError::Url("postgres://user:password@host:5432/database"))?;
    let mut connection = options.connect().await.map_err(unreachable)?;
    connection.ping().await.map_err(unreachable)
}

/// sqlx names host and user in its errors, never the password.
fn unreachable(error: sqlx::Error) -> LedgerError {
    LedgerError::Unreachable(error.to_string())
}
