//! What the newest open messages of a DLQ have in common: their keys, tenants and header conventions.

use super::sql_pieces::Dialect as _;
use super::{Store, StoreError};
use crate::domain::message::MessageState;

/// Of longer keys only the beginning is read; they are told apart by their hash.
pub const KEY_READ: i64 = 1_024;

/// What is read of one open message.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct OpenKey {
    /// None: the record has a null key, or one that must not be shown.
    pub key_hash: Option<i64>,
    /// The first [`KEY_READ`] bytes, and one more where there are more.
    pub key: Option<Vec<u8>>,
    pub tenant: Option<String>,
    pub dialect: String,
}

impl Store {
    /// Keys, tenants and dialects of the newest `limit` open messages of a DLQ, in no order.
    pub async fn newest_open_keys(&self, dlq_id: i64, limit: i64) -> Result<Vec<OpenKey>, StoreError> {
        read!(self, |pool| {
            let mut query = sqlx::query_as::<Db, OpenKey>(Db::NEWEST_OPEN_KEYS).bind(dlq_id).bind(limit).bind(KEY_READ + 1);
            for state in MessageState::ALL.into_iter().filter(|state| state.is_open()) {
                query = query.bind(state.as_str());
            }
            query.fetch_all(pool).await?
        })
    }

    /// The database's plan for [`Store::newest_open_keys`]. For the test that holds it to its index.
    pub async fn explain_newest_open_keys(&self, dlq_id: i64, limit: i64) -> Result<String, StoreError> {
        let lines = read!(self, |pool| {
            let mut query = sqlx::query(Db::EXPLAIN_NEWEST_OPEN_KEYS).bind(dlq_id).bind(limit).bind(KEY_READ + 1);
            for state in MessageState::ALL.into_iter().filter(|state| state.is_open()) {
                query = query.bind(state.as_str());
            }
            let rows = query.fetch_all(pool).await?;
            rows.iter().map(|row| sqlx::Row::try_get::<String, _>(row, Db::EXPLAIN_COLUMN)).collect::<Result<Vec<_>, _>>()?
        })?;
        Ok(lines.join("\n"))
    }
}
