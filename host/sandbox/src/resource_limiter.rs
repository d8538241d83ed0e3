//! Limits what a guest may allocate, in total over all memories, tables and instances of its store.
//!
//! wasmtime asks for each memory and each table. A component has several of both, so this limiter keeps the totals. The
//! guest sees a refused growth as usual: `memory.grow` returns -1. The limiter remembers the refusal until a later
//! growth succeeds. A guest that traps after a refusal is reported as out of memory; one that recovered is not.
//!
//! A store also reserves its memory in the budget that all guests of the host share. When the budget or the system
//! refuses memory, the guest sees the same refusal, but the failure is not attributed to it.

use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_policy::limits::{CallLimits, Limit};
use wasmtime::ResourceLimiter;

use crate::shortage;

/// Bytes of a table element: one pointer.
const TABLE_ELEMENT_BYTES: u64 = 8;

/// Why a guest's memory or table was not grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GrowthRefusal {
    /// The plugin's own limit.
    Limit(Limit),
    /// The budget of all guests. The store needed this many bytes in total.
    Budget(u64),
    /// The operating system, with the resource that it lacks.
    System(&'static str),
}

/// The memory and table usage of one store, with its limits.
#[derive(Debug)]
pub struct GuestResourceLimiter {
    memory: u64,
    peak_memory: u64,
    max_memory: u64,
    elements: u64,
    max_elements: u64,
    instances: usize,
    memories: usize,
    tables: usize,
    refusal: Option<GrowthRefusal>,
    /// The store's share of the host's budget; `None` before the first entry.
    reservation: Option<MemoryReservation>,
}

impl GuestResourceLimiter {
    /// A limiter of an empty store.
    #[must_use]
    pub fn new(limits: &CallLimits) -> Self {
        Self {
            memory: 0,
            peak_memory: 0,
            max_memory: limits.memory,
            elements: 0,
            max_elements: limits.table_elements,
            instances: limits.instances,
            memories: limits.memories,
            tables: limits.tables,
            refusal: None,
            reservation: None,
        }
    }

    /// Takes over the usage of the previous call in the same store. The guest keeps its memory between calls.
    pub fn inherit_usage(&mut self, before: &mut Self) {
        (self.memory, self.peak_memory, self.elements) = (before.memory, before.memory, before.elements);
        self.reservation = before.reservation.take();
    }

    /// Sets the memory that was reserved for the store.
    pub fn set_reservation(&mut self, reserved: MemoryReservation) {
        self.reservation = Some(reserved);
    }

    /// Reserves memory in this budget from now on, unless the store already has a reservation.
    pub(crate) fn use_budget(&mut self, budget: &MemoryBudget) {
        if self.reservation.is_none() {
            self.reservation = budget.reserve(0);
        }
    }

    /// Releases reserved memory that the store does not use.
    pub fn release_unused(&mut self) {
        let needed = self.bytes(self.memory, self.elements);
        if let Some(reserved) = self.reservation.as_mut().filter(|reserved| reserved.bytes() > needed) {
            let _shrinks = reserved.resize(needed);
        }
    }

    fn bytes(&self, memory: u64, elements: u64) -> u64 {
        memory.saturating_add(elements.saturating_mul(TABLE_ELEMENT_BYTES))
    }

    /// Grows to these totals, unless that exceeds a `limit`, the maximum that the guest declared, or the budget.
    /// Records the reason of a refusal.
    fn grow(&mut self, memory: u64, elements: u64, limit: Option<Limit>, is_within_maximum: bool) -> bool {
        if let Some(limit) = limit {
            self.refusal = Some(GrowthRefusal::Limit(limit));
            return false;
        }
        if !is_within_maximum {
            return false;
        }
        let bytes = self.bytes(memory, elements);
        if let Some(reserved) = &mut self.reservation
            && bytes > reserved.bytes()
            && !reserved.resize(bytes)
        {
            self.refusal = Some(GrowthRefusal::Budget(bytes));
            return false;
        }
        self.refusal = None;
        (self.memory, self.elements) = (memory, elements);
        self.peak_memory = self.peak_memory.max(memory);
        true
    }

