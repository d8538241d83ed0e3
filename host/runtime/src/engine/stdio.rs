//! Where a guest's stdout and stderr go: into a bounded buffer and from there, line by line and escaped, to the log.
//! Never to our own stdout, which carries a protocol.
//!
//! A write is always accepted and, past the bound, thrown away: a full buffer must not make a guest's `println!`
//! panic. No task stands behind the stream, so nothing queues up (the advisories against wasmtime's asynchronous
//! write stream do not apply).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// What a guest may write at once; it is asked to come back for more.
const PERMIT: usize = 64 << 10;
/// Bytes at the end that are kept, however much came before.
const TAIL: usize = 4 << 10;

/// A buffer shared by all streams to it.
#[derive(Debug, Clone)]
pub(crate) struct Sink(Arc<Mutex<Buffer>>);

#[derive(Debug)]
struct Buffer {
    kept: Vec<u8>,
    most: usize,
    dropped: u64,
    /// The last of what was dropped.
    tail: Vec<u8>,
}

impl Sink {
    /// A sink that keeps the first `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(Buffer { kept: Vec::new(), most, dropped: 0, tail: Vec::new() })))
    }

    fn take(&self, bytes: &[u8]) {
        let mut buffer = self.0.lock();
        let room = buffer.most.saturating_sub(buffer.kept.len());
        let (kept, dropped) = bytes.split_at(room.min(bytes.len()));
        buffer.kept.extend_from_slice(kept);
        buffer.dropped += dropped.len() as u64;
        let last = dropped.split_at(dropped.len().saturating_sub(TAIL)).1;
        buffer.tail.extend_from_slice(last);
        let old = buffer.tail.len().saturating_sub(TAIL);
        buffer.tail.drain(..old);
    }

    /// What was kept, as text, and how many bytes were not.
    pub(crate) fn read(&self) -> (String, u64) {
        let buffer = self.0.lock();
        (String::from_utf8_lossy(&buffer.kept).into_owned(), buffer.dropped)
    }

    /// At most so many characters at the end of all that was written.
    pub(crate) fn tail(&self, characters: usize) -> String {
        let buffer = self.0.lock();
        let kept = buffer.kept.split_at(buffer.kept.len().saturating_sub(TAIL)).1;
        let all = [kept, &buffer.tail].concat();
        let text = String::from_utf8_lossy(&all);
        let before = text.chars().count().saturating_sub(characters);
        text.chars().skip(before).collect()
    }
}

impl IsTerminal for Sink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Sink {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Sink {
    async fn ready(&mut self) {}
}

impl OutputStream for Sink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_bound_bytes_are_counted_and_dropped() {
        let sink = Sink::new(4);
        for part in [b"ab".as_slice(), b"cdef", b"g"] {
            sink.clone().write(Bytes::copy_from_slice(part)).unwrap();
        }
        assert_eq!(sink.read(), ("abcd".to_owned(), 3));
        assert_eq!((sink.tail(100), sink.tail(2)), ("abcdefg".to_owned(), "fg".to_owned()));
    }

    #[test]
    fn the_end_is_kept_however_much_came_before() {
        let sink = Sink::new(4);
        for n in 0..2000 {
            sink.take(format!("line {n}\n").as_bytes());
        }
        let tail = sink.tail(usize::MAX);
        assert!(tail.ends_with("line 1998\nline 1999\n") && tail.len() <= TAIL + 4, "{} bytes", tail.len());
    }
}
