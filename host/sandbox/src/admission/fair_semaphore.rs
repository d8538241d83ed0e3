//! A semaphore whose permits plugins share fairly.
//!
//! Each plugin has a queue. A free permit goes to the waiting plugin that holds the fewest permits; plugins with
//! equally many take turns. Some permits are reserved: half of the reserve for plugins that hold none, the other half
//! for plugins that hold few. A plugin that holds `n` permits gets another only while more than `reserve / 2 + n`
//! permits are free, or more than the whole reserve, whichever is less. Long-running calls therefore leave room. For
//! example, it takes about 15 plugins to exhaust 64 permits with a reserve of 16, and a new plugin is then next in
//! turn.
//!
//! When the queues are full, the newest waiter of the longest queue is refused, not the only waiter of a quiet plugin.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use toolbay_policy::name::PluginId;

/// Bounds of the retry delay that a refused caller is given.
const MIN_RETRY: Duration = Duration::from_millis(10);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Number of unused queues that are kept. Most hosts never exceed it.
pub(super) const RETAINED_QUEUES: usize = 64;

/// Permits that plugins share fairly. Clones share the permits.
#[derive(Debug, Clone)]
pub struct FairSemaphore {
    pub(super) state: Arc<Mutex<SemaphoreState>>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub struct FairPermit {
    pub(super) state: Arc<Mutex<SemaphoreState>>,
    pub(super) plugin: PluginId,
    /// Time spent in the queue, in microseconds.
    pub queued_us: u64,
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        release(&self.state, &self.plugin);
    }
}

/// The queue was full, or the waiter was evicted for a plugin with fewer waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// Why a plugin waits, and an estimate of how long.
#[derive(Debug)]
pub(super) struct WaitEstimate {
    /// The plugin's own bound, if the plugin has reached it.
    pub(super) at_bound: Option<u32>,
    /// The number of free permits, which are reserved for plugins that hold fewer.
    pub reserved: u32,
    pub(super) retry_after: Duration,
}

impl FairSemaphore {
    /// Creates `permits` permits for all plugins, a quarter of them reserved. At most `max_waiting` calls may wait.
    pub fn new(permits: u32, max_waiting: u32) -> Self {
        Self::with_reserve(permits, permits / 4, max_waiting)
    }

