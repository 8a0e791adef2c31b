//! Evaluates alert rules, in one instance at a time.

use std::time::Duration;

use super::Supervisor;
use super::turns::Turns;
use crate::services::alerting::{Alerting, AlertingError, Evaluator, minutes_from_ms};
use crate::services::health::Health;

/// How often all rules are looked at.
const EVERY: Duration = Duration::from_secs(15);

/// What the job needs.
#[derive(Clone)]
pub struct AlertsJob {
    pub alerting: Alerting,
    pub health: Health,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
}

impl AlertsJob {
    /// Runs under the supervisor until shutdown.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        supervisor.spawn("alerts", move |token| {
            let this = self.clone();
            async move {
                let Alerting { store, clock, .. } = this.alerting.clone();
                let mut turns = Turns::new(store, clock, "alerts", &this.holder, this.lease, EVERY);
                let mut evaluator = Evaluator::new(this.alerting);
                while let Some(lease) = turns.next(&token).await {
                    let work = async {
                        let looks = this.health.looks(minutes_from_ms(this.health.clock.now_ms())).await?;
                        evaluator.tick(&lease, &looks).await?;
                        Ok::<_, AlertingError>(())
                    };
                    if let Some(result) = turns.during(work).await {
                        turns.done(result);
                    }
                }
                turns.end().await;
            }
        });
    }
}
