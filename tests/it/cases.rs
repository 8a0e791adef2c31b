//! The journey of a record through the domain: every line of the fixtures, and bytes that nobody thought of.

use lazaret::domain::dialect::{self, Dialect, Origin, replay_headers};
use lazaret::domain::message::{NewMessage, quarantine};
use lazaret::domain::partition::{murmur2, partition_for};
use lazaret::domain::record::{Header, Record};
use lazaret::domain::settings::{DialectChoice, DlqSettings, Partitioner, TopicMatch};
use lazaret::domain::template::KeyTemplate;
use lazaret::store::messages::{Body, MessageRow, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use proptest::prelude::*;
use serde_json::Value;

use crate::on_both_stores;
use crate::support::cases::{self, Case};

/// 2026-01-02, a day after the timestamps of the cases.
const NOW: i64 = 1_767_312_000_000;

fn taken_in(case: &Case) -> NewMessage {
    quarantine(case.record.clone(), &cases::settings(case), &[], NOW)
}

#[test]
fn every_record_is_read_as_the_field_says() {
    for case in cases::records() {
        let message = taken_in(&case);
        assert_eq!(message.record, case.record, "{}: the record is kept as it is", case.name);
        for (what, expected) in &case.expect {
            assert_read(&case, &message, what, expected);
        }
    }
}

on_both_stores! {
    /// The same through the database: what was read out of a record, and every byte of it, come back.
    async fn every_record_comes_back_from_the_database_as_the_field_says(store: Store) {
        for case in cases::records() {
            let Record { topic, partition, offset, .. } = case.record.clone();
            let (dlq, _) = store.ensure_dlq("main", &topic, None, None, NOW).await.expect("a DLQ");
            let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition };
            store.ensure_position(id, 0, NOW).await.expect("a position");
            let position = store.claim_position(id, NOW).await.expect("a claim").expect("the position is there");
            let batch = PartitionBatch {
                id,
                owner_epoch: position.owner_epoch,
                expected_offset: position.next_offset,
                next_offset: offset + 1,
                messages: vec![taken_in(&case)],
            };
            assert_eq!(store.take_in(&[batch], NOW).await.expect("taken in"), TakeIn::Committed { stored: 1 }, "{}", case.name);
            let row = store.message_at("main", &topic, partition, offset, None).await.expect("readable").expect("there");
            let body = store.body(row.id).await.expect("readable").expect("there");
            let back = stored(row, body, taken_in(&case));
            assert_eq!(back.record, case.record, "{}", case.name);
            for (what, expected) in &case.expect {
                assert_read(&case, &back, what, expected);
            }
        }
    }
}

/// The message as its row and body tell it; `kept` fills in what no column holds.
fn stored(row: MessageRow, body: Body, kept: NewMessage) -> NewMessage {
    let origin =
        Origin { topic: row.origin_topic, partition: row.origin_partition, offset: row.origin_offset, timestamp_ms: row.origin_at_ms };
    NewMessage {
        record: Record {
            topic: row.topic,
            partition: row.partition,
            offset: row.offset,
            timestamp_ms: row.record_at_ms,
            key: row.key,
            value: body.value,
            headers: body.headers,
        },
        dialect: row.dialect,
        class: row.class,
        consumer_group: row.consumer_group,
        exception_class: row.exception_class,
        exception_message: row.exception_message,
        attempts: row.attempts,
        record_at_ms: row.record_at_ms,
        dead_lettered_at_ms: row.dead_lettered_at_ms,
        timestamp_suspect: row.timestamp_suspect,
        origin: (origin != Origin::default()).then_some(origin),
        traces: kept.traces,
        ..kept
    }
}

