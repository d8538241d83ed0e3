//! Many clients, and some that take more than their share: the others still get their answers.

use std::time::Duration;

use integration_tests::in_a_process;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use toolbay::core::tool::content::ToolOutput;
use toolbay::native_tool;

use super::fixture::{HANGS, HttpFixture, RawConnection};

/// More than the buffers of a connection take: those of the kernel with [`HttpFixture::with_send_buffer`], and 64 KiB
/// of the server. A result may have 256 KiB.
const LONG: usize = 200 << 10;

fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Whether a new client gets an answer.
async fn is_answered(desk: &HttpFixture) -> bool {
    let ask = desk.modern("tools/call", json!({"name": "e__echo", "arguments": {"a": 1}}));
    let answer = tokio::time::timeout(HANGS, ask.send()).await.expect("nobody answers");
    answer.status == 200 && answer.json()["result"]["content"][0]["text"] == r#"{"a":1}"#
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_connections_lose_no_response() {
    // Connections of other tests must not count.
    if in_a_process("http::crowd::ten_thousand_connections_lose_no_response", "ulimit -n 20000") {
        return;
    }
    let desk = HttpFixture::new("[serve.limits]\nconnections = 3000\nconnections_per_peer = 1000\n").await;
    assert!(is_answered(&desk).await);
    // Twice as many connections as allowed. The oldest idle ones of the address are closed.
    let before = rss_bytes();
    let mut held = Vec::new();
    for n in 0..2000 {
        held.push(TcpStream::connect(desk.address).await.unwrap());
        assert!(n % 200 != 0 || is_answered(&desk).await, "after {n}");
    }
    desk.until("all are taken in", |desk| desk.http.counts().connections >= 990).await;
    assert!(desk.http.counts().connections <= 1000);
    // Both ends are in this process.
    let each = rss_bytes().saturating_sub(before) / 1000;
    assert!(each <= 64 << 10, "{each} bytes for an idle connection");
    for n in 0..8000 {
        drop(TcpStream::connect(desk.address).await.unwrap());
        assert!(n % 1000 != 0 || is_answered(&desk).await, "after {n}");
    }
    drop(held);
    assert!(is_answered(&desk).await);
    desk.until("they are gone", |desk| desk.http.counts().connections <= 1).await;
    let grown = rss_bytes().saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes stay");
}

#[tokio::test]
async fn busy_connections_are_not_closed_for_new_ones() {
    let limits = "[serve.limits]\nconnections_per_peer = 3\n";
    let desk = HttpFixture::new(limits).await;
    let held = desk.held_tool();
    let mut working = Vec::new();
    for n in 1..=3 {
        working.push(desk.modern("tools/call", json!({"name": "held"})).open().await);
        held.until_begun(&desk, n).await;
    }
    let refused = RawConnection::connect(desk.address).await.until("\r\n").await;
    assert!(refused.contains(" 503 "), "{refused}");
    held.end(3);
    for mut wire in working {
        assert_eq!(wire.answer().await.json()["result"]["content"][0]["text"], "held");
    }
    assert!(is_answered(&desk).await);
}

#[tokio::test]
async fn requests_at_once_and_a_second_are_bounded() {
    let limits = "[serve.limits]\nrequests_per_client = 2\nrequests_per_second = 20\n";
    let desk = HttpFixture::new(limits).await;
    let places = desk.host.host.available_call_permits();
    let sleep = json!({"name": "s__sleep", "arguments": {}});
    let mut running = Vec::new();
    for n in 1..=2 {
        running.push(desk.modern("tools/call", sleep.clone()).open().await);
        desk.until_running(n, places).await;
    }
    let refused = desk.modern("tools/list", json!({})).send().await;
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("requests_per_client") && refused.header("retry-after") == Some("1"));
    drop(running);
    desk.until_running(0, places).await;

    let mut statuses = Vec::new();
    for _ in 0..60 {
        let answer = desk.modern("tools/list", json!({})).send().await;
        if answer.status == 429 {
            assert!(answer.header("retry-after").is_some());
        }
        statuses.push(answer.status);
        if answer.status == 429 && answer.body.contains("requests_per_second") {
            return;
        }
    }
    // A slow machine may not reach more than twenty per second.
    assert!(statuses.iter().all(|status| *status == 200 || *status == 429));
}

#[tokio::test]
async fn sessions_are_bounded_and_the_oldest_idle_session_of_a_client_is_closed() {
    let desk = HttpFixture::new("[serve.limits]\nsessions_per_client = 2\n").await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(desk.begin().await);
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    // No session is idle for long yet.
    let begin = desk.post(&super::fixture::initialize("2025-11-25"));
    let full = begin.send().await;
    assert!(full.status == 429 && full.body.contains("sessions_per_client"), "{full:?}");
    // One session is used again and again; the other one is idle for long after five seconds.
    let (mut answer, mut tries) = (full, 0);
    while answer.status == 429 {
        tries += 1;
        assert!(tries < 600, "no session is ever idle for long");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(desk.post(&list).session(&ids[0]).send().await.status, 200);
        answer = begin.send().await;
    }
    ids.push(answer.header("mcp-session-id").unwrap().to_owned());
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(desk.post(&told).session(&ids[2]).send().await.status, 202);
    let mut statuses = Vec::new();
    for id in &ids {
        statuses.push(desk.post(&list).session(id).send().await.status);
    }
    assert_eq!(statuses, [200, 404, 200]);
    assert_eq!(desk.http.counts().sessions, 2);
}

#[tokio::test]
async fn a_waiting_session_does_not_count_as_a_running_request() {
    let desk = HttpFixture::new("[serve.limits]\nrequests_per_client = 8\n").await;
    for _ in 0..40 {
        desk.begin().await;
    }
    assert_eq!(desk.http.counts().sessions, 40);
}

