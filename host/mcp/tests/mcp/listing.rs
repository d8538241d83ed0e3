use std::sync::Arc;

use serde_json::{Value, json};
use toolbay_core::registry::Bundle;
use toolbay_core::tool::ToolTraits;
use toolbay_core::tool::schema::Schema;
use toolbay_mcp::Options;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet;

/// The capabilities of both eras. They do not depend on the loaded plugins, which may change.
fn capabilities() -> Value {
    json!({
        "completions": {},
        "prompts": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "tools": {"listChanged": true},
    })
}

#[tokio::test]
async fn the_server_reports_its_identity_and_capabilities() {
    let options = Options { instructions: Some("Count words.".to_owned()), ..Options::default() };
    let mut client = PipeClient::connect(ClientEra::Legacy, options.clone());
    for (asked, got) in [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25")] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        let result = client.send_and_wait("initialize", params).await["result"].clone();
        assert_eq!(result["protocolVersion"], got);
        assert_eq!(result["serverInfo"]["name"], "toolbay");
        assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
        let mut expect = capabilities();
        if got == "2025-11-25" {
            expect["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        assert_eq!(result["capabilities"], expect);
        assert_eq!(result["instructions"], "Count words.");
    }

    let mut client = PipeClient::connect(ClientEra::Modern, options);
    let result = client.send_and_wait("server/discover", json!({})).await["result"].clone();
    let mut expect = capabilities();
    expect["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    assert_eq!(result["capabilities"], expect);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "toolbay");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(60_000), &json!("private")));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["instructions"], "Count words.");
}

#[tokio::test]
async fn a_handshake_for_a_version_without_one_falls_back() {
    let mut client = PipeClient::connect(ClientEra::Legacy, Options::default());
    for asked in ["2026-07-28", "2999-01-01"] {
        let params = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
        assert_eq!(
            client.send_and_wait("initialize", params).await["result"]["protocolVersion"],
            "2025-11-25"
        );
    }
    let mut client = PipeClient::connect(ClientEra::Legacy, Options::default());
    let params = json!({"protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    client.send_and_wait("initialize", params).await;
    let tools = client.send_and_wait("tools/list", json!({})).await;
    assert_eq!(
        tools["result"]["tools"][0]["outputSchema"]["type"], "object",
        "the negotiated version counts, not the requested one"
    );
}

#[tokio::test]
async fn tools_are_listed_with_all_metadata() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let result = client.send_and_wait("tools/list", json!({})).await["result"].clone();
        let tools = result["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["p__list", "p__object", "p__t"], "sorted, and without unavailable tools");
        let [list, object, any] = tools.as_slice() else { panic!("{tools:?}") };
        assert_eq!((&list["title"], &list["description"]), (&json!("LIST"), &json!("A puppet.")));
        assert_eq!(list["inputSchema"]["properties"]["n"], json!({"type": "integer"}));
        let meta = json!({"toolbay/plugin": "p", "toolbay/version": "1.2.3", "toolbay/digest": "abcd"});
        assert_eq!(list["_meta"], meta);
        let hints = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
        assert_eq!(list["annotations"], hints);
        assert_eq!(object["annotations"], json!({"destructiveHint": false}));
        assert!(any.get("annotations").is_none() && any.get("outputSchema").is_none());
        assert_eq!(object["outputSchema"]["properties"], json!({"n": {"type": "integer"}}));
        let modern = era == ClientEra::Modern;
        assert_eq!(result["ttlMs"], if modern { json!(60_000) } else { Value::Null });
        assert_eq!(result["cacheScope"], if modern { json!("private") } else { Value::Null });
        assert_eq!(result["resultType"], if modern { json!("complete") } else { Value::Null });
        assert_eq!(result["_meta"].is_object(), modern);
    }
}

#[tokio::test]
async fn non_object_output_is_wrapped_for_legacy_clients() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let tools = client.send_and_wait("tools/list", json!({})).await;
        let schema = tools["result"]["tools"][0]["outputSchema"].clone();
        let result = client.call("p__list", json!({"do": "list"})).await;
        assert_eq!(
            result["content"],
            json!([{"type": "text", "text": "[1,2]"}]),
            "text for clients that show only text"
        );
        let structured = &result["structuredContent"];
        match era {
            ClientEra::Legacy => {
                assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["result"])));
                assert_eq!(structured, &json!({"result": [1, 2]}));
            }
            ClientEra::Modern => {
                assert_eq!(schema["type"], "array");
                assert_eq!(structured, &json!([1, 2]));
            }
        }
        Schema::output(&schema.to_string()).unwrap().check(structured).unwrap();
        let unpromised = client.call("p__t", json!({"do": "list"})).await;
        assert_eq!(&unpromised["structuredContent"], structured, "wrapped even without an output schema");
        for tool in ["p__object", "p__t"] {
            assert_eq!(
                client.call(tool, json!({"do": "object"})).await["structuredContent"],
                json!({"n": 1})
            );
        }
    }
}

