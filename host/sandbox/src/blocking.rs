//! Thread pools for file system work, separate from the embedder's runtime.
//!
//! A thread that reads from a hanging file system cannot be cancelled. File work of guests and of the host therefore
//! has its own threads. Each task holds its permit until its thread is free again, even if its caller gave up. A
//! hanging file system blocks only these threads.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{Semaphore, oneshot};
use toolbay_policy::name::PluginId;

use crate::admission::FairSemaphore;

/// Number of threads for guest files.
const GUEST_THREADS: u32 = 128;
/// Maximum number of these threads for one plugin: a hanging file system blocks a quarter of them.
const GUEST_THREADS_OF_PLUGIN: u32 = 32;
/// Maximum number of file operations that wait for a thread. Each call has one operation, or one for each of its
/// streams.
const GUEST_OPERATIONS_WAITING: u32 = 16_384;
/// Number of threads for the host's own files.
const HOST_THREADS: u32 = 8;
/// How long a thread waits for more work before it ends.
const IDLE_THREAD: Duration = Duration::from_secs(10);
/// How long the host waits for its own disk, including the wait for a thread.
const HOST_DEADLINE: Duration = Duration::from_secs(10);

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockingError {
    /// The queue is full.
    #[error("busy: too many file operations wait for a thread; try again later")]
    Busy,
    /// The deadline passed.
    #[error("the disk did not answer within {} seconds", HOST_DEADLINE.as_secs())]
    TimedOut,
    /// The work panicked.
    #[error("the host failed while it handled the file")]
    Failed,
    /// The system does not let the host start a thread.
    #[error("the host cannot start a thread for the file; try again later")]
    NoThread,
}

/// A pool whose threads exist only while they are needed.
///
/// The pool of a tokio runtime panics if it cannot start its first thread, so a limit on processes would make each call
/// panic.
#[derive(Debug, Default)]
struct ThreadPool(Arc<PoolState>);

#[derive(Default)]
struct PoolState {
    queue: Mutex<WorkQueue>,
    /// Notified for new work, and when the pool is dropped.
    changed: Condvar,
}

#[derive(Default)]
struct WorkQueue {
    waiting: VecDeque<Box<dyn FnOnce() + Send>>,
    threads: usize,
    idle_threads: usize,
    is_closed: bool,
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolState").field("threads", &self.queue.lock().threads).finish_non_exhaustive()
    }
}

impl ThreadPool {
    /// Runs work on a thread, which holds the permit until it is free again. There are as many permits as threads.
    async fn run<T: Send + 'static>(
        &self,
        permit: impl Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let (send, done) = oneshot::channel();
        let work = move || {
            // Released on a panic too, and before the caller gets the result.
            let work = move || {
                let _permit = permit;
                work()
            };
            // Work that has not begun is dropped when the caller gives up.
            if !send.is_closed() {
                // The panic hook has logged a panic, and `done` fails.
                if let Ok(value) = std::panic::catch_unwind(AssertUnwindSafe(work)) {
                    send.send(value).ok();
                }
            }
        };
        self.push(Box::new(work))?;
        done.await.map_err(|_| BlockingError::Failed)
    }

    /// Queues work, and starts a thread unless one is idle. Without a new thread the work waits for one that runs.
    fn push(&self, work: Box<dyn FnOnce() + Send>) -> Result<(), BlockingError> {
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() < queue.idle_threads {
            self.0.changed.notify_one();
        } else {
            let state = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("toolbay-files".to_owned());
            match thread.spawn(move || state.run_thread()) {
                Ok(_detached) => queue.threads += 1,
                Err(_) if queue.threads > 0 => {}
                Err(error) => {
                    tracing::error!(%error, "no thread for files can be started");
                    return Err(BlockingError::NoThread);
                }
            }
        }
        queue.waiting.push_back(work);
        Ok(())
    }
}

