//! `lazaret check`: can everything that is configured be reached, and what is missing if not? Nothing is changed anywhere.

mod on_demand;

use std::collections::BTreeSet;
use std::time::Duration;

pub use on_demand::{ClusterTests, NotStarted, Run};

use crate::domain::settings::{ClusterSettings, DlqSettings, Secret, TopicMatch};
use crate::kafka::check::{self, AclTopics};
use crate::kafka::client::KafkaError;
use crate::kafka::groups::Member;
use crate::kafka::inspect::Inspector;
use crate::kafka::target::Rights;
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
    Redis {
        url: Secret,
        /// A durable tier is asked for what this one does not know.
        has_durable: bool,
    },
    /// URL and query.
    Sql(Secret, String),
    Http(Secret),
}

const DATABASE: &str = "database";

/// The database: reachable, which version, up to date. `setting` names the setting that says where it is, `place` that place.
pub async fn database(connected: &Result<Store, StoreError>, setting: &str, place: &str) -> Vec<Step> {
    let store = match connected {
        Ok(store) => store,
        Err(error) => {
            let remedy = format!("Check {setting}, and that the server runs, has this database and lets this host and user in");
            return vec![Step::new(DATABASE, Outcome::Failed, format!("{place}: {}", without_subject(error))).remedy(remedy)];
        }
    };
    let mut steps = Vec::new();
    match store.version().await {
        Ok(version) => steps.push(Step::new(DATABASE, Outcome::Passed, format!("connected: {version}"))),
        Err(error) => {
            steps.push(Step::new(DATABASE, Outcome::Failed, without_subject(&error)).remedy("Look into the database server's log"));
        }
    }
    steps.push(match store.missing_migrations().await {
        Ok(0) => Step::new(DATABASE, Outcome::Passed, "up to date"),
        Ok(n) => {
            let missing = if n == 1 { "1 migration is missing".to_owned() } else { format!("{n} migrations are missing") };
            Step::new(DATABASE, Outcome::Warning, missing).remedy("`lazaret serve` applies what is missing; or run `lazaret migrate` first")
        }
        Err(error) => {
            Step::new(DATABASE, Outcome::Failed, without_subject(&error)).remedy(format!("Let the user of {setting} create tables"))
        }
    });
    steps
}

/// What went wrong with the database, for a line that has named it.
fn without_subject(error: &StoreError) -> String {
    let said = error.to_string();
    said.strip_prefix("database: ").map(str::to_owned).unwrap_or(said)
}

/// A SQLite file that `serve` will make.
pub fn database_to_be_made(path: &std::path::Path) -> Vec<Step> {
    vec![Step::new(DATABASE, Outcome::NotChecked, format!("SQLite file {} is not there yet; `lazaret serve` makes it", path.display()))]
}

/// What came of looking at a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looked {
    /// A broker answered, so that more can be asked.
    pub answered: bool,
    /// The `kafka-acls` lines, if a right is missing.
    pub acls: Vec<String>,
}

/// A cluster: each step of the way to its records and each configured topic are told to `seen` as they are known. Blocks for up to several
/// times `timeout`, which each step may take: call it from `spawn_blocking`.
pub fn cluster(cluster: &ClusterSettings, dlqs: &[DlqSettings], timeout: Duration, seen: &mut dyn FnMut(Progress)) -> Looked {
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
    let Some(visible) = visible else { return Looked::default() };
    dlqs.iter().flat_map(|dlq| configured_topics(&subject, &dlq.topics, &visible)).for_each(|step| tell(Progress::Done(step)));
    Looked { answered: true, acls: if wanting { acl_lines(cluster, &dlqs, &visible) } else { Vec::new() } }
}

/// How many instances of this database may be members of intake's consumer group now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instances {
    None,
    One,
    Several,
}

/// Who else is in intake's consumer group: two installations in one group get a part of the partitions each, and neither says so. Blocks.
pub fn group_members(cluster: &ClusterSettings, instances: Instances, timeout: Duration, seen: &mut dyn FnMut(Progress)) {
    let subject = format!("cluster {}", cluster.name);
    seen(Progress::Trying(format!("{subject}: members of group {}", cluster.group_id)));
    let members = Inspector::connect(cluster).and_then(|inspector| inspector.members(&cluster.group_id, timeout));
    seen(Progress::Done(members_step(&subject, &cluster.name, &cluster.group_id, members, instances)));
}

