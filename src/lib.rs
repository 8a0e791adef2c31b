//! Lazaret: an operator's dashboard for Kafka dead-letter queues.
//!
//! The rooms, in the order in which a dead letter passes through them:
//!
//! - [`domain`]: pure rules. What a header means, which kind of failure it is, which group, how healthy a DLQ is.
//! - [`kafka`], [`store`], [`ledger`], [`schema`], [`channels`]: adapters to the outside. They know the domain and not each other.
//! - [`services`]: use cases, one transaction each. They never import one another.
//! - [`jobs`]: loops only: a timer or a stream, and one call of a service's `tick`.
//! - [`web`] and [`api`]: pages and JSON over the same services.
//! - [`config`], [`telemetry`]: typed settings; one function per event.
//! - [`app`]: the composition root, the only room that knows all the others. [`demo`] is known to it alone.
//! - [`cli`]: the command line over config and app: arguments in, words and exit codes out.
//!
//! Arrows run one way: `domain <- {store, kafka, ledger, schema, channels} <- services <- {jobs, web, api} <- app`. `tests/it/architecture.rs`
//! fails on any other.

pub mod domain;

#[cfg(feature = "server")]
pub mod api;
#[cfg(feature = "server")]
pub mod app;
#[cfg(feature = "server")]
pub mod channels;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod demo;
#[cfg(feature = "server")]
pub mod jobs;
#[cfg(feature = "server")]
pub mod kafka;
#[cfg(feature = "server")]
pub mod ledger;
#[cfg(feature = "server")]
pub mod schema;
#[cfg(feature = "server")]
pub mod services;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "server")]
pub mod web;
