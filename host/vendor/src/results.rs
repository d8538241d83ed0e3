//! Results: what a vendor is told of the calls that ran.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Vendor;
use toolbay_core::pipeline::CallResult;
use toolbay_core::tool::content::{Blob, BlockBody, ResourceBody};

/// Pictures that the vendors read.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The messages that follow the model's: every call gets its result, under its own id, in the order of the calls.
/// What a vendor cannot take (sound, an odd picture) becomes a note in the text.
#[must_use]
pub fn result_messages(vendor: Vendor, results: &[CallResult]) -> Vec<Value> {
    if results.is_empty() {
        return Vec::new();
    }
    match vendor {
        Vendor::OpenaiChat => openai_chat(results),
        Vendor::OpenaiResponses => results.iter().map(openai_response).collect(),
        Vendor::Anthropic => {
            let blocks: Vec<Value> = results.iter().map(anthropic).collect();
            vec![json!({"role": "user", "content": blocks})]
        }
        Vendor::Gemini => {
            let parts: Vec<Value> = results.iter().map(gemini).collect();
            vec![json!({"role": "user", "parts": parts})]
        }
        Vendor::Mcp => results.iter().map(mcp).collect(),
    }
}

/// A result as parts that every format is made of.
struct Parts<'a> {
    /// The text, first of all.
    text: String,
    error: bool,
    /// What follows it.
    more: Vec<Part<'a>>,
}

