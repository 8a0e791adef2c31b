//! `/reviews`: what people do to messages by hand. The forms for it stand on other pages; a review of many messages has a page of its own.

use std::collections::BTreeMap;

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawForm, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::flash::Flash;
use super::group::new_form_id;
use super::{Acting, Look, Shell, SignedIn, When, new_replay, outside};
use crate::api::Failure;
use crate::api::query::{self, MESSAGE_FILTER, Query};
use crate::domain::access::{Principal, Role};
use crate::domain::lifecycle::FollowUp;
use crate::domain::message::MessageState;
use crate::domain::review::{ReviewAction, ReviewState};
use crate::services::review::{Request, Reviews};
use crate::store::messages::MessageRow;
use crate::store::review::{Review, Scope};
use crate::web::AppState;
use crate::web::view::{format, text};

/// Reviews on a page of the list.
const LISTED: i64 = 50;
/// Reviews on the page of a DLQ.
const ON_DLQ: i64 = 3;

/// Messages marked in a list that are replayed together; a page of a list holds fewer.
const MOST_MARKED: usize = 500;

/// What the forms for reviews send.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct ReviewForm {
    action: String,
    reason: String,
    form_id: String,
    ids: Vec<i64>,
    /// The query string of a list: all of it is meant, unless single messages are.
    filter: Option<String>,
    /// "marked" or "all", where a form offers both.
    which: String,
    /// What that review archived is meant.
    archived_by: Option<i64>,
    /// Of the line under old messages: the instant, one more condition of the filter.
    to: Option<String>,
    /// "1": the form stands on the page of the message.
    back: bool,
    /// The button that leads to a new replay of the marked ones, instead of an action.
    replay: bool,
}

impl ReviewForm {
    /// # Errors
    /// 400 naming the field that is not known or not of its kind.
    fn parse(body: &[u8]) -> Result<ReviewForm, Failure> {
        let mut form = ReviewForm::default();
        let body = String::from_utf8_lossy(body);
        for (name, value) in query::form_fields(&body) {
            let value = String::from_utf8(value).map_err(|_| Failure::bad_request(format!("The field {name} must be UTF-8 text.")))?;
            let number =
                || query::id(&value).ok_or_else(|| Failure::bad_request(format!("The field {name} must be a number, not {value:?}.")));
            match name.as_str() {
                "action" => form.action = value,
                "reason" => form.reason = value,
                "form_id" => form.form_id = value,
                "id" => form.ids.push(number()?),
                "filter" => form.filter = Some(value),
                "which" => form.which = value,
                "archived_by" => form.archived_by = Some(number()?),
                "back" => form.back = value == "1",
                "to" => form.to = Some(value),
                "replay" => form.replay = value == "1",
                _ => return Err(Failure::bad_request(format!("Unknown field {name:?}."))),
            }
        }
        Ok(form)
    }

    /// The list's query string with the line's instant.
    fn whole_filter(&self) -> Option<String> {
        let filter = self.filter.as_deref()?;
        Some(self.to.as_ref().map_or_else(|| filter.to_owned(), |to| format!("{filter}&to={}", query::encode(to.as_bytes()))))
    }

    /// # Errors
    /// 400 with what is wrong with the filter or the action.
    fn request(&self) -> Result<Request, Failure> {
        let action = self.known_action()?;
        let scope = match (self.archived_by, self.whole_filter()) {
            (Some(review), _) => Scope::ArchivedBy(review),
            (None, Some(filter)) if self.which == "all" => {
                let query = Query::parse(Some(&filter), &MESSAGE_FILTER)?;
                let filter = Box::new(query.message_filter()?);
                Scope::Filter { filter, query: query.with("after", None) }
            }
            _ => Scope::Ids(self.ids.clone()),
        };
        Ok(Request { action, scope, reason: Some(self.reason.clone()), form_id: self.form_id.clone() })
    }

    /// # Errors
    /// 400 with the actions that there are.
    fn known_action(&self) -> Result<ReviewAction, Failure> {
        self.action.parse().map_err(|sentence| Failure::bad_request(format!("{sentence}.")))
    }

