//! Local users, their sessions and one-time sign-in links. Only hashes are stored.

use super::{Store, StoreError};
use crate::domain::access::{OwnerScope, Role};

/// A local user. Names are unique without regard to letter case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: i64,
    pub name: String,
    pub role: Role,
    pub owners: OwnerScope,
    pub disabled: bool,
    pub created_at_ms: i64,
}

impl Store {
    /// None: the name is taken (letter case aside). `password_hash` is an argon2id PHC string.
    pub async fn add_user(
        &self,
        _name: &str,
        _password_hash: &str,
        _role: Role,
        _owners: &OwnerScope,
        _now_ms: i64,
    ) -> Result<Option<i64>, StoreError> {
        todo!()
    }
    pub async fn users(&self) -> Result<Vec<User>, StoreError> {
        todo!()
    }
    /// The user and the password hash.
    pub async fn user_by_name(&self, _name: &str) -> Result<Option<(User, String)>, StoreError> {
        todo!()
    }
    /// Replaces the password and ends all sessions of the user. False: no such user.
    pub async fn set_password(&self, _name: &str, _password_hash: &str) -> Result<bool, StoreError> {
        todo!()
    }
    /// Disables and ends all sessions. False: no such user.
    pub async fn disable_user(&self, _name: &str) -> Result<bool, StoreError> {
        todo!()
    }
    /// `token_hash` is SHA-256 of the cookie's value.
    pub async fn add_session(&self, _token_hash: &[u8], _user_id: i64, _now_ms: i64, _expires_at_ms: i64) -> Result<(), StoreError> {
        todo!()
    }
    /// The session's user, if it has not expired and the user is not disabled.
    pub async fn session_user(&self, _token_hash: &[u8], _now_ms: i64) -> Result<Option<User>, StoreError> {
        todo!()
    }
    pub async fn end_session(&self, _token_hash: &[u8]) -> Result<(), StoreError> {
        todo!()
    }
    /// Removes expired sessions.
    pub async fn sweep_sessions(&self, _now_ms: i64) -> Result<u64, StoreError> {
        todo!()
    }
}
