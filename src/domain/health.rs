//! How healthy a DLQ is: what may be said from what was measured, unknown kept apart from zero.

use std::cmp::Ordering;

use serde::Serialize;

use super::alert::{Measure, Severity};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What may be lost to the topic's retention before it is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRisk {
    /// Nothing: every record is taken in.
    AllStored,
    /// The oldest record that is not taken in expires in so many ms (0: it may be gone any moment). An estimate: Kafka deletes whole
    /// segments, and earlier where `retention.bytes` is reached.
    AtRisk { left_ms: i64 },
    /// The broker does not let us read the topic's retention.
    NotPermitted,
    /// The topic keeps its records for ever.
    Unlimited,
    /// The oldest record's age or the retention could not be asked.
    Unknown,
}

impl AtRisk {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            AtRisk::AllStored => "all_stored",
            AtRisk::AtRisk { .. } => "at_risk",
            AtRisk::NotPermitted => "not_permitted",
            AtRisk::Unlimited => "unlimited",
            AtRisk::Unknown => "unknown",
        }
    }

    /// ms until the oldest record expires; only in [`AtRisk::AtRisk`].
    pub fn left_ms(self) -> Option<i64> {
        match self {
            AtRisk::AtRisk { left_ms } => Some(left_ms),
            _ => None,
        }
    }

    /// The reverse of [`AtRisk::as_str`] and [`AtRisk::left_ms`]; what does not go together is unknown.
    pub fn from_parts(state: &str, left_ms: Option<i64>) -> AtRisk {
        match (state, left_ms) {
            ("all_stored", _) => AtRisk::AllStored,
            ("at_risk", Some(left_ms)) => AtRisk::AtRisk { left_ms },
            ("not_permitted", _) => AtRisk::NotPermitted,
            ("unlimited", _) => AtRisk::Unlimited,
            _ => AtRisk::Unknown,
        }
    }
}

/// The oldest record of a topic that is not taken in yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldestUncollected {
    /// There is none.
    Nothing,
    /// Its timestamp, ms.
    At(i64),
    Unknown,
}

impl OldestUncollected {
    /// With one more record, of time `at_ms`. What is unknown stays so.
    pub fn or_older(self, at_ms: i64) -> OldestUncollected {
        match self {
            OldestUncollected::Nothing => OldestUncollected::At(at_ms),
            OldestUncollected::At(before_ms) => OldestUncollected::At(before_ms.min(at_ms)),
            OldestUncollected::Unknown => OldestUncollected::Unknown,
        }
    }
}

/// How long a topic keeps its records, as the broker tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Records are deleted this many ms after their timestamp (`retention.ms`).
    Ms(i64),
    /// Never deleted by time: `retention.ms=-1`, or a topic that is only compacted.
    Unlimited,
    /// The broker refuses to tell (no DescribeConfigs).
    NotPermitted,
    /// The broker cannot be asked (the in-process one does not know the request).
    Unknown,
}

/// Retention minus the age of the oldest record not yet taken in. Where there is none, all is stored, whatever the retention.
pub fn at_risk(oldest: OldestUncollected, retention: Retention, now_ms: i64) -> AtRisk {
    match (oldest, retention) {
        (OldestUncollected::Nothing, _) => AtRisk::AllStored,
        (_, Retention::Unlimited) => AtRisk::Unlimited,
        (_, Retention::NotPermitted) => AtRisk::NotPermitted,
        (OldestUncollected::At(at_ms), Retention::Ms(keeps_ms)) => {
            let age_ms = now_ms.saturating_sub(at_ms).max(0);
            AtRisk::AtRisk { left_ms: keeps_ms.saturating_sub(age_ms).max(0) }
        }
        (OldestUncollected::Unknown, _) | (_, Retention::Unknown) => AtRisk::Unknown,
    }
}

/// Records in the topic that are not taken in: the sum of max(0, end - position) over (position, end) of its partitions, an estimate because
/// transaction markers and compaction inflate it. `None` when any partition is unknown, or when there is none.
pub fn uncollected(partitions: impl IntoIterator<Item = (Option<i64>, Option<i64>)>) -> Option<i64> {
    let mut sum = None;
    for (position, end) in partitions {
        let left = end?.saturating_sub(position?).max(0);
        sum = Some(sum.unwrap_or(0i64).saturating_add(left));
    }
    sum
}

