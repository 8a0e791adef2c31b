//! Alert rules, as people wrote them.

use super::sql_pieces::text;
use super::{Store, StoreError, Tx};
use crate::domain::access::look_of_name;
use crate::domain::alert::Terms;

/// A rule as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRule {
    pub id: i64,
    pub created_at_ms: i64,
    pub changed_at_ms: i64,
    /// Raised by each change.
    pub version: i64,
    /// Switched off: nothing fires by it.
    pub disabled: bool,
    /// Who changed it last.
    pub changed_by: String,
    pub terms: Terms,
}

impl StoredRule {
    /// The version that a rule begins with.
    pub const FIRST_VERSION: i64 = 1;
}

macro_rules! select_rules {
    ($rest:literal) => {
        concat!("SELECT id, created_at_ms, changed_at_ms, version, disabled, changed_by, terms FROM rules ", $rest)
    };
}

#[derive(sqlx::FromRow)]
struct RawRule {
    id: i64,
    created_at_ms: i64,
    changed_at_ms: i64,
    version: i64,
    disabled: bool,
    changed_by: String,
    terms: String,
}

impl TryFrom<RawRule> for StoredRule {
    type Error = StoreError;

    fn try_from(raw: RawRule) -> Result<StoredRule, StoreError> {
        Ok(StoredRule {
            id: raw.id,
            created_at_ms: raw.created_at_ms,
            changed_at_ms: raw.changed_at_ms,
            version: raw.version,
            disabled: raw.disabled,
            changed_by: raw.changed_by,
            terms: serde_json::from_str(&raw.terms).map_err(|_| StoreError::unreadable("terms of a rule", &raw.terms))?,
        })
    }
}

fn stored(terms: &Terms) -> String {
    serde_json::to_string(terms).expect("plain structs of numbers and texts have a JSON form")
}

/// Stores a rule and returns its id. None: there is one of that name.
///
/// # Errors
/// The database could not be asked.
pub async fn insert(tx: &mut Tx, terms: &Terms, by: &str, now_ms: i64) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "INSERT INTO rules (created_at_ms, changed_at_ms, version, disabled, name, name_folded, changed_by, terms)
         VALUES ($1, $1, 1, $2, $3, $4, $5, $6) ON CONFLICT (name_folded) DO NOTHING RETURNING id";
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(SQL).bind(now_ms).bind(false).bind(text(&terms.name));
        let query = query.bind(text(&look_of_name(&terms.name)).into_owned()).bind(text(by)).bind(text(&stored(terms)).into_owned());
        query.fetch_optional(&mut *connection).await?
    })
}

/// Replaces the terms of a rule that is still of this version. Whether it was.
///
/// # Errors
/// The database could not be asked, or another rule has that name ([`named`] tells before).
pub async fn change(tx: &mut Tx, id: i64, version: i64, terms: &Terms, by: &str, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE rules SET version = version + 1, changed_at_ms = $3, name = $4, name_folded = $5, changed_by = $6, terms = $7
         WHERE id = $1 AND version = $2";
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(now_ms).bind(text(&terms.name));
        let query = query.bind(text(&look_of_name(&terms.name)).into_owned()).bind(text(by)).bind(text(&stored(terms)).into_owned());
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Switches a rule that is still of this version off or on. Whether it was of that version.
///
/// # Errors
/// The database could not be asked.
pub async fn set_disabled(tx: &mut Tx, id: i64, version: i64, disabled: bool, by: &str, now_ms: i64) -> Result<bool, StoreError> {
    const SQL: &str =
        "UPDATE rules SET version = version + 1, changed_at_ms = $3, disabled = $4, changed_by = $5 WHERE id = $1 AND version = $2";
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(SQL).bind(id).bind(version).bind(now_ms).bind(disabled).bind(text(by));
        query.execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// The id of the rule whose name looks like this one.
///
/// # Errors
/// The database could not be asked.
pub async fn named(tx: &mut Tx, name: &str) -> Result<Option<i64>, StoreError> {
    const SQL: &str = "SELECT id FROM rules WHERE name_folded = $1";
    in_tx!(tx, |connection| {
        sqlx::query_scalar::<Db, i64>(SQL).bind(text(&look_of_name(name)).into_owned()).fetch_optional(&mut *connection).await?
    })
}

impl Store {
    /// All rules, switched off or not, in the order in which they were made.
    ///
    /// # Errors
    /// The database could not be asked, or a row holds something no version wrote.
    pub async fn rules(&self) -> Result<Vec<StoredRule>, StoreError> {
        const SQL: &str = select_rules!("ORDER BY id");
        let rows: Vec<RawRule> = read!(self, |pool| { sqlx::query_as::<Db, RawRule>(SQL).fetch_all(pool).await? })?;
        rows.into_iter().map(StoredRule::try_from).collect()
    }

    /// One rule; None: there is none of that id.
    ///
    /// # Errors
    /// As [`Store::rules`].
    pub async fn rule(&self, id: i64) -> Result<Option<StoredRule>, StoreError> {
        const SQL: &str = select_rules!("WHERE id = $1");
        let row: Option<RawRule> = read!(self, |pool| { sqlx::query_as::<Db, RawRule>(SQL).bind(id).fetch_optional(pool).await? })?;
        row.map(StoredRule::try_from).transpose()
    }

    /// Whether any rule is switched on.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn any_rule(&self) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT id FROM rules WHERE disabled = $1 LIMIT 1";
        read!(self, |pool| { sqlx::query_scalar::<Db, i64>(SQL).bind(false).fetch_optional(pool).await?.is_some() })
    }

    /// The version of each rule, by id: what changed shows by it.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn rule_versions(&self) -> Result<Vec<(i64, i64)>, StoreError> {
        const SQL: &str = "SELECT id, version FROM rules ORDER BY id";
        read!(self, |pool| { sqlx::query_as::<Db, (i64, i64)>(SQL).fetch_all(pool).await? })
    }
}
