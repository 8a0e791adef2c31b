//! What is kept of a DLQ's arrivals: 28 days by the hour. This is stored.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{HOUR_MS, MINUTE_MS, Span};

/// The width of the buckets that are taught.
pub const BUCKET_MS: i64 = 5 * MINUTE_MS;
const BUCKETS: usize = (HOUR_MS / BUCKET_MS) as usize;
/// Buckets in a quarter of an hour.
const QUARTER: usize = 3;
/// How far back is remembered: four of each hour of the week.
const REMEMBERED_H: i64 = 28 * 24;
/// An hour is taught no sooner than this after its end: an anomaly found until then may still begin in it.
pub const TEACH_AFTER_MS: i64 = 2 * HOUR_MS;

/// The arrivals of one DLQ over the last 28 days, without what was left out. Serialised as some 10 to 20 kB of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Arrivals before this are not known, and not zero.
    known_from_ms: i64,
    /// Hours since the epoch at which `hours` begins.
    first_hour: i64,
    hours: VecDeque<Hour>,
}

/// One hour, in JSON the list of its six numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Numbers", into = "Numbers")]
pub(super) struct Hour {
    /// Arrivals in the minutes that teach.
    pub count: u64,
    /// How many minutes of it teach, 0 to 60.
    pub minutes: u8,
    /// The sum of the squared counts of its 5-minute buckets; 0 unless all teach.
    pub squares_5: u64,
    /// The largest of those counts.
    pub most_5: u64,
    /// As `squares_5`, of its quarters of an hour.
    pub squares_15: u64,
    pub most_15: u64,
}

type Numbers = (u64, u8, u64, u64, u64, u64);

impl From<Numbers> for Hour {
    fn from((count, minutes, squares_5, most_5, squares_15, most_15): Numbers) -> Hour {
        Hour { count, minutes, squares_5, most_5, squares_15, most_15 }
    }
}

impl From<Hour> for Numbers {
    fn from(hour: Hour) -> Numbers {
        (hour.count, hour.minutes, hour.squares_5, hour.most_5, hour.squares_15, hour.most_15)
    }
}

impl Hour {
    /// Of its buckets, `None` where one does not teach.
    fn of(buckets: &[Option<u64>; BUCKETS]) -> Hour {
        let taught = buckets.iter().flatten();
        let minutes = (taught.clone().count() as i64 * BUCKET_MS / MINUTE_MS) as u8;
        let mut hour = Hour { count: taught.clone().copied().fold(0, u64::saturating_add), minutes, ..Hour::default() };
        if hour.is_whole() {
            let squares = |sum: u64, count: u64| sum.saturating_add(count.saturating_mul(count));
            hour.squares_5 = taught.clone().copied().fold(0, squares);
            hour.most_5 = taught.copied().max().unwrap_or(0);
            let quarters = buckets.chunks(QUARTER).map(|quarter| quarter.iter().flatten().copied().fold(0, u64::saturating_add));
            hour.squares_15 = quarters.clone().fold(0, squares);
            hour.most_15 = quarters.max().unwrap_or(0);
        }
        hour
    }

    /// Whether all of it teaches.
    pub fn is_whole(&self) -> bool {
        i64::from(self.minutes) * MINUTE_MS == HOUR_MS
    }
}

impl History {
    /// Empty. `known_from_ms`: the time since which all arrivals are known: when the DLQ was first seen, or, where older records were taken in, the time of
    /// the oldest that Kafka still had.
    pub fn new(known_from_ms: i64) -> History {
        History { known_from_ms, first_hour: known_from_ms.div_euclid(HOUR_MS), hours: VecDeque::new() }
    }

    /// What may be taught now: whole hours of which everything is read (`read_to_ms`, at most `now_ms`) and that are long enough over. The store is to
    /// be asked for the arrivals of this span. `None`: nothing yet.
    pub fn due(&self, read_to_ms: i64, now_ms: i64) -> Option<Span> {
        let to_ms = read_to_ms.min(now_ms.saturating_sub(TEACH_AFTER_MS)).div_euclid(HOUR_MS) * HOUR_MS;
        let from_ms = self.taught_to_ms().max(to_ms.saturating_sub(REMEMBERED_H * HOUR_MS));
        (from_ms < to_ms).then_some(Span { from_ms, to_ms })
    }

