//! Consumer groups looked at from outside.

#![allow(clippy::unwrap_used, reason = "a test; clippy.toml allows it in test functions, not in the bodies that run on both databases")]

use std::time::Duration;

use lazaret::domain::clock::Clock;
use lazaret::kafka::client::KafkaError;
use lazaret::kafka::groups::{GroupLook, look, readers_of};
use rdkafka::mocking::MockCluster;

use super::{PATIENCE, cluster, with};
use crate::support::consumer::{TestConsumer, reset_offset};
use crate::support::producer::{NewRecord, TestProducer, Topics, until};
use crate::support::{Server, unique, variable};

async fn look_at(bootstrap: &str, group: &str, topic: &str, partitions: i32) -> Result<GroupLook, KafkaError> {
    let (settings, group, topic) = (cluster(bootstrap), group.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || {
        let partitions: Vec<_> = (0..partitions).map(|partition| (topic.clone(), partition)).collect();
        look(&settings, &group, &partitions, PATIENCE)
    })
    .await
    .expect("no panic")
}

async fn readers(bootstrap: &str, topic: &str) -> Result<Vec<String>, KafkaError> {
    let (settings, topic) = (cluster(bootstrap), topic.to_owned());
    tokio::task::spawn_blocking(move || readers_of(&settings, &topic, PATIENCE)).await.expect("no panic")
}

fn committed(look: &GroupLook) -> Vec<Option<i64>> {
    look.committed.values().copied().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_cannot_tell_about_groups_is_not_an_empty_group() {
    let broker = MockCluster::new(1).unwrap();
    broker.create_topic("t", 1, 1).unwrap();
    let began = Clock::system();
    let error = look_at(&broker.bootstrap_servers(), "g", "t", 1).await.unwrap_err();
    assert!(error.to_string().contains("cannot tell about consumer groups"), "{error}");
    let error = readers(&broker.bootstrap_servers(), "t").await.unwrap_err();
    assert!(error.to_string().contains("cannot tell about consumer groups"), "{error}");
    assert!(began.monotonic() < PATIENCE / 2, "what it cannot answer is not waited for: {:?}", began.monotonic());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_is_unreachable() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let settings = cluster(&address);
    let error = tokio::task::spawn_blocking(move || look(&settings, "g", &[("t".into(), 0)], Duration::from_secs(2))).await.unwrap();
    assert!(matches!(&error, Err(KafkaError::Unreachable { reason, .. }) if reason.contains("refused")), "{error:?}");
}

/// One member, two, one, none: of the protocol that is said.
async fn come_and_go(properties: &[(&str, &str)]) {
    let topics = Topics::real();
    let (topic, group) = (unique("read"), unique("readers"));
    topics.create(&topic, 2, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, (0..10).map(|n| NewRecord::value("v").on_partition(n % 2)));
    let nobody = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!((nobody.members.len(), committed(&nobody)), (0, vec![None, None]), "a group that never was");

    let first = TestConsumer::join_with(topics.bootstrap(), &group, &topic, properties).await;
    let one = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!((one.members.len(), committed(&one)), (1, vec![None, None]));
    first.commit(&topic, 1, 3);
    let one_further = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!((&one_further.members, committed(&one_further)), (&one.members, vec![None, Some(3)]), "looking changes nothing");

    // A rebalance takes both to poll.
    let second = TestConsumer::start(topics.bootstrap(), &group, &topic, properties);
    until(PATIENCE, "a partition for each of two members", || {
        let _ = (first.poll(), second.poll());
        (first.has_partitions() && second.has_partitions()).then_some(())
    })
    .await;
    let two = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!(two.members.len(), 2);
    assert!(two.members.contains(&one.members[0]), "a member keeps its id: {two:?}");

    drop(first);
    until(PATIENCE, "a partition for the member that is left", || {
        let _ = second.poll();
        second.has_partitions().then_some(())
    })
    .await;
    let left = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!((left.members.len(), left.members.contains(&one.members[0])), (1, false));
    drop(second);
    let gone = look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap();
    assert_eq!((gone.members.len(), committed(&gone)), (0, vec![None, Some(3)]), "what was committed stays");
    reset_offset(topics.bootstrap(), &group, &topic, 1, 5);
    assert_eq!(committed(&look_at(topics.bootstrap(), &group, &topic, 2).await.unwrap()), [None, Some(5)]);
    topics.delete(&[&topic]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn members_of_the_older_protocol_come_and_go() {
    come_and_go(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn members_of_the_newer_protocol_come_and_go() {
    come_and_go(&[("group.protocol", "consumer")]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn readers_are_those_with_members_or_commits() {
    let topics = Topics::real();
    let (topic, other) = (unique("shared"), unique("other"));
    topics.create_many(&[&topic, &other], 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, [NewRecord::value("v")]);
    assert_eq!(readers(topics.bootstrap(), &topic).await.unwrap(), [""; 0]);
    let [member, newer, committer, stranger] = ["a-member", "b-newer", "c-committer", "d-stranger"].map(unique);
    let _member = TestConsumer::join(topics.bootstrap(), &member, &topic).await;
    let _newer = TestConsumer::join_with(topics.bootstrap(), &newer, &topic, &[("group.protocol", "consumer")]).await;
    let _stranger = TestConsumer::join(topics.bootstrap(), &stranger, &other).await;
    reset_offset(topics.bootstrap(), &committer, &topic, 0, 1);
    assert_eq!(readers(topics.bootstrap(), &topic).await.unwrap(), [member, newer, committer]);
    topics.delete(&[&topic, &other]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn a_group_that_may_not_be_described_is_not_an_empty_group() {
    let (user, password) = (variable("LAZARET_TEST_KAFKA_RESTRICTED_USER"), variable("LAZARET_TEST_KAFKA_RESTRICTED_PASSWORD"));
    let properties =
        [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN"), ("sasl.username", &*user), ("sasl.password", &*password)];
    let settings = with(cluster(&Server::KafkaSasl.address()), &properties);
    let asked = tokio::task::spawn_blocking(move || look(&settings, "someone-elses", &[], PATIENCE)).await.unwrap();
    assert!(matches!(&asked, Err(KafkaError::NotPermitted { .. })), "{asked:?}");
}
