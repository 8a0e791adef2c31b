//! What an operator configured for one DLQ, in the domain's own types. The room `config` parses the file into these.

use regex::Regex;

use super::template::KeyTemplate;

/// Everything that decides how the dead letters of one or several topics are read. The first entry that matches a topic wins.
#[derive(Debug, Clone)]
pub struct DlqSettings {
    pub cluster: String,
    pub topics: TopicMatch,
    pub owner: Option<String>,
    /// Used where the dialect does not name the consumer group.
    pub consumer_group: Option<String>,
    pub dialect: DialectChoice,
    pub start: Start,
    pub business_key: Option<KeyTemplate>,
    pub tenant: Option<KeyTemplate>,
    /// JSON pointers into the value whose contents are masked in pages, exports, search, logs and chat.
    pub mask: Vec<String>,
    pub partitioner: Partitioner,
    pub max_laps: i32,
}

impl DlqSettings {
    /// The defaults, for a topic that nothing but a pattern names.
    pub fn for_topics(cluster: &str, topics: TopicMatch) -> DlqSettings {
        DlqSettings {
            cluster: cluster.to_owned(),
            topics,
            owner: None,
            consumer_group: None,
            dialect: DialectChoice::Auto,
            start: Start::Earliest,
            business_key: None,
            tenant: None,
            mask: Vec::new(),
            partitioner: Partitioner::Murmur2Random,
            max_laps: 3,
        }
    }
}

/// Which topics an entry covers.
#[derive(Debug, Clone)]
pub enum TopicMatch {
    Names(Vec<String>),
    Pattern(Regex),
}

impl TopicMatch {
    /// Whether this topic is covered.
    pub fn covers(&self, topic: &str) -> bool {
        match self {
            TopicMatch::Names(names) => names.iter().any(|name| name == topic),
            TopicMatch::Pattern(pattern) => pattern.is_match(topic),
        }
    }
}

/// Finds the entry for a topic, the first that covers it, and its place among all.
pub fn entry_for<'a>(all: &'a [DlqSettings], cluster: &str, topic: &str) -> Option<(usize, &'a DlqSettings)> {
    all.iter().enumerate().find(|(_, dlq)| dlq.cluster == cluster && dlq.topics.covers(topic))
}

/// Finds the entry for a topic: the first that covers it.
pub fn settings_for<'a>(all: &'a [DlqSettings], cluster: &str, topic: &str) -> Option<&'a DlqSettings> {
    entry_for(all, cluster, topic).map(|(_, entry)| entry)
}

/// Where a DLQ that was never seen before starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
    /// Records at most this many milliseconds old.
    Age {
        ms: i64,
    },
}

/// How a key maps to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioner {
    /// Java producers' default.
    Murmur2Random,
    /// librdkafka's default: CRC32.
    ConsistentRandom,
}

/// Which header convention a DLQ's records follow.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "one for each [[dlq]] entry, made once and never moved about")]
pub enum DialectChoice {
    Auto,
    /// One of the built-in dialects; tried first, the others are history.
    Named(super::dialect::Dialect),
    Custom(CustomDialect),
}

/// `[dlq.custom]`: which header holds what. An absent mapping is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomDialect {
    pub origin_topic: Option<CustomField>,
    pub origin_partition: Option<CustomField>,
    pub origin_offset: Option<CustomField>,
    pub origin_timestamp: Option<CustomField>,
    pub consumer_group: Option<CustomField>,
    pub exception_class: Option<CustomField>,
    pub exception_message: Option<CustomField>,
    pub stacktrace: Option<CustomField>,
    pub attempts: Option<CustomField>,
    pub dead_lettered_at: Option<CustomField>,
}

/// One mapped header and how its bytes are to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomField {
    pub header: String,
    pub encoding: Encoding,
}

/// How a header's bytes encode a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8; numbers as ASCII decimal.
    Text,
    /// Big-endian, 4 bytes.
    I32Be,
    /// Big-endian, 8 bytes.
    I64Be,
}

/// A value that is never shown: neither in `Debug`, nor in a log, page or error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }
    /// The value itself, for the one who must send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

/// How to reach one Kafka cluster.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    pub name: String,
    pub bootstrap_servers: String,
    /// librdkafka properties, those from files included; values may be secrets, so all are treated as such.
    pub properties: std::collections::BTreeMap<String, Secret>,
    /// Where OAUTHBEARER tokens come from; None unless that mechanism is configured.
    pub oauth_token: Option<TokenSource>,
    pub discovery_interval_s: u64,
    pub sample_interval_s: u64,
    /// The consumer group that intake joins.
    pub group_id: String,
}

/// Where an OAUTHBEARER token comes from. It is read again before it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A file that holds a JWT (a mounted service-account token, say).
    File(std::path::PathBuf),
    /// A program and its arguments that print a JWT; no shell is involved.
    Command(Vec<String>),
}
