//! uForwarder (Uber) writes no headers: the dead letter's KEY is a protobuf message, `DLQMetadata`, with the original key inside.
//!
//! Any short binary key might happen to be protobuf, so a record whose DLQ is not configured as `uforwarder` is only recognised when its key
//! has everything that a real one has.

use super::super::record::{Record, display_text};
use super::super::returns::Place;
use super::{DeadLetteredAt, Dialect, FieldReading, Origin, Reading};

/// How much a key must have in common with `DLQMetadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// An operator said so: a topic is enough.
    Configured,
    /// Nobody said so: also a timestamp of this century, or an offset and an original key.
    Guarded,
}

/// The protobuf message. A field that is absent has proto3's zero value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    retry_count: i64,
    topic: String,
    partition: i32,
    offset: i64,
    timestamp: i64,
    /// Length of the original key.
    data: usize,
}

/// 2000-01-01 and 2100-01-01, ms. The field is named ns and filled with ms.
const PLAUSIBLE_MS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

impl Metadata {
    pub(super) fn from_key(record: &Record, strictness: Strictness) -> Option<Metadata> {
        let metadata = decode(record.key.as_deref()?)?;
        let is_real = PLAUSIBLE_MS.contains(&metadata.timestamp_ms()) || (metadata.offset > 0 && metadata.data > 0);
        (strictness == Strictness::Configured || is_real).then_some(metadata)
    }

    fn timestamp_ms(&self) -> i64 {
        // A release that fills in what the name says gives a million times as much.
        if self.timestamp >= PLAUSIBLE_MS.end { self.timestamp / 1_000_000 } else { self.timestamp }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading {
            dialect: Dialect::Uforwarder,
            origin: Some(Origin {
                topic: Some(self.topic.clone()),
                partition: Some(self.partition),
                offset: Some(self.offset),
                timestamp_ms: (self.timestamp > 0).then(|| self.timestamp_ms()),
            }),
            attempts: Some(self.retry_count),
            places: vec![Place { topic: self.topic.clone(), partition: self.partition, offset: self.offset }],
            dead_lettered_at: DeadLetteredAt::FirstSeen,
            ..super::nothing()
        }
    }

    pub(super) fn field_readings(&self) -> Vec<FieldReading> {
        let is_in_ns = self.timestamp != self.timestamp_ms();
        let fields = [
            ("origin topic", self.topic.clone(), false),
            ("origin partition", self.partition.to_string(), false),
            ("origin offset", self.offset.to_string(), false),
            ("origin timestamp", format!("{} ({})", self.timestamp, if is_in_ns { "ns" } else { "ms" }), is_in_ns),
            ("attempts", self.retry_count.to_string(), false),
            ("original key", format!("{} bytes", self.data), false),
        ];
        let reading = |(meaning, value, odd)| FieldReading { header: None, meaning, value: format!("{value} (protobuf in the key)"), odd };
        fields.map(reading).into()
    }
}

/// Reads the whole key as the message: fields in ascending order as serialisers write them, of the right types, nothing else.
fn decode(mut key: &[u8]) -> Option<Metadata> {
    const VARINT: u64 = 0;
    const BYTES: u64 = 2;
    let mut metadata = Metadata::default();
    let mut previous = 0;
    while !key.is_empty() {
        let tag = varint(&mut key)?;
        let (field, wire_type) = (tag >> 3, tag & 7);
        if field <= previous {
            return None;
        }
        previous = field;
        match (field, wire_type) {
            (1, VARINT) => metadata.retry_count = varint(&mut key)? as i64,
            (2, BYTES) => metadata.topic = topic_name(bytes(&mut key)?)?,
            (3, VARINT) => metadata.partition = i32::try_from(varint(&mut key)? as i64).ok()?,
            (4, VARINT) => metadata.offset = varint(&mut key)? as i64,
            (5, VARINT) => metadata.timestamp = varint(&mut key)? as i64,
            (6, BYTES) => metadata.data = bytes(&mut key)?.len(),
            (7, VARINT) => drop(varint(&mut key)?),
            _ => return None,
        }
    }
    let is_possible = !metadata.topic.is_empty() && metadata.partition >= 0 && metadata.offset >= 0 && metadata.retry_count >= 0;
    is_possible.then_some(metadata)
}

/// A legal Kafka topic name.
fn topic_name(bytes: &[u8]) -> Option<String> {
    let is_legal = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    (is_legal && (1..=249).contains(&bytes.len())).then(|| display_text(bytes))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(rest)?).ok()?;
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognised(key: &[u8], strictness: Strictness) -> Option<Metadata> {
        let record = Record {
            topic: "dlq".into(),
            partition: 0,
            offset: 0,
            timestamp_ms: None,
            key: Some(key.to_vec()),
            value: None,
            headers: Vec::new(),
        };
        Metadata::from_key(&record, strictness)
    }

    const REAL: &[u8] = b"\x08\x03\x12\x06orders\x18\x05\x20\xac\x02\x28\x80\xb0\xea\xb6\xb7\x33\x32\x02k1";

    #[test]
    fn a_real_key_is_read() {
        let reading = recognised(REAL, Strictness::Guarded).unwrap().reading();
        let origin = Origin { topic: Some("orders".into()), partition: Some(5), offset: Some(300), timestamp_ms: Some(1_767_225_595_904) };
        assert_eq!((reading.origin, reading.attempts), (Some(origin), Some(3)));
    }

    #[test]
    fn a_key_that_merely_decodes_is_not_guessed_to_be_one() {
        // Somebody's own protobuf key: an id and a name.
        let own = b"\x08\x2a\x12\x05alice";
        assert_eq!(recognised(own, Strictness::Guarded), None);
        assert_eq!(recognised(own, Strictness::Configured).map(|metadata| metadata.topic), Some("alice".into()));
        for key in [
            &b""[..],
            b"order-1",
            b"\x12\x00",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x12\x03a b",
            b"\x18\x01\x12\x01t",
            b"\xff",
        ] {
            assert_eq!(recognised(key, Strictness::Configured), None, "{key:?}");
        }
        for end in 1..REAL.len() {
            let _ = recognised(&REAL[..end], Strictness::Configured);
        }
    }
}
