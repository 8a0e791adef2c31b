//! The life of an alert: pending, firing, resolved, with acknowledged and silenced beside it.
//!
//! ```text
//! quiet    -> pending    beyond the threshold
//! pending  -> firing     beyond it for as long as the rule says
//! pending  -> quiet      no longer beyond it
//! firing   -> resolved   on the good side of `clear`, or the rule or the DLQ is gone
//! resolved -> pending    beyond the threshold again; resolved as before if nothing comes of it
//! ```
//!
//! Told is: that it fires, that it became worse, each event more, every `repeat`, and that it is resolved. What was told is part of the state, so a restart
//! repeats nothing; and each notification has a number, so that storing state and notifications together twice is found out.

use serde::{Deserialize, Serialize};

use super::Severity;
use super::measure::Observation;
use super::rule::Rule;

/// Between two looks at most so much counts as seen, ms: what lies between looks that are further apart is not known.
const SEEN_MS: i64 = 2 * 60_000;
/// A silence lasts at most this long, ms.
pub const LONGEST_SILENCE_MS: i64 = 90 * 86_400_000;

/// One alert. Its [`super::Key`] is the caller's. This is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    pub phase: Phase,
    /// Nothing is told before this, ms.
    pub silenced_until_ms: Option<i64>,
    /// How many notifications there were.
    pub number: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    #[default]
    Quiet,
    Pending(Pending),
    Firing(Firing),
    Resolved(Resolved),
}

impl Phase {
    /// The word in the database.
    pub fn as_str(&self) -> &'static str {
        match self {
            Phase::Quiet => "quiet",
            Phase::Pending(_) => "pending",
            Phase::Firing(_) => "firing",
            Phase::Resolved(_) => "resolved",
        }
    }
}

/// Beyond the threshold, not yet for long enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Since then, ms; what could not be seen is added.
    pub since_ms: i64,
    /// Beyond the critical limit since then, as `since_ms`.
    critical_since_ms: Option<i64>,
    /// The last look, ms.
    seen_ms: i64,
    /// The alert before, which it is again if nothing comes of this.
    before: Option<Box<Resolved>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Firing {
    /// Beyond the threshold since then, ms.
    pub since_ms: i64,
    /// ms
    pub fired_at_ms: i64,
    /// Rises, and falls only with a new alert.
    pub severity: Severity,
    /// The newest value that is known.
    pub value: f64,
    /// The worst one.
    pub peak: f64,
    /// Without data since then, ms.
    pub no_data_since_ms: Option<i64>,
    pub acknowledged: Option<Acknowledged>,
    critical_since_ms: Option<i64>,
    seen_ms: i64,
    /// How many messages of the DLQ had been replayed when it fired.
    replayed_before: Option<i64>,
    told: Option<ToldBefore>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    pub at_ms: i64,
    pub severity: Severity,
    pub end: End,
    /// Told that it fired, but not yet that it ended.
    untold: Option<ToldBefore>,
}

/// Who looks after it. Not told again until it gets worse or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub by: String,
    /// ms
    pub at_ms: i64,
}

/// What receivers were told last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct ToldBefore {
    at_ms: i64,
    severity: Severity,
    peak: f64,
}

/// How an alert ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub why: Why,
    /// From the moment it was beyond the threshold, ms.
    pub lasted_ms: i64,
    pub peak: f64,
    /// Messages of the DLQ that were replayed meanwhile; `None`: not known.
    pub replayed: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    Cleared,
    /// The rule was changed, switched off or removed, or the DLQ is gone: nobody looks any more.
    NotWatched,
}

