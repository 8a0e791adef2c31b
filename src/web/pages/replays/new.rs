//! `/replays/new`: what exactly, where to, how fast? The whole form stands in the query string, as typed; `POST /replays` takes the same fields.

use std::collections::BTreeSet;

use askama::Template;
use askama_web::WebTemplate;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Redirect, Response};

use super::super::group::new_form_id;
use super::super::{Acting, Chip, Choice, Look, MessageLine, Shell, SignedIn, chips, dlq_path, names};
use super::samples::Sample;
use super::words::{self, WAIVABLE};
use super::{OpenReplay, Refused, answer, cannot, refused};
use crate::api::Failure;
use crate::api::dlqs::unknown_dlq;
use crate::api::query::{DEFAULT_LIMIT, Query};
use crate::domain::access::{Principal, Role};
use crate::domain::message::MessageState;
use crate::domain::readiness::{IDEMPOTENCY_LINES, SCHEMA_LINES};
use crate::domain::terms::{AlsoReadBy, ReplayTerms};
use crate::domain::verdict::{Check, Waiver};
use crate::services::replay::propose::{Proposal, Wanted};
use crate::store::dlqs::Dlq;
use crate::store::messages::{MessageFilter, MessageRow};
use crate::web::AppState;
use crate::web::view::diff::DiffLine;
use crate::web::view::{format, text};

/// Which messages, as the lists of messages take it.
const FILTERS: [&str; 11] = ["state", "follow_up", "class", "group", "partition", "key", "q", "from", "to", "from_ms", "to_ms"];
/// Which DLQ, and how the messages are chosen: `scope` is `all` or `page`, `filter` the conditions as one query string, `page_ids` what the page showed.
const CHOICE: [&str; 7] = ["cluster", "topic", "after", "ids", "scope", "filter", "page_ids"];
const PLAN: [&str; 12] = [
    "target",
    "max_per_second",
    "canary",
    "stop_on_returned_pct",
    "transform",
    "preview",
    "reason",
    "waiver_reason",
    "auto_submit",
    "emergency",
    "incident",
    "form_id",
];
/// Matching messages are counted up to here; the freeze counts them all.
const COUNTED: i64 = 500;
/// Messages named one by one in a form.
const MOST_IDS: usize = 1_000;
/// Messages on which a transform is tried out.
const TRIED: usize = 3;

#[derive(Template, WebTemplate)]
#[template(path = "replays/new.html")]
pub struct NewPage {
    shell: Shell,
    /// Said on top.
    fault: Option<String>,
    /// The form's field that is at fault.
    faulty: &'static str,
    /// None: no DLQ is chosen yet, or nothing can be replayed from it.
    form: Option<Form>,
    nowhere: Option<Nowhere>,
    clusters: Vec<Choice>,
    topics: Vec<Choice>,
}

/// A DLQ from which nothing can be replayed, and why.
struct Nowhere {
    said: &'static str,
    topic: String,
    dlq_path: String,
}

/// The form of one DLQ.
struct Form {
    cluster: String,
    topic: String,
    dlq_path: String,
    /// Why nothing can be proposed here; None: it can.
    cannot: Option<String>,
    open: Vec<OpenReplay>,
    scope: ScopeView,
    targets: Vec<Choice>,
    readers: Vec<Reader>,
    group: Option<String>,
    pace: String,
    pace_limit: String,
    canary: String,
    canary_timeout: String,
    stop: String,
    transform: String,
    /// The filter that the configuration names, used where nothing is typed.
    configured_transform: Option<String>,
    tried: Vec<Sample>,
    checks: Vec<CheckLine>,
    waivers: Vec<WaiverBox>,
    waiver_reason: String,
    waiver_limit: String,
    /// The standing waiver of the DLQ.
    idempotent: Option<String>,
    reason: String,
    auto_submit: bool,
    approval: String,
    emergency: Option<EmergencyView>,
    form_id: String,
}

