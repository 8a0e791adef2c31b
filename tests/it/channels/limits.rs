//! What is rendered is within each service's limits and harmless, whatever is in it.

use lazaret::domain::notice::{render, with_routing_key};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// What would mention, link, mark up, hide or break out somewhere.
const HOSTILE: [&str; 14] = [
    "<!channel> ",
    "@channel @all @here @ana ",
    "[click](http://evil.example/) ",
    "<http://evil.example|click> ",
    "a<b & c",
    "\"\\\u{0}\u{1}\n\t",
    "\u{202e}\u{200b}\u{2066}",
    "💥",
    "&amp;",
    "```*_~`||",
    "]][[(())",
    "é",
    "{\"routing_key\":1}",
    "<@123> <#4> <t:0> ",
];

/// Boxed, here and below: what a strategy of strategies takes on the stack is more than a test's thread has.
fn texts() -> BoxedStrategy<String> {
    let piece = prop_oneof![3 => (0..HOSTILE.len()).prop_map(|at| HOSTILE[at].to_owned()), 1 => any::<String>(), 1 => "[a-z.]{1,30}"];
    (piece, prop_oneof![4 => 1_usize..4, 1 => 100_usize..3_000]).prop_map(|(piece, times)| piece.repeat(times)).boxed()
}

fn links() -> BoxedStrategy<Option<String>> {
    prop_oneof![
        1 => Just(None),
        3 => (0_usize..1_500).prop_map(|length| Some(format!("https://lazaret.example/{}", "x)(".repeat(length / 3)))),
        1 => texts().prop_map(Some),
        1 => Just(Some("javascript:alert(1)".to_owned())),
    ]
    .boxed()
}

fn severities() -> impl Strategy<Value = Severity> {
    prop_oneof![Just(Severity::Info), Just(Severity::Warning), Just(Severity::Critical)]
}

prop_compose! {
    fn alerts()(
        rule in texts(), measure in texts(), top_failure in proptest::option::of(texts()),
        depth in any::<Option<i64>>(), depth_change_1h in any::<Option<i64>>(), oldest_age_s in any::<Option<i64>>(),
        arrivals_per_min in any::<Option<f64>>(), usual_per_min in any::<Option<(f64, f64)>>(), since_ms in any::<Option<i64>>(),
    ) -> AlertFacts {
        AlertFacts { rule, measure, depth, depth_change_1h, oldest_age_s, arrivals_per_min, usual_per_min, top_failure, since_ms }
    }
}

prop_compose! {
    fn replays()(batch_id in any::<i64>(), messages in any::<i64>(), by in texts(), reason in texts()) -> ReplayFacts {
        ReplayFacts { batch_id, messages, by, reason }
    }
}

prop_compose! {
    fn lines()(severity in severities(), cluster in texts(), topic in texts(), measure in texts()) -> DigestLine {
        DigestLine { severity, dlq: DlqName { cluster, topic }, measure }
    }
}

fn events() -> BoxedStrategy<NoticeEvent> {
    prop_oneof![
        3 => (severities(), alerts().boxed()).prop_map(|(severity, alert)| NoticeEvent::Firing { severity, alert }),
        1 => (severities(), severities(), alerts().boxed()).prop_map(|(from, severity, alert)| NoticeEvent::SeverityRaised { from, severity, alert }),
        1 => (severities(), alerts().boxed()).prop_map(|(severity, alert)| NoticeEvent::Repeat { severity, alert }),
        1 => (severities(), alerts().boxed(), texts()).prop_map(|(severity, alert, by)| NoticeEvent::Acknowledged { severity, alert, by }),
        1 => (severities(), texts(), any::<Option<i64>>(), any::<Option<i64>>(), any::<Option<i64>>()).prop_map(
            |(severity, rule, duration_s, peak, replayed)| NoticeEvent::Resolved { severity, end: ResolveFacts { rule, duration_s, peak, replayed } }
        ),
        2 => (severities(), 0_usize..500, proptest::collection::vec(lines().boxed(), 0..60)).prop_map(
            |(severity, more, alerts)| NoticeEvent::Digest { severity, total: alerts.len() + more, alerts }
        ),
        1 => replays().boxed().prop_map(|replay| NoticeEvent::ApprovalWanted { replay }),
        1 => replays().boxed().prop_map(|replay| NoticeEvent::EmergencyReplay { replay }),
        1 => (texts(), texts()).prop_map(|(by, instance)| NoticeEvent::Test { by, instance }),
    ]
    .boxed()
}

prop_compose! {
    fn notices()(
        event in events(), key in texts(), occurred_at_ms in prop_oneof![3 => Just(NOW), 1 => any::<i64>()],
        dlq in proptest::option::of((texts(), texts())), owner in proptest::option::of(texts()),
        (dlq_link, group, runbook, review, alert) in (links(), links(), links(), links(), links()),
    ) -> Notice {
        Notice {
            event_id: event_id(NOW, [3; 10]), dedup_key: format!("k{key}"), occurred_at_ms,
            dlq: dlq.map(|(cluster, topic)| DlqName { cluster, topic }), owner,
            links: Links { dlq: dlq_link, group, runbook, review, alert }, event,
        }
    }
}

