//! Sign-in, sessions and API tokens.

use crate::domain::access::{OwnerScope, Principal, Role};
use crate::domain::clock::Clock;
use crate::store::{Store, StoreError};

/// Why access was refused or could not be managed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was typed does not do; the sentence says what would.
    #[error("{0}")]
    Refused(String),
}

/// Local users, sessions and tokens over the store.
#[derive(Debug, Clone)]
pub struct Access {
    pub store: Store,
    pub clock: Clock,
    pub session_hours: i64,
}

impl Access {
    /// Makes a user. The password must have 12 characters or more; the name 1 to 64 without control characters.
    pub async fn add_user(&self, _name: &str, _password: &str, _role: Role, _owners: OwnerScope) -> Result<i64, AccessError> {
        todo!()
    }
    pub async fn set_password(&self, _name: &str, _password: &str) -> Result<(), AccessError> {
        todo!()
    }
    /// Checks name and password (in equal time whether the name exists or not) and starts a session. None: wrong. Some: the cookie's value.
    pub async fn sign_in(&self, _name: &str, _password: &str) -> Result<Option<String>, AccessError> {
        todo!()
    }
    /// Who a session cookie belongs to, if it still holds.
    pub async fn session(&self, _cookie: &str) -> Result<Option<Principal>, AccessError> {
        todo!()
    }
    pub async fn sign_out(&self, _cookie: &str) -> Result<(), AccessError> {
        todo!()
    }
    /// Makes an API token and returns its secret: the only time it is seen. `secret` lets the demo choose it.
    pub async fn create_token(
        &self,
        _name: &str,
        _role: Role,
        _owners: OwnerScope,
        _expires_at_ms: Option<i64>,
        _secret: Option<&str>,
    ) -> Result<String, AccessError> {
        todo!()
    }
    /// Who a bearer token belongs to.
    pub async fn token(&self, _secret: &str) -> Result<Option<Principal>, AccessError> {
        todo!()
    }
}
