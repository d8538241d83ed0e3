//! `toolbay gc`: removes downloaded blobs that no lock has needed for a while.

use anyhow::{Result, anyhow};
use serde_json::json;
use toolbay_distribution::garbage::{Garbage, GarbageError, GarbageMode};

use crate::output::{CommandStatus, count_noun, format, host_failure, run_blocking};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, dry_run: bool) -> Result<CommandStatus> {
    let LockPaths { lock, store } = LockPaths::find(args)?;
    let held = setup::held_updates(args, &lock)?.of_all_locks();
    let held = held.map_err(|problem| host_failure(anyhow!(problem)))?;
    let mode = if dry_run { GarbageMode::Preview } else { GarbageMode::Remove };
    let collected = run_blocking(move || store.collect_garbage(mode, &held)).await?;
    let collected = collected.map_err(|error| match error {
        GarbageError::Lock(error) => {
            locked::lock_error(error).context("nothing was removed, because a lock may need it")
        }
        GarbageError::Store(error) => host_failure(error),
    })?;
    let Garbage { removed, bytes, kept, locks } = collected;
    let blobs = |count| count_noun(count, "blob", "blobs");
    let verb = if dry_run { "would be removed" } else { "removed" };
    let (count, size) = (blobs(removed.len()), format::size(bytes));
    let for_locks = count_noun(locks, "lock", "locks");
    let text = format!("{count} ({size}) {verb}; {} kept for {for_locks}, or for 30 days", blobs(kept));
    let report =
        json!({"removed": removed, "bytes": bytes, "kept": kept, "locks": locks, "dry_run": dry_run});
    Ok(args.printer.report(&report, &text)?)
}
