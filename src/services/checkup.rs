//! `lazaret check`: can everything that is configured be reached, and what is missing if not? Nothing is changed anywhere.

use std::time::Duration;

use crate::domain::settings::Secret;
use crate::kafka;
use crate::ledger::{self, redis::RedisFacts};
use crate::store::{Store, StoreError};

/// How long one probe may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// A Redis that started less than this long ago proves little by an absent key (PROTOCOLS 4).
const RECENT_START_S: u64 = 24 * 3_600;

/// How a step came out. What was not tried is never shown as passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// It works, and something about it will bite later.
    Warning,
    Failed,
    NotChecked,
}

/// One step of the check-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What was looked at: "database", "cluster main", "ledger wallet".
    pub subject: String,
    /// What was tried, and what came of it, in words.
    pub said: String,
    pub outcome: Outcome,
    /// What to do about it; None where nothing is to be done.
    pub remedy: Option<String>,
}

impl Step {
    pub fn new(subject: &str, outcome: Outcome, said: impl Into<String>) -> Step {
        Step { subject: subject.to_owned(), said: said.into(), outcome, remedy: None }
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Step {
        self.remedy = Some(remedy.into());
        self
    }
}

/// A ledger's tier as the check-up needs it.
#[derive(Debug, Clone)]
pub enum LedgerTier {
    Redis(Secret),
    Sql(Secret),
    Http,
}

const DATABASE: &str = "database";

/// The database: reachable, which version, up to date.
pub async fn database(connected: &Result<Store, StoreError>) -> Vec<Step> {
    let store = match connected {
        Ok(store) => store,
        Err(error) => {
            let remedy = "Check database.url, and that the server runs and lets this host and user in";
            return vec![Step::new(DATABASE, Outcome::Failed, error.to_string()).remedy(remedy)];
        }
    };
    let mut steps = Vec::new();
    match store.version().await {
        Ok(version) => steps.push(Step::new(DATABASE, Outcome::Passed, format!("connected: {version}"))),
        Err(error) => steps.push(Step::new(DATABASE, Outcome::Failed, error.to_string()).remedy("Look into the database server's log")),
    }
    steps.push(match store.missing_migrations().await {
        Ok(0) => Step::new(DATABASE, Outcome::Passed, "up to date"),
        Ok(n) => Step::new(DATABASE, Outcome::Warning, format!("{n} migrations are missing"))
            .remedy("`lazaret serve` applies them; or run `lazaret migrate` first"),
        Err(error) => Step::new(DATABASE, Outcome::Failed, error.to_string()).remedy("Let the user of database.url create tables"),
    });
    steps
}

/// A SQLite file that `serve` will make.
pub fn database_to_be_made(path: &std::path::Path) -> Vec<Step> {
    vec![Step::new(DATABASE, Outcome::NotChecked, format!("SQLite file {} is not there yet; `lazaret serve` makes it", path.display()))]
}

/// One tier of a ledger.
pub async fn ledger_tier(name: &str, tier: &LedgerTier) -> Vec<Step> {
    let subject = format!("ledger {name}");
    match tier {
        LedgerTier::Http => vec![Step::new(&subject, Outcome::NotChecked, "HTTP endpoint: not checked, this version does not call it")],
        LedgerTier::Sql(url) => vec![match ledger::sql::probe(url, TIMEOUT).await {
            Ok(()) => Step::new(&subject, Outcome::Passed, "SQL: connected read-only; its query was not tried"),
            Err(error) => {
                Step::new(&subject, Outcome::Failed, format!("SQL: {error}")).remedy(format!("Check url of ledgers.{name}.durable"))
            }
        }],
        LedgerTier::Redis(url) => match ledger::redis::probe(url, TIMEOUT).await {
            Ok(facts) => redis_steps(&subject, &facts),
            Err(error) => {
                vec![Step::new(&subject, Outcome::Failed, format!("Redis: {error}")).remedy(format!("Check url of ledgers.{name}.hot"))]
            }
        },
    }
}

/// What a Redis says of itself, judged by whether an absent key will prove anything.
fn redis_steps(subject: &str, facts: &RedisFacts) -> Vec<Step> {
    let version = facts.version.as_deref().unwrap_or("of unknown version");
    let durable = "Add a durable tier to the ledger; without one, a key that is not there proves nothing";
    let eviction = match facts.eviction_policy.as_deref() {
        Some("noeviction") => Step::new(subject, Outcome::Passed, "Redis: keeps all keys until they expire (noeviction)"),
        Some(policy) => {
            Step::new(subject, Outcome::Warning, format!("Redis: throws keys away when memory is short (maxmemory-policy {policy})"))
                .remedy(format!("Set maxmemory-policy to noeviction. Or: {durable}"))
        }
        None => Step::new(subject, Outcome::Warning, "Redis: will not say whether it throws keys away (CONFIG GET maxmemory-policy)")
            .remedy(format!("Let this user run CONFIG GET. Or: {durable}")),
    };
    let uptime = match facts.uptime_s {
        Some(up) if up >= RECENT_START_S => Step::new(subject, Outcome::Passed, format!("Redis: up for {}", age(up))),
        Some(up) => {
            Step::new(subject, Outcome::Warning, format!("Redis: started {} ago; keys from before may be lost", age(up))).remedy(durable)
        }
        None => Step::new(subject, Outcome::Warning, "Redis: will not say when it started (INFO server)")
            .remedy(format!("Let this user run INFO. Or: {durable}")),
    };
    vec![Step::new(subject, Outcome::Passed, format!("Redis {version}: connected")), eviction, uptime]
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(policy: Option<&str>, uptime_s: Option<u64>) -> Vec<Outcome> {
        let facts = RedisFacts { version: None, uptime_s, eviction_policy: policy.map(str::to_owned) };
        redis_steps("ledger w", &facts).iter().map(|step| step.outcome).collect()
    }

    #[test]
    fn a_redis_that_forgets_or_will_not_say_is_never_green() {
        use Outcome::{Passed, Warning};
        assert_eq!(outcomes(Some("noeviction"), Some(1_000_000)), [Passed, Passed, Passed]);
        assert_eq!(outcomes(Some("allkeys-lru"), Some(1_000_000)), [Passed, Warning, Passed]);
        assert_eq!(outcomes(Some("noeviction"), Some(600)), [Passed, Passed, Warning]);
        assert_eq!(outcomes(None, None), [Passed, Warning, Warning]);
    }
}
