//! Tools, calls and results in the formats of model vendors.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value, json};
use toolbay::vendor::{self, Vendor};
use toolbay::{ToolCall, View};

use crate::error::BridgeError;
use crate::result::ResultDocument;

/// The members that hold the arguments of a call, by vendor: `input` of Anthropic, `args` of Gemini, `arguments` of the others.
const ARGUMENTS: [&str; 3] = ["input", "args", "arguments"];

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

/// The calls of a message. Their arguments are texts as the message has them: integers of any size stay exact.
pub(crate) fn parse_calls(name: &str, message: &str) -> Result<Value, BridgeError> {
    let vendor = vendor(name)?;
    let mut parser = serde_json::Deserializer::from_str(message);
    let message = MessageReader.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    let message =
        message.map_err(|error| BridgeError::argument(format!("the message is not JSON: {error}")))?;
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

/// Reads a message, with the arguments of calls as JSON text instead of objects.
#[derive(Clone, Copy)]
struct MessageReader;

impl<'de> DeserializeSeed<'de> for MessageReader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MessageReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = if ARGUMENTS.contains(&key.as_str()) {
                let raw: &RawValue = members.next_value()?;
                match raw.get().starts_with('{') {
                    true => Value::from(raw.get()),
                    false => serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?,
                }
            } else {
                members.next_value_seed(self)?
            };
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stay_as_they_are_written() {
        let number = "1".repeat(100);
        let args = format!(r#"{{"n": {number}, "x": 1.0}}"#);
        let quoted = Value::from(&*args).to_string();
        for (vendor, message) in [
            (
                "anthropic",
                format!(r#"{{"content":[{{"type":"tool_use","id":"1","name":"t","input":{args}}}]}}"#),
            ),
            ("gemini", format!(r#"{{"parts":[{{"functionCall":{{"id":"1","name":"t","args":{args}}}}}]}}"#)),
            (
                "openai-chat",
                format!(
                    r#"{{"tool_calls":[{{"id":"1","type":"function","function":{{"name":"t","arguments":{quoted}}}}}]}}"#
                ),
            ),
            (
                "mcp",
                format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"t","arguments":{args}}}}}"#),
            ),
        ] {
            let calls = parse_calls(vendor, &message).unwrap();
            assert_eq!(calls, json!([{"id": "1", "tool": "t", "args": args}]), "{vendor}");
        }
        assert!(parse_calls("no-such", "{}").is_err());
        assert!(parse_calls("anthropic", "[").is_err());
    }
}
