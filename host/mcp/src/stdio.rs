//! One JSON message a line, over stdin and stdout or any other pair of streams.
//!
//! Lines are read here and written by rmcp's transport. What comes in is bounded: a line in its length, and requests
//! in how many are not answered yet, so that a client which never reads is not read any more either. Notifications
//! before the first request are dropped: rmcp would end the connection.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, GetMeta, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{QuitReason, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite, Empty};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::lines::{Line, Lines};
use crate::message::{self, Bad};
use crate::server::Server;

/// Requests that are not answered yet, besides calls: beyond them nothing more is read.
const MAX_OTHERS: usize = 256;
/// Requests that were cancelled and whose ids are remembered.
const MAX_CANCELLED: usize = 64;

/// How long calls that were cancelled with their connection are waited for: they have a second, and are recorded.
const END_WAIT: Duration = Duration::from_secs(2);

/// Serves one client over stdin and stdout. See [`serve`].
///
/// Must run inside a tokio runtime with I/O and time enabled. Where stdin is no pipe (a terminal, a socket), a
/// thread of the runtime sits in a blocking read that nothing can end: stop such a runtime with
/// `shutdown_background`.
///
/// # Errors
/// See [`serve`].
pub async fn serve_stdio(server: Server, cancel: CancellationToken) -> anyhow::Result<()> {
    let (reader, writer) = stdio_pipes();
    serve(server, reader, writer, cancel).await
}

/// Serves one client until it closes its end, or `cancel` fires.
///
/// When the client closes its end, calls in flight have five seconds to be answered; when `cancel` fires, they are
/// cancelled and have two. What is cut off is cancelled and recorded before this returns.
///
/// # Errors
/// When the client's first message is none of MCP, or writing fails before the first answer.
pub async fn serve<R, W>(
    server: Server,
    reader: R,
    writer: W,
    cancel: CancellationToken,
) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = server.apart();
    let closed = CancellationToken::new();
    let at_the_end = closed.clone().drop_guard();
    let options = server.options();
    let transport = Wire {
        lines: Lines::new(reader, options.max_line_bytes),
        writer: AsyncRwTransport::new_server(tokio::io::empty(), writer),
        most: options.max_line_bytes,
        asked: Arc::new(Asked::new(options.max_in_flight.saturating_add(MAX_OTHERS))),
        refusing: None,
        begun: false,
        closed: closed.clone(),
    };
    let running = match server.connection(closed).serve_with_ct(transport, cancel.child_token()).await {
        Ok(running) => running,
        // It left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(error).context("the client did not begin as MCP clients do"),
    };
    let ended = running.waiting().await;
    drop(at_the_end);
    if tokio::time::timeout(END_WAIT, server.rests()).await.is_err() {
        tracing::warn!("a call did not end with its connection");
    }
    match ended.context("the connection's task failed")? {
        QuitReason::Cancelled | QuitReason::Closed => Ok(()),
        QuitReason::JoinError(error) => Err(error).context("a task of the connection failed"),
        other => anyhow::bail!("the connection ended: {other:?}"),
    }
}

/// Requests that are not answered yet.
struct Asked {
    most: usize,
    ids: Mutex<Ids>,
    /// One was answered.
    less: Notify,
}

#[derive(Default)]
struct Ids {
    open: HashSet<RequestId>,
    /// Those that were cancelled last. They may still be on their way to their end, and the answer to one would be taken
    /// for the answer to another.
    cancelled: VecDeque<RequestId>,
}

impl Asked {
    fn new(most: usize) -> Self {
        Self { most, ids: Mutex::default(), less: Notify::new() }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more.
    async fn room(&self) {
        while self.ids().open.len() >= self.most {
            self.less.notified().await;
        }
    }

    /// Takes one more in; returns whether there was none of this id.
    fn ask(&self, id: &RequestId) -> bool {
        let mut ids = self.ids();
        !ids.cancelled.contains(id) && ids.open.insert(id.clone())
    }

    fn answered(&self, id: &RequestId) {
        if self.ids().open.remove(id) {
            self.less.notify_one();
        }
    }

    /// It is not answered any more.
    fn cancelled(&self, id: &RequestId) {
        let mut ids = self.ids();
        if ids.open.remove(id) {
            ids.cancelled.push_back(id.clone());
            if ids.cancelled.len() > MAX_CANCELLED {
                ids.cancelled.pop_front();
            }
            drop(ids);
            self.less.notify_one();
        }
    }
}

/// Lines in, lines out.
struct Wire<R, W: AsyncWrite> {
    lines: Lines<R>,
    writer: AsyncRwTransport<RoleServer, Empty, W>,
    most: usize,
    asked: Arc<Asked>,
    /// An answer of our own on its way out; kept here because `receive` may be dropped at any await.
    refusing: Option<BoxFuture<'static, io::Result<()>>>,
    /// Whether the request came that settles the era.
    begun: bool,
    /// Fires when the client has hung up: an open subscription would hold the process for seconds.
    closed: CancellationToken,
}

/// Whether rmcp starts its service with this message.
fn begins(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        other => other.get_meta().protocol_version().is_some(),
    }
}

impl<R, W> Wire<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// The next message, or what is to be answered to what is none; `None` at the end.
    async fn next(&mut self) -> Option<Result<RxJsonRpcMessage<RoleServer>, Bad>> {
        self.asked.room().await;
        let line = match self.lines.next().await {
            Ok(line) => line,
            Err(error) => {
                tracing::warn!(%error, "the client can not be read any more");
                None
            }
        };
        Some(match line {
            None => {
                self.closed.cancel();
                return None;
            }
            Some(Line::TooLong(id)) => {
                let text = format!("a message of more than {} bytes is not read", self.most);
                Err(Bad::answer(ErrorData::invalid_request(text, None), id))
            }
            Some(Line::Whole(bytes)) => message::read(&bytes),
        })
    }

    /// Whether a message goes on to rmcp.
    fn admit(&mut self, message: &RxJsonRpcMessage<RoleServer>) -> Result<bool, Bad> {
        self.begun |= begins(message);
        match message {
            JsonRpcMessage::Request(request) => {
                if !self.asked.ask(&request.id) {
                    let text = "a request of this id is not answered yet, or was cancelled";
                    let error = ErrorData::invalid_request(text, None);
                    return Err(Bad::answer(error, Some(request.id.clone())));
                }
                Ok(true)
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.asked.cancelled(id);
                }
                Ok(self.begun)
            }
            _ => Ok(self.begun),
        }
    }
}

impl<R, W> Transport<RoleServer> for Wire<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (sent, asked) = (self.writer.send(message), Arc::clone(&self.asked));
        async move {
            let sent = sent.await;
            id.iter().for_each(|id| asked.answered(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                let sent = refusing.await;
                self.refusing = None;
                sent.ok()?;
            }
            let bad = match self.next().await? {
                Ok(message) => match self.admit(&message) {
                    Ok(true) => return Some(message),
                    Ok(false) => continue,
                    Err(bad) => bad,
                },
                Err(bad) => bad,
            };
            if let Bad::Answer(answer) = bad {
                let (error, id) = *answer;
                let refusal = ServerJsonRpcMessage::error(error, id);
                self.refusing = Some(Box::pin(self.writer.send(refusal)));
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.close().await
    }
}
