//! `lazaret demo`: the story it tells, and the in-process Kafka that the story is told through.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lazaret::app::demo::{Options, RunningDemo, run};
use lazaret::demo::scenario::{self, ProducedRecord, Story};
use lazaret::demo::wallet::Database;
use lazaret::demo::{self, Broker};
use lazaret::domain::classify::FailureClass;
use lazaret::domain::clock::Clock;
use lazaret::domain::message::{NewMessage, quarantine};
use lazaret::domain::record::Record;
use lazaret::domain::settings::settings_for;
use rdkafka::ClientConfig;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Headers as _;
use scraper::{Html, Selector};

/// 2026-11-30T20:00:00Z, a Monday evening.
const NOW_MS: i64 = 1_796_068_800_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const WALLET: &str = "payments.wallet.DLQ";

fn story() -> Vec<ProducedRecord> {
    Story::new(1).until_now(NOW_MS)
}

#[test]
fn the_same_seed_and_moment_tell_the_same_story() {
    assert_eq!(story(), story());
    assert_ne!(story(), Story::new(2).until_now(NOW_MS));
    let (mut one, mut other) = (Story::new(1), Story::new(1));
    assert_eq!(one.next_failure(NOW_MS), other.next_failure(NOW_MS));
}

#[test]
fn the_history_reaches_28_days_back_and_follows_the_shops_hours() {
    let records = story();
    assert!((2_000..6_000).contains(&records.len()), "{} records", records.len());
    let oldest = records.first().expect("a record");
    assert_eq!((oldest.topic, oldest.timestamp_ms / 1000), (WALLET, (NOW_MS - 28 * DAY_MS) / 1000), "the wallet's is the oldest");
    assert!(records.iter().all(|record| record.timestamp_ms <= NOW_MS), "nothing comes from the future");
    assert!(records.is_sorted_by_key(|record| record.timestamp_ms));
    let days: BTreeSet<_> = records.iter().map(|record| (NOW_MS - record.timestamp_ms) / DAY_MS).collect();
    assert!((0..28).all(|day| days.contains(&day)), "a day without failures: {days:?}");
    let in_hours = |from, to| records.iter().filter(|r| (from..to).contains(&((r.timestamp_ms / 3_600_000) % 24))).count();
    assert!(in_hours(16, 20) > 3 * in_hours(1, 5), "evenings are busier than nights");
}

#[test]
fn the_outage_is_200_payments_of_distinct_keys_3_of_them_of_the_old_schema() {
    let mut story = Story::new(1);
    let history = story.until_now(NOW_MS);
    let outage = story.outage(NOW_MS);
    assert_eq!(outage.len(), scenario::OUTAGE_MESSAGES);
    assert!(outage.iter().all(|payment| (NOW_MS - 40 * 60_000..=NOW_MS).contains(&payment.given_up_at_ms)));
    let keys: BTreeSet<_> = outage.iter().map(|payment| payment.record.key.clone()).collect();
    let payments: BTreeSet<_> = outage.iter().map(|payment| json(&payment.record)["payment_id"].to_string()).collect();
    assert_eq!((keys.len(), payments.len()), (200, 200));
    assert!(history.iter().all(|record| record.topic != WALLET || !keys.contains(&record.key)), "the keys are theirs alone");
    let old = outage.iter().filter(|payment| json(&payment.record).get("amount_cents").is_none()).count();
    assert_eq!(old, scenario::OUTAGE_OLD_SCHEMA);
    let late = outage.iter().filter(|payment| payment.database == Database::AnswersTooLate).count();
    assert_eq!(late, scenario::OUTAGE_APPLIED_LATE);
}

