//! Parses messages of a client, and creates the error responses to invalid ones.
//!
//! | input | response |
//! |---|---|
//! | not UTF-8 or not JSON, and [`salvage`] finds no request in it | -32700 without an id |
//! | an unparseable request with a readable id | `input_invalid` with its id, see [`salvage`] |
//! | an array | -32600, because revisions since 2025-06-18 have no batches |
//! | an object that is not a message, or has duplicate members | -32600, with the member, and its id if that is valid |
//! | a request with an id longer than [`MAX_CLIENT_ID`] | -32600 without an id |
//! | a request with invalid `params` for its method | -32602, with the member |
//! | a request with the id of an unfinished request | -32600 with that id |
//! | a response without a pending request, an unknown notification | none |

use std::sync::Arc;

use rmcp::model::{ClientCapabilities, ErrorData, ProgressToken, RequestId, RequestMetaObject};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolbay_policy::excerpt::one_line;

use super::bounded::BoundedMap;
use super::bounds::MAX_CLIENT_ID;
use super::members::Members;
use super::message::{self, Envelope, ResponseId, RpcMessage, RpcResult};
use super::objects;
use super::salvage::{self, SalvagedMessage};

/// Longest description of what is wrong with a message, in characters. It may quote the message.
const MAX_PROBLEM: usize = 300;
/// The member of `_meta` with the client's capabilities (2026-07-28).
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The notification that cancels a request.
pub(crate) const CANCELLED: &str = "notifications/cancelled";
/// The members of a message that decide what it is. None of them may occur twice.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
/// Most members of a message that are searched for one that occurs twice.
const MAX_MEMBERS: usize = 64;

/// A message of a client.
#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// A request.
    Request(ClientRequest),
    /// A notification.
    Notification { method: String, params: Option<Box<RawValue>> },
    /// A response.
    Response { id: ResponseId, result: RpcResult },
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
        let params = self.params.as_deref().map_or("{}", RawValue::get);
        objects::parse(params).map_err(|error| self.invalid_params(&error.to_string()))
    }

    /// Whether the request is the handshake of a legacy version. In 2026-07-28, `initialize` is an unknown method.
    pub(crate) fn is_handshake(&self) -> bool {
        self.method == "initialize" && (self.meta.protocol_version().is_none() || self.subject.is_some())
    }

    /// The error for invalid parameters. `problem` names the member.
    pub(crate) fn invalid_params(&self, problem: &str) -> ErrorData {
        let (method, problem) = (one_line(&self.method, MAX_PROBLEM), one_line(problem, MAX_PROBLEM));
        ErrorData::invalid_params(format!("invalid `params` for `{method}`: {problem}"), None)
    }
}

impl RequestHead<'_> {
    /// The `_meta` object, with the capabilities of the client in the form that the library reads.
    fn take_meta(&mut self) -> RequestMetaObject {
        let mut meta = self.meta.take().unwrap_or_default();
        let declared = meta.0.0.get(CLIENT_CAPABILITIES).map(ToString::to_string);
        // Empty lists in place of objects.
        if let Some(declared) = declared.filter(|_| meta.client_capabilities().is_none())
            && let Ok(capabilities) = objects::parse::<ClientCapabilities>(&declared)
        {
            meta.set_client_capabilities(capabilities);
        }
        meta
    }
}

impl InvalidMessage {
    fn new(kind: InvalidKind, error: ErrorData, id: Option<RequestId>) -> Box<Self> {
        Box::new(Self { kind, error, id })
    }
}

/// The id as text in place of a number, or the other way round, if one of them is what some clients make of the other.
pub(crate) fn other_form(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Number(number) => Some(RequestId::String(number.to_string().into())),
        RequestId::String(text) => {
            text.parse().ok().filter(|number: &i64| number.to_string() == **text).map(RequestId::Number)
        }
    }
}

/// The id of the request that a `notifications/cancelled` cancels. Its other members, such as the reason, are not read: none
/// of them can undo the cancellation.
pub(crate) fn cancelled_request_id(params: Option<&RawValue>) -> Option<RequestId> {
    let id = Members::read(params?, &["requestId"]).ok()?.raw("requestId")?;
    message::parse_id(id.get())
}

