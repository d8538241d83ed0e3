//! Messages of JSON-RPC 2.0, for both sides of the protocol: what this server reads of its clients, and what this client
//! reads of other servers. A message is parsed once; its parameters and results stay as they were written, and whoever
//! knows the method reads them. So one odd tool in a list, or one odd block in a result, costs only itself.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_policy::text::one_line;

use super::bounded::First;
use super::bounds::{MAX_BATCH, MAX_HEARD};

/// The other side does not know the method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are not those of the method.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Longest id of a server's request that is answered, in bytes: the answer repeats it.
const MAX_ID: usize = 256;
/// The other side does not speak the version of the protocol (2026-07-28).
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// A message of the other side.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request.
    Request(RawRequest),
    /// A notification.
    Notification { method: String, params: Option<Box<RawValue>> },
    /// The response to a request of ours; without an id, to nothing that we asked: our ids are plain numbers.
    Response { id: Option<u64>, result: RpcResult },
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct RawRequest {
    pub(crate) id: Box<RawValue>,
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

/// What a request was answered.
pub(crate) type RpcResult = Result<Box<RawValue>, RpcError>;

/// An error that the other side answered.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    /// As it came: what is in it is read where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

impl RpcError {
    /// For a message of ours, out of which values of secrets are still to be taken.
    pub(crate) fn shown(&self) -> String {
        format!("error {}: {}", self.code, one_line(&self.message, MAX_HEARD))
    }
}

/// The members of a message. Those that occur twice make it none.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

/// A member that is there, also if it is null.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(input).map(Some)
}

impl<'a> Envelope<'a> {
    /// Reads the members of a message; `None`: the text is no object, or no message.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        // An array would be taken for the members in their order.
        text.trim_ascii_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
    }

    /// Whether the sender keeps to the letter of JSON-RPC 2.0.
    pub(crate) fn is_strict(&self) -> bool {
        let answers = self.result.is_some() || self.error.is_some();
        let has_null_id = self.id.is_some_and(|id| id.get() == "null");
        self.jsonrpc.as_deref() == Some("2.0")
            && self.method.is_some() != answers
            && !(has_null_id && self.method.is_some())
    }

    /// The message, whose request has any id but null.
    pub(crate) fn into_message(self) -> Option<Message> {
        let Self { id, method, params, result, error, .. } = self;
        let (params, id) = (params.map(ToOwned::to_owned), id.filter(|id| id.get() != "null"));
        match (method, id) {
            (Some(method), Some(id)) => {
                Some(Message::Request(RawRequest { id: id.to_owned(), method, params }))
            }
            (Some(method), None) => Some(Message::Notification { method, params }),
            (None, id) => {
                let result = match (result, error) {
                    (_, Some(error)) => Err(error),
                    (Some(result), None) => Ok(result.to_owned()),
                    (None, None) => return None,
                };
                Some(Message::Response { id: id.and_then(|id| id.get().parse().ok()), result })
            }
        }
    }
}

/// Reads the messages of one text of a server: one, or a batch. `None`: it is no JSON-RPC.
pub(crate) fn read(text: &[u8]) -> Option<Vec<Message>> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    if !text.starts_with('[') {
        return Some(vec![message(text)?]);
    }
    let parts: First<'_, MAX_BATCH> = serde_json::from_str(text).ok()?;
    if parts.items.is_empty() || parts.more {
        return None;
    }
    parts.items.into_iter().map(|part| message(part.get())).collect()
}

fn message(text: &str) -> Option<Message> {
    Some(match Envelope::read(text)?.into_message()? {
        Message::Request(request) if !is_id(request.id.get()) => {
            Message::Response { id: None, result: Ok(request.id) }
        }
        message => message,
    })
}

/// Whether a request may have this id: a text or a number, and no book.
fn is_id(id: &str) -> bool {
    id.len() <= MAX_ID && id.starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

/// Reads an object. What has the fields of one in a row, without their names, is none: serde would take it for one.
pub(crate) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> serde_json::Result<T> {
    if raw.get().starts_with('{') {
        return serde_json::from_str(raw.get());
    }
    Err(serde::de::Error::custom("it is no object"))
}

/// A request on the wire.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct Request<'a> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a Value,
    }
    line(&Request { jsonrpc: "2.0", id, method, params })
}

/// A notification on the wire.
pub(crate) fn notification(method: &str, params: Option<&Value>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Notification<'a> {
        jsonrpc: &'static str,
        method: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<&'a Value>,
    }
    line(&Notification { jsonrpc: "2.0", method, params })
}

/// A response on the wire; without an id, to a message whose id is not known.
pub(crate) fn response<I: Serialize, R: Serialize, E: Serialize>(
    id: Option<&I>,
    result: Result<&R, &E>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<I, R, E> {
        jsonrpc: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<I>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<R>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<E>,
    }
    line(&Response { jsonrpc: "2.0", id, result: result.ok(), error: result.err() })
}

/// A message as one line of JSON, its end included. Messages of our own types can always be written.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// JSON that was written by others, as it can stand in a line: in its strings ends of lines are escaped, and between its
/// values they mean nothing.
pub(crate) fn in_line(raw: Box<RawValue>) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw;
    }
    RawValue::from_string(raw.get().replace(['\n', '\r'], " ")).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match read(text.as_bytes()).as_deref() {
            None => "none",
            Some([Message::Response { id: None, .. }]) => "stray",
            Some([Message::Response { result: Ok(_), .. }]) => "answer",
            Some([Message::Response { result: Err(_), .. }]) => "error",
            Some([Message::Request(_)]) => "ask",
            Some([Message::Notification { .. }]) => "tell",
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
        assert!(read(b"\xff\xfe").is_none());
    }

    #[test]
    fn what_others_wrote_goes_through_in_one_line_as_it_was() {
        let long = "x\"\\\n\u{1}é".repeat(4096);
        for text in [
            "{\"a\": 1}".to_owned(),
            serde_json::json!({ "a": long, "b": [1.50, null, {}] }).to_string(),
            format!("[{}1]", "1.50,\r\n ".repeat(4096)),
            format!("[{}1.50]", "1e400,".repeat(4096)),
            "[1,\n2]".to_owned(),
        ] {
            let raw = in_line(RawValue::from_string(text.clone()).unwrap());
            let bytes = line(&[&raw]);
            assert_eq!(bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count(), 1, "one line");
            let plain = |text: &str| text.replace(['\r', '\n', ' '], "");
            assert_eq!(plain(std::str::from_utf8(&bytes).unwrap()), plain(&format!("[{text}]")));
        }
    }
}
