//! What is sent of a message, and what follows from the verdicts right before it: which items go, which stand in the way of others, and whether the
//! whole still is what was approved.

use std::collections::HashMap;

use super::dialect::replay_headers;
use super::partition::partition_for;
use super::record::{Header, Record};
use super::returns::{REPLAY_ID, ReplayId};
use super::settings::{DialectChoice, Partitioner};
use super::verdict::Decision;

/// What a replay says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp<'a> {
    pub uid: &'a str,
    pub batch_id: i64,
    pub message_id: i64,
    /// 1 the first time that it is replayed.
    pub lap: i32,
    /// Where the record was before it failed.
    pub origin_topic: Option<&'a str>,
    pub origin_partition: Option<i32>,
    pub origin_offset: Option<i64>,
    /// When the event happened, ms.
    pub origin_at_ms: Option<i64>,
}

/// The headers that are sent: those of the record in their order without what the dialect wrote about the failure, then the replay's own.
pub fn headers(record: &Record, dialect: &DialectChoice, stamp: &Stamp<'_>) -> Vec<Header> {
    let mut headers = replay_headers(record, dialect);
    let mut add = |name: &str, value: String| headers.push(Header { name: name.as_bytes().to_vec(), value: Some(value.into_bytes()) });
    add(REPLAY_ID, ReplayId { uid: stamp.uid.to_owned(), message_id: stamp.message_id }.to_string());
    add("lazaret-batch", stamp.batch_id.to_string());
    add("lazaret-lap", stamp.lap.to_string());
    let number = |number: Option<i64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    match stamp.origin_topic {
        Some(topic) => {
            let (partition, offset) = (number(stamp.origin_partition.map(i64::from)), number(stamp.origin_offset));
            add("lazaret-origin", format!("{topic}/{partition}/{offset}"));
        }
        // Nobody knows where it came from: the dead letter itself.
        None => add("lazaret-origin", format!("{}/{}/{}", record.topic, record.partition, record.offset)),
    }
    if let Some(at_ms) = stamp.origin_at_ms.or(record.timestamp_ms) {
        add("lazaret-original-timestamp-ms", at_ms.to_string());
    }
    headers
}

/// Where a message goes: to `origin`, the partition it came from, if that is one of the target's own and exists there; else where the partitioner
/// puts its key. Without a key it goes anywhere; which, `spread` decides.
pub fn target_partition(partitioner: Partitioner, key: Option<&[u8]>, origin: Option<i32>, partitions: i32, spread: i64) -> i32 {
    let partitions = partitions.max(1);
    let any = || i32::try_from(spread.rem_euclid(i64::from(partitions))).unwrap_or(0);
    match origin {
        Some(origin) if (0..partitions).contains(&origin) => origin,
        _ => partition_for(partitioner, key, partitions).unwrap_or_else(any),
    }
}

/// An item's place in the order of its key.
pub type Place = (i64, i64);

/// The first item of each key that stands in the way of those after it. Its place is (place, message id).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InTheWay(HashMap<i64, Place>);

impl InTheWay {
    /// An item of this key ended so that what comes after it must not go.
    pub fn add(&mut self, key_hash: Option<i64>, place: Place) {
        let Some(key) = key_hash else { return };
        let first = self.0.entry(key).or_insert(place);
        *first = (*first).min(place);
    }

    /// The message that stands in the way of an item, if any does.
    pub fn before(&self, key_hash: Option<i64>, place: Place) -> Option<i64> {
        let first = self.0.get(&key_hash?)?;
        (*first < place).then_some(first.1)
    }
}

/// What becomes of an item right before it would be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    Checked(Decision),
    /// An earlier item of its key, this message, stands in the way.
    Blocked(i64),
    /// This message is of the same event, and goes for it.
    Copy(i64),
}

impl Course {
    /// The word that the preflight uses for the same.
    pub fn as_str(self) -> &'static str {
        match self {
            Course::Checked(Decision::Send) => "send",
            Course::Checked(Decision::SendUnchecked) => "send_unchecked",
            Course::Checked(Decision::AlreadyApplied) => "already_applied",
            Course::Checked(Decision::Incompatible) => "incompatible",
            Course::Checked(Decision::Unsafe) => "unsafe",
            Course::Checked(Decision::Held) => "held",
            Course::Blocked(_) | Course::Copy(_) => "blocked",
        }
    }

    /// Whether it is to be sent.
    pub fn goes(self) -> bool {
        matches!(self, Course::Checked(Decision::Send | Decision::SendUnchecked))
    }
}

/// Which message goes for its event. A ledger that is asked before the first of two copies went says "new" of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events(HashMap<i64, i64>);

