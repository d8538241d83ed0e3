//! The files that operators change while a server runs.

use anyhow::Result;
use toolbay::{Host, WatchedFile};

use super::args::SetupArgs;
use super::host::apply_stop_order;
use super::paths::{current_dir, stop_order, switches};
use super::policy_file::{default_policy, policy};

/// Watches the files that operators change.
pub(crate) fn watch_operator_files(args: &SetupArgs) -> Result<Vec<WatchedFile>> {
    let mut watched = vec![watch_switches(args)?, watch_stop_order(args)?];
    watched.extend(watch_policy(args)?);
    Ok(watched)
}

/// Watches the policy file; `None`: there is no path for one.
fn watch_policy(args: &SetupArgs) -> Result<Option<WatchedFile>> {
    let working_dir = current_dir()?;
    let file = args.config.as_ref().map(|file| working_dir.join(file)).or_else(default_policy);
    let args = args.clone();
    let read = move || policy(&args).map_err(|error| format!("{error:#}"));
    Ok(file.map(|file| WatchedFile::policy(file, read)))
}

/// Watches the stored switches.
fn watch_switches(args: &SetupArgs) -> Result<WatchedFile> {
    let (printer, switches) = (args.printer, switches(args)?);
    Ok(WatchedFile::file(switches.file(), move |host| match switches.load() {
        Ok(switches) => host.registry().set_switches(&switches),
        Err(problem) => printer.error(&format!("the disabled tools stay as before: {problem}")),
    }))
}

/// Watches the stored order to stop all calls.
fn watch_stop_order(args: &SetupArgs) -> Result<WatchedFile> {
    let (printer, order) = (args.printer, stop_order(args)?);
    Ok(WatchedFile::file(order.file(), move |host| match order.load() {
        Ok(order) => apply_stop_order(host, order),
        Err(problem) => {
            printer.error(&format!("the order to stop all calls stays as before: {problem}"));
        }
    }))
}

/// Watches the service documents that are files.
pub(crate) fn watch_documents(host: &Host) -> Vec<WatchedFile> {
    let policy = host.policy();
    policy.openapi_services().filter_map(|service| service.file()).map(WatchedFile::document).collect()
}
