//! One JSON message a line, over stdin and stdout or any other pair of streams.
//!
//! What comes in is bounded: a line in its length, and requests in how many are not answered yet, so that a client which
//! never reads is not read any more either. Each request is answered in a task of its own; they end with the connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{ErrorData, RequestId};
use rmcp::transport::stdio_pipes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::bytes::{Buf, Bytes};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::protocol::incoming::{self, ClientMessage, InvalidKind, Request};
use crate::protocol::message;
use crate::protocol::open_requests::OpenRequests;
use crate::protocol::outbound::{Destination, MessageSink};
use crate::server::connection::McpConnection;
use crate::server::outbox::Outbox;
use crate::server::request::RequestOrigin;
use crate::server::{Server, SessionOwner};
use crate::transport::http::Ends;
use crate::transport::lines::{LineFrame, LineReader};

/// A mark that some editors put before UTF-8.
const BOM: &[u8] = "\u{feff}".as_bytes();
/// Requests that are not answered yet, besides calls: beyond them nothing more is read.
const MAX_OTHERS: usize = 256;
/// Bytes of answers that wait in the pipe at most; what Linux allows everybody.
const PIPE: usize = 1 << 20;

/// How long calls go on after the last message of the client.
const CALL_GRACE: Duration = Duration::from_millis(3800);
/// How long calls that were cancelled with their connection are waited for: they have a second, and are recorded.
const END_WAIT: Duration = Duration::from_secs(2);

/// Serves one client over stdin and stdout. See [`serve`]; when `ends.drain` fires, nothing more is read, as if the client
/// had closed its end.
///
/// Must run inside a tokio runtime with I/O and time enabled. Where stdin is no pipe (a terminal, a socket), a thread of the
/// runtime sits in a blocking read that nothing can end: end such a runtime with `shutdown_background`.
///
/// # Errors
/// What serves the client has panicked.
pub async fn serve_stdio(server: Server, ends: Ends) -> anyhow::Result<()> {
    widen(std::io::stdout());
    let (reader, writer) = stdio_pipes();
    serve_until(server, reader, writer, ends).await
}

/// Makes room in a pipe for a long answer: else both ends wake each other for each 64 KiB. Where it is no pipe, or there
/// may be no larger one, it stays as it is.
fn widen(pipe: impl std::os::fd::AsFd) {
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, PIPE) {
        tracing::debug!(%error, "stdout stays as it is");
    }
}

/// Serves one client until it closes its end, or `cancel` fires.
///
/// When the client closes its end, calls in flight go on for 3.8 seconds; what still runs then is cancelled, answered
/// with an error and recorded before this returns. When `cancel` fires, calls are cancelled at once.
///
/// # Errors
/// What serves the client has panicked.
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
    serve_until(server, reader, writer, Ends { stop: cancel, ..Ends::default() }).await
}

async fn serve_until<R, W>(server: Server, reader: R, writer: W, ends: Ends) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    // In a task: else each line would wake the thread that waits for the end of the program, and its request another one.
    // It ends with this future.
    Ok(AbortOnDropHandle::new(tokio::spawn(serve_client(server, reader, writer, ends))).await?)
}

async fn serve_client<R, W>(server: Server, reader: R, writer: W, ends: Ends)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = server.with_own_calls();
    // Fires when nothing more comes: an open subscription would hold the process for seconds.
    let closed = CancellationToken::new();
    let _at_the_end = closed.clone().drop_guard();
    let options = &server.options;
    let pipe = Arc::new(PipeWriter(Mutex::new(Some(Writer { inner: writer, begun: Bytes::new() }))));
    let connection =
        server.connection(SessionOwner::of_session(None), Arc::clone(&pipe) as _, closed.clone());
    let mut transport = StdioTransport {
        limit: options.max_line_bytes,
        lines: LineReader::new(reader, options.max_line_bytes),
        pipe,
        open: Arc::new(OpenRequests::new(options.max_in_flight.saturating_add(MAX_OTHERS))),
        outbox: Arc::new(Outbox::new(server.outboxes())),
        connection: Arc::new(connection),
        tasks: JoinSet::new(),
        // Fires when everything ends at once.
        stop: ends.stop.child_token(),
    };
    let _stops = transport.stop.clone().drop_guard();
    tokio::select! {
        biased;
        () = ends.stop.cancelled() => {}
        () = ends.drain.cancelled() => {}
        () = transport.read() => {}
    }
    closed.cancel();
    transport.end(&server).await;
    if tokio::time::timeout(END_WAIT, server.calls.tracker.wait()).await.is_err() {
        tracing::warn!("a call did not end with its connection");
    }
}

