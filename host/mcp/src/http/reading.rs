//! Who reads a stream of events, and works on what it answers.
//!
//! A request of a session is worked on where its answer is read: no other task is woken for it. When its client leaves
//! first, it goes on in a task of its own, and a client that knows how to come back finds what came meanwhile: for a minute
//! after the answer, within `kept_bytes`. What was handed to a connection before it broke is not kept.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::future::BoxFuture;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::runtime::Handle;

use super::clients::{Client, Kind};
use super::line::{Kept, Line};
use super::session::Live;
use super::{Settings, State};

/// What is done for a request, until it has its answer.
pub(super) type Work = BoxFuture<'static, ()>;

/// With what a stream is kept.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    pub(super) state: Arc<State>,
    pub(super) settings: Arc<Settings>,
    pub(super) client: Arc<Client>,
    pub(super) live: Arc<Live>,
}

/// A stream, as one client reads it.
pub(super) struct Reading {
    line: Arc<Line>,
    reader: u64,
    /// Locked by nobody: that makes it one that threads may share.
    work: Mutex<Option<Work>>,
    keeper: Keeper,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Reading {
    /// Reads what comes from now on; with what was read after an event before, and what is done meanwhile.
    pub(super) fn new(line: Arc<Line>, after: Option<u64>, work: Option<Work>, keeper: Keeper) -> Self {
        let reader = line.read(after);
        Self { line, reader, work: Mutex::new(work), keeper }
    }

    fn work(&mut self) -> &mut Option<Work> {
        self.work.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Reading {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        let work = self.work();
        if work.as_mut().is_some_and(|work| work.as_mut().poll(context).is_ready()) {
            *work = None;
        }
        self.line.poll(self.reader, context)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.work().take(), Handle::try_current()) {
            runtime.spawn(work);
        }
        let Keeper { state, settings, client, live } = &self.keeper;
        let share = state.clients.nothing(client, Kind::KeptBytes);
        let kept = Kept { share, limits: settings.serve.limits.clone() };
        // Before it is left: whoever comes back at once finds it.
        let remembered = !self.line.is_over() && live.streams.leave(&self.line);
        let left = self.line.leave(self.reader, kept);
        if !(remembered && left) {
            live.streams.forget(&self.line);
        }
    }
}
