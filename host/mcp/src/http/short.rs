//! Calls in a session that are answered at once, as most are: with one JSON body, which the protocol leaves to the server
//! (Streamable HTTP, "Sending Messages to the Server"). A call that has to wait, or says something before its answer, gets
//! its stream of events from the library.
//!
//! What is not plainly such a call is not judged here: the library answers it.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, JsonRpcMessage,
    JsonRpcRequest, ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::message::RawArguments;

/// The headers of the protocol that a call in a session may have; others have to match what it says.
const OWN: [&str; 2] = ["mcp-session-id", "mcp-protocol-version"];
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

/// The call that a request of a session makes, with its arguments as they were written; `None`: it is another one, or there
/// is something about it that the library has to judge.
pub(super) fn call(
    parts: &Parts,
    body: &[u8],
) -> Option<(JsonRpcRequest<ClientRequest>, Option<RawArguments>)> {
    if parts.method != Method::POST || !is_plain(&parts.headers) {
        return None;
    }
    let call: Call<'_> = serde_json::from_slice(body).ok()?;
    if call.jsonrpc != "2.0" || call.method != "tools/call" {
        return None;
    }
    let mut params = CallToolRequestParams::new(call.params.name);
    if let Some(raw) = call.params.arguments {
        params = params.with_arguments(serde_json::from_str(raw.get()).ok()?);
    }
    let mut request = CallToolRequest::new(params);
    if let Some(meta) = call.params._meta {
        // A revision, for instance.
        if meta.0.0.keys().any(|key| key != "progressToken") {
            return None;
        }
        request.extensions.insert(meta);
    }
    let raw = call.params.arguments.map(|raw| RawArguments(raw.get().into()));
    match ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), call.id) {
        JsonRpcMessage::Request(request) => Some((request, raw)),
        _ => None,
    }
}

/// Whether the headers of a request are those of each call in a session.
fn is_plain(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let accepts = text(ACCEPT).is_some_and(|accept| {
        let mut kinds = accept.split(',').map(str::trim);
        BOTH.iter().all(|kind| kinds.clone().any(|one| one == *kind))
            && kinds.all(|kind| BOTH.contains(&kind))
    });
    let with_sessions = ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25);
    let known = |version| with_sessions.iter().any(|known| version == known.as_str());
    let ours = |name: &HeaderName| !name.as_str().starts_with("mcp-") || OWN.contains(&name.as_str());
    accepts
        && headers.get(OWN[1]).is_none_or(known)
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
            call(&parts(&[("mcp-protocol-version", "2025-11-25")]), CALL.as_bytes()).unwrap();
        assert_eq!(&*raw.unwrap().0, r#"{"n": 1.50}"#);
        let theirs: ClientJsonRpcMessage = serde_json::from_str(CALL).unwrap();
        let ours = ClientJsonRpcMessage::Request(request);
        assert_eq!(serde_json::to_value(&ours).unwrap(), serde_json::to_value(&theirs).unwrap());
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_library() {
        let no_call = |headers: &[(&'static str, &str)], body: &str| {
            assert!(call(&parts(headers), body.as_bytes()).is_none(), "{headers:?} {body}");
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
}
