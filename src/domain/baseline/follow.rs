//! One DLQ, followed: its history, what follows from it, its last minutes, and whether they are unusual.

use super::history::History;
use super::model::Baseline;
use super::watch::{Recent, Turn, Watch};
use super::{MINUTE_MS, Span};

/// All that is known about the arrivals of one DLQ.
///
/// Stored are [`Follow::history`], [`Follow::watch`], and of each anomaly its span and whether it was accepted; [`Follow::load`] takes them back. The rest
/// is made from them and from the store's arrivals by the minute.
#[derive(Debug, Clone)]
pub struct Follow {
    history: History,
    baseline: Baseline,
    recent: Recent,
    watch: Watch,
    /// Spans that do not teach: anomalies that are over and were not accepted, and what the caller knows (intake was down).
    left_out: Vec<Span>,
}

impl Follow {
    /// A DLQ whose arrivals are all known since then, ms.
    pub fn new(known_from_ms: i64) -> Follow {
        Follow::load(History::new(known_from_ms), Watch::default(), Vec::new())
    }

    /// After a restart. `left_out`: what must not teach, of the last 28 days.
    pub fn load(history: History, watch: Watch, left_out: Vec<Span>) -> Follow {
        Follow { baseline: Baseline::of(&history), history, recent: Recent::default(), watch, left_out }
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Takes the newest counts (as [`Recent::put`]: all of the last two hours at first, then those that may have changed) and looks.
    pub fn look(&mut self, minutes: impl IntoIterator<Item = (i64, i64)>, now_ms: i64) -> Option<Turn> {
        self.recent.put(minutes, now_ms);
        let (watch, turn) = self.watch.look(&self.baseline, &self.recent, now_ms);
        self.watch = watch;
        if let Some(Turn::Closed(span)) = turn {
            self.left_out.push(span);
        }
        turn
    }

    /// Leaves a span out of what is taught from now on.
    pub fn leave_out(&mut self, span: Span) {
        self.left_out.push(span);
    }

    /// As [`History::teach`]: what is due, with the arrivals of that span.
    pub fn teach(&mut self, due: Span, buckets: &[(i64, i64)]) {
        let open = self.watch.open.map(|open| Span { from_ms: open.from_ms, to_ms: i64::MAX });
        let left_out: Vec<Span> = self.left_out.iter().copied().chain(open).collect();
        self.history.teach(due, buckets, &left_out);
        self.baseline = Baseline::of(&self.history);
        let remembered_from_ms = self.history.remembered_from_ms();
        self.left_out.retain(|span| span.to_ms > remembered_from_ms);
    }

    /// Lives through a past in which nobody looked, minute by minute, so that its incidents do not teach: for the records that a topic holds when it is
    /// first seen. `minutes`: (start in ms, count) in order of time; `each` is told the follow, the time and what changed. About 10 ms for four weeks.
    pub fn live(&mut self, minutes: &[(i64, i64)], span: Span, mut each: impl FnMut(&Follow, i64, Option<Turn>)) {
        let (mut at_ms, mut next, mut kept) = (span.from_ms, 0, 0);
        while at_ms < span.to_ms {
            at_ms += MINUTE_MS;
            let from = next;
            next += minutes[next..].iter().take_while(|(start_ms, _)| *start_ms < at_ms).count();
            let turn = self.look(minutes[from..next].iter().copied(), at_ms - 1);
            if let Some(due) = self.history.due(at_ms, at_ms) {
                kept += minutes[kept..next].iter().take_while(|(start_ms, _)| *start_ms < due.from_ms).count();
                self.teach(due, &minutes[kept..next]);
            }
            each(self, at_ms, turn);
        }
    }

    /// Accepts the open anomaly as the new level: what was before it began is forgotten, and what came since is due to be taught. Returns whether one was
    /// open.
    pub fn accept_level(&mut self, now_ms: i64) -> bool {
        let Some(open) = self.watch.open else { return false };
        self.watch = self.watch.accept(now_ms);
        self.history.start_over(open.from_ms);
        self.left_out.retain(|span| span.to_ms > open.from_ms);
        self.baseline = Baseline::of(&self.history);
        true
    }

    /// Accepts an anomaly that is over as something that is usual here: it teaches after all. `buckets`: the arrivals of [`History::hours_of`] its span.
    pub fn accept_past(&mut self, span: Span, buckets: &[(i64, i64)]) {
        self.left_out.retain(|left_out| *left_out != span);
        let left_out = std::mem::take(&mut self.left_out);
        self.history.teach_again(span, buckets, &left_out);
        self.left_out = left_out;
        self.baseline = Baseline::of(&self.history);
    }
}

/// What a rule on unusual arrivals would have seen each minute of `span` ([`Watch::value`]), `None` where nothing could be told: from the history as it
/// was when the span began (empty: `History::new` at the first arrival that is known) and the arrivals by minute, in order of time.
pub fn anomaly_values(history: History, minutes: &[(i64, i64)], span: Span) -> Vec<(i64, Option<f64>)> {
    let mut follow = Follow::load(history, Watch::default(), Vec::new());
    let mut values = Vec::new();
    follow.live(minutes, span, |follow, at_ms, _| values.push((at_ms, follow.baseline.tests().then(|| follow.watch.value()))));
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::model::State;
    use super::super::{HOUR_MS, MIN_COUNT, Window};
    use super::*;

    /// A Monday, 00:00 UTC.
    const START: i64 = 1_798_416_000_000;
    const DAY_MS: i64 = 24 * HOUR_MS;

    /// A DLQ that lives minute by minute.
    struct Story {
        follow: Follow,
        now: i64,
        minutes: Vec<(i64, i64)>,
        turns: Vec<(i64, Turn)>,
    }

    impl Story {
        fn new() -> Story {
            Story { follow: Follow::new(START), now: START, minutes: Vec::new(), turns: Vec::new() }
        }

        /// So long, with so many an hour, evenly.
        fn goes_on(&mut self, lasts_ms: i64, per_hour: i64) {
            for minute in 0..lasts_ms / MINUTE_MS {
                self.minute((minute + 1) * per_hour / 60 - minute * per_hour / 60);
            }
        }

        fn minute(&mut self, count: i64) {
            self.minutes.push((self.now, count));
            self.now += MINUTE_MS;
            if let Some(turn) = self.follow.look([(self.now - MINUTE_MS, count)], self.now - 1) {
                self.turns.push((self.now, turn));
            }
            self.teach();
        }

        fn teach(&mut self) {
            if let Some(due) = self.follow.history().due(self.now, self.now) {
                let of_due: Vec<_> = self.minutes.iter().copied().filter(|(at, _)| (due.from_ms..due.to_ms).contains(at)).collect();
                self.follow.teach(due, &of_due);
            }
        }

        fn opened(&self) -> Vec<i64> {
            self.turns.iter().filter(|(_, turn)| matches!(turn, Turn::Opened(_))).map(|(at, _)| *at).collect()
        }
    }

    #[test]
    fn m5_from_nothing_there_is_no_ratio() {
        let mut story = Story::new();
        story.goes_on(7 * DAY_MS, 0);
        assert_eq!(story.follow.baseline().state(), State::Zero);
        assert_eq!((story.turns.len(), story.follow.watch().value()), (0, 0.0));
        (0..4).for_each(|_| story.minute(1));
        assert_eq!(story.turns.len(), 0, "four are not many");
        story.minute(1);
        let [(_, Turn::Opened(anomaly))] = story.turns[..] else { panic!("{:?}", story.turns) };
        assert_eq!((anomaly.worst.observed, anomaly.worst.ratio), (MIN_COUNT, None));
        let json = serde_json::to_string(story.follow.watch()).unwrap();
        assert!(!json.contains("NaN") && !json.contains("nfinity") && json.contains(r#""ratio":null"#), "{json}");
    }

    #[test]
    fn m6_an_incident_does_not_teach() {
        let mut story = Story::new();
        story.goes_on(14 * HOUR_MS, 10);
        assert_eq!(story.turns, vec![]);
        story.goes_on(14 * HOUR_MS, 500);
        story.goes_on(HOUR_MS, 500);
        assert_eq!(story.opened().len(), 1);
        assert!(story.follow.watch().open.is_some(), "still anomalous");
        assert!((story.follow.baseline().expected(story.now, story.now + HOUR_MS) - 10.0).abs() < 1.0);
        // It ends, and may come again.
        story.goes_on(DAY_MS, 10);
        assert!(story.follow.watch().open.is_none());
        story.goes_on(HOUR_MS, 500);
        assert_eq!(story.opened().len(), 2);
    }

    #[test]
    fn m7_a_new_level_is_accepted() {
        for days in [8, 30] {
            let mut story = Story::new();
            story.goes_on(days * DAY_MS, 10);
            let step = story.now;
            story.goes_on(4 * HOUR_MS, 30);
            let opened = story.opened();
            assert!(matches!(opened[..], [at] if at - step <= 2 * HOUR_MS), "after {days} days: {:?}", story.turns);
            assert!(story.follow.accept_level(story.now));
            story.teach();
            assert!(matches!(story.follow.baseline().state(), State::Learning { .. }));
            story.goes_on(10 * DAY_MS, 30);
            assert_eq!(story.opened().len(), 1, "none after");
            assert!((story.follow.baseline().expected(story.now, story.now + HOUR_MS) - 30.0).abs() < 1.0);
            assert!(!story.follow.accept_level(story.now));
        }
    }

    #[test]
    fn what_is_over_may_teach_after_all() {
        let mut story = Story::new();
        story.goes_on(8 * DAY_MS, 10);
        let burst = |story: &mut Story| {
            story.minute(60);
            story.goes_on(DAY_MS, 10);
        };
        burst(&mut story);
        burst(&mut story);
        assert_eq!(story.opened().len(), 2, "what was not accepted does not teach");
        let closed: Vec<Span> =
            story.turns.iter().filter_map(|(_, turn)| if let Turn::Closed(span) = turn { Some(*span) } else { None }).collect();
        assert_eq!(closed.len(), 2);
        for span in closed {
            let of_span: Vec<_> = story
                .minutes
                .iter()
                .copied()
                .filter(|(at, _)| (History::hours_of(span).from_ms..History::hours_of(span).to_ms).contains(at))
                .collect();
            story.follow.accept_past(span, &of_span);
        }
        burst(&mut story);
        assert_eq!(story.opened().len(), 2, "now it is usual");
        story.goes_on(DAY_MS, 2_000);
        assert_eq!(story.opened().len(), 3);
    }

    #[test]
    fn a_restart_goes_on_where_it_was() {
        let mut story = Story::new();
        story.goes_on(9 * DAY_MS, 60);
        story.goes_on(30 * MINUTE_MS, 600);
        assert_eq!(story.opened().len(), 1);
        let stored = (serde_json::to_string(story.follow.history()).unwrap(), serde_json::to_string(story.follow.watch()).unwrap());
        assert!(stored.0.len() < 16_384, "{} bytes", stored.0.len());
        story.follow = Follow::load(serde_json::from_str(&stored.0).unwrap(), serde_json::from_str(&stored.1).unwrap(), Vec::new());
        let last_hours = story.minutes[story.minutes.len() - 121..].to_vec();
        assert_eq!(story.follow.look(last_hours, story.now - 1), None);
        story.goes_on(30 * MINUTE_MS, 600);
        story.goes_on(2 * HOUR_MS, 60);
        assert_eq!(story.opened().len(), 1);
        assert!(story.follow.watch().open.is_none());
    }

    #[test]
    fn a_back_test_sees_what_was_seen() {
        let mut story = Story::new();
        story.goes_on(9 * DAY_MS, 60);
        let history = story.follow.history().clone();
        let from_ms = story.now;
        story.goes_on(HOUR_MS, 60);
        story.goes_on(HOUR_MS, 900);
        story.goes_on(DAY_MS, 60);
        let from_history = story.minutes.iter().position(|(at, _)| *at >= history.taught_to_ms()).unwrap();
        let values = anomaly_values(history, &story.minutes[from_history..], Span { from_ms, to_ms: story.now });
        let first = values.iter().find(|(_, value)| value.is_some_and(|value| value >= super::super::ALARMING)).unwrap();
        assert_eq!(vec![first.0], story.opened());
        let nothing_known = anomaly_values(History::new(from_ms), &[], Span { from_ms, to_ms: from_ms + HOUR_MS });
        assert!(nothing_known.len() == 60 && nothing_known.iter().all(|(_, value)| value.is_none()));
    }

    #[test]
    fn a_flood_ends_soon_after_it_ended() {
        let mut story = Story::new();
        story.goes_on(9 * DAY_MS, 60);
        story.goes_on(5 * MINUTE_MS, 60_000);
        let flood_ended = story.now;
        story.goes_on(5 * HOUR_MS, 60);
        let [(_, Turn::Opened(opened)), (closed, Turn::Closed(span))] = story.turns[..] else { panic!("{:?}", story.turns) };
        assert_eq!(opened.worst.window, Window::Minutes2);
        assert!(closed - flood_ended <= 45 * MINUTE_MS && span.to_ms >= flood_ended, "{closed} {span:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn more_arrivals_are_never_less_surprising(
            per_hour in 0..100i64,
            taught_h in 2..400i64,
            counts in proptest::collection::vec(0..60i64, 121),
            more in (0..121usize, 0..1_000_000i64),
        ) {
            let mut follow = Follow::new(START);
            let span = Span { from_ms: START, to_ms: START + taught_h * HOUR_MS };
            let buckets: Vec<(i64, i64)> = (0..taught_h * per_hour).map(|n| (START + n * HOUR_MS / per_hour.max(1), 1)).collect();
            follow.teach(span, &buckets);
            let now = span.to_ms + 2 * HOUR_MS;
            let look = |counts: &[i64]| {
                let mut follow = follow.clone();
                follow.look(counts.iter().enumerate().map(|(n, count)| (now - n as i64 * MINUTE_MS, *count)), now + 59_999);
                follow.watch().value()
            };
            let mut greater = counts.clone();
            greater[more.0] += more.1;
            let (less, greater) = (look(&counts), look(&greater));
            prop_assert!(less.is_finite() && greater.is_finite() && greater >= less - less * 1e-6, "{less} {greater}");
        }
    }
}