    /// Where the form stood, as far as it says.
    fn came_from(&self) -> (String, &'static str) {
        match (&self.ids[..], self.archived_by, &self.filter) {
            ([one], ..) if self.back => (format!("/messages/{one}"), "Back to the message"),
            (_, Some(review), _) => (format!("/reviews/{review}"), "Back to the review"),
            (_, _, Some(filter)) => (format!("/messages?{filter}"), "Back to the list"),
            _ => ("/messages".to_owned(), "To the messages"),
        }
    }
}

/// `POST /reviews`. What cannot be done is said beside the form as it was typed.
pub async fn begin(
    State(state): State<AppState>,
    State(reviews): State<Reviews>,
    acting: Acting,
    look: Look,
    RawForm(body): RawForm,
) -> Result<Response, Failure> {
    let form = ReviewForm::parse(&body)?;
    let again = |form, refused| again(&state, &acting, look, form, refused);
    if form.replay {
        return match marked(&state, &form.ids).await? {
            Marked::Replay(path) => Ok(Redirect::to(&path).into_response()),
            Marked::Not(fault, ways) => again(form, AgainFault { status: StatusCode::UNPROCESSABLE_ENTITY, said: fault, ways }),
        };
    }
    form.known_action()?;
    let done = match form.request() {
        Ok(request) => reviews.begin(&acting.by, &acting.principal.owners, request).await.map_err(Failure::from),
        // What was typed as the line's instant is all of it that a person can mend.
        Err(failure) if form.to.is_some() => Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, failure.detail)),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(review) => Ok(match &review.scope {
            Scope::Ids(ids) if form.back && ids.len() == 1 => said(review.action).then(&format!("/messages/{}", ids[0])),
            _ => Redirect::to(&format!("/reviews/{}", review.id)).into_response(),
        }),
        Err(Failure { status: status @ (StatusCode::UNPROCESSABLE_ENTITY | StatusCode::CONFLICT), detail: said }) => {
            again(form, AgainFault { status, said, ways: Vec::new() })
        }
        Err(failure) => Err(failure),
    }
}

/// What a replay of the marked messages comes to.
enum Marked {
    /// The way to its form.
    Replay(String),
    /// Why there is none, and what is near it: address and words.
    Not(String, Vec<(String, String)>),
}

/// A replay is of one DLQ.
async fn marked(state: &AppState, ids: &[i64]) -> Result<Marked, Failure> {
    if ids.is_empty() {
        return Ok(Marked::Not("No message is marked: mark those that are to be replayed.".to_owned(), Vec::new()));
    }
    if ids.len() > MOST_MARKED {
        let most = format::exact(MOST_MARKED as i64);
        return Ok(Marked::Not(
            format!("More than {most} messages are marked. A new replay of a whole list takes any number."),
            Vec::new(),
        ));
    }
    let mut of_dlqs: BTreeMap<(String, String), Vec<i64>> = BTreeMap::new();
    for id in ids {
        let row = state.store.message(*id).await?.ok_or_else(|| Failure::not_found(format!("There is no message {id}.")))?;
        of_dlqs.entry((row.cluster, row.topic)).or_default().push(row.id);
    }
    let path = |cluster: &str, topic: &str, ids: &[i64]| {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        new_replay(cluster, topic, &[("ids", &ids)])
    };
    if let (1, Some(((cluster, topic), ids))) = (of_dlqs.len(), of_dlqs.first_key_value()) {
        return Ok(Marked::Replay(path(cluster, topic, ids)));
    }
    let said = format!("The marked messages are of {} DLQs, and a replay is of one: take one after the other.", of_dlqs.len());
    let way = |((cluster, topic), ids): (&(String, String), &Vec<i64>)| {
        let some = format::counted(ids.len() as i64, "message", "messages");
        (path(cluster, topic, ids), format!("Replay the {some} of {}", text::line(topic)))
    };
    Ok(Marked::Not(said, of_dlqs.iter().map(way).collect()))
}

