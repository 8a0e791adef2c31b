//! Counters: exact at every instant, whoever folds, and groups' counts with them.

use super::*;
use crate::on_both_stores;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn at(offset: i64, ms: i64) -> NewMessage {
    NewMessage { dead_lettered_at_ms: ms, ..message(0, offset) }
}

on_both_stores! {
    async fn counts_are_the_same_before_during_and_after_folding(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut other = Feed::open(&store, "mail.DLT", 0).await;
        assert_eq!(store.fold_counters(100).await.unwrap(), 0);
        feed.take_in(&store, (0..30).map(|offset| at(offset, NOW + offset * 20_000)).collect()).await;
        other.take_in(&store, vec![at(0, NOW)]).await;
        let counts = store.dlq_counts(None).await.unwrap();
        let arrivals = store.arrivals(None, NOW, NOW + 60 * MINUTE, MINUTE).await.unwrap();
        let groups = store.groups(feed.id.dlq_id, i64::MAX, 10).await.unwrap();
        let halves = store.arrivals_by_half_hour(None, NOW).await.unwrap();
        assert_eq!((&halves[&feed.id.dlq_id], &halves[&other.id.dlq_id]), (&vec![(NOW, 30)], &vec![(NOW, 1)]));
        let minutes = store.arrivals_by_minute(Some(feed.id.dlq_id), NOW + MINUTE + 5, NOW + 3 * MINUTE).await.unwrap();
        assert_eq!(minutes.into_iter().collect::<Vec<_>>(), [(feed.id.dlq_id, vec![(NOW + MINUTE, 3), (NOW + 2 * MINUTE, 3)])]);
        assert_eq!(counts[&feed.id.dlq_id].by_state["quarantined"], 30);
        assert_eq!((counts[&feed.id.dlq_id].depth(), counts[&feed.id.dlq_id].follow_up_open), (30, 0));
        assert_eq!(counts[&other.id.dlq_id].depth(), 1);
        // One at a time, so that every mixture of folded and unfolded is read once.
        while store.fold_counters(1).await.unwrap() == 1 {
            assert_eq!(store.dlq_counts(None).await.unwrap(), counts);
            let own = store.dlq_counts(Some(feed.id.dlq_id)).await.unwrap();
            assert_eq!((own.len(), &own[&feed.id.dlq_id]), (1, &counts[&feed.id.dlq_id]), "one alone");
            assert_eq!(store.arrivals(None, NOW, NOW + 60 * MINUTE, MINUTE).await.unwrap(), arrivals);
            assert_eq!(store.groups(feed.id.dlq_id, i64::MAX, 10).await.unwrap(), groups);
            assert_eq!(store.arrivals_by_half_hour(None, NOW).await.unwrap(), halves);
            assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
        }
        // More of the same counters, onto what is folded.
        feed.take_in(&store, (30..40).map(|offset| at(offset, NOW)).collect()).await;
        while store.fold_counters(3).await.unwrap() == 3 {}
        assert_eq!(store.dlq_counts(None).await.unwrap()[&feed.id.dlq_id].depth(), 40);
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    async fn many_folders_and_batches_at_once_lose_nothing(store: Store) {
        const WRITERS: i32 = 3;
        const ROUNDS: i64 = 15;
        const EACH: i64 = 20;
        let done = Arc::new(AtomicBool::new(false));
        let dlq_id = Feed::open(&store, "orders.DLQ", 0).await.id.dlq_id;
        let mut writers = tokio::task::JoinSet::new();
        for partition in 0..WRITERS {
            let store = store.clone();
            writers.spawn(async move {
                let mut feed = Feed::open(&store, "orders.DLQ", partition).await;
                for round in 0..ROUNDS {
                    feed.take_in(&store, (round * EACH..(round + 1) * EACH).map(|offset| message(partition, offset)).collect()).await;
                }
            });
        }
        let mut folders = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (store, done) = (store.clone(), done.clone());
            folders.spawn(async move {
                let mut depth = 0;
                while !done.load(Ordering::SeqCst) {
                    store.fold_counters(7).await.expect("a fold");
                    let counts = store.dlq_counts(None).await.expect("counts").remove(&dlq_id).unwrap_or_default();
                    // Whole batches only, and never fewer than before: no reader sees a delta twice or not at all.
                    assert_eq!(counts.depth() % EACH, 0);
                    assert!(counts.depth() >= depth);
                    depth = counts.depth();
                }
            });
        }
        writers.join_all().await;
        done.store(true, Ordering::SeqCst);
        folders.join_all().await;
        while store.fold_counters(1_000).await.unwrap() > 0 {}
        assert_eq!(store.dlq_counts(None).await.unwrap()[&dlq_id].depth(), i64::from(WRITERS) * ROUNDS * EACH);
        assert_eq!(store.check_counters(dlq_id).await.unwrap(), []);
    }

    async fn the_reconciler_names_what_differs(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        feed.take_in(&store, (0..5).map(|offset| message(0, offset)).collect()).await;
        // Changed behind the counters' back.
        change(&store, "UPDATE messages SET state = 'archived', follow_up = 'open' WHERE record_offset < 2").await;
        let drift = store.check_counters(feed.id.dlq_id).await.unwrap();
        let group = store.groups(feed.id.dlq_id, i64::MAX, 1).await.unwrap()[0].id;
        let seen: Vec<_> = drift.iter().map(|drift| (drift.counter.clone(), drift.counted, drift.actual)).collect();
        let expected = [
            ("follow_up".to_owned(), 0, 2),
            (format!("group_open {group}"), 5, 3),
            ("state/archived".to_owned(), 0, 2),
            ("state/quarantined".to_owned(), 5, 3),
        ];
        assert_eq!(seen, expected);
        assert_eq!(store.check_counters(feed.id.dlq_id + 1).await.unwrap(), []);
    }

    async fn arrivals_are_bucketed_by_dead_lettered_time(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut other = Feed::open(&store, "mail.DLT", 0).await;
        let times = [0, 59_999, MINUTE, 5 * MINUTE, 5 * MINUTE + 1, 12 * MINUTE];
        feed.take_in(&store, times.iter().enumerate().map(|(n, ms)| at(n as i64, NOW + ms)).collect()).await;
        other.take_in(&store, vec![at(0, NOW)]).await;
        let (a, b) = (feed.id.dlq_id, other.id.dlq_id);
        let by = async |dlq, from, to, bucket| store.arrivals(dlq, NOW + from, NOW + to, bucket).await.unwrap();
        assert_eq!(
            by(Some(a), 0, 60 * MINUTE, 5 * MINUTE).await,
            [(a, NOW, 3), (a, NOW + 5 * MINUTE, 2), (a, NOW + 10 * MINUTE, 1)]
        );
        assert_eq!(by(Some(b), 0, 60 * MINUTE, 5 * MINUTE).await, [(b, NOW, 1)]);
        assert_eq!(by(None, 0, MINUTE, MINUTE).await, [(a, NOW, 2), (b, NOW, 1)]);
        assert_eq!(by(Some(a), MINUTE, 5 * MINUTE, MINUTE).await, [(a, NOW + MINUTE, 1)]);
        assert_eq!(by(Some(a), 20 * MINUTE, 60 * MINUTE, MINUTE).await, []);
    }

    async fn the_oldest_open_message_is_found_past_closed_ones(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        Feed::open(&store, "empty.DLQ", 0).await;
        let mut messages: Vec<NewMessage> = (0..6).map(|offset| at(offset, NOW - offset * 1_000)).collect();
        let origin = |ms| Some(lazaret::domain::dialect::Origin { topic: None, partition: None, offset: None, timestamp_ms: ms });
        messages[0].origin = origin(Some(1)); // From before Kafka: no event time.
        messages[1].origin = origin(Some(NOW - 50_000));
        messages[2].origin = origin(Some(NOW - 40_000));
        messages[5].origin = origin(Some(NOW - 90_000));
        // Seconds mistaken for milliseconds, and no time at all: neither is an age of decades.
        messages[0].origin = origin(Some(NOW / 1_000));
        messages[3].origin = origin(Some(0));
        feed.take_in(&store, messages).await;
        let id = feed.id.dlq_id;
        let mut other = Feed::open(&store, "mail.DLT", 0).await;
        other.take_in(&store, vec![at(9, NOW - 99_000)]).await;
        assert_eq!(store.oldest_open(Some(id)).await.unwrap(), [(id, NOW - 5_000, Some(NOW - 90_000))]);
        assert_eq!(store.oldest_open(None).await.unwrap().len(), 2);
        change(&store, "UPDATE messages SET state = 'archived' WHERE record_offset = 9").await;
        assert_eq!(store.oldest_open(None).await.unwrap(), [(id, NOW - 5_000, Some(NOW - 90_000))]);
        change(&store, "UPDATE messages SET state = 'archived' WHERE record_offset IN (4, 5)").await;
        change(&store, "UPDATE messages SET state = 'idempotency_check' WHERE record_offset = 3").await;
        assert_eq!(store.oldest_open(None).await.unwrap(), [(id, NOW - 3_000, Some(NOW - 50_000))]);
        change(&store, "UPDATE messages SET state = 'replayed' WHERE record_offset IN (1, 2)").await;
        assert_eq!(store.oldest_open(None).await.unwrap(), [(id, NOW - 3_000, None)]);
        change(&store, "UPDATE messages SET state = 'replayed'").await;
        assert_eq!(store.oldest_open(None).await.unwrap(), []);
    }

    async fn groups_come_with_their_counts_most_open_first(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut other = Feed::open(&store, "mail.DLT", 0).await;
        let of = |offset: i64, name: &str, ms: i64| NewMessage { group: group(name, FailureClass::Bug, "E", name), ..at(offset, ms) };
        feed.take_in(&store, vec![of(0, "few", NOW + 9), of(1, "many", NOW + 5), of(2, "many", NOW - 5)]).await;
        store.fold_counters(100).await.unwrap();
        feed.take_in(&store, vec![of(3, "many", NOW + 7)]).await;
        // The same fingerprint in another DLQ is another group.
        other.take_in(&store, vec![of(0, "many", NOW)]).await;

        let groups = store.groups(feed.id.dlq_id, i64::MAX, 10).await.unwrap();
        let seen: Vec<_> = groups.iter().map(|g| (g.normalised_text.as_str(), g.open, g.total, g.first_at_ms, g.last_at_ms)).collect();
        assert_eq!(seen, [("many", 3, 3, Some(NOW - 5), Some(NOW + 7)), ("few", 1, 1, Some(NOW + 9), Some(NOW + 9))]);
        assert_eq!(store.groups(feed.id.dlq_id, i64::MAX, 1).await.unwrap(), groups[..1]);
        assert_eq!(store.groups(feed.id.dlq_id, NOW + 9, 1).await.unwrap(), groups[1..], "what still arrives comes first, whatever the limit");
        assert_eq!(store.groups(feed.id.dlq_id, NOW + 7, 10).await.unwrap(), groups, "among those the number decides");
        let many = &groups[0];
        assert_eq!(store.group(many.id).await.unwrap().as_ref(), Some(many));
        assert_eq!((many.cluster.as_str(), many.topic.as_str(), many.class), ("main", "orders.DLQ", FailureClass::Bug));
        assert_eq!(many.fingerprint, group("many", FailureClass::Bug, "", "").fingerprint);
        assert_eq!(many.top_frame.as_deref(), Some("com.example.Wallet.debit"));
        assert_eq!(store.group(i64::MAX).await.unwrap(), None);
        assert_eq!(store.groups(other.id.dlq_id, i64::MAX, 10).await.unwrap().len(), 1);
    }

    async fn a_group_whose_batch_was_thrown_away_has_no_times(store: Store) {
        let stale = Feed::open(&store, "orders.DLQ", 0).await;
        Feed::open(&store, "orders.DLQ", 0).await;
        let moved = store.take_in(&[stale.batch(vec![message(0, 0)])], NOW).await.unwrap();
        assert_eq!(moved, TakeIn::Moved(vec![stale.id]));
        let group = &store.groups(stale.id.dlq_id, i64::MAX, 10).await.unwrap()[0];
        assert_eq!((group.open, group.total, group.first_at_ms, group.last_at_ms), (0, 0, None, None));
    }
}
