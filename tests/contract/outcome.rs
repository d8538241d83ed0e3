//! Results and definitions as comparable JSON.

use serde_json::{Value, json};
use toolbay::CallResult;
use toolbay::core::call::invoke::Failure;
use toolbay::core::tool::ToolDef;
use toolbay::core::tool::content::{
    BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ResourceBody,
};

/// A result. Of a fault, only its kind and limit: the rest of the text comes from the engine.
pub(crate) fn of(delivered: &CallResult, progress: Vec<Value>) -> Value {
    let outcome = integration_tests::outcome(delivered);
    let mut seen = match &delivered.result {
        Ok(output) => json!({
            "value": output.value,
            "structured": output.structured.as_ref().map(|raw| parsed(raw.get())),
            "content": output.content.iter().map(block).collect::<Vec<_>>(),
            "cost_usd": output.cost_usd,
            "meta": output.meta.as_ref().map(|raw| parsed(raw.get())),
        }),
        Err(Failure::Refused(error)) => json!({
            "code": error.code.as_str(),
            "message": error.message,
            "subject": error.subject,
            "cost_usd": error.cost_usd,
        }),
        Err(Failure::Fault(fault)) => json!({
            "limit": fault.limit.as_ref().map(|limit| limit.name),
            "setting": fault.limit.as_ref().map(|limit| limit.setting.clone()),
        }),
        Err(other) => json!({"host": other.to_string()}),
    };
    seen["outcome"] = json!(outcome);
    seen["progress"] = Value::Array(progress);
    seen
}

/// A block with its annotations. Bytes are numbers.
fn block(block: &ContentBlock) -> Value {
    let body = match &block.body {
        BlockBody::Text(text) => json!({"text": text}),
        BlockBody::Image(blob) => json!({"image": blob.data, "mime_type": blob.mime_type}),
        BlockBody::Audio(blob) => json!({"audio": blob.data, "mime_type": blob.mime_type}),
        BlockBody::Link(link) => json!({
            "link": link.uri, "name": link.name, "title": link.title, "description": link.description,
            "mime_type": link.mime_type, "size": link.size,
        }),
        BlockBody::Embedded(EmbeddedResource { uri, mime_type, body }) => json!({
            "embedded": uri, "mime_type": mime_type,
            "body": match body {
                ResourceBody::Text(text) => json!(text),
                ResourceBody::Blob(data) => json!(data),
            },
        }),
    };
    let annotations = block.annotations.as_ref().map(|annotations| {
        let BlockAnnotations { audience, priority, last_modified } = annotations;
        json!({"audience": audience, "priority": priority, "last_modified": last_modified})
    });
    json!([body, annotations])
}

/// A definition without its source.
pub(crate) fn definition(def: &ToolDef) -> Value {
    json!({
        "title": def.title,
        "description": def.description,
        "input": def.input_schema.value(),
        "output": def.output_schema.as_ref().map(|schema| schema.value().clone()),
        "toolset": def.keywords.toolset,
        "tags": def.keywords.tags,
        "traits": def.traits,
        "max_result_chars": def.max_result_chars,
        "timeout": def.timeout.map(|timeout| timeout.as_millis() as u64),
        "capabilities": def.capabilities,
        "meta": def.meta.as_ref().map(|raw| parsed(raw.get())),
    })
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
