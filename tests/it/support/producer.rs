//! Writes to Kafka whatever the field has seen: null keys and headers, repeated names, explicit timestamps, transactions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// The topics of a cluster, for tests that make and unmake them.
pub struct Topics {
    bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Topics {
    /// Those of the real broker, as a user who may do everything.
    pub fn real() -> Topics {
        Topics::at(&Server::Kafka.address())
    }

    pub fn at(bootstrap: &str) -> Topics {
        let admin = client(bootstrap).create().expect("an admin client");
        Topics { bootstrap: bootstrap.to_owned(), admin }
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Makes a topic and waits until the broker serves it. Old timestamps are kept unless `config` says otherwise.
    pub async fn create(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        self.create_many(&[name], partitions, config).await;
    }

    /// The same for many at once.
    pub async fn create_many(&self, names: &[&str], partitions: i32, config: &[(&str, &str)]) {
        let wanted = |name| {
            let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1))
                .set("retention.ms", "-1")
                .set("message.timestamp.after.max.ms", "9223372036854775807");
            config.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
        };
        let topics: Vec<NewTopic<'_>> = names.iter().map(|name| wanted(name)).collect();
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        for made in self.admin.create_topics(&topics, &options).await.expect("topics can be made") {
            made.expect("the topic is new");
        }
        for name in names {
            self.wait_until(name, |count| count == usize::try_from(partitions).expect("positive")).await;
        }
    }

    /// Deletes topics and waits until they are gone.
    pub async fn delete(&self, names: &[&str]) {
        let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
        for gone in self.admin.delete_topics(names, &options).await.expect("topics can be deleted") {
            gone.expect("the topic was there");
        }
        for name in names {
            self.wait_until(name, |count| count == 0).await;
        }
    }

    /// Raises the number of partitions to `count`.
    pub async fn grow(&self, name: &str, count: usize) {
        let grown = self.admin.create_partitions(&[NewPartitions::new(name, count)], &AdminOptions::new()).await.expect("can be asked");
        assert!(grown.iter().all(Result::is_ok), "{grown:?}");
        self.wait_until(name, |now| now == count).await;
    }

    /// Moves the start of a partition's log, as retention does.
    pub async fn delete_records_before(&self, topic: &str, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("a valid offset");
        let answer = self.admin.delete_records(&list, &AdminOptions::new()).await.expect("records can be deleted");
        for element in answer.elements() {
            element.error().expect("records can be deleted");
        }
    }

    /// All names that the cluster knows, in order. Asking for all creates none.
    pub fn names(&self) -> Vec<String> {
        let metadata = self.admin.inner().fetch_metadata(None, PATIENCE).expect("metadata");
        let mut names: Vec<String> = metadata.topics().iter().map(|topic| topic.name().to_owned()).collect();
        names.sort();
        names
    }

    async fn wait_until(&self, name: &str, enough: impl Fn(usize) -> bool) {
        until(PATIENCE, &format!("the partitions of {name}"), || {
            let metadata = self.admin.inner().fetch_metadata(None, PATIENCE).ok()?;
            let led = metadata
                .topics()
                .iter()
                .find(|topic| topic.name() == name)
                .map_or(0, |topic| topic.partitions().iter().filter(|partition| partition.leader() >= 0).count());
            enough(led).then_some(())
        })
        .await;
    }
}

/// Asks again and again until there is an answer; panics with `what` when there is none in time.
pub async fn until<T>(patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(patience, asking).await.unwrap_or_else(|_| panic!("{what}: not within {patience:?}"))
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("allow.auto.create.topics", "false");
    config
}

/// A record to be written; what is not said is absent.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// Names must be UTF-8 here; kcat can write others.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Kafka's own; librdkafka takes 0 for "now", so the first millisecond of 1970 cannot be written.
    pub timestamp_ms: Option<i64>,
}

impl NewRecord {
    pub fn value(value: impl Into<Vec<u8>>) -> NewRecord {
        NewRecord { value: Some(value.into()), ..NewRecord::default() }
    }
    pub fn on_partition(self, partition: i32) -> NewRecord {
        NewRecord { partition: Some(partition), ..self }
    }
    pub fn key(self, key: impl Into<Vec<u8>>) -> NewRecord {
        NewRecord { key: Some(key.into()), ..self }
    }
    pub fn header(mut self, name: &str, value: Option<&[u8]>) -> NewRecord {
        self.headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        self
    }
    pub fn at(self, timestamp_ms: i64) -> NewRecord {
        NewRecord { timestamp_ms: Some(timestamp_ms), ..self }
    }
}

/// Counts what the broker did not take.
#[derive(Default)]
struct Deliveries(AtomicUsize);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A producer; what was sent is in the log after [`TestProducer::flush`].
pub struct TestProducer {
    producer: ThreadedProducer<Deliveries>,
}

impl TestProducer {
    pub fn at(bootstrap: &str) -> TestProducer {
        TestProducer::with(bootstrap, &[])
    }

    /// With further properties: `compression.type`, `message.max.bytes`.
    pub fn with(bootstrap: &str, properties: &[(&str, &str)]) -> TestProducer {
        let mut config = client(bootstrap);
        config.set("linger.ms", "5");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        TestProducer { producer: config.create_with_context(Deliveries::default()).expect("a producer") }
    }

    /// One whose records belong to transactions.
    pub fn transactional(bootstrap: &str, id: &str) -> TestProducer {
        let this = TestProducer::with(bootstrap, &[("transactional.id", id)]);
        this.producer.init_transactions(PATIENCE).expect("transactions start");
        this
    }

    pub fn send(&self, topic: &str, record: &NewRecord) {
        loop {
            let mut wire = BaseRecord::<[u8], [u8]>::to(topic);
            wire.partition = record.partition;
            wire.key = record.key.as_deref();
            wire.payload = record.value.as_deref();
            wire.timestamp = record.timestamp_ms;
            wire.headers = (!record.headers.is_empty()).then(|| {
                record
                    .headers
                    .iter()
                    .fold(OwnedHeaders::new(), |headers, (name, value)| headers.insert(Header { key: name, value: value.as_deref() }))
            });
            match self.producer.send(wire) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => self.flush(),
                Err((error, _)) => panic!("{error}"),
            }
        }
    }

    pub fn send_all(&self, topic: &str, records: impl IntoIterator<Item = NewRecord>) {
        for record in records {
            self.send(topic, &record);
        }
        self.flush();
    }

    /// Waits until the broker has taken everything.
    pub fn flush(&self) {
        self.producer.flush(PATIENCE).expect("the broker takes them in time");
        assert_eq!(self.producer.context().0.load(Ordering::SeqCst), 0, "records that the broker did not take");
    }

    pub fn begin(&self) {
        self.producer.begin_transaction().expect("a transaction begins");
    }

    pub fn commit(&self) {
        self.producer.commit_transaction(PATIENCE).expect("the transaction commits");
    }

    pub fn abort(&self) {
        self.producer.abort_transaction(PATIENCE).expect("the transaction aborts");
    }
}
