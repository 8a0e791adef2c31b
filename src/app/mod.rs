//! The composition root: builds store, Kafka clients, services, jobs and router, and takes them down in order.
//!
//! May use: every room but `cli`. Called by: `cli`, tests. [`start`] is all of `serve`; [`demo`] brings its own Kafka and calls it;
//! [`check`] looks and changes nothing.

pub mod audit_key;
pub mod check;
pub mod demo;
pub mod refusals;
mod settings;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use self::audit_key::AuditKeyError;
use crate::channels::Sender;
use crate::config::ConfigError;
use crate::domain::clock::Clock;
use crate::domain::settings::ClusterSettings;
use crate::jobs::Supervisor;
use crate::jobs::alerts::AlertsJob;
use crate::jobs::heartbeat;
use crate::jobs::hints;
use crate::jobs::housekeeping::Housekeeping;
use crate::jobs::intake::{IntakeJob, LIMITS};
use crate::jobs::outbox::OutboxJob;
use crate::jobs::replay::ReplayJob;
use crate::jobs::review::ReviewJob;
use crate::jobs::sampler::SamplerJob;
use crate::jobs::verify::VerifyJob;
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::services::access::{Access, AccessError};
use crate::services::alerting::Alerting;
use crate::services::checkup::ClusterTests;
use crate::services::health::Health;
use crate::services::heartbeat::{Heartbeat, Watched};
use crate::services::intake::ClusterStatus;
use crate::services::notify::{Notify, courier};
use crate::services::replay::check::Checker;
use crate::services::replay::executor::Timing;
use crate::services::replay::{self, Replays};
use crate::services::review::Reviews;
use crate::store::{Store, StoreError};
use crate::web::{self, AppState, Configured, ConfiguredCluster, PublicUrlError, WebOptions};
use crate::{demo as made_up, telemetry};

pub use settings::Settings;

/// How long everything may take to end before it is dropped where it stands. Nothing is lost by that: a position is stored with its
/// messages or not at all. A request to a broker that is away takes longer than anybody waits (containers are killed after 10 s).
pub const SHUTDOWN: Duration = Duration::from_secs(6);

/// The setting whose address the pages are served at.
const LISTEN: &str = "server.listen";

