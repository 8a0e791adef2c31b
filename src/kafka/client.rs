//! Client settings that every client shares: no topic is ever created by asking for it, secrets stay out of logs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::RDKafkaErrorCode;

use super::token;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, Secret, TokenSource};

/// Why Kafka could not be asked. The text names the broker's reason and never a secret.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum KafkaError {
    /// No broker answered (down, DNS, TLS, time-out).
    #[error("cluster {cluster}: not reachable: {reason}")]
    Unreachable { cluster: String, reason: String },
    /// The broker said no: authentication or ACL.
    #[error("cluster {cluster}: not permitted: {reason}")]
    NotPermitted { cluster: String, reason: String },
    /// A client property is unknown or its value unusable.
    #[error("cluster {cluster}: {reason}")]
    Settings { cluster: String, reason: String },
    /// The brokers do not know such a request: asking again is of no use.
    #[error("cluster {cluster}: {reason}")]
    Unsupported { cluster: String, reason: String },
    #[error("cluster {cluster}: {reason}")]
    Other { cluster: String, reason: String },
}

impl KafkaError {
    /// The reason alone, for a place that names the cluster itself.
    pub fn reason(&self) -> &str {
        match self {
            KafkaError::Unreachable { reason, .. }
            | KafkaError::NotPermitted { reason, .. }
            | KafkaError::Settings { reason, .. }
            | KafkaError::Unsupported { reason, .. }
            | KafkaError::Other { reason, .. } => reason,
        }
    }
}

/// What librdkafka is told unless the operator says otherwise. Names and units: librdkafka's CONFIGURATION.md.
const DEFAULTS: [(&str, &str); 8] = [
    ("client.id", "lazaret"),
    ("socket.keepalive.enable", "true"),
    ("socket.timeout.ms", "30000"),
    ("socket.connection.setup.timeout.ms", "10000"),
    // A broker that comes back is to be found again within seconds; librdkafka would wait up to 10 s between attempts.
    ("reconnect.backoff.max.ms", "3000"),
    // A record may be as large as a broker allows (32 MiB is seen in the field); the default of 100 MB is the limit of a whole answer.
    ("receive.message.max.bytes", "268435456"),
    // Answers are compressed and unpacked as a whole: dead letters with stack traces grow tenfold, so this is what bounds memory.
    ("fetch.max.bytes", "2097152"),
    // Idle connections are closed by brokers all the time; that is no news.
    ("log.connection.close", "false"),
];

/// Properties that this program depends on, why nobody may set them, and the remedy.
const OURS: [(&[&str], &str); 9] = [
    (&["bootstrap.servers", "metadata.broker.list"], "set bootstrap_servers beside it instead"),
    (&["group.id", "group.instance.id"], "set group_id beside it instead; every instance joins that group by itself"),
    (
        &["group.protocol", "group.remote.assignor", "partition.assignment.strategy"],
        "intake hands partitions over one by one (cooperative-sticky) and relies on it; leave it out",
    ),
    (
        &["enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"],
        "the position of a partition is kept in the database, together with its messages; leave it out",
    ),
    (&["auto.offset.reset"], "a lost position is reported, never guessed; set start in [[dlq]] instead"),
    (&["isolation.level"], "records of aborted transactions are no dead letters; leave it out"),
    (&["enable.partition.eof"], "intake needs the end of each partition reported; leave it out"),
    (&["allow.auto.create.topics"], "nothing here may create a topic by asking for it; leave it out"),
    (&["debug", "log_level", "log.queue"], "debug lines of the Kafka client may hold secrets; leave it out"),
];

/// The settings of a client: defaults, `tuned` for its work, then the operator's properties, then `ours`, which always win.
pub(super) fn client_config(cluster: &ClusterSettings, tuned: &[(&str, &str)], ours: &[(&str, &str)]) -> Result<ClientConfig, KafkaError> {
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Notice);
    for (name, value) in DEFAULTS.iter().chain(tuned) {
        config.set(*name, *value);
    }
    for (name, value) in &cluster.properties {
        check_property(cluster, name, value.expose())?;
        config.set(name, value.expose());
    }
    check_token_source(cluster)?;
    config.set("bootstrap.servers", &cluster.bootstrap_servers);
    config.set("allow.auto.create.topics", "false");
    config.set("isolation.level", "read_committed");
    config.set("auto.offset.reset", "error");
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    for (name, value) in ours {
        config.set(*name, *value);
    }
    Ok(config)
}

