//! What `lazaret check` asks of a cluster, step by step, and which rights it needs. Joins no group, creates nothing, writes nothing.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::client::{KafkaError, Reporter, client_config, creation_error};
use super::inspect::{Inspector, TopicInfo, TopicPartition};
use crate::domain::clock::Clock;
use crate::domain::health::Retention;
use crate::domain::settings::ClusterSettings;

/// One question to the cluster and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub name: &'static str,
    pub outcome: Outcome,
    /// How far an answer reaches, where not everything was tried.
    pub note: Option<String>,
}

/// What [`probe`] tells while it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// This step begins. Steps that are one request are known together at its end.
    Trying(&'static str),
    Done(Step),
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// What the broker, or the way to it, said.
    Failed(String),
    /// It was not tried, and why: an earlier step failed, or there is nothing to try.
    Skipped(String),
}

/// The steps, in the order in which each needs the one before.
const SETTINGS: &str = "client settings";
const CONNECT: &str = "name and port";
const TLS: &str = "TLS";
const SIGN_IN: &str = "sign in";
const LIST: &str = "list topics";
const DESCRIBE: &str = "describe topics";
const READ: &str = "read a record";
const GROUP: &str = "use the group";
const CONFIGURATION: &str = "read retention";
const STEPS: [&str; 9] = [SETTINGS, CONNECT, TLS, SIGN_IN, LIST, DESCRIBE, READ, GROUP, CONFIGURATION];

/// So many topics are read from, a record each; rights are rarely given topic by topic.
const TOPICS_READ: usize = 3;

/// Goes through all steps with the topics that are `wanted`, and tells each to `seen` as soon as it is known. Blocks up to a few times
/// `timeout`; always answers every step. Returns the names of all topics that this user may see; None: nobody answered.
pub fn probe(
    cluster: &ClusterSettings,
    wanted: &dyn Fn(&str) -> bool,
    timeout: Duration,
    seen: &mut dyn FnMut(Progress),
) -> Option<Vec<String>> {
    let mut steps = Steps { done: 0, visible: None, seen };
    if let Err(stopped) = steps.go(cluster, wanted, timeout) {
        STEPS[steps.done..].iter().for_each(|name| steps.skip(name, &stopped));
    }
    steps.visible
}

struct Steps<'a> {
    done: usize,
    visible: Option<Vec<String>>,
    seen: &'a mut dyn FnMut(Progress),
}

