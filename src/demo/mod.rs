//! `lazaret demo`: a made-up shop whose dead letters fill an in-process Kafka, so that everything can be seen without installing anything.
//!
//! May use: `domain`, rdkafka. Called by: `app` alone. The demo only produces; its records go through the same intake as anybody's.
//! [`scenario`] is what happened (pure), [`broker`] the in-process Kafka, [`folder`] what the demo may delete, this file the whole.

mod broker;
mod folder;
mod headers;
mod payloads;
mod pipelines;
mod random;
pub mod scenario;
mod terms;
pub mod wallet;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use broker::Broker;
pub use folder::Folder;

use crate::domain::access::Role;
use crate::domain::classify::{ClassRule, FailureClass};
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings};
use crate::domain::terms::{Ledger, ReplayTerms, Schema};
use scenario::{OutagePayment, Story};
use wallet::{Handled, Wallet};

/// The cluster's name on pages and in the API.
pub const CLUSTER: &str = "demo";
/// Where the demo keeps its database unless it is told otherwise.
pub const DEFAULT_FOLDER: &str = "lazaret-data/demo";
/// The story that is told unless another is wished for.
pub const DEFAULT_SEED: u64 = 200;

/// Why the demo could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The demo deletes what an earlier demo made, and nothing else.
    #[error("{} holds files that no demo made: give the demo an empty folder of its own by --data-dir", .0.display())]
    NotOurs(PathBuf),
    #[error("another demo is running in {}: stop it, or give this one another --data-dir", .0.display())]
    Running(PathBuf),
    #[error("demo folder {}: {source}. Let this user write there, or name another folder by --data-dir", .path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("in-process Kafka: {0}")]
    Broker(rdkafka::error::KafkaError),
    #[error("in-process Kafka is not there any more: start the demo again")]
    NoBroker,
    #[error("the made-up wallet's database: {0}")]
    Wallet(sqlx::Error),
    #[error("the system gives no random numbers for passwords: {0}")]
    Random(getrandom::Error),
}

/// How to start.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Folder of the database; made when missing.
    pub data_dir: PathBuf,
    /// `T` in the tokens `T-viewer` and so on; random when not given.
    pub api_token: Option<String>,
    /// Whether only this machine can connect. If others can, passwords are random instead of well known.
    pub loopback_only: bool,
    pub seed: u64,
}

/// A user to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignIn {
    pub name: &'static str,
    pub role: Role,
    pub password: String,
}

/// An API token to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub name: &'static str,
    pub role: Role,
    pub secret: String,
}

/// A demo whose history has been produced. Keep it for as long as anything reads from its Kafka.
pub struct Demo {
    /// The database to make; its folder is empty of earlier ones.
    pub database_url: String,
    /// The file for the key of its trail, gone with the database of an earlier demo.
    pub audit_key: PathBuf,
    pub cluster: ClusterSettings,
    pub dlqs: Vec<DlqSettings>,
    /// On which terms messages of each of `dlqs` may be replayed.
    pub terms: Vec<ReplayTerms>,
    pub ledgers: BTreeMap<String, Ledger>,
    pub schemas: BTreeMap<String, Schema>,
    pub class_rules: Vec<ClassRule>,
    pub sign_ins: Vec<SignIn>,
    pub tokens: Vec<Token>,
    broker: Arc<Broker>,
    wallet: Arc<Wallet>,
    /// Where the wallet goes on in each partition of its topic.
    wallet_from: Vec<i64>,
    story: Story,
    folder: Folder,
}

impl Demo {
    /// Clears the folder of an earlier demo, starts the broker, and produces everything that happened up to now.
    ///
    /// # Errors
    /// The folder is not ours or in use, or the in-process broker does not work.
    pub async fn start(clock: &Clock, options: DemoOptions) -> Result<Demo, DemoError> {
        let folder = Folder::take(&options.data_dir)?;
        let broker = Broker::start(pipelines::topics())?;
        let mut story = Story::new(options.seed);
        let now_ms = clock.now_ms();
        broker.produce(&story.until_now(now_ms)).await?;
        let wallet = Wallet::create(&folder.wallet()).await?;
        let outage = story.outage(now_ms);
        let wallet_from = live_through(&outage, &wallet, &broker).await?;
        let schema = folder.write_schema(terms::PAYMENT_SCHEMA)?;
        Ok(Demo {
            database_url: folder.database_url(),
            audit_key: folder.audit_key(),
            cluster: cluster_settings(broker.bootstrap_servers()),
            dlqs: dlq_settings(),
            terms: terms::terms(),
            ledgers: terms::ledgers(&folder.wallet()),
            schemas: terms::schemas(schema),
            class_rules: class_rules(),
            sign_ins: sign_ins(options.loopback_only)?,
            tokens: tokens(options.api_token)?,
            broker: Arc::new(broker),
            wallet: Arc::new(wallet),
            wallet_from,
            story,
            folder,
        })
    }

