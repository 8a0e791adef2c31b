//! Whoever takes signed JSON. Unknown is null. The receiver tells repetitions by `event_id`.

use serde_json::{Value, json};

use super::{AlertFacts, Links, Notice, NoticeEvent, rfc3339, short_key};

/// Raised when a field changes its meaning or goes; new fields may come at any time.
const SCHEMA_VERSION: u32 = 1;
/// Characters of one text.
const TEXT: usize = 1_000;
/// Alerts of a digest.
const ALERTS: usize = 100;

pub(super) fn render(notice: &Notice) -> Vec<u8> {
    let Links { dlq, group, runbook, review, alert } = &notice.links;
    let link = |url: &Option<String>| url.as_deref().and_then(|url| super::text::web_address(url, super::LINK_LIMIT));
    let facts = match &notice.event {
        NoticeEvent::Firing { alert, .. }
        | NoticeEvent::SeverityRaised { alert, .. }
        | NoticeEvent::Repeat { alert, .. }
        | NoticeEvent::Acknowledged { alert, .. } => Some(alert),
        _ => None,
    };
    json!({
        "schema_version": SCHEMA_VERSION,
        "event_id": notice.event_id,
        "event": notice.event.as_str(),
        "dedup_key": short_key(&notice.dedup_key),
        "severity": notice.event.severity().as_str(),
        "summary": shown(&notice.first_line()),
        "dlq": notice.dlq.as_ref().map(|dlq| json!({ "cluster": shown(&dlq.cluster), "topic": shown(&dlq.topic) })),
        "owner": notice.owner.as_deref().map(shown),
        "rule": rule(&notice.event).map(shown),
        "metrics": facts.map(metrics),
        "baseline": facts.and_then(|facts| facts.usual_per_min).map(|(low, high)| json!({ "low": number(low), "high": number(high) })),
        "details": details(&notice.event),
        "links": { "dlq": link(dlq), "group": link(group), "runbook": link(runbook), "review": link(review), "alert": link(alert) },
        "occurred_at": rfc3339(notice.occurred_at_ms),
    })
    .to_string()
    .into_bytes()
}

fn shown(text: &str) -> String {
    super::cut(&super::plain(text), TEXT)
}

/// JSON has neither NaN nor infinity.
fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn rule(event: &NoticeEvent) -> Option<&str> {
    match event {
        NoticeEvent::Firing { alert, .. }
        | NoticeEvent::SeverityRaised { alert, .. }
        | NoticeEvent::Repeat { alert, .. }
        | NoticeEvent::Acknowledged { alert, .. } => Some(&alert.rule),
        NoticeEvent::Resolved { end, .. } => Some(&end.rule),
        _ => None,
    }
}

fn metrics(alert: &AlertFacts) -> Value {
    json!({
        "measure": shown(&alert.measure),
        "depth": alert.depth,
        "depth_change_1h": alert.depth_change_1h,
        "oldest_age_s": alert.oldest_age_s,
        "arrivals_per_min": alert.arrivals_per_min.and_then(number),
        "top_failure": alert.top_failure.as_deref().map(shown),
        "since": alert.since_ms.and_then(rfc3339),
    })
}

/// What only events of this kind have.
fn details(event: &NoticeEvent) -> Value {
    match event {
        NoticeEvent::SeverityRaised { from, .. } => json!({ "from": from.as_str() }),
        NoticeEvent::Acknowledged { by, .. } => json!({ "by": shown(by) }),
        NoticeEvent::Resolved { end, .. } => json!({ "duration_s": end.duration_s, "peak": end.peak, "replayed": end.replayed }),
        NoticeEvent::Digest { total, alerts, .. } => {
            let alerts: Vec<Value> = alerts
                .iter()
                .take(ALERTS)
                .map(|line| {
                    json!({
                        "severity": line.severity.as_str(), "cluster": shown(&line.dlq.cluster), "topic": shown(&line.dlq.topic), "measure": shown(&line.measure)
                    })
                })
                .collect();
            json!({ "total": total, "alerts": alerts })
        }
        NoticeEvent::ApprovalWanted { replay } | NoticeEvent::EmergencyReplay { replay } => {
            json!({ "replay": replay.batch_id, "messages": replay.messages, "by": shown(&replay.by), "reason": shown(&replay.reason) })
        }
        NoticeEvent::Test { by, instance } => json!({ "by": shown(by), "instance": shown(instance) }),
        NoticeEvent::Firing { .. } | NoticeEvent::Repeat { .. } => Value::Null,
    }
}
