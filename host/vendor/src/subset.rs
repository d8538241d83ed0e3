//! The subsets of JSON Schema that vendors support, and the losses of the conversion.

use serde_json::{Map, Value};

/// A part of a tool's schema that a vendor does not support.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SchemaLoss {
    /// The tool's name.
    pub tool: String,
    /// The JSON pointer into the schema.
    pub pointer: String,
    /// A description of the loss.
    pub what: String,
}

impl SchemaLoss {
    pub(super) fn new(tool: &str, pointer: &str, what: &str) -> Self {
        Self { tool: tool.to_owned(), pointer: pointer.to_owned(), what: what.to_owned() }
    }
}

/// Combinators that OpenAI and Anthropic refuse at the root.
const ROOT_COMBINATORS: [&str; 6] = ["oneOf", "anyOf", "allOf", "not", "enum", "if"];
/// Keywords that depend on a combinator.
const DEPENDENT_KEYWORDS: [&str; 2] = ["then", "else"];
/// Deepest nesting and most properties of a strict schema (OpenAI's structured outputs).
const STRICT_DEPTH: usize = 10;
const STRICT_PROPERTIES: usize = 5000;
/// Most levels of nested references that are inlined.
const INLINE_DEPTH: usize = 16;
/// Most nodes of a schema with inlined references. A larger schema keeps its references.
const INLINE_NODES: usize = 10_000;

/// The schema without combinators at the root. The host still validates calls against them.
pub(super) fn without_root_combinators(schema: &Value, lose: &mut impl FnMut(&str, &str)) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut map = map.clone();
    map.remove("$schema");
    for key in ROOT_COMBINATORS {
        if map.remove(key).is_some() {
            lose(&format!("/{key}"), "combinators at the root are not supported");
        }
    }
    for key in DEPENDENT_KEYWORDS {
        map.remove(key);
    }
    map.entry("type").or_insert_with(|| "object".into());
    map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    Value::Object(map)
}

/// The schema for strict mode; `None` if strict mode cannot express it exactly. Strict mode requires that all
/// properties are required, that no others are allowed, and that all keywords are supported by constrained decoding.
pub(super) fn strict_schema(schema: &Value) -> Option<Value> {
    let Value::Object(map) = schema else { return None };
    if map.get("type").and_then(Value::as_str) != Some("object")
        || ROOT_COMBINATORS.iter().any(|key| map.contains_key(*key))
    {
        return None;
    }
    let mut budget = STRICT_PROPERTIES;
    strict_node(schema, 0, &mut budget)
}

fn strict_node(schema: &Value, depth: usize, budget: &mut usize) -> Option<Value> {
    let Value::Object(map) = schema else { return None };
    if depth > STRICT_DEPTH {
        return None;
    }
    let mut out = Map::new();
    let object = match map.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => map.contains_key("properties"),
    };
    if object && !is_closed_object(map) {
        return None;
    }
    for (key, value) in map {
        let value = match key.as_str() {
            // Annotations, which neither the model nor the validation needs.
            "$schema" | "default" | "examples" | "title" | "$comment" => continue,
            "description"
            | "type"
            | "required"
            | "additionalProperties"
            | "enum"
            | "const"
            | "pattern"
            | "minimum"
            | "maximum"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "multipleOf"
            | "minItems"
            | "maxItems"
            | "$ref" => value.clone(),
            "format" if value.as_str().is_some_and(|format| STRICT_FORMATS.contains(&format)) => {
                value.clone()
            }
            "properties" | "$defs" => {
                let Value::Object(inner) = value else { return None };
                *budget = budget.checked_sub(inner.len())?;
                let each = |(name, one): (&String, &Value)| {
                    Some((name.clone(), strict_node(one, depth + 1, budget)?))
                };
                Value::Object(inner.iter().map(each).collect::<Option<_>>()?)
            }
            "items" => strict_node(value, depth + 1, budget)?,
            "anyOf" => {
                let Value::Array(inner) = value else { return None };
                let each = |one: &Value| strict_node(one, depth + 1, budget);
                Value::Array(inner.iter().map(each).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        out.insert(key.clone(), value);
    }
    Some(Value::Object(out))
}

/// The formats that strict mode supports.
const STRICT_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

fn required_names(map: &Map<String, Value>) -> impl Iterator<Item = &str> {
    map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether an object requires all its properties and allows no others.
fn is_closed_object(map: &Map<String, Value>) -> bool {
    let names = map.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = required_names(map).collect();
    map.get("additionalProperties") == Some(&Value::Bool(false))
        && names.into_iter().flat_map(|names| names.keys()).all(|name| required.contains(&name.as_str()))
}

/// The schema for Gemini: without `$schema`, with inlined local references, since Gemini refuses other keywords next to
/// `$ref`, and without optional parameters whose names Gemini does not accept.
pub(super) fn gemini_schema(schema: &Value, lose: &mut impl FnMut(&str, &str)) -> Value {
    let mut nodes = 0;
    let mut out = inline_references(schema, schema, 0, &mut nodes).unwrap_or_else(|| {
        lose("/$defs", "the references are recursive or too large to inline, so they stay references");
        schema.clone()
    });
    let Value::Object(map) = &mut out else { return out };
    map.remove("$schema");
    let required: Vec<String> = required_names(map).map(ToOwned::to_owned).collect();
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.retain(|name, _| {
            if is_parameter_name(name) {
                return true;
            }
            let pointer = format!("/properties/{}", name.replace('~', "~0").replace('/', "~1"));
            let is_required = required.contains(name);
            let effect =
                if is_required { "the vendor may refuse the tool" } else { "the parameter is left out" };
            lose(
                &pointer,
                &format!("the parameter's name is not at most 64 letters, digits and `_`; {effect}"),
            );
            is_required
        });
    }
    out
}

fn is_parameter_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Inlines references; `None` if they are recursive or the result is too large.
fn inline_references(node: &Value, root: &Value, depth: usize, nodes: &mut usize) -> Option<Value> {
    *nodes += 1;
    if *nodes > INLINE_NODES {
        return None;
    }
    match node {
        Value::Object(map) => {
            let mut out = Map::new();
            if let Some(Value::String(reference)) = map.get("$ref") {
                let target = root.pointer(reference.strip_prefix('#')?)?;
                if depth >= INLINE_DEPTH {
                    return None;
                }
                if let Value::Object(target) = inline_references(target, root, depth + 1, nodes)? {
                    out = target;
                }
            }
            for (key, value) in
                map.iter().filter(|(key, _)| !matches!(key.as_str(), "$ref" | "$defs" | "$schema"))
            {
                out.insert(key.clone(), inline_references(value, root, depth, nodes)?);
            }
            Some(Value::Object(out))
        }
        Value::Array(list) => {
            let list: Option<Vec<Value>> =
                list.iter().map(|one| inline_references(one, root, depth, nodes)).collect();
            list.map(Value::Array)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(node.clone()),
    }
}
