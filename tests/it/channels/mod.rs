//! Channels: what is told, in which form, how it is delivered, and where it is never sent. No chat service can be reached by a test: a receiver plays each by its
//! published contract, over real HTTP and TLS.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

mod contracts;
mod desk;
mod egress;
mod flow;
mod heartbeat;
mod limits;
mod receiver;
mod tls;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lazaret::channels::{Names, Sender};
use lazaret::domain::access::OwnerScope;
use lazaret::domain::audit::By;
use lazaret::domain::clock::Clock;
use lazaret::domain::delivery::ChannelKind;
use lazaret::domain::egress::AllowList;
use lazaret::domain::notice::{
    AlertFacts, DigestLine, DlqName, Links, Notice, NoticeEvent, ReplayFacts, ResolveFacts, Severity, dedup_key, event_id,
};
use lazaret::domain::settings::Secret;
use lazaret::services::notify::courier::Courier;
use lazaret::services::notify::{NewChannel, Notify};
use lazaret::store::Store;
use lazaret::store::outbox::{self, Delivery};
use receiver::Receiver;

/// 2026-11-30 14:02:11 UTC.
const NOW: i64 = 1_796_047_331_000;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// How long an attempt may take where a test is to see one that takes too long.
const IMPATIENT: Duration = Duration::from_millis(400);
const ROUTING_KEY: &str = "0123456789abcdefghijklmnopqrstuv";

/// A Lazaret with nothing but its channels.
struct Rig {
    store: Store,
    clock: Clock,
    notify: Notify,
    courier: Courier,
}

impl Rig {
    fn new(store: &Store) -> Rig {
        Rig::with(store, Clock::fake(NOW), &["127.0.0.1"], Names::System, Duration::from_secs(10))
    }

    fn with(store: &Store, clock: Clock, allow: &[&str], names: Names, patience: Duration) -> Rig {
        lazaret::app::use_ring();
        let allow = AllowList::parse(allow.iter().copied()).expect("places");
        let notify =
            Notify::new(store.clone(), clock.clone(), Sender::scripted(allow, names, patience), "test").expect("the store has a key");
        Rig { store: store.clone(), clock, courier: Courier::new(notify.clone()), notify }
    }

    /// A channel of this kind that leads to the receiver.
    async fn channel(&self, name: &str, receiver: &Receiver) -> i64 {
        self.channel_at(name, receiver.kind, &receiver.url()).await
    }

    async fn channel_at(&self, name: &str, kind: ChannelKind, url: &str) -> i64 {
        self.notify.create(&ana(), new_channel(name, kind, url)).await.expect("a channel").id
    }

    async fn tell(&self, notice: &Notice, channels: &[i64]) -> u64 {
        let mut tx = self.store.begin().await.unwrap();
        let put = outbox::enqueue(&mut tx, notice, channels, self.clock.now_ms()).await.unwrap();
        tx.commit().await.unwrap();
        put
    }

    async fn turn(&self) -> usize {
        self.courier.turn().await.unwrap()
    }

    /// The newest delivery of a channel.
    async fn last(&self, channel: i64) -> Delivery {
        self.notify.deliveries(channel, None, 1).await.unwrap().items.remove(0)
    }
}

fn new_channel(name: &str, kind: ChannelKind, url: &str) -> NewChannel {
    let key = match kind {
        ChannelKind::PagerDuty => Some(Secret::new(ROUTING_KEY)),
        ChannelKind::Webhook => Some(Secret::new(contracts::SIGNING_SECRET)),
        _ => None,
    };
    NewChannel { kind, name: name.to_owned(), url: Some(Secret::new(url)), key, owners: OwnerScope::All }
}

fn ana() -> By {
    By { actor: "ana".to_owned(), request_id: Some("r1".to_owned()) }
}

fn names(script: &[(&str, &[&str])]) -> Names {
    let mut answers: HashMap<String, VecDeque<Vec<IpAddr>>> = HashMap::new();
    for (name, addresses) in script {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        answers.entry((*name).to_owned()).or_default().push_back(addresses);
    }
    Names::Scripted(Arc::new(Mutex::new(answers)))
}

fn alert() -> AlertFacts {
    AlertFacts {
        rule: "arrivals against usual".into(),
        measure: "8x usual arrivals".into(),
        depth: Some(12_431),
        depth_change_1h: Some(1_204),
        oldest_age_s: Some(11_520),
        arrivals_per_min: Some(42.4),
        usual_per_min: Some((3.0, 8.0)),
        top_failure: Some("WalletUnavailable: connection refused <n> & <id>".into()),
        since_ms: Some(NOW - 720_000),
    }
}

fn firing() -> NoticeEvent {
    NoticeEvent::Firing { severity: Severity::Critical, alert: alert() }
}

fn resolved() -> NoticeEvent {
    let end = ResolveFacts { rule: "arrivals against usual".into(), duration_s: Some(2_520), peak: Some(12_431), replayed: Some(11_980) };
    NoticeEvent::Resolved { severity: Severity::Critical, end }
}

fn replay() -> ReplayFacts {
    ReplayFacts { batch_id: 7, messages: 185, by: "ana".into(), reason: "the wallet's database is back, PAY-1".into() }
}

/// The n-th notice about this topic.
fn notice(n: u8, topic: &str, event: NoticeEvent) -> Notice {
    let base = format!("https://lazaret.example/dlqs/main/{topic}");
    Notice {
        event_id: event_id(NOW, [n; 10]),
        dedup_key: dedup_key("arrivals", "main", topic),
        occurred_at_ms: NOW,
        dlq: Some(DlqName { cluster: "main".into(), topic: topic.into() }),
        owner: Some("payments".into()),
        links: Links {
            dlq: Some(format!("{base}?from=2026-11-30T13:50:11Z&to=2026-11-30T14:02:11Z")),
            group: Some("https://lazaret.example/groups/12".into()),
            runbook: Some("https://wiki.example/wallet".into()),
            review: None,
            alert: None,
        },
        event,
    }
}

/// One of each kind that the snapshots show.
fn one_of_each() -> Vec<(&'static str, Notice)> {
    let line = |topic: &str, severity, measure: &str| DigestLine {
        severity,
        dlq: DlqName { cluster: "main".into(), topic: topic.into() },
        measure: measure.into(),
    };
    let digest = NoticeEvent::Digest {
        severity: Severity::Critical,
        total: 12,
        alerts: vec![
            line("orders.DLQ", Severity::Warning, "depth 9,001"),
            line("payments.wallet.DLQ", Severity::Critical, "8x usual arrivals"),
        ],
    };
    let bare = Notice { dlq: None, owner: None, links: Links::default(), ..notice(1, "payments.wallet.DLQ", firing()) };
    let review = Links { review: Some("https://lazaret.example/replays/7/review".into()), ..Links::default() };
    vec![
        ("firing", notice(1, "payments.wallet.DLQ", firing())),
        ("resolved", notice(1, "payments.wallet.DLQ", resolved())),
        ("digest", Notice { event: digest, ..bare.clone() }),
        (
            "approval wanted",
            Notice { links: review.clone(), ..notice(1, "payments.wallet.DLQ", NoticeEvent::ApprovalWanted { replay: replay() }) },
        ),
        ("emergency", Notice { links: review, ..notice(1, "payments.wallet.DLQ", NoticeEvent::EmergencyReplay { replay: replay() }) }),
        ("test", Notice { event: NoticeEvent::Test { by: "ana".into(), instance: "lookout".into() }, ..bare }),
    ]
}
