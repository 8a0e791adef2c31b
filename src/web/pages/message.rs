//! `/messages/{id}`: why did it fail, what is it, where did it come from?

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::group::identity;
use super::{Look, Shell, SignedIn, When, dlq_path, group_title, kind_after_label, words};
use crate::api::Failure;
use crate::api::dlqs::names_could_be;
use crate::api::messages::{unknown_message, value_note};
use crate::api::query::{self, Query};
use crate::domain::dialect::{FieldReading, Reading};
use crate::domain::record::{Header, display_text};
use crate::services::messages::{Download, MessageView, ShownValue};
use crate::store::messages::MessageRow;
use crate::web::AppState;
use crate::web::view::{format, text};

/// Exception texts and stack traces are stored cut to a few kB; a page shows no more than this of one.
const TEXT_CAP: usize = 16_000;
/// Header values longer than this are cut on the page.
const HEADER_CAP: usize = 2_000;
/// A record of a megabyte has room for hundreds of thousands of headers; a page shows so many.
const HEADERS_SHOWN: usize = 500;

#[derive(Template, WebTemplate)]
#[template(path = "messages/message.html")]
pub struct MessagePage {
    shell: Shell,
    id: i64,
    dlq_path: String,
    permalink: String,
    cluster: String,
    topic: String,
    title: String,
    said: Option<String>,
    stacktrace: Option<String>,
    state: String,
    class: &'static str,
    class_reason: String,
    group_id: i64,
    group_title: Option<String>,
    identity: Vec<(&'static str, Option<String>)>,
    facts: Vec<Fact>,
    times: Vec<TimeFact>,
    value: ValueBox,
    headers: Vec<HeaderLine>,
    /// All there are, shown or not.
    header_count: usize,
    history: Option<String>,
}

struct Fact {
    name: &'static str,
    /// None is shown as unknown.
    value: Option<String>,
    note: Option<String>,
}

struct TimeFact {
    name: &'static str,
    when: Option<When>,
    note: Option<&'static str>,
}

struct ValueBox {
    /// What is shown, or None when there is nothing to show.
    shown: Option<String>,
    /// "12,431 bytes", "null (a tombstone)", "empty".
    what: String,
    notes: Vec<String>,
    hex: bool,
    /// The other of text and hex; None where there is no choice.
    toggle: Option<String>,
    download: bool,
}

struct HeaderLine {
    name: String,
    /// None is a null value.
    value: Option<String>,
    is_empty: bool,
    reading: Option<String>,
    odd: bool,
}

/// `GET /messages/{id}`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<MessagePage, Failure> {
    let query = Query::parse(raw.as_deref(), &["view"])?;
    let view = match query.text("view")? {
        None | Some("text" | "hex") => query.text("view")?,
        Some(other) => return Err(Failure::bad_request(format!("The parameter view is text or hex, not {other:?}."))),
    };
    let found = match query::id(&id) {
        Some(id) => state.messages.view(id).await?,
        None => None,
    };
    let message = found.ok_or_else(|| unknown_message(&id))?;
    let shell = Shell::new(&state, Some(&principal), look, "messages");
    Ok(build(shell, message, view, state.clock.now_ms()))
}

fn build(shell: Shell, message: MessageView, view: Option<&str>, now_ms: i64) -> MessagePage {
    let MessageView { row, value, headers, reading, fields, group } = message;
    let dlq = dlq_path(&row.cluster, &row.topic);
    let exception = row.exception_class.as_deref().map(|class| text::short_line(class, 500));
    let stacktrace = reading.as_ref().and_then(|reading| reading.stacktrace.as_deref());
    MessagePage {
        shell,
        id: row.id,
        permalink: permalink_path(&row),
        cluster: text::line(&row.cluster),
        topic: text::line(&row.topic),
        title: exception.unwrap_or_else(|| "No exception named".to_owned()),
        said: row.exception_message.as_deref().map(|said| cut_block(said, TEXT_CAP)),
        stacktrace: stacktrace.map(|trace| cut_block(trace, TEXT_CAP)),
        state: words(row.state.as_str()),
        class: kind_after_label(row.class),
        class_reason: text::short_line(&row.class_reason, 300),
        group_id: row.group_id,
        group_title: group.as_ref().map(group_title),
        identity: group.as_ref().map(identity).unwrap_or_default(),
        facts: facts(&row, reading.as_ref(), &fields),
        times: times(&row, now_ms),
        value: value_box(row.id, &value, view),
        headers: header_lines(&headers, &fields),
        header_count: headers.len(),
        history: reading.filter(|reading| !reading.history.is_empty()).map(|reading| {
            let older: Vec<&str> = reading.history.iter().map(|dialect| dialect.as_str()).collect();
            format!("It also carries headers of {}: an older failure.", older.join(", "))
        }),
        dlq_path: dlq,
    }
}

