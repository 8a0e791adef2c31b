//! What a transform would make of a value, before anything is proposed.

use super::Replays;

/// How trying a transform on one value ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// What would be sent.
    Made(Vec<u8>),
    /// It does not compile, or fails on this value, and why.
    Failed(String),
}

impl Replays {
    /// Runs a jq filter on a value. Nothing is checked or stored.
    pub async fn try_transform(&self, _filter: &str, _value: Vec<u8>) -> Tried {
        todo!()
    }
}
