//! Client settings that every client shares: no topic is ever created by asking for it, secrets stay out of logs.

/// Why Kafka could not be asked. The text names the broker's reason and never a secret.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum KafkaError {
    /// No broker answered (down, DNS, TLS, time-out).
    #[error("cluster {cluster}: not reachable: {reason}")]
    Unreachable { cluster: String, reason: String },
    /// The broker said no: authentication or ACL.
    #[error("cluster {cluster}: not permitted: {reason}")]
    NotPermitted { cluster: String, reason: String },
    /// A client property is unknown or its value unusable.
    #[error("cluster {cluster}: {reason}")]
    Settings { cluster: String, reason: String },
    #[error("cluster {cluster}: {reason}")]
    Other { cluster: String, reason: String },
}