fn permalink_path(row: &MessageRow) -> String {
    format!("{}/{}/{}?incarnation={}", dlq_path(&row.cluster, &row.topic), row.partition, row.offset, row.incarnation)
}

fn cut_block(said: &str, cap: usize) -> String {
    match said.char_indices().nth(cap) {
        Some((end, _)) => format!("{}…\n(cut here: {} more)", text::block(&said[..end]), format::bytes((said.len() - end) as i64)),
        None => text::block(said),
    }
}

fn facts(row: &MessageRow, reading: Option<&Reading>, fields: &[FieldReading]) -> Vec<Fact> {
    let fact = |name, value: Option<String>| Fact { name, value, note: None };
    let text_of = |value: &Option<String>| value.as_deref().map(|value| text::short_line(value, 500));
    let key = row.key.as_deref().map(|key| if key.is_empty() { "empty".to_owned() } else { text::bytes_line(key, 200) });
    let came_from = [
        row.origin_topic.as_deref().map(|topic| text::short_line(topic, 250)),
        row.origin_partition.map(|partition| format!("partition {partition}")),
        row.origin_offset.map(|offset| format!("offset {offset}")),
    ];
    let came_from: Vec<String> = came_from.into_iter().flatten().collect();
    // One dialect says it all in the record's key.
    let read_from_key =
        fields.iter().filter(|field| field.header.is_none()).map(reading_in_words).reduce(|all, said| format!("{all}; {said}"));
    let recreated = (row.incarnation > 1).then(|| format!("of the {} topic of that name", format::ordinal(row.incarnation)));
    vec![
        fact("Came from", (!came_from.is_empty()).then(|| came_from.join(", "))),
        fact("Consumer group", text_of(&row.consumer_group)),
        fact("Attempts before giving up", row.attempts.map(|attempts| attempts.to_string())),
        fact("Stage", reading.and_then(|reading| text_of(&reading.stage))),
        fact("Header format", Some(text::short_line(&row.dialect, 60))),
        fact("Business key", row.business_key.as_deref().map(|key| text::short_line(key, 200))),
        fact("Tenant", text_of(&row.tenant)),
        Fact { name: "Record key", value: Some(key.unwrap_or_else(|| "null".to_owned())), note: read_from_key },
        Fact {
            name: "Stored from",
            value: Some(format!("{}, partition {}, offset {}", text::line(&row.topic), row.partition, row.offset)),
            note: recreated,
        },
        fact("Size", Some(format!("{} bytes of key, value and headers", format::exact(row.size)))),
        fact(
            "Decision",
            [&row.resolution, &row.outcome, &row.reason]
                .into_iter()
                .flatten()
                .map(|part| text::short_line(part, 500))
                .reduce(|all, part| format!("{all} · {part}")),
        ),
    ]
    .into_iter()
    // Not every framework has stages, nor every DLQ tenants: those rows show only where there is something.
    .filter(|fact| fact.value.is_some() || !matches!(fact.name, "Stage" | "Tenant" | "Business key" | "Decision"))
    .collect()
}

fn times(row: &MessageRow, now_ms: i64) -> Vec<TimeFact> {
    let exact = |at: i64| When { utc: format::utc_exact(at), ..When::of(at, now_ms) };
    let suspect = row
        .timestamp_suspect
        .then_some("not to be trusted: missing, before 2000 or ahead of the clock; when we first saw it counts instead");
    vec![
        TimeFact { name: "Dead-lettered", when: Some(exact(row.dead_lettered_at_ms)), note: None },
        TimeFact { name: "Event before it failed", when: row.origin_at_ms.map(exact), note: None },
        TimeFact { name: "Record's own timestamp", when: row.record_at_ms.map(exact), note: suspect },
        TimeFact { name: "First seen by Lazaret", when: Some(exact(row.first_seen_at_ms)), note: None },
    ]
}

fn value_box(id: i64, value: &ShownValue, view: Option<&str>) -> ValueBox {
    let notes: Vec<String> = value_note(value).into_iter().collect();
    let nothing = |what: &str, notes| ValueBox { shown: None, what: what.to_owned(), notes, hex: false, toggle: None, download: false };
    match value {
        ShownValue::Purged => nothing("removed", notes),
        ShownValue::Withheld => nothing("withheld", notes),
        ShownValue::Null => nothing("null: a tombstone", notes),
        ShownValue::Plain(bytes) if bytes.is_empty() => ValueBox { download: true, ..nothing("empty, which is not null", notes) },
        ShownValue::Plain(bytes) => shown_bytes(id, bytes, view, notes),
        ShownValue::Masked { json, .. } => ValueBox { download: false, ..shown_bytes(id, json.as_bytes(), view, notes) },
    }
}

