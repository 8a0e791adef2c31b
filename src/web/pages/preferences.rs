//! `/preferences`: theme and keyboard shortcuts of one browser.

use axum::response::Response;

use crate::api::Failure;

/// `POST /preferences`.
pub async fn set() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
