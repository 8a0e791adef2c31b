//! What people do to messages by hand, and the state machine under it.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

mod restart;

use std::collections::HashMap;

use lazaret::domain::access::OwnerScope;
use lazaret::domain::audit::By;
use lazaret::domain::clock::Clock;
use lazaret::domain::lifecycle::{FollowUp, Move, Outcome};
use lazaret::domain::message::MessageState;
use lazaret::domain::record::{Header, Record};
use lazaret::domain::review::{ReviewAction, ReviewState};
use lazaret::domain::settings::{DlqSettings, TopicMatch};
use lazaret::services::review::{Request, ReviewError, Reviews};
use lazaret::store::messages::{MessageFilter, MessageRow, PartitionBatch, TakeIn};
use lazaret::store::positions::PartitionId;
use lazaret::store::review::{Review, Scope};
use lazaret::store::transitions::{self, Cause, Change, FOLLOW_UP_CLOSED, Transition};
use lazaret::store::{Store, StoreError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::on_both_stores;
use crate::support::unique;

/// 2026-11-30T00:00:00Z.
const NOW: i64 = 1_796_083_200_000;

/// A DLQ of a test's own.
struct Feed {
    id: PartitionId,
    topic: String,
    next: i64,
    /// When all of them were dead-lettered; None: a second apart from [`NOW`] on.
    at_ms: Option<i64>,
}

impl Feed {
    async fn open(store: &Store) -> Feed {
        Feed::named(store, &unique("orders.DLQ")).await
    }

    async fn named(store: &Store, topic: &str) -> Feed {
        let (dlq, _) = store.ensure_dlq("main", topic, None, None, NOW).await.unwrap();
        let id = PartitionId { dlq_id: dlq.id, incarnation: dlq.incarnation, partition: 0 };
        store.ensure_position(id, 0, NOW).await.unwrap();
        Feed { id, topic: topic.to_owned(), next: 0, at_ms: None }
    }

    /// `count` messages; every third is of another failure group. Their ids in order.
    async fn take_in(&mut self, store: &Store, count: i64) -> Vec<i64> {
        let position = store.claim_position(self.id, NOW).await.unwrap().unwrap();
        let mut settings = DlqSettings::for_topics("main", TopicMatch::Names(vec![self.topic.clone()]));
        settings.owner = None;
        let message = |offset: i64| {
            let header = |name: &str, value: &str| Header { name: name.into(), value: Some(value.as_bytes().to_vec()) };
            let record = Record {
                topic: self.topic.clone(),
                partition: 0,
                offset,
                timestamp_ms: Some(self.at_ms.unwrap_or(NOW + offset * 1_000)),
                key: Some(format!("key-{offset}").into_bytes()),
                value: Some(format!("{{\"n\":{offset}}}").into_bytes()),
                headers: vec![
                    header("kafka_dlt-exception-fqcn", if offset % 3 == 0 { "com.acme.Odd" } else { "java.net.SocketTimeoutException" }),
                    header("kafka_dlt-exception-message", "it failed"),
                ],
            };
            lazaret::domain::message::quarantine(record, &settings, &[], NOW + 7_200_000)
        };
        let batch = PartitionBatch {
            id: self.id,
            owner_epoch: position.owner_epoch,
            expected_offset: self.next,
            next_offset: self.next + count,
            messages: (self.next..self.next + count).map(message).collect(),
        };
        let from = self.next;
        self.next += count;
        assert!(matches!(store.take_in(&[batch], NOW).await.unwrap(), TakeIn::Committed { .. }));
        let mut rows = self.messages(store).await;
        rows.retain(|row| row.offset >= from);
        rows.iter().rev().map(|row| row.id).collect()
    }

    /// Newest first.
    async fn messages(&self, store: &Store) -> Vec<MessageRow> {
        let filter = MessageFilter { topic: Some(self.topic.clone()), ..MessageFilter::default() };
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = store.messages(&filter, after, 500).await.unwrap();
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }
}

fn cause(actor: &str) -> Cause<'_> {
    Cause { at_ms: NOW + 5, actor, batch_id: None }
}

fn change(message_id: i64, from: MessageState, moves: &[Move]) -> Change<'_> {
    Change { message_id, from, moves, reason: Some("because"), evidence: Some("{\"asked\":\"GET 1\"}") }
}

