//! `toolbay ps`, `cancel`, `stop` and `resume`: the calls of the running servers of this state directory.

use std::time::Duration;

use anyhow::Result;
use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::json;
use toolbay_admin::client::{ControlError, ServerClient};
use toolbay_core::audit::ActionRecord;
use toolbay_core::pipeline::running::RunningCall;
use toolbay_policy::excerpt::one_line;

use crate::args::CallNumber;
use crate::output::{
    self, Cell, CommandError, CommandStatus, DIM, NAME, TextTable, count_noun, format, host_failure,
};
use crate::setup::{self, SetupArgs, running_servers};

/// Longest text of a column, in characters.
const MAX_TEXT: usize = 60;

/// A call in progress with its id for `cancel`.
#[derive(Serialize)]
struct ListedCall {
    id: String,
    #[serde(flatten)]
    call: RunningCall,
}

/// `toolbay ps`: the calls in progress.
pub(crate) async fn list(args: &SetupArgs) -> Result<CommandStatus> {
    let servers = running_servers::ask_all(args, async |server| server.calls().await).await?;
    let (count, mut calls) = (servers.len(), Vec::new());
    for (server, found) in servers {
        calls.extend(found.into_iter().map(|call: RunningCall| (server.pid, call)));
    }
    if args.printer.is_json() {
        let rows = calls
            .into_iter()
            .map(|(pid, call)| ListedCall { id: CallNumber { pid, number: call.number }.to_string(), call });
        return Ok(output::print_json(&rows.collect::<Vec<_>>())?);
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
        let count = count_noun(count, "running server", "running servers");
        args.printer.note(&format!("no call is in progress; {count}"));
    }
    Ok(CommandStatus::Success)
}

/// `toolbay cancel`.
pub(crate) async fn cancel(args: &SetupArgs, id: CallNumber) -> Result<CommandStatus> {
    let CallNumber { pid, number } = id;
    let servers = running_servers::find(args).await?;
    let Some(server) = servers.iter().find(|server| server.pid == pid) else {
        let why = format!("no running server has the process id {pid}");
        return Err(CommandError::new("unknown_call", why)
            .with_help("`toolbay ps` lists the calls in progress")
            .into());
    };
    let call = server.cancel(number, &setup::operator()).await.map_err(control_error)?;
    Ok(args.printer.report(&call, &format!("cancelled `{}`", one_line(&call.tool, MAX_TEXT)))?)
}

/// `toolbay stop`.
pub(crate) async fn stop(args: &SetupArgs, reason: &str) -> Result<CommandStatus> {
    let operator = setup::operator();
    let answers = running_servers::ask_all(args, async |server| server.stop(reason, &operator).await).await?;
    let (reached, cancelled): (Vec<ServerClient>, Vec<usize>) = answers.into_iter().unzip();
    let cancelled = cancelled.into_iter().sum::<usize>();
    if reached.is_empty() {
        let order = setup::stop_order(args)?.stop(reason, now()).map_err(anyhow::Error::msg);
        let order = order.map_err(host_failure)?;
        running_servers::apply_decision(args, false).await?;
        record(args, "stop", Some(order.reason))?;
    }
    if args.printer.is_json() {
        return Ok(output::print_json(&json!({ "servers": pids(&reached), "cancelled": cancelled }))?);
    }
    let calls = count_noun(cancelled, "call", "calls");
    args.printer.note(&format!("calls are stopped in {}; cancelled {calls}", describe(&reached)));
    args.printer.help("allow calls again with `toolbay resume`");
    Ok(CommandStatus::Success)
}

/// `toolbay resume`.
pub(crate) async fn resume(args: &SetupArgs) -> Result<CommandStatus> {
    let operator = setup::operator();
    let answers = running_servers::ask_all(args, async |server| server.resume(&operator).await).await?;
    let (reached, stopped): (Vec<ServerClient>, Vec<bool>) = answers.into_iter().unzip();
    let mut was_stopped = stopped.contains(&true);
    if reached.is_empty() {
        was_stopped = setup::stop_order(args)?.resume().map_err(anyhow::Error::msg).map_err(host_failure)?;
        running_servers::apply_decision(args, false).await?;
        if was_stopped {
            record(args, "resume", None)?;
        }
    }
    let text = match was_stopped {
        true => format!("calls are allowed again in {}", describe(&reached)),
        false => "calls were not stopped".to_owned(),
    };
    Ok(args.printer.report(&json!({ "servers": pids(&reached), "was_stopped": was_stopped }), &text)?)
}

/// Records an action that no server records.
fn record(args: &SetupArgs, action: &'static str, reason: Option<String>) -> Result<()> {
    if let Some(audit) = setup::audit_for_decision(args)? {
        audit.record_action(ActionRecord { action, subject: None, reason, by: setup::operator() });
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