/// Which messages.
struct ScopeView {
    /// The conditions as one query string.
    filter: String,
    /// The same, each with the way to the form without it.
    chips: Vec<Chip>,
    /// Named one by one.
    ids: Option<String>,
    /// "All 185 that match, as of 14:02:11 UTC".
    all: String,
    all_note: &'static str,
    /// "The 50 on this page"; None: they are all there are.
    page: Option<String>,
    page_ids: String,
    page_chosen: bool,
    lines: Vec<MessageLine>,
    /// Nothing of it can be replayed, and what helps.
    nothing: Option<String>,
    messages_link: String,
}

/// Somebody else who receives what is sent.
struct Reader {
    group: String,
    said: String,
}

/// A check and how it stands.
struct CheckLine {
    name: &'static str,
    said: String,
    /// To be pasted, where it is missing.
    lines: Option<&'static str>,
}

struct WaiverBox {
    field: &'static str,
    label: &'static str,
    chosen: bool,
}

/// The emergency replay of this DLQ, where it is switched on and the reader may.
struct EmergencyView {
    chosen: bool,
    incident: String,
    limit: String,
}

/// What was asked for.
struct Asked {
    cluster: String,
    topic: String,
    /// The conditions, each a parameter of its own.
    filter: Query,
    after: Option<i64>,
    ids: Option<Vec<i64>>,
    /// Everything, for the fields.
    query: Query,
}

/// Everything that stands in the form.
fn fields() -> Vec<&'static str> {
    let waivers = WAIVABLE.iter().map(|waivable| waivable.field);
    FILTERS.into_iter().chain(CHOICE).chain(PLAN).chain(waivers).collect()
}

impl Asked {
    /// None: no DLQ is named.
    fn of(query: Query) -> Result<Option<Asked>, Failure> {
        let (Some(cluster), Some(topic)) = (query.text("cluster")?.map(str::to_owned), query.text("topic")?.map(str::to_owned)) else {
            return Ok(None);
        };
        let beside: Vec<&str> = fields().into_iter().filter(|name| !FILTERS.contains(name)).collect();
        let filter = match query.text("filter")? {
            Some(inner) => inner.to_owned(),
            None => query.rewritten(&beside, &[]),
        };
        let filter = Query::parse(Some(&filter), &FILTERS)?;
        let ids = query.text("ids")?.map(ids).transpose()?;
        Ok(Some(Asked { cluster, topic, filter, after: query.integer("after", 1, i64::MAX)?, ids, query }))
    }

    fn text(&self, name: &str) -> Result<&str, Failure> {
        Ok(self.query.text(name)?.unwrap_or_default())
    }

    /// Several lines come with CR LF from browsers.
    fn lines(&self, name: &str) -> Result<String, Failure> {
        Ok(self.text(name)?.replace("\r\n", "\n").trim().to_owned())
    }

    fn message_filter(&self) -> Result<MessageFilter, Failure> {
        let (cluster, topic) = (Some(self.cluster.clone()), Some(self.topic.clone()));
        Ok(MessageFilter { cluster, topic, ..self.filter.message_filter()? })
    }

    /// As `/messages?..` takes it.
    fn list_query(&self) -> String {
        self.filter.rewritten(&[], &[("cluster", &self.cluster), ("topic", &self.topic)])
    }

    fn waivers(&self) -> Result<Vec<Waiver>, Failure> {
        waivers(&self.query, self.text("waiver_reason")?)
    }
}

/// The waivers that a form's boxes ask for, all with one reason.
pub(super) fn waivers(query: &Query, reason: &str) -> Result<Vec<Waiver>, Failure> {
    let ticked = |field: &str| query.bytes(field).is_some();
    let waiver = |waivable: &words::Waivable| Waiver {
        check: waivable.check,
        verdict: waivable.verdict.to_owned(),
        reason: reason.trim().to_owned(),
    };
    Ok(WAIVABLE.iter().filter(|waivable| ticked(waivable.field)).map(waiver).collect())
}

