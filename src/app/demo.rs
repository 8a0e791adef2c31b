//! `lazaret demo`: the made-up shop's Kafka, and a Lazaret that watches it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::audit_key::KeySource;
use super::{AppError, Running, Settings, start};
pub use crate::demo::DEFAULT_FOLDER;
use crate::demo::{DEFAULT_SEED, Demo, DemoOptions};
use crate::domain::access::OwnerScope;
use crate::domain::clock::Clock;
use crate::domain::egress::AllowList;
use crate::domain::settings::Secret;
use crate::domain::terms::ApprovalTerms;
use crate::telemetry;

/// What can be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: String,
    pub data_dir: PathBuf,
    /// `T` of the tokens `T-viewer` and so on; random when not given.
    pub api_token: Option<String>,
}

/// A running demo.
pub struct RunningDemo {
    pub running: Running,
    /// Address, sign-ins, tokens, and where to look first.
    pub banner: String,
    /// The in-process Kafka, for as long as anything may read from it: it ends when this is dropped, so shut `running` down first.
    /// A consumer whose broker is gone would wait for an answer to its good-bye.
    pub kafka: Arc<Demo>,
}

/// Tells the story, then serves it: database new, Kafka in this process, new failures trickling in.
///
/// # Errors
/// The folder is not the demo's or in use, the address is taken, or the in-process Kafka does not work.
pub async fn run(options: Options, clock: Clock) -> Result<RunningDemo, AppError> {
    let host = options.listen.rsplit_once(':').map_or("", |(host, _)| host);
    let loopback_only = host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let made = DemoOptions { data_dir: options.data_dir, api_token: options.api_token, loopback_only, seed: DEFAULT_SEED };
    let demo = Arc::new(Demo::start(&clock, made).await?);
    let mut running = start(settings(options.listen, &demo), clock.clone()).await?;
    for user in &demo.sign_ins {
        running.access.add_user(user.name, &user.password, user.role, OwnerScope::All).await?;
    }
    for token in &demo.tokens {
        running.access.create_token(token.name, token.role, OwnerScope::All, None, Some(&token.secret)).await?;
    }
    running.setup_link = None;
    let banner = demo.banner(&running.url);
    let kafka = Arc::clone(&demo);
    let (shop, ticks) = (Arc::clone(&demo), clock.clone());
    running.supervisor.spawn("demo:wallet", move |token| {
        let (shop, clock) = (Arc::clone(&shop), ticks.clone());
        async move {
            if let Err(error) = shop.run_wallet(clock, token).await {
                telemetry::job_failed("demo:wallet", &error.to_string());
            }
        }
    });
    running.supervisor.spawn("demo", move |token| {
        let (demo, clock) = (Arc::clone(&demo), clock.clone());
        async move {
            if let Err(error) = demo.trickle().run(clock, token).await {
                telemetry::job_failed("demo", &error.to_string());
            }
        }
    });
    Ok(RunningDemo { running, banner, kafka })
}

fn settings(listen: String, demo: &Demo) -> Settings {
    Settings {
        listen,
        public_url: None,
        metrics_listen: None,
        read_only: false,
        database_url: Secret::new(demo.database_url.clone()),
        audit_key: KeySource::Beside(demo.audit_key.clone()),
        instance_name: "demo".to_owned(),
        lease: Duration::from_secs(15),
        session_hours: 12,
        sign_in_attempts_per_minute: 10,
        samples_fine: Duration::from_secs(48 * 3_600),
        clusters: vec![demo.cluster.clone()],
        dlqs: demo.dlqs.clone(),
        checks: demo.terms.iter().map(super::settings::checks).collect(),
        terms: demo.terms.clone(),
        approval: ApprovalTerms::default(),
        ledgers: demo.ledgers.clone(),
        schemas: demo.schemas.clone(),
        class_rules: demo.class_rules.clone(),
        allow_private: AllowList::default(),
        heartbeat_url: None,
    }
}
