//! What `check` says about tools that load but that some client or vendor will not take. Each rule names who.

use serde_json::Value;
use toolbay::PluginInfo;
use toolbay_core::capability::CapabilityKind;
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
    let declares = |kinds: &[CapabilityKind]| info.capabilities.iter().any(|c| kinds.contains(&c.kind));
    let files = declares(&[CapabilityKind::FsRead, CapabilityKind::FsWrite]);
    let network = declares(&[CapabilityKind::Net]);
    for import in &info.imports {
        let of_files = import.starts_with("toolbay:plugin/files@") || import.starts_with("wasi:filesystem/");
        let of_network = import.starts_with("wasi:sockets/") || import.starts_with("wasi:http/");
        let undeclared = (of_files && !files) || (of_network && !network);
        if undeclared {
            found.push(format!(
                "it imports `{import}` and declares no capability for it; there it will find nothing"
            ));
        }
    }
    found
}

fn portable_property(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
