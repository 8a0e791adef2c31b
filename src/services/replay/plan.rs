//! What the approver agrees to, as it is now: the digest, and what changed since.

use std::time::Duration;

use super::{Entry, ReplayError, Replays};
use crate::domain::digest::{Agreement, Guards, Items, ItemsHash, shown};
use crate::domain::replay::Plan;
use crate::domain::settings::Partitioner;
use crate::domain::terms::Order;
use crate::kafka::target::Target;
use crate::store::replays::Batch;

/// How long Kafka may take to say what a topic is like.
const TARGET_TIMEOUT: Duration = Duration::from_secs(5);
/// Ids and hashes read at once.
const HASHES: i64 = 10_000;

/// The word in `targets` for the topic that a message came from.
pub(super) const ORIGIN: &str = "origin";

/// A plan's digest as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recomputed {
    pub digest: String,
    /// What differs from what was agreed to, in words.
    pub changed: Vec<&'static str>,
}

impl Recomputed {
    /// Why an approval of the plan is void; None: it holds.
    pub fn void(&self) -> Option<String> {
        (!self.changed.is_empty()).then(|| format!("approval void: {} changed", self.changed.join(", ")))
    }
}

impl Replays {
    /// The digest of a batch as everything is now: its messages, its target, the settings of its checks. The start of a batch compares.
    ///
    /// # Errors
    /// Kafka, a schema registry or the database could not be asked: nobody knows whether the approval holds.
    pub async fn recompute_digest(&self, batch: &Batch) -> Result<Recomputed, ReplayError> {
        let Some(entry) = self.entry_of(batch) else {
            return Ok(Recomputed { digest: String::new(), changed: vec!["the configuration of this DLQ"] });
        };
        let items = self.items(batch.id).await?;
        let now = self.agreement(batch, entry, self.plan_now(batch, entry).await?, items).await?;
        Ok(compared(batch, &now))
    }

    /// As [`Replays::recompute_digest`], the messages aside: of a batch that is under way they have become fewer.
    ///
    /// # Errors
    /// As [`Replays::recompute_digest`].
    pub(super) async fn changed_settings(&self, batch: &Batch) -> Result<Recomputed, ReplayError> {
        let (Some(entry), Some(agreed)) = (self.entry_of(batch), &batch.agreement) else {
            return Ok(Recomputed { digest: String::new(), changed: vec!["the configuration of this DLQ"] });
        };
        let now = self.agreement(batch, entry, self.plan_now(batch, entry).await?, agreed.items.clone()).await?;
        Ok(compared(batch, &now))
    }

    /// Everything that is agreed to: the plan as given, and what the batch shows beside it.
    pub(super) async fn agreement(&self, batch: &Batch, entry: Entry<'_>, plan: Plan, items: Items) -> Result<Agreement, ReplayError> {
        let checks = self.checker.fingerprint(entry).await;
        let checks = checks.map_err(|why| ReplayError::Unready(format!("the settings of the checks could not be read: {why}")))?;
        let terms = entry.terms;
        let word = |emergency: bool| if emergency { "emergency" } else { "normal" };
        Ok(Agreement {
            cluster: batch.cluster.clone(),
            topic: batch.topic.clone(),
            plan,
            delivery: word(batch.emergency).to_owned(),
            reason: batch.reason.clone(),
            why_now: batch.why_now.clone(),
            incident: batch.incident.clone(),
            order: match terms.order {
                Order::Key => "key",
                Order::None => "none",
            }
            .to_owned(),
            partitioner: match entry.settings.partitioner {
                Partitioner::Murmur2Random => "murmur2_random",
                Partitioner::ConsistentRandom => "consistent_random",
            }
            .to_owned(),
            guards: Guards {
                pause_at_lag: terms.pause_at_lag,
                canary_timeout_s: terms.canary_timeout_s,
                verify_after_s: terms.verify_after_s,
                returns_traceable: terms.returns_traceable,
            },
            checks,
            items,
            shown: shown(batch.forecast.as_ref(), &batch.warnings),
        })
    }

