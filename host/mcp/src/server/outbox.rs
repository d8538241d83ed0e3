//! Limits the bytes of a client's unread responses.
//!
//! Before a call runs, it reserves the expected size of its result in the client's outbox, and waits while earlier
//! responses are unread. The results that exist for a client that does not read are therefore bounded. The reservation
//! is held until the response is written. A client may use as much as is left for all other clients together, and at
//! most `outbox_bytes`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::bytes::Bytes;
use toolbay_core::pipeline::Pipeline;
use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_policy::limits::{LimitHit, LimitSetting};
use toolbay_policy::quantity;

/// Bytes that every call reserves: the text of most results.
const BASE_RESERVATION: u64 = 32 << 10;
/// Shortest response that is counted until it is written, in bytes. Shorter ones are written at once or bounded in
/// number.
const MIN_TRACKED_LINE: usize = 4 << 10;
/// When a client with a full outbox may retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Settings that all outboxes of a server share.
#[derive(Debug, Clone)]
pub(crate) struct OutboxSettings {
    limit: u64,
    timeout: Duration,
    results: MemoryBudget,
}

impl OutboxSettings {
    pub(crate) fn from_pipeline(pipeline: &Pipeline) -> Self {
        let (limit, patience) = pipeline.outbox_limits();
        Self { limit, timeout: patience, results: pipeline.result_memory().clone() }
    }

    /// Settings without limits, for tests.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        let results = MemoryBudget::new("result_memory", u64::MAX);
        Self { limit: u64::MAX, timeout: RETRY_AFTER, results }
    }
}

/// The pending responses to one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    settings: OutboxSettings,
    /// Bytes of running calls and unwritten responses.
    reserved: MemoryBudget,
    /// Bytes of unwritten responses.
    unsent: MemoryBudget,
    /// Locked while a reservation is checked and made.
    taking: Mutex<()>,
}

/// A reservation in an outbox, released on drop.
#[derive(Debug)]
pub(crate) struct OutboxPermit {
    held: Option<MemoryReservation>,
    unsent: Option<MemoryReservation>,
    /// The result's reservation in the host-wide memory budget.
    result: Option<MemoryReservation>,
    results: MemoryBudget,
}

impl Drop for OutboxPermit {
    fn drop(&mut self) {
        (self.held, self.unsent, self.result) = (None, None, None);
        // Calls that wait for this outbox are notified through the host-wide budget.
        self.results.wake();
    }
}

impl OutboxPermit {
    /// Adjusts the reservation to the size of the result, and takes over its memory reservation.
    pub(crate) fn set_response_size(&mut self, bytes: u64, result: Option<MemoryReservation>) {
        resize_reservation(&mut self.held, bytes);
        self.result = result;
    }

    /// Marks the response as waiting to be written.
    fn mark_unsent(&mut self, bytes: u64) {
        resize_reservation(&mut self.held, bytes);
        resize_reservation(&mut self.unsent, bytes);
    }
}

fn resize_reservation(reservation: &mut Option<MemoryReservation>, bytes: u64) {
    if let Some(reservation) = reservation {
        // A budget without a limit always grows.
        let _fits = reservation.resize(bytes);
    }
}

impl Outbox {
    pub(crate) fn new(settings: OutboxSettings) -> Self {
        let count = || MemoryBudget::new("outbox_bytes", u64::MAX);
        Self { settings, reserved: count(), unsent: count(), taking: Mutex::default() }
    }

    /// An empty reservation, for a response that already exists.
    fn empty_permit(&self) -> OutboxPermit {
        OutboxPermit {
            held: self.reserved.reserve(0),
            unsent: self.unsent.reserve(0),
            result: None,
            results: self.settings.results.clone(),
        }
    }

    /// Reserves space for a call whose result is expected to have `bytes` besides its text. Waits until space is free.
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<OutboxPermit, Fault> {
        let bytes = BASE_RESERVATION.saturating_add(bytes);
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let waits = self.settings.results.wait_until(|| self.try_acquire(bytes));
        // Boxed to keep the common future small: few calls wait.
        let waits = Box::pin(tokio::time::timeout(self.settings.timeout, waits));
        waits.await.map_err(|_| self.busy_fault())
    }

    fn try_acquire(&self, bytes: u64) -> Option<OutboxPermit> {
        let Self { settings, reserved, .. } = self;
        let _alone = self.taking.lock();
        let used = reserved.used();
        let most = settings.limit.min(settings.results.free());
        if used > 0 && used.saturating_add(bytes) > most {
            return None;
        }
        let mut permit = self.empty_permit();
        resize_reservation(&mut permit.held, bytes);
        Some(permit)
    }

