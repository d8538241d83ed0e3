//! MCP over HTTP as clients of both eras use it.

use std::time::Duration;

use integration_tests::TestHost;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolbay::core::call::dialog::{DialogRequest as Question, DialogRequestKind};
use toolbay::core::registry::native;
use toolbay::core::tool::content::ToolOutput;
use toolbay_mcp::{KeyFetcher, Options};

use super::fixture::{HANGS, HttpFixture, LEGACY, RequestBuilder, initialize, modern};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

fn names(result: &Value) -> Vec<&str> {
    result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_2026_client_needs_no_handshake() {
    let desk = HttpFixture::new("").await;
    let found = desk.modern("server/discover", json!({})).send().await;
    assert_eq!(
        (found.status, found.header("content-type")),
        (200, Some("application/json")),
        "{}",
        found.body
    );
    let found = found.json();
    assert!(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{found}");
    assert_eq!(found["result"]["resultType"], "complete");

    let list = desk.modern("tools/list", json!({})).send().await.json();
    assert!(names(&list["result"]).contains(&"e__echo"), "{list}");
    assert_eq!(list["result"]["cacheScope"], "private");

    let result = desk.call("e__structured", json!({"a": 1})).await;
    assert_eq!(result["structuredContent"], json!({"a": 1}));
    assert_eq!(result["resultType"], "complete");
}

#[tokio::test]
async fn clients_up_to_2025_use_a_session() {
    let desk = HttpFixture::new("").await;
    // The first call waits for the code of the plugin.
    desk.call("e__echo", json!({})).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let answer = desk.post(&initialize(version)).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["result"]["protocolVersion"], version);
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let version = if version == "2024-11-05" { "" } else { version };
        let ask = |body: Value| desk.post(&body).session(&id).header("mcp-protocol-version", version);
        let told = ask(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).send().await;
        assert_eq!((told.status, told.body.as_str()), (202, ""));
        let list = ask(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).send().await;
        assert!(names(&list.json()["result"]).contains(&"e__echo"));
        let call = |name: &str, args: Value| {
            let params = json!({"name": name, "arguments": args});
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})
        };
        // An immediate response needs no stream. On a loaded machine, not every call is immediate.
        let mut result = ask(call("e__echo", json!({"a": 1}))).send().await;
        for _ in 0..50 {
            if result.header("content-type") == Some("text/event-stream") {
                result = ask(call("e__echo", json!({"a": 1}))).send().await;
            }
        }
        assert_eq!(result.header("content-type"), Some("application/json"), "{result:?}");
        assert_eq!(result.json()["result"]["content"][0]["text"], r#"{"a":1}"#);
        let result = ask(call("s__sleep", json!({"ms": 20}))).send().await;
        assert_eq!(result.header("content-type"), Some("text/event-stream"), "{result:?}");
        // Only clients of this revision get an event without a message.
        let first =
            result.body.lines().find_map(|line| line.strip_prefix("data:")).unwrap().trim().is_empty();
        assert_eq!(first, version == LEGACY, "{version}: {}", result.body);
        assert_eq!(result.json()["result"]["content"][0]["text"], "slept");

        let end = RequestBuilder::new(desk.address, "DELETE", "/mcp")
            .session(&id)
            .header("mcp-protocol-version", version);
        assert_eq!(end.send().await.status, 204);
        let gone = ask(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})).send().await;
        assert_eq!(gone.status, 404, "{}", gone.body);
    }
    assert_eq!(desk.http.counts().sessions, 0);
}