    /// The plan as it would be made now. A target that may not be sent to any more is none.
    async fn plan_now(&self, batch: &Batch, entry: Entry<'_>) -> Result<Plan, ReplayError> {
        let (plan, terms) = (&batch.plan, entry.terms);
        let of_target = terms.target_groups.get(&plan.target).cloned();
        let now = Plan {
            // Slower than agreed is as agreed; faster is not.
            max_per_second: batch.agreed_per_second.map_or(plan.max_per_second, |agreed| agreed.max(plan.max_per_second)),
            group: of_target.or_else(|| entry.settings.consumer_group.clone()).or_else(|| plan.group.clone()),
            ..plan.clone()
        };
        let is_named = |wanted: &str| terms.targets.iter().any(|name| name == wanted);
        let target = self.target(&batch.cluster, &plan.target).await?;
        let target = target.filter(|target| target.compacted != Some(true) || terms.allow_compacted_target);
        let is_allowed = is_named(&plan.target) || (is_named(ORIGIN) && !self.store.has_stranger(batch.id, &plan.target).await?);
        Ok(match target.filter(|_| is_allowed) {
            Some(target) => Plan { target_id: target.id, target_partitions: target.partitions, ..now },
            None => Plan { target: String::new(), ..now },
        })
    }

    /// The pending items of a batch, hashed.
    pub(super) async fn items(&self, batch_id: i64) -> Result<Items, ReplayError> {
        let (mut hash, mut after) = (ItemsHash::default(), 0);
        loop {
            let page = self.store.pending_hashes(batch_id, after, HASHES).await?;
            for (id, body_hash) in &page {
                hash.add(*id, body_hash);
            }
            match page.last() {
                Some((last, _)) if page.len() as i64 == HASHES => after = *last,
                _ => return Ok(hash.finish()),
            }
        }
    }

    /// A topic as it is now; None: there is none of that name. Nothing is created by asking.
    ///
    /// # Errors
    /// Kafka does not answer, or nothing can be sent to this cluster from here.
    pub async fn target(&self, cluster: &str, topic: &str) -> Result<Option<Target>, ReplayError> {
        let Some(known) = self.clusters.get(cluster) else {
            let problem =
                format!("nothing can be sent to the cluster {cluster:?} from here: it is not configured, or this Lazaret is read-only");
            return Err(ReplayError::Invalid { field: "cluster", problem });
        };
        let (inspector, topic) = (std::sync::Arc::clone(&known.inspector), topic.to_owned());
        Ok(tokio::task::spawn_blocking(move || inspector.target(&topic, TARGET_TIMEOUT)).await??)
    }
}

/// Why a replay that has begun cannot go on with its target as that is now; None: it is the topic it began with. What it sent, or may have sent, lies in that
/// topic: another one under the same name would be looked through for it, and its readers' commits taken for proof.
pub(super) fn another_life(batch: &Batch, target: &Target) -> Option<String> {
    (batch.started_at_ms.is_some() && batch.plan.target_id != target.id).then(|| {
        let why = if target.id.is_some() { "it was deleted and made again" } else { "Kafka does not tell its id" };
        format!(
            "the target topic {} is not known to be the one that this replay began to send to ({why}): stop it, and propose what is left anew",
            target.name
        )
    })
}

fn compared(batch: &Batch, now: &Agreement) -> Recomputed {
    let digest = now.digest();
    let changed = match &batch.agreement {
        Some(agreed) => agreed.changed(now),
        None => vec!["the plan"],
    };
    // What the parts do not show would be a fault of ours; it voids all the same.
    let changed = if changed.is_empty() && batch.digest.as_ref() != Some(&digest) { vec!["the plan"] } else { changed };
    Recomputed { digest, changed }
}
