//! What a rule would have done, by stored samples and minutes.

use super::*;
use crate::on_both_stores;
use lazaret::domain::baseline::ALARMING;

/// A week of looks every quarter of an hour, so deep.
async fn week(world: &World, dlq: &Dlq, depth: impl Fn(i64) -> i64) {
    let start = world.now();
    let sample = |n: i64| Sample {
        dlq_id: dlq.id,
        at_ms: start + n * 15 * MINUTE_MS,
        uncollected: Some(0),
        depth: Some(depth(n)),
        at_risk_state: "all_stored".to_owned(),
        follow_up_open: Some(0),
        confirmed: Some(0),
        returned: Some(0),
        ..Sample::default()
    };
    let samples: Vec<Sample> = (0..672).map(sample).collect();
    world.store().save_samples(None, &samples, &[]).await.unwrap();
    world.step(7 * 24 * HOUR_MS);
}

on_both_stores! {
    async fn a_back_test_names_the_times(store: Store) {
        let world = World::new(store).await;
        let dlq = world.house.dlq(TOPIC).await;
        let start = world.now();
        week(&world, &dlq, |n| if n % 160 >= 150 { 500 } else { 10 }).await;
        let test = world.alerting.back_test(deep()).await.unwrap();
        assert_eq!(test.words.as_deref(), Some("would have fired 4 times in the last 7 days"));
        let fired = &test.dlqs[0].fired;
        assert_eq!((fired[0].at_ms, fired[0].until_ms, fired[0].peak), (start + 150 * 15 * MINUTE_MS, Some(start + 160 * 15 * MINUTE_MS), 500.0));
        assert_eq!((test.tested, test.left_out, test.dlqs.len()), (1, 0, 1));
        let nowhere = Terms { scope: Scope { cluster: Some("other".into()), ..Scope::default() }, ..deep() };
        assert_eq!(world.alerting.back_test(nowhere).await.unwrap().words, None, "nothing was measured");
        let events = world.alerting.back_test(terms(Measure::ReplayHalted, 1.0, 1.0)).await;
        assert!(matches!(events, Err(AlertingError::Invalid(_))), "{events:?}");
        let suggested = world.alerting.suggest(terms(Measure::Depth, 1.0, 1.0)).await.unwrap();
        assert!(suggested.suggestion.threshold > 500.0 && suggested.topic == TOPIC && suggested.dlqs == 1, "{suggested:?}");
    }

    async fn arrivals_are_tested_by_the_minute(store: Store) {
        let world = World::new(store).await;
        let dlq = world.house.dlq(TOPIC).await;
        let start = world.now();
        world.arrive(&dlq, Arrivals { from_ms: start, every_ms: 6 * MINUTE_MS, times: 1_680, count: 1 }).await;
        // An hour of twenty a minute on the fifth day.
        let flood = start + 4 * 24 * HOUR_MS;
        world.arrive(&dlq, Arrivals { from_ms: flood, every_ms: MINUTE_MS, times: 60, count: 20 }).await;
        world.step(7 * 24 * HOUR_MS);
        let unusual = world.alerting.back_test(terms(Measure::UnusualArrivals, ALARMING, ALARMING)).await.unwrap();
        assert_eq!(unusual.words.as_deref(), Some("would have fired once in the last 7 days"));
        let found_after = unusual.dlqs[0].fired[0].at_ms - flood;
        assert!((0..=3 * MINUTE_MS).contains(&found_after), "{found_after} ms");
        let rate = world.alerting.back_test(terms(Measure::ArrivalRate, 10.0, 5.0)).await.unwrap();
        assert_eq!((rate.dlqs[0].fired.len(), rate.dlqs[0].fired[0].peak > 18.0), (1, true), "{rate:?}");
    }
}
