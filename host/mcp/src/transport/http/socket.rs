//! A connection's bytes, with an end to patience: whoever does not read what is written to them is cut off, and whoever
//! says nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::connections::{ConnectionUseGuard, HttpConnection};

/// What a client must read of what waits for it within the time of a write, in bytes: less is a trickle that keeps a
/// connection for ever.
const LEAST: usize = 16 << 10;

/// How long is waited for a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For the head of the next request, from when the connection is idle.
    pub(super) idle: Duration,
    /// For what is written to it.
    pub(super) write: Duration,
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct Patient<S> {
    inner: S,
    connection: Arc<HttpConnection>,
    patience: Patience,
    /// While a write waits.
    stalled: Option<Stalled>,
    /// When it is looked next whether nothing has been worked on for too long.
    silent: Option<Pin<Box<Sleep>>>,
}

/// A write that waits.
#[derive(Debug)]
struct Stalled {
    ends: Pin<Box<Sleep>>,
    /// What has gone meanwhile.
    gone: usize,
    /// A connection that is written to is not idle.
    _busy: ConnectionUseGuard,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, connection: Arc<HttpConnection>, patience: Patience) -> Self {
        Self { inner, connection, patience, stalled: None, silent: None }
    }

    /// Ends a connection on which nothing comes and nothing is worked on.
    fn wait_for_request(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            // The clock goes on while something is worked on: it is looked at again when it is over.
            let Some(until) = self.connection.idle_until(self.patience.idle) else { return Poll::Pending };
            let silent = self.silent.get_or_insert_with(|| sleep_until(until));
            if silent.deadline() > until {
                silent.as_mut().reset(until);
            }
            ready!(silent.as_mut().poll(cx));
            if silent.deadline() >= until {
                let text = "the client does not say anything";
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            silent.as_mut().reset(until);
        }
    }

    /// Ends a connection on which what was written waits for too long.
    fn written(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = done {
            let length = written?;
            if let Some(stalled) = &mut self.stalled {
                stalled.gone = stalled.gone.saturating_add(length);
                if length >= offered || stalled.gone >= LEAST {
                    self.stalled = None;
                    // It may be idle now, which is looked at when something is read.
                    cx.waker().wake_by_ref();
                }
            }
            return Poll::Ready(Ok(length));
        }
        let stalled = self.stalled.get_or_insert_with(|| Stalled {
            ends: Box::pin(tokio::time::sleep(self.patience.write)),
            gone: 0,
            _busy: self.connection.work(),
        });
        ready!(stalled.ends.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

fn sleep_until(at: Instant) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(at))
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_read(cx, buf);
        if done.is_ready() {
            return done;
        }
        self.wait_for_request(cx).map(Err)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(cx, done, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(cx, done, bufs.iter().map(|buf| buf.len()).sum())
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

    const PATIENCE: Patience = Patience { idle: Duration::from_secs(60), write: Duration::from_secs(30) };

    /// A connection of which the other end takes so many bytes before it has to read.
    fn open(room: usize) -> (Patient<DuplexStream>, DuplexStream, ConnectionPermit) {
        let place = Arc::new(Connections::new()).enter(IpAddr::from([127, 0, 0, 1]), &ServeLimits::default());
        let place = place.unwrap();
        let (near, far) = tokio::io::duplex(room);
        (Patient::new(near, Arc::clone(&place.connection), PATIENCE), far, place)
    }

    fn is_idle(place: &ConnectionPermit) -> bool {
        place.connection.idle_until(PATIENCE.idle).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_cut_off_and_who_reads_slowly_is_not() {
        let (mut near, mut far, place) = open(LEAST);
        near.write_all(&[1; LEAST]).await.unwrap();
        assert!(is_idle(&place), "all of it has gone");
        let error = near.write_all(&[2; LEAST]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (mut near, mut other, _place) = open(LEAST);
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                other.read_exact(&mut [0; LEAST]).await.unwrap();
            }
        });
        near.write_all(&[3; 5 * LEAST]).await.unwrap();
        slow.await.unwrap();
        drop(far.read_u8().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_written_to_is_not_idle_and_a_trickle_keeps_it_for_a_while_only() {
        let (mut near, mut far, place) = open(64);
        let began = Instant::now();
        let reading = tokio::spawn(async move {
            // A byte now and then, and for ever.
            while far.read_exact(&mut [0; 1]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let seen = Arc::clone(&place.connection);
        let looking = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            seen.idle_until(PATIENCE.idle).is_some()
        });
        let error = near.write_all(&[1; 1 << 20]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
        assert!(!looking.await.unwrap(), "it was being written to");
        drop(near);
        reading.await.unwrap();
        assert!(is_idle(&place));
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_cut_off_unless_something_is_worked_on() {
        let (mut near, mut far, place) = open(64);
        let working = place.connection.work();
        let waited = tokio::time::timeout(Duration::from_secs(600), near.read_u8()).await;
        assert!(waited.is_err(), "it waits for its answer");
        drop(working);
        let began = Instant::now();
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), b'x');
        // A byte now and then is no request.
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
        // Since when it is idle is known to the millisecond.
        assert_eq!((error.kind(), began.elapsed().as_secs_f64().round()), (io::ErrorKind::TimedOut, 60.0));
        drop(near);
        dripping.await.unwrap();
    }
}