    /// Teaches the whole hours of `span` ([`History::due`]) from (start in ms, count) of buckets of 5 minutes or of a part of that; a missing bucket
    /// is zero. What `leave_out` touches does not teach: open and unaccepted anomalies, the time in which intake was down, and the time in which a new
    /// DLQ's old records were read, if its dialect gives no time of its own.
    pub fn teach(&mut self, span: Span, buckets: &[(i64, i64)], leave_out: &[Span]) {
        let to_hour = span.to_ms.div_euclid(HOUR_MS);
        let taught_to = self.first_hour + self.hours.len() as i64;
        let from_hour = taught_to.max(to_hour - REMEMBERED_H);
        if from_hour >= to_hour {
            return;
        }
        // What nobody taught in between is not known.
        if from_hour - taught_to >= REMEMBERED_H {
            self.hours.clear();
            self.first_hour = from_hour;
        }
        let known_gap = span.from_ms.div_euclid(HOUR_MS).clamp(from_hour, to_hour);
        while self.first_hour + (self.hours.len() as i64) < known_gap {
            self.hours.push_back(Hour::default());
        }
        let from_hour = self.first_hour + self.hours.len() as i64;
        self.hours.extend(self.taught(from_hour, to_hour, buckets, leave_out));
        let forgotten = (self.hours.len() as i64 - REMEMBERED_H).max(0);
        self.hours.drain(..forgotten as usize);
        self.first_hour += forgotten;
    }

    /// Teaches once more what lies in `span`, of hours that were taught: for an anomaly that is over and was accepted as usual. As [`History::teach`]; the
    /// buckets have to cover every hour that the span touches ([`History::hours_of`]).
    pub fn teach_again(&mut self, span: Span, buckets: &[(i64, i64)], leave_out: &[Span]) {
        let whole = History::hours_of(span);
        let from_hour = whole.from_ms.div_euclid(HOUR_MS).max(self.first_hour);
        let to_hour = whole.to_ms.div_euclid(HOUR_MS).min(self.first_hour + self.hours.len() as i64);
        if from_hour >= to_hour {
            return;
        }
        let taught = self.taught(from_hour, to_hour, buckets, leave_out);
        for (hour, again) in self.hours.range_mut((from_hour - self.first_hour) as usize..).zip(taught) {
            *hour = again;
        }
    }

    /// The whole hours that a span touches.
    pub fn hours_of(span: Span) -> Span {
        let up = |ms: i64| -(-ms).div_euclid(HOUR_MS) * HOUR_MS;
        Span { from_ms: span.from_ms.div_euclid(HOUR_MS) * HOUR_MS, to_ms: up(span.to_ms) }
    }

    /// Forgets everything before `from_ms`, and what came since is to be taught again: a new level was accepted that began there.
    pub fn start_over(&mut self, from_ms: i64) {
        *self = History::new(from_ms.max(self.known_from_ms));
    }

    /// Where the taught hours end, ms.
    pub fn taught_to_ms(&self) -> i64 {
        (self.first_hour + self.hours.len() as i64) * HOUR_MS
    }

    /// Where what is remembered begins, ms.
    pub fn remembered_from_ms(&self) -> i64 {
        self.first_hour * HOUR_MS
    }

    fn taught(&self, from_hour: i64, to_hour: i64, buckets: &[(i64, i64)], leave_out: &[Span]) -> Vec<Hour> {
        let hours = (to_hour - from_hour).max(0) as usize;
        let (from_ms, slots) = (from_hour * HOUR_MS, hours * BUCKETS);
        let mut counts = vec![0u64; slots];
        for (start_ms, count) in buckets {
            let slot = usize::try_from((start_ms - from_ms).div_euclid(BUCKET_MS)).unwrap_or(usize::MAX);
            if let Some(sum) = counts.get_mut(slot) {
                *sum = sum.saturating_add(u64::try_from(*count).unwrap_or(0));
            }
        }
        let teaches = |slot: usize| {
            let (start_ms, end_ms) = (from_ms + slot as i64 * BUCKET_MS, from_ms + (slot as i64 + 1) * BUCKET_MS);
            start_ms >= self.known_from_ms && !leave_out.iter().any(|span| span.touches(start_ms, end_ms))
        };
        let hour = |hour: usize| {
            let mut buckets = [None; BUCKETS];
            for (at, bucket) in buckets.iter_mut().enumerate() {
                let slot = hour * BUCKETS + at;
                *bucket = teaches(slot).then(|| counts[slot]);
            }
            Hour::of(&buckets)
        };
        (0..hours).map(hour).collect()
    }

