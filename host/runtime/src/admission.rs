//! Who may run: a bounded number of guests at once, a bounded number that wait, each for a bounded time.
//!
//! The places are shared fairly between plugins. Each plugin has a lane of its own; a place that becomes free goes to
//! the lanes in turn, so that a plugin with ten thousand calls in its lane delays another plugin's next call by one
//! round at most. A lane in which `concurrency` calls run waits without taking a place. When the queue is full, the
//! longest lane pays: its newest call is answered `busy`, not the only call of a quiet plugin.
//!
//! Nobody holds a place while he waits for another: a call gives its place back before its reducer asks for one, and lends
//! it while calls of its own run ([`Lent`]). So that those who lent theirs do not fill the instance pool, each of them is
//! one of a bounded number on its step ([`Admission::caller`]), and takes that before its place. Steps lead down, to the
//! place, which waits for nobody: there is no circle in which all wait.

mod lent;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use toolbay_core::fault::{Fault, FaultKind, LimitHit};
use toolbay_core::invoke::onward::MAX_DEPTH;
use toolbay_core::limits::HostLimits;
use toolbay_core::name::PluginId;
use toolbay_core::quantity;

pub(crate) use self::lent::Lent;

/// Shortest and longest time after which a refused caller is told to try again.
const RETRY_LEAST: Duration = Duration::from_millis(10);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Lanes that are kept though nothing runs or waits in them: of most hosts all.
const KEPT_LANES: usize = 64;

/// The places of one host.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Arc<Mutex<State>>,
    limits: HostLimits,
    /// On each step into one another, those that may call others.
    callers: [Arc<Semaphore>; MAX_DEPTH],
    /// How many wait to be one of them.
    waiting: AtomicU32,
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    /// How long it took to get, in microseconds.
    pub(crate) queued_us: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        release(&self.state, &self.plugin);
    }
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        let state = State {
            free: limits.parallel_calls,
            waiting: 0,
            next: 0,
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            returning: VecDeque::new(),
            pace: Pace::default(),
        };
        let callers = std::array::from_fn(|_| Arc::new(Semaphore::new(limits.callers() as usize)));
        Self { state: Arc::new(Mutex::new(state)), limits, callers, waiting: AtomicU32::new(0) }
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
    ) -> Result<Place, Fault> {
        let cancelled = || Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran"));
        if cancel.is_cancelled() {
            return cancelled();
        }
        let Some(ticket) = self.join(plugin, concurrency)? else { return Ok(self.place(plugin, 0)) };
        let start = Instant::now();
        let decided = tokio::select! {
            biased;
            () = cancel.cancelled() => return cancelled(),
            decided = tokio::time::timeout(self.limits.queue_timeout, ticket.seat.wake.notified()) => decided,
        };
        match ticket.leave() {
            Verdict::Granted => {
                let queued_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                Ok(self.place(plugin, queued_us))
            }
            Verdict::Evicted => Err(self.busy(plugin, Full::Queue)),
            Verdict::Waiting if decided.is_err() => Err(self.busy(plugin, Full::Time)),
            // Nobody is woken without a verdict.
            Verdict::Waiting => Err(Fault::new(FaultKind::Busy, "busy: woken without a place")),
        }
    }

    /// Waits until a call whose calls lie `depth` deep may be one of those that call others; `None`: so deep are no calls.
    pub(crate) async fn caller(
        &self,
        depth: usize,
        plugin: &PluginId,
        cancel: &CancellationToken,
    ) -> Result<Option<OwnedSemaphorePermit>, Fault> {
        let Some(step) = depth.checked_sub(1).and_then(|step| self.callers.get(step)) else {
            return Ok(None);
        };
        if let Ok(permit) = Arc::clone(step).try_acquire_owned() {
            return Ok(Some(permit));
        }
        let queue = Counted::of(&self.waiting);
        if queue.others >= self.limits.queued_calls {
            return Err(self.busy(plugin, Full::Queue));
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")),
            permit = Arc::clone(step).acquire_owned() => Ok(permit.ok()),
            () = tokio::time::sleep(self.limits.queue_timeout) => Err(self.busy(plugin, Full::Callers)),
        }
    }

    /// A place at once (`None`), or a ticket of the queue.
    fn join(&self, plugin: &PluginId, concurrency: u32) -> Result<Option<Ticket>, Fault> {
        let mut state = lock(&self.state);
        if state.take(plugin, concurrency) {
            return Ok(None);
        }
        let evicted = if state.waiting >= self.limits.queued_calls {
            match state.evict_for(plugin) {
                Some(seat) => Some(seat),
                None => {
                    state.forget(plugin);
                    drop(state);
                    return Err(self.busy(plugin, Full::Queue));
                }
            }
        } else {
            None
        };
        let ticket = state.queue(plugin);
        // The bound of the lane may have been raised by a reload.
        state.offer(plugin);
        let granted = state.hand_out();
        drop(state);
        granted.into_iter().chain(evicted).for_each(|seat| seat.wake.notify_one());
        let (number, seat) = ticket;
        Ok(Some(Ticket { state: Arc::clone(&self.state), plugin: plugin.clone(), number, seat, left: false }))
    }

    fn place(&self, plugin: &PluginId, queued_us: u64) -> Place {
        Place { state: Arc::clone(&self.state), plugin: plugin.clone(), queued_us }
    }

    fn busy(&self, plugin: &PluginId, full: Full) -> Fault {
        let (at_bound, retry) = {
            let state = lock(&self.state);
            let lane = state.lanes.get(plugin);
            let bound = lane.filter(|lane| lane.running >= lane.bound).map(|lane| lane.bound);
            (bound, state.pace.retry(lane.map_or(0, Lane::len), state.turns.len()))
        };
        let hit = |name, value, setting| LimitHit { name, value, setting };
        let places = self.limits.parallel_calls;
        let (what, limit) = match (full, at_bound) {
            (Full::Queue, _) => (
                format!("busy: all {places} places are taken and the queue is full"),
                hit(
                    "queued_calls",
                    self.limits.queued_calls.to_string(),
                    "[host] queued_calls = …".to_owned(),
                ),
            ),
            (Full::Callers, _) => (
                format!(
                    "busy: {} calls that call others are under way, for {places} places",
                    self.limits.callers()
                ),
                hit("parallel_calls", places.to_string(), "[host] parallel_calls = …".to_owned()),
            ),
            (Full::Time, Some(bound)) => (
                format!("busy: {bound} calls of plugin `{plugin}` are running"),
                hit("concurrency", bound.to_string(), format!("[plugins.{plugin}.limits] concurrency = …")),
            ),
            (Full::Time, None) => (
                format!("busy: all {places} places are taken"),
                hit(
                    "queue_timeout",
                    quantity::show_duration(self.limits.queue_timeout),
                    "[host] queue_timeout = …".to_owned(),
                ),
            ),
        };
        let what = format!("{what}; try again in {}", quantity::show_duration(retry));
        Fault::by_limit(FaultKind::Busy, &what, limit).retry_after(retry)
    }

    /// Places that are free now.
    pub(crate) fn free(&self) -> usize {
        lock(&self.state).free as usize
    }
}

