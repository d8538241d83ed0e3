//! What a call is expected to take of the memory for guests, and how it waits for that.
//!
//! A call reserves what the calls of its tool took lately, so that it waits for memory before it runs and not in the middle of
//! its work. What it takes beyond is reserved when its memory grows ([`crate::engine::limiter`]).

use std::sync::atomic::{AtomicU64, Ordering};

use toolbay_core::call::CallContext;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_policy::limits::Limits;

use crate::plugins::plugin::Shared;

/// The largest memories of a tool's last calls, in bytes.
#[derive(Debug, Default)]
pub(crate) struct UsualMemory(AtomicU64);

impl UsualMemory {
    /// Notes what a call took. The expectation follows a larger one at once, and smaller ones slowly.
    pub(crate) fn note(&self, bytes: u64) {
        let known = self.0.load(Ordering::Relaxed);
        let expected = bytes.max(known - known / 8);
        if expected != known {
            self.0.store(expected, Ordering::Relaxed);
        }
    }

    /// Reserves memory for a call. Idle instances make room; a call that another one makes does not wait, because that one
    /// holds memory meanwhile.
    pub(crate) async fn reserve(
        &self,
        shared: &Shared,
        limits: &Limits,
        ctx: &CallContext,
    ) -> Result<MemoryReservation, Fault> {
        let budget = shared.engines.memory();
        let bytes = self.0.load(Ordering::Relaxed).min(limits.memory).min(budget.limit());
        match budget.reserve(bytes) {
            Some(reserved) => Ok(reserved),
            // Boxed: few calls wait, and every call would have room for it.
            None => Box::pin(wait(shared, budget, bytes, ctx)).await,
        }
    }

    /// Whether so much memory is left that instances may stay idle in it.
    pub(crate) fn leaves_room(shared: &Shared) -> bool {
        let budget = shared.engines.memory();
        budget.used() <= budget.limit() / 2
    }
}

async fn wait(
    shared: &Shared,
    budget: &MemoryBudget,
    bytes: u64,
    ctx: &CallContext,
) -> Result<MemoryReservation, Fault> {
    while shared.warm.end_oldest() {
        if let Some(reserved) = budget.reserve(bytes) {
            return Ok(reserved);
        }
    }
    let exhausted = || budget.exhausted("the memory for guests is used up", bytes);
    if ctx.ends.is_some() {
        return Err(exhausted());
    }
    let patience = shared.admission.limits().queue_timeout;
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => {
            Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran"))
        }
        done = tokio::time::timeout(patience, budget.reserve_later(bytes)) => done.map_err(|_| exhausted()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expectation_rises_at_once_and_falls_slowly() {
        let usual = UsualMemory::default();
        for (took, expected) in [(800, 800), (100, 700), (2000, 2000), (0, 1750)] {
            usual.note(took);
            assert_eq!(usual.0.load(Ordering::Relaxed), expected);
        }
    }
}
