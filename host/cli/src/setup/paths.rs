//! Where the files of this user are: the directories of the command line, or those of the XDG base directory specification.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use toolbay::{FileAudit, FileConsents, FileStopOrder, FileSwitches, HeldUpdates};
use toolbay_state::user_dirs::{shared_cache_dir, user_dir};

use super::args::SetupArgs;
use crate::output::host_failure;

/// The directory of compiled code; `None`: nothing is cached.
pub(crate) fn cache_dir(args: &SetupArgs) -> Option<PathBuf> {
    if args.no_cache {
        return None;
    }
    args.cache_dir.clone().or_else(shared_cache_dir)
}

/// The state directory.
pub(crate) fn state_dir(args: &SetupArgs) -> Result<PathBuf> {
    let found = args.state_dir.clone().or_else(|| user_dir("XDG_STATE_HOME", ".local/state"));
    found.context("no state directory: give one with --state-dir DIR")
}

/// The folder of the operator's decisions.
fn decisions_dir(args: &SetupArgs) -> Result<PathBuf> {
    args.decisions_dir.clone().map_or_else(|| state_dir(args), Ok)
}

/// The stored switches of disabled tools.
pub(crate) fn switches(args: &SetupArgs) -> Result<FileSwitches> {
    Ok(FileSwitches::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The stored order to stop all calls.
pub(crate) fn stop_order(args: &SetupArgs) -> Result<FileStopOrder> {
    Ok(FileStopOrder::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The stored consents.
pub(crate) fn consents(args: &SetupArgs) -> Result<FileConsents> {
    Ok(FileConsents::new(decisions_dir(args)?).with_wait(args.state_wait))
}

/// The updates of a lock that wait for the operator.
pub(crate) fn held_updates(args: &SetupArgs, lock: &Path) -> Result<HeldUpdates> {
    Ok(HeldUpdates::new(state_dir(args)?, lock).with_wait(args.state_wait))
}

/// The file of the audit.
pub(crate) fn audit_file(args: &SetupArgs) -> Result<PathBuf> {
    match &args.audit {
        Some(file) => Ok(file.clone()),
        None => Ok(FileAudit::path_in(&state_dir(args)?)),
    }
}

/// The user's data directory of this program.
pub(crate) fn data_dir() -> Option<PathBuf> {
    user_dir("XDG_DATA_HOME", ".local/share")
}

/// The plugin directory, which may not exist.
pub(crate) fn plugin_folder(args: &SetupArgs) -> Result<PathBuf> {
    let default = || data_dir().map(|dir| dir.join("plugins"));
    let folder = args.plugins.clone().or_else(default);
    folder.context("no plugin directory: give one with --plugins DIR")
}

pub(crate) fn current_dir() -> Result<PathBuf> {
    std::env::current_dir().context("the current directory is gone").map_err(host_failure)
}

/// The user who runs the command, for the audit.
pub(crate) fn operator() -> String {
    let name = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let uid = rustix::process::getuid().as_raw();
    toolbay_policy::excerpt::one_line(format!("{name} (uid {uid})").trim(), 100)
}
