//! `/`: is anything getting worse, and where?

use askama::Template;
use askama_web::WebTemplate;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};

use super::replays::OpenReplay;
use super::{Chip, Choice, ExportLinks, Look, Shell, SignedIn, chips, dlq_path, status_word};
use crate::api::Failure;
use crate::api::dlqs::{DLQ_FILTER, DlqFilter};
use crate::api::query::Query;
use crate::domain::alert::Measure;
use crate::domain::health::{AtRisk, Because, Status};
use crate::services::health::{BUCKET_MS, DlqHealth, StatusCounts};
use crate::services::intake::{ClusterView, Connection};
use crate::store::replay_pages::OpenBatch;
use crate::web::AppState;
use crate::web::view::format::{self, Number, UNKNOWN};
use crate::web::view::spark::{Series, Spark};
use crate::web::view::success::Success;
use crate::web::view::text;

#[derive(Template, WebTemplate)]
#[template(path = "overview/page.html")]
struct OverviewPage {
    shell: Shell,
    sentence: Sentence,
    meta: Option<String>,
    clusters: Vec<ClusterLine>,
    tiles: Vec<Tile>,
    q: String,
    status: &'static str,
    owners: Vec<Choice>,
    cluster: String,
    rows: Vec<Row>,
    chips: Vec<Chip>,
    exports: ExportLinks,
    /// What would fill the list.
    would_fill: String,
    /// This view's path and query, for the live regions.
    url: String,
}

/// "2 critical, 3 warning of 12; worst <link>, oldest 3h 12m, 13/min arriving."
#[derive(Debug, PartialEq, Eq)]
struct Sentence {
    start: String,
    worst: Option<(String, String)>,
    end: String,
}

struct Tile {
    label: &'static str,
    /// Empty for "All".
    status: &'static str,
    count: usize,
    link: String,
    chosen: bool,
}

struct Row {
    id: i64,
    status: &'static str,
    status_word: &'static str,
    /// Why it is critical or a warning; empty otherwise.
    because: String,
    name: String,
    path: String,
    /// Owner, consumer group and, where there are several, cluster.
    meta: String,
    depth: Number,
    depth_note: Option<String>,
    oldest: String,
    at_risk: String,
    uncollected: Number,
    spark: Spark,
    rate: String,
    success: Success,
    notes: Vec<String>,
    /// Its live replays.
    open: Vec<OpenReplay>,
}

/// Something to know about a cluster. Nothing is said of one that is connected and has caught up.
#[derive(Debug, PartialEq, Eq)]
pub struct ClusterLine {
    pub status: &'static str,
    pub word: &'static str,
    pub text: String,
    /// Done and all, for a progress bar.
    pub progress: Option<(u64, u64)>,
}

/// `GET /`.
pub async fn page(
    State(state): State<AppState>,
    SignedIn(principal): SignedIn,
    look: Look,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &DLQ_FILTER)?;
    let filter = DlqFilter::parse(&query)?;
    let now_ms = state.clock.now_ms();
    let rows = state.health.all().await?;
    let open = state.store.open_batches(None).await?;
    let several_clusters = rows.iter().any(|row| row.dlq.cluster != rows[0].dlq.cluster);
    let clusters: Vec<ClusterView> = state.clusters.iter().map(|cluster| cluster.view()).collect();
    let page = OverviewPage {
        shell: Shell::new(&state, Some(&principal), look, "overview"),
        sentence: sentence(&rows),
        meta: meta(&rows, now_ms),
        clusters: clusters.iter().flat_map(cluster_lines).collect(),
        tiles: tiles(&rows, &filter, &query),
        q: text::line(query.text("q")?.unwrap_or_default()),
        status: filter.status.map_or("", Status::as_str),
        owners: super::names(rows.iter().filter_map(|row| row.dlq.owner.as_deref()), filter.owner.as_deref()),
        cluster: filter.cluster.clone().unwrap_or_default(),
        rows: rows.iter().filter(|row| filter.covers(row)).map(|row| Row::of(row, &open, now_ms, several_clusters)).collect(),
        chips: chips("/", &query, &DLQ_FILTER),
        exports: ExportLinks::of("/export", &query, &[]),
        would_fill: would_fill(&clusters),
        url: format!("/{}", query.link("", None)),
    };
    Ok(page.into_response())
}

