//! What the running program needs of a configuration, wherever that came from.

use std::time::Duration;

use crate::config::Config;
use crate::domain::classify::ClassRule;
use crate::domain::settings::{ClusterSettings, DlqSettings, Secret};

/// The part of the configuration that this version acts on.
#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: String,
    /// None: the address that was bound.
    pub public_url: Option<String>,
    pub metrics_listen: Option<String>,
    pub read_only: bool,
    pub database_url: Secret,
    /// Begins the name under which this process holds leases.
    pub instance_name: String,
    pub lease: Duration,
    pub session_hours: i64,
    pub sign_in_attempts_per_minute: u32,
    /// Age from which samples are thinned to one an hour.
    pub samples_fine: Duration,
    pub clusters: Vec<ClusterSettings>,
    pub dlqs: Vec<DlqSettings>,
    pub class_rules: Vec<ClassRule>,
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
            instance_name: config.instance.name.clone().unwrap_or_else(host),
            lease: Duration::from_secs(config.instance.lease_s),
            session_hours: config.auth.session_hours,
            sign_in_attempts_per_minute: config.auth.sign_in_attempts_per_minute,
            samples_fine: Duration::from_secs(u64::from(config.retention.samples_fine_hours) * 3_600),
            clusters: config.clusters.clone(),
            dlqs: config.dlq_settings(),
            class_rules: config.class_rules.clone(),
        }
    }
}
