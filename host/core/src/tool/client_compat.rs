//! Compatibility of tool definitions with clients and model vendors. The host accepts these definitions, but a client
//! or vendor does not. The host writes schemas in the form that the most clients accept
//! ([`crate::tool::schema::to_portable_form`]); these findings are about what has no such form.
//!
//! | definition | effect |
//! |---|---|
//! | a name longer than 45 characters | Cursor drops tools whose server and tool name together exceed 60 characters |
//! | a name that starts with a digit or `-` | Gemini refuses it |
//! | a description longer than 1024 characters | OpenAI cuts it |
//! | `anyOf`, `oneOf`, `allOf`, `not`, `enum`, `if` or `$ref` at the root of the input schema | the APIs of Claude and OpenAI return status 400, and Claude Code loses the session |
//! | several types in `type` | Semantic Kernel loads no tool of the server |
//! | `prefixItems` | clients that validate as draft-07 refuse it, and so do OpenAI and Gemini |
//! | an argument name with other characters than ASCII letters, digits, `_` and `-` | Semantic Kernel loads no tool of the server; Gemini refuses it, and so does the API of Claude, except for a dot |
//! | an argument name of more than 64 characters | Gemini and the API of Claude refuse it |
//! | an argument name that is not an identifier | Gemini refuses it |
//! | a reference that leaves the schema, or `$dynamicRef` | MCP clients must not follow it; OpenAI and Gemini refuse it |
//! | an `x-mcp-header` that is invalid, duplicate, or on a value that is not primitive | clients of MCP 2026-07-28 must drop the tool |
//! | an output schema whose type is not `object` | MCP clients before 2026-07-28 drop the whole list, so the host wraps the output for them |

use std::collections::BTreeSet;

use serde_json::Value;
use toolbay_policy::excerpt::one_line;
use toolbay_policy::name_list::list_names;

use crate::tool::ToolDef;
use crate::tool::schema;

/// Longest tool name that all clients accept.
const MAX_NAME: usize = 45;
/// Longest description that all vendors accept, in characters.
const MAX_DESCRIPTION: usize = 1024;
/// Longest header name, in bytes.
const MAX_HEADER: usize = 64;
/// Longest name of an argument.
const MAX_ARGUMENT: usize = 64;
/// Most names in a finding.
const MAX_LISTED: usize = 3;
/// Longest JSON pointer in a finding, in characters.
const MAX_POINTER: usize = 100;
/// Keywords that model APIs refuse at the root of a schema.
const ROOT_KEYWORDS: [&str; 7] = ["anyOf", "oneOf", "allOf", "not", "enum", "if", "$ref"];

/// An incompatibility with a client or vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompatFinding {
    /// Whether a client loses the tool or more. Otherwise the definition only looks different to the client.
    pub breaks_client: bool,
    /// The problem and the affected clients.
    pub text: String,
}

/// All incompatibilities of a tool.
#[must_use]
pub fn findings(def: &ToolDef) -> Vec<CompatFinding> {
    let mut found = Vec::new();
    let name = def.name.as_str();
    if name.len() > MAX_NAME {
        found.push(breaking(format!(
            "the name `{name}` has {} characters; Cursor drops tools whose server and tool name together exceed 60 \
             characters, so use at most {MAX_NAME}",
            name.len()
        )));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        found.push(breaking(format!("`{name}` starts with neither a letter nor `_`; Gemini refuses it")));
    }
    let count = def.description.chars().count();
    if count > MAX_DESCRIPTION {
        let text =
            format!("the description of `{name}` has {count} characters; OpenAI cuts at {MAX_DESCRIPTION}");
        found.push(CompatFinding { breaks_client: false, text });
    }
    found.extend(schema_findings(def));
    let input = def.input_schema.value();
    let is_short = |name: &&String| is_plain_argument(name) && name.len() <= MAX_ARGUMENT;
    for property in arguments(input).filter(|name| is_short(name) && !is_identifier(name)) {
        found.push(breaking(format!(
            "argument `{property}` of `{name}` is not an identifier; Gemini refuses it"
        )));
    }
    for problem in header_problems(input) {
        found.push(breaking(format!("`{name}`: {problem}; clients of MCP 2026-07-28 drop the tool")));
    }
    if let Some(output) = &def.output_schema
        && output.value().get("type").and_then(Value::as_str) != Some("object")
    {
        let text = format!(
            "the output schema of `{name}` does not have the type `object`; the output is wrapped as `result` for MCP \
             clients before 2026-07-28"
        );
        found.push(CompatFinding { breaks_client: false, text });
    }
    found
}

