//! A stream of events for one request or for a session.
//!
//! While a reader is attached, a sender waits until the buffer has capacity. When the reader of a request has
//! disconnected, messages are retained for it ([`EventStream::detach_reader`]) or dropped. The stream of a session
//! keeps the last few messages.

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

/// How long a finished stream waits for its client to reconnect.
const RETAIN_FOR: Duration = Duration::from_secs(60);
/// Most unread events, and most read events that are kept for a resumption.
const MAX_BUFFERED_EVENTS: usize = 16;
/// Bytes that a retained stream counts at least.
const MIN_RETAINED_BYTES: u64 = 4 << 10;

/// An encoded message, and the error code if it is an error response.
#[derive(Debug, Clone)]
pub(crate) struct EncodedResponse {
    pub(crate) line: Bytes,
    pub(crate) error: Option<ErrorCode>,
}

/// One event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct StreamEvent {
    /// Event id, from which a client can resume the stream.
    pub(crate) id: Option<String>,
    /// The message; absent in an event that only carries an id and a retry delay.
    pub(crate) message: Option<EncodedResponse>,
    /// How long a client should wait before it reconnects.
    pub(crate) retry: Option<Duration>,
    /// Whether the event is useless to a client that reconnects later, such as progress.
    transient: bool,
}

impl StreamEvent {
    /// An event that carries only an id and a retry delay.
    pub(crate) fn resume_hint(id: Option<String>, retry: Duration) -> Self {
        Self { id, message: None, retry: Some(retry), transient: true }
    }

    /// The only event of a stream.
    pub(crate) fn single(message: EncodedResponse) -> Self {
        Self { id: None, message: Some(message), retry: None, transient: false }
    }
}

/// Budget of bytes that may be retained for a disconnected client.
pub(crate) trait ResumeBudget: Send + fmt::Debug {
    /// Takes `bytes` from the budget; returns `false` if not enough is left.
    fn grow(&mut self, bytes: u64) -> bool;
}

/// What a stream belongs to.
#[derive(Debug)]
enum StreamOwner {
    /// A request of a session. The number identifies the stream for a resumption.
    Request(u64, RequestId),
    /// A request without a session.
    StatelessRequest,
    /// A session.
    Session,
}

/// One stream of events.
#[derive(Debug)]
pub(crate) struct EventStream {
    owner: StreamOwner,
    /// Whether the client takes messages besides the response.
    pub(crate) takes_events: bool,
    /// Ends the request.
    pub(crate) cancel: CancellationToken,
    events: Mutex<StreamState>,
    /// Notified when a sender may continue.
    capacity: Notify,
}

#[derive(Debug, Default)]
struct StreamState {
    /// Index of the next event.
    next_index: u64,
    unread: VecDeque<StreamEvent>,
    /// The last events that were read.
    already_read: VecDeque<StreamEvent>,
    /// Attached readers. The last one gets the events.
    readers: Vec<AttachedReader>,
    next_reader: u64,
    ended_at: Option<Instant>,
    /// Present while events are retained for a disconnected client.
    budget: Option<Box<dyn ResumeBudget>>,
}

#[derive(Debug)]
struct AttachedReader {
    number: u64,
    waker: Option<Waker>,
}

/// Parses an event id into the index of the event and the number of its stream. The stream of a session has no number.
pub(crate) fn parse_event_id(event_id: &str) -> Option<(u64, Option<u64>)> {
    match event_id.split_once('/') {
        Some((index, number)) => Some((index.parse().ok()?, Some(number.parse().ok()?))),
        None => Some((event_id.parse().ok()?, None)),
    }
}

impl EventStream {
    fn new(owner: StreamOwner, cancel: CancellationToken, takes_events: bool) -> Self {
        Self { owner, takes_events, cancel, events: Mutex::default(), capacity: Notify::new() }
    }

    /// Creates the stream of a request in a session. With `retry`, the stream begins with an event that carries the
    /// retry delay. A client that takes no events gets only the response.
    pub(crate) fn for_request(
        number: u64,
        id: RequestId,
        cancel: CancellationToken,
        retry: Option<Duration>,
        takes_events: bool,
    ) -> Self {
        let stream = Self::new(StreamOwner::Request(number, id), cancel, takes_events);
        if let Some(retry) = retry.filter(|_| takes_events) {
            let mut events = stream.events.lock();
            let id = events.next_event_id(&stream.owner);
            events.unread.push_back(StreamEvent::resume_hint(id, retry));
        }
        stream
    }

    /// Creates the stream of a request without a session. A client that takes no events gets only the response.
    pub(crate) fn for_stateless_request(cancel: CancellationToken, takes_events: bool) -> Self {
        Self::new(StreamOwner::StatelessRequest, cancel, takes_events)
    }

