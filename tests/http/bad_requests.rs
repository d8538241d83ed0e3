//! Invalid requests: each gets an answer, and later requests work.

use std::time::Duration;

use serde_json::{Value, json};

use super::fixture::{
    HANGS, HttpFixture, LEGACY, MODERN, RawConnection, RawResponse, RequestBuilder, initialize, modern,
};

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
}

#[tokio::test]
async fn bodies_that_are_no_message_are_answered_with_the_reason() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    let deep = "[".repeat(100_000);
    for (body, code, part) in [
        (&b""[..], -32700, "not JSON"),
        (b"{", -32700, "not JSON"),
        (b"{} {}", -32700, "not JSON"),
        (b"nonsense", -32700, "not JSON"),
        (b"{\"a\":\"\xff\"}", -32700, "UTF-8"),
        (b"\xef\xbb\xbf{}", -32600, "`jsonrpc` is missing"),
        (deep.as_bytes(), -32700, "not JSON"),
        (b"[]", -32600, "batches"),
        (b" [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]", -32600, "batches"),
        (b"{}", -32600, "`jsonrpc` is missing"),
        (b"null", -32600, "JSON-RPC"),
        (b"7", -32600, "JSON-RPC"),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"tools/list\"}", -32600, "JSON-RPC"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"tools/list\"}", -32600, "JSON-RPC"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{\"a\":1},\"method\":7}", -32600, "JSON-RPC"),
    ] {
        for session in ["", &id] {
            let answer =
                desk.post(&json!({})).bytes(body.to_vec()).header("mcp-session-id", session).send().await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(40)]);
            assert_eq!((answer.status, answer.code()), (400, code), "{shown}: {answer:?}");
            assert!(answer.body.contains(part), "{shown}: {}", answer.body);
        }
    }
    let told = desk.post(&json!({})).bytes(b"{\"jsonrpc\":\"1.0\",\"id\":\"mine\"}".to_vec()).send().await;
    assert_eq!(told.json()["id"], "mine", "the error names the id of the request");
    assert_eq!(desk.post(&list()).session(&id).send().await.status, 200);
}

