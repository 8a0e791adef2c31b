//! `[clusters.NAME]`: how to reach one Kafka cluster.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sha2::{Digest as _, Sha256};

use super::reader::{Section, join, quoted, read_secret};
use super::{Database, values};
use crate::domain::settings::{ClusterSettings, Secret, TokenSource};

/// Properties on which correctness rests: Lazaret sets them itself. With the reason, or what to use in their place.
const OURS: [(&str, &str); 13] = [
    ("bootstrap.servers", "use bootstrap_servers"),
    ("metadata.broker.list", "use bootstrap_servers"),
    ("group.id", "use group_id"),
    ("group.instance.id", "instances come and go by themselves"),
    ("group.protocol", "intake relies on cooperative-sticky"),
    ("allow.auto.create.topics", "asking for a topic must never create it"),
    ("auto.offset.reset", "a lost position must be noticed, not papered over"),
    ("enable.auto.commit", "positions live in the database"),
    ("enable.auto.offset.store", "positions live in the database"),
    ("enable.partition.eof", "intake asks for it by itself"),
    ("isolation.level", "only committed records are read"),
    ("partition.assignment.strategy", "intake relies on cooperative-sticky"),
    ("debug", "debug lines may hold secrets"),
];

pub(super) fn cluster(name: String, mut section: Section<'_>, default_group_id: &str) -> ClusterSettings {
    let bootstrap_servers = section
        .required_text("bootstrap_servers", "kafka-1:9092,kafka-2:9092")
        .and_then(|text| section.parse("bootstrap_servers", &text, values::bootstrap_servers));
    let properties = properties(&mut section);
    let oauth_token = oauth_token(&mut section, &properties);
    ClusterSettings {
        name,
        bootstrap_servers: bootstrap_servers.unwrap_or_default(),
        properties,
        oauth_token,
        discovery_interval_s: section.number("discovery_interval_s", 30, 1..=86_400),
        sample_interval_s: section.number("sample_interval_s", 15, 1..=86_400),
        group_id: section.text("group_id").unwrap_or_else(|| default_group_id.to_owned()),
    }
}

fn properties(section: &mut Section<'_>) -> BTreeMap<String, Secret> {
    let in_place = section.text_table("properties");
    let in_files = section.text_table("properties_file");
    let mut properties = BTreeMap::new();
    for (name, value) in in_place {
        refuse_ours(section, "properties", &name);
        properties.insert(name, Secret::new(value));
    }
    for (name, path) in in_files {
        refuse_ours(section, "properties_file", &name);
        let key = join(&section.path_of("properties_file"), &quoted(&name));
        match properties.entry(name) {
            Entry::Occupied(_) => section.source().fault(&key, "is given in properties too", "Keep one of the two, best properties_file"),
            Entry::Vacant(place) => {
                if let Some(secret) = read_secret(section.source(), &key, &path) {
                    place.insert(secret);
                }
            }
        }
    }
    properties
}

fn refuse_ours(section: &Section<'_>, table: &str, name: &str) {
    if let Some((_, why)) = OURS.iter().find(|(ours, _)| *ours == name) {
        let key = join(&section.path_of(table), &quoted(name));
        section.source().fault(&key, format!("is set by Lazaret itself ({why})"), "Remove it");
    }
}

fn oauth_token(section: &mut Section<'_>, properties: &BTreeMap<String, Secret>) -> Option<TokenSource> {
    let file = section.file("oauth_token_file");
    let command = section.texts("oauth_token_command");
    // librdkafka knows the property by two names and takes the mechanism in any case.
    let mechanism = ["sasl.mechanism", "sasl.mechanisms"].iter().find_map(|name| properties.get(*name));
    let is_oauth = mechanism.is_some_and(|mechanism| mechanism.expose().eq_ignore_ascii_case("OAUTHBEARER"));
    let has_source = file.is_some() || !command.is_empty();
    if has_source && !is_oauth {
        let key = if file.is_some() { "oauth_token_file" } else { "oauth_token_command" };
        section.fault(
            key,
            "is given, but the SASL mechanism is not OAUTHBEARER",
            "Add \"sasl.mechanism\" = \"OAUTHBEARER\" to properties or remove it",
        );
    }
    // With `sasl.oauthbearer.method = oidc` librdkafka fetches tokens itself.
    if is_oauth && !has_source && !properties.contains_key("sasl.oauthbearer.method") {
        section.fault(
            "oauth_token_file",
            "is missing",
            "OAUTHBEARER needs oauth_token_file = \"..\" or oauth_token_command = [\"program\", \"argument\"]",
        );
    }
    match (file, command.is_empty()) {
        (Some(_), false) => {
            section.fault("oauth_token_command", "is given beside oauth_token_file", "Keep one of the two");
            None
        }
        (Some(file), true) => Some(TokenSource::File(file)),
        (None, false) => Some(TokenSource::Command(command)),
        (None, true) => None,
    }
}

/// The consumer group that intake joins unless `group_id` names another. Instances on one PostgreSQL share a group, so that
/// they share the partitions. Each SQLite file is read by one process of its own: two people who look at one cluster from two laptops
/// must not take partitions from each other, so host and path make the name.
pub(super) fn default_group_id(database: &Database) -> String {
    let Some(path) = database.sqlite_path() else { return "lazaret".to_owned() };
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let path = std::path::absolute(&path).unwrap_or(path);
    let digest = Sha256::digest(format!("{host}\0{}", path.display()));
    let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("lazaret-{short}")
}
