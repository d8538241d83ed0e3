//! Memory budgets: bytes that a host reserves before it uses them, so that it refuses work instead of running out.
//!
//! A [`MemoryBudget`] has a limit; a [`MemoryReservation`] takes part of it and gives the part back when it is dropped. A host
//! has one budget for the memory of guests and one for results that are not delivered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

use crate::call::fault::{Fault, FaultKind};

/// After this time a caller may try again to whom a budget had nothing left: most calls end within it.
const RETRY: Duration = Duration::from_millis(500);

/// A number of bytes that reservations share. Clones are one budget.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    key: &'static str,
    limit: u64,
    used: AtomicU64,
    waiting: AtomicU32,
    released: Notify,
}

/// Bytes of a budget, until they are dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes, which the key `key` of the policy's `[host]` table sets.
    #[must_use]
    pub fn new(key: &'static str, limit: u64) -> Self {
        let (used, waiting) = (AtomicU64::new(0), AtomicU32::new(0));
        Self(Arc::new(Counter { key, limit, used, waiting, released: Notify::new() }))
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Acquire)
    }

    /// Bytes that are left.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Reserves `bytes`; `None`: so many are not left.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> Option<MemoryReservation> {
        self.take(bytes).then(|| MemoryReservation { budget: self.clone(), bytes })
    }

    /// Reserves `bytes` as soon as they are left.
    pub async fn reserve_later(&self, bytes: u64) -> MemoryReservation {
        self.wait_until(|| self.reserve(bytes)).await
    }

    /// Waits until `ready` returns something. It is asked again whenever a reservation has given bytes back.
    pub async fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let _waiting = Waiting::of(&self.0.waiting);
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            // Before the look: what is released after it is not missed.
            released.as_mut().enable();
            if let Some(found) = ready() {
                return found;
            }
            released.await;
        }
    }

    /// The fault of a call for which `bytes` are not left: `busy` if others hold them, else the limit that is too small.
    #[must_use]
    pub fn exhausted(&self, what: &str, bytes: u64) -> Fault {
        let limit = LimitHit {
            name: self.0.key,
            value: quantity::show_bytes(self.limit()),
            setting: format!("[host] {} = …", self.0.key),
        };
        if bytes > self.limit() {
            return Fault::by_limit(FaultKind::OutOfMemory, what, limit);
        }
        let what = format!("busy: {what}; try again in {}", quantity::show_duration(RETRY));
        Fault::by_limit(FaultKind::Busy, &what, limit).retry_after(RETRY)
    }

    /// Lets those look again who wait ([`MemoryBudget::wait_until`]): what they look at has changed.
    pub fn wake(&self) {
        // A look at a number: most of the time nobody waits, and to notify takes a lock.
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            self.0.released.notify_waiters();
        }
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.0.limit);
        bytes == 0 || self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.0.used.fetch_sub(bytes, Ordering::AcqRel);
        self.wake();
    }
}

impl MemoryReservation {
    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its budget.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Changes it to `bytes`; `false`: so many are not left, and it stays as it is. To shrink always works.
    #[must_use = "where it did not grow, there is no memory"]
    pub fn resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes {
            if !self.budget.take(bytes - self.bytes) {
                return false;
            }
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// One that waits, counted.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn of(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn no_more_is_reserved_than_there_is_and_all_is_given_back() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let mut one = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none() && budget.free() == 40);
        assert!(!one.resize(101) && one.bytes() == 60, "it stays as it is");
        assert!(one.resize(100) && budget.reserve(1).is_none());
        assert!(one.resize(10) && budget.used() == 10);
        drop(one);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(u64::MAX).is_none() && budget.reserve(100).is_some());
    }

    #[tokio::test]
    async fn who_waits_gets_what_is_given_back() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let mut one = budget.reserve(100).unwrap();
        let mut waits = Box::pin(budget.reserve_later(30));
        assert!((&mut waits).now_or_never().is_none());
        assert!(one.resize(71));
        assert!((&mut waits).now_or_never().is_none(), "29 are not 30");
        drop(one);
        assert_eq!(waits.await.bytes(), 30);
        assert_eq!(budget.0.waiting.load(Ordering::Acquire), 0);
    }

    #[test]
    fn what_others_hold_is_busy_and_what_is_too_large_names_the_limit() {
        let budget = MemoryBudget::new("guest_memory", 1 << 20);
        let busy = budget.exhausted("no memory is left", 5);
        assert_eq!((busy.kind, busy.retry_after_ms), (FaultKind::Busy, Some(500)));
        let never = budget.exhausted("no memory is left", 2 << 20);
        assert_eq!((never.kind, never.retry_after_ms), (FaultKind::OutOfMemory, None));
        for fault in [busy, never] {
            assert!(fault.message.contains("`guest_memory` is 1MiB"), "{fault}");
            assert!(fault.for_operator().contains("[host] guest_memory = …"), "{fault}");
        }
    }
}
