//! Goes on with reviews of many messages.

use std::time::Duration;

use super::Supervisor;
use super::turns::Turns;
use crate::services::review::Reviews;

/// How often it looks whether there is one.
const EVERY: Duration = Duration::from_millis(500);

/// What the job needs.
#[derive(Clone)]
pub struct ReviewJob {
    pub reviews: Reviews,
    /// This process, as leases name it; unique among all that use the database.
    pub holder: String,
    /// How long a lease is held without renewal.
    pub lease: Duration,
}

impl ReviewJob {
    /// Runs under the supervisor until shutdown, in one instance at a time. Two at once would do no harm: each chunk is guarded by the version of
    /// its review.
    pub fn spawn(self, supervisor: &mut Supervisor) {
        supervisor.spawn("reviews", move |token| {
            let this = self.clone();
            async move {
                let reviews = &this.reviews;
                let mut turns = Turns::new(reviews.store.clone(), reviews.clock.clone(), "reviews", &this.holder, this.lease, EVERY);
                while turns.next(&token).await.is_some() {
                    let work = async {
                        while !token.is_cancelled() && reviews.tick().await? {}
                        Ok::<_, crate::store::StoreError>(())
                    };
                    if let Some(result) = turns.during(work).await {
                        turns.done(result);
                    }
                }
                turns.end().await;
            }
        });
    }
}