#[test]
fn no_new_failure_joins_the_outage_and_no_partition_outgrows_the_broker() {
    let mut story = Story::new(3);
    let mut sizes: BTreeMap<_, usize> = BTreeMap::new();
    for record in story.until_now(NOW_MS) {
        *sizes.entry((record.topic, record.partition)).or_default() += size(&record);
    }
    // The in-process broker drops the oldest beyond 5 MiB a partition; history must leave most of that to what comes.
    assert!(sizes.values().all(|&bytes| bytes < 2 * 1024 * 1024), "{sizes:?}");
    let mut waited = Duration::ZERO;
    let mut topics = BTreeSet::new();
    for _ in 0..500 {
        let (record, wait) = story.next_failure(NOW_MS);
        let of_outage = |header: &lazaret::domain::record::Header| {
            header.value.as_deref().is_some_and(|value| value.ends_with(b"WalletUnavailableException"))
        };
        assert!(!record.headers.iter().any(of_outage));
        waited += wait;
        topics.insert(record.topic);
    }
    let per_minute = 500.0 / (waited.as_secs_f64() / 60.0);
    assert!((2.0..10.0).contains(&per_minute), "{per_minute} a minute");
    assert!(topics.len() >= 5, "{topics:?}");
}

/// The reader of headers was written from the same table as the demo's writer, and by another hand.
#[test]
fn every_dlq_speaks_a_dialect_that_is_recognised() {
    let expected = BTreeMap::from([
        (WALLET, "spring_dlt"),
        ("orders.fulfilment-dlt", "spring_retry"),
        ("payments.notify.DLQ", "smallrye"),
        ("orders_error", "masstransit"),
        ("risk.poison", "watermill"),
        ("fraud.features.dlq", "custom"),
        ("support.email.dead", "custom"),
        ("inventory-sink-dlq", "kafka_connect"),
        ("clicks.app.dlq", "kafka_streams"),
    ]);
    let taken_in = taken_in();
    let (bare, usual): (Vec<_>, Vec<_>) = taken_in.iter().partition(|message| message.record.headers.is_empty());
    assert!(bare.iter().all(|message| message.dialect == "none" && message.needs_target()), "one record says nothing of itself");
    assert_eq!(bare.len(), 1);
    for message in &usual {
        let topic = message.record.topic.as_str();
        assert_eq!(Some(&message.dialect.as_str()), expected.get(topic), "{topic}");
        assert!(message.consumer_group.is_some() && message.exception_message.is_some(), "{topic}: {message:?}");
        assert!(!message.timestamp_suspect && message.dead_lettered_at_ms <= NOW_MS, "{topic}: {message:?}");
    }
    let seen: BTreeSet<_> = usual.iter().map(|message| message.record.topic.as_str()).collect();
    assert_eq!(seen, expected.into_keys().collect());
}

#[test]
fn failures_are_of_several_kinds_and_fall_into_few_groups() {
    let taken_in = taken_in();
    let mut unknown: BTreeMap<_, usize> = BTreeMap::new();
    for message in taken_in.iter().filter(|message| message.class == FailureClass::Unknown) {
        *unknown.entry((&message.exception_class, &message.group.normalised_text)).or_default() += 1;
    }
    assert!(unknown.values().sum::<usize>() * 10 < taken_in.len(), "of {}: {unknown:#?}", taken_in.len());
    let kinds: BTreeSet<_> = taken_in.iter().map(|message| message.class.as_str()).collect();
    assert!(kinds.len() >= 6, "{kinds:?}");
    let mut groups: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for message in &taken_in {
        groups.entry(&message.record.topic).or_default().insert((&message.group.fingerprint, &message.group.normalised_text));
    }
    // The hostile ones are a group each.
    assert!(groups.values().all(|groups| groups.len() <= 12), "{groups:#?}");
}

