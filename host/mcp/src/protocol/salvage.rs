//! Finds the id of a request that is not valid JSON: it has a number out of range, a lone surrogate, deep nesting,
//! bytes that are not UTF-8, or `NaN`. Without the id, the client would wait for its response forever.
//!
//! The scanner understands only strings and brackets. It finds the members of every object whose end can be found,
//! without recursion and without allocation.
//!
//! | unparseable part | outcome |
//! |---|---|
//! | the arguments of a call | the call continues with the raw arguments, and the pipeline refuses them with `input_invalid` |
//! | another part of a request | -32602 with the id of the request and the code `input_invalid` |
//! | a notification or a response | no response |

use std::ops::Range;
use std::sync::Arc;

use rmcp::model::{ErrorData, RequestId};
use serde_json::{Value, json};

use super::message::{self, ResponseId};

/// The outcome of salvaging a message.
#[derive(Debug)]
pub(crate) enum SalvagedMessage {
    /// A call with unparseable arguments.
    Call {
        /// The same call with empty arguments.
        text: String,
        /// The raw arguments.
        arguments: Arc<str>,
    },
    /// A request, with the error response to it.
    Request(ErrorData, RequestId),
    /// The cancellation of the request with this id. Only another member, such as the reason, is not valid JSON.
    Cancellation(RequestId),
    /// A message that expects no response.
    NoReply,
}

/// Salvages a message that is not valid JSON, for the reason `why`. Returns `None` if the text is not one complete
/// object, or a request has no readable id.
pub(crate) fn salvage(bytes: &[u8], why: &str) -> Option<SalvagedMessage> {
    let message = MessageRanges::find(bytes)?;
    let asks = message.method.is_some() || !message.is_response;
    let Some(id) = message.id else {
        if let Some(cancelled) = message.cancelled_id(bytes) {
            return Some(SalvagedMessage::Cancellation(cancelled));
        }
        return (message.method.is_some() || message.is_response).then_some(SalvagedMessage::NoReply);
    };
    if !asks {
        return Some(SalvagedMessage::NoReply);
    }
    let id = message::parse_id(std::str::from_utf8(bytes.get(id)?).ok()?)?;
    let is_call = message.method.is_some_and(|at| bytes.get(at) == Some(b"\"tools/call\""));
    let arguments = message.arguments.filter(|_| is_call && !message.has_duplicates);
    let text = arguments.and_then(|at| salvage_call(bytes, at));
    Some(text.unwrap_or_else(|| {
        let text = format!("input_invalid: the request is not valid JSON: {why}");
        let error = ErrorData::invalid_params(text, Some(json!({"toolbay/code": "input_invalid"})));
        SalvagedMessage::Request(error, id)
    }))
}

/// The id of a response that is not a valid message. `None` if the text is not one complete object, or no response.
pub(crate) fn response_id(bytes: &[u8]) -> Option<ResponseId> {
    let message = MessageRanges::find(bytes)?;
    let id = std::str::from_utf8(bytes.get(message.id?)?).ok()?;
    let is_response = message.is_response && message.method.is_none();
    is_response.then(|| ResponseId::from_text(id))
}

/// The id of a response that begins a text, whatever follows: its end may be missing, and no parser need read it.
pub(crate) fn begun_response_id(bytes: &[u8]) -> Option<ResponseId> {
    let mut message = MessageRanges::default();
    let mut scan = JsonScanner::new(bytes);
    // Not its end, but what was found before it matters.
    let _ = scan.scan_members(|key, value| _ = message.add(key, value));
    let is_response = message.is_response || scan.open_key.is_some_and(is_outcome);
    // A number at the end of the text may be incomplete.
    let id = message.id.filter(|id| id.end < bytes.len() && is_response && message.method.is_none())?;
    Some(ResponseId::from_text(std::str::from_utf8(bytes.get(id)?).ok()?))
}

/// Whether a key is that of the outcome in a response.
fn is_outcome(key: &[u8]) -> bool {
    matches!(key, b"\"result\"" | b"\"error\"")
}

/// Why a text is not valid JSON; `None` if it is.
pub(crate) fn json_error(text: &str) -> Option<String> {
    // Strict, and without building a tree: nearly every message passes here.
    if toolbay_core::tool::json::check(text).is_ok() {
        return None;
    }
    // The errors of serde_json name a position and quote nothing of the message.
    serde_json::from_str::<Value>(text).err().map(|error| error.to_string())
}

/// Replaces the arguments at `at` in a call. `None` if the rest of the call is not valid JSON either.
fn salvage_call(bytes: &[u8], at: Range<usize>) -> Option<SalvagedMessage> {
    let (head, tail) = (bytes.get(..at.start)?, bytes.get(at.end..)?);
    let text = String::from_utf8([head, b"{}", tail].concat()).ok()?;
    serde_json::from_str::<Value>(&text).ok()?;
    let mut raw = String::new();
    for chunk in bytes.get(at)?.utf8_chunks() {
        raw.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            raw.push(toolbay_core::tool::json::INVALID_BYTE);
        }
    }
    Some(SalvagedMessage::Call { text, arguments: raw.into() })
}

