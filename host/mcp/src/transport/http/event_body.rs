//! A response body of server-sent events.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::event_reader::EventReader;
use crate::protocol::event_stream::StreamEvent;

/// Interval of comments on an idle stream, since proxies close silent streams.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest message that is copied into one chunk with its framing, in bytes.
const MAX_COPIED_MESSAGE: usize = 4 << 10;

/// The body that sends the events of a reader.
pub(super) struct EventBody {
    /// `None` if the stream has ended.
    reader: Option<EventReader>,
    /// Remaining chunks of the current event.
    chunks: VecDeque<Bytes>,
    keep_alive: Pin<Box<Sleep>>,
}

impl EventBody {
    /// Creates the body for a reader, with an optional first event.
    pub(super) fn new(reader: Option<EventReader>, first: Option<StreamEvent>) -> Self {
        let keep_alive = Box::pin(tokio::time::sleep(KEEP_ALIVE));
        Self { reader, chunks: first.map(encode_event).unwrap_or_default(), keep_alive }
    }
}

/// Encodes an event: its id, its retry delay, and its message, which is one line.
fn encode_event(event: StreamEvent) -> VecDeque<Bytes> {
    let mut head = String::new();
    if let Some(id) = event.id {
        head += &format!("id: {id}\n");
    }
    if let Some(retry) = event.retry {
        head += &format!("retry: {}\n", retry.as_millis());
    }
    match event.message {
        Some(message) if message.line.len() > MAX_COPIED_MESSAGE => {
            VecDeque::from([(head + "data: ").into(), message.line, Bytes::from_static(b"\n")])
        }
        Some(message) => VecDeque::from([[head.as_bytes(), b"data: ", &message.line, b"\n"].concat().into()]),
        None => VecDeque::from([(head + "data:\n\n").into()]),
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(piece) = self.chunks.pop_front() {
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
            match reader.poll_next(context) {
                Poll::Ready(Some(event)) => self.chunks = encode_event(event),
                Poll::Ready(None) => {
                    self.reader = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.keep_alive.as_mut().poll(context));
                    self.chunks.push_back(Bytes::from_static(b":\n\n"));
                }
            }
        }
    }
}
