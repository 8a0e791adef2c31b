//! The jobs as the process runs them: under the supervisor, several instances at once, shut down in order.

use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::jobs::Supervisor;
use lazaret::jobs::housekeeping::Housekeeping;
use lazaret::jobs::intake::{IntakeJob, LIMITS};
use lazaret::jobs::sampler::SamplerJob;
use lazaret::services::intake::{ClusterStatus, Connection};
use rdkafka::mocking::MockCluster;

use super::rig::{PATIENCE, Rig, produce, records};
use crate::on_both_stores;

const SHORT_LEASE: Duration = Duration::from_millis(600);

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let clock = Clock::system();
    while !holds().await {
        assert!(clock.monotonic() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn intake_job(rig: &Rig, status: &ClusterStatus) -> IntakeJob {
    IntakeJob {
        store: rig.store.clone(),
        inspector: rig.inspector(),
        clock: rig.clock.clone(),
        cluster: rig.cluster.clone(),
        dlqs: rig.dlqs.clone(),
        rules: Vec::new(),
        status: status.clone(),
        limits: LIMITS,
    }
}

fn sampler_job(rig: &Rig, holder: &str) -> SamplerJob {
    SamplerJob {
        store: rig.store.clone(),
        inspector: rig.inspector(),
        clock: rig.clock.clone(),
        cluster: rig.cluster.clone(),
        dlqs: rig.dlqs.clone(),
        holder: holder.to_owned(),
        lease: SHORT_LEASE,
    }
}

async fn samples(rig: &Rig) -> usize {
    let Some(dlq) = rig.store.dlq("main", "orders.DLQ").await.expect("readable") else { return 0 };
    rig.store.samples(dlq.id, 0, i64::MAX).await.expect("readable").len()
}

on_both_stores! {
    async fn everything_runs_under_the_supervisor_and_ends_in_order(store: Store) {
        let broker = MockCluster::new(1).expect("an in-process broker");
        broker.create_topic("orders.DLQ", 2, 1).expect("a topic");
        produce(&broker.bootstrap_servers(), "orders.DLQ", records(70, 1, "x"));
        let mut rig = Rig::new(store, &broker.bootstrap_servers(), "orders");
        rig.cluster.sample_interval_s = 1;
        let status = ClusterStatus::new("main");
        let mut supervisor = Supervisor::new(rig.clock.clone());
        intake_job(&rig, &status).spawn(&mut supervisor);
        sampler_job(&rig, "one").spawn(&mut supervisor);
        let housekeeping = Housekeeping {
            store: rig.store.clone(),
            clock: rig.clock.clone(),
            holder: "one".to_owned(),
            lease: SHORT_LEASE,
            samples_fine: Duration::from_secs(3_600),
        };
        housekeeping.spawn(&mut supervisor);
        until("70 are in", async || rig.count("orders.DLQ").await == 70).await;
        assert_eq!(status.view().connection, Connection::Connected);
        until("all is sampled", async || {
            let latest = rig.store.latest_samples(None).await.expect("readable");
            latest.first().is_some_and(|(sample, _)| sample.uncollected == Some(0) && sample.depth == Some(70))
        })
        .await;
        // Nothing left to fold: the folder came round.
        until("the counters are folded", async || rig.store.fold_counters(1).await.expect("folds") == 0).await;
        assert_eq!(supervisor.shutdown(Duration::from_secs(20)).await, Vec::<String>::new());
        let sampled = samples(&rig).await;
        for name in ["sampler:main", "fold-counters", "thin-samples", "sweep-sessions"] {
            let lease = rig.store.lease(name).await.expect("readable").expect("was taken");
            assert_eq!(lease.holder, "", "{name} was given up at the end");
        }
        assert_eq!(samples(&rig).await, sampled);
    }

    async fn one_instance_samples_and_another_goes_on_when_it_dies(store: Store) {
        let broker = MockCluster::new(1).expect("an in-process broker");
        broker.create_topic("orders.DLQ", 1, 1).expect("a topic");
        let mut rig = Rig::new(store, &broker.bootstrap_servers(), "orders");
        rig.instance().discover().await;
        rig.cluster.sample_interval_s = 1;
        let (mut first, mut second) = (Supervisor::new(rig.clock.clone()), Supervisor::new(rig.clock.clone()));
        sampler_job(&rig, "first").spawn(&mut first);
        until("the first samples", async || samples(&rig).await > 0).await;
        sampler_job(&rig, "second").spawn(&mut second);
        until("some more samples", async || samples(&rig).await >= 4).await;
        let held = async || rig.store.lease("sampler:main").await.expect("readable").expect("taken").holder;
        assert_eq!(held().await, "first");
        let times: Vec<i64> = {
            let dlq = rig.store.dlq("main", "orders.DLQ").await.expect("readable").expect("there");
            rig.store.samples(dlq.id, 0, i64::MAX).await.expect("readable").iter().map(|sample| sample.at_ms).collect()
        };
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] > 500), "never two at a time: {times:?}");
        // Dropped where it stands, as a killed process is: no lease is given up.
        assert!(!first.shutdown(Duration::ZERO).await.is_empty() || held().await != "first");
        until("the second has it", async || held().await == "second").await;
        let before = samples(&rig).await;
        until("the second samples", async || samples(&rig).await > before).await;
        second.shutdown(Duration::from_secs(10)).await;
    }

    async fn a_dlq_found_after_the_first_turn_does_not_wait_for_the_interval(store: Store) {
        let broker = MockCluster::new(1).expect("an in-process broker");
        broker.create_topic("orders.DLQ", 1, 1).expect("a topic");
        produce(&broker.bootstrap_servers(), "orders.DLQ", records(3, 0, "x"));
        let mut rig = Rig::new(store, &broker.bootstrap_servers(), "orders");
        rig.cluster.sample_interval_s = 3_600;
        let mut supervisor = Supervisor::new(rig.clock.clone());
        sampler_job(&rig, "one").spawn(&mut supervisor);
        until("the first turn is taken", async || rig.store.lease("sampler:main").await.expect("readable").is_some()).await;
        // Stored as discovery does it, in two steps: a look in between fails, and is taken again too.
        let (dlq, _) = rig.store.ensure_dlq("main", "orders.DLQ", None, None, rig.clock.now_ms()).await.expect("a DLQ");
        until("a look failed", async || samples(&rig).await > 0).await;
        rig.instance().discover().await;
        let latest_says = async |uncollected: i64| {
            let latest = rig.store.latest_samples(None).await.expect("readable");
            latest.iter().any(|(newest, _)| newest.dlq_id == dlq.id && newest.uncollected == Some(uncollected))
        };
        until("it is sampled", async || latest_says(3).await).await;
        rig.instance().until("3 are in", async || rig.count("orders.DLQ").await == 3).await;
        until("it is sampled once more when its backlog is read", async || latest_says(0).await).await;
        let newest = async || {
            let all = rig.store.samples(dlq.id, 0, i64::MAX).await.expect("readable");
            all.iter().map(|sample| sample.at_ms).max().expect("sampled")
        };
        let (clock, seen) = (Clock::system(), newest().await);
        // Then it falls into its interval: two more turns would have come in this time.
        let deadline = clock.monotonic() + Duration::from_millis(2_500);
        until("some time has passed", async || clock.monotonic() > deadline).await;
        assert!(newest().await - seen < 1_500, "sampled again and again");
        supervisor.shutdown(Duration::from_secs(10)).await;
    }
}
