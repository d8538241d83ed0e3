//! Tokens in every place of a request, and values that come back.

#![allow(clippy::unwrap_used, reason = "tests")]

use secrecy::SecretString;
use toolbay_policy::capability::net::{Allowed, HostPattern, NetRule, Scheme};
use toolbay_policy::capability::secret::{Secret, SecretSource};

use super::*;

const VALUE: &str = "canary-value-0123456789";
/// More than any header here has.
const MOST: usize = 64 << 10;
const ORIGIN: &str = "https://api.example.com/v1?q=1";

fn held(name: &str, value: &str, headers: &[&str]) -> Arc<Held> {
    let origin = |scheme, host, port| NetRule {
        methods: None,
        scheme,
        host,
        addresses: Allowed::Named,
        port: Some(port),
        path: None,
    };
    let origins = vec![
        origin(Scheme::Https, HostPattern::Exact("api.example.com".to_owned()), 443),
        origin(Scheme::Https, HostPattern::Below("example.org".to_owned()), 8443),
        origin(Scheme::Http, HostPattern::Exact("127.0.0.1".to_owned()), 8080),
        origin(Scheme::Http, HostPattern::Exact("[::1]".to_owned()), 80),
    ];
    let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
    let rule = Secret::new(SecretSource::Env("X".to_owned()), origins, &headers, false).unwrap();
    Arc::new(Held { name: name.to_owned(), rule, value: SecretString::from(value.to_owned()) })
}

struct Call {
    tokens: Tokens,
    token: String,
}

fn call() -> Call {
    let tokens = Tokens::default();
    let token = tokens.issue(&held("KEY", VALUE, &["authorization", "x-api-key"])).unwrap();
    Call { tokens, token }
}

impl Call {
    /// Sends one header and tells what left.
    fn send(&self, name: &str, value: &str, url: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("text/plain"));
        headers
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        let before = headers.clone();
        let done = self
            .tokens
            .inject(&mut headers, &Url::parse(url).unwrap(), MOST)
            .map_err(|why| why.for_operator());
        if done.is_err() {
            assert_eq!(headers, before, "nothing is changed");
        }
        done.map(|()| String::from_utf8(headers.get(name).unwrap().as_bytes().to_vec()).unwrap())
    }
}

