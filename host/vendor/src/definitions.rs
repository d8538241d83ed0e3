//! Definitions: what a vendor is told of the tools.

use serde_json::{Map, Value, json};

use super::Vendor;
use super::subset::{self, Loss};
use toolbay_core::registry::view::View;
use toolbay_core::tool::{ToolDef, ToolTraits};

/// Definitions in a vendor's format, ready to be put under `tools` of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Definitions {
    /// A JSON array.
    pub tools: Value,
    /// What the vendor's subset of JSON Schema could not hold.
    pub lost: Vec<Loss>,
    /// The tools that are sent without strict mode although it was asked for.
    pub not_strict: Vec<String>,
}

/// Writes tools in a vendor's format. With `strict`, a tool's arguments are constrained while the model writes them
/// (OpenAI, Anthropic), for each tool whose schema that can say exactly; the others are sent without.
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
    Definitions { tools, lost, not_strict }
}

fn is_strict(definition: &Value) -> bool {
    let inner = definition.get("function").unwrap_or(definition);
    inner.get("strict") == Some(&Value::Bool(true))
}

/// The tools of a view's first list in a vendor's format; see [`definitions`].
///
/// ```
/// # use std::sync::Arc;
/// # use toolbay_core::registry::{Registry, view::{Filter, View}};
/// use toolbay_vendor::{self, Vendor};
///
/// # let registry = Registry::default();
/// let view = View::new(registry.snapshot(), Filter::default());
/// let body = toolbay_vendor::of_view(Vendor::Anthropic, &view, false);
/// for loss in &body.lost {
///     eprintln!("{}: {} {}", loss.tool, loss.pointer, loss.what);
/// }
/// let request = serde_json::json!({"model": "…", "messages": [], "tools": body.tools});
/// # assert!(request["tools"].is_array());
/// ```
#[must_use]
pub fn of_view(vendor: Vendor, view: &View, strict: bool) -> Definitions {
    definitions(vendor, view.definitions().map(|entry| &*entry.def), strict)
}

fn define(vendor: Vendor, tool: &ToolDef, strict: bool, lost: &mut Vec<Loss>) -> Value {
    let (name, description) = (tool.name.as_str(), tool.description.as_str());
    let whole = tool.input_schema.value();
    let mut lose = |pointer: &str, what: &str| lost.push(Loss::new(name, pointer, what));
    match vendor {
        Vendor::OpenaiChat => {
            let (parameters, strict) = parameters(whole, strict, &mut lose);
            json!({"type": "function", "function": {
                "name": name, "description": description, "parameters": parameters, "strict": strict,
            }})
        }
        Vendor::OpenaiResponses => {
            let (parameters, strict) = parameters(whole, strict, &mut lose);
            json!({
                "type": "function", "name": name, "description": description,
                "parameters": parameters, "strict": strict,
            })
        }
        Vendor::Anthropic => {
            let (parameters, strict) = parameters(whole, strict, &mut lose);
            let mut tool = json!({"name": name, "description": description});
            if strict {
                put(&mut tool, "strict", true);
            }
            put(&mut tool, "input_schema", parameters);
            tool
        }
        Vendor::Gemini => {
            if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                lose("", "a name must begin with a letter or `_`: the vendor may refuse the tool");
            }
            let schema = subset::gemini(whole, &mut lose);
            let mut definition =
                json!({"name": name, "description": description, "parametersJsonSchema": schema});
            if let Some(output) = &tool.output_schema {
                put(&mut definition, "responseJsonSchema", subset::gemini(output.value(), &mut lose));
            }
            definition
        }
        Vendor::Mcp => mcp(tool),
    }
}

/// The schema of the arguments, and whether it is one for strict mode.
fn parameters(whole: &Value, strict: bool, lose: &mut impl FnMut(&str, &str)) -> (Value, bool) {
    match strict.then(|| subset::strict(whole)).flatten() {
        Some(exact) => (exact, true),
        None => (subset::plain_root(whole, lose), false),
    }
}

fn mcp(tool: &ToolDef) -> Value {
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

/// The four hints of MCP; what no trait says is left to the protocol's defaults, which are the worst case.
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