/// Why the program could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Kafka(#[from] KafkaError),
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("{0}")]
    PublicUrl(#[from] PublicUrlError),
    #[error("{0}")]
    AuditKey(#[from] AuditKeyError),
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Demo(#[from] made_up::DemoError),
    /// The address is taken, or not one of this machine's.
    #[error("{key} = \"{address}\": {reason}. Give another address or port{}, or stop what listens there.", flag_of(key))]
    Listen { key: &'static str, address: String, reason: std::io::Error },
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

/// How an address is given on the command line, where it can be.
fn flag_of(key: &str) -> &'static str {
    if key == LISTEN { " with --listen" } else { "" }
}

impl AppError {
    /// Whether the configuration is at fault, not the world.
    pub fn is_configuration(&self) -> bool {
        match self {
            AppError::AuditKey(error) => error.is_configuration(),
            AppError::Config(_)
            | AppError::Kafka(KafkaError::Settings { .. })
            | AppError::PublicUrl(_)
            | AppError::Store(StoreError::Url(_)) => true,
            _ => false,
        }
    }
}

/// A Lazaret that serves pages and takes dead letters in.
pub struct Running {
    /// What was bound; the port is real even where 0 was asked for.
    pub address: SocketAddr,
    /// Of `/metrics` without sign-in, if configured.
    pub metrics_address: Option<SocketAddr>,
    /// Where browsers go, without a slash at the end.
    pub url: String,
    /// The one-time link by which the first admin sets a password; None when there are users.
    pub setup_link: Option<String>,
    /// How each cluster's intake gets on.
    pub clusters: Vec<ClusterStatus>,
    pub access: Access,
    pub notify: Notify,
    supervisor: Supervisor,
}

impl Running {
    /// Ends everything in order: no more requests, intake leaves its group, what was read is stored or left for the next start.
    /// Returns the names of jobs that did not end in time.
    pub async fn shutdown(self) -> Vec<String> {
        self.supervisor.shutdown(SHUTDOWN).await
    }

    /// Cancelled once shutdown begins.
    pub fn token(&self) -> CancellationToken {
        self.supervisor.token()
    }
}

/// Starts everything that `settings` asks for. The listeners are bound first, so that a wrong address is known at once; brokers need not
/// be up: intake connects when they are, and the pages say so.
///
/// # Errors
/// A schema or transform is none, an address cannot be bound, the database cannot be opened or migrated, or a client property is refused.
pub async fn start(settings: Settings, clock: Clock) -> Result<Running, AppError> {
    use_ring();
    refusals::refuse(settings.terms.iter(), &settings.schemas).await?;
    let listener = bind(LISTEN, &settings.listen).await?;
    let metrics_listener = match &settings.metrics_listen {
        Some(address) => Some(bind("server.metrics_listen", address).await?),
        None => None,
    };
    let address = local_address(LISTEN, &listener, &settings.listen)?;
    let metrics_address = match (&metrics_listener, &settings.metrics_listen) {
        (Some(listener), Some(asked)) => Some(local_address("server.metrics_listen", listener, asked)?),
        _ => None,
    };
    let url = settings.public_url.clone().unwrap_or_else(|| format!("http://{}", reachable(address)));

    // A refused property stops the start before anything is opened or changed.
    let inspectors = inspectors(&settings.clusters)?;
    let store = Store::connect_exclusive(settings.database_url.expose()).await?;
    store.migrate().await?;
    let store = audit_key::open(store, &settings.audit_key).await?;
    let access = Access::new(store.clone(), clock.clone(), settings.session_hours);
    let clusters: Vec<ClusterStatus> = settings.clusters.iter().map(|cluster| ClusterStatus::new(&cluster.name)).collect();
    let tests = ClusterTests::new(settings.clusters.clone(), settings.dlqs.clone(), clock.clone());
    let state = AppState::new(store.clone(), access.clone(), clock.clone(), web_options(&settings, &url))?;
    let replays = replays(&settings, &store, &clock, &inspectors);
    let sender = Sender::new(settings.allow_private.clone());
    let notify = Notify::new(store.clone(), clock.clone(), sender.clone(), &settings.instance_name)?;
    let state = state.with_clusters(clusters.clone()).with_cluster_tests(tests).with_replays(replays.clone());
    let state = match metrics() {
        Some(handle) => state.with_metrics(handle),
        None => state,
    };

    let health = state.health.clone();
    let mut supervisor = Supervisor::new(clock.clone());
    let state = state.with_stop(supervisor.token());
    serve_http(&mut supervisor, "http", listener, web::router(state.clone()));
    if let Some(listener) = metrics_listener {
        serve_http(&mut supervisor, "http:metrics", listener, web::metrics_router(state));
    }
    let setup_link = access.setup_token().await?.map(|token| format!("{url}/setup?token={token}"));
    start_heartbeat(&mut supervisor, &settings, &notify, sender, &clusters);
    start_jobs(&mut supervisor, &settings, &replays, &notify, health, inspectors.into_iter().zip(&clusters))?;
    Ok(Running { address, metrics_address, url, setup_link, clusters, access, notify, supervisor })
}

/// One client for look-ups in each cluster. Nothing is asked yet.
fn inspectors(clusters: &[ClusterSettings]) -> Result<Vec<Arc<Inspector>>, KafkaError> {
    clusters.iter().map(|cluster| Inspector::connect(cluster).map(Arc::new)).collect()
}

/// Without clusters where nothing may be sent.
fn replays(settings: &Settings, store: &Store, clock: &Clock, inspectors: &[Arc<Inspector>]) -> Replays {
    let cluster = |(settings, inspector): (&ClusterSettings, &Arc<Inspector>)| {
        (settings.name.clone(), replay::Cluster { settings: settings.clone(), inspector: Arc::clone(inspector) })
    };
    let clusters = settings.clusters.iter().zip(inspectors).filter(|_| !settings.read_only).map(cluster).collect();
    Replays {
        store: store.clone(),
        clock: clock.clone(),
        dlqs: settings.dlqs.clone().into(),
        terms: settings.terms.clone().into(),
        approval: settings.approval.clone(),
        checker: Checker::new(&settings.ledgers, &settings.schemas),
        clusters: Arc::new(clusters),
    }
}

fn start_jobs<'a>(
    supervisor: &mut Supervisor,
    settings: &Settings,
    replays: &Replays,
    notify: &Notify,
    health: Health,
    handles: impl Iterator<Item = (Arc<Inspector>, &'a ClusterStatus)>,
) -> Result<(), AppError> {
    let Replays { store, clock, .. } = replays;
    hints::spawn(store.clone(), supervisor);
    let holder = holder(&settings.instance_name)?;
    let lease = settings.lease;
    for (cluster, (inspector, status)) in settings.clusters.iter().zip(handles) {
        let dlqs: Vec<_> = settings.dlqs.iter().filter(|dlq| dlq.cluster == cluster.name).cloned().collect();
        IntakeJob {
            store: store.clone(),
            inspector: Arc::clone(&inspector),
            clock: clock.clone(),
            cluster: ClusterSettings::clone(cluster),
            dlqs: dlqs.clone(),
            rules: settings.class_rules.clone(),
            status: status.clone(),
            limits: LIMITS,
        }
        .spawn(supervisor);
        if !settings.read_only {
            VerifyJob::new(replays.clone(), Arc::clone(&inspector), cluster, &holder, lease)?.spawn(supervisor);
        }
        let (store, clock, cluster, holder) = (store.clone(), clock.clone(), cluster.clone(), holder.clone());
        SamplerJob { store, inspector, clock, cluster, dlqs, holder, lease }.spawn(supervisor);
    }
    // None where nothing may be sent.
    for cluster in replays.clusters.values().cloned() {
        ReplayJob { replays: replays.clone(), cluster, holder: holder.clone(), timing: Timing::of_lease(lease) }.spawn(supervisor);
    }
    OutboxJob { notify: notify.clone(), holder: holder.clone(), lease }.spawn(supervisor);
    let reviews = Reviews { store: store.clone(), clock: clock.clone(), dlqs: settings.dlqs.clone().into() };
    ReviewJob { reviews, holder: holder.clone(), lease }.spawn(supervisor);
    let alerting = Alerting { store: store.clone(), clock: clock.clone(), dlqs: settings.dlqs.clone().into() };
    AlertsJob { alerting, health, holder: holder.clone(), lease }.spawn(supervisor);
    let (store, clock, samples_fine) = (store.clone(), clock.clone(), settings.samples_fine);
    Housekeeping { store, clock, holder, lease, samples_fine }.spawn(supervisor);
    Ok(())
}

/// Watches what must get on, and tells the outside while it does.
fn start_heartbeat(supervisor: &mut Supervisor, settings: &Settings, notify: &Notify, sender: Sender, statuses: &[ClusterStatus]) {
    let Some(url) = settings.heartbeat_url.clone() else { return };
    let seconds = |seconds: u64| Duration::from_secs(seconds);
    let own =
        settings.clusters.iter().map(|cluster| Watched::new(format!("intake:{}", cluster.name), seconds(cluster.discovery_interval_s)));
    let mut shared: Vec<Watched> = settings
        .clusters
        .iter()
        .map(|cluster| Watched::new(format!("sampler:{}", cluster.name), seconds(cluster.sample_interval_s)))
        .collect();
    shared.push(Watched::new(courier::JOB, courier::NOTED_EVERY));
    let own: Vec<Watched> = own.collect();
    let intake = own.iter().map(|watched| watched.job.clone()).zip(statuses.iter().cloned()).collect();
    let (store, clock) = (notify.store.clone(), notify.clock.clone());
    let heartbeat = Heartbeat::new(store, clock.clone(), sender, url, own, shared);
    heartbeat::spawn(heartbeat, intake, clock, supervisor);
}

fn web_options(settings: &Settings, url: &str) -> WebOptions {
    let interval_ms = |cluster: &ClusterSettings| i64::try_from(cluster.sample_interval_s.saturating_mul(1_000)).unwrap_or(i64::MAX);
    WebOptions {
        public_url: url.to_owned(),
        read_only: settings.read_only,
        sign_in_attempts_per_minute: settings.sign_in_attempts_per_minute,
        session_hours: settings.session_hours,
        metrics_on_main: settings.metrics_listen.is_none(),
        dlqs: settings.dlqs.clone(),
        configured: Configured {
            clusters: settings.clusters.iter().map(configured).collect(),
            checks: settings.checks.clone(),
            ledgers: settings.ledger_parts(),
            schemas: settings.schema_parts(),
        },
        sample_interval_ms: settings.clusters.iter().map(|cluster| (cluster.name.clone(), interval_ms(cluster))).collect(),
    }
}

/// What may be shown of a cluster: of its properties the two that hold no secret.
fn configured(cluster: &ClusterSettings) -> ConfiguredCluster {
    let property = |name: &str| cluster.properties.get(name).map(|value| value.expose());
    let protocol = property("security.protocol").unwrap_or("PLAINTEXT");
    let mechanism =
        property("sasl.mechanism").or(property("sasl.mechanisms")).filter(|_| protocol.to_ascii_uppercase().starts_with("SASL"));
    ConfiguredCluster {
        name: cluster.name.clone(),
        bootstrap_servers: cluster.bootstrap_servers.clone(),
        group_id: cluster.group_id.clone(),
        security: [Some(protocol), mechanism].into_iter().flatten().collect::<Vec<_>>().join(", "),
    }
}

/// Serves until shutdown, then lets the requests under way finish. The socket outlives a panic: it is bound once and cloned for each run.
fn serve_http(supervisor: &mut Supervisor, name: &'static str, listener: std::net::TcpListener, router: axum::Router) {
    let listener = Arc::new(listener);
    supervisor.spawn(name, move |token| {
        let (listener, router) = (Arc::clone(&listener), router.clone());
        async move {
            let served = async {
                let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
                let service = router.into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, service).with_graceful_shutdown(token.cancelled_owned()).await
            };
            if let Err(error) = served.await {
                telemetry::job_failed(name, &error.to_string());
            }
        }
    });
}

async fn bind(key: &'static str, address: &str) -> Result<std::net::TcpListener, AppError> {
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener.into_std(),
        Err(reason) => Err(reason),
    };
    listener.map_err(|reason| AppError::Listen { key, address: address.to_owned(), reason })
}

fn local_address(key: &'static str, listener: &std::net::TcpListener, asked: &str) -> Result<SocketAddr, AppError> {
    listener.local_addr().map_err(|reason| AppError::Listen { key, address: asked.to_owned(), reason })
}

/// An address that a browser on this machine can open.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// This process as leases name it. Two processes never share it, not even two containers of one image and name (process id 1 each).
fn holder(instance_name: &str) -> Result<String, AppError> {
    let random = getrandom::u32().map_err(AppError::Random)?;
    Ok(format!("{instance_name}-{}-{random:08x}", std::process::id()))
}

/// The process's metrics, set up once however often an app starts in it (tests start many). None: another recorder is installed.
fn metrics() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    HANDLE.get_or_init(|| telemetry::install_metrics().ok()).clone()
}

/// TLS of the Redis client; a second call changes nothing.
pub fn use_ring() {
    // The one error is "there is one already".
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_one_name_are_two_holders() {
        assert_ne!(holder("web").unwrap(), holder("web").unwrap());
    }

    #[test]
    fn browsers_are_sent_to_an_address_that_exists() {
        assert_eq!(reachable("0.0.0.0:8080".parse().unwrap()).to_string(), "127.0.0.1:8080");
        assert_eq!(reachable("[::]:8080".parse().unwrap()).to_string(), "[::1]:8080");
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()).to_string(), "10.0.0.1:80");
    }
}
