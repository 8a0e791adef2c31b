//! Loops only: a timer or a stream, a lease, one call of a service's `tick`. What a job is for lies in the service.
//!
//! May use: `services`, `store` (leases), `kafka` (the consumer's thread), `telemetry`. Called by: `app`.
//! [`Supervisor`] is the only place that spawns tasks: none ends unseen.

pub mod alerts;
pub mod heartbeat;
pub mod hints;
pub mod housekeeping;
pub mod intake;
pub mod outbox;
pub mod replay;
pub mod review;
pub mod sampler;
mod supervisor;
mod turns;
pub mod verify;

pub use supervisor::Supervisor;
