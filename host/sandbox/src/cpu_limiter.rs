//! Limits the number of guests that compute at the same time to the number of cores.
//!
//! Without a limit, 64 spinning guests all sit in tokio's run queue. Every other task waits for all of them, and tokio
//! polls for I/O only once in 61 task polls. A guest that was interrupted once therefore continues only with a permit
//! of a fair semaphore, and the other guests wait outside the run queue. A guest that ends within its first time slice
//! never waits. A guest that waits for the host holds no permit.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits to compute, shared by all engines of a host.
#[derive(Debug, Clone)]
pub(crate) struct CpuLimiter(Arc<CpuLimiterState>);

#[derive(Debug)]
struct CpuLimiterState {
    free: Arc<Semaphore>,
    /// The number of guests that compute now.
    computing: [ComputingCount; COUNTS],
}

/// Threads use separate counters: one counter would move its cache line between the cores at each call.
const COUNTS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(128))]
struct ComputingCount(AtomicUsize);

thread_local! {
    /// The index of this thread's counter.
    static COUNT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % COUNTS
    };
}

impl Default for CpuLimiter {
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl CpuLimiter {
    fn new(all: usize) -> Self {
        Self(Arc::new(CpuLimiterState { free: Arc::new(Semaphore::new(all)), computing: Default::default() }))
    }

    /// Whether any guest computes now.
    pub(crate) fn is_computing(&self) -> bool {
        self.0.computing.iter().any(|count| count.0.load(Ordering::Relaxed) > 0)
    }

    fn thread_count(&self) -> &AtomicUsize {
        let at = COUNT.with(|at| *at);
        self.0.computing.get(at).map_or(&self.0.computing[0].0, |count| &count.0)
    }
}

/// The permit of one guest entry. The entry acquires it when the guest is interrupted for the first time.
#[derive(Debug)]
pub(crate) struct CpuPermit {
    limiter: CpuLimiter,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    permit: Option<OwnedSemaphorePermit>,
    /// The guest yields to the async runtime and keeps its permit.
    yielding: bool,
}

impl CpuPermit {
    /// A permit of this limiter, which is not held yet.
    #[must_use]
    pub(crate) fn new(all: &CpuLimiter) -> Arc<Self> {
        Arc::new(Self { limiter: all.clone(), state: Mutex::default() })
    }

    /// Yields to the async runtime between two time slices, then waits for a permit.
    pub(crate) async fn yield_and_reacquire(self: Arc<Self>) {
        // The permit is released after the yield. Otherwise its next holder would run before tokio polls for I/O.
        self.state.lock().yielding = true;
        tokio::task::yield_now().await;
        *self.state.lock() = PermitState::default();
        // The semaphore is never closed. Without a permit the guest would continue and yield again at the next tick.
        let permit = Arc::clone(&self.limiter.0.free).acquire_owned().await.ok();
        self.state.lock().permit = permit;
    }

    /// Runs a guest, and releases its permit whenever the guest waits.
    pub(crate) async fn run<F: Future>(&self, mut guest: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| {
            let computing = ComputingGuard::begin(self.limiter.thread_count());
            let polled = guest.as_mut().poll(cx);
            drop(computing);
            if polled.is_pending() {
                let mut held = self.state.lock();
                if !held.yielding {
                    held.permit = None;
                }
            }
            polled
        })
        .await
    }
}

/// Counts a computing guest until dropped, also when the guest panics.
struct ComputingGuard<'a>(&'a AtomicUsize);

impl<'a> ComputingGuard<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for ComputingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::time::Duration;

    /// Guests compute and wait alternately. No more compute than there are permits, and all of them end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_guests_compute_than_there_are_permits() {
        let limiter = CpuLimiter::new(2);
        let running = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (permit, running) = (CpuPermit::new(&limiter), Arc::clone(&running));
                tokio::spawn(async move {
                    let guest = async {
                        for round in 0..20 {
                            Arc::clone(&permit).yield_and_reacquire().await;
                            let now = running.fetch_add(1, Ordering::SeqCst);
                            assert!(now < 2, "{now} other guests hold a permit");
                            std::hint::black_box((0..1000).sum::<u64>());
                            running.fetch_sub(1, Ordering::SeqCst);
                            if (n + round) % 7 == 0 {
                                tokio::time::sleep(Duration::from_micros(50)).await;
                            }
                        }
                    };
                    permit.run(pin!(guest)).await;
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(30), task)
                .await
                .expect("a guest never got a permit")
                .unwrap();
        }
        assert_eq!(limiter.0.free.available_permits(), 2);
    }

    #[tokio::test]
    async fn a_pending_guest_holds_no_permit_and_drop_releases_it() {
        let limiter = CpuLimiter::new(1);
        let permit = CpuPermit::new(&limiter);
        let guest = async {
            Arc::clone(&permit).yield_and_reacquire().await;
            std::future::pending::<()>().await;
        };
        let waits = tokio::time::timeout(Duration::from_millis(50), permit.run(pin!(guest))).await;
        assert!(waits.is_err() && limiter.0.free.available_permits() == 1);
        let other = CpuPermit::new(&limiter);
        Arc::clone(&other).yield_and_reacquire().await;
        assert_eq!(limiter.0.free.available_permits(), 0);
        drop(other);
        assert_eq!(limiter.0.free.available_permits(), 1);
    }
}
