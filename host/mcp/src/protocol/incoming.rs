//! What the bytes of a client are, or what is answered to those that are no message.
//!
//! | what came | answer |
//! |---|---|
//! | no UTF-8, no JSON, and no request that [`salvage`] finds in it | -32700, without an id |
//! | a request that no parser reads | `input_invalid` under its id, see [`salvage`] |
//! | an array | -32600: no batches since 2025-06-18 |
//! | an object with an `id` that is no message, or says something twice | -32600 with that id, if it is one |
//! | a request whose `params` are not those of its method | -32602 |
//! | a request with the id of one that is not answered yet | -32600 with that id |
//! | a response to nothing, an unknown notification | none |

use std::sync::Arc;

use rmcp::model::{CancelledNotificationParam, ErrorData, RequestId, RequestMetaObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::message::{self, Envelope, Message, RpcResult};
use super::salvage::{self, Salvaged};

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// A request.
    Request(Request),
    /// A notification.
    Notification { method: String, params: Option<Box<RawValue>> },
    /// A response; `None`: to nothing that was asked.
    Response { id: Option<u64>, result: RpcResult },
}

/// A request of a client.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    params: Option<Box<RawValue>>,
    /// What the request is about: the name of a tool, a prompt or a task, the address of a resource, or the version that a
    /// handshake asks for.
    pub(crate) subject: Option<String>,
    /// What the request says of itself.
    pub(crate) meta: RequestMetaObject,
    /// The arguments of a call as the client wrote them: parsing loses keys that occur twice, and digits.
    pub(crate) arguments: Option<Arc<str>>,
}

/// Bytes that are no message.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    pub(crate) kind: InvalidKind,
    pub(crate) error: ErrorData,
    pub(crate) id: Option<RequestId>,
}

/// Which answer bytes expect that are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidKind {
    /// A request with a sound id; only its content cannot be read.
    Request,
    /// No message at all.
    NoMessage,
    /// A notification or a response: over a pipe, it expects none.
    Unasked,
}

/// What is looked at of every request's parameters.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
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

impl Head<'_> {
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

impl Request {
    /// The parameters, as those of the method.
    ///
    /// # Errors
    /// They are others.
    pub(crate) fn params<T: DeserializeOwned>(&self) -> Result<T, ErrorData> {
        let read = match &self.params {
            Some(params) => message::object(params),
            None => serde_json::from_str("{}"),
        };
        read.map_err(|_| self.invalid_params())
    }

    /// Whether it is the handshake of a version before 2026-07-28. Another request of that name is an unknown method.
    pub(crate) fn is_handshake(&self) -> bool {
        self.method == "initialize" && (self.meta.protocol_version().is_none() || self.subject.is_some())
    }

    /// The answer to a request whose parameters are not those of its method.
    pub(crate) fn invalid_params(&self) -> ErrorData {
        ErrorData::invalid_params(format!("the `params` of `{}` are not what it takes", self.method), None)
    }
}

impl InvalidMessage {
    fn new(kind: InvalidKind, error: ErrorData, id: Option<RequestId>) -> Box<Self> {
        Box::new(Self { kind, error, id })
    }
}

/// The request that a `notifications/cancelled` names.
pub(crate) fn cancelled(params: Option<&RawValue>) -> Option<RequestId> {
    message::object::<CancelledNotificationParam>(params?).ok()?.request_id
}

/// Reads one message.
///
/// # Errors
/// It is none; says what is answered.
pub(crate) fn read(bytes: &[u8]) -> Result<ClientMessage, Box<InvalidMessage>> {
    let Ok(text) = std::str::from_utf8(bytes) else { return salvaged(bytes, "it is not UTF-8") };
    match salvage::why_unreadable(text) {
        Some(why) => salvaged(bytes, &why),
        None => read_json(text),
    }
}

