//! The end of a preflight: what the approver must know beside the verdicts, and the digest of it all. Kafka that does not answer is a warning, never a hang.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::freeze::same_place;
use super::plan::another_life;
use super::propose::Prepared;
use super::rights::{itself, subject};
use super::{Cluster, Entry, ReplayError, Replays};
use crate::domain::audit::{Action, Event};
use crate::domain::record::display_text_within;
use crate::domain::replay::{BatchMove, Forecast, Plan, Warning, quorum};
use crate::domain::terms::{Order, ReplayTerms};
use crate::domain::verdict::Check;
use crate::kafka::groups::GroupLook;
use crate::kafka::inspect::TopicPartition;
use crate::kafka::scan::{Scanned, Scanner, Seen};
use crate::store::replays::{self, Batch, KeyedItem, Preflighted};

/// A cause counts as active when messages of the same failures came in the last so many ms.
const ACTIVE_MS: i64 = 15 * 60 * 1_000;
/// Failure groups of a batch that are looked at for that, and messages of each.
const GROUPS: i64 = 1_000;
const OF_GROUP: i64 = 10_000;
/// How long one question to Kafka may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long, and through how many records, newer records of the keys are looked for.
const SCAN_TIME: Duration = Duration::from_secs(8);
const SCANNED: u64 = 200_000;
/// In larger batches nobody looks for newer records of their keys.
const KEYED_ITEMS: usize = 100_000;
/// Keys that are named.
const KEYS_NAMED: usize = 10;
/// A key longer than this is cut.
const KEY_SHOWN: usize = 80;
/// Characters of a group that a table of the configuration is named after.
const TABLE_NAME: usize = 60;

/// What Kafka says of the readers of the target.
struct Readers {
    group: Option<Result<GroupLook, String>>,
    ends: BTreeMap<TopicPartition, Result<i64, String>>,
    others: Result<Vec<String>, String>,
}

impl Replays {
    /// Ends the preflight: warnings, forecast, digest; and puts the draft up for approval where that was asked for and nothing is missing.
    pub(super) async fn conclude(&self, batch: &Batch, entry: Entry<'_>) -> Result<Prepared, ReplayError> {
        let forecast = self.store.forecast_of(batch.id).await?;
        let (batch, target) = self.with_target_of_now(batch.clone()).await;
        let warnings = self.warnings(&batch, entry, &forecast, &target).await?;
        let mut problem = match target {
            Target::Gone(why) => Some(why),
            Target::Known | Target::Unknown(_) => None,
        };
        let batch = Batch { forecast: Some(forecast), warnings, ..batch };
        let items = self.items(batch.id).await?;
        let quorum = quorum(&self.approval, items.count, !batch.plan.waivers.is_empty(), batch.emergency);
        let agreement = match self.agreement(&batch, entry, batch.plan.clone(), items).await {
            Ok(agreement) => Some(agreement),
            Err(ReplayError::Unready(why)) => {
                problem = problem.or(Some(why));
                None
            }
            Err(error) => return Err(error),
        };
        let missing = problem.or_else(|| missing(&batch, entry.terms));
        let submits = batch.auto_submit && missing.is_none() && agreement.is_some();

        let mut tx = self.store.begin().await?;
        let now = self.lock(&mut tx, batch.id).await?;
        if !same_place(&batch, &now) {
            return Ok(Prepared::More);
        }
        if now.plan != batch.plan {
            replays::set_plan(&mut tx, batch.id, &batch.plan).await?;
        }
        let note = missing.as_deref();
        let through = Preflighted { forecast: &forecast, warnings: &batch.warnings, quorum, agreement: agreement.as_ref(), note };
        replays::set_preflight(&mut tx, batch.id, &through).await?;
        let now = self.lock(&mut tx, batch.id).await?;
        let mut entry = in_words(&forecast);
        if let Some(missing) = &missing {
            entry.push_str(&format!("; not submitted: {missing}"));
        }
        if !submits {
            replays::log(&mut tx, batch.id, self.clock.now_ms(), &subject(batch.id), &entry).await?;
            tx.commit().await?;
            self.store.changed(&[crate::store::notify::Hint::Dlq(batch.dlq_id)]);
            return Ok(Prepared::More);
        }
        self.shift(&mut tx, &now, BatchMove::Submit, None).await?;
        let event = self.submitted(&now, &itself(batch.id));
        self.done(tx, &now, &format!("{entry}; submitted for approval"), &event).await?;
        Ok(Prepared::More)
    }