/// Fails on an expectation that it does not know, so that none is silently skipped.
fn assert_read(case: &Case, message: &NewMessage, what: &str, expected: &Value) {
    let name = &case.name;
    let text = |read: Option<&str>| assert_eq!(read, expected.as_str(), "{name}: {what}");
    match what {
        "dialect" => text(Some(&message.dialect)),
        "class" => text(Some(message.class.as_str())),
        "consumer_group" => text(message.consumer_group.as_deref()),
        "exception_class" => text(message.exception_class.as_deref()),
        "exception_message" => text(message.exception_message.as_deref()),
        "attempts" => assert_eq!(message.attempts, expected.as_i64(), "{name}"),
        "record_at_ms" => assert_eq!(message.record_at_ms, expected.as_i64(), "{name}"),
        "timestamp_suspect" => assert_eq!(Some(message.timestamp_suspect), expected.as_bool(), "{name}"),
        "dead_lettered_at_ms" => {
            let at = if expected == "first_seen" { Some(NOW) } else { expected.as_i64() };
            assert_eq!(Some(message.dead_lettered_at_ms), at, "{name}: dead-lettered at");
        }
        "header_count" => assert_eq!(Some(message.record.headers.len() as u64), expected.as_u64(), "{name}"),
        "key" => assert_eq!(message.record.key, cases::bytes(expected), "{name}"),
        "value" => assert_eq!(message.record.value, cases::bytes(expected), "{name}"),
        "replay_headers" => {
            let sent = replay_headers(&message.record, &cases::settings(case).dialect);
            assert_eq!(sent, cases::headers(expected), "{name}: replay headers");
        }
        "replay_blocked" => assert_eq!(Some(message.needs_target()), expected.as_bool(), "{name}: replay blocked"),
        "origin" => assert_origin(name, message, expected),
        // Asserted on rendered pages, in web.rs.
        "inert_html" => assert_eq!(expected, true, "{name}"),
        unknown => panic!("{name} expects {unknown:?}, which nothing here asserts"),
    }
}

fn assert_origin(name: &str, message: &NewMessage, expected: &Value) {
    let Some(expected) = expected.as_object() else {
        assert_eq!(message.origin, None, "{name}");
        return;
    };
    let origin = message.origin.as_ref().unwrap_or_else(|| panic!("{name} has an origin"));
    for (what, expected) in expected {
        match what.as_str() {
            "topic" => assert_eq!(origin.topic.as_deref(), expected.as_str(), "{name}: origin topic"),
            "partition" => assert_eq!(origin.partition.map(i64::from), expected.as_i64(), "{name}: origin partition"),
            "offset" => assert_eq!(origin.offset, expected.as_i64(), "{name}: origin offset"),
            "timestamp_ms" => assert_eq!(origin.timestamp_ms, expected.as_i64(), "{name}: origin timestamp"),
            unknown => panic!("{name} expects origin {unknown:?}, which nothing here asserts"),
        }
    }
}

#[test]
fn every_dialect_has_a_case() {
    let read: Vec<String> = cases::records().iter().map(|case| taken_in(case).dialect).collect();
    for dialect in Dialect::ALL {
        assert!(read.iter().any(|name| name == dialect.as_str()), "no case is of {}", dialect.as_str());
    }
}

#[test]
fn every_dialect_alone_is_recognised_by_name_and_strips_its_own_headers() {
    for case in cases::records() {
        let by_itself = dialect::read(&case.record, &cases::settings(&case).dialect, None);
        let Some(own) = Dialect::ALL.into_iter().find(|dialect| *dialect == by_itself.dialect && *dialect != Dialect::Custom) else {
            continue;
        };
        let named = DialectChoice::Named(own);
        assert_eq!(dialect::read(&case.record, &named, None).dialect, own, "{}", case.name);
        assert_eq!(replay_headers(&case.record, &named), replay_headers(&case.record, &DialectChoice::Auto), "{}", case.name);
    }
}