fn joined(ids: &[i64]) -> String {
    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

fn ids(list: &str) -> Result<Vec<i64>, Failure> {
    let ids: Option<BTreeSet<i64>> = list.split([',', ' ']).filter(|id| !id.is_empty()).map(crate::api::query::id).collect();
    match ids {
        Some(ids) if ids.len() <= MOST_IDS => Ok(ids.into_iter().collect()),
        Some(ids) => Err(Failure::bad_request(format!(
            "The parameter ids names {} messages; a form takes at most {}. Choose them by a filter, or over the API.",
            format::exact(ids.len() as i64),
            format::exact(MOST_IDS as i64)
        ))),
        None => Err(Failure::bad_request("The parameter ids must be numbers of messages with commas between them.".to_owned())),
    }
}

/// `GET /replays/new`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &fields())?;
    let maker = Maker { state: &state, principal: &principal, look };
    let page = match Asked::of(query.clone())? {
        Some(asked) => maker.form(asked, None).await?,
        None => maker.choice(&query).await?,
    };
    Ok(page.into_response())
}

/// `POST /replays`.
pub async fn create(State(state): State<AppState>, acting: Acting, look: Look, body: Bytes) -> Result<Response, Failure> {
    let Ok(body) = std::str::from_utf8(&body) else {
        return Err(Failure::bad_request("The form is no text.".to_owned()));
    };
    let query = Query::parse(Some(body), &fields())?;
    let Some(asked) = Asked::of(query)? else {
        return Err(Failure::bad_request("The form names no DLQ: begin at the DLQ's page.".to_owned()));
    };
    acting.acts_on(state.owner_of(&asked.cluster, &asked.topic).await?.as_deref())?;
    let maker = Maker { state: &state, principal: &acting.principal, look };
    let proposal = match proposal(&asked)? {
        Ok(proposal) => proposal,
        Err(refused) => return Ok(answer(refused.status, maker.form(asked, Some(refused)).await?)),
    };
    match state.replays.propose(&acting.by, &acting.principal.owners, proposal).await {
        Ok(proposed) => Ok(Redirect::to(&format!("/replays/{}", proposed.batch.id)).into_response()),
        Err(error) => {
            let refused = refused(error)?;
            Ok(answer(refused.status, maker.form(asked, Some(refused)).await?))
        }
    }
}

/// What the form proposes, or what of it does not do.
fn proposal(asked: &Asked) -> Result<Result<Proposal, Refused>, Failure> {
    let given = |name: &str| asked.lines(name).map(|text| Some(text).filter(|text| !text.is_empty()));
    let wanted = match (&asked.ids, asked.text("scope")?) {
        (Some(ids), _) => Wanted::Ids(ids.clone()),
        (None, "page") => Wanted::Ids(ids(asked.text("page_ids")?)?),
        (None, _) => Wanted::Filter { filter: Box::new(asked.message_filter()?), query: asked.list_query() },
    };
    let mut numbers = [None; 3];
    for (place, name) in NUMBERS.into_iter().enumerate() {
        let Some(typed) = given(name)? else { continue };
        match typed.replace(',', "").parse() {
            Ok(number) => numbers[place] = Some(number),
            Err(_) => {
                let said = format!("{}: a whole number is needed, not \"{}\".", words::field(name), text::short_line(&typed, 40));
                return Ok(Err(Refused { status: axum::http::StatusCode::UNPROCESSABLE_ENTITY, field: Some(name), said }));
            }
        }
    }
    let [max_per_second, canary, stop_on_returned_pct] = numbers;
    Ok(Ok(Proposal {
        cluster: asked.cluster.clone(),
        topic: asked.topic.clone(),
        wanted,
        reason: asked.lines("reason")?,
        target: given("target")?,
        max_per_second,
        canary,
        stop_on_returned_pct,
        transform: given("transform")?,
        waivers: asked.waivers()?,
        why_now: None,
        incident: given("incident")?,
        auto_submit: asked.query.bytes("auto_submit").is_some(),
        emergency: asked.query.bytes("emergency").is_some(),
        form_id: asked.text("form_id")?.to_owned(),
    }))
}

