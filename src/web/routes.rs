//! The one table: method, path, who may, handler. The router is built from it, and the permission test walks it.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};

use super::pages::replays::{self, batch, new, review};
use super::pages::{self, access, dlq, export, group, live, message, messages, operations, overview, preferences, reviews, settings};
use super::{AppState, assets, frame, guard};
use crate::api::{self, Failure};
use crate::domain::access::Role;

/// One route.
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// The least role that may; None: anyone, signed in or not.
    pub role: Option<Role>,
    handler: fn() -> MethodRouter<AppState>,
}

const ANYONE: Option<Role> = None;
const VIEWER: Option<Role> = Some(Role::Viewer);
const OPERATOR: Option<Role> = Some(Role::Operator);
const APPROVER: Option<Role> = Some(Role::Approver);
const ADMIN: Option<Role> = Some(Role::Admin);

const fn route(method: &'static str, path: &'static str, role: Option<Role>, handler: fn() -> MethodRouter<AppState>) -> Route {
    Route { method, path, role, handler }
}

/// Everything there is.
pub const ROUTES: &[Route] = &[
    route("GET", "/", VIEWER, || get(overview::page)),
    route("GET", "/messages", VIEWER, || get(messages::page)),
    route("GET", "/export", VIEWER, || get(export::dlqs)),
    route("GET", "/messages/export", VIEWER, || get(export::messages)),
    route("GET", "/messages/{id}", VIEWER, || get(message::page)),
    route("GET", "/messages/{id}/value", VIEWER, || get(message::value)),
    // A page may be the answer to a form and then stands at the form's address: who comes back there by GET comes to the page itself.
    route("GET", "/messages/{id}/reveal", VIEWER, || get(pages::page_of_form)),
    route("POST", "/messages/{id}/reveal", OPERATOR, || post(message::reveal)),
    route("GET", "/dlqs/{cluster}/{topic}", VIEWER, || get(dlq::page)),
    route("GET", "/dlqs/{cluster}/{topic}/{partition}/{offset}", VIEWER, || get(message::permalink)),
    route("GET", "/groups/{id}", VIEWER, || get(group::page)),
    route("GET", "/groups/{id}/status", VIEWER, || get(pages::page_of_form)),
    route("POST", "/groups/{id}/status", OPERATOR, || post(group::set_status)),
    route("GET", "/groups/{id}/notes", VIEWER, || get(pages::page_of_form)),
    route("POST", "/groups/{id}/notes", OPERATOR, || post(group::add_note)),
    route("GET", "/replays", VIEWER, || get(replays::page)),
    route("POST", "/replays", OPERATOR, || post(new::create)),
    route("GET", "/replays/new", VIEWER, || get(new::page)),
    route("GET", "/replays/{id}", VIEWER, || get(batch::page)),
    route("GET", "/replays/{id}/review", VIEWER, || get(review::page)),
    route("GET", "/replays/{id}/submit", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/submit", OPERATOR, || post(batch::submit)),
    route("GET", "/replays/{id}/approve", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/approve", APPROVER, || post(review::approve)),
    route("GET", "/replays/{id}/reject", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/reject", APPROVER, || post(review::reject)),
    route("GET", "/replays/{id}/pause", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/pause", OPERATOR, || post(batch::pause)),
    route("GET", "/replays/{id}/resume", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/resume", OPERATOR, || post(batch::resume)),
    route("GET", "/replays/{id}/stop", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/stop", OPERATOR, || post(batch::stop)),
    route("GET", "/replays/{id}/reopen", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/reopen", OPERATOR, || post(batch::reopen)),
    route("GET", "/replays/{id}/slow-down", VIEWER, || get(pages::page_of_form)),
    route("POST", "/replays/{id}/slow-down", OPERATOR, || post(batch::slow_down)),
    route("GET", "/reviews", VIEWER, || get(reviews::list)),
    route("POST", "/reviews", OPERATOR, || post(reviews::begin)),
    route("GET", "/reviews/{id}", VIEWER, || get(reviews::page)),
    route("GET", "/reviews/{id}/stop", VIEWER, || get(pages::page_of_form)),
    route("POST", "/reviews/{id}/stop", OPERATOR, || post(reviews::stop)),
    route("GET", "/settings", VIEWER, || get(settings::page)),
    route("GET", "/settings/clusters/{cluster}/test", VIEWER, || get(settings::clusters)),
    route("POST", "/settings/clusters/{cluster}/test", ADMIN, || post(settings::test_cluster)),
    route("GET", "/events", VIEWER, || get(live::events)),
    route("POST", "/preferences", ANYONE, || post(preferences::set)),
    route("GET", "/api/v1/dlqs", VIEWER, || get(api::dlqs::list)),
    route("GET", "/api/v1/dlqs/{cluster}/{topic}", VIEWER, || get(api::dlqs::one)),
    route("GET", "/api/v1/messages", VIEWER, || get(api::messages::list)),
    route("GET", "/api/v1/messages/{id}", VIEWER, || get(api::messages::one)),
    route("GET", "/api/v1/groups/{id}", VIEWER, || get(api::groups::one)),
    route("GET", "/api/v1/replays", VIEWER, || get(api::replays::list)),
    route("POST", "/api/v1/replays", OPERATOR, || post(api::replays::propose)),
    route("GET", "/api/v1/replays/{id}", VIEWER, || get(api::replays::one)),
    route("POST", "/api/v1/replays/{id}/submit", OPERATOR, || post(api::replays::submit)),
    route("POST", "/api/v1/replays/{id}/approve", APPROVER, || post(api::replays::approve)),
    route("POST", "/api/v1/replays/{id}/reject", APPROVER, || post(api::replays::reject)),
    route("POST", "/api/v1/replays/{id}/pause", OPERATOR, || post(api::replays::pause)),
    route("POST", "/api/v1/replays/{id}/resume", OPERATOR, || post(api::replays::resume)),
    route("POST", "/api/v1/replays/{id}/stop", OPERATOR, || post(api::replays::stop)),
    route("POST", "/api/v1/replays/{id}/reopen", OPERATOR, || post(api::replays::reopen)),
    route("POST", "/api/v1/replays/{id}/slow-down", OPERATOR, || post(api::replays::slow_down)),
    route("POST", "/api/v1/replays/{id}/emergency-review", APPROVER, || post(api::replays::review_emergency)),
    route("GET", "/metrics", VIEWER, || get(operations::metrics_on_main)),
    route("GET", "/healthz", ANYONE, || get(operations::healthz)),
    route("GET", "/readyz", ANYONE, || get(operations::readyz)),
    route("GET", "/static/{file}", ANYONE, || get(assets::file)),
    route("GET", "/sign-in", ANYONE, || get(access::sign_in_page)),
    route("POST", "/sign-in", ANYONE, || post(access::sign_in)),
    route("POST", "/sign-out", ANYONE, || post(access::sign_out)),
    route("GET", "/setup", ANYONE, || get(access::setup_page)),
    route("POST", "/setup", ANYONE, || post(access::setup)),
];

/// Below here everything lies that sends, or prepares to. A read-only Lazaret refuses whatever there is more than looking, with the reason,
/// and whether or not this version has a handler for it.
const SENDS: [&str; 2] = ["/replays", "/api/v1/replays"];

/// Pages, API and operations. Serve it with connect info (`into_make_service_with_connect_info::<SocketAddr>`), so that attempts to
/// sign in are counted per client.
pub fn router(state: AppState) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let mut handler = (route.handler)();
        if let Some(role) = route.role {
            handler = handler.route_layer(middleware::from_fn_with_state((state.clone(), role), guard::require));
        }
        router = router.route(route.path, handler);
    }
    let router = router
        .fallback(|| async { Failure::of_status(axum::http::StatusCode::NOT_FOUND) })
        .method_not_allowed_fallback(|| async { Failure::of_status(axum::http::StatusCode::METHOD_NOT_ALLOWED) })
        .with_state(state.clone());
    let router = if state.options.read_only { router.layer(middleware::from_fn(send_nothing)) } else { router };
    frame::around(router, &state)
}

async fn send_nothing(request: Request, next: Next) -> Response {
    let sends = |path: &str| SENDS.iter().any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if request.method().is_safe() || !sends(request.uri().path()) {
        return next.run(request).await;
    }
    let reason =
        "This Lazaret is read-only (--read-only, or server.read_only): it has no producer, so nothing can be sent or prepared to be.";
    Failure::forbidden(reason).into_response()
}

/// `/metrics`, `/healthz` and `/readyz` without sign-in, for `server.metrics_listen`.
pub fn metrics_router(state: AppState) -> Router {
    let router = Router::new()
        .route("/metrics", get(operations::metrics))
        .route("/healthz", get(operations::healthz))
        .route("/readyz", get(operations::readyz));
    frame::outer(router.with_state(state))
}
