//! What pages show of a baseline: small, made whenever it was taught, good for the hours until it is taught again.

use serde::{Deserialize, Serialize};

use super::model::{Band, Baseline, State};
use super::{HOUR_MS, MINUTE_MS};

/// So many hours are told ahead. It is taught once an hour.
const AHEAD_H: i64 = 3;

/// What a DLQ usually brings in these hours. This is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usual {
    /// Hours since the epoch at which `per_minute` begins.
    from_hour: i64,
    state: State,
    /// From and to, by the hour; empty while learning.
    per_minute: Vec<(f64, f64)>,
}

impl Usual {
    /// Of the hour of `now_ms` and those after it.
    pub fn of(baseline: &Baseline, now_ms: i64) -> Usual {
        let from_hour = now_ms.div_euclid(HOUR_MS);
        let rounded = |rate: f64| (rate * 1_000.0).round() / 1_000.0;
        // From the middle of the hour on: the band is of a quarter.
        let band = |hour: i64| baseline.band_per_minute(hour * HOUR_MS + 30 * MINUTE_MS);
        let per_minute = (from_hour..from_hour + AHEAD_H).filter_map(band).map(|band| (rounded(band.low), rounded(band.high))).collect();
        Usual { from_hour, state: baseline.state(), per_minute }
    }

    /// What is usual at a time, and per minute from where to where. `None`: nothing is known of that time. The band is `None` while learning.
    pub fn at(&self, at_ms: i64) -> Option<(State, Option<Band>)> {
        let ahead = at_ms.div_euclid(HOUR_MS) - self.from_hour;
        if !(0..AHEAD_H).contains(&ahead) {
            return None;
        }
        let band = self.per_minute.get(usize::try_from(ahead).ok()?).map(|(low, high)| Band { low: *low, high: *high });
        Some((self.state, band))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{History, Span};
    use super::*;

    /// A Monday, 00:00 UTC.
    const START: i64 = 1_798_416_000_000;

    fn taught(hours: i64, per_bucket: i64) -> Usual {
        let mut history = History::new(START);
        let buckets: Vec<(i64, i64)> = (0..hours * 12).map(|bucket| (START + bucket * 5 * MINUTE_MS, per_bucket)).collect();
        history.teach(Span { from_ms: START, to_ms: START + hours * HOUR_MS }, &buckets, &[]);
        let usual = Usual::of(&Baseline::of(&history), START + hours * HOUR_MS);
        serde_json::from_str(&serde_json::to_string(&usual).unwrap()).unwrap()
    }

    #[test]
    fn it_tells_the_hours_until_it_is_taught_again() {
        let now = START + 48 * HOUR_MS;
        let usual = taught(48, 10);
        let (state, band) = usual.at(now + 2 * HOUR_MS).unwrap();
        let band = band.unwrap();
        assert!(state == State::Known && band.low <= 2.0 && band.high >= 2.0 && band.high < 6.0, "{band:?}");
        assert_eq!((usual.at(now - 1), usual.at(now + 3 * HOUR_MS)), (None, None));
    }

    #[test]
    fn learning_has_no_band_and_nothing_is_zero() {
        assert_eq!(taught(3, 1).at(START + 3 * HOUR_MS), Some((State::Learning { hours: 3.0 }, None)));
        assert_eq!(taught(48, 0).at(START + 48 * HOUR_MS), Some((State::Zero, Some(Band { low: 0.0, high: 0.0 }))));
    }
}
