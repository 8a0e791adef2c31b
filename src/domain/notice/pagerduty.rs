//! PagerDuty, Events API v2: trigger, acknowledge and resolve with one `dedup_key` (developer.pagerduty.com/docs/send-alert-event).

use serde_json::{Map, Value, json};

use super::text::cut;
use super::{Notice, NoticeEvent, Severity, fitting, rfc3339, short_key};

const SUMMARY: usize = 1_024;
const SOURCE: usize = 255;
/// Bytes of the whole.
const TOTAL: usize = 512 * 1024;

/// The event without its routing key, which is a secret: [`with_routing_key`] puts it in.
pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let message = notice.message();
    let action = match notice.event {
        NoticeEvent::Acknowledged { .. } => "acknowledge",
        NoticeEvent::Resolved { .. } => "resolve",
        _ => "trigger",
    };
    let severity = match notice.event.severity() {
        Severity::Critical => "critical",
        Severity::Warning => "warning",
        Severity::Info => "info",
    };
    let lay_out = |budget: super::Budget| {
        let mut details: Map<String, Value> =
            message.facts.iter().map(|(label, value)| ((*label).to_owned(), json!(cut(value, budget.text)))).collect();
        if let Some(detail) = &message.detail {
            details.insert("Detail".to_owned(), json!(cut(detail, budget.text)));
        }
        let lines = message.shown_lines(budget);
        if !lines.is_empty() {
            details.insert("Alerts".to_owned(), json!(lines));
        }
        let source =
            notice.dlq.as_ref().map_or_else(|| "Lazaret".to_owned(), |dlq| super::plain(&format!("{}/{}", dlq.cluster, dlq.topic)));
        let mut payload = json!({
            "summary": cut(&message.first_line, SUMMARY),
            "source": cut(&source, SOURCE),
            "severity": severity,
            "class": notice.event.as_str(),
            "custom_details": details,
        });
        if let (Some(at), Some(payload)) = (rfc3339(notice.occurred_at_ms), payload.as_object_mut()) {
            payload.insert("timestamp".to_owned(), json!(at));
        }
        let links: Vec<Value> = message.shown_links(budget).iter().map(|(label, url)| json!({ "href": url, "text": label })).collect();
        let mut event = json!({
            "event_action": action,
            "dedup_key": short_key(&notice.dedup_key),
            "client": "Lazaret",
            "payload": payload,
            "links": links,
        });
        if let (Some((_, url)), Some(event)) = (message.shown_links(budget).first(), event.as_object_mut()) {
            event.insert("client_url".to_owned(), json!(url));
        }
        event
    };
    fitting(lay_out, |_, bytes| bytes < TOTAL - 1_024)
}

/// The body as it is sent: the routing key is put in as its first member. None: the body is none that was rendered for PagerDuty.
pub fn with_routing_key(body: &[u8], key: &str) -> Option<Vec<u8>> {
    let rest = body.strip_prefix(b"{").filter(|rest| rest.len() > 1)?;
    let member = format!("{{\"routing_key\":{},", Value::from(key));
    Some([member.as_bytes(), rest].concat())
}
