//! The trail: decisions as a chain of hashes, written in the transaction of what was decided.

use super::sql_pieces::text;
use super::{StoreError, Tx};
use crate::domain::audit::{Event, chained};

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
