//! A person at a terminal: passwords without echo, something that moves while one waits, tables.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Failure;
use crate::services::intake::{ClusterStatus, ClusterView};

/// Why standard output takes no more. What comes after that is not written.
static UNWRITTEN: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Writes to standard output. One that takes no more is noted, and the command goes on to its end: a reader that has seen enough (`| head`) is no
/// fault, and what the command does is not left half done.
pub fn out(text: std::fmt::Arguments<'_>) {
    let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if unwritten.is_none() {
        let mut stdout = std::io::stdout().lock();
        *unwritten = stdout.write_fmt(text).and_then(|()| stdout.flush()).err();
    }
}

/// Writes a line to standard error; nothing depends on whether somebody reads it.
pub fn note(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// # Errors
/// Standard output took not all, for another reason than that nobody reads it.
pub fn all_was_written() -> Result<(), Failure> {
    match UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Failed(format!("standard output cannot be written: {error}"))),
        _ => Ok(()),
    }
}

/// Asks for a new password twice, without echo; or reads it from a file, or from standard input where that is no terminal. One that is not
/// `usable` is refused before it is asked for again.
pub fn new_password(file: Option<&Path>, usable: impl Fn(&str) -> Result<(), Failure>) -> Result<String, Failure> {
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
    asked_twice(ask, usable)
}

fn asked_twice(
    mut ask: impl FnMut(&str) -> Result<String, Failure>,
    usable: impl Fn(&str) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let password = ask("Password: ")?;
    usable(&password)?;
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
            note!("{what} ...");
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
        self.0.suspend(|| say!("{line}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_will_be_refused_is_asked_for_once() {
        let usable = |password: &str| if password.len() > 4 { Ok(()) } else { Err(Failure::Failed("too short".to_owned())) };
        let ask = |answers: &[&str]| {
            let (mut answers, mut prompts) = (answers.iter(), Vec::new());
            let answer = |prompt: &str| {
                prompts.push(prompt.to_owned());
                Ok((*answers.next().expect("asked no more often than that")).to_owned())
            };
            (asked_twice(answer, usable).ok(), prompts.len())
        };
        assert_eq!(ask(&["shrt"]), (None, 1));
        assert_eq!(ask(&["long enough", "long enough"]), (Some("long enough".to_owned()), 2));
        assert_eq!(ask(&["long enough", "long enoguh"]), (None, 2));
    }
}
