//! The fingerprint of a plan: everything the approver agrees to, so that whatever changes after makes the approval void.
//!
//! SHA-256 over a version, then each part with its length before it, so that no two different plans give the same bytes.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::replay::{Forecast, Plan, Warning};

/// Begins what is hashed; raised when a part is added.
const VERSION: &str = "lazaret replay plan 2";
const ITEMS_VERSION: &str = "lazaret replay items 1";

/// All that is agreed to. Stored beside the digest, so that it can be said what changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    pub cluster: String,
    /// The DLQ's topic.
    pub topic: String,
    /// With the pace that was agreed to, also where it was lowered after.
    pub plan: Plan,
    /// `normal` or `emergency`.
    pub delivery: String,
    pub reason: String,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    /// `key` or `none`.
    pub order: String,
    pub partitioner: String,
    /// What else makes a batch wait or stop.
    pub guards: Guards,
    /// Hash of all settings that decide the checks, files included.
    pub checks: String,
    pub items: Items,
    /// Hash of what the preflight forecast and warned of: see [`shown`].
    #[serde(default)]
    pub shown: String,
}

/// The forecast and the warnings that an approver sees, as one hash (SHA-256 of their JSON, hex). With it an approval is of these figures: a batch that
/// was preflighted anew has another fingerprint wherever the checks found something else, although its plan is the same.
pub fn shown(forecast: Option<&Forecast>, warnings: &[Warning]) -> String {
    hex(&Sha256::digest(serde_json::json!([forecast, warnings]).to_string()))
}

/// Limits that the configuration sets for every batch of a DLQ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guards {
    pub pause_at_lag: u64,
    pub canary_timeout_s: u64,
    pub verify_after_s: u64,
    pub returns_traceable: bool,
}

/// The frozen messages: how many, and a hash of their ids and bodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Items {
    pub count: u64,
    /// SHA-256, hex.
    pub hash: String,
}

/// Hashes items one after the other, so that a million need not be held at once.
#[derive(Debug, Clone)]
pub struct ItemsHash {
    hash: Sha256,
    count: u64,
}

impl Default for ItemsHash {
    fn default() -> ItemsHash {
        let mut hash = Sha256::new();
        part(&mut hash, ITEMS_VERSION.as_bytes());
        ItemsHash { hash, count: 0 }
    }
}

impl ItemsHash {
    /// Adds a message; in the order of their ids.
    pub fn add(&mut self, message_id: i64, body_hash: &[u8]) {
        self.hash.update(message_id.to_be_bytes());
        part(&mut self.hash, body_hash);
        self.count += 1;
    }

    pub fn finish(mut self) -> Items {
        self.hash.update(self.count.to_be_bytes());
        Items { count: self.count, hash: hex(&self.hash.finalize()) }
    }
}

