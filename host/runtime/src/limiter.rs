//! Bounds on what a guest may allocate, summed over all memories, tables and instances of its store.
//!
//! wasmtime asks per memory and per table; a component has several of each, so the sums are kept here. A refused
//! growth is reported to the guest as usual (`memory.grow` gives -1); that it was refused is remembered until a later
//! growth succeeds, so that a guest that dies of it is said to be out of memory and not to have trapped, and one that
//! made do with less is not.

use toolbay_core::limits::{Limit, Limits};
use wasmtime::ResourceLimiter;

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
    refused: Option<Limit>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory: 0,
            peak_memory: 0,
            most_memory: limits.memory_bytes,
            elements: 0,
            most_elements: limits.table_elements,
            instances: limits.instances,
            memories: limits.memories,
            tables: limits.tables,
            refused: None,
        }
    }

    /// Counts on from where another one stands, in the same store: what a guest holds is there whoever calls it.
    pub(crate) fn follow(&mut self, before: &Self) {
        (self.memory, self.peak_memory, self.elements) = (before.memory, before.memory, before.elements);
    }

    /// Whether the memories take half of what they may at most: the next call is to have room.
    pub(crate) fn has_room(&self) -> bool {
        self.memory <= self.most_memory / 2
    }

    /// Largest sum of memories so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.peak_memory
    }

    /// The limit that refused the last growth that was asked for, if one did.
    pub(crate) fn refused(&self) -> Option<Limit> {
        self.refused
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
        let sum = grown(self.memory, current, desired);
        if sum > self.most_memory {
            self.refused = Some(Limit::Memory);
            return Ok(false);
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.refused = None;
        self.memory = sum;
        self.peak_memory = self.peak_memory.max(sum);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let sum = grown(self.elements, current, desired);
        if sum > self.most_elements {
            self.refused = Some(Limit::TableElements);
            return Ok(false);
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.refused = None;
        self.elements = sum;
        Ok(true)
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
        let limits = Limits { memory_bytes: 100, table_elements: 10, ..Limits::default() };
        let mut limiter = Limiter::new(&limits);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert_eq!(limiter.refused(), None);
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!((limiter.refused(), limiter.peak_memory()), (Some(Limit::Memory), 100));
        assert!(!limiter.memory_growing(40, 50, None).unwrap());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(limiter.refused(), None, "it made do with what there is");
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        assert_eq!(limiter.refused(), Some(Limit::TableElements));
    }

    #[test]
    fn a_guests_own_maximum_is_not_our_limit() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(!limiter.memory_growing(0, 200, Some(100)).unwrap());
        assert_eq!(limiter.refused(), None);
    }
}
