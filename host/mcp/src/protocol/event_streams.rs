//! The event streams of one session, and the routing of messages to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::event_stream::{EncodedResponse, EventStream};
use super::incoming;
use super::outbound::{Destination, MessageSink};

/// The event streams of a session.
#[derive(Debug)]
pub(crate) struct EventStreams {
    streams: Mutex<StreamTable>,
    /// The stream of messages that belong to no request.
    pub(crate) session_stream: Arc<EventStream>,
    /// Delay before a client reconnects, if its protocol version supports resumption.
    retry: Option<Duration>,
}

#[derive(Debug, Default)]
struct StreamTable {
    next_number: u64,
    /// Streams of unfinished requests, with or without a reader.
    open: HashMap<RequestId, Arc<EventStream>>,
    /// Streams whose clients have disconnected, by number.
    detached: HashMap<u64, Arc<EventStream>>,
    closed: bool,
}

/// Why a stream cannot be created.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BeginStreamError {
    /// A request with this id is unfinished.
    Duplicate,
    /// The session is closed.
    Closed,
}

impl EventStreams {
    pub(crate) fn new(retry: Option<Duration>) -> Self {
        Self { streams: Mutex::default(), session_stream: Arc::new(EventStream::for_session()), retry }
    }

    /// Creates the stream of a request. A client that takes no events gets only the response.
    pub(crate) fn begin(
        &self,
        id: &RequestId,
        cancel: CancellationToken,
        takes_events: bool,
    ) -> Result<Arc<EventStream>, BeginStreamError> {
        let mut streams = self.streams.lock();
        if streams.closed {
            return Err(BeginStreamError::Closed);
        }
        if streams.open.contains_key(id) {
            return Err(BeginStreamError::Duplicate);
        }
        let number = streams.next_number;
        let stream = EventStream::for_request(number, id.clone(), cancel, self.retry, takes_events);
        let stream = Arc::new(stream);
        streams.next_number = streams.next_number.wrapping_add(1);
        streams.open.insert(id.clone(), Arc::clone(&stream));
        Ok(stream)
    }

    /// Finishes the stream of a request, with its response if there is one.
    pub(crate) fn finish(&self, id: &RequestId, answer: Option<EncodedResponse>) {
        let stream = self.streams.lock().open.remove(id);
        if let Some(stream) = stream {
            stream.finish(answer);
        }
    }

    /// Cancels a request. Its id is free only after the request has ended. It may be text in place of a number, or the
    /// other way round.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let find = |id: &RequestId| self.streams.lock().open.get(id).cloned();
        let stream = find(id).or_else(|| find(&incoming::other_form(id)?));
        if let Some(stream) = stream {
            stream.cancel.cancel();
            stream.finish(None);
        }
    }

    /// Finds the stream for a message. `None` if the message is obsolete.
    fn stream_for(&self, to: Destination<'_>) -> Option<Arc<EventStream>> {
        let open = |id| self.streams.lock().open.get(id).cloned();
        match to {
            Destination::Progress(id) => open(id),
            Destination::ServerRequest(id) | Destination::Cancellation(id) => {
                let own = open(id).filter(|stream| stream.takes_events);
                own.or_else(|| Some(Arc::clone(&self.session_stream)))
            }
            Destination::Session => Some(Arc::clone(&self.session_stream)),
        }
    }

    /// Stores a stream whose client has disconnected. Returns `false` if the session is closed.
    pub(crate) fn detach(&self, stream: &Arc<EventStream>) -> bool {
        let mut streams = self.streams.lock();
        if let Some(number) = stream.number().filter(|_| !streams.closed) {
            streams.detached.insert(number, Arc::clone(stream));
        }
        !streams.closed
    }

    /// Removes a detached stream that was read to its end.
    pub(crate) fn remove_detached(&self, stream: &EventStream) {
        if let Some(number) = stream.number() {
            self.streams.lock().detached.remove(&number);
        }
    }

    /// Finds the stream with this number, if its request is unfinished or its client has disconnected.
    pub(crate) fn find_by_number(&self, number: u64) -> Option<Arc<EventStream>> {
        let streams = self.streams.lock();
        let open = || streams.open.values().find(|stream| stream.number() == Some(number));
        streams.detached.get(&number).or_else(open).cloned()
    }

    /// Whether no request is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.lock().open.is_empty()
    }

    /// Removes streams whose clients did not reconnect in time.
    pub(crate) fn sweep(&self) {
        self.streams.lock().detached.retain(|_, stream| !stream.is_expired());
    }

    /// Finishes all streams. Messages that were sent before can still be read.
    pub(crate) fn close(&self) {
        let (open, left) = {
            let mut streams = self.streams.lock();
            streams.closed = true;
            let open: Vec<_> = streams.open.values().cloned().collect();
            (open, std::mem::take(&mut streams.detached))
        };
        open.iter().chain(left.values()).chain([&self.session_stream]).for_each(|stream| stream.finish(None));
    }
}

impl MessageSink for EventStreams {
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if let Some(stream) = self.stream_for(to) {
                stream.push(line, !matches!(to, Destination::ServerRequest(_))).await;
            }
            !self.streams.lock().closed
        })
    }
}

impl MessageSink for EventStream {
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.push(line, !matches!(to, Destination::ServerRequest(_))).await;
            !self.cancel.is_cancelled()
        })
    }
}
