//! Compares URIs by their normalized percent-encoding (RFC 3986, sections 6.2.2.1 and 6.2.2.2): an encoded unreserved
//! character equals the plain one, and the hexadecimal digits have no case. A character that no URI may have equals its
//! encoding in UTF-8 (RFC 3987, section 3.1), because clients encode it before they send the URI.

use std::borrow::Cow;

/// How the addresses of this host begin.
const OWN_SCHEME: &str = "toolbay://";

/// Whether two URIs have the same normalized percent-encoding.
pub(crate) fn is_same_uri(one: &str, other: &str) -> bool {
    one == other || normalized_bytes(one).eq(normalized_bytes(other))
}

/// An address of this host in its normalized percent-encoding. `None` for any other URI.
pub(crate) fn normalize_own_address(uri: &str) -> Option<String> {
    uri.starts_with(OWN_SCHEME).then(|| normalized_bytes(uri).map(char::from).collect())
}

/// The spellings of a URI in which a pattern may name it: as it is written, in its normalized percent-encoding, and with
/// every character that a URI could not have (`ü`, a space) decoded. An encoded reserved character stays encoded in all of
/// them: `%2F` is no `/`.
pub(crate) fn spellings(uri: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let normal = move || normalized_bytes(uri).map(char::from).collect();
    let decoded = move || Some(Cow::Owned(decode_foreign(&normalized_bytes(uri).collect::<Vec<_>>())?));
    let (normal, decoded) = (std::iter::once_with(normal).map(Cow::Owned), std::iter::once_with(decoded));
    std::iter::once(Cow::Borrowed(uri)).chain(normal).chain(decoded.flatten())
}

/// Decodes the characters of a normalized URI that no URI may have. `None` if the result is not UTF-8.
fn decode_foreign(mut uri: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(uri.len());
    while let Some((first, rest)) = uri.split_first() {
        let encoded = match rest {
            [high, low, ..] if *first == b'%' => decode_hex(*high, *low),
            _ => None,
        };
        let foreign = encoded.filter(|byte| !is_legal(*byte) && !byte.is_ascii_control());
        text.push(foreign.unwrap_or(*first));
        uri = if foreign.is_some() { rest.get(2..)? } else { rest };
    }
    String::from_utf8(text).ok()
}

/// The bytes of a URI in normalized percent-encoding, which are ASCII.
fn normalized_bytes(uri: &str) -> impl Iterator<Item = u8> {
    let mut rest = uri.as_bytes();
    let characters = std::iter::from_fn(move || {
        let encoded = match rest {
            [b'%', high, low, ..] => decode_hex(*high, *low),
            _ => None,
        };
        let (byte, length, is_plain) = match (encoded, *rest.first()?) {
            (Some(byte), _) => (byte, 3, is_unreserved(byte)),
            (None, byte) => (byte, 1, is_legal(byte)),
        };
        rest = rest.get(length..)?;
        Some(if is_plain { ([byte; 3], 1) } else { ([b'%', hex_digit(byte >> 4), hex_digit(byte & 15)], 3) })
    });
    characters.flat_map(|(bytes, length)| bytes.into_iter().take(length))
}

/// The byte of two hexadecimal digits.
fn decode_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(high)? << 4) | digit(low)?)
}

/// The hexadecimal digit of a number below 16.
fn hex_digit(number: u8) -> u8 {
    if number < 10 { b'0' + number } else { b'A' + number - 10 }
}

/// Whether a character means the same with and without encoding (RFC 3986, section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether a URI may have a character unencoded, or begins an encoding with it.
fn is_legal(byte: u8) -> bool {
    is_unreserved(byte) || b":/?#[]@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_uris_differ_only_in_their_percent_encoding() {
        for (one, other) in [
            ("toolbay://mcp/s/file:///ü", "toolbay://mcp/s/file:///%C3%BC"),
            ("toolbay://mcp/s/file:///%c3%bc", "toolbay://mcp/s/file:///%C3%BC"),
            ("x:a-b_c.d~e", "x:%61%2db%5Fc%2E%64%7e%65"),
            ("note://{id}|^`<>\"\\ ", "note://%7Bid%7D%7C%5E%60%3C%3E%22%5C%20"),
            ("x:100%", "x:100%"),
            ("x:%zz%4", "x:%zz%4"),
            ("", ""),
        ] {
            assert!(is_same_uri(one, other) && is_same_uri(other, one), "{one} {other}");
        }
        for (one, other) in [
            // Reserved characters mean something else when they are encoded.
            ("x:a/b", "x:a%2Fb"),
            ("x:a?b", "x:a%3fb"),
            ("x:%2561", "x:a"),
            ("x:%2561", "x:%61"),
            ("x:%zz", "x:%25zz"),
            ("x:a", "x:A"),
            ("x:a", "x:ab"),
            ("x:ü", "x:u\u{308}"),
        ] {
            assert!(!is_same_uri(one, other) && !is_same_uri(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_uri_has_the_spellings_in_which_rules_are_written() {
        for (uri, expect) in [
            ("x:a-b", ["x:a-b", "x:a-b", "x:a-b"]),
            ("x:%7ea%2fb", ["x:%7ea%2fb", "x:~a%2Fb", "x:~a%2Fb"]),
            ("x:ü%20b", ["x:ü%20b", "x:%C3%BC%20b", "x:ü b"]),
            ("x:%c3%bc%00%25%3F", ["x:%c3%bc%00%25%3F", "x:%C3%BC%00%25%3F", "x:ü%00%25%3F"]),
        ] {
            assert_eq!(spellings(uri).collect::<Vec<_>>(), expect);
        }
        assert_eq!(spellings("x:%ff").collect::<Vec<_>>(), ["x:%ff", "x:%FF"]);
        assert!(spellings("x:%252e").all(|uri| uri == "x:%252e"), "nothing is decoded twice");
    }

    #[test]
    fn only_addresses_of_this_host_are_normalized() {
        let own = normalize_own_address("toolbay://plugin/p/%61%2db/ü%2f%c3");
        assert_eq!(own.as_deref(), Some("toolbay://plugin/p/a-b/%C3%BC%2F%C3"));
        for other in ["file:///ü", "attachment:1", "TOOLBAY:x", ""] {
            assert_eq!(normalize_own_address(other), None, "{other}");
        }
    }
}
