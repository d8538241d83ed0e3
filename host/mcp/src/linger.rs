//! A thread that has answered looks for the next request for a moment before it sleeps: a client that asks one thing after
//! the other has it by then. To be woken takes longer than most calls, and a processor that slept is slow at first.
//!
//! Only on a thread that waits for its own connections, and only while none of them has something else to do.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long it looks. That is what an answer costs at most beyond its own work, and about what a call costs.
const LOOKS: Duration = Duration::from_micros(50);

thread_local! {
    /// The answers that were written on this thread.
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// What a connection knows of its last answer.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    last: Option<(Instant, u64)>,
}

impl Linger {
    /// Something was written.
    pub(crate) fn answered(&mut self) {
        let number = ANSWERS.get().wrapping_add(1);
        ANSWERS.set(number);
        self.last = Some((Instant::now(), number));
    }

    /// Where nothing is there to read: whether to look again, which the task is woken for.
    pub(crate) fn looks(&mut self, context: &Context<'_>) -> bool {
        // Where another connection was answered meanwhile, the thread has enough to do.
        let looks = |(at, number): &(Instant, u64)| ANSWERS.get() == *number && at.elapsed() < LOOKS;
        let again = self.last.as_ref().is_some_and(looks);
        match again {
            true => context.waker().wake_by_ref(),
            false => self.last = None,
        }
        again
    }
}

/// Both ends of a client that one thread has for itself.
#[derive(Debug)]
pub(crate) struct Lingering<T> {
    inner: T,
    linger: Arc<Mutex<Linger>>,
}

impl<T> Lingering<T> {
    /// What is read from, and what is written to.
    pub(crate) fn pair<W>(reader: T, writer: W) -> (Self, Lingering<W>) {
        let linger = Arc::default();
        (Self { inner: reader, linger: Arc::clone(&linger) }, Lingering { inner: writer, linger })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lingering<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.inner).poll_read(context, buf);
        if done.is_pending() {
            self.linger.lock().unwrap_or_else(PoisonError::into_inner).looks(context);
        }
        done
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Lingering<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(context, bytes);
        if done.is_ready() {
            self.linger.lock().unwrap_or_else(PoisonError::into_inner).answered();
        }
        done
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
