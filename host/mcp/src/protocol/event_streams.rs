//! The streams of one session, and which of them a message of the server goes to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::RequestId;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventStream, Reply};
use super::outbound::{Destination, MessageSink};

/// The streams of a session.
#[derive(Debug)]
pub(crate) struct EventStreams {
    streams: Mutex<Streams>,
    /// What belongs to no request.
    pub(crate) own: Arc<EventStream>,
    /// How long a client waits before it comes back, if its version knows how to.
    retry: Option<Duration>,
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    /// Those of requests that have not ended, whether or not somebody still waits for them.
    open: HashMap<RequestId, Arc<EventStream>>,
    /// Those that clients have left, by their numbers.
    left: HashMap<u64, Arc<EventStream>>,
    is_over: bool,
}

/// Why a request cannot begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamRefusal {
    /// One of this id has not ended.
    Duplicate,
    /// The session is over.
    Over,
}

impl EventStreams {
    pub(crate) fn new(retry: Option<Duration>) -> Self {
        Self { streams: Mutex::default(), own: Arc::new(EventStream::of_session()), retry }
    }

    /// Begins that of a request.
    pub(crate) fn begin(
        &self,
        id: &RequestId,
        cancel: CancellationToken,
    ) -> Result<Arc<EventStream>, StreamRefusal> {
        let mut streams = self.streams.lock();
        if streams.is_over {
            return Err(StreamRefusal::Over);
        }
        if streams.open.contains_key(id) {
            return Err(StreamRefusal::Duplicate);
        }
        let stream = Arc::new(EventStream::of_request(streams.next, id.clone(), cancel, self.retry));
        streams.next = streams.next.wrapping_add(1);
        streams.open.insert(id.clone(), Arc::clone(&stream));
        Ok(stream)
    }

    /// The request has ended: with this answer, if it has one.
    pub(crate) fn end(&self, id: &RequestId, answer: Option<Reply>) {
        let stream = self.streams.lock().open.remove(id);
        if let Some(stream) = stream {
            stream.end(answer);
        }
    }

    /// The client does not want the answer any more. Its id is free when the request has ended.
    pub(crate) fn cancel(&self, id: &RequestId) {
        let stream = self.streams.lock().open.get(id).cloned();
        if let Some(stream) = stream {
            stream.cancel.cancel();
            stream.end(None);
        }
    }

    /// Where a message belongs; `None`: nobody waits for it.
    fn stream_for(&self, to: Destination<'_>) -> Option<Arc<EventStream>> {
        let open = |id| self.streams.lock().open.get(id).cloned();
        match to {
            Destination::Progress(id) => open(id),
            Destination::Question(id) | Destination::Withdrawal(id) => {
                open(id).or_else(|| Some(Arc::clone(&self.own)))
            }
            Destination::Session => Some(Arc::clone(&self.own)),
        }
    }

    /// Remembers one whose client has left; `false`: the session is over.
    pub(crate) fn leave(&self, stream: &Arc<EventStream>) -> bool {
        let mut streams = self.streams.lock();
        if let Some(number) = stream.number().filter(|_| !streams.is_over) {
            streams.left.insert(number, Arc::clone(stream));
        }
        !streams.is_over
    }

    /// Forgets one that was left, and was read to its end.
    pub(crate) fn forget(&self, stream: &EventStream) {
        if let Some(number) = stream.number() {
            self.streams.lock().left.remove(&number);
        }
    }

    /// That of this number, if its request has not ended or its client has left it.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<EventStream>> {
        let streams = self.streams.lock();
        let open = || streams.open.values().find(|stream| stream.number() == Some(number));
        streams.left.get(&number).or_else(open).cloned()
    }

    /// Whether no request runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.streams.lock().open.is_empty()
    }

    /// Forgets what waited for its client for too long.
    pub(crate) fn sweep(&self) {
        self.streams.lock().left.retain(|_, stream| !stream.is_stale());
    }

    /// Ends all; what was sent before is still read.
    pub(crate) fn close(&self) {
        let (open, left) = {
            let mut streams = self.streams.lock();
            streams.is_over = true;
            let open: Vec<_> = streams.open.values().cloned().collect();
            (open, std::mem::take(&mut streams.left))
        };
        open.iter().chain(left.values()).chain([&self.own]).for_each(|stream| stream.end(None));
    }
}

impl MessageSink for EventStreams {
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if let Some(stream) = self.stream_for(to) {
                stream.push(line, !matches!(to, Destination::Question(_))).await;
            }
            !self.streams.lock().is_over
        })
    }
}

impl MessageSink for EventStream {
    fn send<'a>(&'a self, line: Bytes, to: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.push(line, !matches!(to, Destination::Question(_))).await;
            !self.cancel.is_cancelled()
        })
    }
}
