//! A semaphore whose permits plugins share fairly.
//!
//! Each plugin has a queue. A free permit goes to the waiting plugin that holds the fewest, and among equals in turn. Some
//! permits are reserved: half of these for plugins that hold none, the other half for those that hold few. A
//! plugin that holds `n` gets one more only while more are free than that first half and `n` together, or than the whole
//! reserve, whichever is less. Plugins that hold their permits for a long time therefore leave room: of 64 permits with a
//! reserve of 16, about fifteen plugins are needed to take all, and a newcomer is then next in turn.
//!
//! When the queues are full, the longest one pays: its newest waiter is refused, not the only one of a quiet plugin.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use toolbay_policy::name::PluginId;

/// Shortest and longest time after which a refused caller is told to try again.
const RETRY_LEAST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Queues that are kept though nothing runs or waits in them: of most hosts all.
pub(super) const KEPT_QUEUES: usize = 64;

/// Permits that plugins share fairly. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct FairSemaphore {
    pub(super) state: Arc<Mutex<State>>,
}

/// A permit; dropping it frees it.
#[derive(Debug)]
pub(crate) struct FairPermit {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) plugin: PluginId,
    /// Time spent in the queue, in microseconds.
    pub(crate) queued_us: u64,
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        release(&self.state, &self.plugin);
    }
}

/// The queue had no room, or had to make room for a plugin with fewer waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Why a plugin waits, and for how long it may be.
#[derive(Debug)]
pub(super) struct Outlook {
    /// The plugin's own bound, if that is what it waits for.
    pub(super) at_bound: Option<u32>,
    /// Permits that are free and reserved for plugins that hold fewer.
    pub(super) reserved: u32,
    pub(super) retry: Duration,
}

impl FairSemaphore {
    /// `permits` for all plugins together, of which a quarter is reserved; `most_waiting` may wait for one.
    pub(crate) fn new(permits: u32, most_waiting: u32) -> Self {
        Self::with_reserve(permits, permits / 4, most_waiting)
    }

