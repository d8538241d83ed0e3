//! Server-sent events, as they come (WHATWG HTML, section 9.2.6), each within a bound.

use std::time::Duration;

use super::bounds::{MAX_MESSAGE, MAX_RESUME_PAUSE};

/// Longest id of an event that is sent back, in bytes.
const MAX_ID: usize = 1024;

/// Makes events of bytes.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    begun: bool,
    /// The last id that was said, to go on behind it.
    pub(crate) last_id: Option<String>,
    /// How long the server wants us to wait before we come again.
    pub(crate) retry: Option<Duration>,
}

/// An event is larger than may be.
#[derive(Debug)]
pub(crate) struct TooLarge;

impl Parser {
    /// Takes the next bytes; returns the data of the events that ended in them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLarge> {
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
            self.grow(before)?;
            let line = std::mem::take(&mut self.line);
            events.extend(self.line(&line)?);
        }
        if !rest.is_empty() {
            self.after_cr = false;
        }
        self.grow(rest)?;
        Ok(events)
    }

    /// Bytes of the event that has not ended yet.
    pub(crate) fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// For the next stream, which goes on where this one broke off.
    pub(crate) fn anew(self) -> Self {
        Self { last_id: self.last_id, retry: self.retry, ..Self::default() }
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.held() + bytes.len() > MAX_MESSAGE {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, TooLarge> {
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
                if self.data.len() + value.len() > MAX_MESSAGE {
                    return Err(TooLarge);
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"id" => {
                // It goes back in a header.
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
                    self.retry = Some(Duration::from_millis(ms).min(MAX_RESUME_PAUSE));
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

    fn events(text: &[u8], step: usize) -> (Vec<String>, Parser) {
        let mut parser = Parser::default();
        let mut all = Vec::new();
        for part in text.chunks(step) {
            all.extend(parser.push(part).unwrap().into_iter().map(|data| String::from_utf8(data).unwrap()));
        }
        (all, parser)
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "\u{feff}: hello\nid: 1\nretry: 500\ndata: \n\ndata: {\"a\":\r\ndata:1}\r\n\r\nevent: x\rdata:  two\r\rdata: unended";
        for step in [1, 2, 3, 7, text.len()] {
            let (all, parser) = events(text.as_bytes(), step);
            assert_eq!(all, ["{\"a\":\n1}", " two"], "step {step}");
            assert_eq!(parser.last_id.as_deref(), Some("1"));
            assert_eq!(parser.retry, Some(Duration::from_millis(500)));
        }
    }

    #[test]
    fn what_a_server_says_of_itself_is_bounded() {
        let (_, parser) = events(b"retry: 99999999\nid: a\x01b\nretry: -1\nretry: x\n", 5);
        assert_eq!((parser.retry, parser.last_id), (Some(MAX_RESUME_PAUSE), None));
        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        let refused = (0..64).any(|_| parser.push(&line).is_err());
        assert!(refused, "an event without end");
        let mut parser = Parser::default();
        assert!((0..64).any(|_| parser.push(&vec![b'x'; 1 << 20]).is_err()), "a line without end");
    }
}
