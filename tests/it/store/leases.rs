//! Leases, and the judging of them with two contenders on clocks that never meet.

use super::*;
use crate::on_both_stores;
use lazaret::domain::clock::Clock;
use lazaret::store::leases::{LeaseKeeper, LeaseRow, LeaseState};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

fn keeper(holder: &str) -> LeaseKeeper {
    LeaseKeeper::new("sampler", holder, LEASE, RENEW)
}

/// Two contenders, each with a clock of its own; the walls of the two are years apart.
fn two() -> (LeaseKeeper, Clock, LeaseKeeper, Clock) {
    (keeper("a"), Clock::fake(NOW), keeper("b"), Clock::fake(0))
}

on_both_stores! {
    async fn the_row_changes_only_for_who_saw_it_as_it_is(store: Store) {
        assert_eq!(store.lease("sampler").await.unwrap(), None);
        let row = |holder: &str, epoch, renewal| LeaseRow { name: "sampler".into(), holder: holder.into(), epoch, renewal };
        let first = store.take_lease("sampler", "a", None).await.unwrap();
        assert_eq!(first, Some(row("a", 1, 1)));
        assert_eq!(store.take_lease("sampler", "b", None).await.unwrap(), None);
        let renewed = store.renew_lease(&row("a", 1, 1)).await.unwrap();
        assert_eq!(renewed, Some(row("a", 1, 2)));
        assert_eq!(store.take_lease("sampler", "b", Some(&row("a", 1, 1))).await.unwrap(), None);
        let taken = store.take_lease("sampler", "b", Some(&row("a", 1, 2))).await.unwrap();
        assert_eq!(taken, Some(row("b", 2, 3)));
        assert_eq!(store.renew_lease(&row("a", 1, 2)).await.unwrap(), None);
        store.release_lease(&row("a", 1, 2)).await.unwrap();
        assert_eq!(store.lease("sampler").await.unwrap(), taken);
        store.release_lease(&row("b", 2, 3)).await.unwrap();
        assert_eq!(store.lease("sampler").await.unwrap(), Some(row("", 2, 4)));
        // Other leases know nothing of it.
        assert_eq!(store.take_lease("folder", "a", None).await.unwrap().unwrap().epoch, 1);
    }

    async fn of_many_who_take_at_once_one_gets_it(store: Store) {
        for seen in [None, Some(())] {
            let before = store.lease("sampler").await.unwrap();
            assert_eq!(before.is_some(), seen.is_some());
            let mut tasks = tokio::task::JoinSet::new();
            for n in 0..8 {
                let (store, before) = (store.clone(), before.clone());
                tasks.spawn(async move { store.take_lease("sampler", &format!("h{n}"), before.as_ref()).await.expect("an answer") });
            }
            assert_eq!(tasks.join_all().await.into_iter().flatten().count(), 1);
        }
    }

    async fn a_contender_waits_a_full_lease_of_its_own_clock(store: Store) {
        let (mut a, a_clock, mut b, b_clock) = two();
        assert_eq!(a.tick(&store, &a_clock).await.unwrap(), LeaseState::Held { epoch: 1 });
        // a is frozen from here on: its clock stands, whatever b's says.
        assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Waiting);
        b_clock.step(LEASE - Duration::from_millis(1));
        assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Waiting);
        b_clock.step(Duration::from_millis(1));
        assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Held { epoch: 2 });
        // a wakes, its clock past the lease: it stops by itself before it asks anyone.
        a_clock.step(LEASE);
        assert_eq!(a.state(&a_clock), LeaseState::Waiting);
        assert_eq!(a.tick(&store, &a_clock).await.unwrap(), LeaseState::Waiting);
    }

    async fn renewals_keep_the_contender_waiting(store: Store) {
        let (mut a, a_clock, mut b, b_clock) = two();
        for _ in 0..60 {
            assert_eq!(a.tick(&store, &a_clock).await.unwrap(), LeaseState::Held { epoch: 1 });
            assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Waiting);
            a_clock.step(SECOND);
            b_clock.step(SECOND);
        }
        // Renewed every five seconds and not at every tick.
        let renewals = store.lease("sampler").await.unwrap().unwrap().renewal;
        assert!((10..=14).contains(&renewals), "{renewals}");
    }

    async fn both_never_hold_it_whatever_either_clock_does(store: Store) {
        let (mut a, a_clock, mut b, b_clock) = two();
        let mut changes = 0;
        let mut last = LeaseState::Waiting;
        // Real time passes alike for both; now and then one of them is too busy to tick.
        for second in 0..400_u32 {
            let (a_busy, b_busy) = (second % 90 > 60, second % 130 > 95);
            if !a_busy {
                a.tick(&store, &a_clock).await.unwrap();
            }
            if !b_busy {
                b.tick(&store, &b_clock).await.unwrap();
            }
            let (a_state, b_state) = (a.state(&a_clock), b.state(&b_clock));
            assert!(a_state == LeaseState::Waiting || b_state == LeaseState::Waiting, "both hold it at {second} s");
            for state in [a_state, b_state] {
                if state != LeaseState::Waiting && state != last {
                    changes += 1;
                    last = state;
                }
            }
            a_clock.step(SECOND);
            b_clock.step(SECOND);
        }
        assert!(changes >= 3, "it must have changed hands to prove anything: {changes}");
    }

    async fn a_released_lease_is_taken_at_once(store: Store) {
        let (mut a, a_clock, mut b, b_clock) = two();
        a.tick(&store, &a_clock).await.unwrap();
        assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Waiting);
        a.release(&store).await.unwrap();
        assert_eq!(a.state(&a_clock), LeaseState::Waiting);
        assert_eq!(b.tick(&store, &b_clock).await.unwrap(), LeaseState::Held { epoch: 2 });
        a.release(&store).await.unwrap();
        assert_eq!(b.state(&b_clock), LeaseState::Held { epoch: 2 });
    }

    async fn alone_after_a_pause_it_goes_on_at_once_under_a_new_epoch(store: Store) {
        let (mut a, a_clock, ..) = two();
        a.tick(&store, &a_clock).await.unwrap();
        a_clock.step(LEASE * 10);
        assert_eq!(a.state(&a_clock), LeaseState::Waiting);
        assert_eq!(a.tick(&store, &a_clock).await.unwrap(), LeaseState::Held { epoch: 2 });
    }
}
