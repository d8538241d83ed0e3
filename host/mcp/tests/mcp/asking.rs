//! Approvals and input requests of native tools, sent to the client.

use serde_json::{Value, json};
use toolbay_core::pipeline::CallPolicy;
use toolbay_mcp::Options;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};

/// A policy that asks for approval of every call, and allows each call twice.
fn ask_for_every_call() -> CallPolicy {
    let session = SessionLimits { max_identical_calls: Some(2), ..SessionLimits::default() };
    CallPolicy { permissions: Permissions::new(vec![], Action::Ask), session, ..CallPolicy::default() }
}

async fn client_with_approvals(era: ClientEra) -> PipeClient {
    PipeClient::with_policy(era, json!({"elicitation": {}}), ask_for_every_call(), Options::default()).await
}

fn call_params(arguments: &Value) -> Value {
    json!({"name": "p__t", "arguments": arguments})
}

/// The parameters that retry a call, with an answer and the request state.
fn retry_with(arguments: &Value, required: &Value, answer: &Value) -> Value {
    let key = required["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let mut params = call_params(arguments);
    params["inputResponses"] = json!({ key: answer });
    params["requestState"] = required["requestState"].clone();
    params
}

#[tokio::test]
async fn a_client_without_elicitation_is_refused_without_policy_lines() {
    for (era, capabilities) in
        BOTH_ERAS.into_iter().flat_map(|era| [(era, json!({})), (era, json!({"elicitation": {"url": {}}}))])
    {
        let mut client =
            PipeClient::with_policy(era, capabilities, ask_for_every_call(), Options::default()).await;
        let result = client.call("p__t", json!({})).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(result["isError"], true);
        assert!(
            text.contains("no approver is available") && text.contains("where a person can be asked"),
            "{text}"
        );
        assert!(!text.contains("[[rule]]"), "the model must not see policy lines: {text}");
    }
    let options = Options { ask: false, ..Options::default() };
    let mut client =
        PipeClient::with_policy(ClientEra::Modern, json!({"elicitation": {}}), ask_for_every_call(), options)
            .await;
    assert!(client.call("p__t", json!({})).await["content"].to_string().contains("no approver is available"));
}

#[tokio::test]
async fn a_legacy_client_is_asked_while_the_call_waits() {
    let mut client = client_with_approvals(ClientEra::Legacy).await;
    for (answer, runs, part) in [
        (json!({"action": "accept", "content": {}}), true, "\"n\":1"),
        (json!({"action": "decline"}), false, "the answer was no"),
        (json!({"action": "cancel"}), false, "dismissed"),
        (json!({"action": "accept", "content": {"remember": true}}), true, "\"n\":4"),
    ] {
        let number =
            client.other_messages.len() + usize::from(part == "\"n\":4") * 4 + usize::from(part == "\"n\":1");
        let id = client.request("tools/call", call_params(&json!({"n": number, "text": "a\u{202e}b"}))).await;
        let question = client.notification("elicitation/create").await;
        let text = question["params"]["message"].as_str().unwrap();
        assert!(text.contains("p__t") && text.contains("Arguments:") && !text.contains('\u{202e}'), "{text}");
        assert_eq!(question["params"]["requestedSchema"]["properties"]["remember"]["type"], "boolean");
        client.respond(&question["id"], &answer).await;
        let result = client.response(id).await["result"].clone();
        assert_eq!(result["isError"], !runs, "{result}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(part), "{result}");
    }
    assert_eq!(client.call("p__t", json!({"n": 9})).await["isError"], false, "the approval was remembered");
}

#[tokio::test]
async fn a_cancelled_call_withdraws_its_elicitation() {
    let mut client = client_with_approvals(ClientEra::Legacy).await;
    let id = client.request("tools/call", call_params(&json!({}))).await;
    let question = client.notification("elicitation/create").await;
    client.cancel_request(id).await;
    let told = client.notification("notifications/cancelled").await;
    assert_eq!(told["params"]["requestId"], question["id"]);
    client.respond(&question["id"], &json!({"action": "accept", "content": {}})).await;
    client.send_and_wait("tools/list", json!({})).await;
    assert!(client.other_messages.iter().all(|m| m["id"] != id), "{:?}", client.other_messages);
}

#[tokio::test]
async fn a_modern_client_retries_with_the_answer() {
    let mut client = client_with_approvals(ClientEra::Modern).await;
    let arguments = json!({"n": 1});
    let required = client.send_and_wait("tools/call", call_params(&arguments)).await["result"].clone();
    assert_eq!(required["resultType"], "input_required", "{required}");
    assert!(required["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
    let request = required["inputRequests"].as_object().unwrap().values().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    let accept = json!({"action": "accept", "content": {}});
    let retry = retry_with(&arguments, &required, &accept);
    let result = client.send_and_wait("tools/call", retry.clone()).await["result"].clone();
    assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(false), &json!("{\"n\":1}")));
    let error = client.send_and_wait("tools/call", retry).await["error"].clone();
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("used before"), "{error}");

    let required = client.send_and_wait("tools/call", call_params(&arguments)).await["result"].clone();
    let retry = retry_with(&arguments, &required, &json!({"action": "decline"}));
    let result = client.send_and_wait("tools/call", retry).await["result"].clone();
    assert!(result["content"].to_string().contains("the answer was no"), "{result}");
    // The policy allows two identical calls. Rounds that ended with an input request did not count.
    let required = client.send_and_wait("tools/call", call_params(&arguments)).await["result"].clone();
    assert!(required["content"].to_string().contains("called 2 times"), "{required}");
}

#[tokio::test]
async fn a_request_state_is_valid_only_for_its_request() {
    let mut client = client_with_approvals(ClientEra::Modern).await;
    let accept = json!({"action": "accept", "content": {"remember": true}});
    let arguments = json!({"n": 1});
    let state = |required: &Value, change: fn(&mut Value)| {
        let mut retry = retry_with(&arguments, required, &accept);
        change(&mut retry);
        retry
    };
    for change in [
        |retry: &mut Value| retry["requestState"] = json!("forged"),
        |retry: &mut Value| {
            retry["requestState"] = json!(format!("{}x", retry["requestState"].as_str().unwrap()));
        },
        |retry: &mut Value| retry["arguments"]["n"] = json!(2),
        |retry: &mut Value| retry["name"] = json!("p__list"),
    ] {
        let required =
            client.send_and_wait("tools/call", call_params(&json!({"n": 1}))).await["result"].clone();
        let answer = client.send_and_wait("tools/call", state(&required, change)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("call again without it"), "{answer}");
    }
    // A state of another connection.
    let required = client.send_and_wait("tools/call", call_params(&json!({"n": 1}))).await["result"].clone();
    let mut other = client_with_approvals(ClientEra::Modern).await;
    let answer = other.send_and_wait("tools/call", state(&required, |_| {})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // Without the state, the answer is ignored and the server asks again.
    let answer = client
        .send_and_wait(
            "tools/call",
            state(&required, |retry| drop(retry.as_object_mut().unwrap().remove("requestState"))),
        )
        .await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    // An invalid answer is ignored, too.
    for nonsense in [json!(5), json!({"action": "perhaps"}), json!(null)] {
        let required =
            client.send_and_wait("tools/call", call_params(&json!({"n": 1}))).await["result"].clone();
        let answer =
            client.send_and_wait("tools/call", retry_with(&json!({"n": 1}), &required, &nonsense)).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    }
}

#[tokio::test]
async fn a_request_state_expires() {
    let options = Options { ask_timeout: std::time::Duration::from_millis(1), ..Options::default() };
    let mut client =
        PipeClient::with_policy(ClientEra::Modern, json!({"elicitation": {}}), ask_for_every_call(), options)
            .await;
    let required = client.send_and_wait("tools/call", call_params(&json!({}))).await["result"].clone();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let retry = retry_with(&json!({}), &required, &json!({"action": "accept", "content": {}}));
    let answer = client.send_and_wait("tools/call", retry).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("has expired"), "{answer}");
}

#[tokio::test]
async fn native_tools_can_request_input() {
    let name = json!({"action": "accept", "content": {"name": "a"}});
    let place = json!({"action": "decline"});
    let expect = json!([name, place]).to_string();
    let capabilities = json!({"elicitation": {"form": {}}});
    let arguments = json!({"do": "ask"});

    let mut client = PipeClient::with_policy(
        ClientEra::Legacy,
        capabilities.clone(),
        CallPolicy::default(),
        Options::default(),
    )
    .await;
    let id = client.request("tools/call", call_params(&arguments)).await;
    for (text, answer) in [("name", &name), ("place", &place)] {
        let question = client.notification("elicitation/create").await;
        assert!(question["params"]["message"].as_str().unwrap().contains(text), "{question}");
        client.respond(&question["id"], answer).await;
    }
    assert_eq!(client.response(id).await["result"]["content"][0]["text"], expect);

    let mut client =
        PipeClient::with_policy(ClientEra::Modern, capabilities, CallPolicy::default(), Options::default())
            .await;
    let mut required = client.send_and_wait("tools/call", call_params(&arguments)).await["result"].clone();
    for (key, answer) in [("name", &name), ("place", &place)] {
        assert!(required["inputRequests"][key].is_object(), "{required}");
        required =
            client.send_and_wait("tools/call", retry_with(&arguments, &required, answer)).await["result"]
                .clone();
    }
    assert_eq!(required["content"][0]["text"], expect, "the first answer is kept: {required}");
}

#[tokio::test]
async fn undeclared_capabilities_are_not_used() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let answer = client.send_and_wait("tools/call", call_params(&json!({"do": "sample"}))).await;
        match era {
            ClientEra::Legacy => assert!(
                answer["result"]["content"].to_string().contains("does not support `sampling`"),
                "{answer}"
            ),
            ClientEra::Modern => {
                assert_eq!(answer["error"]["code"], -32021, "{answer}");
                assert_eq!(answer["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
            }
        }
    }
}

#[tokio::test]
async fn log_messages_go_to_clients_that_set_a_level() {
    for era in BOTH_ERAS {
        let options = Options { logging: true, ..Options::default() };
        let mut client = PipeClient::with_policy(era, json!({}), CallPolicy::default(), options).await;
        client.call("p__t", json!({"do": "log"})).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "the client set no log level");
        let mut params = call_params(&json!({"do": "log"}));
        match era {
            ClientEra::Legacy => {
                drop(client.send_and_wait("logging/setLevel", json!({"level": "info"})).await);
            }
            ClientEra::Modern => params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info"),
        }
        let id = client.request("tools/call", params).await;
        let line = client.notification("notifications/message").await;
        assert_eq!(
            (&line["params"]["level"], &line["params"]["data"]),
            (&json!("warning"), &json!({"a": 1}))
        );
        client.response(id).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "less severe messages are not sent");
    }
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let answer = client.send_and_wait("logging/setLevel", json!({"level": "info"})).await;
    assert_eq!(answer["error"]["code"], -32601, "available only if `logging` is on: {answer}");
}
