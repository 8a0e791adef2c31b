//! Alerts and what is told of them.
//!
//! Two change an alert: the evaluation, under its lease, and people. Each change raises the version and is stored only on top of the version it was made from.

use super::sql_pieces::{Dialect as _, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::alert::{Alert, Key, Measure, News, Notify, Severity, Terms};

/// An alert as it is stored: one for each rule and DLQ that was ever beyond the threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAlert {
    pub id: i64,
    pub key: Key,
    /// Of the rule when it was last looked at.
    pub rule_version: i64,
    pub changed_at_ms: i64,
    pub version: i64,
    pub alert: Alert,
}

/// An alert to be stored: the first of its key, or what became of one.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedAlert {
    /// Its id and the version it was made from. None: there is none of its key.
    pub stored: Option<(i64, i64)>,
    pub key: Key,
    pub rule_version: i64,
    pub alert: Alert,
}

/// One notification of an alert, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredNews {
    /// Rises with time.
    pub id: i64,
    pub alert_id: i64,
    pub key: Key,
    pub notify: Notify,
}

/// An alert that fires, as lists of DLQs show it.
#[derive(Debug, Clone, PartialEq)]
pub struct FiringAlert {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    pub rule: String,
    pub measure: Measure,
    pub alert: Alert,
}

impl StoredAlert {
    /// The version that an alert begins with.
    pub const FIRST_VERSION: i64 = 1;
}

#[derive(serde::Serialize)]
struct NewRow<'a> {
    rule_id: i64,
    rule_version: i64,
    changed_at_ms: i64,
    version: i64,
    cluster: std::borrow::Cow<'a, str>,
    topic: std::borrow::Cow<'a, str>,
    phase: &'static str,
    life: String,
}

#[derive(serde::Serialize)]
struct ChangedRow {
    alert_id: i64,
    seen_version: i64,
    new_rule_version: i64,
    at_ms: i64,
    new_phase: &'static str,
    new_life: String,
}

#[derive(serde::Serialize)]
struct NewsRow {
    alert_id: i64,
    number: u32,
    at_ms: i64,
    severity: &'static str,
    news: String,
}

#[derive(sqlx::FromRow)]
struct RawAlert {
    id: i64,
    rule_id: i64,
    rule_version: i64,
    changed_at_ms: i64,
    version: i64,
    cluster: String,
    topic: String,
    life: String,
}

impl TryFrom<RawAlert> for StoredAlert {
    type Error = StoreError;

    fn try_from(raw: RawAlert) -> Result<StoredAlert, StoreError> {
        Ok(StoredAlert {
            id: raw.id,
            key: Key { rule_id: raw.rule_id, cluster: raw.cluster, topic: raw.topic },
            rule_version: raw.rule_version,
            changed_at_ms: raw.changed_at_ms,
            version: raw.version,
            alert: life(&raw.life)?,
        })
    }
}

#[derive(sqlx::FromRow)]
struct RawNews {
    id: i64,
    alert_id: i64,
    rule_id: i64,
    cluster: String,
    topic: String,
    number: i64,
    at_ms: i64,
    severity: String,
    news: String,
}

impl TryFrom<RawNews> for StoredNews {
    type Error = StoreError;

    fn try_from(raw: RawNews) -> Result<StoredNews, StoreError> {
        let news: News = serde_json::from_str(&raw.news).map_err(|_| StoreError::unreadable("news of an alert", &raw.news))?;
        let severity = Severity::parse(&raw.severity).ok_or_else(|| StoreError::unreadable("severity", &raw.severity))?;
        let number = u32::try_from(raw.number).map_err(|_| StoreError::unreadable("number of news", &raw.number.to_string()))?;
        Ok(StoredNews {
            id: raw.id,
            alert_id: raw.alert_id,
            key: Key { rule_id: raw.rule_id, cluster: raw.cluster, topic: raw.topic },
            notify: Notify { number, at_ms: raw.at_ms, severity, news },
        })
    }
}

fn life(text: &str) -> Result<Alert, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::unreadable("life of an alert", text))
}

fn json(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(value).expect("plain structs of numbers and texts have a JSON form");
    text(&json).into_owned()
}

macro_rules! select_alerts {
    ($rest:literal) => {
        concat!("SELECT id, rule_id, rule_version, changed_at_ms, version, cluster, topic, life FROM alerts ", $rest)
    };
}

macro_rules! select_news {
    ($rest:literal) => {
        concat!(
            "SELECT n.id, n.alert_id, a.rule_id, a.cluster, a.topic, n.number, n.at_ms, n.severity, n.news FROM alert_news n
             JOIN alerts a ON a.id = n.alert_id ",
            $rest
        )
    };
}

