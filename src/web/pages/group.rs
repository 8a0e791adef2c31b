//! `/groups/{id}`: what broke, since when, why it is one group, and what people say of it.

use std::sync::Arc;

use askama::Template;
use askama_web::WebTemplate;
use axum::Form;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum_htmx::HxRequest;
use chrono::{DateTime, NaiveDateTime};
use serde::Deserialize;

use super::flash::Flash;
use super::replays::state_name;
use super::{Acting, GroupLine, Look, MessageLine, Shell, SignedIn, When, dlq_path, kind_after_label, new_replay, outside};
use crate::api::Failure;
use crate::api::groups::unknown_group;
use crate::api::query::{self, Query};
use crate::domain::access::{Principal, Role};
use crate::domain::contrast::{Contrast, Trait};
use crate::domain::group::{Decision, GroupStatus, Link, Shown, Ticket, word};
use crate::domain::message::EARLIEST_PLAUSIBLE_MS;
use crate::domain::record::says_something;
use crate::services::groups::{COMPARED, Comparison, Groups, Setting, Wanted, Wish};
use crate::services::health::BUCKET_MS;
use crate::store::group_status::{AddedNote, Note};
use crate::store::groups::Group;
use crate::store::messages::{MessageFilter, MessageRow};
use crate::store::outcomes::EarlierReplay;
use crate::web::AppState;
use crate::web::view::format;
use crate::web::view::spark::{Series, Spark};
use crate::web::view::success::Success;
use crate::web::view::text;

const SAMPLES: usize = 5;
const NOTES_SHOWN: i64 = 20;
const REPLAYS_SHOWN: i64 = 10;
/// A note has at most so many characters.
const NOTE_LIMIT: usize = 4_000;
const CONTRASTS_SHOWN: usize = 10;
const HOUR_MS: i64 = 3_600_000;
/// Buckets of [`BUCKET_MS`] in 24 hours.
const BUCKETS: i64 = 48;

#[derive(Template, WebTemplate)]
#[template(path = "groups/page.html")]
pub struct GroupPage {
    shell: Shell,
    id: i64,
    /// This very view, for the fragments that fetch it again.
    url: String,
    group: GroupLine,
    topic: String,
    cluster: String,
    dlq_path: String,
    /// To a new replay of its messages.
    replay: String,
    status: StatusView,
    trend: Trend,
    success: Success,
    /// The newest replays that had messages of this group.
    replays: Vec<ReplayLine>,
    samples: Vec<MessageLine>,
    identity: Vec<(&'static str, Option<String>)>,
    /// Why the newest message is of its kind.
    class_reason: Option<String>,
    fingerprint: String,
    notes: Vec<NoteLine>,
    newest_notes: Option<String>,
    older_notes: Option<String>,
    /// None in an answer to a fragment, which does not show it.
    unusual: Option<Unusual>,
    /// Why the reader cannot decide; None: they can.
    cannot: Option<String>,
    form: StatusForm,
    status_fault: Option<String>,
    note: NoteForm,
    note_fault: Option<String>,
    /// The number of the form that does something to all its messages.
    bulk_form_id: String,
}

/// A status in words.
struct StatusView {
    sentence: String,
    ticket: Option<TicketView>,
    /// A link that [`Link`] let through.
    runbook: Option<String>,
    decided: Option<(String, When)>,
}

struct TicketView {
    text: String,
    href: Option<String>,
}

/// How it arrives, out of the newest [`COMPARED`] messages.
struct Trend {
    last_hour: String,
    spark: Spark,
    note: String,
}

struct ReplayLine {
    id: i64,
    state: &'static str,
    when: When,
    proposer: String,
    sent: String,
    confirmed: String,
    returned: String,
    unproven: String,
}

impl ReplayLine {
    fn of(replay: &EarlierReplay, now_ms: i64) -> ReplayLine {
        ReplayLine {
            id: replay.id,
            state: replay.state.parse().map_or(format::UNKNOWN, state_name),
            when: When::of(replay.started_at_ms.unwrap_or(replay.created_at_ms), now_ms),
            proposer: text::short_line(&replay.proposer, 60),
            sent: format::exact(replay.sent),
            confirmed: format::exact(replay.confirmed),
            returned: format::exact(replay.returned),
            unproven: format::exact(replay.unproven),
        }
    }
}

struct NoteLine {
    author: String,
    when: When,
    text: String,
}

/// What its messages have more often than the rest of the DLQ.
struct Unusual {
    lines: Vec<UnusualLine>,
    /// Said instead of lines, or beside them.
    notes: Vec<String>,
}

struct UnusualLine {
    what: String,
    shares: String,
}

/// What the status form sends, as it was typed.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct StatusForm {
    #[serde(default)]
    status: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    ticket: String,
    #[serde(default)]
    since: String,
    #[serde(default)]
    until: String,
    #[serde(default)]
    runbook: String,
    version: i64,
}