impl Steps<'_> {
    fn trying(&mut self, name: &'static str) {
        (self.seen)(Progress::Trying(name));
    }

    fn done(&mut self, name: &'static str, outcome: Outcome, note: Option<String>) {
        self.done += 1;
        (self.seen)(Progress::Done(Step { name, outcome, note }));
    }

    /// Notes the outcome; on failure everything after it is skipped, with the returned text as the reason.
    fn need<T>(&mut self, name: &'static str, result: Result<T, String>) -> Result<T, String> {
        self.note(name, result.as_ref().map(|_| ()).map_err(Clone::clone));
        result.map_err(|_| format!("needs \"{name}\""))
    }

    /// Notes the outcome; what comes after does not depend on it.
    fn note(&mut self, name: &'static str, result: Result<(), String>) {
        self.done(name, result.map_or_else(Outcome::Failed, |()| Outcome::Ok), None);
    }

    fn skip(&mut self, name: &'static str, why: &str) {
        self.done(name, Outcome::Skipped(why.to_owned()), None);
    }

    fn go(&mut self, cluster: &ClusterSettings, wanted: &dyn Fn(&str) -> bool, timeout: Duration) -> Result<(), String> {
        let inspector = self.need(SETTINGS, Inspector::connect(cluster).map_err(reason))?;
        self.trying(CONNECT);
        self.need(CONNECT, reach(&cluster.bootstrap_servers, timeout))?;
        let topics = self.first_answer(cluster, &inspector, timeout)?;
        self.visible = Some(topics.iter().map(|topic| topic.name.clone()).collect());

        let known: Vec<&TopicInfo> = topics.iter().filter(|topic| wanted(&topic.name)).collect();
        if known.is_empty() {
            return Err("none of the configured topics exists, or this user may not describe it".to_owned());
        }
        self.trying(DESCRIBE);
        let described = self.need(DESCRIBE, describe(&inspector, &known, timeout))?;
        self.trying(READ);
        let outcome = read(&inspector, &described, timeout).map_or_else(Outcome::Failed, |()| Outcome::Ok);
        let part = (described.len() > TOPICS_READ).then(|| format!("tried on {TOPICS_READ} of {} topics", described.len()));
        self.done(READ, outcome, part);
        self.trying(GROUP);
        self.note(GROUP, use_group(cluster, &described, timeout));
        self.trying(CONFIGURATION);
        let names: Vec<String> = known.iter().map(|topic| topic.name.clone()).collect();
        self.note(CONFIGURATION, configuration(&inspector, &names, timeout));
        Ok(())
    }

    /// TLS, signing in and the first request happen inside the client; which of them failed is read from its report.
    fn first_answer(&mut self, cluster: &ClusterSettings, inspector: &Inspector, timeout: Duration) -> Result<Vec<TopicInfo>, String> {
        let protocol = property(cluster, &["security.protocol"]).unwrap_or_default().to_ascii_uppercase();
        let (tls, sasl) = (protocol.ends_with("SSL"), protocol.starts_with("SASL"));
        self.trying(if tls {
            TLS
        } else if sasl {
            SIGN_IN
        } else {
            LIST
        });
        let answer = inspector.topics(timeout);
        let failed_at = match &answer {
            Ok(_) => None,
            Err(KafkaError::NotPermitted { .. }) if sasl => Some(SIGN_IN),
            Err(_) if inspector.last_trouble() == Some(RDKafkaErrorCode::SSL) && tls => Some(TLS),
            Err(KafkaError::Unreachable { .. }) if tls => Some(TLS),
            Err(KafkaError::Unreachable { .. }) if sasl => Some(SIGN_IN),
            Err(_) => Some(LIST),
        };
        let answer = answer.map_err(reason);
        for (name, used, absent) in [(TLS, tls, "security.protocol asks for none"), (SIGN_IN, sasl, "security.protocol asks for none")] {
            if failed_at == Some(name) {
                return self.need(name, answer);
            }
            if used { self.note(name, Ok(())) } else { self.skip(name, absent) }
        }
        self.need(LIST, answer)
    }
}

fn reason(error: KafkaError) -> String {
    error.reason().to_owned()
}

fn property<'a>(cluster: &'a ClusterSettings, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| cluster.properties.get(*name)).map(|value| value.expose())
}

