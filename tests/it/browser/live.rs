//! Pages that keep themselves up to date: nothing jumps, the reader is left alone, and a page that is not up to date says so.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::driver::{Browser, SMALL, Screen, WIDE};
use super::line::{Line, Mode};
use super::report;
use super::stage::{HOSTILE, PASSWORD, Stage, WALLET, look_at_all, wallet_records};
use crate::web::house::{HOUR_MS, MINUTE_MS, NOW_MS, record};

pub(super) const UPDATES: i64 = 20;
/// Updates are driven at this pace for a minute.
pub(super) const PACE: Duration = Duration::from_secs(3);
const MOST_SHIFT: f64 = 0.02;

/// Put into the page once it is there: sums up what the layout shifted by without the reader's doing, and counts the updates.
const WATCH: &str = "
    window.watched = { shift: 0, updates: 0, shifted: [] };
    new PerformanceObserver(list => {
        for (const entry of list.getEntries()) {
            if (entry.hadRecentInput) continue;
            watched.shift += entry.value;
            watched.shifted.push(entry.sources.map(source => source.node?.outerHTML?.slice(0, 60) ?? String(source.node?.nodeName)).join(' '));
        }
    }).observe({ type: 'layout-shift', buffered: true });
    document.addEventListener('htmx:afterSwap', () => { watched.updates += 1; });";

/// All that the reader has done to a page and where they are in it.
const READER: &str = "
    const at = document.activeElement;
    return {
        focus: at.outerHTML.slice(0, 60), caret: [at.selectionStart ?? null, at.selectionEnd ?? null], typed: at.value ?? null,
        top: Math.round(at.getBoundingClientRect().top), scroll: Math.round(scrollY),
        checked: [...document.querySelectorAll('input:checked')].map(e => `${e.name}=${e.value}`),
        open: [...document.querySelectorAll('main details')].map(e => e.open),
        rows: [...document.querySelectorAll('#dlqs tbody tr')].map(row => row.id),
    };";

/// What one reader does before the updates begin.
pub(super) struct Reader {
    pub who: &'static str,
    pub path: String,
    pub screen: Screen,
    /// Opened, checked, scrolled to.
    pub does: &'static str,
    /// Where they type, with the caret in the middle.
    pub types_into: &'static str,
    /// Whether any part of the page keeps itself up to date.
    pub is_live: bool,
}

/// Readers at their pages, and what was there before the updates began.
pub(super) struct Seated<'a> {
    readers: &'a [Reader],
    pub browsers: Vec<Browser>,
    /// What the layout shifted by until each page was live.
    loading: Vec<f64>,
    before: Vec<Value>,
}

/// What a reader notices. Where something grows above what they look at, the browser scrolls by as much, and it stays where it is in the window: what
/// they type into tells. Who types into nothing has the scroll position alone.
fn seen_by(reader: &Value) -> Value {
    let mut seen = reader.clone();
    if let Some(fields) = seen.as_object_mut().filter(|fields| fields["top"].is_number()) {
        fields.remove("scroll");
    }
    seen
}

impl Seated<'_> {
    pub async fn all<'a>(stage: &Stage, readers: &'a [Reader]) -> Seated<'a> {
        let mut seated = Seated { readers, browsers: Vec::new(), loading: Vec::new(), before: Vec::new() };
        for reader in readers {
            let (browser, shift) = sit_down(stage, reader).await;
            seated.browsers.push(browser);
            seated.loading.push(shift);
        }
        for browser in &seated.browsers {
            seated.before.push(browser.ask(READER).await);
        }
        seated
    }

    /// After the updates: nothing has shifted, and nobody was disturbed. The figures of each page.
    pub async fn undisturbed(&self) -> String {
        let mut figures = Vec::new();
        for (((browser, reader), before), loading) in self.browsers.iter().zip(self.readers).zip(&self.before).zip(&self.loading) {
            let watched = browser.ask("return watched").await;
            let (shift, updates) = (watched["shift"].as_f64().expect("a number"), watched["updates"].as_f64().expect("a number"));
            let name = format!("{} at {}", reader.path, reader.screen.0);
            let expected = if reader.is_live { UPDATES as f64 } else { 0.0 };
            assert!(updates >= expected && (reader.is_live || updates < 0.5), "{name}: {updates} updates");
            assert_eq!(seen_by(&browser.ask(READER).await), seen_by(before), "{name}: the reader was disturbed");
            assert!(shift <= MOST_SHIFT, "{name}: shifted by {shift}: {}", watched["shifted"]);
            figures.push(format!("{name} {shift:.3} over {updates} updates ({loading:.3} while it loaded)"));
        }
        figures.join(", ")
    }
}

