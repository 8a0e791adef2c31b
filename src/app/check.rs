//! `lazaret check`: goes through everything that is configured and changes nothing.

use std::sync::Arc;

use super::use_ring;
use crate::config::{Config, Tier};
use crate::domain::settings::{ClusterSettings, DlqSettings, settings_for};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::services::checkup::{self, LedgerTier, Outcome, Step};
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

/// Checks database, clusters and ledgers, each step shown to `seen` as it is done.
pub async fn check(config: &Config, mut seen: impl FnMut(&Step)) -> Report {
    use_ring();
    let mut report = Report::default();
    let mut add = |report: &mut Report, steps: Vec<Step>| {
        steps.iter().for_each(&mut seen);
        report.steps.extend(steps);
    };
    add(&mut report, database(config).await);
    for cluster in &config.clusters {
        let (steps, acls) = self::cluster(cluster, config.dlq_settings()).await;
        add(&mut report, steps);
        if !acls.is_empty() {
            report.acls.push((cluster.name.clone(), acls));
        }
    }
    for (name, tier) in ledger_tiers(config) {
        add(&mut report, checkup::ledger_tier(&name, &tier).await);
    }
    for name in config.schemas.keys() {
        add(&mut report, vec![Step::new(&format!("schema {name}"), Outcome::NotChecked, "not checked: this version does not use it")]);
    }
    report
}

async fn database(config: &Config) -> Vec<Step> {
    match config.database.sqlite_path() {
        Some(path) if !path.exists() => checkup::database_to_be_made(&path),
        _ => checkup::database(&Store::connect(config.database.url.expose()).await).await,
    }
}

fn ledger_tiers(config: &Config) -> Vec<(String, LedgerTier)> {
    let mut tiers = Vec::new();
    for (name, ledger) in &config.ledgers {
        if let Some(hot) = &ledger.hot {
            tiers.push((name.clone(), LedgerTier::Redis(hot.url.clone())));
        }
        match &ledger.durable {
            Some(Tier::Sql { url, .. }) => tiers.push((name.clone(), LedgerTier::Sql(url.clone()))),
            Some(Tier::Http { .. }) => tiers.push((name.clone(), LedgerTier::Http)),
            None => {}
        }
    }
    tiers
}

async fn cluster(cluster: &ClusterSettings, dlqs: Vec<DlqSettings>) -> (Vec<Step>, Vec<String>) {
    let (subject, cluster) = (format!("cluster {}", cluster.name), cluster.clone());
    let checked = tokio::task::spawn_blocking(move || checkup::cluster(&cluster, &dlqs)).await;
    checked.unwrap_or_else(|error| (vec![Step::new(&subject, Outcome::Failed, format!("the check stopped: {error}"))], Vec::new()))
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
