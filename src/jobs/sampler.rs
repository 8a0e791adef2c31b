//! Sampling of one cluster by one instance at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use super::turns::Turns;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};
use crate::kafka::inspect::Inspector;
use crate::services::sampling::Sampler;
use crate::store::Store;

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
        let mut sampler = Sampler::new(self.store, self.inspector, self.clock, &self.cluster, self.dlqs);
        while let Some(lease) = turns.next(&token).await {
            if let Some(sampled) = turns.during(sampler.tick(Some(&lease))).await {
                turns.done(sampled.map(drop));
            }
        }
        turns.end().await;
    }
}
