//! Answers that a client has not read, in bytes.
//!
//! Before a call runs, it takes room in its client's outbox for what its tool is expected to answer, and waits for it while
//! earlier answers are unread: a client that does not read has a bounded number of results made for it. The room is held
//! until the answer is written. A client may use as much as is left for all others, and `outbox_bytes` at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::RequestId;
use rmcp::service::RequestContext;
use tokio_util::bytes::Bytes;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::pipeline::Pipeline;
use toolbay_core::pipeline::memory::{MemoryBudget, MemoryReservation};
use toolbay_policy::limits::LimitHit;
use toolbay_policy::quantity;

use crate::protocol::raw;

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
    /// The requests of a client with one pipe that are not answered yet, with the room for those answers that are there.
    pending: Mutex<HashMap<RequestId, Option<Permit>>>,
}

/// Room in an outbox, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    held: Option<MemoryReservation>,
    unsent: Option<MemoryReservation>,
    /// What the result holds of the host's memory.
    result: Option<MemoryReservation>,
    results: MemoryBudget,
}

impl Drop for Permit {
    fn drop(&mut self) {
        (self.held, self.unsent, self.result) = (None, None, None);
        // Those who wait look at the outbox, and are only told of the host's memory.
        self.results.wake();
    }
}

impl Permit {
    /// The answer is there: so large, with what it holds of the host's memory.
    pub(crate) fn answered(&mut self, bytes: u64, result: Option<MemoryReservation>) {
        set(&mut self.held, bytes);
        self.result = result;
    }

    /// The answer waits to be written.
    pub(crate) fn sends(&mut self, bytes: u64) {
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
        let (taking, pending) = (Mutex::default(), Mutex::default());
        Self { settings, held: count(), unsent: count(), taking, pending }
    }

    /// Room for an answer that is there already.
    pub(crate) fn permit(&self) -> Permit {
        Permit {
            held: self.held.reserve(0),
            unsent: self.unsent.reserve(0),
            result: None,
            results: self.settings.results.clone(),
        }
    }

    /// Takes room for a call that is expected to answer with `bytes` beside its text; waits until there is room.
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<Permit, Fault> {
        let bytes = USUAL.saturating_add(bytes);
        if let Some(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let waits = self.settings.results.wait_until(|| self.try_acquire(bytes));
        // Boxed: few calls wait, and every call would have room for it.
        let waits = Box::pin(tokio::time::timeout(self.settings.patience, waits));
        waits.await.map_err(|_| self.full())
    }

    fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let Self { settings, held, .. } = self;
        let _alone = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn pending(&self) -> MutexGuard<'_, HashMap<RequestId, Option<Permit>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is read, and will be answered.
    pub(crate) fn expect(&self, id: &RequestId) {
        self.pending().insert(id.clone(), None);
    }

    /// Holds the room for an answer, unless nobody expects the answer any more.
    fn hold(&self, id: &RequestId, permit: Permit) {
        if let Some(place) = self.pending().get_mut(id) {
            *place = Some(permit);
        }
    }

    /// The room for the answer to a request, which is about to be written.
    pub(crate) fn take(&self, id: &RequestId) -> Option<Permit> {
        self.pending().remove(id).flatten()
    }

    /// The request is not answered any more.
    pub(crate) fn forget(&self, id: &RequestId) {
        drop(self.take(id));
    }
}

/// The response to a request over HTTP, until all of it is written.
#[derive(Debug)]
pub(crate) struct Response {
    outbox: Arc<Outbox>,
    permit: Mutex<Option<Permit>>,
}

impl Response {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox, permit: Mutex::default() }
    }

    fn permit(&self) -> MutexGuard<'_, Option<Permit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of the response as it is written, which holds its room until it was.
    pub(crate) fn piece(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED {
            return bytes;
        }
        let bytes = raw::restored(bytes);
        let mut permit = self.permit().take().unwrap_or_else(|| self.outbox.permit());
        permit.sends(bytes.len() as u64);
        Bytes::from_owner(Piece { bytes, _permit: permit })
    }
}

/// Bytes with the room that they take.
struct Piece {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Where the room for an answer stays until the answer is written.
pub(crate) enum AnswerSlot {
    /// With the response to an HTTP request.
    Response(Arc<Response>),
    /// With the pipe of the client.
    Pipe(Arc<Outbox>, RequestId),
    /// Nowhere: the transport is the embedder's.
    None,
}

impl AnswerSlot {
    /// That of a request; `pipe` is the outbox of a client with one pipe.
    pub(crate) fn of(context: &RequestContext<RoleServer>, pipe: Option<&Arc<Outbox>>) -> Self {
        let parts = context.extensions.get::<Parts>();
        match (parts.and_then(|parts| parts.extensions.get::<Arc<Response>>()), pipe) {
            (Some(response), _) => Self::Response(Arc::clone(response)),
            (None, Some(outbox)) => Self::Pipe(Arc::clone(outbox), context.id.clone()),
            (None, None) => Self::None,
        }
    }

    /// Takes room for a call; see [`Outbox::acquire`].
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<Option<Permit>, Fault> {
        match self {
            Self::Response(response) => response.outbox.acquire(bytes).await.map(Some),
            Self::Pipe(outbox, _) => outbox.acquire(bytes).await.map(Some),
            Self::None => Ok(None),
        }
    }

    /// Holds the room until the answer is written.
    pub(crate) fn hold(&self, permit: Permit) {
        match self {
            Self::Response(response) => *response.permit() = Some(permit),
            Self::Pipe(outbox, id) => outbox.hold(id, permit),
            Self::None => drop(permit),
        }
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
    fn an_answer_that_nobody_expects_holds_nothing() {
        let (outbox, id) = (outbox(1 << 20, u64::MAX), RequestId::Number(1));
        let held = |outbox: &Outbox| {
            let mut permit = outbox.permit();
            permit.answered(100, None);
            outbox.hold(&id, permit);
            outbox.held.used()
        };
        assert_eq!(held(&outbox), 0, "it was never asked");
        outbox.expect(&id);
        assert_eq!(held(&outbox), 100);
        outbox.forget(&id);
        assert_eq!((outbox.held.used(), held(&outbox)), (0, 0), "it was cancelled");
    }

    #[test]
    fn a_piece_is_counted_until_it_is_written() {
        let outbox = Arc::new(outbox(1 << 20, u64::MAX));
        let response = Response::new(Arc::clone(&outbox));
        drop(response.piece(Bytes::from_static(b"short")));
        let mut permit = outbox.permit();
        permit.answered(1 << 20, None);
        *response.permit() = Some(permit);
        let piece = response.piece(vec![b'x'; 1 << 20].into());
        assert!(outbox.is_full() && outbox.held.used() == 1 << 20);
        drop(piece);
        assert!(!outbox.is_full() && outbox.held.used() == 0);
    }
}
