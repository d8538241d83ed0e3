//! Whether a call may happen, and what native tools want to know: asked of the client.

use serde_json::{Value, json};
use toolbay_core::pipeline::CallPolicy;
use toolbay_mcp::Options;
use toolbay_policy::permission::{Action, Permissions};
use toolbay_policy::session::SessionLimits;

use crate::client::{BOTH_ERAS, PipeClient, ClientEra};

/// Every call is asked about, and each may be made twice.
fn ask_for_every_call() -> CallPolicy {
    let session = SessionLimits { max_identical_calls: Some(2), ..SessionLimits::default() };
    CallPolicy { permissions: Permissions::new(vec![], Action::Ask), session, ..CallPolicy::default() }
}

async fn asked(era: ClientEra) -> PipeClient {
    PipeClient::with_policy(era, json!({"elicitation": {}}), ask_for_every_call(), Options::default()).await
}

fn call(arguments: &Value) -> Value {
    json!({"name": "p__t", "arguments": arguments})
}

/// Repeats a call with an answer and what the server gave to bring back.
fn again(arguments: &Value, required: &Value, answer: &Value) -> Value {
    let key = required["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let mut params = call(arguments);
    params["inputResponses"] = json!({ key: answer });
    params["requestState"] = required["requestState"].clone();
    params
}

#[tokio::test]
async fn who_can_not_be_asked_is_refused_and_reads_no_line_of_the_policy() {
    for (era, capabilities) in
        BOTH_ERAS.into_iter().flat_map(|era| [(era, json!({})), (era, json!({"elicitation": {"url": {}}}))])
    {
        let mut client = PipeClient::with_policy(era, capabilities, ask_for_every_call(), Options::default()).await;
        let result = client.call("p__t", json!({})).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(result["isError"], true);
        assert!(
            text.contains("no approver is available") && text.contains("`toolbay explain p__t`"),
            "{text}"
        );
        assert!(!text.contains("[[rule]]"), "a model reads no line of the policy: {text}");
    }
    let options = Options { ask: false, ..Options::default() };
    let mut client = PipeClient::with_policy(ClientEra::Modern, json!({"elicitation": {}}), ask_for_every_call(), options).await;
    assert!(client.call("p__t", json!({})).await["content"].to_string().contains("no approver is available"));
}

#[tokio::test]
async fn an_older_client_is_asked_while_the_call_waits() {
    let mut client = asked(ClientEra::Legacy).await;
    for (answer, runs, part) in [
        (json!({"action": "accept", "content": {}}), true, "\"n\":1"),
        (json!({"action": "decline"}), false, "the answer was no"),
        (json!({"action": "cancel"}), false, "dismissed"),
        (json!({"action": "accept", "content": {"remember": true}}), true, "\"n\":4"),
    ] {
        let number =
            client.other_messages.len() + usize::from(part == "\"n\":4") * 4 + usize::from(part == "\"n\":1");
        let id = client.request("tools/call", call(&json!({"n": number, "text": "a\u{202e}b"}))).await;
        let question = client.notification("elicitation/create").await;
        let text = question["params"]["message"].as_str().unwrap();
        assert!(text.contains("p__t") && text.contains("Arguments:") && !text.contains('\u{202e}'), "{text}");
        assert_eq!(question["params"]["requestedSchema"]["properties"]["remember"]["type"], "boolean");
        client.respond(&question["id"], &answer).await;
        let result = client.response(id).await["result"].clone();
        assert_eq!(result["isError"], !runs, "{result}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(part), "{result}");
    }
    assert_eq!(client.call("p__t", json!({"n": 9})).await["isError"], false, "for good");
}

#[tokio::test]
async fn a_call_that_ends_takes_its_question_back() {
    let mut client = asked(ClientEra::Legacy).await;
    let id = client.request("tools/call", call(&json!({}))).await;
    let question = client.notification("elicitation/create").await;
    client.cancel_request(id).await;
    let told = client.notification("notifications/cancelled").await;
    assert_eq!(told["params"]["requestId"], question["id"]);
    client.respond(&question["id"], &json!({"action": "accept", "content": {}})).await;
    client.send_and_wait("tools/list", json!({})).await;
    assert!(client.other_messages.iter().all(|m| m["id"] != id), "{:?}", client.other_messages);
}

#[tokio::test]
async fn a_newer_client_calls_again_with_the_answer() {
    let mut client = asked(ClientEra::Modern).await;
    let arguments = json!({"n": 1});
    let required = client.send_and_wait("tools/call", call(&arguments)).await["result"].clone();
    assert_eq!(required["resultType"], "input_required", "{required}");
    assert!(required["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
    let request = required["inputRequests"].as_object().unwrap().values().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    let accept = json!({"action": "accept", "content": {}});
    let retry = again(&arguments, &required, &accept);
    let result = client.send_and_wait("tools/call", retry.clone()).await["result"].clone();
    assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(false), &json!("{\"n\":1}")));
    let error = client.send_and_wait("tools/call", retry).await["error"].clone();
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("used before"), "{error}");

    let required = client.send_and_wait("tools/call", call(&arguments)).await["result"].clone();
    let retry = again(&arguments, &required, &json!({"action": "decline"}));
    let result = client.send_and_wait("tools/call", retry).await["result"].clone();
    assert!(result["content"].to_string().contains("the answer was no"), "{result}");
    // Twice is what the policy allows: questions did not count.
    let required = client.send_and_wait("tools/call", call(&arguments)).await["result"].clone();
    assert!(required["content"].to_string().contains("called 2 times"), "{required}");
}

#[tokio::test]
async fn a_state_is_good_for_what_it_was_given_for() {
    let mut client = asked(ClientEra::Modern).await;
    let accept = json!({"action": "accept", "content": {"remember": true}});
    let arguments = json!({"n": 1});
    let state = |required: &Value, change: fn(&mut Value)| {
        let mut retry = again(&arguments, required, &accept);
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
        let required = client.send_and_wait("tools/call", call(&json!({"n": 1}))).await["result"].clone();
        let answer = client.send_and_wait("tools/call", state(&required, change)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("call again without it"), "{answer}");
    }
    // Of another connection.
    let required = client.send_and_wait("tools/call", call(&json!({"n": 1}))).await["result"].clone();
    let mut other = asked(ClientEra::Modern).await;
    let answer = other.send_and_wait("tools/call", state(&required, |_| {})).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // Without the state an answer is none: it asks again.
    let answer = client
        .send_and_wait(
            "tools/call",
            state(&required, |retry| drop(retry.as_object_mut().unwrap().remove("requestState"))),
        )
        .await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    // Nor is something else than an answer.
    for nonsense in [json!(5), json!({"action": "perhaps"}), json!(null)] {
        let required = client.send_and_wait("tools/call", call(&json!({"n": 1}))).await["result"].clone();
        let answer = client.send_and_wait("tools/call", again(&json!({"n": 1}), &required, &nonsense)).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    }
}

#[tokio::test]
async fn a_state_ends() {
    let options = Options { ask_timeout: std::time::Duration::from_millis(1), ..Options::default() };
    let mut client = PipeClient::with_policy(ClientEra::Modern, json!({"elicitation": {}}), ask_for_every_call(), options).await;
    let required = client.send_and_wait("tools/call", call(&json!({}))).await["result"].clone();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let retry = again(&json!({}), &required, &json!({"action": "accept", "content": {}}));
    let answer = client.send_and_wait("tools/call", retry).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("has expired"), "{answer}");
}

