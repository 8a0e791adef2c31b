//! Lists of messages: each filter, filters together, paging.

use super::*;
use crate::on_both_stores;
use lazaret::domain::message::MessageState;

/// Two DLQs in two clusters, three partitions, three groups, five states: 120 messages. Returns those of the first DLQ's id.
async fn fill(store: &Store) -> i64 {
    let mut first = 0;
    for (topic, offsets) in [("orders.DLQ", 0..60_i64), ("mail.DLT", 60..120)] {
        for partition in 0..3 {
            let mut feed = Feed::open(store, topic, partition).await;
            if topic == "orders.DLQ" {
                first = feed.id.dlq_id;
            }
            let mine = offsets.clone().filter(|offset| offset % 3 == i64::from(partition));
            feed.take_in(store, mine.map(|offset| kind_of(partition, offset)).collect()).await;
        }
    }
    change(store, "UPDATE messages SET state = 'under_review' WHERE record_offset % 10 = 1").await;
    change(store, "UPDATE messages SET state = 'replayed', resolution = 'sent', outcome = 'pending' WHERE record_offset % 10 = 2").await;
    change(store, "UPDATE messages SET state = 'archived', reason = 'noise', follow_up = 'open' WHERE record_offset % 10 = 3").await;
    first
}

fn kind_of(partition: i32, offset: i64) -> NewMessage {
    let mut new = message(partition, offset);
    new.dead_lettered_at_ms = NOW + (offset / 10) * MINUTE;
    if offset % 7 == 0 {
        new.class = FailureClass::Deserialization;
        new.group =
            group("d", FailureClass::Deserialization, "org.apache.kafka.common.errors.SerializationException", "Unknown magic byte!");
    }
    if offset % 7 == 1 {
        new.class = FailureClass::Bug;
        new.group = group("n", FailureClass::Bug, "java.lang.NullPointerException", "Ünknown Wert in <n>");
    }
    if offset % 20 == 5 {
        new.record.key = None;
        new.business_key = None;
    }
    new
}

/// Whether a message as it lies in the table is one that the filter means: the list's meaning, written a second time without SQL.
fn means(filter: &MessageFilter, row: &MessageRow) -> bool {
    let q = |q: &String| {
        let group =
            ["java.net.sockettimeoutexception", "org.apache.kafka.common.errors.serializationexception", "java.lang.nullpointerexception"];
        let text = ["read timed out after <n> ms", "unknown magic byte!", "ünknown wert in <n>"];
        let of = match row.class {
            FailureClass::Deserialization => 1,
            FailureClass::Bug => 2,
            _ => 0,
        };
        let q_lower = q.to_lowercase();
        row.business_key.as_ref() == Some(q)
            || row.key.as_deref() == Some(q.as_bytes())
            || group[of].starts_with(&q_lower)
            || text[of].starts_with(&q_lower)
    };
    filter.cluster.as_ref().is_none_or(|cluster| *cluster == row.cluster)
        && filter.topic.as_ref().is_none_or(|topic| *topic == row.topic)
        && filter.state.is_none_or(|state| state == row.state)
        && filter.class.is_none_or(|class| class == row.class)
        && filter.group_id.is_none_or(|group| group == row.group_id)
        && filter.partition.is_none_or(|partition| partition == row.partition)
        && filter.key.as_ref().is_none_or(|key| Some(key) == row.key.as_ref())
        && filter.q.as_ref().is_none_or(|text| text.is_empty() || q(text))
        && filter.from_ms.is_none_or(|from| row.dead_lettered_at_ms >= from)
        && filter.to_ms.is_none_or(|to| row.dead_lettered_at_ms < to)
}

type Condition = fn(&mut MessageFilter, i64);

/// One value of each condition that finds something, and one of some that finds nothing.
const CONDITIONS: [Condition; 18] = [
    |filter, _| filter.cluster = Some("main".into()),
    |filter, _| filter.cluster = Some("elsewhere".into()),
    |filter, _| filter.topic = Some("orders.DLQ".into()),
    |filter, _| filter.state = Some(MessageState::UnderReview),
    |filter, _| filter.state = Some(MessageState::SchemaCheck),
    |filter, _| filter.class = Some(FailureClass::Deserialization),
    |filter, _| filter.class = Some(FailureClass::Size),
    |filter, group| filter.group_id = Some(group),
    |filter, _| filter.group_id = Some(-1),
    |filter, _| filter.partition = Some(1),
    |filter, _| filter.partition = Some(9),
    |filter, _| filter.key = Some(b"key-21".to_vec()),
    |filter, _| filter.q = Some("pay-21".into()),
    |filter, _| filter.q = Some("key-28".into()),
    |filter, _| filter.q = Some("JAVA.".into()),
    |filter, _| filter.q = Some("ünKNOWN wert".into()),
    |filter, _| filter.from_ms = Some(NOW + 3 * MINUTE),
    |filter, _| filter.to_ms = Some(NOW + 4 * MINUTE),
];

