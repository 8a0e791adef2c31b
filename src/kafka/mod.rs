//! Everything that speaks Kafka: the intake consumer, look-ups (topics, ids, offsets, retention), client settings.
//!
//! May use: `domain`, rdkafka. Called by: `services` (look-ups, intake events), `app`. Nothing here knows the store.
//! `topic_id` holds the only unsafe code of the program.

pub mod client;
pub mod inspect;
pub mod intake;
