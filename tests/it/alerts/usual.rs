//! What is usual, as the store keeps it: cases M5 to M7, and levels that people accept.

use super::*;
use crate::on_both_stores;
use lazaret::domain::baseline::{ALARMING, Baseline};

fn unusual() -> Terms {
    terms(Measure::UnusualArrivals, ALARMING, ALARMING)
}

/// Lives on with so many an hour, looked at every ten minutes.
async fn lives(world: &mut World, dlq: &Dlq, lasts_ms: i64, per_hour: i64) {
    const LOOK_MS: i64 = 10 * MINUTE_MS;
    for _ in 0..lasts_ms / LOOK_MS {
        let every_ms = if per_hour < 60 { HOUR_MS / per_hour } else { MINUTE_MS };
        // Of ten minutes; what does not fit evenly comes in the next.
        let (from, to) = (world.now(), world.now() + LOOK_MS);
        let first = from + (every_ms - from.rem_euclid(every_ms)) % every_ms;
        let times = (to - first + every_ms - 1).max(0) / every_ms;
        if times > 0 {
            let count = (per_hour * every_ms / HOUR_MS).max(1);
            world.arrive(dlq, Arrivals { from_ms: first, every_ms, times, count }).await;
        }
        world.step(LOOK_MS);
        world.seen(dlq, 0).await;
        world.tick().await;
    }
}

async fn expected_an_hour(world: &World, dlq: &Dlq) -> f64 {
    let stored = world.store().baselines(&[dlq.id]).await.unwrap().remove(0);
    Baseline::of(&stored.history).expected(world.now(), world.now() + HOUR_MS)
}

on_both_stores! {
    async fn m5_from_nothing_there_is_no_ratio(store: Store) {
        let mut world = World::new(store).await;
        world.rule(unusual()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.step(30 * HOUR_MS);
        world.goes_on(&dlq).await;
        let baseline = async |world: &World| world.house.json("/api/v1/dlqs").await["items"][0]["baseline"].clone();
        assert_eq!(baseline(&world).await, serde_json::json!({"state": "zero", "low": 0.0, "high": 0.0}));
        let minute = |world: &World, count| Arrivals { from_ms: world.now(), every_ms: 0, times: 1, count };
        world.arrive(&dlq, minute(&world, 4)).await;
        world.goes_on(&dlq).await;
        assert_eq!(world.told().await, [], "four are not many");
        world.arrive(&dlq, minute(&world, 1)).await;
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("unusual arrivals").await, ["fires"]);
        let open = world.store().baselines(&[dlq.id]).await.unwrap().remove(0).watch.open.unwrap();
        assert_eq!((open.worst.observed, open.worst.ratio), (5, None));
        let row = world.house.get("/api/v1/dlqs").await.text();
        assert!(!row.contains("NaN") && !row.contains("nfinity"), "{row}");
    }

    async fn m6_an_incident_does_not_teach(store: Store) {
        let mut world = World::new(store).await;
        world.rule(unusual()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.arrive(&dlq, Arrivals { from_ms: world.now(), every_ms: 6 * MINUTE_MS, times: 140, count: 1 }).await;
        world.step(14 * HOUR_MS);
        world.goes_on(&dlq).await;
        lives(&mut world, &dlq, 15 * HOUR_MS, 500).await;
        let fires = world.words_of("unusual arrivals").await.iter().filter(|word| **word == "fires").count();
        assert_eq!(fires, 1);
        assert!(world.store().baselines(&[dlq.id]).await.unwrap()[0].watch.open.is_some(), "still anomalous");
        let expected = expected_an_hour(&world, &dlq).await;
        assert!((expected - 10.0).abs() < 1.0, "{expected}");
        // It survives a restart, too.
        world.restart();
        lives(&mut world, &dlq, HOUR_MS, 500).await;
        assert!((expected_an_hour(&world, &dlq).await - 10.0).abs() < 1.0);
    }

    async fn m7_a_new_level_that_is_accepted_is_the_usual_one(store: Store) {
        let mut world = World::new(store).await;
        world.rule(unusual()).await;
        let dlq = world.house.dlq(TOPIC).await;
        // In its first week a DLQ may have a weekly pattern that nobody has seen yet.
        let eight_days = 8 * 24 * HOUR_MS;
        world.arrive(&dlq, Arrivals { from_ms: world.now(), every_ms: 6 * MINUTE_MS, times: 1_920, count: 1 }).await;
        world.step(eight_days);
        world.goes_on(&dlq).await;
        let all = OwnerScope::All;
        let nothing = world.alerting.accept_level(&ana(), &all, "main", TOPIC).await;
        assert!(matches!(nothing, Err(AlertingError::Conflict(_))), "{nothing:?}");
        lives(&mut world, &dlq, 2 * HOUR_MS, 30).await;
        assert_eq!(world.words_of("unusual arrivals").await, ["fires"], "within two hours");
        lives(&mut world, &dlq, 2 * HOUR_MS, 30).await;
        world.alerting.accept_level(&ana(), &all, "main", TOPIC).await.unwrap();
        lives(&mut world, &dlq, 10 * HOUR_MS, 30).await;
        let words = world.words_of("unusual arrivals").await;
        assert_eq!((words.iter().filter(|word| **word == "fires").count(), words.last()), (1, Some(&"resolved")), "{words:?}");
        let expected = expected_an_hour(&world, &dlq).await;
        assert!((expected - 30.0).abs() < 3.0, "{expected}");
    }

    async fn an_anomaly_that_is_over_may_be_called_usual(store: Store) {
        let mut world = World::new(store).await;
        world.rule(unusual()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.arrive(&dlq, Arrivals { from_ms: world.now(), every_ms: 6 * MINUTE_MS, times: 300, count: 1 }).await;
        world.step(30 * HOUR_MS);
        world.goes_on(&dlq).await;
        lives(&mut world, &dlq, HOUR_MS, 600).await;
        lives(&mut world, &dlq, 6 * HOUR_MS, 10).await;
        let over = world.store().anomalies(Some(dlq.id), 0).await.unwrap();
        assert_eq!(over.len(), 1, "{over:?}");
        let before = expected_an_hour(&world, &dlq).await;
        let from_ms = over[0].span.from_ms;
        world.alerting.accept_past(&ana(), &OwnerScope::All, "main", TOPIC, from_ms).await.unwrap();
        let stored = world.store().baselines(&[dlq.id]).await.unwrap().remove(0);
        let same_hour = Baseline::of(&stored.history).expected(from_ms + 24 * HOUR_MS, from_ms + 25 * HOUR_MS);
        assert!(same_hour > 2.0 * before, "{same_hour} after, {before} before");
        let again = world.alerting.accept_past(&ana(), &OwnerScope::All, "main", TOPIC, from_ms).await;
        assert!(matches!(again, Err(AlertingError::Conflict(_))), "{again:?}");
        let none = world.alerting.accept_past(&ana(), &OwnerScope::All, "main", TOPIC, from_ms + 1).await;
        assert!(matches!(none, Err(AlertingError::NotFound(_))), "{none:?}");
        assert_eq!(world.store().anomalies(Some(dlq.id), 0).await.unwrap()[0].accepted_by.as_deref(), Some("ana"));
    }
}
