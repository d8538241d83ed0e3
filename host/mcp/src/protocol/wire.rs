//! JSON-RPC, one message at a time. An answer is taken for what was asked: nothing guesses what a result may be, so one
//! odd tool in a list, or one odd block in a result, costs nothing but itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolbay_policy::text::one_line;

use super::bounded::First;
use super::bounds::{MAX_BATCH, MAX_HEARD};

/// The method is not one of ours.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are not sound.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Longest id of a request of a server that is answered, in bytes: it is repeated in the answer.
const MAX_ID: usize = 256;
/// The version of the protocol is not spoken (2026-07-28).
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// A message of a server.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to a request of ours.
    Answer { id: u64, result: Result<Box<RawValue>, RpcError> },
    /// A request.
    Ask(Question),
    /// A notification.
    Tell { method: String, params: Option<Box<RawValue>> },
    /// An answer to nothing that we asked.
    Stray,
}

/// A server's request.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) id: Box<RawValue>,
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

/// An error that a server answered.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    /// As it came: what is in it is read where it is asked for.
    #[serde(default)]
    pub(crate) data: Option<Box<RawValue>>,
}

impl RpcError {
    /// For a message of ours, out of which values of secrets are still to be taken.
    pub(crate) fn shown(&self) -> String {
        format!("error {}: {}", self.code, one_line(&self.message, MAX_HEARD))
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// Reads the messages of one text: one, or a batch. `None`: it is no JSON-RPC.
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
    if !text.starts_with('{') {
        return None;
    }
    let Envelope { id, method, params, result, error } = serde_json::from_str(text).ok()?;
    let params = params.map(ToOwned::to_owned);
    match (method, id) {
        (Some(_), Some(id)) if !is_id(id.get()) => Some(Message::Stray),
        (Some(method), Some(id)) => Some(Message::Ask(Question { id: id.to_owned(), method, params })),
        (Some(method), None) => Some(Message::Tell { method, params }),
        (None, id) => {
            let result = match (result, error) {
                (_, Some(error)) => Err(error),
                (Some(result), None) => Ok(result.to_owned()),
                (None, None) => return None,
            };
            // What we asked has a number, written plainly.
            Some(match id.and_then(|id| id.get().parse().ok()) {
                Some(id) => Message::Answer { id, result },
                None => Message::Stray,
            })
        }
    }
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

/// The answer to a server's request.
pub(crate) fn answer(id: &RawValue, result: Result<Value, (i64, String)>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failed {
        code: i64,
        message: String,
    }
    #[derive(Serialize)]
    struct Answer<'a> {
        jsonrpc: &'static str,
        id: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failed>,
    }
    let (result, error) = match result {
        Ok(result) => (Some(result), None),
        Err((code, message)) => (None, Some(Failed { code, message })),
    };
    line(&Answer { jsonrpc: "2.0", id, result, error })
}

/// JSON without line breaks. What is made of our own types can be written.
fn line(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match read(text.as_bytes()).as_deref() {
            None => "none",
            Some([Message::Answer { result: Ok(_), .. }]) => "answer",
            Some([Message::Answer { result: Err(_), .. }]) => "error",
            Some([Message::Ask(_)]) => "ask",
            Some([Message::Tell { .. }]) => "tell",
            Some([Message::Stray]) => "stray",
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
}
