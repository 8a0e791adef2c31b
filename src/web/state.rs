//! What handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::FromRef;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;
use tower_http::csrf::CsrfLayer;

use super::pages::live::Live;
use crate::domain::clock::Clock;
use crate::domain::readiness::Checks;
use crate::domain::settings::{DlqSettings, settings_for};
use crate::services::access::Access;
use crate::services::checkup::ClusterTests;
use crate::services::groups::Groups;
use crate::services::health::Health;
use crate::services::heat::Heat;
use crate::services::intake::ClusterStatus;
use crate::services::messages::Messages;
use crate::services::replay::Replays;
use crate::services::review::Reviews;
use crate::services::sign_in_limit::SignInLimit;
use crate::store::{Store, StoreError};

/// What the configuration says that pages and API need.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Where browsers reach us, `scheme://host[:port]`. Its scheme decides whether cookies are `Secure`.
    pub public_url: String,
    /// No producer exists and nothing can be sent.
    pub read_only: bool,
    /// Per client address and name.
    pub sign_in_attempts_per_minute: u32,
    /// How long the session cookie lives, hours; the session itself ends by `Access`.
    pub session_hours: i64,
    /// `/metrics` on the main address, for signed-in users and tokens; false when it has an address of its own.
    pub metrics_on_main: bool,
    /// In the order of the configuration.
    pub dlqs: Vec<DlqSettings>,
    pub configured: Configured,
    /// How often each cluster is sampled, ms.
    pub sample_interval_ms: BTreeMap<String, i64>,
}

/// What `/settings` and `/setup` show of the configuration beside the DLQs. Holds no secret.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    pub clusters: Vec<ConfiguredCluster>,
    /// One for each of [`WebOptions::dlqs`], in the same order.
    pub checks: Vec<Checks>,
    pub ledgers: Vec<ConfiguredPart>,
    pub schemas: Vec<ConfiguredPart>,
}

/// One `[clusters.NAME]`.
#[derive(Debug, Clone)]
pub struct ConfiguredCluster {
    pub name: String,
    pub bootstrap_servers: String,
    pub group_id: String,
    /// How it is signed in to: "SASL_SSL, SCRAM-SHA-512", or "PLAINTEXT".
    pub security: String,
}

/// A ledger or a schema: its name, and of what kind it is.
#[derive(Debug, Clone)]
pub struct ConfiguredPart {
    pub name: String,
    pub kind: String,
}

impl Default for WebOptions {
    fn default() -> WebOptions {
        WebOptions {
            public_url: "http://127.0.0.1:8080".to_owned(),
            read_only: false,
            sign_in_attempts_per_minute: 10,
            session_hours: 12,
            metrics_on_main: true,
            dlqs: Vec::new(),
            configured: Configured::default(),
            sample_interval_ms: BTreeMap::new(),
        }
    }
}

/// `server.public_url` is no origin that a browser could send.
#[derive(Debug, thiserror::Error)]
#[error("server.public_url: {url:?} is not usable: {reason}; write it as https://lazaret.example.org, without a path")]
pub struct PublicUrlError {
    pub url: String,
    pub reason: String,
}

/// Shared by all handlers; cheap to clone.
#[derive(Debug, Clone)]
pub struct AppState {
    pub store: Store,
    pub clock: Clock,
    pub access: Access,
    pub health: Health,
    pub heat: Heat,
    pub messages: Messages,
    /// One for each configured cluster whose intake runs in this process.
    pub clusters: Arc<[ClusterStatus]>,
    /// Tests of clusters that an admin starts.
    pub cluster_tests: ClusterTests,
    pub replays: Replays,
    pub metrics: Option<PrometheusHandle>,
    pub options: Arc<WebOptions>,
    pub live: Live,
    pub(super) csrf: CsrfLayer,
    pub(super) sign_ins: Arc<SignInLimit>,
}

