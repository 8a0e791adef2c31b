//! Verification of one cluster by one instance at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Supervisor;
use super::turns::Turns;
use crate::domain::settings::ClusterSettings;
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::kafka::scan::Scanner;
use crate::services::replay::Replays;
use crate::services::replay::check::Candidate;
use crate::services::verify::{Question, Verifier, VerifyError};
use crate::store::leases::HeldLease;

/// How often consumer groups and ledgers are looked at. A canary of a few messages waits for this.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// What verification of a cluster needs.
#[derive(Clone)]
pub struct VerifyJob {
    pub replays: Replays,
    pub inspector: Arc<Inspector>,
    pub scanner: Arc<Scanner>,
    pub cluster: String,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
    pub interval: Duration,
}

impl VerifyJob {
    /// With a client of its own that sees open transactions.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] if librdkafka refuses a property.
    pub fn new(
        replays: Replays,
        inspector: Arc<Inspector>,
        cluster: &ClusterSettings,
        holder: &str,
        lease: Duration,
    ) -> Result<VerifyJob, KafkaError> {
        let scanner = Arc::new(Scanner::connect(cluster)?);
        let (cluster, holder) = (cluster.name.clone(), holder.to_owned());
        Ok(VerifyJob { replays, inspector, scanner, cluster, holder, lease, interval: INTERVAL })
    }

    /// Runs under the supervisor until shutdown.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        let name = format!("verify/{}", self.cluster);
        supervisor.spawn(name.clone(), move |token| self.clone().run(name.clone(), token));
    }

    async fn run(self, name: String, token: CancellationToken) {
        let (store, clock) = (self.replays.store.clone(), self.replays.clock.clone());
        let mut turns = Turns::new(store, clock, &name, &self.holder, self.lease, self.interval);
        let mut verifier = self.verifier();
        while let Some(lease) = turns.next(&token).await {
            if let Some(done) = turns.during(turn(&mut verifier, &self.replays, Some(&lease))).await {
                turns.done(done);
            }
        }
        turns.end().await;
    }

    fn verifier(&self) -> Verifier {
        let Replays { store, clock, dlqs, terms, .. } = &self.replays;
        let clients = (Arc::clone(&self.inspector), Arc::clone(&self.scanner));
        Verifier::new(store.clone(), clock.clone(), &self.cluster, clients, Arc::clone(dlqs), Arc::clone(terms))
    }
}

/// One turn: what came back, what groups passed, what ledgers say, and what follows.
///
/// # Errors
/// As [`Verifier::conclude`].
pub async fn turn(verifier: &mut Verifier, replays: &Replays, lease: Option<&HeldLease>) -> Result<(), VerifyError> {
    verifier.begin(lease).await?;
    while let Some(mut question) = verifier.next_question().await? {
        let verdicts = ask_ledger(replays, &mut question).await;
        verifier.answer(lease, &question, &verdicts).await?;
    }
    verifier.conclude(lease).await
}

/// What the ledger says of each message whose bytes are still there.
async fn ask_ledger(replays: &Replays, question: &mut Question) -> Vec<(i64, crate::domain::verdict::IdempotencyVerdict)> {
    let Some(entry) = replays.entry(&question.cluster, &question.topic) else { return Vec::new() };
    let candidates: Vec<Candidate> = std::mem::take(&mut question.messages)
        .into_iter()
        .filter_map(|message| {
            let (origin_at_ms, timestamp_suspect) = (message.origin_at_ms, message.timestamp_suspect);
            Some(Candidate { message_id: message.message_id, record: message.record?, origin_at_ms, timestamp_suspect })
        })
        .collect();
    let now_ms = replays.clock.now_ms();
    let verdicts = replays.checker.ledger_says(entry, question.transform.as_deref(), &candidates, now_ms).await;
    candidates.iter().map(|candidate| candidate.message_id).zip(verdicts).collect()
}
