//! What Lazaret tells the chat. A [`Notice`] says what happened; [`render`] gives the bytes that one kind of service takes, within its limits whatever the notice holds.
//!
//! All chats show the same [`Message`]; each file beside this one lays it out for one service. No payload is in a notice. What is in it may still come from a
//! record (a failure's text) or a person (a reason), and is hostile until it is laid out: no mention, no markup and no link can be made with it.

mod discord;
mod mattermost;
mod pagerduty;
mod slack;
mod teams;
mod text;
mod webhook;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::delivery::ChannelKind;
use super::figures::{MINUTE, SECOND, age, exact, instant};
pub use pagerduty::with_routing_key;
use text::{cut, plain};

/// The body that is posted to a service of this kind. PagerDuty's goes through [`with_routing_key`] before it is sent: no key is in what is rendered and kept.
pub fn render(kind: ChannelKind, notice: &Notice) -> Vec<u8> {
    match kind {
        ChannelKind::Slack => slack::render(notice),
        ChannelKind::Teams => teams::render(notice),
        ChannelKind::Discord => discord::render(notice),
        ChannelKind::Mattermost => mattermost::render(notice),
        ChannelKind::PagerDuty => pagerduty::render(notice),
        ChannelKind::Webhook => webhook::render(notice),
    }
}

/// One thing that people are told. Unknown is None.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Notice {
    /// Of this notice, on every channel and at every attempt. A UUID v7, see [`event_id`].
    pub event_id: Uuid,
    /// What this is about, the same from its first notice to its last: see [`dedup_key`].
    pub dedup_key: String,
    /// ms since the epoch.
    pub occurred_at_ms: i64,
    pub dlq: Option<DlqName>,
    /// Whose DLQ it is.
    pub owner: Option<String>,
    pub links: Links,
    pub event: NoticeEvent,
}

/// A DLQ as people name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DlqName {
    pub cluster: String,
    pub topic: String,
}

/// Absolute http(s) addresses of pages; what is none of these is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Links {
    pub dlq: Option<String>,
    pub group: Option<String>,
    pub runbook: Option<String>,
    pub review: Option<String>,
    pub alert: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeEvent {
    /// An alert began to fire.
    Firing { severity: Severity, alert: AlertFacts },
    /// A firing alert became worse.
    SeverityRaised { from: Severity, severity: Severity, alert: AlertFacts },
    /// It still fires, told again after a while.
    Repeat { severity: Severity, alert: AlertFacts },
    /// Somebody looks after it. Of use to PagerDuty, which stops paging.
    Acknowledged { severity: Severity, alert: AlertFacts, by: String },
    /// It is over. `severity` is the worst that it had.
    Resolved { severity: Severity, end: ResolveFacts },
    /// Many alerts at once, in one message. `severity` is the worst of them, `total` counts those that `alerts` leaves out, too.
    Digest { severity: Severity, total: usize, alerts: Vec<DigestLine> },
    /// A replay waits for somebody's approval.
    ApprovalWanted { replay: ReplayFacts },
    /// A replay was begun without the approval of a second person.
    EmergencyReplay { replay: ReplayFacts },
    /// Somebody tests the channel. `instance` is the name of this Lazaret.
    Test { by: String, instance: String },
}

/// A firing alert as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlertFacts {
    pub rule: String,
    /// What is wrong, in words that need no others: "8x usual arrivals", "depth 12,431".
    pub measure: String,
    pub depth: Option<i64>,
    /// Against an hour ago.
    pub depth_change_1h: Option<i64>,
    /// Age of the oldest message not yet replayed or archived.
    pub oldest_age_s: Option<i64>,
    pub arrivals_per_min: Option<f64>,
    /// What this hour of the week usually brings, per minute, from and to.
    pub usual_per_min: Option<(f64, f64)>,
    /// The largest failure group, in words.
    pub top_failure: Option<String>,
    /// ms since the epoch.
    pub since_ms: Option<i64>,
}

