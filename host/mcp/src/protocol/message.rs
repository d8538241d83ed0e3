//! JSON-RPC 2.0 messages, for the server and the client side. A message is parsed once. Its parameters and results stay
//! raw until the code that knows the method parses them. An invalid tool in a list, or an invalid block in a result,
//! therefore costs only itself.

use std::borrow::Cow;
use std::fmt;

use rmcp::model::RequestId;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_policy::excerpt::one_line;

use super::bounded::BoundedList;
use super::bounds::{MAX_BATCH_MESSAGES, MAX_CLIENT_ID, MAX_UNREDACTED_CHARS};
use super::members::Members;
use super::objects;

/// The method is unknown.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are invalid for the method.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The request failed in the server.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// Longest id of a server's request, in bytes, since the response repeats it, and of an id in a message of this host, in
/// characters.
const MAX_ID: usize = 256;
/// The protocol version is not supported (2026-07-28).
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// A message of the peer.
#[derive(Debug)]
pub(crate) enum RpcMessage {
    /// A request.
    Request(RawRequest),
    /// A notification.
    Notification { method: String, params: Option<Box<RawValue>> },
    /// A response.
    Response { id: ResponseId, result: RpcResult },
}

/// The id of a response, compared with the ids of this side, which are plain numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResponseId {
    /// The number `3`, in one of the forms that peers give back: `3`, `3.0`, `"3"`. Each of them can mean no other request.
    Number(u64),
    /// Another value, as a message shows it.
    Other(String),
    /// No id, as in an error about a request that the peer could not read.
    Absent,
}

impl ResponseId {
    /// Reads an id as it stands in the JSON of a peer.
    pub(crate) fn from_text(id: &str) -> Self {
        let number = match serde_json::from_str::<String>(id) {
            Ok(text) => parse_whole_number(&text),
            Err(_) => parse_whole_number(id),
        };
        number.map_or_else(|| Self::Other(one_line(id, MAX_ID)), Self::Number)
    }

    fn from_raw(id: Option<&RawValue>) -> Self {
        id.map_or(Self::Absent, |id| Self::from_text(id.get()))
    }

    /// The number, if it can belong to a request of this side.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Other(_) | Self::Absent => None,
        }
    }

    /// Whether there is no id.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other(text) => f.write_str(text),
            Self::Absent => f.write_str("null"),
        }
    }
}

/// Parses a number of JSON that stands for a whole number: `3`, `3.0`, `3e0`.
fn parse_whole_number(text: &str) -> Option<u64> {
    // Above, several whole numbers are the same floating-point number.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let is_digit = |character: char| character.is_ascii_digit();
    if !text.starts_with(is_digit) || !text.ends_with(is_digit) {
        return None;
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = serde_json::from_str(text).ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to 2^53"
    )]
    (number.fract() == 0.0 && number < MAX_EXACT).then_some(number as u64)
}

/// Parses the code of an error: `-32603`, `-32603.0`.
fn parse_code(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    parse_whole_number(digits).and_then(|number| i64::try_from(number).ok()).map(|number| sign * number)
}

/// A request with raw parameters.
#[derive(Debug)]
pub(crate) struct RawRequest {
    pub(crate) id: Box<RawValue>,
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

/// The outcome of a request.
pub(crate) type RpcResult = Result<Box<RawValue>, RpcError>;

/// An error response of the peer.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    /// Raw, since few errors need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

impl RpcError {
    /// The code of an error that has none, or none that is a whole number.
    const NO_CODE: i64 = 0;
    /// Stands for an answer that is no error, either. The code of no peer is read as it.
    const NO_OUTCOME: i64 = i64::MIN;

    /// Reads an error in any form, because its texts matter more than their members. `None` if members occur twice.
    fn from_raw(raw: &RawValue) -> Option<Self> {
        let (code, message, data) = if raw.get().starts_with('{') {
            let members = Members::read(raw, &["code", "message", "data"]).ok()?;
            (members.raw("code"), members.raw("message"), members.raw("data"))
        } else {
            (None, Some(raw), None)
        };
        let text = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
        let mut message = message.map(text).unwrap_or_default();
        let number = code.and_then(|raw| parse_code(&text(raw)));
        if let (Some(code), None) = (code, number) {
            message = format!("{}: {message}", text(code));
        }
        if let (true, Some(data)) = (message.trim().is_empty(), data) {
            message = text(data);
        }
        Some(Self { code: number.unwrap_or(Self::NO_CODE), message, data: data.map(ToOwned::to_owned) })
    }

    /// The error of an answer without `result` and `error`. Its request ends with it, since no other answer follows.
    fn without_outcome() -> Self {
        let message = "its answer has neither `result` nor `error`".to_owned();
        Self { code: Self::NO_OUTCOME, message, data: None }
    }

