//! Parses messages of a client, and creates the error responses to invalid ones.
//!
//! | input | response |
//! |---|---|
//! | not UTF-8 or not JSON, and [`salvage`] finds no request in it | -32700 without an id |
//! | an unparseable request with a readable id | `input_invalid` with its id, see [`salvage`] |
//! | an array | -32600, because revisions since 2025-06-18 have no batches |
//! | an object that is not a message, or has duplicate members | -32600, with its id if that is valid |
//! | a request with invalid `params` for its method | -32602 |
//! | a request with the id of an unfinished request | -32600 with that id |
//! | a response without a pending request, an unknown notification | none |

use std::sync::Arc;

use rmcp::model::{CancelledNotificationParam, ErrorData, RequestId, RequestMetaObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::message::{self, Envelope, RpcMessage, RpcResult};
use super::salvage::{self, SalvagedMessage};

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// A request.
    Request(ClientRequest),
    /// A notification.
    Notification { method: String, params: Option<Box<RawValue>> },
    /// A response. The id is `None` if it cannot belong to a request of this server.
    Response { id: Option<u64>, result: RpcResult },
}

/// A request of a client.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    params: Option<Box<RawValue>>,
    /// The target of the request: the name of a tool, a prompt or a task, the URI of a resource, or the requested
    /// version of a handshake.
    pub(crate) subject: Option<String>,
    /// The `_meta` object of the request.
    pub(crate) meta: RequestMetaObject,
    /// The arguments of a call as raw text, because parsing would drop duplicate keys and digits.
    pub(crate) arguments: Option<Arc<str>>,
}

/// Input that is not a valid message, with the error response.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    pub(crate) kind: InvalidKind,
    pub(crate) error: ErrorData,
    pub(crate) id: Option<RequestId>,
}

/// Whether invalid input expects a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidKind {
    /// A request with a valid id and unreadable content.
    UnreadableRequest,
    /// Not a message at all.
    NotAMessage,
    /// A notification or a response, which gets no response over stdio.
    NoReply,
}

/// The parameters that are read of every request.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RequestHead<'a> {
    #[serde(rename = "_meta")]
    meta: Option<RequestMetaObject>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow)]
    task_id: Option<&'a RawValue>,
    #[serde(borrow)]
    protocol_version: Option<&'a RawValue>,
}

impl RequestHead<'_> {
    fn subject(&self, method: &str) -> Option<String> {
        let subject = match method {
            "tools/call" | "prompts/get" => self.name,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => self.uri,
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task_id,
            "initialize" => self.protocol_version,
            _ => None,
        };
        serde_json::from_str(subject?.get()).ok()
    }
}

impl ClientRequest {
    /// Deserializes the parameters.
    ///
    /// # Errors
    /// The parameters are invalid for the method.
    pub(crate) fn params<T: DeserializeOwned>(&self) -> Result<T, ErrorData> {
        let read = match &self.params {
            Some(params) => message::parse_object(params),
            None => serde_json::from_str("{}"),
        };
        read.map_err(|_| self.invalid_params())
    }

    /// Whether the request is the handshake of a legacy version. In 2026-07-28, `initialize` is an unknown method.
    pub(crate) fn is_handshake(&self) -> bool {
        self.method == "initialize" && (self.meta.protocol_version().is_none() || self.subject.is_some())
    }

    /// The error for invalid parameters.
    pub(crate) fn invalid_params(&self) -> ErrorData {
        ErrorData::invalid_params(format!("invalid `params` for `{}`", self.method), None)
    }
}

impl InvalidMessage {
    fn new(kind: InvalidKind, error: ErrorData, id: Option<RequestId>) -> Box<Self> {
        Box::new(Self { kind, error, id })
    }
}

/// The id of the request that a `notifications/cancelled` cancels.
pub(crate) fn cancelled_request_id(params: Option<&RawValue>) -> Option<RequestId> {
    message::parse_object::<CancelledNotificationParam>(params?).ok()?.request_id
}

/// Parses one message.
///
/// # Errors
/// The input is not a valid message.
pub(crate) fn parse_message(bytes: &[u8]) -> Result<ClientMessage, Box<InvalidMessage>> {
    let Ok(text) = std::str::from_utf8(bytes) else { return parse_salvaged(bytes, "not valid UTF-8") };
    match salvage::json_error(text) {
        Some(why) => parse_salvaged(bytes, &why),
        None => parse_json(text),
    }
}

/// Parses a message that is valid JSON.
fn parse_json(text: &str) -> Result<ClientMessage, Box<InvalidMessage>> {
    let envelope =
        Envelope::parse(text).filter(Envelope::is_strict).ok_or_else(|| malformed_message(text))?;
    match envelope.into_message() {
        Some(RpcMessage::Request(raw)) => {
            let id = serde_json::from_str(raw.id.get()).map_err(|_| malformed_message(text))?;
            let head: RequestHead<'_> = match &raw.params {
                Some(params) if params.get().starts_with('{') => {
                    message::parse_object(params).map_err(|_| malformed_message(text))?
                }
                Some(_) | None => RequestHead::default(),
            };
            let arguments = head.arguments.filter(|_| raw.method == "tools/call");
            Ok(ClientMessage::Request(ClientRequest {
                id,
                subject: head.subject(&raw.method),
                arguments: arguments.map(|raw| raw.get().into()),
                meta: head.meta.unwrap_or_default(),
                method: raw.method,
                params: raw.params,
            }))
        }
        Some(RpcMessage::Notification { method, params }) => {
            Ok(ClientMessage::Notification { method, params })
        }
        Some(RpcMessage::Response { id, result }) => Ok(ClientMessage::Response { id, result }),
        None => Err(malformed_message(text)),
    }
}

