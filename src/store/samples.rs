//! What the sampler saw, and when it could not see. Unknown is a state, never zero.

use std::collections::HashMap;

use super::leases::HeldLease;
use super::notify::Hint;
use super::positions::PartitionId;
use super::sql_pieces::{Dialect as _, rows, text};
use super::{Store, StoreError};

/// One look at one DLQ.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct Sample {
    pub dlq_id: i64,
    pub at_ms: i64,
    /// None: some partition could not be asked.
    pub uncollected: Option<i64>,
    pub depth: Option<i64>,
    /// all_stored | at_risk | not_permitted | unlimited | unknown
    pub at_risk_state: String,
    /// ms until the oldest uncollected record expires; only with at_risk.
    pub at_risk_left_ms: Option<i64>,
    /// Why it failed, short and without secrets; None when it succeeded.
    pub error: Option<String>,
    /// When the oldest open message was dead-lettered; None: none was open, or an earlier version looked.
    pub oldest_open_ms: Option<i64>,
    /// Archived messages whose follow-up was open, and replayed ones by how that ended; None: an earlier version looked.
    pub follow_up_open: Option<i64>,
    pub confirmed: Option<i64>,
    pub returned: Option<i64>,
}

/// The newest look at one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSample {
    pub id: PartitionId,
    pub at_ms: i64,
    pub position: Option<i64>,
    pub log_start: Option<i64>,
    pub log_end: Option<i64>,
    pub error: Option<String>,
}

#[derive(serde::Serialize)]
struct NewSample<'a> {
    dlq_id: i64,
    at_ms: i64,
    uncollected: Option<i64>,
    depth: Option<i64>,
    at_risk_state: String,
    at_risk_left_ms: Option<i64>,
    error: Option<std::borrow::Cow<'a, str>>,
    oldest_open_ms: Option<i64>,
    follow_up_open: Option<i64>,
    confirmed: Option<i64>,
    returned: Option<i64>,
}

impl<'a> From<&'a Sample> for NewSample<'a> {
    fn from(sample: &'a Sample) -> NewSample<'a> {
        NewSample {
            dlq_id: sample.dlq_id,
            at_ms: sample.at_ms,
            uncollected: sample.uncollected,
            depth: sample.depth,
            at_risk_state: text(&sample.at_risk_state).into_owned(),
            at_risk_left_ms: sample.at_risk_left_ms,
            error: sample.error.as_deref().map(text),
            oldest_open_ms: sample.oldest_open_ms,
            follow_up_open: sample.follow_up_open,
            confirmed: sample.confirmed,
            returned: sample.returned,
        }
    }
}

/// A partition sample as a row: written as JSON, read as columns.
#[derive(serde::Serialize, sqlx::FromRow)]
struct RawPartition {
    dlq_id: i64,
    incarnation: i32,
    partition: i32,
    at_ms: i64,
    position: Option<i64>,
    log_start: Option<i64>,
    log_end: Option<i64>,
    error: Option<String>,
}

impl From<&PartitionSample> for RawPartition {
    fn from(sample: &PartitionSample) -> RawPartition {
        RawPartition {
            dlq_id: sample.id.dlq_id,
            incarnation: sample.id.incarnation,
            partition: sample.id.partition,
            at_ms: sample.at_ms,
            position: sample.position,
            log_start: sample.log_start,
            log_end: sample.log_end,
            error: sample.error.as_deref().map(|error| text(error).into_owned()),
        }
    }
}

impl From<RawPartition> for PartitionSample {
    fn from(raw: RawPartition) -> PartitionSample {
        PartitionSample {
            id: PartitionId { dlq_id: raw.dlq_id, incarnation: raw.incarnation, partition: raw.partition },
            at_ms: raw.at_ms,
            position: raw.position,
            log_start: raw.log_start,
            log_end: raw.log_end,
            error: raw.error,
        }
    }
}

macro_rules! sample_row {
    () => {
        "s.dlq_id, s.at_ms, s.uncollected, s.depth, s.at_risk_state, s.at_risk_left_ms, s.error, s.oldest_open_ms, s.follow_up_open, s.confirmed, s.returned"
    };
}

