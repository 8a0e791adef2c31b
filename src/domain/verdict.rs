//! What the two checks before a replay say, and what follows from it.

use serde::{Deserialize, Serialize};

/// Whether a payload fits what the consumer expects today.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchemaVerdict {
    Compatible,
    /// Fits after a named transform.
    Transformed,
    Incompatible,
    CouldNotCheck,
    NotConfigured,
}

impl SchemaVerdict {
    pub const ALL: [SchemaVerdict; 5] = [
        SchemaVerdict::Compatible,
        SchemaVerdict::Transformed,
        SchemaVerdict::Incompatible,
        SchemaVerdict::CouldNotCheck,
        SchemaVerdict::NotConfigured,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            SchemaVerdict::Compatible => "compatible",
            SchemaVerdict::Transformed => "transformed",
            SchemaVerdict::Incompatible => "incompatible",
            SchemaVerdict::CouldNotCheck => "could_not_check",
            SchemaVerdict::NotConfigured => "not_configured",
        }
    }

    /// What follows. Only [`Conclusion::Held`] can be waived.
    pub fn conclusion(self) -> Conclusion {
        match self {
            SchemaVerdict::Compatible | SchemaVerdict::Transformed => Conclusion::Passed,
            SchemaVerdict::Incompatible => Conclusion::Archive,
            SchemaVerdict::CouldNotCheck | SchemaVerdict::NotConfigured => Conclusion::Held { waivable: true },
        }
    }
}

/// Whether a message was already applied downstream, as of the look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyVerdict {
    New,
    Applied,
    InProgress,
    /// The ledger positively calls it partly applied.
    Unsafe,
    /// The ledger says that it was tried and failed: counts as new.
    Failed,
    CouldNotCheck,
    /// The ledger's silence proves nothing: its record may have expired.
    Unprovable,
    NotConfigured,
}

impl IdempotencyVerdict {
    pub const ALL: [IdempotencyVerdict; 8] = [
        IdempotencyVerdict::New,
        IdempotencyVerdict::Applied,
        IdempotencyVerdict::InProgress,
        IdempotencyVerdict::Unsafe,
        IdempotencyVerdict::Failed,
        IdempotencyVerdict::CouldNotCheck,
        IdempotencyVerdict::Unprovable,
        IdempotencyVerdict::NotConfigured,
    ];

    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            IdempotencyVerdict::New => "new",
            IdempotencyVerdict::Applied => "applied",
            IdempotencyVerdict::InProgress => "in_progress",
            IdempotencyVerdict::Unsafe => "unsafe",
            IdempotencyVerdict::Failed => "failed",
            IdempotencyVerdict::CouldNotCheck => "could_not_check",
            IdempotencyVerdict::Unprovable => "unprovable",
            IdempotencyVerdict::NotConfigured => "not_configured",
        }
    }

    /// What follows. Somebody at work on it right now is held and never waived.
    pub fn conclusion(self) -> Conclusion {
        match self {
            IdempotencyVerdict::New | IdempotencyVerdict::Failed => Conclusion::Passed,
            IdempotencyVerdict::Applied => Conclusion::AlreadyApplied,
            IdempotencyVerdict::Unsafe => Conclusion::Archive,
            IdempotencyVerdict::InProgress => Conclusion::Held { waivable: false },
            IdempotencyVerdict::CouldNotCheck | IdempotencyVerdict::Unprovable | IdempotencyVerdict::NotConfigured => {
                Conclusion::Held { waivable: true }
            }
        }
    }
}

/// What a verdict means for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    Passed,
    AlreadyApplied,
    /// Archived with a note, follow-up open.
    Archive,
    /// A person is needed.
    Held {
        waivable: bool,
    },
}

/// Which of the two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    Schema,
    Idempotency,
}

impl Check {
    /// The word in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Check::Schema => "schema",
            Check::Idempotency => "idempotency",
        }
    }
}

/// The result of both checks on one message: the evidence, and the bytes that would be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub message_id: i64,
    /// When the look-up was made, ms.
    pub at_ms: i64,
    pub schema: SchemaVerdict,
    /// What did not fit, which fence, which transform (by its hash), why it could not be checked. For display.
    pub schema_note: Option<String>,
    /// The output of the transform, if one was used; None: the original bytes go.
    pub transformed: Option<Vec<u8>>,
    pub idempotency: IdempotencyVerdict,
    /// The key the ledger was asked for, exact. None: it could not be built.
    pub asked: Option<String>,
    /// What the ledger answered, or why it could not: for display, never a secret.
    pub answered: Option<String>,
    /// Other groups that read the target (`also_read_by`): the group and its verdict.
    pub others: Vec<(String, IdempotencyVerdict)>,
}

/// A waiver of a check for one batch: who goes on without it takes it upon them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiver {
    pub check: Check,
    /// The word of the verdict that is waived, such as `not_configured`.
    pub verdict: String,
    /// Why; typed by the proposer, part of the digest.
    pub reason: String,
}

/// What happens to a message in a batch with these waivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Send,
    /// Sent without a check that could not run: waived.
    SendUnchecked,
    AlreadyApplied,
    /// The payload does not fit.
    Incompatible,
    /// Partly applied.
    Unsafe,
    Held,
}

impl Checked {
    /// What follows from both checks. `idempotent_consumer`: the DLQ's standing waiver (`consumer_is_idempotent`) of the idempotency check.
    ///
    /// In the order of the states: first the schema, then the ledger.
    pub fn decision(&self, waivers: &[Waiver], idempotent_consumer: bool) -> Decision {
        let waived = |check: Check, verdict: &str| waivers.iter().any(|waiver| waiver.check == check && waiver.verdict == verdict);
        let schema_unchecked = match self.schema.conclusion() {
            Conclusion::Archive => return Decision::Incompatible,
            Conclusion::Passed | Conclusion::AlreadyApplied => false,
            Conclusion::Held { waivable } if waivable && waived(Check::Schema, self.schema.as_str()) => true,
            Conclusion::Held { .. } => return Decision::Held,
        };
        let idempotency = self.idempotency;
        let idempotency_unchecked = match idempotency.conclusion() {
            Conclusion::AlreadyApplied => return Decision::AlreadyApplied,
            Conclusion::Archive => return Decision::Unsafe,
            Conclusion::Passed => false,
            Conclusion::Held { waivable } if waivable && (idempotent_consumer || waived(Check::Idempotency, idempotency.as_str())) => true,
            Conclusion::Held { .. } => return Decision::Held,
        };
        if schema_unchecked || idempotency_unchecked { Decision::SendUnchecked } else { Decision::Send }
    }
}
