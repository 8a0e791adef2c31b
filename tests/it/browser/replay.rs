//! The whole journey of a replay by two people on real Kafka, PostgreSQL and Redis: once on the keyboard alone, once with scripts switched off.

use std::sync::Arc;
use std::time::Duration;

use lazaret::app::{Running, start};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::clock::Clock;

use super::driver::{Browser, PHONE, WIDE};
use super::keyboard::{ENTER, tab_to};
use super::stage::PASSWORD;
use crate::replay::shop::{Shop, Wallet};

const PATIENCE: Duration = Duration::from_secs(90);
/// Who proposes and who decides.
const PROPOSER: (&str, Role) = ("otto", Role::Operator);
const APPROVER: (&str, Role) = ("petra", Role::Approver);

/// Lazaret over a shop that had an outage, once its 200 dead letters are taken in.
async fn after_the_outage(shop: &Arc<Shop>) -> (Running, Wallet) {
    shop.outage(Clock::system().now_ms()).await;
    let wallet = shop.wallet();
    shop.wallet_reads().await;
    let running = start(shop.settings(), Clock::system()).await.expect("Lazaret starts");
    for (name, role) in [PROPOSER, APPROVER] {
        running.access.add_user(name, PASSWORD, role, OwnerScope::All).await.expect("a user");
    }
    (running, wallet)
}

/// Loads the page again until an element says so: what a person without scripts does.
async fn reload_until(browser: &Browser, selector: &str, said: &str) -> String {
    let clock = Clock::system();
    let begun = clock.monotonic();
    loop {
        let script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.replace(/\\s+/g, ' ').trim()).join(' | ')";
        let text = browser.ask_with(script, vec![selector.into()]).await.as_str().unwrap_or_default().to_owned();
        if text.contains(said) {
            return text;
        }
        assert!(clock.monotonic() - begun < PATIENCE, "{selector} on {} does not say {said:?} but {text:?}", browser.place().await);
        tokio::time::sleep(Duration::from_millis(400)).await;
        browser.goto(browser.client.current_url().await.expect("where we are").as_ref()).await;
    }
}