/// The arrival rate looks back this far.
pub const ARRIVALS_WINDOW_MS: i64 = 15 * MINUTE_MS;

/// Where the minute buckets of the arrival rate begin: 15 whole minutes before the one that is running.
pub fn arrivals_from_ms(now_ms: i64) -> i64 {
    now_ms.div_euclid(MINUTE_MS) * MINUTE_MS - ARRIVALS_WINDOW_MS
}

/// New dead letters per minute over the last 15 minutes, from (start of minute in ms, count) by dead-lettered time; a missing bucket is zero.
pub fn arrivals_per_minute(buckets: impl IntoIterator<Item = (i64, i64)>, now_ms: i64) -> f64 {
    let from_ms = arrivals_from_ms(now_ms);
    let in_window = |(start_ms, _): &(i64, i64)| (from_ms..=now_ms).contains(start_ms);
    let arrived: i64 = buckets.into_iter().filter(in_window).map(|(_, count)| count).sum();
    // 15 whole minutes and the part of the running one that has passed.
    let minutes = (now_ms - from_ms) as f64 / MINUTE_MS as f64;
    arrived as f64 / minutes
}

/// The earliest last message (by dead-lettered time, ms) with which a failure counts as still arriving: an hour ago.
pub fn arriving_from_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(HOUR_MS)
}

/// How replays ended, of those whose end is known. All `None` while there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReplaySuccess {
    /// confirmed / (confirmed + returned), 0 to 1.
    pub rate: Option<f64>,
    /// confirmed + returned.
    pub n: i64,
    /// The Wilson interval at 95 %.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// The success rate of replays with its Wilson score interval (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927), z for 95 %.
pub fn replay_success(confirmed: i64, returned: i64) -> ReplaySuccess {
    const Z: f64 = 1.959_963_984_540_054;
    let (confirmed, returned) = (confirmed.max(0), returned.max(0));
    let n = confirmed.saturating_add(returned);
    if n == 0 {
        return ReplaySuccess { rate: None, n: 0, low: None, high: None };
    }
    let trials = n as f64;
    let rate = confirmed as f64 / trials;
    let z2 = Z * Z;
    let centre = (rate + z2 / (2.0 * trials)) / (1.0 + z2 / trials);
    let half = Z / (1.0 + z2 / trials) * (rate * (1.0 - rate) / trials + z2 / (4.0 * trials * trials)).sqrt();
    // Rounding must not make 3 of 3 look like less than certain at its upper end.
    let low = if confirmed == 0 { 0.0 } else { (centre - half).max(0.0) };
    let high = if returned == 0 { 1.0 } else { (centre + half).min(1.0) };
    ReplaySuccess { rate: Some(rate), n, low: Some(low), high: Some(high) }
}

/// How a DLQ is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Critical,
    Warning,
    Healthy,
    NoData,
    Muted,
}

impl Status {
    pub const ALL: [Status; 5] = [Status::Critical, Status::Warning, Status::Healthy, Status::NoData, Status::Muted];

    /// The word in the API and the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Critical => "critical",
            Status::Warning => "warning",
            Status::Healthy => "healthy",
            Status::NoData => "no_data",
            Status::Muted => "muted",
        }
    }

    /// What one cannot see comes first: it may be anything.
    fn rank(self) -> u8 {
        match self {
            Status::NoData => 0,
            Status::Critical => 1,
            Status::Warning => 2,
            Status::Healthy => 3,
            Status::Muted => 4,
        }
    }
}

/// What one look at a DLQ said. `None` is unknown, never zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// The newest look succeeded and is recent enough ([`is_fresh`]).
    pub has_data: bool,
    /// Open messages.
    pub depth: Option<i64>,
    /// When the oldest open message was dead-lettered, ms; `None` also while none is open.
    pub oldest_open_ms: Option<i64>,
    pub uncollected: Option<i64>,
    pub at_risk: AtRisk,
    pub arrivals_per_minute: Option<f64>,
    /// Archived messages whose follow-up is open.
    pub follow_up_open: Option<i64>,
    /// Messages that were replayed, by how that ended.
    pub confirmed: Option<i64>,
    pub returned: Option<i64>,
}

