//! How records flow: assignment, start, positions, back-pressure, hand-over.

use std::time::Duration;

use lazaret::kafka::intake::{BatchLimits, IntakeCommand, IntakeConsumer, IntakeEvent};
use rdkafka::mocking::MockCluster;

use super::{PATIENCE, Reading, cluster, limits, values, with};
use crate::support::producer::{NewRecord, TestProducer, Topics, until};
use crate::support::unique;

fn numbered(count: usize) -> impl Iterator<Item = NewRecord> {
    (0..count).map(|n| NewRecord::value(format!("v{n}")).on_partition(0))
}

// ------------------------------------------------------------------------------------------------- the in-process broker

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_delivers_nothing_until_told_where_to_start() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 2, 1).unwrap();
    let producer = TestProducer::at(&broker.bootstrap_servers());
    producer.send_all("dlq", (0..20).map(|n| NewRecord::value(format!("v{n}")).on_partition(n % 2)));

    let mut consumer = IntakeConsumer::start(&cluster(&broker.bootstrap_servers()), limits()).unwrap();
    consumer.command(IntakeCommand::Subscribe(vec!["dlq".into()]));
    let assigned = loop {
        match tokio::time::timeout(PATIENCE, consumer.next_event()).await.expect("in time") {
            IntakeEvent::Assigned(partitions) => break partitions,
            IntakeEvent::Connection { up: true, .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(assigned, [("dlq".to_owned(), 0), ("dlq".to_owned(), 1)]);

    // Only partition 1 is started: nothing of partition 0 may come with it.
    consumer.command(IntakeCommand::Start { partition: ("dlq".into(), 1), offset: 4, generation: 7 });
    let mut offsets = Vec::new();
    while offsets.len() < 6 {
        match tokio::time::timeout(PATIENCE, consumer.next_event()).await.expect("in time") {
            IntakeEvent::Batch(batch) => {
                for (partition, read) in batch.partitions {
                    assert_eq!((partition.1, read.generation), (1, 7));
                    offsets.extend(read.records.iter().map(|record| record.offset));
                }
            }
            IntakeEvent::Connection { up: true, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(offsets, [4, 5, 6, 7, 8, 9]);
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_start_voids_what_was_read_before() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 1, 1).unwrap();
    TestProducer::at(&broker.bootstrap_servers()).send_all("dlq", numbered(100));
    let mut reading = Reading::of(&cluster(&broker.bootstrap_servers()), &["dlq"]);
    reading.read(100).await;
    assert_eq!(reading.positions[&("dlq".to_owned(), 0)], 100);

    reading.records.clear();
    reading.start(("dlq".into(), 0), 90);
    reading.read(10).await;
    reading.assert_complete(&("dlq".into(), 0), 90, 10);
    reading.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_keep_their_limits() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 1, 1).unwrap();
    TestProducer::at(&broker.bootstrap_servers()).send_all("dlq", (0..30).map(|_| NewRecord::value(vec![b'x'; 1000]).on_partition(0)));
    let by_count = BatchLimits { records: 7, bytes: usize::MAX, linger: Duration::from_secs(1) };
    let by_bytes = BatchLimits { records: usize::MAX, bytes: 5000, linger: Duration::from_secs(1) };
    for (limits, batches) in [(by_count, 5), (by_bytes, 6)] {
        let mut reading = Reading::with_limits(&cluster(&broker.bootstrap_servers()), &["dlq"], limits);
        reading.read(30).await;
        assert_eq!(reading.batches, batches, "{limits:?}");
        reading.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_told_once_and_found_again() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 1, 1).unwrap();
    broker.broker_down(1).unwrap();
    let mut reading = Reading::of(&cluster(&broker.bootstrap_servers()), &["dlq"]);
    reading.until("down", |reading| reading.link == [false]).await;

    broker.broker_up(1).unwrap();
    reading.until("up", |reading| reading.link == [false, true]).await;
    TestProducer::at(&broker.bootstrap_servers()).send_all("dlq", numbered(3));
    reading.read(3).await;

    broker.broker_down(1).unwrap();
    reading.until("down again", |reading| reading.link == [false, true, false]).await;
    broker.broker_up(1).unwrap();
    reading.until("up again", |reading| reading.link == [false, true, false, true]).await;
    TestProducer::at(&broker.bootstrap_servers()).send_all("dlq", numbered(3));
    reading.read(6).await;
    reading.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_past_the_end_is_reported_and_a_new_start_recovers() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("dlq", 1, 1).unwrap();
    TestProducer::at(&broker.bootstrap_servers()).send_all("dlq", numbered(10));
    let mut reading = Reading::of(&cluster(&broker.bootstrap_servers()), &["dlq"]);
    reading.from = 1000;
    reading.until("the reset", |reading| reading.resets > 0).await;
    assert!(reading.records.is_empty());
    reading.start(("dlq".into(), 0), 0);
    reading.read(10).await;
    reading.stop().await;
}

// --------------------------------------------------------------------------------------------------------- a real broker

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn an_offset_past_the_end_recovers_on_a_real_broker_too() {
    let topics = Topics::real();
    let topic = unique("reset");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, numbered(10));
    topics.delete_records_before(&topic, 0, 5).await;
    for outside in [1000, 2] {
        let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
        reading.from = outside;
        reading.until("the reset", |reading| reading.resets > 0).await;
        assert!(reading.records.is_empty());
        reading.start((topic.clone(), 0), 5);
        reading.read(5).await;
        reading.stop().await;
    }
    topics.delete(&[&topic]).await;
}

/// Case M1, and the case of I7: the position steps over what is no record, also when no record follows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn the_position_steps_over_transaction_markers() {
    let topics = Topics::real();
    let topic = unique("markers");
    topics.create(&topic, 1, &[]).await;
    let partition = (topic.clone(), 0);
    TestProducer::at(topics.bootstrap()).send_all(&topic, numbered(10));
    let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
    reading.until("the plain records", |reading| reading.positions.get(&partition) == Some(&10)).await;

    let producer = TestProducer::transactional(topics.bootstrap(), &unique("tx"));
    producer.begin();
    producer.send_all(&topic, [NewRecord::value("committed")]);
    producer.commit();
    reading.until("one record and its marker", |reading| reading.positions.get(&partition) == Some(&12)).await;
    assert_eq!(reading.records.len(), 11);

    producer.begin();
    producer.send_all(&topic, [NewRecord::value("aborted")]);
    producer.abort();
    reading.until("an aborted record and its marker", |reading| reading.positions.get(&partition) == Some(&14)).await;
    assert_eq!(reading.records.len(), 11, "an aborted record is no dead letter");

    // A start in the middle of nothing but markers: no record, and the position moves all the same.
    reading.start(partition.clone(), 12);
    reading.positions.clear();
    reading.until("markers alone", |reading| reading.positions.get(&partition) == Some(&14)).await;
    assert_eq!(reading.records.len(), 11);

    // An open transaction holds the position back until it ends.
    producer.begin();
    producer.send_all(&topic, [NewRecord::value("open")]);
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("behind it")]);
    producer.commit();
    reading.until("both", |reading| reading.positions.get(&partition) == Some(&17)).await;
    assert_eq!(values(&reading.records[11..]), ["open", "behind it"]);
    reading.stop().await;
    topics.delete(&[&topic]).await;
}

