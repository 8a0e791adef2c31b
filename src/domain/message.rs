//! A message: a record plus what we decided about it.

use serde::{Deserialize, Serialize};

use sha2::{Digest as _, Sha256};

use super::classify::{ClassRule, FailureClass, classify};
use super::dialect::{DeadLetteredAt, Origin, Reading, read};
use super::fingerprint::{Ingredients, fingerprint, normalise};
use super::mask::{MASK, MaskedValues, hides_key};
use super::record::{Record, display_text_within, pack_headers};
use super::returns::Traces;
use super::settings::DlqSettings;
use super::stacktrace::{root_cause, top_frame};

/// Where a message stands. `Replayed` and `Archived` are its ends; the others count towards depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    Quarantined,
    UnderReview,
    SchemaCheck,
    IdempotencyCheck,
    Replayed,
    Archived,
}

impl MessageState {
    pub const ALL: [MessageState; 6] = [
        MessageState::Quarantined,
        MessageState::UnderReview,
        MessageState::SchemaCheck,
        MessageState::IdempotencyCheck,
        MessageState::Replayed,
        MessageState::Archived,
    ];

    /// The word in the database, the API and the query string.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageState::Quarantined => "quarantined",
            MessageState::UnderReview => "under_review",
            MessageState::SchemaCheck => "schema_check",
            MessageState::IdempotencyCheck => "idempotency_check",
            MessageState::Replayed => "replayed",
            MessageState::Archived => "archived",
        }
    }

    /// Whether the message still counts towards its DLQ's depth.
    pub fn is_open(self) -> bool {
        !matches!(self, MessageState::Replayed | MessageState::Archived)
    }
}

impl std::str::FromStr for MessageState {
    type Err = String;

    fn from_str(text: &str) -> Result<MessageState, String> {
        MessageState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known: Vec<_> = MessageState::ALL.iter().map(|state| state.as_str()).collect();
            format!("unknown state {text:?}: use one of {}", known.join(", "))
        })
    }
}

/// What makes one failure group: everything that goes into the fingerprint, kept so that a page can say why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupIdentity {
    /// SHA-256, hex, over DLQ, consumer group, class, root exception, normalised text and top frame.
    pub fingerprint: String,
    pub consumer_group: Option<String>,
    pub class: FailureClass,
    /// The class of the root cause where it is named, else of the exception.
    pub exception_class: Option<String>,
    /// The exception's text with numbers, ids and the like replaced; safe for display.
    pub normalised_text: String,
    pub top_frame: Option<String>,
}

/// A record with all that could be read out of it, ready to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    pub record: Record,
    /// SHA-256 over key, value and headers, length-prefixed.
    pub body_hash: [u8; 32],
    /// The dialect's name ([`super::dialect::Dialect::as_str`]), e.g. `spring_dlt`.
    pub dialect: String,
    pub class: FailureClass,
    /// Which rule decided the class, in words: "built-in: SocketTimeoutException" or "class_rules[2]".
    pub class_reason: String,
    pub group: GroupIdentity,
    /// For display: cut to a few kB, never containing NUL.
    pub exception_class: Option<String>,
    pub exception_message: Option<String>,
    pub origin: Option<Origin>,
    /// By which it is recognised if it is something we sent.
    pub traces: Traces,
    pub consumer_group: Option<String>,
    /// The number the framework gives, unchanged.
    pub attempts: Option<i64>,
    /// 1 for a first failure; one more for each time it was replayed and came back.
    pub lap: i32,
    /// The record's key repeats a masked field, or may: it is kept, but neither shown nor found ([`hides_key`]).
    pub key_masked: bool,
    /// For display and search: NUL shown as U+2400, cut to [`KEY_LIMIT`], [`MASK`] where [`hides_key`] says so. Ledgers are asked with the exact text.
    pub business_key: Option<String>,
    /// As `business_key`.
    pub tenant: Option<String>,
    /// Kafka's own timestamp, ms, raw.
    pub record_at_ms: Option<i64>,
    /// When it was dead-lettered, ms: the record's own time, a header's, or when we first saw it.
    pub dead_lettered_at_ms: i64,
    /// The timestamp was missing, before 2000 or over 5 minutes ahead.
    pub timestamp_suspect: bool,
    /// When intake first saw it, ms.
    pub first_seen_at_ms: i64,
}

