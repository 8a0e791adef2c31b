//! How far intake has read each partition, who may move that position, and the gaps that reading had to step over.

use super::{Store, StoreError};

/// Identifies a partition of one life of a DLQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    pub dlq_id: i64,
    pub incarnation: i32,
    pub partition: i32,
}

/// A stored position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub id: PartitionId,
    /// The next offset to read.
    pub next_offset: i64,
    /// Every claim raises it; a write that names an older one fails.
    pub owner_epoch: i64,
    pub updated_at_ms: i64,
}

/// Why offsets were stepped over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapKind {
    /// The log start is past our position: up to that many records were lost to retention.
    Retention,
    /// Our position is past the end of the same topic: the log was truncated.
    Truncation,
}

/// Offsets that intake could not read: `[from_offset, to_offset)`; for a truncation from the old position back to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub id: PartitionId,
    pub kind: GapKind,
    pub from_offset: i64,
    pub to_offset: i64,
    pub noticed_at_ms: i64,
}

impl Store {
    /// Makes the position if there is none. Returns whether it was made.
    pub async fn ensure_position(&self, id: PartitionId, next_offset: i64, now_ms: i64) -> Result<bool, StoreError> {
        const SQL: &str =
            "INSERT INTO positions (dlq_id, incarnation, partition, next_offset, owner_epoch, updated_at_ms) VALUES ($1, $2, $3, $4, 0, $5)
             ON CONFLICT (dlq_id, incarnation, partition) DO NOTHING";
        write_one!(self, |pool| {
            let made = sqlx::query(SQL).bind(id.dlq_id).bind(id.incarnation).bind(id.partition).bind(next_offset).bind(now_ms);
            made.execute(pool).await?.rows_affected() > 0
        })
    }

    /// Takes the partition over: raises the epoch and returns the position, or None if there is no position row.
    pub async fn claim_position(&self, id: PartitionId, now_ms: i64) -> Result<Option<Position>, StoreError> {
        const SQL: &str = "UPDATE positions SET owner_epoch = owner_epoch + 1, updated_at_ms = $4 WHERE dlq_id = $1 AND incarnation = $2 AND partition = $3
             RETURNING dlq_id, incarnation, partition, next_offset, owner_epoch, updated_at_ms";
        write_one!(self, |pool| {
            let row = sqlx::query_as::<Db, RawPosition>(SQL).bind(id.dlq_id).bind(id.incarnation).bind(id.partition).bind(now_ms);
            row.fetch_optional(pool).await?.map(Position::from)
        })
    }

    /// Positions of the newest incarnation of every DLQ, or of one.
    pub async fn positions(&self, dlq_id: Option<i64>) -> Result<Vec<Position>, StoreError> {
        const SQL: &str = "SELECT p.dlq_id, p.incarnation, p.partition, p.next_offset, p.owner_epoch, p.updated_at_ms
             FROM dlqs d JOIN positions p ON p.dlq_id = d.id AND p.incarnation = d.incarnation
             WHERE ($1 = 0 OR d.id = $1) ORDER BY p.dlq_id, p.partition";
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, RawPosition>(SQL).bind(dlq_id.unwrap_or(0)).fetch_all(pool).await?;
            rows.into_iter().map(Position::from).collect()
        })
    }

    /// Records the gap and moves the position over it, in one transaction, if epoch and expected offset still hold. False: they do not, nothing was written.
    pub async fn step_over_gap(&self, gap: &Gap, owner_epoch: i64, expected_offset: i64) -> Result<bool, StoreError> {
        const MOVE: &str = "UPDATE positions SET next_offset = $4, updated_at_ms = $5
             WHERE dlq_id = $1 AND incarnation = $2 AND partition = $3 AND owner_epoch = $6 AND next_offset = $7";
        const RECORD: &str = "INSERT INTO gaps (dlq_id, incarnation, partition, kind, from_offset, to_offset, noticed_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let id = gap.id;
        transaction!(self, |tx| {
            let moved = sqlx::query(MOVE)
                .bind(id.dlq_id)
                .bind(id.incarnation)
                .bind(id.partition)
                .bind(gap.to_offset)
                .bind(gap.noticed_at_ms)
                .bind(owner_epoch)
                .bind(expected_offset)
                .execute(&mut *tx)
                .await?;
            let holds = moved.rows_affected() > 0;
            if holds {
                sqlx::query(RECORD)
                    .bind(id.dlq_id)
                    .bind(id.incarnation)
                    .bind(id.partition)
                    .bind(gap.kind.as_str())
                    .bind(gap.from_offset)
                    .bind(gap.to_offset)
                    .bind(gap.noticed_at_ms)
                    .execute(&mut *tx)
                    .await?;
            }
            holds
        })
    }

    /// Newest first, at most `limit`.
    pub async fn gaps(&self, dlq_id: i64, limit: i64) -> Result<Vec<Gap>, StoreError> {
        const SQL: &str = "SELECT dlq_id, incarnation, partition, kind, from_offset, to_offset, noticed_at_ms FROM gaps WHERE dlq_id = $1 ORDER BY id DESC LIMIT $2";
        read!(self, |pool| {
            let rows = sqlx::query_as::<Db, (i64, i32, i32, String, i64, i64, i64)>(SQL).bind(dlq_id).bind(limit).fetch_all(pool).await?;
            rows.into_iter()
                .map(|(dlq_id, incarnation, partition, kind, from_offset, to_offset, noticed_at_ms)| {
                    let id = PartitionId { dlq_id, incarnation, partition };
                    Ok(Gap { id, kind: GapKind::from_word(&kind)?, from_offset, to_offset, noticed_at_ms })
                })
                .collect::<Result<Vec<Gap>, StoreError>>()?
        })
    }
}

impl GapKind {
    const ALL: [GapKind; 2] = [GapKind::Retention, GapKind::Truncation];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            GapKind::Retention => "retention",
            GapKind::Truncation => "truncation",
        }
    }

    fn from_word(word: &str) -> Result<GapKind, StoreError> {
        GapKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| StoreError::unreadable("kind of gap", word))
    }
}

#[derive(sqlx::FromRow)]
struct RawPosition {
    dlq_id: i64,
    incarnation: i32,
    partition: i32,
    next_offset: i64,
    owner_epoch: i64,
    updated_at_ms: i64,
}

impl From<RawPosition> for Position {
    fn from(raw: RawPosition) -> Position {
        Position {
            id: PartitionId { dlq_id: raw.dlq_id, incarnation: raw.incarnation, partition: raw.partition },
            next_offset: raw.next_offset,
            owner_epoch: raw.owner_epoch,
            updated_at_ms: raw.updated_at_ms,
        }
    }
}
