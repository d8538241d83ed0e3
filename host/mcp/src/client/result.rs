//! Converts the result of a call on another server. The tool has run, so what can be read is delivered, and what cannot
//! becomes a note in its place.

pub(super) mod block;

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use toolbay_core::tool::content::{BlockBody, ContentBlock, ErrorCode, ErrorDetails, ToolError, ToolOutput};
use toolbay_core::tool::{ToolDef, json};
use toolbay_policy::excerpt::one_line;

use self::block::{ReadBlock, read_block};
use super::bounds::{MAX_ELICITATION_BYTES, MAX_INPUT_REQUESTS, MAX_REQUEST_STATE};
use crate::protocol::bounded::{self, BoundedList, BoundedMap};
use crate::protocol::bounds::MAX_UNREDACTED_CHARS;
use crate::protocol::objects::message_of;
use crate::protocol::{legacy, message};

/// Most blocks in one result.
const MAX_BLOCKS: usize = 1_000;

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

/// A result. Each member is read for itself; `null` is as good as absent.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawCallResult<'a> {
    #[serde(borrow)]
    result_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow)]
    input_requests: Option<BoundedMap<'a, MAX_INPUT_REQUESTS>>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    /// The whole result in the first revision (2024-10-07).
    #[serde(borrow)]
    tool_result: Option<&'a RawValue>,
}

/// Members that a result without content may have.
const EMPTY_MEMBERS: [&str; 6] =
    ["resultType", "content", "structuredContent", "isError", "_meta", "toolResult"];

/// Parses a result.
///
/// # Errors
/// The reply is not a result.
pub(super) fn parse_call_result(raw: &RawValue) -> Result<CallReply, String> {
    let answer = match raw.get().as_bytes().first() {
        Some(b'{') => message::parse_object(raw).map_err(|error| {
            format!("the result cannot be parsed: {}", one_line(&error.to_string(), MAX_UNREDACTED_CHARS))
        })?,
        // The content alone.
        _ => RawCallResult { content: Some(raw), ..RawCallResult::default() },
    };
    let mut blocks = answer.content.map_or_else(Vec::new, read_content);
    if answer.content.is_none() {
        blocks.extend(answer.tool_result.map(|raw| Ok(read_text_or_json(raw))));
    }
    match answer.result_type.as_deref() {
        None | Some("complete") => {
            let is_empty = blocks.is_empty() && answer.structured_content.is_none();
            blocks.extend(is_empty.then(|| read_unknown_members(raw)).flatten().map(Ok));
        }
        Some("input_required") => return parse_input_required(&answer),
        Some(other) => {
            let what = format!("unexpected result type `{}`", one_line(other, MAX_UNREDACTED_CHARS));
            if blocks.is_empty() && answer.structured_content.is_none() {
                return Err(what);
            }
            blocks.push(Err(what));
        }
    }
    let mut structured = answer.structured_content.map(ToOwned::to_owned);
    // Readers would disagree about it: a number out of range, a duplicate member.
    if let Some(raw) = &structured
        && let Err(error) = json::check(raw.get())
    {
        let why = one_line(&message_of(&error), MAX_UNREDACTED_CHARS);
        blocks.extend([Ok(block::read_json(raw)), Err(format!("the structured data: {why}"))]);
        structured = None;
    }
    Ok(match answer.is_error.is_some_and(says_error) {
        true => CallReply::Error(to_error(blocks, structured)),
        false => CallReply::Output(to_output(blocks, structured)),
    })
}

/// Reads an empty list as an object without members, if the tool has an object: PHP writes both as `[]`.
pub(super) fn fit_empty_list(structured: &mut Option<Box<RawValue>>, tool: &ToolDef) {
    let has_object =
        tool.output_schema.as_ref().is_some_and(|schema| legacy::is_object_schema(schema.value()));
    let items = structured.as_ref().and_then(|raw| serde_json::from_str::<Vec<IgnoredAny>>(raw.get()).ok());
    if has_object && items.is_some_and(|items| items.is_empty()) {
        *structured = RawValue::from_string("{}".to_owned()).ok();
    }
}

/// Whether `isError` says that the call failed. What is not a boolean counts as a failure, unless it reads like a denial.
fn says_error(raw: &RawValue) -> bool {
    !matches!(raw.get(), "false" | "0" | "\"false\"" | "\"\"")
}

