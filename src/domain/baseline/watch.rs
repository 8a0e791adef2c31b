//! When an anomaly begins and when it is over.

use serde::{Deserialize, Serialize};

use super::model::Baseline;
use super::{ALARMING, HOUR_MS, MIN_COUNT, MINUTE_MS, Span};

/// Below this (P >= 1e-3) a window is calm again.
const CALM: f64 = 3.0;
/// An anomaly is over after so long a calm.
const CALM_FOR_MS: i64 = 10 * MINUTE_MS;
/// A window of two hours remembers a flood long after it. It counts only while the last half hour, too, brings more than usual.
const STILL_MS: i64 = 30 * MINUTE_MS;
/// Minutes kept: two hours and the one that is running.
const MINUTES: usize = 121;

/// The windows that end now. At the resolution of minutes the running minute is the last, so a window is up to a minute shorter than its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    Minutes2,
    Minutes15,
    Hours2,
}

impl Window {
    pub const ALL: [Window; 3] = [Window::Minutes2, Window::Minutes15, Window::Hours2];

    pub fn width_ms(self) -> i64 {
        match self {
            Window::Minutes2 => 2 * MINUTE_MS,
            Window::Minutes15 => 15 * MINUTE_MS,
            Window::Hours2 => 2 * HOUR_MS,
        }
    }

    /// "2 min"
    pub fn words(self) -> &'static str {
        match self {
            Window::Minutes2 => "2 min",
            Window::Minutes15 => "15 min",
            Window::Hours2 => "2 h",
        }
    }
}

/// Arrivals of the last two hours by the minute. Not stored: the store's counters have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// The newest minute, counted from the epoch.
    newest: i64,
    /// Minute `m` is at `m % MINUTES`.
    counts: Vec<u64>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { newest: i64::MIN / MINUTE_MS, counts: vec![0; MINUTES] }
    }
}

impl Recent {
    /// Sets the arrivals of minutes, from (any time in the minute in ms, count). A minute that is named again gets its new count; one that is not named keeps
    /// the one it has, or has none. What lies more than two hours before `now_ms`, or after it, is dropped.
    pub fn put(&mut self, minutes: impl IntoIterator<Item = (i64, i64)>, now_ms: i64) {
        let now = now_ms.div_euclid(MINUTE_MS);
        let passed = now.saturating_sub(self.newest).clamp(0, MINUTES as i64);
        for minute in (now + 1 - passed)..=now {
            self.counts[place(minute)] = 0;
        }
        self.newest = self.newest.max(now);
        for (start_ms, count) in minutes {
            let minute = start_ms.div_euclid(MINUTE_MS);
            if minute <= self.newest && self.newest - minute < MINUTES as i64 {
                self.counts[place(minute)] = u64::try_from(count).unwrap_or(0);
            }
        }
    }

    /// Arrivals from the minute of `from_ms` on.
    fn since(&self, from_ms: i64) -> u64 {
        let first = from_ms.div_euclid(MINUTE_MS).max(self.newest.saturating_sub(MINUTES as i64 - 1));
        (first..=self.newest).fold(0, |sum, minute| sum.saturating_add(self.counts[place(minute)]))
    }
}

fn place(minute: i64) -> usize {
    minute.rem_euclid(MINUTES as i64) as usize
}

/// One window against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub window: Window,
    pub observed: u64,
    pub expected: f64,
    /// `-log10 P(X >= observed)`: 6 is one in a million.
    pub surprise: f64,
    /// How many times the usual; `None` where nothing is usual.
    pub ratio: Option<f64>,
}

/// An anomaly that is open.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Anomaly {
    /// Where the window began that showed it, ms. From here on arrivals do not teach.
    pub from_ms: i64,
    /// When it was found, ms.
    pub found_ms: i64,
    pub latest: Finding,
    /// The most surprising one so far.
    pub worst: Finding,
    /// Calm since then, ms.
    calm_since_ms: Option<i64>,
}

/// Whether arrivals of one DLQ are unusual. This is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub open: Option<Anomaly>,
    /// Windows begin no earlier than this, ms: what belongs to an anomaly that is over does not open the next.
    fresh_from_ms: Option<i64>,
}

/// What a look changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Turn {
    Opened(Anomaly),
    /// It is over. Its span does not teach until somebody accepts it.
    Closed(Span),
}

