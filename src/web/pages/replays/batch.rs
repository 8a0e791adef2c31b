//! `/replays/{id}`: is it working? should I stop? And before that: what would it do.

use askama::Template;
use askama_web::WebTemplate;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};

use super::super::{Acting, Look, Shell, SignedIn, StatusLine, When, dlq_path};
use super::items::{ItemTable, ListKind, Tab, tabs};
use super::warnings::{self, WarningLine};
use super::words::{self, ForecastView, PlanLine, Told, WAIVABLE};
use super::{Refused, answer, cannot, decider, find, refused, title};
use crate::api::Failure;
use crate::api::query::Query;
use crate::domain::access::{Principal, Role, look_of_name};
use crate::domain::replay::{BatchState, Step};
use crate::domain::terms::ReplayTerms;
use crate::services::replay::ReplayError;
use crate::services::replay::propose::Submission;
use crate::store::replay_pages::VerdictCount;
use crate::store::replays::{Approval, Batch, LogLine};
use crate::web::AppState;
use crate::web::view::{format, text};

/// Lines of the log that are shown.
const LOG: i64 = 50;
/// Of these, so many are not folded away.
const NEWEST_LOG: usize = 6;
/// New arrivals are counted up to here.
const ARRIVED: i64 = 1_000;
/// Verdicts of so many messages are counted.
pub(super) const LOOKED_AT: i64 = 5_000;

#[derive(Template, WebTemplate)]
#[template(path = "replays/batch.html")]
pub struct BatchPage {
    shell: Shell,
    /// This very view, for its live region.
    url: String,
    head: Head,
    /// A form that could not be done, and why.
    fault: Option<String>,
    now: Now,
    /// Time alone changes what it says: it is looked at again without a hint.
    ticks: bool,
    told: Told,
    forecast: Option<ForecastView>,
    warnings: Vec<WarningLine>,
    plan: Vec<PlanLine>,
    fingerprint: Option<String>,
    approvals: Vec<ApprovalLine>,
    /// Of an emergency replay that was approved.
    emergency: Option<EmergencyView>,
    tabs: Vec<Tab>,
    items: Option<ItemTable>,
    /// The newest lines.
    log: Vec<LogView>,
    /// Those before them, folded away.
    older_log: Vec<LogView>,
    acts: Acts,
}

/// What stands over every page of one replay.
pub(super) struct Head {
    pub id: i64,
    pub path: String,
    pub hint: String,
    pub title: String,
    pub topic: String,
    pub cluster: String,
    pub dlq_path: String,
    pub status: StatusLine,
    pub emergency: bool,
    pub proposer: String,
    pub proposed: When,
    pub reason: String,
    pub why_now: Option<String>,
    pub incident: Option<String>,
}

/// How it stands, the answer first.
struct Now {
    lede: String,
    /// What stands behind it, such as why it halted.
    note: Option<NoteLine>,
    bar: Option<Bar>,
    figures: Vec<Figure>,
    /// The sums of what became of everything.
    sums: Vec<String>,
    /// New dead letters since it was frozen, and where they are.
    arrived: Option<(String, Option<String>)>,
}

struct NoteLine {
    status: StatusLine,
    said: String,
}

/// Progress with exact counts.
struct Bar {
    /// None: how many there will be is not known yet.
    of: Option<(i64, i64)>,
    said: String,
    label: &'static str,
}

struct Figure {
    name: &'static str,
    value: String,
    note: String,
}

struct ApprovalLine {
    name: String,
    when: When,
    comment: Option<String>,
}

struct LogView {
    when: When,
    actor: String,
    entry: String,
}

/// The look of a second person at an emergency replay.
enum EmergencyView {
    Reviewed(ApprovalLine),
    /// Not yet: until when it is to be, and the comment as typed by who may.
    Wanted {
        by: String,
        comment: Option<String>,
    },
}

/// A second person looks at an emergency replay within so many ms.
const REVIEW_MS: i64 = 24 * 3_600_000;

