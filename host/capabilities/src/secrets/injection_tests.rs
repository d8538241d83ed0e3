//! Placeholders in every part of a request, and echoed values.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use secrecy::SecretString;
use toolbay_policy::capability::net::{AddressScope, HostPattern, NetRule, Scheme};
use toolbay_policy::capability::secret::{Secret, SecretSource};

use super::*;

const VALUE: &str = "canary-value-0123456789";
/// More bytes than any header in these tests.
const MOST: usize = 64 << 10;
const ORIGIN: &str = "https://api.example.com/v1?q=1";

fn entry(name: &str, value: &str, headers: &[&str]) -> Arc<SecretEntry> {
    let origin = |scheme, host, port| NetRule {
        methods: None,
        scheme,
        host,
        addresses: AddressScope::IncludingPrivate,
        port: Some(port),
        path: None,
        except: BTreeSet::new(),
    };
    let origins = vec![
        origin(Scheme::Https, HostPattern::Exact("api.example.com".to_owned()), 443),
        origin(Scheme::Https, HostPattern::Subdomains("example.org".to_owned()), 8443),
        origin(Scheme::Http, HostPattern::Exact("127.0.0.1".to_owned()), 8080),
        origin(Scheme::Http, HostPattern::Exact("[::1]".to_owned()), 80),
    ];
    let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
    let rule = Secret::new(SecretSource::Env("X".to_owned()), origins, &headers, false).unwrap();
    Arc::new(SecretEntry { name: name.to_owned(), rule, value: SecretString::from(value.to_owned()) })
}

struct PlaceholderCall {
    placeholders: SecretPlaceholders,
    placeholder: String,
}

fn call() -> PlaceholderCall {
    let placeholders = SecretPlaceholders::default();
    let placeholder = placeholders.issue(&entry("KEY", VALUE, &["authorization", "x-api-key"])).unwrap();
    PlaceholderCall { placeholders, placeholder }
}

impl PlaceholderCall {
    /// Injects into one header and returns what would be sent.
    fn send(&self, name: &str, value: &str, url: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("text/plain"));
        headers
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        let before = headers.clone();
        let done = self
            .placeholders
            .inject(&mut headers, &Url::parse(url).unwrap(), MOST)
            .map_err(|why| why.for_operator());
        if done.is_err() {
            assert_eq!(headers, before, "a refusal changes no header");
        }
        done.map(|()| String::from_utf8(headers.get(name).unwrap().as_bytes().to_vec()).unwrap())
    }
}

#[test]
fn a_placeholder_is_replaced_at_the_allowed_headers_and_origins() {
    let call = call();
    let placeholder = &call.placeholder;
    assert!(placeholder.len() == 36 && placeholder.starts_with("tbs_"));
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (name, sent, arrives) in [
        ("authorization", placeholder.clone(), VALUE.to_owned()),
        ("authorization", format!("Bearer {placeholder}"), format!("Bearer {VALUE}")),
        (
            "Authorization",
            format!("placeholder {placeholder}, again {placeholder}"),
            format!("placeholder {VALUE}, again {VALUE}"),
        ),
        ("x-api-key", placeholder.clone(), VALUE.to_owned()),
        ("authorization", basic(&format!("me:{placeholder}")), basic(&format!("me:{VALUE}"))),
        ("authorization", basic(&format!("{placeholder}:")), basic(&format!("{VALUE}:"))),
        (
            "authorization",
            basic(&format!("{placeholder}:")).replace("Basic", "bAsIc").replace('=', ""),
            basic(&format!("{VALUE}:")).replace("Basic", "bAsIc"),
        ),
        ("authorization", "Bearer else".to_owned(), "Bearer else".to_owned()),
        ("authorization", "Basic !!!".to_owned(), "Basic !!!".to_owned()),
        ("x-other", "tbs_short".to_owned(), "tbs_short".to_owned()),
    ] {
        for url in [
            ORIGIN,
            "https://API.example.com:443/",
            "https://api.example.com./",
            "https://a.b.example.org:8443/",
            "http://127.0.0.1:8080/",
            "http://2130706433:8080/",
            "http://[::1]/",
        ] {
            assert_eq!(
                call.send(name, &sent, url).as_deref(),
                Ok(arrives.as_str()),
                "{name}: {sent} to {url}"
            );
        }
    }
}