    /// Creates `permits` permits for all plugins, `reserve` of them reserved. At most `max_waiting` calls may wait.
    pub(crate) fn with_reserve(permits: u32, reserve: u32, max_waiting: u32) -> Self {
        let state = SemaphoreState {
            free: permits,
            reserve,
            waiting: 0,
            max_waiting,
            next: 0,
            queues: HashMap::new(),
            runnable: BTreeMap::new(),
            returning: VecDeque::new(),
            rate: DrainRate::default(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Acquires a permit without waiting, for a plugin that may hold `bound`.
    pub fn try_acquire(&self, plugin: &PluginId, bound: u32) -> Option<FairPermit> {
        self.state.lock().try_take(plugin, bound).then(|| self.permit(plugin, 0))
    }

    /// Waits for a permit for a plugin that may hold `bound`. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// The queue is full, or becomes full while this plugin's queue is the longest.
    pub async fn acquire(&self, plugin: &PluginId, bound: u32) -> Result<FairPermit, QueueFull> {
        let Some(ticket) = self.join(plugin, bound)? else { return Ok(self.permit(plugin, 0)) };
        let start = Instant::now();
        ticket.waiter.wake.notified().await;
        // A waiter is woken only after its outcome is set.
        if !ticket.leave() {
            return Err(QueueFull);
        }
        let queued_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(self.permit(plugin, queued_us))
    }

    /// Acquires a permit at once (`None`), or joins the queue.
    fn join(&self, plugin: &PluginId, bound: u32) -> Result<Option<QueueTicket>, QueueFull> {
        let mut state = self.state.lock();
        if state.try_take(plugin, bound) {
            return Ok(None);
        }
        let mut evicted = None;
        if state.waiting >= state.max_waiting {
            evicted = state.evict_for(plugin);
            if evicted.is_none() {
                state.remove_unused(plugin);
                return Err(QueueFull);
            }
        }
        let (number, waiter) = state.enqueue(plugin);
        // A policy reload may have raised the bound.
        state.schedule(plugin);
        let granted = state.grant_free();
        drop(state);
        granted.into_iter().chain(evicted).for_each(|waiter| waiter.wake.notify_one());
        let state = Arc::clone(&self.state);
        Ok(Some(QueueTicket { state, plugin: plugin.clone(), number, waiter, left: false }))
    }

    fn permit(&self, plugin: &PluginId, queued_us: u64) -> FairPermit {
        FairPermit { state: Arc::clone(&self.state), plugin: plugin.clone(), queued_us }
    }

    /// The number of free permits.
    pub fn free_permits(&self) -> u32 {
        self.state.lock().free
    }

    /// The reason why a plugin waits, and the estimated delay.
    pub(super) fn estimate_wait(&self, plugin: &PluginId) -> WaitEstimate {
        let state = self.state.lock();
        let queue = state.queues.get(plugin);
        let at_bound = queue.filter(|queue| queue.running >= queue.bound).map(|queue| queue.bound);
        let retry = state.rate.retry_delay(queue.map_or(0, PluginQueue::len), state.runnable.len());
        WaitEstimate { at_bound, reserved: state.free, retry_after: retry }
    }
}

pub(super) fn release(state: &Mutex<SemaphoreState>, plugin: &PluginId) {
    let granted = {
        let state = &mut *state.lock();
        state.free += 1;
        if let Some(queue) = state.queues.get_mut(plugin) {
            queue.running = queue.running.saturating_sub(1);
            // The plugin has used its turn: it goes behind equal plugins that already wait.
            if let Some(turn) = queue.runnable_key.take() {
                state.runnable.remove(&turn);
            }
        }
        if state.waiting > 0 {
            state.rate.record_release();
        } else {
            state.rate.last = None;
            if state.returning.is_empty() && state.queues.len() <= RETAINED_QUEUES {
                return;
            }
        }
        state.schedule(plugin);
        state.remove_unused(plugin);
        state.grant_free()
    };
    granted.into_iter().for_each(|waiter| waiter.wake.notify_one());
}

#[derive(Debug)]
pub(super) struct SemaphoreState {
    pub(super) free: u32,
    /// The number of reserved permits.
    reserve: u32,
    pub(super) waiting: u32,
    max_waiting: u32,
    /// The last number given to a waiter or a turn.
    next: u64,
    /// The queues of plugins with running or waiting calls, and some unused ones.
    pub queues: HashMap<PluginId, PluginQueue>,
    /// The queues that can use a permit, by the number of permits they hold and by their turn.
    pub(super) runnable: BTreeMap<(u32, u64), PluginId>,
    /// Calls that reclaim a lent permit, first come first served.
    pub(super) returning: VecDeque<(PluginId, Arc<Waiter>)>,
    rate: DrainRate,
}

#[derive(Debug, Default)]
pub(super) struct PluginQueue {
    pub(super) running: u32,
    bound: u32,
    pub(super) waiting: BTreeMap<u64, Arc<Waiter>>,
    /// The key in `runnable`.
    runnable_key: Option<(u32, u64)>,
}

impl PluginQueue {
    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn can_use_a_permit(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.bound
    }
}

/// How many permits must stay free when a plugin that holds `running` acquires another.
fn withheld_permits(running: u32, reserve: u32) -> u32 {
    if running == 0 { 0 } else { reserve.min((reserve / 2).saturating_add(running)) }
}

impl SemaphoreState {
    /// Whether a plugin that holds `running` permits may take one more.
    fn allows(&self, running: u32) -> bool {
        self.free > withheld_permits(running, self.reserve)
    }

    /// Acquires a permit without waiting, if one is free for the plugin and none of its calls waits.
    fn try_take(&mut self, plugin: &PluginId, bound: u32) -> bool {
        let (free, reserve) = (self.free, self.reserve);
        let queue = match self.queues.get_mut(plugin) {
            Some(queue) => queue,
            None => self.queues.entry(plugin.clone()).or_default(),
        };
        queue.bound = bound;
        let allowed = free > withheld_permits(queue.running, reserve);
        let now = allowed && queue.waiting.is_empty() && queue.running < bound;
        if now {
            queue.running += 1;
            self.free -= 1;
        }
        now
    }

    fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn enqueue(&mut self, plugin: &PluginId) -> (u64, Arc<Waiter>) {
        let (number, waiter) = (self.next_number(), Arc::new(Waiter::default()));
        self.waiting += 1;
        self.queues.entry(plugin.clone()).or_default().waiting.insert(number, Arc::clone(&waiter));
        (number, waiter)
    }

    /// Updates a queue's position in `runnable` after its number of permits or waiters changed.
    fn schedule(&mut self, plugin: &PluginId) {
        let number = self.next_number();
        let Some(queue) = self.queues.get_mut(plugin) else { return };
        let old = queue.runnable_key.take();
        if let Some(old) = old {
            self.runnable.remove(&old);
        }
        if queue.can_use_a_permit() {
            let turn = (queue.running, old.map_or(number, |(_, number)| number));
            queue.runnable_key = Some(turn);
            self.runnable.insert(turn, plugin.clone());
        }
    }

    /// Removes an unused queue if there are many.
    fn remove_unused(&mut self, plugin: &PluginId) {
        let unused = |queue: &PluginQueue| queue.running == 0 && queue.waiting.is_empty();
        if self.queues.len() > RETAINED_QUEUES && self.queues.get(plugin).is_some_and(unused) {
            self.queues.remove(plugin);
        }
    }

    /// Grants the free permits. The caller wakes the waiters after it has released the lock.
    pub(super) fn grant_free(&mut self) -> Vec<Arc<Waiter>> {
        let mut granted = Vec::new();
        while self.free > 0 {
            let Some((plugin, waiter)) = self.pop_returning().or_else(|| self.pop_waiting()) else { break };
            self.free -= 1;
            self.queues.entry(plugin.clone()).or_default().running += 1;
            self.schedule(&plugin);
            waiter.set_outcome(WaitOutcome::Granted);
            granted.push(waiter);
        }
        granted
    }

    /// Calls that reclaim a permit come first, because they already hold memory.
    fn pop_returning(&mut self) -> Option<(PluginId, Arc<Waiter>)> {
        let running = |plugin| self.queues.get(plugin).map_or(0, |queue: &PluginQueue| queue.running);
        let at = self.returning.iter().position(|(plugin, _)| self.allows(running(plugin)))?;
        self.returning.remove(at)
    }

    fn pop_waiting(&mut self) -> Option<(PluginId, Arc<Waiter>)> {
        let (&(running, _), _) = self.runnable.first_key_value()?;
        if !self.allows(running) {
            return None;
        }
        let (_, plugin) = self.runnable.pop_first()?;
        let queue = self.queues.get_mut(&plugin)?;
        // The plugin's next turn comes after those of all others.
        queue.runnable_key = None;
        let (_, waiter) = queue.waiting.pop_first()?;
        self.waiting -= 1;
        Some((plugin, waiter))
    }

    /// Evicts the newest waiter of the longest queue, if that queue is longer than the queue of `plugin` by at least
    /// two.
    fn evict_for(&mut self, plugin: &PluginId) -> Option<Arc<Waiter>> {
        let own = self.queues.get(plugin).map_or(0, PluginQueue::len);
        let longest = self.queues.values_mut().max_by_key(|queue| queue.len())?;
        if longest.len() <= own + 1 {
            return None;
        }
        let (_, waiter) = longest.waiting.pop_last()?;
        self.waiting -= 1;
        waiter.set_outcome(WaitOutcome::Evicted);
        Some(waiter)
    }
}

/// The outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitOutcome {
    Granted,
    Evicted,
}

/// Tells a waiting call its outcome. The outcome is set under the lock; the wake-up follows without it.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    outcome: OnceLock<WaitOutcome>,
    pub(super) wake: Notify,
}

impl Waiter {
    fn set_outcome(&self, outcome: WaitOutcome) {
        self.outcome.get_or_init(|| outcome);
    }

