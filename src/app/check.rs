//! `lazaret check`: goes through everything that is configured and changes nothing.

use std::sync::Arc;

use super::audit_key::{ANOTHER, ANOTHER_REMEDY, GONE, KeySource};
use super::use_ring;
use crate::config::{Config, audit_key};
use crate::domain::settings::{ClusterSettings, DlqSettings, settings_for};
use crate::domain::terms::{ReplayTerms, Tier};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::schema::Schemas;
use crate::services::checkup::{self, Instances, LedgerTier, Outcome, Progress, ReplayNeeds, Step};
use crate::services::suggest::{self, Suggestion};
use crate::store::{Store, audit};

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
    let (steps_of_database, store) = database(config).await;
    steps_of_database.into_iter().for_each(|step| tell(Progress::Done(step)));
    tell(Progress::Done(trail_key(&KeySource::from(config), store.as_ref()).await));
    let instances = instances(config, store.as_ref()).await;
    let mut acls = Vec::new();
    for cluster in &config.clusters {
        let missing = self::cluster(cluster, config, instances, &mut tell).await;
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

/// The steps, and the database itself where it answers and is up to date.
async fn database(config: &Config) -> (Vec<Step>, Option<Store>) {
    if let Some(path) = config.database.sqlite_path().filter(|path| !path.exists()) {
        return (checkup::database_to_be_made(&path), None);
    }
    let connected = Store::connect(config.database.url.expose()).await;
    let steps = checkup::database(&connected, config.database.setting, &config.database.shown()).await;
    let usable = steps.iter().all(|step| step.outcome == Outcome::Passed);
    (steps, connected.ok().filter(|_| usable))
}

/// Whether `serve` has, or will have, a key for the trail of decisions, and the one that the trail was made with. `store` is a database that is up to date.
async fn trail_key(source: &KeySource, store: Option<&Store>) -> Step {
    const SUBJECT: &str = "audit key";
    let failed = |said: String, remedy: &str| Step::new(SUBJECT, Outcome::Failed, said).remedy(remedy);
    let (key, from) = match source {
        KeySource::Given(key) => (key.clone(), "audit.key_file".to_owned()),
        KeySource::Missing => return failed(format!("audit.key_file {}", audit_key::MISSING), audit_key::REMEDY),
        KeySource::Beside(path) if !path.exists() => {
            let begun = match store {
                Some(store) => audit::begun(store).await,
                None => Ok(false),
            };
            return match begun {
                Ok(true) => failed(format!("{} {GONE}", path.display()), "Put the file back"),
                Ok(false) => {
                    Step::new(SUBJECT, Outcome::NotChecked, format!("{} is not there yet; `lazaret serve` makes it", path.display()))
                }
                Err(error) => failed(error.to_string(), "Look into the database server's log"),
            };
        }
        KeySource::Beside(path) => match audit_key::read(path) {
            Ok(key) => (key, path.display().to_string()),
            Err(what) => return failed(what, "Put the right file back, or name another in audit.key_file"),
        },
    };
    let Some(store) = store else {
        return Step::new(SUBJECT, Outcome::NotChecked, format!("read from {from}; there is no trail to compare it with"));
    };
    match audit::newest_fits(store, &key).await {
        Ok(true) => Step::new(SUBJECT, Outcome::Passed, format!("read from {from}")),
        Ok(false) => failed(format!("read from {from}: {ANOTHER}"), ANOTHER_REMEDY),
        Err(error) => failed(error.to_string(), "Look into the database server's log"),
    }
}

/// How many instances of this database may be in the consumer groups now.
async fn instances(config: &Config, store: Option<&Store>) -> Instances {
    let held = match store {
        Some(store) => store.any_lease_held().await.ok(),
        // A SQLite file that is not there is nobody's; of any other database nothing is known.
        None => config.database.sqlite_path().filter(|path| !path.exists()).map(|_| false),
    };
    match held {
        Some(false) => Instances::None,
        _ if config.database.sqlite_path().is_some() => Instances::One,
        _ => Instances::Several,
    }
}

/// What replays need of a cluster; None where nothing may be sent.
fn replay_needs(config: &Config, cluster: &str) -> Option<ReplayNeeds> {
    if config.server.read_only {
        return None;
    }
    let mut needs = ReplayNeeds::default();
    for dlq in config.dlqs.iter().filter(|dlq| dlq.settings.cluster == cluster) {
        let ReplayTerms { targets, target_groups, also_read_by, .. } = &dlq.replay;
        needs.origin |= targets.iter().any(|target| target == "origin");
        needs.targets.extend(targets.iter().filter(|target| *target != "origin").cloned());
        needs.groups.extend(dlq.settings.consumer_group.iter().chain(target_groups.values()).cloned());
        needs.groups.extend(also_read_by.iter().map(|reader| reader.group.clone()));
    }
    Some(needs)
}

fn ledger_tiers(config: &Config) -> Vec<(String, LedgerTier)> {
    let mut tiers = Vec::new();
    for (name, ledger) in &config.ledgers {
        if let Some(hot) = &ledger.hot {
            tiers.push((name.clone(), LedgerTier::Redis { url: hot.url.clone(), has_durable: ledger.durable.is_some() }));
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
async fn cluster(cluster: &ClusterSettings, config: &Config, instances: Instances, tell: &mut impl FnMut(Progress)) -> Vec<String> {
    let (dlqs, needs) = (config.dlq_settings(), replay_needs(config, &cluster.name));
    let (subject, cluster) = (format!("cluster {}", cluster.name), cluster.clone());
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let checked = tokio::task::spawn_blocking(move || {
        // Nobody listens any more: the command was ended.
        let mut seen = |progress| drop(sender.send(progress));
        let mut missing = checkup::cluster(&cluster, &dlqs, checkup::TIMEOUT, &mut seen);
        if missing.answered {
            checkup::group_members(&cluster, instances, checkup::TIMEOUT, &mut seen);
            let of_replays = needs.map(|needs| checkup::replays(&cluster, &needs, checkup::TIMEOUT, &mut seen));
            missing.acls.extend(of_replays.into_iter().flatten());
        }
        missing.acls
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
