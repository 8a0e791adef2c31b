//! The pages of replays and reviews while something goes on in them: they keep up with it, and leave their readers alone.

use std::time::Duration;

use lazaret::domain::access::OwnerScope;
use lazaret::domain::audit::By;
use lazaret::domain::lifecycle::{Outcome, Proof};
use lazaret::domain::replay::{BatchMove, Expected, Progress, Warning};
use lazaret::domain::review::{ReviewAction, ReviewState};
use lazaret::services::review::{Request, Reviews};
use lazaret::store::messages::MessageFilter;
use lazaret::store::notify::Hint;
use lazaret::store::review::{self, Advance, Scope};

use super::driver::{Browser, PHONE, SMALL, WIDE};
use super::line::Mode;
use super::live::{PACE, Reader, Seated, UPDATES, broken_for_a_while, live};
use super::report;
use super::stage::{Stage, WALLET};
use crate::replay::seeded::Seeded;
use crate::web::house::{House, record};

const MESSAGES: i64 = 200;
/// Sent at once.
const CHUNK: i64 = 5;

/// A replay that has just begun to send.
async fn sending<'a>(house: &'a House, topic: &str) -> Seeded<'a> {
    let sending = Seeded::frozen(house, topic, MESSAGES, "otto", |_| ()).await;
    let warnings = [Warning::Lag { group: "wallet".into(), records: 12_431 }];
    sending.preflighted(&[(Expected::AlreadyApplied, 12), (Expected::Incompatible, 3)], &warnings, 1).await;
    sending.moved(BatchMove::Submit, None).await;
    sending.approved_by("petra", Some("185 is what the outage left")).await;
    sending.moved_at(BatchMove::Start, None, house.clock.now_ms() - 5_000).await;
    sending
}

/// The chunk of this number is sent, the one before is proven, and now and then one comes back or is not sent at all.
async fn goes_on(sending: &Seeded<'_>, update: i64) {
    sending.house.clock.step(PACE);
    let place = |update: i64| usize::try_from(update * CHUNK).expect("a place");
    sending.ended(place(update), CHUNK as usize, "sent", Some((Outcome::Pending, None)), None).await;
    let mut more = Progress { sent: CHUNK, ..Progress::default() };
    if update > 0 {
        sending.ended(place(update - 1), CHUNK as usize, "sent", Some((Outcome::Confirmed, Some(Proof::Offset))), None).await;
        more.confirmed_offset += CHUNK;
    }
    match update % 4 {
        2 => more.already_applied += 1,
        3 => more.returned += 1,
        _ => {}
    }
    if more.returned > 0 {
        more.confirmed_offset -= 1;
    }
    sending.counted(more).await;
    let dlq_id = sending.batch().await.dlq_id;
    sending.house.store.changed(&[Hint::Dlq(dlq_id)]);
}

/// A review of many messages, counted and on its way.
async fn reviewing(house: &House) -> i64 {
    let reviews = Reviews { store: house.store.clone(), clock: house.clock.clone(), dlqs: house.options.dlqs.clone().into() };
    let filter = MessageFilter { cluster: Some("main".into()), topic: Some(WALLET.into()), ..MessageFilter::default() };
    let scope = Scope::Filter { filter: Box::new(filter), query: format!("cluster=main&topic={WALLET}") };
    let reason = Some("Dead-lettered in the rehearsal of October.".to_owned());
    let request = Request { action: ReviewAction::Archive, scope, reason, form_id: "0123456789abcdef".into() };
    reviews.begin(&By { actor: "otto".into(), request_id: None }, &OwnerScope::All, request).await.expect("begun").id
}

