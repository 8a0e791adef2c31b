//! Who is asking, and whether they may. One guard per route, put there by the table in `routes`.
//!
//! Owners limit what one acts on, not what one sees: every signed-in user reads everything, masked fields aside.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::cookie::{Cookie, CookieJar, SameSite};
use axum_htmx::HxRedirect;

use super::AppState;
use crate::api::Failure;
use crate::api::query::encode;
use crate::domain::access::{Principal, Role};

/// The session cookie's name. `__Host-` makes browsers insist on TLS and on no other host having set it, so it needs https.
fn cookie_name(state: &AppState) -> &'static str {
    if state.is_https() { "__Host-lazaret" } else { "lazaret" }
}

/// The session cookie with `value`.
pub fn session_cookie(state: &AppState, value: String) -> Cookie<'static> {
    Cookie::build((cookie_name(state), value)).path("/").http_only(true).same_site(SameSite::Lax).secure(state.is_https()).build()
}

/// The value of the session cookie, if there is one.
pub fn session_value(state: &AppState, headers: &HeaderMap) -> Option<String> {
    CookieJar::from_headers(headers).get(cookie_name(state)).map(|cookie| cookie.value().to_owned())
}

/// Lets a request through that comes with at least `role`, with the [`Principal`] in its extensions.
pub async fn require(State((state, role)): State<(AppState, Role)>, mut request: Request, next: Next) -> Response {
    match identify(&state, request.headers()).await {
        Ok(Some(principal)) if principal.role >= role => {
            request.extensions_mut().insert(principal.clone());
            let mut response = next.run(request).await;
            // An error page shows who is signed in, too.
            response.extensions_mut().insert(principal);
            response
        }
        Ok(Some(principal)) => too_little(principal, role),
        Ok(None) => not_signed_in(&state, &request),
        Err(failure) => failure.into_response(),
    }
}

/// The refusal of somebody whose role does not reach. It names both roles, and its page shows who is signed in.
pub fn too_little(principal: Principal, role: Role) -> Response {
    let (needed, has) = (role.as_str(), principal.role.as_str());
    let detail = format!("This needs the role {needed}, and {} has the role {has}. An admin can change that.", principal.name);
    let mut response = Failure::forbidden(detail).into_response();
    response.extensions_mut().insert(principal);
    response
}

/// Who sent this: a bearer token's principal, or a session's. None: nobody we know.
///
/// # Errors
/// A bearer token that is unknown, revoked or expired; a store that does not answer.
pub async fn identify(state: &AppState, headers: &HeaderMap) -> Result<Option<Principal>, Failure> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let secret =
            value.to_str().ok().and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, secret)) = secret else {
            return Err(Failure::unauthorized("Send an API token as \"Authorization: Bearer ...\"."));
        };
        return match state.access.token(secret.trim()).await? {
            Some(principal) => Ok(Some(principal)),
            None => Err(Failure::unauthorized("This API token is unknown, revoked or expired. Make one with: lazaret token create")),
        };
    }
    match session_value(state, headers) {
        Some(cookie) => Ok(state.access.session(&cookie).await?),
        None => Ok(None),
    }
}

/// A browser is sent to sign in and comes back; programs are told. What was asked for by GET is asked for again after that; a form is not
/// sent again: its reader comes back to the page that it stood on, and the sign-in page says that nothing was changed.
fn not_signed_in(state: &AppState, request: &Request) -> Response {
    let path = request.uri().path();
    if path.starts_with("/api/") || path == "/metrics" {
        let mut response = Failure::unauthorized("Send an API token as \"Authorization: Bearer ...\", or sign in first.").into_response();
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    }
    let reads = request.method().is_safe();
    let asked = || request.uri().path_and_query().map(|target| target.as_str().to_owned());
    let is_part = request.headers().contains_key(axum_htmx::headers::HX_REQUEST);
    let back = match (is_part, reads) {
        (true, _) => page_of_part(request.headers()),
        (false, true) => asked(),
        (false, false) => page_of_form(state, request.headers()),
    };
    let mut sign_in = match safe_next(back.as_deref()) {
        "/" => "/sign-in?".to_owned(),
        back => format!("/sign-in?next={}&", encode(back.as_bytes())),
    };
    sign_in += if reads { "" } else { "unsent=1" };
    let sign_in = sign_in.trim_end_matches(['?', '&']).to_owned();
    if is_part {
        return (StatusCode::UNAUTHORIZED, HxRedirect(sign_in), ()).into_response();
    }
    Redirect::to(&sign_in).into_response()
}

/// Path and query of the page of ours that a form was sent from. It is ours by the host that was asked for, or by `public_url`, which a proxy
/// may hide from us.
pub fn page_of_form(state: &AppState, headers: &HeaderMap) -> Option<String> {
    let page: Uri = headers.get(header::REFERER)?.to_str().ok()?.parse().ok()?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = page.authority()?.as_str();
    let ours = host == Some(authority) || state.options.public_url == format!("{}://{authority}", page.scheme_str()?);
    ours.then(|| page.path_and_query().map(|target| target.as_str().to_owned()))?
}

/// Path and query of the page on which htmx asked for a part.
fn page_of_part(headers: &HeaderMap) -> Option<String> {
    let page: Uri = headers.get(axum_htmx::headers::HX_CURRENT_URL)?.to_str().ok()?.parse().ok()?;
    page.path_and_query().map(|target| target.as_str().to_owned())
}

/// Where to go after signing in: a path of ours, or the overview. Never another host (`//host`, `/\host`).
pub fn safe_next(next: Option<&str>) -> &str {
    let ours = |next: &&str| {
        let inside = next.strip_prefix('/').is_some_and(|rest| !rest.starts_with('/'));
        inside && next.bytes().all(|byte| byte > b' ' && byte < 0x7f && byte != b'\\')
    };
    next.filter(ours).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_signing_in_one_stays_here() {
        for (next, goes) in [
            (Some("/dlqs/main/a.DLQ?state=quarantined"), "/dlqs/main/a.DLQ?state=quarantined"),
            (Some("//evil.example"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("/a\tb"), "/"),
            (Some("/a\r\nSet-Cookie: x"), "/"),
            (Some("https://evil.example"), "/"),
            (Some("javascript:alert(1)"), "/"),
            (Some(""), "/"),
            (None, "/"),
        ] {
            assert_eq!(safe_next(next), goes, "{next:?}");
        }
    }
}