/// The byte ranges of the parts of a message.
#[derive(Debug, Default)]
struct MessageRanges {
    id: Option<Range<usize>>,
    method: Option<Range<usize>>,
    arguments: Option<Range<usize>>,
    /// The `requestId` of the parameters.
    request_id: Option<Range<usize>>,
    /// Whether the message has a result or an error.
    is_response: bool,
    /// Whether a member that must be unambiguous occurs twice.
    has_duplicates: bool,
}

impl MessageRanges {
    fn find(bytes: &[u8]) -> Option<Self> {
        let (mut message, mut params) = (Self::default(), None);
        let mut scan = JsonScanner::new(bytes);
        scan.scan_members(|key, value| {
            if let Some(found) = message.add(key, value) {
                message.has_duplicates |= params.replace(found).is_some();
            }
        })?;
        scan.skip_whitespace();
        if scan.at < bytes.len() {
            return None;
        }
        if let Some(inner) = params.and_then(|at| bytes.get(at.start..at.end).map(|part| (at.start, part))) {
            let (start, bytes) = inner;
            // Parameters that are not an object have no arguments.
            let _ = JsonScanner::new(bytes).scan_members(|key, value| {
                let place = match key {
                    b"\"arguments\"" => &mut message.arguments,
                    b"\"requestId\"" => &mut message.request_id,
                    _ => return,
                };
                let value = start + value.start..start + value.end;
                message.has_duplicates |= place.replace(value).is_some();
            });
        }
        Some(message)
    }

    /// The id of the request that the message cancels, if it is a cancellation.
    fn cancelled_id(&self, bytes: &[u8]) -> Option<RequestId> {
        let method = bytes.get(self.method.clone()?)?;
        let is_cancellation = method == b"\"notifications/cancelled\"" && !self.has_duplicates;
        let id = bytes.get(self.request_id.clone()?).filter(|_| is_cancellation)?;
        message::parse_id(std::str::from_utf8(id).ok()?)
    }

    /// Adds a member. Returns the range of the parameters, if it has them.
    fn add(&mut self, key: &[u8], value: Range<usize>) -> Option<Range<usize>> {
        match key {
            // The last of two wins, as in every parser.
            b"\"id\"" => self.id = Some(value),
            b"\"method\"" => self.has_duplicates |= self.method.replace(value).is_some(),
            b"\"params\"" => return Some(value),
            key => self.is_response |= is_outcome(key),
        }
        None
    }
}

/// Scans a text once.
struct JsonScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The key of the member whose value was begun last, with its quotes.
    open_key: Option<&'a [u8]>,
}

