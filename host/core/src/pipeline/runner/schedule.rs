//! The scheduler of a batch, for the calls of a turn and for nested calls: a few workers that each run one call after
//! the other.
//!
//! The calls of a turn start with one worker for each thread of the runtime; the caller's task is one of them. When a
//! call waits, one more worker starts. So calls that wait overlap, and calls that do not wait need no task of their
//! own. Nested calls have as many workers as may run at the same time.
//!
//! Workers write to two shared counters only: each group of calls has its own slot.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use crate::call::ToolCall;
use crate::pipeline::result::CallResult;
use crate::registry::view::View;

/// Most calls of one batch in progress at the same time: four times the host's default concurrency. The other calls
/// wait as plain requests, which take little memory.
pub const BATCH_TASKS: usize = 256;

/// Units that a call consumes of the 128 that tokio gives a task before it must yield. Other tasks run after sixteen
/// calls, about 100 µs.
const CALL_SHARE: usize = 8;

/// How long the caller spins at the end of its batch before it sleeps. The last call of another worker usually ends
/// within microseconds, and waking a task takes longer.
const SPIN: Duration = Duration::from_micros(20);

/// Runs one call of a batch.
pub(super) trait RunCall: Send + Sync + 'static {
    /// Runs one call to its end.
    fn run_call(&self, call: ToolCall) -> impl Future<Output = CallResult> + Send;
}

/// A running batch, shared by its workers.
pub(super) struct BatchScheduler<C> {
    context: C,
    groups: Vec<Mutex<Option<CallGroup>>>,
    /// The index of the next group to run.
    next: AtomicUsize,
    /// The number of groups that have not ended.
    remaining: AtomicUsize,
    workers: Mutex<Workers>,
    most_workers: usize,
    done: Notify,
}

struct Workers {
    /// The number of started workers, including the caller's task.
    count: usize,
    handles: Vec<AbortHandle>,
    aborted: bool,
}

/// Receives the results of calls.
trait ResultSink: Clone + Send + Sync + 'static {
    /// Takes the result of the call with this index in the batch. Returns `false` if the receiver is gone.
    fn put(&self, index: usize, result: CallResult) -> impl Future<Output = bool> + Send;
}

/// Results in the order of the calls.
type ResultSlots = Arc<[Mutex<Option<CallResult>>]>;

impl ResultSink for ResultSlots {
    async fn put(&self, index: usize, result: CallResult) -> bool {
        if let Some(slot) = self.get(index) {
            *slot.lock() = Some(result);
        }
        true
    }
}

/// Results in the order in which the calls end.
impl ResultSink for mpsc::Sender<(usize, CallResult)> {
    async fn put(&self, index: usize, result: CallResult) -> bool {
        self.send((index, result)).await.is_ok()
    }
}

impl<C: RunCall> BatchScheduler<C> {
    /// Runs the calls of a turn and returns their results in the order of the calls. Dropping the future cancels every
    /// call.
    pub(super) async fn run(context: C, groups: Vec<CallGroup>) -> Vec<CallResult> {
        let calls: usize = groups.iter().map(|group| 1 + group.rest.len()).sum();
        let at_once = Handle::current().metrics().num_workers().min(groups.len());
        let results: ResultSlots = (0..calls).map(|_| Mutex::default()).collect();
        let batch = Self::new(context, groups, BATCH_TASKS);
        let _end = AbortOnDrop(&batch);
        batch.workers.lock().count = 1;
        (1..at_once).for_each(|_| batch.start_worker(&results));
        // Tokio keeps the last spawned task in a slot that other threads cannot steal from, and this thread is about to
        // be busy. One more spawned task moves the worker into the stealable queue.
        if at_once > 1 && tokio::task::try_id().is_some() {
            tokio::spawn(std::future::ready(()));
        }
        batch.work(&results).await;
        if !batch.spin_until_done() {
            batch.done.notified().await;
        }
        results.iter().filter_map(|result| result.lock().take()).collect()
    }

    /// Runs calls, at most `at_once` at the same time, and passes on each result as its call ends. At most one
    /// result is buffered, since all of them together could be large. Dropping the future cancels every call.
    pub(super) async fn run_each(
        context: C,
        groups: Vec<CallGroup>,
        at_once: usize,
        mut take: impl FnMut(usize, CallResult),
    ) {
        let batch = Self::new(context, groups, at_once);
        let _end = AbortOnDrop(&batch);
        let (results, mut taken) = mpsc::channel(1);
        (0..at_once.min(batch.groups.len())).for_each(|_| batch.start_worker(&results));
        drop(results);
        while let Some((index, result)) = taken.recv().await {
            take(index, result);
        }
    }

