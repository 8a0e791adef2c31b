//! The pages, and the router that carries pages, API and operations.
//!
//! May use: `services`, `store`'s rows, `domain`, `api` (which it mounts), `telemetry`. Called by: `app`, with one [`AppState`].
//! [`routes`] is the one table of what there is and who may have it; every response passes through [`frame`], which writes errors out
//! and sets the headers that keep hostile bytes inert. No page needs a script; none has inline style or script.

mod assets;
mod frame;
mod guard;
pub mod pages;
pub mod routes;
mod state;
pub mod view;

pub use routes::{metrics_router, router};
pub use state::{AppState, Configured, ConfiguredCluster, ConfiguredPart, PublicUrlError, WebOptions};
