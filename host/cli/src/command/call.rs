//! `toolbay call`.

use anyhow::{Result, anyhow};
use toolbay::{Session, ToolCall, TurnContext};
use toolbay_core::call::invoke::Failure;

use super::attachments::CallAttachments;
use crate::command::args::{CallArgs, SetupArgs};
use crate::command::call_error;
use crate::command::load_report;
use crate::command::servers;
use crate::command::services;
use crate::command::setup::ReportLevel;
use crate::output::{self, progress, stderr};
use crate::{CommandStatus, host_failure};

pub(crate) async fn run(setup: &SetupArgs, asked: CallArgs) -> Result<CommandStatus> {
    let CallArgs { tool, json_args, args_file, attachments, turn, json } = asked;
    let text = super::arguments(json_args, args_file)?;
    let files = CallAttachments::read(&attachments)?;
    let host = services::load_host_for(setup, ReportLevel::Quiet, &[tool.as_str()]).await?;
    let servers = servers::connect_for(setup, &host, &[tool.as_str()]).await;
    let view = super::view(setup, &host)?;
    if host.registry().snapshot().get(&tool).is_none() {
        // Its plugin may be one of those that are not loaded.
        load_report::report_missing_plugin(&host, &tool);
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
        _ if json => output::print_json(&output::result_json(&delivered))?,
        Ok(output) => {
            output::print_tool_output(output)?;
            let hints = &delivered.hints.lines;
            for help in call_error::help_texts(hints, None, &delivered.tool, &host, setup) {
                output::print_help(&help);
            }
        }
        Err(Failure::Host(_)) => {}
        Err(failure) => call_error::print(&delivered, failure, &host, &view, setup),
    }
    files.save()?;
    match &delivered.result {
        Ok(_) => Ok(CommandStatus::Success),
        Err(Failure::Refused(_) | Failure::Fault(_)) => Ok(CommandStatus::Failed),
        Err(Failure::Host(message)) => Err(host_failure(anyhow!(message.clone()))),
    }
}
