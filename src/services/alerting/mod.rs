//! Alerting between the pure rules (`domain::alert`, `domain::baseline`) and what is told: what people do to rules and alerts, and the evaluation
//! ([`Evaluator`]) that one instance runs.

mod arrivals;
mod evaluate;
mod past;

use std::sync::Arc;

use serde_json::json;

pub use self::evaluate::{Evaluator, Ticked, minutes_from_ms};
pub use self::past::{BackTest, Suggested, TestedDlq};
use crate::domain::access::OwnerScope;
use crate::domain::alert::{Alert, Rule, Terms};
use crate::domain::audit::{Action, By, Event};
use crate::domain::baseline::{Follow, History, Span};
use crate::domain::clock::Clock;
use crate::domain::settings::{DlqSettings, settings_for};
use crate::store::alerts::{ChangedAlert, StoredAlert};
use crate::store::baselines::StoredBaseline;
use crate::store::dlqs::Dlq;
use crate::store::notify::Hint;
use crate::store::rules::StoredRule;
use crate::store::{Store, StoreError, Tx, alerts, audit, baselines, rules};

/// Tries to store something that the evaluation changes all the time.
const TRIES: u32 = 5;

/// Alerting over the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Alerting {
    pub store: Store,
    pub clock: Clock,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
}

/// Why something about rules, alerts or baselines was not done.
#[derive(Debug, thiserror::Error)]
pub enum AlertingError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// 403: not this person's to do.
    #[error("{0}")]
    Forbidden(String),
    /// 409: it is not as they saw it any more.
    #[error("{0}")]
    Conflict(String),
    /// 422: what was asked for cannot be taken. A sentence for each thing that is wrong.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// 404.
    #[error("there is no {0}")]
    NotFound(String),
    /// Nothing was written.
    #[error("another instance evaluates by now: this look was thrown away")]
    LeaseLost,
    #[error("a calculation ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// A rule that was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedRule {
    pub rule: StoredRule,
    /// What its author should know: it is stored all the same.
    pub warnings: Vec<String>,
}

