//! Leases: who of several instances does a job. Judged on monotonic clocks only; wall clocks of two machines never meet.

use super::{Store, StoreError};

/// A lease row as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    pub name: String,
    pub holder: String,
    /// Raised by each change of holder; every write of leased work names it.
    pub epoch: i64,
    /// Raised by each renewal.
    pub renewal: i64,
}

impl Store {
    pub async fn lease(&self, _name: &str) -> Result<Option<LeaseRow>, StoreError> {
        todo!()
    }
    /// Takes the lease if the row is still exactly `seen` (None: there is no row). Returns the new row, or None if another was quicker.
    pub async fn take_lease(&self, _name: &str, _holder: &str, _seen: Option<&LeaseRow>) -> Result<Option<LeaseRow>, StoreError> {
        todo!()
    }
    /// Renews if holder and epoch still hold. None: lost.
    pub async fn renew_lease(&self, _mine: &LeaseRow) -> Result<Option<LeaseRow>, StoreError> {
        todo!()
    }
    /// Gives it up so that another need not wait: removes nothing, marks the row as free (holder empty).
    pub async fn release_lease(&self, _mine: &LeaseRow) -> Result<(), StoreError> {
        todo!()
    }
}
