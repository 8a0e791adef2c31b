//! `/messages/{id}`: why did it fail, what is it, where did it come from?

mod facts;
mod headers;
mod steps;
mod value;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Form, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use self::facts::{Fact, TimeFact};
use self::headers::HeaderTable;
use self::steps::{StepLine, VerdictLine};
use self::value::{Shown, ValueBox, ViewKind};
use super::group::identity;
use super::reviews::Acts;
use super::{Acting, Look, Shell, SignedIn, dlq_path, group_title, kind_after_label, outside, state_words};
use crate::api::Failure;
use crate::api::dlqs::names_could_be;
use crate::api::messages::unknown_message;
use crate::api::query::{self, Query};
use crate::domain::access::{Principal, Role};
use crate::domain::lifecycle::FollowUp;
use crate::domain::message::MessageState;
use crate::domain::record::says_something;
use crate::services::export::Exports;
use crate::services::messages::{Download, MessageView, Reveal, Revelation};
use crate::store::messages::MessageRow;
use crate::web::AppState;
use crate::web::view::text;
use crate::web::view::tree::TreeLine;

/// Exception texts and stack traces are stored cut to a few kB; a page shows no more than this of one.
const TEXT_CAP: usize = 16_000;
/// A reason for the trail has at most so many characters.
const REASON_CHARS: usize = 500;

#[derive(Template, WebTemplate)]
#[template(path = "messages/message.html")]
pub struct MessagePage {
    shell: Shell,
    id: i64,
    dlq_path: String,
    cluster: String,
    topic: String,
    title: String,
    said: Option<String>,
    stacktrace: Option<String>,
    state: String,
    state_kind: &'static str,
    decision: Option<String>,
    class: &'static str,
    class_reason: String,
    group_id: i64,
    group_title: Option<String>,
    identity: Vec<(&'static str, Option<String>)>,
    facts: Vec<Fact>,
    history: Vec<TimeFact>,
    /// Newest first.
    steps: Vec<StepLine>,
    verdicts: Vec<VerdictLine>,
    /// Why it is held.
    held: Option<String>,
    /// "replay attempt 2 of 3" is what comes next.
    attempt: Option<String>,
    replay_of: Option<i64>,
    acts: Acts,
    value: ValueBox,
    reveal: RevealBox,
    headers: HeaderTable,
    older: Option<String>,
    /// "payments.wallet.DLQ/0/17", as the search box takes it.
    coordinates: String,
    /// With the host, to be copied.
    permalink: String,
    permalink_path: String,
}

/// The way around the mask, for the value box.
enum RevealBox {
    /// Nothing is hidden.
    None,
    /// Why this person may not, in a sentence.
    Not(String),
    Form {
        reason: String,
        fault: Option<String>,
    },
    /// Done: who is on the trail.
    Done(String),
}

/// What the page is made from, beside the message.
struct Asked<'a> {
    state: &'a AppState,
    principal: &'a Principal,
    look: Look,
    view: Option<ViewKind>,
    /// Of the message's DLQ.
    owner: Option<String>,
    /// The replay that has it and has not ended.
    in_replay: Option<i64>,
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
    let view = query.word("view")?;
    let message = found(&state, &id).await?;
    let owner = state.owner_of(&message.row.cluster, &message.row.topic).await?;
    let in_replay = state.store.live_replay_of(message.row.id).await?;
    build(Asked { state: &state, principal: &principal, look, view, owner, in_replay }, message, None, None)
}

async fn found(state: &AppState, id: &str) -> Result<MessageView, Failure> {
    let found = match query::id(id) {
        Some(id) => state.messages.view(id).await?,
        None => None,
    };
    found.ok_or_else(|| unknown_message(id))
}

