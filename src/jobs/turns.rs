//! When a regular job has its turn: at its interval, in one instance at a time.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::clock::Clock;
use crate::store::Store;
use crate::store::leases::{HeldLease, LeaseKeeper, LeaseState, LeaseWatch};
use crate::telemetry;

/// The turns of one job.
pub(super) struct Turns {
    store: Store,
    clock: Clock,
    name: String,
    keeper: LeaseKeeper,
    watch: LeaseWatch,
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
        let watch = LeaseWatch::new(clock.clone());
        Turns { store, clock, name: name.to_owned(), keeper, watch, look_every, interval, next }
    }

    /// Tells at any moment whether the lease is ours.
    pub fn watch(&self) -> LeaseWatch {
        self.watch.clone()
    }

    /// Waits for the next turn, and says under which lease it is ours; None once the process is to end.
    pub async fn next(&mut self, token: &CancellationToken) -> Option<HeldLease> {
        loop {
            if token.is_cancelled() {
                return None;
            }
            let held = self.keep().await;
            let now = self.clock.monotonic();
            let wait = match held {
                Some(lease) if now >= self.next => {
                    self.next = now + self.interval;
                    return Some(lease);
                }
                Some(_) => self.next.saturating_sub(now).min(self.look_every),
                None => self.look_every,
            };
            tokio::select! {
                () = token.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Does a turn's work and keeps the lease meanwhile, however long it takes. None: the lease was lost, and the work was dropped where it stood.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let kept = async {
            while self.keep().await.is_some() {
                tokio::time::sleep(self.look_every).await;
            }
        };
        // Side by side: on SQLite both may want the one writer.
        tokio::select! {
            biased;
            done = work => Some(done),
            () = kept => {
                telemetry::job_failed(&self.name, "the lease was lost in the middle of a turn; another instance goes on");
                None
            }
        }
    }

    /// Takes or renews the lease, whichever is due. None: it is not ours.
    async fn keep(&mut self) -> Option<HeldLease> {
        // A database that cannot be asked neither ends what we hold nor gives us what we do not.
        if let Err(error) = self.keeper.tick(&self.store, &self.clock).await {
            telemetry::job_failed(&self.name, &format!("lease: {error}"));
        }
        self.watch.set(self.keeper.until());
        match self.keeper.state(&self.clock) {
            LeaseState::Held { epoch } => Some(HeldLease { name: self.name.clone(), epoch }),
            LeaseState::Waiting => None,
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
        self.watch.set(None);
        if let Err(error) = self.keeper.release(&self.store).await {
            telemetry::job_failed(&self.name, &format!("lease: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(300);

    async fn store() -> (Store, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::connect(&format!("sqlite://{}", folder.path().join("turns.db").display())).await.expect("opens");
        store.migrate().await.expect("migrates");
        (store, folder)
    }

    fn turns(store: &Store, holder: &str) -> Turns {
        Turns::new(store.clone(), Clock::system(), "job", holder, LEASE, Duration::from_secs(1))
    }

    #[tokio::test]
    async fn a_turn_that_outlasts_the_lease_keeps_it() {
        let (store, _folder) = store().await;
        let (mut ours, mut theirs, token) = (turns(&store, "ours"), turns(&store, "theirs"), CancellationToken::new());
        ours.next(&token).await.expect("nobody else is there");
        // The work is to see the other one contend in vain for several leases.
        let in_vain = async { tokio::time::timeout(LEASE * 4, theirs.next(&token)).await.is_err() };
        assert_eq!(ours.during(in_vain).await, Some(true));
    }

    #[tokio::test]
    async fn a_turn_ends_when_the_lease_is_anothers() {
        let (store, _folder) = store().await;
        let (mut ours, token) = (turns(&store, "ours"), CancellationToken::new());
        ours.next(&token).await.expect("nobody else is there");
        let lost = async {
            // A renewal in between changes the row, so this may take a second look.
            loop {
                let row = store.lease("job").await.expect("readable");
                if store.take_lease("job", "theirs", row.as_ref()).await.expect("writable").is_some() {
                    break std::future::pending::<()>().await;
                }
            }
        };
        let ended = tokio::time::timeout(LEASE * 20, ours.during(lost)).await;
        assert_eq!(ended.expect("it noticed"), None);
    }
}