#[test]
fn the_framework_that_owns_the_dlq_reads_and_the_rest_is_history() {
    let case = cases::records().into_iter().find(|case| case.name == "connect_then_spring").expect("the case");
    let auto = dialect::read(&case.record, &DialectChoice::Auto, Some("configured"));
    assert_eq!((auto.dialect, auto.history.as_slice()), (Dialect::SpringDlt, &[Dialect::KafkaConnect][..]));
    assert_eq!(auto.consumer_group.as_deref(), Some("configured"), "the headers name none");

    let connect = DialectChoice::Named(Dialect::KafkaConnect);
    let named = dialect::read(&case.record, &connect, None);
    assert_eq!((named.dialect, named.history.as_slice()), (Dialect::KafkaConnect, &[Dialect::SpringDlt][..]));
    let sent: Vec<Vec<u8>> = replay_headers(&case.record, &connect).into_iter().map(|header| header.name).collect();
    assert_eq!(sent, [&b"kafka_dlt-original-topic"[..], b"kafka_dlt-exception-fqcn"]);

    // A DLQ configured for a framework that did not write this record: what did write it still reads it.
    assert_eq!(dialect::read(&case.record, &DialectChoice::Named(Dialect::Karafka), None).dialect, Dialect::SpringDlt);
}

#[test]
fn a_page_can_show_how_each_header_was_read() {
    let record = Record {
        topic: "x.DLT".into(),
        partition: 0,
        offset: 0,
        timestamp_ms: None,
        key: None,
        value: None,
        headers: [
            ("kafka_dlt-original-topic", Some(&b"orders"[..])),
            ("other", Some(b"1")),
            ("kafka_dlt-original-offset", Some(b"\x00\x00\x00\x00\x00\x06\x2b\x2d")),
            ("kafka_dlt-original-offset", Some(b"404269")),
            ("kafka_dlt-original-partition", Some(b"\x01\x02\x03")),
            ("kafka_dlt-exception-message", None),
            ("springDeserializerExceptionValue", Some(b"\xac\xed\x00\x05")),
        ]
        .map(|(name, value)| Header { name: name.as_bytes().to_vec(), value: value.map(<[u8]>::to_vec) })
        .to_vec(),
    };
    let readings = dialect::field_readings(&record, &DialectChoice::Auto);
    let shown: Vec<(Option<usize>, &str, &str, bool)> = readings.iter().map(|r| (r.header, r.meaning, r.value.as_str(), r.odd)).collect();
    assert_eq!(
        shown,
        [
            (Some(0), "origin topic", "orders (text)", false),
            (Some(2), "origin offset", "404269 (i64 big-endian)", false),
            (Some(3), "origin offset", "404269 (text; i64 big-endian was expected)", true),
            (Some(4), "origin partition", "not readable as i32 big-endian: 3 bytes", true),
            (Some(5), "exception message", "null", false),
            (Some(6), "not read", "4 bytes", false),
        ]
    );
}

/// R1, the part that needs no broker: Java's murmur2 and librdkafka's CRC32.
#[test]
fn keys_go_where_real_producers_send_them() {
    for line in cases::lines("partitions.jsonl") {
        let key = line["key"].as_str().expect("a key").as_bytes();
        let (mut asserted, fields) = (2, line.as_object().expect("an object"));
        if let Some(hash) = fields.get("murmur2_i32") {
            assert_eq!(Some(i64::from(murmur2(key))), hash.as_i64(), "{line}");
        } else {
            let partitions = line["partitions"].as_i64().expect("a count") as i32;
            let by = |partitioner| partition_for(partitioner, Some(key), partitions).map(i64::from);
            assert_eq!(by(Partitioner::Murmur2Random), line["murmur2"].as_i64(), "{line}");
            assert_eq!(by(Partitioner::ConsistentRandom), line["crc32"].as_i64(), "{line}");
            asserted = 5;
        }
        assert_eq!(fields.len(), asserted, "{line} holds something that nothing here asserts");
    }
}

