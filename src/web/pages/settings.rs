//! `/settings`: what we are connected to, and what is missing.

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Redirect;
use axum_htmx::HxRequest;

use super::{Look, Shell, SignedIn, When, dlq_path};
use crate::api::Failure;
use crate::api::query::{Query, encode};
use crate::domain::access::{OwnerScope, Role};
use crate::domain::readiness::{Checks, Facts, Newest, Rung, Standing};
use crate::domain::settings::entry_for;
use crate::services::checkup::{NotStarted, Outcome, Run, Step};
use crate::services::intake::{ClusterView, Connection};
use crate::store::StoreError;
use crate::store::dlqs::Dlq;
use crate::store::messages::MessageFilter;
use crate::store::tokens::ApiToken;
use crate::store::users::User;
use crate::web::view::{format, text};
use crate::web::{AppState, ConfiguredCluster, ConfiguredPart};

const PARAMETERS: [&str; 5] = ["dlq", "dlq_after", "who", "user_after", "token_after"];
const DLQS_SHOWN: usize = 25;
const PEOPLE_SHOWN: usize = 50;

#[derive(Template, WebTemplate)]
#[template(path = "settings/page.html")]
pub struct SettingsPage {
    shell: Shell,
    is_admin: bool,
    /// This page's own address, for its live region.
    url: String,
    database: String,
    clusters: Vec<ClusterCard>,
    /// A test is under way: the region asks again by itself.
    testing: bool,
    /// None: the clusters alone are asked for.
    rest: Option<Rest>,
}

/// What stands below the clusters.
struct Rest {
    dlq_filter: String,
    dlqs: Part<DlqLine>,
    ledgers: Vec<ConfiguredPart>,
    schemas: Vec<ConfiguredPart>,
    people: Option<People>,
}

/// Users and tokens, for admins.
struct People {
    filter: String,
    users: Part<UserLine>,
    tokens: Part<TokenLine>,
}

/// A part of a list, with the ways to the others.
struct Part<T> {
    lines: Vec<T>,
    /// How many there are without the filter.
    all: usize,
    /// "212 DLQs", or "3 of 212 DLQs match".
    counted: String,
    first: Option<String>,
    next: Option<String>,
}

/// One cluster: how it is, and its last test.
pub struct ClusterCard {
    pub name: String,
    pub bootstrap_servers: String,
    pub group_id: String,
    pub security: String,
    pub status: &'static str,
    pub word: &'static str,
    /// Since when and why, where it is not connected.
    pub said: Option<String>,
    /// What else is wrong with it.
    pub problems: Vec<String>,
    pub listed: Option<When>,
    pub topics: String,
    pub partitions: String,
    pub test_path: String,
    pub test: Option<TestView>,
}

/// The last test of a cluster, maybe under way.
pub struct TestView {
    pub when: When,
    pub under_way: bool,
    pub trying: Option<String>,
    pub verdict: String,
    pub steps: Vec<StepLine>,
    pub acls: Vec<String>,
}

/// One step of a test.
pub struct StepLine {
    pub status: &'static str,
    pub word: &'static str,
    pub said: String,
    pub remedy: Option<String>,
}

struct DlqLine {
    name: String,
    path: String,
    cluster: String,
    rungs: Vec<RungCell>,
    /// To be pasted; empty: nothing is missing.
    missing: Vec<String>,
}

struct RungCell {
    label: &'static str,
    status: &'static str,
    word: &'static str,
}

struct UserLine {
    name: String,
    role: &'static str,
    owners: String,
    disabled: bool,
    made: When,
}

struct TokenLine {
    name: String,
    role: &'static str,
    owners: String,
    /// The words and whether it still opens anything.
    state: String,
    live: bool,
    made: When,
}

/// `GET /settings`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    HxRequest(is_fragment): HxRequest,
    RawQuery(raw): RawQuery,
) -> Result<SettingsPage, Failure> {
    let query = Query::parse(raw.as_deref(), &PARAMETERS)?;
    let now_ms = state.clock.now_ms();
    let clusters = cluster_cards(&state, now_ms);
    let is_admin = principal.role == Role::Admin;
    let rest = if is_fragment { None } else { Some(Rest::of(&state, &query, is_admin).await?) };
    Ok(SettingsPage {
        shell: Shell::new(&state, Some(&principal), look, "settings"),
        is_admin,
        url: format!("/settings{}", query.link("", None)),
        database: state.store.version().await?,
        testing: clusters.iter().any(|cluster| cluster.test.as_ref().is_some_and(|test| test.under_way)),
        clusters,
        rest,
    })
}

