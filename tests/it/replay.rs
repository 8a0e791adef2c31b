//! From a dead letter under review to a replay that is proven: checks, review, batches, execution, verification.

mod batches;
mod checks;
mod execution;
mod pages;
mod registry;
mod review;
pub mod seeded;
mod shop;
mod verification;
mod worked_example;
