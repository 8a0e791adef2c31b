//! Leases: who of several instances does a job. Judged on monotonic clocks only; wall clocks of two machines never meet.
//!
//! The row holds who, under which epoch, and a number that each renewal raises. [`LeaseKeeper`] judges it: a contender takes a lease only after it saw the
//! renewal number unchanged for a full lease on its own clock; the owner stops when its own clock says so, counted from *before* it
//! sent the renewal. Whenever the contender's first look came, it came after the renewal was stored, and so after the owner began to count: the owner always stops first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::sql_pieces::{Dialect as _, text};
use super::{Store, StoreError, Tx};
use crate::domain::clock::Clock;

/// A lease row as last seen.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LeaseRow {
    pub name: String,
    /// Empty: given up by its last holder, free to take at once.
    pub holder: String,
    /// Raised by each change of holder; every write of leased work names it.
    pub epoch: i64,
    /// Raised by each renewal.
    pub renewal: i64,
}

/// A lease that is ours, as writes of leased work name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    pub name: String,
    pub epoch: i64,
}

impl Store {
    /// The row; None if the lease was never taken.
    pub async fn lease(&self, name: &str) -> Result<Option<LeaseRow>, StoreError> {
        const SQL: &str = "SELECT name, holder, epoch, renewal FROM leases WHERE name = $1";
        read!(self, |pool| { sqlx::query_as::<Db, LeaseRow>(SQL).bind(text(name)).fetch_optional(pool).await? })
    }

    /// Whether some lease has a holder: an instance works on this database, or died doing so.
    pub async fn any_lease_held(&self) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT COUNT(*) FROM leases WHERE holder <> ''";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).fetch_one(pool).await? > 0 })
    }

    /// Takes the lease if the row is still exactly `seen` (None: there is no row). Returns the new row, or None if another was quicker.
    pub async fn take_lease(&self, name: &str, holder: &str, seen: Option<&LeaseRow>) -> Result<Option<LeaseRow>, StoreError> {
        const FIRST: &str = "INSERT INTO leases (name, holder, epoch, renewal) VALUES ($1, $2, 1, 1) ON CONFLICT (name) DO NOTHING
             RETURNING name, holder, epoch, renewal";
        const OVER: &str = "UPDATE leases SET holder = $2, epoch = epoch + 1, renewal = renewal + 1
             WHERE name = $1 AND holder = $3 AND epoch = $4 AND renewal = $5 RETURNING name, holder, epoch, renewal";
        write_one!(self, |pool| {
            let query = sqlx::query_as::<Db, LeaseRow>(if seen.is_some() { OVER } else { FIRST }).bind(text(name)).bind(text(holder));
            let query = match seen {
                Some(seen) => query.bind(text(&seen.holder)).bind(seen.epoch).bind(seen.renewal),
                None => query,
            };
            query.fetch_optional(pool).await?
        })
    }

    /// Renews if holder and epoch still hold. None: lost.
    pub async fn renew_lease(&self, mine: &LeaseRow) -> Result<Option<LeaseRow>, StoreError> {
        const SQL: &str =
            "UPDATE leases SET renewal = renewal + 1 WHERE name = $1 AND holder = $2 AND epoch = $3 RETURNING name, holder, epoch, renewal";
        write_one!(self, |pool| {
            sqlx::query_as::<Db, LeaseRow>(SQL)
                .bind(text(&mine.name))
                .bind(text(&mine.holder))
                .bind(mine.epoch)
                .fetch_optional(pool)
                .await?
        })
    }

    /// Gives it up so that another need not wait: removes nothing, marks the row as free (holder empty).
    pub async fn release_lease(&self, mine: &LeaseRow) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE leases SET holder = '', renewal = renewal + 1 WHERE name = $1 AND holder = $2 AND epoch = $3";
        write_one!(self, |pool| {
            sqlx::query(SQL).bind(text(&mine.name)).bind(text(&mine.holder)).bind(mine.epoch).execute(pool).await?;
        })
    }
}

/// Whether a lease is still ours, within a transaction: if so, nobody takes it over before that ends.
///
/// # Errors
/// The database could not be asked.
pub async fn holds(tx: &mut Tx, lease: &HeldLease) -> Result<bool, StoreError> {
    let epoch = in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(Db::LEASE_HOLDS).bind(text(&lease.name)).bind(lease.epoch);
        query.fetch_optional(&mut *connection).await?
    })?;
    Ok(epoch.is_some())
}

/// Until when a lease is ours by this process's own clock, for work that runs beside its keeper. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaseWatch {
    clock: Clock,
    /// Microseconds of the monotonic clock.
    until: Arc<AtomicU64>,
}

impl LeaseWatch {
    /// Not ours yet.
    pub fn new(clock: Clock) -> LeaseWatch {
        LeaseWatch { clock, until: Arc::default() }
    }

