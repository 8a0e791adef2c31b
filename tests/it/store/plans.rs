//! The hot queries walk their indexes: asked of the planner itself, over some thousands of rows with statistics.

use super::*;
use crate::on_both_stores;
use lazaret::domain::lifecycle::{FollowUp, Outcome};
use lazaret::domain::message::MessageState;
use lazaret::domain::replay::{Expected, ItemState};
use lazaret::store::replay_pages::{ItemCursor, ItemList};

/// 8,000 messages in two DLQs, nearly all of them in one state, one class and one group: where a planner is tempted to read everything.
async fn fill(store: &Store) -> i64 {
    let mut rare = 0;
    for topic in ["orders.DLQ", "mail.DLT"] {
        for partition in 0..2 {
            let mut feed = Feed::open(store, topic, partition).await;
            let messages = (0..2_000).map(|offset| {
                let mut new = message(partition, offset);
                if offset % 500 == 7 {
                    new.class = FailureClass::Bug;
                    new.group = group(&format!("rare {topic}"), FailureClass::Bug, "java.lang.NullPointerException", "oops");
                }
                new
            });
            feed.take_in(store, messages.collect()).await;
        }
    }
    change(store, "UPDATE messages SET state = 'under_review' WHERE id % 1000 = 3").await;
    change(
        store,
        "UPDATE messages SET state = 'archived', follow_up = CASE WHEN id % 2000 = 9 THEN 'open' ELSE 'closed' END WHERE id % 1000 = 9",
    )
    .await;
    while store.fold_counters(1_000).await.unwrap() > 0 {}
    change(store, "ANALYZE").await;
    for row in all(store, &MessageFilter { class: Some(FailureClass::Bug), ..MessageFilter::default() }).await {
        rare = row.group_id;
    }
    rare
}

/// What the plan says of `messages m` inside the walks: the index named, and no scan of the table.
fn walks(store: &Store, plan: &str, index: &str) -> bool {
    let scanned = match store {
        Store::Postgres(_) => plan.contains("Seq Scan on messages"),
        // SQLite says SCAN for an index read from one end too, and then names the index.
        Store::Sqlite(_) => plan.lines().any(|line| line.trim() == "SCAN m"),
    };
    !scanned && plan.contains(index)
}

