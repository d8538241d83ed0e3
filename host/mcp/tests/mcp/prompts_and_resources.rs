//! Prompts and resources of plugins.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbay_core::pipeline::CallPolicy;
use toolbay_core::registry::Bundle;
use toolbay_core::registry::view::{Filter, ToolEntry};
use toolbay_core::tool::ToolTraits;
use toolbay_core::tool::prompts_and_resources::{PromptsAndResources, PromptsAndResourcesDocument};
use toolbay_mcp::Options;
use toolbay_policy::name::PluginId;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

fn document(greeting: &str) -> Value {
    json!({
        "version": 1,
        "prompts": [
            {"name": "plain", "title": "Plain", "description": "Says it.", "messages": [
                {"role": "user", "content": {"type": "text", "text": "Say it."}}]},
            {"name": "greet", "description": "Greets.",
             "arguments": [{"name": "who", "title": "Who", "required": true, "values": ["ann", "anna", "bob"]}, {"name": "how"}],
             "messages": [
                {"role": "assistant", "content": {"type": "text", "text": "{{how}}Hello {{who}}"}},
                {"role": "user", "content": {"type": "image", "data": "AAAA", "mime_type": "image/png"}},
                {"role": "user", "content": {"type": "audio", "data": "AAAA", "mime_type": "audio/wav"}},
                {"role": "user", "content": {"type": "resource", "path": "a.md"}},
                {"role": "user", "content": {"type": "resource_link", "path": "b"}},
                {"role": "user", "content": {"type": "embedded", "uri": "x:{{who}}", "text": "{{who}}"}}]},
        ],
        "resources": [
            {"path": "a.md", "name": "A", "description": "The first.", "mime_type": "text/markdown", "text": greeting},
            {"path": "b", "name": "B", "blob": "AAE="},
        ],
        "templates": [
            {"path": "t/{x}/{y}", "name": "T", "mime_type": "application/json", "text": "{\"x\":\"{{x}}\"}",
             "arguments": [{"name": "x", "values": ["one", "two"]}]},
        ],
        "icons": {"shelf": [{"src": "data:image/png;base64,AAAA", "sizes": ["1x1"]}]},
    })
}

fn bundle(greeting: &str) -> Bundle {
    let document = PromptsAndResourcesDocument::parse(&document(greeting).to_string()).unwrap();
    let offers = Arc::new(PromptsAndResources::from_plugin(&PluginId::new("p").unwrap(), &document).unwrap());
    let tool = puppet::tool(&Arc::default(), "shelf", None, ToolTraits::default());
    Bundle { tools: vec![ToolEntry { prompts_and_resources: Some(offers), ..tool }], reducers: vec![] }
}

async fn client(era: ClientEra, capabilities: Value) -> PipeClient {
    let client = PipeClient::with_policy(era, capabilities, CallPolicy::default(), Options::default()).await;
    client.registry.register(bundle("# A")).unwrap();
    client
}

#[tokio::test]
async fn prompts_are_listed_and_filled() {
    for era in BOTH_ERAS {
        let mut client = client(era, json!({})).await;
        let list = client.send_and_wait("prompts/list", json!({})).await["result"].clone();
        let names: Vec<_> =
            list["prompts"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["p__greet", "p__plain"]);
        assert_eq!(
            list["prompts"][0]["arguments"][0],
            json!({"name": "who", "title": "Who", "required": true})
        );
        assert_eq!(list["prompts"][1]["title"], "Plain");
        assert_eq!(list["ttlMs"].is_u64(), era == ClientEra::Modern);
        let params = json!({"name": "p__greet", "arguments": {"who": "ann {{how}}"}});
        let got = client.send_and_wait("prompts/get", params).await["result"].clone();
        let blocks: Vec<_> =
            got["messages"].as_array().unwrap().iter().map(|one| one["content"].clone()).collect();
        assert_eq!(got["messages"][0]["role"], "assistant");
        assert_eq!(blocks[0], json!({"type": "text", "text": "Hello ann {{how}}"}));
        assert_eq!(blocks[1], json!({"type": "image", "data": "AAAA", "mimeType": "image/png"}));
        assert_eq!(blocks[2]["type"], "audio");
        assert_eq!(
            blocks[3]["resource"],
            json!({"uri": "toolbay://plugin/p/a.md", "mimeType": "text/markdown", "text": "# A"})
        );
        assert_eq!((&blocks[4]["type"], &blocks[4]["size"]), (&json!("resource_link"), &json!(2)));
        assert_eq!(blocks[5]["resource"]["uri"], "x:ann {{how}}");
        for (params, part) in [
            (json!({"name": "p__none"}), "Unknown prompt: p__none"),
            (json!({"name": "p__greet"}), "`who` is missing"),
            (json!({"name": "p__greet", "arguments": {"who": 5}}), "`who` is not a string"),
            (json!({"name": "p__greet", "arguments": {"who": "a", "x": "b"}}), "unknown argument `x`"),
            (json!({"name": "p__greet", "arguments": {"who": "a".repeat(65 << 10)}}), "more than"),
        ] {
            let answer = client.send_and_wait("prompts/get", params).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
        }
    }
}

