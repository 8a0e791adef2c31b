//! `/replays`: what is proposed, what is being sent, what became of it. The pages of one replay are in the files below.

pub mod batch;
mod items;
pub mod new;
pub mod review;
mod samples;
mod warnings;
mod words;

pub use words::state_name;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{Acting, Chip, Choice, Look, Shell, SignedIn, StatusLine, When, chips, dlq_path, names, outside};
use crate::api::Failure;
use crate::api::query::{self, Query};
use crate::domain::access::{Principal, Role, look_of_name};
use crate::domain::replay::{BatchState, Step};
use crate::services::replay::ReplayError;
use crate::services::replay::approval::Decider;
use crate::store::replay_pages::OpenBatch;
use crate::store::replays::{Batch, BatchFilter};
use crate::web::AppState;
use crate::web::view::{format, text};

const FILTERS: [&str; 3] = ["cluster", "topic", "state"];
const SHOWN: i64 = 50;

#[derive(Template, WebTemplate)]
#[template(path = "replays/list.html")]
pub struct ReplaysPage {
    shell: Shell,
    /// This view, for the live region.
    url: String,
    clusters: Vec<Choice>,
    topics: Vec<Choice>,
    states: Vec<Choice>,
    chips: Vec<Chip>,
    lines: Vec<ReplayLine>,
    newest: Option<String>,
    older: Option<String>,
    /// Nothing can be sent from here.
    read_only: bool,
}

/// A replay in a list.
struct ReplayLine {
    id: i64,
    status: StatusLine,
    title: String,
    topic: String,
    dlq_path: String,
    reason: String,
    proposer: String,
    proposed: When,
    emergency: bool,
    /// "185 sent, 185 proven": what there is to count in this state.
    counts: Vec<String>,
}

/// `GET /replays`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    RawQuery(raw): RawQuery,
) -> Result<ReplaysPage, Failure> {
    let query = Query::parse(raw.as_deref(), &[&FILTERS[..], &["before"]].concat())?;
    let before = query.integer("before", 1, i64::MAX)?;
    let wanted: Option<BatchState> = query.word("state")?;
    let (cluster, topic) = (query.text("cluster")?, query.text("topic")?);
    let dlqs = state.store.dlqs().await?;
    let matching: Vec<i64> = dlqs
        .iter()
        .filter(|dlq| cluster.is_none_or(|name| dlq.cluster == name) && topic.is_none_or(|name| dlq.topic == name))
        .map(|dlq| dlq.id)
        .collect();
    let narrowed = cluster.is_some() || topic.is_some();
    let mut found = Vec::new();
    let mut next = None;
    for dlq_id in if narrowed { matching.into_iter().map(Some).collect() } else { vec![None] } {
        let page = state.store.batches(&BatchFilter { dlq_id, state: wanted }, before, SHOWN).await?;
        found.extend(page.items);
        next = next.max(page.next);
    }
    // Several DLQs may bear the name, one in each cluster: the newest of all of them.
    found.sort_unstable_by_key(|batch| std::cmp::Reverse(batch.id));
    if found.len() > SHOWN as usize {
        found.truncate(SHOWN as usize);
        next = found.last().map(|batch| batch.id);
    }
    let now_ms = state.clock.now_ms();
    let link = |query: String| format!("/replays{query}");
    Ok(ReplaysPage {
        shell: Shell::new(&state, Some(&principal), look, "replays"),
        url: format!("/replays{}", query.link("", None)),
        clusters: names(dlqs.iter().map(|dlq| dlq.cluster.as_str()), cluster),
        topics: names(dlqs.iter().map(|dlq| dlq.topic.as_str()), topic),
        states: state_choices(wanted),
        chips: chips("/replays", &query, &FILTERS).into_iter().map(with_state_name).collect(),
        lines: found.iter().map(|batch| ReplayLine::of(batch, now_ms)).collect(),
        newest: before.map(|_| link(query.link("before", None))),
        older: next.map(|next| link(query.link("before", Some(&next.to_string())))),
        read_only: state.options.read_only,
    })
}

fn state_choices(chosen: Option<BatchState>) -> Vec<Choice> {
    let choice = |state: BatchState| Choice {
        value: state.as_str().to_owned(),
        label: words::state_name(state).to_owned(),
        chosen: chosen == Some(state),
    };
    BatchState::ALL.map(choice).into()
}

/// A batch's states have other names than a message's.
fn with_state_name(chip: Chip) -> Chip {
    match chip.value.replace(' ', "_").parse() {
        Ok(state) if chip.name == "state" => Chip { value: words::state_name(state).to_owned(), ..chip },
        _ => chip,
    }
}