impl Events {
    /// Of (event, message); the last of an event counts.
    pub fn new(going: impl IntoIterator<Item = (i64, i64)>) -> Events {
        Events(going.into_iter().collect())
    }

    /// The other message that goes for this event; None: this one does, from now on.
    fn other(&mut self, event: Option<i64>, message_id: i64) -> Option<i64> {
        let goes = *self.0.entry(event?).or_insert(message_id);
        (goes != message_id).then_some(goes)
    }
}

/// What a chunk's decisions are joined with, of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub key_hash: Option<i64>,
    pub place: Place,
    pub event: Option<i64>,
    pub decision: Decision,
}

/// What becomes of the items of a chunk, given in the order of their origin. `in_the_way` grows by those of them that do, `events` by those that go.
pub fn courses(items: impl Iterator<Item = Facts>, in_the_way: &mut InTheWay, events: &mut Events) -> Vec<Course> {
    items
        .map(|Facts { key_hash: key, place, event, decision }| match in_the_way.before(key, place) {
            Some(blocker) => {
                in_the_way.add(key, place);
                Course::Blocked(blocker)
            }
            None => {
                let goes = matches!(decision, Decision::Send | Decision::SendUnchecked);
                if let Some(other) = events.other(event.filter(|_| goes), place.1) {
                    return Course::Copy(other);
                }
                if matches!(decision, Decision::Incompatible | Decision::Unsafe | Decision::Held) {
                    in_the_way.add(key, place);
                }
                Course::Checked(decision)
            }
        })
        .collect()
}

/// By how many items execution leaves the forecast, for each word of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift(HashMap<String, i64>);

/// Fewer items than this are no drift, however small the batch.
const DRIFT_ITEMS: i64 = 5;
/// Nor is this share of it, in percent.
const DRIFT_PERCENT: i64 = 2;

impl Drift {
    /// Of one item, or of `count` alike: what was expected, and what was found. An item without a forecast says nothing.
    pub fn add(&mut self, expected: Option<&str>, found: &str, count: i64) {
        let Some(expected) = expected else { return };
        if expected != found {
            *self.0.entry(expected.to_owned()).or_default() -= count;
            *self.0.entry(found.to_owned()).or_default() += count;
        }
    }

    /// Whether that leaves what was approved of a batch of `items`: by more than 5 and more than 2 %, in either direction. The words say by how much.
    pub fn leaves_forecast(&self, items: i64) -> Option<String> {
        let tolerated = DRIFT_ITEMS.max(items * DRIFT_PERCENT / 100);
        let mut beyond: Vec<_> = self.0.iter().filter(|(_, by)| by.abs() > tolerated).collect();
        beyond.sort();
        if beyond.is_empty() {
            return None;
        }
        let words: Vec<String> = beyond.iter().map(|(what, by)| format!("{by:+} {}", what.replace('_', " "))).collect();
        Some(words.join(", "))
    }
}

