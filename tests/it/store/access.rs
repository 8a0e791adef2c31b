//! Users, sessions and tokens.

use super::*;
use crate::on_both_stores;
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::store::users::{self, Disabling};
use lazaret::store::{StoreError, tokens};

/// One call in a transaction of its own: `alone!(store, users::add, "ana", ..)`.
macro_rules! alone {
    ($store:expr, $call:path, $($argument:expr),+) => {async {
        let mut tx = $store.begin().await?;
        let value = $call(&mut tx, $($argument),+).await?;
        tx.commit().await?;
        Ok::<_, StoreError>(value)
    }};
}

on_both_stores! {
    async fn names_are_unique_without_regard_to_letter_case(store: Store) {
        let owners = OwnerScope::Listed(vec!["payments".into(), "fraud".into()]);
        let id = alone!(store, users::add, "Änne", "$argon2id$1", Role::Operator, &owners, NOW).await.unwrap().unwrap();
        for same in ["Änne", "änne", "ÄNNE"] {
            assert_eq!(alone!(store, users::add, same, "x", Role::Admin, &OwnerScope::All, NOW).await.unwrap(), None);
            let (user, hash) = store.user_by_name(same).await.unwrap().unwrap();
            assert_eq!((user.id, user.name.as_str(), user.role, &user.owners), (id, "Änne", Role::Operator, &owners));
            assert_eq!((user.disabled, user.created_at_ms, hash.as_str()), (false, NOW, "$argon2id$1"));
        }
        alone!(store, users::add, "bob\0", "x", Role::Viewer, &OwnerScope::All, NOW).await.unwrap().unwrap();
        alone!(store, users::add, "Al", "x", Role::Admin, &OwnerScope::Listed(Vec::new()), NOW).await.unwrap().unwrap();
        let names: Vec<String> = store.users().await.unwrap().into_iter().map(|user| user.name).collect();
        assert_eq!(names, ["Al", "bob\u{2400}", "Änne"]);
        assert_eq!(store.user_by_name("nobody").await.unwrap(), None);
    }

    async fn sessions_end_with_time_password_and_disabling(store: Store) {
        let id = alone!(store, users::add, "ana", "one", Role::Approver, &OwnerScope::All, NOW).await.unwrap().unwrap();
        let other = alone!(store, users::add, "bob", "one", Role::Viewer, &OwnerScope::All, NOW).await.unwrap().unwrap();
        let user = async |token: &[u8], now| store.session_user(token, now).await.unwrap().map(|user| user.id);
        alone!(store, users::add_session, b"t1", (id, "one"), NOW, NOW + 100).await.unwrap();
        alone!(store, users::add_session, b"t2", (id, "one"), NOW, NOW + 200).await.unwrap();
        alone!(store, users::add_session, b"t3", (other, "one"), NOW, NOW + 100).await.unwrap();
        assert_eq!((user(b"t1", NOW + 99).await, user(b"t1", NOW + 100).await, user(b"no", NOW).await), (Some(id), None, None));

        assert_eq!(alone!(store, users::end_session, b"t1", NOW).await.unwrap().as_deref(), Some("ana"));
        assert_eq!(alone!(store, users::end_session, b"t1", NOW).await.unwrap(), None);
        assert_eq!((user(b"t1", NOW).await, user(b"t2", NOW).await), (None, Some(id)));

        assert_eq!(alone!(store, users::set_password, "ANA", "two").await.unwrap().as_deref(), Some("ana"));
        assert_eq!((user(b"t2", NOW).await, user(b"t3", NOW).await), (None, Some(other)));
        assert_eq!(store.user_by_name("ana").await.unwrap().unwrap().1, "two");
        assert_eq!(alone!(store, users::set_password, "nobody", "x").await.unwrap(), None);

        alone!(store, users::add_session, b"t4", (id, "two"), NOW, NOW + 100).await.unwrap();
        assert_eq!(alone!(store, users::disable, "Ana").await.unwrap(), Disabling::Done("ana".into()));
        let begun = alone!(store, users::add_session, b"t5", (id, "two"), NOW, NOW + 100).await.unwrap();
        assert!(!begun, "disabled");
        assert_eq!((user(b"t4", NOW).await, user(b"t5", NOW).await), (None, None));
        assert!(store.user_by_name("ana").await.unwrap().unwrap().0.disabled);
        assert_eq!(alone!(store, users::disable, "nobody").await.unwrap(), Disabling::NoSuchUser);

        assert_eq!(store.sweep_sessions(NOW + 99).await.unwrap(), 0);
        assert_eq!(store.sweep_sessions(NOW + 100).await.unwrap(), 2);
        assert_eq!(user(b"t3", NOW).await, None);
    }

    async fn a_session_begun_while_the_password_changes_ends_with_it(store: Store) {
        let id = alone!(store, users::add, "ana", "one", Role::Viewer, &OwnerScope::All, NOW).await.unwrap().unwrap();
        // The password was verified; before the session is committed somebody changes it.
        let mut tx = store.begin().await.unwrap();
        assert!(users::add_session(&mut tx, b"t1", (id, "one"), NOW, NOW + 100).await.unwrap());
        let changed = alone!(store, users::set_password, "ana", "two");
        let committed = async {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            tx.commit().await
        };
        let (changed, committed) = tokio::join!(changed, committed);
        assert_eq!((changed.unwrap().as_deref(), committed.is_ok()), (Some("ana"), true));
        assert_eq!(store.session_user(b"t1", NOW).await.unwrap(), None, "the change waited, and ended it");
        // The other way round: verified before the change, begun after it.
        let begun = alone!(store, users::add_session, b"t2", (id, "one"), NOW, NOW + 100).await.unwrap();
        assert!(!begun, "that is no longer the password");
        assert_eq!(store.session_user(b"t2", NOW).await.unwrap(), None);
        let begun = alone!(store, users::add_session, b"t3", (id, "two"), NOW, NOW + 100).await.unwrap();
        assert!(begun, "with the new one it begins");
    }

    async fn the_last_active_admin_stays_and_a_disabled_user_comes_back(store: Store) {
        for (name, role) in [("ana", Role::Admin), ("ben", Role::Admin), ("cem", Role::Viewer)] {
            alone!(store, users::add, name, "one", role, &OwnerScope::All, NOW).await.unwrap().unwrap();
        }
        let active = async || -> Vec<String> {
            store.users().await.unwrap().into_iter().filter(|user| !user.disabled).map(|user| user.name).collect()
        };
        let (first, second) = tokio::join!(alone!(store, users::disable, "Ana"), alone!(store, users::disable, "Ben"));
        let mut outcomes = [first.unwrap(), second.unwrap()];
        outcomes.sort_by_key(|outcome| *outcome == Disabling::LastAdmin);
        assert_eq!([matches!(outcomes[0], Disabling::Done(_)), outcomes[1] == Disabling::LastAdmin], [true, true], "two at once leave one");
        assert_eq!(alone!(store, users::disable, "cem").await.unwrap(), Disabling::Done("cem".into()), "no admin, so never the last");
        let [left] = active().await.try_into().expect("one admin");
        let gone = if left == "ana" { "ben" } else { "ana" };
        assert_eq!(alone!(store, users::disable, gone).await.unwrap(), Disabling::Done(gone.into()), "already");
        assert_eq!(alone!(store, users::disable, &left).await.unwrap(), Disabling::LastAdmin);

        assert_eq!(alone!(store, users::enable, &gone.to_uppercase()).await.unwrap().as_deref(), Some(gone));
        assert_eq!(alone!(store, users::enable, "cem").await.unwrap().as_deref(), Some("cem"));
        assert_eq!(alone!(store, users::enable, "nobody").await.unwrap(), None);
        assert_eq!(active().await, ["ana", "ben", "cem"]);
        assert_eq!(alone!(store, users::disable, &left).await.unwrap(), Disabling::Done(left.clone()), "there is another now");
    }

    async fn tokens_are_found_by_hash_until_revoked_or_expired(store: Store) {
        let add = async |name: &str, hash: &[u8], expires| alone!(store, tokens::add, name, hash, Role::Operator, &OwnerScope::All, NOW, expires).await.unwrap();
        let id = add("CI", b"h1", None).await.unwrap();
        assert_eq!(add("ci", b"h2", None).await, None);
        assert_eq!(add("other", b"h1", None).await, None);
        let short = add("short", b"h3", Some(NOW + 10)).await.unwrap();
        let found = async |hash: &[u8], now| store.token_by_hash(hash, now).await.unwrap().map(|token| token.id);
        assert_eq!((found(b"h1", NOW).await, found(b"h2", NOW).await), (Some(id), None));
        assert_eq!((found(b"h3", NOW + 9).await, found(b"h3", NOW + 10).await), (Some(short), None));

        assert_eq!(alone!(store, tokens::revoke, "cI", NOW + 5).await.unwrap().as_deref(), Some("CI"));
        assert_eq!(alone!(store, tokens::revoke, "ci", NOW + 6).await.unwrap(), None);
        assert_eq!(found(b"h1", NOW).await, None);
        let again = add("ci", b"h1", None).await.unwrap();
        assert_eq!(found(b"h1", NOW).await, Some(again));
        let tokens = store.tokens().await.unwrap();
        let listed: Vec<_> = tokens.iter().map(|token| (token.id, token.name.as_str(), token.revoked_at_ms, token.expires_at_ms)).collect();
        assert_eq!(listed, [(again, "ci", None, None), (id, "CI", Some(NOW + 5), None), (short, "short", None, Some(NOW + 10))]);
        assert_eq!((tokens[0].role, &tokens[0].owners, tokens[0].created_at_ms), (Role::Operator, &OwnerScope::All, NOW));
    }
}