/// The official clients throw such a result away, unless it is an error without structured data.
#[tokio::test]
async fn data_that_does_not_match_the_listed_schema_is_delivered_as_text() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (tool, what, texts) in [
            ("p__object", "list", &["[1,2]", "does not match its schema"][..]),
            ("p__object", "nothing", &["no structured part"]),
            ("p__object", "meta", &["paid", "no structured part"]),
            ("p__list", "object", &["an object", "{\"n\":1}", "does not match its schema"]),
            ("p__object", "fail-with-details", &["see", "{\"code\":\"LIMIT\",\"retry_after\":7}"]),
        ] {
            let result = client.call(tool, json!({"do": what})).await;
            assert_eq!(result["isError"], true, "{tool} {what}: {result}");
            assert!(result.get("structuredContent").is_none(), "{tool} {what}: {result}");
            let found: Vec<_> = result["content"].as_array().unwrap().iter().map(|it| &it["text"]).collect();
            for text in texts {
                let has = |found: &&Value| found.as_str().is_some_and(|found| found.contains(text));
                assert_eq!(found.iter().filter(|found| has(found)).count(), 1, "{text}: {result}");
            }
        }
        let matching = client.call("p__object", json!({"do": "object"})).await;
        assert_eq!(matching["isError"], false, "{matching}");
        let unlisted = client.call("p__t", json!({"do": "fail-with-details"})).await;
        assert_eq!(unlisted["structuredContent"], json!({"code": "LIMIT", "retry_after": 7}));
    }
}

#[tokio::test]
async fn long_lists_are_paginated() {
    let mut client =
        PipeClient::with_options(ClientEra::Modern, Options { page_size: 4, ..Options::default() }).await;
    let more = (0..10)
        .map(|n| puppet::tool(&client.puppet, &format!("x{n}"), None, ToolTraits::default()))
        .collect();
    client.registry.register(Bundle { tools: more, reducers: vec![] }).unwrap();
    let (mut names, mut sizes, mut params) = (vec![], vec![], json!({}));
    loop {
        let result = client.send_and_wait("tools/list", params).await["result"].clone();
        let page = result["tools"].as_array().unwrap();
        sizes.push(page.len());
        names.extend(page.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = result["nextCursor"].as_str() else { break };
        params = json!({ "cursor": cursor });
    }
    assert_eq!(sizes, [4, 4, 4, 1]);
    assert!(names.is_sorted() && names.len() == 13, "{names:?}");

    let first = client.send_and_wait("tools/list", json!({})).await["result"]["nextCursor"].clone();
    client.registry.update(&[toolbay_policy::name::PluginId::new("p").unwrap()], Vec::new(), None);
    client.registry.flush_events();
    let rest = client.send_and_wait("tools/list", json!({ "cursor": first })).await;
    assert_eq!(rest["result"]["tools"], json!([]), "a page may be empty after the list has changed");
    for bad in ["", "x", "after:", "after:a b", "after:\u{e9}"] {
        let answer = client.send_and_wait("tools/list", json!({ "cursor": bad })).await;
        assert_eq!(answer["error"]["code"], -32602, "{bad:?}: {answer}");
    }
}

#[tokio::test]
async fn unknown_names_and_methods_are_errors() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (method, key) in [
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            assert_eq!(client.send_and_wait(method, json!({})).await["result"][key], json!([]));
        }
        let no_resource = if era == ClientEra::Modern { -32602 } else { -32002 };
        // In 2025-11-25 a client declares nothing to use tasks.
        let no_task = if era == ClientEra::Modern { -32021 } else { -32602 };
        for (method, code) in [
            ("prompts/get", -32602),
            ("resources/read", no_resource),
            ("nonsense", -32601),
            ("tasks/get", no_task),
        ] {
            let answer =
                client.send_and_wait(method, json!({"name": "x", "uri": "x:y", "taskId": "1"})).await;
            assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
        }
    }
}

