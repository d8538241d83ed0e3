//! Who computes: guests that need more than a moment take turns, as many at once as there are cores.
//!
//! Without this, each of sixty-four spinning guests stands in the async runtime's queue and every other task waits for
//! all of them, and the runtime looks for new input only after sixty-one of their slices. So a guest that was interrupted
//! once goes on only with a turn, of which there are as many as cores, given in the order in which they were asked for; the
//! others wait outside the queue. A guest that is done within its first slice never waits, and one that waits for the host
//! holds no turn.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of one engine.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<All>);

#[derive(Debug)]
struct All {
    free: Arc<Semaphore>,
    /// Guests that compute at this moment.
    computing: [Count; COUNTS],
}

/// Threads count apart: a line of the processors' caches that all of them write to is passed about at each call.
const COUNTS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

thread_local! {
    /// Where this thread counts.
    static COUNT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % COUNTS
    };
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Turns {
    fn new(all: usize) -> Self {
        Self(Arc::new(All { free: Arc::new(Semaphore::new(all)), computing: Default::default() }))
    }

    /// Whether a guest computes.
    pub(crate) fn any_computes(&self) -> bool {
        self.0.computing.iter().any(|count| count.0.load(Ordering::Relaxed) > 0)
    }

    fn count(&self) -> &AtomicUsize {
        let at = COUNT.with(|at| *at);
        self.0.computing.get(at).map_or(&self.0.computing[0].0, |count| &count.0)
    }
}

/// The turn of one guest entry, if it has one.
#[derive(Debug)]
pub(crate) struct Turn {
    all: Turns,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    permit: Option<OwnedSemaphorePermit>,
    /// It gives way for a moment and keeps its turn.
    yielding: bool,
}

impl Turn {
    pub(crate) fn new(all: &Turns) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), held: Mutex::default() })
    }

    /// Between two slices: lets the runtime look for other work, then waits for the next turn.
    pub(crate) async fn rest(self: Arc<Self>) {
        // With the turn still held: whoever gets it next would run before the runtime looks for input.
        self.held.lock().yielding = true;
        tokio::task::yield_now().await;
        *self.held.lock() = Held::default();
        // The semaphore is never closed; without a permit the guest would go on, and give way at the next tick.
        let permit = Arc::clone(&self.all.0.free).acquire_owned().await.ok();
        self.held.lock().permit = permit;
    }

    /// Runs a guest, and gives its turn back whenever it waits for something.
    pub(crate) async fn run<F: Future>(&self, mut guest: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| {
            let computing = Computing::begin(self.all.count());
            let polled = guest.as_mut().poll(cx);
            drop(computing);
            if polled.is_pending() {
                let mut held = self.held.lock();
                if !held.yielding {
                    held.permit = None;
                }
            }
            polled
        })
        .await
    }
}

/// A guest that computes, counted; also when it panics.
struct Computing<'a>(&'a AtomicUsize);

impl<'a> Computing<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::time::Duration;

    /// Many that compute and wait in turns: never more between two rests than there are turns, and all come through.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn as_many_compute_as_there_are_turns_and_all_come_through() {
        let turns = Turns::new(2);
        let running = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (turn, running) = (Turn::new(&turns), Arc::clone(&running));
                tokio::spawn(async move {
                    let guest = async {
                        for round in 0..20 {
                            Arc::clone(&turn).rest().await;
                            let now = running.fetch_add(1, Ordering::SeqCst);
                            assert!(now < 2, "{now} others have a turn");
                            std::hint::black_box((0..1000).sum::<u64>());
                            running.fetch_sub(1, Ordering::SeqCst);
                            if (n + round) % 7 == 0 {
                                tokio::time::sleep(Duration::from_micros(50)).await;
                            }
                        }
                    };
                    turn.run(pin!(guest)).await;
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(30), task)
                .await
                .expect("somebody never had a turn")
                .unwrap();
        }
        assert_eq!(turns.0.free.available_permits(), 2);
    }

    #[tokio::test]
    async fn who_waits_holds_no_turn_and_who_goes_gives_it_back() {
        let turns = Turns::new(1);
        let turn = Turn::new(&turns);
        let guest = async {
            Arc::clone(&turn).rest().await;
            std::future::pending::<()>().await;
        };
        let waits = tokio::time::timeout(Duration::from_millis(50), turn.run(pin!(guest))).await;
        assert!(waits.is_err() && turns.0.free.available_permits() == 1);
        let other = Turn::new(&turns);
        Arc::clone(&other).rest().await;
        assert_eq!(turns.0.free.available_permits(), 0);
        drop(other);
        assert_eq!(turns.0.free.available_permits(), 1);
    }
}
