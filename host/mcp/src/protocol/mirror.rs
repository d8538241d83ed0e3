//! Arguments that 2026-07-28 mirrors in HTTP headers (`x-mcp-header` in a schema), so that a proxy can route a call
//! without parsing the body. A client must not call a tool whose schema has invalid marks.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The schema keyword of a mark.
const MARK: &str = "x-mcp-header";
/// Prefix of the header names.
const PREFIX: &str = "mcp-param-";
/// Most headers of one call.
pub(crate) const MAX_HEADERS: usize = 32;
/// Longest encoded value, in bytes.
const MAX_VALUE: usize = 8 << 10;

/// Whether a header, in lower case, mirrors an argument.
pub(crate) fn is_mirror_header(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|argument| !argument.is_empty())
}

/// The arguments of a tool that are mirrored in headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeaderMirror(Vec<(Vec<String>, String)>);

impl HeaderMirror {
    /// Reads the marks of a schema.
    ///
    /// # Errors
    /// A mark is invalid.
    pub(crate) fn from_schema(schema: &Value) -> Result<Self, String> {
        if schema.get(MARK).is_some() || has_misplaced_mark(schema, true) {
            return Err(format!("`{MARK}` is not on an argument"));
        }
        let mut found = Vec::new();
        collect_marks(schema, &mut Vec::new(), &mut found)?;
        let names: BTreeSet<String> = found.iter().map(|(_, name)| name.to_ascii_lowercase()).collect();
        if names.len() < found.len() {
            return Err(format!("two arguments have the same `{MARK}`"));
        }
        if found.len() > MAX_HEADERS {
            return Err(format!("more than {MAX_HEADERS} arguments have `{MARK}`"));
        }
        Ok(Self(found))
    }

    /// Whether no argument is mirrored.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers for a call, each with its unencoded value. An argument that is absent or null has no value.
    pub(crate) fn values<'a>(
        &'a self,
        args: &'a Value,
    ) -> impl Iterator<Item = (String, Option<String>)> + use<'a> {
        self.0.iter().map(move |(path, name)| {
            let value = path.iter().try_fold(args, |value, step| value.get(step));
            let text = match value {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Bool(on)) => Some(on.to_string()),
                Some(Value::Number(number)) => Some(number.to_string()),
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => None,
            };
            (format!("{PREFIX}{}", name.to_ascii_lowercase()), text)
        })
    }

    /// The headers for a call, with encoded values.
    pub(crate) fn headers(&self, args: &Value) -> Vec<(String, String)> {
        let encoded = self.values(args).filter_map(|(name, value)| Some((name, encode_value(&value?))));
        encoded.filter(|(_, value)| value.len() <= MAX_VALUE).collect()
    }
}

fn collect_marks(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, String)>,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(mark) = property.get(MARK) {
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let Some(header) = mark.as_str().filter(|text| !text.is_empty() && text.chars().all(token))
            else {
                return Err(format!("`{MARK}` is not a valid header name"));
            };
            let kind = property.get("type").and_then(Value::as_str);
            if !matches!(kind, Some("string" | "integer" | "boolean")) {
                return Err(format!(
                    "`{MARK}` is on an argument that is not a string, an integer or a boolean"
                ));
            }
            found.push((path.clone(), header.to_owned()));
        }
        collect_marks(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// Whether a mark is on anything but an argument with a fixed path.
fn has_misplaced_mark(schema: &Value, on_the_way: bool) -> bool {
    let inner = |map: &Map<String, Value>, on: bool| map.values().any(|one| has_misplaced_mark(one, on));
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| match (key.as_str(), value) {
            (MARK, _) => !on_the_way,
            ("properties", Value::Object(named)) => inner(named, on_the_way),
            ("$defs" | "definitions" | "dependentSchemas" | "patternProperties", Value::Object(named)) => {
                inner(named, false)
            }
            ("default" | "const" | "enum" | "examples", _) => false,
            (_, value) => has_misplaced_mark(value, false),
        }),
        Value::Array(items) => items.iter().any(|item| has_misplaced_mark(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The schema without marks, for a transport without headers.
pub(crate) fn without_marks(schema: &Value) -> Value {
    match schema {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != MARK);
            kept.map(|(key, value)| (key.clone(), without_marks(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(without_marks).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// Encodes a header value: unchanged, or as marked base64 if HTTP would change or refuse it.
pub(crate) fn encode_value(text: &str) -> String {
    let plain = text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && text.trim_matches(' ') == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// Decodes a header value. `None` if it is marked as base64 and invalid.
pub(crate) fn decode_value(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|inner| inner.strip_suffix("?=")) {
        Some(inner) => String::from_utf8(STANDARD.decode(inner).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marked_arguments_are_mirrored() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "n": {"type": "integer", "x-mcp-header": "N"},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
            "plain": {"type": "string", "default": {"x-mcp-header": "is data"}},
        }});
        let mirror = HeaderMirror::from_schema(&schema).unwrap();
        let headers = mirror.headers(&json!({"region": " é", "n": 3, "deep": {"on": false}, "plain": "x"}));
        let expect =
            [("mcp-param-region", "=?base64?IMOp?="), ("mcp-param-n", "3"), ("mcp-param-on", "false")];
        assert_eq!(headers, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(mirror.headers(&json!({"region": null})).is_empty());
    }

    #[test]
    fn invalid_marks_are_refused() {
        let property = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for schema in [
            property(json!({"type": "string", "x-mcp-header": ""})),
            property(json!({"type": "string", "x-mcp-header": "a b"})),
            property(json!({"type": "string", "x-mcp-header": "é"})),
            property(json!({"type": "string", "x-mcp-header": 7})),
            property(json!({"type": "number", "x-mcp-header": "A"})),
            property(json!({"type": ["string", "null"], "x-mcp-header": "A"})),
            property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"type": "object", "$defs": {"d": {"type": "string", "x-mcp-header": "A"}}}),
            json!({"type": "object", "properties": {
                "a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}}),
        ] {
            assert!(HeaderMirror::from_schema(&schema).is_err(), "{schema}");
        }
        assert_eq!(decode_value("=?base64?!?="), None);
    }

    #[test]
    fn values_unsafe_in_a_header_are_encoded() {
        for (text, expect) in [
            ("", ""),
            ("us west", "us west"),
            ("x ", "=?base64?eCA=?="),
            ("a\tb", "=?base64?YQli?="),
            ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ] {
            assert_eq!(encode_value(text), expect);
            assert_eq!(decode_value(expect).as_deref(), Some(text));
        }
    }
}
