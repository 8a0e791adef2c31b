//! From dead letters in Kafka to rows in quarantine: the cases I1 to I8 and what several instances, restarts and stalls may do.
//!
//! Loss, order, retention, recreation and transactions are shown on real Kafka; the in-process broker serves what it can prove.

mod jobs;
mod on_kafka;
pub mod rig;

use std::time::Duration;

use lazaret::kafka::intake::IntakeCommand;
use lazaret::services::intake::Connection;
use lazaret::store::Store;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::on_both_stores;
use crate::support::producer::NewRecord;
use rig::{Rig, both_until, produce, records};

type InProcess = MockCluster<'static, DefaultProducerContext>;

fn in_process(topic: &str, partitions: i32) -> InProcess {
    let broker = MockCluster::new(1).expect("an in-process broker");
    broker.create_topic(topic, partitions, 1).expect("a topic");
    broker
}

fn offsets(n: i64) -> Vec<i64> {
    (0..n).collect()
}

on_both_stores! {
    async fn dead_letters_become_messages(store: Store) {
        let broker = in_process("orders.DLQ", 3);
        let bootstrap = broker.bootstrap_servers();
        for partition in 0..3 {
            produce(&bootstrap, "orders.DLQ", records(40, partition, "first"));
        }
        let rig = Rig::new(store, &bootstrap, "orders");
        let mut instance = rig.instance();
        instance.until("120 are in", async || rig.count("orders.DLQ").await == 120).await;
        let stored = rig.stored("orders.DLQ").await;
        assert_eq!(stored.keys().copied().collect::<Vec<_>>(), vec![(1, 0), (1, 1), (1, 2)]);
        assert!(stored.values().all(|found| *found == offsets(40)));
        assert_eq!(rig.positions("orders.DLQ").await, vec![40, 40, 40]);
        let view = instance.status.view();
        assert_eq!((view.connection, view.topics, view.partitions, view.progress.taken_in), (Connection::Connected, Some(1), 3, 120));
        assert_eq!(view.partition_counts.expect("listed").get("orders.DLQ"), Some(&3));
        assert!(view.stalled.is_none() && view.discovery.is_none(), "nothing is wrong");
    }

    /// I6
    async fn i6_one_bad_record_never_blocks_a_partition(store: Store) {
        let broker = in_process("orders.DLQ", 1);
        let bootstrap = broker.bootstrap_servers();
        let bad = NewRecord { key: Some(vec![0, 159, 146, 150]), ..NewRecord::value(vec![0xff, 0, 0xfe, 0x0a, 0]) }
            .header("kafka_dlt-original-offset", Some(b"\x01"))
            .header("kafka_dlt-exception-message", Some(b"nul \x00 and \xc3\x28 no UTF-8"))
            .header("", None);
        let mut three = records(2, 0, "good");
        three.insert(1, bad.on_partition(0));
        produce(&bootstrap, "orders.DLQ", three);
        let rig = Rig::new(store, &bootstrap, "orders");
        rig.instance().until("three are in", async || rig.count("orders.DLQ").await == 3).await;
        let bad = &rig.messages("orders.DLQ").await[1];
        let body = rig.store.body(bad.id).await.expect("readable").expect("there");
        assert_eq!((bad.key.as_deref(), body.value.as_deref()), (Some(&[0, 159, 146, 150][..]), Some(&[0xff, 0, 0xfe, 0x0a, 0][..])));
        assert_eq!(body.headers.len(), 3);
        assert_eq!(body.headers[2].value, None);
    }

    async fn killed_in_the_middle_nothing_is_lost_or_doubled(store: Store) {
        let broker = in_process("orders.DLQ", 2);
        let bootstrap = broker.bootstrap_servers();
        for partition in 0..2 {
            produce(&bootstrap, "orders.DLQ", records(1_500, partition, "x"));
        }
        let rig = Rig::new(store, &bootstrap, "orders");
        // Killed after its first batches: no goodbye, whatever was fetched ahead is gone with it.
        for least in [1, 800, 1_600] {
            let mut instance = rig.instance();
            instance.until("some are in", async || rig.count("orders.DLQ").await >= least).await;
            drop(instance);
        }
        rig.instance().until("all are in", async || rig.count("orders.DLQ").await == 3_000).await;
        assert!(rig.stored("orders.DLQ").await.values().all(|found| *found == offsets(1_500)));
    }

    async fn without_topic_ids_a_recreated_topic_is_known_by_its_records(store: Store) {
        let first = in_process("orders.DLQ", 1);
        produce(&first.bootstrap_servers(), "orders.DLQ", records(30, 0, "first"));
        let rig = Rig::new(store.clone(), &first.bootstrap_servers(), "orders");
        rig.instance().until("the first life is in", async || rig.count("orders.DLQ").await == 30).await;
        drop(first);
        // The same cluster to us: another topic under the name, with more records than the first had.
        let second = in_process("orders.DLQ", 1);
        produce(&second.bootstrap_servers(), "orders.DLQ", records(50, 0, "second"));
        let rig = Rig::new(store.clone(), &second.bootstrap_servers(), "orders");
        rig.instance().until("the second life is in", async || rig.count("orders.DLQ").await == 80).await;
        drop(second);
        // And another with fewer: the old position lies past its end.
        let third = in_process("orders.DLQ", 1);
        produce(&third.bootstrap_servers(), "orders.DLQ", records(7, 0, "third"));
        let rig = Rig::new(store, &third.bootstrap_servers(), "orders");
        rig.instance().until("the third life is in", async || rig.count("orders.DLQ").await == 87).await;
        let stored = rig.stored("orders.DLQ").await;
        assert_eq!(stored.values().map(Vec::len).collect::<Vec<_>>(), vec![30, 50, 7]);
        // Looking again finds the same life.
        let mut again = rig.instance();
        again.discover().await;
        again.discover().await;
        assert_eq!(rig.store.dlq("main", "orders.DLQ").await.expect("readable").expect("there").incarnation, 3);
    }

    async fn two_instances_share_a_group(store: Store) {
        let broker = in_process("orders.DLQ", 4);
        let bootstrap = broker.bootstrap_servers();
        for partition in 0..4 {
            produce(&bootstrap, "orders.DLQ", records(600, partition, "x"));
        }
        let rig = Rig::new(store, &bootstrap, "orders");
        let (mut a, mut b) = (rig.instance(), rig.instance());
        both_until(&mut a, &mut b, "both discover, one position each", async || rig.positions("orders.DLQ").await.len() == 4).await;
        a.until("the first reads", async || rig.count("orders.DLQ").await > 0).await;
        both_until(&mut a, &mut b, "all are in", async || rig.count("orders.DLQ").await == 2_400).await;
        // One dies; the other goes on with all of it.
        drop(a);
        for partition in 0..4 {
            produce(&bootstrap, "orders.DLQ", records(50, partition, "later"));
        }
        b.until("the rest is in", async || rig.count("orders.DLQ").await == 2_600).await;
        assert!(rig.stored("orders.DLQ").await.values().all(|found| *found == offsets(650)));
        assert_eq!(rig.store.dlqs().await.expect("readable").len(), 1);
    }

    /// A position that another instance claimed and then left alone: whoever has the partition takes it back.
    async fn what_another_claimed_and_left_is_claimed_again(store: Store) {
        let broker = in_process("orders.DLQ", 1);
        let bootstrap = broker.bootstrap_servers();
        produce(&bootstrap, "orders.DLQ", records(10, 0, "x"));
        let mut rig = Rig::new(store, &bootstrap, "orders");
        rig.cluster.discovery_interval_s = 1;
        let mut instance = rig.instance();
        instance.until("10 are in", async || rig.count("orders.DLQ").await == 10).await;
        let position = rig.store.positions(None).await.expect("readable").remove(0);
        let theirs = rig.store.claim_position(position.id, 0).await.expect("claimed").expect("there");
        produce(&bootstrap, "orders.DLQ", records(10, 0, "later"));
        instance.until("all are in", async || rig.count("orders.DLQ").await == 20).await;
        assert_eq!(rig.stored("orders.DLQ").await, [((1, 0), offsets(20))].into());
        let ours = rig.store.positions(None).await.expect("readable").remove(0);
        assert!(ours.owner_epoch > theirs.owner_epoch, "claimed anew, not written under the old epoch");
    }

    /// A consumer that stopped reading a partition without a word is noticed by what is left to read.
    async fn a_partition_that_stands_still_is_started_again(store: Store) {
        let broker = in_process("orders.DLQ", 1);
        let bootstrap = broker.bootstrap_servers();
        produce(&bootstrap, "orders.DLQ", records(10, 0, "x"));
        let mut rig = Rig::new(store, &bootstrap, "orders");
        rig.cluster.discovery_interval_s = 1;
        let mut instance = rig.instance();
        instance.until("10 are in", async || rig.count("orders.DLQ").await == 10).await;
        instance.obey(vec![IntakeCommand::Pause(("orders.DLQ".to_owned(), 0))]);
        instance.go_on_for(Duration::from_millis(200)).await;
        produce(&bootstrap, "orders.DLQ", records(10, 0, "later"));
        instance.until("all are in", async || rig.count("orders.DLQ").await == 20).await;
        assert_eq!(rig.stored("orders.DLQ").await, [((1, 0), offsets(20))].into());
    }

    /// I5 on the in-process broker; `i5_real` has a real one behind a door that opens later.
    async fn i5_disconnected_since_and_back_by_itself(store: Store) {
        let broker = in_process("orders.DLQ", 1);
        produce(&broker.bootstrap_servers(), "orders.DLQ", records(5, 0, "x"));
        broker.broker_down(-1).expect("the broker goes");
        let rig = Rig::new(store, &broker.bootstrap_servers(), "orders");
        let mut instance = rig.instance();
        let status = instance.status.clone();
        let disconnected = async || matches!(status.view().connection, Connection::Disconnected { .. });
        instance.until("it says so", disconnected).await;
        let Connection::Disconnected { since_ms, reason } = status.view().connection else { panic!("just seen") };
        assert!(!reason.is_empty());
        instance.go_on_for(Duration::from_secs(2)).await;
        assert!(matches!(status.view().connection, Connection::Disconnected { since_ms: still, .. } if still == since_ms));
        broker.broker_up(-1).expect("the broker comes back");
        instance.until("all are in", async || rig.count("orders.DLQ").await == 5).await;
        instance.until("connected again", async || status.view().connection == Connection::Connected).await;
    }
}