    /// Creates the stream of a session.
    pub(crate) fn for_session() -> Self {
        Self::new(StreamOwner::Session, CancellationToken::new(), true)
    }

    pub(crate) fn number(&self) -> Option<u64> {
        match self.owner {
            StreamOwner::Request(number, _) => Some(number),
            StreamOwner::StatelessRequest | StreamOwner::Session => None,
        }
    }

    fn belongs_to_request(&self) -> bool {
        !matches!(self.owner, StreamOwner::Session)
    }

    /// Sends a message once there is capacity, unless the client takes only the response. A `transient` message is not
    /// retained for a disconnected client.
    pub(crate) async fn push(&self, line: Bytes, transient: bool) {
        if !self.takes_events {
            return;
        }
        let mut message = Some(EncodedResponse { line, error: None });
        loop {
            let room = self.capacity.notified();
            if self.events.lock().accept(&self.owner, &mut message, transient, false) {
                return;
            }
            room.await;
        }
    }

    /// Sends the last message, regardless of the capacity, and finishes the stream.
    pub(crate) fn finish(&self, mut last: Option<EncodedResponse>) {
        let mut events = self.events.lock();
        events.accept(&self.owner, &mut last, false, true);
        events.ended_at.get_or_insert_with(Instant::now);
        events.wake_readers();
        drop(events);
        self.capacity.notify_waiters();
    }

    /// Whether a reader is attached.
    pub(crate) fn has_reader(&self) -> bool {
        !self.events.lock().readers.is_empty()
    }

    /// Whether the stream has waited long enough for its client to reconnect.
    pub(crate) fn is_expired(&self) -> bool {
        let events = self.events.lock();
        events.readers.is_empty() && events.ended_at.is_some_and(|at| at.elapsed() >= RETAIN_FOR)
    }

    /// Attaches a reader, which gets all further events. With `after`, it first gets the events after this index again.
    pub(crate) fn attach_reader(&self, after: Option<u64>) -> u64 {
        let mut events = self.events.lock();
        let number = events.next_reader;
        events.next_reader = number.wrapping_add(1);
        if let Some(after) = after {
            events.rewind(after);
        }
        // Events that are being read do not count against the resume budget.
        events.budget = None;
        events.wake_readers();
        events.readers.push(AttachedReader { number, waker: None });
        drop(events);
        // Senders that found no reader must check the capacity again.
        self.capacity.notify_waiters();
        number
    }

    /// Polls for the next event for a reader.
    pub(crate) fn poll_next(&self, reader: u64, context: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        let mut events = self.events.lock();
        let is_last = events.readers.last().is_some_and(|last| last.number == reader);
        if is_last && let Some(event) = events.pop_next() {
            drop(events);
            self.capacity.notify_one();
            return Poll::Ready(Some(event));
        }
        // A client that resumes the stream of a request replaces the earlier reader.
        if events.ended_at.is_some() || (!is_last && self.belongs_to_request()) {
            return Poll::Ready(None);
        }
        events.register_waker(reader, context);
        Poll::Pending
    }

    /// Polls until an event is available or the stream has finished.
    pub(crate) fn poll_ready(&self, reader: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut events = self.events.lock();
        if events.ended_at.is_some() || !events.unread.is_empty() {
            return Poll::Ready(());
        }
        events.register_waker(reader, context);
        Poll::Pending
    }

    /// Takes the response if the stream has finished and contains no other message.
    pub(crate) fn take_single_response(&self) -> Option<EncodedResponse> {
        let mut events = self.events.lock();
        events.ended_at?;
        let mut messages = events.unread.iter().filter_map(|event| event.message.as_ref());
        let only = messages.next().filter(|_| messages.next().is_none()).cloned()?;
        events.unread.clear();
        Some(only)
    }

    /// Whether the stream has finished and all events were read.
    pub(crate) fn is_drained(&self) -> bool {
        let events = self.events.lock();
        events.ended_at.is_some() && events.unread.is_empty()
    }

    /// Detaches a reader. Events of a resumable request are retained if the budget allows it. Returns whether the
    /// stream is still in use: it has another reader, or may be resumed. The stream of a session takes nothing from the
    /// budget.
    pub(crate) fn detach_reader(
        &self,
        reader: u64,
        budget: impl FnOnce() -> Option<Box<dyn ResumeBudget>>,
    ) -> bool {
        let mut events = self.events.lock();
        events.readers.retain(|one| one.number != reader);
        events.wake_readers();
        let is_left = self.number().is_some() && events.is_resumable();
        let is_retained =
            is_left && budget().is_some_and(|budget| events.start_retaining(&self.owner, budget));
        let is_in_use = is_retained || !events.readers.is_empty();
        if !is_in_use && self.belongs_to_request() {
            events.unread.clear();
        }
        drop(events);
        self.capacity.notify_waiters();
        is_in_use
    }
}

