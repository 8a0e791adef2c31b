//! What people do to rules and alerts: rights, the trail, and two at once.

use super::*;
use crate::on_both_stores;
use lazaret::domain::audit::Action;
use lazaret::store::alerts::{self, ChangedAlert};
use lazaret::store::audit::EventFilter;

const OPEN: &str = "state/quarantined";

/// The trail's words for a subject, oldest first.
async fn trail(world: &World, subject: &str) -> Vec<String> {
    let filter = EventFilter { subject: Some(subject.to_owned()), ..EventFilter::default() };
    let mut actions: Vec<String> = world.store().events(&filter, None, 100).await.unwrap().into_iter().map(|entry| entry.action).collect();
    actions.reverse();
    actions
}

on_both_stores! {
    async fn acknowledged_it_is_quiet_and_silenced_the_dlq_is_muted(store: Store) {
        let mut world = World::new(store).await;
        let rule = world.rule(Terms { critical_at: Some(1_000.0), ..deep() }).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.count(&dlq, OPEN, 500).await;
        world.goes_on(&dlq).await;
        let status = async |world: &World| world.house.json("/api/v1/dlqs").await["items"][0]["status"].as_str().unwrap().to_owned();
        assert_eq!(status(&world).await, "warning");
        let alert = world.alert_of(&rule).await;
        let acknowledged = world.alerting.acknowledge(&ana(), &OwnerScope::All, alert.id).await.unwrap();
        assert_eq!(acknowledged.alert.firing().unwrap().acknowledged.as_ref().unwrap().by, "ana");
        world.step(5 * HOUR_MS);
        world.goes_on(&dlq).await;
        assert_eq!(world.words_of("depth").await, ["fires"], "not repeated");

        let until = world.now() + HOUR_MS;
        world.alerting.silence(&ana(), &OwnerScope::All, alert.id, Some(until)).await.unwrap();
        world.count(&dlq, OPEN, 600).await;
        world.goes_on(&dlq).await;
        assert_eq!((world.words_of("depth").await.len(), status(&world).await.as_str()), (1, "muted"));
        world.step(HOUR_MS);
        world.goes_on(&dlq).await;
        assert_eq!((world.words_of("depth").await, status(&world).await.as_str()), (vec!["fires", "worse"], "critical"));
        assert_eq!(trail(&world, &format!("alert {}", alert.id)).await, ["alert_acknowledged", "alert_silenced"]);
        let past = world.alerting.silence(&ana(), &OwnerScope::All, alert.id, Some(world.now())).await;
        assert!(matches!(past, Err(AlertingError::Invalid(_))), "{past:?}");
        assert!(matches!(world.alerting.acknowledge(&ana(), &OwnerScope::All, 999).await, Err(AlertingError::NotFound(_))));
        world.count(&dlq, OPEN, -1_100).await;
        world.goes_on(&dlq).await;
        assert_eq!(status(&world).await, "healthy");
        let over = world.alerting.acknowledge(&ana(), &OwnerScope::All, alert.id).await;
        assert!(matches!(over, Err(AlertingError::Conflict(_))), "{over:?}");
    }

    async fn a_person_and_the_evaluation_at_once_lose_nothing(store: Store) {
        let mut world = World::new(store).await;
        let rule = world.rule(deep()).await;
        let dlq = world.house.dlq(TOPIC).await;
        world.count(&dlq, OPEN, 500).await;
        world.goes_on(&dlq).await;
        let alert = world.alert_of(&rule).await;
        // What was made of a version that somebody changed since is not stored, nor what would be told of it.
        let until = world.now() + HOUR_MS;
        world.alerting.silence(&ana(), &OwnerScope::All, alert.id, Some(until)).await.unwrap();
        let stale = ChangedAlert { stored: Some((alert.id, alert.version)), key: alert.key.clone(), rule_version: 1, alert: Default::default() };
        let mut tx = world.store().begin().await.unwrap();
        assert_eq!(alerts::save(&mut tx, &[&stale], world.now()).await.unwrap(), []);
        let twice = ChangedAlert { stored: None, ..stale };
        assert_eq!(alerts::save(&mut tx, &[&twice], world.now()).await.unwrap(), [], "there is one of its key");
        tx.commit().await.unwrap();
        assert!(world.alert_of(&rule).await.alert.is_silenced(world.now()));

        // Side by side, again and again: every silence is in the store in the end, whoever came first.
        for round in 1..=10 {
            world.step(TICK_MS);
            world.seen(&dlq, 0).await;
            world.count(&dlq, OPEN, if round % 2 == 0 { 500 } else { -500 }).await;
            let until = world.now() + round * HOUR_MS;
            let alerting = world.alerting.clone();
            let (by, all) = (ana(), OwnerScope::All);
            let person = alerting.silence(&by, &all, alert.id, Some(until));
            let (ticked, person) = tokio::join!(world.try_tick(), person);
            ticked.unwrap();
            assert_eq!(person.unwrap().alert.silenced_until_ms, Some(until));
            world.step(TICK_MS);
            world.seen(&dlq, 0).await;
            world.tick().await;
            let stored = world.alert_of(&rule).await.alert;
            assert_eq!((stored.silenced_until_ms, stored.firing().is_some()), (Some(until), round % 2 == 0), "round {round}");
        }
        assert_eq!(world.words_of("depth").await, ["fires"]);
    }

    async fn rules_are_checked_and_change_one_after_the_other(store: Store) {
        let world = World::new(store).await;
        let (all, alerting) = (OwnerScope::All, &world.alerting);
        let wrong = alerting.create_rule(&ana(), &all, Terms { name: " ".into(), repeat_ms: 0, ..deep() }).await;
        assert!(matches!(&wrong, Err(AlertingError::Invalid(faults)) if faults.len() == 2), "{wrong:?}");
        let saved = alerting.create_rule(&ana(), &all, Terms { name: " Deep ".into(), ..deep() }).await.unwrap();
        assert_eq!((saved.rule.terms.name.as_str(), saved.warnings.len()), ("Deep", 1), "no DLQ is known yet");
        let twin = alerting.create_rule(&ana(), &all, Terms { name: "dEEP".into(), ..deep() }).await;
        assert!(matches!(twin, Err(AlertingError::Conflict(_))), "{twin:?}");
        world.house.dlq(TOPIC).await;
        let other = alerting.create_rule(&ana(), &all, Terms { name: "Other".into(), ..deep() }).await.unwrap();
        assert_eq!(other.warnings, Vec::<String>::new());
        let taken = alerting.change_rule(&ana(), &all, other.rule.id, 1, Terms { name: "Deep".into(), ..deep() }).await;
        assert!(matches!(taken, Err(AlertingError::Conflict(_))), "{taken:?}");
        let terms = Terms { name: "Other".into(), threshold: 200.0, ..deep() };
        let changed = alerting.change_rule(&ana(), &all, other.rule.id, 1, terms.clone()).await.unwrap().rule;
        assert_eq!((changed.version, changed.terms.threshold, changed.changed_by.as_str()), (2, 200.0, "ana"));
        let late = alerting.change_rule(&ana(), &all, other.rule.id, 1, terms).await;
        assert!(matches!(late, Err(AlertingError::Conflict(_))), "{late:?}");
        let off = alerting.disable_rule(&ana(), &all, other.rule.id, 2).await.unwrap();
        assert!(off.disabled && off.version == 3);
        assert_eq!(trail(&world, &format!("rule {}", other.rule.id)).await, ["rule_created", "rule_changed", "rule_disabled"]);
        assert_eq!(Action::RuleEnabled.as_str(), "rule_enabled");
    }

    async fn who_acts_on_some_owners_acts_on_those(store: Store) {
        let mut world = World::new(store).await;
        let rule = world.rule(deep()).await;
        // Of payments.
        let dlq = world.house.dlq(TOPIC).await;
        world.count(&dlq, OPEN, 500).await;
        world.goes_on(&dlq).await;
        let alert = world.alert_of(&rule).await;
        let (fraud, payments) = (OwnerScope::Listed(vec!["fraud".into()]), OwnerScope::Listed(vec!["payments".into()]));
        let alerting = &world.alerting;
        let is_forbidden = |error: &AlertingError| matches!(error, AlertingError::Forbidden(_));
        assert!(is_forbidden(&alerting.acknowledge(&ana(), &fraud, alert.id).await.unwrap_err()));
        assert!(is_forbidden(&alerting.silence(&ana(), &fraud, alert.id, None).await.unwrap_err()));
        assert!(is_forbidden(&alerting.accept_level(&ana(), &fraud, "main", TOPIC).await.unwrap_err()));
        assert!(is_forbidden(&alerting.accept_past(&ana(), &fraud, "main", TOPIC, 0).await.unwrap_err()));
        assert!(is_forbidden(&alerting.create_rule(&ana(), &payments, Terms { name: "All".into(), ..deep() }).await.unwrap_err()));
        assert!(is_forbidden(&alerting.disable_rule(&ana(), &payments, rule.id, rule.version).await.unwrap_err()));
        alerting.acknowledge(&ana(), &payments, alert.id).await.unwrap();
        let scope = Scope { owner: Some("payments".into()), ..Scope::default() };
        let own = alerting.create_rule(&ana(), &payments, Terms { name: "Ours".into(), scope, ..deep() }).await.unwrap().rule;
        let theirs = Scope { owner: Some("fraud".into()), ..Scope::default() };
        let away = alerting.change_rule(&ana(), &payments, own.id, 1, Terms { name: "Ours".into(), scope: theirs, ..deep() }).await;
        assert!(is_forbidden(&away.unwrap_err()));
        assert_eq!(trail(&world, &format!("rule {}", rule.id)).await, ["rule_created"]);
    }
}
