//! A SQL table as a ledger: one query with all keys, read-only.

use std::collections::{HashSet, VecDeque};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgErrorPosition, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Column as _, Executor as _, PgPool, Row as _, SqlSafeStr as _, SqlStr, SqlitePool, Statement as _};
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
        let found = asked.map_err(|_| Trouble::Ledger(LedgerError::TimedOut(PATIENCE.as_secs() * 2)))?;
        let found = found.map_err(|error| trouble(error, &self.query))?;
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

/// The operator's query as sqlx takes it.
#[allow(clippy::disallowed_types, reason = "the query is the operator's own, from the configuration; keys are bound")]
fn sql(query: &Arc<str>) -> SqlStr {
    sqlx::AssertSqlSafe(Arc::clone(query)).into_sql_str()
}

/// The first column of each row, as text.
async fn rows(pool: &Pool, query: &Arc<str>, keys: &[&str]) -> Result<HashSet<String>, sqlx::Error> {
    let query = sql(query);
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

/// What a query returns, as far as it can be told without a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// The first is read, any other is not.
    pub count: usize,
    /// Whether the first was seen to be text. SQLite knows the type of a value and not of a column.
    pub text: bool,
}

/// Connects read-only, looks at what the query returns, and runs it without a key.
///
/// # Errors
/// The URL is unusable, nobody answers, the query cannot be run, or its first column is no text.
pub async fn probe(url: &Secret, query: &str, timeout: Duration) -> Result<Columns, LedgerError> {
    let pool = open(url, timeout).await?;
    let query: Arc<str> = query.into();
    let asked = async {
        let columns = columns(&pool, &query).await?;
        rows(&pool, &query, &[]).await.map_err(|error| trouble(error, &query))?;
        Ok(columns)
    };
    let asked = tokio::time::timeout(timeout, asked).await.map_err(|_| LedgerError::TimedOut(timeout.as_secs()))?;
    asked.map_err(|trouble| match trouble {
        Trouble::Key(why) => LedgerError::Query(why),
        Trouble::Ledger(error) => error,
    })
}

/// Prepares the query, which runs nothing. A column that is no text would fail at the first key that is found, and not before.
async fn columns(pool: &Pool, query: &Arc<str>) -> Result<Columns, Trouble> {
    let columns = match pool {
        Pool::Postgres(pool) => {
            let prepared = pool.prepare(sql(query)).await.map_err(|error| trouble(error, query))?;
            let first = prepared.columns().first().map(|column| column.type_info());
            if let Some(of_type) = first.filter(|of_type| !<String as sqlx::Type<sqlx::Postgres>>::compatible(of_type)) {
                return Err(Trouble::Ledger(no_text(&format!(" but {}", of_type.to_string().to_lowercase()))));
            }
            Columns { count: prepared.columns().len(), text: true }
        }
        Pool::Sqlite(pool) => {
            let prepared = pool.prepare(sql(query)).await.map_err(|error| trouble(error, query))?;
            Columns { count: prepared.columns().len(), text: false }
        }
    };
    match columns.count {
        0 => Err(Trouble::Ledger(LedgerError::Query("the query returns no column: let it SELECT the keys that were applied".to_owned()))),
        _ => Ok(columns),
    }
}

fn no_text(but: &str) -> LedgerError {
    LedgerError::Query(format!("the query's first column is no text{but}: cast it, for example SELECT event_id::text"))
}

/// sqlx names host and user in its errors, never the password; a server's words about a key may quote it, which is no secret.
fn trouble(error: sqlx::Error, query: &str) -> Trouble {
    match error {
        sqlx::Error::PoolTimedOut => Trouble::Ledger(LedgerError::TimedOut(PATIENCE.as_secs())),
        sqlx::Error::ColumnDecode { .. } => Trouble::Ledger(no_text("")),
        // Class 22 of SQLSTATE is "data exception".
        sqlx::Error::Database(error) if error.code().is_some_and(|code| code.starts_with("22")) => Trouble::Key(error.message().to_owned()),
        // sqlx adds the line of PostgreSQL's own source that raised the error.
        sqlx::Error::Database(error) => Trouble::Ledger(LedgerError::Unreachable(match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => match error.position() {
                Some(PgErrorPosition::Original(at)) => format!("{}, at {:?} of the query", error.message(), from(query, at)),
                _ => error.message().to_owned(),
            },
            None => error.to_string(),
        })),
        error => Trouble::Ledger(LedgerError::Unreachable(error.to_string())),
    }
}

/// The query's text from a character on, counted from 1: the rest of its line, or the beginning of that.
fn from(query: &str, character: usize) -> &str {
    const SHOWN: usize = 40;
    let start = query.char_indices().nth(character.saturating_sub(1)).map_or(query.len(), |(at, _)| at);
    let line = query[start..].lines().next().unwrap_or_default();
    line.char_indices().nth(SHOWN).map_or(line, |(end, _)| &line[..end]).trim_end()
}

#[cfg(test)]
mod tests {
    use super::from;

    #[test]
    fn a_place_in_the_query_is_quoted_from_there_to_the_end_of_its_line() {
        assert_eq!(from("SELECT id FROM nowhere WHERE id = ANY($1)", 16), "nowhere WHERE id = ANY($1)");
        assert_eq!(from("SELECT \u{e4}\nFROM nowhere", 8), "\u{e4}");
        assert_eq!(from("SELECT", 1), "SELECT");
        assert_eq!(from("SELECT", 99), "");
        assert_eq!(from(&"x".repeat(100), 1).len(), 40);
    }
}