/// Asks librdkafka about one property, so that the error names it and not its value.
fn check_property(cluster: &ClusterSettings, name: &str, value: &str) -> Result<(), KafkaError> {
    if let Some((_, why)) = OURS.iter().find(|(names, _)| names.contains(&name)) {
        return Err(settings_error(cluster, format!("the property {name} cannot be set: {why}")));
    }
    if name.contains('\0') || value.contains('\0') {
        return Err(settings_error(cluster, format!("the property {name:?} or its value contains a NUL byte: remove it")));
    }
    let mut alone = ClientConfig::new();
    alone.set(name, value);
    match alone.create_native_config() {
        Ok(_) => Ok(()),
        Err(rdkafka::error::KafkaError::ClientConfig(_, reason, ..)) => {
            let reason = without(&reason, value, "its value");
            Err(settings_error(
                cluster,
                format!("the property {name} was refused: {reason} (names and values: librdkafka's CONFIGURATION.md)"),
            ))
        }
        Err(other) => {
            Err(settings_error(cluster, format!("the property {name} was refused: {}", without(&other.to_string(), value, "its value"))))
        }
    }
}

/// OAUTHBEARER without a token source would wait for a token for ever.
fn check_token_source(cluster: &ClusterSettings) -> Result<(), KafkaError> {
    let mechanism = ["sasl.mechanism", "sasl.mechanisms"].iter().find_map(|name| cluster.properties.get(*name)).map(|m| m.expose());
    match (mechanism, &cluster.oauth_token) {
        (Some("OAUTHBEARER"), None) => Err(settings_error(
            cluster,
            "sasl.mechanism is OAUTHBEARER and no token source is set: name the file or the command that gives the token".to_owned(),
        )),
        (Some("GSSAPI"), _) => Err(settings_error(
            cluster,
            "sasl.mechanism GSSAPI (Kerberos) is not built in: use SCRAM-SHA-512, PLAIN or OAUTHBEARER".to_owned(),
        )),
        (mechanism, Some(_)) if mechanism != Some("OAUTHBEARER") => {
            Err(settings_error(cluster, "a token source is set, but sasl.mechanism is not OAUTHBEARER: set both or neither".to_owned()))
        }
        _ => Ok(()),
    }
}

fn settings_error(cluster: &ClusterSettings, reason: String) -> KafkaError {
    KafkaError::Settings { cluster: cluster.name.clone(), reason }
}

/// A client that could not be made: librdkafka checks files, certificates and combinations of properties only then.
pub(super) fn creation_error(cluster: &ClusterSettings, error: &rdkafka::error::KafkaError) -> KafkaError {
    let mut reason = match error {
        rdkafka::error::KafkaError::ClientCreation(reason) => reason.clone(),
        rdkafka::error::KafkaError::ClientConfig(_, reason, name, _) => format!("{name}: {reason}"),
        other => other.to_string(),
    };
    for (name, value) in &cluster.properties {
        reason = without(&reason, value.expose(), name);
    }
    settings_error(cluster, format!("the Kafka client could not be made: {reason}"))
}

