//! Every integration test in one binary, one module per journey.
//!
//! A test that needs a real server is marked `#[ignore = "needs a real ..: run tests/run"]`: plain `cargo test` names it as ignored,
//! `tests/run` starts the servers and runs it with `--include-ignored`.

mod alerts;
mod architecture;
mod browser;
mod cases;
mod channels;
mod cli;
mod demo;
mod intake;
mod kafka;
mod replay;
mod sampling;
mod store;
mod support;
mod web;
