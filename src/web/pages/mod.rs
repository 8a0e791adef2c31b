//! One file per page, each with its template's struct. What several pages show lives here.

pub mod access;
pub mod checklist;
pub mod dlq;
pub mod export;
pub mod flash;
pub mod group;
pub mod live;
pub mod message;
pub mod messages;
pub mod operations;
pub mod overview;
pub mod preferences;
pub mod replays;
pub mod reviews;
pub mod settings;

use std::collections::BTreeSet;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use axum::response::Redirect;
use axum_extra::extract::cookie::CookieJar;

use self::flash::Flash;
use super::frame::request_id;
use super::view::{format, text};
use super::{AppState, assets};
use crate::api::query::{Query, encode};
use crate::domain::access::{Principal, Role};
use crate::domain::alert::Measure;
use crate::domain::audit::By;
use crate::domain::classify::FailureClass;
use crate::domain::group::Shown;
use crate::domain::health::{Because, Status, arriving_from_ms};
use crate::domain::lifecycle::FollowUp;
use crate::domain::message::MessageState;
use crate::store::groups::Group;
use crate::store::messages::{MessagePage, MessageRow};

/// What the layout around every page needs.
#[derive(Debug, Clone)]
pub struct Shell {
    pub css: &'static str,
    /// In the order in which they run.
    pub scripts: &'static [String],
    /// Which entry of the main navigation we are under.
    pub here: &'static str,
    /// Name and role of who is signed in, the role once where both are one word: "ana · operator", "viewer".
    pub user: Option<String>,
    /// The time of day, UTC.
    pub now: String,
    /// The day, for paper and for error pages.
    pub date: String,
    /// Where the stream of hints is; None for who is not signed in.
    pub events: Option<String>,
    pub read_only: bool,
    /// What stands in the search box.
    pub find: String,
    pub look: Look,
}

impl Shell {
    pub fn new(state: &AppState, principal: Option<&Principal>, look: Look, here: &'static str) -> Shell {
        let now_ms = state.clock.now_ms();
        Shell {
            css: assets::css(),
            scripts: assets::scripts(),
            here,
            user: principal.map(|principal| who(&principal.name, principal.role)),
            now: format::time_of_day(now_ms),
            date: format::utc(now_ms).split(' ').next().unwrap_or_default().to_owned(),
            events: principal.map(|_| format!("/events?seen={}", state.store.hints().mark())),
            read_only: state.options.read_only,
            find: String::new(),
            look,
        }
    }
}

/// How one browser wants the pages, kept in cookies and set by `POST /preferences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// "light" or "dark"; None follows the system.
    pub theme: Option<&'static str>,
    /// The keyboard shortcuts are switched off.
    pub no_keys: bool,
    /// What was just done, said once on the page that follows.
    pub flash: Option<Flash>,
}

/// The cookies of [`Look`]. They hold no secret, but nothing but our pages needs them.
pub const THEME_COOKIE: &str = "lazaret-theme";
pub const KEYS_COOKIE: &str = "lazaret-keys";

impl Look {
    /// What the request's cookies say; anything else is the default.
    pub fn of(headers: &HeaderMap) -> Look {
        let jar = CookieJar::from_headers(headers);
        let theme = jar.get(THEME_COOKIE).and_then(|cookie| ["light", "dark"].into_iter().find(|theme| *theme == cookie.value()));
        Look { theme, no_keys: jar.get(KEYS_COOKIE).is_some_and(|cookie| cookie.value() == "off"), flash: Flash::of(headers, &jar) }
    }
}

impl<S: Sync> FromRequestParts<S> for Look {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Look, Self::Rejection> {
        Ok(Look::of(&parts.headers))
    }
}

fn who(name: &str, role: Role) -> String {
    let name = text::short_line(name, 64);
    if name.eq_ignore_ascii_case(role.as_str()) { name } else { format!("{name} · {}", role.as_str()) }
}

/// Who the guard let in. Only on routes that have a role.
#[derive(Debug, Clone)]
pub struct SignedIn(pub Principal);

impl<S: Sync> FromRequestParts<S> for SignedIn {
    type Rejection = crate::api::Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<SignedIn, Self::Rejection> {
        parts.extensions.get::<Principal>().cloned().map(SignedIn).ok_or_else(|| crate::api::Failure::unauthorized("Sign in first."))
    }
}

