//! What only a real broker can say of a target and its readers.

use lazaret::domain::replay::{BatchState, Warning};
use lazaret::services::replay::propose::Submission;

use super::*;
use crate::support::consumer::TestConsumer;
use crate::support::producer::{NewRecord, TestProducer, Topics};
use crate::support::unique;

/// A desk whose messages came from a topic of this name.
async fn desk_of(topics: &Topics, store: Store, more: &str) -> Desk {
    Desk::on(store, topics.bootstrap(), "payments.retry", &format!("{more}{}", desk::CHECKED)).await
}

fn from(topic: &str, n: i64, partition: i32) -> Letter {
    Letter { origin_named: Some(topic.to_owned()), origin_partition: partition, ..Letter::of(n) }
}

/// R2
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn r2_partitions_that_the_target_does_not_have_are_told() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("r2"));
    topics.create(&topic, 4, &[]).await;
    let desk = desk_of(&topics, store, "").await;
    desk.take_in((0..3).map(|n| from(&topic, n, 7)).chain([from(&topic, 9, 3)])).await;
    let mut proposal = desk.everything();
    proposal.why_now = Some("nobody reads it in this test".into());
    let batch = desk.proposed(proposal).await;
    assert_eq!(batch.plan.target_partitions, 4);
    assert!(batch.plan.target_id.as_deref().is_some_and(|id| !id.is_empty()), "{:?}", batch.plan);
    assert!(batch.warnings.contains(&Warning::Repartitioned { items: 3 }), "{:?}", batch.warnings);
}

/// R3
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn r3_a_target_that_is_gone_is_refused_and_never_made() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("r3"));
    topics.create(&topic, 2, &[]).await;
    let desk = desk_of(&topics, store, "").await;
    desk.take_in((0..3).map(|n| from(&topic, n, 0))).await;
    let mut proposal = desk.everything();
    proposal.why_now = Some("nobody reads it in this test".into());
    let waiting = desk.propose(proposal.clone()).await.unwrap().batch;
    let approved = {
        desk.prepare().await;
        desk.approved(desk.batch(waiting.id).await).await
    };
    topics.delete(&[&topic]).await;
    let before = topics.names();
    let refused =
        desk.propose(lazaret::services::replay::propose::Proposal { form_id: unique("form"), ..proposal.clone() }).await.unwrap_err();
    assert!(invalid(&refused).0 == "target" && invalid(&refused).1.contains("does not exist"), "{refused}");
    let void = desk.replays.recompute_digest(&approved).await.unwrap().void().unwrap();
    assert!(void.contains("the target topic"), "{void}");

    // Preflighted anew it says so, and nobody can submit it.
    desk.replays.reopen(&ben(), approved.id).await.unwrap();
    desk.prepare().await;
    let draft = desk.batch(approved.id).await;
    assert!(draft.note.as_deref().unwrap().contains("does not exist"), "{:?}", draft.note);
    let error = desk.replays.submit(&ana().by, &OwnerScope::All, approved.id, Submission::default()).await.unwrap_err();
    assert!(conflict(&error).contains("does not exist"), "{error}");
    assert_eq!(topics.names(), before, "nothing was created by asking");

    // Another topic under the same name is another target.
    topics.create(&topic, 2, &[]).await;
    let draft = desk.replays.submit(&ana().by, &OwnerScope::All, approved.id, Submission::default()).await.unwrap();
    assert_eq!(draft.state, BatchState::Draft, "its plan is another: it is preflighted anew first");
    desk.prepare().await;
    let again = desk.batch(approved.id).await;
    assert_eq!(again.state, BatchState::AwaitingApproval, "{:?}", again.note);
    assert_ne!(again.plan.target_id, approved.plan.target_id);
}

/// S2
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn s2_a_target_that_grew_or_was_made_anew_voids_the_approval() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("s2"));
    topics.create(&topic, 2, &[]).await;
    let desk = desk_of(&topics, store, "").await;
    desk.take_in((0..3).map(|n| from(&topic, n, 0))).await;
    let mut proposal = desk.everything();
    proposal.why_now = Some("nobody reads it in this test".into());
    let approved = desk.approved(desk.proposed(proposal).await).await;
    let void = async || desk.replays.recompute_digest(&approved).await.unwrap().void();
    assert_eq!(void().await, None);
    topics.grow(&topic, 3).await;
    assert_eq!(void().await.unwrap(), "approval void: the target's number of partitions changed");
    topics.delete(&[&topic]).await;
    topics.create(&topic, 2, &[]).await;
    assert_eq!(void().await.unwrap(), "approval void: the target topic's id changed");
}

/// R9
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn r9_a_newer_record_of_a_key_is_named() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("r9"));
    topics.create(&topic, 1, &[]).await;
    let record = |key: &str, value: &str| NewRecord::value(value).key(key).on_partition(0);
    // Offset 0: K's first version, dead-lettered. 1: L's, dead-lettered, and nothing after. 2: K again, applied live. 3: M's, dead-lettered with 4.
    let log = [record("K", "v1"), record("L", "v1"), record("K", "v2"), record("M", "v1"), record("M", "v2"), record("N", "v1")];
    TestProducer::at(topics.bootstrap()).send_all(&topic, log);
    let desk = desk_of(&topics, store, "").await;
    let letter = |n, key| Letter { key: Some(key), ..from(&topic, n, 0) };
    desk.take_in([letter(0, "K"), letter(1, "L"), letter(3, "M"), letter(4, "M")]).await;
    let mut proposal = desk.everything();
    proposal.why_now = Some("nobody reads it in this test".into());
    let batch = desk.proposed(proposal).await;
    assert!(batch.warnings.contains(&Warning::NewerOfKey { keys: vec!["K".into()], count: 1 }), "{:?}", batch.warnings);
}

