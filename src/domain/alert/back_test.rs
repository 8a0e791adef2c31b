//! What a rule would have done, and which threshold would fit.

use super::life::{Alert, Look, Phase, step};
use super::measure::{Measure, Observation, Unit, Worse};
use super::rule::{Rule, Terms};
use super::{Severity, life};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
const WEEK_MS: i64 = 7 * DAY_MS;
/// History shorter than this suggests nothing.
const LEAST_MS: i64 = DAY_MS;
const LEAST_SAMPLES: usize = 20;
/// A suggested threshold fires at most so often in a week of the past.
const TOLERATED_A_WEEK: f64 = 1.0;

/// A time in which a rule would have fired.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fired {
    /// When it would have told, ms.
    pub at_ms: i64,
    /// `None`: it would still.
    pub until_ms: Option<i64>,
    pub severity: Severity,
    pub peak: f64,
}

/// Runs a rule over samples in order of time, (ms, what was seen), by the very steps of a live one.
pub fn back_test(rule: &Rule, samples: impl IntoIterator<Item = (i64, Observation)>) -> Vec<Fired> {
    let mut fired: Vec<Fired> = Vec::new();
    let mut alert = Alert::default();
    for (at_ms, observed) in samples {
        let was_firing = matches!(alert.phase, Phase::Firing(_));
        (alert, _) = step(rule, alert, Look { observed, replayed: None }, at_ms);
        match (&alert.phase, fired.last_mut()) {
            (Phase::Firing(firing), _) if !was_firing => {
                fired.push(Fired { at_ms, until_ms: None, severity: firing.severity, peak: firing.peak });
            }
            (Phase::Firing(firing), Some(last)) => (last.severity, last.peak) = (firing.severity, firing.peak),
            (Phase::Resolved(life::Resolved { end, .. }), Some(last)) if was_firing => {
                (last.until_ms, last.peak) = (Some(at_ms), end.peak);
            }
            _ => {}
        }
    }
    fired
}

/// "would have fired 4 times in the last 7 days". `None` where there was nothing to look at.
pub fn back_test_words(fired: &[Fired], from_ms: i64, to_ms: i64) -> Option<String> {
    let days = ((to_ms - from_ms) as f64 / DAY_MS as f64).round();
    let span = match days {
        _ if to_ms <= from_ms => return None,
        days if days >= 2.0 => format!("the last {days} days"),
        days if days >= 1.0 => "the last day".to_owned(),
        _ => format!("the last {}", Unit::Seconds.words(((to_ms - from_ms) / 1_000) as f64)),
    };
    Some(match fired.len() {
        0 => format!("would not have fired in {span}"),
        1 => format!("would have fired once in {span}"),
        n => format!("would have fired {n} times in {span}"),
    })
}

/// A threshold that fits what was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    pub threshold: f64,
    pub clear: f64,
    /// Why, in a sentence.
    pub why: String,
}

