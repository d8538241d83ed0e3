//! `toolbay inspect`.

use std::io::Write as _;

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::{Host, PluginInfo, View};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::prompts_and_resources::{PREFIX, PromptsAndResourcesDocument, Resource};
use toolbay_core::tool::schema::without_null;
use toolbay_policy::GrantDecision;
use toolbay_policy::capability::Capability;
use toolbay_policy::excerpt::first_sentence;
use toolbay_policy::hidden_chars::escape_hidden;
use toolbay_policy::name::ToolName;

use super::docs::{kind, members, required_members};
use crate::author::component::ComponentParts;
use crate::installation;
use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, HEADING, NAME, SUCCESS, TextTable, format};
use crate::report::readiness::ToolReadiness;
use crate::setup::{self, SetupArgs, servers};

pub(crate) async fn run(args: &SetupArgs, plugin: &str) -> Result<CommandStatus> {
    let (host, info) = setup::require_plugin(args, setup::policy(args)?, plugin).await?;
    let parts = parts(&info);
    if args.printer.is_json() {
        output::print_json(&as_json(&host, &info, &parts))?;
    } else {
        show(args, &host, &info, &parts)?;
    }
    Ok(CommandStatus::Success)
}

fn as_json(host: &Host, info: &PluginInfo, parts: &ComponentParts) -> Value {
    json!({
        "id": info.id.as_str(),
        "digest": &*info.digest,
        "bytes": info.bytes,
        "file": info.file,
        "origin": info.origin,
        "about": info.about,
        "imports": info.imports,
        "contract": parts.contract(),
        "fuel": fuel(host, info),
        "parts": {"code": parts.code, "data": parts.data, "rest": parts.rest, "custom": parts.custom},
        "reducers": info.reducers,
        "offers": info.prompts_and_resources.as_ref().map(offered),
        "capabilities": info.capabilities,
        "tools": setup::tools(host, &info.id).iter().map(|entry| tool_json(host, info, entry)).collect::<Vec<_>>(),
    })
}

/// A tool's definition, and what is granted of what it asks for.
fn tool_json(host: &Host, info: &PluginInfo, entry: &ToolEntry) -> Value {
    let mut tool = super::list::definition(entry, entry.availability.unavailable.as_ref());
    let granted = decisions(host, info, entry).into_iter().map(|decision| {
        let Capability { kind, target, optional, .. } = decision.capability;
        json!({"kind": kind.as_str(), "target": target, "optional": optional, "granted": decision.granted})
    });
    output::insert_member(&mut tool, "grants", granted.collect::<Value>());
    tool
}

fn show(args: &SetupArgs, host: &Host, info: &PluginInfo, parts: &ComponentParts) -> Result<()> {
    print_head(info)?;
    let mut about = facts(host, info, parts);
    for (key, value) in info.origin.as_deref().into_iter().flat_map(installation::origin_facts) {
        about.push_fact(key, value);
    }
    about.print_section()?;
    let mut tools = TextTable::section("tool", ["TOOL", "STATUS", "ARGUMENTS", "DESCRIPTION"]);
    let header = ["CAPABILITY", "DECLARED", "BY", "GRANTED", "REASON"];
    let mut capabilities = TextTable::section("capability", header);
    let view = servers::view(args, host)?;
    for entry in setup::tools(host, &info.id) {
        let readiness = ToolReadiness::check(host, &view, &entry);
        tools.push([
            Cell::styled(NAME, entry.def.name.as_str()),
            readiness.cell(),
            arguments(entry.def.input_schema.value()).into(),
            first_sentence(&entry.def.description).into(),
        ]);
        for decision in decisions(host, info, &entry) {
            capabilities.push(capability_row(&entry, &decision));
        }
    }
    tools.print_section()?;
    capabilities.print_section()?;
    let schema = info.about.as_ref().and_then(|about| about.config_schema.as_ref());
    settings_table(schema).print_section()?;
    reducer_table(host, info).print_section()?;
    content_table(info).print_section()?;
    if setup::tools(host, &info.id).iter().any(|entry| is_missing_grant(host, &view, entry)) {
        if output::stdout_is_terminal() {
            writeln!(output::stdout())?;
        }
        args.printer.help(&format!("grant what it asks for with `toolbay grant {}`", info.id));
    }
    Ok(())
}

fn is_missing_grant(host: &Host, view: &View, entry: &ToolEntry) -> bool {
    matches!(ToolReadiness::check(host, view, entry), ToolReadiness::NeedsGrant(_))
}

fn print_head(info: &PluginInfo) -> std::io::Result<()> {
    let version = info.about.as_ref().map_or("", |about| about.version.as_str());
    let mut out = output::stdout();
    if !output::stdout_is_terminal() {
        return writeln!(
            out,
            "plugin\t{}\nversion\t{}",
            info.id,
            escape_hidden(version).replace(['\n', '\t'], " ")
        );
    }
    let title = format!("{} {}", info.id, escape_hidden(version));
    writeln!(out, "{HEADING}{}{HEADING:#}", title.trim_end())
}