/// Stores alerts that nobody changed since they were read. Gives id and version of those that were stored; who is not among them was changed by somebody else
/// meanwhile, and is as they left it.
///
/// # Errors
/// The database could not be asked.
pub async fn save(tx: &mut Tx, changed: &[&ChangedAlert], now_ms: i64) -> Result<Vec<(Key, i64, i64)>, StoreError> {
    let new: Vec<NewRow<'_>> = changed.iter().filter(|changed| changed.stored.is_none()).map(|changed| new_row(changed, now_ms)).collect();
    let mut later: Vec<(&ChangedAlert, i64, i64)> =
        changed.iter().filter_map(|changed| changed.stored.map(|(id, version)| (*changed, id, version))).collect();
    // In one order, so that two who store several at once cannot deadlock.
    later.sort_unstable_by_key(|(_, id, _)| *id);
    let mut saved = Vec::new();
    if !new.is_empty() {
        let new = rows(&new);
        let added: Vec<(i64, i64, String, String)> = in_tx!(tx, |connection| {
            sqlx::query_as::<Db, (i64, i64, String, String)>(Db::ADD_ALERTS).bind(&new).fetch_all(&mut *connection).await?
        })?;
        let placed = |(id, rule_id, cluster, topic)| (Key { rule_id, cluster, topic }, id, StoredAlert::FIRST_VERSION);
        saved.extend(added.into_iter().map(placed));
    }
    if !later.is_empty() {
        let list: Vec<ChangedRow> = later
            .iter()
            .map(|(changed, alert_id, seen_version)| ChangedRow {
                alert_id: *alert_id,
                seen_version: *seen_version,
                new_rule_version: changed.rule_version,
                at_ms: now_ms,
                new_phase: changed.alert.phase.as_str(),
                new_life: json(&changed.alert),
            })
            .collect();
        let list = rows(&list);
        let done: Vec<i64> =
            in_tx!(tx, |connection| { sqlx::query_scalar::<Db, i64>(Db::CHANGE_ALERTS).bind(&list).fetch_all(&mut *connection).await? })?;
        let done: std::collections::HashSet<i64> = done.into_iter().collect();
        let stored = later.into_iter().filter(|(_, id, _)| done.contains(id));
        saved.extend(stored.map(|(changed, id, version)| (changed.key.clone(), id, version + 1)));
    }
    Ok(saved)
}

fn new_row(changed: &ChangedAlert, now_ms: i64) -> NewRow<'_> {
    NewRow {
        rule_id: changed.key.rule_id,
        rule_version: changed.rule_version,
        changed_at_ms: now_ms,
        version: StoredAlert::FIRST_VERSION,
        cluster: text(&changed.key.cluster),
        topic: text(&changed.key.topic),
        phase: changed.alert.phase.as_str(),
        life: json(&changed.alert),
    }
}

/// Stores news, each with the id of its alert. What is stored already, by alert and number, stays as it is.
///
/// # Errors
/// The database could not be asked.
pub async fn add_news(tx: &mut Tx, news: &[(i64, Notify)]) -> Result<(), StoreError> {
    if news.is_empty() {
        return Ok(());
    }
    let row = |(alert_id, notify): &(i64, Notify)| NewsRow {
        alert_id: *alert_id,
        number: notify.number,
        at_ms: notify.at_ms,
        severity: notify.severity.as_str(),
        news: json(&notify.news),
    };
    let list = rows(&news.iter().map(row).collect::<Vec<_>>());
    in_tx!(tx, |connection| {
        sqlx::query(Db::ADD_NEWS).bind(&list).execute(&mut *connection).await?;
    })
}

/// What the evaluation counts beside figures: events and what waits, by DLQ and measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    pub dlq_id: i64,
    pub measure: Measure,
    /// A count; of [`Measure::ApprovalWaiting`] since when the oldest waits, ms.
    pub value: i64,
}