    pub(super) fn is_granted(&self) -> bool {
        self.outcome.get() == Some(&WaitOutcome::Granted)
    }
}

/// A place in the queue. Dropping it leaves the queue and releases a permit that was granted meanwhile.
#[derive(Debug)]
struct QueueTicket {
    state: Arc<Mutex<SemaphoreState>>,
    plugin: PluginId,
    number: u64,
    waiter: Arc<Waiter>,
    left: bool,
}

impl QueueTicket {
    /// Leaves the queue. Returns whether a permit was granted, which the caller then owns.
    fn leave(mut self) -> bool {
        self.left = true;
        self.remove()
    }

    fn remove(&self) -> bool {
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get_mut(&self.plugin)
            && queue.waiting.remove(&self.number).is_some()
        {
            state.waiting -= 1;
            state.schedule(&self.plugin);
            state.remove_unused(&self.plugin);
        }
        self.waiter.is_granted()
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if !self.left && self.remove() {
            release(&self.state, &self.plugin);
        }
    }
}

/// The rate at which permits become free while calls wait.
#[derive(Debug, Default)]
struct DrainRate {
    /// The time of the last release; `None` if no call waited since.
    last: Option<Instant>,
    /// The moving average of the time between two releases, in microseconds. Each new value has a weight of one eighth.
    between: Option<u64>,
}

impl DrainRate {
    fn record_release(&mut self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let passed =
                u64::try_from(now.duration_since(last).min(MAX_RETRY).as_micros()).unwrap_or(u64::MAX);
            self.between = Some(self.between.map_or(passed, |mean| mean - mean / 8 + passed / 8));
        }
    }

    /// Estimates when the next call of a queue of this length could run: one turn of every queue for each call before
    /// it.
    fn retry_delay(&self, length: usize, queues: usize) -> Duration {
        let between = self.between.unwrap_or(100_000);
        let turns = (length as u64 + 1).saturating_mul(queues.max(1) as u64);
        Duration::from_micros(between.saturating_mul(turns)).clamp(MIN_RETRY, MAX_RETRY)
    }
}
