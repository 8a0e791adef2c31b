//! From a proposal to an approval: what is frozen, what the preflight forecasts, who may decide, and what voids it.

#![allow(
    clippy::unwrap_used,
    reason = "tests: the exception in clippy.toml does not reach the bodies that on_both_stores! makes functions of"
)]

mod api;
mod desk;
mod on_kafka;

use std::collections::BTreeSet;
use std::time::Duration;

use desk::{Desk, HOUR_MS, Letter, ana, approver, ben, operator};
use lazaret::domain::access::{OwnerScope, Role};
use lazaret::domain::message::MessageState;
use lazaret::domain::replay::{BatchState, Expected, Forecast, Step, Warning};
use lazaret::domain::verdict::{Check, Waiver};
use lazaret::services::replay::ReplayError;
use lazaret::services::replay::approval::Decider;
use lazaret::services::replay::propose::{Prepared, Submission};
use lazaret::store::Store;
use lazaret::store::audit::EventFilter;
use lazaret::store::messages::MessageFilter;

use crate::on_both_stores;

fn waiver(reason: &str) -> Waiver {
    Waiver { check: Check::Idempotency, verdict: "not_configured".into(), reason: reason.into() }
}

fn conflict(error: &ReplayError) -> &str {
    match error {
        ReplayError::Conflict(why) => why,
        other => panic!("not a conflict: {other:?}"),
    }
}

fn forbidden(error: &ReplayError) -> &str {
    match error {
        ReplayError::Forbidden(why) => why,
        other => panic!("not forbidden: {other:?}"),
    }
}

fn invalid(error: &ReplayError) -> (&'static str, &str) {
    match error {
        ReplayError::Invalid { field, problem } => (field, problem),
        other => panic!("not invalid: {other:?}"),
    }
}

/// How often something of this kind is on the trail.
async fn on_trail(store: &Store, action: lazaret::domain::audit::Action) -> usize {
    store.events(&EventFilter { action: Some(action), ..EventFilter::default() }, None, 100).await.unwrap().len()
}

