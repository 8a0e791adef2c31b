//! A message as pages and API show it: its bytes with the DLQ's masked fields hidden, and how each header was read. And the one way around
//! the mask: a person reveals it, with a reason, on the trail.
//!
//! Values reach 20 MB and more, so whatever walks one does it off the async threads.

use std::sync::Arc;

use serde_json::json;

use crate::domain::audit::{Action, By, Event};
use crate::domain::dialect::{self, FieldReading, Reading};
use crate::domain::json;
use crate::domain::mask::{MaskedValues, masked};
use crate::domain::message::hide_in_reading;
use crate::domain::record::{Header, Record};
use crate::domain::settings::{DialectChoice, DlqSettings, settings_for};
use crate::store::groups::Group;
use crate::store::messages::{Body, MessageRow};
use crate::store::transitions::Transition;
use crate::store::verdicts::Verdict;
use crate::store::{Store, StoreError, audit};

/// Why a message could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The thread that walked the value was lost.
    #[error("a message could not be prepared: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// Messages over the store, with what was configured for their DLQs.
#[derive(Debug, Clone)]
pub struct Messages {
    pub store: Store,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
}

/// The value of a message, as far as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownValue {
    /// The bytes were removed after their retention.
    Purged,
    /// A null value: a tombstone. An empty value is `Plain` of no bytes.
    Null,
    /// The exact bytes.
    Plain(Vec<u8>),
    /// JSON as written but for `fields`, which [`crate::domain::mask::MASK`] replaces. No fields: none of the masked ones is in this value.
    Masked { json: String, fields: Vec<String> },
    /// Fields are masked, but this value is not JSON in which they could be found: nothing of it is shown.
    Withheld,
}

/// Everything the message page and `GET /api/v1/messages/{id}` need.
#[derive(Debug, Clone)]
pub struct MessageView {
    pub row: MessageRow,
    pub value: ShownValue,
    /// In the record's order; empty when the body was purged.
    pub headers: Vec<Header>,
    /// How the headers read today; None when the body was purged.
    pub reading: Option<Reading>,
    /// Which header was read as what.
    pub fields: Vec<FieldReading>,
    pub group: Option<Group>,
    pub evidence: Evidence,
}

/// What happened to a message, and what its checks found.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Oldest first.
    pub transitions: Vec<Transition>,
    /// Newest first.
    pub verdicts: Vec<Verdict>,
}

/// The exact bytes of a value, for the download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Download {
    Bytes(Vec<u8>),
    Null,
    Purged,
    /// Masked fields of this DLQ are in the exact bytes, or may be.
    Masked,
}

/// What the mask hid of one value, shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revelation {
    /// The exact bytes.
    pub value: Vec<u8>,
    /// Each masked field that is in the value, with its JSON as written. Empty when the value is no JSON in which they could be found.
    pub fields: Vec<(String, String)>,
}

/// What a person asks for who reveals.
#[derive(Debug, Clone, Copy)]
pub struct Reveal<'a> {
    pub by: &'a By,
    pub reason: &'a str,
    /// As a file rather than on the page.
    pub download: bool,
    pub now_ms: i64,
}

impl Messages {
    /// One message with its body. None: there is no such message.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn view(&self, id: i64) -> Result<Option<MessageView>, MessagesError> {
        let Some(row) = self.store.message(id).await? else {
            return Ok(None);
        };
        let body = self.store.body(id).await?;
        let group = self.store.group(row.group_id).await?;
        let evidence = Evidence { transitions: self.store.transitions(id).await?, verdicts: self.store.verdicts(id).await? };
        let settings = self.settings(&row).cloned();
        Ok(Some(tokio::task::spawn_blocking(move || shown(row, body, group, evidence, settings.as_ref())).await?))
    }

    /// The exact bytes of a value, unless fields of it are masked. None: there is no such message.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn download(&self, id: i64) -> Result<Option<(MessageRow, Download)>, MessagesError> {
        let Some(row) = self.store.message(id).await? else {
            return Ok(None);
        };
        let download = match self.store.body(id).await? {
            None => Download::Purged,
            Some(Body { value: None, .. }) => Download::Null,
            Some(Body { value: Some(value), .. }) => {
                let mask = self.mask(&row).to_vec();
                tokio::task::spawn_blocking(move || match hides_something(&value, &mask) {
                    true => Download::Masked,
                    false => Download::Bytes(value),
                })
                .await?
            }
        };
        Ok(Some((row, download)))
    }

    /// Shows what the mask hides of a value, once it is on the trail: which fields, who and why, never what they hold. None: nothing of this
    /// message is hidden, or there is no such message.
    ///
    /// # Errors
    /// The database could not be asked, or the trail not be written; then nothing is shown.
    pub async fn reveal(&self, id: i64, reveal: Reveal<'_>) -> Result<Option<Revelation>, MessagesError> {
        let Some(row) = self.store.message(id).await? else { return Ok(None) };
        let Some(value) = self.store.body(id).await?.and_then(|body| body.value) else { return Ok(None) };
        let mask = self.mask(&row).to_vec();
        let Some(revelation) = tokio::task::spawn_blocking(move || revelation(value, &mask)).await? else { return Ok(None) };
        let mut event = Event::new(reveal.now_ms, reveal.by, Action::Revealed, format!("message {id}"));
        event.reason = Some(reveal.reason.to_owned());
        let whole_value = revelation.fields.is_empty();
        let fields = match whole_value {
            true => self.mask(&row).to_vec(),
            false => revelation.fields.iter().map(|(pointer, _)| pointer.clone()).collect(),
        };
        event.after = Some(json!({ "fields": fields, "whole_value": whole_value || reveal.download, "download": reveal.download }));
        let mut tx = self.store.begin().await?;
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(Some(revelation))
    }

    /// What was configured for the DLQ of a message.
    pub fn settings(&self, row: &MessageRow) -> Option<&DlqSettings> {
        settings_for(&self.dlqs, &row.cluster, &row.topic)
    }

    fn mask(&self, row: &MessageRow) -> &[String] {
        self.settings(row).map_or(&[], |settings| &settings.mask)
    }
}