/// `GET` at the address of a form, one step below its page: to that page. An answer to the form may be a page, and its address is what
/// a browser comes back to.
pub async fn page_of_form(uri: Uri) -> Redirect {
    Redirect::to(uri.path().rsplit_once('/').map_or("/", |(page, _)| page))
}

/// Who the guard let in, as the trail names it. Only on routes that have a role.
#[derive(Debug, Clone)]
pub struct Acting {
    pub principal: Principal,
    pub by: By,
}

impl<S: Sync> FromRequestParts<S> for Acting {
    type Rejection = crate::api::Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Acting, Self::Rejection> {
        let SignedIn(principal) = SignedIn::from_request_parts(parts, state).await?;
        let request_id = request_id(&parts.extensions).map(str::to_owned);
        Ok(Acting { by: By { actor: principal.name.clone(), request_id }, principal })
    }
}

impl Acting {
    /// Whether they act on the DLQs of this owner; everybody sees them.
    ///
    /// # Errors
    /// 403 that names the owner.
    pub fn acts_on(&self, owner: Option<&str>) -> Result<(), crate::api::Failure> {
        outside(&self.principal, owner).map_or(Ok(()), |said| Err(crate::api::Failure::forbidden(said)))
    }
}

/// Why somebody does not act on the DLQs of this owner; None: they do, as far as owners go.
pub fn outside(principal: &Principal, owner: Option<&str>) -> Option<String> {
    let name = text::short_line(&principal.name, 64);
    let whose = owner.map_or_else(|| "DLQs without an owner".to_owned(), |owner| format!("the DLQs of {}", text::short_line(owner, 60)));
    (!principal.owners.covers(owner)).then(|| format!("{name} does not act on {whose}. An admin can change that."))
}

/// An instant for a table: how long ago, and exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    pub ago: String,
    pub utc: String,
    pub machine: String,
}

impl When {
    pub fn of(at_ms: i64, now_ms: i64) -> When {
        When { ago: format::ago(at_ms, now_ms), utc: format::utc(at_ms), machine: format::machine_time(at_ms) }
    }
}

/// The word and the CSS class of a status; the template adds the shape.
pub fn status_word(status: Status) -> &'static str {
    match status {
        Status::Critical => "Critical",
        Status::Warning => "Warning",
        Status::Healthy => "Healthy",
        Status::NoData => "No data",
        Status::Muted => "Muted",
    }
}

/// Why a DLQ has its status, to stand beside the word. Empty: there is nothing to explain.
pub fn because(because: Option<Because>) -> String {
    match because {
        None => String::new(),
        Some(Because::Expires { left_ms }) if left_ms <= 0 => "unread, expiring now".to_owned(),
        Some(Because::Expires { left_ms }) => format!("unread, expires in {}", format::age(left_ms)),
        Some(Because::Oldest { age_ms }) => format!("oldest {}", format::age(age_ms)),
        Some(Because::Arriving { per_minute }) => format!("{} arriving", format::per_minute(per_minute)),
        Some(Because::Deep { count }) => format!("{} deep", format::exact(count)),
        Some(Because::Unread) => "more unread than read".to_owned(),
        Some(Because::Fires { measure, value }) => fires(measure, value),
    }
}

/// Why an alert fires, by what its rule measures.
fn fires(measure: Measure, value: f64) -> String {
    match measure {
        // Powers of ten say nothing to people.
        Measure::UnusualArrivals => measure.title().to_owned(),
        Measure::Depth => format!("{} deep", measure.unit().words(value)),
        Measure::OldestAge => format!("oldest {}", measure.unit().words(value)),
        Measure::ArrivalRate => format!("{} arriving", measure.unit().words(value)),
        Measure::AtRisk => format!("unread, expires in {}", measure.unit().words(value)),
        _ => format!("{}: {}", measure.title(), measure.unit().words(value)),
    }
}

/// The state of a message for people.
pub fn state_words(row: &MessageRow) -> String {
    match (row.state, row.outcome.as_deref(), row.follow_up) {
        // Only a hold, or what was not sent, leaves a reason on what is under review.
        (MessageState::UnderReview, ..) if row.reason.is_some() => "held: needs a person".to_owned(),
        (MessageState::Archived, _, Some(FollowUp::Open)) => "archived, follow-up open".to_owned(),
        (MessageState::Replayed, Some(outcome), _) => outcome_words(outcome).to_owned(),
        (MessageState::Replayed, None, _) => "already applied".to_owned(),
        (state, ..) => words(state.as_str()),
    }
}

