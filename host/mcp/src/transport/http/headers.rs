//! Headers that say what a message says, so that what stands before a server can route it without reading it (SEP-2243).
//! They are believed in nothing; where they say something else than the body, the message is refused.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use serde_json::Value;

use crate::protocol::incoming::{ClientMessage, Request};
use crate::protocol::lifecycle::missing_metadata;
use crate::protocol::mirror::{HeaderMirror, decode};

pub(super) const VERSION: &str = "mcp-protocol-version";
pub(super) const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Whether a client takes both forms that an answer can have, or that of events alone.
pub(super) fn accepts(headers: &HeaderMap, kinds: &[&str]) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> = values.flat_map(|value| value.split(',')).filter_map(accepted_type).collect();
    kinds.iter().all(|kind| ranges.iter().any(|range| range.eq_ignore_ascii_case(kind)))
}

/// The media type of one range of `Accept`, unless its weight is zero.
fn accepted_type(range: &str) -> Option<&str> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?;
    let is_zero = |part: &str| {
        let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
        weight.is_some_and(|weight| weight.parse() == Ok(0.0_f32))
    };
    (!parts.any(is_zero)).then_some(kind)
}

/// Whether the body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// The version that the headers name.
pub(super) fn version(headers: &HeaderMap) -> Option<&str> {
    headers.get(VERSION).and_then(|version| version.to_str().ok())
}

/// Whether a request without a message is legacy: of a version before 2026-07-28.
///
/// # Errors
/// The version is none that is known.
pub(super) fn is_legacy(headers: &HeaderMap) -> Result<bool, ErrorData> {
    check_version(headers)?;
    Ok(version(headers).is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str()))
}

/// Whether a message is legacy: of a version before 2026-07-28.
///
/// # Errors
/// The headers say something else than the message.
pub(super) fn check(
    headers: &HeaderMap,
    message: &ClientMessage,
    mirror: impl FnOnce(&str) -> HeaderMirror,
) -> Result<bool, ErrorData> {
    let is_modern_header =
        version(headers).is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str());
    let request = match message {
        ClientMessage::Request(request) => request,
        ClientMessage::Notification { method, .. } => {
            check_version(headers)?;
            if is_modern_header {
                check_one(headers, METHOD, method)?;
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
        // The handshake is legacy, whatever version it names.
        return Ok(true);
    }
    let named = request.meta.protocol_version();
    match &named {
        Some(named) => check_one(headers, VERSION, named.as_str())?,
        None => {
            check_version(headers)?;
            if is_modern_header || request.method == "server/discover" {
                return Err(missing_metadata(&request.meta));
            }
        }
    }
    if is_modern_header {
        check_one(headers, METHOD, &request.method)?;
        // Without a subject it is not what the method takes, which is answered later.
        if let Some(subject) = &request.subject {
            check_encoded(headers, NAME, Some(subject))?;
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

/// Refuses a version that nobody here knows.
fn check_version(headers: &HeaderMap) -> Result<(), ErrorData> {
    let Some(value) = headers.get(VERSION) else { return Ok(()) };
    let is_known = ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| value == known.as_str());
    let text = "the version that `mcp-protocol-version` names is not known";
    if is_known { Ok(()) } else { Err(ErrorData::invalid_request(text, None)) }
}

/// The handshake needs no headers; those that it has must not contradict it.
fn check_initialize(headers: &HeaderMap, request: &Request, is_modern: bool) -> Result<(), ErrorData> {
    let asked = request.subject.as_deref().unwrap_or_default();
    if headers.get(VERSION).is_some_and(|version| version != asked) {
        let text = "`mcp-protocol-version` does not match the `protocolVersion` of `initialize`";
        return Err(ErrorData::invalid_request(text, None));
    }
    if is_modern && headers.contains_key(METHOD) {
        check_one(headers, METHOD, &request.method)?;
    }
    Ok(())
}

/// The one value of a header, which has to be there.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ErrorData> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| mismatch(format!("the header `{name}` is no text")))?;
            Ok(Some(text))
        }
        (Some(_), Some(_)) => Err(mismatch(format!("the header `{name}` occurs twice"))),
    }
}

fn check_one(headers: &HeaderMap, name: &str, expected: &str) -> Result<(), ErrorData> {
    match only(headers, name)? {
        Some(value) if value == expected => Ok(()),
        Some(_) => Err(mismatch(format!("the header `{name}` does not match the body"))),
        None => Err(mismatch(format!("the header `{name}` is missing"))),
    }
}

/// Refuses an encoded header whose value is not that of the body.
fn check_encoded(headers: &HeaderMap, name: &str, expected: Option<&str>) -> Result<(), ErrorData> {
    let value = match only(headers, name)? {
        Some(value) => {
            Some(decode(value).ok_or_else(|| mismatch(format!("the header `{name}` is no base64")))?)
        }
        None => None,
    };
    if value.as_deref() == expected {
        return Ok(());
    }
    Err(mismatch(format!("the header `{name}` does not match the body")))
}

fn check_arguments(headers: &HeaderMap, request: &Request, mirror: &HeaderMirror) -> Result<(), ErrorData> {
    if mirror.is_empty() {
        return Ok(());
    }
    let arguments = request.arguments.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let arguments: Value = arguments.unwrap_or_default();
    mirror.values(&arguments).try_for_each(|(name, value)| check_encoded(headers, &name, value.as_deref()))
}

/// The status of an answer to a request without a session: what could not be done has one of its own where the protocol
/// says so.
pub(super) fn status(error: Option<ErrorCode>, is_well_formed: bool) -> StatusCode {
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
