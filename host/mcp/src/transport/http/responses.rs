//! HTTP responses of the transport itself, as opposed to those of the protocol layer.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, CACHE_CONTROL,
    CONTENT_TYPE, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde_json::json;
use toolbay_policy::serve::OAuthPolicy;

use super::clients::QuotaExceeded;
use super::refusals::{with_limit, with_reason};
use crate::auth::{self, AuthError, TokenProblem};
use crate::protocol::incoming::{InvalidKind, InvalidMessage};
use crate::protocol::{message, mirror};

/// `Access-Control-Allow-Headers`, besides the headers that mirror arguments.
const CORS_ALLOWED_HEADERS: &str = "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, \
                          mcp-name, last-event-id, traceparent, tracestate, baggage, toolbay-session";
/// `Access-Control-Expose-Headers`.
const CORS_EXPOSED_HEADERS: &str = "mcp-session-id, www-authenticate, retry-after";
/// How long a browser may cache a preflight response, in seconds.
const CORS_MAX_AGE: &str = "600";

/// The table of the policy with the limits of clients.
pub(super) const SERVE_LIMITS: &str = "[serve.limits]";
/// `Retry-After` for conditions that end soon.
pub(super) const RETRY_SOON: Duration = Duration::from_secs(1);

/// A plain text response, for the probes of the server's health.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into() + "\n"));
    *response.status_mut() = status;
    set_header(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    set_header(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    set_header(&mut response, CACHE_CONTROL, "no-store");
    response
}

/// A refusal of a request that carries no message (RFC 9457).
pub(super) fn problem(status: StatusCode, detail: impl Into<String>) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("Error");
    let body = json!({"title": title, "status": status.as_u16(), "detail": detail.into()});
    let mut response = json(status, message::encode_line(&body));
    set_header(&mut response, CONTENT_TYPE, "application/problem+json");
    response
}

/// A JSON-RPC error response, which clients show.
pub(super) fn error(
    status: StatusCode,
    code: ErrorCode,
    message: impl Into<String>,
    id: Option<&RequestId>,
) -> Response<Body> {
    from_error(status, &ErrorData::new(code, message.into(), None), id)
}

/// A JSON-RPC error response from an [`ErrorData`].
pub(super) fn from_error(status: StatusCode, error: &ErrorData, id: Option<&RequestId>) -> Response<Body> {
    json(status, message::encode_response::<_, (), _>(id, Err(error)))
}

/// The response to an invalid message. A request with a valid id gets status 200, as for other errors of requests.
pub(super) fn invalid_message(invalid: &InvalidMessage) -> Response<Body> {
    let status = match invalid.kind {
        InvalidKind::UnreadableRequest => StatusCode::OK,
        InvalidKind::NotAMessage | InvalidKind::NoReply => StatusCode::BAD_REQUEST,
    };
    from_error(status, &invalid.error, invalid.id.as_ref())
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    set_header(&mut response, CONTENT_TYPE, "application/json");
    set_header(&mut response, HeaderName::from_static("x-content-type-options"), "nosniff");
    set_header(&mut response, CACHE_CONTROL, "no-store");
    response
}

/// A refusal with `Retry-After`.
pub(super) fn retry_later(status: StatusCode, message: impl Into<String>, after: Duration) -> Response<Body> {
    let mut response = error(status, ErrorCode::INTERNAL_ERROR, message, None);
    let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1);
    set_header(&mut response, RETRY_AFTER, &seconds.to_string());
    response
}

/// The response when a quota is exceeded.
pub(super) fn quota_exceeded(full: QuotaExceeded) -> Response<Body> {
    let QuotaExceeded { key, per_client } = full;
    let status = if per_client { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    limit_reached(status, key, RETRY_SOON)
}

/// The response when a limit of `[serve.limits]` is reached.
pub(super) fn limit_reached(status: StatusCode, key: &'static str, after: Duration) -> Response<Body> {
    let response = retry_later(status, format!("the limit `{key}` is reached"), after);
    with_limit(response, SERVE_LIMITS, key)
}

/// The response of a server that cannot run calls. A balancer chooses another one: nothing was begun.
pub(super) fn unavailable(problem: &str, id: &RequestId) -> Response<Body> {
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::INTERNAL_ERROR, problem, Some(id));
    set_header(&mut response, RETRY_AFTER, &RETRY_SOON.as_secs().to_string());
    response
}

/// The response when the server shuts down before the request has ended.
pub(super) fn shutting_down() -> Response<Body> {
    retry_later(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server is shutting down and did not answer in time",
        RETRY_SOON,
    )
}

/// The response when the credential was revoked or expired, or the endpoint was removed, during the request.
/// `metadata` is the URL of the endpoint's resource metadata.
pub(super) fn credential_revoked(
    oauth: Option<&OAuthPolicy>,
    profile: Option<&str>,
    metadata: &str,
) -> Response<Body> {
    let text = "the request was ended: its token has expired or was revoked, or the endpoint was removed";
    let mut response = error(StatusCode::UNAUTHORIZED, ErrorCode::INVALID_REQUEST, text, None);
    let challenge = challenge(oauth, metadata, Some("invalid_token"), wanted_scopes(oauth, profile));
    set_header(&mut response, WWW_AUTHENTICATE, &challenge);
    with_reason(response, "revoked")
}

/// The scopes that the endpoint of a profile requires.
fn wanted_scopes(oauth: Option<&OAuthPolicy>, profile: Option<&str>) -> Option<String> {
    let wanted = auth::required_scopes(oauth?, profile.unwrap_or(auth::NO_PROFILE))?;
    Some(join_scopes(&wanted)).filter(|scopes| !scopes.is_empty())
}

