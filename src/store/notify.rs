//! Hints that something changed, for pages that are being looked at. A hint names what to look at again and says nothing of it, so one
//! that comes twice does no harm; one that was lost becomes [`Hint::All`].
//!
//! Within a process they go at once. PostgreSQL may be shared by several instances: [`Store::relay_hints`] gathers what changed here for a moment
//! and tells the others by `NOTIFY`, outside the transactions of intake, whose commits would otherwise queue for the one lock that `NOTIFY` takes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::{Notify, broadcast};

use super::{PostgresStore, Store, StoreError, either};

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// Anything may have.
    All,
    /// The DLQ of this id: its messages, its groups, or how it was when it was looked at.
    Dlq(i64),
    /// The failure group of this id: its messages, or what people say of it.
    Group(i64),
    /// The review of this id: how far it has come.
    Review(i64),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::All => f.write_str("all"),
            Hint::Dlq(id) => write!(f, "dlq-{id}"),
            Hint::Group(id) => write!(f, "group-{id}"),
            Hint::Review(id) => write!(f, "review-{id}"),
        }
    }
}

impl FromStr for Hint {
    type Err = ();

    /// A later version may tell of things that this one does not know.
    fn from_str(word: &str) -> Result<Hint, ()> {
        let id = |id: &str| id.parse().map_err(|_| ());
        match word.split_once('-') {
            Some(("dlq", text)) => id(text).map(Hint::Dlq),
            Some(("group", text)) => id(text).map(Hint::Group),
            Some(("review", text)) => id(text).map(Hint::Review),
            _ if word == "all" => Ok(Hint::All),
            _ => Err(()),
        }
    }
}

/// Changes that a reader may be behind before it is told [`Hint::All`] instead.
const KEPT: usize = 256;
/// More hints than this in one go are [`Hint::All`].
const MANY: usize = 400;
const CHANNEL: &str = "lazaret_hints";
/// PostgreSQL takes less than 8,000 bytes at once.
const PAYLOAD_LIMIT: usize = 7_900;
/// How long hints for other instances are gathered.
const GATHER: Duration = Duration::from_millis(250);
/// Something is said this often, so that a connection whose other end is gone is found out.
const BEAT: Duration = Duration::from_secs(20);
/// A listener that heard nothing for so long, not even itself, is made anew.
const SILENCE: Duration = Duration::from_secs(65);

/// Where hints of one process come together; clones are one.
#[derive(Debug, Clone)]
pub struct Hints(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: broadcast::Sender<Arc<[Hint]>>,
    /// Counts changes, from a number of chance on: two processes never agree on it.
    changes: AtomicU64,
    /// This process, so that it does not take its own word for another's.
    origin: u64,
    outbox: Mutex<BTreeSet<Hint>>,
    filled: Notify,
}

/// Hears every change since it was made.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Arc<[Hint]>>);

