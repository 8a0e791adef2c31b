//! When a regular job has its turn: at its interval, in one instance at a time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::clock::Clock;
use crate::store::Store;
use crate::store::leases::{LeaseKeeper, LeaseState};
use crate::telemetry;

/// The turns of one job.
pub(super) struct Turns {
    store: Store,
    clock: Clock,
    name: String,
    keeper: LeaseKeeper,
    /// How often the lease is looked at: a third of it.
    look_every: Duration,
    interval: Duration,
    next: Duration,
}

impl Turns {
    /// `holder` is unique to this process. The first turn comes as soon as the lease is ours.
    pub fn new(store: Store, clock: Clock, name: &str, holder: &str, lease: Duration, interval: Duration) -> Turns {
        let look_every = lease / 3;
        let keeper = LeaseKeeper::new(name, holder, lease, look_every);
        let next = clock.monotonic();
        Turns { store, clock, name: name.to_owned(), keeper, look_every, interval, next }
    }

    /// Waits for the next turn; false once the process is to end.
    pub async fn next(&mut self, token: &CancellationToken) -> bool {
        loop {
            if token.is_cancelled() {
                return false;
            }
            // A database that cannot be asked neither ends what we hold nor gives us what we do not.
            if let Err(error) = self.keeper.tick(&self.store, &self.clock).await {
                telemetry::job_failed(&self.name, &format!("lease: {error}"));
            }
            let now = self.clock.monotonic();
            let held = matches!(self.keeper.state(&self.clock), LeaseState::Held { .. });
            if held && now >= self.next {
                self.next = now + self.interval;
                return true;
            }
            let wait = if held { self.next.saturating_sub(now).min(self.look_every) } else { self.look_every };
            tokio::select! {
                () = token.cancelled() => return false,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Brings the next turn forward: it comes `within` this time, or at its interval if that is sooner.
    pub fn soon(&mut self, within: Duration) {
        self.next = self.next.min(self.clock.monotonic() + within);
    }

    /// What came of a turn.
    pub fn done<E: std::fmt::Display>(&self, result: Result<(), E>) {
        match result {
            Ok(()) => telemetry::progress(&self.name, self.clock.now_ms()),
            Err(error) => telemetry::job_failed(&self.name, &error.to_string()),
        }
    }

    /// Gives the lease up, so that another instance need not wait for it to run out.
    pub async fn end(mut self) {
        if let Err(error) = self.keeper.release(&self.store).await {
            telemetry::job_failed(&self.name, &format!("lease: {error}"));
        }
    }
}
