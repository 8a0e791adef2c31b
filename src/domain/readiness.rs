//! How much Lazaret can do for one DLQ as it is configured, as a ladder: what is done, and which lines are missing for the next rung.

use super::dialect::Dialect;

/// What Lazaret can do for a DLQ, each more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Its dead letters are taken in and counted.
    Watch,
    /// Its headers are understood: what failed, in whose hands.
    Explain,
    /// Messages can be replayed by somebody who takes the checks' absence upon them.
    ReplayWithWaiver,
    /// Messages are checked right before they are sent.
    ReplayWithChecks,
    /// A window may replay by itself.
    AutoReplay,
}

impl Rung {
    pub const ALL: [Rung; 5] = [Rung::Watch, Rung::Explain, Rung::ReplayWithWaiver, Rung::ReplayWithChecks, Rung::AutoReplay];
}

/// Where a DLQ stands on a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Done,
    /// Lines are missing.
    Missing,
    /// There was no message yet to judge by.
    NoMessage,
    /// Nothing to read: the topic is gone.
    Gone,
    /// This Lazaret only reads.
    ReadOnly,
    /// This version cannot do it, whatever is configured.
    Later,
}

/// What is known of the newest message of a DLQ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newest {
    /// The word of its [`Dialect`].
    pub dialect: String,
    /// Headers or configuration name the consumer group that failed.
    pub names_group: bool,
    /// Headers name the topic that it came from.
    pub names_origin: bool,
}

/// What a `[[dlq]]` entry says of the checks before a replay. Names only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    /// `[dlq.schema] use`
    pub schema: Option<String>,
    /// `[dlq.idempotency] ledger`
    pub ledger: Option<String>,
    /// The first of `targets` is a topic's name, so that a message need not say where it came from.
    pub names_target: bool,
}

/// What one DLQ is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Of the entry that covers it; None: no entry does any more.
    pub checks: Option<&'a Checks>,
    pub gone: bool,
    /// None: there was no message yet.
    pub newest: Option<&'a Newest>,
    /// No producer is ever built here.
    pub read_only: bool,
}

/// What belongs into a `[[dlq]]` entry so that payloads are checked.
pub const SCHEMA_LINES: &str = "[dlq.schema]\nuse = \"name of a [schemas.NAME]\"";
/// What belongs into a `[[dlq]]` entry so that duplicates are found.
pub const IDEMPOTENCY_LINES: &str = "[dlq.idempotency]\nledger = \"name of a [ledgers.NAME]\"\nkey = \"{value:/payment_id}\"";

impl Facts<'_> {
    /// Where the DLQ stands on this rung.
    pub fn standing(&self, rung: Rung) -> Standing {
        match rung {
            Rung::Watch if self.checks.is_none() => Standing::Missing,
            Rung::Watch if self.gone => Standing::Gone,
            Rung::Watch => Standing::Done,
            Rung::Explain => match self.newest {
                None => Standing::NoMessage,
                Some(newest) if newest.is_understood() && newest.names_group => Standing::Done,
                Some(_) => Standing::Missing,
            },
            Rung::ReplayWithWaiver => self.replay(|_| true),
            Rung::ReplayWithChecks => self.replay(|checks| checks.schema.is_some() && checks.ledger.is_some()),
            Rung::AutoReplay => Standing::Later,
        }
    }

    /// Where it stands on a rung of replaying. What is stored can be replayed even when the DLQ's own topic is gone.
    fn replay(&self, checked: impl Fn(&Checks) -> bool) -> Standing {
        let Some(checks) = self.checks else { return Standing::Missing };
        match (self.read_only, self.newest) {
            (true, _) => Standing::ReadOnly,
            _ if !checked(checks) => Standing::Missing,
            (_, None) if !checks.names_target => Standing::NoMessage,
            (_, Some(newest)) if !checks.names_target && !newest.names_origin => Standing::Missing,
            _ => Standing::Done,
        }
    }

    /// The lines that are missing, ready to be pasted: whole entries, or what belongs into the entry that covers the topic.
    pub fn missing_lines(&self, cluster: &str, topic: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if self.checks.is_none() {
            lines.push(format!("[[dlq]]\ncluster = {}\ntopics = [{}]", quoted(cluster), quoted(topic)));
        }
        if let Some(newest) = self.newest {
            if !newest.names_group {
                lines.push("consumer_group = \"the group that reads the topic these came from\"".to_owned());
            }
            if !newest.is_understood() {
                lines.push(
                    "dialect = \"custom\"\n[dlq.custom]\norigin_topic = { header = \"name of the header\" }\nexception_class = { header = \"name of the header\" }"
                        .to_owned(),
                );
            }
        }
        if self.newest.is_some_and(|newest| !newest.names_origin) && self.checks.is_none_or(|checks| !checks.names_target) {
            lines.push("targets = [\"the topic that replays are sent to\"]".to_owned());
        }
        if self.checks.is_none_or(|checks| checks.schema.is_none()) {
            lines.push(SCHEMA_LINES.to_owned());
        }
        if self.checks.is_none_or(|checks| checks.ledger.is_none()) {
            lines.push(IDEMPOTENCY_LINES.to_owned());
        }
        lines
    }
}