async fn moved(store: &Store, changes: &[Change<'_>]) -> Result<Vec<i64>, StoreError> {
    let mut tx = store.begin().await?;
    let moved = transitions::move_messages(&mut tx, changes, &cause("ana")).await?;
    tx.commit().await?;
    Ok(moved)
}

/// One message along a path from quarantine.
async fn led(store: &Store, id: i64, moves: &[Move]) {
    assert_eq!(moved(store, &[change(id, MessageState::Quarantined, moves)]).await.unwrap(), [id]);
}

/// That a history begins at the beginning, leaves no step out, takes no arrow that is not on the diagram, and ends where the message is.
fn assert_on_the_diagram(row: &MessageRow, history: &[Transition]) {
    let mut state = MessageState::Quarantined;
    for step in history {
        assert_eq!(step.from_state, state.as_str(), "message {}: {history:?}", row.id);
        if step.movement == FOLLOW_UP_CLOSED {
            assert_eq!((state, step.to_state.as_str()), (MessageState::Archived, "archived"));
            continue;
        }
        let movement = Move::ALL.into_iter().find(|movement| movement.as_str() == step.movement).unwrap();
        state = state.after(movement).unwrap();
        assert_eq!(step.to_state, state.as_str());
    }
    assert_eq!(row.state, state, "message {}: {history:?}", row.id);
}

// The machine under sequences of events

/// Something that happens to some messages, each named by a number that is taken modulo how many there are.
#[derive(Debug, Clone)]
enum Happening {
    Arrive(i64),
    /// A change as of a state that may not be theirs any more, along moves that may not exist.
    Move {
        who: Vec<usize>,
        from: MessageState,
        moves: Vec<Move>,
    },
    /// The same, along the diagram from where the first of them is.
    Follow {
        who: Vec<usize>,
        choices: Vec<usize>,
    },
    Review {
        who: Vec<usize>,
        action: ReviewAction,
    },
    Outcome {
        who: Vec<usize>,
        from: Outcome,
        to: Outcome,
    },
    /// Two who do not know of each other move the same ones at once.
    Race {
        who: Vec<usize>,
        one: usize,
        other: usize,
    },
    Fold,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let who = || proptest::collection::vec(any::<usize>(), 1..6);
    let state = || proptest::sample::select(MessageState::ALL.to_vec());
    let outcome = || proptest::sample::select(Outcome::ALL.to_vec());
    let one = prop_oneof![
        1 => (1..5_i64).prop_map(Happening::Arrive),
        3 => (who(), state(), proptest::collection::vec(proptest::sample::select(Move::ALL.to_vec()), 1..4))
            .prop_map(|(who, from, moves)| Happening::Move { who, from, moves }),
        8 => (who(), proptest::collection::vec(any::<usize>(), 1..5)).prop_map(|(who, choices)| Happening::Follow { who, choices }),
        4 => (who(), proptest::sample::select(ReviewAction::ALL.to_vec())).prop_map(|(who, action)| Happening::Review { who, action }),
        3 => (who(), outcome(), outcome()).prop_map(|(who, from, to)| Happening::Outcome { who, from, to }),
        3 => (who(), any::<usize>(), any::<usize>()).prop_map(|(who, one, other)| Happening::Race { who, one, other }),
        1 => Just(Happening::Fold),
    ];
    proptest::collection::vec(one, 4..28)
}

/// What a message should be like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    state: MessageState,
    outcome: Option<Outcome>,
    follow_up: Option<FollowUp>,
    steps: usize,
}

impl Expected {
    fn moved(&mut self, to: MessageState, last: Move, steps: usize) {
        self.state = to;
        self.outcome = (last == Move::Sent).then_some(Outcome::Pending);
        self.follow_up = matches!(last, Move::SchemaUnfit | Move::Unsafe).then_some(FollowUp::Open);
        self.steps += steps;
    }
}

fn arrows(state: MessageState) -> Vec<(Move, MessageState)> {
    Move::ALL.into_iter().filter_map(|movement| Some((movement, state.after(movement).ok()?))).collect()
}

