//! Bounds on what a guest may allocate, summed over all memories, tables and instances of its store.
//!
//! wasmtime asks per memory and per table; a component has several of each, so the sums are kept here. A refused
//! growth is reported to the guest as usual (`memory.grow` gives -1); that it was refused is remembered until a later
//! growth succeeds, so that a guest that dies of it is said to be out of memory and not to have trapped, and one that
//! made do with less is not.
//!
//! What a store takes is also reserved in the budget that all guests of the host share. Memory that the budget or the system
//! does not give is refused in the same way, and is not the guest's fault.

use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_policy::limits::{Limit, Limits};
use wasmtime::ResourceLimiter;

use crate::engine::shortage;

/// Bytes of an element of a table: a pointer.
const ELEMENT: u64 = 8;

/// Who refused memory to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A limit of its own.
    Limit(Limit),
    /// The budget of all guests, of which it would have had so many bytes.
    Budget(u64),
    /// The system: the reason.
    System(String),
}

/// The sums of one store.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: u64,
    peak_memory: u64,
    most_memory: u64,
    elements: u64,
    most_elements: u64,
    instances: usize,
    memories: usize,
    tables: usize,
    refused: Option<Refused>,
    /// What the store holds of the host's budget, or is going to; `None`: it was not entered yet.
    reserved: Option<MemoryReservation>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory: 0,
            peak_memory: 0,
            most_memory: limits.memory,
            elements: 0,
            most_elements: limits.table_elements,
            instances: limits.instances,
            memories: limits.memories,
            tables: limits.tables,
            refused: None,
            reserved: None,
        }
    }

    /// Counts on from where another one stands, in the same store: what a guest holds is there whoever calls it.
    pub(crate) fn follow(&mut self, before: &mut Self) {
        (self.memory, self.peak_memory, self.elements) = (before.memory, before.memory, before.elements);
        self.reserved = before.reserved.take();
    }

    /// Gives the store what was reserved for it.
    pub(crate) fn hold(&mut self, reserved: MemoryReservation) {
        self.reserved = Some(reserved);
    }

    /// Draws on this budget from now on, unless something was reserved for the store.
    pub(crate) fn draw_on(&mut self, budget: &MemoryBudget) {
        if self.reserved.is_none() {
            self.reserved = budget.reserve(0);
        }
    }

    /// Gives back what was reserved and not used.
    pub(crate) fn give_back(&mut self) {
        let needed = self.bytes(self.memory, self.elements);
        if let Some(reserved) = self.reserved.as_mut().filter(|reserved| reserved.bytes() > needed) {
            let _shrinks = reserved.resize(needed);
        }
    }

    fn bytes(&self, memory: u64, elements: u64) -> u64 {
        memory.saturating_add(elements.saturating_mul(ELEMENT))
    }

    /// Takes memories and tables of these sizes, unless that is over a `limit`, over the guest's own maximum, or over
    /// what is left in the budget. Notes who refused it.
    fn grow(&mut self, memory: u64, elements: u64, limit: Option<Limit>, is_within_maximum: bool) -> bool {
        if let Some(limit) = limit {
            self.refused = Some(Refused::Limit(limit));
            return false;
        }
        if !is_within_maximum {
            return false;
        }
        let bytes = self.bytes(memory, elements);
        if let Some(reserved) = &mut self.reserved
            && bytes > reserved.bytes()
            && !reserved.resize(bytes)
        {
            self.refused = Some(Refused::Budget(bytes));
            return false;
        }
        self.refused = None;
        (self.memory, self.elements) = (memory, elements);
        self.peak_memory = self.peak_memory.max(memory);
        true
    }

    /// Whether the memories take half of what they may at most: the next call is to have room.
    pub(crate) fn has_room(&self) -> bool {
        self.memory <= self.most_memory / 2
    }

    /// Largest sum of memories so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.peak_memory
    }

    /// Who refused the last growth that was asked for, if somebody did.
    pub(crate) fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }
}

fn grown(sum: u64, current: usize, desired: usize) -> u64 {
    sum.saturating_add(desired as u64).saturating_sub(current as u64)
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let memory = grown(self.memory, current, desired);
        let limit = (memory > self.most_memory).then_some(Limit::Memory);
        Ok(self.grow(memory, self.elements, limit, maximum.is_none_or(|most| desired <= most)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = grown(self.elements, current, desired);
        let limit = (elements > self.most_elements).then_some(Limit::TableElements);
        Ok(self.grow(self.memory, elements, limit, maximum.is_none_or(|most| desired <= most)))
    }

    /// What was allowed above, and was not to be had. The sums stay too high: of a store to which this happens nothing is
    /// expected any more.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = shortage::of_error(&error).map(Refused::System).or(self.refused.take());
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
        let limits = Limits { memory: 100, table_elements: 10, ..Limits::default() };
        let mut limiter = Limiter::new(&limits);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!((limiter.refused(), limiter.peak_memory()), (Some(&Refused::Limit(Limit::Memory)), 100));
        assert!(!limiter.memory_growing(40, 50, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(limiter.refused(), None, "it made do with what there is");
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        assert_eq!(limiter.refused(), Some(&Refused::Limit(Limit::TableElements)));
    }

    #[test]
    fn a_guests_own_maximum_is_not_our_limit() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(!limiter.memory_growing(0, 200, Some(100)).unwrap());
        assert_eq!(limiter.refused(), None);
    }

    #[test]
    fn all_stores_share_the_budget_and_give_back_what_they_have() {
        let budget = MemoryBudget::new("guest_memory", 100);
        let limits = Limits { memory: 1000, table_elements: 10, ..Limits::default() };
        let [mut one, mut other] = [(); 2].map(|()| Limiter::new(&limits));
        one.draw_on(&budget);
        other.hold(budget.reserve(30).unwrap());
        assert!(one.memory_growing(0, 60, None).unwrap());
        assert!(!one.table_growing(0, 2, None).unwrap(), "30 are reserved for the other");
        assert_eq!(one.refused(), Some(&Refused::Budget(76)));
        assert!(other.memory_growing(0, 16, None).unwrap() && other.table_growing(0, 1, None).unwrap());
        assert_eq!(budget.used(), 90);
        other.give_back();
        assert_eq!(budget.used(), 84);
        let mut next = Limiter::new(&limits);
        next.follow(&mut other);
        drop(other);
        assert!(budget.used() == 84 && next.memory_growing(16, 32, None).unwrap());
        drop((one, next));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_the_system_refuses_is_no_limit() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        limiter.memory_grow_failed(wasmtime::Error::from(rustix::io::Errno::NOMEM)).unwrap();
        assert!(matches!(limiter.refused(), Some(Refused::System(_))), "{limiter:?}");
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        limiter
            .memory_grow_failed(wasmtime::Error::msg("memory growth exceeds memory type's limits"))
            .unwrap();
        assert_eq!(limiter.refused(), None);
    }
}
