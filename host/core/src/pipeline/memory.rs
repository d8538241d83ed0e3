//! Memory budgets: a host reserves memory before it uses it, so it refuses work instead of running out of memory.
//!
//! A [`MemoryReservation`] takes bytes of a [`MemoryBudget`] and returns them when it is dropped. A host has one budget
//! for the memory of guests and one for results that are not delivered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::quantity;

use crate::tool::fault::{Fault, FaultKind};

/// The time after which a refused caller should retry: most calls end within it.
const RETRY: Duration = Duration::from_millis(500);

/// A limited number of bytes. Clones share the budget.
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

/// Reserved bytes of a budget. Dropping it returns them.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `limit` bytes. `key` is the key of the policy's `[host]` table that sets the limit.
    #[must_use]
    pub fn new(key: &'static str, limit: u64) -> Self {
        let (used, waiting) = (AtomicU64::new(0), AtomicU32::new(0));
        Self(Arc::new(Counter { key, limit, used, waiting, released: Notify::new() }))
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Reserved bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Acquire)
    }

    /// Bytes that are not reserved.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// Reserves `bytes`; `None` if fewer are free.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> Option<MemoryReservation> {
        self.take(bytes).then(|| MemoryReservation { budget: self.clone(), bytes })
    }

    /// Waits until `bytes` are free and reserves them.
    pub async fn reserve_when_free(&self, bytes: u64) -> MemoryReservation {
        self.wait_until(|| self.reserve(bytes)).await
    }

    /// Waits until `ready` returns a value. It is called again after each release of bytes.
    pub async fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let _waiting = WaiterGuard::new(&self.0.waiting);
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            // Enabled before the check, so that no release after the check is missed.
            released.as_mut().enable();
            if let Some(found) = ready() {
                return found;
            }
            released.await;
        }
    }

    /// The fault of a call for which `bytes` are not free: `busy` if other calls hold them, or `out_of_memory` if they
    /// exceed the limit.
    #[must_use]
    pub fn exhausted(&self, what: &str, bytes: u64) -> Fault {
        let limit = LimitHit {
            name: self.0.key,
            value: quantity::show_bytes(self.limit()),
            setting: LimitSetting::key("host", self.0.key),
        };
        if bytes > self.limit() {
            return Fault::by_limit(FaultKind::OutOfMemory, what, limit);
        }
        let what = format!("busy: {what}; try again in {}", quantity::show_duration(RETRY));
        Fault::by_limit(FaultKind::Busy, &what, limit).retry_after(RETRY)
    }

    /// Wakes all waiters ([`MemoryBudget::wait_until`]) after a change of state that they depend on.
    pub fn wake(&self) {
        // Checks the counter first: notifying takes a lock, and usually there are no waiters.
        if self.0.waiting.load(Ordering::Acquire) > 0 {
            self.0.released.notify_waiters();
        }
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.0.limit);
        bytes == 0 || self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
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
    /// The number of reserved bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget of the reservation.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Changes the reservation to `bytes`. Returns `false` and changes nothing if the budget has too few free bytes.
    /// Shrinking always succeeds.
    #[must_use = "the reservation did not grow if this returns `false`"]
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

/// Counts a waiter until it is dropped.
struct WaiterGuard<'a>(&'a AtomicU32);

impl<'a> WaiterGuard<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn reservations_never_exceed_the_limit_and_are_returned() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let mut one = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none() && budget.free() == 40);
        assert!(!one.resize(101) && one.bytes() == 60, "the reservation is unchanged");
        assert!(one.resize(100) && budget.reserve(1).is_none());
        assert!(one.resize(10) && budget.used() == 10);
        drop(one);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(u64::MAX).is_none() && budget.reserve(100).is_some());
    }

    #[tokio::test]
    async fn a_waiter_gets_released_bytes() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let mut one = budget.reserve(100).unwrap();
        let mut waits = Box::pin(budget.reserve_when_free(30));
        assert!((&mut waits).now_or_never().is_none());
        assert!(one.resize(71));
        assert!((&mut waits).now_or_never().is_none(), "29 bytes are not enough");
        drop(one);
        assert_eq!(waits.await.bytes(), 30);
        assert_eq!(budget.0.waiting.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_used_up_budget_is_busy_and_a_too_large_request_names_the_limit() {
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
