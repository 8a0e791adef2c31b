//! Statuses without colour, and pages for people whom movement makes ill.

use std::collections::{BTreeMap, BTreeSet};

use lazaret::domain::replay::{BatchMove, Expected, Warning};
use serde_json::{Value, json};

use super::driver::Browser;
use super::stage::{Stage, WALLET};
use crate::replay::seeded::Seeded;

/// Every status on the page: its word, its shape, and the colours of shape and ground as they are computed.
const STATUSES: &str = "
    const ground = element => {
        for (let e = element; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (colour !== 'rgba(0, 0, 0, 0)' && colour !== 'transparent') return colour;
        }
        return 'rgb(255, 255, 255)';
    };
    return [...document.querySelectorAll('.st')].filter(e => e.querySelector('svg') && e.getClientRects().length).map(e => {
        const svg = e.querySelector('svg'), shape = svg.firstElementChild, box = shape.getBoundingClientRect(), style = getComputedStyle(e);
        return {
            word: e.textContent.trim(),
            shape: `${shape.tagName} ${shape.getAttribute('d') ?? shape.getAttribute('r')}`,
            fill: getComputedStyle(shape).fill, ink: style.color, ground: ground(e),
            width: box.width, height: box.height, border: parseFloat(style.borderTopWidth),
        };
    });";

#[derive(Debug)]
struct Status {
    word: String,
    shape: String,
    /// Contrast of the shape, and of the word, with what they lie on.
    shape_contrast: f64,
    word_contrast: f64,
    size: f64,
    border: f64,
}

/// Relative luminance of a CSS `rgb(..)`: what is left of a colour in greyscale.
fn luminance(colour: &str) -> f64 {
    let inside = colour.split_once('(').unwrap_or_else(|| panic!("no colour: {colour}")).1.trim_end_matches(')');
    let parts: Vec<f64> = inside.split(',').map(|part| part.trim().parse().expect("a number")).collect();
    assert!(parts.len() == 3 || parts[3] >= 1.0, "see-through: {colour}");
    let linear = |part: f64| if part / 255.0 <= 0.040_45 { part / 255.0 / 12.92 } else { ((part / 255.0 + 0.055) / 1.055).powf(2.4) };
    0.2126 * linear(parts[0]) + 0.7152 * linear(parts[1]) + 0.0722 * linear(parts[2])
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

async fn statuses(browser: &Browser) -> Vec<Status> {
    let found = browser.ask(STATUSES).await;
    let status = |found: &Value| {
        let text = |name: &str| found[name].as_str().expect("a text").to_owned();
        let number = |name: &str| found[name].as_f64().expect("a number");
        Status {
            word: text("word"),
            shape: text("shape"),
            shape_contrast: contrast(&text("fill"), &text("ground")),
            word_contrast: contrast(&text("ink"), &text("ground")),
            size: number("width").min(number("height")),
            border: number("border"),
        }
    };
    found.as_array().expect("a list").iter().map(status).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn statuses_are_told_apart_by_shape_and_word() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "otto").await;
    for (theme, forced) in [("light", "none"), ("dark", "none"), ("light", "active"), ("dark", "active")] {
        browser.prefers(&[("prefers-color-scheme", theme), ("forced-colors", forced)]).await;
        browser.goto(&stage.at("/")).await;
        let look = format!("{theme}, forced colours {forced}");
        assert_eq!(browser.ask("return matchMedia('(forced-colors: active)').matches").await, Value::Bool(forced == "active"), "{look}");
        browser.picture(&format!("statuses-{theme}-forced-{forced}")).await;
        let found = statuses(&browser).await;
        let mut shapes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for status in &found {
            shapes.entry(&status.shape).or_default().insert(&status.word);
            assert!(status.size >= 2.0, "{look}: {status:?}");
            // Luminance is all that greyscale leaves: 3:1 for a graphic, 4.5:1 for text.
            assert!(status.shape_contrast >= 3.0 && status.word_contrast >= 4.5, "{look}: {status:?}");
            assert!(forced == "none" || status.border >= 1.0, "{look}: its fill is gone, and no border stands for it: {status:?}");
        }
        let words: BTreeSet<&str> = found.iter().map(|status| status.word.as_str()).collect();
        for word in ["Critical", "Warning", "Healthy", "No data"] {
            assert!(words.contains(word), "{look}: {word} is not among {words:?}");
            let own: Vec<_> = shapes.iter().filter(|(_, words)| words.contains(word)).collect();
            assert_eq!(own.len(), 1, "{look}: {word} has one shape: {own:?}");
            assert_eq!(own[0].1.len(), 1, "{look}: the shape of {word} is nothing else's: {own:?}");
        }
    }
    // Curves and marks are drawn, not filled: they must not vanish in the forced palette.
    let drawn = browser.ask("return [...document.querySelectorAll('svg .line')].map(e => [getComputedStyle(e).stroke, getComputedStyle(document.body).backgroundColor])").await;
    let drawn = drawn.as_array().expect("curves");
    assert!(!drawn.is_empty());
    for pair in drawn {
        let colour = |at: usize| pair[at].as_str().expect("a colour");
        assert!(contrast(colour(0), colour(1)) >= 3.0, "{pair}");
    }
}