/// What the note form sends, as it was typed.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NoteForm {
    form_id: String,
    #[serde(default)]
    note: String,
}

/// A form that does not do: shown again as it was typed, with what is wrong.
enum Again {
    Status(StatusForm, String),
    Note(NoteForm, String),
}

/// `GET /groups/{id}`.
pub async fn page(
    State(state): State<AppState>,
    State(groups): State<Groups>,
    SignedIn(principal): SignedIn,
    look: Look,
    HxRequest(is_fragment): HxRequest,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<GroupPage, Failure> {
    let query = Query::parse(raw.as_deref(), &["notes"])?;
    let before = query.integer("notes", 1, i64::MAX)?;
    let group = find(&state, &id).await?;
    let view = View { state: &state, groups: &groups, principal: &principal, look, is_fragment };
    view.of(group, before, None).await
}

/// `POST /groups/{id}/status`.
pub async fn set_status(
    State(state): State<AppState>,
    State(groups): State<Groups>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    Form(form): Form<StatusForm>,
) -> Result<Response, Failure> {
    let group = find(&state, &id).await?;
    acting.acts_on(state.owner_of(&group.cluster, &group.topic).await?.as_deref())?;
    let view = View { state: &state, groups: &groups, principal: &acting.principal, look, is_fragment: false };
    let wish = match wish(&form, &group.status, groups.clock.now_ms()) {
        Ok(wish) => wish,
        Err(fault) => {
            let page = view.of(group, None, Some(Again::Status(form, fault))).await?;
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, page).into_response());
        }
    };
    match groups.set_status(&acting.by, &group, &wish).await? {
        Setting::Done => Ok(Flash::StatusSaved.then(&format!("/groups/{}", group.id))),
        Setting::Lost(there) => {
            let fault = decided_first(&there, groups.clock.now_ms());
            let form = StatusForm { version: there.version, ..form };
            let page = view.of(find(&state, &id).await?, None, Some(Again::Status(form, fault))).await?;
            Ok((StatusCode::CONFLICT, page).into_response())
        }
    }
}

/// `POST /groups/{id}/notes`.
pub async fn add_note(
    State(state): State<AppState>,
    State(groups): State<Groups>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    Form(form): Form<NoteForm>,
) -> Result<Response, Failure> {
    let group = find(&state, &id).await?;
    acting.acts_on(state.owner_of(&group.cluster, &group.topic).await?.as_deref())?;
    let view = View { state: &state, groups: &groups, principal: &acting.principal, look, is_fragment: false };
    // Browsers send line ends as CR LF.
    let note = form.note.replace("\r\n", "\n");
    let fault = note_fault(note.trim(), &form.form_id);
    let (status, fault) = match fault {
        Some(fault) => (StatusCode::UNPROCESSABLE_ENTITY, fault),
        None => match groups.add_note(&acting.by, group.id, &form.form_id, note.trim()).await? {
            AddedNote::Added(_) | AddedNote::Repeated => {
                return Ok(Flash::NoteAdded.then(&format!("/groups/{}#notes", group.id)));
            }
            AddedNote::FormUsed => (
                StatusCode::CONFLICT,
                "This form has already added another note. What you typed is below: add it if it still belongs here.".to_owned(),
            ),
        },
    };
    let page = view.of(group, None, Some(Again::Note(form, fault))).await?;
    Ok((status, page).into_response())
}

