//! What the operator configured, parsed once at the door: a TOML file, `LAZARET_*` variables, or a few flags.
//!
//! May use: `domain`. Called by: `cli`, `app`. Every fault is found and named with key, fault and remedy; unknown keys are refused;
//! secrets are kept in [`Secret`] and never appear in a fault. The file `lazaret.example.toml` shows every setting.

pub mod audit_key;
mod clusters;
mod dlqs;
mod environment;
mod fault;
mod flags;
mod ledgers;
mod reader;
mod schemas;
mod sections;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::domain::audit::AuditKey;
use crate::domain::classify::ClassRule;
use crate::domain::egress::AllowList;
use crate::domain::settings::{ClusterSettings, DlqSettings, Secret};
use crate::domain::terms::{ApprovalTerms, Ledger, Schema};

pub use dlqs::Dlq;
pub use fault::{ConfigError, Fault};
pub use flags::Flags;
pub use values::{age_ms, listen_address};

/// Everything that can be configured.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    pub database: Database,
    pub instance: Instance,
    pub auth: Auth,
    pub approval: ApprovalTerms,
    pub retention: Retention,
    pub audit: Audit,
    pub channels: Channels,
    /// By name.
    pub clusters: Vec<ClusterSettings>,
    pub ledgers: BTreeMap<String, Ledger>,
    pub schemas: BTreeMap<String, Schema>,
    /// In the order of the file; the first match wins.
    pub class_rules: Vec<ClassRule>,
    /// In the order of the file; the first match wins.
    pub dlqs: Vec<Dlq>,
}

impl Config {
    /// The part of each `[[dlq]]` that intake reads by.
    pub fn dlq_settings(&self) -> Vec<DlqSettings> {
        self.dlqs.iter().map(|dlq| dlq.settings.clone()).collect()
    }
}

/// `[server]`
#[derive(Debug, Clone)]
pub struct Server {
    /// `host:port` of pages and API; port 0 takes a free one.
    pub listen: String,
    /// Scheme, host and port under which people reach the pages. None: the address that was bound.
    pub public_url: Option<String>,
    /// No producer is built: nothing can be sent.
    pub read_only: bool,
    /// `host:port` for `/metrics` without sign-in. None: `/metrics` on the main address, for signed-in users and tokens only.
    pub metrics_listen: Option<String>,
}

/// `[database]`
#[derive(Debug, Clone)]
pub struct Database {
    /// `sqlite://path`, relative to the working directory, or `postgres://..`.
    pub url: Secret,
    /// The setting that gave it: `database.url` or `database.url_file`.
    pub setting: &'static str,
}

impl Database {
    /// The SQLite file, if it is one.
    pub fn sqlite_path(&self) -> Option<PathBuf> {
        let path = self.url.expose().strip_prefix("sqlite://")?;
        Some(PathBuf::from(path.split('?').next().unwrap_or(path)))
    }

    /// What may be shown of it: the file, or host, port and database of the server. Never user or password.
    pub fn shown(&self) -> String {
        match self.sqlite_path() {
            Some(path) => format!("SQLite file {}", path.display()),
            None => ["PostgreSQL".to_owned()].into_iter().chain(server_place(self.url.expose())).collect::<Vec<_>>().join(" "),
        }
    }
}

/// `host:port/database` of a PostgreSQL URL; None where it is none. Parameters behind the `?` win, as they do when connecting.
fn server_place(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    let parameter =
        |names: &[&str]| url.query_pairs().filter(|(name, _)| names.contains(&name.as_ref())).last().map(|(_, value)| value.into_owned());
    let host = parameter(&["host", "hostaddr"]).or_else(|| url.host_str().filter(|host| !host.is_empty()).map(str::to_owned));
    let port = parameter(&["port"]).or_else(|| url.port().map(|port| port.to_string()));
    let database = parameter(&["dbname"]).or_else(|| Some(url.path().trim_start_matches('/').to_owned()));
    let database = database.filter(|name| !name.is_empty()).map_or_else(String::new, |name| format!("/{name}"));
    Some(format!("{}:{}{database}", host.as_deref().unwrap_or("localhost"), port.as_deref().unwrap_or("5432")))
}