/// The progress token of a request. One that is too long to repeat, or has another type, costs only the progress.
pub(crate) fn progress_token(meta: &RequestMetaObject) -> Option<ProgressToken> {
    meta.get_progress_token().filter(|ProgressToken(token)| match token {
        RequestId::Number(_) => true,
        RequestId::String(text) => text.len() <= MAX_CLIENT_ID,
    })
}

/// Parses one message.
///
/// # Errors
/// The input is not a valid message.
pub(crate) fn parse_message(bytes: &[u8]) -> Result<ClientMessage, Box<InvalidMessage>> {
    let bytes = message::without_byte_order_mark(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return parse_salvaged(bytes, "not valid UTF-8") };
    match salvage::json_error(text) {
        Some(why) => parse_salvaged(bytes, &why),
        None => parse_json(text),
    }
}

/// Parses a message that is valid JSON.
fn parse_json(text: &str) -> Result<ClientMessage, Box<InvalidMessage>> {
    let envelope =
        Envelope::parse(text).filter(Envelope::is_strict).ok_or_else(|| malformed_message(text, None))?;
    match envelope.into_message() {
        Some(RpcMessage::Request(raw)) => {
            let id = message::parse_id(raw.id.get()).ok_or_else(|| malformed_message(text, None))?;
            let mut head: RequestHead<'_> = match &raw.params {
                Some(params) if params.get().starts_with(['{', '[']) => match message::parse_object(params) {
                    Ok(head) => head,
                    // A list is reported as invalid parameters.
                    Err(_) if params.get().starts_with('[') => RequestHead::default(),
                    Err(error) => return Err(malformed_message(text, Some(&format!("`params`: {error}")))),
                },
                Some(_) | None => RequestHead::default(),
            };
            let arguments = head.arguments.filter(|_| raw.method == "tools/call");
            let arguments = arguments.map(|raw| if is_empty_list(raw) { "{}" } else { raw.get() });
            Ok(ClientMessage::Request(ClientRequest {
                id,
                subject: head.subject(&raw.method),
                arguments: arguments.map(Into::into),
                meta: head.take_meta(),
                method: raw.method,
                params: raw.params,
            }))
        }
        Some(RpcMessage::Notification { method, params }) => {
            Ok(ClientMessage::Notification { method, params })
        }
        Some(RpcMessage::Response { id, result }) => Ok(ClientMessage::Response { id, result }),
        None => Err(malformed_message(text, None)),
    }
}

/// Whether a value is `[]`, which stands for arguments without members.
fn is_empty_list(raw: &RawValue) -> bool {
    let inside = raw.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
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
        Some(SalvagedMessage::Cancellation(id)) => {
            let params = to_raw_value(&json!({ "requestId": id })).ok();
            return Ok(ClientMessage::Notification { method: CANCELLED.to_owned(), params });
        }
        Some(SalvagedMessage::NoReply) => InvalidMessage::new(InvalidKind::NoReply, no_json(), None),
        None => InvalidMessage::new(InvalidKind::NotAMessage, no_json(), None),
    })
}

/// Why these members make no message.
fn describe_problem(members: &Members<'_>) -> &'static str {
    let error = members.raw("error");
    let answers = members.raw("result").is_some() || error.is_some();
    match (members.raw("jsonrpc"), members.raw("method"), members.raw("id")) {
        (None, ..) => "`jsonrpc` is missing",
        (Some(version), ..) if version.get() != r#""2.0""# => "`jsonrpc` is not \"2.0\"",
        (_, Some(method), _) if !method.get().starts_with('"') => "`method` is not a string",
        (_, Some(_), _) if answers => "`method` stands beside `result` or `error`",
        (_, None, _) if !answers => "`method` is missing",
        (.., Some(id)) if id.get().len() > MAX_CLIENT_ID => "`id` has more than 1024 bytes",
        (.., Some(id)) if message::parse_id(id.get()).is_none() => "`id` is neither a string nor an integer",
        (_, Some(_), None) => "`id` is null",
        _ if error.is_some() => "`error` has no integer `code`",
        _ => "a member has an unexpected type",
    }
}

/// The first member of a message that occurs twice.
fn repeated_member(text: &str) -> Option<&'static str> {
    let members: BoundedMap<'_, MAX_MEMBERS> = serde_json::from_str(text).ok()?;
    let count = |name: &str| members.entries.iter().filter(|(key, _)| key == name).count();
    MEMBERS.into_iter().find(|name| count(name) > 1)
}

