//! What follows from a DLQ's history: how much each hour of the week usually brings, and how far that may be missed by chance.
//!
//! The rate of an hour of the week is Gamma-Poisson (A. Gelman and others, Bayesian Data Analysis, 2.6): what that hour brought in four weeks, and a prior worth two
//! hours, the mean of its hour of the day, whose own prior is the mean of all. Where hours differ by more than chance explains, a prior of two hours
//! would be far too sure of itself, so it is worth that much less (the moments of the hours say how much).
//!
//! The predictive distribution is a negative binomial. It is as wide as the uncertain rate makes it, or as wide as the hours were in fact missed by when
//! each was predicted from the others (in the mean and in the extreme): bursts, batches and whatever the pattern does not explain. While no full week (or day) was seen, it is wider by
//! what the pattern of a week (or day) may still turn out to be.

use serde::{Deserialize, Serialize};

use super::history::{History, Hour};
use super::tail::Law;
use super::{HOUR_MS, MINUTE_MS};

const HOURS_OF_DAY: usize = 24;
const HOURS_OF_WEEK: usize = 7 * HOURS_OF_DAY;
/// Below this the DLQ is learning: one rate for all hours.
const DAY_H: f64 = HOURS_OF_DAY as f64;
/// Below this there is a rate for each hour of the day, from here on for each hour of the week.
const WEEK_H: f64 = HOURS_OF_WEEK as f64;
/// Nothing is tested with less.
const TESTED_FROM_H: f64 = 2.0;
/// What a prior is worth at most, hours.
const PRIOR_H: f64 = 2.0;
/// Dead letters come in clusters more often than not; how clustered, a learning DLQ cannot know.
const LEARNING_SPREAD: f64 = 4.0;
/// The pattern of a day: any rate with this mean is believed, the exponential distribution.
const UNKNOWN_DAY: f64 = 1.0;
/// The pattern of a week: days differ by about a third (0.3^2).
const UNKNOWN_WEEK: f64 = 0.1;
/// The most that was seen in `n` windows may be ten times less likely than one in `n`.
const TAIL_DECADES: f64 = 1.0;
/// The standard normal's 95 % quantile.
const Z_95: f64 = 1.645;

/// What a DLQ usually brings. Made from a [`History`] in some microseconds whenever that was taught something; not stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Baseline {
    taught_h: f64,
    nothing_yet: bool,
    /// By the hour of the week, counted from the epoch's (a Thursday, 00:00 UTC).
    cells: Vec<Cell>,
    spread: Spread,
    /// As [`Law::unknown`].
    unknown: f64,
}

/// How much is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Fewer than 24 hours were seen; so many.
    Learning {
        hours: f64,
    },
    /// Nothing came in all the time that is remembered. There is no ratio to nothing.
    Zero,
    Known,
}

impl State {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Learning { .. } => "learning",
            State::Zero => "zero",
            State::Known => "known",
        }
    }
}

/// Counts between which nine of ten lie, usually.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub low: f64,
    pub high: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    /// Arrivals an hour; above 0 wherever anything was taught.
    rate: f64,
    /// Hours of evidence behind it, the prior's included.
    worth_h: f64,
}

/// Variance of counts around what was predicted, divided by the mean, by the width of what was counted. At least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    minutes_5: f64,
    minutes_15: f64,
    hours_2: f64,
}

impl Spread {
    fn of_width(&self, width_ms: i64) -> f64 {
        match width_ms {
            width if width <= 5 * MINUTE_MS => self.minutes_5,
            width if width <= 30 * MINUTE_MS => self.minutes_15,
            _ => self.hours_2,
        }
    }
}

/// Arrivals and hours.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: f64,
    hours: f64,
}

impl Sum {
    fn add(&mut self, hour: &Hour) {
        self.count += hour.count as f64;
        self.hours += f64::from(hour.minutes) / 60.0;
    }

    fn without(self, hour: &Hour) -> Sum {
        Sum { count: self.count - hour.count as f64, hours: self.hours - f64::from(hour.minutes) / 60.0 }
    }

