//! The newest open messages' keys and tenants, and the depth over time.

use super::*;
use crate::on_both_stores;
use lazaret::store::heat::KEY_READ;
use lazaret::store::samples::Sample;

fn with_key(offset: i64, key: Option<&[u8]>, tenant: Option<&str>) -> NewMessage {
    let mut new = message(0, offset);
    new.record.key = key.map(<[u8]>::to_vec);
    new.tenant = tenant.map(str::to_owned);
    new
}

fn looked(dlq_id: i64, at_ms: i64, depth: i64, error: Option<&str>) -> Sample {
    Sample {
        dlq_id,
        at_ms,
        uncollected: Some(0),
        depth: Some(depth),
        at_risk_state: "all_stored".to_owned(),
        at_risk_left_ms: None,
        error: error.map(str::to_owned),
        ..Sample::default()
    }
}

on_both_stores! {
    async fn the_newest_open_messages_of_one_dlq_are_read(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let long = vec![0xff; KEY_READ as usize + 500];
        let keys = [
            with_key(0, Some(b"too old"), None),
            with_key(1, None, Some("acme")),
            with_key(2, Some(b""), None),
            with_key(3, Some(&long), None),
            with_key(4, Some(b"archived"), None),
            with_key(5, Some(b"in review"), None),
            with_key(6, Some(b"new"), None),
        ];
        feed.take_in(&store, keys.to_vec()).await;
        Feed::open(&store, "mail.DLT", 0).await.take_in(&store, vec![with_key(0, Some(b"another DLQ's"), None)]).await;
        change(&store, "UPDATE messages SET state = 'archived' WHERE record_offset = 4").await;
        change(&store, "UPDATE messages SET state = 'under_review' WHERE record_offset = 5").await;
        let mut found = store.newest_open_keys(feed.id.dlq_id, 5).await.unwrap();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let found: Vec<_> = found.iter().map(|open| (open.key.clone(), open.key_hash.is_some(), open.tenant.as_deref())).collect();
        let wanted = [
            (None, false, Some("acme")),
            (Some(Vec::new()), true, None),
            (Some(b"in review".to_vec()), true, None),
            (Some(b"new".to_vec()), true, None),
            (Some(long[..KEY_READ as usize + 1].to_vec()), true, None),
        ];
        assert_eq!(found, wanted, "a null key is not the empty one, and a long one is cut one byte after what counts as whole");
    }

    async fn a_masked_key_is_told_from_a_null_one(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let masked = NewMessage { key_masked: true, ..with_key(0, Some(b"ana@b.example"), None) };
        feed.take_in(&store, vec![masked, with_key(1, None, None)]).await;
        let mut found: Vec<(bool, bool)> =
            store.newest_open_keys(feed.id.dlq_id, 5).await.unwrap().iter().map(|open| (open.key.is_some(), open.key_hash.is_some())).collect();
        found.sort_unstable();
        assert_eq!(found, [(false, false), (true, false)]);
        let rows = store.messages(&MessageFilter::default(), None, 5).await.unwrap().items;
        let keys: Vec<(Option<&[u8]>, bool)> = rows.iter().map(|row| (row.key.as_deref(), row.key_masked)).collect();
        assert_eq!(keys, [(None, false), (Some("•••".as_bytes()), true)]);
        assert_eq!(store.body(rows[1].id).await.unwrap().unwrap().key.as_deref(), Some(&b"ana@b.example"[..]), "the bytes stay exact");
    }

    async fn the_newest_open_messages_are_found_by_an_index(store: Store) {
        for partition in 0..2 {
            Feed::open(&store, "orders.DLQ", partition).await.take_in(&store, (0..3_000).map(|offset| message(partition, offset)).collect()).await;
        }
        change(&store, "UPDATE messages SET state = 'under_review' WHERE id % 1000 = 3").await;
        change(&store, "ANALYZE").await;
        let dlq = store.dlq("main", "orders.DLQ").await.unwrap().unwrap();
        assert_eq!(store.newest_open_keys(dlq.id, 100).await.unwrap().len(), 100);
        let plan = store.explain_newest_open_keys(dlq.id, 100).await.unwrap();
        assert_eq!(plan.matches("messages_state").count(), 4, "one walk for each open state:\n{plan}");
        assert!(!plan.contains("Seq Scan") && !plan.lines().any(|line| line.trim() == "SCAN m"), "{plan}");
    }

    async fn the_depth_at_the_end_of_each_bucket(store: Store) {
        let dlq = Feed::open(&store, "orders.DLQ", 0).await.id.dlq_id;
        let other = Feed::open(&store, "mail.DLT", 0).await.id.dlq_id;
        let bucket = 15 * MINUTE;
        let samples = [
            looked(dlq, NOW - 1, 1, None),
            looked(dlq, NOW, 2, None),
            looked(dlq, NOW + bucket - 1, 3, None),
            looked(dlq, NOW + bucket, 9, Some("broker 3 does not answer")),
            looked(dlq, NOW + 2 * bucket, 5, None),
            looked(dlq, NOW + 2 * bucket + 1, 9, Some("broker 3 does not answer")),
            looked(dlq, NOW + 3 * bucket, 7, None),
            looked(other, NOW, 99, None),
        ];
        store.save_samples(None, &samples, &[]).await.unwrap();
        let history = store.depth_history(dlq, NOW, NOW + 3 * bucket, bucket).await.unwrap();
        assert_eq!(history, [(NOW, 3), (NOW + 2 * bucket, 5)], "where each look failed there is none");
    }
}