impl ReplayLine {
    fn of(batch: &Batch, now_ms: i64) -> ReplayLine {
        ReplayLine {
            id: batch.id,
            status: words::state(batch),
            title: title(batch),
            topic: text::line(&batch.topic),
            dlq_path: dlq_path(&batch.cluster, &batch.topic),
            reason: text::short_line(&batch.reason, 160),
            proposer: text::short_line(&batch.proposer, 64),
            proposed: When::of(batch.created_at_ms, now_ms),
            emergency: batch.emergency,
            counts: counts(batch),
        }
    }
}

/// What there is to count of a batch in its state.
fn counts(batch: &Batch) -> Vec<String> {
    let progress = &batch.progress;
    let some = |n: i64, what: &str| (n > 0).then(|| format!("{} {what}", format::exact(n)));
    let proven = progress.confirmed_ledger + progress.confirmed_offset;
    let began = batch.started_at_ms.is_some();
    let before = match (&batch.forecast, batch.step) {
        (Some(forecast), _) => Some(format!("{} to send", format::exact(i64::try_from(forecast.would_send()).unwrap_or(i64::MAX)))),
        (None, Step::Freezing) => None,
        (None, _) => Some(format!("{} of {} checked", format::exact(progress.checked), format::exact(progress.items))),
    };
    let parts = [
        before.filter(|_| !began && batch.state.is_live()),
        began.then(|| format!("{} sent", format::exact(progress.sent))),
        some(proven, "proven"),
        some(progress.returned, "returned"),
        some(progress.unproven, "not confirmed"),
        some(progress.already_applied, "already applied"),
        some(progress.archived, "archived"),
        some(progress.held, "held"),
        some(progress.blocked, "blocked"),
    ];
    parts.into_iter().flatten().collect()
}

/// "Replay 12: 200 messages".
fn title(batch: &Batch) -> String {
    match (batch.step, batch.progress.items) {
        (Step::Freezing, 0) => format!("Replay {}", batch.id),
        (Step::Freezing, so_far) => format!("Replay {}: {} so far", batch.id, words::messages(so_far)),
        (_, items) => format!("Replay {}: {}", batch.id, words::messages(items)),
    }
}

/// A live replay as the pages of its DLQ name it.
#[derive(Debug, Clone)]
pub struct OpenReplay {
    pub path: String,
    pub said: String,
}

impl OpenReplay {
    pub fn of(open: &OpenBatch) -> OpenReplay {
        OpenReplay { path: format!("/replays/{}", open.id), said: format!("replay {}, {}", open.id, words::state_name(open.state)) }
    }
}

/// The batch that a path names.
async fn find(state: &AppState, id: &str) -> Result<Batch, Failure> {
    let batch = match query::id(id) {
        Some(id) => state.store.batch(id).await?,
        None => None,
    };
    batch.ok_or_else(|| Failure::not_found(format!("There is no replay {}.", text::short_line(id, 40))))
}

/// Who decides, as the service takes them.
fn decider(acting: &Acting) -> Decider {
    let Principal { name, role, owners } = &acting.principal;
    Decider { by: acting.by.clone(), folded: look_of_name(name), role: *role, scope: owners.clone() }
}

/// Why somebody cannot do what needs `role` on this owner's DLQs; None: they can.
fn cannot(principal: &Principal, role: Role, owner: Option<&str>, what: &str) -> Option<String> {
    if principal.role < role {
        let name = text::short_line(&principal.name, 64);
        return Some(format!("{what} needs the role {}; {name} has the role {}.", role.as_str(), principal.role.as_str()));
    }
    outside(principal, owner)
}

/// What a form could not do, so that its page can say it: the status and a sentence.
///
/// # Errors
/// What no change to the form would mend.
fn refused(error: ReplayError) -> Result<Refused, Failure> {
    Ok(match error {
        ReplayError::Invalid { field, problem } => {
            let said = words::sentence(&format!("{}: {problem}", words::field(field)));
            Refused { status: StatusCode::UNPROCESSABLE_ENTITY, field: Some(field), said }
        }
        ReplayError::Conflict(said) => Refused { status: StatusCode::CONFLICT, field: None, said: words::sentence(&capital(&said)) },
        other => return Err(other.into()),
    })
}

/// A form that does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refused {
    status: StatusCode,
    /// The service's name of the field, where it is one field's fault.
    field: Option<&'static str>,
    said: String,
}

fn capital(said: &str) -> String {
    let mut chars = said.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A page with the status of what it says.
fn answer(status: StatusCode, page: impl IntoResponse) -> Response {
    (status, page).into_response()
}