fn join_scopes(scopes: &BTreeSet<String>) -> String {
    scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// `WWW-Authenticate`, from which a client can begin to authorize (RFC 9728, section 5.1; RFC 6750, section 3).
fn challenge(
    oauth: Option<&OAuthPolicy>,
    metadata: &str,
    problem: Option<&str>,
    scopes: Option<String>,
) -> String {
    let mut challenge = match oauth {
        Some(_) => format!("Bearer resource_metadata=\"{metadata}\""),
        None => "Bearer realm=\"toolbay\"".to_owned(),
    };
    for (key, value) in [("error", problem.map(ToOwned::to_owned)), ("scope", scopes)] {
        if let Some(value) = value {
            challenge += &format!(", {key}=\"{value}\"");
        }
    }
    challenge
}

/// The response to a request that failed authentication or authorization. `metadata` is the URL of the endpoint's
/// resource metadata.
pub(super) fn unauthorized(
    refusal: &AuthError,
    oauth: Option<&OAuthPolicy>,
    profile: Option<&str>,
    metadata: &str,
) -> Response<Body> {
    let (status, problem, scopes, message) = match refusal {
        AuthError::Unauthenticated { problem, .. } => {
            let presented = *problem != TokenProblem::Missing;
            let message = match (presented, oauth) {
                (true, _) => "the bearer token is not valid here",
                (false, Some(_)) => "a bearer token is required; WWW-Authenticate says where to get one",
                (false, None) => "a bearer token is required: Authorization: Bearer …",
            };
            let scopes = wanted_scopes(oauth, profile);
            (StatusCode::UNAUTHORIZED, presented.then_some("invalid_token"), scopes, message)
        }
        AuthError::KeysUnavailable => {
            let text = "the keys of the authorization server are unavailable; retry later";
            return retry_later(StatusCode::SERVICE_UNAVAILABLE, text, RETRY_SOON);
        }
        AuthError::InsufficientScope(wanted) => (
            StatusCode::FORBIDDEN,
            Some("insufficient_scope"),
            Some(join_scopes(wanted)),
            "the token lacks required scopes; WWW-Authenticate lists them",
        ),
        AuthError::ProfileForbidden => (
            StatusCode::FORBIDDEN,
            None,
            None,
            "the token does not allow this profile; use /mcp/<profile> with an allowed one",
        ),
    };
    let mut response = error(status, ErrorCode::INVALID_REQUEST, message, None);
    if *refusal != AuthError::ProfileForbidden {
        set_header(&mut response, WWW_AUTHENTICATE, &challenge(oauth, metadata, problem, scopes));
    }
    let reason = match refusal {
        AuthError::Unauthenticated { problem, .. } => problem.as_str(),
        AuthError::InsufficientScope(_) => "scopes",
        AuthError::ProfileForbidden => "profile",
        AuthError::KeysUnavailable => "no_keys",
    };
    with_reason(response, reason)
}

/// The metadata of an endpoint as a protected resource (RFC 9728) with the scopes that it requires.
pub(super) fn resource_metadata(
    oauth: &OAuthPolicy,
    resource: &str,
    scopes: &BTreeSet<String>,
) -> Response<Body> {
    json(
        StatusCode::OK,
        message::encode_line(&json!({
            "resource": resource,
            "authorization_servers": [oauth.issuer],
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolbay",
        })),
    )
}

/// The response to a CORS preflight request (WHATWG Fetch, section 4.8).
pub(super) fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    set_header(&mut response, ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, DELETE");
    set_header(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, &allowed_headers(headers));
    set_header(&mut response, ACCESS_CONTROL_MAX_AGE, CORS_MAX_AGE);
    response
}

/// The headers that a page may send. Each tool names its own for the arguments that it mirrors, so those that the page
/// asks for are listed.
fn allowed_headers(headers: &HeaderMap) -> String {
    let asked =
        headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
    let mirrored = asked
        .flat_map(|names| names.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .filter(|name| mirror::is_mirror_header(name.as_str()))
        .take(mirror::MAX_HEADERS);
    mirrored.fold(CORS_ALLOWED_HEADERS.to_owned(), |all, name| format!("{all}, {name}"))
}

/// Lets a page from an allowed origin read the response.
pub(super) fn add_cors_headers(response: &mut Response<Body>, origin: Option<&str>) {
    if let Some(origin) = origin {
        set_header(response, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set_header(response, ACCESS_CONTROL_EXPOSE_HEADERS, CORS_EXPOSED_HEADERS);
        set_header(response, VARY, "Origin");
    }
}

fn set_header(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preflight_allows_the_headers_of_mirrored_arguments() {
        let allowed = |asked: &str| {
            let headers = [(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_str(asked).unwrap())];
            allowed_headers(&headers.into_iter().collect())
        };
        let all = allowed("content-type, mcp-param-region,Mcp-Param-Zone , x-evil, mcp-param-, mcp-paramx");
        for name in ["mcp-param-region", "mcp-param-zone", "traceparent", "tracestate", "baggage"] {
            assert!(all.split(", ").any(|one| one == name), "{name}: {all}");
        }
        for name in ["x-evil", "mcp-param-,", "mcp-paramx"] {
            assert!(!format!("{all},").contains(name), "{name}: {all}");
        }
        let many: Vec<String> = (0..1000).map(|n| format!("mcp-param-{n}")).collect();
        let count = allowed(&many.join(",")).matches("mcp-param-").count();
        assert_eq!(count, mirror::MAX_HEADERS);
        assert_eq!(allowed_headers(&HeaderMap::new()), CORS_ALLOWED_HEADERS);
    }
}
