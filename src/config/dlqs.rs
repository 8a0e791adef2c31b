//! `[[dlq]]`: which topics, how their records are read, and on which terms they may be replayed.

use std::collections::BTreeSet;

use super::reader::{Section, closest, one_of};
use super::values;
use crate::domain::dialect::Dialect;
use crate::domain::settings::{CustomDialect, CustomField, DialectChoice, DlqSettings, Encoding, Partitioner, Start, TopicMatch};
use crate::domain::template::KeyTemplate;
use crate::domain::terms::{AlsoReadBy, Fence, Idempotency, Order, ReplayTerms, SchemaCheck};

/// One `[[dlq]]` entry.
#[derive(Debug, Clone)]
pub struct Dlq {
    /// How its records are read.
    pub settings: DlqSettings,
    /// On which terms they may be replayed.
    pub replay: ReplayTerms,
}

/// What `[[dlq]]` entries may refer to.
pub(super) struct Names {
    pub clusters: BTreeSet<String>,
    pub ledgers: BTreeSet<String>,
    pub schemas: BTreeSet<String>,
}

pub(super) fn dlq(mut section: Section<'_>, names: &Names) -> Option<Dlq> {
    let cluster = section.required_text("cluster", "main");
    let cluster = cluster.filter(|cluster| refers_to(&section, "cluster", cluster, &names.clusters, "clusters"));
    let topics = topics(&mut section);
    let business_key = section.parsed("business_key", values::template);
    let replay = replay(&mut section, names, business_key.as_ref());
    let tenant = section.parsed("tenant", values::template);
    let mask: Vec<String> = section.texts("mask").iter().filter_map(|text| section.parse("mask", text, values::pointer)).collect();
    for (key, template) in [("business_key", &business_key), ("tenant", &tenant)] {
        shows_no_masked_field(&section, key, template.as_ref(), &mask);
    }
    let settings = DlqSettings {
        owner: section.text("owner"),
        consumer_group: section.text("consumer_group"),
        dialect: dialect(&mut section),
        start: section.parsed("start", values::start).unwrap_or(Start::Earliest),
        tenant,
        mask,
        partitioner: section
            .word("partitioner", &[("murmur2_random", Partitioner::Murmur2Random), ("consistent_random", Partitioner::ConsistentRandom)])
            .unwrap_or(Partitioner::Murmur2Random),
        max_laps: section.number("max_laps", 3, 1..=1_000),
        business_key,
        cluster: cluster?,
        topics: topics?,
    };
    Some(Dlq { settings, replay })
}

/// Keys and tenants are shown, searched and listed: what is masked cannot be one.
fn shows_no_masked_field(section: &Section<'_>, key: &str, template: Option<&KeyTemplate>, mask: &[String]) {
    if let Some(masked) = mask.iter().find(|masked| template.is_some_and(|template| template.reads(masked))) {
        let what = format!("reads {masked:?}, which mask hides, and would show it on every page");
        section.fault(key, what, "Build it from another field, or take that one out of mask");
    }
}

fn topics(section: &mut Section<'_>) -> Option<TopicMatch> {
    let (has_names, has_pattern) = (section.has("topics"), section.has("pattern"));
    let names = section.texts("topics");
    let pattern = section.parsed("pattern", values::regex);
    match (has_names, has_pattern) {
        (true, true) => section.fault("pattern", "is given beside topics", "Keep one of the two; a second [[dlq]] can hold the other"),
        (false, false) => section.fault("topics", "is missing", "Add topics = [\"payments.DLQ\"] or pattern = '\\.DLQ$'"),
        (false, true) => return pattern.map(TopicMatch::Pattern),
        (true, false) if names.is_empty() => section.fault("topics", "names no topic", "Name at least one, for example [\"payments.DLQ\"]"),
        (true, false) => {
            let legal = names.iter().filter_map(|name| section.parse("topics", name, values::topic)).collect();
            return Some(TopicMatch::Names(legal));
        }
    }
    None
}

