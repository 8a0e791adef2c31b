//! What each service takes and what it refuses, by its published documentation, counted in its own way; written without a look at the renderers.

use axum::http::HeaderMap;
use lazaret::domain::delivery::ChannelKind;
use serde_json::{Value, json};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

/// What the webhook's receiver shares with us.
pub const SIGNING_SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

/// An answer: status and body.
pub type Said = (u16, String);

/// What the service says to this request.
pub fn answer(kind: ChannelKind, headers: &HeaderMap, body: &[u8]) -> Said {
    if headers.get("content-type").is_none_or(|value| value != "application/json") {
        return (415, "JSON wanted".to_owned());
    }
    if kind == ChannelKind::Webhook {
        return webhook(headers, body);
    }
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return refused(kind, "invalid_payload") };
    match fault(kind, &value, body.len()) {
        Some(why) => refused(kind, &why),
        None => accepted(kind, &value),
    }
}

fn accepted(kind: ChannelKind, value: &Value) -> Said {
    match kind {
        ChannelKind::Slack | ChannelKind::Mattermost => (200, "ok".to_owned()),
        ChannelKind::Teams => (202, String::new()),
        ChannelKind::Discord => (204, String::new()),
        ChannelKind::PagerDuty => {
            (202, json!({ "status": "success", "message": "Event processed", "dedup_key": value["dedup_key"] }).to_string())
        }
        ChannelKind::Webhook => (204, String::new()),
    }
}

fn refused(kind: ChannelKind, why: &str) -> Said {
    let body = match kind {
        ChannelKind::Discord => json!({ "code": 50_035, "message": "Invalid Form Body", "errors": why }).to_string(),
        ChannelKind::PagerDuty => json!({ "status": "invalid event", "message": "Event object is invalid", "errors": [why] }).to_string(),
        _ => why.to_owned(),
    };
    (400, body)
}

/// What is wrong with a body; None: nothing.
pub fn fault(kind: ChannelKind, value: &Value, bytes: usize) -> Option<String> {
    let checked = match kind {
        ChannelKind::Slack => slack(value),
        ChannelKind::Teams => teams(value, bytes),
        ChannelKind::Discord => discord(value),
        ChannelKind::Mattermost => mattermost(value),
        ChannelKind::PagerDuty => pagerduty(value, bytes),
        ChannelKind::Webhook => own_schema(value),
    };
    checked.err()
}

type Checked = Result<(), String>;

fn ensure(holds: bool, otherwise: &str) -> Checked {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn text<'a>(value: &'a Value, what: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{what} is no text"))
}

/// As long as it is by the stricter way of counting.
fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

fn within(value: &Value, what: &str, least: usize, most: usize) -> Checked {
    let length = length(text(value, what)?);
    ensure((least..=most).contains(&length), &format!("{what} has {length} characters, not {least} to {most}"))
}

fn list<'a>(value: &'a Value, what: &str, least: usize, most: usize) -> Result<&'a Vec<Value>, String> {
    let list = value.as_array().ok_or_else(|| format!("{what} is no list"))?;
    ensure((least..=most).contains(&list.len()), &format!("{what} has {} entries, not {least} to {most}", list.len()))?;
    Ok(list)
}

fn web_address(value: &Value, what: &str, most: usize) -> Checked {
    within(value, what, 1, most)?;
    let address = url::Url::parse(text(value, what)?).map_err(|_| format!("{what} is no URL"))?;
    ensure(matches!(address.scheme(), "http" | "https"), &format!("{what} is no web address"))
}

/// Every `&`, `<` and `>` is an escape: otherwise a text could mention or link.
fn slack_escaped(value: &Value) -> Checked {
    let text = text(value, "a text")?;
    let rest = text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "");
    ensure(!rest.contains(['&', '<', '>']), &format!("not escaped: {text}"))
}

