//! Keeping a lease (PROTOCOLS: time, leases, several instances).
//!
//! A contender takes it only after it saw the renewal number unchanged for a whole lease on its own monotonic clock; the owner stops
//! when its own monotonic clock says so, counted from before the renewal was sent. No wall clock takes part.

use std::time::Duration;

use crate::domain::clock::Clock;
use crate::store::leases::LeaseRow;
use crate::store::{Store, StoreError};
use crate::telemetry;

/// One job's hold on its lease.
pub struct Keeper {
    store: Store,
    clock: Clock,
    name: String,
    holder: String,
    lease: Duration,
    /// When to look at the lease again.
    next: Duration,
    state: State,
}

enum State {
    /// Not ours: the row as last seen, and since when it has looked like that.
    Watching { seen: Option<LeaseRow>, since: Duration },
    /// Ours until then, on our clock.
    Holding { row: LeaseRow, until: Duration },
}

impl Keeper {
    /// `holder` names this process among all instances; `lease` is how long a hold lasts without renewal. It is renewed three times
    /// as often.
    pub fn new(store: Store, clock: Clock, name: String, holder: String, lease: Duration) -> Keeper {
        let now = clock.monotonic();
        Keeper { store, clock, name, holder, lease, next: now, state: State::Watching { seen: None, since: now } }
    }

    /// Renews or contends if that is due, and says whether the lease is ours now. A database that cannot be asked is no reason to
    /// stop before the hold runs out, nor one to begin.
    pub async fn keep(&mut self) -> bool {
        if self.clock.monotonic() >= self.next {
            self.next = self.clock.monotonic() + self.lease / 3;
            if let Err(error) = self.look().await {
                telemetry::job_failed(&self.name, &format!("lease: {error}"));
            }
        }
        self.is_held()
    }

    /// Whether the lease is ours at this moment.
    pub fn is_held(&self) -> bool {
        matches!(&self.state, State::Holding { until, .. } if self.clock.monotonic() < *until)
    }

    /// The epoch to name in leased work, while the lease is ours.
    pub fn epoch(&self) -> Option<i64> {
        match &self.state {
            State::Holding { row, .. } if self.is_held() => Some(row.epoch),
            _ => None,
        }
    }

    /// How long until [`Keeper::keep`] has something to do.
    pub fn due_in(&self) -> Duration {
        self.next.saturating_sub(self.clock.monotonic())
    }

    /// Gives the lease up, so that another instance need not wait for it to run out.
    pub async fn release(self) {
        if let State::Holding { row, .. } = &self.state
            && let Err(error) = self.store.release_lease(row).await
        {
            telemetry::job_failed(&self.name, &format!("lease: {error}"));
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        // Before the question is sent: the answer may be late, the hold must not be longer for it.
        let sent = self.clock.monotonic();
        match &self.state {
            State::Holding { row, .. } => match self.store.renew_lease(row).await? {
                Some(row) => self.state = State::Holding { row, until: sent + self.lease },
                None => self.state = State::Watching { seen: None, since: self.clock.monotonic() },
            },
            State::Watching { seen, since } => {
                let row = self.store.lease(&self.name).await?;
                let free = row.as_ref().is_none_or(|row| row.holder.is_empty());
                let now = self.clock.monotonic();
                if !free && row != *seen {
                    self.state = State::Watching { seen: row, since: now };
                } else if free || now.saturating_sub(*since) >= self.lease {
                    self.state = match self.store.take_lease(&self.name, &self.holder, row.as_ref()).await? {
                        Some(row) => State::Holding { row, until: sent + self.lease },
                        None => State::Watching { seen: None, since: self.clock.monotonic() },
                    };
                }
            }
        }
        Ok(())
    }
}
