//! `lazaret check`: one line a step, then what is missing, then the ACLs; with `--suggest` TOML on stdout.

use std::io::IsTerminal as _;
use std::sync::Arc;

use super::args::Check;
use super::terminal::{self, Bar, Waiting};
use super::{Failure, source, suggest};
use crate::app;
use crate::config::{Config, Flags, Purpose};
use crate::services::checkup::{Outcome, Progress, Step};

/// Checks, or suggests.
pub async fn check(options: Check) -> Result<(), Failure> {
    let mut read = source::read(&options.source, Purpose::Check, "check")?;
    // What flags name is served read-only.
    read.config.server.read_only |= read.flags.is_some();
    if options.suggest {
        return suggestions(&read.config, read.flags.as_ref()).await;
    }
    app::refusals::refuse(read.config.dlqs.iter().map(|dlq| &dlq.replay), &read.config.schemas).await?;
    let waiting = Waiting::start("Asking everything that is configured");
    let seen = |progress: &Progress| match progress {
        Progress::Trying(what) => waiting.now(what),
        Progress::Done(step) => waiting.above(&line(step)),
    };
    let report = app::check::check(&read.config, seen).await;
    waiting.end();
    terminal::out(format_args!("{}", summary(&report)));
    if report.failed() { Err(Failure::AlreadySaid) } else { Ok(()) }
}

/// A mark that needs no colour, and words.
fn line(step: &Step) -> String {
    let mark = match step.outcome {
        Outcome::Passed => "✓",
        Outcome::Warning => "!",
        Outcome::Failed => "✗",
        Outcome::NotChecked => "–",
    };
    format!("{mark} {}: {}", step.subject, step.said)
}

fn summary(report: &app::check::Report) -> String {
    let mut out = String::new();
    let missing: Vec<&Step> = report.steps.iter().filter(|step| step.remedy.is_some()).collect();
    if !missing.is_empty() {
        out += "\nWhat to do\n";
        for step in missing {
            let remedy = step.remedy.as_deref().unwrap_or_default();
            out += &format!("  {}: {}. {remedy}.\n", step.subject, step.said);
        }
    }
    for (cluster, lines) in &report.acls {
        out += &format!("\nACLs for cluster {cluster}; run these as its administrator\n");
        for line in lines {
            out += &format!("  {line}\n");
        }
    }
    let count = |outcome| report.steps.iter().filter(|step| step.outcome == outcome).count();
    out + &format!(
        "\n{} passed, {} with a warning, {} failed, {} not checked\n",
        count(Outcome::Passed),
        count(Outcome::Warning),
        count(Outcome::Failed),
        count(Outcome::NotChecked)
    )
}

async fn suggestions(config: &Config, flags: Option<&Flags>) -> Result<(), Failure> {
    let mut out = flags.map(suggest::head).unwrap_or_default();
    let mut found = 0;
    for cluster in &config.clusters {
        let bar = Arc::new(Bar::start("Reading one record of each topic"));
        let moved = Arc::clone(&bar);
        let seen = move |done: usize, all: usize| moved.at(done as u64, all as u64);
        // What the flags matched is to be in the file; what a file has already is not.
        let covered = if flags.is_some() { Vec::new() } else { config.dlq_settings() };
        let suggestions = app::check::suggestions(cluster, covered, seen).await;
        drop(bar);
        let suggestions =
            suggestions.map_err(|error| Failure::Failed(format!("{error}. `lazaret check` goes through it step by step.")))?;
        found += suggestions.len();
        out += &suggest::entries(&cluster.name, &suggestions);
    }
    terminal::out(format_args!("{out}"));
    if found == 0 || std::io::stdout().is_terminal() {
        note!("{found} topics look like DLQs{}.", if flags.is_some() { "" } else { " and are not in the configuration yet" });
    }
    Ok(())
}