/// Reports a name that nothing in `[table]` has.
fn refers_to(section: &Section<'_>, key: &str, name: &str, known: &BTreeSet<String>, table: &str) -> bool {
    if known.contains(name) {
        return true;
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let remedy = match (closest(name, &known), known.as_slice()) {
        (Some(close), _) => format!("Did you mean {close:?}?"),
        (None, []) => format!("Add [{table}.{name}]"),
        (None, known) => format!("Use {}, or add [{table}.{name}]", one_of(known)),
    };
    section.fault(key, format!("there is no [{table}.{name}]"), remedy);
    false
}

fn dialect(section: &mut Section<'_>) -> DialectChoice {
    let name = section.text("dialect").unwrap_or_else(|| "auto".to_owned());
    let has_custom = section.has("custom");
    let custom = section.section("custom").map(custom_dialect);
    match (name.as_str(), custom) {
        ("custom", Some(custom)) => return DialectChoice::Custom(custom),
        ("custom", None) if !has_custom => {
            section.fault(
                "custom",
                "is missing",
                "dialect = \"custom\" needs [dlq.custom] with at least origin_topic = { header = \"..\" }",
            );
        }
        (_, Some(_)) => {
            section.fault("custom", format!("is given, but dialect is {name:?}"), "Set dialect = \"custom\" or remove [dlq.custom]")
        }
        _ => {}
    }
    let built_in = Dialect::ALL.into_iter().filter(|dialect| *dialect != Dialect::Custom);
    match name.as_str() {
        "auto" | "custom" => DialectChoice::Auto,
        _ => match built_in.clone().find(|dialect| dialect.as_str() == name) {
            Some(dialect) => DialectChoice::Named(dialect),
            None => {
                let mut known: Vec<&str> = vec!["auto", "custom"];
                known.extend(built_in.map(Dialect::as_str));
                let remedy = match closest(&name, &known) {
                    Some(close) => format!("Did you mean {close:?}?"),
                    None => format!("Use {}", one_of(&known)),
                };
                section.fault("dialect", format!("{name:?} is not known"), remedy);
                DialectChoice::Auto
            }
        },
    }
}

fn custom_dialect(mut section: Section<'_>) -> CustomDialect {
    let custom = CustomDialect {
        origin_topic: custom_field(&mut section, "origin_topic"),
        origin_partition: custom_field(&mut section, "origin_partition"),
        origin_offset: custom_field(&mut section, "origin_offset"),
        origin_timestamp: custom_field(&mut section, "origin_timestamp"),
        consumer_group: custom_field(&mut section, "consumer_group"),
        exception_class: custom_field(&mut section, "exception_class"),
        exception_message: custom_field(&mut section, "exception_message"),
        stacktrace: custom_field(&mut section, "stacktrace"),
        attempts: custom_field(&mut section, "attempts"),
        dead_lettered_at: custom_field(&mut section, "dead_lettered_at"),
    };
    if section.is_empty() {
        section.source().fault(section.path(), "maps no header", "Add at least origin_topic = { header = \"..\" }");
    }
    custom
}

fn custom_field(section: &mut Section<'_>, key: &'static str) -> Option<CustomField> {
    let mut field = section.section(key)?;
    let header = field.required_text("header", "src-topic");
    let encoding = field.word("encoding", &[("text", Encoding::Text), ("i32be", Encoding::I32Be), ("i64be", Encoding::I64Be)]);
    Some(CustomField { header: header?, encoding: encoding.unwrap_or(Encoding::Text) })
}

fn replay(section: &mut Section<'_>, names: &Names, business_key: Option<&KeyTemplate>) -> ReplayTerms {
    const ITEMS: std::ops::RangeInclusive<i64> = 1..=1_000_000;
    let terms = ReplayTerms {
        targets: targets(section),
        target_groups: section.text_table("target_groups"),
        allow_compacted_target: section.flag("allow_compacted_target", false),
        order: section.word("order", &[("key", Order::Key), ("none", Order::None)]).unwrap_or(Order::Key),
        max_per_second: section.number("max_per_second", 50, 1..=1_000_000),
        pause_at_lag: section.number("pause_at_lag", 10_000, 0..=i64::MAX),
        canary: section.number("canary", 10, 0..=1_000_000),
        canary_timeout_s: section.number("canary_timeout_s", 600, 1..=86_400),
        stop_on_returned_pct: section.number("stop_on_returned_pct", 5, 0..=100),
        verify_after_s: section.number("verify_after_s", 300, 0..=604_800),
        returns_traceable: section.flag("returns_traceable", true),
        emergency_replay: section.flag("emergency_replay", false),
        emergency_max_items: section.number("emergency_max_items", 200, ITEMS),
        waiver_max_items: section.number("waiver_max_items", 500, ITEMS),
        consumer_is_idempotent: section.text("consumer_is_idempotent"),
        schema: section.section("schema").and_then(|schema| schema_check(schema, names)),
        idempotency: section
            .section("idempotency")
            .and_then(|idempotency| self::idempotency(idempotency, names, business_key, section.has("business_key"))),
        also_read_by: section.sections("also_read_by").into_iter().filter_map(|reader| also_read_by(reader, names)).collect(),
    };
    for topic in terms.target_groups.keys().filter(|topic| !terms.targets.contains(topic)) {
        section.fault("target_groups", format!("{topic:?} is not among targets"), "Add it to targets or remove it here");
    }
    terms
}

fn targets(section: &mut Section<'_>) -> Vec<String> {
    if !section.has("targets") {
        return vec!["origin".to_owned()];
    }
    let targets = section.texts("targets");
    if targets.is_empty() {
        section.fault("targets", "names no topic", "Give [\"origin\"], or the topics that messages may be sent to");
    }
    targets.iter().filter_map(|target| section.parse("targets", target, values::topic)).collect()
}

fn schema_check(mut section: Section<'_>, names: &Names) -> Option<SchemaCheck> {
    let schema = section.required_text("use", "payment");
    let schema = schema.filter(|schema| refers_to(&section, "use", schema, &names.schemas, "schemas"));
    let transform = section.existing_file("transform");
    let fences = section.sections("fence").into_iter().filter_map(fence).collect();
    Some(SchemaCheck { schema: schema?, transform, fences })
}

fn fence(mut section: Section<'_>) -> Option<Fence> {
    section.require("before", "2026-11-16T00:00:00Z");
    let before = section.text_or_instant("before").and_then(|text| section.parse("before", &text, values::instant_ms));
    let reason = section.required_text("reason", "amount became cents");
    Some(Fence { before_ms: before?, reason: reason? })
}

fn idempotency(
    mut section: Section<'_>,
    names: &Names,
    business_key: Option<&KeyTemplate>,
    business_key_given: bool,
) -> Option<Idempotency> {
    let ledger = section.required_text("ledger", "wallet");
    let ledger = ledger.filter(|ledger| refers_to(&section, "ledger", ledger, &names.ledgers, "ledgers"));
    let key = section.parsed("key", values::template).or_else(|| business_key.cloned());
    if !section.has("key") && !business_key_given {
        section.fault(
            "key",
            "is missing, and so is business_key",
            "Say what the ledger is asked for, for example key = \"{value:/payment_id}\"",
        );
    }
    Some(Idempotency { ledger: ledger?, key: key? })
}

fn also_read_by(mut section: Section<'_>, names: &Names) -> Option<AlsoReadBy> {
    let group = section.required_text("group", "fraud");
    let ledger = section.text("ledger").filter(|ledger| refers_to(&section, "ledger", ledger, &names.ledgers, "ledgers"));
    Some(AlsoReadBy { group: group?, ledger })
}