/// What the reader can do, by state and role.
#[derive(Default)]
struct Acts {
    /// Why the reader can do nothing; None: they can.
    cannot: Option<String>,
    submit: Option<Submit>,
    /// The review is where it is decided.
    review: bool,
    pause: bool,
    resume: bool,
    /// Going on although it is not proven, with the reason as typed.
    unproven: Option<String>,
    /// The pace now and as typed.
    slow: Option<(String, String)>,
    /// What reopening is called.
    reopen: Option<&'static str>,
    /// What stopping is called, what it does, and the reason as typed.
    stop: Option<(&'static str, &'static str, String)>,
}

/// The form that puts a draft up for approval.
struct Submit {
    /// What speaks against doing it now, as a question; None: nothing does.
    asks_why_now: Option<String>,
    /// Who proposed it, where that is not the reader: what is agreed to is theirs to change.
    of_another: Option<String>,
    why_now: String,
    waivers: Vec<WaiverChoice>,
    waiver_reason: String,
}

struct WaiverChoice {
    field: &'static str,
    label: String,
    chosen: bool,
}

/// What can be done to a replay by a form on its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Submit,
    Pause,
    Resume,
    Stop,
    Reopen,
    SlowDown,
    /// A second person has looked at an emergency replay.
    Reviewed,
}

const TYPED: [&str; 6] = ["why_now", "waiver_reason", "reason", "unproven", "max_per_second", "comment"];

fn form_fields() -> Vec<&'static str> {
    TYPED.into_iter().chain(WAIVABLE.iter().map(|waivable| waivable.field)).collect()
}

/// `GET /replays/{id}`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<BatchPage, Failure> {
    let query = Query::parse(raw.as_deref(), &["items", "after"])?;
    let batch = find(&state, &id).await?;
    View { state: &state, principal: &principal, look }.of(batch, &query, None, &Query::default()).await
}