/// `$1` the DLQ or 0.
pub(super) const NEWEST: &str = concat!(
    "SELECT ",
    sample_row!(),
    " FROM dlqs d JOIN samples s ON s.dlq_id = d.id AND s.at_ms = (SELECT MAX(n.at_ms) FROM samples n WHERE n.dlq_id = d.id)
     WHERE $1 = 0 OR d.id = $1 ORDER BY d.id"
);
/// `$1` the DLQ or 0.
pub(super) const SUCCEEDED: &str = concat!(
    "SELECT ",
    sample_row!(),
    " FROM dlqs d JOIN samples s ON s.dlq_id = d.id AND s.at_ms = (SELECT MAX(n.at_ms) FROM samples n WHERE n.dlq_id = d.id AND n.error IS NULL)
     WHERE $1 = 0 OR d.id = $1"
);
/// `[$1, $2)`, `$3` the DLQ or 0.
pub(super) const DEPTHS_AT: &str =
    "SELECT d.id, (SELECT s.depth FROM samples s WHERE s.dlq_id = d.id AND s.at_ms >= $1 AND s.at_ms < $2 AND s.depth IS NOT NULL
        ORDER BY s.at_ms LIMIT 1) FROM dlqs d WHERE $3 = 0 OR d.id = $3";

impl Store {
    /// Appends samples and replaces the partition samples, in one transaction. A second sample of the same DLQ and instant replaces the first.
    /// False: the lease under which they were taken is another's by now, and nothing was written. None writes under no lease.
    pub async fn save_samples(
        &self,
        lease: Option<&HeldLease>,
        samples: &[Sample],
        partitions: &[PartitionSample],
    ) -> Result<bool, StoreError> {
        let looked_at: Vec<Hint> = samples.iter().map(|sample| Hint::Dlq(sample.dlq_id)).collect();
        let samples = rows(&samples.iter().map(NewSample::from).collect::<Vec<_>>());
        let mut partitions: Vec<RawPartition> = partitions.iter().map(RawPartition::from).collect();
        // In one order, so that two samplers at once cannot deadlock.
        partitions.sort_by_key(|sample| (sample.dlq_id, sample.incarnation, sample.partition));
        let partitions = rows(&partitions);
        let saved = transaction!(self, |tx| {
            let holds = match lease {
                Some(HeldLease { name, epoch }) => {
                    let row = sqlx::query_scalar::<Db, i64>(Db::LEASE_HOLDS).bind(text(name)).bind(epoch);
                    row.fetch_optional(&mut *tx).await?.is_some()
                }
                None => true,
            };
            if holds {
                sqlx::query(Db::SAVE_SAMPLES).bind(&samples).execute(&mut *tx).await?;
                sqlx::query(Db::SAVE_PARTITION_SAMPLES).bind(&partitions).execute(&mut *tx).await?;
            }
            holds
        })?;
        if saved {
            self.changed(&looked_at);
        }
        Ok(saved)
    }

    /// The newest sample of each DLQ, or of `only` one, and the newest one that succeeded: (newest, newest successful).
    pub async fn latest_samples(&self, only: Option<i64>) -> Result<Vec<(Sample, Option<Sample>)>, StoreError> {
        let (newest, succeeded) = read!(self, |pool| {
            let newest = sqlx::query_as::<Db, Sample>(NEWEST).bind(only.unwrap_or(0)).fetch_all(pool).await?;
            // Mostly all of them succeeded, and there is nothing more to ask.
            let failed = newest.iter().any(|sample| sample.error.is_some());
            let succeeded = sqlx::query_as::<Db, Sample>(SUCCEEDED).bind(only.unwrap_or(0));
            let succeeded = if failed { succeeded.fetch_all(pool).await? } else { Vec::new() };
            (newest, succeeded)
        })?;
        let mut succeeded: HashMap<i64, Sample> = succeeded.into_iter().map(|sample| (sample.dlq_id, sample)).collect();
        Ok(newest
            .into_iter()
            .map(|newest| {
                let good = if newest.error.is_none() { Some(newest.clone()) } else { succeeded.remove(&newest.dlq_id) };
                (newest, good)
            })
            .collect())
    }

    /// Samples of one DLQ in `[from, to)`, oldest first.
    pub async fn samples(&self, dlq_id: i64, from_ms: i64, to_ms: i64) -> Result<Vec<Sample>, StoreError> {
        const SQL: &str =
            concat!("SELECT ", sample_row!(), " FROM samples s WHERE s.dlq_id = $1 AND s.at_ms >= $2 AND s.at_ms < $3 ORDER BY s.at_ms");
        read!(self, |pool| { sqlx::query_as::<Db, Sample>(SQL).bind(dlq_id).bind(from_ms).bind(to_ms).fetch_all(pool).await? })
    }

