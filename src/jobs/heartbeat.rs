//! Calls the heartbeat URL once a minute, in every instance.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::Supervisor;
use crate::domain::clock::Clock;
use crate::services::heartbeat::{Beat, Heartbeat};
use crate::services::intake::ClusterStatus;
use crate::telemetry;

const JOB: &str = "heartbeat";
const EVERY: Duration = Duration::from_secs(60);

/// Runs under the supervisor until shutdown. `intake` is how each cluster's intake of this process is getting on, by its job's name.
pub fn spawn(heartbeat: Heartbeat, intake: Vec<(String, ClusterStatus)>, clock: Clock, supervisor: &mut Supervisor) {
    // What was seen of the others outlives a panic.
    let (heartbeat, intake) = (Arc::new(Mutex::new(heartbeat)), Arc::new(intake));
    supervisor.spawn(JOB, move |token| {
        let (heartbeat, intake, clock) = (Arc::clone(&heartbeat), Arc::clone(&intake), clock.clone());
        async move {
            let mut held = None;
            loop {
                let own: HashMap<String, Duration> =
                    intake.iter().filter_map(|(job, status)| Some((job.clone(), status.progressed_at()?))).collect();
                let beat = async { heartbeat.lock().await.tick(&own).await };
                let beat = tokio::select! {
                    () = token.cancelled() => return,
                    beat = beat => beat,
                };
                match beat {
                    Beat::Sent(200..=299) => {
                        held = None;
                        telemetry::progress(JOB, clock.now_ms());
                    }
                    Beat::Sent(status) => telemetry::job_failed(JOB, &format!("the heartbeat URL answered {status}")),
                    Beat::Unanswered(why) => telemetry::job_failed(JOB, &why),
                    Beat::Held(stuck) => {
                        // At the start nothing has got on yet; told when it stays so, and when it changes.
                        if held.as_ref() == Some(&stuck) {
                            telemetry::heartbeat_held(&stuck.join(", "));
                        }
                        held = Some(stuck);
                    }
                }
                tokio::select! {
                    () = token.cancelled() => return,
                    () = tokio::time::sleep(EVERY) => {}
                }
            }
        }
    });
}
