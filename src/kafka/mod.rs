//! Everything that speaks Kafka: the intake consumer, look-ups (topics, ids, offsets, retention), the producer of replays, client settings.
//!
//! May use: `domain`, rdkafka. Called by: `services` (look-ups, intake events), `app`. Nothing here knows the store.
//! [`ffi`] holds the only unsafe code of the program: Kafka's topic ids and what else rdkafka's safe half does not offer.

pub mod check;
pub mod client;
mod ffi;
pub mod groups;
pub mod inspect;
pub mod intake;
pub mod producer;
pub mod scan;
pub mod target;
mod token;