fn unreadable(what: &str) -> ReadBlock {
    Err(what.to_owned())
}

/// A value in place of a block: a text, or the JSON itself.
fn read_text_or_json(raw: &RawValue) -> ContentBlock {
    block::read_text(raw).unwrap_or_else(|| block::read_json(raw))
}

/// A line of the host in place of what cannot be read.
fn note(what: &str) -> String {
    format!("[cannot be read: {what}]")
}

/// The whole of a result that has other members than those of this protocol, as a text.
fn read_unknown_members(raw: &RawValue) -> Option<ContentBlock> {
    let members: BoundedMap<'_, MAX_BLOCKS> = serde_json::from_str(raw.get()).ok()?;
    let is_known = |(name, _): &(String, &RawValue)| EMPTY_MEMBERS.contains(&name.as_str());
    let is_empty = !members.truncated && members.entries.iter().all(is_known);
    (!is_empty).then(|| block::read_json(raw))
}

/// Reads the blocks of a result.
fn read_content(raw: &RawValue) -> Vec<ReadBlock> {
    match raw.get().as_bytes().first() {
        Some(b'[' | b'{') => {}
        Some(b'n') => return vec![unreadable("the result is `null`")],
        // The text of a single block.
        _ => return vec![Ok(read_text_or_json(raw))],
    }
    let Ok(list) = BoundedList::<MAX_BLOCKS>::read(Some(raw)) else {
        return vec![unreadable("the list of blocks")];
    };
    let mut blocks: Vec<_> = list.items.iter().map(|raw| read_block(raw)).collect();
    if list.truncated {
        blocks.push(unreadable("the result has more blocks than the limit of 1000"));
    }
    blocks
}

/// Leading texts without annotations form the value.
fn to_output(blocks: Vec<ReadBlock>, structured: Option<Box<RawValue>>) -> ToolOutput {
    let (mut value, mut content) = (String::new(), Vec::new());
    for block in blocks {
        match block {
            Ok(ContentBlock { body: BlockBody::Text(text), annotations: None }) if content.is_empty() => {
                add_line(&mut value, &text);
            }
            Ok(block) => content.push(block),
            Err(what) => {
                content.push(ContentBlock { body: BlockBody::Text(note(&what)), annotations: None });
            }
        }
    }
    ToolOutput { value, structured, content, ..ToolOutput::default() }
}

