//! Everything works without a script: two people with scripts switched off find a failure, decide on it, and take it along.

use std::time::Duration;

use serde_json::json;

use super::driver::{Browser, PHONE};
use super::hostile::downloaded;
use super::stage::{PASSWORD, Stage, WALLET};

const PATIENCE: Duration = Duration::from_secs(20);

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
    browser.goto(browser.client.current_url().await.expect("where we are").as_ref()).await;
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

    // Decide: once without what it takes, then with it.
    browser.click("#status input[value=ignored_until]").await;
    browser.click("#status .btn.go").await;
    assert!(browser.text("#status [role=alert]").await.contains("until"), "the form again, with what is wrong");
    browser.goto(&stage.at(&group)).await;
    browser.click("#status input[value=known]").await;
    browser.type_into("#status input[name=owner]", "payments").await;
    browser.type_into("#status input[name=ticket]", "PAY-812").await;
    browser.click("#status .btn.go").await;
    browser.element("p.flash").await;
    let decided = browser.text(".decided").await;
    assert!(decided.contains("payments") && decided.contains("PAY-812") && decided.contains("otto"), "{decided}");
    browser.type_into("#add-note textarea", "The pool of wallet-db is too small.").await;
    browser.click("#add-note .btn").await;
    browser.until("the note is there", PATIENCE, "return document.querySelector('#notes').textContent.includes('too small')").await;

    // The next one on call reads it, and takes the list along.
    browser.click(".menu summary").await;
    browser.click("form[action='/sign-out'] button").await;
    browser.sign_in("vera", PASSWORD).await;
    browser.goto(&stage.at(&group)).await;
    assert!(browser.text(".decided").await.contains("PAY-812"));
    assert!(browser.text("#notes").await.contains("too small"));
    assert!(browser.text("#status").await.contains("operator"), "it says which role decides");
    assert!(!browser.has("#status form").await);
    let folder = tempfile::tempdir().expect("a folder");
    browser.devtools("Browser.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": folder.path() })).await;
    browser.goto(&stage.at(&format!("/messages?topic={WALLET}&class=transient"))).await;
    for (kind, line) in [("csv", "wallet-db timed out"), ("json", "wallet-db timed out")] {
        browser.click(&format!(".files a[href*='format={kind}']")).await;
        let file = String::from_utf8(downloaded(&folder).await).expect("UTF-8");
        assert!(file.contains(line) && !file.contains("no field amount_minor"), "the same rows as the page: {}", &file[..200]);
    }

    // The theme is a form, too.
    browser.click(".menu summary").await;
    browser.click(".menu button[value=dark]").await;
    browser.until("dark", PATIENCE, "return document.documentElement.dataset.theme === 'dark'").await;
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
