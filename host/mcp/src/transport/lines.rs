//! Reads lines of bounded length. A line over the limit is discarded while it arrives. Its two ends are kept to find
//! the id of the request, since the client would wait forever for a response otherwise.

use std::io;
use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use rmcp::model::RequestId;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Duration, Instant};

/// Bytes that are kept of each end of an oversized line.
const KEPT_END_BYTES: usize = 256;
/// Bytes per read.
const CHUNK: usize = 64 << 10;

/// A line, or the notice of an oversized one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineFrame {
    /// A line without its newline.
    Whole(Vec<u8>),
    /// A line over the limit, with the id of its request if it was found.
    TooLong(Option<RequestId>),
}

/// Reads lines. All methods are cancel safe.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    inner: R,
    max_len: usize,
    /// Bytes that were read and not returned yet. The first `scanned` bytes contain no newline.
    buffer: Vec<u8>,
    scanned: usize,
    /// The ends of an incomplete oversized line.
    skipped: Option<LineEnds>,
    waited: bool,
    /// How long the read waited that found the end of the input.
    end: Option<Duration>,
}

#[derive(Debug, Default)]
struct LineEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Creates a reader of lines of at most `most` bytes, including the newline.
    pub(crate) fn new(inner: R, most: usize) -> Self {
        Self { inner, max_len: most, buffer: Vec::new(), scanned: 0, skipped: None, waited: false, end: None }
    }

    /// The next line; `None` at the end of the input. The last line needs no newline.
    pub(crate) async fn next(&mut self) -> io::Result<Option<LineFrame>> {
        self.waited = false;
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.end.is_some() {
                return Ok(self.take_rest());
            }
            self.read().await?;
        }
    }

    /// Whether [`next`](Self::next) waited for a part of its line.
    pub(crate) fn has_waited(&self) -> bool {
        self.waited
    }

    /// How long after the last byte the input ended. `None` before the end. The last line may still have to be taken.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.end
    }

    async fn read(&mut self) -> io::Result<()> {
        self.buffer.reserve(CHUNK);
        let since = Instant::now();
        let mut read = pin!(self.inner.read_buf(&mut self.buffer));
        let (count, has_waited) = match poll!(read.as_mut()) {
            Poll::Ready(count) => (count?, false),
            Poll::Pending => (read.await?, true),
        };
        match count {
            0 => self.end = Some(if has_waited { since.elapsed() } else { Duration::ZERO }),
            _ => self.waited |= has_waited,
        }
        Ok(())
    }

    /// Takes the next complete line out of the buffer.
    fn take_line(&mut self) -> Option<LineFrame> {
        let new = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.buffer.len();
            if self.skipped.is_some() || self.scanned >= self.max_len {
                self.discard();
            }
            return None;
        };
        let length = self.scanned + end;
        self.scanned = 0;
        if self.skipped.is_none() && length < self.max_len {
            let rest = self.buffer.split_off(length + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            line.truncate(length);
            return Some(LineFrame::Whole(line));
        }
        let mut ends = self.skipped.take().unwrap_or_default();
        ends.append(self.buffer.get(..length).unwrap_or_default());
        self.buffer.drain(..=length);
        Some(LineFrame::TooLong(ends.request_id()))
    }

    /// Discards the buffered part of an oversized line.
    fn discard(&mut self) {
        let ends = self.skipped.get_or_insert_default();
        ends.append(&self.buffer);
        // Frees the memory, too, which may be as large as the longest line.
        self.buffer = Vec::new();
        self.scanned = 0;
    }

    fn take_rest(&mut self) -> Option<LineFrame> {
        let last = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        match self.skipped.take() {
            Some(mut ends) => {
                ends.append(&last);
                Some(LineFrame::TooLong(ends.request_id()))
            }
            None => (!last.is_empty()).then_some(LineFrame::Whole(last)),
        }
    }
}

impl LineEnds {
    fn append(&mut self, bytes: &[u8]) {
        let room = KEPT_END_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let last = bytes.len().saturating_sub(KEPT_END_BYTES);
        self.tail.extend_from_slice(bytes.get(last..).unwrap_or_default());
        self.tail.drain(..self.tail.len().saturating_sub(KEPT_END_BYTES));
    }

