//! Discord, a webhook: the first line as content, for the push notification, and one embed (discord.com/developers/docs/resources/message).
//!
//! `allowed_mentions` with nothing in it: whatever a text says, nobody is pinged. Markdown is escaped.

use serde_json::{Value, json};

use super::text::{cut, cut_as, plain, unlinked};
use super::{Budget, Message, Notice, fitting};

const CONTENT: usize = 2_000;
const TITLE: usize = 256;
const DESCRIPTION: usize = 4_096;
const FIELDS: usize = 25;
const FIELD_VALUE: usize = 1_024;
/// Of all texts of the embed together.
const TOTAL: usize = 6_000;

pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let message = notice.message();
    let topic = notice.dlq.as_ref().map(|dlq| plain(&dlq.topic)).filter(|topic| !topic.is_empty());
    let title = topic.unwrap_or_else(|| "Lazaret".to_owned());
    let lay_out = |budget: Budget| {
        let field = |(label, value): &(&str, String)| {
            let inline = value.chars().count() <= 40;
            json!({ "name": label, "value": escaped(value, budget.text.min(FIELD_VALUE)), "inline": inline })
        };
        // A field without a value is refused.
        let fields: Vec<Value> = message.facts.iter().filter(|(_, value)| !value.is_empty()).take(FIELDS).map(field).collect();
        let mut embed = json!({
            "title": escaped(&title, budget.text.min(TITLE)),
            "description": description(&message, budget),
            "color": message.tone.colour(),
            "fields": fields,
            "footer": { "text": cut(&message.context, budget.text) },
        });
        if let (Some((_, url)), Some(embed)) = (message.shown_links(budget).first(), embed.as_object_mut()) {
            embed.insert("url".to_owned(), json!(url));
        }
        if let (Some(at), Some(embed)) = (super::rfc3339(notice.occurred_at_ms), embed.as_object_mut()) {
            embed.insert("timestamp".to_owned(), json!(at));
        }
        json!({ "content": escaped(&message.first_line, CONTENT), "embeds": [embed], "allowed_mentions": { "parse": [] } })
    };
    fitting(lay_out, |value, _| embed_units(&value["embeds"][0]) <= TOTAL && units(&value["embeds"][0]["description"]) <= DESCRIPTION)
}

/// Embeds have no buttons: links stand in the description. Brackets in their addresses are written as escapes.
fn description(message: &Message, budget: Budget) -> String {
    let mut parts: Vec<String> = message.detail.iter().map(|detail| escaped(detail, budget.text)).collect();
    parts.extend(message.shown_lines(budget).iter().map(|line| escaped(line, budget.text)));
    let links = message.shown_links(budget).iter();
    let links: Vec<String> = links.map(|(label, url)| format!("[{label}]({})", url.replace('(', "%28").replace(')', "%29"))).collect();
    if !links.is_empty() {
        parts.push(links.join(" · "));
    }
    parts.join("\n")
}

fn escaped(text: &str, limit: usize) -> String {
    cut_as(&unlinked(text), limit, |c, out| {
        if matches!(c, '\\' | '*' | '_' | '~' | '`' | '|' | '>' | '<' | '#') {
            out.push('\\');
        }
        out.push(c);
    })
}

fn units(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.encode_utf16().count())
}

/// What Discord adds up: title, description, names and values of fields, footer.
fn embed_units(embed: &Value) -> usize {
    let fields =
        embed["fields"].as_array().map_or(0, |fields| fields.iter().map(|field| units(&field["name"]) + units(&field["value"])).sum());
    units(&embed["title"]) + units(&embed["description"]) + units(&embed["footer"]["text"]) + fields
}
