//! Measures in tests how long the host's own work keeps a worker from other calls.
//!
//! It counts the processor time of the worker's thread. That is what a call waits for, and other programs on the machine do
//! not change it. So the runtime has one worker: the thread of the test, as with `#[tokio::test]`, or that of a spawned task.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

/// The longest that a worker computes while another call waits (`docs/explanation/security.md`).
pub const MAX_DELAY: Duration = Duration::from_millis(250);

/// The time from one turn to the next: what the work needs of the processor is its own.
const PAUSE: Duration = Duration::from_millis(1);

/// Repeats the turn of a quiet task, such as a call of a tool, until `work` has ended. Returns the result of the work, and
/// the longest time that this thread computed from the beginning of a turn to that of the next.
pub async fn run_beside<T>(work: JoinHandle<T>, mut turn: impl AsyncFnMut()) -> (T, Duration) {
    let mut longest = Duration::ZERO;
    while !work.is_finished() {
        let (thread, start) = (std::thread::current().id(), processor_time());
        turn().await;
        tokio::time::sleep(PAUSE).await;
        // With `block_in_place`, another thread becomes the worker at once.
        if std::thread::current().id() == thread {
            longest = longest.max(processor_time().saturating_sub(start));
        }
    }
    match work.await {
        Ok(done) => (done, longest),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The processor time of this thread.
#[must_use]
pub fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