on_both_stores! {
    async fn every_filter_walks_an_index(store: Store) {
        let rare = fill(&store).await;
        let primary = match store {
            Store::Postgres(_) => "messages_pkey",
            Store::Sqlite(_) => "INTEGER PRIMARY KEY",
        };
        let none = MessageFilter::default;
        let topic = || MessageFilter { topic: Some("orders.DLQ".into()), ..none() };
        let cases = [
            (none(), vec![primary]),
            (MessageFilter { cluster: Some("main".into()), ..none() }, vec!["messages_state"]),
            (topic(), vec!["messages_state"]),
            (MessageFilter { state: Some(MessageState::UnderReview), ..none() }, vec!["messages_state"]),
            (MessageFilter { state: Some(MessageState::Quarantined), ..topic() }, vec!["messages_state"]),
            (MessageFilter { state: Some(MessageState::SchemaCheck), ..topic() }, vec!["messages_state"]),
            (MessageFilter { partition: Some(1), ..topic() }, vec!["messages_state"]),
            (MessageFilter { class: Some(FailureClass::Bug), ..none() }, vec!["messages_group"]),
            (MessageFilter { class: Some(FailureClass::Transient), ..topic() }, vec!["messages_group"]),
            (MessageFilter { follow_up: Some(FollowUp::Open), ..none() }, vec!["messages_follow_up"]),
            (MessageFilter { follow_up: Some(FollowUp::Open), ..topic() }, vec!["messages_follow_up"]),
            (MessageFilter { follow_up: Some(FollowUp::Closed), state: Some(MessageState::Archived), ..topic() }, vec!["messages_follow_up"]),
            (MessageFilter { group_id: Some(rare), ..none() }, vec!["messages_group"]),
            // Two selective conditions: whichever the statistics prefer.
            (MessageFilter { group_id: Some(rare), state: Some(MessageState::UnderReview), ..topic() }, vec!["messages_"]),
            (MessageFilter { key: Some(b"key-7".to_vec()), ..none() }, vec!["messages_key"]),
            (MessageFilter { key: Some(b"key-7".to_vec()), ..topic() }, vec!["messages_key"]),
            (MessageFilter { q: Some("pay-7".into()), ..none() }, vec!["messages_business", "messages_key", "messages_group"]),
            (MessageFilter { q: Some("java.lang.".into()), ..topic() }, vec!["messages_business", "messages_key", "messages_group"]),
            (MessageFilter { to_ms: Some(NOW + 10), ..topic() }, vec!["messages_time"]),
            (MessageFilter { from_ms: Some(NOW + 1_990), ..topic() }, vec!["messages_time"]),
            (MessageFilter { from_ms: Some(NOW + 1_990), ..none() }, vec!["messages_"]),
        ];
        for (filter, indexes) in cases {
            for after in [None, Some(4_000)] {
                let plan = store.explain_messages(&filter, after, 50).await.unwrap();
                for index in &indexes {
                    assert!(walks(&store, &plan, index), "{filter:?} does not walk {index}:\n{plan}");
                }
            }
        }
    }

    async fn every_list_of_a_replays_items_walks_an_index(store: Store) {
        fill(&store).await;
        // Four batches of everything, of which nearly all goes as forecast and is well.
        change(&store, "INSERT INTO replay_items (batch_id, message_id, place, group_id, stage, lap, live, state, outcome, forecast, body_hash)
            SELECT b.id, m.id, m.id, m.group_id, CASE WHEN m.id % 100 = 0 THEN 0 ELSE 1 END, 1, false,
                CASE WHEN m.id % 50 = 1 THEN 'held' WHEN m.id % 50 = 2 THEN 'pending' ELSE 'sent' END,
                CASE WHEN m.id % 50 IN (1, 2) THEN NULL WHEN m.id % 1000 = 7 THEN 'returned' WHEN m.id % 1000 = 8 THEN 'unproven'
                    WHEN m.id % 100 = 9 THEN 'pending' ELSE 'confirmed' END,
                CASE WHEN m.id % 1000 = 1 THEN 'held' WHEN m.id % 1000 = 3 THEN 'incompatible' ELSE 'send' END, m.body_hash
            FROM messages m CROSS JOIN (SELECT 1 AS id UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) b").await;
        change(&store, "ANALYZE").await;
        let primary = match store {
            // By batch and message, or by message and batch: what it guesses of the table decides.
            Store::Postgres(_) => "Index Scan using replay_items_",
            Store::Sqlite(_) => "sqlite_autoindex_replay_items_1",
        };
        let cases = [
            (ItemList::All, primary),
            (ItemList::State(ItemState::Held), "replay_items_next"),
            (ItemList::State(ItemState::Sent), "replay_items_next"),
            (ItemList::Forecast(Expected::Held), "replay_items_odd"),
            (ItemList::Forecast(Expected::Incompatible), "replay_items_odd"),
            (ItemList::Outcome(Outcome::Returned), "replay_items_unwell"),
            (ItemList::Outcome(Outcome::Unproven), "replay_items_unwell"),
        ];
        for (list, index) in cases {
            for after in [ItemCursor::START, ItemCursor { stage: 1, place: 4_000, message_id: 4_000 }] {
                let plan = store.explain_items(2, list, after, 50).await.unwrap();
                let scanned = plan.contains("Seq Scan on replay_items") || plan.lines().any(|line| line.trim() == "SCAN i");
                assert!(plan.contains(index) && !scanned, "{list:?} does not walk {index}:\n{plan}");
                let page = store.items_of_batch(2, list, after, 50).await.unwrap();
                assert!(!page.items.is_empty(), "{list:?} has something to walk to");
            }
        }
    }

    async fn the_overview_reads_no_table_that_grows(store: Store) {
        fill(&store).await;
        for n in 0..20 {
            Feed::open(&store, &format!("team-{n}.DLQ"), 0).await;
        }
        // Four weeks of counters and a day of samples, so that reading all of a table would show.
        change(&store, "INSERT INTO counters (dlq_id, kind, ref, amount) WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 1999)
            SELECT d.id, 'arrivals', CAST(1793000000000 AS BIGINT) / 60000 * 60000 + CAST(k AS BIGINT) * 60000, 1 FROM dlqs d CROSS JOIN n").await;
        change(&store, "INSERT INTO counters (dlq_id, kind, ref, amount) WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 1299)
            SELECT d.id, 'arrivals_30m', CAST(1793000000000 AS BIGINT) / 1800000 * 1800000 + CAST(k AS BIGINT) * 1800000, 1 FROM dlqs d CROSS JOIN n").await;
        change(&store, "INSERT INTO samples (dlq_id, at_ms, depth, at_risk_state) WITH RECURSIVE n(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < 1999)
            SELECT d.id, CAST(1796083200000 AS BIGINT) - CAST(k AS BIGINT) * 15000, 1, 'all_stored' FROM dlqs d CROSS JOIN n").await;
        change(&store, "ANALYZE").await;
        for (name, plan) in store.explain_overview(NOW).await.unwrap() {
            let scanned = |line: &str| match store {
                Store::Postgres(_) => ["messages", "counters", "samples"].iter().any(|table| line.contains(&format!("Seq Scan on {table}"))),
                // By their names in the queries. The deltas (counter_deltas) are folded in each second; only dlqs grows by DLQs alone.
                Store::Sqlite(_) => ["SCAN m", "SCAN c", "SCAN s", "SCAN n"].iter().any(|scan| line.trim() == *scan || line.starts_with(&format!("{scan} "))),
            };
            assert!(!plan.lines().any(scanned), "{name} reads a whole table:\n{plan}");
            assert!(plan.contains("SEARCH") || plan.contains("Index"), "{name} walks an index:\n{plan}");
        }
    }
}