/// R14
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn r14_a_compacted_target_is_refused_unless_it_is_allowed() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("r14"));
    topics.create(&topic, 1, &[("cleanup.policy", "compact")]).await;
    let desk = desk_of(&topics, store, "").await;
    desk.take_in((0..3).map(|n| from(&topic, n, 0))).await;
    let mut proposal = desk.everything();
    proposal.why_now = Some("nobody reads it in this test".into());
    let error = desk.propose(proposal.clone()).await.unwrap_err();
    assert!(invalid(&error).0 == "target" && invalid(&error).1.contains("compacted"), "{error}");
    let allowed = desk.configured(|text| text.replace("owner = 'payments'", "owner = 'payments'\nallow_compacted_target = true")).await;
    let batch = allowed.approved(allowed.proposed(proposal).await).await;
    let forbidden_since = desk.replays.recompute_digest(&batch).await.unwrap();
    assert_eq!(forbidden_since.changed, ["the target topic"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kafka: run tests/run"]
async fn readers_of_the_target_are_looked_at() {
    let (store, _folder) = crate::support::sqlite().await;
    let (topics, topic) = (Topics::real(), unique("readers"));
    let (own, other) = (unique("wallet"), unique("other"));
    topics.create(&topic, 1, &[]).await;
    TestProducer::at(topics.bootstrap()).send_all(&topic, (0..5).map(|_| NewRecord::value("v").on_partition(0)));
    let desk = desk_of(&topics, store, "")
        .await
        .configured(|text| text.replace("consumer_group = 'wallet'", &format!("consumer_group = '{own}'")))
        .await;
    desk.take_in((0..3).map(|n| from(&topic, n, 0))).await;
    let draft = desk.propose(desk.everything()).await.unwrap().batch;
    desk.prepare().await;
    let empty = desk.batch(draft.id).await;
    assert!(empty.warnings.contains(&Warning::GroupEmpty { group: own.clone() }), "{:?}", empty.warnings);
    assert_eq!((empty.state, empty.note.as_deref()), (BatchState::Draft, Some("say why now: nobody reads the target")));
    desk.replays.stop(&ana(), draft.id, None).await.unwrap();

    let consumer = TestConsumer::join(topics.bootstrap(), &own, &topic).await;
    consumer.commit(&topic, 0, 2);
    let stranger = TestConsumer::join(topics.bootstrap(), &other, &topic).await;
    let batch = desk.proposed(desk.everything()).await;
    assert!(batch.warnings.contains(&Warning::Lag { group: own.clone(), records: 3 }), "{:?}", batch.warnings);
    assert!(batch.warnings.contains(&Warning::OtherGroups { groups: vec![other.clone()] }), "{:?}", batch.warnings);
    assert!(!batch.warnings.iter().any(|warning| matches!(warning, Warning::GroupEmpty { .. } | Warning::CannotConfirm { .. })));
    drop((consumer, stranger));
}
/// R18
#[tokio::test(flavor = "multi_thread")]
async fn r18_without_a_known_group_success_cannot_be_confirmed() {
    let (store, _folder) = crate::support::sqlite().await;
    let desk =
        Desk::new(store, "[dlq.schema]\nuse = 'payment'\n").await.configured(|text| text.replace("consumer_group = 'wallet'\n", "")).await;
    desk.take_in((0..3).map(|n| Letter { group: false, ..Letter::of(n) })).await;
    let mut proposal = desk.everything();
    proposal.waivers = vec![waiver("looked at each")];
    let batch = desk.proposed(proposal).await;
    assert_eq!(batch.plan.group, None);
    let why = batch.warnings.iter().find_map(|warning| match warning {
        Warning::CannotConfirm { why } => Some(why.clone()),
        _ => None,
    });
    assert!(why.unwrap().contains("is not known, and there is no ledger to ask"));
}

/// A cluster that does not answer: the preflight says so and ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_is_a_warning_and_no_hang() {
    let (store, _folder) = crate::support::sqlite().await;
    let desk = Desk::with_ledger(store).await;
    desk.take_in((0..3).map(Letter::of)).await;
    let draft = desk.propose(desk.everything()).await.unwrap().batch;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let away = desk.configured(|text| text.replacen("bootstrap_servers = '", &format!("bootstrap_servers = '{nobody}' # '"), 1)).await;
    away.prepare().await;
    let batch = away.batch(draft.id).await;
    assert_eq!(batch.state, BatchState::AwaitingApproval, "{:?}", batch.note);
    assert!(batch.warnings.iter().any(|warning| matches!(warning, Warning::TargetUnknown { .. })), "{:?}", batch.warnings);
    assert!(batch.warnings.iter().any(|warning| matches!(warning, Warning::NewerNotLookedFor { .. })));
    let start = away.replays.recompute_digest(&batch).await.unwrap_err();
    assert!(matches!(start, ReplayError::Kafka(_)), "{start}");
}
