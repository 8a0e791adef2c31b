//! Intake of one cluster: the consumer's events and a timer, each answered by one call of the service.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use crate::domain::classify::ClassRule;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};
use crate::kafka::inspect::Inspector;
use crate::kafka::intake::{BatchLimits, IntakeConsumer, IntakeEvent};
use crate::services::intake::{ClusterStatus, Intake};
use crate::store::Store;
use crate::telemetry;

/// Batches of this size store fastest; the bytes bound what is in memory.
pub const LIMITS: BatchLimits = BatchLimits { records: 2_000, bytes: 8 << 20, linger: Duration::from_millis(100) };
/// How long leaving the group may take at shutdown.
const LEAVE: Duration = Duration::from_secs(5);

/// What intake of a cluster needs.
#[derive(Clone)]
pub struct IntakeJob {
    pub store: Store,
    pub inspector: Arc<Inspector>,
    pub clock: Clock,
    pub cluster: ClusterSettings,
    pub dlqs: Vec<DlqSettings>,
    pub rules: Vec<ClassRule>,
    pub status: ClusterStatus,
    pub limits: BatchLimits,
}

impl IntakeJob {
    /// Runs under the supervisor until shutdown.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        let name = format!("intake:{}", self.cluster.name);
        supervisor.spawn(name.clone(), move |token| self.clone().run(name.clone(), token));
    }

    async fn run(self, name: String, token: CancellationToken) {
        let mut consumer = match IntakeConsumer::start(&self.cluster, self.limits) {
            Ok(consumer) => consumer,
            Err(error) => {
                self.status.disconnected(self.clock.now_ms(), error.to_string());
                return telemetry::job_failed(&name, &error.to_string());
            }
        };
        let clock = self.clock.clone();
        let mut intake = Intake::new(self.store, self.inspector, self.clock, &self.cluster, self.dlqs, self.rules, self.status.clone());
        loop {
            let due = tokio::time::sleep(intake.due_in());
            let mut ended = false;
            // Only waiting is raced: what has begun is finished, so that shutting down never cuts a transaction's answer off.
            let commands = tokio::select! {
                biased;
                () = token.cancelled() => break,
                event = consumer.next_event(), if !intake.is_stalled() => {
                    ended = matches!(event, IntakeEvent::Stopped(_));
                    intake.on_event(event).await
                }
                () = due => intake.tick().await,
            };
            for command in commands {
                consumer.command(command);
            }
            if ended {
                return;
            }
            if intake.is_well() {
                telemetry::progress(&name, clock.now_ms());
                self.status.progressed(clock.monotonic());
            }
        }
        // Not reached in time: the group notices by itself, and the positions are in the database.
        let _ = tokio::time::timeout(LEAVE, consumer.stop()).await;
    }
}
