//! What a rule can be about.

use serde::{Deserialize, Serialize};

/// What is measured of one DLQ. Durations are in seconds, shares in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// How surprising the arrivals are while an anomaly is open, else 0: `-log10 P` ([`crate::domain::baseline::Watch::value`]).
    UnusualArrivals,
    /// New dead letters a minute over 15 minutes, by dead-lettered time.
    ArrivalRate,
    /// Open messages.
    Depth,
    /// Records in the topic that are not taken in, an estimate.
    Uncollected,
    /// Age of the oldest open message by dead-lettered time; [`Observation::Nothing`] when none is open.
    OldestAge,
    /// Time left until the oldest record that is not taken in expires; [`Observation::Nothing`] when all are stored or kept for ever.
    AtRisk,
    /// Confirmed of all replays whose end is known; [`Observation::Nothing`] with fewer than [`Measure::FEWEST_REPLAYS`].
    ReplaySuccess,
    /// Archived messages whose follow-up is open.
    FollowUpOpen,
    /// Time since the last successful look from outside. Always known.
    NoData,
    /// Time for which there was something to read and no position moved; [`Observation::Nothing`] while all is read.
    IntakeStalled,
    /// Gaps found in the last 24 hours: records that Kafka deleted before we read them.
    IntakeGap,
    /// How often the topic was deleted and created again in the last 24 hours.
    TopicRecreated,
    /// How long the oldest proposed replay waits for an approver; [`Observation::Nothing`] when none waits.
    ApprovalWaiting,
    /// Failure groups called fixed to which messages came since.
    GroupRegressed,
    /// Replays that a guard halted and nobody has ended.
    ReplayHalted,
    /// Emergency replays that a second person has not reviewed within 24 hours.
    EmergencyUnreviewed,
}

/// Which way a measure gets worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worse {
    Higher,
    Lower,
}

/// What a number of a measure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Count,
    PerMinute,
    Seconds,
    Percent,
    /// Powers of ten.
    Decades,
}

/// One look at a measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Observation {
    Value(f64),
    /// Looked, and there is nothing it could be the measure of: as good as it gets.
    Nothing,
    /// Not known.
    NoData,
}

impl Observation {
    /// The number; one that is none is not known.
    pub fn value(self) -> Option<f64> {
        match self {
            Observation::Value(value) if value.is_finite() => Some(value),
            _ => None,
        }
    }
}

impl Measure {
    pub const ALL: [Measure; 16] = [
        Measure::UnusualArrivals,
        Measure::ArrivalRate,
        Measure::Depth,
        Measure::Uncollected,
        Measure::OldestAge,
        Measure::AtRisk,
        Measure::ReplaySuccess,
        Measure::FollowUpOpen,
        Measure::NoData,
        Measure::IntakeStalled,
        Measure::IntakeGap,
        Measure::TopicRecreated,
        Measure::ApprovalWaiting,
        Measure::GroupRegressed,
        Measure::ReplayHalted,
        Measure::EmergencyUnreviewed,
    ];

    /// Replays whose end is known, below which their success says nothing.
    pub const FEWEST_REPLAYS: i64 = 20;