on_both_stores! {
    /// The worked example up to its approval: 200 messages, of which 12 were applied and 3 do not fit.
    async fn the_outage_is_forecast_exactly_and_approved_by_another(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..200).map(|n| if n < 3 { Letter::unfit(n) } else { Letter::of(n) })).await;
        desk.applied((3..15).map(|n| n.to_string())).await;
        let draft = desk.propose(desk.everything()).await.unwrap().batch;
        assert_eq!((draft.state, draft.forecast, draft.progress.items), (BatchState::Draft, None, 0));
        desk.prepare().await;
        let batch = desk.batch(draft.id).await;
        let forecast = Forecast { send: 185, already_applied: 12, incompatible: 3, ..Forecast::default() };
        assert_eq!((batch.state, batch.forecast), (BatchState::AwaitingApproval, Some(forecast)), "{:?}", batch.note);
        assert_eq!((batch.progress.items, batch.progress.checked, batch.quorum), (200, 200, 1));
        assert_eq!(desk.states().await, [(MessageState::UnderReview, 200)].into());
        assert_eq!(desk.store.check_counters(batch.dlq_id).await.unwrap(), []);
        let verdicts = desk.store.verdicts(desk.ids().await[0]).await.unwrap();
        assert_eq!((verdicts.len(), verdicts[0].phase.as_str(), verdicts[0].decision.as_str()), (1, "preflight", "incompatible"));

        let digest = batch.digest.clone().unwrap();
        assert_eq!(digest.len(), 64);
        assert_eq!(desk.replays.recompute_digest(&batch).await.unwrap().void(), None);
        let approved = desk.replays.approve(&ben(), batch.id, &digest, &[], Some("looked at five")).await.unwrap();
        assert_eq!((approved.state, approved.approved_at_ms), (BatchState::Approved, Some(desk.clock.now_ms())));
        let approvals = desk.store.approvals(batch.id).await.unwrap();
        assert_eq!((approvals.len(), approvals[0].name.as_str(), approvals[0].digest.as_str()), (1, "ben", digest.as_str()));
        assert_eq!(desk.replays.recompute_digest(&approved).await.unwrap().digest, digest);
    }

    async fn what_is_frozen_is_what_waited_when_it_was_proposed(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..6_100).map(|n| if n % 2 == 0 { Letter::of(n) } else { Letter { failure: "other", ..Letter::of(n) } })).await;
        let ids = desk.ids().await;
        // One is with somebody already, one is gone, and one comes too late.
        desk.take_up(&ids[..1]).await;
        desk.archive(&ids[2..3]).await;
        let group = desk.store.message(ids[0]).await.unwrap().unwrap().group_id;
        let filter = MessageFilter { group_id: Some(group), ..MessageFilter::default() };
        let draft = desk.propose(desk.filter(filter, "group=1")).await.unwrap().batch;
        assert_eq!(draft.as_of_message_id, *ids.last().unwrap());
        desk.take_in([Letter::of(7_000)]).await;
        desk.prepare().await;
        let batch = desk.batch(draft.id).await;
        assert_eq!(batch.state, BatchState::AwaitingApproval, "{:?}", batch.note);
        let frozen = desk.items(batch.id).await;
        let expected: BTreeSet<i64> = ids.iter().copied().step_by(2).filter(|id| *id != ids[2]).collect();
        assert_eq!(frozen.iter().map(|item| item.message_id).collect::<BTreeSet<_>>(), expected);
        assert_eq!(batch.progress.items, 3_049);
        let taken_up = frozen.iter().filter(|item| item.taken_up).count();
        assert_eq!(taken_up, 3_048, "one was under review before");
        assert_eq!(desk.states().await, [(MessageState::UnderReview, 3_049), (MessageState::Quarantined, 3_051), (MessageState::Archived, 1)].into());
        assert_eq!(desk.store.check_counters(batch.dlq_id).await.unwrap(), []);
        // Stages: the canary, ten times that, the rest.
        let of_stage = |stage| frozen.iter().filter(|item| item.stage == stage).count();
        assert_eq!((of_stage(0), of_stage(1), of_stage(2), of_stage(3)), (10, 100, 1_000, 1_939));
    }

    /// R7
    async fn r7_a_form_posted_twice_at_once_is_one_batch(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let proposal = desk.everything();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (replays, proposal) = (desk.replays.clone(), proposal.clone());
            tasks.spawn(async move { replays.propose(&ana().by, &OwnerScope::All, proposal).await.unwrap() });
        }
        let answers = tasks.join_all().await;
        let ids: BTreeSet<i64> = answers.iter().map(|answer| answer.batch.id).collect();
        assert_eq!((ids.len(), answers.iter().filter(|answer| !answer.repeated).count()), (1, 1));
        desk.prepare().await;
        assert_eq!(desk.batch(*ids.first().unwrap()).await.progress.items, 5);
        let other = desk.replays.propose(&ben().by, &OwnerScope::All, proposal).await.unwrap_err();
        assert!(conflict(&other).contains("somebody else"));
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::ReplayProposed).await, 1);
    }

    /// R8
    async fn r8_two_who_freeze_the_same_messages_at_once_share_none(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((1..=15).map(Letter::of)).await;
        let ids = desk.ids().await;
        let a = desk.propose(desk.named(&ids[..10])).await.unwrap().batch;
        let b = desk.propose(desk.named(&ids[5..])).await.unwrap().batch;
        let mut tasks = tokio::task::JoinSet::new();
        for batch in [a.clone(), b.clone()] {
            let replays = desk.replays.clone();
            tasks.spawn(async move { replays.prepare_batch(&batch).await.unwrap() });
        }
        tasks.join_all().await;
        desk.prepare().await;
        let (a, b) = (desk.batch(a.id).await, desk.batch(b.id).await);
        assert_eq!(a.progress.items + b.progress.items, 15, "each message is in one of them");
        let (first, second) = if a.progress.items == 10 { (&a, &b) } else { (&b, &a) };
        assert_eq!((first.progress.items, second.progress.items), (10, 5));
        assert!(second.warnings.contains(&Warning::InOtherReplay { batch: first.id, items: 5 }), "{:?}", second.warnings);
        let log = desk.store.batch_log(second.id, 10).await.unwrap();
        assert!(log.iter().any(|line| line.entry.contains(&format!("5 are in replay {}", first.id))), "{log:?}");
    }

    /// S1
    async fn s1_nobody_approves_their_own_whatever_their_role_or_the_case_of_their_name(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let digest = batch.digest.clone().unwrap();
        let admin = Decider { role: Role::Admin, ..ana() };
        let shouting = Decider { by: desk::by("ANA"), ..approver("ana") };
        // Whatever a caller folded, the name itself is looked at.
        let misfolded = Decider { folded: "somebody else".into(), ..admin.clone() };
        for who in [ana(), admin, shouting, approver("\u{ff21}na"), misfolded] {
            let error = desk.replays.approve(&who, batch.id, &digest, &[], None).await.unwrap_err();
            assert!(forbidden(&error).contains("another approver"), "{error}");
        }
        let operator = desk.replays.approve(&operator("olga"), batch.id, &digest, &[], None).await.unwrap_err();
        assert!(forbidden(&operator).contains("role approver"));
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::ReplayRefused).await, 6);
        assert_eq!(desk.batch(batch.id).await.state, BatchState::AwaitingApproval);
    }

    /// S8
    async fn s8_an_approver_of_one_owner_does_not_decide_for_another(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let digest = batch.digest.clone().unwrap();
        let fraud = Decider { scope: OwnerScope::Listed(vec!["fraud".into()]), ..ben() };
        let refusals = [
            desk.replays.approve(&fraud, batch.id, &digest, &[], None).await.unwrap_err(),
            desk.replays.reject(&fraud, batch.id, "no").await.unwrap_err(),
            desk.replays.stop(&fraud, batch.id, None).await.unwrap_err(),
            desk.replays.slow_down(&fraud, batch.id, 1).await.unwrap_err(),
            desk.replays.propose(&fraud.by, &fraud.scope, desk.everything()).await.unwrap_err(),
            desk.replays.submit(&fraud.by, &fraud.scope, batch.id, Submission::default()).await.unwrap_err(),
        ];
        for error in &refusals {
            assert!(forbidden(error).contains("payments's"), "{error}");
        }
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::ReplayRefused).await, refusals.len());
        let payments = Decider { scope: OwnerScope::Listed(vec!["payments".into()]), ..ben() };
        assert_eq!(desk.replays.approve(&payments, batch.id, &digest, &[], None).await.unwrap().state, BatchState::Approved);
    }

    async fn of_two_racing_approvers_one_wins_and_the_other_hears_the_name(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let digest = batch.digest.clone().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for name in ["ben", "cleo", "dan"] {
            let (replays, digest, id) = (desk.replays.clone(), digest.clone(), batch.id);
            tasks.spawn(async move { (name, replays.approve(&approver(name), id, &digest, &[], None).await) });
        }
        let (won, lost): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().partition(|(_, answer)| answer.is_ok());
        assert_eq!((won.len(), lost.len()), (1, 2));
        for (_, error) in lost {
            assert!(conflict(&error.unwrap_err()).contains(&format!("{} approved", won[0].0)));
        }
        assert_eq!(desk.store.approvals(batch.id).await.unwrap().len(), 1);
    }

    async fn a_large_batch_needs_two_and_nobody_counts_twice(store: Store) {
        let desk = Desk::with_ledger(store).await.approval(|terms| (terms.large_batch, terms.large_quorum) = (5, 2));
        desk.take_in((0..5).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let digest = batch.digest.clone().unwrap();
        assert_eq!(batch.quorum, 2);
        assert_eq!(desk.replays.approve(&ben(), batch.id, &digest, &[], None).await.unwrap().state, BatchState::AwaitingApproval);
        let again = desk.replays.approve(&Decider { by: desk::by("BEN"), ..ben() }, batch.id, &digest, &[], None).await.unwrap_err();
        assert!(conflict(&again).contains("already"), "{again}");
        assert_eq!(desk.replays.approve(&approver("cleo"), batch.id, &digest, &[], None).await.unwrap().state, BatchState::Approved);
    }

    /// S2
    async fn s2_what_changes_after_the_approval_voids_it_and_slower_does_not(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..20).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let wrong = desk.replays.approve(&ben(), batch.id, &"0".repeat(64), &[], None).await.unwrap_err();
        assert!(conflict(&wrong).contains("not the one that was shown"));
        let batch = desk.approved(batch).await;
        let void = async || desk.replays.recompute_digest(&desk.batch(batch.id).await).await.unwrap().void();
        assert_eq!(void().await, None);

        let slower = desk.replays.slow_down(&ben(), batch.id, 7).await.unwrap();
        assert_eq!((slower.plan.max_per_second, slower.agreed_per_second, slower.state), (7, Some(50), BatchState::Approved));
        assert_eq!(void().await, None, "slower is as agreed");
        let faster = desk.replays.slow_down(&ben(), batch.id, 8).await.unwrap_err();
        assert!(invalid(&faster).0 == "max_per_second" && invalid(&faster).1.contains("new approval"), "{faster}");
        assert_eq!(desk.replays.slow_down(&ben(), batch.id, 3).await.unwrap().agreed_per_second, Some(50));
        assert_eq!(void().await, None);

        desk.change("UPDATE batches SET plan = REPLACE(plan, '\"max_per_second\":3', '\"max_per_second\":51')").await;
        assert_eq!(void().await.unwrap(), "approval void: the pace changed");
        desk.change("UPDATE batches SET plan = REPLACE(plan, '\"max_per_second\":51', '\"max_per_second\":50')").await;
        assert_eq!(void().await, None);
        desk.change("UPDATE batches SET reason = 'another'").await;
        assert_eq!(void().await.unwrap(), "approval void: the reason changed");
        desk.change("UPDATE batches SET reason = 'the wallet database was down'").await;
        desk.change("DELETE FROM replay_items WHERE message_id = (SELECT MAX(message_id) FROM replay_items)").await;
        assert_eq!(void().await.unwrap(), "approval void: the messages changed");
    }

    async fn s2_a_message_that_changed_voids_the_approval(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..20).map(Letter::of)).await;
        let batch = desk.approved(desk.proposed(desk.everything()).await).await;
        desk.change("UPDATE messages SET body_hash = (SELECT body_hash FROM messages ORDER BY id LIMIT 1) WHERE id = (SELECT MAX(id) FROM messages)").await;
        assert_eq!(desk.replays.recompute_digest(&batch).await.unwrap().void().unwrap(), "approval void: the messages changed");
    }

    /// S9
    async fn s9_settings_of_the_checks_that_change_void_the_approval(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let proposed = desk.proposed(desk.everything()).await;
        let digest = proposed.digest.clone().unwrap();
        let void_of = async |changed: &Desk| changed.replays.recompute_digest(&desk.batch(proposed.id).await).await.unwrap().void();
        for (word, from, to) in [
            ("the settings of its checks", "business_key = '{value:/id}'", "business_key = '{header:id}'"),
            ("the settings of its checks", "ledger = 'wallet'", "ledger = 'other'"),
            ("the settings of its checks", "event_id IN", "event_id NOT IN"),
            ("the partitioner", "owner = 'payments'", "owner = 'payments'\npartitioner = 'consistent_random'"),
            ("the order", "owner = 'payments'", "owner = 'payments'\norder = 'none'"),
            ("the target topic", "targets = ['origin', 'payments.retry']", "targets = ['payments.retry']"),
        ] {
            let changed = desk.configured(|text| text.replace(from, to)).await;
            let void = void_of(&changed).await.unwrap();
            assert!(void.starts_with("approval void: ") && void.contains(word), "{to}: {void}");
            let error = changed.replays.approve(&ben(), proposed.id, &digest, &[], None).await.unwrap_err();
            assert!(conflict(&error).contains("approval void"), "{error}");
        }
        let other_group = desk.configured(|text| text.replace("consumer_group = 'wallet'", "consumer_group = 'wallet-2'")).await;
        assert_eq!(void_of(&other_group).await.unwrap(), "approval void: the consumer group changed");
        assert_eq!(void_of(&desk).await, None);
        desk.write("payment.json", r#"{"type":"object"}"#);
        assert_eq!(void_of(&desk).await.unwrap(), "approval void: the settings of its checks changed");
        let gone = desk.configured(|text| text.replace("topics = ['payments.DLQ']", "topics = ['other.DLQ']")).await;
        assert_eq!(void_of(&gone).await.unwrap(), "approval void: the configuration of this DLQ changed");
    }

    async fn proposals_and_approvals_expire_and_give_everything_back(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let ids = desk.ids().await;
        desk.take_up(&ids[..2]).await;
        let before = desk.states().await;
        let proposed = desk.proposed(desk.everything()).await;
        assert_eq!(desk.states().await, [(MessageState::UnderReview, 5)].into());
        desk.clock.step(Duration::from_secs(86_399));
        desk.prepare().await;
        assert_eq!(desk.batch(proposed.id).await.state, BatchState::AwaitingApproval);
        desk.clock.step(Duration::from_secs(1));
        let late = desk.replays.approve(&ben(), proposed.id, proposed.digest.as_deref().unwrap(), &[], None).await.unwrap_err();
        assert!(conflict(&late).contains("expired"), "{late}");
        desk.prepare().await;
        let expired = desk.batch(proposed.id).await;
        assert_eq!((expired.state, expired.step, expired.progress.not_sent), (BatchState::Expired, Step::Released, 5));
        assert_eq!(desk.states().await, before, "what it took it gave back, and no more");
        assert_eq!(desk.store.check_counters(expired.dlq_id).await.unwrap(), []);

        let approved = desk.approved(desk.proposed(desk.everything()).await).await;
        assert_eq!(approved.progress.items, 5, "they are free again");
        desk.clock.step(Duration::from_secs(14_400));
        desk.prepare().await;
        assert_eq!(desk.batch(approved.id).await.state, BatchState::Expired);
        assert_eq!(desk.states().await, before);
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::ReplayExpired).await, 2);
    }

    async fn rejected_and_stopped_batches_give_back_at_once(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let before = desk.states().await;
        let proposed = desk.proposed(desk.everything()).await;
        let empty = desk.replays.reject(&ben(), proposed.id, " \u{200b} ").await.unwrap_err();
        assert_eq!(invalid(&empty).0, "reason");
        let rejected = desk.replays.reject(&ben(), proposed.id, "not before the fix").await.unwrap();
        assert_eq!((rejected.state, rejected.note.as_deref()), (BatchState::Rejected, Some("rejected by ben: not before the fix")));
        assert_eq!(desk.states().await, before);
        let late = desk.replays.approve(&approver("cleo"), proposed.id, proposed.digest.as_deref().unwrap(), &[], None).await.unwrap_err();
        assert!(conflict(&late).contains("rejected by ben: not before the fix"), "{late}");

        for stage in [0, 1, 2] {
            let batch = match stage {
                0 => desk.propose(desk.everything()).await.unwrap().batch,
                1 => desk.proposed(desk.everything()).await,
                _ => desk.approved(desk.proposed(desk.everything()).await).await,
            };
            let stopped = desk.replays.stop(&operator("olga"), batch.id, Some("changed my mind")).await.unwrap();
            assert_eq!((stopped.state, stopped.step), (BatchState::Cancelled, Step::Released));
            assert_eq!(desk.states().await, before, "stage {stage}");
            let again = desk.replays.stop(&operator("olga"), batch.id, None).await.unwrap_err();
            assert!(conflict(&again).contains("cancelled"), "{again}");
        }
        desk.prepare().await;
        assert_eq!(desk.states().await, before, "a draft that was stopped freezes nothing more");
    }

    /// K7
    async fn k7_without_a_ledger_a_waiver_with_a_reason_one_more_approver_and_a_canary(store: Store) {
        let desk = Desk::new(store, "[dlq.schema]\nuse = 'payment'\n").await;
        desk.take_in((0..5).map(Letter::of)).await;
        let held = desk.propose(desk.everything()).await.unwrap().batch;
        desk.prepare().await;
        let held = desk.batch(held.id).await;
        assert_eq!((held.state, held.forecast), (BatchState::Draft, Some(Forecast { held: 5, ..Forecast::default() })));
        assert!(held.note.as_deref().unwrap().contains("nothing would be sent: 5 held"), "{:?}", held.note);
        let lines = held.warnings.iter().find_map(|warning| match warning {
            Warning::CheckMissing { check: Check::Idempotency, lines } => Some(lines.clone()),
            _ => None,
        });
        assert!(lines.unwrap().contains("[dlq.idempotency]"));

        let submit = async |waivers: Vec<Waiver>| desk.replays.submit(&ana().by, &OwnerScope::All, held.id, Submission { why_now: None, waivers }).await;
        assert_eq!(invalid(&submit(vec![]).await.unwrap_err()).0, "waivers");
        assert!(invalid(&submit(vec![waiver("  ")]).await.unwrap_err()).1.contains("needs a reason"));
        let draft = submit(vec![waiver("the wallet has a unique key")]).await.unwrap();
        assert_eq!((draft.state, draft.forecast), (BatchState::Draft, None), "preflighted anew");
        desk.prepare().await;
        let batch = desk.batch(held.id).await;
        assert_eq!(batch.forecast, Some(Forecast { send_unchecked: 5, ..Forecast::default() }));
        assert_eq!((batch.state, batch.quorum, batch.tally.waived), (BatchState::AwaitingApproval, 2, 5));

        let mut proposal = desk.everything();
        (proposal.waivers, proposal.canary) = (vec![waiver("x")], Some(0));
        assert_eq!(invalid(&desk.propose(proposal).await.unwrap_err()).0, "canary");
    }

    async fn only_so_many_go_by_waivers(store: Store) {
        let desk = Desk::new(store, "waiver_max_items = 4\n[dlq.schema]\nuse = 'payment'\n").await;
        desk.take_in((0..5).map(Letter::of)).await;
        let mut proposal = desk.everything();
        proposal.waivers = vec![waiver("the wallet has a unique key")];
        let batch = desk.propose(proposal).await.unwrap().batch;
        desk.prepare().await;
        let batch = desk.batch(batch.id).await;
        assert_eq!(batch.state, BatchState::Draft);
        assert!(batch.note.as_deref().unwrap().contains("5 messages would go by its waivers, and 4 may"), "{:?}", batch.note);
        let error = desk.replays.submit(&ana().by, &OwnerScope::All, batch.id, Submission::default()).await.unwrap_err();
        assert_eq!(invalid(&error).0, "waivers");
    }

    async fn a_standing_waiver_needs_no_other_and_is_shown(store: Store) {
        let desk = Desk::new(store, "consumer_is_idempotent = 'unique key'\nwaiver_max_items = 1\n[dlq.schema]\nuse = 'payment'\n").await;
        desk.take_in((0..5).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        assert_eq!((batch.forecast.unwrap().send_unchecked, batch.quorum), (5, 1));
        assert!(batch.warnings.contains(&Warning::ConsumerIsIdempotent { why: "unique key".into() }));
    }

    async fn later_items_of_a_key_are_blocked_and_none_goes_before_an_earlier_one(store: Store) {
        let desk = Desk::with_ledger(store).await;
        // Key a: one that does not fit, then two that do. Key b: one that is applied, then one that is not. Each other key once.
        let mut letters = vec![
            Letter { key: Some("a"), ..Letter::of(1) },
            Letter { key: Some("a"), ..Letter::unfit(0) },
            Letter { key: Some("a"), ..Letter::of(2) },
            Letter { key: Some("b"), ..Letter::of(3) },
            Letter { key: Some("b"), ..Letter::of(4) },
            Letter { key: None, ..Letter::unfit(5) },
            Letter { key: None, ..Letter::of(6) },
        ];
        // By origin: 0 (unfit), 1, 2; taken in in another order.
        letters.extend((10..40).map(Letter::of));
        desk.take_in(letters).await;
        desk.applied(["3".to_owned()]).await;
        let batch = desk.proposed(desk.everything()).await;
        let forecast = Forecast { send: 32, already_applied: 1, incompatible: 2, blocked: 2, ..Forecast::default() };
        assert_eq!(batch.forecast, Some(forecast));
        let items = desk.items(batch.id).await;
        let blocked: Vec<_> = items.iter().filter(|item| item.forecast == Expected::Blocked.as_str()).collect();
        let unfit = items.iter().find(|item| item.place == 0).unwrap().message_id;
        assert!(blocked.iter().all(|item| item.blocked_by == Some(unfit)) && blocked.len() == 2);
        for later in &items {
            let earlier = items.iter().filter(|item| item.key_hash.is_some() && item.key_hash == later.key_hash && item.place < later.place);
            assert!(earlier.map(|item| item.stage).max().is_none_or(|stage| stage <= later.stage), "{later:?}");
        }
        let canary: Vec<_> = items.iter().filter(|item| item.stage == 0).collect();
        assert_eq!(canary.len(), 10);
        assert!(canary.iter().all(|item| item.forecast == "send"), "a canary that is not sent proves nothing");
    }

    async fn order_none_blocks_nothing(store: Store) {
        let desk = Desk::with_ledger(store).await.configured(|text| text.replace("owner = 'payments'", "owner = 'payments'\norder = 'none'")).await;
        desk.take_in([Letter { key: Some("a"), ..Letter::unfit(0) }, Letter { key: Some("a"), ..Letter::of(1) }]).await;
        let batch = desk.proposed(desk.everything()).await;
        assert_eq!(batch.forecast, Some(Forecast { send: 1, incompatible: 1, ..Forecast::default() }));
        assert!(desk.items(batch.id).await.iter().all(|item| item.key_hash.is_none()));
    }

    async fn an_active_cause_asks_why_now(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        desk.take_in([Letter { age_ms: 60_000, ..Letter::of(9) }]).await;
        let batch = desk.propose(desk.everything()).await.unwrap().batch;
        desk.prepare().await;
        let draft = desk.batch(batch.id).await;
        assert_eq!((draft.state, draft.note.as_deref()), (BatchState::Draft, Some("say why now: the cause looks active")));
        assert!(draft.warnings.contains(&Warning::CauseActive { arrivals: 1 }), "{:?}", draft.warnings);
        let before = draft.digest.clone().unwrap();
        let submit = async |why_now: Option<&str>| {
            let submission = Submission { why_now: why_now.map(str::to_owned), waivers: Vec::new() };
            desk.replays.submit(&ana().by, &OwnerScope::All, batch.id, submission).await
        };
        assert_eq!(invalid(&submit(None).await.unwrap_err()).0, "why_now");
        let submitted = submit(Some("customers are waiting")).await.unwrap();
        assert_eq!((submitted.state, submitted.why_now.as_deref()), (BatchState::AwaitingApproval, Some("customers are waiting")));
        assert_ne!(submitted.digest.as_ref(), Some(&before), "what was said is part of what is agreed to");
        assert_eq!(desk.replays.recompute_digest(&submitted).await.unwrap().void(), None);
    }

    async fn other_readers_are_ticked_and_laps_and_strangers_are_told(store: Store) {
        let readers = "[[dlq.also_read_by]]\ngroup = 'fraud'\nledger = 'fraud'\n[[dlq.also_read_by]]\ngroup = 'mail'\n";
        let desk = Desk::new(store, &format!("max_laps = 2\n{}{readers}", desk::CHECKED)).await;
        desk.take_in((0..5).map(Letter::of)).await;
        desk.take_in([Letter { lap: Some(2), ..Letter::of(10) }, Letter { lap: Some(3), ..Letter::of(11) }]).await;
        desk.applied_in("fraud", ["0".to_owned(), "1".to_owned()]).await;
        let batch = desk.proposed(desk.everything()).await;
        let places: Vec<usize> = (0..batch.warnings.len()).filter(|at| batch.warnings[*at].must_be_ticked()).collect();
        assert_eq!(places.len(), 2, "{:?}", batch.warnings);
        assert!(matches!(&batch.warnings[places[0]], Warning::AlsoReadBy { group, items: 2, why } if group == "fraud" && why.contains("applied")));
        assert!(matches!(&batch.warnings[places[1]], Warning::AlsoReadBy { group, items: 7, .. } if group == "mail"));
        assert!(batch.warnings.contains(&Warning::Laps { items: 2, max: 2 }), "{:?}", batch.warnings);
        let digest = batch.digest.clone().unwrap();
        for ticked in [&[][..], &places[..1], &[99]] {
            assert_eq!(invalid(&desk.replays.approve(&ben(), batch.id, &digest, ticked, None).await.unwrap_err()).0, "ticked");
        }
        assert_eq!(desk.replays.approve(&ben(), batch.id, &digest, &places, None).await.unwrap().state, BatchState::Approved);
    }

    async fn messages_of_several_origins_need_a_named_target(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..4).map(Letter::of)).await;
        desk.take_in([Letter { origin: Some("payments.other"), ..Letter::of(10) }, Letter { origin: None, ..Letter::of(11) }]).await;
        let error = desk.propose(desk.everything()).await.unwrap_err();
        let (field, problem) = invalid(&error);
        assert_eq!(field, "target");
        for part in ["4 from payments.initiated", "1 from payments.other", "1 from a topic that nobody knows", "payments.retry"] {
            assert!(problem.contains(part), "{problem}");
        }
        let mut proposal = desk.everything();
        proposal.target = Some("payments.retry".into());
        let batch = desk.proposed(proposal).await;
        assert_eq!((batch.plan.target.as_str(), batch.progress.items, batch.plan.group.as_deref()), ("payments.retry", 6, Some("wallet-retry")));
        // What is left of the targets is "origin", and this is not where all of them came from.
        let without = desk.configured(|text| text.replace("'origin', 'payments.retry'", "'origin'").replace("target_groups =", "tenant = '{key}' #")).await;
        assert_eq!(desk.replays.recompute_digest(&batch).await.unwrap().void(), None);
        assert!(without.replays.recompute_digest(&batch).await.unwrap().void().unwrap().contains("the target topic"));
    }

    async fn what_cannot_be_taken_is_refused_at_its_field(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..4).map(Letter::of)).await;
        let ids = desk.ids().await;
        type Change = fn(&mut lazaret::services::replay::propose::Proposal, &[i64]);
        let cases: Vec<(&str, &str, Change)> = vec![
            ("reason", "say something", |p, _| p.reason = "\u{200b} ".into()),
            ("target", "is not among the targets", |p, _| p.target = Some("elsewhere".into())),
            ("max_per_second", "1 to 50", |p, _| p.max_per_second = Some(51)),
            ("max_per_second", "1 to 50", |p, _| p.max_per_second = Some(0)),
            ("stop_on_returned_pct", "percent", |p, _| p.stop_on_returned_pct = Some(101)),
            ("transform", "", |p, _| p.transform = Some(".a |".into())),
            ("waivers", "can be waived", |p, _| p.waivers = vec![Waiver { check: Check::Schema, verdict: "incompatible".into(), reason: "x".into() }]),
            ("topic", "there is no DLQ", |p, _| p.topic = "nowhere.DLQ".into()),
            ("emergency", "are off", |p, _| (p.emergency, p.incident) = (true, Some("INC-1".into()))),
            ("form_id", "lost its number", |p, _| p.form_id = String::new()),
            ("message_ids", "do not wait", |p, ids| p.wanted = lazaret::services::replay::propose::Wanted::Ids(vec![ids[0], 999_999])),
            ("message_ids", "name 1 to", |p, _| p.wanted = lazaret::services::replay::propose::Wanted::Ids(vec![])),
        ];
        for (field, word, change) in cases {
            let mut proposal = desk.everything();
            change(&mut proposal, &ids);
            let error = desk.propose(proposal).await.unwrap_err();
            let (at, problem) = invalid(&error);
            assert!(at == field && problem.contains(word), "{field}: {error}");
        }
        for (filter, word) in [
            (MessageFilter { state: Some(MessageState::Archived), ..MessageFilter::default() }, "cannot be replayed"),
            (MessageFilter { topic: Some("other.DLQ".into()), ..MessageFilter::default() }, "one replay is of one DLQ"),
            (MessageFilter { group_id: Some(999), ..MessageFilter::default() }, "no message that waits"),
        ] {
            let error = desk.propose(desk.filter(filter, "x")).await.unwrap_err();
            assert!(invalid(&error).1.contains(word), "{error}");
        }
        assert_eq!(desk.states().await, [(MessageState::Quarantined, 4)].into());
    }

    async fn an_emergency_replay_is_small_loud_and_reviewed(store: Store) {
        let desk = Desk::with_ledger(store).await.configured(|text| text.replace("owner = 'payments'", "owner = 'payments'\nemergency_replay = true\nemergency_max_items = 5")).await;
        desk.take_in((0..40).map(Letter::of)).await;
        let ids = desk.ids().await;
        let emergency = |ids: &[i64]| {
            let mut proposal = desk.named(ids);
            (proposal.emergency, proposal.incident) = (true, Some("INC-7".into()));
            proposal
        };
        let mut nameless = emergency(&ids[..3]);
        nameless.incident = None;
        assert_eq!(invalid(&desk.propose(nameless).await.unwrap_err()).0, "incident");
        let mut waived = emergency(&ids[..3]);
        waived.waivers = vec![waiver("x")];
        assert_eq!(invalid(&desk.propose(waived).await.unwrap_err()).0, "waivers");
        let mut straight = emergency(&ids[..3]);
        straight.canary = Some(0);
        assert_eq!(invalid(&desk.propose(straight).await.unwrap_err()).0, "canary");

        let large = desk.propose(emergency(&ids[30..36])).await.unwrap().batch;
        desk.prepare().await;
        assert!(desk.batch(large.id).await.note.unwrap().contains("at most 5 messages"));

        let mut approved = Vec::new();
        for n in 0..4 {
            let batch = desk.proposed(emergency(&ids[n * 3..n * 3 + 3])).await;
            let digest = batch.digest.clone().unwrap();
            let usual = desk.replays.approve(&ben(), batch.id, &digest, &[], None).await.unwrap_err();
            assert!(forbidden(&usual).contains("password"), "{usual}");
            let operator = desk.replays.approve_emergency(&operator("ana"), batch.id, &digest, &[], None).await.unwrap_err();
            assert!(forbidden(&operator).contains("role approver"));
            let answer = desk.replays.approve_emergency(&ana(), batch.id, &digest, &[], None).await;
            match n {
                0..3 => approved.push(answer.unwrap()),
                _ => assert!(conflict(&answer.unwrap_err()).contains("3 emergency replays")),
            }
        }
        assert!(approved.iter().all(|batch| batch.state == BatchState::Approved));
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::EmergencyReplayed).await, 3);
        let open = async || desk.store.emergencies_to_review(None, 10).await.unwrap().into_iter().map(|batch| batch.id).collect::<Vec<_>>();
        assert_eq!(open().await, approved.iter().map(|batch| batch.id).collect::<Vec<_>>());
        let own = desk.replays.review_emergency(&Decider { role: Role::Admin, ..ana() }, approved[0].id, "fine").await.unwrap_err();
        assert!(forbidden(&own).contains("second person"));
        desk.replays.review_emergency(&ben(), approved[0].id, "looked at all three").await.unwrap();
        let again = desk.replays.review_emergency(&approver("cleo"), approved[0].id, "me too").await.unwrap_err();
        assert!(conflict(&again).contains("ben has reviewed it"));
        assert_eq!(open().await.len(), 2);
        desk.clock.step(Duration::from_millis(24 * HOUR_MS as u64 + 1));
        let batch = desk.proposed(emergency(&ids[12..15])).await;
        desk.replays.approve_emergency(&ana(), batch.id, batch.digest.as_deref().unwrap(), &[], None).await.unwrap();
    }

    async fn what_two_give_back_at_once_is_given_back_to_the_last(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..2_300).map(Letter::of)).await;
        let batch = desk.proposed(desk.everything()).await;
        let ids = desk.ids().await;
        // Somebody has the first message until both have looked for what there is to give back.
        let mut tx = desk.store.begin().await.unwrap();
        lazaret::store::transitions::lock(&mut tx, &ids[..1]).await.unwrap();
        #[allow(clippy::disallowed_methods, reason = "its result is asked for")]
