//! `toolbay mcp`: the other MCP servers of the policy.

mod add;
mod login;

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use toml_edit::Item;
use toolbay_core::registry::ToolEntry;
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::capability::program::SandboxMode;
use toolbay_policy::excerpt::{first_sentence, one_line};
use toolbay_policy::mcp_server::{McpServer, ServerTransport};

use crate::args::McpCommand;
use crate::output::{
    self, Cell, CommandError, CommandStatus, FAILURE, HEADING, NAME, Printer, SUCCESS, TextTable, count_noun,
    host_failure,
};
use crate::policy_edit::{self, new_secrets};
use crate::report::{large_sources, long_names, schema_losses};
use crate::setup::{self, HostPurpose, PolicyFile, SetupArgs, servers};

/// Most characters of a text in a line.
const MAX_LINE: usize = 500;

pub(crate) async fn run(args: &SetupArgs, command: McpCommand) -> Result<CommandStatus> {
    match command {
        McpCommand::Add(new) => add::run(args, &new).await,
        McpCommand::List => list(args),
        McpCommand::Remove { name, dry_run } => remove(args, &name, dry_run),
        McpCommand::Check { name, strict } => check(args, &name, strict).await,
        McpCommand::Login { name, no_browser } => login::login(args, &name, !no_browser).await,
        McpCommand::Logout { name } => login::logout(args, &name).await,
    }
}

fn list(args: &SetupArgs) -> Result<CommandStatus> {
    let policy = setup::policy(args)?;
    if args.printer.is_json() {
        let all: Vec<Value> = policy.mcp_servers().map(|server| server_json(server)).collect();
        return Ok(output::print_json(&all)?);
    }
    let mut table = TextTable::new(["SERVER", "ADDRESS"]);
    for server in policy.mcp_servers() {
        table.push([Cell::styled(NAME, server.name.as_str()), one_line(&address(server), MAX_LINE).into()]);
    }
    table.print()?;
    if policy.mcp_servers().next().is_none() {
        args.printer.note(
            "the policy names no MCP servers: `toolbay mcp add NAME URL`, or `toolbay mcp add NAME -- PROGRAM`",
        );
    }
    Ok(CommandStatus::Success)
}

/// The URL or the command line of a server. It holds no secrets: a policy only names them.
fn address(server: &McpServer) -> String {
    match &server.transport {
        ServerTransport::Http(endpoint) => endpoint.url.clone(),
        ServerTransport::Stdio(child) => {
            let file = child.program.path.display().to_string();
            std::iter::once(file).chain(child.args.iter().cloned()).collect::<Vec<_>>().join(" ")
        }
    }
}

fn server_json(server: &McpServer) -> Value {
    let (kind, sandboxed) = match &server.transport {
        ServerTransport::Http(_) => ("http", None),
        ServerTransport::Stdio(child) => ("stdio", Some(child.program.sandbox != SandboxMode::None)),
    };
    json!({
        "name": server.name.as_str(),
        "kind": kind,
        "place": address(server),
        "sandbox": sandboxed,
        "tools": server.tools,
        "exclude": server.exclude,
    })
}

/// The error for a server that the policy does not have.
pub(super) fn unknown_server<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> CommandError {
    CommandError::unknown("unknown_server", "MCP server", name, known)
        .with_help("`toolbay mcp list` shows the servers of the policy")
}

fn remove(args: &SetupArgs, name: &str, dry_run: bool) -> Result<CommandStatus> {
    let file = PolicyFile::find(args)?;
    let (Some(path), Some(text)) = (&file.file, &file.text) else {
        return Err(unknown_server(name, []).into());
    };
    let mut document = policy_edit::parse(text)?;
    let servers = document.get_mut("mcp").and_then(Item::as_table_like_mut);
    let known: Vec<String> =
        servers.iter().flat_map(|all| all.iter()).map(|(name, _)| name.to_owned()).collect();
    if servers.and_then(|servers| servers.remove(name)).is_none() {
        return Err(unknown_server(name, known.iter().map(String::as_str)).into());
    }
    let mut taken = vec![format!("[mcp.{name}]")];
    taken.extend(new_secrets::remove(&mut document, "mcp", name));
    let new = document.to_string();
    file.parse(&new)?;
    if !dry_run {
        policy_edit::write(&file, &new)?;
    }
    let done = if dry_run { "would be removed from" } else { "removed from" };
    let text = format!("{} {done} `{}`", taken.join(", "), path.display());
    let report = json!({"server": name, "file": path, "removed": taken, "written": !dry_run});
    Ok(args.printer.report(&report, &text)?)
}