/// Lines in, lines out.
struct StdioTransport<R, W> {
    lines: LineReader<R>,
    limit: usize,
    pipe: Arc<PipeWriter<W>>,
    open: Arc<OpenRequests>,
    outbox: Arc<Outbox>,
    connection: Arc<McpConnection>,
    /// What answers requests.
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Takes in what the client says, until it says nothing more.
    async fn read(&mut self) {
        loop {
            self.open.room().await;
            self.outbox.drained().await;
            match self.lines.next().await {
                Ok(Some(LineFrame::Whole(line))) => self.take(&line).await,
                Ok(Some(LineFrame::TooLong(id))) => {
                    let text = format!("a message of more than {} bytes is not read", self.limit);
                    self.pipe.write(refusal(&ErrorData::invalid_request(text, None), id.as_ref())).await;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the client cannot be read any more");
                    return;
                }
            }
        }
    }

    async fn take(&mut self, line: &[u8]) {
        let line = line.strip_prefix(BOM).unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match incoming::read(line) {
            Ok(ClientMessage::Request(request)) => self.begin(request).await,
            Ok(ClientMessage::Notification { method, params }) => self.notice(&method, params.as_deref()),
            Ok(ClientMessage::Response { id, result }) => self.connection.resolve(id, result),
            Err(invalid) if invalid.kind == InvalidKind::Unasked => {}
            Err(invalid) => _ = self.pipe.write(refusal(&invalid.error, invalid.id.as_ref())).await,
        }
    }

    /// Begins to answer a request.
    async fn begin(&mut self, request: Request) {
        let (id, cancel) = (request.id.clone(), self.stop.child_token());
        if !self.open.begin(&id, cancel.clone()) {
            let text = "a request of this id is not answered yet, or was cancelled";
            self.pipe.write(refusal(&ErrorData::invalid_request(text, None), Some(&id))).await;
            return;
        }
        let outbox = Arc::clone(&self.outbox);
        let origin = RequestOrigin { outbox, validity: None, traceparent: None };
        let admitted = self.connection.admit(request, origin, cancel);
        let (connection, open, pipe) =
            (Arc::clone(&self.connection), Arc::clone(&self.open), Arc::clone(&self.pipe));
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let reply = connection.answer(admitted).await;
            if open.is_open(&id) {
                pipe.write(reply.line).await;
            }
            open.end(&id);
        });
    }

    fn notice(&self, method: &str, params: Option<&RawValue>) {
        if method != "notifications/cancelled" {
            return self.connection.notice(method);
        }
        if let Some(id) = incoming::cancelled(params) {
            self.open.cancel(&id);
        }
    }

    /// Lets the requests end that are being answered, and closes the pipe.
    async fn end(&mut self, server: &Server) {
        let Self { tasks, stop, .. } = self;
        let answered = async { while tasks.join_next().await.is_some() {} };
        let cut_off = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(CALL_GRACE) => server.calls.cut_off.cancel(),
            }
            tokio::time::sleep(END_WAIT).await;
        };
        tokio::select! {
            () = answered => {}
            () = cut_off => tracing::warn!("not all requests were answered in time"),
        }
        stop.cancel();
        tasks.shutdown().await;
        drop(tokio::time::timeout(END_WAIT, self.pipe.close()).await);
    }
}

/// The answer to what is no request that can be answered.
fn refusal(error: &ErrorData, id: Option<&RequestId>) -> Bytes {
    message::response::<_, (), _>(id, Err(error)).into()
}

/// Where lines go.
struct PipeWriter<W>(Mutex<Option<Writer<W>>>);

struct Writer<W> {
    inner: W,
    /// What is left of a line that was begun.
    begun: Bytes,
}

impl<W: AsyncWrite + Send + Unpin> PipeWriter<W> {
    /// Writes one line; returns whether that went well. Whoever drops the future before its end has sent the whole line or
    /// nothing of it: what is begun goes out with the next one.
    async fn write(&self, line: Bytes) -> bool {
        let mut writer = self.0.lock().await;
        let Some(writer) = &mut *writer else { return false };
        let written = writer.write(line).await;
        written.inspect_err(|error| tracing::debug!(%error, "a message did not reach the client")).is_ok()
    }

    /// Writes nothing more.
    async fn close(&self) {
        if let Some(mut writer) = self.0.lock().await.take()
            && let Err(error) = writer.close().await
        {
            tracing::debug!(%error, "the client's pipe could not be closed");
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> MessageSink for PipeWriter<W> {
    fn send<'a>(&'a self, line: Bytes, _: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(self.write(line))
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn write(&mut self, line: Bytes) -> io::Result<()> {
        self.finish().await?;
        self.begun = line;
        self.finish().await?;
        self.inner.flush().await
    }

    async fn finish(&mut self) -> io::Result<()> {
        while !self.begun.is_empty() {
            match self.inner.write(&self.begun).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.begun.advance(written),
            }
        }
        // The room of the line is free again.
        self.begun = Bytes::new();
        Ok(())
    }

    async fn close(&mut self) -> io::Result<()> {
        self.finish().await?;
        self.inner.shutdown().await
    }
}
