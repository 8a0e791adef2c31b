//! Which topics there are, which life each is in, and where a partition that was never read starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Assigned, Intake, IntakeError, LOOK_UP, Topic, continued, wait_after};
use crate::domain::message::quarantine;
use crate::domain::settings::{DlqSettings, Start, settings_for};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::{LogEnds, TopicInfo, TopicPartition};
use crate::kafka::intake::IntakeCommand;
use crate::store::dlqs::Dlq;
use crate::store::positions::PartitionId;
use crate::telemetry;

impl Intake {
    /// One full listing. A failure is shown, and the next try comes sooner than the next regular one.
    pub(super) async fn list_topics(&mut self) {
        let now_ms = self.clock.now_ms();
        match self.try_list_topics(now_ms).await {
            Ok(()) => {
                self.listing_failures = 0;
                self.discovery_at = self.clock.monotonic() + self.discovery_interval;
                self.status.connected();
                let topics = self.topics.len();
                self.status.change(|view| {
                    view.discovered_at_ms = Some(now_ms);
                    view.topics = Some(topics);
                    view.discovery = None;
                });
            }
            Err(error) => {
                telemetry::discovery_failed(&self.cluster, &error.to_string());
                if let IntakeError::Kafka(KafkaError::Unreachable { .. }) = error {
                    self.status.disconnected(now_ms, error.to_string());
                }
                self.listing_failures = self.listing_failures.saturating_add(1);
                self.discovery_at = self.clock.monotonic() + wait_after(self.listing_failures).min(self.discovery_interval);
                self.status.change(|view| continued(&mut view.discovery, now_ms, error.to_string()));
            }
        }
    }

    async fn try_list_topics(&mut self, now_ms: i64) -> Result<(), IntakeError> {
        let all = self.ask(|inspector| inspector.topics(LOOK_UP)).await??;
        let names: BTreeSet<String> = all.iter().map(|topic| topic.name.clone()).collect();
        self.status.listed(all.iter().map(|topic| (topic.name.clone(), topic.partitions)).collect());
        let covered: Vec<(TopicInfo, Arc<DlqSettings>)> = all
            .into_iter()
            .filter_map(|topic| {
                let settings = settings_for(&self.dlqs, &self.cluster, &topic.name)?;
                Some((topic, Arc::new(settings.clone())))
            })
            .collect();
        let ids = match covered.is_empty() {
            true => BTreeMap::new(),
            false => self.topic_ids(covered.iter().map(|(topic, _)| topic.name.clone()).collect()).await?,
        };
        let mut positions: BTreeMap<i64, BTreeMap<i32, i64>> = BTreeMap::new();
        for position in self.store.positions(None).await? {
            positions.entry(position.id.dlq_id).or_default().insert(position.id.partition, position.next_offset);
        }
        let mut first_failure = None;
        for (info, settings) in covered {
            // Listed, and deleted by the time its id was asked.
            let Some(id) = ids.get(&info.name) else { continue };
            let known = Known { now_ms, positions: &positions };
            // One topic that cannot be asked must not hide the others.
            if let Err(error) = self.adopt(&info, settings, id.as_deref(), &known).await {
                first_failure.get_or_insert(error);
            }
        }
        self.note_gone(&names, now_ms).await?;
        self.listed = Some(names);
        self.listings += 1;
        self.subscribe();
        first_failure.map_or(Ok(()), Err)
    }

    /// Brings the store up to date with one topic of the listing.
    async fn adopt(
        &mut self,
        info: &TopicInfo,
        settings: Arc<DlqSettings>,
        topic_id: Option<&str>,
        known: &Known<'_>,
    ) -> Result<(), IntakeError> {
        let owner = settings.owner.as_deref();
        let (mut dlq, made) = self.store.ensure_dlq(&self.cluster, &info.name, topic_id, owner, known.now_ms).await?;
        if dlq.gone_since_ms.is_some() {
            self.store.set_gone(dlq.id, None).await?;
            dlq.gone_since_ms = None;
        }
        if dlq.owner.as_deref() != owner {
            self.store.describe_dlq(dlq.id, owner, dlq.start_note.as_deref()).await?;
            dlq.owner = settings.owner.clone();
        }
        let mut placed: BTreeSet<i32> = known.positions.get(&dlq.id).into_iter().flatten().map(|(partition, _)| *partition).collect();
        if !made && self.is_another_life(&dlq, topic_id, &settings, known).await? {
            dlq = self.next_life(dlq, topic_id, known.now_ms).await?;
            placed = self.placed(&dlq).await?;
        } else if dlq.topic_id.is_none()
            && let Some(id) = topic_id
        {
            self.store.learn_topic_id(dlq.id, dlq.incarnation, id).await?;
            dlq.topic_id = Some(id.to_owned());
        }
        let appeared = match self.topics.get(&info.name) {
            Some(topic) => topic.appeared,
            None => self.listed.as_ref().is_some_and(|listed| !listed.contains(&info.name)),
        };
        let mut topic = Topic { dlq, settings, partitions: info.partitions, appeared };
        self.place(&info.name, &mut topic, &placed).await?;
        if made {
            telemetry::dlq_found(&self.cluster, &info.name, info.partitions, topic.dlq.start_note.as_deref());
        }
        let before = self.topics.insert(info.name.clone(), topic.clone());
        if before.is_some_and(|before| before.dlq.incarnation != topic.dlq.incarnation) {
            let partitions: Vec<TopicPartition> = self.assigned.keys().filter(|(name, _)| *name == info.name).cloned().collect();
            for partition in partitions {
                self.wait(&partition);
            }
        }
        Ok(())
    }

