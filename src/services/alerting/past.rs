//! What a rule would have done, and which threshold would fit, by what is stored of the past.

use super::{Alerting, AlertingError, arrivals};
use crate::domain::alert::back_test::back_test_words;
use crate::domain::alert::{Fired, Measure, Observation, Rule, Suggestion, Terms, back_test, observe, suggest};
use crate::domain::baseline::{History, Span, anomaly_values};
use crate::domain::health::{self, AtRisk, Figures};
use crate::store::dlqs::Dlq;
use crate::store::samples::Sample;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// More DLQs are not tested at once.
const MOST_TESTED: usize = 20;
/// What a back-test goes by.
const TESTED_MS: i64 = 7 * DAY_MS;
/// What a suggestion goes by.
const SUGGESTED_MS: i64 = 28 * DAY_MS;

/// What a rule would have done.
#[derive(Debug, Clone, PartialEq)]
pub struct BackTest {
    pub from_ms: i64,
    pub to_ms: i64,
    /// Those for which it would have fired, most often first.
    pub dlqs: Vec<TestedDlq>,
    /// DLQs that were tested, and those that the rule covers and that were not, since there are many.
    pub tested: usize,
    pub left_out: usize,
    /// "would have fired 4 times in the last 7 days". None: nothing was measured in that time.
    pub words: Option<String>,
}

/// When a rule would have fired for one DLQ.
#[derive(Debug, Clone, PartialEq)]
pub struct TestedDlq {
    pub cluster: String,
    pub topic: String,
    pub fired: Vec<Fired>,
}

/// A threshold that fits all DLQs that were looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggested {
    pub suggestion: Suggestion,
    /// The DLQ that it goes by: the one that needs it furthest on the bad side.
    pub cluster: String,
    pub topic: String,
    /// DLQs that were looked at.
    pub dlqs: usize,
}

impl Alerting {
    /// What a rule of these terms would have done in the last 7 days.
    ///
    /// # Errors
    /// Invalid: the terms, or a measure of which no history is kept.
    pub async fn back_test(&self, terms: Terms) -> Result<BackTest, AlertingError> {
        let rule = Rule::new(terms).map_err(AlertingError::Invalid)?;
        has_history(rule.terms().measure)?;
        let to_ms = self.clock.now_ms();
        let covered = self.covered(&rule).await?;
        let mut test = BackTest {
            from_ms: to_ms - TESTED_MS,
            to_ms,
            dlqs: Vec::new(),
            tested: covered.len().min(MOST_TESTED),
            left_out: covered.len().saturating_sub(MOST_TESTED),
            words: None,
        };
        let mut first_ms = to_ms;
        for dlq in covered.iter().take(MOST_TESTED) {
            let samples = self.history(dlq, rule.terms(), Span { from_ms: test.from_ms, to_ms }).await?;
            first_ms = first_ms.min(samples.first().map_or(to_ms, |(at_ms, _)| *at_ms));
            let fired = back_test(&rule, samples);
            if !fired.is_empty() {
                test.dlqs.push(TestedDlq { cluster: dlq.cluster.clone(), topic: dlq.topic.clone(), fired });
            }
        }
        test.dlqs.sort_by_key(|dlq| std::cmp::Reverse(dlq.fired.len()));
        let all: Vec<Fired> = test.dlqs.iter().flat_map(|dlq| dlq.fired.iter().copied()).collect();
        test.words = back_test_words(&all, first_ms, to_ms);
        Ok(test)
    }

    /// A threshold for the measure and scope of these terms, from the last 28 days.
    ///
    /// # Errors
    /// Invalid: a scope that is none, a measure of which no history is kept, or too little was seen of any DLQ.
    pub async fn suggest(&self, terms: Terms) -> Result<Suggested, AlertingError> {
        has_history(terms.measure)?;
        // The threshold is what is asked for; with any that makes sense the scope can be read.
        let rule = Rule::new(terms).map_err(AlertingError::Invalid)?;
        let to_ms = self.clock.now_ms();
        let (mut best, mut refused, mut dlqs): (Option<Suggested>, Option<String>, usize) = (None, None, 0);
        for dlq in self.covered(&rule).await?.iter().take(MOST_TESTED) {
            let samples = self.history(dlq, rule.terms(), Span { from_ms: to_ms - SUGGESTED_MS, to_ms }).await?;
            dlqs += 1;
            match suggest(rule.terms(), &samples) {
                Ok(suggestion) => {
                    let measure = rule.terms().measure;
                    let further =
                        |best: &Suggested| measure.worst(best.suggestion.threshold, suggestion.threshold) != best.suggestion.threshold;
                    if best.as_ref().is_none_or(further) {
                        best = Some(Suggested { suggestion, cluster: dlq.cluster.clone(), topic: dlq.topic.clone(), dlqs: 0 });
                    }
                }
                Err(why) => refused = Some(why),
            }
        }
        let why = || refused.unwrap_or_else(|| "it is about no DLQ that is known now".to_owned());
        best.map(|best| Suggested { dlqs, ..best }).ok_or_else(|| AlertingError::Invalid(vec![why()]))
    }

