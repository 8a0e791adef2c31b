//! `/metrics`, `/healthz`, `/readyz`: for machines, in plain text.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::Failure;
use crate::services::health::DlqHealth;
use crate::telemetry::{self, DlqGauge};
use crate::web::AppState;

const TEXT: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];

/// `GET /healthz`: the process runs and answers.
pub async fn healthz() -> impl IntoResponse {
    (TEXT, "ok\n")
}

/// `GET /readyz`: the database answers too. 503 with a sentence when it does not; the reason is in the log, not here, for anyone may ask.
pub async fn readyz(State(state): State<AppState>) -> Response {
    match state.store.ping().await {
        Ok(()) => (TEXT, "ready\n").into_response(),
        Err(error) => {
            tracing::warn!(error = %error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, TEXT, "not ready: the database does not answer\n").into_response()
        }
    }
}

/// `GET /metrics` on the main address, for signed-in users and tokens; elsewhere when `server.metrics_listen` is set.
pub async fn metrics_on_main(State(state): State<AppState>) -> Result<Response, Failure> {
    if !state.options.metrics_on_main {
        return Err(Failure::not_found("Metrics are on the address of server.metrics_listen."));
    }
    Ok(metrics(State(state)).await)
}

/// The metrics, Prometheus text format 0.0.4. While the database is away those of the process are still given, and those of the DLQs are
/// absent rather than stale.
pub async fn metrics(State(state): State<AppState>) -> Response {
    let dlqs = match state.health.all().await {
        Ok(rows) => rows.iter().filter(|row| row.dlq.gone_since_ms.is_none()).map(gauge).collect(),
        Err(error) => {
            tracing::warn!(error = %error, "metrics of the DLQs are left out");
            Vec::new()
        }
    };
    let body = match &state.metrics {
        Some(handle) => telemetry::render(handle, &dlqs),
        None => telemetry::render_dlqs(&dlqs),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], body).into_response()
}

fn gauge(row: &DlqHealth) -> DlqGauge {
    let seconds = |ms: i64| ms as f64 / 1_000.0;
    DlqGauge {
        cluster: row.dlq.cluster.clone(),
        topic: row.dlq.topic.clone(),
        depth: Some(row.depth),
        uncollected: row.uncollected,
        oldest_age_s: row.oldest_age_ms.map(seconds),
        at_risk_left_s: row.at_risk.left_ms().map(seconds),
        arrivals_per_min: row.arrivals_per_min,
        sampled_at_ms: row.sampled_at_ms,
    }
}