    /// The trail's word of a submission.
    pub(super) fn submitted(&self, batch: &Batch, by: &crate::domain::audit::By) -> Event {
        let mut event = Event::new(self.clock.now_ms(), by, Action::ReplaySubmitted, subject(batch.id));
        event.reason = batch.why_now.clone();
        event.after = Some(serde_json::json!({
            "items": batch.progress.items,
            "digest": batch.digest,
            "quorum": batch.quorum,
            "forecast": batch.forecast,
        }));
        event
    }

    /// The batch with its target as that is now: until it is approved, the plan follows, but to no other topic once it has begun.
    async fn with_target_of_now(&self, batch: Batch) -> (Batch, Target) {
        match self.target(&batch.cluster, &batch.plan.target).await {
            Ok(Some(target)) => {
                if let Some(why) = another_life(&batch, &target) {
                    return (batch, Target::Gone(why));
                }
                let plan = Plan { target_id: target.id, target_partitions: target.partitions, ..batch.plan.clone() };
                (Batch { plan, ..batch }, Target::Known)
            }
            Ok(None) => {
                let why = format!("the target topic {} does not exist; nothing is created by sending to it", batch.plan.target);
                (batch, Target::Gone(why))
            }
            Err(error) => (batch, Target::Unknown(error.to_string())),
        }
    }

    async fn warnings(&self, batch: &Batch, entry: Entry<'_>, forecast: &Forecast, target: &Target) -> Result<Vec<Warning>, ReplayError> {
        let mut warnings = Vec::new();
        let groups = self.store.groups_of_batch(batch.id, GROUPS).await?;
        let arrivals = self.store.arrivals_of_groups(&groups, self.clock.now_ms() - ACTIVE_MS, OF_GROUP).await?;
        if arrivals > 0 {
            warnings.push(Warning::CauseActive { arrivals });
        }
        match (target, self.clusters.get(&batch.cluster)) {
            (Target::Known, Some(cluster)) => {
                warnings.extend(of_readers(batch, entry, &readers(cluster, &batch.plan).await?));
                if forecast.would_send() > 0 {
                    warnings.extend(self.newer_records(batch, entry, cluster).await?);
                }
            }
            // Who does not answer is not asked three times more.
            (Target::Unknown(why), _) => {
                warnings.push(Warning::TargetUnknown { why: why.clone() });
                let group = batch.plan.group.clone();
                warnings.extend(group.map(|group| Warning::GroupUnknown { group, why: why.clone() }));
                warnings.push(Warning::NewerNotLookedFor { why: why.clone() });
            }
            _ => {}
        }
        warnings.extend(of_terms(batch, entry.terms));
        warnings.extend(of_tally(batch, entry));
        Ok(warnings)
    }

