//! Sampling of one cluster by one instance at a time: at the cluster's interval, and sooner while there are DLQs nobody has looked at
//! or whose backlog is being read. Otherwise a first start would show every DLQ without data for a whole interval, because discovery finds them just
//! after the first turn, and then for another one as it was before intake had read anything.

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

/// The next turn while something is new.
const SOON: Duration = Duration::from_secs(1);
/// Turns that come soon after the number of DLQs changed, at most: a cluster that does not answer and a long backlog are looked at in the interval then.
const FIRST_LOOKS: u32 = 30;

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
        let mut first_looks = FirstLooks {
            store: self.store.clone(),
            cluster: self.cluster.name.clone(),
            dlqs: self.dlqs.clone(),
            found: 0,
            left: FIRST_LOOKS,
        };
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let mut sampler = Sampler::new(self.store, self.inspector, self.clock, &self.cluster, self.dlqs);
        while let Some(lease) = turns.next(&token).await {
            let Some(sampled) = turns.during(sampler.tick(Some(&lease))).await else { continue };
            if let Ok(run) = &sampled
                && first_looks.are_due(*run).await
            {
                turns.soon(SOON);
            }
            if sampled.is_ok() {
                turns.done(store.note_progress(&name, clock.now_ms()).await);
            } else {
                turns.done(sampled.map(drop));
            }
        }
        turns.end().await;
    }
}

/// Tells whether there are DLQs of which the first looks do not say yet how they are.
struct FirstLooks {
    store: Store,
    cluster: String,
    dlqs: Vec<DlqSettings>,
    /// DLQs of the turn before.
    found: usize,
    /// Turns that may still come soon.
    left: u32,
}

impl FirstLooks {
    /// After a turn: whether to look again at once. While the number of DLQs changes, discovery may be half through its listing.
    async fn are_due(&mut self, run: Sampled) -> bool {
        let before = std::mem::replace(&mut self.found, run.dlqs);
        if run.dlqs == 0 || run.dlqs != before {
            self.left = FIRST_LOOKS;
            return true;
        }
        // A database that cannot be asked is reported by the turn that needs it.
        self.left = if self.left > 0 && self.any_unsettled().await.unwrap_or(false) { self.left - 1 } else { 0 };
        self.left > 0
    }

    /// Whether a DLQ was never looked at with success, or had something to be read when it was.
    async fn any_unsettled(&self) -> Result<bool, StoreError> {
        let latest = self.store.latest_samples(None).await?;
        let settled = latest.iter().filter_map(|(_, good)| good.as_ref().filter(|good| good.uncollected == Some(0)));
        let settled: BTreeSet<i64> = settled.map(|good| good.dlq_id).collect();
        Ok(self.store.dlqs().await?.iter().any(|dlq| {
            dlq.cluster == self.cluster
                && dlq.gone_since_ms.is_none()
                && !settled.contains(&dlq.id)
                && settings_for(&self.dlqs, &dlq.cluster, &dlq.topic).is_some()
        }))
    }
}
