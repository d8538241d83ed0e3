//! Thread pools for file system work, separate from the embedder's runtime.
//!
//! A thread that reads from a hanging file system cannot be cancelled. File work of guests and of the host therefore
//! has its own threads. Each task holds its permit until its thread is free again, even if its caller gave up. A
//! hanging file system blocks only these threads.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use toolbay_policy::name::PluginId;

use crate::engine::admission::FairSemaphore;

/// Number of threads for guest files.
const GUEST_THREADS: u32 = 128;
/// Maximum number of these threads for one plugin: a hanging file system blocks a quarter of them.
const GUEST_THREADS_OF_PLUGIN: u32 = 32;
/// Maximum number of file operations that wait for a thread. Each call has one operation, or one for each of its
/// streams.
const GUEST_OPERATIONS_WAITING: u32 = 16_384;
/// Number of threads for the host's own files.
const HOST_THREADS: u32 = 8;
/// How long the host waits for its own disk, including the wait for a thread.
const HOST_DEADLINE: Duration = Duration::from_secs(10);

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockingError {
    /// The queue is full.
    #[error("busy: too many file operations wait for a thread; try again later")]
    Busy,
    /// The deadline passed.
    #[error("the disk did not answer within {} seconds", HOST_DEADLINE.as_secs())]
    TimedOut,
    /// The work panicked, or the thread could not be started.
    #[error("the host failed while it handled the file")]
    Failed,
}

/// A pool whose threads exist only while they are needed.
#[derive(Debug)]
struct ThreadPool {
    /// A runtime that runs no tasks, only blocking work.
    runtime: OnceLock<Option<Runtime>>,
    max_threads: u32,
}

impl ThreadPool {
    const fn new(most: u32) -> Self {
        Self { runtime: OnceLock::new(), max_threads: most }
    }

    /// Runs work on a thread. The caller holds a permit; there are as many permits as threads.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let build = || {
            let most = usize::try_from(self.max_threads).unwrap_or(1);
            let built =
                Builder::new_current_thread().thread_name("toolbay-files").max_blocking_threads(most).build();
            built
                .inspect_err(|error| tracing::error!(%error, "the threads for files could not be started"))
                .ok()
        };
        let runtime = self.runtime.get_or_init(build).as_ref().ok_or(BlockingError::Failed)?;
        // When the caller gives up, work that has not started is dropped.
        AbortOnDropHandle::new(runtime.spawn_blocking(work)).await.map_err(|_| BlockingError::Failed)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.runtime.take() {
            // The last owner may be an async task, which must not block on a hanging thread.
            runtime.shutdown_background();
        }
    }
}

/// The threads for guest files, shared fairly between plugins. Clones share the threads.
#[derive(Debug, Clone)]
pub(crate) struct GuestThreads {
    permits: FairSemaphore,
    threads: Arc<ThreadPool>,
}

impl Default for GuestThreads {
    fn default() -> Self {
        let permits = FairSemaphore::new(GUEST_THREADS, GUEST_OPERATIONS_WAITING);
        Self { permits, threads: Arc::new(ThreadPool::new(GUEST_THREADS)) }
    }
}

impl GuestThreads {
    /// Runs a plugin's work on a thread.
    ///
    /// # Errors
    /// The queue is full, or the work failed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        plugin: &PluginId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let permit =
            self.permits.acquire(plugin, GUEST_THREADS_OF_PLUGIN).await.map_err(|_| BlockingError::Busy)?;
        let counted = move || {
            let done = work();
            drop(permit);
            done
        };
        self.threads.run(counted).await
    }
}

/// The threads for the host's own files. All work has a deadline.
#[derive(Debug)]
pub(crate) struct HostThreads {
    permits: Arc<Semaphore>,
    threads: ThreadPool,
    deadline: Duration,
}

impl Default for HostThreads {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(HOST_THREADS as usize)),
            threads: ThreadPool::new(HOST_THREADS),
            deadline: HOST_DEADLINE,
        }
    }
}

impl HostThreads {
    /// Runs work on a thread. Work that misses its deadline continues and keeps its thread until it ends.
    ///
    /// # Errors
    /// The disk does not answer in time, or the work failed.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let run = async {
            let permit =
                Arc::clone(&self.permits).acquire_owned().await.map_err(|_| BlockingError::Failed)?;
            let counted = move || {
                let done = work();
                drop(permit);
                done
            };
            self.threads.run(counted).await
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
