//! The events for one request of a session, or for the session itself, on their way to whoever reads them.
//!
//! What is sent while somebody reads waits until there is room. What comes for a request whose reader has left is kept
//! ([`Line::leave`]), or heard by nobody any more; of what comes for the session the last is remembered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolbay_policy::serve::ServeLimits;

use super::clients::Share;

/// How long an answer waits for its client, at least.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Events that are remembered, and that wait for a reader.
const MAX_EVENTS: usize = 16;
/// What a line that is kept takes at least, in bytes.
const LEAST: u64 = 4 << 10;

/// One stream of events.
#[derive(Debug)]
pub(super) struct Line {
    /// That of a request has one.
    number: Option<u64>,
    /// Ends the request.
    pub(super) cancel: CancellationToken,
    events: Mutex<Events>,
    /// There is room, or nothing to wait for.
    less: Notify,
}

#[derive(Debug, Default)]
struct Events {
    /// The place of the next one.
    next: u64,
    unread: VecDeque<ServerSseMessage>,
    /// The last of what was read.
    read: VecDeque<ServerSseMessage>,
    /// Who reads; the last of them gets what comes.
    readers: Vec<Reader>,
    begun: u64,
    ended: Option<Instant>,
    /// While it is kept for a client that has left.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Reader {
    number: u64,
    waker: Option<Waker>,
}

/// What a line takes that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) share: Share,
    pub(super) limits: ServeLimits,
}

/// The place of an event in its line, and the number of the line; that of the session itself has none.
pub(super) fn place(event_id: &str) -> Option<(u64, Option<u64>)> {
    match event_id.split_once('/') {
        Some((index, number)) => Some((index.parse().ok()?, Some(number.parse().ok()?))),
        None => Some((event_id.parse().ok()?, None)),
    }
}

impl Line {
    /// That of a request, which `retry` begins with an event that says how to come back.
    pub(super) fn of_request(number: u64, cancel: CancellationToken, retry: Option<Duration>) -> Self {
        let line = Self { number: Some(number), cancel, events: Mutex::default(), less: Notify::new() };
        if let Some(retry) = retry {
            let mut events = line.events();
            let id = events.id(line.number);
            events.unread.push_back(ServerSseMessage::priming(id, retry));
        }
        line
    }

