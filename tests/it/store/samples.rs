//! Samples: what was seen, and that something could not be seen.

use super::*;
use crate::on_both_stores;
use lazaret::store::leases::HeldLease;
use lazaret::store::samples::{PartitionSample, Sample};

const HOUR: i64 = 3_600_000;

fn seen(dlq_id: i64, at_ms: i64, uncollected: i64) -> Sample {
    Sample {
        dlq_id,
        at_ms,
        uncollected: Some(uncollected),
        depth: Some(uncollected + 1),
        at_risk_state: "at_risk".into(),
        at_risk_left_ms: Some(HOUR),
        error: None,
        oldest_open_ms: Some(at_ms - HOUR),
        follow_up_open: Some(2),
        confirmed: Some(3),
        returned: Some(4),
    }
}

fn unseen(dlq_id: i64, at_ms: i64) -> Sample {
    Sample {
        dlq_id,
        at_ms,
        uncollected: None,
        depth: None,
        at_risk_state: "unknown".into(),
        at_risk_left_ms: None,
        error: Some("broker 2 timed out".into()),
        ..Sample::default()
    }
}

async fn dlq(store: &Store, topic: &str) -> i64 {
    store.ensure_dlq("main", topic, None, None, NOW).await.expect("a DLQ").0.id
}