/// Suggests a threshold for a measure from samples in order of time, (ms, value): the nearest round number beyond what was usual (99 of 100 samples, and a
/// quarter more) at which the rule, otherwise as `terms` say, would have fired at most once a week.
///
/// # Errors
/// A sentence: too little was seen, or the measure has no threshold of this kind.
pub fn suggest(terms: &Terms, samples: &[(i64, Observation)]) -> Result<Suggestion, String> {
    let measure = terms.measure;
    if measure == Measure::UnusualArrivals || measure.counts_events() {
        return Err(format!("{} needs no threshold from history: it says by itself what is unusual", measure.title()));
    }
    let mut values: Vec<f64> = samples.iter().filter_map(|(_, observed)| observed.value()).collect();
    let (Some((from_ms, _)), Some((to_ms, _))) = (samples.first(), samples.last()) else {
        return Err("nothing was measured yet".to_owned());
    };
    let spans_ms = to_ms - from_ms;
    if spans_ms < LEAST_MS || values.len() < LEAST_SAMPLES {
        let seen = Unit::Seconds.words((spans_ms / 1_000) as f64);
        return Err(format!("{} values over {seen} are too few to say what is usual: come back after a day", values.len()));
    }
    // From the good end to the bad one.
    values.sort_by(|a, b| if measure.worse() == Worse::Higher { a.total_cmp(b) } else { b.total_cmp(a) });
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    let (usual, worst) = (at(0.99), at(1.0));
    let weeks = (spans_ms as f64 / WEEK_MS as f64).max(1.0);
    let candidates = candidates(measure, usual);
    let mut last = None;
    for threshold in candidates {
        let clear = clear_for(measure, threshold);
        let tried = Terms { threshold, clear, critical_at: None, ..terms.clone() };
        let rule = Rule::new(tried).map_err(|wrong| wrong.join("; "))?;
        let fired = back_test(&rule, samples.iter().copied());
        let often = fired.len() as f64 / weeks;
        last = Some((threshold, clear, fired));
        if often <= TOLERATED_A_WEEK {
            break;
        }
    }
    let Some((threshold, clear, fired)) = last else {
        return Err(format!("no threshold beyond what is usual ({}) makes sense", measure.unit().words(usual)));
    };
    let words = |value: f64| measure.unit().words(value);
    let (side, most) = if measure.worse() == Worse::Higher { ("at most", "the highest") } else { ("at least", "the lowest") };
    let would = back_test_words(&fired, *from_ms, *to_ms).unwrap_or_default();
    let why = format!("99 of 100 times it was {side} {}, {most} was {}; {} {would}", words(usual), words(worst), words(threshold));
    Ok(Suggestion { threshold, clear, why })
}

/// Round numbers beyond what is usual, nearest first.
fn candidates(measure: Measure, usual: f64) -> Vec<f64> {
    const SECONDS: [f64; 17] = [
        60.0,
        120.0,
        300.0,
        600.0,
        900.0,
        1_800.0,
        3_600.0,
        7_200.0,
        14_400.0,
        28_800.0,
        43_200.0,
        86_400.0,
        172_800.0,
        259_200.0,
        604_800.0,
        1_209_600.0,
        2_592_000.0,
    ];
    const PERCENT: [f64; 12] = [99.0, 98.0, 95.0, 90.0, 85.0, 80.0, 70.0, 60.0, 50.0, 25.0, 10.0, 5.0];
    let round = |least: f64| -> Vec<f64> {
        let (first, last) = (if least < 10.0 { 1 } else { least.log10().floor() as i32 }, 12);
        let steps =
            (first.min(last)..=last).flat_map(|power| [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0].map(|step| step * 10f64.powi(power)));
        steps.filter(|value| *value >= least).take(24).collect()
    };
    match (measure.unit(), measure.worse()) {
        (Unit::Percent, _) => PERCENT.into_iter().filter(|value| *value < usual).collect(),
        (Unit::Seconds, Worse::Higher) => SECONDS.into_iter().filter(|value| *value >= usual * 1.25).collect(),
        (Unit::Seconds, Worse::Lower) => SECONDS.into_iter().rev().filter(|value| *value <= usual / 1.25).collect(),
        _ => round(usual * 1.25),
    }
}

