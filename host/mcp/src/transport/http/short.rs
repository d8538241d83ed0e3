//! Calls that are answered with one JSON body, which the protocol leaves to the server (Streamable HTTP, "Sending Messages to
//! the Server"): those in a session that are answered at once, as most are, and those without one that want to hear of
//! nothing but the answer. A call in a session that has to wait, or says something before its answer, gets its stream of
//! events from the library.
//!
//! What is not plainly such a call is not judged here: the library answers it.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode, JsonRpcMessage,
    JsonRpcRequest, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::message::RawArguments;

const VERSION: &str = "mcp-protocol-version";
/// The headers of the protocol that a call in a session may have; others have to match what it says.
const OWN: [&str; 2] = ["mcp-session-id", VERSION];
/// Those that a call without one has to have, and what of it the last two repeat (SEP-2243).
const ALONE: [&str; 3] = [VERSION, "mcp-method", "mcp-name"];
/// What a call without a session may say of itself.
const SAID: [&str; 6] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "traceparent",
    "tracestate",
    "baggage",
];
/// The headers that the library has to see of a call that has begun.
const KEPT: [&str; 3] = [OWN[0], OWN[1], "host"];
/// What a client must take.
const BOTH: [&str; 2] = ["application/json", "text/event-stream"];

/// A message that is a call, and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    _meta: Option<RequestMetaObject>,
}

/// A call, with its arguments as they were written.
pub(super) type Plain = (JsonRpcRequest<ClientRequest>, Option<RawArguments>);

/// The call that a request of a session makes; `None`: it is another one, or there is something about it that the library
/// has to judge.
pub(super) fn in_session(parts: &Parts, body: &[u8]) -> Option<Plain> {
    let with_sessions = ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25);
    let known = |version| with_sessions.iter().any(|known| version == known.as_str());
    if !is_plain(parts, &OWN) || !parts.headers.get(VERSION).is_none_or(known) {
        return None;
    }
    // A revision, for instance, is not what it has.
    read(body, |meta, _| meta.0.0.keys().all(|key| key == "progressToken"))
}

/// The call that a request without a session makes, as above; with the name of its tool.
pub(super) fn alone(parts: &Parts, body: &[u8]) -> Option<(Plain, String)> {
    let only = |name: &str| {
        let mut all = parts.headers.get_all(name).iter();
        all.next().filter(|_| all.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let modern = ProtocolVersion::V_2026_07_28;
    let [version, method, name] = ALONE.map(only);
    // Others can be written in another way.
    let name =
        name.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)))?;
    if !is_plain(parts, &ALONE) || version != Some(modern.as_str()) || method != Some("tools/call") {
        return None;
    }
    let call = read(body, |meta, called| {
        called == name
            && meta.protocol_version().as_ref() == Some(&modern)
            && meta.missing_required_keys(&modern).is_empty()
            && meta.0.0.keys().all(|key| SAID.contains(&&**key))
    })?;
    Some((call, name.to_owned()))
}

/// Reads a call, if what it says of itself and the name of its tool are as they should be.
fn read(body: &[u8], may: impl FnOnce(&RequestMetaObject, &str) -> bool) -> Option<Plain> {
    let call: Call<'_> = serde_json::from_slice(body).ok()?;
    let meta = call.params._meta.unwrap_or_default();
    if call.jsonrpc != "2.0" || call.method != "tools/call" || !may(&meta, &call.params.name) {
        return None;
    }
    if call.params.arguments.is_some_and(|raw| !raw.get().starts_with('{')) {
        return None;
    }
    // The arguments go on as they were written, and are read once, where they are judged.
    let mut request = CallToolRequest::new(CallToolRequestParams::new(call.params.name));
    if !meta.0.0.is_empty() {
        request.extensions.insert(meta);
    }
    let raw = call.params.arguments.map(|raw| RawArguments(raw.get().into()));
    match ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), call.id) {
        JsonRpcMessage::Request(request) => Some((request, raw)),
        _ => None,
    }
}

/// Whether a request has the headers of each call, and of those of the protocol none but these.
fn is_plain(parts: &Parts, own: &[&str]) -> bool {
    let headers = &parts.headers;
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let accepts = text(ACCEPT).is_some_and(|accept| {
        let mut kinds = accept.split(',').map(str::trim);
        BOTH.iter().all(|kind| kinds.clone().any(|one| one == *kind))
            && kinds.all(|kind| BOTH.contains(&kind))
    });
    let ours = |name: &HeaderName| !name.as_str().starts_with("mcp-") || own.contains(&name.as_str());
    parts.method == Method::POST
        && accepts
        && text(CONTENT_TYPE) == Some(BOTH[0])
        && headers.keys().all(ours)
        && headers.get_all(ACCEPT).iter().count() == 1
}

/// What the library has to know of the request of a call that has begun: the call has the request itself.
pub(super) struct Rest([Option<HeaderValue>; 3]);

impl Rest {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(KEPT.map(|name| headers.get(name).cloned()))
    }

    /// A request that asks for the same.
    pub(super) fn into_parts(self) -> Parts {
        let mut parts = Request::new(()).into_parts().0;
        parts.method = Method::POST;
        parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in KEPT.into_iter().zip(self.0) {
            if let Some(value) = value {
                parts.headers.insert(HeaderName::from_static(name), value);
            }
        }
        parts
    }
}