fn members_step(subject: &str, cluster: &str, group: &str, members: Result<Vec<Member>, KafkaError>, instances: Instances) -> Step {
    let members = match members {
        Ok(members) => members,
        Err(error) => {
            let said = format!("members of group {group}: not known: {}", error.reason());
            return Step::new(subject, Outcome::NotChecked, said);
        }
    };
    let who: Vec<String> = members.iter().map(|member| format!("{} at {}", member.client, member.host)).collect();
    let who = who.join(", ");
    let said = match (members.len(), instances) {
        (0, _) => return Step::new(subject, Outcome::Passed, format!("group {group}: nobody is in it")),
        (1, Instances::One | Instances::Several) => {
            return Step::new(subject, Outcome::Passed, format!("group {group}: 1 member, {who}"));
        }
        (count, Instances::Several) => {
            let said = format!("group {group}: {count} members, {who}. Each must be an instance of this very database");
            return Step::new(subject, Outcome::Passed, said);
        }
        (count, Instances::One) => format!("group {group}: {count} members, {who}, and only one can be of this database"),
        (_, Instances::None) => format!("group {group} is in use, by {who}, and no instance of this database runs"),
    };
    Step::new(subject, Outcome::Warning, said).remedy(format!(
        "Give this installation a group_id of its own under clusters.{cluster}: in one group two installations get a part of the partitions each"
    ))
}

/// What replays need of a cluster, as it is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayNeeds {
    /// Topics that `targets` names.
    pub targets: BTreeSet<String>,
    /// Whether `targets` names `origin`, the topic that a message came from.
    pub origin: bool,
    /// Consumer groups that are configured as readers of a target.
    pub groups: BTreeSet<String>,
}

/// Whether replays can go where they are configured to go. Nothing is sent to find out. Returns the `kafka-acls` lines for what is missing or
/// could not be tried. Blocks.
pub fn replays(cluster: &ClusterSettings, needs: &ReplayNeeds, timeout: Duration, seen: &mut dyn FnMut(Progress)) -> Vec<String> {
    let subject = format!("cluster {}", cluster.name);
    let inspector = match Inspector::connect(cluster) {
        Ok(inspector) => inspector,
        Err(error) => {
            seen(Progress::Done(Step::new(&subject, Outcome::Failed, format!("replay targets: {}", error.reason()))));
            return Vec::new();
        }
    };
    let (mut topics, mut groups) = (Vec::new(), Vec::new());
    if !needs.targets.is_empty() {
        seen(Progress::Trying(format!("{subject}: replay targets")));
        let targets: Vec<String> = needs.targets.iter().cloned().collect();
        match inspector.rights(&targets, timeout) {
            Ok(rights) => {
                for (target, rights) in rights {
                    let step = target_step(&subject, &target, &rights);
                    if step.outcome != Outcome::Passed {
                        topics.push(target);
                    }
                    seen(Progress::Done(step));
                }
            }
            Err(error) => {
                let step = Step::new(&subject, Outcome::Failed, format!("replay targets: {}", error.reason()));
                seen(Progress::Done(step.remedy("See the reason; the broker's log says more")));
            }
        }
    }
    for group in &needs.groups {
        seen(Progress::Trying(format!("{subject}: group {group}")));
        let step = reader_step(&subject, group, inspector.members(group, timeout));
        if step.outcome == Outcome::Failed {
            groups.push(group.clone());
        }
        seen(Progress::Done(step));
    }
    if needs.origin {
        let said = "replay to origin: not tried, for only a dead letter says which topic it came from; needs Write, Describe and DescribeConfigs there";
        seen(Progress::Done(Step::new(&subject, Outcome::NotChecked, said)));
    }
    // Without signing in there is nobody to whom a right could be given.
    let origin = needs.origin && check::signs_in(cluster);
    check::replay_acl_lines(&cluster.bootstrap_servers, &check::principal(cluster), &topics, &groups, origin)
}

fn target_step(subject: &str, target: &str, rights: &Rights) -> Step {
    let step = |outcome, said: &str| Step::new(subject, outcome, format!("replay target {target}: {said}"));
    match rights {
        Rights::NotSeen => step(Outcome::Failed, "does not exist, or this user may not see it")
            .remedy("Make the topic, or correct targets; if it is there, give this user Describe and Write on it: the lines below do"),
        Rights::NotTold => step(Outcome::NotChecked, "exists; whether this user may write there, this broker does not tell"),
        Rights::Told { write: false, .. } => {
            step(Outcome::Failed, "exists, and this user may not write there").remedy("Give this user Write on it: the lines below do")
        }
        Rights::Told { describe_configs: false, .. } => {
            step(Outcome::Warning, "exists and may be written to; whether it is compacted is not known without DescribeConfigs")
                .remedy("Give this user DescribeConfigs on it: the lines below do")
        }
        Rights::Told { .. } => step(Outcome::Passed, "exists, and this user may write there"),
    }
}

