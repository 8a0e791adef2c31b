//! Kafka without Kafka: librdkafka's in-process broker, and the one producer that fills it.
//!
//! Known of that broker (librdkafka 2.12.1): no topic creation, configuration or group list by request, about 5 MiB a partition and then
//! the oldest vanish, no transaction markers, time look-ups answer nothing. It serves the demo and quick tests only.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::message::{Header as KafkaHeader, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use super::DemoError;
use super::scenario::ProducedRecord;

/// How long the in-process broker may take to acknowledge everything it was given.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// A running in-process cluster of one broker on a loopback port of its own. It ends when this is dropped.
pub struct Broker {
    producer: FutureProducer,
    bootstrap_servers: String,
}

impl Broker {
    /// Starts it with these topics (name, partitions). No other topic is ever made.
    pub fn start<'a>(topics: impl IntoIterator<Item = (&'a str, i32)>) -> Result<Broker, DemoError> {
        let producer: FutureProducer = ClientConfig::new()
            .set("test.mock.num.brokers", "1")
            .set("allow.auto.create.topics", "false")
            .set("message.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string())
            // Large batches: the broker keeps a batch as one piece, and history loads at once.
            .set("linger.ms", "20")
            .create()
            .map_err(DemoError::Broker)?;
        let cluster = producer.client().mock_cluster().ok_or(DemoError::NoBroker)?;
        for (topic, partitions) in topics {
            cluster.create_topic(topic, partitions, 1).map_err(DemoError::Broker)?;
        }
        let bootstrap_servers = cluster.bootstrap_servers();
        drop(cluster);
        Ok(Broker { producer, bootstrap_servers })
    }

    /// Where clients connect.
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    /// Produces the records in order, each to its partition and with its timestamp, and waits until the broker has them all. Gives the offset of each.
    pub async fn produce(&self, records: &[ProducedRecord]) -> Result<Vec<i64>, DemoError> {
        let mut offsets = Vec::with_capacity(records.len());
        // Below the producer's queue limit of 100,000 messages.
        for chunk in records.chunks(10_000) {
            let mut deliveries = Vec::with_capacity(chunk.len());
            for record in chunk {
                deliveries.push(self.producer.send_result(kafka_record(record)).map_err(|(error, _)| DemoError::Broker(error))?);
            }
            for delivery in deliveries {
                let answer = delivery.await.map_err(|_| DemoError::NoBroker)?;
                offsets.push(answer.map_err(|(error, _)| DemoError::Broker(error))?.offset);
            }
        }
        Ok(offsets)
    }
}

fn kafka_record(record: &ProducedRecord) -> FutureRecord<'_, [u8], [u8]> {
    let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
    for header in &record.headers {
        // The scenario's names are string literals.
        let name = String::from_utf8_lossy(&header.name);
        headers = headers.insert(KafkaHeader { key: &name, value: header.value.as_deref() });
    }
    let mut out = FutureRecord::to(record.topic).partition(record.partition).timestamp(record.timestamp_ms).headers(headers);
    out.key = record.key.as_deref();
    out.payload = record.value.as_deref();
    out
}
