//! Estimates the memory of a call, and reserves it in the budget for guests.
//!
//! A call reserves what recent calls of its tool used. It then waits for memory before it runs instead of failing in
//! the middle. Further growth is reserved when it happens ([`toolbay_sandbox::resource_limiter`]).

use std::sync::atomic::{AtomicU64, Ordering};

use toolbay_core::call::CallContext;
use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::CallLimits;

use crate::plugins::plugin::HostResources;

/// An upper estimate of the memory of a tool's recent calls, in bytes.
#[derive(Debug, Default)]
pub(crate) struct MemoryEstimate(AtomicU64);

impl MemoryEstimate {
    /// Records the memory of a call. The estimate rises at once and falls slowly.
    pub(crate) fn record(&self, bytes: u64) {
        let known = self.0.load(Ordering::Relaxed);
        let expected = bytes.max(known - known / 8);
        if expected != known {
            self.0.store(expected, Ordering::Relaxed);
        }
    }

    /// Reserves memory for a call, and drops idle instances to make room. A nested call does not wait, because its
    /// caller holds memory.
    pub(crate) async fn reserve(
        &self,
        shared: &HostResources,
        limits: &CallLimits,
        ctx: &CallContext,
    ) -> Result<MemoryReservation, Fault> {
        let budget = shared.engines.memory();
        let bytes = self.0.load(Ordering::Relaxed).min(limits.memory).min(budget.limit());
        match budget.reserve(bytes) {
            Some(reserved) => Ok(reserved),
            // Boxed to keep the common future small: few calls wait.
            None => Box::pin(wait(shared, budget, bytes, ctx)).await,
        }
    }

    /// Whether at most half of the memory is in use, so that instances may stay idle.
    pub(crate) fn leaves_room(shared: &HostResources) -> bool {
        let budget = shared.engines.memory();
        budget.used() <= budget.limit() / 2
    }
}

async fn wait(
    shared: &HostResources,
    budget: &MemoryBudget,
    bytes: u64,
    ctx: &CallContext,
) -> Result<MemoryReservation, Fault> {
    while shared.idle_instances.drop_oldest() {
        if let Some(reserved) = budget.reserve(bytes) {
            return Ok(reserved);
        }
    }
    let exhausted = || budget.exhausted("the memory for guests is used up", bytes);
    if ctx.deadline.is_some() {
        return Err(exhausted());
    }
    let patience = shared.concurrency.limits().queue_timeout;
    tokio::select! {
        biased;
        () = ctx.cancel().cancelled() => {
            Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran"))
        }
        done = tokio::time::timeout(patience, budget.reserve_when_free(bytes)) => done.map_err(|_| exhausted()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_rises_at_once_and_falls_slowly() {
        let estimate = MemoryEstimate::default();
        for (took, expected) in [(800, 800), (100, 700), (2000, 2000), (0, 1750)] {
            estimate.record(took);
            assert_eq!(estimate.0.load(Ordering::Relaxed), expected);
        }
    }
}
