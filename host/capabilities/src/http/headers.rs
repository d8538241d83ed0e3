//! Checks of HTTP headers. The host alone writes the headers that frame a message, name the host or address proxies.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use super::call_network::{CallNetwork, NetError};
use super::secret_injection;

/// Maximum number of header lines of a message.
pub(super) const MAX_COUNT: usize = 128;
/// Maximum number of bytes of all header names and values of a message.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Headers that the host adds: `host`, `user-agent`, `accept-encoding`. Their space is reserved up front.
const HOST_HEADERS: usize = 3;

/// Headers that a guest cannot set, in addition to `proxy-*`. The last six make some servers treat the request as one
/// with another method or path than the one the rules were checked against.
const FORBIDDEN: [&str; 17] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "expect",
    "te",
    "trailer",
    "http2-settings",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-original-uri",
    "x-rewrite-url",
    "x-override-url",
];

/// Whether only the host may write a header. Servers that pass headers as variables (CGI, WSGI) treat `_` and `.`
/// like `-`.
pub(super) fn is_forbidden(name: &HeaderName) -> bool {
    let name = name.as_str().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = name.as_str();
    FORBIDDEN.contains(&name) || name.starts_with("proxy-")
}

/// Parses the headers of a guest's request.
pub(super) fn parse(headers: &[(String, String)]) -> Result<HeaderMap, NetError> {
    let invalid = |text: String| Err(NetError::Invalid(text));
    if headers.len() > MAX_COUNT {
        return invalid(format!("more than {MAX_COUNT} headers"));
    }
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_BYTES {
        return invalid(format!("more than {MAX_BYTES} bytes of headers"));
    }
    let mut map = HeaderMap::with_capacity(headers.len() + HOST_HEADERS);
    for (name, value) in headers {
        let shown = toolbay_policy::excerpt::one_line(name, 100);
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            return invalid(format!("`{shown}` is not a valid header name"));
        };
        if is_forbidden(&name) {
            return invalid(format!("the header `{shown}` is reserved for the host"));
        }
        let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
            return invalid(format!("the value of the header `{shown}` contains a control character"));
        };
        map.append(name, value);
    }
    Ok(map)
}

/// The total length of all names and values.
pub(super) fn byte_len(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Checks headers that arrive as a map instead of through [`parse`].
pub(super) fn check(map: &HeaderMap) -> Result<(), NetError> {
    if map.len() > MAX_COUNT || byte_len(map) > MAX_BYTES {
        return Err(NetError::Invalid(format!("more than {MAX_COUNT} headers or {MAX_BYTES} bytes of them")));
    }
    match map.keys().find(|name| is_forbidden(name)) {
        Some(name) => Err(NetError::Invalid(format!("the header `{name}` is reserved for the host"))),
        None => Ok(()),
    }
}

/// Removes the headers that must not reach another origin: all but those that the Fetch standard calls safelisted.
pub(super) fn retain_cross_origin(map: &mut HeaderMap) {
    const SAFE: [HeaderName; 4] =
        [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_LANGUAGE, header::CONTENT_TYPE];
    retain(map, |name| SAFE.contains(name));
}

/// Removes the headers that describe the body, when a redirect drops it.
pub(super) fn remove_body_headers(map: &mut HeaderMap) {
    const OF_BODY: [HeaderName; 4] =
        [header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION, header::CONTENT_TYPE];
    retain(map, |name| !OF_BODY.contains(name));
}

fn retain(map: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = map.keys().filter(|name| !keep(name)).cloned().collect();
    for name in removed {
        map.remove(name);
    }
}

/// The headers of a response as text, with the secrets of the call redacted. Bytes that are not UTF-8 are replaced.
pub(super) fn to_text<'m>(
    network: &'m CallNetwork,
    map: &'m HeaderMap,
) -> impl Iterator<Item = (&'m HeaderName, String)> {
    let searches = network.placeholders.has_any();
    map.iter().map(move |(name, value)| {
        let plain = value.as_bytes();
        let clean =
            if searches { secret_injection::scrub(network, plain.to_vec()).into() } else { Cow::from(plain) };
        (name, String::from_utf8_lossy(&clean).into_owned())
    })
}

/// The headers of a response for the guest: without those of the connection.
pub(super) fn to_guest(network: &CallNetwork, map: &HeaderMap) -> Vec<(String, String)> {
    let connection = |name: &HeaderName| {
        matches!(
            *name,
            header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE | header::TE | header::TRAILER
        )
    };
    let shown = to_text(network, map).filter(|(name, _)| !connection(name));
    shown.map(|(name, value)| (name.as_str().to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_and_malformed_headers_are_refused() {
        for (name, value, sound) in [
            ("accept", "text/html", true),
            ("X-Custom", "a\tb", true),
            ("x", "", true),
            ("authorization", "Bearer x", true),
            ("x-utf", "grün", true),
            ("Host", "evil.org", false),
            ("content-length", "5", false),
            ("Transfer-Encoding", "chunked", false),
            ("transfer-encoding ", "chunked", false),
            ("connection", "close", false),
            ("upgrade", "websocket", false),
            ("expect", "100-continue", false),
            ("te", "trailers", false),
            ("trailer", "x", false),
            ("proxy-authorization", "Basic x", false),
            ("Proxy-Anything", "x", false),
            ("x-http-method-override", "DELETE", false),
            ("x-method-override", "DELETE", false),
            ("X-Original-URL", "/admin", false),
            ("x-rewrite-url", "/admin", false),
            ("x_http_method_override", "DELETE", false),
            ("X_Rewrite.URL", "/admin", false),
            ("transfer_encoding", "chunked", false),
            ("x-original-host", "x", true),
            ("", "x", false),
            ("a b", "x", false),
            ("a:b", "x", false),
            ("a\r\nb", "x", false),
            ("x", "a\r\nHost: evil.org", false),
            ("x", "a\nb", false),
            ("x", "a\rb", false),
            ("x", "a\0b", false),
            ("grün", "x", false),
        ] {
            let read = parse(&[(name.to_owned(), value.to_owned())]);
            assert_eq!(read.is_ok(), sound, "{name:?}: {value:?}");
        }
        let many = vec![("a".to_owned(), String::new()); MAX_COUNT + 1];
        assert!(parse(&many).is_err());
        assert!(parse(&[("a".to_owned(), "x".repeat(MAX_BYTES))]).is_err());
    }

    #[test]
    fn another_origin_gets_only_safelisted_headers() {
        let headers = ["accept", "content-type", "cookie", "authorization", "x-api-key", "referer", "range"];
        let mut map = parse(&headers.map(|name| (name.to_owned(), "x".to_owned()))).unwrap();
        retain_cross_origin(&mut map);
        assert_eq!(map.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept", "content-type"]);
        remove_body_headers(&mut map);
        assert_eq!(map.len(), 1);
    }
}
