//! `lazaret serve`, and what `demo` shares with it: the wait for a signal.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::Serve;
use super::{Failure, database, source, terminal};
use crate::app::audit_key::AuditKeyError;
use crate::app::{self, AppError, Running, Settings};
use crate::config::{Config, Purpose};
use crate::domain::clock::Clock;
use crate::services::access::AccessError;
use crate::telemetry;

/// Serves until a signal says stop.
pub async fn serve(options: Serve) -> Result<(), Failure> {
    let read = source::read(&options.source, Purpose::Serve, "serve")?;
    install_logs()?;
    let mut settings = Settings::from(&read.config);
    // Flags can name no target and no check, so nothing may be sent on their word.
    settings.read_only |= options.read_only || read.flags.is_some();
    if let Some(listen) = options.listen {
        settings.listen = listen;
    }
    let read_only = settings.read_only;
    let mut signals = Signals::wait_for()?;
    let running = tokio::select! {
        running = app::start(settings, Clock::system()) => running.map_err(|error| not_started(&read.config, error))?,
        () = signals.next() => return Err(Failure::Failed("stopped before the start was over.".to_owned())),
    };
    say!("Lazaret at {}/{}", running.url, if read_only { " (read-only)" } else { "" });
    if let Some(address) = running.metrics_address {
        say!("Metrics at http://{address}/metrics");
    }
    if let Some(link) = &running.setup_link {
        say!("There is no user yet. Set the admin's password here; the link works once, until the next start:\n  {link}");
    }
    until_stopped(running, signals).await
}

/// Log lines from here on, as `LAZARET_LOG` says.
pub fn install_logs() -> Result<(), Failure> {
    telemetry::install_logs(telemetry::LogFormat::default(), terminal::above_what_moves).map_err(|what| {
        Failure::Usage(format!(
            "LAZARET_LOG: {what}. Give a level (error, warn, info, debug, trace), or pairs such as lazaret=debug,librdkafka=info."
        ))
    })
}

/// What went wrong at the start; of the database with its place and the remedy.
fn not_started(config: &Config, error: AppError) -> Failure {
    match error {
        AppError::Store(error) | AppError::AuditKey(AuditKeyError::Store(error)) | AppError::Access(AccessError::Store(error)) => {
            database::failed(config, &error)
        }
        error => failure(error),
    }
}

/// What went wrong at the start, with the exit code it deserves.
pub fn failure(error: AppError) -> Failure {
    let said = sentence(&error.to_string());
    if error.is_configuration() { Failure::Usage(said) } else { Failure::Failed(said) }
}

/// SIGTERM and SIGINT, each of which says stop.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the signals are ours. Called before anything is started: one that comes before would end the process where it stands.
    pub fn wait_for() -> Result<Signals, Failure> {
        let no_signals = |error| Failure::Failed(format!("signals cannot be waited for: {error}"));
        let terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
        Ok(Signals { terminate, interrupt })
    }

    /// The next of them.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for a signal, then ends everything in order. A second signal ends at once.
pub async fn until_stopped(running: Running, mut signals: Signals) -> Result<(), Failure> {
    let clusters = running.clusters.clone();
    tokio::select! {
        () = signals.next() => {}
        () = terminal::first_backlog(&clusters) => signals.next().await,
    }
    note!("Stopping: what was read is being stored.");
    let late = tokio::select! {
        late = running.shutdown() => late,
        () = signals.next() => return Err(Failure::Failed("told twice: stopped at once.".to_owned())),
    };
    if !late.is_empty() {
        note!("Cut off after {} s, waiting for an answer: {}. Nothing is lost.", app::SHUTDOWN.as_secs(), late.join(", "));
    }
    Ok(())
}

fn sentence(text: &str) -> String {
    if text.ends_with(['.', '?']) { text.to_owned() } else { format!("{text}.") }
}