let stopping = tokio::spawn({
            let (replays, id) = (desk.replays.clone(), batch.id);
            async move { replays.stop(&ben(), id, None).await.map(drop) }
        });
        #[allow(clippy::disallowed_methods, reason = "its result is asked for")]
let giving_back = tokio::spawn({
            let (replays, id) = (desk.replays.clone(), batch.id);
            async move {
                while replays.store.batch(id).await.unwrap().unwrap().step != Step::Releasing {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                replays.prepare("main").await.map(drop)
            }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        tx.commit().await.unwrap();
        stopping.await.unwrap().unwrap();
        giving_back.await.unwrap().unwrap();
        desk.prepare().await;
        assert_eq!(desk.states().await, [(MessageState::Quarantined, 2_300)].into());
        let batch = desk.batch(batch.id).await;
        assert_eq!((batch.step, batch.progress.not_sent), (Step::Released, 2_300));
    }

    async fn a_reopened_batch_is_preflighted_anew_and_its_approvals_are_gone(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..20).map(Letter::of)).await;
        let batch = desk.approved(desk.proposed(desk.everything()).await).await;
        let draft = desk.replays.reopen(&operator("olga"), batch.id).await.unwrap();
        assert_eq!((draft.state, draft.step, draft.digest, draft.approved_at_ms), (BatchState::Draft, Step::Checking, None, None));
        assert!(desk.store.approvals(batch.id).await.unwrap().is_empty());
        desk.applied((0..4).map(|n| n.to_string())).await;
        desk.prepare().await;
        let draft = desk.batch(batch.id).await;
        assert_eq!((draft.state, draft.progress.checked), (BatchState::Draft, 20), "whoever reopened it looks at it first");
        assert_eq!(draft.forecast, Some(Forecast { send: 16, already_applied: 4, ..Forecast::default() }));
        let submitted = desk.replays.submit(&ana().by, &OwnerScope::All, batch.id, Submission::default()).await.unwrap();
        assert_eq!(desk.approved(submitted).await.state, BatchState::Approved);
        assert_eq!(desk.items(batch.id).await.iter().filter(|item| item.stage == 0).count(), 10);
    }

    /// The plan is the same, what the checks say of it is not: who saw the one has not seen the other.
    async fn an_approval_is_of_the_forecast_and_the_warnings_that_were_shown(store: Store) {
        let readers = "[[dlq.also_read_by]]\ngroup = 'fraud'\nledger = 'fraud'\n";
        let desk = Desk::new(store, &format!("{}{readers}", desk::CHECKED)).await;
        desk.take_in((0..20).map(Letter::of)).await;
        desk.applied((0..15).map(|n| n.to_string())).await;
        let batch = desk.proposed(desk.everything()).await;
        assert_eq!(batch.forecast, Some(Forecast { send: 5, already_applied: 15, ..Forecast::default() }));
        let again = async || {
            desk.replays.reopen(&ana(), batch.id).await.unwrap();
            desk.prepare().await;
            desk.replays.submit(&ana().by, &OwnerScope::All, batch.id, Submission::default()).await.unwrap()
        };
        let same = again().await;
        assert_eq!((same.state, &same.digest), (BatchState::AwaitingApproval, &batch.digest), "nothing is different");

        desk.applied(["15".to_owned()]).await;
        let other = again().await;
        assert_eq!(other.forecast, Some(Forecast { send: 4, already_applied: 16, ..Forecast::default() }));
        let late = desk.replays.approve(&ben(), batch.id, batch.digest.as_deref().unwrap(), &[], None).await.unwrap_err();
        assert!(conflict(&late).contains("not the one that was shown"), "{late}");

        desk.applied_in("fraud", ["3".to_owned()]).await;
        let warned = again().await;
        assert_eq!((warned.forecast, warned.plan.clone()), (other.forecast, other.plan.clone()));
        let late = desk.replays.approve(&ben(), batch.id, other.digest.as_deref().unwrap(), &[0], None).await.unwrap_err();
        assert!(conflict(&late).contains("not the one that was shown"), "{late}");
        let ticked: Vec<usize> = (0..warned.warnings.len()).collect();
        let approved = desk.replays.approve(&ben(), batch.id, warned.digest.as_deref().unwrap(), &ticked, None).await.unwrap();
        assert_eq!(desk.replays.recompute_digest(&approved).await.unwrap().void(), None);
    }

    /// Whoever writes a part of what is agreed to must not be the one who agrees.
    async fn a_draft_is_its_proposers_alone_to_change(store: Store) {
        let desk = Desk::new(store, "[dlq.schema]\nuse = 'payment'\n").await;
        desk.take_in((0..5).map(Letter::of)).await;
        let held = desk.propose(desk.everything()).await.unwrap().batch;
        desk.prepare().await;
        let submit = async |who: &Decider, why_now: Option<&str>, waivers: Vec<Waiver>| {
            let submission = Submission { why_now: why_now.map(str::to_owned), waivers };
            desk.replays.submit(&who.by, &OwnerScope::All, held.id, submission).await
        };
        for error in [
            submit(&ben(), None, vec![waiver("the wallet has a unique key")]).await.unwrap_err(),
            submit(&ben(), Some("customers are waiting"), vec![]).await.unwrap_err(),
        ] {
            assert!(forbidden(&error).contains("ana proposed it"), "{error}");
        }
        assert_eq!(on_trail(&desk.store, lazaret::domain::audit::Action::ReplayRefused).await, 2);
        assert_eq!(desk.batch(held.id).await.plan.waivers, []);
        let shouting = Decider { by: desk::by("ANA"), ..ana() };
        submit(&shouting, None, vec![waiver("the wallet has a unique key")]).await.unwrap();
        desk.prepare().await;
        // As it stands anybody who may propose puts it up again, and who did so may approve.
        desk.replays.reopen(&ben(), held.id).await.unwrap();
        desk.prepare().await;
        let submitted = submit(&ben(), None, vec![waiver("the wallet has a unique key")]).await.unwrap();
        assert_eq!((submitted.state, submitted.quorum), (BatchState::AwaitingApproval, 2));
        desk.replays.approve(&ben(), held.id, submitted.digest.as_deref().unwrap(), &[], None).await.unwrap();
    }

    async fn a_draft_that_was_slowed_down_is_agreed_to_at_that_pace(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..20).map(Letter::of)).await;
        let draft = desk.propose(desk.everything()).await.unwrap().batch;
        desk.replays.slow_down(&ben(), draft.id, 7).await.unwrap();
        desk.prepare().await;
        let batch = desk.batch(draft.id).await;
        assert_eq!((batch.state, batch.plan.max_per_second, batch.agreed_per_second), (BatchState::AwaitingApproval, 7, None));
        let approved = desk.approved(batch).await;
        assert_eq!(desk.replays.recompute_digest(&approved).await.unwrap().void(), None);
    }

    /// What was sent in an emergency stays to be looked at, and in the count, whatever becomes of the rest.
    async fn an_emergency_that_was_begun_is_not_put_up_again(store: Store) {
        let desk = Desk::with_ledger(store).await.configured(|text| text.replace("owner = 'payments'", "owner = 'payments'\nemergency_replay = true")).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let mut proposal = desk.everything();
        (proposal.emergency, proposal.incident) = (true, Some("INC-7".into()));
        let batch = desk.proposed(proposal).await;
        desk.replays.approve_emergency(&ana(), batch.id, batch.digest.as_deref().unwrap(), &[], None).await.unwrap();
        desk.change("UPDATE batches SET state = 'halted', started_at_ms = approved_at_ms").await;
        let error = desk.replays.reopen(&ana(), batch.id).await.unwrap_err();
        assert!(conflict(&error).contains("stop it, and propose what is left anew"), "{error}");
        desk.replays.stop(&ana(), batch.id, None).await.unwrap();
        assert_eq!(desk.store.emergencies_to_review(None, 10).await.unwrap().len(), 1);
        let own = desk.replays.review_emergency(&ana(), batch.id, "fine").await.unwrap_err();
        assert!(forbidden(&own).contains("second person"), "{own}");
    }

    async fn an_emergency_replay_takes_no_standing_waiver(store: Store) {
        let idempotent = "consumer_is_idempotent = 'unique key'\nemergency_replay = true\n";
        let desk = Desk::new(store, &format!("{idempotent}{}key = '{{header:no-such}}'\n", desk::CHECKED)).await;
        desk.take_in((0..5).map(Letter::of)).await;
        let mut proposal = desk.everything();
        (proposal.emergency, proposal.incident) = (true, Some("INC-7".into()));
        let draft = desk.propose(proposal).await.unwrap().batch;
        desk.prepare().await;
        let draft = desk.batch(draft.id).await;
        assert_eq!(draft.forecast, Some(Forecast { held: 5, ..Forecast::default() }), "nobody can be asked about any of them");
        assert_eq!(draft.state, BatchState::Draft);
        assert!(draft.note.as_deref().unwrap().contains("nothing would be sent"), "{:?}", draft.note);
        desk.replays.stop(&ana(), draft.id, None).await.unwrap();
        assert_eq!(desk.proposed(desk.everything()).await.forecast, Some(Forecast { send_unchecked: 5, ..Forecast::default() }));
    }

    async fn a_transform_needs_a_schema(store: Store) {
        let desk = Desk::new(store, "[dlq.idempotency]\nledger = 'wallet'\n").await;
        desk.take_in((0..2).map(Letter::of)).await;
        let mut proposal = desk.everything();
        proposal.transform = Some(".amount = 1".into());
        let error = desk.propose(proposal).await.unwrap_err();
        assert!(invalid(&error).0 == "transform" && invalid(&error).1.contains("add [dlq.schema]"), "{error}");
    }

    /// Headers name consumer groups, and the lines are pasted into the configuration.
    async fn the_lines_to_paste_are_those_lines_whatever_a_group_is_called(store: Store) {
        let desk = Desk::new(store, "").await.configured(|text| text.replace("consumer_group = 'wallet'\n", "")).await;
        desk.take_in([Letter { group_named: Some("team.wallet]\n[dlq.x]\nowner = \"eve\""), ..Letter::of(1) }]).await;
        let draft = desk.propose(desk.everything()).await.unwrap().batch;
        desk.prepare().await;
        let lines: Vec<String> = desk.batch(draft.id).await.warnings.into_iter().filter_map(|warning| match warning {
            Warning::CheckMissing { lines, .. } => Some(lines),
            _ => None,
        }).collect();
        assert_eq!(lines.len(), 2);
        let file = lines.iter().fold("[[dlq]]\n".to_owned(), |file, lines| format!("{file}{lines}")).parse::<toml::Table>().unwrap();
        let dlq = file["dlq"][0].as_table().unwrap();
        let mut keys: Vec<&str> = dlq.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["idempotency", "schema"]);
        let only = |table: &str| file[table].as_table().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(only("schemas"), [dlq["schema"]["use"].as_str().unwrap()]);
        assert_eq!(only("ledgers"), [dlq["idempotency"]["ledger"].as_str().unwrap()]);
    }

    async fn pause_and_resume_belong_to_their_states_and_roles(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..20).map(Letter::of)).await;
        let batch = desk.approved(desk.proposed(desk.everything()).await).await;
        assert!(conflict(&desk.replays.pause(&ben(), batch.id).await.unwrap_err()).contains("approved"));
        desk.change("UPDATE batches SET state = 'executing', started_at_ms = 1").await;
        let paused = desk.replays.pause(&operator("olga"), batch.id).await.unwrap();
        assert_eq!((paused.state, paused.note.as_deref()), (BatchState::Paused, Some("paused by olga")));
        let unproven = desk.replays.resume(&operator("olga"), batch.id, Some("looks fine")).await.unwrap_err();
        assert!(forbidden(&unproven).contains("role approver"));
        assert_eq!(invalid(&desk.replays.resume(&ben(), batch.id, Some(" ")).await.unwrap_err()).0, "reason");
        let resumed = desk.replays.resume(&operator("olga"), batch.id, None).await.unwrap();
        assert_eq!((resumed.state, resumed.unproven_allowed), (BatchState::Executing, false));
        desk.replays.pause(&ben(), batch.id).await.unwrap();
        assert!(desk.replays.resume(&ben(), batch.id, Some("seen in the wallet")).await.unwrap().unproven_allowed);
        desk.replays.pause(&ben(), batch.id).await.unwrap();
        desk.write("payment.json", r#"{"type":"object"}"#);
        assert!(conflict(&desk.replays.resume(&ben(), batch.id, None).await.unwrap_err()).contains("the settings of its checks"));
        let stopped = desk.replays.stop(&ben(), batch.id, None).await.unwrap();
        assert_eq!((stopped.state, stopped.progress.not_sent), (BatchState::Cancelled, 20));
        assert_eq!(desk.states().await, [(MessageState::UnderReview, 20)].into(), "a batch that was begun leaves them under review");
        desk.change("UPDATE batches SET state = 'halted'").await;
        assert!(conflict(&desk.replays.resume(&ben(), batch.id, None).await.unwrap_err()).contains("new approval"));
    }

    async fn a_message_without_its_bytes_is_held(store: Store) {
        let desk = Desk::with_ledger(store).await;
        desk.take_in((0..5).map(Letter::of)).await;
        desk.change("DELETE FROM bodies WHERE message_id = (SELECT MIN(id) FROM messages)").await;
        let batch = desk.proposed(desk.everything()).await;
        assert_eq!(batch.forecast, Some(Forecast { send: 4, held: 1, ..Forecast::default() }));
        assert!(desk.items(batch.id).await[0].note.as_deref().unwrap().contains("bytes were removed"));
    }

    async fn a_job_with_nothing_to_do_says_so(store: Store) {
        let desk = Desk::with_ledger(store).await;
        assert_eq!(desk.replays.prepare("main").await.unwrap(), Prepared::Idle);
        desk.take_in((0..5).map(Letter::of)).await;
        let other = desk.propose(desk.everything()).await.unwrap().batch;
        assert_eq!(desk.replays.prepare("elsewhere").await.unwrap(), Prepared::Idle, "another cluster's");
        // All were taken up by somebody else's batch before the freeze came to them.
        desk.change("UPDATE messages SET state = 'archived'").await;
        desk.prepare().await;
        let ended = desk.batch(other.id).await;
        assert_eq!(ended.state, BatchState::Cancelled);
        assert!(ended.note.unwrap().contains("nothing to replay"));
    }
}

