//! The life of an alert in the store: what is told, once each, whoever evaluates and whatever happens between.

use super::*;
use crate::on_both_stores;
use crate::web::house::record;
use lazaret::domain::alert::life::{Phase, Why};

const OPEN: &str = "state/quarantined";

on_both_stores! {
    async fn an_outage_from_its_first_failure_to_its_end(store: Store) {
        let mut world = World::new(store).await;
        let dlq = world.house.dlq(TOPIC).await;
        let day = 28 * HOUR_MS;
        world.step(day);
        world.arrive(&dlq, Arrivals { from_ms: world.now() - day, every_ms: 6 * MINUTE_MS, times: 280, count: 1 }).await;
        // Usual arrivals: nothing.
        for _ in 0..4 {
            world.goes_on(&dlq).await;
        }
        assert_eq!(world.told().await, []);
        assert_eq!(world.store().rules().await.unwrap().len(), 12, "the rules of a new installation, once");

        // Ten minutes of ten times as many and more.
        let mut offset = 0;
        for _ in 0..40 {
            let records = (0..5).map(|n| record(TOPIC, offset + n, world.now(), "{}", "read timed out")).collect();
            world.house.take_in(TOPIC, records).await;
            offset += 5;
            world.goes_on(&dlq).await;
        }
        let unusual = world.rule_named("Unusual arrivals").await;
        assert_eq!(world.words_of("Unusual arrivals").await, ["fires", "worse"]);
        assert_eq!(world.told().await.len(), 2, "and nothing else");
        let row = world.house.json("/api/v1/dlqs").await["items"][0].clone();
        assert_eq!((row["status"].as_str(), row["baseline"]["state"].as_str()), (Some("critical"), Some("known")));

        // M3: the cluster goes dark. It goes on firing, and after a quarter of an hour that is told, too.
        for _ in 0..70 {
            world.goes_dark(&dlq).await;
        }
        assert_eq!(world.words_of("Unusual arrivals").await, ["fires", "worse"]);
        assert_eq!(world.words_of("No data").await, ["fires"]);
        let stored = world.alert_of(&unusual).await;
        assert!(stored.alert.firing().unwrap().no_data_since_ms.is_some());
        assert_eq!(world.house.json("/api/v1/dlqs").await["items"][0]["status"], "no_data");

        // It is seen again, and 150 are replayed.
        world.count(&dlq, OPEN, -150).await;
        world.count(&dlq, "state/replayed", 150).await;
        for _ in 0..120 {
            world.goes_on(&dlq).await;
        }
        assert_eq!(world.words_of("No data").await, ["fires", "resolved"]);
        assert_eq!(world.words_of("Unusual arrivals").await, ["fires", "worse", "resolved"]);
        let Phase::Resolved(resolved) = world.alert_of(&unusual).await.alert.phase else { panic!("resolved") };
        assert_eq!((resolved.end.why, resolved.end.replayed), (Why::Cleared, Some(150)));
        let anomalies = world.store().anomalies(Some(dlq.id), 0).await.unwrap();
        assert_eq!((anomalies.len(), anomalies[0].accepted_by.as_deref()), (1, None));
        assert_eq!(world.house.json("/api/v1/dlqs").await["items"][0]["status"], "healthy");
    }

    async fn a6_around_the_threshold_it_fires_once(store: Store) {
        let mut world = World::new(store).await;
        let rule = world.rule(deep()).await;
        let dlq = world.house.dlq(TOPIC).await;
        let mut depth = 0;
        for wanted in [99, 101, 99, 101, 90] {
            world.count(&dlq, OPEN, wanted - depth).await;
            depth = wanted;
            world.goes_on(&dlq).await;
        }
        assert_eq!(world.words_of("depth").await, ["fires"]);
        world.count(&dlq, OPEN, -1).await;
        world.goes_on(&dlq).await;
        let told = world.told().await;
        let News::Resolved(end) = told[1].notify.news else { panic!("{told:?}") };
        assert_eq!((end.peak, end.lasted_ms, told[1].notify.number), (101.0, 4 * TICK_MS, 2));
        assert_eq!(world.alert_of(&rule).await.key, Key { rule_id: rule.id, cluster: "main".into(), topic: TOPIC.into() });
    }

    async fn a5_a_restart_repeats_nothing_and_what_happened_meanwhile_is_new(store: Store) {
        let mut world = World::new(store).await;
        world.rule(deep()).await;
        let (one, other) = (world.house.dlq(TOPIC).await, world.house.dlq("cards.DLQ").await);
        world.count(&one, OPEN, 500).await;
        world.seen(&other, 0).await;
        world.goes_on(&one).await;
        assert_eq!(world.told().await.len(), 1);

        world.step(30 * MINUTE_MS);
        world.count(&other, OPEN, 200).await;
        world.restart();
        for _ in 0..3 {
            world.seen(&other, 0).await;
            world.goes_on(&one).await;
        }
        let told = world.told().await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].key.topic == "cards.DLQ" && matches!(told[1].notify.news, News::Fires { value: 200.0, .. }));
    }

    async fn only_who_holds_the_lease_writes(store: Store) {
        let mut world = World::new(store).await;
        world.rule(deep()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.goes_on(&dlq).await;
        let second = take_lease(world.store(), "second").await;
        world.count(&dlq, OPEN, 500).await;
        world.step(TICK_MS);
        world.seen(&dlq, 0).await;
        assert!(matches!(world.try_tick().await, Err(AlertingError::LeaseLost)));
        assert_eq!((world.told().await, world.store().live_alerts().await.unwrap()), (vec![], vec![]));

        let (first, mine) = (std::mem::replace(&mut world.lease, second), std::mem::replace(&mut world.evaluator, Evaluator::new(world.alerting.clone())));
        world.tick().await;
        assert_eq!(world.told().await.len(), 1);
        // The first one still has a turn under way.
        (world.lease, world.evaluator) = (first, mine);
        world.step(REPEAT_MS);
        world.seen(&dlq, 0).await;
        assert!(matches!(world.try_tick().await, Err(AlertingError::LeaseLost)));
        assert_eq!(world.told().await.len(), 1);
    }

    async fn a_rule_that_changes_ends_what_fired_by_it(store: Store) {
        let mut world = World::new(store).await;
        let rule = world.rule(deep()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.count(&dlq, OPEN, 500).await;
        world.goes_on(&dlq).await;
        let stricter = Terms { threshold: 50.0, clear: 40.0, ..deep() };
        let changed = world.alerting.change_rule(&ana(), &OwnerScope::All, rule.id, rule.version, stricter).await.unwrap();
        world.goes_on(&dlq).await;
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("depth").await, ["fires", "resolved", "fires"]);
        let told = world.told().await;
        assert!(matches!(told[1].notify.news, News::Resolved(end) if end.why == Why::NotWatched));
        assert_eq!(world.alert_of(&rule).await.rule_version, changed.rule.version);

        world.alerting.disable_rule(&ana(), &OwnerScope::All, rule.id, changed.rule.version).await.unwrap();
        world.goes_on(&dlq).await;
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("depth").await.len(), 4, "ended, and nothing fires any more");
        assert_eq!(world.store().rules().await.unwrap().len(), 1, "one that is switched off is a rule: no new installation");

        let rule = world.store().rule(rule.id).await.unwrap().unwrap();
        world.alerting.enable_rule(&ana(), &OwnerScope::All, rule.id, rule.version).await.unwrap();
        for _ in 0..2 {
            world.goes_on(&dlq).await;
        }
        // The topic is gone: nobody looks any more.
        world.store().set_gone(dlq.id, Some(world.now())).await.unwrap();
        world.step(TICK_MS);
        world.tick().await;
        world.step(TICK_MS);
        world.tick().await;
        assert_eq!(world.words_of("depth").await[4..], ["fires", "resolved"]);
    }

    async fn a_quiet_night_is_no_stall_and_a_restart_does_not_end_one(store: Store) {
        let mut world = World::new(store).await;
        world.rule(terms(Measure::IntakeStalled, 300.0, 60.0)).await;
        let dlq = world.house.dlq(TOPIC).await;
        let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 0 };
        world.store().ensure_position(id, 7, world.now()).await.unwrap();
        world.goes_on(&dlq).await;
        world.step(12 * HOUR_MS);
        world.goes_on(&dlq).await;
        // The first record after the night, not read for four minutes.
        for _ in 0..16 {
            world.step(TICK_MS);
            world.seen(&dlq, 1).await;
            world.tick().await;
        }
        assert_eq!(world.told().await, []);
        for _ in 0..6 {
            world.step(TICK_MS);
            world.seen(&dlq, 1).await;
            world.tick().await;
        }
        assert_eq!(world.words_of("intake stalled").await, ["fires"]);
        world.restart();
        for _ in 0..24 {
            world.step(TICK_MS);
            world.seen(&dlq, 1).await;
            world.tick().await;
        }
        assert_eq!(world.words_of("intake stalled").await, ["fires"], "still the same");
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("intake stalled").await, ["fires", "resolved"]);
    }

    async fn no_data_counts_from_the_last_success_and_not_while_nobody_looked(store: Store) {
        let mut world = World::new(store).await;
        world.rule(terms(Measure::NoData, 900.0, 300.0)).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.goes_on(&dlq).await;
        // Lazaret was down for a day: the samplers have not had their turn yet.
        world.step(24 * HOUR_MS);
        world.restart();
        world.tick().await;
        world.goes_on(&dlq).await;
        assert_eq!(world.told().await, []);
        for _ in 0..59 {
            world.goes_dark(&dlq).await;
        }
        assert_eq!(world.told().await, []);
        world.goes_dark(&dlq).await;
        assert_eq!(world.words_of("no data").await, ["fires"]);
        // One that was never seen: from when it was found.
        let new = world.house.dlq("cards.DLQ").await;
        for _ in 0..61 {
            world.goes_dark(&new).await;
        }
        assert_eq!(world.words_of("no data").await.len(), 2);
    }

    async fn events_and_what_waits(store: Store) {
        let mut world = World::new(store).await;
        for (measure, threshold) in [(Measure::TopicRecreated, 1.0), (Measure::GroupRegressed, 1.0), (Measure::OldestAge, 3_600.0)] {
            world.rule(terms(measure, threshold, threshold)).await;
        }
        let line = Terms { name: "Younger".into(), ignore_before_ms: Some(world.now() - HOUR_MS), ..terms(Measure::OldestAge, 3_600.0, 3_600.0) };
        world.rule(line).await;
        let old = record(TOPIC, 0, world.now() - 2 * HOUR_MS, "{}", "read timed out");
        let dlq = world.house.take_in(TOPIC, vec![old]).await;
        world.goes_on(&dlq).await;
        assert_eq!((world.words_of("oldest age").await, world.words_of("Younger").await), (vec!["fires"], vec![]), "it is older than the line");
        world.store().start_incarnation(dlq.id, 1, None, world.now()).await.unwrap();
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("topic recreated").await, ["fires"]);
        world.step(24 * HOUR_MS);
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("topic recreated").await, ["fires", "resolved"]);
        assert_eq!(world.words_of("failure came back after its fix").await, Vec::<&str>::new());
        super::change(world.store(), "INSERT INTO group_status (group_id, decided_at_ms, since_ms, version, status, decided_by) SELECT id, 1, 1, 1, 'fixed_since', 'ana' FROM groups").await;
        while world.store().fold_counters(5_000).await.unwrap() > 0 {}
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("failure came back after its fix").await, ["fires"]);
    }
}