    /// `permits` for all plugins together, of which `reserve` are reserved; `most_waiting` may wait for one.
    pub(crate) fn with_reserve(permits: u32, reserve: u32, most_waiting: u32) -> Self {
        let state = State {
            free: permits,
            reserve,
            waiting: 0,
            most_waiting,
            next: 0,
            queues: HashMap::new(),
            turns: BTreeMap::new(),
            returning: VecDeque::new(),
            rate: DrainRate::default(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A permit for a plugin that may hold `bound`, if it need not wait.
    pub(crate) fn try_acquire(&self, plugin: &PluginId, bound: u32) -> Option<FairPermit> {
        lock(&self.state).take(plugin, bound).then(|| self.permit(plugin, 0))
    }

    /// Waits for a permit for a plugin that may hold `bound`. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// When the queue is full, also later, if the plugin's queue is the longest.
    pub(crate) async fn acquire(&self, plugin: &PluginId, bound: u32) -> Result<FairPermit, QueueFull> {
        let Some(ticket) = self.join(plugin, bound)? else { return Ok(self.permit(plugin, 0)) };
        let start = Instant::now();
        ticket.waiter.wake.notified().await;
        match ticket.leave() {
            Verdict::Granted => {
                let queued_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                Ok(self.permit(plugin, queued_us))
            }
            // Nobody is woken without a verdict.
            Verdict::Evicted | Verdict::Waiting => Err(QueueFull),
        }
    }

    /// A permit at once (`None`), or a ticket of the queue.
    fn join(&self, plugin: &PluginId, bound: u32) -> Result<Option<QueueTicket>, QueueFull> {
        let mut state = lock(&self.state);
        if state.take(plugin, bound) {
            return Ok(None);
        }
        let mut evicted = None;
        if state.waiting >= state.most_waiting {
            evicted = state.evict_for(plugin);
            if evicted.is_none() {
                state.forget(plugin);
                return Err(QueueFull);
            }
        }
        let (number, waiter) = state.queue(plugin);
        // A reload may have raised the bound.
        state.offer(plugin);
        let granted = state.hand_out();
        drop(state);
        granted.into_iter().chain(evicted).for_each(|waiter| waiter.wake.notify_one());
        let state = Arc::clone(&self.state);
        Ok(Some(QueueTicket { state, plugin: plugin.clone(), number, waiter, left: false }))
    }

    fn permit(&self, plugin: &PluginId, queued_us: u64) -> FairPermit {
        FairPermit { state: Arc::clone(&self.state), plugin: plugin.clone(), queued_us }
    }

    /// Permits that are free now.
    pub(crate) fn free(&self) -> u32 {
        lock(&self.state).free
    }

    /// What a plugin that waits has to expect.
    pub(super) fn outlook(&self, plugin: &PluginId) -> Outlook {
        let state = lock(&self.state);
        let queue = state.queues.get(plugin);
        let at_bound = queue.filter(|queue| queue.running >= queue.bound).map(|queue| queue.bound);
        let retry = state.rate.retry(queue.map_or(0, PluginQueue::len), state.turns.len());
        Outlook { at_bound, reserved: state.free, retry }
    }
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock()
}

pub(super) fn release(state: &Mutex<State>, plugin: &PluginId) {
    let granted = {
        let state = &mut *lock(state);
        state.free += 1;
        if let Some(queue) = state.queues.get_mut(plugin) {
            queue.running = queue.running.saturating_sub(1);
            // It had its turn: among equals it comes after those that wait already.
            if let Some(turn) = queue.turn.take() {
                state.turns.remove(&turn);
            }
        }
        if state.waiting > 0 {
            state.rate.count();
        } else {
            state.rate.last = None;
            if state.returning.is_empty() && state.queues.len() <= KEPT_QUEUES {
                return;
            }
        }
        state.offer(plugin);
        state.forget(plugin);
        state.hand_out()
    };
    granted.into_iter().for_each(|waiter| waiter.wake.notify_one());
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) free: u32,
    /// Permits that a plugin that holds many does not get.
    reserve: u32,
    pub(super) waiting: u32,
    most_waiting: u32,
    /// The number of the next waiter, or turn.
    next: u64,
    /// The plugins with calls that run or wait.
    pub(super) queues: HashMap<PluginId, PluginQueue>,
    /// The queues that wait for a permit and not for their bound, by how many permits they hold and their turn.
    pub(super) turns: BTreeMap<(u32, u64), PluginId>,
    /// Calls that want back the permit that they lent, in their order.
    pub(super) returning: VecDeque<(PluginId, Arc<Waiter>)>,
    rate: DrainRate,
}

#[derive(Debug, Default)]
pub(super) struct PluginQueue {
    pub(super) running: u32,
    bound: u32,
    pub(super) waiting: BTreeMap<u64, Arc<Waiter>>,
    /// Its key in `turns`.
    turn: Option<(u32, u64)>,
}

impl PluginQueue {
    fn len(&self) -> usize {
        self.waiting.len()
    }

    fn can_use_a_permit(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.bound
    }
}

/// How many permits have to stay free when a plugin that holds `running` takes one more.
fn kept_from(running: u32, reserve: u32) -> u32 {
    if running == 0 { 0 } else { reserve.min((reserve / 2).saturating_add(running)) }
}

impl State {
    /// Whether a plugin that holds `running` permits may take one more.
    fn allows(&self, running: u32) -> bool {
        self.free > kept_from(running, self.reserve)
    }

    /// Takes a permit without waiting, if one is free for the plugin and nobody of it waits.
    fn take(&mut self, plugin: &PluginId, bound: u32) -> bool {
        let (free, reserve) = (self.free, self.reserve);
        let queue = match self.queues.get_mut(plugin) {
            Some(queue) => queue,
            None => self.queues.entry(plugin.clone()).or_default(),
        };
        queue.bound = bound;
        let allowed = free > kept_from(queue.running, reserve);
        let now = allowed && queue.waiting.is_empty() && queue.running < bound;
        if now {
            queue.running += 1;
            self.free -= 1;
        }
        now
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn queue(&mut self, plugin: &PluginId) -> (u64, Arc<Waiter>) {
        let (number, waiter) = (self.number(), Arc::new(Waiter::default()));
        self.waiting += 1;
        self.queues.entry(plugin.clone()).or_default().waiting.insert(number, Arc::clone(&waiter));
        (number, waiter)
    }

    /// Puts a queue where it belongs among the turns, after its number of permits or waiters changed.
    fn offer(&mut self, plugin: &PluginId) {
        let number = self.number();
        let Some(queue) = self.queues.get_mut(plugin) else { return };
        let old = queue.turn.take();
        if let Some(old) = old {
            self.turns.remove(&old);
        }
        if queue.can_use_a_permit() {
            let turn = (queue.running, old.map_or(number, |(_, number)| number));
            queue.turn = Some(turn);
            self.turns.insert(turn, plugin.clone());
        }
    }

    /// Drops a queue in which nothing runs or waits, if there are many.
    fn forget(&mut self, plugin: &PluginId) {
        let unused = |queue: &PluginQueue| queue.running == 0 && queue.waiting.is_empty();
        if self.queues.len() > KEPT_QUEUES && self.queues.get(plugin).is_some_and(unused) {
            self.queues.remove(plugin);
        }
    }

    /// Gives free permits to those that may have them. The caller wakes them when the lock is gone.
    pub(super) fn hand_out(&mut self) -> Vec<Arc<Waiter>> {
        let mut granted = Vec::new();
        while self.free > 0 {
            let Some((plugin, waiter)) = self.next_returning().or_else(|| self.next_waiting()) else { break };
            self.free -= 1;
            self.queues.entry(plugin.clone()).or_default().running += 1;
            self.offer(&plugin);
            waiter.decide(Verdict::Granted);
            granted.push(waiter);
        }
        granted
    }

    /// First those whose memory is held already.
    fn next_returning(&mut self) -> Option<(PluginId, Arc<Waiter>)> {
        let running = |plugin| self.queues.get(plugin).map_or(0, |queue: &PluginQueue| queue.running);
        let at = self.returning.iter().position(|(plugin, _)| self.allows(running(plugin)))?;
        self.returning.remove(at)
    }

    fn next_waiting(&mut self) -> Option<(PluginId, Arc<Waiter>)> {
        let (&(running, _), _) = self.turns.first_key_value()?;
        if !self.allows(running) {
            return None;
        }
        let (_, plugin) = self.turns.pop_first()?;
        let queue = self.queues.get_mut(&plugin)?;
        // Its next turn comes after those of all others.
        queue.turn = None;
        let (_, waiter) = queue.waiting.pop_first()?;
        self.waiting -= 1;
        Some((plugin, waiter))
    }

    /// Makes room in the queue for a call of `plugin` at the cost of the longest queue, if that is longer by more than
    /// the one.
    fn evict_for(&mut self, plugin: &PluginId) -> Option<Arc<Waiter>> {
        let own = self.queues.get(plugin).map_or(0, PluginQueue::len);
        let longest = self.queues.values_mut().max_by_key(|queue| queue.len())?;
        if longest.len() <= own + 1 {
            return None;
        }
        let (_, waiter) = longest.waiting.pop_last()?;
        self.waiting -= 1;
        waiter.decide(Verdict::Evicted);
        Some(waiter)
    }
}

/// What became of a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Waiting,
    Granted,
    Evicted,
}

/// Where a waiting call learns its verdict, which is written under the lock and told after it.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    verdict: AtomicU8,
    pub(super) wake: Notify,
}

impl Waiter {
    fn decide(&self, verdict: Verdict) {
        self.verdict.store(verdict as u8, Ordering::Release);
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.verdict.load(Ordering::Acquire) {
            v if v == Verdict::Granted as u8 => Verdict::Granted,
            v if v == Verdict::Evicted as u8 => Verdict::Evicted,
            _ => Verdict::Waiting,
        }
    }
}

/// A call in the queue. Dropping it leaves the queue and gives back a permit that was granted meanwhile.
#[derive(Debug)]
struct QueueTicket {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    number: u64,
    waiter: Arc<Waiter>,
    left: bool,
}

impl QueueTicket {
    /// Leaves the queue. With [`Verdict::Granted`], the permit is the caller's.
    fn leave(mut self) -> Verdict {
        self.left = true;
        self.remove()
    }