    /// Whether the topic that exists now is not the one whose messages we have.
    async fn is_another_life(
        &self,
        dlq: &Dlq,
        topic_id: Option<&str>,
        settings: &DlqSettings,
        known: &Known<'_>,
    ) -> Result<bool, IntakeError> {
        match (&dlq.topic_id, topic_id) {
            (Some(ours), Some(present)) if ours == present => Ok(false),
            (Some(_), Some(present)) => {
                // A broker that lags behind can still tell the id of an earlier life.
                let lives = self.store.incarnations(dlq.id).await?;
                Ok(!lives.iter().any(|life| life.topic_id.as_deref() == Some(present)))
            }
            // Without an id only a record can tell. Reading one is slow, and a topic is recreated as a whole: after the first listing,
            // which may follow a long absence, each listing looks at one partition in turn.
            _ => {
                let positions = known.positions.get(&dlq.id).into_iter().flatten();
                let count = positions.clone().count();
                let turn = self.listed.is_some().then(|| self.listings % count.max(1));
                for (_, (&partition, &next_offset)) in positions.enumerate().filter(|(index, _)| turn.is_none_or(|turn| turn == *index)) {
                    let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition };
                    if self.record_differs(id, &dlq.topic, next_offset, settings).await? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Compares a stored record with the one that now has its offset, by timestamp and body hash: the newest stored one or, where the
    /// log ends before it, the first of the log. A record that is not there is no evidence.
    async fn record_differs(&self, id: PartitionId, topic: &str, next_offset: i64, settings: &DlqSettings) -> Result<bool, IntakeError> {
        let partition = (topic.to_owned(), id.partition);
        let Some((newest, at_ms, hash)) = self.store.newest_record(id).await? else { return Ok(false) };
        let Some(ends) = self.ends(vec![partition.clone()]).await?.remove(&partition).and_then(Result::ok) else { return Ok(false) };
        let (offset, at_ms, hash) = if newest < ends.end {
            (newest, at_ms, hash)
        } else if next_offset > ends.end && ends.start < ends.end {
            let cluster = &self.cluster;
            let Some(row) = self.store.message_at(cluster, topic, id.partition, ends.start, Some(id.incarnation)).await? else {
                return Ok(false);
            };
            let Some(body) = self.store.body(row.id).await? else { return Ok(false) };
            (ends.start, row.record_at_ms, body.hash)
        } else {
            return Ok(false);
        };
        let found = self.ask(move |inspector| inspector.record_at(&partition, offset, LOOK_UP)).await??;
        let Some(found) = found.filter(|found| found.offset == offset) else { return Ok(false) };
        let (found_at_ms, now_ms) = (found.timestamp_ms, self.clock.now_ms());
        Ok(found_at_ms != at_ms || quarantine(found, settings, &self.rules, now_ms).body_hash.as_slice() != hash)
    }

    /// Starts the next incarnation, or takes over the one that another instance started first.
    async fn next_life(&self, dlq: Dlq, topic_id: Option<&str>, now_ms: i64) -> Result<Dlq, IntakeError> {
        if let Some(incarnation) = self.store.start_incarnation(dlq.id, dlq.incarnation, topic_id, now_ms).await? {
            telemetry::incarnation(&self.cluster, &dlq.topic, incarnation);
        }
        Ok(self.store.dlq(&self.cluster, &dlq.topic).await?.unwrap_or(dlq))
    }

    async fn placed(&self, dlq: &Dlq) -> Result<BTreeSet<i32>, IntakeError> {
        let positions = self.store.positions(Some(dlq.id)).await?;
        Ok(positions.into_iter().filter(|position| position.id.incarnation == dlq.incarnation).map(|p| p.id.partition).collect())
    }

    /// Makes the positions that are missing. Partition 0 comes last: while it has none, the DLQ's first placement is not complete, and
    /// whoever finds it so goes on with it. Later partitions, later lives and topics that appeared while we looked are new as a whole:
    /// they start at offset 0, and what is gone by then is a gap.
    pub(super) async fn place(&self, name: &str, topic: &mut Topic, placed: &BTreeSet<i32>) -> Result<(), IntakeError> {
        let missing: Vec<i32> = (0..topic.partitions).rev().filter(|partition| !placed.contains(partition)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let first_placement = topic.dlq.incarnation == 1 && !placed.contains(&0) && !topic.appeared;
        let starts = match first_placement {
            true => self.first_starts(name, topic, &missing).await?,
            false => missing.iter().map(|partition| (*partition, 0)).collect(),
        };
        for partition in missing {
            let id = PartitionId { dlq_id: topic.dlq.id, incarnation: topic.dlq.incarnation, partition };
            let offset = starts.get(&partition).copied().unwrap_or(0);
            self.store.ensure_position(id, offset, self.clock.now_ms()).await?;
        }
        Ok(())
    }

    /// Where the partitions of a DLQ that was never seen before start, by its `start`. Notes in words what that leaves out.
    async fn first_starts(&self, name: &str, topic: &mut Topic, missing: &[i32]) -> Result<BTreeMap<i32, i64>, IntakeError> {
        let now_ms = self.clock.now_ms();
        let partitions: Vec<TopicPartition> = missing.iter().map(|partition| (name.to_owned(), *partition)).collect();
        let mut ends: BTreeMap<i32, LogEnds> = BTreeMap::new();
        for ((_, partition), found) in self.ends(partitions.clone()).await? {
            ends.insert(partition, found?);
        }
        let mut starts: BTreeMap<i32, i64> = ends.iter().map(|(partition, ends)| (*partition, ends.start)).collect();
        let left_out = match topic.settings.start {
            Start::Earliest => return Ok(starts),
            Start::Latest => {
                starts = ends.iter().map(|(partition, ends)| (*partition, ends.end)).collect();
                format!("records from before {} were not taken in (start = \"latest\")", iso(now_ms))
            }
            Start::Age { ms } => {
                let at_ms = now_ms.saturating_sub(ms);
                for ((_, partition), found) in self.ask(move |inspector| inspector.offsets_at(&partitions, at_ms, LOOK_UP)).await? {
                    let start = ends.get(&partition).map_or(0, |ends| ends.start);
                    starts.insert(partition, found?.max(start));
                }
                format!("records from before {} were not taken in (start = \"{}\")", iso(at_ms), age(ms))
            }
        };
        let records: i64 = starts.iter().map(|(partition, start)| start - ends.get(partition).map_or(*start, |ends| ends.start)).sum();
        if records > 0 {
            let note = format!("{left_out}: up to {records} of them");
            self.store.describe_dlq(topic.dlq.id, topic.settings.owner.as_deref(), Some(&note)).await?;
            topic.dlq.start_note = Some(note);
        }
        Ok(starts)
    }

    /// Both ends of these partitions.
    pub(super) async fn ends(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, Result<LogEnds, KafkaError>>, IntakeError> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.ask(move |inspector| inspector.log_ends(&partitions, LOOK_UP)).await
    }

    /// DLQs of this cluster that the listing does not have are gone; their messages stay.
    async fn note_gone(&mut self, listed: &BTreeSet<String>, now_ms: i64) -> Result<(), IntakeError> {
        for dlq in self.store.dlqs().await? {
            if dlq.cluster == self.cluster && dlq.gone_since_ms.is_none() && !listed.contains(&dlq.topic) {
                self.store.set_gone(dlq.id, Some(now_ms)).await?;
                telemetry::dlq_gone(&self.cluster, &dlq.topic);
            }
        }
        self.topics.retain(|name, _| listed.contains(name));
        Ok(())
    }

    /// Subscribes to the topics there are, if they changed.
    fn subscribe(&mut self) {
        let topics: BTreeSet<String> = self.topics.keys().cloned().collect();
        if topics != self.subscribed {
            self.outbox.push(IntakeCommand::Subscribe(topics.iter().cloned().collect()));
            self.subscribed = topics;
        }
    }

    /// Partitions that wait for their position.
    pub(super) fn waiting(&self) -> Vec<TopicPartition> {
        let waiting = self.assigned.iter().filter(|(_, assigned)| matches!(assigned, Assigned::Waiting));
        waiting.map(|(partition, _)| partition.clone()).collect()
    }
}

/// What a listing knows before it looks at single topics.
struct Known<'a> {
    now_ms: i64,
    /// Next offset by DLQ and partition, newest incarnation.
    positions: &'a BTreeMap<i64, BTreeMap<i32, i64>>,
}

/// ISO 8601 in UTC, to the second.
fn iso(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms)
        .map_or_else(|| format!("{ms} ms"), |at| at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
}

/// As `start` is written: the largest whole unit.
fn age(ms: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = UNITS.into_iter().find(|(size, _)| ms % size == 0);
    unit.map_or_else(|| format!("{ms}ms"), |(size, name)| format!("{}{name}", ms / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_they_are_configured() {
        assert_eq!(age(7 * 86_400_000), "7d");
        assert_eq!(age(36 * 3_600_000), "36h");
        assert_eq!(age(90_000), "90s");
    }

    #[test]
    fn instants_are_utc() {
        assert_eq!(iso(1_700_000_000_000), "2023-11-14T22:13:20Z");
    }
}