#[test]
fn a_placeholder_anywhere_else_is_refused_with_the_policy_line() {
    let call = call();
    let placeholder = &call.placeholder;
    let bearer = format!("Bearer {placeholder}");
    let basic = format!("Basic {}", STANDARD.encode(format!("u:{placeholder}")));
    for (name, value, url, line) in [
        ("x-other", placeholder, ORIGIN, "\"x-other\"]"),
        ("cookie", &format!("a={placeholder}"), ORIGIN, "\"cookie\"]"),
        ("proxy-authorization", &basic, ORIGIN, "\"proxy-authorization\"]"),
        ("authorization", &bearer, "https://evil.example/", "\"https://evil.example\"]"),
        ("authorization", &basic, "https://evil.example/", "\"https://evil.example\"]"),
        ("authorization", &bearer, "http://api.example.com/", "\"http://api.example.com\"]"),
        ("authorization", &bearer, "https://api.example.com:8443/", "\"https://api.example.com:8443\"]"),
        ("authorization", &bearer, "https://api.example.com.evil.test/", "evil.test"),
        ("authorization", &bearer, "https://api.example.com@evil.test/", "https://evil.test"),
        ("authorization", &bearer, "https://evil.test/api.example.com", "https://evil.test"),
        ("authorization", &bearer, "https://evilapi.example.com/", "evilapi"),
        ("authorization", &bearer, "https://example.org:8443/", "https://example.org:8443"),
        ("authorization", &bearer, "ftp://api.example.com/", "ftp://api.example.com"),
        ("accept", &"x".to_owned(), &format!("https://api.example.com/?k={placeholder}"), "in the URL"),
        ("accept", &"x".to_owned(), &format!("https://{placeholder}@api.example.com/"), "in the URL"),
        ("accept", &"x".to_owned(), &format!("https://api.example.com/{placeholder}"), "in the URL"),
    ] {
        let refusal = call.send(name, value, url).unwrap_err();
        assert!(refusal.contains(line) && refusal.contains("[secrets.\"KEY\"]"), "{url}: {refusal}");
        assert!(!refusal.contains(VALUE), "{refusal}");
    }
    assert!(
        call.placeholders
            .check_body(format!("{{\"k\":\"{placeholder}\"}}").as_bytes())
            .unwrap_err()
            .contains("body")
    );
    assert_eq!(call.placeholders.check_body(b"{}"), Ok(()));
    let mut headers = HeaderMap::new();
    headers.append(HeaderName::from_bytes(placeholder.as_bytes()).unwrap(), HeaderValue::from_static("x"));
    assert!(call.placeholders.inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST).is_err());
}

#[test]
fn the_placeholder_of_another_call_is_refused() {
    let (mine, other) = (call(), call());
    assert_ne!(mine.placeholder, other.placeholder);
    for value in
        [other.placeholder.clone(), format!("Basic {}", STANDARD.encode(format!("u:{}", other.placeholder)))]
    {
        let refusal = mine.send("authorization", &value, ORIGIN).unwrap_err();
        assert!(refusal.contains("of another call") && !refusal.contains("KEY"), "{refusal}");
    }
    let none = PlaceholderCall { placeholders: SecretPlaceholders::default(), placeholder: String::new() };
    assert!(none.send("authorization", &mine.placeholder, ORIGIN).is_err());
}

#[test]
fn each_secret_of_a_call_follows_its_own_rule() {
    let call = call();
    let entry = entry("OTHER", "other-value-987654321", &["x-other"]);
    let other = call.placeholders.issue(&entry).unwrap();
    assert_eq!(call.placeholders.issue(&entry).unwrap(), other, "one placeholder for a secret in a call");
    assert_eq!(call.send("x-other", &other, ORIGIN).unwrap(), "other-value-987654321");
    assert!(call.send("x-other", &call.placeholder, ORIGIN).unwrap_err().contains("KEY"));
    assert!(
        call.send("authorization", &format!("{} {other}", call.placeholder), ORIGIN)
            .unwrap_err()
            .contains("OTHER")
    );
}

#[test]
fn an_injected_header_is_sensitive_and_repeated_headers_are_searched() {
    let call = call();
    let mut headers = HeaderMap::new();
    for value in ["plain", &call.placeholder, "last"] {
        headers.append("authorization", HeaderValue::from_str(value).unwrap());
    }
    call.placeholders.inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST).unwrap();
    let sent: Vec<_> =
        headers.get_all("authorization").iter().map(|v| (v.as_bytes(), v.is_sensitive())).collect();
    assert_eq!(sent, [(&b"plain"[..], false), (VALUE.as_bytes(), true), (b"last", false)]);
    assert!(!format!("{headers:?} {:?}", call.placeholders).contains(VALUE));
}

#[test]
fn an_echoed_value_is_redacted() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE), ("ELSE", "another-value-of-the-host")]).unwrap();
    let body = format!("you sent {VALUE} and {}", STANDARD.encode(VALUE)).into_bytes();
    assert_eq!(call.placeholders.scrub(&redactor, body.clone()), b"you sent [secret KEY] and [secret KEY]");
    assert_eq!(
        SecretPlaceholders::default().scrub(&redactor, body.clone()),
        body,
        "no placeholder was issued"
    );
    let guess = b"another-value-of-the-host".to_vec();
    assert_eq!(
        call.placeholders.scrub(&redactor, guess.clone()),
        guess,
        "the response is no oracle for other secrets"
    );
}

