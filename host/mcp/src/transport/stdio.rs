//! The stdio transport: one JSON message per line, over stdin and stdout or any other pair of streams.
//!
//! The length of a line and the number of unanswered requests are bounded. The transport stops reading from a client
//! that does not read its responses. Each request is answered in its own task, which ends with the connection.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::transport::stdio_pipes;
use rustix::fs::FileType;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::protocol::incoming::{self, ClientMessage, ClientRequest, InvalidKind, InvalidMessage};
use crate::protocol::message::{self, RpcMessage};
use crate::protocol::open_requests::OpenRequests;
use crate::protocol::outbound::{Destination, MessageSink};
use crate::server::connection::McpConnection;
use crate::server::outbox::Outbox;
use crate::server::request::RequestOrigin;
use crate::server::{Server, SessionOwner};
use crate::transport::http::ShutdownSignals;
use crate::transport::lines::{LineFrame, LineReader};

/// Added to the error about input that is no JSON: a client may write its JSON over several lines, several messages on one
/// line, or frame them as the Language Server Protocol does.
const FRAMING: &str = "; over stdio, each message is one line of JSON, without headers";
/// Unanswered requests besides calls. At the limit, the transport stops reading.
const MAX_OTHER_REQUESTS: usize = 256;

/// Longest time between the last message of a batch and the end of the input.
const BATCH_END_DELAY: Duration = Duration::from_millis(100);
/// How long calls may run after the client has closed its end.
const CALL_GRACE: Duration = Duration::from_millis(3800);
/// How long to wait for calls that were cancelled with their connection. They have 1 s to end and be recorded.
const END_WAIT: Duration = Duration::from_secs(2);

/// Serves one client over stdin and stdout, like [`serve`]. When `ends.drain` fires, the transport stops reading, as if
/// the client had closed its end.
///
/// Must run inside a tokio runtime with I/O and time enabled. If stdin is not a pipe (a terminal or a socket), a thread
/// of the runtime stays in a blocking read that cannot be cancelled: stop the runtime with `shutdown_background`.
///
/// # Errors
/// The task that serves the client panicked.
pub async fn serve_stdio(server: Server, ends: ShutdownSignals) -> anyhow::Result<()> {
    enlarge_pipe(std::io::stdout());
    let stdin = rustix::fs::fstat(std::io::stdin());
    let is_file = stdin.is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_file());
    let (reader, writer) = stdio_pipes();
    serve_until(server, reader, writer, is_file, ends).await
}

/// Enlarges a pipe for long responses, since both ends would wake each other for every 64 KiB otherwise. Failures are
/// ignored: stdout may not be a pipe, or the limit may be lower.
#[cfg(target_os = "linux")]
fn enlarge_pipe(pipe: impl std::os::fd::AsFd) {
    /// The most that Linux allows an unprivileged user.
    const PIPE_BYTES: usize = 1 << 20;
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES) {
        tracing::debug!(%error, "the pipe of stdout could not be enlarged");
    }
}

/// Does nothing: only Linux lets a process choose.
#[cfg(not(target_os = "linux"))]
fn enlarge_pipe(_: impl std::os::fd::AsFd) {}

/// Serves one client until it closes its end or `cancel` fires.
///
/// When the client closes its end, running calls have 3.8 s to end. After that they are cancelled and recorded before this
/// function returns. Nothing more is written, with one exception: a client that sent all its messages at once, as
/// `echo … | toolbay serve` does, gets the responses. When `cancel` fires, calls are cancelled at once.
///
/// ```
/// # use std::sync::Arc;
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # use toolbay_core::{audit::LogAudit, pipeline::Pipeline, registry::{Registry, view::Filter}};
/// use toolbay_mcp::{CancellationToken, Options, Server, serve};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (registry, pipeline) = (Arc::new(Registry::default()), Pipeline::new(Arc::new(LogAudit)));
/// let server = Server::new(registry, pipeline, Filter::default(), Options::default());
/// let (mut client, stream) = tokio::io::duplex(4096);
/// let (reader, writer) = tokio::io::split(stream);
/// let serving = tokio::spawn(serve(server, reader, writer, CancellationToken::new()));
///
/// client.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await?;
/// client.shutdown().await?;
/// let mut response = String::new();
/// client.read_to_string(&mut response).await?;
/// assert!(response.contains(r#""id":1"#));
/// # serving.await??;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The task that serves the client panicked.
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
    let ends = ShutdownSignals { stop: cancel, ..ShutdownSignals::default() };
    serve_until(server, reader, writer, false, ends).await
}

