//! What a transform would make of a value, before anything is proposed.

use std::time::Duration;

use super::{Entry, Replays};
pub use crate::schema::Fit;
use crate::schema::transform::{Refusal, deep};

/// How long somebody who tries a transform waits for one value.
const PATIENCE: Duration = Duration::from_secs(3);

/// How trying a transform on one value ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// What would be sent, and whether it fits the schema; None: there is no schema, or nobody asked.
    Made { value: Vec<u8>, fit: Option<Fit> },
    /// It fails on this value, and why. May quote the value that was given.
    Failed(String),
}

impl Replays {
    /// Whether a jq filter compiles.
    ///
    /// # Errors
    /// Where it does not, and why.
    pub fn compiles(&self, filter: &str) -> Result<(), String> {
        self.checker.schemas.transform(filter).map(|_| ()).map_err(|fault| fault.to_string())
    }

    /// Runs a jq filter on a value. Nothing is stored, and no ledger is asked. `judge`: whether the value is the real one, so that it means something
    /// whether the output fits.
    pub async fn try_transform(&self, entry: Entry<'_>, filter: &str, value: Vec<u8>, judge: bool) -> Tried {
        let transform = match self.checker.schemas.transform(filter) {
            Ok(transform) => transform,
            Err(fault) => return Tried::Failed(fault.to_string()),
        };
        let schema = match &entry.terms.schema {
            Some(schema) => self.checker.schemas.now(&schema.schema, &[&value]).await.ok(),
            None => None,
        };
        let mask = entry.settings.mask.clone();
        let work = move || {
            deep(|| match &schema {
                Some(schema) => schema.transformed(&transform, &value).map(|made| {
                    let fit = judge.then(|| schema.judge(&made, &mask));
                    (made, fit)
                }),
                None => transform.apply(&value).map(|made| (made, None)),
            })
        };
        match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(Some(Ok((value, fit))))) => Tried::Made { value, fit },
            Ok(Ok(Some(Err(Refusal::Failed { text })))) => Tried::Failed(text),
            Ok(Ok(Some(Err(refusal)))) => Tried::Failed(refusal.to_string()),
            Ok(_) => Tried::Failed("it could not be run on this value".to_owned()),
            Err(_) => Tried::Failed(format!("it takes longer than {} s", PATIENCE.as_secs())),
        }
    }
}
