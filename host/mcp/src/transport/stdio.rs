//! One JSON message a line, over stdin and stdout or any other pair of streams.
//!
//! Lines are read and written here, and understood by rmcp. What comes in is bounded: a line in its length, and requests
//! in how many are not answered yet, so that a client which never reads is not read any more either. Notifications
//! before the first request are dropped: rmcp would end the connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, GetMeta, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::service::{QuitReason, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::{Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::protocol::message::{self, Bad};
use crate::server::Server;
use crate::server::lists::Lists;
use crate::server::outbox::Outbox;
use crate::transport::http::Ends;
use crate::transport::lines::{Line, Lines};
use crate::transport::linger::{self, Lingering};

use crate::server::asked::Asked;
use crate::server::workers::Workers;
use out::Out;

mod out;

/// Requests that are not answered yet, besides calls: beyond them nothing more is read.
const MAX_OTHERS: usize = 256;
/// Bytes of answers that wait in the pipe at most; what Linux allows everybody.
const PIPE: usize = 1 << 20;

/// How long calls go on after the last message of the client. rmcp closes the transport after 5 s, and a cancelled call
/// may take a second to end: its answer must be out by then.
const CALL_GRACE: Duration = Duration::from_millis(3800);
/// How long calls that were cancelled with their connection are waited for: they have a second, and are recorded.
const END_WAIT: Duration = Duration::from_secs(2);

/// Serves one client over stdin and stdout. See [`serve`]; when `ends.drain` fires, nothing more is read, as if the client
/// had closed its end.
///
/// The client has a thread for itself; calls that take their time go on in the runtime this is called in. Must run inside
/// a tokio runtime with I/O and time enabled. Where stdin is no pipe (a terminal, a socket), a thread sits in a blocking
/// read that nothing can end.
///
/// # Errors
/// See [`serve`]; or when there is no thread for it.
pub async fn serve_stdio(server: Server, ends: Ends) -> anyhow::Result<()> {
    // Whoever does not wait any more ends it.
    let ends = Ends { stop: ends.stop.child_token(), ..ends };
    let _at_the_end = ends.stop.clone().drop_guard();
    let (tell, told) = oneshot::channel();
    let main = Handle::current();
    let alone = linger::runtime().enable_all().build().context("no runtime for stdin and stdout")?;
    let serving = move || {
        let ended = alone.block_on(async {
            widen(std::io::stdout());
            let (reader, writer) = stdio_pipes();
            let (reader, writer) = Lingering::pair(reader, writer);
            serve_with(server, reader, writer, ends, Some(main)).await
        });
        // A read of stdin may never end.
        alone.shutdown_background();
        drop(tell.send(ended));
    };
    let thread = std::thread::Builder::new().name("toolbay-stdio".to_owned());
    thread.spawn(serving).context("no thread for stdin and stdout")?;
    told.await.context("the thread of stdin and stdout failed")?
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
    serve_with(server, reader, writer, Ends { stop: cancel, ..Ends::default() }, None).await
}

/// The same; calls that take their time go on in the runtime `main`, where this is a thread of its own.
async fn serve_with<R, W>(
    server: Server,
    reader: R,
    writer: W,
    ends: Ends,
    main: Option<Handle>,
) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let server = server.apart();
    let closed = CancellationToken::new();
    let at_the_end = closed.clone().drop_guard();
    let options = server.options();
    let asked = Arc::new(Asked::new(options.max_in_flight.saturating_add(MAX_OTHERS)));
    let lists = Arc::new(Lists::default());
    let outbox = Arc::new(Outbox::new(server.outboxes()));
    let connection = server
        .connection(closed.clone())
        .sending(&outbox)
        .listing(Arc::clone(&lists))
        .working_in(main.map(|main| Workers::new(main, Arc::clone(&asked))));
    let transport = Wire {
        lines: Lines::new(reader, options.max_line_bytes),
        out: Out::new(writer, lists),
        most: options.max_line_bytes,
        asked,
        outbox,
        refusing: None,
        begun: false,
        drain: ends.drain,
        closed: closed.clone(),
    };
    let running = match connection.serve_with_ct(transport, ends.stop.child_token()).await {
        Ok(running) => running,
        // It left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(error).context("the client did not begin as MCP clients do"),
    };
    let cut_off = async {
        closed.cancelled().await;
        tokio::time::sleep(CALL_GRACE).await;
        server.cut_off().cancel();
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        ended = running.waiting() => ended,
        never = cut_off => match never {},
    };
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

/// Lines in, lines out.
struct Wire<R, W> {
    lines: Lines<R>,
    out: Out<W>,
    most: usize,
    asked: Arc<Asked>,
    outbox: Arc<Outbox>,
    /// An answer of our own on its way out; kept here because `receive` may be dropped at any await.
    refusing: Option<BoxFuture<'static, io::Result<()>>>,
    /// Whether the request came that settles the era.
    begun: bool,
    /// Fires when nothing more is to be read.
    drain: CancellationToken,
    /// Fires when nothing more comes: an open subscription would hold the process for seconds.
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
        self.outbox.drained().await;
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
                self.outbox.expect(&request.id);
                Ok(true)
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.asked.cancelled(id);
                    self.outbox.forget(id);
                }
                Ok(self.begun)
            }
            _ => Ok(self.begun),
        }
    }

    /// The next message that rmcp is to understand; `None` at the end.
    async fn receive_admitted(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
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
                let (line, mut room) = (self.out.line(&refusal), self.outbox.permit());
                let sent = self.out.send(line, &mut room);
                self.refusing = Some(Box::pin(async move {
                    let sent = sent.await;
                    drop(room);
                    sent
                }));
            }
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
        let line = self.out.line(&message);
        drop(message);
        let mut room =
            id.as_ref().and_then(|id| self.outbox.take(id)).unwrap_or_else(|| self.outbox.permit());
        let (sent, asked) = (self.out.send(line, &mut room), Arc::clone(&self.asked));
        async move {
            let sent = sent.await;
            drop(room);
            id.iter().for_each(|id| asked.answered(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let drain = self.drain.clone();
        tokio::select! {
            biased;
            () = drain.cancelled() => {
                self.closed.cancel();
                None
            }
            message = self.receive_admitted() => message,
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.out.close().await
    }
}
