//! A SQL table as a ledger: one query with all keys, read-only.

use std::collections::{HashSet, VecDeque};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{PgPool, Row as _, SqlitePool};
use tokio::sync::OnceCell;

use super::{LedgerError, PATIENCE};
use crate::domain::settings::Secret;
use crate::domain::verdict::TierAnswer;

/// Queries a look-up may take when one key spoils it for all: the list is halved until the key is alone. What is left then could not be asked.
const HALVINGS: usize = 64;
const CONNECTIONS: u32 = 4;

/// The table behind one ledger.
#[derive(Debug)]
pub struct Table {
    url: Secret,
    query: Arc<str>,
    pool: OnceCell<Pool>,
}

#[derive(Debug, Clone)]
enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// Why a query gave nothing.
enum Trouble {
    /// A key cannot be what the query makes of it ('x' is no uuid): the others may be fine.
    Key(String),
    Ledger(LedgerError),
}

impl Table {
    pub(super) fn new(url: Secret, query: &str) -> Table {
        Table { url, query: query.into(), pool: OnceCell::new() }
    }

    /// What the table says of each key, in the order given: a key whose text the query returns is done.
    pub async fn look_up(&self, keys: &[&str]) -> Vec<TierAnswer> {
        let mut said = vec![TierAnswer::Unclear("one of the keys asked for at once spoils the query".to_owned()); keys.len()];
        let mut parts = VecDeque::new();
        parts.push_back(0..keys.len());
        for _ in 0..HALVINGS {
            let Some(part) = parts.pop_front() else { break };
            match self.ask(&keys[part.clone()]).await {
                Ok(answers) => said[part].clone_from_slice(&answers),
                Err(Trouble::Key(_)) if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
                Err(Trouble::Key(why)) => said[part].fill(TierAnswer::Unclear(why)),
                Err(Trouble::Ledger(error)) => {
                    said[part].fill(TierAnswer::Unclear(error.to_string()));
                    parts.drain(..).for_each(|part| said[part].fill(TierAnswer::Unclear(error.to_string())));
                }
            }
        }
        said
    }

    async fn ask(&self, keys: &[&str]) -> Result<Vec<TierAnswer>, Trouble> {
        let pool = self.pool.get_or_try_init(|| open(&self.url, PATIENCE)).await.map_err(Trouble::Ledger)?;
        let asked = tokio::time::timeout(PATIENCE * 2, rows(pool, &self.query, keys)).await;
        let found = asked.map_err(|_| Trouble::Ledger(LedgerError::TimedOut(PATIENCE.as_secs() * 2)))?.map_err(trouble)?;
        let asked: HashSet<&str> = keys.iter().copied().collect();
        if found.iter().any(|key| !asked.contains(key.as_str())) {
            // `ABC-1` asked for, `abc-1` returned: then nobody knows what is absent.
            let why = "the query returned a key that was not asked for; let it return keys as they are given".to_owned();
            return Ok(keys
                .iter()
                .map(|key| if found.contains(*key) { TierAnswer::Done } else { TierAnswer::Unclear(why.clone()) })
                .collect());
        }
        Ok(keys.iter().map(|key| if found.contains(*key) { TierAnswer::Done } else { TierAnswer::Absent }).collect())
    }
}

/// The first column of each row, as text.
async fn rows(pool: &Pool, query: &Arc<str>, keys: &[&str]) -> Result<HashSet<String>, sqlx::Error> {
    #[allow(clippy::disallowed_types, reason = "the query is the operator's own, from the configuration; keys are bound")]
    let query = sqlx::AssertSqlSafe(Arc::clone(query));
    match pool {
        Pool::Postgres(pool) => {
            let rows = sqlx::query(query).bind(keys).fetch_all(pool).await?;
            rows.iter().map(|row| row.try_get::<String, _>(0)).collect()
        }
        Pool::Sqlite(pool) => {
            let list = serde_json::to_string(keys).unwrap_or_default();
            let rows = sqlx::query(query).bind(list).fetch_all(pool).await?;
            rows.iter().map(|row| row.try_get::<String, _>(0)).collect()
        }
    }
}

/// Read-only, whatever the query says.
async fn open(url: &Secret, timeout: Duration) -> Result<Pool, LedgerError> {
    let url = url.expose();
    if url.starts_with("sqlite:") {
        let options = SqliteConnectOptions::from_str(url).map_err(|_| LedgerError::Url("sqlite://path/to/file.db"))?;
        let options = options.read_only(true).create_if_missing(false).pragma("query_only", "on").busy_timeout(timeout);
        return Ok(Pool::Sqlite(SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(timeout).connect_lazy_with(options)));
    }
    // The parser's own words may quote a part of the URL; ours do not.
    let options = PgConnectOptions::from_str(url).map_err(|_| LedgerError::Url("postgres://user:password@host:5432/database"))?;
    let wait = format!("{}ms", timeout.as_millis());
    let options = options.options([("default_transaction_read_only", "on"), ("statement_timeout", &wait)]).application_name("lazaret");
    Ok(Pool::Postgres(PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(timeout).connect_lazy_with(options)))
}

/// Connects read-only and runs the query without a key.
///
/// # Errors
/// The URL is unusable, nobody answers, or the query cannot be run.
pub async fn probe(url: &Secret, query: &str, timeout: Duration) -> Result<(), LedgerError> {
    let pool = open(url, timeout).await?;
    let asked =
        tokio::time::timeout(timeout, rows(&pool, &query.into(), &[])).await.map_err(|_| LedgerError::TimedOut(timeout.as_secs()))?;
    match asked.map_err(trouble) {
        Ok(_) => Ok(()),
        Err(Trouble::Key(why)) => Err(LedgerError::Unreachable(why)),
        Err(Trouble::Ledger(error)) => Err(error),
    }
}

/// sqlx names host and user in its errors, never the password; a server's words about a key may quote it, which is no secret.
fn trouble(error: sqlx::Error) -> Trouble {
    match error {
        sqlx::Error::PoolTimedOut => Trouble::Ledger(LedgerError::TimedOut(PATIENCE.as_secs())),
        sqlx::Error::ColumnDecode { .. } => Trouble::Ledger(LedgerError::Unreachable(
            "the query's first column is no text: cast it, for example SELECT event_id::text".to_owned(),
        )),
        // Class 22 of SQLSTATE is "data exception".
        sqlx::Error::Database(error) if error.code().is_some_and(|code| code.starts_with("22")) => Trouble::Key(error.message().to_owned()),
        error => Trouble::Ledger(LedgerError::Unreachable(error.to_string())),
    }
}
