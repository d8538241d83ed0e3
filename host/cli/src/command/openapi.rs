//! `toolbay openapi`: the services of the policy that OpenAPI documents describe.

mod plan;

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use toolbay::{DocumentState, OpenApiInfo};
use toolbay_core::registry::ToolEntry;
use toolbay_policy::hidden_chars::escape_hidden;

use crate::args::{DecisionArgs, DocumentArgs, OpenApiCommand};
use crate::output::{
    self, Cell, CommandError, CommandStatus, FAILURE, HEADING, NAME, Printer, SUCCESS, TextTable, count_noun,
    format,
};
use crate::policy_edit;
use crate::report::{large_sources, schema_losses};
use crate::setup::{self, HostPurpose, PolicyFile, SetupArgs, load_report, services};
use plan::{ServicePlan, plan, policy_lines};

/// The name of a service that is only checked.
const CHECKED: &str = "check";
/// Most operations of one kind in the output.
const SHOWN: usize = 200;

pub(crate) async fn run(args: &SetupArgs, command: OpenApiCommand) -> Result<CommandStatus> {
    match command {
        OpenApiCommand::List { refresh } => list(args, refresh).await,
        OpenApiCommand::Check { document, strict } => check(args, &document, strict).await,
        OpenApiCommand::Add { name, document, pin, decision } => {
            add(args, &name, &document, pin, &decision).await
        }
        OpenApiCommand::Remove { name, decision } => remove(args, &name, &decision),
    }
}

async fn list(args: &SetupArgs, refresh: bool) -> Result<CommandStatus> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    let all = match refresh {
        true => host.refresh_openapi().await,
        false => services::wait_for(args, &host, |_| true).await,
    };
    if args.printer.is_json() {
        output::print_json(&all)?;
    } else {
        print_services(args.printer, &all)?;
    }
    let is_ready = |info: &OpenApiInfo| info.error.is_none() && info.state != DocumentState::Loading;
    Ok(CommandStatus::from_success(all.iter().all(is_ready)))
}

fn print_services(printer: Printer, all: &[OpenApiInfo]) -> std::io::Result<()> {
    if all.is_empty() {
        printer.note("the policy has no service; add one with `toolbay openapi add NAME FILE`");
    }
    let mut table = TextTable::new(["SERVICE", "TOOLS", "SKIPPED", "DOCUMENT"]).with_numbers_in(&[1, 2]);
    for info in all {
        let (tools, problems) = (info.tools.len().to_string(), info.problems.len().to_string());
        let name = Cell::styled(NAME, &info.name);
        table.push([name, tools.into(), problems.into(), info.document.as_str().into()]);
    }
    table.print()?;
    all.iter().for_each(|info| report_problems(printer, info));
    load_report::report_loading(printer, all);
    if let Some(info) = all.iter().find(|info| !info.problems.is_empty()) {
        let document = escape_hidden(&info.document);
        printer.footer(&format!("see the skipped operations with `toolbay openapi check {document}`"))?;
    }
    Ok(())
}

/// Prints what is wrong with a service on stderr.
fn report_problems(printer: Printer, info: &OpenApiInfo) {
    if let Some(error) = &info.error {
        printer.error(&format!("[openapi.{}]: {error}", info.name));
    }
    for warning in &info.warnings {
        printer.warning(&format!("[openapi.{}]: {warning}", info.name));
    }
}

async fn check(args: &SetupArgs, document: &DocumentArgs, strict: bool) -> Result<CommandStatus> {
    let file = PolicyFile::find(args)?;
    let base = file.text.clone().unwrap_or_else(|| "version = 1\n".to_owned());
    // The secrets of the policy must exist; other services are irrelevant.
    let mut policy = policy_edit::parse(&base)?;
    policy.remove("openapi");
    let planned = plan(args, &file, &policy.to_string(), CHECKED, document, true).await?;
    let ServicePlan { info, tools, .. } = planned;
    if args.printer.is_json() {
        let mut report = json!(info);
        output::insert_member(&mut report, "not_checked", schema_losses::to_json(&tools));
        output::print_json(&report)?;
    } else {
        show(args.printer, &info, &tools)?;
    }
    let warns = !(info.warnings.is_empty() && info.problems.is_empty()) || schema_losses::has_refused(&tools);
    let fails = info.error.is_some() || info.tools.is_empty() || (strict && warns);
    Ok(CommandStatus::from_success(!fails))
}

