//! Verdicts: the evidence of checks on messages.

use super::sql_pieces::{Dialect as _, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::record::display_text_within;
use crate::domain::verdict::{Checked, Decision};

/// Bytes kept of a note, a key or an answer: keys come out of payloads and may be of any size.
const TEXT_LIMIT: usize = 4 * 1024;

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

/// A verdict on its way into the table.
#[derive(serde::Serialize)]
struct NewVerdict {
    message_id: i64,
    batch_id: i64,
    at_ms: i64,
    phase: &'static str,
    schema: &'static str,
    idempotency: &'static str,
    decision: &'static str,
    schema_note: Option<String>,
    asked: Option<String>,
    answered: Option<String>,
    others: Option<String>,
}

impl NewVerdict {
    fn of(batch_id: i64, phase: Phase, checked: &Checked, decision: Decision) -> NewVerdict {
        let kept = |text: &Option<String>| text.as_ref().map(|text| display_text_within(text.as_bytes(), TEXT_LIMIT));
        let others: Vec<(&str, &str)> = checked.others.iter().map(|(group, verdict)| (group.as_str(), verdict.as_str())).collect();
        NewVerdict {
            message_id: checked.message_id,
            batch_id,
            at_ms: checked.at_ms,
            phase: phase.as_str(),
            schema: checked.schema.as_str(),
            idempotency: checked.idempotency.as_str(),
            decision: decision.as_str(),
            schema_note: kept(&checked.schema_note),
            asked: kept(&checked.asked),
            answered: kept(&checked.answered),
            others: Some(rows(&others)).filter(|_| !others.is_empty()).map(|list| text(&list).into_owned()),
        }
    }
}

/// Stores the evidence of a chunk, one statement.
///
/// # Errors
/// The database could not be asked.
pub async fn append(tx: &mut Tx, batch_id: i64, phase: Phase, checked: &[(Checked, Decision)]) -> Result<(), StoreError> {
    if checked.is_empty() {
        return Ok(());
    }
    let list = rows(&checked.iter().map(|(checked, decision)| NewVerdict::of(batch_id, phase, checked, *decision)).collect::<Vec<_>>());
    in_tx!(tx, |connection| {
        sqlx::query(Db::ADD_VERDICTS).bind(&list).execute(&mut *connection).await?;
    })
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