/// An outcome for people.
pub fn outcome_words(outcome: &str) -> &'static str {
    match outcome {
        "pending" => "sent, waiting for proof",
        "confirmed" => "sent, confirmed",
        "returned" => "sent, came back",
        "unproven" => "sent, not confirmed",
        _ => "sent",
    }
}

/// A machine's word for people: `under_review` -> "under review".
pub fn words(word: &str) -> String {
    word.replace('_', " ")
}

/// A kind of failure for people, where it stands among other things.
pub fn kind(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unknown => "kind not known",
        class => class.as_str(),
    }
}

/// A kind of failure for people, after its label.
pub fn kind_after_label(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unknown => "not known",
        class => class.as_str(),
    }
}

/// The path of a DLQ's page.
pub fn dlq_path(cluster: &str, topic: &str) -> String {
    format!("/dlqs/{}/{}", encode(cluster.as_bytes()), encode(topic.as_bytes()))
}

/// A message in a list.
#[derive(Debug, Clone)]
pub struct MessageLine {
    pub id: i64,
    pub topic: String,
    pub dlq_path: String,
    pub partition: i32,
    pub offset: String,
    pub incarnation: Option<String>,
    pub state: String,
    /// Why it is where it is, where that is said: of an archive, of a hold.
    pub reason: Option<String>,
    pub class: &'static str,
    pub exception: String,
    pub text: Option<String>,
    pub group_id: i64,
    /// The business key if there is one, else the record key. None: the record has a null key.
    pub key: Option<String>,
    pub dead_lettered: When,
    pub suspect: bool,
    pub size: String,
}

impl MessageLine {
    fn of(row: &MessageRow, now_ms: i64) -> MessageLine {
        let key = row.business_key.as_deref().map(|key| text::short_line(key, 60));
        MessageLine {
            id: row.id,
            topic: text::line(&row.topic),
            dlq_path: dlq_path(&row.cluster, &row.topic),
            partition: row.partition,
            offset: format::exact(row.offset),
            incarnation: (row.incarnation > 1).then(|| format::ordinal(row.incarnation)),
            state: state_words(row),
            reason: row.reason.as_deref().map(|reason| text::short_line(reason, 120)),
            class: kind(row.class),
            exception: row.exception_class.as_deref().map_or_else(|| "No exception named".to_owned(), |class| text::short_line(class, 120)),
            text: row.exception_message.as_deref().map(|message| text::short_line(message, 160)),
            group_id: row.group_id,
            key: key.or_else(|| row.key.as_deref().map(|key| text::bytes_line(key, 60))),
            dead_lettered: When::of(row.dead_lettered_at_ms, now_ms),
            suspect: row.timestamp_suspect,
            size: format::bytes(row.size),
        }
    }
}

/// A page of messages with the ways to the others.
#[derive(Debug, Clone)]
pub struct MessageTable {
    pub lines: Vec<MessageLine>,
    pub with_topic: bool,
    /// To the newest, unless this is it.
    pub newest: Option<String>,
    pub older: Option<String>,
    /// Nothing older matches.
    pub at_end: bool,
    /// What narrows the list, each with the way to the list without it.
    pub chips: Vec<Chip>,
    /// To the same list without filters, when there are any.
    pub clear: Option<String>,
    /// The whole list as a file; None where that is not offered.
    pub exports: Option<ExportLinks>,
    /// To a new replay of the whole list; None where it is not of one DLQ.
    pub replay: Option<String>,
    /// What can be done to several of them; None: nothing by this person.
    pub bulk: Option<reviews::BulkForm>,
    /// What would fill the list, shown when it is empty without a filter.
    pub would_fill: &'static str,
}

