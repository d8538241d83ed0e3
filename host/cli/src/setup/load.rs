//! Loads plugins and services into a host.

use std::path::Path;

use anyhow::{Result, anyhow};
use toolbay::{Host, PluginId, PluginInfo, Policy};

use super::args::SetupArgs;
use super::host::{self, HostPurpose, host_for};
use super::load_report::{ReportLevel, ReportedWarnings};
use super::plugins::{load_plugins, record_names};
use super::services;
use crate::output::{CommandError, host_failure};

/// Builds the host and loads the services of the policy and the plugin directory.
pub(crate) async fn load_host(args: &SetupArgs, level: ReportLevel, purpose: HostPurpose) -> Result<Host> {
    let host = host::host(args, purpose)?;
    load(args, &host, level).await?;
    Ok(host)
}

/// Loads the services of the policy and the plugin directory into a host.
pub(crate) async fn load(args: &SetupArgs, host: &Host, level: ReportLevel) -> Result<()> {
    let (services, plugins) =
        tokio::join!(services::wait_for(args, host, |_| true), load_plugins(args, host, level));
    plugins?;
    record_names(args, host);
    services::report(args.printer, &services, level);
    if level == ReportLevel::Warnings {
        ReportedWarnings::default().report_policy(args, host);
    }
    Ok(())
}

/// A host with the plugin of a file, none of whose tools has run; or why the file does not load.
pub(crate) async fn load_file(
    args: &SetupArgs,
    policy: Policy,
    id: &PluginId,
    file: &Path,
) -> Result<Result<(Host, PluginInfo), String>> {
    let host = host_for(args, policy, HostPurpose::Inspect)?;
    if let Err(error) = host.load_file(id.clone(), file).await {
        return Ok(Err(error.to_string()));
    }
    let info =
        host.plugin(id.as_str()).ok_or_else(|| host_failure(anyhow!("`{id}` was loaded and is gone")))?;
    Ok(Ok((host, info)))
}

/// A host with the plugin that a command names, by a file or by an id in the plugin directory; or why it has none.
pub(crate) async fn load_plugin(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<Result<(Host, PluginInfo), String>> {
    let file = Path::new(plugin);
    if !file.is_file() && !plugin.ends_with(".wasm") {
        let host = host_for(args, policy, HostPurpose::Inspect)?;
        load(args, &host, ReportLevel::Warnings).await?;
        let info = host.plugin(plugin).ok_or("no plugin has this id, and there is no such file");
        return Ok(info.map(|info| (host, info)).map_err(str::to_owned));
    }
    match PluginId::new(&file.file_stem().unwrap_or_default().to_string_lossy()) {
        Ok(id) => load_file(args, policy, &id, file).await,
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// As [`load_plugin`], with an error that names the plugin.
pub(crate) async fn require_plugin(
    args: &SetupArgs,
    policy: Policy,
    plugin: &str,
) -> Result<(Host, PluginInfo)> {
    let found = load_plugin(args, policy, plugin).await?;
    found.map_err(|problem| {
        let error = CommandError::new("unknown_plugin", format!("`{plugin}`: {problem}"));
        error.with_help("`toolbay list --all` shows the installed plugins").into()
    })
}