/// Whether so many came back that the batch must halt: at least 3, and more than `limit_pct` percent of what was sent.
pub fn too_many_returned(returned: i64, sent: i64, limit_pct: u32) -> bool {
    returned >= 3 && returned.saturating_mul(100) > sent.saturating_mul(i64::from(limit_pct))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: Option<&[u8]>) -> Header {
        Header { name: name.as_bytes().to_vec(), value: value.map(<[u8]>::to_vec) }
    }

    fn record(headers: Vec<Header>) -> Record {
        Record { topic: "t.DLQ".into(), partition: 1, offset: 7, timestamp_ms: Some(5), key: None, value: None, headers }
    }

    const STAMP: Stamp<'_> = Stamp {
        uid: "u",
        batch_id: 3,
        message_id: 9,
        lap: 1,
        origin_topic: Some("t"),
        origin_partition: Some(2),
        origin_offset: Some(40),
        origin_at_ms: None,
    };

    #[test]
    fn the_dialects_own_headers_go_and_the_others_stay_in_order() {
        let record = record(vec![
            header("trace", Some(b"a")),
            header("kafka_dlt-original-topic", Some(b"t")),
            header("trace", None),
            header("kafka_dlt-exception-fqcn", Some(b"X")),
            header("lazaret-replay-id", Some(b"old.1")),
            header("trace", Some(b"")),
        ]);
        let sent = headers(&record, &DialectChoice::Auto, &STAMP);
        let expected = [
            header("trace", Some(b"a")),
            header("trace", None),
            header("trace", Some(b"")),
            header("lazaret-replay-id", Some(b"u.9")),
            header("lazaret-batch", Some(b"3")),
            header("lazaret-lap", Some(b"1")),
            header("lazaret-origin", Some(b"t/2/40")),
            header("lazaret-original-timestamp-ms", Some(b"5")),
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn who_knows_no_origin_names_the_dead_letter() {
        let stamp = Stamp { origin_topic: None, ..STAMP };
        let sent = headers(&record(Vec::new()), &DialectChoice::Auto, &stamp);
        assert!(sent.contains(&header("lazaret-origin", Some(b"t.DLQ/1/7"))));
    }

    #[test]
    fn a_partition_that_the_target_does_not_have_is_never_taken_modulo() {
        let to = |origin, key: Option<&[u8]>| target_partition(Partitioner::Murmur2Random, key, origin, 4, 11);
        assert_eq!(to(Some(3), Some(b"k")), 3);
        assert_eq!(Some(to(Some(7), Some(b"k"))), partition_for(Partitioner::Murmur2Random, Some(b"k"), 4));
        assert_eq!(to(None, None), 3, "11 modulo 4: without a key any will do");
        assert_eq!(to(Some(-1), None), 3);
    }

    #[test]
    fn what_is_held_or_archived_stands_in_the_way_of_its_key_and_what_was_applied_does_not() {
        let chunk = [
            (Some(1), (0, 10), Decision::Held),
            (Some(2), (1, 11), Decision::AlreadyApplied),
            (Some(1), (2, 12), Decision::Send),
            (Some(2), (3, 13), Decision::Send),
            (None, (4, 14), Decision::Held),
            (None, (5, 15), Decision::Send),
            (Some(1), (6, 16), Decision::Incompatible),
            (Some(3), (7, 17), Decision::Incompatible),
            (Some(3), (8, 18), Decision::SendUnchecked),
        ];
        let mut in_the_way = InTheWay::default();
        let facts = |(key_hash, place, decision)| Facts { key_hash, place, event: None, decision };
        let courses = courses(chunk.into_iter().map(facts), &mut in_the_way, &mut Events::default());
        use Course::{Blocked, Checked};
        let expected = [
            Checked(Decision::Held),
            Checked(Decision::AlreadyApplied),
            Blocked(10),
            Checked(Decision::Send),
            Checked(Decision::Held),
            Checked(Decision::Send),
            Blocked(10),
            Checked(Decision::Incompatible),
            Blocked(17),
        ];
        assert_eq!(courses, expected);
        assert_eq!(in_the_way.before(Some(1), (99, 99)), Some(10));
        assert_eq!(in_the_way.before(Some(1), (0, 9)), None, "what stands before it is not blocked");
    }

    #[test]
    fn one_event_goes_once_whatever_its_ledger_says_of_the_copies() {
        let item = |id: i64, event, decision| Facts { key_hash: Some(1), place: (id, id), event, decision };
        // Of event 7 message 9 went before; event 8 has two copies here, and one that was applied asks nobody.
        let mut events = Events::new([(7, 9)]);
        let chunk = [
            item(10, Some(7), Decision::Send),
            item(11, Some(8), Decision::AlreadyApplied),
            item(12, Some(8), Decision::Send),
            item(13, Some(8), Decision::SendUnchecked),
            item(14, None, Decision::Send),
            item(15, None, Decision::Send),
        ];
        let courses = courses(chunk.into_iter(), &mut InTheWay::default(), &mut events);
        use Course::{Checked, Copy};
        let goes = Checked(Decision::Send);
        assert_eq!(courses, [Copy(9), Checked(Decision::AlreadyApplied), goes, Copy(12), goes, goes], "a copy stands in nobody's way");
    }

    #[test]
    fn the_forecast_is_left_in_either_direction() {
        let mut drift = Drift::default();
        drift.add(Some("send"), "incompatible", 5);
        assert_eq!(drift.leaves_forecast(200), None);
        drift.add(Some("send"), "incompatible", 1);
        assert_eq!(drift.leaves_forecast(200).as_deref(), Some("+6 incompatible, -6 send"));
        assert_eq!(drift.leaves_forecast(1_000), None, "2 % of 1,000 are 20");
        drift.add(Some("incompatible"), "send", 6);
        assert_eq!(drift.leaves_forecast(1), None, "they even out");
        drift.add(None, "held", 1_000);
        drift.add(Some("held"), "held", 1_000);
        assert_eq!(drift.leaves_forecast(1), None);
    }

    #[test]
    fn three_returns_and_more_than_the_limit_halt() {
        assert!(!too_many_returned(2, 2, 5));
        assert!(too_many_returned(3, 59, 5));
        assert!(!too_many_returned(3, 60, 5));
        assert!(too_many_returned(3, 100, 0));
    }
}
