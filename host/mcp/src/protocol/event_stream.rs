//! The events for one request or for a session itself, on their way to a reader.
//!
//! A message waits until there is room while somebody reads. What comes for a request whose reader has left is kept
//! ([`EventStream::leave`]), or dropped; of what comes for the session the last few messages are remembered.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::message;

/// How long an answer waits for its client, at least.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Events that are remembered, and that wait for a reader.
const MAX_EVENTS: usize = 16;
/// What a stream that is kept takes at least, in bytes.
const LEAST: u64 = 4 << 10;

/// What answers a request: one line, and the error that it is, if it is one.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) line: Bytes,
    pub(crate) error: Option<ErrorCode>,
}

/// One event.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Where a client can come back to.
    pub(crate) id: Option<String>,
    /// The message; one without says how to come back.
    pub(crate) message: Option<Reply>,
    /// How long a client waits before it comes back.
    pub(crate) retry: Option<Duration>,
    /// Whether it matters only to a client that listens.
    transient: bool,
}

impl Event {
    /// Says how to come back.
    pub(crate) fn invitation(id: Option<String>, retry: Duration) -> Self {
        Self { id, message: None, retry: Some(retry), transient: true }
    }
}

/// Bytes that may be kept for a client that has left.
pub(crate) trait ResumeBudget: Send + fmt::Debug {
    /// Takes `bytes` more of the budget; returns whether they were left.
    fn grow(&mut self, bytes: u64) -> bool;
}

/// Whose events they are.
#[derive(Debug)]
enum Owner {
    /// A request of a session; its stream can be resumed by its number.
    Request(u64, RequestId),
    /// A request without a session.
    LoneRequest,
    /// A session.
    Session,
}

/// One stream of events.
#[derive(Debug)]
pub(crate) struct EventStream {
    owner: Owner,
    /// Ends the request.
    pub(crate) cancel: CancellationToken,
    events: Mutex<Events>,
    /// There is room, or nothing to wait for.
    room: Notify,
}

#[derive(Debug, Default)]
struct Events {
    /// The place of the next one.
    next: u64,
    unread: VecDeque<Event>,
    /// The last of what was read.
    read: VecDeque<Event>,
    /// Who reads; the last of them gets what comes.
    readers: Vec<Reader>,
    begun: u64,
    ended: Option<Instant>,
    /// While events are kept for a client that has left.
    kept: Option<Box<dyn ResumeBudget>>,
}

#[derive(Debug)]
struct Reader {
    number: u64,
    waker: Option<Waker>,
}

/// The place of an event in its stream, and the number of the stream; that of the session itself has none.
pub(crate) fn place(event_id: &str) -> Option<(u64, Option<u64>)> {
    match event_id.split_once('/') {
        Some((index, number)) => Some((index.parse().ok()?, Some(number.parse().ok()?))),
        None => Some((event_id.parse().ok()?, None)),
    }
}

impl EventStream {
    fn new(owner: Owner, cancel: CancellationToken) -> Self {
        Self { owner, cancel, events: Mutex::default(), room: Notify::new() }
    }

    /// That of a request in a session; with `retry` it begins with an event that says how to come back.
    pub(crate) fn of_request(
        number: u64,
        id: RequestId,
        cancel: CancellationToken,
        retry: Option<Duration>,
    ) -> Self {
        let stream = Self::new(Owner::Request(number, id), cancel);
        if let Some(retry) = retry {
            let mut events = stream.events.lock();
            let id = events.id(&stream.owner);
            events.unread.push_back(Event::invitation(id, retry));
        }
        stream
    }

    /// That of a request without a session.
    pub(crate) fn of_lone_request(cancel: CancellationToken) -> Self {
        Self::new(Owner::LoneRequest, cancel)
    }

    /// That of a session.
    pub(crate) fn of_session() -> Self {
        Self::new(Owner::Session, CancellationToken::new())
    }

    pub(crate) fn number(&self) -> Option<u64> {
        match self.owner {
            Owner::Request(number, _) => Some(number),
            Owner::LoneRequest | Owner::Session => None,
        }
    }

    fn is_of_request(&self) -> bool {
        !matches!(self.owner, Owner::Session)
    }

    /// Sends a message as soon as there is room for it. One that matters only to a client that listens is `transient`.
    pub(crate) async fn push(&self, line: Bytes, transient: bool) {
        let mut message = Some(Reply { line, error: None });
        loop {
            let room = self.room.notified();
            if self.events.lock().take_in(&self.owner, &mut message, transient, false) {
                return;
            }
            room.await;
        }
    }

    /// Sends the last message; there is always room for it.
    pub(crate) fn end(&self, mut last: Option<Reply>) {
        let mut events = self.events.lock();
        events.take_in(&self.owner, &mut last, false, true);
        events.ended.get_or_insert_with(Instant::now);
        events.wake();
        drop(events);
        self.room.notify_waiters();
    }

    /// Whether somebody reads it.
    pub(crate) fn is_read(&self) -> bool {
        !self.events.lock().readers.is_empty()
    }

    /// Whether its answer has waited for long enough.
    pub(crate) fn is_stale(&self) -> bool {
        let events = self.events.lock();
        events.readers.is_empty() && events.ended.is_some_and(|at| at.elapsed() >= KEPT_FOR)
    }

    /// One more reader, who gets what comes from now on; after the event at `after` once more what others have read.
    pub(crate) fn read(&self, after: Option<u64>) -> u64 {
        let mut events = self.events.lock();
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
        self.room.notify_waiters();
        number
    }

