//! Small regular work on the database: fold counters, sweep sessions, thin samples.

use std::future::Future;
use std::time::Duration;

use super::Supervisor;
use super::lease::Keeper;
use crate::domain::clock::Clock;
use crate::store::{Store, StoreError};
use crate::telemetry;

/// Deltas or samples in one transaction at most.
const AT_ONCE: i64 = 5_000;
const FOLD_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(300);
const THIN_EVERY: Duration = Duration::from_secs(600);

/// What housekeeping needs.
#[derive(Clone)]
pub struct Housekeeping {
    pub store: Store,
    pub clock: Clock,
    /// This process, as leases name it.
    pub holder: String,
    pub lease: Duration,
    /// Samples older than this are thinned to one an hour.
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
        self.every(supervisor, "sweep-sessions", SWEEP_EVERY, |store, now_ms| async move { store.sweep_sessions(now_ms).await.map(drop) });
        self.every(supervisor, "thin-samples", THIN_EVERY, move |store, now_ms| async move {
            while store.thin_samples(now_ms.saturating_sub(fine_ms), AT_ONCE).await? >= AT_ONCE as u64 {}
            Ok(())
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
                let mut keeper = Keeper::new(this.store.clone(), this.clock.clone(), name.to_owned(), this.holder.clone(), this.lease);
                let mut next = this.clock.monotonic();
                loop {
                    if keeper.keep().await && this.clock.monotonic() >= next {
                        next = this.clock.monotonic() + interval;
                        match work(this.store.clone(), this.clock.now_ms()).await {
                            Ok(()) => telemetry::progress(name, this.clock.now_ms()),
                            Err(error) => telemetry::job_failed(name, &error.to_string()),
                        }
                    }
                    let wait = keeper.due_in().min(next.saturating_sub(this.clock.monotonic()).max(Duration::from_millis(50)));
                    tokio::select! {
                        () = token.cancelled() => break,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
                keeper.release().await;
            }
        });
    }
}
