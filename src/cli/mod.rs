//! The command line: arguments in, words and exit codes out.
//!
//! May use: `config`, `app`, `services`, `domain`. Called by: `main`. Exit code 2 means that something typed or configured is wrong
//! and nothing was done; 1 that it was right and failed all the same. Every failure is one clear sentence and a remedy on stderr.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "println! panics where nobody reads any more (`| head`); use say! and note!")]

/// Writes a line to standard output. Never panics: see [`terminal::out`].
macro_rules! say {
    ($($line:tt)*) => { $crate::cli::terminal::out(format_args!("{}\n", format_args!($($line)*))) };
}

/// Writes a line for people to standard error. Never panics.
macro_rules! note {
    ($($line:tt)*) => { $crate::cli::terminal::note(format_args!($($line)*)) };
}

mod access;
mod args;
mod check;
mod database;
mod demo;
mod health;
mod partition;
mod serve;
mod source;
mod suggest;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::config::ConfigError;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was typed does not fit together.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It was asked rightly and failed.
    #[error("{0}")]
    Failed(String),
    /// The command has said on stdout what is wrong.
    #[error("")]
    AlreadySaid,
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) | Failure::Config(_) => ExitCode::from(2),
            Failure::Failed(_) | Failure::AlreadySaid => ExitCode::from(1),
        }
    }
}

/// Reads the arguments and does what they say.
pub fn main() -> ExitCode {
    // clap prints usage faults itself and ends with code 2.
    let outcome = run(args::CommandLine::parse().command);
    match outcome.and_then(|()| terminal::all_was_written()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::AlreadySaid) {
                note!("lazaret: {failure}");
            }
            failure.exit_code()
        }
    }
}

fn run(command: args::Command) -> Result<(), Failure> {
    use args::Command;
    match command {
        Command::Partition { command } => {
            let args::PartitionCommand::Explain(explain) = command;
            terminal::out(format_args!("{}", partition::explain(&explain)?));
            Ok(())
        }
        Command::Demo(options) => block_on(demo::demo(options)),
        Command::Serve(options) => block_on(serve::serve(options)),
        Command::Check(options) => block_on(check::check(options)),
        Command::Migrate(place) => block_on(database::migrate(&place)),
        Command::User { place, command } => block_on(access::user(&place, command)),
        Command::Token { place, command } => block_on(access::token(&place, command)),
        Command::Healthcheck(options) => block_on(health::check(&options)),
    }
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("the system gives no threads: {error}")))?;
    let outcome = runtime.block_on(work);
    // Does not wait for look-ups that block on a broker which is away.
    runtime.shutdown_background();
    outcome
}

/// The `LAZARET_*` variables. One that is not UTF-8 is refused by name.
fn environment() -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("LAZARET_")) else { continue };
        match value.into_string() {
            Ok(value) => found.push((name.to_owned(), value)),
            Err(_) => return Err(Failure::Usage(format!("{name}: is not UTF-8. Set it to plain text."))),
        }
    }
    found.sort();
    Ok(found)
}
