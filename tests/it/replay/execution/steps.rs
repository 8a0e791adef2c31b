//! How a batch goes: paused, stopped, step by step, and waiting for what is in its way.

use rdkafka::mocking::MockCluster;

use super::*;
use crate::support::consumer::TestConsumer;
use crate::support::producer::{NewRecord, TestProducer};
use lazaret::domain::lifecycle::{Move, Outcome};
use lazaret::domain::message::MessageState;
use lazaret::domain::replay::ItemState;
use lazaret::services::replay::executor::Executor;
use lazaret::services::replay::propose::Submission;
use lazaret::store::leases::{HeldLease, LeaseKeeper, LeaseState, LeaseWatch};
use lazaret::store::outcomes::settle;
use lazaret::store::replay_items::{ItemMove, move_items};
use lazaret::store::transitions::{Cause, Change, move_messages};
use tokio_util::sync::CancellationToken;

/// Says of everything that was sent and waits for its outcome that it was confirmed, or came back, as verification would.
async fn verify(rig: &Rig, id: i64, ids: &[i64], outcome: Outcome) -> u64 {
    let mut tx = rig.store.begin().await.unwrap();
    let settled = settle(&mut tx, id, ids, outcome, None, rig.clock.now_ms()).await.unwrap();
    tx.commit().await.unwrap();
    settled.items
}

/// The messages of `ids` that were sent.
async fn sent_of(rig: &Rig, ids: &[i64]) -> Vec<i64> {
    let mut sent = Vec::new();
    for id in ids {
        if rig.store.message(*id).await.unwrap().unwrap().resolution.as_deref() == Some("sent") {
            sent.push(*id);
        }
    }
    sent
}

/// Everything that there is to prepare.
async fn prepare(rig: &Rig) {
    while rig.replays.prepare("main").await.unwrap() == Prepared::More {}
}

/// Leaves a message as an executor leaves it that dies once its intent is stored.
async fn intended(rig: &Rig, id: i64, message_id: i64) {
    let now_ms = rig.clock.now_ms();
    let mut tx = rig.store.begin().await.unwrap();
    let moves = [Move::CheckBegun, Move::SchemaFits];
    let change = Change { message_id, from: MessageState::UnderReview, moves: &moves, reason: None, evidence: None };
    let cause = Cause { at_ms: now_ms, actor: "replay", batch_id: Some(id) };
    assert_eq!(move_messages(&mut tx, &[change], &cause).await.unwrap(), [message_id]);
    let intent = ItemMove {
        target_partition: Some(0),
        lower_bound: Some(0),
        intended_at_ms: Some(now_ms),
        epoch: Some(0),
        ..ItemMove::new(message_id, ItemState::Pending, ItemState::Intended)
    };
    assert_eq!(move_items(&mut tx, id, &[intent]).await.unwrap(), 1);
    tx.commit().await.unwrap();
}

