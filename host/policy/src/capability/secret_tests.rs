//! Tests of names, rules and sections.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn rule(text: &str) -> Result<SecretRule, String> {
    SecretRule::parse(text, Path::new("/w"))
}

fn origin(scheme: Scheme, host: HostPattern, port: u16) -> NetRule {
    NetRule {
        methods: None,
        scheme,
        host,
        addresses: AddressScope::IncludingPrivate,
        port: Some(port),
        path: None,
        except: BTreeSet::new(),
    }
}

#[test]
fn a_rule_matches_a_name_or_everything_below_it() {
    for (text, name, meant) in [
        ("providers/exa/*", "providers/exa/a", true),
        ("providers/exa/*", "providers/exa/a/b", true),
        ("providers/exa/*", "providers/exa", false),
        ("providers/exa/*", "providers/exaEVIL/key", false),
        ("providers/exa/*", "providers/exa/", false),
        ("providers/exa/*", "providers/exa/../openai/apiKey", false),
        ("providers/exa/*", "providers/exa/./a", false),
        ("providers/exa/*", "providers/exa//a", false),
        ("providers/exa/*", "providers/exa/*", false),
        ("providers/exa/*", "providers/exa/a\0", false),
        ("providers/exa/*", "Providers/exa/a", false),
        ("TOKEN", "TOKEN", true),
        ("TOKEN", "TOKEN/a", false),
        ("TOKEN", "token", false),
        ("TOKEN", "TOKEN ", false),
        ("TOKEN", "", false),
    ] {
        assert_eq!(rule(text).unwrap().matches(name), meant, "{text} {name:?}");
    }
}

#[test]
fn an_invalid_rule_is_refused() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for text in [
        "",
        "*",
        "/*",
        "//*",
        "a/*/b",
        "*/a",
        "a*",
        "a/b*",
        "a/**",
        "a/*/*",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/./b",
        "a/../b",
        "../*",
        "a b",
        "a\nb",
        "a\0",
        "\u{202e}a",
        "ä",
        "a\"b",
        "a\\b",
        "a`b",
        "[a]",
        &long,
    ] {
        let error = rule(text).unwrap_err();
        assert!(error.contains("NAME/*") && error.len() < 400, "{text:?}: {error}");
        assert!(!error.contains(['\n', '\0', '\u{202e}']), "{text:?}: {error:?}");
    }
}

fn any_rule() -> impl Strategy<Value = SecretRule> {
    // Few short segments, so that rules overlap often.
    (proptest::collection::vec("[ab]{1,2}", 1..4), any::<bool>()).prop_map(|(segments, below)| {
        let name = segments.join("/");
        if below { SecretRule::Descendants(name) } else { SecretRule::Exact(name) }
    })
}

