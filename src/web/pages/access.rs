//! `/sign-in`, `/sign-out`, and `/setup`, where the first admin sets a password.

use std::net::{IpAddr, SocketAddr};

use askama::Template;
use askama_web::WebTemplate;
use axum::Form;
use axum::extract::{ConnectInfo, FromRequestParts, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::cookie::CookieJar;
use serde::Deserialize;

use super::flash::Flash;
use super::{Look, Shell, checklist};
use crate::api::Failure;
use crate::api::query::Query;
use crate::domain::access::Role;
use crate::services::access::AccessError;
use crate::web::AppState;
use crate::web::frame::request_id;
use crate::web::guard::{identify, safe_next, session_cookie, session_value, too_little};
use crate::web::view::text;

#[derive(Template, WebTemplate)]
#[template(path = "access/sign_in.html")]
struct SignInPage {
    shell: Shell,
    name: String,
    next: String,
    /// A form was sent without a session: nothing was changed.
    unsent: bool,
    fault: Option<String>,
}

#[derive(Template, WebTemplate)]
#[template(path = "access/setup.html")]
struct SetupPage {
    shell: Shell,
    /// None: the link is used up or never was one.
    token: Option<String>,
    name: String,
    fault: Option<String>,
}

/// Said to everyone alike: which of the two was wrong is for the trail alone.
const WRONG: &str = "Name or password is wrong. Try again; if the password is forgotten, an admin sets a new one: lazaret user passwd NAME";

/// What the sign-in form sends.
#[derive(Deserialize)]
pub struct SignInForm {
    name: String,
    password: String,
    #[serde(default)]
    next: String,
}

/// What the set-up form sends.
#[derive(Deserialize)]
pub struct SetupForm {
    token: String,
    name: String,
    password: String,
    again: String,
}

/// The address of who is connected; None where the server was started without connect info.
pub struct Client(pub Option<IpAddr>);

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Client, Self::Rejection> {
        Ok(Client(parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip())))
    }
}

/// The request's id, for the trail.
pub struct RequestId(Option<String>);

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<RequestId, Self::Rejection> {
        Ok(RequestId(request_id(&parts.extensions).map(str::to_owned)))
    }
}

/// `GET /sign-in`.
pub async fn sign_in_page(
    State(state): State<AppState>,
    look: Look,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &["next", "unsent"])?;
    let next = safe_next(query.text("next")?).to_owned();
    if identify(&state, &headers).await?.is_some() {
        return Ok(Redirect::to(&next).into_response());
    }
    let unsent = query.any(&["unsent"]);
    Ok(SignInPage { shell: Shell::new(&state, None, look, ""), name: String::new(), next, unsent, fault: None }.into_response())
}

/// `POST /sign-in`.
pub async fn sign_in(
    State(state): State<AppState>,
    Client(client): Client,
    RequestId(id): RequestId,
    look: Look,
    jar: CookieJar,
    Form(form): Form<SignInForm>,
) -> Result<Response, Failure> {
    let next = safe_next(Some(&form.next)).to_owned();
    let again = |status: StatusCode, fault: String| {
        let (shell, name) = (Shell::new(&state, None, look, ""), text::line(&form.name));
        let page = SignInPage { shell, name, next: next.clone(), unsent: false, fault: Some(fault) };
        (status, page).into_response()
    };
    if let Err(wait) = state.sign_ins.attempt(client, &form.name, state.clock.monotonic()) {
        let seconds = wait.as_secs().max(1);
        let mut response = again(StatusCode::TOO_MANY_REQUESTS, format!("Too many attempts. Try again in {seconds} s."));
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        return Ok(response);
    }
    match state.access.sign_in(&form.name, &form.password, id.as_deref()).await? {
        None => Ok(again(StatusCode::UNPROCESSABLE_ENTITY, WRONG.to_owned())),
        Some(cookie) => Ok((jar.add(session_cookie(&state, cookie)), Redirect::to(&next)).into_response()),
    }
}

/// `POST /sign-out`.
pub async fn sign_out(
    State(state): State<AppState>,
    RequestId(id): RequestId,
    headers: HeaderMap,
    jar: CookieJar,
) -> Result<Response, Failure> {
    if let Some(cookie) = session_value(&state, &headers) {
        state.access.sign_out(&cookie, id.as_deref()).await?;
    }
    Ok((jar.remove(session_cookie(&state, String::new())), Flash::SignedOut.then("/sign-in")).into_response())
}

/// `GET /setup?token=` for the first admin; `GET /setup` is the checklist of an admin who is signed in.
pub async fn setup_page(
    State(state): State<AppState>,
    look: Look,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(raw.as_deref(), &["token"])?;
    let token = query.text("token")?.unwrap_or_default();
    if token.is_empty()
        && let Some(principal) = identify(&state, &headers).await?
    {
        return match principal.role {
            Role::Admin => Ok(checklist::page(&state, &principal, look).await?.into_response()),
            _ => Ok(too_little(principal, Role::Admin)),
        };
    }
    let holds = state.access.setup_token_holds(token).await?;
    let status = if holds { StatusCode::OK } else { StatusCode::FORBIDDEN };
    let page = SetupPage {
        shell: Shell::new(&state, None, look, ""),
        token: holds.then(|| token.to_owned()),
        name: "admin".to_owned(),
        fault: None,
    };
    Ok((status, page).into_response())
}

/// `POST /setup`.
pub async fn setup(
    State(state): State<AppState>,
    RequestId(id): RequestId,
    look: Look,
    jar: CookieJar,
    Form(form): Form<SetupForm>,
) -> Result<Response, Failure> {
    let again = |fault: String| {
        let page = SetupPage {
            shell: Shell::new(&state, None, look, ""),
            token: Some(form.token.clone()),
            name: text::line(&form.name),
            fault: Some(fault),
        };
        (StatusCode::UNPROCESSABLE_ENTITY, page).into_response()
    };
    // Before anything is said of the form: who has no link learns nothing from it.
    if form.password != form.again && state.access.setup_token_holds(&form.token).await? {
        return Ok(again("The two passwords differ.".to_owned()));
    }
    match state.access.set_up(&form.token, &form.name, &form.password, id.as_deref()).await {
        Ok(Some(cookie)) => Ok((jar.add(session_cookie(&state, cookie)), Redirect::to("/setup")).into_response()),
        Ok(None) => {
            let page = SetupPage { shell: Shell::new(&state, None, look, ""), token: None, name: String::new(), fault: None };
            Ok((StatusCode::FORBIDDEN, page).into_response())
        }
        Err(AccessError::Refused(sentence)) => Ok(again(sentence)),
        Err(error) => Err(error.into()),
    }
}
