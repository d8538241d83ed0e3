//! `toolbay backup` and `toolbay restore`: copies of the state directory.

use anyhow::Result;
use toolbay::{BackupSummary, RedbStore, back_up};

use crate::args::BackupArgs;
use crate::output::{CommandError, CommandStatus, Printer, count_noun, format, run_blocking};
use crate::setup::{self, SetupArgs, running_servers};

/// `toolbay backup`.
pub(crate) async fn run(args: &SetupArgs, options: &BackupArgs) -> Result<CommandStatus> {
    let state = setup::state_dir(args)?;
    if !state.exists() {
        return Err(refusal(format!("there is no state to back up: `{}` does not exist", state.display())));
    }
    let store = RedbStore::in_dir_with_wait(&state, args.state_wait);
    let summary = back_up(&state, &options.dir, &store).await.map_err(refusal)?;
    report(args.printer, &summary, "backed up")
}

/// `toolbay restore`.
pub(crate) async fn restore(args: &SetupArgs, options: &BackupArgs) -> Result<CommandStatus> {
    let state = setup::state_dir(args)?;
    if let Some(server) = running_servers::find(args).await?.first() {
        let why = format!("a server uses `{}` (process {})", state.display(), server.pid);
        return Err(CommandError::new("in_use", why).with_help("stop it, and restore again").into());
    }
    let from = options.dir.clone();
    let summary = run_blocking(move || toolbay::restore(&from, &state)).await?.map_err(refusal)?;
    report(args.printer, &summary, "restored")
}

fn refusal(problem: String) -> anyhow::Error {
    CommandError::new("backup_failed", problem).into()
}

fn report(printer: Printer, summary: &BackupSummary, done: &str) -> Result<CommandStatus> {
    let files = count_noun(summary.files, "file", "files");
    let status = printer.report(summary, &format!("{done} {files}, {}", format::size(summary.bytes)))?;
    if let (Some(old), false) = (&summary.replaced, printer.is_json()) {
        printer.note(&format!("the previous state is in `{}`", old.display()));
    }
    Ok(status)
}