/// Reads a message that is JSON.
fn read_json(text: &str) -> Result<ClientMessage, Box<InvalidMessage>> {
    let envelope = Envelope::read(text).filter(Envelope::is_strict).ok_or_else(|| malformed(text))?;
    match envelope.into_message() {
        Some(Message::Request(raw)) => {
            let id = serde_json::from_str(raw.id.get()).map_err(|_| malformed(text))?;
            let head: Head<'_> = match &raw.params {
                Some(params) if params.get().starts_with('{') => {
                    message::object(params).map_err(|_| malformed(text))?
                }
                Some(_) | None => Head::default(),
            };
            let arguments = head.arguments.filter(|_| raw.method == "tools/call");
            Ok(ClientMessage::Request(Request {
                id,
                subject: head.subject(&raw.method),
                arguments: arguments.map(|raw| raw.get().into()),
                meta: head.meta.unwrap_or_default(),
                method: raw.method,
                params: raw.params,
            }))
        }
        Some(Message::Notification { method, params }) => Ok(ClientMessage::Notification { method, params }),
        Some(Message::Response { id, result }) => Ok(ClientMessage::Response { id, result }),
        None => Err(malformed(text)),
    }
}

/// What comes of bytes that no parser reads, for `why`.
fn salvaged(bytes: &[u8], why: &str) -> Result<ClientMessage, Box<InvalidMessage>> {
    let no_json = || ErrorData::parse_error(format!("the message is no JSON: {why}"), None);
    Err(match salvage::salvage(bytes, why) {
        Some(Salvaged::Call { text, arguments }) => {
            let mut message = read_json(&text)?;
            if let ClientMessage::Request(request) = &mut message {
                request.arguments = Some(arguments);
            }
            return Ok(message);
        }
        Some(Salvaged::Request(error, id)) => InvalidMessage::new(InvalidKind::Request, error, Some(id)),
        Some(Salvaged::Unasked) => InvalidMessage::new(InvalidKind::Unasked, no_json(), None),
        None => InvalidMessage::new(InvalidKind::NoMessage, no_json(), None),
    })
}

/// What is wrong with a JSON text that is no message.
fn malformed(text: &str) -> Box<InvalidMessage> {
    #[derive(Deserialize, Default)]
    struct Members<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
    }
    let text = text.trim_ascii_start();
    if text.starts_with('[') {
        let error = "batches are not part of the protocol any more; send each message by itself";
        return InvalidMessage::new(InvalidKind::NoMessage, ErrorData::invalid_request(error, None), None);
    }
    let error = ErrorData::invalid_request("the message is not one of JSON-RPC 2.0", None);
    let members = text.starts_with('{').then(|| serde_json::from_str::<Members<'_>>(text).ok()).flatten();
    let Some(Members { id, method }) = members else {
        return InvalidMessage::new(InvalidKind::NoMessage, error, None);
    };
    // Only a request is answered over a pipe: it has a method and an id, or neither says what it is.
    let asks = method.is_some() == id.is_some();
    let kind = if asks { InvalidKind::NoMessage } else { InvalidKind::Unasked };
    InvalidMessage::new(kind, error, id.and_then(|id| serde_json::from_str(id.get()).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match read(text.as_bytes()) {
            Ok(ClientMessage::Request(request)) => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn arguments_stay_as_they_were_written() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n": 12345678901234567890123, "a":1, "a":2}}}"#;
        let arguments = request(text).arguments.unwrap();
        assert_eq!(&*arguments, r#"{"n": 12345678901234567890123, "a":1, "a":2}"#);
    }

    #[test]
    fn a_request_has_the_arguments_of_a_call_and_none_that_it_does_not_say() {
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
            assert_eq!(request(&whole).arguments, expect, "{message}");
        }
    }

    #[test]
    fn what_another_reader_could_take_for_something_else_is_no_message() {
        for (text, kind, id) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#,
                InvalidKind::NoMessage,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":{}}"#,
                InvalidKind::NoMessage,
                Some(1),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"arguments":{}}}"#,
                InvalidKind::NoMessage,
                Some(1),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, InvalidKind::NoMessage, Some(1)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, InvalidKind::Unasked, None),
            (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, InvalidKind::NoMessage, Some(7)),
            (r#"{"jsonrpc":"1.0","method":"ping"}"#, InvalidKind::Unasked, None),
            (r#"{"jsonrpc":"1.0","id":7,"result":{}}"#, InvalidKind::Unasked, Some(7)),
            (r#"["2.0",1,"ping"]"#, InvalidKind::NoMessage, None),
            ("{}", InvalidKind::NoMessage, None),
            ("7", InvalidKind::NoMessage, None),
        ] {
            let invalid = read(text.as_bytes()).unwrap_err();
            assert_eq!((invalid.kind, invalid.id), (kind, id.map(RequestId::Number)), "{text}");
        }
    }
}
