//! Local users, their sessions and one-time sign-in links. Only hashes are stored.

use super::sql_pieces::text;
use super::{Store, StoreError, Tx};
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disabling {
    /// The user's name as it is stored.
    Done(String),
    NoSuchUser,
    /// Nothing was done: nobody else who is active is an admin.
    LastAdmin,
}

const END_SESSIONS: &str = "DELETE FROM sessions WHERE user_id = $1";

/// Adds a user. None: the name is taken (letter case aside). `password_hash` is an argon2id PHC string.
pub async fn add(
    tx: &mut Tx,
    name: &str,
    password_hash: &str,
    role: Role,
    owners: &OwnerScope,
    now_ms: i64,
) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "INSERT INTO users (name, name_folded, password_hash, role, owners, disabled, created_at_ms)
         VALUES ($1, $2, $3, $4, $5, FALSE, $6) ON CONFLICT DO NOTHING RETURNING id";
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(text(name)).bind(folded_name(name)).bind(text(password_hash));
        let owners = owners.to_text();
        query.bind(role.as_str()).bind(text(&owners)).bind(now_ms).fetch_optional(&mut *connection).await?
    })
}

/// The names of all users, disabled ones too.
pub async fn names(tx: &mut Tx) -> Result<Vec<String>, StoreError> {
    in_tx!(tx, |connection| { sqlx::query_scalar::<Db, String>("SELECT name FROM users").fetch_all(&mut *connection).await? })
}

/// Replaces the password and ends all sessions of the user. The user's name as it is stored; None: no such user.
pub async fn set_password(tx: &mut Tx, name: &str, password_hash: &str) -> Result<Option<String>, StoreError> {
    const SQL: &str = "UPDATE users SET password_hash = $2 WHERE name_folded = $1 RETURNING id, name";
    in_tx!(tx, |connection| {
        let query = sqlx::query_as::<Db, (i64, String)>(SQL).bind(folded_name(name)).bind(text(password_hash));
        let user = query.fetch_optional(&mut *connection).await?;
        if let Some((id, _)) = &user {
            sqlx::query(END_SESSIONS).bind(id).execute(&mut *connection).await?;
        }
        user.map(|(_, name)| name)
    })
}

/// Disables and ends all sessions, unless that would leave no active admin. A user who is disabled already may be disabled again.
pub async fn disable(tx: &mut Tx, name: &str) -> Result<Disabling, StoreError> {
    // Each admin's row is written, so that two who disable each other at once wait for one another.
    const LOCK: &str = "UPDATE users SET disabled = disabled WHERE role = 'admin'";
    const SQL: &str = "UPDATE users SET disabled = TRUE WHERE name_folded = $1 AND (role <> 'admin' OR disabled
         OR EXISTS (SELECT 1 FROM users o WHERE o.role = 'admin' AND NOT o.disabled AND o.name_folded <> $1)) RETURNING id, name";
    const THERE: &str = "SELECT id FROM users WHERE name_folded = $1";
    let name = folded_name(name);
    in_tx!(tx, |connection| {
        sqlx::query(LOCK).execute(&mut *connection).await?;
        let disabled = sqlx::query_as::<Db, (i64, String)>(SQL).bind(&name).fetch_optional(&mut *connection).await?;
        if let Some((id, name)) = disabled {
            sqlx::query(END_SESSIONS).bind(id).execute(&mut *connection).await?;
            Disabling::Done(name)
        } else if sqlx::query_scalar::<Db, i64>(THERE).bind(&name).fetch_optional(&mut *connection).await?.is_some() {
            Disabling::LastAdmin
        } else {
            Disabling::NoSuchUser
        }
    })
}

/// Lets a disabled user in again, with the password from before. The user's name as it is stored; None: no such user.
pub async fn enable(tx: &mut Tx, name: &str) -> Result<Option<String>, StoreError> {
    const SQL: &str = "UPDATE users SET disabled = FALSE WHERE name_folded = $1 RETURNING name";
    in_tx!(tx, |connection| { sqlx::query_scalar::<Db, String>(SQL).bind(folded_name(name)).fetch_optional(&mut *connection).await? })
}

/// Starts a session of a user whose password was verified against this hash, unless it was changed or the user disabled since: then false.
/// `token_hash` is SHA-256 of the cookie's value.
pub async fn add_session(
    tx: &mut Tx,
    token_hash: &[u8],
    (user_id, password_hash): (i64, &str),
    now_ms: i64,
    expires_at_ms: i64,
) -> Result<bool, StoreError> {
    // The user's row is written, so that who changes the password at this moment waits and then ends this session too.
    const STILL: &str = "UPDATE users SET password_hash = password_hash WHERE id = $1 AND password_hash = $2 AND NOT disabled";
    const SQL: &str = "INSERT INTO sessions (token_hash, user_id, created_at_ms, expires_at_ms) VALUES ($1, $2, $3, $4)";
    in_tx!(tx, |connection| {
        let still = sqlx::query(STILL).bind(user_id).bind(text(password_hash)).execute(&mut *connection).await?.rows_affected() > 0;
        if still {
            let query = sqlx::query(SQL).bind(token_hash).bind(user_id).bind(now_ms).bind(expires_at_ms);
            query.execute(&mut *connection).await?;
        }
        still
    })
}

/// Ends one session. The name of its user; None: it was not there, or had ended by itself.
pub async fn end_session(tx: &mut Tx, token_hash: &[u8], now_ms: i64) -> Result<Option<String>, StoreError> {
    const WHOSE: &str = "SELECT u.name FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.token_hash = $1 AND s.expires_at_ms > $2";
    const END: &str = "DELETE FROM sessions WHERE token_hash = $1";
    in_tx!(tx, |connection| {
        let name = sqlx::query_scalar::<Db, String>(WHOSE).bind(token_hash).bind(now_ms).fetch_optional(&mut *connection).await?;
        let ended = sqlx::query(END).bind(token_hash).execute(&mut *connection).await?.rows_affected() > 0;
        name.filter(|_| ended)
    })
}

impl Store {
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

    /// The session's user, if it has not expired and the user is not disabled.
    pub async fn session_user(&self, token_hash: &[u8], now_ms: i64) -> Result<Option<User>, StoreError> {
        const SQL: &str =
            select_users!("JOIN sessions s ON s.user_id = u.id WHERE s.token_hash = $1 AND s.expires_at_ms > $2 AND NOT u.disabled");
        read!(self, |pool| {
            let row = sqlx::query_as::<Db, RawUser>(SQL).bind(token_hash).bind(now_ms).fetch_optional(pool).await?;
            row.map(RawUser::user).transpose()?
        })
    }

    /// Removes expired sessions.
    pub async fn sweep_sessions(&self, now_ms: i64) -> Result<u64, StoreError> {
        write_one!(self, |pool| {
            sqlx::query("DELETE FROM sessions WHERE expires_at_ms <= $1").bind(now_ms).execute(pool).await?.rows_affected()
        })
    }
}
