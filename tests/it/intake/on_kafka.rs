//! What only a real broker can show: recreation, order, retention, transactions, compaction, membership.

use std::time::Duration;

use lazaret::domain::settings::Start;
use lazaret::kafka::intake::IntakeCommand;
use lazaret::services::intake::Connection;
use lazaret::store::Store;
use lazaret::store::positions::GapKind;

use super::offsets;
use super::rig::{Rig, both_until, produce, records};
use crate::on_real_kafka;
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::unique;

/// A database of its own and topics of its own on the real broker.
async fn real(store: Store, name: &str) -> (Rig, Topics, String) {
    let topics = Topics::real();
    let topic = format!("{}.DLQ", unique(name));
    let rig = Rig::new(store, topics.bootstrap(), &topic);
    (rig, topics, topic)
}

on_real_kafka! {
    async fn i1_a_recreated_topic_is_a_second_life(store: Store) {
        let (rig, topics, topic) = real(store, "i1").await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "first"));
        let mut instance = rig.instance();
        instance.until("100 are in", async || rig.count(&topic).await == 100).await;
        topics.delete(&[&topic]).await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(20, 0, "second"));
        instance.until("20 more are in", async || rig.count(&topic).await == 120).await;
        let stored = rig.stored(&topic).await;
        assert_eq!(stored, [((1, 0), offsets(100)), ((2, 0), offsets(20))].into());
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        let lives = rig.store.incarnations(dlq.id).await.expect("readable");
        assert_eq!(lives.len(), 2);
        assert!(lives[0].topic_id.is_some() && lives[0].topic_id != lives[1].topic_id, "{lives:?}");
        assert!(rig.store.gaps(dlq.id, 10).await.expect("readable").is_empty(), "a new life is no truncation");
    }

    async fn i2_recreated_with_more_records_than_before(store: Store) {
        let (mut rig, topics, topic) = real(store, "i2").await;
        // No listing happens in between: only the batch itself can tell.
        rig.cluster.discovery_interval_s = 3_600;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "first"));
        let mut instance = rig.instance();
        instance.until("100 are in", async || rig.count(&topic).await == 100).await;
        // The old position is a valid offset of the new topic.
        topics.delete(&[&topic]).await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(150, 0, "second"));
        instance.until("150 more are in", async || rig.count(&topic).await == 250).await;
        assert_eq!(rig.stored(&topic).await, [((1, 0), offsets(100)), ((2, 0), offsets(150))].into());
    }

    async fn i2_recreated_while_no_instance_ran(store: Store) {
        let (rig, topics, topic) = real(store, "i2b").await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "first"));
        rig.instance().until("100 are in", async || rig.count(&topic).await == 100).await;
        topics.delete(&[&topic]).await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(150, 0, "second"));
        rig.instance().until("150 more are in", async || rig.count(&topic).await == 250).await;
        assert_eq!(rig.stored(&topic).await, [((1, 0), offsets(100)), ((2, 0), offsets(150))].into());
    }

    async fn i3_a_grown_topic_is_read_from_the_beginning_of_its_new_partitions(store: Store) {
        let (mut rig, topics, topic) = real(store, "i3").await;
        rig = rig.start_at(Start::Latest);
        topics.create(&topic, 3, &[]).await;
        let mut instance = rig.instance();
        instance.until("it reads three", async || rig.positions(&topic).await.len() == 3).await;
        topics.grow(&topic, 6).await;
        produce(topics.bootstrap(), &topic, records(4, 5, "new"));
        instance.until("the records of partition 5 are in", async || rig.count(&topic).await == 4).await;
        assert_eq!(rig.stored(&topic).await, [((1, 5), offsets(4))].into());
    }

    async fn i7_markers_and_compaction_are_no_new_life(store: Store) {
        let (rig, topics, topic) = real(store, "i7").await;
        let compacted = [("cleanup.policy", "compact"), ("segment.ms", "200"), ("min.cleanable.dirty.ratio", "0.01"), ("max.compaction.lag.ms", "200")];
        topics.create(&topic, 1, &compacted).await;
        let producer = TestProducer::transactional(topics.bootstrap(), &topic);
        producer.begin();
        producer.send_all(&topic, [NewRecord::value("one").key("k").on_partition(0)]);
        producer.commit();
        producer.begin();
        producer.send_all(&topic, [NewRecord::value("never").key("aborted").on_partition(0)]);
        producer.abort();
        let mut instance = rig.instance();
        instance.until("the position is past the markers", async || rig.positions(&topic).await == [4]).await;
        assert_eq!(rig.stored(&topic).await, [((1, 0), vec![0])].into());
        drop(instance);
        // The position's predecessors go: the same key is written again and the old one is compacted away.
        produce(topics.bootstrap(), &topic, vec![NewRecord::value("two").key("k").on_partition(0)]);
        let mut instance = rig.instance();
        instance.until("the second is in", async || rig.count(&topic).await == 2).await;
        let (inspector, partition) = (rig.inspector(), (topic.clone(), 0));
        let mut n = 0;
        loop {
            let (inspector, partition) = (inspector.clone(), partition.clone());
            let first = tokio::task::spawn_blocking(move || inspector.record_at(&partition, 0, Duration::from_secs(10))).await.expect("asked");
            if first.expect("readable").is_some_and(|record| record.offset > 0) {
                break;
            }
            // A segment is only compacted once another follows it.
            produce(topics.bootstrap(), &topic, vec![NewRecord::value("roll").key("roll").on_partition(0)]);
            n += 1;
            assert!(n < 90, "the log cleaner never came");
            instance.go_on_for(Duration::from_secs(1)).await;
        }
        let all = 2 + i64::from(n);
        instance.until("all are in", async || rig.count(&topic).await == all).await;
        drop(instance);
        let mut instance = rig.instance();
        instance.discover().await;
        instance.go_on_for(Duration::from_secs(5)).await;
        assert_eq!(rig.count(&topic).await, all, "nothing is stored twice");
        assert_eq!(rig.store.dlq("main", &topic).await.expect("readable").expect("there").incarnation, 1);
    }

    async fn i8_an_age_leaves_older_records_out_and_says_so(store: Store) {
        let (mut rig, topics, topic) = real(store, "i8").await;
        const DAY: i64 = 86_400_000;
        rig = rig.start_at(Start::Age { ms: 7 * DAY });
        topics.create(&topic, 1, &[]).await;
        let now = rig.clock.now_ms();
        let old = records(50, 0, "old").into_iter().map(|record| record.at(now - 30 * DAY));
        let young = records(10, 0, "young").into_iter().map(|record| record.at(now - 6 * DAY));
        produce(topics.bootstrap(), &topic, old.chain(young).collect());
        let mut instance = rig.instance();
        instance.until("the young are in", async || rig.count(&topic).await == 10).await;
        assert_eq!(rig.stored(&topic).await, [((1, 0), (50..60).collect::<Vec<i64>>())].into());
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        let note = dlq.start_note.expect("what was left out is said");
        assert!(note.contains("start = \"7d\"") && note.contains("up to 50"), "{note}");
    }

    async fn a_topic_that_appears_while_running_is_read_whole(store: Store) {
        let (mut rig, topics, topic) = real(store, "new").await;
        rig = rig.start_at(Start::Latest);
        let mut instance = rig.instance();
        instance.discover().await;
        topics.create(&topic, 2, &[]).await;
        produce(topics.bootstrap(), &topic, records(9, 1, "x"));
        instance.until("all of it is in", async || rig.count(&topic).await == 9).await;
        assert_eq!(rig.stored(&topic).await, [((1, 1), offsets(9))].into());
    }

    async fn start_latest_says_what_it_leaves_out(store: Store) {
        let (mut rig, topics, topic) = real(store, "latest").await;
        rig = rig.start_at(Start::Latest);
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(12, 0, "before"));
        let mut instance = rig.instance();
        instance.until("it is placed", async || rig.positions(&topic).await == [12]).await;
        produce(topics.bootstrap(), &topic, records(3, 0, "after"));
        instance.until("the later ones are in", async || rig.count(&topic).await == 3).await;
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        assert!(dlq.start_note.is_some_and(|note| note.contains("up to 12")));
    }

    async fn what_retention_took_is_a_gap(store: Store) {
        let (rig, topics, topic) = real(store, "gap").await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "x"));
        let mut instance = rig.instance();
        instance.until("100 are in", async || rig.count(&topic).await == 100).await;
        drop(instance);
        produce(topics.bootstrap(), &topic, records(100, 0, "lost"));
        topics.delete_records_before(&topic, 0, 150).await;
        let mut instance = rig.instance();
        instance.until("the rest is in", async || rig.count(&topic).await == 150).await;
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        let gaps = rig.store.gaps(dlq.id, 10).await.expect("readable");
        assert_eq!(gaps.len(), 1);
        assert_eq!((gaps[0].kind, gaps[0].from_offset, gaps[0].to_offset), (GapKind::Retention, 100, 150));
        let expected: Vec<i64> = (0..100).chain(150..200).collect();
        assert_eq!(rig.stored(&topic).await, [((1, 0), expected)].into());
    }

    async fn what_retention_took_while_running_is_a_gap_too(store: Store) {
        let (mut rig, topics, topic) = real(store, "rungap").await;
        rig.cluster.discovery_interval_s = 1;
        topics.create(&topic, 2, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "x"));
        let mut instance = rig.instance();
        instance.until("100 are in", async || rig.count(&topic).await == 100).await;
        // The consumer falls so far behind that the log start overtakes it.
        instance.obey(vec![IntakeCommand::Pause((topic.clone(), 0))]);
        instance.go_on_for(Duration::from_millis(200)).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "lost"));
        topics.delete_records_before(&topic, 0, 150).await;
        instance.until("the rest is in", async || rig.count(&topic).await == 150).await;
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        let gaps = rig.store.gaps(dlq.id, 10).await.expect("readable");
        let gaps: Vec<_> = gaps.iter().map(|gap| (gap.kind, gap.from_offset, gap.to_offset)).collect();
        assert_eq!(gaps, vec![(GapKind::Retention, 100, 150)]);
    }

    /// The position that the consumer is told to read from is out of range by the time it asks: it stops and cannot say which.
    async fn an_offset_reset_is_answered_by_a_seek(store: Store) {
        let (mut rig, topics, topic) = real(store, "reset").await;
        rig.cluster.discovery_interval_s = 3_600;
        topics.create(&topic, 2, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "x"));
        let mut instance = rig.instance();
        instance.until("100 are in", async || rig.count(&topic).await == 100).await;
        instance.obey(vec![IntakeCommand::Pause((topic.clone(), 0))]);
        instance.go_on_for(Duration::from_millis(200)).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "lost"));
        topics.delete_records_before(&topic, 0, 150).await;
        instance.obey(vec![IntakeCommand::Start { partition: (topic.clone(), 0), offset: 100, generation: 0 }]);
        instance.until("the rest is in", async || rig.count(&topic).await == 150).await;
        assert!(instance.seen().iter().any(|event| event == "OffsetReset"), "{:?}", instance.seen());
        produce(topics.bootstrap(), &topic, records(5, 1, "other"));
        instance.until("the other partition goes on too", async || rig.count(&topic).await == 155).await;
    }

    async fn instances_come_and_go(store: Store) {
        let (rig, topics, topic) = real(store, "churn").await;
        topics.create(&topic, 6, &[]).await;
        let fill = |word: &str| (0..6).for_each(|partition| produce(topics.bootstrap(), &topic, records(1_000, partition, word)));
        fill("first");
        let (mut a, mut b) = (rig.instance(), rig.instance());
        a.until("one reads", async || rig.count(&topic).await > 0).await;
        both_until(&mut a, &mut b, "all are in", async || rig.count(&topic).await == 6_000).await;
        fill("second");
        both_until(&mut a, &mut b, "some of the second", async || rig.count(&topic).await > 6_500).await;
        drop(b);
        let mut c = rig.instance();
        both_until(&mut a, &mut c, "all of the second", async || rig.count(&topic).await == 12_000).await;
        drop(a);
        fill("third");
        c.until("all of the third", async || rig.count(&topic).await == 18_000).await;
        let stored = rig.stored(&topic).await;
        assert!(stored.len() == 6 && stored.values().all(|found| *found == offsets(3_000)));
    }

    async fn a_truncated_log_is_a_gap_and_goes_on_at_its_end(store: Store) {
        let (rig, topics, topic) = real(store, "cut").await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(10, 0, "x"));
        rig.instance().until("10 are in", async || rig.count(&topic).await == 10).await;
        // What an unclean leader election leaves behind: a position past the end of the same topic.
        let dlq = rig.store.dlq("main", &topic).await.expect("readable").expect("there");
        let id = lazaret::store::positions::PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 0 };
        let position = rig.store.claim_position(id, 0).await.expect("claimed").expect("there");
        let ahead = lazaret::store::messages::PartitionBatch {
            id,
            owner_epoch: position.owner_epoch,
            expected_offset: 10,
            next_offset: 25,
            messages: Vec::new(),
        };
        rig.store.take_in(&[ahead], 0).await.expect("moved");
        let mut instance = rig.instance();
        instance.until("it goes on at the end", async || rig.positions(&topic).await == [10]).await;
        produce(topics.bootstrap(), &topic, records(3, 0, "later"));
        instance.until("later ones are in", async || rig.count(&topic).await == 13).await;
        let gaps = rig.store.gaps(dlq.id, 10).await.expect("readable");
        assert_eq!((gaps[0].kind, gaps[0].from_offset, gaps[0].to_offset), (GapKind::Truncation, 25, 10));
    }

    async fn a_vanished_topic_is_gone_and_its_messages_stay(store: Store) {
        let (rig, topics, topic) = real(store, "gone").await;
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(5, 0, "x"));
        let mut instance = rig.instance();
        instance.until("5 are in", async || rig.count(&topic).await == 5).await;
        topics.delete(&[&topic]).await;
        let gone = async || rig.store.dlq("main", &topic).await.expect("readable").expect("there").gone_since_ms.is_some();
        instance.until("it is gone", gone).await;
        assert_eq!(rig.count(&topic).await, 5);
        topics.create(&topic, 1, &[]).await;
        produce(topics.bootstrap(), &topic, records(2, 0, "again"));
        instance.until("the second life is in", async || rig.count(&topic).await == 7).await;
        assert!(!gone().await);
    }
}