async fn find(state: &AppState, id: &str) -> Result<Group, Failure> {
    let group = match query::id(id) {
        Some(id) => state.store.group(id).await?,
        None => None,
    };
    group.ok_or_else(|| unknown_group(id))
}

/// What a page of a group is made from.
struct View<'a> {
    state: &'a AppState,
    groups: &'a Groups,
    principal: &'a Principal,
    look: Look,
    is_fragment: bool,
}

impl View<'_> {
    async fn of(&self, group: Group, before: Option<i64>, again: Option<Again>) -> Result<GroupPage, Failure> {
        let state = self.state;
        let now_ms = state.clock.now_ms();
        let path = format!("/groups/{}", group.id);
        let filter = MessageFilter { group_id: Some(group.id), ..MessageFilter::default() };
        let page = state.store.messages(&filter, None, COMPARED as i64).await?;
        let (newest, is_all): (Arc<[MessageRow]>, bool) = (page.items.into(), page.next.is_none());
        let unusual = match self.is_fragment {
            true => None,
            false => Some(unusual(&self.groups.compare(&group, Arc::clone(&newest)).await?)),
        };
        let outcomes = state.store.group_outcomes(group.dlq_id, &[group.id]).await?;
        let replays = state.store.replays_of_group(group.id, REPLAYS_SHOWN).await?;
        let notes = state.store.group_notes(group.id, before, NOTES_SHOWN).await?;
        let owner = state.owner_of(&group.cluster, &group.topic).await?;
        let (mut form, mut status_fault) = (StatusForm::of(&group.status), None);
        let (mut note, mut note_fault) = (NoteForm { form_id: new_form_id()?, note: String::new() }, None);
        match again {
            Some(Again::Status(typed, fault)) => (form, status_fault) = (typed, Some(fault)),
            Some(Again::Note(typed, fault)) => (note.note, note_fault) = (typed.note, Some(fault)),
            None => {}
        }
        Ok(GroupPage {
            shell: Shell::new(state, Some(self.principal), self.look, "overview"),
            id: group.id,
            url: before.map_or_else(|| path.clone(), |before| format!("{path}?notes={before}")),
            topic: text::line(&group.topic),
            cluster: text::line(&group.cluster),
            dlq_path: dlq_path(&group.cluster, &group.topic),
            replay: new_replay(&group.cluster, &group.topic, &[("group", &group.id.to_string())]),
            status: StatusView::of(&group, now_ms),
            trend: trend(&newest, is_all, now_ms),
            success: Success::of(outcomes.get(&group.id).copied().unwrap_or_default()),
            replays: replays.iter().map(|replay| ReplayLine::of(replay, now_ms)).collect(),
            samples: samples(&newest).into_iter().map(|row| MessageLine::of(row, now_ms)).collect(),
            identity: identity(&group),
            class_reason: newest.first().map(|row| text::short_line(&row.class_reason, 300)),
            fingerprint: group.fingerprint.clone(),
            notes: notes.items.iter().map(|note| NoteLine::of(note, now_ms)).collect(),
            newest_notes: before.map(|_| format!("{path}#notes")),
            older_notes: notes.next.map(|next| format!("{path}?notes={next}#notes")),
            unusual,
            cannot: cannot(self.principal, owner.as_deref()),
            form: form.shown(),
            status_fault,
            note: NoteForm { note: text::block(&note.note), ..note },
            note_fault,
            bulk_form_id: new_form_id()?,
            group: GroupLine::of(&group, now_ms),
        })
    }
}