    /// What a rule would have seen of a DLQ, in order of time.
    async fn history(&self, dlq: &Dlq, terms: &Terms, span: Span) -> Result<Vec<(i64, Observation)>, AlertingError> {
        let measure = terms.measure;
        if matches!(measure, Measure::UnusualArrivals | Measure::ArrivalRate) {
            return self.arrivals_history(dlq, measure, span).await;
        }
        let samples = self.store.samples_by(dlq.id, span.from_ms, span.to_ms, MINUTE_MS).await?;
        let mut good_ms = None;
        let mut seen = |sample: Sample| {
            let observed = if measure == Measure::NoData {
                if sample.error.is_none() {
                    good_ms = Some(sample.at_ms);
                }
                // What was before the span is not known.
                good_ms.map(|good_ms| Observation::Value((sample.at_ms - good_ms) as f64 / 1_000.0))
            } else {
                observe(measure, &figures(&sample), terms.ignore_before_ms, sample.at_ms)
            };
            (sample.at_ms, observed.unwrap_or(Observation::NoData))
        };
        Ok(samples.into_iter().map(&mut seen).collect())
    }

    async fn arrivals_history(&self, dlq: &Dlq, measure: Measure, span: Span) -> Result<Vec<(i64, Observation)>, AlertingError> {
        let from_ms = if measure == Measure::UnusualArrivals {
            span.to_ms - arrivals::REMEMBERED_MS
        } else {
            span.from_ms - health::ARRIVALS_WINDOW_MS
        };
        let stored = self.store.arrivals(Some(dlq.id), from_ms, span.to_ms, MINUTE_MS).await?;
        let minutes: Vec<(i64, i64)> = stored.into_iter().map(|(_, start_ms, count)| (start_ms, count)).collect();
        let known_from_ms = arrivals::known_from_ms(dlq, &minutes).max(from_ms);
        let whole = move |ms: i64| ms.div_euclid(MINUTE_MS) * MINUTE_MS;
        if measure == Measure::ArrivalRate {
            return Ok(rates(&minutes, Span { from_ms: whole(span.from_ms.max(known_from_ms)), to_ms: span.to_ms }));
        }
        let unusual = move || {
            let lived = Span { from_ms: whole(known_from_ms), to_ms: whole(span.to_ms) };
            let values = anomaly_values(History::new(known_from_ms), &minutes, lived);
            let observed = |value: Option<f64>| value.map_or(Observation::NoData, Observation::Value);
            values.into_iter().filter(|(at_ms, _)| *at_ms >= span.from_ms).map(|(at_ms, value)| (at_ms, observed(value))).collect()
        };
        Ok(tokio::task::spawn_blocking(unusual).await?)
    }
}

/// The arrival rate at the end of each minute.
fn rates(minutes: &[(i64, i64)], span: Span) -> Vec<(i64, Observation)> {
    let (mut first, mut seen) = (0, Vec::new());
    let mut at_ms = span.from_ms + MINUTE_MS - 1;
    while at_ms < span.to_ms {
        first += minutes[first..].iter().take_while(|(start_ms, _)| *start_ms < health::arrivals_from_ms(at_ms)).count();
        let window = minutes[first..].iter().copied().take_while(|(start_ms, _)| *start_ms <= at_ms);
        seen.push((at_ms, Observation::Value(health::arrivals_per_minute(window, at_ms))));
        at_ms += MINUTE_MS;
    }
    seen
}

fn figures(sample: &Sample) -> Figures {
    Figures {
        has_data: sample.error.is_none(),
        depth: sample.depth,
        oldest_open_ms: sample.oldest_open_ms,
        uncollected: sample.uncollected,
        at_risk: AtRisk::from_parts(&sample.at_risk_state, sample.at_risk_left_ms),
        arrivals_per_minute: None,
        follow_up_open: sample.follow_up_open,
        confirmed: sample.confirmed,
        returned: sample.returned,
    }
}

fn has_history(measure: Measure) -> Result<(), AlertingError> {
    use Measure::*;
    match measure {
        UnusualArrivals | ArrivalRate | Depth | Uncollected | OldestAge | AtRisk | ReplaySuccess | FollowUpOpen | NoData => Ok(()),
        IntakeStalled | IntakeGap | TopicRecreated | ApprovalWaiting | GroupRegressed | ReplayHalted | EmergencyUnreviewed => {
            let why = format!("{} is not sampled: what it was in the past is not known, so it cannot be tested on it", measure.title());
            Err(AlertingError::Invalid(vec![why]))
        }
    }
}
