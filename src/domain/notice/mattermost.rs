//! Mattermost, an incoming webhook: one message attachment (developers.mattermost.com/integrate/reference/message-attachments).
//!
//! Mattermost reads Slack's `<!channel>` and `@channel` in attachments as well: a word joiner behind `<` and `@` takes their power and is not seen.

use serde_json::{Value, json};

use super::text::{cut, unlinked};
use super::{Budget, Notice, fitting};

/// Characters of the whole post.
const TOTAL: usize = 16_383;
const TITLE: usize = 300;
/// What stands behind a character that would begin a mention or a link.
const JOINER: char = '\u{2060}';

pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let message = notice.message();
    let lay_out = |budget: Budget| {
        let mut parts: Vec<String> = message.detail.iter().map(|detail| harmless(&cut(detail, budget.text))).collect();
        parts.extend(message.shown_lines(budget).iter().map(|line| format!("- {}", harmless(line))));
        let links = message.shown_links(budget);
        let written: Vec<String> =
            links.iter().map(|(label, url)| format!("[{label}]({})", url.replace('(', "%28").replace(')', "%29"))).collect();
        if !written.is_empty() {
            parts.push(written.join(" · "));
        }
        let field = |(label, value): &(&str, String)| json!({ "title": label, "value": harmless(&cut(value, budget.text)), "short": value.chars().count() <= 40 });
        let fields: Vec<Value> = message.facts.iter().map(field).collect();
        let first_line = cut(&message.first_line, TITLE);
        let mut attachment = json!({
            "fallback": harmless(&first_line),
            "color": format!("#{:06x}", message.tone.colour()),
            "title": harmless(&first_line),
            "text": parts.join("\n"),
            "fields": fields,
            "footer": cut(&message.context, budget.text),
        });
        if let (Some((_, url)), Some(attachment)) = (links.first(), attachment.as_object_mut()) {
            attachment.insert("title_link".to_owned(), json!(url));
        }
        json!({ "attachments": [attachment] })
    };
    fitting(lay_out, |value, _| value.to_string().encode_utf16().count() <= TOTAL)
}

fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in unlinked(text).chars() {
        out.push(c);
        if matches!(c, '<' | '@') {
            out.push(JOINER);
        }
    }
    out
}