/// A DLQ as of now, for whoever judges it by rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Looked {
    pub figures: Figures,
    /// Messages that were ever replayed.
    pub replayed: i64,
    /// The newest look, ms. `None`: nobody looked yet.
    pub looked_at_ms: Option<i64>,
    /// The newest look that succeeded, ms.
    pub sampled_at_ms: Option<i64>,
    /// Arrivals by minute, (start in ms, count), of the time that was asked for.
    pub minutes: Vec<(i64, i64)>,
}

/// What was measured of one DLQ. `None` is unknown, or that there is nothing of the kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// The newest successful sample is recent enough ([`is_fresh`]).
    pub has_data: bool,
    pub at_risk: AtRisk,
    /// Age of the oldest open message, ms; `None` when none is open.
    pub oldest_age_ms: Option<i64>,
    pub arrivals_per_minute: Option<f64>,
    pub depth: Option<i64>,
    /// Records in the topic that were not taken in yet, an estimate.
    pub uncollected: Option<i64>,
}

/// A sample counts as data for this many intervals (one may be slow, one may fail) ..
const FRESH_INTERVALS: i64 = 3;
/// .. but never for less than this.
const FRESH_AT_LEAST_MS: i64 = MINUTE_MS;

/// Whether the newest successful sample still says how a DLQ is. One from as far ahead does not either: an instance whose clock ran ahead
/// took it, and may be gone for just as long.
pub fn is_fresh(last_success_ms: Option<i64>, now_ms: i64, sample_interval_ms: i64) -> bool {
    let lasts_ms = sample_interval_ms.saturating_mul(FRESH_INTERVALS).max(FRESH_AT_LEAST_MS);
    last_success_ms.is_some_and(|at_ms| now_ms.abs_diff(at_ms) <= lasts_ms.unsigned_abs())
}

/// A limit from which on (or, for time left, below which) a measure is worth a look, and one from which on it is urgent.
///
/// They stand in for alert rules while none is switched on: a DLQ of usual size and pace that people look at daily is healthy or a warning.
struct Limits<T> {
    warning: T,
    critical: T,
}

const LEFT_MS: Limits<i64> = Limits { warning: DAY_MS, critical: 6 * HOUR_MS };
const OLDEST_AGE_MS: Limits<i64> = Limits { warning: HOUR_MS, critical: 7 * DAY_MS };
const ARRIVALS_PER_MINUTE: Limits<f64> = Limits { warning: 1.0, critical: 10.0 };
const DEPTH: Limits<i64> = Limits { warning: 1_000, critical: 10_000 };

impl<T: PartialOrd> Limits<T> {
    /// For a measure that is worse the higher it is.
    fn status(&self, value: Option<T>) -> Status {
        match value {
            Some(value) if value >= self.critical => Status::Critical,
            Some(value) if value >= self.warning => Status::Warning,
            _ => Status::Healthy,
        }
    }
}

fn judge_left(left_ms: Option<i64>) -> Status {
    match left_ms {
        Some(left_ms) if left_ms < LEFT_MS.critical => Status::Critical,
        Some(left_ms) if left_ms < LEFT_MS.warning => Status::Warning,
        _ => Status::Healthy,
    }
}

/// While more is unread than read, nobody knows how old and how many they are: that is not healthy, whatever has been read so far.
fn judge_unread(measures: &Measures) -> Status {
    if measures.uncollected > measures.depth { Status::Warning } else { Status::Healthy }
}

/// The measure that decided a status, with the value it was judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Because {
    /// The oldest record not taken in expires in so many ms.
    Expires { left_ms: i64 },
    /// The oldest open message is so old.
    Oldest { age_ms: i64 },
    /// New dead letters arrive at this pace.
    Arriving { per_minute: f64 },
    /// So many are open or, by estimate, not read yet.
    Deep { count: i64 },
    /// More is in the topic unread than was ever read and is open.
    Unread,
    /// A rule on this measure fires; its newest known value.
    Fires { measure: Measure, value: f64 },
}

/// How a DLQ is doing, and why. Nothing decides that it is healthy, muted or without data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    pub status: Status,
    pub because: Option<Because>,
}

/// An alert that fires.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Firing {
    pub severity: Severity,
    pub measure: Measure,
    /// The newest that is known.
    pub value: f64,
    pub silenced: bool,
}

