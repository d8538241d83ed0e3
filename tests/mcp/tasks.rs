//! Tasks of real guests over HTTP.

use serde_json::{Value, json};
use toolbay_mcp::Options;

use crate::http::fixture::{HttpFixture, modern};
use integration_tests::TestHost;
use toolbay_mcp::KeyFetcher;

const POLICY: &str = "[limits]\nfuel = \"none\"\ntimeout = \"120s\"\n";
/// Each tool never returns.
const TOOLS: [&str; 2] = ["spin__spin", "s__sleep"];

async fn server() -> HttpFixture {
    let host = TestHost::empty(POLICY);
    host.load("spin", guest_artifacts::HOSTILE_SPIN).await;
    host.load("s", guest_artifacts::HOSTILE_SLEEP).await;
    let options = Options { task_after: std::time::Duration::ZERO, ..Options::default() };
    HttpFixture::with(host, KeyFetcher::disabled(), options, |server| server).await
}

/// Sends a request of a legacy session.
async fn in_session(desk: &HttpFixture, session: &str, id: u64, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let answer = desk.post(&body).session(session).send().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Sends a request of a client of 2026-07-28 with tasks.
async fn with_extension(desk: &HttpFixture, method: &str, params: Value) -> Value {
    let name = params.get("taskId").or(params.get("name")).cloned().unwrap_or_default();
    let mut body = modern(method, params);
    body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let answer = desk.post(&body).modern_headers(method, &json!({"name": name})).send().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_ends_its_guest() {
    let desk = server().await;
    let places = desk.host.host.available_call_permits();
    let session = desk.begin().await;
    for tool in TOOLS {
        let call = json!({"name": tool, "arguments": {}});
        let task = with_extension(&desk, "tools/call", call.clone()).await;
        assert_eq!(task["resultType"], "task", "{task}");
        desk.until_running(1, places).await;
        with_extension(&desk, "tasks/cancel", json!({"taskId": task["taskId"]})).await;
        desk.until_running(0, places).await;

        let mut legacy = call;
        legacy["task"] = json!({});
        let task = in_session(&desk, &session, 1, "tools/call", legacy).await["result"]["task"].clone();
        desk.until_running(1, places).await;
        let of_task = json!({"taskId": task["taskId"]});
        let answer = in_session(&desk, &session, 2, "tasks/cancel", of_task).await;
        assert_eq!(answer["result"]["status"], "cancelled", "{answer}");
        desk.until_running(0, places).await;
    }
    let outcomes: Vec<_> = desk.records(4).await.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, ["cancelled"; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_over_http_arrives_on_the_stream_of_its_request() {
    let desk = server().await;
    let session = desk.begin().await;
    let call = json!({"name": "s__sleep", "arguments": {"ms": 300}, "task": {}});
    let task = in_session(&desk, &session, 1, "tools/call", call).await["result"]["task"].clone();
    let answer = in_session(&desk, &session, 2, "tasks/result", json!({"taskId": task["taskId"]})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
}
