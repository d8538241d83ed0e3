//! Determines the client address of a request, also behind reverse proxies.
//!
//! A proxy appends the address of its client to `Forwarded` (RFC 7239) or `X-Forwarded-For`. Every client can send
//! these headers. They are read only if the connection comes from a proxy that the policy trusts (`[serve]
//! trusted_proxies`), and from the right: each trusted proxy vouches for the entry that it appended. The first address
//! from the right that is not a trusted proxy is therefore the client. The client itself sent everything to the left of
//! it.
//!
//! A proxy forwards to another one, never to itself, so each address vouches once. A client on the machine of a proxy has
//! the proxy's address: the entry that the proxy wrote about it is the last one that counts.
//!
//! If a trusted proxy provides no address (no header, `unknown`, an obfuscated name), the client is the last certain
//! hop. The same holds if the two headers contradict each other, because a proxy forwarded one of them unchanged.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

use super::headers::split_unquoted;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client address of a request that came from `peer`. The addresses in `trusted` are those of proxies.
#[must_use]
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let standard = hops(headers, &FORWARDED, forwarded_for);
    let usual = hops(headers, &X_FORWARDED_FOR, |entry| parse_address(entry.trim()));
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

/// Most proxies in a row. Further entries are the client's own.
const MAX_PROXIES: usize = 16;

/// The first hop from the right that is not a trusted proxy, or that is one which has vouched already. If each trusted
/// proxy vouched for another one, the last of them.
fn last_untrusted(peer: IpAddr, hops: &[Option<IpAddr>], trusted: &[IpNet]) -> IpAddr {
    let mut vouched = vec![peer];
    for hop in hops.iter().rev().take(MAX_PROXIES) {
        let last = vouched.last().copied().unwrap_or(peer);
        let Some(hop) = *hop else { return last };
        if !is_trusted(hop, trusted) || vouched.contains(&hop) {
            return hop;
        }
        vouched.push(hop);
    }
    vouched.last().copied().unwrap_or(peer)
}

/// The hops in all headers of a name, from left to right. A hop without an address is `None`. Returns `None` if the
/// header is absent.
fn hops(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&str) -> Option<IpAddr>,
) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = None;
    for value in headers.get_all(name) {
        let hops: &mut Vec<Option<IpAddr>> = hops.get_or_insert_default();
        match value.to_str() {
            Ok(text) => hops.extend(split_unquoted(text, ',').map(&read)),
            Err(_) => hops.push(None),
        }
    }
    hops
}

/// The `for` address of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut named = split_unquoted(element, ';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    });
    let (Some(value), None) = (named.next(), named.next()) else { return None };
    // Addresses need no escapes inside the quotes.
    let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    parse_address(bare.trim())
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` and `[2001:db8::1]:80`.
fn parse_address(text: &str) -> Option<IpAddr> {
    let without_port = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
                return None;
            }
            address
        }
        None => match text.split_once(':') {
            // More than one colon: an IPv6 address.
            Some((address, port)) if is_port(port) => address,
            Some(_) | None => text,
        },
    };
    without_port.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
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
    fn only_entries_that_trusted_proxies_appended_count() {
        check("192.0.2.1", &[(X, "203.0.113.5")], "192.0.2.1");
        check("192.0.2.1", &[(F, "for=203.0.113.5")], "192.0.2.1");
        check("10.1.2.3", &[], "10.1.2.3");
        check("10.1.2.3", &[(X, "203.0.113.5")], "203.0.113.5");
        check("::ffff:10.1.2.3", &[(X, "::ffff:203.0.113.5")], "203.0.113.5");
        // The client itself sent the entries on the left.
        check("10.1.2.3", &[(X, "1.1.1.1, 203.0.113.5")], "203.0.113.5");
        check("10.1.2.3", &[(X, "1.1.1.1"), (X, "203.0.113.5 ,10.9.9.9")], "203.0.113.5");
        check("10.1.2.3", &[(X, "10.0.0.1, 10.0.0.2")], "10.0.0.1");
        // A client on the machine of the proxy.
        check("10.1.2.3", &[(X, "203.0.113.5, 10.1.2.3")], "10.1.2.3");
        check("10.1.2.3", &[(F, "for=203.0.113.5, for=10.1.2.3")], "10.1.2.3");
        check("10.1.2.3", &[(X, "203.0.113.5, 10.0.0.2, 10.0.0.2")], "10.0.0.2");
        check("2001:db8:ffff::7", &[(X, "2001:db8:1::5, 2001:db8:ffff::8")], "2001:db8:1::5");
    }

    #[test]
    fn both_headers_are_read_and_invalid_entries_stop_the_search() {
        for (value, expect) in [
            ("for=203.0.113.5;proto=https;by=10.0.0.1", "203.0.113.5"),
            ("For=\"203.0.113.5:8443\"", "203.0.113.5"),
            ("for=\"[2001:db8:1::5]:4711\"", "2001:db8:1::5"),
            ("for=1.1.1.1, for=203.0.113.5, for=10.0.0.4", "203.0.113.5"),
            ("for=1.1.1.1, for=unknown", "10.1.2.3"),
            ("for=_hidden, for=10.0.0.4", "10.0.0.4"),
            // An unterminated quote of the client swallows the entry of the proxy.
            ("for=\"1.1.1.1, for=203.0.113.5", "10.1.2.3"),
            ("for=\"a\\\", for=1.1.1.1\", for=203.0.113.5", "203.0.113.5"),
            ("for=1.1.1.1;for=2.2.2.2", "10.1.2.3"),
            ("proto=https", "10.1.2.3"),
            // Some proxies write blanks, which RFC 7239 does not have.
            ("for = 203.0.113.5 ; proto = https", "203.0.113.5"),
            ("proto=https ;\tFor\t=\t\" 203.0.113.5:80 \"", "203.0.113.5"),
            ("for=1.1.1.1 , for= \"[2001:db8:1::5]\" ", "2001:db8:1::5"),
            ("for=1.1.1.1; for =2.2.2.2", "10.1.2.3"),
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
        // A proxy that writes one header and forwards the other unchanged.
        check("10.1.2.3", &[(X, "203.0.113.5"), (F, "for=1.1.1.1")], "10.1.2.3");
        check("10.1.2.3", &[(X, "203.0.113.5"), (F, "for=203.0.113.5")], "203.0.113.5");
    }
}
