//! How fast: tokens for each batch, and for each target over all batches that send to it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::pacing::TokenBucket;

/// The pace of all batches of one executor.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    batches: HashMap<i64, TokenBucket>,
    /// The rate of a target is that of the fastest batch that sends there: all together are no faster than one alone may be.
    targets: HashMap<String, (TokenBucket, HashMap<i64, u32>)>,
}

impl Pace {
    /// Takes `wanted` tokens of the batch and of its target at once, or says how long to wait.
    ///
    /// # Errors
    /// Too few are there: the time to wait at least.
    pub fn take(&self, target: &str, batch_id: i64, per_second: u32, wanted: usize, now: Duration) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Buckets { batches, targets } = &mut *buckets;
        let own = batches.entry(batch_id).or_insert_with(|| TokenBucket::new(per_second, now));
        own.set_rate(per_second, now);
        let (shared, rates) = targets.entry(target.to_owned()).or_insert_with(|| (TokenBucket::new(per_second, now), HashMap::new()));
        rates.insert(batch_id, per_second);
        shared.set_rate(rates.values().copied().max().unwrap_or(per_second), now);
        own.take(wanted, now)?;
        shared.take(wanted, now).inspect_err(|_| own.give_back(wanted))
    }

    /// Gives back what was taken for items that were not sent after all.
    pub fn give_back(&self, target: &str, batch_id: i64, unused: usize) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = buckets.batches.get_mut(&batch_id) {
            own.give_back(unused);
        }
        if let Some((shared, _)) = buckets.targets.get_mut(target) {
            shared.give_back(unused);
        }
    }

    /// Forgets the batches that have nothing to send now, for whatever reason: a target is no faster for their sake.
    pub fn keep(&self, sends: impl Fn(i64) -> bool) {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.batches.retain(|batch_id, _| sends(*batch_id));
        buckets.targets.retain(|_, (_, rates)| {
            rates.retain(|batch_id, _| sends(*batch_id));
            !rates.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn two_batches_to_one_target_are_together_no_faster_than_one() {
        let pace = Pace::default();
        assert_eq!(pace.take("t", 1, 50, 50, SECOND), Ok(()));
        assert_eq!(pace.take("t", 2, 50, 50, SECOND), Err(SECOND), "the target's second is used up");
        assert_eq!(pace.take("u", 3, 50, 50, SECOND), Ok(()), "another target is another matter");
        assert_eq!(pace.take("t", 2, 50, 50, SECOND * 2), Ok(()), "what the target refused was not counted against the batch");
        pace.give_back("t", 2, 10);
        assert_eq!(pace.take("t", 2, 50, 10, SECOND * 2), Ok(()));
    }

    #[test]
    fn a_slower_batch_keeps_its_own_pace() {
        let pace = Pace::default();
        assert_eq!(pace.take("t", 1, 50, 20, SECOND), Ok(()));
        assert_eq!(pace.take("t", 2, 10, 10, SECOND), Ok(()));
        assert_eq!(pace.take("t", 2, 10, 10, SECOND), Err(SECOND));
        pace.keep(|batch_id| batch_id != 1);
        assert_eq!(pace.take("t", 2, 10, 10, SECOND * 2), Ok(()));
        assert_eq!(pace.take("t", 3, 10, 10, SECOND * 2), Err(SECOND), "what is left shares the pace of the fastest that is left");
    }
}
