//! What people say of a failure group: its status, one row each, and their notes.

use std::collections::HashMap;

use super::sql_pieces::{Dialect as _, optional_text, rows, text};
use super::{Store, StoreError, Tx};
use crate::domain::group::{Decided, Decision, GroupStatus, Link, Ticket};
use crate::domain::record::{Header, unpack_headers};

/// A note on a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub id: i64,
    pub at_ms: i64,
    pub author: String,
    pub note: String,
}

/// Notes, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotePage {
    pub items: Vec<Note>,
    /// Pass as `before` for the following page; None on the last.
    pub next: Option<i64>,
}

/// A note to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewNote<'a> {
    pub group_id: i64,
    pub at_ms: i64,
    pub author: &'a str,
    /// Made with the form, so that the same form sent twice is one note.
    pub form_id: &'a str,
    pub note: &'a str,
}

/// How storing a note ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedNote {
    Added(i64),
    /// The same form came before, with the same note.
    Repeated,
    /// The same form came before with another note: this one is not stored.
    FormUsed,
}

/// The columns of `group_status`, all null where there is no row.
#[derive(sqlx::FromRow)]
pub(super) struct RawStatus {
    status: Option<String>,
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    owner: Option<String>,
    ticket: Option<String>,
    runbook: Option<String>,
    decided_by: Option<String>,
    decided_at_ms: Option<i64>,
    version: Option<i64>,
}

impl TryFrom<RawStatus> for GroupStatus {
    type Error = StoreError;

    fn try_from(raw: RawStatus) -> Result<GroupStatus, StoreError> {
        let Some(word) = raw.status else { return Ok(GroupStatus::default()) };
        let ticket = raw.ticket.as_deref().map(Ticket::parse).transpose().map_err(|_| StoreError::unreadable("ticket", &word))?;
        let decision = match (word.as_str(), raw.since_ms, raw.until_ms) {
            ("open", ..) => Decision::Open,
            ("known", ..) => Decision::Known { owner: raw.owner, ticket },
            ("fixed_since", Some(at_ms), _) => Decision::FixedSince { at_ms },
            ("ignored_until", _, Some(until_ms)) => Decision::IgnoredUntil { until_ms },
            _ => return Err(StoreError::unreadable("group status", &word)),
        };
        let runbook = raw.runbook.as_deref().map(Link::parse).transpose().map_err(|_| StoreError::unreadable("runbook", &word))?;
        let decided = raw.decided_by.zip(raw.decided_at_ms).map(|(by, at_ms)| Decided { by, at_ms });
        Ok(GroupStatus { decision, runbook, decided, version: raw.version.unwrap_or(0) })
    }
}

const STATUS: &str =
    "SELECT status, since_ms, until_ms, owner, ticket, runbook, decided_by, decided_at_ms, version FROM group_status WHERE group_id = $1";