const NUMBERS: [&str; 3] = ["max_per_second", "canary", "stop_on_returned_pct"];

/// What the page is made from.
struct Maker<'a> {
    state: &'a AppState,
    principal: &'a Principal,
    look: Look,
}

impl Maker<'_> {
    fn page(&self, form: Option<Form>, refused: Option<Refused>) -> NewPage {
        NewPage {
            shell: Shell::new(self.state, Some(self.principal), self.look, "replays"),
            faulty: match refused.as_ref().and_then(|refused| refused.field) {
                Some("filter" | "message_ids" | "topic") => "scope",
                Some("form_id" | "emergency") | None => "",
                Some(field) => field,
            },
            fault: refused.map(|refused| refused.said),
            form,
            nowhere: None,
            clusters: Vec::new(),
            topics: Vec::new(),
        }
    }

    /// Asks for the DLQ.
    async fn choice(&self, query: &Query) -> Result<NewPage, Failure> {
        let dlqs = self.state.store.dlqs().await?;
        Ok(NewPage {
            clusters: names(dlqs.iter().map(|dlq| dlq.cluster.as_str()), query.text("cluster")?),
            topics: names(dlqs.iter().map(|dlq| dlq.topic.as_str()), query.text("topic")?),
            ..self.page(None, None)
        })
    }

    async fn form(&self, asked: Asked, refused: Option<Refused>) -> Result<NewPage, Failure> {
        let state = self.state;
        let Some(dlq) = state.store.dlq(&asked.cluster, &asked.topic).await? else {
            return Err(unknown_dlq(&asked.cluster, &asked.topic));
        };
        let owner = state.owner_of(&asked.cluster, &asked.topic).await?;
        let terms = state.replays.entry(&asked.cluster, &asked.topic).map(|entry| entry.terms);
        let cannot = cannot(self.principal, Role::Operator, owner.as_deref(), "Proposing a replay");
        let Some(terms) = terms.filter(|_| !state.options.read_only) else {
            let nowhere =
                Nowhere { said: nowhere(state), topic: text::line(&asked.topic), dlq_path: dlq_path(&asked.cluster, &asked.topic) };
            return Ok(NewPage { nowhere: Some(nowhere), ..self.page(None, refused) });
        };
        let rows = self.newest(&asked).await?;
        let asks = asked.query.bytes("preview").is_some();
        let refused = refused.or(if asks { self.no_filter(&asked)? } else { None });
        let tried = if asks && refused.is_none() { self.tried(&asked, &rows).await? } else { Vec::new() };
        let typed = |name: &str, otherwise: String| -> Result<String, Failure> {
            Ok(asked.query.text(name)?.map_or(otherwise, |typed| text::short_line(typed, 40)))
        };
        let settings = state.replays.entry(&asked.cluster, &asked.topic).map(|entry| entry.settings);
        let form = Form {
            dlq_path: dlq_path(&asked.cluster, &asked.topic),
            cannot,
            open: state.store.open_batches(Some(dlq.id)).await?.iter().map(OpenReplay::of).collect(),
            targets: targets(terms, &rows, asked.text("target")?),
            readers: terms.also_read_by.iter().map(Reader::of).collect(),
            group: settings.and_then(|settings| settings.consumer_group.as_deref()).map(text::line),
            pace: typed("max_per_second", terms.max_per_second.to_string())?,
            pace_limit: format::exact(terms.max_per_second.into()),
            canary: typed("canary", terms.canary.to_string())?,
            canary_timeout: format::age(i64::try_from(terms.canary_timeout_s).unwrap_or(i64::MAX).saturating_mul(1_000)),
            stop: typed("stop_on_returned_pct", terms.stop_on_returned_pct.to_string())?,
            transform: text::block(&asked.lines("transform")?),
            configured_transform: terms
                .schema
                .as_ref()
                .and_then(|schema| schema.transform.as_ref())
                .map(|path| text::line(&path.display().to_string())),
            tried,
            checks: checks(terms),
            waivers: waiver_boxes(&asked.query, |waivable| match waivable.check {
                Check::Schema => terms.schema.is_none() && waivable.verdict == "not_configured",
                Check::Idempotency => terms.idempotency.is_none() && waivable.verdict == "not_configured",
            }),
            waiver_reason: text::line(asked.text("waiver_reason")?),
            waiver_limit: format::exact(terms.waiver_max_items.into()),
            idempotent: terms.consumer_is_idempotent.as_deref().map(|why| text::short_line(why, 300)),
            reason: text::line(asked.text("reason")?),
            auto_submit: asked.query.bytes("auto_submit").is_some(),
            approval: self.approval(),
            emergency: self.emergency(terms, &asked)?,
            form_id: new_form_id()?,
            scope: self.scope(&dlq, &asked, rows).await?,
            cluster: text::line(&asked.cluster),
            topic: text::line(&asked.topic),
        };
        Ok(self.page(Some(form), refused))
    }

    /// The newest messages of the scope that can be replayed, one more than are counted.
    async fn newest(&self, asked: &Asked) -> Result<Vec<MessageRow>, Failure> {
        let store = &self.state.store;
        let mut rows = Vec::new();
        if let Some(ids) = &asked.ids {
            for id in ids {
                rows.extend(store.message(*id).await?.filter(|row| row.cluster == asked.cluster && row.topic == asked.topic));
            }
        } else {
            let filter = asked.message_filter()?;
            let states = TAKEN.into_iter().filter(|state| filter.state.is_none_or(|wanted| wanted == *state));
            for state in states {
                let filter = MessageFilter { state: Some(state), ..filter.clone() };
                rows.extend(store.messages(&filter, None, COUNTED + 1).await?.items);
            }
        }
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.id));
        Ok(rows)
    }

    async fn scope(&self, dlq: &Dlq, asked: &Asked, rows: Vec<MessageRow>) -> Result<ScopeView, Failure> {
        let now_ms = self.state.clock.now_ms();
        let found = rows.len() as i64;
        let open = rows.iter().filter(|row| TAKEN.contains(&row.state)).count() as i64;
        let matching = match (&asked.ids, found > COUNTED) {
            (None, true) => self.counted(dlq, asked).await?,
            _ => Some(open),
        };
        let as_of = format!("as of {}", format::time_of_day(now_ms));
        let all = match (&asked.ids, matching) {
            (Some(_), _) => words::messages(open),
            (None, Some(1)) => format!("The one that matches, {as_of}"),
            (None, Some(count)) => format!("All {} that match, {as_of}", format::exact(count)),
            (None, None) => format!("All that match, {as_of}: more than {}", format::exact(COUNTED)),
        };
        let on_page: Vec<&MessageRow> =
            rows.iter().filter(|row| asked.after.is_none_or(|after| row.id < after)).take(DEFAULT_LIMIT as usize).collect();
        // What was offered as the page stays the page, whatever has arrived since.
        let page_ids = match asked.text("page_ids")? {
            "" => on_page.iter().map(|row| row.id).collect(),
            shown => ids(shown)?,
        };
        let page = (asked.ids.is_none() && found > page_ids.len() as i64 && !page_ids.is_empty())
            .then(|| format!("The {} on this page", format::exact(page_ids.len() as i64)));
        let path = format!("/replays/new?{}", asked.filter.rewritten(&[], &[("cluster", &asked.cluster), ("topic", &asked.topic)]));
        let base = |chip: Chip| Chip { without: without(asked, chip.name), ..chip };
        Ok(ScopeView {
            filter: asked.filter.with("", None),
            chips: chips(&path, &asked.filter, &FILTERS).into_iter().map(base).collect(),
            ids: asked.ids.as_deref().map(joined),
            all,
            all_note: match (&asked.ids, matching) {
                (None, None) => "They are counted when they are frozen; what arrives after that is not among them.",
                _ => "What arrives after they are frozen is not among them.",
            },
            page,
            page_ids: joined(&page_ids),
            page_chosen: asked.text("scope")? == "page",
            nothing: nothing(asked, found, open),
            lines: on_page.into_iter().map(|row| MessageLine::of(row, now_ms)).collect(),
            messages_link: format!("/messages?{}", asked.list_query()),
        })
    }

    /// How many match, where a counter knows. None: only the freeze will tell.
    async fn counted(&self, dlq: &Dlq, asked: &Asked) -> Result<Option<i64>, Failure> {
        let store = &self.state.store;
        let given: Vec<&str> = asked.filter.pairs().map(|(name, _)| name).collect();
        let of_state =
            |counts: &std::collections::BTreeMap<String, i64>, state: MessageState| counts.get(state.as_str()).copied().unwrap_or(0);
        match given[..] {
            [] | ["state"] => {
                let counts = store.dlq_counts(Some(dlq.id)).await?.remove(&dlq.id).unwrap_or_default().by_state;
                let wanted = asked.message_filter()?.state;
                let states = TAKEN.into_iter().filter(|state| wanted.is_none_or(|wanted| wanted == *state));
                Ok(Some(states.map(|state| of_state(&counts, state)).sum()))
            }
            _ => Ok(None),
        }
    }

    /// Why the typed transform is no jq filter; None: it is, or none is typed.
    fn no_filter(&self, asked: &Asked) -> Result<Option<Refused>, Failure> {
        let transform = asked.lines("transform")?;
        let fault = if transform.is_empty() { None } else { self.state.replays.compiles(&transform).err() };
        let said = |fault: String| format!("The transform is no jq filter: {}", words::sentence(&fault));
        Ok(fault.map(|fault| Refused { status: axum::http::StatusCode::UNPROCESSABLE_ENTITY, field: Some("transform"), said: said(fault) }))
    }

    /// What the typed transform makes of the newest messages.
    async fn tried(&self, asked: &Asked, rows: &[MessageRow]) -> Result<Vec<Sample>, Failure> {
        let transform = asked.lines("transform")?;
        let ids: Vec<i64> = rows.iter().take(TRIED).map(|row| row.id).collect();
        let entry = self.state.replays.entry(&asked.cluster, &asked.topic);
        super::samples::of(self.state, entry, &ids, Some(transform.as_str()).filter(|filter| !filter.is_empty())).await
    }

    fn approval(&self) -> String {
        let terms = &self.state.replays.approval;
        format!(
            "{} by somebody other than you, {} from {} messages on, one more where a check is waived.",
            format::counted(terms.quorum.into(), "approval", "approvals"),
            terms.large_quorum,
            format::exact(terms.large_batch.into())
        )
    }

    fn emergency(&self, terms: &ReplayTerms, asked: &Asked) -> Result<Option<EmergencyView>, Failure> {
        if !terms.emergency_replay || self.principal.role < Role::Approver {
            return Ok(None);
        }
        Ok(Some(EmergencyView {
            chosen: asked.query.bytes("emergency").is_some(),
            incident: text::line(asked.text("incident")?),
            limit: format::exact(terms.emergency_max_items.into()),
        }))
    }
}