fn sentence(rows: &[DlqHealth]) -> Sentence {
    let counts = StatusCounts::of(rows);
    if !rows.is_empty() && counts.get(Status::NoData) == rows.len() {
        return Sentence { start: dark_sentence(rows), worst: None, end: String::new() };
    }
    // What cannot be seen comes first in the list; as the worst it is named only where nothing is known to be worse.
    let known = rows.iter().find(|row| matches!(row.status, Status::Critical | Status::Warning));
    let Some(worst) = known.or(rows.first()) else {
        return Sentence { start: "No DLQ is known yet.".to_owned(), worst: None, end: String::new() };
    };
    let parts: Vec<String> = [(Status::Critical, "critical"), (Status::Warning, "warning"), (Status::NoData, "without data")]
        .into_iter()
        .filter(|(status, _)| counts.get(*status) > 0)
        .map(|(status, word)| format!("{} {word}", counts.get(status)))
        .collect();
    if parts.is_empty() {
        let start = match rows.len() {
            1 => "The one DLQ is healthy.".to_owned(),
            many => format!("All {many} DLQs are healthy."),
        };
        return Sentence { start, worst: None, end: String::new() };
    }
    let oldest = worst.oldest_age_ms.map_or_else(String::new, |age| format!(", oldest {}", format::age(age)));
    let why = match worst.because {
        // Said already.
        None | Some(Because::Oldest { .. } | Because::Fires { measure: Measure::OldestAge, .. }) => String::new(),
        because => format!(", {}", super::because(because)),
    };
    let seen = if worst.has_data() { "" } else { ", no data" };
    Sentence {
        start: format!("{} of {}; worst ", parts.join(", "), rows.len()),
        worst: Some((text::line(&worst.dlq.topic), dlq_path(&worst.dlq.cluster, &worst.dlq.topic))),
        end: format!("{oldest}{why}{seen}."),
    }
}

/// Where nothing can be seen, none is the worst.
fn dark_sentence(rows: &[DlqHealth]) -> String {
    match (rows.len(), rows.iter().any(|row| row.sampled_at_ms.is_some())) {
        (1, false) => "1 DLQ, not looked at yet.".to_owned(),
        (many, false) => format!("{many} DLQs, none looked at yet."),
        (1, true) => "1 DLQ, without data.".to_owned(),
        (many, true) => format!("{many} DLQs, all without data."),
    }
}

/// "no data, last seen 4 min ago".
pub fn no_data(row: &DlqHealth, now_ms: i64) -> String {
    match row.sampled_at_ms {
        Some(at) => format!("no data, last seen {}", format::ago(at, now_ms)),
        None => "no data yet".to_owned(),
    }
}