/// A key longer than this many bytes is cut for lists and search: it must fit into an index.
pub const KEY_LIMIT: usize = 1024;
/// A message's error text is stored up to this many bytes; the whole of it stays in the record's headers.
pub const EXCEPTION_MESSAGE_LIMIT: usize = 4 * 1024;

/// 2000-01-01T00:00:00Z: Kafka is younger, and seconds mistaken for milliseconds lie before it.
pub const EARLIEST_PLAUSIBLE_MS: i64 = 946_684_800_000;
/// How far another machine's clock may be ahead of ours.
pub const MAX_AHEAD_MS: i64 = 5 * 60 * 1000;

impl NewMessage {
    /// Whether a replay stays blocked until the configuration or a person names the target: the origin's topic is not known.
    pub fn needs_target(&self) -> bool {
        self.origin.as_ref().is_none_or(|origin| origin.topic.is_none())
    }
}

/// Decides everything about a record that intake decides: dialect, origin, kind of failure, group, keys, times. `now_ms` is when it was first seen.
///
/// Never fails: what cannot be read is unknown, and the record itself is kept whole.
pub fn quarantine(record: Record, settings: &DlqSettings, rules: &[ClassRule], now_ms: i64) -> NewMessage {
    let mut reading = read(&record, &settings.dialect, settings.consumer_group.as_deref());
    let (class, mut class_reason) = classify(rules, &reading, &record);
    // After the rules, which may ask for what is masked; before anything is stored to be shown and searched.
    if !settings.mask.is_empty() {
        let hidden = MaskedValues::of(record.value.as_deref(), &settings.mask);
        hide_in_reading(&hidden, &mut reading);
        // It names what decided: a stage or a class.
        if matches!(hidden, MaskedValues::Known(_)) {
            class_reason = hidden.hide(&class_reason).into_owned();
        }
    }
    let group = group(&record, settings, &reading, class);
    let (dead_lettered_at_ms, timestamp_suspect) = dead_lettered_at(reading.dead_lettered_at, record.timestamp_ms, now_ms);
    let hidden = |key: &[u8]| hides_key(record.value.as_deref(), &settings.mask, key);
    let key = |template: &Option<super::template::KeyTemplate>| {
        let key = template.as_ref().and_then(|template| template.render(&record))?;
        Some(if hidden(key.as_bytes()) { MASK.to_owned() } else { display_text_within(key.as_bytes(), KEY_LIMIT) })
    };
    NewMessage {
        body_hash: body_hash(&record),
        dialect: reading.dialect.as_str().to_owned(),
        class,
        class_reason,
        group,
        exception_class: reading.exception_class,
        exception_message: reading.exception_message.map(|text| display_text_within(text.as_bytes(), EXCEPTION_MESSAGE_LIMIT)),
        origin: reading.origin,
        traces: Traces::of(&record, reading.places),
        consumer_group: reading.consumer_group,
        attempts: reading.attempts,
        lap: lap(&record),
        key_masked: record.key.as_deref().is_some_and(hidden),
        business_key: key(&settings.business_key),
        tenant: key(&settings.tenant),
        record_at_ms: record.timestamp_ms,
        dead_lettered_at_ms,
        timestamp_suspect,
        first_seen_at_ms: now_ms,
        record,
    }
}

/// Hides what masked fields hold in all that a reading says but its origin, which a replay needs exact.
pub fn hide_in_reading(hidden: &MaskedValues, reading: &mut Reading) {
    for text in [&mut reading.exception_message, &mut reading.stacktrace].into_iter().flatten() {
        *text = hidden.hide(text).into_owned();
    }
    let names = [&mut reading.exception_class, &mut reading.cause_class, &mut reading.stage, &mut reading.consumer_group];
    for name in names.into_iter().flatten() {
        *name = hidden.hide_name(name).into_owned();
    }
}