fn shown(
    mut row: MessageRow,
    body: Option<Body>,
    mut group: Option<Group>,
    mut evidence: Evidence,
    settings: Option<&DlqSettings>,
) -> MessageView {
    let mask = settings.map_or(&[][..], |settings| &settings.mask);
    let Some(Body { key, value, mut headers, .. }) = body else {
        hide_in_evidence(&MaskedValues::of(None, mask), &mut evidence);
        return MessageView { row, value: ShownValue::Purged, headers: Vec::new(), reading: None, fields: Vec::new(), group, evidence };
    };
    let hidden = MaskedValues::of(value.as_deref(), mask);
    // Reading headers wants a whole record: it takes the parts over and gives them back.
    let record = Record {
        topic: row.topic.clone(),
        partition: row.partition,
        offset: row.offset,
        timestamp_ms: row.record_at_ms,
        key,
        value,
        headers,
    };
    let choice = settings.map_or(&DialectChoice::Auto, |settings| &settings.dialect);
    let mut reading = Some(dialect::read(&record, choice, settings.and_then(|settings| settings.consumer_group.as_deref())));
    let mut fields = dialect::field_readings(&record, choice);
    headers = record.headers;
    if hidden != MaskedValues::Nothing {
        hide_in_headers(&hidden, &mut headers, &mut fields);
        hide_in_texts(&hidden, &mut row, reading.as_mut(), group.as_mut());
        hide_in_evidence(&hidden, &mut evidence);
    }
    MessageView { row, value: shown_value(record.value, mask), headers, reading, fields, group, evidence }
}

/// Hides in the headers what masked fields hold. Where that is not known, those suffer that quote values, those that nobody reads, and those whose
/// text does not read as a name or a number.
fn hide_in_headers(hidden: &MaskedValues, headers: &mut [Header], fields: &mut [FieldReading]) {
    let known = matches!(hidden, MaskedValues::Known(_));
    let quotes = |field: &FieldReading| known || matches!(field.meaning, "exception message" | "stack trace");
    for field in fields.iter_mut().filter(|field| quotes(field)) {
        field.value = hidden.hide(&field.value).into_owned();
    }
    for (index, header) in headers.iter_mut().enumerate() {
        if known {
            header.name = hidden.hide_bytes(&header.name);
        }
        let Some(value) = &mut header.value else { continue };
        let mut readings = fields.iter().filter(|field| field.header == Some(index)).peekable();
        if known || readings.peek().is_none() || readings.any(quotes) {
            *value = hidden.hide_bytes(value);
        } else if let Some(text) = printable(value) {
            let shown = hidden.hide_name(text);
            if shown != text {
                fields.iter_mut().filter(|field| field.header == Some(index)).for_each(|field| field.value = shown.clone().into_owned());
                *value = shown.into_owned().into_bytes();
            }
        }
    }
}

