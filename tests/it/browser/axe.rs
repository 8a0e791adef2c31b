//! axe-core, put into the page that a browser stands on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::driver::Browser;

/// See `VENDOR.md`.
const SOURCE: &str = include_str!("vendor/axe-4.14.1.min.js");
pub const VERSION: &str = "4.14.1";

const TAGS: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/// Runs in the page: what is wrong, and which rules found something to look at.
const RUN: &str = "
    const [tags] = arguments;
    return axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] }).then(result => ({
        version: result.testEngine.version,
        judged: [...result.passes, ...result.violations, ...result.incomplete].map(rule => rule.id),
        violations: result.violations.flatMap(rule => rule.nodes.map(node =>
            `${rule.id} (${rule.impact}): ${node.target.join(' ')}: ${node.failureSummary.replace(/\\s+/g, ' ')}`)),
    }));";

/// What axe-core says of a page.
pub struct Verdict {
    /// One line for each element that breaks a rule.
    pub violations: Vec<String>,
    /// The rules that applied to something on the page.
    pub judged: BTreeSet<String>,
}

/// Judges the page as it stands. The policy of our pages does not hold for what the driver runs.
pub async fn judge(browser: &Browser) -> Verdict {
    if browser.ask("return typeof axe === 'undefined'").await == Value::Bool(true) {
        browser.ask(SOURCE).await;
    }
    let result = browser.ask_with(RUN, vec![json!(TAGS)]).await;
    assert_eq!(result["version"], VERSION);
    let texts = |name: &str| -> Vec<String> {
        result[name].as_array().expect("a list").iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    Verdict { violations: texts("violations"), judged: texts("judged").into_iter().collect() }
}