/// What is seen at one look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    pub observed: Observation,
    /// How many messages of the DLQ were ever replayed; `None`: not known.
    pub replayed: Option<i64>,
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notify {
    /// Counts up for each alert: with the alert's key it identifies the notification.
    pub number: u32,
    pub at_ms: i64,
    pub severity: Severity,
    pub news: News,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    Fires {
        value: f64,
        since_ms: i64,
    },
    /// It was a warning and is critical now.
    Worse {
        value: f64,
        since_ms: i64,
    },
    /// Another event of the same kind.
    More {
        value: f64,
        since_ms: i64,
    },
    /// It goes on: a repetition, or a silence ended. `value` is the last that was known; `no_data`: that is some time ago.
    StillFires {
        value: f64,
        since_ms: i64,
        no_data: bool,
    },
    Resolved(End),
}

impl News {
    /// The word in metrics and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            News::Fires { .. } => "fires",
            News::Worse { .. } => "worse",
            News::More { .. } => "more",
            News::StillFires { .. } => "still_fires",
            News::Resolved(_) => "resolved",
        }
    }
}

/// What cannot be done to an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this alert does not fire: there is nothing to acknowledge")]
    NotFiring,
    #[error("a silence ends in the future, at most 90 days from now")]
    SilenceEnd,
}

/// One look at what an alert is about. Returns what it is from now on and what is to be told; both are to be stored in one transaction.
pub fn step(rule: &Rule, alert: Alert, look: Look, now_ms: i64) -> (Alert, Vec<Notify>) {
    let Alert { phase, silenced_until_ms, number } = alert;
    let phase = match (phase, look.observed.value(), look.observed) {
        (Phase::Firing(firing), Some(value), _) if rule.clears(value) => firing.resolved(Why::Cleared, look.replayed, now_ms),
        (Phase::Firing(firing), None, Observation::Nothing) => firing.resolved(Why::Cleared, look.replayed, now_ms),
        (Phase::Firing(firing), Some(value), _) => Phase::Firing(firing.seen(rule, value, now_ms)),
        (Phase::Firing(firing), None, _) => Phase::Firing(firing.unseen(now_ms)),
        (Phase::Pending(pending), Some(value), _) if rule.breaches(value) => pending.seen(rule, value, look.replayed, now_ms),
        (Phase::Pending(pending), None, Observation::NoData | Observation::Value(_)) => Phase::Pending(pending.unseen(now_ms)),
        (Phase::Pending(pending), ..) => pending.over(),
        (phase @ (Phase::Quiet | Phase::Resolved(_)), Some(value), _) if rule.breaches(value) => {
            let before = match phase {
                Phase::Resolved(resolved) => Some(Box::new(resolved)),
                _ => None,
            };
            Pending { since_ms: now_ms, critical_since_ms: None, seen_ms: now_ms, before }.seen(rule, value, look.replayed, now_ms)
        }
        (phase @ (Phase::Quiet | Phase::Resolved(_)), ..) => phase,
    };
    tell(Alert { phase, silenced_until_ms, number }, Some(rule), now_ms)
}

/// Ends an alert that nobody looks at any more: its rule was changed, switched off or removed, or its DLQ is gone. As [`step`].
pub fn end(alert: Alert, replayed: Option<i64>, now_ms: i64) -> (Alert, Vec<Notify>) {
    let phase = match alert.phase {
        Phase::Firing(firing) => firing.resolved(Why::NotWatched, replayed, now_ms),
        Phase::Pending(pending) => pending.over(),
        phase => phase,
    };
    tell(Alert { phase, ..alert }, None, now_ms)
}

impl Alert {
    /// Somebody looks after it.
    ///
    /// # Errors
    /// [`Refused::NotFiring`]
    pub fn acknowledge(mut self, by: &str, now_ms: i64) -> Result<Alert, Refused> {
        let Phase::Firing(firing) = &mut self.phase else { return Err(Refused::NotFiring) };
        firing.acknowledged = Some(Acknowledged { by: by.to_owned(), at_ms: now_ms });
        Ok(self)
    }

