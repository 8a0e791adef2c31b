//! The evaluation: every rule at every DLQ that it is about, by one instance at a time.
//!
//! What it needs between looks is in memory and made anew from the store whenever a look was not stored, another instance held the lease, or nobody looked
//! for a while. What others changed (people, mostly) shows by versions. The number of queries depends neither on DLQs nor on messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::arrivals::{Arrivals, Unsaved};
use super::{Alerting, AlertingError};
use crate::domain::alert::{Alert, Key, Look, Measure, Notify, Observation, Rule, Terms, built_in, life, observe, step};
use crate::domain::baseline::{Follow, Watch};
use crate::domain::health::Looked;
use crate::store::alerts::{self, ChangedAlert, Noted};
use crate::store::baselines;
use crate::store::dlqs::Dlq;
use crate::store::leases::{self, HeldLease};
use crate::store::notify::Hint;
use crate::store::rules::{self, StoredRule};
use crate::store::{Store, StoreError, Tx};
use crate::telemetry;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// The longest window of arrivals, and the minute that is running.
const ARRIVALS_MS: i64 = 121 * MINUTE_MS;
/// Between two looks that are further apart anything may have happened.
const APART_MS: i64 = 2 * MINUTE_MS;
/// After a start the samplers have so long for their first turn.
const FIRST_SAMPLES_MS: i64 = 2 * MINUTE_MS;
/// Of an alert of which only the look is new, that is stored this often.
const STORED_EVERY_MS: i64 = MINUTE_MS;
/// An intake that was not seen to move since we began counts as stalled from here on, s: it may only have been restarted with us.
const STALLED_S: f64 = 300.0;
/// Emergency replays are to be reviewed within this.
const REVIEWED_WITHIN_MS: i64 = DAY_MS;
/// Whole baselines in one transaction: some 2 MB.
const BASELINES_AT_ONCE: usize = 100;
/// Who made the rules of a new installation.
const BUILT_IN: &str = "built in";

/// From when on an evaluation at `now_ms` needs the arrivals by minute.
pub fn minutes_from_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(ARRIVALS_MS)
}

/// What a tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticked {
    /// DLQs that were judged.
    pub dlqs: usize,
    /// Alerts that were stored.
    pub changed: usize,
    /// News that was stored.
    pub told: usize,
    /// Alerts that fire now.
    pub firing: usize,
}

/// Evaluates. One instance at a time does, under a lease that its job keeps.
pub struct Evaluator {
    alerting: Alerting,
    /// None: to be made from the store.
    memory: Option<Memory>,
}

/// What is known between two looks.
struct Memory {
    epoch: i64,
    began_ms: i64,
    ticked_ms: i64,
    rules: Vec<StoredRule>,
    /// Those that are switched on, by their place in `rules`.
    live: Vec<(usize, Rule)>,
    /// By rule and DLQ.
    alerts: HashMap<(i64, i64), Held>,
    /// Where the alerts with these ids are.
    places: HashMap<i64, (i64, i64)>,
    arrivals: Arrivals,
    reading: HashMap<i64, Reading>,
}

/// An alert in memory.
struct Held {
    /// Id and version. None: it is not stored.
    stored: Option<(i64, i64)>,
    stored_at_ms: i64,
    /// As it is stored.
    saved: Alert,
    alert: Alert,
    rule_version: i64,
    /// The rule version it is stored with.
    saved_rule_version: i64,
    told: Vec<Notify>,
    looked_at_ms: i64,
}

/// How a DLQ's partitions are read while there is something to read.
struct Reading {
    /// The sum of the positions.
    position: i64,
    /// It has been so since then, ms.
    since_ms: i64,
    /// Whether it was seen to get there.
    seen_to_move: bool,
}

/// What all DLQs are asked for at once.
struct Asked {
    noted: HashMap<(i64, Measure), i64>,
    positions: HashMap<i64, i64>,
    /// The oldest open message that counts, by line and DLQ.
    oldest: HashMap<i64, HashMap<i64, i64>>,
}

/// Something to be told, with all that a notification may say of it.
struct Told<'a> {
    alert_id: i64,
    notify: &'a Notify,
    terms: &'a Terms,
    dlq: &'a Dlq,
}

impl Evaluator {
    pub fn new(alerting: Alerting) -> Evaluator {
        Evaluator { alerting, memory: None }
    }