#[test]
fn a_token_is_swapped_where_the_operator_said() {
    let call = call();
    let token = &call.token;
    assert!(token.len() == 36 && token.starts_with("tbs_"));
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (name, sent, arrives) in [
        ("authorization", token.clone(), VALUE.to_owned()),
        ("authorization", format!("Bearer {token}"), format!("Bearer {VALUE}")),
        ("Authorization", format!("token {token}, again {token}"), format!("token {VALUE}, again {VALUE}")),
        ("x-api-key", token.clone(), VALUE.to_owned()),
        ("authorization", basic(&format!("me:{token}")), basic(&format!("me:{VALUE}"))),
        ("authorization", basic(&format!("{token}:")), basic(&format!("{VALUE}:"))),
        (
            "authorization",
            basic(&format!("{token}:")).replace("Basic", "bAsIc").replace('=', ""),
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
fn a_token_anywhere_else_is_refused_and_the_policy_line_named() {
    let call = call();
    let token = &call.token;
    let bearer = format!("Bearer {token}");
    let basic = format!("Basic {}", STANDARD.encode(format!("u:{token}")));
    for (name, value, url, line) in [
        ("x-other", token, ORIGIN, "\"x-other\"]"),
        ("cookie", &format!("a={token}"), ORIGIN, "\"cookie\"]"),
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
        ("accept", &"x".to_owned(), &format!("https://api.example.com/?k={token}"), "address"),
        ("accept", &"x".to_owned(), &format!("https://{token}@api.example.com/"), "address"),
        ("accept", &"x".to_owned(), &format!("https://api.example.com/{token}"), "address"),
    ] {
        let refusal = call.send(name, value, url).unwrap_err();
        assert!(refusal.contains(line) && refusal.contains("[secrets.\"KEY\"]"), "{url}: {refusal}");
        assert!(!refusal.contains(VALUE), "{refusal}");
    }
    assert!(
        call.tokens.check_body(format!("{{\"k\":\"{token}\"}}").as_bytes()).unwrap_err().contains("body")
    );
    assert_eq!(call.tokens.check_body(b"{}"), Ok(()));
    let mut headers = HeaderMap::new();
    headers.append(HeaderName::from_bytes(token.as_bytes()).unwrap(), HeaderValue::from_static("x"));
    assert!(call.tokens.inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST).is_err());
}

#[test]
fn the_token_of_another_call_is_worth_nothing() {
    let (mine, other) = (call(), call());
    assert_ne!(mine.token, other.token);
    for value in [other.token.clone(), format!("Basic {}", STANDARD.encode(format!("u:{}", other.token)))] {
        let refusal = mine.send("authorization", &value, ORIGIN).unwrap_err();
        assert!(refusal.contains("not of this call") && !refusal.contains("KEY"), "{refusal}");
    }
    let none = Call { tokens: Tokens::default(), token: String::new() };
    assert!(none.send("authorization", &mine.token, ORIGIN).is_err());
}

#[test]
fn two_secrets_of_a_call_go_each_their_way() {
    let call = call();
    let held = held("OTHER", "other-value-987654321", &["x-other"]);
    let other = call.tokens.issue(&held).unwrap();
    assert_eq!(call.tokens.issue(&held).unwrap(), other, "one token for a secret and call");
    assert_eq!(call.send("x-other", &other, ORIGIN).unwrap(), "other-value-987654321");
    assert!(call.send("x-other", &call.token, ORIGIN).unwrap_err().contains("KEY"));
    assert!(
        call.send("authorization", &format!("{} {other}", call.token), ORIGIN).unwrap_err().contains("OTHER")
    );
}

#[test]
fn what_is_swapped_is_marked_and_every_header_of_a_name_is_looked_at() {
    let call = call();
    let mut headers = HeaderMap::new();
    for value in ["plain", &call.token, "last"] {
        headers.append("authorization", HeaderValue::from_str(value).unwrap());
    }
    call.tokens.inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST).unwrap();
    let sent: Vec<_> =
        headers.get_all("authorization").iter().map(|v| (v.as_bytes(), v.is_sensitive())).collect();
    assert_eq!(sent, [(&b"plain"[..], false), (VALUE.as_bytes(), true), (b"last", false)]);
    assert!(!format!("{headers:?} {:?}", call.tokens).contains(VALUE));
}

#[test]
fn an_echo_comes_back_without_the_value() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE), ("ELSE", "another-value-of-the-host")]).unwrap();
    let body = format!("you sent {VALUE} and {}", STANDARD.encode(VALUE)).into_bytes();
    assert_eq!(call.tokens.scrub(&redactor, body.clone()), b"you sent [secret KEY] and [secret KEY]");
    assert_eq!(Tokens::default().scrub(&redactor, body.clone()), body, "nothing was injected");
    let guess = b"another-value-of-the-host".to_vec();
    assert_eq!(call.tokens.scrub(&redactor, guess.clone()), guess, "no oracle for the secrets of others");
}

#[test]
fn an_echo_in_parts_comes_back_without_the_value_wherever_it_is_cut() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let percent: String = VALUE.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let filler = "0123456789 ".repeat(100);
    let body = format!("{VALUE}{filler}{percent}{VALUE}{filler}{}{filler}{VALUE}", STANDARD.encode(VALUE));
    let clean =
        format!("[secret KEY]{filler}[secret KEY][secret KEY]{filler}[secret KEY]{filler}[secret KEY]");
    for size in [1, 2, 7, 64, 333, 1000, 10_000] {
        let mut scrubber = Scrubber::new(&call.tokens, &redactor);
        let mut out = Vec::new();
        for part in body.as_bytes().chunks(size) {
            out.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(part)));
            assert!(scrubber.held.len() <= call.tokens.reach() + size);
        }
        out.extend_from_slice(&scrubber.end());
        assert_eq!(String::from_utf8(out).unwrap(), clean, "in parts of {size}");
    }
    let mut idle = Scrubber::new(&Tokens::default(), &redactor);
    assert_eq!(idle.push(Bytes::from_static(VALUE.as_bytes())), VALUE, "nothing was injected");
}

