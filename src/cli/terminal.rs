//! A person at a terminal: passwords without echo, something that moves while one waits, tables.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Failure;
use crate::services::intake::{ClusterStatus, ClusterView};

/// Asks for a new password twice, without echo; or reads it from a file, or from standard input where that is no terminal.
pub fn new_password(file: Option<&Path>) -> Result<String, Failure> {
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!("--password-file: {} cannot be read: {error}. Name a readable file.", path.display()))
        })?;
        return Ok(first_line(&text).to_owned());
    }
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.map_err(|error| Failure::Failed(format!("the password cannot be read from standard input: {error}")))?;
        if line.is_empty() {
            return Err(Failure::Usage("standard input holds no password. Pipe it in, or use --password-file.".to_owned()));
        }
        return Ok(first_line(&line).to_owned());
    }
    let ask =
        |prompt: &str| rpassword::prompt_password(prompt).map_err(|error| Failure::Failed(format!("the terminal cannot be read: {error}")));
    let password = ask("Password: ")?;
    if ask("The same again: ")? == password { Ok(password) } else { Err(Failure::Usage("the two differ. Try again.".to_owned())) }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// What moves on stderr now, so that log lines can be written above it.
static MOVING: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn moving(what: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    *MOVING.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    bar
}

fn still(bar: &ProgressBar) {
    // Taken first: from here on log lines are written without it.
    MOVING.lock().unwrap_or_else(PoisonError::into_inner).take();
    bar.finish_and_clear();
}

/// Writes while what moves on stderr is taken away.
pub fn above_what_moves(write: &mut dyn FnMut()) {
    let bar = MOVING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Shows on stderr that work goes on: a moving line on a terminal, a plain one elsewhere.
pub struct Waiting(ProgressBar);

impl Waiting {
    pub fn start(what: &str) -> Waiting {
        if !std::io::stderr().is_terminal() {
            eprintln!("{what} ...");
            return Waiting(ProgressBar::hidden());
        }
        Waiting(moving(what.to_owned()))
    }

    /// Says what is under way now.
    pub fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Prints a finished line on stdout, above the moving one.
    pub fn above(&self, line: &str) {
        self.0.suspend(|| println!("{line}"));
    }

    /// Takes the moving line away.
    pub fn end(self) {
        still(&self.0);
    }
}

/// A bar on stderr whose length becomes known on the way; until then it only moves. It goes away when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn start(what: &'static str) -> Bar {
        if !std::io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        Bar(moving(what.to_owned()))
    }

    pub fn at(&self, done: u64, all: u64) {
        if self.0.length().is_none()
            && let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {human_pos} of {human_len}, {eta} left")
        {
            self.0.set_style(style);
        }
        self.0.set_length(all);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        still(&self.0);
    }
}

/// Shows on a terminal how the first backlog is taken in; ends when all clusters have caught up. Elsewhere it ends at once.
pub async fn first_backlog(clusters: &[ClusterStatus]) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let bar = Bar::start("Taking in");
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let views: Vec<ClusterView> = clusters.iter().map(ClusterStatus::view).collect();
        let taken_in: u64 = views.iter().map(|view| view.progress.taken_in).sum();
        // One cluster that does not know how much is left makes the whole unknown.
        let left: Option<u64> = views.iter().map(|view| view.progress.uncollected).sum();
        if let Some(left) = left {
            bar.at(taken_in, taken_in + left);
            if left == 0 && views.iter().all(|view| view.topics.is_some()) {
                break;
            }
        }
    }
}

/// Columns as wide as their widest cell.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).chain([head[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut head.iter().copied());
    for row in rows {
        out += &line(&mut row.iter().map(String::as_str));
    }
    out
}

/// A time in UTC, to the minute.
pub fn instant(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms).map_or_else(|| ms.to_string(), |at| at.format("%Y-%m-%d %H:%M UTC").to_string())
}
