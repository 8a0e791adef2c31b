//! The whole file: each section, then what must fit together between them.

use super::reader::{Section, Wrong};
use super::{
    Audit, Auth, Channels, Config, Database, Dlq, Instance, Purpose, Retention, Server, audit_key, clusters, dlqs, ledgers, schemas, values,
};
use crate::domain::classify::{ClassRule, FailureClass, HeaderRule};
use crate::domain::egress::AllowList;
use crate::domain::settings::Secret;
use crate::domain::terms::ApprovalTerms;

const YEAR_S: i64 = 366 * 86_400;

/// Reads everything. Where something is wrong a default stands in, and the source holds the fault.
pub(super) fn config(mut root: Section<'_>, purpose: Purpose) -> Config {
    let server = server(root.section_or_empty("server"));
    let database = database(root.section_or_empty("database"));
    let instance = instance(root.section_or_empty("instance"));
    let auth = auth(root.section_or_empty("auth"));
    let approval = approval(root.section_or_empty("approval"));
    let retention = retention(root.section_or_empty("retention"));
    let audit = audit(root.section_or_empty("audit"), &database, purpose);
    let channels = channels(root.section_or_empty("channels"));
    // Names count as known even if what they name is faulty: one fault, one line.
    let names = dlqs::Names { clusters: root.names_in("clusters"), ledgers: root.names_in("ledgers"), schemas: root.names_in("schemas") };
    let group_id = clusters::default_group_id(&database);
    let clusters = root.named_sections("clusters").into_iter().map(|(name, section)| clusters::cluster(name, section, &group_id)).collect();
    let ledgers = root.named_sections("ledgers").into_iter().map(|(name, section)| (name, ledgers::ledger(section))).collect();
    let schemas =
        root.named_sections("schemas").into_iter().filter_map(|(name, section)| Some((name, schemas::schema(section)?))).collect();
    let class_rules = root.sections("class_rules").into_iter().filter_map(class_rule).collect();
    let dlqs: Vec<Dlq> = root.sections("dlq").into_iter().filter_map(|section| dlqs::dlq(section, &names)).collect();
    require(&root, purpose);
    Config { server, database, instance, auth, approval, retention, audit, channels, clusters, ledgers, schemas, class_rules, dlqs }
}

fn require(root: &Section<'_>, purpose: Purpose) {
    // Judged by what was written, not by what could be read: a faulty entry is reported once, as faulty.
    if matches!(purpose, Purpose::Serve | Purpose::Check) && !root.has("clusters") {
        root.fault("clusters", "is missing", "Add at least one: [clusters.main] with bootstrap_servers = \"kafka:9092\"");
    }
    if purpose == Purpose::Serve && !root.has("dlq") {
        root.fault(
            "dlq",
            "is missing: there is nothing to watch",
            "Add [[dlq]] with cluster and topics or pattern; `lazaret check --suggest` writes them for you",
        );
    }
}

fn server(mut section: Section<'_>) -> Server {
    Server {
        listen: section.parsed("listen", values::listen).unwrap_or_else(|| "127.0.0.1:8080".to_owned()),
        public_url: section.parsed("public_url", values::public_url),
        read_only: section.flag("read_only", false),
        metrics_listen: section.parsed("metrics_listen", values::listen),
    }
}

fn database(mut section: Section<'_>) -> Database {
    let (key, setting) = if section.has("url_file") { ("url_file", "database.url_file") } else { ("url", "database.url") };
    let url = section.secret("url", "url_file").filter(|url| section.parse(key, url.expose(), values::database_url).is_some());
    Database { url: url.unwrap_or_else(|| Secret::new("sqlite://lazaret-data/lazaret.db")), setting }
}

fn instance(mut section: Section<'_>) -> Instance {
    Instance {
        name: section.text("name"),
        lease_s: section.number("lease_s", 15, 3..=3_600),
        heartbeat_url: section.parsed("heartbeat_url", values::http_url).map(Secret::new),
    }
}