impl Subscription {
    /// The next changes. [`Hint::All`] when some were missed.
    pub async fn next(&mut self) -> Arc<[Hint]> {
        match self.0.recv().await {
            Ok(hints) => hints,
            Err(broadcast::error::RecvError::Lagged(_)) => Arc::new([Hint::All]),
            // The store is gone; nothing will change any more.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Default for Hints {
    fn default() -> Hints {
        let random = || getrandom::u64().unwrap_or_default();
        Hints(Arc::new(Inner {
            sender: broadcast::Sender::new(KEPT),
            // Half of the range is left for counting.
            changes: AtomicU64::new(random() >> 1),
            origin: random(),
            outbox: Mutex::default(),
            filled: Notify::new(),
        }))
    }
}

impl Hints {
    pub fn subscribe(&self) -> Subscription {
        Subscription(self.0.sender.subscribe())
    }

    /// A number that is another after every change, here or told by another instance.
    pub fn mark(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// Tells the readers in this process.
    fn deliver(&self, hints: &[Hint]) {
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        // Nobody looks: no reader is an error only to the channel.
        let _ = self.0.sender.send(hints.into());
    }

    /// For the other instances, with the next round.
    fn put_out(&self, hints: &[Hint]) {
        let mut outbox = self.0.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.extend(hints);
        if outbox.len() > MANY {
            *outbox = BTreeSet::from([Hint::All]);
        }
        self.0.filled.notify_one();
    }

    /// What is to be told to the other instances, as one text; only who speaks when there is nothing.
    fn take_out(&self) -> String {
        let hints = std::mem::take(&mut *self.0.outbox.lock().unwrap_or_else(PoisonError::into_inner));
        let origin = format!("{:016x}", self.0.origin);
        let told = hints.iter().fold(origin.clone(), |told, hint| format!("{told} {hint}"));
        if told.len() > PAYLOAD_LIMIT { format!("{origin} {}", Hint::All) } else { told }
    }

    /// What an instance said; its own words are known already.
    fn heard(&self, told: &str) {
        let mut words = told.split(' ');
        if words.next() == Some(format!("{:016x}", self.0.origin).as_str()) {
            return;
        }
        let hints: Vec<Hint> = words.filter_map(|word| word.parse().ok()).collect();
        if !hints.is_empty() {
            self.deliver(&hints);
        }
    }
}

impl Store {
    /// Says that these changed. Call it after the commit; it does not wait.
    pub fn changed(&self, hints: &[Hint]) {
        self.hints().deliver(hints);
        if let Store::Postgres(database) = self {
            database.hints.put_out(hints);
        }
    }

    /// The hints of this process, those of other instances included while [`Store::relay_hints`] runs.
    pub fn hints(&self) -> &Hints {
        match self {
            Store::Postgres(database) => &database.hints,
            Store::Sqlite(database) => &database.hints,
        }
    }

    /// Carries hints to and from the other instances; ends with an error only. Run one for each process. On SQLite there is nobody to tell.
    ///
    /// # Errors
    /// The listener's connection was lost or is silent, or the database does not answer. Whoever looks is told [`Hint::All`] once it runs again.
    pub async fn relay_hints(&self) -> Result<(), StoreError> {
        match self {
            Store::Postgres(database) => relay(database).await,
            Store::Sqlite(_) => std::future::pending().await,
        }
    }
}

async fn relay(database: &PostgresStore) -> Result<(), StoreError> {
    let hints = &database.hints;
    // A pool of its own: the listener keeps its connection, and pages and intake should not have one less.
    let options = database.pool.connect_options();
    let own = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with((*options).clone());
    let mut listener = either::within(async {
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    })
    .await?;
    // What was said while nobody listened is not known.
    hints.deliver(&[Hint::All]);
    let silent_ms = AtomicU64::new(0);
    let listen = async {
        loop {
            match listener.try_recv().await? {
                Some(notification) => {
                    silent_ms.store(0, Ordering::SeqCst);
                    hints.heard(notification.payload());
                }
                // Reconnected.
                None => hints.deliver(&[Hint::All]),
            }
        }
    };
    let tell = async {
        loop {
            let waited = match tokio::time::timeout(BEAT, hints.0.filled.notified()).await {
                Ok(()) => {
                    tokio::time::sleep(GATHER).await;
                    GATHER
                }
                Err(_) => BEAT,
            };
            let silent = silent_ms.fetch_add(waited.as_millis() as u64, Ordering::SeqCst);
            if Duration::from_millis(silent) > SILENCE {
                return Err(StoreError::Stalled(SILENCE));
            }
            if let Err(error) = say(database, &hints.take_out()).await {
                hints.put_out(&[Hint::All]);
                return Err(error);
            }
        }
    };
    tokio::select! {
        ended = listen => ended,
        ended = tell => ended,
    }
}

async fn say(database: &PostgresStore, told: &str) -> Result<(), StoreError> {
    either::within(async {
        sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(told).execute(&database.pool).await?;
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_is_too_slow_loses_nothing() {
        let hints = Hints::default();
        let mut slow = hints.subscribe();
        (0..2 * KEPT as i64).for_each(|id| hints.deliver(&[Hint::Dlq(id)]));
        assert_eq!(*slow.next().await, [Hint::All]);
    }

    #[tokio::test]
    async fn another_instance_hears_what_was_told_and_nobody_hears_itself() {
        let (one, other) = (Hints::default(), Hints::default());
        let mut heard = other.subscribe();
        let (before, mark) = (one.mark(), other.mark());
        one.put_out(&[Hint::Group(9), Hint::Dlq(7), Hint::Dlq(7)]);
        let told = one.take_out();
        one.heard(&told);
        other.heard(&format!("{told} window-3 dlq-x"));
        assert_eq!(*heard.next().await, [Hint::Dlq(7), Hint::Group(9)], "what a later version tells is passed over");
        assert_eq!(one.mark(), before, "its own word");
        assert_ne!(other.mark(), mark);
        let beat = one.take_out();
        other.heard(&beat);
        assert_ne!(other.mark(), mark + 2, "a beat is no change");
    }

    #[test]
    fn what_does_not_fit_is_everything() {
        let hints = Hints::default();
        hints.put_out(&(0..MANY as i64).map(|id| Hint::Group(i64::MAX - id)).collect::<Vec<_>>());
        let told = hints.take_out();
        assert!(told.len() <= PAYLOAD_LIMIT && told.ends_with(" all"), "{told}");
        hints.put_out(&(0..=MANY as i64).map(Hint::Dlq).collect::<Vec<_>>());
        assert!(hints.take_out().ends_with(" all"));
    }
}