/// A form that could not be done, as it was typed.
#[derive(Template, WebTemplate)]
#[template(path = "reviews/again.html")]
pub struct AgainPage {
    shell: Shell,
    title: String,
    fault: AgainFault,
    form: ReviewForm,
    /// The reason, with what cannot be seen made visible.
    reason: String,
    /// The actions that the form lets choose from; empty: it was a button of its own.
    choices: Vec<(&'static str, &'static str)>,
    /// What the button is called; None: nothing is left to be sent.
    button: Option<&'static str>,
    back: (String, &'static str),
}

/// Why.
struct AgainFault {
    status: StatusCode,
    said: String,
    /// What can be done instead: address and words.
    ways: Vec<(String, String)>,
}

fn again(state: &AppState, acting: &Acting, look: Look, form: ReviewForm, fault: AgainFault) -> Result<Response, Failure> {
    let action = form.known_action().ok().filter(|_| !form.replay);
    let scope = form.request().ok().map(|request| request.scope);
    // Of a list's form nothing may be marked: then there is nothing to send again.
    let is_empty = matches!(&scope, Some(Scope::Ids(ids)) if ids.is_empty());
    let about = scope.as_ref().filter(|_| !is_empty).map(|scope| format!(": {}", about(scope).0)).unwrap_or_default();
    let title = action.map_or_else(|| "Replay the marked messages".to_owned(), |action| format!("{}{about}", label(action)));
    let from_list = form.filter.is_some() && form.to.is_none() && IN_LISTS.iter().any(|action| action.as_str() == form.action);
    let page = AgainPage {
        shell: Shell::new(state, Some(&acting.principal), look, "messages"),
        title,
        reason: text::line(&form.reason),
        choices: if from_list { IN_LISTS.map(|action| (action.as_str(), label(action))).to_vec() } else { Vec::new() },
        button: action.filter(|_| !is_empty).map(label),
        back: form.came_from(),
        form: ReviewForm { form_id: new_form_id()?, ..form },
        fault,
    };
    Ok((page.fault.status, page).into_response())
}

fn said(action: ReviewAction) -> Flash {
    match action {
        ReviewAction::TakeUp => Flash::TakenUp,
        ReviewAction::Release => Flash::Released,
        ReviewAction::Archive | ReviewAction::DrawLine => Flash::Archived,
        ReviewAction::Restore => Flash::Restored,
        ReviewAction::CloseFollowUp => Flash::FollowUpClosed,
    }
}

/// `POST /reviews/{id}/stop`.
pub async fn stop(State(reviews): State<Reviews>, acting: Acting, Path(id): Path<String>) -> Result<Redirect, Failure> {
    let id = query::id(&id).ok_or_else(|| unknown_review(&id))?;
    let review = reviews.stop(&acting.by, &acting.principal.owners, id).await?;
    Ok(Redirect::to(&format!("/reviews/{}", review.id)))
}

fn unknown_review(id: &str) -> Failure {
    Failure::not_found(format!("There is no review {id:?}."))
}

#[derive(Template, WebTemplate)]
#[template(path = "reviews/page.html")]
pub struct ReviewPage {
    shell: Shell,
    review: ReviewView,
}

/// One review for a page.
struct ReviewView {
    id: i64,
    url: String,
    title: String,
    status: &'static str,
    word: &'static str,
    /// In a sentence: how far it has come.
    said: String,
    /// Of how many; None while that is counted.
    progress: Option<(i64, i64)>,
    is_live: bool,
    actor: String,
    begun: When,
    reason: Option<String>,
    /// What it is about, and the list of it.
    about: String,
    link: Option<String>,
    outcome: Vec<Outcome>,
    /// Numbers of replays that have some of the messages.
    replays: Vec<i64>,
    can_stop: bool,
    /// The number of a form that restores what it archived.
    restore: Option<String>,
    changed: String,
}

struct Outcome {
    name: &'static str,
    count: String,
    note: &'static str,
}

/// `GET /reviews/{id}`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    Path(id): Path<String>,
) -> Result<ReviewPage, Failure> {
    let review = match query::id(&id) {
        Some(id) => state.store.review(id).await?,
        None => None,
    };
    let review = review.ok_or_else(|| unknown_review(&id))?;
    let view = ReviewView::of(&review, &principal, state.clock.now_ms())?;
    Ok(ReviewPage { shell: Shell::new(&state, Some(&principal), look, "messages"), review: view })
}

/// What an action is called on a button and in a title.
pub fn label(action: ReviewAction) -> &'static str {
    match action {
        ReviewAction::TakeUp => "Take up",
        ReviewAction::Release => "Release",
        ReviewAction::Archive => "Archive",
        ReviewAction::Restore => "Restore",
        ReviewAction::CloseFollowUp => "Close follow-up",
        ReviewAction::DrawLine => "Draw a line",
    }
}

