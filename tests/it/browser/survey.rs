//! Every page in every state and every look: accessible, nothing wider than the screen, nothing complained of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lazaret::domain::access::OwnerScope;
use lazaret::domain::audit::By;
use lazaret::domain::lifecycle::{Move, Outcome, Proof};
use lazaret::domain::message::MessageState;
use lazaret::domain::replay::{BatchMove, Expected, Progress, Warning};
use lazaret::domain::review::ReviewAction;
use lazaret::domain::verdict::Check;
use lazaret::services::review::{Request, Reviews};
use lazaret::store::messages::MessageFilter;
use lazaret::store::review::Scope;
use lazaret::store::transitions::{self, Cause, Change};
use lazaret::web::routes::{ROUTES, Route};
use serde_json::{Value, json};

use super::driver::{Browser, PHONE, SMALL, Screen, WIDE};
use super::stage::{HOSTILE, PASSWORD, Stage, WALLET, longest_topic};
use super::{axe, report};
use crate::replay::seeded::Seeded;

const THEMES: [&str; 2] = ["light", "dark"];
const SCREENS: [Screen; 2] = [WIDE, PHONE];

/// GET routes that are no page of their own: data, files, streams, and addresses that lead to a page.
const NO_PAGES: [&str; 24] = [
    "/replays/{id}/submit",
    "/replays/{id}/approve",
    "/replays/{id}/reject",
    "/replays/{id}/pause",
    "/replays/{id}/resume",
    "/replays/{id}/stop",
    "/replays/{id}/reopen",
    "/replays/{id}/reviewed",
    "/replays/{id}/slow-down",
    "/reviews/{id}/stop",
    "/export",
    "/messages/export",
    "/messages/{id}/value",
    "/messages/{id}/reveal",
    "/dlqs/{cluster}/{topic}/{partition}/{offset}",
    "/groups/{id}/status",
    "/groups/{id}/notes",
    "/settings/clusters/{cluster}/test",
    "/events",
    "/metrics",
    "/healthz",
    "/readyz",
    "/static/{file}",
    "/api/",
];

fn is_page(route: &Route) -> bool {
    let data = |no: &str| route.path == no || (no.ends_with('/') && route.path.starts_with(no));
    route.method == "GET" && !NO_PAGES.iter().any(|no| data(no))
}

