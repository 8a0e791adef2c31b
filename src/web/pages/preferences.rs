//! `/preferences`: theme and keyboard shortcuts of one browser, signed in or not.

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::{KEYS_COOKIE, THEME_COOKIE};
use crate::api::Failure;
use crate::web::AppState;
use crate::web::guard::{page_of_form, safe_next};

const YEAR_S: u32 = 365 * 24 * 3_600;

/// What the menu's buttons send: one of the two.
#[derive(Deserialize)]
pub struct PreferencesForm {
    theme: Option<String>,
    keys: Option<String>,
}

/// `POST /preferences`: back to the page on which the button was.
pub async fn set(State(state): State<AppState>, headers: HeaderMap, Form(form): Form<PreferencesForm>) -> Result<Response, Failure> {
    let theme = form.theme.as_deref().map(|word| known(THEME_COOKIE, word, &["light", "dark", "system"])).transpose()?;
    let keys = form.keys.as_deref().map(|word| known(KEYS_COOKIE, word, &["on", "off"])).transpose()?;
    let secure = if state.is_https() { "; Secure" } else { "" };
    let cookies = [theme, keys].into_iter().flatten().map(|pair| {
        let cookie = format!("{pair}; Path=/; HttpOnly; SameSite=Lax; Max-Age={YEAR_S}{secure}");
        (header::SET_COOKIE, cookie)
    });
    let back = Redirect::to(safe_next(page_of_form(&state, &headers).as_deref()));
    Ok((AppendHeaders(cookies.collect::<Vec<_>>()), back).into_response())
}

fn known(cookie: &str, word: &str, words: &[&str]) -> Result<String, Failure> {
    match words.contains(&word) {
        true => Ok(format!("{cookie}={word}")),
        false => Err(Failure::bad_request(format!("This is none of {}.", words.join(", ")))),
    }
}