async fn check(args: &SetupArgs, name: &str, strict: bool) -> Result<CommandStatus> {
    let host = setup::host(args, HostPurpose::Inspect)?;
    let policy = host.policy();
    if policy.mcp_server(name).is_none() {
        return Err(unknown_server(name, policy.mcp_servers().map(|server| server.name.as_str())).into());
    }
    let attached = servers::connect(args.printer, &host, |server| server.name.as_str() == name).await;
    let catalog = host.registry().snapshot();
    let status = attached.status().into_iter().next();
    attached.close().await;
    let Some(status) = status else { return Err(host_failure(anyhow!("the server was not tried"))) };
    let source = format!("mcp:{name}");
    let tools: Vec<_> = catalog.from_source(&source).collect();
    let ready = status.state == ServerState::Ready;
    let warnings: Vec<String> =
        tools.iter().filter_map(|entry| policy.long_name_warning(entry.def.named())).collect();
    let warns = !(warnings.is_empty() && status.problems.is_empty())
        || schema_losses::has_refused(tools.iter().copied());
    if args.printer.is_json() {
        let names: Vec<&str> = tools.iter().map(|entry| entry.def.name.as_str()).collect();
        let not_checked = schema_losses::to_json(tools.iter().copied());
        output::print_json(
            &json!({"server": status, "tools": names, "not_checked": not_checked, "warnings": warnings}),
        )?;
    } else {
        print_check(args.printer, &status, &tools)?;
        long_names::report(args.printer, &policy, tools.iter().map(|entry| entry.def.named()));
        large_sources::report_tool_count(args.printer, &format!("mcp.{name}"), tools.len());
    }
    Ok(CommandStatus::from_success(ready && !(strict && warns)))
}

fn print_check(printer: Printer, status: &ServerStatus, tools: &[&Arc<ToolEntry>]) -> std::io::Result<()> {
    let mut out = output::stdout();
    let style = if status.state == ServerState::Ready { SUCCESS } else { FAILURE };
    let separator = if output::stdout_is_terminal() { ": " } else { "\t" };
    writeln!(out, "{HEADING}{}{HEADING:#}{separator}{style}{}{style:#}", status.name, status_line(status))?;
    let mut table = TextTable::new(["TOOL", "DESCRIPTION"]).with_tag("tool");
    for entry in tools {
        let name = Cell::styled(NAME, entry.def.name.as_str());
        table.push([name, first_sentence(&entry.def.description).into()]);
    }
    table.print_section()?;
    schema_losses::table(tools.iter().copied()).print_section()?;
    for problem in &status.problems {
        printer.warning(&one_line(problem, MAX_LINE));
    }
    schema_losses::report_refused(printer, tools.iter().copied());
    Ok(())
}

/// A server's state on one line.
pub(super) fn status_line(status: &ServerStatus) -> String {
    let state = status.state.as_str();
    let state = match &status.reason {
        Some(reason) => format!("{state}: {}", one_line(reason, MAX_LINE)),
        None => state.to_owned(),
    };
    let mut parts = vec![state];
    parts.extend(
        status.protocol.as_deref().map(|protocol| format!("protocol {}", one_line(protocol, MAX_LINE))),
    );
    let name = [status.title.as_deref(), status.version.as_deref()];
    let name = name.into_iter().flatten().map(|text| one_line(text, MAX_LINE)).collect::<Vec<_>>().join(" ");
    parts.extend((!name.is_empty()).then_some(name));
    parts.push(count_noun(status.tools, "tool", "tools"));
    parts.extend(status.confinement.map(|sandbox| format!("sandbox {sandbox}")));
    if !status.problems.is_empty() {
        parts.push(count_noun(status.problems.len(), "problem", "problems"));
    }
    parts.join(", ")
}
