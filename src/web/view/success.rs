//! How replays ended, as lists and pages show it.

use super::format;
use crate::domain::health::replay_success;
use crate::store::counters::OutcomeCounts;

/// A success rate with what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success {
    /// "97.2%", or unknown.
    pub rate: String,
    /// "n = 1,204"; empty while nothing is known to have ended.
    pub n: String,
    /// "95% interval 96.1% to 98%"; empty while there is no rate.
    pub interval: String,
    /// "3 waiting for proof · 2 not confirmed", or "no replays"; empty when there is nothing beside the rate.
    pub beside: String,
}

impl Success {
    pub fn of(outcomes: OutcomeCounts) -> Success {
        let OutcomeCounts { pending, confirmed, returned, unproven } = outcomes;
        let success = replay_success(confirmed, returned);
        let share = |share: f64| format::percent((share * 10_000.0).round() as i64, 10_000);
        let interval = success.low.zip(success.high);
        let parts = [(pending, "waiting for proof"), (unproven, "not confirmed")];
        let parts: Vec<String> =
            parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{} {words}", format::exact(count))).collect();
        Success {
            rate: format::percent(confirmed, success.n),
            n: if success.n > 0 { format!("n = {}", format::exact(success.n)) } else { String::new() },
            interval: interval.map_or_else(String::new, |(low, high)| format!("95% interval {} to {}", share(low), share(high))),
            beside: if success.n == 0 && parts.is_empty() { "no replays".to_owned() } else { parts.join(" · ") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pending: i64, confirmed: i64, returned: i64, unproven: i64) -> [String; 4] {
        let Success { rate, n, interval, beside } = Success::of(OutcomeCounts { pending, confirmed, returned, unproven });
        [rate, n, interval, beside]
    }

    #[test]
    fn a_rate_stands_with_what_it_rests_on() {
        assert_eq!(of(0, 0, 0, 0), ["—", "", "", "no replays"]);
        assert_eq!(of(185, 0, 0, 0), ["—", "", "", "185 waiting for proof"]);
        assert_eq!(of(0, 3, 0, 0), ["100%", "n = 3", "95% interval 43.8% to 100%", ""]);
        assert_eq!(of(3, 1_170, 34, 2), ["97.1%", "n = 1,204", "95% interval 96% to 97.9%", "3 waiting for proof · 2 not confirmed"]);
        assert_eq!(of(0, 0, 2, 0)[..2], ["0%", "n = 2"]);
    }
}
