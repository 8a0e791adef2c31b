//! Replays of one cluster, by one instance at a time: drafts are prepared, what is approved is executed.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use super::turns::Turns;
use crate::services::replay::executor::{Executor, Timing};
use crate::services::replay::propose::Prepared;
use crate::services::replay::{Cluster, Replays};
use crate::telemetry;

/// Between two looks at what there is to prepare, while there is nothing.
const IDLE: Duration = Duration::from_millis(200);
/// After a failure.
const FAILED: Duration = Duration::from_secs(2);

/// What the replays of a cluster need.
#[derive(Clone)]
pub struct ReplayJob {
    pub replays: Replays,
    pub cluster: Cluster,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    pub timing: Timing,
}

impl ReplayJob {
    /// Runs under the supervisor until shutdown.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        let name = format!("replay/{}", self.cluster.settings.name);
        supervisor.spawn(name.clone(), move |token| self.clone().run(name.clone(), token));
    }

    async fn run(self, name: String, token: CancellationToken) {
        let (store, clock) = (self.replays.store.clone(), self.replays.clock.clone());
        let mut turns = Turns::new(store, clock, &name, &self.holder, self.timing.lease, IDLE);
        while let Some(lease) = turns.next(&token).await {
            let (replays, cluster) = (self.replays.clone(), self.cluster.clone());
            let done = match Executor::new(replays, cluster, lease, turns.watch(), self.timing) {
                Ok(executor) => {
                    let work = async {
                        // Side by side: a long preflight is nothing that an approved batch should wait for.
                        tokio::select! {
                            () = executor.run(&token) => {}
                            () = self.prepare(&name) => {}
                        }
                    };
                    turns.during(work).await;
                    Ok(())
                }
                Err(error) => Err(error),
            };
            turns.done(done);
        }
        turns.end().await;
    }

    /// Prepares drafts one chunk after the other; never ends by itself.
    async fn prepare(&self, name: &str) {
        let mut failed: Option<String> = None;
        loop {
            let wait = match self.replays.prepare(&self.cluster.settings.name).await {
                Ok(Prepared::More) => Duration::ZERO,
                Ok(Prepared::Idle) => {
                    failed = None;
                    IDLE
                }
                Err(error) => {
                    let error = error.to_string();
                    if failed.as_ref() != Some(&error) {
                        telemetry::job_failed(name, &error);
                        failed = Some(error);
                    }
                    FAILED
                }
            };
            telemetry::progress(name, self.replays.clock.now_ms());
            tokio::time::sleep(wait).await;
        }
    }
}