/// The whole demo: what the page says, the API says, and both say what was produced; a second start knows nothing of the first.
#[tokio::test(flavor = "multi_thread")]
async fn the_overview_names_the_worst_dlq_and_agrees_with_the_api_and_each_start_begins_anew() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for start in ["first", "second"] {
        let options = Options { listen: "127.0.0.1:0".into(), data_dir: folder.path().join("demo"), api_token: Some(start.into()) };
        let demo = run(options, Clock::system()).await.expect("the demo starts");
        for wanted in [demo.running.url.as_str(), "lazaret-operator", &format!("{start}-viewer"), WALLET, "invented"] {
            assert!(demo.banner.contains(wanted), "{wanted} is not in\n{}", demo.banner);
        }
        let visitor = Visitor::of(&demo, &format!("{start}-viewer"));
        let (page, api) = visitor.settled().await;
        assert_eq!(page.worst, WALLET);
        assert_eq!(page.depths, api, "page and API");
        assert_eq!(api.len(), 9);
        visitor.find_the_outage(api[WALLET]).await;
        let (debited, cents) = demo.kafka.wallet().debits().await.expect("its database");
        assert_eq!(debited, 12, "what the last try committed, though the consumer did not hear of it");
        assert!(cents > 0);
        if start == "second" {
            let stranger = Visitor::of(&demo, "first-viewer").get("/api/v1/dlqs").await;
            assert_eq!(stranger.status(), 401, "the first start's token is gone");
            assert!(api[WALLET] < 1_500, "nothing is there twice: {api:?}");
        }
        let stopping = Clock::system();
        assert_eq!(demo.running.shutdown().await, Vec::<String>::new(), "every job ends in time");
        assert!(stopping.monotonic() < Duration::from_secs(5), "its Kafka is still there to be left in an orderly way");
        drop(demo.kafka);
    }
}

/// Somebody who looks at the demo with a token.
struct Visitor {
    client: reqwest::Client,
    url: String,
    token: String,
}

/// What the overview shows.
struct Page {
    worst: String,
    depths: BTreeMap<String, i64>,
}

