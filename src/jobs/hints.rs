//! Hints between the instances that share a database: one task for each process, made anew whenever its connection is lost.

use std::time::Duration;

use super::Supervisor;
use crate::store::Store;
use crate::telemetry;

/// Pages are without the others' hints meanwhile; their own come all the same.
const RETRY: Duration = Duration::from_secs(1);

/// Runs under the supervisor until shutdown.
pub fn spawn(store: Store, supervisor: &mut Supervisor) {
    supervisor.spawn("hints", move |token| {
        let store = store.clone();
        async move {
            let relay = async {
                loop {
                    if let Err(error) = store.relay_hints().await {
                        telemetry::job_failed("hints", &error.to_string());
                    }
                    tokio::time::sleep(RETRY).await;
                }
            };
            tokio::select! {
                () = token.cancelled() => {}
                () = relay => {}
            }
        }
    });
}
