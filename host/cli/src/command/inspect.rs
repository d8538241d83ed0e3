//! `toolbay inspect`.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::{Host, PluginInfo};
use toolbay_core::registry::Entry;
use toolbay_core::tool::offer::{Document, PREFIX, Resource};
use toolbay_policy::Decision;
use toolbay_policy::capability::Capability;
use toolbay_policy::name::ToolName;
use toolbay_policy::refusal::Refusal;
use toolbay_policy::text::visible;

use crate::Verdict;
use crate::author::component::Parts;
use crate::command::args::SetupArgs;
use crate::command::setup;
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};

pub(crate) async fn run(args: &SetupArgs, plugin: &str, json: bool) -> Result<Verdict> {
    let Some((host, info)) = setup::named_or_complain(args, setup::policy(args)?, plugin).await? else {
        return Ok(Verdict::Bad);
    };
    let parts = parts(&info);
    if json {
        output::print_json(&as_json(&host, &info, &parts))?;
    } else {
        show(&host, &info, &parts)?;
    }
    Ok(Verdict::Good)
}

fn as_json(host: &Host, info: &PluginInfo, parts: &Parts) -> Value {
    json!({
        "id": info.id.as_str(),
        "digest": &*info.digest,
        "bytes": info.bytes,
        "file": info.file,
        "about": info.about,
        "imports": info.imports,
        "contract": parts.contract(),
        "fuel": fuel(host, info),
        "parts": {"code": parts.code, "data": parts.data, "rest": parts.rest, "custom": parts.custom},
        "reducers": info.reducers,
        "offers": info.offers.as_ref().map(offered),
        "capabilities": info.capabilities,
        "tools": super::tools(host, &info.id).iter().map(|entry| tool_json(host, info, entry)).collect::<Vec<_>>(),
    })
}

/// A tool's definition, and what is granted of what it asks for.
fn tool_json(host: &Host, info: &PluginInfo, entry: &Entry) -> Value {
    let reason = entry.availability.unavailable.as_ref().map(Refusal::for_operator);
    let mut tool = super::list::definition(entry, reason.as_deref());
    let granted = decisions(host, info, entry).into_iter().map(|decision| {
        let Capability { kind, target, optional, .. } = decision.capability;
        json!({"kind": kind.as_str(), "target": target, "optional": optional, "granted": decision.granted})
    });
    if let Some(members) = tool.as_object_mut() {
        members.insert("grants".to_owned(), granted.collect());
    }
    tool
}

fn show(host: &Host, info: &PluginInfo, parts: &Parts) -> std::io::Result<()> {
    let mut out = output::out();
    writeln!(out, "{HEAD}{}{HEAD:#}", info.id)?;
    if let Some(about) = &info.about {
        writeln!(out, "  {} {}", visible(&about.name), visible(&about.version))?;
        let lines = [
            ("about", &about.description),
            ("authors", &about.authors),
            ("license", &about.license),
            ("source", &about.source),
        ];
        for (key, value) in lines {
            if let Some(value) = value {
                writeln!(out, "  {DIM}{key:8}{DIM:#} {}", visible(value))?;
            }
        }
        if let Some(schema) = &about.config_schema {
            show_settings(&mut out, info, schema)?;
        }
    }
    writeln!(out, "  {DIM}sha256  {DIM:#} {}", info.digest)?;
    writeln!(
        out,
        "  {DIM}size    {DIM:#} {} bytes: code {}, data {}, the rest {}",
        info.bytes, parts.code, parts.data, parts.rest
    )?;
    for (name, bytes) in &parts.custom {
        writeln!(out, "  {DIM}section {DIM:#} {}, {bytes} bytes", visible(name))?;
    }
    if let Some(version) = parts.contract() {
        writeln!(out, "  {DIM}contract{DIM:#} {}", visible(version))?;
    }
    let imports = if info.imports.is_empty() { "nothing".to_owned() } else { info.imports.join(" ") };
    writeln!(out, "  {DIM}imports {DIM:#} {imports}")?;
    if fuel(host, info).is_none() {
        writeln!(out, "  {DIM}fuel    {DIM:#} not counted: `timeout` alone ends what does not end")?;
    }
    for entry in super::tools(host, &info.id) {
        show_tool(&mut out, &entry, &decisions(host, info, &entry))?;
    }
    let catalog = host.registry().snapshot();
    let is_used = |reducer: &str| {
        let mut own = catalog.reducers().filter(|entry| entry.owner.as_ref() == Some(&info.id));
        own.any(|entry| entry.declared == reducer)
    };
    for reducer in &info.reducers {
        writeln!(out, "\n{HEAD}reduces{HEAD:#} {NAME}{}{NAME:#}", visible(reducer))?;
        if !is_used(reducer) {
            let line = format!("[plugins.{}.grant] reduce = [\"PLUGIN__{}\"]", info.id, visible(reducer));
            writeln!(out, "  {DIM}not used{DIM:#}: to use it, write in the policy: {line}")?;
        }
    }
    if let Some(document) = &info.offers {
        show_offers(&mut out, info, document)?;
    }
    out.flush()
}

fn wish(wish: &Capability) -> String {
    format!("{} of {}", wish.kind.as_str(), visible(&wish.target))
}

/// The fuel of a call, unless a tool's own section says otherwise; `None`: work is not counted.
fn fuel(host: &Host, info: &PluginInfo) -> Option<u64> {
    host.policy().limits(&info.id, None).fuel
}

