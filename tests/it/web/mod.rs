//! Pages and API over a real store: what they say, what they refuse, and that hostile bytes stay inert.

#![allow(clippy::unwrap_used, reason = "a test; clippy.toml allows it in test functions, not in the bodies that run on both databases")]

mod access;
mod dlq;
mod export;
mod group;
pub mod hostile;
pub mod house;
mod lists;
mod live;
mod message;
mod reading;
mod reveal;
mod review;
mod settings;
mod shell;
