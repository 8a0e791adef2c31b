//! What a phone shows before anybody scrolls.

use serde_json::{Value, json};

use super::driver::{Browser, PHONE};
use super::stage::Stage;
use crate::web::house::{HOUR_MS, MINUTE_MS, NOW_MS, record};

/// Nine queues, three of them in a bad way; what has failed longest is the worst.
async fn nine(stage: &Stage) {
    for n in 0..9_i64 {
        let topic = format!("payments.service-{n}.DLQ");
        let waiting = if n < 3 { 40 } else { 1 };
        let age = if n == 0 { 3 * HOUR_MS + 12 * MINUTE_MS } else { 40 * MINUTE_MS };
        let records = (0..waiting).map(|at| record(&topic, at, NOW_MS - age + at * 1_000, "{}", "Connection to wallet-db timed out"));
        let dlq = stage.house.take_in(&topic, records.collect()).await;
        stage.house.sample(&dlq, 4_000, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn the_worst_its_age_and_the_way_to_it_are_above_the_fold_of_a_phone() {
    let stage = Stage::empty().await;
    nine(&stage).await;
    let browser = Browser::open().await;
    browser.screen(PHONE).await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at("/")).await;
    let rows = browser.number("return document.querySelectorAll('#dlqs tbody tr').length").await;
    assert!((rows - 9.0).abs() < 0.5, "{rows} rows");
    let sentence = browser.text("#sentence").await;
    assert!(sentence.contains("payments.service-0.DLQ") && sentence.contains("3h 12m"), "{sentence}");

    let seen_whole = "
        const [element] = arguments;
        const box = element.getBoundingClientRect();
        const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        return box.width > 0 && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth
            && (element.contains(hit) || hit.contains(element));";
    let primary = ".answer .btn.go";
    let first = "#dlqs tbody tr:first-child";
    for (what, selector) in [
        ("the sentence", "#sentence".to_owned()),
        ("the primary action, the way to the worst", primary.to_owned()),
        ("the worst one's row: its name", format!("{first} .name")),
        ("the worst one's row: its age", format!("{first} [data-l=Oldest]")),
    ] {
        let element = browser.element(&selector).await;
        let seen = browser.ask_with(seen_whole, vec![json!(element)]).await;
        let at = browser
            .ask_with("const box = arguments[0].getBoundingClientRect(); return `${box.top}..${box.bottom}`", vec![json!(element)])
            .await;
        assert_eq!(seen, Value::Bool(true), "{what} ({selector}) is at {at} of {}", PHONE.1);
    }
    assert_eq!(browser.text(&format!("{first} .name")).await, "payments.service-0.DLQ");
    assert!(browser.text(&format!("{first} [data-l=Oldest]")).await.contains("3h 12m"));
    browser.click(primary).await;
    assert_eq!(browser.text("h1").await, "payments.service-0.DLQ");
}
