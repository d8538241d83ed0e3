use serde_json::{Value, json};
use toolbay_mcp::Options;
use toolbay_policy::serve::ServePolicy;

use crate::client::{BOTH_ERAS, ClientEra, PipeClient};
use crate::puppet::FORGED;

#[tokio::test]
async fn a_result_has_the_text_and_the_usage() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (params, text) in [
            (
                json!({"name": "p__t", "arguments": {"n": 1, "b": [1.5, null], "a": "é"}}),
                r#"{"n":1,"b":[1.5,null],"a":"é"}"#,
            ),
            (json!({"name": "p__t"}), "{}"),
        ] {
            let answer = client.send_and_wait("tools/call", params).await;
            let result = &answer["result"];
            assert_eq!(result["content"], json!([{"type": "text", "text": text}]), "{answer}");
            assert_eq!(result["isError"], false);
            assert!(result.get("structuredContent").is_none());
            let meta = &result["_meta"];
            assert_eq!(meta["toolbay/usage"]["fuel"], 7);
            assert!(meta["toolbay/duration_us"].is_u64());
            assert!(meta.get("toolbay/code").is_none());
            assert_eq!(meta["io.modelcontextprotocol/serverInfo"].is_object(), era == ClientEra::Modern);
            assert_eq!(result["resultType"] == "complete", era == ClientEra::Modern);
        }
        let paid = client.call("p__t", json!({"do": "meta"})).await;
        assert_eq!(paid["_meta"]["toolbay/cost_usd"], 0.5);
        assert_eq!(
            paid["_meta"]["toolbay/meta"],
            json!({"toolbay/code": "forged"}),
            "the keys of a guest stay separate"
        );
        assert!(paid["_meta"].get("toolbay/code").is_none());
        assert_eq!(client.audit.take().len(), 3);
    }
}

#[tokio::test]
async fn errors_are_results_that_the_model_can_read() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for (tool, args, code, fault, part) in [
            ("p__t", json!({"n": "one"}), "input_invalid", None, "/n"),
            ("p__t", json!({"do": "fail"}), "STALE_WRITE", None, "\\u{2028}\\u{85}\\u{0}\\u{1b}[31m"),
            (
                "p__t",
                json!({"do": "deadline"}),
                "execution_failed",
                Some("deadline"),
                "the operator can raise it",
            ),
            ("p__t", json!({"do": "busy"}), "not_available", Some("busy"), "no place"),
            ("p__t", json!({"do": "panic"}), "execution_failed", Some("host_failed"), "panicked"),
            ("p__missing", json!({}), "not_available", None, "not currently available: no grant"),
        ] {
            let result = client.call(tool, args).await;
            assert_eq!(result["isError"], true, "{result}");
            assert_eq!(result["_meta"]["toolbay/code"], code);
            assert_eq!(result["_meta"]["toolbay/fault"], json!(fault));
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.contains(part), "{text}");
        }
        let failed = client.call("p__t", json!({"do": "fail"})).await["_meta"].clone();
        assert_eq!(
            (&failed["toolbay/cost_usd"], &failed["toolbay/subject"]),
            (&json!(0.25), &json!("a.txt"))
        );
        let late = client.call("p__t", json!({"do": "deadline"})).await["_meta"].clone();
        assert_eq!(late["toolbay/limit"], json!({"name": "timeout", "value": "30s"}));
    }
}

#[tokio::test]
async fn a_failed_call_keeps_its_data_and_blocks() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let failed = client.call("p__t", json!({"do": "fail-with-details"})).await;
        let good = client.call("p__t", json!({"do": "blocks"})).await;
        assert_eq!(
            (&failed["isError"], &failed["structuredContent"]["code"]),
            (&json!(true), &json!("LIMIT"))
        );
        assert_eq!(failed["content"], good["content"], "the text `see` and the same blocks");
    }
}

#[tokio::test]
async fn results_contain_policy_lines_only_if_the_policy_allows_it() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        for args in [json!({"do": "deadline"}), json!({"do": "busy"})] {
            let result = client.call("p__t", args).await.to_string();
            assert!(!result.contains("[plugins") && !result.contains("[host]"), "{result}");
        }
        let result = client.call("p__missing", json!({})).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        let way = "not permitted; `toolbay explain p__missing` tells the operator what would allow it";
        assert!(text.ends_with(way), "{text}");
        assert!(!result.to_string().contains("[plugins"), "{result}");
        let result = client.call("p__open", json!({})).await;
        let lines = result["content"][1]["text"].as_str().unwrap();
        assert!(lines.ends_with("[plugins.p.grant]\nclock = true"), "{result}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let answer = client.send_and_wait("tools/call", json!({"name": "p__none", "arguments": {}})).await;
        assert_eq!(answer["error"], json!({"code": -32602, "message": "Unknown tool: p__none"}));
        assert_eq!(client.audit.take().len(), 1, "the call is recorded");
        for bad in [json!({}), json!({"name": 5}), json!({"name": "p__t", "arguments": [1]})] {
            let id = client.request("tools/call", bad.clone()).await;
            let answer = client.next().await.unwrap();
            assert!(answer["id"] == id || answer["id"].is_null(), "{answer}");
            assert!(answer["error"]["code"].is_i64(), "{bad}: {answer}");
        }
        assert_eq!(client.call("p__t", json!({})).await["isError"], false, "the connection stays usable");
    }
}

