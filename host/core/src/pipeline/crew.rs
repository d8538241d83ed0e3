//! Who works off a batch: a few tasks, each of which takes one call after the other. A call that has to wait for
//! something lets one more task begin, so that calls that wait do so at the same time, while those that do not cost no
//! task of their own; and whoever asked for the batch works too.
//!
//! The tasks share two counters and nothing else that they write: each unit and each result has a place of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::standby::Standby;
use super::{BATCH_TASKS, Delivered, Unit, make_room};
use crate::call::ToolCall;

/// For how long whoever asked for the batch looks for its end before it sleeps: the last call of another task ends within
/// microseconds, and to be woken takes longer than that.
const LOOKS: Duration = Duration::from_micros(20);

/// What all of a batch's tasks share.
pub(super) struct Crew<W> {
    work: W,
    units: Vec<Mutex<Option<Unit>>>,
    results: Vec<Mutex<Option<Delivered>>>,
    /// The unit that is taken next.
    next: AtomicUsize,
    /// Units that have not ended.
    left: AtomicUsize,
    tasks: Mutex<Tasks>,
    done: Notify,
    standby: Arc<Standby<Arc<Self>>>,
}

struct Tasks {
    /// Tasks that were begun, the caller's own included.
    members: usize,
    handles: Vec<AbortHandle>,
    given_up: bool,
}

/// Runs one call.
pub(super) trait Work: Send + Sync + 'static {
    /// Its result. Panics are caught in it.
    fn run(&self, call: ToolCall) -> impl Future<Output = Delivered> + Send;
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Work> Crew<W> {
    /// Works off all units, and returns what they gave, in the order of the calls. Dropping the future ends them all.
    pub(super) async fn work_off(
        work: W,
        units: Vec<Unit>,
        standby: Arc<Standby<Arc<Self>>>,
    ) -> Vec<Delivered> {
        let calls: usize = units.iter().map(|unit| 1 + unit.rest.len()).sum();
        let at_once = Handle::current().metrics().num_workers().min(units.len());
        let crew = Arc::new(Self {
            work,
            left: AtomicUsize::new(units.len()),
            units: units.into_iter().map(|unit| Mutex::new(Some(unit))).collect(),
            results: (0..calls).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            tasks: Mutex::new(Tasks { members: 1, handles: Vec::new(), given_up: false }),
            done: Notify::new(),
            standby,
        });
        let _end = GiveUp(&crew);
        let begun = (1..at_once).filter(|_| crew.one_more()).count();
        // A worker keeps the task that it made last to itself, and will be busy with this batch: one more makes the member
        // one that others may take.
        if begun > 0 && tokio::task::try_id().is_some() {
            tokio::spawn(std::future::ready(()));
        }
        crew.work().await;
        if !crew.is_done_soon() {
            crew.done.notified().await;
        }
        crew.results.iter().filter_map(|result| lock(result).take()).collect()
    }

    /// Finds one more task for the batch; returns whether it had to be begun.
    fn one_more(self: &Arc<Self>) -> bool {
        lock(&self.tasks).members += 1;
        let begins = self.standby.hand(Arc::clone(self)).is_err();
        if begins {
            lock(&self.tasks).members -= 1;
            self.another();
        }
        begins
    }

    /// Begins one more task, if there is something to do for it.
    fn another(self: &Arc<Self>) {
        let mut tasks = lock(&self.tasks);
        let nothing = self.next.load(Ordering::Relaxed) >= self.units.len();
        if nothing || tasks.given_up || tasks.members >= BATCH_TASKS {
            return;
        }
        tasks.members += 1;
        let (crew, own) = (Arc::clone(self), Arc::new(OnceLock::new()));
        let task = tokio::spawn(crew.member(Arc::clone(&own)));
        let handle = own.get_or_init(|| task.abort_handle());
        tasks.handles.push(handle.clone());
    }

    /// Works for this batch, and for the next ones if they come soon.
    async fn member(self: Arc<Self>, own: Arc<OnceLock<AbortHandle>>) {
        let mut crew = self;
        loop {
            crew.work().await;
            let Some(own) = own.get().filter(|own| crew.lets_go(own)) else { return };
            let standby = Arc::clone(&crew.standby);
            drop(crew);
            match standby.look() {
                Some(next) if next.takes(own) => crew = next,
                _ => return,
            }
        }
    }

    /// Whether a task may work for others: it does not end with this batch any more.
    fn lets_go(&self, task: &AbortHandle) -> bool {
        let mut tasks = lock(&self.tasks);
        tasks.handles.retain(|one| one.id() != task.id());
        !tasks.given_up
    }

    /// Whether a task of an earlier batch may work for this one: it ends with it from now on.
    fn takes(&self, task: &AbortHandle) -> bool {
        let mut tasks = lock(&self.tasks);
        if !tasks.given_up {
            tasks.handles.push(task.clone());
        }
        !tasks.given_up
    }

    /// Takes one unit after the other until there is none.
    async fn work(self: &Arc<Self>) {
        while let Some(unit) = self.take() {
            let _end = UnderWay(self);
            let mut waited = false;
            for (index, call) in std::iter::once(unit.first).chain(unit.rest) {
                // Not a wait that another task could use.
                make_room().await;
                let mut run = pin!(self.work.run(call));
                let done = poll_fn(|context| {
                    let poll = run.as_mut().poll(context);
                    if poll.is_pending() && !std::mem::replace(&mut waited, true) {
                        self.another();
                    }
                    poll
                });
                let done = done.await;
                if let Some(place) = self.results.get(index) {
                    *lock(place) = Some(done);
                }
            }
        }
    }

    fn take(&self) -> Option<Unit> {
        loop {
            let place = self.units.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            if let Some(unit) = lock(place).take() {
                return Some(unit);
            }
        }
    }
}

impl<W> Crew<W> {
    fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Looks for a moment whether all units have ended.
    fn is_done_soon(&self) -> bool {
        let start = Instant::now();
        while !self.is_done() && start.elapsed() < LOOKS {
            std::hint::spin_loop();
        }
        self.is_done()
    }
}

/// A unit that was taken: it ends, whatever becomes of the task.
struct UnderWay<'a, W>(&'a Crew<W>);

impl<W> Drop for UnderWay<'_, W> {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_one();
        }
    }
}

/// Ends the tasks of a batch that nobody waits for any more.
struct GiveUp<'a, W>(&'a Crew<W>);

impl<W> Drop for GiveUp<'_, W> {
    fn drop(&mut self) {
        if self.0.is_done() {
            return;
        }
        let mut tasks = lock(&self.0.tasks);
        tasks.given_up = true;
        let handles = std::mem::take(&mut tasks.handles);
        drop(tasks);
        handles.iter().for_each(AbortHandle::abort);
        self.0.units.iter().for_each(|unit| drop(lock(unit).take()));
    }
}
