//! Channels: where people are told. The secret of each is sealed before it comes here and is given out sealed; what may be shown of it stands beside it.

use super::sql_pieces::{optional_text, text};
use super::users::folded_name;
use super::{Store, StoreError, Tx};
use crate::domain::access::OwnerScope;
use crate::domain::delivery::ChannelKind;

/// A channel as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub id: i64,
    /// What its secret is sealed for.
    pub uid: String,
    pub kind: ChannelKind,
    pub name: String,
    /// Whose DLQs it is told of.
    pub owners: OwnerScope,
    /// Host of its URL.
    pub host: String,
    /// Last characters of its key.
    pub hint: Option<String>,
    pub disabled: bool,
    pub version: i64,
    pub created_at_ms: i64,
    pub created_by: String,
    pub changed_at_ms: i64,
    pub changed_by: String,
    /// Nothing goes before.
    pub not_before_ms: i64,
    /// Attempts in a row that failed in a way that may pass.
    pub failures: i64,
}

/// A secret on its way into the table, with what may be shown of it.
#[derive(Debug, Clone)]
pub struct SealedSecret {
    pub sealed: Vec<u8>,
    pub host: String,
    pub hint: Option<String>,
}

/// A channel to be stored.
#[derive(Debug, Clone)]
pub struct NewChannel<'a> {
    pub uid: &'a str,
    pub kind: ChannelKind,
    pub name: &'a str,
    pub owners: &'a OwnerScope,
    pub secret: &'a SealedSecret,
    pub by: &'a str,
    pub now_ms: i64,
}

/// What a person changes. What is None stays.
#[derive(Debug, Clone, Default)]
pub struct ChannelChange<'a> {
    pub name: Option<&'a str>,
    pub owners: Option<&'a OwnerScope>,
    pub secret: Option<&'a SealedSecret>,
    pub disabled: Option<bool>,
}

#[derive(sqlx::FromRow)]
struct RawChannel {
    id: i64,
    uid: String,
    kind: String,
    name: String,
    owners: String,
    host: String,
    hint: Option<String>,
    disabled: bool,
    version: i64,
    created_at_ms: i64,
    created_by: String,
    changed_at_ms: i64,
    changed_by: String,
    not_before_ms: i64,
    failures: i64,
}

impl TryFrom<RawChannel> for Channel {
    type Error = StoreError;

    fn try_from(raw: RawChannel) -> Result<Channel, StoreError> {
        Ok(Channel {
            kind: kind_of(&raw.kind)?,
            owners: OwnerScope::from_text(&raw.owners),
            id: raw.id,
            uid: raw.uid,
            name: raw.name,
            host: raw.host,
            hint: raw.hint,
            disabled: raw.disabled,
            version: raw.version,
            created_at_ms: raw.created_at_ms,
            created_by: raw.created_by,
            changed_at_ms: raw.changed_at_ms,
            changed_by: raw.changed_by,
            not_before_ms: raw.not_before_ms,
            failures: raw.failures,
        })
    }
}

pub(super) fn kind_of(word: &str) -> Result<ChannelKind, StoreError> {
    word.parse().map_err(|()| StoreError::unreadable("kind of a channel", word))
}

macro_rules! select_channels {
    ($rest:literal) => {
        concat!(
            "SELECT id, uid, kind, name, owners, host, hint, disabled, version, created_at_ms, created_by, changed_at_ms, changed_by, not_before_ms, failures
             FROM channels WHERE removed_at_ms IS NULL ",
            $rest
        )
    };
}

/// Stores a channel and returns its id. None: another one has the name.
///
/// # Errors
/// The database could not be asked.
pub async fn add(tx: &mut Tx, new: &NewChannel<'_>) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "INSERT INTO channels (uid, kind, name, name_folded, owners, host, hint, sealed, created_by, changed_by, created_at_ms, changed_at_ms,
            version)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $10, 1) ON CONFLICT DO NOTHING RETURNING id";
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(new.uid).bind(new.kind.as_str()).bind(text(new.name));
        let query = query.bind(folded_name(new.name)).bind(text(&new.owners.to_text()).into_owned()).bind(text(&new.secret.host));
        let query = query.bind(optional_text(new.secret.hint.as_deref())).bind(new.secret.sealed.as_slice()).bind(text(new.by));
        query.bind(new.now_ms).fetch_optional(&mut *connection).await?
    })
}