fn slack(value: &Value) -> Checked {
    ensure(length(&value.to_string()) < 10_000, "msg_too_long")?;
    within(&value["text"], "text", 1, 4_000)?;
    slack_escaped(&value["text"])?;
    let object = |value: &Value, most: usize| -> Checked {
        ensure(matches!(value["type"].as_str(), Some("plain_text" | "mrkdwn")), "invalid_blocks: type of a text")?;
        within(&value["text"], "a text object", 1, most)?;
        slack_escaped(&value["text"])
    };
    for block in list(&value["blocks"], "blocks", 1, 50)? {
        match block["type"].as_str() {
            Some("header") => {
                ensure(block["text"]["type"] == "plain_text", "a header is plain text")?;
                object(&block["text"], 150)?;
            }
            Some("section") => {
                ensure(block.get("text").is_some() || block.get("fields").is_some(), "a section says nothing")?;
                if block.get("text").is_some() {
                    object(&block["text"], 3_000)?;
                }
                if block.get("fields").is_some() {
                    list(&block["fields"], "fields", 1, 10)?.iter().try_for_each(|field| object(field, 2_000))?;
                }
            }
            Some("context") => list(&block["elements"], "elements", 1, 10)?.iter().try_for_each(|element| object(element, 2_000))?,
            Some("actions") => {
                for button in list(&block["elements"], "elements", 1, 25)? {
                    ensure(button["type"] == "button" && button["text"]["type"] == "plain_text", "an element is no button")?;
                    object(&button["text"], 75)?;
                    web_address(&button["url"], "url of a button", 3_000)?;
                }
            }
            other => return Err(format!("invalid_blocks: {other:?}")),
        }
    }
    Ok(())
}

fn no_masked_link(value: &Value) -> Checked {
    match value {
        Value::String(text) => ensure(!text.contains("](http://evil"), &format!("a masked link: {text}")),
        Value::Array(values) => values.iter().try_for_each(no_masked_link),
        Value::Object(fields) => fields.values().try_for_each(no_masked_link),
        _ => Ok(()),
    }
}

fn teams(value: &Value, bytes: usize) -> Checked {
    ensure(bytes < 20 * 1024, &format!("{bytes} bytes"))?;
    ensure(value["type"] == "message", "no message")?;
    let attachments = list(&value["attachments"], "attachments", 1, 1)?;
    ensure(attachments[0]["contentType"] == "application/vnd.microsoft.card.adaptive", "no card")?;
    let card = &attachments[0]["content"];
    ensure(card["type"] == "AdaptiveCard" && card["version"].is_string(), "no Adaptive Card")?;
    for element in list(&card["body"], "body", 1, 200)? {
        match element["type"].as_str() {
            Some("TextBlock") => within(&element["text"], "text", 1, 20_000)?,
            Some("FactSet") => {
                for fact in list(&element["facts"], "facts", 1, 100)? {
                    within(&fact["title"], "title", 1, 1_000)?;
                    within(&fact["value"], "value", 0, 20_000)?;
                }
            }
            other => return Err(format!("element {other:?}")),
        }
    }
    for action in list(&card["actions"], "actions", 0, 6)? {
        ensure(action["type"] == "Action.OpenUrl", "an action that opens no URL")?;
        web_address(&action["url"], "url", 2_048)?;
    }
    no_masked_link(value)
}

fn discord(value: &Value) -> Checked {
    ensure(value["allowed_mentions"] == json!({ "parse": [] }), "could mention somebody")?;
    within(&value["content"], "content", 1, 2_000)?;
    let embed = &list(&value["embeds"], "embeds", 1, 1)?[0];
    within(&embed["title"], "title", 1, 256)?;
    within(&embed["description"], "description", 0, 4_096)?;
    within(&embed["footer"]["text"], "footer", 0, 2_048)?;
    let mut total = ["title", "description"].iter().map(|part| length(embed[part].as_str().unwrap_or_default())).sum::<usize>();
    total += length(embed["footer"]["text"].as_str().unwrap_or_default());
    for field in list(&embed["fields"], "fields", 0, 25)? {
        within(&field["name"], "name", 1, 256)?;
        within(&field["value"], "value", 1, 1_024)?;
        total += length(field["name"].as_str().unwrap_or_default()) + length(field["value"].as_str().unwrap_or_default());
    }
    ensure(total <= 6_000, &format!("{total} characters in an embed"))?;
    if embed.get("url").is_some() {
        web_address(&embed["url"], "url", 2_048)?;
    }
    if let Some(at) = embed.get("timestamp") {
        ensure(chrono::DateTime::parse_from_rfc3339(text(at, "timestamp")?).is_ok(), "timestamp")?;
    }
    ensure(embed["color"].as_u64().is_some_and(|colour| colour <= 0xff_ff_ff), "color")?;
    no_masked_link(value)
}

