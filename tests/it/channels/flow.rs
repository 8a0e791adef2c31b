//! From the outbox to the receiver: each message once, in its order, at its time, and the same at each attempt.

use lazaret::domain::audit::By;
use lazaret::services::notify::courier::IN_DOUBT_MS;
use lazaret::store::outbox::DeliveryState;
use tokio_util::sync::CancellationToken;

use super::receiver::Next;
use super::*;
use crate::on_both_stores;

const A: &str = "payments.wallet.DLQ";
const B: &str = "orders.DLQ";

fn retry_after(value: &str) -> Next {
    Next::SayWith(429, "slow down", vec![("retry-after", value.to_owned())])
}

fn in_doubt() -> Duration {
    Duration::from_millis(IN_DOUBT_MS.unsigned_abs())
}

on_both_stores! {
    async fn every_service_takes_what_it_is_told(store: Store) {
        let rig = Rig::new(&store);
        for kind in ChannelKind::ALL {
            let receiver = Receiver::open(kind).await;
            let channel = rig.channel(kind.as_str(), &receiver).await;
            for (n, (_, notice)) in (1_u8..).zip(one_of_each()) {
                let notice = Notice { event_id: event_id(NOW, [n; 10]), dedup_key: format!("k{n}"), ..notice };
                assert_eq!(rig.tell(&notice, &[channel]).await, 1);
                assert_eq!(rig.turn().await, 1);
                rig.clock.step(SECOND);
                let last = rig.last(channel).await;
                assert_eq!(last.state, DeliveryState::Delivered, "{kind:?}: {:?}", last.attempts);
                assert_eq!(last.headline, notice.first_line());
            }
            let seen = receiver.seen();
            assert_eq!(seen.len(), 6, "{kind:?}");
            assert!(seen.iter().all(|request| request.method == "POST" && request.uri.path() == receiver::SECRET_PATH));
            // Teams says nothing at all, and that is enough.
            let attempt = rig.last(channel).await.attempts.remove(0);
            let (status, body) = match kind {
                ChannelKind::Slack | ChannelKind::Mattermost => (200, "ok"),
                ChannelKind::Teams => (202, ""),
                ChannelKind::Discord | ChannelKind::Webhook => (204, ""),
                ChannelKind::PagerDuty => (202, "{\"status\":\"success\""),
            };
            assert!(attempt.status == Some(status) && attempt.body.unwrap().starts_with(body) && attempt.error.is_none(), "{kind:?}");
        }
    }

    async fn who_asks_for_thirty_seconds_gets_them(store: Store) {
        let rig = Rig::new(&store);
        for kind in [ChannelKind::Slack, ChannelKind::Webhook] {
            let receiver = Receiver::open(kind).await;
            let date = chrono::DateTime::from_timestamp_millis(rig.clock.now_ms() + 30_000).unwrap().format("%a, %d %b %Y %H:%M:%S GMT");
            receiver.next(retry_after(&if kind == ChannelKind::Slack { "30".to_owned() } else { date.to_string() }));
            let channel = rig.channel(kind.as_str(), &receiver).await;
            let began = rig.clock.now_ms();
            rig.tell(&notice(1, A, firing()), &[channel]).await;
            // What comes after it is not to be tried either.
            rig.tell(&notice(2, B, firing()), &[channel]).await;
            assert_eq!(rig.turn().await, 1);
            let wait = rig.last_of(channel, 1).await.due_at_ms - began;
            assert!((29_000..=31_000).contains(&wait), "{wait}");
            rig.clock.step(Duration::from_millis(wait.unsigned_abs() - 1));
            assert_eq!((rig.turn().await, receiver.seen().len()), (0, 1), "not before");
            rig.clock.step(Duration::from_millis(1));
            while rig.turn().await > 0 {
                rig.clock.step(SECOND);
            }
            rig.clock.step(HOUR);
            assert_eq!(rig.turn().await, 0);
            let seen = receiver.seen();
            assert_eq!(seen.len(), 3, "each exactly once more");
            assert_eq!((seen.iter().filter(|request| request.body == seen[0].body)).count(), 2);
        }
    }

    async fn a_receiver_that_takes_it_and_says_nothing_gets_the_same_again(store: Store) {
        let rig = Rig::with(&store, Clock::fake(NOW), &["127.0.0.1"], Names::System, IMPATIENT);
        let receiver = Receiver::open(ChannelKind::Webhook).await;
        receiver.next(Next::Sleep(IMPATIENT * 4));
        receiver.next(Next::Say(503, "no"));
        let channel = rig.channel("hook", &receiver).await;
        rig.tell(&notice(1, A, firing()), &[channel]).await;
        for attempt in 1..=3 {
            assert_eq!(rig.turn().await, 1, "attempt {attempt}");
            rig.clock.step(Duration::from_secs(5));
        }
        let seen = receiver.seen();
        assert_eq!(seen.len(), 3);
        let id = event_id(NOW, [1; 10]).to_string();
        for request in &seen {
            assert_eq!((request.header("webhook-id"), &request.body), (id.as_str(), &seen[0].body));
        }
        // The signature is of its own time.
        assert_ne!(seen[0].header("webhook-timestamp"), seen[2].header("webhook-timestamp"));
        let log = rig.last(channel).await;
        let said: Vec<(Option<i32>, bool)> = log.attempts.iter().map(|attempt| (attempt.status, attempt.error.is_some())).collect();
        assert_eq!((log.state, said), (DeliveryState::Delivered, vec![(None, true), (Some(503), true), (Some(204), false)]));
        assert!(log.attempts[0].error.as_deref().unwrap().contains("may have taken the message"), "{:?}", log.attempts[0]);
    }

    async fn a_restart_repeats_nothing_and_tells_what_is_new(store: Store) {
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let before = Rig::new(&store);
        let channel = before.channel("slack", &receiver).await;
        before.tell(&notice(1, A, firing()), &[channel]).await;
        assert_eq!(before.turn().await, 1);
        drop(before);

        let after = Rig::with(&store, Clock::fake(NOW + 60_000), &["127.0.0.1"], Names::System, SECOND * 10);
        assert_eq!(after.turn().await, 0);
        assert_eq!(after.tell(&notice(1, A, firing()), &[channel]).await, 0, "the same notice is there already");
        assert_eq!(after.tell(&notice(2, B, firing()), &[channel]).await, 1);
        assert_eq!((after.turn().await, after.turn().await), (1, 0));
        let texts: Vec<String> = receiver.seen().iter().map(|request| request.json()["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!(texts, [format!("[CRITICAL] {A} · 8x usual arrivals"), format!("[CRITICAL] {B} · 8x usual arrivals")]);
    }

    async fn what_a_crash_left_in_doubt_goes_again_under_its_id_and_not_before_its_time(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Webhook).await;
        let channel = rig.channel("hook", &receiver).await;
        rig.tell(&notice(1, A, firing()), &[channel]).await;
        // The process ends between writing the attempt down and writing down what came of it.
        let due = store.due_deliveries(rig.clock.now_ms()).await.unwrap().remove(0);
        let begun = outbox::begin(&store, &due, NOW, NOW + IN_DOUBT_MS).await.unwrap().unwrap();
        assert_eq!(outbox::begin(&store, &due, NOW, NOW + IN_DOUBT_MS).await.unwrap(), None, "nobody else begins the same attempt");
        assert_eq!(rig.turn().await, 0);
        rig.clock.step(in_doubt() - Duration::from_millis(1));
        assert_eq!(rig.turn().await, 0);
        rig.clock.step(Duration::from_millis(1));
        assert_eq!(rig.turn().await, 1);
        assert_eq!(receiver.seen()[0].header("webhook-id"), due.event_id);
        let log = rig.last(channel).await;
        assert_eq!((log.state, log.attempts.len(), log.attempts[0].took_ms), (DeliveryState::Delivered, 2, None));
        // Who comes back after all writes into the log and changes nothing else.
        let late = lazaret::store::outbox::Finished {
            took_ms: 5, status: Some(500), body: None, error: Some("late"), state: DeliveryState::Waiting, due_at_ms: 0, hold: None,
        };
        assert!(!outbox::finish(&store, &begun, &late, NOW).await.unwrap());
        let log = rig.last(channel).await;
        assert_eq!((log.state, log.attempts[0].status), (DeliveryState::Delivered, Some(500)));
    }

    async fn what_is_rolled_back_is_told_to_nobody(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let channel = rig.channel("slack", &receiver).await;
        let mut tx = store.begin().await.unwrap();
        assert_eq!(outbox::enqueue(&mut tx, &notice(1, A, firing()), &[channel], NOW).await.unwrap(), 1);
        drop(tx);
        assert_eq!((rig.turn().await, receiver.seen().len()), (0, 0));
    }

    async fn slack_gets_about_one_a_second(store: Store) {
        let rig = Rig::new(&store);
        let (slack, mattermost) = (Receiver::open(ChannelKind::Slack).await, Receiver::open(ChannelKind::Mattermost).await);
        let channels = [rig.channel("slack", &slack).await, rig.channel("mattermost", &mattermost).await];
        for n in 1..=3 {
            rig.tell(&notice(n, &format!("{n}.DLQ"), firing()), &channels).await;
        }
        for _ in 0..3 {
            rig.turn().await;
        }
        assert_eq!((slack.seen().len(), mattermost.seen().len()), (1, 3));
        rig.clock.step(Duration::from_millis(999));
        assert_eq!(rig.turn().await, 0);
        rig.clock.step(Duration::from_millis(1));
        rig.turn().await;
        assert_eq!(slack.seen().len(), 2);
    }

    async fn the_end_of_an_alert_never_overtakes_its_beginning(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::PagerDuty).await;
        receiver.next(Next::Say(500, "internal"));
        let channel = rig.channel("pager", &receiver).await;
        rig.tell(&notice(1, A, firing()), &[channel]).await;
        rig.tell(&notice(2, A, resolved()), &[channel]).await;
        rig.tell(&notice(3, B, firing()), &[channel]).await;
        for _ in 0..20 {
            rig.turn().await;
            rig.clock.step(Duration::from_millis(250));
        }
        let read = |request: &receiver::Seen| {
            let event = request.json();
            format!("{} {}", event["event_action"].as_str().unwrap(), event["dedup_key"].as_str().unwrap())
        };
        let mut seen: Vec<String> = receiver.seen().iter().map(read).collect();
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!(seen.remove(0), format!("trigger arrivals/main/{A}"));
        let place = |what: &str| seen.iter().position(|event| event.starts_with(what) && event.ends_with(A)).unwrap();
        assert!(place("trigger") < place("resolve"), "{seen:?}");
        assert!(seen.contains(&format!("trigger arrivals/main/{B}")), "another alert is not held up");
    }

    async fn what_is_refused_for_good_is_not_tried_again_and_says_what_to_do(store: Store) {
        let rig = Rig::new(&store);
        let table = [
            (ChannelKind::Slack, Next::Say(404, "no_service"), "Make a new one in Slack"),
            (ChannelKind::Slack, Next::Say(410, "channel_is_archived"), "gone or archived"),
            (ChannelKind::Slack, Next::Say(200, "<html>sign in</html>"), "not the \"ok\""),
            (ChannelKind::Discord, Next::Say(401, "{}"), "revoked"),
            (ChannelKind::PagerDuty, Next::Say(400, "{\"status\":\"invalid event\"}"), "integration key"),
            (ChannelKind::Webhook, Next::Say(410, ""), "gone for good"),
        ];
        for (n, (kind, next, remedy)) in (1_u8..).zip(table) {
            let receiver = Receiver::open(kind).await;
            receiver.next(next);
            let channel = rig.channel(&format!("channel {n}"), &receiver).await;
            rig.tell(&notice(n, A, firing()), &[channel]).await;
            assert_eq!(rig.turn().await, 1);
            rig.clock.step(HOUR * 30);
            assert_eq!(rig.turn().await, 0);
            let log = rig.last(channel).await;
            let why = log.attempts[0].error.clone().unwrap();
            assert!(log.state == DeliveryState::Failed && why.contains(remedy), "{kind:?}: {why}");

            // By hand it goes again, the same as before.
            rig.notify.send_again(&ana(), log.id).await.unwrap();
            assert_eq!((rig.turn().await, rig.turn().await), (1, 0));
            let seen = receiver.seen();
            assert!(seen.len() == 2 && seen[0].body == seen[1].body, "{kind:?}");
            assert_eq!(rig.last(channel).await.state, DeliveryState::Delivered);
        }
    }

    async fn after_a_day_it_is_given_up_and_said(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Teams).await;
        for _ in 0..1_000 {
            receiver.next(Next::Say(503, "busy"));
        }
        let channel = rig.channel("teams", &receiver).await;
        rig.tell(&notice(1, A, firing()), &[channel]).await;
        for _ in 0..26 * 60 {
            rig.turn().await;
            rig.clock.step(Duration::from_secs(60));
        }
        let log = rig.last(channel).await;
        let last = log.attempts.last().unwrap();
        assert!(log.state == DeliveryState::GivenUp && last.error.as_deref().unwrap().ends_with("Given up after 24 h"), "{last:?}");
        // From a second to a quarter of an hour, of which chance takes up to half away.
        assert!((90..=210).contains(&log.attempts.len()), "{}", log.attempts.len());
        assert!(last.at_ms - NOW >= 86_400_000);
    }

    async fn what_waits_for_a_channel_that_is_switched_off_is_given_up(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        let channel = rig.channel("slack", &receiver).await;
        rig.tell(&notice(1, A, firing()), &[channel]).await;
        rig.notify.set_disabled(&ana(), channel, 1, true).await.unwrap();
        assert_eq!(rig.tell(&notice(2, A, resolved()), &[channel]).await, 0);
        assert_eq!(rig.turn().await, 0);
        assert_eq!(rig.last(channel).await.state, DeliveryState::GivenUp);
        rig.notify.set_disabled(&ana(), channel, 2, false).await.unwrap();
        assert_eq!((rig.turn().await, rig.tell(&notice(3, A, firing()), &[channel]).await, rig.turn().await), (0, 1, 1));
        rig.courier.tidy().await.unwrap();
        rig.clock.step(HOUR * 24 * 31);
        rig.courier.tidy().await.unwrap();
        assert_eq!(rig.notify.deliveries(channel, None, 10).await.unwrap().items, [], "old entries of the log go");
    }

    async fn a_broken_channel_delays_no_other(store: Store) {
        let rig = Rig::with(&store, Clock::system(), &["127.0.0.1"], Names::System, SECOND * 8);
        let (broken, well) = (Receiver::open(ChannelKind::Webhook).await, Receiver::open(ChannelKind::Mattermost).await);
        broken.next(Next::Sleep(SECOND * 60));
        let (stuck, quick) = (rig.channel("broken", &broken).await, rig.channel("well", &well).await);
        rig.tell(&notice(1, A, firing()), &[stuck]).await;
        let token = CancellationToken::new();
        let test = async {
            until(|| broken.seen().len() == 1).await;
            let began = rig.clock.monotonic();
            for n in 2..=4 {
                rig.tell(&notice(n, &format!("{n}.DLQ"), firing()), &[stuck, quick]).await;
            }
            until(|| well.seen().len() == 3).await;
            let took = rig.clock.monotonic() - began;
            assert!(took < SECOND * 7, "{took:?}");
            assert_eq!(broken.seen().len(), 1, "its own attempt is still under way");
            token.cancel();
        };
        tokio::join!(rig.courier.run(&token), test);
        // What was under way at the end was ended, and is written down.
        let first = rig.last_of(stuck, 1).await;
        assert!(first.attempts[0].took_ms.is_some(), "{first:?}");
    }

    async fn two_couriers_at_once_send_each_message_once(store: Store) {
        let receiver = Receiver::open(ChannelKind::Mattermost).await;
        let (one, two) = (Rig::new(&store), Rig::new(&store));
        let channel = one.channel("mattermost", &receiver).await;
        for n in 1..=8 {
            one.tell(&notice(n, &format!("{n}.DLQ"), firing()), &[channel]).await;
        }
        for _ in 0..16 {
            let (a, b) = tokio::join!(one.courier.turn(), two.courier.turn());
            a.unwrap();
            b.unwrap();
        }
        assert_eq!(receiver.seen().len(), 8);
    }

    async fn a_test_says_what_came_back_and_is_never_repeated(store: Store) {
        let rig = Rig::new(&store);
        let receiver = Receiver::open(ChannelKind::Slack).await;
        receiver.next(Next::Say(403, "action_prohibited"));
        let channel = rig.channel("slack", &receiver).await;
        let refused = rig.notify.test(&ana(), channel).await.unwrap();
        assert_eq!((refused.delivered, refused.status, refused.body.as_deref()), (false, Some(403), Some("action_prohibited")));
        assert!(refused.sentence.starts_with("Not delivered. 403"), "{}", refused.sentence);
        let taken = rig.notify.test(&By { actor: "ben".into(), request_id: None }, channel).await.unwrap();
        assert_eq!((taken.delivered, taken.status, taken.body.as_deref(), taken.sentence.as_str()), (true, Some(200), Some("ok"), "Delivered."));
        rig.clock.step(HOUR * 30);
        assert_eq!((rig.turn().await, receiver.seen().len()), (0, 2));
        assert_eq!(receiver.seen()[1].json()["text"], "[TEST] Lazaret (test) reaches this channel");
        let page = rig.notify.deliveries(channel, None, 1).await.unwrap();
        assert_eq!((page.items[0].state, page.items[0].event.as_str()), (DeliveryState::Delivered, "test"));
        let rest = rig.notify.deliveries(channel, page.next, 1).await.unwrap();
        assert_eq!((rest.items[0].state, rest.next), (DeliveryState::Failed, None));
        let listed = rig.notify.channels().await.unwrap();
        let last = listed[0].last.as_ref().unwrap();
        assert_eq!((listed[0].channel.host.as_str(), last.attempts[0].status), ("127.0.0.1", Some(200)));
    }
}

impl Rig {
    /// The delivery of the notice that `notice(n, ..)` made.
    async fn last_of(&self, channel: i64, n: u8) -> Delivery {
        let id = event_id(NOW, [n; 10]).to_string();
        self.notify.deliveries(channel, None, 100).await.unwrap().items.into_iter().find(|delivery| delivery.event_id == id).unwrap()
    }
}

async fn until(holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SECOND * 30, waited).await.expect("it happens");
}
