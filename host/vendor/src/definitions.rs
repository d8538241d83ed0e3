//! Tool definitions in the format of a vendor.

use serde_json::{Map, Value, json};

use super::Vendor;
use super::subset::{self, SchemaLoss};
use toolbay_core::registry::view::View;
use toolbay_core::tool::{ToolDef, ToolTraits};

/// Tool definitions in a vendor's format, for the field `tools` of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Definitions {
    /// A JSON array of definitions.
    pub tools: Value,
    /// The parts of schemas that the vendor's subset of JSON Schema does not support.
    pub lost: Vec<SchemaLoss>,
    /// The tools without strict mode, although strict mode was requested.
    pub non_strict: Vec<String>,
}

/// Writes tools in a vendor's format. With `strict`, OpenAI and Anthropic constrain the arguments while the model
/// generates them. Strict mode is set for each tool whose schema it can express exactly.
#[must_use]
pub fn definitions<'a>(
    vendor: Vendor,
    tools: impl IntoIterator<Item = &'a ToolDef>,
    strict: bool,
) -> Definitions {
    let (mut lost, mut not_strict, mut list) = (Vec::new(), Vec::new(), Vec::new());
    for tool in tools {
        let definition = define(vendor, tool, strict, &mut lost);
        if strict && !is_strict(&definition) {
            not_strict.push(tool.name.as_str().to_owned());
        }
        list.push(definition);
    }
    let tools = match vendor {
        Vendor::Gemini if list.is_empty() => json!([]),
        Vendor::Gemini => json!([{ "functionDeclarations": list }]),
        Vendor::OpenaiChat | Vendor::OpenaiResponses | Vendor::Anthropic | Vendor::Mcp => Value::Array(list),
    };
    Definitions { tools, lost, non_strict: not_strict }
}

fn is_strict(definition: &Value) -> bool {
    let inner = definition.get("function").unwrap_or(definition);
    inner.get("strict") == Some(&Value::Bool(true))
}

/// The default list of a view in a vendor's format; see [`definitions`].
///
/// ```
/// # use std::sync::Arc;
/// # use toolbay_core::registry::{Registry, view::{Filter, View}};
/// use toolbay_vendor::{self, Vendor};
///
/// # let registry = Registry::default();
/// let view = View::new(registry.snapshot(), Filter::default());
/// let body = toolbay_vendor::view_definitions(Vendor::Anthropic, &view, false);
/// for loss in &body.lost {
///     eprintln!("{}: {} {}", loss.tool, loss.pointer, loss.what);
/// }
/// let request = serde_json::json!({"model": "…", "messages": [], "tools": body.tools});
/// # assert!(request["tools"].is_array());
/// ```
#[must_use]
pub fn view_definitions(vendor: Vendor, view: &View, strict: bool) -> Definitions {
    definitions(vendor, view.definitions().map(|entry| &*entry.def), strict)
}

fn define(vendor: Vendor, tool: &ToolDef, strict: bool, lost: &mut Vec<SchemaLoss>) -> Value {
    let (name, description) = (tool.name.as_str(), tool.description.as_str());
    let schema = tool.input_schema.value();
    let mut lose = |pointer: &str, what: &str| lost.push(SchemaLoss::new(name, pointer, what));
    match vendor {
        Vendor::OpenaiChat => {
            let (parameters, strict) = parameters(schema, strict, &mut lose);
            json!({"type": "function", "function": {
                "name": name, "description": description, "parameters": parameters, "strict": strict,
            }})
        }
        Vendor::OpenaiResponses => {
            let (parameters, strict) = parameters(schema, strict, &mut lose);
            json!({
                "type": "function", "name": name, "description": description,
                "parameters": parameters, "strict": strict,
            })
        }
        Vendor::Anthropic => {
            let (parameters, strict) = parameters(schema, strict, &mut lose);
            let mut tool = json!({"name": name, "description": description});
            if strict {
                put(&mut tool, "strict", true);
            }
            put(&mut tool, "input_schema", parameters);
            tool
        }
        Vendor::Gemini => {
            if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                lose("", "the name does not start with a letter or `_`; the vendor may refuse the tool");
            }
            let schema = subset::gemini_schema(schema, &mut lose);
            let mut definition =
                json!({"name": name, "description": description, "parametersJsonSchema": schema});
            if let Some(output) = &tool.output_schema {
                put(&mut definition, "responseJsonSchema", subset::gemini_schema(output.value(), &mut lose));
            }
            definition
        }
        Vendor::Mcp => mcp_definition(tool),
    }
}

/// The schema of the arguments, and whether it is for strict mode.
fn parameters(whole: &Value, strict: bool, lose: &mut impl FnMut(&str, &str)) -> (Value, bool) {
    match strict.then(|| subset::strict_schema(whole)).flatten() {
        Some(exact) => (exact, true),
        None => (subset::without_root_combinators(whole, lose), false),
    }
}

fn mcp_definition(tool: &ToolDef) -> Value {
    let mut definition = json!({
        "name": tool.name.as_str(),
        "description": tool.description,
        "inputSchema": tool.input_schema.value(),
        "annotations": annotations(&tool.traits, tool.title.as_deref()),
    });
    if let Some(title) = &tool.title {
        put(&mut definition, "title", title.as_str());
    }
    if let Some(schema) = &tool.output_schema {
        put(&mut definition, "outputSchema", schema.value().clone());
    }
    definition
}

/// The four hints of MCP. Without a trait the default of the protocol applies, which is the worst case.
fn annotations(traits: &ToolTraits, title: Option<&str>) -> Value {
    let mut hints = Map::new();
    if let Some(title) = title {
        hints.insert("title".to_owned(), title.into());
    }
    for (on, hint, value) in [
        (traits.read_only, "readOnlyHint", true),
        (traits.additive, "destructiveHint", false),
        (traits.idempotent, "idempotentHint", true),
        (traits.closed_world, "openWorldHint", false),
    ] {
        if on {
            hints.insert(hint.to_owned(), value.into());
        }
    }
    Value::Object(hints)
}

fn put(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Value::Object(map) = object {
        map.insert(key.to_owned(), value.into());
    }
}
