//! What was decided, by whom and why, as a chain: each event's hash covers its text and the hash before it.
//!
//! The key stays outside the database, so whoever can write to the tables cannot make a chain that verifies. A cut tail shows by the head,
//! which is kept elsewhere too.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;

/// The version of an event's text.
const VERSION: u32 = 1;
/// Begins what is hashed, so that no other use of the key can give the same bytes.
const PURPOSE: &[u8] = b"lazaret audit 1\0";
/// Begins what a key for something else is derived from.
const DERIVED: &[u8] = b"lazaret derived key 1\0";

/// The key of the chain: 32 bytes or more.
#[derive(Clone, PartialEq, Eq)]
pub struct AuditKey(Vec<u8>);

impl AuditKey {
    /// Fewer bytes than this could be guessed.
    pub const MIN_BYTES: usize = 32;

    /// None: fewer than [`AuditKey::MIN_BYTES`] bytes.
    pub fn new(bytes: Vec<u8>) -> Option<AuditKey> {
        (bytes.len() >= AuditKey::MIN_BYTES).then_some(AuditKey(bytes))
    }

    /// What a key file holds, blanks at both ends aside: hex digits and nothing else are read as hex, anything else as the bytes it is made of.
    /// None: fewer than [`AuditKey::MIN_BYTES`] bytes, or an odd number of hex digits.
    pub fn from_text(text: &str) -> Option<AuditKey> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return AuditKey::new(text.as_bytes().to_vec());
        }
        let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        (0..text.len()).step_by(2).map(pair).collect::<Option<Vec<u8>>>().and_then(AuditKey::new)
    }

    /// A key for another purpose, from which neither this one nor that of a third purpose can be told: HMAC-SHA256 over the purpose's name. No name begins like
    /// what the chain hashes.
    pub fn derived(&self, purpose: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(DERIVED);
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey(not shown)")
    }
}

/// What kind of thing was done. The words are kept in the trail for years: add, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    SignedIn,
    SignInFailed,
    SignedOut,
    UserAdded,
    PasswordChanged,
    UserDisabled,
    UserEnabled,
    TokenCreated,
    TokenRevoked,
    Revealed,
    Exported,
    GroupStatusSet,
    GroupNoteAdded,
    MessagesTakenUp,
    MessagesReleased,
    MessagesArchived,
    MessagesRestored,
    FollowUpClosed,
    LineDrawn,
    ReplayProposed,
    ReplaySubmitted,
    ReplayApproved,
    ReplayRejected,
    /// Somebody tried what they may not: their own proposal, another owner's.
    ReplayRefused,
    ReplayExpired,
    ReplayStarted,
    ReplayPaused,
    ReplayResumed,
    ReplaySlowed,
    ReplayStopped,
    ReplayHalted,
    ReplayReopened,
    ReplayFinished,
    ReplayVerified,
    EmergencyReplayed,
    EmergencyReviewed,
    ChannelAdded,
    ChannelChanged,
    ChannelDisabled,
    ChannelEnabled,
    ChannelRemoved,
    ChannelTested,
    NoticeSentAgain,
    RuleCreated,
    RuleChanged,
    RuleDisabled,
    RuleEnabled,
    AlertAcknowledged,
    AlertSilenced,
    /// A new level of arrivals, or an anomaly that is over, is usual from now on.
    ArrivalsAccepted,
}

impl Action {
    pub const ALL: [Action; 50] = [
        Action::SignedIn,
        Action::SignInFailed,
        Action::SignedOut,
        Action::UserAdded,
        Action::PasswordChanged,
        Action::UserDisabled,
        Action::UserEnabled,
        Action::TokenCreated,
        Action::TokenRevoked,
        Action::Revealed,
        Action::Exported,
        Action::GroupStatusSet,
        Action::GroupNoteAdded,
        Action::MessagesTakenUp,
        Action::MessagesReleased,
        Action::MessagesArchived,
        Action::MessagesRestored,
        Action::FollowUpClosed,
        Action::LineDrawn,
        Action::ReplayProposed,
        Action::ReplaySubmitted,
        Action::ReplayApproved,
        Action::ReplayRejected,
        Action::ReplayRefused,
        Action::ReplayExpired,
        Action::ReplayStarted,
        Action::ReplayPaused,
        Action::ReplayResumed,
        Action::ReplaySlowed,
        Action::ReplayStopped,
        Action::ReplayHalted,
        Action::ReplayReopened,
        Action::ReplayFinished,
        Action::ReplayVerified,
        Action::EmergencyReplayed,
        Action::EmergencyReviewed,
        Action::ChannelAdded,
        Action::ChannelChanged,
        Action::ChannelDisabled,
        Action::ChannelEnabled,
        Action::ChannelRemoved,
        Action::ChannelTested,
        Action::NoticeSentAgain,
        Action::RuleCreated,
        Action::RuleChanged,
        Action::RuleDisabled,
        Action::RuleEnabled,
        Action::AlertAcknowledged,
        Action::AlertSilenced,
        Action::ArrivalsAccepted,
    ];