#[tokio::test]
async fn progress_comes_before_the_result_in_both_eras() {
    let desk = HttpFixture::new("").await;
    let params = json!({"name": "e__progress", "arguments": {"n": 3}, "_meta": {"progressToken": "p"}});
    let told = desk.modern("tools/call", params.clone()).send().await;
    let id = desk.begin().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let told_in_session = desk.post(&call).session(&id).send().await;
    for answer in [told, told_in_session] {
        assert_eq!(answer.header("content-type"), Some("text/event-stream"), "{answer:?}");
        let events = answer.events();
        let (last, steps) = events.split_last().unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "3 events");
        assert!(
            !steps.is_empty() && steps.iter().all(|step| step["params"]["progressToken"] == "p"),
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn a_disconnect_cancels_without_a_session_and_a_notification_within_one() {
    let desk = HttpFixture::new("").await;
    let places = desk.host.host.available_call_permits();
    let params = json!({"name": "s__sleep", "arguments": {}});
    let waiting = desk.modern("tools/call", params.clone()).open().await;
    desk.until_running(1, places).await;
    drop(waiting);
    desk.until_running(0, places).await;

    // In 2025-11-25, a broken connection does not cancel the call.
    let id = desk.begin().await;
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params});
    let waiting = desk.post(&call).session(&id).open().await;
    desk.until_running(1, places).await;
    drop(waiting);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}});
    assert_eq!(desk.post(&cancel).session(&id).send().await.status, 202);
    desk.until_running(0, places).await;
    let outcomes: Vec<_> = desk.records(2).await.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, ["cancelled", "cancelled"]);
}

#[tokio::test]
async fn a_listening_client_gets_list_changed() {
    let desk = HttpFixture::new("").await;
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = desk.modern("subscriptions/listen", params).open().await;
    listening.until("notifications/subscriptions/acknowledged").await;

    let id = desk.begin().await;
    let stream = desk.get("/mcp").session(&id).header("accept", "text/event-stream");
    let mut in_session = stream.open().await;
    in_session.until("\r\n\r\n").await;
    // A client gets list_changed only for lists it has requested.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(desk.post(&list).session(&id).send().await.status, 200);

    desk.host.load("f", guest_artifacts::API_ECHO).await;
    desk.server.notify_changed();
    listening.until("notifications/tools/list_changed").await;
    in_session.until("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn each_profile_has_an_endpoint() {
    let desk = HttpFixture::new("[profile.few]\ntools = [\"e__echo\"]\n").await;
    let list = |path: &'static str| {
        let ask = desk.modern("tools/list", json!({})).path(path);
        async move { ask.send().await }
    };
    let few = list("/mcp/few").await.json();
    let few: Vec<_> = names(&few["result"]).into_iter().filter(|name| name.starts_with("e__")).collect();
    assert_eq!(few, ["e__echo"]);
    assert!(names(&list("/mcp").await.json()["result"]).contains(&"e__long"));
    for unknown in ["/mcp/unknown", "/mcp/few%2f..", "/mcp/%22x", "/mcp/", "/", "/mcp/few/more", "/MCP"] {
        assert_eq!(list(unknown).await.status, 404, "{unknown}");
    }
    let params = json!({"name": "e__long", "arguments": {}});
    let refused = desk.modern("tools/call", params).path("/mcp/few").send().await.json();
    assert_eq!(refused["error"]["message"], "Unknown tool: e__long", "{refused}");
    let records = desk.host.audit.take();
    assert_eq!(records[0].profile.as_deref(), Some("few"));

    // A session of one profile is not valid for another.
    let id = desk.begin_with(|ask| ask.path("/mcp/few")).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(desk.post(&list).session(&id).send().await.status, 404);
    assert_eq!(desk.post(&list).session(&id).path("/mcp/few").send().await.status, 200);
}

#[tokio::test]
async fn saved_output_is_readable_in_the_next_request() {
    let desk = HttpFixture::new("").await;
    let result = desk.call("e__long", json!({"n": 200_000})).await;
    let link = result["content"].as_array().unwrap().iter().find(|block| block["type"] == "resource_link");
    let uri = link.unwrap()["uri"].as_str().unwrap().to_owned();
    let read =
        |label: &str| desk.modern("resources/read", json!({"uri": uri})).header("toolbay-session", label);
    let whole = read("").send().await.json();
    assert_eq!(whole["result"]["contents"][0]["text"].as_str().map(str::len), Some(200_000), "{whole:.300}");
    // A request that names a session uses that session and no other.
    assert!(read("mine").send().await.json()["error"]["code"].is_i64());
    let bad = read(&"x".repeat(129)).send().await;
    assert_eq!((bad.status, bad.code()), (400, -32600));
}

