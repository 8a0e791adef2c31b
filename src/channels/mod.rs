//! The way out to chats: what a channel's secret is made of, how it is kept, and one attempt to deliver.
//!
//! May use: `domain`, reqwest. Called by: `services`, `app`. Where to may be sent is decided by `domain::egress`, what an answer means by `domain::delivery`; [`http`]
//! is the one place that connects, and connects to nothing but what was admitted.

mod http;
mod sealed;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use crate::domain::clock::Clock;
use crate::domain::delivery::{ChannelKind, Verdict, judge};
use crate::domain::notice;
pub use http::{Names, SendError, Sender};
pub use sealed::{SEALING, SealError, open, seal};

/// Where the Events API v2 of PagerDuty's service region US is; the EU's is another host.
pub const PAGERDUTY_URL: &str = "https://events.pagerduty.com/v2/enqueue";
/// Begins a signing secret (Standard Webhooks).
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a signing secret, at least and at most (Standard Webhooks).
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Where a channel posts to, and with what key. All of it is secret; it is kept sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    pub url: String,
    /// PagerDuty's integration key, or the signing secret of a webhook.
    pub key: Option<String>,
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Destination(not shown)")
    }
}

impl Destination {
    /// Whether the key is one that this kind of service takes. Does not look at the URL: [`Sender::check`] does.
    ///
    /// # Errors
    /// What is wrong and what would be right, in a sentence. Never the key.
    pub fn check_key(&self, kind: ChannelKind) -> Result<(), String> {
        match (kind, self.key.as_deref()) {
            (ChannelKind::PagerDuty, Some(key)) if key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_alphanumeric()) => Ok(()),
            (ChannelKind::PagerDuty, _) => {
                Err("an integration key has 32 letters and digits: copy it from an Events API v2 integration of the PagerDuty service"
                    .to_owned())
            }
            (ChannelKind::Webhook, Some(key)) if signing_key(key).is_some() => Ok(()),
            (ChannelKind::Webhook, _) => Err(format!(
                "a signing secret is {SECRET_PREFIX} and the Base64 of {} to {} random bytes. Leave it empty, and one is made",
                SECRET_BYTES.start(),
                SECRET_BYTES.end()
            )),
            (_, Some(_)) => Err(format!("{} has no key beside its URL: leave it empty", kind.title())),
            (_, None) => Ok(()),
        }
    }

    /// The last four characters of a key, by which people tell two apart. Of a URL nothing: in most of them the path is the secret.
    pub fn hint(&self) -> Option<String> {
        let key = self.key.as_deref()?;
        // Of a short key four characters would be too much of it.
        let at = key.char_indices().rev().nth(3).filter(|_| key.chars().count() >= 24)?.0;
        Some(format!("…{}", &key[at..]))
    }

    /// The text without anything of the secret: services like to repeat the address that they do not know.
    fn redacted(&self, text: &str) -> String {
        let mut secrets: Vec<String> = vec![self.url.clone()];
        secrets.extend(self.key.clone());
        if let Some(key) = self.key.as_deref().and_then(|key| key.strip_prefix(SECRET_PREFIX)) {
            secrets.push(key.to_owned());
        }
        if let Ok(url) = reqwest::Url::parse(&self.url) {
            secrets.push(url.as_str().to_owned());
            secrets.push(url.path().to_owned());
            secrets.extend(url.query().map(str::to_owned));
            secrets.extend(url.password().map(str::to_owned));
            secrets.extend(url.path_segments().into_iter().flatten().map(str::to_owned));
            secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        }
        // Short pieces ("v2", "api") are no secrets, and would tear the text to shreds.
        secrets.retain(|secret| secret.len() >= 8);
        // The longest first: what holds another is taken out whole.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "<redacted>"))
    }
}

/// A new signing secret out of 32 random bytes.
pub fn signing_secret(random: [u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(random))
}

fn signing_key(secret: &str) -> Option<Webhook> {
    let bytes = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    if !SECRET_BYTES.contains(&bytes.len()) {
        return None;
    }
    Webhook::new(secret).ok()
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub took_ms: i64,
    /// None: there was no answer.
    pub status: Option<u16>,
    /// The beginning of the answer, without secrets.
    pub body: Option<String>,
    /// Why it is not delivered, and what to do about it; None: it is.
    pub error: Option<String>,
    pub verdict: Verdict,
}

