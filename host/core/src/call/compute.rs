//! Work of the host on foreign data: arguments, results, names, schemas.
//!
//! Limits on the size of such data limit this work, too, but other calls cannot wait that long: redacting 16 MiB takes a
//! second. So the host first estimates the steps of a piece of work. Short work runs at once. Long work runs on a thread
//! that is not a worker of the runtime.
//!
//! | limit | value |
//! |---|---|
//! | steps that run at once | [`INLINE_STEPS`] |
//! | pieces of one source at the same time | one, or a quarter of the workers |
//! | pieces of all sources at the same time | the number of workers, at least four |
//! | time that a call waits for a piece | 30 s |
//!
//! So a source with large results delays only itself. A call that ends stops waiting. Work that has begun runs to its end
//! and keeps its thread until then.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use toolbay_policy::quantity::show_duration;

use crate::tool::fault::{Fault, FaultKind};

/// Most steps of work that runs on the calling thread. A step takes about ten nanoseconds: half a millisecond in all.
pub const INLINE_STEPS: u64 = 50_000;
/// Longest time that a call waits for one piece of work.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Fewest threads for long work: the work of one source alone must not use them all.
const MIN_THREADS: usize = 4;

/// The threads for long work of a host, shared fairly between sources. Clones share the threads.
#[derive(Debug, Clone, Default)]
pub struct ComputePool(Arc<PoolState>);

#[derive(Debug, Default)]
struct PoolState {
    permits: OnceLock<Arc<Semaphore>>,
    /// The permits of each source that has work.
    sources: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// The pool for the work that one source causes, until a call ends.
#[derive(Debug, Clone)]
pub struct ComputeQueue {
    pool: ComputePool,
    source: Arc<str>,
    cancel: CancellationToken,
}

impl ComputePool {
    /// The queue of a source, whose work ends with `cancel`.
    #[must_use]
    pub fn queue(&self, source: Arc<str>, cancel: CancellationToken) -> ComputeQueue {
        ComputeQueue { pool: self.clone(), source, cancel }
    }

    /// The permits of all sources. A runtime with one worker has [`MIN_THREADS`] as well.
    fn permits(&self) -> Arc<Semaphore> {
        let new = || Arc::new(Semaphore::new(workers().max(MIN_THREADS)));
        Arc::clone(self.0.permits.get_or_init(new))
    }

    fn permits_of(&self, source: &Arc<str>) -> Arc<Semaphore> {
        let mut sources = self.0.sources.lock();
        if let Some(known) = sources.get(source).and_then(Weak::upgrade) {
            return known;
        }
        sources.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new((workers() / 4).max(1)));
        sources.insert(Arc::clone(source), Arc::downgrade(&permits));
        permits
    }
}

impl ComputeQueue {
    /// Runs work of about `steps` steps. A panic of the work is resumed in the caller.
    ///
    /// # Errors
    /// The call was cancelled, or waited for longer than 30 seconds.
    pub async fn run<T: Send + 'static>(
        &self,
        steps: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        if steps <= INLINE_STEPS {
            return Ok(work());
        }
        // Boxed to keep the futures of calls with little work small.
        Box::pin(self.run_on_thread(work)).await
    }

    /// Waits until the source may begin one more piece of work, for work that runs elsewhere. The permit counts until it is
    /// dropped.
    ///
    /// # Errors
    /// The call was cancelled, or waited for longer than 30 seconds.
    pub async fn acquire_permit(&self) -> Result<OwnedSemaphorePermit, Fault> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            () = tokio::time::sleep(MAX_WAIT) => Err(timed_out()),
            // The semaphore is never closed.
            permit = self.pool.permits_of(&self.source).acquire_owned() => permit.map_err(|_| cancelled()),
        }
    }

    async fn run_on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let done = async {
            // The permit of the source first: each source has few pieces in the common queue.
            let source_permit = self.pool.permits_of(&self.source).acquire_owned().await;
            let permit = self.pool.permits().acquire_owned().await;
            let counted = move || {
                let done = work();
                drop((permit, source_permit));
                done
            };
            // The call owns the task: work that has not begun ends with it.
            AbortOnDropHandle::new(tokio::task::spawn_blocking(counted)).await
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            () = tokio::time::sleep(MAX_WAIT) => Err(timed_out()),
            done = done => match done {
                Ok(done) => Ok(done),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime shuts down.
                    Err(_) => Err(cancelled()),
                },
            },
        }
    }
}

