//! Rate limit for wrong tokens: an address that sent too many gets a time to retry.
//!
//! The server checks a token before this limit. A valid token is accepted even while others guess from the same
//! address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_policy::serve::ServeLimits;

/// The wrong tokens allowed within this time may arrive in one burst.
const BURST: Duration = Duration::from_secs(60);

/// Limits the wrong tokens of each client address.
#[derive(Debug, Default)]
pub(crate) struct AuthFailureLimiter {
    /// For each address, the theoretical arrival time of its next failure (GCRA).
    next_allowed: Mutex<HashMap<IpAddr, Instant>>,
}

impl AuthFailureLimiter {
    /// Records a wrong token of an address.
    ///
    /// # Errors
    /// The address is over its limit. The failure is not counted; the error is the time until the next attempt.
    pub(crate) fn record_failure(&self, address: IpAddr, limits: &ServeLimits) -> Result<(), Duration> {
        let now = Instant::now();
        let most = usize::try_from(limits.clients).unwrap_or(usize::MAX);
        let mut all = self.next_allowed.lock();
        if all.len() >= most && !all.contains_key(&address) {
            all.retain(|_, next| *next > now);
            // Forgetting the shortest wait weakens the limit least.
            if all.len() >= most
                && let Some(least) = all.iter().min_by_key(|(_, next)| **next).map(|(address, _)| *address)
            {
                all.remove(&least);
            }
        }
        check_rate(all.entry(address).or_insert(now), BURST, limits.auth_failures_per_minute)
    }
}

/// Counts one event of a rate of `most` per `time`; all of them may arrive in one burst. `next` is the theoretical
/// arrival time of the next event (GCRA).
///
/// # Errors
/// The event came too early and is not counted. The error is the time until the next allowed event.
pub(crate) fn check_rate(next: &mut Instant, time: Duration, most: u32) -> Result<(), Duration> {
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
    async fn an_address_has_a_budget_of_wrong_tokens() {
        let failures = AuthFailureLimiter::default();
        let limits = ServeLimits { auth_failures_per_minute: 6, ..ServeLimits::default() };
        assert!((0..6).all(|_| failures.record_failure(address(1), &limits).is_ok()));
        let wait = failures.record_failure(address(1), &limits).unwrap_err();
        assert!(wait <= Duration::from_secs(10), "{wait:?}");
        // Attempts over the limit do not prolong the wait.
        assert!((0..100).all(|_| failures.record_failure(address(1), &limits).is_err()));
        assert!(failures.record_failure(address(2), &limits).is_ok(), "another address");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(
            failures.record_failure(address(1), &limits).is_ok()
                && failures.record_failure(address(1), &limits).is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_remembered_addresses_is_bounded() {
        let failures = AuthFailureLimiter::default();
        let limits = ServeLimits { clients: 10, auth_failures_per_minute: 1, ..ServeLimits::default() };
        let guess = |last: u8| failures.record_failure(address(last), &limits);
        let remembered = || failures.next_allowed.lock().len();
        // An address that has to wait stays, however many others follow.
        assert!(guess(0).is_ok() && guess(0).is_err());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!((1..=100).all(|last| guess(last).is_ok()));
        assert_eq!(remembered(), 10);
        tokio::time::advance(Duration::from_secs(400)).await;
        assert!(guess(200).is_ok());
        assert_eq!(remembered(), 1, "addresses without a wait are forgotten when the table is full");
    }
}