    fn new(context: C, groups: Vec<CallGroup>, most_workers: usize) -> Arc<Self> {
        Arc::new(Self {
            context,
            remaining: AtomicUsize::new(groups.len()),
            groups: groups.into_iter().map(|group| Mutex::new(Some(group))).collect(),
            next: AtomicUsize::new(0),
            workers: Mutex::new(Workers { count: 0, handles: Vec::new(), aborted: false }),
            most_workers,
            done: Notify::new(),
        })
    }

    /// Starts one more worker, if a group is left and the limit allows it.
    fn start_worker(self: &Arc<Self>, results: &impl ResultSink) {
        let mut workers = self.workers.lock();
        let nothing = self.next.load(Ordering::Relaxed) >= self.groups.len();
        if nothing || workers.aborted || workers.count >= self.most_workers {
            return;
        }
        workers.count += 1;
        let (batch, results) = (Arc::clone(self), results.clone());
        // The batch owns the task. It ends when no group is left, or when the future of the batch is dropped.
        workers.handles.push(tokio::spawn(async move { batch.work(&results).await }).abort_handle());
    }

    /// Runs one group after the other until none is left.
    async fn work(self: &Arc<Self>, results: &impl ResultSink) {
        while let Some(group) = self.next_group() {
            let _end = GroupGuard(self);
            let mut waited = false;
            for (index, call) in std::iter::once(group.first).chain(group.rest) {
                // Not inside `poll_fn` below: this yield is not a reason to start a worker.
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

    fn next_group(&self) -> Option<CallGroup> {
        loop {
            let slot = self.groups.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            if let Some(group) = slot.lock().take() {
                return Some(group);
            }
        }
    }

    /// Spins for up to [`SPIN`]. Returns whether all groups have ended.
    fn spin_until_done(&self) -> bool {
        let start = Instant::now();
        while !self.is_done() && start.elapsed() < SPIN {
            std::hint::spin_loop();
        }
        self.is_done()
    }
}

impl<C> BatchScheduler<C> {
    fn is_done(&self) -> bool {
        self.remaining.load(Ordering::Acquire) == 0
    }
}

/// Counts a group as ended when it is dropped, even if its worker panics.
struct GroupGuard<'a, C>(&'a BatchScheduler<C>);

impl<C> Drop for GroupGuard<'_, C> {
    fn drop(&mut self) {
        if self.0.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_one();
        }
    }
}

/// Aborts the workers if the future of the batch is dropped early.
struct AbortOnDrop<'a, C>(&'a BatchScheduler<C>);

impl<C> Drop for AbortOnDrop<'_, C> {
    fn drop(&mut self) {
        if self.0.is_done() {
            return;
        }
        let mut workers = self.0.workers.lock();
        workers.aborted = true;
        let handles = std::mem::take(&mut workers.handles);
        drop(workers);
        handles.iter().for_each(AbortHandle::abort);
        self.0.groups.iter().for_each(|group| drop(group.lock().take()));
    }
}

/// Consumes cooperative budget, so that the task yields regularly. Without it, a caller with many calls that never wait
/// would block all other tasks of its thread and delay the runtime's timers.
pub(super) async fn consume_call_share() {
    for _ in 0..CALL_SHARE {
        tokio::task::coop::consume_budget().await;
    }
}

/// Calls that run one after the other: one call, or the calls of a batch that share a serial queue. Each call comes
/// with its index in the batch.
pub(super) struct CallGroup {
    pub(super) first: (usize, ToolCall),
    pub(super) rest: Vec<(usize, ToolCall)>,
}

impl CallGroup {
    /// Groups calls by serial queue. The order within a group is that of the batch.
    pub(super) fn group(view: &View, calls: Vec<ToolCall>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::with_capacity(calls.len());
        let mut by_queue: HashMap<&Arc<str>, usize> = HashMap::new();
        for (index, call) in calls.into_iter().enumerate() {
            let queue = view.get(&call.tool).and_then(|entry| entry.call.serial.as_ref());
            let group = queue.map(|queue| *by_queue.entry(queue).or_insert(groups.len()));
            match group.and_then(|group| groups.get_mut(group)) {
                Some(group) => group.rest.push((index, call)),
                None => groups.push(Self { first: (index, call), rest: Vec::new() }),
            }
        }
        groups
    }
}