impl Rest {
    async fn of(state: &AppState, query: &Query, is_admin: bool) -> Result<Rest, Failure> {
        Ok(Rest {
            dlq_filter: query.text("dlq")?.unwrap_or_default().to_owned(),
            dlqs: dlqs(state, query).await?,
            ledgers: state.options.configured.ledgers.clone(),
            schemas: state.options.configured.schemas.clone(),
            people: if is_admin { Some(people(state, query, state.clock.now_ms()).await?) } else { None },
        })
    }
}

/// `GET /settings/clusters/{cluster}/test`: to where the test is shown.
pub async fn clusters() -> Redirect {
    Redirect::to("/settings#clusters")
}

/// `POST /settings/clusters/{cluster}/test`.
pub async fn test_cluster(State(state): State<AppState>, Path(cluster): Path<String>) -> Result<Redirect, Failure> {
    match state.cluster_tests.test(&cluster).await {
        Ok(()) => Ok(Redirect::to("/settings#clusters")),
        Err(NotStarted::NoSuchCluster) => Err(Failure::not_found(format!("No cluster {cluster:?} is configured."))),
        Err(NotStarted::Running { since_ms }) => {
            let began = format::ago(since_ms, state.clock.now_ms());
            let detail = format!("A test of {cluster} is under way; it began {began}. Settings shows how far it is.");
            Err(Failure::new(StatusCode::CONFLICT, detail))
        }
    }
}

/// One card for each configured cluster.
pub fn cluster_cards(state: &AppState, now_ms: i64) -> Vec<ClusterCard> {
    let view_of = |name: &str| state.clusters.iter().map(|status| status.view()).find(|view| view.cluster == name);
    let card = |cluster: &ConfiguredCluster| {
        let test = state.cluster_tests.last(&cluster.name).map(|run| TestView::of(run, now_ms));
        ClusterCard::of(cluster, view_of(&cluster.name), test, now_ms)
    };
    state.options.configured.clusters.iter().map(card).collect()
}

impl ClusterCard {
    fn of(cluster: &ConfiguredCluster, view: Option<ClusterView>, test: Option<TestView>, now_ms: i64) -> ClusterCard {
        let since = |at_ms: i64| format!("{} ({})", format::ago(at_ms, now_ms), format::utc(at_ms));
        let problems: Vec<String> = view.iter().flat_map(|view| problems(view, &since)).collect();
        let (status, word, said) = match view.as_ref().map(|view| &view.connection) {
            None => ("no_data", "Not read here", Some("This process does not read this cluster.".to_owned())),
            Some(Connection::Connecting) => ("no_data", "Connecting", Some("No answer yet since this process started.".to_owned())),
            Some(Connection::Disconnected { since_ms, reason }) => {
                ("critical", "Disconnected", Some(format!("Since {}: {}", since(*since_ms), text::line(reason))))
            }
            Some(Connection::Connected) if problems.is_empty() => ("healthy", "Connected", None),
            Some(Connection::Connected) => ("warning", "Connected", None),
        };
        let listed = view.as_ref().and_then(|view| view.discovered_at_ms);
        ClusterCard {
            name: text::line(&cluster.name),
            bootstrap_servers: text::line(&cluster.bootstrap_servers),
            group_id: text::line(&cluster.group_id),
            security: cluster.security.clone(),
            status,
            word,
            said,
            problems,
            listed: listed.map(|at| When::of(at, now_ms)),
            topics: count(view.as_ref().and_then(|view| view.topics)),
            partitions: count(view.as_ref().map(|view| view.partitions)),
            test_path: format!("/settings/clusters/{}/test", encode(cluster.name.as_bytes())),
            test,
        }
    }
}

fn problems(view: &ClusterView, since: &dyn Fn(i64) -> String) -> Vec<String> {
    // Where nothing answers, the rest only says so again.
    let answers = !matches!(view.connection, Connection::Disconnected { .. });
    let kinds = [
        ("Messages cannot be stored", &view.stalled),
        ("Topics could not be listed", if answers { &view.discovery } else { &None }),
        ("The consumer complains", if answers { &view.complaint } else { &None }),
    ];
    let said = |(what, problem): (&str, &Option<crate::services::intake::Problem>)| {
        problem.as_ref().map(|problem| format!("{what}, since {}: {}", since(problem.since_ms), text::line(&problem.text)))
    };
    kinds.into_iter().filter_map(said).collect()
}