/// The body of such a request. What it asks for has begun: no need to read it again, which may be long.
pub(super) fn begun() -> Bytes {
    Bytes::from_static(br#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#)
}

/// The answer to a request without a session. What could not be done has a status of its own, where the protocol says so.
pub(super) fn response_alone(message: &ServerJsonRpcMessage) -> Response<Body> {
    let mut response = response(message);
    if let JsonRpcMessage::Error(error) = message {
        *response.status_mut() = match error.error.code {
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
            ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
    }
    response
}

/// A message as the body of a response.
pub(super) fn response(message: &ServerJsonRpcMessage) -> Response<Body> {
    // Of text and JSON, nothing can fail to be written.
    let body = serde_json::to_vec(message).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"t","arguments":{"n": 1.50},"_meta":{"progressToken":3}}}"#;

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut parts = Rest([Some(HeaderValue::from_static("s")), None, None]).into_parts();
        for (name, value) in headers {
            parts.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        parts
    }

    #[test]
    fn a_plain_call_is_understood_as_the_library_does() {
        let (request, raw) =
            in_session(&parts(&[("mcp-protocol-version", "2025-11-25")]), CALL.as_bytes()).unwrap();
        same(request, &raw.unwrap(), CALL);
    }

    /// A call is what the library reads, but for its arguments, which are as they were written.
    fn same(ours: JsonRpcRequest<ClientRequest>, raw: &RawArguments, body: &str) {
        let theirs: ClientJsonRpcMessage = serde_json::from_str(body).unwrap();
        let theirs = serde_json::to_value(&theirs).unwrap();
        let mut ours = serde_json::to_value(ClientJsonRpcMessage::Request(ours)).unwrap();
        assert_eq!((ours["params"].get("arguments"), &*raw.0), (None, r#"{"n": 1.50}"#));
        ours["params"]["arguments"] = serde_json::from_str(&raw.0).unwrap();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_library() {
        let no_call = |headers: &[(&'static str, &str)], body: &str| {
            assert!(in_session(&parts(headers), body.as_bytes()).is_none(), "{headers:?} {body}");
        };
        for header in [
            ("accept", "application/json"),
            ("accept", "application/json, text/event-stream;q=0"),
            ("content-type", "application/json; charset=latin1"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-protocol-version", "1999-01-01"),
            ("mcp-method", "tools/list"),
            ("mcp-param-x", "1"),
        ] {
            no_call(&[header], CALL);
        }
        for (this, that) in [
            ("\"2.0\"", "\"1.0\""),
            ("tools/call", "tools/list"),
            ("\"id\":\"7\"", "\"id\":null"),
            ("\"id\":\"7\"", "\"id\":1,\"id\":2"),
            ("\"name\":\"t\"", "\"name\":7"),
            ("\"name\":\"t\"", "\"name\":\"t\",\"task\":{}"),
            ("\"name\":\"t\"", "\"name\":\"t\",\"name\":\"u\""),
            ("{\"n\": 1.50}", "[1]"),
            ("progressToken", "io.modelcontextprotocol/protocolVersion"),
        ] {
            let body = CALL.replace(this, that);
            assert_ne!(body, CALL);
            no_call(&[], &body);
        }
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

    fn whole() -> String {
        CALL.replace(r#""_meta":{"progressToken":3"#, META)
    }

    fn parts_alone(headers: &[(&'static str, &str)]) -> Parts {
        let mut all =
            vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
        all.extend(headers);
        let mut parts = parts(&all);
        if headers.iter().all(|(name, _)| *name != OWN[0]) {
            parts.headers.remove(OWN[0]);
        }
        parts
    }

    #[test]
    fn a_plain_call_without_a_session_is_understood_as_the_library_does() {
        let ((request, raw), name) = alone(&parts_alone(&[]), whole().as_bytes()).unwrap();
        assert_eq!(name, "t");
        same(request, &raw.unwrap(), &whole());
        assert!(
            alone(
                &parts_alone(&[]),
                whole().replace("_meta\":{", "_meta\":{\"traceparent\":\"00-1\",").as_bytes()
            )
            .is_some()
        );
    }

    #[test]
    fn what_is_not_plain_without_a_session_is_left_to_the_library() {
        let no_call = |headers: &[(&'static str, &str)], body: &str| {
            assert!(alone(&parts_alone(headers), body.as_bytes()).is_none(), "{headers:?} {body}");
        };
        for header in [
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "u"),
            ("mcp-name", "=?base64?dA==?="),
            ("mcp-param-x", "1"),
            ("mcp-session-id", "s"),
            ("accept", "application/json"),
            ("content-type", "text/plain"),
        ] {
            no_call(&[header], &whole());
        }
        let mut twice = parts_alone(&[]);
        twice.headers.append("mcp-name", HeaderValue::from_static("t"));
        assert!(alone(&twice, whole().as_bytes()).is_none());
        for (this, that) in [
            ("2026-07-28", "2025-11-25"),
            ("io.modelcontextprotocol/clientInfo", "clientInfo"),
            ("clientCapabilities\":{}", "clientCapabilities\":7"),
            ("_meta\":{", "_meta\":{\"progressToken\":1,"),
            ("_meta\":{", "_meta\":{\"io.modelcontextprotocol/logLevel\":\"info\","),
            ("\"name\":\"t\"", "\"name\":\"u\""),
            ("\"name\":\"t\"", "\"name\":\"t\",\"requestState\":\"s\""),
            (META, "\"_meta\":{"),
        ] {
            let body = whole().replace(this, that);
            assert_ne!(body, whole());
            no_call(&[], &body);
        }
    }
}