    /// The id of the request, as the second or the last key of the message, where all known clients write it. It cannot
    /// be faked inside a string, where the quotes would be escaped.
    fn request_id(&self) -> Option<RequestId> {
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
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncWriteExt as _, ReadBuf};

    use super::*;

    /// Yields bytes in chunks.
    struct ChunkedReader(VecDeque<Vec<u8>>);

    impl AsyncRead for ChunkedReader {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(part) = self.0.pop_front() {
                buf.put_slice(&part);
            }
            Poll::Ready(Ok(()))
        }
    }

    async fn read_all(bytes: &[u8], step: usize, most: usize) -> Vec<LineFrame> {
        let parts = bytes.chunks(step).map(<[u8]>::to_vec).collect();
        let mut lines = LineReader::new(ChunkedReader(parts), most);
        let mut found = vec![];
        while let Some(line) = lines.next().await.unwrap() {
            assert!(lines.buffer.len() <= step.max(most) + 1);
            found.push(line);
        }
        found
    }

    fn whole_line(text: &str) -> LineFrame {
        LineFrame::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_are_read_from_chunks_of_any_size() {
        for step in [1, 2, 3, 7, 100] {
            assert_eq!(
                read_all(b"a\n\nbc\r\nd", step, 10).await,
                [whole_line("a"), whole_line(""), whole_line("bc\r"), whole_line("d")]
            );
            assert_eq!(read_all(b"", step, 10).await, []);
            assert_eq!(read_all(b"\n", step, 10).await, [whole_line("")]);
            let long = format!("{}\n{}\n{}", "x".repeat(9), "y".repeat(10), "z".repeat(30));
            let expect = [whole_line(&"x".repeat(9)), LineFrame::TooLong(None), LineFrame::TooLong(None)];
            assert_eq!(read_all(long.as_bytes(), step, 10).await, expect);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_end_is_not_that_for_a_line() {
        let (mut client, stream) = tokio::io::duplex(64);
        let mut lines = LineReader::new(stream, 10);
        tokio::spawn(async move {
            for (part, wait) in [(&b"a\nb"[..], 3), (b"c", 2)] {
                client.write_all(part).await.unwrap();
                tokio::time::sleep(Duration::from_secs(wait)).await;
            }
        });
        assert_eq!(lines.next().await.unwrap(), Some(whole_line("a")));
        assert_eq!((lines.has_waited(), lines.end()), (true, None));
        assert_eq!(lines.next().await.unwrap(), Some(whole_line("bc")));
        assert_eq!((lines.has_waited(), lines.end()), (true, Some(Duration::from_secs(2))));
        assert_eq!(lines.next().await.unwrap(), None);
        assert_eq!((lines.has_waited(), lines.end()), (false, Some(Duration::from_secs(2))));
    }

    async fn check(line: &str, expect: Option<&RequestId>) {
        let bytes = format!("{line}\n{{}}\n{line}\n");
        for step in [1, 7, 100, bytes.len()] {
            let expect =
                [LineFrame::TooLong(expect.cloned()), whole_line("{}"), LineFrame::TooLong(expect.cloned())];
            assert_eq!(read_all(bytes.as_bytes(), step, 300).await, expect, "{line:.40} in steps of {step}");
        }
    }

    #[tokio::test]
    async fn the_id_of_a_long_request_is_found() {
        let long = "x".repeat(1000);
        let number = RequestId::Number(7);
        let first = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"{long}"}}"#);
        check(&first, Some(&number)).await;
        check(&format!(r#"{{"jsonrpc": "2.0", "id": 7, "params": "{long}"}}"#), Some(&number)).await;
        let last = format!(r#"{{"method":"tools/call","params":"{long}","jsonrpc":"2.0","id":7}}"#);
        check(&last, Some(&number)).await;
        let text = RequestId::String(Arc::from("a\"b"));
        check(&format!(r#"{{"params":"{long}", "id": "a\"b" }}"#), Some(&text)).await;
        // Faked ids inside the arguments.
        check(&format!(r#"{{"params":{{"a":"{long}\"id\":5"}}}}"#), None).await;
        check(&format!(r#"{{"params":{{"a":"{long}","id":5}}}}"#), None).await;
        check(&format!(r#"{{"params":{{"id":5,"a":"{long}"}},"method":"x"}}"#), None).await;
        check(&long, None).await;
    }
}
