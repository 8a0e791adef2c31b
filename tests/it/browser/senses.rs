//! Statuses without colour, and pages for people whom movement makes ill.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::driver::Browser;
use super::stage::{Stage, WALLET};

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
    for path in
        ["/".to_owned(), format!("/dlqs/main/{WALLET}"), "/messages".into(), "/messages/1".into(), "/groups/1".into(), "/settings".into()]
    {
        browser.goto(&stage.at(&path)).await;
        assert_eq!(browser.ask("return matchMedia('(prefers-reduced-motion: reduce)').matches").await, Value::Bool(true));
        assert_eq!(browser.ask(MOVES).await, json!([]), "{path}");
    }
    // The question finds what moves: without that, its answer would mean nothing.
    browser.ask("document.querySelector('main').animate([{ opacity: 0 }, { opacity: 1 }], 60000)").await;
    assert_ne!(browser.ask(MOVES).await, json!([]));
}
