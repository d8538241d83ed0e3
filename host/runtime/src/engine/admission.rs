//! Admission of guests: a bounded number at once, a bounded number that wait, each for a bounded time.
//!
//! Plugins share the places fairly ([`FairSemaphore`]): a plugin that runs nothing finds a place although others wait in
//! all that they may have. A plugin with `concurrency` running calls waits without taking a place.
//!
//! Nobody holds a place while it waits for another: a call gives its place back before its reducer asks for one, and lends
//! it while calls of its own run ([`Lent`]). So that those who lent theirs do not fill the instance pool, each of them is
//! one of a bounded number on its step ([`Admission::caller`]), which plugins share fairly too, and takes that before its
//! place. Steps lead down, to the place, which waits for nobody: there is no circle in which all wait.

mod fair;
mod lent;

use std::time::Duration;

pub(crate) use self::fair::{FairPermit, FairSemaphore};
pub(crate) use self::lent::Lent;

use tokio_util::sync::CancellationToken;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::nested::MAX_DEPTH;
use toolbay_policy::limits::HostLimits;
use toolbay_policy::limits::LimitHit;
use toolbay_policy::name::PluginId;
use toolbay_policy::quantity;

use self::fair::Outlook;

/// The places of one host.
#[derive(Debug)]
pub(crate) struct Admission {
    places: FairSemaphore,
    limits: HostLimits,
    /// On each step into one another, those that may call others.
    callers: [FairSemaphore; MAX_DEPTH],
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let places = FairSemaphore::new(limits.parallel_calls, limits.queued_calls);
        // They are few, have no `concurrency` of their own, and are held for as long as what they call takes.
        let callers = limits.callers();
        let step = |_| FairSemaphore::with_reserve(callers, callers / 2, limits.queued_calls);
        Self { places, callers: std::array::from_fn(step), limits }
    }

    /// The bounds it was made with.
    pub(crate) fn limits(&self) -> &HostLimits {
        &self.limits
    }

    /// Waits for a place for a call of `plugin`, of which at most `concurrency` run at once.
    pub(crate) async fn enter(
        &self,
        plugin: &PluginId,
        concurrency: u32,
        cancel: &CancellationToken,
    ) -> Result<FairPermit, Fault> {
        self.acquire(&self.places, plugin, concurrency, cancel)
            .await
            .map_err(|refusal| refusal.map_or_else(cancelled, |full| self.busy(plugin, full)))
    }

    /// Waits until a call whose calls lie `depth` deep may be one of those that call others; `None`: so deep are no calls.
    pub(crate) async fn caller(
        &self,
        depth: usize,
        plugin: &PluginId,
        cancel: &CancellationToken,
    ) -> Result<Option<FairPermit>, Fault> {
        let Some(step) = depth.checked_sub(1).and_then(|step| self.callers.get(step)) else {
            return Ok(None);
        };
        let permit = self.acquire(step, plugin, u32::MAX, cancel).await;
        permit.map(Some).map_err(|refusal| {
            refusal.map_or_else(cancelled, |full| match full {
                Full::Queue => self.busy(plugin, full),
                Full::Time => self.busy_callers(&step.outlook(plugin)),
            })
        })
    }

    /// A permit, or why there is none; `None`: the call was cancelled.
    async fn acquire(
        &self,
        permits: &FairSemaphore,
        plugin: &PluginId,
        bound: u32,
        cancel: &CancellationToken,
    ) -> Result<FairPermit, Option<Full>> {
        if cancel.is_cancelled() {
            return Err(None);
        }
        // Most calls wait for nobody, and need no timer.
        if let Some(permit) = permits.try_acquire(plugin, bound) {
            return Ok(permit);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(None),
            permit = permits.acquire(plugin, bound) => permit.map_err(|_| Some(Full::Queue)),
            () = tokio::time::sleep(self.limits.queue_timeout) => Err(Some(Full::Time)),
        }
    }

    fn busy(&self, plugin: &PluginId, full: Full) -> Fault {
        let places = self.limits.parallel_calls;
        let host = |name, value: String| LimitHit { name, value, setting: format!("[host] {name} = …") };
        let Outlook { at_bound, reserved, retry } = self.places.outlook(plugin);
        let (what, limit) = match (full, at_bound) {
            (Full::Queue, _) => (
                format!("busy: all {places} places are taken and the queue is full"),
                host("queued_calls", self.limits.queued_calls.to_string()),
            ),
            (Full::Time, Some(bound)) => (
                format!("busy: {bound} calls of plugin `{plugin}` are running"),
                LimitHit {
                    name: "concurrency",
                    value: bound.to_string(),
                    setting: format!("[plugins.{plugin}.limits] concurrency = …"),
                },
            ),
            (Full::Time, None) if reserved > 0 => (
                format!(
                    "busy: the {reserved} free places of {places} are reserved for plugins with fewer running calls than `{plugin}`"
                ),
                host("parallel_calls", places.to_string()),
            ),
            (Full::Time, None) => (
                format!("busy: all {places} places are taken"),
                host("queue_timeout", quantity::show_duration(self.limits.queue_timeout)),
            ),
        };
        busy(&what, limit, retry)
    }

    fn busy_callers(&self, outlook: &Outlook) -> Fault {
        let places = self.limits.parallel_calls;
        let what = format!(
            "busy: {} calls that call others may be under way, for {places} places",
            self.limits.callers()
        );
        let (value, setting) = (places.to_string(), "[host] parallel_calls = …".to_owned());
        busy(&what, LimitHit { name: "parallel_calls", value, setting }, outlook.retry)
    }

    /// Places that are free now.
    pub(crate) fn free(&self) -> usize {
        self.places.free() as usize
    }
}

/// What was full.
#[derive(Debug, Clone, Copy)]
enum Full {
    Queue,
    Time,
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