    /// The remembered hours, oldest first, each with its number since the epoch.
    pub(super) fn hours(&self) -> impl Iterator<Item = (i64, &Hour)> {
        (self.first_hour..).zip(&self.hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Monday, 00:00 UTC.
    const START: i64 = 1_798_416_000_000;

    fn hour(history: &History, at_ms: i64) -> Hour {
        *history.hours().find(|(hour, _)| hour * HOUR_MS == at_ms).unwrap().1
    }

    #[test]
    fn buckets_become_hours() {
        let mut history = History::new(START);
        let minutes: Vec<(i64, i64)> = (0..120).map(|minute| (START + minute * MINUTE_MS, i64::from(minute < 60))).collect();
        let due = history.due(START + 5 * HOUR_MS, START + 4 * HOUR_MS + 1).unwrap();
        assert_eq!(due, Span { from_ms: START, to_ms: START + 2 * HOUR_MS });
        history.teach(due, &minutes, &[]);
        assert_eq!(hour(&history, START), Hour { count: 60, minutes: 60, squares_5: 12 * 25, most_5: 5, squares_15: 4 * 225, most_15: 15 });
        assert_eq!(hour(&history, START + HOUR_MS), Hour { minutes: 60, ..Hour::default() });
        assert_eq!(history.due(START + 5 * HOUR_MS, START + 5 * HOUR_MS - 1), None);
        // Taught once: the same again changes nothing.
        let before = history.clone();
        history.teach(due, &minutes, &[]);
        assert_eq!(history, before);
        let stored = serde_json::to_string(&history).unwrap();
        assert!(stored.contains("[60,60,300,5,900,15]"), "{stored}");
        assert_eq!(serde_json::from_str::<History>(&stored).unwrap(), history);
    }

    #[test]
    fn what_is_left_out_or_not_known_is_no_zero() {
        let known_from = START + 30 * MINUTE_MS;
        let mut history = History::new(known_from);
        let anomaly = Span { from_ms: START + 70 * MINUTE_MS, to_ms: START + 71 * MINUTE_MS };
        let ones: Vec<(i64, i64)> = (0..36).map(|bucket| (START + bucket * BUCKET_MS, 1)).collect();
        history.teach(Span { from_ms: START, to_ms: START + 3 * HOUR_MS }, &ones, &[anomaly]);
        assert_eq!(hour(&history, START), Hour { count: 6, minutes: 30, ..Hour::default() });
        assert_eq!(hour(&history, START + HOUR_MS), Hour { count: 11, minutes: 55, ..Hour::default() });
        assert!(hour(&history, START + 2 * HOUR_MS).is_whole());
        // It was accepted after all.
        history.teach_again(anomaly, &ones, &[]);
        assert_eq!(hour(&history, START + HOUR_MS), Hour { count: 12, minutes: 60, squares_5: 12, most_5: 1, squares_15: 36, most_15: 3 });
        assert_eq!(hour(&history, START).minutes, 30);
    }

    #[test]
    fn four_weeks_are_remembered_and_a_hole_is_unknown() {
        let mut history = History::new(START);
        let hours = |from: i64, to: i64| Span { from_ms: START + from * HOUR_MS, to_ms: START + to * HOUR_MS };
        history.teach(hours(0, 10), &[], &[]);
        history.teach(hours(12, 20), &[], &[]);
        let minutes: Vec<u8> = history.hours().map(|(_, hour)| hour.minutes).collect();
        assert_eq!(minutes, [vec![60; 10], vec![0; 2], vec![60; 8]].concat());
        history.teach(hours(20, 700), &[], &[]);
        assert_eq!((history.hours().count() as i64, history.first_hour), (REMEMBERED_H, START / HOUR_MS + 28));
        history.teach(hours(5_000, 5_001), &[], &[]);
        assert_eq!(history.hours().filter(|(_, hour)| hour.minutes > 0).count(), 1);
        assert_eq!(history.taught_to_ms(), START + 5_001 * HOUR_MS);
        history.start_over(START + 5_000 * HOUR_MS + 1);
        assert_eq!(history.due(i64::MAX, START + 5_004 * HOUR_MS), Some(hours(5_000, 5_002)));
    }
}
