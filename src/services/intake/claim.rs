//! Where an assigned partition goes on: claim its position, compare it with the log's ends, step over what is gone, start.
//!
//! The order matters. The position is claimed (or known) first, then the ends are asked, then the topic's id. So the position stands
//! still, an end is never older than it, and an id that is ours afterwards proves the ends to be of this life of the topic.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assigned, Intake, IntakeError, Look, Reading, SECOND_LOOK};
use crate::kafka::inspect::{LogEnds, TopicPartition};
use crate::kafka::intake::IntakeCommand;
use crate::store::positions::{Gap, GapKind, PartitionId, Position};
use crate::telemetry;

/// Partitions claimed before the first of them starts.
const AT_ONCE: usize = 200;

impl Intake {
    /// Claims and starts every partition that waits. What cannot be claimed now goes on waiting and is tried again.
    pub(super) async fn claim_waiting(&mut self) {
        let mut known = self.waiting();
        known.retain(|(topic, _)| self.topics.contains_key(topic));
        if known.is_empty() {
            return;
        }
        let mut failure = None;
        for chunk in known.chunks(AT_ONCE) {
            match self.try_claim(chunk).await {
                Ok(()) => {}
                Err(error @ IntakeError::Kafka(_)) => failure = Some(error),
                // The next chunk would fare no better.
                Err(error) => return self.stall(&error),
            }
        }
        match failure {
            Some(error) => self.stall(&error),
            None if !self.is_stalled() => self.recovered(),
            None => {}
        }
    }