    /// The source of new failures, to be run beside the rest.
    pub fn trickle(&self) -> Trickle {
        Trickle { broker: Arc::clone(&self.broker), story: self.story.clone() }
    }

    /// The shop's wallet at work, its database up again: what is replayed to it is debited once, or skipped, or dead-lettered again.
    ///
    /// # Errors
    /// As [`Wallet::run`].
    pub async fn run_wallet(&self, clock: Clock, stop: CancellationToken) -> Result<(), DemoError> {
        self.wallet.run(&self.broker, &self.wallet_from, clock, stop).await
    }

    /// The shop's wallet.
    pub fn wallet(&self) -> &Wallet {
        &self.wallet
    }

    /// What to print once pages are served at `url`, such as `http://127.0.0.1:8080`.
    pub fn banner(&self, url: &str) -> String {
        let mut out = String::new();
        let viewer = self.tokens.first().map_or("", |token| token.secret.as_str());
        let _ = writeln!(out, "Lazaret demo at {url}/\n");
        let _ = writeln!(out, "Everything in it is invented: a shop, {} days of its dead letters, an outage.", scenario::HISTORY_DAYS);
        let _ = writeln!(out, "Kafka runs inside this process at {}; the database is in {}.", self.cluster.bootstrap_servers, self.folder);
        let _ = writeln!(out, "Each start begins anew.\n\nSign in as");
        for user in &self.sign_ins {
            let _ = writeln!(out, "  {:<10} password {}", user.name, user.password);
        }
        let _ = writeln!(out, "\nAPI tokens");
        for token in &self.tokens {
            let _ = writeln!(out, "  {:<10} {}", token.role.as_str(), token.secret);
        }
        let _ = writeln!(out, "  curl -H 'Authorization: Bearer {viewer}' {url}/api/v1/dlqs\n");
        let _ = writeln!(out, "Look first at {}: its database was down for 40 minutes, until just now,", pipelines::WALLET);
        let _ = writeln!(
            out,
            "{} payments wait there; propose their replay as operator and say why now, for their failure is minutes old;",
            scenario::OUTAGE_MESSAGES
        );
        let _ = writeln!(out, "then approve it as approver.");
        let _ = writeln!(out, "New failures keep coming in all over the shop.");
        let _ =
            writeln!(out, "The dead letters of inventory-sink-dlq and clicks.app.dlq carry their originals' time, as Kafka Connect and");
        let _ = writeln!(out, "Kafka Streams leave it; they are dated when Lazaret first saw them: at this start.\n\nCtrl-C ends it.");
        out
    }
}

/// The outage as it was: the shop produces each payment, the wallet tries and gives up, and its framework dead-letters what it gave up on. Gives the offsets
/// after the last payment of each partition.
async fn live_through(outage: &[OutagePayment], wallet: &Wallet, broker: &Broker) -> Result<Vec<i64>, DemoError> {
    let payments: Vec<_> = outage.iter().map(|payment| payment.record.clone()).collect();
    let offsets = broker.produce(&payments).await?;
    let mut next = vec![0; usize::try_from(pipelines::PARTITIONS).unwrap_or(0)];
    let mut dead_letters = Vec::new();
    for (payment, offset) in outage.iter().zip(offsets) {
        let record = payment.record.as_read(offset);
        if let Some(next) = usize::try_from(record.partition).ok().and_then(|partition| next.get_mut(partition)) {
            *next = offset + 1;
        }
        let value = record.value.as_deref().unwrap_or_default();
        if let Handled::Failed(trouble) = wallet.handle(value, payment.given_up_at_ms, payment.database).await? {
            dead_letters.push(scenario::dead_letter_of(&record, trouble.failure(), payment.given_up_at_ms));
        }
    }
    broker.produce(&dead_letters).await?;
    Ok(next)
}

