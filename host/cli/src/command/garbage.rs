//! `toolbay gc`: removes downloaded blobs that no lock has needed for a while.

use anyhow::{Result, anyhow};
use serde_json::json;
use toolbay_distribution::garbage::{Garbage, GarbageError, GarbageMode};

use crate::CommandStatus;
use crate::command::args::{GarbageArgs, SetupArgs};
use crate::command::locked::{self, LockPaths};
use crate::command::setup;
use crate::host_failure;
use crate::output;
use crate::output::format::{self, count_noun};

pub(crate) async fn run(args: &SetupArgs, asked: &GarbageArgs) -> Result<CommandStatus> {
    let LockPaths { lock, store } = LockPaths::find(args)?;
    let held = setup::held_updates(args, &lock)?.of_all_locks();
    let held = held.map_err(|problem| host_failure(anyhow!(problem)))?;
    let mode = if asked.dry_run { GarbageMode::Preview } else { GarbageMode::Remove };
    let collected = tokio::task::spawn_blocking(move || store.collect_garbage(mode, &held)).await;
    let collected = collected.map_err(host_failure)?.map_err(|error| match error {
        GarbageError::Lock(error) => {
            locked::lock_error(error).context("nothing was removed, because a lock may need it")
        }
        GarbageError::Store(error) => host_failure(error),
    })?;
    let Garbage { removed, bytes, kept, locks } = collected;
    if asked.json {
        output::print_json(&json!({
            "removed": removed,
            "bytes": bytes,
            "kept": kept,
            "locks": locks,
            "dry_run": asked.dry_run,
        }))?;
        return Ok(CommandStatus::Success);
    }
    let blobs = |count| count_noun(count, "blob", "blobs");
    let verb = if asked.dry_run { "would be removed" } else { "removed" };
    let (removed_blobs, size) = (blobs(removed.len()), format::size(bytes));
    let locks = count_noun(locks, "lock", "locks");
    output::print_note(&format!(
        "{removed_blobs} ({size}) {verb}; {} kept for {locks}, or for 30 days",
        blobs(kept)
    ));
    Ok(CommandStatus::Success)
}