impl MessageTable {
    /// `path` is the page it stands on, `query` its query string, `filters` the parameters that narrow the list.
    pub fn of(page: &MessagePage, now_ms: i64, path: &str, query: &Query, filters: &[&str]) -> MessageTable {
        let link = |query: String| format!("{path}{query}#messages");
        MessageTable {
            lines: page.items.iter().map(|row| MessageLine::of(row, now_ms)).collect(),
            with_topic: false,
            newest: query.any(&["after"]).then(|| link(query.link("after", None))),
            at_end: page.next.is_none(),
            chips: chips(path, query, filters),
            exports: None,
            replay: None,
            bulk: None,
            older: page.next.map(|next| link(query.link("after", Some(&next.to_string())))),
            clear: query.any(filters).then(|| link(String::new())),
            would_fill: "Messages appear here as soon as something is dead-lettered.",
        }
    }

    /// With what can be done to several of them.
    pub fn bulk(self, bulk: Option<reviews::BulkForm>) -> MessageTable {
        MessageTable { bulk, ..self }
    }

    /// With links to the whole list as a file: the same query, and what the page's path says beside it.
    pub fn exported(self, query: &Query, fixed: &[(&str, &str)]) -> MessageTable {
        MessageTable { exports: Some(ExportLinks::of("/messages/export", query, fixed)), ..self }
    }

    /// With a link to a new replay of the whole list: `fixed` names its DLQ, `filters` narrow it further.
    pub fn replayed(self, query: &Query, fixed: &[(&str, &str)], filters: &[&str]) -> MessageTable {
        let others: Vec<&str> = query.pairs().map(|(name, _)| name).filter(|name| !filters.contains(name)).collect();
        MessageTable { replay: Some(format!("/replays/new?{}", query.rewritten(&others, fixed))), ..self }
    }
}

/// The address of a new replay of a DLQ's messages, narrowed by `conditions`.
pub fn new_replay(cluster: &str, topic: &str, conditions: &[(&str, &str)]) -> String {
    let pairs = [&[("cluster", cluster), ("topic", topic)], conditions].concat();
    format!("/replays/new?{}", Query::default().rewritten(&[], &pairs))
}

/// A condition of a list, as its name and value, and the link to the list without it.
#[derive(Debug, Clone)]
pub struct Chip {
    pub name: &'static str,
    pub value: String,
    pub without: String,
}

/// The conditions of `query` that are among `filters`. A page turned back to its start keeps its filters, so `after` is dropped.
pub fn chips(path: &str, query: &Query, filters: &[&str]) -> Vec<Chip> {
    let chip = |(name, value): (&str, &[u8])| {
        let without = query.rewritten(&[name, "after"], &[]);
        let without = if without.is_empty() { path.to_owned() } else { format!("{path}?{without}") };
        Some(Chip { name: filter_name(name)?, value: filter_value(name, value), without })
    };
    query.pairs().filter(|(name, _)| filters.contains(name)).filter_map(chip).collect()
}

/// What people call a parameter that narrows a list.
fn filter_name(name: &str) -> Option<&'static str> {
    Some(match name {
        "cluster" => "cluster",
        "topic" => "DLQ",
        "owner" => "owner",
        "state" => "state",
        "follow_up" => "follow-up",
        "status" => "status",
        "class" => "kind of failure",
        "group" => "failure",
        "partition" => "partition",
        "key" => "record key",
        "q" => "search",
        "from" | "from_ms" => "from",
        "to" | "to_ms" => "before",
        _ => return None,
    })
}

fn filter_value(name: &str, value: &[u8]) -> String {
    let shown = text::bytes_line(value, 60);
    let instant = || format::utc_exact(shown.parse().unwrap_or_default());
    match name {
        "state" | "status" | "class" | "follow_up" => words(&shown),
        "from_ms" | "to_ms" => instant(),
        "from" | "to" if shown.bytes().all(|byte| byte.is_ascii_digit()) => instant(),
        "from" | "to" => format!("{} UTC", shown.trim_end_matches('Z').replace('T', " ")),
        _ => shown,
    }
}

/// Where a list is to be had as a file.
#[derive(Debug, Clone)]
pub struct ExportLinks {
    pub csv: String,
    pub json: String,
}

impl ExportLinks {
    /// The same `query` at `path`, with `fixed` parameters in front.
    pub fn of(path: &str, query: &Query, fixed: &[(&str, &str)]) -> ExportLinks {
        let link = |format| {
            let pairs = [&[("format", format)], fixed].concat();
            format!("{path}?{}", query.rewritten(&["after"], &pairs))
        };
        ExportLinks { csv: link("csv"), json: link("json") }
    }
}