/// How an alert ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolveFacts {
    pub rule: String,
    pub duration_s: Option<i64>,
    /// The greatest depth meanwhile.
    pub peak: Option<i64>,
    /// Messages replayed meanwhile.
    pub replayed: Option<i64>,
}

/// One alert of many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DigestLine {
    pub severity: Severity,
    pub dlq: DlqName,
    pub measure: String,
}

/// A batch of messages to be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayFacts {
    pub batch_id: i64,
    pub messages: i64,
    /// Who proposed it, or began it.
    pub by: String,
    pub reason: String,
}

impl NoticeEvent {
    /// The word in webhooks and in the delivery log.
    pub fn as_str(&self) -> &'static str {
        match self {
            NoticeEvent::Firing { .. } => "alert.firing",
            NoticeEvent::SeverityRaised { .. } => "alert.severity_raised",
            NoticeEvent::Repeat { .. } => "alert.repeated",
            NoticeEvent::Acknowledged { .. } => "alert.acknowledged",
            NoticeEvent::Resolved { .. } => "alert.resolved",
            NoticeEvent::Digest { .. } => "alert.digest",
            NoticeEvent::ApprovalWanted { .. } => "replay.approval_wanted",
            NoticeEvent::EmergencyReplay { .. } => "replay.emergency",
            NoticeEvent::Test { .. } => "test",
        }
    }

    /// How bad it is; what was resolved as bad as it was.
    pub fn severity(&self) -> Severity {
        match self {
            NoticeEvent::Firing { severity, .. }
            | NoticeEvent::SeverityRaised { severity, .. }
            | NoticeEvent::Repeat { severity, .. }
            | NoticeEvent::Acknowledged { severity, .. }
            | NoticeEvent::Resolved { severity, .. }
            | NoticeEvent::Digest { severity, .. } => *severity,
            NoticeEvent::EmergencyReplay { .. } => Severity::Warning,
            NoticeEvent::ApprovalWanted { .. } | NoticeEvent::Test { .. } => Severity::Info,
        }
    }
}

/// The identity of a notice: a UUID v7 (RFC 9562) of its time and 80 bits of chance.
pub fn event_id(now_ms: i64, chance: [u8; 10]) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(now_ms).unwrap_or(0), &chance).into_uuid()
}

/// The longest key, in characters: PagerDuty takes no longer one.
const KEY_LIMIT: usize = 255;

/// What notices of one alert share: rule, cluster and topic.
pub fn dedup_key(rule: &str, cluster: &str, topic: &str) -> String {
    short_key(&format!("{rule}/{cluster}/{topic}"))
}

/// The key itself where it is at most 255 characters long, else its beginning and its hash, so that no two become one.
pub fn short_key(key: &str) -> String {
    if key.encode_utf16().count() <= KEY_LIMIT && !key.contains(char::is_control) {
        return key.to_owned();
    }
    let hash: String = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}~{hash}", cut(&plain(key), KEY_LIMIT - hash.len() - 1))
}

/// What a message looks like: its colour, where a service has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Critical,
    Warning,
    Good,
    Info,
}

impl Tone {
    /// As 0xRRGGBB; those of the pages.
    fn colour(self) -> u32 {
        match self {
            Tone::Critical => 0xb3_26_1e,
            Tone::Warning => 0xff_d1_66,
            Tone::Good => 0x00_4d_39,
            Tone::Info => 0x0b_3d_78,
        }
    }
}

