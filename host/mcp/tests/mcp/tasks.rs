//! Long calls as tasks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolbay_core::pipeline::CallPolicy;
use toolbay_core::registry::Bundle;
use toolbay_core::registry::view::ToolEntry;
use toolbay_core::tool::{ToolDef, ToolTraits};
use toolbay_mcp::Options;

use crate::client::{ClientEra, PipeClient};
use crate::puppet;

const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

async fn client(options: Options) -> PipeClient {
    let capabilities = json!({"extensions": {TASKS_EXTENSION: {}}, "elicitation": {}});
    PipeClient::with_policy(ClientEra::Modern, capabilities, CallPolicy::default(), options).await
}

fn early_tasks() -> Options {
    Options { task_after: Duration::from_millis(20), ..Options::default() }
}

pub(crate) async fn begin_task(client: &mut PipeClient, what: &str) -> Value {
    begin_task_of(client, "p__t", what).await
}

/// Registers a puppet with these tags.
pub(crate) fn register(client: &PipeClient, name: &str, tags: &[&str]) {
    let tool = puppet::tool(&client.puppet, name, None, ToolTraits::default());
    let mut def = ToolDef::clone(&tool.def);
    def.keywords.tags.extend(tags.iter().map(ToString::to_string));
    let tools = vec![ToolEntry::new(def, Arc::clone(&tool.invoker))];
    client.registry.register(Bundle { tools, reducers: vec![] }).unwrap();
}

async fn begin_task_of(client: &mut PipeClient, tool: &str, what: &str) -> Value {
    let answer = client.send_and_wait("tools/call", json!({"name": tool, "arguments": {"do": what}})).await;
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"].clone()
}

/// Polls the task until it has one of these statuses.
async fn wait_for_status(client: &mut PipeClient, task: &Value, states: &[&str]) -> Value {
    for _ in 0..2000 {
        let now =
            client.send_and_wait("tasks/get", json!({"taskId": task["taskId"]})).await["result"].clone();
        if states.contains(&now["status"].as_str().unwrap_or_default()) {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the task never reached one of {states:?}");
}

#[tokio::test]
async fn a_long_call_becomes_a_task_and_a_short_one_does_not() {
    let mut client = client(Options { task_after: Duration::from_millis(50), ..Options::default() }).await;
    let result = client.call("p__t", json!({})).await;
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(false)));
    let task = begin_task(&mut client, "nap").await;
    assert_eq!(task["status"], "working");
    assert!(
        task["ttlMs"].is_u64() && task["pollIntervalMs"].is_u64() && task["createdAt"].is_string(),
        "{task}"
    );
    let done = wait_for_status(&mut client, &task, &["completed"]).await;
    assert_eq!(done["result"]["content"][0]["text"], "rested");
    assert!(
        done["result"]["_meta"]["toolbay/usage"].is_object(),
        "the same result as without a task: {done}"
    );
}

#[tokio::test]
async fn a_client_without_tasks_waits() {
    let mut client =
        PipeClient::with_policy(ClientEra::Modern, json!({}), CallPolicy::default(), early_tasks()).await;
    assert_eq!(client.call("p__t", json!({"do": "nap"})).await["content"][0]["text"], "rested");
    let answer = client.send_and_wait("tasks/get", json!({"taskId": "x"})).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
}

#[tokio::test]
async fn a_task_can_be_cancelled() {
    let mut client = client(early_tasks()).await;
    for how in ["hang", "stubborn"] {
        let task = begin_task(&mut client, how).await;
        let before = client.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed);
        let ack = client.send_and_wait("tasks/cancel", json!({"taskId": task["taskId"]})).await;
        assert_eq!(ack["result"]["resultType"], "complete", "{ack}");
        wait_for_status(&mut client, &task, &["cancelled"]).await;
        for _ in 0..1000 {
            if client.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed) > before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(
            client.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed) > before,
            "the call was not cancelled"
        );
        let ack = client.send_and_wait("tasks/cancel", json!({"taskId": task["taskId"]})).await;
        assert!(ack.get("error").is_none(), "cancelling twice is not an error: {ack}");
    }
}

#[tokio::test]
async fn a_task_belongs_to_its_connection() {
    let mut mine = client(early_tasks()).await;
    let task = begin_task(&mut mine, "hang").await;
    let mut theirs = client(early_tasks()).await;
    for (method, more) in [
        ("tasks/get", json!({})),
        ("tasks/cancel", json!({})),
        ("tasks/update", json!({"inputResponses": {}})),
    ] {
        let mut params = more;
        params["taskId"] = task["taskId"].clone();
        let answer = theirs.send_and_wait(method, params).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    wait_for_status(&mut mine, &task, &["working"]).await;
    mine.close().await;
    mine.remaining_messages().await;
    assert_eq!(
        mine.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed),
        1,
        "a task ends with its client"
    );
}