    /// Looks at every rule and DLQ once and stores what changed: alerts, what is to be told, baselines. `looks` are as of now, their minutes from
    /// [`minutes_from_ms`] on.
    ///
    /// # Errors
    /// The store could not be read or written, or the lease is another's by now. What of this look was not stored by then is forgotten, and not told.
    pub async fn tick(&mut self, lease: &HeldLease, looks: &[(Dlq, Looked)]) -> Result<Ticked, AlertingError> {
        let now_ms = self.alerting.clock.now_ms();
        let usable = |memory: &Memory| memory.epoch == lease.epoch && (0..APART_MS).contains(&now_ms.saturating_sub(memory.ticked_ms));
        // Taken out: should this fail or be dropped in the middle, the next one begins with what is stored.
        let mut memory = self.memory.take().filter(usable).unwrap_or_else(|| Memory::new(lease.epoch, now_ms));
        memory.ticked_ms = now_ms;
        let ids: HashMap<(&str, &str), i64> = looks.iter().map(|(dlq, _)| ((dlq.cluster.as_str(), dlq.topic.as_str()), dlq.id)).collect();
        let alerting = &self.alerting;
        memory.load_rules(&alerting.store, lease, now_ms).await?;
        memory.load_alerts(&alerting.store, &ids).await?;
        memory.arrivals.load(alerting, now_ms).await?;
        let watched: Vec<(&Dlq, &Looked)> =
            looks.iter().filter(|(dlq, _)| alerting.is_watched(dlq)).map(|(dlq, looked)| (dlq, looked)).collect();
        memory.arrivals.begin(alerting, &watched, now_ms).await?;
        for (dlq, looked) in &watched {
            memory.arrivals.look(dlq, looked, now_ms);
        }
        memory.arrivals.teach(alerting, now_ms).await?;
        let asked = memory.ask(&alerting.store, &watched, now_ms).await?;
        memory.evaluate(alerting, &watched, &asked, now_ms);
        memory.end_unwatched(looks, now_ms);
        let ticked = memory.store(&alerting.store, lease, looks, now_ms).await?;
        let ticked = Ticked { dlqs: watched.len(), ..ticked };
        telemetry::alerts_firing(ticked.firing);
        self.memory = Some(memory);
        Ok(ticked)
    }
}

impl Memory {
    fn new(epoch: i64, now_ms: i64) -> Memory {
        Memory {
            epoch,
            began_ms: now_ms,
            ticked_ms: now_ms,
            rules: Vec::new(),
            live: Vec::new(),
            alerts: HashMap::new(),
            places: HashMap::new(),
            arrivals: Arrivals::default(),
            reading: HashMap::new(),
        }
    }

    /// Takes in the rules as they are now; where there never was any, those of a new installation.
    async fn load_rules(&mut self, store: &Store, lease: &HeldLease, now_ms: i64) -> Result<(), AlertingError> {
        let mut versions = store.rule_versions().await?;
        if versions.is_empty() {
            let mut tx = store.begin().await?;
            if !leases::holds(&mut tx, lease).await? {
                return Err(AlertingError::LeaseLost);
            }
            for terms in built_in(now_ms) {
                rules::insert(&mut tx, &terms, BUILT_IN, now_ms).await?;
            }
            tx.commit().await?;
            versions = store.rule_versions().await?;
        }
        if versions.iter().copied().eq(self.rules.iter().map(|rule| (rule.id, rule.version))) {
            return Ok(());
        }
        self.rules = store.rules().await?;
        self.live.clear();
        for (place, stored) in self.rules.iter().enumerate().filter(|(_, stored)| !stored.disabled) {
            match Rule::new(stored.terms.clone()) {
                Ok(rule) => self.live.push((place, rule)),
                // An earlier version took it.
                Err(wrong) => telemetry::rule_refused(&stored.terms.name, &wrong.join("; ")),
            }
        }
        Ok(())
    }

    /// Takes in the alerts that others changed.
    async fn load_alerts(&mut self, store: &Store, ids: &HashMap<(&str, &str), i64>) -> Result<(), StoreError> {
        let known = |id: &i64| self.places.get(id).and_then(|place| self.alerts.get(place)?.stored).map(|(_, version)| version);
        let versions = store.alert_versions().await?;
        let changed: Vec<i64> = versions.iter().filter(|(id, version)| known(id) != Some(*version)).map(|(id, _)| *id).collect();
        if changed.is_empty() {
            return Ok(());
        }
        for stored in store.alerts_by_id(&changed).await? {
            let Some(dlq_id) = ids.get(&(stored.key.cluster.as_str(), stored.key.topic.as_str())) else { continue };
            let place = (stored.key.rule_id, *dlq_id);
            self.places.insert(stored.id, place);
            let held = Held {
                stored: Some((stored.id, stored.version)),
                stored_at_ms: stored.changed_at_ms,
                saved: stored.alert.clone(),
                alert: stored.alert,
                rule_version: stored.rule_version,
                saved_rule_version: stored.rule_version,
                told: Vec::new(),
                looked_at_ms: 0,
            };
            self.alerts.insert(place, held);
        }
        Ok(())
    }