async fn sign_out_and_in(browser: &Browser, name: &str) {
    browser.click(".menu summary").await;
    browser.click("form[action='/sign-out'] button").await;
    browser.sign_in(name, PASSWORD).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka, PostgreSQL, Redis and Chromium: run tests/run"]
async fn on_the_keyboard_alone_two_people_replay_what_an_outage_left() {
    let shop = Arc::new(Shop::open().await);
    let (running, wallet) = after_the_outage(&shop).await;
    let browser = Browser::open().await;
    let dlq = format!("{}/dlqs/main/{}", running.url, shop.dlq);
    browser.goto(&dlq).await;
    browser.sign_in("otto", PASSWORD).await;
    browser.goto(&dlq).await;
    reload_until(&browser, ".stat b", "200").await;

    // Propose: from the DLQ to the forecast, which comes in by itself.
    tab_to(&browser, ".head a.btn.go").await;
    browser.keys(ENTER).await;
    tab_to(&browser, "input[name=reason]").await;
    browser.keys("wallet-db is back since 13:40, INC-2291").await;
    browser.picture("journey-1-new").await;
    tab_to(&browser, "aside .btn.go").await;
    browser.keys(ENTER).await;
    let ready = "return document.querySelectorAll('#submit').length === 1";
    browser.until("the forecast is there", PATIENCE, ready).await;
    let legend = browser.text(".legend").await.replace('\n', " ");
    for said in ["185 will be sent", "12 already applied", "3 do not fit", "0 held"] {
        assert!(legend.contains(said), "{said}: {legend}");
    }
    browser.picture("journey-2-forecast").await;
    assert_eq!(shop.replayed_once(), 0, "a preflight sends nothing");
    tab_to(&browser, "#submit .btn.go").await;
    browser.keys(ENTER).await;
    browser
        .until("it awaits approval", PATIENCE, "return document.querySelector('#stands')?.textContent.startsWith('Needs an approver')")
        .await;
    let replay = browser.place().await;
    browser.goto(&format!("{}{replay}/review", running.url)).await;
    assert!(browser.text("#decision").await.contains("needs the role approver"), "nobody approves alone");

    // Decide: somebody else, on what is shown.
    sign_out_and_in(&browser, "petra").await;
    browser.goto(&format!("{}{replay}/review", running.url)).await;
    assert!(browser.text("#samples").await.contains("not applied yet"));
    browser.picture("journey-3-review").await;
    tab_to(&browser, "textarea[name=comment]").await;
    browser.keys("185 is what the outage left").await;
    tab_to(&browser, "#decision .btn.go").await;
    browser.keys(ENTER).await;

    // Watch: the page comes to its end without being touched.
    browser.element("#stands").await;
    browser.picture("journey-4-sending").await;
    let sum = "return document.querySelector('#stands').textContent === '12 already applied + 3 archived + 185 sent = 200 messages.'";
    browser.until("it is verified", PATIENCE, sum).await;
    assert!(browser.text("section[aria-label='How it stands']").await.contains("Of 185 sent: "));
    browser.picture("journey-5-verified").await;
    browser.goto(&format!("{}{replay}?items=archived", running.url)).await;
    assert_eq!(browser.number("return document.querySelectorAll('#items tbody tr').length").await as i64, 3);
    assert!(browser.text("#items tbody").await.contains("Archived"));
    assert_eq!(shop.replayed_once(), 185, "kcat counts");
    assert_eq!(shop.debits().await, (197, 197), "12 before and 185 now, each once");
    drop(wallet);
    assert_eq!(running.shutdown().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka, PostgreSQL, Redis and Chromium: run tests/run"]
async fn with_scripts_off_two_people_go_from_a_filter_to_a_stop() {
    let shop = Arc::new(Shop::open().await);
    let (running, wallet) = after_the_outage(&shop).await;
    let browser = Browser::open().await;
    browser.without_scripts().await;
    browser.screen(PHONE).await;
    let dlq = format!("{}/dlqs/main/{}", running.url, shop.dlq);
    browser.goto(&dlq).await;
    browser.sign_in("otto", PASSWORD).await;
    browser.goto(&dlq).await;
    reload_until(&browser, ".stat b", "200").await;

    // Filter, and propose the page of it.
    browser.goto(&format!("{dlq}?state=quarantined#messages")).await;
    browser.click("a[href*='/replays/new'][href*='state=quarantined']").await;
    browser.element("input[name=reason]").await;
    assert!(browser.text("#f-scope").await.contains("All 200 that match"));
    browser.click("input[name=scope][value=page]").await;
    for (field, value) in [("max_per_second", "1"), ("canary", "0")] {
        browser.element(&format!("input[name={field}]")).await.clear().await.expect("it is emptied");
        browser.type_into(&format!("input[name={field}]"), value).await;
    }
    browser.type_into("textarea[name=transform]", ".[").await;
    browser.type_into("input[name=reason]", "a first look").await;
    browser.click("aside .btn.go").await;
    // It does not compile: the form comes back with everything that was typed.
    assert!(browser.text("[role=alert]").await.contains("Transform"), "{}", browser.text("[role=alert]").await);
    assert_eq!(browser.ask("return document.querySelector('input[name=reason]').value").await, "a first look");
    assert_eq!(browser.ask("return document.querySelector('input[name=scope]:checked').value").await, "page");
    browser.element("textarea[name=transform]").await.clear().await.expect("it is emptied");
    browser.click("aside .btn.go").await;
    reload_until(&browser, "#stands", "The forecast is ready.").await;
    assert!(browser.text("h1").await.contains("50 messages"), "{}", browser.text("h1").await);
    browser.click("#submit .btn.go").await;
    let replay = browser.place().await;
    reload_until(&browser, "#stands", "Needs an approver").await;

    sign_out_and_in(&browser, "petra").await;
    browser.goto(&format!("{}/replays", running.url)).await;
    browser.click("tbody a.name[href^='/replays/']").await;
    browser.click("a[href$='/review']").await;
    browser.click("#decision .btn.go").await;
    reload_until(&browser, ".head .st", "Sending").await;
    reload_until(&browser, "#log", "start").await;

    // Pause, slow down is refused where it is no slower, stop.
    browser.click("form[action$='/pause'] button").await;
    reload_until(&browser, ".head .st", "Paused").await;
    browser.click("#slow summary").await;
    browser.type_into("#slow input", "9").await;
    browser.click("#slow button").await;
    assert!(browser.text("[role=alert]").await.contains("Messages a second"), "{}", browser.text("[role=alert]").await);
    browser.goto(&format!("{}{replay}", running.url)).await;
    browser.type_into("form[action$='/stop'] input", "enough seen").await;
    browser.picture("no-script-before-stop").await;
    browser.click("form[action$='/stop'] button").await;
    reload_until(&browser, ".head .st", "Stopped").await;
    // What was not sent goes back; all of it is accounted for.
    let sums = reload_until(&browser, "section[aria-label='How it stands']", "not sent").await;
    assert!(sums.contains("= 50 messages."), "{sums}");
    browser.picture("no-script-stopped").await;
    browser.screen(WIDE).await;
    drop(wallet);
    assert_eq!(running.shutdown().await, Vec::<String>::new());
}