/// Opens the page and does all that. With what the layout had shifted by until the page was live.
async fn sit_down(stage: &Stage, reader: &Reader) -> (Browser, f64) {
    let browser = Browser::open().await;
    browser.screen(reader.screen).await;
    stage.admit(&browser, reader.who).await;
    browser.goto(&stage.at(&reader.path)).await;
    live(&browser).await;
    browser.ask(WATCH).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let loading = browser.number("return watched.shift").await;
    browser.ask(reader.does).await;
    browser.type_into(reader.types_into, "pay-17").await;
    browser.ask("document.activeElement.setSelectionRange(2, 4)").await;
    // What the script opened is no update, and what is done by hand within half a second of a shift would excuse it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    browser.ask("Object.assign(watched, { shift: 0, updates: 0, shifted: [] })").await;
    (browser, loading)
}

pub(super) async fn live(browser: &Browser) {
    browser
        .until("the chip says Live", Duration::from_secs(20), "return document.querySelector('#chip').textContent.startsWith('Live')")
        .await;
}

/// A failure more for the worst, and now and then a queue that was quiet.
async fn something_happens(stage: &Stage, update: i64) {
    stage.house.clock.step(PACE);
    let at = NOW_MS + update * 3_000;
    let more = |topic: &str, offset: i64| {
        vec![record(topic, offset, at, r#"{"payment_id":"pay-new"}"#, "Connection to wallet-db timed out after 5000 ms")]
    };
    stage.house.take_in(WALLET, more(WALLET, wallet_records() + update)).await;
    if update % 5 == 4 {
        stage.house.take_in("ledger.export.dlq", more("ledger.export.dlq", update)).await;
    }
    look_at_all(&stage.house).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn twenty_updates_in_a_minute_shift_nothing_and_leave_the_reader_alone() {
    let stage = Stage::furnished().await;
    let group = stage.house.json(&format!("/api/v1/messages?topic={WALLET}&limit=20")).await["items"].clone();
    let group = group.as_array().and_then(|items| items.iter().find(|item| item["offset"] == HOSTILE - 1)).expect("it")["group"].clone();
    let reader = |path: String, screen, does, types_into| Reader { who: "otto", path, screen, does, types_into, is_live: true };
    let open_all = "document.querySelectorAll('main details').forEach(e => { e.open = true })";
    let known = "document.querySelector('input[type=radio][value=known]').checked = true";
    let readers = [
        reader("/".into(), WIDE, "scrollTo(0, 120)", ".filters input[name=q]"),
        reader(format!("/dlqs/main/{WALLET}"), WIDE, open_all, "#messages input[name=q]"),
        reader(format!("/groups/{group}"), SMALL, known, "input[name=owner]"),
    ];
    let seated = Seated::all(&stage, &readers).await;
    let mut pace = tokio::time::interval(PACE);
    for update in 0..UPDATES {
        pace.tick().await;
        something_happens(&stage, update).await;
    }
    tokio::time::sleep(PACE * 2).await;
    let figures = seated.undisturbed().await;
    // It was not quiet because nothing came.
    let depth = format!("{}", wallet_records() + UPDATES);
    let shown = seated.browsers[1].text(".stats .stat b").await;
    assert_eq!(shown, depth, "the page of the DLQ shows what came");
    report(&format!("layout shift in {} s (at most {MOST_SHIFT}): {figures}", UPDATES * 3));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn rows_keep_their_place_until_the_reader_asks() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at("/")).await;
    live(&browser).await;
    let order = "return [...document.querySelectorAll('#dlqs tbody tr')].map(row => row.id)";
    let before = browser.ask(order).await;
    // A queue that was healthy becomes worse than the worst.
    let at = |n: i64| if n == 0 { NOW_MS - 40 * HOUR_MS } else { NOW_MS - 10 * MINUTE_MS + n * 1_000 };
    let old = (0..400).map(|n| record("payments.fraud.DLQ", n, at(n), "{}", "Its rules engine is gone"));
    let fraud = stage.house.take_in("payments.fraud.DLQ", old.collect()).await;
    stage.house.sample(&fraud, 0, None).await;
    let sentence = "return document.querySelector('#sentence').textContent.includes('payments.fraud.DLQ')";
    browser.until("the sentence names the new worst", Duration::from_secs(10), sentence).await;
    assert_eq!(browser.ask(order).await, before, "rows stay under the pointer");
    assert!(browser.text("#toasts").await.contains("Order changed"));
    browser.click("#toasts a").await;
    let new = format!(
        "const order = [...document.querySelectorAll('#dlqs tbody .name')].map(e => e.textContent);
        return order.indexOf('payments.fraud.DLQ') < order.indexOf('{WALLET}')"
    );
    browser.until("the new order", Duration::from_secs(10), &new).await;
    assert_ne!(browser.ask(order).await, before);
    assert_eq!(browser.console().await, Vec::<Value>::new());

    // Paused: nothing changes; then everything that was missed comes at once.
    live(&browser).await;
    browser.click("#pause").await;
    assert_eq!(browser.text("#chip").await, "Paused");
    let depth = format!("return document.querySelector('#dlq-{} [data-l=Depth]').textContent", fraud.id);
    let paused = browser.ask(&depth).await;
    stage.house.take_in("payments.fraud.DLQ", vec![record("payments.fraud.DLQ", 400, NOW_MS, "{}", "Its rules engine is gone")]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(browser.ask(&depth).await, paused);
    browser.click("#pause").await;
    browser.until("what was missed", Duration::from_secs(5), &depth.replace("textContent", "textContent.includes('401')")).await;
    live(&browser).await;
}

/// Breaks the line for half a minute, in which `happens`; the page must say so, and soon afterwards a script must find it `right`.
pub(super) async fn broken_for_a_while(browser: &Browser, line: &Line, mode: Mode, happens: impl AsyncFnOnce(), right: &str) -> String {
    let began = tokio::time::Instant::now();
    line.set(mode);
    browser
        .until("the chip says Stale", Duration::from_secs(15), "return document.querySelector('#chip').textContent.startsWith('Stale')")
        .await;
    let stale = began.elapsed();
    let chip = browser.text("#chip").await;
    assert!(chip.ends_with(" s"), "it says since when: {chip}");
    happens().await;
    tokio::time::sleep_until(began + Duration::from_secs(30)).await;
    assert!(browser.text("#chip").await.starts_with("Stale"));

    let back = tokio::time::Instant::now();
    line.set(Mode::Open);
    let right = format!("return document.querySelector('#chip').textContent.startsWith('Live') && {right}");
    browser.until(&format!("live and right again after {mode:?}"), Duration::from_secs(5), &right).await;
    format!("{mode:?}: Stale after {:.1} s, right {:.1} s after its return", stale.as_secs_f64(), back.elapsed().as_secs_f64())
}

/// The overview, while the line is broken.
async fn broken(mode: Mode) -> String {
    let (stage, line) = Stage::behind_a_line().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at("/")).await;
    live(&browser).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let wallet = stage.house.dlq(WALLET).await;
    let right = format!("document.querySelector('#dlq-{} [data-l=Depth]').textContent.includes('{}')", wallet.id, wallet_records() + 1);
    broken_for_a_while(&browser, &line, mode, async || something_happens(&stage, 0).await, &right).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn a_page_whose_stream_is_gone_says_so_and_is_right_again_soon() {
    // Connections that end, and connections that say nothing any more.
    let (cut, silent) = tokio::join!(broken(Mode::Cut), broken(Mode::Silent));
    report(&format!("stream gone for 30 s (Stale within 15 s, right within 5 s): {cut}; {silent}"));
}

/// A stream as another tab of otto's holds it. None: there was no place.
async fn another_tab(stage: &Stage, session: &str) -> Option<TcpStream> {
    let host = stage.url.trim_start_matches("http://");
    let mut tab = TcpStream::connect(host).await.expect("a connection");
    let request = format!("GET /events HTTP/1.1\r\nHost: {host}\r\nCookie: lazaret={session}\r\n\r\n");
    tab.write_all(request.as_bytes()).await.expect("sent");
    let mut head = [0; 12];
    tab.read_exact(&mut head).await.expect("the head of an answer");
    match &head {
        b"HTTP/1.1 200" => Some(tab),
        b"HTTP/1.1 503" => None,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

/// What a page is told when its tab is turned away from, or to.
async fn look(browser: &Browser, hidden: bool) {
    let script = "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true });
        document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))";
    browser.ask_with(script, vec![hidden.into()]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn a_hidden_page_gives_its_stream_up_and_one_without_a_place_does_not_press() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at("/")).await;
    live(&browser).await;
    let session = stage.house.access.sign_in("otto", PASSWORD, None).await.expect("an answer").expect("a session");
    let mut tabs = Vec::new();
    for _ in 0..19 {
        tabs.push(another_tab(&stage, &session).await.expect("a place"));
    }
    assert!(another_tab(&stage, &session).await.is_none(), "the page holds the last place");

    look(&browser, true).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(another_tab(&stage, &session).await.is_none(), "a short look elsewhere costs nothing");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    let last = loop {
        if let Some(tab) = another_tab(&stage, &session).await {
            break tab;
        }
        assert!(tokio::time::Instant::now() < deadline, "the hidden page keeps its place");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    something_happens(&stage, 0).await;
    look(&browser, false).await;
    let stale = "return document.querySelector('#chip').textContent.startsWith('Stale')";
    browser.until("the chip says Stale", Duration::from_secs(15), stale).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    browser.network().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = |(method, said): &(String, Value)| {
        method == "Network.requestWillBeSent" && said["request"]["url"].as_str().is_some_and(|url| url.contains("/events"))
    };
    let asked = browser.network().await.iter().filter(|event| asked(event)).count();
    assert!(asked <= 1, "asked {asked} times in 10 s for what was refused for half a minute");
    assert_eq!(browser.ask(stale).await, Value::Bool(true));

    drop(last);
    browser.until("live again", Duration::from_secs(40), "return document.querySelector('#chip').textContent.startsWith('Live')").await;
    let wallet = stage.house.dlq(WALLET).await;
    let right =
        format!("return document.querySelector('#dlq-{} [data-l=Depth]').textContent.includes('{}')", wallet.id, wallet_records() + 1);
    browser.until("what was missed", Duration::from_secs(5), &right).await;
}