    /// Records of the same keys that came after, in the target: with them the replay would bring back what is past.
    async fn newer_records(&self, batch: &Batch, entry: Entry<'_>, cluster: &Cluster) -> Result<Option<Warning>, ReplayError> {
        if entry.terms.order == Order::None {
            return Ok(None);
        }
        let (mut items, mut after) = (Vec::new(), 0);
        loop {
            let page = self.store.keyed_items(batch.id, &batch.plan.target, after, 10_000).await?;
            let Some(last) = page.last() else { break };
            after = last.message_id;
            items.extend(page);
            if items.len() > KEYED_ITEMS {
                let why = format!("the replay has more than {KEYED_ITEMS} messages with a key");
                return Ok(Some(Warning::NewerNotLookedFor { why }));
            }
        }
        if items.is_empty() {
            return Ok(None);
        }
        let (cluster, plan, clock) = (cluster.clone(), batch.plan.clone(), self.clock.clone());
        let keyed = items.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let deadline = clock.monotonic() + SCAN_TIME;
            search(&cluster, &plan, &keyed, &|| deadline.saturating_sub(clock.monotonic()))
        })
        .await?;
        let found = match looked {
            Ok(found) => found,
            Err(why) => return Ok(Some(Warning::NewerNotLookedFor { why })),
        };
        if found.keys.is_empty() {
            return Ok(found.cut_short.map(|why| Warning::NewerNotLookedFor { why }));
        }
        let keys = self.names(&items, &found.keys).await?;
        Ok(Some(Warning::NewerOfKey { keys, count: found.keys.len() as u64 }))
    }

    /// Some of the keys, as they may be shown.
    async fn names(&self, items: &[KeyedItem], found: &BTreeSet<i64>) -> Result<Vec<String>, ReplayError> {
        let mut named = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for item in items.iter().filter(|item| found.contains(&item.key_hash)) {
            if named.len() >= KEYS_NAMED {
                break;
            }
            if !seen.insert(item.key_hash) {
                continue;
            }
            if let Some(key) = self.store.message(item.message_id).await?.and_then(|row| row.key) {
                named.insert(display_text_within(&key, KEY_SHOWN));
            }
        }
        Ok(named.into_iter().collect())
    }
}

/// Whether the target is there.
enum Target {
    Known,
    Gone(String),
    Unknown(String),
}

/// Asks about the group and who else reads the target. Each question has its own time.
async fn readers(cluster: &Cluster, plan: &Plan) -> Result<Readers, ReplayError> {
    let inspector = Arc::clone(&cluster.inspector);
    let (topic, partitions, group) = (plan.target.clone(), plan.target_partitions, plan.group.clone());
    Ok(tokio::task::spawn_blocking(move || {
        let asked: Vec<TopicPartition> = (0..partitions.max(0)).map(|partition| (topic.clone(), partition)).collect();
        let look = |group: String| inspector.group(&group, &asked, PATIENCE).map_err(|error| error.to_string());
        // Committed offsets before the ends, so that lag is never negative.
        let group = group.map(look);
        let ends = inspector.log_ends(&asked, PATIENCE).into_iter();
        let ends = ends.map(|(partition, ends)| (partition, ends.map(|ends| ends.end).map_err(|error| error.to_string()))).collect();
        let others = inspector.readers_of(&topic, PATIENCE).map_err(|error| error.to_string());
        Readers { group, ends, others }
    })
    .await?)
}

fn of_readers(batch: &Batch, entry: Entry<'_>, readers: &Readers) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let own = batch.plan.group.clone().unwrap_or_default();
    match &readers.group {
        None => {}
        Some(Err(why)) => warnings.push(Warning::GroupUnknown { group: own.clone(), why: why.clone() }),
        Some(Ok(look)) => {
            if look.members.is_empty() {
                warnings.push(Warning::GroupEmpty { group: own.clone() });
            }
            match lag(look, &readers.ends) {
                Err(why) => warnings.push(Warning::GroupUnknown { group: own.clone(), why }),
                Ok(0) => {}
                Ok(records) => warnings.push(Warning::Lag { group: own.clone(), records }),
            }
        }
    }
    let configured = |name: &String| *name == own || entry.terms.also_read_by.iter().any(|other| other.group == *name);
    match &readers.others {
        Ok(names) => {
            let groups: Vec<String> = names.iter().filter(|name| !configured(name)).cloned().collect();
            if !groups.is_empty() {
                warnings.push(Warning::OtherGroups { groups });
            }
        }
        // Said once where the group could not be asked either.
        Err(why) if !matches!(readers.group, Some(Err(_))) => {
            warnings.push(Warning::ReadersUnknown { why: why.clone() });
        }
        Err(_) => {}
    }
    warnings
}

