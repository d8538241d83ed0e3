//! `toolbay diff`: what a new version of a plugin changes for callers of its tools and for the operator.

use anyhow::Result;

use crate::CommandStatus;
use crate::command::args::SetupArgs;
use crate::command::setup;
use crate::command::version_diff::{DiffReport, PluginVersion};
use crate::output;

pub(crate) async fn run(args: &SetupArgs, old: &str, new: &str, json: bool) -> Result<CommandStatus> {
    let report = DiffReport::compare(&read(args, old).await?, &read(args, new).await?);
    if json {
        output::print_json(&report)?;
    } else {
        report.show()?;
    }
    Ok(report.verdict())
}

async fn read(args: &SetupArgs, plugin: &str) -> Result<PluginVersion> {
    let (host, info) = setup::require_plugin(args, setup::policy(args)?, plugin).await?;
    Ok(PluginVersion::of(&host, &info))
}
