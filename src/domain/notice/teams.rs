//! Teams, a workflow that posts what it is sent: a message with one Adaptive Card (learn.microsoft.com/power-automate/teams/send-a-message-in-teams,
//! adaptivecards.io/explorer).
//!
//! Cards read a little Markdown in texts; masked links are made harmless, mentions need entities that this card does not have.

use serde_json::{Value, json};

use super::text::{cut, unlinked};
use super::{Budget, Notice, Tone, fitting};

/// Bytes of the whole. Teams refuses a message of 28 KB, and counts in a way of its own.
const TOTAL: usize = 20_000;
/// Actions that a card shows at once.
const ACTIONS: usize = 6;

pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let message = notice.message();
    let lay_out = |budget: Budget| {
        let colour = match message.tone {
            Tone::Critical => "Attention",
            Tone::Warning => "Warning",
            Tone::Good => "Good",
            Tone::Info => "Accent",
        };
        let first_line = unlinked(&cut(&message.first_line, budget.text.max(150)));
        let mut body = vec![json!({
            "type": "TextBlock", "text": first_line, "weight": "Bolder", "size": "Medium", "color": colour, "wrap": true, "style": "heading"
        })];
        if let Some(detail) = &message.detail {
            body.push(text_block(&cut(detail, budget.text)));
        }
        body.extend(message.shown_lines(budget).iter().map(|line| text_block(line)));
        let facts: Vec<Value> =
            message.facts.iter().map(|(label, value)| json!({ "title": label, "value": unlinked(&cut(value, budget.text)) })).collect();
        if !facts.is_empty() {
            body.push(json!({ "type": "FactSet", "facts": facts }));
        }
        body.push(json!({ "type": "TextBlock", "text": message.context, "isSubtle": true, "size": "Small", "wrap": true }));
        let links = message.shown_links(budget).iter().take(ACTIONS);
        let actions: Vec<Value> = links.map(|(label, url)| json!({ "type": "Action.OpenUrl", "title": label, "url": url })).collect();
        json!({
            "type": "message",
            "summary": first_line,
            "attachments": [{
                "contentType": "application/vnd.microsoft.card.adaptive",
                "contentUrl": null,
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "fallbackText": first_line,
                    "msteams": { "width": "Full" },
                    "body": body,
                    "actions": actions,
                }
            }]
        })
    };
    fitting(lay_out, |_, bytes| bytes < TOTAL)
}

fn text_block(text: &str) -> Value {
    json!({ "type": "TextBlock", "text": unlinked(text), "wrap": true })
}
