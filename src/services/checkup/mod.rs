//! `lazaret check`: can everything that is configured be reached, and what is missing if not? Nothing is changed anywhere.

mod on_demand;

use std::time::Duration;

pub use on_demand::{ClusterTests, NotStarted, Run};

use crate::domain::settings::{ClusterSettings, DlqSettings, Secret, TopicMatch};
use crate::kafka::check::{self, AclTopics};
use crate::ledger::{self, redis::RedisFacts};
use crate::schema::Schemas;
use crate::store::{Store, StoreError};

/// How long one probe may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// A Redis that started less than this long ago proves little by an absent key.
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

/// What the check-up tells while it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// This is being looked at now: "cluster main: list topics".
    Trying(String),
    Done(Step),
}

/// A ledger's tier as the check-up needs it.
#[derive(Debug, Clone)]
pub enum LedgerTier {
    Redis(Secret),
    /// URL and query.
    Sql(Secret, String),
    Http(Secret),
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
        Ok(n) => {
            let missing = if n == 1 { "1 migration is missing".to_owned() } else { format!("{n} migrations are missing") };
            Step::new(DATABASE, Outcome::Warning, missing).remedy("`lazaret serve` applies what is missing; or run `lazaret migrate` first")
        }
        Err(error) => Step::new(DATABASE, Outcome::Failed, error.to_string()).remedy("Let the user of database.url create tables"),
    });
    steps
}

/// A SQLite file that `serve` will make.
pub fn database_to_be_made(path: &std::path::Path) -> Vec<Step> {
    vec![Step::new(DATABASE, Outcome::NotChecked, format!("SQLite file {} is not there yet; `lazaret serve` makes it", path.display()))]
}

/// A cluster: each step of the way to its records and each configured topic are told to `seen` as they are known. Returns the `kafka-acls`
/// lines if a right is missing. Blocks for up to several times `timeout`, which each step may take: call it from `spawn_blocking`.
pub fn cluster(cluster: &ClusterSettings, dlqs: &[DlqSettings], timeout: Duration, seen: &mut dyn FnMut(Progress)) -> Vec<String> {
    let subject = format!("cluster {}", cluster.name);
    let dlqs: Vec<&DlqSettings> = dlqs.iter().filter(|dlq| dlq.cluster == cluster.name).collect();
    let mut wanting = false;
    let mut tell = |progress: Progress| {
        wanting |= matches!(&progress, Progress::Done(step) if matches!(step.outcome, Outcome::Failed | Outcome::Warning));
        seen(progress);
    };
    let wanted = |topic: &str| dlqs.iter().any(|dlq| dlq.topics.covers(topic));
    let visible = check::probe(cluster, &wanted, timeout, &mut |progress| {
        tell(match progress {
            check::Progress::Trying(name) => Progress::Trying(format!("{subject}: {name}")),
            check::Progress::Done(step) => Progress::Done(in_words(&subject, step)),
        });
    });
    // Without an answer there is nothing that an ACL would mend.
    let Some(visible) = visible else { return Vec::new() };
    dlqs.iter().flat_map(|dlq| configured_topics(&subject, &dlq.topics, &visible)).for_each(|step| tell(Progress::Done(step)));
    if wanting { acl_lines(cluster, &dlqs) } else { Vec::new() }
}

/// What to do when a step of [`check::probe`] fails, and whether Lazaret works without it.
const KAFKA_REMEDIES: [(&str, bool, &str); 9] = [
    ("client settings", true, "Correct properties; names and values are in librdkafka's CONFIGURATION.md"),
    ("name and port", true, "Check bootstrap_servers, DNS and the firewall between here and the broker"),
    ("TLS", true, "Check that this port speaks TLS, and ssl.ca.location if the broker's certificate is of an authority of your own"),
    ("sign in", true, "Check sasl.mechanism, sasl.username and the password or token"),
    ("list topics", true, "See the reason; the broker's log says more"),
    ("describe topics", true, "Give this user Describe on the topics: the lines below do"),
    ("read a record", true, "Give this user Read on the topics: the lines below do"),
    ("use the group", true, "Give this user Read on the group: the lines below do"),
    ("read retention", false, "Give this user DescribeConfigs on the topics; without it pages cannot tell how soon a record expires"),
];

fn in_words(subject: &str, step: check::Step) -> Step {
    let (_, needed, remedy) = KAFKA_REMEDIES.iter().find(|(name, ..)| *name == step.name).copied().unwrap_or(("", true, "See the reason"));
    match step.outcome {
        check::Outcome::Ok => {
            let reach = step.note.map_or_else(String::new, |note| format!(" ({note})"));
            Step::new(subject, Outcome::Passed, format!("{}{reach}", step.name))
        }
        check::Outcome::Skipped(why) => Step::new(subject, Outcome::NotChecked, format!("{}: not tried, {why}", step.name)),
        check::Outcome::Failed(why) => {
            let outcome = if needed { Outcome::Failed } else { Outcome::Warning };
            Step::new(subject, outcome, format!("{}: {why}", step.name)).remedy(remedy)
        }
    }
}