/// A fifth on the good side of the threshold.
fn clear_for(measure: Measure, threshold: f64) -> f64 {
    match (measure.worse(), measure.unit()) {
        (Worse::Higher, Unit::Count) => (threshold * 0.8).floor().max(1.0),
        (Worse::Higher, _) => threshold * 0.8,
        (Worse::Lower, Unit::Percent) => (threshold + 2.0).min(100.0),
        (Worse::Lower, _) => threshold * 1.25,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{REPEAT_MS, Scope};
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn terms(measure: Measure, threshold: f64, clear: f64) -> Terms {
        Terms {
            name: "a rule".into(),
            measure,
            scope: Scope::default(),
            threshold,
            critical_at: None,
            clear,
            for_ms: 0,
            severity: Severity::Warning,
            repeat_ms: REPEAT_MS,
            channels: Vec::new(),
            ignore_before_ms: None,
        }
    }

    /// A week of quarters of an hour.
    fn week(value: impl Fn(i64) -> f64) -> Vec<(i64, Observation)> {
        (0..672).map(|n| (NOW + n * 15 * MINUTE_MS, Observation::Value(value(n)))).collect()
    }

    #[test]
    fn a_back_test_names_the_times() {
        let rule = Rule::new(terms(Measure::Depth, 100.0, 90.0)).unwrap();
        let samples = week(|n| if n % 160 >= 150 { 100.0 + n as f64 } else { 10.0 });
        let fired = back_test(&rule, samples.clone());
        let at = |n: i64| NOW + n * 15 * MINUTE_MS;
        assert_eq!(fired.len(), 4);
        assert_eq!(fired[0], Fired { at_ms: at(150), until_ms: Some(at(160)), severity: Severity::Warning, peak: 259.0 });
        assert_eq!(back_test_words(&fired, at(0), at(672)).as_deref(), Some("would have fired 4 times in the last 7 days"));
        assert_eq!(back_test_words(&[], at(0), at(96)).as_deref(), Some("would not have fired in the last day"));
        assert_eq!(back_test_words(&[], NOW, NOW), None);
        // The last one goes on, and no data does not end it.
        let open = back_test(&rule, [(NOW, Observation::Value(200.0)), (NOW + 1, Observation::NoData)]);
        assert_eq!(open[0].until_ms, None);
    }

    #[test]
    fn a_threshold_is_a_round_number_beyond_what_is_usual() {
        let deep = suggest(&terms(Measure::Depth, 1.0, 1.0), &week(|n| 700.0 + (n % 97) as f64 * 3.0)).unwrap();
        assert_eq!((deep.threshold, deep.clear), (1_500.0, 1_200.0));
        assert_eq!(deep.why, "99 of 100 times it was at most 985, the highest was 988; 1,500 would not have fired in the last 7 days");

        // Peaks that come three times a week are left below it.
        let peaks = suggest(&terms(Measure::Depth, 1.0, 1.0), &week(|n| if n % 200 == 199 { 4_000.0 } else { 100.0 })).unwrap();
        assert_eq!(peaks.threshold, 5_000.0);

        let empty = suggest(&terms(Measure::Depth, 1.0, 1.0), &week(|_| 0.0)).unwrap();
        assert_eq!((empty.threshold, empty.clear), (10.0, 8.0));

        let old = suggest(&terms(Measure::OldestAge, 60.0, 60.0), &week(|n| (n % 40) as f64 * 400.0)).unwrap();
        assert_eq!(old.threshold, 28_800.0);

        let left = suggest(&terms(Measure::AtRisk, 60.0, 60.0), &week(|n| 500_000.0 + (n % 10) as f64)).unwrap();
        assert_eq!((left.threshold, left.clear), (259_200.0, 324_000.0));

        let success = suggest(&terms(Measure::ReplaySuccess, 60.0, 60.0), &week(|n| 97.0 + (n % 3) as f64)).unwrap();
        assert_eq!((success.threshold, success.clear), (95.0, 97.0));
    }

    #[test]
    fn too_little_history_suggests_nothing() {
        assert_eq!(suggest(&terms(Measure::Depth, 1.0, 1.0), &[]).unwrap_err(), "nothing was measured yet");
        let hour = week(|_| 1.0)[..5].to_vec();
        assert!(suggest(&terms(Measure::Depth, 1.0, 1.0), &hour).unwrap_err().starts_with("5 values over 1h are too few"));
        assert!(suggest(&terms(Measure::ReplayHalted, 1.0, 1.0), &week(|_| 1.0)).is_err());
    }
}