/// Salvages input that is not valid JSON, for the reason `why`.
fn parse_salvaged(bytes: &[u8], why: &str) -> Result<ClientMessage, Box<InvalidMessage>> {
    let no_json = || ErrorData::parse_error(format!("the message is not JSON: {why}"), None);
    Err(match salvage::salvage(bytes, why) {
        Some(SalvagedMessage::Call { text, arguments }) => {
            let mut message = parse_json(&text)?;
            if let ClientMessage::Request(request) = &mut message {
                request.arguments = Some(arguments);
            }
            return Ok(message);
        }
        Some(SalvagedMessage::Request(error, id)) => {
            InvalidMessage::new(InvalidKind::UnreadableRequest, error, Some(id))
        }
        Some(SalvagedMessage::NoReply) => InvalidMessage::new(InvalidKind::NoReply, no_json(), None),
        None => InvalidMessage::new(InvalidKind::NotAMessage, no_json(), None),
    })
}

/// The error for valid JSON that is not a message.
fn malformed_message(text: &str) -> Box<InvalidMessage> {
    #[derive(Deserialize, Default)]
    struct MessageMembers<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
    }
    let text = text.trim_ascii_start();
    if text.starts_with('[') {
        let error = "the protocol no longer supports batches; send each message separately";
        return InvalidMessage::new(InvalidKind::NotAMessage, ErrorData::invalid_request(error, None), None);
    }
    let error = ErrorData::invalid_request("the message is not valid JSON-RPC 2.0", None);
    let members =
        text.starts_with('{').then(|| serde_json::from_str::<MessageMembers<'_>>(text).ok()).flatten();
    let Some(MessageMembers { id, method }) = members else {
        return InvalidMessage::new(InvalidKind::NotAMessage, error, None);
    };
    // Over stdio, only a request gets a response: an object with a method and an id, or with neither.
    let asks = method.is_some() == id.is_some();
    let kind = if asks { InvalidKind::NotAMessage } else { InvalidKind::NoReply };
    InvalidMessage::new(kind, error, id.and_then(|id| serde_json::from_str(id.get()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_request(text: &str) -> ClientRequest {
        match parse_message(text.as_bytes()) {
            Ok(ClientMessage::Request(request)) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn arguments_keep_their_original_text() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n": 12345678901234567890123, "a":1, "a":2}}}"#;
        let arguments = parse_request(text).arguments.unwrap();
        assert_eq!(&*arguments, r#"{"n": 12345678901234567890123, "a":1, "a":2}"#);
    }

    #[test]
    fn only_a_call_has_arguments() {
        let text = |text: &str| Some(text.into());
        for (message, expect) in [
            (r#""method":"tools/call","params":{"name":"t","arguments":{"a": 1}}"#, text(r#"{"a": 1}"#)),
            (r#""params":{"arguments":7},"method":"tools\/call""#, text("7")),
            (r#""method":"tools/list","params":{"arguments":{}}"#, None),
            (r#""method":"tools/call","params":{"protocolVersion":{"a":[1]}}"#, None),
            (r#""method":"tools/call","params":[{"arguments":1}]"#, None),
            (r#""method":"tools/call","params":null"#, None),
            (r#""method":"tools/call","params":"arguments""#, None),
            (r#""method":"tools/call","params":-1.5"#, None),
        ] {
            let whole = format!(r#" {{"jsonrpc":"2.0","id":1,{message}}}"#);
            assert_eq!(parse_request(&whole).arguments, expect, "{message}");
        }
    }

    #[test]
    fn ambiguous_messages_are_invalid() {
        for (text, kind, id) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#,
                InvalidKind::NotAMessage,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":{}}"#,
                InvalidKind::NotAMessage,
                Some(1),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"arguments":{}}}"#,
                InvalidKind::NotAMessage,
                Some(1),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, InvalidKind::NotAMessage, Some(1)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, InvalidKind::NoReply, None),
            (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, InvalidKind::NotAMessage, Some(7)),
            (r#"{"jsonrpc":"1.0","method":"ping"}"#, InvalidKind::NoReply, None),
            (r#"{"jsonrpc":"1.0","id":7,"result":{}}"#, InvalidKind::NoReply, Some(7)),
            (r#"["2.0",1,"ping"]"#, InvalidKind::NotAMessage, None),
            ("{}", InvalidKind::NotAMessage, None),
            ("7", InvalidKind::NotAMessage, None),
        ] {
            let invalid = parse_message(text.as_bytes()).unwrap_err();
            assert_eq!((invalid.kind, invalid.id), (kind, id.map(RequestId::Number)), "{text}");
        }
    }
}
