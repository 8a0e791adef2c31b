//! Sign-in, sessions, API tokens, and the one-time link by which the first admin sets a password.
//!
//! Each change and each attempt to sign in is told to the trail in its own transaction. Passwords are kept as argon2id, everything else that opens a door as SHA-256 of 32 random bytes: those need no slow hash, since
//! nobody can guess them.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore};

use crate::domain::access::{OwnerScope, Principal, Role, look_of_name};
use crate::domain::audit::{Action, By, COMMAND_LINE, Event, NOT_SIGNED_IN};
use crate::domain::clock::Clock;
use crate::domain::record::deceives;
use crate::store::users::{self, Disabling, User};
use crate::store::{Store, StoreError, Tx, audit, tokens};

/// Why access was refused or could not be managed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was typed does not do; the sentence says what would.
    #[error("{0}")]
    Refused(String),
    /// The machine gave no randomness or the hasher did not run.
    #[error("{0}")]
    Machine(String),
}

/// Begins every API token, so that secret scanners recognise one that was committed by mistake.
pub const TOKEN_PREFIX: &str = "lzr_";
/// Fewer characters than this are refused as a password (NIST SP 800-63B asks for 8; we ask for more and nothing else).
pub const MIN_PASSWORD_CHARS: usize = 12;
/// More bytes than this are refused: nobody types them, and hashing them is work.
const MAX_PASSWORD_BYTES: usize = 1_024;
const MAX_NAME_CHARS: usize = 64;
const HOUR_MS: i64 = 3_600_000;

/// Memory in KiB, passes, lanes: OWASP's first recommendation for argon2id (Password Storage Cheat Sheet, 2025).
const ARGON2_COST: (u32, u32, u32) = (19_456, 2, 1);
/// How many passwords are hashed at once: each takes 19 MiB, and sign-in is open to anybody.
const HASHED_AT_ONCE: usize = 4;
/// Checked where a name is unknown, so that the answer takes as long as for a known one. Its output is all zeros: no password has it.
const NOBODYS_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5LWhhcy10aGlz$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Local users, sessions and tokens over the store.
#[derive(Debug, Clone)]
pub struct Access {
    pub store: Store,
    pub clock: Clock,
    /// Hours until a session ends, whatever happens in it.
    pub session_hours: i64,
    hashing: Arc<Semaphore>,
    /// Hash of the one-time set-up secret. In memory only: a restart makes a new one.
    setup: Arc<Mutex<Option<[u8; 32]>>>,
}

impl Access {
    pub fn new(store: Store, clock: Clock, session_hours: i64) -> Access {
        let hashing = Arc::new(Semaphore::new(HASHED_AT_ONCE));
        Access { store, clock, session_hours, hashing, setup: Arc::default() }
    }

    /// Makes a user. The password must have 12 characters or more; the name 1 to 64 without control characters, and unlike any other's.
    pub async fn add_user(&self, name: &str, password: &str, role: Role, owners: OwnerScope) -> Result<i64, AccessError> {
        let name = usable_name(name)?;
        check_password(password)?;
        let hash = self.hash_password(password).await?;
        let mut tx = self.store.begin().await?;
        let added = self.add_to(&mut tx, name, &hash, role, &owners).await?;
        audit::append(&mut tx, &self.user_added(&By::command_line(), name, role, &owners)).await?;
        tx.commit().await?;
        Ok(added)
    }

    async fn add_to(&self, tx: &mut Tx, name: &str, hash: &str, role: Role, owners: &OwnerScope) -> Result<i64, AccessError> {
        let look = look_of_name(name);
        let taken = users::names(tx).await?.into_iter().find(|other| look_of_name(other) == look);
        if let Some(taken) = taken.as_ref().filter(|taken| taken.to_lowercase() != name.to_lowercase()) {
            return Err(AccessError::Refused(format!("the name {name:?} looks like the user {taken:?}: choose another name")));
        }
        let added = users::add(tx, name, hash, role, owners, self.clock.now_ms()).await?;
        added.ok_or_else(|| {
            let taken = taken.as_deref().unwrap_or(name);
            AccessError::Refused(format!("there is a user {taken:?} already: choose another name, or change the password of that one"))
        })
    }