    async fn ask(&self, store: &Store, watched: &[(&Dlq, &Looked)], now_ms: i64) -> Result<Asked, StoreError> {
        let noted = store.noted(now_ms.saturating_sub(DAY_MS), now_ms.saturating_sub(REVIEWED_WITHIN_MS)).await?;
        let noted = noted.into_iter().map(|Noted { dlq_id, measure, value }| ((dlq_id, measure), value)).collect();
        let mut positions: HashMap<i64, i64> = HashMap::new();
        for position in store.positions(None).await? {
            let sum = positions.entry(position.id.dlq_id).or_default();
            *sum = sum.saturating_add(position.next_offset);
        }
        let lines: BTreeSet<i64> = self.live.iter().filter_map(|(_, rule)| rule.terms().ignore_before_ms).collect();
        let mut oldest = HashMap::new();
        for line in lines {
            // Where nothing is older than the line, what is oldest is known already.
            if watched.iter().any(|(_, looked)| looked.figures.oldest_open_ms.is_some_and(|oldest_ms| oldest_ms < line)) {
                let found = store.oldest_open_since(None, line).await?;
                oldest.insert(line, found.into_iter().map(|(dlq_id, dead_ms, _)| (dlq_id, dead_ms)).collect());
            }
        }
        Ok(Asked { noted, positions, oldest })
    }

    /// One step of each rule at each DLQ that it is about.
    fn evaluate(&mut self, alerting: &Alerting, watched: &[(&Dlq, &Looked)], asked: &Asked, now_ms: i64) {
        for (dlq, looked) in watched {
            let stalled = self.stalled(dlq, looked, asked, now_ms);
            let owner = alerting.owner(dlq);
            for (at, rule) in &self.live {
                if !rule.covers(&dlq.cluster, &dlq.topic, owner) {
                    continue;
                }
                let stored = &self.rules[*at];
                let held = self.alerts.get(&(stored.id, dlq.id));
                let before = held.map_or_else(Alert::default, |held| held.alert.clone());
                let (after, told) = if held.is_some_and(|held| held.rule_version != stored.version) {
                    // What fired by the terms before is over. The next look begins by the new ones.
                    life::end(before.clone(), Some(looked.replayed), now_ms)
                } else {
                    let observed = self.observed(rule.terms(), dlq, looked, stalled, asked, now_ms);
                    step(rule, before.clone(), Look { observed, replayed: Some(looked.replayed) }, now_ms)
                };
                if held.is_some() || after != before {
                    let held = self.alerts.entry((stored.id, dlq.id)).or_insert_with(|| Held::new(stored.version));
                    (held.alert, held.rule_version, held.looked_at_ms) = (after, stored.version, now_ms);
                    held.told.extend(told);
                }
            }
        }
        let watched: HashSet<i64> = watched.iter().map(|(dlq, _)| dlq.id).collect();
        self.reading.retain(|dlq_id, _| watched.contains(dlq_id));
    }

    fn observed(&self, terms: &Terms, dlq: &Dlq, looked: &Looked, stalled: Observation, asked: &Asked, now_ms: i64) -> Observation {
        let seconds_since = |since_ms: i64| Observation::Value(now_ms.saturating_sub(since_ms).max(0) as f64 / 1_000.0);
        let noted = || asked.noted.get(&(dlq.id, terms.measure)).copied();
        match terms.measure {
            Measure::UnusualArrivals => {
                let followed = self.arrivals.followed.get(&dlq.id).filter(|_| looked.figures.has_data);
                let tested = followed.filter(|followed| followed.follow.baseline().tests());
                tested.map_or(Observation::NoData, |followed| Observation::Value(followed.follow.watch().value()))
            }
            // A sampler that was not there has not failed.
            Measure::NoData
                if looked.looked_at_ms.is_none_or(|at_ms| at_ms < self.began_ms) && now_ms - self.began_ms < FIRST_SAMPLES_MS =>
            {
                Observation::NoData
            }
            Measure::NoData => seconds_since(looked.sampled_at_ms.unwrap_or(dlq.first_seen_at_ms)),
            Measure::IntakeStalled => stalled,
            Measure::ApprovalWaiting => noted().map_or(Observation::Nothing, seconds_since),
            Measure::IntakeGap
            | Measure::TopicRecreated
            | Measure::GroupRegressed
            | Measure::ReplayHalted
            | Measure::EmergencyUnreviewed => Observation::Value(noted().unwrap_or(0) as f64),
            measure => {
                let mut figures = looked.figures;
                if let Some(oldest) = terms.ignore_before_ms.and_then(|line| asked.oldest.get(&line)) {
                    figures.oldest_open_ms = oldest.get(&dlq.id).copied();
                    // None that counts is open.
                    figures.depth = figures.oldest_open_ms.map_or(Some(0), |_| figures.depth);
                }
                observe(measure, &figures, terms.ignore_before_ms, now_ms).unwrap_or(Observation::NoData)
            }
        }
    }

