use serde_json::{Value, json};
use toolbay_core::call::ToolCall;
use toolbay_core::call::invoke::Failure;
use toolbay_core::pipeline::{CallResult, PolicyHints, Shaping};
use toolbay_core::tool::content::{
    Blob, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ToolError, ToolOutput,
};
use toolbay_core::tool::schema::Schema;
use toolbay_core::tool::{ToolDef, ToolSource};
use toolbay_policy::limits::Usage;
use toolbay_policy::name::{QualifiedName, ToolName};

use super::*;

fn tool(name: &str, schema: &Value) -> ToolDef {
    let name = QualifiedName::from_native(&ToolName::new(&format!("p__{name}")).unwrap());
    ToolDef::new(name, "Adds.", Schema::input(&schema.to_string()).unwrap(), ToolSource::Builtin)
}

fn add() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}}, "required": ["a", "b"],
        "additionalProperties": false,
    })
}

fn delivered(id: &str, result: Result<ToolOutput, Failure>) -> CallResult {
    CallResult {
        memory: None,
        call_id: id.into(),
        tool: "p__add".to_owned(),
        through: None,
        result,
        shaping: Shaping::default(),
        usage: Usage::default(),
        duration_us: 0,
        source: None,
        call_sha256: None,
        cached: None,
        hints: PolicyHints::default(),
    }
}

fn failed(text: &str) -> Result<ToolOutput, Failure> {
    Err(Failure::Refused(ToolError::new(ErrorCode::ExecutionFailed, text)))
}

fn rich() -> ToolOutput {
    let block = |body| ContentBlock { body, annotations: None };
    let blob = |mime: &str| Blob { data: vec![1, 2, 3], mime_type: mime.to_owned() };
    ToolOutput {
        content: vec![
            block(BlockBody::Image(blob("image/png"))),
            block(BlockBody::Image(blob("image/tiff"))),
            block(BlockBody::Audio(blob("audio/wav"))),
            block(BlockBody::Embedded(EmbeddedResource {
                uri: "file:///x/a.pdf".to_owned(),
                mime_type: Some("application/pdf".to_owned()),
                body: ResourceBody::Blob(vec![4]),
            })),
        ],
        structured: serde_json::value::to_raw_value(&json!({"sum": 3})).ok(),
        ..ToolOutput::text("3")
    }
}

#[test]
fn definitions_have_the_format_of_each_vendor() {
    let def = tool("add", &add());
    let plain = json!({
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a", "b"], "additionalProperties": false,
    });
    let one = |vendor| definitions(vendor, [&def], false).tools;
    assert_eq!(
        one(Vendor::OpenaiChat),
        json!([{"type": "function", "function":
            {"name": "p__add", "description": "Adds.", "parameters": plain, "strict": false}}])
    );
    assert_eq!(
        one(Vendor::OpenaiResponses),
        json!([{"type": "function", "name": "p__add", "description": "Adds.", "parameters": plain, "strict": false}])
    );
    assert_eq!(
        one(Vendor::Anthropic),
        json!([{"name": "p__add", "description": "Adds.", "input_schema": plain}])
    );
    assert_eq!(
        one(Vendor::Gemini),
        json!([{"functionDeclarations":
            [{"name": "p__add", "description": "Adds.", "parametersJsonSchema": plain}]}])
    );
    let mcp = one(Vendor::Mcp);
    assert_eq!(mcp[0]["inputSchema"], *def.input_schema.value(), "MCP gets the canonical schema");
    for vendor in Vendor::ALL {
        assert_eq!(definitions(vendor, [], false).tools, json!([]));
        assert_eq!(vendor.as_str().parse(), Ok(vendor));
        assert_eq!(definitions(vendor, [&def], false).lost, []);
    }
    assert!("openai".parse::<Vendor>().unwrap_err().to_string().contains("openai-chat"));
}

