//! A Lazaret without Kafka: the real router over a real store, a clock that stands still, records taken in as intake would.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::audit::AuditKey;
use lazaret::domain::clock::Clock;
use lazaret::domain::message::quarantine;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::settings::{DlqSettings, TopicMatch, settings_for};
use lazaret::domain::terms::ReplayTerms;
use lazaret::services::access::Access;
use lazaret::services::replay::Replays;
use lazaret::store::Store;
use lazaret::store::dlqs::Dlq;
use lazaret::store::messages::{PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::store::samples::Sample;
use lazaret::web::{AppState, WebOptions, router};
use scraper::Html;
use tower::ServiceExt as _;

/// 2026-11-30 14:02:11 UTC.
pub const NOW_MS: i64 = 1_796_047_331_000;
pub const MINUTE_MS: i64 = 60_000;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const TOKEN: &str = "a-viewer-token-for-tests";

pub struct House {
    pub store: Store,
    pub clock: Clock,
    pub access: Access,
    pub options: WebOptions,
    /// On which terms each of the DLQs may be replayed, in their order.
    pub terms: Vec<ReplayTerms>,
}

/// What came back.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the answer is UTF-8")
    }
    pub fn page(&self) -> Html {
        Html::parse_document(&self.text())
    }
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
    pub fn header(&self, name: impl header::AsHeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header of text"))
    }
}

/// The text of the first element that matches, blanks folded.
pub fn text_of(page: &Html, selector: &str) -> String {
    all(page, selector).into_iter().next().unwrap_or_else(|| panic!("nothing matches {selector} in {}", page.html()))
}

/// The text of every element that matches.
pub fn all(page: &Html, selector: &str) -> Vec<String> {
    let selector = scraper::Selector::parse(selector).expect("a selector");
    page.select(&selector).map(|element| folded(&element.text().collect::<String>())).collect()
}

/// The attribute of every element that matches.
pub fn attributes(page: &Html, selector: &str, name: &str) -> Vec<String> {
    let selector = scraper::Selector::parse(selector).expect("a selector");
    page.select(&selector).filter_map(|element| element.attr(name).map(str::to_owned)).collect()
}

fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A record that Spring dead-lettered at `at_ms`, whose message says `said`.
pub fn record(topic: &str, offset: i64, at_ms: i64, value: &str, said: &str) -> Record {
    let header = |name: &str, value: &[u8]| Header { name: name.into(), value: Some(value.to_vec()) };
    Record {
        topic: topic.to_owned(),
        partition: 0,
        offset,
        timestamp_ms: Some(at_ms),
        key: Some(format!("key-{offset}").into_bytes()),
        value: Some(value.as_bytes().to_vec()),
        headers: vec![
            header("kafka_dlt-original-topic", b"payments.initiated"),
            header("kafka_dlt-original-partition", &7_i32.to_be_bytes()),
            header("kafka_dlt-original-offset", &404_269_i64.to_be_bytes()),
            header("kafka_dlt-original-consumer-group", b"wallet"),
            header("kafka_dlt-exception-fqcn", b"org.postgresql.util.PSQLException"),
            header("kafka_dlt-exception-message", said.as_bytes()),
        ],
    }
}

impl House {
    pub async fn new(store: Store) -> House {
        let store = store.with_audit_key(AuditKey::new(vec![7; 32]).expect("32 bytes"));
        let clock = Clock::fake(NOW_MS);
        let access = Access::new(store.clone(), clock.clone(), 12);
        access.create_token("viewer", Role::Viewer, OwnerScope::All, None, Some(TOKEN)).await.expect("a token");
        let mut masked = DlqSettings::for_topics("main", TopicMatch::Names(vec!["cards.DLQ".to_owned()]));
        masked.mask = vec!["/card/number".to_owned(), "/email".to_owned()];
        let mut wallet = DlqSettings::for_topics("main", TopicMatch::Names(vec!["payments.wallet.DLQ".to_owned()]));
        wallet.owner = Some("payments".to_owned());
        wallet.consumer_group = Some("wallet".to_owned());
        let others = DlqSettings::for_topics("main", TopicMatch::Pattern(regex::Regex::new(".").expect("a pattern")));
        let options = WebOptions {
            dlqs: vec![masked, wallet, others],
            sample_interval_ms: BTreeMap::from([("main".to_owned(), 15_000)]),
            ..WebOptions::default()
        };
        let terms = vec![ReplayTerms::default(); options.dlqs.len()];
        House { store, clock, access, options, terms }
    }