/// Why this user cannot decide about a group of this owner's DLQs; None: they can.
fn cannot(principal: &Principal, owner: Option<&str>) -> Option<String> {
    if principal.role < Role::Operator {
        let name = text::short_line(&principal.name, 64);
        return Some(format!(
            "Setting a status or adding a note needs the role operator; {name} has the role {}.",
            principal.role.as_str()
        ));
    }
    outside(principal, owner)
}

/// Everything that goes into the fingerprint: messages that agree on all of it are one group.
pub fn identity(group: &Group) -> Vec<(&'static str, Option<String>)> {
    let said = |text: &str| (!text.trim().is_empty()).then(|| text::short_line(text, 2_000));
    vec![
        ("DLQ", Some(text::line(&group.topic))),
        ("Consumer group", group.consumer_group.as_deref().and_then(said)),
        ("Kind of failure", Some(kind_after_label(group.class).to_owned())),
        ("Root exception", group.exception_class.as_deref().and_then(said)),
        ("Text, numbers and ids replaced", said(&group.normalised_text)),
        ("Top frame", group.top_frame.as_deref().and_then(said)),
    ]
}

impl StatusView {
    fn of(group: &Group, now_ms: i64) -> StatusView {
        let status = &group.status;
        let sentence = match (&status.decision, group.shown(now_ms)) {
            (Decision::FixedSince { at_ms }, Shown::Regressed) => format!(
                "Called fixed since {}, and messages came after that: the newest {}.",
                format::utc(*at_ms),
                group.last_at_ms.map_or_else(|| format::UNKNOWN.to_owned(), |at| format::ago(at, now_ms))
            ),
            (Decision::FixedSince { at_ms }, _) => format!("Fixed since {}; no message came after that.", format::utc(*at_ms)),
            (Decision::IgnoredUntil { until_ms }, Shown::Ignored) => {
                format!("Ignored until {} ({}).", format::utc(*until_ms), format::ago(*until_ms, now_ms))
            }
            (Decision::IgnoredUntil { until_ms }, _) => format!("Open again: it was ignored until {}.", format::utc(*until_ms)),
            (Decision::Known { owner: Some(owner), .. }, _) => format!("{} looks after it.", text::line(owner)),
            (Decision::Known { owner: None, .. }, _) => "There is a ticket for it.".to_owned(),
            (Decision::Open, _) if status.decided.is_none() => "Nobody has decided anything about it yet.".to_owned(),
            (Decision::Open, _) => "Set back to open.".to_owned(),
        };
        let ticket = match &status.decision {
            Decision::Known { ticket: Some(ticket), .. } => Some(TicketView {
                text: text::short_line(ticket.as_str(), 120),
                href: if let Ticket::Link(link) = ticket { Some(link.as_str().to_owned()) } else { None },
            }),
            _ => None,
        };
        StatusView {
            sentence,
            ticket,
            runbook: status.runbook.as_ref().map(Link::as_str).map(str::to_owned),
            decided: status.decided.as_ref().map(|decided| (text::short_line(&decided.by, 64), When::of(decided.at_ms, now_ms))),
        }
    }
}

/// Who was quicker and what they decided.
fn decided_first(there: &GroupStatus, now_ms: i64) -> String {
    let (by, when) = match &there.decided {
        Some(decided) => (text::short_line(&decided.by, 64), format::ago(decided.at_ms, now_ms)),
        None => ("Somebody".to_owned(), "just now".to_owned()),
    };
    let what = match &there.decision {
        Decision::Open => "open".to_owned(),
        Decision::Known { owner, ticket } => {
            let parts = owner.as_deref().into_iter().chain(ticket.as_ref().map(Ticket::as_str));
            format!("known, {}", parts.map(text::line).collect::<Vec<_>>().join(", "))
        }
        Decision::FixedSince { at_ms } => format!("fixed since {}", format::utc(*at_ms)),
        Decision::IgnoredUntil { until_ms } => format!("ignored until {}", format::utc(*until_ms)),
    };
    format!("{by} decided first ({when}): {what}. Nothing of yours is stored. What you typed is below: set it again if it still holds.")
}

