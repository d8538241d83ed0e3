//! `toolbay ps`, `cancel`, `stop` and `resume`: the calls of the running servers of this state directory.

use std::time::Duration;

use anyhow::{Context as _, Result};
use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::json;
use toolbay_admin::client::{ControlError, ServerClient};
use toolbay_core::audit::ActionRecord;
use toolbay_core::pipeline::running::RunningCall;
use toolbay_policy::excerpt::one_line;

use crate::command::args::{CallNumber, CancelArgs, SetupArgs, StopArgs};
use crate::command::setup;
use crate::output::error::CommandError;
use crate::output::format::{self, count_noun};
use crate::output::table::{Cell, TextTable};
use crate::output::{self, DIM, NAME};
use crate::{CommandStatus, host_failure};

/// Longest text of a column, in characters.
const MAX_TEXT: usize = 60;

/// The running servers of the state directory.
pub(crate) async fn servers(args: &SetupArgs) -> Result<Vec<ServerClient>> {
    if args.decisions_dir.is_some() {
        // The decision is published, and reaches the servers that share it.
        return Ok(Vec::new());
    }
    let dir = setup::state_dir(args)?;
    let found = ServerClient::find_all(&dir).await;
    found.with_context(|| format!("the control sockets in `{}`", dir.display())).map_err(host_failure)
}

/// A call in progress with its id for `cancel`.
#[derive(Serialize)]
struct ListedCall {
    id: String,
    #[serde(flatten)]
    call: RunningCall,
}

/// `toolbay ps`: the calls in progress.
pub(crate) async fn list(args: &SetupArgs, json: bool) -> Result<CommandStatus> {
    let servers = servers(args).await?;
    let mut calls: Vec<(u32, RunningCall)> = Vec::new();
    for server in &servers {
        if let Some(found) = answered(server.calls().await) {
            calls.extend(found.into_iter().map(|call| (server.pid, call)));
        }
    }
    if json {
        let rows = calls
            .into_iter()
            .map(|(pid, call)| ListedCall { id: CallNumber { pid, number: call.number }.to_string(), call });
        output::print_json(&rows.collect::<Vec<_>>())?;
        return Ok(CommandStatus::Success);
    }
    let mut table = TextTable::new(["ID", "TOOL", "STATE", "TIME", "CLIENT", "CALL"]).with_numbers_in(&[3]);
    for (pid, call) in &calls {
        let client = call.agent_id.as_deref().or(call.session_id.as_deref()).unwrap_or_default();
        table.push([
            CallNumber { pid: *pid, number: call.number }.to_string().into(),
            Cell::styled(NAME, one_line(&call.tool, MAX_TEXT)),
            if call.began { "running" } else { "waiting" }.into(),
            format::time(Duration::from_millis(call.elapsed_ms)).into(),
            Cell::styled(DIM, one_line(client, MAX_TEXT)),
            Cell::styled(DIM, one_line(&call.call_id, MAX_TEXT)),
        ]);
    }
    table.print()?;
    if calls.is_empty() {
        let count = count_noun(servers.len(), "running server", "running servers");
        output::print_note(&format!("no call is in progress; {count}"));
    }
    Ok(CommandStatus::Success)
}

/// `toolbay cancel`.
pub(crate) async fn cancel(args: &SetupArgs, asked: &CancelArgs) -> Result<CommandStatus> {
    let CallNumber { pid, number } = asked.id;
    let servers = servers(args).await?;
    let Some(server) = servers.iter().find(|server| server.pid == pid) else {
        let why = format!("no running server has the process id {pid}");
        return Err(CommandError::new("unknown_call", why)
            .with_help("`toolbay ps` lists the calls in progress")
            .into());
    };
    let call = server.cancel(number, &super::operator()).await.map_err(control_error)?;
    if asked.json {
        output::print_json(&call)?;
    } else {
        output::print_note(&format!("cancelled `{}`", one_line(&call.tool, MAX_TEXT)));
    }
    Ok(CommandStatus::Success)
}