on_both_stores! {
    async fn each_condition_and_each_two_together_give_exactly_what_they_mean(store: Store) {
        fill(&store).await;
        let everything = all(&store, &MessageFilter::default()).await;
        assert_eq!(everything.len(), 120);
        let group = everything.iter().find(|row| row.class == FailureClass::Bug).unwrap().group_id;
        let mut found_something = 0;
        for first in CONDITIONS {
            for second in CONDITIONS {
                let mut filter = MessageFilter::default();
                first(&mut filter, group);
                second(&mut filter, group);
                let found: Vec<i64> = all(&store, &filter).await.iter().map(|row| row.id).collect();
                let expected: Vec<i64> = everything.iter().filter(|row| means(&filter, row)).map(|row| row.id).collect();
                assert_eq!(found, expected, "{filter:?}");
                found_something += usize::from(!found.is_empty());
            }
        }
        assert!(found_something > 100, "the conditions must find something to prove anything: {found_something}");
    }

    async fn all_conditions_together_find_the_one_message(store: Store) {
        fill(&store).await;
        let one = all(&store, &MessageFilter { key: Some(b"key-21".to_vec()), ..MessageFilter::default() }).await.remove(0);
        let mut filter = MessageFilter {
            cluster: Some("main".into()),
            topic: Some("orders.DLQ".into()),
            state: Some(MessageState::UnderReview),
            follow_up: None,
            class: Some(FailureClass::Deserialization),
            group_id: Some(one.group_id),
            partition: Some(0),
            key: Some(b"key-21".to_vec()),
            owner: None,
            q: Some("pay-21".into()),
            from_ms: Some(one.dead_lettered_at_ms),
            to_ms: Some(one.dead_lettered_at_ms + 1),
        };
        assert_eq!(all(&store, &filter).await, vec![one.clone()]);
        filter.to_ms = Some(one.dead_lettered_at_ms);
        assert_eq!(all(&store, &filter).await, []);
    }

    async fn pages_follow_one_another_without_gap_or_repetition(store: Store) {
        fill(&store).await;
        let filters = [
            MessageFilter::default(),
            MessageFilter { topic: Some("mail.DLT".into()), ..MessageFilter::default() },
            MessageFilter { q: Some("java".into()), ..MessageFilter::default() },
            MessageFilter { class: Some(FailureClass::Transient), ..MessageFilter::default() },
            MessageFilter { to_ms: Some(NOW + 5 * MINUTE), ..MessageFilter::default() },
        ];
        for filter in filters {
            let whole: Vec<i64> = all(&store, &filter).await.iter().map(|row| row.id).collect();
            assert!(whole.is_sorted_by(|a, b| a > b));
            for limit in [1, 7, whole.len() as i64, 1_000] {
                let mut paged = Vec::new();
                let mut after = None;
                loop {
                    let page = store.messages(&filter, after, limit).await.unwrap();
                    paged.extend(page.items.iter().map(|row| row.id));
                    assert!(page.items.len() as i64 <= limit);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(paged, whole, "{filter:?} by {limit}");
            }
        }
    }

    async fn arrivals_between_two_pages_shift_nothing(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        feed.take_in(&store, (0..20).map(|offset| message(0, offset)).collect()).await;
        let filter = MessageFilter { topic: Some("orders.DLQ".into()), ..MessageFilter::default() };
        let first = store.messages(&filter, None, 10).await.unwrap();
        feed.take_in(&store, (20..40).map(|offset| message(0, offset)).collect()).await;
        let second = store.messages(&filter, first.next, 10).await.unwrap();
        let offsets: Vec<i64> = first.items.iter().chain(&second.items).map(|row| row.offset).collect();
        assert_eq!(offsets, (0..20).rev().collect::<Vec<_>>());
        assert_eq!(second.next, None);
    }

    async fn a_large_recent_range_and_a_small_old_one_are_both_found(store: Store) {
        // More arrivals than a range walked by time may hold, so that both ways through the index are taken.
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        for start in (0..6_000).step_by(2_000) {
            feed.take_in(&store, (start..start + 2_000).map(|offset| {
                let mut new = message(0, offset);
                new.dead_lettered_at_ms = NOW + offset * 1_000;
                new
            }).collect()).await;
        }
        while store.fold_counters(1_000).await.unwrap() > 0 {}
        let range = |from: Option<i64>, to: Option<i64>| MessageFilter {
            topic: Some("orders.DLQ".into()),
            from_ms: from.map(|second| NOW + second * 1_000),
            to_ms: to.map(|second| NOW + second * 1_000),
            ..MessageFilter::default()
        };
        for (filter, expected) in [
            (range(Some(500), None), 500..6_000),
            (range(Some(5_990), None), 5_990..6_000),
            (range(Some(10), Some(15)), 10..15),
            (range(None, Some(3)), 0..3),
            (range(None, Some(5_999)), 0..5_999),
        ] {
            let offsets: Vec<i64> = all(&store, &filter).await.iter().map(|row| row.offset).collect();
            assert_eq!(offsets, expected.rev().collect::<Vec<_>>(), "{filter:?}");
        }
    }

    async fn keys_that_only_look_alike_are_told_apart(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let keys: [Option<&[u8]>; 5] = [None, Some(b""), Some(b"\0"), Some(b"a"), Some(b"A")];
        let messages = keys.iter().enumerate().map(|(offset, key)| {
            let mut new = message(0, offset as i64);
            new.record.key = key.map(<[u8]>::to_vec);
            new.business_key = None;
            new
        });
        feed.take_in(&store, messages.collect()).await;
        for (offset, key) in keys.iter().enumerate().skip(1) {
            let filter = MessageFilter { key: key.map(<[u8]>::to_vec), ..MessageFilter::default() };
            let offsets: Vec<i64> = all(&store, &filter).await.iter().map(|row| row.offset).collect();
            assert_eq!(offsets, [offset as i64], "{key:?}");
        }
    }

    async fn what_looks_like_sql_or_a_pattern_is_text(store: Store) {
        fill(&store).await;
        for q in ["%", "_", "java%", "'; DROP TABLE messages; --", "$1", "?", "\\", "\u{10ffff}", "java\0"] {
            let filter = MessageFilter { q: Some(q.into()), ..MessageFilter::default() };
            assert_eq!(all(&store, &filter).await, [], "{q:?}");
        }
        assert_eq!(all(&store, &MessageFilter::default()).await.len(), 120);
    }

    async fn the_body_of_a_purged_message_is_gone_and_the_message_stays(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        feed.take_in(&store, vec![message(0, 0)]).await;
        change(&store, "DELETE FROM bodies").await;
        let row = all(&store, &MessageFilter::default()).await.remove(0);
        assert_eq!(store.body(row.id).await.unwrap(), None);
        assert_eq!(row.exception_class.as_deref(), Some("java.net.SocketTimeoutException"));
        assert!(store.newest_record(feed.id).await.unwrap().is_some());
    }

    async fn an_owner_narrows_to_their_dlqs(store: Store) {
        let first = fill(&store).await;
        store.describe_dlq(first, Some("payments"), None).await.unwrap();
        let of = |owner: &str| MessageFilter { owner: Some(owner.into()), ..MessageFilter::default() };
        let found = all(&store, &of("payments")).await;
        assert_eq!((found.len(), found.iter().all(|row| row.dlq_id == first)), (60, true));
        assert_eq!(all(&store, &of("fraud")).await, []);
        assert_eq!(all(&store, &MessageFilter { topic: Some("mail.DLT".into()), ..of("payments") }).await, []);
    }

    async fn of_more_lists_than_a_page_has_rows_the_newest_are_found(store: Store) {
        // 40 DLQs of 3 groups each, taken in in turns: more lists, by DLQ and by group, than a page of 5 has rows.
        let mut feeds = Vec::new();
        for dlq in 0..40 {
            feeds.push(Feed::open(&store, &format!("team-{dlq}.DLQ"), 0).await);
        }
        for offset in 0..6 {
            for (dlq, feed) in feeds.iter_mut().enumerate() {
                let mut new = message(0, offset);
                new.group = group(&format!("g{}", (offset + dlq as i64) % 3), FailureClass::Transient, "java.net.SocketTimeoutException", "read timed out");
                feed.take_in(&store, vec![new]).await;
            }
        }
        let newest: Vec<i64> = all(&store, &MessageFilter::default()).await.iter().map(|row| row.id).collect();
        for filter in [
            MessageFilter { state: Some(MessageState::Quarantined), ..MessageFilter::default() },
            MessageFilter { cluster: Some("main".into()), ..MessageFilter::default() },
            MessageFilter { class: Some(FailureClass::Transient), ..MessageFilter::default() },
            MessageFilter { q: Some("java.net".into()), ..MessageFilter::default() },
        ] {
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let page = store.messages(&filter, after, 5).await.unwrap();
                paged.extend(page.items.iter().map(|row| row.id));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(paged, newest, "{filter:?}");
        }
    }

    async fn a_key_that_must_not_be_shown_is_neither_shown_nor_found(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut hidden = message(0, 0);
        hidden.key_masked = true;
        hidden.business_key = None;
        feed.take_in(&store, vec![hidden]).await;
        let row = all(&store, &MessageFilter::default()).await.remove(0);
        assert_eq!(row.key.as_deref(), Some("•••".as_bytes()));
        let by_key = MessageFilter { key: Some(b"key-0".to_vec()), ..MessageFilter::default() };
        let by_q = MessageFilter { q: Some("key-0".into()), ..MessageFilter::default() };
        let by_both = MessageFilter { q: Some("key-0".into()), ..by_key.clone() };
        for filter in [by_key, by_q, by_both] {
            assert_eq!(all(&store, &filter).await, [], "{filter:?}");
        }
    }
}
