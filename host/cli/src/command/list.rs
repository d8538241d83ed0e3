//! `toolbay list`.

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::{Host, View};
use toolbay_core::registry::ToolEntry;
use toolbay_core::tool::ToolSource;
use toolbay_policy::excerpt::{first_sentence, one_line};
use toolbay_policy::refusal::PolicyRefusal;

use crate::output::format::short_digest;
use crate::output::{self, Cell, CommandStatus, NAME, Printer, TextTable, count_noun};
use crate::report::readiness::ToolReadiness;
use crate::report::{long_names, schema_losses};
use crate::setup::{ReportLevel, SetupArgs, servers};

/// Most skipped operations of a service with a row each.
const MAX_SKIPPED: usize = 20;
/// Longest document of a service that a row shows, in characters.
const MAX_DOCUMENT: usize = 200;

pub(crate) async fn run(args: &SetupArgs, all: bool) -> Result<CommandStatus> {
    let (host, view) = servers::load_view_with_servers(args, ReportLevel::Warnings).await?;
    let entries: Vec<_> = if all { view.catalog().tools().collect() } else { view.discoverable().collect() };
    if args.printer.is_json() {
        let definitions: Vec<Value> =
            entries.iter().map(|entry| definition(entry, view.denial_reason(entry).as_ref())).collect();
        return Ok(output::print_json(&definitions)?);
    }
    // The names of the other sources were reported with the policy.
    let of_servers = view.definitions().filter(|entry| matches!(&*entry.def.source, ToolSource::Mcp { .. }));
    long_names::report(args.printer, &host.policy(), of_servers.map(|entry| entry.def.named()));
    if all {
        print_all(args.printer, &host, &view)?;
    } else {
        let mut table = TextTable::new(["TOOL", "DESCRIPTION"]);
        for entry in &entries {
            let name = Cell::styled(NAME, entry.def.name.as_str());
            table.push([name, first_sentence(&entry.def.description).into()]);
        }
        table.print()?;
        let counts = ReadinessCounts::of(&host, &view);
        if counts.hidden() > 0 {
            args.printer.footer(&format!("{}: `toolbay list --all`", counts.sentence()))?;
        }
    }
    Ok(CommandStatus::Success)
}

/// Prints each tool with its status: grouped by plugin on a terminal, with its full name in a pipe.
fn print_all(printer: Printer, host: &Host, view: &View) -> Result<()> {
    let mut table = TextTable::new(["PLUGIN", "TOOL", "STATUS"]);
    let mut piped = TextTable::new(["TOOL", "STATUS"]);
    let mut group = None;
    for entry in view.catalog().tools() {
        let (name, status) = (entry.def.name.as_str(), ToolReadiness::check(host, view, entry).cell());
        let (namespace, bare) = match entry.def.namespace() {
            Some(namespace) => (namespace, entry.def.bare()),
            None => ("builtin", name),
        };
        let shown = if group == Some(namespace) { "" } else { namespace };
        group = Some(namespace);
        table.push([Cell::styled(NAME, shown), bare.into(), status.clone()]);
        piped.push([name.into(), status]);
    }
    if output::stdout_is_terminal() {
        table.print()?;
    } else {
        piped.print()?;
    }
    origin_table(host).print_section()?;
    schema_losses::table(view.catalog().tools()).print_section()?;
    skipped_table(host).print_section()?;
    let counts = ReadinessCounts::of(host, view);
    if let Some((plugin, tool)) = &counts.first {
        let summary = counts.sentence();
        printer.footer(&format!(
            "{summary}. Grant with `toolbay grant {plugin}`; details with `toolbay explain {tool}`"
        ))?;
    }
    Ok(())
}

/// The operations of services that are not tools.
fn skipped_table(host: &Host) -> TextTable {
    let mut table = TextTable::new(["SERVICE", "SKIPPED", "REASON"]).with_tag("skipped");
    for service in host.openapi() {
        let lines = service.problems.iter().take(MAX_SKIPPED);
        for (operation, reason) in lines {
            table.push([
                Cell::styled(NAME, &service.name),
                operation.as_str().into(),
                reason.as_str().into(),
            ]);
        }
        if let Some(more) = service.problems.len().checked_sub(MAX_SKIPPED).filter(|more| *more > 0) {
            let more = count_noun(more, "more operation", "more operations");
            let command = format!("`toolbay openapi check {}`", one_line(&service.document, MAX_DOCUMENT));
            table.push([Cell::styled(NAME, &service.name), more.into(), command.into()]);
        }
    }
    table
}

/// The plugins that come from registries.
fn origin_table(host: &Host) -> TextTable {
    let mut table = TextTable::new(["PLUGIN", "ORIGIN", "DIGEST", "SIGNER"]).with_tag("origin");
    for plugin in host.plugins() {
        let Some(origin) = &plugin.origin else { continue };
        table.push([
            Cell::styled(NAME, plugin.id.as_str()),
            origin.reference.as_str().into(),
            short_digest(&plugin.digest).into(),
            origin.signer.as_str().into(),
        ]);
    }
    table
}

/// How many tools of a view are ready.
#[derive(Debug, Default)]
pub(crate) struct ReadinessCounts {
    ready: usize,
    needs_grant: usize,
    unavailable: usize,
    /// The first plugin that needs a grant, and the tool that needs it.
    first: Option<(String, String)>,
}

impl ReadinessCounts {
    pub(crate) fn of(host: &Host, view: &View) -> Self {
        let mut counts = Self::default();
        for entry in view.catalog().tools() {
            match ToolReadiness::check(host, view, entry) {
                ToolReadiness::Ready => counts.ready += 1,
                ToolReadiness::Unavailable(_) => counts.unavailable += 1,
                ToolReadiness::NeedsGrant(_) => {
                    counts.needs_grant += 1;
                    let plugin = entry.def.source.plugin().map(ToString::to_string);
                    let first = plugin.map(|plugin| (plugin, entry.def.name.as_str().to_owned()));
                    counts.first = counts.first.or(first);
                }
            }
        }
        counts
    }

    fn hidden(&self) -> usize {
        self.needs_grant + self.unavailable
    }

    /// `13 tools ready, 23 need a grant`.
    fn sentence(&self) -> String {
        let noun = if self.ready == 1 { "tool" } else { "tools" };
        self.summary().replacen(" ready", &format!(" {noun} ready"), 1)
    }

    /// `13 ready, 23 need a grant`.
    pub(crate) fn summary(&self) -> String {
        let mut parts = vec![format!("{} ready", self.ready)];
        if self.needs_grant > 0 {
            parts.push(count_noun(self.needs_grant, "needs a grant", "need a grant"));
        }
        if self.unavailable > 0 {
            parts.push(count_noun(self.unavailable, "is not available", "are not available"));
        }
        parts.join(", ")
    }
}

/// A definition as JSON, for people and scripts.
pub(crate) fn definition(entry: &ToolEntry, unavailable: Option<&PolicyRefusal>) -> Value {
    let def = &entry.def;
    json!({
        "name": def.name.as_str(),
        "title": def.title,
        "description": def.description,
        "input_schema": def.input_schema.value(),
        "output_schema": def.output_schema.as_ref().map(|s| s.value()),
        "toolset": def.keywords.toolset,
        "tags": entry.tags(),
        "flags": entry.flags,
        "traits": def.traits,
        "max_result_chars": def.max_result_chars,
        "capabilities": def.capabilities,
        "source": def.source,
        "not_checked": schema_losses::of_tool(entry),
        "unavailable": unavailable,
    })
}