#[tokio::test]
async fn the_trace_context_of_a_request_reaches_the_call() {
    let desk = HttpFixture::new("").await;
    let ask = |meta: Option<&str>, header: &str| {
        let mut params = json!({"name": "e__ctx", "arguments": {}});
        if let Some(meta) = meta {
            params["_meta"] = json!({"traceparent": meta});
        }
        let ask = desk.modern("tools/call", params).header("traceparent", header);
        async move { ask.send().await.json()["result"]["structuredContent"].clone() }
    };
    let other = TRACE.replace("0af7", "1af7");
    for (meta, header, expect) in [
        (None, TRACE, Some(TRACE)),
        (Some(TRACE), "", Some(TRACE)),
        (Some(TRACE), &other, Some(TRACE)),
        (None, "00-not-a-trace", None),
        (Some("00-not-a-trace"), TRACE, None),
    ] {
        let told = ask(meta, header).await;
        let quoted = expect.map(|trace| format!("{trace:?}"));
        assert_eq!(told["attribute"].as_str(), quoted.as_deref(), "{meta:?} {header}");
        let recorded = desk.host.audit.take().last().unwrap().traceparent.map(|parent| parent.to_string());
        assert_eq!(recorded.as_deref(), expect);
    }
}

#[tokio::test]
async fn it_is_ready_once_the_tools_are_there_and_greets_before() {
    let loaded = CancellationToken::new();
    let host = TestHost::empty("");
    let desk = HttpFixture::of(host, KeyFetcher::disabled(), Some(loaded.clone())).await;
    assert_eq!(desk.get("/healthz").header("host", "10.0.0.1").send().await.status, 200);
    assert_eq!(desk.get("/readyz").send().await.status, 503);
    assert_eq!(desk.modern("server/discover", json!({})).send().await.status, 200);
    let id = desk.begin().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let mut waiting = desk.post(&list).session(&id).open().await;
    let mut modern = desk.modern("tools/list", json!({})).open().await;
    desk.host.load("e", guest_artifacts::API_ECHO).await;
    loaded.cancel();
    assert!(names(&waiting.answer().await.json()["result"]).contains(&"e__echo"));
    assert!(names(&modern.answer().await.json()["result"]).contains(&"e__echo"));
    assert_eq!(desk.get("/readyz").send().await.status, 200);
}

#[tokio::test]
async fn a_list_has_the_ready_tools_and_list_changed_announces_the_rest() {
    let loaded = CancellationToken::new();
    let host = TestHost::empty("");
    host.load("e", guest_artifacts::API_ECHO).await;
    let options = Options { list_wait: Duration::from_millis(20), ..Options::default() };
    let desk = HttpFixture::with(host, KeyFetcher::disabled(), options, |server| {
        server.with_loaded_signal(loaded.clone())
    })
    .await;
    let id = desk.begin().await;
    let stream = desk.get("/mcp").session(&id).header("accept", "text/event-stream");
    let mut in_session = stream.open().await;
    in_session.until("\r\n\r\n").await;
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = desk.modern("subscriptions/listen", params).open().await;
    listening.until("notifications/subscriptions/acknowledged").await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let legacy = async || desk.post(&list).session(&id).send().await.json()["result"].clone();
    let modern = async || desk.modern("tools/list", json!({})).send().await.json()["result"].clone();
    let (first, alone) = (legacy().await, modern().await);
    for first in [&first, &alone] {
        assert!(names(first).contains(&"e__echo") && !names(first).contains(&"s__sleep"), "{first}");
    }
    assert_eq!(alone["ttlMs"], 0, "a client without notifications polls");
    desk.host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
    loaded.cancel();
    desk.server.notify_changed();
    listening.until("notifications/tools/list_changed").await;
    in_session.until("notifications/tools/list_changed").await;
    let (next, alone) = (legacy().await, modern().await);
    assert!(names(&next).contains(&"s__sleep") && names(&alone).contains(&"s__sleep"));
    assert_eq!(alone["ttlMs"], 60_000);
}

