//! Local users, their sessions and one-time sign-in links. Only hashes are stored.

use super::sql_pieces::text;
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

/// A name as it is compared: without regard to letter case, in any script.
pub(super) fn folded_name(name: &str) -> String {
    text(name).to_lowercase()
}

#[derive(sqlx::FromRow)]
struct RawUser {
    id: i64,
    name: String,
    role: String,
    owners: String,
    disabled: bool,
    created_at_ms: i64,
    password_hash: String,
}

impl RawUser {
    fn split(self) -> Result<(User, String), StoreError> {
        let user = User {
            role: self.role.parse().map_err(|_| StoreError::unreadable("role", &self.role))?,
            owners: OwnerScope::from_text(&self.owners),
            id: self.id,
            name: self.name,
            disabled: self.disabled,
            created_at_ms: self.created_at_ms,
        };
        Ok((user, self.password_hash))
    }

    fn user(self) -> Result<User, StoreError> {
        self.split().map(|(user, _)| user)
    }
}

macro_rules! select_users {
    ($rest:literal) => {
        concat!("SELECT u.id, u.name, u.role, u.owners, u.disabled, u.created_at_ms, u.password_hash FROM users u ", $rest)
    };
}

/// What came of disabling a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disabling {
    Done,
    NoSuchUser,
    /// Nothing was done: nobody else who is active is an admin.
    LastAdmin,
}

const END_SESSIONS: &str = "DELETE FROM sessions WHERE user_id = $1";

impl Store {
    /// None: the name is taken (letter case aside). `password_hash` is an argon2id PHC string.
    pub async fn add_user(
        &self,
        name: &str,
        password_hash: &str,
        role: Role,
        owners: &OwnerScope,
        now_ms: i64,
    ) -> Result<Option<i64>, StoreError> {
        const SQL: &str = "INSERT INTO users (name, name_folded, password_hash, role, owners, disabled, created_at_ms)
             VALUES ($1, $2, $3, $4, $5, FALSE, $6) ON CONFLICT DO NOTHING RETURNING id";
        write_one!(self, |pool| {
            let query = sqlx::query_scalar::<Db, i64>(SQL).bind(text(name)).bind(folded_name(name)).bind(text(password_hash));
            let owners = owners.to_text();
            query.bind(role.as_str()).bind(text(&owners)).bind(now_ms).fetch_optional(pool).await?
        })
    }

    /// All users, disabled ones too, by name.
    pub async fn users(&self) -> Result<Vec<User>, StoreError> {
        const SQL: &str = select_users!("ORDER BY u.name_folded");
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, RawUser>(SQL).fetch_all(pool).await?;
            rows.into_iter().map(RawUser::user).collect::<Result<Vec<_>, StoreError>>()?
        })
    }

    /// The user and the password hash. Letter case of the name aside; also a disabled user: the caller looks.
    pub async fn user_by_name(&self, name: &str) -> Result<Option<(User, String)>, StoreError> {
        const SQL: &str = select_users!("WHERE u.name_folded = $1");
        read!(self, |pool| {
            let row = sqlx::query_as::<Db, RawUser>(SQL).bind(folded_name(name)).fetch_optional(pool).await?;
            row.map(RawUser::split).transpose()?
        })
    }

    /// Replaces the password and ends all sessions of the user. False: no such user.
    pub async fn set_password(&self, name: &str, password_hash: &str) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE users SET password_hash = $2 WHERE name_folded = $1 RETURNING id";
        transaction!(self, |tx| {
            let query = sqlx::query_scalar::<Db, i64>(SQL).bind(folded_name(name)).bind(text(password_hash));
            let user = query.fetch_optional(&mut *tx).await?;
            if let Some(id) = user {
                sqlx::query(END_SESSIONS).bind(id).execute(&mut *tx).await?;
            }
            user.is_some()
        })
    }

    /// Disables and ends all sessions, unless that would leave no active admin. A user who is disabled already may be disabled again.
    pub async fn disable_user(&self, name: &str) -> Result<Disabling, StoreError> {
        // Each admin's row is written, so that two who disable each other at once wait for one another.
        const LOCK: &str = "UPDATE users SET disabled = disabled WHERE role = 'admin'";
        const SQL: &str = "UPDATE users SET disabled = TRUE WHERE name_folded = $1 AND (role <> 'admin' OR disabled
             OR EXISTS (SELECT 1 FROM users o WHERE o.role = 'admin' AND NOT o.disabled AND o.name_folded <> $1)) RETURNING id";
        const THERE: &str = "SELECT id FROM users WHERE name_folded = $1";
        let name = folded_name(name);
        transaction!(self, |tx| {
            sqlx::query(LOCK).execute(&mut *tx).await?;
            let disabled = sqlx::query_scalar::<Db, i64>(SQL).bind(&name).fetch_optional(&mut *tx).await?;
            if let Some(id) = disabled {
                sqlx::query(END_SESSIONS).bind(id).execute(&mut *tx).await?;
                Disabling::Done
            } else if sqlx::query_scalar::<Db, i64>(THERE).bind(&name).fetch_optional(&mut *tx).await?.is_some() {
                Disabling::LastAdmin
            } else {
                Disabling::NoSuchUser
            }
        })
    }

    /// Lets a disabled user in again, with the password from before. False: no such user.
    pub async fn enable_user(&self, name: &str) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE users SET disabled = FALSE WHERE name_folded = $1";
        write_one!(self, |pool| { sqlx::query(SQL).bind(folded_name(name)).execute(pool).await?.rows_affected() > 0 })
    }

    /// `token_hash` is SHA-256 of the cookie's value.
    pub async fn add_session(&self, token_hash: &[u8], user_id: i64, now_ms: i64, expires_at_ms: i64) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO sessions (token_hash, user_id, created_at_ms, expires_at_ms) VALUES ($1, $2, $3, $4)";
        write_one!(self, |pool| {
            sqlx::query(SQL).bind(token_hash).bind(user_id).bind(now_ms).bind(expires_at_ms).execute(pool).await?;
        })
    }

    /// The session's user, if it has not expired and the user is not disabled.
    pub async fn session_user(&self, token_hash: &[u8], now_ms: i64) -> Result<Option<User>, StoreError> {
        const SQL: &str =
            select_users!("JOIN sessions s ON s.user_id = u.id WHERE s.token_hash = $1 AND s.expires_at_ms > $2 AND NOT u.disabled");
        read!(self, |pool| {
            let row = sqlx::query_as::<Db, RawUser>(SQL).bind(token_hash).bind(now_ms).fetch_optional(pool).await?;
            row.map(RawUser::user).transpose()?
        })
    }

    /// Ends one session, if it is there.
    pub async fn end_session(&self, token_hash: &[u8]) -> Result<(), StoreError> {
        write_one!(self, |pool| {
            sqlx::query("DELETE FROM sessions WHERE token_hash = $1").bind(token_hash).execute(pool).await?;
        })
    }

    /// Removes expired sessions.
    pub async fn sweep_sessions(&self, now_ms: i64) -> Result<u64, StoreError> {
        write_one!(self, |pool| {
            sqlx::query("DELETE FROM sessions WHERE expires_at_ms <= $1").bind(now_ms).execute(pool).await?.rows_affected()
        })
    }
}
