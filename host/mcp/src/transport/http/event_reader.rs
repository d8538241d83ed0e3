//! Readers of event streams.
//!
//! A request of a session continues when its client disconnects, so that its limits do not depend on the connection. A
//! client that supports resumption gets the missed events when it reconnects within a minute after the response, within
//! `resume_buffer_bytes`. Events that were written to the broken connection are lost. A request without a session ends
//! when its reader disconnects.

use std::sync::Arc;
use std::task::{Context, Poll};

use toolbay_policy::serve::ServeLimits;

use super::clients::{ClientState, QuotaKind, QuotaPermit};
use super::sessions::HttpSession;
use super::{HttpState, ServeSettings};
use crate::protocol::event_stream::{EventStream, ResumeBudget, StreamEvent};

/// What a reader needs to retain the stream of a session.
#[derive(Debug, Clone)]
pub(super) struct SessionStreamContext {
    pub(super) state: Arc<HttpState>,
    pub(super) settings: Arc<ServeSettings>,
    pub(super) client: Arc<ClientState>,
    pub(super) session: Arc<HttpSession>,
}

/// A reader attached to a stream.
pub(super) struct EventReader {
    pub(super) stream: Arc<EventStream>,
    number: u64,
    /// `None` if the stream belongs to no session and ends with its reader.
    context: Option<SessionStreamContext>,
}

impl EventReader {
    /// Attaches a reader for all further events and, with `after`, for the earlier events after this index.
    pub(super) fn new(
        stream: Arc<EventStream>,
        after: Option<u64>,
        context: Option<SessionStreamContext>,
    ) -> Self {
        let number = stream.attach_reader(after);
        Self { stream, number, context }
    }

    /// Polls for the next event.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        self.stream.poll_next(self.number, context)
    }

    /// Waits until an event is available.
    pub(super) async fn wait_ready(&self) {
        std::future::poll_fn(|context| self.stream.poll_ready(self.number, context)).await;
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let Some(SessionStreamContext { state, settings, client, session }) = &self.context else {
            self.stream.cancel.cancel();
            self.stream.detach_reader(self.number, || None);
            return;
        };
        let budget = || {
            let permit = state.clients.empty_permit(client, QuotaKind::ResumeBufferBytes);
            Some(Box::new(ResumeBufferPermit { permit, limits: settings.serve.limits.clone() }) as Box<_>)
        };
        // Stored before the reader detaches, so that a client that reconnects at once finds the stream.
        let remembered = !self.stream.is_drained() && session.streams.detach(&self.stream);
        let left = self.stream.detach_reader(self.number, budget);
        if !(remembered && left) {
            session.streams.remove_detached(&self.stream);
        }
    }
}

/// Quota of retained bytes of a client.
#[derive(Debug)]
pub(super) struct ResumeBufferPermit {
    pub(super) permit: QuotaPermit,
    pub(super) limits: ServeLimits,
}

impl ResumeBudget for ResumeBufferPermit {
    fn grow(&mut self, bytes: u64) -> bool {
        self.permit.grow(bytes, &self.limits).is_ok()
    }
}
