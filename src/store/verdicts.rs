//! Verdicts: the evidence of checks on messages.

use super::{Store, StoreError, Tx};
use crate::domain::verdict::{Checked, Decision};

/// When a check was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Preflight,
    /// Right before sending.
    Sending,
    /// Before something in doubt is sent again.
    InDoubt,
}

impl Phase {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Preflight => "preflight",
            Phase::Sending => "sending",
            Phase::InDoubt => "in_doubt",
        }
    }
}

/// A verdict as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Verdict {
    pub id: i64,
    pub message_id: i64,
    pub batch_id: i64,
    pub at_ms: i64,
    pub phase: String,
    pub schema: String,
    pub idempotency: String,
    pub decision: String,
    pub schema_note: Option<String>,
    pub asked: Option<String>,
    pub answered: Option<String>,
    /// JSON list of [group, verdict].
    pub others: Option<String>,
}

/// Stores the evidence of a chunk, one statement.
///
/// # Errors
/// The database could not be asked.
pub async fn append(_tx: &mut Tx, _batch_id: i64, _phase: Phase, _checked: &[(Checked, Decision)]) -> Result<(), StoreError> {
    todo!()
}

impl Store {
    /// All verdicts on a message, newest first.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn verdicts(&self, message_id: i64) -> Result<Vec<Verdict>, StoreError> {
        const SQL: &str =
            "SELECT id, message_id, batch_id, at_ms, phase, schema, idempotency, decision, schema_note, asked, answered, others
            FROM verdicts WHERE message_id = $1 ORDER BY id DESC";
        read!(self, |pool| { sqlx::query_as::<Db, Verdict>(SQL).bind(message_id).fetch_all(pool).await? })
    }
}