#[test]
fn an_echoed_value_is_redacted_across_any_chunk_boundary() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let percent: String = VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let filler = "0123456789 ".repeat(100);
    let body = format!("{VALUE}{filler}{percent}{VALUE}{filler}{}{filler}{VALUE}", STANDARD.encode(VALUE));
    let clean =
        format!("[secret KEY]{filler}[secret KEY][secret KEY]{filler}[secret KEY]{filler}[secret KEY]");
    for size in [1, 2, 7, 64, 333, 1000, 10_000] {
        let mut scrubber = Scrubber::new(&call.placeholders, &redactor);
        let mut out = Vec::new();
        for part in body.as_bytes().chunks(size) {
            out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(part)));
            assert!(scrubber.pending.len() <= call.placeholders.longest_match() + size);
        }
        out.extend_from_slice(&scrubber.finish());
        assert_eq!(String::from_utf8(out).unwrap(), clean, "in parts of {size}");
    }
    let mut idle = Scrubber::new(&SecretPlaceholders::default(), &redactor);
    assert_eq!(idle.push(Bytes::from_static(VALUE.as_bytes())), VALUE, "no placeholder was issued");
}

/// One automaton searches for all secrets: when values of two secrets overlap, the call's own must be found.
#[test]
fn an_echoed_value_is_redacted_when_other_secrets_overlap_it() {
    for (name, other) in [
        ("A", VALUE.to_owned()),
        ("Z", VALUE.to_owned()),
        ("A", format!("user:{VALUE}")),
        ("A", format!("{VALUE}-and-more")),
        ("A", VALUE[..12].to_owned()),
    ] {
        let redactor = Redactor::new([("KEY", VALUE), (name, other.as_str())]).unwrap();
        for echo in
            [VALUE.to_owned(), format!("user:{VALUE}-and-more"), STANDARD.encode(format!("user:{VALUE}"))]
        {
            let clean =
                String::from_utf8(call().placeholders.scrub(&redactor, echo.clone().into_bytes())).unwrap();
            assert!(
                clean.contains("[secret KEY]") && !clean.contains("canary"),
                "{other}: {echo} -> {clean}"
            );
            let mut scrubber = Scrubber::new(&call().placeholders, &redactor);
            let parts = [scrubber.push(Bytes::from(echo)), scrubber.finish()].concat();
            assert_eq!(String::from_utf8(parts).unwrap(), clean);
        }
    }
}

#[test]
fn a_body_is_redacted_before_it_is_cut() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let body = format!("you sent {}", VALUE.repeat(100)).into_bytes();
    for max in 0..body.len() {
        // As many bytes as the host reads for this limit.
        let read = body[..body.len().min(max + call.placeholders.longest_match())].to_vec();
        let cut = String::from_utf8(call.placeholders.scrub_prefix(&redactor, read, max)).unwrap();
        let clean = "you sent ".to_owned() + &"[secret KEY]".repeat(100);
        assert!(clean.starts_with(&cut) && cut.len() <= max, "{max}: {cut}");
    }
    let whole = call.placeholders.scrub_prefix(&redactor, body.clone(), usize::MAX);
    assert_eq!(whole.len(), 9 + 1200);
    assert_eq!(
        SecretPlaceholders::default().scrub_prefix(&redactor, body, 12),
        b"you sent can",
        "no placeholder was issued"
    );
}

#[test]
fn a_stream_opened_before_the_first_placeholder_is_searched_afterwards() {
    let placeholders = SecretPlaceholders::default();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let mut scrubber = Scrubber::new(&placeholders.clone(), &redactor);
    assert_eq!(scrubber.push(Bytes::from_static(b"before ")), "before ");
    placeholders.issue(&entry("KEY", VALUE, &[])).unwrap();
    let parts = [scrubber.push(Bytes::from(format!("after {VALUE}"))), scrubber.finish()].concat();
    assert_eq!(parts, b"after [secret KEY]");
}

#[test]
fn the_header_limit_counts_injected_values() {
    let placeholders = SecretPlaceholders::default();
    let placeholder = placeholders.issue(&entry("KEY", &"v".repeat(16 << 10), &[])).unwrap();
    let send = |value: String| {
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_str(&value).unwrap());
        placeholders
            .inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST)
            .map_err(|why| why.for_operator())
    };
    assert_eq!(send(placeholder.repeat(3)), Ok(()));
    assert!(send(placeholder.repeat(4)).unwrap_err().contains("bytes of headers"));
    assert!(send(placeholder.repeat(1800)).unwrap_err().contains("bytes of headers"));
    let basic = |times| format!("Basic {}", STANDARD.encode(placeholder.repeat(times)));
    assert_eq!(send(basic(2)), Ok(()));
    assert!(send(basic(3)).unwrap_err().contains("bytes of headers"), "the base64 encoding counts");
    let mut many = HeaderMap::new();
    for _ in 0..4 {
        many.append("authorization", HeaderValue::from_str(&placeholder).unwrap());
    }
    assert!(placeholders.inject(&mut many, &Url::parse(ORIGIN).unwrap(), MOST).is_err());
}

#[test]
fn a_body_is_searched_once_for_all_placeholders() {
    let placeholders = SecretPlaceholders::default();
    let all: Vec<_> =
        (0..200).map(|n| placeholders.issue(&entry(&format!("K{n}"), VALUE, &[])).unwrap()).collect();
    let mut body = "tbs_t".repeat(400_000);
    assert_eq!(placeholders.check_body(body.as_bytes()), Ok(()));
    body += all.last().unwrap();
    assert!(placeholders.check_body(body.as_bytes()).unwrap_err().contains("K199"));
}
