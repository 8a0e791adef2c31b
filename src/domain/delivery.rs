//! What a service's answer means for a message that was posted to it, and when the next attempt is due.

use serde::Serialize;

use super::figures::{DAY, MINUTE, SECOND};

/// What kind of service a channel posts to. The words are kept in the database: add, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// An incoming webhook.
    Slack,
    /// A workflow with the trigger "When a Teams webhook request is received".
    Teams,
    Discord,
    Mattermost,
    /// Events API v2.
    PagerDuty,
    /// Anything that takes signed JSON (Standard Webhooks).
    Webhook,
}

impl ChannelKind {
    pub const ALL: [ChannelKind; 6] = [
        ChannelKind::Slack,
        ChannelKind::Teams,
        ChannelKind::Discord,
        ChannelKind::Mattermost,
        ChannelKind::PagerDuty,
        ChannelKind::Webhook,
    ];

    /// The word in the database, forms and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelKind::Slack => "slack",
            ChannelKind::Teams => "teams",
            ChannelKind::Discord => "discord",
            ChannelKind::Mattermost => "mattermost",
            ChannelKind::PagerDuty => "pagerduty",
            ChannelKind::Webhook => "webhook",
        }
    }

    /// As people call it.
    pub fn title(self) -> &'static str {
        match self {
            ChannelKind::Slack => "Slack",
            ChannelKind::Teams => "Teams",
            ChannelKind::Discord => "Discord",
            ChannelKind::Mattermost => "Mattermost",
            ChannelKind::PagerDuty => "PagerDuty",
            ChannelKind::Webhook => "webhook",
        }
    }

    /// How long after a message the next one goes, in ms. Slack asks for about one a second and channel; the others say by themselves (429) when
    /// it is too much.
    pub fn gap_ms(self) -> i64 {
        match self {
            ChannelKind::Slack => SECOND,
            _ => 0,
        }
    }
}

impl std::str::FromStr for ChannelKind {
    type Err = ();

    fn from_str(text: &str) -> Result<ChannelKind, ()> {
        ChannelKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(())
    }
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has the message.
    Accepted,
    /// Later, and not before this many ms where the service says so.
    Retry { after_ms: Option<i64>, why: String },
    /// Never: the same message would be refused again. The sentence says what to do.
    Final(String),
}

/// What an answer means.
///
/// `body` is its beginning, at least 64 bytes of it; `retry_after` the header of that name; `now_ms` the time it came.
pub fn judge(kind: ChannelKind, status: u16, body: &str, retry_after: Option<&str>, now_ms: i64) -> Verdict {
    let service = kind.title();
    let asked = retry_after.and_then(|text| retry_after_ms(text, now_ms));
    match status {
        200..=299 if matches!(kind, ChannelKind::Slack | ChannelKind::Mattermost) && body.trim() != "ok" => Verdict::Final(format!(
            "{status}, but not the \"ok\" of a {service} incoming webhook: something else answers at this URL. Make an incoming webhook in {service} and give its URL"
        )),
        200..=299 => Verdict::Accepted,
        300..=399 => Verdict::Final(format!(
            "{status}: the answer leads to another address, and redirects are not followed. Give the URL that it leads to, if that is the right one"
        )),
        429 => Verdict::Retry { after_ms: asked, why: format!("429: {service} asks to go slower") },
        // A request that timed out or came too early on their side (RFC 9110, RFC 8470).
        408 | 425 => Verdict::Retry { after_ms: asked, why: format!("{status}: {service} asks to try again") },
        500..=599 => Verdict::Retry { after_ms: asked, why: format!("{status}: {service} has a fault of its own") },
        _ => Verdict::Final(format!("{status}: {}", refusal(kind, status))),
    }
}

/// What to do about an answer that is final.
fn refusal(kind: ChannelKind, status: u16) -> String {
    let service = kind.title();
    match (kind, status) {
        (ChannelKind::PagerDuty, 400) => {
            "PagerDuty refuses the event. Most often the integration key is not one of an Events API v2 integration: give that key"
                .to_owned()
        }
        (ChannelKind::Webhook, 400) => "the receiver refuses the message. Its own log says why".to_owned(),
        (ChannelKind::Webhook, 401 | 403) => "the receiver does not let it in. Compare the signing secret on both sides".to_owned(),
        (ChannelKind::Webhook, 410) => "the receiver says that it is gone for good. Remove the channel, or give another URL".to_owned(),
        (_, 400) => format!("{service} refuses the message. The answer below says why; if it says nothing, make the URL anew in {service}"),
        (_, 401 | 403) => {
            format!("{service} does not let it in: the URL was revoked, or posting is not allowed there. Make a new one in {service}")
        }
        (_, 404) => format!("{service} does not know the URL: it was deleted, or not copied whole. Make a new one in {service}"),
        (_, 410) => format!("what the URL led to is gone or archived in {service}. Make a new one"),
        (_, 413) => format!("the message is too large for {service}: a fault of Lazaret's, please report it"),
        _ => format!("{service} refuses it, and trying again would not help. The answer below may say why"),
    }
}