    fn user_added(&self, by: &By, name: &str, role: Role, owners: &OwnerScope) -> Event {
        let mut event = self.event(by, Action::UserAdded, user_subject(name));
        event.after = Some(json!({ "role": role, "owners": owners.to_text() }));
        event
    }

    fn event(&self, by: &By, action: Action, subject: String) -> Event {
        Event::new(self.clock.now_ms(), by, action, subject)
    }

    /// Replaces a password and ends the user's sessions.
    pub async fn set_password(&self, name: &str, password: &str) -> Result<(), AccessError> {
        check_password(password)?;
        let hash = self.hash_password(password).await?;
        let mut tx = self.store.begin().await?;
        let changed = users::set_password(&mut tx, name, &hash).await?;
        self.told_of_user(tx, Action::PasswordChanged, name, changed).await
    }

    /// Disables a user and ends the user's sessions. The last active admin is refused: nobody could let anyone in after that.
    pub async fn disable_user(&self, name: &str) -> Result<(), AccessError> {
        let mut tx = self.store.begin().await?;
        let disabled = match users::disable(&mut tx, name).await? {
            Disabling::Done(stored) => Some(stored),
            Disabling::NoSuchUser => None,
            Disabling::LastAdmin => {
                let sentence = format!("{name} is the only active admin: make another first, `lazaret user add NAME --role admin`");
                return Err(AccessError::Refused(sentence));
            }
        };
        self.told_of_user(tx, Action::UserDisabled, name, disabled).await
    }

    /// Lets a disabled user in again, with the password from before.
    pub async fn enable_user(&self, name: &str) -> Result<(), AccessError> {
        let mut tx = self.store.begin().await?;
        let enabled = users::enable(&mut tx, name).await?;
        self.told_of_user(tx, Action::UserEnabled, name, enabled).await
    }

    /// Ends a change to the user whose stored name is given: into the trail, then commit.
    async fn told_of_user(&self, mut tx: Tx, action: Action, typed: &str, stored: Option<String>) -> Result<(), AccessError> {
        let stored = stored.ok_or_else(|| no_such_user(typed))?;
        audit::append(&mut tx, &self.event(&By::command_line(), action, user_subject(&stored))).await?;
        Ok(tx.commit().await?)
    }

    /// Checks name and password (in equal time whether the name exists or not) and starts a session. None: wrong. Some: the cookie's value.
    /// Either goes into the trail: limit how often this is asked.
    pub async fn sign_in(&self, name: &str, password: &str, request_id: Option<&str>) -> Result<Option<String>, AccessError> {
        let mut tx;
        let why = match self.recognise(name, password).await? {
            Ok((user, hash)) => {
                tx = self.store.begin().await?;
                if let Some(cookie) = self.start_session(&mut tx, user.id, &hash).await? {
                    audit::append(&mut tx, &self.event(&by(&user.name, request_id), Action::SignedIn, user_subject(&user.name))).await?;
                    tx.commit().await?;
                    return Ok(Some(cookie));
                }
                "password changed or user disabled meanwhile"
            }
            Err(why) => {
                tx = self.store.begin().await?;
                why
            }
        };
        let typed: String = name.trim().chars().take(MAX_NAME_CHARS).collect();
        let mut event = self.event(&by(NOT_SIGNED_IN, request_id), Action::SignInFailed, user_subject(&typed));
        event.reason = Some(why.to_owned());
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(None)
    }

