//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
    /// Where a key goes, and why.
    Partition {
        #[command(subcommand)]
        command: PartitionCommand,
    },
    /// Ask a running Lazaret on this machine whether it lives (for containers without curl).
    Healthcheck(Place),
}

/// Which configuration names the database.
#[derive(Debug, Args)]
pub struct Place {
    /// The configuration [default: lazaret.toml if there is one, else LAZARET_* variables and ./lazaret-data]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user; the password is asked for.
    Add {
        name: String,
        #[command(flatten)]
        grant: Grant,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// Replace a user's password and end the user's sessions.
    Passwd {
        name: String,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// Show all users.
    List,
    /// Lock a user out and end the user's sessions.
    Disable { name: String },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make an API token; its secret is shown once.
    Create {
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
    Revoke { name: String },
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
    /// Which partition a key maps to, what moves when the topic grows, where salted keys spread.
    Explain(Explain),
}

#[derive(Debug, Args)]
pub struct Explain {
    #[arg(long)]
    pub key: String,
    /// Partitions of the topic now
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    pub partitions: i32,
    /// Partitions it is to have
    #[arg(long, default_value = "8", value_parser = clap::value_parser!(i32).range(1..))]
    pub new_partitions: i32,
}