enum Part<'a> {
    Text(String),
    Picture(&'a Blob),
    Sound(&'a Blob),
    Document { name: String, mime: &'a str, data: &'a [u8] },
}

impl<'a> Parts<'a> {
    fn of(result: &'a CallResult) -> Self {
        let hints = result.hints.for_model().map(Part::Text);
        let output = match &result.result {
            Ok(output) => output,
            Err(failure) => {
                let more = hints.into_iter().collect();
                return Self { text: failure.to_string(), error: true, more };
            }
        };
        let more = output.content.iter().map(|block| part(&block.body)).chain(hints).collect();
        // A model reads text alone: a result that is only structured is told as JSON.
        let text = match &output.structured {
            Some(structured) if output.value.is_empty() => structured.get().to_owned(),
            _ => output.value.clone(),
        };
        Self { text, error: false, more }
    }
}

fn part(body: &BlockBody) -> Part<'_> {
    match body {
        BlockBody::Text(text) => Part::Text(text.clone()),
        BlockBody::Image(blob) if PICTURES.contains(&blob.mime_type.as_str()) => Part::Picture(blob),
        BlockBody::Image(blob) => Part::Text(note("image", &blob.mime_type, blob.data.len())),
        BlockBody::Audio(blob) => Part::Sound(blob),
        BlockBody::Link(link) => Part::Text(format!("[{}]({})", link.name, link.uri)),
        BlockBody::Embedded(resource) => {
            let mime = resource.mime_type.as_deref().unwrap_or("application/octet-stream");
            match &resource.body {
                ResourceBody::Text(text) => Part::Text(text.clone()),
                ResourceBody::Blob(data) if mime == "application/pdf" => {
                    let name = resource.uri.rsplit('/').next().unwrap_or_default();
                    Part::Document { name: name.to_owned(), mime, data }
                }
                ResourceBody::Blob(data) => Part::Text(note("file", mime, data.len())),
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

impl Part<'_> {
    /// The part in words, for a format or a place that takes only text.
    fn in_words(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Picture(blob) => note("image", &blob.mime_type, blob.data.len()),
            Self::Sound(blob) => note("audio", &blob.mime_type, blob.data.len()),
            Self::Document { mime, data, .. } => note("file", mime, data.len()),
        }
    }
}

/// Chat completions take text alone in a result: pictures follow in a message of the user, named after their call.
fn openai_chat(results: &[CallResult]) -> Vec<Value> {
    let mut messages = Vec::new();
    let mut pictures = Vec::new();
    for result in results {
        let parts = Parts::of(result);
        let mut lines = vec![if parts.error { format!("error: {}", parts.text) } else { parts.text }];
        for part in &parts.more {
            if let Part::Picture(blob) = part {
                pictures
                    .push(json!({"type": "text", "text": format!("Image from call {}:", result.call_id)}));
                let url = data_url(&blob.mime_type, &blob.data);
                pictures.push(json!({"type": "image_url", "image_url": {"url": url}}));
                lines.push("[image: see the next message]".to_owned());
            } else {
                lines.push(part.in_words());
            }
        }
        lines.retain(|line| !line.is_empty());
        messages.push(json!({"role": "tool", "tool_call_id": result.call_id, "content": lines.join("\n")}));
    }
    if !pictures.is_empty() {
        messages.push(json!({"role": "user", "content": pictures}));
    }
    messages
}

fn openai_response(result: &CallResult) -> Value {
    let parts = Parts::of(result);
    let text = if parts.error { format!("error: {}", parts.text) } else { parts.text };
    let output = if parts.more.is_empty() {
        Value::String(text)
    } else {
        let more = parts.more.iter().map(|part| match part {
            Part::Picture(blob) => json!({
                "type": "input_image", "detail": "auto", "image_url": data_url(&blob.mime_type, &blob.data),
            }),
            Part::Document { name, mime, data } => {
                json!({"type": "input_file", "filename": name, "file_data": data_url(mime, data)})
            }
            Part::Text(_) | Part::Sound(_) => json!({"type": "input_text", "text": part.in_words()}),
        });
        std::iter::once(json!({"type": "input_text", "text": text})).chain(more).collect()
    };
    json!({"type": "function_call_output", "call_id": result.call_id, "output": output})
}

fn anthropic(result: &CallResult) -> Value {
    let parts = Parts::of(result);
    let base64 = |mime: &str, data: &[u8]| json!({"type": "base64", "media_type": mime, "data": STANDARD.encode(data)});
    let more = parts.more.iter().map(|part| match part {
        Part::Picture(blob) => json!({"type": "image", "source": base64(&blob.mime_type, &blob.data)}),
        Part::Document { mime, data, .. } => json!({"type": "document", "source": base64(mime, data)}),
        Part::Text(_) | Part::Sound(_) => json!({"type": "text", "text": part.in_words()}),
    });
    // An empty text block is refused.
    let content: Vec<Value> = std::iter::once(json!({"type": "text", "text": parts.text}))
        .chain(more)
        .filter(|block| block.get("text").and_then(Value::as_str) != Some(""))
        .collect();
    json!({
        "type": "tool_result", "tool_use_id": result.call_id, "is_error": parts.error, "content": content,
    })
}

fn gemini(result: &CallResult) -> Value {
    let parts = Parts::of(result);
    let mut text = parts.text;
    let mut media = Vec::new();
    for part in &parts.more {
        let inline = match part {
            Part::Picture(blob) | Part::Sound(blob) => Some((blob.mime_type.as_str(), blob.data.as_slice())),
            Part::Document { mime, data, .. } => Some((*mime, *data)),
            Part::Text(more) => {
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

/// A result as the protocol has it, with all kinds of blocks.
fn mcp(result: &CallResult) -> Value {
    let parts = Parts::of(result);
    let mut content = Vec::new();
    if !parts.text.is_empty() {
        content.push(json!({"type": "text", "text": parts.text}));
    }
    let mut answer = json!({"isError": parts.error});
    if let (Value::Object(map), Ok(output)) = (&mut answer, &result.result) {
        content.extend(output.content.iter().map(|block| mcp_block(&block.body)));
        let structured = output.structured.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        map.extend(structured.map(|value: Value| ("structuredContent".to_owned(), value)));
    }
    if let Value::Object(map) = &mut answer {
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
