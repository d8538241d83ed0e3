//! `toolbay mcp`: other MCP servers, in the policy and on trial.

mod add;

use std::io::Write;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item};
use toolbay_mcp::client::{ServerState, ServerStatus};
use toolbay_policy::mcp_server::{McpServer, Place};
use toolbay_policy::text::{one_line, visible};

use crate::command::args::{McpCommand, SetupArgs};
use crate::command::setup::{self, PolicyFile, Purpose};
use crate::command::{policy_file, servers};
use crate::output::{self, DIM, GOOD, HEAD, NAME, WRONG};
use crate::{Verdict, host_failed};

/// Longest text of a line, in characters.
const MAX_LINE: usize = 500;

pub(crate) async fn run(args: &SetupArgs, command: McpCommand) -> Result<Verdict> {
    match command {
        McpCommand::Add(new) => add::run(args, &new),
        McpCommand::List { json } => list(args, json),
        McpCommand::Remove { name, dry_run } => remove(args, &name, dry_run),
        McpCommand::Check { name, json } => check(args, &name, json).await,
    }
}

fn list(args: &SetupArgs, json: bool) -> Result<Verdict> {
    let policy = setup::policy(args)?;
    if json {
        let all: Vec<Value> = policy.mcp_servers().map(|server| described(server)).collect();
        output::print_json(&all)?;
        return Ok(Verdict::Good);
    }
    let mut out = output::out();
    for server in policy.mcp_servers() {
        let place = place(server);
        match output::stdout_is_terminal() {
            true => writeln!(out, "{NAME}{}{NAME:#}  {}", server.name, visible(&place))?,
            false => writeln!(out, "{}\t{}", server.name, one_line(&place, MAX_LINE))?,
        }
    }
    out.flush()?;
    if policy.mcp_servers().next().is_none() {
        output::note(
            "the policy names no MCP servers: `toolbay mcp add NAME URL`, or `toolbay mcp add NAME -- PROGRAM`",
        );
    }
    Ok(Verdict::Good)
}

/// How a server is reached. Values of secrets are in no policy; arguments and headers are the operator's own.
fn place(server: &McpServer) -> String {
    match &server.place {
        Place::Http(endpoint) => endpoint.url.clone(),
        Place::Child(child) => {
            let file = child.program.path.display().to_string();
            std::iter::once(file).chain(child.args.iter().cloned()).collect::<Vec<_>>().join(" ")
        }
    }
}

fn described(server: &McpServer) -> Value {
    let (kind, caged) = match &server.place {
        Place::Http(_) => ("http", None),
        Place::Child(child) => ("stdio", Some(child.caged)),
    };
    json!({
        "name": server.name.as_str(),
        "kind": kind,
        "place": place(server),
        "sandbox": caged,
        "tools": server.tools,
        "exclude": server.exclude,
    })
}

fn remove(args: &SetupArgs, name: &str, dry_run: bool) -> Result<Verdict> {
    let file = PolicyFile::find(args)?;
    let (Some(path), Some(text)) = (&file.file, &file.text) else {
        bail!("there is no policy to take it out of");
    };
    let mut document: DocumentMut = text.parse().context("the policy is no TOML")?;
    let mut taken = Vec::new();
    let table = |document: &mut DocumentMut, table: &str, key: &str| {
        let found = document.get_mut(table).and_then(Item::as_table_like_mut);
        found.and_then(|found| found.remove(key)).is_some()
    };
    if !table(&mut document, "mcp", name) {
        bail!("the policy has no server `{}`", one_line(name, 100));
    }
    taken.push(format!("[mcp.{name}]"));
    let own = format!("mcp/{name}/");
    let secrets = document.get("secrets").and_then(Item::as_table_like);
    let secrets: Vec<String> = secrets
        .into_iter()
        .flat_map(|table| table.iter())
        .map(|(key, _)| key.to_owned())
        .filter(|key| key.starts_with(&own))
        .collect();
    for key in secrets {
        table(&mut document, "secrets", &key);
        taken.push(format!("[secrets.{key:?}]"));
    }
    let new = document.to_string();
    file.parse(&new)?;
    if !dry_run {
        policy_file::write(path, Some(text), &new)?;
    }
    let done = if dry_run { "would be taken out of" } else { "taken out of" };
    output::note(&format!("{} {done} `{}`", taken.join(", "), path.display()));
    Ok(Verdict::Good)
}

async fn check(args: &SetupArgs, name: &str, json: bool) -> Result<Verdict> {
    let host = setup::host(args, Purpose::Look)?;
    let policy = host.policy();
    if policy.mcp_server(name).is_none() {
        let known: Vec<String> = policy.mcp_servers().map(|server| format!("`{}`", server.name)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        bail!("the policy has no server `{}`; it has {known}", one_line(name, 100));
    }
    let attached = servers::attach(&host, |server| server.name.as_str() == name).await;
    let catalog = host.registry().snapshot();
    let status = attached.status().into_iter().next();
    attached.close().await;
    let Some(status) = status else { return Err(host_failed(anyhow!("the server was not tried"))) };
    let source = format!("mcp:{name}");
    let tools: Vec<_> = catalog.from_source(&source).collect();
    let ready = status.state == ServerState::Ready;
    if json {
        let names: Vec<&str> = tools.iter().map(|entry| entry.def.name.as_str()).collect();
        output::print_json(&json!({"server": status, "tools": names}))?;
    } else {
        let mut out = output::out();
        let style = if ready { GOOD } else { WRONG };
        writeln!(out, "{HEAD}{name}{HEAD:#}\t{style}{}{style:#}", line(&status))?;
        for entry in &tools {
            let summary = toolbay_policy::text::first_sentence(&entry.def.description);
            writeln!(out, "{NAME}{}{NAME:#}\t{}", entry.def.name, visible(summary))?;
        }
        for problem in &status.problems {
            writeln!(out, "{WRONG}problem{WRONG:#}\t{DIM}{}{DIM:#}", one_line(problem, MAX_LINE))?;
        }
        out.flush()?;
    }
    Ok(if ready { Verdict::Good } else { Verdict::Bad })
}

/// A server's state in one line, its parts separated by tabs.
pub(super) fn line(status: &ServerStatus) -> String {
    let or_dash = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| one_line(text, MAX_LINE));
    let state = match status.state {
        ServerState::Connecting => "connecting",
        ServerState::Ready => "ready",
        ServerState::Failed => "failed",
        ServerState::Suspended => "suspended",
    };
    let state = match &status.reason {
        Some(reason) => format!("{state}: {}", one_line(reason, MAX_LINE)),
        None => state.to_owned(),
    };
    let problems = match status.problems.len() {
        0 => String::new(),
        n => format!("\t{n} problems"),
    };
    format!(
        "{state}\t{}\t{} {}\t{} tools\t{}{problems}",
        or_dash(status.protocol.as_deref()),
        or_dash(status.title.as_deref()),
        or_dash(status.version.as_deref()),
        status.tools,
        status.confinement.unwrap_or("-"),
    )
}