async fn add(
    args: &SetupArgs,
    name: &str,
    document: &DocumentArgs,
    pin: bool,
    decision: &DecisionArgs,
) -> Result<CommandStatus> {
    decision.check_decidable()?;
    let file = PolicyFile::find_or_new(args, true)?;
    let text = file.text_or_new();
    if file.parse(&text)?.openapi_service(name).is_some() {
        let error = CommandError::new("exists", format!("the policy already has [openapi.{name}]"));
        return Err(error.with_help(format!("remove it first with `toolbay openapi remove {name}`")).into());
    }
    let ServicePlan { info, tools, section, text: with } =
        plan(args, &file, &text, name, document, pin).await?;
    let report = |added: bool| json!({"service": info, "lines": policy_lines(&section), "added": added});
    if !args.printer.is_json() {
        show(args.printer, &info, &tools)?;
    }
    if info.error.is_some() || info.tools.is_empty() {
        args.printer.error("nothing would become a tool; nothing was changed");
        return finish(args.printer, &report(false), CommandStatus::Failed);
    }
    if !args.printer.is_json() {
        large_sources::report_tool_count(args.printer, &format!("openapi.{name}"), info.tools.len());
        writeln!(output::stdout())?;
        policy_edit::print_lines("added to", SUCCESS, &file, &policy_lines(&section))?;
    }
    if let Some(status) = decision.decline(args.printer, "Write this into the policy?")? {
        return finish(args.printer, &report(false), status);
    }
    policy_edit::write(&file, &with)?;
    args.printer.note(&format!("`{name}` is in the policy; see its tools with `toolbay list`"));
    finish(args.printer, &report(true), CommandStatus::Success)
}

/// Prints the report if JSON is asked for.
fn finish(printer: Printer, report: &Value, status: CommandStatus) -> Result<CommandStatus> {
    if printer.is_json() {
        output::print_json(report)?;
    }
    Ok(status)
}

fn remove(args: &SetupArgs, name: &str, decision: &DecisionArgs) -> Result<CommandStatus> {
    let file = PolicyFile::find(args)?;
    let text = file.text.clone().unwrap_or_default();
    let (without, taken) = plan::without_service(&text, name)?;
    let Some(taken) = taken else {
        return Err(CommandError::new("unknown_service", format!("the policy has no [openapi.{name}]"))
            .with_help("`toolbay openapi list` shows the services")
            .into());
    };
    decision.check_decidable()?;
    file.parse(&without)?;
    let lines = policy_lines(&taken);
    let report = |removed: bool| json!({"name": name, "lines": lines, "removed": removed});
    if !args.printer.is_json() {
        policy_edit::print_lines("removed from", FAILURE, &file, &lines)?;
    }
    if let Some(status) = decision.decline(args.printer, "Remove this from the policy?")? {
        return finish(args.printer, &report(false), status);
    }
    policy_edit::write(&file, &without)?;
    finish(args.printer, &report(true), CommandStatus::Success)
}

fn show(printer: Printer, info: &OpenApiInfo, entries: &[Arc<ToolEntry>]) -> std::io::Result<()> {
    let title = info.title.as_deref().unwrap_or("a service");
    let digest = info.digest.as_deref().map(format::short_digest);
    let digest = digest.map_or_else(String::new, |digest| format!(" (sha256 {digest})"));
    let (tools, problems) = (info.tools.len(), info.problems.len());
    let counts = [
        count_noun(tools, "tool", "tools"),
        format!("{} not available", info.unavailable.len()),
        format!("{problems} skipped"),
        format!("{} left out", info.left_out),
    ];
    let mut out = output::stdout();
    if output::stdout_is_terminal() {
        writeln!(out, "{HEADING}{}{HEADING:#}{digest}: {}", escape_hidden(title), counts.join(", "))?;
    } else {
        let title = escape_hidden(title).replace(['\n', '\t'], " ");
        writeln!(out, "service\t{title}\t{}\t{}", info.digest.as_deref().unwrap_or("-"), counts.join(", "))?;
    }
    report_problems(printer, info);
    let mut table = TextTable::new(["TOOL", "OPERATION", "STATUS"]).with_tag("tool");
    for (name, operation) in info.tools.iter().take(SHOWN) {
        let status = match info.unavailable.get(name) {
            Some(reason) => Cell::styled(FAILURE, format!("not available: {reason}")),
            None => Cell::styled(SUCCESS, "ready"),
        };
        table.push([Cell::styled(NAME, name), operation.as_str().into(), status]);
    }
    table.print_section()?;
    let mut table = TextTable::new(["SKIPPED", "REASON"]).with_tag("skipped");
    for (operation, reason) in info.problems.iter().take(SHOWN) {
        table.push([operation.as_str().into(), reason.as_str().into()]);
    }
    table.print_section()?;
    schema_losses::table(entries).print_section()?;
    schema_losses::report_refused(printer, entries);
    if tools.max(problems) > SHOWN {
        printer.footer(&format!("the first {SHOWN} of each are shown; `--json` prints all"))?;
    }
    Ok(())
}
