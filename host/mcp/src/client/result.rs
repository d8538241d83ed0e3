//! Converts the result of a call on another server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolbay_core::tool::content::{
    Blob, BlockAnnotations, BlockBody, ContentBlock, EmbeddedResource, ErrorCode, ResourceBody, ResourceLink,
    Role, ToolError, ToolOutput,
};
use toolbay_policy::text::one_line;

use super::bounds::{MAX_ELICITATION_BYTES, MAX_INPUT_REQUESTS, MAX_REQUEST_STATE};
use crate::protocol::bounded::{self, BoundedList, BoundedMap};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::message;

/// Most blocks in one result.
const MAX_BLOCKS: usize = 1_000;
/// Bytes of the annotations of one block.
const MAX_BLOCK_ANNOTATION_BYTES: usize = 4 << 10;

/// The reply of a server to a call.
#[derive(Debug)]
pub(super) enum CallReply {
    /// A result.
    Output(ToolOutput),
    /// The tool reported an error.
    Error(ToolError),
    /// The server needs more input first (2026-07-28).
    InputRequired { requests: Vec<(String, InputRequest)>, state: Option<String> },
}

/// One request for input before a call can continue.
#[derive(Debug)]
pub(super) struct InputRequest {
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCallResult<'a> {
    result_type: Option<String>,
    #[serde(default, borrow)]
    content: BoundedList<'a, MAX_BLOCKS>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(default, borrow)]
    input_requests: BoundedMap<'a, MAX_INPUT_REQUESTS>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
}

/// A content block of any kind, with the fields of all kinds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContentBlock<'a> {
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
    resource: Option<RawResource>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResource {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct RawAnnotations {
    audience: Vec<String>,
    priority: Option<f32>,
    last_modified: Option<String>,
}

/// Parses a result.
///
/// # Errors
/// Why the result is invalid.
pub(super) fn parse_call_result(raw: &RawValue) -> Result<CallReply, String> {
    let unread = |error: serde_json::Error| {
        format!("the result cannot be parsed: {}", one_line(&error.to_string(), MAX_UNREDACTED_CHARS))
    };
    let answer: RawCallResult<'_> = message::parse_object(raw).map_err(unread)?;
    match answer.result_type.as_deref() {
        None | Some("complete") => {}
        Some("input_required") => return parse_input_required(&answer),
        Some(other) => {
            return Err(format!("unexpected result type `{}`", one_line(other, MAX_UNREDACTED_CHARS)));
        }
    }
    if answer.content.truncated {
        return Err(format!("the result has more than {MAX_BLOCKS} blocks"));
    }
    let (mut value, mut content) = (String::new(), Vec::new());
    for raw in &answer.content.items {
        let block = convert_block(message::parse_object(raw).map_err(unread)?)?;
        match block {
            // Leading text blocks without annotations form the value.
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
            "the tool failed without a message".clone_into(&mut message);
        }
        return Ok(CallReply::Error(ToolError::new(ErrorCode::ExecutionFailed, message)));
    }
    let structured = answer.structured_content.map(ToOwned::to_owned);
    Ok(CallReply::Output(ToolOutput { value, structured, content, ..ToolOutput::default() }))
}

/// Parses a result that requires input: a bounded number of requests, and an opaque state to send back.
fn parse_input_required(answer: &RawCallResult<'_>) -> Result<CallReply, String> {
    #[derive(Deserialize)]
    struct RawInputRequest<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    if answer.input_requests.truncated {
        return Err(format!("the result has more than {MAX_INPUT_REQUESTS} input requests"));
    }
    let one = |(key, raw): &(String, &RawValue)| {
        let asked: RawInputRequest<'_> = bounded::check_size(raw, MAX_ELICITATION_BYTES)
            .and_then(|()| {
                message::parse_object(raw).map_err(|e| one_line(&e.to_string(), MAX_UNREDACTED_CHARS))
            })
            .map_err(|why| format!("an input request cannot be parsed: {why}"))?;
        let request = InputRequest { method: asked.method, params: asked.params.map(ToOwned::to_owned) };
        Ok::<_, String>((key.clone(), request))
    };
    let state = answer.request_state.map(|raw| {
        bounded::check_size(raw, MAX_REQUEST_STATE).map_err(|why| format!("`requestState`: {why}"))?;
        serde_json::from_str(raw.get()).map_err(|_| "`requestState` is not a string".to_owned())
    });
    let requests = answer.input_requests.entries.iter().map(one).collect::<Result<_, _>>()?;
    Ok(CallReply::InputRequired { requests, state: state.transpose()? })
}

fn convert_block(block: RawContentBlock<'_>) -> Result<ContentBlock, String> {
    let lacks = |what: &str| {
        format!("a block of type `{}` has no `{what}`", one_line(&block.kind, MAX_UNREDACTED_CHARS))
    };
    let blob = |data: &Option<String>, mime: &Option<String>| -> Result<Blob, String> {
        let data = decode_base64(data.as_deref().ok_or_else(|| lacks("data"))?)?;
        let mime_type = mime.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
        Ok(Blob { data, mime_type })
    };
    let annotations =
        block.annotations.map(convert_annotations).filter(|hints| *hints != BlockAnnotations::default());
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
            let Some(RawResource { uri, mime_type, text, blob }) = block.resource else {
                return Err("a block of type `resource` has no `resource`".to_owned());
            };
            let body = match (text, blob) {
                (Some(text), _) => ResourceBody::Text(text),
                (None, Some(blob)) => ResourceBody::Blob(decode_base64(&blob)?),
                (None, None) => ResourceBody::Text(String::new()),
            };
            BlockBody::Embedded(EmbeddedResource { uri, mime_type, body })
        }
        // A block type of a later revision: mention it instead of dropping it.
        other => {
            BlockBody::Text(format!("[block of unknown type `{}`]", one_line(other, MAX_UNREDACTED_CHARS)))
        }
    };
    let block = ContentBlock { body, annotations };
    if !block.has_bounded_machine_fields() {
        return Err("a block has an invalid media type or date".to_owned());
    }
    Ok(block)
}

fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "a block is not valid base64".to_owned())
}

/// Converts annotations. They are hints, so invalid ones are ignored.
fn convert_annotations(said: &RawValue) -> BlockAnnotations {
    let small = bounded::check_size(said, MAX_BLOCK_ANNOTATION_BYTES).is_ok();
    let said =
        if small { message::parse_object(said).unwrap_or_default() } else { RawAnnotations::default() };
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

    fn parse_value(value: &Value) -> Result<CallReply, String> {
        parse_call_result(&serde_json::value::to_raw_value(value).unwrap())
    }

    #[test]
    fn leading_texts_are_the_value_and_the_rest_are_blocks() {
        let result = json!({"content": [
            {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "text", "text": "c"},
            {"type": "resource_link", "uri": "file:///x", "name": "x", "size": 3},
            {"type": "resource", "resource": {"uri": "u", "text": "t"}},
            {"type": "resource", "resource": {"uri": "u", "blob": "AA=="}},
            {"type": "hologram", "x": 1},
        ], "structuredContent": {"n": 1}, "_meta": {"a": 1}});
        let CallReply::Output(output) = parse_value(&result).unwrap() else { panic!() };
        assert_eq!(output.value, "a\nb");
        assert_eq!(output.structured.unwrap().get(), r#"{"n":1}"#);
        assert_eq!(output.content.len(), 6);
        assert!(matches!(&output.content[0].body, BlockBody::Image(blob) if blob.data == [0, 1, 2]));
        assert!(matches!(&output.content[5].body, BlockBody::Text(text) if text.contains("hologram")));
    }

    #[test]
    fn errors_are_tool_errors_and_invalid_results_are_refused() {
        let CallReply::Error(error) =
            parse_value(&json!({"isError": true, "content": [{"type": "text", "text": "no"}]})).unwrap()
        else {
            panic!()
        };
        assert_eq!(error.message, "no");
        assert!(matches!(parse_value(&json!({"isError": true})).unwrap(), CallReply::Error(_)));
        assert!(matches!(parse_value(&json!({"content": []})).unwrap(), CallReply::Output(_)));
        let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "m"}}, "requestState": "s"});
        assert!(matches!(parse_value(&asks).unwrap(), CallReply::InputRequired { .. }));
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
            json!({"resultType": "input_required", "inputRequests": {"a": {"method": "m", "params": "x".repeat(MAX_ELICITATION_BYTES)}}}),
            json!({"resultType": "input_required", "requestState": {"a": 1}}),
            json!({"resultType": "input_required", "requestState": "x".repeat(MAX_REQUEST_STATE)}),
        ] {
            assert!(parse_value(&bad).is_err(), "{bad:.80}");
        }
    }

    /// Items are counted before they are stored: a list of a million zeros takes only the memory of its text.
    #[test]
    fn results_over_a_limit_are_not_allocated() {
        let many = |what: &str| RawValue::from_string(format!("{{{what}}}")).unwrap();
        let zeros = format!("[{}0]", "0,".repeat(2_000_000));
        let entries: Vec<String> = (0..200_000).map(|n| format!("\"{n}\":0")).collect();
        for (text, part) in [
            (format!("\"content\":{zeros}"), "more than 1000 blocks"),
            (
                format!("\"resultType\":\"input_required\",\"inputRequests\":{{{}}}", entries.join(",")),
                "more than 16 input requests",
            ),
            (format!("\"resultType\":\"input_required\",\"requestState\":{zeros}"), "at most 256KiB"),
        ] {
            let why = parse_call_result(&many(&text)).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let hinted = format!(
            "\"content\":[{{\"type\":\"text\",\"text\":\"t\",\"annotations\":{{\"audience\":{zeros}}}}}]"
        );
        let CallReply::Output(output) = parse_call_result(&many(&hinted)).unwrap() else { panic!() };
        assert_eq!(
            (output.value.as_str(), output.content.len()),
            ("t", 0),
            "invalid annotations are ignored"
        );
    }
}
