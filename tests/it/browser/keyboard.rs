//! From the sign-in to a message and back, on the keyboard alone.

use lazaret::domain::replay::{BatchMove, Expected, Warning};
use serde_json::Value;

use super::driver::{Browser, PHONE, WIDE};
use super::stage::{PASSWORD, Stage, WALLET};
use crate::replay::seeded::Seeded;

const TAB: &str = "\u{E004}";
pub(super) const ENTER: &str = "\u{E007}";
/// More than any page has until the place that is looked for.
const MOST_TABS: usize = 120;

/// What has the focus, and what is wrong with how it is shown. An element that is only there for screen readers becomes visible when
/// it has the focus, or takes none.
const FOCUS: &str = "
    const element = document.activeElement;
    if (!element || element === document.body) return { at: null };
    const style = getComputedStyle(element), box = element.getBoundingClientRect(), faults = [];
    const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    if (!ring) faults.push(`no outline: ${style.outline}`);
    if (box.width < 1 || box.height < 1) faults.push('no size');
    if (box.bottom <= 0 || box.right <= 0 || box.top >= innerHeight || box.left >= innerWidth) faults.push('outside of the screen');
    // Any point that is hit will do: a link that runs over two lines has corners that are not its own.
    const lines = [...element.getClientRects()];
    const points = lines.flatMap(line => [.1, .5, .9].map(part => [line.left + line.width * part, line.top + line.height / 2]));
    const within = points.filter(([x, y]) => x >= 0 && y >= 0 && x < innerWidth && y < innerHeight);
    const hit = ([x, y]) => { const found = document.elementFromPoint(x, y); return found && (element.contains(found) || found.contains(element)); };
    if (within.length && !within.every(hit)) faults.push('covered');
    return { at: element.outerHTML.slice(0, 120), faults, href: element.getAttribute('href'), id: element.id };";

/// Presses Tab until `wanted` has the focus; every stop on the way must be seen.
pub(super) async fn tab_to(browser: &Browser, wanted: &str) -> usize {
    for stops in 1..=MOST_TABS {
        browser.keys(TAB).await;
        let focus = browser.ask(FOCUS).await;
        if focus["at"] != Value::Null {
            assert_eq!(focus["faults"], serde_json::json!([]), "on {}: {}", browser.place().await, focus["at"]);
        }
        if browser.ask_with("return document.activeElement.matches(arguments[0])", vec![Value::from(wanted)]).await == Value::Bool(true) {
            return stops;
        }
    }
    panic!("{MOST_TABS} tabs on {} did not reach {wanted}", browser.place().await);
}

/// Presses Tab once around the page: every stop is seen, none is a trap. How many there were.
async fn around(browser: &Browser) -> usize {
    // Radio buttons of one name are one stop: the one that is chosen.
    let all = "return [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]
        .filter(e => !e.disabled && e.type !== 'hidden' && !(e.type === 'radio' && !e.checked) && e.checkVisibility({ visibilityProperty: true })).length";
    let stops = browser.number(all).await as usize;
    browser.ask("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)").await;
    let mut seen = std::collections::BTreeSet::new();
    // Once more than there are stops: a pre that scrolls is one, too.
    for _ in 0..stops + 10 {
        browser.keys(TAB).await;
        let focus = browser.ask(FOCUS).await;
        if focus["at"] == Value::Null {
            break;
        }
        assert_eq!(focus["faults"], serde_json::json!([]), "on {}: {}", browser.place().await, focus["at"]);
        let number = "window.numbered ??= new Map(); const e = document.activeElement; numbered.has(e) || numbered.set(e, numbered.size); return numbered.get(e)";
        seen.insert(browser.number(number).await as usize);
    }
    assert!(seen.len() >= stops, "{} of {stops} stops on {}", seen.len(), browser.place().await);
    stops
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn from_the_sign_in_to_a_message_and_back_on_the_keyboard_alone() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    for (screen, name) in [(WIDE, "otto"), (PHONE, "vera")] {
        browser.screen(screen).await;
        browser.goto(&stage.at("/")).await;
        assert_eq!(browser.ask("return document.activeElement.id").await, "name", "the form waits for the name");
        browser.keys(name).await;
        browser.keys(TAB).await;
        browser.keys(PASSWORD).await;
        browser.keys(ENTER).await;
        browser.element("#sentence").await;

        // The first stop leads past the navigation.
        assert_eq!(tab_to(&browser, ".skip").await, 1);
        browser.keys(ENTER).await;
        tab_to(&browser, "#sentence a").await;
        browser.keys(ENTER).await;
        browser.element("#messages tbody").await;
        assert_eq!(browser.text("h1").await, WALLET);
        let stops = tab_to(&browser, "#messages tbody a.name").await;
        assert!(stops > 3, "{stops}");
        browser.keys(ENTER).await;
        browser.element("#value").await;
        // Back by the trail of links, and out.
        tab_to(&browser, ".crumb a[href^='/dlqs/']").await;
        browser.keys(ENTER).await;
        browser.element("#messages tbody").await;
        tab_to(&browser, ".crumb a[href='/']").await;
        browser.keys(ENTER).await;
        browser.element("#sentence").await;
        tab_to(&browser, ".menu summary").await;
        browser.keys(ENTER).await;
        tab_to(&browser, "form[action='/sign-out'] button").await;
        browser.keys(ENTER).await;
        browser.element("#password").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn every_stop_of_the_tab_key_is_seen() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "ada").await;
    let mut stops = 0;
    let replay = Seeded::frozen(&stage.house, "refunds.DLQ", 20, "otto", |_| ()).await;
    let also = Warning::AlsoReadBy { group: "analytics".into(), why: "it has no ledger".into(), items: 20 };
    replay.preflighted(&[(Expected::Held, 2)], &[also], 1).await;
    let draft = format!("/replays/{}?items=all", replay.id);
    let mut paths = vec!["/".to_owned(), format!("/dlqs/main/{WALLET}"), "/messages/3".into(), "/groups/1".into(), "/settings".into()];
    paths.extend([draft, format!("/replays/new?cluster=main&topic={WALLET}")]);
    for path in paths {
        for screen in [WIDE, PHONE] {
            browser.screen(screen).await;
            browser.goto(&stage.at(&path)).await;
            stops += around(&browser).await;
        }
    }
    replay.moved(BatchMove::Submit, None).await;
    for screen in [WIDE, PHONE] {
        browser.screen(screen).await;
        browser.goto(&stage.at(&format!("/replays/{}/review", replay.id))).await;
        stops += around(&browser).await;
    }
    super::report(&format!("keyboard: {stops} stops of the Tab key, each with its outline in sight and uncovered"));
}
