//! Bridged MCP servers over HTTP: both eras, and hostile peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use integration_tests::{fault, hints, outcome, refusal, words};
use serde_json::{Value, json};
use toolbay::core::call::invoke::BoxFuture;
use toolbay::core::tool::fault::FaultKind;
use toolbay_mcp::client::{Elicitation, ElicitationHandler, ElicitationOutcome, ServerState};

use super::bridge_stdio::{BridgeFixture, SOON};
use crate::loopback::{LoopbackReply, LoopbackServer, ReceivedRequest, redirect, response};

pub(super) const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";

pub(crate) fn body(seen: &ReceivedRequest) -> Value {
    serde_json::from_slice(&seen.body).unwrap_or_default()
}

pub(crate) fn answer(id: &Value, result: Value) -> LoopbackReply {
    let mut message = json!({"jsonrpc": "2.0", "id": id});
    message["result"] = result;
    response(200, JSON, message.to_string())
}

pub(super) fn list() -> Value {
    json!({"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"}}}}], "resultType": "complete"})
}

/// A 2025-11-25 server with sessions; `call` answers calls.
pub(super) fn legacy(
    call: impl Fn(&Value, &ReceivedRequest) -> LoopbackReply + Send + Sync + 'static,
) -> impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync {
    move |seen| {
        let message = body(seen);
        let id = &message["id"];
        match (seen.line().split(' ').next().unwrap(), message["method"].as_str()) {
            ("POST", Some("initialize")) => {
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "web", "version": "3"}});
                let text = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
                response(200, &format!("{JSON}mcp-session-id: abc-1\r\n"), text)
            }
            ("POST", Some("notifications/initialized" | "notifications/cancelled")) => response(202, "", ""),
            ("POST", Some("tools/list")) => answer(id, list()),
            ("POST", Some("ping")) => answer(id, json!({})),
            ("POST", Some("tools/call")) => call(&message, seen),
            ("GET", _) => call(&message, seen),
            ("DELETE", _) => response(200, "", ""),
            _ => response(404, "", "nothing here"),
        }
    }
}

fn modern(
    call: impl Fn(&Value, &ReceivedRequest) -> LoopbackReply + Send + Sync + 'static,
) -> impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync {
    move |seen| {
        let message = body(seen);
        let id = &message["id"];
        let same = seen.header("mcp-method") == message["method"].as_str()
            && seen.header("mcp-protocol-version") == Some("2026-07-28")
            && message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28";
        if !same {
            return response(
                400,
                JSON,
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32020, "message": "headers"}})
                    .to_string(),
            );
        }
        match message["method"].as_str() {
            Some("server/discover") => answer(
                id,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "4"}}),
            ),
            Some("tools/list") => answer(id, list()),
            Some("tools/call") => call(&message, seen),
            _ => response(
                404,
                JSON,
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}).to_string(),
            ),
        }
    }
}

pub(super) fn text(message: &Value, text: &str) -> LoopbackReply {
    answer(&message["id"], json!({"content": [{"type": "text", "text": text}]}))
}