fn meta(rows: &[DlqHealth], now_ms: i64) -> Option<String> {
    let sampled = rows.iter().filter_map(|row| row.sampled_at_ms).max().map(|at| format!("Sampled {}", format::ago(at, now_ms)));
    let follow_ups: i64 = rows.iter().map(|row| row.follow_up_open).sum();
    let follow_ups = (follow_ups > 0)
        .then(|| format!("{} with an open follow-up", format::counted(follow_ups, "archived message", "archived messages")));
    let parts: Vec<String> = sampled.into_iter().chain(follow_ups).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

fn tiles(rows: &[DlqHealth], filter: &DlqFilter, query: &Query) -> Vec<Tile> {
    let counts = StatusCounts::of(rows.iter().filter(|row| filter.covers_but_status(row)));
    let tile = |status: Option<Status>| {
        let word = status.map_or("", Status::as_str);
        Tile {
            label: status.map_or("All", status_word),
            status: word,
            count: status.map_or(counts.all(), |status| counts.get(status)),
            link: format!("/{}", query.link("status", status.map(Status::as_str))),
            chosen: filter.status == status,
        }
    };
    let shown = |status: &Status| *status != Status::Muted || counts.get(*status) > 0;
    let order = [Status::Critical, Status::Warning, Status::NoData, Status::Healthy, Status::Muted];
    std::iter::once(None).chain(order.into_iter().filter(shown).map(Some)).map(tile).collect()
}

impl Row {
    fn of(row: &DlqHealth, open: &[OpenBatch], now_ms: i64, with_cluster: bool) -> Row {
        let rate = format::per_minute_or_unknown(row.arrivals_per_min);
        let series = Series { buckets: row.arrivals.clone(), from_ms: row.arrivals_from_ms, bucket_ms: BUCKET_MS };
        let meta: Vec<String> = [with_cluster.then_some(row.dlq.cluster.as_str()), row.dlq.owner.as_deref(), row.consumer_group.as_deref()]
            .into_iter()
            .flatten()
            .map(|part| text::short_line(part, 60))
            .collect();
        Row {
            id: row.dlq.id,
            status: row.status.as_str(),
            status_word: status_word(row.status),
            because: super::because(row.because),
            name: text::line(&row.dlq.topic),
            path: dlq_path(&row.dlq.cluster, &row.dlq.topic),
            meta: meta.join(" · "),
            depth: Number::of(row.depth),
            depth_note: depth_note(row),
            oldest: format::age_or_unknown(row.oldest_age_ms),
            at_risk: at_risk(row.at_risk),
            uncollected: Number::of_option(row.uncollected),
            spark: Spark::draw(&series, if row.has_data() { &rate } else { "not known" }),
            rate,
            success: Success::of(row.outcomes),
            notes: notes(row, now_ms),
            open: open.iter().filter(|open| open.dlq_id == row.dlq.id).map(OpenReplay::of).collect(),
        }
    }
}

/// How the depth changed, or that it is only of what is stored.
fn depth_note(row: &DlqHealth) -> Option<String> {
    if !row.has_data() {
        return Some("stored".to_owned());
    }
    row.depth_change_1h.map(|change| match change {
        0 => "same as 1 h ago".to_owned(),
        change if change > 0 => format!("+{} in 1 h", format::exact(change)),
        change => format!("{} in 1 h", format::exact(change)),
    })
}

fn notes(row: &DlqHealth, now_ms: i64) -> Vec<String> {
    let dark = (!row.has_data()).then(|| no_data(row, now_ms));
    let gone = row.dlq.gone_since_ms.map(|since| format!("topic gone, noticed {}", format::ago(since, now_ms)));
    let recreated = (row.dlq.incarnation > 1).then(|| format!("topic recreated ({})", format::ordinal(row.dlq.incarnation)));
    let follow_ups = (row.follow_up_open > 0).then(|| format!("{} to follow up", format::exact(row.follow_up_open)));
    [dark, gone, recreated, follow_ups].into_iter().flatten().collect()
}

/// What retention puts at risk, in words.
pub fn at_risk(at_risk: AtRisk) -> String {
    match at_risk {
        AtRisk::AllStored => "all stored".to_owned(),
        AtRisk::AtRisk { left_ms } if left_ms <= 0 => "expiring now".to_owned(),
        AtRisk::AtRisk { left_ms } => format!("{} left", format::age(left_ms)),
        AtRisk::NotPermitted => "not permitted".to_owned(),
        AtRisk::Unlimited => "kept for good".to_owned(),
        AtRisk::Unknown => UNKNOWN.to_owned(),
    }
}

fn would_fill(clusters: &[ClusterView]) -> String {
    if clusters.iter().any(|cluster| matches!(cluster.connection, Connection::Disconnected { .. })) {
        return "DLQs appear here as soon as the cluster can be reached and a topic matches the configuration.".to_owned();
    }
    if clusters.iter().any(|cluster| cluster.topics == Some(0)) {
        return "The cluster answers, but no topic matches the configured DLQs. Check the topics or patterns under [[dlq]], or --dlq."
            .to_owned();
    }
    "DLQs appear here as soon as a topic that matches the configuration is found.".to_owned()
}

/// More waiting than this is a backlog worth a bar.
const BACKLOG: u64 = 1_000;

/// What there is to say of a cluster, worst first.
pub fn cluster_lines(view: &ClusterView) -> Vec<ClusterLine> {
    let name = text::short_line(&view.cluster, 60);
    let line = |status, word, said: String| ClusterLine { status, word, text: format!("{name}: {said}"), progress: None };
    let since = |ms: i64, said: &str| format!("since {}: {}", format::time_of_day(ms), text::short_line(said, 300));
    let mut lines = Vec::new();
    match &view.connection {
        Connection::Connected => {}
        Connection::Connecting => lines.push(line("info", "Connecting", "connecting; what is stored is shown meanwhile".to_owned())),
        Connection::Disconnected { since_ms, reason } => {
            lines.push(line("critical", "Disconnected", format!("disconnected {}", since(*since_ms, reason))));
        }
    }
    if let Some(problem) = &view.stalled {
        lines.push(line("warning", "Waiting", format!("taking in waits {}. Nothing is lost", since(problem.since_ms, &problem.text))));
    }
    if let Some(problem) = &view.discovery {
        lines.push(line("warning", "No listing", format!("topics could not be listed {}", since(problem.since_ms, &problem.text))));
    }
    if let Some(problem) = &view.complaint {
        lines.push(line("warning", "Consumer", format!("the consumer complains {}", since(problem.since_ms, &problem.text))));
    }
    lines.extend(backlog(view, &name));
    lines
}

fn backlog(view: &ClusterView, name: &str) -> Option<ClusterLine> {
    let waiting = view.progress.uncollected.filter(|waiting| *waiting > BACKLOG)?;
    let number = |count: u64| format::exact(i64::try_from(count).unwrap_or(i64::MAX));
    let taken_in = view.progress.taken_in;
    let mut said = format!("{name}: taking in the backlog: {} taken in, about {} not read yet", number(taken_in), number(waiting));
    if let Some(rate) = view.progress.per_second.filter(|rate| *rate >= 1.0) {
        let left = format::age((waiting as f64 / rate * 1_000.0) as i64);
        said.push_str(&format!(", {}/s, about {left} left", number(rate as u64)));
    }
    Some(ClusterLine { status: "info", word: "Catching up", text: said, progress: Some((taken_in, taken_in.saturating_add(waiting))) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::intake::{Problem, Progress};

    fn cluster(connection: Connection) -> ClusterView {
        ClusterView {
            cluster: "main".to_owned(),
            connection,
            discovered_at_ms: None,
            topics: Some(3),
            partition_counts: None,
            partitions: 9,
            stalled: None,
            discovery: None,
            complaint: None,
            progress: Progress::default(),
        }
    }

    fn said(view: &ClusterView) -> Vec<String> {
        cluster_lines(view).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn a_cluster_that_is_well_is_not_mentioned() {
        assert_eq!(said(&cluster(Connection::Connected)), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_with_a_cluster_says_since_when_and_why() {
        let at = 1_796_047_331_000;
        let gone = cluster(Connection::Disconnected { since_ms: at, reason: "no broker answers\u{202e}".to_owned() });
        assert_eq!(said(&gone), ["main: disconnected since 14:02:11 UTC: no broker answers⟨U+202E⟩"]);
        let mut slow = cluster(Connection::Connecting);
        slow.stalled = Some(Problem { since_ms: at, text: "database: connection refused".to_owned() });
        assert_eq!(
            said(&slow),
            [
                "main: connecting; what is stored is shown meanwhile",
                "main: taking in waits since 14:02:11 UTC: database: connection refused. Nothing is lost"
            ]
        );
    }

    #[test]
    fn a_backlog_shows_exact_counts_rate_and_time_left() {
        let mut view = cluster(Connection::Connected);
        view.progress = Progress { taken_in: 12_345, uncollected: Some(88_000), per_second: Some(1_234.5) };
        let line = cluster_lines(&view).remove(0);
        assert_eq!(line.text, "main: taking in the backlog: 12,345 taken in, about 88,000 not read yet, 1,234/s, about 1m 11s left");
        assert_eq!(line.progress, Some((12_345, 100_345)));
        view.progress.uncollected = Some(3);
        assert_eq!(cluster_lines(&view), [], "a trickle is no backlog");
    }
}