#[tokio::test]
async fn a_task_requests_input_and_continues() {
    let mut client = client(Options::default()).await;
    register(&client, "slow", &["slow"]);
    let task = begin_task_of(&mut client, "p__slow", "ask").await;
    for name in ["name", "place"] {
        let asking = wait_for_status(&mut client, &task, &["input_required"]).await;
        let (key, request) = asking["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert!(request["params"]["message"].as_str().unwrap().contains(name), "{asking}");
        let nonsense =
            json!({"taskId": task["taskId"], "inputResponses": {key: 5, "other": {"action": "accept"}}});
        client.send_and_wait("tasks/update", nonsense).await;
        wait_for_status(&mut client, &task, &["input_required"]).await;
        let answer = json!({"action": "accept", "content": {"name": name}});
        let update = json!({"taskId": task["taskId"], "inputResponses": {key: answer}});
        let ack = client.send_and_wait("tasks/update", update).await;
        assert_eq!(ack["result"]["resultType"], "complete", "{ack}");
    }
    let done = wait_for_status(&mut client, &task, &["completed"]).await;
    assert!(done["result"]["content"].to_string().contains("place"), "{done}");
}

#[tokio::test]
async fn a_task_expires() {
    let mut client = client(Options { task_ttl: Duration::from_millis(300), ..early_tasks() }).await;
    let task = begin_task(&mut client, "hang").await;
    for _ in 0..2000 {
        let answer = client.send_and_wait("tasks/get", json!({"taskId": task["taskId"]})).await;
        if answer["error"]["code"] == -32602 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = client.send_and_wait("tasks/get", json!({"taskId": task["taskId"]})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    for _ in 0..1000 {
        if client.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed) == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.puppet.dropped.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn at_the_limit_a_call_stays_a_call() {
    let mut client = client(Options { task_after: Duration::ZERO, ..Options::default() }).await;
    for _ in 0..toolbay_mcp::MAX_TASKS {
        begin_task(&mut client, "hang").await;
    }
    let result = client.call("p__t", json!({"do": "nap"})).await;
    assert_eq!(
        (&result["resultType"], &result["content"][0]["text"]),
        (&json!("complete"), &json!("rested"))
    );
}

#[tokio::test]
async fn a_tool_that_requires_a_task_needs_a_client_with_tasks() {
    let call = json!({"name": "p__long", "arguments": {"do": "nap"}});
    let mut without =
        PipeClient::with_policy(ClientEra::Modern, json!({}), CallPolicy::default(), early_tasks()).await;
    register(&without, "long", &["task_required"]);
    let answer = without.send_and_wait("tools/call", call.clone()).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    let required = &answer["error"]["data"]["requiredCapabilities"]["extensions"];
    assert_eq!(*required, json!({TASKS_EXTENSION: {}}), "{answer}");
    let mut with = client(early_tasks()).await;
    register(&with, "long", &["task_required"]);
    let task = begin_task_of(&mut with, "p__long", "nap").await;
    let done = wait_for_status(&mut with, &task, &["completed"]).await;
    assert_eq!(done["result"]["content"][0]["text"], "rested");
}

#[tokio::test]
async fn a_call_can_ask_first_and_become_a_task_afterwards() {
    let mut client = client(early_tasks()).await;
    register(&client, "long", &["task_required"]);
    let mut call = json!({"name": "p__long", "arguments": {"do": "ask", "n": 300}});
    for name in ["name", "place"] {
        let required = client.send_and_wait("tools/call", call.clone()).await["result"].clone();
        assert_eq!((&required["resultType"], &required["taskId"]), (&json!("input_required"), &json!(null)));
        assert!(required["inputRequests"][name].is_object(), "{required}");
        call["inputResponses"] = json!({name: {"action": "accept", "content": {"name": name}}});
        call["requestState"] = required["requestState"].clone();
    }
    let task = client.send_and_wait("tools/call", call).await["result"].clone();
    assert_eq!(task["resultType"], "task", "{task}");
    let done = wait_for_status(&mut client, &task, &["completed"]).await;
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("place"), "{done}");
}

#[tokio::test]
async fn a_protocol_error_fails_the_task() {
    let mut client = client(Options::default()).await;
    register(&client, "slow", &["slow"]);
    // The client declared no sampling.
    let task = begin_task_of(&mut client, "p__slow", "sample").await;
    let failed = wait_for_status(&mut client, &task, &["failed"]).await;
    assert_eq!((&failed["error"]["code"], &failed["result"]), (&json!(-32021), &json!(null)), "{failed}");
    let task = begin_task_of(&mut client, "p__slow", "fail").await;
    let done = wait_for_status(&mut client, &task, &["completed"]).await;
    assert_eq!(done["result"]["isError"], true, "an error of the tool is a result: {done}");
}