/// The status of a DLQ by the alerts of it that fire: muted where all of them are silenced, else the worst that is not, else healthy. Without data nothing
/// but that is said, for nobody knows how it is now. Of several that are as bad the oldest, which comes first, is the reason.
pub fn judge_alerts(has_data: bool, firing: &[Firing]) -> Verdict {
    let silent = |status| Verdict { status, because: None };
    let worst = firing.iter().filter(|alert| !alert.silenced).rev().max_by_key(|alert| alert.severity);
    match worst {
        None if !firing.is_empty() => silent(Status::Muted),
        _ if !has_data => silent(Status::NoData),
        None => silent(Status::Healthy),
        Some(alert) => Verdict {
            status: match alert.severity {
                Severity::Warning => Status::Warning,
                Severity::Critical => Status::Critical,
            },
            because: Some(Because::Fires { measure: alert.measure, value: alert.value }),
        },
    }
}

/// The status of a DLQ while no alert rule is switched on: the worst that any measure says. Without data nothing else is said. Where several say the
/// same, the first in the order of [`worst_first`] is the reason.
pub fn judge(measures: &Measures) -> Verdict {
    let silent = |status| Verdict { status, because: None };
    let Some(depth) = measures.depth.filter(|_| measures.has_data) else {
        return silent(Status::NoData);
    };
    let (left_ms, age_ms, per_minute) = (measures.at_risk.left_ms(), measures.oldest_age_ms, measures.arrivals_per_minute);
    let count = depth.saturating_add(measures.uncollected.unwrap_or(0));
    let said = [
        (judge_left(left_ms), left_ms.map(|left_ms| Because::Expires { left_ms })),
        (OLDEST_AGE_MS.status(age_ms), age_ms.map(|age_ms| Because::Oldest { age_ms })),
        (ARRIVALS_PER_MINUTE.status(per_minute), per_minute.map(|per_minute| Because::Arriving { per_minute })),
        (DEPTH.status(Some(count)), Some(Because::Deep { count })),
        (judge_unread(measures), Some(Because::Unread)),
    ];
    let worst = said.into_iter().filter(|(status, _)| *status != Status::Healthy).min_by_key(|(status, _)| status.rank());
    worst.map_or(silent(Status::Healthy), |(status, because)| Verdict { status, because })
}

/// An age as the list compares it: in whole days, below one day in whole hours. To the ms no two DLQs are ever equally old, and one that is seconds
/// older would come before a burst, whatever arrives. Given in hours; it never falls as the age rises.
fn coarse_age(age_ms: i64) -> i64 {
    let unit = if age_ms >= DAY_MS { DAY_MS } else { HOUR_MS };
    age_ms / unit * (unit / HOUR_MS)
}

