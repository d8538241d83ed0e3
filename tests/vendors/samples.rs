//! What the library writes in each vendor's format, as JSON for `check.py`, which holds it against the vendors' own
//! types; and the way back: `samples parse` reads `[{"vendor": …, "message": …}]` on stdin and prints the calls in it.

use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use toolbay::core::audit::LogAudit;
use toolbay::core::call::invoke::{BoxFuture, Failure, Invoke, ToolOutcome};
use toolbay::core::call::{AdmittedCall, CallContext};
use toolbay::core::pipeline::Pipeline;
use toolbay::core::registry::{Bundle, Registry, ToolEntry};
use toolbay::core::tool::content::{
    Blob, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ResourceLink, ToolError,
    ToolOutput,
};
use toolbay::core::tool::fault::{Fault, FaultKind};
use toolbay::core::tool::schema::Schema;
use toolbay::core::tool::{ToolDef, ToolSource};
use toolbay::policy::limits::Usage;
use toolbay::policy::name::{QualifiedName, ToolName};
use toolbay::vendor::{self, Vendor};
use toolbay::{Filter, ToolCall, TurnContext, View};

/// Answers by what its argument `kind` says.
#[derive(Debug)]
struct Actor;

impl Invoke for Actor {
    fn invoke<'a>(&'a self, call: &'a AdmittedCall, _: &'a Arc<CallContext>) -> BoxFuture<'a, ToolOutcome> {
        let kind = call.parsed().get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        Box::pin(async move { ToolOutcome { result: act(&kind), usage: Usage::default() } })
    }
}

fn act(kind: &str) -> Result<ToolOutput, Failure> {
    let blob = |mime: &str| Blob { data: vec![0, 255, 1, 2, 3], mime_type: mime.to_owned() };
    let with = |body| ToolOutput {
        content: vec![ContentBlock { body, annotations: None }],
        ..ToolOutput::text("see the block")
    };
    let embedded = |mime: &str, body| {
        let (uri, mime_type) = ("file:///docs/report.pdf".to_owned(), Some(mime.to_owned()));
        BlockBody::Embedded(EmbeddedResource { uri, mime_type, body })
    };
    let structured = serde_json::value::to_raw_value(&json!({"sum": 3, "parts": [1, 2]})).ok();
    Ok(match kind {
        "refused" => return Err(ToolError::new(ErrorCode::ExecutionFailed, "no such account").into()),
        "fault" => return Err(Fault::new(FaultKind::Trap, "trapped").into()),
        "empty" => ToolOutput::text(""),
        "structured" => ToolOutput { structured, ..ToolOutput::default() },
        "both" => ToolOutput { structured, ..ToolOutput::text("the sum is 3") },
        "png" => with(BlockBody::Image(blob("image/png"))),
        "tiff" => with(BlockBody::Image(blob("image/tiff"))),
        "wav" => with(BlockBody::Audio(blob("audio/wav"))),
        "pdf" => with(embedded("application/pdf", ResourceBody::Blob(vec![1, 2, 3]))),
        "zip" => with(embedded("application/zip", ResourceBody::Blob(vec![1, 2, 3]))),
        "note" => with(embedded("text/plain", ResourceBody::Text("a note".to_owned()))),
        "link" => with(BlockBody::Link(ResourceLink {
            uri: "https://example.com/a".to_owned(),
            name: "a".to_owned(),
            title: None,
            description: Some("an example".to_owned()),
            mime_type: None,
            size: Some(3),
        })),
        _ => ToolOutput::text("plain text with \u{1f642} and \"quotes\""),
    })
}

const KINDS: [&str; 13] = [
    "text",
    "refused",
    "fault",
    "empty",
    "structured",
    "both",
    "png",
    "tiff",
    "wav",
    "pdf",
    "zip",
    "note",
    "link",
];