/// A door before the real broker: closed at first. Only the first contact goes through it; then the broker names itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn i5_real_broker_comes_up_later() {
    let (store, _folder) = crate::support::sqlite().await;
    let topics = Topics::real();
    let topic = format!("{}.DLQ", unique("i5"));
    topics.create(&topic, 1, &[]).await;
    produce(topics.bootstrap(), &topic, records(8, 0, "x"));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let door = closed.local_addr().expect("an address");
    drop(closed);
    let rig = Rig::new(store, &door.to_string(), &topic);
    let mut instance = rig.instance();
    let status = instance.status.clone();
    instance.until("it says so", async || matches!(status.view().connection, Connection::Disconnected { .. })).await;
    let listener = tokio::net::TcpListener::bind(door).await.expect("the door opens");
    let broker = topics.bootstrap().to_owned();
    let doorman = async move {
        let mut visits = tokio::task::JoinSet::new();
        loop {
            let (mut visitor, _) = listener.accept().await.expect("a visitor");
            let broker = broker.clone();
            visits.spawn(async move {
                let mut host = tokio::net::TcpStream::connect(broker).await.expect("the broker is there");
                let _ = tokio::io::copy_bidirectional(&mut visitor, &mut host).await;
            });
        }
    };
    tokio::select! {
        () = doorman => {}
        () = instance.until("all are in", async || rig.count(&topic).await == 8) => {}
    }
    assert_eq!(status.view().connection, Connection::Connected);
}

