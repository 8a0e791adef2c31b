//! What the overview weighs where it matters: a phone on a bad network, nothing of it there yet.

use std::collections::BTreeMap;

use super::driver::Browser;
use super::report;
use super::stage::Stage;
use crate::web::house::{MINUTE_MS, NOW_MS, record};

const DLQS: usize = 200;
const MOST_BYTES: u64 = 60_000;
const MOST_SCRIPT_BYTES: u64 = 25_000;
const MOST_REQUESTS: usize = 6;

/// One answer as it came over the wire.
#[derive(Default)]
struct Transfer {
    url: String,
    kind: String,
    encoding: String,
    /// Headers and body, as they were sent.
    bytes: u64,
    /// The body alone, as it was sent.
    body: u64,
}

/// What the page that is being loaded has fetched so far.
async fn transfers(browser: &Browser) -> Vec<Transfer> {
    let mut transfers: BTreeMap<String, Transfer> = BTreeMap::new();
    for (method, event) in browser.network().await {
        let id = event["requestId"].as_str().unwrap_or_default().to_owned();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        match method.as_str() {
            "Network.requestWillBeSent" => {
                let transfer = transfers.entry(id).or_default();
                (transfer.url, transfer.kind) = (text(&event["request"]["url"]), text(&event["type"]));
            }
            "Network.responseReceived" => {
                let headers = &event["response"]["headers"];
                let encoding = text(headers.get("content-encoding").unwrap_or(&headers["Content-Encoding"]));
                transfers.entry(id).or_default().encoding = encoding;
            }
            "Network.dataReceived" => {
                transfers.entry(id).or_default().body += event["encodedDataLength"].as_f64().unwrap_or_default() as u64;
            }
            "Network.loadingFinished" => {
                transfers.entry(id).or_default().bytes = event["encodedDataLength"].as_f64().unwrap_or_default() as u64
            }
            _ => {}
        }
    }
    transfers.into_values().filter(|transfer| !transfer.url.is_empty()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn the_overview_with_200_dlqs_is_light() {
    let stage = Stage::empty().await;
    for n in 0..DLQS {
        let topic = format!("team-{}.service-{n}.DLQ", n % 23);
        let records = (0..3).map(|at| record(&topic, at, NOW_MS - (at + n as i64) * MINUTE_MS, "{}", &format!("Failure {} of it", n % 7)));
        let dlq = stage.house.take_in(&topic, records.collect()).await;
        stage.house.sample(&dlq, 4_000, None).await;
    }
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.network().await;
    browser.goto(&stage.at("/")).await;
    // What a script fetches once the page is there counts, too.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let rows = browser.number("return document.querySelectorAll('#dlqs tbody tr').length").await;
    let sentence = browser.text("#sentence").await;
    assert!(rows > 0.0 && sentence.contains(&DLQS.to_string()), "{rows} rows; {sentence}");

    let mut transfers = transfers(&browser).await;
    transfers.retain(|transfer| transfer.kind != "EventSource" && !transfer.url.starts_with("data:"));
    let total: u64 = transfers.iter().map(|transfer| transfer.bytes).sum();
    let scripts: Vec<&Transfer> = transfers.iter().filter(|transfer| transfer.kind == "Script").collect();
    let script: u64 = scripts.iter().map(|transfer| transfer.body).sum();
    let each = transfers.iter().map(|transfer| format!("{} {}", transfer.kind.to_lowercase(), transfer.bytes));
    report(&format!(
        "overview of {DLQS} DLQs, cold: {total} bytes (at most {MOST_BYTES}), script {script} gzipped (at most {MOST_SCRIPT_BYTES}), {} requests \
         (at most {MOST_REQUESTS}): {}",
        transfers.len(),
        each.collect::<Vec<_>>().join(", ")
    ));
    for transfer in &transfers {
        assert!(transfer.url.starts_with(&format!("{}/", stage.url)), "another host: {}", transfer.url);
        assert!(transfer.bytes > 0 && (transfer.body > 0 || transfer.kind != "Script"), "not measured: {}", transfer.url);
        assert_eq!(transfer.encoding, "gzip", "{}", transfer.url);
    }
    assert!(total <= MOST_BYTES && script <= MOST_SCRIPT_BYTES && transfers.len() <= MOST_REQUESTS);
    assert!(scripts.len() <= 2, "one bundle of libraries, and our own");
}
