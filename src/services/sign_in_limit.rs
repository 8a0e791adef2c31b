//! How often one client may try one name. In memory, per process: it slows guessing down, it is no lock-out that others could provoke.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

const WINDOW: Duration = Duration::from_secs(60);
/// More pairs than this within a minute are an attack from many addresses: new pairs are refused until the minute is over.
const PAIRS: usize = 10_000;
/// So many names a minute may one client try: else one machine could use up [`PAIRS`] and keep everybody out, or try one password on all
/// names.
const NAMES_OF_CLIENT: u32 = 100;

/// Counts attempts by client address and name.
#[derive(Debug)]
pub struct SignInLimit {
    per_minute: u32,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// By the name's hash: names come from anybody and may be long.
    attempts: HashMap<(Option<IpAddr>, [u8; 32]), Count>,
    names: HashMap<Option<IpAddr>, Count>,
}

#[derive(Debug)]
struct Count {
    since: Duration,
    count: u32,
}

impl Count {
    fn begun(since: Duration) -> Count {
        Count { since, count: 0 }
    }

    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) >= WINDOW
    }

    /// One more of at most `limit` in the window that runs. Errors: how long to wait.
    fn add(&mut self, limit: u32, now: Duration) -> Result<(), Duration> {
        if self.is_over(now) {
            *self = Count::begun(now);
        }
        if self.count >= limit {
            return Err(WINDOW.saturating_sub(now.saturating_sub(self.since)));
        }
        self.count += 1;
        Ok(())
    }
}

impl SignInLimit {
    pub fn new(per_minute: u32) -> SignInLimit {
        SignInLimit { per_minute, counts: Mutex::default() }
    }

    /// Counts one attempt at monotonic time `now`.
    ///
    /// # Errors
    /// How long to wait when there were too many.
    pub fn attempt(&self, client: Option<IpAddr>, name: &str, now: Duration) -> Result<(), Duration> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts { attempts, names } = &mut *counts;
        let client = client.map(network);
        let key = (client, Sha256::digest(name.trim().to_lowercase()).into());
        if attempts.len() >= PAIRS {
            attempts.retain(|_, count| !count.is_over(now));
            names.retain(|_, count| !count.is_over(now));
        }
        if attempts.get(&key).is_none_or(|count| count.is_over(now)) {
            if attempts.len() >= PAIRS {
                return Err(WINDOW);
            }
            names.entry(client).or_insert_with(|| Count::begun(now)).add(NAMES_OF_CLIENT, now)?;
        }
        attempts.entry(key).or_insert_with(|| Count::begun(now)).add(self.per_minute, now)
    }
}

/// Whoever has one IPv6 address has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_attempts_a_minute_for_a_name() {
        let limit = SignInLimit::new(2);
        let client = Some(IpAddr::from([127, 0, 0, 1]));
        let at = Duration::from_secs;
        assert_eq!(limit.attempt(client, "ana", at(0)), Ok(()));
        assert_eq!(limit.attempt(client, " ANA ", at(10)), Ok(()));
        assert_eq!(limit.attempt(client, "Ana", at(20)), Err(at(40)), "letter case and blanks make no new name");
        assert_eq!(limit.attempt(client, "ben", at(20)), Ok(()), "another name");
        assert_eq!(limit.attempt(None, "ana", at(20)), Ok(()), "another client");
        assert_eq!(limit.attempt(client, "ana", at(60)), Ok(()), "a minute later");
    }

    #[test]
    fn a_flood_of_names_keeps_out_only_where_it_comes_from() {
        let limit = SignInLimit::new(1);
        let (attacker, other) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        let let_through = (0..PAIRS).filter(|n| limit.attempt(attacker, &n.to_string(), Duration::ZERO).is_ok()).count();
        assert_eq!(let_through, NAMES_OF_CLIENT as usize);
        assert_eq!(limit.attempt(other, "ana", Duration::ZERO), Ok(()));
        assert_eq!(limit.attempt(attacker, "one more", WINDOW), Ok(()), "a minute later");
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let limit = SignInLimit::new(1);
        let at = |address: &str| limit.attempt(address.parse().ok(), "ana", Duration::ZERO);
        assert_eq!(at("2001:db8::1"), Ok(()));
        assert_eq!(at("2001:db8::ffff:1"), Err(WINDOW));
        assert_eq!(at("2001:db8:0:1::1"), Ok(()));
        assert_eq!(at("::ffff:10.0.0.1"), Ok(()));
        assert_eq!(at("10.0.0.1"), Err(WINDOW));
    }

    #[test]
    fn a_flood_from_many_clients_does_not_grow_without_end() {
        let limit = SignInLimit::new(1);
        let client = |n: usize| Some(IpAddr::from((n as u32).to_be_bytes()));
        for n in 0..PAIRS {
            assert_eq!(limit.attempt(client(n), "ana", Duration::ZERO), Ok(()));
        }
        assert_eq!(limit.attempt(None, "ana", Duration::from_secs(1)), Err(WINDOW));
        assert_eq!(limit.attempt(None, "ana", Duration::from_secs(61)), Ok(()));
        let counts = limit.counts.lock().unwrap();
        assert_eq!((counts.attempts.len(), counts.names.len()), (1, 1));
    }
}
