//! `wasi:http` and `wasi:sockets`: the same policy and limits through other interfaces.

use std::time::Duration;

use integration_tests::{TestHost, fault, outcome, refusal, structured, words};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::TurnContext;
use toolbay::core::tool::fault::FaultKind;

use crate::loopback::{LoopbackReply, LoopbackServer, redirect, response};

const SOON: Duration = Duration::from_secs(25);

async fn http(server: &LoopbackServer, more: &str) -> TestHost {
    let policy = format!(
        "[plugins.w.grant]\nnet = [\"GET,POST {}\", \"http://*.example:*\", \"!vault.example\"]\nnet_private = [\"127.0.0.1\"]\n{more}",
        server.url("")
    );
    TestHost::new(&[("w", guest_artifacts::CAP_WASI_HTTP)], &policy).await
}

async fn fetch(host: &TestHost, server: &LoopbackServer, mut args: Value) -> Value {
    let given = args.as_object_mut().unwrap();
    given.entry("authority").or_insert(json!(server.address.to_string()));
    given.entry("path").or_insert(json!("/"));
    structured(&host.provoke("w__fetch", args, SOON).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_http_obeys_the_policy() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/away" => redirect(302, "http://10.0.0.1/"),
        _ => response(200, "x-a: b\r\nkeep-alive: 5\r\n", "hello"),
    })
    .await;
    let host = http(&server, "").await;
    let port = server.port();
    let said = fetch(&host, &server, json!({ "path": "/x?y" })).await;
    assert_eq!((&said["status"], &said["body"]), (&json!(200), &json!("hello")), "{said}");
    assert!(!said["headers"].to_string().contains("keep-alive"), "{said}");
    let said = fetch(&host, &server, json!({ "path": "/away" })).await;
    assert_eq!(said["status"], 302, "a redirect is the guest's to follow, as a new request: {said}");
    for (args, error) in [
        (json!({ "scheme": "https" }), "HttpRequestDenied"),
        (json!({ "method": "DELETE" }), "HttpRequestDenied"),
        (json!({ "authority": "10.0.0.1" }), "HttpRequestDenied"),
        (json!({ "authority": format!("localhost:{port}") }), "HttpRequestDenied"),
        (json!({ "authority": "169.254.169.254" }), "HttpRequestDenied"),
        (json!({ "authority": "vault.example" }), "HttpRequestDenied"),
        (json!({ "authority": "VAULT.example.:8080" }), "HttpRequestDenied"),
        (json!({ "scheme": "file" }), "HttpProtocolError"),
        (json!({ "method": "CONNECT" }), "InternalError"),
        (json!({ "authority": format!("a:b@127.0.0.1:{port}") }), ""),
        (json!({ "path": "http://10.0.0.1/" }), ""),
        (json!({ "headers": [["host", "evil.org"]] }), "Forbidden"),
        (json!({ "headers": [["transfer-encoding", "chunked"]] }), "Forbidden"),
        (json!({ "headers": [["proxy-authorization", "x"]] }), "Forbidden"),
        (json!({ "headers": [["x-http-method-override", "DELETE"]] }), "Forbidden"),
        (json!({ "headers": [["expect", "100-continue"]] }), "Forbidden"),
        (json!({ "headers": [["x", "a\r\nb: c"]] }), "InvalidSyntax"),
        (json!({ "headers": [["content-length", "5"], ["content-length", "6"]] }), ""),
    ] {
        let before = server.seen().len();
        let said = fetch(&host, &server, args.clone()).await;
        let found = said["error"].as_str().unwrap_or_else(|| panic!("{args}: {said}"));
        assert!(found.contains(error), "{args}: {said}");
        assert_eq!(server.seen().len(), before, "{args}");
    }
    let args = json!({ "authority": server.address.to_string(), "path": "/" });
    let said = host.ask("w__undeclared", args).await;
    assert!(said["error"].as_str().unwrap().contains("HttpRequestDenied"), "{said}");
    // The address must be granted as well.
    let named = TestHost::new(
        &[("w", guest_artifacts::CAP_WASI_HTTP)],
        &format!("[plugins.w.grant]\nnet = [\"http://localhost:{port}\"]"),
    )
    .await;
    let said = fetch(&named, &server, json!({ "authority": format!("localhost:{port}") })).await;
    assert!(said["error"].as_str().unwrap().contains("DestinationIpProhibited"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_http_bodies_are_counted_both_ways() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/endless" => LoopbackReply::Endless(
            b"HTTP/1.1 200 X\r\n\r\n".to_vec(),
            vec![b'x'; 65_536],
            Duration::from_micros(1),
        ),
        "/short" => LoopbackReply::Last(b"HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\nhello".to_vec()),
        "/huge" => {
            LoopbackReply::Last(format!("HTTP/1.1 200 X\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)).into_bytes())
        }
        "/many" => {
            LoopbackReply::Last(format!("HTTP/1.1 200 X\r\n{}\r\n", "x: y\r\n".repeat(40_000)).into_bytes())
        }
        "/two" => LoopbackReply::Last(
            b"HTTP/1.1 200 X\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!".to_vec(),
        ),
        _ => response(200, "", seen.body.len().to_string()),
    })
    .await;
    let host = http(&server, "[plugins.w.limits]\nhttp_bytes = \"2MiB\"").await;
    let said = fetch(&host, &server, json!({ "path": "/endless" })).await;
    assert!(said["broken"].as_str().is_some() && said["len"].as_u64().unwrap() <= 2 << 20, "{said}");
    let said = fetch(&host, &server, json!({ "path": "/short" })).await;
    assert!(said["broken"].as_str().is_some(), "{said}");
    for path in ["/huge", "/many", "/two"] {
        let said = fetch(&host, &server, json!({ "path": path })).await;
        assert!(said["error"].as_str().is_some(), "{path}: {said}");
    }
    let said = fetch(&host, &server, json!({ "method": "POST", "body_bytes": 100_000 })).await;
    assert_eq!(said["status"], 200, "{said}");
    let length = json!([["content-length", "100000"]]);
    let said =
        fetch(&host, &server, json!({ "method": "POST", "body_bytes": 100_000, "headers": length })).await;
    assert_eq!(said["body"], "100000", "{said}");
    assert_eq!(server.seen().last().unwrap().head.matches("content-length").count(), 1);
    for (n, length, unfinished) in
        [(99_999, "100000", false), (100_001, "100000", false), (99_999, "100000", true)]
    {
        let headers = json!([["content-length", length]]);
        let args = json!({ "method": "POST", "body_bytes": n, "headers": headers, "unfinished": unfinished });
        let before = server.seen().len();
        let said = fetch(&host, &server, args).await;
        assert!(said["error"].as_str().is_some() || server.seen().len() == before, "{n} {length}: {said}");
    }
    let said = fetch(&host, &server, json!({ "method": "POST", "body_bytes": 3 << 20 })).await;
    assert!(said["error"].as_str().is_some() || said["written"].as_str().is_some(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_http_requests_are_counted_and_given_up_with_the_call() {
    let server = LoopbackServer::new(|seen| match seen.path() {
        "/silent" => LoopbackReply::Silence,
        "/slow" => LoopbackReply::Endless(
            b"HTTP/1.1 200 X\r\ncontent-length: 100000\r\n\r\n".to_vec(),
            b"x".to_vec(),
            Duration::from_millis(600),
        ),
        _ => response(200, "", "hello"),
    })
    .await;
    let limits = "[plugins.w.limits]\nhttp_requests = 30\nhttp_connections = 3\ntimeout = \"8s\"";
    let host = http(&server, limits).await;
    let base = json!({ "authority": server.address.to_string(), "path": "/" });
    let with = |more: Value| {
        let mut args = base.clone();
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    };
    let said = host.ask("w__at_once", with(json!({ "n": 10 }))).await;
    let good = said["all"].as_array().unwrap().iter().filter(|one| one["status"] == 200).count();
    assert_eq!(good, 3, "only this many are open at once: {said}");
    let said = host.ask("w__at_once", with(json!({ "n": 3 }))).await;
    assert!(said["all"].as_array().unwrap().iter().all(|one| one["status"] == 200), "{said}");
    for (args, error) in [
        (json!({ "path": "/silent", "first_byte_ms": 200 }), "error"),
        (json!({ "path": "/slow", "between_bytes_ms": 100 }), "broken"),
    ] {
        let said = fetch(&host, &server, args).await;
        assert!(said[error].as_str().is_some(), "{said}");
    }
    let before = server.seen().len();
    let delivered = host.provoke("w__start_and_drop", with(json!({ "path": "/silent" })), SOON).await;
    assert!(matches!(
        fault(&delivered).kind,
        FaultKind::Deadline | FaultKind::OutOfFuel | FaultKind::OutOfMemory
    ));
    assert!(server.seen().len() - before <= 30);
    server.all_closed(SOON).await;
    let cancel = CancellationToken::new();
    let turn = TurnContext { cancel: cancel.clone(), ..TurnContext::default() };
    let before = server.seen().len();
    let args = with(json!({ "path": "/silent" })).to_string();
    let (delivered, ()) = tokio::join!(host.call_in("w__fetch", &args, turn), async {
        while server.seen().len() == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    });
    assert_eq!(fault(&delivered).kind, FaultKind::Cancelled);
    server.all_closed(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wasi_http_fields_and_empty_writes_stay_small() {
    let server = LoopbackServer::new(|seen| response(200, "", seen.body.len().to_string())).await;
    let host = http(&server, "").await;
    for size in [0, 1, 1000, 60_000] {
        // wasmtime ends a guest that continues after the limit.
        let grown = host.provoke("w__grow_fields", json!({ "size": size }), SOON).await;
        assert_eq!(fault(&grown).kind, FaultKind::Trap, "{size}: {grown:?}");
    }
    let said = structured(&host.provoke("w__grow_fields", json!({ "size": 50, "n": 50 }), SOON).await);
    assert_eq!(said["added"], 50);
    let many = host.provoke("w__grow_fields", json!({ "size": 60_000, "n": 1, "maps": 1000 }), SOON).await;
    assert_eq!(fault(&many).limit.as_ref().map(|limit| limit.name), Some("handles"), "{many:?}");
    let args =
        json!({ "authority": server.address.to_string(), "path": "/", "method": "POST", "n": 200_000 });
    let said = host.provoke("w__empty_writes", args, SOON).await;
    assert!(matches!(outcome(&said), "ok" | "trap" | "deadline" | "out_of_fuel"), "{said:?}");
    let said = host.ask("w__fields", json!({ "all": [["te", "x"], ["Trailer", "x"], ["x", "y"]] })).await;
    assert!(
        said["said"][0].is_string() && said["said"][1].is_string() && said["said"][2].is_null(),
        "{said}"
    );
}

/// An echo server over TCP and UDP on the same port.
async fn echo() -> (u16, tokio::task::JoinSet<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let udp = tokio::net::UdpSocket::bind(("127.0.0.1", port)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = tcp.accept().await.unwrap();
            tokio::spawn(async move {
                let mut part = [0; 1000];
                while let Ok(n) = stream.read(&mut part).await {
                    if n == 0 || stream.write_all(&part[..n]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    tasks.spawn(async move {
        let mut part = [0; 1000];
        loop {
            let (n, from) = udp.recv_from(&mut part).await.unwrap();
            udp.send_to(&part[..n], from).await.unwrap();
        }
    });
    (port, tasks)
}

async fn sockets(grant: &str, more: &str) -> TestHost {
    let policy = format!("[plugins.s.grant]\n{grant}\n[plugins.s.limits]\ntimeout = \"8s\"\n{more}");
    TestHost::new(&[("s", guest_artifacts::CAP_SOCKETS)], &policy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_connections_reach_only_granted_addresses() {
    let (port, _tasks) = echo().await;
    let (other, _more) = echo().await;
    let at = |host: &str, port: u16| json!({ "host": host, "port": port });
    let private = "net_private = [\"127.0.0.0/8\", \"::1\"]";
    for (net, tool, args, allowed) in [
        (json!([]), "tcp", at("127.0.0.1", port), false),
        (json!([format!("https://127.0.0.1:{port}")]), "tcp", at("127.0.0.1", port), false),
        (json!([format!("tcp://127.0.0.1:{port}")]), "tcp", at("127.0.0.1", port), true),
        (json!([format!("tcp://127.0.0.1:{port}")]), "tcp", at("127.0.0.1", other), false),
        (json!([format!("tcp://127.0.0.1:{port}")]), "tcp", at("127.0.0.2", port), false),
        (json!([format!("tcp://127.0.0.1:{port}")]), "tcp", at("localhost", port), false),
        (json!([format!("tcp://127.0.0.1:{port}")]), "udp", at("127.0.0.1", port), false),
        (json!([format!("udp://127.0.0.1:{port}")]), "tcp", at("127.0.0.1", port), false),
        (json!([format!("udp://127.0.0.1:{port}")]), "udp", at("127.0.0.1", port), true),
        (json!([format!("udp://127.0.0.1:{port}")]), "udp", at("127.0.0.1", other), false),
        (json!([format!("tcp://localhost:{port}")]), "tcp", at("localhost", port), true),
        (json!([format!("tcp://localhost:{port}")]), "tcp", at("localhost", other), false),
        (json!([format!("tcp://localhost:{port}")]), "tcp", at("127.0.0.1", port), false),
        (json!([format!("tcp://localhost:{port}"), "!127.0.0.1"]), "tcp", at("localhost", port), false),
        (
            json!([format!("tcp://localhost:{port}"), "tcp://*:*", "!*.localhost"]),
            "tcp",
            at("localhost", port),
            true,
        ),
        (
            json!([format!("tcp://127.0.0.1:{port}"), "tcp://*:*", "!localhost"]),
            "tcp",
            at("localhost", port),
            false,
        ),
        (
            json!([format!("tcp://127.0.0.1:{port}"), "tcp://*:*", "!localhost"]),
            "tcp",
            at("127.0.0.1", port),
            true,
        ),
        (json!(["tcp://*:*", "udp://*:*"]), "tcp", at("127.0.0.1", port), false),
        (json!(["tcp://*:*", "udp://*:*"]), "tcp", at("localhost", port), false),
        (json!(["tcp://*:*", "udp://*:*"]), "udp", at("127.0.0.1", port), false),
    ] {
        let host = sockets(&format!("net = {net}\n{private}"), "").await;
        let said = structured(&host.provoke(&format!("s__{tool}"), args.clone(), SOON).await);
        assert_eq!(said["text"] == "hello", allowed, "{net} {tool} {args}: {said}");
        if !allowed {
            assert!(said["error"].as_str().is_some(), "{net} {tool} {args}: {said}");
        }
    }
    // A private address without a grant.
    let host = sockets(&format!("net = [\"tcp://127.0.0.1:{port}\"]"), "").await;
    assert!(host.ask("s__tcp", at("127.0.0.1", port)).await["error"].is_string());
    let host = sockets(&format!("net = [\"tcp://127.0.0.1:{port}\"]\n{private}"), "").await;
    assert!(host.ask("s__undeclared", at("127.0.0.1", port)).await["error"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_cannot_listen_and_resolves_only_granted_names() {
    let (port, _tasks) = echo().await;
    let net = format!(
        "net = [\"tcp://localhost:{port}\", \"udp://localhost:{port}\"]\nnet_private = [\"127.0.0.0/8\", \"::1\"]"
    );
    let host = sockets(&net, "").await;
    for args in [json!({}), json!({ "port": 18_080 })] {
        assert!(host.ask("s__listen", args.clone()).await["error"].is_string(), "{args}");
    }
    for (args, allowed) in [
        (json!({}), true),
        (json!({ "port": 18_080 }), false),
        (json!({ "host": "127.0.0.1" }), false),
        (json!({ "host": "127.0.0.1", "port": 18_080 }), false),
    ] {
        let said = host.ask("s__bind_udp", args.clone()).await;
        assert_eq!(said["text"].is_string(), allowed, "{args}: {said}");
    }
    let said = host.ask("s__look_up", json!({ "host": "LocalHost." })).await;
    assert!(
        said["std"].to_string().contains("127.0.0.1") && said["raw"].to_string().contains("127"),
        "{said}"
    );
    for name in
        ["stolen-data.attacker.example", "localhost.attacker.example", "xlocalhost", "", "a b", "\0", "*"]
    {
        let said = host.ask("s__look_up", json!({ "host": name })).await;
        let raw = said["raw"].to_string();
        assert!(
            raw.contains("access-denied") || raw.contains("AccessDenied") || raw.contains("nvalid"),
            "{name:?}: {said}"
        );
    }
    // The name is granted, its address is not.
    let host = sockets(&format!("net = [\"tcp://localhost:{port}\"]"), "").await;
    let said = host.ask("s__look_up", json!({ "host": "localhost" })).await;
    assert!(!said.to_string().contains("127"), "{said}");
    // Without a grant of raw connections, no name is resolved.
    let host = sockets("net = [\"https://*\"]", "").await;
    assert!(!host.ask("s__look_up", json!({ "host": "localhost" })).await.to_string().contains("127"));
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_connections_are_counted_and_closed_with_the_call() {
    let (port, _tasks) = echo().await;
    let net = format!(
        "net = [\"tcp://127.0.0.1:{port}\", \"udp://127.0.0.1:{port}\"]\nnet_private = [\"127.0.0.1\"]"
    );
    let host = sockets(&net, "http_connections = 3").await;
    let args = json!({ "host": "127.0.0.1", "port": port, "n": 10 });
    for _ in 0..2 {
        let said = structured(&host.provoke("s__many", args.clone(), SOON).await);
        assert_eq!(said["open"], 3, "{said}");
    }
    let said = host.ask("s__udp", json!({ "host": "127.0.0.1", "port": port, "n": 50, "text": "x" })).await;
    assert_eq!(said["text"], "x".repeat(50), "one peer is one connection: {said}");
    let host = sockets(&net, "http_requests = 2").await;
    assert_eq!(host.ask("s__many", args.clone()).await["open"], 2);
    // The share of one plugin: a quarter.
    let host = sockets(&net, "[host]\nhttp_connections = 4").await;
    assert_eq!(host.ask("s__many", args.clone()).await["open"], 1);
}

async fn dialer(grant: &str, more: &str) -> TestHost {
    let policy = format!("[plugins.s.grant]\n{grant}\n[plugins.s.limits]\ntimeout = \"8s\"\n{more}");
    TestHost::new(&[("s", guest_artifacts::FOREIGN_ASYNC_SOCKETS)], &policy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_connections_of_wasi_0_3_obey_the_same_policy() {
    let (port, _tasks) = echo().await;
    let (other, _more) = echo().await;
    let at = |port: u16| json!({ "address": [127, 0, 0, 1], "port": port, "text": "hello" });
    let (tcp, udp) = (format!("tcp://127.0.0.1:{port}"), format!("udp://127.0.0.1:{port}"));
    for (net, tool, port, allowed) in [
        (json!([]), "tcp", port, false),
        (json!([tcp]), "tcp", port, true),
        (json!([tcp]), "tcp", other, false),
        (json!([tcp]), "udp", port, false),
        (json!([udp]), "tcp", port, false),
        (json!([udp]), "udp", port, true),
        (json!([udp]), "udp", other, false),
        (json!(["tcp://*:*"]), "tcp", port, false),
    ] {
        let host = dialer(&format!("net = {net}\nnet_private = [\"127.0.0.0/8\"]"), "").await;
        let called = host.provoke(&format!("s__{tool}"), at(port), SOON).await;
        match allowed {
            true => assert_eq!(words(&called), "hello", "{net} {tool} {port}"),
            // Refusals that have a reason append it.
            false => {
                assert!(
                    refusal(&called).message.starts_with("ErrorCode::AccessDenied"),
                    "{net} {tool} {port}"
                );
            }
        }
    }
    let grant = format!("net = [\"{tcp}\", \"{udp}\"]\nnet_private = [\"127.0.0.0/8\"]");
    let host = dialer(&grant, "http_connections = 3").await;
    let args = json!({ "address": [127, 0, 0, 1], "port": port, "count": 10 });
    for _ in 0..2 {
        assert_eq!(host.ask("s__many", args.clone()).await, json!({ "result": 3 }));
    }
    for (tool, args) in [
        ("listen-at", json!({ "port": 0 })),
        ("listen-at", json!({ "port": 18_080 })),
        ("bind-udp", json!({ "address": [0, 0, 0, 0], "port": 18_080 })),
        ("bind-udp", json!({ "address": [127, 0, 0, 1], "port": 0 })),
    ] {
        let refused = host.call(&format!("s__{tool}"), args.clone()).await;
        assert!(refusal(&refused).message.starts_with("ErrorCode::AccessDenied"), "{tool} {args}");
    }
    let bound = host.call("s__bind-udp", json!({ "address": [0, 0, 0, 0], "port": 0 })).await;
    assert_eq!(outcome(&bound), "ok", "{bound:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_wasi_0_3_are_resolved_only_if_they_are_granted() {
    let private = "net_private = [\"127.0.0.0/8\", \"::1\"]";
    let localhost = "net = [\"tcp://localhost:1\"]";
    for (grant, name, said) in [
        (format!("{localhost}\n{private}"), "LocalHost.", "127"),
        (format!("{localhost}\n{private}"), "stolen-data.attacker.example", "ErrorCode::AccessDenied"),
        (format!("{localhost}\n{private}"), "xlocalhost", "ErrorCode::AccessDenied"),
        (format!("{localhost}\n{private}"), "a b", "ErrorCode::InvalidArgument"),
        // The name is granted, its address is not.
        (localhost.to_owned(), "localhost", "ErrorCode::AccessDenied"),
        // Without a grant of raw connections, no name is resolved.
        (format!("net = [\"https://*\"]\n{private}"), "localhost", "ErrorCode::AccessDenied"),
        (String::new(), "localhost", "ErrorCode::AccessDenied"),
    ] {
        let host = dialer(&grant, "").await;
        let looked = host.call("s__look-up", json!({ "name": name })).await;
        let text = if said == "127" { words(&looked) } else { &refusal(&looked).message };
        assert!(text.contains(said), "{grant} {name}: {text}");
    }
}