    /// The word in the database, the API and the form.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The reverse of [`Measure::as_str`].
    pub fn parse(word: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|measure| measure.as_str() == word)
    }

    /// What it is called on pages.
    pub fn title(self) -> &'static str {
        self.row().1
    }

    pub fn unit(self) -> Unit {
        self.row().2
    }

    pub fn worse(self) -> Worse {
        match self {
            Measure::AtRisk | Measure::ReplaySuccess => Worse::Lower,
            _ => Worse::Higher,
        }
    }

    /// Whether its number counts single events, each of them news of its own.
    pub fn counts_events(self) -> bool {
        use Measure::*;
        matches!(self, IntakeGap | TopicRecreated | GroupRegressed | ReplayHalted | EmergencyUnreviewed)
    }

    /// The worse of two numbers.
    pub fn worst(self, a: f64, b: f64) -> f64 {
        match self.worse() {
            Worse::Higher => a.max(b),
            Worse::Lower => a.min(b),
        }
    }

    /// Whether a number is at a limit or beyond it on the bad side.
    pub fn reaches(self, value: f64, limit: f64) -> bool {
        match self.worse() {
            Worse::Higher => value >= limit,
            Worse::Lower => value <= limit,
        }
    }

    fn row(self) -> (&'static str, &'static str, Unit) {
        match self {
            Measure::UnusualArrivals => ("unusual_arrivals", "unusual arrivals", Unit::Decades),
            Measure::ArrivalRate => ("arrival_rate", "arrival rate", Unit::PerMinute),
            Measure::Depth => ("depth", "depth", Unit::Count),
            Measure::Uncollected => ("uncollected", "not read yet", Unit::Count),
            Measure::OldestAge => ("oldest_age", "oldest age", Unit::Seconds),
            Measure::AtRisk => ("at_risk", "time left before loss", Unit::Seconds),
            Measure::ReplaySuccess => ("replay_success", "replay success", Unit::Percent),
            Measure::FollowUpOpen => ("follow_up_open", "follow-ups open", Unit::Count),
            Measure::NoData => ("no_data", "no data", Unit::Seconds),
            Measure::IntakeStalled => ("intake_stalled", "intake stalled", Unit::Seconds),
            Measure::IntakeGap => ("intake_gap", "records lost before they were read", Unit::Count),
            Measure::TopicRecreated => ("topic_recreated", "topic recreated", Unit::Count),
            Measure::ApprovalWaiting => ("approval_waiting", "approval waiting", Unit::Seconds),
            Measure::GroupRegressed => ("group_regressed", "failure came back after its fix", Unit::Count),
            Measure::ReplayHalted => ("replay_halted", "replay halted", Unit::Count),
            Measure::EmergencyUnreviewed => ("emergency_unreviewed", "emergency replay not reviewed", Unit::Count),
        }
    }
}

impl Unit {
    /// A number of this unit in words: "1,240", "4.2/min", "3h 12m", "92.5%".
    pub fn words(self, value: f64) -> String {
        match self {
            Unit::Count => grouped(value.round()),
            Unit::PerMinute => format!("{}/min", (value * 10.0).round() / 10.0),
            Unit::Percent => format!("{}%", (value * 10.0).round() / 10.0),
            Unit::Decades => format!("1 in 10^{}", value.round()),
            Unit::Seconds => {
                let seconds = value.max(0.0) as u64;
                match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
                    (0, 0, 0, s) => format!("{s}s"),
                    (0, 0, m, 0) => format!("{m}m"),
                    (0, 0, m, s) => format!("{m}m {s}s"),
                    (0, h, 0, _) => format!("{h}h"),
                    (0, h, m, _) => format!("{h}h {m}m"),
                    (d, 0, ..) => format!("{d}d"),
                    (d, h, ..) => format!("{d}d {h}h"),
                }
            }
        }
    }
}

/// Thousands set apart.
fn grouped(value: f64) -> String {
    let digits = format!("{}", value.abs());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_to_their_measure() {
        for measure in Measure::ALL {
            assert_eq!(Measure::parse(measure.as_str()), Some(measure));
            assert_eq!(serde_json::to_value(measure).unwrap(), measure.as_str());
        }
        assert_eq!(Measure::parse("lag"), None);
    }

    #[test]
    fn numbers_in_words() {
        let words = [
            Unit::Count.words(1_234_567.4),
            Unit::Count.words(999.0),
            Unit::PerMinute.words(4.26),
            Unit::Percent.words(97.25),
            Unit::Seconds.words(11_520.0),
            Unit::Seconds.words(90_000.0),
            Unit::Seconds.words(-3.0),
            Unit::Seconds.words(259_200.0),
        ];
        assert_eq!(words, ["1,234,567", "999", "4.3/min", "97.3%", "3h 12m", "1d 1h", "0s", "3d"]);
    }
}
