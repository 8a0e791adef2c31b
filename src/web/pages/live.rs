//! `/events`: the stream of hints after which fragments fetch themselves again.

use axum::response::Response;

use crate::api::Failure;

/// `GET /events`.
pub async fn events() -> Result<Response, Failure> {
    Err(Failure::of_status(axum::http::StatusCode::NOT_IMPLEMENTED))
}
