//! One JSON message a line, over stdin and stdout or any other pair of streams.
//!
//! rmcp's transport reads and writes the lines; it keeps what it has read when it is interrupted, and drops a line
//! that is too long without buffering it. Around it stands a watch on the bytes that come in, for what it does not
//! tell: that the client has hung up (or an open subscription would hold the process for seconds), that a last line
//! has no end, and that a line was dropped, whose sender would wait for an answer for ever. Notifications before the
//! first request are dropped: rmcp would end the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use rmcp::model::{ClientRequest, ErrorData, GetMeta, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{QuitReason, RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::server::Server;

/// Bytes kept of both ends of a line, to find the id of a request that is too long to be read.
const ENDS: usize = 256;
/// Refusals that may wait to be written.
const REFUSALS: usize = 64;

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
/// cancelled and have two.
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
    let closed = CancellationToken::new();
    let _at_the_end = closed.clone().drop_guard();
    let most = server.options().max_line_bytes;
    let (refusals, refused) = mpsc::channel(REFUSALS);
    let watched = Watched { inner: reader, closed: closed.clone(), line: Line::new(most), refusals };
    let lines = AsyncRwTransport::new_server(watched, writer).with_max_line_length(most);
    let transport = Lines { inner: lines, refused, most, refusing: None, begun: false };
    let running = match server.connection(closed).serve_with_ct(transport, cancel.child_token()).await {
        Ok(running) => running,
        // It left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(error).context("the client did not begin as MCP clients do"),
    };
    match running.waiting().await.context("the connection's task failed")? {
        QuitReason::Cancelled | QuitReason::Closed => Ok(()),
        QuitReason::JoinError(error) => Err(error).context("a task of the connection failed"),
        other => anyhow::bail!("the connection ended: {other:?}"),
    }
}

/// rmcp's transport, answers to the lines it dropped, and a guard over the first messages.
struct Lines<R: AsyncRead, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, R, W>,
    refused: mpsc::Receiver<Option<RequestId>>,
    most: usize,
    /// A refusal on its way out; kept here because `receive` may be dropped at any await.
    refusing: Option<BoxFuture<'static, io::Result<()>>>,
    /// Whether the request came that settles the era.
    begun: bool,
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

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                let sent = refusing.await;
                self.refusing = None;
                sent.ok()?;
            }
            let id = tokio::select! {
                biased;
                Some(id) = self.refused.recv() => id,
                message = self.inner.receive() => {
                    let message = message?;
                    self.begun |= begins(&message);
                    if self.begun || matches!(message, JsonRpcMessage::Request(_)) {
                        return Some(message);
                    }
                    continue;
                }
            };
            let text = format!("a message of more than {} bytes is not read", self.most);
            let refusal = ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), id);
            self.refusing = Some(Box::pin(self.inner.send(refusal)));
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.inner.close().await
    }
}

/// Passes bytes through and watches them.
struct Watched<R> {
    inner: R,
    closed: CancellationToken,
    line: Line,
    refusals: mpsc::Sender<Option<RequestId>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, buf));
        let end = result.is_err() || buf.filled().len() == before;
        if end {
            this.closed.cancel();
            if result.is_ok() && this.line.bytes > 0 {
                buf.put_slice(b"\n");
            }
        }
        for id in this.line.take(buf.filled().get(before..).unwrap_or_default()) {
            // When that many wait, the client does not read what it is told.
            drop(this.refusals.try_send(id));
        }
        Poll::Ready(result)
    }
}

/// The line that is being read: how long it is, and both its ends.
struct Line {
    most: usize,
    bytes: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Line {
    fn new(most: usize) -> Self {
        Self { most, bytes: 0, head: Vec::with_capacity(ENDS), tail: Vec::with_capacity(2 * ENDS) }
    }

    /// Takes the next bytes; returns the ids of the requests in lines that ended and were too long.
    fn take(&mut self, mut bytes: &[u8]) -> Vec<Option<RequestId>> {
        let mut refused = Vec::new();
        while bytes.contains(&b'\n') {
            let mut parts = bytes.splitn(2, |b| *b == b'\n');
            self.grow(parts.next().unwrap_or_default());
            bytes = parts.next().unwrap_or_default();
            // As rmcp counts: the line end included.
            if self.bytes >= self.most {
                refused.push(self.id());
            }
            self.bytes = 0;
            self.head.clear();
            self.tail.clear();
        }
        self.grow(bytes);
        refused
    }

    fn grow(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let room = ENDS.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let last = bytes.len().saturating_sub(ENDS);
        self.tail.extend_from_slice(bytes.get(last..).unwrap_or_default());
        self.tail.drain(..self.tail.len().saturating_sub(ENDS));
    }

    /// The id of the request: the second key of the message, or the last one, as all known clients write it. Inside
    /// of a string neither text can stand: its quotes would be escaped.
    fn id(&self) -> Option<RequestId> {
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(&self.tail);
        let second = || {
            let rest = head.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"jsonrpc\"")?;
            let (_version, rest) = rest.split_once(',')?;
            let rest = rest.trim_start().strip_prefix("\"id\"")?.trim_start().strip_prefix(':')?;
            serde_json::from_str(rest.split_once(',')?.0).ok()
        };
        let last = || {
            let rest = tail.trim_end().strip_suffix('}')?;
            let (_, id) = rest.rsplit_once("\"id\"")?;
            serde_json::from_str(id.trim_start().strip_prefix(':')?).ok()
        };
        second().or_else(last)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn check(line: &str, expect: Option<&RequestId>) {
        let bytes = format!("{line}\n{{}}\n{line}\n");
        for step in [1, 7, 100, bytes.len()] {
            let mut watch = Line::new(300);
            let refused: Vec<_> = bytes.as_bytes().chunks(step).flat_map(|part| watch.take(part)).collect();
            assert_eq!(refused, [expect.cloned(), expect.cloned()], "{line:.40} in steps of {step}");
        }
    }

    #[test]
    fn the_id_of_a_long_request_is_found() {
        let long = "x".repeat(1000);
        let number = RequestId::Number(7);
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"{long}"}}"#),
            Some(&number),
        );
        check(&format!(r#"{{"jsonrpc": "2.0", "id": 7, "params": "{long}"}}"#), Some(&number));
        check(
            &format!(r#"{{"method":"tools/call","params":"{long}","jsonrpc":"2.0","id":7}}"#),
            Some(&number),
        );
        check(
            &format!(r#"{{"params":"{long}", "id": "a\"b" }}"#),
            Some(&RequestId::String(Arc::from("a\"b"))),
        );
        // Forged inside of the arguments.
        check(&format!(r#"{{"params":{{"a":"{long}\"id\":5"}}}}"#), None);
        check(&format!(r#"{{"params":{{"a":"{long}","id":5}}}}"#), None);
        check(&format!(r#"{{"params":{{"id":5,"a":"{long}"}},"method":"x"}}"#), None);
        check(&long, None);
    }

    #[test]
    fn short_lines_are_not_refused() {
        let mut watch = Line::new(300);
        assert_eq!(watch.take(format!("{}\n{}\n", "x".repeat(299), "y".repeat(299)).as_bytes()), []);
        assert_eq!(watch.take("x".repeat(300).as_bytes()), []);
        assert_eq!(watch.take(b"\n"), [None]);
    }
}
