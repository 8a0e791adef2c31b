//! Sampling of one cluster by one instance at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use super::lease::Keeper;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};
use crate::kafka::inspect::Inspector;
use crate::services::sampling::Sampler;
use crate::store::Store;
use crate::telemetry;

/// What the sampler of a cluster needs.
#[derive(Clone)]
pub struct SamplerJob {
    pub store: Store,
    pub inspector: Arc<Inspector>,
    pub clock: Clock,
    pub cluster: ClusterSettings,
    pub dlqs: Vec<DlqSettings>,
    /// This process, as leases name it.
    pub holder: String,
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
        let mut keeper = Keeper::new(self.store.clone(), self.clock.clone(), name.clone(), self.holder.clone(), self.lease);
        let mut sampler = Sampler::new(self.store, self.inspector, self.clock.clone(), &self.cluster, self.dlqs);
        let mut next = self.clock.monotonic();
        loop {
            if keeper.keep().await && self.clock.monotonic() >= next {
                next = self.clock.monotonic() + interval;
                match sampler.tick().await {
                    Ok(_) => telemetry::progress(&name, self.clock.now_ms()),
                    Err(error) => telemetry::job_failed(&name, &error.to_string()),
                }
            }
            let wait = keeper.due_in().min(next.saturating_sub(self.clock.monotonic()).max(Duration::from_millis(50)));
            tokio::select! {
                () = token.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        keeper.release().await;
    }
}