/// `is_file` says that the input is a file, which does not wait for responses.
async fn serve_until<R, W>(
    server: Server,
    reader: R,
    writer: W,
    is_file: bool,
    ends: ShutdownSignals,
) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    // Spawned as a task, because each line would otherwise wake the main thread and then a worker thread. The task ends
    // with this future.
    Ok(AbortOnDropHandle::new(tokio::spawn(serve_client(server, reader, writer, is_file, ends))).await?)
}

async fn serve_client<R, W>(server: Server, reader: R, writer: W, is_file: bool, ends: ShutdownSignals)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = server.with_own_tracker();
    // Fires when the input has ended. Otherwise an open subscription would delay the exit for seconds.
    let closed = CancellationToken::new();
    let _at_the_end = closed.clone().drop_guard();
    let options = &server.options;
    let pipe = Arc::new(PipeWriter::new(writer));
    let connection =
        server.connection(SessionOwner::new_session(None), Arc::clone(&pipe) as _, closed.clone());
    let mut transport = StdioTransport {
        is_file,
        has_conversed: false,
        limit: options.max_line_bytes,
        lines: LineReader::new(reader, options.max_line_bytes),
        pipe,
        open: Arc::new(OpenRequests::new(options.max_in_flight.saturating_add(MAX_OTHER_REQUESTS))),
        outbox: Arc::new(Outbox::new(server.outbox_settings())),
        connection: Arc::new(connection),
        tasks: JoinSet::new(),
        // Fires on an immediate stop.
        stop: ends.stop.child_token(),
    };
    let _stops = transport.stop.clone().drop_guard();
    tokio::select! {
        biased;
        () = ends.stop.cancelled() => {}
        () = ends.drain.cancelled() => {}
        () = transport.run() => {}
    }
    closed.cancel();
    transport.shut_down(&server).await;
    if tokio::time::timeout(END_WAIT, server.calls.tracker.wait()).await.is_err() {
        tracing::warn!("a call did not end after its connection was closed");
    }
}

/// One client over a pair of streams.
struct StdioTransport<R, W> {
    /// Whether the input is a file.
    is_file: bool,
    /// Whether the client waited for a response before it sent its next message.
    has_conversed: bool,
    lines: LineReader<R>,
    limit: usize,
    pipe: Arc<PipeWriter<W>>,
    open: Arc<OpenRequests>,
    outbox: Arc<Outbox>,
    connection: Arc<McpConnection>,
    /// Tasks that answer requests.
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl<R, W> StdioTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Handles input until the client closes its end.
    async fn run(&mut self) {
        loop {
            self.open.wait_for_capacity().await;
            self.outbox.wait_drained().await;
            let next = self.lines.next().await;
            self.has_conversed |= self.lines.has_waited() && self.pipe.has_written();
            // The last line may come with the end, which then counts already.
            if let Some(delay) = self.lines.end() {
                self.pipe.set_client_end(self.client_end(delay));
            }
            match next {
                Ok(Some(LineFrame::Whole(line))) => self.handle_line(&line).await,
                Ok(Some(LineFrame::TooLong(id))) => {
                    let text = format!("the message exceeds {} bytes", self.limit);
                    self.pipe.write(error_line(&ErrorData::invalid_request(text, None), id.as_ref())).await;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "reading from the client failed");
                    return;
                }
            }
        }
    }

    /// What the end of the input, which came `delay` after the last byte, says about the client. A file, or an `echo` that
    /// ends right after its last message, waits for the responses. Any other client has left: some (the Python SDK up to
    /// 1.30) fail if anything more is written.
    fn client_end(&self, delay: Duration) -> ClientEnd {
        let is_batch = !self.has_conversed && delay <= BATCH_END_DELAY;
        if self.is_file || is_batch { ClientEnd::AwaitsResponses } else { ClientEnd::Left }
    }

    async fn handle_line(&mut self, line: &[u8]) {
        if message::without_byte_order_mark(line).iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match incoming::parse_message(line) {
            Ok(ClientMessage::Request(request)) => self.begin(request).await,
            Ok(ClientMessage::Notification { method, params }) => {
                self.handle_notification(&method, params.as_deref());
            }
            Ok(ClientMessage::Response { id, result }) => self.connection.resolve(&id, result),
            Err(invalid) if invalid.kind == InvalidKind::NoReply => {}
            Err(mut invalid) => {
                if invalid.error.code == ErrorCode::PARSE_ERROR {
                    explain_framing(line, &mut invalid);
                }
                self.pipe.write(error_line(&invalid.error, invalid.id.as_ref())).await;
            }
        }
    }

    /// Starts a task that answers a request.
    async fn begin(&mut self, request: ClientRequest) {
        let (id, cancel) = (request.id.clone(), self.stop.child_token());
        if !self.open.begin(&id, cancel.clone()) {
            let text = "a request with this id is still pending or was cancelled; ids must be unique";
            self.pipe.write(error_line(&ErrorData::invalid_request(text, None), Some(&id))).await;
            return;
        }
        let outbox = Arc::clone(&self.outbox);
        let origin = RequestOrigin { outbox, validity: None, traceparent: None, client: None };
        let request = self.connection.add_context(request, origin, cancel);
        let (connection, open, pipe) =
            (Arc::clone(&self.connection), Arc::clone(&self.open), Arc::clone(&self.pipe));
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            let reply = connection.answer(request).await;
            if open.is_open(&id) {
                pipe.write(reply.line).await;
            }
            open.finish(&id);
        });
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        if method != incoming::CANCELLED {
            return self.connection.handle_notification(method);
        }
        if let Some(id) = incoming::cancelled_request_id(params) {
            self.open.cancel(&id);
        }
    }

    /// Waits for running requests with a grace period, and closes the output.
    async fn shut_down(&mut self, server: &Server) {
        let Self { tasks, stop, .. } = self;
        let answered = async { while tasks.join_next().await.is_some() {} };
        let cut_off = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(CALL_GRACE) => server.calls.shutdown.cancel(),
            }
            tokio::time::sleep(END_WAIT).await;
        };
        tokio::select! {
            () = answered => {}
            () = cut_off => tracing::warn!("some requests did not end within the grace period"),
        }
        stop.cancel();
        tasks.shutdown().await;
        drop(tokio::time::timeout(END_WAIT, self.pipe.close()).await);
    }
}