/// Posts a rendered message once. Its id and body are the same at every attempt; only the signature's time is not.
pub async fn deliver(sender: &Sender, clock: &Clock, kind: ChannelKind, to: &Destination, event_id: &str, body: &[u8]) -> Attempt {
    let began = clock.monotonic();
    let (sent, headers) = match request(kind, to, event_id, body, clock.now_ms()) {
        Ok(request) => request,
        Err(why) => return Attempt { took_ms: 0, status: None, body: None, error: Some(why.clone()), verdict: Verdict::Final(why) },
    };
    let answer = sender.post(&to.url, &headers, sent).await;
    let took_ms = ms(clock.monotonic().saturating_sub(began));
    match answer {
        Ok(answer) => {
            let verdict = judge(kind, answer.status, &answer.body, answer.retry_after.as_deref(), clock.now_ms());
            let error = match &verdict {
                Verdict::Accepted => None,
                Verdict::Retry { why, .. } | Verdict::Final(why) => Some(why.clone()),
            };
            Attempt { took_ms, status: Some(answer.status), body: Some(to.redacted(&answer.body)), error, verdict }
        }
        Err(failure) => {
            let why = to.redacted(&failure.to_string());
            let verdict =
                if failure.is_final() { Verdict::Final(why.clone()) } else { Verdict::Retry { after_ms: None, why: why.clone() } };
            Attempt { took_ms, status: None, body: None, error: Some(why), verdict }
        }
    }
}

type Headers = Vec<(&'static str, String)>;

/// The bytes and the headers that a service of this kind wants.
fn request(kind: ChannelKind, to: &Destination, event_id: &str, body: &[u8], now_ms: i64) -> Result<(Vec<u8>, Headers), String> {
    let no_key = || "the channel has lost its key. Give it anew".to_owned();
    match kind {
        ChannelKind::PagerDuty => {
            let key = to.key.as_deref().ok_or_else(no_key)?;
            let body = notice::with_routing_key(body, key).ok_or_else(|| "the stored message is none for PagerDuty".to_owned())?;
            Ok((body, Vec::new()))
        }
        ChannelKind::Webhook => {
            let webhook = to.key.as_deref().and_then(signing_key).ok_or_else(no_key)?;
            let at = now_ms.div_euclid(1_000);
            let signature = webhook.sign(event_id, at, body).map_err(|_| "the message cannot be signed".to_owned())?;
            let headers = vec![
                (HEADER_WEBHOOK_ID, event_id.to_owned()),
                (HEADER_WEBHOOK_TIMESTAMP, at.to_string()),
                (HEADER_WEBHOOK_SIGNATURE, signature),
            ];
            Ok((body.to_vec(), headers))
        }
        _ => Ok((body.to_vec(), Vec::new())),
    }
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(url: &str, key: Option<&str>) -> Destination {
        Destination { url: url.to_owned(), key: key.map(str::to_owned) }
    }

    #[test]
    fn an_answer_that_repeats_the_address_gives_nothing_away() {
        let slack = to("https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX?sig=abcdefghij", None);
        for text in [
            "no such hook /services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "token XXXXXXXXXXXXXXXXXXXXXXXX is not known",
            "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX?sig=abcdefghij",
            "sig=abcdefghij",
        ] {
            let shown = slack.redacted(text);
            assert!(!shown.contains("XXXX") && !shown.contains("abcdefghij") && shown.contains("<redacted>"), "{shown}");
        }
        let pager = to(PAGERDUTY_URL, Some("0123456789abcdef0123456789abcdef"));
        assert_eq!(pager.redacted("bad key 0123456789abcdef0123456789abcdef"), "bad key <redacted>");
        assert_eq!(pager.hint().as_deref(), Some("…cdef"));
        assert_eq!(slack.hint(), None);
        assert!(!format!("{pager:?}{slack:?}").contains("0123"));
    }

    #[test]
    fn keys_are_judged_by_their_kind() {
        let made = signing_secret([9; 32]);
        assert!(to("https://h/", Some(&made)).check_key(ChannelKind::Webhook).is_ok());
        for bad in [None, Some("whsec_AAAA"), Some("swordfish"), Some("whsec_!!")] {
            let said = to("https://h/", bad).check_key(ChannelKind::Webhook).unwrap_err();
            assert!(!said.contains("swordfish"), "{said}");
        }
        assert!(to("https://h/", Some(&"a".repeat(32))).check_key(ChannelKind::PagerDuty).is_ok());
        assert!(to("https://h/", Some("short")).check_key(ChannelKind::PagerDuty).is_err());
        assert!(to("https://h/", None).check_key(ChannelKind::Slack).is_ok());
        assert!(to("https://h/", Some("k")).check_key(ChannelKind::Slack).is_err());
    }
}