/// Records that the group has not read yet, where it has committed.
fn lag(look: &GroupLook, ends: &BTreeMap<TopicPartition, Result<i64, String>>) -> Result<u64, String> {
    let mut records = 0;
    for (partition, committed) in &look.committed {
        let (Some(committed), Some(end)) = (committed, ends.get(partition)) else { continue };
        records += u64::try_from(end.clone()? - committed).unwrap_or(0);
    }
    Ok(records)
}

fn of_terms(batch: &Batch, terms: &ReplayTerms) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let ledger =
        if terms.idempotency.is_some() { "only the ledger can show that a message was applied" } else { "and there is no ledger to ask" };
    if batch.plan.group.is_none() {
        let why = format!("the consumer group that reads {} is not known, {ledger}", batch.plan.target);
        warnings.push(Warning::CannotConfirm { why });
    } else if !terms.returns_traceable {
        let why = format!("a message that comes back would not be recognised (returns_traceable = false), {ledger}");
        warnings.push(Warning::CannotConfirm { why });
    }
    if terms.schema.is_none() {
        warnings.push(Warning::CheckMissing { check: Check::Schema, lines: schema_lines(batch) });
    }
    if terms.idempotency.is_none() {
        warnings.push(Warning::CheckMissing { check: Check::Idempotency, lines: ledger_lines(batch) });
    }
    if let Some(why) = &terms.consumer_is_idempotent {
        warnings.push(Warning::ConsumerIsIdempotent { why: why.clone() });
    }
    warnings
}

/// A group's name as that of a table: without what ends a key in TOML or begins another. Headers name groups, so anybody may.
fn plain(group: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' };
    group.chars().take(TABLE_NAME).map(plain).collect()
}

/// Lines for the configuration, in which only names are to be replaced.
fn schema_lines(batch: &Batch) -> String {
    let name = plain(batch.plan.group.as_deref().unwrap_or("payload"));
    format!(
        "[schemas.{name}]\nkind = \"json_schema\"\npath = \"schemas/{name}.json\"\n\n# below the [[dlq]] of {}\n[dlq.schema]\nuse = \"{name}\"\n",
        batch.topic
    )
}

fn ledger_lines(batch: &Batch) -> String {
    let name = plain(batch.plan.group.as_deref().unwrap_or("consumer"));
    format!(
        "[ledgers.{name}.hot]\nkind = \"redis\"\nurl_file = \"/run/secrets/{name}-redis\"\nkey = \"{name}:processed:{{id}}\"\n\n\
         # below the [[dlq]] of {}\n[dlq.idempotency]\nledger = \"{name}\"\nkey = \"{{value:/id}}\"\n",
        batch.topic
    )
}

fn of_tally(batch: &Batch, entry: Entry<'_>) -> Vec<Warning> {
    let tally = &batch.tally;
    let mut warnings = Vec::new();
    for other in &entry.terms.also_read_by {
        match &other.ledger {
            None => warnings.push(Warning::AlsoReadBy {
                group: other.group.clone(),
                why: "it has no ledger: nobody can say what it has applied".to_owned(),
                items: u64::try_from(batch.progress.items).unwrap_or(0),
            }),
            Some(_) => {
                for (verdict, items) in tally.others.get(&other.group).into_iter().flatten() {
                    warnings.push(Warning::AlsoReadBy { group: other.group.clone(), why: other_verdict(verdict), items: *items });
                }
            }
        }
    }
    if tally.repartitioned > 0 {
        warnings.push(Warning::Repartitioned { items: tally.repartitioned });
    }
    if tally.over_laps > 0 {
        warnings.push(Warning::Laps { items: tally.over_laps, max: entry.settings.max_laps });
    }
    warnings.extend(tally.elsewhere.iter().map(|(batch, items)| Warning::InOtherReplay { batch: *batch, items: *items }));
    let left_out = |(topic, items): (&String, &u64)| Warning::OtherOrigin {
        topic: Some(topic.clone()).filter(|topic| !topic.is_empty()),
        items: *items,
    };
    warnings.extend(tally.other_origins.iter().map(left_out));
    warnings
}

