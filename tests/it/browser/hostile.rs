//! What people who mean harm put into a record, in front of a real parser: it stays text, it is cut, and the whole of it can be had.

use std::time::Duration;

use serde_json::{Value, json};

use super::driver::{Browser, PHONE};
use super::stage::{HOSTILE, Stage, WALLET};
use super::survey::{complaints, message_id, overflow};

/// What must not be there: an element that a record brought along, and characters that turn or hide text.
const BROUGHT: &str = "
    const elements = [...document.querySelectorAll('img, iframe, object, embed, [onerror], [onclick], [style], script:not([src])')];
    const deceits = [...document.documentElement.textContent].filter(c => /[\\u0000\\u001b\\u200b-\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ufeff]/.test(c));
    return [...elements.map(e => e.outerHTML.slice(0, 80)), ...deceits.map(c => `U+${c.codePointAt(0).toString(16)}`)];";

/// The one file that Chromium saved, taken out of the folder.
pub async fn downloaded(folder: &tempfile::TempDir) -> Vec<u8> {
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let files = std::fs::read_dir(folder.path()).expect("the folder").map(|file| file.expect("a file").path());
        let done = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            !name.ends_with(".crdownload") && !name.starts_with('.')
        };
        if let Some(path) = files.into_iter().find(done) {
            let bytes = std::fs::read(&path).expect("its bytes");
            std::fs::remove_file(path).expect("removed");
            return bytes;
        }
    }
    panic!("Chromium saved nothing");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn hostile_payloads_are_inert_and_cut_and_can_be_downloaded() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    let folder = tempfile::tempdir().expect("a folder");
    browser.devtools("Browser.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": folder.path() })).await;
    for offset in HOSTILE..HOSTILE + 4 {
        let id = message_id(&stage, WALLET, Some(offset)).await;
        for view in ["", "?view=text", "?view=hex"] {
            let path = format!("/messages/{id}{view}");
            browser.goto(&stage.at(&path)).await;
            // A script that ran would have opened a dialog, which the next question to the page would stumble over.
            assert_eq!(browser.ask(BROUGHT).await, json!([]), "{path}");
            assert_eq!(complaints(&browser, &path, 200).await, Vec::<String>::new(), "{path}");
            let shown = browser.number("return document.querySelector('#value').textContent.length").await;
            // A hex dump takes four and a half characters a byte.
            assert!(shown > 10.0 && shown < 5.0 * 70_000.0, "{path} shows {shown} characters");
            browser.screen(PHONE).await;
            assert_eq!(overflow(&browser).await, None, "{path}");
        }
        browser.click("a[download]").await;
        let sent = downloaded(&folder).await;
        let link = browser.element("a[download]").await.attr("href").await.expect("an answer").expect("an address");
        let stored = stage.house.get(&link).await;
        assert!(stored.header("content-disposition").starts_with("attachment"));
        assert_eq!((stored.header("content-type"), stored.header("x-content-type-options")), ("application/octet-stream", "nosniff"));
        assert!(sent == stored.body && !sent.is_empty(), "byte for byte: {} of {}", sent.len(), stored.body.len());
    }
    let long = message_id(&stage, WALLET, Some(HOSTILE + 2)).await;
    browser.goto(&stage.at(&format!("/messages/{long}?view=text"))).await;
    assert!(browser.text("#value").await.contains("Cut:"), "the cut is told");
    // In lists, too.
    for path in [
        "/".to_owned(),
        format!("/dlqs/main/{WALLET}"),
        format!("/messages?topic={WALLET}"),
        "/messages?q=%3Cscript%3Ealert(1)%3C/script%3E".into(),
    ] {
        browser.goto(&stage.at(&path)).await;
        assert_eq!(browser.ask(BROUGHT).await, json!([]), "{path}");
        assert_eq!(overflow(&browser).await, None, "{path}");
        assert_eq!(browser.ask("return document.querySelector('main') !== null").await, Value::Bool(true));
    }
}