/// `POST /replays/{id}/submit`.
pub async fn submit(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Submit, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/pause`.
pub async fn pause(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Pause, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/resume`.
pub async fn resume(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Resume, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/stop`.
pub async fn stop(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Stop, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/reopen`.
pub async fn reopen(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Reopen, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/slow-down`.
pub async fn slow_down(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::SlowDown, state, acting, look, &id, &body).await
}

/// `POST /replays/{id}/reviewed`.
pub async fn reviewed(
    State(state): State<AppState>,
    acting: Acting,
    look: Look,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    act(Act::Reviewed, state, acting, look, &id, &body).await
}

/// Does it and leads back to the page; what could not be done is said there, with what was typed.
async fn act(act: Act, state: AppState, acting: Acting, look: Look, id: &str, body: &[u8]) -> Result<Response, Failure> {
    let typed = typed(body, &form_fields())?;
    let batch = find(&state, id).await?;
    let said = |name: &str| -> Result<Option<String>, Failure> {
        Ok(typed.text(name)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
    };
    let (replays, who, id) = (&state.replays, decider(&acting), batch.id);
    let done = match act {
        Act::Submit => {
            let waivers = super::new::waivers(&typed, typed.text("waiver_reason")?.unwrap_or_default())?;
            let submission = Submission { why_now: said("why_now")?, waivers };
            replays.submit(&acting.by, &acting.principal.owners, id, submission).await
        }
        Act::Pause => replays.pause(&who, id).await,
        Act::Resume => replays.resume(&who, id, said("unproven")?.as_deref()).await,
        Act::Stop => replays.stop(&who, id, said("reason")?.as_deref()).await,
        Act::Reopen => replays.reopen(&who, id).await,
        Act::Reviewed => replays.review_emergency(&who, id, &said("comment")?.unwrap_or_default()).await,
        Act::SlowDown => match said("max_per_second")?.unwrap_or_default().replace(',', "").parse() {
            Ok(pace) => replays.slow_down(&who, id, pace).await,
            Err(_) => Err(ReplayError::Invalid { field: "max_per_second", problem: "messages a second must be a whole number".to_owned() }),
        },
    };
    match done {
        Ok(_) => Ok(Redirect::to(&format!("/replays/{id}")).into_response()),
        Err(error) => {
            let refused = refused(error)?;
            let view = View { state: &state, principal: &acting.principal, look };
            let batch = find(&state, &id.to_string()).await?;
            Ok(answer(refused.status, view.of(batch, &Query::default(), Some(refused), &typed).await?))
        }
    }
}

/// A form's fields.
pub(super) fn typed(body: &[u8], fields: &[&str]) -> Result<Query, Failure> {
    let body = std::str::from_utf8(body).map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "The form is no text."))?;
    Query::parse(Some(body), fields)
}

/// What a page of a replay is made from.
pub(super) struct View<'a> {
    pub state: &'a AppState,
    pub principal: &'a Principal,
    pub look: Look,
}

impl View<'_> {
    async fn of(&self, batch: Batch, query: &Query, refused: Option<Refused>, typed: &Query) -> Result<BatchPage, Failure> {
        let (state, now_ms) = (self.state, self.state.clock.now_ms());
        let kind: Option<ListKind> = query.word("items")?;
        let after = query.text("after")?;
        let path = format!("/replays/{}", batch.id);
        let owner = state.owner_of(&batch.cluster, &batch.topic).await?;
        let terms = state.replays.entry(&batch.cluster, &batch.topic).map(|entry| entry.terms);
        let approvals = state.store.approvals(batch.id).await?;
        let mut acts = acts(&batch, self.principal, owner.as_deref(), typed)?;
        if let Some(submit) = &mut acts.submit {
            submit.offer(&state.store.verdict_counts(batch.id, LOOKED_AT).await?, typed);
        }
        let mut log: Vec<LogView> = state.store.batch_log(batch.id, LOG).await?.iter().map(|line| LogView::of(line, now_ms)).collect();
        let older_log = log.split_off(log.len().min(NEWEST_LOG));
        Ok(BatchPage {
            shell: Shell::new(state, Some(self.principal), self.look, "replays"),
            url: format!("{path}{}", query.link("", None)),
            fault: refused.map(|refused| refused.said),
            now: self.now(&batch, terms, owner.as_deref(), &approvals, now_ms).await?,
            ticks: batch.state == BatchState::Executing,
            told: Told::of(batch.state),
            forecast: batch.forecast.as_ref().map(|forecast| ForecastView::of(forecast, &path, Told::of(batch.state))),
            warnings: warnings::lines(&batch),
            plan: words::plan(&batch, terms),
            fingerprint: batch.digest.as_deref().map(grouped),
            emergency: self.emergency(&batch, owner.as_deref(), &approvals, typed, now_ms).await?,
            approvals: approvals.iter().map(|approval| ApprovalLine::of(approval, now_ms)).collect(),
            tabs: tabs(&batch, kind),
            items: match kind {
                Some(kind) => Some(ItemTable::read(state, &batch, kind, after).await?),
                None => None,
            },
            log,
            older_log,
            acts,
            head: Head::of(&batch, now_ms),
        })
    }

    async fn emergency(
        &self,
        batch: &Batch,
        owner: Option<&str>,
        approvals: &[Approval],
        typed: &Query,
        now_ms: i64,
    ) -> Result<Option<EmergencyView>, Failure> {
        let Some(approved_at_ms) = batch.approved_at_ms.filter(|_| batch.emergency) else { return Ok(None) };
        if let Some(review) = self.state.store.emergency_review(batch.id).await? {
            return Ok(Some(EmergencyView::Reviewed(ApprovalLine {
                name: text::short_line(&review.name, 64),
                when: When::of(review.at_ms, now_ms),
                comment: Some(text::short_line(&review.comment, 1_000)),
            })));
        }
        let folded = look_of_name(&self.principal.name);
        let took_part = folded == batch.proposer_folded || approvals.iter().any(|approval| approval.name_folded == folded);
        let may = !took_part && cannot(self.principal, Role::Approver, owner, "Reviewing").is_none();
        let at = approved_at_ms.saturating_add(REVIEW_MS);
        let by = format!("{} ({})", format::utc(at), format::ago(at, now_ms));
        let comment = if may { Some(text::line(typed.text("comment")?.unwrap_or_default())) } else { None };
        Ok(Some(EmergencyView::Wanted { by, comment }))
    }

    async fn now(
        &self,
        batch: &Batch,
        terms: Option<&ReplayTerms>,
        owner: Option<&str>,
        approvals: &[Approval],
        now_ms: i64,
    ) -> Result<Now, Failure> {
        let store = &self.state.store;
        let began = batch.started_at_ms.is_some();
        let step = match batch.state {
            BatchState::Executing | BatchState::Paused => store.stage_left(batch.id, batch.stage).await?,
            _ => crate::store::replay_pages::StageLeft { in_stage: false, after_stage: false },
        };
        let proof = step.after_stage && !step.in_stage;
        let lede = match batch.state {
            BatchState::Draft => draft_lede(batch),
            BatchState::AwaitingApproval => awaits(batch, owner, approvals.len()),
            BatchState::Approved => "Approved. It starts within seconds.".to_owned(),
            BatchState::Executing if proof => canary(batch, terms, now_ms),
            BatchState::Executing => sends(batch),
            BatchState::Paused => "Paused: nothing is sent until somebody goes on with it.".to_owned(),
            BatchState::Halted => "Halted: nothing more is sent. Going on needs a new approval.".to_owned(),
            BatchState::Executed => {
                let proven = batch.progress.confirmed_ledger + batch.progress.confirmed_offset;
                format!("Everything has ended. {} of {} sent are proven so far.", format::exact(proven), format::exact(batch.progress.sent))
            }
            BatchState::Verified => words::sum(&batch.progress),
            BatchState::Rejected => "Rejected: nothing was sent.".to_owned(),
            BatchState::Expired => "Expired: nobody answered or used it in time. Nothing was sent.".to_owned(),
            BatchState::Cancelled if !began => "Stopped before anything was sent.".to_owned(),
            BatchState::Cancelled => "Stopped. What was sent is still verified.".to_owned(),
        };
        let mut sums = Vec::new();
        if began && batch.state != BatchState::Verified {
            sums.push(words::sum(&batch.progress));
        }
        sums.extend(words::proofs(&batch.progress));
        sums.extend(self.expires(batch, now_ms));
        Ok(Now {
            lede,
            // That a step waits for its proof is the answer itself then.
            note: note(batch).filter(|_| !(proof && batch.state == BatchState::Executing)),
            bar: bar(batch, proof, now_ms),
            figures: if began { figures(batch) } else { Vec::new() },
            sums,
            arrived: self.arrived(batch).await?,
        })
    }

    /// Until when it waits.
    fn expires(&self, batch: &Batch, now_ms: i64) -> Option<String> {
        let terms = &self.state.replays.approval;
        let (what, ttl_s) = match batch.state {
            BatchState::AwaitingApproval => ("The proposal waits until", terms.proposal_ttl_s),
            BatchState::Approved => ("The approval holds for a start until", terms.approval_ttl_s),
            _ => return None,
        };
        let ttl_ms = i64::try_from(ttl_s).unwrap_or(i64::MAX).saturating_mul(1_000);
        let at = batch.state_since_ms.saturating_add(ttl_ms);
        Some(format!("{what} {} ({}), then it expires.", format::utc(at), format::ago(at, now_ms)))
    }

    async fn arrived(&self, batch: &Batch) -> Result<Option<(String, Option<String>)>, Failure> {
        if batch.step == Step::Freezing {
            return Ok(None);
        }
        let count = self.state.store.arrived_above(batch.dlq_id, batch.as_of_message_id, ARRIVED + 1).await?;
        let link = (count > 0).then(|| format!("{}?state=quarantined#messages", dlq_path(&batch.cluster, &batch.topic)));
        let said = match count {
            0 => "No new dead letter waits in this DLQ since it was frozen.".to_owned(),
            count if count > ARRIVED => {
                format!("More than {} new dead letters wait in this DLQ since it was frozen.", format::exact(ARRIVED))
            }
            count => {
                format!("{} in this DLQ since it was frozen.", format::counted(count, "new dead letter waits", "new dead letters wait"))
            }
        };
        Ok(Some((said, link)))
    }
}

impl Head {
    pub fn of(batch: &Batch, now_ms: i64) -> Head {
        Head {
            id: batch.id,
            path: format!("/replays/{}", batch.id),
            hint: format!("dlq-{}", batch.dlq_id),
            title: title(batch),
            topic: text::line(&batch.topic),
            cluster: text::line(&batch.cluster),
            dlq_path: dlq_path(&batch.cluster, &batch.topic),
            status: words::state(batch),
            emergency: batch.emergency,
            proposer: text::short_line(&batch.proposer, 64),
            proposed: When::of(batch.created_at_ms, now_ms),
            reason: text::short_line(&batch.reason, 2_000),
            why_now: batch.why_now.as_deref().map(|why| text::short_line(why, 2_000)),
            incident: batch.incident.as_deref().map(|incident| text::short_line(incident, 200)),
        }
    }
}

/// A fingerprint in groups of eight, so that two people can compare it aloud.
pub(super) fn grouped(digest: &str) -> String {
    let chars: Vec<char> = digest.chars().collect();
    chars.chunks(8).map(|chunk| chunk.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
}

fn draft_lede(batch: &Batch) -> String {
    match batch.step {
        Step::Freezing => "The messages are being frozen: from now on no other replay takes them.".to_owned(),
        Step::Checking => "Both checks are running on each message. Nothing is sent.".to_owned(),
        Step::Ready => "The forecast is ready. Nothing is sent until it is submitted and somebody else approves it.".to_owned(),
        _ => "The forecast is being drawn up: order of keys, steps, target and consumer group.".to_owned(),
    }
}

/// Who can decide, in words of roles.
pub(super) fn awaits(batch: &Batch, owner: Option<&str>, given: usize) -> String {
    let whose = owner.map_or_else(String::new, |owner| format!(" for the DLQs of {}", text::short_line(owner, 60)));
    let proposer = text::short_line(&batch.proposer, 64);
    match (batch.emergency, batch.quorum) {
        (true, _) => format!(
            "Needs an approver{whose}, with the password once more. Of an emergency replay that may be {proposer}, who proposed it."
        ),
        (false, 0 | 1) => format!("Needs an approver{whose}: anybody but {proposer}, who proposed it."),
        (false, quorum) => {
            format!("Needs {quorum} approvers{whose}: anybody but {proposer}, who proposed it. {given} of {quorum} have approved.")
        }
    }
}

/// Whether it works, and how far it is from stopping by itself.
fn sends(batch: &Batch) -> String {
    let (sent, returned) = (batch.progress.sent, batch.progress.returned);
    match (sent, returned) {
        (0, _) => "Sending: nothing has gone out yet.".to_owned(),
        (sent, 0) => format!("Sending: of {} sent none has come back.", format::exact(sent)),
        (sent, returned) => format!(
            "Sending: {} of {} sent came back ({}; above {}% it halts).",
            format::exact(returned),
            format::exact(sent),
            format::percent(returned, sent),
            batch.plan.stop_on_returned_pct
        ),
    }
}

/// "10 sent, 7 proven; next decision in 1m 40s."
fn canary(batch: &Batch, terms: Option<&ReplayTerms>, now_ms: i64) -> String {
    let progress = &batch.progress;
    let proven = progress.confirmed_ledger + progress.confirmed_offset;
    let returned = match progress.returned {
        0 => String::new(),
        n => format!(", {} returned", format::exact(n)),
    };
    let so_far = format!("{} sent, {} proven{returned}", format::exact(progress.sent), format::exact(proven));
    let timeout = terms.map(|terms| i64::try_from(terms.canary_timeout_s).unwrap_or(i64::MAX).saturating_mul(1_000));
    let left = batch.stage_since_ms.zip(timeout).map(|(since, timeout)| since.saturating_add(timeout) - now_ms);
    match left {
        Some(left) if left > 0 => {
            format!("{so_far}; it goes on as soon as the rest is proven, next decision in {}.", format::age(left))
        }
        _ => format!("{so_far}; it goes on as soon as the rest is proven."),
    }
}

/// Why it is where it is.
fn note(batch: &Batch) -> Option<NoteLine> {
    let said = words::sentence(batch.note.as_deref()?);
    let (kind, word) = match batch.state {
        BatchState::Halted => ("critical", "Why"),
        BatchState::Paused => ("warning", "Why"),
        BatchState::Draft => ("warning", "Missing"),
        _ => ("info", "Note"),
    };
    Some(NoteLine { status: StatusLine { kind, word }, said })
}

fn bar(batch: &Batch, waits_for_proof: bool, now_ms: i64) -> Option<Bar> {
    let progress = &batch.progress;
    match (batch.state, batch.step) {
        (BatchState::Draft, Step::Freezing) => {
            Some(Bar { of: None, said: format!("{} frozen so far.", words::messages(progress.items)), label: "Messages frozen" })
        }
        (BatchState::Draft, Step::Checking) => {
            let pace = Pace::of(progress.checked, batch.created_at_ms, now_ms);
            let said = format!(
                "{} of {} checked{}.",
                format::exact(progress.checked),
                words::messages(progress.items),
                pace.said(progress.items - progress.checked)
            );
            Some(Bar { of: Some((progress.checked, progress.items)), said, label: "Messages checked" })
        }
        (BatchState::Executing | BatchState::Paused | BatchState::Halted, _) => {
            let since = batch.started_at_ms.unwrap_or(now_ms);
            let pace = if batch.state == BatchState::Executing && !waits_for_proof {
                Pace::of(progress.done(), since, now_ms).said(progress.items - progress.done())
            } else {
                String::new()
            };
            let said = format!("{} of {} have ended{pace}.", format::exact(progress.done()), words::messages(progress.items));
            Some(Bar { of: Some((progress.done(), progress.items)), said, label: "Messages that have ended" })
        }
        (BatchState::Executed, _) => {
            let known = progress.sent - progress.pending();
            let said = format!("What became of {} of {} sent is known.", format::exact(known), format::exact(progress.sent));
            Some(Bar { of: Some((known, progress.sent)), said, label: "Messages whose outcome is known" })
        }
        _ => None,
    }
}

/// How fast something goes, over all of its time.
struct Pace {
    per_second: f64,
}

impl Pace {
    fn of(done: i64, since_ms: i64, now_ms: i64) -> Pace {
        let seconds = (now_ms - since_ms).max(0) as f64 / 1e3;
        Pace { per_second: if seconds > 0.0 { done as f64 / seconds } else { 0.0 } }
    }

    /// ", 48/s since the start, about 1m 40s left"; empty where there is no rate yet.
    fn said(&self, left: i64) -> String {
        if self.per_second <= 0.0 || left <= 0 {
            return String::new();
        }
        let rate = match self.per_second {
            rate if rate < 10.0 => format!("{rate:.1}/s"),
            rate => format!("{}/s", format::exact(rate.round() as i64)),
        };
        format!(", {rate} since the start, about {} left", format::age((left as f64 / self.per_second * 1e3).ceil() as i64))
    }
}

fn figures(batch: &Batch) -> Vec<Figure> {
    let progress = &batch.progress;
    let figure = |name, value: i64, note: String| Figure { name, value: format::exact(value), note };
    let unchecked = match progress.sent_unchecked {
        0 => "all checked right before".to_owned(),
        n => format!("{} of them unchecked, as waived", format::exact(n)),
    };
    let returned = format!("of {} sent ({})", format::exact(progress.sent), format::percent(progress.returned, progress.sent));
    let stuck = progress.held + progress.blocked;
    vec![
        figure("Sent", progress.sent, unchecked),
        figure("Applied (ledger)", progress.confirmed_ledger, "its ledger says applied".to_owned()),
        figure("Passed (offset)", progress.confirmed_offset, "its group got past it, and it did not come back".to_owned()),
        figure("Returned", progress.returned, returned),
        figure(
            "Not confirmed",
            progress.unproven + progress.pending(),
            format!("{} still waiting, {} past the time", format::exact(progress.pending()), format::exact(progress.unproven)),
        ),
        figure("Held or blocked", stuck, format!("{} held, {} blocked", format::exact(progress.held), format::exact(progress.blocked))),
    ]
}

impl ApprovalLine {
    fn of(approval: &Approval, now_ms: i64) -> ApprovalLine {
        ApprovalLine {
            name: text::short_line(&approval.name, 64),
            when: When::of(approval.at_ms, now_ms),
            comment: approval.comment.as_deref().map(|comment| text::short_line(comment, 1_000)),
        }
    }
}

impl LogView {
    fn of(line: &LogLine, now_ms: i64) -> LogView {
        LogView { when: When::of(line.at_ms, now_ms), actor: text::short_line(&line.actor, 64), entry: text::short_line(&line.entry, 600) }
    }
}

/// What the reader can do in this state.
fn acts(batch: &Batch, principal: &Principal, owner: Option<&str>, typed: &Query) -> Result<Acts, Failure> {
    let said = |name: &str| -> Result<String, Failure> { Ok(text::line(typed.text(name)?.unwrap_or_default())) };
    let review = batch.state == BatchState::AwaitingApproval;
    if !batch.state.is_live() {
        return Ok(Acts::default());
    }
    if let Some(why) = cannot(principal, Role::Operator, owner, "Steering a replay") {
        return Ok(Acts { cannot: Some(why), review, ..Acts::default() });
    }
    let approver = principal.role >= Role::Approver;
    let state = batch.state;
    let is_own = look_of_name(&principal.name) == batch.proposer_folded;
    let runs = matches!(state, BatchState::Executing | BatchState::Paused);
    let (stop, what) = match state {
        BatchState::Draft => ("Drop this draft", "Its messages go back to where they were."),
        BatchState::AwaitingApproval | BatchState::Approved => ("Withdraw", "Nothing is sent; its messages go back to where they were."),
        _ => ("Stop", "For good, within a second. What is not sent goes back to review; what was sent is still verified."),
    };
    Ok(Acts {
        cannot: None,
        submit: (state == BatchState::Draft && batch.step == Step::Ready).then(|| Submit {
            asks_why_now: warnings::why_now(&batch.warnings).filter(|_| is_own),
            of_another: (!is_own).then(|| text::short_line(&batch.proposer, 64)),
            why_now: String::new(),
            waivers: Vec::new(),
            waiver_reason: String::new(),
        }),
        review,
        pause: state == BatchState::Executing,
        resume: state == BatchState::Paused,
        unproven: if state == BatchState::Paused && approver && !batch.unproven_allowed { Some(said("unproven")?) } else { None },
        slow: if runs { Some((format::exact(batch.plan.max_per_second.into()), said("max_per_second")?)) } else { None },
        reopen: match state {
            _ if batch.emergency && batch.started_at_ms.is_some() => None,
            BatchState::Halted => Some("Reopen as a draft"),
            BatchState::AwaitingApproval => Some("Back to a draft"),
            _ => None,
        },
        stop: Some((stop, what, said("reason")?)),
    })
}

impl Submit {
    /// What the checks held can be waived; what was typed stays.
    fn offer(&mut self, verdicts: &[VerdictCount], typed: &Query) {
        for waivable in WAIVABLE.iter().filter(|_| self.of_another.is_none()) {
            let held =
                verdicts.iter().filter(|count| waivable.holds(&count.schema, &count.idempotency)).map(|count| count.count).sum::<i64>();
            let chosen = typed.bytes(waivable.field).is_some();
            if held > 0 || chosen {
                let label = format!("{}: {}", waivable.label, words::messages(held));
                self.waivers.push(WaiverChoice { field: waivable.field, label, chosen });
            }
        }
        let shown = |name: &str| text::line(typed.text(name).ok().flatten().unwrap_or_default());
        self.why_now = shown("why_now");
        self.waiver_reason = shown("waiver_reason");
    }
}
