//! What a client may send and take: sessions, `Accept`, preflights, and the form of every refusal.

use serde_json::{Value, json};

use super::fixture::{HttpFixture, LEGACY, RawResponse, RequestBuilder, initialize, modern};

const OLD: &str = "7e3d9a4c-0000-4000-8000-000000000000";

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"})
}

fn call(tool: &str, args: &Value) -> Value {
    let params = json!({"name": tool, "arguments": args, "_meta": {"progressToken": "p"}});
    json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params})
}

/// After a restart of the server, a client begins again and still sends the id of its old session.
#[tokio::test]
async fn initialize_begins_a_session_whatever_session_it_names() {
    let desk = HttpFixture::new("").await;
    let (live, ended) = (desk.begin().await, desk.begin().await);
    let end = RequestBuilder::new(desk.address, "DELETE", "/mcp").session(&ended);
    assert_eq!(end.send().await.status, 204);
    for old in [OLD, "no-uuid", "../%00", &"x".repeat(4000), &ended, &live] {
        let answer = desk.post(&initialize(LEGACY)).header("mcp-session-id", old).send().await;
        assert_eq!(answer.status, 200, "{old:.50}: {answer:?}");
        let fresh = answer.header("mcp-session-id").unwrap();
        assert!(fresh != old && fresh.len() == 36, "{old:.50}: {fresh}");
        assert_eq!(desk.post(&list()).session(fresh).send().await.status, 200);
    }
    let twice = desk.post(&initialize(LEGACY)).header("mcp-session-id", OLD).another("mcp-session-id", OLD);
    assert!(twice.send().await.header("mcp-session-id").is_some());
    assert_eq!(desk.post(&list()).session(&live).send().await.status, 200, "it was not ended");
    // Every other message with an unknown session stays unknown.
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for message in [list(), told, json!({"jsonrpc": "2.0", "id": 1, "result": {}})] {
        let answer = desk.post(&message).session(OLD).send().await;
        assert_eq!((answer.status, answer.code()), (404, -32600), "{message}");
    }
    assert_eq!(desk.post(&list()).session(OLD).send().await.json()["id"], 7, "the id of the request");
}

#[tokio::test]
async fn ranges_in_accept_cover_their_types() {
    let desk = HttpFixture::new("").await;
    for accept in [
        "",
        "*/*",
        "text/html, */*;q=0.8",
        "application/*;q=0.9, text/*;q=0.5",
        "application/json",
        "*/*, text/event-stream;q=0",
    ] {
        let answer = desk.post(&initialize(LEGACY)).header("accept", accept).send().await;
        assert_eq!(answer.status, 200, "{accept}: {answer:?}");
        assert!(answer.header("mcp-session-id").is_some(), "{accept}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{accept}");
    }
    for accept in ["text/html", "application/json;q=0, text/*;q=0", "*/*;q=0.0", "image/*"] {
        let answer = desk.post(&initialize(LEGACY)).header("accept", accept).send().await;
        assert_eq!((answer.status, answer.code()), (406, -32600), "{accept}");
    }
    let id = desk.begin().await;
    for (accept, taken) in
        [("", true), ("*/*", true), ("text/*", true), ("application/json", false), ("*/*;q=0", false)]
    {
        let mut stream = desk.get("/mcp").session(&id).header("accept", accept).open().await;
        let head = stream.until("\r\n\r\n").await;
        assert_eq!(head.contains("text/event-stream"), taken, "{accept}: {head}");
        assert!(taken || head.contains(" 406 "), "{accept}: {head}");
    }
}

/// A client that takes JSON only gets one body, whatever else there is to send; one that takes events only gets events.
#[tokio::test]
async fn the_response_has_a_form_that_the_client_takes() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    let slow = call("s__sleep", &json!({"ms": 20}));
    for (message, text) in [(call("e__progress", &json!({"n": 40})), "40 events"), (slow, "slept")] {
        let params = &message["params"];
        let in_session = desk.post(&message).session(&id);
        let alone = desk.post(&modern("tools/call", params.clone())).modern_headers("tools/call", params);
        for ask in [in_session, alone] {
            let json = ask.clone().header("accept", "application/json").send().await;
            assert_eq!(
                (json.status, json.header("content-type")),
                (200, Some("application/json")),
                "{json:?}"
            );
            assert_eq!(json.json()["result"]["content"][0]["text"], text);
            let events = ask.header("accept", "text/event-stream").send().await;
            assert_eq!(events.header("content-type"), Some("text/event-stream"), "{events:?}");
            assert_eq!(events.json()["result"]["content"][0]["text"], text);
        }
    }
    let events = desk.post(&initialize(LEGACY)).header("accept", "text/event-stream").send().await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert_eq!(events.json()["result"]["protocolVersion"], LEGACY);
    assert!(events.header("mcp-session-id").is_some());
    let unknown = desk.modern("no/such", json!({})).header("accept", "text/event-stream").send().await;
    assert_eq!((unknown.status, unknown.code()), (404, -32601));
    // The only response that must be a stream.
    let listen = desk.modern("subscriptions/listen", json!({"notifications": {}}));
    let refused = listen.header("accept", "application/json").send().await;
    assert_eq!((refused.status, refused.code(), &refused.json()["id"]), (406, -32600, &json!(1)));
}