/// As it would be sent.
fn sent(kind: ChannelKind, notice: &Notice) -> Vec<u8> {
    let body = render(kind, notice);
    if kind == ChannelKind::PagerDuty { with_routing_key(&body, ROUTING_KEY).expect("an event") } else { body }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_service_would_take_it(notice in notices().boxed()) {
        for kind in ChannelKind::ALL {
            let body = sent(kind, &notice);
            let value: Value = serde_json::from_slice(&body).map_err(|error| TestCaseError::fail(format!("{kind:?}: {error}")))?;
            let fault = contracts::fault(kind, &value, body.len());
            prop_assert!(fault.is_none(), "{kind:?}: {}", fault.unwrap_or_default());
        }
        prop_assert!(!notice.first_line().contains(char::is_control));
        let stored = serde_json::to_string(&notice);
        prop_assert!(stored.is_ok());
    }
}

#[test]
fn what_slack_reads_as_markup_is_escaped() {
    let mut hostile = alert();
    hostile.measure = "<!channel> a<b & c".into();
    let value: Value = serde_json::from_slice(&render(
        ChannelKind::Slack,
        &notice(1, "a.DLQ", NoticeEvent::Firing { severity: Severity::Warning, alert: hostile }),
    ))
    .unwrap();
    assert_eq!(value["text"], "[WARNING] a.DLQ · &lt;!channel&gt; a&lt;b &amp; c");
    assert_eq!(value["blocks"][0]["text"]["text"], "[WARNING] a.DLQ · &lt;!channel&gt; a&lt;b &amp; c");
}

#[test]
fn a_long_digest_says_how_many_it_leaves_out() {
    let line = |n: usize| DigestLine {
        severity: Severity::Warning,
        dlq: DlqName { cluster: "main".into(), topic: format!("orders.{n}.DLQ") },
        measure: "depth 1,000".into(),
    };
    let event = NoticeEvent::Digest { severity: Severity::Warning, total: 300, alerts: (0..300).map(line).collect() };
    let digest = notice(1, "a.DLQ", event);
    for kind in ChannelKind::ALL.into_iter().filter(|kind| *kind != ChannelKind::Webhook) {
        let text = String::from_utf8(render(kind, &digest)).unwrap();
        let shown = (0..300).filter(|n| text.contains(&format!("orders.{n}.DLQ"))).count();
        // The worst stands in the first line, too.
        assert!(
            text.contains(&format!("and {} more", 300 - shown)) || text.contains(&format!("and {} more", 301 - shown)),
            "{kind:?}: {shown} {text}"
        );
        assert!(shown >= 10, "{kind:?}: {shown}");
    }
}

#[test]
fn pagerduty_knows_an_alert_by_its_key_from_trigger_to_resolve() {
    let ack = NoticeEvent::Acknowledged { severity: Severity::Critical, alert: alert(), by: "ana".into() };
    let read = |event| serde_json::from_slice::<Value>(&sent(ChannelKind::PagerDuty, &notice(1, "a.DLQ", event))).unwrap();
    let (trigger, ack, resolve) = (read(firing()), read(ack), read(resolved()));
    let actions = [&trigger, &ack, &resolve].map(|event| event["event_action"].as_str().unwrap().to_owned());
    assert_eq!(actions, ["trigger", "acknowledge", "resolve"]);
    assert!(trigger["dedup_key"] == ack["dedup_key"] && ack["dedup_key"] == resolve["dedup_key"]);
    assert_eq!(trigger["dedup_key"], "arrivals/main/a.DLQ");
}

#[test]
fn unknown_is_null_in_a_webhook() {
    let mut unknown = alert();
    (unknown.depth, unknown.arrivals_per_min, unknown.usual_per_min) = (None, Some(f64::INFINITY), None);
    let event = NoticeEvent::Firing { severity: Severity::Warning, alert: unknown };
    let value: Value = serde_json::from_slice(&render(ChannelKind::Webhook, &notice(1, "a.DLQ", event))).unwrap();
    assert!(
        value["metrics"]["depth"].is_null() && value["metrics"]["arrivals_per_min"].is_null() && value["baseline"].is_null(),
        "{value}"
    );
    assert_eq!(value["metrics"]["oldest_age_s"], 11_520);
}

/// What people see, to be read by people.
#[test]
fn the_messages_as_they_are_sent() {
    for kind in ChannelKind::ALL {
        let mut shown = String::new();
        for (name, notice) in one_of_each() {
            let value: Value = serde_json::from_slice(&sent(kind, &notice)).unwrap();
            shown.push_str(&format!("== {name}\n{}\n", serde_json::to_string_pretty(&value).unwrap()));
        }
        insta::assert_snapshot!(kind.as_str(), shown);
    }
}
