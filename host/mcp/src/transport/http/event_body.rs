//! A stream of events as the body of a response (server-sent events).

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::reader::EventReader;
use crate::protocol::event_stream::Event;

/// How often something is sent on a stream on which nothing happens: proxies close silent ones.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest message that is copied to be sent in one piece with what stands around it, in bytes.
const SHORT: usize = 4 << 10;

/// The events that a reader gets.
pub(super) struct EventBody {
    /// `None`: there is nothing to read.
    reader: Option<EventReader>,
    /// What is left of an event.
    pieces: VecDeque<Bytes>,
    keep_alive: Pin<Box<Sleep>>,
}

impl EventBody {
    /// What a reader gets, after a first event, if there is one.
    pub(super) fn new(reader: Option<EventReader>, first: Option<Event>) -> Self {
        let keep_alive = Box::pin(tokio::time::sleep(KEEP_ALIVE));
        Self { reader, pieces: first.map(pieces).unwrap_or_default(), keep_alive }
    }
}

/// An event as bytes: id, time to come back, and message, which is one line.
fn pieces(event: Event) -> VecDeque<Bytes> {
    let mut head = String::new();
    if let Some(id) = event.id {
        head += &format!("id: {id}\n");
    }
    if let Some(retry) = event.retry {
        head += &format!("retry: {}\n", retry.as_millis());
    }
    match event.message {
        Some(message) if message.line.len() > SHORT => {
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
            if let Some(piece) = self.pieces.pop_front() {
                self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(reader) = &mut self.reader else { return Poll::Ready(None) };
            match reader.poll(context) {
                Poll::Ready(Some(event)) => self.pieces = pieces(event),
                Poll::Ready(None) => {
                    self.reader = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    ready!(self.keep_alive.as_mut().poll(context));
                    self.pieces.push_back(Bytes::from_static(b":\n\n"));
                }
            }
        }
    }
}