fn group(record: &Record, settings: &DlqSettings, reading: &Reading, class: FailureClass) -> GroupIdentity {
    let trace = reading.stacktrace.as_deref();
    let exception_class = reading.cause_class.as_deref().or_else(|| trace.and_then(root_cause)).or(reading.exception_class.as_deref());
    let normalised_text = reading.exception_message.as_deref().map(normalise).unwrap_or_default();
    let top_frame = trace.and_then(top_frame);
    let fingerprint = fingerprint(&Ingredients {
        cluster: &settings.cluster,
        topic: &record.topic,
        consumer_group: reading.consumer_group.as_deref(),
        class,
        exception_class,
        normalised_text: &normalised_text,
        top_frame: top_frame.as_deref(),
    });
    GroupIdentity {
        fingerprint,
        consumer_group: reading.consumer_group.clone(),
        class,
        exception_class: exception_class.map(str::to_owned),
        normalised_text,
        top_frame,
    }
}

/// When a record was dead-lettered, and whether the timestamp that should have told is not to be believed (then: first seen). A dialect whose
/// timestamps are copied is flagged for its record's own, from which the event's age is taken.
fn dead_lettered_at(told_by: DeadLetteredAt, record_at_ms: Option<i64>, now_ms: i64) -> (i64, bool) {
    let plausible = |ms: &i64| (EARLIEST_PLAUSIBLE_MS..=now_ms.saturating_add(MAX_AHEAD_MS)).contains(ms);
    let told = match told_by {
        DeadLetteredAt::Header { ms } => Some(ms),
        DeadLetteredAt::Record | DeadLetteredAt::FirstSeen => record_at_ms,
    };
    match told.filter(plausible) {
        Some(ms) if told_by != DeadLetteredAt::FirstSeen => (ms, false),
        believed => (now_ms, believed.is_none()),
    }
}

/// Our own header says which attempt the replayed message was; this is the next.
fn lap(record: &Record) -> i32 {
    let header = record.headers.iter().rev().find(|header| header.name == b"lazaret-lap");
    let replayed = header.and_then(|header| std::str::from_utf8(header.value.as_deref()?).ok()?.parse::<i32>().ok());
    replayed.filter(|lap| *lap >= 1).map_or(1, |lap| lap.saturating_add(1))
}

