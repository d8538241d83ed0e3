//! A limit on what an HTTP/1 peer sends before the head of its response.
//!
//! Interim responses (1xx, RFC 9110 section 15.2) are unlimited in number, and hyper discards them without giving
//! anything to its caller. A peer that sends nothing else would keep a processor busy until the request times out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes before a response: its own head, interim responses, and what is read ahead of its body.
const MAX_BEFORE_RESPONSE: usize = 1 << 20;

/// Switches the limit of one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct HeadLimit(Arc<AtomicUsize>);

impl HeadLimit {
    /// Starts to count: the next bytes belong to the head of a response.
    pub(super) fn start(&self) {
        self.0.store(MAX_BEFORE_RESPONSE, Ordering::Relaxed);
    }

    /// Ends the count: the response has arrived.
    pub(super) fn end(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    /// Limits what is read from a stream.
    pub(super) fn wrap<S>(self, stream: S) -> HeadLimited<S> {
        HeadLimited { stream, limit: self }
    }

    /// Takes bytes that were read. Returns whether they were within the limit.
    fn take(&self, bytes: usize) -> bool {
        let left = |left: usize| if left == usize::MAX { Some(left) } else { left.checked_sub(bytes) };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

/// A stream that fails once more is read than its [`HeadLimit`] allows.
#[derive(Debug)]
pub(super) struct HeadLimited<S> {
    stream: S,
    limit: HeadLimit,
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if self.limit.take(buffer.filled().len() - before) {
            return read;
        }
        Poll::Ready(Err(io::Error::other(format!(
            "more than {MAX_BEFORE_RESPONSE} bytes before the response"
        ))))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadLimited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
