//! Connections are shared: the open connections of one plugin leave room for others.

use std::time::{Duration, Instant};

use integration_tests::{TestHost, structured};
use serde_json::json;
use toolbay::ToolCall;

use super::net_fixture::{SOON, WaitingCalls, kind, lines, message};
use crate::loopback::{LoopbackReply, LoopbackServer, response};

async fn server() -> LoopbackServer {
    LoopbackServer::new(|seen| match seen.path() {
        "/wait" => LoopbackReply::Endless(Vec::new(), Vec::new(), Duration::from_secs(60)),
        _ => response(200, "", "good"),
    })
    .await
}

async fn two(server: &LoopbackServer, bounds: &str) -> TestHost {
    let grant = lines(&[server], &["127.0.0.1"]);
    let policy = format!("[host]\n{bounds}\n[plugins.net.grant]\n{grant}\n[plugins.two.grant]\n{grant}");
    TestHost::new(&[("net", guest_artifacts::CAP_NET), ("two", guest_artifacts::CAP_NET)], &policy).await
}

/// Calls of a plugin that wait for a response until they are cancelled.
fn slow(server: &LoopbackServer, plugin: &str, n: usize) -> Vec<ToolCall> {
    let args = json!({ "url": server.url("/wait") }).to_string();
    (0..n).map(|n| ToolCall::new(n.to_string(), format!("{plugin}__fetch"), &*args)).collect()
}

/// Waits until this number of requests has arrived.
async fn until_seen(server: &LoopbackServer, requests: usize) {
    let start = Instant::now();
    while server.seen().len() < requests {
        assert!(start.elapsed() < SOON, "{} of {requests} requests arrive", server.seen().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_of_one_plugin_do_not_starve_another() {
    let server = server().await;
    let host = two(&server, "http_connections = 8\nqueue_timeout = \"400ms\"").await;
    let held = WaitingCalls::start(&host.host, slow(&server, "net", 8));
    until_seen(&server, 2).await;
    for _ in 0..3 {
        let said = host.ask("two__fetch", json!({ "url": server.url("/") })).await;
        assert_eq!(said["body"], "good", "{said}");
    }
    held.until_ended(6).await;
    let (refused, cancelled) = held.cancel().await;
    assert_eq!((refused.len(), cancelled), (6, 2), "its share is held to the end: {refused:?}");
    for said in &refused {
        assert_eq!(kind(said), "transport", "{said}");
        let text = message(said);
        for part in
            ["busy: plugin `net` has 2 connections open", "its share of the host's 8", "`http_connections`"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
    assert_eq!(server.seen().iter().filter(|seen| seen.path() == "/wait").count(), 2);
    // The other plugin keeps its connection for its next request.
    server.all_closed_but(1, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_nobody_uses_is_closed_after_a_while() {
    let server = server().await;
    let host = two(&server, "").await;
    for tool in ["net__fetch", "two__fetch", "net__fetch"] {
        assert_eq!(host.ask(tool, json!({ "url": server.url("/") })).await["body"], "good");
    }
    assert_eq!(server.opened(), 2, "each plugin keeps its own");
    // The host's own time, which no policy sets, is fifteen seconds.
    server.all_closed(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_plugins_leave_a_connection_for_a_fifth() {
    let server = server().await;
    let grant = lines(&[&server], &["127.0.0.1"]);
    let names = ["a", "b", "c", "d", "fifth"];
    let plugins: String = names.iter().map(|name| format!("[plugins.{name}.grant]\n{grant}\n")).collect();
    let policy =
        format!("[host]\nparallel_calls = 64\nhttp_connections = 20\nqueue_timeout = \"400ms\"\n{plugins}");
    let host = TestHost::new(&names.map(|name| (name, guest_artifacts::CAP_NET)), &policy).await;
    let holds = names.iter().take(4).flat_map(|name| slow(&server, name, 5)).collect();
    let held = WaitingCalls::start(&host.host, holds);
    // The share of the four plugins: 5 connections each, except for one reserved connection.
    until_seen(&server, 19).await;
    for _ in 0..3 {
        let said = host.ask("fifth__fetch", json!({ "url": server.url("/") })).await;
        assert_eq!(said["body"], "good", "{said}");
    }
    held.until_ended(1).await;
    let (refused, cancelled) = held.cancel().await;
    assert_eq!((refused.len(), cancelled), (1, 19), "{refused:?}");
    assert_eq!(kind(&refused[0]), "transport", "{refused:?}");
    let text = message(&refused[0]);
    assert!(text.contains("all of the host's 20 connections are in use, except those reserved"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_of_a_plugin_make_room_for_its_requests() {
    let servers = [server().await, server().await, server().await];
    let all: Vec<&LoopbackServer> = servers.iter().collect();
    let grant = lines(&all, &["127.0.0.1"]);
    let policy = format!("[host]\nhttp_connections = 8\n[plugins.net.grant]\n{grant}");
    let host = TestHost::new(&[("net", guest_artifacts::CAP_NET)], &policy).await;
    let start = Instant::now();
    for _ in 0..2 {
        for server in &servers {
            let said = host.ask("net__fetch", json!({ "url": server.url("/") })).await;
            assert_eq!(said["status"], 200, "{said}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

/// A server that sends bytes without end instead of a response, as fast as it can.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_never_comes_to_its_response_costs_its_request_alone() {
    let flood = |head: &'static str, part: &'static str| {
        move |_: &crate::loopback::ReceivedRequest| {
            LoopbackReply::Endless(head.into(), part.repeat(400).into_bytes(), Duration::from_micros(1))
        }
    };
    let early = LoopbackServer::new(flood("", "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")).await;
    let going = LoopbackServer::new(flood("", "HTTP/1.1 100 Continue\r\n\r\n")).await;
    let trailers = LoopbackServer::new(flood(
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
        "x-a: bbbbbbbbbb\r\n",
    ))
    .await;
    let extension = LoopbackServer::new(flood(
        "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5;",
        "x=yyyyyyyyyyyyy;",
    ))
    .await;
    let blank = LoopbackServer::new(flood("", "\r\n\r\n\r\n")).await;
    let good = server().await;
    let all = [&early, &going, &trailers, &extension, &blank];
    let servers: Vec<&LoopbackServer> = all.iter().copied().chain([&good]).collect();
    let host = TestHost::new(
        &[("net", guest_artifacts::CAP_NET)],
        &format!("[plugins.net.grant]\n{}", lines(&servers, &["127.0.0.1"])),
    )
    .await;
    for (index, server) in all.iter().enumerate() {
        let start = Instant::now();
        let args = json!({ "url": server.url("/"), "timeout_ms": 400 });
        let said = structured(&host.provoke("net__fetch", args, Duration::from_secs(10)).await);
        assert!(matches!(kind(&said), "timeout" | "transport"), "{index}: {said}");
        assert!(start.elapsed() < Duration::from_secs(6), "{index}: {:?}", start.elapsed());
        server.all_closed(Duration::from_secs(5)).await;
    }
    // Interim responses end the request before its timeout.
    for server in [&early, &going] {
        let said = host.ask("net__fetch", json!({ "url": server.url("/"), "timeout_ms": 60_000 })).await;
        assert!(message(&said).contains("more than 1048576 bytes before the response"), "{said}");
    }
    assert_eq!(host.ask("net__fetch", json!({ "url": good.url("/") })).await["body"], "good");
}
