//! Tasks of 2025-11-25: the client asks for them, and waits for the result with a request.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use toolbay_core::pipeline::CallPolicy;
use toolbay_mcp::Options;

use crate::client::{ClientEra, PipeClient};
use crate::tasks::register;

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

async fn client(options: Options) -> PipeClient {
    PipeClient::with_policy(ClientEra::Legacy, json!({"elicitation": {}}), CallPolicy::default(), options)
        .await
}

fn call(what: &str, task: &Value) -> Value {
    json!({"name": "p__t", "arguments": {"do": what}, "task": task})
}

/// Starts a task and returns its id.
async fn begin(client: &mut PipeClient, what: &str) -> String {
    let answer = client.send_and_wait("tools/call", call(what, &json!({}))).await;
    answer["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

async fn status(client: &mut PipeClient, id: &str) -> Value {
    client.send_and_wait("tasks/get", json!({"taskId": id})).await["result"]["status"].clone()
}

/// Waits until this many calls were cancelled.
async fn cancelled_calls(client: &PipeClient, count: usize) {
    for _ in 0..2000 {
        if client.puppet.dropped.load(Ordering::Relaxed) == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {count} cancelled calls");
}

#[tokio::test]
async fn the_server_declares_tasks_to_2025_11_25_only() {
    for (version, has_tasks) in [("2025-11-25", true), ("2025-06-18", false), ("2024-11-05", false)] {
        let mut client = PipeClient::connect(ClientEra::Legacy, Options::default());
        let params = json!({"protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"}});
        let answer = client.send_and_wait("initialize", params).await["result"].clone();
        assert!(answer["capabilities"].get("extensions").is_none(), "they belong to 2026-07-28: {answer}");
        let declared = &answer["capabilities"]["tasks"];
        assert_eq!(declared["requests"]["tools"]["call"].is_object(), has_tasks, "{version}: {answer}");
        register(&client, "long", &["task_required"]);
        let tools = client.send_and_wait("tools/list", json!({})).await["result"]["tools"].clone();
        let support = |name: &str| {
            let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
            tool["execution"]["taskSupport"].clone()
        };
        let expect =
            if has_tasks { [json!("required"), json!("optional")] } else { [json!(null), json!(null)] };
        assert_eq!([support("p__long"), support("p__t")], expect, "{version}");
        // Without tasks, the parameter is ignored.
        let answer =
            client.send_and_wait("tools/call", call("nap", &json!({"ttl": 60000}))).await["result"].clone();
        assert_eq!(answer["task"]["status"] == "working", has_tasks, "{version}: {answer}");
        let answer = client.send_and_wait("tasks/list", json!({})).await;
        assert_eq!(answer["error"]["code"] == -32601, !has_tasks, "{version}: {answer}");
    }
}

#[tokio::test]
async fn a_call_becomes_a_task_when_the_client_asks_for_it() {
    let mut client = client(Options::default()).await;
    assert_eq!(client.call("p__t", json!({"do": "nap"})).await["content"][0]["text"], "rested");
    let answer = client.send_and_wait("tools/call", call("nap", &json!({"ttl": 60000}))).await;
    let task = &answer["result"]["task"];
    assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(60000)), "{answer}");
    assert!(task["createdAt"].is_string() && task["lastUpdatedAt"].is_string(), "{answer}");
    assert!(task["pollInterval"].is_u64(), "{answer}");
    let of_task = json!({"taskId": task["taskId"]});
    let result = client.send_and_wait("tasks/result", of_task.clone()).await["result"].clone();
    assert_eq!((&result["content"][0]["text"], &result["isError"]), (&json!("rested"), &json!(false)));
    assert_eq!(result["_meta"][RELATED_TASK], of_task);
    assert_eq!(client.send_and_wait("tasks/get", of_task.clone()).await["result"]["status"], "completed");
    let listed = client.send_and_wait("tasks/list", json!({})).await["result"]["tasks"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["taskId"]), (1, &of_task["taskId"]));
    let answer = client.send_and_wait("tasks/list", json!({"cursor": "forged"})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    for nonsense in [json!(5), json!({"ttl": -1}), json!({"ttl": "long"})] {
        let answer = client.send_and_wait("tools/call", call("nap", &nonsense)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[tokio::test]
async fn a_tool_that_requires_a_task_is_called_as_a_task_only() {
    let mut client = client(Options::default()).await;
    register(&client, "long", &["task_required"]);
    let mut params = json!({"name": "p__long", "arguments": {"do": "nap"}});
    let answer = client.send_and_wait("tools/call", params.clone()).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("runs only as a task"), "{answer}");
    params["task"] = json!({});
    let answer = client.send_and_wait("tools/call", params).await;
    assert_eq!(answer["result"]["task"]["status"], "working", "{answer}");
}

#[tokio::test]
async fn a_cancelled_task_ends_its_call_and_has_no_result() {
    let mut client = client(Options::default()).await;
    for (count, what) in [(1, "hang"), (2, "stubborn")] {
        let id = begin(&mut client, what).await;
        let waiting = client.request("tasks/result", json!({"taskId": id})).await;
        let answer = client.send_and_wait("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(answer["result"]["status"], "cancelled", "{answer}");
        assert_eq!(client.response(waiting).await["error"]["code"], -32600);
        cancelled_calls(&client, count).await;
        assert_eq!(status(&mut client, &id).await, "cancelled");
        let answer = client.send_and_wait("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(answer["error"]["code"], -32602, "a task ends once: {answer}");
    }
}

#[tokio::test]
async fn a_cancelled_request_for_the_result_leaves_the_task() {
    let mut client = client(Options::default()).await;
    let id = begin(&mut client, "hang").await;
    let waiting = client.request("tasks/result", json!({"taskId": id})).await;
    client.cancel_request(waiting).await;
    assert_eq!(status(&mut client, &id).await, "working");
    assert!(client.other_messages.iter().all(|message| message["id"] != waiting));
    client.close().await;
    client.remaining_messages().await;
    assert_eq!(client.puppet.dropped.load(Ordering::Relaxed), 1, "a task ends with its client");
}

#[tokio::test]
async fn a_task_asks_while_its_client_waits_for_the_result() {
    let mut client = client(Options::default()).await;
    let id = begin(&mut client, "ask").await;
    for _ in 0..2000 {
        if status(&mut client, &id).await == "input_required" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.other_messages, Vec::<Value>::new(), "the request waits for `tasks/result`");
    let waiting = client.request("tasks/result", json!({"taskId": id})).await;
    for name in ["name", "place"] {
        let question = client.notification("elicitation/create").await;
        assert!(question["params"]["message"].as_str().unwrap().contains(name), "{question}");
        assert_eq!(question["params"]["_meta"][RELATED_TASK], json!({"taskId": id}));
        client.respond(&question["id"], &json!({"action": "accept", "content": {"name": name}})).await;
    }
    let result = client.response(waiting).await["result"].clone();
    assert!(result["content"][0]["text"].as_str().unwrap().contains("place"), "{result}");
}

#[tokio::test]
async fn an_invalid_response_fails_the_input_request() {
    let mut client = client(Options::default()).await;
    let id = begin(&mut client, "ask").await;
    let waiting = client.request("tasks/result", json!({"taskId": id})).await;
    let question = client.notification("elicitation/create").await;
    client.respond(&question["id"], &json!({"action": "perhaps"})).await;
    let result = client.response(waiting).await["result"].clone();
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"].to_string().contains("invalid response"), "{result}");
}

#[tokio::test]
async fn a_cancelled_task_withdraws_its_input_request() {
    let mut client = client(Options::default()).await;
    let id = begin(&mut client, "ask").await;
    let waiting = client.request("tasks/result", json!({"taskId": id})).await;
    let question = client.notification("elicitation/create").await;
    client.send_and_wait("tasks/cancel", json!({"taskId": id})).await;
    let withdrawn = client.notification("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(client.response(waiting).await["error"]["code"], -32600);
}

#[tokio::test]
async fn a_task_belongs_to_its_client_and_expires() {
    let mut mine = client(Options { task_ttl: Duration::from_millis(400), ..Options::default() }).await;
    let answer = mine.send_and_wait("tools/call", call("hang", &json!({"ttl": 3_600_000}))).await;
    assert_eq!(answer["result"]["task"]["ttl"], 400, "the server bounds the life: {answer}");
    let of_task = json!({"taskId": answer["result"]["task"]["taskId"]});
    let mut theirs = client(Options::default()).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let answer = theirs.send_and_wait(method, of_task.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    assert_eq!(theirs.send_and_wait("tasks/list", json!({})).await["result"]["tasks"], json!([]));
    let answer = mine.send_and_wait("tasks/result", of_task.clone()).await;
    assert!(answer["error"]["code"].is_i64(), "its call is cancelled at the end of its life: {answer}");
    cancelled_calls(&mine, 1).await;
    assert_eq!(mine.send_and_wait("tasks/get", of_task).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_requested_task_beyond_the_limit_is_refused() {
    let mut client = client(Options::default()).await;
    for _ in 0..toolbay_mcp::MAX_TASKS {
        begin(&mut client, "hang").await;
    }
    let answer = client.send_and_wait("tools/call", call("nap", &json!({}))).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("64 tasks"), "{answer}");
    assert_eq!(client.call("p__t", json!({"do": "nap"})).await["content"][0]["text"], "rested");
}
