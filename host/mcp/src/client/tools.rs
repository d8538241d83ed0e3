//! From a server's tool to one of ours. What is wrong with it costs this tool and no other, and is told.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolbay_core::delivery::Delivery;
use toolbay_core::mcp_server::{McpServer, Place, ToolRules};
use toolbay_core::name::QualifiedName;
use toolbay_core::outside::Outside;
use toolbay_core::registry::Entry;
use toolbay_core::schema::Schema;
use toolbay_core::tags::Effects;
use toolbay_core::text::{is_hidden, one_line};
use toolbay_core::tool::{ToolDef, ToolSource, ToolTraits};
use toolbay_core::untrusted;

use super::bounds::{MAX_DESCRIPTION, MAX_LABEL};
use super::mirror::Mirror;
use super::wire;

/// A tool that can be called, if somebody runs it.
#[derive(Debug)]
pub(super) struct Taken {
    /// What the server calls it.
    pub(super) own_name: String,
    pub(super) def: ToolDef,
    pub(super) rules: ToolRules,
    pub(super) mirror: Mirror,
    /// What is not as it should be and does not stop it.
    pub(super) warning: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
    #[serde(default)]
    output_schema: Option<Value>,
    #[serde(default)]
    annotations: Option<Value>,
}

/// Takes a tool; `None`: the policy leaves it out.
///
/// # Errors
/// Why it can not be taken.
pub(super) fn take(
    raw: &RawValue,
    server: &McpServer,
    version: Option<&Arc<str>>,
    outside: &dyn Outside,
) -> Result<Option<Taken>, String> {
    let tool: Tool = wire::object(raw).map_err(|error| unread(raw, &error))?;
    if !server.takes(&tool.name) {
        return Ok(None);
    }
    let shown = one_line(&tool.name, MAX_LABEL);
    let refuse = |why: String| format!("the tool `{shown}`: {why}");
    let name = QualifiedName::of_mcp(&server.name, &tool.name).map_err(|e| refuse(e.to_string()))?;
    let mut input = tool.input_schema.unwrap_or_else(|| json!({"type": "object"}));
    // Some leave it out where nothing is taken; whatever else stands there is refused below.
    if let Some(schema) = input.as_object_mut().filter(|schema| !schema.contains_key("type")) {
        schema.insert("type".to_owned(), json!("object"));
    }
    let mirror = Mirror::of(&input).map_err(refuse)?;
    let input = Schema::input(&input.to_string()).map_err(|e| refuse(format!("its input schema: {e}")))?;
    let mut warning = combined(&input).then(|| {
        refuse("its input schema has a combinator at its root, which some models refuse".to_owned())
    });
    let output = match tool.output_schema.map(|schema| Schema::output(&schema.to_string())) {
        Some(Err(error)) => {
            warning = Some(refuse(format!("it is taken without its output schema: {error}")));
            None
        }
        Some(Ok(schema)) => Some(schema),
        None => None,
    };
    let rules = server.rules_of(&tool.name);
    let source = ToolSource::Mcp { server: server.name.as_str().into(), version: version.cloned() };
    let title = tool
        .title
        .or_else(|| annotation(tool.annotations.as_ref(), "title")?.as_str().map(ToOwned::to_owned));
    let title = title.map(|title| one_line(&outside.redacted(&title), MAX_LABEL));
    let words = tool.description.map(|text| words(&text, outside)).filter(|text| !text.is_empty());
    let description = words.or_else(|| title.clone());
    let description =
        description.unwrap_or_else(|| format!("The tool {shown} of the MCP server {}.", server.name));
    let def = ToolDef {
        title,
        output_schema: output,
        toolset: Some(format!("mcp:{}", server.name)),
        traits: traits(tool.annotations.as_ref()),
        timeout: rules.timeout,
        ..ToolDef::new(name, description, input, source)
    };
    Ok(Some(Taken { own_name: tool.name, def, rules, mirror, warning }))
}

/// Why a tool can not be read, with its name if that can.
fn unread(raw: &RawValue, error: &serde_json::Error) -> String {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let what = one_line(&error.to_string(), MAX_LABEL);
    match wire::object::<Named>(raw) {
        Ok(Named { name }) => format!("the tool `{}` can not be read: {what}", one_line(&name, MAX_LABEL)),
        Err(_) => format!("a tool that can not be read: {what}"),
    }
}

/// The words of a server about its tool: data for a model to read, so without secrets, without what is not seen, without
/// what chat templates obey, and not without end.
fn words(text: &str, outside: &dyn Outside) -> String {
    let text = outside.redacted(text);
    let seen: String = text.chars().filter(|c| !is_hidden(*c) || matches!(c, '\n' | '\t')).collect();
    let neutral = untrusted::neutral(&seen);
    let mut cut: String = neutral.trim().chars().take(MAX_DESCRIPTION).collect();
    if neutral.trim().chars().nth(MAX_DESCRIPTION).is_some() {
        cut.push('…');
    }
    cut
}

fn annotation<'a>(of: Option<&'a Value>, key: &str) -> Option<&'a Value> {
    of?.as_object()?.get(key)
}

/// Hints of MCP are claims, as those of a plugin's author.
fn traits(annotations: Option<&Value>) -> ToolTraits {
    let said = |key: &str, value: bool| annotation(annotations, key) == Some(&Value::Bool(value));
    ToolTraits {
        read_only: said("readOnlyHint", true),
        additive: said("destructiveHint", false),
        idempotent: said("idempotentHint", true),
        closed_world: said("openWorldHint", false),
        untrusted_output: true,
        ..ToolTraits::default()
    }
}

/// What the section lets a server do. What a server says of itself takes nothing of it away.
pub(super) fn effects(server: &McpServer) -> Effects {
    let (child, secrets) = match &server.place {
        Place::Child(child) => (true, !child.env_secrets.is_empty()),
        Place::Http(endpoint) => (false, !endpoint.secrets.is_empty() || !endpoint.net_private.is_empty()),
    };
    Effects {
        network: true,
        file_system: child,
        privileged: child || secrets,
        may_change: true,
        ..Effects::default()
    }
}

/// A combinator at the root costs some clients the whole list.
fn combined(schema: &Schema) -> bool {
    ["oneOf", "anyOf", "allOf"].iter().any(|keyword| schema.value().get(keyword).is_some())
}

/// What the policy says of how it is shown and given out. Results of other servers are marked, whatever holds for all
/// tools of the host: only the server's own section can say otherwise.
pub(super) fn dress(entry: Entry, rules: &ToolRules) -> Entry {
    let marked = Delivery { untrusted: Some(true), ..Delivery::default() };
    Entry { result_chars: rules.max_result_chars, delivery: rules.results.or(marked), ..entry }
}
