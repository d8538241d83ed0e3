//! `toolbay call`.

use anyhow::{Result, anyhow};
use toolbay::{ToolCall, TurnContext};
use toolbay_core::call::invoke::Failure;

use super::attachments::Files;
use crate::command::args::{CallArgs, SetupArgs};
use crate::command::servers;
use crate::command::setup::{self, Purpose, Tell};
use crate::command::told;
use crate::output;
use crate::{Verdict, host_failed};

pub(crate) async fn run(setup: &SetupArgs, asked: CallArgs) -> Result<Verdict> {
    let CallArgs { tool, json_args, args_file, attachments, turn, json } = asked;
    let text = super::arguments(json_args, args_file)?;
    let files = Files::read(&attachments)?;
    let host = setup::loaded(setup, Tell::Nothing, Purpose::Run).await?;
    let servers = servers::attach_for(&host, &[tool.as_str()]).await;
    let view = super::view(setup, &host)?;
    if host.registry().snapshot().get(&tool).is_none() {
        // Its plugin may be one of those that are not loaded.
        told::missing_tool(&host, &tool);
    }
    let turn = TurnContext { attachments: Some(files.turn()), ..turn.context() };
    let results = host.call_all(&view, vec![ToolCall::new("1", tool, text)], turn).await;
    servers.close().await;
    let Some(delivered) = results.into_iter().next() else {
        return Err(host_failed(anyhow!("the call gave no result")));
    };
    if json {
        output::print_json(&output::result_json(&delivered))?;
    } else {
        output::result(&delivered)?;
        output::hints(&delivered);
    }
    files.save()?;
    match &delivered.result {
        Ok(_) => Ok(Verdict::Good),
        Err(Failure::Refused(_) | Failure::Fault(_)) => Ok(Verdict::Bad),
        Err(Failure::Host(message)) => Err(host_failed(anyhow!(message.clone()))),
    }
}
