//! `toolbay call`.

mod attachments;

use anyhow::{Result, anyhow};
use toolbay::{Session, ToolCall, TurnContext};
use toolbay_core::call::invoke::Failure;

use crate::args::CallArgs;
use crate::output::error::report_error;
use crate::output::{self, CommandStatus, host_failure, progress, stderr};
use crate::report::call_error;
use crate::setup::{ReportLevel, SetupArgs, load_report, servers, services};
use attachments::CallAttachments;

pub(crate) async fn run(setup: &SetupArgs, options: CallArgs) -> Result<CommandStatus> {
    let CallArgs { tool, input, attachments, turn } = options;
    let text = input.read()?;
    let files = CallAttachments::read(&attachments)?;
    let host = services::load_host_for(setup, ReportLevel::Quiet, &[tool.as_str()]).await?;
    let servers = servers::connect_for(setup, &host, &[tool.as_str()]).await;
    let view = servers::view(setup, &host)?;
    if host.registry().snapshot().get(&tool).is_none() {
        // Its plugin may be one of those that are not loaded.
        load_report::report_missing_plugin(setup.printer, &host, &tool);
    }
    let turn = TurnContext {
        attachments: Some(files.for_turn()),
        progress: progress::call_progress(),
        ..turn.context(Session::default())
    };
    let results = host.call_all(&view, vec![ToolCall::new("1", tool, text)], turn).await;
    stderr::clear_progress();
    servers.close().await;
    let Some(delivered) = results.into_iter().next() else {
        return Err(host_failure(anyhow!("the call gave no result")));
    };
    match &delivered.result {
        _ if setup.printer.is_json() => {
            output::print_json(&output::result_json(&delivered))?;
        }
        Ok(output) => {
            output::print_tool_output(output)?;
            let hints = &delivered.hints.lines;
            for help in call_error::help_texts(hints, None, &delivered.tool, &host, setup) {
                setup.printer.help(&help);
            }
        }
        Err(Failure::Host(_)) => {}
        Err(failure) => call_error::print(&delivered, failure, &host, &view, setup),
    }
    // stdout may have its JSON value.
    let printer = setup.printer.after_result();
    if let Err(error) = files.save(printer) {
        return Ok(report_error(printer, error));
    }
    match &delivered.result {
        Ok(_) => Ok(CommandStatus::Success),
        Err(Failure::Refused(_) | Failure::Fault(_)) => Ok(CommandStatus::Failed),
        Err(Failure::Host(message)) => Ok(report_error(printer, host_failure(anyhow!(message.clone())))),
    }
}