/// The facts about the file and its author.
fn facts(host: &Host, info: &PluginInfo, parts: &ComponentParts) -> TextTable {
    let mut table = TextTable::facts();
    let mut fact = |key: &str, value: String| table.push_fact(key, value);
    if let Some(about) = &info.about {
        let lines = [
            ("about", &about.description),
            ("authors", &about.authors),
            ("license", &about.license),
            ("source", &about.source),
        ];
        fact("name", about.name.clone());
        for (key, value) in lines {
            value.iter().for_each(|value| fact(key, value.clone()));
        }
    }
    if info.about.as_ref().is_some_and(|about| about.config_schema.is_some()) {
        fact("settings", format!("in [plugins.{}.config]", info.id));
    }
    fact("sha256", info.digest.to_string());
    let size = format::size;
    fact(
        "size",
        format!(
            "{} (code {}, data {}, other {})",
            size(info.bytes),
            size(parts.code),
            size(parts.data),
            size(parts.rest)
        ),
    );
    for (name, bytes) in &parts.custom {
        fact("section", format!("{name}, {}", size(*bytes)));
    }
    parts.contract().iter().for_each(|version| fact("contract", (*version).to_owned()));
    let imports = if info.imports.is_empty() { "nothing".to_owned() } else { info.imports.join(" ") };
    fact("imports", imports);
    if fuel(host, info).is_none() {
        fact("fuel", "not counted: only `timeout` ends a call that does not end".to_owned());
    }
    table
}

/// The names of the arguments; optional ones in brackets.
fn arguments(schema: &Value) -> String {
    let required = required_members(schema);
    let shown = members(schema)
        .into_iter()
        .flatten()
        .map(|(name, _)| if required.contains(&name.as_str()) { name.clone() } else { format!("[{name}]") });
    shown.collect::<Vec<_>>().join(" ")
}

fn capability_row(entry: &ToolEntry, decision: &GrantDecision) -> [Cell; 5] {
    let Capability { kind, target, optional, reason } = &decision.capability;
    [
        Cell::styled(NAME, format::capability_key(kind)),
        format::declared_target(target, *optional).into(),
        entry.def.bare().into(),
        Cell::granted(&decision.granted),
        reason.as_deref().unwrap_or("no reason given").into(),
    ]
}

/// The fuel of a call, unless a tool's own section says otherwise; `None`: work is not counted.
fn fuel(host: &Host, info: &PluginInfo) -> Option<u64> {
    host.policy().limits(&info.id, None).fuel
}

/// The parts of its file; nothing is known if the file is gone.
pub(super) fn parts(info: &PluginInfo) -> ComponentParts {
    let bytes =
        info.file.as_ref().and_then(|file| toolbay::read_regular(file, toolbay::MAX_COMPONENT_BYTES).ok());
    bytes.and_then(|bytes| ComponentParts::parse(&bytes).ok()).unwrap_or_default()
}

/// What a plugin ships beside tools, without the texts themselves.
fn offered(document: &PromptsAndResourcesDocument) -> Value {
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

/// The prompts, resources and templates.
fn content_table(info: &PluginInfo) -> TextTable {
    let mut table = TextTable::section("content", ["KIND", "NAME", "DESCRIPTION"]);
    let Some(document) = &info.prompts_and_resources else { return table };
    let mut row = |kind: &str, name: String, about: &str| {
        table.push([Cell::styled(DIM, kind), Cell::styled(NAME, name), about.into()]);
    };
    for prompt in &document.prompts {
        row("prompt", format!("{}__{}", info.id, prompt.name), first_sentence(&prompt.description));
    }
    for one in &document.resources {
        let about = format!("{}, {}", one.name, format::size(one.size()));
        row("resource", format!("{PREFIX}{}/{}", info.id, one.path), &about);
    }
    for one in &document.templates {
        row("template", format!("{PREFIX}{}/{}", info.id, one.path), &one.name);
    }
    table
}

/// The reducers, each with whether the policy uses it.
fn reducer_table(host: &Host, info: &PluginInfo) -> TextTable {
    let mut table = TextTable::section("reducer", ["REDUCES", "STATUS"]);
    let catalog = host.registry().snapshot();
    for reducer in &info.reducers {
        let mut own = catalog.reducers().filter(|entry| entry.owner.as_ref() == Some(&info.id));
        let status = if own.any(|entry| entry.declared == *reducer) {
            Cell::styled(SUCCESS, "used")
        } else {
            let line = format!("[plugins.{}.grant] reduce = [\"PLUGIN__{reducer}\"]", info.id);
            Cell::styled(FAILURE, format!("not used; to use it, write in the policy: {line}"))
        };
        table.push([Cell::styled(NAME, reducer), status]);
    }
    table
}

/// The settings of `[plugins.ID.config]`.
fn settings_table(schema: Option<&Value>) -> TextTable {
    let mut table = TextTable::section("setting", ["SETTING", "TYPE", "DESCRIPTION"]);
    let Some(schema) = schema else { return table };
    let required = required_members(schema);
    for (name, member) in members(schema).into_iter().flatten() {
        let kind = kind(without_null(member));
        let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
        let about = member.get("description").and_then(Value::as_str).unwrap_or_default();
        table.push([Cell::styled(NAME, name), format!("{kind}{optional}").into(), about.into()]);
    }
    table
}

/// What became of each capability that a tool asks for.
fn decisions(host: &Host, info: &PluginInfo, entry: &ToolEntry) -> Vec<GrantDecision> {
    let Ok(name) = ToolName::new(entry.def.bare()) else { return Vec::new() };
    host.policy().grant(&info.id, &name, &entry.def.capabilities, None).decisions
}
