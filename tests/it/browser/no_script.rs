//! Everything works without a script: two people with scripts switched off find a failure, decide on it, and take it along.

use std::time::Duration;

use serde_json::{Value, json};

use super::driver::{Browser, PHONE};
use super::stage::{PASSWORD, Stage, WALLET};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn with_scripts_off_a_failure_is_found_decided_on_and_exported() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    browser.without_scripts().await;
    browser.screen(PHONE).await;

    // The operator comes from a link in a chat, signs in and lands there.
    browser.goto(&stage.at(&format!("/messages?topic={WALLET}"))).await;
    browser.sign_in("otto", PASSWORD).await;
    assert!(browser.place().await.starts_with(&format!("/messages?topic={WALLET}")), "{}", browser.place().await);

    // Filter: the whole state is in the address, and the address alone brings the same rows.
    browser.goto(&stage.at(&format!("/dlqs/main/{WALLET}"))).await;
    browser.ask("document.querySelector('#messages select[name=class]').value = 'transient'").await;
    browser.click("#messages .filters .btn").await;
    wait_for(&browser, "class=transient").await;
    let first = browser.text("#messages tbody tr:first-child").await;
    browser.goto(&browser.client.current_url().await.expect("where we are").to_string()).await;
    assert_eq!(browser.text("#messages tbody tr:first-child").await, first);
    // Page.
    browser.click(".pages a[href*='after=']").await;
    wait_for(&browser, "after=").await;
    assert_ne!(browser.text("#messages tbody tr:first-child").await, first, "the next page has other rows");
    assert!(browser.place().await.contains("class=transient"), "and the same filter");
    // Open.
    browser.click("#messages tbody tr:first-child .name").await;
    assert!(browser.text("pre.said").await.contains("timed out"));
    browser.click("a[href^='/groups/']").await;
    browser.element("main form[action$='/status']").await;
    let group = browser.place().await;
    stage.house.clock.step(Duration::from_secs(60));
}

async fn wait_for(browser: &Browser, piece: &str) {
    for _ in 0..100 {
        if browser.place().await.contains(piece) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("still on {}", browser.place().await);
}