impl Watch {
    /// Looks at the arrivals up to `now_ms`. Where the baseline cannot tell yet, nothing changes.
    pub fn look(mut self, baseline: &Baseline, recent: &Recent, now_ms: i64) -> (Watch, Option<Turn>) {
        if !baseline.tests() {
            return (self, None);
        }
        let found = self.worst_window(baseline, recent, now_ms);
        let Some(mut open) = self.open else {
            let Some((finding, from_ms)) = found.filter(|(finding, _)| finding.surprise >= ALARMING) else { return (self, None) };
            let open = Anomaly { from_ms, found_ms: now_ms, latest: finding, worst: finding, calm_since_ms: None };
            self.open = Some(open);
            return (self, Some(Turn::Opened(open)));
        };
        if let Some((finding, _)) = found.filter(|(finding, _)| finding.surprise >= CALM) {
            open.latest = finding;
            open.calm_since_ms = None;
            if finding.surprise > open.worst.surprise {
                open.worst = finding;
            }
            self.open = Some(open);
            return (self, None);
        }
        let calm_since_ms = *open.calm_since_ms.get_or_insert(now_ms);
        self.open = Some(open);
        if now_ms.saturating_sub(calm_since_ms) < CALM_FOR_MS {
            return (self, None);
        }
        (Watch { open: None, fresh_from_ms: Some(calm_since_ms) }, Some(Turn::Closed(Span { from_ms: open.from_ms, to_ms: calm_since_ms })))
    }

    /// Ends an open anomaly because its level was accepted. The caller lets its buckets teach ([`super::History::start_over`]).
    pub fn accept(self, now_ms: i64) -> Watch {
        if self.open.is_some() { Watch { open: None, fresh_from_ms: Some(now_ms) } } else { self }
    }

    /// Whether an anomaly is open that is about to be over.
    pub fn is_calming(&self) -> bool {
        self.open.is_some_and(|open| open.calm_since_ms.is_some())
    }

    /// What an alert rule on arrivals goes by: 0 while nothing is open, then how surprising they are, at least [`ALARMING`].
    pub fn value(&self) -> f64 {
        self.open.map_or(0.0, |open| open.latest.surprise.max(ALARMING))
    }

    /// The most surprising window, and where it began.
    fn worst_window(&self, baseline: &Baseline, recent: &Recent, now_ms: i64) -> Option<(Finding, i64)> {
        let minute_ms = now_ms.div_euclid(MINUTE_MS) * MINUTE_MS;
        let begins_ms = |width_ms: i64| {
            let fresh_ms = self.fresh_from_ms.map_or(i64::MIN, |fresh| -(-fresh).div_euclid(MINUTE_MS) * MINUTE_MS);
            (minute_ms + MINUTE_MS - width_ms).max(fresh_ms)
        };
        let goes_on = || {
            let from_ms = begins_ms(STILL_MS);
            recent.since(from_ms) as f64 > baseline.expected(from_ms, now_ms)
        };
        let mut worst: Option<(Finding, i64)> = None;
        for window in Window::ALL {
            let from_ms = begins_ms(window.width_ms());
            let observed = recent.since(from_ms);
            if observed < MIN_COUNT || from_ms >= now_ms {
                continue;
            }
            let law = baseline.law(from_ms, now_ms, window.width_ms());
            let surprise = law.surprise(observed);
            if worst.is_some_and(|(worst, _)| worst.surprise >= surprise) || (window == Window::Hours2 && surprise > 0.0 && !goes_on()) {
                continue;
            }
            let ratio = (!baseline.saw_nothing()).then(|| observed as f64 / law.mean);
            worst = Some((Finding { window, observed, expected: law.mean, surprise, ratio }, from_ms));
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_come_and_go() {
        let now = 1_798_416_000_000;
        let mut recent = Recent::default();
        recent.put((0..200).map(|ago| (now - ago * MINUTE_MS, 1)), now + 1);
        assert_eq!((recent.since(now), recent.since(now - 14 * MINUTE_MS), recent.since(0)), (1, 15, 121));
        // Named again; not named; ahead of the clock.
        recent.put([(now, 7), (now + MINUTE_MS, 9)], now + 2);
        assert_eq!((recent.since(now), recent.since(0)), (7, 127));
        recent.put([], now + HOUR_MS);
        assert_eq!((recent.since(now + 1), recent.since(0)), (7, 67));
        recent.put([(now, 3)], now);
        assert_eq!(recent.since(0), 63, "a clock that goes back loses nothing");
        recent.put([], now + 10 * HOUR_MS);
        assert_eq!(recent.since(0), 0);
    }
}