impl Alerting {
    /// Stores a new rule.
    ///
    /// # Errors
    /// Invalid: all that is wrong with the terms. Forbidden: it would be about DLQs of others. Conflict: there is a rule of that name.
    pub async fn create_rule(&self, by: &By, owners: &OwnerScope, terms: Terms) -> Result<SavedRule, AlertingError> {
        let rule = self.checked(owners, terms)?;
        let warnings = self.warnings(&rule).await?;
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        let Some(id) = rules::insert(&mut tx, rule.terms(), &by.actor, now_ms).await? else { return Err(name_taken(rule.terms())) };
        let mut event = Event::new(now_ms, by, Action::RuleCreated, subject(id));
        event.after = Some(json!(rule.terms()));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::All]);
        Ok(SavedRule { rule: self.stored_rule(id).await?, warnings })
    }

    /// Replaces the terms of a rule that is still of the version that was seen. Its alerts end, and begin anew by the new terms.
    ///
    /// # Errors
    /// As [`Alerting::create_rule`]; Conflict too where somebody changed it first; NotFound.
    pub async fn change_rule(&self, by: &By, owners: &OwnerScope, id: i64, version: i64, terms: Terms) -> Result<SavedRule, AlertingError> {
        let rule = self.checked(owners, terms)?;
        let before = self.theirs(owners, id).await?;
        let warnings = self.warnings(&rule).await?;
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        if rules::named(&mut tx, &rule.terms().name).await?.is_some_and(|other| other != id) {
            return Err(name_taken(rule.terms()));
        }
        if !rules::change(&mut tx, id, version, rule.terms(), &by.actor, now_ms).await? {
            return Err(changed_first());
        }
        let mut event = Event::new(now_ms, by, Action::RuleChanged, subject(id));
        (event.before, event.after) = (Some(json!(before.terms)), Some(json!(rule.terms())));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::All]);
        Ok(SavedRule { rule: self.stored_rule(id).await?, warnings })
    }

    /// Switches a rule off. Its alerts end.
    ///
    /// # Errors
    /// Forbidden, Conflict (somebody changed it first), NotFound.
    pub async fn disable_rule(&self, by: &By, owners: &OwnerScope, id: i64, version: i64) -> Result<StoredRule, AlertingError> {
        self.set_disabled(by, owners, (id, version), true).await
    }

    /// Switches a rule on again.
    ///
    /// # Errors
    /// As [`Alerting::disable_rule`].
    pub async fn enable_rule(&self, by: &By, owners: &OwnerScope, id: i64, version: i64) -> Result<StoredRule, AlertingError> {
        self.set_disabled(by, owners, (id, version), false).await
    }

    async fn set_disabled(
        &self,
        by: &By,
        owners: &OwnerScope,
        (id, version): (i64, i64),
        disabled: bool,
    ) -> Result<StoredRule, AlertingError> {
        self.theirs(owners, id).await?;
        let now_ms = self.clock.now_ms();
        let mut tx = self.store.begin().await?;
        if !rules::set_disabled(&mut tx, id, version, disabled, &by.actor, now_ms).await? {
            return Err(changed_first());
        }
        let action = if disabled { Action::RuleDisabled } else { Action::RuleEnabled };
        audit::append(&mut tx, &Event::new(now_ms, by, action, subject(id))).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::All]);
        self.stored_rule(id).await
    }

    /// Says that somebody looks after an alert: it is not told again until it gets worse or ends.
    ///
    /// # Errors
    /// NotFound; Forbidden: the DLQ is another owner's; Conflict: it does not fire.
    pub async fn acknowledge(&self, by: &By, owners: &OwnerScope, alert_id: i64) -> Result<StoredAlert, AlertingError> {
        let acknowledged = |alert: Alert, now_ms| alert.acknowledge(&by.actor, now_ms).map_err(|refused| conflict(&refused));
        self.change_alert(by, owners, alert_id, Action::AlertAcknowledged, None, acknowledged).await
    }

    /// Tells nothing of an alert until then; `None` ends a silence, and what still holds is told at the next look.
    ///
    /// # Errors
    /// NotFound; Forbidden: the DLQ is another owner's; Invalid: the end is not in the future, or too far.
    pub async fn silence(&self, by: &By, owners: &OwnerScope, alert_id: i64, until_ms: Option<i64>) -> Result<StoredAlert, AlertingError> {
        let silenced =
            |alert: Alert, now_ms| alert.silence(until_ms, now_ms).map_err(|refused| AlertingError::Invalid(vec![refused.to_string()]));
        self.change_alert(by, owners, alert_id, Action::AlertSilenced, Some(json!({ "until_ms": until_ms })), silenced).await
    }

    async fn change_alert(
        &self,
        by: &By,
        owners: &OwnerScope,
        alert_id: i64,
        action: Action,
        after: Option<serde_json::Value>,
        change: impl Fn(Alert, i64) -> Result<Alert, AlertingError>,
    ) -> Result<StoredAlert, AlertingError> {
        for _ in 0..TRIES {
            let not_found = || AlertingError::NotFound(format!("alert {alert_id}"));
            let stored = self.store.alert(alert_id).await?.ok_or_else(not_found)?;
            let dlq = self.store.dlq(&stored.key.cluster, &stored.key.topic).await?.ok_or_else(not_found)?;
            self.acts_on(owners, &dlq)?;
            let now_ms = self.clock.now_ms();
            let changed = ChangedAlert {
                stored: Some((alert_id, stored.version)),
                key: stored.key,
                rule_version: stored.rule_version,
                alert: change(stored.alert, now_ms)?,
            };
            let mut tx = self.store.begin().await?;
            if alerts::save(&mut tx, &[&changed], now_ms).await?.is_empty() {
                // The evaluation came between.
                continue;
            }
            let mut event = Event::new(now_ms, by, action, format!("alert {alert_id}"));
            event.after = after;
            audit::append(&mut tx, &event).await?;
            tx.commit().await?;
            self.store.changed(&[Hint::Dlq(dlq.id)]);
            return self.store.alert(alert_id).await?.ok_or_else(not_found);
        }
        Err(changed_first())
    }

    /// Takes the level of an anomaly that is open for the usual one: it ends, what was before it is forgotten, what came since teaches.
    ///
    /// # Errors
    /// NotFound; Forbidden: the DLQ is another owner's; Conflict: nothing is unusual.
    pub async fn accept_level(&self, by: &By, owners: &OwnerScope, cluster: &str, topic: &str) -> Result<(), AlertingError> {
        let dlq = self.their_dlq(owners, cluster, topic).await?;
        for _ in 0..TRIES {
            let baseline = self.baseline_of(&dlq).await?;
            let Some(open) = baseline.watch.open else {
                return Err(AlertingError::Conflict("Nothing unusual arrives here now: there is no new level to accept.".to_owned()));
            };
            let now_ms = self.clock.now_ms();
            let mut follow = self.follow(baseline.clone()).await?;
            follow.accept_level(now_ms);
            let mut tx = self.store.begin().await?;
            if baselines::save(&mut tx, &[(dlq.id, baseline.version, &follow)], now_ms).await?.is_empty() {
                continue;
            }
            let span = Span { from_ms: open.from_ms, to_ms: now_ms };
            return self.arrivals_accepted(tx, by, &dlq, span, "level").await;
        }
        Err(changed_first())
    }

    /// Takes an anomaly that is over, by its start, for something that is usual here: it teaches after all.
    ///
    /// # Errors
    /// NotFound: there is no such anomaly; Forbidden: the DLQ is another owner's; Conflict: somebody accepted it before.
    pub async fn accept_past(&self, by: &By, owners: &OwnerScope, cluster: &str, topic: &str, from_ms: i64) -> Result<(), AlertingError> {
        let dlq = self.their_dlq(owners, cluster, topic).await?;
        let anomalies = self.store.anomalies(Some(dlq.id), from_ms).await?;
        let past = anomalies.into_iter().find(|anomaly| anomaly.span.from_ms == from_ms);
        let span = past.ok_or_else(|| AlertingError::NotFound(format!("anomaly of {topic} that began then")))?.span;
        let whole = History::hours_of(span);
        let buckets = self.store.arrivals(Some(dlq.id), whole.from_ms, whole.to_ms, arrivals::BUCKET_MS).await?;
        let buckets: Vec<(i64, i64)> = buckets.into_iter().map(|(_, start_ms, count)| (start_ms, count)).collect();
        for _ in 0..TRIES {
            let baseline = self.baseline_of(&dlq).await?;
            let now_ms = self.clock.now_ms();
            let mut follow = self.follow(baseline.clone()).await?;
            follow.accept_past(span, &buckets);
            let mut tx = self.store.begin().await?;
            if baselines::save(&mut tx, &[(dlq.id, baseline.version, &follow)], now_ms).await?.is_empty() {
                continue;
            }
            if !baselines::accept(&mut tx, dlq.id, from_ms, &by.actor).await? {
                return Err(AlertingError::Conflict("Somebody accepted it before.".to_owned()));
            }
            return self.arrivals_accepted(tx, by, &dlq, span, "past").await;
        }
        Err(changed_first())
    }

    async fn arrivals_accepted(&self, mut tx: Tx, by: &By, dlq: &Dlq, span: Span, what: &str) -> Result<(), AlertingError> {
        let mut event = Event::new(self.clock.now_ms(), by, Action::ArrivalsAccepted, format!("dlq {}/{}", dlq.cluster, dlq.topic));
        event.after = Some(json!({ "accepted": what, "from_ms": span.from_ms, "to_ms": span.to_ms }));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        self.store.changed(&[Hint::Dlq(dlq.id)]);
        Ok(())
    }

    async fn baseline_of(&self, dlq: &Dlq) -> Result<StoredBaseline, AlertingError> {
        let found = self.store.baselines(&[dlq.id]).await?.into_iter().next();
        found.ok_or_else(|| AlertingError::Conflict("What is usual here is not known yet.".to_owned()))
    }

    async fn follow(&self, baseline: StoredBaseline) -> Result<Follow, StoreError> {
        let over = self.store.anomalies(Some(baseline.dlq_id), baseline.history.remembered_from_ms()).await?;
        let left_out = over.into_iter().filter(|anomaly| anomaly.accepted_by.is_none()).map(|anomaly| anomaly.span).collect();
        Ok(Follow::load(baseline.history, baseline.watch, left_out))
    }

    fn checked(&self, owners: &OwnerScope, mut terms: Terms) -> Result<Rule, AlertingError> {
        terms.name = terms.name.trim().to_owned();
        let rule = Rule::new(terms).map_err(AlertingError::Invalid)?;
        rule_is_theirs(owners, rule.terms())?;
        Ok(rule)
    }

    /// The rule of this id, if they may change it.
    async fn theirs(&self, owners: &OwnerScope, id: i64) -> Result<StoredRule, AlertingError> {
        let rule = self.stored_rule(id).await?;
        rule_is_theirs(owners, &rule.terms)?;
        Ok(rule)
    }

    async fn stored_rule(&self, id: i64) -> Result<StoredRule, AlertingError> {
        self.store.rule(id).await?.ok_or_else(|| AlertingError::NotFound(format!("rule {id}")))
    }

    /// The DLQs that a rule is about now.
    async fn covered(&self, rule: &Rule) -> Result<Vec<Dlq>, StoreError> {
        let mut dlqs = self.store.dlqs().await?;
        dlqs.retain(|dlq| self.is_watched(dlq) && rule.covers(&dlq.cluster, &dlq.topic, self.owner(dlq)));
        Ok(dlqs)
    }

    async fn warnings(&self, rule: &Rule) -> Result<Vec<String>, StoreError> {
        let none = self.covered(rule).await?.is_empty();
        Ok(none.then(|| "it is about no DLQ that is known now: it fires once there is one".to_owned()).into_iter().collect())
    }

    /// Whether anybody looks at a DLQ: its topic exists, and the configuration names it.
    fn is_watched(&self, dlq: &Dlq) -> bool {
        dlq.gone_since_ms.is_none() && settings_for(&self.dlqs, &dlq.cluster, &dlq.topic).is_some()
    }

    /// Whose a DLQ is: as the configuration says now, and where it says nothing any more, as it said last.
    fn owner<'a>(&'a self, dlq: &'a Dlq) -> Option<&'a str> {
        match settings_for(&self.dlqs, &dlq.cluster, &dlq.topic) {
            Some(settings) => settings.owner.as_deref(),
            None => dlq.owner.as_deref(),
        }
    }

    fn acts_on(&self, owners: &OwnerScope, dlq: &Dlq) -> Result<(), AlertingError> {
        let owner = self.owner(dlq);
        if owners.covers(owner) {
            return Ok(());
        }
        let whose = owner.map_or_else(|| "DLQs without an owner".to_owned(), |owner| format!("the DLQs of {owner}"));
        Err(AlertingError::Forbidden(format!("You do not act on {whose}. An admin can change that.")))
    }

    async fn their_dlq(&self, owners: &OwnerScope, cluster: &str, topic: &str) -> Result<Dlq, AlertingError> {
        let dlq = self.store.dlq(cluster, topic).await?.ok_or_else(|| AlertingError::NotFound(format!("DLQ {topic} in {cluster}")))?;
        self.acts_on(owners, &dlq)?;
        Ok(dlq)
    }
}

/// Who acts on some owners only writes rules about one of those.
fn rule_is_theirs(owners: &OwnerScope, terms: &Terms) -> Result<(), AlertingError> {
    if *owners == OwnerScope::All || terms.scope.owner.as_deref().is_some_and(|owner| owners.covers(Some(owner))) {
        return Ok(());
    }
    let yours = owners.to_text();
    Err(AlertingError::Forbidden(format!("You act on the DLQs of {yours} only: a rule of yours names one of them as its owner.")))
}

fn subject(rule_id: i64) -> String {
    format!("rule {rule_id}")
}

fn conflict(refused: &crate::domain::alert::life::Refused) -> AlertingError {
    AlertingError::Conflict(refused.to_string())
}

fn name_taken(terms: &Terms) -> AlertingError {
    AlertingError::Conflict(format!("There is a rule named {:?} already: give this one another name.", terms.name))
}

fn changed_first() -> AlertingError {
    AlertingError::Conflict("Somebody changed it first. Look at it again.".to_owned())
}
