//! Findings of `check` about plugins that load. `toolbay_core::tool::client_compat` finds what clients and vendors
//! reject.

pub(crate) mod reducers;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use toolbay::{Host, PluginInfo};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::ToolDef;
use toolbay_core::tool::client_compat;
use toolbay_policy::capability::{CapabilityKind, UndeclaredImport, imports_everything, undeclared_imports};
use toolbay_policy::excerpt::one_line;
use toolbay_policy::unusable_target;

use crate::author::component::ComponentParts;

/// Bytes of code whose compilation goes unnoticed: each MiB takes about a second of one core, once on each machine.
const UNNOTICED_BYTES: u64 = 2 << 20;

/// A finding about a plugin.
#[derive(Debug, Serialize)]
pub(crate) struct LintFinding {
    pub(crate) level: LintLevel,
    pub(crate) message: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LintLevel {
    Warning,
    /// The plugin is not sound.
    Error,
}

impl LintFinding {
    /// A finding that makes a plugin unsound.
    pub(crate) fn error(message: String) -> Self {
        Self { level: LintLevel::Error, message }
    }
}

impl From<String> for LintFinding {
    fn from(message: String) -> Self {
        Self { level: LintLevel::Warning, message }
    }
}

/// Findings about one tool.
pub(crate) fn tool(def: &ToolDef) -> Vec<LintFinding> {
    let name = def.name.as_str();
    let compat = client_compat::findings(def).into_iter().map(|finding| finding.text);
    let dropped = def
        .dropped_keywords()
        .map(|(schema, lost)| format!("`{name}`: its {schema} schema is not checked for {lost}"));
    let texts = compat.chain(undescribed_arguments(def)).chain(dropped);
    let mut found: Vec<LintFinding> = texts.map(LintFinding::from).collect();
    for capability in &def.capabilities {
        if let CapabilityKind::Unknown(kind) = &capability.kind {
            let text = format!("`{name}` declares the unknown capability `{kind}`, which is always denied");
            found.push(text.into());
        } else if let Some(problem) = unusable_target(capability) {
            let (kind, target) = (capability.kind.as_str(), &capability.target);
            let text = format!("`{name}` asks for `{kind}` of `{target}`: {problem}");
            found.push(LintFinding::error(text));
        } else if capability.reason.is_none() {
            let text = format!(
                "`{name}` gives no reason for `{}` of `{}`, which the operator needs to decide",
                capability.kind.as_str(),
                capability.target
            );
            found.push(text.into());
        }
    }
    found
}

/// A finding about the arguments without a description, from which a model would learn what to pass.
pub(crate) fn undescribed_arguments(def: &ToolDef) -> Option<String> {
    let schema = def.input_schema.value();
    let arguments = schema.get("properties").and_then(Value::as_object)?;
    let names: Vec<String> = (arguments.iter())
        .filter(|(_, argument)| !is_described(schema, argument))
        .map(|(name, _)| format!("`{}`", one_line(name, 60)))
        .collect();
    let noun = match names.len() {
        0 => return None,
        1 => "argument",
        _ => "arguments",
    };
    Some(format!(
        "`{}` has no description of its {noun} {}, from which a model learns what to pass",
        def.name,
        names.join(", ")
    ))
}

/// Whether the schema of an argument, or the definition that it refers to, has a description.
fn is_described(schema: &Value, argument: &Value) -> bool {
    let has_text = |schema: &Value| {
        schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
    };
    let pointer = argument.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    has_text(argument) || pointer.and_then(|pointer| schema.pointer(pointer)).is_some_and(has_text)
}

/// Findings about the file of a plugin.
pub(crate) fn file(parts: &ComponentParts, bytes: u64) -> Option<LintFinding> {
    let of_debugging = |name: &str| name == "name" || name.starts_with(".debug_");
    let debugging: u64 =
        parts.custom.iter().filter(|(name, _)| of_debugging(name)).map(|(_, bytes)| bytes).sum();
    let text = if debugging > bytes / 4 {
        Some(format!(
            "{} of its {} KiB are names and lines for debuggers, which no host reads: build it with \
             `toolbay build --release`, or strip it",
            debugging / 1024,
            bytes / 1024
        ))
    } else if parts.code > UNNOTICED_BYTES {
        let mib = parts.code >> 20;
        Some(format!(
            "its code has {mib} MiB: its first start on a machine takes about {mib} seconds of a core, which compiles it \
             once. If it is a language's engine (JavaScript, Python), so be it; in Rust, `cargo bloat --release --target \
             wasm32-wasip2` tells which dependency weighs that much"
        ))
    } else {
        None
    };
    text.map(LintFinding::from)
}

/// The imports of a plain component that the policy does not grant. No interface reports that to the component or its
/// caller.
pub(crate) fn ungranted_imports(host: &Host, tools: &[Arc<ToolEntry>]) -> Option<String> {
    let explained: Vec<_> =
        tools.iter().filter_map(|tool| host.explain(tool.def.name.as_str(), None)).collect();
    let refused = explained.iter().flat_map(|tool| &tool.capabilities).filter(|one| one.refused.is_some());
    let kinds: BTreeSet<String> = refused.map(|one| format!("`{}`", one.capability.kind.as_str())).collect();
    let first = explained.first().filter(|_| !kinds.is_empty())?;
    let kinds: Vec<String> = kinds.into_iter().collect();
    Some(format!(
        "it imports what the policy does not grant: {}; results of calls that use it say so, and `toolbay explain {}` \
         shows what would grant it",
        kinds.join(", "),
        first.tool
    ))
}

/// Findings about a plugin as a whole. A plain component has its metadata in the file beside it.
pub(crate) fn plugin(info: &PluginInfo, parts: &ComponentParts) -> Vec<LintFinding> {
    let mut found: Vec<LintFinding> = Vec::new();
    let place = match (parts.contract(), &info.file) {
        (None, Some(file)) => {
            let beside = file.with_extension("plugin.toml");
            let beside = beside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("in `{beside}` beside it: `name`, `release`, `description`, `license`")
        }
        _ => "export `about`".to_owned(),
    };
    match &info.about {
        None => found.push(format!("it does not say its name, version and licence ({place})").into()),
        Some(about) => {
            let absent = [(&about.description, "what it is for"), (&about.license, "its licence")];
            let absent: Vec<_> =
                absent.iter().filter(|(said, _)| said.is_none()).map(|(_, what)| *what).collect();
            if !absent.is_empty() {
                found.push(format!("it does not say {} ({place})", absent.join(" and ")).into());
            }
        }
    }
    let everything = imports_everything(&info.imports);
    for UndeclaredImport { import, kinds, is_contract: of_contract } in
        undeclared_imports(&info.imports, &info.capabilities)
    {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.as_str())).collect();
        let kinds = kinds.join(" or ");
        let finds = match kinds.as_str() {
            "`clock`" => "the component gets a clock that stands still",
            "`random`" => "its random bytes are the same in each call, so do not make keys or ids of them",
            _ => "the component finds nothing there",
        };
        if of_contract && everything {
            continue;
        }
        let text = format!("it imports `{import}` and no tool of it declares {kinds}; {finds}");
        found.push(if of_contract { LintFinding::error(text) } else { text.into() });
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolbay_core::registry::native;
    use toolbay_core::tool::content::ToolOutput;

    use super::*;

    fn finding(properties: &Value) -> Option<String> {
        let schema = json!({
            "type": "object",
            "properties": properties,
            "$defs": {"told": {"type": "string", "description": "Told."}, "untold": {"type": "string"}},
        });
        let tool = native::tool("t").description("Does something.").input_schema(schema);
        undescribed_arguments(&tool.run(async |_, _| Ok(ToolOutput::default())).unwrap().def)
    }

    #[test]
    fn arguments_without_a_description_are_named() {
        let described = json!({"type": "string", "description": "A text."});
        assert_eq!(finding(&json!({})), None);
        assert_eq!(finding(&json!({"a": described, "b": {"$ref": "#/$defs/told"}})), None);
        let one = finding(&json!({"a": described, "b": {"type": "string", "description": " "}}));
        assert_eq!(
            one.as_deref(),
            Some("`t` has no description of its argument `b`, from which a model learns what to pass")
        );
        let two = finding(&json!({"a": {}, "b": {"$ref": "#/$defs/untold"}, "c": described}));
        assert!(two.unwrap().contains("its arguments `a`, `b`,"));
    }
}
