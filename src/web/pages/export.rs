//! Exports: the same query as the list, as CSV or JSON.

use axum::response::Response;

use crate::api::Failure;

/// `GET /messages/export?format=`.
pub async fn messages() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}

/// `GET /export?format=`.
pub async fn dlqs() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
