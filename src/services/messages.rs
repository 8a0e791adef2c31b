//! A message as pages and API show it: its bytes with the DLQ's masked fields hidden, and how each header was read.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::dialect::{self, FieldReading, Reading};
use crate::domain::json;
use crate::domain::mask::{MASK, MaskedValues};
use crate::domain::record::{Header, Record};
use crate::domain::settings::{DialectChoice, DlqSettings, settings_for};
use crate::store::groups::Group;
use crate::store::messages::{Body, MessageRow};
use crate::store::{Store, StoreError};

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
    /// No field of this DLQ is masked: the exact bytes.
    Plain(Vec<u8>),
    /// JSON written anew with `fields` replaced by [`MASK`]; all other digits and strings are as they were.
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
}

/// The exact bytes of a value, for the download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Download {
    Bytes(Vec<u8>),
    Null,
    Purged,
    /// Fields of this DLQ are masked: the exact bytes hold them.
    Masked,
}

impl Messages {
    /// One message with its body. None: there is no such message.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn view(&self, id: i64) -> Result<Option<MessageView>, StoreError> {
        let Some(mut row) = self.store.message(id).await? else {
            return Ok(None);
        };
        let mut body = self.store.body(id).await?;
        let group = self.store.group(row.group_id).await?;
        let settings = settings_for(&self.dlqs, &row.cluster, &row.topic);
        let (mut reading, mut fields) = match &body {
            Some(body) => read_again(&row, body, settings),
            None => (None, Vec::new()),
        };
        let mask = settings.map_or(&[][..], |settings| &settings.mask);
        if let Some(body) = &mut body {
            match MaskedValues::of(body.value.as_deref(), mask) {
                MaskedValues::Nothing => {}
                masked => hide_beside(&masked, &mut row, body, &mut reading, &mut fields),
            }
        }
        let (value, headers) = match body {
            None => (ShownValue::Purged, Vec::new()),
            Some(body) => (shown_value(body.value, mask), body.headers),
        };
        Ok(Some(MessageView { row, value, headers, reading, fields, group }))
    }

    /// The exact bytes of a value, unless fields of it are masked. None: there is no such message.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn download(&self, id: i64) -> Result<Option<(MessageRow, Download)>, StoreError> {
        let Some(row) = self.store.message(id).await? else {
            return Ok(None);
        };
        let masked = settings_for(&self.dlqs, &row.cluster, &row.topic).is_some_and(|settings| !settings.mask.is_empty());
        if masked {
            return Ok(Some((row, Download::Masked)));
        }
        let download = match self.store.body(id).await? {
            None => Download::Purged,
            Some(Body { value: None, .. }) => Download::Null,
            Some(Body { value: Some(value), .. }) => Download::Bytes(value),
        };
        Ok(Some((row, download)))
    }
}

/// Reads the stored headers again, so that the page explains them by today's rules and settings.
fn read_again(row: &MessageRow, body: &Body, settings: Option<&DlqSettings>) -> (Option<Reading>, Vec<FieldReading>) {
    let record = Record {
        topic: row.topic.clone(),
        partition: row.partition,
        offset: row.offset,
        timestamp_ms: row.record_at_ms,
        key: row.key.clone(),
        value: body.value.clone(),
        headers: body.headers.clone(),
    };
    let choice = settings.map_or(&DialectChoice::Auto, |settings| &settings.dialect);
    let reading = dialect::read(&record, choice, settings.and_then(|settings| settings.consumer_group.as_deref()));
    (Some(reading), dialect::field_readings(&record, choice))
}

/// Hides in everything beside the value what it holds in masked fields. Where that is not known, only texts that quote values suffer:
/// an offset in eight bytes is none.
fn hide_beside(masked: &MaskedValues, row: &mut MessageRow, body: &mut Body, reading: &mut Option<Reading>, fields: &mut [FieldReading]) {
    let known = matches!(masked, MaskedValues::Known(_));
    let quotes = |field: &FieldReading| known || matches!(field.meaning, "exception message" | "stack trace");
    for (index, header) in body.headers.iter_mut().enumerate() {
        let mut readings = fields.iter().filter(|field| field.header == Some(index)).peekable();
        // What nobody reads may quote anything.
        if (known || readings.peek().is_none() || readings.any(quotes))
            && let Some(value) = &mut header.value
            && let Ok(text) = std::str::from_utf8(value)
        {
            *value = masked.hide(text).into_owned().into_bytes();
        }
    }
    let texts = fields.iter_mut().filter(|field| quotes(field)).map(|field| &mut field.value);
    let read = reading.iter_mut().flat_map(|reading| [&mut reading.exception_message, &mut reading.stacktrace]).flatten();
    // Stored before its DLQ was masked.
    let stored = row.exception_message.iter_mut();
    for text in texts.chain(read).chain(stored) {
        *text = masked.hide(text).into_owned();
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
    // Of a field that is there twice only the last is kept: the first cannot leak.
    let Some(mut json) = json::parse(&bytes) else {
        return ShownValue::Withheld;
    };
    let fields: Vec<String> = mask.iter().filter(|pointer| hide(&mut json, pointer)).cloned().collect();
    ShownValue::Masked { json: json.to_string(), fields }
}

/// Replaces what the pointer names. Whether it named anything but null.
fn hide(json: &mut Value, pointer: &str) -> bool {
    match json.pointer_mut(pointer) {
        Some(Value::Null) | None => false,
        Some(place) => {
            *place = Value::String(MASK.to_owned());
            true
        }
    }
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
        let value = r#"{"id":9007199254740993,"card":{"number":"4111111111111111","net":"visa"},"n":1.10,"big":12e-400}"#;
        let ShownValue::Masked { json, fields } = masked(value, &["/card/number", "/email"]) else { panic!("masked") };
        assert_eq!(json, r#"{"id":9007199254740993,"card":{"number":"•••","net":"visa"},"n":1.10,"big":12e-400}"#);
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
        assert_eq!(json, r#"{"email":"•••"}"#);
    }

    #[test]
    fn what_cannot_be_searched_for_the_field_is_withheld() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for value in ["card=4111", "", "{\"email\":\"a@b.c\"", deep.as_str()] {
            assert_eq!(masked(value, &["/email"]), ShownValue::Withheld, "{value}");
        }
        assert_eq!(masked("card=4111", &[]), ShownValue::Plain(b"card=4111".to_vec()));
        assert_eq!(shown_value(None, &["/email".to_owned()]), ShownValue::Null);
    }
}