/// Lets everything happen to a DLQ of its own, then compares every message, its history and all counters with what should have become of them.
async fn lives_through(store: &Store, happenings: &[Happening]) {
    let mut feed = Feed::open(store).await;
    let mut ids = feed.take_in(store, 5).await;
    let fresh = Expected { state: MessageState::Quarantined, outcome: None, follow_up: None, steps: 0 };
    let mut expected: HashMap<i64, Expected> = ids.iter().map(|id| (*id, fresh.clone())).collect();
    let reviews = reviews(store);
    for happening in happenings {
        let named = |who: &[usize]| -> Vec<i64> {
            let mut named: Vec<i64> = who.iter().map(|n| ids[n % ids.len()]).collect();
            named.sort_unstable();
            named.dedup();
            named
        };
        match happening {
            Happening::Arrive(count) => {
                let new = feed.take_in(store, *count).await;
                expected.extend(new.iter().map(|id| (*id, fresh.clone())));
                ids.extend(new);
            }
            Happening::Move { who, from, moves } => {
                let who = named(who);
                let changes: Vec<Change<'_>> = who.iter().map(|id| change(*id, *from, moves)).collect();
                let end = moves.iter().try_fold(*from, |state, movement| state.after(*movement));
                match (moved(store, &changes).await, end) {
                    (Ok(moved), Ok(end)) => {
                        let mut should: Vec<i64> = who.iter().copied().filter(|id| expected[id].state == *from).collect();
                        should.sort_unstable();
                        assert_eq!(moved, should);
                        moved.iter().for_each(|id| expected.get_mut(id).unwrap().moved(end, moves[moves.len() - 1], moves.len()));
                    }
                    (Err(StoreError::InvalidMove(_)), Err(_)) => {}
                    (done, end) => panic!("{done:?} but {end:?}"),
                }
            }
            Happening::Follow { who, choices } => {
                let who = named(who);
                let from = expected[&who[0]].state;
                let (mut state, mut moves) = (from, Vec::new());
                for choice in choices {
                    let arrows = arrows(state);
                    if arrows.is_empty() {
                        break;
                    }
                    let (movement, to) = arrows[choice % arrows.len()];
                    moves.push(movement);
                    state = to;
                }
                let changes: Vec<Change<'_>> = who.iter().map(|id| change(*id, from, &moves)).collect();
                let done = moved(store, &changes).await.unwrap();
                let should: Vec<i64> = who.iter().copied().filter(|id| expected[id].state == from && !moves.is_empty()).collect();
                assert_eq!(done, should);
                done.iter().for_each(|id| expected.get_mut(id).unwrap().moved(state, moves[moves.len() - 1], moves.len()));
            }
            Happening::Review { who, action } => {
                let who = named(who);
                let should: Vec<i64> = who
                    .iter()
                    .copied()
                    .filter(|id| match action {
                        ReviewAction::CloseFollowUp => expected[id].follow_up == Some(FollowUp::Open),
                        ReviewAction::DrawLine => false,
                        action => action.moves(expected[id].state).is_some(),
                    })
                    .collect();
                match reviews.begin(&by("ana"), &OwnerScope::All, of_ids(*action, &who)).await {
                    Ok(review) => assert_eq!(review.changed as usize, should.len(), "{review:?}"),
                    Err(ReviewError::Conflict(_) | ReviewError::Invalid(_)) => assert_eq!(should, [] as [i64; 0], "{action:?}"),
                    Err(error) => panic!("{error}"),
                }
                for id in should {
                    let message = expected.get_mut(&id).unwrap();
                    let moves = action.moves(message.state).unwrap();
                    let end = moves.iter().fold(message.state, |state, movement| state.after(*movement).unwrap());
                    match moves.last() {
                        Some(last) => message.moved(end, *last, moves.len()),
                        None => {
                            message.follow_up = Some(FollowUp::Closed);
                            message.steps += 1;
                        }
                    }
                }
            }
            Happening::Outcome { who, from, to } => {
                let who = named(who);
                let wanted: Vec<_> = who.iter().map(|id| (*id, *from, *to)).collect();
                let mut tx = store.begin().await.unwrap();
                match transitions::set_outcomes(&mut tx, &wanted).await {
                    Ok(set) => {
                        tx.commit().await.unwrap();
                        let should: Vec<i64> = who.iter().copied().filter(|id| expected[id].outcome == Some(*from)).collect();
                        assert_eq!(set, should);
                        set.iter().for_each(|id| expected.get_mut(id).unwrap().outcome = Some(*to));
                    }
                    Err(StoreError::InvalidOutcome(_)) => assert!(!from.may_become(*to)),
                    Err(error) => panic!("{error}"),
                }
            }
            Happening::Race { who, one, other } => {
                let who = named(who);
                let from = expected[&who[0]].state;
                let arrows = arrows(from);
                if arrows.is_empty() {
                    continue;
                }
                let mut racers = tokio::task::JoinSet::new();
                for (n, backwards) in [(one, false), (other, true)] {
                    let (store, mut who, (movement, to)) = (store.clone(), who.clone(), arrows[n % arrows.len()]);
                    // Named in another order each, so that locks taken in the order of the names would be a deadlock.
                    if backwards {
                        who.reverse();
                    }
                    racers.spawn(async move {
                        let moves = [movement];
                        let changes: Vec<Change<'_>> = who.iter().map(|id| change(*id, from, &moves)).collect();
                        (movement, to, moved(&store, &changes).await.unwrap())
                    });
                }
                let mut seen: Vec<i64> = Vec::new();
                for (movement, to, moved) in racers.join_all().await {
                    seen.extend(&moved);
                    moved.iter().for_each(|id| expected.get_mut(id).unwrap().moved(to, movement, 1));
                }
                // A loser finds it elsewhere, unless the winner's arrow led back to the same state, which none does.
                seen.sort_unstable();
                let should: Vec<i64> = who.iter().copied().filter(|id| before(&expected[id], from, &seen, *id)).collect();
                assert_eq!(seen, should, "each by one of the two");
            }
            Happening::Fold => _ = store.fold_counters(7).await.unwrap(),
        }
    }
    for row in feed.messages(store).await {
        let history = store.transitions(row.id).await.unwrap();
        assert_on_the_diagram(&row, &history);
        let outcome = Outcome::ALL.into_iter().find(|outcome| Some(outcome.as_str()) == row.outcome.as_deref());
        let is = Expected { state: row.state, outcome, follow_up: row.follow_up, steps: history.len() };
        assert_eq!(is, expected[&row.id], "message {}: {history:?}", row.id);
    }
    assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    let counts = store.dlq_counts(Some(feed.id.dlq_id)).await.unwrap().remove(&feed.id.dlq_id).unwrap();
    let open = expected.values().filter(|message| message.follow_up == Some(FollowUp::Open)).count();
    assert_eq!((counts.depth() as usize, counts.follow_up_open as usize), (expected.values().filter(|m| m.state.is_open()).count(), open));
    let pending = expected.values().filter(|message| message.outcome == Some(Outcome::Pending)).count();
    assert_eq!(counts.outcomes.pending as usize, pending);
}

