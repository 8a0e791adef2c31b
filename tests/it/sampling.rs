//! What the sampler says of a DLQ: the cases M1 to M4 and M8. Unknown is a state, never zero.

use std::time::Duration;

use lazaret::services::sampling::{Sampled, Sampler};
use lazaret::store::Store;
use lazaret::store::samples::Sample;
use rdkafka::mocking::MockCluster;

use crate::intake::rig::{Rig, produce, records};
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::unique;
use crate::{on_both_stores, on_real_kafka};

fn sampler(rig: &Rig) -> Sampler {
    Sampler::new(rig.store.clone(), rig.inspector(), rig.clock.clone(), &rig.cluster, rig.dlqs.clone())
}

/// Samples once: what was done, and the DLQ's newest sample beside its newest successful one.
async fn look(sampler: &mut Sampler, rig: &Rig, topic: &str) -> (Sampled, Sample, Option<Sample>) {
    let run = sampler.tick(None).await.expect("the store answers");
    let dlq = rig.store.dlq("main", topic).await.expect("readable").expect("there");
    let latest = rig.store.latest_samples(None).await.expect("readable");
    let (newest, successful) = latest.into_iter().find(|(sample, _)| sample.dlq_id == dlq.id).expect("sampled");
    (run, newest, successful)
}

on_both_stores! {
    async fn m3_what_cannot_be_asked_is_no_zero(store: Store) {
        let broker = MockCluster::new(1).expect("an in-process broker");
        broker.create_topic("orders.DLQ", 2, 1).expect("a topic");
        let bootstrap = broker.bootstrap_servers();
        produce(&bootstrap, "orders.DLQ", records(30, 0, "x"));
        let rig = Rig::new(store, &bootstrap, "orders");
        let mut instance = rig.instance();
        instance.until("30 are in", async || rig.count("orders.DLQ").await == 30).await;
        drop(instance);
        produce(&bootstrap, "orders.DLQ", records(4, 1, "later"));
        let mut sampler = sampler(&rig);
        let (_, good, _) = look(&mut sampler, &rig, "orders.DLQ").await;
        assert_eq!((good.uncollected, good.depth, good.error.as_deref()), (Some(4), Some(30), None));
        broker.broker_down(-1).expect("the broker goes");
        let (run, bad, successful) = look(&mut sampler, &rig, "orders.DLQ").await;
        assert_eq!((run.dlqs, run.failed), (1, 1));
        assert_eq!((bad.uncollected, bad.at_risk_state.as_str(), bad.at_risk_left_ms), (None, "unknown", None));
        assert!(bad.error.is_some_and(|error| !error.is_empty()));
        assert_eq!(successful.map(|sample| sample.at_ms), Some(good.at_ms), "the age of the last success can be told");
        let partitions = rig.store.partition_samples(good.dlq_id).await.expect("readable");
        assert!(partitions.iter().all(|partition| partition.error.is_some() && partition.log_end.is_none()), "{partitions:?}");
    }

    async fn a_topic_that_is_not_configured_any_more_is_not_sampled(store: Store) {
        let broker = MockCluster::new(1).expect("an in-process broker");
        broker.create_topic("orders.DLQ", 1, 1).expect("a topic");
        let mut rig = Rig::new(store, &broker.bootstrap_servers(), "orders");
        rig.instance().discover().await;
        rig.dlqs.clear();
        assert_eq!(sampler(&rig).tick(None).await.expect("the store answers").dlqs, 0);
    }
}

async fn real(store: Store, name: &str, config: &[(&str, &str)]) -> (Rig, Topics, String) {
    let topics = Topics::real();
    let topic = format!("{}.DLQ", unique(name));
    topics.create(&topic, 1, config).await;
    (Rig::new(store, topics.bootstrap(), &topic), topics, topic)
}