    /// Whether at most half of the memory limit is used, so that the next call has room.
    pub fn has_room(&self) -> bool {
        self.memory <= self.max_memory / 2
    }

    /// The largest total size of the memories so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.peak_memory
    }

    /// The refusal of the latest growth; `None` if it succeeded.
    pub(crate) fn last_refusal(&self) -> Option<&GrowthRefusal> {
        self.refusal.as_ref()
    }
}

fn grown_total(sum: u64, current: usize, desired: usize) -> u64 {
    sum.saturating_add(desired as u64).saturating_sub(current as u64)
}

impl ResourceLimiter for GuestResourceLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let memory = grown_total(self.memory, current, desired);
        let limit = (memory > self.max_memory).then_some(Limit::Memory);
        Ok(self.grow(memory, self.elements, limit, maximum.is_none_or(|max| desired <= max)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = grown_total(self.elements, current, desired);
        let limit = (elements > self.max_elements).then_some(Limit::TableElements);
        Ok(self.grow(self.memory, elements, limit, maximum.is_none_or(|max| desired <= max)))
    }

    /// Records that the system refused a growth that the limiter had allowed. The totals stay too high, which is
    /// acceptable because the store is not used again.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refusal = shortage::from_error(&error).map(GrowthRefusal::System).or(self.refusal.take());
        Ok(())
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory_grow_failed(error)
    }

    fn instances(&self) -> usize {
        self.instances
    }
    fn memories(&self) -> usize {
        self.memories
    }
    fn tables(&self) -> usize {
        self.tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_summed() {
        let limits = CallLimits { memory: 100, table_elements: 10, ..CallLimits::default() };
        let mut limiter = GuestResourceLimiter::new(&limits);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.last_refusal(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!(
            (limiter.last_refusal(), limiter.peak_memory()),
            (Some(&GrowthRefusal::Limit(Limit::Memory)), 100)
        );
        assert!(!limiter.memory_growing(40, 50, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(limiter.last_refusal(), None, "the guest continued with less memory");
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        assert_eq!(limiter.last_refusal(), Some(&GrowthRefusal::Limit(Limit::TableElements)));
    }

    #[test]
    fn the_maximum_that_a_guest_declares_is_not_reported_as_a_limit() {
        let mut limiter = GuestResourceLimiter::new(&CallLimits::default());
        assert!(!limiter.memory_growing(0, 200, Some(100)).unwrap());
        assert_eq!(limiter.last_refusal(), None);
    }

    #[test]
    fn all_stores_share_the_budget_and_release_their_share() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let limits = CallLimits { memory: 1000, table_elements: 10, ..CallLimits::default() };
        let [mut one, mut other] = [(); 2].map(|()| GuestResourceLimiter::new(&limits));
        one.use_budget(&budget);
        other.set_reservation(budget.reserve(30).unwrap());
        assert!(one.memory_growing(0, 60, None).unwrap());
        assert!(!one.table_growing(0, 2, None).unwrap(), "30 bytes are reserved for the other store");
        assert_eq!(one.last_refusal(), Some(&GrowthRefusal::Budget(76)));
        assert!(other.memory_growing(0, 16, None).unwrap() && other.table_growing(0, 1, None).unwrap());
        assert_eq!(budget.used(), 90);
        other.release_unused();
        assert_eq!(budget.used(), 84);
        let mut next = GuestResourceLimiter::new(&limits);
        next.inherit_usage(&mut other);
        drop(other);
        assert!(budget.used() == 84 && next.memory_growing(16, 32, None).unwrap());
        drop((one, next));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn memory_that_the_system_refuses_is_not_reported_as_a_limit() {
        let mut limiter = GuestResourceLimiter::new(&CallLimits::default());
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::from(rustix::io::Errno::NOMEM)).unwrap();
        assert!(matches!(limiter.last_refusal(), Some(GrowthRefusal::System(_))), "{limiter:?}");
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        limiter
            .memory_grow_failed(wasmtime::Error::msg("memory growth exceeds memory type's limits"))
            .unwrap();
        assert_eq!(limiter.last_refusal(), None);
    }
}