/// Whether a message of a race was in the state that both named: it was moved, so it is one of `seen`, or it is there still.
fn before(message: &Expected, from: MessageState, seen: &[i64], id: i64) -> bool {
    seen.contains(&id) || message.state == from
}

/// Enough to meet every arrow many times; a failing sequence is made smaller before it is shown.
fn sequences(store: &Store, cases: u32) {
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() });
    let handle = tokio::runtime::Handle::current();
    let lived = runner.run(&happenings(), |happenings| {
        let store = store.clone();
        // A panic in here is a failing case.
        tokio::task::block_in_place(|| handle.block_on(lives_through(&store, &happenings)));
        Ok(())
    });
    lived.unwrap();
}

on_both_stores! {
    async fn no_sequence_of_events_leaves_the_diagram_or_loses_a_step(store: Store) {
        sequences(&store, 40);
    }
}

// Reviews

fn by(name: &str) -> By {
    By { actor: name.to_owned(), request_id: Some("r-1".to_owned()) }
}

fn reviews(store: &Store) -> Reviews {
    let mut payments = DlqSettings::for_topics("main", TopicMatch::Names(vec!["payments.DLQ".to_owned()]));
    payments.owner = Some("payments".to_owned());
    Reviews { store: store.clone(), clock: Clock::fake(NOW + 7_200_000), dlqs: vec![payments].into() }
}

fn form() -> String {
    unique("form").replace('-', "0") + "0000000000000000"
}

fn of_ids(action: ReviewAction, ids: &[i64]) -> Request {
    Request { action, scope: Scope::Ids(ids.to_vec()), reason: Some("ticket PAY-1".to_owned()), form_id: form() }
}

fn of_filter(action: ReviewAction, filter: MessageFilter) -> Request {
    let scope = Scope::Filter { filter: Box::new(filter), query: "topic=orders".to_owned() };
    Request { action, scope, reason: Some("ticket PAY-1".to_owned()), form_id: form() }
}

async fn run(reviews: &Reviews, review: &Review) -> Review {
    while reviews.tick().await.unwrap() {}
    let done = reviews.store.review(review.id).await.unwrap().unwrap();
    assert!(!done.state.is_live());
    done
}

async fn trail(store: &Store) -> Vec<serde_json::Value> {
    let entries = store.events(&Default::default(), None, 500).await.unwrap();
    entries.iter().rev().map(|entry| serde_json::from_str(&entry.event).unwrap()).collect()
}

fn words(history: &[Transition]) -> Vec<&str> {
    history.iter().map(|step| step.movement.as_str()).collect()
}

fn states(rows: &[MessageRow]) -> HashMap<&'static str, usize> {
    rows.iter().fold(HashMap::new(), |mut states, row| {
        *states.entry(row.state.as_str()).or_default() += 1;
        states
    })
}

/// A batch that has this message, and whether it has not ended.
async fn batch_with(store: &Store, id: i64, message: i64, dlq_id: i64, live: bool) {
    const SQL: &str = "INSERT INTO replay_items (batch_id, message_id, place, group_id, stage, lap, live, state, body_hash)
        VALUES ($1, $2, $3, $3, 0, 1, $4, 'pending', $5)";
    match store {
        Store::Postgres(database) => {
            sqlx::query(SQL).bind(id).bind(message).bind(dlq_id).bind(live).bind(vec![0_u8]).execute(&database.pool).await.map(drop)
        }
        Store::Sqlite(database) => {
            sqlx::query(SQL).bind(id).bind(message).bind(dlq_id).bind(live).bind(vec![0_u8]).execute(&database.writer).await.map(drop)
        }
    }
    .unwrap();
}

