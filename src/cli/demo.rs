//! `lazaret demo`.

use super::args::Demo;
use super::terminal::{self, Waiting};
use super::{Failure, serve};
use crate::app::demo::{Options, RunningDemo, run};
use crate::domain::clock::Clock;
use crate::telemetry;

/// Starts over, shows where to look, and serves until a signal says stop.
pub async fn demo(options: Demo) -> Result<(), Failure> {
    telemetry::install_logs(telemetry::LogFormat::default(), terminal::above_what_moves);
    let waiting = Waiting::start("Making up four weeks of a shop's dead letters");
    let options = Options { listen: options.listen, data_dir: options.data_dir, api_token: options.api_token };
    let started = run(options, Clock::system()).await;
    waiting.end();
    let RunningDemo { running, banner, kafka } = started.map_err(serve::failure)?;
    println!("{banner}");
    let outcome = serve::until_stopped(running).await;
    // Only now: what still asked the broker while it was ending would have waited for an answer until it was cut off.
    drop(kafka);
    outcome
}
