//! Lists that are requested while plugins are loading, and the announcement of later tools.

use std::time::Duration;

use serde_json::{Value, json};
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolTraits;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

const CHANGED: &str = "notifications/tools/list_changed";

fn short_list_wait() -> Options {
    Options { list_wait: Duration::from_millis(20), ..Options::default() }
}

fn add_tool(client: &PipeClient, name: &str) {
    let tools = vec![puppet::tool(&client.puppet, name, None, ToolTraits::default())];
    client.registry.register(Bundle { tools, reducers: vec![] }).unwrap();
    client.server.notify_changed();
}

async fn list_tools(client: &mut PipeClient) -> (Vec<String>, Value) {
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
        let (mut client, loaded) = PipeClient::while_loading(era, short_list_wait()).await;
        if era == ClientEra::Modern {
            listen(&mut client).await;
        }
        let (names, life) = list_tools(&mut client).await;
        assert_eq!(names, ["p__list", "p__object", "p__t"]);
        assert_eq!(
            life,
            if era == ClientEra::Modern { json!(0) } else { Value::Null },
            "an incomplete list must not be cached"
        );
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let answer = client.send_and_wait(method, json!({})).await;
            assert!(answer["result"].is_object(), "{answer}");
        }
        add_tool(&client, "late");
        loaded.cancel();
        client.notification(CHANGED).await;
        let (names, life) = list_tools(&mut client).await;
        assert_eq!(names, ["p__late", "p__list", "p__object", "p__t"]);
        assert_eq!(life, if era == ClientEra::Modern { json!(60_000) } else { Value::Null });
        assert_eq!(client.other_messages, Vec::<Value>::new(), "announced once, and nothing else");
    }
}

/// Without a subscription, the client must not cache the first list, and gets the rest with its next request.
#[tokio::test]
async fn a_client_without_a_subscription_gets_the_rest_with_its_next_list() {
    let (mut client, loaded) = PipeClient::while_loading(ClientEra::Modern, short_list_wait()).await;
    assert_eq!(list_tools(&mut client).await.1, 0);
    add_tool(&client, "late");
    assert_eq!(list_tools(&mut client).await.0.len(), 4, "other tools are still loading");
    add_tool(&client, "later");
    loaded.cancel();
    let (names, life) = list_tools(&mut client).await;
    assert_eq!((names.len(), life), (5, json!(60_000)));
}

#[tokio::test]
async fn a_list_waits_for_tools_that_load_soon() {
    for era in BOTH_ERAS {
        let options = Options { list_wait: Duration::from_secs(60), ..Options::default() };
        let (mut client, loaded) = PipeClient::while_loading(era, options).await;
        let id = client.request("tools/list", json!({})).await;
        add_tool(&client, "soon");
        loaded.cancel();
        let answer = client.response(id).await;
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 4, "{answer}");
        client.call("p__t", json!({})).await;
        assert_eq!(
            client.other_messages,
            Vec::<Value>::new(),
            "the tools were in the first list, so nothing changed"
        );
    }
}

#[tokio::test]
async fn changes_of_an_unrequested_list_are_not_announced() {
    for era in BOTH_ERAS {
        let (mut client, loaded) = PipeClient::while_loading(era, short_list_wait()).await;
        if era == ClientEra::Modern {
            listen(&mut client).await;
        }
        for round in 0..20 {
            add_tool(&client, &format!("early_{round}"));
            client.call("p__t", json!({})).await;
        }
        loaded.cancel();
        client.server.notify_changed();
        client.call("p__t", json!({})).await;
        client.send_and_wait("prompts/list", json!({})).await;
        add_tool(&client, "more");
        client.call("p__t", json!({})).await;
        assert_eq!(
            client.other_messages,
            Vec::<Value>::new(),
            "{era:?}: the client requested prompts, but no tools"
        );
        // From the first request of the list on, its changes are announced.
        assert_eq!(list_tools(&mut client).await.0.len(), 24);
        for _ in 0..20 {
            client.server.notify_changed();
            client.call("p__t", json!({})).await;
        }
        assert_eq!(client.other_messages, Vec::<Value>::new(), "{era:?}: the list is unchanged");
        add_tool(&client, "last");
        client.notification(CHANGED).await;
    }
}
