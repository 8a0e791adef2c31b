//! From a batch to rows: classify, prove that it belongs to the topic's present life, store with its positions.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::{Assigned, Intake, IntakeError};
use crate::domain::classify::{ClassRule, FailureClass};
use crate::domain::message::{NewMessage, body_hash, quarantine};
use crate::domain::record::Record;
use crate::domain::settings::{DialectChoice, DlqSettings};
use crate::kafka::inspect::TopicPartition;
use crate::kafka::intake::{Batch, IntakeCommand, PartitionRead};
use crate::store::messages::{PartitionBatch, TakeIn};
use crate::store::positions::{PartitionId, Position};
use crate::telemetry;

/// What goes into one transaction.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Which partition and generation each of `batches` came from.
    sources: Vec<(TopicPartition, u64)>,
    batches: Vec<PartitionBatch>,
    /// Whether it is proven that the records belong to the life of the topic that `batches` name.
    proven: bool,
}

impl Piece {
    fn remove(&mut self, index: usize) {
        self.sources.remove(index);
        self.batches.remove(index);
    }

    fn topics(&self) -> BTreeSet<String> {
        self.sources.iter().map(|((topic, _), _)| topic.clone()).collect()
    }

    /// Two halves that can be stored one after the other, or the piece itself if it holds a single message.
    fn halves(mut self) -> Result<(Piece, Piece), Piece> {
        if self.batches.len() > 1 {
            let at = self.batches.len() / 2;
            let second = Piece { sources: self.sources.split_off(at), batches: self.batches.split_off(at), proven: self.proven };
            return Ok((self, second));
        }
        match self.batches.first_mut() {
            Some(first) if first.messages.len() > 1 => {
                let rest = first.messages.split_off(first.messages.len() / 2);
                let border = rest[0].record.offset;
                let second =
                    PartitionBatch { expected_offset: border, messages: rest, ..PartitionBatch { messages: Vec::new(), ..first.clone() } };
                first.next_offset = border;
                let second = Piece { sources: self.sources.clone(), batches: vec![second], proven: self.proven };
                Ok((self, second))
            }
            _ => Err(self),
        }
    }
}

impl Intake {
    /// Takes a batch in, or keeps it in hand until that is possible.
    pub(super) async fn take(&mut self, batch: Batch) {
        let work: Vec<Work> = batch.partitions.into_iter().filter_map(|(partition, read)| self.work(partition, read)).collect();
        if work.is_empty() {
            return;
        }
        let partitions: Vec<TopicPartition> = work.iter().map(|work| work.partition.clone()).collect();
        let (rules, now_ms) = (Arc::clone(&self.rules), self.clock.now_ms());
        let classified = tokio::task::spawn_blocking(move || work.into_iter().map(|work| work.done(&rules, now_ms)).collect::<Vec<_>>());
        // The ids are asked while the records are classified: both begin after the records were fetched, which is what counts.
        let topics: BTreeSet<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
        let (classified, ids) = tokio::join!(classified, self.ids_to_prove(topics));
        let mut piece = Piece::default();
        match classified {
            Ok(done) => (piece.sources, piece.batches) = done.into_iter().unzip(),
            // The records are lost to us, the positions stand: read them again from there.
            Err(error) => {
                for partition in &partitions {
                    self.wait(partition);
                }
                return self.stall(&error.into());
            }
        }
        match ids {
            Ok(ids) => self.prove(&mut piece, &ids),
            Err(error) => {
                self.pending.push_back(piece);
                return self.stall(&error);
            }
        }
        self.pending.push_back(piece);
        self.flush().await;
    }

    /// What is to be classified of one partition; None when it was read under an older `Start`.
    fn work(&self, partition: TopicPartition, read: PartitionRead) -> Option<Work> {
        let reading = self.reading(&partition)?;
        if reading.generation != read.generation || read.position < reading.next_offset {
            telemetry::discarded(&self.cluster, &partition.0, partition.1, "read before the last start");
            return None;
        }
        if read.records.is_empty() && read.position == reading.next_offset {
            return None;
        }
        let settings = Arc::clone(&self.topics.get(&partition.0)?.settings);
        let batch = PartitionBatch {
            id: reading.id,
            owner_epoch: reading.epoch,
            expected_offset: reading.next_offset,
            next_offset: read.position,
            messages: Vec::new(),
        };
        Some(Work { partition, generation: read.generation, settings, records: read.records, batch })
    }