#[tokio::test]
async fn changes_are_announced_to_subscribers() {
    let mut legacy = PipeClient::new(ClientEra::Legacy).await;
    legacy.send_and_wait("tools/list", json!({})).await;
    let mut modern = PipeClient::new(ClientEra::Modern).await;
    let listening = modern
        .request(
            "subscriptions/listen",
            json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}}),
        )
        .await;
    let ack = modern.notification("notifications/subscriptions/acknowledged").await;
    let both = json!({"toolsListChanged": true, "promptsListChanged": true});
    assert_eq!(ack["params"]["notifications"], both, "{ack}");
    modern.send_and_wait("tools/list", json!({})).await;
    for client in [&mut legacy, &mut modern] {
        // The announcer subscribes in a separate task: change the list until a notification arrives.
        let mut number = 0;
        let told = loop {
            number += 1;
            client.registry.register(bundle_with(&format!("more_{number}"))).unwrap();
            client.server.notify_changed();
            tokio::task::yield_now().await;
            let wait = std::time::Duration::from_millis(50);
            let heard = client.notification("notifications/tools/list_changed");
            if let Ok(told) = tokio::time::timeout(wait, heard).await {
                break told;
            }
        };
        let subscription = &told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert!(subscription.is_null() || subscription == &json!(listening), "{told}");
    }
    modern.cancel_request(listening).await;
    modern.send_and_wait("tools/list", json!({})).await;
    modern.other_messages.clear();
    modern.registry.register(bundle_with("last")).unwrap();
    modern.server.notify_changed();
    modern.close().await;
    assert_eq!(
        modern.remaining_messages().await,
        Vec::<Value>::new(),
        "no notification for a cancelled subscription"
    );

    let mut silent = PipeClient::new(ClientEra::Modern).await;
    silent.send_and_wait("tools/list", json!({})).await;
    silent.registry.register(bundle_with("last")).unwrap();
    silent.server.notify_changed();
    silent.close().await;
    assert_eq!(
        silent.remaining_messages().await,
        Vec::<Value>::new(),
        "no notification without a subscription"
    );
    assert_eq!(Arc::strong_count(&silent.registry), 2, "the connection was dropped completely");
}

/// A change that no list shows is not announced.
#[tokio::test]
async fn invisible_changes_are_not_announced() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    client.send_and_wait("tools/list", json!({})).await;
    let mut hidden = bundle_with("hidden");
    hidden.tools.iter_mut().for_each(|tool| tool.availability.unavailable = Some("no grant".into()));
    client.registry.register(hidden).unwrap();
    for _ in 0..20 {
        client.server.notify_changed();
        tokio::task::yield_now().await;
    }
    client.send_and_wait("tools/list", json!({})).await;
    assert_eq!(client.other_messages, Vec::<Value>::new(), "the list is unchanged");
    // Visible changes are announced, and several at once cause one notification.
    for number in 0..20 {
        client.registry.register(bundle_with(&format!("seen_{number}"))).unwrap();
    }
    for _ in 0..20 {
        client.server.notify_changed();
    }
    client.notification("notifications/tools/list_changed").await;
    client.send_and_wait("tools/list", json!({})).await;
    assert_eq!(client.other_messages, Vec::<Value>::new(), "announced once");
}

fn bundle_with(name: &str) -> Bundle {
    Bundle { tools: vec![puppet::tool(&Arc::default(), name, None, ToolTraits::default())], reducers: vec![] }
}