    /// Whether the unread responses reach the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent.used() >= self.settings.limit
    }

    /// Waits until the client has read enough responses.
    pub(crate) async fn wait_drained(&self) {
        if self.is_full() {
            self.settings.results.wait_until(|| (!self.is_full()).then_some(())).await;
        }
    }

    /// Waits like [`Self::wait_drained`], with the timeout of a call. Returns `false` if the client has not read in
    /// time.
    pub(crate) async fn wait_drained_in_time(&self) -> bool {
        !self.is_full() || tokio::time::timeout(self.settings.timeout, self.wait_drained()).await.is_ok()
    }

    fn busy_fault(&self) -> Fault {
        let limit = LimitHit {
            name: "outbox_bytes",
            value: quantity::show_bytes(self.settings.limit),
            setting: LimitSetting::key("host", "outbox_bytes"),
        };
        let what = "busy: the client has not read the responses to its earlier calls";
        Fault::by_limit(FaultKind::Busy, what, limit).retry_after(RETRY_AFTER)
    }

    /// Wraps a line so that it is counted until it is written.
    pub(crate) fn track_line(&self, line: Vec<u8>, room: Option<OutboxPermit>) -> Bytes {
        if line.len() < MIN_TRACKED_LINE {
            return line.into();
        }
        let mut permit = room.unwrap_or_else(|| self.empty_permit());
        permit.mark_unsent(line.len() as u64);
        Bytes::from_owner(UnsentLine { line, _permit: permit })
    }
}

/// A line with its reservation.
struct UnsentLine {
    line: Vec<u8>,
    _permit: OutboxPermit,
}

impl AsRef<[u8]> for UnsentLine {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn outbox(limit: u64, results: u64) -> Outbox {
        let results = MemoryBudget::new("result_memory", results);
        Outbox::new(OutboxSettings { limit, timeout: Duration::from_secs(30), results })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_unread_responses_and_then_is_busy() {
        let outbox = outbox(1 << 20, u64::MAX);
        let mut first = outbox.acquire(8 << 20).await.unwrap();
        let mut next = Box::pin(outbox.acquire(8 << 20));
        assert!((&mut next).now_or_never().is_none(), "the first call is running");
        first.set_response_size(100, None);
        drop(first);
        drop(next.await.unwrap());
        let mut unread = outbox.acquire(0).await.unwrap();
        unread.mark_unsent(1 << 20);
        let busy = outbox.acquire(0).await.unwrap_err();
        assert_eq!((busy.kind, busy.retry_after_ms), (FaultKind::Busy, Some(1000)));
        assert!(busy.for_operator().contains("[host] outbox_bytes = …"), "{busy}");
        assert!(!outbox.wait_drained_in_time().await);
        drop(unread);
        assert!(outbox.wait_drained_in_time().await && outbox.reserved.used() == 0);
    }

    #[tokio::test]
    async fn a_client_uses_at_most_half_of_the_free_memory() {
        let one = outbox(u64::MAX, 1 << 20);
        let other = Outbox::new(one.settings.clone());
        let results = one.settings.results.clone();
        let mut all = Vec::new();
        while let Some(Ok(mut permit)) = one.acquire(0).now_or_never() {
            permit.set_response_size(BASE_RESERVATION, results.reserve(BASE_RESERVATION));
            all.push(permit);
        }
        assert_eq!(all.len(), 16, "half of 1 MiB");
        assert!(matches!(other.acquire(0).now_or_never(), Some(Ok(_))), "another client still finds space");
    }

    #[test]
    fn a_line_is_counted_until_it_is_written() {
        let outbox = outbox(1 << 20, u64::MAX);
        drop(outbox.track_line(b"short".to_vec(), None));
        let mut permit = outbox.empty_permit();
        permit.set_response_size(1 << 20, None);
        let line = outbox.track_line(vec![b'x'; 1 << 20], Some(permit));
        assert!(outbox.is_full() && outbox.reserved.used() == 1 << 20);
        drop(line.clone());
        assert!(outbox.is_full(), "clones share one reservation");
        drop(line);
        assert!(!outbox.is_full() && outbox.reserved.used() == 0);
        let unasked = outbox.track_line(vec![b'x'; MIN_TRACKED_LINE], None);
        assert_eq!(outbox.reserved.used(), MIN_TRACKED_LINE as u64);
        drop(unasked);
        let mut cancelled = outbox.empty_permit();
        cancelled.set_response_size(100, None);
        drop(cancelled);
        assert_eq!(outbox.reserved.used(), 0, "a cancelled call releases its reservation");
    }
}