    /// For how long there has been something to read and no position moved.
    fn stalled(&mut self, dlq: &Dlq, looked: &Looked, asked: &Asked, now_ms: i64) -> Observation {
        let Some(uncollected) = looked.figures.uncollected else { return Observation::NoData };
        if uncollected == 0 {
            // From here on the first thing to read is seen to come.
            self.reading.insert(dlq.id, Reading { position: i64::MIN, since_ms: now_ms, seen_to_move: true });
            return Observation::Nothing;
        }
        let position = asked.positions.get(&dlq.id).copied().unwrap_or(0);
        let reading = self.reading.entry(dlq.id).or_insert(Reading { position, since_ms: now_ms, seen_to_move: false });
        if reading.position != position {
            *reading = Reading { position, since_ms: now_ms, seen_to_move: true };
        }
        let lasted_s = now_ms.saturating_sub(reading.since_ms).max(0) as f64 / 1_000.0;
        if reading.seen_to_move || lasted_s >= STALLED_S { Observation::Value(lasted_s) } else { Observation::NoData }
    }

    /// Ends what nobody looked at this time: the rule is switched off or no longer about this DLQ, or the DLQ is gone.
    fn end_unwatched(&mut self, looks: &[(Dlq, Looked)], now_ms: i64) {
        let replayed: HashMap<i64, i64> = looks.iter().map(|(dlq, looked)| (dlq.id, looked.replayed)).collect();
        for ((_, dlq_id), held) in self.alerts.iter_mut().filter(|(_, held)| held.looked_at_ms != now_ms) {
            let (alert, told) = life::end(held.alert.clone(), replayed.get(dlq_id).copied(), now_ms);
            held.alert = alert;
            held.told.extend(told);
        }
    }