impl StatusForm {
    /// The form with what holds now.
    fn of(status: &GroupStatus) -> StatusForm {
        let mut form = StatusForm { status: status.decision.as_str().to_owned(), version: status.version, ..StatusForm::default() };
        form.runbook = status.runbook.as_ref().map(Link::as_str).unwrap_or_default().to_owned();
        match &status.decision {
            Decision::Open => {}
            Decision::Known { owner, ticket } => {
                form.owner = owner.clone().unwrap_or_default();
                form.ticket = ticket.as_ref().map(Ticket::as_str).unwrap_or_default().to_owned();
            }
            Decision::FixedSince { at_ms } => form.since = input_time(*at_ms),
            Decision::IgnoredUntil { until_ms } => form.until = input_time(*until_ms),
        }
        form
    }

    /// As typed, with what cannot be seen made visible.
    fn shown(self) -> StatusForm {
        let shown = |typed: String| text::short_line(&typed, 2_000);
        StatusForm {
            status: self.status,
            owner: shown(self.owner),
            ticket: shown(self.ticket),
            since: shown(self.since),
            until: shown(self.until),
            runbook: shown(self.runbook),
            version: self.version,
        }
    }
}

/// An instant as `<input type="datetime-local" step="1">` takes and gives it.
fn input_time(at_ms: i64) -> String {
    DateTime::from_timestamp_millis(at_ms).map(|at| at.format("%Y-%m-%dT%H:%M:%S").to_string()).unwrap_or_default()
}

/// The reverse of [`input_time`], and of what people type where the browser has no such input.
fn parse_time(typed: &str) -> Option<i64> {
    let typed = typed.trim_end_matches("UTC").trim_end_matches('Z').trim();
    let formats = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"];
    let at = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(typed, format).ok())?.and_utc().timestamp_millis();
    // The latest instant with a year of four digits.
    (EARLIEST_PLAUSIBLE_MS..=253_402_300_799_999).contains(&at).then_some(at)
}

const TIME_SHAPE: &str = "is a time in UTC like 2026-11-30 14:02:11";

/// What the form asks for. Fields of choices that were not taken are ignored.
///
/// # Errors
/// A sentence that says which field does not do and what would.
fn wish(form: &StatusForm, now: &GroupStatus, now_ms: i64) -> Result<Wish, String> {
    let given = |typed: &str| Some(typed.trim().to_owned()).filter(|typed| !typed.is_empty());
    let named = |name: &'static str| move |why: String| format!("{name}: {why}.");
    // What was shown without its milliseconds and comes back untouched stays exact.
    let time = |typed: &str, stored: Option<i64>| stored.filter(|at| input_time(*at) == typed).or_else(|| parse_time(typed));
    let decision = match form.status.as_str() {
        "open" => Wanted::Exactly(Decision::Open),
        "known" => {
            let owner = given(&form.owner).as_deref().map(word).transpose().map_err(named("Owner"))?;
            let ticket = given(&form.ticket).as_deref().map(Ticket::parse).transpose().map_err(named("Ticket"))?;
            if owner.is_none() && ticket.is_none() {
                return Err("Known needs an owner or a ticket: say who looks after it, or where.".to_owned());
            }
            Wanted::Exactly(Decision::Known { owner, ticket })
        }
        "fixed_since" => match given(&form.since) {
            None => Wanted::FixedNow,
            Some(typed) => {
                let stored = if let Decision::FixedSince { at_ms } = now.decision { Some(at_ms) } else { None };
                let at_ms = time(&typed, stored).ok_or_else(|| format!("Fixed since {TIME_SHAPE}, or empty for now."))?;
                if at_ms > now_ms {
                    return Err(format!("Fixed since lies ahead: it is {} now. Leave it empty for now.", format::utc(now_ms)));
                }
                Wanted::Exactly(Decision::FixedSince { at_ms })
            }
        },
        "ignored_until" => {
            let until_ms = given(&form.until).and_then(|typed| parse_time(&typed)).ok_or_else(|| format!("Ignored until {TIME_SHAPE}."))?;
            if until_ms <= now_ms {
                return Err(format!("Ignored until must lie ahead: it is {} now.", format::utc(now_ms)));
            }
            Wanted::Exactly(Decision::IgnoredUntil { until_ms })
        }
        _ => return Err("Choose a status: open, known, fixed since or ignored until.".to_owned()),
    };
    let runbook = given(&form.runbook).as_deref().map(Link::parse).transpose().map_err(named("Runbook"))?;
    Ok(Wish { decision, runbook, version: form.version })
}