/// What became of messages that an action changed.
fn done_word(action: ReviewAction) -> &'static str {
    match action {
        ReviewAction::TakeUp => "Taken up",
        ReviewAction::Release => "Released",
        ReviewAction::Archive | ReviewAction::DrawLine => "Archived",
        ReviewAction::Restore => "Restored",
        ReviewAction::CloseFollowUp => "Follow-ups closed",
    }
}

impl ReviewView {
    fn of(review: &Review, principal: &Principal, now_ms: i64) -> Result<ReviewView, Failure> {
        let (status, word) = match review.state {
            ReviewState::Counting => ("info", "Counting"),
            ReviewState::Running => ("info", "Running"),
            ReviewState::Done => ("healthy", "Done"),
            ReviewState::Stopped => ("warning", "Stopped"),
        };
        let (about, link) = about(&review.scope);
        let is_operator = principal.role >= Role::Operator;
        let restores = is_operator && review.action.archives() && !review.state.is_live() && review.changed > 0;
        let outcome = |name, count: i64, note| Outcome { name, count: format::exact(count), note };
        let left = review.seen - review.changed - review.in_replay - review.not_theirs;
        let mut outcomes = vec![outcome(done_word(review.action), review.changed, "")];
        for (name, count, note) in [
            ("In a replay", review.in_replay, "left alone: end the replay first"),
            ("Of other owners", review.not_theirs, "left alone: not theirs to act on who began this"),
            ("Left alone", left, "in a state that this does nothing to, or changed by somebody else meanwhile"),
        ] {
            if count > 0 {
                outcomes.push(outcome(name, count, note));
            }
        }
        Ok(ReviewView {
            id: review.id,
            url: format!("/reviews/{}", review.id),
            title: format!("{}: {about}", label(review.action)),
            status,
            word,
            said: how_far(review, now_ms),
            progress: review.total.map(|total| (review.seen, total)),
            is_live: review.state.is_live(),
            actor: text::short_line(&review.actor, 64),
            begun: When::of(review.created_at_ms, now_ms),
            reason: review.reason.as_deref().map(text::block),
            about,
            link,
            outcome: outcomes,
            replays: review.replays.clone(),
            can_stop: is_operator && review.state.is_live(),
            restore: if restores { Some(new_form_id()?) } else { None },
            changed: format::exact(review.changed),
        })
    }
}

/// What a review is about, and the list that shows it.
fn about(scope: &Scope) -> (String, Option<String>) {
    match scope {
        Scope::Ids(ids) => match ids.as_slice() {
            [one] => (format!("message {one}"), Some(format!("/messages/{one}"))),
            several => (format::counted(several.len() as i64, "marked message", "marked messages"), None),
        },
        Scope::ArchivedBy(undone) => (format!("what review {undone} archived"), Some(format!("/reviews/{undone}"))),
        Scope::Filter { query, .. } => {
            let chips = Query::parse(Some(query), &MESSAGE_FILTER)
                .map(|query| super::chips("/messages", &query, &MESSAGE_FILTER))
                .unwrap_or_default();
            let said = chips.iter().map(|chip| format!("{} {}", chip.name, chip.value)).collect::<Vec<_>>().join(", ");
            (format!("all messages with {said}"), Some(format!("/messages?{query}")))
        }
    }
}

/// How far it has come, at which rate, and how long it will take.
fn how_far(review: &Review, now_ms: i64) -> String {
    let exact = format::exact;
    let (seen, changed) = (exact(review.seen), exact(review.changed));
    let idle_ms = now_ms - review.progress_at_ms;
    // A job looks at it every half second.
    let waits = if review.state.is_live() && idle_ms > 30_000 {
        format!(" Nothing has moved for {}: it goes on by itself.", format::age(idle_ms))
    } else {
        String::new()
    };
    match (review.state, review.total) {
        (ReviewState::Counting, _) | (ReviewState::Running, None) => {
            format!("Finding out how many match: {} so far. Nothing is changed yet.{waits}", exact(review.counted))
        }
        (ReviewState::Running, Some(total)) => {
            let took_s = review.ran_from_ms.map_or(0, |from| (review.progress_at_ms - from) / 1_000);
            let rate = if took_s > 0 { review.seen / took_s } else { 0 };
            let left = if rate > 0 {
                format!(", {}/s, about {} left", exact(rate), format::age((total - review.seen).max(0) / rate * 1_000))
            } else {
                String::new()
            };
            format!("{seen} of {} looked at{left}.{waits}", exact(total))
        }
        (ReviewState::Done, Some(0)) => "No message matched.".to_owned(),
        (ReviewState::Done, _) => format!("{changed} of {seen} changed."),
        (ReviewState::Stopped, Some(total)) => format!("Stopped after {seen} of {}: {changed} were changed and stay so.", exact(total)),
        (ReviewState::Stopped, None) => "Stopped while it was counted: nothing was changed.".to_owned(),
    }
}

