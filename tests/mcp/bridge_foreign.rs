//! Odd schemas and results of bridged servers: each odd thing costs only itself. The cases of
//! `shared/inputs` 03, 07, 08 and 09 are among them.

use integration_tests::{fault, outcome, refusal, value, words};
use serde_json::{Value, json};
use toolbay::core::tool::content::BlockBody;
use toolbay::core::tool::fault::FaultKind;

use super::bridge_http::{answer, body};
use super::bridge_stdio::BridgeFixture;
use crate::loopback::{LoopbackServer, response};

/// A server with these tools, each of which answers with `result`.
async fn server_of(tools: &[Value], result: &Value, more: &str) -> BridgeFixture {
    let (tools, result) = (Value::from(tools.to_vec()), result.clone());
    let server = LoopbackServer::new(move |seen| {
        let message = body(seen);
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => answer(
                id,
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"}}),
            ),
            Some("tools/list") => answer(id, json!({ "tools": tools })),
            Some("tools/call") => answer(id, result.clone()),
            Some("notifications/initialized") => response(202, "", ""),
            _ => response(405, "", ""),
        }
    })
    .await;
    let url = server.url("/mcp");
    BridgeFixture::new(&format!("[mcp.q]\nurl = \"{url}\"\nprotocol = \"legacy\"\n{more}")).await
}

async fn server_with(schema: &Value) -> BridgeFixture {
    let tool = json!({"name": "t", "description": "A case.", "inputSchema": schema});
    server_of(&[tool], &json!({"content": [{"type": "text", "text": "ok"}]}), "").await
}

/// Calls the only tool of a server.
async fn outcomes(host: &BridgeFixture, cases: &[(Value, bool)]) {
    for (args, runs) in cases {
        let said = host.host.call("mcp__q__t", args.clone()).await;
        assert_eq!(outcome(&said), if *runs { "ok" } else { "input_invalid" }, "{args} {said:?}");
    }
}

fn shown(host: &BridgeFixture) -> Value {
    let catalog = host.host.host.registry().snapshot();
    catalog.get("mcp__q__t").unwrap().def.input_schema.value().clone()
}

fn dropped(host: &BridgeFixture) -> Vec<String> {
    let catalog = host.host.host.registry().snapshot();
    let entry = catalog.get("mcp__q__t").unwrap();
    let all = entry.def.dropped_keywords().flat_map(|(_, lost)| lost.listed());
    all.map(|one| one.pointer.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_of_older_dialects_mean_what_they_meant() {
    let tuple = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
        "corner": {"type": "array", "items": [{"type": "integer"}, {"type": "integer"}], "additionalItems": false,
            "minItems": 2}}});
    let host = server_with(&tuple).await;
    let cases = [(json!([1, 2]), true), (json!([1, 2, 3]), false), (json!(["a", 1]), false)];
    outcomes(&host, &cases.map(|(corner, runs)| (json!({ "corner": corner }), runs))).await;
    let mixed = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
        "pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": false}}});
    let host = server_with(&mixed).await;
    assert_eq!(
        shown(&host)["properties"]["pair"]["prefixItems"],
        json!([{"type": "integer"}, {"type": "string"}])
    );
    let bound = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
        "properties": {"by": {"type": "number", "minimum": 1, "exclusiveMinimum": true}}});
    let host = server_with(&bound).await;
    outcomes(&host, &[(json!({"by": 1.5}), true), (json!({"by": 1}), false)]).await;
    assert_eq!(shown(&host)["properties"]["by"], json!({"type": "number", "exclusiveMinimum": 1}));
    let sibling = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"word": {"$ref": "#/definitions/word", "type": "object"}},
        "definitions": {"word": {"type": "string"}}});
    let host = server_with(&sibling).await;
    outcomes(&host, &[(json!({"word": "x"}), true), (json!({"word": {}}), false)]).await;
    assert_eq!(dropped(&host), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_php_is_an_empty_object() {
    for schema in [
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "$defs": []}),
        json!({"type": "object", "properties": {"filter": {"type": "object", "properties": []}}}),
        json!({"type": "object", "properties": [], "required": []}),
        json!([]),
    ] {
        let host = server_with(&schema).await;
        outcomes(&host, &[(json!({}), true)]).await;
        assert!(shown(&host)["properties"].is_object(), "{schema}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyword_that_cannot_be_checked_costs_only_itself() {
    let schema = json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "pattern": "^(?!admin)", "maxLength": null},
        "b": {"type": "file", "required": true},
        "c": {"type": "integer", "minimum": "1"}}});
    let host = server_with(&schema).await;
    let cases = [
        (json!({"a": "admin", "b": 7, "c": 0}), true),
        (json!({"a": 7}), false),
        (json!({}), false),
        (json!({"a": "x", "c": "x"}), false),
    ];
    outcomes(&host, &cases).await;
    let expect = ["a/pattern", "a/maxLength", "b/type", "b/required", "c/minimum"];
    assert_eq!(dropped(&host), expect.map(|step| format!("/properties/{step}")));
    assert_eq!(shown(&host)["properties"]["a"], json!({"type": "string", "pattern": "^(?!admin)"}));
}

