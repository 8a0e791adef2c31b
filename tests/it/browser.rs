//! What a real Chromium makes of the pages: the first journey, hostile payloads inert, nothing wider than the screen.
//!
//! With `LAZARET_TEST_SCREENSHOTS` set to a folder it leaves pictures there, for a person to judge.

use std::net::SocketAddr;
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::record::Record;
use lazaret::store::samples::Sample;
use serde_json::{Value, json};

use crate::support::Server;
use crate::web::hostile::{fixtures, hostile};
use crate::web::house::{HOUR_MS, House, MINUTE_MS, NOW_MS, record};

const WIDE: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (390, 844);
const PASSWORD: &str = "correct horse battery";

/// A browser session that ends with the test, and what only Chromium's driver offers beside WebDriver.
struct Browser {
    client: Client,
    session: String,
    http: reqwest::Client,
    _profile: tempfile::TempDir,
}

impl Browser {
    async fn open() -> Browser {
        let driver = Server::Webdriver.address();
        let profile = tempfile::tempdir().expect("a profile folder");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--force-color-profile=srgb",
        ];
        let arguments =
            arguments.iter().map(|argument| (*argument).to_owned()).chain([format!("--user-data-dir={}", profile.path().display())]);
        let mut options = json!({ "args": arguments.collect::<Vec<_>>() });
        if let Ok(binary) = std::env::var("LAZARET_TEST_CHROMIUM") {
            options["binary"] = Value::from(binary);
        }
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let wanted = wanted.as_object().expect("an object").clone();
        let client = ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&driver).await.expect("a browser");
        let id = client.session_id().await.expect("an answer").expect("a session");
        Browser {
            client,
            session: format!("{}/session/{id}", driver.trim_end_matches('/')),
            http: reqwest::Client::new(),
            _profile: profile,
        }
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let answer = self.http.post(format!("{}/{path}", self.session)).json(&body).send().await.expect("the driver answers");
        answer.json::<Value>().await.expect("JSON")["value"].take()
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        let value = self.command("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await;
        assert!(value.get("error").is_none(), "{command}: {value}");
    }

    async fn screen(&self, (width, height): (u32, u32)) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    async fn theme(&self, theme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Everything the console was told: a broken policy, a missing file, a script's error.
    async fn console(&self) -> Value {
        self.command("se/log", json!({ "type": "browser" })).await
    }

    /// Waits for it: a form's answer takes as long as a password's hash.
    async fn element(&self, selector: &str) -> Element {
        let found = self.client.wait().at_most(Duration::from_secs(20)).for_element(Locator::Css(selector)).await;
        found.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        element.click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    async fn text(&self, selector: &str) -> String {
        let element = self.element(selector).await;
        element.text().await.expect("its text")
    }

    /// The page as it stands fits both screens in both themes, and nothing was complained of.
    async fn judge(&self, name: &str) {
        for (theme, screen) in [("light", WIDE), ("dark", WIDE), ("light", PHONE), ("dark", PHONE)] {
            self.theme(theme).await;
            self.screen(screen).await;
            let sizes = self.client.execute("const e = document.documentElement; return [e.scrollWidth, e.clientWidth, document.scripts.length, document.querySelectorAll('[style]').length]", vec![]).await.expect("sizes");
            let number = |at: usize| sizes[at].as_i64().expect("a number");
            let wide = "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre')).map(e => e.outerHTML.slice(0, 80)).slice(0, 5)";
            let widest = self.client.execute(wide, vec![]).await.expect("elements");
            assert!(number(0) <= number(1), "{name} at {} px is {} wide: {widest}", screen.0, number(0));
            assert_eq!((number(2), number(3)), (0, 0), "{name}: scripts, inline styles");
            self.picture(&format!("{name}-{}-{theme}", screen.0)).await;
        }
        let console = self.console().await;
        assert_eq!(console, json!([]), "{name}");
    }

    async fn picture(&self, name: &str) {
        if let Ok(folder) = std::env::var("LAZARET_TEST_SCREENSHOTS") {
            let bytes = self.client.screenshot().await.expect("a picture");
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).expect("a folder to write to");
        }
    }
}

