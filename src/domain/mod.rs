//! Pure rules: no async, no IO, no clock reads, no sqlx, rdkafka or axum.
//!
//! May use: nothing of the other rooms. Called by: all of them.
//! The one exception to "no clock reads" is [`clock`], which is the single place where time enters the program.

pub mod access;
pub mod alert;
pub mod audit;
pub mod baseline;
pub mod classify;
pub mod clock;
pub mod contrast;
pub mod dialect;
pub mod digest;
pub mod fingerprint;
pub mod framing;
pub mod group;
pub mod health;
pub mod json;
pub mod lifecycle;
pub mod mask;
pub mod message;
pub mod pacing;
pub mod partition;
pub mod proof;
pub mod readiness;
pub mod record;
pub mod replay;
pub mod returns;
pub mod review;
pub mod sending;
pub mod settings;
pub mod stacktrace;
pub mod stage;
pub mod template;
pub mod terms;
pub mod verdict;
