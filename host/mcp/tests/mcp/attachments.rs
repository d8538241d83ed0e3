//! Attachments that tools create.

use serde_json::{Value, json};
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolTraits;
use toolbay_mcp::Options;
use toolbay_policy::capability::{Capability, CapabilityKind};

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

/// A client of a server with `p__h`, which declares attachments, and `p__t`, which does not.
async fn client(era: ClientEra) -> PipeClient {
    let client = PipeClient::with_output_store(era, Options::default()).await;
    let mut tool = puppet::tool(&client.puppet, "h", None, ToolTraits::default());
    std::sync::Arc::make_mut(&mut tool.def).capabilities = vec![Capability {
        kind: CapabilityKind::Attachments,
        target: "create".to_owned(),
        optional: false,
        reason: None,
    }];
    client.registry.register(Bundle { tools: vec![tool], reducers: vec![] }).unwrap();
    client
}

fn resource_link(result: &Value) -> Value {
    result["content"].as_array().unwrap().iter().find(|one| one["type"] == "resource_link").unwrap().clone()
}

#[tokio::test]
async fn an_attachment_is_readable_only_by_its_client() {
    for era in BOTH_ERAS {
        let mut own = client(era).await;
        let result = own.call("p__h", json!({"do": "hand", "n": 5})).await;
        let link = resource_link(&result);
        let said = |key: &str| link[key].clone();
        assert_eq!(
            (said("name"), said("mimeType"), said("size")),
            (json!("report.csv"), json!("text/csv"), json!(5)),
            "the recorded metadata replaces that of the tool: {link}"
        );
        let uri = said("uri");
        let listed = own.send_and_wait("resources/list", json!({})).await["result"]["resources"].clone();
        assert_eq!(listed[0]["uri"], uri, "{listed}");
        let read = own.send_and_wait("resources/read", json!({ "uri": uri })).await["result"].clone();
        assert_eq!(
            (&read["contents"][0]["blob"], &read["contents"][0]["mimeType"]),
            (&json!("eHh4eHg="), &json!("text/csv")),
            "{read}"
        );
        assert_eq!(read["cacheScope"], if era == ClientEra::Modern { json!("private") } else { json!(null) });
        let mut other = client(era).await;
        for bad in [uri.as_str().unwrap(), "attachment:", "attachment:1", "attachment:../1"] {
            let answer = other.send_and_wait("resources/read", json!({ "uri": bad })).await;
            assert!(answer["error"].is_object(), "{bad}: {answer}");
        }
        assert_eq!(other.send_and_wait("resources/list", json!({})).await["result"]["resources"], json!([]));
    }
}

#[tokio::test]
async fn a_tool_without_the_capability_cannot_create_attachments() {
    let mut client = client(ClientEra::Modern).await;
    let result = client.call("p__t", json!({"do": "hand"})).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("no attachments"), "{result}");
}