/// What was full.
#[derive(Debug, Clone, Copy)]
enum Full {
    Queue,
    Time,
    Callers,
}

/// One that waits, counted.
struct Counted<'a> {
    all: &'a AtomicU32,
    others: u32,
}

impl<'a> Counted<'a> {
    fn of(all: &'a AtomicU32) -> Self {
        Self { all, others: all.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn release(state: &Mutex<State>, plugin: &PluginId) {
    let granted = {
        let mut state = lock(state);
        state.free += 1;
        if let Some(lane) = state.lanes.get_mut(plugin) {
            lane.running = lane.running.saturating_sub(1);
        }
        if state.waiting > 0 {
            state.pace.count();
        } else {
            state.pace.last = None;
            if state.turns.is_empty() && state.returning.is_empty() && state.lanes.len() <= KEPT_LANES {
                return;
            }
        }
        state.offer(plugin);
        state.forget(plugin);
        state.hand_out()
    };
    granted.into_iter().for_each(|seat| seat.wake.notify_one());
}

#[derive(Debug)]
struct State {
    free: u32,
    waiting: u32,
    /// The next waiting call's number: within a lane the lowest is first.
    next: u64,
    /// The plugins with calls that run or wait.
    lanes: HashMap<PluginId, Lane>,
    /// The lanes that could use a place, in turn; each once. Empty while a place is free.
    turns: VecDeque<PluginId>,
    /// Calls that want back the place that they lent, in their order. Empty while a place is free.
    returning: VecDeque<(PluginId, Arc<Seat>)>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Lane {
    running: u32,
    bound: u32,
    waiting: BTreeMap<u64, Arc<Seat>>,
    in_turns: bool,
}

impl Lane {
    fn len(&self) -> usize {
        self.waiting.len()
    }
    fn can_use_a_place(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.bound
    }
}

impl State {
    /// Takes a place without waiting, if one is free and nobody of the lane waits.
    fn take(&mut self, plugin: &PluginId, bound: u32) -> bool {
        let lane = match self.lanes.get_mut(plugin) {
            Some(lane) => lane,
            None => self.lanes.entry(plugin.clone()).or_default(),
        };
        lane.bound = bound;
        let now = self.free > 0 && lane.waiting.is_empty() && lane.running < bound;
        if now {
            self.free -= 1;
            lane.running += 1;
        }
        now
    }

    fn queue(&mut self, plugin: &PluginId) -> (u64, Arc<Seat>) {
        let (number, seat) = (self.next, Arc::new(Seat::default()));
        self.next += 1;
        self.waiting += 1;
        self.lanes.entry(plugin.clone()).or_default().waiting.insert(number, Arc::clone(&seat));
        (number, seat)
    }

    /// Puts a lane at the end of the turns, if it could use a place and is not there.
    fn offer(&mut self, plugin: &PluginId) {
        if let Some(lane) = self.lanes.get_mut(plugin)
            && !lane.in_turns
            && lane.can_use_a_place()
        {
            lane.in_turns = true;
            self.turns.push_back(plugin.clone());
        }
    }

    /// Drops a lane in which nothing runs or waits, if there are many; one that has a turn, when its turn comes.
    fn forget(&mut self, plugin: &PluginId) {
        if self.lanes.len() <= KEPT_LANES {
            return;
        }
        let unused = |lane: &Lane| lane.running == 0 && lane.waiting.is_empty() && !lane.in_turns;
        if self.lanes.get(plugin).is_some_and(unused) {
            self.lanes.remove(plugin);
        }
    }

    /// Gives free places to the lanes in turn. Who got one is to be woken when the lock is gone.
    fn hand_out(&mut self) -> Vec<Arc<Seat>> {
        let mut granted = Vec::new();
        while self.free > 0 {
            // First those whose memory is held already.
            if let Some((plugin, seat)) = self.returning.pop_front() {
                self.lanes.entry(plugin).or_default().running += 1;
                self.free -= 1;
                seat.decide(Verdict::Granted);
                granted.push(seat);
                continue;
            }
            let Some(plugin) = self.turns.pop_front() else { break };
            let Some(lane) = self.lanes.get_mut(&plugin) else { continue };
            lane.in_turns = false;
            if !lane.can_use_a_place() {
                self.forget(&plugin);
                continue;
            }
            if let Some((_, seat)) = lane.waiting.pop_first() {
                lane.running += 1;
                self.free -= 1;
                self.waiting -= 1;
                seat.decide(Verdict::Granted);
                granted.push(seat);
            }
            self.offer(&plugin);
        }
        granted
    }

    /// Makes room in the queue for a call of `plugin` at the cost of the longest lane, if that is longer by more than
    /// the one.
    fn evict_for(&mut self, plugin: &PluginId) -> Option<Arc<Seat>> {
        let own = self.lanes.get(plugin).map_or(0, Lane::len);
        let longest = self.lanes.values_mut().max_by_key(|lane| lane.len())?;
        if longest.len() <= own + 1 {
            return None;
        }
        let (_, seat) = longest.waiting.pop_last()?;
        self.waiting -= 1;
        seat.decide(Verdict::Evicted);
        Some(seat)
    }
}

/// What became of a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Waiting,
    Granted,
    Evicted,
}

/// Where a waiting call learns its verdict, which is written under the lock and told after it.
#[derive(Debug, Default)]
struct Seat {
    verdict: AtomicU8,
    wake: Notify,
}

impl Seat {
    fn decide(&self, verdict: Verdict) {
        self.verdict.store(verdict as u8, Ordering::Release);
    }

    fn verdict(&self) -> Verdict {
        match self.verdict.load(Ordering::Acquire) {
            v if v == Verdict::Granted as u8 => Verdict::Granted,
            v if v == Verdict::Evicted as u8 => Verdict::Evicted,
            _ => Verdict::Waiting,
        }
    }
}

/// A call in the queue. Whoever drops it leaves the queue, and gives back the place that it was granted meanwhile.
#[derive(Debug)]
struct Ticket {
    state: Arc<Mutex<State>>,
    plugin: PluginId,
    number: u64,
    seat: Arc<Seat>,
    left: bool,
}

impl Ticket {
    /// Leaves the queue. With [`Verdict::Granted`], the place is the caller's.
    fn leave(mut self) -> Verdict {
        self.left = true;
        self.remove()
    }

    fn remove(&self) -> Verdict {
        let mut state = lock(&self.state);
        if let Some(lane) = state.lanes.get_mut(&self.plugin)
            && lane.waiting.remove(&self.number).is_some()
        {
            state.waiting -= 1;
            state.forget(&self.plugin);
        }
        self.seat.verdict()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.left && self.remove() == Verdict::Granted {
            release(&self.state, &self.plugin);
        }
    }
}

/// How quickly places become free while calls wait.
#[derive(Debug, Default)]
struct Pace {
    /// When the last one did; `None` after a time in which nobody waited.
    last: Option<Instant>,
    /// Microseconds between two, an eighth of each new one.
    between: Option<u64>,
}

impl Pace {
    fn count(&mut self) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            let passed =
                u64::try_from(now.duration_since(last).min(RETRY_MOST).as_micros()).unwrap_or(u64::MAX);
            self.between = Some(self.between.map_or(passed, |mean| mean - mean / 8 + passed / 8));
        }
    }

    /// When the next call of a lane of this length could run: a turn of every lane for each call before it.
    fn retry(&self, lane: usize, lanes: usize) -> Duration {
        let between = self.between.unwrap_or(100_000);
        let turns = (lane as u64 + 1).saturating_mul(lanes.max(1) as u64);
        Duration::from_micros(between.saturating_mul(turns)).clamp(RETRY_LEAST, RETRY_MOST)
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
