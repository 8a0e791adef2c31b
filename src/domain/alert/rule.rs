//! What a rule says, and which rules there are from the start.

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::Severity;
use super::measure::{Measure, Unit, Worse};
use crate::domain::baseline::ALARMING;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// While an alert fires it is told again this often, unless a rule says otherwise.
pub const REPEAT_MS: i64 = 4 * HOUR_MS;
const SHORTEST_REPEAT_MS: i64 = 5 * MINUTE_MS;
const LONGEST_MS: i64 = 30 * DAY_MS;
const LONGEST_NAME: usize = 100;

/// Which DLQs a rule is about: those that fit all that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Name of a cluster.
    pub cluster: Option<String>,
    /// A regular expression that the topic matches, as `pattern` in the configuration.
    pub topics: Option<String>,
    pub owner: Option<String>,
}

/// A rule as it is stored and as a form gives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    pub name: String,
    pub measure: Measure,
    pub scope: Scope,
    /// It fires from here on, in the measure's unit.
    pub threshold: f64,
    /// A warning becomes critical from here on.
    pub critical_at: Option<f64>,
    /// Once it fires, it does so until the measure is on the good side of this.
    pub clear: f64,
    /// How long the measure has to stay beyond the threshold, ms.
    pub for_ms: i64,
    pub severity: Severity,
    /// ms
    pub repeat_ms: i64,
    /// Names of channels; empty: all that there are.
    pub channels: Vec<String>,
    /// Only of the oldest age: messages dead-lettered before this (ms) do not count. The line under what was there before anybody looked.
    pub ignore_before_ms: Option<i64>,
}

/// A rule that makes sense.
#[derive(Debug, Clone)]
pub struct Rule {
    terms: Terms,
    topics: Option<Regex>,
}

