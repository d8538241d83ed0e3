//! Who works off a batch: a few tasks, each of which takes one call after the other. A call that has to wait for
//! something lets one more task begin, so that calls that wait do so at the same time, while those that do not cost no
//! task of their own; and whoever asked for the batch works too, and is woken once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::IntoIter;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{BATCH_TASKS, Delivered, Unit, make_room};
use crate::call::ToolCall;

/// What all of a batch's tasks share.
pub(super) struct Crew<W> {
    work: W,
    state: Mutex<State>,
    done: Notify,
}

struct State {
    waiting: IntoIter<Unit>,
    results: Vec<(usize, Delivered)>,
    /// Units that were taken and have not ended.
    under_way: usize,
    /// Tasks that were begun, the caller's own included.
    members: usize,
    tasks: Vec<AbortHandle>,
    given_up: bool,
}

/// Runs one call.
pub(super) trait Work: Send + Sync + 'static {
    /// Its result. Panics are caught in it.
    fn run(&self, call: ToolCall) -> impl Future<Output = Delivered> + Send;
}

impl<W> Crew<W> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Work> Crew<W> {
    /// Works off all units, and returns what they gave, in no order. Dropping the future ends them all.
    pub(super) async fn work_off(work: W, units: Vec<Unit>) -> Vec<(usize, Delivered)> {
        let calls = units.iter().map(|unit| 1 + unit.rest.len()).sum();
        let at_once = Handle::current().metrics().num_workers().min(units.len());
        let state = State {
            waiting: units.into_iter(),
            results: Vec::with_capacity(calls),
            under_way: 0,
            members: 1,
            tasks: Vec::new(),
            given_up: false,
        };
        let crew = Arc::new(Self { work, state: Mutex::new(state), done: Notify::new() });
        let _end = GiveUp(&crew);
        (1..at_once).for_each(|_| crew.another());
        crew.member().await;
        crew.done.notified().await;
        std::mem::take(&mut crew.state().results)
    }

    /// Begins one more task, if there is something to do for it.
    fn another(self: &Arc<Self>) {
        let mut state = self.state();
        if state.given_up || state.members >= BATCH_TASKS || state.waiting.as_slice().is_empty() {
            return;
        }
        state.members += 1;
        let crew = Arc::clone(self);
        state.tasks.push(tokio::spawn(async move { crew.member().await }).abort_handle());
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
                let done = (index, done.await);
                self.state().results.push(done);
            }
        }
    }

    fn take(&self) -> Option<Unit> {
        let mut state = self.state();
        let unit = state.waiting.next()?;
        state.under_way += 1;
        Some(unit)
    }
}

/// A unit that was taken: it ends, whatever becomes of the task.
struct UnderWay<'a, W>(&'a Crew<W>);

impl<W> Drop for UnderWay<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        if state.under_way == 0 && state.waiting.as_slice().is_empty() {
            self.0.done.notify_one();
        }
    }
}

/// Ends the tasks of a batch that nobody waits for any more.
struct GiveUp<'a, W>(&'a Crew<W>);

impl<W> Drop for GiveUp<'_, W> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.given_up = true;
        let tasks = std::mem::take(&mut state.tasks);
        let waiting = std::mem::replace(&mut state.waiting, Vec::new().into_iter());
        drop(state);
        tasks.iter().for_each(AbortHandle::abort);
        drop(waiting);
    }
}
