//! Lists that are asked for before all tools are there, and what clients hear of the rest.

use std::time::Duration;

use serde_json::{Value, json};
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolTraits;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, PipeClient, ClientEra};
use crate::puppet;

const CHANGED: &str = "notifications/tools/list_changed";

fn impatient() -> Options {
    Options { list_wait: Duration::from_millis(20), ..Options::default() }
}

fn add(client: &PipeClient, name: &str) {
    let tools = vec![puppet::tool(&client.puppet, name, None, ToolTraits::default())];
    client.registry.register(Bundle { tools, reducers: vec![] }).unwrap();
    client.server.notify_changed();
}

async fn listed(client: &mut PipeClient) -> (Vec<String>, Value) {
    let result = client.send_and_wait("tools/list", json!({})).await["result"].clone();
    let names =
        result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    (names.collect(), result["ttlMs"].clone())
}

async fn listen(client: &mut PipeClient) {
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    client.request("subscriptions/listen", json!({ "notifications": wanted })).await;
    client.notification("notifications/subscriptions/acknowledged").await;
}

#[tokio::test]
async fn a_list_has_the_ready_tools_and_list_changed_announces_the_rest() {
    for era in BOTH_ERAS {
        let (mut client, loaded) = PipeClient::while_loading(era, impatient()).await;
        if era == ClientEra::Modern {
            listen(&mut client).await;
        }
        let (names, life) = listed(&mut client).await;
        assert_eq!(names, ["p__list", "p__object", "p__t"]);
        assert_eq!(life, if era == ClientEra::Modern { json!(0) } else { Value::Null }, "not to be kept");
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let answer = client.send_and_wait(method, json!({})).await;
            assert!(answer["result"].is_object(), "{answer}");
        }
        add(&client, "late");
        loaded.cancel();
        client.notification(CHANGED).await;
        let (names, life) = listed(&mut client).await;
        assert_eq!(names, ["p__late", "p__list", "p__object", "p__t"]);
        assert_eq!(life, if era == ClientEra::Modern { json!(60_000) } else { Value::Null });
        assert_eq!(client.other_messages, Vec::<Value>::new(), "told once, and of nothing else");
    }
}

/// A client that cannot be told has the rest at its next list: it is not to keep the first one.
#[tokio::test]
async fn a_client_that_does_not_listen_has_the_rest_at_its_next_list() {
    let (mut client, loaded) = PipeClient::while_loading(ClientEra::Modern, impatient()).await;
    assert_eq!(listed(&mut client).await.1, 0);
    add(&client, "late");
    assert_eq!(listed(&mut client).await.0.len(), 4, "while the rest is still coming");
    add(&client, "later");
    loaded.cancel();
    let (names, life) = listed(&mut client).await;
    assert_eq!((names.len(), life), (5, json!(60_000)));
}

#[tokio::test]
async fn a_list_waits_for_what_comes_soon() {
    for era in BOTH_ERAS {
        let options = Options { list_wait: Duration::from_secs(60), ..Options::default() };
        let (mut client, loaded) = PipeClient::while_loading(era, options).await;
        let id = client.request("tools/list", json!({})).await;
        add(&client, "soon");
        loaded.cancel();
        let answer = client.response(id).await;
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 4, "{answer}");
        client.call("p__t", json!({})).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "that they came is no change");
    }
}

#[tokio::test]
async fn nobody_hears_of_a_list_before_asking_for_it() {
    for era in BOTH_ERAS {
        let (mut client, loaded) = PipeClient::while_loading(era, impatient()).await;
        if era == ClientEra::Modern {
            listen(&mut client).await;
        }
        for round in 0..20 {
            add(&client, &format!("early_{round}"));
            client.call("p__t", json!({})).await;
        }
        loaded.cancel();
        client.server.notify_changed();
        client.call("p__t", json!({})).await;
        client.send_and_wait("prompts/list", json!({})).await;
        add(&client, "more");
        client.call("p__t", json!({})).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "{era:?}: it has seen prompts, and no tools");
        // What it sees, it hears of from then on.
        assert_eq!(listed(&mut client).await.0.len(), 24);
        for _ in 0..20 {
            client.server.notify_changed();
            client.call("p__t", json!({})).await;
        }
        assert_eq!(client.other_messages, Vec::<Value>::new(), "{era:?}: the list is as it saw it");
        add(&client, "last");
        client.notification(CHANGED).await;
    }
}
