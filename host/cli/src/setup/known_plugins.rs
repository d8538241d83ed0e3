//! The ids of plugins that this machine knows, without loading one: files, sections of the policy, the lock.

use std::collections::BTreeSet;

use anyhow::Result;
use toolbay::PluginId;

use super::args::SetupArgs;
use super::locked::LockPaths;
use super::paths::plugin_folder;
use super::policy_file::policy;
use crate::output::CommandError;

/// Refuses an id that nothing names. `further` are ids that the command knows already. A source that cannot be read is
/// skipped: the command that needs it reports the problem.
pub(crate) fn require<'k>(
    args: &SetupArgs,
    plugin: &PluginId,
    further: impl IntoIterator<Item = &'k str>,
) -> Result<()> {
    let mut known: BTreeSet<String> = further.into_iter().map(ToOwned::to_owned).collect();
    if known.contains(plugin.as_str()) {
        return Ok(());
    }
    if let Ok(policy) = policy(args) {
        known.extend(policy.plugins().map(|(id, _)| id.to_string()));
    }
    if let Ok(locked) = LockPaths::find(args).and_then(|paths| paths.read()) {
        known.extend(locked.keys().map(ToString::to_string));
    }
    let files = plugin_folder(args).ok().and_then(|dir| std::fs::read_dir(dir).ok());
    for file in files.into_iter().flatten().flatten() {
        let name = file.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".wasm"));
        known.extend(id.map(ToOwned::to_owned));
    }
    if known.contains(plugin.as_str()) {
        return Ok(());
    }
    let known = known.iter().map(String::as_str);
    let error = CommandError::unknown("unknown_plugin", "plugin", plugin.as_str(), known);
    Err(error.with_help("`toolbay list --all` shows the installed plugins").into())
}