#[tokio::test]
async fn a_call_waits_only_for_its_plugin() {
    let loaded = CancellationToken::new();
    let host = TestHost::empty("[plugins.caller.grant]\ninvoke = [\"e__echo\"]");
    host.load("e", guest_artifacts::API_ECHO).await;
    let desk = HttpFixture::of(host, KeyFetcher::disabled(), Some(loaded.clone())).await;
    let ask = |method: &str, params: Value| {
        let ask = desk.modern(method, params);
        tokio::spawn(async move { ask.send().await })
    };
    // Ready tools answer calls while the list is incomplete.
    let list = ask("tools/list", json!({}));
    assert_eq!(desk.call("e__echo", json!({"text": "a"})).await["isError"], json!(false));
    // A call waits for a missing tool, for a tool that may call missing ones, and for a tool that needs all tools.
    let call = |tool: &str| ask("tools/call", json!({"name": tool, "arguments": {"ms": 1, "id": "none"}}));
    desk.host.load("caller", guest_artifacts::CAP_INVOKE).await;
    let (late, onward, all) = (call("s__sleep"), call("caller__list"), call("read_output"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!([&late, &onward, &all, &list].iter().all(|ask| !ask.is_finished()));
    desk.host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
    desk.server.notify_changed();
    assert_eq!(late.await.unwrap().json()["result"]["isError"], json!(false));
    assert!([&onward, &all, &list].iter().all(|ask| !ask.is_finished()));
    loaded.cancel();
    assert!(names(&list.await.unwrap().json()["result"]).contains(&"s__sleep"));
    assert_eq!((onward.await.unwrap().status, all.await.unwrap().status), (200, 200));
}

#[tokio::test]
async fn a_drain_answers_running_calls_and_starts_none() {
    let mut desk = HttpFixture::new("[serve.limits]\ndrain_grace = \"60s\"\n").await;
    let held = desk.held_tool();
    let params = json!({"name": "held", "arguments": {}});
    let mut running = desk.modern("tools/call", params.clone()).open().await;
    let id = desk.begin().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut in_session = desk.post(&call).session(&id).open().await;
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = desk.modern("subscriptions/listen", listen).open().await;
    listening.until("acknowledged").await;
    let mut idle = desk.get("/healthz").open().await;
    idle.answer().await;
    held.until_begun(&desk, 2).await;

    desk.ends.drain.cancel();
    assert!(listening.closed().await && idle.closed().await);
    held.end(2);
    assert_eq!(running.answer().await.json()["result"]["content"][0]["text"], "held");
    assert_eq!(in_session.answer().await.json()["result"]["content"][0]["text"], "held");
    tokio::time::timeout(HANGS, &mut desk.task).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(desk.address).await.is_err());
}

#[tokio::test]
async fn a_drain_answers_cancelled_calls_with_an_error() {
    let loaded = CancellationToken::new();
    let host = TestHost::empty("[serve.limits]\ndrain_grace = \"200ms\"\n");
    host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
    let mut desk = HttpFixture::of(host, KeyFetcher::disabled(), Some(loaded)).await;
    let places = desk.host.host.available_call_permits();
    let sleep = json!({"name": "s__sleep", "arguments": {}});
    let mut running = desk.modern("tools/call", sleep.clone()).open().await;
    let id = desk.begin().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sleep});
    let mut in_session = desk.post(&call).session(&id).open().await;
    // Plugins are still loading, and the tool may belong to one of them. The list waits for all.
    let mut early = desk.modern("tools/call", json!({"name": "p__later", "arguments": {}})).open().await;
    let mut list = desk.modern("tools/list", json!({})).open().await;
    desk.until_running(2, places).await;
    desk.until("all are being answered", |desk| desk.http.counts().connections >= 4).await;
    desk.ends.drain.cancel();
    for wire in [&mut running, &mut in_session, &mut early] {
        let answer = wire.answer().await.json();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(answer["result"]["isError"] == true && text.contains("shutting down"), "{answer}");
    }
    assert_eq!(list.answer().await.status, 503);
    tokio::time::timeout(HANGS, &mut desk.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_drain_reports_not_ready_and_a_second_signal_stops_at_once() {
    let mut desk = HttpFixture::new("[serve.limits]\ndrain_delay = \"60m\"\n").await;
    let places = desk.host.host.available_call_permits();
    let mut running = desk.modern("tools/call", json!({"name": "s__sleep", "arguments": {}})).open().await;
    desk.until_running(1, places).await;
    desk.ends.drain.cancel();
    let ready = desk.get("/readyz").send().await;
    assert_eq!((ready.status, ready.body.trim()), (503, "draining"));
    assert_eq!(desk.call("e__echo", json!({"a": 1})).await["content"][0]["text"], r#"{"a":1}"#);
    desk.ends.stop.cancel();
    tokio::time::timeout(HANGS, &mut desk.task).await.unwrap().unwrap();
    assert!(running.closed().await);
    desk.until_running(0, places).await;
}

#[tokio::test]
async fn a_drain_waits_for_and_records_disconnected_calls() {
    for (grace, ms, outcome) in [("60s", 500, "ok"), ("200ms", 3_600_000, "cancelled")] {
        let mut desk = HttpFixture::new(&format!("[serve.limits]\ndrain_grace = \"{grace}\"\n")).await;
        let (id, places) = (desk.begin().await, desk.host.host.available_call_permits());
        let params = json!({"name": "s__sleep", "arguments": {"ms": ms}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let wire = desk.post(&call).session(&id).open().await;
        desk.until_running(1, places).await;
        drop(wire);
        desk.until("the connection is gone", |desk| desk.http.counts().connections == 0).await;
        desk.ends.drain.cancel();
        tokio::time::timeout(HANGS, &mut desk.task).await.unwrap().unwrap();
        let outcomes: Vec<_> = desk.records(1).await.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [outcome], "{grace}");
        assert_eq!(desk.host.host.available_call_permits(), places);
    }
}

#[tokio::test]
async fn small_answers_do_not_wait() {
    let desk = HttpFixture::new("").await;
    let body = modern("tools/call", json!({"name": "e__echo", "arguments": {}}));
    let ask = desk.post(&body).modern_headers("tools/call", &json!({"name": "e__echo"}));
    let mut wire = ask.open().await;
    wire.answer().await;
    let begin = std::time::Instant::now();
    for _ in 0..50 {
        wire.write(&ask.wire()).await;
        wire.answer().await;
    }
    // At 40 ms each it would take two seconds, and more under load.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_can_ask_the_user_immediately() {
    let desk = HttpFixture::new("").await;
    let asks = native::tool("asks").description("Asks at once.").tag("slow").run(|_, ctx| async move {
        let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let params = json!({"message": "Who?", "requestedSchema": schema});
        let question = vec![Question::new("who", DialogRequestKind::Elicit, params)];
        let answers = ctx.turn.dialog.as_deref().unwrap().ask(question).await?;
        Ok(ToolOutput::text(answers[0]["content"]["name"].to_string()))
    });
    desk.host.host.registry().register(vec![asks.unwrap()]).unwrap();
    let capabilities = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let ask = async |method: &str, params: Value| {
        let mut body = modern(method, params.clone());
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        let named = params.get("taskId").map_or(params.clone(), |id| json!({"name": id}));
        let answer = desk.post(&body).modern_headers(method, &named).send().await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["result"].clone()
    };
    // The call starts on another thread than its request, and may ask before the request is answered with a task.
    for _ in 0..toolbay_mcp::MAX_TASKS {
        let task = ask("tools/call", json!({"name": "asks", "arguments": {}})).await;
        assert_eq!(task["resultType"], "task", "{task}");
        let of_task = json!({"taskId": task["taskId"]});
        let asked = loop {
            let now = ask("tasks/get", of_task.clone()).await;
            if now["status"] != "working" {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(asked["status"], "input_required", "{asked}");
    }
}
