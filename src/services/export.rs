//! Exports: what leaves Lazaret as a file is noted in the trail first.

use serde_json::json;

use crate::domain::audit::{Action, By, Event};
use crate::domain::clock::Clock;
use crate::store::{Store, StoreError, audit};

/// Exports over the store.
#[derive(Debug, Clone)]
pub struct Exports {
    pub store: Store,
    pub clock: Clock,
}

impl Exports {
    /// Notes in the trail that `by` takes `subject` away, before the first byte of it goes. How many rows that will be is not known yet.
    /// `query` is the query string that chose them, without what was searched for. Returns when that was, ms.
    ///
    /// # Errors
    /// The database could not be asked: then nothing may go.
    pub async fn begin(&self, by: &By, subject: String, query: &str, format: &str) -> Result<i64, StoreError> {
        let now_ms = self.clock.now_ms();
        let mut event = Event::new(now_ms, by, Action::Exported, subject);
        event.after = Some(json!({ "query": query, "format": format }));
        let mut tx = self.store.begin().await?;
        audit::append(&mut tx, &event).await?;
        tx.commit().await?;
        Ok(now_ms)
    }
}