/// One automaton knows all secrets: whichever of two that cover each other is the call's, it is found.
#[test]
fn an_echo_comes_back_without_the_value_whatever_other_secrets_there_are() {
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
            let clean = String::from_utf8(call().tokens.scrub(&redactor, echo.clone().into_bytes())).unwrap();
            assert!(
                clean.contains("[secret KEY]") && !clean.contains("canary"),
                "{other}: {echo} -> {clean}"
            );
            let mut scrubber = Scrubber::new(&call().tokens, &redactor);
            let parts = [scrubber.push(Bytes::from(echo)), scrubber.end()].concat();
            assert_eq!(String::from_utf8(parts).unwrap(), clean);
        }
    }
}

#[test]
fn a_body_is_cut_after_it_was_searched() {
    let call = call();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let body = format!("you sent {}", VALUE.repeat(100)).into_bytes();
    for most in 0..body.len() {
        // As many bytes as are read for it.
        let read = body[..body.len().min(most + call.tokens.reach())].to_vec();
        let cut = String::from_utf8(call.tokens.scrub_start(&redactor, read, most)).unwrap();
        let clean = "you sent ".to_owned() + &"[secret KEY]".repeat(100);
        assert!(clean.starts_with(&cut) && cut.len() <= most, "{most}: {cut}");
    }
    let whole = call.tokens.scrub_start(&redactor, body.clone(), usize::MAX);
    assert_eq!(whole.len(), 9 + 1200);
    assert_eq!(Tokens::default().scrub_start(&redactor, body, 12), b"you sent can", "nothing was injected");
}

#[test]
fn what_was_open_before_the_first_token_is_searched_from_then_on() {
    let tokens = Tokens::default();
    let redactor = Redactor::new([("KEY", VALUE)]).unwrap();
    let mut scrubber = Scrubber::new(&tokens.clone(), &redactor);
    assert_eq!(scrubber.push(Bytes::from_static(b"before ")), "before ");
    tokens.issue(&held("KEY", VALUE, &[])).unwrap();
    let parts = [scrubber.push(Bytes::from(format!("after {VALUE}"))), scrubber.end()].concat();
    assert_eq!(parts, b"after [secret KEY]");
}

#[test]
fn headers_are_bounded_with_the_values_in_them() {
    let tokens = Tokens::default();
    let token = tokens.issue(&held("KEY", &"v".repeat(16 << 10), &[])).unwrap();
    let send = |value: String| {
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_str(&value).unwrap());
        tokens.inject(&mut headers, &Url::parse(ORIGIN).unwrap(), MOST).map_err(|why| why.for_operator())
    };
    assert_eq!(send(token.repeat(3)), Ok(()));
    assert!(send(token.repeat(4)).unwrap_err().contains("bytes of headers"));
    assert!(send(token.repeat(1800)).unwrap_err().contains("bytes of headers"));
    let basic = |times| format!("Basic {}", STANDARD.encode(token.repeat(times)));
    assert_eq!(send(basic(2)), Ok(()));
    assert!(send(basic(3)).unwrap_err().contains("bytes of headers"), "base64 counts");
    let mut many = HeaderMap::new();
    for _ in 0..4 {
        many.append("authorization", HeaderValue::from_str(&token).unwrap());
    }
    assert!(tokens.inject(&mut many, &Url::parse(ORIGIN).unwrap(), MOST).is_err());
}

#[test]
fn a_body_is_looked_through_once_for_all_stand_ins() {
    let tokens = Tokens::default();
    let all: Vec<_> = (0..200).map(|n| tokens.issue(&held(&format!("K{n}"), VALUE, &[])).unwrap()).collect();
    let mut body = "tbs_t".repeat(400_000);
    assert_eq!(tokens.check_body(body.as_bytes()), Ok(()));
    body += all.last().unwrap();
    assert!(tokens.check_body(body.as_bytes()).unwrap_err().contains("K199"));
}
