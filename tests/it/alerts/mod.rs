//! Alerting over a real store: from what arrives to what is told, with a clock that stands still until it is stepped.

#![allow(clippy::unwrap_used, reason = "a test; clippy.toml allows it in test functions, not in the bodies that run on both databases")]

mod life;
mod past;
mod people;
mod usual;

use std::time::Duration;

use lazaret::domain::access::OwnerScope;
use lazaret::domain::alert::rule::REPEAT_MS;
use lazaret::domain::alert::{Key, Measure, News, Scope, Severity, Terms};
use lazaret::domain::audit::By;
use lazaret::domain::clock::Clock;
use lazaret::services::alerting::{Alerting, AlertingError, Evaluator, Ticked, minutes_from_ms};
use lazaret::services::health::Health;
use lazaret::store::Store;
use lazaret::store::alerts::{StoredAlert, StoredNews};
use lazaret::store::dlqs::Dlq;
use lazaret::store::leases::HeldLease;
use lazaret::store::positions::PartitionId;
use lazaret::store::rules::StoredRule;
use lazaret::store::samples::Sample;

use crate::web::house::{HOUR_MS, House, MINUTE_MS};

const SECOND_MS: i64 = 1_000;
const TICK_MS: i64 = 15 * SECOND_MS;
const TOPIC: &str = "payments.wallet.DLQ";

/// A Lazaret whose alerts are evaluated when a test says so.
struct World {
    house: House,
    health: Health,
    alerting: Alerting,
    evaluator: Evaluator,
    lease: HeldLease,
}

impl World {
    async fn new(store: Store) -> World {
        let house = House::new(store).await;
        let health = house.state().health;
        let alerting = Alerting { store: house.store.clone(), clock: house.clock.clone(), dlqs: house.options.dlqs.clone().into() };
        let lease = take_lease(&house.store, "first").await;
        World { evaluator: Evaluator::new(alerting.clone()), health, alerting, lease, house }
    }

    fn store(&self) -> &Store {
        &self.house.store
    }

    fn clock(&self) -> &Clock {
        &self.house.clock
    }

    fn now(&self) -> i64 {
        self.clock().now_ms()
    }

    fn step(&self, ms: i64) {
        self.clock().step(Duration::from_millis(ms.unsigned_abs()));
    }

    /// Everything in memory is gone.
    fn restart(&mut self) {
        self.evaluator = Evaluator::new(self.alerting.clone());
    }

    async fn try_tick(&mut self) -> Result<Ticked, AlertingError> {
        let looks = self.health.looks(minutes_from_ms(self.now())).await?;
        self.evaluator.tick(&self.lease, &looks).await
    }

    async fn tick(&mut self) -> Ticked {
        self.try_tick().await.unwrap()
    }

    /// A look at the DLQ that succeeds, then an evaluation, a tick later.
    async fn goes_on(&mut self, dlq: &Dlq) -> Ticked {
        self.step(TICK_MS);
        self.seen(dlq, 0).await;
        self.tick().await
    }

    /// The same with a look that fails.
    async fn goes_dark(&mut self, dlq: &Dlq) -> Ticked {
        self.step(TICK_MS);
        self.house.sample(dlq, 0, Some("broker 2 timed out")).await;
        self.tick().await
    }

    /// A look that found so many to be read.
    async fn seen(&self, dlq: &Dlq, uncollected: i64) {
        let sample = Sample {
            dlq_id: dlq.id,
            at_ms: self.now(),
            uncollected: Some(uncollected),
            depth: Some(0),
            at_risk_state: "all_stored".to_owned(),
            ..Sample::default()
        };
        self.store().save_samples(None, &[sample], &[]).await.unwrap();
    }

    /// Changes a counter as intake and replays do.
    async fn count(&self, dlq: &Dlq, kind: &str, by: i64) {
        append(self.store(), dlq.id, kind, Arrivals { from_ms: 0, every_ms: 0, times: 1, count: by }).await;
    }