/// A failure group in a list.
#[derive(Debug, Clone)]
pub struct GroupLine {
    pub id: i64,
    pub open: format::Number,
    pub total: format::Number,
    pub text: String,
    pub exception: Option<String>,
    pub class: &'static str,
    pub consumer_group: Option<String>,
    pub first: Option<When>,
    pub last: Option<When>,
    /// Its last message is younger than an hour.
    pub arriving: bool,
    pub status: StatusLine,
}

/// The status of a failure group for `m::status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusLine {
    pub kind: &'static str,
    pub word: &'static str,
}

impl From<Shown> for StatusLine {
    fn from(shown: Shown) -> StatusLine {
        let (kind, word) = match shown {
            Shown::Open => ("open", "Open"),
            Shown::Known => ("info", "Known"),
            Shown::Fixed => ("healthy", "Fixed"),
            Shown::Regressed => ("warning", "Regressed"),
            Shown::Ignored => ("muted", "Ignored"),
        };
        StatusLine { kind, word }
    }
}

impl GroupLine {
    pub fn of(group: &Group, now_ms: i64) -> GroupLine {
        GroupLine {
            id: group.id,
            open: format::Number::of(group.open),
            total: format::Number::of(group.total),
            text: group_title(group),
            exception: group.exception_class.as_deref().map(|class| text::short_line(class, 120)),
            class: kind(group.class),
            consumer_group: group.consumer_group.as_deref().map(|name| text::short_line(name, 80)),
            first: group.first_at_ms.map(|at| When::of(at, now_ms)),
            last: group.last_at_ms.map(|at| When::of(at, now_ms)),
            arriving: group.last_at_ms.is_some_and(|at| at >= arriving_from_ms(now_ms)),
            status: group.shown(now_ms).into(),
        }
    }
}

/// What a group is called: its text, else its exception.
pub fn group_title(group: &Group) -> String {
    match (group.normalised_text.trim(), group.exception_class.as_deref()) {
        ("", Some(exception)) => text::short_line(exception, 160),
        ("", None) => "The headers say nothing of the failure".to_owned(),
        (said, _) => text::short_line(said, 200),
    }
}

/// A choice of a filter form.
#[derive(Debug, Clone)]
pub struct Choice {
    pub value: String,
    pub label: String,
    pub chosen: bool,
}

/// The choices of a filter: `words`, with the one in the query marked.
pub fn choices<'a>(values: impl IntoIterator<Item = &'a str>, chosen: Option<&str>) -> Vec<Choice> {
    let choice = |value: &str| Choice { value: value.to_owned(), label: words(value), chosen: chosen == Some(value) };
    values.into_iter().map(choice).collect()
}

/// Choices whose labels are names that people gave, each once and in order.
pub fn names<'a>(names: impl Iterator<Item = &'a str>, chosen: Option<&str>) -> Vec<Choice> {
    let choice = |name: &str| Choice { value: name.to_owned(), label: text::line(name), chosen: chosen == Some(name) };
    names.collect::<BTreeSet<_>>().into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_not_said_twice() {
        assert_eq!(who("ana", Role::Operator), "ana · operator");
        assert_eq!(who("viewer", Role::Viewer), "viewer");
        assert_eq!(who("viewer", Role::Admin), "viewer · admin");
    }

    #[test]
    fn every_reason_is_said_in_words() {
        let cases = [
            (Because::Expires { left_ms: 5 * 3_600_000 }, "unread, expires in 5h"),
            (Because::Expires { left_ms: 0 }, "unread, expiring now"),
            (Because::Oldest { age_ms: 28 * 86_400_000 }, "oldest 28d"),
            (Because::Arriving { per_minute: 4.93 }, "4.9/min arriving"),
            (Because::Deep { count: 12_400 }, "12,400 deep"),
            (Because::Unread, "more unread than read"),
            (Because::Fires { measure: Measure::UnusualArrivals, value: 9.0 }, "unusual arrivals"),
            (Because::Fires { measure: Measure::OldestAge, value: 7_200.0 }, "oldest 2h"),
            (Because::Fires { measure: Measure::IntakeStalled, value: 300.0 }, "intake stalled: 5m"),
        ];
        for (reason, words) in cases {
            assert_eq!(because(Some(reason)), words);
        }
        assert_eq!(because(None), "");
    }
}
