//! Answers that a client has not read, in bytes.
//!
//! Before a call runs, it takes room in its client's outbox for what its tool is expected to answer, and waits for it while
//! earlier answers are unread: a client that does not read has a bounded number of results made for it. The room is held
//! until the answer is written. A client may use as much as is left for all others, and `outbox_bytes` at most.

use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::bytes::Bytes;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::pipeline::Pipeline;
use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

/// What every call takes room for: the text of most results.
const USUAL: u64 = 32 << 10;
/// Shortest answer that is counted until it is written, in bytes; shorter ones are gone at once, or bounded in number.
const COUNTED: usize = 4 << 10;
/// When a client may try again whose outbox was full: it has to read first.
const RETRY: Duration = Duration::from_secs(1);

/// What all outboxes of a server have in common.
#[derive(Debug, Clone)]
pub(crate) struct OutboxSettings {
    limit: u64,
    patience: Duration,
    results: MemoryBudget,
}

impl OutboxSettings {
    pub(crate) fn of(pipeline: &Pipeline) -> Self {
        let (limit, patience) = pipeline.outbox();
        Self { limit, patience, results: pipeline.result_memory().clone() }
    }

    /// For tests of something else.
    #[cfg(test)]
    pub(crate) fn roomy() -> Self {
        let results = MemoryBudget::new("result_memory", u64::MAX);
        Self { limit: u64::MAX, patience: RETRY, results }
    }
}

/// The answers to one client that are being made or written.
#[derive(Debug)]
pub(crate) struct Outbox {
    settings: OutboxSettings,
    /// What is held, for answers that are being made, too.
    held: MemoryBudget,
    /// What waits to be written.
    unsent: MemoryBudget,
    /// Held while room is looked for and taken.
    taking: Mutex<()>,
}

/// Room in an outbox, until it is dropped.
#[derive(Debug)]
pub(crate) struct OutboxPermit {
    held: Option<MemoryReservation>,
    unsent: Option<MemoryReservation>,
    /// What the result holds of the host's memory.
    result: Option<MemoryReservation>,
    results: MemoryBudget,
}

impl Drop for OutboxPermit {
    fn drop(&mut self) {
        (self.held, self.unsent, self.result) = (None, None, None);
        // Those who wait look at the outbox, and are only told of the host's memory.
        self.results.wake();
    }
}

impl OutboxPermit {
    /// The answer is there: so large, with what it holds of the host's memory.
    pub(crate) fn answered(&mut self, bytes: u64, result: Option<MemoryReservation>) {
        set(&mut self.held, bytes);
        self.result = result;
    }

    /// The answer waits to be written.
    fn sends(&mut self, bytes: u64) {
        set(&mut self.held, bytes);
        set(&mut self.unsent, bytes);
    }
}

fn set(reservation: &mut Option<MemoryReservation>, bytes: u64) {
    if let Some(reservation) = reservation {
        // A count without a limit always grows.
        let _fits = reservation.resize(bytes);
    }
}

impl Outbox {
    pub(crate) fn new(settings: OutboxSettings) -> Self {
        let count = || MemoryBudget::new("outbox_bytes", u64::MAX);
        Self { settings, held: count(), unsent: count(), taking: Mutex::default() }
    }

    /// Room for an answer that is there already.
    fn permit(&self) -> OutboxPermit {
        OutboxPermit {
            held: self.held.reserve(0),
            unsent: self.unsent.reserve(0),
            result: None,
            results: self.settings.results.clone(),
        }
    }

    /// Takes room for a call that is expected to answer with `bytes` beside its text; waits until there is room.
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<OutboxPermit, Fault> {
        let bytes = USUAL.saturating_add(bytes);
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let waits = self.settings.results.wait_until(|| self.try_acquire(bytes));
        // Boxed: few calls wait, and every call would have room for it.
        let waits = Box::pin(tokio::time::timeout(self.settings.patience, waits));
        waits.await.map_err(|_| self.full())
    }

    fn try_acquire(&self, bytes: u64) -> Option<OutboxPermit> {
        let Self { settings, held, .. } = self;
        let _alone = self.taking.lock();
        let used = held.used();
        let most = settings.limit.min(settings.results.free());
        if used > 0 && used.saturating_add(bytes) > most {
            return None;
        }
        let mut permit = self.permit();
        set(&mut permit.held, bytes);
        Some(permit)
    }