impl StreamState {
    fn next_event_id(&mut self, owner: &StreamOwner) -> Option<String> {
        let index = self.next_index;
        self.next_index = index.wrapping_add(1);
        match owner {
            StreamOwner::Request(number, _) => Some(format!("{index}/{number}")),
            StreamOwner::Session => Some(index.to_string()),
            StreamOwner::StatelessRequest => None,
        }
    }

    /// Buffers a message, or drops it if no client can receive it. Returns `false` if the buffer is full.
    fn accept(
        &mut self,
        owner: &StreamOwner,
        message: &mut Option<EncodedResponse>,
        transient: bool,
        last: bool,
    ) -> bool {
        let has_no_reader =
            self.readers.is_empty() && self.budget.is_none() && !matches!(owner, StreamOwner::Session);
        if self.ended_at.is_some() || has_no_reader {
            return true;
        }
        if !last && !self.readers.is_empty() && self.unread.len() >= MAX_BUFFERED_EVENTS {
            return false;
        }
        let Some(message) = message.take() else { return true };
        let event =
            StreamEvent { id: self.next_event_id(owner), message: Some(message), retry: None, transient };
        if self.budget.is_some() {
            self.retain(owner, event);
        } else {
            if self.unread.len() >= MAX_BUFFERED_EVENTS && self.readers.is_empty() {
                self.unread.pop_front();
            }
            self.unread.push_back(event);
        }
        self.wake_readers();
        true
    }

    /// Retains an event for a disconnected client. Transient events are dropped.
    fn retain(&mut self, owner: &StreamOwner, mut event: StreamEvent) {
        let (Some(message), Some(budget)) = (&mut event.message, &mut self.budget) else { return };
        if event.transient {
            return;
        }
        // Copied, because the original bytes count against the outbox of a connected client.
        message.line = match budget.grow(message.line.len() as u64) {
            true => Bytes::copy_from_slice(&message.line),
            false => not_retained_response(owner),
        };
        if self.unread.len() >= MAX_BUFFERED_EVENTS {
            self.unread.pop_front();
        }
        self.unread.push_back(event);
    }

    /// Whether the client may resume the stream. A client that got no event has no id to resume from.
    fn is_resumable(&self) -> bool {
        let is_over = self.ended_at.is_some() && self.unread.is_empty();
        self.readers.is_empty() && !is_over && !self.already_read.is_empty()
    }

    /// Starts to retain events until the client reconnects. Returns `false` if the budget does not allow it.
    fn start_retaining(&mut self, owner: &StreamOwner, mut budget: Box<dyn ResumeBudget>) -> bool {
        if !budget.grow(MIN_RETAINED_BYTES) {
            return false;
        }
        self.budget = Some(budget);
        std::mem::take(&mut self.unread).into_iter().for_each(|event| self.retain(owner, event));
        true
    }

    fn pop_next(&mut self) -> Option<StreamEvent> {
        let event = self.unread.pop_front()?;
        if self.already_read.len() >= MAX_BUFFERED_EVENTS {
            self.already_read.pop_front();
        }
        self.already_read.push_back(event.clone());
        Some(event)
    }

    fn register_waker(&mut self, reader: u64, context: &Context<'_>) {
        if let Some(reader) = self.readers.iter_mut().find(|one| one.number == reader) {
            reader.waker = Some(context.waker().clone());
        }
    }

    /// Makes the events after this index unread again.
    fn rewind(&mut self, after: u64) {
        while let Some(event) = self.already_read.pop_back() {
            let index = event.id.as_deref().and_then(parse_event_id).map(|(index, _)| index);
            if index.is_none_or(|index| index <= after) {
                self.already_read.push_back(event);
                return;
            }
            self.unread.push_front(event);
        }
    }

    /// Wakes all readers: the latest gets the events, and earlier ones may have to end.
    fn wake_readers(&mut self) {
        self.readers.iter_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }
}

/// The error response that replaces a response the budget has no room for.
fn not_retained_response(owner: &StreamOwner) -> Bytes {
    // The client reads the names of the limits, and the operator the line (docs/decisions/0049).
    let hint = "to keep more, write in the policy: [serve.limits] resume_buffer_bytes_per_client = …, resume_buffer_bytes = …";
    tracing::warn!(hint, "a response to a disconnected client was dropped: the resume buffer is full");
    let text = "the response arrived while the client was disconnected, and a limit was reached: \
                `resume_buffer_bytes_per_client` or `resume_buffer_bytes`";
    let error = ErrorData::internal_error(text, None);
    let id = match owner {
        StreamOwner::Request(_, id) => Some(id),
        StreamOwner::StatelessRequest | StreamOwner::Session => None,
    };
    message::encode_response::<_, (), _>(id, Err(&error)).into()
}
