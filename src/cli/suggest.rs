//! The TOML that `lazaret check --suggest` writes: what was discovered, ready to be read by a person and by `config`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::config::Flags;
use crate::domain::dialect::Dialect;
use crate::services::suggest::{Sample, Sign, Suggestion};

/// The head of a whole file for a cluster that was named by flags. Values of properties that look secret are not repeated.
pub fn head(flags: &Flags) -> String {
    let mut out =
        String::from("# Written by `lazaret check --suggest`. Read it, then: lazaret serve --config lazaret.toml\n\n[clusters.main]\n");
    line(&mut out, format_args!("bootstrap_servers = {}", text(&flags.bootstrap)));
    let (secret, plain): (Vec<_>, Vec<_>) = flags.properties.iter().partition(|(name, _)| is_secret(name));
    if !plain.is_empty() {
        line(&mut out, format_args!("properties = {{ {} }}", pairs(plain.into_iter())));
    }
    if !flags.property_files.is_empty() {
        line(&mut out, format_args!("properties_file = {{ {} }}", pairs(flags.property_files.iter())));
    }
    for (name, _) in secret {
        line(&mut out, format_args!("# {} is a secret: write it into a file and name that file in properties_file", text(name)));
    }
    out
}

/// One `[[dlq]]` entry for each topic. Whose habit a kind of name is, is told with the first of that kind.
pub fn entries(cluster: &str, suggestions: &[Suggestion]) -> String {
    let mut out = String::new();
    let mut told = BTreeSet::new();
    for suggestion in suggestions {
        let Sign { seen, habit } = suggestion.why;
        let habit = habit.filter(|_| told.insert(seen)).map_or_else(String::new, |habit| format!(" ({habit})"));
        let records = suggestion.records.map_or_else(|| "an unknown number of".to_owned(), |records| format!("about {records}"));
        let partitions =
            if suggestion.partitions == 1 { "1 partition".to_owned() } else { format!("{} partitions", suggestion.partitions) };
        line(&mut out, format_args!("\n# {partitions}, {records} records; {seen}{habit}"));
        let (dialect, said) = dialect(&suggestion.sample);
        line(&mut out, format_args!("# {said}"));
        line(&mut out, format_args!("[[dlq]]\ncluster = {}\ntopics = [{}]", text(cluster), text(&suggestion.topic)));
        line(&mut out, format_args!("dialect = {}", text(dialect)));
        line(
            &mut out,
            format_args!("# owner = \"the team that answers for it\"\n# start = \"7d\"               # default: everything that is there"),
        );
    }
    out
}

fn dialect(sample: &Sample) -> (&'static str, String) {
    match sample {
        Sample::Empty => ("auto", "empty: its header format will be recognised when records come".to_owned()),
        Sample::Failed(reason) => ("auto", format!("no record could be read: {reason:?}")),
        Sample::Read { dialect: Dialect::None | Dialect::Custom, .. } => {
            ("auto", "the newest record has headers of no known format; dialect = \"custom\" with [dlq.custom] can map them".to_owned())
        }
        Sample::Read { dialect, consumer_group } => {
            let group = consumer_group.as_ref().map_or_else(
                || "which does not name the consumer group: add consumer_group = \"..\"".to_owned(),
                |group| format!("consumer group {group:?}"),
            );
            (dialect.as_str(), format!("the newest record is of {}, {group}", dialect.as_str()))
        }
    }
}

/// Names under which librdkafka takes passwords, keys and tokens.
fn is_secret(property: &str) -> bool {
    ["password", "secret", "pem", ".key", "token", "jaas", "config"].iter().any(|part| property.contains(part))
}

fn pairs<'a>(pairs: impl Iterator<Item = &'a (String, String)>) -> String {
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{} = {}", text(name), text(value))).collect();
    pairs.join(", ")
}

/// A TOML string.
fn text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Purpose};
    use crate::domain::settings::{DialectChoice, TopicMatch};

    fn suggestion(topic: &str, sample: Sample) -> Suggestion {
        let why = Sign { seen: "dlq in the name", habit: Some("everybody's") };
        Suggestion { topic: topic.to_owned(), partitions: 6, why, records: Some(12), sample }
    }

    #[test]
    fn what_is_written_is_read_back_by_our_own_configuration() {
        let flags = Flags {
            bootstrap: "kafka:9092".to_owned(),
            properties: vec![("security.protocol".to_owned(), "SASL_SSL".to_owned()), ("sasl.password".to_owned(), "hunter2".to_owned())],
            ..Flags::default()
        };
        let hostile = Some("evil\"\n[server]\nlisten = \"x".to_owned());
        let suggestions = [
            suggestion("a.DLQ", Sample::Read { dialect: Dialect::SpringDlt, consumer_group: hostile }),
            suggestion("b-dlt", Sample::Read { dialect: Dialect::None, consumer_group: None }),
            suggestion("c_error", Sample::Failed("not\npermitted".to_owned())),
            suggestion("d.dlq", Sample::Empty),
        ];
        let written = head(&flags) + &entries("main", &suggestions);
        assert!(!written.contains("hunter2"), "{written}");
        let count = |text: &str| written.matches(text).count();
        assert_eq!((count("; dlq in the name"), count("(everybody's)")), (4, 1), "the habit is told once: {written}");
        let config = Config::from_text(&written, "suggested", "".into(), Vec::new(), Purpose::Serve).expect(&written);
        let topics: Vec<&TopicMatch> = config.dlqs.iter().map(|dlq| &dlq.settings.topics).collect();
        assert!(matches!(topics.as_slice(), [TopicMatch::Names(a), _, _, TopicMatch::Names(d)] if a == &["a.DLQ"] && d == &["d.dlq"]));
        assert_eq!(config.dlqs[0].settings.dialect, DialectChoice::Named(Dialect::SpringDlt));
        assert_eq!(config.dlqs[1].settings.dialect, DialectChoice::Auto);
        assert_eq!(config.clusters[0].properties["security.protocol"].expose(), "SASL_SSL");
    }
}