    /// The present ids of those topics whose id we know.
    async fn ids_to_prove(&self, topics: BTreeSet<String>) -> Result<BTreeMap<String, Option<String>>, IntakeError> {
        let known = |name: &String| self.topics.get(name).is_some_and(|topic| topic.dlq.topic_id.is_some());
        let topics: Vec<String> = topics.into_iter().filter(known).collect();
        if topics.is_empty() { Ok(BTreeMap::new()) } else { self.topic_ids(topics).await }
    }

    /// Throws away what belongs to another life of its topic. Ids only move forward, so an id that is still ours after the records
    /// were fetched proves them ours. A topic that is gone by now proves nothing against them: they would be lost for good.
    fn prove(&mut self, piece: &mut Piece, ids: &BTreeMap<String, Option<String>>) {
        for index in (0..piece.sources.len()).rev() {
            let (partition, _) = piece.sources[index].clone();
            let ours = self.topics.get(&partition.0).and_then(|topic| topic.dlq.topic_id.as_deref());
            let present = ids.get(&partition.0).and_then(Option::as_deref);
            if let (Some(ours), Some(present)) = (ours, present)
                && ours != present
            {
                telemetry::discarded(&self.cluster, &partition.0, partition.1, "the topic was recreated");
                piece.remove(index);
                self.wait(&partition);
                self.discovery_at = self.clock.monotonic();
            }
        }
        piece.proven = true;
    }

    /// Stores what is in hand, in order, until it is done or fails.
    pub(super) async fn flush(&mut self) {
        while let Some(mut piece) = self.pending.pop_front() {
            if let Err(error) = self.store_piece(&mut piece).await {
                match error {
                    IntakeError::Store(error) if error.refuses_the_data() => {
                        if let Err(error) = self.isolate(piece, error.into()).await {
                            return self.stall(&error);
                        }
                        continue;
                    }
                    error => {
                        self.pending.push_front(piece);
                        return self.stall(&error);
                    }
                }
            }
            self.recovered();
        }
    }

    /// One transaction, repeated without what was claimed by others. An empty piece is stored trivially.
    async fn store_piece(&mut self, piece: &mut Piece) -> Result<(), IntakeError> {
        if !piece.proven {
            let ids = self.ids_to_prove(piece.topics()).await?;
            self.prove(piece, &ids);
        }
        loop {
            self.drop_void(piece);
            if piece.batches.is_empty() {
                return Ok(());
            }
            match self.store.take_in(&piece.batches, self.clock.now_ms()).await? {
                TakeIn::Committed { stored } => {
                    self.committed(piece, stored);
                    return Ok(());
                }
                TakeIn::Moved(moved) => self.overtaken(piece, &moved).await?,
            }
        }
    }

    /// Leaves out what a newer `Start` or a revocation made void.
    fn drop_void(&self, piece: &mut Piece) {
        for index in (0..piece.sources.len()).rev() {
            let (partition, generation) = &piece.sources[index];
            if self.reading(partition).is_none_or(|reading| reading.generation != *generation) {
                telemetry::discarded(&self.cluster, &partition.0, partition.1, "no longer ours");
                piece.remove(index);
            }
        }
    }

    fn committed(&mut self, piece: &Piece, stored: u64) {
        let mut all = 0;
        for ((partition, _), batch) in piece.sources.iter().zip(&piece.batches) {
            let messages = batch.messages.len() as u64;
            all += messages;
            if messages > 0 {
                let bytes = batch.messages.iter().map(|message| message.record.size() as u64).sum();
                telemetry::taken_in(&self.cluster, &partition.0, messages, bytes);
            }
            if let Some(Assigned::Reading(reading)) = self.assigned.get_mut(partition) {
                reading.next_offset = batch.next_offset;
                reading.end = reading.end.map(|end| end.max(batch.next_offset));
            }
            self.outbox.push(IntakeCommand::Committed { partition: partition.clone(), position: batch.next_offset });
        }
        if stored < all {
            telemetry::duplicates(&self.cluster, all - stored);
        }
        self.rate.add(self.clock.monotonic(), all);
        self.status.change(|view| view.progress.taken_in += stored);
    }

