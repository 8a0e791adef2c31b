//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config;
use crate::domain::access::{OwnerScope, Role};

/// An operator's dashboard for Kafka dead-letter queues.
#[derive(Debug, Parser)]
#[command(name = "lazaret", version, about, max_term_width = 120)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// See it all without installing anything: a made-up shop with an outage under way. Starts over each time.
    Demo(Demo),
    /// Watch DLQs and serve the pages.
    Serve(Serve),
    /// Test that everything that is configured can be reached, and say what is missing. Changes nothing.
    Check(Check),
    /// Bring the database up to this version.
    Migrate(Place),
    /// Manage the people who sign in.
    User {
        #[command(flatten)]
        place: Place,
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Manage API tokens.
    Token {
        #[command(flatten)]
        place: Place,
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Show which partition a record key goes to.
    Partition {
        #[command(subcommand)]
        command: PartitionCommand,
    },
    /// Ask a running Lazaret on this machine whether it lives (for containers without curl).
    Healthcheck(Healthcheck),
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Address and port of the pages
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_parser = config::listen_address)]
    pub listen: String,
    /// Folder of the demo's database; what an earlier demo left in it is deleted
    #[arg(long, value_name = "FOLDER", default_value = crate::app::demo::DEFAULT_FOLDER)]
    pub data_dir: PathBuf,
    /// T in the tokens T-viewer, T-operator, T-approver and T-admin [default: random]
    #[arg(long, value_name = "T")]
    pub api_token: Option<String>,
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub source: Source,
    /// Build no producer: nothing can ever be sent. Always so without a file
    #[arg(long)]
    pub read_only: bool,
    /// Address and port of the pages [default: server.listen of the file, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = config::listen_address)]
    pub listen: Option<String>,
}

#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub source: Source,
    /// Write TOML for the topics that look like DLQs to standard output. Reads one record of each; takes a while on many topics
    #[arg(long)]
    pub suggest: bool,
}

/// A file, or the few flags that a first look needs.
#[derive(Debug, Args)]
pub struct Source {
    /// The configuration [default: lazaret.toml if there is one]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bootstrap", "dlq", "start", "property", "property_file"])]
    pub config: Option<PathBuf>,
    /// Without a file: one or several brokers, separated by commas
    #[arg(long, value_name = "HOST:PORT")]
    pub bootstrap: Option<String>,
    /// Without a file: a regular expression that the names of DLQs match, for example '\.(DLQ|DLT)$'; may be repeated
    #[arg(long, value_name = "PATTERN", requires = "bootstrap")]
    pub dlq: Vec<String>,
    /// Without a file: where a DLQ that was never seen before begins: earliest, latest, or an age such as 7d [default: earliest]
    #[arg(long, requires = "bootstrap")]
    pub start: Option<String>,
    /// Without a file: a property of librdkafka, for example security.protocol=SASL_SSL; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "bootstrap")]
    pub property: Vec<String>,
    /// Without a file: a property whose value is in a file, for example sasl.password=/run/secrets/kafka; may be repeated
    #[arg(long, value_name = "NAME=FILE", requires = "bootstrap")]
    pub property_file: Vec<String>,
}

/// Which configuration names the database.
#[derive(Debug, Args)]
pub struct Place {
    /// The configuration [default: lazaret.toml if there is one, else LAZARET_* variables and ./lazaret-data]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Healthcheck {
    #[command(flatten)]
    pub place: Place,
    /// What `serve` was given as --listen [default: server.listen of the configuration, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = config::listen_address)]
    pub listen: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user; the password is asked for.
    Add {
        /// Name to sign in with
        name: String,
        #[command(flatten)]
        grant: Grant,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// Replace a user's password and end the user's sessions.
    Passwd {
        /// Name of the user
        name: String,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// Show all users.
    List,
    /// Lock a user out and end the user's sessions; the name stays taken. `user enable` undoes it. The last active admin is refused.
    Disable {
        /// Name of the user
        name: String,
    },
    /// Let a disabled user in again, with the password from before.
    Enable {
        /// Name of the user
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make an API token; its secret is shown once.
    Create {
        /// Name that the list shows, such as the program that uses it
        name: String,
        #[command(flatten)]
        grant: Grant,
        /// Ends by itself after this time, for example 90d [default: never]
        #[arg(long, value_name = "AGE")]
        expires: Option<String>,
    },
    /// Show all tokens, without their secrets.
    List,
    /// End a token.
    Revoke {
        /// Name of the token
        name: String,
    },
}

/// What someone may do, and on whose DLQs.
#[derive(Debug, Args)]
pub struct Grant {
    /// viewer, operator, approver or admin
    #[arg(long, default_value = "viewer")]
    pub role: Role,
    /// Owners whose DLQs this one acts on, separated by commas; * for all
    #[arg(long, default_value = "*", value_parser = owners)]
    pub owners: OwnerScope,
}

fn owners(text: &str) -> Result<OwnerScope, String> {
    match OwnerScope::from_text(text) {
        OwnerScope::Listed(owners) if owners.is_empty() => Err("names no owner: give names separated by commas, or *".to_owned()),
        owners => Ok(owners),
    }
}

/// Where a password comes from. Never an argument: those show in process lists and shell histories.
#[derive(Debug, Args)]
pub struct PasswordSource {
    /// Read the password from this file [default: asked for, or the first line of standard input if that is no terminal]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// Which partition a key maps to, what moves when the topic grows, and where the key spreads when -0 to -11 is appended to it.
    Explain(Explain),
}

#[derive(Debug, Args)]
pub struct Explain {
    /// The record key, as text
    #[arg(long)]
    pub key: String,
    /// Partitions of the topic now
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: i32,
    /// Partitions of the topic after it has grown [default: 8, or twice as many as now where that is no growth]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub new_partitions: Option<i32>,
}