/// A DLQ with a replay in each of these states.
async fn replays(stage: &Stage) -> Vec<Seeded<'_>> {
    let to = |moves: &'static [BatchMove]| moves;
    let all = [
        ("one.DLQ", to(&[])),
        ("two.DLQ", to(&[BatchMove::Submit])),
        ("three.DLQ", to(&[BatchMove::Submit, BatchMove::Approve, BatchMove::Start, BatchMove::Pause])),
        ("four.DLQ", to(&[BatchMove::Submit, BatchMove::Approve, BatchMove::Start, BatchMove::Halt])),
        ("five.DLQ", to(&[BatchMove::Submit, BatchMove::Approve, BatchMove::Start, BatchMove::Finish, BatchMove::Verify])),
        ("six.DLQ", to(&[BatchMove::Submit, BatchMove::Reject])),
        ("seven.DLQ", to(&[BatchMove::Submit, BatchMove::Approve, BatchMove::Start])),
    ];
    let mut replays = Vec::new();
    for (topic, moves) in all {
        let replay = Seeded::frozen(&stage.house, topic, 20, "otto", |_| ()).await;
        replay.preflighted(&[(Expected::AlreadyApplied, 2), (Expected::Incompatible, 3)], &[Warning::CauseActive { arrivals: 3 }], 1).await;
        for movement in moves {
            match movement {
                BatchMove::Approve => replay.approved_by("petra", None).await,
                movement => replay.moved(*movement, None).await,
            }
        }
        replays.push(replay);
    }
    replays
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn states_of_replays_are_told_apart_by_shape_and_word() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "ada").await;
    let seeded = replays(&stage).await;
    let mut looks = 0;
    for (theme, forced) in [("light", "none"), ("dark", "none"), ("light", "active"), ("dark", "active")] {
        browser.prefers(&[("prefers-color-scheme", theme), ("forced-colors", forced)]).await;
        let pages = std::iter::once("/replays".to_owned()).chain(seeded.iter().map(|replay| format!("/replays/{}", replay.id)));
        let mut shapes: BTreeMap<String, String> = BTreeMap::new();
        for page in pages.chain([format!("/replays/{}/review", seeded[1].id)]) {
            browser.goto(&stage.at(&page)).await;
            browser.picture(&format!("states{}-{theme}-forced-{forced}", page.replace('/', "-"))).await;
            let look = format!("{page}, {theme}, forced colours {forced}");
            let found = statuses(&browser).await;
            assert!(!found.is_empty(), "{look}");
            for status in found {
                assert!(status.size >= 2.0 && status.shape_contrast >= 3.0 && status.word_contrast >= 4.5, "{look}: {status:?}");
                assert!(forced == "none" || status.border >= 1.0, "{look}: no border stands for its fill: {status:?}");
                shapes.insert(status.word, status.shape);
                looks += 1;
            }
            // The parts of a forecast have their counts and words in a list, and the bar has an edge where colours are forced.
            let forecast = browser.ask("const bar = document.querySelector('svg.forecast'); return bar && [bar.getAttribute('aria-label'), getComputedStyle(bar).borderTopWidth, document.querySelector('.legend').textContent]").await;
            if forecast != Value::Null {
                assert!(forecast[0].as_str().is_some_and(|label| label.contains("15 ")) && forecast[1] == "1px", "{look}: {forecast}");
                assert!(forecast[2].as_str().is_some_and(|legend| legend.contains("15") && legend.contains("sent")), "{look}: {forecast}");
            }
        }
        // What is well, what waits, what needs somebody and what is over have a shape each.
        let of = |word: &str| shapes.get(word).unwrap_or_else(|| panic!("{word} is not among {shapes:?}"));
        let kinds: BTreeSet<&String> = ["Verified", "Sending", "Paused", "Halted", "Rejected"].map(of).into();
        assert_eq!(kinds.len(), 5, "{shapes:?}");
    }
    super::report(&format!("{looks} statuses of replays, in both themes and with forced colours: shape at least 3:1, word at least 4.5:1"));
}