    /// Whether more waits to be written than a client may leave unread.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent.used() >= self.settings.limit
    }

    /// Waits until the client has read.
    pub(crate) async fn drained(&self) {
        if self.is_full() {
            self.settings.results.wait_until(|| (!self.is_full()).then_some(())).await;
        }
    }

    /// The same, for so long as a call would wait for a place; `false`: it has not read.
    pub(crate) async fn drained_in_time(&self) -> bool {
        !self.is_full() || tokio::time::timeout(self.settings.patience, self.drained()).await.is_ok()
    }

    fn full(&self) -> Fault {
        let limit = LimitHit {
            name: "outbox_bytes",
            value: quantity::show_bytes(self.settings.limit),
            setting: "[host] outbox_bytes = …".to_owned(),
        };
        let what = "busy: the client has not read the answers to its earlier calls";
        Fault::by_limit(FaultKind::Busy, what, limit).retry_after(RETRY)
    }

    /// A line that waits to be written: it holds its room until then.
    pub(crate) fn hold(&self, line: Vec<u8>, room: Option<OutboxPermit>) -> Bytes {
        if line.len() < COUNTED {
            return line.into();
        }
        let mut permit = room.unwrap_or_else(|| self.permit());
        permit.sends(line.len() as u64);
        Bytes::from_owner(UnsentLine { line, _permit: permit })
    }
}

/// A line with the room that it takes.
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
        Outbox::new(OutboxSettings { limit, patience: Duration::from_secs(30), results })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_until_what_came_before_is_written_and_then_is_busy() {
        let outbox = outbox(1 << 20, u64::MAX);
        let mut first = outbox.acquire(8 << 20).await.unwrap();
        let mut next = Box::pin(outbox.acquire(8 << 20));
        assert!((&mut next).now_or_never().is_none(), "the first one runs");
        first.answered(100, None);
        drop(first);
        drop(next.await.unwrap());
        let mut unread = outbox.acquire(0).await.unwrap();
        unread.sends(1 << 20);
        let busy = outbox.acquire(0).await.unwrap_err();
        assert_eq!((busy.kind, busy.retry_after_ms), (FaultKind::Busy, Some(1000)));
        assert!(busy.for_operator().contains("[host] outbox_bytes = …"), "{busy}");
        assert!(!outbox.drained_in_time().await);
        drop(unread);
        assert!(outbox.drained_in_time().await && outbox.held.used() == 0);
    }

    #[tokio::test]
    async fn a_client_leaves_half_of_what_is_free_to_the_next() {
        let one = outbox(u64::MAX, 1 << 20);
        let other = Outbox::new(one.settings.clone());
        let results = one.settings.results.clone();
        let mut all = Vec::new();
        while let Some(Ok(mut permit)) = one.acquire(0).now_or_never() {
            permit.answered(USUAL, results.reserve(USUAL));
            all.push(permit);
        }
        assert_eq!(all.len(), 16, "half of a megabyte");
        assert!(matches!(other.acquire(0).now_or_never(), Some(Ok(_))), "there is room for another client");
    }

    #[test]
    fn a_line_is_counted_until_it_is_written() {
        let outbox = outbox(1 << 20, u64::MAX);
        drop(outbox.hold(b"short".to_vec(), None));
        let mut permit = outbox.permit();
        permit.answered(1 << 20, None);
        let line = outbox.hold(vec![b'x'; 1 << 20], Some(permit));
        assert!(outbox.is_full() && outbox.held.used() == 1 << 20);
        drop(line.clone());
        assert!(outbox.is_full(), "all of its copies are one line");
        drop(line);
        assert!(!outbox.is_full() && outbox.held.used() == 0);
        let unasked = outbox.hold(vec![b'x'; COUNTED], None);
        assert_eq!(outbox.held.used(), COUNTED as u64);
        drop(unasked);
        let mut cancelled = outbox.permit();
        cancelled.answered(100, None);
        drop(cancelled);
        assert_eq!(outbox.held.used(), 0, "nobody wants it");
    }
}
