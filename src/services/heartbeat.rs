//! The heartbeat: a URL of somebody who notices when it is not called any more. It is called only while intake, sampler and outbox all get on, so that a process which is up and does
//! nothing is noticed like one that is gone.
//!
//! Intake is this process's own. Sampler and outbox are done by one instance for all, so whether they get on is read from the database: by whether their count has
//! moved since this process last looked, on its own clock.

use std::collections::HashMap;
use std::time::Duration;

use crate::channels::Sender;
use crate::domain::clock::Clock;
use crate::domain::settings::Secret;
use crate::store::Store;

/// A job that has not got on for so long is stuck, unless its interval is longer.
const STUCK_AFTER: Duration = Duration::from_secs(180);
/// So many intervals may pass without progress.
const INTERVALS: u32 = 3;

/// A job that must get on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub job: String,
    stuck_after: Duration,
}

impl Watched {
    /// A job that gets on at least once in each `interval`.
    pub fn new(job: impl Into<String>, interval: Duration) -> Watched {
        Watched { job: job.into(), stuck_after: STUCK_AFTER.max(interval.saturating_mul(INTERVALS)) }
    }
}

/// What a look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beat {
    /// Called, and answered with this status.
    Sent(u16),
    /// Not called: these do not get on, or have not yet.
    Held(Vec<String>),
    /// Called, and there was no answer. Without the URL.
    Unanswered(String),
}

/// Watches and calls.
#[derive(Debug)]
pub struct Heartbeat {
    store: Store,
    clock: Clock,
    sender: Sender,
    url: Secret,
    /// Jobs of this process.
    own: Vec<Watched>,
    /// Jobs that one instance does for all.
    shared: Vec<Watched>,
    /// Of each shared job: its count, and when that was seen to move.
    seen: HashMap<String, (i64, Option<Duration>)>,
}

impl Heartbeat {
    pub fn new(store: Store, clock: Clock, sender: Sender, url: Secret, own: Vec<Watched>, shared: Vec<Watched>) -> Heartbeat {
        Heartbeat { store, clock, sender, url, own, shared, seen: HashMap::new() }
    }

    /// Looks, and calls if all get on. `own` says when each job of this process last got on, by the clock's monotonic time.
    pub async fn tick(&mut self, own: &HashMap<String, Duration>) -> Beat {
        let stuck = self.stuck(own).await;
        if !stuck.is_empty() {
            return Beat::Held(stuck);
        }
        match self.sender.ping(&self.url).await {
            Ok(status) => Beat::Sent(status),
            Err(error) => Beat::Unanswered(error.to_string()),
        }
    }

    async fn stuck(&mut self, own: &HashMap<String, Duration>) -> Vec<String> {
        let now = self.clock.monotonic();
        let Ok(progress) = self.store.job_progress().await else { return vec!["database".to_owned()] };
        for row in progress {
            let seen = self.seen.entry(row.job).or_insert((row.turns, None));
            if seen.0 != row.turns {
                *seen = (row.turns, Some(now));
            }
        }
        let gets_on = |watched: &Watched, at: Option<Duration>| at.is_some_and(|at| now.saturating_sub(at) <= watched.stuck_after);
        let own = self.own.iter().map(|watched| (watched, own.get(&watched.job).copied()));
        let shared = self.shared.iter().map(|watched| (watched, self.seen.get(&watched.job).and_then(|seen| seen.1)));
        own.chain(shared).filter(|(watched, at)| !gets_on(watched, *at)).map(|(watched, _)| watched.job.clone()).collect()
    }
}