/// The first decision about a group.
const FIRST: &str =
    "INSERT INTO group_status (group_id, version, status, since_ms, until_ms, owner, ticket, runbook, decided_by, decided_at_ms)
     VALUES ($1, $2 + 1, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (group_id) DO NOTHING";
/// A later one, if nobody decided in between.
const NEXT: &str =
    "UPDATE group_status SET version = version + 1, status = $3, since_ms = $4, until_ms = $5, owner = $6, ticket = $7, runbook = $8,
     decided_by = $9, decided_at_ms = $10 WHERE group_id = $1 AND version = $2";

const ADD_NOTE: &str = "INSERT INTO group_notes (group_id, at_ms, author, form_id, note) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (form_id) DO NOTHING RETURNING id";
const NOTE_OF_FORM: &str = "SELECT group_id, author, note FROM group_notes WHERE form_id = $1";
const NOTES: &str = "SELECT id, at_ms, author, note FROM group_notes WHERE group_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3";

/// The status of a group as the transaction sees it.
///
/// # Errors
/// The database could not be asked.
pub async fn status(tx: &mut Tx, group_id: i64) -> Result<GroupStatus, StoreError> {
    let raw = in_tx!(tx, |connection| { sqlx::query_as::<Db, RawStatus>(STATUS).bind(group_id).fetch_optional(&mut *connection).await? })?;
    raw.map_or_else(|| Ok(GroupStatus::default()), GroupStatus::try_from)
}

/// Stores a decision if `new.version` is still the group's version; it rises by one. Whether it was.
///
/// # Errors
/// The database could not be asked.
pub async fn set_status(tx: &mut Tx, group_id: i64, new: &GroupStatus, by: &Decided) -> Result<bool, StoreError> {
    let (since, until, owner, ticket) = match &new.decision {
        Decision::Open => (None, None, None, None),
        Decision::Known { owner, ticket } => (None, None, owner.as_deref(), ticket.as_ref().map(Ticket::as_str)),
        Decision::FixedSince { at_ms } => (Some(*at_ms), None, None, None),
        Decision::IgnoredUntil { until_ms } => (None, Some(*until_ms), None, None),
    };
    let sql = if new.version == 0 { FIRST } else { NEXT };
    in_tx!(tx, |connection| {
        let query = sqlx::query::<Db>(sql).bind(group_id).bind(new.version).bind(new.decision.as_str()).bind(since).bind(until);
        let query = query.bind(optional_text(owner)).bind(optional_text(ticket)).bind(new.runbook.as_ref().map(Link::as_str));
        query.bind(text(&by.by)).bind(by.at_ms).execute(&mut *connection).await?.rows_affected() == 1
    })
}

/// Stores a note, once for each form.
///
/// # Errors
/// The database could not be asked.
pub async fn add_note(tx: &mut Tx, new: NewNote<'_>) -> Result<AddedNote, StoreError> {
    in_tx!(tx, |connection| {
        let query = sqlx::query_scalar::<Db, i64>(ADD_NOTE).bind(new.group_id).bind(new.at_ms).bind(text(new.author));
        match query.bind(text(new.form_id)).bind(text(new.note)).fetch_optional(&mut *connection).await? {
            Some(id) => AddedNote::Added(id),
            None => {
                let query = sqlx::query_as::<Db, (i64, String, String)>(NOTE_OF_FORM).bind(text(new.form_id));
                let there = query.fetch_optional(&mut *connection).await?;
                let same = there.is_some_and(|(group, author, note)| {
                    (group, author.as_str(), note.as_str()) == (new.group_id, &*text(new.author), &*text(new.note))
                });
                if same { AddedNote::Repeated } else { AddedNote::FormUsed }
            }
        }
    })
}

impl Store {
    /// The status of a group.
    pub async fn group_status(&self, group_id: i64) -> Result<GroupStatus, StoreError> {
        let raw = read!(self, |pool| { sqlx::query_as::<Db, RawStatus>(STATUS).bind(group_id).fetch_optional(pool).await? })?;
        raw.map_or_else(|| Ok(GroupStatus::default()), GroupStatus::try_from)
    }

    /// The notes of a group, newest first; `before` is the `next` of the previous page; `limit` is at least 1.
    pub async fn group_notes(&self, group_id: i64, before: Option<i64>, limit: i64) -> Result<NotePage, StoreError> {
        let mut items: Vec<Note> = read!(self, |pool| {
            let query = sqlx::query_as::<Db, (i64, i64, String, String)>(NOTES).bind(group_id).bind(before.unwrap_or(i64::MAX));
            let found = query.bind(limit + 1).fetch_all(pool).await?;
            found.into_iter().map(|(id, at_ms, author, note)| Note { id, at_ms, author, note }).collect()
        })?;
        let more = items.len() as i64 > limit;
        items.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(NotePage { next: items.last().map(|last| last.id).filter(|_| more), items })
    }

    /// The headers of messages by id, as far as they were not purged and are at most `limit_bytes` when packed.
    pub async fn headers_of(&self, message_ids: &[i64], limit_bytes: i64) -> Result<HashMap<i64, Vec<Header>>, StoreError> {
        let packed: Vec<(i64, Vec<u8>)> = read!(self, |pool| {
            sqlx::query_as::<Db, (i64, Vec<u8>)>(Db::HEADERS_OF).bind(rows(message_ids)).bind(limit_bytes).fetch_all(pool).await?
        })?;
        let unpack = |(id, packed): (i64, Vec<u8>)| match unpack_headers(&packed) {
            Ok(headers) => Ok((id, headers)),
            Err(error) => Err(StoreError::unreadable("headers", &error.to_string())),
        };
        packed.into_iter().map(unpack).collect()
    }
}