/// The header `Retry-After` (RFC 9110, 10.2.3) in ms from now: seconds, with a fraction as Discord writes them, or a date. None: it is neither.
pub fn retry_after_ms(text: &str, now_ms: i64) -> Option<i64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number {
        let seconds = text.parse::<f64>().ok()?;
        // `as` saturates: longer than anybody waits.
        return Some((seconds * SECOND as f64).ceil() as i64);
    }
    let at = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    Some(at.timestamp_millis().saturating_sub(now_ms).max(0))
}

/// What is not delivered in this time is given up, in ms.
pub const GIVE_UP_AFTER_MS: i64 = DAY;
const FIRST_WAIT_MS: i64 = SECOND;
const LONGEST_WAIT_MS: i64 = 15 * MINUTE;

/// How long to wait after so many failures in a row (1 or more), in ms: doubling from a second up to 15 minutes, of which `chance` decides the second half, so
/// that many that failed together do not come back together.
pub fn backoff_ms(failures: i64, chance: u32) -> i64 {
    let doublings = u32::try_from(failures.saturating_sub(1).clamp(0, 20)).unwrap_or(20);
    let most = (FIRST_WAIT_MS << doublings).min(LONGEST_WAIT_MS);
    most / 2 + i64::from(chance) % (most / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 784_111_777_000; // Sun, 06 Nov 1994 08:49:37 GMT

    fn said(kind: ChannelKind, status: u16, body: &str) -> Verdict {
        judge(kind, status, body, None, NOW)
    }

    #[test]
    fn each_service_accepts_in_its_own_way() {
        for (kind, status, body) in [
            (ChannelKind::Slack, 200, "ok"),
            (ChannelKind::Mattermost, 200, "ok"),
            (ChannelKind::Teams, 202, ""),
            (ChannelKind::Teams, 200, ""),
            (ChannelKind::Discord, 204, ""),
            (ChannelKind::PagerDuty, 202, "{\"status\":\"success\"}"),
            (ChannelKind::Webhook, 200, "thanks"),
            (ChannelKind::Webhook, 204, ""),
        ] {
            assert_eq!(said(kind, status, body), Verdict::Accepted, "{kind:?} {status} {body}");
        }
        assert!(matches!(said(ChannelKind::Slack, 200, "<html>sign in</html>"), Verdict::Final(_)));
    }

    #[test]
    fn what_may_help_is_tried_again_and_what_may_not_is_final_with_a_remedy() {
        for kind in ChannelKind::ALL {
            for status in [408, 425, 429, 500, 502, 503, 504, 599] {
                assert!(matches!(said(kind, status, ""), Verdict::Retry { after_ms: None, .. }), "{kind:?} {status}");
            }
            for status in [100, 301, 302, 307, 400, 401, 403, 404, 405, 410, 413, 415, 422] {
                let Verdict::Final(sentence) = said(kind, status, "") else { panic!("{kind:?} {status}") };
                assert!(sentence.starts_with(&status.to_string()) && sentence.len() > 40, "{sentence}");
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let table = [
            ("30", Some(30_000)),
            (" 0 ", Some(0)),
            ("1.337", Some(1_337)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("99999999999999999999999", Some(i64::MAX)),
            ("-5", None),
            ("soon", None),
            ("", None),
            ("1e9", None),
            (".", None),
        ];
        for (text, ms) in table {
            assert_eq!(retry_after_ms(text, NOW), ms, "{text:?}");
        }
        let Verdict::Retry { after_ms, .. } = judge(ChannelKind::Slack, 429, "", Some("30"), NOW) else { panic!("later") };
        assert_eq!(after_ms, Some(30_000));
    }

    proptest! {
        #[test]
        fn waits_grow_to_a_quarter_of_an_hour_and_no_further(failures in any::<i64>(), chance in any::<u32>()) {
            let wait = backoff_ms(failures, chance);
            prop_assert!((500..=900_000).contains(&wait), "{}", wait);
            if failures >= 11 {
                prop_assert!(wait >= 450_000);
            }
        }
    }

    #[test]
    fn the_words_of_the_kinds_are_read_back() {
        for kind in ChannelKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.as_str()));
        }
    }
}