/// Served until dropped.
struct Serving {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[allow(clippy::disallowed_methods, reason = "a test's own server; a panic in it shows as a page that does not come")]
async fn serve(house: &mut House) -> Serving {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    house.options.public_url = format!("http://{address}");
    let service = lazaret::web::router(house.state()).into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(async move { axum::serve(listener, service).await.expect("it serves") });
    Serving { address, task }
}

/// A day's arrivals of a failing wallet, and a few neighbours.
async fn furnish(house: &House) {
    let topic = "payments.wallet.DLQ";
    let mut ats: Vec<i64> =
        (0..60).map(|n| NOW_MS - 23 * HOUR_MS + n * 23 * MINUTE_MS).filter(|at| *at < NOW_MS - 12 * MINUTE_MS).collect();
    ats.extend((0..220).map(|n| NOW_MS - 11 * MINUTE_MS + n * 2_900));
    let mut records: Vec<Record> = Vec::new();
    for (offset, at) in ats.into_iter().enumerate() {
        let value = format!(
            r#"{{"payment_id":"pay-{offset}","amount_minor":12900,"currency":"EUR","user":{}}}"#,
            9_007_199_254_740_993_i64 + offset as i64
        );
        let said = if offset % 9 == 3 { "Payload has no field amount_minor" } else { "Connection to wallet-db timed out after 5000 ms" };
        records.push(record(topic, offset as i64, at, &value, said));
    }
    let next = records.len() as i64;
    records.extend(hostile(topic, next));
    let wallet = house.take_in(topic, records).await;
    house.sample(&wallet, 4_000, None).await;
    let mut records = fixtures("orders.fulfilment.DLT");
    // Those that a header dates lie years back, and this DLQ is not to be the worst.
    let dated: [&[u8]; 3] = [b"failed-at", b"MT-Fault-Timestamp", b"NServiceBus.TimeOfFailure"];
    records.retain(|record| !record.headers.iter().any(|header| dated.contains(&header.name.as_slice())));
    records.iter_mut().for_each(|record| record.timestamp_ms = Some(NOW_MS - 70 * MINUTE_MS));
    let mixed = house.take_in("orders.fulfilment.DLT", records).await;
    let risk = Sample {
        dlq_id: mixed.id,
        at_ms: NOW_MS - 4_000,
        uncollected: Some(431),
        depth: Some(19),
        at_risk_state: "at_risk".into(),
        at_risk_left_ms: Some(7 * HOUR_MS),
        error: None,
    };
    house.store.save_samples(None, &[risk], &[]).await.expect("a sample");
    for topic in
        ["payments.fraud.DLQ", "ledger.export.dlq", "a-topic-with-a-rather-long-name.of-some-team.and-its-consumer-group.dead-letters.v2"]
    {
        let dlq = house.dlq(topic).await;
        house.sample(&dlq, 4_000, None).await;
    }
    let dark = house.dlq("clicks.app.dlq").await;
    house.sample(&dark, 4 * MINUTE_MS, None).await;
    house.sample(&dark, 1_000, Some("main: broker 3 does not answer")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn the_first_journey_in_a_real_browser() {
    let (store, _folder) = crate::support::sqlite().await;
    let mut house = House::new(store).await;
    house.access.add_user("ana", PASSWORD, Role::Viewer, OwnerScope::All).await.expect("a user");
    let serving = serve(&mut house).await;
    let browser = Browser::open().await;
    let client = &browser.client;
    browser.screen(WIDE).await;

    client.goto(&format!("http://{}/", serving.address)).await.expect("the sign-in page");
    browser.judge("sign-in").await;
    client.find(Locator::Id("name")).await.expect("a name").send_keys("ana").await.expect("typed");
    client.find(Locator::Id("password")).await.expect("a password").send_keys(PASSWORD).await.expect("typed");
    browser.click(".form .btn").await;
    assert_eq!(browser.text("#sentence").await, "No DLQ is known yet.");
    browser.judge("empty").await;

    furnish(&house).await;
    client.refresh().await.expect("the overview again");
    let sentence = browser.text("#sentence").await;
    assert!(sentence.contains("worst payments.wallet.DLQ, oldest 23h"), "{sentence}");
    browser.judge("overview").await;
    let fold = "const r = document.querySelector('#dlqs tbody').getBoundingClientRect(); return r.top";
    browser.screen(PHONE).await;
    let top = client.execute(fold, vec![]).await.expect("a number").as_f64().expect("a number");
    assert!(top < f64::from(PHONE.1), "the rows begin at {top} on a phone");

    browser.click("#sentence a").await;
    assert_eq!(browser.text("h1").await, "payments.wallet.DLQ");
    browser.judge("dlq").await;

    // The newest are the hostile ones: each is opened.
    for at in 1..=4 {
        client.goto(&format!("http://{}/dlqs/main/payments.wallet.DLQ", serving.address)).await.expect("the DLQ");
        browser.click(&format!("#messages tbody tr:nth-child({at}) .name")).await;
        assert!(client.current_url().await.expect("where we are").path().starts_with("/messages/"));
        browser.judge(&format!("hostile-{at}")).await;
    }
    client
        .goto(&format!("http://{}/messages?q=pay&state=quarantined&topic=payments.wallet.DLQ", serving.address))
        .await
        .expect("nothing found");
    browser.judge("messages-none").await;
    client.goto(&format!("http://{}/messages?class=transient", serving.address)).await.expect("messages");
    browser.judge("messages").await;
    browser.click("#messages tbody .name").await;
    browser.judge("message").await;
    client.goto(&format!("http://{}/groups/1", serving.address)).await.expect("a group");
    browser.judge("group").await;
    client.clone().close().await.expect("the browser closes");
}
