//! What DLQs usually bring, and anomalies that are over.
//!
//! Two change a baseline: the evaluation, under its lease, and people who accept a level. Each change raises the version and is stored only on top of the
//! version it was made from.

use std::collections::HashMap;

use super::sql_pieces::{Dialect as _, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::baseline::{Follow, History, Span, Usual, Watch};

/// A baseline as it is stored.
#[derive(Debug, Clone)]
pub struct StoredBaseline {
    pub dlq_id: i64,
    pub version: i64,
    pub history: History,
    pub watch: Watch,
}

/// An anomaly that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    pub dlq_id: i64,
    pub span: Span,
    /// Who called it usual. None: it does not teach.
    pub accepted_by: Option<String>,
}

#[derive(serde::Serialize)]
struct BaselineRow {
    dlq_id: i64,
    changed_at_ms: i64,
    version: i64,
    history: String,
    watch: String,
    usual: String,
}

#[derive(serde::Serialize)]
struct WatchRow {
    of_dlq: i64,
    seen_version: i64,
    at_ms: i64,
    new_watch: String,
}

#[derive(serde::Serialize)]
struct AnomalyRow {
    dlq_id: i64,
    from_ms: i64,
    to_ms: i64,
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain structs of numbers have a JSON form")
}

/// Stores whole baselines, each with the version it was made from (0: there was none). Gives the DLQs of those that were stored; the others were changed
/// by somebody else meanwhile.
///
/// # Errors
/// The database could not be asked.
pub async fn save(tx: &mut Tx, changed: &[(i64, i64, &Follow)], now_ms: i64) -> Result<Vec<i64>, StoreError> {
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let row = |(dlq_id, seen_version, follow): &(i64, i64, &Follow)| BaselineRow {
        dlq_id: *dlq_id,
        changed_at_ms: now_ms,
        version: seen_version + 1,
        history: json(follow.history()),
        watch: json(follow.watch()),
        usual: json(&Usual::of(follow.baseline(), now_ms)),
    };
    let list = rows(&changed.iter().map(row).collect::<Vec<_>>());
    in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(Db::SAVE_BASELINES).bind(&list).fetch_all(&mut *connection).await? })
}

/// Stores only whether something is unusual, as [`save`].
///
/// # Errors
/// The database could not be asked.
pub async fn save_watches(tx: &mut Tx, changed: &[(i64, i64, &Watch)], now_ms: i64) -> Result<Vec<i64>, StoreError> {
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let row = |(of_dlq, seen_version, watch): &(i64, i64, &Watch)| WatchRow {
        of_dlq: *of_dlq,
        seen_version: *seen_version,
        at_ms: now_ms,
        new_watch: json(watch),
    };
    let list = rows(&changed.iter().map(row).collect::<Vec<_>>());
    in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(Db::SAVE_WATCHES).bind(&list).fetch_all(&mut *connection).await? })
}

/// Stores anomalies that are over. One that is stored already stays as it is.
///
/// # Errors
/// The database could not be asked.
pub async fn add_anomalies(tx: &mut Tx, over: &[(i64, Span)]) -> Result<(), StoreError> {
    if over.is_empty() {
        return Ok(());
    }
    let row = |(dlq_id, span): &(i64, Span)| AnomalyRow { dlq_id: *dlq_id, from_ms: span.from_ms, to_ms: span.to_ms };
    let list = rows(&over.iter().map(row).collect::<Vec<_>>());
    in_tx!(tx, |connection| {
        sqlx::query(Db::ADD_ANOMALIES).bind(&list).execute(&mut *connection).await?;
    })
}

/// Notes that an anomaly is called usual, if nobody did before. Whether it was so.
///
/// # Errors
/// The database could not be asked.
pub async fn accept(tx: &mut Tx, dlq_id: i64, from_ms: i64, by: &str) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE anomalies SET accepted_by = $3 WHERE dlq_id = $1 AND from_ms = $2 AND accepted_by IS NULL";
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(dlq_id).bind(from_ms).bind(text(by));
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

impl Store {
    /// The version of each DLQ's baseline: what changed shows by it.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn baseline_versions(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT dlq_id, version FROM baselines";
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).fetch_all(pool).await? })
    }

    /// The baselines of these DLQs, in no order; those that there are. Each is some 10 to 20 kB.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn baselines(&self, dlq_ids: &[i64]) -> Result<Vec<StoredBaseline>, StoreError> {
        let list = rows(dlq_ids);
        let raw: Vec<(i64, i64, String, String)> = read!(self, |pool| {
            sqlx::query_as::<Db, (i64, i64, String, String)>(Db::SOME_BASELINES).bind(&list).fetch_all(pool).await?
        })?;
        let typed = |(dlq_id, version, history, watch): (i64, i64, String, String)| {
            Ok(StoredBaseline {
                dlq_id,
                version,
                history: serde_json::from_str(&history).map_err(|_| StoreError::unreadable("history", &history))?,
                watch: serde_json::from_str(&watch).map_err(|_| StoreError::unreadable("watch", &watch))?,
            })
        };
        raw.into_iter().map(typed).collect()
    }

    /// What is usual now, as pages show it, of each DLQ or of `only` one.
    ///
    /// # Errors
    /// As [`Store::baselines`].
    pub async fn usual(&self, only: Option<i64>) -> Result<HashMap<i64, Usual>, StoreError> {
        const SQL: &str = "SELECT dlq_id, usual FROM baselines WHERE $1 = 0 OR dlq_id = $1";
        let raw: Vec<(i64, String)> =
            read!(self, |pool| { sqlx::query_as::<Db, (i64, String)>(SQL).bind(only.unwrap_or(0)).fetch_all(pool).await? })?;
        let typed = |(dlq_id, usual): (i64, String)| {
            let usual = serde_json::from_str(&usual).map_err(|_| StoreError::unreadable("baseline", &usual))?;
            Ok((dlq_id, usual))
        };
        raw.into_iter().map(typed).collect()
    }

    /// Anomalies that ended at `from_ms` or later, of each DLQ or of `only` one, newest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn anomalies(&self, only: Option<i64>, from_ms: i64) -> Result<Vec<Anomaly>, StoreError> {
        const SQL: &str =
            "SELECT dlq_id, from_ms, to_ms, accepted_by FROM anomalies WHERE ($1 = 0 OR dlq_id = $1) AND to_ms >= $2 ORDER BY from_ms DESC";
        let raw: Vec<(i64, i64, i64, Option<String>)> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i64, i64, i64, Option<String>)>(SQL).bind(only.unwrap_or(0));
            query.bind(from_ms).fetch_all(pool).await?
        })?;
        let typed = |(dlq_id, from_ms, to_ms, accepted_by)| Anomaly { dlq_id, span: Span { from_ms, to_ms }, accepted_by };
        Ok(raw.into_iter().map(typed).collect())
    }
}