fn other_verdict(verdict: &str) -> String {
    match verdict {
        "applied" => "its ledger says applied already: it would get them again".to_owned(),
        "in_progress" => "its ledger says in progress".to_owned(),
        "unsafe" => "its ledger says partly applied".to_owned(),
        "unprovable" => "its ledger cannot tell: its record may have expired".to_owned(),
        "not_configured" => "it has no ledger: nobody can say what it has applied".to_owned(),
        _ => format!("its ledger could not be asked ({verdict})"),
    }
}

/// What the search for newer records came to.
struct Found {
    /// Hashes of the keys that have newer records.
    keys: BTreeSet<i64>,
    /// Why not everything was looked through.
    cut_short: Option<String>,
}

/// Looks in the target for records of these keys that came after: by offset where the messages came from there, else by time.
fn search(cluster: &Cluster, plan: &Plan, items: &[KeyedItem], left: &dyn Fn() -> Duration) -> Result<Found, String> {
    let words = |error: crate::kafka::client::KafkaError| error.to_string();
    let scanner = Scanner::connect(&cluster.settings).map_err(words)?;
    let partitions: Vec<i32> = (0..plan.target_partitions).collect();
    let ends = scanner.ends(&plan.target, &partitions, PATIENCE).map_err(words)?;
    let keys = Keys::of(items, plan.target_partitions);
    let asked: Vec<TopicPartition> = partitions.iter().map(|partition| (plan.target.clone(), *partition)).collect();
    let by_time = match keys.since_ms {
        Some(since_ms) => cluster.inspector.offsets_at(&asked, since_ms, PATIENCE),
        None => BTreeMap::new(),
    };
    let mut found = Found { keys: BTreeSet::new(), cut_short: None };
    let mut passed = 0_u64;
    for (partition, ends) in ends {
        let at_time = by_time.get(&(plan.target.clone(), partition)).and_then(|offset| offset.as_ref().ok().copied());
        let Some(from) = keys.first_offset.get(&partition).copied().into_iter().chain(at_time).min() else { continue };
        let patience = PATIENCE.min(left().max(Duration::from_millis(100)));
        let scanned = scanner.scan(&plan.target, partition, from.max(ends.start), ends.end, patience, |seen| {
            passed += 1;
            found.keys.extend(keys.newer(partition, &seen));
            passed < SCANNED && !left().is_zero()
        });
        match scanned.map_err(words)? {
            Scanned::ToTheEnd => {}
            Scanned::Stopped => {
                found.cut_short = Some(format!("only the first {passed} records after them were looked through"));
                break;
            }
            Scanned::StartIsGone | Scanned::CutOff => found.cut_short = Some("the log was cut meanwhile".to_owned()),
        }
    }
    Ok(found)
}

/// The keys of a batch and what comes after them.
struct Keys {
    /// Of each key its first item.
    first: HashMap<i64, KeyedItem>,
    /// Where the batch's own messages are in the target: they are no newer records.
    ours: BTreeSet<(i32, i64)>,
    /// By partition of the target: the first offset after the earliest message that came from there.
    first_offset: BTreeMap<i32, i64>,
    /// The earliest time of the messages whose place in the target is not known.
    since_ms: Option<i64>,
}

impl Keys {
    fn of(items: &[KeyedItem], partitions: i32) -> Keys {
        let mut keys = Keys { first: HashMap::new(), ours: BTreeSet::new(), first_offset: BTreeMap::new(), since_ms: None };
        for item in items {
            let known = keys.first.entry(item.key_hash).or_insert(*item);
            if item.place < known.place {
                *known = *item;
            }
            match item.in_target(partitions) {
                Some((partition, offset)) => {
                    keys.ours.insert((partition, offset));
                    let first = keys.first_offset.entry(partition).or_insert(offset + 1);
                    *first = (*first).min(offset + 1);
                }
                None => keys.since_ms = keys.since_ms.into_iter().chain(item.origin_at_ms).min(),
            }
        }
        keys.first_offset.retain(|_, offset| *offset >= 0);
        keys
    }

