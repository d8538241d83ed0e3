//! Who may run: a bounded number of guests at once, a bounded number that wait, each for a bounded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use toolbay_core::fault::{Fault, FaultKind, LimitHit};
use toolbay_core::limits::HostLimits;
use toolbay_core::quantity;

/// The places of one host.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    waiting: AtomicU32,
    limits: HostLimits,
}

/// A place; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    /// How long it took to get, in microseconds.
    pub(crate) queued_us: u64,
}

impl Admission {
    pub(crate) fn new(limits: HostLimits) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.parallel_calls as usize)),
            waiting: AtomicU32::new(0),
            limits,
        }
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self, cancel: &CancellationToken) -> Result<Place, Fault> {
        if cancel.is_cancelled() {
            return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran"));
        }
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Place { _permit: permit, queued_us: 0 });
        }
        let _waiting = Waiting::join(&self.waiting, self.limits.queued_calls)
            .ok_or_else(|| self.busy("queued_calls"))?;
        let start = Instant::now();
        let acquired = Arc::clone(&self.places).acquire_owned();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the call was cancelled before it ran")),
            done = tokio::time::timeout(self.limits.queue_timeout, acquired) => match done {
                Ok(Ok(permit)) => {
                    let queued_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                    Ok(Place { _permit: permit, queued_us })
                }
                Ok(Err(_)) | Err(_) => Err(self.busy("queue_timeout")),
            },
        }
    }

    fn busy(&self, name: &'static str) -> Fault {
        let value = match name {
            "queued_calls" => self.limits.queued_calls.to_string(),
            _ => quantity::show_duration(self.limits.queue_timeout),
        };
        let limit = LimitHit { name, value, setting: format!("[host] {name} = …") };
        let what = format!("busy: all {} places are taken; try again later", self.limits.parallel_calls);
        Fault::by_limit(FaultKind::Busy, &what, limit)
    }

    /// Places that are free now.
    pub(crate) fn free(&self) -> usize {
        self.places.available_permits()
    }
}

/// Counts a waiting call for as long as it lives.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn join(count: &'a AtomicU32, most: u32) -> Option<Self> {
        let joined = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(joined)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn beyond_the_queue_the_answer_is_busy() {
        let limits =
            HostLimits { parallel_calls: 1, queued_calls: 1, queue_timeout: Duration::from_millis(50) };
        let admission = Arc::new(Admission::new(limits));
        let cancel = CancellationToken::new();
        let first = admission.enter(&cancel).await.unwrap();
        let second = tokio::spawn({
            let (admission, cancel) = (Arc::clone(&admission), cancel.clone());
            async move { admission.enter(&cancel).await.map(drop) }
        });
        while admission.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let third = admission.enter(&cancel).await.unwrap_err();
        assert_eq!((third.kind, third.limit.unwrap().name), (FaultKind::Busy, "queued_calls"));
        let timed_out = second.await.unwrap().unwrap_err();
        assert_eq!(timed_out.limit.unwrap().name, "queue_timeout");
        drop(first);
        assert_eq!((admission.free(), admission.waiting.load(Ordering::Relaxed)), (1, 0));
        assert!(admission.enter(&cancel).await.is_ok());
    }
}