/// All texts form the message. Without one, the structured data does.
fn to_error(blocks: Vec<ReadBlock>, structured: Option<Box<RawValue>>) -> ToolError {
    let (mut message, mut content) = (String::new(), Vec::new());
    for block in blocks {
        match block {
            Ok(ContentBlock { body: BlockBody::Text(text), .. }) => {
                add_line(&mut message, &text);
            }
            Ok(block) => content.push(block),
            Err(what) => add_line(&mut message, &note(&what)),
        }
    }
    if message.trim().is_empty() {
        let text = structured.as_ref().map(|raw| raw.get());
        text.unwrap_or("the tool failed without a message").clone_into(&mut message);
    }
    ToolError::new(ErrorCode::ExecutionFailed, message).with_details(ErrorDetails { structured, content })
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

/// Parses a result that requires input: a bounded number of requests, and an opaque state to send back.
fn parse_input_required(answer: &RawCallResult<'_>) -> Result<CallReply, String> {
    #[derive(Deserialize)]
    struct RawInputRequest<'a> {
        method: String,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let requests = answer.input_requests.as_ref();
    if requests.is_some_and(|requests| requests.truncated) {
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
    let requests = requests.map_or(&[][..], |requests| &requests.entries);
    let requests = requests.iter().map(one).collect::<Result<_, _>>()?;
    Ok(CallReply::InputRequired { requests, state: state.transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolbay_core::tool::content::Blob;

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
    fn a_block_that_cannot_be_read_costs_only_itself() {
        for (block, part) in [
            (json!({"type": "text"}), "no `text`"),
            (json!({"type": "text", "text": null}), "no `text`"),
            (json!({"type": "image", "data": "not base64!"}), "`image`: its `data` is not base64"),
            (json!({"type": "image"}), "no `data`"),
            (json!({"type": "audio", "data": 7}), "no `data`"),
            (json!({"type": "resource_link"}), "no `uri`"),
            (json!({"type": "resource", "resource": []}), "no `uri`"),
            (json!({"type": "resource", "resource": {"uri": "u", "blob": "?"}}), "`blob` is not base64"),
            (json!({"type": "resource", "resource": {"uri": "u", "text": 7}}), "is not a text"),
            (json!({}), "does not know"),
            (json!(7), "expected an object"),
            (json!([]), "does not know"),
            (json!([7]), "expected an object"),
            (json!(null), "expected an object"),
        ] {
            let result = json!({"content": [{"type": "text", "text": "drawn"}, block, {"type": "text", "text": "end"}]});
            let CallReply::Output(output) = parse_value(&result).unwrap() else { panic!() };
            assert_eq!((output.value.as_str(), output.content.len()), ("drawn", 2), "{block}");
            let texts: Vec<_> = output.content.iter().map(|block| &block.body).collect();
            assert!(
                matches!(texts[0], BlockBody::Text(text) if text.starts_with("[cannot be read: ") && text.contains(part)),
                "{block}: {texts:?}"
            );
            assert_eq!(*texts[1], BlockBody::Text("end".to_owned()));
        }
        let twice =
            r#"{"content": [{"type": "text", "text": "a", "text": "b"}, {"type": "text", "text": "c"}]}"#;
        let twice = RawValue::from_string(twice.to_owned()).unwrap();
        let CallReply::Output(output) = parse_call_result(&twice).unwrap() else { panic!() };
        assert!(matches!(&output.content[0].body, BlockBody::Text(text) if text.contains("duplicate field")));
    }

    #[test]
    fn what_is_clear_is_read_however_it_is_written() {
        let image = |data: &str, kind: &str| {
            BlockBody::Image(Blob { data: data.as_bytes().to_vec(), mime_type: kind.to_owned() })
        };
        for (block, body) in [
            (json!({"type": "image", "data": "data:image/gif;base64,R0lG"}), image("GIF", "image/gif")),
            (
                json!({"type": "image", "data": "R0\nlG\n", "mimeType": "image/gif"}),
                image("GIF", "image/gif"),
            ),
            (json!({"type": "image", "data": "R0lG", "mime_type": "image/gif"}), image("GIF", "image/gif")),
            (
                json!({"type": "image", "data": "R0lG", "mimeType": null, "mime_type": "image/gif"}),
                image("GIF", "image/gif"),
            ),
            (
                json!({"type": "image", "data": "R0lG", "mimeType": "image/gif", "mime_type": "image/png"}),
                image("GIF", "image/gif"),
            ),
            (
                json!({"type": "image", "data": "data:image/gif;base64,R0lG", "mimeType": ""}),
                image("GIF", "image/gif"),
            ),
            (json!({"data": "R0lG", "mimeType": "x".repeat(300)}), image("GIF", "application/octet-stream")),
            (json!({"text": "a"}), BlockBody::Text("a".to_owned())),
            (json!("a"), BlockBody::Text("a".to_owned())),
            (json!({"type": "text", "text": {"n": 1}}), BlockBody::Text(r#"{"n":1}"#.to_owned())),
            (
                json!({"type": "text", "text": "a", "mimeType": 7, "annotations": [], "size": -1}),
                BlockBody::Text("a".to_owned()),
            ),
        ] {
            let result = json!({"content": [{"type": "image", "data": ""}, block]});
            let CallReply::Output(output) = parse_value(&result).unwrap() else { panic!() };
            assert_eq!(output.content[1].body, body, "{block}");
        }
        let link = json!({"type": "resource_link", "uri": "u", "name": 7, "size": "3", "title": null});
        let CallReply::Output(output) = parse_value(&json!({"content": [link]})).unwrap() else { panic!() };
        assert!(
            matches!(&output.content[0].body, BlockBody::Link(link) if link.name == "u" && link.size.is_none())
        );
        for (result, value) in [
            (json!({"content": null, "structuredContent": null, "isError": null, "resultType": null}), ""),
            (json!({"content": {"type": "text", "text": "a"}}), "a"),
            (json!({"content": "a"}), "a"),
            (json!({"content": {}}), ""),
            (json!({"content": [], "isError": "false"}), ""),
            (json!({"content": [{"type": "text", "text": "a"}], "resultType": "later"}), "a"),
        ] {
            let CallReply::Output(output) = parse_value(&result).unwrap() else { panic!("{result}") };
            assert_eq!((output.value.as_str(), output.structured.is_none()), (value, true), "{result}");
        }
    }

    #[test]
    fn a_result_in_another_form_keeps_its_texts() {
        let text = |text: &str| json!({"type": "text", "text": text});
        for (result, value, notes) in [
            (json!("kept"), "kept", 0),
            (json!([text("a"), text("b")]), "a\nb", 0),
            (json!([7]), "", 1),
            (json!(7), "7", 0),
            (json!(null), "", 1),
            (json!({"content": {"0": text("a"), "2": text("b")}}), "a\nb", 0),
            (json!({"toolResult": "kept"}), "kept", 0),
            (json!({"toolResult": {"a": 1}}), r#"{"a":1}"#, 0),
            (json!({"output": "kept"}), r#"{"output":"kept"}"#, 0),
            (json!({"content": [], "_meta": {"a": 1}}), "", 0),
        ] {
            let CallReply::Output(output) = parse_value(&result).unwrap() else { panic!("{result}") };
            assert_eq!((output.value.as_str(), output.content.len()), (value, notes), "{result}");
        }
        for data in [r#"{"n":1e999}"#, r#"{"n":1,"n":2}"#] {
            let raw = RawValue::from_string(format!(r#"{{"structuredContent":{data}}}"#)).unwrap();
            let CallReply::Output(output) = parse_call_result(&raw).unwrap() else { panic!("{data}") };
            assert_eq!((output.value.as_str(), output.content.len()), (data, 1));
            assert!(output.structured.is_none(), "no two readers agree about {data}");
        }
    }

    #[test]
    fn an_empty_list_is_an_object_where_the_tool_has_one() {
        use toolbay_core::tool::ToolSource;
        use toolbay_core::tool::schema::Schema;
        use toolbay_policy::name::{QualifiedName, ToolName};
        let name = QualifiedName::from_native(&ToolName::new("t").unwrap());
        let input = Schema::input(r#"{"type":"object"}"#).unwrap();
        let mut tool = ToolDef::new(name, "A case.", input, ToolSource::Builtin);
        for (schema, data, fitted) in [
            (r#"{"type":"object"}"#, "[ ]", "{}"),
            (r#"{"type":"object"}"#, "[1]", "[1]"),
            (r#"{"type":"array"}"#, "[]", "[]"),
        ] {
            tool.output_schema = Some(Schema::output(schema).unwrap());
            let mut structured = RawValue::from_string(data.to_owned()).ok();
            fit_empty_list(&mut structured, &tool);
            assert_eq!(structured.unwrap().get(), fitted);
        }
    }

    #[test]
    fn a_failure_keeps_all_that_it_carries() {
        let fail = |result: Value| match parse_value(&result) {
            Ok(CallReply::Error(error)) => error,
            other => panic!("{other:?}"),
        };
        let error = fail(json!({"isError": true, "content": [{"type": "text", "text": "no"}]}));
        assert_eq!((error.message.as_str(), error.details), ("no", None));
        assert_eq!(fail(json!({"isError": true})).message, "the tool failed without a message");
        let data = json!({"code": "LIMIT", "retry_after": 7});
        let error = fail(json!({"isError": true, "content": [], "structuredContent": data}));
        assert_eq!(error.message, data.to_string());
        assert_eq!(error.details.unwrap().structured.unwrap().get(), data.to_string());
        let error = fail(json!({"isError": "true", "content": [
            {"type": "text", "text": "see"},
            {"type": "resource_link", "uri": "https://example.org/help", "name": "help"},
            {"type": "image", "mimeType": "image/png", "data": "?"},
            {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="},
            {"type": "text", "text": "and"},
        ]}));
        assert!(error.message.starts_with("see\n[cannot be read: ") && error.message.ends_with("\nand"));
        let content = error.details.unwrap().content;
        assert!(matches!((&content[0].body, &content[1].body), (BlockBody::Link(_), BlockBody::Image(_))));
    }

    #[test]
    fn replies_that_are_no_results_are_refused() {
        let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "m"}}, "requestState": "s"});
        assert!(matches!(parse_value(&asks).unwrap(), CallReply::InputRequired { .. }));
        for bad in [
            json!({"resultType": "task"}),
            json!({"resultType": 7}),
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
        let zeros_as_blocks = many(&format!("\"content\":{zeros}"));
        let CallReply::Output(output) = parse_call_result(&zeros_as_blocks).unwrap() else { panic!() };
        assert_eq!(output.content.len(), MAX_BLOCKS + 1);
        for (text, part) in [
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
