//! Sending records, and learning of each whether the broker has it.
//!
//! Idempotent, `acks=all`, no topic is created. A record that the client refused was never on its way; of any other that was not acknowledged
//! nobody knows, so it is in doubt, and who sent it must look for it in the log.

use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{Producer as _, ProducerContext, PurgeConfig, ThreadedProducer};
use tokio::sync::mpsc;

use super::client::{KafkaError, Reporter, client_config, creation_error};
use super::ffi;
use crate::domain::record::Header;
use crate::domain::settings::ClusterSettings;

/// A record to be sent. Null and empty differ, for key, value and header values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In order, repetitions included; names are bytes and end at their first NUL.
    pub headers: Vec<Header>,
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The broker has it, at this offset.
    Stored { partition: i32, offset: i64 },
    /// It may be there or not. `lasting`: trying again would end in the same.
    InDoubt { reason: String, lasting: bool },
    /// The client did not take it: it was never on its way.
    Refused { reason: String },
}

/// Where a delivery report goes: which record of a chunk, and who waits for the chunk.
pub(super) struct Ticket {
    index: usize,
    answers: mpsc::UnboundedSender<(usize, Delivery)>,
}

impl ProducerContext for Reporter {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let delivery = match result {
            // Without an offset the broker did not say where: as good as no answer.
            Ok(message) if message.offset() < 0 => {
                Delivery::InDoubt { reason: "the broker did not say at which offset".to_owned(), lasting: false }
            }
            Ok(message) => Delivery::Stored { partition: message.partition(), offset: message.offset() },
            Err((error, _)) => {
                let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
                Delivery::InDoubt { reason: self.clean(&code.to_string()), lasting: is_lasting(code) }
            }
        };
        // Who asked may have gone: what it did not hear of stays in doubt.
        let _ = ticket.answers.send((ticket.index, delivery));
    }
}

/// Refusals that say something of the record or of our rights and not of the moment.
fn is_lasting(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::InvalidMessage
            | Code::InvalidMessageSize
            | Code::InvalidRecord
            | Code::PolicyViolation
            | Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::InvalidTimestamp
    )
}

/// The largest batch of records that the client makes by itself; a single record may be larger.
const BATCH_BYTES: usize = 1_000_000;
/// Below this a topic's limit is left to the broker to enforce.
const SMALLEST_BATCH_BYTES: usize = 1_000;

/// Sends to one topic of one cluster. Dropped, it forgets what is not acknowledged yet: nothing goes out afterwards that was not on its way.
pub struct Producer {
    topic: String,
    /// None only while it is dropped.
    producer: Option<ThreadedProducer<Reporter>>,
}

impl Producer {
    /// Makes the client and returns at once. `message_timeout`: after this a record that is not acknowledged is given up (`message.timeout.ms`).
    /// `max_message_bytes`: the topic's limit, if known.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] if librdkafka refuses a property.
    pub fn connect(
        cluster: &ClusterSettings,
        topic: &str,
        message_timeout: Duration,
        max_message_bytes: Option<usize>,
    ) -> Result<Producer, KafkaError> {
        let timeout = message_timeout.as_millis().max(1).to_string();
        // A batch above the topic's limit is refused as a whole, small records with large.
        let batch = max_message_bytes.map_or(BATCH_BYTES, |bytes| bytes / 2).clamp(SMALLEST_BATCH_BYTES, BATCH_BYTES).to_string();
        let ours = [
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("message.timeout.ms", timeout.as_str()),
            ("request.timeout.ms", timeout.as_str()),
            ("message.max.bytes", "104857600"),
            ("batch.size", batch.as_str()),
            ("queue.buffering.max.kbytes", "1048576"),
            ("linger.ms", "1"),
        ];
        let mut config = client_config(cluster, &[], &ours)?;
        for of_consumers in
            ["isolation.level", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "fetch.max.bytes", "group.id"]
        {
            config.remove(of_consumers);
        }
        let producer = config.create_with_context(Reporter::new(cluster)).map_err(|error| creation_error(cluster, &error))?;
        Ok(Producer { topic: topic.to_owned(), producer: Some(producer) })
    }

    /// Waits until the client knows the topic and has a connection, so that no record's time runs while it is still being made. Blocks up to `timeout`:
    /// call it from `spawn_blocking`.
    ///
    /// # Errors
    /// No broker answers, or the topic may not be looked at.
    pub fn make_ready(&self, timeout: Duration) -> Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Ok(()) };
        // Asking for it creates nothing: no client of ours may.
        let known = producer.client().fetch_metadata(Some(&self.topic), timeout);
        known.map(drop).map_err(|error| producer.context().rdkafka_error(&error))
    }

    /// Sends the records, those of one partition in the order given, and waits for what became of each; at most about the time-out of [`Producer::connect`].
    /// The answers are in the order of the records. Dropped while it waits, nothing can be said of any record.
    pub async fn send(&self, records: &[Outgoing]) -> Vec<Delivery> {
        let silence = || Delivery::InDoubt { reason: "nothing was heard of it".to_owned(), lasting: false };
        let mut deliveries: Vec<Delivery> = records.iter().map(|_| silence()).collect();
        let Some(producer) = &self.producer else { return deliveries };
        let (answers, mut reports) = mpsc::unbounded_channel();
        for (index, record) in records.iter().enumerate() {
            if index == records.len() / 2 {
                fail::fail_point!("replay::mid_produce");
            }
            let ticket = Box::new(Ticket { index, answers: answers.clone() });
            if let Err(code) = ffi::produce(producer.client(), &self.topic, record, ticket) {
                deliveries[index] = Delivery::Refused { reason: code.to_string() };
            }
        }
        drop(answers);
        // The channel ends when the last ticket does: each is answered or dropped with the client.
        while let Some((index, delivery)) = reports.recv().await {
            deliveries[index] = delivery;
        }
        deliveries
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let Some(producer) = self.producer.take() else { return };
        producer.purge(PurgeConfig::default().queue().inflight());
        // Its end takes up to a second: nobody is to wait for it.
        let _ = std::thread::Builder::new().name("kafka-producer-end".to_owned()).spawn(move || drop(producer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_moment_brings_is_not_lasting() {
        for code in [Code::MessageTimedOut, Code::PurgeInflight, Code::PurgeQueue, Code::NotEnoughReplicas, Code::UnknownTopicOrPartition] {
            assert!(!is_lasting(code), "{code}");
        }
        assert!(is_lasting(Code::MessageSizeTooLarge) && is_lasting(Code::TopicAuthorizationFailed));
    }
}