/// What is wrong with a note; None: nothing.
fn note_fault(note: &str, form_id: &str) -> Option<String> {
    let chars = note.chars().count();
    if !says_something(note) {
        return Some("The note is empty: write something.".to_owned());
    }
    if chars > NOTE_LIMIT {
        let (most, chars) = (format::exact(NOTE_LIMIT as i64), format::exact(chars as i64));
        return Some(format!("A note has at most {most} characters; this one has {chars}."));
    }
    let usable = (16..=64).contains(&form_id.len()) && form_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (!usable).then(|| "The form has lost its number. Send it again as it is now.".to_owned())
}

pub(super) fn new_form_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(error = %error, "the system gives no random bytes");
        Failure::internal()
    })?;
    Ok(text::hex(&bytes))
}

impl NoteLine {
    fn of(note: &Note, now_ms: i64) -> NoteLine {
        NoteLine { author: text::short_line(&note.author, 64), when: When::of(note.at_ms, now_ms), text: text::block(&note.note) }
    }
}

/// The newest by dead-lettered time: partitions are taken in one after the other, so the last one taken in need not be the last that failed.
fn samples(newest: &[MessageRow]) -> Vec<&MessageRow> {
    let mut samples: Vec<&MessageRow> = newest.iter().collect();
    samples.sort_by_key(|row| std::cmp::Reverse((row.dead_lettered_at_ms, row.id)));
    samples.truncate(SAMPLES);
    samples
}

/// How a group arrives, out of its newest messages; `all` of it or not. What lies before the oldest of them is not known then.
fn trend(newest: &[MessageRow], all: bool, now_ms: i64) -> Trend {
    let times: Vec<i64> = newest.iter().map(|row| row.dead_lettered_at_ms).collect();
    let hour = times.iter().filter(|at| **at > now_ms.saturating_sub(HOUR_MS)).count();
    let cut = !all && hour == times.len();
    let last_hour = format!("{}{}", format::exact(hour as i64), if cut { " or more" } else { "" });
    let from_ms = now_ms - now_ms.rem_euclid(BUCKET_MS) - (BUCKETS - 1) * BUCKET_MS;
    let oldest = times.iter().min().copied();
    let bucket = |index: i64| {
        let start = from_ms + index * BUCKET_MS;
        let known = all || oldest.is_some_and(|oldest| start >= oldest);
        let count = times.iter().filter(|at| (start..start + BUCKET_MS).contains(*at)).count();
        known.then_some(count as i64)
    };
    let series = Series { buckets: (0..BUCKETS).map(bucket).collect(), from_ms, bucket_ms: BUCKET_MS };
    let note = match all {
        true => "24 h, by dead-lettered time".to_owned(),
        false => format!("24 h, of its newest {}", format::exact(times.len() as i64)),
    };
    Trend { spark: Spark::draw(&series, &format!("{last_hour} in the last hour")), last_hour, note }
}