/// Exact; unknown is not 0.
fn count(number: Option<usize>) -> String {
    number.map_or_else(|| format::UNKNOWN.to_owned(), |number| format::exact(number as i64))
}

impl TestView {
    fn of(run: Run, now_ms: i64) -> TestView {
        let steps = |outcome| run.steps.iter().filter(|step| step.outcome == outcome).count();
        let under_way = run.ended_at_ms.is_none();
        let verdict = match (under_way, steps(Outcome::Failed), steps(Outcome::Warning)) {
            (true, ..) => "Test under way".to_owned(),
            (false, 0, 0) => "Test passed".to_owned(),
            (false, 0, n) => format!("Test passed with {}", format::counted(n as i64, "warning", "warnings")),
            (false, n, _) => format!("Test failed: {}", format::counted(n as i64, "step", "steps")),
        };
        TestView {
            when: When::of(run.started_at_ms, now_ms),
            under_way,
            trying: run.trying.as_deref().map(text::line),
            verdict,
            steps: run.steps.iter().map(StepLine::of).collect(),
            acls: run.acls,
        }
    }
}

impl StepLine {
    fn of(step: &Step) -> StepLine {
        let (status, word) = match step.outcome {
            Outcome::Passed => ("healthy", "Passed"),
            Outcome::Warning => ("warning", "Warning"),
            Outcome::Failed => ("critical", "Failed"),
            Outcome::NotChecked => ("no_data", "Not tried"),
        };
        StepLine { status, word, said: text::line(&step.said), remedy: step.remedy.clone() }
    }
}

/// The DLQs that the filter finds, one page of them.
async fn dlqs(state: &AppState, query: &Query) -> Result<Part<DlqLine>, Failure> {
    let wanted = query.text("dlq")?.unwrap_or_default().to_lowercase();
    let found = |dlq: &Dlq| dlq.topic.to_lowercase().contains(&wanted) || dlq.cluster.to_lowercase().contains(&wanted);
    let list = List { after: "dlq_after", nouns: ("DLQ", "DLQs"), anchor: "dlqs", shown: DLQS_SHOWN };
    let part = list.part(query, state.store.dlqs().await?, found, |dlq| format!("{}/{}", dlq.cluster, dlq.topic))?;
    let mut lines = Vec::with_capacity(part.lines.len());
    for dlq in &part.lines {
        lines.push(DlqLine::of(state, dlq).await?);
    }
    Ok(Part { lines, all: part.all, counted: part.counted, first: part.first, next: part.next })
}

impl DlqLine {
    async fn of(state: &AppState, dlq: &Dlq) -> Result<DlqLine, StoreError> {
        let entry = entry_for(&state.options.dlqs, &dlq.cluster, &dlq.topic);
        let none = Checks::default();
        let checks = entry.map(|(place, _)| state.options.configured.checks.get(place).unwrap_or(&none));
        let filter = MessageFilter { cluster: Some(dlq.cluster.clone()), topic: Some(dlq.topic.clone()), ..MessageFilter::default() };
        let newest = state.store.messages(&filter, None, 1).await?.items.into_iter().next().map(|row| Newest {
            dialect: row.dialect,
            names_group: row.consumer_group.is_some() || entry.is_some_and(|(_, entry)| entry.consumer_group.is_some()),
            names_origin: row.origin_topic.is_some(),
        });
        let facts = Facts { checks, gone: dlq.gone_since_ms.is_some(), newest: newest.as_ref(), read_only: state.options.read_only };
        Ok(DlqLine {
            name: text::line(&dlq.topic),
            path: dlq_path(&dlq.cluster, &dlq.topic),
            cluster: text::line(&dlq.cluster),
            rungs: Rung::ALL.map(|rung| RungCell::of(rung, facts.standing(rung))).into(),
            missing: facts.missing_lines(&dlq.cluster, &dlq.topic),
        })
    }
}

impl RungCell {
    fn of(rung: Rung, standing: Standing) -> RungCell {
        let label = match rung {
            Rung::Watch => "Watch",
            Rung::Explain => "Explain",
            Rung::ReplayWithWaiver => "Replay with waiver",
            Rung::ReplayWithChecks => "Replay with checks",
            Rung::AutoReplay => "Auto-replay",
        };
        let (status, word) = match standing {
            Standing::Done => ("healthy", "Done"),
            Standing::Missing => ("warning", "Lines missing"),
            Standing::NoMessage => ("no_data", "No message yet"),
            Standing::Gone => ("no_data", "Topic is gone"),
            Standing::ReadOnly => ("muted", "Read-only"),
            Standing::Later => ("muted", "Later version"),
        };
        RungCell { label, status, word }
    }
}

