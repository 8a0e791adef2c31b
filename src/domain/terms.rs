//! On which terms a DLQ's messages may be replayed, and what they are checked against. The room `config` parses the file into these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::settings::Secret;
use super::template::KeyTemplate;

/// The terms of a replay.
#[derive(Debug, Clone)]
pub struct ReplayTerms {
    /// Where messages may be sent: the first is the default, any other topic is refused. `origin` is the topic a message came from.
    pub targets: Vec<String>,
    /// The group that reads a retry topic, where it is not the DLQ's consumer group.
    pub target_groups: BTreeMap<String, String>,
    pub allow_compacted_target: bool,
    pub order: Order,
    pub max_per_second: u32,
    /// Lag of the target's group, in records, above which a replay pauses.
    pub pause_at_lag: u64,
    /// Messages sent and verified before the rest.
    pub canary: u32,
    pub canary_timeout_s: u64,
    /// Share of returned messages, in percent, that halts a batch.
    pub stop_on_returned_pct: u32,
    /// Seconds after the consumer passed a message during which it may still come back.
    pub verify_after_s: u64,
    /// The consumer keeps the headers that a return is recognised by.
    pub returns_traceable: bool,
    pub emergency_replay: bool,
    pub emergency_max_items: u32,
    pub waiver_max_items: u32,
    /// Why this consumer may be sent anything twice; None: it may not.
    pub consumer_is_idempotent: Option<String>,
    pub schema: Option<SchemaCheck>,
    pub idempotency: Option<Idempotency>,
    pub also_read_by: Vec<AlsoReadBy>,
}

impl Default for ReplayTerms {
    /// What holds where the configuration says nothing.
    fn default() -> ReplayTerms {
        ReplayTerms {
            targets: vec!["origin".to_owned()],
            target_groups: BTreeMap::new(),
            allow_compacted_target: false,
            order: Order::Key,
            max_per_second: 50,
            pause_at_lag: 10_000,
            canary: 10,
            canary_timeout_s: 600,
            stop_on_returned_pct: 5,
            verify_after_s: 300,
            returns_traceable: true,
            emergency_replay: false,
            emergency_max_items: 200,
            waiver_max_items: 500,
            consumer_is_idempotent: None,
            schema: None,
            idempotency: None,
            also_read_by: Vec::new(),
        }
    }
}

/// In which order messages of one batch go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Those of one key in the order of their origin.
    Key,
    None,
}

/// `[dlq.schema]`
#[derive(Debug, Clone)]
pub struct SchemaCheck {
    /// Name of a `[schemas.NAME]`.
    pub schema: String,
    /// A jq filter that makes older payloads fit.
    pub transform: Option<PathBuf>,
    /// In the order of the file.
    pub fences: Vec<Fence>,
}

/// A time before which the same shape meant something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub before_ms: i64,
    pub reason: String,
}

/// `[dlq.idempotency]`
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// Name of a `[ledgers.NAME]`.
    pub ledger: String,
    /// What the ledger is asked for: `key`, or else `business_key`.
    pub key: KeyTemplate,
}

/// `[[dlq.also_read_by]]`: another group that will receive a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlsoReadBy {
    pub group: String,
    /// Name of a `[ledgers.NAME]`; None: nobody can say whether that group has applied a message.
    pub ledger: Option<String>,
}

/// One ledger: a fast tier that may forget, a durable one, or both.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// What a claim means that is older than its lease and still in progress.
    pub expired_claim: ExpiredClaim,
    /// Asked first.
    pub hot: Option<RedisLedger>,
    /// Asked for what the hot tier does not know.
    pub durable: Option<Tier>,
}

/// What to think of a claim that outlived its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiredClaim {
    Hold,
    Retry,
}

/// The durable tier.
#[derive(Debug, Clone)]
pub enum Tier {
    Sql { url: Secret, query: String },
    Http { url: Secret },
}

/// Keys in Redis.
#[derive(Debug, Clone)]
pub struct RedisLedger {
    pub url: Secret,
    /// Name of the key; `{id}` is replaced.
    pub key: String,
    /// Values that mean applied; when empty, the key's existence does.
    pub done: Vec<String>,
    pub in_progress: Vec<String>,
    pub failed: Vec<String>,
    /// Values that mean partly applied.
    pub partial: Vec<String>,
    /// Seconds for which the consumer keeps a key.
    pub ttl_s: u64,
    /// Seconds before the end of `ttl_s` from which an absent key proves nothing.
    pub margin_s: u64,
    /// Seconds after which a claim in progress is taken for abandoned.
    pub claim_lease_s: u64,
}

/// One schema.
#[derive(Debug, Clone)]
pub struct Schema {
    pub kind: SchemaKind,
}

/// Where the schema is found.
#[derive(Debug, Clone)]
pub enum SchemaKind {
    JsonSchema {
        path: PathBuf,
    },
    Registry {
        /// May hold user and password.
        url: Secret,
        subject: String,
        /// Name of the Protobuf message, where the schema has several.
        message: Option<String>,
    },
}

/// `[approval]`
#[derive(Debug, Clone)]
pub struct ApprovalTerms {
    /// How many others must approve a batch.
    pub quorum: u32,
    /// Messages from which a batch needs `large_quorum`.
    pub large_batch: u32,
    pub large_quorum: u32,
    /// Seconds until a proposal that nobody answered expires.
    pub proposal_ttl_s: u64,
    /// Seconds until an approval that was not used expires.
    pub approval_ttl_s: u64,
}

impl Default for ApprovalTerms {
    fn default() -> ApprovalTerms {
        ApprovalTerms { quorum: 1, large_batch: 1_000, large_quorum: 2, proposal_ttl_s: 86_400, approval_ttl_s: 14_400 }
    }
}