fn reader_step(subject: &str, group: &str, members: Result<Vec<Member>, KafkaError>) -> Step {
    let step = |outcome, said: &str| Step::new(subject, outcome, format!("group {group}, which reads replays: {said}"));
    match members {
        Ok(members) if members.is_empty() => step(Outcome::Warning, "nobody is in it now, or there is no such group")
            .remedy("Check the group's name, and that its consumers run: a replay is proven by what this group commits"),
        Ok(members) if members.len() == 1 => step(Outcome::Passed, "1 member"),
        Ok(members) => step(Outcome::Passed, &format!("{} members", members.len())),
        Err(error @ KafkaError::NotPermitted { .. }) => {
            step(Outcome::Failed, error.reason()).remedy("Give this user Describe on the group: the lines below do")
        }
        Err(error) => step(Outcome::NotChecked, error.reason()),
    }
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
                    .remedy("Give this user Describe and Read on the dead-letter topics"),
                0 => Step::new(
                    subject,
                    Outcome::Warning,
                    format!("pattern {pattern}: matches none of the {} topics that this user may see", visible.len()),
                )
                .remedy("Check the pattern; if it is right, this user may not see what it matches: give it Describe and Read there"),
                1 => Step::new(subject, Outcome::Passed, format!("pattern {pattern}: matches 1 topic")),
                n => Step::new(subject, Outcome::Passed, format!("pattern {pattern}: matches {n} topics")),
            }]
        }
    }
}

/// For all that is configured, but for a pattern that matches nothing and begins with anything: the right to all topics is nobody's answer to
/// a pattern that may be misspelt.
fn acl_lines(cluster: &ClusterSettings, dlqs: &[&DlqSettings], visible: &[String]) -> Vec<String> {
    let mut topics: Vec<AclTopics> = Vec::new();
    for dlq in dlqs {
        match &dlq.topics {
            TopicMatch::Names(names) => topics.extend(names.iter().cloned().map(AclTopics::Named)),
            TopicMatch::Pattern(pattern) => {
                let prefix = literal_prefix(pattern.as_str());
                if !prefix.is_empty() || visible.iter().any(|topic| pattern.is_match(topic)) {
                    topics.push(AclTopics::Prefixed(prefix));
                }
            }
        }
    }
    topics.dedup();
    if topics.is_empty() {
        return Vec::new();
    }
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
            Ok(columns) => sql_step(&subject, columns),
            Err(error) => Step::new(&subject, Outcome::Failed, format!("SQL: {error}"))
                .remedy(format!("Check url and query of ledgers.{name}.durable")),
        }],
        LedgerTier::Redis { url, has_durable } => match ledger::redis::probe(url, TIMEOUT).await {
            Ok(facts) => redis_steps(&subject, &facts, *has_durable),
            Err(error) => {
                vec![Step::new(&subject, Outcome::Failed, format!("Redis: {error}")).remedy(format!("Check url of ledgers.{name}.hot"))]
            }
        },
    }
}

fn sql_step(subject: &str, columns: ledger::sql::Columns) -> Step {
    const RUNS: &str = "SQL: connected read-only; its query runs";
    match columns {
        ledger::sql::Columns { count: 2.., .. } => {
            Step::new(subject, Outcome::Warning, format!("{RUNS} and returns {} columns, of which the first alone is read", columns.count))
                .remedy("Let the query return the key alone")
        }
        ledger::sql::Columns { text: true, .. } => Step::new(subject, Outcome::Passed, RUNS),
        ledger::sql::Columns { text: false, .. } => Step::new(
            subject,
            Outcome::Passed,
            format!("{RUNS} (SQLite does not tell whether it returns text; another type is refused when a key is found)"),
        ),
    }
}

