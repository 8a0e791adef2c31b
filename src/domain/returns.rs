//! How a dead letter is recognised as something we sent: by the replay id it carries, or by the place it says it came from.

use std::fmt;
use std::str::FromStr;

use super::record::Record;

/// The header with which a replay is sent.
pub const REPLAY_ID: &str = "lazaret-replay-id";

/// A record's place in Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The topic's name, or Kafka's id of it: some frameworks write that.
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

/// Which message of which batch was sent: `UID.MESSAGE` on the wire. The same however often it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayId {
    /// Of the batch.
    pub uid: String,
    pub message_id: i64,
}

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.uid, self.message_id)
    }
}

/// A text that is no replay id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no replay id: it is a batch's random name, a dot and a message's number")]
pub struct NoReplayId;

/// A batch's random name is no longer than this.
const UID_LIMIT: usize = 64;

impl FromStr for ReplayId {
    type Err = NoReplayId;

    fn from_str(text: &str) -> Result<ReplayId, NoReplayId> {
        let (uid, message_id) = text.rsplit_once('.').ok_or(NoReplayId)?;
        let is_name = (1..=UID_LIMIT).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let message_id = message_id.parse().ok().filter(|id| *id > 0);
        match message_id {
            Some(message_id) if is_name => Ok(ReplayId { uid: uid.to_owned(), message_id }),
            _ => Err(NoReplayId),
        }
    }
}

/// All that a record says of where it was before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    /// Each place once, those of older failures included.
    pub places: Vec<Place>,
    pub replay_ids: Vec<ReplayId>,
}

/// So many of the first and of the last repetitions are kept: retry topics add one each, and nobody has a hundred of them.
const KEPT_AT_EACH_END: usize = 16;

impl Traces {
    /// `places`: what the record's dialects say.
    pub fn of(record: &Record, places: Vec<Place>) -> Traces {
        let ids = record.headers.iter().filter(|header| header.name == REPLAY_ID.as_bytes());
        let ids = ids.filter_map(|header| std::str::from_utf8(header.value.as_deref()?).ok()?.parse().ok());
        Traces { places: few(places), replay_ids: few(ids.collect()) }
    }

    /// Whether nothing can be recognised by them.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.replay_ids.is_empty()
    }
}

/// Each once, in order; of very many the first and the last.
fn few<T: PartialEq>(mut all: Vec<T>) -> Vec<T> {
    if all.len() > 2 * KEPT_AT_EACH_END {
        all.drain(KEPT_AT_EACH_END..all.len() - KEPT_AT_EACH_END);
    }
    let mut at = 0;
    while at < all.len() {
        if all[..at].contains(&all[at]) {
            all.remove(at);
        } else {
            at += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::dialect;
    use super::super::record::Header;
    use super::super::settings::DialectChoice;
    use super::*;

    #[test]
    fn a_replay_id_comes_back_as_it_was_sent_and_nothing_else_is_one() {
        let id = ReplayId { uid: "0190-ab".into(), message_id: 42 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in [
            "",
            ".",
            "ab",
            "ab.",
            ".7",
            "ab.-1",
            "ab.0",
            "ab.x",
            "a b.7",
            "ab.99999999999999999999",
            "ä.7",
            &format!("{}.7", "a".repeat(65)),
        ] {
            assert_eq!(text.parse::<ReplayId>(), Err(NoReplayId), "{text:?}");
        }
    }

    #[test]
    fn of_very_many_repetitions_both_ends_are_kept() {
        let header = |n: i64| Header { name: REPLAY_ID.into(), value: Some(format!("u.{n}").into_bytes()) };
        let mut headers: Vec<Header> = (1..=10_000).map(header).collect();
        headers.push(header(10_000));
        headers.push(Header { name: REPLAY_ID.into(), value: None });
        headers.push(Header { name: REPLAY_ID.into(), value: Some(vec![0xff]) });
        let record = Record { topic: "t".into(), partition: 0, offset: 0, timestamp_ms: None, key: None, value: None, headers };
        let ids: Vec<i64> = Traces::of(&record, Vec::new()).replay_ids.iter().map(|id| id.message_id).collect();
        assert_eq!((ids.first(), ids.last(), ids.len()), (Some(&1), Some(&10_000), 31));
    }

    fn places(headers: &[(&str, &[u8])]) -> Vec<(String, i32, i64)> {
        let headers = headers.iter().map(|(name, value)| Header { name: name.as_bytes().to_vec(), value: Some(value.to_vec()) }).collect();
        let record = Record { topic: "t".into(), partition: 0, offset: 0, timestamp_ms: None, key: None, value: None, headers };
        let traces = Traces::of(&record, dialect::read(&record, &DialectChoice::Auto, None).places);
        traces.places.into_iter().map(|place| (place.topic, place.partition, place.offset)).collect()
    }

    /// What Spring's retry topics leave on a record that failed at the topic itself and at two retry topics.
    #[test]
    fn each_pass_through_a_retry_topic_is_a_place() {
        let pass = |topic: &'static [u8], partition: &'static [u8; 4], offset: &'static [u8; 8]| {
            [("kafka_original-topic", topic), ("kafka_original-partition", partition), ("kafka_original-offset", offset)]
        };
        let passes = [
            pass(b"orders", b"\0\0\0\x07", b"\0\0\0\0\0\0\0\x2a"),
            pass(b"orders-retry-0", b"\0\0\0\x01", b"\0\0\0\0\0\0\0\x05"),
            pass(b"orders-retry-1", b"\0\0\0\x01", b"\0\0\0\0\0\0\0\x06"),
        ];
        let expected = [("orders".to_owned(), 7, 42), ("orders-retry-0".to_owned(), 1, 5), ("orders-retry-1".to_owned(), 1, 6)];
        assert_eq!(places(&passes.concat()), expected);
        // All topics first, then all partitions, then all offsets.
        let by_name: Vec<_> = (0..3).flat_map(|name| passes.map(|pass| pass[name])).collect();
        assert_eq!(places(&by_name), expected);
        // The second pass left its offset out: it names no place, and lends the others none.
        let mut gap = passes.concat();
        gap.remove(5);
        assert_eq!(places(&gap), [expected[0].clone(), expected[2].clone()]);
    }

    #[test]
    fn older_failures_of_another_framework_name_places_too() {
        let headers: [(&str, &[u8]); 6] = [
            ("__connect.errors.topic", b"source"),
            ("__connect.errors.partition", b"2"),
            ("__connect.errors.offset", b"11"),
            ("kafka_dlt-original-topic", b"orders"),
            ("kafka_dlt-original-partition", b"\0\0\0\x01"),
            ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x09"),
        ];
        assert_eq!(places(&headers), [("orders".to_owned(), 1, 9), ("source".to_owned(), 2, 11)]);
        assert_eq!(places(&headers[..2]), []);
        assert_eq!(places(&[]), []);
    }
}
