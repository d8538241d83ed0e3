//! The scheduler of a batch, for the calls of a turn and for those that a call makes: a few workers, each of which runs
//! one call after the other.
//!
//! The calls of a turn start with one worker for each thread of the runtime, the caller's own task among them. A call that
//! waits lets one more worker start, so that calls that wait do so at the same time, while those that do not cost no task
//! of their own. The calls that a call makes have as many workers as may run at once, and never more.
//!
//! Workers share two counters and nothing else that they write: each group of calls has a slot of its own.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::BATCH_TASKS;
use super::batch::{BatchContext, CallGroup, consume_call_share};
use super::result::CallResult;

/// How long the caller looks for the end of its batch before it sleeps: the last call of another worker ends within
/// microseconds, and waking a task takes longer than that.
const SPIN: Duration = Duration::from_micros(20);

/// A batch under way. Each worker holds it.
pub(super) struct BatchScheduler {
    context: BatchContext,
    groups: Vec<Mutex<Option<CallGroup>>>,
    /// The group that is taken next.
    next: AtomicUsize,
    /// Groups that have not ended.
    left: AtomicUsize,
    workers: Mutex<Workers>,
    most_workers: usize,
    done: Notify,
}

struct Workers {
    /// Workers that were started, the caller's own task included.
    count: usize,
    handles: Vec<AbortHandle>,
    given_up: bool,
}

/// Where results go.
trait ResultSink: Clone + Send + Sync + 'static {
    /// Takes the result of the call at this place in the batch; `false`: nobody takes more.
    fn put(&self, index: usize, result: CallResult) -> impl Future<Output = bool> + Send;
}

/// A list in the order of the calls.
type ResultSlots = Arc<[Mutex<Option<CallResult>>]>;

impl ResultSink for ResultSlots {
    async fn put(&self, index: usize, result: CallResult) -> bool {
        if let Some(slot) = self.get(index) {
            *slot.lock() = Some(result);
        }
        true
    }
}

/// A reader that takes one result after the other.
impl ResultSink for mpsc::Sender<(usize, CallResult)> {
    async fn put(&self, index: usize, result: CallResult) -> bool {
        self.send((index, result)).await.is_ok()
    }
}

impl BatchScheduler {
    /// Runs the calls of a turn; returns their results in the order of the calls. Dropping the future ends every call.
    pub(super) async fn run(context: BatchContext, groups: Vec<CallGroup>) -> Vec<CallResult> {
        let calls: usize = groups.iter().map(|group| 1 + group.rest.len()).sum();
        let at_once = Handle::current().metrics().num_workers().min(groups.len());
        let results: ResultSlots = (0..calls).map(|_| Mutex::default()).collect();
        let batch = Self::new(context, groups, BATCH_TASKS);
        let _end = GiveUp(&batch);
        batch.workers.lock().count = 1;
        (1..at_once).for_each(|_| batch.start_worker(&results));
        // A thread keeps the task that it made last to itself, and will be busy with this batch: one more task makes the
        // worker one that other threads may take.
        if at_once > 1 && tokio::task::try_id().is_some() {
            tokio::spawn(std::future::ready(()));
        }
        batch.work(&results).await;
        if !batch.is_done_soon() {
            batch.done.notified().await;
        }
        results.iter().filter_map(|result| result.lock().take()).collect()
    }

    /// Runs calls that a call makes, at most `at_once` at the same time, and hands over each result as it comes. At most one
    /// result waits to be taken: all of them together could be large. Dropping the future ends every call.
    pub(super) async fn run_nested(
        context: BatchContext,
        groups: Vec<CallGroup>,
        at_once: usize,
        mut take: impl FnMut(usize, CallResult),
    ) {
        let batch = Self::new(context, groups, at_once);
        let _end = GiveUp(&batch);
        let (results, mut taken) = mpsc::channel(1);
        (0..at_once.min(batch.groups.len())).for_each(|_| batch.start_worker(&results));
        drop(results);
        while let Some((index, result)) = taken.recv().await {
            take(index, result);
        }
    }

    fn new(context: BatchContext, groups: Vec<CallGroup>, most_workers: usize) -> Arc<Self> {
        Arc::new(Self {
            context,
            left: AtomicUsize::new(groups.len()),
            groups: groups.into_iter().map(|group| Mutex::new(Some(group))).collect(),
            next: AtomicUsize::new(0),
            workers: Mutex::new(Workers { count: 0, handles: Vec::new(), given_up: false }),
            most_workers,
            done: Notify::new(),
        })
    }

    /// Starts one more worker, if there is something to do for it.
    fn start_worker(self: &Arc<Self>, results: &impl ResultSink) {
        let mut workers = self.workers.lock();
        let nothing = self.next.load(Ordering::Relaxed) >= self.groups.len();
        if nothing || workers.given_up || workers.count >= self.most_workers {
            return;
        }
        workers.count += 1;
        let (batch, results) = (Arc::clone(self), results.clone());
        // Ends when no group is left, or with the future of the batch, which aborts its workers.
        workers.handles.push(tokio::spawn(async move { batch.work(&results).await }).abort_handle());
    }

    /// Runs one group after the other until there is none.
    async fn work(self: &Arc<Self>, results: &impl ResultSink) {
        while let Some(group) = self.take() {
            let _end = RunningGroup(self);
            let mut waited = false;
            for (index, call) in std::iter::once(group.first).chain(group.rest) {
                // Not a wait that another worker could use.
                consume_call_share().await;
                let result = {
                    let mut run = pin!(self.context.run_call(call));
                    let run = poll_fn(|context| {
                        let poll = run.as_mut().poll(context);
                        if poll.is_pending() && !std::mem::replace(&mut waited, true) {
                            self.start_worker(results);
                        }
                        poll
                    });
                    run.await
                };
                if !results.put(index, result).await {
                    return;
                }
            }
        }
    }

    fn take(&self) -> Option<CallGroup> {
        loop {
            let slot = self.groups.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            if let Some(group) = slot.lock().take() {
                return Some(group);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Looks for a moment whether all groups have ended.
    fn is_done_soon(&self) -> bool {
        let start = Instant::now();
        while !self.is_done() && start.elapsed() < SPIN {
            std::hint::spin_loop();
        }
        self.is_done()
    }
}

/// A group that was taken: it ends, whatever happens to its worker.
struct RunningGroup<'a>(&'a BatchScheduler);

impl Drop for RunningGroup<'_> {
    fn drop(&mut self) {
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_one();
        }
    }
}

/// Ends the workers of a batch that nobody waits for any more.
struct GiveUp<'a>(&'a BatchScheduler);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if self.0.is_done() {
            return;
        }
        let mut workers = self.0.workers.lock();
        workers.given_up = true;
        let handles = std::mem::take(&mut workers.handles);
        drop(workers);
        handles.iter().for_each(AbortHandle::abort);
        self.0.groups.iter().for_each(|group| drop(group.lock().take()));
    }
}
