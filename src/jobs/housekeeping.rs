//! Small regular work on the database: fold and compare counters, sweep sessions, thin samples.

use std::future::Future;
use std::time::Duration;

use super::Supervisor;
use super::turns::Turns;
use crate::domain::clock::Clock;
use crate::store::{Store, StoreError};
use crate::telemetry;

/// Deltas or samples in one transaction at most.
const AT_ONCE: i64 = 5_000;
const FOLD_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(300);
const THIN_EVERY: Duration = Duration::from_secs(600);
/// All that is old is looked through: rarely.
const THIN_ALL_EVERY: Duration = Duration::from_secs(6 * 3_600);
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Samples older than this are thinned to one a day.
const HOURLY_MS: i64 = 30 * DAY_MS;
/// Samples older than this are deleted.
const KEPT_MS: i64 = 365 * DAY_MS;
/// A full count of each DLQ: rarely.
const COMPARE_EVERY: Duration = Duration::from_secs(6 * 3_600);

/// What housekeeping needs.
#[derive(Clone)]
pub struct Housekeeping {
    pub store: Store,
    pub clock: Clock,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
    /// Samples older than this are thinned: to one an hour, after 30 days to one a day; after a year they go.
    pub samples_fine: Duration,
}

impl Housekeeping {
    /// Runs all of it under the supervisor until shutdown; each job by one instance at a time.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        let fine_ms = i64::try_from(self.samples_fine.as_millis()).unwrap_or(i64::MAX);
        self.every(supervisor, "fold-counters", FOLD_EVERY, |store, _| async move {
            while store.fold_counters(AT_ONCE).await? >= AT_ONCE {}
            Ok(())
        });
        self.every(supervisor, "compare-counters", COMPARE_EVERY, |store, _| compare_counters(store));
        self.every(supervisor, "sweep-sessions", SWEEP_EVERY, |store, now_ms| async move { store.sweep_sessions(now_ms).await.map(drop) });
        // What crossed the line just now lies within a day of it.
        self.every(supervisor, "thin-samples", THIN_EVERY, move |store, now_ms| async move {
            let line_ms = now_ms.saturating_sub(fine_ms);
            thin(&store, line_ms.saturating_sub(DAY_MS), line_ms, HOUR_MS).await
        });
        self.every(supervisor, "thin-old-samples", THIN_ALL_EVERY, move |store, now_ms| async move {
            let daily_ms = now_ms.saturating_sub(HOURLY_MS.max(fine_ms));
            while store.drop_samples(now_ms.saturating_sub(KEPT_MS.max(fine_ms)), AT_ONCE).await? >= AT_ONCE.unsigned_abs() {}
            thin(&store, 0, daily_ms, DAY_MS).await?;
            thin(&store, daily_ms, now_ms.saturating_sub(fine_ms), HOUR_MS).await
        });
    }

    fn every<W, F>(&self, supervisor: &mut Supervisor, name: &'static str, interval: Duration, work: W)
    where
        W: Fn(Store, i64) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let this = self.clone();
        supervisor.spawn(name, move |token| {
            let (this, work) = (this.clone(), work.clone());
            async move {
                let mut turns = Turns::new(this.store.clone(), this.clock.clone(), name, &this.holder, this.lease, interval);
                // Each of these may be done by two at once without harm; the lease only spares the work.
                while turns.next(&token).await.is_some() {
                    if let Some(result) = turns.during(work(this.store.clone(), this.clock.now_ms())).await {
                        turns.done(result);
                    }
                }
                turns.end().await;
            }
        });
    }
}

async fn thin(store: &Store, from_ms: i64, before_ms: i64, bucket_ms: i64) -> Result<(), StoreError> {
    while store.thin_samples(from_ms, before_ms, bucket_ms, AT_ONCE).await? >= AT_ONCE.unsigned_abs() {}
    Ok(())
}

/// Reports counters that differ from what they count. It repairs nothing: a difference is a fault to be found.
/// A DLQ too large to be counted within the database's limits does not keep the others from being looked at.
async fn compare_counters(store: Store) -> Result<(), StoreError> {
    let mut first_failure = None;
    for dlq in store.dlqs().await? {
        match store.check_counters(dlq.id).await {
            Ok(drifts) => {
                for drift in drifts {
                    telemetry::counter_drift(&dlq.cluster, &dlq.topic, &drift.counter, drift.counted, drift.actual);
                }
            }
            Err(error) => drop(first_failure.get_or_insert(error)),
        }
    }
    first_failure.map_or(Ok(()), Err)
}
