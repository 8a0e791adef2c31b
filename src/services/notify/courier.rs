//! Delivers what is in the outbox: of each channel one message at a time, all channels side by side, so that a broken one delays no other.
//!
//! Each attempt is stored before it is made and after. What a crash between the two leaves is in doubt and goes again after [`IN_DOUBT_MS`] with the same id and body: a
//! webhook's receiver knows it by that id; a chat may show it twice. Nothing that is stored as delivered goes again.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::Notify;
use crate::channels::{self, Attempt};
use crate::domain::delivery::{GIVE_UP_AFTER_MS, Verdict, backoff_ms};
use crate::domain::figures::{DAY, HOUR, MINUTE};
use crate::store::StoreError;
use crate::store::outbox::{self, Begun, DeliveryState, Due, Finished, Hold};
use crate::telemetry;

/// What the job is called in metrics, in its lease, and in the table of progress.
pub const JOB: &str = "outbox";
/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it is noted for the heartbeat that it was looked.
pub const NOTED_EVERY: Duration = Duration::from_secs(15);
const TIDIED_EVERY: Duration = Duration::from_secs(60);
/// An attempt of which nobody said what came of it is over by then: it takes ten seconds at most, and storing its outcome may be tried for twenty.
pub const IN_DOUBT_MS: i64 = MINUTE;
const STORED_AGAIN: u32 = 20;
const STORED_AGAIN_EVERY: Duration = Duration::from_secs(1);
/// What never had its turn is given up so long after it should have been.
const OVERDUE_MS: i64 = HOUR;
/// How long the log keeps what has ended.
const KEPT_MS: i64 = 30 * DAY;
const SWEPT_AT_ONCE: i64 = 1_000;

/// Delivers for as long as it is run.
#[derive(Clone)]
pub struct Courier {
    notify: Notify,
}

impl Courier {
    pub fn new(notify: Notify) -> Courier {
        Courier { notify }
    }

    /// Delivers until the token is cancelled; then ends what is under way and begins nothing more.
    pub async fn run(&self, token: &CancellationToken) {
        let (mut under_way, mut busy) = (FuturesUnordered::new(), HashSet::new());
        let (mut noted, mut tidied, mut failed) = (None, None, None::<String>);
        loop {
            if !token.is_cancelled() {
                match self.look(&mut noted, &mut tidied).await {
                    Ok(due) => {
                        failed = None;
                        for due in due {
                            if busy.insert(due.channel_id) {
                                under_way.push(async move { (due.channel_id, self.attempt(&due).await) });
                            }
                        }
                    }
                    Err(error) => {
                        let error = error.to_string();
                        if failed.as_ref() != Some(&error) {
                            telemetry::job_failed(JOB, &error);
                            failed = Some(error);
                        }
                    }
                }
            } else if under_way.is_empty() {
                return;
            }
            tokio::select! {
                Some((channel_id, done)) = under_way.next(), if !under_way.is_empty() => {
                    busy.remove(&channel_id);
                    if let Err(error) = done {
                        telemetry::job_failed(JOB, &error.to_string());
                    }
                }
                () = token.cancelled(), if !token.is_cancelled() => {}
                () = tokio::time::sleep(LOOK_EVERY), if !token.is_cancelled() => {}
            }
        }
    }

    /// What is due now; and, less often, that this was looked at is noted, and what is old is dropped.
    async fn look(&self, noted: &mut Option<Duration>, tidied: &mut Option<Duration>) -> Result<Vec<Due>, StoreError> {
        let Notify { store, clock, .. } = &self.notify;
        let due = store.due_deliveries(clock.now_ms()).await?;
        telemetry::progress(JOB, clock.now_ms());
        if is_time(noted, clock.monotonic(), NOTED_EVERY) {
            store.note_progress(JOB, clock.now_ms()).await?;
        }
        if is_time(tidied, clock.monotonic(), TIDIED_EVERY) {
            self.tidy().await?;
        }
        Ok(due)
    }

    /// One attempt for each channel that has something due, side by side. Returns how many were made. For tests, and for whoever has no loop.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn turn(&self) -> Result<usize, StoreError> {
        let due = self.notify.store.due_deliveries(self.notify.clock.now_ms()).await?;
        let mut made = 0;
        for done in futures_util::future::join_all(due.iter().map(|due| self.attempt(due))).await {
            made += usize::from(done?);
        }
        Ok(made)
    }

    /// Gives up what is overdue and drops what is old.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        let Notify { store, clock, .. } = &self.notify;
        let now_ms = clock.now_ms();
        let given_up = store.give_up_overdue(now_ms.saturating_sub(OVERDUE_MS), now_ms).await?;
        if given_up > 0 {
            telemetry::notices_overdue(given_up);
        }
        while store.sweep_outbox(now_ms.saturating_sub(KEPT_MS), SWEPT_AT_ONCE).await? >= SWEPT_AT_ONCE.unsigned_abs() {}
        Ok(())
    }

    /// Makes one attempt. Whether it was made: another may have been quicker.
    async fn attempt(&self, due: &Due) -> Result<bool, StoreError> {
        let Notify { store, clock, sender, key, .. } = &self.notify;
        let now_ms = clock.now_ms();
        let Some(begun) = outbox::begin(store, due, now_ms, now_ms.saturating_add(IN_DOUBT_MS)).await? else { return Ok(false) };
        let attempt = match channels::open(key, &due.uid, &due.sealed) {
            Ok(destination) => channels::deliver(sender, clock, due.kind, &destination, &due.event_id, &due.body).await,
            Err(error) => {
                let why = error.to_string();
                Attempt { took_ms: 0, status: None, body: None, error: Some(why.clone()), verdict: Verdict::Final(why) }
            }
        };
        let next = concluded(due, &attempt.verdict, clock.now_ms(), getrandom::u32().unwrap_or_default());
        let error = match (&attempt.error, next.state) {
            (Some(why), DeliveryState::GivenUp) => Some(format!("{why}. Given up after {} h", GIVE_UP_AFTER_MS / HOUR)),
            (error, _) => error.clone(),
        };
        telemetry::notice_attempted(due.kind.as_str(), &due.channel, next.state.as_str(), error.as_deref());
        let finished = Finished {
            took_ms: attempt.took_ms,
            status: attempt.status,
            body: attempt.body.as_deref(),
            error: error.as_deref(),
            state: next.state,
            due_at_ms: next.due_at_ms,
            hold: Some(next.hold),
        };
        self.store_outcome(&begun, &finished).await?;
        Ok(true)
    }

    /// Stores what came of an attempt, and does not give up easily: what is not stored goes again.
    async fn store_outcome(&self, begun: &Begun, finished: &Finished<'_>) -> Result<(), StoreError> {
        let Notify { store, clock, .. } = &self.notify;
        for _ in 0..STORED_AGAIN {
            match outbox::finish(store, begun, finished, clock.now_ms()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(STORED_AGAIN_EVERY).await,
                done => return done.map(drop),
            }
        }
        outbox::finish(store, begun, finished, clock.now_ms()).await.map(drop)
    }
}