/// How a page comes to be on the screen.
enum Way {
    Get,
    /// A form that no page offers to whoever is signed in.
    Post(&'static [(&'static str, &'static str)]),
    /// What is typed into the page's main form before it is sent.
    Typed(&'static [(&'static str, &'static str)]),
}

/// A page in one state.
struct Place {
    name: &'static str,
    path: String,
    way: Way,
    status: u16,
}

fn get(name: &'static str, path: impl Into<String>) -> Place {
    Place { name, path: path.into(), way: Way::Get, status: 200 }
}

fn get_fails(name: &'static str, path: impl Into<String>, status: u16) -> Place {
    Place { name, path: path.into(), way: Way::Get, status }
}

/// What was looked at, and what was found.
#[derive(Default)]
struct Seen {
    looks: usize,
    pages: BTreeSet<&'static str>,
    states: BTreeMap<&'static str, usize>,
    judged: BTreeSet<String>,
    /// Elements that break a rule of axe-core's.
    violations: usize,
    /// Those, and whatever else is wrong.
    faults: Vec<String>,
}

impl Seen {
    /// Goes there and looks at it in every theme and width. What is wrong is gathered, so that one run tells of everything.
    async fn visit(&mut self, browser: &Browser, stage: &Stage, state: &'static str, place: &Place) {
        *self.states.entry(state).or_default() += 1;
        arrive(browser, stage, place).await;
        let status = browser.number("return performance.getEntriesByType('navigation')[0].responseStatus").await;
        if (status - f64::from(place.status)).abs() > 0.5 {
            self.faults.push(format!("{state}-{}: {} answers {status} and not {}", place.name, place.path, place.status));
            browser.console().await;
            return;
        }
        let path = browser.place().await;
        let route = ROUTES.iter().find(|route| is_page(route) && fits(route.path, path.split('?').next().unwrap_or_default()));
        // An error page stands at any address, and is a page of its own.
        let page = if place.status == 200 || place.status == 422 { route.map(|route| route.path) } else { None };
        self.pages.insert(page.unwrap_or("error page"));
        let name = format!("{state}-{}", place.name);
        for theme in THEMES {
            browser.prefers(&[("prefers-color-scheme", theme)]).await;
            for screen in SCREENS {
                browser.screen(screen).await;
                let verdict = axe::judge(browser).await;
                let look = format!("{name} {theme} {}", screen.0);
                self.violations += verdict.violations.len();
                self.faults.extend(verdict.violations.into_iter().map(|violation| format!("{look}: {violation}")));
                self.judged.extend(verdict.judged);
                self.faults.extend(overflow(browser).await.map(|fault| format!("{look}: {fault}")));
                browser.picture(&format!("{name}-{}-{theme}", screen.0)).await;
                self.looks += 1;
            }
        }
        browser.screen(SMALL).await;
        self.faults.extend(overflow(browser).await.map(|fault| format!("{name} {}: {fault}", SMALL.0)));
        browser.picture(&format!("{name}-{}", SMALL.0)).await;
        browser.screen(WIDE).await;
        self.faults.extend(inline(browser).await.map(|fault| format!("{name}: {fault}")));
        self.faults.extend(complaints(browser, &path, place.status).await.into_iter().map(|fault| format!("{name}: console: {fault}")));
    }
}

/// Brings the page onto the screen.
async fn arrive(browser: &Browser, stage: &Stage, place: &Place) {
    let url = stage.at(&place.path);
    match place.way {
        Way::Get => browser.goto(&url).await,
        Way::Post(fields) => {
            browser.goto(&stage.at("/")).await;
            browser.console().await;
            let script = "
                const [action, fields] = arguments;
                const form = Object.assign(document.createElement('form'), { method: 'post', action });
                for (const [name, value] of fields) form.append(Object.assign(document.createElement('input'), { name, value }));
                document.body.append(form);
                form.submit();";
            browser.ask_with(script, vec![json!(place.path), json!(fields)]).await;
            let there = format!("return location.pathname === {} && document.readyState === 'complete'", json!(place.path));
            browser.until(&place.path, Duration::from_secs(20), &there).await;
        }
        Way::Typed(fields) => {
            browser.goto(&url).await;
            for (selector, text) in fields {
                browser.type_into(selector, text).await;
            }
            browser.click("main form .btn.go").await;
            browser.element("main [role=alert]").await;
        }
    }
}

/// Whether a path is of a route, `{..}` standing for one piece.
fn fits(route: &str, path: &str) -> bool {
    let (route, path): (Vec<&str>, Vec<&str>) = (route.split('/').collect(), path.split('/').collect());
    route.len() == path.len() && route.iter().zip(path).all(|(piece, given)| piece.starts_with('{') || *piece == given)
}

/// What makes the page wider than the screen: elements, and text that runs out of its element.
pub async fn overflow(browser: &Browser) -> Option<String> {
    let script = "
        const page = document.documentElement;
        if (page.scrollWidth <= page.clientWidth) {
            // Nor does text run out of the card or note that it stands in, unless that part of it scrolls.
            const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange(), found = [];
            const scrolls = e => e.closest('.vh, pre, .tree, .scroll, svg, [aria-hidden=true], nav.main, header, summary');
            while (texts.nextNode()) {
                const box = texts.currentNode.parentElement.closest('.card, .note, .sample');
                if (!box || !texts.currentNode.data.trim() || scrolls(texts.currentNode.parentElement)) continue;
                range.selectNodeContents(texts.currentNode);
                const right = box.getBoundingClientRect().right + .1;
                if ([...range.getClientRects()].some(line => line.right > right)) found.push(texts.currentNode.data.slice(0, 60));
            }
            return found.length ? `text runs out of its card: ${found.slice(-5).join(' | ')}` : null;
        }
        const out = box => box.right > page.clientWidth + .1;
        const found = [...document.querySelectorAll('body *')].filter(e => out(e.getBoundingClientRect())).map(e => e.outerHTML.slice(0, 80));
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
        while (texts.nextNode()) {
            range.selectNodeContents(texts.currentNode);
            if ([...range.getClientRects()].some(out)) found.push(`text ${texts.currentNode.data.slice(0, 60)}`);
        }
        return `${page.scrollWidth} px wide: ${found.slice(-5).join(' ')}`;";
    browser.ask(script).await.as_str().map(str::to_owned)
}

/// Script or style that stands in the page itself.
async fn inline(browser: &Browser) -> Option<String> {
    let script = "
        const own = [...document.scripts].filter(script => !script.src || new URL(script.src).origin !== location.origin);
        const inline = [...own, ...document.querySelectorAll('style, [style]')];
        return inline.length ? inline.map(e => e.outerHTML.slice(0, 80)).join(' ') : null;";
    browser.ask(script).await.as_str().map(str::to_owned)
}

/// What the console was told, without the one line in which Chromium says that the page itself came with an error's status.
pub async fn complaints(browser: &Browser, path: &str, status: u16) -> Vec<String> {
    let own = |entry: &Value| {
        let text = entry["message"].as_str().unwrap_or_default();
        let about_the_page = text
            .split_once(' ')
            .is_some_and(|(url, _)| url.split_once("://").is_some_and(|(_, rest)| rest.find('/').is_some_and(|at| rest[at..] == *path)));
        status >= 400 && entry["source"] == "network" && about_the_page && text.contains(&format!("status of {status}"))
    };
    browser.console().await.iter().filter(|entry| !own(entry)).map(|entry| entry["message"].to_string()).collect()
}

/// The id of the newest message of a DLQ, or of the one at an offset.
pub async fn message_id(stage: &Stage, topic: &str, offset: Option<i64>) -> i64 {
    let list = stage.house.json(&format!("/api/v1/messages?limit=500&topic={topic}")).await;
    let items = list["items"].as_array().expect("items");
    let wanted = items.iter().find(|item| offset.is_none_or(|offset| item["offset"] == offset)).expect("the message");
    wanted["id"].as_i64().expect("an id")
}

/// Two reviews, one done and one just begun, and two messages: one that is held, one whose follow-up is open.
async fn reviewed(stage: &Stage) -> [i64; 4] {
    let house = &stage.house;
    let reviews = Reviews { store: house.store.clone(), clock: house.clock.clone(), dlqs: house.options.dlqs.clone().into() };
    let by = By { actor: "otto".to_owned(), request_id: None };
    let mut begun = Vec::new();
    for (action, class) in [(ReviewAction::Archive, "transient"), (ReviewAction::TakeUp, "unknown")] {
        let filter = MessageFilter {
            cluster: Some("main".to_owned()),
            topic: Some("orders.fulfilment.DLT".to_owned()),
            class: class.parse().ok(),
            ..MessageFilter::default()
        };
        let query = format!("cluster=main&topic=orders.fulfilment.DLT&class={class}");
        let scope = Scope::Filter { filter: Box::new(filter), query };
        let reason = Some("Dead-lettered in the rehearsal of October; nobody waits for these orders.".to_owned());
        let request = Request { action, scope, reason, form_id: format!("{}0123456789abcdef", action.as_str().replace('_', "")) };
        begun.push(reviews.begin(&by, &OwnerScope::All, request).await.expect("begun").id);
        while action == ReviewAction::Archive && reviews.tick().await.expect("a chunk") {}
    }
    let (held, unfit) = (message_id(stage, WALLET, Some(5)).await, message_id(stage, WALLET, Some(6)).await);
    let not_answered = "Duplicate check: the ledger wallet-redis did not answer within 2 s. Nothing was sent.";
    let ends = [
        (held, [Move::TakenUp, Move::CheckBegun, Move::SchemaFits, Move::Held].as_slice(), not_answered),
        (unfit, [Move::TakenUp, Move::CheckBegun, Move::SchemaUnfit].as_slice(), "/amount: 12 is not of type string"),
    ];
    let mut tx = house.store.begin().await.expect("a transaction");
    for (message_id, moves, reason) in ends {
        let change = Change { message_id, from: MessageState::Quarantined, moves, reason: Some(reason), evidence: None };
        let cause = Cause { at_ms: house.clock.now_ms() - 60_000, actor: "replay 12", batch_id: Some(12) };
        assert_eq!(transitions::move_messages(&mut tx, &[change], &cause).await.expect("moved"), [message_id]);
    }
    tx.commit().await.expect("committed");
    stage.spoil("INSERT INTO verdicts (message_id, batch_id, at_ms, phase, schema, idempotency, decision, schema_note, asked, answered, others) SELECT id, 12, 1796047271000, 'sending', 'compatible', 'could_not_check', 'held', NULL, '{\"keys\":[\"pay-5\"]}', '\"timed out after 2 s\"', '[[\"audit\",\"new\"]]' FROM messages WHERE state = 'under_review' AND reason IS NOT NULL").await;
    [begun[0], begun[1], held, unfit]
}

const WRONG: Way = Way::Typed(&[("#name", "vera"), ("#password", "not the password")]);

/// The stages of a survey. A browser asks for the icon of a page when it sees fit, so every server stays until the browser has gone.
type Stages = Vec<Stage>;

async fn empty(seen: &mut Seen, browser: &Browser) -> Stages {
    let bare = Stage::bare().await;
    let secret = bare.house.access.setup_token().await.expect("an answer").expect("no user yet");
    seen.visit(browser, &bare, "empty", &get("setup", format!("/setup?token={secret}"))).await;
    let differ = Way::Typed(&[("#password", PASSWORD), ("#again", "another horse entirely")]);
    let place = Place { name: "setup-refused", path: format!("/setup?token={secret}"), way: differ, status: 422 };
    seen.visit(browser, &bare, "error", &place).await;
    let stage = Stage::empty().await;
    seen.visit(browser, &stage, "empty", &get("sign-in", "/sign-in")).await;
    seen.visit(browser, &stage, "error", &Place { name: "sign-in-refused", path: "/sign-in".into(), way: WRONG, status: 422 }).await;
    seen.visit(browser, &stage, "error", &get_fails("setup-used", "/setup?token=used", 403)).await;
    stage.admit(browser, "otto").await;
    let quiet = stage.house.dlq("quiet.DLQ").await;
    for place in [
        get("dlq", "/dlqs/main/quiet.DLQ"),
        get("messages", "/messages"),
        get("reviews", "/reviews"),
        get("settings", "/settings"),
        get("replays", "/replays"),
        get("replay-new", "/replays/new?cluster=main&topic=quiet.DLQ"),
    ] {
        seen.visit(browser, &stage, "empty", &place).await;
    }
    stage.house.store.set_gone(quiet.id, Some(0)).await.expect("gone");
    let nothing = Stage::empty().await;
    nothing.admit(browser, "otto").await;
    seen.visit(browser, &nothing, "empty", &get("overview", "/")).await;
    vec![bare, stage, nothing]
}

async fn normal(seen: &mut Seen, browser: &Browser) -> Stages {
    let stage = Stage::furnished().await;
    stage.admit(browser, "otto").await;
    let usual = message_id(&stage, WALLET, Some(3)).await;
    let fixture = message_id(&stage, "orders.fulfilment.DLT", None).await;
    let group = stage.house.json(&format!("/api/v1/messages/{usual}")).await["group"].as_i64().expect("a group");
    let places = [
        get("overview", "/"),
        get("overview-filtered", "/?status=critical"),
        get("overview-nothing-found", "/?q=no-such-queue"),
        get("dlq", format!("/dlqs/main/{WALLET}")),
        get("dlq-mixed", "/dlqs/main/orders.fulfilment.DLT"),
        get("dlq-longest-name", format!("/dlqs/main/{}", longest_topic())),
        get("dlq-filtered", format!("/dlqs/main/{WALLET}?class=transient")),
        get("messages", "/messages"),
        get("messages-filtered", "/messages?class=transient"),
        get("messages-nothing-found", format!("/messages?q=pay&state=quarantined&topic={WALLET}")),
        get("message", format!("/messages/{usual}")),
        get("message-text", format!("/messages/{usual}?view=text")),
        get("message-hex", format!("/messages/{usual}?view=hex")),
        get("message-fixture", format!("/messages/{fixture}")),
        get("group", format!("/groups/{group}")),
        get("settings", "/settings"),
    ];
    for place in places {
        seen.visit(browser, &stage, "normal", &place).await;
    }
    let [done, counting, held, follow_up] = reviewed(&stage).await;
    let places = [
        get("reviews", "/reviews"),
        get("review-done", format!("/reviews/{done}")),
        get("review-counting", format!("/reviews/{counting}")),
        get("message-held", format!("/messages/{held}")),
        get("message-follow-up", format!("/messages/{follow_up}")),
        get("messages-follow-up", "/messages?follow_up=open"),
        get("dlq-reviewed", "/dlqs/main/orders.fulfilment.DLT"),
    ];
    for place in places {
        seen.visit(browser, &stage, "normal", &place).await;
    }
    for (name, offset, view) in [("markup", 0, ""), ("turned", 1, "?view=text"), ("long", 2, ""), ("nul", 3, "?view=hex")] {
        let id = message_id(&stage, WALLET, Some(HOSTILE + offset)).await;
        seen.visit(browser, &stage, "hostile", &get(name, format!("/messages/{id}{view}"))).await;
    }
    vec![stage]
}

async fn error(seen: &mut Seen, browser: &Browser) -> Stages {
    let stage = Stage::failing().await;
    let usual = message_id(&stage, WALLET, Some(3)).await;
    stage.admit(browser, "otto").await;
    let places = [
        get("overview", "/"),
        get("dlq", format!("/dlqs/main/{WALLET}")),
        get("settings", "/settings"),
        get_fails("400", "/messages?state=nonsense", 400),
        get_fails("404", "/no-such-page", 404),
        get_fails("message-404", "/messages/99999999", 404),
        get_fails("group-404", "/groups/99999999", 404),
        get_fails("dlq-404", "/dlqs/main/no.such.DLQ", 404),
    ];
    for place in places {
        seen.visit(browser, &stage, "error", &place).await;
    }
    let refused =
        Way::Post(&[("action", "archive"), ("id", "3"), ("id", "4"), ("which", "marked"), ("filter", "class=transient"), ("reason", " ")]);
    seen.visit(browser, &stage, "error", &Place { name: "review-refused", path: "/reviews".into(), way: refused, status: 422 }).await;
    stage.admit(browser, "vera").await;
    let forbidden = Place { name: "403", path: "/groups/1/status".into(), way: Way::Post(&[("status", "known")]), status: 403 };
    seen.visit(browser, &stage, "error", &forbidden).await;
    stage.spoil("ALTER TABLE messages RENAME TO gone").await;
    for path in ["/messages".to_owned(), format!("/messages/{usual}")] {
        seen.visit(browser, &stage, "error", &get_fails("500", path, 500)).await;
    }
    vec![stage]
}

/// A replay in each of its states.
async fn replays(seen: &mut Seen, browser: &Browser) -> Stages {
    let stage = Stage::furnished().await;
    let house = &stage.house;
    stage.admit(browser, "ada").await;
    let worked = [(Expected::AlreadyApplied, 12), (Expected::Incompatible, 3), (Expected::Held, 4), (Expected::Blocked, 2)];
    let warnings = [
        Warning::CauseActive { arrivals: 14 },
        Warning::GroupEmpty { group: "wallet".into() },
        Warning::Lag { group: "wallet".into(), records: 12_431 },
        Warning::NewerOfKey { keys: vec!["user-8831".into(), "user-12".into()], count: 9 },
        Warning::AlsoReadBy { group: "analytics".into(), why: "it has no ledger".into(), items: 179 },
        Warning::CheckMissing { check: Check::Idempotency, lines: "[dlq.idempotency]\nledger = \"name of a [ledgers.NAME]\"".into() },
        Warning::Repartitioned { items: 200 },
        Warning::CannotConfirm { why: "no consumer group is known".into() },
    ];
    let batch = |id: i64, rest: &str| format!("/replays/{id}{rest}");
    let checking = Seeded::frozen(house, "one.DLQ", 40, "otto", |_| ()).await;
    checking.counted(Progress { checked: 17, ..Progress::default() }).await;
    seen.visit(browser, &stage, "replay", &get("checking", batch(checking.id, ""))).await;

    let draft =
        Seeded::frozen(house, "two.DLQ", 200, "otto", |new| new.plan.transform = Some(".amount_minor = 1250\n| del(.amount)".into())).await;
    draft.preflighted(&worked, &warnings, 2).await;
    seen.visit(browser, &stage, "replay", &get("draft", batch(draft.id, ""))).await;
    seen.visit(browser, &stage, "replay", &get("draft-items", batch(draft.id, "?items=expect_incompatible"))).await;
    draft.moved(BatchMove::Submit, None).await;
    seen.visit(browser, &stage, "replay", &get("awaiting", batch(draft.id, ""))).await;
    seen.visit(browser, &stage, "replay", &get("review", batch(draft.id, "/review"))).await;
    let digest = Way::Post(&[("digest", "of another plan")]);
    seen.visit(browser, &stage, "replay", &Place { name: "409", path: batch(draft.id, "/approve"), way: digest, status: 409 }).await;

    let sending = Seeded::frozen(house, "three.DLQ", 200, "otto", |_| ()).await;
    sending.preflighted(&worked[..2], &warnings[6..], 1).await;
    sending.moved(BatchMove::Submit, None).await;
    sending.approved_by("petra", Some("185 is what the outage left")).await;
    sending.moved_at(BatchMove::Start, None, house.clock.now_ms() - 500_000).await;
    sending.ended(15, 7, "sent", Some((Outcome::Confirmed, Some(Proof::Offset))), None).await;
    sending.ended(22, 3, "sent", Some((Outcome::Pending, None)), None).await;
    sending.ended(0, 10, "already_applied", None, None).await;
    sending.counted(Progress { sent: 10, confirmed_offset: 7, already_applied: 10, ..Progress::default() }).await;
    sending.waits_since(house.clock.now_ms() - 500_000).await;
    seen.visit(browser, &stage, "replay", &get("sending", batch(sending.id, "?items=sent"))).await;
    sending.moved(BatchMove::Pause, Some("the canary was not proven within 10m")).await;
    seen.visit(browser, &stage, "replay", &get("paused", batch(sending.id, ""))).await;
    sending.moved(BatchMove::Halt, Some("3 of 10 sent came back (30%, the limit is 5%)")).await;
    seen.visit(browser, &stage, "replay", &get("halted", batch(sending.id, ""))).await;

    let done = Seeded::frozen(house, "four.DLQ", 200, "otto", |new| {
        new.emergency = true;
        new.incident = Some("INC-2291".into());
    })
    .await;
    done.preflighted(&worked[..2], &warnings, 1).await;
    done.moved(BatchMove::Submit, None).await;
    done.approved_by("petra", None).await;
    done.moved(BatchMove::Start, None).await;
    done.counted(Progress { sent: 185, already_applied: 12, archived: 3, confirmed_ledger: 182, returned: 3, ..Progress::default() }).await;
    done.moved(BatchMove::Finish, None).await;
    done.moved(BatchMove::Verify, None).await;
    seen.visit(browser, &stage, "replay", &get("verified", batch(done.id, ""))).await;
    seen.visit(browser, &stage, "replay", &get("decided", batch(done.id, "/review"))).await;
    seen.visit(browser, &stage, "replay", &get("list", "/replays")).await;
    seen.visit(browser, &stage, "replay", &get("list-nothing-found", "/replays?state=expired")).await;
    seen.visit(browser, &stage, "replay", &get("choose", "/replays/new")).await;
    let new = format!("/replays/new?cluster=main&topic={WALLET}&class=transient");
    seen.visit(browser, &stage, "replay", &get("new", new.as_str())).await;
    let tried = format!("{new}&preview=1&transform=.tried%20%3D%20true%20%7C%20.n%20%3D%2012.50");
    seen.visit(browser, &stage, "replay", &get("new-tried", tried)).await;
    let wrong = Way::Typed(&[("input[name=reason]", "x"), ("input[name=canary]", "x")]);
    seen.visit(browser, &stage, "replay", &Place { name: "422", path: new, way: wrong, status: 422 }).await;
    seen.visit(browser, &stage, "replay", &get_fails("404", "/replays/99999", 404)).await;
    seen.visit(browser, &stage, "replay", &get("overview", "/")).await;
    seen.visit(browser, &stage, "replay", &get("dlq", "/dlqs/main/two.DLQ")).await;
    stage.admit(browser, "vera").await;
    seen.visit(browser, &stage, "replay", &get("by-viewer", batch(draft.id, ""))).await;
    let forbidden = Place { name: "403", path: batch(draft.id, "/stop"), way: Way::Post(&[("reason", "x")]), status: 403 };
    seen.visit(browser, &stage, "replay", &forbidden).await;
    vec![stage]
}

/// The pages of replays alone, for whoever works on them; all pages are looked at below.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn the_pages_of_replays_are_accessible_and_fit() {
    let browser = Browser::open().await;
    let mut seen = Seen::default();
    let _stages = replays(&mut seen, &browser).await;
    report(&format!("axe-core {}, pages of replays: {} looks, {} violations", axe::VERSION, seen.looks, seen.violations));
    assert!(seen.faults.is_empty(), "{} faults:\n  {}", seen.faults.len(), seen.faults.join("\n  "));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn every_page_in_every_state_and_look_is_accessible_and_fits() {
    let browser = Browser::open().await;
    let mut seen = Seen::default();
    let _stages = [empty(&mut seen, &browser).await, normal(&mut seen, &browser).await, error(&mut seen, &browser).await];
    // Each replay is looked at in a test of its own.
    seen.pages.extend(["/replays/{id}", "/replays/{id}/review"]);

    let pages = ROUTES.iter().filter(|route| is_page(route)).map(|route| route.path);
    let missed: Vec<String> = pages.filter(|page| !seen.pages.contains(page)).map(|page| format!("{page} was not looked at")).collect();
    seen.faults.extend(missed);
    let places: usize = seen.states.values().sum();
    let counts = seen.states.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ");
    report(&format!(
        "axe-core {}: {} looks = {places} places ({counts}; {} pages) x {} themes x {} widths; {} rules applied, {} violations",
        axe::VERSION,
        seen.looks,
        seen.pages.len(),
        THEMES.len(),
        SCREENS.len(),
        seen.judged.len(),
        seen.violations,
    ));
    for rule in ["color-contrast", "target-size", "label", "link-name", "button-name", "document-title", "html-has-lang"] {
        assert!(seen.judged.contains(rule), "axe-core was not asked for {rule}: {:?}", seen.judged);
    }
    assert!(seen.faults.is_empty(), "{} faults:\n  {}", seen.faults.len(), seen.faults.join("\n  "));
    assert_eq!(seen.looks, places * THEMES.len() * SCREENS.len(), "every place in every look");
}
