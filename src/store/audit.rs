//! The trail: decisions as a chain of hashes, written in the transaction of what was decided.

use super::sql_pieces::{optional_text, text};
use super::{Store, StoreError, Tx};
use crate::domain::audit::{Action, AuditKey, Event, chained};

/// Takes the next number and gives the hash before it. It locks the head until the transaction ends, so [`append`] comes last in it.
const NEXT: &str = "UPDATE audit_head SET seq = seq + 1 WHERE id = 1 RETURNING seq, hash";
const ADD: &str = "INSERT INTO audit_events (seq, at_ms, actor, action, subject, event, hash) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const MOVE_HEAD: &str = "UPDATE audit_head SET hash = $1 WHERE id = 1";

/// Adds an event to the trail, as the last statement of its transaction. Returns its number.
///
/// # Errors
/// The database could not be asked, or the store was opened without an audit key ([`StoreError::NoAuditKey`]).
pub async fn append(tx: &mut Tx, event: &Event) -> Result<i64, StoreError> {
    let key = tx.audit_key.clone().ok_or(StoreError::NoAuditKey)?;
    let stored = event.text();
    in_tx!(tx, |connection| {
        let (seq, previous) = sqlx::query_as::<Db, (i64, Vec<u8>)>(NEXT).fetch_one(&mut *connection).await?;
        let hash = chained(&key, &previous, seq, &stored);
        let add = sqlx::query(ADD).bind(seq).bind(event.at_ms).bind(text(&event.actor)).bind(event.action.as_str());
        add.bind(text(&event.subject)).bind(&stored).bind(&hash).execute(&mut *connection).await?;
        sqlx::query(MOVE_HEAD).bind(&hash).execute(&mut *connection).await?;
        seq
    })
}

/// Which entries of the trail. What is None does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Exactly this name.
    pub actor: Option<String>,
    pub action: Option<Action>,
    /// Exactly this `kind id`.
    pub subject: Option<String>,
}

/// One entry as it is stored: `event` is what `hash` covers, the other columns repeat parts of it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Entry {
    pub seq: i64,
    pub at_ms: i64,
    pub actor: String,
    /// The word of an [`Action`], maybe of a later version.
    pub action: String,
    pub subject: String,
    pub event: String,
    pub hash: Vec<u8>,
}

/// `$narrowest` is what an index is walked by; the rest is looked at on the way.
macro_rules! select_events {
    ($narrowest:literal) => {
        concat!(
            "SELECT seq, at_ms, actor, action, subject, event, hash FROM audit_events WHERE ",
            $narrowest,
            " AND (CAST($1 AS TEXT) IS NULL OR actor = $1) AND (CAST($2 AS TEXT) IS NULL OR action = $2)
              AND (CAST($3 AS TEXT) IS NULL OR subject = $3) AND seq < $4 ORDER BY seq DESC LIMIT $5"
        )
    };
}

impl Store {
    /// Entries of the trail, newest first: those before the number `before_seq`, at most `limit`.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn events(&self, filter: &EventFilter, before_seq: Option<i64>, limit: i64) -> Result<Vec<Entry>, StoreError> {
        let sql = match filter {
            EventFilter { subject: Some(_), .. } => select_events!("subject = $3"),
            EventFilter { actor: Some(_), .. } => select_events!("actor = $1"),
            EventFilter { action: Some(_), .. } => select_events!("action = $2"),
            _ => select_events!("seq > 0"),
        };
        let action = filter.action.map(Action::as_str);
        read!(self, |pool| {
            let query = sqlx::query_as::<Db, Entry>(sql).bind(optional_text(filter.actor.as_deref())).bind(action);
            query.bind(optional_text(filter.subject.as_deref())).bind(before_seq.unwrap_or(i64::MAX)).bind(limit).fetch_all(pool).await?
        })
    }
}

/// Whether the trail has an entry.
pub async fn begun(store: &Store) -> Result<bool, StoreError> {
    Ok(!store.events(&EventFilter::default(), None, 1).await?.is_empty())
}

/// Whether the newest entry was made with this key; true where there is none.
pub async fn newest_fits(store: &Store, key: &AuditKey) -> Result<bool, StoreError> {
    let newest = store.events(&EventFilter::default(), None, 2).await?;
    let Some(entry) = newest.first() else { return Ok(true) };
    let previous = newest.get(1).map_or([0; 32].as_slice(), |entry| entry.hash.as_slice());
    Ok(chained(key, previous, entry.seq, &entry.event) == entry.hash)
}
