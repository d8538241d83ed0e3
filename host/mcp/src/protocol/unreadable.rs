//! Output of a server that is not a message, and that [`super::repair`] cannot read as one: which request it answers, and
//! what is wrong with it. The request then ends at once, with the reason, instead of waiting until its timeout.
//!
//! | output | outcome |
//! |---|---|
//! | an object with the id of a request that no JSON parser reads | the request fails |
//! | such an object over several lines | the request fails |
//! | text that carries such an object, or its beginning: cut off, after a warning, in single quotes, in UTF-16 | the request fails, unless its answer follows |
//! | frames with `Content-Length`, UTF-16 | nothing can be read: the connection ends |
//! | anything else, such as a banner | ignored and counted |

use super::bounds::MAX_MESSAGE_BYTES;
use super::message::{self, ResponseId};
use super::salvage;

/// Characters of the output that are quoted at the place of an error.
const QUOTED_CHARS: usize = 24;
/// Bytes of a text that are searched for the beginning of a response. The id comes before a long result.
const MAX_SEARCHED: usize = 64 << 10;
/// Places of a text where a response may begin that are tried.
const MAX_STARTS: usize = 16;

/// A response that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnreadableResponse {
    pub(crate) id: ResponseId,
    /// What is wrong with it. The text quotes the server and is not redacted yet.
    pub(crate) problem: String,
}

impl UnreadableResponse {
    /// Finds the id of a response in text that is not a message. `None` if it is no response, or its end is missing.
    pub(crate) fn find(text: &[u8]) -> Option<Self> {
        let id = salvage::response_id(message::without_byte_order_mark(text))?;
        let problem = describe_answer(text, &id);
        Some(Self { id, problem })
    }

    /// Finds the id of a response in text that may be anything else, too: cut off, in other quotes, after a warning. The
    /// text may also be a log line that repeats an answer. So it says nothing before the answer had time to follow.
    pub(crate) fn find_anywhere(text: &[u8]) -> Option<Self> {
        let head = searched_part(text);
        // UTF-16 has zero bytes in between.
        let plain: Vec<u8> = head.iter().copied().filter(|byte| *byte != 0).collect();
        let requoted: Vec<u8> = plain.iter().map(|byte| if *byte == b'\'' { b'"' } else { *byte }).collect();
        let id = [plain, requoted].iter().find_map(|text| {
            let starts = text.iter().enumerate().filter(|(_, byte)| **byte == b'{').take(MAX_STARTS);
            starts
                .filter_map(|(at, _)| text.get(at..))
                .find_map(salvage::begun_response_id)
                .filter(|id| id.number().is_some())
        })?;
        let problem = describe_answer(head, &id);
        Some(Self { id, problem })
    }
}

/// The beginning of a text, which ends between characters: a server may write a long text in many lines, and each line is
/// looked at.
fn searched_part(text: &[u8]) -> &[u8] {
    let Some(head) = text.get(..MAX_SEARCHED) else { return text };
    match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_none() => head.get(..error.valid_up_to()).unwrap_or(head),
        Ok(_) | Err(_) => head,
    }
}

/// Describes what is wrong with the answer to a request, and quotes it unless it carries the id of another one.
fn describe_answer(text: &[u8], id: &ResponseId) -> String {
    match id.number() {
        Some(own) if has_other_id(text, own) => describe_kind(text),
        Some(_) | None => describe(text),
    }
}

/// Whether text, which need not be JSON, carries an id that is not the one of this request.
pub(crate) fn has_other_id(text: &[u8], own: u64) -> bool {
    // UTF-16 has zero bytes in between.
    let text: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
    let is_quote = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'"' | b'\''));
    text.windows(4).enumerate().any(|(at, window)| {
        if !is_quote(window.first())
            || window.get(1..3) != Some(b"id")
            || !matches!(window.last(), Some(b'"' | b'\'' | b'\\'))
        {
            return false;
        }
        let value = text.get(at + 3..).unwrap_or_default();
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"\\\"':=".contains(byte);
        let start = value.iter().position(|byte| !is_between(byte)).unwrap_or(value.len());
        let value = value.get(start..).unwrap_or_default();
        let end = value
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'.')
            .unwrap_or(value.len());
        let id = String::from_utf8_lossy(value.get(..end).unwrap_or_default());
        ResponseId::from_text(&id).number() != Some(own)
    })
}

/// Describes why text is not a message, without quoting it.
pub(crate) fn describe_kind(text: &[u8]) -> String {
    match std::str::from_utf8(text) {
        _ if is_utf16(text) => "it is UTF-16; messages are UTF-8".to_owned(),
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => describe(text.as_bytes()),
        Ok(_) => "it is not JSON".to_owned(),
        Err(_) => "it is not UTF-8".to_owned(),
    }
}

