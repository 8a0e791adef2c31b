//! What people say of a failure group: its status and their notes.

use super::*;
use crate::on_both_stores;
use lazaret::domain::group::{Decided, Decision, GroupStatus, Link, Shown, Ticket};
use lazaret::store::group_status::{self, AddedNote, NewNote};
use lazaret::store::groups::Group;

/// A DLQ with two groups of messages from `NOW` on; gives the one of `message()`.
async fn a_group(store: &Store) -> Group {
    let mut feed = Feed::open(store, "orders.DLQ", 0).await;
    let mut other = message(0, 3);
    other.group = group("n", FailureClass::Bug, "java.lang.NullPointerException", "oops");
    feed.take_in(store, vec![message(0, 0), message(0, 1), message(0, 2), other]).await;
    store.groups(feed.id.dlq_id, i64::MAX, 10).await.unwrap().remove(0)
}

fn by(name: &str, at_ms: i64) -> Decided {
    Decided { by: name.to_owned(), at_ms }
}

fn status(decision: Decision, version: i64) -> GroupStatus {
    GroupStatus { decision, version, ..GroupStatus::default() }
}

async fn set(store: &Store, group_id: i64, new: &GroupStatus, decided: &Decided) -> bool {
    let mut tx = store.begin().await.unwrap();
    let was = group_status::set_status(&mut tx, group_id, new, decided).await.unwrap();
    tx.commit().await.unwrap();
    was
}

async fn add(store: &Store, new: NewNote<'_>) -> AddedNote {
    let mut tx = store.begin().await.unwrap();
    let added = group_status::add_note(&mut tx, new).await.unwrap();
    tx.commit().await.unwrap();
    added
}

on_both_stores! {
    async fn a_decision_is_stored_whole_and_comes_with_the_group(store: Store) {
        let group = a_group(&store).await;
        assert_eq!(group.status, GroupStatus::default());
        let decisions = [
            Decision::Known { owner: Some("payments\0".into()), ticket: Some(Ticket::parse("PAY-812").unwrap()) },
            Decision::Known { owner: None, ticket: Some(Ticket::parse("https://jira.example/PAY-812").unwrap()) },
            Decision::FixedSince { at_ms: NOW },
            Decision::IgnoredUntil { until_ms: NOW + MINUTE },
            Decision::Open,
        ];
        for (version, decision) in (0..).zip(decisions) {
            let new = GroupStatus { runbook: Some(Link::parse("https://wiki.example/a b").unwrap()), ..status(decision.clone(), version) };
            assert!(set(&store, group.id, &new, &by("ana", NOW + version)).await);
            let mut expected = GroupStatus { decided: Some(by("ana", NOW + version)), version: version + 1, ..new };
            if let Decision::Known { owner: Some(owner), .. } = &mut expected.decision {
                *owner = "payments\u{2400}".into();
            }
            assert_eq!(store.group_status(group.id).await.unwrap(), expected);
            assert_eq!(store.group(group.id).await.unwrap().unwrap().status, expected);
            let listed = store.groups(group.dlq_id, i64::MAX, 10).await.unwrap();
            assert_eq!(listed.iter().map(|group| group.status.version).collect::<Vec<_>>(), [version + 1, 0], "only this group's");
        }
    }

    async fn of_two_who_decide_at_once_one_wins(store: Store) {
        let group = a_group(&store).await;
        for version in [0, 1] {
            let mut tasks = tokio::task::JoinSet::new();
            for name in ["ana", "ben", "cy", "dee"] {
                let (store, id) = (store.clone(), group.id);
                tasks.spawn(async move {
                    let known = Decision::Known { owner: Some(name.into()), ticket: None };
                    (name, set(&store, id, &status(known, version), &by(name, NOW)).await)
                });
            }
            let winners: Vec<&str> = tasks.join_all().await.into_iter().filter(|(_, won)| *won).map(|(name, _)| name).collect();
            let there = store.group_status(group.id).await.unwrap();
            assert_eq!((winners, there.version), (vec![there.decided.unwrap().by.as_str()], version + 1));
        }
    }

    async fn what_arrives_after_the_fix_makes_it_regressed(store: Store) {
        let group = a_group(&store).await;
        let fixed_at = NOW + 10;
        assert!(set(&store, group.id, &status(Decision::FixedSince { at_ms: fixed_at }, 0), &by("ana", fixed_at)).await);
        let shown = async || store.group(group.id).await.unwrap().unwrap().shown(NOW + MINUTE);
        assert_eq!(shown().await, Shown::Fixed);
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut late = message(0, 4);
        late.dead_lettered_at_ms = fixed_at - 5;
        late.first_seen_at_ms = fixed_at + 500;
        feed.take_in(&store, vec![late]).await;
        assert_eq!(shown().await, Shown::Fixed, "taken in after the fix, dead-lettered before it");
        let mut new = message(0, 5);
        new.dead_lettered_at_ms = fixed_at + 1;
        feed.take_in(&store, vec![new]).await;
        assert_eq!(shown().await, Shown::Regressed);
        while store.fold_counters(1_000).await.unwrap() > 0 {}
        assert_eq!(shown().await, Shown::Regressed);
    }

    async fn notes_come_newest_first_page_by_page_and_a_form_adds_one(store: Store) {
        let group = a_group(&store).await;
        let forms: Vec<String> = (0..5).map(|n| format!("form{n}")).collect();
        for (n, form_id) in (0..).zip(&forms) {
            let new = NewNote { group_id: group.id, at_ms: NOW + n, author: "ana", form_id, note: "same text\0" };
            assert!(matches!(add(&store, new).await, AddedNote::Added(_)));
            assert_eq!(add(&store, new).await, AddedNote::Repeated);
            assert_eq!(add(&store, NewNote { note: "other text", ..new }).await, AddedNote::FormUsed);
            assert_eq!(add(&store, NewNote { author: "ben", ..new }).await, AddedNote::FormUsed);
        }
        let first = store.group_notes(group.id, None, 3).await.unwrap();
        assert_eq!(first.items.iter().map(|note| note.at_ms - NOW).collect::<Vec<_>>(), [4, 3, 2]);
        assert_eq!(first.items[0].note, "same text\u{2400}");
        let rest = store.group_notes(group.id, first.next, 3).await.unwrap();
        assert_eq!((rest.items.iter().map(|note| note.at_ms - NOW).collect::<Vec<_>>(), rest.next), (vec![1, 0], None));
        assert_eq!(store.group_notes(group.id + 1, None, 3).await.unwrap().items, []);
    }

    async fn headers_are_read_in_one_go_without_the_large_ones(store: Store) {
        let mut feed = Feed::open(&store, "orders.DLQ", 0).await;
        let mut large = message(0, 1);
        large.record.headers.push(Header { name: b"blob".to_vec(), value: Some(vec![b'x'; 2_000]) });
        feed.take_in(&store, vec![message(0, 0), large, message(0, 2)]).await;
        let ids: Vec<i64> = all(&store, &MessageFilter::default()).await.iter().map(|row| row.id).rev().collect();
        let headers = store.headers_of(&ids, 1_000).await.unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers[&ids[0]], message(0, 0).record.headers);
        assert_eq!(store.headers_of(&ids, 1_000_000).await.unwrap()[&ids[1]].len(), 2);
        assert!(store.headers_of(&[], 1_000).await.unwrap().is_empty());
    }
}