/// Runs work of about `steps` steps that belongs to no call, such as parsing a message of a server. A panic of the work is
/// resumed in the caller.
pub async fn run_outside_calls<T: Send + 'static>(
    steps: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if steps <= INLINE_STEPS {
        return work();
    }
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime shuts down, and also ends this task.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn timed_out() -> Fault {
    let text =
        format!("the host's work on the data of the call took longer than {}", show_duration(MAX_WAIT));
    Fault::new(FaultKind::Deadline, text)
}

fn cancelled() -> Fault {
    Fault::new(FaultKind::Cancelled, "the call was cancelled")
}

fn workers() -> usize {
    Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn queue(pool: &ComputePool, source: &str) -> ComputeQueue {
        pool.queue(source.into(), CancellationToken::new())
    }

    #[tokio::test]
    async fn short_work_runs_at_once_and_long_work_on_another_thread() {
        let (pool, here) = (ComputePool::default(), std::thread::current().id());
        let thread = || std::thread::current().id();
        assert_eq!(queue(&pool, "a").run(INLINE_STEPS, thread).await.unwrap(), here);
        assert_ne!(queue(&pool, "a").run(INLINE_STEPS + 1, thread).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_source_with_much_work_delays_no_other() {
        let pool = ComputePool::default();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let busy: Vec<_> = (0..3 * MIN_THREADS)
            .map(|_| {
                let (queue, ended) = (queue(&pool, "busy"), Arc::clone(&ended));
                tokio::spawn(async move { queue.run(u64::MAX, move || ended.lock().recv().ok()).await })
            })
            .collect();
        while pool.permits().available_permits() == MIN_THREADS {
            tokio::task::yield_now().await;
        }
        for n in 0..10 {
            assert_eq!(queue(&pool, "quiet").run(u64::MAX, move || n).await.unwrap(), n);
        }
        assert_eq!(pool.permits().available_permits(), MIN_THREADS - 1);
        drop(end);
        for task in busy {
            task.await.unwrap().unwrap();
        }
        assert_eq!(pool.0.sources.lock().values().filter(|one| one.strong_count() > 0).count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_work_of_a_busy_source_ends() {
        let pool = ComputePool::default();
        let (end, ended) = mpsc::channel::<()>();
        let busy = queue(&pool, "a");
        let busy = tokio::spawn(async move { busy.run(u64::MAX, move || ended.recv().ok()).await });
        let late = queue(&pool, "a");
        let late = tokio::spawn(async move { late.run(u64::MAX, || ()).await });
        // Both wait before the time passes.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(MAX_WAIT + Duration::from_millis(1)).await;
        assert_eq!(busy.await.unwrap().unwrap_err().kind, FaultKind::Deadline);
        assert_eq!(late.await.unwrap().unwrap_err().kind, FaultKind::Deadline);
        drop(end);
    }

    #[tokio::test]
    async fn the_wait_for_work_ends_with_the_call_and_its_panic_is_the_callers() {
        let pool = ComputePool::default();
        let (end, ended) = mpsc::channel::<()>();
        let cancel = CancellationToken::new();
        let waiting = {
            let queue = pool.queue("a".into(), cancel.clone());
            tokio::spawn(async move { queue.run(u64::MAX, move || ended.recv().ok()).await })
        };
        while pool.permits().available_permits() == MIN_THREADS {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        assert_eq!(waiting.await.unwrap().unwrap_err().kind, FaultKind::Cancelled);
        drop(end);
        let failing = queue(&pool, "b");
        let failed = tokio::spawn(async move { failing.run(u64::MAX, || panic!("on purpose")).await });
        assert!(failed.await.unwrap_err().is_panic());
    }
}
