//! What of a tool some client or vendor will not take, though the host does. Each rule names who.
//!
//! | rule | who breaks |
//! |---|---|
//! | a name beyond 45 characters | Cursor drops tools where server and tool name exceed 60 |
//! | a name that begins with a digit or `-` | Gemini refuses it |
//! | a description beyond 1024 characters | OpenAI cuts it |
//! | `anyOf`, `oneOf` or `allOf` at the root of the arguments | the Claude API answers 400, and Claude Code loses the session |
//! | an argument that is no identifier of 64 characters | Gemini refuses it |
//! | a reference to outside of the schema, or `$dynamicRef` | clients of MCP must not follow it; OpenAI and Gemini refuse it |
//! | `x-mcp-header` that is no header, stands twice, or on what is no plain value | clients of MCP 2026-07-28 must drop the tool |
//! | an output that is no object | MCP clients before 2026-07-28 drop the whole list, so it is wrapped for them |

use std::collections::BTreeSet;

use serde_json::Value;
use toolbay_policy::text::one_line;

use crate::tool::ToolDef;

/// Longest name that all clients show.
const MAX_NAME: usize = 45;
/// Longest description that all vendors take, in characters.
const MAX_DESCRIPTION: usize = 1024;
/// Longest header name, in bytes.
const MAX_HEADER: usize = 64;
/// Longest name of an argument.
const MAX_ARGUMENT: usize = 64;

/// Something that somebody will not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether somebody loses the tool by it, or more; otherwise it only looks otherwise.
    pub loses: bool,
    /// What, and who.
    pub text: String,
}

/// All findings about a tool.
#[must_use]
pub fn findings(def: &ToolDef) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = def.name.as_str();
    if name.len() > MAX_NAME {
        found.push(loses(format!(
            "`{name}` has {} characters; Cursor drops tools where server and tool name exceed 60, so stay within \
             {MAX_NAME}",
            name.len()
        )));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        found.push(loses(format!("`{name}` starts with neither a letter nor `_`; Gemini refuses it")));
    }
    let count = def.description.chars().count();
    if count > MAX_DESCRIPTION {
        let text =
            format!("the description of `{name}` has {count} characters; OpenAI cuts at {MAX_DESCRIPTION}");
        found.push(Finding { loses: false, text });
    }
    let input = def.input_schema.value();
    for keyword in ["anyOf", "oneOf", "allOf"].into_iter().filter(|keyword| input.get(keyword).is_some()) {
        found.push(loses(format!(
            "the input schema of `{name}` has `{keyword}` at its root; the Claude API answers 400, and Claude Code loses \
             the session"
        )));
    }
    let properties = input.get("properties").and_then(Value::as_object);
    for property in properties.into_iter().flatten().map(|(property, _)| property).filter(|p| !is_portable(p))
    {
        let property = one_line(property, MAX_ARGUMENT);
        found.push(loses(format!(
            "argument `{property}` of `{name}` is no identifier of at most {MAX_ARGUMENT} characters; Gemini refuses it"
        )));
    }
    if let Some(target) = outside(input) {
        let target = one_line(&target, 100);
        found.push(loses(format!(
            "the input schema of `{name}` refers to `{target}`; OpenAI and Gemini refuse it, clients do not follow it"
        )));
    }
    for problem in headers(input) {
        found.push(loses(format!("`{name}`: {problem}; clients of MCP 2026-07-28 drop the tool")));
    }
    if let Some(output) = &def.output_schema
        && output.value().get("type").and_then(Value::as_str) != Some("object")
    {
        let text = format!(
            "the output schema of `{name}` is not an object; it is wrapped as `result` for MCP clients before 2026-07-28"
        );
        found.push(Finding { loses: false, text });
    }
    found
}

fn loses(text: String) -> Finding {
    Finding { loses: true, text }
}

