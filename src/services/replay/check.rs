//! The two checks on messages: does the payload fit today's schema, has the message already been applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Entry;
use crate::domain::record::Record;
use crate::domain::terms::{Ledger, Schema};
use crate::domain::verdict::{Checked, IdempotencyVerdict};
use crate::ledger::Ledgers;
use crate::schema::Schemas;

/// A message to be checked.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub message_id: i64,
    /// Key, value and headers as they were dead-lettered.
    pub record: Record,
    /// When the event happened, ms; None: not known.
    pub origin_at_ms: Option<i64>,
    pub timestamp_suspect: bool,
}

/// Checks messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Checker {
    pub schemas: Arc<Schemas>,
    pub ledgers: Arc<BTreeMap<String, Ledgers>>,
}

impl Checker {
    /// Nothing is opened yet: ledgers and registries are reached when they are asked.
    pub fn new(ledgers: &BTreeMap<String, Ledger>, schemas: &BTreeMap<String, Schema>) -> Checker {
        let ledgers = ledgers.iter().map(|(name, ledger)| (name.clone(), Ledgers::new(ledger))).collect();
        Checker { schemas: Arc::new(Schemas::new(schemas)), ledgers: Arc::new(ledgers) }
    }

    /// Both checks on messages of one DLQ, in the order given. Never fails: what could not be asked is a verdict. `transform`: the jq filter of the batch;
    /// None: the configuration's.
    pub async fn check(&self, _entry: Entry<'_>, _transform: Option<&str>, _messages: &[Candidate], _now_ms: i64) -> Vec<Checked> {
        todo!()
    }

    /// Only the ledger, for messages that were sent: what it says of each, in the order given.
    pub async fn ledger_says(
        &self,
        _entry: Entry<'_>,
        _transform: Option<&str>,
        _messages: &[Candidate],
        _now_ms: i64,
    ) -> Vec<IdempotencyVerdict> {
        todo!()
    }

    /// A fingerprint of all settings that decide the checks, contents of schema and transform files included. It is part of a batch's digest.
    ///
    /// # Errors
    /// A file or the registry could not be read: its name and why.
    pub async fn fingerprint(&self, _entry: Entry<'_>) -> Result<String, String> {
        todo!()
    }
}