    /// Stores what changed, with what is to be told of it, in one transaction; only baselines that were taught go in several where they are many.
    async fn store(&mut self, store: &Store, lease: &HeldLease, looks: &[(Dlq, Looked)], now_ms: i64) -> Result<Ticked, AlertingError> {
        let by_id: HashMap<i64, &Dlq> = looks.iter().map(|(dlq, _)| (dlq.id, dlq)).collect();
        let mut changed: BTreeMap<(i64, i64), ChangedAlert> = BTreeMap::new();
        for (place, held) in self.alerts.iter().filter(|(_, held)| held.has_changed(now_ms)) {
            let Some(dlq) = by_id.get(&place.1) else { continue };
            let key = Key { rule_id: place.0, cluster: dlq.cluster.clone(), topic: dlq.topic.clone() };
            changed.insert(*place, ChangedAlert { stored: held.stored, key, rule_version: held.rule_version, alert: held.alert.clone() });
        }
        let unsaved = |unsaved: Unsaved| {
            let mut ids: Vec<i64> = self.arrivals.followed.iter().filter(|(_, one)| one.unsaved == unsaved).map(|(id, _)| *id).collect();
            ids.sort_unstable();
            ids
        };
        let (watches, whole) = (unsaved(Unsaved::Watch), unsaved(Unsaved::Whole));
        let mut ticked = Ticked { firing: self.alerts.values().filter(|held| held.alert.firing().is_some()).count(), ..Ticked::default() };
        if changed.is_empty() && watches.is_empty() && whole.is_empty() && self.arrivals.over.is_empty() {
            return Ok(ticked);
        }
        let mut hints: BTreeSet<Hint> = BTreeSet::new();
        let mut chunks = whole.chunks(BASELINES_AT_ONCE);

        let mut tx = store.begin().await?;
        if !leases::holds(&mut tx, lease).await? {
            return Err(AlertingError::LeaseLost);
        }
        let saved = alerts::save(&mut tx, &changed.values().collect::<Vec<_>>(), now_ms).await?;
        let saved: HashMap<Key, (i64, i64)> = saved.into_iter().map(|(key, id, version)| (key, (id, version))).collect();
        let terms: HashMap<i64, &Terms> = self.rules.iter().map(|rule| (rule.id, &rule.terms)).collect();
        let mut told: Vec<Told<'_>> = Vec::new();
        for (place, changed) in &changed {
            let (Some((alert_id, _)), Some(terms), Some(dlq)) = (saved.get(&changed.key), terms.get(&place.0), by_id.get(&place.1)) else {
                continue;
            };
            let held = &self.alerts[place];
            told.extend(held.told.iter().map(|notify| Told { alert_id: *alert_id, notify, terms, dlq }));
            if held.saved.phase.as_str() != held.alert.phase.as_str() || !held.told.is_empty() {
                hints.insert(Hint::Dlq(dlq.id));
            }
        }
        tell(&mut tx, &told).await?;
        let watch_rows: Vec<(i64, i64, &Watch)> =
            watches.iter().map(|id| (*id, &self.arrivals.followed[id])).map(|(id, one)| (id, one.version, one.follow.watch())).collect();
        let mut kept: HashSet<i64> = baselines::save_watches(&mut tx, &watch_rows, now_ms).await?.into_iter().collect();
        baselines::add_anomalies(&mut tx, &self.arrivals.over).await?;
        if let Some(first) = chunks.next() {
            kept.extend(self.save_baselines(&mut tx, first, now_ms).await?);
        }
        tx.commit().await?;
        for chunk in chunks {
            let mut tx = store.begin().await?;
            if !leases::holds(&mut tx, lease).await? {
                return Err(AlertingError::LeaseLost);
            }
            kept.extend(self.save_baselines(&mut tx, chunk, now_ms).await?);
            tx.commit().await?;
        }

        for told in &told {
            let Told { notify, terms, dlq, .. } = told;
            telemetry::alert_told(&dlq.cluster, &dlq.topic, &terms.name, notify.news.as_str(), notify.severity.as_str());
        }
        (ticked.changed, ticked.told) = (saved.len(), told.len());
        drop(told);
        for (place, changed) in &changed {
            self.alert_stored(*place, saved.get(&changed.key).copied(), now_ms);
        }
        self.arrivals.over.clear();
        for id in watches.iter().chain(&whole) {
            if !kept.contains(id) {
                // Somebody accepted a level meanwhile: the next look begins with that.
                self.arrivals.followed.remove(id);
            } else if let Some(one) = self.arrivals.followed.get_mut(id) {
                (one.version, one.unsaved) = (one.version + 1, Unsaved::Nothing);
            }
        }
        store.changed(&hints.into_iter().collect::<Vec<_>>());
        Ok(ticked)
    }

    async fn save_baselines(&self, tx: &mut Tx, ids: &[i64], now_ms: i64) -> Result<Vec<i64>, StoreError> {
        let row = |id: &i64| {
            let one = &self.arrivals.followed[id];
            (*id, one.version, &one.follow)
        };
        let list: Vec<(i64, i64, &Follow)> = ids.iter().map(row).collect();
        baselines::save(tx, &list, now_ms).await
    }

    fn alert_stored(&mut self, place: (i64, i64), saved: Option<(i64, i64)>, now_ms: i64) {
        let Some((id, version)) = saved else {
            // Somebody changed it meanwhile: the next look begins with what they made of it.
            self.alerts.remove(&place);
            return;
        };
        self.places.insert(id, place);
        if let Some(held) = self.alerts.get_mut(&place) {
            (held.stored, held.stored_at_ms) = (Some((id, version)), now_ms);
            (held.saved, held.saved_rule_version) = (held.alert.clone(), held.rule_version);
            held.told.clear();
        }
    }
}

impl Held {
    fn new(rule_version: i64) -> Held {
        Held {
            stored: None,
            stored_at_ms: 0,
            saved: Alert::default(),
            alert: Alert::default(),
            rule_version,
            saved_rule_version: rule_version,
            told: Vec::new(),
            looked_at_ms: 0,
        }
    }

    /// Whether it is to be stored now.
    fn has_changed(&self, now_ms: i64) -> bool {
        if self.stored.is_none() || self.rule_version != self.saved_rule_version || !self.told.is_empty() {
            return true;
        }
        self.alert != self.saved
            && (!self.alert.is_as_before_but_for_the_look(&self.saved) || now_ms.saturating_sub(self.stored_at_ms) >= STORED_EVERY_MS)
    }
}

/// The one place where it is decided what becomes of news: it is stored here, in the transaction of the alerts it is about, and whoever is to be told is
/// told by what is put into the same transaction.
async fn tell(tx: &mut Tx, told: &[Told<'_>]) -> Result<(), StoreError> {
    let news: Vec<(i64, Notify)> = told.iter().map(|told| (told.alert_id, told.notify.clone())).collect();
    alerts::add_news(tx, &news).await
}