/// `toolbay stop`.
pub(crate) async fn stop(args: &SetupArgs, asked: &StopArgs) -> Result<CommandStatus> {
    let mut reached = Vec::new();
    let mut cancelled = 0;
    for server in servers(args).await? {
        if let Some(calls) = answered(server.stop(&asked.reason, &super::operator()).await) {
            cancelled += calls;
            reached.push(server);
        }
    }
    if reached.is_empty() {
        let order = setup::stop_order(args)?.stop(&asked.reason, now()).map_err(anyhow::Error::msg);
        let order = order.map_err(host_failure)?;
        apply_decision(args, false).await?;
        record(args, "stop", Some(order.reason))?;
    }
    if asked.json {
        output::print_json(&json!({ "servers": pids(&reached), "cancelled": cancelled }))?;
        return Ok(CommandStatus::Success);
    }
    let calls = count_noun(cancelled, "call", "calls");
    output::print_note(&format!("calls are stopped in {}; cancelled {calls}", describe(&reached)));
    output::print_help("allow calls again with `toolbay resume`");
    Ok(CommandStatus::Success)
}

/// `toolbay resume`.
pub(crate) async fn resume(args: &SetupArgs, json: bool) -> Result<CommandStatus> {
    let mut reached = Vec::new();
    let mut was_stopped = false;
    for server in servers(args).await? {
        if let Some(stopped) = answered(server.resume(&super::operator()).await) {
            was_stopped |= stopped;
            reached.push(server);
        }
    }
    if reached.is_empty() {
        was_stopped = setup::stop_order(args)?.resume().map_err(anyhow::Error::msg).map_err(host_failure)?;
        apply_decision(args, false).await?;
        if was_stopped {
            record(args, "resume", None)?;
        }
    }
    if json {
        output::print_json(&json!({ "servers": pids(&reached), "was_stopped": was_stopped }))?;
    } else if was_stopped {
        output::print_note(&format!("calls are allowed again in {}", describe(&reached)));
    } else {
        output::print_note("calls were not stopped");
    }
    Ok(CommandStatus::Success)
}

/// The answer of one of several servers. A server that fails is reported and does not affect the others. It reads state
/// files within seconds on its own.
fn answered<T>(answer: Result<T, ControlError>) -> Option<T> {
    answer.inspect_err(|error| output::print_warning(&error.to_string())).ok()
}

/// Applies a decision before a command reports it. With shared state, it is published. Otherwise the running servers of the
/// state directory reload, if the decision `changes` something for them; they would also notice it within seconds.
///
/// # Errors
/// Fails if the decision was not published. Nothing is changed then.
pub(crate) async fn apply_decision(args: &SetupArgs, changes: bool) -> Result<()> {
    if let Some(pulled) = &args.pulled {
        return pulled.publish().await;
    }
    if !changes {
        return Ok(());
    }
    for server in servers(args).await? {
        if answered(server.reload(&super::operator()).await).is_some() {
            output::print_note(&format!(
                "the running server (process {}) applies the change now",
                server.pid
            ));
        }
    }
    Ok(())
}

/// Records an action that no server records.
fn record(args: &SetupArgs, action: &'static str, reason: Option<String>) -> Result<()> {
    if let Some(audit) = setup::audit_for_decision(args)? {
        audit.record_action(ActionRecord { action, subject: None, reason, by: super::operator() });
        audit.finish();
    }
    Ok(())
}

fn control_error(error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Refused(refusal) if refusal.code == "unknown_call" => {
            let help = "`toolbay ps` lists the calls in progress";
            CommandError::new("unknown_call", refusal.message).with_help(help).into()
        }
        error => host_failure(error),
    }
}

fn pids(servers: &[ServerClient]) -> Vec<u32> {
    servers.iter().map(|server| server.pid).collect()
}

fn describe(servers: &[ServerClient]) -> String {
    match servers {
        [] => "this state directory; no server is running".to_owned(),
        [server] => format!("the running server (process {})", server.pid),
        servers => format!("{} running servers", servers.len()),
    }
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}
