//! Asks the model why it calls: an optional text beside a tool's own arguments. It is taken out before the arguments
//! are checked and never reaches the tool; the records keep it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::tool::schema::Schema;

/// The argument's name.
pub const NAME: &str = "toolcall_reason";

/// The schema with the argument for the reason, which is never required. `None` if the schema speaks of an argument of
/// that name already, wherever that is: it is the tool's own then.
#[must_use]
pub fn asked(schema: &Schema) -> Option<Schema> {
    if names_it(schema.value()) {
        return None;
    }
    let mut value = schema.value().clone();
    let properties = value.as_object_mut()?.entry("properties").or_insert_with(|| json!({}));
    let about = "Why you chose this tool and what you expect from it.";
    properties.as_object_mut()?.insert(NAME.to_owned(), json!({"type": "string", "description": about}));
    // Only shown; what is checked is the schema without it.
    Some(Schema::accepted_before(value))
}

/// The schema without the argument for the reason.
#[must_use]
pub fn without(schema: &Schema) -> Value {
    let mut value = schema.value().clone();
    if let Some(properties) = value.get_mut("properties").and_then(Value::as_object_mut) {
        properties.shift_remove(NAME);
    }
    value
}

fn names_it(value: &Value) -> bool {
    match value {
        Value::String(text) => text == NAME,
        Value::Array(items) => items.iter().any(names_it),
        Value::Object(map) => map.iter().any(|(key, value)| key == NAME || names_it(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Takes the reason out of the arguments, `parsed` and as text; all others stay as they were written, to the last
/// digit. A reason that is no text is kept as the JSON it is.
pub fn take(parsed: &mut Value, args: &mut String) -> Option<Arc<str>> {
    let reason = parsed.as_object_mut()?.shift_remove(NAME)?;
    // The text is valid and has no key twice: it was parsed. The order of the keys means nothing.
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
    fn a_schema_gets_it_unless_the_tool_has_one_of_its_own() {
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
            let shown = asked(&schema);
            assert_eq!(shown.is_some(), gets, "{schema:?}");
            let Some(shown) = shown else { continue };
            assert_eq!(shown.value()["properties"][NAME]["type"], "string");
            assert_eq!(shown.value().get("required"), schema.value().get("required"), "never required");
            assert!(asked(&shown).is_none(), "asked once");
        }
    }

    #[test]
    fn it_is_taken_out_and_nothing_else_changes() {
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