    fn remove(&self) -> Verdict {
        let mut state = lock(&self.state);
        if let Some(queue) = state.queues.get_mut(&self.plugin)
            && queue.waiting.remove(&self.number).is_some()
        {
            state.waiting -= 1;
            state.offer(&self.plugin);
            state.forget(&self.plugin);
        }
        self.waiter.verdict()
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if !self.left && self.remove() == Verdict::Granted {
            release(&self.state, &self.plugin);
        }
    }
}

/// How quickly permits become free while calls wait.
#[derive(Debug, Default)]
struct DrainRate {
    /// When the last one did; `None` after a time in which nobody waited.
    last: Option<Instant>,
    /// Microseconds between two, an eighth of each new one.
    between: Option<u64>,
}

impl DrainRate {
    fn count(&mut self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let passed =
                u64::try_from(now.duration_since(last).min(RETRY_MOST).as_micros()).unwrap_or(u64::MAX);
            self.between = Some(self.between.map_or(passed, |mean| mean - mean / 8 + passed / 8));
        }
    }

    /// When the next call of a queue of this length could run: a turn of every queue for each call before it.
    fn retry(&self, length: usize, queues: usize) -> Duration {
        let between = self.between.unwrap_or(100_000);
        let turns = (length as u64 + 1).saturating_mul(queues.max(1) as u64);
        Duration::from_micros(between.saturating_mul(turns)).clamp(RETRY_LEAST, RETRY_MOST)
    }
}
