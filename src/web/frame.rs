//! What every response passes through: a request id, a log line, security headers, and errors written out as a page or as
//! `problem+json`. Handlers and layers inside only name a status; nothing internal can reach the answer.

use std::time::Duration;

use askama::Template;
use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use super::AppState;
use super::guard::identify;
use super::pages::flash::said;
use super::pages::{Look, Shell};
use super::view::text::hex;
use crate::api::Failure;
use crate::api::failure::Problem;
use crate::domain::access::Principal;

/// Nothing but what we serve ourselves, and no inline code: hostile bytes that slipped through the escaping would still be inert.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A page that takes longer will not come; the reader should be told.
const PATIENCE: Duration = Duration::from_secs(30);
/// No form of ours is larger; a proposal names up to 10,000 messages.
const BODY_LIMIT: usize = 256 * 1024;

/// Puts the frame around all routes.
pub fn around(router: Router, state: &AppState) -> Router {
    let inside = ServiceBuilder::new()
        .layer(middleware::from_fn_with_state(state.clone(), write_errors))
        .layer(CatchPanicLayer::custom(|_| Failure::internal().into_response()))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, PATIENCE))
        .layer(RequestBodyLimitLayer::new(BODY_LIMIT))
        .layer(state.csrf.clone());
    outer(router.layer(inside))
}

/// The parts that need no state, for the address that serves metrics alone too.
pub fn outer(router: Router) -> Router {
    let fixed = |name: HeaderName, value: &'static str| SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value));
    let id = HeaderName::from_static("x-request-id");
    router.layer(
        ServiceBuilder::new()
            .layer(SetRequestIdLayer::new(id.clone(), RandomId))
            .layer(TraceLayer::new_for_http().make_span_with(span))
            .layer(PropagateRequestIdLayer::new(id))
            .layer(fixed(header::CONTENT_SECURITY_POLICY, POLICY))
            .layer(fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
            .layer(fixed(header::REFERRER_POLICY, "same-origin"))
            .layer(fixed(HeaderName::from_static("cross-origin-opener-policy"), "same-origin"))
            .layer(fixed(HeaderName::from_static("cross-origin-resource-policy"), "same-origin"))
            .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
            .layer(CompressionLayer::new()),
    )
}

/// The path and not the query: that may hold business keys or a set-up token.
fn span<B>(request: &axum::http::Request<B>) -> tracing::Span {
    tracing::info_span!("request", method = %request.method(), path = request.uri().path(), id = request_id(request.extensions()).unwrap_or_default())
}

/// The request's id, as the answer and the log show it.
pub(super) fn request_id(extensions: &axum::http::Extensions) -> Option<&str> {
    extensions.get::<RequestId>()?.header_value().to_str().ok()
}

/// Twelve hex digits: short enough to read out over the telephone.
#[derive(Debug, Clone, Copy)]
struct RandomId;

impl MakeRequestId for RandomId {
    fn make_request_id<B>(&mut self, _request: &axum::http::Request<B>) -> Option<RequestId> {
        let mut bytes = [0; 6];
        getrandom::fill(&mut bytes).ok()?;
        HeaderValue::from_str(&hex(&bytes)).ok().map(RequestId::new)
    }
}

/// What the router and the layers around it answer by themselves.
const BEFORE_GUARDS: [StatusCode; 3] = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::PAYLOAD_TOO_LARGE];

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    status: StatusCode,
    /// What happened.
    title: &'static str,
    /// Why.
    detail: String,
    /// What helps; empty where `detail` says it.
    remedy: &'static str,
    request_id: Option<String>,
}

/// Writes an error out for whoever asked. Plain texts for machines (`/readyz`) and pages that are made with an error status
/// (a form with its fault) pass as they are.
async fn write_errors(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let is_plain = matches!(request.uri().path(), "/healthz" | "/readyz");
    let id = request_id(request.extensions()).map(str::to_owned);
    let headers = request.headers().clone();
    let look = Look::of(&headers);
    let mut response = next.run(request).await;
    let status = response.status();
    if look.flash.is_some() && status.is_success() && is_page(&response) {
        response.headers_mut().extend(HeaderValue::from_str(&said()).map(|forget| (header::SET_COOKIE, forget)));
    }
    if is_plain || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let failure = match response.extensions().get::<Failure>() {
        Some(failure) => failure.clone(),
        None if is_page(&response) => return response,
        None => Failure::of_status(status),
    };
    let mut written = if is_api {
        problem(&failure, id.as_deref())
    } else {
        let principal = match response.extensions().get::<Principal>() {
            Some(principal) => Some(principal.clone()),
            // No guard saw the request, so nobody asked the store yet; elsewhere its silence may be the error.
            None if BEFORE_GUARDS.contains(&status) => identify(&state, &headers).await.ok().flatten(),
            None => None,
        };
        page(&state, failure, principal, look, id)
    };
    // A status may need its headers (Allow, WWW-Authenticate, Retry-After, HX-Redirect).
    for (name, value) in response.headers() {
        if *name != header::CONTENT_TYPE && *name != header::CONTENT_LENGTH {
            written.headers_mut().append(name, value.clone());
        }
    }
    written
}

fn is_page(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

fn problem(failure: &Failure, id: Option<&str>) -> Response {
    let mut response = (failure.status, Json(Problem::of(failure, id))).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

fn page(state: &AppState, failure: Failure, principal: Option<Principal>, look: Look, request_id: Option<String>) -> Response {
    let Failure { status, detail } = failure;
    let (title, remedy) = words(status);
    let page = ErrorPage { shell: Shell::new(state, principal.as_ref(), look, ""), status, title, detail, remedy, request_id };
    match page.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(_) => (status, title).into_response(),
    }
}

/// What a status means for a reader, and what helps.
fn words(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::BAD_REQUEST => ("This request makes no sense here", "Go back and change what was asked."),
        StatusCode::UNAUTHORIZED => ("Not signed in", ""),
        StatusCode::FORBIDDEN => ("Not allowed", ""),
        StatusCode::NOT_FOUND => ("Not found", "Check the address, or search for the message or DLQ by name."),
        StatusCode::METHOD_NOT_ALLOWED => ("Not done that way", "Go back to the page and use its buttons."),
        StatusCode::CONFLICT => ("Somebody was faster", "Go back, reload the page and look at what changed."),
        StatusCode::PAYLOAD_TOO_LARGE => ("Too large", "Shorten what was typed and send it again. Nothing was stored."),
        StatusCode::TOO_MANY_REQUESTS => ("Too many requests", "Wait a moment and try again."),
        StatusCode::NOT_IMPLEMENTED => ("Not in this version", ""),
        StatusCode::SERVICE_UNAVAILABLE => {
            ("Not available right now", "Reload in a moment. If it lasts, look at the log under this request's number.")
        }
        StatusCode::GATEWAY_TIMEOUT => ("This took too long", "Reload in a moment, or narrow the filter."),
        status if status.is_client_error() => ("This does not work", "Go back and try again."),
        _ => ("Something went wrong", "Reload once. If it happens again, give an admin the request's number."),
    }
}