    /// Tells nothing until then; `None` ends a silence.
    ///
    /// # Errors
    /// [`Refused::SilenceEnd`]
    pub fn silence(mut self, until_ms: Option<i64>, now_ms: i64) -> Result<Alert, Refused> {
        if until_ms.is_some_and(|until| until <= now_ms || until.saturating_sub(now_ms) > LONGEST_SILENCE_MS) {
            return Err(Refused::SilenceEnd);
        }
        // One that is ended by hand ends now, so that what was kept back is told at the next look.
        self.silenced_until_ms = until_ms.or(self.silenced_until_ms.map(|until| until.min(now_ms)));
        Ok(self)
    }

    /// Whether nothing but the last look and its value changed. That may be stored a little later: [`SEEN_MS`] is longer than a minute.
    pub fn is_as_before_but_for_the_look(&self, before: &Alert) -> bool {
        let without = |alert: &Alert| {
            let mut alert = alert.clone();
            match &mut alert.phase {
                Phase::Pending(pending) => pending.seen_ms = 0,
                Phase::Firing(firing) => (firing.seen_ms, firing.value) = (0, 0.0),
                Phase::Quiet | Phase::Resolved(_) => {}
            }
            alert
        };
        without(self) == without(before)
    }

    /// While it fires: how.
    pub fn firing(&self) -> Option<&Firing> {
        match &self.phase {
            Phase::Firing(firing) => Some(firing),
            _ => None,
        }
    }

    /// Whether nothing is told now.
    pub fn is_silenced(&self, now_ms: i64) -> bool {
        self.silenced_until_ms.is_some_and(|until| now_ms < until)
    }
}

/// Moves a start by what could not be seen since the last look.
fn add_unseen(since_ms: &mut i64, seen_ms: i64, counts_ms: i64, now_ms: i64) {
    *since_ms = since_ms.saturating_add((now_ms.saturating_sub(seen_ms)).saturating_sub(counts_ms).max(0)).min(now_ms);
}

impl Pending {
    fn seen(mut self, rule: &Rule, value: f64, replayed: Option<i64>, now_ms: i64) -> Phase {
        add_unseen(&mut self.since_ms, self.seen_ms, SEEN_MS, now_ms);
        critical(rule, value, &mut self.critical_since_ms, self.seen_ms, now_ms);
        self.seen_ms = now_ms;
        let lasted = |since_ms: i64| now_ms.saturating_sub(since_ms) >= rule.terms().for_ms;
        if !lasted(self.since_ms) {
            return Phase::Pending(self);
        }
        let severity = if self.critical_since_ms.is_some_and(lasted) { Severity::Critical } else { rule.terms().severity };
        Phase::Firing(Firing {
            since_ms: self.since_ms,
            fired_at_ms: now_ms,
            severity,
            value,
            peak: value,
            no_data_since_ms: None,
            acknowledged: None,
            critical_since_ms: self.critical_since_ms,
            seen_ms: now_ms,
            replayed_before: replayed,
            // Whoever was not told of the last one's end takes this for the same.
            told: self.before.and_then(|before| before.untold),
        })
    }

    fn unseen(mut self, now_ms: i64) -> Pending {
        add_unseen(&mut self.since_ms, self.seen_ms, 0, now_ms);
        if let Some(since_ms) = &mut self.critical_since_ms {
            add_unseen(since_ms, self.seen_ms, 0, now_ms);
        }
        self.seen_ms = self.seen_ms.max(now_ms);
        self
    }

    /// It came to nothing.
    fn over(self) -> Phase {
        self.before.map_or(Phase::Quiet, |before| Phase::Resolved(*before))
    }
}

/// Since when it is beyond the critical limit.
fn critical(rule: &Rule, value: f64, since_ms: &mut Option<i64>, seen_ms: i64, now_ms: i64) {
    match since_ms {
        _ if !rule.is_critical(value) => *since_ms = None,
        Some(since_ms) => add_unseen(since_ms, seen_ms, SEEN_MS, now_ms),
        None => *since_ms = Some(now_ms),
    }
}

