//! `lazaret demo`.

use super::Failure;
use super::args::Demo;
use super::serve::{self, Signals};
use super::terminal::Waiting;
use crate::app::demo::{Options, RunningDemo, run};
use crate::domain::clock::Clock;

/// Starts over, shows where to look, and serves until a signal says stop.
pub async fn demo(options: Demo) -> Result<(), Failure> {
    serve::install_logs()?;
    let waiting = Waiting::start("Making up four weeks of a shop's dead letters");
    let options = Options { listen: options.listen, data_dir: options.data_dir, api_token: options.api_token };
    let mut signals = Signals::wait_for()?;
    let started = tokio::select! {
        started = run(options, Clock::system()) => started.map_err(serve::failure),
        () = signals.next() => Err(Failure::Failed("stopped before the start was over.".to_owned())),
    };
    waiting.end();
    let RunningDemo { running, banner, kafka } = started?;
    say!("{banner}");
    let outcome = serve::until_stopped(running, signals).await;
    // Only now: what still asked the broker while it was ending would have waited for an answer until it was cut off.
    drop(kafka);
    outcome
}
