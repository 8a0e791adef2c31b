//! DLQs, their lives, positions and gaps.

use super::*;
use crate::on_both_stores;
use lazaret::store::dlqs::{Dlq, Incarnation};
use lazaret::store::positions::{Gap, GapKind, Position};

on_both_stores! {
    async fn a_dlq_is_made_once_and_found_after(store: Store) {
        assert_eq!(store.dlq("main", "orders.DLQ").await.unwrap(), None);
        let (made, new) = store.ensure_dlq("main", "orders.DLQ", Some("id-1"), Some("payments"), NOW).await.unwrap();
        assert!(new);
        let expected = Dlq {
            id: made.id,
            cluster: "main".into(),
            topic: "orders.DLQ".into(),
            incarnation: 1,
            topic_id: Some("id-1".into()),
            owner: Some("payments".into()),
            first_seen_at_ms: NOW,
            gone_since_ms: None,
            start_note: None,
        };
        assert_eq!(made, expected);
        let again = store.ensure_dlq("main", "orders.DLQ", Some("id-2"), None, NOW + 1).await.unwrap();
        assert_eq!(again, (made.clone(), false));
        assert_eq!(store.dlq("main", "orders.DLQ").await.unwrap(), Some(made));
        // Names compare byte by byte.
        let (other, new) = store.ensure_dlq("main", "Orders.DLQ", None, None, NOW).await.unwrap();
        assert!(new);
        let (elsewhere, _) = store.ensure_dlq("a", "z", None, None, NOW).await.unwrap();
        let names: Vec<i64> = store.dlqs().await.unwrap().iter().map(|dlq| dlq.id).collect();
        assert_eq!(names, [elsewhere.id, other.id, again.0.id]);
    }

    async fn many_may_make_the_same_dlq_at_once(store: Store) {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            tasks.spawn(async move { store.ensure_dlq("main", "orders.DLQ", Some("id"), None, NOW).await.expect("a DLQ") });
        }
        let results = tasks.join_all().await;
        assert_eq!(results.iter().filter(|(_, new)| *new).count(), 1);
        assert!(results.iter().all(|(dlq, _)| *dlq == results[0].0));
    }

    async fn a_recreated_topic_starts_one_new_life(store: Store) {
        let (dlq, _) = store.ensure_dlq("main", "orders.DLQ", None, None, NOW).await.unwrap();
        assert!(store.learn_topic_id(dlq.id, 1, "id-1").await.unwrap());
        assert!(!store.learn_topic_id(dlq.id, 1, "id-9").await.unwrap());
        assert_eq!(store.start_incarnation(dlq.id, 1, Some("id-2"), NOW + 1).await.unwrap(), Some(2));
        assert_eq!(store.start_incarnation(dlq.id, 1, Some("id-3"), NOW + 2).await.unwrap(), None);
        assert_eq!(store.start_incarnation(dlq.id, 2, None, NOW + 3).await.unwrap(), Some(3));
        let life = |incarnation, topic_id: Option<&str>, started_at_ms| Incarnation { incarnation, topic_id: topic_id.map(str::to_owned), started_at_ms };
        let expected = [life(1, Some("id-1"), NOW), life(2, Some("id-2"), NOW + 1), life(3, None, NOW + 3)];
        assert_eq!(store.incarnations(dlq.id).await.unwrap(), expected);
        let now = store.dlq("main", "orders.DLQ").await.unwrap().unwrap();
        assert_eq!((now.incarnation, now.topic_id), (3, None));
        assert_eq!(store.incarnations(dlq.id + 1).await.unwrap(), []);
    }

    async fn owner_note_and_absence_are_kept(store: Store) {
        let (dlq, _) = store.ensure_dlq("main", "orders.DLQ", None, Some("old"), NOW).await.unwrap();
        store.describe_dlq(dlq.id, Some("payments"), Some("records before 2026-11-23 were not taken in\0")).await.unwrap();
        store.set_gone(dlq.id, Some(NOW + 1)).await.unwrap();
        store.set_gone(dlq.id, Some(NOW + 2)).await.unwrap();
        let gone = store.dlq("main", "orders.DLQ").await.unwrap().unwrap();
        assert_eq!((gone.owner.as_deref(), gone.gone_since_ms), (Some("payments"), Some(NOW + 1)));
        assert_eq!(gone.start_note.as_deref(), Some("records before 2026-11-23 were not taken in\u{2400}"));
        store.set_gone(dlq.id, None).await.unwrap();
        store.describe_dlq(dlq.id, None, None).await.unwrap();
        let back = store.dlq("main", "orders.DLQ").await.unwrap().unwrap();
        assert_eq!((back.owner, back.gone_since_ms, back.start_note), (None, None, None));
    }

    async fn each_claim_of_a_position_raises_its_epoch(store: Store) {
        let (dlq, _) = store.ensure_dlq("main", "orders.DLQ", None, None, NOW).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: 1, partition: 4 };
        assert_eq!(store.claim_position(id, NOW).await.unwrap(), None);
        assert!(store.ensure_position(id, 17, NOW).await.unwrap());
        assert!(!store.ensure_position(id, 99, NOW).await.unwrap());
        let claimed = store.claim_position(id, NOW + 1).await.unwrap();
        assert_eq!(claimed, Some(Position { id, next_offset: 17, owner_epoch: 1, updated_at_ms: NOW + 1 }));
        assert_eq!(store.claim_position(id, NOW + 2).await.unwrap().unwrap().owner_epoch, 2);
        // Only the newest life is listed.
        store.start_incarnation(dlq.id, 1, None, NOW).await.unwrap();
        assert_eq!(store.positions(Some(dlq.id)).await.unwrap(), []);
        let second = PartitionId { incarnation: 2, ..id };
        store.ensure_position(second, 0, NOW).await.unwrap();
        let (other, _) = store.ensure_dlq("main", "mail.DLT", None, None, NOW).await.unwrap();
        let elsewhere = PartitionId { dlq_id: other.id, incarnation: 1, partition: 0 };
        store.ensure_position(elsewhere, 0, NOW).await.unwrap();
        let ids = async |dlq_id| store.positions(dlq_id).await.unwrap().iter().map(|position| position.id).collect::<Vec<_>>();
        assert_eq!(ids(None).await, [second, elsewhere]);
        assert_eq!(ids(Some(other.id)).await, [elsewhere]);
    }

    async fn a_gap_is_stepped_over_only_by_the_owner(store: Store) {
        let feed = Feed::open(&store, "orders.DLQ", 0).await;
        let gap = |kind, from_offset, to_offset| Gap { id: feed.id, kind, from_offset, to_offset, noticed_at_ms: NOW + 3 };
        let lost = gap(GapKind::Retention, 0, 50);
        assert!(!store.step_over_gap(&lost, feed.epoch + 1, 0).await.unwrap());
        assert!(!store.step_over_gap(&lost, feed.epoch, 1).await.unwrap());
        assert_eq!(store.gaps(feed.id.dlq_id, 10).await.unwrap(), []);
        assert!(store.step_over_gap(&lost, feed.epoch, 0).await.unwrap());
        let truncated = gap(GapKind::Truncation, 50, 20);
        assert!(store.step_over_gap(&truncated, feed.epoch, 50).await.unwrap());
        assert_eq!(store.positions(None).await.unwrap()[0].next_offset, 20);
        assert_eq!(store.gaps(feed.id.dlq_id, 10).await.unwrap(), [truncated.clone(), lost]);
        assert_eq!(store.gaps(feed.id.dlq_id, 1).await.unwrap(), [truncated]);
        assert_eq!(store.gaps(feed.id.dlq_id + 1, 10).await.unwrap(), []);
    }
}