/// Describes why text is not a message, and quotes it at the place of an error.
pub(crate) fn describe(text: &[u8]) -> String {
    let text = message::without_byte_order_mark(text).trim_ascii();
    if is_utf16(text) {
        return "it is UTF-16; messages are UTF-8".to_owned();
    }
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let byte = text.get(at).copied().unwrap_or_default();
            return format!("it is not UTF-8: byte 0x{byte:02x} at position {at}");
        }
    };
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Err(error) => {
            let what = super::objects::message_of(&error);
            let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
            // The column is that of the last byte that was read.
            let start = line.floor_char_boundary(error.column().saturating_sub(1));
            let near: String = line.get(start..).unwrap_or_default().chars().take(QUOTED_CHARS).collect();
            format!("it is not JSON: {what} at `{near}`")
        }
        Ok(_) if text.contains(['\n', '\r']) => {
            "its JSON spans several lines; over stdio, each message is one line".to_owned()
        }
        Ok(_) => "it is not a message of JSON-RPC 2.0".to_owned(),
    }
}

/// Why nothing of a server's output can be read, if this line shows that.
pub(crate) fn framing_problem(line: &[u8]) -> Option<&'static str> {
    let line = message::without_byte_order_mark(line).trim_ascii();
    let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
    let value = value.strip_prefix(b":").map(<[u8]>::trim_ascii).unwrap_or_default();
    if name.eq_ignore_ascii_case(b"content-length")
        && !value.is_empty()
        && value.iter().all(u8::is_ascii_digit)
    {
        return Some(
            "it frames its messages with `Content-Length` headers; over stdio, each message is one line",
        );
    }
    is_utf16(line).then_some("it writes UTF-16; messages are UTF-8")
}

/// Whether text is JSON in UTF-16: every second byte is zero. Text in UTF-8 has none.
fn is_utf16(text: &[u8]) -> bool {
    let zeros = text.iter().filter(|byte| **byte == 0).count();
    zeros >= 4 && zeros * 3 >= text.len()
}

/// Assembles a message that a server writes over several lines.
#[derive(Debug, Default)]
pub(crate) struct MultilineText {
    text: Vec<u8>,
    depth: usize,
    is_quoted: bool,
    is_escaped: bool,
}