/// `text` with each occurrence of `value` replaced. A value under 4 characters is replaced only where it stands alone, or
/// "1" would turn every number into noise.
fn without(text: &str, value: &str, name: &str) -> String {
    let value = value.trim();
    if value.is_empty() {
        return text.to_owned();
    }
    let hidden = format!("<{name}>");
    if value.len() >= 4 {
        return text.replace(value, &hidden);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(value) {
        let (before, from) = rest.split_at(at);
        let after = &from[value.len()..];
        let alone = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        clean.push_str(before);
        clean.push_str(if alone { &hidden } else { value });
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// Something that librdkafka reported by itself, outside of any call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub code: RDKafkaErrorCode,
    pub reason: String,
}

/// What all clients of a cluster have in common at run time: its name, its secrets (to keep them out of texts), its token source,
/// and a list of what librdkafka reported.
pub(super) struct Reporter {
    cluster: String,
    /// `security.protocol`, in capitals.
    protocol: String,
    secrets: Vec<(String, Secret)>,
    token: Option<TokenSource>,
    clock: Clock,
    troubles: Mutex<Vec<Trouble>>,
}

/// More than this many unread reports are of no use to anybody.
const KEPT_TROUBLES: usize = 64;

impl Reporter {
    pub fn new(cluster: &ClusterSettings) -> Reporter {
        let secret = |name: &str| ["password", "secret", "pem", "key", "token", "config"].iter().any(|part| name.contains(part));
        Reporter {
            cluster: cluster.name.clone(),
            protocol: cluster.properties.get("security.protocol").map_or("PLAINTEXT", |value| value.expose()).to_ascii_uppercase(),
            secrets: cluster.properties.iter().filter(|(name, _)| secret(name)).map(|(n, v)| (n.clone(), v.clone())).collect(),
            token: cluster.oauth_token.clone(),
            clock: Clock::system(),
            troubles: Mutex::new(Vec::new()),
        }
    }

    /// The text without any configured secret. librdkafka is not known to print one; this is the second lock on that door.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, (name, value)| without(&text, value.expose(), name))
    }

    /// What it means that a broker took a connection, closed it and said nothing: it expected another protocol.
    pub fn closed_at_once(&self) -> &'static str {
        match self.protocol.as_str() {
            "PLAINTEXT" => {
                "the port took the connection and closed it: it probably asks for TLS or SASL. Set the property security.protocol to SASL_SSL, \
                 SASL_PLAINTEXT or SSL"
            }
            "SASL_PLAINTEXT" => {
                "the port took the connection and closed it: it probably asks for TLS. Set the property security.protocol to SASL_SSL"
            }
            _ => "the port took the connection and closed it",
        }
    }

    /// Sorts an error code into what a person can do about it.
    pub fn kafka_error(&self, code: RDKafkaErrorCode, reason: &str) -> KafkaError {
        use RDKafkaErrorCode as Code;
        let cluster = self.cluster.clone();
        let reason = self.clean(reason);
        match code {
            Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::IllegalSASLState
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::DelegationTokenAuthorizationFailed => KafkaError::NotPermitted { cluster, reason },
            Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::Resolve
            | Code::SSL
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::RequestTimedOut
            | Code::BrokerNotAvailable
            | Code::LeaderNotAvailable
            | Code::NetworkException
            | Code::WaitingForCoordinator
            | Code::CoordinatorNotAvailable => KafkaError::Unreachable { cluster, reason },
            Code::UnsupportedFeature | Code::UnsupportedVersion | Code::NotImplemented => KafkaError::Unsupported { cluster, reason },
            _ => KafkaError::Other { cluster, reason },
        }
    }

    /// The same for an error of rdkafka's, with librdkafka's own words for the code.
    pub fn rdkafka_error(&self, error: &rdkafka::error::KafkaError) -> KafkaError {
        match error.rdkafka_error_code() {
            Some(code) => self.kafka_error(code, &code.to_string()),
            None => KafkaError::Other { cluster: self.cluster.clone(), reason: self.clean(&error.to_string()) },
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Trouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was reported since the last call.
    pub fn take_troubles(&self) -> Vec<Trouble> {
        std::mem::take(&mut *self.list())
    }

    /// What was reported last that explains why nothing answers: a refusal rather than a broken connection.
    pub fn explanation(&self) -> Option<Trouble> {
        let troubles = self.list();
        let refusal =
            |t: &&Trouble| matches!(self.kafka_error(t.code, ""), KafkaError::NotPermitted { .. }) || t.code == RDKafkaErrorCode::SSL;
        let connection = |t: &&Trouble| t.code != RDKafkaErrorCode::AllBrokersDown;
        troubles.iter().rev().find(refusal).or_else(|| troubles.iter().rev().find(connection)).cloned()
    }

    /// Forgets what was reported: an answer came.
    pub fn forget(&self) {
        self.list().clear();
    }
}

impl ClientContext for Reporter {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        let message = self.clean(message);
        let cluster = self.cluster.as_str();
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(target: "librdkafka", cluster, facility, "{message}");
            }
            RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", cluster, facility, "{message}"),
            // A lost connection is an error to librdkafka each time it tries again; what a person needs to know of it is told once, by
            // whoever handles the error.
            RDKafkaLogLevel::Error | RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::debug!(target: "librdkafka", cluster, facility, "{message}");
            }
            RDKafkaLogLevel::Debug => tracing::trace!(target: "librdkafka", cluster, facility, "{message}"),
        }
    }

    /// An operator may have switched statistics on; nothing here reads them.
    fn stats_raw(&self, _statistics: &[u8]) {}

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let reason = self.clean(reason);
        tracing::debug!(cluster = self.cluster.as_str(), %code, "{reason}");
        let trouble = Trouble { code, reason };
        let mut troubles = self.list();
        // "All brokers are down" comes with every attempt, some twenty times a second, and the reason once in 30 s: what is repeated must not
        // push the reason out.
        troubles.retain(|earlier| *earlier != trouble);
        if troubles.len() >= KEPT_TROUBLES {
            troubles.remove(0);
        }
        troubles.push(trouble);
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        match &self.token {
            Some(source) => Ok(token::fetch(source, &self.clock)?),
            None => Err("no token source is set".into()),
        }
    }
}