impl Visitor {
    fn of(demo: &RunningDemo, token: &str) -> Visitor {
        Visitor { client: reqwest::Client::new(), url: demo.running.url.clone(), token: token.to_owned() }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token).send().await.expect("an answer")
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.expect("JSON")
    }

    /// Page and API once the history is taken in and sampled, with no new failure between the two looks.
    async fn settled(&self) -> (Page, BTreeMap<String, i64>) {
        let clock = Clock::system();
        loop {
            let before = self.json("/api/v1/dlqs").await;
            let page = self.get("/").await;
            assert_eq!(page.status(), 200);
            let page = Page::read(&page.text().await.expect("text"));
            let after = self.json("/api/v1/dlqs").await;
            if let (Some(before), Some(after)) = (depths(&before), depths(&after))
                && before == after
                && let Some(page) = page
            {
                return (page, after);
            }
            assert!(clock.monotonic() < Duration::from_secs(60), "not settled: {after:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The messages of the worst DLQ, page by page: as many as its depth says, and the outage's 200 among them.
    async fn find_the_outage(&self, depth: i64) {
        let (mut count, mut outage, mut groups, mut after) = (0, 0, BTreeSet::new(), String::new());
        loop {
            let page = self.json(&format!("/api/v1/messages?topic={WALLET}&limit=200{after}")).await;
            let items = page["items"].as_array().expect("items");
            count += items.len();
            for item in items.iter().filter(|item| item["exception_class"] == "com.northquay.wallet.WalletUnavailableException") {
                outage += 1;
                groups.insert(item["group"].to_string());
                assert_eq!(item["class"], "transient", "the configured rule knows it");
                assert!(item["business_key"].is_string(), "{item}");
            }
            match &page["next"] {
                serde_json::Value::Null => break,
                next => after = format!("&after={}", next.to_string().trim_matches('"')),
            }
        }
        assert_eq!((outage, groups.len()), (200, 1));
        // New failures may have come since the depth was read.
        assert!((depth..depth + 20).contains(&(count as i64)), "{count} messages, depth {depth}");
    }
}

/// Depth by topic, once every DLQ is there, sampled, and read to its end.
fn depths(answer: &serde_json::Value) -> Option<BTreeMap<String, i64>> {
    let items = answer["items"].as_array()?;
    let settled = |item: &&serde_json::Value| item["status"] != "no_data" && item["uncollected"] == 0;
    let depths: Option<BTreeMap<_, _>> =
        items.iter().filter(settled).map(|item| Some((item["topic"].as_str()?.to_owned(), item["depth"].as_i64()?))).collect();
    depths.filter(|depths| depths.len() == 9)
}

impl Page {
    fn read(html: &str) -> Option<Page> {
        let html = Html::parse_document(html);
        let select = |css: &str| Selector::parse(css).expect("a selector");
        let text = |element: scraper::ElementRef<'_>| element.text().collect::<String>().trim().to_owned();
        let worst = html.select(&select("#sentence a")).next().map(text)?;
        let row = |row: scraper::ElementRef<'_>| {
            let name = row.select(&select("a.name")).next().map(text)?;
            let depth = row.select(&select("td[data-l='Depth'] .big")).next().map(text)?;
            Some((name, depth.replace(',', "").parse().ok()?))
        };
        let depths: Option<_> = html.select(&select("#dlqs tbody tr")).map(row).collect();
        Some(Page { worst, depths: depths? })
    }
}

fn taken_in() -> Vec<NewMessage> {
    let (settings, rules) = (demo::dlq_settings(), demo::class_rules());
    let take = |(offset, record): (usize, ProducedRecord)| {
        let settings = settings_for(&settings, demo::CLUSTER, record.topic).expect("every topic is configured");
        let record = Record {
            topic: record.topic.to_owned(),
            partition: record.partition,
            offset: offset as i64,
            timestamp_ms: Some(record.timestamp_ms),
            key: record.key,
            value: record.value,
            headers: record.headers,
        };
        quarantine(record, settings, &rules, NOW_MS)
    };
    story().into_iter().enumerate().map(take).collect()
}

/// The broker gives back exactly what the story says: bytes, headers in order, timestamps, partitions.
#[test]
fn what_is_produced_can_be_read_back_from_the_in_process_broker() {
    let mut expected = story();
    let topics: BTreeSet<_> = expected.iter().map(|record| record.topic).collect();
    let broker = Broker::start(topics.iter().map(|&topic| (topic, 3))).expect("the in-process broker starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(broker.produce(&expected)).expect("everything is acknowledged");

    let mut read = read_back(&broker, &topics, expected.len());
    let order = |record: &ProducedRecord| (record.topic, record.partition);
    read.sort_by_key(order);
    expected.sort_by_key(order);
    for (read, expected) in read.iter().zip(&expected) {
        assert_eq!(read, expected);
    }
    assert_eq!(read.len(), expected.len());
}

fn read_back(broker: &Broker, topics: &BTreeSet<&'static str>, count: usize) -> Vec<ProducedRecord> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap_servers())
        .set("group.id", "read-back")
        .set("auto.offset.reset", "earliest")
        .set("allow.auto.create.topics", "false")
        .create()
        .expect("a consumer");
    consumer.subscribe(&topics.iter().copied().collect::<Vec<_>>()).expect("a subscription");
    let clock = Clock::system();
    let mut records = Vec::new();
    while records.len() < count {
        assert!(clock.monotonic() < Duration::from_secs(60), "only {} of {count} came back", records.len());
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) else { continue };
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| lazaret::domain::record::Header {
                name: header.key.as_bytes().to_vec(),
                value: header.value.map(<[u8]>::to_vec),
            })
        });
        records.push(ProducedRecord {
            topic: topics.get(message.topic()).expect("a topic of ours"),
            partition: message.partition(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.into_iter().flatten().collect(),
            timestamp_ms: message.timestamp().to_millis().expect("a timestamp"),
        });
    }
    records
}

fn json(record: &ProducedRecord) -> serde_json::Value {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default()
}

fn size(record: &ProducedRecord) -> usize {
    let headers: usize = record.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Vec::len)).sum();
    record.key.as_ref().map_or(0, Vec::len) + record.value.as_ref().map_or(0, Vec::len) + headers
}
