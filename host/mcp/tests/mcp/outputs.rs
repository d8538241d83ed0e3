use serde_json::json;
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolTraits;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

fn short_budget() -> Options {
    Options { budget_chars: 300, ..Options::default() }
}

#[tokio::test]
async fn saved_outputs_are_resources_of_the_connection() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::with_output_store(era, short_budget()).await;
        let long = "x".repeat(1000);
        let result = client.call("p__t", json!({ "text": long })).await;
        let [text, link] = result["content"].as_array().unwrap().as_slice() else { panic!("{result}") };
        assert!(text["text"].as_str().unwrap().contains("the rest: read_output {\"id\": "), "{text}");
        assert_eq!(
            (&link["type"], &link["mimeType"]),
            (&json!("resource_link"), &json!("text/plain")),
            "{link}"
        );
        assert_eq!(link["size"], json!(1000 + r#"{"text":""}"#.len()));
        let uri = link["uri"].as_str().unwrap();
        let id = uri.strip_prefix("toolbay://output/").unwrap();

        let listed = client.send_and_wait("resources/list", json!({})).await["result"].clone();
        assert_eq!(listed["resources"][0]["uri"], uri, "{listed}");
        assert_eq!(
            listed["cacheScope"],
            if era == ClientEra::Modern { json!("private") } else { json!(null) }
        );
        let read = client.send_and_wait("resources/read", json!({ "uri": uri })).await["result"].clone();
        assert_eq!(read["contents"][0]["text"], json!({ "text": long }).to_string());
        let page = client.call("read_output", json!({"id": id, "mode": "chars", "from": 5, "to": 8})).await;
        assert_eq!(page["content"][0]["text"], "Characters 5 to 8 of 1011\nxt\":");

        let mut other = PipeClient::with_output_store(era, short_budget()).await;
        for bad in [uri, "toolbay://output/", "toolbay://output/../../x", "file:///etc/passwd", ""] {
            let answer = other.send_and_wait("resources/read", json!({ "uri": bad })).await;
            assert!(answer["error"].is_object(), "{answer}");
        }
        assert_eq!(other.send_and_wait("resources/list", json!({})).await["result"]["resources"], json!([]));
    }
}

#[tokio::test]
async fn clients_without_resource_links_get_none() {
    let mut client = PipeClient::connect_with_output_store(ClientEra::Legacy, short_budget());
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    let hello = client.send_and_wait("initialize", params).await;
    assert!(hello["result"]["capabilities"]["resources"].is_object(), "{hello}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let result = client.call("p__t", json!({"text": "x".repeat(1000)})).await;
    assert_eq!(result["content"].as_array().unwrap().len(), 1, "{result}");
}

#[tokio::test]
async fn untrusted_structured_results_are_marked_in_their_text() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::with_output_store(era, Options::default()).await;
        let traits = ToolTraits { untrusted_output: true, ..ToolTraits::default() };
        let tools = vec![puppet::tool(&client.puppet, "u", None, traits)];
        client.registry.register(Bundle { tools, reducers: vec![] }).unwrap();
        let result = client.call("p__u", json!({"do": "list"})).await;
        let marked = "<untrusted source=\"plugin:p\" tool=\"p__u\">\n[1,2]\n</untrusted>";
        assert_eq!(result["content"][0]["text"], marked);
        let data = if era == ClientEra::Legacy { json!({"result": [1, 2]}) } else { json!([1, 2]) };
        assert_eq!(result["structuredContent"], data);
    }
}