impl PoolState {
    /// Does work until there has been none for [`IDLE_THREAD`].
    fn run_thread(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(work) = queue.waiting.pop_front() {
                MutexGuard::unlocked(&mut queue, work);
                continue;
            }
            if queue.is_closed {
                break;
            }
            queue.idle_threads += 1;
            let waited = self.changed.wait_for(&mut queue, IDLE_THREAD);
            queue.idle_threads -= 1;
            if waited.timed_out() && queue.waiting.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        // Its threads end once their work has. The last owner may be an async task, which must not wait for one that hangs.
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

/// The threads for guest files, shared fairly between plugins. Clones share the threads.
#[derive(Debug, Clone)]
pub struct GuestThreads {
    permits: FairSemaphore,
    threads: Arc<ThreadPool>,
}

impl Default for GuestThreads {
    fn default() -> Self {
        let permits = FairSemaphore::new(GUEST_THREADS, GUEST_OPERATIONS_WAITING);
        Self { permits, threads: Arc::default() }
    }
}

impl GuestThreads {
    /// Runs a plugin's work on a thread.
    ///
    /// # Errors
    /// The queue is full, or the work failed.
    pub async fn run<T: Send + 'static>(
        &self,
        plugin: &PluginId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let permit =
            self.permits.acquire(plugin, GUEST_THREADS_OF_PLUGIN).await.map_err(|_| BlockingError::Busy)?;
        self.threads.run(permit, work).await
    }
}

/// The threads for the host's own files. All work has a deadline.
#[derive(Debug)]
pub struct HostThreads {
    permits: Arc<Semaphore>,
    threads: ThreadPool,
    deadline: Duration,
}

impl Default for HostThreads {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(HOST_THREADS as usize)),
            threads: ThreadPool::default(),
            deadline: HOST_DEADLINE,
        }
    }
}

impl HostThreads {
    /// Runs work on a thread. Work that misses its deadline continues and keeps its thread until it ends.
    ///
    /// # Errors
    /// The disk does not answer in time, or the work failed.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let run = async {
            let permit =
                Arc::clone(&self.permits).acquire_owned().await.map_err(|_| BlockingError::Failed)?;
            self.threads.run(permit, work).await
        };
        tokio::time::timeout(self.deadline, run).await.unwrap_or(Err(BlockingError::TimedOut))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use super::*;

    fn id(name: &str) -> PluginId {
        PluginId::new(name).unwrap()
    }

    /// Work that hangs until the returned sender is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl Fn() + Clone + Send + 'static) {
        let (end, ended) = mpsc::channel();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        (end, move || {
            ended.lock().unwrap().recv().ok();
        })
    }

    #[tokio::test]
    async fn hanging_work_blocks_only_the_threads_of_its_plugin() {
        let threads = GuestThreads::default();
        let (end, hang) = hanging();
        let mut stuck = Vec::new();
        for plugin in ["a", "b", "c", "d", "e"] {
            for _ in 0..2 * GUEST_THREADS_OF_PLUGIN {
                let (threads, hang) = (threads.clone(), hang.clone());
                stuck.push(tokio::spawn(async move { threads.run(&id(plugin), hang).await }));
            }
        }
        // Three plugins take 32 threads each, the fourth 8 and the fifth 4. The rest is reserved for others.
        while threads.permits.free_permits() > 20 {
            tokio::task::yield_now().await;
        }
        for n in 0..10 {
            let quiet = id("quiet");
            let done = tokio::time::timeout(Duration::from_secs(20), threads.run(&quiet, move || n)).await;
            assert_eq!(done.expect("the quiet plugin waits for the others"), Ok(n));
        }
        // The callers give up. Their threads still hang and are not reused.
        let free = threads.permits.free_permits();
        stuck.iter().for_each(tokio::task::JoinHandle::abort);
        for task in stuck {
            task.await.unwrap_err();
        }
        assert_eq!(threads.permits.free_permits(), free);
        drop(end);
        while threads.permits.free_permits() < GUEST_THREADS {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_hanging_disk_is_given_up_at_the_deadline() {
        let threads = HostThreads { deadline: Duration::from_millis(50), ..HostThreads::default() };
        let (end, hang) = hanging();
        for _ in 0..HOST_THREADS + 2 {
            assert_eq!(threads.run(hang.clone()).await, Err(BlockingError::TimedOut));
        }
        assert_eq!(threads.permits.available_permits(), 0, "hanging work keeps its thread");
        drop(end);
        while threads.permits.available_permits() < HOST_THREADS as usize {
            tokio::task::yield_now().await;
        }
        let threads = HostThreads::default();
        assert_eq!(threads.run(|| 5).await, Ok(5));
        assert_eq!(threads.run(|| panic!("on purpose")).await, Err::<(), _>(BlockingError::Failed));
    }
}