#[tokio::test]
async fn hostile_text_arrives_as_data_in_one_line() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let result = client.call("p__t", json!({"do": "hostile"})).await;
        assert_eq!(result["content"][0]["text"], FORGED);
        assert_eq!(result["structuredContent"], json!({ FORGED: FORGED }));
        assert_eq!(client.other_messages, Vec::<Value>::new());
        let id = client.request("tools/call", json!({"name": FORGED})).await;
        assert_eq!(
            client.response(id).await["error"]["message"],
            format!("Unknown tool: {}", toolbay_policy::excerpt::one_line(FORGED, 100))
        );
    }
}

#[tokio::test]
async fn rich_blocks_are_mapped_one_to_one() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let notes = json!({"audience": ["user"], "priority": 0.5, "lastModified": "2026-11-21"});
    let mut expect = vec![
        json!({"type": "text", "text": "more"}),
        json!({"type": "image", "data": "AAH/", "mimeType": "image/png"}),
        json!({"type": "audio", "data": "AAH/", "mimeType": "audio/wav"}),
        json!({"type": "resource_link", "uri": "file:///a", "name": "a", "description": "file a", "size": 3}),
        json!({"type": "resource", "resource": {"uri": "x:y", "mimeType": "a/b", "text": "inside"}}),
        json!({"type": "resource", "resource": {"uri": "x:y", "mimeType": "a/b", "blob": "/w=="}}),
    ];
    for block in &mut expect {
        block["annotations"] = notes.clone();
    }
    assert_eq!(
        client.call("p__t", json!({"do": "picture"})).await["content"],
        json!(expect),
        "no empty text block"
    );
    expect.insert(0, json!({"type": "text", "text": "see"}));
    assert_eq!(client.call("p__t", json!({"do": "blocks"})).await["content"], json!(expect));
    assert_eq!(client.call("p__t", json!({"do": "nothing"})).await["content"], json!([]));
}

#[tokio::test]
async fn user_progress_is_sent_only_with_a_token() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let params = json!({"name": "p__t", "arguments": {"do": "progress"}});
        let mut asking = params.clone();
        asking["_meta"]["progressToken"] = json!("tok");
        client.send_and_wait("tools/call", asking).await;
        let seen: Vec<_> =
            std::mem::take(&mut client.other_messages).into_iter().map(|m| m["params"].clone()).collect();
        let [half, back] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!(
            half,
            &json!({"progressToken": "tok", "progress": 50.0, "total": 100.0, "message": "half\nway"})
        );
        assert_eq!(back["message"], "back");
        assert!(back["progress"].as_f64().unwrap() > 50.0, "progress never decreases: {back}");
        client.send_and_wait("tools/call", params).await;
        assert_eq!(client.other_messages, Vec::<Value>::new(), "no progress without a token");
    }
}

#[tokio::test]
async fn excess_progress_is_dropped() {
    let mut client = PipeClient::new(ClientEra::Legacy).await;
    let params = json!({"name": "p__t", "arguments": {"do": "chatter"}, "_meta": {"progressToken": 1}});
    let answer = client.send_and_wait("tools/call", params).await;
    assert_eq!(answer["result"]["isError"], false);
    let numbers: Vec<_> =
        client.other_messages.iter().map(|m| m["params"]["progress"].as_f64().unwrap()).collect();
    assert!(!numbers.is_empty() && numbers.len() < 200, "{}", numbers.len());
    assert!(numbers.is_sorted_by(|a, b| a < b));
}

#[tokio::test]
async fn a_tool_sees_the_platform_and_the_session() {
    let (mut one, mut other) =
        (PipeClient::new(ClientEra::Legacy).await, PipeClient::new(ClientEra::Modern).await);
    let mut seen = vec![];
    for client in [&mut one, &mut other] {
        let who = client.call("p__t", json!({"do": "who"})).await["content"][0]["text"].clone();
        assert!(who.as_str().unwrap().starts_with("Some(\"mcp\") Some(\"mcp-"), "{who}");
        assert_eq!(client.call("p__t", json!({"do": "who"})).await["content"][0]["text"], who);
        seen.push(who);
    }
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn long_results_are_cut_to_the_budget() {
    let mut client =
        PipeClient::with_options(ClientEra::Legacy, Options { budget_chars: 100, ..Options::default() })
            .await;
    let result = client.call("p__t", json!({"text": "x".repeat(1000)})).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.chars().count() == 100 && text.contains("truncated"), "{text}");
}

/// Some clients show `_meta` to the model.
#[tokio::test]
async fn own_members_of_meta_are_sent_only_on_request() {
    for era in BOTH_ERAS {
        let mut client = PipeClient::new(era).await;
        let metas = async |client: &mut PipeClient| {
            let tools = client.send_and_wait("tools/list", json!({})).await["result"]["tools"].clone();
            let mut all = vec![tools[0]["_meta"].clone()];
            for how in ["echo", "fail", "deadline", "meta"] {
                all.push(client.call("p__t", json!({"do": how})).await["_meta"].clone());
            }
            all
        };
        let own = |meta: &Value| meta.to_string().contains("toolbay/");
        let shown = metas(&mut client).await;
        assert!(shown.iter().all(own), "{era:?}: {shown:?}");
        client.server.set_usage_meta(&ServePolicy::default());
        let hidden = metas(&mut client).await;
        assert!(!hidden.iter().any(own), "{era:?}: {hidden:?}");
        // A legacy result without members has no `_meta`.
        assert_eq!(hidden[1].is_object(), era == ClientEra::Modern);
    }
}
