//! How fast a replay goes: tokens for a target, and whose turn it is.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Tokens that come back at a steady rate, at most a second's worth of them. Time is the caller's monotonic clock.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    per_second: u32,
    tokens: f64,
    as_of: Duration,
}

impl TokenBucket {
    /// Full.
    pub fn new(per_second: u32, now: Duration) -> TokenBucket {
        TokenBucket { per_second, tokens: f64::from(per_second.max(1)), as_of: now }
    }

    /// Another rate from now on; what was saved up beyond a second of it is lost.
    pub fn set_rate(&mut self, per_second: u32, now: Duration) {
        self.refill(now);
        self.per_second = per_second;
        self.tokens = self.tokens.min(self.capacity());
    }

    /// Takes `wanted` tokens (at most a second's worth), or says how long to wait for them.
    ///
    /// # Errors
    /// Too few are there: the time after which they are, if nobody else takes any.
    pub fn take(&mut self, wanted: usize, now: Duration) -> Result<(), Duration> {
        self.refill(now);
        let wanted = f64::from(u32::try_from(wanted).unwrap_or(u32::MAX)).min(self.capacity());
        if self.tokens >= wanted {
            self.tokens -= wanted;
            return Ok(());
        }
        Err(Duration::from_secs_f64((wanted - self.tokens) / self.capacity()))
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&mut self, unused: usize) {
        self.tokens = (self.tokens + unused as f64).min(self.capacity());
    }

    fn capacity(&self) -> f64 {
        f64::from(self.per_second.max(1))
    }

    fn refill(&mut self, now: Duration) {
        let since = now.saturating_sub(self.as_of);
        self.tokens = (self.tokens + since.as_secs_f64() * self.capacity()).min(self.capacity());
        self.as_of = self.as_of.max(now);
    }
}

/// How many go at once: one second of the pace, at most 500.
pub fn chunk_size(per_second: u32) -> usize {
    (per_second as usize).clamp(1, 500)
}

/// Bytes of messages that are held at once, at most; one message alone may have more.
pub const BYTES_AT_ONCE: i64 = 32 * 1024 * 1024;

/// How many of the first messages, given by their sizes in bytes, fit into [`BYTES_AT_ONCE`]; one at least.
pub fn within_bytes(sizes: impl IntoIterator<Item = i64>) -> usize {
    let mut bytes = 0_i64;
    let fits = |(at, size): &(usize, i64)| {
        bytes = bytes.saturating_add(*size);
        *at == 0 || bytes <= BYTES_AT_ONCE
    };
    sizes.into_iter().enumerate().take_while(fits).count()
}

/// What is about to be sent, as far as its turn goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub message_id: i64,
    /// Messages of one key keep their order. None: order does not matter.
    pub key_hash: Option<i64>,
    pub tenant: Option<String>,
}

/// The ids in an order that is fair between tenants: each in turn, the messages of one tenant, and those of one key whatever their tenants, in the
/// order given.
pub fn fair(waiting: Vec<Waiting>) -> Vec<i64> {
    let mut lanes: Vec<VecDeque<i64>> = Vec::new();
    let mut lane_of_tenant: HashMap<Option<String>, usize> = HashMap::new();
    let mut lane_of_key: HashMap<i64, usize> = HashMap::new();
    for item in waiting {
        let tenant_lane = *lane_of_tenant.entry(item.tenant).or_insert_with(|| {
            lanes.push(VecDeque::new());
            lanes.len() - 1
        });
        let lane = item.key_hash.map_or(tenant_lane, |key| *lane_of_key.entry(key).or_insert(tenant_lane));
        lanes[lane].push_back(item.message_id);
    }
    let mut order = Vec::with_capacity(lanes.iter().map(VecDeque::len).sum());
    while !lanes.is_empty() {
        lanes.retain_mut(|lane| {
            order.extend(lane.pop_front());
            !lane.is_empty()
        });
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_bucket_gives_no_more_than_its_rate() {
        let mut bucket = TokenBucket::new(50, SECOND);
        assert_eq!(bucket.take(50, SECOND), Ok(()));
        assert_eq!(bucket.take(50, SECOND), Err(SECOND));
        assert_eq!(bucket.take(25, SECOND + SECOND / 2), Ok(()));
        assert!(bucket.take(1, SECOND + SECOND / 2).is_err());
        // Saved up for an hour: a second's worth.
        let later = SECOND * 3600;
        assert_eq!(bucket.take(50, later), Ok(()));
        assert!(bucket.take(1, later).is_err());
        bucket.give_back(7);
        assert_eq!(bucket.take(7, later), Ok(()));
    }

    #[test]
    fn a_lower_rate_holds_at_once() {
        let mut bucket = TokenBucket::new(1_000, SECOND);
        bucket.set_rate(10, SECOND);
        assert_eq!(bucket.take(10, SECOND), Ok(()));
        assert_eq!(bucket.take(10, SECOND), Err(SECOND));
    }

    #[test]
    fn a_chunk_is_a_second_of_the_pace() {
        assert_eq!((chunk_size(0), chunk_size(1), chunk_size(50), chunk_size(u32::MAX)), (1, 1, 50, 500));
    }

    #[test]
    fn so_many_go_at_once_as_fit_and_one_at_least() {
        assert_eq!(within_bytes([BYTES_AT_ONCE * 2, 1]), 1);
        assert_eq!(within_bytes([5, BYTES_AT_ONCE - 5, 1]), 2);
        assert_eq!(within_bytes([i64::MAX, i64::MAX]), 1);
        assert_eq!(within_bytes([]), 0);
    }

    fn waiting(message_id: i64, key_hash: Option<i64>, tenant: Option<&str>) -> Waiting {
        Waiting { message_id, key_hash, tenant: tenant.map(str::to_owned) }
    }

    #[test]
    fn tenants_take_turns_and_a_flood_of_one_does_not_starve_another() {
        let mut all: Vec<Waiting> = (0..100).map(|n| waiting(n, None, Some("a"))).collect();
        all.extend((100..103).map(|n| waiting(n, None, Some("b"))));
        assert_eq!(fair(all)[..8], [0, 100, 1, 101, 2, 102, 3, 4]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_a_key_keeps_its_order(items in proptest::collection::vec((0..6_i64, 0..3_u8, any::<bool>()), 0..60)) {
            let all: Vec<Waiting> = (0..).zip(&items).map(|(id, (key, tenant, keyed))| {
                waiting(id, keyed.then_some(*key), Some(["a", "b", "c"][usize::from(*tenant)]))
            }).collect();
            let order = fair(all.clone());
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..all.len() as i64).collect::<Vec<_>>());
            for key in 0..6 {
                let of_key: Vec<i64> = order.iter().copied().filter(|id| all[*id as usize].key_hash == Some(key)).collect();
                prop_assert!(of_key.is_sorted());
            }
        }
    }
}
