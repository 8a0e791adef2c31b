//! What was just done, said once on the page to which the answer leads. The word travels in a cookie that lives a minute, and stands
//! in a list: nobody can make a page say anything else.

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum_extra::extract::cookie::CookieJar;

/// What can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flash {
    SignedOut,
    StatusSaved,
    NoteAdded,
    TakenUp,
    Released,
    Archived,
    Restored,
    FollowUpClosed,
}

const ALL: [(Flash, &str, &str); 8] = [
    (Flash::SignedOut, "signed-out", "You are signed out."),
    (Flash::StatusSaved, "status-saved", "The status is saved."),
    (Flash::NoteAdded, "note-added", "The note is added."),
    (Flash::TakenUp, "taken-up", "The message is taken up: it is under review."),
    (Flash::Released, "released", "The message is released: it is back in quarantine."),
    (Flash::Archived, "archived", "The message is archived."),
    (Flash::Restored, "restored", "The message is restored: it is under review."),
    (Flash::FollowUpClosed, "follow-up-closed", "The follow-up is closed."),
];

pub const FLASH_COOKIE: &str = "lazaret-flash";

impl Flash {
    /// What the request carries. None on what htmx fetches for a part of a page: the whole page has said it.
    pub fn of(headers: &HeaderMap, jar: &CookieJar) -> Option<Flash> {
        if headers.contains_key(axum_htmx::headers::HX_REQUEST) {
            return None;
        }
        let word = jar.get(FLASH_COOKIE)?;
        ALL.iter().find(|(_, name, _)| *name == word.value()).map(|(flash, ..)| *flash)
    }

    pub fn words(self) -> &'static str {
        ALL.iter().find(|(flash, ..)| *flash == self).map_or("", |(.., words)| words)
    }

    /// The answer to a form: see `path`, and there read this.
    pub fn then(self, path: &str) -> Response {
        let name = ALL.iter().find(|(flash, ..)| *flash == self).map_or("", |(_, name, _)| name);
        ([(header::SET_COOKIE, cookie(name, 60))], Redirect::to(path)).into_response()
    }
}

/// The `Set-Cookie` after which a browser has forgotten what was said.
pub fn said() -> String {
    cookie("", 0)
}

fn cookie(word: &str, seconds: u32) -> String {
    format!("{FLASH_COOKIE}={word}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}")
}
