//! Sinks for a guest's stdout and stderr: a bounded buffer, whose lines the host escapes and logs. Guest output never
//! reaches the host's stdout, which carries a protocol.
//!
//! A write always succeeds, and bytes past the bound are dropped: a full buffer must not make a guest's `println!`
//! panic. The stream has no background task, so nothing queues up, and the advisories against wasmtime's asynchronous
//! write stream do not apply.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// The number of bytes a guest may write at once; longer output takes several writes.
const WRITE_BYTES: usize = 64 << 10;
/// The number of last bytes that are kept, even past the capacity.
const TAIL_BYTES: usize = 4 << 10;

/// A buffer that all streams to it share.
#[derive(Debug, Clone)]
pub struct OutputSink(Arc<Mutex<SinkBuffer>>);

#[derive(Debug)]
struct SinkBuffer {
    head: Vec<u8>,
    capacity: usize,
    dropped: u64,
    /// The last bytes of the dropped output.
    tail: Vec<u8>,
}

impl OutputSink {
    /// Creates a sink that keeps the first `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Self(Arc::new(Mutex::new(SinkBuffer { head: Vec::new(), capacity, dropped: 0, tail: Vec::new() })))
    }

    fn append(&self, bytes: &[u8]) {
        let mut buffer = self.0.lock();
        let room = buffer.capacity.saturating_sub(buffer.head.len());
        let (head, dropped) = bytes.split_at(room.min(bytes.len()));
        buffer.head.extend_from_slice(head);
        buffer.dropped += dropped.len() as u64;
        let last = dropped.split_at(dropped.len().saturating_sub(TAIL_BYTES)).1;
        buffer.tail.extend_from_slice(last);
        let old = buffer.tail.len().saturating_sub(TAIL_BYTES);
        buffer.tail.drain(..old);
    }

    /// The kept output as text, and the number of dropped bytes.
    pub fn read(&self) -> (String, u64) {
        let buffer = self.0.lock();
        (String::from_utf8_lossy(&buffer.head).into_owned(), buffer.dropped)
    }

    /// The last `characters` characters of the output, at most.
    pub fn tail(&self, characters: usize) -> String {
        let buffer = self.0.lock();
        let head = buffer.head.split_at(buffer.head.len().saturating_sub(TAIL_BYTES)).1;
        let all = [head, &buffer.tail].concat();
        let text = String::from_utf8_lossy(&all);
        let before = text.chars().count().saturating_sub(characters);
        text.chars().skip(before).collect()
    }
}

impl IsTerminal for OutputSink {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for OutputSink {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for OutputSink {
    async fn ready(&mut self) {}
}

impl OutputStream for OutputSink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.append(&bytes);
        Ok(())
    }
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }
    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES)
    }
}

impl AsyncWrite for OutputSink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.append(bytes);
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
    fn bytes_past_the_capacity_are_counted_and_dropped() {
        let sink = OutputSink::new(4);
        for part in [b"ab".as_slice(), b"cdef", b"g"] {
            sink.clone().write(Bytes::copy_from_slice(part)).unwrap();
        }
        assert_eq!(sink.read(), ("abcd".to_owned(), 3));
        assert_eq!((sink.tail(100), sink.tail(2)), ("abcdefg".to_owned(), "fg".to_owned()));
    }

    #[test]
    fn the_tail_is_always_kept() {
        let sink = OutputSink::new(4);
        for n in 0..2000 {
            sink.append(format!("line {n}\n").as_bytes());
        }
        let tail = sink.tail(usize::MAX);
        assert!(
            tail.ends_with("line 1998\nline 1999\n") && tail.len() <= TAIL_BYTES + 4,
            "{} bytes",
            tail.len()
        );
    }
}
