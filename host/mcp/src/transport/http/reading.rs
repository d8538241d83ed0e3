//! Who reads a stream of events, and works on what it answers.
//!
//! A request of a session is begun where its answer is read, and most end there: no other task is woken for them. One that
//! has to wait goes on in a task of its own, whether its client reads or not: what it holds and how long it may take must
//! not depend on that. A client that left and knows how to come back finds what came meanwhile: for a minute after the
//! answer, within `kept_bytes`. What was handed to a connection before it broke is not kept.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::future::BoxFuture;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;

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
    /// What has not begun. Locked by nobody: that makes it one that threads may share.
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

    /// Begins the work, if it has not begun; what has to wait goes on in a task of its own.
    fn begin(&mut self, context: &mut Context<'_>) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut work) = work
            && work.as_mut().poll(context).is_pending()
        {
            tokio::spawn(work);
        }
    }

    /// Begins the work; returns the answer if that is there then, and nothing else was said. The stream is over then.
    pub(super) fn at_once(&mut self, context: &mut Context<'_>) -> Option<Arc<ServerJsonRpcMessage>> {
        self.begin(context);
        self.line.only()
    }
}

impl Stream for Reading {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        self.begin(context);
        self.line.poll(self.reader, context)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let Keeper { state, settings, client, live } = &self.keeper;
        let keep = || {
            let share = state.clients.nothing(client, Kind::KeptBytes);
            Kept { share, limits: settings.serve.limits.clone() }
        };
        // Before it is left: whoever comes back at once finds it.
        let remembered = !self.line.is_over() && live.streams.leave(&self.line);
        let left = self.line.leave(self.reader, keep);
        if !(remembered && left) {
            live.streams.forget(&self.line);
        }
    }
}
