//! Checks the headers that mirror parts of a message, so that proxies can route it without parsing the body (SEP-2243).
//! The server never relies on these headers: it refuses a message whose headers contradict the body.

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use serde_json::Value;

use crate::protocol::incoming::{ClientMessage, ClientRequest};
use crate::protocol::lifecycle::missing_metadata;
use crate::protocol::mirror::{self, HeaderMirror, decode_value};

const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";
/// The session label that a client of 2026-07-28 chooses.
pub(super) const SESSION_LABEL_HEADER: &str = "toolbay-session";
/// The session id of a legacy client.
pub(super) const SESSION_ID_HEADER: &str = "mcp-session-id";
/// The last event id, to resume a stream.
pub(super) const LAST_EVENT_ID_HEADER: &str = "last-event-id";

/// Whether a header has one value: it decides who asks, for what, or how the body is read. A proxy may read another one of
/// several values than this server. The others are lists, such as `Accept`, or cost only themselves, such as
/// `traceparent`.
fn has_one_value(name: &HeaderName) -> bool {
    [HOST, ORIGIN, AUTHORIZATION, CONTENT_TYPE].contains(name)
        || matches!(
            name.as_str(),
            VERSION_HEADER
                | METHOD_HEADER
                | NAME_HEADER
                | SESSION_LABEL_HEADER
                | SESSION_ID_HEADER
                | LAST_EVENT_ID_HEADER
        )
        || mirror::is_mirror_header(name.as_str())
}

/// Merges the repetitions of headers that have one value, so that nothing after it depends on which of them it reads.
///
/// # Errors
/// The values of a header contradict each other. The message names the header.
pub(super) fn merge_repeated(headers: &mut HeaderMap) -> Result<(), ErrorData> {
    // The usual case: every header occurs once.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let names: Vec<HeaderName> = headers.keys().filter(|name| has_one_value(name)).cloned().collect();
    for name in names {
        let mut values = headers.get_all(&name).iter();
        let Some(first) = values.next().cloned() else { continue };
        if values.any(|other| *other != first) {
            return Err(mismatch(format!("the header `{name}` occurs twice with different values")));
        }
        headers.insert(name, first);
    }
    Ok(())
}

/// Splits the value of a header at a character outside of quotes.
pub(super) fn split_unquoted(text: &str, at: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c: char| {
        if escaped {
            escaped = false;
            return false;
        }
        escaped = quoted && c == '\\';
        quoted ^= c == '"';
        c == at && !quoted
    })
}

/// Whether `Content-Type` declares JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The protocol version in the headers.
pub(super) fn version_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok())
}

/// Whether a request without a message has a legacy version, before 2026-07-28.
///
/// # Errors
/// The version is unknown.
pub(super) fn is_legacy(headers: &HeaderMap) -> Result<bool, ErrorData> {
    check_version(headers)?;
    Ok(version_header(headers).is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str()))
}

/// Checks the headers of a message. Returns whether it has a legacy version, before 2026-07-28.
///
/// # Errors
/// The headers contradict the message.
pub(super) fn check_headers(
    headers: &HeaderMap,
    message: &ClientMessage,
    mirror: impl FnOnce(&str) -> HeaderMirror,
) -> Result<bool, ErrorData> {
    let is_modern_header =
        version_header(headers).is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str());
    let request = match message {
        ClientMessage::Request(request) => request,
        ClientMessage::Notification { method, .. } => {
            check_version(headers)?;
            if is_modern_header {
                check_value(headers, METHOD_HEADER, method)?;
            }
            return Ok(!is_modern_header);
        }
        ClientMessage::Response { .. } => {
            check_version(headers)?;
            return Ok(!is_modern_header);
        }
    };
    if request.is_handshake() {
        check_initialize(headers, request, is_modern_header)?;
        // A handshake is always legacy, whatever version it requests.
        return Ok(true);
    }
    let named = request.meta.protocol_version();
    match &named {
        Some(named) => check_value(headers, VERSION_HEADER, named.as_str())?,
        None => {
            check_version(headers)?;
            if is_modern_header || request.method == "server/discover" {
                return Err(missing_metadata(&request.meta));
            }
        }
    }
    if is_modern_header {
        check_value(headers, METHOD_HEADER, &request.method)?;
        // A missing subject makes the parameters invalid, which is reported later.
        if let Some(subject) = &request.subject {
            check_encoded(headers, NAME_HEADER, Some(subject))?;
            if request.method == "tools/call" {
                check_arguments(headers, request, &mirror(subject))?;
            }
        }
    }
    let stands_alone = request.meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty();
    Ok(!stands_alone && named.is_none_or(|version| version.has_initialize()))
}

fn mismatch(text: String) -> ErrorData {
    ErrorData::header_mismatch(text, None)
}

