use proptest::prelude::*;

use super::*;
use crate::rule::{covers, intersect_lists};

fn root() -> &'static Path {
    Path::new("/")
}

fn rule(text: &str) -> NetRule {
    NetRule::parse(text, root()).unwrap_or_else(|e| panic!("{e}"))
}

fn request(text: &str) -> NetTarget {
    let (method, url) = text.split_once(' ').unwrap_or(("GET", text));
    NetTarget::request(method, &Url::parse(url).unwrap()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn a_rule_is_shown_in_its_canonical_form() {
    for (text, shown) in [
        ("https://api.example.com", "https://api.example.com"),
        ("HTTPS://API.Example.COM.", "https://api.example.com"),
        ("https://api.example.com:443", "https://api.example.com"),
        ("http://api.example.com:80/", "http://api.example.com/"),
        ("get,Head https://x.org:8443/repos/*", "GET,HEAD https://x.org:8443/repos/*"),
        ("https://*.example.com", "https://*.example.com"),
        ("https://*", "https://*"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://2130706433", "http://127.0.0.1"),
        ("http://0177.0.0.1", "http://127.0.0.1"),
        ("http://0x7f.1", "http://127.0.0.1"),
        ("http://[::FFFF:127.0.0.1]:8080", "http://[::ffff:127.0.0.1]:8080"),
        ("https://[fd00:0::7]", "https://[fd00::7]"),
        ("tcp://db.example.com:5432", "tcp://db.example.com:5432"),
        ("udp://1.1.1.1:53", "udp://1.1.1.1:53"),
        ("tcp://*:25", "tcp://*:25"),
        ("https://x.org:*/a", "https://x.org:*/a"),
        ("tcp://*:*", "tcp://*:*"),
        ("https://a_b.example.com", "https://a_b.example.com"),
        ("https://x.org public", "https://x.org public"),
        ("get https://*.x.org:*/a/* public", "GET https://*.x.org:*/a/* public"),
        ("tcp://x.org:1 public", "tcp://x.org:1 public"),
        ("https://* public", "https://*"),
        ("https://* & !Vault.X.org. & !*.in.x.org", "https://* & !*.in.x.org & !vault.x.org"),
        ("get https://*.x.org/a public & !0x7f.1", "GET https://*.x.org/a public & !127.0.0.1"),
        ("public https://x.org", "PUBLIC https://x.org"),
    ] {
        assert_eq!(rule(text).show(root()), shown, "{text}");
        assert_eq!(rule(shown), rule(text), "a shown rule parses back");
    }
}

#[test]
fn an_invalid_rule_is_refused() {
    for text in [
        "",
        "example.com",
        "https://",
        "https://:443",
        "ftp://example.com",
        "file:///etc/passwd",
        "javascript://x",
        "tcp://db.example.com",
        "udp://*",
        "GET tcp://x:1",
        "tcp://x:1/",
        "https://user@example.com",
        "https://user:pw@example.com",
        "https://example.com:0",
        "https://example.com:65536",
        "https://example.com:",
        "https://example.com:+80",
        "https://example.com:**",
        "https://exa mple.com",
        "https://a..b",
        "https://.a",
        "https://a..",
        "https://*a",
        "https://a.*",
        "https://*.*.a",
        "https://**",
        "https://*.1.2.3.4",
        "https://*.[::1]",
        "https://*.1",
        "https://[::1",
        "https://256.256.256.256",
        "https://1.2.3.4.5",
        "https://x?y",
        "https://x#y",
        "https://x/a?b",
        "https://x\\y",
        "https://x/a*",
        "GET, HEAD https://x",
        ",GET https://x",
        " https://x",
        "G(T https://x",
        "https://x ",
        "https://x  public",
        "https://x public public",
        "https://x Public",
        "https://x private",
        "https://x public ",
        "https://xpublic/a b public",
        " public",
        "!x.org",
        "!x.org & https://*",
        "GET,!HEAD https://x.org",
        "https://* & x.org",
        "https://* & https://x.org",
        "https://* & !https://x.org",
        "https://* & !x.org/a",
        "https://* & !x.org:443",
        "https://* & !*",
        "https://* & !",
        "https://* &!x.org",
        "https://x.org & !x.org",
        "https://a.x.org & !*.x.org",
        "https://*.a.x.org & !*.x.org",
        "https://x\n",
        "GET  https://x",
        "https:/x",
        "//x",
        "https://%2e",
        "https://a%2fb",
        "https://[fe80::1%25eth0]",
        "https://xn--a",
        &format!("https://{}", "a.".repeat(130)),
        "\u{202e}https://x",
    ] {
        assert!(NetRule::parse(text, root()).is_err(), "{text:?}");
    }
}

#[test]
fn a_request_is_matched_by_host_port_method_and_path() {
    for (rules, target, allowed) in [
        ("https://api.example.com", "https://API.example.com./x?y#z", true),
        ("https://api.example.com", "https://api.example.com:8443/", false),
        ("https://api.example.com", "http://api.example.com/", false),
        ("https://api.example.com", "http://api.example.com:443/", false),
        ("https://api.example.com", "https://example.com/", false),
        ("https://api.example.com", "https://api.example.com.evil.org/", false),
        ("https://api.example.com", "https://evil.org/api.example.com", false),
        ("https://bücher.example", "https://xn--bcher-kva.example/", true),
        ("https://bücher.example", "https://BÜCHER.example/", true),
        ("https://*.github.com", "https://api.github.com/", true),
        ("https://*.github.com", "https://a.b.github.com/", true),
        ("https://*.github.com", "https://github.com/", false),
        ("https://*.github.com", "https://evil-github.com/", false),
        ("https://*.github.com", "https://github.com.evil.org/", false),
        ("http://127.0.0.1", "http://2130706433/", true),
        ("http://127.0.0.1", "http://0x7f.1/", true),
        ("http://127.0.0.1", "http://0177.0.0.01/", true),
        ("http://127.0.0.1", "http://[::ffff:127.0.0.1]/", false),
        ("https://*", "https://anything.example/", true),
        ("https://*", "http://anything.example/", false),
        ("GET,HEAD https://x.org", "HEAD https://x.org/", true),
        ("GET,HEAD https://x.org", "get https://x.org/", true),
        ("GET,HEAD https://x.org", "POST https://x.org/", false),
        ("https://x.org/repos/*", "https://x.org/repos/a/b", true),
        ("https://x.org/repos/*", "https://x.org/repos/../admin", false),
        ("https://x.org/repos/*", "https://x.org/repos/%2e%2e/admin", false),
        ("https://x.org/repos/*", "https://x.org/repos/..%2fadmin", false),
        ("https://x.org", "https://x.org/repos/..%2fadmin", true),
        ("https://x.org:8443", "https://x.org:8443/", true),
        ("https://x.org:*", "https://x.org:8443/", true),
        ("https://x.org:*", "http://x.org:8443/", false),
    ] {
        assert_eq!(match_rules(&[rule(rules)], &request(target)).is_ok(), allowed, "{rules} {target}");
    }
    assert_eq!(match_rules(&[], &request("https://x.org")), Err(None), "an empty list allows nothing");
    let both = [rule("https://*"), rule("https://in.example")];
    assert_eq!(match_rules(&both, &request("https://in.example")), Ok(AddressScope::IncludingPrivate));
    assert_eq!(match_rules(&both, &request("https://out.example")), Ok(AddressScope::PublicOnly));
    let ambiguous = match_rules(&[rule("https://x.org/a/*")], &request("https://x.org/a/%2f"));
    assert!(matches!(ambiguous, Err(Some(_))), "{ambiguous:?}");
    let open = [rule("https://x.org/a/*"), rule("https://x.org")];
    assert_eq!(match_rules(&open, &request("https://x.org/a/%2f")), Ok(AddressScope::IncludingPrivate));
}

/// However wide the other lines are, and in whichever order.
#[test]
fn an_exclusion_wins_over_every_line() {
    let list = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        NetRule::parse_list(&lines, root())
    };
    let rules = list(&[
        "!vault.x.org",
        "https://*:*",
        "http://*.x.org",
        "GET https://api.in.x.org:*/a",
        "tcp://*:*",
        "!*.IN.x.org.",
        "!203.0.113.7",
    ]);
    let Err(covered) = rules else { panic!("a line that grants nothing") };
    assert_eq!(
        covered.message,
        "`GET https://api.in.x.org:*/a` grants nothing: an exclusion of the same list covers it"
    );
    let rules =
        list(&["!vault.x.org", "https://*:*", "http://*.x.org", "tcp://*:*", "!*.IN.x.org.", "!203.0.113.7"]);
    let rules = rules.unwrap();
    for (target, allowed) in [
        ("https://x.org/", true),
        ("https://in.x.org/", true),
        ("https://vault.x.org.evil.org/", true),
        ("https://vault.x.org/", false),
        ("DELETE https://VAULT.x.org.:8443/a", false),
        ("http://vault.x.org/", false),
        ("https://a.in.x.org/", false),
        ("http://b.a.in.x.org/", false),
        ("https://203.0.113.7/", false),
        ("https://3405803783/", false),
    ] {
        assert_eq!(match_rules(&rules, &request(target)).is_ok(), allowed, "{target}");
    }
    let raw = |name| match_rules(&rules, &NetTarget::connection(Scheme::Tcp, name, 22).unwrap()).is_ok();
    assert!(raw("x.org") && !raw("vault.x.org") && !raw("203.0.113.7"));
    assert_eq!((lookup_scope(&rules, "a.in.x.org"), lookup_scope(&rules, "Vault.x.org")), (None, None));
    assert!(lookup_scope(&rules, "x.org").is_some());
    let excluded = |ip: &str| excluded_address(&rules, ip.parse().unwrap());
    for ip in ["203.0.113.7", "::ffff:203.0.113.7", "64:ff9b::203.0.113.7"] {
        assert_eq!(excluded(ip).as_deref(), Some("!203.0.113.7"), "{ip}");
    }
    assert_eq!(excluded("203.0.113.8"), None);

    assert_eq!(
        NetRule::show_list(&rules, root()),
        ["https://*:*", "http://*.x.org", "tcp://*:*", "!*.in.x.org", "!203.0.113.7", "!vault.x.org"]
    );
    // A narrower list keeps the exclusions of both.
    let narrow = list(&["https://*.x.org", "!b.x.org"]).unwrap();
    let both = intersect_lists(&rules, &narrow);
    assert_eq!(
        NetRule::show_list(&both, root()),
        ["https://*.x.org public", "!*.in.x.org", "!203.0.113.7", "!b.x.org", "!vault.x.org"]
    );
    for bad in
        [&["!x.org"][..], &["!x.org", "!y.org"], &["https://*", "!x.org/a"], &["https://x.org", "!x.org"]]
    {
        assert!(list(bad).is_err(), "{bad:?}");
    }
    assert_eq!(list(&[]), Ok(vec![]));
}

#[test]
fn an_invalid_request_is_refused() {
    for (method, url) in [
        ("GET", "ftp://x.org/"),
        ("GET", "file:///etc/passwd"),
        ("GET", "data:text/plain,x"),
        ("GET", "gopher://x.org/"),
        ("GET", "https://user@x.org/"),
        ("GET", "https://:pw@x.org/"),
        ("GET", "https://x.org:0/"),
        ("CONNECT", "https://x.org/"),
        ("trace", "https://x.org/"),
        ("", "https://x.org/"),
        ("GET /x HTTP/1.1\r\nA:", "https://x.org/"),
        ("GET", "https://*.x.org/"),
        ("GET", "https://a..b/"),
    ] {
        assert!(NetTarget::request(method, &Url::parse(url).unwrap()).is_err(), "{method} {url}");
    }
}

/// The compared host is the one that is resolved and connected to, however a guest spells it.
#[test]
fn a_host_has_one_canonical_form() {
    for (url, host) in [
        ("http://EXAMPLE.com/", "example.com"),
        ("http://example.com./", "example.com"),
        ("http://ex%41mple.com/", "example.com"),
        ("http://ｅｘａｍｐｌｅ.com/", "example.com"),
        ("http://example\u{3002}com/", "example.com"),
        ("http://exam\u{ad}ple.com/", "example.com"),
        ("http:\\\\example.com\\", "example.com"),
        ("http:/example.com/", "example.com"),
        ("http:////example.com/", "example.com"),
        ("ht\ntp://exam\tple.com/", "example.com"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://127.0.1/", "127.0.0.1"),
        ("http://0x7F.0x0.0x0.0x1/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://１２７.０.０.１/", "127.0.0.1"),
        ("http://127。0。0。1/", "127.0.0.1"),
        ("http://0/", "0.0.0.0"),
        ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
        ("http://[::127.0.0.1]/", "[::7f00:1]"),
        ("http://[::ffff:7f00:1]/", "[::ffff:127.0.0.1]"),
        ("http://[FE80::1]/", "[fe80::1]"),
    ] {
        assert_eq!(request(url).host(), host, "{url:?}");
    }
    for url in [
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[fe80::1%251]/",
        "http://[::1]eth0/",
        "http://[::1/",
        "http://[1]/",
        "http://[v1.x]/",
        "http://[127.0.0.1]/",
        "http://256.0.0.1/",
        "http://0x100000000/",
        "http://127.0.0.0.1/",
        "http://08.0.0.1/",
        "http://1.2.3.09/",
        "http://a%2fb/",
        "http://a%00b/",
        "http://a b/",
        "http://xn--a/",
        "http:///",
        "http://:80/",
        "http://x:65536/",
    ] {
        let target =
            Url::parse(url).map_err(|e| e.to_string()).and_then(|url| NetTarget::request("GET", &url));
        assert!(target.is_err(), "{url:?}: {target:?}");
    }
    for url in [
        "http://good.example@evil.example/",
        "http://good.example:80@evil.example/",
        "http://good.example%40evil.example@evil.example/",
        "http://@evil.example@good.example/",
        "http://good.example\t@evil.example/",
    ] {
        let target = NetTarget::request("GET", &Url::parse(url).unwrap());
        assert!(target.as_ref().is_err_and(|why| why.contains("user name")), "{url:?}: {target:?}");
    }
}

#[test]
fn raw_connections_are_for_a_host_and_a_port() {
    let rules = [rule("tcp://db.example.com:5432"), rule("udp://1.1.1.1:53")];
    for (scheme, name, port, allowed) in [
        (Scheme::Tcp, "db.example.com", 5432, true),
        (Scheme::Tcp, "DB.example.com.", 5432, true),
        (Scheme::Tcp, "db.example.com", 5433, false),
        (Scheme::Udp, "db.example.com", 5432, false),
        (Scheme::Udp, "1.1.1.1", 53, true),
        (Scheme::Tcp, "1.1.1.1", 53, false),
    ] {
        let target = NetTarget::connection(scheme, name, port).unwrap();
        assert_eq!(match_rules(&rules, &target).is_ok(), allowed, "{target:?}");
    }
}

#[test]
fn a_lookup_has_the_widest_scope_of_the_matching_rules() {
    let rules = ["tcp://*:*", "udp://db.corp:1", "tcp://*.x.org:1 public", "https://web.corp"].map(rule);
    for (name, far) in [
        ("db.corp", Some(AddressScope::IncludingPrivate)),
        ("a.x.org", Some(AddressScope::PublicOnly)),
        ("web.corp", Some(AddressScope::PublicOnly)),
    ] {
        assert_eq!(lookup_scope(&rules, name), far, "{name}");
    }
    assert_eq!(lookup_scope(&rules[3..], "web.corp"), None);
}

#[test]
fn reading_is_proposed_for_a_declaration_of_every_host() {
    assert_eq!(rule("https://*").proposed_line(root()), "GET,HEAD https://*");
    assert_eq!(rule("https://*:*").proposed_line(root()), "GET,HEAD https://*");
    assert_eq!(rule("tcp://*:*").proposed_line(root()), "tcp://*:*");
    assert_eq!(rule("POST https://*").proposed_line(root()), "POST https://*");
    assert_eq!(rule("https://x.org").proposed_line(root()), "https://x.org");
    assert_eq!(request("post https://x.org:8443/a/b?c").to_rule(), "POST https://x.org:8443");
}

#[test]
fn an_intersection_keeps_what_both_rules_allow() {
    for (left, right, both) in [
        ("https://*", "https://x.org", Some("https://x.org public")),
        ("https://*", "https://*.x.org", Some("https://*.x.org public")),
        ("https://x.org", "https://x.org public", Some("https://x.org public")),
        ("https://*.x.org public", "https://a.x.org", Some("https://a.x.org public")),
        ("tcp://*:*", "tcp://10.0.0.7:1", Some("tcp://10.0.0.7:1 public")),
        ("https://github.com", "https://*.github.com", None),
        ("https://*.github.com", "https://api.github.com", Some("https://api.github.com")),
        ("https://*.a.org", "https://*.b.a.org", Some("https://*.b.a.org")),
        ("https://*.a.org", "https://*.b.org", None),
        ("GET,PUT https://x.org", "GET,HEAD https://*", Some("GET https://x.org public")),
        ("GET https://x.org", "PUT https://x.org", None),
        ("https://x.org", "http://x.org", None),
        ("https://x.org", "https://x.org:8443", None),
        ("https://x.org:*", "https://x.org:8443", Some("https://x.org:8443")),
        ("https://x.org/a/*", "https://x.org/*/b", Some("https://x.org/a/b")),
        ("https://x.org/a/*", "https://x.org/*/x/*", Some("https://x.org/a/x/*")),
        ("https://x.org/a/*", "https://x.org/b/*", None),
        ("https://x.org/a/*", "https://x.org", Some("https://x.org/a/*")),
    ] {
        assert_eq!(rule(left).intersect(&rule(right)), both.map(rule), "{left} {right}");
    }
}

prop_compose! {
    fn any_rule()(
        methods in prop::option::of(prop::collection::btree_set(prop::sample::select(vec!["GET", "HEAD", "POST"]), 1..3)),
        scheme in prop::sample::select(vec!["https", "http"]),
        host in prop::sample::select(vec!["*", "*.a.org", "*.b.a.org", "a.org", "b.a.org", "c.b.a.org", "1.2.3.4", "[fd00::1]"]),
        port in prop::sample::select(vec!["", ":443", ":80", ":8443", ":*"]),
        path in prop::option::of(prop::collection::vec(prop::sample::select(vec!["*", "x", "y", ""]), 1..4)),
        public in prop::sample::select(vec!["", "", " public"]),
        except in prop::collection::vec(prop::sample::select(vec!["a.org", "*.b.a.org", "b.a.org", "1.2.3.4"]), 0..3),
    ) -> NetRule {
        let methods = methods.map(|m| m.into_iter().collect::<Vec<_>>().join(",") + " ").unwrap_or_default();
        let path = path.map(|p| format!("/{}", p.join("/"))).unwrap_or_default();
        let rule = rule(&format!("{methods}{scheme}://{host}{port}{path}{public}"));
        let except = except.into_iter().map(|host| HostPattern::parse(host).unwrap()).collect();
        rule.clone().with_exclusions(&except).unwrap_or(rule)
    }
}

prop_compose! {
    fn any_request()(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "PUT"]),
        scheme in prop::sample::select(vec!["https", "http"]),
        host in prop::sample::select(vec!["a.org", "b.a.org", "c.b.a.org", "x.org", "1.2.3.4", "[fd00::1]"]),
        port in prop::sample::select(vec!["", ":443", ":80", ":8443"]),
        path in prop::collection::vec(prop::sample::select(vec!["x", "y", "z", ""]), 1..5),
    ) -> NetTarget {
        request(&format!("{method} {scheme}://{host}{port}/{}", path.join("/")))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_of_rules(a in any_rule(), b in any_rule(), c in any_rule()) {
        prop_assert_eq!(a.intersect(&b), b.intersect(&a));
        prop_assert_eq!(a.intersect(&a), Some(a.clone()));
        prop_assert_eq!(rule(&a.show(root())), a.clone());
        prop_assert!(NetRule::parse(&a.proposed_line(root()), root()).is_ok());
        if let Some(both) = a.intersect(&b) {
            prop_assert!(covers(&a, &both) && covers(&b, &both), "{:?} {:?} {:?}", a, b, both);
        }
        let left = a.intersect(&b).and_then(|ab| ab.intersect(&c));
        let right = b.intersect(&c).and_then(|bc| a.intersect(&bc));
        prop_assert_eq!(left, right);
    }

    /// Exactly the narrower scope of both, whatever the number of rules and whichever rule absorbs another.
    #[test]
    fn an_intersection_allows_what_both_lists_allow(
        a in prop::collection::vec(any_rule(), 1..4),
        b in prop::collection::vec(any_rule(), 1..4),
        target in any_request(),
    ) {
        let both = match_rules(&intersect_lists(&a, &b), &target);
        match (match_rules(&a, &target), match_rules(&b, &target)) {
            (Ok(a), Ok(b)) => prop_assert_eq!(both, Ok(a.min(b))),
            _ => prop_assert!(both.is_err()),
        }
        prop_assert_eq!(match_rules(&intersect_lists(&a, &a), &target), match_rules(&a, &target));
    }

    #[test]
    fn a_covered_rule_adds_nothing(a in any_rule(), b in any_rule(), target in any_request()) {
        if covers(&a, &b) {
            let rules = [a.clone(), b];
            prop_assert_eq!(match_rules(&rules, &target), match_rules(&[a], &target));
        }
    }

    /// Hosts of rules and of requests have the same canonical form.
    #[test]
    fn rules_and_requests_share_the_canonical_host(text in "[-a-zA-Z0-9.x_%\\[\\]:ü。]{1,24}") {
        let target = Url::parse(&format!("http://{text}/")).ok().and_then(|url| NetTarget::request("GET", &url).ok());
        if let Some(target) = target {
            prop_assert_eq!(parse_host(target.host()).map(|(host, _)| host), Ok(target.host().to_owned()));
            prop_assert_eq!(rule(&target.to_rule()).show(root()), target.to_rule());
        }
    }

    #[test]
    fn every_parsed_rule_parses_back(text in "\\PC*", tail in "[a-z0-9.:/*\\[\\]%@ -]{0,40}") {
        drop(NetRule::parse(&text, root()));
        if let Ok(rule) = NetRule::parse(&format!("https://{tail}"), root()) {
            prop_assert_eq!(NetRule::parse(&rule.show(root()), root()), Ok(rule));
        }
    }
}
