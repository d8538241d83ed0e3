//! `http-client`: granted hosts are reachable and no others, on any path.

use serde_json::json;

use crate::loopback::{LoopbackReply, LoopbackServer, redirect, response};

use super::net_fixture::{fetch, hello, host, kind, message, open};

#[tokio::test(flavor = "multi_thread")]
async fn ungranted_requests_are_refused_with_the_policy_line() {
    let server = LoopbackServer::new(hello).await;
    let url = server.url("/x");
    let none = host("").await;
    let delivered = none.call("net__fetch", json!({ "url": url })).await;
    let said = integration_tests::structured(&delivered);
    assert_eq!(kind(&said), "denied", "{said}");
    let lines = format!("[plugins.net.grant]\nnet = [\"GET http://{}\"]", server.address);
    assert!(integration_tests::hints(&delivered).contains(&lines), "{delivered:?}");
    // The host is granted, but its address is not. The hint names the line for the address.
    let named = host(&format!(r#"net = ["GET http://{}"]"#, server.address)).await;
    let delivered = named.call("net__fetch", json!({ "url": url })).await;
    assert!(
        integration_tests::hints(&delivered).contains(r#"net_private = ["127.0.0.1/32"]"#),
        "{delivered:?}"
    );
    assert!(!message(&integration_tests::structured(&delivered)).contains("[plugins"), "{delivered:?}");
    let both =
        host(&format!("net = [\"GET http://{}\"]\nnet_private = [\"127.0.0.1/32\"]", server.address)).await;
    let said = fetch(&both, json!({ "url": url })).await;
    assert_eq!((kind(&said), &said["body"]), ("ok", &json!("hello")), "{said}");
    assert_eq!(server.seen().len(), 1);
    // A tool without a declaration gets no access. A tool that requires it is unavailable.
    let said = both.ask("net__undeclared", json!({ "url": url })).await;
    assert_eq!(kind(&said), "denied", "{said}");
    let delivered = both.call("net__must", json!({})).await;
    assert!(integration_tests::hints(&delivered).contains("GET https://api.example.com"), "{delivered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_different_port_scheme_method_or_path_is_refused() {
    let (server, other) = (LoopbackServer::new(hello).await, LoopbackServer::new(hello).await);
    let origin = server.url("");
    let host = host(&format!("net = [\"GET,HEAD {origin}/a/*\"]\nnet_private = [\"127.0.0.1\"]")).await;
    for (method, url, allowed) in [
        ("GET", format!("{origin}/a/x"), true),
        ("head", format!("{origin}/a/"), true),
        ("GET", format!("{origin}/a/x?y=/../b"), true),
        ("GET", format!("http://2130706433:{}/a/x", server.port()), true),
        ("GET", format!("http://0x7f.1:{}/a/x", server.port()), true),
        ("POST", format!("{origin}/a/x"), false),
        ("GET", format!("{origin}/b"), false),
        ("GET", format!("{origin}/a"), false),
        ("GET", format!("{origin}/a/../b"), false),
        ("GET", format!("{origin}/a/%2e%2e/b"), false),
        ("GET", format!("{origin}/a/..%2fb"), false),
        ("GET", format!("{origin}/a/..;/b"), false),
        ("GET", format!("{origin}/a\\..\\b"), false),
        ("GET", other.url("/a/x"), false),
        ("GET", format!("https://{}/a/x", server.address), false),
        ("GET", format!("http://127.0.0.2:{}/a/x", server.port()), false),
        ("GET", format!("http://localhost:{}/a/x", server.port()), false),
        ("GET", format!("http://[::1]:{}/a/x", server.port()), false),
        ("GET", format!("http://[::ffff:127.0.0.1]:{}/a/x", server.port()), false),
    ] {
        let before = server.seen().len();
        let said = fetch(&host, json!({ "method": method, "url": url })).await;
        assert_eq!(kind(&said), if allowed { "ok" } else { "denied" }, "{method} {url}: {said}");
        assert_eq!(server.seen().len() - before, usize::from(allowed), "{method} {url}");
    }
    assert!(other.seen().is_empty());
    assert!(server.seen().iter().all(|seen| seen.path().starts_with("/a/")), "{:?}", server.seen());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_not_sent() {
    let server = LoopbackServer::new(hello).await;
    let host = open(&[&server]).await;
    let at = server.address;
    for url in [
        String::new(),
        "not a url".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "data:text/plain,x".to_owned(),
        "unix:/run/docker.sock".to_owned(),
        format!("ws://{at}/"),
        format!("http://user@{at}/"),
        format!("http://:pw@{at}/"),
        format!("http://{at}@evil.org@/"),
        "http://".to_owned(),
        "http://[".to_owned(),
        "http://127.0.0.1:99999/".to_owned(),
        format!("http://{at}/{}", "a".repeat(10_000)),
    ] {
        let said = fetch(&host, json!({ "url": url })).await;
        assert_eq!(kind(&said), "invalid-request", "{url}: {said}");
    }
    let url = server.url("/");
    for method in ["", "CONNECT", "TRACE", "G E T", "GET\r\nx: y", "GET / HTTP/1.1\r\n\r\nGET"] {
        let said = fetch(&host, json!({ "url": url, "method": method })).await;
        assert_eq!(kind(&said), "invalid-request", "{method:?}: {said}");
    }
    for (name, value) in [
        ("x", "a\r\nx-injected: 1"),
        ("x", "a\n\nGET /smuggled HTTP/1.1"),
        ("x", "a\0"),
        ("x: y\r\nz", "a"),
        ("", "a"),
        ("Host", "evil.org"),
        ("content-length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("connection", "upgrade"),
        ("Upgrade", "h2c"),
        ("expect", "100-continue"),
        ("TE", "trailers"),
        ("trailer", "x"),
        ("proxy-authorization", "x"),
        ("x-http-method-override", "DELETE"),
        ("X-Original-URL", "/admin"),
        ("x_rewrite_url", "/admin"),
    ] {
        let said = fetch(&host, json!({ "url": url, "headers": [[name, value]], "body": "b" })).await;
        assert_eq!(kind(&said), "invalid-request", "{name:?} {value:?}: {said}");
    }
    let many: Vec<_> = (0..200).map(|n| json!([format!("x-{n}"), "y"])).collect();
    assert_eq!(kind(&fetch(&host, json!({ "url": url, "headers": many })).await), "invalid-request");
    let long = json!([["x", "y".repeat(100_000)]]);
    assert_eq!(kind(&fetch(&host, json!({ "url": url, "headers": long })).await), "invalid-request");
    assert_eq!(server.opened(), 0, "{:?}", server.seen());
    let said = fetch(
        &host,
        json!({ "url": server.url("/a?b#secret"), "method": "post", "body": "text",
                                    "headers": [["X-Mine", "grün"], ["x-mine", "2"]] }),
    )
    .await;
    assert_eq!(said["status"], 200, "{said}");
    let seen = &server.seen()[0];
    assert_eq!((seen.line(), seen.body.as_slice()), ("POST /a?b", b"text".as_slice()));
    assert_eq!(seen.header("host"), Some(at.to_string().as_str()));
    assert_eq!(seen.head.matches("x-mine: ").count(), 2, "{}", seen.head);
    assert!(seen.header("user-agent").unwrap().starts_with("toolbay/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_name_is_judged_by_its_addresses() {
    let server = LoopbackServer::new(hello).await;
    let port = server.port();
    let url = format!("http://localhost:{port}/");
    for (net, private, allowed) in [
        (format!("http://localhost:{port}"), json!([]), false),
        (format!("http://localhost:{port}"), json!(["10.0.0.0/8"]), false),
        (format!("http://localhost:{port}"), json!(["127.0.0.0/8", "::1"]), true),
        ("http://*:*".to_owned(), json!([]), false),
        // A wildcard grants public hosts only. Private hosts must be named in `net`.
        ("http://*:*".to_owned(), json!(["127.0.0.0/8", "::1"]), false),
    ] {
        let host = host(&format!("net = [{net:?}]\nnet_private = {private}")).await;
        let said = fetch(&host, json!({ "url": url })).await;
        assert_eq!(kind(&said), if allowed { "ok" } else { "denied" }, "{net} {private}: {said}");
    }
    assert_eq!(server.seen().len(), 1);
    let host = host("net = [\"http://*:*\", \"https://*:*\"]").await;
    for place in [
        "127.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "127.1",
        "0",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "198.18.0.1",
        "192.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[fe90::1]",
        "[fec0::1]",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        "localhost",
        "localhost.",
        "LOCALHOST",
    ] {
        let said = fetch(&host, json!({ "url": format!("http://{place}:{port}/") })).await;
        // The name of a metadata service may not resolve here.
        let expected: &[&str] =
            if place.starts_with("meta") { &["denied", "transport"] } else { &["denied"] };
        assert!(expected.contains(&kind(&said)), "{place}: {said}");
        assert!(!message(&said).contains("net_private ="), "private addresses are not told: {said}");
    }
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_host_is_reachable_but_not_through_a_wildcard_profile() {
    let server = LoopbackServer::new(hello).await;
    let host = host(&format!(
        "net = [\"http://*:*\", {:?}]\nnet_private = [\"127.0.0.0/8\", \"::1\"]\n\
         [profile.public]\nnet = [\"http://*:*\"]\n",
        server.url("")
    ))
    .await;
    let said = fetch(&host, json!({ "url": server.url("/") })).await;
    assert_eq!(kind(&said), "ok", "{said}");
    let said = fetch(&host, json!({ "url": format!("http://localhost:{}/", server.port()) })).await;
    assert_eq!(kind(&said), "denied", "{said}");
    let profile = host.host.policy().profile("public").cloned();
    let view = host.host.view(toolbay::Filter::for_profile(profile));
    let call = toolbay::ToolCall::new("1", "net__fetch", json!({ "url": server.url("/") }).to_string());
    let delivered = host.host.call_all(&view, vec![call], toolbay::TurnContext::default()).await;
    let said = integration_tests::structured(&delivered[0]);
    assert!(kind(&said) == "denied" && message(&said).contains("public addresses only"), "{said}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clouds_metadata_is_not_in_any_wider_grant() {
    let names = ["169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]"];
    let net: Vec<_> = names.iter().map(|name| format!("http://{name}")).collect();
    let host = host(&format!("net = {}\nnet_private = [\"0.0.0.0/0\", \"::/0\"]", json!(net))).await;
    for name in names {
        let said =
            fetch(&host, json!({ "url": format!("http://{name}/latest/meta-data"), "timeout_ms": 3000 }))
                .await;
        assert_eq!(kind(&said), "denied", "{name}: {said}");
        assert!(message(&said).contains("credentials"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hop_of_a_redirect_is_judged() {
    let other = LoopbackServer::new(hello).await;
    let elsewhere = other.url("/");
    let server = LoopbackServer::new(move |seen| match seen.path() {
        "/other" => redirect(302, &elsewhere),
        "/private" => redirect(302, "http://10.0.0.1:6379/"),
        "/metadata" => redirect(302, "http://169.254.169.254/latest/meta-data"),
        "/localhost" => redirect(302, "http://localhost:1/"),
        "/file" => redirect(302, "file:///etc/passwd"),
        "/user" => redirect(302, &elsewhere.replace("http://", "http://a:b@")),
        "/garbage" => redirect(302, "http://["),
        "/latin" => LoopbackReply::Bytes(
            b"HTTP/1.1 302 X\r\nlocation: /\xff\xfe\r\ncontent-length: 0\r\n\r\n".to_vec(),
        ),
        "/long" => redirect(302, &format!("/{}", "a".repeat(20_000))),
        "/none" => response(302, "", "stay"),
        "/loop" => redirect(302, "/loop"),
        "/up" => redirect(302, "/../../b/../c"),
        path => match path.trim_start_matches('/').parse::<u32>() {
            Ok(0) | Err(_) => response(200, "", "end"),
            Ok(n) => redirect(302, &format!("/{}", n - 1)),
        },
    })
    .await;
    let host = open(&[&server]).await;
    for (path, expected, part) in [
        ("/other", "denied", "not granted"),
        ("/private", "denied", "not granted"),
        ("/metadata", "denied", "not granted"),
        ("/localhost", "denied", "not granted"),
        ("/file", "denied", "not followed"),
        ("/user", "denied", "not followed"),
        ("/garbage", "transport", "redirects to an invalid location"),
        ("/latin", "transport", "redirects to an invalid location"),
        ("/long", "transport", "redirects to an invalid location"),
        ("/none", "ok", ""),
        ("/loop", "transport", "more than 5 redirects"),
        ("/up", "ok", ""),
        ("/5", "ok", ""),
        ("/6", "transport", "more than 5 redirects"),
    ] {
        let said = fetch(&host, json!({ "url": server.url(path) })).await;
        assert_eq!(kind(&said), expected, "{path}: {said}");
        assert!(message(&said).contains(part), "{path}: {said}");
    }
    assert_eq!(other.opened(), 0);
    let said = fetch(&host, json!({ "url": server.url("/5#x") })).await;
    assert_eq!(
        (said["url"].as_str().unwrap(), said["body"].as_str().unwrap()),
        (server.url("/0").as_str(), "end")
    );
    // Private addresses of a granted name are refused after a redirect, too.
    let net = json!([server.url(""), "http://10.0.0.1:6379", "http://localhost:1"]);
    let named = self::host(&format!("net = {net}\nnet_private = [\"127.0.0.1\"]")).await;
    for path in ["/private", "/localhost"] {
        let said = fetch(&named, json!({ "url": server.url(path) })).await;
        assert!(
            kind(&said) == "denied" && message(&said).contains("net_private") || path == "/localhost",
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusion_wins_over_wildcards_and_after_redirects() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/vault" => redirect(302, "http://VAULT.corp.example.:8080/"),
        "/below" => redirect(302, "http://a.b.internal.example/"),
        _ => response(200, "", "here"),
    })
    .await;
    let net = json!([server.url(""), "http://*:*", "!vault.corp.example", "!*.internal.example"]);
    let host = host(&format!("net = {net}\nnet_private = [\"127.0.0.1\"]")).await;
    assert_eq!(fetch(&host, json!({ "url": server.url("/") })).await["body"], "here");
    for (url, line, excluded) in [
        ("http://vault.corp.example/".to_owned(), "!vault.corp.example", "GET http://vault.corp.example"),
        (server.url("/vault"), "!vault.corp.example", "GET http://vault.corp.example:8080"),
        (server.url("/below"), "!*.internal.example", "GET http://a.b.internal.example"),
    ] {
        let delivered = host.call("net__fetch", json!({ "url": url })).await;
        let said = integration_tests::structured(&delivered);
        assert!(kind(&said) == "denied" && message(&said).contains("not granted"), "{url}: {said}");
        let hint = format!("`{line}` in `net` of [plugins.net.grant] excludes `{excluded}`");
        assert!(integration_tests::hints(&delivered).contains(&hint), "{delivered:?}");
    }

    // An excluded address is not reached by a name either.
    let url = format!("http://localhost:{}/", server.port());
    let net = "net = [\"http://localhost:*\", \"!0x7f.1\"]\nnet_private = [\"127.0.0.0/8\", \"::1\"]";
    let named = self::host(net).await;
    let delivered = named.call("net__fetch", json!({ "url": url })).await;
    assert_eq!(kind(&integration_tests::structured(&delivered)), "denied", "{delivered:?}");
    assert!(integration_tests::hints(&delivered).contains("`!127.0.0.1` in `net`"), "{delivered:?}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_changes_the_method_as_browsers_do() {
    let server = LoopbackServer::new(|seen| match seen.path().split_once("to/") {
        Some((_, status)) => redirect(status.parse().unwrap(), "/end"),
        None => response(200, "", seen.line()),
    })
    .await;
    let host = open(&[&server]).await;
    for (method, status, ends) in [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("PUT", 302, "PUT"),
        ("POST", 307, "POST"),
        ("POST", 308, "POST"),
        ("DELETE", 308, "DELETE"),
        ("GET", 303, "GET"),
    ] {
        let headers = json!([["content-type", "text/plain"], ["x-mine", "1"]]);
        let args = json!({ "url": server.url(&format!("/to/{status}")), "method": method, "body": "text", "headers": headers });
        let said = fetch(&host, args).await;
        assert_eq!(said["body"], format!("{ends} /end"), "{method} {status}: {said}");
        let last = server.seen().pop().unwrap();
        let kept = ends == method;
        assert_eq!(
            last.body.is_empty(),
            !kept || last.body.is_empty() && method == "GET",
            "{method} {status}"
        );
        assert_eq!(last.header("content-type").is_some(), kept, "{method} {status}");
        assert_eq!(last.header("x-mine"), Some("1"), "the same origin gets the guest's headers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_to_their_origin_only() {
    let other = LoopbackServer::new(hello).await;
    let there = other.url("/");
    let server = LoopbackServer::new(move |seen| match seen.path() {
        "/away" => redirect(307, &there),
        "/here" => redirect(307, "/end"),
        _ => response(200, "", ""),
    })
    .await;
    let host = open(&[&server, &other]).await;
    let secret = ["authorization", "cookie", "x-api-key", "referer", "x-amz-security-token"];
    let headers: Vec<_> =
        secret.iter().chain(&["accept", "content-type"]).map(|name| json!([name, "v"])).collect();
    for path in ["/away", "/here"] {
        let args = json!({ "url": server.url(path), "method": "POST", "body": "b", "headers": headers });
        assert_eq!(fetch(&host, args).await["status"], 200);
    }
    let away = &other.seen()[0];
    for name in secret {
        assert_eq!(away.header(name), None, "{}", away.head);
        assert_eq!(server.seen().last().unwrap().header(name), Some("v"), "{name}");
    }
    assert_eq!((away.header("accept"), away.header("content-type")), (Some("v"), Some("v")));
    assert_eq!(away.header("host"), Some(other.address.to_string().as_str()));
}

#[test]
fn proxies_of_the_environment_are_ignored() {
    let name = "capabilities::net::proxies_of_the_environment_are_ignored";
    let proxy = "http://127.0.0.1:1";
    let env = format!(
        "export http_proxy={proxy} HTTP_PROXY={proxy} https_proxy={proxy} ALL_PROXY={proxy} all_proxy={proxy}"
    );
    if integration_tests::in_a_process(name, &env) {
        return;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = LoopbackServer::new(hello).await;
        let said = fetch(&open(&[&server]).await, json!({ "url": server.url("/") })).await;
        assert_eq!(said["status"], 200, "{said}");
    });
}

#[test]
fn the_tables_of_the_page_are_true() {
    use toolbay::policy::capability::net::{NetRule, NetTarget, address, match_rules};
    use toolbay::policy::rule::GrantRule;
    let root = std::path::Path::new("/");
    let page = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/capabilities/net.md"),
    )
    .unwrap();
    let (mut requests, mut addresses, mut meetings) = (0, 0, 0);
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        if let [_, first, second, both, _] = cells[..]
            && !matches!(both, "yes" | "no")
            && let (Ok(first), Ok(second)) = (NetRule::parse(first, root), NetRule::parse(second, root))
        {
            meetings += 1;
            let both = (both != "nothing").then(|| NetRule::parse(both, root).unwrap());
            assert_eq!(first.intersect(&second), both, "{line}");
        }
        let [_, first, second, expected @ ("yes" | "no"), _] = cells[..] else { continue };
        let found = if let Some((method, url)) = second.split_once(' ') {
            requests += 1;
            let target = NetTarget::request(method, &url.parse().unwrap()).unwrap();
            match_rules(&[NetRule::parse(first, root).unwrap()], &target).is_ok()
        } else {
            addresses += 1;
            let private: Vec<_> = [second]
                .iter()
                .filter(|net| !net.is_empty())
                .map(|net| GrantRule::parse(net, root).unwrap())
                .collect();
            address::check_address("x", first.parse().unwrap(), &private).is_ok()
        };
        assert_eq!(found, expected == "yes", "{line}");
    }
    assert!(requests > 0 && addresses > 0 && meetings > 0, "{requests} {addresses} {meetings}");
}
