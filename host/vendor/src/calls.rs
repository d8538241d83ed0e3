//! Calls: parsing of a model's message, and the reverse.

use serde_json::{Value, json};

use super::Vendor;
use toolbay_core::call::ToolCall;

/// The error of a message that is not in the expected format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message is not in the format `{vendor}`: {problem}")]
pub struct FormatError {
    vendor: &'static str,
    problem: &'static str,
}

/// Parses the calls of a model: from the whole response, its message, or its list of calls. Arguments are not changed;
/// the pipeline validates them. A call without a name is skipped. A call without an id (Gemini) gets `call_1`,
/// `call_2`, … by its position.
///
/// ```
/// use serde_json::json;
/// use toolbay_vendor::{Vendor, parse_calls};
///
/// let message = json!({"role": "assistant", "content": [
///     {"type": "tool_use", "id": "toolu_1", "name": "text__word_count", "input": {"text": "a b a"}},
/// ]});
/// let calls = parse_calls(Vendor::Anthropic, &message)?;
/// assert_eq!((&*calls[0].id, calls[0].tool.as_str()), ("toolu_1", "text__word_count"));
/// # Ok::<(), toolbay_vendor::FormatError>(())
/// ```
///
/// # Errors
/// The value is not a response, message or list of calls of the format.
pub fn parse_calls(vendor: Vendor, message: &Value) -> Result<Vec<ToolCall>, FormatError> {
    let parts = find_calls(vendor, message)?;
    let read = |(place, part): (usize, &Value)| parse_call(vendor, part, place);
    Ok(parts.iter().enumerate().filter_map(read).collect())
}

/// The list of calls in a response, message or list.
fn find_calls(vendor: Vendor, message: &Value) -> Result<&[Value], FormatError> {
    let invalid = |problem| FormatError { vendor: vendor.as_str(), problem };
    if let Value::Array(list) = message {
        return Ok(list);
    }
    if !message.is_object() {
        return Err(invalid("it is neither an object nor a list"));
    }
    let (pointers, kind): (&[&str], &[&str]) = match vendor {
        Vendor::OpenaiChat => {
            (&["/tool_calls", "/choices/0/message/tool_calls", "/message/tool_calls"], &["function"])
        }
        Vendor::OpenaiResponses => (&["/output"], &["name"]),
        Vendor::Anthropic => (&["/content"], &["input"]),
        Vendor::Gemini => {
            (&["/parts", "/content/parts", "/candidates/0/content/parts"], &["functionCall", "function_call"])
        }
        Vendor::Mcp => (&["/params"], &["method", "name"]),
    };
    for pointer in pointers {
        match message.pointer(pointer) {
            Some(Value::Array(list)) => return Ok(list),
            // The message has no calls.
            Some(Value::Null | Value::String(_)) => return Ok(&[]),
            _ => {}
        }
    }
    if kind.iter().any(|key| message.get(key).is_some()) {
        return Ok(std::slice::from_ref(message));
    }
    let empty = match vendor {
        Vendor::OpenaiChat => {
            message.get("role").is_some() || message.pointer("/choices/0/message").is_some()
        }
        Vendor::Gemini => message.get("candidates").is_some() || message.get("role").is_some(),
        Vendor::OpenaiResponses | Vendor::Anthropic | Vendor::Mcp => false,
    };
    if empty { Ok(&[]) } else { Err(invalid("it has no list of calls")) }
}

fn parse_call(vendor: Vendor, part: &Value, place: usize) -> Option<ToolCall> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    let kind = part.get("type").and_then(Value::as_str);
    let (id, name, arguments) = match vendor {
        Vendor::OpenaiChat => {
            let function = part.get("function")?;
            (text(part, "id"), text(function, "name"), function.get("arguments"))
        }
        Vendor::OpenaiResponses if matches!(kind, None | Some("function_call")) => {
            (text(part, "call_id").or_else(|| text(part, "id")), text(part, "name"), part.get("arguments"))
        }
        Vendor::Anthropic if matches!(kind, Some("tool_use" | "server_tool_use")) => {
            (text(part, "id"), text(part, "name"), part.get("input"))
        }
        Vendor::Gemini => {
            let call = part.get("functionCall").or_else(|| part.get("function_call"))?;
            (text(call, "id"), text(call, "name"), call.get("args"))
        }
        Vendor::Mcp => {
            let params = part.get("params").unwrap_or(part);
            let id = part.get("id").map(|id| id.as_str().map_or_else(|| id.to_string(), ToOwned::to_owned));
            (id, text(params, "name"), params.get("arguments"))
        }
        Vendor::OpenaiResponses | Vendor::Anthropic => return None,
    };
    let name = name.filter(|name| !name.is_empty())?;
    let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{}", place + 1));
    let args = match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    Some(ToolCall::new(id, name, args))
}

/// The model's message with these calls, for callers that do not store the original. Prefer the original message if it
/// is available: it may contain data that must be sent back, such as Gemini's thought signatures.
#[must_use]
pub fn call_message(vendor: Vendor, calls: &[ToolCall]) -> Vec<Value> {
    let arguments = |call: &ToolCall| -> Value {
        let parsed = serde_json::from_str(&call.args).ok();
        parsed.filter(Value::is_object).unwrap_or_else(|| json!({}))
    };
    let text =
        |call: &ToolCall| if call.args.trim().is_empty() { "{}".to_owned() } else { call.args.clone() };
    let each = |make: &dyn Fn(&ToolCall) -> Value| -> Vec<Value> { calls.iter().map(make).collect() };
    match vendor {
        Vendor::OpenaiChat => {
            let calls = each(
                &|call| json!({"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": text(call)}}),
            );
            vec![json!({"role": "assistant", "tool_calls": calls})]
        }
        Vendor::OpenaiResponses => each(&|call| {
            json!({
                "type": "function_call", "call_id": call.id, "name": call.tool, "arguments": text(call),
                "status": "completed",
            })
        }),
        Vendor::Anthropic => {
            let blocks = each(
                &|call| json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments(call)}),
            );
            vec![json!({"role": "assistant", "content": blocks})]
        }
        Vendor::Gemini => {
            let parts = each(
                &|call| json!({"functionCall": {"id": call.id, "name": call.tool, "args": arguments(call)}}),
            );
            vec![json!({"role": "model", "parts": parts})]
        }
        Vendor::Mcp => each(&|call| {
            json!({
                "jsonrpc": "2.0", "id": call.id, "method": "tools/call",
                "params": {"name": call.tool, "arguments": arguments(call)},
            })
        }),
    }
}
