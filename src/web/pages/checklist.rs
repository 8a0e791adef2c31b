//! `/setup` for an admin who is signed in: what of setting up is done, by what is really there, and the line that does the rest.

use askama::Template;
use askama_web::WebTemplate;

use super::settings::{ClusterCard, cluster_cards};
use super::{Look, Shell, dlq_path, status_word};
use crate::api::Failure;
use crate::domain::access::{Principal, Role};
use crate::domain::settings::{DlqSettings, TopicMatch};
use crate::services::health::DlqHealth;
use crate::store::users::User;
use crate::web::AppState;
use crate::web::view::format::{self, Number};
use crate::web::view::text;

/// So many DLQs are shown; the overview has all.
const PREVIEW: usize = 5;

#[derive(Template, WebTemplate)]
#[template(path = "access/checklist.html")]
pub struct ChecklistPage {
    shell: Shell,
    summary: String,
    connect: StepView,
    discover: StepView,
    preview: Vec<Preview>,
    /// How many DLQs there are beside those.
    more: usize,
    /// Entries that cover no topic, as they are written.
    idle: Vec<String>,
    second: StepView,
}

/// One step: whether it is done, and what to do if not.
struct StepView {
    done: bool,
    status: &'static str,
    word: &'static str,
    said: Vec<String>,
    /// To be pasted.
    lines: Vec<String>,
}

struct Preview {
    name: String,
    path: String,
    status: &'static str,
    word: &'static str,
    depth: Number,
}

impl StepView {
    fn new(done: bool, said: Vec<String>, lines: &[&str]) -> StepView {
        let (status, word) = if done { ("healthy", "Done") } else { ("warning", "To do") };
        StepView { done, status, word, said, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }
}

/// The checklist, from the state of this moment.
///
/// # Errors
/// The database could not be asked.
pub async fn page(state: &AppState, principal: &Principal, look: Look) -> Result<ChecklistPage, Failure> {
    let found = state.health.all().await?;
    let clusters = cluster_cards(state, state.clock.now_ms());
    let connect = connect(&clusters);
    let discover = discover(&found, &clusters);
    let second = second(&state.store.users().await?, &principal.name);
    let to_do = [&connect, &discover, &second].into_iter().filter(|step| !step.done).count();
    let summary = match to_do {
        0 => "All three steps are done.".to_owned(),
        n => format!("{n} of 3 steps to do."),
    };
    Ok(ChecklistPage {
        shell: Shell::new(state, Some(principal), look, "settings"),
        summary,
        connect,
        discover,
        preview: found.iter().take(PREVIEW).map(Preview::of).collect(),
        more: found.len().saturating_sub(PREVIEW),
        idle: idle(&state.options.dlqs, &found, &clusters),
        second,
    })
}

fn connect(clusters: &[ClusterCard]) -> StepView {
    if clusters.is_empty() {
        let said = vec!["No cluster is configured.".to_owned()];
        return StepView::new(false, said, &["[clusters.main]", "bootstrap_servers = \"kafka:9092\""]);
    }
    let said = |cluster: &ClusterCard| match &cluster.said {
        None => format!("{} at {}: connected.", cluster.name, cluster.bootstrap_servers),
        Some(said) => format!("{} at {}: {}. {said}", cluster.name, cluster.bootstrap_servers, cluster.word.to_lowercase()),
    };
    let done = clusters.iter().all(|cluster| cluster.said.is_none());
    StepView::new(done, clusters.iter().map(said).collect(), if done { &[] } else { &["lazaret check"] })
}

fn discover(found: &[DlqHealth], clusters: &[ClusterCard]) -> StepView {
    if !found.is_empty() {
        let said = format!("{} found. The worst come first:", format::counted(found.len() as i64, "DLQ", "DLQs"));
        return StepView::new(true, vec![said], &[]);
    }
    let said = match clusters.iter().any(|cluster| cluster.listed.is_some()) {
        true => "The topics were listed, and no [[dlq]] entry covers one of them. This writes entries for those that look like DLQs:",
        false => "The topics were not listed yet. This needs a connected cluster; then this writes entries for what looks like a DLQ:",
    };
    StepView::new(false, vec![said.to_owned()], &["lazaret check --suggest"])
}

/// Who proposes a replay may not approve it, so one person alone can never do both.
fn second(users: &[User], me: &str) -> StepView {
    let approves = |user: &&User| !user.disabled && user.role >= Role::Approver && user.name != me;
    match users.iter().find(approves) {
        Some(user) => {
            let said = format!("{} ({}) can approve what you propose.", text::short_line(&user.name, 64), user.role.as_str());
            StepView::new(true, vec![said], &[])
        }
        None => {
            let said =
                "Nobody but you has the role approver or admin. A replay is approved by another person than the one who proposed it.";
            StepView::new(false, vec![said.to_owned()], &["lazaret user add NAME --role approver"])
        }
    }
}

/// The entries that cover nothing, of clusters whose topics are known.
fn idle(entries: &[DlqSettings], found: &[DlqHealth], clusters: &[ClusterCard]) -> Vec<String> {
    let listed = |name: &str| {
        clusters.iter().any(|cluster| cluster.name == name && cluster.listed.is_some()) || found.iter().any(|row| row.dlq.cluster == name)
    };
    let covers = |entry: &DlqSettings| found.iter().any(|row| row.dlq.cluster == entry.cluster && entry.topics.covers(&row.dlq.topic));
    let written = |entry: &DlqSettings| {
        let topics = match &entry.topics {
            TopicMatch::Names(names) => format!("topics {}", names.join(", ")),
            TopicMatch::Pattern(pattern) => format!("pattern {pattern}"),
        };
        text::short_line(&format!("[[dlq]] of {}: {topics}", entry.cluster), 300)
    };
    entries.iter().filter(|entry| listed(&entry.cluster) && !covers(entry)).map(written).collect()
}

impl Preview {
    fn of(row: &DlqHealth) -> Preview {
        Preview {
            name: text::line(&row.dlq.topic),
            path: dlq_path(&row.dlq.cluster, &row.dlq.topic),
            status: row.status.as_str(),
            word: status_word(row.status),
            depth: Number::of(row.depth),
        }
    }
}