/// Refuses an unknown version.
fn check_version(headers: &HeaderMap) -> Result<(), ErrorData> {
    let Some(value) = headers.get(VERSION_HEADER) else { return Ok(()) };
    let is_known = ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| value == known.as_str());
    let text = "unknown version in `mcp-protocol-version`";
    if is_known { Ok(()) } else { Err(ErrorData::invalid_request(text, None)) }
}

/// Checks the headers of a handshake. They are optional, but must not contradict the message.
fn check_initialize(headers: &HeaderMap, request: &ClientRequest, is_modern: bool) -> Result<(), ErrorData> {
    let asked = request.subject.as_deref().unwrap_or_default();
    if headers.get(VERSION_HEADER).is_some_and(|version| version != asked) {
        let text = "`mcp-protocol-version` does not match the `protocolVersion` of `initialize`";
        return Err(ErrorData::invalid_request(text, None));
    }
    if is_modern && headers.contains_key(METHOD_HEADER) {
        check_value(headers, METHOD_HEADER, &request.method)?;
    }
    Ok(())
}

/// The value of a header. `None` if the header is absent.
fn text_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ErrorData> {
    let text = headers.get(name).map(|value| value.to_str()).transpose();
    text.map_err(|_| mismatch(format!("the header `{name}` is not ASCII text")))
}

fn check_value(headers: &HeaderMap, name: &str, expected: &str) -> Result<(), ErrorData> {
    match text_value(headers, name)? {
        Some(value) if value == expected => Ok(()),
        Some(_) => Err(mismatch(format!("the header `{name}` does not match the body"))),
        None => Err(mismatch(format!("the header `{name}` is missing"))),
    }
}

/// Refuses an encoded header that does not match the body.
fn check_encoded(headers: &HeaderMap, name: &str, expected: Option<&str>) -> Result<(), ErrorData> {
    let value = match text_value(headers, name)? {
        Some(value) => Some(
            decode_value(value)
                .ok_or_else(|| mismatch(format!("the header `{name}` is not valid base64")))?,
        ),
        None => None,
    };
    if value.as_deref() == expected {
        return Ok(());
    }
    Err(mismatch(format!("the header `{name}` does not match the body")))
}

fn check_arguments(
    headers: &HeaderMap,
    request: &ClientRequest,
    mirror: &HeaderMirror,
) -> Result<(), ErrorData> {
    if mirror.is_empty() {
        return Ok(());
    }
    let arguments = request.arguments.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let arguments: Value = arguments.unwrap_or_default();
    mirror.values(&arguments).try_for_each(|(name, value)| check_encoded(headers, &name, value.as_deref()))
}

/// The status of a response to a request without a session. Some errors have a status that the protocol defines.
pub(super) fn status_for(error: Option<ErrorCode>, is_well_formed: bool) -> StatusCode {
    match error {
        Some(
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
            | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
            | ErrorCode::HEADER_MISMATCH,
        ) => StatusCode::BAD_REQUEST,
        Some(ErrorCode::INVALID_PARAMS) if !is_well_formed => StatusCode::BAD_REQUEST,
        Some(ErrorCode::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(_) | None => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        headers.iter().map(header).collect()
    }

    #[test]
    fn a_repeated_header_has_equal_values() {
        for name in [
            "Host",
            "Origin",
            "Authorization",
            "Content-Type",
            "MCP-Protocol-Version",
            "Mcp-Session-Id",
            "Mcp-Method",
            "Mcp-Name",
            "Mcp-Param-Region",
            "Last-Event-ID",
            "Toolbay-Session",
        ] {
            let mut equal = header_map(&[(name, "a"), ("x", "1"), (name, "a"), (name, "a")]);
            merge_repeated(&mut equal).unwrap();
            assert_eq!((equal.get_all(name).iter().count(), equal.len()), (1, 2), "{name}");
            for other in ["b", "A", "", "a, a"] {
                for (first, then) in [("a", other), (other, "a")] {
                    let mut twice = header_map(&[(name, first), (name, "a"), (name, then)]);
                    let error = merge_repeated(&mut twice).unwrap_err();
                    assert_eq!(error.code, ErrorCode::HEADER_MISMATCH);
                    assert!(error.message.contains(&name.to_ascii_lowercase()), "{}", error.message);
                }
            }
        }
    }

    #[test]
    fn lists_and_other_headers_may_repeat() {
        for name in ["accept", "forwarded", "x-forwarded-for", "traceparent", "cookie", "x-own", "mcp-param-"]
        {
            let mut headers = header_map(&[(name, "a"), (name, "b"), ("host", "h")]);
            merge_repeated(&mut headers).unwrap();
            assert_eq!(headers.len(), 3, "{name}");
        }
    }
}
