//! The argument `toolcall_reason`: an optional text in which the model states why it calls a tool. The pipeline removes
//! the argument before validation, so it never reaches the tool. The audit records it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::tool::schema::Schema;

/// The argument's name.
pub const NAME: &str = "toolcall_reason";

/// The schema with the optional argument for the reason. `None` if the schema mentions the name anywhere, since the
/// argument then belongs to the tool.
#[must_use]
pub fn schema_with_reason(schema: &Schema) -> Option<Schema> {
    if mentions_reason(schema.value()) {
        return None;
    }
    let mut value = schema.value().clone();
    let properties = value.as_object_mut()?.entry("properties").or_insert_with(|| json!({}));
    let description = "Why you chose this tool and what you expect from it.";
    properties
        .as_object_mut()?
        .insert(NAME.to_owned(), json!({"type": "string", "description": description}));
    // Validation uses the schema without it.
    Some(schema.with_shown(value))
}

/// The schema without the argument for the reason.
#[must_use]
pub fn schema_without_reason(schema: &Schema) -> Value {
    let mut value = schema.value().clone();
    if let Some(properties) = value.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(NAME);
    }
    value
}

fn mentions_reason(value: &Value) -> bool {
    match value {
        Value::String(text) => text == NAME,
        Value::Array(items) => items.iter().any(mentions_reason),
        Value::Object(map) => map.iter().any(|(key, value)| key == NAME || mentions_reason(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Removes the reason from the arguments, parsed and as text, and returns it. The text of all other arguments does not
/// change, not even in the digits of numbers. A reason that is not a string is returned as JSON.
pub fn take(parsed: &mut Value, args: &mut String) -> Option<Arc<str>> {
    let reason = parsed.as_object_mut()?.shift_remove(NAME)?;
    // The text was parsed, so it is valid and has no duplicate keys. The order of the keys is irrelevant.
    let mut raw: BTreeMap<String, &RawValue> = serde_json::from_str(args).ok()?;
    raw.remove(NAME);
    *args = serde_json::to_string(&raw).ok()?;
    Some(match reason {
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_gets_the_argument_unless_it_already_uses_the_name() {
        for (schema, gets) in [
            (r#"{"type":"object"}"#, true),
            (
                r#"{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}"#,
                true,
            ),
            (r#"{"type":"object","properties":{"toolcall_reason":{"type":"integer"}}}"#, false),
            (r#"{"type":"object","allOf":[{"properties":{"toolcall_reason":{}}}]}"#, false),
            (r#"{"type":"object","required":["toolcall_reason"]}"#, false),
            (r#"{"type":"object","properties":{"thought":{"type":"string"}}}"#, true),
        ] {
            let schema = Schema::input(schema).unwrap();
            let shown = schema_with_reason(&schema);
            assert_eq!(shown.is_some(), gets, "{schema:?}");
            let Some(shown) = shown else { continue };
            assert_eq!(shown.value()["properties"][NAME]["type"], "string");
            assert_eq!(
                shown.value().get("required"),
                schema.value().get("required"),
                "the argument is optional"
            );
            assert!(schema_with_reason(&shown).is_none(), "the argument is added once");
        }
    }

    #[test]
    fn the_reason_is_removed_and_nothing_else_changes() {
        for (args, rest, reason) in [
            (r#"{"toolcall_reason":"to greet","name":"World"}"#, r#"{"name":"World"}"#, Some("to greet")),
            (r#"{ "n": 1.00, "big": 123456789012345678901234567890 }"#, "", None),
            (
                r#"{"big": 123456789012345678901234567890, "n": 1.00, "toolcall_reason": {"a": 1}}"#,
                r#"{"big":123456789012345678901234567890,"n":1.00}"#,
                Some(r#"{"a":1}"#),
            ),
            (r#"{"toolcall\u005freason":"x"}"#, "{}", Some("x")),
            (r#"{"in": {"toolcall_reason": "x"}}"#, "", None),
        ] {
            let (mut parsed, mut text) = (crate::tool::json::parse(args).unwrap(), args.to_owned());
            assert_eq!(take(&mut parsed, &mut text).as_deref(), reason, "{args}");
            assert_eq!(text, if rest.is_empty() { args } else { rest });
            assert_eq!(crate::tool::json::parse(&text).unwrap(), parsed);
        }
    }
}