pub(super) async fn bridged(server: &LoopbackServer, more: &str) -> BridgeFixture {
    BridgeFixture::new(&format!("[mcp.s]\nurl = \"{}\"\n{more}", server.url("/mcp"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_are_spoken() {
    let server = LoopbackServer::new(legacy(|message, _| text(message, "legacy"))).await;
    let host = bridged(&server, "headers = { X-Team = \"a\" }").await;
    assert_eq!(host.status().protocol.as_deref(), Some("2025-11-25"), "{:?}", host.status());
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({"region": "x"})).await), "legacy");
    host.bridge.close().await;
    let seen = server.seen();
    let call = seen.iter().find(|seen| body(seen)["method"] == "tools/call").unwrap();
    assert_eq!(call.header("mcp-session-id"), Some("abc-1"));
    assert_eq!((call.header("mcp-protocol-version"), call.header("x-team")), (Some("2025-11-25"), Some("a")));
    assert_eq!(call.header("mcp-param-region"), None);
    let hello = seen.iter().find(|seen| body(seen)["method"] == "initialize").unwrap();
    assert_eq!((hello.header("mcp-session-id"), hello.header("mcp-protocol-version")), (None, None));
    assert!(seen.last().unwrap().line().starts_with("DELETE"), "a farewell");

    let server = LoopbackServer::new(modern(|message, seen| {
        text(message, &format!("{:?} {:?}", seen.header("mcp-name"), seen.header("mcp-param-region")))
    }))
    .await;
    let host = bridged(&server, "").await;
    assert_eq!(host.status().protocol.as_deref(), Some("2026-07-28"), "{:?}", host.status());
    let said = host.host.call("mcp__s__echo", json!({"region": "é"})).await;
    assert_eq!(words(&said), "Some(\"echo\") Some(\"=?base64?w6k=?=\")");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_may_arrive_as_an_event_and_a_broken_stream_is_resumed() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let server = LoopbackServer::new(legacy(move |message, seen| {
        if seen.line().starts_with("GET") {
            counted.fetch_add(1, Ordering::SeqCst);
            assert_eq!(seen.header("last-event-id"), Some("e-7"));
            let event =
                json!({"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": "late"}]}});
            return response(200, EVENTS, format!("data: {event}\n\n"));
        }
        let id = &message["id"];
        assert_eq!(id, 3, "the third request of this conversation: {message}");
        response(200, EVENTS, "id: e-7\nretry: 10\ndata:\n\n")
    }))
    .await;
    let host = bridged(&server, "protocol = \"legacy\"").await;
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "late");
    assert_eq!(gets.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_never_answers_is_not_fetched_for_ever() {
    let server =
        LoopbackServer::new(legacy(|_, _| response(200, EVENTS, "id: 1\nretry: 1\ndata:\n\n"))).await;
    let host = bridged(&server, "").await;
    let said = host.host.call("mcp__s__echo", json!({})).await;
    assert_eq!(fault(&said).kind, FaultKind::BadOutput);
    assert!(fault(&said).message.contains("interrupted 8 times"), "{said:?}");
    let server = LoopbackServer::new(modern(|_, _| response(200, EVENTS, "data: {}\n\n"))).await;
    let host = bridged(&server, "").await;
    assert!(fault(&host.host.call("mcp__s__echo", json!({})).await).message.contains("without a response"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_events_without_end_are_cut() {
    let big = |kind: &str, start: &str| {
        let head = format!("HTTP/1.1 200 X\r\n{kind}\r\n{start}").into_bytes();
        LoopbackReply::Endless(head, vec![b'x'; 1 << 20], Duration::ZERO)
    };
    for (kind, start, part) in
        [(JSON, "{\"a\":\"", "more than 24MiB"), (EVENTS, "data: ", "an event of more than 24MiB")]
    {
        let (kind, start) = (kind.to_owned(), start.to_owned());
        let server = LoopbackServer::new(legacy(move |_, _| big(&kind, &start))).await;
        let host = bridged(&server, "").await;
        let said = host.host.call("mcp__s__echo", json!({})).await;
        assert!(fault(&said).message.contains(part), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_responses_are_reported() {
    for (status, headers, text, expect, part) in [
        (200, JSON, "{}", "bad_output", "does not match the request"),
        (200, JSON, "junk", "bad_output", "does not match the request"),
        (200, "content-type: text/html\r\n", "<html>", "bad_output", "endpoint of an MCP server"),
        (202, "", "", "bad_output", "endpoint of an MCP server"),
        (500, "", "oops", "execution_failed", "status 500: oops"),
        (401, "", "", "execution_failed", "[mcp.s] bearer"),
        (
            400,
            JSON,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"bad args"}}"#,
            "input_invalid",
            "bad args",
        ),
    ] {
        let server = LoopbackServer::new(legacy(move |_, _| response(status, headers, text))).await;
        let host = bridged(&server, "").await;
        let said = host.host.call("mcp__s__echo", json!({})).await;
        assert_eq!(outcome(&said), expect, "{status} {text}: {said:?}");
        let words = format!("{}\n{}", said.result.as_ref().unwrap_err(), hints(&said));
        assert!(words.contains(part), "{status} {text}: {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_notification_does_not_end_the_handshake() {
    for (status, text) in [(400, "bad"), (404, ""), (405, ""), (500, "oops")] {
        let inner = legacy(|message, _| self::text(message, "fine"));
        let server = LoopbackServer::new(move |seen| match body(seen)["method"].as_str() {
            Some("notifications/initialized") => response(status, "", text),
            _ => inner(seen),
        })
        .await;
        let host = bridged(&server, "protocol = \"legacy\"").await;
        assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "fine", "{status}");
        assert_eq!(host.status().connects, 1, "{status}");
    }
}

/// Servers that give ids back in another form, put a byte order mark before JSON, or write no JSON.
#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_match_over_http_and_unreadable_responses_say_why() {
    fn number(id: &Value) -> u64 {
        id.as_u64().unwrap()
    }
    type Write = fn(&Value) -> Vec<u8>;
    fn whole(id: &str, value: &str) -> Vec<u8> {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{value}}}"#).into_bytes()
    }
    const TEXT: &str = r#"{"content":[{"type":"text","text":"fine"}]}"#;
    const NAN: &str = r#"{"content":[{"type":"text","text":"fine"}],"structuredContent":{"mean":NaN}}"#;
    const WORD: &str = r#"{"content":[],"structuredContent":{"mean":undefined}}"#;
    let cases: [(Write, Result<&str, &str>); 10] = [
        (|id| whole(&format!("\"{}\"", number(id)), TEXT), Ok("fine")),
        (|id| whole(&format!("{}.0", number(id)), TEXT), Ok("fine")),
        (|id| [&b"\xef\xbb\xbf"[..], &whole(&id.to_string(), TEXT)].concat(), Ok("fine")),
        (|_| whole("0", TEXT), Err("its id is 0, not")),
        (|_| whole("null", TEXT), Err("its id is null, not")),
        (|_| br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"odd"}}"#.to_vec(), Err("odd")),
        (|id| whole(&id.to_string(), NAN), Err("numbers such as NaN")),
        (|id| whole(&id.to_string(), WORD), Err("expected value at `undefined}}")),
        (|id| whole(&id.to_string(), "\"\\\t\""), Err("not JSON")),
        (|id| [&whole(&id.to_string(), TEXT)[..], &b"\xff"[..]].concat(), Err("not UTF-8")),
    ];
    for (write, expect) in cases {
        for as_event in [false, true] {
            let server = LoopbackServer::new(legacy(move |message, _| {
                let text = write(&message["id"]);
                match as_event {
                    true => response(200, EVENTS, [&b"data: "[..], &text, b"\n\n"].concat()),
                    false => response(200, JSON, text),
                }
            }))
            .await;
            let host = bridged(&server, "protocol = \"legacy\"").await;
            let said = host.host.call("mcp__s__echo", json!({})).await;
            match expect {
                Ok(text) => assert_eq!(words(&said), text, "{as_event}: {said:?}"),
                // An event with another id may belong to another request: the stream ends without a response.
                Err(part) if as_event && part.starts_with("its id") => {
                    assert!(fault(&said).message.contains("without a response"), "{said:?}");
                }
                Err(part) => {
                    let error = said.result.as_ref().unwrap_err().to_string();
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_lead_nowhere_but_home() {
    // A redirect within the origin that keeps the method, as for a trailing slash.
    let inner = legacy(|message, _| text(message, "home"));
    let server = LoopbackServer::new(move |seen| match seen.path() {
        "/mcp" => redirect(307, "/mcp/"),
        _ => inner(seen),
    })
    .await;
    let host = bridged(&server, "").await;
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "home");
    let other = LoopbackServer::new(|_| response(200, JSON, "{}")).await;
    for (status, to, part) in [
        (
            307,
            "http://169.254.169.254/latest/meta-data".to_owned(),
            "another origin, `http://169.254.169.254`",
        ),
        (302, other.url("/steal"), "another origin"),
        (308, "file:///etc/passwd".to_owned(), "a URL that is not followed"),
        (303, "/elsewhere".to_owned(), "status 303"),
        (307, "/mcp".to_owned(), "more than 3 redirects"),
    ] {
        let server = LoopbackServer::new(move |_| redirect(status, &to)).await;
        let host = bridged(&server, "").await;
        let reason = host.status().reason.unwrap();
        assert!(reason.contains(part), "{status}: {reason}");
    }
    assert!(other.seen().is_empty(), "nothing was sent there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_inside_is_refused() {
    for (url, part) in [
        ("http://169.254.169.254/mcp", "a cloud metadata service"),
        ("http://metadata.google.internal/mcp", ""),
        ("http://127.0.0.1:1/mcp", "no connection"),
    ] {
        let host = BridgeFixture::new(&format!("[mcp.s]\nurl = \"{url}\"")).await;
        let status = host.status();
        assert_eq!(status.state, ServerState::Failed);
        assert!(status.reason.as_ref().unwrap().contains(part), "{url}: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_sent_to_their_origin_and_redacted() {
    let name = "mcp::bridge_http::tokens_are_sent_to_their_origin_and_redacted";
    if integration_tests::in_a_process(name, "export WEB_TOKEN=web-5c1f-canary-88bb") {
        return;
    }
    let server = LoopbackServer::new(legacy(|message, seen| {
        let token = seen.header("authorization").unwrap_or("none").to_owned();
        text(message, &format!("you said {token}"))
    }))
    .await;
    let more = format!(
        "bearer = \"T\"\n[secrets.T]\nfrom = \"env:WEB_TOKEN\"\norigins = [\"http://127.0.0.1:{}\"]",
        server.port()
    );
    let host = bridged(&server, &more).await;
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "you said Bearer [secret T]");
    assert!(
        server.seen().iter().all(|seen| seen.header("authorization") == Some("Bearer web-5c1f-canary-88bb"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_requested_a_bounded_number_of_times() {
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rounds);
    let server = LoopbackServer::new(modern(move |message, _| {
        let params = &message["params"];
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => answer(
                &message["id"],
                json!({"resultType": "input_required", "requestState": "st\"ate",
                "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": "m"}}}}),
            ),
            1 => text(message, &format!("{} {}", params["inputResponses"], params["requestState"])),
            _ => answer(&message["id"], json!({"resultType": "input_required", "inputRequests": {}})),
        }
    }))
    .await;
    let host = bridged(&server, "").await;
    let said = host.host.call("mcp__s__echo", json!({})).await;
    assert_eq!(words(&said), r#"{"q":{"action":"decline"}} "st\"ate""#);
    let said = host.host.call("mcp__s__echo", json!({})).await;
    assert!(fault(&said).message.contains("requested more input 8 times"), "{said:?}");
    let server = LoopbackServer::new(modern(|message, _| {
        answer(
            &message["id"],
            json!({"resultType": "input_required",
            "inputRequests": {"q": {"method": "sampling/createMessage", "params": {}}}}),
        )
    }))
    .await;
    let host = bridged(&server, "").await;
    let said = host.host.call("mcp__s__echo", json!({})).await;
    assert!(fault(&said).message.contains("`sampling/createMessage`"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_does_not_hold_a_call() {
    let server = LoopbackServer::new(legacy(|_, _| LoopbackReply::Silence)).await;
    let host = bridged(&server, "timeout = \"300ms\"").await;
    let said = host.host.call("mcp__s__echo", json!({})).await;
    assert_eq!(fault(&said).kind, FaultKind::Deadline);
    host.until("the event arrives", |_| {
        server.seen().iter().any(|seen| body(seen)["method"] == "notifications/cancelled")
    })
    .await;
    let silent = LoopbackServer::new(|_| LoopbackReply::Silence).await;
    let host = bridged(&silent, "start_timeout = \"500ms\"").await;
    assert!(host.status().reason.unwrap().contains("did not start within 500ms"));
    let absent = host.host.call("mcp__s__echo", json!({})).await;
    assert!(refusal(&absent).message.contains("Unknown tool"), "{SOON:?}");
}

/// A server that sends messages on its own, on a stream that `ear` serves.
fn talking(
    ear: impl Fn() -> LoopbackReply + Send + Sync + 'static,
) -> impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync {
    let inner = legacy(|message, _| text(message, "fine"));
    move |seen| {
        let message = body(seen);
        if seen.line().starts_with("GET") {
            return ear();
        }
        if message["method"] == "initialize" {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "web", "version": "3"}});
            return answer(&message["id"], result);
        }
        inner(seen)
    }
}

fn stream(of: String) -> LoopbackReply {
    LoopbackReply::Endless(
        format!("HTTP/1.1 200 X\r\n{EVENTS}\r\n").into_bytes(),
        of.into_bytes(),
        Duration::ZERO,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn unsolicited_messages_are_counted() {
    let stray = json!({"jsonrpc": "2.0", "id": 4_000_000, "result": {}}).to_string();
    let told =
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}).to_string();
    for (one, part) in [
        (format!("data: {stray}\n\n"), "more than 10000 responses that match no request"),
        ("data: la la la\n\n".to_owned(), "more than 1000 invalid messages in a stream"),
        (format!("data: {told}\n\n"), "more than 20000 unsolicited messages"),
        (format!(": {}\n", "x".repeat(1_000)), "of unsolicited messages"),
        ("\n".to_owned(), "of unsolicited messages"),
    ] {
        let all = one.repeat((256 << 10) / one.len());
        let server = LoopbackServer::new(talking(move || stream(all.clone()))).await;
        let host = bridged(&server, "protocol = \"legacy\"").await;
        host.until(part, |host| host.status().reason.is_some_and(|why| why.contains(part))).await;
    }
}

/// Changes that happened while a stream was closed are found when it is open again.
#[tokio::test(flavor = "multi_thread")]
async fn changes_during_a_broken_stream_are_found() {
    let (gets, lists) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (asked, listed) = (Arc::clone(&gets), Arc::clone(&lists));
    let inner = talking(move || match asked.fetch_add(1, Ordering::SeqCst) {
        // The first stream ends at once. The second is refused, because the server allows one stream.
        0 => response(200, EVENTS, ""),
        1 => response(409, "", "another stream is open"),
        _ => LoopbackReply::Endless(
            format!("HTTP/1.1 200 X\r\n{EVENTS}\r\n").into_bytes(),
            b": here\n".to_vec(),
            Duration::from_millis(200),
        ),
    });
    let server = LoopbackServer::new(move |seen| {
        let message = body(seen);
        if message["method"] == "tools/list" {
            listed.fetch_add(1, Ordering::SeqCst);
            // The change arrives once the stream is open for the third time.
            let name = if gets.load(Ordering::SeqCst) >= 3 { "late" } else { "early" };
            return answer(
                &message["id"],
                json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]}),
            );
        }
        inner(seen)
    })
    .await;
    let host = bridged(&server, "protocol = \"legacy\"").await;
    assert_eq!(host.tools(), ["mcp__s__early"]);
    host.until("it is read again", |host| host.tools() == ["mcp__s__late"]).await;
    assert_eq!(host.status().connects, 1, "{:?}", host.status());
    assert!(lists.load(Ordering::SeqCst) < 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_breaks_off_lies_or_lists_too_much_costs_its_call() {
    for (reply, expect, part) in [
        (
            // Half of its messages will arrive.
            "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"jsonrpc\"",
            FaultKind::BadOutput,
            "response was interrupted",
        ),
        (
            "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"json",
            FaultKind::BadOutput,
            "without a response",
        ),
        ("", FaultKind::Trap, "gave no response"),
    ] {
        let server =
            LoopbackServer::new(legacy(move |_, _| LoopbackReply::Last(reply.as_bytes().to_vec()))).await;
        let host = bridged(&server, "").await;
        let said = host.host.call("mcp__s__echo", json!({})).await;
        assert_eq!(fault(&said).kind, expect, "{reply}: {said:?}");
        assert!(fault(&said).message.contains(part), "{reply}: {said:?}");
    }
    let server = LoopbackServer::new(|seen| {
        let message = body(seen);
        let tool = |n: usize| {
            json!({"name": format!("t{n}"), "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}})
        };
        match message["method"].as_str() {
            Some("tools/list") => answer(
                &message["id"],
                json!({"tools": (0..6_000).map(tool).collect::<Vec<_>>(), "resultType": "complete"}),
            ),
            Some("tools/call") => {
                answer(&message["id"], json!({"content": [], "structuredContent": {"n": "seven"}}))
            }
            _ => modern(|message, _| text(message, ""))(seen),
        }
    })
    .await;
    let host = bridged(&server, "").await;
    assert_eq!(host.tools().len(), 5_000);
    assert!(host.status().problems[0].contains("more than 5000 tools"), "{:?}", host.status().problems);
    let said = host.host.call("mcp__s__t7", json!({})).await;
    assert_eq!(outcome(&said), "ok", "{said:?}");
}

/// A list within its byte limit whose schemas are small. Their total size in memory is bounded, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_small_values_is_cut() {
    let values = vec![0; 15_000];
    let tools: Vec<Value> = (0..200)
        .map(|n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object", "properties": {"a": {"enum": values}}}}))
        .collect();
    let server = LoopbackServer::new(move |seen| {
        let message = body(seen);
        match message["method"].as_str() {
            Some("tools/list") => answer(&message["id"], json!({"tools": tools, "resultType": "complete"})),
            _ => modern(|message, _| text(message, ""))(seen),
        }
    })
    .await;
    let host = bridged(&server, "").await;
    assert!((100..200).contains(&host.tools().len()), "{}", host.tools().len());
    assert!(
        host.status().problems[0].contains("more than 2000000 JSON values"),
        "{:?}",
        host.status().problems
    );
}

/// Never answers.
#[derive(Debug, Default)]
struct NeverAnswers(AtomicUsize);

impl ElicitationHandler for NeverAnswers {
    fn elicit<'a>(&'a self, _: &'a Elicitation) -> BoxFuture<'a, ElicitationOutcome> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_to_a_person_holds_nothing_up_that_comes_after_it() {
    let question = json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {
        "message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}});
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    // Six questions, although only four may be open, and a change after them.
    let said = format!("{}data: {changed}\n\n", format!("data: {question}\n\n").repeat(6));
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let inner = talking(move || {
        let head = format!("HTTP/1.1 200 X\r\n{EVENTS}\r\n{said}");
        LoopbackReply::Endless(head.into_bytes(), b": here\n".to_vec(), Duration::from_millis(200))
    });
    let server = LoopbackServer::new(move |seen| {
        if body(seen)["method"] == "tools/list" {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        inner(seen)
    })
    .await;
    let person = Arc::new(NeverAnswers::default());
    let asked = Arc::clone(&person);
    let text = format!("[mcp.s]\nurl = \"{}\"\nprotocol = \"legacy\"", server.url("/mcp"));
    let host = BridgeFixture::with(&text, |bridge| bridge.with_elicitation_handler(asked)).await;
    host.until("the change is heard", |_| lists.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(person.0.load(Ordering::SeqCst), 4, "no more are asked at once");
    let refused = || server.seen().iter().filter(|seen| body(seen)["result"]["action"] == "cancel").count();
    host.until("the others are answered", |_| refused() == 2).await;
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "fine");
    assert_eq!(host.status().connects, 1, "{:?}", host.status());
}
