//! Replays: from a proposal to the last message that was sent. Verification is another service's (`services/verify.rs`).
//!
//! `propose` stores a draft, `prepare` freezes (`freeze`) and preflights it (`preflight`, `warn`), `plan` knows its digest, `approval` decides, `control` pauses and stops, `check` runs the two checks, `send` and `recover` execute under
//! a lease, `pace` says how fast and `stage` how many.

pub mod approval;
pub mod check;
pub mod control;
pub mod executor;
mod freeze;
mod pace;
pub mod plan;
mod preflight;
pub mod prepare;
pub mod preview;
pub mod propose;
mod recover;
mod rights;
mod send;
mod stage;
mod warn;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::check::Checker;
use crate::domain::clock::Clock;
use crate::domain::settings::{ClusterSettings, DlqSettings, entry_for};
use crate::domain::terms::{ApprovalTerms, ReplayTerms};
use crate::kafka::client::KafkaError;
use crate::kafka::inspect::Inspector;
use crate::store::{Store, StoreError};

/// Replays over the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Replays {
    pub store: Store,
    pub clock: Clock,
    /// In the order of the configuration: the first that covers a topic wins.
    pub dlqs: Arc<[DlqSettings]>,
    /// One for each of `dlqs`, in the same order.
    pub terms: Arc<[ReplayTerms]>,
    pub approval: ApprovalTerms,
    pub checker: Checker,
    /// By name; empty where nothing can be sent.
    pub clusters: Arc<BTreeMap<String, Cluster>>,
}

/// How a cluster is asked.
#[derive(Clone)]
pub struct Cluster {
    pub settings: ClusterSettings,
    pub inspector: Arc<Inspector>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.settings.name).finish_non_exhaustive()
    }
}

/// What is configured for one DLQ.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub settings: &'a DlqSettings,
    pub terms: &'a ReplayTerms,
}

impl Entry<'_> {
    /// Whether the standing waiver of the DLQ (`consumer_is_idempotent`) holds for a batch: an emergency replay sends nothing unchecked.
    pub(super) fn waives(&self, batch: &crate::store::replays::Batch) -> bool {
        self.terms.consumer_is_idempotent.is_some() && !batch.emergency
    }
}

impl Replays {
    /// Replays where nothing can be replayed: no terms, no clusters.
    pub fn nowhere(store: Store, clock: Clock, dlqs: Arc<[DlqSettings]>) -> Replays {
        let approval = ApprovalTerms::default();
        let checker = Checker::new(&BTreeMap::new(), &BTreeMap::new());
        Replays { store, clock, dlqs, terms: Arc::new([]), approval, checker, clusters: Arc::default() }
    }

    /// The entry of a batch's DLQ.
    pub fn entry_of(&self, batch: &crate::store::replays::Batch) -> Option<Entry<'_>> {
        self.entry(&batch.cluster, &batch.topic)
    }

    /// The entry that covers a topic; None: nothing is configured for it any more.
    pub fn entry(&self, cluster: &str, topic: &str) -> Option<Entry<'_>> {
        let (index, settings) = entry_for(&self.dlqs, cluster, topic)?;
        Some(Entry { settings, terms: self.terms.get(index)? })
    }
}

/// Why something about a replay could not be done. What the person who asked can mend is an `Err` of its own kind, for pages and API alike.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    /// 403: not this person's to do.
    #[error("{0}")]
    Forbidden(String),
    /// 409: it is not as they saw it any more, or somebody was faster.
    #[error("{0}")]
    Conflict(String),
    /// 422: what was sent cannot be taken, at this field.
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    /// 404.
    #[error("there is no replay {0}")]
    NotFound(i64),
    /// 503: something that is needed to answer does not answer itself; trying again may help.
    #[error("{0}")]
    Unready(String),
    /// The thread that asked Kafka, or the machine, failed.
    #[error("{0}")]
    Machine(String),
}

impl From<tokio::task::JoinError> for ReplayError {
    fn from(error: tokio::task::JoinError) -> ReplayError {
        ReplayError::Machine(format!("a look-up stopped: {error}"))
    }
}
