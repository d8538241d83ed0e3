//! `toolbay call`.

use std::io::Write;

use toolbay::ToolCall;
use toolbay_core::invoke::Failure;

use crate::args::{SetupArgs, TurnArgs};
use crate::setup::{self, Tell};
use crate::{Stop, Verdict, output};

pub(crate) async fn run(
    args: &SetupArgs,
    tool: &str,
    text: String,
    turn: &TurnArgs,
    json: bool,
) -> Result<Verdict, Stop> {
    let host = setup::loaded(args, Tell::Problems).await?;
    let view = super::view(&host);
    let results = host.call_all(&view, vec![ToolCall::new("1", tool, text)], super::turn(turn)).await;
    let Some(delivered) = results.into_iter().next() else {
        return Err(Stop::Host(anyhow::anyhow!("the call gave no result")));
    };
    if json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &output::result_json(&delivered))
            .map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        output::result(&delivered)?;
    }
    match &delivered.result {
        Ok(_) => Ok(Verdict::Good),
        Err(Failure::Refused(_) | Failure::Fault(_)) => Ok(Verdict::Bad),
        Err(Failure::Host(message)) => Err(Stop::Host(anyhow::anyhow!(message.clone()))),
    }
}
