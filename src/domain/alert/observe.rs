//! What a look at a DLQ says of a measure: the same for a live look and for a stored one.

use super::measure::{Measure, Observation};
use crate::domain::health::{AtRisk, Figures};

/// What the figures of a look at `at_ms` say of a measure. `None`: they say nothing of it, now or ever. `ignore_before_ms` as in [`super::Terms`].
///
/// A look that failed says nothing of what is in the topic, and so nothing of depth and age either: what is stored is then less than what there is.
/// What people decide (replays, follow-ups) is known all the same.
pub fn observe(measure: Measure, figures: &Figures, ignore_before_ms: Option<i64>, at_ms: i64) -> Option<Observation> {
    let count = |count: Option<i64>| count.map_or(Observation::NoData, |count| Observation::Value(count as f64));
    let seconds = |ms: i64| Observation::Value(ms.max(0) as f64 / 1_000.0);
    let seen = |observed: Observation| Some(if figures.has_data { observed } else { Observation::NoData });
    match measure {
        Measure::Depth => seen(count(figures.depth)),
        Measure::Uncollected => seen(count(figures.uncollected)),
        Measure::ArrivalRate => seen(figures.arrivals_per_minute.map_or(Observation::NoData, Observation::Value)),
        Measure::OldestAge => seen(match (figures.depth, figures.oldest_open_ms) {
            (Some(0), _) => Observation::Nothing,
            (_, Some(oldest_ms)) if ignore_before_ms.is_none_or(|line| oldest_ms >= line) => seconds(at_ms.saturating_sub(oldest_ms)),
            _ => Observation::NoData,
        }),
        Measure::AtRisk => seen(match figures.at_risk {
            AtRisk::AtRisk { left_ms } => seconds(left_ms),
            AtRisk::AllStored | AtRisk::Unlimited => Observation::Nothing,
            AtRisk::NotPermitted | AtRisk::Unknown => Observation::NoData,
        }),
        Measure::FollowUpOpen => Some(count(figures.follow_up_open)),
        Measure::ReplaySuccess => Some(match figures.confirmed.zip(figures.returned) {
            None => Observation::NoData,
            Some((confirmed, returned)) if confirmed.saturating_add(returned) < Measure::FEWEST_REPLAYS => Observation::Nothing,
            Some((confirmed, returned)) => Observation::Value(confirmed as f64 * 100.0 / (confirmed + returned) as f64),
        }),
        Measure::UnusualArrivals
        | Measure::NoData
        | Measure::IntakeStalled
        | Measure::IntakeGap
        | Measure::TopicRecreated
        | Measure::ApprovalWaiting
        | Measure::GroupRegressed
        | Measure::ReplayHalted
        | Measure::EmergencyUnreviewed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    const SEEN: Figures = Figures {
        has_data: true,
        depth: Some(7),
        oldest_open_ms: Some(NOW - 90_000),
        uncollected: Some(3),
        at_risk: AtRisk::AtRisk { left_ms: 60_000 },
        arrivals_per_minute: Some(0.5),
        follow_up_open: Some(2),
        confirmed: Some(18),
        returned: Some(2),
    };

    fn of(measure: Measure, figures: Figures) -> Option<Observation> {
        observe(measure, &figures, None, NOW)
    }

    #[test]
    fn figures_are_observations() {
        let value = |measure| of(measure, SEEN).unwrap().value().unwrap();
        assert_eq!([value(Measure::Depth), value(Measure::Uncollected), value(Measure::ArrivalRate)], [7.0, 3.0, 0.5]);
        assert_eq!([value(Measure::OldestAge), value(Measure::AtRisk), value(Measure::FollowUpOpen)], [90.0, 60.0, 2.0]);
        assert_eq!(value(Measure::ReplaySuccess), 90.0);
        assert_eq!(of(Measure::ReplaySuccess, Figures { confirmed: Some(17), ..SEEN }), Some(Observation::Nothing), "19 say nothing");
        assert_eq!(of(Measure::AtRisk, Figures { at_risk: AtRisk::Unlimited, ..SEEN }), Some(Observation::Nothing));
        assert_eq!(of(Measure::AtRisk, Figures { at_risk: AtRisk::NotPermitted, ..SEEN }), Some(Observation::NoData));
        assert_eq!(of(Measure::OldestAge, Figures { depth: Some(0), oldest_open_ms: None, ..SEEN }), Some(Observation::Nothing));
        assert_eq!(of(Measure::ReplayHalted, SEEN), None);
    }

    #[test]
    fn what_is_older_than_the_line_is_not_known_to_be_younger() {
        assert_eq!(observe(Measure::OldestAge, &SEEN, Some(NOW - 90_001), NOW), Some(Observation::Value(90.0)));
        assert_eq!(observe(Measure::OldestAge, &SEEN, Some(NOW - 89_999), NOW), Some(Observation::NoData));
    }

    #[test]
    fn a_look_that_failed_says_nothing_of_the_topic() {
        let dark = Figures { has_data: false, ..SEEN };
        for measure in [Measure::Depth, Measure::Uncollected, Measure::ArrivalRate, Measure::OldestAge, Measure::AtRisk] {
            assert_eq!(of(measure, dark), Some(Observation::NoData), "{measure:?}");
        }
        assert_eq!(of(Measure::FollowUpOpen, dark), Some(Observation::Value(2.0)));
        assert!(of(Measure::ReplaySuccess, dark).unwrap().value().is_some());
    }
}
