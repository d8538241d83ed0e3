//! From a server's result to one of ours.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolbay_core::tool::content::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ResourceLink,
    Role, ToolError, ToolOutput,
};
use toolbay_policy::text::one_line;

use super::bounds::{MAX_INPUTS, MAX_QUESTION, MAX_REQUEST_STATE};
use crate::protocol::bounded::{self, Entries, First};
use crate::protocol::bounds::MAX_HEARD;
use crate::protocol::message;

/// Blocks of one result that are taken.
const MAX_BLOCKS: usize = 1_000;
/// Bytes of the annotations of one block.
const MAX_HINTS: usize = 4 << 10;

/// What a server answered to a call.
#[derive(Debug)]
pub(super) enum Came {
    /// A result.
    Output(ToolOutput),
    /// The tool said no.
    Error(ToolError),
    /// It wants to know more first (2026-07-28).
    Inputs { requests: Vec<(String, InputRequest)>, state: Option<String> },
}

/// One question of a server, before a call goes on.
#[derive(Debug)]
pub(super) struct InputRequest {
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    result_type: Option<String>,
    #[serde(default, borrow)]
    content: First<'a, MAX_BLOCKS>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(default, borrow)]
    input_requests: Entries<'a, MAX_INPUTS>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
}

/// A block, of whatever kind; what a kind does not have is absent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    size: Option<u64>,
    resource: Option<Resource>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Annotations {
    audience: Vec<String>,
    priority: Option<f32>,
    last_modified: Option<String>,
}

/// Reads a result.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(raw: &RawValue) -> Result<Came, String> {
    let unread = |error: serde_json::Error| {
        format!("a result that cannot be read: {}", one_line(&error.to_string(), MAX_HEARD))
    };
    let answer: Answer<'_> = message::object(raw).map_err(unread)?;
    match answer.result_type.as_deref() {
        None | Some("complete") => {}
        Some("input_required") => return inputs(&answer),
        Some(other) => return Err(format!("a result of the type `{}`", one_line(other, MAX_HEARD))),
    }
    if answer.content.more {
        return Err(format!("a result of more than {MAX_BLOCKS} blocks"));
    }
    let (mut value, mut content) = (String::new(), Vec::new());
    for raw in &answer.content.items {
        let block = block(message::object(raw).map_err(unread)?)?;
        match block {
            // The text, as far as nothing else stands before it.
            ContentBlock { body: BlockBody::Text(text), annotations: None } if content.is_empty() => {
                if !value.is_empty() {
                    value.push('\n');
                }
                value.push_str(&text);
            }
            block => content.push(block),
        }
    }
    if answer.is_error == Some(true) {
        let mut message = value;
        for mut block in content {
            if let Some(text) = block.text_mut() {
                message.push('\n');
                message.push_str(text);
            }
        }
        if message.trim().is_empty() {
            "the tool failed, and did not say why".clone_into(&mut message);
        }
        return Ok(Came::Error(ToolError::new(ErrorCode::ExecutionFailed, message)));
    }
    let structured = answer.structured_content.map(ToOwned::to_owned);
    Ok(Came::Output(ToolOutput { value, structured, content, ..ToolOutput::default() }))
}

/// What it wants to know: few questions, none of them large, and a state that goes back as it came.
fn inputs(answer: &Answer<'_>) -> Result<Came, String> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    if answer.input_requests.more {
        return Err(format!("it asks more than {MAX_INPUTS} questions at once"));
    }
    let one = |(key, raw): &(String, &RawValue)| {
        let asked: Asked<'_> = bounded::small(raw, MAX_QUESTION)
            .and_then(|()| message::object(raw).map_err(|e| one_line(&e.to_string(), MAX_HEARD)))
            .map_err(|why| format!("a question that cannot be read: {why}"))?;
        let request = InputRequest { method: asked.method, params: asked.params.map(ToOwned::to_owned) };
        Ok::<_, String>((key.clone(), request))
    };
    let state = answer.request_state.map(|raw| {
        bounded::small(raw, MAX_REQUEST_STATE).map_err(|why| format!("its `requestState`: {why}"))?;
        serde_json::from_str(raw.get()).map_err(|_| "its `requestState` is no text".to_owned())
    });
    let requests = answer.input_requests.entries.iter().map(one).collect::<Result<_, _>>()?;
    Ok(Came::Inputs { requests, state: state.transpose()? })
}

fn block(block: Block<'_>) -> Result<ContentBlock, String> {
    let lacks =
        |what: &str| format!("a block of the type `{}` without `{what}`", one_line(&block.kind, MAX_HEARD));
    let blob = |data: &Option<String>, mime: &Option<String>| -> Result<Blob, String> {
        let data = bytes(data.as_deref().ok_or_else(|| lacks("data"))?)?;
        let mime_type = mime.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
        Ok(Blob { data, mime_type })
    };
    let annotations = block.annotations.map(hints).filter(|hints| *hints != BlockAnnotations::default());
    let body = match block.kind.as_str() {
        "text" => BlockBody::Text(block.text.clone().ok_or_else(|| lacks("text"))?),
        "image" => BlockBody::Image(blob(&block.data, &block.mime_type)?),
        "audio" => BlockBody::Audio(blob(&block.data, &block.mime_type)?),
        "resource_link" => {
            let uri = block.uri.clone().ok_or_else(|| lacks("uri"))?;
            BlockBody::Link(ResourceLink {
                name: block.name.clone().unwrap_or_else(|| uri.clone()),
                uri,
                title: block.title.clone(),
                description: block.description.clone(),
                mime_type: block.mime_type.clone(),
                size: block.size,
            })
        }
        "resource" => {
            let Some(Resource { uri, mime_type, text, blob }) = block.resource else {
                return Err("a block of the type `resource` without `resource`".to_owned());
            };
            let body = match (text, blob) {
                (Some(text), _) => ResourceBody::Text(text),
                (None, Some(blob)) => ResourceBody::Blob(bytes(&blob)?),
                (None, None) => ResourceBody::Text(String::new()),
            };
            BlockBody::Embedded(EmbeddedResource { uri, mime_type, body })
        }
        // A kind of a revision to come: said, not lost.
        other => BlockBody::Text(format!("[a block of the unknown type `{}`]", one_line(other, MAX_HEARD))),
    };
    let block = ContentBlock { body, annotations };
    if !block.has_sound_kinds() {
        return Err("a block with a media type or a date that is none".to_owned());
    }
    Ok(block)
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "bytes that are not in base64".to_owned())
}