#[derive(Template, WebTemplate)]
#[template(path = "reviews/list.html")]
pub struct ReviewsPage {
    shell: Shell,
    /// This view, for its live region.
    url: String,
    lines: Vec<ReviewLine>,
    older: Option<String>,
}

/// A review in a list.
pub struct ReviewLine {
    pub id: i64,
    pub title: String,
    pub status: &'static str,
    pub word: &'static str,
    pub said: String,
    pub actor: String,
    pub begun: When,
}

impl ReviewLine {
    fn of(review: &Review, principal: &Principal, now_ms: i64) -> Result<ReviewLine, Failure> {
        let view = ReviewView::of(review, principal, now_ms)?;
        Ok(ReviewLine {
            id: view.id,
            title: view.title,
            status: view.status,
            word: view.word,
            said: view.said,
            actor: view.actor,
            begun: view.begun,
        })
    }
}

/// `GET /reviews`.
pub async fn list(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    RawQuery(raw): RawQuery,
) -> Result<ReviewsPage, Failure> {
    let query = Query::parse(raw.as_deref(), &["before"])?;
    let found = state.store.reviews(None, query.integer("before", 1, i64::MAX)?, LISTED).await?;
    let now_ms = state.clock.now_ms();
    let older = found.last().filter(|_| found.len() as i64 == LISTED).map(|last| format!("/reviews?before={}", last.id));
    let lines = found.iter().map(|review| ReviewLine::of(review, &principal, now_ms)).collect::<Result<_, _>>()?;
    let url = format!("/reviews{}", query.link("", None));
    Ok(ReviewsPage { shell: Shell::new(&state, Some(&principal), look, "messages"), url, lines, older })
}

/// The newest reviews of many messages of a DLQ.
///
/// # Errors
/// The database could not be asked.
pub async fn of_dlq(state: &AppState, principal: &Principal, dlq_id: i64) -> Result<Vec<ReviewLine>, Failure> {
    let now_ms = state.clock.now_ms();
    state.store.reviews(Some(dlq_id), None, ON_DLQ).await?.iter().map(|review| ReviewLine::of(review, principal, now_ms)).collect()
}

/// A form for many messages: those that are marked in a list, or all that match.
#[derive(Debug, Clone)]
pub struct BulkForm {
    pub form_id: String,
    /// The list's query string.
    pub filter: String,
    /// Whether all that match can be meant: something narrows the list.
    pub narrowed: bool,
    pub choices: Vec<(&'static str, &'static str)>,
}

/// What a list offers.
const IN_LISTS: [ReviewAction; 5] =
    [ReviewAction::Archive, ReviewAction::TakeUp, ReviewAction::Release, ReviewAction::Restore, ReviewAction::CloseFollowUp];

impl BulkForm {
    /// For a list that `query` narrows, with what its page's path says beside it. None: this person may not, or nothing is listed.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn of(
        principal: &Principal,
        owner: Option<Option<&str>>,
        query: &Query,
        fixed: &[(&str, &str)],
    ) -> Result<Option<BulkForm>, Failure> {
        let theirs = owner.is_none_or(|owner| outside(principal, owner).is_none());
        if principal.role < Role::Operator || !theirs {
            return Ok(None);
        }
        let others: Vec<&str> = query.pairs().map(|(name, _)| name).filter(|name| !MESSAGE_FILTER.contains(name)).collect();
        Ok(Some(BulkForm {
            form_id: new_form_id()?,
            filter: query.rewritten(&others, fixed),
            narrowed: !fixed.is_empty() || query.any(&MESSAGE_FILTER),
            choices: IN_LISTS.map(|action| (action.as_str(), label(action))).to_vec(),
        }))
    }
}