/// A header's value as text; None where it is a number in bytes, or other bytes.
fn printable(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Hides in reasons, and in what checks asked and were answered, what masked fields hold. Where that is not known, only what checks wrote suffers: a reason
/// is what a person typed.
fn hide_in_evidence(hidden: &MaskedValues, evidence: &mut Evidence) {
    let mut texts: Vec<&mut String> = Vec::new();
    for step in &mut evidence.transitions {
        texts.extend(step.reason.as_mut().filter(|_| matches!(hidden, MaskedValues::Known(_))));
        texts.extend(step.evidence.as_mut());
    }
    for verdict in &mut evidence.verdicts {
        texts.extend([&mut verdict.schema_note, &mut verdict.asked, &mut verdict.answered].into_iter().flatten());
    }
    for text in texts {
        *text = hidden.hide(text).into_owned();
    }
}

/// Hides in all other texts what masked fields hold. What was stored before its DLQ was masked holds it as it came.
fn hide_in_texts(hidden: &MaskedValues, row: &mut MessageRow, reading: Option<&mut Reading>, group: Option<&mut Group>) {
    if let Some(said) = row.exception_message.as_mut() {
        *said = hidden.hide(said).into_owned();
    }
    if let Some(reading) = reading {
        hide_in_reading(hidden, reading);
    }
    let mut names: Vec<&mut String> = Vec::new();
    names.extend([&mut row.exception_class, &mut row.consumer_group].into_iter().flatten());
    let mut known: Vec<&mut String> = vec![&mut row.class_reason];
    known.extend([&mut row.business_key, &mut row.tenant, &mut row.reason].into_iter().flatten());
    if let Some(group) = group {
        known.push(&mut group.normalised_text);
        known.extend(group.top_frame.as_mut());
        names.extend([&mut group.exception_class, &mut group.consumer_group].into_iter().flatten());
    }
    for name in names {
        *name = hidden.hide_name(name).into_owned();
    }
    if matches!(hidden, MaskedValues::Known(_)) {
        for text in known {
            *text = hidden.hide(text).into_owned();
        }
        if let Some(key) = &mut row.key {
            let shown = hidden.hide_bytes(key);
            row.key_masked |= shown != *key;
            *key = shown;
        }
    }
}

/// Hides the masked fields of a value. Where fields are masked and cannot be found, because the value is not JSON, all of it is withheld.
fn shown_value(value: Option<Vec<u8>>, mask: &[String]) -> ShownValue {
    let Some(bytes) = value else {
        return ShownValue::Null;
    };
    if mask.is_empty() {
        return ShownValue::Plain(bytes);
    }
    match masked(&bytes, mask) {
        Ok((json, fields)) => ShownValue::Masked { json, fields },
        Err(_) => ShownValue::Withheld,
    }
}

/// Whether masked fields are in the value, or may be.
fn hides_something(value: &[u8], mask: &[String]) -> bool {
    !mask.is_empty() && json::find(value, mask).map_or(true, |found| found.iter().any(|field| !field.is_null))
}

fn revelation(value: Vec<u8>, mask: &[String]) -> Option<Revelation> {
    if !hides_something(&value, mask) {
        return None;
    }
    let found = json::find(&value, mask).unwrap_or_default();
    let written = |field: json::Found| (mask[field.pointer].clone(), String::from_utf8_lossy(&value[field.start..field.end]).into_owned());
    let fields = found.into_iter().filter(|field| !field.is_null).map(written).collect();
    Some(Revelation { value, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(value: &str, mask: &[&str]) -> ShownValue {
        let mask: Vec<String> = mask.iter().map(|pointer| (*pointer).to_owned()).collect();
        shown_value(Some(value.as_bytes().to_vec()), &mask)
    }

    #[test]
    fn masked_fields_go_and_everything_else_stays_exact() {
        let value = r#"{"id":9007199254740993,"card":{"number":"4111111111111111","net":"visa"},"n":1.10,"big":1e400}"#;
        let ShownValue::Masked { json, fields } = masked(value, &["/card/number", "/email"]) else { panic!("masked") };
        assert_eq!(json, r#"{"id":9007199254740993,"card":{"number":"•••","net":"visa"},"n":1.10,"big":1e400}"#);
        assert_eq!(fields, ["/card/number"]);
    }

    #[test]
    fn whole_objects_list_elements_and_the_root_can_be_masked() {
        for (value, pointer, shown) in [
            (r#"{"card":{"number":"4111"}}"#, "/card", r#"{"card":"•••"}"#),
            (r#"{"cards":[{"n":"4111"}]}"#, "/cards/0/n", r#"{"cards":[{"n":"•••"}]}"#),
            (r#"{"a/b":"4111"}"#, "/a~1b", r#"{"a/b":"•••"}"#),
            (r#""4111""#, "", r#""•••""#),
        ] {
            let ShownValue::Masked { json, .. } = masked(value, &[pointer]) else { panic!("masked") };
            assert_eq!(json, shown);
        }
    }

    #[test]
    fn a_field_given_twice_does_not_leak_its_first_value() {
        let ShownValue::Masked { json, .. } = masked(r#"{"email":"a@b.c","email":"x@y.z"}"#, &["/email"]) else { panic!("masked") };
        assert_eq!(json, r#"{"email":"•••","email":"•••"}"#);
    }

    #[test]
    fn what_cannot_be_searched_for_the_field_is_withheld() {
        let deep = format!(r#"{}{{"email":"a@b.c"}}{}"#, "[".repeat(100_000), "]".repeat(99_999));
        for value in ["card=4111", "", "{\"email\":\"a@b.c\"", deep.as_str()] {
            assert_eq!(masked(value, &["/email"]), ShownValue::Withheld, "{value}");
        }
        assert_eq!(masked("card=4111", &[]), ShownValue::Plain(b"card=4111".to_vec()));
        assert_eq!(shown_value(None, &["/email".to_owned()]), ShownValue::Null);
    }
}