    /// The rate with a prior of `prior` an hour that is worth so many hours.
    fn shrunk(self, prior: f64, worth_h: f64) -> f64 {
        let hours = self.hours.max(0.0) + worth_h;
        if hours > 0.0 { (self.count.max(0.0) + prior * worth_h) / hours } else { prior }
    }
}

/// The sums of a history, and how rates follow from them.
struct Sums {
    all: Sum,
    day: [Sum; HOURS_OF_DAY],
    week: [Sum; HOURS_OF_WEEK],
    /// Squared coefficient of variation between the hours of a day, and of a week's hours around those of the day, beyond chance.
    day_varies: f64,
    week_varies: f64,
}

impl Sums {
    fn of(history: &History) -> Sums {
        let mut sums = Sums {
            all: Sum::default(),
            day: [Sum::default(); HOURS_OF_DAY],
            week: [Sum::default(); HOURS_OF_WEEK],
            day_varies: 0.0,
            week_varies: 0.0,
        };
        for (number, hour) in history.hours() {
            let of_week = hour_of_week(number);
            sums.all.add(hour);
            sums.day[of_week % HOURS_OF_DAY].add(hour);
            sums.week[of_week].add(hour);
        }
        let mean = sums.mean();
        sums.day_varies = varies(sums.day.iter().map(|sum| (*sum, mean)));
        let day_means: Vec<f64> = (0..HOURS_OF_DAY).map(|hour| sums.day_rate(hour, None)).collect();
        sums.week_varies = varies(sums.week.iter().enumerate().map(|(hour, sum)| (*sum, day_means[hour % HOURS_OF_DAY])));
        sums
    }

    /// Arrivals an hour over all. Half an arrival more than came: after `n` quiet hours the rate is small, not zero.
    fn mean(&self) -> f64 {
        (self.all.count + 0.5) / self.all.hours.max(1.0)
    }

    /// The rate of an hour of the day, as it would be without one of its hours.
    fn day_rate(&self, hour: usize, without: Option<&Hour>) -> f64 {
        let sum = without.map_or(self.day[hour], |left_out| self.day[hour].without(left_out));
        sum.shrunk(self.mean(), prior_worth_h(self.day_varies, self.mean()))
    }

    /// The rate of an hour of the week at this stage, as it would be without one of its hours, and the hours of evidence behind it.
    fn cell(&self, hour: usize, without: Option<&Hour>) -> Cell {
        let taught_h = self.all.hours;
        if taught_h < DAY_H {
            let rest = without.map_or(self.all, |left_out| self.all.without(left_out));
            return Cell { rate: (rest.count + 0.5) / rest.hours.max(1.0), worth_h: rest.hours.max(1.0) };
        }
        let of_day = hour % HOURS_OF_DAY;
        let day_rate = self.day_rate(of_day, without);
        if taught_h < WEEK_H {
            return Cell { rate: day_rate, worth_h: self.day[of_day].hours + prior_worth_h(self.day_varies, self.mean()) };
        }
        let sum = without.map_or(self.week[hour], |left_out| self.week[hour].without(left_out));
        let worth_h = prior_worth_h(self.week_varies, day_rate);
        Cell { rate: sum.shrunk(day_rate, worth_h), worth_h: sum.hours.max(0.0) + worth_h }
    }
}

/// What a prior of this rate is worth, hours, where rates vary so much around it: the gamma distribution with that mean and variation.
fn prior_worth_h(varies: f64, rate: f64) -> f64 {
    if varies * rate > 0.0 { (1.0 / (varies * rate)).min(PRIOR_H) } else { PRIOR_H }
}

/// The squared coefficient of variation of the rates behind these sums around their expected rates, beyond what Poisson counts vary by; from moments.
fn varies(sums: impl Iterator<Item = (Sum, f64)>) -> f64 {
    let (mut beyond, mut scale) = (0.0, 0.0);
    for (sum, rate) in sums {
        let expected = sum.hours * rate;
        beyond += (sum.count - expected).powi(2) - expected;
        scale += expected * expected;
    }
    if scale > 0.0 { (beyond / scale).max(0.0) } else { 0.0 }
}

fn hour_of_week(hour: i64) -> usize {
    hour.rem_euclid(HOURS_OF_WEEK as i64) as usize
}

