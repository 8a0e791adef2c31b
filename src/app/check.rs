//! `lazaret check`: goes through everything that is configured and changes nothing.

use std::sync::Arc;

use super::audit_key::KeySource;
use super::use_ring;
use crate::config::{Config, audit_key};
use crate::domain::settings::{ClusterSettings, DlqSettings, settings_for};
use crate::domain::terms::Tier;
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::schema::Schemas;
use crate::services::checkup::{self, LedgerTier, Outcome, Progress, Step};
use crate::services::suggest::{self, Suggestion};
use crate::store::Store;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    pub steps: Vec<Step>,
    /// `kafka-acls` lines for what is missing, by cluster.
    pub acls: Vec<(String, Vec<String>)>,
}

impl Report {
    /// Whether anything that `serve` needs does not work.
    pub fn failed(&self) -> bool {
        self.steps.iter().any(|step| step.outcome == Outcome::Failed)
    }
}

/// Checks database, clusters, ledgers and schemas. What is looked at, and what came of it, is shown to `seen` as it happens.
pub async fn check(config: &Config, mut seen: impl FnMut(&Progress)) -> Report {
    use_ring();
    let mut steps = Vec::new();
    let mut tell = |progress: Progress| {
        seen(&progress);
        if let Progress::Done(step) = progress {
            steps.push(step);
        }
    };
    tell(Progress::Trying("database".to_owned()));
    database(config).await.into_iter().for_each(|step| tell(Progress::Done(step)));
    tell(Progress::Done(trail_key(&KeySource::from(config))));
    let mut acls = Vec::new();
    for cluster in &config.clusters {
        let missing = self::cluster(cluster, config.dlq_settings(), &mut tell).await;
        if !missing.is_empty() {
            acls.push((cluster.name.clone(), missing));
        }
    }
    for (name, tier) in ledger_tiers(config) {
        tell(Progress::Trying(format!("ledger {name}")));
        checkup::ledger_tier(&name, &tier).await.into_iter().for_each(|step| tell(Progress::Done(step)));
    }
    let schemas = Schemas::new(&config.schemas);
    for name in config.schemas.keys() {
        tell(Progress::Trying(format!("schema {name}")));
        tell(Progress::Done(checkup::schema(name, &schemas).await));
    }
    Report { steps, acls }
}

async fn database(config: &Config) -> Vec<Step> {
    match config.database.sqlite_path() {
        Some(path) if !path.exists() => checkup::database_to_be_made(&path),
        _ => checkup::database(&Store::connect(config.database.url.expose()).await).await,
    }
}

/// Whether `serve` has, or will have, a key for the trail of decisions.
fn trail_key(source: &KeySource) -> Step {
    const SUBJECT: &str = "audit key";
    match source {
        KeySource::Given(_) => Step::new(SUBJECT, Outcome::Passed, "read from audit.key_file"),
        KeySource::Missing => {
            Step::new(SUBJECT, Outcome::Failed, format!("audit.key_file {}", audit_key::MISSING)).remedy(audit_key::REMEDY)
        }
        KeySource::Beside(path) if !path.exists() => {
            Step::new(SUBJECT, Outcome::NotChecked, format!("{} is not there yet; `lazaret serve` makes it", path.display()))
        }
        KeySource::Beside(path) => match audit_key::read(path) {
            Ok(_) => Step::new(SUBJECT, Outcome::Passed, format!("read from {}", path.display())),
            Err(what) => Step::new(SUBJECT, Outcome::Failed, what).remedy("Put the right file back, or name another in audit.key_file"),
        },
    }
}

fn ledger_tiers(config: &Config) -> Vec<(String, LedgerTier)> {
    let mut tiers = Vec::new();
    for (name, ledger) in &config.ledgers {
        if let Some(hot) = &ledger.hot {
            tiers.push((name.clone(), LedgerTier::Redis(hot.url.clone())));
        }
        match &ledger.durable {
            Some(Tier::Sql { url, query }) => tiers.push((name.clone(), LedgerTier::Sql(url.clone(), query.clone()))),
            Some(Tier::Http { url }) => tiers.push((name.clone(), LedgerTier::Http(url.clone()))),
            None => {}
        }
    }
    tiers
}

/// On a thread that may wait, step by step. Returns the ACLs that are missing.
async fn cluster(cluster: &ClusterSettings, dlqs: Vec<DlqSettings>, tell: &mut impl FnMut(Progress)) -> Vec<String> {
    let (subject, cluster) = (format!("cluster {}", cluster.name), cluster.clone());
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let checked = tokio::task::spawn_blocking(move || {
        checkup::cluster(&cluster, &dlqs, checkup::TIMEOUT, &mut |progress| {
            // Nobody listens any more: the command was ended.
            let _ = sender.send(progress);
        })
    });
    while let Some(progress) = progress.recv().await {
        tell(progress);
    }
    checked.await.unwrap_or_else(|error| {
        tell(Progress::Done(Step::new(&subject, Outcome::Failed, format!("the check stopped: {error}"))));
        Vec::new()
    })
}

/// The topics of a cluster that look like DLQs and that no `[[dlq]]` covers yet.
///
/// # Errors
/// The client cannot be made, or the topics cannot be listed.
pub async fn suggestions(
    cluster: &ClusterSettings,
    dlqs: Vec<DlqSettings>,
    seen: impl FnMut(usize, usize) + Send + 'static,
) -> Result<Vec<Suggestion>, KafkaError> {
    let inspector = Arc::new(Inspector::connect(cluster)?);
    let name = cluster.name.clone();
    let covered = move |topic: &str| settings_for(&dlqs, &name, topic).is_some();
    let stopped = |error: tokio::task::JoinError| KafkaError::Other { cluster: cluster.name.clone(), reason: format!("stopped: {error}") };
    tokio::task::spawn_blocking(move || suggest::suggest(&inspector, covered, seen)).await.map_err(stopped)?
}
