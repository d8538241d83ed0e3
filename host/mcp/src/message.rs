//! A message out of the bytes of a client: what it is, or what is to be answered to what it is not.
//!
//! | what came | answer |
//! |---|---|
//! | nothing but white space | none |
//! | no UTF-8, no JSON | -32700, without an id |
//! | an array | -32600: no batches since 2025-06-18 |
//! | an object with an `id` that is no message | -32600 with that id, if it is one |
//! | a request whose `params` are not those of its method | -32602 |
//! | a request with the id of one that is not answered yet | -32600 with that id |
//! | an answer to nothing, an unknown notification | none |

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, GetExtensions, JsonRpcMessage, RequestId};
use rmcp::service::{RequestContext, RxJsonRpcMessage};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
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
    let parse_error = |text: &'static str| Bad::answer(ErrorData::parse_error(text, None), None);
    let text = std::str::from_utf8(bytes).map_err(|_| parse_error("a message that is no UTF-8"))?;
    let text = text.trim_start_matches('\u{feff}');
    let Ok(mut message) = serde_json::from_str::<RxJsonRpcMessage<RoleServer>>(text) else {
        return Err(what_is_wrong(text));
    };
    if let JsonRpcMessage::Request(request) = &mut message {
        match &mut request.request {
            ClientRequest::CallToolRequest(call) if call.params.arguments.is_some() => {
                if let Some(arguments) = arguments(text) {
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

/// Whether a message is a call.
pub(crate) fn is_call(text: &str) -> bool {
    serde_json::from_str::<Head<'_>>(text)
        .is_ok_and(|head| head.method.is_some_and(|method| method == "tools/call"))
}

/// The arguments of a call in a message, as they stand there.
pub(crate) fn arguments(text: &str) -> Option<&str> {
    let head: Head<'_> = serde_json::from_str(text).ok()?;
    head.method.filter(|method| method == "tools/call")?;
    Some(head.params?.arguments?.get())
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

fn what_is_wrong(text: &str) -> Bad {
    let invalid = |text: &'static str, id| Bad::answer(ErrorData::invalid_request(text, None), id);
    match serde_json::from_str::<Value>(text) {
        Err(_) => Bad::answer(ErrorData::parse_error("a message that is no JSON", None), None),
        Ok(Value::Array(_)) => invalid("batches are not taken: one message a line", None),
        Ok(Value::Object(message)) => {
            let id = message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
            // What answers and what is told is not answered.
            let asks = message.contains_key("method") || !message.contains_key("id");
            match (id, asks) {
                (None, true) if message.contains_key("method") && !message.contains_key("id") => Bad::Silent,
                (id, true) => invalid("a message that is none of JSON-RPC 2.0", id),
                (_, false) => Bad::Silent,
            }
        }
        Ok(_) => invalid("a message that is no object", None),
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