#[test]
fn strict_mode_is_set_only_where_it_is_exact() {
    let strict = |schema: &Value| {
        let def = tool("t", schema);
        let chat = definitions(Vendor::OpenaiChat, [&def], true).tools[0]["function"].clone();
        let anthropic = definitions(Vendor::Anthropic, [&def], true).tools[0].clone();
        assert_eq!(chat["strict"] == json!(true), anthropic["strict"] == json!(true), "{schema}");
        (chat["strict"] == json!(true)).then(|| chat["parameters"].clone())
    };
    let exact = strict(&add()).unwrap();
    assert_eq!(exact["properties"]["b"], json!({"type": "integer"}), "a default is dropped");
    let object = |inner: Value| {
        json!({
            "type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": false,
        })
    };
    assert!(strict(&object(object(json!({"type": ["string", "null"]})))).is_some());
    for loose in [
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        object(json!({"type": "string", "minLength": 2})),
        object(json!({"type": "object", "properties": {"b": {"type": "string"}}})),
        object(json!({"oneOf": [{"type": "string"}, {"type": "null"}]})),
        object(json!({"type": "string", "format": "uri"})),
        object(json!(true)),
        json!({"type": "object", "additionalProperties": false, "anyOf": [{"required": []}]}),
    ] {
        assert_eq!(strict(&loose), None, "{loose}");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..12 {
        deep = object(deep);
    }
    assert_eq!(strict(&deep), None, "deeper than the vendor supports");
}

#[test]
fn unsupported_parts_of_a_schema_are_reported() {
    let schema = json!({
        "type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"$ref": "#/$defs/x", "description": "here"}, "b-c": {"type": "string"}},
        "$defs": {"x": {"type": "string", "description": "there"}},
    });
    let def = tool("t", &schema);
    for vendor in [Vendor::OpenaiChat, Vendor::OpenaiResponses, Vendor::Anthropic] {
        let Definitions { tools, lost, non_strict: not_strict } = definitions(vendor, [&def], true);
        assert_eq!(not_strict, ["p__t"]);
        assert!(!tools.to_string().contains("anyOf"));
        assert_eq!((lost.len(), lost[0].pointer.as_str(), lost[0].tool.as_str()), (1, "/anyOf", "p__t"));
    }
    let Definitions { tools, lost, .. } = definitions(Vendor::Gemini, [&def], false);
    let schema = &tools[0]["functionDeclarations"][0]["parametersJsonSchema"];
    assert_eq!(schema["properties"], json!({"a": {"type": "string", "description": "here"}}));
    assert!(schema.get("$defs").is_none());
    assert_eq!((lost.len(), lost[0].pointer.as_str()), (1, "/properties/b-c"));

    let circle = json!({
        "type": "object", "properties": {"child": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
    });
    let Definitions { tools, lost, .. } = definitions(Vendor::Gemini, [&tool("t", &circle)], false);
    assert!(tools.to_string().contains("$ref") && lost[0].pointer == "/$defs");
}

#[test]
fn calls_are_parsed_from_every_shape() {
    let chat =
        json!({"id": "c1", "type": "function", "function": {"name": "p__add", "arguments": "{\"a\":1}"}});
    let response = json!({"type": "function_call", "id": "fc", "call_id": "c1", "name": "p__add", "arguments": "{\"a\":1}"});
    let anthropic = json!({"type": "tool_use", "id": "c1", "name": "p__add", "input": {"a": 1}});
    let gemini = json!({"functionCall": {"id": "c1", "name": "p__add", "args": {"a": 1}}});
    let text = json!({"type": "text", "text": "hm"});
    for (vendor, shapes) in [
        (
            Vendor::OpenaiChat,
            vec![
                json!({"role": "assistant", "tool_calls": [chat]}),
                json!({"choices": [{"message": {"role": "assistant", "tool_calls": [chat]}}]}),
                json!([chat]),
                chat.clone(),
            ],
        ),
        (
            Vendor::OpenaiResponses,
            vec![json!({"output": [text, response]}), json!([response]), response.clone()],
        ),
        (
            Vendor::Anthropic,
            vec![
                json!({"role": "assistant", "content": [text, anthropic]}),
                json!([anthropic]),
                json!([{"type": "server_tool_use", "id": "c1", "name": "p__add", "input": {"a": 1}}]),
            ],
        ),
        (
            Vendor::Gemini,
            vec![
                json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hm"}, gemini]}}]}),
                json!({"role": "model", "parts": [gemini]}),
                json!([{"function_call": {"id": "c1", "name": "p__add", "args": {"a": 1}}}]),
            ],
        ),
        (
            Vendor::Mcp,
            vec![json!({"jsonrpc": "2.0", "id": "c1", "method": "tools/call",
                "params": {"name": "p__add", "arguments": {"a": 1}}})],
        ),
    ] {
        for shape in shapes {
            let calls = parse_calls(vendor, &shape).unwrap();
            assert_eq!(calls.len(), 1, "{shape}");
            assert_eq!(
                (&*calls[0].id, calls[0].tool.as_str(), calls[0].args.as_str()),
                ("c1", "p__add", r#"{"a":1}"#)
            );
        }
        // Written messages can be parsed again.
        let calls = [ToolCall::new("c1", "p__add", r#"{"a":1}"#), ToolCall::new("c2", "p__add", "")];
        let read: Vec<ToolCall> = call_message(vendor, &calls)
            .iter()
            .flat_map(|message| parse_calls(vendor, message).unwrap())
            .collect();
        let ids: Vec<&str> = read.iter().map(|call| &*call.id).collect();
        assert_eq!(ids, ["c1", "c2"], "{}", vendor.as_str());
        assert_eq!((read[0].args.as_str(), read[1].args.as_str()), (r#"{"a":1}"#, "{}"));
    }
}

#[test]
fn unusual_messages_have_a_defined_result() {
    for vendor in Vendor::ALL {
        for wrong in [json!(null), json!("text"), json!(7), json!({"hello": 1})] {
            assert!(parse_calls(vendor, &wrong).is_err(), "{} {wrong}", vendor.as_str());
        }
        assert_eq!(parse_calls(vendor, &json!([])).unwrap().len(), 0);
        assert_eq!(parse_calls(vendor, &json!([null, 1, {"type": "tool_use"}])).unwrap().len(), 0);
    }
    let none = [
        (Vendor::OpenaiChat, json!({"role": "assistant", "content": "hi"})),
        (Vendor::Anthropic, json!({"role": "assistant", "content": "hi"})),
        (Vendor::Gemini, json!({"candidates": []})),
    ];
    for (vendor, message) in none {
        assert_eq!(parse_calls(vendor, &message).unwrap().len(), 0, "{message}");
    }
    let nameless = json!([{"id": "c", "type": "function", "function": {"name": "", "arguments": "{}"}}]);
    assert_eq!(parse_calls(Vendor::OpenaiChat, &nameless).unwrap().len(), 0);
    let broken = json!([{"id": "c", "type": "function", "function": {"name": "t", "arguments": "{oops"}}]);
    assert_eq!(
        parse_calls(Vendor::OpenaiChat, &broken).unwrap()[0].args,
        "{oops",
        "the pipeline reports invalid arguments"
    );
    let anonymous = json!([{"functionCall": {"name": "a"}}, {"text": "x"}, {"functionCall": {"name": "b"}}]);
    let ids: Vec<String> = parse_calls(Vendor::Gemini, &anonymous)
        .unwrap()
        .into_iter()
        .map(|call| call.id.to_string())
        .collect();
    assert_eq!(ids, ["call_1", "call_3"]);
}

#[test]
fn results_have_the_ids_of_their_calls() {
    let results = [delivered("c1", Ok(ToolOutput::text("3"))), delivered("c2", failed("no"))];
    let write = |vendor| Value::Array(result_messages(vendor, &results));
    assert_eq!(
        write(Vendor::OpenaiChat),
        json!([{"role": "tool", "tool_call_id": "c1", "content": "3"},
               {"role": "tool", "tool_call_id": "c2", "content": "error: no"}])
    );
    assert_eq!(
        write(Vendor::OpenaiResponses),
        json!([{"type": "function_call_output", "call_id": "c1", "output": "3"},
               {"type": "function_call_output", "call_id": "c2", "output": "error: no"}])
    );
    assert_eq!(
        write(Vendor::Anthropic),
        json!([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": false, "content": [{"type": "text", "text": "3"}]},
            {"type": "tool_result", "tool_use_id": "c2", "is_error": true, "content": [{"type": "text", "text": "no"}]},
        ]}])
    );
    assert_eq!(
        write(Vendor::Gemini),
        json!([{"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "p__add", "response": {"output": "3"}}},
            {"functionResponse": {"id": "c2", "name": "p__add", "response": {"error": "no"}}},
        ]}])
    );
    for vendor in Vendor::ALL {
        assert_eq!(result_messages(vendor, &[]), Vec::<Value>::new());
    }
}

#[test]
fn images_and_files_are_sent_where_a_vendor_accepts_them() {
    let results = [delivered("c1", Ok(rich()))];
    let write = |vendor| Value::Array(result_messages(vendor, &results));
    let chat = write(Vendor::OpenaiChat);
    assert_eq!(chat[1]["content"][1]["image_url"]["url"], "data:image/png;base64,AQID");
    assert_eq!(
        chat[0]["content"],
        "3\n[image: see the next message]\n[image: image/tiff, 3 bytes]\n[audio: audio/wav, 3 bytes]\n[file: application/pdf, 1 bytes]"
    );
    let response = write(Vendor::OpenaiResponses);
    let kinds: Vec<&str> =
        response[0]["output"].as_array().unwrap().iter().map(|p| p["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["input_text", "input_image", "input_text", "input_text", "input_file"]);
    let blocks = &write(Vendor::Anthropic)[0]["content"][0]["content"];
    let kinds: Vec<&str> = blocks.as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "text", "text", "document"]);
    let media = &write(Vendor::Gemini)[0]["parts"][0]["functionResponse"]["parts"];
    assert_eq!(media.as_array().unwrap().len(), 3, "image, audio and document");
    assert_eq!(write(Vendor::Mcp)[0]["result"]["structuredContent"], json!({"sum": 3}));
    let empty = [delivered("c", Ok(ToolOutput::text("")))];
    assert_eq!(result_messages(Vendor::Anthropic, &empty)[0]["content"][0]["content"], json!([]));
}