impl Firing {
    fn seen(mut self, rule: &Rule, value: f64, now_ms: i64) -> Firing {
        let terms = rule.terms();
        critical(rule, value, &mut self.critical_since_ms, self.seen_ms, now_ms);
        (self.seen_ms, self.no_data_since_ms, self.value) = (now_ms, None, value);
        let worst = terms.measure.worst(self.peak, value);
        let rises = self.critical_since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= terms.for_ms);
        let more = terms.measure.counts_events() && worst != self.peak;
        if more || rises && self.severity < Severity::Critical {
            // Whoever acknowledged it did so without knowing this.
            self.acknowledged = None;
        }
        if rises {
            self.severity = Severity::Critical;
        }
        self.peak = worst;
        self
    }

    fn unseen(mut self, now_ms: i64) -> Firing {
        if let Some(since_ms) = &mut self.critical_since_ms {
            add_unseen(since_ms, self.seen_ms, 0, now_ms);
        }
        self.seen_ms = self.seen_ms.max(now_ms);
        self.no_data_since_ms.get_or_insert(now_ms);
        self
    }

    fn resolved(self, why: Why, replayed: Option<i64>, now_ms: i64) -> Phase {
        let replayed = replayed.zip(self.replayed_before).map(|(now, before)| now.saturating_sub(before).max(0));
        let end = End { why, lasted_ms: now_ms.saturating_sub(self.since_ms).max(0), peak: self.peak, replayed };
        Phase::Resolved(Resolved { at_ms: now_ms, severity: self.severity, end, untold: self.told })
    }

    /// What receivers do not know yet.
    fn news(&self, rule: &Rule, silence_ended: bool, now_ms: i64) -> Option<News> {
        let Firing { value, since_ms, .. } = *self;
        let still = News::StillFires { value, since_ms, no_data: self.no_data_since_ms.is_some() };
        let Some(told) = self.told else {
            return self.acknowledged.is_none().then_some(News::Fires { value, since_ms });
        };
        if self.severity > told.severity {
            return Some(News::Worse { value, since_ms });
        }
        if rule.terms().measure.counts_events() && self.peak > told.peak {
            return Some(News::More { value, since_ms });
        }
        let due = silence_ended || now_ms.saturating_sub(told.at_ms) >= rule.terms().repeat_ms;
        (due && self.acknowledged.is_none()).then_some(still)
    }
}

impl Resolved {
    fn tell(&mut self) -> Option<News> {
        self.untold.take().map(|_| News::Resolved(self.end))
    }
}