/// `[instance]`: one of several processes on one PostgreSQL.
#[derive(Debug, Clone)]
pub struct Instance {
    /// None: the host's name.
    pub name: Option<String>,
    /// Seconds after which another instance takes over the work of one that is silent.
    pub lease_s: u64,
    /// Called regularly, so that somebody notices when this process is gone. A secret: who knows it can call it.
    pub heartbeat_url: Option<Secret>,
}

/// `[auth]`
#[derive(Debug, Clone)]
pub struct Auth {
    /// Hours until a signed-in browser must sign in again.
    pub session_hours: i64,
    pub sign_in_attempts_per_minute: u32,
}

/// `[retention]`
#[derive(Debug, Clone)]
pub struct Retention {
    pub archive_after_days: u32,
    pub warn_before_days: u32,
    pub purge_bodies_after_days: u32,
    /// Hours for which every sample is kept; older ones are thinned to one an hour, after 30 days to one a day; after a year they go.
    pub samples_fine_hours: u32,
}

/// `[audit]`
#[derive(Debug, Clone)]
pub struct Audit {
    /// What `key_file` holds. None: not given, so it lies beside the SQLite database.
    pub key: Option<AuditKey>,
}

/// `[channels]`
#[derive(Debug, Clone)]
pub struct Channels {
    /// Places that may be sent to although they are not public.
    pub allow_private: AllowList,
}

/// What the configuration is for, hence what must be in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Clusters and DLQs, and the key of the trail.
    Serve,
    /// Clusters.
    Check,
    /// The database and the key of its trail: `user` and `token` where they change something.
    Trail,
    /// The database alone: `migrate`, lists.
    Database,
}

impl Config {
    /// Reads a file and the `LAZARET_*` variables among `environment`.
    pub fn load(path: &Path, environment: Vec<(String, String)>, purpose: Purpose) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|reason| ConfigError::Unreadable { path: path.to_owned(), reason })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Config::from_text(&text, &path.display().to_string(), folder, environment, purpose)
    }

    /// Reads TOML. `source_name` begins the error; relative paths of files start at `folder`.
    pub fn from_text(
        text: &str,
        source_name: &str,
        folder: PathBuf,
        environment: Vec<(String, String)>,
        purpose: Purpose,
    ) -> Result<Config, ConfigError> {
        let table = text.parse::<toml::Table>().map_err(|error| not_toml(source_name, text, &error))?;
        read(table, BTreeMap::new(), source_name, folder, environment, purpose)
    }

    /// Without a file: what the flags say, `LAZARET_*` variables, and defaults.
    pub fn from_flags(flags: &Flags, environment: Vec<(String, String)>, purpose: Purpose) -> Result<Config, ConfigError> {
        let (table, given_as) = flags.as_table();
        read(table, given_as, "command line", PathBuf::new(), environment, purpose)
    }
}

fn read(
    mut table: toml::Table,
    mut given_as: BTreeMap<String, String>,
    source_name: &str,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    purpose: Purpose,
) -> Result<Config, ConfigError> {
    let unknown_variables = environment::apply(&mut table, &mut given_as, environment);
    let source = reader::Source::new(folder, given_as);
    for Fault { key, what, remedy } in unknown_variables {
        source.fault(&key, what, remedy);
    }
    let config = sections::config(reader::Section::new(&source, "", table), purpose);
    let faults = source.into_faults();
    if faults.is_empty() { Ok(config) } else { Err(ConfigError::Faults { source_name: source_name.to_owned(), faults }) }
}

fn not_toml(source_name: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    ConfigError::NotToml { source_name: source_name.to_owned(), line, column, what: error.message().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_server_place_and_database_are_shown_and_nobody_who_connects() {
        let shown = |url: &str| Database { url: Secret::new(url), setting: "database.url" }.shown();
        for (url, expected) in [
            ("postgres://u:hunter2@db/lazaret", "PostgreSQL db:5432/lazaret"),
            ("postgres://db:6432/lazaret?user=u&password=hunter2", "PostgreSQL db:6432/lazaret"),
            ("postgresql://u@old/a?host=new&port=1&dbname=b", "PostgreSQL new:1/b"),
            ("postgres://u:hunter2@[::1]", "PostgreSQL [::1]:5432"),
            ("postgres://u:hunter2@db:port/lazaret", "PostgreSQL"),
            ("sqlite://a/b.db?mode=rw", "SQLite file a/b.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