/// `refused` is a reason that does not do and why; `revelation` what the mask hides, to be shown this once.
fn build(
    asked: Asked<'_>,
    message: MessageView,
    refused: Option<(String, String)>,
    revelation: Option<Revelation>,
) -> Result<MessagePage, Failure> {
    let Asked { state, principal, look, view, owner, in_replay } = asked;
    let MessageView { row, value, headers, reading, fields, group, evidence } = message;
    let now_ms = state.clock.now_ms();
    let held = steps::held_because(&evidence.transitions).map(|why| text::cut_block(why, TEXT_CAP));
    let settings = state.messages.settings(&row);
    let counts = state.clusters.iter().map(|cluster| cluster.view()).find(|view| view.cluster == row.cluster);
    let counts = counts.and_then(|view| view.partition_counts);
    let shown = revelation.as_ref().map_or_else(|| value::value_box(&value, view), |revelation| value::revealed_box(revelation, view));
    let exception = row.exception_class.as_deref().map(|class| text::short_line(class, 500));
    let stacktrace = reading.as_ref().and_then(|reading| reading.stacktrace.as_deref());
    let dlq = dlq_path(&row.cluster, &row.topic);
    let permalink_path = format!("{dlq}/{}/{}?incarnation={}", row.partition, row.offset, row.incarnation);
    Ok(MessagePage {
        shell: Shell::new(state, Some(principal), look, "messages"),
        id: row.id,
        cluster: text::line(&row.cluster),
        topic: text::line(&row.topic),
        title: exception.unwrap_or_else(|| "No exception named".to_owned()),
        said: row.exception_message.as_deref().map(|said| text::cut_block(said, TEXT_CAP)),
        stacktrace: stacktrace.map(|trace| text::cut_block(trace, TEXT_CAP)),
        state: state_words(&row),
        state_kind: state_kind(&row),
        decision: facts::decision(&row),
        class: kind_after_label(row.class),
        class_reason: text::short_line(&row.class_reason, 300),
        group_id: row.group_id,
        group_title: group.as_ref().map(group_title),
        identity: group.as_ref().map(identity).unwrap_or_default(),
        facts: facts::facts(&row, reading.as_ref(), &fields, settings, counts.as_deref()),
        history: facts::history(&row, now_ms),
        steps: steps::steps(&evidence.transitions, now_ms),
        verdicts: steps::verdicts(&evidence.verdicts, now_ms),
        attempt: facts::attempt(&row, settings),
        replay_of: row.replay_of,
        acts: Acts::of(&row, principal, owner.as_deref(), in_replay, state.options.read_only)?,
        held,
        reveal: reveal_box(principal, owner.as_deref(), shown.hides, refused, revelation.is_some()),
        value: shown,
        headers: headers::table(&headers, &fields),
        older: reading.filter(|reading| !reading.history.is_empty()).map(|reading| {
            let older: Vec<&str> = reading.history.iter().map(|dialect| dialect.as_str()).collect();
            format!("It also carries headers of {}: an older failure.", older.join(", "))
        }),
        coordinates: format!("{}/{}/{}", text::line(&row.topic), row.partition, row.offset),
        permalink: format!("{}{permalink_path}", state.options.public_url),
        permalink_path,
        dlq_path: dlq,
    })
}

/// The shape and fill of a state: what waits for somebody stands out.
fn state_kind(row: &MessageRow) -> &'static str {
    match (row.state, row.outcome.as_deref(), row.follow_up) {
        (MessageState::UnderReview, ..) if row.reason.is_some() => "warning",
        (MessageState::Archived, _, Some(FollowUp::Open)) | (_, Some("returned" | "unproven"), _) => "warning",
        (MessageState::Replayed, Some("pending"), _) => "info",
        (MessageState::Replayed, ..) => "healthy",
        (MessageState::Archived, ..) => "muted",
        _ => "info",
    }
}