    /// The word in the trail.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::SignedIn => "signed_in",
            Action::SignInFailed => "sign_in_failed",
            Action::SignedOut => "signed_out",
            Action::UserAdded => "user_added",
            Action::PasswordChanged => "password_changed",
            Action::UserDisabled => "user_disabled",
            Action::UserEnabled => "user_enabled",
            Action::TokenCreated => "token_created",
            Action::TokenRevoked => "token_revoked",
            Action::Revealed => "revealed",
            Action::Exported => "exported",
            Action::GroupStatusSet => "group_status_set",
            Action::GroupNoteAdded => "group_note_added",
            Action::MessagesTakenUp => "messages_taken_up",
            Action::MessagesReleased => "messages_released",
            Action::MessagesArchived => "messages_archived",
            Action::MessagesRestored => "messages_restored",
            Action::FollowUpClosed => "follow_up_closed",
            Action::LineDrawn => "line_drawn",
            Action::ReplayProposed => "replay_proposed",
            Action::ReplaySubmitted => "replay_submitted",
            Action::ReplayApproved => "replay_approved",
            Action::ReplayRejected => "replay_rejected",
            Action::ReplayRefused => "replay_refused",
            Action::ReplayExpired => "replay_expired",
            Action::ReplayStarted => "replay_started",
            Action::ReplayPaused => "replay_paused",
            Action::ReplayResumed => "replay_resumed",
            Action::ReplaySlowed => "replay_slowed",
            Action::ReplayStopped => "replay_stopped",
            Action::ReplayHalted => "replay_halted",
            Action::ReplayReopened => "replay_reopened",
            Action::ReplayFinished => "replay_finished",
            Action::ReplayVerified => "replay_verified",
            Action::EmergencyReplayed => "emergency_replayed",
            Action::EmergencyReviewed => "emergency_reviewed",
            Action::ChannelAdded => "channel_added",
            Action::ChannelChanged => "channel_changed",
            Action::ChannelDisabled => "channel_disabled",
            Action::ChannelEnabled => "channel_enabled",
            Action::ChannelRemoved => "channel_removed",
            Action::ChannelTested => "channel_tested",
            Action::NoticeSentAgain => "notice_sent_again",
            Action::RuleCreated => "rule_created",
            Action::RuleChanged => "rule_changed",
            Action::RuleDisabled => "rule_disabled",
            Action::RuleEnabled => "rule_enabled",
            Action::AlertAcknowledged => "alert_acknowledged",
            Action::AlertSilenced => "alert_silenced",
            Action::ArrivalsAccepted => "arrivals_accepted",
        }
    }
}

/// Who did it when the command line did.
pub const COMMAND_LINE: &str = "command line";
/// Who did it when it failed at the door: nobody knows.
pub const NOT_SIGNED_IN: &str = "not signed in";

/// Who does something, for the trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// The user's name, or "token" and the token's; [`COMMAND_LINE`] for `lazaret user` and `lazaret token`.
    pub actor: String,
    /// Of the request that does it, as pages and logs show it.
    pub request_id: Option<String>,
}

impl By {
    /// Who is at the machine's command line; it asks for no name.
    pub fn command_line() -> By {
        By { actor: COMMAND_LINE.to_owned(), request_id: None }
    }
}

/// One decision of a person or an automation. Holds no payload and no secret: a pointer to a field, never its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    pub at_ms: i64,
    /// See [`By`].
    pub actor: String,
    pub action: Action,
    /// On what, as `kind id`: "message 42", "group 7", "dlq main/payments.DLQ", "user ana".
    pub subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Event {
    /// An event with what all have.
    pub fn new(at_ms: i64, by: &By, action: Action, subject: impl Into<String>) -> Event {
        let (actor, request_id) = (by.actor.clone(), by.request_id.clone());
        Event { at_ms, actor, action, subject: subject.into(), reason: None, before: None, after: None, request_id }
    }

    /// The text that is stored and hashed: JSON with its version first. U+0000 becomes its picture, because PostgreSQL holds none.
    pub fn text(&self) -> String {
        #[derive(Serialize)]
        struct Versioned<'a> {
            v: u32,
            #[serde(flatten)]
            event: &'a Event,
        }
        let text = |text: &String| pictured(text);
        let event = Event {
            at_ms: self.at_ms,
            actor: pictured(&self.actor),
            action: self.action,
            subject: pictured(&self.subject),
            reason: self.reason.as_ref().map(text),
            before: self.before.clone().map(pictured_in),
            after: self.after.clone().map(pictured_in),
            request_id: self.request_id.as_ref().map(text),
        };
        serde_json::to_string(&Versioned { v: VERSION, event: &event }).expect("a struct of texts and JSON has a JSON form")
    }
}