#[tokio::test]
async fn missing_arguments_are_requested() {
    let accept = json!({"action": "accept", "content": {"who": "bob"}});
    let params = json!({"name": "p__greet", "arguments": {"how": "Oh! "}});

    let mut legacy = client(ClientEra::Legacy, json!({"elicitation": {}})).await;
    let id = legacy.request("prompts/get", params.clone()).await;
    let question = legacy.notification("elicitation/create").await;
    assert_eq!(question["params"]["requestedSchema"]["required"], json!(["who"]));
    legacy.respond(&question["id"], &accept).await;
    assert_eq!(legacy.response(id).await["result"]["messages"][0]["content"]["text"], "Oh! Hello bob");

    let mut modern = client(ClientEra::Modern, json!({"elicitation": {}})).await;
    let required = modern.send_and_wait("prompts/get", params.clone()).await["result"].clone();
    assert_eq!(required["resultType"], "input_required", "{required}");
    let key = required["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let mut retry = params;
    retry["inputResponses"] = json!({ key: accept });
    retry["requestState"] = required["requestState"].clone();
    let got = modern.send_and_wait("prompts/get", retry.clone()).await["result"].clone();
    assert_eq!(got["messages"][0]["content"]["text"], "Oh! Hello bob", "{got}");
    retry["name"] = json!("p__plain");
    retry["arguments"] = json!({});
    retry.as_object_mut().unwrap().remove("inputResponses");
    assert!(
        modern.send_and_wait("prompts/get", retry).await["result"]["messages"].is_array(),
        "a prompt without missing arguments ignores the state"
    );
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    for era in BOTH_ERAS {
        let mut client = client(era, json!({})).await;
        let list = client.send_and_wait("resources/list", json!({})).await["result"].clone();
        assert_eq!(
            list["resources"][0],
            json!({"uri": "toolbay://plugin/p/a.md", "name": "a.md", "title": "A", "description": "The first.",
                "mimeType": "text/markdown", "size": 3})
        );
        let templates = client.send_and_wait("resources/templates/list", json!({})).await["result"].clone();
        assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "toolbay://plugin/p/t/{x}/{y}");
        for (uri, contents) in [
            ("toolbay://plugin/p/a.md", json!({"mimeType": "text/markdown", "text": "# A"})),
            ("toolbay://plugin/p/b", json!({"blob": "AAE="})),
            (
                "toolbay://plugin/p/t/%22/2",
                json!({"mimeType": "application/json", "text": "{\"x\":\"\\\"\"}"}),
            ),
        ] {
            let read = client.send_and_wait("resources/read", json!({ "uri": uri })).await["result"].clone();
            let mut expect = contents;
            expect["uri"] = json!(uri);
            assert_eq!(read["contents"], json!([expect]));
        }
        for uri in [
            "toolbay://plugin/p/none",
            "toolbay://plugin/q/a.md",
            "toolbay://output/x",
            "file:///etc/passwd",
            "",
        ] {
            let answer = client.send_and_wait("resources/read", json!({ "uri": uri })).await;
            let code = if era == ClientEra::Modern { -32602 } else { -32002 };
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["data"]["uri"]),
                (&json!(code), &json!(uri)),
                "{answer}"
            );
        }
        let tools = client.send_and_wait("tools/list", json!({})).await["result"]["tools"].clone();
        let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "p__shelf").unwrap();
        let icon = json!({"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["1x1"]});
        assert_eq!(tool["icons"], json!([icon]));
    }
}

#[tokio::test]
async fn arguments_are_completed() {
    let mut client = client(ClientEra::Modern, json!({})).await;
    let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
    let template = |uri: &str| json!({"type": "ref/resource", "uri": uri});
    let uri = "toolbay://plugin/p/t/{x}/{y}";
    for (about, argument, typed, expect) in [
        (prompt("p__greet"), "who", "AN", Some(json!(["ann", "anna"]))),
        (prompt("p__greet"), "how", "a", Some(json!([]))),
        (template(uri), "x", "t", Some(json!(["two"]))),
        (template(uri), "y", "", Some(json!([]))),
        (prompt("p__greet"), "none", "", None),
        (prompt("none"), "who", "", None),
        (template("none"), "x", "", None),
    ] {
        let params = json!({"ref": about, "argument": {"name": argument, "value": typed}});
        let answer = client.send_and_wait("completion/complete", params).await;
        match expect {
            Some(values) => assert_eq!(answer["result"]["completion"]["values"], values, "{answer}"),
            None => assert_eq!(answer["error"]["code"], -32602, "{answer}"),
        }
    }
}

