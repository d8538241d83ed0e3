//! `toolbay add`: a plugin of a registry into the lock. It gets no grants; `toolbay grant` gives them.

use std::io::Write as _;

use anyhow::Result;
use serde_json::json;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::args::AddPluginArgs;
use crate::installation;
use crate::installation::install::{Installation, install};
use crate::output::{self, Cell, CommandStatus, HEADING, NAME, Printer, TextTable, format};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, options: &AddPluginArgs) -> Result<CommandStatus> {
    report(args.printer, options, &install(args, options).await?)?;
    Ok(CommandStatus::Success)
}

fn report(printer: Printer, options: &AddPluginArgs, installed: &Installation) -> Result<()> {
    let Installation { host, info, plugin, paths } = installed;
    let tools = setup::tools(host, &info.id);
    let id = &info.id;
    if printer.is_json() {
        let capabilities = info.capabilities.iter();
        let capabilities = capabilities
            .map(|one| json!({"kind": one.kind.as_str(), "target": one.target, "optional": one.optional}));
        output::print_json(&json!({
            "plugin": id.as_str(),
            "version": info.about.as_ref().map(|about| &about.version),
            "locked": plugin,
            "capabilities": capabilities.collect::<Vec<_>>(),
            "tools": tools.iter().map(|entry| entry.def.name.as_str()).collect::<Vec<_>>(),
            "lock": paths.lock,
            "added": !options.dry_run,
        }))?;
        return Ok(());
    }
    let version = info.about.as_ref().map_or("", |about| about.version.as_str());
    let title = format!("{id} {}", escape_hidden(version));
    writeln!(output::stdout(), "{HEADING}{}{HEADING:#}", title.trim_end())?;
    let mut table = TextTable::facts();
    for (key, value) in installation::origin_facts(&plugin.origin()) {
        table.push_fact(key, value);
    }
    table.print()?;
    let mut table = TextTable::section("asks for", ["ASKS FOR", "TARGET", "REASON"]);
    for one in &info.capabilities {
        let reason = one.reason.as_deref().unwrap_or("no reason given");
        let target = format::declared_target(&one.target, one.optional);
        table.push([Cell::styled(NAME, one.kind.as_str()), target.into(), reason.into()]);
    }
    table.print_section()?;
    let mut table = TextTable::section("tool", ["TOOL", "DESCRIPTION"]);
    for entry in &tools {
        let about = toolbay_policy::excerpt::first_sentence(&entry.def.description);
        table.push([Cell::styled(NAME, entry.def.name.as_str()), about.into()]);
    }
    table.print_section()?;
    if options.dry_run {
        printer.note(&format!("nothing was written to `{}`", paths.lock.display()));
        return Ok(());
    }
    printer.note(&format!("`{id}` is locked in `{}`; it is granted nothing yet", paths.lock.display()));
    if !info.capabilities.is_empty() {
        printer.help(&format!("grant what it asks for with `toolbay grant {id}`"));
    }
    Ok(())
}