#[tokio::test]
async fn native_tools_ask_too() {
    let name = json!({"action": "accept", "content": {"name": "a"}});
    let place = json!({"action": "decline"});
    let expect = json!([name, place]).to_string();
    let capabilities = json!({"elicitation": {"form": {}}});
    let arguments = json!({"do": "ask"});

    let mut client =
        PipeClient::with_policy(ClientEra::Legacy, capabilities.clone(), CallPolicy::default(), Options::default()).await;
    let id = client.request("tools/call", call(&arguments)).await;
    for (text, answer) in [("name", &name), ("place", &place)] {
        let question = client.notification("elicitation/create").await;
        assert!(question["params"]["message"].as_str().unwrap().contains(text), "{question}");
        client.respond(&question["id"], answer).await;
    }
    assert_eq!(client.response(id).await["result"]["content"][0]["text"], expect);

    let mut client =
        PipeClient::with_policy(ClientEra::Modern, capabilities, CallPolicy::default(), Options::default()).await;
    let mut required = client.send_and_wait("tools/call", call(&arguments)).await["result"].clone();
    for (key, answer) in [("name", &name), ("place", &place)] {
        assert!(required["inputRequests"][key].is_object(), "{required}");
        required = client.send_and_wait("tools/call", again(&arguments, &required, answer)).await["result"].clone();
    }
    assert_eq!(required["content"][0]["text"], expect, "what was answered first is remembered: {required}");
}

#[tokio::test]
async fn what_a_client_does_not_offer_it_is_not_asked() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let answer = client.send_and_wait("tools/call", call(&json!({"do": "sample"}))).await;
        match era {
            ClientEra::Legacy => assert!(
                answer["result"]["content"].to_string().contains("does not offer `sampling`"),
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
async fn lines_of_the_log_go_to_who_wants_them() {
    for era in BOTH_ERAS {
        let options = Options { logging: true, ..Options::default() };
        let mut client = PipeClient::with_policy(era, json!({}), CallPolicy::default(), options).await;
        client.call("p__t", json!({"do": "log"})).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "nobody asked for them");
        let mut params = call(&json!({"do": "log"}));
        match era {
            ClientEra::Legacy => drop(client.send_and_wait("logging/setLevel", json!({"level": "info"})).await),
            ClientEra::Modern => params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info"),
        }
        let id = client.request("tools/call", params).await;
        let line = client.notification("notifications/message").await;
        assert_eq!(
            (&line["params"]["level"], &line["params"]["data"]),
            (&json!("warning"), &json!({"a": 1}))
        );
        client.response(id).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "less urgent ones do not");
    }
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let answer = client.send_and_wait("logging/setLevel", json!({"level": "info"})).await;
    assert_eq!(answer["error"]["code"], -32601, "only where it is switched on: {answer}");
}