proptest! {
    #[test]
    fn the_laws_of_a_rule(a in any_rule(), b in any_rule(), c in any_rule()) {
        let both = a.intersect(&b);
        prop_assert_eq!(&both, &b.intersect(&a));
        let own = a.intersect(&a);
        prop_assert_eq!(own.as_ref(), Some(&a));
        prop_assert_eq!(rule(&a.show(Path::new("/"))), Ok(a.clone()));
        if let Some(both) = &both {
            prop_assert!(crate::rule::covers(&a, both) && crate::rule::covers(&b, both));
        }
        let left = both.and_then(|both| both.intersect(&c));
        let right = b.intersect(&c).and_then(|both| a.intersect(&both));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn an_intersection_matches_what_both_rules_match(a in any_rule(), b in any_rule(), name in "[ab]{1,2}(/[ab]{1,2}){0,4}") {
        let meant = a.intersect(&b).is_some_and(|both| both.matches(&name));
        prop_assert_eq!(meant, a.matches(&name) && b.matches(&name));
    }

    #[test]
    fn a_matched_name_is_valid(text in ".*", name in ".*") {
        if let Ok(rule) = rule(&text) {
            prop_assert!(!rule.matches(&name) || check_name(&name).is_ok());
        }
    }
}

#[test]
fn a_section_restricts_origins_and_headers() {
    let from = || SecretSource::parse("env:A").unwrap();
    let exact = origin(Scheme::Https, HostPattern::Exact("api.example.com".to_owned()), 443);
    let secret = Secret::new(from(), vec![exact.clone()], &[], false).unwrap();
    assert_eq!(secret.headers, ["authorization"]);
    let below = origin(Scheme::Https, HostPattern::Subdomains("example.com".to_owned()), 8443);
    let wide = Secret::new(from(), vec![exact.clone(), below], &["X-Api-Key".to_owned()], false).unwrap();
    assert_eq!(wide.headers, ["x-api-key"]);
    for (secret, scheme, host, port, goes) in [
        (&secret, "https", "api.example.com", 443, true),
        (&secret, "http", "api.example.com", 443, false),
        (&secret, "https", "api.example.com", 8443, false),
        (&secret, "https", "api.example.com.evil.test", 443, false),
        (&secret, "https", "evil-api.example.com", 443, false),
        (&secret, "https", "example.com", 443, false),
        (&wide, "https", "a.b.example.com", 8443, true),
        (&wide, "https", "example.com", 8443, false),
        (&wide, "https", ".example.com", 8443, false),
        (&wide, "https", "evilexample.com", 8443, false),
    ] {
        let url = url::Url::parse(&format!("{scheme}://{host}:{port}/")).unwrap();
        let target = NetTarget::request("GET", &url);
        assert_eq!(target.is_ok_and(|target| secret.may_be_sent_to(&target)), goes, "{url}");
    }
    assert!(Secret::new(from(), vec![], &[], true).is_ok());
    assert!(Secret::new(from(), vec![], &[], false).unwrap_err().message.contains("reveal = true"));
    for bad in [
        origin(Scheme::Https, HostPattern::Any, 443),
        origin(Scheme::Tcp, HostPattern::Exact("a".to_owned()), 1),
        NetRule { methods: Some(BTreeSet::from(["GET".to_owned()])), ..exact.clone() },
        NetRule::parse("https://api.example.com/a", Path::new("/")).unwrap(),
        NetRule::parse("https://api.example.com public", Path::new("/")).unwrap(),
    ] {
        assert!(
            Secret::new(from(), vec![bad.clone()], &[], false).unwrap_err().message.contains("`origins`"),
            "{bad:?}"
        );
    }
    for header in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "sec-fetch-site",
        "Proxy-Authorization",
        "te",
        "",
        "a b",
        "a\r\nb",
        "a:",
        "\u{e4}",
        "expect",
        "upgrade",
    ] {
        let made = Secret::new(from(), vec![exact.clone()], &[header.to_owned()], false);
        assert!(made.unwrap_err().message.contains("`headers`"), "{header:?}");
    }
}

#[test]
fn a_source_is_env_file_or_keyring() {
    for (text, good) in [
        ("env:TOKEN", true),
        ("file:/run/secrets/token", true),
        ("keyring:github", true),
        ("env:", false),
        ("env:A=B", false),
        ("file:token", false),
        ("file:", false),
        ("file:/a\0b", false),
        ("keyring:", false),
        ("vault:x", false),
        ("TOKEN", false),
        ("", false),
    ] {
        assert_eq!(SecretSource::parse(text).is_ok(), good, "{text}");
    }
}

#[test]
fn the_documentation_table_is_true() {
    let page = include_str!("../../../../docs/reference/capabilities/secrets.md");
    let (_, table) = page.split_once("| rule | name | granted |\n|---|---|---|\n").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(!rows.is_empty());
    for row in rows {
        let said = match rule(row[0]) {
            Ok(rule) if rule.matches(row[1]) => "yes",
            Ok(_) => "no",
            Err(_) => "not a rule",
        };
        assert_eq!(said, row[2], "{row:?}");
    }
}