/// What can be done to one message.
pub struct Acts {
    pub form_id: String,
    /// To the form that proposes its replay.
    pub replay: Option<String>,
    /// Done at once: word and label.
    pub plain: Option<(&'static str, &'static str)>,
    /// What must say why: word, label, and what it means.
    pub reasoned: Vec<(&'static str, &'static str, &'static str)>,
    /// The replay that has it.
    pub in_replay: Option<i64>,
    /// Why nothing can be done, or less than usual.
    pub said: Option<String>,
}

impl Acts {
    /// # Errors
    /// The system gives no random bytes.
    pub fn of(
        row: &MessageRow,
        principal: &Principal,
        owner: Option<&str>,
        in_replay: Option<i64>,
        read_only: bool,
    ) -> Result<Acts, Failure> {
        let open = matches!(row.state, MessageState::Quarantined | MessageState::UnderReview);
        let mut acts = Acts { form_id: new_form_id()?, replay: None, plain: None, reasoned: Vec::new(), in_replay, said: None };
        if principal.role < Role::Operator {
            acts.said = Some("Taking up, archiving and replaying need the role operator.".to_owned());
            return Ok(acts);
        }
        if let Some(said) = outside(principal, owner) {
            acts.said = Some(said);
            return Ok(acts);
        }
        if in_replay.is_some() {
            return Ok(acts);
        }
        let word = |action: ReviewAction| (action.as_str(), label(action));
        let why = |action: ReviewAction, what: &'static str| (action.as_str(), label(action), what);
        let id = row.id.to_string();
        acts.replay = (open && !read_only).then(|| new_replay(&row.cluster, &row.topic, &[("ids", &id)]));
        match row.state {
            MessageState::Quarantined => {
                acts.plain = Some(word(ReviewAction::TakeUp));
                acts.reasoned.push(why(ReviewAction::Archive, "It counts no more and is not replayed; it can be restored."));
            }
            MessageState::UnderReview => {
                acts.plain = Some(word(ReviewAction::Release));
                acts.reasoned.push(why(ReviewAction::Archive, "It counts no more and is not replayed; it can be restored."));
            }
            MessageState::Archived => {
                if row.follow_up == Some(FollowUp::Open) {
                    acts.reasoned.push(why(ReviewAction::CloseFollowUp, "Say what came of it. The message stays archived."));
                }
                acts.reasoned.push(why(ReviewAction::Restore, "It is under review again."));
            }
            _ => {}
        }
        Ok(acts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Request, Failure> {
        ReviewForm::parse(body.as_bytes()).and_then(|form| form.request())
    }

    #[test]
    fn a_form_means_the_marked_ones_unless_it_says_all() {
        let marked = parse("action=archive&reason=old&form_id=f&id=7&id=9&filter=state%3Dquarantined&which=marked").unwrap();
        assert_eq!((marked.action, marked.scope, marked.reason.as_deref()), (ReviewAction::Archive, Scope::Ids(vec![7, 9]), Some("old")));
        let all = parse("action=release&form_id=f&id=7&filter=state%3Dunder_review%26key%3D%25ff&which=all").unwrap();
        let Scope::Filter { filter, query } = all.scope else { panic!("a filter") };
        assert_eq!(
            (filter.state, filter.key.as_deref(), query.as_str()),
            (Some(MessageState::UnderReview), Some(&b"\xff"[..]), "state=under_review&key=%FF")
        );
        let line = parse("action=draw_line&form_id=f&which=all&filter=topic%3Dt%26state%3Dquarantined&to=2026-11-30T14%3A02").unwrap();
        let Scope::Filter { filter, .. } = line.scope else { panic!("a filter") };
        assert_eq!(filter.to_ms, Some(1_796_047_320_000));
    }

    #[test]
    fn what_a_form_cannot_say_is_named() {
        for (body, said) in [
            ("action=burn", "unknown action \"burn\": use one of take_up"),
            ("action=archive&id=x", "The field id must be a number"),
            ("colour=red", "Unknown field \"colour\""),
            ("action=archive&which=all&filter=after%3D5", "Unknown parameter \"after\""),
            ("action=archive&reason=%ff", "must be UTF-8"),
        ] {
            let failure = parse(body).unwrap_err();
            assert_eq!(failure.status, 400);
            assert!(failure.detail.contains(said), "{body}: {}", failure.detail);
        }
    }
}
