//! A message out of the bytes of a client: what it is, or what is to be answered to what it is not.
//!
//! | what came | answer |
//! |---|---|
//! | nothing but white space | none |
//! | no UTF-8, no JSON, and no request that [`salvage`] finds in it | -32700, without an id |
//! | a request that no parser reads | `input_invalid` under its id, see [`salvage`] |
//! | an array | -32600: no batches since 2025-06-18 |
//! | an object with an `id` that is no message | -32600 with that id, if it is one |
//! | a request whose `params` are not those of its method | -32602 |
//! | a request with the id of one that is not answered yet | -32600 with that id |
//! | an answer to nothing, an unknown notification | none |

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, RequestId};
use rmcp::service::{RequestContext, RxJsonRpcMessage};
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::protocol::salvage::{self, Salvaged};

/// A mark that some editors put before UTF-8.
const BOM: &[u8] = "\u{feff}".as_bytes();

/// The arguments of a call as the client wrote them: parsing loses keys that stand twice, and digits.
#[derive(Debug, Clone)]
pub(crate) struct RawArguments(pub(crate) Arc<str>);

/// What bytes are that are no message.
#[derive(Debug)]
pub(crate) enum Bad {
    /// Nothing is to be answered.
    Silent,
    /// This, to this request.
    Answer(Box<(ErrorData, Option<RequestId>)>),
}

impl Bad {
    /// What is answered to a request, or to nobody.
    pub(crate) fn answer(error: ErrorData, id: Option<RequestId>) -> Self {
        Self::Answer(Box::new((error, id)))
    }
}

/// What a message is about, read in one pass over its text before the library takes it apart.
#[derive(Debug, Deserialize)]
pub(crate) struct Head<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Params<'a>,
}

/// What is looked at of a message's `params`, whatever they are.
#[derive(Debug, Default)]
struct Params<'a> {
    arguments: Option<&'a RawValue>,
    protocol_version: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    /// That of a message; `None`: it is none, or it says something twice that must be clear.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        // An array would be taken for the fields in their order.
        text.trim_ascii_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
    }

    /// The arguments of a call, as they stand there.
    pub(crate) fn arguments(&self) -> Option<&'a str> {
        let is_call = self.method.as_deref() == Some("tools/call");
        self.params.arguments.filter(|_| is_call).map(RawValue::get)
    }

    /// The version that it asks for, if it begins a session of before 2026-07-28.
    pub(crate) fn begins(&self) -> Option<String> {
        let version =
            self.params.protocol_version.filter(|_| self.method.as_deref() == Some("initialize"))?;
        serde_json::from_str(version.get()).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Params<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

/// Looks through `params`; what is no object has nothing.
struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Params<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params<'de>, A::Error> {
        let mut params = Params::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let field = match &*key {
                "arguments" => &mut params.arguments,
                "protocolVersion" => &mut params.protocol_version,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if field.replace(map.next_value()?).is_some() {
                return Err(A::Error::custom("a key that stands twice"));
            }
        }
        Ok(params)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Params<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Params::default())
    }

    fn visit_unit<E>(self) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Params<'de>, E> {
        Ok(Params::default())
    }
}

impl RawArguments {
    /// Those of a request, however it came.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let over_http = || context.extensions.get::<axum::http::request::Parts>()?.extensions.get::<Self>();
        context.extensions.get::<Self>().or_else(over_http).cloned()
    }
}

/// Reads one message.
pub(crate) fn read(bytes: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Bad> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Bad::Silent);
    }
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return salvaged(bytes, "it is not UTF-8") };
    let Ok(mut message) = serde_json::from_str::<RxJsonRpcMessage<RoleServer>>(text) else {
        return match serde_json::from_str(text) {
            Ok(json) => Err(what_is_wrong(&json)),
            Err(error) => salvaged(bytes, &error.to_string()),
        };
    };
    if let JsonRpcMessage::Request(request) = &mut message {
        match &mut request.request {
            ClientRequest::CallToolRequest(call) if call.params.arguments.is_some() => {
                if let Some(arguments) = Head::read(text).and_then(|head| head.arguments()) {
                    call.extensions_mut().insert(RawArguments(arguments.into()));
                }
            }
            ClientRequest::CustomRequest(custom) if is_known(&custom.method) => {
                let text = format!("the `params` of `{}` are not what it takes", custom.method);
                return Err(Bad::answer(ErrorData::invalid_params(text, None), Some(request.id.clone())));
            }
            _ => {}
        }
    }
    Ok(message)
}

/// Methods that the library knows: a request of one of them that it does not understand has other parameters.
fn is_known(method: &str) -> bool {
    const KNOWN: [&str; 18] = [
        "initialize",
        "ping",
        "server/discover",
        "completion/complete",
        "logging/setLevel",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    ];
    KNOWN.contains(&method)
}