/// What a Redis says of itself, judged by whether an absent key will prove anything. With a durable tier it need not: that one is asked then.
fn redis_steps(subject: &str, facts: &RedisFacts, has_durable: bool) -> Vec<Step> {
    let version = facts.version.as_deref().unwrap_or("of unknown version");
    let connected = Step::new(subject, Outcome::Passed, format!("Redis {version}: connected"));
    if has_durable {
        let policy = facts.eviction_policy.as_deref().unwrap_or("not told");
        let uptime = facts.uptime_s.map_or_else(|| "not told for how long".to_owned(), |up| format!("for {}", age(up)));
        let said = format!("Redis: up {uptime}, maxmemory-policy {policy}; what it does not know, the durable tier is asked for");
        return vec![connected, Step::new(subject, Outcome::Passed, said)];
    }
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
    vec![connected, eviction, uptime]
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
        redis_steps("ledger w", &facts, false).iter().map(|step| step.outcome).collect()
    }

    #[test]
    fn a_redis_that_forgets_is_no_news_where_a_durable_tier_is_asked() {
        let facts = RedisFacts { version: None, uptime_s: Some(4_320), eviction_policy: Some("allkeys-lru".to_owned()) };
        let steps = redis_steps("ledger w", &facts, true);
        assert!(steps.iter().all(|step| step.outcome == Outcome::Passed && step.remedy.is_none()), "{steps:?}");
        assert_eq!(
            steps[1].said,
            "Redis: up for 72 min, maxmemory-policy allkeys-lru; what it does not know, the durable tier is asked for"
        );
    }

    #[test]
    fn whoever_else_is_in_the_group_is_named() {
        let member = |host: &str| Member { client: "lazaret".to_owned(), host: host.to_owned() };
        let two = || vec![member("10.0.0.7"), member("10.0.0.8")];
        let step = |members, instances| members_step("cluster main", "main", "lazaret", Ok(members), instances);
        let foreign = step(vec![member("10.0.0.7")], Instances::None);
        assert_eq!(
            (foreign.outcome, foreign.said.as_str()),
            (Outcome::Warning, "group lazaret is in use, by lazaret at 10.0.0.7, and no instance of this database runs")
        );
        assert!(foreign.remedy.is_some_and(|remedy| remedy.contains("a group_id of its own under clusters.main")));
        assert_eq!(step(two(), Instances::One).outcome, Outcome::Warning);
        assert_eq!(step(vec![member("10.0.0.7")], Instances::One).outcome, Outcome::Passed);
        let several = step(two(), Instances::Several);
        assert_eq!(several.outcome, Outcome::Passed);
        assert!(several.said.contains("lazaret at 10.0.0.8. Each must be an instance of this very database"), "{}", several.said);
        let refused = KafkaError::NotPermitted { cluster: "main".to_owned(), reason: "no".to_owned() };
        assert_eq!(members_step("cluster main", "main", "g", Err(refused), Instances::None).outcome, Outcome::NotChecked);
    }

    #[test]
    fn a_pattern_that_matches_nothing_asks_for_no_right_to_all_topics() {
        let cluster = ClusterSettings {
            name: "main".into(),
            bootstrap_servers: "k:9092".into(),
            properties: std::collections::BTreeMap::new(),
            oauth_token: None,
            discovery_interval_s: 30,
            sample_interval_s: 15,
            group_id: "lazaret".into(),
        };
        let lines = |pattern: &str, visible: &[&str]| {
            let topics = TopicMatch::Pattern(regex::Regex::new(pattern).unwrap());
            let visible: Vec<String> = visible.iter().map(|topic| (*topic).to_owned()).collect();
            acl_lines(&cluster, &[&DlqSettings::for_topics("main", topics)], &visible)
        };
        assert_eq!(lines("nothing-matches", &["a.DLQ"]), Vec::<String>::new());
        assert!(lines(r"\.DLQ$", &["a.DLQ"])[0].contains("--topic '*'"));
        assert!(lines(r"^pay\..*DLQ$", &["a.DLQ"])[0].contains("prefixed --topic pay."));
    }

    #[test]
    fn what_may_be_done_with_a_target_is_told_apart() {
        let outcome = |rights| target_step("cluster main", "t", &rights).outcome;
        assert_eq!(outcome(Rights::NotSeen), Outcome::Failed);
        assert_eq!(outcome(Rights::NotTold), Outcome::NotChecked);
        assert_eq!(outcome(Rights::Told { write: false, describe_configs: true }), Outcome::Failed);
        assert_eq!(outcome(Rights::Told { write: true, describe_configs: false }), Outcome::Warning);
        assert_eq!(outcome(Rights::Told { write: true, describe_configs: true }), Outcome::Passed);
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