fn reveal_box(principal: &Principal, owner: Option<&str>, hides: bool, refused: Option<(String, String)>, done: bool) -> RevealBox {
    if done {
        return RevealBox::Done(text::short_line(&principal.name, 64));
    }
    if !hides {
        return RevealBox::None;
    }
    if principal.role < Role::Operator {
        return RevealBox::Not("Revealing what is masked needs the role operator.".to_owned());
    }
    if let Some(said) = outside(principal, owner) {
        return RevealBox::Not(format!("You cannot reveal what is masked: {said}"));
    }
    let (reason, fault) = refused.map_or((String::new(), None), |(reason, fault)| (reason, Some(fault)));
    RevealBox::Form { reason, fault }
}

/// `GET /messages/{id}/value`: the exact bytes as a download.
pub async fn value(
    State(state): State<AppState>,
    Acting { by, .. }: Acting,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    Query::parse(raw.as_deref(), &[])?;
    let found = match query::id(&id) {
        Some(id) => state.messages.download(id).await?,
        None => None,
    };
    let (row, download) = found.ok_or_else(|| unknown_message(&id))?;
    match download {
        Download::Bytes(bytes) => {
            let exports = Exports { store: state.store.clone(), clock: state.clock.clone() };
            exports.begin(&by, format!("message {}", row.id), "", "bytes").await?;
            Ok(file(row.id, bytes))
        }
        Download::Null => Err(Failure::not_found("The value is null (a tombstone): there are no bytes to download.")),
        Download::Purged => Err(Failure::new(StatusCode::GONE, "The bytes were removed after their retention.")),
        Download::Masked => Err(Failure::forbidden(
            "Fields of this DLQ are masked, and the exact bytes hold them. An operator can reveal them on the message's page, with a reason.",
        )),
    }
}

fn file(id: i64, bytes: Vec<u8>) -> Response {
    let name = format!("attachment; filename=\"message-{id}.bin\"");
    let headers = [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_DISPOSITION, name)];
    (headers, bytes).into_response()
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
        let which = incarnation.map_or_else(String::new, |number| format!(" of the {} topic", crate::web::view::format::ordinal(number)));
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

#[derive(Deserialize)]
pub struct RevealForm {
    #[serde(default)]
    reason: String,
    /// As the page was looked at.
    #[serde(default)]
    view: String,
    /// "1": the exact bytes as a file instead of the page.
    #[serde(default)]
    download: String,
}

/// `POST /messages/{id}/reveal`: what the mask hides, once it is on the trail. The answer is the page itself, not a way to it: what it shows
/// has no address, and who reloads it is asked again.
pub async fn reveal(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    Form(form): Form<RevealForm>,
) -> Result<Response, Failure> {
    let message = found(&state, &id).await?;
    let owner = state.owner_of(&message.row.cluster, &message.row.topic).await?;
    acting.acts_on(owner.as_deref())?;
    let in_replay = state.store.live_replay_of(message.row.id).await?;
    let asked = Asked { state: &state, principal: &acting.principal, look, view: form.view.parse().ok(), owner, in_replay };
    let reason = form.reason.trim();
    if let Some(fault) = fault_of(reason) {
        let typed = text::short_line(&form.reason, REASON_CHARS * 2);
        let page = build(asked, message, Some((typed, fault)), None)?;
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
    }
    let download = form.download == "1";
    let wanted = Reveal { by: &acting.by, reason, download, now_ms: state.clock.now_ms() };
    let Some(revelation) = state.messages.reveal(message.row.id, wanted).await? else {
        return Err(Failure::new(StatusCode::CONFLICT, "Nothing of this message is masked: its page shows all there is."));
    };
    if download {
        return Ok(file(message.row.id, revelation.value));
    }
    Ok(build(asked, message, None, Some(revelation))?.into_response())
}

/// Why a reason does not do.
fn fault_of(reason: &str) -> Option<String> {
    match reason.chars().count() {
        _ if !says_something(reason) => Some("Say why: the reason goes on the audit trail.".to_owned()),
        length if length > REASON_CHARS => Some(format!("The reason has {length} characters: {REASON_CHARS} at most.")),
        _ => None,
    }
}