#[tokio::test]
async fn hidden_tools_hide_their_prompts_and_resources() {
    let exclude_tools = ["p__shelf".to_owned()].into();
    let filter = Filter { exclude_tools, ..Filter::default() };
    let mut client = PipeClient::connect_with_filter(ClientEra::Modern, Options::default(), filter);
    client.initialize().await;
    client.registry.register(bundle("# A")).unwrap();
    for (method, key) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert_eq!(client.send_and_wait(method, json!({})).await["result"][key], json!([]));
    }
    let answer = client.send_and_wait("resources/read", json!({"uri": "toolbay://plugin/p/a.md"})).await;
    assert_eq!(answer["error"]["code"], -32602);
    let answer = client.send_and_wait("prompts/get", json!({"name": "p__plain"})).await;
    assert_eq!(answer["error"]["code"], -32602);
}

#[tokio::test]
async fn lists_are_paginated() {
    let options = Options { page_size: 1, ..Options::default() };
    let mut client =
        PipeClient::with_policy(ClientEra::Modern, json!({}), CallPolicy::default(), options).await;
    client.registry.register(bundle("# A")).unwrap();
    for (method, key, count) in [
        ("prompts/list", "prompts", 2),
        ("resources/list", "resources", 2),
        ("resources/templates/list", "resourceTemplates", 1),
    ] {
        let (mut params, mut seen) = (json!({}), 0);
        loop {
            let page = client.send_and_wait(method, params).await["result"].clone();
            seen += page[key].as_array().unwrap().len();
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            params = json!({ "cursor": cursor });
        }
        assert_eq!(seen, count, "{method}");
        assert_eq!(client.send_and_wait(method, json!({"cursor": "x"})).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn changes_of_prompts_and_resources_are_announced() {
    let mut legacy = client(ClientEra::Legacy, json!({})).await;
    let watched = "toolbay://plugin/p/a.md";
    assert_eq!(
        legacy.send_and_wait("resources/subscribe", json!({ "uri": watched })).await["result"],
        json!({})
    );
    let mut modern = client(ClientEra::Modern, json!({})).await;
    let wanted =
        json!({"promptsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": [watched]});
    modern.request("subscriptions/listen", json!({ "notifications": wanted })).await;
    let ack = modern.notification("notifications/subscriptions/acknowledged").await;
    assert_eq!(ack["params"]["notifications"], wanted);
    for client in [&mut legacy, &mut modern] {
        for list in ["prompts/list", "resources/list"] {
            client.send_and_wait(list, json!({})).await;
        }
        let mut number = 0;
        let told = loop {
            number += 1;
            client.registry.unregister("p__shelf");
            client.registry.register(bundle(&format!("# {number}"))).unwrap();
            client.server.notify_changed();
            tokio::task::yield_now().await;
            let heard = client.notification("notifications/resources/updated");
            if let Ok(told) = tokio::time::timeout(std::time::Duration::from_millis(50), heard).await {
                break told;
            }
        };
        assert_eq!(told["params"]["uri"], watched);
        client.registry.unregister("p__shelf");
        client.server.notify_changed();
        client.notification("notifications/prompts/list_changed").await;
        client.notification("notifications/resources/list_changed").await;
    }
    assert!(
        modern.other_messages.iter().all(|m| m["method"] != "notifications/tools/list_changed"),
        "{:?}",
        modern.other_messages
    );
    assert_eq!(
        legacy.send_and_wait("resources/unsubscribe", json!({ "uri": watched })).await["result"],
        json!({})
    );
    legacy.registry.register(bundle("# A")).unwrap();
    let mut subscribe =
        async |uri: String| legacy.send_and_wait("resources/subscribe", json!({ "uri": uri })).await;
    for number in 0..toolbay_mcp::MAX_RESOURCE_SUBSCRIPTIONS {
        let answer = subscribe(format!("toolbay://plugin/p/t/{number}/y")).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    let answer = subscribe("toolbay://plugin/p/t/more/y".to_owned()).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
}

#[tokio::test]
async fn a_subscription_that_would_never_notify_is_refused() {
    let others = ["x:unknown", "toolbay://mcp/s/note://1", "toolbay://output/1", "attachment:1", ""];
    let watched = "toolbay://plugin/p/a.md";
    let mut legacy = client(ClientEra::Legacy, json!({})).await;
    for uri in others {
        let answer = legacy.send_and_wait("resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(answer["error"]["code"], -32600, "{uri}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("`uri`"), "{answer}");
    }
    let mut modern = client(ClientEra::Modern, json!({})).await;
    let all = [&others[..], &[watched]].concat();
    let wanted = json!({ "resourceSubscriptions": all });
    modern.request("subscriptions/listen", json!({ "notifications": wanted })).await;
    let ack = modern.notification("notifications/subscriptions/acknowledged").await;
    assert_eq!(ack["params"]["notifications"], json!({"resourceSubscriptions": [watched]}));
}
