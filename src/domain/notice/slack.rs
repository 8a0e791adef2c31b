//! Slack, an incoming webhook: a fallback text and Block Kit blocks (docs.slack.dev/reference/block-kit).
//!
//! Texts escape `&`, `<` and `>` and nothing else (docs.slack.dev/messaging/formatting-message-text), so no mention and no link can be made with them; `verbatim`
//! keeps Slack from making any by itself.

use serde_json::{Value, json};

use super::text::cut_as;
use super::{Budget, Notice, fitting};

/// Characters of a header block.
const HEADER: usize = 150;
/// Of a section's text.
const SECTION: usize = 3_000;
/// Of one of its fields, and how many there may be.
const FIELD: usize = 2_000;
const FIELDS: usize = 10;
/// Of a button's address.
const BUTTON_URL: usize = 3_000;
/// Of the fallback text; Slack would take more, a push notification not.
const FALLBACK: usize = 500;
/// Of the whole.
const TOTAL: usize = 10_000;

pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let message = notice.message();
    let lay_out = |budget: Budget| {
        let mut blocks = vec![json!({ "type": "header", "text": plain_text(&message.first_line, HEADER) })];
        if let Some(detail) = &message.detail {
            blocks.push(json!({ "type": "section", "text": mrkdwn(&escaped(detail, budget.text.min(SECTION))) }));
        }
        let lines: Vec<String> = message.shown_lines(budget).iter().map(|line| escaped(line, budget.text)).collect();
        if !lines.is_empty() {
            blocks.push(json!({ "type": "section", "text": mrkdwn(&lines.join("\n")) }));
        }
        let field = |(label, value): &(&str, String)| mrkdwn(&format!("*{label}*\n{}", escaped(value, budget.text.min(FIELD - 50))));
        let fields: Vec<Value> = message.facts.iter().take(FIELDS).map(field).collect();
        if !fields.is_empty() {
            blocks.push(json!({ "type": "section", "fields": fields }));
        }
        blocks.push(json!({ "type": "context", "elements": [mrkdwn(&escaped(&message.context, budget.text))] }));
        let usable = message.shown_links(budget).iter().filter(|(_, url)| url.len() <= BUTTON_URL);
        let buttons: Vec<Value> =
            usable.map(|(label, url)| json!({ "type": "button", "text": plain_text(label, 75), "url": url })).collect();
        if !buttons.is_empty() {
            blocks.push(json!({ "type": "actions", "elements": buttons }));
        }
        json!({ "text": escaped(&message.first_line, FALLBACK), "unfurl_links": false, "unfurl_media": false, "blocks": blocks })
    };
    let sections_fit = |value: &Value| {
        let texts = value["blocks"].as_array().into_iter().flatten().filter_map(|block| block["text"]["text"].as_str());
        texts.map(|text| text.encode_utf16().count()).all(|units| units <= SECTION)
    };
    fitting(lay_out, |value, _| value.to_string().encode_utf16().count() < TOTAL && sections_fit(value))
}

fn escaped(text: &str, limit: usize) -> String {
    cut_as(text, limit, |c, out| match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        c => out.push(c),
    })
}

fn plain_text(text: &str, limit: usize) -> Value {
    json!({ "type": "plain_text", "text": escaped(text, limit), "emoji": false })
}

fn mrkdwn(text: &str) -> Value {
    json!({ "type": "mrkdwn", "text": text, "verbatim": true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_characters_are_escaped_and_no_others() {
        assert_eq!(escaped("<!channel> a<b & c", 3_000), "&lt;!channel&gt; a&lt;b &amp; c");
        assert_eq!(escaped("\"a\" 'b' *c* _d_ `e`", 3_000), "\"a\" 'b' *c* _d_ `e`");
        assert_eq!(escaped("aaaa&", 8), "aaaa…");
    }
}