/// A notice in words, the same for all chats. Plain texts on one line each, of any length, in which nothing is escaped yet.
#[derive(Debug)]
struct Message {
    tone: Tone,
    /// Works alone as a push notification.
    first_line: String,
    /// A sentence that goes with it: why somebody wants something.
    detail: Option<String>,
    facts: Vec<(&'static str, String)>,
    /// The alerts of a digest, the worst first.
    lines: Vec<String>,
    /// How many alerts a digest is of.
    total: usize,
    links: Vec<(&'static str, String)>,
    /// Where it comes from and when.
    context: String,
}

/// Of a topic in the first line, which has little room; the facts have the whole name.
const TOPIC_IN_LINE: usize = 90;
/// Of what is wrong, in the first line.
const MEASURE_IN_LINE: usize = 200;
const NAME_IN_LINE: usize = 64;
/// Longer addresses are no use in a chat, and would use up its limits.
const LINK_LIMIT: usize = 1_000;
const UNKNOWN: &str = "unknown";

impl Notice {
    /// The first line of the message, which says it all: for lists.
    pub fn first_line(&self) -> String {
        let topic = self.dlq.as_ref().map_or_else(|| "all DLQs".to_owned(), |dlq| cut(&plain(&dlq.topic), TOPIC_IN_LINE));
        let alert = |severity: Severity, alert: &AlertFacts, more: &str| {
            format!("[{}] {topic} · {more}{}", severity.as_str().to_uppercase(), cut(&plain(&alert.measure), MEASURE_IN_LINE))
        };
        match &self.event {
            NoticeEvent::Firing { severity, alert: facts } => alert(*severity, facts, ""),
            NoticeEvent::SeverityRaised { from, severity, alert: facts } => {
                alert(*severity, facts, &format!("was {}, now ", from.as_str()))
            }
            NoticeEvent::Repeat { severity, alert: facts } => alert(*severity, facts, "still "),
            NoticeEvent::Acknowledged { by, .. } => format!("[ACKNOWLEDGED] {topic} · by {}", cut(&plain(by), NAME_IN_LINE)),
            NoticeEvent::Resolved { end, .. } => format!("[RESOLVED] {topic}{}", ended(end)),
            NoticeEvent::Digest { severity, total, alerts } => {
                // Of several the first, as in the list.
                let worst = alerts.iter().rev().max_by_key(|line| line.severity);
                let worst = worst.map_or_else(String::new, |line| {
                    let (topic, measure) = (cut(&plain(&line.dlq.topic), TOPIC_IN_LINE), cut(&plain(&line.measure), MEASURE_IN_LINE));
                    format!(", the worst {topic} · {measure}")
                });
                format!("[{}] {} alerts{worst}", severity.as_str().to_uppercase(), exact(i64::try_from(*total).unwrap_or(i64::MAX)))
            }
            NoticeEvent::ApprovalWanted { replay } => format!("Approval wanted: {}", proposed(replay, &topic)),
            NoticeEvent::EmergencyReplay { replay } => format!("[EMERGENCY REPLAY] {}, approved by nobody else", proposed(replay, &topic)),
            NoticeEvent::Test { instance, .. } => format!("[TEST] Lazaret ({}) reaches this channel", cut(&plain(instance), NAME_IN_LINE)),
        }
    }

    fn message(&self) -> Message {
        let (lines, total) = match &self.event {
            NoticeEvent::Digest { alerts, total, .. } => (digest_lines(alerts), *total),
            _ => (Vec::new(), 0),
        };
        Message {
            tone: self.tone(),
            first_line: self.first_line(),
            detail: self.detail(),
            facts: self.facts(),
            lines,
            total,
            links: self.usable_links(),
            context: format!("Lazaret · {}", minute(self.occurred_at_ms)),
        }
    }

    fn tone(&self) -> Tone {
        match (&self.event, self.event.severity()) {
            (NoticeEvent::Resolved { .. }, _) => Tone::Good,
            (_, Severity::Critical) => Tone::Critical,
            (_, Severity::Warning) => Tone::Warning,
            (_, Severity::Info) => Tone::Info,
        }
    }

    fn detail(&self) -> Option<String> {
        match &self.event {
            NoticeEvent::ApprovalWanted { replay } => Some(format!("Reason: {}", plain(&replay.reason))),
            NoticeEvent::EmergencyReplay { replay } => {
                Some(format!("It runs already; somebody else has to look at it afterwards. Reason: {}", plain(&replay.reason)))
            }
            NoticeEvent::Test { by, .. } => Some(format!("{} tests this channel. Nothing is wrong.", plain(by))),
            _ => None,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = match &self.event {
            NoticeEvent::Firing { alert, .. }
            | NoticeEvent::SeverityRaised { alert, .. }
            | NoticeEvent::Repeat { alert, .. }
            | NoticeEvent::Acknowledged { alert, .. } => alert_facts(alert),
            NoticeEvent::Resolved { end, .. } => vec![("Rule", plain(&end.rule))],
            NoticeEvent::ApprovalWanted { replay } | NoticeEvent::EmergencyReplay { replay } => {
                vec![("Replay", format!("#{}", replay.batch_id)), ("Messages", exact(replay.messages)), ("By", plain(&replay.by))]
            }
            NoticeEvent::Digest { .. } | NoticeEvent::Test { .. } => Vec::new(),
        };
        if let Some(owner) = &self.owner {
            facts.push(("Owner", plain(owner)));
        }
        if let Some(DlqName { cluster, topic }) = &self.dlq {
            facts.push(("DLQ", format!("{} in {}", plain(topic), plain(cluster))));
        }
        facts
    }

    fn usable_links(&self) -> Vec<(&'static str, String)> {
        let Links { dlq, group, runbook, review, alert } = &self.links;
        let all = [("Review", review), ("Open DLQ", dlq), ("Open group", group), ("Open alert", alert), ("Runbook", runbook)];
        all.into_iter().filter_map(|(label, url)| Some((label, text::web_address(url.as_deref()?, LINK_LIMIT)?))).collect()
    }
}

/// " · after 42 min · peak 12,431 · 11,980 replayed", as far as it is known.
fn ended(end: &ResolveFacts) -> String {
    let parts = [
        end.duration_s.map(|seconds| format!("after {}", length(seconds))),
        end.peak.map(|peak| format!("peak {}", exact(peak))),
        end.replayed.map(|replayed| format!("{} replayed", exact(replayed))),
    ];
    parts.into_iter().flatten().map(|part| format!(" · {part}")).collect()
}

fn proposed(replay: &ReplayFacts, topic: &str) -> String {
    let plural = if replay.messages == 1 { "" } else { "s" };
    format!("{} message{plural}, {topic}, by {}", exact(replay.messages), cut(&plain(&replay.by), NAME_IN_LINE))
}

fn digest_lines(alerts: &[DigestLine]) -> Vec<String> {
    let mut alerts: Vec<&DigestLine> = alerts.iter().collect();
    alerts.sort_by_key(|line| std::cmp::Reverse(line.severity));
    let line = |line: &&DigestLine| {
        let (topic, measure) = (cut(&plain(&line.dlq.topic), TOPIC_IN_LINE), cut(&plain(&line.measure), MEASURE_IN_LINE));
        format!("[{}] {topic} · {measure}", line.severity.as_str().to_uppercase())
    };
    alerts.iter().map(line).collect()
}

fn alert_facts(alert: &AlertFacts) -> Vec<(&'static str, String)> {
    let depth = match (alert.depth, alert.depth_change_1h) {
        (Some(depth), Some(change)) => format!("{} ({} in 1 h)", exact(depth), signed(change)),
        (Some(depth), None) => exact(depth),
        (None, _) => UNKNOWN.to_owned(),
    };
    let arrivals =
        alert.arrivals_per_min.filter(|rate| rate.is_finite()).map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{}/min", short(rate)));
    let usual = alert.usual_per_min.filter(|(low, high)| low.is_finite() && high.is_finite());
    let usual = usual.map_or_else(String::new, |(low, high)| format!(", usual {}-{}", short(low), short(high)));
    let mut facts = vec![
        ("Depth", depth),
        ("Oldest", alert.oldest_age_s.map_or_else(|| UNKNOWN.to_owned(), |seconds| age(seconds.saturating_mul(SECOND)))),
        ("Arrivals", format!("{arrivals}{usual}")),
        ("Since", alert.since_ms.map_or_else(|| UNKNOWN.to_owned(), minute)),
        ("Rule", plain(&alert.rule)),
    ];
    if let Some(failure) = &alert.top_failure {
        facts.push(("Top failure", plain(failure)));
    }
    facts
}

/// "+1,204", "-3", "0".
fn signed(number: i64) -> String {
    if number > 0 { format!("+{}", exact(number)) } else { exact(number) }
}

/// A rate, whole from ten on: "42", "3.5", "0".
fn short(rate: f64) -> String {
    if rate.abs() >= 10.0 { exact(rate.round() as i64) } else { format!("{}", (rate * 10.0).round() / 10.0) }
}

/// How long something took: "42 min", "3h 12m", "50 s".
fn length(seconds: i64) -> String {
    let ms = seconds.max(0).saturating_mul(SECOND);
    match ms {
        ms if ms < MINUTE => format!("{} s", ms / SECOND),
        ms if ms < 60 * MINUTE => format!("{} min", ms / MINUTE),
        ms => age(ms),
    }
}

/// "2026-11-30 14:02 UTC".
fn minute(at_ms: i64) -> String {
    instant(at_ms).map_or_else(|| format!("{at_ms} ms"), |at| at.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// RFC 3339 with milliseconds; None: no date of the calendar.
fn rfc3339(at_ms: i64) -> Option<String> {
    instant(at_ms).map(|at| at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// Laid out with as much of each text as keeps the whole within `fits`: the first of these budgets (characters of one text, and lines of a digest) that does.
fn fitting(lay_out: impl Fn(Budget) -> serde_json::Value, fits: impl Fn(&serde_json::Value, usize) -> bool) -> Vec<u8> {
    let mut body = Vec::new();
    for budget in BUDGETS {
        let value = lay_out(budget);
        body = value.to_string().into_bytes();
        if fits(&value, body.len()) {
            break;
        }
    }
    body
}

/// How much of a message is shown.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Of one text, in UTF-16 units.
    text: usize,
    /// Of a digest.
    lines: usize,
    links: bool,
}

/// The last one fits every service with all texts hostile, as the property tests say.
const BUDGETS: [Budget; 6] = [
    Budget { text: 1_000, lines: 40, links: true },
    Budget { text: 500, lines: 20, links: true },
    Budget { text: 200, lines: 15, links: true },
    Budget { text: 100, lines: 10, links: true },
    Budget { text: 60, lines: 5, links: true },
    Budget { text: 40, lines: 3, links: false },
];

impl Message {
    /// The alerts of a digest that there is room for, and how many more there are.
    fn shown_lines(&self, budget: Budget) -> Vec<String> {
        let mut shown: Vec<String> = self.lines.iter().take(budget.lines).map(|line| cut(line, budget.text)).collect();
        let more = self.total.saturating_sub(shown.len());
        if more > 0 && self.total > 0 {
            shown.push(format!("and {} more", exact(i64::try_from(more).unwrap_or(i64::MAX))));
        }
        shown
    }

    fn shown_links(&self, budget: Budget) -> &[(&'static str, String)] {
        if budget.links { &self.links } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(event: NoticeEvent) -> Notice {
        let dlq = Some(DlqName { cluster: "main".into(), topic: "payments.wallet.DLQ".into() });
        let event_id = event_id(1_796_047_331_000, [7; 10]);
        Notice { event_id, dedup_key: "k".into(), occurred_at_ms: 1_796_047_331_000, dlq, owner: None, links: Links::default(), event }
    }

    fn alert() -> AlertFacts {
        AlertFacts {
            rule: "arrivals".into(),
            measure: "8x usual arrivals".into(),
            depth: None,
            depth_change_1h: Some(3),
            oldest_age_s: None,
            arrivals_per_min: Some(f64::NAN),
            usual_per_min: None,
            top_failure: None,
            since_ms: None,
        }
    }

    #[test]
    fn the_first_line_works_alone() {
        let end = ResolveFacts { rule: "r".into(), duration_s: Some(42 * 60), peak: Some(12_431), replayed: Some(11_980) };
        let nothing = ResolveFacts { rule: "r".into(), duration_s: None, peak: None, replayed: None };
        let replay = ReplayFacts { batch_id: 7, messages: 185, by: "ana".into(), reason: "wallet is back".into() };
        let critical = Severity::Critical;
        let table = [
            (NoticeEvent::Firing { severity: critical, alert: alert() }, "[CRITICAL] payments.wallet.DLQ · 8x usual arrivals"),
            (
                NoticeEvent::SeverityRaised { from: Severity::Warning, severity: critical, alert: alert() },
                "[CRITICAL] payments.wallet.DLQ · was warning, now 8x usual arrivals",
            ),
            (NoticeEvent::Repeat { severity: critical, alert: alert() }, "[CRITICAL] payments.wallet.DLQ · still 8x usual arrivals"),
            (
                NoticeEvent::Resolved { severity: critical, end },
                "[RESOLVED] payments.wallet.DLQ · after 42 min · peak 12,431 · 11,980 replayed",
            ),
            (NoticeEvent::Resolved { severity: critical, end: nothing }, "[RESOLVED] payments.wallet.DLQ"),
            (NoticeEvent::ApprovalWanted { replay: replay.clone() }, "Approval wanted: 185 messages, payments.wallet.DLQ, by ana"),
            (
                NoticeEvent::EmergencyReplay { replay },
                "[EMERGENCY REPLAY] 185 messages, payments.wallet.DLQ, by ana, approved by nobody else",
            ),
        ];
        for (event, line) in table {
            assert_eq!(notice(event).first_line(), line);
        }
    }

    #[test]
    fn unknown_is_said_and_never_zero() {
        let facts = notice(NoticeEvent::Firing { severity: Severity::Warning, alert: alert() }).facts();
        for label in ["Depth", "Oldest", "Arrivals", "Since"] {
            assert!(facts.contains(&(label, "unknown".to_owned())), "{label} in {facts:?}");
        }
        let known = AlertFacts { depth: Some(0), arrivals_per_min: Some(0.0), usual_per_min: Some((0.25, 12.4)), ..alert() };
        let facts = alert_facts(&known);
        assert!(
            facts.contains(&("Depth", "0 (+3 in 1 h)".to_owned())) && facts.contains(&("Arrivals", "0/min, usual 0.3-12".to_owned())),
            "{facts:?}"
        );
    }

    #[test]
    fn long_keys_stay_apart() {
        let (a, b) = (dedup_key("rule", "main", &"t".repeat(249)), dedup_key("rule", "main", &format!("{}u", "t".repeat(248))));
        assert!(a.chars().count() <= 255 && b.chars().count() <= 255 && a != b);
        assert_eq!(dedup_key("rule", "main", "a.DLQ"), "rule/main/a.DLQ");
        assert_eq!(short_key(&a), a, "of a short one it is the same");
    }

    #[test]
    fn an_event_id_is_a_uuid_of_its_time() {
        let id = event_id(1_796_047_331_000, [0xff; 10]);
        assert_eq!((id.get_version_num(), id.get_timestamp().map(|at| at.to_unix().0)), (7, Some(1_796_047_331)));
    }

    #[test]
    fn the_routing_key_stands_in_what_is_sent_and_not_in_what_is_kept() {
        let body = render(ChannelKind::PagerDuty, &notice(NoticeEvent::Firing { severity: Severity::Critical, alert: alert() }));
        let sent = with_routing_key(&body, "R0\"KEY").expect("an event");
        let read: serde_json::Value = serde_json::from_slice(&sent).expect("JSON");
        assert_eq!((&read["routing_key"], &read["event_action"]), (&serde_json::json!("R0\"KEY"), &serde_json::json!("trigger")));
        assert!(!String::from_utf8_lossy(&body).contains("routing_key"));
        assert_eq!(with_routing_key(b"[]", "k"), None);
    }
}