on_real_kafka! {
    async fn m1_the_position_steps_over_the_marker(store: Store) {
        let (rig, topics, topic) = real(store, "m1", &[]).await;
        produce(topics.bootstrap(), &topic, records(10, 0, "x"));
        let mut sampler = sampler(&rig);
        rig.instance().discover().await;
        assert_eq!(look(&mut sampler, &rig, &topic).await.1.uncollected, Some(10));
        let mut instance = rig.instance();
        instance.until("10 are in", async || rig.count(&topic).await == 10).await;
        assert_eq!(look(&mut sampler, &rig, &topic).await.1.uncollected, Some(0));
        let producer = TestProducer::transactional(topics.bootstrap(), &topic);
        producer.begin();
        producer.send_all(&topic, [NewRecord::value("in a transaction").on_partition(0)]);
        producer.commit();
        instance.until("the position is past the marker", async || rig.positions(&topic).await == [12]).await;
        assert_eq!(rig.count(&topic).await, 11);
        assert_eq!(look(&mut sampler, &rig, &topic).await.1.uncollected, Some(0));
    }

    async fn m4_a_deleted_topic_is_not_sampled_and_its_messages_stay(store: Store) {
        let (rig, topics, topic) = real(store, "m4", &[]).await;
        produce(topics.bootstrap(), &topic, records(3, 0, "x"));
        let mut instance = rig.instance();
        instance.until("3 are in", async || rig.count(&topic).await == 3).await;
        let mut sampler = sampler(&rig);
        assert_eq!(sampler.tick(None).await.expect("the store answers").dlqs, 1);
        topics.delete(&[&topic]).await;
        let gone = async || rig.store.dlq("main", &topic).await.expect("readable").expect("there").gone_since_ms.is_some();
        instance.until("it is gone", gone).await;
        assert_eq!(sampler.tick(None).await.expect("the store answers").dlqs, 0);
        assert_eq!(rig.messages(&topic).await.len(), 3);
    }

    async fn m8_all_stored_is_no_alarm_although_the_oldest_is_about_to_expire(store: Store) {
        const HOUR: i64 = 3_600_000;
        let (rig, topics, topic) = real(store, "m8", &[("retention.ms", &HOUR.to_string())]).await;
        let old = rig.clock.now_ms() - HOUR + 600_000;
        produce(topics.bootstrap(), &topic, vec![NewRecord::value("old").on_partition(0).at(old)]);
        rig.instance().discover().await;
        let mut sampler = sampler(&rig);
        let (run, before, _) = look(&mut sampler, &rig, &topic).await;
        assert_eq!((before.at_risk_state.as_str(), run.records_read), ("at_risk", 1));
        let left = before.at_risk_left_ms.expect("known");
        assert!((500_000..=600_000).contains(&left), "{left}");
        let mut instance = rig.instance();
        instance.until("it is in", async || rig.count(&topic).await == 1).await;
        let (_, after, _) = look(&mut sampler, &rig, &topic).await;
        assert_eq!((after.at_risk_state.as_str(), after.at_risk_left_ms, after.uncollected), ("all_stored", None, Some(0)));
    }

    async fn a_record_is_read_only_when_a_log_start_moved(store: Store) {
        let (rig, topics, topic) = real(store, "reads", &[("retention.ms", "86400000")]).await;
        let now = rig.clock.now_ms();
        let aged = |n: usize| records(n, 0, "x").into_iter().map(move |record| record.at(now - 3_600_000)).collect::<Vec<_>>();
        produce(topics.bootstrap(), &topic, aged(10));
        rig.instance().discover().await;
        let mut sampler = sampler(&rig);
        assert_eq!(look(&mut sampler, &rig, &topic).await.0.records_read, 1);
        produce(topics.bootstrap(), &topic, aged(1_000));
        let (run, sample, _) = look(&mut sampler, &rig, &topic).await;
        assert_eq!((run.records_read, sample.uncollected), (0, Some(1_010)));
        topics.delete_records_before(&topic, 0, 5).await;
        assert_eq!(look(&mut sampler, &rig, &topic).await.0.records_read, 1);
        assert_eq!(look(&mut sampler, &rig, &topic).await.0.records_read, 0);
    }

    async fn without_a_time_limit_nothing_is_at_risk(store: Store) {
        let (rig, topics, topic) = real(store, "forever", &[]).await;
        produce(topics.bootstrap(), &topic, records(2, 0, "x"));
        rig.instance().discover().await;
        let (run, sample, _) = look(&mut sampler(&rig), &rig, &topic).await;
        assert_eq!((sample.at_risk_state.as_str(), run.records_read), ("unlimited", 0));
    }

    /// M2: while intake runs and the log grows, no sample is ever negative or larger than the log.
    async fn m2_samples_taken_while_intake_runs_are_plausible(store: Store) {
        let (rig, topics, topic) = real(store, "m2", &[]).await;
        let mut instance = rig.instance();
        instance.discover().await;
        let mut sampler = sampler(&rig);
        for round in 1..=10 {
            produce(topics.bootstrap(), &topic, records(50, 0, "x"));
            instance.go_on_for(Duration::from_millis(50)).await;
            let (_, sample, _) = look(&mut sampler, &rig, &topic).await;
            assert!((0..=50 * round).contains(&sample.uncollected.expect("known")), "{sample:?}");
        }
    }
}