/// K2: two ids that are one number to anything that reads JSON into a double.
#[test]
fn ids_beyond_two_to_the_53rd_are_two_keys() {
    let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec!["x".into()]));
    settings.business_key = Some(KeyTemplate::parse("{value:/id}").expect("a template"));
    let key = |value: &str| {
        let record = Record {
            topic: "x".into(),
            partition: 0,
            offset: 0,
            timestamp_ms: None,
            key: None,
            value: Some(value.as_bytes().to_vec()),
            headers: Vec::new(),
        };
        let message = quarantine(record, &settings, &[], NOW);
        assert_eq!(message.record.value.as_deref(), Some(value.as_bytes()));
        message.business_key
    };
    assert_eq!(key(r#"{"id":9007199254740992}"#).as_deref(), Some("9007199254740992"));
    assert_eq!(key(r#"{"id":9007199254740993}"#).as_deref(), Some("9007199254740993"));
}

/// Names and values that mean something, and some that do not.
fn any_header() -> impl Strategy<Value = Header> {
    let known: Vec<Vec<u8>> = cases::records()
        .into_iter()
        .flat_map(|case| case.record.headers)
        .map(|header| header.name)
        .chain([b"lazaret-lap".to_vec()])
        .collect();
    let name = prop_oneof![8 => proptest::sample::select(known), 1 => any::<Vec<u8>>()];
    let value = prop_oneof![
        any::<Vec<u8>>(),
        proptest::collection::vec(any::<u8>(), 8),
        "[0-9]{0,22}".prop_map(String::into_bytes),
        any::<String>().prop_map(String::into_bytes),
        "(Caused by: |at |File \"|panic: |\t|\n|[a-zA-Z.$(:){}'\"@0-9-]){0,60}".prop_map(String::into_bytes),
    ];
    (name, proptest::option::weighted(0.9, value)).prop_map(|(name, value)| Header { name, value })
}

fn any_record() -> impl Strategy<Value = Record> {
    let key = proptest::option::of(prop_oneof![any::<Vec<u8>>(), proptest::collection::vec(0u8..0x3f, 0..24)]);
    let value = proptest::option::of(prop_oneof![any::<Vec<u8>>(), r#"[{}\[\]",:0-9ae/]{0,40}"#.prop_map(String::into_bytes)]);
    let headers = proptest::collection::vec(any_header(), 0..12);
    (key, value, headers, any::<Option<i64>>()).prop_map(|(key, value, headers, timestamp_ms)| Record {
        topic: "any".into(),
        partition: 0,
        offset: 0,
        timestamp_ms,
        key,
        value,
        headers,
    })
}

fn any_choice() -> impl Strategy<Value = DialectChoice> {
    let named = proptest::sample::select(Dialect::ALL.to_vec()).prop_map(DialectChoice::Named);
    let custom = cases::records().into_iter().find(|case| case.name == "custom_mapping").map(|case| cases::settings(&case).dialect);
    prop_oneof![Just(DialectChoice::Auto), named, Just(custom.expect("the case"))]
}

proptest! {
    #[test]
    fn any_record_is_taken_in_whole(record in any_record(), choice in any_choice(), now_ms in any::<i64>()) {
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec!["any".into()]));
        settings.dialect = choice.clone();
        settings.business_key = Some(KeyTemplate::parse("{value:/a/0}{key}").expect("a template"));
        let message = quarantine(record.clone(), &settings, &[], now_ms);
        prop_assert_eq!(&message.record, &record);
        let texts = [&message.exception_class, &message.exception_message, &message.consumer_group, &message.business_key, &message.group.top_frame];
        for text in texts.into_iter().flatten() {
            prop_assert!(!text.contains('\0'), "NUL in {:?}", text);
        }

        let odd = dialect::field_readings(&record, &choice);
        prop_assert!(odd.iter().all(|reading| reading.header.is_none_or(|at| at < record.headers.len())));

        // What a replay sends is the record's own headers in their order, some left out, none of ours.
        let sent = replay_headers(&record, &choice);
        let mut rest = record.headers.iter();
        prop_assert!(sent.iter().all(|header| rest.any(|own| own == header)), "not a subsequence");
        prop_assert!(sent.iter().all(|header| !header.name.starts_with(b"lazaret-")));
    }
}