fn mattermost(value: &Value) -> Checked {
    ensure(value.to_string().chars().count() <= 16_383, "too long")?;
    let attachment = &list(&value["attachments"], "attachments", 1, 1)?[0];
    within(&attachment["fallback"], "fallback", 1, 16_383)?;
    within(&attachment["title"], "title", 1, 16_383)?;
    let colour = text(&attachment["color"], "color")?;
    ensure(colour.len() == 7 && colour.starts_with('#'), "color")?;
    list(&attachment["fields"], "fields", 0, 100)?;
    if attachment.get("title_link").is_some() {
        web_address(&attachment["title_link"], "title_link", 16_383)?;
    }
    // What mentions people or, in Slack's form, everybody.
    let whole = value.to_string();
    let mentions = ["@channel", "@all", "@here", "@ana", "<!channel>", "<!here>", "<http"];
    ensure(!mentions.iter().any(|mention| whole.contains(mention)), &format!("a mention: {whole}"))?;
    no_masked_link(value)
}

/// The event with its routing key.
fn pagerduty(value: &Value, bytes: usize) -> Checked {
    ensure(bytes <= 512 * 1024, "too large")?;
    let key = text(&value["routing_key"], "routing_key")?;
    ensure(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()), "'routing_key' is invalid")?;
    within(&value["dedup_key"], "dedup_key", 1, 255)?;
    let action = text(&value["event_action"], "event_action")?;
    ensure(["trigger", "acknowledge", "resolve"].contains(&action), "event_action")?;
    if action == "trigger" {
        let payload = &value["payload"];
        within(&payload["summary"], "summary", 1, 1_024)?;
        within(&payload["source"], "source", 1, 255)?;
        ensure(["critical", "error", "warning", "info"].contains(&text(&payload["severity"], "severity")?), "severity")?;
        if let Some(at) = payload.get("timestamp") {
            ensure(chrono::DateTime::parse_from_rfc3339(text(at, "timestamp")?).is_ok(), "timestamp")?;
        }
    }
    list(&value["links"], "links", 0, 100)?.iter().try_for_each(|link| web_address(&link["href"], "href", 10_000))
}

/// What our own webhook promises.
fn own_schema(value: &Value) -> Checked {
    ensure(value["schema_version"] == 1, "schema_version")?;
    for field in ["event_id", "event", "dedup_key", "severity", "summary"] {
        ensure(value[field].as_str().is_some_and(|text| !text.is_empty()), field)?;
    }
    for field in ["dlq", "owner", "rule", "metrics", "baseline", "details", "links", "occurred_at"] {
        ensure(value.get(field).is_some(), field)?;
    }
    for link in value["links"].as_object().into_iter().flatten().filter(|(_, link)| !link.is_null()) {
        web_address(link.1, link.0, 2_048)?;
    }
    Ok(())
}

/// The signature is right (its time is not looked at: the tests' clock stands still), and the body is what was promised.
fn webhook(headers: &HeaderMap, body: &[u8]) -> Said {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, at) = (header(HEADER_WEBHOOK_ID), header(HEADER_WEBHOOK_TIMESTAMP).parse::<i64>().unwrap_or(0));
    let key = Webhook::new(SIGNING_SECRET).expect("a secret");
    if key.sign(id, at, body).ok().as_deref() != Some(header(HEADER_WEBHOOK_SIGNATURE)) {
        return (401, "the signature is not right".to_owned());
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if value["event_id"] != id {
        return (400, "two ids".to_owned());
    }
    fault(ChannelKind::Webhook, &value, body.len()).map_or((204, String::new()), |why| (400, why))
}