/// The error for valid JSON that is not a message. `problem` says what is wrong with its parameters.
fn malformed_message(text: &str, problem: Option<&str>) -> Box<InvalidMessage> {
    let text = text.trim_ascii_start();
    if text.starts_with('[') {
        let error = "the protocol no longer supports batches; send each message separately";
        return InvalidMessage::new(InvalidKind::NotAMessage, ErrorData::invalid_request(error, None), None);
    }
    let refuse = |problem: &str| {
        let problem = one_line(problem, MAX_PROBLEM);
        ErrorData::invalid_request(format!("the message is not valid JSON-RPC 2.0: {problem}"), None)
    };
    if !text.starts_with('{') {
        return InvalidMessage::new(InvalidKind::NotAMessage, refuse("it is not an object"), None);
    }
    let repeated = repeated_member(text).map(|name| format!("`{name}` occurs twice"));
    let members = Members::parse(text, &["jsonrpc", "id", "method", "result", "error"]).ok();
    let problem = problem.or(repeated.as_deref());
    let problem = problem.unwrap_or_else(|| members.as_ref().map_or("", describe_problem));
    let error = refuse(problem);
    let Some(members) = members else {
        return InvalidMessage::new(InvalidKind::NotAMessage, error, None);
    };
    let id = members.raw("id");
    // Over stdio, only a request gets a response: an object with a method and an id, or with neither.
    let asks = members.raw("method").is_some() == id.is_some();
    let kind = if asks { InvalidKind::NotAMessage } else { InvalidKind::NoReply };
    InvalidMessage::new(kind, error, id.and_then(|id| message::parse_id(id.get())))
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

    #[test]
    fn a_refusal_names_the_member() {
        for (text, part) in [
            (r#"{"id":1,"method":"ping"}"#, "`jsonrpc` is missing"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, "`jsonrpc` is not \"2.0\""),
            (r#"{"jsonrpc":"2.0","id":1}"#, "`method` is missing"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "`method` is not a string"),
            (r#"{"jsonrpc":"2.0","id":[],"method":"ping"}"#, "`id` is neither a string nor an integer"),
            (r#"{"jsonrpc":"2.0","id":3.5,"method":"ping"}"#, "`id` is neither a string nor an integer"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "`id` is null"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, "`method` stands beside"),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}"#, "`error` has no integer `code`"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}"#, "`method` occurs twice"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#, "`params` occurs twice"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":7}}"#,
                "`params`: `_meta`: invalid type: integer `7`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{},"arguments":{}}}"#,
                "`params`: duplicate field `arguments`",
            ),
            ("7", "it is not an object"),
        ] {
            let invalid = parse_message(text.as_bytes()).unwrap_err();
            assert!(invalid.error.message.contains(part), "{text}: {}", invalid.error.message);
        }
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":"{}"}}}}"#,
            "x".repeat(5000)
        );
        let invalid = parse_message(long.as_bytes()).unwrap_err();
        assert!(invalid.error.message.chars().count() < 2 * MAX_PROBLEM);
    }

    #[test]
    fn empty_lists_stand_for_empty_objects() {
        let call = |params: &str| {
            parse_request(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#))
        };
        assert_eq!(call(r#"{"name":"t","arguments":[ ]}"#).arguments.as_deref(), Some("{}"));
        assert_eq!(call(r#"{"name":"t","arguments":[1]}"#).arguments.as_deref(), Some("[1]"));
        assert!(call(r#"{"name":"t","_meta":[]}"#).meta.is_empty());
        for list in ["[]", "[ ]", "[\n]"] {
            assert!(call(list).params::<rmcp::model::EmptyObject>().is_ok(), "{list}");
        }
        assert!(call("[1]").params::<rmcp::model::EmptyObject>().is_err());
        let meta = format!(
            r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","{CLIENT_CAPABILITIES}":{{"elicitation":[],"roots":[]}}}}}}"#
        );
        let capabilities = call(&meta).meta.client_capabilities().unwrap();
        assert!(capabilities.elicitation.is_some() && capabilities.sampling.is_none());
        let empty = call(&meta.replace(r#"{"elicitation":[],"roots":[]}"#, "[]")).meta.client_capabilities();
        assert_eq!(empty, Some(ClientCapabilities::default()));
    }

    #[test]
    fn only_the_request_id_decides_about_a_cancellation() {
        let cancelled = |params: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
            match parse_message(text.as_bytes()) {
                Ok(ClientMessage::Notification { params, .. }) => cancelled_request_id(params.as_deref()),
                other => panic!("{params}: {other:?}"),
            }
        };
        // The last ones are read by no JSON parser.
        for odd in ["null", "5", "[]", r#"{"x":1}"#, "true", r#""why""#, r#""\ud800""#, "NaN", "[1e400]"] {
            for member in ["reason", "_meta", "other"] {
                let params = format!(r#"{{"{member}":{odd},"requestId":50}}"#);
                assert_eq!(cancelled(&params), Some(RequestId::Number(50)), "{params}");
            }
        }
        assert_eq!(cancelled(r#"{"requestId":"a"}"#), Some(RequestId::String("a".into())));
        for invalid in [
            r#""params":{"requestId":1,"requestId":2,"reason":NaN}"#,
            r#""params":{"reason":NaN}"#,
            r#""params":[{"requestId":1},NaN]"#,
            r#""params":{"requestId":NaN}"#,
            r#""params":{"reason":NaN},"requestId":1"#,
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled",{invalid}}}"#);
            assert_eq!(parse_message(text.as_bytes()).unwrap_err().kind, InvalidKind::NoReply, "{text}");
        }
        let long = format!(r#"{{"requestId":"{}"}}"#, "i".repeat(MAX_CLIENT_ID));
        for none in
            ["{}", "[50]", "null", "50", r#"{"requestId":{}}"#, r#"{"requestId":1,"requestId":2}"#, &long]
        {
            assert_eq!(cancelled(none), None, "{none:.50}");
        }
    }

    #[test]
    fn a_notification_is_read_whatever_its_params_are() {
        for params in
            ["null", "5", "[]", "[1]", "{}", r#""x""#, r#"{"_meta":5,"progress":"x","progressToken":{}}"#]
        {
            for method in ["initialized", "progress", "roots/list_changed", "unknown"] {
                let text =
                    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#);
                let message = parse_message(text.as_bytes());
                assert!(matches!(message, Ok(ClientMessage::Notification { .. })), "{text}");
            }
        }
    }

    #[test]
    fn what_is_repeated_to_a_client_is_bounded() {
        let request = |id: &str, token: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
            )
        };
        let (most, long) = (json_text(MAX_CLIENT_ID - 2), json_text(MAX_CLIENT_ID - 1));
        assert!(matches!(parse_request(&request(&most, "1")).id, RequestId::String(_)));
        for text in [
            request(&long, "1"),
            format!(r#"{{"jsonrpc":"1.0","id":{long},"method":"ping"}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping","params":NaN}}"#),
        ] {
            assert_eq!(parse_message(text.as_bytes()).unwrap_err().id, None, "{text:.60}");
        }
        let refused = parse_message(request(&long, "1").as_bytes()).unwrap_err().error.message;
        assert!(refused.contains(&format!("`id` has more than {MAX_CLIENT_ID} bytes")), "{refused}");
        let token = |token: &str| progress_token(&parse_request(&request("1", token)).meta);
        assert!(token("0").is_some() && token(&json_text(MAX_CLIENT_ID)).is_some());
        for none in ["null", "{}", "[]", "1.5", &json_text(MAX_CLIENT_ID + 1)] {
            assert!(token(none).is_none(), "{none:.50}");
        }
    }

    /// A JSON string with `length` characters.
    fn json_text(length: usize) -> String {
        format!("\"{}\"", "i".repeat(length))
    }

    #[test]
    fn an_id_has_another_form() {
        let text = |id: &str| RequestId::String(id.into());
        assert_eq!(other_form(&RequestId::Number(3)), Some(text("3")));
        assert_eq!(other_form(&text("3")), Some(RequestId::Number(3)));
        for other in ["", "x", "03", "+3", "3.0", " 3"] {
            assert_eq!(other_form(&text(other)), None, "{other}");
        }
    }
}