impl Agreement {
    /// Its fingerprint: SHA-256, hex.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        part(&mut hash, VERSION.as_bytes());
        for (name, value) in self.parts() {
            part(&mut hash, name.as_bytes());
            match value {
                // Absent differs from empty.
                None => hash.update([0]),
                Some(value) => {
                    hash.update([1]);
                    part(&mut hash, value.as_bytes());
                }
            }
        }
        hex(&hash.finalize())
    }

    /// What differs between what was agreed to and `now`, in words.
    pub fn changed(&self, now: &Agreement) -> Vec<&'static str> {
        let mut changed: Vec<&'static str> = Vec::new();
        let (before, after) = (self.parts(), now.parts());
        for at in 0..before.len().max(after.len()) {
            if before.get(at) != after.get(at)
                && let Some((name, _)) = before.get(at).or(after.get(at))
                && !changed.contains(name)
            {
                changed.push(name);
            }
        }
        changed
    }

    /// Each part by its name, in one order. A list gives its length and then its elements.
    fn parts(&self) -> Vec<(&'static str, Option<String>)> {
        let plan = &self.plan;
        let mut parts = vec![
            ("the cluster", Some(self.cluster.clone())),
            ("the DLQ", Some(self.topic.clone())),
            ("the target topic", Some(plan.target.clone())),
            ("the target topic's id", plan.target_id.clone()),
            ("the target's number of partitions", Some(plan.target_partitions.to_string())),
            ("the consumer group", plan.group.clone()),
            ("the transform", plan.transform.clone()),
            ("the pace", Some(plan.max_per_second.to_string())),
            ("the canary", Some(plan.canary.to_string())),
            ("the stop limit", Some(plan.stop_on_returned_pct.to_string())),
            ("the kind of replay", Some(self.delivery.clone())),
            ("the reason", Some(self.reason.clone())),
            ("why now", self.why_now.clone()),
            ("the incident", self.incident.clone()),
            ("the order", Some(self.order.clone())),
            ("the partitioner", Some(self.partitioner.clone())),
            ("the lag at which it pauses", Some(self.guards.pause_at_lag.to_string())),
            ("the canary's time", Some(self.guards.canary_timeout_s.to_string())),
            ("the time to verify", Some(self.guards.verify_after_s.to_string())),
            ("how returns are recognised", Some(self.guards.returns_traceable.to_string())),
            ("the settings of its checks", Some(self.checks.clone())),
            ("the messages", Some(self.items.count.to_string())),
            ("the messages", Some(self.items.hash.clone())),
            ("the forecast", Some(self.shown.clone())),
            ("the waivers", Some(plan.waivers.len().to_string())),
        ];
        for waiver in &plan.waivers {
            for text in [waiver.check.as_str(), &waiver.verdict, &waiver.reason] {
                parts.push(("the waivers", Some(text.to_owned())));
            }
        }
        parts
    }
}