/// Nothing more than reporting: enough for a client that joins no group.
impl ConsumerContext for Reporter {}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(properties: &[(&str, &str)]) -> ClusterSettings {
        ClusterSettings {
            name: "main".into(),
            bootstrap_servers: "127.0.0.1:1".into(),
            properties: properties.iter().map(|(n, v)| ((*n).to_owned(), Secret::new(*v))).collect(),
            oauth_token: None,
            discovery_interval_s: 30,
            sample_interval_s: 15,
            group_id: "lazaret".into(),
        }
    }

    fn refusal(properties: &[(&str, &str)]) -> String {
        client_config(&cluster(properties), &[], &[]).expect_err("refused").to_string()
    }

    #[test]
    fn a_refused_property_is_named_and_its_value_is_not() {
        let text = refusal(&[("security.protokol", "hunter2")]);
        assert!(text.contains("cluster main") && text.contains("security.protokol") && text.contains("No such"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        for (name, value) in [("security.protocol", "hunter2"), ("socket.timeout.ms", "9999999999"), ("reconnect.backoff.ms", "-7")] {
            let text = refusal(&[(name, value)]);
            assert!(text.contains(name) && !text.contains(value), "{text}");
        }
    }

    #[test]
    fn what_the_design_depends_on_cannot_be_overridden() {
        for (names, why) in OURS {
            for name in names {
                let text = refusal(&[(name, "true")]);
                assert!(text.contains(name) && text.contains(why), "{text}");
            }
        }
    }

    #[test]
    fn every_client_is_forbidden_to_create_topics_and_reads_committed_records_only() {
        let config = client_config(&cluster(&[("client.id", "mine")]), &[], &[]).expect("accepted");
        assert_eq!(config.get("allow.auto.create.topics"), Some("false"));
        assert_eq!(config.get("isolation.level"), Some("read_committed"));
        assert_eq!(config.get("client.id"), Some("mine"));
    }

    #[test]
    fn a_token_source_and_its_mechanism_go_together() {
        assert!(refusal(&[("sasl.mechanism", "OAUTHBEARER")]).contains("token"));
        assert!(refusal(&[("sasl.mechanism", "GSSAPI")]).contains("Kerberos"));
        let mut settings = cluster(&[("sasl.mechanism", "PLAIN")]);
        settings.oauth_token = Some(TokenSource::File("token".into()));
        assert!(client_config(&settings, &[], &[]).is_err());
    }

    #[test]
    fn the_reason_outlives_any_number_of_repeated_reports() {
        use rdkafka::error::KafkaError as Reported;
        let reporter = Reporter::new(&cluster(&[]));
        reporter.error(Reported::Global(RDKafkaErrorCode::SSL), "certificate verify failed");
        for attempt in 0..1_000 {
            reporter.error(Reported::Global(RDKafkaErrorCode::AllBrokersDown), if attempt % 2 == 0 { "0/1 down" } else { "1/1 down" });
        }
        let explanation = reporter.explanation().expect("a reason is kept");
        assert_eq!((explanation.code, explanation.reason.as_str()), (RDKafkaErrorCode::SSL, "certificate verify failed"));
        assert_eq!(reporter.take_troubles().len(), 3);
    }

    #[test]
    fn secrets_are_cut_out_of_any_text() {
        let reporter = Reporter::new(&cluster(&[("sasl.password", "hunter2"), ("ssl.key.password", "x9")]));
        assert_eq!(reporter.clean("login hunter2 failed, x9 and x99"), "login <sasl.password> failed, <ssl.key.password> and x99");
    }
}