/// Fills the memory for bodies with a request that lacks its last byte, until the same request is refused with this status.
///
/// Of two concurrent requests, either may be refused. Then the function tries again.
async fn held(ask: &RequestBuilder, status: u16) -> (RawConnection, RawResponse) {
    let bytes = ask.wire();
    let mut refused = None;
    for _ in 0..100 {
        let mut slow = ask.connect().await;
        slow.write(&bytes[..bytes.len() - 1]).await;
        for _ in 0..10 {
            let answer = ask.send().await;
            if answer.status == status {
                return (slow, answer);
            }
            refused = Some(answer);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    panic!("never {status}: {refused:?}");
}

#[tokio::test]
async fn an_oversized_body_is_not_read() {
    let desk =
        HttpFixture::new("[serve.limits]\nbody_bytes = \"64KiB\"\nbody_bytes_total = \"64KiB\"\n").await;
    let long = desk.post(&json!({"a": "x".repeat(64 << 10)}));
    let answer = long.send().await;
    assert_eq!((answer.status, answer.code()), (413, -32600));
    assert!(answer.body.contains("body_bytes") && !answer.body.contains("[serve"), "{}", answer.body);

    // Refused by its announced length, before any byte arrived.
    let announced = desk.post(&json!({})).header("content-length", "99999999999");
    assert_eq!(announced.send().await.status, 413);

    // Chunked, without a length.
    let head = String::from_utf8(desk.post(&json!({})).bytes(Vec::new()).wire()).unwrap();
    let head = head.replace("content-length: 0", "transfer-encoding: chunked");
    let mut wire = RawConnection::connect(desk.address).await;
    wire.write(head.as_bytes()).await;
    let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..5 {
        drop(tokio::io::AsyncWriteExt::write_all(&mut wire.stream, piece.as_bytes()).await);
    }
    assert_eq!(wire.answer().await.status, 413);

    // The memory holds one body. The next client gets an error and a time to retry.
    let body = vec![b' '; 60 << 10];
    let ask = desk.post(&json!({})).bytes(body);
    let (slow, refused) = held(&ask, 503).await;
    assert!(refused.header("retry-after").is_some() && refused.body.contains("body_bytes_total"));
    drop(slow);
    let mut status = 0;
    for _ in 0..500 {
        status = desk.modern("tools/list", json!({})).send().await.status;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, 200);
}

#[tokio::test]
async fn one_client_cannot_use_all_body_memory() {
    let limits = "[serve.limits]\nbody_bytes = \"64KiB\"\nbody_bytes_per_client = \"64KiB\"\n\
                  body_bytes_total = \"128KiB\"\n";
    let host = integration_tests::TestHost::built(
        &format!("[serve]\ntokens = \"tokens.toml\"\n{limits}"),
        |b, root| {
            super::auth::write(&root.join("tokens.toml"), &[("a", "token-a", ""), ("b", "token-b", "")]);
            b
        },
    );
    let desk = HttpFixture::of(host, toolbay_mcp::KeyFetcher::disabled(), None).await;
    let body = vec![b' '; 60 << 10];
    let ask = |token: &str| desk.post(&json!({})).bytes(body.clone()).bearer(token);
    let (slow, refused) = held(&ask("token-a"), 429).await;
    assert!(refused.header("retry-after").is_some() && refused.body.contains("body_bytes_per_client"));
    assert_eq!(ask("token-b").send().await.status, 400, "it is read, and is no message");
    drop(slow);
}

#[tokio::test]
async fn a_message_with_a_repeated_key_is_invalid() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"e__echo"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"e__echo"},"params":{"name":"s__sleep"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"e__echo","arguments":{},"arguments":{"a":1}}}"#,
    ] {
        let answer = desk.post(&json!({})).bytes(body.as_bytes().to_vec()).session(&id).send().await;
        assert_eq!((answer.status, answer.code()), (400, -32600), "{body}: {answer:?}");
    }
}

