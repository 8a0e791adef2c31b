//! What is wrong with a configuration, said so that the reader can put it right without asking anybody.

use std::path::PathBuf;

/// One thing that is wrong: where, what, and what would be right. Never holds the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key as the operator wrote it: `dlq[0].start`, `LAZARET_SERVER__LISTEN`, `--dlq`.
    pub key: String,
    /// What is wrong with the value.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stop = if self.remedy.ends_with('?') { "" } else { "." };
        write!(f, "{}: {}. {}{stop}", self.key, self.what, self.remedy)
    }
}

/// Why there is no configuration to start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot be read: {reason}. Name a readable file with --config.", path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    /// The text is not TOML. The offending line is not repeated: it may hold a password.
    #[error("{source_name}: line {line}, column {column}: {what}. Lazaret reads TOML 1.0 (https://toml.io).")]
    NotToml { source_name: String, line: usize, column: usize, what: String },
    /// Every fault that was found, in the order of the file.
    #[error("{}", list(source_name, faults))]
    Faults { source_name: String, faults: Vec<Fault> },
}

fn list(source_name: &str, faults: &[Fault]) -> String {
    let count = match faults.len() {
        1 => "1 setting is wrong".to_owned(),
        n => format!("{n} settings are wrong"),
    };
    let lines: Vec<String> = faults.iter().map(|fault| format!("  {fault}")).collect();
    format!("{source_name}: {count}\n{}", lines.join("\n"))
}
