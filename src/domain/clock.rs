//! The one place where time enters the program. Everything else is passed a [`Clock`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall time for what is recorded, monotonic time for what is waited for. The two never meet:
/// leases are judged on [`Clock::monotonic`] alone.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's clocks.
    System { started: Instant },
    /// A clock that stands still until a test steps it.
    Fake { wall_ms: Arc<AtomicI64>, monotonic_ms: Arc<AtomicI64> },
}

impl Clock {
    /// The machine's clocks.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn system() -> Clock {
        Clock::System { started: Instant::now() }
    }

    /// A clock standing at `wall_ms` (ms since the epoch, UTC).
    pub fn fake(wall_ms: i64) -> Clock {
        Clock::Fake { wall_ms: Arc::new(AtomicI64::new(wall_ms)), monotonic_ms: Arc::new(AtomicI64::new(0)) }
    }

    /// Milliseconds since the epoch, UTC.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now_ms(&self) -> i64 {
        match self {
            Clock::System { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
            Clock::Fake { wall_ms, .. } => wall_ms.load(Ordering::SeqCst),
        }
    }

    /// Time since this clock was made; never goes back, knows nothing of the wall.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn monotonic(&self) -> Duration {
        match self {
            Clock::System { started } => started.elapsed(),
            Clock::Fake { monotonic_ms, .. } => Duration::from_millis(u64::try_from(monotonic_ms.load(Ordering::SeqCst)).unwrap_or(0)),
        }
    }

    /// Steps a fake clock, wall and monotonic together. Does nothing to the system's.
    pub fn step(&self, by: Duration) {
        if let Clock::Fake { wall_ms, monotonic_ms } = self {
            let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
            wall_ms.fetch_add(ms, Ordering::SeqCst);
            monotonic_ms.fetch_add(ms, Ordering::SeqCst);
        }
    }
}
