//! LineReader of bytes, none longer than it may be. What is too long is let go of while it comes in; of it stay both ends, to
//! find the id of the request, whose sender would wait for an answer for ever.

use std::io;

use rmcp::model::RequestId;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept of both ends of a line that is too long.
const ENDS: usize = 256;
/// Bytes asked for at once.
const CHUNK: usize = 64 << 10;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineFrame {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// One that is too long, with the id of its request, if it was found.
    TooLong(Option<RequestId>),
}

/// Reads lines. Every method may be dropped at any await and called again: nothing is lost.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    inner: R,
    most: usize,
    /// What was read and not yet given out, up to `seen` without an end of a line.
    buffer: Vec<u8>,
    seen: usize,
    /// The ends of a line that is too long and has not ended yet.
    skipped: Option<Ends>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// LineReader of at most `most` bytes, the end included.
    pub(crate) fn new(inner: R, most: usize) -> Self {
        Self { inner, most, buffer: Vec::new(), seen: 0, skipped: None, ended: false }
    }

    /// The next line; `None` at the end. A last line needs no end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<LineFrame>> {
        loop {
            if let Some(line) = self.cut() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(self.rest());
            }
            self.buffer.reserve(CHUNK);
            self.ended = self.inner.read_buf(&mut self.buffer).await? == 0;
        }
    }

    /// The next line of what was read.
    fn cut(&mut self) -> Option<LineFrame> {
        let new = self.buffer.get(self.seen..).unwrap_or_default();
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.seen = self.buffer.len();
            if self.skipped.is_some() || self.seen >= self.most {
                self.skip();
            }
            return None;
        };
        let length = self.seen + end;
        self.seen = 0;
        if self.skipped.is_none() && length < self.most {
            let rest = self.buffer.split_off(length + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            line.truncate(length);
            return Some(LineFrame::Whole(line));
        }
        let mut ends = self.skipped.take().unwrap_or_default();
        ends.take(self.buffer.get(..length).unwrap_or_default());
        self.buffer.drain(..=length);
        Some(LineFrame::TooLong(ends.id()))
    }

    /// Lets go of a part of a line that is too long.
    fn skip(&mut self) {
        let ends = self.skipped.get_or_insert_default();
        ends.take(&self.buffer);
        // The memory, too: it may be as much as a line may have.
        self.buffer = Vec::new();
        self.seen = 0;
    }

    fn rest(&mut self) -> Option<LineFrame> {
        let last = std::mem::take(&mut self.buffer);
        self.seen = 0;
        match self.skipped.take() {
            Some(mut ends) => {
                ends.take(&last);
                Some(LineFrame::TooLong(ends.id()))
            }
            None => (!last.is_empty()).then_some(LineFrame::Whole(last)),
        }
    }
}

impl Ends {
    fn take(&mut self, bytes: &[u8]) {
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
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// Gives bytes in parts.
    struct Parts(VecDeque<Vec<u8>>);

    impl AsyncRead for Parts {
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

    async fn all(bytes: &[u8], step: usize, most: usize) -> Vec<LineFrame> {
        let parts = bytes.chunks(step).map(<[u8]>::to_vec).collect();
        let mut lines = LineReader::new(Parts(parts), most);
        let mut found = vec![];
        while let Some(line) = lines.next().await.unwrap() {
            assert!(lines.buffer.len() <= step.max(most) + 1);
            found.push(line);
        }
        found
    }

    fn whole(text: &str) -> LineFrame {
        LineFrame::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_come() {
        for step in [1, 2, 3, 7, 100] {
            assert_eq!(
                all(b"a\n\nbc\r\nd", step, 10).await,
                [whole("a"), whole(""), whole("bc\r"), whole("d")]
            );
            assert_eq!(all(b"", step, 10).await, []);
            assert_eq!(all(b"\n", step, 10).await, [whole("")]);
            let long = format!("{}\n{}\n{}", "x".repeat(9), "y".repeat(10), "z".repeat(30));
            let expect = [whole(&"x".repeat(9)), LineFrame::TooLong(None), LineFrame::TooLong(None)];
            assert_eq!(all(long.as_bytes(), step, 10).await, expect);
        }
    }

    async fn check(line: &str, expect: Option<&RequestId>) {
        let bytes = format!("{line}\n{{}}\n{line}\n");
        for step in [1, 7, 100, bytes.len()] {
            let expect =
                [LineFrame::TooLong(expect.cloned()), whole("{}"), LineFrame::TooLong(expect.cloned())];
            assert_eq!(all(bytes.as_bytes(), step, 300).await, expect, "{line:.40} in steps of {step}");
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
        // Forged inside of the arguments.
        check(&format!(r#"{{"params":{{"a":"{long}\"id\":5"}}}}"#), None).await;
        check(&format!(r#"{{"params":{{"a":"{long}","id":5}}}}"#), None).await;
        check(&format!(r#"{{"params":{{"id":5,"a":"{long}"}},"method":"x"}}"#), None).await;
        check(&long, None).await;
    }
}
