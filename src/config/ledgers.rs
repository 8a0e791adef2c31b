//! `[ledgers.NAME]`: where a consumer records what it has applied.

use super::reader::Section;
use super::values;
use crate::domain::settings::Secret;
use crate::domain::terms::{ExpiredClaim, Ledger, RedisLedger, Tier};

pub(super) fn ledger(mut section: Section<'_>) -> Ledger {
    let expired_claim = section.word("expired_claim", &[("hold", ExpiredClaim::Hold), ("retry", ExpiredClaim::Retry)]);
    if !section.has("hot") && !section.has("durable") {
        let remedy = format!("Add [{0}.hot] (redis) or [{0}.durable] (sql or http)", section.path());
        section.source().fault(section.path(), "says nowhere to look", remedy);
    }
    Ledger {
        expired_claim: expired_claim.unwrap_or(ExpiredClaim::Hold),
        hot: section.section("hot").and_then(hot),
        durable: section.section("durable").and_then(durable),
    }
}

fn hot(mut section: Section<'_>) -> Option<RedisLedger> {
    let Some(kind) = section.required_text("kind", "redis") else {
        section.ignore_the_rest();
        return None;
    };
    if kind != "redis" {
        section.fault("kind", format!("{kind:?} cannot be the hot tier"), "Use redis; sql and http belong into durable");
        section.ignore_the_rest();
        return None;
    }
    let url = url(&mut section, &["redis", "rediss", "redis+unix", "unix"], "redis://host:6379/0");
    let key = section.required_text("key", "wallet:processed:{id}");
    if key.as_ref().is_some_and(|key| !key.contains("{id}")) {
        section.fault("key", "does not hold {id}", "Write {id} where the message's key goes, for example wallet:processed:{id}");
    }
    let (ttl_s, margin_s) = (section.number("ttl_s", 86_400, 1..=3_153_600_000), section.number("margin_s", 3_600, 0..=3_153_600_000));
    if margin_s >= ttl_s {
        section.fault(
            "margin_s",
            format!("{margin_s} is not smaller than ttl_s, {ttl_s}"),
            "Make it smaller, or no absent key ever proves anything",
        );
    }
    let ledger = (section.texts("done"), section.texts("in_progress"), section.texts("failed"), section.texts("partial"));
    let claim_lease_s = section.number("claim_lease_s", 300, 1..=3_153_600_000);
    let (done, in_progress, failed, partial) = ledger;
    refuse_value_with_two_meanings(&section, &[("done", &done), ("in_progress", &in_progress), ("failed", &failed), ("partial", &partial)]);
    Some(RedisLedger { url: url?, key: key?, done, in_progress, failed, partial, ttl_s, margin_s, claim_lease_s })
}

fn refuse_value_with_two_meanings(section: &Section<'_>, lists: &[(&str, &Vec<String>)]) {
    for (index, (list, values)) in lists.iter().enumerate() {
        for (earlier, earlier_values) in &lists[..index] {
            if let Some(value) = values.iter().find(|value| earlier_values.contains(value)) {
                section.fault(list, format!("{value:?} stands under {earlier} too"), "Let each value mean one thing");
            }
        }
    }
}

fn durable(mut section: Section<'_>) -> Option<Tier> {
    let Some(kind) = section.required_text("kind", "sql") else {
        section.ignore_the_rest();
        return None;
    };
    match kind.as_str() {
        "sql" => {
            let url = url(&mut section, &["postgres", "postgresql", "sqlite"], "postgres://host/database");
            let query = section.required_text("query", "SELECT event_id::text FROM applied WHERE event_id = ANY($1::uuid[])");
            if query.as_ref().is_some_and(|query| !query.contains("$1")) {
                section.fault(
                    "query",
                    "does not use $1",
                    "All keys are bound as $1: ANY($1::text[]), or on SQLite IN (SELECT value FROM json_each($1))",
                );
            }
            Some(Tier::Sql { url: url?, query: query? })
        }
        "http" => Some(Tier::Http { url: url(&mut section, &["http", "https"], "https://host/applied")? }),
        _ => {
            section.fault("kind", format!("{kind:?} cannot be the durable tier"), "Use sql or http; redis belongs into hot");
            section.ignore_the_rest();
            None
        }
    }
}

fn url(section: &mut Section<'_>, schemes: &[&str], example: &str) -> Option<Secret> {
    let key = if section.has("url_file") { "url_file" } else { "url" };
    if !section.has(key) {
        section.fault(key, "is missing", format!("Add url = \"{example}\", or url_file with a file that holds it"));
    }
    let url = section.secret("url", "url_file")?;
    let (scheme, rest) = url.expose().split_once("://").unwrap_or_default();
    if schemes.contains(&scheme) && !rest.is_empty() && values::fits_in_a_line(url.expose()) {
        return Some(url);
    }
    section.fault(key, format!("is not a URL that begins with {}://", schemes[0]), format!("Write it like {example}"));
    None
}