/// Case I4 as far as this room goes: nobody takes batches for longer than `max.poll.interval.ms`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_full_queue_loses_and_doubles_nothing_and_keeps_the_membership() {
    const COUNT: usize = 60_000;
    let topics = Topics::real();
    let topic = unique("stall");
    topics.create(&topic, 2, &[]).await;
    let producer = TestProducer::at(topics.bootstrap());
    producer.send_all(&topic, (0..COUNT).map(|n| NewRecord::value(format!("v{n}")).on_partition(i32::from(n % 2 == 1))));

    let quick = [("max.poll.interval.ms", "3000"), ("session.timeout.ms", "3000"), ("heartbeat.interval.ms", "500")];
    let quick = with(cluster(topics.bootstrap()), &quick);
    let mut reading = Reading::of(&quick, &[&topic]);
    for stall_at in [1000, 20_000, 40_000] {
        reading.until("more records", |reading| reading.records.len() >= stall_at).await;
        // Not synchronisation: the stall itself, longer than both time-outs.
        tokio::time::sleep(Duration::from_millis(4500)).await;
    }
    reading.read(COUNT).await;
    for partition in 0..2 {
        reading.assert_complete(&(topic.clone(), partition), 0, COUNT / 2);
    }
    assert_eq!(reading.assigned.len(), 2, "the membership survived");
    assert_eq!(reading.generation, 2, "nothing was assigned twice");
    assert!(reading.errors.is_empty(), "{:?}", reading.errors);
    reading.stop().await;
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn two_consumers_share_a_topic_and_hand_over() {
    let topics = Topics::real();
    let topic = unique("share");
    topics.create(&topic, 4, &[]).await;
    let producer = TestProducer::at(topics.bootstrap());
    let send = |from: usize, to: usize| {
        producer.send_all(&topic, (from..to).map(|n| NewRecord::value(format!("v{n}")).on_partition(i32::try_from(n % 4).unwrap())));
    };
    let group = cluster(topics.bootstrap());
    let mut one = Reading::of(&group, &[&topic]);
    send(0, 40);
    one.read(40).await;

    let mut two = Reading::of(&group, &[&topic]);
    two.positions.clone_from(&one.positions);
    while one.assigned.len() != 2 || two.assigned.len() != 2 {
        tokio::select! {
            () = one.step() => {}
            () = two.step() => {}
        }
    }
    send(40, 80);
    while one.records.len() + two.records.len() < 80 {
        tokio::select! {
            () = one.step() => {}
            () = two.step() => {}
        }
    }
    assert_eq!(two.records.len(), 20);

    let positions = two.positions.clone();
    two.stop().await;
    one.positions.extend(positions);
    one.until("the others' partitions back", |one| one.assigned.len() == 4).await;
    send(80, 120);
    one.read(100).await;
    one.stop().await;
    topics.delete(&[&topic]).await;
}