    /// The depth of each DLQ, or of `only` one, as the first sample in `[from, to)` that knew it said: (dlq id, depth). A DLQ without one is absent.
    pub async fn depths_at(&self, only: Option<i64>, from_ms: i64, to_ms: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, (i64, Option<i64>)>(DEPTHS_AT)
                .bind(from_ms)
                .bind(to_ms)
                .bind(only.unwrap_or(0))
                .fetch_all(pool)
                .await?;
            rows.into_iter().filter_map(|(dlq_id, depth)| Some((dlq_id, depth?))).collect()
        })
    }

    /// How deep a DLQ was at the end of each bucket of `[from, to)` in which a look at it succeeded: (start of the bucket in ms, depth).
    pub async fn depth_history(&self, dlq_id: i64, from_ms: i64, to_ms: i64, bucket_ms: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT newest.bucket, s.depth FROM (
                SELECT at_ms - at_ms % $4 AS bucket, MAX(at_ms) AS at_ms FROM samples
                WHERE dlq_id = $1 AND at_ms >= $2 AND at_ms < $3 AND error IS NULL GROUP BY at_ms - at_ms % $4) newest
             JOIN samples s ON s.dlq_id = $1 AND s.at_ms = newest.at_ms WHERE s.depth IS NOT NULL ORDER BY newest.bucket";
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i64, i64)>(SQL).bind(dlq_id).bind(from_ms).bind(to_ms);
            query.bind(bucket_ms.max(1)).fetch_all(pool).await?
        })
    }

    /// The newest look at each partition of the newest incarnation, by partition.
    pub async fn partition_samples(&self, dlq_id: i64) -> Result<Vec<PartitionSample>, StoreError> {
        const SQL: &str = "SELECT p.dlq_id, p.incarnation, p.partition, p.at_ms, p.position, p.log_start, p.log_end, p.error
             FROM dlqs d JOIN partition_samples p ON p.dlq_id = d.id AND p.incarnation = d.incarnation WHERE d.id = $1 ORDER BY p.partition";
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, RawPartition>(SQL).bind(dlq_id).fetch_all(pool).await?;
            rows.into_iter().map(PartitionSample::from).collect()
        })
    }

    /// As [`Store::samples`], of each bucket of `bucket_ms` the newest one.
    pub async fn samples_by(&self, dlq_id: i64, from_ms: i64, to_ms: i64, bucket_ms: i64) -> Result<Vec<Sample>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            sample_row!(),
            " FROM (SELECT MAX(at_ms) AS at_ms FROM samples WHERE dlq_id = $1 AND at_ms >= $2 AND at_ms < $3 GROUP BY at_ms / $4) newest
             JOIN samples s ON s.dlq_id = $1 AND s.at_ms = newest.at_ms ORDER BY s.at_ms"
        );
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, Sample>(SQL).bind(dlq_id).bind(from_ms).bind(to_ms);
            query.bind(bucket_ms.max(1)).fetch_all(pool).await?
        })
    }

    /// Thins samples in `[from, before)` to one per DLQ and bucket (the oldest of it, one that succeeded if any did), at most `limit` rows a call,
    /// oldest first. Returns how many went; call again while it returns any.
    pub async fn thin_samples(&self, from_ms: i64, before_ms: i64, bucket_ms: i64, limit: i64) -> Result<u64, StoreError> {
        // A sample goes when a better one of its bucket stays: one that succeeded before one that failed, an older before a newer.
        const SQL: &str = "WITH going AS (
                SELECT s.dlq_id, s.at_ms FROM samples s WHERE s.at_ms >= $1 AND s.at_ms < $2 AND EXISTS (
                    SELECT 1 FROM samples o WHERE o.dlq_id = s.dlq_id AND o.at_ms >= s.at_ms - s.at_ms % $3
                        AND o.at_ms < s.at_ms - s.at_ms % $3 + $3 AND o.at_ms < $2
                        AND ((o.error IS NULL AND s.error IS NOT NULL)
                            OR ((o.error IS NULL) = (s.error IS NULL) AND o.at_ms < s.at_ms)))
                ORDER BY s.at_ms LIMIT $4)
             DELETE FROM samples WHERE (dlq_id, at_ms) IN (SELECT dlq_id, at_ms FROM going)";
        write_one!(self, |pool| {
            let query = sqlx::query(SQL).bind(from_ms).bind(before_ms).bind(bucket_ms.max(1)).bind(limit);
            query.execute(pool).await?.rows_affected()
        })
    }

    /// Deletes samples older than `before_ms`, at most `limit` a call. Returns how many went.
    pub async fn drop_samples(&self, before_ms: i64, limit: i64) -> Result<u64, StoreError> {
        const SQL: &str =
            "DELETE FROM samples WHERE (dlq_id, at_ms) IN (SELECT dlq_id, at_ms FROM samples WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)";
        write_one!(self, |pool| { sqlx::query(SQL).bind(before_ms).bind(limit).execute(pool).await?.rows_affected() })
    }
}