/// Each configured name that cannot be seen, and each pattern that matches nothing.
fn configured_topics(subject: &str, topics: &TopicMatch, visible: &[String]) -> Vec<Step> {
    match topics {
        TopicMatch::Names(names) => {
            let missing = names.iter().filter(|name| !visible.contains(name));
            let step = |name: &String| {
                Step::new(subject, Outcome::Failed, format!("topic {name}: does not exist, or this user may not see it"))
                    .remedy("Check the name; if it is right, give this user Describe and Read on it: the lines below do")
            };
            missing.map(step).collect()
        }
        TopicMatch::Pattern(pattern) => {
            let matched = visible.iter().filter(|topic| pattern.is_match(topic)).count();
            vec![match matched {
                0 if visible.is_empty() => Step::new(subject, Outcome::Failed, "this user may see no topic at all")
                    .remedy("Give this user Describe and Read: the lines below do"),
                0 => Step::new(
                    subject,
                    Outcome::Warning,
                    format!("pattern {pattern}: matches none of the {} topics that this user may see", visible.len()),
                )
                .remedy("Check the pattern; if it is right, give this user Describe and Read: the lines below do"),
                1 => Step::new(subject, Outcome::Passed, format!("pattern {pattern}: matches 1 topic")),
                n => Step::new(subject, Outcome::Passed, format!("pattern {pattern}: matches {n} topics")),
            }]
        }
    }
}

fn acl_lines(cluster: &ClusterSettings, dlqs: &[&DlqSettings]) -> Vec<String> {
    let mut topics: Vec<AclTopics> = Vec::new();
    for dlq in dlqs {
        match &dlq.topics {
            TopicMatch::Names(names) => topics.extend(names.iter().cloned().map(AclTopics::Named)),
            TopicMatch::Pattern(pattern) => topics.push(AclTopics::Prefixed(literal_prefix(pattern.as_str()))),
        }
    }
    topics.dedup();
    check::acl_lines(&cluster.bootstrap_servers, &check::principal(cluster), &topics, &cluster.group_id)
}

/// What every match of a pattern begins with; empty where that is anything. Discovery sees only what it may describe, so the right must
/// reach as far as the pattern does.
fn literal_prefix(pattern: &str) -> String {
    let Some(pattern) = pattern.strip_prefix('^').filter(|rest| !has_alternatives_at_top(rest)) else { return String::new() };
    let mut prefix = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        let literal = match next {
            '\\' => rest.next().filter(|escaped| !escaped.is_alphanumeric()),
            next if next.is_alphanumeric() || matches!(next, '_' | '-') => Some(next),
            _ => None,
        };
        let Some(literal) = literal else { break };
        // What may be absent, or is one of several ways, is no part of every match.
        if matches!(rest.peek(), Some('?' | '*' | '{')) {
            break;
        }
        prefix.push(literal);
    }
    prefix
}

/// Whether a `|` stands outside of all brackets.
fn has_alternatives_at_top(pattern: &str) -> bool {
    let (mut depth, mut escaped) = (0_i32, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// A schema: a file is compiled, a registry asked for the subject's current one.
pub async fn schema(name: &str, schemas: &Schemas) -> Step {
    let subject = format!("schema {name}");
    match schemas.described(name).await {
        Ok(said) => Step::new(&subject, Outcome::Passed, said),
        Err(why) => {
            Step::new(&subject, Outcome::Failed, why).remedy(format!("Check schemas.{name}, and that the registry runs and lets us in"))
        }
    }
}

/// One tier of a ledger.
pub async fn ledger_tier(name: &str, tier: &LedgerTier) -> Vec<Step> {
    let subject = format!("ledger {name}");
    match tier {
        LedgerTier::Http(url) => vec![match ledger::http::probe(url).await {
            Ok(()) => Step::new(&subject, Outcome::Passed, "HTTP endpoint: answers a question without keys"),
            Err(error) => Step::new(&subject, Outcome::Failed, format!("HTTP endpoint: {error}")).remedy(format!(
                "Check url of ledgers.{name}.durable, and that it answers POST {{\"keys\":[]}} with {{\"statuses\":{{}}}}"
            )),
        }],
        LedgerTier::Sql(url, query) => vec![match ledger::sql::probe(url, query, TIMEOUT).await {
            Ok(()) => Step::new(&subject, Outcome::Passed, "SQL: connected read-only; its query runs"),
            Err(error) => Step::new(&subject, Outcome::Failed, format!("SQL: {error}"))
                .remedy(format!("Check url and query of ledgers.{name}.durable")),
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
    fn acls_reach_as_far_as_the_pattern() {
        let table = [
            (r"^payments\..*\.DLQ$", "payments."),
            (r"\.(DLQ|DLT)$", ""),
            (r"^orders-dlt$", "orders-dlt"),
            (r"^orders?-dlt$", "order"),
            (r"^a|^b", ""),
            (r"^pay(ments|outs)-dlq", "pay"),
            (r"^\d+", ""),
        ];
        for (pattern, prefix) in table {
            assert_eq!(literal_prefix(pattern), prefix, "{pattern}");
        }
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