impl Store {
    /// The version of each alert, by id: what changed shows by it.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn alert_versions(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT id, version FROM alerts";
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).fetch_all(pool).await? })
    }

    /// The alerts with these ids, in no order; those that there are.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn alerts_by_id(&self, ids: &[i64]) -> Result<Vec<StoredAlert>, StoreError> {
        let list = rows(ids);
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawAlert>(Db::SOME_ALERTS).bind(&list).fetch_all(pool).await? })?;
        raw.into_iter().map(StoredAlert::try_from).collect()
    }

    /// One alert; None: there is none of that id.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn alert(&self, id: i64) -> Result<Option<StoredAlert>, StoreError> {
        Ok(self.alerts_by_id(&[id]).await?.into_iter().next())
    }

    /// The alerts that fire or are about to, oldest first.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn live_alerts(&self) -> Result<Vec<StoredAlert>, StoreError> {
        const SQL: &str = select_alerts!("WHERE phase IN ('pending', 'firing') ORDER BY id");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawAlert>(SQL).fetch_all(pool).await? })?;
        raw.into_iter().map(StoredAlert::try_from).collect()
    }

    /// The alerts of one DLQ, whatever became of them, newest first.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn alerts_of_dlq(&self, cluster: &str, topic: &str, limit: i64) -> Result<Vec<StoredAlert>, StoreError> {
        const SQL: &str = select_alerts!("WHERE cluster = $1 AND topic = $2 ORDER BY id DESC LIMIT $3");
        let raw = read!(self, |pool| {
            let query = sqlx::query_as::<Db, RawAlert>(SQL).bind(text(cluster)).bind(text(topic));
            query.bind(limit).fetch_all(pool).await?
        })?;
        raw.into_iter().map(StoredAlert::try_from).collect()
    }

    /// News of all alerts, newest first, below the id `before`.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn alert_news(&self, before: Option<i64>, limit: i64) -> Result<Vec<StoredNews>, StoreError> {
        const SQL: &str = select_news!("WHERE n.id < $1 ORDER BY n.id DESC LIMIT $2");
        let raw =
            read!(self, |pool| { sqlx::query_as::<Db, RawNews>(SQL).bind(before.unwrap_or(i64::MAX)).bind(limit).fetch_all(pool).await? })?;
        raw.into_iter().map(StoredNews::try_from).collect()
    }

    /// News of one alert, newest first.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn news_of_alert(&self, alert_id: i64, limit: i64) -> Result<Vec<StoredNews>, StoreError> {
        const SQL: &str = select_news!("WHERE n.alert_id = $1 ORDER BY n.number DESC LIMIT $2");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawNews>(SQL).bind(alert_id).bind(limit).fetch_all(pool).await? })?;
        raw.into_iter().map(StoredNews::try_from).collect()
    }

    /// What fires, with the names and measures of the rules.
    ///
    /// # Errors
    /// As [`Store::alerts_by_id`].
    pub async fn firing_alerts(&self) -> Result<Vec<FiringAlert>, StoreError> {
        // The first condition is that of the index.
        const SQL: &str = "SELECT a.id, a.cluster, a.topic, r.terms, a.life FROM alerts a JOIN rules r ON r.id = a.rule_id
             WHERE a.phase IN ('pending', 'firing') AND a.phase = 'firing' ORDER BY a.id";
        let raw = read!(self, |pool| { sqlx::query_as::<Db, (i64, String, String, String, String)>(SQL).fetch_all(pool).await? })?;
        let firing = |(id, cluster, topic, terms, alert): (i64, String, String, String, String)| {
            let terms: Terms = serde_json::from_str(&terms).map_err(|_| StoreError::unreadable("terms of a rule", &terms))?;
            Ok(FiringAlert { id, cluster, topic, rule: terms.name, measure: terms.measure, alert: life(&alert)? })
        };
        raw.into_iter().map(firing).collect()
    }

    /// All that is counted beside figures, of every DLQ that has any, in one query: gaps and recreated topics since `since_ms`, replays that wait or were
    /// halted, emergency replays approved before `unreviewed_ms` that nobody reviewed, and failures that came back after their fix.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn noted(&self, since_ms: i64, unreviewed_ms: i64) -> Result<Vec<Noted>, StoreError> {
        // A group's newest message is known once its counters are folded, which is about every second.
        const SQL: &str = "SELECT dlq_id, 'intake_gap', COUNT(*) FROM gaps WHERE noticed_at_ms >= $1 GROUP BY dlq_id
             UNION ALL SELECT dlq_id, 'topic_recreated', COUNT(*) FROM incarnations WHERE started_at_ms >= $1 AND incarnation > 1 GROUP BY dlq_id
             UNION ALL SELECT dlq_id, 'approval_waiting', MIN(COALESCE(submitted_at_ms, state_since_ms)) FROM batches
                WHERE state = 'awaiting_approval' GROUP BY dlq_id
             UNION ALL SELECT dlq_id, 'replay_halted', COUNT(*) FROM batches WHERE state = 'halted' GROUP BY dlq_id
             UNION ALL SELECT b.dlq_id, 'emergency_unreviewed', COUNT(*) FROM batches b WHERE b.emergency AND b.approved_at_ms < $2
                AND NOT EXISTS (SELECT 1 FROM emergency_reviews r WHERE r.batch_id = b.id) GROUP BY b.dlq_id
             UNION ALL SELECT g.dlq_id, 'group_regressed', COUNT(*) FROM group_status s JOIN groups g ON g.id = s.group_id
                JOIN counters c ON c.dlq_id = g.dlq_id AND c.kind = 'group_total' AND c.ref = g.id
                WHERE s.status = 'fixed_since' AND c.last_ms > s.since_ms GROUP BY g.dlq_id";
        let rows: Vec<(i64, String, i64)> = read!(self, |pool| {
            sqlx::query_as::<Db, (i64, String, i64)>(SQL).bind(since_ms).bind(unreviewed_ms).fetch_all(pool).await?
        })?;
        let noted = |(dlq_id, word, value): (i64, String, i64)| {
            let measure = Measure::parse(&word).ok_or_else(|| StoreError::unreadable("measure", &word))?;
            Ok(Noted { dlq_id, measure, value })
        };
        rows.into_iter().map(noted).collect()
    }
}
