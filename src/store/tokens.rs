//! API tokens: only SHA-256 of the token is stored.

use super::sql_pieces::text;
use super::users::folded_name;
use super::{Store, StoreError, Tx};
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

#[derive(sqlx::FromRow)]
struct RawToken {
    id: i64,
    name: String,
    role: String,
    owners: String,
    created_at_ms: i64,
    expires_at_ms: Option<i64>,
    revoked_at_ms: Option<i64>,
}

impl TryFrom<RawToken> for ApiToken {
    type Error = StoreError;

    fn try_from(raw: RawToken) -> Result<ApiToken, StoreError> {
        Ok(ApiToken {
            role: raw.role.parse().map_err(|_| StoreError::unreadable("role", &raw.role))?,
            owners: OwnerScope::from_text(&raw.owners),
            id: raw.id,
            name: raw.name,
            created_at_ms: raw.created_at_ms,
            expires_at_ms: raw.expires_at_ms,
            revoked_at_ms: raw.revoked_at_ms,
        })
    }
}

/// Adds a token. None: a token of that name (letter case aside) or with that secret exists and is not revoked.
pub async fn add(
    tx: &mut Tx,
    name: &str,
    hash: &[u8],
    role: Role,
    owners: &OwnerScope,
    now_ms: i64,
    expires_at_ms: Option<i64>,
) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "INSERT INTO tokens (name, name_folded, token_hash, role, owners, created_at_ms, expires_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING id";
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(text(name)).bind(folded_name(name)).bind(hash).bind(role.as_str());
        let owners = owners.to_text();
        query.bind(text(&owners)).bind(now_ms).bind(expires_at_ms).fetch_optional(&mut *connection).await?
    })
}

/// Ends a token. Its name as it is stored; None: no such live token.
pub async fn revoke(tx: &mut Tx, name: &str, now_ms: i64) -> Result<Option<String>, StoreError> {
    const SQL: &str = "UPDATE tokens SET revoked_at_ms = $2 WHERE name_folded = $1 AND revoked_at_ms IS NULL RETURNING name";
    in_tx!(tx, |connection| {
        sqlx::query_scalar::<Db, String>(SQL).bind(folded_name(name)).bind(now_ms).fetch_optional(&mut *connection).await?
    })
}

impl Store {
    /// All tokens ever made, by name; of one name the newest first.
    pub async fn tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        const SQL: &str =
            "SELECT id, name, role, owners, created_at_ms, expires_at_ms, revoked_at_ms FROM tokens ORDER BY name_folded, id DESC";
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, RawToken>(SQL).fetch_all(pool).await?;
            rows.into_iter().map(ApiToken::try_from).collect::<Result<Vec<_>, StoreError>>()?
        })
    }

    /// The token if it is neither revoked nor expired.
    pub async fn token_by_hash(&self, hash: &[u8], now_ms: i64) -> Result<Option<ApiToken>, StoreError> {
        const SQL: &str = "SELECT id, name, role, owners, created_at_ms, expires_at_ms, revoked_at_ms FROM tokens
             WHERE token_hash = $1 AND revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > $2)";
        read!(self, |pool| {
            let row = sqlx::query_as::<Db, RawToken>(SQL).bind(hash).bind(now_ms).fetch_optional(pool).await?;
            row.map(ApiToken::try_from).transpose()?
        })
    }
}
