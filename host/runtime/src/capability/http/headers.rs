//! Which headers cross: what frames a message, names the host or speaks to proxies is ours.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

use super::seam;
use super::session::{NetError, Session};

/// Most header lines of a message.
pub(super) const MAX_COUNT: usize = 128;
/// Most bytes of all names and values of a message's header.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Headers that the host writes itself: `host`, `user-agent`, `accept-encoding`. Room is made for them at once.
const OURS: usize = 3;

/// Headers that a guest may not set, beside `proxy-*`. The last ones make some servers take the request for one of
/// another method, or to another path, than the rules were asked about.
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

/// Whether a header is ours to write. To servers that hand headers on as variables (CGI, WSGI) `_` and `.` are the same
/// as `-`.
pub(super) fn is_forbidden(name: &HeaderName) -> bool {
    let name = name.as_str().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = name.as_str();
    FORBIDDEN.contains(&name) || name.starts_with("proxy-")
}

/// Reads the headers of a guest's request.
pub(super) fn read(headers: &[(String, String)]) -> Result<HeaderMap, NetError> {
    let invalid = |text: String| Err(NetError::Invalid(text));
    if headers.len() > MAX_COUNT {
        return invalid(format!("more than {MAX_COUNT} headers"));
    }
    if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_BYTES {
        return invalid(format!("more than {MAX_BYTES} bytes of headers"));
    }
    let mut map = HeaderMap::with_capacity(headers.len() + OURS);
    for (name, value) in headers {
        let shown = toolbay_policy::text::one_line(name, 100);
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
            return invalid(format!("`{shown}` is no name of a header"));
        };
        if is_forbidden(&name) {
            return invalid(format!("the header `{shown}` is the host's to write"));
        }
        let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
            return invalid(format!("the value of the header `{shown}` has a control character in it"));
        };
        map.append(name, value);
    }
    Ok(map)
}

/// The bytes of all names and values.
pub(super) fn bytes(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Checks headers that came through another way than [`read`], as maps.
pub(super) fn check(map: &HeaderMap) -> Result<(), NetError> {
    if map.len() > MAX_COUNT || bytes(map) > MAX_BYTES {
        return Err(NetError::Invalid(format!("more than {MAX_COUNT} headers or {MAX_BYTES} bytes of them")));
    }
    match map.keys().find(|name| is_forbidden(name)) {
        Some(name) => Err(NetError::Invalid(format!("the header `{name}` is the host's to write"))),
        None => Ok(()),
    }
}

/// Drops what another origin than the one it was written for is not to see: all but the headers that the Fetch
/// standard calls safe.
pub(super) fn keep_safe(map: &mut HeaderMap) {
    const SAFE: [HeaderName; 4] =
        [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_LANGUAGE, header::CONTENT_TYPE];
    retain(map, |name| SAFE.contains(name));
}

/// Drops what describes a body that is no longer sent.
pub(super) fn drop_body(map: &mut HeaderMap) {
    const OF_BODY: [HeaderName; 4] =
        [header::CONTENT_ENCODING, header::CONTENT_LANGUAGE, header::CONTENT_LOCATION, header::CONTENT_TYPE];
    retain(map, |name| !OF_BODY.contains(name));
}

fn retain(map: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    let gone: Vec<HeaderName> = map.keys().filter(|name| !keep(name)).cloned().collect();
    for name in gone {
        map.remove(name);
    }
}

/// The headers of a response as the guest sees them. What is not UTF-8 is replaced.
pub(super) fn show(session: &Session, map: &HeaderMap) -> Vec<(String, String)> {
    let connection = |name: &HeaderName| {
        matches!(
            *name,
            header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE | header::TE | header::TRAILER
        )
    };
    let searches = session.tokens.any();
    let text = |value: &HeaderValue| {
        let plain = value.as_bytes();
        let clean = if searches { seam::scrub(session, plain.to_vec()).into() } else { Cow::from(plain) };
        String::from_utf8_lossy(&clean).into_owned()
    };
    let shown = map.iter().filter(|(name, _)| !connection(name));
    shown.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_headers() {
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
            let read = read(&[(name.to_owned(), value.to_owned())]);
            assert_eq!(read.is_ok(), sound, "{name:?}: {value:?}");
        }
        let many = vec![("a".to_owned(), String::new()); MAX_COUNT + 1];
        assert!(read(&many).is_err());
        assert!(read(&[("a".to_owned(), "x".repeat(MAX_BYTES))]).is_err());
    }

    #[test]
    fn another_origin_gets_what_is_safe() {
        let headers = ["accept", "content-type", "cookie", "authorization", "x-api-key", "referer", "range"];
        let mut map = read(&headers.map(|name| (name.to_owned(), "x".to_owned()))).unwrap();
        keep_safe(&mut map);
        assert_eq!(map.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept", "content-type"]);
        drop_body(&mut map);
        assert_eq!(map.len(), 1);
    }
}
