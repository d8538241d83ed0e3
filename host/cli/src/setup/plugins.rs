//! Loads the plugin directory and the lock.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Error, Result};
use toolbay::core::registry::ToolEntry;
use toolbay::policy::Profile;
use toolbay::{Host, HostError, PluginId, Policy};

use super::args::SetupArgs;
use super::load_report::{self, ReportLevel};
use super::locked::{self, LockPaths};
use super::named_path::path_failure;
use super::names;
use super::paths::{cache_dir, plugin_folder};
use crate::output::{CommandError, host_failure};

/// The profile of the command line.
pub(crate) fn profile(args: &SetupArgs, policy: &Policy) -> Result<Option<Arc<Profile>>> {
    let Some(name) = &args.profile else { return Ok(None) };
    if let Some(profile) = policy.profile(name) {
        return Ok(Some(Arc::clone(profile)));
    }
    let known: Vec<String> = policy.profile_names().map(|name| format!("`{name}`")).collect();
    let has = if known.is_empty() { "no profile".to_owned() } else { known.join(", ") };
    let error = CommandError::unknown("unknown_profile", "profile", name, policy.profile_names());
    Err(error.with_help(format!("the policy has {has}")).into())
}

/// Loads the plugin directory and the lock.
pub(crate) async fn load_plugins(args: &SetupArgs, host: &Host, level: ReportLevel) -> Result<()> {
    profile(args, &host.policy())?;
    // Without a place for the lock, there is none.
    let lock = LockPaths::find(args).ok();
    let has_lock = lock.as_ref().is_some_and(|paths| paths.lock.exists());
    let others = host.policy().openapi_services().next().is_some() || has_lock;
    let mut reports = Vec::new();
    if let Some(dir) = plugin_dir(args, others)? {
        reports.push(host.load_dir(&dir).await.map_err(directory_failure)?);
    }
    // After the directory, whose plugins take precedence.
    if let Some(lock) = &lock {
        reports.push(locked::load(lock, host).await?);
    }
    for report in reports {
        if level != ReportLevel::Quiet {
            load_report::report_problems(args.printer, &report.problems);
        }
        if level == ReportLevel::Warnings {
            load_report::report_warnings(
                args.printer,
                report.warnings.iter().map(|one| (one.plugin.as_str(), one.message.as_str())),
            );
        }
    }
    Ok(())
}

fn directory_failure(error: HostError) -> Error {
    match error {
        HostError::Directory { path, error } => {
            let text = format!("the plugin directory `{}` cannot be read", path.display());
            path_failure(Error::from(error).context(text))
        }
        other => host_failure(other),
    }
}

/// The plugin directory; `None` if it is the default one and does not exist. `others`: tools of services exist without
/// it.
fn plugin_dir(args: &SetupArgs, others: bool) -> Result<Option<PathBuf>> {
    let dir = plugin_folder(args)?;
    if args.plugins.is_some() || dir.exists() {
        return Ok(Some(dir));
    }
    if others {
        return Ok(None);
    }
    let shown = dir.display();
    args.printer.note(&format!(
        "there are no plugins; put `.wasm` files into `{shown}`, or name a directory with `--plugins`"
    ));
    Ok(None)
}

/// The tools of a plugin.
pub(crate) fn tools(host: &Host, plugin: &PluginId) -> Vec<Arc<ToolEntry>> {
    let catalog = host.registry().snapshot();
    catalog.tools().filter(|e| e.def.source.plugin() == Some(plugin)).cloned().collect()
}

/// Records the names of a host that has all its plugins and services, for completions.
pub(crate) fn record_names(args: &SetupArgs, host: &Host) {
    if let (Some(cache), Ok(dir)) = (cache_dir(args), plugin_folder(args)) {
        names::record(&cache, &dir, host);
    }
}
