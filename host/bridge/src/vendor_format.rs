//! Tools, calls and results in the formats of model vendors.

use serde_json::{Value, json};
use toolbay::vendor::{self, Vendor};
use toolbay::{ToolCall, View};

use crate::error::BridgeError;
use crate::result::ResultDocument;

fn vendor(name: &str) -> Result<Vendor, BridgeError> {
    name.parse().map_err(|error: toolbay::vendor::UnknownVendor| BridgeError::argument(error.to_string()))
}

/// The definitions of the default list of a view.
pub(crate) fn definitions(name: &str, view: &View, strict: bool) -> Result<Value, BridgeError> {
    let definitions = vendor::view_definitions(vendor(name)?, view, strict);
    Ok(json!({
        "tools": definitions.tools, "lost": definitions.lost, "non_strict": definitions.non_strict,
    }))
}

/// The calls of a message. The language has written their arguments as texts, so that integers of any size stay exact, and
/// those that it could not write as a text that begins with [`INVALID_BYTE`](toolbay::core::tool::json::INVALID_BYTE).
pub(crate) fn parse_calls(name: &str, message: &str) -> Result<Value, BridgeError> {
    let vendor = vendor(name)?;
    let message = serde_json::from_str(message)
        .map_err(|error| BridgeError::argument(format!("the message is not JSON: {error}")))?;
    let calls = vendor::parse_calls(vendor, &message);
    let calls = calls.map_err(|error| BridgeError::argument(error.to_string()))?;
    let call = |ToolCall { id, tool, args, .. }: ToolCall| json!({"id": &*id, "tool": tool, "args": args});
    Ok(calls.into_iter().map(call).collect())
}

/// The messages for results.
pub(crate) fn result_messages(name: &str, results: &str) -> Result<Value, BridgeError> {
    let vendor = vendor(name)?;
    let results: Vec<ResultDocument> = serde_json::from_str(results)?;
    let results = results.into_iter().map(ResultDocument::into_result).collect::<Result<Vec<_>, _>>()?;
    Ok(vendor::result_messages(vendor, &results).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stay_as_they_are_written() {
        let args = format!(r#"{{"n": {}, "x": 1.0}}"#, "1".repeat(100));
        for (vendor, message) in [
            ("anthropic", json!({"content": [{"type": "tool_use", "id": "1", "name": "t", "input": args}]})),
            ("gemini", json!({"parts": [{"functionCall": {"id": "1", "name": "t", "args": args}}]})),
            (
                "openai-chat",
                json!({"tool_calls": [{"id": "1", "function": {"name": "t", "arguments": args}}]}),
            ),
            ("mcp", json!({"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": args}})),
        ] {
            let calls = parse_calls(vendor, &message.to_string()).unwrap();
            assert_eq!(calls, json!([{"id": "1", "tool": "t", "args": args}]), "{vendor}");
        }
        assert!(parse_calls("no-such", "{}").is_err());
        assert!(parse_calls("anthropic", "[").is_err());
    }
}
