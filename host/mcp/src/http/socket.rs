//! A connection's bytes, with an end to patience: who does not read what is written to them is cut off.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which no write waits for longer than `patience`.
#[derive(Debug)]
pub(super) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Since a write waits; absent most of the time.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, stalled: None }
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))
    }

    fn moved<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stalled = None;
            return done;
        }
        self.wait(cx).map(Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.moved(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.moved(cx, done)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_cut_off_and_who_reads_slowly_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Patient::new(near, Duration::from_secs(30));
        near.write_all(&[1; 8]).await.unwrap();
        let error = near.write_all(&[2; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        far.read_exact(&mut [0; 8]).await.unwrap();
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 8]).await.unwrap();
            }
        });
        near.write_all(&[3; 40]).await.unwrap();
        slow.await.unwrap();
    }
}