impl Baseline {
    pub fn of(history: &History) -> Baseline {
        let sums = Sums::of(history);
        let learning = sums.all.hours < DAY_H;
        let unknown = match sums.all.hours {
            hours if hours < DAY_H => UNKNOWN_DAY,
            hours if hours < WEEK_H => UNKNOWN_WEEK,
            _ => 0.0,
        };
        let least = if learning { LEARNING_SPREAD } else { 1.0 };
        Baseline {
            taught_h: sums.all.hours,
            nothing_yet: sums.all.count == 0.0,
            cells: (0..HOURS_OF_WEEK).map(|hour| sums.cell(hour, None)).collect(),
            spread: spread(history, &sums, least),
            unknown,
        }
    }

    pub fn state(&self) -> State {
        match self.taught_h {
            hours if hours < DAY_H => State::Learning { hours },
            _ if self.nothing_yet => State::Zero,
            _ => State::Known,
        }
    }

    /// Whether arrivals can be compared with it: from two hours on.
    pub fn tests(&self) -> bool {
        self.taught_h >= TESTED_FROM_H
    }

    /// Whether nothing came in all the time that is remembered, however short.
    pub(super) fn saw_nothing(&self) -> bool {
        self.nothing_yet
    }

    /// How many usually arrive in `[from_ms, to_ms)`.
    pub fn expected(&self, from_ms: i64, to_ms: i64) -> f64 {
        let (mut at_ms, mut sum) = (from_ms, 0.0);
        while at_ms < to_ms {
            let hour = at_ms.div_euclid(HOUR_MS);
            let end_ms = ((hour + 1) * HOUR_MS).min(to_ms);
            sum += self.cells[hour_of_week(hour)].rate * (end_ms - at_ms) as f64 / HOUR_MS as f64;
            at_ms = end_ms;
        }
        sum
    }

    /// Where nine of ten counts of `[from_ms, to_ms)` lie. `None` while learning.
    pub fn band(&self, from_ms: i64, to_ms: i64) -> Option<Band> {
        match self.state() {
            State::Learning { .. } => None,
            State::Zero => Some(Band { low: 0.0, high: 0.0 }),
            State::Known if from_ms >= to_ms => Some(Band { low: 0.0, high: 0.0 }),
            State::Known => {
                let law = Law { unknown: 0.0, ..self.law(from_ms, to_ms, to_ms - from_ms) };
                Some(Band { low: law.quantile(-Z_95), high: law.quantile(Z_95).max(law.mean) })
            }
        }
    }

    /// The usual rate at a time, per minute, over a quarter of an hour.
    pub fn band_per_minute(&self, at_ms: i64) -> Option<Band> {
        let band = self.band(at_ms, at_ms + 15 * MINUTE_MS)?;
        Some(Band { low: band.low / 15.0, high: band.high / 15.0 })
    }

    /// In words: "usual 3-8/min at this hour".
    pub fn words(&self, at_ms: i64) -> String {
        let per_minute = match (self.state(), self.band_per_minute(at_ms)) {
            (State::Learning { hours }, _) => return format!("learning what is usual: {} of 24 h seen", hours.floor()),
            (State::Zero, _) | (_, None) => return "usually none".to_owned(),
            (State::Known, Some(band)) => band,
        };
        let hour_ms = at_ms.div_euclid(HOUR_MS) * HOUR_MS;
        let (band, unit) = match self.band(hour_ms, hour_ms + HOUR_MS) {
            Some(hourly) if per_minute.high < 2.0 => (hourly, "h"),
            _ => (per_minute, "min"),
        };
        let (low, high) = (band.low.floor(), band.high.ceil());
        if low < high { format!("usual {low}-{high}/{unit} at this hour") } else { format!("usual {high}/{unit} at this hour") }
    }