/// Case I3, and a topic that did not exist when it was subscribed to.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn new_partitions_and_new_topics_are_found_and_none_is_made() {
    let topics = Topics::real();
    let (topic, later, never) = (unique("grow"), unique("later"), unique("never"));
    topics.create(&topic, 3, &[]).await;
    let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic, &later, &never]);
    reading.until("three partitions", |reading| reading.assigned.len() == 3).await;
    topics.grow(&topic, 6).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("in the new one").on_partition(5)]);
    reading.read(1).await;
    topics.create(&later, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&later, [NewRecord::value("in the new topic")]);
    reading.read(2).await;
    assert!(reading.errors.is_empty(), "{:?}", reading.errors);
    assert!(!topics.names().contains(&never), "asking for a topic must not make it");
    reading.stop().await;
    topics.delete(&[&topic, &later]).await;
}

/// Case I1 as far as this room goes: the topic is deleted and made again under the reader.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_recreated_topic_is_read_from_its_new_beginning() {
    let topics = Topics::real();
    let topic = unique("again");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, numbered(100));
    let mut reading = Reading::of(&cluster(topics.bootstrap()), &[&topic]);
    reading.read(100).await;
    topics.delete(&[&topic]).await;
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, numbered(150));
    // The service notices by the topic's id and starts anew.
    reading.positions.clear();
    reading.records.clear();
    reading.until("an assignment", |reading| reading.assigned.contains(&(topic.clone(), 0))).await;
    reading.start((topic.clone(), 0), 0);
    let newest = reading.generation;
    reading.records.clear();
    reading.until("the new records", |reading| reading.records.len() >= 150).await;
    assert!(reading.generation >= newest);
    let tail = &reading.records[reading.records.len() - 150..];
    assert_eq!((tail[0].offset, tail[149].offset), (0, 149));
    reading.stop().await;
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn positions_are_told_to_kafka_for_whoever_watches() {
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    let topics = Topics::real();
    let topic = unique("committed");
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, numbered(10));
    let settings = cluster(topics.bootstrap());
    let mut reading = Reading::of(&settings, &[&topic]);
    reading.read(10).await;
    reading.consumer.command(IntakeCommand::Committed { partition: (topic.clone(), 0), position: 10 });
    let watcher: BaseConsumer =
        rdkafka::ClientConfig::new().set("bootstrap.servers", topics.bootstrap()).set("group.id", &settings.group_id).create().unwrap();
    until(PATIENCE, "the committed position", || {
        let mut list = rdkafka::TopicPartitionList::new();
        list.add_partition(&topic, 0);
        let committed = watcher.committed_offsets(list, PATIENCE).ok()?;
        (committed.elements()[0].offset() == rdkafka::Offset::Offset(10)).then_some(())
    })
    .await;
    reading.stop().await;
    topics.delete(&[&topic]).await;
}
