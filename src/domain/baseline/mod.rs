//! What a DLQ usually brings, and when what arrives is too much to be chance.
//!
//! [`history`] is what is kept of a DLQ's arrivals (28 days by the hour), [`model`] what follows from it for each hour of the week, [`watch`] compares the
//! last minutes with that and knows when an anomaly began and ended, [`follow`] ties the three together for one DLQ, and runs them over stored arrivals.
//! All counts go by dead-lettered time, so that reading old records late is no spike.

pub mod follow;
pub mod history;
pub mod model;
mod tail;
mod usual;
pub mod watch;

use serde::{Deserialize, Serialize};

pub use follow::{Follow, anomaly_values};
pub use history::History;
pub use model::{Band, Baseline, State};
pub use usual::Usual;
pub use watch::{Anomaly, Finding, Recent, Turn, Watch, Window};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// Fewer arrivals than this in a window are never an anomaly.
pub const MIN_COUNT: u64 = 5;

/// An anomaly begins where P(X >= observed) is below 10 to the power of minus this many.
pub const ALARMING: f64 = 6.0;

/// A stretch of time, `from_ms` in it, `to_ms` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub from_ms: i64,
    pub to_ms: i64,
}

impl Span {
    /// Whether any of `[from_ms, to_ms)` is in it.
    fn touches(&self, from_ms: i64, to_ms: i64) -> bool {
        self.from_ms < to_ms && from_ms < self.to_ms
    }
}