/// The states from which messages are taken into a replay.
const TAKEN: [MessageState; 2] = [MessageState::Quarantined, MessageState::UnderReview];

/// Why nothing can be replayed from this DLQ at all.
fn nowhere(state: &AppState) -> &'static str {
    match state.options.read_only {
        true => "This Lazaret is read-only: it has no producer, so nothing can be proposed or sent.",
        false => "No [[dlq]] entry covers this topic, so there are no terms to replay it on. Settings names the lines to paste.",
    }
}

/// Why there is nothing to replay here, and what helps.
fn nothing(asked: &Asked, found: i64, open: i64) -> Option<String> {
    if open > 0 {
        return None;
    }
    let state = asked.message_filter().ok().and_then(|filter| filter.state);
    Some(match (state, found) {
        (Some(MessageState::Archived), _) => {
            "Archived messages are not replayed: restore them first, then they are under review.".to_owned()
        }
        (Some(MessageState::Replayed), _) => "These are replayed already. One that comes back is a new message.".to_owned(),
        (_, 0) => "No message that is in quarantine or under review matches.".to_owned(),
        _ => "None of these is in quarantine or under review any more.".to_owned(),
    })
}

/// The address of the form without one of its conditions.
fn without(asked: &Asked, condition: &str) -> String {
    let name = match condition {
        "kind of failure" => "class",
        "failure" => "group",
        "record key" => "key",
        "search" => "q",
        other => other,
    };
    let names: &[&str] = match name {
        "from" => &["from", "from_ms"],
        "before" => &["to", "to_ms"],
        name => &[name],
    };
    format!("/replays/new?{}", asked.filter.rewritten(names, &[("cluster", &asked.cluster), ("topic", &asked.topic)]))
}

