//! Who works off a batch: a few tasks, each of which takes one call after the other. A call that has to wait for
//! something lets one more task begin, so that calls that wait do so at the same time, while those that do not cost no
//! task of their own; and whoever asked for the batch works too.
//!
//! The tasks share two counters and nothing else that they write: each unit and each result has a place of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

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
    pub(super) async fn work_off(work: W, units: Vec<Unit>) -> Vec<Delivered> {
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
        });
        let _end = GiveUp(&crew);
        (1..at_once).for_each(|_| crew.another());
        // A worker keeps the task that it made last to itself, and will be busy with this batch: one more makes the member
        // one that others may take.
        if at_once > 1 && tokio::task::try_id().is_some() {
            tokio::spawn(std::future::ready(()));
        }
        crew.member().await;
        if !crew.is_done_soon() {
            crew.done.notified().await;
        }
        crew.results.iter().filter_map(|result| lock(result).take()).collect()
    }

    /// Begins one more task, if there is something to do for it.
    fn another(self: &Arc<Self>) {
        let mut tasks = lock(&self.tasks);
        let nothing = self.next.load(Ordering::Relaxed) >= self.units.len();
        if nothing || tasks.given_up || tasks.members >= BATCH_TASKS {
            return;
        }
        tasks.members += 1;
        let crew = Arc::clone(self);
        tasks.handles.push(tokio::spawn(async move { crew.member().await }).abort_handle());
    }

    /// Takes one unit after the other until there is none.
    async fn member(self: &Arc<Self>) {
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