fn tell(mut alert: Alert, rule: Option<&Rule>, now_ms: i64) -> (Alert, Vec<Notify>) {
    if alert.is_silenced(now_ms) {
        return (alert, Vec::new());
    }
    let silence_ended = alert.silenced_until_ms.take().is_some();
    let (severity, news) = match (&mut alert.phase, rule) {
        (Phase::Firing(firing), Some(rule)) => {
            let news = firing.news(rule, silence_ended, now_ms);
            if news.is_some() {
                firing.told = Some(ToldBefore { at_ms: now_ms, severity: firing.severity, peak: firing.peak });
            }
            (firing.severity, news)
        }
        (Phase::Resolved(resolved), _) => (resolved.severity, resolved.tell()),
        (Phase::Pending(Pending { before: Some(resolved), .. }), _) => (resolved.severity, resolved.tell()),
        _ => return (alert, Vec::new()),
    };
    let Some(news) = news else { return (alert, Vec::new()) };
    alert.number = alert.number.saturating_add(1);
    let notify = Notify { number: alert.number, at_ms: now_ms, severity, news };
    (alert, vec![notify])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::measure::Measure;
    use super::super::rule::{REPEAT_MS, Scope, Terms};
    use super::*;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;

    fn rule(change: impl Fn(&mut Terms)) -> Rule {
        let mut terms = Terms {
            name: "Deep".into(),
            measure: Measure::Depth,
            scope: Scope::default(),
            threshold: 100.0,
            critical_at: Some(1_000.0),
            clear: 90.0,
            for_ms: 0,
            severity: Severity::Warning,
            repeat_ms: REPEAT_MS,
            channels: Vec::new(),
            ignore_before_ms: None,
        };
        change(&mut terms);
        Rule::new(terms).unwrap()
    }

    /// An alert that is looked at, and what it told.
    struct Story {
        rule: Rule,
        alert: Alert,
        now: i64,
        replayed: Option<i64>,
        told: Vec<Notify>,
    }

    impl Story {
        fn of(rule: Rule) -> Story {
            Story { rule, alert: Alert::default(), now: 1_800_000_000_000, replayed: Some(0), told: Vec::new() }
        }

        fn look(&mut self, observed: Observation) -> Vec<News> {
            let look = Look { observed, replayed: self.replayed };
            let (alert, told) = step(&self.rule, self.alert.clone(), look, self.now);
            self.alert = alert;
            self.told.extend(told.iter().cloned());
            self.now += 15_000;
            told.into_iter().map(|told| told.news).collect()
        }

        fn sees(&mut self, value: f64) -> Vec<News> {
            self.look(Observation::Value(value))
        }

        /// Everything in memory is gone.
        fn restart(&mut self) {
            self.alert = serde_json::from_str(&serde_json::to_string(&self.alert).unwrap()).unwrap();
        }

        fn is_firing(&self) -> bool {
            matches!(self.alert.phase, Phase::Firing(_))
        }
    }

    #[test]
    fn a6_hysteresis() {
        let mut story = Story::of(rule(|_| ()));
        for value in [99.0, 101.0, 99.0, 101.0, 90.0, 100.0] {
            story.sees(value);
        }
        assert_eq!(story.told.len(), 1);
        assert!(matches!(story.told[0].news, News::Fires { value: 101.0, .. }) && story.is_firing());
        let Some(News::Resolved(end)) = story.sees(89.9).pop() else { panic!("resolved below 90") };
        assert_eq!((end.peak, end.lasted_ms, end.why), (101.0, 75_000, Why::Cleared));
    }

    #[test]
    fn a5_a_restart_repeats_nothing_and_what_happened_meanwhile_is_new() {
        let (mut one, mut other) = (Story::of(rule(|_| ())), Story::of(rule(|_| ())));
        assert_eq!((one.sees(500.0).len(), other.sees(5.0).len()), (1, 0));
        // Down for half an hour; the other one breached.
        one.restart();
        other.restart();
        (one.now, other.now) = (one.now + HOUR / 2, other.now + HOUR / 2);
        assert_eq!((one.sees(500.0), one.sees(510.0)), (vec![], vec![]));
        assert!(matches!(other.sees(400.0)[..], [News::Fires { .. }]));
        one.restart();
        assert_eq!(one.sees(500.0), vec![]);
    }

    #[test]
    fn m3_without_data_it_goes_on_firing() {
        let mut story = Story::of(rule(|_| ()));
        story.sees(500.0);
        for _ in 0..1_000 {
            story.look(Observation::NoData);
        }
        assert!(story.is_firing());
        assert!(matches!(story.told[..], [_, Notify { news: News::StillFires { no_data: true, value: 500.0, .. }, .. }]));
        assert!(matches!(story.look(Observation::Value(f64::NAN))[..], []));
        // And it begins none.
        let mut quiet = Story::of(rule(|_| ()));
        quiet.look(Observation::NoData);
        assert_eq!(quiet.alert, Alert::default());
    }

    #[test]
    fn it_takes_as_long_as_the_rule_says() {
        let mut story = Story::of(rule(|terms| terms.for_ms = 5 * MINUTE));
        for _ in 0..20 {
            assert_eq!(story.sees(500.0), vec![]);
        }
        assert!(matches!(story.sees(500.0)[..], [News::Fires { .. }]), "after five minutes");

        // Once below, it begins anew; what nobody saw does not count.
        let mut story = Story::of(rule(|terms| terms.for_ms = 5 * MINUTE));
        (0..19).for_each(|_| drop(story.sees(500.0)));
        story.sees(95.0);
        assert_eq!(story.alert.phase, Phase::Quiet);
        (0..11).for_each(|_| drop(story.sees(500.0)));
        (0..100).for_each(|_| drop(story.look(Observation::NoData)));
        story.now += 24 * HOUR;
        assert_eq!(story.sees(500.0), vec![]);
        assert!(!story.is_firing());
    }

    #[test]
    fn it_tells_when_it_gets_worse_and_every_four_hours() {
        let mut story = Story::of(rule(|_| ()));
        story.sees(500.0);
        assert!(matches!(story.sees(1_000.0)[..], [News::Worse { .. }]));
        assert_eq!(story.told[1].severity, Severity::Critical);
        assert_eq!((story.sees(500.0), story.sees(2_000.0)), (vec![], vec![]), "it does not become less, nor worse again");
        story.now += REPEAT_MS;
        assert!(matches!(story.sees(500.0)[..], [News::StillFires { no_data: false, .. }]));
        assert_eq!(story.sees(500.0), vec![]);
        let numbers: Vec<u32> = story.told.iter().map(|told| told.number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        // With "for", worse has to last, too.
        let mut slow = Story::of(rule(|terms| terms.for_ms = MINUTE));
        (0..5).for_each(|_| drop(slow.sees(500.0)));
        assert_eq!((slow.sees(5_000.0), slow.sees(500.0), slow.sees(5_000.0)), (vec![], vec![], vec![]));
        (0..3).for_each(|_| assert_eq!(slow.sees(5_000.0), vec![]));
        assert!(matches!(slow.sees(5_000.0)[..], [News::Worse { .. }]));
    }

    #[test]
    fn acknowledged_it_is_not_repeated_until_it_gets_worse() {
        let mut story = Story::of(rule(|_| ()));
        assert_eq!(story.alert.clone().acknowledge("ana", 0), Err(Refused::NotFiring));
        story.sees(500.0);
        story.alert = story.alert.clone().acknowledge("ana", story.now).unwrap();
        story.now += 3 * REPEAT_MS;
        assert_eq!(story.sees(500.0), vec![]);
        assert!(matches!(story.sees(1_500.0)[..], [News::Worse { .. }]));
        story.now += REPEAT_MS;
        assert!(matches!(story.sees(1_500.0)[..], [News::StillFires { .. }]), "what was acknowledged was a warning");
        story.alert = story.alert.clone().acknowledge("ana", story.now).unwrap();
        assert!(matches!(story.sees(1.0)[..], [News::Resolved(_)]), "the end is told");
    }

    #[test]
    fn silenced_it_tells_afterwards_what_still_holds() {
        let mut story = Story::of(rule(|_| ()));
        let until = story.now + HOUR;
        assert_eq!(story.alert.clone().silence(Some(story.now), story.now), Err(Refused::SilenceEnd));
        story.alert = story.alert.clone().silence(Some(until), story.now).unwrap();
        while story.now < until {
            assert_eq!(story.sees(500.0), vec![]);
        }
        assert!(matches!(story.sees(500.0)[..], [News::Fires { .. }]));

        // Told before the silence: told again after it.
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        assert_eq!(story.sees(5_000.0), vec![]);
        story.now += HOUR;
        assert!(matches!(story.sees(5_000.0)[..], [News::Worse { .. }]));
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        story.sees(500.0);
        story.now += HOUR;
        assert!(matches!(story.sees(500.0)[..], [News::StillFires { .. }]));

        // It ended meanwhile: that is told, late and once.
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        assert_eq!((story.sees(1.0), story.sees(1.0)), (vec![], vec![]));
        story.now += HOUR;
        assert!(matches!(story.sees(1.0)[..], [News::Resolved(_)]));
        assert_eq!(story.sees(1.0), vec![]);

        // It came and went while nobody was to be told.
        let told = story.told.len();
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        story.sees(500.0);
        story.sees(1.0);
        story.now += HOUR;
        story.sees(1.0);
        assert_eq!(story.told.len(), told);

        // Ended by hand.
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        story.sees(500.0);
        story.alert = story.alert.clone().silence(None, story.now).unwrap();
        assert!(matches!(story.sees(500.0)[..], [News::Fires { .. }]));
    }

    #[test]
    fn ended_and_back_in_one_silence_it_never_ended_for_those_who_are_told() {
        let mut story = Story::of(rule(|_| ()));
        story.sees(500.0);
        story.alert = story.alert.clone().silence(Some(story.now + HOUR), story.now).unwrap();
        story.sees(1.0);
        story.sees(300.0);
        story.now += HOUR;
        assert!(matches!(story.sees(300.0)[..], [News::StillFires { value: 300.0, .. }]));
        assert!(matches!(story.sees(1.0)[..], [News::Resolved(_)]));
    }

    #[test]
    fn each_event_is_news() {
        let mut story = Story::of(rule(|terms| {
            (terms.measure, terms.threshold, terms.clear, terms.critical_at) = (Measure::ReplayHalted, 1.0, 1.0, None);
        }));
        assert!(matches!(story.sees(1.0)[..], [News::Fires { .. }]));
        story.alert = story.alert.clone().acknowledge("ana", story.now).unwrap();
        assert!(matches!(story.sees(2.0)[..], [News::More { value: 2.0, .. }]));
        assert_eq!((story.sees(1.0), story.sees(2.0)), (vec![], vec![]));
        assert!(matches!(story.look(Observation::Nothing)[..], [News::Resolved(_)]));
    }

    #[test]
    fn lower_is_worse() {
        let mut story = Story::of(rule(|terms| {
            (terms.measure, terms.threshold, terms.clear, terms.critical_at) = (Measure::AtRisk, 86_400.0, 100_000.0, Some(21_600.0));
        }));
        assert_eq!((story.sees(90_000.0), story.look(Observation::Nothing)), (vec![], vec![]));
        assert!(matches!(story.sees(86_400.0)[..], [News::Fires { .. }]));
        assert!(matches!(story.sees(3_600.0)[..], [News::Worse { .. }]));
        assert_eq!(story.sees(100_000.0), vec![]);
        let Some(News::Resolved(end)) = story.look(Observation::Nothing).pop() else { panic!("all stored") };
        assert_eq!(end.peak, 3_600.0);
    }

    #[test]
    fn the_end_says_what_was_replayed() {
        let mut story = Story::of(rule(|_| ()));
        story.replayed = Some(20);
        story.sees(12_431.0);
        story.replayed = Some(12_000);
        let Some(News::Resolved(ended)) = story.sees(3.0).pop() else { panic!("resolved") };
        assert_eq!((ended.peak, ended.replayed), (12_431.0, Some(11_980)));
        // Its rule is gone.
        story.sees(200.0);
        let (alert, told) = end_of(&story);
        assert!(matches!(told[..], [Notify { news: News::Resolved(End { why: Why::NotWatched, .. }), .. }]));
        assert!(end(alert, None, story.now).1.is_empty());
    }

    fn end_of(story: &Story) -> (Alert, Vec<Notify>) {
        end(story.alert.clone(), None, story.now)
    }

    #[derive(Debug, Clone)]
    enum Act {
        Look(Observation),
        Acknowledge,
        Silence(Option<i64>),
        Wait(i64),
        End,
    }

    fn any_act() -> impl Strategy<Value = Act> {
        prop_oneof![
            8 => prop_oneof![Just(50.0), Just(89.0), Just(95.0), Just(100.0), Just(1_000.0), Just(f64::NAN), (0..2_000).prop_map(f64::from)]
                .prop_map(|value| Act::Look(Observation::Value(value))),
            1 => Just(Act::Look(Observation::Nothing)),
            2 => Just(Act::Look(Observation::NoData)),
            1 => Just(Act::Acknowledge),
            1 => proptest::option::of(1..2 * HOUR).prop_map(Act::Silence),
            2 => (-HOUR..6 * HOUR).prop_map(Act::Wait),
            1 => Just(Act::End),
        ]
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        (proptest::option::of(Just(500.0)), prop_oneof![Just(0), Just(MINUTE)], any::<bool>()).prop_map(|(critical_at, for_ms, events)| {
            rule(|terms| {
                (terms.critical_at, terms.for_ms) = (critical_at, for_ms);
                terms.measure = if events { Measure::ReplayHalted } else { Measure::Depth };
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn whatever_happens(rule in any_rule(), acts in proptest::collection::vec(any_act(), 1..120)) {
            let mut story = Story::of(rule);
            // What a receiver believes: it fires, with this severity.
            let mut believed: Option<Severity> = None;
            for act in acts {
                let before = story.alert.clone();
                let (now, told_before) = (story.now, story.told.len());
                let no_data = matches!(act, Act::Look(observed) if observed.value().is_none() && observed != Observation::Nothing);
                let looked = matches!(act, Act::Look(_) | Act::End);
                match act {
                    Act::Look(observed) => drop(story.look(observed)),
                    Act::Acknowledge => story.alert = before.clone().acknowledge("ana", now).unwrap_or(before.clone()),
                    Act::Silence(lasts) => story.alert = before.clone().silence(lasts.map(|ms| now + ms), now).unwrap(),
                    Act::Wait(ms) => story.now += ms,
                    Act::End => {
                        let (alert, told) = end_of(&story);
                        story.alert = alert;
                        story.told.extend(told);
                    }
                }
                // What is stored is all there is.
                let stored = story.alert.clone();
                story.restart();
                prop_assert_eq!(&stored, &story.alert);

                // The diagram.
                let arrow = (before.phase.as_str(), story.alert.phase.as_str());
                let drawn = [
                    ("quiet", "pending"), ("quiet", "firing"), ("pending", "firing"), ("pending", "quiet"), ("pending", "resolved"),
                    ("firing", "resolved"), ("resolved", "pending"), ("resolved", "firing"),
                ];
                prop_assert!(arrow.0 == arrow.1 || looked && drawn.contains(&arrow), "{arrow:?}");
                prop_assert!(!no_data || arrow.0 == arrow.1, "no data moves nothing: {arrow:?}");

                // What is told follows from what was told.
                let told = &story.told[told_before..];
                prop_assert!(told.len() <= 1 && (told.is_empty() || !before.is_silenced(now)));
                for notify in told {
                    prop_assert_eq!(notify.number as usize, told_before + 1);
                    match (&notify.news, believed) {
                        (News::Fires { .. }, None) => believed = Some(notify.severity),
                        (News::Worse { .. }, Some(severity)) => {
                            prop_assert!(notify.severity > severity);
                            believed = Some(notify.severity);
                        }
                        (News::More { .. } | News::StillFires { .. }, Some(_)) => believed = Some(notify.severity),
                        (News::Resolved(_), Some(_)) => believed = None,
                        wrong => prop_assert!(false, "{wrong:?}"),
                    }
                }
                // Nothing is lost: whoever is told knows how it is, unless it is silenced or somebody acknowledged it before it was told.
                if looked && !story.alert.is_silenced(now) {
                    match &story.alert.phase {
                        Phase::Firing(firing) if firing.acknowledged.is_none() => prop_assert_eq!(believed, Some(firing.severity)),
                        Phase::Firing(_) => {}
                        _ => prop_assert_eq!(believed, None),
                    }
                }
            }
        }
    }
}