fn targets(terms: &ReplayTerms, rows: &[MessageRow], chosen: &str) -> Vec<Choice> {
    let origins: BTreeSet<&str> = rows.iter().filter_map(|row| row.origin_topic.as_deref()).collect();
    let label = |target: &String| match (target.as_str(), origins.len(), origins.first()) {
        ("origin", 1, Some(origin)) => format!("where they came from: {}", text::line(origin)),
        ("origin", 0, _) => "where they came from (not known)".to_owned(),
        ("origin", ..) => format!("where they came from ({} topics: choose one of them by a filter)", origins.len()),
        (target, ..) => text::line(target),
    };
    terms
        .targets
        .iter()
        .enumerate()
        .map(|(place, target)| Choice {
            value: target.clone(),
            label: label(target),
            chosen: if chosen.is_empty() { place == 0 } else { target == chosen },
        })
        .collect()
}

impl Reader {
    fn of(other: &AlsoReadBy) -> Reader {
        let said = match &other.ledger {
            Some(ledger) => format!("its duplicate check {} is asked, too", text::line(ledger)),
            None => "nobody can tell whether it has applied them: the approver must accept that".to_owned(),
        };
        Reader { group: text::line(&other.group), said }
    }
}

fn checks(terms: &ReplayTerms) -> Vec<CheckLine> {
    let schema = match &terms.schema {
        Some(schema) => CheckLine { name: "Schema check", said: format!("against {}", text::line(&schema.schema)), lines: None },
        None => CheckLine {
            name: "Schema check",
            said: "not configured: messages are held unless it is waived".to_owned(),
            lines: Some(SCHEMA_LINES),
        },
    };
    let duplicate = match &terms.idempotency {
        Some(check) => CheckLine {
            name: "Duplicate check",
            said: format!("{}, key {}", text::line(&check.ledger), text::line(check.key.source())),
            lines: None,
        },
        None => CheckLine {
            name: "Duplicate check",
            said: "not configured: messages are held unless it is waived".to_owned(),
            lines: Some(IDEMPOTENCY_LINES),
        },
    };
    vec![schema, duplicate]
}

fn waiver_boxes(query: &Query, offered: impl Fn(&words::Waivable) -> bool) -> Vec<WaiverBox> {
    let offered = WAIVABLE.iter().filter(|waivable| offered(waivable) || query.bytes(waivable.field).is_some());
    offered
        .map(|waivable| WaiverBox { field: waivable.field, label: waivable.label, chosen: query.bytes(waivable.field).is_some() })
        .collect()
}
