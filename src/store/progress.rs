//! That jobs which one instance does for all get on. Whoever watches compares two looks by its own clock: the clocks of two machines never meet.

use super::sql_pieces::text;
use super::{Store, StoreError};

/// How often a job has done what it is for.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct JobProgress {
    pub job: String,
    /// Only ever grows.
    pub turns: i64,
}

impl Store {
    /// Notes that a job has done what it is for. `now_ms` is for people who look into the table.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn note_progress(&self, job: &str, now_ms: i64) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO job_progress (job, turns, at_ms) VALUES ($1, 1, $2)
             ON CONFLICT (job) DO UPDATE SET turns = job_progress.turns + 1, at_ms = excluded.at_ms";
        write_one!(self, |pool| {
            sqlx::query::<Db>(SQL).bind(text(job)).bind(now_ms).execute(pool).await?;
        })
    }

    /// How far each job has come.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn job_progress(&self) -> Result<Vec<JobProgress>, StoreError> {
        const SQL: &str = "SELECT job, turns FROM job_progress";
        read!(self, |pool| { sqlx::query_as::<Db, JobProgress>(SQL).fetch_all(pool).await? })
    }
}