    /// The key's hash, if this record of the target came after the batch's first of the same key.
    fn newer(&self, partition: i32, seen: &Seen) -> Option<i64> {
        let key_hash = short_hash(seen.key.as_deref()?);
        let item = self.first.get(&key_hash)?;
        let after = match item.in_target(i32::MAX) {
            Some((of_partition, offset)) if of_partition == partition => {
                seen.offset > offset && !self.ours.contains(&(partition, seen.offset))
            }
            // It is in another partition than its key's records are now: their times tell.
            _ => item.origin_at_ms.is_some_and(|at_ms| seen.timestamp_ms.is_some_and(|seen| seen > at_ms)),
        };
        after.then_some(key_hash)
    }
}

/// The first 8 bytes of the SHA-256, as items have it.
fn short_hash(key: &[u8]) -> i64 {
    let digest = Sha256::digest(key);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// Why a preflighted draft cannot be submitted as it is; None: nothing is missing.
pub(super) fn missing(batch: &Batch, terms: &ReplayTerms) -> Option<String> {
    let forecast = batch.forecast.unwrap_or_default();
    if batch.warnings.iter().any(Warning::asks_why_now) && batch.why_now.is_none() {
        let active = batch.warnings.iter().any(|warning| matches!(warning, Warning::CauseActive { .. }));
        let because = if active { "the cause looks active" } else { "nobody reads the target" };
        return Some(format!("say why now: {because}"));
    }
    if batch.emergency
        && let Some(fault) = emergency_fault(batch, terms)
    {
        return Some(fault);
    }
    if !batch.plan.waivers.is_empty() && batch.plan.canary == 0 {
        return Some("a replay with a waiver needs a canary".to_owned());
    }
    let most = u64::from(terms.waiver_max_items);
    if batch.tally.waived > most {
        return Some(format!("{} messages would go by its waivers, and {most} may (waiver_max_items): take fewer", batch.tally.waived));
    }
    if forecast.would_change() == 0 {
        return Some(format!(
            "nothing would be sent: {} held, {} blocked. Add the missing checks, or waive them with a reason",
            forecast.held, forecast.blocked
        ));
    }
    None
}

/// Why this cannot be an emergency replay.
pub(super) fn emergency_fault(batch: &Batch, terms: &ReplayTerms) -> Option<String> {
    let most = u64::from(terms.emergency_max_items);
    let items = batch.forecast.map_or(0, |forecast| forecast.total());
    let faults = [
        (!terms.emergency_replay, "emergency replays are off for this DLQ (emergency_replay)".to_owned()),
        (batch.incident.is_none(), "an emergency replay names its incident".to_owned()),
        (terms.schema.is_none() || terms.idempotency.is_none(), "an emergency replay needs both checks, and this DLQ lacks one".to_owned()),
        (!batch.plan.waivers.is_empty(), "an emergency replay takes no waiver".to_owned()),
        (batch.plan.canary == 0, "an emergency replay needs a canary".to_owned()),
        (items > most, format!("an emergency replay has at most {most} messages (emergency_max_items), and this has {items}")),
    ];
    faults.into_iter().find(|(fault, _)| *fault).map(|(_, why)| why)
}

fn in_words(forecast: &Forecast) -> String {
    let parts = [
        (forecast.send, "to send"),
        (forecast.send_unchecked, "to send unchecked"),
        (forecast.already_applied, "already applied"),
        (forecast.incompatible, "incompatible"),
        (forecast.partly_applied, "partly applied"),
        (forecast.held, "held"),
        (forecast.blocked, "blocked"),
    ];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    format!("preflight: {}", if parts.is_empty() { "nothing left".to_owned() } else { parts.join(", ") })
}
