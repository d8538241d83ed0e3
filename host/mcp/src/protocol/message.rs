//! JSON-RPC 2.0 messages, for the server and the client side. A message is parsed once. Its parameters and results stay
//! raw until the code that knows the method parses them. An invalid tool in a list, or an invalid block in a result,
//! therefore costs only itself.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_policy::text::one_line;

use super::bounded::BoundedList;
use super::bounds::{MAX_BATCH_MESSAGES, MAX_UNREDACTED_CHARS};

/// The method is unknown.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are invalid for the method.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Longest id of a server's request, in bytes, since the response repeats it.
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
    /// A response. The id is `None` if it cannot belong to a request of this side, whose ids are plain numbers.
    Response { id: Option<u64>, result: RpcResult },
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
    /// Describes the error for a message. The text is not redacted yet.
    pub(crate) fn describe(&self) -> String {
        format!("error {}: {}", self.code, one_line(&self.message, MAX_UNREDACTED_CHARS))
    }
}

/// The members of a message. Duplicate members make it invalid.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

/// Deserializes a member that is present, even if it is null.
fn deserialize_present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<&'de RawValue>, D::Error> {
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
        let answers = self.result.is_some() || self.error.is_some();
        let has_null_id = self.id.is_some_and(|id| id.get() == "null");
        self.jsonrpc.as_deref() == Some("2.0")
            && self.method.is_some() != answers
            && !(has_null_id && self.method.is_some())
    }

    /// Converts to a message. A request may have any id except null.
    pub(crate) fn into_message(self) -> Option<RpcMessage> {
        let Self { id, method, params, result, error, .. } = self;
        let (params, id) = (params.map(ToOwned::to_owned), id.filter(|id| id.get() != "null"));
        match (method, id) {
            (Some(method), Some(id)) => {
                Some(RpcMessage::Request(RawRequest { id: id.to_owned(), method, params }))
            }
            (Some(method), None) => Some(RpcMessage::Notification { method, params }),
            (None, id) => {
                let result = match (result, error) {
                    (_, Some(error)) => Err(error),
                    (Some(result), None) => Ok(result.to_owned()),
                    (None, None) => return None,
                };
                Some(RpcMessage::Response { id: id.and_then(|id| id.get().parse().ok()), result })
            }
        }
    }
}

/// Parses one message or a batch of a server. `None` if it is not JSON-RPC.
pub(crate) fn parse_messages(text: &[u8]) -> Option<Vec<RpcMessage>> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    if !text.starts_with('[') {
        return Some(vec![parse_single(text)?]);
    }
    let parts: BoundedList<'_, MAX_BATCH_MESSAGES> = serde_json::from_str(text).ok()?;
    if parts.items.is_empty() || parts.truncated {
        return None;
    }
    parts.items.into_iter().map(|part| parse_single(part.get())).collect()
}

fn parse_single(text: &str) -> Option<RpcMessage> {
    Some(match Envelope::parse(text)?.into_message()? {
        RpcMessage::Request(request) if !is_valid_id(request.id.get()) => {
            RpcMessage::Response { id: None, result: Ok(request.id) }
        }
        message => message,
    })
}

/// Whether a request may have this id: a string or a number of bounded length.
fn is_valid_id(id: &str) -> bool {
    id.len() <= MAX_ID && id.starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

/// Parses an object. Unlike serde, it refuses an array of the fields in order.
pub(crate) fn parse_object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> serde_json::Result<T> {
    if raw.get().starts_with('{') {
        return serde_json::from_str(raw.get());
    }
    Err(serde::de::Error::custom("expected an object"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match parse_messages(text.as_bytes()).as_deref() {
            None => "none",
            Some([RpcMessage::Response { id: None, .. }]) => "stray",
            Some([RpcMessage::Response { result: Ok(_), .. }]) => "answer",
            Some([RpcMessage::Response { result: Err(_), .. }]) => "error",
            Some([RpcMessage::Request(_)]) => "ask",
            Some([RpcMessage::Notification { .. }]) => "tell",
            Some(_) => "several",
        }
    }

    #[test]
    fn the_table_of_messages() {
        for (text, expect) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "answer"),
            (r#"{"id":7,"result":null}"#, "none"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1}}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":1e3,"result":{}}"#, "stray"),
            (r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, "ask"),
            (r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, "tell"),
            (r#"[{"method":"a"},{"id":1,"result":{}}]"#, "several"),
            ("[]", "none"),
            (r#"[[7, "ping"]]"#, "none"),
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
