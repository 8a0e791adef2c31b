//! Exports: the rows of the same query as the list, as CSV or JSON, numbers exact. Messages are read and sent page by page, so no export is held in
//! memory; a reader that goes away takes the query with it.

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::Acting;
use crate::api::Failure;
use crate::api::dlqs::{DLQ_FILTER, DlqFilter, DlqItem};
use crate::api::messages::MessageItem;
use crate::api::query::{MAX_LIMIT, MESSAGE_FILTER, Query};
use crate::domain::audit::By;
use crate::services::export::Exports;
use crate::store::messages::{MessageFilter, MessagePage};
use crate::store::{Store, StoreError};
use crate::web::AppState;
use crate::web::view::format::{file_time, machine_time};

/// What the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Json,
}

impl Format {
    fn of(query: &Query) -> Result<Format, Failure> {
        match query.text("format")? {
            Some("csv") => Ok(Format::Csv),
            Some("json") => Ok(Format::Json),
            other => Err(Failure::bad_request(format!("The parameter format must be csv or json, not {:?}.", other.unwrap_or_default()))),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Json => "json",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Format::Csv => "text/csv; charset=utf-8",
            Format::Json => "application/json",
        }
    }
}

/// `GET /messages/export?format=`: newest first, as of the newest when it began. A page's `after` does not narrow it.
pub async fn messages(State(state): State<AppState>, Acting { by, .. }: Acting, RawQuery(raw): RawQuery) -> Result<Response, Failure> {
    let known = [&MESSAGE_FILTER[..], &["after", "format"]].concat();
    let query = Query::parse(raw.as_deref(), &known)?;
    let format = Format::of(&query)?;
    let filter = query.message_filter()?;
    let subject = match (&filter.cluster, &filter.topic) {
        (Some(cluster), Some(topic)) => format!("dlq {cluster}/{topic}"),
        _ => "messages".to_owned(),
    };
    let now_ms = begin(&state, &by, subject, &query, format).await?;
    // The first page before the answer begins: a database that does not answer is an error, and no half file.
    let first = state.store.messages(&filter, None, MAX_LIMIT).await?;
    let name = filter.topic.clone().unwrap_or_else(|| "messages".to_owned());
    let walk = Walk { store: state.store.clone(), filter, format, next: Step::Start(first, now_ms) };
    Ok(file(&name, now_ms, format, Body::from_stream(stream::try_unfold(walk, Walk::step))))
}

/// `GET /export?format=`: the overview's rows.
pub async fn dlqs(State(state): State<AppState>, Acting { by, .. }: Acting, RawQuery(raw): RawQuery) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &[&DLQ_FILTER[..], &["format"]].concat())?;
    let format = Format::of(&query)?;
    let filter = DlqFilter::parse(&query)?;
    let now_ms = begin(&state, &by, "overview".to_owned(), &query, format).await?;
    let rows = state.health.all().await?;
    let items: Vec<DlqItem> = rows.iter().filter(|row| filter.covers(row)).map(DlqItem::from).collect();
    let bytes = dlq_file(&items, format, now_ms).map_err(Broken::from)?;
    Ok(file("dlqs", now_ms, format, Body::from(bytes)))
}

fn dlq_file(items: &[DlqItem], format: Format, now_ms: i64) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = opening(format, now_ms, &DLQ_COLUMNS)?;
    match format {
        Format::Csv => bytes.extend(csv_rows(items.iter().map(dlq_cells))?),
        Format::Json => bytes.extend(json_rows(items, true)?),
    }
    bytes.extend(closing(format));
    Ok(bytes)
}

async fn begin(state: &AppState, by: &By, subject: String, query: &Query, format: Format) -> Result<i64, Failure> {
    let exports = Exports { store: state.store.clone(), clock: state.clock.clone() };
    // What somebody looks for may be what a mask hides: the trail holds that it was given, not what it was.
    let given: Vec<(&str, &str)> =
        ["q", "key"].into_iter().filter(|name| query.pairs().any(|(there, _)| there == *name)).map(|name| (name, "given")).collect();
    Ok(exports.begin(by, subject, &query.rewritten(&["after", "format", "q", "key"], &given), format.word()).await?)
}

