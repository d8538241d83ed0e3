//! Wraps tool output that is not an object, for clients of revisions before 2026-07-28.
//!
//! These revisions require `"type": "object"` at the root of an output schema, and an object as structured content. The
//! official TypeScript client drops the *whole tool list* over one schema that violates this. Such output is therefore
//! wrapped in an object with the single key `result`, in the schema and in the value alike.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// The key of the wrapped output.
const KEY: &str = "result";
/// JSON pointer to the original schema inside the wrapper.
const WRAPPED_POINTER: &str = "#/properties/result";

/// Whether the schema declares `"type": "object"` at its root.
pub(crate) fn is_object_schema(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// Wraps a schema: the result describes objects whose `result` matches `schema`.
pub(crate) fn wrap_schema(schema: &Value) -> Map<String, Value> {
    let mut inner = schema.clone();
    let mut outer = Map::new();
    if let Value::Object(map) = &mut inner {
        // Both keywords belong to the root of a document. An inner `$id` would change the base of the references.
        map.shift_remove("$id");
        if let Some(dialect) = map.shift_remove("$schema") {
            outer.insert("$schema".to_owned(), dialect);
        }
    }
    rebase_refs(&mut inner);
    outer.insert("type".to_owned(), json!("object"));
    outer.insert("properties".to_owned(), json!({ KEY: inner }));
    outer.insert("required".to_owned(), json!([KEY]));
    outer
}

/// Wraps a value, to match a wrapped schema.
pub(crate) fn wrap_value(value: Box<RawValue>) -> Box<RawValue> {
    to_raw_value(&BTreeMap::from([(KEY, &value)])).unwrap_or(value)
}

/// Moves references from the document root to the wrapped schema. References to anchors stay.
fn rebase_refs(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(rebase_refs),
        Value::Object(map) => {
            for (keyword, part) in map.iter_mut() {
                match (keyword.as_str(), part) {
                    ("$ref" | "$dynamicRef", Value::String(target)) => {
                        if target == "#" || target.starts_with("#/") {
                            *target = format!("{WRAPPED_POINTER}{}", target.trim_start_matches('#'));
                        }
                    }
                    // The keys of these objects are names, not keywords.
                    (
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        Value::Object(named),
                    ) => named.values_mut().for_each(rebase_refs),
                    // These keywords contain values, not schemas.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (_, part) => rebase_refs(part),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_core::tool::schema::Schema;

    #[test]
    fn a_wrapped_schema_accepts_what_the_schema_accepts() {
        for (schema, good, bad) in [
            (json!({"type": "array", "items": {"type": "integer"}}), json!([1]), json!(["a"])),
            (
                json!({"type": "string", "$schema": "https://json-schema.org/draft/2020-12/schema"}),
                json!("a"),
                json!(1),
            ),
            (
                json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}),
                json!([1]),
                json!(["a"]),
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}),
                json!([1, [2]]),
                json!([1, ["a"]]),
            ),
            (
                json!({"$id": "urn:x", "type": "array", "items": {"$ref": "#a"}, "$defs": {"x": {"$anchor": "a", "type": "null"}}}),
                json!([null]),
                json!([1]),
            ),
            (json!({"const": {"$ref": "#"}}), json!({"$ref": "#"}), json!({})),
            (
                json!({"type": ["object", "null"], "properties": {"const": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}),
                json!({"const": 1}),
                json!({"const": "a"}),
            ),
        ] {
            assert!(!is_object_schema(&schema));
            let wrapped = Value::Object(wrap_schema(&schema));
            assert!(is_object_schema(&wrapped));
            let compiled = Schema::output(&wrapped.to_string()).unwrap();
            let wrap = |value: Value| {
                let wrapped = wrap_value(to_raw_value(&value).unwrap());
                serde_json::from_str::<Value>(wrapped.get()).unwrap()
            };
            assert_eq!(compiled.check(&wrap(good)), Ok(()), "{wrapped}");
            assert!(compiled.check(&wrap(bad)).is_err(), "{wrapped}");
        }
    }
}
