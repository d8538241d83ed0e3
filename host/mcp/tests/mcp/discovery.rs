use serde_json::{Value, json};
use toolbay_core::registry::view::Filter;
use toolbay_core::tool::ToolTraits;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

async fn tool_names(client: &mut PipeClient) -> Vec<String> {
    let result = client.send_and_wait("tools/list", json!({})).await["result"].clone();
    let tools = result["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn lazy_client(era: ClientEra) -> PipeClient {
    let filter = Filter { lazy: true, ..Filter::default() };
    let mut client = PipeClient::connect_with_filter(era, Options::default(), filter);
    client.initialize().await;
    client
}

#[tokio::test]
async fn a_lazy_server_lists_discovery_tools_and_runs_found_tools() {
    for era in BOTH_ERAS {
        let mut client = lazy_client(era).await;
        let three = ["tool_call", "tool_describe", "tool_search"];
        assert_eq!(tool_names(&mut client).await, three);
        let found = client.call("tool_search", json!({"query": "puppet", "limit": 2})).await;
        assert_eq!(found["structuredContent"]["tools"].as_array().unwrap().len(), 2, "{found}");
        let described = client.call("tool_describe", json!({"name": "p__object"})).await;
        assert_eq!(described["structuredContent"]["output_schema"]["type"], "object", "{described}");
        let through = json!({"name": "p__object", "arguments": {"do": "object"}});
        let called = client.call("tool_call", through).await;
        assert_eq!(called["structuredContent"], json!({"n": 1}));
        assert_eq!(
            client.call("p__object", json!({"do": "object"})).await["structuredContent"],
            json!({"n": 1})
        );
        // These calls change no list, so nothing is announced.
        assert_eq!(tool_names(&mut client).await, three);
        assert_eq!(client.other_messages, Vec::<Value>::new());
        let records = client.audit.take();
        let told: Vec<(&str, Option<&str>)> =
            records.iter().map(|record| (&*record.tool, record.through.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("tool_search", None),
                ("tool_describe", None),
                ("p__object", Some("tool_call")),
                ("p__object", None),
            ]
        );
    }
}

#[tokio::test]
async fn an_unknown_tool_is_a_result_that_the_model_can_read() {
    for era in BOTH_ERAS {
        let mut client = lazy_client(era).await;
        let missed = client.call("tool_call", json!({"name": "p__objct", "arguments": {}})).await;
        assert_eq!(missed["isError"], true);
        let text = missed["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("did you mean `p__object`?"), "{text}");
        let nested = json!({"name": "tool_call", "arguments": {"name": "p__t", "arguments": {}}});
        assert_eq!(client.call("tool_call", nested).await["isError"], true);
        let missing = client.call("tool_call", json!({"name": "p__missing", "arguments": {}})).await;
        assert!(missing["content"][0]["text"].as_str().unwrap().contains("no grant"));
    }
}

#[tokio::test]
async fn a_deferred_tool_is_unlisted_and_callable() {
    let mut client = PipeClient::new(ClientEra::Modern).await;
    let mut later = puppet::tool(&client.puppet, "later", None, ToolTraits::default());
    later.flags.deferred = true;
    client.registry.register(later).unwrap();
    let listed = tool_names(&mut client).await;
    assert_eq!(listed, ["p__list", "p__object", "p__t", "tool_call", "tool_describe", "tool_search"]);
    let found = client.call("tool_search", json!({"query": "p__later"})).await;
    assert!(found["structuredContent"]["tools"][0]["schema"].is_object(), "{found}");
    assert_eq!(client.call("p__later", json!({"n": 1})).await["content"][0]["text"], "{\"n\":1}");
}
