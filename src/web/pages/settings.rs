//! `/settings`: what we are connected to, and what is missing.

use axum::response::Response;

use crate::api::Failure;

/// `GET /settings`.
pub async fn page() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}

/// `POST /settings/clusters/{cluster}/test`.
pub async fn test_cluster() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
