//! `LAZARET_SERVER__LISTEN` and the like: single values of the sections that can be named without quoting or numbering.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::fault::Fault;

const PREFIX: &str = "LAZARET_";
/// Sections of single values.
const SECTIONS: [&str; 7] = ["server", "database", "instance", "auth", "approval", "retention", "audit"];
/// What a cluster has of single values.
const CLUSTER_KEYS: [&str; 5] = ["bootstrap_servers", "group_id", "discovery_interval_s", "sample_interval_s", "oauth_token_file"];
/// Read elsewhere, or by tests alone.
const NOT_OURS: [&str; 2] = ["LAZARET_LOG", "LAZARET_TEST_"];
/// Giving one of a pair by variable takes the place of the other in the file.
const PAIRS: [(&str, &str); 2] = [("url", "url_file"), ("url_file", "url")];

const REMEDY: &str = "Use LAZARET_SECTION__KEY, for example LAZARET_SERVER__LISTEN, or LAZARET_CLUSTERS__MAIN__BOOTSTRAP_SERVERS; \
                      [[dlq]], [[class_rules]], [ledgers], [schemas], [channels] and properties come from the file only";

/// Puts the variables into the table, notes under which name each key was given, and returns what cannot be understood.
pub(super) fn apply(table: &mut Table, given_as: &mut BTreeMap<String, String>, environment: Vec<(String, String)>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, value) in environment {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if name == NOT_OURS[0] || name.starts_with(NOT_OURS[1]) {
            continue;
        }
        let lower = rest.to_ascii_lowercase();
        let parts: Vec<&str> = lower.split("__").collect();
        match parts.as_slice() {
            [section, key] if SECTIONS.contains(section) => {
                set(table.entry(*section), key, value);
                given_as.insert(format!("{section}.{key}"), name);
            }
            ["clusters", cluster, key] if CLUSTER_KEYS.contains(key) => {
                let Value::Table(clusters) = table.entry("clusters").or_insert_with(|| Value::Table(Table::new())) else { continue };
                // Variables cannot spell every name that TOML can: compare without letter case, hyphen as underscore.
                let known = clusters.keys().find(|known| known.to_ascii_lowercase().replace('-', "_") == *cluster).cloned();
                let cluster = known.unwrap_or_else(|| (*cluster).to_owned());
                set(clusters.entry(cluster.clone()), key, value);
                given_as.insert(format!("clusters.{cluster}.{key}"), name);
            }
            _ => faults.push(Fault { key: name, what: "is not a known setting".to_owned(), remedy: REMEDY.to_owned() }),
        }
    }
    faults
}

fn set(section: toml::map::Entry<'_, String, Value>, key: &str, value: String) {
    // A section that is no table is reported by whoever reads it.
    let Value::Table(section) = section.or_insert_with(|| Value::Table(Table::new())) else { return };
    if let Some((_, other)) = PAIRS.iter().find(|(given, _)| *given == key) {
        section.remove(*other);
    }
    section.insert(key.to_owned(), Value::String(value));
}
