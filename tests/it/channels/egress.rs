//! Where nothing is sent: judged when a channel is saved, when it is tested and when something is sent to it.

use lazaret::services::notify::{ChangedChannel, NotifyError};
use lazaret::store::outbox::DeliveryState;

use super::receiver::{Next, SECRET_PATH};
use super::*;
use crate::on_both_stores;

on_both_stores! {
    async fn what_leads_inwards_is_refused_when_it_is_saved(store: Store) {
        let inwards = names(&[("hooks.example", &["10.0.0.1"]), ("both.example", &["93.184.216.34", "fd00::1"]), ("public.example", &["93.184.216.34"])]);
        let rig = Rig::with(&store, Clock::fake(NOW), &[], inwards, SECOND);
        let table = [
            ("http://169.254.169.254/latest/meta-data", "a cloud's metadata service"),
            ("https://169.254.169.254/latest/meta-data", "a cloud's metadata service"),
            ("http://[::ffff:169.254.169.254]/", "mapped into IPv6"),
            ("https://127.0.0.1:8080/", "a loopback address"),
            ("https://2130706433/", "a loopback address"),
            ("https://[::1]/", "a loopback address"),
            ("https://[fe80::1]/", "a link-local address"),
            ("https://[64:ff9b::7f00:1]/", "NAT64"),
            ("https://0.0.0.0/", "an unspecified address"),
            ("https://224.0.0.1/", "a multicast address"),
            ("https://hooks.example/x", "resolves to 10.0.0.1, which is a private address"),
            ("https://both.example/x", "a unique-local address"),
            ("http://public.example/x", "begins with http"),
            ("https://unknown.example/x", "cannot be resolved"),
            ("ftp://public.example/x", "neither https:// nor http://"),
            ("hooks.slack.com/services/T0/B0/X", "not a URL"),
            ("", "is missing"),
        ];
        for kind in [ChannelKind::Slack, ChannelKind::Webhook] {
            for (url, why) in table {
                let refused = rig.notify.create(&ana(), new_channel("hook", kind, url)).await;
                let Err(NotifyError::Invalid(said)) = refused else { panic!("{url}: {refused:?}") };
                assert!(said.contains(why) && said.ends_with('.'), "{url}: {said}");
            }
        }
        assert!(rig.notify.channels().await.unwrap().is_empty());
        // A change is judged like a new one.
        let channel = rig.channel_at("hook", ChannelKind::Slack, "https://public.example/x").await;
        let change = ChangedChannel { url: Some(Secret::new("https://hooks.example/x")), ..ChangedChannel::default() };
        assert!(matches!(rig.notify.change(&ana(), channel, 1, change).await, Err(NotifyError::Invalid(_))));
        assert_eq!(rig.notify.channel(channel).await.unwrap().host, "public.example");
    }

    async fn a_name_that_leads_elsewhere_later_is_refused_when_it_is_tested_and_sent_to(store: Store) {
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let port = receiver.address.port();
        let script = names(&[("hooks.example", &["127.0.0.1"]), ("hooks.example", &["169.254.169.254"])]);
        let rig = Rig::with(&store, Clock::fake(NOW), &[&format!("127.0.0.1:{port}")], script, SECOND);
        let channel = rig.channel_at("hook", ChannelKind::Slack, &format!("http://hooks.example:{port}{SECRET_PATH}")).await;
        let tested = rig.notify.test(&ana(), channel).await.unwrap();
        assert!(!tested.delivered && tested.status.is_none() && tested.sentence.contains("metadata service"), "{tested:?}");
        rig.tell(&notice(1, "a.DLQ", firing()), &[channel]).await;
        assert_eq!(rig.turn().await, 1);
        let log = rig.last(channel).await;
        let why = log.attempts[0].error.as_deref().unwrap();
        assert!(log.state == DeliveryState::Failed && why.contains("169.254.169.254") && !why.contains("swordfish"), "{why}");
        assert_eq!(receiver.seen().len(), 0);
    }

    async fn it_connects_to_the_address_that_was_judged(store: Store) {
        // The name changes right after it was judged; whoever resolves it again lands with the other.
        let meant = Receiver::open(ChannelKind::Slack).await;
        let port = meant.address.port();
        let evil = Receiver::open_at(ChannelKind::Slack, &format!("127.0.0.2:{port}")).await;
        let script = names(&[("hooks.example", &["127.0.0.1"]), ("hooks.example", &["127.0.0.1"]), ("hooks.example", &["127.0.0.2"])]);
        let rig = Rig::with(&store, Clock::fake(NOW), &[&format!("127.0.0.1:{port}")], script, SECOND);
        let channel = rig.channel_at("hook", ChannelKind::Slack, &format!("http://hooks.example:{port}{SECRET_PATH}")).await;
        rig.tell(&notice(1, "a.DLQ", firing()), &[channel]).await;
        assert_eq!(rig.turn().await, 1);
        assert_eq!((meant.seen().len(), evil.seen().len()), (1, 0));
        assert_eq!(meant.seen()[0].header("host"), format!("hooks.example:{port}"));
        rig.clock.step(SECOND);
        rig.tell(&notice(2, "b.DLQ", firing()), &[channel]).await;
        assert_eq!(rig.turn().await, 1);
        assert_eq!((meant.seen().len(), evil.seen().len()), (1, 0), "and judges anew the next time");
        assert_eq!(rig.last(channel).await.state, DeliveryState::Failed);
    }

    async fn redirects_are_not_followed(store: Store) {
        let rig = Rig::new(&store);
        let elsewhere = Receiver::open(ChannelKind::Slack).await;
        for (n, status) in (1_u8..).zip([301, 302, 303, 307, 308]) {
            let receiver = Receiver::open(ChannelKind::Slack).await;
            receiver.next(Next::SayWith(status, "", vec![("location", elsewhere.url())]));
            let channel = rig.channel(&format!("hook {n}"), &receiver).await;
            rig.tell(&notice(n, "a.DLQ", firing()), &[channel]).await;
            assert_eq!(rig.turn().await, 1);
            let log = rig.last(channel).await;
            assert!(log.state == DeliveryState::Failed && log.attempts[0].error.as_deref().unwrap().contains("redirects are not followed"));
        }
        assert_eq!(elsewhere.seen().len(), 0);
    }

    async fn of_an_answer_only_the_beginning_is_kept_and_no_secret(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        receiver.next(Next::SayWith(404, Box::leak(format!("no such hook {SECRET_PATH} {}", "x".repeat(100_000)).into_boxed_str()), Vec::new()));
        let channel = rig.channel("hook", &receiver).await;
        let tested = rig.notify.test(&ana(), channel).await.unwrap();
        let body = tested.body.unwrap();
        assert!(body.len() < 4_200 && body.starts_with("no such hook <redacted> xxx") && body.ends_with('…'), "{body}");
        let log = format!("{:?}", rig.last(channel).await);
        assert!(!log.contains("swordfish"), "{log}");
    }
}