/// Adds to the error about a line that is no JSON how messages are framed. A line with several messages is answered under
/// the id of the first one, if that is a request.
fn explain_framing(line: &[u8], invalid: &mut InvalidMessage) {
    let mut problem = invalid.error.message.to_string();
    if let Some((messages, rest)) = message::parse_leading_messages(line)
        && (messages.len() > 1 || rest.trim_ascii_start().starts_with(b"{"))
    {
        "the line has several messages, and none of them was read".clone_into(&mut problem);
        invalid.id = messages.first().and_then(|first| match first {
            RpcMessage::Request(request) => message::parse_id(request.id.get()),
            RpcMessage::Notification { .. } | RpcMessage::Response { .. } => None,
        });
    }
    invalid.error.message = format!("{problem}{FRAMING}").into();
}

/// An encoded error response.
fn error_line(error: &ErrorData, id: Option<&RequestId>) -> Bytes {
    message::encode_response::<_, (), _>(id, Err(error)).into()
}

/// What the end of the input says about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientEnd {
    /// The client still reads the responses to its requests.
    AwaitsResponses,
    /// The client reads nothing more.
    Left,
}

/// Writes lines to the client, one at a time.
struct PipeWriter<W> {
    writer: Mutex<Option<LineWriter<W>>>,
    has_written: AtomicBool,
    /// Set once the input has ended.
    client_end: OnceLock<ClientEnd>,
}

struct LineWriter<W> {
    inner: W,
    /// The unwritten rest of the current line.
    pending: Bytes,
}

impl<W: AsyncWrite + Send + Unpin> PipeWriter<W> {
    fn new(inner: W) -> Self {
        let writer = LineWriter { inner, pending: Bytes::new() };
        let writer = Mutex::new(Some(writer));
        Self { writer, has_written: AtomicBool::new(false), client_end: OnceLock::new() }
    }

    /// Whether anything was written to the client.
    fn has_written(&self) -> bool {
        self.has_written.load(Ordering::Acquire)
    }

    /// Records the end of the input. The first one stays.
    fn set_client_end(&self, end: ClientEnd) {
        let _first = self.client_end.set(end);
    }