fn unusual(comparison: &Comparison) -> Unusual {
    let (here, elsewhere) = (comparison.here, comparison.elsewhere);
    let line = |contrast: &Contrast| UnusualLine {
        what: trait_words(&contrast.of),
        shares: format!("{} here, {} elsewhere", share(contrast.here, here), share(contrast.elsewhere, elsewhere)),
    };
    let lines: Vec<UnusualLine> = comparison.contrasts.iter().take(CONTRASTS_SHOWN).map(line).collect();
    let mut notes = Vec::new();
    if here == 0 {
        notes.push("No message of this group is stored.".to_owned());
    } else if elsewhere == 0 {
        notes.push("Nothing to compare with: the newest messages of this DLQ are all of this group.".to_owned());
    } else {
        let nothing = if lines.is_empty() { "Nothing stands out. " } else { "" };
        let (here, elsewhere) = (format::exact(here as i64), format::exact(elsewhere as i64));
        notes.push(format!(
            "{nothing}Its newest messages against the newest others of the DLQ (n = {here} / {elsewhere}); listed where the 99.9% Wilson intervals do not overlap."
        ));
    }
    if comparison.contrasts.len() > CONTRASTS_SHOWN {
        notes.push(format!("The {CONTRASTS_SHOWN} largest differences of {}.", format::exact(comparison.contrasts.len() as i64)));
    }
    if comparison.masked {
        notes.push("Keys, tenants and what headers hold are not compared: fields of this DLQ are masked.".to_owned());
    }
    Unusual { lines, notes }
}

fn trait_words(of: &Trait) -> String {
    match of {
        Trait::Partition(partition) => format!("partition {partition}"),
        Trait::OriginPartition(partition) => format!("came from partition {partition}"),
        Trait::ConsumerGroup(name) => format!("consumer group {}", text::short_line(name, 80)),
        Trait::Key(key) => format!("key {}", text::short_line(key, 80)),
        Trait::Tenant(tenant) => format!("tenant {}", text::short_line(tenant, 80)),
        Trait::Header(name) => format!("has the header {}", text::short_line(name, 80)),
        Trait::HeaderValue(name, value) => format!("header {} = {}", text::short_line(name, 80), text::short_line(value, 80)),
    }
}

/// A share in whole percent; 0% and 100% only where it is none and all.
fn share(hits: usize, n: usize) -> String {
    let percent = (hits as f64 * 100.0 / n.max(1) as f64).round() as i64;
    match percent {
        0 if hits > 0 => "under 1%".to_owned(),
        100 if hits < n => "over 99%".to_owned(),
        percent => format!("{percent}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_form_are_utc() {
        let at = 1_796_047_331_000;
        for typed in ["2026-11-30T14:02:11", "2026-11-30 14:02:11", "2026-11-30 14:02:11 UTC", "2026-11-30T14:02:11Z"] {
            assert_eq!(parse_time(typed), Some(at), "{typed}");
        }
        assert_eq!(parse_time("2026-11-30T14:02"), Some(at - 11_000));
        assert_eq!(input_time(at + 999), "2026-11-30T14:02:11");
        for typed in ["", "soon", "14:02", "2026-13-01T00:00", "1999-12-31 23:59", "12026-11-30T14:02:11", "2026-11-30T14:02:11+01:00"] {
            assert_eq!(parse_time(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_time_that_comes_back_untouched_keeps_its_milliseconds() {
        let at_ms = 1_796_047_331_678;
        let now = GroupStatus { decision: Decision::FixedSince { at_ms }, version: 3, ..GroupStatus::default() };
        let wish = wish(&StatusForm::of(&now), &now, at_ms + 1).unwrap();
        assert_eq!(wish, Wish { decision: Wanted::Exactly(Decision::FixedSince { at_ms }), runbook: None, version: 3 });
    }

    #[test]
    fn shares_never_round_to_none_or_all() {
        assert_eq!(
            [(0, 500), (1, 500), (55, 500), (499, 500), (500, 500)].map(|(hits, n)| share(hits, n)),
            ["0%", "under 1%", "11%", "over 99%", "100%"]
        );
    }
}