/// Hints are hints: what cannot be read of them is none.
fn hints(said: &RawValue) -> BlockAnnotations {
    let small = bounded::small(said, MAX_HINTS).is_ok();
    let said = if small { message::object(said).unwrap_or_default() } else { Annotations::default() };
    let role = |role: &String| match role.as_str() {
        "user" => Some(Role::User),
        "assistant" => Some(Role::Assistant),
        _ => None,
    };
    BlockAnnotations {
        audience: said.audience.iter().filter_map(role).take(2).collect(),
        priority: said.priority,
        last_modified: said.last_modified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn came(value: &Value) -> Result<Came, String> {
        read(&serde_json::value::to_raw_value(value).unwrap())
    }

    #[test]
    fn texts_are_the_value_and_the_rest_are_blocks() {
        let result = json!({"content": [
            {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "text", "text": "c"},
            {"type": "resource_link", "uri": "file:///x", "name": "x", "size": 3},
            {"type": "resource", "resource": {"uri": "u", "text": "t"}},
            {"type": "resource", "resource": {"uri": "u", "blob": "AA=="}},
            {"type": "hologram", "x": 1},
        ], "structuredContent": {"n": 1}, "_meta": {"a": 1}});
        let Came::Output(output) = came(&result).unwrap() else { panic!() };
        assert_eq!(output.value, "a\nb");
        assert_eq!(output.structured.unwrap().get(), r#"{"n":1}"#);
        assert_eq!(output.content.len(), 6);
        assert!(matches!(&output.content[0].body, BlockBody::Image(blob) if blob.data == [0, 1, 2]));
        assert!(matches!(&output.content[5].body, BlockBody::Text(text) if text.contains("hologram")));
    }

    #[test]
    fn an_error_is_one_and_what_is_no_result_is_told() {
        let Came::Error(error) =
            came(&json!({"isError": true, "content": [{"type": "text", "text": "no"}]})).unwrap()
        else {
            panic!()
        };
        assert_eq!(error.message, "no");
        assert!(matches!(came(&json!({"isError": true})).unwrap(), Came::Error(_)));
        assert!(matches!(came(&json!({"content": []})).unwrap(), Came::Output(_)));
        let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "m"}}, "requestState": "s"});
        assert!(matches!(came(&asks).unwrap(), Came::Inputs { .. }));
        for bad in [
            json!([]),
            json!({"content": 7}),
            json!({"content": [{"type": "text"}]}),
            json!({"content": [{"text": "x"}]}),
            json!({"content": [{"type": "image", "data": "not base64!"}]}),
            json!({"content": [{"type": "image", "data": "AA==", "mimeType": "x".repeat(300)}]}),
            json!({"resultType": "task"}),
            json!({"content": vec![json!({"type": "text", "text": ""}); 1001]}),
            json!({"resultType": "input_required", "inputRequests": {"a": 7}}),
            json!({"resultType": "input_required", "inputRequests": {"a": {"method": "m", "params": "x".repeat(MAX_QUESTION)}}}),
            json!({"resultType": "input_required", "requestState": {"a": 1}}),
            json!({"resultType": "input_required", "requestState": "x".repeat(MAX_REQUEST_STATE)}),
        ] {
            assert!(came(&bad).is_err(), "{bad:.80}");
        }
    }

    /// What is counted is counted before it is kept: a list of a million nothings takes the memory of its text.
    #[test]
    fn what_is_too_much_is_not_built() {
        let many = |what: &str| RawValue::from_string(format!("{{{what}}}")).unwrap();
        let zeros = format!("[{}0]", "0,".repeat(2_000_000));
        let entries: Vec<String> = (0..200_000).map(|n| format!("\"{n}\":0")).collect();
        for (text, part) in [
            (format!("\"content\":{zeros}"), "more than 1000 blocks"),
            (
                format!("\"resultType\":\"input_required\",\"inputRequests\":{{{}}}", entries.join(",")),
                "more than 16 questions",
            ),
            (format!("\"resultType\":\"input_required\",\"requestState\":{zeros}"), "at most 256KiB"),
        ] {
            let why = read(&many(&text)).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let hinted = format!(
            "\"content\":[{{\"type\":\"text\",\"text\":\"t\",\"annotations\":{{\"audience\":{zeros}}}}}]"
        );
        let Came::Output(output) = read(&many(&hinted)).unwrap() else { panic!() };
        assert_eq!((output.value.as_str(), output.content.len()), ("t", 0), "hints are hints");
    }
}