    async fn try_claim(&mut self, partitions: &[TopicPartition]) -> Result<(), IntakeError> {
        let (mut claimed, mut failure) = (BTreeMap::new(), None);
        for partition in partitions {
            match self.claim(partition).await {
                Ok(Some(position)) => drop(claimed.insert(partition.clone(), position)),
                Ok(None) => self.hasten_discovery(),
                // A topic that cannot be asked where it starts must not hold the others up.
                Err(IntakeError::Kafka(error)) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        if claimed.is_empty() {
            return failure.map_or(Ok(()), |error| Err(error.into()));
        }
        let ends = self.ends(claimed.keys().cloned().collect()).await?;
        let topics: BTreeSet<String> = claimed.keys().map(|(topic, _)| topic.clone()).collect();
        let ids = self.topic_ids(topics.into_iter().collect()).await?;
        for (partition, position) in claimed {
            if self.is_outdated(&partition.0, &ids) {
                self.hasten_discovery();
                continue;
            }
            match ends.get(&partition) {
                Some(Ok(ends)) => self.go_on(&partition, &position, *ends).await?,
                Some(Err(error)) => failure = Some(error.clone()),
                None => {}
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Takes a partition's position over, making it first if the partition appeared after the last listing.
    async fn claim(&mut self, partition: &TopicPartition) -> Result<Option<Position>, IntakeError> {
        let (name, number) = partition;
        let topic = &self.topics[name];
        let id = PartitionId { dlq_id: topic.dlq.id, incarnation: topic.dlq.incarnation, partition: *number };
        let now_ms = self.clock.now_ms();
        if let Some(position) = self.store.claim_position(id, now_ms).await? {
            return Ok(Some(position));
        }
        let mut topic = topic.clone();
        topic.partitions = topic.partitions.max(number + 1);
        let positions = self.store.positions(Some(topic.dlq.id)).await?;
        let placed = positions.iter().filter(|p| p.id.incarnation == id.incarnation).map(|p| p.id.partition).collect();
        self.place(name, &mut topic, &placed).await?;
        self.topics.insert(name.clone(), topic);
        Ok(self.store.claim_position(id, now_ms).await?)
    }

    /// Whether the topic's present id is not the one of the life we read.
    fn is_outdated(&self, topic: &str, ids: &BTreeMap<String, Option<String>>) -> bool {
        let ours = self.topics.get(topic).and_then(|topic| topic.dlq.topic_id.as_deref());
        match (ours, ids.get(topic)) {
            (Some(ours), Some(Some(present))) => ours != present,
            // Gone since: its ends say nothing.
            (_, None) => true,
            _ => false,
        }
    }

    /// Starts a partition at its position, or past what is gone.
    async fn go_on(&mut self, partition: &TopicPartition, position: &Position, ends: LogEnds) -> Result<(), IntakeError> {
        let (kind, to) = if position.next_offset < ends.start {
            (GapKind::Retention, ends.start)
        } else if position.next_offset > ends.end {
            (GapKind::Truncation, ends.end)
        } else {
            self.start(partition, position.id, position.owner_epoch, position.next_offset, Some(ends.end));
            return Ok(());
        };
        let gap = Gap { id: position.id, kind, from_offset: position.next_offset, to_offset: to, noticed_at_ms: self.clock.now_ms() };
        if self.store.step_over_gap(&gap, position.owner_epoch, position.next_offset).await? {
            telemetry::gap(&self.cluster, &partition.0, partition.1, kind.as_str(), gap.from_offset, gap.to_offset);
            self.start(partition, position.id, position.owner_epoch, to, Some(ends.end));
        } else {
            // Claimed by another meanwhile.
            self.give_way(partition, position.owner_epoch, position.next_offset);
        }
        Ok(())
    }

    fn give_way(&mut self, partition: &TopicPartition, epoch: i64, next_offset: i64) {
        self.assigned.insert(partition.clone(), Assigned::Overtaken { epoch, next_offset });
        self.outbox.push(IntakeCommand::Pause(partition.clone()));
    }

    /// Compares every partition that is being read with its log's ends, and starts anew what lies outside or stands still although
    /// there is more to read: librdkafka stops fetching a partition whose offset it finds out of range, and does not say which.
    pub(super) async fn look_at_ends(&mut self, look: Look) {
        if let Err(error) = self.try_look_at_ends(look).await {
            // The next listing looks again; sooner than that only what was asked for.
            telemetry::consumer_error(&self.cluster, &error.to_string());
            if look != Look::Discovery {
                self.second_look_at = Some(self.clock.monotonic() + SECOND_LOOK);
            }
        }
    }

    async fn try_look_at_ends(&mut self, look: Look) -> Result<(), IntakeError> {
        let before: BTreeMap<TopicPartition, Reading> = self
            .assigned
            .iter()
            .filter_map(|(partition, assigned)| match assigned {
                Assigned::Reading(reading) => Some((partition.clone(), reading.clone())),
                Assigned::Waiting | Assigned::Overtaken { .. } => None,
            })
            .collect();
        self.reclaim_idle(look).await?;
        if before.is_empty() {
            return Ok(());
        }
        let ends = self.ends(before.keys().cloned().collect()).await?;
        let topics: BTreeSet<String> = before.keys().map(|(topic, _)| topic.clone()).collect();
        let ids = self.topic_ids(topics.into_iter().collect()).await?;
        for (partition, reading) in before {
            if self.is_outdated(&partition.0, &ids) {
                // A topic that the listing dropped is being revoked already.
                if self.topics.contains_key(&partition.0) {
                    self.hasten_discovery();
                }
            } else if let Some(Ok(ends)) = ends.get(&partition) {
                self.compare(&partition, reading, *ends, look).await?;
            }
        }
        Ok(())
    }

    async fn compare(&mut self, partition: &TopicPartition, mut reading: Reading, ends: LogEnds, look: Look) -> Result<(), IntakeError> {
        let at = reading.next_offset;
        if at == ends.end {
            reading.stood = None;
        } else {
            let looks = reading.stood.filter(|(offset, _)| *offset == at).map_or(0, |(_, looks)| looks) + 1;
            reading.stood = Some((at, looks));
            let outside = at < ends.start || at > ends.end;
            let stopped = match look {
                Look::Discovery => (looks - 1).is_power_of_two(),
                Look::First => false,
                Look::Second => self.reset,
            };
            // What was fetched before may still be on its way to us, so the first look decides nothing; and patience doubles, because
            // starting anew throws away what waits in a long queue.
            if looks > 1 && (outside || stopped) {
                let position = Position { id: reading.id, next_offset: at, owner_epoch: reading.epoch, updated_at_ms: self.clock.now_ms() };
                self.go_on(partition, &position, ends).await?;
                if let Some(Assigned::Reading(again)) = self.assigned.get_mut(partition) {
                    again.stood = Some((at, looks));
                }
                return Ok(());
            }
            if outside || look == Look::First {
                self.second_look_at = Some(self.clock.monotonic() + SECOND_LOOK);
            }
        }
        reading.end = Some(ends.end);
        self.assigned.insert(partition.clone(), Assigned::Reading(reading));
        Ok(())
    }

    /// A partition that another instance claimed although the group still gives it to us: if its position has not moved for a whole
    /// listing, the other has lost it, and we claim it again. Epochs keep that safe even when we are wrong.
    async fn reclaim_idle(&mut self, look: Look) -> Result<(), IntakeError> {
        let overtaken = |assigned: &Assigned| matches!(assigned, Assigned::Overtaken { .. });
        if look != Look::Discovery || !self.assigned.values().any(overtaken) {
            return Ok(());
        }
        let stored: BTreeMap<PartitionId, Position> =
            self.store.positions(None).await?.into_iter().map(|position| (position.id, position)).collect();
        for ((topic, partition), assigned) in &mut self.assigned {
            let Assigned::Overtaken { epoch, next_offset } = assigned else { continue };
            let Some(topic) = self.topics.get(topic) else { continue };
            let id = PartitionId { dlq_id: topic.dlq.id, incarnation: topic.dlq.incarnation, partition: *partition };
            *assigned = match stored.get(&id) {
                Some(position) if (position.owner_epoch, position.next_offset) != (*epoch, *next_offset) => {
                    Assigned::Overtaken { epoch: position.owner_epoch, next_offset: position.next_offset }
                }
                _ => Assigned::Waiting,
            };
        }
        self.claim_waiting().await;
        Ok(())
    }

    /// Lists soon: something was seen that the last listing did not know. Not at once, so that a broker whose view lags behind does
    /// not make us spin.
    pub(super) fn hasten_discovery(&mut self) {
        let soon = self.clock.monotonic() + super::FIRST_WAIT;
        self.discovery_at = self.discovery_at.min(soon);
    }
}