    /// Arrivals as intake counts them, once these are folded in.
    async fn arrive(&self, dlq: &Dlq, arrivals: Arrivals) {
        append(self.store(), dlq.id, "arrivals", arrivals).await;
        while self.store().fold_counters(5_000).await.unwrap() > 0 {}
    }

    /// A rule of one's own, and no other.
    async fn rule(&self, terms: Terms) -> StoredRule {
        self.alerting.create_rule(&ana(), &OwnerScope::All, terms).await.unwrap().rule
    }

    /// What was told since the news of this id, oldest first.
    async fn told_since(&self, id: i64) -> Vec<StoredNews> {
        let mut news = self.store().alert_news(None, 1_000).await.unwrap();
        news.retain(|news| news.id > id);
        news.reverse();
        news
    }

    async fn told(&self) -> Vec<StoredNews> {
        self.told_since(0).await
    }

    /// The words of what was told by a rule, oldest first.
    async fn words_of(&self, rule: &str) -> Vec<&'static str> {
        let id = self.rule_named(rule).await.id;
        self.told().await.iter().filter(|news| news.key.rule_id == id).map(|news| news.notify.news.as_str()).collect()
    }

    async fn rule_named(&self, name: &str) -> StoredRule {
        self.store().rules().await.unwrap().into_iter().find(|rule| rule.terms.name == name).expect("the rule")
    }

    async fn alert_of(&self, rule: &StoredRule) -> StoredAlert {
        let alerts = self.store().alerts_of_dlq("main", TOPIC, 100).await.unwrap();
        alerts.into_iter().find(|alert| alert.key.rule_id == rule.id).expect("an alert")
    }
}

async fn take_lease(store: &Store, holder: &str) -> HeldLease {
    let seen = store.lease("alerts").await.unwrap();
    let row = store.take_lease("alerts", holder, seen.as_ref()).await.unwrap().expect("it is free");
    HeldLease { name: row.name, epoch: row.epoch }
}

/// So many at a time, so many times, from a minute on, so far apart.
#[derive(Clone, Copy)]
struct Arrivals {
    from_ms: i64,
    every_ms: i64,
    times: i64,
    count: i64,
}

/// Deltas of a counter, made by the database: a day of them is long.
async fn append(store: &Store, dlq_id: i64, kind: &str, arrivals: Arrivals) {
    const SQL: &str = "WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < CAST($4 AS BIGINT))
         INSERT INTO counter_deltas (dlq_id, ref, amount, kind)
         SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT) + i * CAST($3 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS TEXT) FROM n";
    let Arrivals { from_ms, every_ms, times, count } = arrivals;
    let from_ms = from_ms - from_ms.rem_euclid(MINUTE_MS);
    match store {
        Store::Postgres(database) => {
            let query = sqlx::query(SQL).bind(dlq_id).bind(from_ms).bind(every_ms).bind(times).bind(count).bind(kind);
            query.execute(&database.pool).await.map(drop).unwrap();
        }
        Store::Sqlite(database) => {
            let query = sqlx::query(SQL).bind(dlq_id).bind(from_ms).bind(every_ms).bind(times).bind(count).bind(kind);
            query.execute(&database.writer).await.map(drop).unwrap();
        }
    }
}

/// A statement of the test's own.
async fn change(store: &Store, sql: &'static str) {
    match store {
        Store::Postgres(database) => drop(sqlx::query(sql).execute(&database.pool).await.unwrap()),
        Store::Sqlite(database) => drop(sqlx::query(sql).execute(&database.writer).await.unwrap()),
    }
}

fn ana() -> By {
    By { actor: "ana".to_owned(), request_id: None }
}

fn terms(measure: Measure, threshold: f64, clear: f64) -> Terms {
    Terms {
        name: measure.title().to_owned(),
        measure,
        scope: Scope::default(),
        threshold,
        critical_at: None,
        clear,
        for_ms: 0,
        severity: Severity::Warning,
        repeat_ms: REPEAT_MS,
        channels: Vec::new(),
        ignore_before_ms: None,
    }
}

/// Fires at 100 open messages, until there are fewer than 90.
fn deep() -> Terms {
    terms(Measure::Depth, 100.0, 90.0)
}
