//! A thread that has answered looks for the next request for a moment before it sleeps: a client that asks one thing after
//! the other has it by then. To be woken takes longer than most calls, and a processor that slept is slow at first.
//!
//! Only on a thread that waits for its own connections, and only while one of them is all it answers. A thread with more
//! of them answers first and writes then (`http/socket.rs`): a client that is woken once for many answers takes them at
//! once, and keeps the thread from its work once.

use std::cell::Cell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Builder;

/// How long it looks. That is what an answer costs at most beyond its own work, and about what a call costs.
const LOOKS: Duration = Duration::from_micros(50);

thread_local! {
    /// The answers that were written on this thread.
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// A runtime for a thread that waits for clients. What comes from other threads is not kept waiting.
pub(crate) fn runtime() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.global_queue_interval(1);
    builder
}

/// What a connection knows of its last answer.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// Its number among those of the thread, from 1 on.
    last: u64,
    /// When it was, as long as the next request is looked for.
    at: Option<Instant>,
    /// Others were answered between the last two.
    shares: bool,
}

impl Linger {
    /// Something was written.
    pub(crate) fn answered(&mut self) {
        let number = ANSWERS.get().wrapping_add(1);
        ANSWERS.set(number);
        self.shares = self.last != 0 && self.last.wrapping_add(1) != number;
        self.last = number;
        self.at = (!self.shares).then(Instant::now);
    }

    /// Whether the thread has other clients, which ask just as often.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    /// Where nothing is there to read: whether to look again, which the task is woken for.
    pub(crate) fn looks(&mut self, context: &mut Context<'_>) -> bool {
        // Where another connection was answered meanwhile, the thread has enough to do.
        let looks = |at: &Instant| ANSWERS.get() == self.last && at.elapsed() < LOOKS;
        let again = self.at.as_ref().is_some_and(looks);
        match again {
            // When all others had their turn, and the system was asked what has come.
            true => _ = pin!(tokio::task::yield_now()).poll(context),
            false => self.at = None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_answered_last_looks_again_for_a_moment() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let [mut one, mut other] = [Linger::default(), Linger::default()];
        assert!(!one.looks(&mut context), "it has answered nothing");
        // The moment is short: a machine that is busy may miss it, but not each time.
        let looked = (0..1000).any(|_| {
            one.answered();
            one.looks(&mut context)
        });
        assert!(looked && woken.0.load(Ordering::Relaxed) == 1);
        one.answered();
        other.answered();
        assert!(!one.looks(&mut context) && !one.shares(), "the thread has another client to look after");
        one.answered();
        assert!(!one.looks(&mut context) && one.shares(), "and goes on having it");
        one.answered();
        assert!(!one.shares(), "it has gone");
        std::thread::sleep(LOOKS);
        assert!(!one.looks(&mut context), "the moment is over");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_is_read_and_written_is_what_was_sent() {
        let (near, far) = tokio::io::duplex(16);
        let (read, write) = tokio::io::split(near);
        let (mut reader, mut writer) = Lingering::pair(read, write);
        let (mut far_reads, mut far_writes) = tokio::io::split(far);
        for word in ["one", "two"] {
            writer.write_all(word.as_bytes()).await.unwrap();
            writer.flush().await.unwrap();
            let mut seen = [0; 3];
            far_reads.read_exact(&mut seen).await.unwrap();
            assert_eq!(seen, word.as_bytes());
            let (read, written) = tokio::join!(reader.read_exact(&mut seen), far_writes.write_all(b"yes"));
            assert_eq!((read.unwrap(), written.is_ok(), &seen), (3, true, b"yes"));
        }
        writer.shutdown().await.unwrap();
        assert_eq!(far_reads.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