    /// The next event for this reader.
    pub(crate) fn poll(&self, reader: u64, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut events = self.events.lock();
        let is_last = events.readers.last().is_some_and(|last| last.number == reader);
        if is_last && let Some(event) = events.next() {
            drop(events);
            self.room.notify_one();
            return Poll::Ready(Some(event));
        }
        // A client that comes back for the answer to a request replaces the earlier reader.
        if events.ended.is_some() || (!is_last && self.is_of_request()) {
            return Poll::Ready(None);
        }
        events.wait(reader, context);
        Poll::Pending
    }

    /// Waits until there is something to read, or nothing more to wait for.
    pub(crate) fn poll_begun(&self, reader: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut events = self.events.lock();
        if events.ended.is_some() || !events.unread.is_empty() {
            return Poll::Ready(());
        }
        events.wait(reader, context);
        Poll::Pending
    }

    /// The last message, if no other waits to be read and none will come; it is read then.
    pub(crate) fn only(&self) -> Option<Reply> {
        let mut events = self.events.lock();
        events.ended?;
        let mut messages = events.unread.iter().filter_map(|event| event.message.as_ref());
        let only = messages.next().filter(|_| messages.next().is_none()).cloned()?;
        events.unread.clear();
        Some(only)
    }

    /// Whether all has been read that will come.
    pub(crate) fn is_over(&self) -> bool {
        let events = self.events.lock();
        events.ended.is_some() && events.unread.is_empty()
    }

    /// The reader has left. What its client may come back for is kept, if there is room; returns whether somebody still
    /// reads, or may. That of a session remembers the last of what comes without taking more.
    pub(crate) fn leave(&self, reader: u64, budget: impl FnOnce() -> Option<Box<dyn ResumeBudget>>) -> bool {
        let mut events = self.events.lock();
        events.readers.retain(|one| one.number != reader);
        events.wake();
        let is_left = self.number().is_some() && events.is_left();
        let kept = is_left && budget().is_some_and(|budget| events.keep(&self.owner, budget));
        let goes_on = kept || !events.readers.is_empty();
        if !goes_on && self.is_of_request() {
            events.unread.clear();
        }
        drop(events);
        self.room.notify_waiters();
        goes_on
    }
}

impl Events {
    fn id(&mut self, owner: &Owner) -> Option<String> {
        let index = self.next;
        self.next = index.wrapping_add(1);
        match owner {
            Owner::Request(number, _) => Some(format!("{index}/{number}")),
            Owner::Session => Some(index.to_string()),
            Owner::LoneRequest => None,
        }
    }

    /// Takes a message in, or drops what nobody will hear; returns whether there was room.
    fn take_in(&mut self, owner: &Owner, message: &mut Option<Reply>, transient: bool, last: bool) -> bool {
        let nobody = self.readers.is_empty() && self.kept.is_none() && !matches!(owner, Owner::Session);
        if self.ended.is_some() || nobody {
            return true;
        }
        if !last && !self.readers.is_empty() && self.unread.len() >= MAX_EVENTS {
            return false;
        }
        let Some(message) = message.take() else { return true };
        let event = Event { id: self.id(owner), message: Some(message), retry: None, transient };
        if self.kept.is_some() {
            self.hold(owner, event);
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
    fn hold(&mut self, owner: &Owner, mut event: Event) {
        let (Some(message), Some(kept)) = (&mut event.message, &mut self.kept) else { return };
        if event.transient {
            return;
        }
        // A copy: the bytes count as unread by a client that is there.
        message.line = match kept.grow(message.line.len() as u64) {
            true => Bytes::copy_from_slice(&message.line),
            false => no_room(owner),
        };
        if self.unread.len() >= MAX_EVENTS {
            self.unread.pop_front();
        }
        self.unread.push_back(event);
    }

    /// Whether the client of a request is gone and may come back. A client that got no event has no id to come back with.
    fn is_left(&self) -> bool {
        let is_over = self.ended.is_some() && self.unread.is_empty();
        self.readers.is_empty() && !is_over && !self.read.is_empty()
    }

    /// Keeps what comes until the client is back.
    fn keep(&mut self, owner: &Owner, mut budget: Box<dyn ResumeBudget>) -> bool {
        if !budget.grow(LEAST) {
            return false;
        }
        self.kept = Some(budget);
        std::mem::take(&mut self.unread).into_iter().for_each(|event| self.hold(owner, event));
        true
    }

    fn next(&mut self) -> Option<Event> {
        let event = self.unread.pop_front()?;
        if self.read.len() >= MAX_EVENTS {
            self.read.pop_front();
        }
        self.read.push_back(event.clone());
        Some(event)
    }

    fn wait(&mut self, reader: u64, context: &Context<'_>) {
        if let Some(reader) = self.readers.iter_mut().find(|one| one.number == reader) {
            reader.waker = Some(context.waker().clone());
        }
    }

    /// Makes unread what was read after this event.
    fn rewind(&mut self, after: u64) {
        while let Some(event) = self.read.pop_back() {
            let index = event.id.as_deref().and_then(place).map(|(index, _)| index);
            if index.is_none_or(|index| index <= after) {
                self.read.push_back(event);
                return;
            }
            self.unread.push_front(event);
        }
    }

    /// Wakes the readers: the latest gets the events, earlier ones may have to end.
    fn wake(&mut self) {
        self.readers.iter_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }
}

/// What is answered in place of what there was no room for.
fn no_room(owner: &Owner) -> Bytes {
    let text = "the answer came while the connection was broken, and there was no room to keep it; to allow more: \
                [serve.limits] resume_buffer_bytes_per_client = …, resume_buffer_bytes = …";
    let error = ErrorData::internal_error(text, None);
    let id = match owner {
        Owner::Request(_, id) => Some(id),
        Owner::LoneRequest | Owner::Session => None,
    };
    message::response::<_, (), _>(id, Err(&error)).into()
}
