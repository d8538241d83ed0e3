//! Limits the attempts to guess a token, by address and in total.
//!
//! A token that was accepted before is no guess: operators who are signed in, and programs that read metrics, are served
//! while others guess from the same address. Every other token counts before it is looked up.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use toolbay_state::digest::Digest;

use crate::tokens::MAX_TOKENS;

/// The time in which an address, or all of them, have their attempts. All of them may come at once.
const BURST: Duration = Duration::from_secs(60);
/// Most attempts of one address in that time: a person mistypes a few times.
const PER_ADDRESS: u32 = 10;
/// Most attempts of all addresses in that time. First attempts of addresses have a budget of their own, of the same size: so
/// those who guess do not take the first attempt of a person who signs in.
const TOTAL: u32 = 60;
/// Most addresses that are remembered. Further ones share one budget.
const MAX_ADDRESSES: usize = 1024;

/// Limits the attempts of a listener.
#[derive(Debug, Default)]
pub(crate) struct AttemptLimiter {
    state: Mutex<AttemptState>,
}

#[derive(Debug, Default)]
struct AttemptState {
    accepted: HashSet<Digest>,
    total: AttemptBudget,
    /// The budget of the first attempts of addresses.
    first: AttemptBudget,
    by_address: HashMap<IpAddr, AttemptBudget>,
    /// The budget of clients without an address, and of those beyond [`MAX_ADDRESSES`].
    others: AttemptBudget,
}

/// The attempts of one address, or of all.
#[derive(Debug, Default)]
struct AttemptBudget {
    /// The theoretical arrival time of the next attempt (GCRA).
    next: Option<Instant>,
}

impl AttemptBudget {
    /// How long the next attempt has to wait.
    fn wait(&self, now: Instant) -> Option<Duration> {
        let ahead = self.next?.saturating_duration_since(now);
        (ahead >= BURST).then(|| ahead.saturating_sub(BURST).max(Duration::from_secs(1)))
    }

    /// Whether all attempts are left.
    fn is_unused(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    fn count(&mut self, now: Instant, most: u32) {
        let from = self.next.unwrap_or(now).max(now);
        self.next = from.checked_add(BURST / most);
    }
}

impl AttemptLimiter {
    /// Counts an attempt with a token that was not accepted before.
    ///
    /// # Errors
    /// There were too many attempts. The error is the time until the next one, which is not counted.
    pub(crate) fn begin(&self, hash: &Digest, client: Option<IpAddr>) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.accepted.contains(hash) {
            return Ok(());
        }
        let state = &mut *state;
        if state.by_address.len() >= MAX_ADDRESSES {
            state.by_address.retain(|_, budget| budget.next.is_some_and(|next| next > now));
        }
        let is_full = state.by_address.len() >= MAX_ADDRESSES;
        let of_client = match client.map(network) {
            Some(address) if !is_full || state.by_address.contains_key(&address) => {
                state.by_address.entry(address).or_default()
            }
            Some(_) | None => &mut state.others,
        };
        let total = if of_client.is_unused(now) { &mut state.first } else { &mut state.total };
        if let Some(wait) = of_client.wait(now).max(total.wait(now)) {
            return Err(wait);
        }
        of_client.count(now, PER_ADDRESS);
        total.count(now, TOTAL);
        Ok(())
    }

    /// Notes whether a token was accepted.
    pub(crate) fn end(&self, hash: &Digest, is_accepted: bool) {
        let accepted = &mut self.state.lock().accepted;
        if !is_accepted {
            accepted.remove(hash);
        } else if accepted.len() < MAX_TOKENS {
            accepted.insert(*hash);
        }
    }
}

/// What counts as one address: of IPv6, the network of 64 bits that one client has (RFC 6177).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn guess(attempts: &AttemptLimiter, client: Option<IpAddr>) -> bool {
        let hash = Digest::of(b"guess");
        let is_allowed = attempts.begin(&hash, client).is_ok();
        if is_allowed {
            attempts.end(&hash, false);
        }
        is_allowed
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_few_attempts_and_all_have_a_budget_together() {
        let attempts = AttemptLimiter::default();
        let of_one = (0..1000).filter(|_| guess(&attempts, address(1))).count();
        assert_eq!(of_one, PER_ADDRESS as usize);
        let of_all: usize =
            (2..250).map(|last| (0..100).filter(|_| guess(&attempts, address(last))).count()).sum();
        // The first attempts and all others.
        assert_eq!(of_one + of_all, 2 * TOTAL as usize);
        assert!(!guess(&attempts, None));
        tokio::time::advance(BURST).await;
        assert!(guess(&attempts, address(1)) && guess(&attempts, None));
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_guess_do_not_take_the_first_attempt_of_another_address() {
        let attempts = AttemptLimiter::default();
        for last in 1..30 {
            while guess(&attempts, address(last)) {}
        }
        assert!(attempts.begin(&Digest::of(b"own"), address(200)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_of_ipv6_is_one_address() {
        let attempts = AttemptLimiter::default();
        let of = |host: u128| Some(IpAddr::from(((0x2001_0db8 << 96) | host).to_be_bytes()));
        assert_eq!((0..1000).filter(|host| guess(&attempts, of(*host))).count(), PER_ADDRESS as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_accepted_before_is_no_guess_until_it_is_removed() {
        let attempts = AttemptLimiter::default();
        let own = Digest::of(b"own");
        assert!(attempts.begin(&own, address(1)).is_ok());
        attempts.end(&own, true);
        while guess(&attempts, address(1)) {}
        assert!(attempts.begin(&own, address(1)).is_ok());
        attempts.end(&own, false);
        assert!(attempts.begin(&own, address(1)).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_remembered_addresses_is_bounded() {
        let attempts = AttemptLimiter::default();
        for n in 0..5000_u32 {
            guess(&attempts, Some(IpAddr::from(n.to_be_bytes())));
            tokio::time::advance(BURST / TOTAL).await;
        }
        assert!(attempts.state.lock().by_address.len() <= MAX_ADDRESSES);
    }
}
