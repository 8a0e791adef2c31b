//! The items of a batch as the executor moves them: pending, intended, ended.
//!
//! Locks are taken in one order by everybody: messages (by id), then items, then the batch, then counters, then the trail.
