//! Values in a schema, converted to the type that it declares: converters and YAML mix numbers, truth values and texts.
//!
//! | type | value | counts as |
//! |---|---|---|
//! | `string` | `1`, `true` | `"1"`, `"true"` |
//! | `integer`, `number` | `"10"` | `10` |
//! | `boolean` | `"True"` | `true` |

use serde_json::{Map, Value, json};

use super::text::keep_example;
use crate::document::OpenApiDocument;
use crate::scalar::{member_flag, scalar_text};

/// Keywords whose value is a number.
const NUMBER_KEYWORDS: [&str; 13] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];

/// What a schema says about the types of its values.
pub(super) struct DeclaredTypes<'a> {
    document: &'a OpenApiDocument,
    /// Empty if any type is allowed.
    names: Vec<&'a str>,
    allows_null: bool,
}

impl<'a> DeclaredTypes<'a> {
    pub(super) fn of(document: &'a OpenApiDocument, map: &'a Map<String, Value>) -> Self {
        let names: Vec<&str> = match map.get("type") {
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
            one => one.and_then(Value::as_str).into_iter().collect(),
        };
        let allows_null =
            names.is_empty() || names.contains(&"null") || member_flag(map, "nullable") == Some(true);
        Self { document, names, allows_null }
    }

    /// The values of `enum` that fit a type. `None` if none does, or if the text of one is not known.
    pub(super) fn enumeration(&self, values: &[Value]) -> Option<Value> {
        let mut fitting = Vec::new();
        for value in values {
            match self.value(value) {
                Some(value) => fitting.push(value),
                // Its text is not known, so without it the rest would refuse what the document allows.
                None if value.is_f64() && self.names.contains(&"string") => return None,
                None => {}
            }
        }
        let is_usable = fitting.iter().any(|value| self.allows_null || !value.is_null());
        is_usable.then_some(Value::Array(fitting))
    }

    /// The value of `const`.
    pub(super) fn constant(&self, value: &Value) -> Option<Value> {
        self.value(value).filter(|value| self.allows_null || !value.is_null())
    }

    /// A value as one of the types. `null` stays: authors list it beside other values, and as a default.
    pub(super) fn value(&self, value: &Value) -> Option<Value> {
        let is_kept =
            value.is_null() || self.names.is_empty() || self.names.iter().any(|name| fits(name, value));
        if is_kept {
            return Some(value.clone());
        }
        self.names.iter().find_map(|name| self.converted(name, value))
    }

    fn converted(&self, name: &str, value: &Value) -> Option<Value> {
        match (name, value) {
            ("string", Value::Number(number)) if number.is_f64() => {
                self.document.respelled.text_of(number.as_f64()?).map(Value::from)
            }
            ("string", _) => scalar_text(value).map(Value::from),
            ("integer" | "number", Value::String(text)) => {
                number_in(text).filter(|number| fits(name, number))
            }
            ("boolean", Value::String(text)) => {
                text.trim().to_ascii_lowercase().parse().ok().map(Value::Bool)
            }
            _ => None,
        }
    }
}

/// Whether a value is of a type. Any is of an unknown type.
fn fits(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

/// The number that a text is.
fn number_in(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(Value::is_number)
}

/// The value of a keyword that needs a number, if it is written as text. `None` if the text is no number.
pub(super) fn bound(key: &str, value: Value) -> Option<Value> {
    match &value {
        Value::String(text) if NUMBER_KEYWORDS.contains(&key) => number_in(text),
        _ => Some(value),
    }
}

/// Adds the example of a schema of 3.0.
pub(super) fn add_example(types: &DeclaredTypes<'_>, map: &Map<String, Value>, out: &mut Map<String, Value>) {
    if out.contains_key("examples") {
        return;
    }
    if let Some(example) = map.get("example").and_then(keep_example) {
        let example = types.value(&example).unwrap_or(example);
        out.insert("examples".to_owned(), json!([example]));
    }
}