/// Whoever tries a filter on a page waits some seconds at most, also for a built-in that is slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_tried_comes_back_in_time() {
    use lazaret::services::replay::preview::Tried;
    let (store, _folder) = crate::support::sqlite().await;
    let desk = Desk::with_ledger(store).await;
    let entry = desk.replays.entry("main", desk::DLQ).unwrap();
    let clock = lazaret::domain::clock::Clock::system();
    let slow = "[range(30000)] as $a | [$a[] | [.]] | contains($a | map([.]))";
    let tried = desk.replays.try_transform(entry, slow, b"1".to_vec(), false).await;
    // Given up for its steps or for the time, whichever comes first on this machine.
    let given_up = |why: &str| why.contains("takes longer than 3 s") || why.contains("takes too long");
    assert!(matches!(&tried, Tried::Failed(why) if given_up(why)), "{tried:?} after {:?}", clock.monotonic());
    assert!(clock.monotonic() < Duration::from_secs(60), "it waits for it to the end");
}

/// Without statistics SQLite walks all items of a batch for each message of a list.
#[tokio::test]
async fn on_sqlite_a_list_of_items_is_looked_up_one_by_one() {
    use sqlx::Row as _;
    let (store, _folder) = crate::support::sqlite().await;
    let Store::Sqlite(database) = &store else { panic!("SQLite") };
    let sql = "EXPLAIN QUERY PLAN UPDATE replay_items SET stage = s.stage
         FROM (SELECT value ->> 'message_id' AS message_id, value ->> 'stage' AS stage FROM json_each('[]')) AS s
         WHERE replay_items.batch_id = 1 AND replay_items.message_id = s.message_id AND replay_items.state = 'pending'";
    for pool in [&database.readers, &database.writer] {
        let rows = sqlx::query(sql).fetch_all(pool).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(plan[0].contains("SCAN json_each") && plan[1].contains("message_id=?"), "{plan:?}");
    }
}