/// Which of two DLQs comes first in a list that begins with the worst: by status (no data first), then at risk, oldest age in whole days or hours
/// ([`coarse_age`]), arrivals, depth. Records that expire later than the warning limit are at no risk. A total order on measures; equal ones are for the
/// caller to break, by name.
pub fn worst_first((a_status, a): (Status, &Measures), (b_status, b): (Status, &Measures)) -> Ordering {
    let left = |m: &Measures| m.at_risk.left_ms().filter(|left_ms| judge_left(Some(*left_ms)) != Status::Healthy).unwrap_or(i64::MAX);
    let arrivals = |m: &Measures| m.arrivals_per_minute.unwrap_or(-1.0);
    (a_status.rank().cmp(&b_status.rank()))
        .then_with(|| left(a).cmp(&left(b)))
        .then_with(|| b.oldest_age_ms.map(coarse_age).cmp(&a.oldest_age_ms.map(coarse_age)))
        .then_with(|| arrivals(b).total_cmp(&arrivals(a)))
        .then_with(|| b.depth.cmp(&a.depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_030_000;

    const CALM: Measures = Measures {
        has_data: true,
        at_risk: AtRisk::AllStored,
        oldest_age_ms: None,
        arrivals_per_minute: Some(0.0),
        depth: Some(0),
        uncollected: Some(0),
    };

    #[test]
    fn m8_nothing_uncollected_is_all_stored_whatever_the_retention() {
        for retention in [Retention::Ms(1), Retention::Unlimited, Retention::NotPermitted, Retention::Unknown] {
            assert_eq!(at_risk(OldestUncollected::Nothing, retention, NOW), AtRisk::AllStored);
        }
    }

    #[test]
    fn at_risk_is_retention_minus_age() {
        let at = |oldest, retention| at_risk(oldest, retention, NOW);
        assert_eq!(at(OldestUncollected::At(NOW - 30), Retention::Ms(100)), AtRisk::AtRisk { left_ms: 70 });
        assert_eq!(at(OldestUncollected::At(NOW - 300), Retention::Ms(100)), AtRisk::AtRisk { left_ms: 0 });
        assert_eq!(at(OldestUncollected::At(NOW + 300), Retention::Ms(100)), AtRisk::AtRisk { left_ms: 100 });
        assert_eq!(at(OldestUncollected::At(0), Retention::Unlimited), AtRisk::Unlimited);
        assert_eq!(at(OldestUncollected::Unknown, Retention::NotPermitted), AtRisk::NotPermitted);
        assert_eq!(at(OldestUncollected::Unknown, Retention::Ms(100)), AtRisk::Unknown);
        assert_eq!(at(OldestUncollected::At(0), Retention::Unknown), AtRisk::Unknown);
        assert_eq!(
            at(OldestUncollected::Nothing.or_older(NOW - 3).or_older(NOW - 5).or_older(NOW - 4), Retention::Ms(100)),
            AtRisk::AtRisk { left_ms: 95 }
        );
        // Timestamps are the producer's: any number.
        assert_eq!(at(OldestUncollected::At(i64::MIN), Retention::Ms(i64::MAX)), AtRisk::AtRisk { left_ms: 0 });
        for said in [AtRisk::AllStored, AtRisk::AtRisk { left_ms: 7 }, AtRisk::NotPermitted, AtRisk::Unlimited, AtRisk::Unknown] {
            assert_eq!(AtRisk::from_parts(said.as_str(), said.left_ms()), said);
        }
        assert_eq!(AtRisk::from_parts("at_risk", None), AtRisk::Unknown);
    }

    #[test]
    fn m2_uncollected_is_never_negative_and_one_unknown_partition_spoils_the_sum() {
        assert_eq!(uncollected([(Some(105), Some(100)), (Some(3), Some(10))]), Some(7));
        assert_eq!(uncollected([(Some(0), Some(10)), (Some(3), None)]), None);
        assert_eq!(uncollected([(None, Some(10))]), None);
        assert_eq!(uncollected([]), None);
        assert_eq!(uncollected([(Some(0), Some(0))]), Some(0));
        assert_eq!(uncollected([(Some(i64::MIN), Some(i64::MAX)), (Some(0), Some(i64::MAX))]), Some(i64::MAX));
    }

    #[test]
    fn arrivals_count_fifteen_minutes_and_no_more() {
        let minute = |ago: i64| NOW - NOW % MINUTE_MS - ago * MINUTE_MS;
        // 15 whole minutes and half of the running one.
        let rate = arrivals_per_minute([(minute(0), 5), (minute(15), 26), (minute(16), 1_000), (minute(-1), 1_000)], NOW);
        assert!((rate - 2.0).abs() < 1e-9, "{rate}");
        assert_eq!(arrivals_per_minute([], NOW), 0.0);
        assert!(arrivals_per_minute([(0, 3)], 0).is_finite());
    }

    #[test]
    fn the_wilson_interval() {
        let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 5e-4;
        let ten = replay_success(8, 2);
        assert!(near(ten.rate, 0.8) && near(ten.low, 0.490) && near(ten.high, 0.943), "{ten:?}");
        let all = replay_success(3, 0);
        assert!(near(all.rate, 1.0) && near(all.low, 0.4385) && all.high == Some(1.0), "{all:?}");
        assert_eq!(replay_success(0, 5).low, Some(0.0));
        assert_eq!(replay_success(0, 0), ReplaySuccess { rate: None, n: 0, low: None, high: None });
    }

    /// As without rules.
    fn in_order(a: &Measures, b: &Measures) -> Ordering {
        worst_first((status(a), a), (status(b), b))
    }

    #[test]
    fn alerts_decide_where_there_are_rules() {
        let fires = |severity, silenced| Firing { severity, measure: Measure::Depth, value: 7.0, silenced };
        let (warning, critical) = (fires(Severity::Warning, false), fires(Severity::Critical, false));
        let status = |has_data, firing: &[Firing]| judge_alerts(has_data, firing).status;
        assert_eq!([status(true, &[]), status(false, &[])], [Status::Healthy, Status::NoData]);
        assert_eq!([status(true, &[warning]), status(true, &[warning, critical, warning])], [Status::Warning, Status::Critical]);
        assert_eq!(status(false, &[critical]), Status::NoData, "how it is now nobody knows");
        let silenced = fires(Severity::Critical, true);
        assert_eq!([status(true, &[silenced]), status(false, &[silenced])], [Status::Muted, Status::Muted]);
        assert_eq!(status(true, &[silenced, warning]), Status::Warning, "all of them have to be silenced");
        let older = Firing { value: 1.0, ..warning };
        assert_eq!(judge_alerts(true, &[older, warning]).because, Some(Because::Fires { measure: Measure::Depth, value: 1.0 }));
    }

    fn status(measures: &Measures) -> Status {
        judge(measures).status
    }

    #[test]
    fn the_worst_measure_is_the_reason_and_of_equals_the_first() {
        let why = |measures: Measures| judge(&measures).because;
        assert_eq!(why(CALM), None);
        assert_eq!(why(Measures { has_data: false, oldest_age_ms: Some(9 * DAY_MS), ..CALM }), None);
        let old = Measures { oldest_age_ms: Some(2 * HOUR_MS), ..CALM };
        assert_eq!(why(old), Some(Because::Oldest { age_ms: 2 * HOUR_MS }));
        assert_eq!(
            why(Measures { arrivals_per_minute: Some(42.0), ..old }),
            Some(Because::Arriving { per_minute: 42.0 }),
            "the worse of the two"
        );
        assert_eq!(
            why(Measures { arrivals_per_minute: Some(2.0), ..old }),
            Some(Because::Oldest { age_ms: 2 * HOUR_MS }),
            "the first of equals"
        );
        assert_eq!(why(Measures { at_risk: AtRisk::AtRisk { left_ms: HOUR_MS }, ..old }), Some(Because::Expires { left_ms: HOUR_MS }));
        assert_eq!(why(Measures { depth: Some(11_000), uncollected: Some(1_400), ..CALM }), Some(Because::Deep { count: 12_400 }));
        assert_eq!(why(Measures { uncollected: Some(14), ..CALM }), Some(Because::Unread));
    }

    #[test]
    fn the_worst_measure_decides_and_no_data_is_not_healthy() {
        assert_eq!(status(&CALM), Status::Healthy);
        assert_eq!(status(&Measures { has_data: false, ..CALM }), Status::NoData);
        assert_eq!(status(&Measures { depth: None, ..CALM }), Status::NoData);
        assert_eq!(status(&Measures { uncollected: Some(14), ..CALM }), Status::Warning, "a backlog nobody has read yet");
        assert_eq!(status(&Measures { depth: Some(14), uncollected: Some(14), ..CALM }), Status::Healthy);
        assert_eq!(status(&Measures { depth: Some(5_000), uncollected: Some(5_000), ..CALM }), Status::Critical);
        assert_eq!(status(&Measures { oldest_age_ms: Some(HOUR_MS - 1), ..CALM }), Status::Healthy);
        assert_eq!(status(&Measures { oldest_age_ms: Some(HOUR_MS), ..CALM }), Status::Warning);
        assert_eq!(status(&Measures { oldest_age_ms: Some(HOUR_MS), arrivals_per_minute: Some(42.0), ..CALM }), Status::Critical);
        assert_eq!(status(&Measures { at_risk: AtRisk::AtRisk { left_ms: 0 }, ..CALM }), Status::Critical);
        assert_eq!(status(&Measures { at_risk: AtRisk::AtRisk { left_ms: 7 * HOUR_MS }, ..CALM }), Status::Warning);
        assert_eq!(status(&Measures { at_risk: AtRisk::AtRisk { left_ms: 6 * DAY_MS }, ..CALM }), Status::Healthy);
        assert_eq!(status(&Measures { at_risk: AtRisk::NotPermitted, arrivals_per_minute: None, ..CALM }), Status::Healthy);
    }

    #[test]
    fn the_list_begins_with_the_worst() {
        let ordered = [
            Measures { has_data: false, ..CALM },
            Measures { at_risk: AtRisk::AtRisk { left_ms: HOUR_MS }, ..CALM },
            Measures { at_risk: AtRisk::AtRisk { left_ms: 2 * HOUR_MS }, oldest_age_ms: Some(9 * DAY_MS), ..CALM },
            Measures { oldest_age_ms: Some(9 * DAY_MS), ..CALM },
            Measures { oldest_age_ms: Some(HOUR_MS), arrivals_per_minute: Some(42.0), ..CALM },
            Measures { oldest_age_ms: Some(2 * DAY_MS), ..CALM },
            Measures { oldest_age_ms: Some(5), at_risk: AtRisk::AtRisk { left_ms: 6 * DAY_MS }, ..CALM },
            Measures { depth: Some(3), ..CALM },
            CALM,
            Measures { arrivals_per_minute: None, ..CALM },
        ];
        let mut shuffled = ordered;
        shuffled.reverse();
        shuffled.sort_by(in_order);
        assert_eq!(shuffled, ordered);
    }

    #[test]
    fn who_is_a_little_older_does_not_outrank_a_burst() {
        let aged = |age_ms| Measures { oldest_age_ms: Some(age_ms), ..CALM };
        let burst = |age_ms| Measures { arrivals_per_minute: Some(9.0), ..aged(age_ms) };
        for (age_ms, as_old_ms) in [(2 * HOUR_MS, 3 * HOUR_MS - 1), (2 * DAY_MS, 3 * DAY_MS - 1)] {
            assert_eq!(in_order(&burst(age_ms), &aged(as_old_ms)), Ordering::Less, "{age_ms} ms");
            assert_eq!(in_order(&burst(age_ms), &aged(as_old_ms + 1)), Ordering::Greater, "a whole unit older than {age_ms} ms");
            let deep = Measures { depth: Some(9), ..aged(age_ms) };
            assert_eq!(in_order(&deep, &aged(as_old_ms)), Ordering::Less, "then depth");
        }
        assert_eq!(in_order(&aged(1), &burst(0)), Ordering::Greater, "minutes do not matter");
        assert_eq!(in_order(&aged(0), &CALM), Ordering::Less, "something open comes before nothing");
        assert_eq!(in_order(&aged(DAY_MS), &burst(DAY_MS - 1)), Ordering::Less, "a day is more than 23 hours");
    }

    #[test]
    fn a_sample_grows_old() {
        assert!(is_fresh(Some(NOW - 60_000), NOW, 15_000));
        assert!(!is_fresh(Some(NOW - 60_001), NOW, 15_000));
        assert!(is_fresh(Some(NOW - 90_000), NOW, 30_000));
        assert!(!is_fresh(None, NOW, 15_000));
        assert!(is_fresh(Some(NOW + 60_000), NOW, 15_000));
        assert!(!is_fresh(Some(NOW + 60_001), NOW, 15_000), "not from an hour ahead either");
        assert!(!is_fresh(Some(i64::MIN), i64::MAX, i64::MAX - 1));
    }

    fn any_measures() -> impl Strategy<Value = Measures> {
        let left = proptest::option::of(0..3 * DAY_MS);
        let age = proptest::option::of(0..20 * DAY_MS);
        let rate = proptest::option::of(prop_oneof![Just(f64::NAN), 0.0..50.0f64]);
        (any::<bool>(), left, age, rate, proptest::option::of(0..20_000i64)).prop_map(|(has_data, left, age, rate, depth)| Measures {
            has_data,
            at_risk: left.map_or(AtRisk::AllStored, |left_ms| AtRisk::AtRisk { left_ms }),
            oldest_age_ms: age,
            arrivals_per_minute: rate,
            depth,
            uncollected: depth.map(|depth| depth % 7),
        })
    }

    proptest! {
        #[test]
        fn worst_first_is_an_order(a in any_measures(), b in any_measures(), c in any_measures()) {
            prop_assert_eq!(in_order(&a, &b), in_order(&b, &a).reverse());
            if in_order(&a, &b).is_le() && in_order(&b, &c).is_le() {
                prop_assert!(in_order(&a, &c).is_le());
            }
        }
    }
}
