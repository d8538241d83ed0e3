//! Answers of this server itself, before and beside those of the protocol.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, VARY,
    WWW_AUTHENTICATE,
};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde_json::json;
use toolbay_policy::serve::OAuth;

use super::clients::QuotaExceeded;
use super::refused::because;
use crate::auth::{self, Refusal};
use crate::protocol::incoming::{InvalidKind, InvalidMessage};
use crate::protocol::message;

/// What a page may send besides what pages may always send.
const PAGES_SEND: &str = "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, \
                          mcp-name, last-event-id, traceparent, toolbay-session";
/// What a page may read besides what pages may always read.
const PAGES_READ: &str = "mcp-session-id, www-authenticate, retry-after";
/// How long a browser may remember both, in seconds.
const PAGES_REMEMBER: &str = "600";

/// When to come back after a refusal that is over soon.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// A text for people.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into() + "\n"));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

/// An error of JSON-RPC, which clients show.
pub(super) fn error(
    status: StatusCode,
    code: ErrorCode,
    message: impl Into<String>,
    id: Option<&RequestId>,
) -> Response<Body> {
    of_error(status, &ErrorData::new(code, message.into(), None), id)
}

/// The same, as the protocol has it.
pub(super) fn of_error(status: StatusCode, error: &ErrorData, id: Option<&RequestId>) -> Response<Body> {
    with_json(status, message::response::<_, (), _>(id, Err(error)))
}

/// The answer to a body that is no message: only a request of which nothing but the content is wrong has an ordinary one.
pub(super) fn invalid(invalid: &InvalidMessage) -> Response<Body> {
    let status = match invalid.kind {
        InvalidKind::Request => StatusCode::OK,
        InvalidKind::NoMessage | InvalidKind::Unasked => StatusCode::BAD_REQUEST,
    };
    of_error(status, &invalid.error, invalid.id.as_ref())
}

fn with_json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, "application/json");
    set(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

/// The request is not served now; it may be later.
pub(super) fn later(status: StatusCode, message: impl Into<String>, after: Duration) -> Response<Body> {
    let mut response = error(status, ErrorCode::INTERNAL_ERROR, message, None);
    let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1);
    set(&mut response, RETRY_AFTER, &seconds.to_string());
    response
}

/// There is no more of something now.
pub(super) fn full(full: QuotaExceeded) -> Response<Body> {
    let QuotaExceeded { key, own } = full;
    let text = format!("there are as many as may be; to allow more: [serve.limits] {key} = …");
    let status = if own { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    because(later(status, text, SOON), key)
}

/// The server ends before it could answer.
pub(super) fn cut_off() -> Response<Body> {
    later(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down and did not answer in time", SOON)
}

/// What the request stood on was taken away while it was answered, or has expired.
pub(super) fn over() -> Response<Body> {
    let text =
        "what the request stood on is over: the token has expired or was taken back, or the endpoint is gone";
    let mut response = error(StatusCode::UNAUTHORIZED, ErrorCode::INVALID_REQUEST, text, None);
    set(&mut response, WWW_AUTHENTICATE, "Bearer error=\"invalid_token\"");
    because(response, "revoked")
}

/// Who sent it to the endpoint of a profile may not; the metadata of that endpoint is at this address.
pub(super) fn refused(
    refusal: &Refusal,
    oauth: Option<&OAuth>,
    profile: Option<&str>,
    metadata: &str,
) -> Response<Body> {
    let list = |scopes: &BTreeSet<String>| scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let (status, problem, scopes, message) = match refusal {
        Refusal::Unknown { presented } => {
            let message = match (presented, oauth) {
                (true, _) => "the bearer token is not valid here",
                (false, Some(_)) => "a bearer token is needed; WWW-Authenticate says where to get one",
                (false, None) => "a bearer token is needed: Authorization: Bearer …",
            };
            let wanted =
                oauth.and_then(|oauth| auth::wanted_scopes(oauth, profile.unwrap_or(auth::NO_PROFILE)));
            let scopes = wanted.map(|wanted| list(&wanted)).filter(|scopes| !scopes.is_empty());
            (StatusCode::UNAUTHORIZED, presented.then_some("invalid_token"), scopes, message)
        }
        Refusal::NoKeys => {
            let text = "the keys of the authorization server cannot be read; come back later";
            return later(StatusCode::SERVICE_UNAVAILABLE, text, SOON);
        }
        Refusal::Scopes(wanted) => (
            StatusCode::FORBIDDEN,
            Some("insufficient_scope"),
            Some(list(wanted)),
            "the token does not have the scopes that this needs; WWW-Authenticate says which",
        ),
        Refusal::Profile => (
            StatusCode::FORBIDDEN,
            None,
            None,
            "the token is for other profiles than this: see /mcp/<profile>",
        ),
    };
    let mut challenge = match oauth {
        Some(_) => format!("Bearer resource_metadata=\"{metadata}\""),
        None => "Bearer realm=\"toolbay\"".to_owned(),
    };
    for (key, value) in [("error", problem.map(ToOwned::to_owned)), ("scope", scopes)] {
        if let Some(value) = value {
            challenge += &format!(", {key}=\"{value}\"");
        }
    }
    let mut response = error(status, ErrorCode::INVALID_REQUEST, message, None);
    if *refusal != Refusal::Profile {
        set(&mut response, WWW_AUTHENTICATE, &challenge);
    }
    let reason = match refusal {
        Refusal::Unknown { presented: true } => "token_unknown",
        Refusal::Unknown { presented: false } => "token_missing",
        Refusal::Scopes(_) => "scopes",
        Refusal::Profile => "profile",
        Refusal::NoKeys => "no_keys",
    };
    because(response, reason)
}

/// The metadata of an endpoint as a protected resource (RFC 9728), which such scopes open.
pub(super) fn metadata(oauth: &OAuth, resource: &str, scopes: &BTreeSet<String>) -> Response<Body> {
    with_json(
        StatusCode::OK,
        message::line(&json!({
            "resource": resource,
            "authorization_servers": [oauth.issuer],
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolbay",
        })),
    )
}

/// What a browser asks before a page may send a request.
pub(super) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    set(&mut response, ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, DELETE");
    set(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, PAGES_SEND);
    set(&mut response, ACCESS_CONTROL_MAX_AGE, PAGES_REMEMBER);
    response
}

/// Lets a page that the policy names read the answer.
pub(super) fn for_page(response: &mut Response<Body>, origin: Option<&str>) {
    if let Some(origin) = origin {
        set(response, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set(response, ACCESS_CONTROL_EXPOSE_HEADERS, PAGES_READ);
        set(response, VARY, "Origin");
    }
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
