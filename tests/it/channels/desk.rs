//! What people do to channels: on the trail, guarded against each other, and without a secret ever coming out again.

use lazaret::services::notify::{ChangedChannel, NotifyError};
use lazaret::store::audit::EventFilter;
use lazaret::store::channels;

use super::*;
use crate::on_both_stores;

/// Everything of the channels' tables as text.
async fn dump(store: &Store) -> String {
    const TABLES: [&str; 3] = [
        "SELECT uid || name || owners || host || COALESCE(hint, '') || created_by || changed_by FROM channels",
        "SELECT event_id || dedup_key || headline || notice FROM outbox",
        "SELECT COALESCE(body, '') || COALESCE(error, '') FROM outbox_attempts",
    ];
    const BYTES: [&str; 2] = ["SELECT sealed FROM channels WHERE sealed IS NOT NULL", "SELECT body FROM outbox"];
    let mut all = String::new();
    for sql in TABLES {
        let rows: Vec<String> = match store {
            Store::Postgres(database) => sqlx::query_scalar(sql).fetch_all(&database.pool).await.unwrap(),
            Store::Sqlite(database) => sqlx::query_scalar(sql).fetch_all(&database.readers).await.unwrap(),
        };
        all.push_str(&rows.join("\n"));
    }
    for sql in BYTES {
        let rows: Vec<Vec<u8>> = match store {
            Store::Postgres(database) => sqlx::query_scalar(sql).fetch_all(&database.pool).await.unwrap(),
            Store::Sqlite(database) => sqlx::query_scalar(sql).fetch_all(&database.readers).await.unwrap(),
        };
        rows.iter().for_each(|row| all.push_str(&String::from_utf8_lossy(row)));
    }
    all
}

