//! Sampling of one cluster by one instance at a time: at the cluster's interval, and sooner while there are DLQs nobody has looked at.
//! Otherwise a first start would show every DLQ without data for a whole interval, because discovery finds them just after the first turn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use super::turns::Turns;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings, settings_for};
use crate::kafka::inspect::Inspector;
use crate::services::sampling::{Sampled, Sampler};
use crate::store::{Store, StoreError};

/// The next turn while something has never been looked at.
const SOON: Duration = Duration::from_secs(1);
/// Turns in a row that may come soon because a look failed. A cluster that does not answer is asked at its interval then.
const FAILED_LOOKS: u32 = 30;

/// What the sampler of a cluster needs.
#[derive(Clone)]
pub struct SamplerJob {
    pub store: Store,
    pub inspector: Arc<Inspector>,
    pub clock: Clock,
    pub cluster: ClusterSettings,
    pub dlqs: Vec<DlqSettings>,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
}

impl SamplerJob {
    /// Runs under the supervisor until shutdown.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        let name = format!("sampler:{}", self.cluster.name);
        supervisor.spawn(name.clone(), move |token| self.clone().run(name.clone(), token));
    }

    async fn run(self, name: String, token: CancellationToken) {
        let interval = Duration::from_secs(self.cluster.sample_interval_s.max(1));
        let mut turns = Turns::new(self.store.clone(), self.clock.clone(), &name, &self.holder, self.lease, interval);
        let mut first_looks =
            FirstLooks { store: self.store.clone(), cluster: self.cluster.name.clone(), dlqs: self.dlqs.clone(), found: 0, failed: 0 };
        let mut sampler = Sampler::new(self.store, self.inspector, self.clock, &self.cluster, self.dlqs);
        while let Some(lease) = turns.next(&token).await {
            let Some(sampled) = turns.during(sampler.tick(Some(&lease))).await else { continue };
            if let Ok(run) = &sampled
                && first_looks.are_due(*run).await
            {
                turns.soon(SOON);
            }
            turns.done(sampled.map(drop));
        }
        turns.end().await;
    }
}

/// Tells whether a DLQ may be there that was never looked at with success.
struct FirstLooks {
    store: Store,
    cluster: String,
    dlqs: Vec<DlqSettings>,
    /// DLQs of the turn before.
    found: usize,
    /// Turns in a row that left a DLQ without its first look.
    failed: u32,
}

impl FirstLooks {
    /// After a turn: whether to look again at once. While the number of DLQs changes, discovery may be half through its listing.
    async fn are_due(&mut self, run: Sampled) -> bool {
        let before = std::mem::replace(&mut self.found, run.dlqs);
        if run.dlqs == 0 || run.dlqs != before {
            self.failed = 0;
            return true;
        }
        // A database that cannot be asked is reported by the turn that needs it.
        let missing = run.failed > 0 && self.any_missing().await.unwrap_or(false);
        self.failed = if missing { self.failed.saturating_add(1) } else { 0 };
        missing && self.failed <= FAILED_LOOKS
    }

    async fn any_missing(&self) -> Result<bool, StoreError> {
        let latest = self.store.latest_samples().await?;
        let seen: BTreeSet<i64> = latest.iter().filter(|(_, good)| good.is_some()).map(|(newest, _)| newest.dlq_id).collect();
        Ok(self.store.dlqs().await?.iter().any(|dlq| {
            dlq.cluster == self.cluster
                && dlq.gone_since_ms.is_none()
                && !seen.contains(&dlq.id)
                && settings_for(&self.dlqs, &dlq.cluster, &dlq.topic).is_some()
        }))
    }
}