fn file(name: &str, now_ms: i64, format: Format, body: Body) -> Response {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = name.chars().take(150).map(plain).collect();
    let disposition = format!("attachment; filename=\"lazaret-{name}-{}.{}\"", file_time(now_ms), format.word());
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.kind()));
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// An export of messages on its way down the list.
struct Walk {
    store: Store,
    filter: MessageFilter,
    format: Format,
    next: Step,
}

enum Step {
    /// The first page, read already, and when that was.
    Start(MessagePage, i64),
    /// The page after this id.
    After(i64),
    Done,
}

impl Walk {
    /// One more piece of the file. An error breaks the transfer off, so that nobody takes a part for the whole.
    async fn step(mut self) -> Result<Option<(Bytes, Walk)>, Broken> {
        let (mut bytes, page, first) = match self.next {
            Step::Start(page, at_ms) => (opening(self.format, at_ms, &MESSAGE_COLUMNS)?, page, true),
            Step::After(id) => (Vec::new(), self.store.messages(&self.filter, Some(id), MAX_LIMIT).await?, false),
            Step::Done => return Ok(None),
        };
        let items: Vec<MessageItem> = page.items.iter().map(MessageItem::from).collect();
        match self.format {
            Format::Csv => bytes.extend(csv_rows(items.iter().map(message_cells))?),
            Format::Json => bytes.extend(json_rows(&items, first)?),
        }
        self.next = page.next.map_or(Step::Done, Step::After);
        if matches!(self.next, Step::Done) {
            bytes.extend(closing(self.format));
        }
        Ok(Some((bytes.into(), self)))
    }
}

/// Why a transfer broke off.
#[derive(Debug, thiserror::Error)]
#[error("the export could not be finished")]
struct Broken;

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Broken {
        tracing::error!(error = %error, "the store failed an export");
        Broken
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        tracing::error!(error = %error, "an export could not be written");
        Broken
    }
}

impl From<Broken> for Failure {
    fn from(_: Broken) -> Failure {
        Failure::internal()
    }
}

fn opening(format: Format, at_ms: i64, columns: &[&str]) -> Result<Vec<u8>, std::io::Error> {
    match format {
        Format::Csv => csv_rows(std::iter::once(columns.iter().map(|column| (*column).to_owned()).collect())),
        Format::Json => Ok(format!("{{\"exported_at\":\"{}\",\"exported_at_ms\":{at_ms},\"items\":[", machine_time(at_ms)).into_bytes()),
    }
}

fn closing(format: Format) -> &'static [u8] {
    match format {
        Format::Csv => b"",
        Format::Json => b"\n]}\n",
    }
}

fn json_rows(items: &[impl serde::Serialize], first: bool) -> Result<Vec<u8>, std::io::Error> {
    let mut bytes = Vec::new();
    for (place, item) in items.iter().enumerate() {
        bytes.extend(if first && place == 0 { &b"\n"[..] } else { &b",\n"[..] });
        serde_json::to_writer(&mut bytes, item)?;
    }
    Ok(bytes)
}

fn csv_rows(rows: impl Iterator<Item = Vec<String>>) -> Result<Vec<u8>, std::io::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(row)?;
    }
    writer.into_inner().map_err(|error| std::io::Error::other(error.to_string()))
}

/// A text cell. A spreadsheet takes one that begins so for a formula; behind an apostrophe it is text.
fn cell(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) { format!("'{text}") } else { text.to_owned() }
}

fn optional(text: Option<&str>) -> String {
    text.map(cell).unwrap_or_default()
}

