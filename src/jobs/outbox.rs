//! Delivery of notices, by one instance at a time.

use std::time::Duration;

use super::Supervisor;
use super::turns::Turns;
use crate::services::notify::Notify;
use crate::services::notify::courier::{Courier, JOB};
use crate::store::StoreError;

/// Between two runs: the courier itself looks more often.
const AGAIN: Duration = Duration::from_millis(500);

/// What the job needs.
#[derive(Clone)]
pub struct OutboxJob {
    pub notify: Notify,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
}

impl OutboxJob {
    /// Runs under the supervisor until shutdown; what is under way then is ended.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        supervisor.spawn(JOB, move |token| {
            let this = self.clone();
            async move {
                let Notify { store, clock, .. } = &this.notify;
                let mut turns = Turns::new(store.clone(), clock.clone(), JOB, &this.holder, this.lease, AGAIN);
                let courier = Courier::new(this.notify.clone());
                while turns.next(&token).await.is_some() {
                    if turns.during(courier.run(&token)).await.is_some() {
                        turns.done(Ok::<(), StoreError>(()));
                    }
                }
                turns.end().await;
            }
        });
    }
}
