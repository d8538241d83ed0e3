//! Threads for work that waits on a file system, apart from those of the runtime that serves.
//!
//! Nothing can call back a thread that reads from a file system that hangs. So what guests make the host do with files,
//! and what the host does with its own, have threads of their own, and each task holds its permit until its thread is
//! free again, whatever becomes of the one that waits for it. A hanging file system then keeps these threads and no
//! others.

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use toolbay_policy::name::PluginId;

use crate::engine::admission::FairSemaphore;

/// Threads for the files of guests.
const GUEST_THREADS: u32 = 128;
/// Of these, most for one plugin: a file system that hangs keeps a quarter.
const GUEST_THREADS_OF_PLUGIN: u32 = 32;
/// File operations that may wait for a thread; one more is refused. Each call has one, or one for each of its streams.
const GUEST_OPERATIONS_WAITING: u32 = 16_384;
/// Threads for files of the host's own.
const HOST_THREADS: u32 = 8;
/// How long the host waits for its own disk, a free thread included.
const HOST_DEADLINE: Duration = Duration::from_secs(10);

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undone {
    /// Too much work waits for a thread.
    #[error("busy: too many file operations wait for a thread; try again later")]
    Busy,
    /// The disk did not answer.
    #[error("the disk did not answer within {} seconds", HOST_DEADLINE.as_secs())]
    Late,
    /// The work panicked, or no thread could be started.
    #[error("the host failed while it handled the file")]
    Lost,
}

/// Threads that exist only while they are needed.
#[derive(Debug)]
struct Threads {
    /// It has no worker: tasks are not run on it, only blocking work.
    runtime: OnceLock<Option<Runtime>>,
    most: u32,
}

impl Threads {
    const fn new(most: u32) -> Self {
        Self { runtime: OnceLock::new(), most }
    }

    /// Runs work on a thread. The caller holds one of as many permits as there are threads.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Undone> {
        let build = || {
            let most = usize::try_from(self.most).unwrap_or(1);
            let built =
                Builder::new_current_thread().thread_name("toolbay-files").max_blocking_threads(most).build();
            built.inspect_err(|error| tracing::error!(%error, "no threads for files")).ok()
        };
        let runtime = self.runtime.get_or_init(build).as_ref().ok_or(Undone::Lost)?;
        // Work that has not begun when its caller gives up does not begin any more.
        AbortOnDropHandle::new(runtime.spawn_blocking(work)).await.map_err(|_| Undone::Lost)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.runtime.take() {
            // The last owner may be a task, which must not wait for a thread that hangs.
            runtime.shutdown_background();
        }
    }
}

/// The threads for the files of guests, shared fairly between plugins. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct GuestThreads {
    permits: FairSemaphore,
    threads: Arc<Threads>,
}

impl Default for GuestThreads {
    fn default() -> Self {
        let permits = FairSemaphore::new(GUEST_THREADS, GUEST_OPERATIONS_WAITING);
        Self { permits, threads: Arc::new(Threads::new(GUEST_THREADS)) }
    }
}

impl GuestThreads {
    /// Does a plugin's work on a thread, once one is free for it.
    ///
    /// # Errors
    /// When too much waits already, or the work was lost.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        plugin: &PluginId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Undone> {
        let permit = self.permits.acquire(plugin, GUEST_THREADS_OF_PLUGIN).await.map_err(|_| Undone::Busy)?;
        let counted = move || {
            let done = work();
            drop(permit);
            done
        };
        self.threads.run(counted).await
    }
}

/// The threads for files of the host's own, each piece of work with a deadline.
#[derive(Debug)]
pub(crate) struct HostThreads {
    permits: Arc<Semaphore>,
    threads: Threads,
    deadline: Duration,
}

impl Default for HostThreads {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(HOST_THREADS as usize)),
            threads: Threads::new(HOST_THREADS),
            deadline: HOST_DEADLINE,
        }
    }
}

impl HostThreads {
    /// Does work on a thread. Work that is late goes on, and keeps its thread until it is over.
    ///
    /// # Errors
    /// When the disk does not answer in time, or the work was lost.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Undone> {
        let run = async {
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Undone::Lost)?;
            let counted = move || {
                let done = work();
                drop(permit);
                done
            };
            self.threads.run(counted).await
        };
        tokio::time::timeout(self.deadline, run).await.unwrap_or(Err(Undone::Late))
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
    async fn work_that_hangs_keeps_the_threads_of_its_plugin_and_no_others() {
        let threads = GuestThreads::default();
        let (end, hang) = hanging();
        let mut stuck = Vec::new();
        for plugin in ["a", "b", "c", "d", "e"] {
            for _ in 0..2 * GUEST_THREADS_OF_PLUGIN {
                let (threads, hang) = (threads.clone(), hang.clone());
                stuck.push(tokio::spawn(async move { threads.run(&id(plugin), hang).await }));
            }
        }
        // Three take 32 each, the fourth 8 and the fifth 4; the rest is reserved for others.
        while threads.permits.free() > 20 {
            tokio::task::yield_now().await;
        }
        for n in 0..10 {
            let quiet = id("quiet");
            let done = tokio::time::timeout(Duration::from_secs(20), threads.run(&quiet, move || n)).await;
            assert_eq!(done.expect("it waits for the others"), Ok(n));
        }
        // The callers give up. Their threads still hang, and are not lent to anybody else.
        let free = threads.permits.free();
        stuck.iter().for_each(tokio::task::JoinHandle::abort);
        for task in stuck {
            task.await.unwrap_err();
        }
        assert_eq!(threads.permits.free(), free);
        drop(end);
        while threads.permits.free() < GUEST_THREADS {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_given_up_in_time() {
        let threads = HostThreads { deadline: Duration::from_millis(50), ..HostThreads::default() };
        let (end, hang) = hanging();
        for _ in 0..HOST_THREADS + 2 {
            assert_eq!(threads.run(hang.clone()).await, Err(Undone::Late));
        }
        assert_eq!(threads.permits.available_permits(), 0, "what hangs keeps its thread");
        drop(end);
        while threads.permits.available_permits() < HOST_THREADS as usize {
            tokio::task::yield_now().await;
        }
        let threads = HostThreads::default();
        assert_eq!(threads.run(|| 5).await, Ok(5));
        assert_eq!(threads.run(|| panic!("on purpose")).await, Err::<(), _>(Undone::Lost));
    }
}