#[tokio::test]
async fn a_request_that_no_parser_reads_is_answered_under_its_id() {
    let desk = HttpFixture::new("[serve]\nusage_meta = true\n").await;
    let id = desk.begin().await;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let bad: [&[u8]; 6] = [b"1e400", br#""\ud800""#, b"NaN", b"\"\xff\"", br#""\q""#, deep.as_bytes()];
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}"#;
    for bad in bad {
        let shown = String::from_utf8_lossy(bad).chars().take(20).collect::<String>();
        let sent = |session: &str, head: String, tail: &str, name: bool| {
            let body = [head.as_bytes(), bad, tail.as_bytes()].concat();
            let ask = desk.post(&json!({})).bytes(body);
            let ask = match (session, name) {
                ("", true) => ask.modern_headers("tools/call", &json!({"name": "e__echo"})),
                ("", false) => ask.modern_headers("tools/list", &json!({})),
                (session, _) => ask.session(session),
            };
            async move { ask.send().await }
        };
        for (session, meta) in
            [("", meta), (id.as_str(), r#""_meta":{}"#), (id.as_str(), r#""_meta":{"progressToken":2}"#)]
        {
            let head = format!(
                r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{{meta},"name":"e__echo","arguments":{{"x":"#
            );
            let answer = sent(session, head, r#"}},"id":"mine"}"#, true).await;
            assert_eq!(answer.status, 200, "{shown}: {answer:?}");
            assert!(answer.body.contains(r#""id":"mine""#), "{shown}: {answer:?}");
            assert!(answer.body.contains(r#""toolbay/code":"input_invalid""#), "{shown}: {answer:?}");
            let head = format!(r#"{{"jsonrpc":"2.0","id":44,"method":"tools/list","params":{{{meta},"x":"#);
            let answer = sent(session, head, "}}", false).await;
            assert_eq!((answer.status, answer.code()), (200, -32602), "{shown}: {answer:?}");
            assert_eq!(answer.json()["id"], 44, "{shown}: {answer:?}");
            assert_eq!(
                answer.json()["error"]["data"]["toolbay/code"],
                "input_invalid",
                "{shown}: {answer:?}"
            );
        }
    }
    assert_eq!(desk.post(&list()).session(&id).send().await.status, 200);
}

#[tokio::test]
async fn unknown_methods_and_misplaced_messages_are_answered() {
    let desk = HttpFixture::new("").await;
    let unknown = desk.modern("no/such", json!({})).send().await;
    assert_eq!((unknown.status, unknown.code()), (404, -32601), "{unknown:?}");
    let id = desk.begin().await;
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "no/such"});
    let unknown = desk.post(&unknown).session(&id).send().await;
    assert_eq!((unknown.status, unknown.code()), (200, -32601), "{unknown:?}");

    // No request was sent.
    let answer = json!({"jsonrpc": "2.0", "id": 99, "result": {}});
    assert_eq!(desk.post(&answer).session(&id).send().await.status, 202);
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12345}});
    assert_eq!(desk.post(&cancel).session(&id).send().await.status, 202);
    // The same holds for a request that has ended, and for a second answer.
    let ended = json!({"jsonrpc": "2.0", "id": 12, "method": "tools/list"});
    assert_eq!(desk.post(&ended).session(&id).send().await.status, 200);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 12}});
    for _ in 0..2 {
        assert_eq!(desk.post(&cancel).session(&id).send().await.status, 202);
    }
    assert!(desk.post(&ended).session(&id).send().await.json()["result"].is_object(), "and the id is free");
    let tool = desk.modern("tools/call", json!({"name": "no_such", "arguments": {}})).send().await;
    assert_eq!(tool.code(), -32602, "{tool:?}");
    assert_eq!(desk.post(&list()).session(&id).send().await.status, 200);
}

/// Of a repeated header, a proxy may read another value than the server.
#[tokio::test]
async fn contradicting_headers_are_refused_in_every_method_and_era() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    let params = json!({});
    let stream = || desk.get("/mcp").header("accept", "text/event-stream").session(&id);
    let requests = [
        desk.post(&list()).session(&id),
        desk.post(&initialize(LEGACY)),
        desk.post(&modern("tools/list", params.clone())).modern_headers("tools/list", &params),
        stream().header("last-event-id", "0"),
        RequestBuilder::new(desk.address, "DELETE", "/mcp").session(&id),
    ];
    for (request, name) in requests.iter().flat_map(|request| {
        [
            "host",
            "origin",
            "authorization",
            "content-type",
            "mcp-protocol-version",
            "mcp-session-id",
            "mcp-method",
            "mcp-name",
            "mcp-param-x",
            "last-event-id",
            "toolbay-session",
        ]
        .map(|name| (request, name))
    }) {
        let answer = request.clone().another(name, "one").another(name, "other").send().await;
        assert_eq!((answer.status, answer.code()), (400, -32020), "{name}: {answer:?}");
        assert!(answer.body.contains(&format!("`{name}`")), "{answer:?}");
    }
    let equal = desk.post(&list()).session(&id).another("mcp-session-id", &id).another("accept", "*/*");
    assert_eq!(equal.send().await.status, 200, "and the session was not ended");
}

#[tokio::test]
async fn eras_cannot_be_mixed() {
    let desk = HttpFixture::new("").await;
    let params = json!({});
    let good = modern("tools/list", params.clone());
    let ask = || desk.post(&good).modern_headers("tools/list", &params);
    for (what, ask, status, code) in [
        ("no version header", ask().header("mcp-protocol-version", ""), 400, -32020),
        ("another version header", ask().header("mcp-protocol-version", LEGACY), 400, -32020),
        ("no method header", ask().header("mcp-method", ""), 400, -32020),
        ("another method header", ask().header("mcp-method", "tools/call"), 400, -32020),
        ("two method headers", ask().another("mcp-method", "tools/call"), 400, -32020),
        (
            "the header of 2026 and nothing in the body",
            desk.post(&list()).header("mcp-protocol-version", MODERN).header("mcp-method", "tools/list"),
            400,
            -32602,
        ),
    ] {
        let answer = ask.send().await;
        assert_eq!((answer.status, answer.code()), (status, code), "{what}: {answer:?}");
    }
    // A 2025 request without a session, one with an unknown version, and a stream that does not exist.
    assert_eq!(desk.post(&list()).send().await.status, 400);
    assert_eq!(desk.post(&list()).header("mcp-protocol-version", "1999-01-01").send().await.status, 400);
    assert_eq!(desk.get("/mcp").header("accept", "text/event-stream").send().await.status, 400);
    assert!(
        [405, 400].contains(
            &desk
                .get("/mcp")
                .header("accept", "text/event-stream")
                .header("mcp-protocol-version", MODERN)
                .send()
                .await
                .status
        )
    );
    // `initialize` belongs to the eras before 2026 whatever version it names, and negotiates a common version.
    let answer = desk.post(&initialize(MODERN)).send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_ne!(answer.json()["result"]["protocolVersion"], MODERN);
    // A stateless request needs no session, and an unknown session id does no harm.
    assert_eq!(ask().header("mcp-session-id", "no-such").send().await.status, 200);
}

#[tokio::test]
async fn other_methods_types_and_sessions_are_refused() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    for method in ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "BREW"] {
        let answer = RequestBuilder::new(desk.address, method, "/mcp").open().await.until("\r\n").await;
        assert!(
            answer.contains(" 405 ") || answer.contains(" 400 ") || answer.contains(" 404 "),
            "{method}: {answer}"
        );
    }
    for (name, value, status) in [
        ("accept", "text/html", 406),
        ("accept", "*/*;q=0", 406),
        ("content-type", "text/plain", 415),
        ("content-type", "application/x-www-form-urlencoded", 415),
        ("content-type", "", 415),
    ] {
        let answer = desk.post(&list()).session(&id).header(name, value).send().await;
        assert_eq!((answer.status, answer.code()), (status, -32600), "{name}: {value}");
    }
    for forged in ["no-such", "00000000-0000-4000-8000-000000000000", "../../etc", "%00", &"x".repeat(4000)] {
        assert_eq!(desk.post(&list()).session(forged).send().await.status, 404, "{forged:.50}");
        let end = RequestBuilder::new(desk.address, "DELETE", "/mcp").session(forged).send().await;
        assert_eq!(end.status, 404, "{forged:.50}");
        let stream = desk.get("/mcp").session(forged).header("accept", "text/event-stream").send().await;
        assert_eq!(stream.status, 404, "{forged:.50}");
    }
    assert_eq!(RequestBuilder::new(desk.address, "DELETE", "/mcp").send().await.status, 400);
    assert_eq!(desk.post(&list()).session(&id).send().await.status, 200);
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_reused() {
    let desk = HttpFixture::new("").await;
    let (id, held) = (desk.begin().await, desk.held_tool());
    let params = json!({"name": "held", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
    let mut first = desk.post(&call).session(&id).open().await;
    held.until_begun(&desk, 1).await;
    let again = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list"});
    let refused = desk.post(&again).session(&id).send().await;
    assert_eq!((refused.code(), &refused.json()["id"]), (-32600, &json!(5)), "{refused:?}");
    held.end(1);
    assert_eq!(first.answer().await.json()["result"]["content"][0]["text"], "held");
    assert!(desk.post(&again).session(&id).send().await.json()["result"].is_object());
}

#[tokio::test]
async fn foreign_host_names_and_origins_are_refused() {
    let desk = HttpFixture::new("[serve]\norigins = [\"https://app.example\"]\n").await;
    let ask = || desk.modern("tools/list", json!({}));
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "a@localhost", ""] {
        let answer = ask().header("host", host).send().await;
        assert!([400, 403].contains(&answer.status), "{host}: {answer:?}");
    }
    let told = ask().header("host", "tools.example").send().await;
    assert!(told.body.contains("tools.example") && !told.body.contains("[serve"), "{}", told.body);
    assert_eq!(ask().another("host", "evil.example").send().await.status, 400);
    for origin in
        ["https://evil.example", "null", "http://localhost.evil.example", "https://app.example.evil"]
    {
        let answer = ask().header("origin", origin).send().await;
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let near = ask().header("origin", "http://localhost:3000").send().await;
    assert_eq!((near.status, near.header("access-control-allow-origin")), (200, None));
    let page = ask().header("origin", "https://app.example").send().await;
    assert_eq!((page.status, page.header("access-control-allow-origin")), (200, Some("https://app.example")));
    let before = RequestBuilder::new(desk.address, "OPTIONS", "/mcp").header("origin", "https://app.example");
    let before = before.header("access-control-request-method", "POST").send().await;
    assert_eq!(before.status, 204);
    assert!(before.header("access-control-allow-headers").unwrap().contains("mcp-protocol-version"));
}

#[tokio::test]
async fn heads_that_are_too_long_too_many_or_no_http_are_refused() {
    let desk = HttpFixture::new("[serve.limits]\nheaders = 20\nheader_bytes = \"8KiB\"\n").await;
    let ask = || desk.modern("tools/list", json!({}));
    assert_eq!(ask().header("x-long", &"x".repeat(9 << 10)).send().await.status, 431);
    let many = (0..30).fold(ask(), |ask, n| ask.header(&format!("x-{n}"), "1"));
    assert_eq!(many.send().await.status, 431);
    let line = format!("/mcp?{}", "x".repeat(70 << 10));
    let long = ask().path(&line).open().await.until("\r\n").await;
    assert!(long.contains(" 414 ") || long.contains(" 431 ") || long.contains(" 400 "), "{long}");
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"hello\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n b: c\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    ] {
        let mut wire = RawConnection::connect(desk.address).await;
        wire.write(nonsense).await;
        assert!(wire.closed().await);
    }
    assert_eq!(ask().send().await.status, 200);
}

#[tokio::test]
async fn slow_senders_are_disconnected() {
    let desk = HttpFixture::new("[serve.limits]\nidle_timeout = \"500ms\"\nbody_timeout = \"500ms\"\n").await;
    let mut silent = RawConnection::connect(desk.address).await;
    let mut head = RawConnection::connect(desk.address).await;
    head.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-").await;
    let mut idle = desk.get("/healthz").open().await;
    idle.answer().await;
    let whole = desk.post(&list()).wire();
    let mut body = RawConnection::connect(desk.address).await;
    body.write(&whole[..whole.len() - 1]).await;
    // Sending a byte from time to time does not help.
    let dripping = async {
        for _ in 0..600 {
            if tokio::io::AsyncWriteExt::write_all(&mut head.stream, b"x").await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("a head may drip in for a minute");
    };
    tokio::time::timeout(HANGS, dripping).await.unwrap();
    assert!(silent.closed().await && idle.closed().await);
    let slow = body.answer().await;
    assert_eq!(slow.status, 408);
    assert!(slow.body.contains("body_timeout"));
}

#[tokio::test]
async fn a_half_closed_connection_counts_as_closed() {
    let desk = HttpFixture::new("").await;
    let places = desk.host.host.available_call_permits();
    let mut wire = desk.modern("tools/call", json!({"name": "s__sleep", "arguments": {}})).open().await;
    desk.until_running(1, places).await;
    tokio::io::AsyncWriteExt::shutdown(&mut wire.stream).await.unwrap();
    desk.until_running(0, places).await;
    assert!(wire.closed().await);
}

#[tokio::test]
async fn requests_that_follow_each_other_without_waiting_are_answered_in_order() {
    let desk = HttpFixture::new("").await;
    let mut wire = RawConnection::connect(desk.address).await;
    let ask = |n: u64| desk.modern("tools/call", json!({"name": "e__echo", "arguments": {"n": n}})).wire();
    wire.write(&(0..20).flat_map(ask).collect::<Vec<u8>>()).await;
    for n in 0..20 {
        let answer = wire.answer().await.json();
        assert_eq!(answer["result"]["content"][0]["text"], format!("{{\"n\":{n}}}"));
    }
}
