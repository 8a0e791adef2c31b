//! What the running program needs of a configuration, wherever that came from.

use std::collections::BTreeMap;
use std::time::Duration;

use super::audit_key::KeySource;
use crate::config::Config;
use crate::domain::classify::ClassRule;
use crate::domain::egress::AllowList;
use crate::domain::readiness::Checks;
use crate::domain::settings::{ClusterSettings, DlqSettings, Secret};
use crate::domain::terms::{ApprovalTerms, Ledger, ReplayTerms, Schema, SchemaKind, Tier};
use crate::web::ConfiguredPart;

/// The part of the configuration that this version acts on.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: String,
    /// None: the address that was bound.
    pub public_url: Option<String>,
    pub metrics_listen: Option<String>,
    pub read_only: bool,
    pub database_url: Secret,
    pub audit_key: KeySource,
    /// Begins the name under which this process holds leases.
    pub instance_name: String,
    pub lease: Duration,
    pub session_hours: i64,
    pub sign_in_attempts_per_minute: u32,
    /// Age from which samples are thinned.
    pub samples_fine: Duration,
    pub clusters: Vec<ClusterSettings>,
    pub dlqs: Vec<DlqSettings>,
    /// What each of `dlqs` says of the checks before a replay, in the same order.
    pub checks: Vec<Checks>,
    /// On which terms messages of each of `dlqs` may be replayed, in the same order.
    pub terms: Vec<ReplayTerms>,
    pub approval: ApprovalTerms,
    pub ledgers: BTreeMap<String, Ledger>,
    pub schemas: BTreeMap<String, Schema>,
    pub class_rules: Vec<ClassRule>,
    /// Places that channels may lead to although they are not public.
    pub allow_private: AllowList,
    pub heartbeat_url: Option<Secret>,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Settings {
        let host = || gethostname::gethostname().to_string_lossy().into_owned();
        Settings {
            listen: config.server.listen.clone(),
            public_url: config.server.public_url.clone(),
            metrics_listen: config.server.metrics_listen.clone(),
            read_only: config.server.read_only,
            database_url: config.database.url.clone(),
            audit_key: KeySource::from(config),
            instance_name: config.instance.name.clone().unwrap_or_else(host),
            lease: Duration::from_secs(config.instance.lease_s),
            session_hours: config.auth.session_hours,
            sign_in_attempts_per_minute: config.auth.sign_in_attempts_per_minute,
            samples_fine: Duration::from_secs(u64::from(config.retention.samples_fine_hours) * 3_600),
            clusters: config.clusters.clone(),
            dlqs: config.dlq_settings(),
            checks: config.dlqs.iter().map(|dlq| checks(&dlq.replay)).collect(),
            terms: config.dlqs.iter().map(|dlq| dlq.replay.clone()).collect(),
            approval: config.approval.clone(),
            ledgers: config.ledgers.clone(),
            schemas: config.schemas.clone(),
            class_rules: config.class_rules.clone(),
            allow_private: config.channels.allow_private.clone(),
            heartbeat_url: config.instance.heartbeat_url.clone(),
        }
    }
}

pub(super) fn checks(terms: &ReplayTerms) -> Checks {
    Checks {
        schema: terms.schema.as_ref().map(|schema| schema.schema.clone()),
        ledger: terms.idempotency.as_ref().map(|idempotency| idempotency.ledger.clone()),
        names_target: terms.targets.first().is_some_and(|target| target != "origin"),
    }
}

impl Settings {
    /// The ledgers as pages show them.
    pub(super) fn ledger_parts(&self) -> Vec<ConfiguredPart> {
        self.ledgers.iter().map(|(name, ledger)| part(name, ledger_kind(ledger))).collect()
    }

    /// The schemas as pages show them.
    pub(super) fn schema_parts(&self) -> Vec<ConfiguredPart> {
        self.schemas.iter().map(|(name, schema)| part(name, schema_kind(&schema.kind))).collect()
    }
}

fn part(name: &str, kind: String) -> ConfiguredPart {
    ConfiguredPart { name: name.to_owned(), kind }
}

/// Never where it is: the address may hold a password.
fn ledger_kind(ledger: &Ledger) -> String {
    let hot = ledger.hot.is_some().then_some("Redis");
    let durable = ledger.durable.as_ref().map(|tier| match tier {
        Tier::Sql { .. } => "SQL",
        Tier::Http { .. } => "HTTP endpoint",
    });
    [hot, durable].into_iter().flatten().collect::<Vec<_>>().join(", then ")
}

fn schema_kind(kind: &SchemaKind) -> String {
    match kind {
        SchemaKind::JsonSchema { path } => {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            format!("JSON Schema, {file}")
        }
        SchemaKind::Registry { subject, .. } => format!("registry, subject {subject}"),
    }
}