    /// The store refused because these positions are not as we thought: see what they are.
    async fn overtaken(&mut self, piece: &mut Piece, moved: &[PartitionId]) -> Result<(), IntakeError> {
        let mut stored: BTreeMap<PartitionId, Position> = BTreeMap::new();
        for dlq in moved.iter().map(|id| id.dlq_id).collect::<BTreeSet<_>>() {
            stored.extend(self.store.positions(Some(dlq)).await?.into_iter().map(|position| (position.id, position)));
        }
        for index in (0..piece.batches.len()).rev() {
            let batch = &piece.batches[index];
            if !moved.contains(&batch.id) {
                continue;
            }
            let (partition, _) = piece.sources[index].clone();
            let (id, epoch, next_offset) = (batch.id, batch.owner_epoch, batch.next_offset);
            match stored.get(&id) {
                // Our own commit whose answer was lost.
                Some(position) if position.owner_epoch == epoch && position.next_offset == next_offset => {
                    if let Some(Assigned::Reading(reading)) = self.assigned.get_mut(&partition) {
                        reading.next_offset = next_offset;
                    }
                }
                Some(position) if position.owner_epoch == epoch => {
                    telemetry::discarded(&self.cluster, &partition.0, partition.1, "the position was moved");
                    self.start(&partition, id, epoch, position.next_offset, None);
                }
                Some(position) => {
                    telemetry::discarded(&self.cluster, &partition.0, partition.1, "another instance claimed the partition");
                    let overtaken = Assigned::Overtaken { epoch: position.owner_epoch, next_offset: position.next_offset };
                    self.assigned.insert(partition.clone(), overtaken);
                    self.outbox.push(IntakeCommand::Pause(partition));
                }
                // Another instance found that the topic was recreated; so shall we.
                None => {
                    telemetry::discarded(&self.cluster, &partition.0, partition.1, "the topic was recreated");
                    self.wait(&partition);
                    self.discovery_at = self.clock.monotonic();
                }
            }
            piece.remove(index);
        }
        Ok(())
    }

    /// The database refuses the piece for what is in it. Halve it until the one record is found, and store that one without what was
    /// read out of it: a record that cannot be stored as understood is stored as not understood. Errors: even that failed.
    async fn isolate(&mut self, piece: Piece, error: IntakeError) -> Result<(), IntakeError> {
        let mut piece = match piece.halves() {
            Ok((first, second)) => {
                self.pending.push_front(second);
                self.pending.push_front(first);
                return Ok(());
            }
            Err(piece) => piece,
        };
        let understood: Vec<_> = piece.batches.clone();
        for (batch, ((topic, _), _)) in piece.batches.iter_mut().zip(&piece.sources) {
            let Some(settings) = self.topics.get(topic).map(|topic| Arc::clone(&topic.settings)) else { continue };
            for message in &mut batch.messages {
                let (record, first_seen) = (message.record.clone(), message.first_seen_at_ms);
                telemetry::unreadable_record(&self.cluster, &record.topic, record.partition, record.offset);
                *message = not_understood(record, &settings, first_seen);
            }
        }
        match self.store_piece(&mut piece).await {
            Ok(()) => Ok(()),
            Err(_) => {
                // It is not the record, then. Try it as it was next time; the first error tells more.
                if piece.batches.len() == understood.len() {
                    piece.batches = understood;
                }
                self.pending.push_front(piece);
                Err(error)
            }
        }
    }
}

/// One partition's share of a batch on its way to being classified.
struct Work {
    partition: TopicPartition,
    generation: u64,
    settings: Arc<DlqSettings>,
    records: Vec<Record>,
    batch: PartitionBatch,
}

impl Work {
    fn done(mut self, rules: &[ClassRule], now_ms: i64) -> ((TopicPartition, u64), PartitionBatch) {
        let from = self.batch.expected_offset;
        let records = self.records.into_iter().filter(|record| record.offset >= from);
        self.batch.messages = records.map(|record| read(record, &self.settings, rules, now_ms)).collect();
        ((self.partition, self.generation), self.batch)
    }
}

/// Reads a record. A fault of ours in reading one must not stop the partition, so a panic makes it a message that nobody understood.
fn read(record: Record, settings: &DlqSettings, rules: &[ClassRule], now_ms: i64) -> NewMessage {
    let understood = std::panic::catch_unwind(AssertUnwindSafe(|| quarantine(record.clone(), settings, rules, now_ms)));
    understood.unwrap_or_else(|_| {
        telemetry::unreadable_record(&settings.cluster, &record.topic, record.partition, record.offset);
        not_understood(record, settings, now_ms)
    })
}

/// The record whole, with nothing read out of it: what `quarantine` makes of an empty record at the same place.
pub(super) fn not_understood(record: Record, settings: &DlqSettings, first_seen_at_ms: i64) -> NewMessage {
    let empty = Record { key: None, value: None, headers: Vec::new(), ..record.clone() };
    let plain = DlqSettings { dialect: DialectChoice::Auto, business_key: None, tenant: None, ..settings.clone() };
    let hash = body_hash(&record);
    NewMessage {
        key_masked: record.key.is_some() && !settings.mask.is_empty(),
        record,
        body_hash: hash,
        class: FailureClass::Unknown,
        class_reason: "could not be read".to_owned(),
        ..quarantine(empty, &plain, &[], first_seen_at_ms)
    }
}
