//! A stream with idle and write timeouts: disconnects clients that do not read, and clients that send nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::connections::{ConnectionUseGuard, HttpConnection};

/// Bytes that a client must read within the write timeout. A client that reads less could hold a connection forever.
const MIN_PROGRESS: usize = 16 << 10;

/// Timeouts of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct SocketTimeouts {
    /// From the begin of the idle time to the head of the next request.
    pub(super) idle: Duration,
    /// For a blocked write.
    pub(super) write: Duration,
}

/// A stream with timeouts.
#[derive(Debug)]
pub(super) struct TimeoutStream<S> {
    inner: S,
    connection: Arc<HttpConnection>,
    timeouts: SocketTimeouts,
    /// Present while a write is blocked.
    stalled: Option<StalledWrite>,
    /// Timer of the next check for an idle connection.
    idle_timer: Option<Pin<Box<Sleep>>>,
}

/// A blocked write.
#[derive(Debug)]
struct StalledWrite {
    deadline: Pin<Box<Sleep>>,
    /// Bytes written since the write was blocked.
    written: usize,
    /// A connection with a blocked write is not idle.
    _busy: ConnectionUseGuard,
}

impl<S> TimeoutStream<S> {
    pub(super) fn new(inner: S, connection: Arc<HttpConnection>, patience: SocketTimeouts) -> Self {
        Self { inner, connection, timeouts: patience, stalled: None, idle_timer: None }
    }

    /// Fails if the connection has been idle for too long.
    fn poll_idle_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            // An active connection has no deadline. The next read checks again.
            let Some(until) = self.connection.idle_deadline(self.timeouts.idle) else { return Poll::Pending };
            let timer = self.idle_timer.get_or_insert_with(|| sleep_until(until));
            if timer.deadline() > until {
                timer.as_mut().reset(until);
            }
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= until {
                let text = "the client sent no request in time";
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            timer.as_mut().reset(until);
        }
    }

    /// Fails if a write has been blocked for too long.
    fn check_write(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = done {
            let length = written?;
            if let Some(stalled) = &mut self.stalled {
                stalled.written = stalled.written.saturating_add(length);
                if length >= offered || stalled.written >= MIN_PROGRESS {
                    self.stalled = None;
                    // The connection may be idle now: wake the reading side, which checks that.
                    cx.waker().wake_by_ref();
                }
            }
            return Poll::Ready(Ok(length));
        }
        let stalled = self.stalled.get_or_insert_with(|| StalledWrite {
            deadline: Box::pin(tokio::time::sleep(self.timeouts.write)),
            written: 0,
            _busy: self.connection.begin_use(),
        });
        ready!(stalled.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

fn sleep_until(at: Instant) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(at))
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_read(cx, buf);
        if done.is_ready() {
            return done;
        }
        self.poll_idle_timeout(cx).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check_write(cx, done, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check_write(cx, done, bufs.iter().map(|buf| buf.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::http::connections::{ConnectionPermit, Connections};
    use std::net::IpAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use toolbay_policy::serve::ServeLimits;

    const PATIENCE: SocketTimeouts =
        SocketTimeouts { idle: Duration::from_secs(60), write: Duration::from_secs(30) };

    /// A connection whose peer buffers `room` bytes without reading.
    fn open_pair(room: usize) -> (TimeoutStream<DuplexStream>, DuplexStream, ConnectionPermit) {
        let place =
            Arc::new(Connections::new()).acquire(IpAddr::from([127, 0, 0, 1]), &ServeLimits::default());
        let place = place.unwrap();
        let (near, far) = tokio::io::duplex(room);
        (TimeoutStream::new(near, Arc::clone(&place.connection), PATIENCE), far, place)
    }

    fn is_idle(place: &ConnectionPermit) -> bool {
        place.connection.idle_deadline(PATIENCE.idle).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_is_disconnected() {
        let (mut near, mut far, place) = open_pair(MIN_PROGRESS);
        near.write_all(&[1; MIN_PROGRESS]).await.unwrap();
        assert!(is_idle(&place), "everything was written");
        let error = near.write_all(&[2; MIN_PROGRESS]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (mut near, mut other, _place) = open_pair(MIN_PROGRESS);
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                other.read_exact(&mut [0; MIN_PROGRESS]).await.unwrap();
            }
        });
        near.write_all(&[3; 5 * MIN_PROGRESS]).await.unwrap();
        slow.await.unwrap();
        drop(far.read_u8().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_write_is_not_idle_and_needs_minimum_progress() {
        let (mut near, mut far, place) = open_pair(64);
        let began = Instant::now();
        let reading = tokio::spawn(async move {
            // One byte per second, forever.
            while far.read_exact(&mut [0; 1]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let seen = Arc::clone(&place.connection);
        let looking = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            seen.idle_deadline(PATIENCE.idle).is_some()
        });
        let error = near.write_all(&[1; 1 << 20]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        assert!(!looking.await.unwrap(), "a write was blocked");
        drop(near);
        reading.await.unwrap();
        assert!(is_idle(&place));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_disconnected_unless_a_request_is_active() {
        let (mut near, mut far, place) = open_pair(64);
        let working = place.connection.begin_use();
        let waited = tokio::time::timeout(Duration::from_secs(600), near.read_u8()).await;
        assert!(waited.is_err(), "the client waits for its response");
        drop(working);
        let began = Instant::now();
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'x');
        // Single bytes do not make a request.
        let dripping = tokio::spawn(async move {
            while far.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
        });
        let error = loop {
            if let Err(error) = near.read_u8().await {
                break error;
            }
        };
        // The idle time is measured in milliseconds.
        assert_eq!((error.kind(), began.elapsed().as_secs_f64().round()), (io::ErrorKind::TimedOut, 60.0));
        drop(near);
        dripping.await.unwrap();
    }
}