/// The incompatibilities of the input schema of a tool, which depend on its author only.
#[must_use]
pub fn schema_findings(def: &ToolDef) -> Vec<CompatFinding> {
    let (name, input) = (def.name.as_str(), def.input_schema.value());
    let at_root = ROOT_KEYWORDS.into_iter().filter(|keyword| input.get(keyword).is_some());
    let mut found: Vec<CompatFinding> = at_root
        .map(|keyword| {
            breaking(format!(
                "the input schema of `{name}` has `{keyword}` at its root; the APIs of Claude and OpenAI return status \
                 400, and Claude Code loses the session"
            ))
        })
        .collect();
    if let Some(pointer) = find_schema(input, &|schema| schema.get("type").is_some_and(Value::is_array)) {
        found.push(breaking(format!(
            "the input schema of `{name}` has several types at `{pointer}`; Semantic Kernel loads no tool of the server"
        )));
    }
    if let Some(pointer) = find_schema(input, &|schema| schema.get("prefixItems").is_some()) {
        found.push(breaking(format!(
            "the input schema of `{name}` has `prefixItems` at `{pointer}`; clients that validate as draft-07 refuse \
             it, and so do OpenAI and Gemini"
        )));
    }
    if let Some(odd) = list_arguments(input, |name| !is_plain_argument(name)) {
        found.push(breaking(format!(
            "`{name}` has arguments whose names have other characters than ASCII letters, digits, `_` and `-`: {odd}; \
             Semantic Kernel loads no tool of the server, Gemini refuses them, and so does the API of Claude, except for \
             dots"
        )));
    }
    if let Some(long) = list_arguments(input, |name| name.len() > MAX_ARGUMENT) {
        found.push(breaking(format!(
            "`{name}` has arguments whose names have more than {MAX_ARGUMENT} characters: {long}; Gemini and the API of \
             Claude refuse them"
        )));
    }
    if let Some(target) = find_external_reference(input) {
        let target = one_line(&target, 100);
        found.push(breaking(format!(
            "the input schema of `{name}` refers to `{target}`; OpenAI and Gemini refuse it, and clients do not \
             follow it"
        )));
    }
    found
}

/// The JSON pointer of the first schema that is `wanted`, cleaned and cut.
fn find_schema(schema: &Value, wanted: &dyn Fn(&Value) -> bool) -> Option<String> {
    fn find(schema: &Value, wanted: &dyn Fn(&Value) -> bool, at: &mut String) -> bool {
        if wanted(schema) {
            return true;
        }
        schema::subschemas(schema).any(|(step, inner)| {
            let end = at.len();
            at.push('/');
            at.push_str(&step);
            let found = find(inner, wanted, at);
            if !found {
                at.truncate(end);
            }
            found
        })
    }
    let mut at = String::new();
    find(schema, wanted, &mut at).then(|| one_line(&at, MAX_POINTER))
}

fn breaking(text: String) -> CompatFinding {
    CompatFinding { breaks_client: true, text }
}

/// The names of the arguments.
fn arguments(input: &Value) -> impl Iterator<Item = &String> {
    input.get("properties").and_then(Value::as_object).into_iter().flat_map(|named| named.keys())
}

/// The first arguments whose names are `wanted`, and how many more there are. `None` if there are none.
fn list_arguments(input: &Value, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut names =
        arguments(input).filter(|name| wanted(name)).map(|name| one_line(name, MAX_ARGUMENT)).peekable();
    names.peek()?;
    Some(list_names(names, MAX_LISTED))
}

