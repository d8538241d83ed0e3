//! Results of calls in the format of a vendor.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Vendor;
use toolbay_core::pipeline::CallResult;
use toolbay_core::tool::content::{Blob, BlockBody, ResourceBody};

/// Image types that all vendors accept.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The messages that follow the model's message: one result for each call, with the id of the call, in the order of the
/// calls. Content that a vendor does not accept, such as audio or unusual image types, becomes a note in the text.
///
/// ```
/// # use toolbay_core::pipeline::{CallResult, PolicyHints, Shaping};
/// # use toolbay_core::tool::content::ToolOutput;
/// use serde_json::json;
/// use toolbay_vendor::{Vendor, result_messages};
///
/// # let result = CallResult {
/// #     call_id: "call_1".into(),
/// #     tool: "text__word_count".to_owned(),
/// #     through: None,
/// #     result: Ok(ToolOutput::text("3 words")),
/// #     shaping: Shaping::default(),
/// #     usage: toolbay_policy::limits::Usage::default(),
/// #     duration_us: 0,
/// #     source: None,
/// #     call_sha256: None,
/// #     cached: None,
/// #     memory: None,
/// #     hints: PolicyHints::default(),
/// # };
/// let messages = result_messages(Vendor::OpenaiChat, &[result]);
/// assert_eq!(messages, [json!({"role": "tool", "tool_call_id": "call_1", "content": "3 words"})]);
/// ```
#[must_use]
pub fn result_messages(vendor: Vendor, results: &[CallResult]) -> Vec<Value> {
    if results.is_empty() {
        return Vec::new();
    }
    match vendor {
        Vendor::OpenaiChat => openai_chat_messages(results),
        Vendor::OpenaiResponses => results.iter().map(openai_response_item).collect(),
        Vendor::Anthropic => {
            let blocks: Vec<Value> = results.iter().map(anthropic_block).collect();
            vec![json!({"role": "user", "content": blocks})]
        }
        Vendor::Gemini => {
            let parts: Vec<Value> = results.iter().map(gemini_part).collect();
            vec![json!({"role": "user", "parts": parts})]
        }
        Vendor::Mcp => results.iter().map(mcp_message).collect(),
    }
}

/// A result as text and parts, from which all formats are written.
struct ResultParts<'a> {
    /// The main text.
    text: String,
    error: bool,
    /// The parts after the text.
    more: Vec<ResultPart<'a>>,
}

enum ResultPart<'a> {
    Text(String),
    Image(&'a Blob),
    Audio(&'a Blob),
    Document { name: String, mime: &'a str, data: &'a [u8] },
}

impl<'a> ResultParts<'a> {
    fn from_result(result: &'a CallResult) -> Self {
        let mark = result.shaping.mark.as_ref();
        let hints = result.hints.for_model(mark).map(ResultPart::Text);
        let more = result.content().iter().map(|block| to_part(&block.body)).chain(hints).collect();
        let text = match &result.result {
            Ok(output) => output.value.clone(),
            Err(failure) => failure.to_string(),
        };
        // Models read text only, so a result without text is written as JSON.
        let text = match result.structured() {
            Some(structured) if text.is_empty() => {
                let json = structured.get();
                mark.map_or_else(|| json.to_owned(), |mark| mark.wrap_text(json))
            }
            _ => text,
        };
        Self { text, error: result.result.is_err(), more }
    }
}

fn to_part(body: &BlockBody) -> ResultPart<'_> {
    match body {
        BlockBody::Text(text) => ResultPart::Text(text.clone()),
        BlockBody::Image(blob) if IMAGE_TYPES.contains(&blob.mime_type.as_str()) => ResultPart::Image(blob),
        BlockBody::Image(blob) => ResultPart::Text(note("image", &blob.mime_type, blob.data.len())),
        BlockBody::Audio(blob) => ResultPart::Audio(blob),
        BlockBody::Link(link) => ResultPart::Text(format!("[{}]({})", link.name, link.uri)),
        BlockBody::Embedded(resource) => {
            let mime = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
            match &resource.body {
                ResourceBody::Text(text) => ResultPart::Text(text.clone()),
                ResourceBody::Blob(data) if mime == "application/pdf" => {
                    let name = resource.uri.rsplit('/').next().unwrap_or_default();
                    ResultPart::Document { name: name.to_owned(), mime, data }
                }
                ResourceBody::Blob(data) => ResultPart::Text(note("file", mime, data.len())),
            }
        }
    }
}

fn note(what: &str, mime: &str, bytes: usize) -> String {
    format!("[{what}: {mime}, {bytes} bytes]")
}

fn data_url(mime: &str, data: &[u8]) -> String {
    format!("data:{mime};base64,{}", STANDARD.encode(data))
}

impl ResultPart<'_> {
    /// The part as text, for formats that accept only text.
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Image(blob) => note("image", &blob.mime_type, blob.data.len()),
            Self::Audio(blob) => note("audio", &blob.mime_type, blob.data.len()),
            Self::Document { mime, data, .. } => note("file", mime, data.len()),
        }
    }
}

/// The Chat Completions API accepts only text in a result. Images follow in a user message with the id of their call.
fn openai_chat_messages(results: &[CallResult]) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut images = Vec::new();
    for result in results {
        let parts = ResultParts::from_result(result);
        let mut lines = vec![if parts.error { format!("error: {}", parts.text) } else { parts.text }];
        for part in &parts.more {
            if let ResultPart::Image(blob) = part {
                images.push(json!({"type": "text", "text": format!("Image from call {}:", result.call_id)}));
                let url = data_url(&blob.mime_type, &blob.data);
                images.push(json!({"type": "image_url", "image_url": {"url": url}}));
                lines.push("[image: see the next message]".to_owned());
            } else {
                lines.push(part.to_text());
            }
        }
        lines.retain(|line| !line.is_empty());
        messages.push(json!({"role": "tool", "tool_call_id": result.call_id, "content": lines.join("\n")}));
    }
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    messages
}

