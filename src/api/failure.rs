//! Why a request could not be answered, for pages and API alike. The layer in `web` that sees every response writes it out: as
//! `problem+json` under `/api/`, else as a page. So a handler only says what is wrong and what would help.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::services::access::AccessError;
use crate::services::groups::CompareError;
use crate::services::messages::MessagesError;
use crate::services::review::ReviewError;
use crate::store::StoreError;

/// A status and a sentence for the one who asked. Never holds internals or secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    /// What is wrong and what would help.
    pub detail: String,
}

impl Failure {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into() }
    }
    pub fn bad_request(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, detail)
    }
    pub fn not_found(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, detail)
    }
    pub fn forbidden(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, detail)
    }
    pub fn unauthorized(detail: impl Into<String>) -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, detail)
    }
    /// Something inside went wrong. What it was is in the log, under the request id that the answer shows.
    pub fn internal() -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong inside Lazaret. The log says what, under this request id.")
    }
    /// What the status means, for when nobody said more.
    pub fn of_status(status: StatusCode) -> Failure {
        let detail = match status {
            StatusCode::NOT_FOUND => "There is nothing at this address.",
            StatusCode::METHOD_NOT_ALLOWED => "This address does not take requests of that method.",
            StatusCode::FORBIDDEN => "The request came from another site's page. Go back to Lazaret and try there.",
            StatusCode::PAYLOAD_TOO_LARGE => "The request is larger than this address takes.",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "This address takes form data.",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => {
                "The answer took too long: the database or the machine is busy. Try again in a moment."
            }
            status if status.is_client_error() => "The request could not be understood.",
            _ => return Failure { status, ..Failure::internal() },
        };
        Failure::new(status, detail)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        // Handled here, so logged here; the span around the request names its id.
        tracing::error!(error = %error, "the store failed a request");
        match error.is_transient() {
            true => Failure::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The database does not answer right now. Lazaret keeps trying; reload in a moment.",
            ),
            false => Failure::internal(),
        }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Failure {
        match error {
            AccessError::Refused(sentence) => Failure::bad_request(sentence),
            AccessError::Store(error) => error.into(),
            AccessError::Machine(reason) => {
                tracing::error!(reason, "access failed");
                Failure::internal()
            }
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Failure {
        match error {
            CompareError::Store(error) => error.into(),
            CompareError::Stopped(error) => {
                tracing::error!(error = %error, "a failure could not be compared");
                Failure::internal()
            }
        }
    }
}

impl From<MessagesError> for Failure {
    fn from(error: MessagesError) -> Failure {
        match error {
            MessagesError::Store(error) => error.into(),
            MessagesError::Stopped(error) => {
                tracing::error!(error = %error, "a message could not be prepared");
                Failure::internal()
            }
        }
    }
}

impl From<ReviewError> for Failure {
    fn from(error: ReviewError) -> Failure {
        match error {
            ReviewError::Store(error) => error.into(),
            ReviewError::Forbidden(sentence) => Failure::forbidden(sentence),
            ReviewError::Conflict(sentence) => Failure::new(StatusCode::CONFLICT, sentence),
            ReviewError::Invalid(sentence) => Failure::new(StatusCode::UNPROCESSABLE_ENTITY, sentence),
            ReviewError::NotFound(what) => Failure::not_found(format!("There is no {what}.")),
        }
    }
}

/// RFC 9457.
#[derive(Debug, Serialize)]
pub struct Problem<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub title: &'a str,
    pub status: u16,
    pub detail: &'a str,
    pub request_id: Option<&'a str>,
}

impl<'a> Problem<'a> {
    pub fn of(failure: &'a Failure, request_id: Option<&'a str>) -> Problem<'a> {
        let title = failure.status.canonical_reason().unwrap_or("Error");
        Problem { kind: "about:blank", title, status: failure.status.as_u16(), detail: &failure.detail, request_id }
    }
}