async fn review_goes_on(house: &House, id: i64, update: i64) {
    let now = house.store.review(id).await.expect("an answer").expect("the review");
    let total = (update == 0).then_some(60_000);
    let seen = if update == 0 { 0 } else { 2_000 };
    let step = Advance { total, seen, changed: seen - update, ..Advance::to(now.cursor, ReviewState::Running, Vec::new()) };
    let mut tx = house.store.begin().await.expect("a transaction");
    assert!(review::advance(&mut tx, id, now.version, &step, house.clock.now_ms()).await.expect("an answer"));
    tx.commit().await.expect("committed");
    house.store.changed(&[Hint::Review(id)]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn a_replay_that_goes_on_shifts_nothing_and_leaves_its_readers_alone() {
    let stage = Stage::furnished().await;
    let house = &stage.house;
    let sends = sending(house, "refunds.DLQ").await;
    let awaits = Seeded::frozen(house, "payouts.DLQ", 40, "otto", |_| ()).await;
    let also = Warning::AlsoReadBy { group: "analytics".into(), why: "it has no ledger".into(), items: 40 };
    awaits.preflighted(&[(Expected::Held, 2)], &[also], 1).await;
    awaits.moved(BatchMove::Submit, None).await;
    let review = reviewing(house).await;
    review_goes_on(house, review, 0).await;
    goes_on(&sends, 0).await;

    let open_all = "document.querySelectorAll('main details').forEach(e => { e.open = true })";
    let decides = "document.querySelectorAll('main details').forEach(e => { e.open = true });
        document.querySelectorAll('input[type=checkbox]').forEach(e => { e.checked = true }); scrollTo(0, 200)";
    let chooses = "document.querySelector('input[name=auto_submit]').checked = true; document.querySelector('#chosen').open = true";
    let replay = format!("/replays/{}", sends.id);
    let new = format!("/replays/new?cluster=main&topic={WALLET}");
    let reader = |path: &str, screen, does, types_into| Reader { who: "ada", path: path.into(), screen, does, types_into, is_live: true };
    let readers = [
        reader(&replay, WIDE, open_all, "#slow input"),
        reader(&replay, PHONE, "scrollTo(0, 300)", "#stop input"),
        reader(&format!("{replay}?items=sent"), WIDE, "document.querySelector('#items').scrollIntoView()", ".find input"),
        reader(&format!("/replays/{}/review", awaits.id), SMALL, decides, "textarea[name=comment]"),
        reader("/replays", PHONE, "scrollTo(0, 60)", ".find input"),
        reader("/reviews", WIDE, "scrollTo(0, 0)", ".find input"),
        reader(&format!("/reviews/{review}"), WIDE, "scrollTo(0, 40)", ".find input"),
        Reader { is_live: false, ..reader(&new, WIDE, chooses, "input[name=reason]") },
    ];
    let seated = Seated::all(&stage, &readers).await;
    let mut pace = tokio::time::interval(PACE);
    for update in 1..=UPDATES {
        pace.tick().await;
        goes_on(&sends, update).await;
        review_goes_on(house, review, update).await;
        // What awaits approval changes by what arrives in its DLQ.
        house.take_in("payouts.DLQ", vec![record("payouts.DLQ", 1_000 + update, house.clock.now_ms(), "{}", "timed out")]).await;
    }
    tokio::time::sleep(PACE * 2).await;
    let figures = seated.undisturbed().await;
    // It was not quiet because nothing came.
    let sent = seated.browsers[0].text(".figures div:first-child b").await;
    assert_eq!(sent, ((UPDATES + 1) * CHUNK).to_string());
    assert!(seated.browsers[6].text(".lede").await.starts_with("40,000 of 60,000 looked at"), "{}", seated.browsers[6].text(".lede").await);
    assert!(seated.browsers[5].text("#reviews").await.contains("40,000 of 60,000 looked at"));
    report(&format!("layout shift of the pages of replays and reviews in {} s (at most 0.02): {figures}", UPDATES * 3));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn what_a_replay_does_is_shown_within_seconds() {
    let stage = Stage::furnished().await;
    let sends = sending(&stage.house, "refunds.DLQ").await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at(&format!("/replays/{}", sends.id))).await;
    live(&browser).await;
    let mut took = Vec::new();
    for update in 0..10 {
        // At all distances from what went before.
        tokio::time::sleep(Duration::from_millis(1_000 + 370 * update as u64)).await;
        goes_on(&sends, update).await;
        let began = tokio::time::Instant::now();
        let right = format!("return document.querySelector('.figures b').textContent === '{}'", (update + 1) * CHUNK);
        browser.until("what was sent", Duration::from_secs(5), &right).await;
        took.push(began.elapsed().as_secs_f64());
    }
    let (most, mean) = (took.iter().copied().fold(0.0, f64::max), took.iter().sum::<f64>() / took.len() as f64);

    // Where only time passes, what is said of it goes on: the next decision comes nearer.
    let waits = Seeded::frozen(&stage.house, "payouts.DLQ", MESSAGES, "otto", |_| ()).await;
    waits.preflighted(&[], &[], 1).await;
    waits.moved(BatchMove::Submit, None).await;
    waits.approved_by("petra", None).await;
    waits.moved(BatchMove::Start, None).await;
    waits.ended(0, 10, "sent", Some((Outcome::Pending, None)), None).await;
    waits.counted(Progress { sent: 10, ..Progress::default() }).await;
    waits.waits_since(stage.house.clock.now_ms()).await;
    browser.goto(&stage.at(&format!("/replays/{}", waits.id))).await;
    live(&browser).await;
    assert!(browser.text("#stands").await.ends_with("next decision in 10m."), "{}", browser.text("#stands").await);
    stage.house.clock.step(Duration::from_secs(60));
    let began = tokio::time::Instant::now();
    let nearer = "return document.querySelector('#stands').textContent.endsWith('next decision in 9m.')";
    browser.until("the countdown", Duration::from_secs(8), nearer).await;
    let countdown = began.elapsed().as_secs_f64();
    report(&format!(
        "a replay's progress is shown after {mean:.1} s, at most {most:.1} s (n = {}); its countdown after {countdown:.1} s without any hint",
        took.len()
    ));
}

async fn broken(mode: Mode) -> String {
    let (stage, line) = Stage::behind_a_line().await;
    let sends = sending(&stage.house, "refunds.DLQ").await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    browser.goto(&stage.at(&format!("/replays/{}", sends.id))).await;
    live(&browser).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let right = format!("document.querySelector('.figures b').textContent === '{CHUNK}'");
    let said = broken_for_a_while(&browser, &line, mode, async || goes_on(&sends, 0).await, &right).await;
    assert_eq!(browser.text("#toasts").await, "", "the chip says it, and nothing else needs to");
    said
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn the_page_of_a_replay_whose_stream_is_gone_says_so_and_is_right_again_soon() {
    let (cut, silent) = tokio::join!(broken(Mode::Cut), broken(Mode::Silent));
    report(&format!("a replay's stream gone for 30 s (Stale within 15 s, right within 5 s): {cut}; {silent}"));
}