fn auth(mut section: Section<'_>) -> Auth {
    Auth {
        session_hours: section.number("session_hours", 12, 1..=8_784),
        sign_in_attempts_per_minute: section.number("sign_in_attempts_per_minute", 10, 1..=10_000),
    }
}

fn approval(mut section: Section<'_>) -> ApprovalTerms {
    let approval = ApprovalTerms {
        quorum: section.number("quorum", 1, 1..=100),
        large_batch: section.number("large_batch", 1_000, 1..=1_000_000_000),
        large_quorum: section.number("large_quorum", 2, 1..=100),
        proposal_ttl_s: section.number("proposal_ttl_s", 86_400, 60..=YEAR_S),
        approval_ttl_s: section.number("approval_ttl_s", 14_400, 60..=YEAR_S),
    };
    if approval.large_quorum < approval.quorum {
        section.fault(
            "large_quorum",
            format!("{} is smaller than quorum, {}", approval.large_quorum, approval.quorum),
            "A large batch needs at least as many approvals as a small one",
        );
    }
    approval
}

fn retention(mut section: Section<'_>) -> Retention {
    let retention = Retention {
        archive_after_days: section.number("archive_after_days", 14, 1..=36_500),
        warn_before_days: section.number("warn_before_days", 2, 0..=36_500),
        purge_bodies_after_days: section.number("purge_bodies_after_days", 90, 1..=36_500),
        samples_fine_hours: section.number("samples_fine_hours", 48, 1..=876_000),
    };
    if retention.warn_before_days >= retention.archive_after_days {
        section.fault(
            "warn_before_days",
            format!("{} is not before archive_after_days, {}", retention.warn_before_days, retention.archive_after_days),
            "Make it smaller than archive_after_days",
        );
    }
    retention
}

fn audit(mut section: Section<'_>, database: &Database, purpose: Purpose) -> Audit {
    let Some(path) = section.file("key_file") else {
        if matches!(purpose, Purpose::Serve | Purpose::Trail) && database.sqlite_path().is_none() {
            section.fault("key_file", audit_key::MISSING, audit_key::REMEDY);
        }
        return Audit { key: None };
    };
    let key = audit_key::read(&path).map_err(|what| section.fault("key_file", what, audit_key::REMEDY));
    Audit { key: key.ok() }
}

fn channels(mut section: Section<'_>) -> Channels {
    let entries = section.texts("allow_private");
    let allow_private = AllowList::parse(entries.iter().map(String::as_str)).unwrap_or_else(|entry| {
        section.fault(
            "allow_private",
            format!("{entry:?} is no place"),
            "Give an address, a network or a host's name, each with or without a port, for example \"127.0.0.1:9000\", \"10.1.2.0/24\" or \"hooks.internal\"",
        );
        AllowList::default()
    });
    Channels { allow_private }
}

fn class_rule(mut section: Section<'_>) -> Option<ClassRule> {
    let exception_given = section.has("exception");
    let message_given = section.has("message");
    let exception = section.parsed("exception", values::regex);
    let message = section.parsed("message", values::regex);
    let header_given = section.has("header");
    let header = section.section("header").and_then(|mut header| {
        let name = header.required_text("name", "x-error-code");
        let value = header.required_text("value", "42");
        Some(HeaderRule { name: name?, value: value? })
    });
    if !(exception_given || message_given || header_given) {
        section.source().fault(
            section.path(),
            "has no condition",
            "Add at least one of exception = , message = (regular expressions), header = { name = \"..\", value = \"..\" }",
        );
    }
    let class = section.required_text("class", "transient")?;
    let class = section.parse("class", &class, failure_class)?;
    Some(ClassRule { exception, message, header, class })
}

fn failure_class(text: &str) -> Result<FailureClass, Wrong> {
    text.parse().or_else(|_| values::unknown_word(text, &FailureClass::ALL.map(FailureClass::as_str)))
}
