//! Who reads a stream of events.
//!
//! A request of a session goes on whether its client reads or not: what it holds and how long it may take must not depend on
//! that. A client that left and knows how to come back finds what came meanwhile: for a minute after the answer, within
//! `resume_buffer_bytes`. What was handed to a connection before it broke is not kept. A request without a session ends when its
//! reader leaves.

use std::sync::Arc;
use std::task::{Context, Poll};

use toolbay_policy::serve::ServeLimits;

use super::clients::{Client, QuotaKind, QuotaPermit};
use super::sessions::HttpSession;
use super::{Settings, State};
use crate::protocol::event_stream::{Event, EventStream, ResumeBudget};

/// With what the streams of a session are kept.
#[derive(Debug, Clone)]
pub(super) struct StreamKeeper {
    pub(super) state: Arc<State>,
    pub(super) settings: Arc<Settings>,
    pub(super) client: Arc<Client>,
    pub(super) session: Arc<HttpSession>,
}

/// A stream, as one client reads it.
pub(super) struct EventReader {
    pub(super) stream: Arc<EventStream>,
    number: u64,
    /// `None`: the stream belongs to no session, and ends with its reader.
    keeper: Option<StreamKeeper>,
}

impl EventReader {
    /// Reads what comes from now on, and what was read after the event at `after`.
    pub(super) fn new(stream: Arc<EventStream>, after: Option<u64>, keeper: Option<StreamKeeper>) -> Self {
        let number = stream.read(after);
        Self { stream, number, keeper }
    }

    /// The next event.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.stream.poll(self.number, context)
    }

    /// Waits until there is something to read.
    pub(super) async fn begun(&self) {
        std::future::poll_fn(|context| self.stream.poll_begun(self.number, context)).await;
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let Some(StreamKeeper { state, settings, client, session }) = &self.keeper else {
            self.stream.cancel.cancel();
            self.stream.leave(self.number, || None);
            return;
        };
        let budget = || {
            let permit = state.clients.nothing(client, QuotaKind::KeptBytes);
            Some(Box::new(KeptBytes { permit, limits: settings.serve.limits.clone() }) as Box<_>)
        };
        // Before the reader leaves, so that a client that comes back at once finds the stream.
        let remembered = !self.stream.is_over() && session.streams.leave(&self.stream);
        let left = self.stream.leave(self.number, budget);
        if !(remembered && left) {
            session.streams.forget(&self.stream);
        }
    }
}

/// The bytes that are kept for a client.
#[derive(Debug)]
pub(super) struct KeptBytes {
    pub(super) permit: QuotaPermit,
    pub(super) limits: ServeLimits,
}

impl ResumeBudget for KeptBytes {
    fn grow(&mut self, bytes: u64) -> bool {
        self.permit.grow(bytes, &self.limits).is_ok()
    }
}