#[tokio::test]
async fn unused_sessions_end() {
    let desk = HttpFixture::new("[serve.limits]\nsession_idle = \"300ms\"\n").await;
    for _ in 0..20 {
        desk.begin().await;
    }
    desk.until("sessions end", |desk| desk.http.counts().sessions == 0).await;
}

#[tokio::test]
async fn streams_are_bounded_and_end() {
    let desk = HttpFixture::new("[serve.limits]\nstreams_per_client = 2\nstream_age = \"1500ms\"\n").await;
    let listen = || desk.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut wire = listen().open().await;
        wire.until("acknowledged").await;
        open.push(wire);
    }
    let refused = listen().send().await;
    assert!(refused.status == 429 || refused.status == 200, "{refused:?}");
    for wire in &mut open {
        assert!(tokio::time::timeout(HANGS, wire.until("0\r\n\r\n")).await.is_ok(), "it ends in order");
    }
    let mut wire = listen().open().await;
    wire.until("acknowledged").await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_disconnected_and_blocks_no_other() {
    // The connections are not closed because they are idle: that takes an hour here.
    let limits = "[serve.limits]\nwrite_timeout = \"1s\"\nidle_timeout = \"60m\"\n";
    let desk = HttpFixture::with_send_buffer(limits, 4096).await;
    let id = desk.begin().await;
    let stream = desk.get("/mcp").session(&id).header("accept", "text/event-stream");
    let mut unread = stream.open().await;
    unread.until("\r\n\r\n").await;
    let late = native_tool("late").description("Takes its time, and answers at length.").run(|_, _| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let structured = to_raw_value(&json!({"text": "x".repeat(LONG)})).ok();
        Ok(ToolOutput { structured, ..ToolOutput::text("long") })
    });
    desk.host.host.register(vec![late.unwrap()]).unwrap();
    // Unread responses that exceed the kernel's buffers: in both eras, as JSON in a session and as a stream.
    let long = json!({"name": "e__structured", "arguments": {"text": "x".repeat(LONG)}});
    let call = |id: u32, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let asks = [
        desk.modern("tools/call", long.clone()),
        desk.modern("tools/call", json!({"name": "late"})),
        desk.post(&call(2, long)).session(&id),
        desk.post(&call(3, json!({"name": "late"}))).session(&id),
    ];
    for ask in &asks {
        assert!(ask.send().await.body.len() > LONG, "it has to be long");
    }
    let mut silent = Vec::new();
    for ask in asks {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(desk.address).await.unwrap();
        stream.write_all(&ask.wire()).await.unwrap();
        silent.push(stream);
        assert!(is_answered(&desk).await);
    }
    desk.until("they are cut off", |desk| desk.http.counts().connections <= 1).await;
    assert!(is_answered(&desk).await);
    let list: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(desk.post(&list).session(&id).send().await.status, 200);
}

#[tokio::test]
async fn a_connection_that_reads_slowly_is_not_idle() {
    let limits = "[serve.limits]\nidle_timeout = \"500ms\"\nconnections_per_peer = 2\n";
    let desk = HttpFixture::with_send_buffer(limits, 4096).await;
    let long = json!({"name": "e__structured", "arguments": {"text": "x".repeat(LONG)}});
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(desk.address).await.unwrap();
    slow.write_all(&desk.modern("tools/call", long).wire()).await.unwrap();
    // Longer than the idle timeout, while other clients wait for a connection.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(is_answered(&desk).await);
    }
    let mut read = 0;
    let mut piece = vec![0; 64 << 10];
    while read < LONG {
        let length = tokio::time::timeout(HANGS, slow.read(&mut piece)).await.unwrap().unwrap();
        assert!(length > 0, "cut off after {read} bytes");
        read += length;
    }
}

#[tokio::test]
async fn sessions_of_a_client_are_counted_over_its_profiles_and_eras() {
    let desk = HttpFixture::new("[profile.few]\n[serve.limits]\nsessions_per_client = 2\n").await;
    desk.begin().await;
    desk.begin_with(|ask| ask.path("/mcp/few")).await;
    let full = desk.post(&super::fixture::initialize("2025-11-25")).send().await;
    assert!(full.status == 429 && full.body.contains("sessions_per_client"), "{full:?}");
    // There is no room for a stateless stream either.
    let full = desk.modern("tools/list", json!({})).send().await;
    assert!(full.status == 429 && full.body.contains("sessions_per_client"), "{full:?}");
    assert_eq!((desk.http.counts().sessions, desk.http.counts().stateless), (2, 0));
}

#[tokio::test]
async fn sessions_of_both_eras_share_one_limit_and_2026_sessions_are_dropped_first() {
    let desk = HttpFixture::new("[serve.limits]\nsessions = 3\n").await;
    let ask = |label: &str| desk.modern("tools/list", json!({})).header("toolbay-session", label);
    for n in 0..10 {
        assert_eq!(ask(&format!("{n}")).send().await.status, 200);
    }
    assert_eq!(desk.http.counts().stateless, 3);
    let ids = [desk.begin().await, desk.begin().await];
    assert_eq!((desk.http.counts().sessions, desk.http.counts().stateless), (2, 1));
    desk.begin().await;
    let full = ask("more").send().await;
    assert!(full.status == 503 && full.body.contains("`sessions`"), "{full:?}");
    let end = super::fixture::RequestBuilder::new(desk.address, "DELETE", "/mcp").session(&ids[0]);
    assert_eq!(end.send().await.status, 204);
    assert_eq!(ask("more").send().await.status, 200);
}
