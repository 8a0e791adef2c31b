//! Where consumers record what they have applied. In this version ledgers are only probed by `lazaret check`.
//!
//! May use: `domain`, redis, sqlx (in `sql`). Called by: `services`. No text from here holds a URL: it may hold a password.

pub mod redis;
pub mod sql;

use crate::domain::terms::Ledger;

/// Why a ledger could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The URL is not one of this kind of ledger.
    #[error("the URL is not usable: write {0}")]
    Url(&'static str),
    /// Refused, unknown host, wrong password, TLS.
    #[error("{0}")]
    Unreachable(String),
    #[error("no answer within {0} s")]
    TimedOut(u64),
}

/// One ledger, its tiers composed.
#[derive(Debug)]
pub struct Ledgers {}

impl Ledgers {
    /// Nothing is opened yet.
    pub fn new(_ledger: &Ledger) -> Ledgers {
        Ledgers {}
    }
}
