//! An incremental parser of server-sent events (WHATWG HTML, section 9.2.6) with limits.

use std::time::Duration;

use super::bounds::{MAX_MESSAGE_BYTES, MAX_RESUME_DELAY};

/// Longest event id that is sent back in `Last-Event-ID`, in bytes.
const MAX_ID: usize = 1024;

/// Parses events from chunks of bytes.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
    /// The last event id, to resume from.
    pub(crate) last_id: Option<String>,
    /// The reconnect delay that the server requested.
    pub(crate) retry: Option<Duration>,
}

/// An event exceeds the limit.
#[derive(Debug)]
pub(crate) struct EventTooLarge;

impl SseParser {
    /// Parses the next chunk; returns the data of the events that it completes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EventTooLarge> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (before, from) = rest.split_at(at);
            let end = from.first().copied();
            rest = from.get(1..).unwrap_or_default();
            if std::mem::take(&mut self.after_cr) && end == Some(b'\n') && before.is_empty() {
                continue;
            }
            self.after_cr = end == Some(b'\r');
            self.append(before)?;
            let line = std::mem::take(&mut self.line);
            events.extend(self.handle_line(&line)?);
        }
        if !rest.is_empty() {
            self.after_cr = false;
        }
        self.append(rest)?;
        Ok(events)
    }

    /// Buffered bytes of the incomplete event.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// A parser for the stream that resumes this one.
    pub(crate) fn into_resumed(self) -> Self {
        Self { last_id: self.last_id, retry: self.retry, ..Self::default() }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        if self.buffered_bytes() + bytes.len() > MAX_MESSAGE_BYTES {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn handle_line(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, EventTooLarge> {
        let line = if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return Ok(std::mem::take(&mut self.has_data).then_some(data).filter(|data| !data.is_empty()));
        }
        let at = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(at);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                if self.data.len() + value.len() > MAX_MESSAGE_BYTES {
                    return Err(EventTooLarge);
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"id" => {
                // The id is sent back in a header.
                let plain = value.len() <= MAX_ID && value.iter().all(|b| (b' '..=b'~').contains(b));
                self.last_id = if plain {
                    String::from_utf8(value.to_vec()).ok().filter(|id| !id.is_empty())
                } else {
                    None
                };
            }
            b"retry" => {
                let digits =
                    std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
                if let Some(ms) = digits.and_then(|digits| digits.parse().ok()) {
                    self.retry = Some(Duration::from_millis(ms).min(MAX_RESUME_DELAY));
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_events(text: &[u8], step: usize) -> (Vec<String>, SseParser) {
        let mut parser = SseParser::default();
        let mut all = Vec::new();
        for part in text.chunks(step) {
            all.extend(parser.push(part).unwrap().into_iter().map(|data| String::from_utf8(data).unwrap()));
        }
        (all, parser)
    }

    #[test]
    fn events_are_parsed_from_chunks_of_any_size() {
        let text = "\u{feff}: hello\nid: 1\nretry: 500\ndata: \n\ndata: {\"a\":\r\ndata:1}\r\n\r\nevent: x\rdata:  two\r\rdata: unended";
        for step in [1, 2, 3, 7, text.len()] {
            let (all, parser) = parse_events(text.as_bytes(), step);
            assert_eq!(all, ["{\"a\":\n1}", " two"], "step {step}");
            assert_eq!(parser.last_id.as_deref(), Some("1"));
            assert_eq!(parser.retry, Some(Duration::from_millis(500)));
        }
    }

    #[test]
    fn ids_delays_and_events_are_bounded() {
        let (_, parser) = parse_events(b"retry: 99999999\nid: a\x01b\nretry: -1\nretry: x\n", 5);
        assert_eq!((parser.retry, parser.last_id), (Some(MAX_RESUME_DELAY), None));
        let mut parser = SseParser::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        let refused = (0..64).any(|_| parser.push(&line).is_err());
        assert!(refused, "an endless event");
        let mut parser = SseParser::default();
        assert!((0..64).any(|_| parser.push(&vec![b'x'; 1 << 20]).is_err()), "an endless line");
    }
}
