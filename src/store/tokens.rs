//! API tokens: only SHA-256 of the token is stored.

use super::{Store, StoreError};
use crate::domain::access::{OwnerScope, Role};

/// An API token without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    pub id: i64,
    pub name: String,
    pub role: Role,
    pub owners: OwnerScope,
    pub created_at_ms: i64,
    pub expires_at_ms: Option<i64>,
    pub revoked_at_ms: Option<i64>,
}

impl Store {
    /// None: a token of that name exists and is not revoked.
    pub async fn add_token(
        &self,
        _name: &str,
        _hash: &[u8],
        _role: Role,
        _owners: &OwnerScope,
        _now_ms: i64,
        _expires_at_ms: Option<i64>,
    ) -> Result<Option<i64>, StoreError> {
        todo!()
    }
    pub async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        todo!()
    }
    /// The token if it is neither revoked nor expired.
    pub async fn token_by_hash(&self, _hash: &[u8], _now_ms: i64) -> Result<Option<ApiToken>, StoreError> {
        todo!()
    }
    /// False: no such live token.
    pub async fn revoke_token(&self, _name: &str, _now_ms: i64) -> Result<bool, StoreError> {
        todo!()
    }
}