    /// Whether this is the password of who acts, given once more before something grave. A token has none. That it was wrong is on the trail; limit how
    /// often this is asked.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn reauthenticate(&self, by: &By, password: &str) -> Result<bool, AccessError> {
        // "token NAME" is no user's name (see `usable_name`).
        let Err(why) = self.recognise(&by.actor, password).await? else { return Ok(true) };
        let mut event = self.event(by, Action::SignInFailed, user_subject(&by.actor));
        event.reason = Some(format!("asked for the password once more: {why}"));
        let mut tx = self.store.begin().await?;
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(false)
    }

    /// Whose name and password these are, with the hash that was verified, or why nobody's.
    async fn recognise(&self, name: &str, password: &str) -> Result<Result<(User, String), &'static str>, AccessError> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Ok(Err("wrong password"));
        }
        let found = self.store.user_by_name(name.trim()).await?;
        let hash = found.as_ref().filter(|(user, _)| !user.disabled).map_or(NOBODYS_HASH, |(_, hash)| hash);
        let right = self.verify_password(password, hash).await?;
        Ok(match found {
            None => Err("no such user"),
            Some((user, _)) if user.disabled => Err("disabled"),
            Some(found) if right => Ok(found),
            Some(_) => Err("wrong password"),
        })
    }

    /// None: this is no longer the user's password, or the user was disabled.
    async fn start_session(&self, tx: &mut Tx, user_id: i64, password_hash: &str) -> Result<Option<String>, AccessError> {
        let cookie = random_text()?;
        let now = self.clock.now_ms();
        let expires = now + self.session_hours * HOUR_MS;
        let started = users::add_session(tx, &hash_of(&cookie), (user_id, password_hash), now, expires).await?;
        Ok(started.then_some(cookie))
    }

    /// Who a session cookie belongs to, if it still holds.
    pub async fn session(&self, cookie: &str) -> Result<Option<Principal>, AccessError> {
        let user = self.store.session_user(&hash_of(cookie), self.clock.now_ms()).await?;
        Ok(user.map(|User { name, role, owners, .. }| Principal { name, role, owners }))
    }

    /// Ends a session, if it still holds.
    pub async fn sign_out(&self, cookie: &str, request_id: Option<&str>) -> Result<(), AccessError> {
        let mut tx = self.store.begin().await?;
        if let Some(name) = users::end_session(&mut tx, &hash_of(cookie), self.clock.now_ms()).await? {
            audit::append(&mut tx, &self.event(&by(&name, request_id), Action::SignedOut, user_subject(&name))).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Makes an API token and returns its secret: the only time it is seen. `secret` lets the demo choose it.
    pub async fn create_token(
        &self,
        name: &str,
        role: Role,
        owners: OwnerScope,
        expires_at_ms: Option<i64>,
        secret: Option<&str>,
    ) -> Result<String, AccessError> {
        let name = usable_name(name)?;
        let secret = match secret {
            Some("") => return Err(AccessError::Refused("the token is empty".to_owned())),
            Some(chosen) => chosen.to_owned(),
            None => format!("{TOKEN_PREFIX}{}", random_text()?),
        };
        let mut tx = self.store.begin().await?;
        let added = tokens::add(&mut tx, name, &hash_of(&secret), role, &owners, self.clock.now_ms(), expires_at_ms).await?;
        if added.is_none() {
            let sentence = format!("there is a token {name:?} already: choose another name, or revoke that one first");
            return Err(AccessError::Refused(sentence));
        }
        let mut event = self.event(&By::command_line(), Action::TokenCreated, token_subject(name));
        event.after = Some(json!({ "role": role, "owners": owners.to_text(), "expires_at_ms": expires_at_ms }));
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(secret)
    }

    /// Ends a token.
    pub async fn revoke_token(&self, name: &str) -> Result<(), AccessError> {
        let mut tx = self.store.begin().await?;
        let revoked = tokens::revoke(&mut tx, name, self.clock.now_ms()).await?;
        let stored =
            revoked.ok_or_else(|| AccessError::Refused(format!("there is no live token {name:?}: `lazaret token list` shows them")))?;
        audit::append(&mut tx, &self.event(&By::command_line(), Action::TokenRevoked, token_subject(&stored))).await?;
        Ok(tx.commit().await?)
    }

    /// Who a bearer token belongs to.
    pub async fn token(&self, secret: &str) -> Result<Option<Principal>, AccessError> {
        let token = self.store.token_by_hash(&hash_of(secret), self.clock.now_ms()).await?;
        Ok(token.map(|token| Principal { name: token_subject(&token.name), role: token.role, owners: token.owners }))
    }

    /// A new one-time secret for `/setup`, if there is no user yet. It replaces the one before it.
    pub async fn setup_token(&self) -> Result<Option<String>, AccessError> {
        if !self.store.users().await?.is_empty() {
            return Ok(None);
        }
        let secret = random_text()?;
        *self.setup.lock().await = Some(hash_of(&secret));
        Ok(Some(secret))
    }

    /// Whether this is the secret of `/setup`, not used yet, and there is still no user. Hashes are compared, so the time taken tells nothing.
    pub async fn setup_token_holds(&self, secret: &str) -> Result<bool, AccessError> {
        let is_it = *self.setup.lock().await == Some(hash_of(secret));
        Ok(is_it && self.store.users().await?.is_empty())
    }

    /// Makes the first admin and starts a session: the cookie's value. None: the secret is wrong, used, or there are users by now.
    /// A password or name that is refused leaves the secret valid.
    pub async fn set_up(&self, secret: &str, name: &str, password: &str, request_id: Option<&str>) -> Result<Option<String>, AccessError> {
        // Held throughout: two forms posted at once make one admin.
        let mut setup = self.setup.lock().await;
        if *setup != Some(hash_of(secret)) {
            return Ok(None);
        }
        let name = usable_name(name)?;
        check_password(password)?;
        let hash = self.hash_password(password).await?;
        let mut tx = self.store.begin().await?;
        if !users::names(&mut tx).await?.is_empty() {
            *setup = None;
            return Ok(None);
        }
        let user = self.add_to(&mut tx, name, &hash, Role::Admin, &OwnerScope::All).await?;
        let Some(cookie) = self.start_session(&mut tx, user, &hash).await? else { return Ok(None) };
        let by = by(name, request_id);
        let mut added = self.user_added(&by, name, Role::Admin, &OwnerScope::All);
        added.reason = Some("first admin, by the set-up link".to_owned());
        audit::append(&mut tx, &added).await?;
        audit::append(&mut tx, &self.event(&by, Action::SignedIn, user_subject(name))).await?;
        tx.commit().await?;
        *setup = None;
        Ok(Some(cookie))
    }

    async fn hash_password(&self, password: &str) -> Result<String, AccessError> {
        let password = password.to_owned();
        self.with_hasher(move |argon2| argon2.hash_password(password.as_bytes()).map(|hash| hash.to_string()))
            .await?
            .map_err(|error| AccessError::Machine(format!("the password could not be hashed: {error}")))
    }

    async fn verify_password(&self, password: &str, hash: &str) -> Result<bool, AccessError> {
        let (password, hash) = (password.to_owned(), hash.to_owned());
        self.with_hasher(move |argon2| {
            let hash =
                PasswordHash::new(&hash).map_err(|_| StoreError::Unreadable { what: "password hash", value: "(not shown)".to_owned() })?;
            // Cost and salt come from the stored hash.
            Ok(argon2.verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await?
    }

    /// Off the async threads: one hash takes tens of milliseconds.
    async fn with_hasher<T: Send + 'static>(&self, work: impl FnOnce(&Argon2<'_>) -> T + Send + 'static) -> Result<T, AccessError> {
        let _permit = self.hashing.acquire().await.map_err(|_| AccessError::Machine("shutting down".to_owned()))?;
        tokio::task::spawn_blocking(move || work(&argon2()))
            .await
            .map_err(|error| AccessError::Machine(format!("hashing stopped: {error}")))
    }
}

fn argon2() -> Argon2<'static> {
    let (memory, passes, lanes) = ARGON2_COST;
    let params = Params::new(memory, passes, lanes, None).expect("the constants above are within argon2's bounds");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn usable_name(name: &str) -> Result<&str, AccessError> {
    let name = name.trim();
    if [COMMAND_LINE, NOT_SIGNED_IN].contains(&look_of_name(name).as_str()) {
        return Err(AccessError::Refused(format!("the trail uses {name:?} for others: choose another name")));
    }
    if look_of_name(name).split_once(char::is_whitespace).is_some_and(|(first, _)| first == "token") {
        return Err(AccessError::Refused(format!("the trail calls tokens \"token NAME\": choose another name than {name:?}")));
    }
    let length = name.chars().count();
    if (1..=MAX_NAME_CHARS).contains(&length) && !name.chars().any(|c| c.is_control() || deceives(c)) {
        return Ok(name);
    }
    Err(AccessError::Refused(format!("a name has 1 to {MAX_NAME_CHARS} characters, none of them a control or invisible character")))
}

/// Someone who acts through a page.
fn by(actor: &str, request_id: Option<&str>) -> By {
    By { actor: actor.to_owned(), request_id: request_id.map(str::to_owned) }
}

fn user_subject(name: &str) -> String {
    format!("user {name}")
}

/// A token in the trail, as who acts and as what is acted on.
fn token_subject(name: &str) -> String {
    format!("token {name}")
}

/// Whether a new password will do.
///
/// # Errors
/// It is too short or too long; the sentence says what would do.
pub fn check_password(password: &str) -> Result<(), AccessError> {
    if password.chars().count() < MIN_PASSWORD_CHARS {
        return Err(AccessError::Refused(format!("the password is too short: use {MIN_PASSWORD_CHARS} characters or more")));
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(AccessError::Refused(format!("the password is too long: use at most {MAX_PASSWORD_BYTES} bytes")));
    }
    Ok(())
}

fn no_such_user(name: &str) -> AccessError {
    AccessError::Refused(format!("there is no user {name:?}: `lazaret user list` shows them"))
}

fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// 256 random bits as text that fits a URL, a cookie and a header.
fn random_text() -> Result<String, AccessError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| AccessError::Machine(format!("the system gives no random bytes: {error}")))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nobody_costs_what_everybodys_costs() {
        let nobody = PasswordHash::new(NOBODYS_HASH).expect("a PHC string");
        let real = argon2().hash_password(b"correct horse battery").expect("hashes");
        assert_eq!(nobody.params.to_string(), real.params.to_string());
        assert_eq!(nobody.algorithm, real.algorithm);
        assert!(argon2().verify_password(b"", &nobody).is_err());
    }

    #[test]
    fn random_texts_differ_and_fit_a_url() {
        let (a, b) = (random_text().unwrap(), random_text().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.len(), 43);
        assert!(a.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    }

    #[test]
    fn names_and_passwords_that_do_not_do_are_refused_with_a_reason() {
        for bad in [
            "",
            "   ",
            "Command Line",
            "not signed in",
            "token ana",
            "Token\u{2003}ana",
            "\u{ff34}oken ana",
            "a\u{7}b",
            "an\u{200b}a",
            "\u{202e}ana",
            &"x".repeat(65),
        ] {
            assert!(usable_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(usable_name(" ana ").unwrap(), "ana");
        assert_eq!(usable_name("tokens r us").unwrap(), "tokens r us");
        assert!(check_password("elevenchars").unwrap_err().to_string().contains("12 characters"));
        assert!(check_password("zwölf Zeichen").is_ok());
        assert!(check_password(&"x".repeat(2_000)).is_err());
    }
}