impl<'a> JsonScanner<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, open_key: None }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Skips one byte if it is this one.
    fn skip_byte(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Skips a string.
    fn skip_string(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.skip_byte(b'"')?;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(start..self.at);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Skips a value with all its content.
    fn skip_value(&mut self) -> Option<Range<usize>> {
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match self.peek() {
                Some(b'"') => _ = self.skip_string()?,
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => self.at += 1,
                Some(byte) if depth > 0 && byte.is_ascii_whitespace() => self.at += 1,
                _ => self.skip_atom()?,
            }
            if depth == 0 {
                return Some(start..self.at);
            }
        }
    }

    /// Skips a number or a word.
    fn skip_atom(&mut self) -> Option<()> {
        let start = self.at;
        let ends = |byte: u8| byte.is_ascii_whitespace() || b",:{}[]\"".contains(&byte);
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Skips an object. `each` gets each key, with its quotes, and the range of its value.
    fn scan_members(&mut self, mut each: impl FnMut(&'a [u8], Range<usize>)) -> Option<()> {
        self.skip_whitespace();
        self.skip_byte(b'{')?;
        loop {
            self.skip_whitespace();
            if self.skip_byte(b'}').is_some() {
                return Some(());
            }
            let key = self.bytes.get(self.skip_string()?)?;
            self.skip_whitespace();
            self.skip_byte(b':')?;
            self.skip_whitespace();
            self.open_key = Some(key);
            let value = self.skip_value()?;
            each(key, value);
            self.skip_whitespace();
            if self.skip_byte(b',').is_none() {
                return self.skip_byte(b'}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salvage_bytes(bytes: &[u8]) -> Option<SalvagedMessage> {
        salvage(bytes, "why")
    }

    fn id_of(bytes: &[u8]) -> Option<RequestId> {
        match salvage_bytes(bytes)? {
            SalvagedMessage::Call { text, .. } => {
                let message: Value = serde_json::from_str(&text).unwrap();
                serde_json::from_value(message["id"].clone()).ok()
            }
            SalvagedMessage::Request(_, id) | SalvagedMessage::Cancellation(id) => Some(id),
            SalvagedMessage::NoReply => None,
        }
    }

    #[test]
    fn the_id_is_found_at_any_position() {
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        let wide = "1".repeat(400);
        let bad: [&[u8]; 12] = [
            b"1e400",
            br#""\ud800""#,
            br#""\udc00\ud800""#,
            br#"{"a":[{"b":-1e999}]}"#,
            b"NaN",
            b"-Infinity",
            b"\"\xff\"",
            b"[\"\\\xff\\\"\",{}]",
            br#""\x""#,
            b"01",
            deep.as_bytes(),
            wide.as_bytes(),
        ];
        for bad in bad {
            for (id, expect) in [("7", RequestId::Number(7)), (r#""a\"b""#, RequestId::String("a\"b".into()))]
            {
                let around = [
                    (
                        format!(
                            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"a":"#
                        ),
                        "}}}",
                    ),
                    (
                        format!(
                            r#" {{"jsonrpc":"2.0","id" : {id} ,"method":"tools/call","params":{{"name":"t","_meta":"#
                        ),
                        "} }\n",
                    ),
                    (format!(r#"{{"id":{id},"method":"tools/list","x":"#), "}"),
                ];
                let last = format!(r#"}}}},"id":{id}}}"#);
                let late = (
                    r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{"id":5,"a":"#
                        .to_owned(),
                    last.as_str(),
                );
                for (head, tail) in around.iter().map(|(head, tail)| (head, *tail)).chain([(&late.0, late.1)])
                {
                    let whole = [head.as_bytes(), bad, tail.as_bytes()].concat();
                    let shown = String::from_utf8_lossy(&whole).chars().take(120).collect::<String>();
                    assert_eq!(id_of(&whole), Some(expect.clone()), "{shown}");
                }
            }
        }
    }

    #[test]
    fn only_the_unreadable_arguments_of_a_call_are_replaced() {
        let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\": {\"a\":\"\\\xff\xfe\"} ,\"_meta\":{\"progressToken\":3}}}";
        let Some(SalvagedMessage::Call { text, arguments }) = salvage_bytes(line) else { panic!() };
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments": {} ,"_meta":{"progressToken":3}}}"#
        );
        assert!(toolbay_core::tool::json::parse(&arguments).is_err(), "{arguments:?}");
        // Ambiguous calls are not salvaged.
        for twice in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1e400},"arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1e400}},"params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"t","arguments":{"a":1e400}}}"#,
        ] {
            assert!(matches!(salvage_bytes(twice.as_bytes()), Some(SalvagedMessage::Request(..))), "{twice}");
        }
    }

    #[test]
    fn the_id_of_a_response_is_found_before_its_end() {
        let id = |text: &str| begun_response_id(text.as_bytes()).map(|id| id.to_string());
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"kept""#,
            r#"{"id": 7, "error":"#,
            r#"{"result":{"id":1},"id":7,"x"#,
            r#"{"id":7,"result":{}}{"id":8,"result":{}}"#,
            r#"{"id":7,"result":{}} trailing"#,
        ] {
            assert_eq!(id(text).as_deref(), Some("7"), "{text}");
        }
        for text in [
            r#"{"id":7"#,
            r#"{"result":{},"id":7"#,
            r#"{"id":7,"#,
            r#"{"id":7,"method":"x","result":"#,
            r#"{"a":{"id":7,"result":{}"#,
            "",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn messages_without_an_end_or_an_id_are_not_salvaged() {
        for none in [
            "",
            "{",
            r#"{"id":1,"method":"ping""#,
            r#"{"id":1,"method":"ping","x":[}"#,
            r#"{"id":1,"method":"ping","x":"}"#,
            r#"{"id":1,"method":"ping","x":1e400} {}"#,
            r#"{"id":1,"method":"ping","x":}"#,
            r#"{"id":1 "method":"ping"}"#,
            r#"{"id":1e400,"method":"ping"}"#,
            r#"{"id":"\ud800","method":"ping"}"#,
            r#"{"id":[1e400],"method":"ping"}"#,
            r#"[{"id":1,"method":"ping","x":1e400}]"#,
            r#"{"x":1e400}"#,
            "nonsense",
        ] {
            assert!(salvage_bytes(none.as_bytes()).is_none(), "{none}");
        }
        for unasked in [
            r#"{"method":"notifications/x","params":{"a":1e400}}"#,
            r#"{"id":1,"result":{"a":1e400}}"#,
            r#"{"id":1,"error":{"a":1e400}}"#,
        ] {
            assert!(matches!(salvage_bytes(unasked.as_bytes()), Some(SalvagedMessage::NoReply)), "{unasked}");
        }
    }
}