fn is_time(last: &mut Option<Duration>, now: Duration, every: Duration) -> bool {
    let due = last.is_none_or(|last| now.saturating_sub(last) >= every);
    if due {
        *last = Some(now);
    }
    due
}

/// What follows from an attempt for the message and for its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Next {
    state: DeliveryState,
    due_at_ms: i64,
    hold: Hold,
}

/// A service that asks to wait is left alone altogether; otherwise a failure holds the message back by its own attempts, and the channel by how often it has failed in a row, so
/// that one message which a service cannot digest does not hold up the others.
fn concluded(due: &Due, verdict: &Verdict, now_ms: i64, chance: u32) -> Next {
    let well = Hold { not_before_ms: now_ms.saturating_add(due.kind.gap_ms()), failures: 0 };
    match verdict {
        Verdict::Accepted => Next { state: DeliveryState::Delivered, due_at_ms: now_ms, hold: well },
        Verdict::Final(_) => Next { state: DeliveryState::Failed, due_at_ms: now_ms, hold: well },
        Verdict::Retry { after_ms, .. } => {
            let failures = due.failures.saturating_add(1);
            // Nobody is left alone for longer than messages are kept for.
            let asked = after_ms.map(|ms| ms.clamp(0, GIVE_UP_AFTER_MS));
            let wait = asked.unwrap_or_else(|| backoff_ms(due.attempts.saturating_add(1), chance));
            let pause = asked.unwrap_or_else(|| backoff_ms(failures, chance.rotate_left(16)));
            let state = if now_ms >= due.give_up_at_ms { DeliveryState::GivenUp } else { DeliveryState::Waiting };
            // One last attempt at the end of the day.
            let due_at_ms = now_ms.saturating_add(wait).min(due.give_up_at_ms.max(now_ms));
            Next { state, due_at_ms, hold: Hold { not_before_ms: now_ms.saturating_add(pause), failures } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::delivery::ChannelKind;

    const NOW: i64 = 1_796_047_331_000;

    fn due(attempts: i64, failures: i64) -> Due {
        Due {
            id: 1,
            channel_id: 1,
            channel: "c".into(),
            kind: ChannelKind::Slack,
            uid: "u".into(),
            sealed: Vec::new(),
            event_id: "e".into(),
            body: Vec::new(),
            version: 1,
            attempts,
            give_up_at_ms: NOW + DAY,
            failures,
        }
    }

    fn retry(after_ms: Option<i64>) -> Verdict {
        Verdict::Retry { after_ms, why: "503".into() }
    }

    #[test]
    fn what_the_service_asks_for_holds_the_message_and_the_channel() {
        let next = concluded(&due(0, 0), &retry(Some(30_000)), NOW, 7);
        assert_eq!(
            (next.state, next.due_at_ms, next.hold),
            (DeliveryState::Waiting, NOW + 30_000, Hold { not_before_ms: NOW + 30_000, failures: 1 })
        );
        let years = concluded(&due(0, 0), &retry(Some(i64::MAX)), NOW, 7);
        assert_eq!((years.due_at_ms, years.hold.not_before_ms), (NOW + DAY, NOW + DAY));
    }

    #[test]
    fn a_message_that_cannot_be_digested_waits_longer_than_its_channel() {
        let next = concluded(&due(10, 0), &retry(None), NOW, u32::MAX);
        assert!(next.due_at_ms >= NOW + 256_000 && next.hold.not_before_ms <= NOW + 1_000, "{next:?}");
        let well = concluded(&due(10, 5), &Verdict::Accepted, NOW, 0);
        assert_eq!((well.state, well.hold), (DeliveryState::Delivered, Hold { not_before_ms: NOW + 1_000, failures: 0 }));
    }

    #[test]
    fn after_a_day_it_is_given_up_and_the_last_attempt_is_not_left_out() {
        let late = concluded(&due(100, 100), &retry(None), NOW + DAY - 1, 0);
        assert_eq!((late.state, late.due_at_ms), (DeliveryState::Waiting, NOW + DAY));
        assert_eq!(concluded(&due(101, 101), &retry(None), NOW + DAY, 0).state, DeliveryState::GivenUp);
        assert_eq!(concluded(&due(0, 0), &Verdict::Final("404".into()), NOW, 0).state, DeliveryState::Failed);
    }
}
