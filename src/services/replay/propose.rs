//! Proposing: freeze, preflight, submit.

use serde::{Deserialize, Serialize};

use super::{ReplayError, Replays};
use crate::domain::access::OwnerScope;
use crate::domain::audit::By;
use crate::domain::verdict::Waiver;
use crate::store::messages::MessageFilter;
use crate::store::replays::Batch;

/// Which messages.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// All that match as of now. `query` is the same as a query string, for people.
    Filter {
        filter: Box<MessageFilter>,
        query: String,
    },
    Ids(Vec<i64>),
}

/// A proposal as a form or the API gives it. What is None is the configuration's.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub cluster: String,
    pub topic: String,
    pub wanted: Wanted,
    pub reason: String,
    pub target: Option<String>,
    pub max_per_second: Option<u32>,
    pub canary: Option<u32>,
    pub stop_on_returned_pct: Option<u32>,
    /// A jq filter.
    pub transform: Option<String>,
    pub waivers: Vec<Waiver>,
    pub why_now: Option<String>,
    pub incident: Option<String>,
    /// Submitted by itself once the preflight is through, unless something is missing.
    pub auto_submit: bool,
    pub emergency: bool,
    /// Made with the form: the same form sent twice is one batch.
    pub form_id: String,
}

/// A new batch, and what could not be had.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    pub batch: Batch,
    /// The same form came before: this is the batch it made.
    pub repeated: bool,
}

/// What the proposer adds when submitting a draft whose preflight is through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    pub why_now: Option<String>,
    pub waivers: Vec<Waiver>,
}

/// How far a draft has come by one tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// Nothing was there to do.
    Idle,
    /// A chunk was frozen or looked at; there may be more.
    More,
}

impl Replays {
    /// Stores a draft. It is frozen and preflighted by [`Replays::prepare`].
    ///
    /// # Errors
    /// Not in the person's scope; no entry covers the DLQ; a target that is not configured or does not exist; a filter, transform or number that cannot be taken.
    pub async fn propose(&self, _by: &By, _scope: &OwnerScope, _proposal: Proposal) -> Result<Proposed, ReplayError> {
        todo!()
    }

    /// Puts a draft up for approval. Whoever may propose may submit.
    ///
    /// # Errors
    /// It is no draft any more or its preflight is not through; why now, or a waiver, is missing.
    pub async fn submit(&self, _by: &By, _scope: &OwnerScope, _batch_id: i64, _submission: Submission) -> Result<Batch, ReplayError> {
        todo!()
    }

    /// One chunk of freezing or preflight of the oldest draft of a cluster, and of proposals and approvals that expire. Called by the job under its lease.
    ///
    /// # Errors
    /// The database could not be asked.
    pub async fn prepare(&self, _cluster: &str) -> Result<Prepared, ReplayError> {
        todo!()
    }
}