    /// Whether this stands for an answer without `result` and `error`.
    pub(crate) fn is_without_outcome(&self) -> bool {
        self.code == Self::NO_OUTCOME
    }

    /// Describes the error for a message. The text is not redacted yet.
    pub(crate) fn describe(&self) -> String {
        format!("error {}: {}", self.code, one_line(&self.message, MAX_UNREDACTED_CHARS))
    }
}

/// The members of a message. Duplicate members make it invalid.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    /// Raw, since some peers write a number.
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Deserializes a member that is present, even if it is null.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

impl<'a> Envelope<'a> {
    /// Parses the members of a message. `None` if the text is not an object or has invalid members.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        // serde would accept an array as the members in order.
        text.trim_ascii_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
    }

    /// Whether the message follows JSON-RPC 2.0 strictly.
    pub(crate) fn is_strict(&self) -> bool {
        let answers = self.result.is_some_and(|result| result.get() != "null") || self.error.is_some();
        let has_null_id = self.id.is_some_and(|id| id.get() == "null");
        let version = self.jsonrpc.and_then(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get()).ok());
        version.as_deref() == Some("2.0")
            && self.error.is_none_or(|error| serde_json::from_str::<RpcError>(error.get()).is_ok())
            && self.method.is_some() != answers
            && !(has_null_id && self.method.is_some())
    }

    /// The text of the result, as a part of the text that was parsed.
    pub(crate) fn result_text(&self) -> Option<&'a str> {
        self.result.map(RawValue::get)
    }

    /// Converts to a message. A request may have any id except null.
    pub(crate) fn into_message(self) -> Option<RpcMessage> {
        let Self { jsonrpc, id, method, params, result, error } = self;
        let (params, id) = (params.map(ToOwned::to_owned), id.filter(|id| id.get() != "null"));
        match (method, id) {
            (Some(method), Some(id)) => {
                Some(RpcMessage::Request(RawRequest { id: id.to_owned(), method, params }))
            }
            (Some(method), None) => Some(RpcMessage::Notification { method, params }),
            (None, id) => {
                let result = match (result.filter(|result| result.get() != "null"), error) {
                    (Some(result), None) => Ok(result.to_owned()),
                    // What some servers write for no error.
                    (Some(result), Some(error)) if matches!(error.get(), "[]" | "{}" | "\"\"" | "false") => {
                        Ok(result.to_owned())
                    }
                    (_, Some(error)) => Err(RpcError::from_raw(error)?),
                    (None, None) => match result {
                        Some(null) => Ok(null.to_owned()),
                        // A line of a log may have an id, too.
                        None if id.is_some() && jsonrpc.is_some() => Err(RpcError::without_outcome()),
                        None => return None,
                    },
                };
                Some(RpcMessage::Response { id: ResponseId::from_raw(id), result })
            }
        }
    }
}

/// Parses one message or a batch of a server. `None` if it is not JSON-RPC. An invalid message of a batch costs only
/// itself.
pub(crate) fn parse_messages(text: &[u8]) -> Option<Vec<RpcMessage>> {
    let text = std::str::from_utf8(without_byte_order_mark(text)).ok()?.trim_ascii();
    if !text.starts_with('[') {
        return Some(vec![parse_single(text)?]);
    }
    let parts: BoundedList<'_, MAX_BATCH_MESSAGES> = serde_json::from_str(text).ok()?;
    if parts.truncated {
        return None;
    }
    let messages: Vec<_> = parts.items.into_iter().filter_map(|part| parse_single(part.get())).collect();
    (!messages.is_empty()).then_some(messages)
}

/// Parses the messages at the beginning of a line that has more than one value, and returns them with what follows. `None`
/// if the line does not begin with a message.
pub(crate) fn parse_leading_messages(line: &[u8]) -> Option<(Vec<RpcMessage>, &[u8])> {
    let line = without_byte_order_mark(line);
    let valid = line.utf8_chunks().next()?.valid();
    let (mut messages, mut end) = (Vec::new(), 0);
    let mut values = serde_json::Deserializer::from_str(valid).into_iter::<&RawValue>();
    while messages.len() < MAX_BATCH_MESSAGES
        && let Some(Ok(value)) = values.next()
        && let Some(message) = parse_single(value.get())
    {
        messages.push(message);
        end = values.byte_offset();
    }
    (!messages.is_empty()).then(|| (messages, line.get(end..).unwrap_or_default()))
}

/// Removes the byte order mark that some programs put before UTF-8 text.
pub(crate) fn without_byte_order_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}

fn parse_single(text: &str) -> Option<RpcMessage> {
    Some(match Envelope::parse(text)?.into_message()? {
        RpcMessage::Request(request) if !is_valid_id(request.id.get()) => {
            let id = ResponseId::from_raw(Some(&request.id));
            RpcMessage::Response { id, result: Ok(request.id) }
        }
        message => message,
    })
}

