//! The address of a request's client, also behind reverse proxies.
//!
//! A proxy writes into `Forwarded` (RFC 7239) or `X-Forwarded-For` from whom it had the request, and appends to what is
//! already there. Anybody can send these headers. They are read only where the connection comes from a proxy that the
//! policy trusts (`[serve] trusted_proxies`), and from the right: each trusted proxy vouches for the entry that it
//! appended, so the first address from the right that is no trusted proxy is the client. What stands to the left of it
//! is whatever that client sent.
//!
//! Where a trusted proxy names nobody (no header, `unknown`, a name it made up, no address), or the two headers contradict
//! each other because the proxy passed one of them on unread, the client is the last hop that is certain.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client of a request that came over a connection from `peer`.
pub(super) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let standard = hops(headers, &FORWARDED, forwarded_for);
    let usual = hops(headers, &X_FORWARDED_FOR, |entry| address(entry.trim()));
    let client = |hops: &[Option<IpAddr>]| last_untrusted(peer, hops, trusted);
    match (standard, usual) {
        (None, None) => peer,
        (Some(hops), None) | (None, Some(hops)) => client(&hops),
        (Some(standard), Some(usual)) => {
            let (one, other) = (client(&standard), client(&usual));
            if one == other { one } else { peer }
        }
    }
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// From the right, the first hop that is no trusted proxy; if all are, the leftmost.
fn last_untrusted(peer: IpAddr, hops: &[Option<IpAddr>], trusted: &[IpNet]) -> IpAddr {
    let mut last = peer;
    for hop in hops.iter().rev() {
        let Some(hop) = hop else { return last };
        last = *hop;
        if !is_trusted(last, trusted) {
            break;
        }
    }
    last
}

/// The hops that all headers of a name list, from left to right; one that names no address is `None`. `None` without
/// such a header.
fn hops(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = None;
    for value in headers.get_all(name) {
        let hops: &mut Vec<Option<IpAddr>> = hops.get_or_insert_default();
        match value.to_str() {
            Ok(text) => hops.extend(split(text, ',').map(&read)),
            Err(_) => hops.push(None),
        }
    }
    hops
}

/// The address in the `for` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut named = split(element, ';').filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    });
    let (Some(value), None) = (named.next(), named.next()) else { return None };
    // What is quoted beyond that needs no address.
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    address(bare)
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let without_port = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
                return None;
            }
            address
        }
        None => match text.split_once(':') {
            // More than one colon: an address of IPv6.
            Some((address, port)) if is_port(port) => address,
            Some(_) | None => text,
        },
    };
    without_port.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Splits at a character that stands outside of quotes.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peer: &str, lines: &[(&str, &str)], expect: &str) {
        let trusted: Vec<IpNet> =
            ["10.0.0.0/8", "2001:db8:ffff::/48"].iter().map(|net| net.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let address = client_address(peer.parse().unwrap(), &headers, &trusted);
        assert_eq!(address.to_string(), expect, "{peer} {lines:?}");
    }

    const X: &str = "x-forwarded-for";
    const F: &str = "forwarded";

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_for_what_it_appended() {
        check("192.0.2.1", &[(X, "203.0.113.5")], "192.0.2.1");
        check("192.0.2.1", &[(F, "for=203.0.113.5")], "192.0.2.1");
        check("10.1.2.3", &[], "10.1.2.3");
        check("10.1.2.3", &[(X, "203.0.113.5")], "203.0.113.5");
        check("::ffff:10.1.2.3", &[(X, "::ffff:203.0.113.5")], "203.0.113.5");
        // What the client wrote stands to the left.
        check("10.1.2.3", &[(X, "1.1.1.1, 203.0.113.5")], "203.0.113.5");
        check("10.1.2.3", &[(X, "1.1.1.1"), (X, "203.0.113.5 ,10.9.9.9")], "203.0.113.5");
        check("10.1.2.3", &[(X, "10.0.0.1, 10.0.0.2")], "10.0.0.1");
        check("2001:db8:ffff::7", &[(X, "2001:db8:1::5, 2001:db8:ffff::8")], "2001:db8:1::5");
    }

    #[test]
    fn both_headers_are_read_and_what_is_no_address_names_nobody() {
        for (value, expect) in [
            ("for=203.0.113.5;proto=https;by=10.0.0.1", "203.0.113.5"),
            ("For=\"203.0.113.5:8443\"", "203.0.113.5"),
            ("for=\"[2001:db8:1::5]:4711\"", "2001:db8:1::5"),
            ("for=1.1.1.1, for=203.0.113.5, for=10.0.0.4", "203.0.113.5"),
            ("for=1.1.1.1, for=unknown", "10.1.2.3"),
            ("for=_hidden, for=10.0.0.4", "10.0.0.4"),
            // A client cannot end a quote that the proxy did not begin.
            ("for=\"1.1.1.1, for=203.0.113.5", "10.1.2.3"),
            ("for=\"a\\\", for=1.1.1.1\", for=203.0.113.5", "203.0.113.5"),
            ("for=1.1.1.1;for=2.2.2.2", "10.1.2.3"),
            ("proto=https", "10.1.2.3"),
        ] {
            check("10.1.2.3", &[(F, value)], expect);
        }
        for (value, expect) in [
            ("203.0.113.5:1234", "203.0.113.5"),
            ("[2001:db8:1::5]:80", "2001:db8:1::5"),
            ("2001:db8:1::5", "2001:db8:1::5"),
            ("203.0.113.5:99999", "10.1.2.3"),
            ("[2001:db8:1::5]x", "10.1.2.3"),
            ("1.1.1.1, nonsense", "10.1.2.3"),
            ("1.1.1.1,", "10.1.2.3"),
            ("", "10.1.2.3"),
        ] {
            check("10.1.2.3", &[(X, value)], expect);
        }
        // A proxy that writes one of them and passes the other on as the client sent it.
        check("10.1.2.3", &[(X, "203.0.113.5"), (F, "for=1.1.1.1")], "10.1.2.3");
        check("10.1.2.3", &[(X, "203.0.113.5"), (F, "for=203.0.113.5")], "203.0.113.5");
    }
}