    /// Writes one response; returns `false` on failure. Cancel safe: a partly written line is completed by the next write.
    async fn write(&self, line: Bytes) -> bool {
        let mut writer = self.writer.lock().await;
        if self.client_end.get() == Some(&ClientEnd::Left) {
            return false;
        }
        let Some(writer) = &mut *writer else { return false };
        self.has_written.store(true, Ordering::Release);
        let written = writer.write(line).await;
        written
            .inspect_err(|error| tracing::debug!(%error, "a message could not be written to the client"))
            .is_ok()
    }

    /// Closes the output.
    async fn close(&self) {
        if let Some(mut writer) = self.writer.lock().await.take()
            && let Err(error) = writer.close().await
        {
            tracing::debug!(%error, "the output to the client could not be closed");
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> MessageSink for PipeWriter<W> {
    fn send<'a>(&'a self, line: Bytes, _: Destination<'a>) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.client_end.get().is_none() && self.write(line).await })
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    async fn write(&mut self, line: Bytes) -> io::Result<()> {
        self.finish().await?;
        self.pending = line;
        self.finish().await?;
        self.inner.flush().await
    }

    async fn finish(&mut self) -> io::Result<()> {
        self.inner.write_all_buf(&mut self.pending).await?;
        // Dropping the line releases its outbox reservation.
        self.pending = Bytes::new();
        Ok(())
    }

    async fn close(&mut self) -> io::Result<()> {
        self.finish().await?;
        self.inner.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
    use toolbay_core::audit::LogAudit;
    use toolbay_core::pipeline::Pipeline;
    use toolbay_core::registry::Registry;
    use toolbay_core::registry::view::Filter;

    use super::*;
    use crate::server::Options;

    /// A client of a server without tools, whose lines have at most 200 bytes.
    fn connect() -> BufReader<tokio::io::DuplexStream> {
        let options = Options { max_line_bytes: 200, ..Options::default() };
        let pipeline = Pipeline::new(Arc::new(LogAudit));
        let server = Server::new(Arc::new(Registry::default()), pipeline, Filter::default(), options);
        let (client, stream) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(stream);
        tokio::spawn(serve(server, reader, writer, CancellationToken::new()));
        BufReader::new(client)
    }

    fn ping(id: u8) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
    }

    /// What the server writes after the end of the input.
    async fn rest_after_end(mut client: BufReader<tokio::io::DuplexStream>) -> Vec<Value> {
        client.shutdown().await.unwrap();
        let mut rest = String::new();
        client.read_to_string(&mut rest).await.unwrap();
        rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_the_end_cuts_off_is_not_answered() {
        let long = "x".repeat(300);
        for last in [r#"{"jsonrpc":"2.0","id":60,"meth"#, &ping(60), "nonsense", r#"{"id":1}"#, &long] {
            let mut client = connect();
            client.write_all(last.as_bytes()).await.unwrap();
            // The client waits before it closes its end. The clock is virtual.
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(rest_after_end(client).await, Vec::<Value>::new(), "{last:.50}");
            // Another one closes at once, after a conversation.
            let mut client = connect();
            client.write_all(format!("{}\n", ping(1)).as_bytes()).await.unwrap();
            client.read_line(&mut String::new()).await.unwrap();
            client.write_all(last.as_bytes()).await.unwrap();
            assert_eq!(rest_after_end(client).await, Vec::<Value>::new(), "{last:.50}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_line_of_a_batch_needs_no_newline() {
        let mut client = connect();
        client.write_all(format!("{}\n{}", ping(1), ping(2)).as_bytes()).await.unwrap();
        let ids: Vec<Value> =
            rest_after_end(client).await.iter().map(|answer| answer["id"].clone()).collect();
        assert_eq!(ids, [1, 2]);
    }

    #[tokio::test]
    async fn several_messages_on_one_line_are_refused_together() {
        let mut client = connect();
        let note = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        for (line, id) in [
            (format!("{}{}", ping(7), ping(8)), Some(7)),
            (format!("{} {note}", ping(7)), Some(7)),
            (format!("\u{feff}{}\t{}", ping(7), &ping(8)[..9]), Some(7)),
            (format!("{note}{}", ping(8)), None),
        ] {
            client.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_line(&mut answer).await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(
                (answer["error"]["code"].as_i64(), answer["id"].as_i64()),
                (Some(-32700), id),
                "{line}"
            );
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                message.contains("several messages") && message.contains("each message is one line"),
                "{message}"
            );
        }
        // None of them has begun: the id is free.
        client.write_all(format!("{}\n", ping(7)).as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_line(&mut answer).await.unwrap();
        assert!(answer.contains("\"result\""), "{answer}");
    }
}