/// An operator's rule compares texts. Without the type, a list would pass it.
#[tokio::test(flavor = "multi_thread")]
async fn a_weaker_schema_does_not_loosen_a_rule() {
    let rule = "[permissions]\ndefault = \"allow\"\n[[rule]]\ntool = \"mcp__q__t\"\nargs = { \"/path\" = \"/etc/*\" }\naction = \"deny\"\n";
    let ok = json!({"content": [{"type": "text", "text": "ok"}]});
    let tool = |kind: &str| json!({"name": "t", "description": "A case.", "inputSchema": {"type": "object", "properties": {"path": {"type": kind}}}});
    let weak = server_of(&[tool("path")], &ok, rule).await;
    for (args, denied) in [
        (json!({"path": "/etc/passwd"}), true),
        (json!({"path": ["/etc/passwd"]}), true),
        (json!({"path": {"p": "/etc/passwd"}}), true),
        (json!({"path": null}), true),
        (json!({"path": "/tmp/a"}), false),
        (json!({}), false),
    ] {
        let said = weak.host.call("mcp__q__t", args.clone()).await;
        assert_eq!(outcome(&said), if denied { "not_available" } else { "ok" }, "{args} {said:?}");
    }
    let said = weak.host.call("mcp__q__t", json!({"path": []})).await;
    assert!(refusal(&said).message.contains("cannot be evaluated: its argument `/path`"), "{said:?}");
    let strong = server_of(&[tool("string")], &ok, rule).await;
    let said = strong.host.call("mcp__q__t", json!({"path": []})).await;
    assert_eq!(outcome(&said), "input_invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ran_delivers_what_can_be_read() {
    let tool =
        json!({"name": "t", "description": "A case.", "inputSchema": {"type": "object", "properties": {}}});
    let png = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
    let image = |data: &str| json!({"type": "image", "mimeType": "image/png", "data": data});
    for (block, bytes) in [
        (image("data:image/png;base64,iVBORw0KGgo="), Some(&png[..])),
        (image("iVBORw0K\nGgo=\n"), Some(&png)),
        (image("-_-_"), Some(&[0xfb, 0xff, 0xbf])),
        (image("?"), None),
        (json!({"type": "text", "text": null}), None),
        (json!({"type": "hologram"}), None),
    ] {
        let result = json!({"content": [{"type": "text", "text": "drawn"}, block]});
        let host = server_of(std::slice::from_ref(&tool), &result, "").await;
        let said = host.host.call("mcp__q__t", json!({})).await;
        assert_eq!(words(&said), "drawn", "{block}");
        match (&said.content()[0].body, bytes) {
            (BlockBody::Image(blob), Some(bytes)) => assert_eq!(blob.data, bytes),
            (BlockBody::Text(text), None) => assert!(text.contains("[cannot be read: "), "{text}"),
            (other, _) => panic!("{block}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_result_keeps_all_that_it_carries() {
    let tool =
        json!({"name": "t", "description": "A case.", "inputSchema": {"type": "object", "properties": {}}});
    let data = json!({"code": "LIMIT", "retry_after": 7});
    let result = json!({"isError": true, "content": [], "structuredContent": data});
    let host = server_of(std::slice::from_ref(&tool), &result, "").await;
    let said = host.host.call("mcp__q__t", json!({})).await;
    assert_eq!(said.structured().unwrap().get(), data.to_string());
    assert!(refusal(&said).message.contains("LIMIT"), "{said:?}");
    let result = json!({"isError": true, "content": [
        {"type": "text", "text": "see"},
        {"type": "resource_link", "uri": "https://example.org/help", "name": "help"},
        {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]});
    let host = server_of(std::slice::from_ref(&tool), &result, "").await;
    let said = host.host.call("mcp__q__t", json!({})).await;
    assert!(refusal(&said).message.contains("see"));
    assert!(matches!(
        [&said.content()[0].body, &said.content()[1].body],
        [BlockBody::Link(link), BlockBody::Image(_)] if link.name == "help"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_does_not_match_its_schema_is_marked_or_an_error() {
    let tool = json!({"name": "t", "description": "A case.", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}});
    let strict = "[results]\nschema_mismatch = \"error\"\n";
    for (structured, part) in
        [(json!({"n": "seven"}), "`/properties/n/type`"), (json!(null), "it has no structured part")]
    {
        let result = json!({"content": [{"type": "text", "text": "done"}], "structuredContent": structured});
        let host = server_of(std::slice::from_ref(&tool), &result, "").await;
        let said = host.host.call("mcp__q__t", json!({})).await;
        assert!(value(&said).contains("done"), "{said:?}");
        assert_eq!(said.structured().is_some(), structured.is_object());
        let [mark] = said.content() else { panic!("{said:?}") };
        let expect = format!("does not match its schema: {}", if structured.is_null() { part } else { "" });
        assert!(
            matches!(&mark.body, BlockBody::Text(text) if text.contains(&expect) && text.contains(part)
                && !text.contains("seven")),
            "{mark:?}"
        );
        let host = server_of(std::slice::from_ref(&tool), &result, strict).await;
        let said = host.host.call("mcp__q__t", json!({})).await;
        assert_eq!(fault(&said).kind, FaultKind::BadOutput, "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_data_over_its_limit_becomes_text() {
    let tool = json!({"name": "t", "description": "A case.", "inputSchema": {"type": "object"}});
    let data = json!({"rows": vec!["row"; 20_000]});
    let result = json!({"content": [{"type": "text", "text": "twenty thousand"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA".repeat(20_000)}], "structuredContent": data});
    let host = server_of(&[tool], &result, "max_result_bytes = \"32KiB\"\n").await;
    let said = host.host.call("mcp__q__t", json!({})).await;
    assert!(value(&said).contains("twenty thousand") && said.structured().is_none());
    let texts: Vec<String> = said
        .content()
        .iter()
        .map(|block| match &block.body {
            BlockBody::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let texts = texts.join("\n");
    for part in ["{\"rows\":[\"row\"", "image/png of 60", "`result_bytes` is 32KiB"] {
        assert!(texts.contains(part), "{part}: {:?}", texts.replace("\"row\",", ""));
    }
    assert!(
        said.hints.lines.iter().any(|line| line.to_string().contains("max_result_bytes")),
        "{:?}",
        said.hints
    );
}