mod i4_a_stalled_database {
    use super::*;
    use sqlx::Connection as _;

    const STALL: Duration = Duration::from_secs(9);

    /// `max.poll.interval.ms` is far shorter than the stall; the broker's shortest session is 6 s.
    async fn stalled<S>(rig: Rig, topics: Topics, topic: String, stop: impl Future<Output = S>, go_on: impl AsyncFnOnce(S)) {
        let rig = rig.property("session.timeout.ms", "6000").property("max.poll.interval.ms", "6000");
        topics.create(&topic, 2, &[]).await;
        produce(topics.bootstrap(), &topic, records(100, 0, "before"));
        let mut instance = rig.instance();
        instance.until("the first are in", async || rig.count(&topic).await == 100).await;
        let stopped = stop.await;
        for partition in 0..2 {
            produce(topics.bootstrap(), &topic, records(3_000, partition, "during"));
        }
        instance.go_on_at_least(STALL, async move || go_on(stopped).await).await;
        instance.until("all are in", async || rig.count(&topic).await == 6_100).await;
        assert_eq!(rig.stored(&topic).await, [((1, 0), offsets(3_100)), ((1, 1), offsets(3_000))].into());
        assert!(instance.status.view().stalled.is_none());
        let revoked = instance.seen().iter().filter(|event| event.starts_with("Revoked")).count();
        assert_eq!(revoked, 0, "it kept its membership");
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs a real Kafka and a real PostgreSQL: run tests/run"]
    async fn postgres() {
        let url = crate::support::postgres_url().await;
        let store = Store::connect(&url).await.expect("opens");
        store.migrate().await.expect("migrates");
        let (rig, topics, topic) = real(store, "i4").await;
        let lock = async {
            let mut other = sqlx::PgConnection::connect(&url).await.expect("a second connection");
            sqlx::query("BEGIN").execute(&mut other).await.expect("begins");
            sqlx::query("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE").execute(&mut other).await.expect("locks");
            other
        };
        let unlock = async |mut other: sqlx::PgConnection| {
            sqlx::query("ROLLBACK").execute(&mut other).await.expect("lets go");
        };
        stalled(rig, topics, topic, lock, unlock).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs a real Kafka: run tests/run"]
    async fn sqlite() {
        let (store, folder) = crate::support::sqlite().await;
        let (rig, topics, topic) = real(store, "i4").await;
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let lock = async {
            let mut other = sqlx::SqliteConnection::connect(&url).await.expect("a second connection");
            sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.expect("locks");
            other
        };
        let unlock = async |mut other: sqlx::SqliteConnection| {
            sqlx::query("ROLLBACK").execute(&mut other).await.expect("lets go");
        };
        stalled(rig, topics, topic, lock, unlock).await;
    }
}