/// A database that refuses one message for what was read out of it: that one is stored as not understood, the others as ever.
mod what_the_database_refuses {
    use super::*;
    use lazaret::domain::template::KeyTemplate;
    use sqlx::Connection as _;

    async fn is_stored_as_not_understood(store: Store) {
        let broker = in_process("orders.DLQ", 1);
        let bootstrap = broker.bootstrap_servers();
        produce(&bootstrap, "orders.DLQ", records(300, 0, "x"));
        let mut rig = Rig::new(store, &bootstrap, "orders");
        rig.dlqs[0].business_key = Some(KeyTemplate::parse("{value:/payment_id}").expect("a valid template"));
        let mut instance = rig.instance();
        instance.until("all are in", async || rig.count("orders.DLQ").await == 300).await;
        assert_eq!(rig.stored("orders.DLQ").await, [((1, 0), offsets(300))].into());
        let messages = rig.messages("orders.DLQ").await;
        let without: Vec<i64> = messages.iter().filter(|message| message.business_key.is_none()).map(|message| message.offset).collect();
        assert_eq!(without, vec![123]);
        assert_eq!(messages[123].class_reason, "could not be read");
        let body = rig.store.body(messages[123].id).await.expect("readable").expect("there");
        assert_eq!(body.value.as_deref(), Some(&b"{\"payment_id\":\"x-0-123\"}"[..]));
        assert_eq!(messages[123].key.as_deref(), Some(&b"k123"[..]));
        assert!(instance.status.view().stalled.is_none());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite() {
        let (store, folder) = crate::support::sqlite().await;
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let mut other = sqlx::SqliteConnection::connect(&url).await.expect("a second connection");
        let refuse =
            "CREATE TRIGGER refuse BEFORE INSERT ON messages WHEN NEW.business_key = 'x-0-123' BEGIN SELECT RAISE(ABORT, 'refused'); END";
        sqlx::query(refuse).execute(&mut other).await.expect("a trigger");
        other.close().await.expect("closes");
        is_stored_as_not_understood(store).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs a real PostgreSQL: run tests/run"]
    async fn postgres() {
        let url = crate::support::postgres_url().await;
        let store = Store::connect(&url).await.expect("opens");
        store.migrate().await.expect("migrates");
        let mut other = sqlx::PgConnection::connect(&url).await.expect("a second connection");
        sqlx::query("ALTER TABLE messages ADD CHECK (business_key <> 'x-0-123')").execute(&mut other).await.expect("a rule");
        is_stored_as_not_understood(store).await;
    }
}