on_both_stores! {
    async fn no_secret_is_in_a_table_on_the_trail_or_in_what_is_shown(store: Store) {
        let rig = Rig::new(&store);
        for kind in ChannelKind::ALL {
            let receiver = Receiver::open(kind).await;
            // It repeats what it was sent: the address, and PagerDuty the key as well.
            receiver.next(receiver::Next::Say(400, match kind {
                ChannelKind::PagerDuty => "bad key 0123456789abcdefghijklmnopqrstuv at /services/T00000000/B00000000/swordfishswordfish",
                _ => "bad address /services/T00000000/B00000000/swordfishswordfish",
            }));
            let channel = rig.channel(kind.as_str(), &receiver).await;
            rig.notify.test(&ana(), channel).await.unwrap();
            rig.tell(&notice(1, "a.DLQ", firing()), &[channel]).await;
            rig.turn().await;
            let change = ChangedChannel { url: Some(Secret::new(format!("{}2", receiver.url()))), ..ChangedChannel::default() };
            rig.notify.change(&ana(), channel, 1, change).await.unwrap();
        }
        let trail: String = store.events(&EventFilter::default(), None, 1_000).await.unwrap().into_iter().map(|entry| entry.event).collect();
        let shown = format!("{:?}", rig.notify.channels().await.unwrap());
        let key = contracts::SIGNING_SECRET.trim_start_matches("whsec_");
        for (place, text) in [("tables", dump(&store).await), ("trail", trail), ("lists", shown)] {
            assert!(text.len() > 500, "{place}");
            for secret in ["swordfish", "T00000000", ROUTING_KEY, key] {
                assert!(!text.contains(secret), "{secret} in {place}: {text}");
            }
        }
        let hints: Vec<Option<String>> = rig.notify.channels().await.unwrap().into_iter().map(|view| view.channel.hint).collect();
        assert_eq!(hints, [None, None, Some("…stuv".to_owned()), None, None, Some("…HyA=".to_owned())], "by name: discord, .., pagerduty, .., webhook");
    }

    async fn each_change_is_on_the_trail(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let channel = rig.channel("slack", &receiver).await;
        rig.notify.test(&ana(), channel).await.unwrap();
        let change = ChangedChannel { name: Some("payments".into()), owners: Some(OwnerScope::Listed(vec!["payments".into()])), ..ChangedChannel::default() };
        rig.notify.change(&ana(), channel, 1, change).await.unwrap();
        rig.notify.set_disabled(&ana(), channel, 2, true).await.unwrap();
        rig.notify.set_disabled(&ana(), channel, 3, false).await.unwrap();
        rig.notify.send_again(&ana(), rig.last(channel).await.id).await.unwrap();
        rig.notify.remove(&ana(), channel, 4).await.unwrap();
        let filter = EventFilter { subject: Some(format!("channel {channel}")), ..EventFilter::default() };
        let mut events = store.events(&filter, None, 100).await.unwrap();
        events.reverse();
        let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
        let all = ["channel_added", "channel_tested", "channel_changed", "channel_disabled", "channel_enabled", "notice_sent_again", "channel_removed"];
        assert_eq!(actions, all);
        assert!(events.iter().all(|event| event.actor == "ana" && event.event.contains("\"request_id\":\"r1\"")));
        assert!(events[2].event.contains("\"before\":{\"name\":\"slack\"") && events[2].event.contains("\"secret_changed\":false"), "{}", events[2].event);
        // Removed: out of sight, its name free, its secret gone, and what waited given up.
        assert!(matches!(rig.notify.channel(channel).await, Err(NotifyError::NotFound(_))));
        assert_eq!((store.sealed_secret(channel).await.unwrap(), rig.turn().await), (None, 0));
        rig.channel("Payments", &receiver).await;
    }

    async fn two_who_change_a_channel_at_once_do_not_undo_each_other(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let channel = rig.channel("slack", &receiver).await;
        let rename = |name: &str| ChangedChannel { name: Some(name.to_owned()), ..ChangedChannel::default() };
        rig.notify.change(&ana(), channel, 1, rename("one")).await.unwrap();
        for stale in [
            rig.notify.change(&ana(), channel, 1, rename("two")).await,
            rig.notify.set_disabled(&ana(), channel, 1, true).await,
            rig.notify.remove(&ana(), channel, 1).await,
        ] {
            assert!(matches!(stale, Err(NotifyError::Conflict(_))), "{stale:?}");
        }
        assert_eq!(rig.notify.channel(channel).await.unwrap().name, "one");
    }

    async fn names_and_keys_that_do_not_do_are_told_apart(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Webhook).await;
        rig.channel("Pager", &receiver).await;
        let with = |name: &str, key: Option<&str>| lazaret::services::notify::NewChannel {
            key: key.map(Secret::new), ..new_channel(name, ChannelKind::Webhook, &receiver.url())
        };
        for (new, why) in [
            (with("pager", Some(contracts::SIGNING_SECRET)), "already"),
            (with("  ", Some(contracts::SIGNING_SECRET)), "can be seen"),
            (with("a\u{202e}b", Some(contracts::SIGNING_SECRET)), "can be seen"),
            (with(&"x".repeat(65), Some(contracts::SIGNING_SECRET)), "1 to 64"),
            (with("b", Some("hunter2hunter2hunter2hunter2")), "whsec_"),
        ] {
            let Err(NotifyError::Invalid(said)) = rig.notify.create(&ana(), new).await else { panic!("{why}") };
            assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
        }
        // Without a secret one is made, and shown this once.
        let made = rig.notify.create(&ana(), with("made", None)).await.unwrap();
        assert!(made.signing_secret.as_ref().unwrap().expose().starts_with("whsec_") && !format!("{made:?}").contains("whsec_"));
        // A new key keeps the URL; what is signed with it the receiver takes, and what is not it refuses.
        assert_eq!(rig.notify.test(&ana(), made.id).await.unwrap().status, Some(401));
        let change = ChangedChannel { key: Some(Secret::new(contracts::SIGNING_SECRET)), ..ChangedChannel::default() };
        rig.notify.change(&ana(), made.id, 1, change).await.unwrap();
        assert_eq!(rig.notify.test(&ana(), made.id).await.unwrap().status, Some(204));
    }

    async fn a_channel_is_told_of_the_dlqs_of_its_owners(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let all = rig.channel("all", &receiver).await;
        let of = |name: &str, owners: &[&str]| lazaret::services::notify::NewChannel {
            owners: OwnerScope::Listed(owners.iter().map(|owner| (*owner).to_owned()).collect()),
            ..new_channel(name, ChannelKind::Slack, &receiver.url())
        };
        let payments = rig.notify.create(&ana(), of("payments", &["payments", "fraud"])).await.unwrap().id;
        let off = rig.channel("off", &receiver).await;
        rig.notify.set_disabled(&ana(), off, 1, true).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        assert_eq!(channels::told_of(&mut tx, Some("payments")).await.unwrap(), [all, payments]);
        assert_eq!(channels::told_of(&mut tx, Some("orders")).await.unwrap(), [all]);
        assert_eq!(channels::told_of(&mut tx, None).await.unwrap(), [all]);
    }

    async fn another_audit_key_opens_no_secret(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let channel = rig.channel("slack", &receiver).await;
        rig.tell(&notice(1, "a.DLQ", firing()), &[channel]).await;
        let other = store.clone().with_audit_key(lazaret::domain::audit::AuditKey::new(vec![8; 32]).unwrap());
        let stranger = Rig::new(&other);
        assert!(matches!(stranger.notify.test(&ana(), channel).await, Err(NotifyError::Invalid(_))));
        assert_eq!(stranger.turn().await, 1);
        assert_eq!(receiver.seen().len(), 0);
        let why = stranger.last(channel).await.attempts[0].error.clone().unwrap();
        assert!(why.contains("Give URL and key anew"), "{why}");
        // Giving it anew is enough.
        let change = ChangedChannel { url: Some(Secret::new(receiver.url())), ..ChangedChannel::default() };
        stranger.notify.change(&ana(), channel, 1, change).await.unwrap();
        assert!(stranger.notify.test(&ana(), channel).await.unwrap().delivered);
    }
}
