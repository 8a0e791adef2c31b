//! Look-ups that join no group and change nothing.

use lazaret::domain::clock::Clock;
use lazaret::domain::health::Retention;
use lazaret::kafka::client::KafkaError;
use lazaret::kafka::inspect::{Inspector, LogEnds, TopicPartition};
use rdkafka::mocking::MockCluster;

use super::{PATIENCE, cluster};
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::unique;

/// What an inspector does blocks; here it may, on a thread of its own.
async fn ask<T: Send + 'static>(bootstrap: &str, question: impl FnOnce(&Inspector) -> T + Send + 'static) -> T {
    let settings = cluster(bootstrap);
    tokio::task::spawn_blocking(move || question(&Inspector::connect(&settings).expect("the settings are fine"))).await.expect("no panic")
}

fn partitions(topic: &str, count: i32) -> Vec<TopicPartition> {
    (0..count).map(|partition| (topic.to_owned(), partition)).collect()
}

// ------------------------------------------------------------------------------------------------- the in-process broker

#[tokio::test(flavor = "multi_thread")]
async fn the_in_process_broker_answers_what_it_can() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 3, 1).unwrap();
    TestProducer::at(&broker.bootstrap_servers())
        .send_all("dlq", (0..10).map(|n| NewRecord::value(format!("v{n}")).on_partition(0).header("h", Some(b"1"))));
    ask(&broker.bootstrap_servers(), |inspector| {
        let began = Clock::system();
        let topics = inspector.topics(PATIENCE).unwrap();
        assert_eq!(topics.iter().map(|topic| (topic.name.as_str(), topic.partitions)).collect::<Vec<_>>(), [("dlq", 3)]);

        let ends = inspector.log_ends(&partitions("dlq", 3), PATIENCE);
        assert_eq!(ends[&("dlq".into(), 0)], Ok(LogEnds { start: 0, end: 10 }));
        assert_eq!(ends[&("dlq".into(), 2)], Ok(LogEnds { start: 0, end: 0 }));

        let record = inspector.record_at(&("dlq".into(), 0), 4, PATIENCE).unwrap().unwrap();
        assert_eq!((record.offset, record.value.as_deref(), record.headers.len()), (4, Some(b"v4".as_slice()), 1));
        assert_eq!(inspector.record_at(&("dlq".into(), 0), 10, PATIENCE), Ok(None));

        assert_eq!(inspector.retention(&["dlq".into()], PATIENCE)["dlq"], Retention::Unknown);
        let ids = inspector.topic_ids(&["dlq".into(), "absent".into()], PATIENCE).unwrap();
        assert_eq!(ids.keys().collect::<Vec<_>>(), ["dlq"]);
        assert!(began.monotonic() < PATIENCE / 2, "what it cannot answer is not waited for: {:?}", began.monotonic());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_is_an_error_that_says_why() {
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let asked = address.clone();
    ask(&address, move |inspector| {
        let short = std::time::Duration::from_secs(2);
        let error = inspector.topics(short).unwrap_err();
        assert!(
            matches!(&error, KafkaError::Unreachable { reason, .. } if reason.contains("refused") && reason.contains(&asked)),
            "{error}"
        );
        let ends = inspector.log_ends(&partitions("dlq", 2), short);
        assert!(ends.values().all(|end| matches!(end, Err(KafkaError::Unreachable { .. }))) && ends.len() == 2, "{ends:?}");
        assert_eq!(inspector.retention(&["dlq".into()], short)["dlq"], Retention::Unknown);
        assert!(inspector.topic_ids(&["dlq".into()], short).is_err());
        assert!(inspector.record_at(&("dlq".into(), 0), 0, short).is_err());
    })
    .await;
}

// --------------------------------------------------------------------------------------------------------- a real broker

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_topic_id_is_stable_and_changes_with_recreation() {
    let topics = Topics::real();
    let topic = unique("id");
    let id_of = async |name: &str| {
        let names = [name.to_owned(), "absent-for-ever".to_owned()];
        let ids = ask(Topics::real().bootstrap(), move |inspector| inspector.topic_ids(&names, PATIENCE).unwrap()).await;
        assert!(!ids.contains_key("absent-for-ever"));
        ids.get(name).cloned().map(|id| id.expect("this broker has ids"))
    };
    assert_eq!(id_of(&topic).await, None);
    topics.create(&topic, 1, &[]).await;
    let first = id_of(&topic).await.expect("it exists");
    assert_eq!(first.len(), 22, "16 bytes in base64: {first}");
    topics.grow(&topic, 2).await;
    assert_eq!(id_of(&topic).await.as_ref(), Some(&first));
    topics.delete(&[&topic]).await;
    topics.create(&topic, 1, &[]).await;
    let second = id_of(&topic).await.expect("it exists again");
    assert_ne!(first, second);
    topics.delete(&[&topic]).await;
    assert!(!topics.names().contains(&"absent-for-ever".to_owned()), "asking for a topic must not make it");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_missing_partition_among_600_spoils_none_of_the_others() {
    let topics = Topics::real();
    let (topic, absent) = (unique("many"), unique("absent"));
    topics.create(&topic, 600, &[]).await;
    let producer = TestProducer::at(topics.bootstrap());
    producer.send_all(&topic, (0..6).map(|n| NewRecord::value("v").on_partition(n * 100)));
    topics.delete_records_before(&topic, 500, 1).await;

    let (asked, nowhere) = (topic.clone(), absent.clone());
    ask(topics.bootstrap(), move |inspector| {
        let mut all = partitions(&asked, 600);
        all.insert(300, (asked.clone(), 4711));
        all.push((nowhere.clone(), 0));
        let began = Clock::system();
        let ends = inspector.log_ends(&all, PATIENCE);
        assert!(began.monotonic() < PATIENCE / 2, "a missing partition is no reason to wait: {:?}", began.monotonic());
        assert_eq!(ends.len(), 602);
        for partition in 0..600 {
            let expected = match partition {
                500 => LogEnds { start: 1, end: 1 },
                n if n % 100 == 0 => LogEnds { start: 0, end: 1 },
                _ => LogEnds { start: 0, end: 0 },
            };
            assert_eq!(ends[&(asked.clone(), partition)], Ok(expected), "partition {partition}");
        }
        for missing in [(asked.clone(), 4711), (nowhere.clone(), 0)] {
            assert!(
                matches!(&ends[&missing], Err(KafkaError::Other { reason, .. }) if reason.contains("no partition")),
                "{:?}",
                ends[&missing]
            );
        }
        let at = inspector.offsets_at(&all, 0, PATIENCE);
        assert!(at[&(asked.clone(), 4711)].is_err() && at[&(nowhere.clone(), 0)].is_err());
        assert_eq!(at[&(asked.clone(), 500)], Ok(1));
    })
    .await;
    assert!(!topics.names().contains(&absent), "asking for a topic must not make it");
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_time_is_found_or_the_end() {
    let topics = Topics::real();
    let topic = unique("times");
    topics.create(&topic, 2, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, (1..=5).map(|n| NewRecord::value("v").on_partition(0).at(n * 1_000_000)));
    let asked = topic.clone();
    ask(topics.bootstrap(), move |inspector| {
        for (at_ms, expected) in [(-5, 0), (0, 0), (1_000_000, 0), (1_000_001, 1), (5_000_000, 4), (5_000_001, 5)] {
            let found = inspector.offsets_at(&partitions(&asked, 2), at_ms, PATIENCE);
            assert_eq!(found[&(asked.clone(), 0)], Ok(expected), "at {at_ms}");
            assert_eq!(found[&(asked.clone(), 1)], Ok(0), "an empty partition's end");
        }
    })
    .await;
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn the_end_is_that_of_committed_records() {
    let topics = Topics::real();
    let topic = unique("stable");
    topics.create(&topic, 1, &[]).await;
    let producer = TestProducer::transactional(topics.bootstrap(), &unique("tx"));
    producer.begin();
    producer.send_all(&topic, [NewRecord::value("open")]);
    let end = async || {
        let asked = topic.clone();
        ask(Topics::real().bootstrap(), move |inspector| {
            (
                inspector.log_ends(&[(asked.clone(), 0)], PATIENCE)[&(asked.clone(), 0)].clone(),
                inspector.record_at(&(asked, 0), 0, PATIENCE),
            )
        })
        .await
    };
    assert_eq!(end().await, (Ok(LogEnds { start: 0, end: 0 }), Ok(None)));
    producer.abort();
    // Two offsets, an aborted record and its marker, and nothing to read.
    assert_eq!(end().await, (Ok(LogEnds { start: 0, end: 2 }), Ok(None)));
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_record_is_read_from_where_it_is() {
    let topics = Topics::real();
    let topic = unique("one");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, (0..100).map(|n| NewRecord::value(format!("v{n}"))));
    topics.delete_records_before(&topic, 0, 40).await;
    let asked = topic.clone();
    ask(topics.bootstrap(), move |inspector| {
        for offset in [40, 99, 41] {
            let record = inspector.record_at(&(asked.clone(), 0), offset, PATIENCE).unwrap().unwrap();
            assert_eq!((record.offset, record.value), (offset, Some(format!("v{offset}").into_bytes())));
        }
        assert_eq!(inspector.record_at(&(asked.clone(), 0), 100, PATIENCE), Ok(None));
        for outside in [3, 1000] {
            assert!(inspector.record_at(&(asked.clone(), 0), outside, PATIENCE).is_err(), "{outside}");
        }
        let short = std::time::Duration::from_secs(5);
        assert!(inspector.record_at(&(asked.clone(), 7), 0, short).is_err());
        assert!(inspector.record_at(&("absent-for-ever".into(), 0), 0, short).is_err());
    })
    .await;
    assert!(!topics.names().contains(&"absent-for-ever".to_owned()), "asking for a topic must not make it");
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn retention_is_what_the_topic_says() {
    let topics = Topics::real();
    let (week, ever, compact) = (unique("week"), unique("ever"), unique("compact"));
    topics.create(&week, 1, &[("retention.ms", "604800000")]).await;
    topics.create(&ever, 1, &[]).await;
    topics.create(&compact, 1, &[("cleanup.policy", "compact"), ("retention.ms", "1000")]).await;
    let names = vec![week.clone(), ever.clone(), compact.clone(), "absent-for-ever".to_owned()];
    let retention = ask(topics.bootstrap(), move |inspector| inspector.retention(&names, PATIENCE)).await;
    assert_eq!(retention[&week], Retention::Ms(604_800_000));
    assert_eq!(retention[&ever], Retention::Unlimited);
    assert_eq!(retention[&compact], Retention::Unlimited);
    assert_eq!(retention["absent-for-ever"], Retention::Unknown);
    topics.delete(&[&week, &ever, &compact]).await;
}

/// Internal topics are nobody's dead letters, and a list is only a list.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn topics_are_listed_without_the_internal_ones() {
    let topics = Topics::real();
    let topic = unique("listed");
    topics.create(&topic, 4, &[]).await;
    let listed = ask(topics.bootstrap(), |inspector| inspector.topics(PATIENCE).unwrap()).await;
    assert_eq!(listed.iter().find(|info| info.name == topic).map(|info| info.partitions), Some(4));
    assert!(listed.iter().all(|info| !info.name.starts_with("__consumer")), "{listed:?}");
    topics.delete(&[&topic]).await;
}
