//! From a dead letter under review to a replay that is proven: checks, review, batches, execution, verification.

#![allow(clippy::unwrap_used, reason = "a test; clippy.toml allows it in test functions, not in the bodies that run on both databases")]

mod batches;
mod checks;
mod execution;
mod pages;
mod registry;
mod review;
pub mod seeded;
pub mod shop;
mod verification;
mod worked_example;
