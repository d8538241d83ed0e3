//! Sessions with MCP servers over HTTP: lost ones are renewed, and their ids followed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use integration_tests::{outcome, words};
use serde_json::json;
use toolbay::{Filter, ToolCall, TurnContext};

use super::bridge_http::{JSON, body, bridged, legacy, list, text};
use crate::loopback::{LoopbackReply, LoopbackServer, ReceivedRequest, response};

/// A 2025-11-25 server that knows one session, whose id is the number of handshakes so far. It answers all others with
/// `status` and `text`.
fn restarting(
    sessions: &Arc<AtomicUsize>,
    status: u16,
    text: &'static str,
) -> impl Fn(&ReceivedRequest) -> LoopbackReply + Send + Sync + use<> {
    let sessions = Arc::clone(sessions);
    let inner = legacy(|message, _| super::bridge_http::text(message, "again"));
    move |seen| {
        let message = body(seen);
        if message["method"] == "initialize" {
            let id = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}});
            let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            return response(200, &format!("{JSON}mcp-session-id: s-{id}\r\n"), text);
        }
        let known = format!("s-{}", sessions.load(Ordering::SeqCst));
        match seen.header("mcp-session-id") {
            Some(id) if id != known => response(status, JSON, text),
            _ => inner(seen),
        }
    }
}

/// 404 by the specification, and what servers send besides.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_server_lost_is_renewed_whatever_the_status() {
    let refusal =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}"#;
    for (status, text) in [
        (404, ""),
        (404, refusal),
        (400, refusal),
        (400, "bad"),
        (401, ""),
        (403, ""),
        (410, ""),
        (422, refusal),
        (200, refusal),
    ] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let server = LoopbackServer::new(restarting(&sessions, status, text)).await;
        let host = bridged(&server, "").await;
        assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "again");
        // The server restarts, and knows no session any more.
        sessions.fetch_add(1, Ordering::SeqCst);
        let calls = (0..20).map(|n| ToolCall::new(n.to_string(), "mcp__s__echo", "{}")).collect();
        let view = host.host.host.view(Filter::default());
        for said in host.host.host.call_all(&view, calls, TurnContext::default()).await {
            assert_eq!(words(&said), "again", "{status}: the call is sent again, since it was refused");
        }
        assert_eq!(host.status().connects, 2, "{status}");
    }
    // The server may have begun this call, so only the next one gets the new session.
    let sessions = Arc::new(AtomicUsize::new(0));
    let server = LoopbackServer::new(restarting(&sessions, 500, "no session")).await;
    let host = bridged(&server, "").await;
    sessions.fetch_add(1, Ordering::SeqCst);
    assert_eq!(outcome(&host.host.call("mcp__s__echo", json!({})).await), "execution_failed");
    assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), "again");
    assert_eq!(host.status().connects, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_does_not_end_a_session_that_the_server_knows() {
    for status in [400, 403, 404, 422, 429, 500, 503] {
        let server = LoopbackServer::new(legacy(move |_, _| response(status, "", "not today"))).await;
        let host = bridged(&server, "").await;
        for _ in 0..3 {
            assert_eq!(outcome(&host.host.call("mcp__s__echo", json!({})).await), "execution_failed");
        }
        assert_eq!(host.status().connects, 1, "{status}: {:?}", host.status());
    }
}

/// A server that refuses every session costs each call one new session, and the backoff bounds the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_every_session_is_not_asked_for_ever() {
    let handshakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handshakes);
    let inner = legacy(|_, _| response(404, "", "unknown session"));
    let server = LoopbackServer::new(move |seen| match body(seen)["method"].as_str() {
        Some("initialize") => {
            counted.fetch_add(1, Ordering::SeqCst);
            inner(seen)
        }
        Some("ping") => response(404, "", "unknown session"),
        _ => inner(seen),
    })
    .await;
    let host = bridged(&server, "").await;
    assert_eq!(outcome(&host.host.call("mcp__s__echo", json!({})).await), "execution_failed");
    assert!(handshakes.load(Ordering::SeqCst) <= 3, "{handshakes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_id_that_changes_is_followed() {
    let count = Arc::new(AtomicUsize::new(1));
    let counted = Arc::clone(&count);
    let inner = legacy(|message, seen| text(message, seen.header("mcp-session-id").unwrap_or("none")));
    let server = LoopbackServer::new(move |seen| {
        let message = body(seen);
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
            Some("tools/list") => list(),
            Some("tools/call") => {
                json!({"content": [{"type": "text", "text": seen.header("mcp-session-id").unwrap_or("none")}]})
            }
            _ => return inner(seen),
        };
        let sent = format!("s-{}", counted.load(Ordering::SeqCst));
        if message["method"] != "initialize" && seen.header("mcp-session-id") != Some(&sent) {
            return response(404, "", "an old session");
        }
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let next = counted.fetch_add(1, Ordering::SeqCst) + 1;
        response(200, &format!("{JSON}mcp-session-id: s-{next}\r\n"), text)
    })
    .await;
    let host = bridged(&server, "protocol = \"legacy\"").await;
    for id in ["s-3", "s-4", "s-5"] {
        assert_eq!(words(&host.host.call("mcp__s__echo", json!({})).await), id);
    }
    assert_eq!(host.status().connects, 1, "{:?}", host.status());
}