/// Whether another channel than `id` has this name.
///
/// # Errors
/// The database could not be asked.
pub async fn is_taken(tx: &mut Tx, id: i64, name: &str) -> Result<bool, StoreError> {
    const SQL: &str = "SELECT id FROM channels WHERE name_folded = $1 AND id <> $2 AND removed_at_ms IS NULL";
    let found = in_tx!(tx, |connection| {
        sqlx::query_scalar::<Db, i64>(SQL).bind(folded_name(name)).bind(id).fetch_optional(&mut *connection).await?
    })?;
    Ok(found.is_some())
}

/// Changes a channel that is still of this version. A new secret forgets what the old one's service asked for. Whether it was so.
///
/// # Errors
/// The database could not be asked, or another channel has the name.
pub async fn change(tx: &mut Tx, id: i64, version: i64, change: &ChannelChange<'_>, by: &str, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE channels SET version = version + 1, changed_by = $3, changed_at_ms = $4, name = COALESCE($5, name),
            name_folded = COALESCE($6, name_folded), owners = COALESCE($7, owners), sealed = COALESCE($8, sealed), host = COALESCE($9, host),
            hint = CASE WHEN $9 IS NULL THEN hint ELSE $10 END, disabled = COALESCE($11, disabled),
            not_before_ms = CASE WHEN $9 IS NULL THEN not_before_ms ELSE 0 END, failures = CASE WHEN $9 IS NULL THEN failures ELSE 0 END
         WHERE id = $1 AND version = $2 AND removed_at_ms IS NULL";
    let (secret, owners) = (change.secret, change.owners.map(OwnerScope::to_text));
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(text(by)).bind(now_ms).bind(optional_text(change.name));
        let query = query.bind(change.name.map(folded_name)).bind(optional_text(owners.as_deref()));
        let query = query.bind(secret.map(|secret| secret.sealed.as_slice())).bind(secret.map(|secret| text(&secret.host)));
        let query = query.bind(secret.and_then(|secret| optional_text(secret.hint.as_deref()))).bind(change.disabled);
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Removes a channel that is still of this version: its log stays, its secret goes. Whether it was so.
///
/// # Errors
/// The database could not be asked.
pub async fn remove(tx: &mut Tx, id: i64, version: i64, by: &str, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str =
        "UPDATE channels SET version = version + 1, changed_by = $3, changed_at_ms = $4, removed_at_ms = $4, sealed = NULL, hint = NULL
         WHERE id = $1 AND version = $2 AND removed_at_ms IS NULL";
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(text(by)).bind(now_ms);
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Ids of the channels that are told of DLQs of this owner, in use and in the order of their ids.
///
/// # Errors
/// The database could not be asked.
pub async fn told_of(tx: &mut Tx, owner: Option<&str>) -> Result<Vec<i64>, StoreError> {
    const SQL: &str = "SELECT id, owners FROM channels WHERE removed_at_ms IS NULL AND NOT disabled ORDER BY id";
    let found: Vec<(i64, String)> =
        in_tx!(tx, |connection| { sqlx::query_as::<Db, (i64, String)>(SQL).fetch_all(&mut *connection).await? })?;
    Ok(found.into_iter().filter(|(_, owners)| OwnerScope::from_text(owners).covers(owner)).map(|(id, _)| id).collect())
}

impl Store {
    /// All channels, in the order of their names.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn channels(&self) -> Result<Vec<Channel>, StoreError> {
        const SQL: &str = select_channels!("ORDER BY name_folded, id");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawChannel>(SQL).fetch_all(pool).await? })?;
        raw.into_iter().map(Channel::try_from).collect()
    }

    /// One channel; None: there is none of that id, or it was removed.
    ///
    /// # Errors
    /// As [`Store::channels`].
    pub async fn channel(&self, id: i64) -> Result<Option<Channel>, StoreError> {
        const SQL: &str = select_channels!("AND id = $1");
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawChannel>(SQL).bind(id).fetch_optional(pool).await? })?;
        raw.map(Channel::try_from).transpose()
    }

    /// The sealed secret of a channel.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn sealed_secret(&self, id: i64) -> Result<Option<Vec<u8>>, StoreError> {
        const SQL: &str = "SELECT sealed FROM channels WHERE id = $1 AND removed_at_ms IS NULL";
        let found = read!(self, |pool| { sqlx::query_scalar::<Db, Option<Vec<u8>>>(SQL).bind(id).fetch_optional(pool).await? })?;
        Ok(found.flatten())
    }
}