/// Whether a request may have this id: a string or a number of bounded length.
fn is_valid_id(id: &str) -> bool {
    id.len() <= MAX_ID && id.starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

/// Parses an object of a peer, as [`objects`] describes.
pub(crate) fn parse_object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> serde_json::Result<T> {
    objects::parse(raw.get())
}

/// Encodes a request.
pub(crate) fn encode_request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct RequestLine<'a> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a Value,
    }
    encode_line(&RequestLine { jsonrpc: "2.0", id, method, params })
}

/// Encodes a notification.
pub(crate) fn encode_notification(method: &str, params: Option<&Value>) -> Vec<u8> {
    #[derive(Serialize)]
    struct NotificationLine<'a> {
        jsonrpc: &'static str,
        method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<&'a Value>,
    }
    encode_line(&NotificationLine { jsonrpc: "2.0", method, params })
}

/// Encodes a response. The id is absent if that of the request is unknown.
pub(crate) fn encode_response<I: Serialize, R: Serialize, E: Serialize>(
    id: Option<&I>,
    result: Result<&R, &E>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct ResponseLine<I, R, E> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<I>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<R>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<E>,
    }
    encode_line(&ResponseLine { jsonrpc: "2.0", id, result: result.ok(), error: result.err() })
}

/// Encodes a message as one line of JSON with its newline. The types of this crate always serialize.
pub(crate) fn encode_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Replaces newlines in foreign JSON by spaces. They can only occur between values, where they have no meaning, because
/// strings escape them.
pub(crate) fn without_newlines(raw: Box<RawValue>) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw;
    }
    RawValue::from_string(raw.get().replace(['\n', '\r'], " ")).unwrap_or(raw)
}