/// New failures, a few a minute over all DLQs.
pub struct Trickle {
    broker: Arc<Broker>,
    story: Story,
}

impl Trickle {
    /// Produces one new failure and says how long to wait for the next.
    pub async fn tick(&mut self, now_ms: i64) -> Result<std::time::Duration, DemoError> {
        let (record, wait) = self.story.next_failure(now_ms);
        self.broker.produce(&[record]).await?;
        Ok(wait)
    }

    /// Goes on until it is told to stop.
    pub async fn run(mut self, clock: Clock, stop: CancellationToken) -> Result<(), DemoError> {
        loop {
            let wait = self.tick(clock.now_ms()).await?;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

fn cluster_settings(bootstrap_servers: &str) -> ClusterSettings {
    ClusterSettings {
        name: CLUSTER.to_owned(),
        bootstrap_servers: bootstrap_servers.to_owned(),
        properties: BTreeMap::new(),
        oauth_token: None,
        // The topics are there before anybody looks and never change. Looking again is dear here: the in-process broker gives no topic
        // ids, so each partition's newest record is read to see whether the topic is still the same.
        discovery_interval_s: 3_600,
        sample_interval_s: 5,
        group_id: "lazaret-demo".to_owned(),
    }
}

/// What the shop's operators configured, one entry a DLQ.
pub fn dlq_settings() -> Vec<DlqSettings> {
    pipelines::settings(CLUSTER)
}

/// Exceptions of the shop's own, which no built-in rule can know. One is left out: pages also show what an unknown kind looks like.
const CLASS_RULES: [(&str, FailureClass); 3] =
    [("WalletUnavailable", FailureClass::Transient), ("UnknownSku", FailureClass::Business), ("TemplateMissing", FailureClass::Bug)];

/// The configured rules beside the built-in ones.
pub fn class_rules() -> Vec<ClassRule> {
    let rule = |(exception, class)| {
        // Plain words are always valid expressions.
        let exception = regex::Regex::new(exception).ok()?;
        Some(ClassRule { exception: Some(exception), message: None, header: None, class })
    };
    CLASS_RULES.into_iter().filter_map(rule).collect()
}

const ROLES: [(&str, Role); 4] =
    [("viewer", Role::Viewer), ("operator", Role::Operator), ("approver", Role::Approver), ("admin", Role::Admin)];

fn sign_ins(loopback_only: bool) -> Result<Vec<SignIn>, DemoError> {
    let password = |name: &str| if loopback_only { Ok(format!("lazaret-{name}")) } else { random_word() };
    ROLES.into_iter().map(|(name, role)| Ok(SignIn { name, role, password: password(name)? })).collect()
}

fn tokens(chosen: Option<String>) -> Result<Vec<Token>, DemoError> {
    let stem = chosen.map_or_else(random_word, Ok)?;
    Ok(ROLES.into_iter().map(|(name, role)| Token { name, role, secret: format!("{stem}-{name}") }).collect())
}

/// 128 bits from the system, hex.
fn random_word() -> Result<String, DemoError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(DemoError::Random)?;
    Ok(bytes.iter().fold(String::new(), |mut word, byte| {
        let _ = write!(word, "{byte:02x}");
        word
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_enough_and_secret_where_others_can_connect() {
        let known = sign_ins(true).unwrap();
        assert!(known.iter().all(|user| user.password.len() >= 12), "{known:?}");
        assert_ne!(sign_ins(false).unwrap(), known);
        assert_ne!(sign_ins(false).unwrap(), sign_ins(false).unwrap());
    }

    #[test]
    fn tokens_are_the_chosen_word_and_the_role() {
        let secrets: Vec<_> = tokens(Some("T".to_owned())).unwrap().into_iter().map(|token| token.secret).collect();
        assert_eq!(secrets, ["T-viewer", "T-operator", "T-approver", "T-admin"]);
        assert_ne!(tokens(None).unwrap(), tokens(None).unwrap());
    }
}
