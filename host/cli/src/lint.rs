//! What `check` says about tools that load but that some client or vendor will not take. Each rule names who.

use serde_json::Value;
use toolbay::PluginInfo;
use toolbay_core::capability::{CapabilityKind, Undeclared, imports_everything, undeclared};
use toolbay_core::tool::ToolDef;

/// One finding about one tool.
pub(crate) fn tool(def: &ToolDef) -> Vec<String> {
    let mut found = Vec::new();
    let name = def.name.as_str();
    if name.len() > 45 {
        found.push(format!(
            "`{name}` has {} characters; Cursor drops tools where server and tool name exceed 60, so stay within 45",
            name.len()
        ));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        found.push(format!("`{name}` starts with neither a letter nor `_`; Gemini refuses it"));
    }
    if def.description.chars().count() > 1024 {
        let count = def.description.chars().count();
        found.push(format!("the description of `{name}` has {count} characters; OpenAI cuts at 1024"));
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        if def.input_schema.value().get(keyword).is_some() {
            found.push(format!(
                "the input schema of `{name}` has `{keyword}` at its root; the Claude API answers 400"
            ));
        }
    }
    if let Some(properties) = def.input_schema.value().get("properties").and_then(Value::as_object) {
        for property in properties.keys().filter(|p| !portable_property(p)) {
            found.push(format!("argument `{property}` of `{name}` is no identifier of at most 64 characters; Gemini refuses it"));
        }
    }
    if let Some(output) = &def.output_schema
        && output.value().get("type").and_then(Value::as_str) != Some("object")
    {
        found.push(format!("the output schema of `{name}` is not an object; it is wrapped as `result` for MCP clients before 2026-07-28"));
    }
    for wish in &def.capabilities {
        if let CapabilityKind::Unknown(kind) = &wish.kind {
            found.push(format!("`{name}` declares the unknown capability `{kind}`, which is always denied"));
        } else if wish.reason.is_none() {
            found.push(format!(
                "`{name}` gives no reason for `{}` of `{}`; an operator has to decide about it",
                wish.kind.as_str(),
                wish.target
            ));
        }
    }
    found
}

/// Findings about a plugin as a whole.
pub(crate) fn plugin(info: &PluginInfo) -> Vec<String> {
    let mut found = Vec::new();
    if info.about.is_none() {
        found.push("it does not say its name, version and licence (export `about`)".to_owned());
    }
    let everything = imports_everything(&info.imports);
    for Undeclared { import, kinds, of_contract } in undeclared(&info.imports, &info.capabilities) {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.as_str())).collect();
        let kinds = kinds.join(" or ");
        let finds = match kinds.as_str() {
            "`clock`" => "there it will find a clock that stands still",
            "`random`" => "its random bytes are the same in each call: make no keys and no ids of them",
            _ => "there it will find nothing",
        };
        if of_contract && everything {
            continue;
        }
        let error = if of_contract { "error: " } else { "" };
        found.push(format!("{error}it imports `{import}` and no tool of it declares {kinds}; {finds}"));
    }
    found
}

/// Whether a component asks for an interface of the contract that no tool of it declares, and was not built by a tool
/// that asks for all of them: either its author forgot the declaration, or it does what it does not say.
pub(crate) fn hides_something(info: &PluginInfo) -> bool {
    !imports_everything(&info.imports)
        && undeclared(&info.imports, &info.capabilities).iter().any(|one| one.of_contract)
}

fn portable_property(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