    /// That of a session.
    pub(super) fn of_session() -> Self {
        let (events, less) = (Mutex::default(), Notify::new());
        Self { number: None, cancel: CancellationToken::new(), events, less }
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message as soon as there is room for it.
    pub(super) async fn tell(&self, message: ServerJsonRpcMessage) {
        let mut message = Some(message);
        loop {
            let less = self.less.notified();
            if self.events().take_in(self.number, &mut message, false) {
                return;
            }
            less.await;
        }
    }

    /// Sends the last message; there is always room for it.
    pub(super) fn end(&self, last: Option<ServerJsonRpcMessage>) {
        let mut events = self.events();
        let mut last = last;
        events.take_in(self.number, &mut last, true);
        events.ended.get_or_insert_with(Instant::now);
        events.wake();
        drop(events);
        self.less.notify_waiters();
    }

    /// Whether somebody reads it.
    pub(super) fn is_read(&self) -> bool {
        !self.events().readers.is_empty()
    }

    /// Whether its answer has waited for long enough.
    pub(super) fn is_stale(&self) -> bool {
        let events = self.events();
        events.readers.is_empty() && events.ended.is_some_and(|at| at.elapsed() >= KEPT_FOR)
    }

    /// One more reader, who gets what comes from now on; after the event at `after` once more what others have read.
    pub(super) fn read(&self, after: Option<u64>) -> u64 {
        let mut events = self.events();
        let number = events.begun;
        events.begun = number.wrapping_add(1);
        if let Some(after) = after {
            events.rewind(after);
        }
        // What is read takes no more than what others read.
        events.kept = None;
        events.wake();
        events.readers.push(Reader { number, waker: None });
        drop(events);
        // What had no reader to wait for does now.
        self.less.notify_waiters();
        number
    }

    /// The next event for this reader.
    pub(super) fn poll(&self, reader: u64, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let mut events = self.events();
        let is_last = events.readers.last().is_some_and(|last| last.number == reader);
        if is_last && let Some(event) = events.next() {
            drop(events);
            self.less.notify_one();
            return Poll::Ready(Some(event));
        }
        // Whoever comes back for the answer to a request takes the place of who read it before.
        if events.ended.is_some() || (!is_last && self.number.is_some()) {
            return Poll::Ready(None);
        }
        if let Some(reader) = events.readers.iter_mut().find(|one| one.number == reader) {
            reader.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// The last message, if no other waits to be read and none will come; it is read then.
    pub(super) fn only(&self) -> Option<Arc<ServerJsonRpcMessage>> {
        let mut events = self.events();
        events.ended?;
        let mut messages = events.unread.iter().filter_map(|event| event.message.as_ref());
        let only = messages.next().filter(|_| messages.next().is_none()).map(Arc::clone)?;
        events.unread.clear();
        Some(only)
    }

    /// Whether all has been read that will come.
    pub(super) fn is_over(&self) -> bool {
        let events = self.events();
        events.ended.is_some() && events.unread.is_empty()
    }

    /// The reader has left. What its client may come back for is kept, if there is room; returns whether somebody still
    /// reads, or may. That of a session remembers the last of what comes without taking more.
    pub(super) fn leave(&self, reader: u64, keep: impl FnOnce() -> Kept) -> bool {
        let mut events = self.events();
        events.readers.retain(|one| one.number != reader);
        events.wake();
        let left = self.number.is_some() && events.is_left() && events.keep(keep());
        let goes_on = left || !events.readers.is_empty();
        if !goes_on && self.number.is_some() {
            events.unread.clear();
        }
        drop(events);
        self.less.notify_waiters();
        goes_on
    }
}

impl Events {
    fn id(&mut self, number: Option<u64>) -> String {
        let index = self.next;
        self.next = index.wrapping_add(1);
        match number {
            Some(number) => format!("{index}/{number}"),
            None => index.to_string(),
        }
    }

    /// Takes a message in, or drops what nobody will hear; returns whether there was room.
    fn take_in(
        &mut self,
        number: Option<u64>,
        message: &mut Option<ServerJsonRpcMessage>,
        last: bool,
    ) -> bool {
        let nobody = self.readers.is_empty() && self.kept.is_none() && number.is_some();
        if self.ended.is_some() || nobody {
            return true;
        }
        if !last && !self.readers.is_empty() && self.unread.len() >= MAX_EVENTS {
            return false;
        }
        let Some(message) = message.take() else { return true };
        let event = ServerSseMessage::new(self.id(number), message);
        if self.kept.is_some() {
            self.hold(event);
        } else {
            if self.unread.len() >= MAX_EVENTS && self.readers.is_empty() {
                self.unread.pop_front();
            }
            self.unread.push_back(event);
        }
        self.wake();
        true
    }

    /// Keeps what needs its client; how far the call is, is of no interest later.
    fn hold(&mut self, mut event: ServerSseMessage) {
        let (Some(message), Some(kept)) = (&event.message, &mut self.kept) else { return };
        let id = match &**message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) => None,
            JsonRpcMessage::Notification(_) => return,
        };
        let bytes = serde_json::to_vec(&**message).map_or(u64::MAX, |bytes| bytes.len() as u64);
        if kept.share.grow(bytes, &kept.limits).is_err() {
            event.message = Some(Arc::new(no_room(id)));
        }
        if self.unread.len() >= MAX_EVENTS {
            self.unread.pop_front();
        }
        self.unread.push_back(event);
    }

    /// Whether the client of a request is gone, and may come back: whoever was told nothing does not know what to.
    fn is_left(&self) -> bool {
        let is_over = self.ended.is_some() && self.unread.is_empty();
        self.readers.is_empty() && !is_over && !self.read.is_empty()
    }

    /// Keeps what comes until the client is back.
    fn keep(&mut self, mut kept: Kept) -> bool {
        if kept.share.grow(LEAST, &kept.limits).is_err() {
            return false;
        }
        self.kept = Some(kept);
        for event in std::mem::take(&mut self.unread) {
            self.hold(event);
        }
        true
    }

    fn next(&mut self) -> Option<ServerSseMessage> {
        let event = self.unread.pop_front()?;
        if self.read.len() >= MAX_EVENTS {
            self.read.pop_front();
        }
        self.read.push_back(event.clone());
        Some(event)
    }

    /// Makes unread what was read after this event.
    fn rewind(&mut self, after: u64) {
        while let Some(event) = self.read.pop_back() {
            let index = event.event_id.as_deref().and_then(place).map(|(index, _)| index);
            if index.is_none_or(|index| index <= after) {
                self.read.push_back(event);
                return;
            }
            self.unread.push_front(event);
        }
    }

    /// Wakes whoever reads: the last gets what there is, the others may have to end.
    fn wake(&mut self) {
        self.readers.iter_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }
}

/// What is answered in place of what there was no room for.
fn no_room(id: Option<RequestId>) -> ServerJsonRpcMessage {
    let text = "the answer came while the connection was broken, and there was no room to keep it; to allow more: \
                [serve.limits] kept_bytes_per_client = …, kept_bytes = …";
    ServerJsonRpcMessage::error(ErrorData::internal_error(text, None), id)
}