/// What comes of bytes that no parser reads, for `why`.
fn salvaged(bytes: &[u8], why: &str) -> Result<RxJsonRpcMessage<RoleServer>, Bad> {
    match salvage::salvage(bytes, why) {
        Some(Salvaged::Call { text, arguments }) => {
            let mut message = read(text.as_bytes())?;
            if let JsonRpcMessage::Request(request) = &mut message {
                request.request.extensions_mut().insert(arguments);
            }
            Ok(message)
        }
        Some(Salvaged::Request(answer)) => {
            let (error, id) = *answer;
            Err(Bad::answer(error, Some(id)))
        }
        Some(Salvaged::Unasked) => Err(Bad::Silent),
        None => {
            Err(Bad::answer(ErrorData::parse_error(format!("a message that is no JSON: {why}"), None), None))
        }
    }
}

fn what_is_wrong(message: &Value) -> Bad {
    let invalid = |text: &'static str, id| Bad::answer(ErrorData::invalid_request(text, None), id);
    match message {
        Value::Array(_) => invalid("batches are not taken: one message a line", None),
        Value::Object(message) => {
            let id = message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
            // What answers and what is told is not answered.
            let asks = message.contains_key("method") || !message.contains_key("id");
            match (id, asks) {
                (None, true) if message.contains_key("method") && !message.contains_key("id") => Bad::Silent,
                (id, true) => invalid("a message that is none of JSON-RPC 2.0", id),
                (_, false) => Bad::Silent,
            }
        }
        _ => invalid("a message that is no object", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stay_as_they_were_written() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n": 12345678901234567890123, "a":1, "a":2}}}"#;
        let message = read(text.as_bytes()).unwrap();
        let JsonRpcMessage::Request(request) = message else { panic!("{message:?}") };
        let ClientRequest::CallToolRequest(call) = &request.request else { panic!("{request:?}") };
        let raw = call.extensions().get::<RawArguments>().unwrap();
        assert_eq!(&*raw.0, r#"{"n": 12345678901234567890123, "a":1, "a":2}"#);
    }

    #[test]
    fn a_head_says_what_a_message_is_about_and_nothing_it_does_not_say() {
        let read = |text: &'static str| {
            Head::read(text).map(|head| (head.arguments().map(ToOwned::to_owned), head.begins()))
        };
        let text = |text: &str| Some(text.to_owned());
        for (message, expect) in [
            (
                r#"{"method":"tools/call","params":{"name":"t","arguments":{"a": 1}}}"#,
                Some((text(r#"{"a": 1}"#), None)),
            ),
            (r#" {"params":{"arguments":7},"method":"tools\/call"}"#, Some((text("7"), None))),
            (r#"{"method":"tools/list","params":{"arguments":{}}}"#, Some((None, None))),
            (r#"{"method":"initialize","params":{"protocolVersion":"x"}}"#, Some((None, text("x")))),
            (r#"{"method":"initialize","params":{"protocolVersion":7}}"#, Some((None, None))),
            (r#"{"method":"tools/call","params":{"protocolVersion":{"a":[1]}}}"#, Some((None, None))),
            (r#"{"method":"tools/call","params":[{"arguments":1}]}"#, Some((None, None))),
            (r#"{"method":"tools/call","params":null}"#, Some((None, None))),
            (r#"{"method":"tools/call","params":"arguments"}"#, Some((None, None))),
            (r#"{"method":"tools/call","params":-1.5}"#, Some((None, None))),
            (r#"{"id":1,"result":{}}"#, Some((None, None))),
            ("{}", Some((None, None))),
            // What another reader could take for something else.
            (r#"{"method":"tools/list","method":"tools/call"}"#, None),
            (r#"{"method":"tools/call","params":{},"params":{}}"#, None),
            (r#"{"method":"tools/call","params":{"arguments":1,"arguments":2}}"#, None),
            (r#"["tools/call",{"arguments":{}}]"#, None),
            (r#"{"method":7}"#, None),
            ("7", None),
            ("", None),
        ] {
            assert_eq!(read(message), expect, "{message}");
        }
    }

    #[test]
    fn each_kind_of_nonsense_has_its_answer() {
        let id = |n| Some(RequestId::Number(n));
        for (bytes, expect) in [
            (&b""[..], None),
            (b" \t\r", None),
            (b"{\"jsonrpc\":\"2.0\",\"id\":9,\"nonsense\":1}", None),
            (b"\xff", Some((-32700, None))),
            (b"{", Some((-32700, None))),
            (b"[]", Some((-32600, None))),
            (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", Some((-32600, None))),
            (b"null", Some((-32600, None))),
            (b"{}", Some((-32600, None))),
            (b"{\"jsonrpc\":\"1.0\",\"id\":3,\"method\":\"ping\"}", Some((-32600, id(3)))),
            (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", Some((-32600, None))),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":5}}",
                Some((-32602, id(4))),
            ),
        ] {
            let shown = String::from_utf8_lossy(bytes);
            match (read(bytes).expect_err(&shown), expect) {
                (Bad::Silent, None) => {}
                (Bad::Answer(answer), Some((code, wanted))) => {
                    let (error, id) = *answer;
                    assert_eq!((error.code.0, id), (code, wanted), "{shown}");
                }
                (bad, expect) => panic!("{shown}: {bad:?}, not {expect:?}"),
            }
        }
    }
}
