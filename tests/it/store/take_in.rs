//! Taking in: exact bytes, one transaction, nothing twice.

use super::*;
use crate::on_both_stores;
use lazaret::domain::dialect::Origin;
use lazaret::domain::message::MessageState;

/// Bytes that a text column, a C string or a careless driver would damage.
fn hostile() -> Vec<NewMessage> {
    let header = |name: &[u8], value: Option<&[u8]>| Header { name: name.to_vec(), value: value.map(<[u8]>::to_vec) };
    let mut all_null = message(0, 0);
    all_null.record.key = None;
    all_null.record.value = None;
    all_null.record.headers = Vec::new();
    let mut all_empty = message(0, 1);
    all_empty.record.key = Some(Vec::new());
    all_empty.record.value = Some(Vec::new());
    all_empty.record.headers = vec![header(b"", Some(b"")), header(b"", None)];
    let mut bytes = message(0, 2);
    bytes.record.key = Some(b"\0a\0\xff\xfe".to_vec());
    bytes.record.value = Some((0..=255).collect());
    bytes.record.headers =
        vec![header(b"same", Some(b"1")), header(b"same", Some(b"\0")), header(b"\xff\0", None), header(b"same", Some(b"1"))];
    let mut large = message(0, 3);
    large.record.key = Some(vec![0xab; 20_000]);
    large.record.value = Some((0..1_048_576_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect());
    let mut messages = vec![all_null, all_empty, bytes, large];
    for message in &mut messages {
        message.body_hash = hash(format!("{:?}", message.record).as_bytes());
    }
    messages
}

on_both_stores! {
    async fn every_byte_comes_back_as_it_went_in(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let given = hostile();
        assert_eq!(feed.take_in(&store, given.clone()).await, 4);
        for message in given {
            let record = &message.record;
            let row = store.message_at("main", "orders.DLQ", 0, record.offset, None).await.unwrap().unwrap();
            let body = store.body(row.id).await.unwrap().unwrap();
            assert_eq!(row.key, record.key);
            assert_eq!(row.size, record.size() as i64);
            assert_eq!(body.value, record.value);
            assert_eq!(body.headers, record.headers);
            assert_eq!(body.hash, message.body_hash);
        }
    }

    async fn every_field_comes_back_as_it_went_in(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 3).await;
        let mut full = message(3, 41);
        full.origin = Some(Origin { topic: Some("orders".into()), partition: Some(7), offset: Some(i64::MAX), timestamp_ms: Some(-1) });
        full.tenant = Some("acme".into());
        full.attempts = Some(i64::MIN);
        full.lap = 2;
        full.timestamp_suspect = true;
        full.record_at_ms = Some(-5);
        let mut bare = message(3, 42);
        bare.exception_class = None;
        bare.exception_message = None;
        bare.consumer_group = None;
        bare.attempts = None;
        bare.business_key = None;
        bare.record_at_ms = None;
        bare.group = GroupIdentity { consumer_group: None, exception_class: None, top_frame: None, ..group("bare", FailureClass::Unknown, "", "") };
        bare.class = FailureClass::Unknown;
        feed.take_in(&store, vec![full, bare]).await;

        let row = store.message_at("main", "orders.DLQ", 3, 41, Some(1)).await.unwrap().unwrap();
        assert_eq!(store.message(row.id).await.unwrap(), Some(row.clone()));
        let expected = MessageRow {
            id: row.id,
            dlq_id: feed.id.dlq_id,
            cluster: "main".into(),
            topic: "orders.DLQ".into(),
            incarnation: 1,
            partition: 3,
            offset: 41,
            state: MessageState::Quarantined,
            resolution: None,
            outcome: None,
            reason: None,
            follow_up: None,
            replay_of: None,
            dialect: "spring_dlt".into(),
            class: FailureClass::Transient,
            class_reason: "built-in: java.net.SocketTimeoutException".into(),
            group_id: row.group_id,
            exception_class: Some("java.net.SocketTimeoutException".into()),
            exception_message: Some("Read timed out after 30 ms".into()),
            origin_topic: Some("orders".into()),
            origin_partition: Some(7),
            origin_offset: Some(i64::MAX),
            origin_at_ms: Some(-1),
            consumer_group: Some("wallet".into()),
            attempts: Some(i64::MIN),
            lap: 2,
            business_key: Some("pay-41".into()),
            tenant: Some("acme".into()),
            record_at_ms: Some(-5),
            dead_lettered_at_ms: NOW + 41,
            timestamp_suspect: true,
            first_seen_at_ms: NOW + 5_000,
            key: Some(b"key-41".to_vec()),
            key_masked: false,
            size: row.size,
        };
        assert_eq!(row, expected);

        let bare = store.message_at("main", "orders.DLQ", 3, 42, None).await.unwrap().unwrap();
        assert_eq!((bare.exception_class, bare.exception_message, bare.consumer_group), (None, None, None));
        assert_eq!((bare.attempts, bare.business_key, bare.record_at_ms, bare.origin_topic), (None, None, None, None));
        let group = store.group(bare.group_id).await.unwrap().unwrap();
        assert_eq!((group.consumer_group, group.exception_class, group.top_frame), (None, None, None));

        assert_eq!(store.message(row.id + 1_000).await.unwrap(), None);
        assert_eq!(store.body(row.id + 1_000).await.unwrap(), None);
        assert_eq!(store.message_at("main", "orders.DLQ", 3, 43, None).await.unwrap(), None);
        assert_eq!(store.message_at("main", "orders.DLQ", 3, 41, Some(2)).await.unwrap(), None);
        assert_eq!(store.message_at("other", "orders.DLQ", 3, 41, None).await.unwrap(), None);
    }

    async fn nul_in_any_text_is_made_visible_and_never_refused(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut nul = message(0, 0);
        let bad = || Some("a\0b".to_owned());
        nul.dialect = "a\0b".into();
        nul.class_reason = "a\0b".into();
        nul.exception_class = bad();
        nul.exception_message = bad();
        nul.consumer_group = bad();
        nul.business_key = bad();
        nul.tenant = bad();
        nul.origin = Some(Origin { topic: bad(), partition: None, offset: None, timestamp_ms: None });
        nul.group = GroupIdentity { consumer_group: bad(), exception_class: bad(), top_frame: bad(), ..group("nul", FailureClass::Bug, "", "a\0b") };
        assert_eq!(feed.take_in(&store, vec![nul]).await, 1);
        let row = &all(&store, &MessageFilter::default()).await[0];
        let good = Some("a\u{2400}b");
        let texts = [&row.exception_class, &row.exception_message, &row.consumer_group, &row.business_key, &row.tenant, &row.origin_topic];
        for text in texts {
            assert_eq!(text.as_deref(), good);
        }
        assert_eq!([Some(row.dialect.as_str()), Some(row.class_reason.as_str())], [good, good]);
        let group = store.group(row.group_id).await.unwrap().unwrap();
        assert_eq!([group.consumer_group.as_deref(), group.exception_class.as_deref(), group.top_frame.as_deref()], [good; 3]);
        assert_eq!(group.normalised_text, "a\u{2400}b");
        let found = all(&store, &MessageFilter { q: bad(), ..MessageFilter::default() }).await;
        assert_eq!(found.len(), 1);
    }

    async fn a_batch_moves_the_position_past_markers_and_an_empty_one_too(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let batch = PartitionBatch { next_offset: 12, ..feed.batch(vec![message(0, 4), message(0, 9)]) };
        assert_eq!(store.take_in(&[batch], NOW + 1).await.unwrap(), TakeIn::Committed { stored: 2 });
        feed.next = 12;
        let empty = PartitionBatch { next_offset: 15, ..feed.batch(Vec::new()) };
        assert_eq!(store.take_in(&[empty], NOW + 2).await.unwrap(), TakeIn::Committed { stored: 0 });
        let positions = store.positions(Some(feed.id.dlq_id)).await.unwrap();
        assert_eq!((positions[0].next_offset, positions[0].updated_at_ms), (15, NOW + 2));
        assert_eq!(store.newest_record(feed.id).await.unwrap(), Some((9, Some(NOW + 9), message(0, 9).body_hash.to_vec())));
        assert_eq!(store.newest_record(PartitionId { partition: 1, ..feed.id }).await.unwrap(), None);
        assert_eq!(store.take_in(&[], NOW).await.unwrap(), TakeIn::Committed { stored: 0 });
    }

    async fn nothing_of_a_call_is_written_when_one_partition_was_moved(store: Store) {
        let mut mine = Feed::open(&store, "orders.DLQ", 0).await;
        let lost = Feed::open(&store, "orders.DLQ", 1).await;
        let missing = PartitionId { partition: 2, ..mine.id };
        Feed::open(&store, "orders.DLQ", 1).await;
        let batches = [
            mine.batch(vec![message(0, 0)]),
            lost.batch(vec![message(1, 0)]),
            PartitionBatch { id: missing, ..mine.batch(vec![message(2, 0)]) },
        ];
        assert_eq!(store.take_in(&batches, NOW).await.unwrap(), TakeIn::Moved(vec![lost.id, missing]));
        assert_eq!(all(&store, &MessageFilter::default()).await, []);
        assert!(store.dlq_counts(None).await.unwrap().is_empty());
        let positions = store.positions(None).await.unwrap();
        assert!(positions.iter().all(|position| position.next_offset == 0));

        // The right epoch with a wrong offset does no better.
        let behind = PartitionBatch { expected_offset: 5, next_offset: 6, ..mine.batch(vec![message(0, 5)]) };
        assert_eq!(store.take_in(&[behind], NOW).await.unwrap(), TakeIn::Moved(vec![mine.id]));
        assert_eq!(mine.take_in(&store, vec![message(0, 0)]).await, 1);
        assert_eq!(store.check_counters(mine.id.dlq_id).await.unwrap(), []);
    }

    async fn reading_again_under_a_newer_claim_stores_nothing_twice(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let messages = |offsets: std::ops::Range<i64>| offsets.map(|offset| message(0, offset)).collect::<Vec<_>>();
        feed.take_in(&store, messages(0..100)).await;
        change(&store, "UPDATE positions SET next_offset = 0").await;
        let mut again = Feed::open(&store, "orders.DLQ", 0).await;
        assert_eq!(again.next, 0);
        assert_eq!(again.take_in(&store, messages(0..50)).await, 0);
        // Half of it known, half of it new.
        assert_eq!(again.take_in(&store, messages(50..150)).await, 50);
        assert_eq!(all(&store, &MessageFilter::default()).await.len(), 150);
        assert_eq!(store.dlq_counts(None).await.unwrap()[&feed.id.dlq_id].depth(), 150);
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    async fn another_record_at_a_known_offset_is_kept_beside_the_old_one(store: Store) {
        // The log was truncated by an unclean election and written again: same topic, same offsets, other records.
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        feed.take_in(&store, (0..10).map(|offset| message(0, offset)).collect()).await;
        change(&store, "UPDATE positions SET next_offset = 8").await;
        feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut other = message(0, 8);
        other.record.value = Some(b"another".to_vec());
        other.body_hash = hash(b"another");
        assert_eq!(feed.take_in(&store, vec![other, message(0, 9)]).await, 1);
        let newest = store.message_at("main", "orders.DLQ", 0, 8, None).await.unwrap().unwrap();
        assert_eq!(store.body(newest.id).await.unwrap().unwrap().value, Some(b"another".to_vec()));
        assert_eq!(store.dlq_counts(None).await.unwrap()[&feed.id.dlq_id].depth(), 11);
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    async fn a_recreated_topic_keeps_both_lives_apart(store: Store) {
        let mut first = Feed::open(&store, "orders.DLQ", 0).await;
        first.take_in(&store, vec![message(0, 0), message(0, 1)]).await;
        store.start_incarnation(first.id.dlq_id, 1, Some("topic-id-2"), NOW).await.unwrap();
        let mut second = Feed::open(&store, "orders.DLQ", 0).await;
        assert_eq!((second.id.incarnation, second.next), (2, 0));
        assert_eq!(second.take_in(&store, vec![message(0, 0)]).await, 1);
        let at = async |incarnation| store.message_at("main", "orders.DLQ", 0, 0, incarnation).await.unwrap().unwrap().incarnation;
        assert_eq!((at(None).await, at(Some(1)).await, at(Some(2)).await), (2, 1, 2));
        // Offset 1 exists in the first life only.
        assert_eq!(store.message_at("main", "orders.DLQ", 0, 1, None).await.unwrap().unwrap().incarnation, 1);
    }

    async fn partitions_are_taken_in_side_by_side(store: Store) {
        const PARTITIONS: i32 = 6;
        const ROUNDS: i64 = 8;
        let mut tasks = tokio::task::JoinSet::new();
        for partition in 0..PARTITIONS {
            let store = store.clone();
            tasks.spawn(async move {
                let mut feed = Feed::open(&store, "orders.DLQ", partition).await;
                for round in 0..ROUNDS {
                    // The same groups in all partitions, new ones in each round.
                    let messages = (round * 50..round * 50 + 50).map(|offset| {
                        let mut new = message(partition, offset);
                        new.group = group(&format!("g{}", offset % 7 + round), FailureClass::Bug, "E", "t");
                        new
                    });
                    assert_eq!(feed.take_in(&store, messages.collect()).await, 50);
                    store.fold_counters(100).await.expect("a fold");
                }
                feed.id.dlq_id
            });
        }
        let ids = tasks.join_all().await;
        let depth = store.dlq_counts(None).await.unwrap()[&ids[0]].depth();
        assert_eq!(depth, i64::from(PARTITIONS) * ROUNDS * 50);
        assert_eq!(store.check_counters(ids[0]).await.unwrap(), []);
        let rows = all(&store, &MessageFilter::default()).await;
        assert_eq!(rows.len() as i64, depth);
        assert!(rows.is_sorted_by(|a, b| a.id > b.id));
    }

    async fn texts_too_long_for_an_index_are_stored_and_found(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let long: String = (0..40_000).map(|n| char::from_u32(0x4e00 + n % 5_000).unwrap()).collect();
        let mut new = message(0, 0);
        new.business_key = Some(long.clone());
        new.record.key = Some(long.clone().into_bytes());
        new.group = group("long", FailureClass::Bug, &long, &long);
        assert_eq!(feed.take_in(&store, vec![new]).await, 1);
        for filter in [
            MessageFilter { q: Some(long.clone()), ..MessageFilter::default() },
            MessageFilter { key: Some(long.clone().into_bytes()), ..MessageFilter::default() },
        ] {
            assert_eq!(all(&store, &filter).await.len(), 1);
        }
    }
}