    /// What a count of `[from_ms, to_ms)` is drawn from; `width_ms` is the width of the window that it is a part of.
    pub(super) fn law(&self, from_ms: i64, to_ms: i64, width_ms: i64) -> Law {
        let last = self.cells[hour_of_week((to_ms - 1).div_euclid(HOUR_MS))];
        let uncertain = 1.0 + (to_ms - from_ms) as f64 / HOUR_MS as f64 / last.worth_h.max(0.1);
        Law { mean: self.expected(from_ms, to_ms), spread: self.spread.of_width(width_ms).max(uncertain), unknown: self.unknown }
    }
}

/// How far counts of one width were missed, each predicted from the other hours.
#[derive(Debug, Default)]
struct Misses {
    windows: f64,
    expected: f64,
    squared: f64,
    /// The count furthest above what was expected, and that.
    most: (u64, f64),
}

impl Misses {
    fn add(&mut self, windows: f64, expected: f64, squared: f64, most: u64) {
        self.windows += windows;
        self.expected += expected;
        self.squared += squared;
        let each = expected / windows;
        if most as f64 - each > self.most.0 as f64 - self.most.1 {
            self.most = (most, each);
        }
    }

    /// Variance divided by the mean, from moments; and more where that would call the most that was seen all but impossible. Rare bursts have
    /// little variance and a long tail.
    fn spread(&self, least: f64) -> f64 {
        let ratio = self.squared / self.expected;
        let spread = if ratio.is_finite() { ratio.max(least) } else { least };
        let (most, mean) = self.most;
        let surprise = |spread: f64| Law { mean, spread, unknown: 0.0 }.surprise(most);
        let credible = self.windows.max(1.0).log10() + TAIL_DECADES;
        // Beyond this a wider law makes the count no likelier.
        let (mut low, mut high) = (spread, most as f64);
        if surprise(low) <= credible || high <= low {
            return spread;
        }
        for _ in 0..20 {
            let middle = (low * high).sqrt();
            if surprise(middle) <= credible { high = middle } else { low = middle }
        }
        high
    }
}

