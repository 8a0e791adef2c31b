//! A consumer as an application has it: in a group, with partitions, committing.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::producer::until;

const PATIENCE: Duration = Duration::from_secs(60);

/// A member of a consumer group. It commits only what it is told to, and leaves when it is dropped.
pub struct TestConsumer {
    consumer: BaseConsumer,
}

impl TestConsumer {
    /// Joins `group` and waits until it has a partition of `topic`.
    pub async fn join(bootstrap: &str, group: &str, topic: &str) -> TestConsumer {
        TestConsumer::join_with(bootstrap, group, topic, &[]).await
    }

    /// The same with further properties: `group.protocol`.
    pub async fn join_with(bootstrap: &str, group: &str, topic: &str, properties: &[(&str, &str)]) -> TestConsumer {
        let this = TestConsumer::start(bootstrap, group, topic, properties);
        until(PATIENCE, &format!("a partition of {topic} for a member of {group}"), || {
            this.poll();
            this.has_partitions().then_some(())
        })
        .await;
        this
    }

    /// Subscribes; whoever calls must poll.
    pub fn start(bootstrap: &str, group: &str, topic: &str, properties: &[(&str, &str)]) -> TestConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("group.id", group).set("allow.auto.create.topics", "false");
        config.set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        let consumer: BaseConsumer = config.create().expect("a consumer");
        consumer.subscribe(&[topic]).expect("can be asked");
        TestConsumer { consumer }
    }

    pub fn has_partitions(&self) -> bool {
        self.consumer.assignment().is_ok_and(|assigned| assigned.count() > 0)
    }

    /// Serves its membership; the offset of a record that came.
    pub fn poll(&self) -> Option<i64> {
        self.consumer.poll(Duration::from_millis(20)).and_then(Result::ok).map(|record| record.offset())
    }

    /// Reads until it has come past `offset` of some partition.
    pub async fn read_past(&self, offset: i64) {
        until(PATIENCE, &format!("the record at {offset}"), || self.poll().filter(|read| *read >= offset)).await;
    }

    /// Commits `next` as the offset to go on at.
    pub fn commit(&self, topic: &str, partition: i32, next: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(next)).expect("a valid offset");
        self.consumer.commit(&list, CommitMode::Sync).expect("the broker takes the commit");
    }
}

/// Sets the offsets of a group that nobody is in, as `kafka-consumer-groups --reset-offsets` does.
pub fn reset_offset(bootstrap: &str, group: &str, topic: &str, partition: i32, next: i64) {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(next)).expect("a valid offset");
    consumer.commit(&list, CommitMode::Sync).expect("an empty group takes any commit");
}