impl MultilineText {
    /// Adds a line that is not a message. Returns the whole text with the line that closes its first bracket.
    pub(crate) fn push(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if self.text.is_empty()
            && !message::without_byte_order_mark(line).trim_ascii_start().starts_with(b"{")
        {
            return None;
        }
        if self.text.len() + line.len() >= MAX_MESSAGE_BYTES {
            self.clear();
            return None;
        }
        if !self.text.is_empty() {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(line);
        line.iter().for_each(|byte| self.scan(*byte));
        if self.depth > 0 {
            return None;
        }
        let text = std::mem::take(&mut self.text);
        self.clear();
        Some(text)
    }

    /// The lines so far of a message whose end is missing.
    pub(crate) fn unended(&self) -> &[u8] {
        &self.text
    }

    /// Drops the lines so far, because a message followed them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn scan(&mut self, byte: u8) {
        let escaped = std::mem::take(&mut self.is_escaped);
        match byte {
            b'\\' if self.is_quoted && !escaped => self.is_escaped = true,
            b'"' if !escaped => self.is_quoted = !self.is_quoted,
            b'{' | b'[' if !self.is_quoted => self.depth += 1,
            b'}' | b']' if !self.is_quoted => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Option<(String, String)> {
        UnreadableResponse::find(text).map(|found| (found.id.to_string(), found.problem))
    }

    #[test]
    fn an_unreadable_response_names_its_request_and_its_problem() {
        let around =
            |value: &[u8]| [br#"{"jsonrpc":"2.0","id":7,"result":{"a":"#.as_slice(), value, b"}}"].concat();
        for (value, part) in [
            (&b"\"caf\xe9\""[..], "not UTF-8: byte 0xe9 at position 42"),
            (b"NaN", "not JSON: expected value at `NaN}}`"),
            (b"-Infinity", "not JSON: invalid number at `"),
            (b"\"a\tb\"", "not JSON: control character"),
            (b"\n1", "spans several lines"),
            (b"'x'", "not JSON"),
            (b"{\"b\": undefined}", "not JSON"),
        ] {
            let (id, problem) = found(&around(value)).unwrap();
            assert!(id == "7" && problem.contains(part), "{part}: {problem}");
        }
        let (id, problem) = found(br#"{"id":"8","error":{"code":"odd","message":"m"}}"#).unwrap();
        assert_eq!((id.as_str(), problem.as_str()), ("8", "it is not a message of JSON-RPC 2.0"));
        for none in [
            &b"Starting up \xff"[..],
            b"{",
            b"{\"level\":\"info\",\"id\":7,\"took\":NaN}",
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":NaN}",
            b"{\"jsonrpc\":\"2.0\",\"result\":NaN}",
        ] {
            assert_eq!(found(none), None, "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn a_response_is_found_in_text_that_is_none() {
        let utf16 =
            |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
        let whole = r#"{"jsonrpc":"2.0","id":7,"result":{"text":"kept"}}"#;
        let found = |text: &[u8]| {
            UnreadableResponse::find_anywhere(text).map(|found| (found.id.to_string(), found.problem))
        };
        for (text, part) in [
            (whole.as_bytes()[..45].to_vec(), "EOF while parsing"),
            (format!("PHP Warning: x {{y}} {whole}").into_bytes(), "expected value at `PHP Warning"),
            (whole.replace('"', "'").into_bytes(), "key must be a string"),
            (whole.replace('"', "'").replace("'kept'", "\"it's\"").into_bytes(), "key must be a string"),
            (utf16(whole, u16::to_le_bytes), "UTF-16"),
            (utf16(whole, u16::to_be_bytes), "UTF-16"),
        ] {
            let (id, problem) = found(&text).unwrap();
            assert!(id == "7" && problem.contains(part), "{part}: {problem}");
        }
        // Only the beginning of a long text is looked at, up to the end of a character.
        let long = format!("{{\"id\":7,\"result\":\"{}", "é".repeat(MAX_SEARCHED));
        let (id, problem) = found(long.as_bytes()).unwrap();
        assert!(id == "7" && problem.contains("EOF while parsing"), "{problem}");
        // Text of another request is not quoted.
        let (id, problem) = found(br#"{"id":7,"result":{"a":{"id":8,"result":"secret"}"#).unwrap();
        assert_eq!((id.as_str(), problem.as_str()), ("7", "it is not JSON"));
        for none in
            ["banner {", "{\"id\":7}", "{\"id\":\"x\",\"result\":", "{\"level\":\"info\",\"id\":7,\"took\":"]
        {
            assert_eq!(found(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn ids_of_other_requests_are_found_in_any_text() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":1,"result":{"m":NaN}}"#[..],
            br#"x {"id": "1", "result"#,
            b"{'id': 1, 'result': {}}",
            br#"{"id":7}{"id":"a"}"#,
            br#""{\"id\": 1}""#,
            b"{\0\"\0i\0d\0\"\0:\0\x31\0}\0",
            br#"{"id":"#,
        ] {
            assert!(has_other_id(text, 7), "{}", String::from_utf8_lossy(text));
        }
        for text in [&br#"{"id":7,"result":"#[..], br#"{"id": "7.0"}"#, b"{'id' : 7}", b"banner", b"id 1"] {
            assert!(!has_other_id(text, 7), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn frames_and_utf16_are_recognized() {
        let utf16: Vec<u8> = "{\"jsonrpc\": \"2.0\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for line in
            [&b"Content-Length: 12\r"[..], b"content-length:7", &utf16, &[&[0xff, 0xfe], &utf16[..]].concat()]
        {
            assert!(framing_problem(line).is_some(), "{line:?}");
        }
        for line in [&b"{}"[..], b"Content-Length: a", b"Content-Length:", b"Content-Type: x", b"", b"a\0b"] {
            assert_eq!(framing_problem(line), None, "{line:?}");
        }
    }

    #[test]
    fn lines_are_assembled_until_the_object_ends() {
        let pretty = "{\n \"id\": 7,\n \"result\": {\n  \"text\": \"a } \\\" b\"\n }\n}";
        let mut text = MultilineText::default();
        let lines: Vec<_> = pretty.lines().map(|line| text.push(line.as_bytes())).collect();
        let (last, before) = lines.split_last().unwrap();
        assert!(before.iter().all(Option::is_none));
        assert_eq!(last.as_deref(), Some(pretty.as_bytes()));
        // A string that contains a raw line break.
        assert_eq!(text.push(br#"{"id":7,"result":{"text":"one"#), None);
        assert!(text.push(br#"two"}}"#).is_some());
        assert_eq!(text.push(b"a banner {"), None);
        assert_eq!(text.push(b"{"), None);
        text.clear();
        assert_eq!(text.push(b"}"), None, "the lines before were dropped");
        assert_eq!(text.push(&vec![b'{'; MAX_MESSAGE_BYTES]), None);
        assert!(text.text.is_empty(), "bounded");
    }
}