/// A number, exact and without an apostrophe; unknown is an empty cell.
fn number<N: ToString>(number: Option<N>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn time(at_ms: Option<i64>) -> String {
    at_ms.map(machine_time).unwrap_or_default()
}

const MESSAGE_COLUMNS: [&str; 34] = [
    "id",
    "cluster",
    "topic",
    "incarnation",
    "partition",
    "offset",
    "state",
    "resolution",
    "outcome",
    "reason",
    "dialect",
    "class",
    "group",
    "exception_class",
    "exception_message",
    "origin_topic",
    "origin_partition",
    "origin_offset",
    "origin_timestamp",
    "origin_timestamp_ms",
    "consumer_group",
    "attempts",
    "lap",
    "business_key",
    "record_at",
    "record_at_ms",
    "dead_lettered_at",
    "dead_lettered_at_ms",
    "timestamp_suspect",
    "key_utf8",
    "key_base64",
    "key_is_null",
    "size",
    "link",
];

fn message_cells(item: &MessageItem) -> Vec<String> {
    let origin = item.origin.as_ref();
    let origin_ms = origin.and_then(|origin| origin.timestamp_ms);
    let (key_utf8, key_base64) = item.key.as_ref().map_or((None, None), |key| match std::str::from_utf8(&key.0) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(key.base64())),
    });
    vec![
        item.id.to_string(),
        cell(&item.cluster),
        cell(&item.topic),
        item.incarnation.to_string(),
        item.partition.to_string(),
        item.offset.to_string(),
        item.state.to_owned(),
        optional(item.resolution.as_deref()),
        optional(item.outcome.as_deref()),
        optional(item.reason.as_deref()),
        cell(&item.dialect),
        item.class.to_owned(),
        item.group.to_string(),
        optional(item.exception_class.as_deref()),
        optional(item.exception_message.as_deref()),
        optional(origin.and_then(|origin| origin.topic.as_deref())),
        number(origin.and_then(|origin| origin.partition)),
        number(origin.and_then(|origin| origin.offset)),
        time(origin_ms),
        number(origin_ms),
        optional(item.consumer_group.as_deref()),
        number(item.attempts),
        item.lap.to_string(),
        optional(item.business_key.as_deref()),
        time(item.record_at_ms),
        number(item.record_at_ms),
        machine_time(item.dead_lettered_at_ms),
        item.dead_lettered_at_ms.to_string(),
        item.timestamp_suspect.to_string(),
        optional(key_utf8),
        optional(key_base64.as_deref()),
        item.key.is_none().to_string(),
        item.size.to_string(),
        format!("/messages/{}", item.id),
    ]
}

const DLQ_COLUMNS: [&str; 18] = [
    "cluster",
    "topic",
    "incarnation",
    "owner",
    "status",
    "depth",
    "depth_change_1h",
    "uncollected",
    "oldest_age_s",
    "event_age_s",
    "at_risk",
    "at_risk_left_s",
    "arrivals_per_min",
    "replay_success_rate",
    "replay_success_n",
    "follow_up_open",
    "sampled_at",
    "sampled_at_ms",
];

fn dlq_cells(item: &DlqItem) -> Vec<String> {
    vec![
        cell(&item.cluster),
        cell(&item.topic),
        item.incarnation.to_string(),
        optional(item.owner.as_deref()),
        item.status.to_owned(),
        item.depth.to_string(),
        number(item.depth_change_1h),
        number(item.uncollected),
        number(item.oldest_age_s),
        number(item.event_age_s),
        item.at_risk.state.to_owned(),
        number(item.at_risk.left_s),
        number(item.arrivals_per_min),
        number(item.replay_success.rate),
        item.replay_success.n.to_string(),
        item.follow_up_open.to_string(),
        time(item.sampled_at_ms),
        number(item.sampled_at_ms),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_run_is_text_and_numbers_stay_numbers() {
        for (text, shown) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(cell(text), shown);
        }
        assert_eq!(number(Some(-9_007_199_254_740_993_i64)), "-9007199254740993");
        assert_eq!(number(None::<i64>), "");
    }

    #[test]
    fn quotes_commas_and_line_ends_stay_in_their_cell() {
        let rows = csv_rows(std::iter::once(vec!["a,b".to_owned(), "say \"x\"\nand y".to_owned()])).expect("rows");
        assert_eq!(String::from_utf8(rows).expect("text"), "\"a,b\",\"say \"\"x\"\"\nand y\"\n");
    }
}