/// A part with its length before it.
fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::verdict::{Check, Waiver};

    fn agreement() -> Agreement {
        let mut items = ItemsHash::default();
        items.add(1, &[1; 32]);
        items.add(2, &[2; 32]);
        Agreement {
            cluster: "main".into(),
            topic: "payments.wallet.DLQ".into(),
            plan: Plan {
                target: "payments.initiated".into(),
                target_id: Some("AAAAAAAAAAAAAAAAAAAAAQ".into()),
                target_partitions: 12,
                group: Some("wallet".into()),
                transform: None,
                max_per_second: 50,
                canary: 10,
                stop_on_returned_pct: 5,
                waivers: vec![Waiver { check: Check::Schema, verdict: "not_configured".into(), reason: "seen by hand".into() }],
            },
            delivery: "normal".into(),
            reason: "wallet database was down".into(),
            why_now: None,
            incident: None,
            order: "key".into(),
            partitioner: "murmur2_random".into(),
            guards: Guards { pause_at_lag: 10_000, canary_timeout_s: 600, verify_after_s: 300, returns_traceable: true },
            checks: "ab".repeat(32),
            items: items.finish(),
            shown: "cd".repeat(32),
        }
    }

    /// What is changed, and how.
    type Named = (&'static str, fn(&mut Agreement));

    /// Each way of changing one thing.
    fn changes() -> Vec<Named> {
        vec![
            ("the cluster", |a| a.cluster.push('x')),
            ("the DLQ", |a| a.topic.push('x')),
            ("the target topic", |a| a.plan.target.push('x')),
            ("the target topic's id", |a| a.plan.target_id = None),
            ("the target topic's id", |a| a.plan.target_id = Some(String::new())),
            ("the target's number of partitions", |a| a.plan.target_partitions += 1),
            ("the consumer group", |a| a.plan.group = None),
            ("the transform", |a| a.plan.transform = Some(".".into())),
            ("the pace", |a| a.plan.max_per_second += 1),
            ("the canary", |a| a.plan.canary -= 1),
            ("the stop limit", |a| a.plan.stop_on_returned_pct += 1),
            ("the waivers", |a| a.plan.waivers.clear()),
            ("the waivers", |a| a.plan.waivers[0].reason.push('x')),
            ("the waivers", |a| a.plan.waivers[0].check = Check::Idempotency),
            ("the waivers", |a| a.plan.waivers[0].verdict.push('x')),
            ("the kind of replay", |a| a.delivery = "emergency".into()),
            ("the reason", |a| a.reason.push('x')),
            ("why now", |a| a.why_now = Some(String::new())),
            ("the incident", |a| a.incident = Some("INC-1".into())),
            ("the order", |a| a.order = "none".into()),
            ("the partitioner", |a| a.partitioner = "consistent_random".into()),
            ("the lag at which it pauses", |a| a.guards.pause_at_lag += 1),
            ("the canary's time", |a| a.guards.canary_timeout_s += 1),
            ("the time to verify", |a| a.guards.verify_after_s += 1),
            ("how returns are recognised", |a| a.guards.returns_traceable = false),
            ("the settings of its checks", |a| a.checks.push('x')),
            ("the messages", |a| a.items.count += 1),
            ("the messages", |a| a.items.hash.push('x')),
            ("the forecast", |a| a.shown.push('x')),
        ]
    }

    #[test]
    fn the_fingerprint_of_a_plan_stays_what_it_was() {
        let agreement = agreement();
        assert_eq!(agreement.items.hash, GOLDEN_ITEMS);
        assert_eq!(agreement.digest(), GOLDEN);
    }

    /// Computed by another program out of the rule at the top of this file.
    const GOLDEN_ITEMS: &str = "0ecfca2e74d501cb489458af1eea33211d935a5c41adbb44f8fe5f137165652f";
    const GOLDEN: &str = "f9882874bef7a696c21b980795696a40105c4bf719442e74655810cc0ce5a08a";

    #[test]
    fn any_part_that_changes_changes_the_fingerprint_and_is_named() {
        let before = agreement();
        let mut seen = vec![before.digest()];
        for (name, change) in changes() {
            let mut after = before.clone();
            change(&mut after);
            let digest = after.digest();
            assert!(!seen.contains(&digest), "{name}");
            seen.push(digest);
            assert_eq!(before.changed(&after), [name]);
        }
        assert!(before.changed(&before).is_empty());
    }

    #[test]
    fn what_is_shown_differs_by_figures_and_by_warnings() {
        let forecast = Forecast { send: 185, already_applied: 12, ..Forecast::default() };
        let fewer = Forecast { send: 184, ..forecast };
        let active = [Warning::CauseActive { arrivals: 1 }];
        let said = [shown(None, &[]), shown(Some(&forecast), &[]), shown(Some(&fewer), &[]), shown(Some(&forecast), &active)];
        assert!((0..said.len()).all(|at| !said[..at].contains(&said[at])), "{said:?}");
        let stored: Vec<Warning> = serde_json::from_str(&serde_json::to_string(&active).unwrap()).unwrap();
        assert_eq!(shown(Some(&forecast), &stored), said[3]);
    }

    proptest! {
        #[test]
        fn two_plans_have_one_fingerprint_only_if_they_are_the_same(
            a in (any::<[String; 3]>(), any::<Option<String>>(), proptest::collection::vec(any::<(String, String)>(), 0..3)),
            b in (any::<[String; 3]>(), any::<Option<String>>(), proptest::collection::vec(any::<(String, String)>(), 0..3)),
        ) {
            let of = |(texts, optional, waivers): &([String; 3], Option<String>, Vec<(String, String)>)| {
                let mut agreement = agreement();
                let [target, reason, checks] = texts.clone();
                (agreement.plan.target, agreement.reason, agreement.checks) = (target, reason, checks);
                agreement.plan.transform = optional.clone();
                let waiver = |(verdict, reason): &(String, String)| {
                    Waiver { check: Check::Schema, verdict: verdict.clone(), reason: reason.clone() }
                };
                agreement.plan.waivers = waivers.iter().map(waiver).collect();
                agreement
            };
            prop_assert_eq!(of(&a).digest() == of(&b).digest(), a == b);
        }

        #[test]
        fn items_differ_by_id_hash_order_and_number(
            a in proptest::collection::vec((any::<i64>(), any::<Vec<u8>>()), 0..5),
            b in proptest::collection::vec((any::<i64>(), any::<Vec<u8>>()), 0..5),
        ) {
            let of = |items: &[(i64, Vec<u8>)]| {
                let mut hash = ItemsHash::default();
                items.iter().for_each(|(id, body)| hash.add(*id, body));
                hash.finish()
            };
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }
    }
}