/// Parses the id of a request: a string or an integer of at most [`MAX_CLIENT_ID`] bytes, since it is repeated and kept.
pub(crate) fn parse_id(id: &str) -> Option<RequestId> {
    if id.len() <= MAX_CLIENT_ID { serde_json::from_str(id).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match parse_messages(text.as_bytes()).as_deref() {
            None => "none",
            Some([RpcMessage::Response { id: ResponseId::Other(_) | ResponseId::Absent, .. }]) => "stray",
            Some([RpcMessage::Response { result: Ok(_), .. }]) => "answer",
            Some([RpcMessage::Response { result: Err(_), .. }]) => "error",
            Some([RpcMessage::Request(_)]) => "ask",
            Some([RpcMessage::Notification { .. }]) => "tell",
            Some(_) => "several",
        }
    }

    #[test]
    fn messages_at_the_beginning_of_a_line_are_read() {
        let one = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        for (line, count, rest) in [
            (format!("{one}{one}"), 2, ""),
            (format!("\u{feff}{one} {one}"), 2, ""),
            (format!("{one}{}", &one[..20]), 1, &one[..20]),
            (format!("{one} trailing"), 1, " trailing"),
            (format!("{one}{{}}"), 1, "{}"),
        ] {
            let (messages, left) = parse_leading_messages(line.as_bytes()).unwrap();
            assert_eq!((messages.len(), left), (count, rest.as_bytes()), "{line}");
        }
        let many = one.repeat(MAX_BATCH_MESSAGES + 1);
        let (messages, left) = parse_leading_messages(many.as_bytes()).unwrap();
        assert_eq!((messages.len(), left), (MAX_BATCH_MESSAGES, one.as_bytes()));
        for none in ["", "{}", "hello", &format!("x {one}"), &format!("{{}}{one}"), &one[..20]] {
            assert!(parse_leading_messages(none.as_bytes()).is_none(), "{none}");
        }
    }

    #[test]
    fn the_table_of_messages() {
        for (text, expect) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "answer"),
            (r#"{"id":7,"result":null}"#, "answer"),
            (r#"{"id":7,"result":null,"error":{"code":-1}}"#, "error"),
            (r#"{"id":7,"result":{},"error":[]}"#, "answer"),
            (r#"{"id":7,"error":{"code":-1,"code":-2}}"#, "none"),
            (r#"{"id":7,"error":null}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":7}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":7,"error":null}"#, "error"),
            (r#"[{"jsonrpc":"2.0","id":7}]"#, "error"),
            (r#"{"jsonrpc":"2.0"}"#, "none"),
            (r#"{"level":"info","id":7}"#, "none"),
            (r#"{"jsonrpc":2.0,"id":7,"result":{}}"#, "answer"),
            (r#"{"jsonrpc":2,"id":7,"result":{}}"#, "answer"),
            (r#"{"jsonrpc":["2.0"],"id":7,"result":{}}"#, "answer"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1}}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, "answer"),
            (r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","result":{}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "ask"),
            (r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, "tell"),
            (r#"[{"method":"a"},{"id":1,"result":{}}]"#, "several"),
            ("[]", "none"),
            (r#"[[7, "ping"]]"#, "none"),
            (r#"[[7, "ping"], {"id":1,"result":{}}]"#, "answer"),
            ("\u{feff}{\"id\":1,\"result\":{}}", "answer"),
            ("{}", "none"),
            ("hello", "none"),
            ("", "none"),
            ("7", "none"),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}} trailing"#, "none"),
        ] {
            assert_eq!(kind(text), expect, "{text}");
        }
        assert_eq!(kind(&format!("[{}]", vec![r#"{"method":"a"}"#; 101].join(","))), "none");
        assert!(parse_messages(b"\xff\xfe").is_none());
    }

    #[test]
    fn an_error_in_any_form_keeps_its_texts() {
        for (error, code, message) in [
            (r#""boom""#, 0, "boom"),
            ("[]", 0, "[]"),
            ("7", 0, "7"),
            (r#"{"code":-1,"message":null,"data":"boom"}"#, -1, "boom"),
            (r#"{"code":-1,"data":{"a":1}}"#, -1, r#"{"a":1}"#),
            (r#"{"code":"E42","message":"boom"}"#, 0, "E42: boom"),
            (r#"{"code":-32603.0,"message":"boom"}"#, -32603, "boom"),
            (r#"{"code":-9223372036854775808,"message":"boom"}"#, 0, "-9223372036854775808: boom"),
            (r#"{"code":"-32603","message":"boom"}"#, -32603, "boom"),
            (r#"{"message":{"text":"boom"}}"#, 0, r#"{"text":"boom"}"#),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":3,"error":{error}}}"#);
            let RpcMessage::Response { result: Err(found), .. } =
                parse_messages(text.as_bytes()).unwrap().remove(0)
            else {
                panic!("{error}")
            };
            assert_eq!((found.code, found.message.as_str()), (code, message), "{error}");
        }
        let strict = |text: &str| Envelope::parse(text).unwrap().is_strict();
        assert!(!strict(r#"{"jsonrpc":2.0,"id":3,"result":{}}"#));
        assert!(!strict(r#"{"jsonrpc":"2.0","id":3}"#));
        assert!(strict(r#"{"jsonrpc":"2\u002e0","id":3,"result":{}}"#));
        assert!(strict(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"m"}}"#));
        assert!(!strict(r#"{"jsonrpc":"2.0","id":3,"error":"boom"}"#), "what clients send is not guessed");
    }

    #[test]
    fn equal_ids_match_in_every_form() {
        let id = |text: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{text},"result":{{}}}}"#);
            match parse_messages(text.as_bytes()).unwrap().remove(0) {
                RpcMessage::Response { id, .. } => id,
                other => panic!("{text}: {other:?}"),
            }
        };
        for text in ["3", "3.0", "3.000", "3e0", "30e-1", "\"3\"", "\"3.0\"", "\"\\u0033\""] {
            assert_eq!(id(text), ResponseId::Number(3), "{text}");
        }
        assert_eq!(id("18446744073709551615"), ResponseId::Number(u64::MAX));
        for text in [
            "-3",
            "3.5",
            "\"\"",
            "\"x\"",
            "\"+3\"",
            "\" 3\"",
            "\"0x3\"",
            "\"\\\"3\\\"\"",
            "[3]",
            "{}",
            "true",
            "1e300",
            "9007199254740993.0",
            "\"NaN\"",
            "\"1e999\"",
        ] {
            assert_eq!(id(text), ResponseId::Other(text.to_owned()), "{text}");
        }
        assert_eq!(id("null"), ResponseId::Absent);
        assert!(id(&format!("\"{}\"", "x".repeat(1000))).to_string().chars().count() <= MAX_ID + 1);
    }

    #[test]
    fn foreign_json_fits_on_one_line_unchanged() {
        let long = "x\"\\\n\u{1}é".repeat(4096);
        for text in [
            "{\"a\": 1}".to_owned(),
            serde_json::json!({ "a": long, "b": [1.50, null, {}] }).to_string(),
            format!("[{}1]", "1.50,\r\n ".repeat(4096)),
            format!("[{}1.50]", "1e400,".repeat(4096)),
            "[1,\n2]".to_owned(),
        ] {
            let raw = without_newlines(RawValue::from_string(text.clone()).unwrap());
            let bytes = encode_line(&[&raw]);
            assert_eq!(bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count(), 1, "one line");
            let plain = |text: &str| text.replace(['\r', '\n', ' '], "");
            assert_eq!(plain(std::str::from_utf8(&bytes).unwrap()), plain(&format!("[{text}]")));
        }
    }
}