impl Newest {
    /// Whether its headers are of a known format, or mapped by the configuration.
    fn is_understood(&self) -> bool {
        self.dialect != Dialect::None.as_str()
    }
}

/// A TOML string (basic: backslash escapes).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standings(facts: &Facts<'_>) -> [Standing; 5] {
        Rung::ALL.map(|rung| facts.standing(rung))
    }

    fn full() -> Checks {
        Checks { schema: Some("payment".to_owned()), ledger: Some("wallet".to_owned()), names_target: false }
    }

    fn spring() -> Newest {
        Newest { dialect: "spring_dlt".to_owned(), names_group: true, names_origin: true }
    }

    #[test]
    fn what_this_version_cannot_do_is_never_done() {
        let (checks, newest) = (full(), spring());
        let facts = Facts { checks: Some(&checks), gone: false, newest: Some(&newest), read_only: false };
        assert_eq!(standings(&facts), [Standing::Done, Standing::Done, Standing::Done, Standing::Done, Standing::Later]);
        assert!(facts.missing_lines("main", "a.DLQ").is_empty());
        let facts = Facts { read_only: true, ..facts };
        assert_eq!(standings(&facts)[2..], [Standing::ReadOnly, Standing::ReadOnly, Standing::Later]);
    }

    #[test]
    fn replays_need_a_target_and_with_checks_both_of_them() {
        let (newest, none) = (spring(), Checks::default());
        let no_origin = Newest { names_origin: false, ..spring() };
        fn facts<'a>(checks: &'a Checks, newest: Option<&'a Newest>) -> Facts<'a> {
            Facts { checks: Some(checks), gone: true, newest, read_only: false }
        }
        let of = |facts: Facts<'_>| [facts.standing(Rung::ReplayWithWaiver), facts.standing(Rung::ReplayWithChecks)];
        assert_eq!(of(facts(&none, Some(&newest))), [Standing::Done, Standing::Missing]);
        assert_eq!(of(facts(&Checks { ledger: None, ..full() }, Some(&newest))), [Standing::Done, Standing::Missing]);
        assert_eq!(of(facts(&full(), None)), [Standing::NoMessage, Standing::NoMessage]);
        assert_eq!(of(facts(&full(), Some(&no_origin))), [Standing::Missing, Standing::Missing]);
        assert!(facts(&full(), Some(&no_origin)).missing_lines("main", "a").join("\n").contains("targets = "));
        let named = Checks { names_target: true, ..full() };
        assert_eq!(of(facts(&named, Some(&no_origin))), [Standing::Done, Standing::Done]);
        assert_eq!(of(facts(&named, None)), [Standing::Done, Standing::Done]);
    }

    #[test]
    fn each_rung_names_its_missing_lines() {
        let (checks, newest) = (Checks::default(), Newest { dialect: "none".to_owned(), names_group: false, names_origin: false });
        let bare = Facts { checks: Some(&checks), gone: false, newest: Some(&newest), read_only: false };
        assert_eq!(standings(&bare)[..2], [Standing::Done, Standing::Missing]);
        let lines = bare.missing_lines("main", "a.DLQ").join("\n");
        for line in ["consumer_group = ", "[dlq.custom]", "[dlq.schema]", "[dlq.idempotency]"] {
            assert!(lines.contains(line), "{line}: {lines}");
        }
        let silent = Facts { newest: None, gone: true, ..bare };
        assert_eq!(standings(&silent)[..2], [Standing::Gone, Standing::NoMessage]);
        let uncovered = Facts { checks: None, gone: false, newest: None, read_only: false };
        assert_eq!(standings(&uncovered)[0], Standing::Missing);
        assert_eq!(uncovered.missing_lines("main", "a\"b")[0], "[[dlq]]\ncluster = \"main\"\ntopics = [\"a\\\"b\"]");
    }
}