impl AppState {
    /// State without clusters and metrics; add those with [`AppState::with_clusters`] and [`AppState::with_metrics`].
    ///
    /// # Errors
    /// `public_url` is no origin.
    pub fn new(store: Store, access: Access, clock: Clock, options: WebOptions) -> Result<AppState, PublicUrlError> {
        let origin = options.public_url.trim_end_matches('/').to_owned();
        let csrf = CsrfLayer::new()
            .add_trusted_origin(&origin)
            .map_err(|error| PublicUrlError { url: options.public_url.clone(), reason: error.to_string() })?;
        let dlqs: Arc<[DlqSettings]> = options.dlqs.clone().into();
        let health = Health {
            store: store.clone(),
            clock: clock.clone(),
            dlqs: Arc::clone(&dlqs),
            sample_interval_ms: Arc::new(options.sample_interval_ms.clone()),
        };
        let heat = Heat { store: store.clone(), dlqs: Arc::clone(&dlqs) };
        let messages = Messages { store: store.clone(), dlqs: Arc::clone(&dlqs) };
        let replays = Replays::nowhere(store.clone(), clock.clone(), dlqs);
        let cluster_tests = ClusterTests::new(Vec::new(), Vec::new(), clock.clone());
        let sign_ins = Arc::new(SignInLimit::new(options.sign_in_attempts_per_minute));
        let options = Arc::new(WebOptions { public_url: origin, ..options });
        Ok(AppState {
            store,
            clock,
            access,
            health,
            heat,
            messages,
            clusters: Arc::new([]),
            cluster_tests,
            replays,
            metrics: None,
            options,
            live: Live::default(),
            csrf,
            sign_ins,
        })
    }

    /// The clusters whose intake runs here.
    pub fn with_clusters(mut self, clusters: impl IntoIterator<Item = ClusterStatus>) -> AppState {
        self.clusters = clusters.into_iter().collect();
        self
    }

    /// The clusters that can be tested, with the last result of each.
    pub fn with_cluster_tests(mut self, tests: ClusterTests) -> AppState {
        self.cluster_tests = tests;
        self
    }

    /// Replays on these terms; without, nothing can be proposed.
    pub fn with_replays(mut self, replays: Replays) -> AppState {
        self.replays = replays;
        self
    }

    /// The recorder that `/metrics` renders.
    pub fn with_metrics(mut self, metrics: PrometheusHandle) -> AppState {
        self.metrics = Some(metrics);
        self
    }

    /// Streams end when `stop` is cancelled: an orderly end waits for every answer that is under way.
    pub fn with_stop(mut self, stop: CancellationToken) -> AppState {
        self.live.stop = stop;
        self
    }

    /// Whose a DLQ is: as the configuration says now, and where none of its entries covers the topic any more, as it said last. None: nobody's.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn owner_of(&self, cluster: &str, topic: &str) -> Result<Option<String>, StoreError> {
        match settings_for(&self.messages.dlqs, cluster, topic) {
            Some(settings) => Ok(settings.owner.clone()),
            None => Ok(self.store.dlq(cluster, topic).await?.and_then(|dlq| dlq.owner)),
        }
    }

    /// Whether browsers reach us over TLS.
    pub(super) fn is_https(&self) -> bool {
        self.options.public_url.starts_with("https://")
    }
}

impl FromRef<AppState> for Health {
    fn from_ref(state: &AppState) -> Health {
        state.health.clone()
    }
}

impl FromRef<AppState> for Messages {
    fn from_ref(state: &AppState) -> Messages {
        state.messages.clone()
    }
}

impl FromRef<AppState> for Groups {
    fn from_ref(state: &AppState) -> Groups {
        Groups { store: state.store.clone(), clock: state.clock.clone(), dlqs: Arc::clone(&state.messages.dlqs) }
    }
}

impl FromRef<AppState> for Replays {
    fn from_ref(state: &AppState) -> Replays {
        state.replays.clone()
    }
}

impl FromRef<AppState> for Arc<SignInLimit> {
    fn from_ref(state: &AppState) -> Arc<SignInLimit> {
        Arc::clone(&state.sign_ins)
    }
}

impl FromRef<AppState> for Access {
    fn from_ref(state: &AppState) -> Access {
        state.access.clone()
    }
}

impl FromRef<AppState> for Reviews {
    fn from_ref(state: &AppState) -> Reviews {
        Reviews { store: state.store.clone(), clock: state.clock.clone(), dlqs: Arc::clone(&state.messages.dlqs) }
    }
}