    pub fn state(&self) -> AppState {
        let state = AppState::new(self.store.clone(), self.access.clone(), self.clock.clone(), self.options.clone());
        let state = state.expect("a usable public_url");
        let replays = Replays { terms: self.terms.clone().into(), ..state.replays.clone() };
        state.with_replays(replays)
    }

    pub async fn dlq(&self, topic: &str) -> Dlq {
        let owner = settings_for(&self.options.dlqs, "main", topic).and_then(|settings| settings.owner.as_deref());
        self.store.ensure_dlq("main", topic, None, owner, self.clock.now_ms()).await.expect("a DLQ").0
    }

    /// Takes records of partition 0 in, as intake would. Their offsets must rise.
    pub async fn take_in(&self, topic: &str, records: Vec<Record>) -> Dlq {
        let dlq = self.dlq(topic).await;
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
        let now = self.clock.now_ms();
        self.store.ensure_position(id, 0, now).await.expect("a position");
        let position = self.store.claim_position(id, now).await.expect("a claim").expect("the position is there");
        let settings = settings_for(&self.options.dlqs, "main", topic).expect("settings");
        let next_offset = records.last().map_or(position.next_offset, |record| record.offset + 1);
        let messages = records.into_iter().map(|record| quarantine(record, settings, &[], now)).collect();
        let batch = PartitionBatch { id, owner_epoch: position.owner_epoch, expected_offset: position.next_offset, next_offset, messages };
        let taken = self.store.take_in(&[batch], now).await.expect("taken in");
        assert!(matches!(taken, TakeIn::Committed { .. }), "{taken:?}");
        dlq
    }

    /// A look at the DLQ `age_ms` ago that found nothing waiting, or failed.
    pub async fn sample(&self, dlq: &Dlq, age_ms: i64, error: Option<&str>) {
        let sample = Sample {
            dlq_id: dlq.id,
            at_ms: self.clock.now_ms() - age_ms,
            uncollected: error.is_none().then_some(0),
            depth: Some(0),
            at_risk_state: if error.is_none() { "all_stored" } else { "unknown" }.to_owned(),
            at_risk_left_ms: None,
            error: error.map(str::to_owned),
            ..Sample::default()
        };
        self.store.save_samples(None, &[sample], &[]).await.expect("a sample");
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        answer(router(self.state()), request).await
    }

    /// As a viewer with an API token.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).header(header::AUTHORIZATION, format!("Bearer {TOKEN}")).body(Body::empty()).expect("a request")).await
    }

    /// As nobody.
    pub async fn anonymous(&self, method: &str, path: &str) -> Answer {
        self.send(Request::builder().method(method).uri(path).body(Body::empty()).expect("a request")).await
    }

    /// A page that must be there.
    pub async fn page(&self, path: &str) -> Html {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.page()
    }

    /// JSON that must be there.
    pub async fn json(&self, path: &str) -> serde_json::Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer.json()
    }

    /// Posts a form as a browser on our own page does.
    pub async fn post(&self, path: &str, form: &str, cookie: &str) -> Answer {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "same-origin")
            .header(header::COOKIE, cookie);
        self.send(request.body(Body::from(form.to_owned())).expect("a request")).await
    }
}

pub async fn answer(router: axum::Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await.expect("the router is infallible");
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a whole body").to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}