on_both_stores! {
    async fn a_path_of_moves_is_a_row_each_and_the_last_says_why(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 3).await;
        led(&store, ids[0], &[Move::TakenUp, Move::CheckBegun, Move::SchemaFits, Move::Sent]).await;
        led(&store, ids[1], &[Move::TakenUp, Move::CheckBegun, Move::SchemaUnfit]).await;
        let history = store.transitions(ids[0]).await.unwrap();
        assert_eq!(words(&history), ["taken_up", "check_begun", "schema_fits", "sent"]);
        let said: Vec<_> = history.iter().map(|step| (step.reason.as_deref(), step.evidence.is_some())).collect();
        assert_eq!(said, [(None, false), (None, false), (None, false), (Some("because"), true)]);
        assert!(history.iter().all(|step| (step.actor.as_str(), step.at_ms, step.batch_id) == ("ana", NOW + 5, None)));
        let sent = store.message(ids[0]).await.unwrap().unwrap();
        assert_eq!((sent.state, sent.resolution.as_deref(), sent.outcome.as_deref()), (MessageState::Replayed, Some("sent"), Some("pending")));
        let unfit = store.message(ids[1]).await.unwrap().unwrap();
        assert_eq!((unfit.state, unfit.reason.as_deref(), unfit.follow_up), (MessageState::Archived, Some("because"), Some(FollowUp::Open)));
        assert_eq!(moved(&store, &[change(ids[0], MessageState::UnderReview, &[Move::Released])]).await.unwrap(), [] as [i64; 0], "it is elsewhere by now");
        // One move that does not exist, and nothing of the whole call is written.
        let bad = [change(ids[2], MessageState::Quarantined, &[Move::TakenUp]), change(ids[1], MessageState::Archived, &[Move::Sent])];
        assert!(matches!(moved(&store, &bad).await, Err(StoreError::InvalidMove(_))));
        assert_eq!(store.transitions(ids[2]).await.unwrap(), []);
        led(&store, ids[2], &[Move::TakenUp, Move::CheckBegun, Move::Held]).await;
        assert_eq!(store.message(ids[2]).await.unwrap().unwrap().reason.as_deref(), Some("because"), "a hold says why");
        moved(&store, &[change(ids[2], MessageState::UnderReview, &[Move::Released])]).await.unwrap();
        assert_eq!(store.message(ids[2]).await.unwrap().unwrap().reason, None, "and is over");
        let group = store.message(ids[0]).await.unwrap().unwrap().group_id;
        assert_eq!(store.group_outcomes(feed.id.dlq_id, &[group]).await.unwrap()[&group].pending, 1);
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    // Case S7.
    async fn archived_with_a_reason_restarted_and_restored_all_of_it_stays_in_the_history(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 2).await;
        reviews(&store).begin(&by("ana"), &OwnerScope::All, of_ids(ReviewAction::Archive, &ids[..1])).await.unwrap();
        // Another process: nothing but what is stored.
        let again = match &store {
            Store::Postgres(database) => {
                let name = database.pool.connect_options().get_database().unwrap().to_owned();
                let server = crate::support::Server::Postgres.address();
                format!("{}/{name}", server.rsplit_once('/').unwrap().0)
            }
            Store::Sqlite(database) => format!("sqlite://{}", database.writer.connect_options().get_filename().display()),
        };
        let store = Store::connect(&again).await.unwrap().with_audit_key(crate::support::audit_key());
        assert_eq!(store.message(ids[0]).await.unwrap().unwrap().reason.as_deref(), Some("ticket PAY-1"));
        let mut later = reviews(&store);
        later.clock = Clock::fake(NOW + 9_000_000);
        let wish = Request { reason: Some("archived by mistake".to_owned()), ..of_ids(ReviewAction::Restore, &ids[..1]) };
        later.begin(&by("bo"), &OwnerScope::All, wish).await.unwrap();
        let history = store.transitions(ids[0]).await.unwrap();
        let told: Vec<_> = history.iter().map(|step| (step.movement.as_str(), step.actor.as_str(), step.at_ms, step.reason.as_deref())).collect();
        assert_eq!(told, [
            ("taken_up", "ana", NOW + 7_200_000, None),
            ("archived", "ana", NOW + 7_200_000, Some("ticket PAY-1")),
            ("restored", "bo", NOW + 9_000_000, Some("archived by mistake")),
        ]);
        let row = store.message(ids[0]).await.unwrap().unwrap();
        assert_eq!((row.state, row.reason), (MessageState::UnderReview, None));
        let trail = trail(&store).await;
        let told: Vec<_> = trail.iter().map(|event| (event["action"].as_str().unwrap(), event["actor"].as_str().unwrap(), event["subject"].as_str().unwrap())).collect();
        let subject = format!("message {}", ids[0]);
        assert_eq!(told, [("messages_archived", "ana", subject.as_str()), ("messages_restored", "bo", subject.as_str())]);
        assert_eq!((&trail[0]["reason"], &trail[0]["after"]["messages"]), (&"ticket PAY-1".into(), &1.into()));
    }

    async fn what_is_in_a_live_replay_is_not_archived_or_released(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 4).await;
        led(&store, ids[0], &[Move::TakenUp]).await;
        batch_with(&store, 41, ids[0], feed.id.dlq_id, true).await;
        batch_with(&store, 40, ids[1], feed.id.dlq_id, false).await;
        let reviews = reviews(&store);
        for (action, marked) in [(ReviewAction::Archive, &ids[..1]), (ReviewAction::Release, &ids[..1]), (ReviewAction::Archive, &ids[..])] {
            let refused = reviews.begin(&by("ana"), &OwnerScope::All, of_ids(action, marked)).await.unwrap_err();
            let ReviewError::Conflict(said) = refused else { panic!("{refused}") };
            assert!(said.contains(&format!("Message {} is in replay 41", ids[0])), "{said}");
        }
        assert_eq!(trail(&store).await, Vec::<serde_json::Value>::new(), "nothing was done");
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("under_review", 1), ("quarantined", 3)]));
        // Of all that match, the others go and it is named.
        let filter = MessageFilter { topic: Some(feed.topic.clone()), ..MessageFilter::default() };
        let begun = reviews.begin(&by("ana"), &OwnerScope::All, of_filter(ReviewAction::Archive, filter)).await.unwrap();
        let done = run(&reviews, &begun).await;
        assert_eq!((done.total, done.seen, done.changed, done.in_replay, done.replays.as_slice()), (Some(4), 4, 3, 1, &[41][..]));
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("under_review", 1), ("archived", 3)]));
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    async fn a_line_is_drawn_under_old_messages_and_taken_back_as_one(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 5_200).await;
        led(&store, ids[10], &[Move::TakenUp]).await;
        let reviews = reviews(&store);
        let before = MessageFilter {
            cluster: Some("main".to_owned()),
            topic: Some(feed.topic.clone()),
            state: Some(MessageState::Quarantined),
            to_ms: Some(NOW + 5_000_000),
            ..MessageFilter::default()
        };
        let line = of_filter(ReviewAction::DrawLine, before);
        let begun = reviews.begin(&by("ana"), &OwnerScope::All, line.clone()).await.unwrap();
        assert_eq!((begun.state, begun.total, begun.dlq_id), (ReviewState::Counting, None, Some(feed.id.dlq_id)));
        assert_eq!(reviews.begin(&by("ana"), &OwnerScope::All, line).await.unwrap().id, begun.id, "the same form again");
        // What arrives meanwhile was not there when the line was drawn, however old it says it is.
        let mut late = Feed { id: feed.id, topic: feed.topic.clone(), next: feed.next, at_ms: Some(NOW) };
        assert!(reviews.tick().await.unwrap());
        let counting = store.review(begun.id).await.unwrap().unwrap();
        assert_eq!((counting.state, counting.total), (ReviewState::Running, Some(4_999)));
        assert!(reviews.tick().await.unwrap());
        let running = store.review(begun.id).await.unwrap().unwrap();
        assert_eq!((running.state, running.seen, running.changed), (ReviewState::Running, 2_000, 2_000));
        late.take_in(&store, 3).await;
        // Another instance goes on, with nothing but what is stored.
        let done = run(&Reviews { dlqs: reviews.dlqs.clone(), ..self::reviews(&store) }, &begun).await;
        assert_eq!((done.state, done.seen, done.changed, done.cursor), (ReviewState::Done, 4_999, 4_999, ids[0]));
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("archived", 4_999), ("under_review", 1), ("quarantined", 203)]));
        let row = store.message(ids[0]).await.unwrap().unwrap();
        assert_eq!(row.reason.as_deref(), Some("ticket PAY-1"));
        // One of them is restored and archived by hand since: it is not the line's any more.
        reviews.begin(&by("bo"), &OwnerScope::All, of_ids(ReviewAction::Restore, &ids[..2])).await.unwrap();
        reviews.begin(&by("bo"), &OwnerScope::All, of_ids(ReviewAction::Archive, &ids[..1])).await.unwrap();
        let undo = Request { scope: Scope::ArchivedBy(begun.id), ..of_ids(ReviewAction::Restore, &[]) };
        let undone = run(&reviews, &reviews.begin(&by("ana"), &OwnerScope::All, undo.clone()).await.unwrap()).await;
        assert_eq!((undone.total, undone.changed), (Some(4_997), 4_997));
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("archived", 1), ("under_review", 2), ("quarantined", 5_200)]));
        assert_eq!(words(&store.transitions(ids[3]).await.unwrap()), ["line_drawn", "restored", "released"]);
        let again = run(&reviews, &reviews.begin(&by("ana"), &OwnerScope::All, Request { form_id: form(), ..undo }).await.unwrap()).await;
        assert_eq!((again.total, again.changed), (Some(0), 0), "taken back twice is taken back once");
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
        let lines: Vec<_> = trail(&store).await.into_iter().filter(|event| event["action"] == "line_drawn").collect();
        let counted: Vec<_> = lines.iter().map(|event| event["after"]["messages"].as_i64()).collect();
        assert_eq!(counted, [None, Some(2_000), Some(2_000), Some(999)], "begun, then an event for each chunk");
        assert!(lines[1..].iter().all(|event| event["after"]["ids_sha256"].as_str().is_some_and(|digest| digest.len() == 64)));
    }

    /// As for an export: what somebody looks for may be what a mask hides.
    async fn what_was_searched_for_is_not_on_the_trail(store: Store) {
        let mut feed = Feed::open(&store).await;
        feed.take_in(&store, 2).await;
        let reviews = reviews(&store);
        let filter = MessageFilter { topic: Some(feed.topic.clone()), q: Some("4111".to_owned()), ..MessageFilter::default() };
        let scope = Scope::Filter { filter: Box::new(filter), query: "topic=orders&q=4111&key=%34111&owner=q".to_owned() };
        let begun = reviews.begin(&by("ana"), &OwnerScope::All, Request { scope, ..of_ids(ReviewAction::Archive, &[]) }).await.unwrap();
        let told = trail(&store).await;
        assert_eq!(told[0]["after"]["filter"], "topic=orders&q=given&key=given&owner=q");
        assert!(!format!("{told:?}").contains("4111"), "{told:?}");
        assert!(matches!(&begun.scope, Scope::Filter { query, .. } if query.contains("q=4111")), "the review itself goes on with it");
    }

    async fn a_stopped_review_stays_where_it_was(store: Store) {
        let mut feed = Feed::open(&store).await;
        feed.take_in(&store, 4_500).await;
        let reviews = reviews(&store);
        let filter = MessageFilter { topic: Some(feed.topic.clone()), state: Some(MessageState::Quarantined), ..MessageFilter::default() };
        let begun = reviews.begin(&by("ana"), &OwnerScope::All, of_filter(ReviewAction::TakeUp, filter)).await.unwrap();
        reviews.tick().await.unwrap();
        reviews.tick().await.unwrap();
        let stopped = reviews.stop(&by("bo"), &OwnerScope::All, begun.id).await.unwrap();
        assert_eq!((stopped.state, stopped.changed, stopped.total), (ReviewState::Stopped, 2_000, Some(4_500)));
        assert!(!reviews.tick().await.unwrap());
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("under_review", 2_000), ("quarantined", 2_500)]));
        assert!(matches!(reviews.stop(&by("bo"), &OwnerScope::All, begun.id).await, Ok(again) if again == stopped), "twice is once");
    }

    async fn follow_ups_stay_open_until_somebody_says_what_came_of_them(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 4).await;
        for id in &ids[..2] {
            led(&store, *id, &[Move::TakenUp, Move::CheckBegun, Move::SchemaFits, Move::Unsafe]).await;
        }
        let open = |word| MessageFilter { follow_up: Some(word), ..MessageFilter::default() };
        let listed = async |filter: MessageFilter| store.messages(&filter, None, 50).await.unwrap().items.iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(listed(open(FollowUp::Open)).await, [ids[1], ids[0]]);
        let reviews = reviews(&store);
        let silent = Request { reason: Some(" \u{200b}".to_owned()), ..of_ids(ReviewAction::CloseFollowUp, &ids[..1]) };
        assert!(matches!(reviews.begin(&by("ana"), &OwnerScope::All, silent).await, Err(ReviewError::Invalid(said)) if said.starts_with("Say why")));
        reviews.begin(&by("ana"), &OwnerScope::All, of_ids(ReviewAction::CloseFollowUp, &ids)).await.unwrap();
        assert_eq!(listed(open(FollowUp::Open)).await, [] as [i64; 0]);
        assert_eq!(listed(open(FollowUp::Closed)).await, [ids[1], ids[0]]);
        let row = store.message(ids[0]).await.unwrap().unwrap();
        assert_eq!((row.state, row.reason.as_deref()), (MessageState::Archived, Some("because")), "it stays archived, and why it was");
        let history = store.transitions(ids[0]).await.unwrap();
        assert_eq!(words(&history).last(), Some(&FOLLOW_UP_CLOSED));
        assert_eq!(history.last().unwrap().reason.as_deref(), Some("ticket PAY-1"));
        assert_eq!(store.dlq_counts(None).await.unwrap()[&feed.id.dlq_id].follow_up_open, 0);
        let again = reviews.begin(&by("ana"), &OwnerScope::All, of_ids(ReviewAction::CloseFollowUp, &ids[..1])).await;
        assert!(matches!(again, Err(ReviewError::Conflict(_))));
        assert_eq!(store.check_counters(feed.id.dlq_id).await.unwrap(), []);
    }

    async fn nobody_acts_on_what_is_not_theirs(store: Store) {
        let mut feed = Feed::open(&store).await;
        let mut payments = Feed::named(&store, "payments.DLQ").await;
        let (others, theirs) = (feed.take_in(&store, 2).await, payments.take_in(&store, 2).await);
        let reviews = reviews(&store);
        let scope = OwnerScope::Listed(vec!["payments".to_owned()]);
        let refused = reviews.begin(&by("olga"), &scope, of_ids(ReviewAction::TakeUp, &[theirs[0], others[0]])).await;
        assert!(matches!(refused, Err(ReviewError::Forbidden(said)) if said.contains("without an owner")));
        let filter = MessageFilter { topic: Some(feed.topic.clone()), ..MessageFilter::default() };
        assert!(matches!(reviews.begin(&by("olga"), &scope, of_filter(ReviewAction::TakeUp, filter)).await, Err(ReviewError::Forbidden(_))));
        // A filter over several DLQs: the others' are left alone and counted.
        let filter = MessageFilter { state: Some(MessageState::Quarantined), ..MessageFilter::default() };
        let begun = reviews.begin(&by("olga"), &scope, of_filter(ReviewAction::TakeUp, filter)).await.unwrap();
        let done = run(&reviews, &begun).await;
        assert_eq!((done.seen, done.changed, done.not_theirs), (4, 2, 2));
        assert_eq!(states(&feed.messages(&store).await), HashMap::from([("quarantined", 2)]));
        let asked = of_ids(ReviewAction::Release, &theirs);
        reviews.begin(&by("olga"), &scope, asked.clone()).await.unwrap();
        let other = Request { action: ReviewAction::TakeUp, ..asked };
        assert!(matches!(reviews.begin(&by("olga"), &scope, other).await, Err(ReviewError::Conflict(said)) if said.starts_with("This form has already")));
    }

    async fn what_cannot_be_taken_is_refused_with_the_remedy(store: Store) {
        let mut feed = Feed::open(&store).await;
        let ids = feed.take_in(&store, 1).await;
        let reviews = reviews(&store);
        let whole = of_filter(ReviewAction::Archive, MessageFilter::default());
        let topic = MessageFilter { topic: Some(feed.topic.clone()), ..MessageFilter::default() };
        let long = Request { reason: Some("x".repeat(501)), ..of_ids(ReviewAction::Archive, &ids) };
        let lost = Request { form_id: "short".to_owned(), ..of_ids(ReviewAction::TakeUp, &ids) };
        for (request, said) in [
            (of_ids(ReviewAction::TakeUp, &[]), "No message is marked"),
            (of_ids(ReviewAction::TakeUp, &(1..=501).collect::<Vec<_>>()), "501 messages are named: 500 at most"),
            (whole, "Nothing narrows the list"),
            (of_filter(ReviewAction::DrawLine, topic), "A line needs a DLQ and the instant"),
            (Request { reason: None, ..of_ids(ReviewAction::Archive, &ids) }, "Say why"),
            (long, "501 characters: 500 at most"),
            (lost, "The form has lost its number"),
        ] {
            let refused = reviews.begin(&by("ana"), &OwnerScope::All, request).await.unwrap_err();
            assert!(matches!(&refused, ReviewError::Invalid(sentence) if sentence.contains(said)), "{said}: {refused}");
        }
        let missing = reviews.begin(&by("ana"), &OwnerScope::All, of_ids(ReviewAction::TakeUp, &[ids[0], ids[0] + 99])).await;
        assert!(matches!(missing, Err(ReviewError::NotFound(_))));
        let wrong = reviews.begin(&by("ana"), &OwnerScope::All, of_ids(ReviewAction::Restore, &ids)).await;
        assert!(matches!(wrong, Err(ReviewError::Conflict(said)) if said.starts_with("The message is quarantined by now")));
        assert_eq!(trail(&store).await, Vec::<serde_json::Value>::new());
        assert_eq!(store.reviews(None, None, 10).await.unwrap(), [], "nothing of it is stored");
    }
}