/// Whatever is animated, or would be when it changes.
const MOVES: &str = "
    const seconds = list => Math.max(...list.split(',').map(one => one.trim().endsWith('ms') ? parseFloat(one) / 1000 : parseFloat(one)));
    const found = [];
    for (const element of document.querySelectorAll('*')) {
        for (const part of [null, '::before', '::after', '::backdrop', '::marker']) {
            const style = getComputedStyle(element, part);
            if (style.transitionProperty !== 'none' && seconds(style.transitionDuration) + seconds(style.transitionDelay) > 0) found.push([element, 'transition']);
            if (style.animationName !== 'none' && seconds(style.animationDuration) > 0) found.push([element, 'animation']);
        }
        if (getComputedStyle(element).scrollBehavior === 'smooth') found.push([element, 'smooth scrolling']);
        // The browser's own animation, which no question about animations tells of.
        if (element.matches('progress:indeterminate') && getComputedStyle(element).appearance !== 'none') found.push([element, 'a bar to and fro']);
    }
    if (document.getAnimations().length) found.push([document.body, `${document.getAnimations().length} animations`]);
    return found.map(([element, what]) => `${what}: ${element.outerHTML.slice(0, 80)}`);";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Chromium: run tests/run"]
async fn nothing_moves_for_who_asked_for_that() {
    let stage = Stage::furnished().await;
    let browser = Browser::open().await;
    stage.admit(&browser, "ada").await;
    browser.prefers(&[("prefers-reduced-motion", "reduce")]).await;
    let seeded = replays(&stage).await;
    let freezing = Seeded::frozen(&stage.house, "eight.DLQ", 20, "otto", |_| ()).await;
    stage.spoil("UPDATE batches SET step = 'freezing' WHERE id = (SELECT MAX(id) FROM batches)").await;
    let mut paths = vec![
        "/".to_owned(),
        format!("/dlqs/main/{WALLET}"),
        "/messages".into(),
        "/messages/1".into(),
        "/groups/1".into(),
        "/settings".into(),
    ];
    paths.extend(["/replays".into(), "/reviews".into(), format!("/replays/new?cluster=main&topic={WALLET}")]);
    paths.extend(seeded.iter().chain([&freezing]).map(|replay| format!("/replays/{}", replay.id)));
    paths.push(format!("/replays/{}/review", seeded[1].id));
    for path in paths {
        browser.goto(&stage.at(&path)).await;
        assert_eq!(browser.ask("return matchMedia('(prefers-reduced-motion: reduce)').matches").await, Value::Bool(true));
        assert_eq!(browser.ask(MOVES).await, json!([]), "{path}");
    }
    // The question finds what moves: without that, its answer would mean nothing.
    browser.goto(&stage.at(&format!("/replays/{}", freezing.id))).await;
    assert_eq!(browser.number("return document.querySelectorAll('progress:indeterminate').length").await as i64, 1);
    browser.prefers(&[]).await;
    assert_ne!(browser.ask(MOVES).await, json!([]), "a bar whose end is not known");
    browser.prefers(&[("prefers-reduced-motion", "reduce")]).await;
    browser.ask("document.querySelector('main').animate([{ opacity: 0 }, { opacity: 1 }], 60000)").await;
    assert_ne!(browser.ask(MOVES).await, json!([]));
}
