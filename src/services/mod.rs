//! Use cases, one transaction each. A service never imports another service.
//!
//! May use: `domain`, `store`, `kafka`, `ledger`, `schema`, `channels`. Called by: `jobs`, `web`, `api`, `app`.

pub mod access;
pub mod alerting;
pub mod checkup;
pub mod export;
pub mod groups;
pub mod health;
pub mod heartbeat;
pub mod heat;
pub mod intake;
pub mod messages;
pub mod notify;
pub mod replay;
pub mod review;
pub mod sampling;
pub mod sign_in_limit;
pub mod suggest;
pub mod verify;