on_both_bases! {
    /// After a night in which nobody executed: whoever prepares may come to end the batch only after whoever executes looked at it.
    async fn an_approval_that_is_over_starts_nothing(base: Base) {
        let mut rig = Rig::new(base, 1, "canary = 0").await;
        rig.payments(3, 3).await;
        let id = rig.approved(rig.proposal()).await;
        rig.replays.approval.approval_ttl_s = 0;
        let mut keeper = LeaseKeeper::new("replay/main", "alone", Duration::from_secs(600), Duration::from_secs(200));
        let LeaseState::Held { epoch } = keeper.tick(&rig.store, &rig.clock).await.unwrap() else { panic!("nobody else is there") };
        let watch = LeaseWatch::new(rig.clock.clone());
        watch.set(keeper.until());
        let lease = HeldLease { name: "replay/main".to_owned(), epoch };
        let executor = Executor::new(rig.replays.clone(), rig.cluster.clone(), lease, watch, timing()).unwrap();
        let ran = tokio::time::timeout(Duration::from_secs(1), executor.run(&CancellationToken::new())).await;
        assert!(ran.is_err(), "it looked twenty times");
        assert_eq!(rig.batch(id).await.state, BatchState::Approved);
        assert_eq!(rig.replays.prepare("main").await.unwrap(), Prepared::More);
        assert_eq!((rig.batch(id).await.state, rig.arrived()), (BatchState::Expired, Vec::new()));
    }

    /// Case R10.
    async fn a_stop_holds_at_once_and_the_rest_goes_back(base: Base) {
        let rig = Rig::new(base, 3, "canary = 0\nmax_per_second = 50").await;
        let ids = rig.payments(1_000, 1_000).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "two chunks are sent", |batch| batch.progress.sent >= 100).await;
        rig.replays.stop(&decider("petra"), id, Some("enough")).await.unwrap();
        let stopped = rig.batch(id).await.progress.sent;
        // What was on its way when it was stopped is one chunk at most.
        let batch = rig.until(id, "all have ended", |batch| {
            batch.state == BatchState::Cancelled && batch.progress.done() == 1_000
        }).await;
        execution.end().await;
        assert!(batch.progress.sent <= stopped + 50, "{stopped} {:?}", batch.progress);
        assert_eq!(i64::try_from(rig.arrived().len()).unwrap(), batch.progress.sent);
        let states = rig.states(&ids).await;
        assert_eq!(states["replayed/sent"], usize::try_from(batch.progress.sent).unwrap());
        assert_eq!(states.values().sum::<usize>(), 1_000);
        assert_eq!(states.keys().filter(|state| !["replayed/sent", "quarantined", "under_review"].contains(&state.as_str())).count(), 0, "{states:?}");
    }

    async fn a_pause_holds_and_going_on_sends_the_rest_once(base: Base) {
        let rig = Rig::new(base, 3, "canary = 0\nmax_per_second = 100").await;
        rig.payments(300, 300).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "a chunk is sent", |batch| batch.progress.sent >= 100).await;
        rig.replays.pause(&decider("petra"), id).await.unwrap();
        let paused = rig.batch(id).await.progress.sent;
        let later = async {
            // Two seconds of its pace, in which nothing more may come than what was on its way.
            tokio::time::sleep(Duration::from_secs(2)).await;
            rig.batch(id).await.progress.sent
        };
        assert!(later.await <= paused + 100);
        rig.replays.resume(&decider("petra"), id, None).await.unwrap();
        rig.until_executed(id).await;
        execution.end().await;
        let copies = rig.copies();
        assert!(copies.len() == 300 && copies.values().all(|copies| *copies == 1));
    }

    async fn the_rest_waits_for_the_canary_and_goes_when_it_is_proven(base: Base) {
        let rig = Rig::new(base, 3, "canary = 5\nmax_per_second = 1000").await;
        let ids = rig.payments(100, 100).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until(id, "it waits for the canary", |batch| batch.stage_since_ms.is_some() && batch.note.is_some()).await;
        assert_eq!((batch.progress.sent, batch.stage), (5, 0));
        assert!(batch.note.unwrap().contains("until it is proven"));
        assert_eq!(verify(&rig, id, &ids, Outcome::Confirmed).await, 5);
        let batch = rig.until(id, "the next step waits", |batch| batch.stage == 1 && batch.stage_since_ms.is_some()).await;
        assert_eq!(batch.progress.sent, 55, "ten times more");
        assert_eq!(verify(&rig, id, &ids, Outcome::Confirmed).await, 50);
        let batch = rig.until_executed(id).await;
        assert_eq!(batch.progress.sent, 100);
        execution.end().await;
    }

    /// Case R18: nobody can prove the canary.
    async fn a_canary_that_is_not_proven_in_time_pauses_and_an_approver_may_go_on(base: Base) {
        let rig = Rig::new(base, 1, "canary = 3\ncanary_timeout_s = 1").await;
        rig.payments(20, 20).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until(id, "it pauses", |batch| batch.state == BatchState::Paused).await;
        assert_eq!(batch.progress.sent, 3);
        assert!(batch.note.unwrap().contains("The canary was not proven within 1 s"));
        rig.replays.resume(&decider("petra"), id, Some("looked at all three")).await.unwrap();
        let batch = rig.until_executed(id).await;
        assert_eq!(batch.progress.sent, 20);
        execution.end().await;
    }

    async fn three_returns_beyond_the_limit_halt(base: Base) {
        let rig = Rig::new(base, 1, "canary = 10\nstop_on_returned_pct = 20").await;
        let ids = rig.payments(40, 40).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "it waits for the canary", |batch| batch.stage_since_ms.is_some()).await;
        let sent = sent_of(&rig, &ids).await;
        assert_eq!(verify(&rig, id, &sent[..3], Outcome::Returned).await, 3);
        assert_eq!(verify(&rig, id, &sent[3..], Outcome::Confirmed).await, 7);
        let batch = rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        assert_eq!(batch.progress.sent, 10);
        assert!(batch.note.unwrap().contains("3 of 10 sent messages came back"));
        execution.end().await;
    }

    /// What came back, and what was archived, before it was approved anew is known to who approved it: it is no reason to halt again.
    async fn halted_and_approved_anew_it_goes_on(base: Base) {
        let rig = Rig::new(base, 1, "canary = 2\nstop_on_returned_pct = 20\nmax_per_second = 1000").await;
        let mut letters: Vec<Letter> = (0..60).map(|n| Letter::payment(n, n)).collect();
        for letter in &mut letters[..8] {
            letter.value = Some(b"{\"id\":5}".to_vec());
        }
        let ids = rig.take_in(&letters).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "it waits for the canary", |batch| batch.progress.sent == 2).await;
        assert_eq!(verify(&rig, id, &sent_of(&rig, &ids).await, Outcome::Confirmed).await, 2);
        // The next step: eight that do not fit, and twelve that go, of which four come back.
        rig.until(id, "the next step is sent", |batch| batch.progress.sent == 14 && batch.progress.archived == 8).await;
        let sent = sent_of(&rig, &ids).await;
        assert_eq!(verify(&rig, id, &sent[8..12], Outcome::Returned).await, 4);
        rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        verify(&rig, id, &sent, Outcome::Confirmed).await;

        let by = By { actor: "otto".to_owned(), request_id: None };
        rig.replays.reopen(&decider("petra"), id).await.unwrap();
        rig.until(id, "it is preflighted", |batch| batch.forecast.is_some()).await;
        let batch = rig.replays.submit(&by, &OwnerScope::All, id, Submission::default()).await.unwrap();
        assert_eq!(batch.state, BatchState::AwaitingApproval, "{:?}", batch.note);
        rig.approve(&batch).await;
        let batch = rig.until(id, "it goes on or halts", |batch| batch.progress.sent > 14 || batch.state == BatchState::Halted).await;
        assert_eq!((batch.state, batch.note.filter(|note| note.contains("halt"))), (BatchState::Executing, None));
        while rig.batch(id).await.state == BatchState::Executing {
            verify(&rig, id, &ids, Outcome::Confirmed).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let batch = rig.until_executed(id).await;
        assert_eq!((batch.progress.sent, batch.progress.archived, batch.progress.returned), (52, 8, 4));
        execution.end().await;
    }

    /// What was sent lies in the topic of then: commits of whoever reads another one of that name would be taken for proof.
    async fn once_begun_it_goes_to_no_other_topic_of_that_name(base: Base) {
        let rig = Rig::new(base, 1, "canary = 3").await;
        rig.payments(20, 20).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let began = rig.until(id, "the canary is sent", |batch| batch.progress.sent == 3).await;
        rig.topics().delete(&[&rig.place.topic]).await;
        rig.topics().create(&rig.place.topic, 1, &[]).await;
        rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        execution.end().await;
        rig.replays.reopen(&decider("petra"), id).await.unwrap();
        prepare(&rig).await;
        let draft = rig.batch(id).await;
        assert_eq!(draft.plan.target_id, began.plan.target_id, "its proofs are looked for where it sent to");
        assert!(draft.note.as_deref().is_some_and(|note| note.contains("propose what is left anew")), "{:?}", draft.note);
        let by = By { actor: "otto".to_owned(), request_id: None };
        let refused = rig.replays.submit(&by, &OwnerScope::All, id, Submission::default()).await.unwrap_err();
        assert!(refused.to_string().contains("propose what is left anew"), "{refused}");
        rig.replays.stop(&decider("petra"), id, None).await.unwrap();
        prepare(&rig).await;
        assert_eq!(rig.batch(id).await.progress.not_sent, 17);
        rig.approved(rig.proposal()).await;
    }

    /// A broker that does not say which topic it is: nobody knows whether it is the one that was approved.
    async fn a_target_whose_id_is_not_told_any_more_is_waited_for(base: Base) {
        let rig = Rig::new(base, 1, "canary = 2").await;
        let ids = rig.payments(10, 10).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "the canary is sent", |batch| batch.progress.sent == 2).await;
        execution.end().await;
        // One that knows no ids.
        let broker = MockCluster::new(1).unwrap();
        broker.create_topic(&rig.place.topic, 1, 1).unwrap();
        let place = Place { bootstrap: broker.bootstrap_servers(), ..rig.place.clone() };
        let (replays, cluster) = place.replays().await;
        let rig = Rig { replays, cluster, place, ..rig };
        assert_eq!(verify(&rig, id, &ids, Outcome::Confirmed).await, 2);
        let execution = rig.execute();
        let told = |batch: &Batch| batch.note.as_deref().is_some_and(|note| note.contains("does not tell the id"));
        let batch = rig.until(id, "it waits or goes on", |batch| batch.progress.sent > 2 || told(batch)).await;
        assert_eq!(batch.progress.sent, 2);
        execution.end().await;
    }

    /// Nothing more of it goes, and still somebody waits for what was maybe sent: its log says for what.
    async fn stopped_with_something_in_doubt_its_log_says_what_it_waits_for(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        let ids = rig.payments(3, 3).await;
        let id = rig.approved(rig.proposal()).await;
        intended(&rig, id, ids[0]).await;
        rig.replays.stop(&decider("petra"), id, None).await.unwrap();
        // And Kafka is away.
        let place = Place { bootstrap: "127.0.0.1:1".to_owned(), ..rig.place.clone() };
        let (replays, cluster) = place.replays().await;
        let rig = Rig { replays, cluster, place, ..rig };
        let execution = rig.execute_with(Timing { ask: Duration::from_millis(300), ..timing() });
        let said = |log: &[String]| log.iter().filter(|line| line.starts_with("waits: Kafka cannot be asked")).count();
        let deadline = rig.clock.monotonic() + PATIENCE / 2;
        while said(&rig.log(id).await) == 0 {
            assert!(rig.clock.monotonic() < deadline, "{:#?}", rig.log(id).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(said(&rig.log(id).await), 1, "once, however long it lasts");
        execution.end().await;
    }

    async fn it_waits_while_the_group_is_behind_and_goes_on_by_itself(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\npause_at_lag = 10\nconsumer_group = 'GROUP'").await;
        let group = unique("wallet");
        let mut place = rig.place.clone();
        place.dlq = place.dlq.replace("GROUP", &group);
        let (replays, cluster) = place.replays().await;
        let rig = Rig { replays, cluster, place, ..rig };
        // The group has committed at the beginning, and 50 records come after that.
        let consumer = TestConsumer::join(&rig.place.bootstrap, &group, &rig.place.topic).await;
        consumer.commit(&rig.place.topic, 0, 0);
        let live = (0..50).map(|n| NewRecord::value(format!("{{\"payment_id\":\"live-{n}\"}}")));
        TestProducer::at(&rig.place.bootstrap).send_all(&rig.place.topic, live);
        rig.payments(5, 5).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        let batch = rig.until(id, "it waits", |batch| batch.state == BatchState::Executing && batch.note.is_some()).await;
        assert_eq!(batch.progress.sent, 0);
        let note = batch.note.unwrap();
        assert!(note.contains("50 records") && note.contains("pause_at_lag = 10"), "{note}");
        consumer.commit(&rig.place.topic, 0, 50);
        let batch = rig.until_executed(id).await;
        assert_eq!((batch.progress.sent, batch.note), (5, None));
        let log = rig.log(id).await;
        assert!(log.iter().any(|line| line.starts_with("waits: ")) && log.iter().any(|line| line == "goes on"), "{log:#?}");
        execution.end().await;
    }

    async fn two_batches_to_one_target_share_its_pace(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0\nmax_per_second = 40").await;
        let ids = rig.payments(240, 240).await;
        let half = |ids: &[i64]| Proposal { wanted: Wanted::Ids(ids.to_vec()), ..rig.proposal() };
        let (one, two) = (rig.approved(half(&ids[..120])).await, rig.approved(half(&ids[120..])).await);
        let execution = rig.execute();
        let began = rig.clock.monotonic();
        rig.until_executed(one).await;
        rig.until_executed(two).await;
        let took = rig.clock.monotonic() - began;
        execution.end().await;
        // 240 at 40 a second, the first 40 at once; alone each would take two.
        assert!(took >= Duration::from_millis(4_500), "{took:?}");
        assert_eq!(rig.copies().len(), 240);
    }

    /// Case R3, and a target that goes while something is being sent there: nothing is made by asking.
    async fn a_target_that_is_gone_is_waited_for_and_never_made(base: Base) {
        let rig = Rig::new(base, 2, "canary = 0\nmax_per_second = 20").await;
        rig.payments(200, 200).await;
        let id = rig.approved(rig.proposal()).await;
        let execution = rig.execute();
        rig.until(id, "some are sent", |batch| batch.progress.sent >= 20).await;
        rig.topics().delete(&[&rig.place.topic]).await;
        let before = rig.topics().names();
        let batch = rig.until(id, "it says why it waits", |batch| batch.note.as_deref().is_some_and(|note| note.contains(&rig.place.topic))).await;
        assert_eq!(batch.state, BatchState::Executing);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut after = rig.topics().names();
        after.retain(|name| before.contains(name) || *name == rig.place.topic);
        assert!(!after.contains(&rig.place.topic), "the topic came back");
        // Made again by somebody: another topic, to which nobody agreed.
        rig.topics().create(&rig.place.topic, 2, &[]).await;
        let batch = rig.until(id, "it halts", |batch| batch.state == BatchState::Halted).await;
        execution.end().await;
        assert!(batch.note.unwrap().contains("deleted and made again"));
        assert_eq!(rig.arrived().len(), 0);
    }

    /// Case K4.
    async fn a_ledger_that_cannot_be_asked_is_waited_for(base: Base) {
        let rig = Rig::new(base, 1, "canary = 0").await;
        rig.payments(20, 20).await;
        let id = rig.approved(rig.proposal()).await;
        ledger(&rig.place.folder, "ALTER TABLE applied RENAME TO gone").await;
        let execution = rig.execute();
        let batch = rig.until(id, "it waits", |batch| batch.note.is_some()).await;
        let note = batch.note.unwrap();
        assert!(note.contains("duplicate check cannot run"), "{note}");
        assert_eq!((batch.progress.done(), rig.arrived().len()), (0, 0));
        ledger(&rig.place.folder, "ALTER TABLE gone RENAME TO applied").await;
        let batch = rig.until_executed(id).await;
        execution.end().await;
        assert_eq!((batch.progress.sent, batch.note), (20, None));
    }
}
