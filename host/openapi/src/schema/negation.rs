//! Keywords that a weaker schema makes stricter.

use serde_json::{Map, Value};

/// Keywords whose schemas must not become weaker, and those that say nothing without them.
const NEGATIONS: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords whose value is a list or an object of schemas.
const LISTS: [&str; 7] =
    ["properties", "patternProperties", "dependentSchemas", "$defs", "allOf", "anyOf", "prefixItems"];
/// Keywords whose value is a schema.
const SCHEMAS: [&str; 6] = [
    "items",
    "additionalProperties",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// Removes the negations of a schema and of all schemas in it.
pub(super) fn remove_negations(schema: &mut Map<String, Value>) {
    schema.retain(|key, _| !NEGATIONS.contains(&key.as_str()));
    for (key, value) in schema {
        match value {
            Value::Object(inner) if SCHEMAS.contains(&key.as_str()) => remove_negations(inner),
            Value::Object(named) if LISTS.contains(&key.as_str()) => {
                named.values_mut().filter_map(Value::as_object_mut).for_each(remove_negations);
            }
            Value::Array(items) if LISTS.contains(&key.as_str()) || key == "items" => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(remove_negations);
            }
            _ => {}
        }
    }
}
