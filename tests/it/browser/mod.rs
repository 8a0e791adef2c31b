//! What a real Chromium makes of the pages, one file for each thing that only a browser can show.
//!
//! With `LAZARET_TEST_SCREENSHOTS` set to a folder the survey leaves pictures there, for a person to judge.

mod axe;
mod driver;
mod fold;
mod hostile;
mod keyboard;
mod line;
mod live;
mod live_replay;
mod no_script;
mod replay;
mod senses;
mod stage;
mod survey;
mod weight;

use std::io::Write as _;

/// A figure for the closing lines of `tests/run`, and for whoever runs a test with `--nocapture`.
fn report(line: &str) {
    println!("{line}");
    if let Ok(path) = std::env::var("LAZARET_TEST_USED")
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = writeln!(file, "figure: {line}");
    }
}
