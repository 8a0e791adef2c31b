//! Logs and metrics: one function per event, its log line and its metric together.
//!
//! May use: nothing of the other rooms. Called by: `services`, `jobs`, `app`, `web`.
//!
//! Counters live in the recorder that [`install_metrics`] sets up. What is said of a DLQ (depth, oldest age, ..) is no gauge in that
//! recorder: a gauge stays where it was set for ever, so a DLQ that is gone, or could not be sampled, would go on showing its last
//! number. [`render`] writes those families anew at each scrape, from what the store says now; what is unknown is absent.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

/// Sends log lines to standard error, coloured on a terminal alone. `LAZARET_LOG` decides what is shown, in the form of `RUST_LOG`
/// (`debug`, `lazaret=debug,sqlx=info`); without it, our own from `info`, libraries from `warn`. A second call changes nothing.
///
/// `above` writes a line where nothing else moves: a spinner or bar on the terminal is taken away for as long as that takes.
///
/// # Errors
/// `LAZARET_LOG` cannot be understood: what of it. A lone word that is no level is taken for the name of a module.
pub fn install_logs(format: LogFormat, above: fn(&mut dyn FnMut())) -> Result<(), String> {
    let said = std::env::var_os("LAZARET_LOG").unwrap_or_default();
    let said = said.to_str().ok_or("is not UTF-8")?.trim();
    let said = if said.is_empty() { "warn,lazaret=info" } else { said };
    let filter = EnvFilter::builder().parse(said).map_err(|error| error.to_string())?;
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || Lines(above)).with_ansi(colours);
    // The one error is "a subscriber is set already", which is what we want.
    let _ = match format {
        LogFormat::Human => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Standard error, one line at a time.
struct Lines(fn(&mut dyn FnMut()));

impl std::io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut written = Ok(0);
        (self.0)(&mut || written = std::io::stderr().write(line));
        written
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Sets up the process's metrics and names each counter. Call it once.
pub fn install_metrics() -> Result<PrometheusHandle, BuildError> {
    let handle = PrometheusBuilder::new().install_recorder()?;
    for (name, help) in COUNTERS {
        describe_counter!(*name, *help);
    }
    describe_gauge!("lazaret_last_progress_timestamp_seconds", "When this job last did what it is for, seconds since the epoch");
    describe_histogram!("lazaret_replay_phase_seconds", "How long a chunk of a replay was in this phase of its execution");
    describe_gauge!("lazaret_alerts_firing", "Alerts that fire, told or not, as of the last evaluation by this instance");
    describe_gauge!("lazaret_cluster_connected", "1 while the cluster answers, 0 while it does not");
    Ok(handle)
}

const COUNTERS: &[(&str, &str)] = &[
    ("lazaret_intake_messages_total", "Dead letters taken in, those counted among the duplicates included"),
    ("lazaret_intake_bytes_total", "Bytes of key, value and headers of the dead letters taken in"),
    ("lazaret_intake_duplicates_total", "Records read again whose message was there already"),
    ("lazaret_intake_discarded_batches_total", "Batches thrown away because the partition was another's or another topic's by then"),
    ("lazaret_intake_retries_total", "Attempts to store a batch that failed and were repeated"),
    ("lazaret_intake_unreadable_records_total", "Records kept whole although reading them failed"),
    ("lazaret_intake_gap_records_total", "Offsets that could not be read any more: an upper bound of the records lost"),
    ("lazaret_intake_incarnations_total", "Topics found deleted and created again"),
    ("lazaret_discovery_failures_total", "Topic listings that failed"),
    ("lazaret_sample_failures_total", "Samples of a DLQ that failed"),
    ("lazaret_alert_news_total", "What was told of alerts, by kind of news and severity"),
    ("lazaret_counter_drifts_total", "Counters found to differ from the rows they count"),
    (
        "lazaret_replay_outcomes_total",
        "Messages that were sent, by what verification found of them; most returns are found by intake and not counted here",
    ),
    ("lazaret_notice_attempts_total", "Attempts to deliver a notice, by kind of channel and what came of it; waiting: it is tried again"),
    ("lazaret_notices_overdue_total", "Notices that were given up because their channel was held up for a day"),
    ("lazaret_job_restarts_total", "Jobs that ended or panicked and were started again"),
];

/// What a batch of one topic added.
pub fn taken_in(cluster: &str, topic: &str, messages: u64, bytes: u64) {
    tracing::debug!(cluster, topic, messages, bytes, "taken in");
    counter!("lazaret_intake_messages_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(messages);
    counter!("lazaret_intake_bytes_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(bytes);
}

/// Records whose message was stored before.
pub fn duplicates(cluster: &str, messages: u64) {
    tracing::info!(cluster, messages, "records were there already and were not counted again");
    counter!("lazaret_intake_duplicates_total", "cluster" => cluster.to_owned()).increment(messages);
}

/// A partition's share of a batch was thrown away; it will be read again from the stored position, by us or by the new owner.
pub fn discarded(cluster: &str, topic: &str, partition: i32, reason: &'static str) {
    tracing::info!(cluster, topic, partition, reason, "batch thrown away");
    counter!("lazaret_intake_discarded_batches_total", "cluster" => cluster.to_owned(), "reason" => reason).increment(1);
}

/// Storing failed and is repeated. Only the first of a row of failures is a warning.
pub fn intake_stalled(cluster: &str, attempt: u32, error: &str) {
    if attempt == 1 {
        tracing::warn!(cluster, error, "intake waits and tries again; nothing is lost");
    } else {
        tracing::debug!(cluster, attempt, error, "intake still waits");
    }
    counter!("lazaret_intake_retries_total", "cluster" => cluster.to_owned()).increment(1);
}

/// Intake goes on after a stall.
pub fn intake_recovered(cluster: &str, attempts: u32) {
    tracing::info!(cluster, attempts, "intake goes on");
}

/// Reading a record failed inside Lazaret; its bytes are stored all the same.
pub fn unreadable_record(cluster: &str, topic: &str, partition: i32, offset: i64) {
    tracing::error!(cluster, topic, partition, offset, "the record could not be read; it is kept whole, dialect none, class unknown");
    counter!("lazaret_intake_unreadable_records_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(1);
}

/// Offsets were stepped over: `kind` is `retention` or `truncation`.
pub fn gap(cluster: &str, topic: &str, partition: i32, kind: &'static str, from: i64, to: i64) {
    let records = from.abs_diff(to);
    tracing::error!(
        cluster,
        topic,
        partition,
        kind,
        from,
        to,
        "up to {records} records could not be taken in: they are gone from the topic"
    );
    counter!("lazaret_intake_gap_records_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned(), "kind" => kind)
        .increment(records);
}

/// A topic was deleted and created again under its name.
pub fn incarnation(cluster: &str, topic: &str, incarnation: i32) {
    tracing::warn!(cluster, topic, incarnation, "topic was deleted and created again; reading the new one from its beginning");
    counter!("lazaret_intake_incarnations_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(1);
}

/// A DLQ was seen for the first time.
pub fn dlq_found(cluster: &str, topic: &str, partitions: i32, start_note: Option<&str>) {
    tracing::info!(cluster, topic, partitions, start_note, "new DLQ");
}

/// A DLQ's topic is not in the cluster any more; its messages stay.
pub fn dlq_gone(cluster: &str, topic: &str) {
    tracing::warn!(cluster, topic, "topic is gone; its messages stay");
}

/// The topics could not be listed.
pub fn discovery_failed(cluster: &str, error: &str) {
    tracing::warn!(cluster, error, "topics could not be listed");
    counter!("lazaret_discovery_failures_total", "cluster" => cluster.to_owned()).increment(1);
}

/// The cluster answers again, or does not any more.
pub fn connection(cluster: &str, up: bool, reason: Option<&str>) {
    if up {
        tracing::info!(cluster, "connected");
    } else {
        tracing::warn!(cluster, reason, "disconnected; trying again by itself");
    }
    gauge!("lazaret_cluster_connected", "cluster" => cluster.to_owned()).set(if up { 1.0 } else { 0.0 });
}

/// Something that a person should see; reading goes on.
pub fn consumer_error(cluster: &str, error: &str) {
    tracing::warn!(cluster, error, "consumer");
}

/// A DLQ could not be sampled.
pub fn sample_failed(cluster: &str, topic: &str, error: &str) {
    tracing::warn!(cluster, topic, error, "DLQ could not be sampled: its health is unknown");
    counter!("lazaret_sample_failures_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(1);
}

/// A counter differs from the rows it counts.
pub fn counter_drift(cluster: &str, topic: &str, name: &str, counted: i64, actual: i64) {
    tracing::error!(cluster, topic, name, counted, actual, "a counter differs from what it counts");
    counter!("lazaret_counter_drifts_total", "cluster" => cluster.to_owned(), "topic" => topic.to_owned()).increment(1);
}

/// What became of messages that were sent.
pub fn settled(cluster: &str, outcome: &'static str, messages: u64) {
    if messages > 0 {
        tracing::info!(cluster, outcome, messages, "replayed messages");
        counter!("lazaret_replay_outcomes_total", "cluster" => cluster.to_owned(), "outcome" => outcome).increment(messages);
    }
}

/// An alert began, became worse, goes on or ended, and that is told.
pub fn alert_told(cluster: &str, topic: &str, rule: &str, news: &'static str, severity: &'static str) {
    tracing::info!(cluster, topic, rule, news, severity, "alert");
    counter!("lazaret_alert_news_total", "news" => news, "severity" => severity).increment(1);
}

/// So many alerts fire.
pub fn alerts_firing(count: usize) {
    gauge!("lazaret_alerts_firing").set(count as f64);
}

/// A stored rule makes no sense to this version: nothing is evaluated by it.
pub fn rule_refused(rule: &str, error: &str) {
    tracing::warn!(rule, error, "a stored alert rule is not usable: change it or switch it off");
}

/// A job did what it is for.
pub fn progress(job: &str, now_ms: i64) {
    gauge!("lazaret_last_progress_timestamp_seconds", "job" => job.to_owned()).set(now_ms as f64 / 1_000.0);
}

/// An attempt to deliver a notice came to this: `delivered`, `waiting` (it is tried again), `failed` or `given_up`. The error holds no secret.
pub fn notice_attempted(kind: &'static str, channel: &str, outcome: &'static str, error: Option<&str>) {
    match outcome {
        "delivered" => tracing::info!(kind, channel, "notice delivered"),
        "waiting" => tracing::warn!(kind, channel, error, "notice not delivered; it is tried again"),
        _ => tracing::error!(kind, channel, outcome, error, "notice not delivered, and not tried again"),
    }
    counter!("lazaret_notice_attempts_total", "kind" => kind, "outcome" => outcome).increment(1);
}

/// Notices whose channel was held up for a day.
pub fn notices_overdue(notices: u64) {
    tracing::error!(notices, "notices given up: their channel was held up for a day");
    counter!("lazaret_notices_overdue_total").increment(notices);
}

/// The heartbeat URL is not called, because these do not get on.
pub fn heartbeat_held(jobs: &str) {
    tracing::error!(jobs, "no heartbeat: these do not get on");
}

/// A chunk of a replay was in this phase of its execution for so long.
pub fn replay_phase(phase: &'static str, took: std::time::Duration) {
    histogram!("lazaret_replay_phase_seconds", "phase" => phase).record(took.as_secs_f64());
}

/// One round of a job failed; the next comes at its usual time.
pub fn job_failed(job: &str, error: &str) {
    tracing::warn!(job, error, "job failed this time");
}

/// A job ended or panicked and is started again after `wait`.
pub fn job_restarted(job: &str, reason: &str, wait: std::time::Duration) {
    tracing::error!(job, reason, wait_ms = wait.as_millis() as u64, "job ended; starting it again");
    counter!("lazaret_job_restarts_total", "job" => job.to_owned()).increment(1);
}

/// What `/metrics` says of one DLQ. `None` is unknown and leaves the line out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DlqGauge {
    pub cluster: String,
    pub topic: String,
    /// Messages not yet replayed or archived.
    pub depth: Option<i64>,
    /// Records in the topic, not yet taken in; an estimate.
    pub uncollected: Option<i64>,
    pub oldest_age_s: Option<f64>,
    /// Seconds until the oldest record not yet taken in expires; absent too when all is stored.
    pub at_risk_left_s: Option<f64>,
    pub arrivals_per_min: Option<f64>,
    /// When the DLQ was last sampled with success, ms since the epoch.
    pub sampled_at_ms: Option<i64>,
}

type Measure = fn(&DlqGauge) -> Option<f64>;

/// Name, help and value of each family. An arrival rate is per second here: base units.
const FAMILIES: &[(&str, &str, Measure)] = &[
    ("lazaret_dlq_depth", "Messages not yet replayed or archived", |dlq| dlq.depth.map(|n| n as f64)),
    (
        "lazaret_dlq_uncollected",
        "Records in the topic not yet taken in (an estimate: transaction markers and compaction inflate it)",
        |dlq| dlq.uncollected.map(|n| n as f64),
    ),
    ("lazaret_dlq_oldest_age_seconds", "Age of the oldest message not yet replayed or archived", |dlq| dlq.oldest_age_s),
    ("lazaret_dlq_at_risk_left_seconds", "Time until the oldest record not yet taken in expires; absent when all is stored", |dlq| {
        dlq.at_risk_left_s
    }),
    ("lazaret_dlq_arrivals_per_second", "New dead letters per second over 15 minutes, by dead-lettered time", |dlq| {
        dlq.arrivals_per_min.map(|n| n / 60.0)
    }),
    ("lazaret_dlq_sampled_timestamp_seconds", "When the DLQ was last sampled with success, seconds since the epoch", |dlq| {
        dlq.sampled_at_ms.map(|ms| ms as f64 / 1_000.0)
    }),
];

/// The whole of `/metrics` in Prometheus' text format: the recorder's counters, then the DLQs that exist.
pub fn render(handle: &PrometheusHandle, dlqs: &[DlqGauge]) -> String {
    handle.run_upkeep();
    let mut out = handle.render();
    out.push_str(&render_dlqs(dlqs));
    out
}

/// The families of [`DlqGauge`] in Prometheus' text format; a family without any value is left out.
pub fn render_dlqs(dlqs: &[DlqGauge]) -> String {
    let mut out = String::new();
    for (name, help, measure) in FAMILIES {
        let mut lines = dlqs.iter().filter_map(|dlq| Some((dlq, measure(dlq).filter(|value| value.is_finite())?))).peekable();
        if lines.peek().is_none() {
            continue;
        }
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (dlq, value) in lines {
            let _ = writeln!(out, "{name}{{cluster=\"{}\",topic=\"{}\"}} {value}", escape(&dlq.cluster), escape(&dlq.topic));
        }
    }
    out
}

/// Label values escape backslash, quote and line feed (Prometheus text format 0.0.4).
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_absent_and_zero_is_shown() {
        let known = DlqGauge { cluster: "main".into(), topic: "a.DLQ".into(), depth: Some(0), ..DlqGauge::default() };
        let unknown = DlqGauge { cluster: "main".into(), topic: "b.DLQ".into(), ..DlqGauge::default() };
        let text = render_dlqs(&[known, unknown]);
        assert_eq!(
            text,
            "# HELP lazaret_dlq_depth Messages not yet replayed or archived\n# TYPE lazaret_dlq_depth gauge\n\
             lazaret_dlq_depth{cluster=\"main\",topic=\"a.DLQ\"} 0\n"
        );
    }

    #[test]
    fn no_line_is_nan_or_infinite() {
        let dlq = DlqGauge { depth: Some(1), oldest_age_s: Some(f64::NAN), arrivals_per_min: Some(f64::INFINITY), ..DlqGauge::default() };
        let text = render_dlqs(&[dlq]);
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("oldest_age"), "{text}");
    }

    #[test]
    fn label_values_cannot_break_out() {
        let dlq = DlqGauge { cluster: "a\"} 1\nevil{x=\"\\".into(), depth: Some(1), ..DlqGauge::default() };
        let text = render_dlqs(&[dlq]);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains(r#"cluster="a\"} 1\nevil{x=\"\\""#), "{text}");
    }
}