/// Whether an argument name has only characters that all clients accept.
fn is_plain_argument(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

/// Whether an argument name is an identifier.
fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A reference that leaves the schema, or a `$dynamicRef`, which is resolved at validation time.
fn find_external_reference(schema: &Value) -> Option<String> {
    match schema {
        Value::Array(parts) => parts.iter().find_map(find_external_reference),
        Value::Object(parts) => parts.iter().find_map(|(key, part)| match (key.as_str(), part) {
            ("$ref", Value::String(target)) if !target.starts_with('#') => Some(target.clone()),
            ("$dynamicRef", Value::String(target)) => Some(target.clone()),
            // These keywords contain values, not schemas.
            ("const" | "enum" | "default" | "examples", _) => None,
            (_, part) => find_external_reference(part),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// The problems of the headers that mirror arguments.
fn header_problems(input: &Value) -> Vec<String> {
    let (mut problems, mut names) = (Vec::new(), BTreeSet::new());
    let properties = input.get("properties").and_then(Value::as_object);
    for (property, schema) in properties.into_iter().flatten() {
        if let Some(header) = schema.get("x-mcp-header") {
            let property = one_line(property, MAX_ARGUMENT);
            let name = header.as_str().filter(|name| is_token(name));
            match name {
                None => {
                    problems
                        .push(format!("`x-mcp-header` of argument `{property}` is not a valid header name"));
                }
                Some(name) if !names.insert(name.to_ascii_lowercase()) => {
                    problems.push(format!("two arguments have the `x-mcp-header` `{name}`"));
                }
                Some(_) if !is_plain(schema) => {
                    problems.push(format!(
                        "`x-mcp-header` is set on argument `{property}`, whose type is not primitive"
                    ));
                }
                Some(_) => {}
            }
        }
        if has_nested_header(schema) {
            let property = one_line(property, MAX_ARGUMENT);
            problems.push(format!("`x-mcp-header` is nested inside argument `{property}`"));
        }
    }
    problems
}

/// Whether a name is a token (RFC 9110, section 5.6.2).
fn is_token(name: &str) -> bool {
    (1..=MAX_HEADER).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_plain(schema: &Value) -> bool {
    matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "number" | "boolean"))
}

/// Whether the keyword is nested in a schema instead of on it.
fn has_nested_header(schema: &Value) -> bool {
    let holds = |part: &Value| part.get("x-mcp-header").is_some() || has_nested_header(part);
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
        let name = QualifiedName::from_native(&ToolName::new(name).unwrap());
        ToolDef::new(name, "Does it.", Schema::input(&input.to_string()).unwrap(), ToolSource::Builtin)
    }

    fn texts(def: &ToolDef) -> Vec<String> {
        findings(def).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn each_finding_names_the_affected_client() {
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
            ("a", with("not", json!({"required": ["a"]})), Some("OpenAI")),
            (
                "a",
                property(json!({"items": {"type": ["string", "null"]}})),
                Some("types at `/properties/a/items`; Semantic"),
            ),
            ("a", property(json!({"default": {"type": ["string"]}})), None),
            (
                "a",
                property(json!({"anyOf": [{}, {"prefixItems": [{}, {}]}]})),
                Some("`/properties/a/anyOf/1`; clients"),
            ),
            ("a", with("properties", json!({"a-b": {}})), Some("Gemini")),
            ("a", with("properties", json!({("a".repeat(64)): {}})), None),
            ("a", with("properties", json!({("a".repeat(65)): {}})), Some("64 characters: `aaa")),
            (
                "a",
                with("properties", json!({"$top": {}, "first name": {}})),
                Some("`$top`, `first name`; Semantic"),
            ),
            (
                "a",
                with("properties", json!({"a.": {}, "b[]": {}, "ü": {}, "": {}, "e": {}})),
                Some("`a.`, `b[]`, `ü` and 1 more"),
            ),
            ("a", property(json!({"type": "string", "x-mcp-header": ""})), Some("not a valid header name")),
            (
                "a",
                property(json!({"type": "string", "x-mcp-header": "a b"})),
                Some("not a valid header name"),
            ),
            ("a", property(json!({"type": "string", "x-mcp-header": 1})), Some("not a valid header name")),
            ("a", property(json!({"type": "object", "x-mcp-header": "A"})), Some("not primitive")),
            (
                "a",
                property(json!({"type": "array", "items": {"type": "string", "x-mcp-header": "A"}})),
                Some("nested inside argument"),
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
                Some("two arguments"),
            ),
        ] {
            let found = texts(&def(name, &input));
            assert_eq!(found.len(), usize::from(part.is_some()), "{input}: {found:?}");
            assert!(part.is_none_or(|part| found[0].contains(part)), "{input}: {found:?}");
        }
    }

    #[test]
    fn a_finding_about_a_description_or_a_result_breaks_no_client() {
        let mut long = def("a", &json!({"type": "object"}));
        long.description = "x".repeat(1025);
        long.output_schema = Some(Schema::output(r#"{"type":"array"}"#).unwrap());
        let found = findings(&long);
        assert!(found[0].text.contains("OpenAI") && found[1].text.contains("wrapped"), "{found:?}");
        assert!(found.iter().all(|finding| !finding.breaks_client));
    }

    #[test]
    fn an_external_reference_is_found_at_any_depth() {
        let outside = |schema: Value| super::find_external_reference(&schema);
        assert_eq!(outside(json!({"$ref": "https://x"})).as_deref(), Some("https://x"));
        assert_eq!(outside(json!({"items": [{"$dynamicRef": "#a"}]})).as_deref(), Some("#a"));
        assert_eq!(outside(json!({"const": {"$ref": "x"}, "$ref": "#/a"})), None);
    }
}