    /// Whether it is ours at this moment; asks nobody.
    pub fn holds(&self) -> bool {
        let now = u64::try_from(self.clock.monotonic().as_micros()).unwrap_or(u64::MAX);
        now < self.until.load(Ordering::SeqCst)
    }

    /// What its keeper knows.
    pub fn set(&self, until: Option<Duration>) {
        let until = until.map_or(0, |until| u64::try_from(until.as_micros()).unwrap_or(u64::MAX));
        self.until.store(until, Ordering::SeqCst);
    }
}

/// Whether the lease is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Ours; what is written in its name carries this epoch.
    Held { epoch: i64 },
    /// Another's, or not yet known to be free.
    Waiting,
}

/// One contender for one lease: takes, renews and judges it. Call [`LeaseKeeper::tick`] a few times per renewal period and stop the leased work
/// as soon as [`LeaseKeeper::state`] is not `Held`.
#[derive(Debug)]
pub struct LeaseKeeper {
    name: String,
    holder: String,
    lease: Duration,
    renew_every: Duration,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    /// `asked_at`: this clock before the renewal (or the taking) was sent.
    Mine {
        row: LeaseRow,
        asked_at: Duration,
    },
    /// `since`: this clock after the row was first seen as it is.
    Theirs {
        row: LeaseRow,
        since: Duration,
    },
    Unknown,
}

impl LeaseKeeper {
    /// `holder` must be unique to this process; `lease` (15 s by default) several times `renew_every` (5 s).
    pub fn new(name: &str, holder: &str, lease: Duration, renew_every: Duration) -> LeaseKeeper {
        LeaseKeeper { name: name.to_owned(), holder: holder.to_owned(), lease, renew_every, standing: Standing::Unknown }
    }

    /// Judged by the clock alone, without asking the database: true to say at any moment, also while `tick` fails or hangs.
    pub fn state(&self, clock: &Clock) -> LeaseState {
        match &self.standing {
            Standing::Mine { row, asked_at } if clock.monotonic() < *asked_at + self.lease => LeaseState::Held { epoch: row.epoch },
            _ => LeaseState::Waiting,
        }
    }

    /// Until when it is ours by the clock that [`LeaseKeeper::tick`] is given; None: it is not.
    pub fn until(&self) -> Option<Duration> {
        match &self.standing {
            Standing::Mine { asked_at, .. } => Some(*asked_at + self.lease),
            _ => None,
        }
    }

    /// Renews, takes or watches the lease, whichever is due. On an error the standing is as before; [`LeaseKeeper::state`] stays true.
    pub async fn tick(&mut self, store: &Store, clock: &Clock) -> Result<LeaseState, StoreError> {
        match &self.standing {
            Standing::Mine { row, asked_at } if clock.monotonic() < *asked_at + self.lease => {
                if clock.monotonic() >= *asked_at + self.renew_every {
                    let row = row.clone();
                    self.renew(store, clock, &row).await?;
                }
            }
            // Run out while it was ours: from here on we are a contender like any other.
            _ => self.contend(store, clock).await?,
        }
        Ok(self.state(clock))
    }

    /// Gives the lease up, so that another takes it at once. To be called after the leased work has stopped.
    pub async fn release(&mut self, store: &Store) -> Result<(), StoreError> {
        match std::mem::replace(&mut self.standing, Standing::Unknown) {
            Standing::Mine { row, .. } => store.release_lease(&row).await,
            _ => Ok(()),
        }
    }

    async fn renew(&mut self, store: &Store, clock: &Clock, row: &LeaseRow) -> Result<(), StoreError> {
        let asked_at = clock.monotonic();
        self.standing = match store.renew_lease(row).await? {
            Some(row) => Standing::Mine { row, asked_at },
            None => Standing::Unknown,
        };
        Ok(())
    }

    async fn contend(&mut self, store: &Store, clock: &Clock) -> Result<(), StoreError> {
        let asked_at = clock.monotonic();
        let seen = store.lease(&self.name).await?;
        if self.may_take(seen.as_ref(), asked_at) {
            let asked_at = clock.monotonic();
            self.standing = match store.take_lease(&self.name, &self.holder, seen.as_ref()).await? {
                Some(row) => Standing::Mine { row, asked_at },
                None => Standing::Unknown,
            };
            return Ok(());
        }
        if let Some(row) = seen {
            let unchanged = matches!(&self.standing, Standing::Theirs { row: before, .. } if *before == row);
            if !unchanged {
                self.standing = Standing::Theirs { row, since: clock.monotonic() };
            }
        }
        Ok(())
    }

    /// No row, a row given up, one that stood unchanged for a full lease, or our own of before, which ran out and which nobody took since.
    fn may_take(&self, seen: Option<&LeaseRow>, now: Duration) -> bool {
        let Some(seen) = seen else { return true };
        let judged = match &self.standing {
            Standing::Theirs { row, since } => row == seen && now >= *since + self.lease,
            Standing::Mine { row, .. } => row == seen,
            Standing::Unknown => false,
        };
        seen.holder.is_empty() || judged
    }
}
