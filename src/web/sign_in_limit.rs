//! How often one client may try one name. In memory, per process: it slows guessing down, it is no lock-out that others could provoke.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
/// More pairs than this within a minute are an attack: new pairs are refused until the minute is over.
const PAIRS: usize = 10_000;

/// Counts attempts by client address and name.
#[derive(Debug)]
pub struct SignInLimit {
    per_minute: u32,
    attempts: Mutex<HashMap<(Option<IpAddr>, String), Attempts>>,
}

#[derive(Debug)]
struct Attempts {
    since: Duration,
    count: u32,
}

impl SignInLimit {
    pub fn new(per_minute: u32) -> SignInLimit {
        SignInLimit { per_minute, attempts: Mutex::default() }
    }

    /// Counts one attempt at monotonic time `now`.
    ///
    /// # Errors
    /// How long to wait when there were too many.
    pub fn attempt(&self, client: Option<IpAddr>, name: &str, now: Duration) -> Result<(), Duration> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (client, name.trim().to_lowercase());
        if attempts.len() >= PAIRS {
            attempts.retain(|_, attempts| now.saturating_sub(attempts.since) < WINDOW);
        }
        if attempts.len() >= PAIRS && !attempts.contains_key(&key) {
            return Err(WINDOW);
        }
        let entry = attempts.entry(key).or_insert(Attempts { since: now, count: 0 });
        if now.saturating_sub(entry.since) >= WINDOW {
            *entry = Attempts { since: now, count: 0 };
        }
        if entry.count >= self.per_minute {
            return Err(WINDOW.saturating_sub(now.saturating_sub(entry.since)));
        }
        entry.count += 1;
        Ok(())
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
    fn a_flood_of_names_does_not_grow_without_end() {
        let limit = SignInLimit::new(1);
        for n in 0..PAIRS {
            assert_eq!(limit.attempt(None, &n.to_string(), Duration::ZERO), Ok(()));
        }
        assert_eq!(limit.attempt(None, "one more", Duration::from_secs(1)), Err(WINDOW));
        assert_eq!(limit.attempt(None, "one more", Duration::from_secs(61)), Ok(()));
    }
}
