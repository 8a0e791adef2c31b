//! DLQs and their incarnations.

use super::notify::Hint;
use super::sql_pieces::{optional_text, text};
use super::{Store, StoreError};

/// One dead-letter topic in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Dlq {
    pub id: i64,
    pub cluster: String,
    pub topic: String,
    /// The newest incarnation, counting from 1.
    pub incarnation: i32,
    /// Kafka's topic id of the newest incarnation, where the broker gives one.
    pub topic_id: Option<String>,
    pub owner: Option<String>,
    pub first_seen_at_ms: i64,
    /// Set while the topic does not exist in the cluster.
    pub gone_since_ms: Option<i64>,
    /// What `start` left out, in words for the page ("records before 2026-11-23T00:00:00Z were not taken in"); None when nothing was.
    pub start_note: Option<String>,
}

/// One life of a topic under its name.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Incarnation {
    pub incarnation: i32,
    pub topic_id: Option<String>,
    pub started_at_ms: i64,
}

/// The newest incarnation's topic id stands in `incarnations`.
macro_rules! select_dlqs {
    ($rest:literal) => {
        concat!(
            "SELECT d.id, d.cluster, d.topic, d.incarnation, i.topic_id, d.owner, d.first_seen_at_ms, d.gone_since_ms, d.start_note
             FROM dlqs d JOIN incarnations i ON i.dlq_id = d.id AND i.incarnation = d.incarnation ",
            $rest
        )
    };
}

const ADD_INCARNATION: &str = "INSERT INTO incarnations (dlq_id, incarnation, started_at_ms, topic_id) VALUES ($1, $2, $3, $4)";
const ONE_DLQ: &str = select_dlqs!("WHERE d.cluster = $1 AND d.topic = $2");

impl Store {
    /// Finds the DLQ or makes it (incarnation 1). The flag says whether it was made now.
    pub async fn ensure_dlq(
        &self,
        cluster: &str,
        topic: &str,
        topic_id: Option<&str>,
        owner: Option<&str>,
        now_ms: i64,
    ) -> Result<(Dlq, bool), StoreError> {
        const MAKE: &str = "INSERT INTO dlqs (cluster, topic, incarnation, owner, first_seen_at_ms) VALUES ($1, $2, 1, $3, $4)
             ON CONFLICT (cluster, topic) DO NOTHING RETURNING id";
        if let Some(dlq) = self.dlq(cluster, topic).await? {
            return Ok((dlq, false));
        }
        let found = transaction!(self, |tx| {
            let make = sqlx::query_scalar::<Db, i64>(MAKE).bind(text(cluster)).bind(text(topic)).bind(optional_text(owner)).bind(now_ms);
            let made = make.fetch_optional(&mut *tx).await?;
            if let Some(id) = made {
                sqlx::query(ADD_INCARNATION).bind(id).bind(1_i32).bind(now_ms).bind(optional_text(topic_id)).execute(&mut *tx).await?;
            }
            let dlq = sqlx::query_as::<Db, Dlq>(ONE_DLQ).bind(text(cluster)).bind(text(topic)).fetch_one(&mut *tx).await?;
            (dlq, made.is_some())
        })?;
        if let (dlq, true) = &found {
            self.changed(&[Hint::Dlq(dlq.id)]);
        }
        Ok(found)
    }

    /// Sets the topic id of the current incarnation where none was known yet (an upgraded broker). Returns false if one is set already.
    pub async fn learn_topic_id(&self, dlq_id: i64, incarnation: i32, topic_id: &str) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE incarnations SET topic_id = $3 WHERE dlq_id = $1 AND incarnation = $2 AND topic_id IS NULL";
        write_one!(self, |pool| {
            sqlx::query(SQL).bind(dlq_id).bind(incarnation).bind(text(topic_id)).execute(pool).await?.rows_affected() > 0
        })
    }

    /// Starts incarnation `expected + 1` if the newest still is `expected`. None: someone else was first.
    pub async fn start_incarnation(
        &self,
        dlq_id: i64,
        expected: i32,
        topic_id: Option<&str>,
        now_ms: i64,
    ) -> Result<Option<i32>, StoreError> {
        const RAISE: &str =
            "UPDATE dlqs SET incarnation = incarnation + 1, gone_since_ms = NULL WHERE id = $1 AND incarnation = $2 RETURNING incarnation";
        transaction!(self, |tx| {
            let raised = sqlx::query_scalar::<Db, i32>(RAISE).bind(dlq_id).bind(expected).fetch_optional(&mut *tx).await?;
            if let Some(incarnation) = raised {
                sqlx::query(ADD_INCARNATION)
                    .bind(dlq_id)
                    .bind(incarnation)
                    .bind(now_ms)
                    .bind(optional_text(topic_id))
                    .execute(&mut *tx)
                    .await?;
            }
            raised
        })
    }

    /// Sets owner (from the configuration) and start note.
    pub async fn describe_dlq(&self, dlq_id: i64, owner: Option<&str>, start_note: Option<&str>) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE dlqs SET owner = $2, start_note = $3 WHERE id = $1";
        write_one!(self, |pool| {
            sqlx::query(SQL).bind(dlq_id).bind(optional_text(owner)).bind(optional_text(start_note)).execute(pool).await?;
        })
    }

    /// `Some(now)`: the topic is gone since then (kept if already set). `None`: it exists.
    pub async fn set_gone(&self, dlq_id: i64, since_ms: Option<i64>) -> Result<(), StoreError> {
        const GONE: &str = "UPDATE dlqs SET gone_since_ms = $2 WHERE id = $1 AND gone_since_ms IS NULL";
        const BACK: &str = "UPDATE dlqs SET gone_since_ms = $2 WHERE id = $1 AND gone_since_ms IS NOT NULL";
        let sql = if since_ms.is_some() { GONE } else { BACK };
        let changed = write_one!(self, |pool| { sqlx::query(sql).bind(dlq_id).bind(since_ms).execute(pool).await?.rows_affected() })?;
        if changed > 0 {
            self.changed(&[Hint::Dlq(dlq_id)]);
        }
        Ok(())
    }

    /// All DLQs ever seen, by cluster and topic.
    pub async fn dlqs(&self) -> Result<Vec<Dlq>, StoreError> {
        const SQL: &str = select_dlqs!("ORDER BY d.cluster, d.topic");
        read!(self, |pool| { sqlx::query_as::<Db, Dlq>(SQL).fetch_all(pool).await? })
    }

    /// One DLQ by its name; None if it was never seen.
    pub async fn dlq(&self, cluster: &str, topic: &str) -> Result<Option<Dlq>, StoreError> {
        read!(self, |pool| { sqlx::query_as::<Db, Dlq>(ONE_DLQ).bind(text(cluster)).bind(text(topic)).fetch_optional(pool).await? })
    }

    /// All lives of a DLQ, oldest first.
    pub async fn incarnations(&self, dlq_id: i64) -> Result<Vec<Incarnation>, StoreError> {
        const SQL: &str = "SELECT incarnation, topic_id, started_at_ms FROM incarnations WHERE dlq_id = $1 ORDER BY incarnation";
        read!(self, |pool| { sqlx::query_as::<Db, Incarnation>(SQL).bind(dlq_id).fetch_all(pool).await? })
    }
}