fn spread(history: &History, sums: &Sums, least: f64) -> Spread {
    let (mut minutes_5, mut minutes_15, mut hours_2): (Misses, Misses, Misses) = Default::default();
    let mut before: Option<(i64, u64, f64)> = None;
    for (number, hour) in history.hours().filter(|(_, hour)| hour.is_whole()) {
        let (count, rate) = (hour.count as f64, sums.cell(hour_of_week(number), Some(hour)).rate);
        // The sum of (bucket - rate / n)^2 over the n buckets of the hour.
        let squared = |squares: u64, n: f64| squares as f64 - 2.0 * rate / n * count + rate * rate / n;
        minutes_5.add(12.0, rate, squared(hour.squares_5, 12.0), hour.most_5);
        minutes_15.add(4.0, rate, squared(hour.squares_15, 4.0), hour.most_15);
        if let Some((_, count_before, rate_before)) = before.filter(|(number_before, ..)| number_before + 1 == number) {
            let (counted, expected) = (hour.count.saturating_add(count_before), rate + rate_before);
            hours_2.add(1.0, expected, (counted as f64 - expected).powi(2), counted);
        }
        before = Some((number, hour.count, rate));
    }
    Spread { minutes_5: minutes_5.spread(least), minutes_15: minutes_15.spread(least), hours_2: hours_2.spread(least) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Span;
    use super::*;

    /// A Monday, 00:00 UTC.
    const START: i64 = 1_798_416_000_000;

    /// As many an hour as `rate` says, evenly.
    fn taught(hours: i64, rate: impl Fn(i64) -> i64) -> Baseline {
        let mut history = History::new(START);
        let each = |hour: i64| {
            let count = rate(hour);
            (0..count).map(move |n| (START + hour * HOUR_MS + n * HOUR_MS / count, 1))
        };
        let buckets: Vec<(i64, i64)> = (0..hours).flat_map(each).collect();
        history.teach(Span { from_ms: START, to_ms: START + hours * HOUR_MS }, &buckets, &[]);
        Baseline::of(&history)
    }

    #[test]
    fn states_and_words() {
        let learning = taught(14, |_| 10);
        assert!(matches!(learning.state(), State::Learning { hours } if hours == 14.0) && learning.tests());
        assert_eq!(learning.words(START), "learning what is usual: 14 of 24 h seen");
        assert_eq!(learning.band(START, START + HOUR_MS), None);
        assert!(!taught(1, |_| 10).tests());

        let zero = taught(100, |_| 0);
        assert_eq!((zero.state(), zero.words(START).as_str()), (State::Zero, "usually none"));
        assert_eq!(zero.band(START, START + HOUR_MS), Some(Band { low: 0.0, high: 0.0 }));

        let known = taught(672, |_| 300);
        assert_eq!((known.state(), known.words(START).as_str()), (State::Known, "usual 4-7/min at this hour"));
        assert_eq!(taught(672, |_| 20).words(START), "usual 12-29/h at this hour");
    }

    #[test]
    fn hours_of_a_week_are_told_apart_and_a_flat_rate_is_not_blurred() {
        // Nights are quiet, weekends quieter.
        let rate = |hour: i64| match (hour / 24 % 7, hour % 24) {
            (5 | 6, _) => 4,
            (_, 8..20) => 120,
            _ => 12,
        };
        let known = taught(672, rate);
        let at = |hour: i64| known.expected(START + hour * HOUR_MS, START + (hour + 1) * HOUR_MS);
        assert!(
            (at(12) - 120.0).abs() < 6.0 && (at(3) - 12.0).abs() < 2.0 && (at(5 * 24 + 12) - 4.0).abs() < 2.0,
            "{} {} {}",
            at(12),
            at(3),
            at(132)
        );
        // Across the border of two hours.
        let border = START + 8 * HOUR_MS;
        let sum = known.expected(border - HOUR_MS / 2, border + HOUR_MS / 2);
        assert!((sum - (at(7) + at(8)) / 2.0).abs() < 1e-9);
        // The hour of the day is known before that of the week.
        let days = taught(72, rate);
        assert!((days.expected(START + 12 * HOUR_MS, START + 13 * HOUR_MS) - 120.0).abs() < 6.0);

        let flat = taught(672, |_| 30);
        assert!((flat.expected(START, START + HOUR_MS) - 30.0).abs() < 0.1);
        assert!(flat.law(START, START + 900_000, 900_000).spread < 1.1);
    }

    #[test]
    fn bursts_widen() {
        let bursts = taught(672, |hour| if hour % 5 == 0 { 150 } else { 0 });
        let wide = bursts.law(START, START + 2 * HOUR_MS, 2 * HOUR_MS);
        assert!(wide.spread > 20.0, "{wide:?}");
    }

    proptest! {
        #[test]
        fn whatever_was_taught_all_is_a_number(
            counts in proptest::collection::vec((0..800i64 * 12, prop_oneof![0..10i64, 0..1_000_000_000i64]), 0..300),
            known_from in 0..HOUR_MS,
            hours in 0..800i64,
            out in (0..800i64, 0..100i64),
            at in -1_000..1_000i64,
            width in 1..3 * HOUR_MS,
        ) {
            let mut history = History::new(START + known_from);
            let buckets: Vec<(i64, i64)> = counts.iter().map(|(bucket, count)| (START + bucket * 300_000, *count)).collect();
            let out = Span { from_ms: START + out.0 * HOUR_MS, to_ms: START + (out.0 + out.1) * HOUR_MS };
            history.teach(Span { from_ms: START, to_ms: START + hours * HOUR_MS }, &buckets, &[out]);
            let baseline = Baseline::of(&history);
            let from_ms = START + at * HOUR_MS + 17;
            let law = baseline.law(from_ms, from_ms + width, width);
            prop_assert!(law.mean.is_finite() && law.mean > 0.0 && law.spread.is_finite() && law.spread >= 1.0, "{law:?}");
            if let Some(band) = baseline.band(from_ms, from_ms + width) {
                prop_assert!(band.low.is_finite() && band.high.is_finite() && 0.0 <= band.low && band.low <= band.high, "{band:?}");
            }
            let words = baseline.words(from_ms);
            prop_assert!(!words.contains("NaN") && !words.contains("inf"), "{words}");
            let again: History = serde_json::from_str(&serde_json::to_string(&history).unwrap()).unwrap();
            prop_assert_eq!(Baseline::of(&again), baseline);
        }
    }
}