/// SHA-256 over key, value and packed headers, each with its length before it; null has a length of its own.
pub fn body_hash(record: &Record) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [record.key.as_deref(), record.value.as_deref(), Some(&pack_headers(&record.headers))] {
        hash.update(part.map_or(u64::MAX, |bytes| bytes.len() as u64).to_be_bytes());
        hash.update(part.unwrap_or_default());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::super::record::Header;
    use super::super::settings::TopicMatch;
    use super::super::template::KeyTemplate;
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn record(headers: &[(&str, &[u8])], timestamp_ms: Option<i64>) -> Record {
        let headers = headers.iter().map(|(name, value)| Header { name: name.as_bytes().to_vec(), value: Some(value.to_vec()) });
        Record {
            topic: "t.DLQ".into(),
            partition: 0,
            offset: 0,
            timestamp_ms,
            key: None,
            value: Some(b"{\"id\":\"a\\u0000b\"}".to_vec()),
            headers: headers.collect(),
        }
    }

    fn settings() -> DlqSettings {
        DlqSettings::for_topics("main", TopicMatch::Names(vec!["t.DLQ".into()]))
    }

    fn taken(headers: &[(&str, &[u8])], timestamp_ms: Option<i64>) -> NewMessage {
        quarantine(record(headers, timestamp_ms), &settings(), &[], NOW)
    }

    #[test]
    fn only_a_plausible_timestamp_tells_when() {
        let new = |timestamp| {
            let message = taken(&[("kafka_dlt-original-topic", b"t")], timestamp);
            (message.dead_lettered_at_ms, message.timestamp_suspect, message.record_at_ms)
        };
        assert_eq!(new(Some(NOW - 5)), (NOW - 5, false, Some(NOW - 5)));
        assert_eq!(new(Some(NOW + MAX_AHEAD_MS)), (NOW + MAX_AHEAD_MS, false, Some(NOW + MAX_AHEAD_MS)));
        assert_eq!(new(Some(NOW + MAX_AHEAD_MS + 1)), (NOW, true, Some(NOW + MAX_AHEAD_MS + 1)));
        assert_eq!(new(Some(EARLIEST_PLAUSIBLE_MS - 1)), (NOW, true, Some(EARLIEST_PLAUSIBLE_MS - 1)));
        assert_eq!(new(Some(i64::MIN)), (NOW, true, Some(i64::MIN)));
        assert_eq!(new(None), (NOW, true, None));
    }

    #[test]
    fn a_copied_timestamp_never_tells_and_a_header_is_better() {
        let copied = taken(&[("__connect.errors.topic", b"t")], Some(NOW - 5));
        assert_eq!((copied.dead_lettered_at_ms, copied.timestamp_suspect), (NOW, false));
        let header = |at: &[u8]| {
            let message = taken(&[("exception-type", b"X"), ("failed-at", at)], Some(NOW - 9));
            (message.dead_lettered_at_ms, message.timestamp_suspect)
        };
        assert_eq!(header(b"1799999999000"), (1_799_999_999_000, false));
        assert_eq!(header(b"1799999999"), (NOW, true));
        assert_eq!(header(b"soon"), (NOW, false), "an unreadable header says nothing");
    }

    #[test]
    fn a_replayed_message_that_comes_back_is_on_its_next_lap() {
        let lap = |value: &[u8]| taken(&[("lazaret-lap", value)], None).lap;
        assert_eq!((lap(b"1"), lap(b"2"), taken(&[], None).lap), (2, 3, 1));
        assert_eq!((lap(b"0"), lap(b"-4"), lap(b"x"), lap(b"\xff"), lap(b"2147483647")), (1, 1, 1, 1, i32::MAX));
    }

    #[test]
    fn texts_are_cut_and_hold_no_nul() {
        let long = "é\0".repeat(100_000);
        let mut settings = settings();
        settings.business_key = Some(KeyTemplate::parse("{value:/id}").unwrap());
        settings.tenant = Some(KeyTemplate::parse("{header:x-exception-message}").unwrap());
        let headers: [(&str, &[u8]); 3] =
            [("x-exception-message", long.as_bytes()), ("x-exception-fqcn", long.as_bytes()), ("x-original-topic", long.as_bytes())];
        let message = quarantine(record(&headers, None), &settings, &[], NOW);
        assert_eq!(message.business_key.as_deref(), Some("a\u{2400}b"));
        let origin = message.origin.unwrap().topic.unwrap();
        for text in [
            message.exception_message.unwrap(),
            message.exception_class.unwrap(),
            message.tenant.unwrap(),
            message.group.normalised_text,
            origin,
        ] {
            assert!(text.len() <= 2 * EXCEPTION_MESSAGE_LIMIT && !text.contains('\0'), "{} bytes", text.len());
        }
    }

    #[test]
    fn an_error_text_is_stored_without_what_it_quotes_of_a_masked_field() {
        let mut settings = settings();
        settings.mask = vec!["/id".to_owned()];
        let headers: [(&str, &[u8]); 2] = [("x-exception-fqcn", b"X"), ("x-exception-message", b"no account SECRET-77 here")];
        let mut record = record(&headers, None);
        record.value = Some(b"{\"id\":\"SECRET-77\"}".to_vec());
        let message = quarantine(record.clone(), &settings, &[], NOW);
        assert_eq!(message.exception_message.as_deref(), Some("no account ••• here"));
        assert_eq!(message.group.normalised_text, "no account ••• here");
        assert_eq!(message.record, record, "the record itself stays exact");
    }

    #[test]
    fn names_are_stored_without_what_they_quote_of_a_masked_field() {
        let mut settings = settings();
        settings.mask = vec!["/id".to_owned()];
        let trace = b"com.acme.E: x\n\tat com.acme.A.handle_SECRET-77(A.java:3)\nCaused by: com.acme.No_SECRET-77: y\n\t... 3 more";
        let headers: [(&str, &[u8]); 4] = [
            ("kafka_dlt-exception-fqcn", b"com.acme.Missing_SECRET-77"),
            ("kafka_dlt-original-consumer-group", b"group-SECRET-77"),
            ("kafka_dlt-exception-stacktrace", trace),
            ("kafka_dlt-exception-cause-fqcn", b"com.acme.Lost_SECRET-77"),
        ];
        let mut record = record(&headers, None);
        record.value = Some(b"{\"id\":\"SECRET-77\"}".to_vec());
        let message = quarantine(record.clone(), &settings, &[], NOW);
        let stored = NewMessage { record: Record { headers: Vec::new(), value: None, ..message.record.clone() }, ..message.clone() };
        assert!(!format!("{stored:?}").contains("SECRET"), "{stored:?}");
        assert_eq!(message.exception_class.as_deref(), Some("com.acme.Lost_•••"));
        assert_eq!(message.consumer_group.as_deref(), Some("group-•••"));
        assert_eq!(message.record, record, "the record itself stays exact");
    }

    #[test]
    fn keys_that_repeat_a_masked_field_are_neither_shown_nor_found() {
        let mut settings = settings();
        settings.mask = vec!["/id".to_owned()];
        settings.business_key = Some(KeyTemplate::parse("{header:customer}").unwrap());
        settings.tenant = Some(KeyTemplate::parse("t-{key}").unwrap());
        let mut record = record(&[("customer", b"SECRET-77")], None);
        record.key = Some(b"SECRET-77".to_vec());
        record.value = Some(b"{\"id\":\"SECRET-77\"}".to_vec());
        let message = quarantine(record.clone(), &settings, &[], NOW);
        assert_eq!((message.key_masked, message.business_key.as_deref(), message.tenant.as_deref()), (true, Some(MASK), Some(MASK)));
        assert_eq!(message.record, record, "the record itself stays exact");
        record.value = Some(b"{\"id\":\"another\"}".to_vec());
        let message = quarantine(record, &settings, &[], NOW);
        assert_eq!((message.key_masked, message.business_key.as_deref()), (false, Some("SECRET-77")));
    }

    #[test]
    fn the_body_hash_tells_null_from_empty_and_where_a_part_ends() {
        let base = record(&[], None);
        let variants = [
            base.clone(),
            Record { key: Some(Vec::new()), ..base.clone() },
            Record { value: None, ..base.clone() },
            Record { value: Some(Vec::new()), ..base.clone() },
            Record { headers: vec![Header { name: b"a".to_vec(), value: None }], ..base.clone() },
            Record { headers: vec![Header { name: b"a".to_vec(), value: Some(Vec::new()) }], ..base },
        ];
        let mut hashes: Vec<_> = variants.iter().map(body_hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), variants.len());
    }

    #[test]
    fn one_failure_is_one_group_whatever_its_ids() {
        let group = |message: &[u8], line: &str| {
            let trace = format!("com.acme.E: x\n\tat com.acme.A.b(A.java:{line})");
            let headers: [(&str, &[u8]); 3] =
                [("x-exception-fqcn", b"com.acme.E"), ("x-exception-message", message), ("x-exception-stacktrace", trace.as_bytes())];
            taken(&headers, None).group
        };
        assert_eq!(group(b"order 12 failed", "3"), group(b"order 13 failed", "4"));
        assert_ne!(group(b"order 12 failed", "3").fingerprint, group(b"order 12 lost", "3").fingerprint);
        assert_eq!(group(b"", "3").top_frame.as_deref(), Some("com.acme.A.b"));
    }
}