fn openai_response_item(result: &CallResult) -> Value {
    let parts = ResultParts::from_result(result);
    let text = if parts.error { format!("error: {}", parts.text) } else { parts.text };
    let output = if parts.more.is_empty() {
        Value::String(text)
    } else {
        let more = parts.more.iter().map(|part| match part {
            ResultPart::Image(blob) => json!({
                "type": "input_image", "detail": "auto", "image_url": data_url(&blob.mime_type, &blob.data),
            }),
            ResultPart::Document { name, mime, data } => {
                json!({"type": "input_file", "filename": name, "file_data": data_url(mime, data)})
            }
            ResultPart::Text(_) | ResultPart::Audio(_) => {
                json!({"type": "input_text", "text": part.to_text()})
            }
        });
        std::iter::once(json!({"type": "input_text", "text": text})).chain(more).collect()
    };
    json!({"type": "function_call_output", "call_id": result.call_id, "output": output})
}

fn anthropic_block(result: &CallResult) -> Value {
    let parts = ResultParts::from_result(result);
    let base64 = |mime: &str, data: &[u8]| json!({"type": "base64", "media_type": mime, "data": STANDARD.encode(data)});
    let more = parts.more.iter().map(|part| match part {
        ResultPart::Image(blob) => json!({"type": "image", "source": base64(&blob.mime_type, &blob.data)}),
        ResultPart::Document { mime, data, .. } => json!({"type": "document", "source": base64(mime, data)}),
        ResultPart::Text(_) | ResultPart::Audio(_) => json!({"type": "text", "text": part.to_text()}),
    });
    // The API refuses empty text blocks.
    let content: Vec<Value> = std::iter::once(json!({"type": "text", "text": parts.text}))
        .chain(more)
        .filter(|block| block.get("text").and_then(Value::as_str) != Some(""))
        .collect();
    json!({
        "type": "tool_result", "tool_use_id": result.call_id, "is_error": parts.error, "content": content,
    })
}

fn gemini_part(result: &CallResult) -> Value {
    let parts = ResultParts::from_result(result);
    let mut text = parts.text;
    let mut media = Vec::new();
    for part in &parts.more {
        let inline = match part {
            ResultPart::Image(blob) | ResultPart::Audio(blob) => {
                Some((blob.mime_type.as_str(), blob.data.as_slice()))
            }
            ResultPart::Document { mime, data, .. } => Some((*mime, *data)),
            ResultPart::Text(more) => {
                text.push('\n');
                text.push_str(more);
                None
            }
        };
        if let Some((mime, data)) = inline {
            media.push(json!({"inlineData": {"mimeType": mime, "data": STANDARD.encode(data)}}));
        }
    }
    let key = if parts.error { "error" } else { "output" };
    // The name that the model used.
    let name = result.through.as_ref().unwrap_or(&result.tool);
    let mut response = json!({"id": result.call_id, "name": name, "response": {key: text}});
    if let (Value::Object(map), false) = (&mut response, media.is_empty()) {
        map.insert("parts".to_owned(), Value::Array(media));
    }
    json!({"functionResponse": response})
}

/// A result in MCP, with all kinds of blocks.
fn mcp_message(result: &CallResult) -> Value {
    let parts = ResultParts::from_result(result);
    let mut content = Vec::new();
    if !parts.text.is_empty() {
        content.push(json!({"type": "text", "text": parts.text}));
    }
    let mut answer = json!({"isError": parts.error});
    content.extend(result.content().iter().map(|block| mcp_block(&block.body)));
    if let Value::Object(map) = &mut answer {
        let structured = result.structured().and_then(|raw| serde_json::from_str(raw.get()).ok());
        map.extend(structured.map(|value: Value| ("structuredContent".to_owned(), value)));
        map.insert("content".to_owned(), Value::Array(content));
    }
    json!({"jsonrpc": "2.0", "id": result.call_id, "result": answer})
}

fn mcp_block(body: &BlockBody) -> Value {
    let blob = |kind: &str, blob: &Blob| json!({"type": kind, "mimeType": blob.mime_type, "data": STANDARD.encode(&blob.data)});
    match body {
        BlockBody::Text(text) => json!({"type": "text", "text": text}),
        BlockBody::Image(image) => blob("image", image),
        BlockBody::Audio(audio) => blob("audio", audio),
        BlockBody::Link(link) => without_nulls(json!({
            "type": "resource_link", "uri": link.uri, "name": link.name, "title": link.title,
            "description": link.description, "mimeType": link.mime_type, "size": link.size,
        })),
        BlockBody::Embedded(resource) => {
            let (text, data) = match &resource.body {
                ResourceBody::Text(text) => (Some(text), None),
                ResourceBody::Blob(data) => (None, Some(STANDARD.encode(data))),
            };
            let resource =
                json!({"uri": resource.uri, "mimeType": resource.mime_type, "text": text, "blob": data});
            json!({"type": "resource", "resource": without_nulls(resource)})
        }
    }
}

fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(map) = &mut object {
        map.retain(|_, value| !value.is_null());
    }
    object
}
