//! Wrong tokens: after too many of one address, the answer to another wrong one is to come back later.
//!
//! A token is always looked at before this budget: one that is valid is let in, whoever else guesses from the same address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_policy::serve::ServeLimits;

/// As many wrong tokens as are allowed in this time may come at once.
const BURST: Duration = Duration::from_secs(60);

/// The budget of wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// For each address, when its next failure would come if they came exactly as fast as they may.
    next: Mutex<HashMap<IpAddr, Instant>>,
}

impl Failures {
    /// Counts a wrong token of an address.
    ///
    /// # Errors
    /// There were too many, and it is not counted; says when one more may come.
    pub(crate) fn count(&self, address: IpAddr, limits: &ServeLimits) -> Result<(), Duration> {
        let now = Instant::now();
        let most = usize::try_from(limits.clients).unwrap_or(usize::MAX);
        let mut all = self.next.lock();
        if all.len() >= most && !all.contains_key(&address) {
            all.retain(|_, next| *next > now);
            // Whoever has the least to wait for loses the least by being forgotten.
            if all.len() >= most
                && let Some(least) = all.iter().min_by_key(|(_, next)| **next).map(|(address, _)| *address)
            {
                all.remove(&least);
            }
        }
        pace(all.entry(address).or_insert(now), BURST, limits.auth_failures_per_minute)
    }
}

/// Counts one more of what may come `most` times in this time, as many of them at once. `next`: when the next would come
/// if they came exactly as fast as they may.
///
/// # Errors
/// It came too early, and is not counted; says by how much.
pub(crate) fn pace(next: &mut Instant, time: Duration, most: u32) -> Result<(), Duration> {
    let now = Instant::now();
    let from = (*next).max(now);
    let ahead = from.saturating_duration_since(now);
    if ahead >= time {
        return Err(ahead.saturating_sub(time).max(Duration::from_millis(1)));
    }
    *next = from.checked_add(time / most.max(1)).unwrap_or(from);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_guesses_has_a_budget() {
        let failures = Failures::default();
        let limits = ServeLimits { auth_failures_per_minute: 6, ..ServeLimits::default() };
        assert!((0..6).all(|_| failures.count(address(1), &limits).is_ok()));
        let wait = failures.count(address(1), &limits).unwrap_err();
        assert!(wait <= Duration::from_secs(10), "{wait:?}");
        // What is over the budget does not prolong the wait.
        assert!((0..100).all(|_| failures.count(address(1), &limits).is_err()));
        assert!(failures.count(address(2), &limits).is_ok(), "another address");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(failures.count(address(1), &limits).is_ok() && failures.count(address(1), &limits).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let failures = Failures::default();
        let limits = ServeLimits { clients: 10, auth_failures_per_minute: 1, ..ServeLimits::default() };
        let guess = |last: u8| failures.count(address(last), &limits);
        let remembered = || failures.next.lock().len();
        // One that is told to wait stays, whatever crowd comes after it.
        assert!(guess(0).is_ok() && guess(0).is_err());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!((1..=100).all(|last| guess(last).is_ok()));
        assert_eq!(remembered(), 10);
        tokio::time::advance(Duration::from_secs(400)).await;
        assert!(guess(200).is_ok());
        assert_eq!(remembered(), 1, "what is over is forgotten when there is no room");
    }
}