on_both_stores! {
    async fn the_newest_look_and_the_newest_that_succeeded(store: Store) {
        let (a, b, c) = (dlq(&store, "a").await, dlq(&store, "b").await, dlq(&store, "c").await);
        dlq(&store, "never sampled").await;
        store.save_samples(None, &[seen(a, NOW, 1), seen(b, NOW, 2)], &[]).await.unwrap();
        store.save_samples(None, &[seen(a, NOW + 1, 3), unseen(b, NOW + 1), unseen(c, NOW + 1)], &[]).await.unwrap();
        let expected = [
            (seen(a, NOW + 1, 3), Some(seen(a, NOW + 1, 3))),
            (unseen(b, NOW + 1), Some(seen(b, NOW, 2))),
            (unseen(c, NOW + 1), None),
        ];
        assert_eq!(store.latest_samples(None).await.unwrap(), expected);
        assert_eq!(store.latest_samples(Some(b)).await.unwrap(), expected[1..2]);
        let mut depths = store.depths_at(None, NOW, NOW + 2).await.unwrap();
        depths.sort_unstable();
        assert_eq!(depths, [(a, 2), (b, 3)], "the first that knew it");
        assert_eq!(store.depths_at(Some(b), NOW, NOW + 2).await.unwrap(), [(b, 3)]);
        assert_eq!(store.depths_at(Some(c), NOW, NOW + 2).await.unwrap(), []);
        assert_eq!(store.samples(b, NOW, NOW + 2).await.unwrap(), [seen(b, NOW, 2), unseen(b, NOW + 1)]);
        assert_eq!(store.samples(b, NOW, NOW + 1).await.unwrap(), [seen(b, NOW, 2)]);
        // The same instant again replaces.
        store.save_samples(None, &[seen(b, NOW + 1, 9)], &[]).await.unwrap();
        assert_eq!(store.samples(b, NOW + 1, NOW + 2).await.unwrap(), [seen(b, NOW + 1, 9)]);
    }

    async fn partitions_keep_their_newest_look(store: Store) {
        let a = dlq(&store, "a").await;
        let look = |partition, at_ms, log_end: Option<i64>, error: Option<&str>| PartitionSample {
            id: PartitionId { dlq_id: a, incarnation: 1, partition },
            at_ms,
            position: Some(5),
            log_start: log_end.map(|_| 0),
            log_end,
            error: error.map(str::to_owned),
        };
        let bad = look(1, NOW, None, Some("not permitted\0"));
        store.save_samples(None, &[], &[bad, look(0, NOW, Some(7), None)]).await.unwrap();
        let stored = [look(0, NOW, Some(7), None), look(1, NOW, None, Some("not permitted\u{2400}"))];
        assert_eq!(store.partition_samples(a).await.unwrap(), stored);
        store.save_samples(None, &[], &[look(0, NOW + 1, Some(8), None)]).await.unwrap();
        // Another instance goes on, with a clock that is an hour behind: its looks count all the same.
        store.save_samples(None, &[], &[look(0, NOW - HOUR, Some(9), None)]).await.unwrap();
        assert_eq!(store.partition_samples(a).await.unwrap()[0].log_end, Some(9));
        store.start_incarnation(a, 1, None, NOW).await.unwrap();
        assert_eq!(store.partition_samples(a).await.unwrap(), []);
    }

    async fn a_look_under_a_lease_that_was_lost_is_not_written(store: Store) {
        let a = dlq(&store, "a").await;
        let first = store.take_lease("sampler", "first", None).await.unwrap().unwrap();
        let held = |epoch| HeldLease { name: "sampler".to_owned(), epoch };
        assert!(store.save_samples(Some(&held(first.epoch)), &[seen(a, NOW, 1)], &[]).await.unwrap());
        let second = store.take_lease("sampler", "second", Some(&first)).await.unwrap().unwrap();
        assert!(!store.save_samples(Some(&held(first.epoch)), &[seen(a, NOW + 1, 2)], &[]).await.unwrap());
        assert!(store.save_samples(Some(&held(second.epoch)), &[seen(a, NOW + 2, 3)], &[]).await.unwrap());
        assert_eq!(store.samples(a, NOW, NOW + 9).await.unwrap(), [seen(a, NOW, 1), seen(a, NOW + 2, 3)]);
    }

    async fn old_samples_thin_out_to_one_an_hour(store: Store) {
        let (a, b) = (dlq(&store, "a").await, dlq(&store, "b").await);
        // Hour 0: two failures before two that succeeded. Hour 1: failures only. Hour 2 is younger than the limit.
        let given = [unseen(a, NOW), seen(a, NOW + 1, 1), seen(a, NOW + 2, 2), unseen(a, NOW + 3), unseen(a, NOW + HOUR), unseen(a, NOW + HOUR + 1)];
        let young = [seen(a, NOW + 2 * HOUR, 3), seen(a, NOW + 2 * HOUR + 1, 4)];
        store.save_samples(None, &given, &[]).await.unwrap();
        store.save_samples(None, &young, &[]).await.unwrap();
        store.save_samples(None, &[seen(b, NOW, 1), seen(b, NOW + 1, 1)], &[]).await.unwrap();
        let mut gone = 0;
        loop {
            let now = store.thin_samples(0, NOW + 2 * HOUR, HOUR, 2).await.unwrap();
            assert!(now <= 2);
            gone += now;
            if now == 0 {
                break;
            }
        }
        assert_eq!(gone, 5);
        let [first, second] = young;
        assert_eq!(store.samples(a, NOW, NOW + 9 * HOUR).await.unwrap(), [seen(a, NOW + 1, 1), unseen(a, NOW + HOUR), first, second]);
        assert_eq!(store.samples(b, NOW, NOW + 9 * HOUR).await.unwrap(), [seen(b, NOW, 1)]);
    }

    async fn older_ones_thin_out_to_one_a_day_and_go_after_a_year(store: Store) {
        let a = dlq(&store, "a").await;
        let given: Vec<Sample> = (0..72).map(|hour| seen(a, NOW + hour * HOUR, 1)).collect();
        store.save_samples(None, &given, &[]).await.unwrap();
        // Only from the second day on.
        while store.thin_samples(NOW + 24 * HOUR, NOW + 72 * HOUR, 24 * HOUR, 10).await.unwrap() > 0 {}
        assert_eq!(store.samples(a, 0, i64::MAX).await.unwrap().len(), 24 + 2);
        let by_day = store.samples_by(a, NOW, NOW + 72 * HOUR, 24 * HOUR).await.unwrap();
        assert_eq!(by_day, [23, 24, 48].map(|hour| seen(a, NOW + hour * HOUR, 1)), "of each day the newest that is left");
        assert_eq!(store.drop_samples(NOW + 10 * HOUR, 4).await.unwrap(), 4);
        while store.drop_samples(NOW + 10 * HOUR, 4).await.unwrap() > 0 {}
        assert_eq!(store.samples(a, 0, i64::MAX).await.unwrap().len(), 14 + 2);
    }

    async fn thousands_of_partitions_go_in_one_call(store: Store) {
        let a = dlq(&store, "a").await;
        let looks = (0..3_000).map(|partition| PartitionSample {
            id: PartitionId { dlq_id: a, incarnation: 1, partition },
            at_ms: NOW,
            position: None,
            log_start: Some(i64::from(partition)),
            log_end: Some(i64::MAX),
            error: None,
        });
        let looks: Vec<PartitionSample> = looks.collect();
        store.save_samples(None, &[], &looks).await.unwrap();
        assert_eq!(store.partition_samples(a).await.unwrap(), looks);
    }
}
