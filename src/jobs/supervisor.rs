//! Runs the named tasks of the process: starts again what panics or ends, and shuts all of them down in an orderly way.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::domain::clock::Clock;
use crate::telemetry;

/// The first wait before a task is started again; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A task that ran this long had recovered: the next restart is quick again.
const SETTLED: Duration = Duration::from_secs(60);

/// The tasks of this process.
#[derive(Debug)]
pub struct Supervisor {
    clock: Clock,
    first_wait: Duration,
    token: CancellationToken,
    tasks: Vec<(String, JoinHandle<()>)>,
}

impl Supervisor {
    pub fn new(clock: Clock) -> Supervisor {
        Supervisor { clock, first_wait: FIRST_WAIT, token: CancellationToken::new(), tasks: Vec::new() }
    }

    /// Cancelled when the process is to end. Tasks end by themselves then.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs a task for as long as the process lives. `make` is called again whenever the task it made panicked or ended although it
    /// was not told to; that is logged and counted.
    #[allow(clippy::disallowed_methods, reason = "this is the supervisor")]
    pub fn spawn<M, F>(&mut self, name: impl Into<String>, make: M)
    where
        M: Fn(CancellationToken) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (name, token, clock, first_wait) = (name.into(), self.token.clone(), self.clock.clone(), self.first_wait);
        let task = {
            let name = name.clone();
            async move {
                let mut restarts = 0;
                loop {
                    let began = clock.monotonic();
                    let run = Run(tokio::spawn(make(token.clone())));
                    let reason = run.ended().await;
                    if token.is_cancelled() {
                        return;
                    }
                    restarts = if clock.monotonic().saturating_sub(began) > SETTLED { 0 } else { restarts + 1 };
                    let wait = first_wait.saturating_mul(1 << restarts.min(10)).min(LONGEST_WAIT);
                    telemetry::job_restarted(&name, &reason, wait);
                    tokio::select! {
                        () = token.cancelled() => return,
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        };
        self.tasks.push((name, tokio::spawn(task)));
    }

    /// Tells all tasks to end and waits for them; who has not ended `within` is dropped where it stands. Returns their names.
    pub async fn shutdown(self, within: Duration) -> Vec<String> {
        self.token.cancel();
        let mut late = Vec::new();
        let deadline = self.clock.monotonic() + within;
        for (name, mut task) in self.tasks {
            let left = deadline.saturating_sub(self.clock.monotonic());
            if tokio::time::timeout(left, &mut task).await.is_err() {
                task.abort();
                late.push(name);
            }
        }
        late
    }
}

/// One run of a task; dropped with its watcher, it is aborted too.
struct Run(JoinHandle<()>);

impl Run {
    /// Why it ended, for the log.
    async fn ended(mut self) -> String {
        match (&mut self.0).await {
            Ok(()) => "ended early".to_owned(),
            Err(error) => words(error),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn words(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => format!("panicked: {}", panic_words(panic.as_ref())),
        Err(error) => error.to_string(),
    }
}

fn panic_words(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn what_panics_or_ends_is_started_again_and_shutdown_ends_all() {
        let mut supervisor = Supervisor { first_wait: Duration::from_millis(1), ..Supervisor::new(Clock::system()) };
        let (runs, third) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (count, reached) = (Arc::clone(&runs), Arc::clone(&third));
        supervisor.spawn("stumbler", move |token| {
            let (count, reached) = (Arc::clone(&count), Arc::clone(&reached));
            async move {
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("on purpose"),
                    1 => {}
                    _ => {
                        reached.notify_one();
                        token.cancelled().await;
                    }
                }
            }
        });
        third.notified().await;
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert_eq!(supervisor.shutdown(Duration::from_secs(5)).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn who_does_not_end_is_named_and_dropped() {
        let mut supervisor = Supervisor::new(Clock::system());
        supervisor.spawn("deaf", |_| std::future::pending());
        assert_eq!(supervisor.shutdown(Duration::from_millis(10)).await, vec!["deaf".to_owned()]);
    }
}