fn shown_bytes(id: i64, bytes: &[u8], view: Option<&str>, mut notes: Vec<String>) -> ValueBox {
    let is_text = std::str::from_utf8(bytes).is_ok();
    let hex = view.map_or(!is_text, |view| view == "hex");
    let cap = if hex { text::HEX_CAP } else { text::VALUE_CAP };
    if bytes.len() > cap {
        notes.push(format!("Cut: the first {} of {} bytes are shown.", format::exact(cap as i64), format::exact(bytes.len() as i64)));
    }
    if !is_text && !hex {
        notes.push("Not UTF-8: bytes that are no text are shown as \u{fffd}.".to_owned());
    }
    ValueBox {
        shown: Some(if hex { text::hex_dump(bytes) } else { text::value_text(bytes) }),
        what: format::counted(bytes.len() as i64, "byte", "bytes"),
        notes,
        hex,
        toggle: Some(format!("/messages/{id}?view={}#value", if hex { "text" } else { "hex" })),
        download: true,
    }
}

fn header_lines(headers: &[Header], fields: &[FieldReading]) -> Vec<HeaderLine> {
    let mut by_header: BTreeMap<usize, Vec<&FieldReading>> = BTreeMap::new();
    for field in fields {
        if let Some(index) = field.header {
            by_header.entry(index).or_default().push(field);
        }
    }
    let line = |(index, header): (usize, &Header)| {
        let read = by_header.get(&index).map_or(&[][..], Vec::as_slice);
        let said: Vec<String> = read.iter().map(|field| reading_in_words(field)).collect();
        HeaderLine {
            name: text::short_line(&display_text(&header.name), 250),
            value: header.value.as_deref().map(header_value),
            is_empty: header.value.as_ref().is_some_and(Vec::is_empty),
            reading: (!said.is_empty()).then(|| said.join("; ")),
            odd: read.iter().any(|field| field.odd),
        }
    };
    headers.iter().enumerate().take(HEADERS_SHOWN).map(line).collect()
}

fn reading_in_words(field: &FieldReading) -> String {
    format!("{}: {}", field.meaning, text::short_line(&field.value, 300))
}

/// Text where the bytes are readable text, else hex: an offset in eight bytes is no text even where it is valid UTF-8.
fn header_value(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(said) if !said.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => cut_block(said, HEADER_CAP),
        Ok(said) if bytes.len() > 16 => cut_block(said, HEADER_CAP),
        _ => text::bytes_line_hex(bytes, HEADER_CAP / 2),
    }
}

/// `GET /messages/{id}/value`: the exact bytes as a download.
pub async fn value(State(state): State<AppState>, Path(id): Path<String>, RawQuery(raw): RawQuery) -> Result<Response, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let found = match query::id(&id) {
        Some(id) => state.messages.download(id).await?,
        None => None,
    };
    let (row, download) = found.ok_or_else(|| unknown_message(&id))?;
    let bytes = match download {
        Download::Bytes(bytes) => bytes,
        Download::Null => return Err(Failure::not_found("The value is null (a tombstone): there are no bytes to download.")),
        Download::Purged => return Err(Failure::new(StatusCode::GONE, "The bytes were removed after their retention.")),
        Download::Masked => {
            return Err(Failure::forbidden(
                "Fields of this DLQ are masked, and the exact bytes hold them: they are not given out. The page shows the rest.",
            ));
        }
    };
    let file = format!("attachment; filename=\"message-{}.bin\"", row.id);
    let headers = [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_DISPOSITION, file)];
    Ok((headers, bytes).into_response())
}

/// `GET /dlqs/{cluster}/{topic}/{partition}/{offset}?incarnation=`: to the message, of the newest incarnation that has the offset.
pub async fn permalink(
    State(state): State<AppState>,
    Path((cluster, topic, partition, offset)): Path<(String, String, String, String)>,
    RawQuery(raw): RawQuery,
) -> Result<Redirect, Failure> {
    let query = Query::parse(raw.as_deref(), &["incarnation"])?;
    let incarnation = query.integer("incarnation", 1, i32::MAX)?;
    let unknown = || {
        let which = incarnation.map_or_else(String::new, |number| format!(" of the {} topic", format::ordinal(number)));
        Failure::not_found(format!(
            "No message is stored for {topic:?}, partition {partition}, offset {offset}{which} in cluster {cluster:?}."
        ))
    };
    let (Ok(partition_number), Ok(offset_number), true) =
        (partition.parse::<i32>(), offset.parse::<i64>(), names_could_be(&cluster, &topic))
    else {
        return Err(unknown());
    };
    let row = state.store.message_at(&cluster, &topic, partition_number, offset_number, incarnation).await?;
    row.map(|row| Redirect::to(&format!("/messages/{}", row.id))).ok_or_else(unknown)
}

/// `POST /messages/{id}/reveal`.
pub async fn reveal() -> Result<axum::response::Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
