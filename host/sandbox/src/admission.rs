//! Admission of calls: a bounded number of calls run at once, and a bounded number waits, each for a bounded time.
//!
//! Plugins share the run permits fairly ([`FairSemaphore`]): a plugin with no running call gets a permit even if other
//! plugins wait at their share. A plugin at its `concurrency` limit waits without a permit.
//!
//! No call holds a run permit while it waits for another call. A call releases its permit before its reducer acquires
//! one, and lends it while its nested calls run ([`LentPermit`]). Calls with lent permits still occupy the instance
//! pool, so a second semaphore per nesting depth bounds them ([`ConcurrencyLimiter::acquire_caller`]). A call acquires
//! its caller permit before its run permit. Depths increase with nesting and run permits are acquired last, so no cycle
//! of waiting calls can form.

mod fair_semaphore;
mod lent_permit;

use std::time::Duration;

pub use self::fair_semaphore::{FairPermit, FairSemaphore};
pub use self::lent_permit::LentPermit;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::invoke::nested::MAX_DEPTH;
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;

use self::fair_semaphore::WaitEstimate;

/// The run permits of one host.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    permits: FairSemaphore,
    limits: HostLimits,
    /// For each nesting depth, the permits of calls that may make nested calls.
    callers: [FairSemaphore; MAX_DEPTH],
}

impl ConcurrencyLimiter {
    /// Creates the permits of a host with these limits.
    #[must_use]
    pub fn new(limits: HostLimits) -> Self {
        let permits = FairSemaphore::new(limits.parallel_calls, limits.queued_calls);
        // These permits are few, have no `concurrency` limit, and are held as long as the nested calls run.
        let callers = limits.max_nested_callers();
        let step = |_| FairSemaphore::with_reserve(callers, callers / 2, limits.queued_calls);
        Self { permits, callers: std::array::from_fn(step), limits }
    }

    /// The limits that the limiter was created with.
    pub fn limits(&self) -> &HostLimits {
        &self.limits
    }

    /// Waits for a run permit for a call of `plugin`. At most `concurrency` calls of the plugin run at once.
    pub async fn acquire(
        &self,
        plugin: &PluginId,
        concurrency: u32,
        cancel: &CancellationToken,
    ) -> Result<FairPermit, Fault> {
        self.acquire_from(&self.permits, plugin, concurrency, cancel)
            .await
            .map_err(|refusal| refusal.map_or_else(cancelled, |reason| self.busy(plugin, reason)))
    }

    /// Waits for the permit of a call that may make nested calls at `depth`. Returns `None` if nesting that deep is not
    /// allowed.
    pub async fn acquire_caller(
        &self,
        depth: usize,
        plugin: &PluginId,
        cancel: &CancellationToken,
    ) -> Result<Option<FairPermit>, Fault> {
        let Some(step) = depth.checked_sub(1).and_then(|step| self.callers.get(step)) else {
            return Ok(None);
        };
        let permit = self.acquire_from(step, plugin, u32::MAX, cancel).await;
        permit.map(Some).map_err(|refusal| {
            refusal.map_or_else(cancelled, |reason| match reason {
                BusyReason::QueueFull => self.busy(plugin, reason),
                BusyReason::TimedOut => self.busy_callers(&step.estimate_wait(plugin)),
            })
        })
    }

    /// Acquires a permit. The error is the reason, or `None` if the call was cancelled.
    async fn acquire_from(
        &self,
        permits: &FairSemaphore,
        plugin: &PluginId,
        bound: u32,
        cancel: &CancellationToken,
    ) -> Result<FairPermit, Option<BusyReason>> {
        if cancel.is_cancelled() {
            return Err(None);
        }
        // Most calls do not wait and need no timer.
        if let Some(permit) = permits.try_acquire(plugin, bound) {
            return Ok(permit);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(None),
            permit = permits.acquire(plugin, bound) => permit.map_err(|_| Some(BusyReason::QueueFull)),
            () = tokio::time::sleep(self.limits.queue_timeout) => Err(Some(BusyReason::TimedOut)),
        }
    }

    fn busy(&self, plugin: &PluginId, reason: BusyReason) -> Fault {
        let parallel = self.limits.parallel_calls;
        let host = |name, value: String| LimitHit { name, value, setting: LimitSetting::key("host", name) };
        let WaitEstimate { at_bound, reserved, retry_after: retry } = self.permits.estimate_wait(plugin);
        let (what, limit) = match (reason, at_bound) {
            (BusyReason::QueueFull, _) => (
                format!("busy: all {parallel} parallel calls are running and the queue is full"),
                host("queued_calls", self.limits.queued_calls.to_string()),
            ),
            (BusyReason::TimedOut, Some(bound)) => (
                format!("busy: {bound} calls of plugin `{plugin}` are running"),
                LimitHit {
                    name: "concurrency",
                    value: bound.to_string(),
                    setting: LimitSetting::key(format_args!("plugins.{plugin}.limits"), "concurrency"),
                },
            ),
            (BusyReason::TimedOut, None) if reserved > 0 => (
                format!(
                    "busy: the {reserved} free of {parallel} parallel calls are reserved for plugins with fewer running \
                     calls than `{plugin}`"
                ),
                host("parallel_calls", parallel.to_string()),
            ),
            (BusyReason::TimedOut, None) => (
                format!("busy: all {parallel} parallel calls are running"),
                host("queue_timeout", quantity::show_duration(self.limits.queue_timeout)),
            ),
        };
        busy(&what, limit, retry)
    }

    fn busy_callers(&self, outlook: &WaitEstimate) -> Fault {
        let parallel = self.limits.parallel_calls;
        let what = format!(
            "busy: {} calls with nested calls are running, the maximum for {parallel} parallel calls",
            self.limits.max_nested_callers()
        );
        let (value, setting) = (parallel.to_string(), LimitSetting::key("host", "parallel_calls"));
        busy(&what, LimitHit { name: "parallel_calls", value, setting }, outlook.retry_after)
    }

    /// The number of free run permits.
    pub fn free_permits(&self) -> usize {
        self.permits.free_permits() as usize
    }
}

/// Why a call got no permit.
#[derive(Debug, Clone, Copy)]
enum BusyReason {
    QueueFull,
    TimedOut,
}

fn busy(what: &str, limit: LimitHit, retry: Duration) -> Fault {
    let what = format!("{what}; try again in {}", quantity::show_duration(retry));
    Fault::by_limit(FaultKind::Busy, &what, limit).retry_after(retry)
}

fn cancelled() -> Fault {
    Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