fn pictured(text: &str) -> String {
    text.replace('\0', "\u{2400}")
}

fn pictured_in(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(pictured(&text)),
        Value::Array(values) => values.into_iter().map(pictured_in).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (pictured(&name), pictured_in(value))).collect(),
        other => other,
    }
}

/// The hash of the event `seq` with this text, after one with the hash `previous`: HMAC-SHA256 (RFC 2104) over purpose, previous hash, number,
/// length and text, so that no two different chains give the same bytes.
pub fn chained(key: &AuditKey, previous: &[u8], seq: i64, text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes keys of any length");
    for part in
        [PURPOSE, &(previous.len() as u64).to_be_bytes(), previous, &seq.to_be_bytes(), &(text.len() as u64).to_be_bytes(), text.as_bytes()]
    {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> AuditKey {
        AuditKey::new(vec![7; 32]).expect("32 bytes")
    }

    #[test]
    fn a_short_key_is_refused_and_none_is_shown() {
        assert!(AuditKey::new(vec![7; 31]).is_none());
        assert_eq!(format!("{:?}", key()), "AuditKey(not shown)");
    }

    #[test]
    fn keys_of_two_purposes_are_two() {
        assert_eq!(key().derived("a"), key().derived("a"));
        assert_ne!(key().derived("a"), key().derived("b"));
        assert_ne!(key().derived("a"), AuditKey::new(vec![8; 32]).expect("32 bytes").derived("a"));
    }

    #[test]
    fn a_key_file_holds_hex_or_text() {
        let hex = "07".repeat(32);
        assert_eq!(AuditKey::from_text(&format!(" {hex}\n")), Some(key()));
        assert_eq!(AuditKey::from_text(&hex[1..]), None, "an odd number of digits");
        assert_eq!(AuditKey::from_text(&hex[2..]), None, "31 bytes");
        let text = "correct horse battery staple and so on";
        assert_eq!(AuditKey::from_text(&format!("{text}\n")), AuditKey::new(text.as_bytes().to_vec()));
        assert_eq!(AuditKey::from_text("correct horse battery staple"), None);
        assert_eq!(AuditKey::from_text(""), None);
    }

    #[test]
    fn the_words_of_the_trail_are_those_of_its_json() {
        for action in Action::ALL {
            assert_eq!(serde_json::to_string(&action).unwrap(), format!("{:?}", action.as_str()));
        }
    }

    #[test]
    fn a_text_says_its_version_and_holds_no_nul() {
        let by = By { actor: "ana".to_owned(), request_id: None };
        let mut event = Event::new(5, &by, Action::Revealed, "message 42");
        event.reason = Some("ticket\0 PAY-1".to_owned());
        let text = event.text();
        assert_eq!(
            text,
            "{\"v\":1,\"at_ms\":5,\"actor\":\"ana\",\"action\":\"revealed\",\"subject\":\"message 42\",\"reason\":\"ticket\u{2400} PAY-1\"}"
        );
    }

    #[test]
    fn nul_typed_as_an_escape_stays_as_it_was_typed_and_the_text_is_json() {
        let typed = "a\\u0000b\\\\u0000c\0d";
        let mut event = Event::new(5, &By { actor: typed.to_owned(), request_id: Some(typed.to_owned()) }, Action::SignInFailed, typed);
        event.reason = Some(typed.to_owned());
        event.before = Some(serde_json::json!({ typed: [typed, 1, null] }));
        event.after = Some(serde_json::json!(typed));
        let read: Value = serde_json::from_str(&event.text()).expect("JSON");
        let kept = "a\\u0000b\\\\u0000c\u{2400}d";
        for part in [&read["actor"], &read["subject"], &read["reason"], &read["request_id"], &read["before"][kept][0], &read["after"]] {
            assert_eq!(part, kept);
        }
        assert!(!event.text().contains('\0'));
    }

    #[test]
    fn each_part_of_the_chain_counts() {
        let hash = chained(&key(), &[0; 32], 1, "text");
        assert_eq!(hash.len(), 32);
        let other = AuditKey::new(vec![8; 32]).expect("32 bytes");
        for different in [
            chained(&other, &[0; 32], 1, "text"),
            chained(&key(), &[1; 32], 1, "text"),
            chained(&key(), &[0; 32], 2, "text"),
            chained(&key(), &[0; 32], 1, "texts"),
        ] {
            assert_ne!(hash, different);
        }
    }
}