/// What its file is made of; nothing is known if it is gone.
pub(super) fn parts(info: &PluginInfo) -> Parts {
    let bytes =
        info.file.as_ref().and_then(|file| toolbay::read_regular(file, toolbay::MAX_COMPONENT_BYTES).ok());
    bytes.and_then(|bytes| Parts::of(&bytes).ok()).unwrap_or_default()
}

/// What a plugin ships beside tools, without the texts themselves.
fn offered(document: &Document) -> Value {
    let resource = |one: &Resource| json!({"path": one.path, "name": one.name, "mime_type": one.mime_type, "bytes": one.size()});
    json!({
        "prompts": document.prompts.iter().map(|one| {
            let arguments: Vec<_> = one.arguments.iter().map(|argument| argument.name.as_str()).collect();
            json!({"name": one.name, "description": one.description, "arguments": arguments})
        }).collect::<Vec<_>>(),
        "resources": document.resources.iter().map(resource).collect::<Vec<_>>(),
        "templates": document.templates.iter().map(|one| json!({"path": one.path, "name": one.name})).collect::<Vec<_>>(),
        "icons": document.icons.keys().collect::<Vec<_>>(),
    })
}

fn show_offers(out: &mut impl Write, info: &PluginInfo, document: &Document) -> std::io::Result<()> {
    for prompt in &document.prompts {
        writeln!(out, "\n{HEAD}prompt{HEAD:#} {NAME}{}__{}{NAME:#}", info.id, visible(&prompt.name))?;
        for line in visible(&prompt.description).lines() {
            writeln!(out, "  {line}")?;
        }
        for argument in &prompt.arguments {
            let need = if argument.required { "" } else { " (optional)" };
            let about = argument.description.as_deref().unwrap_or_default();
            let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
            writeln!(out, "    {}{need} {}", visible(&argument.name), visible(&about))?;
        }
    }
    for one in &document.resources {
        let (path, name) = (visible(&one.path), visible(&one.name));
        writeln!(out, "\n{HEAD}resource{HEAD:#} {NAME}{PREFIX}{}/{path}{NAME:#}", info.id)?;
        writeln!(out, "  {name}, {} bytes", one.size())?;
    }
    for one in &document.templates {
        let (path, name) = (visible(&one.path), visible(&one.name));
        writeln!(out, "\n{HEAD}template{HEAD:#} {NAME}{PREFIX}{}/{path}{NAME:#}\n  {name}", info.id)?;
    }
    Ok(())
}

/// What the operator may set.
fn show_settings(out: &mut impl Write, info: &PluginInfo, schema: &Value) -> std::io::Result<()> {
    writeln!(out, "  {DIM}settings{DIM:#} [plugins.{}.config]", info.id)?;
    show_members(out, schema)
}

/// The members of an object's schema, a line for each.
fn show_members(out: &mut impl Write, schema: &Value) -> std::io::Result<()> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<_> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, schema) in properties {
        let kind = schema.get("type").map_or_else(
            || "any".to_owned(),
            |t| t.as_str().map_or_else(|| t.to_string(), ToOwned::to_owned),
        );
        let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let need = if required.contains(&name.as_str()) { "" } else { ", optional" };
        writeln!(
            out,
            "    {} {DIM}({}{need}){DIM:#} {}",
            visible(name),
            visible(&kind),
            visible(&about.split_whitespace().collect::<Vec<_>>().join(" "))
        )?;
    }
    Ok(())
}

/// What became of each capability that a tool asks for.
fn decisions(host: &Host, info: &PluginInfo, entry: &Entry) -> Vec<Decision> {
    let Ok(name) = ToolName::new(entry.def.bare()) else { return Vec::new() };
    host.policy().grant(&info.id, &name, &entry.def.capabilities, None).decisions
}

fn show_tool(out: &mut impl Write, entry: &Entry, decisions: &[Decision]) -> std::io::Result<()> {
    let def = &entry.def;
    writeln!(out, "\n{NAME}{}{NAME:#}", def.name)?;
    for line in visible(&def.description).lines() {
        writeln!(out, "  {line}")?;
    }
    show_members(out, def.input_schema.value())?;
    for wish in &def.capabilities {
        let reason = wish.reason.as_deref().unwrap_or("no reason given");
        writeln!(out, "  {DIM}asks for{DIM:#} {}: {}", self::wish(wish), visible(reason))?;
    }
    match &entry.availability.unavailable {
        Some(reason) => {
            let reason = visible(&reason.for_operator()).replace('\n', "\n    ");
            writeln!(out, "  {WRONG}not available{WRONG:#}: {reason}")
        }
        None if def.capabilities.is_empty() => writeln!(out, "  {GOOD}only computes{GOOD:#}"),
        None => {
            let refused = decisions.iter().filter(|decision| decision.granted.is_empty());
            let refused: Vec<String> = refused.map(|one| wish(&one.capability)).collect();
            match refused.len() {
                0 => writeln!(out, "  {GOOD}granted{GOOD:#}"),
                // It runs all the same: what is missing is optional.
                all if all == decisions.len() => {
                    writeln!(out, "  {WRONG}nothing granted{WRONG:#}: it works without what it asks for")
                }
                _ => writeln!(
                    out,
                    "  {GOOD}granted{GOOD:#}, but not {}: it works without that",
                    refused.join(", ")
                ),
            }
        }
    }
}
