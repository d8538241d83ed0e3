//! `toolbay update`: the newest compatible versions into the lock. What a version changes is shown first. One that asks for
//! more, describes its tools otherwise, has another signer or was published again under its tag is held for `grant`, and
//! the locked version keeps running.

use anyhow::Result;
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::{LockedPlugin, Signer};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{RegistryAccess, RegistryError};
use toolbay_distribution::version::{NewerVersions, TaggedVersion};

use crate::args::{AddPluginArgs, UpdateArgs};
use crate::installation::install::{self, InstallRefusal};
use crate::installation::trust::TrustDecision;
use crate::output::{self, Cell, CommandStatus, DIM, FAILURE, NAME, Printer, SUCCESS, TextTable};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, SetupArgs};

/// What became of a plugin.
enum UpdateStatus {
    /// There is no newer version that is compatible, and its tag did not move.
    Current,
    /// There is one, with this tag; nothing was changed.
    Available(String),
    Updated(String),
    /// The operator has to accept its changes.
    Held {
        tag: String,
        why: String,
    },
    Failed(String),
}

impl UpdateStatus {
    fn word(&self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Available(_) => "available",
            Self::Updated(_) => "updated",
            Self::Held { .. } => "held",
            Self::Failed(_) => "failed",
        }
    }

    fn tag(&self) -> Option<&str> {
        match self {
            Self::Available(tag) | Self::Updated(tag) | Self::Held { tag, .. } => Some(tag),
            Self::Current | Self::Failed(_) => None,
        }
    }

    fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) | Self::Held { why: error, .. } => Some(error),
            Self::Current | Self::Available(_) | Self::Updated(_) => None,
        }
    }
}

type UpdateRow = (PluginId, LockedPlugin, UpdateStatus);

pub(crate) async fn run(args: &SetupArgs, asked: &UpdateArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let plugins = paths.select(&asked.ids)?;
    let mut rows: Vec<UpdateRow> = Vec::new();
    // One after the other: each shows its changes.
    for (id, plugin) in plugins {
        let status = update(args, asked, &policy, (&id, &plugin)).await?;
        rows.push((id, plugin, status));
    }
    if args.printer.is_json() {
        let rows = rows.iter().map(|(id, plugin, status)| {
            let (word, tag) = (status.word(), status.tag());
            json!({"plugin": id.as_str(), "before": plugin, "status": word, "tag": tag, "error": status.error()})
        });
        output::print_json(&rows.collect::<Vec<_>>())?;
    } else {
        print(args.printer, &rows, &paths)?;
    }
    let is_good = |status: &UpdateStatus| matches!(status, UpdateStatus::Current | UpdateStatus::Updated(_));
    let is_preview = |status: &UpdateStatus| asked.dry_run && matches!(status, UpdateStatus::Available(_));
    let all_good = rows.iter().all(|(.., status)| is_good(status) || is_preview(status));
    Ok(if all_good { CommandStatus::Success } else { CommandStatus::Failed })
}

fn print(printer: Printer, rows: &[UpdateRow], paths: &LockPaths) -> Result<()> {
    let mut table = TextTable::new(["PLUGIN", "STATUS", "LOCKED", "NEW"]);
    for (id, plugin, status) in rows {
        let style = match status {
            UpdateStatus::Current => DIM,
            UpdateStatus::Available(_) | UpdateStatus::Updated(_) => SUCCESS,
            UpdateStatus::Held { .. } | UpdateStatus::Failed(_) => FAILURE,
        };
        table.push([
            Cell::styled(NAME, id.as_str()),
            Cell::styled(style, status.word()),
            plugin.tag.as_deref().unwrap_or("-").into(),
            status.tag().unwrap_or("-").into(),
        ]);
    }
    let errors = rows.iter().map(|(id, _, status)| (id, status.error()));
    locked::print_table(printer, &table, errors, paths)?;
    for (id, _, status) in rows {
        if matches!(status, UpdateStatus::Held { .. }) {
            printer.help(&format!("review and accept the changes with `toolbay grant {id}`"));
        }
    }
    Ok(())
}

async fn update(
    args: &SetupArgs,
    asked: &UpdateArgs,
    policy: &Policy,
    (id, plugin): (&PluginId, &LockedPlugin),
) -> Result<UpdateStatus> {
    let newer = match find_newer(policy, plugin).await? {
        Ok(Some(newer)) => newer,
        Ok(None) => return Ok(UpdateStatus::Current),
        Err(error) => return Ok(UpdateStatus::Failed(error)),
    };
    let pinned = plugin.reference().map_err(anyhow::Error::msg)?;
    let reference = Reference { tag: Some(newer.clone()), digest: None, ..pinned };
    let is_uncovered = matches!(TrustDecision::find(policy, &reference)?, TrustDecision::NoRule);
    let request = AddPluginArgs {
        reference: reference.to_string(),
        id: Some(id.clone()),
        // The operator agreed to that when the plugin was added.
        unsigned: is_uncovered && plugin.signer == Signer::None,
        replace: true,
        downgrade: false,
        dry_run: asked.dry_run,
    };
    match install::install(args, &request).await {
        Ok(_) if asked.dry_run => Ok(UpdateStatus::Available(newer)),
        Ok(_) => Ok(UpdateStatus::Updated(newer)),
        Err(error) => Ok(match InstallRefusal::from_error(error)? {
            InstallRefusal::Held(why) => UpdateStatus::Held { tag: newer, why },
            InstallRefusal::Refused(why) => UpdateStatus::Failed(why),
        }),
    }
}

/// The tag of the newest compatible version, or the locked tag if it leads elsewhere now. The inner error is that of a
/// registry that does not say.
async fn find_newer(policy: &Policy, plugin: &LockedPlugin) -> Result<Result<Option<String>, String>> {
    let Some(tag) = &plugin.tag else { return Ok(Ok(None)) };
    let pinned = plugin.reference().map_err(anyhow::Error::msg)?;
    let reference = Reference { tag: Some(tag.clone()), digest: None, ..pinned };
    let client = locked::client(policy, &reference, RegistryAccess::Pull)?;
    let found = async {
        if let Some(version) = TaggedVersion::parse(tag)
            && let Some(newer) = NewerVersions::find(&version, &client.tags().await?).compatible
        {
            return Ok(Some(newer.tag));
        }
        let is_moved = client.resolve().await?.digest != plugin.manifest;
        Ok::<_, RegistryError>(is_moved.then(|| tag.clone()))
    };
    Ok(found.await.map_err(|error| error.to_string()))
}
