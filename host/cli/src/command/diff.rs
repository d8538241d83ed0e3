//! `toolbay diff`: what a new version of a plugin changes for callers of its tools and for the operator.

use anyhow::Result;

use crate::installation::version_diff::{DiffReport, PluginVersion};
use crate::output::{self, CommandStatus};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, old: &str, new: &str) -> Result<CommandStatus> {
    let report = DiffReport::compare(&read(args, old).await?, &read(args, new).await?);
    if args.printer.is_json() {
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
