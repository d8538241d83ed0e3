//! Wrong tokens: an address from which too many came has to wait before the next one is looked at.
//!
//! Behind a proxy or a gateway many clients have one address, and who guesses there must not shut the others out: a token
//! that was right lately is looked at all the same. What is remembered of it is a keyed hash, of no use to anybody else.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;
use toolbay_core::serve::ServeLimits;

/// As many wrong tokens as are allowed in this time may come at once.
const BURST: Duration = Duration::from_secs(60);
/// Tokens that are remembered to have been right: this many of the latest, and as many of before.
const MAX_RIGHT: usize = 10_000;

/// What is remembered of tokens.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// For each address, when its next failure would come if they came exactly as fast as they may.
    next: Mutex<HashMap<IpAddr, Instant>>,
    right: RwLock<Right>,
    hasher: RandomState,
}

/// Tokens that were right, in two halves: the older one goes when the younger one is full.
#[derive(Debug, Default)]
struct Right {
    younger: HashSet<u64>,
    older: HashSet<u64>,
}

impl Failures {
    /// Whether a token of this address is looked at now.
    ///
    /// # Errors
    /// It is not; says when one will be.
    pub(super) fn check(&self, peer: IpAddr, token: &[u8]) -> Result<(), Duration> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).get(&peer).copied();
        let ahead = next.map(|next| next.saturating_duration_since(Instant::now())).unwrap_or_default();
        if ahead < BURST || self.was_right(token) {
            return Ok(());
        }
        Err(ahead.saturating_sub(BURST).max(Duration::from_millis(1)))
    }

    /// Remembers a token that was right.
    pub(super) fn was_let_in(&self, token: &[u8]) {
        if self.was_right(token) {
            return;
        }
        let mut right = self.right.write().unwrap_or_else(PoisonError::into_inner);
        if right.younger.len() >= MAX_RIGHT {
            right.older = std::mem::take(&mut right.younger);
        }
        right.younger.insert(self.hasher.hash_one(token));
    }

    /// Counts one that was wrong.
    pub(super) fn was_refused(&self, peer: IpAddr, token: &[u8], limits: &ServeLimits) {
        let hash = self.hasher.hash_one(token);
        if self.was_right(token) {
            let mut right = self.right.write().unwrap_or_else(PoisonError::into_inner);
            right.younger.remove(&hash);
            right.older.remove(&hash);
        }
        let now = Instant::now();
        let mut all = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= usize::try_from(limits.clients).unwrap_or(usize::MAX) && !all.contains_key(&peer) {
            all.retain(|_, next| *next > now);
            // Whoever has the least to wait for loses the least by being forgotten.
            if all.len() >= usize::try_from(limits.clients).unwrap_or(usize::MAX)
                && let Some(least) = all.iter().min_by_key(|(_, next)| **next).map(|(peer, _)| *peer)
            {
                all.remove(&least);
            }
        }
        let next = all.entry(peer).or_insert(now);
        let from = (*next).max(now);
        *next = from.checked_add(BURST / limits.auth_failures_per_minute.max(1)).unwrap_or(from);
    }

    fn was_right(&self, token: &[u8]) -> bool {
        let hash = self.hasher.hash_one(token);
        let right = self.right.read().unwrap_or_else(PoisonError::into_inner);
        right.younger.contains(&hash) || right.older.contains(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test(start_paused = true)]
    async fn who_guesses_has_to_wait_and_who_was_let_in_before_has_not() {
        let failures = Failures::default();
        let limits = ServeLimits { auth_failures_per_minute: 6, ..ServeLimits::default() };
        failures.was_let_in(b"good");
        for _ in 0..6 {
            assert!(failures.check(address(1), b"guess").is_ok());
            failures.was_refused(address(1), b"guess", &limits);
        }
        let wait = failures.check(address(1), b"guess").unwrap_err();
        assert!(wait <= Duration::from_secs(10), "{wait:?}");
        assert!(failures.check(address(1), b"another").is_err());
        assert!(failures.check(address(1), b"good").is_ok(), "a neighbour of who guesses");
        assert!(failures.check(address(2), b"guess").is_ok(), "another address");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(failures.check(address(1), b"guess").is_ok(), "one more");
        failures.was_refused(address(1), b"guess", &limits);
        assert!(failures.check(address(1), b"guess").is_err());
        // A token that is not right any more is like any other.
        failures.was_refused(address(1), b"good", &limits);
        assert!(failures.check(address(1), b"good").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let failures = Failures::default();
        let limits = ServeLimits { clients: 10, auth_failures_per_minute: 1, ..ServeLimits::default() };
        let guess = |last: u8| failures.was_refused(address(last), b"x", &limits);
        let remembered = || failures.next.lock().unwrap().len();
        // One that is told to wait stays, whatever crowd comes after it.
        (0..3).for_each(|_| guess(0));
        (1..=100).for_each(guess);
        assert_eq!(remembered(), 10);
        assert!(failures.check(address(0), b"x").is_err());
        tokio::time::advance(Duration::from_secs(400)).await;
        guess(200);
        assert_eq!(remembered(), 1, "what is over is forgotten when there is no room");

        for n in 0..3 * u32::try_from(MAX_RIGHT).unwrap() {
            failures.was_let_in(&n.to_be_bytes());
        }
        let right = failures.right.read().unwrap();
        assert!(right.younger.len() + right.older.len() <= 2 * MAX_RIGHT);
    }
}
