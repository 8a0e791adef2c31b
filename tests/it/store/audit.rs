//! The trail: one unbroken chain, read by filter and cursor.

use super::*;
use crate::on_both_stores;
use crate::support::audit_key;
use lazaret::domain::audit::{Action, AuditKey, By, Event, chained};
use lazaret::store::audit::{self, Entry, EventFilter};
use lazaret::store::{StoreError, users};

fn event(actor: &str, action: Action, subject: &str) -> Event {
    Event::new(NOW, &By { actor: actor.to_owned(), request_id: Some("r1".to_owned()) }, action, subject)
}

async fn append(store: &Store, event: &Event) -> i64 {
    let mut tx = store.begin().await.unwrap();
    let seq = audit::append(&mut tx, event).await.unwrap();
    tx.commit().await.unwrap();
    seq
}

/// Every entry, oldest first.
async fn whole(store: &Store) -> Vec<Entry> {
    let mut entries = store.events(&EventFilter::default(), None, 1_000).await.unwrap();
    entries.reverse();
    entries
}

/// Numbers without a gap, and each hash over the one before.
fn assert_unbroken(entries: &[Entry]) {
    let mut previous = vec![0; 32];
    for (entry, seq) in entries.iter().zip(1..) {
        assert_eq!(entry.seq, seq);
        assert_eq!(entry.hash, chained(&audit_key(), &previous, seq, &entry.event), "entry {seq}");
        previous.clone_from(&entry.hash);
    }
}

on_both_stores! {
    async fn writers_at_once_make_one_unbroken_chain(store: Store) {
        let writers = (0..20).map(|n| {
            let store = store.clone();
            async move {
                for round in 0..5 {
                    append(&store, &event(&format!("user-{n}"), Action::SignedIn, &format!("user user-{n} {round}"))).await;
                }
            }
        });
        futures_util::future::join_all(writers).await;
        let entries = whole(&store).await;
        assert_eq!(entries.len(), 100);
        assert_unbroken(&entries);
        let mut told: Vec<&str> = entries.iter().map(|entry| entry.subject.as_str()).collect();
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), 100, "each once");

        assert!(audit::newest_fits(&store, &audit_key()).await.unwrap());
        assert!(!audit::newest_fits(&store, &AuditKey::new(vec![8; 32]).unwrap()).await.unwrap());
        change(&store, "UPDATE audit_events SET event = replace(event, 'user-', 'uster-') WHERE seq = 100").await;
        assert!(!audit::newest_fits(&store, &audit_key()).await.unwrap(), "a changed entry");
    }

    async fn what_is_rolled_back_leaves_no_row_and_no_gap(store: Store) {
        assert!(!audit::begun(&store).await.unwrap() && audit::newest_fits(&store, &audit_key()).await.unwrap());
        append(&store, &event("ana", Action::SignedIn, "user ana")).await;
        let mut tx = store.begin().await.unwrap();
        users::add(&mut tx, "ben", "x", lazaret::domain::access::Role::Viewer, &lazaret::domain::access::OwnerScope::All, NOW).await.unwrap();
        audit::append(&mut tx, &event("command line", Action::UserAdded, "user ben")).await.unwrap();
        drop(tx);
        append(&store, &event("ana", Action::SignedOut, "user ana")).await;
        assert!(store.users().await.unwrap().is_empty());
        let entries = whole(&store).await;
        assert_eq!(entries.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["signed_in", "signed_out"]);
        assert_unbroken(&entries);
    }

    async fn entries_are_found_by_actor_action_and_subject_page_by_page(store: Store) {
        for n in 0..6 {
            let actor = if n % 2 == 0 { "ana" } else { "ben" };
            append(&store, &event(actor, Action::SignedIn, &format!("user {actor}"))).await;
        }
        append(&store, &event("ana", Action::GroupNoteAdded, "group 7")).await;
        append(&store, &event("a\0b", Action::GroupNoteAdded, "group 7")).await;
        let found = async |filter: EventFilter, before, limit| -> Vec<i64> {
            store.events(&filter, before, limit).await.unwrap().into_iter().map(|entry| entry.seq).collect()
        };
        let filter = |actor: Option<&str>, action, subject: Option<&str>| EventFilter {
            actor: actor.map(str::to_owned),
            action,
            subject: subject.map(str::to_owned),
        };
        assert_eq!(found(filter(None, None, None), None, 3).await, [8, 7, 6]);
        assert_eq!(found(filter(None, None, None), Some(6), 3).await, [5, 4, 3]);
        assert_eq!(found(filter(Some("ana"), None, None), None, 2).await, [7, 5]);
        assert_eq!(found(filter(Some("ana"), None, None), Some(5), 9).await, [3, 1]);
        assert_eq!(found(filter(Some("ana"), Some(Action::SignedIn), None), None, 9).await, [5, 3, 1]);
        assert_eq!(found(filter(None, Some(Action::GroupNoteAdded), None), None, 9).await, [8, 7]);
        assert_eq!(found(filter(None, None, Some("group 7")), None, 9).await, [8, 7]);
        assert_eq!(found(filter(Some("ana"), Some(Action::GroupNoteAdded), Some("group 7")), None, 9).await, [7]);
        assert_eq!(found(filter(Some("a\0b"), None, None), None, 9).await, [8]);
        assert_eq!(found(filter(Some("nobody"), None, None), None, 9).await, Vec::<i64>::new());
        let entry = store.events(&filter(Some("ben"), None, None), None, 1).await.unwrap().remove(0);
        assert_eq!((entry.at_ms, entry.action.as_str(), entry.subject.as_str()), (NOW, "signed_in", "user ben"));
        assert_eq!(entry.event, event("ben", Action::SignedIn, "user ben").text());
        assert_unbroken(&whole(&store).await);
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::connect(&format!("sqlite://{}", folder.path().join("test.db").display())).await.unwrap();
    store.migrate().await.unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(matches!(audit::append(&mut tx, &event("ana", Action::SignedIn, "user ana")).await, Err(StoreError::NoAuditKey)));
}