impl Rule {
    /// Checks the terms.
    ///
    /// # Errors
    /// All that is wrong, a sentence each that says what would be right.
    pub fn new(terms: Terms) -> Result<Rule, Vec<String>> {
        let mut wrong = faults(&terms);
        let topics = terms.scope.topics.as_deref().map(|pattern| {
            let why = |error: &regex::Error| match error {
                regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
                error => error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
            };
            Regex::new(pattern).map_err(|error| format!("the pattern {pattern:?} is not a regular expression: {}", why(&error)))
        });
        match topics.transpose() {
            Ok(topics) if wrong.is_empty() => Ok(Rule { terms, topics }),
            Ok(_) => Err(wrong),
            Err(fault) => {
                wrong.push(fault);
                Err(wrong)
            }
        }
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether it is about this DLQ.
    pub fn covers(&self, cluster: &str, topic: &str, owner: Option<&str>) -> bool {
        let scope = &self.terms.scope;
        scope.cluster.as_deref().is_none_or(|wanted| wanted == cluster)
            && scope.owner.as_deref().is_none_or(|wanted| owner == Some(wanted))
            && self.topics.as_ref().is_none_or(|pattern| pattern.is_match(topic))
    }

    /// At or beyond the threshold.
    pub(super) fn breaches(&self, value: f64) -> bool {
        self.terms.measure.reaches(value, self.terms.threshold)
    }

    /// Where it would be critical.
    pub(super) fn is_critical(&self, value: f64) -> bool {
        let rises = self.terms.critical_at.is_some_and(|limit| self.terms.measure.reaches(value, limit));
        self.terms.severity == Severity::Critical && self.breaches(value) || rises
    }

    /// On the good side of `clear`. With `clear` at the threshold that is wherever it does not breach.
    pub(super) fn clears(&self, value: f64) -> bool {
        match self.terms.measure.worse() {
            Worse::Higher => value < self.terms.clear,
            Worse::Lower => value > self.terms.clear,
        }
    }
}

fn faults(terms: &Terms) -> Vec<String> {
    let Terms { measure, threshold, critical_at, clear, for_ms, severity, repeat_ms, .. } = terms;
    let unit = measure.unit();
    let mut wrong = Vec::new();
    let mut refuse = |refused: bool, why: &dyn Fn() -> String| {
        if refused {
            wrong.push(why());
        }
    };
    let fits = |value: f64| value.is_finite() && value >= 0.0 && (unit != Unit::Percent || value <= 100.0);
    let range = if unit == Unit::Percent { "from 0 to 100" } else { "0 or more" };
    let name = terms.name.trim();
    refuse(name.is_empty() || name.chars().count() > LONGEST_NAME, &|| format!("a rule has a name of 1 to {LONGEST_NAME} characters"));
    for (what, value) in [("threshold", Some(*threshold)), ("clear", Some(*clear)), ("critical at", *critical_at)] {
        refuse(value.is_some_and(|value| !fits(value)), &|| format!("{what} is a number, {range}"));
    }
    // Limits that are no numbers cannot be compared.
    let sane = [Some(*threshold), Some(*clear), *critical_at].into_iter().flatten().all(fits);
    let is_count = unit == Unit::Count && measure.worse() == Worse::Higher;
    refuse(sane && is_count && *threshold <= 0.0, &|| {
        format!("{} is always 0 or more: a threshold of 0 would fire for ever; use 1 or more", measure.title())
    });
    refuse(sane && *measure == Measure::UnusualArrivals && *threshold < ALARMING, &|| {
        format!("unusual arrivals begin at {ALARMING} (one in a million): use a threshold of {ALARMING} or more")
    });
    let words = |value: f64| unit.words(value);
    match measure.worse() {
        Worse::Higher => refuse(sane && clear > threshold, &|| {
            let title = measure.title();
            format!("{title} is worse the higher it is: clear ({}) must not be above the threshold ({})", words(*clear), words(*threshold))
        }),
        Worse::Lower => refuse(sane && clear < threshold, &|| {
            let title = measure.title();
            format!("{title} is worse the lower it is: clear ({}) must not be below the threshold ({})", words(*clear), words(*threshold))
        }),
    }
    if let Some(critical) = critical_at {
        refuse(*severity == Severity::Critical, &|| {
            "the rule is critical from its threshold on: leave \"critical at\" out, or make it a warning".to_owned()
        });
        refuse(sane && (critical == threshold || !measure.reaches(*critical, *threshold)), &|| {
            let side = if measure.worse() == Worse::Higher { "above" } else { "below" };
            format!("critical at ({}) must be {side} the threshold ({})", words(*critical), words(*threshold))
        });
    }
    refuse(!(0..=LONGEST_MS).contains(for_ms), &|| "\"for\" is between 0 and 30 days".to_owned());
    refuse(!(SHORTEST_REPEAT_MS..=LONGEST_MS).contains(repeat_ms), &|| "repeat is between 5 minutes and 30 days".to_owned());
    let blank = |text: &Option<String>| text.as_deref().is_some_and(|text| text.trim().is_empty());
    let scope = &terms.scope;
    refuse(blank(&scope.cluster) || blank(&scope.topics) || blank(&scope.owner), &|| {
        "a cluster, pattern or owner is left out or has a name: an empty one would match nothing, or everything".to_owned()
    });
    let mut channels: Vec<&str> = terms.channels.iter().map(String::as_str).collect();
    channels.sort_unstable();
    refuse(channels.windows(2).any(|pair| pair[0] == pair[1]), &|| "a channel is named twice".to_owned());
    refuse(channels.iter().any(|channel| channel.trim().is_empty()), &|| "a channel has a name; name none to tell all".to_owned());
    refuse(terms.ignore_before_ms.is_some() && *measure != Measure::OldestAge, &|| {
        format!("only the oldest age can leave out what is older than a line; {} cannot", measure.title())
    });
    wrong
}

/// The rules of a new installation. None of them fires for what was already there: depth has no rule until somebody suggests one from history
/// ([`super::suggest`]), the oldest age counts from `started_ms` on, unusual arrivals go by dead-lettered time, and what may be lost must stay so
/// for longer than the first reading takes.
pub fn built_in(started_ms: i64) -> Vec<Terms> {
    use Measure::*;
    use Severity::*;
    let rule = |name: &str, measure, severity, threshold: f64, clear: f64, for_ms| Terms {
        name: name.to_owned(),
        measure,
        scope: Scope::default(),
        threshold,
        critical_at: None,
        clear,
        for_ms,
        severity,
        repeat_ms: REPEAT_MS,
        channels: Vec::new(),
        ignore_before_ms: None,
    };
    let hours = |hours: i64| (hours * HOUR_MS / SECOND_MS) as f64;
    vec![
        // Five times a usual 30 an hour is beyond 10^-15 after a quarter of an hour.
        Terms { critical_at: Some(15.0), ..rule("Unusual arrivals", UnusualArrivals, Warning, ALARMING, ALARMING, 0) },
        // A topic that is read for the first time has records about to expire at its start; half an hour later they are taken in.
        Terms { critical_at: Some(hours(6)), ..rule("Records may be lost", AtRisk, Warning, hours(24), hours(30), 30 * MINUTE_MS) },
        // Past a weekend.
        Terms {
            ignore_before_ms: Some(started_ms),
            repeat_ms: DAY_MS,
            ..rule("Nobody took them", OldestAge, Warning, hours(72), hours(48), 0)
        },
        rule("Intake stalled", IntakeStalled, Critical, 300.0, 60.0, 0),
        rule("No data", NoData, Warning, 900.0, 300.0, 0),
        rule("Records lost before they were read", IntakeGap, Critical, 1.0, 1.0, 0),
        Terms { repeat_ms: DAY_MS, ..rule("Topic recreated", TopicRecreated, Warning, 1.0, 1.0, 0) },
        Terms { repeat_ms: DAY_MS, ..rule("Failure came back after its fix", GroupRegressed, Warning, 1.0, 1.0, 0) },
        rule("Replay halted", ReplayHalted, Warning, 1.0, 1.0, 0),
        rule("Emergency replay not reviewed", EmergencyUnreviewed, Critical, 1.0, 1.0, 0),
        rule("Approval waiting", ApprovalWaiting, Warning, hours(1), hours(1), 0),
        Terms { repeat_ms: DAY_MS, ..rule("Follow-ups open for a day", FollowUpOpen, Warning, 1.0, 1.0, DAY_MS) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth() -> Terms {
        Terms {
            name: "Deep".into(),
            measure: Measure::Depth,
            scope: Scope::default(),
            threshold: 100.0,
            critical_at: Some(1_000.0),
            clear: 90.0,
            for_ms: 0,
            severity: Severity::Warning,
            repeat_ms: REPEAT_MS,
            channels: vec!["slack".into()],
            ignore_before_ms: None,
        }
    }

    fn refused(change: impl Fn(&mut Terms)) -> String {
        let mut terms = depth();
        change(&mut terms);
        Rule::new(terms).expect_err("refused").join("; ")
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_sentence() {
        assert!(Rule::new(depth()).is_ok());
        assert_eq!(refused(|t| t.clear = 110.0), "depth is worse the higher it is: clear (110) must not be above the threshold (100)");
        let at_risk = refused(|t| (t.measure, t.threshold, t.critical_at, t.clear) = (Measure::AtRisk, 7_200.0, Some(3_600.0), 3_600.0));
        assert_eq!(at_risk, "time left before loss is worse the lower it is: clear (1h) must not be below the threshold (2h)");
        assert_eq!(refused(|t| t.threshold = f64::NAN), "threshold is a number, 0 or more");
        assert_eq!(refused(|t| (t.threshold, t.clear) = (0.0, 0.0)).split(':').next(), Some("depth is always 0 or more"));
        assert_eq!(refused(|t| t.critical_at = Some(100.0)), "critical at (100) must be above the threshold (100)");
        assert!(refused(|t| t.severity = Severity::Critical).starts_with("the rule is critical from its threshold on"));
        assert!(refused(|t| (t.measure, t.threshold) = (Measure::ReplaySuccess, 120.0)).contains("from 0 to 100"));
        assert!(refused(|t| (t.measure, t.threshold, t.clear) = (Measure::UnusualArrivals, 3.0, 3.0)).contains("begin at 6"));
        assert_eq!(refused(|t| t.for_ms = -1), "\"for\" is between 0 and 30 days");
        assert_eq!(refused(|t| t.repeat_ms = 0), "repeat is between 5 minutes and 30 days");
        assert_eq!(refused(|t| t.channels.push("slack".into())), "a channel is named twice");
        assert_eq!(refused(|t| t.name = "  ".into()), "a rule has a name of 1 to 100 characters");
        assert!(refused(|t| t.scope.topics = Some("pay(".into())).starts_with("the pattern \"pay(\" is not a regular expression: "));
        assert!(refused(|t| t.scope.owner = Some(String::new())).starts_with("a cluster, pattern or owner"));
        assert!(refused(|t| t.ignore_before_ms = Some(0)).starts_with("only the oldest age"));
        assert_eq!(refused(|t| (t.name, t.repeat_ms) = (String::new(), 0)).matches(';').count(), 1, "all at once");
    }

    #[test]
    fn a_scope_covers_what_fits_all_of_it() {
        let mut terms = depth();
        terms.scope = Scope { cluster: None, topics: Some(r"^payments\.".into()), owner: Some("payments".into()) };
        let rule = Rule::new(terms).unwrap();
        assert!(rule.covers("main", "payments.wallet.DLQ", Some("payments")));
        assert!(!rule.covers("main", "payments.wallet.DLQ", Some("fraud")) && !rule.covers("main", "payments.wallet.DLQ", None));
        assert!(!rule.covers("main", "orders.payments.DLQ", Some("payments")));
    }

    #[test]
    fn the_built_in_rules_make_sense_and_survive_the_store() {
        let names: std::collections::BTreeSet<String> = built_in(7).into_iter().map(|terms| terms.name).collect();
        assert_eq!(names.len(), built_in(7).len());
        for terms in built_in(7) {
            let stored: Terms = serde_json::from_str(&serde_json::to_string(&terms).unwrap()).unwrap();
            assert_eq!(stored, terms);
            Rule::new(terms).unwrap();
        }
    }
}
