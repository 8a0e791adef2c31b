//! `lazaret demo`: the story it tells, and the in-process Kafka that the story is told through.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lazaret::demo::Broker;
use lazaret::demo::scenario::{self, ProducedRecord, Story};
use lazaret::domain::clock::Clock;
use rdkafka::ClientConfig;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Headers as _;

/// 2026-11-30T20:00:00Z, a Monday evening.
const NOW_MS: i64 = 1_796_068_800_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const WALLET: &str = "payments.wallet.DLQ";

fn story() -> Vec<ProducedRecord> {
    Story::new(1).until_now(NOW_MS)
}

#[test]
fn the_same_seed_and_moment_tell_the_same_story() {
    assert_eq!(story(), story());
    assert_ne!(story(), Story::new(2).until_now(NOW_MS));
    let (mut one, mut other) = (Story::new(1), Story::new(1));
    assert_eq!(one.next_failure(NOW_MS), other.next_failure(NOW_MS));
}

#[test]
fn the_history_reaches_28_days_back_and_follows_the_shops_hours() {
    let records = story();
    assert!((2_000..6_000).contains(&records.len()), "{} records", records.len());
    let oldest = records.first().expect("a record");
    assert_eq!((oldest.topic, oldest.timestamp_ms / 1000), (WALLET, (NOW_MS - 28 * DAY_MS) / 1000), "the wallet's is the oldest");
    assert!(records.iter().all(|record| record.timestamp_ms <= NOW_MS), "nothing comes from the future");
    assert!(records.is_sorted_by_key(|record| record.timestamp_ms));
    let days: BTreeSet<_> = records.iter().map(|record| (NOW_MS - record.timestamp_ms) / DAY_MS).collect();
    assert!((0..28).all(|day| days.contains(&day)), "a day without failures: {days:?}");
    let in_hours = |from, to| records.iter().filter(|r| (from..to).contains(&((r.timestamp_ms / 3_600_000) % 24))).count();
    assert!(in_hours(16, 20) > 3 * in_hours(1, 5), "evenings are busier than nights");
}

#[test]
fn the_outage_is_200_payments_of_distinct_keys_12_applied_late_and_3_of_the_old_schema() {
    let outage: Vec<_> = story().into_iter().filter(|record| fate(record).is_some()).collect();
    assert_eq!(outage.len(), 200);
    assert!(outage.iter().all(|record| record.topic == WALLET && record.timestamp_ms > NOW_MS - 41 * 60_000));
    let keys: BTreeSet<_> = outage.iter().map(|record| record.key.clone()).collect();
    let payments: BTreeSet<_> = outage.iter().map(|record| json(record)["payment_id"].to_string()).collect();
    assert_eq!((keys.len(), payments.len()), (200, 200));
    let mut fates = BTreeMap::new();
    for record in &outage {
        *fates.entry(fate(record).expect("filtered")).or_insert(0) += 1;
        let old = json(record)["schema_version"] == 1 && json(record).get("amount_cents").is_none();
        assert_eq!(old, fate(record).as_deref() == Some("old_schema"), "the old payloads lack what came with the migration");
    }
    assert_eq!(fates, BTreeMap::from([("applied_late".into(), 12), ("never_applied".into(), 185), ("old_schema".into(), 3)]));
    assert_eq!((scenario::OUTAGE_MESSAGES, scenario::OUTAGE_APPLIED_LATE, scenario::OUTAGE_OLD_SCHEMA), (200, 12, 3));
}

#[test]
fn no_new_failure_joins_the_outage_and_no_partition_outgrows_the_broker() {
    let mut story = Story::new(3);
    let mut sizes: BTreeMap<_, usize> = BTreeMap::new();
    for record in story.until_now(NOW_MS) {
        *sizes.entry((record.topic, record.partition)).or_default() += size(&record);
    }
    // The in-process broker drops the oldest beyond 5 MiB a partition; history must leave most of that to what comes.
    assert!(sizes.values().all(|&bytes| bytes < 2 * 1024 * 1024), "{sizes:?}");
    let mut waited = Duration::ZERO;
    let mut topics = BTreeSet::new();
    for _ in 0..500 {
        let (record, wait) = story.next_failure(NOW_MS);
        assert_eq!(fate(&record), None);
        waited += wait;
        topics.insert(record.topic);
    }
    let per_minute = 500.0 / (waited.as_secs_f64() / 60.0);
    assert!((2.0..10.0).contains(&per_minute), "{per_minute} a minute");
    assert!(topics.len() >= 5, "{topics:?}");
}

/// The broker gives back exactly what the story says: bytes, headers in order, timestamps, partitions.
#[test]
fn what_is_produced_can_be_read_back_from_the_in_process_broker() {
    let mut expected = story();
    let topics: BTreeSet<_> = expected.iter().map(|record| record.topic).collect();
    let broker = Broker::start(topics.iter().map(|&topic| (topic, 3))).expect("the in-process broker starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(broker.produce(&expected)).expect("everything is acknowledged");

    let mut read = read_back(&broker, &topics, expected.len());
    let order = |record: &ProducedRecord| (record.topic, record.partition);
    read.sort_by_key(order);
    expected.sort_by_key(order);
    for (read, expected) in read.iter().zip(&expected) {
        assert_eq!(read, expected);
    }
    assert_eq!(read.len(), expected.len());
}

fn read_back(broker: &Broker, topics: &BTreeSet<&'static str>, count: usize) -> Vec<ProducedRecord> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap_servers())
        .set("group.id", "read-back")
        .set("auto.offset.reset", "earliest")
        .set("allow.auto.create.topics", "false")
        .create()
        .expect("a consumer");
    consumer.subscribe(&topics.iter().copied().collect::<Vec<_>>()).expect("a subscription");
    let clock = Clock::system();
    let mut records = Vec::new();
    while records.len() < count {
        assert!(clock.monotonic() < Duration::from_secs(60), "only {} of {count} came back", records.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) else { continue };
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| lazaret::domain::record::Header {
                name: header.key.as_bytes().to_vec(),
                value: header.value.map(<[u8]>::to_vec),
            })
        });
        records.push(ProducedRecord {
            topic: topics.get(message.topic()).expect("a topic of ours"),
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.into_iter().flatten().collect(),
            timestamp_ms: message.timestamp().to_millis().expect("a timestamp"),
        });
    }
    records
}

fn json(record: &ProducedRecord) -> serde_json::Value {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default()
}

fn fate(record: &ProducedRecord) -> Option<String> {
    json(record).get("demo_fate").and_then(|fate| fate.as_str().map(str::to_owned))
}

fn size(record: &ProducedRecord) -> usize {
    let headers: usize = record.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Vec::len)).sum();
    record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len) + headers
}