async fn people(state: &AppState, query: &Query, now_ms: i64) -> Result<People, Failure> {
    let filter = query.text("who")?.unwrap_or_default().to_owned();
    let wanted = filter.to_lowercase();
    let found = |name: &str, role: Role, owners: &OwnerScope| {
        [name.to_lowercase(), role.as_str().to_owned(), owners.to_text().to_lowercase()].iter().any(|text| text.contains(&wanted))
    };
    let users = List { after: "user_after", nouns: ("user", "users"), anchor: "users", shown: PEOPLE_SHOWN };
    let users = users.part(
        query,
        state.store.users().await?,
        |user| found(&user.name, user.role, &user.owners),
        |user| user.name.to_lowercase(),
    )?;
    let tokens = List { after: "token_after", nouns: ("token", "tokens"), anchor: "tokens", shown: PEOPLE_SHOWN };
    let tokens = tokens.part(
        query,
        state.store.tokens().await?,
        |token| found(&token.name, token.role, &token.owners),
        // Several of one name may have been made and revoked.
        |token| format!("{}/{:020}", token.name.to_lowercase(), i64::MAX - token.id),
    )?;
    Ok(People { filter, users: users.map(|user| UserLine::of(user, now_ms)), tokens: tokens.map(|token| TokenLine::of(token, now_ms)) })
}

/// How a list is turned over.
struct List {
    /// The parameter that holds the key of the last item of the part before.
    after: &'static str,
    /// One and many.
    nouns: (&'static str, &'static str),
    /// Where links lead to.
    anchor: &'static str,
    /// Items of a part.
    shown: usize,
}

impl List {
    /// The items that `found` finds, in the order of their keys, as many as fit after the key that the query names.
    fn part<T>(&self, query: &Query, items: Vec<T>, found: impl Fn(&T) -> bool, key: impl Fn(&T) -> String) -> Result<Part<T>, Failure> {
        let List { after, nouns: (one, many), anchor, shown } = *self;
        let all = items.len();
        let mut items: Vec<(String, T)> = items.into_iter().filter(found).map(|item| (key(&item), item)).collect();
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        let counted = match items.len() {
            found if found == all => format::counted(all as i64, one, many),
            found => format!("{} of {} match", format::exact(found as i64), format::counted(all as i64, one, many)),
        };
        let from = query.text(after)?;
        let start = from.map_or(0, |from| items.partition_point(|(key, _)| key.as_str() <= from));
        let rest = items.split_off(start);
        let more = rest.len() > shown;
        let last = rest.get(shown.saturating_sub(1)).map(|(key, _)| key.clone()).filter(|_| more);
        let link = |value: Option<&str>| format!("/settings{}#{anchor}", query.link(after, value));
        Ok(Part {
            all,
            counted,
            first: from.map(|_| link(None)),
            next: last.map(|last| link(Some(&last))),
            lines: rest.into_iter().take(shown).map(|(_, item)| item).collect(),
        })
    }
}

impl<T> Part<T> {
    fn map<U>(self, line: impl Fn(T) -> U) -> Part<U> {
        Part { lines: self.lines.into_iter().map(line).collect(), all: self.all, counted: self.counted, first: self.first, next: self.next }
    }
}

impl UserLine {
    fn of(user: User, now_ms: i64) -> UserLine {
        UserLine {
            name: text::short_line(&user.name, 64),
            role: user.role.as_str(),
            owners: owners(&user.owners),
            disabled: user.disabled,
            made: When::of(user.created_at_ms, now_ms),
        }
    }
}

impl TokenLine {
    fn of(token: ApiToken, now_ms: i64) -> TokenLine {
        let (state, live) = match (token.revoked_at_ms, token.expires_at_ms) {
            (Some(at), _) => (format!("revoked {}", format::ago(at, now_ms)), false),
            (None, Some(at)) if at <= now_ms => (format!("expired {}", format::ago(at, now_ms)), false),
            (None, Some(at)) => (format!("until {}", format::utc(at)), true),
            (None, None) => ("does not expire".to_owned(), true),
        };
        TokenLine {
            name: text::short_line(&token.name, 64),
            role: token.role.as_str(),
            owners: owners(&token.owners),
            state,
            live,
            made: When::of(token.created_at_ms, now_ms),
        }
    }
}

fn owners(scope: &OwnerScope) -> String {
    match scope {
        OwnerScope::All => "all".to_owned(),
        OwnerScope::Listed(owners) => text::short_line(&owners.join(", "), 200),
    }
}