/// Whether all vendors take this name of an argument.
fn is_portable(name: &str) -> bool {
    (1..=MAX_ARGUMENT).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A reference that does not stay in the schema, or is settled only when it is followed.
fn outside(schema: &Value) -> Option<String> {
    match schema {
        Value::Array(parts) => parts.iter().find_map(outside),
        Value::Object(parts) => parts.iter().find_map(|(key, part)| match (key.as_str(), part) {
            ("$ref", Value::String(target)) if !target.starts_with('#') => Some(target.clone()),
            ("$dynamicRef", Value::String(target)) => Some(target.clone()),
            // These hold values, not schemas.
            ("const" | "enum" | "default" | "examples", _) => None,
            (_, part) => outside(part),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// What is wrong with the headers that mirror arguments.
fn headers(input: &Value) -> Vec<String> {
    let (mut problems, mut names) = (Vec::new(), BTreeSet::new());
    let properties = input.get("properties").and_then(Value::as_object);
    for (property, schema) in properties.into_iter().flatten() {
        if let Some(header) = schema.get("x-mcp-header") {
            let property = one_line(property, MAX_ARGUMENT);
            let name = header.as_str().filter(|name| is_token(name));
            match name {
                None => {
                    problems.push(format!("`x-mcp-header` of argument `{property}` is no name of a header"));
                }
                Some(name) if !names.insert(name.to_ascii_lowercase()) => {
                    problems.push(format!("`x-mcp-header` has `{name}` twice"));
                }
                Some(_) if !is_plain(schema) => {
                    problems.push(format!(
                        "`x-mcp-header` stands on argument `{property}`, which is no plain value"
                    ));
                }
                Some(_) => {}
            }
        }
        if deeper(schema) {
            let property = one_line(property, MAX_ARGUMENT);
            problems.push(format!("`x-mcp-header` stands inside of argument `{property}`, and not on it"));
        }
    }
    problems
}

/// A name as RFC 9110 has it.
fn is_token(name: &str) -> bool {
    (1..=MAX_HEADER).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_plain(schema: &Value) -> bool {
    matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "number" | "boolean"))
}

/// Whether the keyword stands somewhere inside of a schema, and not on it.
fn deeper(schema: &Value) -> bool {
    let holds = |part: &Value| part.get("x-mcp-header").is_some() || deeper(part);
    match schema {
        Value::Array(parts) => parts.iter().any(holds),
        Value::Object(parts) => parts.iter().any(|(key, part)| {
            !matches!(key.as_str(), "const" | "enum" | "default" | "examples") && holds(part)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolSource;
    use crate::tool::schema::Schema;
    use serde_json::json;
    use toolbay_policy::name::{QualifiedName, ToolName};

    fn def(name: &str, input: &Value) -> ToolDef {
        let name = QualifiedName::native(&ToolName::new(name).unwrap());
        ToolDef::new(name, "Does it.", Schema::input(&input.to_string()).unwrap(), ToolSource::Builtin)
    }

    fn texts(def: &ToolDef) -> Vec<String> {
        findings(def).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn each_rule_names_who_breaks() {
        let with = |key: &str, value: Value| {
            let mut input = json!({"type": "object"});
            input[key] = value;
            input
        };
        let property = |schema: Value| with("properties", json!({"a": schema}));
        for (name, input, part) in [
            ("a", json!({"type": "object"}), None),
            ("a", property(json!({"type": "string", "x-mcp-header": "Region"})), None),
            (
                "a",
                property(json!({"$ref": "#/$defs/x"}))
                    .as_object()
                    .map(|map| {
                        let mut map = map.clone();
                        map.insert("$defs".to_owned(), json!({"x": {"type": "string"}}));
                        Value::Object(map)
                    })
                    .unwrap(),
                None,
            ),
            (&"a".repeat(46), json!({"type": "object"}), Some("Cursor")),
            ("1a", json!({"type": "object"}), Some("Gemini")),
            ("a", with("anyOf", json!([{}])), Some("Claude Code")),
            ("a", with("properties", json!({"a.b": {}})), Some("Gemini")),
            ("a", property(json!({"type": "string", "x-mcp-header": ""})), Some("no name of a header")),
            ("a", property(json!({"type": "string", "x-mcp-header": "a b"})), Some("no name of a header")),
            ("a", property(json!({"type": "string", "x-mcp-header": 1})), Some("no name of a header")),
            ("a", property(json!({"type": "object", "x-mcp-header": "A"})), Some("no plain value")),
            (
                "a",
                property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
                Some("inside of argument"),
            ),
            (
                "a",
                with(
                    "properties",
                    json!({
                        "a": {"type": "string", "x-mcp-header": "Region"},
                        "b": {"type": "string", "x-mcp-header": "region"},
                    }),
                ),
                Some("twice"),
            ),
        ] {
            let found = texts(&def(name, &input));
            assert_eq!(found.len(), usize::from(part.is_some()), "{input}: {found:?}");
            assert!(part.is_none_or(|part| found[0].contains(part)), "{input}: {found:?}");
        }
        let mut long = def("a", &json!({"type": "object"}));
        long.description = "x".repeat(1025);
        long.output_schema = Some(Schema::output(r#"{"type":"array"}"#).unwrap());
        let found = findings(&long);
        assert!(found[0].text.contains("OpenAI") && found[1].text.contains("wrapped"), "{found:?}");
        assert!(found.iter().all(|finding| !finding.loses));
    }

    #[test]
    fn a_reference_to_outside_is_found_wherever_it_is() {
        let outside = |schema: Value| super::outside(&schema);
        assert_eq!(outside(json!({"$ref": "https://x"})).as_deref(), Some("https://x"));
        assert_eq!(outside(json!({"items": [{"$dynamicRef": "#a"}]})).as_deref(), Some("#a"));
        assert_eq!(outside(json!({"const": {"$ref": "x"}, "$ref": "#/a"})), None);
    }
}