/// Tools whose schemas each vendor takes differently.
fn schemas() -> [(&'static str, Value); 6] {
    [
        (
            "add",
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
                "required": ["a", "b"], "additionalProperties": false}),
        ),
        ("actor", json!({"type": "object", "properties": {"kind": {"type": "string"}}})),
        ("nothing", json!({"type": "object"})),
        (
            "nested",
            json!({"type": "object", "additionalProperties": false, "required": ["who", "when"],
                "properties": {
                    "who": {"type": "object", "additionalProperties": false, "required": ["name", "tags"],
                        "properties": {"name": {"type": ["string", "null"], "description": "a name"},
                            "tags": {"type": "array", "items": {"enum": ["a", "b"], "type": "string"}}}},
                    "when": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}}}),
        ),
        (
            "rooted",
            json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                "properties": {"a": {"$ref": "#/$defs/x", "description": "here"}, "b-c": {"type": "string"},
                    "b": {"type": "integer", "exclusiveMinimum": 3}, "c": {"const": 4}},
                "$defs": {"x": {"type": "string", "description": "there"}}}),
        ),
        (
            "circle",
            json!({"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}}}),
        ),
    ]
}

fn view() -> Result<View> {
    let mut tools = Vec::new();
    for (name, schema) in schemas() {
        let mut def = ToolDef::new(
            QualifiedName::from_native(&ToolName::new(name)?),
            format!("The tool {name}. It is a sample."),
            Schema::input(&schema.to_string()).context("a sample's schema")?,
            ToolSource::Builtin,
        );
        def.title = Some(format!("Tool {name}"));
        def.traits.read_only = name == "add";
        if name == "nothing" {
            let schema = json!({"type": "object", "properties": {"sum": {"type": "integer"}}}).to_string();
            def.output_schema = Some(Schema::output(&schema).context("a sample's schema")?);
        }
        tools.push(ToolEntry::new(def, Arc::new(Actor)));
    }
    let registry = Registry::default();
    registry.register(Bundle { tools, reducers: Vec::new() })?;
    Ok(View::new(registry.snapshot(), Filter::default()))
}

async fn samples() -> Result<Value> {
    let view = view()?;
    let mut calls: Vec<ToolCall> = KINDS
        .iter()
        .map(|kind| ToolCall::new(format!("call-{kind}"), "actor", json!({"kind": kind}).to_string()))
        .collect();
    calls.push(ToolCall::new("call-unknown", "no_such_tool", ""));
    let pipeline = Pipeline::new(Arc::new(LogAudit));
    let results = pipeline.call_all(&view, calls.clone(), TurnContext::default()).await;
    let mut all = Map::new();
    for vendor in Vendor::ALL {
        let definitions = |strict| {
            let made = vendor::view_definitions(vendor, &view, strict);
            json!({"tools": made.tools, "lost": made.lost})
        };
        all.insert(
            vendor.as_str().to_owned(),
            json!({
                "plain": definitions(false), "strict": definitions(true),
                "calls": vendor::call_message(vendor, &calls),
                "results": vendor::result_messages(vendor, &results),
            }),
        );
    }
    let ids: Vec<&str> = calls.iter().map(|call| &*call.id).collect();
    let failed: Vec<bool> = results.iter().map(|result| result.result.is_err()).collect();
    Ok(json!({"vendors": all, "ids": ids, "failed": failed}))
}

fn parse() -> Result<Value> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let messages: Vec<Value> = serde_json::from_str(&text)?;
    let mut all = Vec::new();
    for one in &messages {
        let name = one.get("vendor").and_then(Value::as_str).context("a vendor")?;
        let vendor: Vendor = name.parse()?;
        let calls = vendor::parse_calls(vendor, one.get("message").context("a message")?)?;
        all.push(
            calls.iter().map(|call| json!({"id": call.id, "tool": call.tool, "args": call.args})).collect(),
        );
    }
    Ok(Value::Array(all))
}

#[tokio::main]
async fn main() -> Result<()> {
    let printed = match std::env::args().nth(1).as_deref() {
        Some("parse") => parse()?,
        _ => samples().await?,
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &printed)?;
    Ok(())
}
