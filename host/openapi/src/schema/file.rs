//! Files in forms.

use serde_json::{Map, Value, json};

use super::context::FormPart;
use super::{MAX_DESCRIPTION, plain_text};
use crate::scalar::scalar_text;

/// Whether a schema is a file of a form: bytes (3.0), a media type without an encoding (3.1), or a part without a type
/// whose encoding is that of a file (3.1). `type: file` is left from Swagger 2.
pub(super) fn is_file(map: &Map<String, Value>, form: FormPart) -> bool {
    let binary = match form {
        FormPart::Field { binary } | FormPart::Item { binary } => binary,
        FormPart::None | FormPart::Whole => return false,
    };
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let types = match map.get("type") {
        Some(Value::String(one)) if one == "file" => return true,
        Some(Value::Array(types)) => types.iter().any(|one| one == "string"),
        Some(one) => one == "string",
        None => true,
    };
    let is_composed =
        ["$ref", "allOf", "anyOf", "oneOf", "properties", "items"].iter().any(|key| map.contains_key(*key));
    let by_encoding = binary && map.get("type").is_none() && !is_composed;
    types
        && (by_encoding
            || text("format") == Some("binary")
            || (text("contentMediaType").is_some() && text("contentEncoding").is_none()))
}

/// A file in an argument.
pub(super) fn file_schema(map: &Map<String, Value>) -> Value {
    let about = map.get("description").and_then(scalar_text).map(|text| plain_text(&text, MAX_DESCRIPTION));
    let about = about.filter(|text| !text.is_empty()).map_or_else(String::new, |text| format!(" {text}"));
    let types = match map.get("nullable") {
        Some(Value::Bool(true)) => json!(["object", "null"]),
        _ => json!("object"),
    };
    json!({"type": types, "description": format!("A file.{about}"), "required": ["base64"],
        "additionalProperties": false, "properties": {
            "base64": {"type": "string", "description": "The content, in base64."},
            "filename": {"type": "string"},
            "mime_type": {"type": "string"}}})
}