/// Resolves and connects to each bootstrap server; one that answers is enough.
fn reach(bootstrap_servers: &str, timeout: Duration) -> Result<(), String> {
    let mut reasons = Vec::new();
    for server in bootstrap_servers.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        // librdkafka takes "protocol://host:port" too, and 9092 where no port is said.
        let server = server.rsplit_once("://").map_or(server, |(_, server)| server);
        let with_port = if server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            server.to_owned()
        } else {
            format!("{server}:9092")
        };
        let connected = with_port.to_socket_addrs().and_then(|addresses| {
            let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
            for address in addresses {
                match TcpStream::connect_timeout(&address, timeout) {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        match connected {
            Ok(()) => return Ok(()),
            Err(error) => reasons.push(format!("{with_port}: {error}")),
        }
    }
    Err(if reasons.is_empty() { "no bootstrap server is named".to_owned() } else { reasons.join("; ") })
}

/// Ids and log ends need Describe. Answers with a partition of each topic and the start of its log, one with records where there is one;
/// topics with records come first, since reading from an empty one is a wait for nothing.
fn describe(inspector: &Inspector, topics: &[&TopicInfo], timeout: Duration) -> Result<Vec<(TopicPartition, i64)>, String> {
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    inspector.topic_ids(&names, timeout).map_err(reason)?;
    let partitions: Vec<TopicPartition> =
        topics.iter().flat_map(|topic| (0..topic.partitions).map(|partition| (topic.name.clone(), partition))).collect();
    let mut chosen: std::collections::BTreeMap<String, (i32, i64, bool)> = std::collections::BTreeMap::new();
    for ((topic, partition), ends) in inspector.log_ends(&partitions, timeout) {
        let ends = ends.map_err(|error| format!("{topic} partition {partition}: {}", error.reason()))?;
        let filled = ends.end > ends.start;
        let choice = chosen.entry(topic).or_insert((partition, ends.start, filled));
        if filled && !choice.2 {
            *choice = (partition, ends.start, filled);
        }
    }
    let mut chosen: Vec<_> = chosen.into_iter().collect();
    chosen.sort_by_key(|(_, (.., filled))| !filled);
    Ok(chosen.into_iter().map(|(topic, (partition, start, _))| ((topic, partition), start)).collect())
}

/// Fetching needs Read; an empty topic answers with its end or a refusal, which tells as much.
fn read(inspector: &Inspector, described: &[(TopicPartition, i64)], timeout: Duration) -> Result<(), String> {
    for (partition, start) in described.iter().take(TOPICS_READ) {
        inspector.record_at(partition, *start, timeout).map_err(|error| format!("{}: {}", partition.0, error.reason()))?;
    }
    Ok(())
}

/// Between two questions to a group's coordinator that is on its way.
const MOVING_PAUSE: Duration = Duration::from_millis(200);

/// The group's coordinator is being chosen, loaded or moved, which says nothing of rights: it answers in a moment.
fn is_moving(error: &rdkafka::error::KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(error.rdkafka_error_code(), Some(Code::NotCoordinator | Code::CoordinatorNotAvailable | Code::CoordinatorLoadInProgress))
}

/// Asks for the group's own positions, which takes the right to use the group, and does not join it.
fn use_group(cluster: &ClusterSettings, described: &[(TopicPartition, i64)], timeout: Duration) -> Result<(), String> {
    let config = client_config(cluster, &[], &[("group.id", &cluster.group_id)]).map_err(reason)?;
    let consumer: BaseConsumer<Reporter> =
        config.create_with_context(Reporter::new(cluster)).map_err(|error| reason(creation_error(cluster, &error)))?;
    // Gets a token, where one is needed: it is asked for in a poll.
    let _ = consumer.poll(Duration::from_millis(100));
    let mut list = TopicPartitionList::new();
    if let Some(((topic, partition), _)) = described.first() {
        list.add_partition(topic, *partition);
    }
    let clock = Clock::system();
    let deadline = clock.monotonic() + timeout;
    let asked = loop {
        let left = deadline.saturating_sub(clock.monotonic()).max(MOVING_PAUSE);
        let asked = consumer.committed_offsets(list.clone(), left);
        let _ = consumer.poll(Duration::from_millis(100));
        match &asked {
            Err(error) if is_moving(error) && clock.monotonic() + MOVING_PAUSE < deadline => std::thread::sleep(MOVING_PAUSE),
            _ => break asked,
        }
    };
    match asked {
        Ok(_) => Ok(()),
        Err(error) => {
            let reporter = consumer.context();
            let error = match (reporter.rdkafka_error(&error), reporter.explanation()) {
                (KafkaError::Unreachable { .. }, Some(trouble)) => reporter.kafka_error(trouble.code, &trouble.reason),
                (error, _) => error,
            };
            Err(format!("group {}: {}", cluster.group_id, error.reason()))
        }
    }
}

fn configuration(inspector: &Inspector, topics: &[String], timeout: Duration) -> Result<(), String> {
    for (topic, retention) in inspector.retention(topics, timeout) {
        let why = match retention {
            Retention::Ms(_) | Retention::Unlimited => continue,
            Retention::NotPermitted => "DescribeConfigs is not permitted; \"at risk\" will say so instead of a time",
            Retention::Unknown => "the broker does not tell; \"at risk\" stays unknown",
        };
        return Err(format!("{topic}: {why}"));
    }
    Ok(())
}

/// The topics that a right is given for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AclTopics {
    Named(String),
    /// All whose names begin with this; empty means all topics.
    Prefixed(String),
}

impl AclTopics {
    fn arguments(&self) -> String {
        match self {
            AclTopics::Named(name) => format!("--topic {}", quoted(name)),
            AclTopics::Prefixed(prefix) if prefix.is_empty() => "--topic '*'".to_owned(),
            AclTopics::Prefixed(prefix) => format!("--resource-pattern-type prefixed --topic {}", quoted(prefix)),
        }
    }
}

/// Whether the client says who it is, by SASL or TLS.
pub fn signs_in(cluster: &ClusterSettings) -> bool {
    property(cluster, &["security.protocol"]).is_some_and(|protocol| !protocol.eq_ignore_ascii_case("PLAINTEXT"))
}

/// Who signs in, as an ACL names it; a placeholder where only the broker knows (a certificate, a token).
pub fn principal(cluster: &ClusterSettings) -> String {
    match (property(cluster, &["sasl.username"]), &cluster.oauth_token) {
        (Some(user), None) => format!("User:{user}"),
        _ => "User:<principal>".to_owned(),
    }
}

/// The `kafka-acls` lines that give `principal` what intake needs: to find and read the topics and to use the group; and, so that pages can
/// tell how long a record has left, to read the topics' configuration (optional).
pub fn acl_lines(bootstrap_servers: &str, principal: &str, topics: &[AclTopics], group: &str) -> Vec<String> {
    let command = format!("kafka-acls --bootstrap-server {} --add --allow-principal {}", quoted(bootstrap_servers), quoted(principal));
    let mut lines: Vec<String> =
        topics.iter().map(|topics| format!("{command} --operation Describe --operation Read {}", topics.arguments())).collect();
    lines.push(format!("{command} --operation Read --group {}", quoted(group)));
    lines.extend(topics.iter().map(|topics| format!("{command} --operation DescribeConfigs {}  # optional", topics.arguments())));
    lines
}

/// The `kafka-acls` lines that give `principal` what replays need: on each topic that is sent to, and on each group that reads there.
/// `origin` adds those for topics that only their dead letters name; nobody has asked whether they are given already.
pub fn replay_acl_lines(bootstrap_servers: &str, principal: &str, topics: &[String], groups: &[String], origin: bool) -> Vec<String> {
    let command = format!("kafka-acls --bootstrap-server {} --add --allow-principal {}", quoted(bootstrap_servers), quoted(principal));
    let on_topic =
        |topic: &str| format!("{command} --operation Describe --operation Write --operation DescribeConfigs --topic {}", quoted(topic));
    let mut lines: Vec<String> = topics.iter().map(|topic| on_topic(topic)).collect();
    lines.extend(groups.iter().map(|group| format!("{command} --operation Describe --group {}", quoted(group))));
    if origin {
        lines.push(format!("{}  # untested: for each topic that dead letters came from", on_topic("<topic>")));
    }
    lines
}

/// Safe to paste into a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:,/@=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_lines_can_be_pasted() {
        let topics = [AclTopics::Named("a.DLQ".into()), AclTopics::Prefixed("pay".into()), AclTopics::Prefixed(String::new())];
        assert_eq!(
            acl_lines("k:9092", "User:CN=it's me", &topics, "lazaret"),
            [
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation Describe --operation Read --topic a.DLQ",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation Describe --operation Read --resource-pattern-type prefixed --topic pay",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation Describe --operation Read --topic '*'",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation Read --group lazaret",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation DescribeConfigs --topic a.DLQ  # optional",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation DescribeConfigs --resource-pattern-type prefixed --topic pay  # optional",
                r"kafka-acls --bootstrap-server k:9092 --add --allow-principal 'User:CN=it'\''s me' --operation DescribeConfigs --topic '*'  # optional",
            ]
        );
    }

    #[test]
    fn acl_lines_of_replays_say_which_of_them_are_untested() {
        let lines = replay_acl_lines("k:9092", "User:u", &["retry".into()], &["wallet".into()], true);
        let command = "kafka-acls --bootstrap-server k:9092 --add --allow-principal User:u --operation Describe";
        assert_eq!(
            lines,
            [
                format!("{command} --operation Write --operation DescribeConfigs --topic retry"),
                format!("{command} --group wallet"),
                format!(
                    "{command} --operation Write --operation DescribeConfigs --topic '<topic>'  # untested: for each topic that dead letters came from"
                ),
            ]
        );
    }

    #[test]
    fn a_server_is_reached_or_named_in_the_reason() {
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = open.local_addr().unwrap().to_string();
        let second = Duration::from_secs(1);
        assert_eq!(reach(&format!("127.0.0.1:1, PLAINTEXT://{address}"), second), Ok(()));
        let refused = reach("127.0.0.1:1", second).unwrap_err();
        assert!(refused.starts_with("127.0.0.1:1: "), "{refused}");
        assert!(reach(" , ", second).is_err());
    }
}
