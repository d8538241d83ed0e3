//! `nullable` of OpenAPI 3.0.

use serde_json::{Map, Value, json};

/// The same schema, which also allows `null`.
pub(super) fn nullable(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::Array(types)) => {
            types.push(Value::from("null"));
            schema
        }
        Some(one) => {
            *one = json!([one.take(), "null"]);
            schema
        }
        None => {
            let mut outer = Map::new();
            if let Some(description) = schema.remove("description") {
                outer.insert("description".to_owned(), description);
            }
            outer.insert("anyOf".to_owned(), json!([schema, {"type": "null"}]));
            outer
        }
    }
}