#[tokio::test]
async fn every_refusal_is_json() {
    let desk = HttpFixture::new("").await;
    let id = desk.begin().await;
    let plain = |method: &str, path: &str| RequestBuilder::new(desk.address, method, path);
    let is_rpc = |answer: &RawResponse| {
        answer.header("content-type") == Some("application/json") && answer.json()["error"]["code"].is_i64()
    };
    let is_problem = |answer: &RawResponse| {
        answer.header("content-type") == Some("application/problem+json")
            && answer.json()["status"] == answer.status
            && answer.json()["detail"].is_string()
    };
    for (what, ask, status) in [
        ("no session", desk.post(&list()), 400),
        ("unknown session", desk.post(&list()).session(OLD), 404),
        ("no type", desk.post(&list()).session(&id).header("content-type", ""), 415),
        ("no form", desk.post(&list()).session(&id).header("accept", "text/html"), 406),
        ("no stream", desk.get("/mcp").session(&id).header("accept", "application/json"), 406),
        ("a stream without a session", desk.get("/mcp"), 400),
        ("a modern stream", desk.get("/mcp").header("mcp-protocol-version", "2026-07-28"), 405),
        ("another method", plain("PUT", "/mcp"), 405),
        ("an end without a session", plain("DELETE", "/mcp"), 400),
        ("another host", desk.post(&list()).header("host", "evil.example"), 403),
        ("another origin", desk.post(&list()).header("origin", "https://evil.example"), 403),
        ("an unknown profile", desk.post(&list()).path("/mcp/none"), 404),
    ] {
        let answer = ask.send().await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(is_rpc(&answer), "{what}: {answer:?}");
    }
    for (ask, status) in [
        (plain("GET", "/nowhere"), 404),
        (plain("POST", "/healthz"), 405),
        (plain("GET", "/.well-known/oauth-protected-resource/mcp"), 404),
        (plain("GET", "/.well-known/oauth-protected-resource/mcp").header("host", "evil.example"), 403),
        (plain("DELETE", "/.well-known/oauth-protected-resource"), 405),
    ] {
        let answer = ask.send().await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(is_problem(&answer), "{answer:?}");
    }
}

#[tokio::test]
async fn a_preflight_allows_the_headers_that_clients_send() {
    let desk = HttpFixture::new("[serve]\norigins = [\"https://app.example\"]\n").await;
    let asked = "content-type, mcp-param-region, traceparent, tracestate, baggage, x-evil";
    let ask = |path: &str, origin: &str| {
        RequestBuilder::new(desk.address, "OPTIONS", path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", asked)
    };
    for path in ["/mcp", "/.well-known/oauth-protected-resource/mcp"] {
        let answer = ask(path, "https://app.example").send().await;
        assert_eq!(answer.status, 204, "{path}: {answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
        let allowed = answer.header("access-control-allow-headers").unwrap();
        for name in ["mcp-param-region", "mcp-protocol-version", "traceparent", "tracestate", "baggage"] {
            assert!(allowed.split(", ").any(|one| one == name), "{path} {name}: {allowed}");
        }
        assert!(!allowed.contains("evil"), "{allowed}");
        let stranger = ask(path, "https://evil.example").send().await;
        assert_eq!((stranger.status, stranger.header("access-control-allow-origin")), (403, None));
    }
}

/// Clients in PHP send `[]` for an object without members, and some clients have no version.
#[tokio::test]
async fn a_thin_handshake_is_answered_or_names_the_member() {
    let desk = HttpFixture::new("").await;
    let ask = async |params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        desk.post(&message).send().await
    };
    let client = json!({"name": "probe", "version": "1"});
    for (capabilities, client) in [
        (json!([]), client.clone()),
        (json!({"roots": []}), client.clone()),
        (json!({"elicitation": []}), client.clone()),
        (json!(null), client.clone()),
        (json!({}), json!({"name": "probe"})),
        (json!({}), json!([])),
    ] {
        let params = json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": client});
        let answer = ask(params).await;
        assert_eq!(answer.json()["result"]["protocolVersion"], LEGACY, "{capabilities}: {answer:?}");
        assert!(answer.header("mcp-session-id").is_some());
    }
    for (params, member) in [
        (json!({"capabilities": {}}), "protocolVersion"),
        (json!({"protocolVersion": LEGACY, "capabilities": 7}), "`capabilities`"),
        (
            json!({"protocolVersion": LEGACY, "capabilities": {"roots": {"listChanged": "yes"}}}),
            "`capabilities.roots.listChanged`",
        ),
        (json!([LEGACY]), "expected an object"),
    ] {
        let answer = ask(params).await;
        assert_eq!(answer.code(), -32602, "{answer:?}");
        assert!(answer.body.contains(member), "{member}: {}", answer.body);
        assert_eq!(answer.header("mcp-session-id"), None);
    }
}
