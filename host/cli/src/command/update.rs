//! `toolbay update`: the newest compatible versions into the lock. What a version changes is shown first. One that asks for
//! more, describes its tools differently, has another signer or was published again under its tag is held for `grant`, and
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
use crate::installation::status::{PluginRow, PluginStatus, print_rows};
use crate::installation::trust::TrustDecision;
use crate::output::{Cell, CommandStatus, TextTable};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, SetupArgs};

/// What became of a plugin, and the tag of its new version.
type UpdateOutcome = (PluginStatus, Option<String>);

pub(crate) async fn run(args: &SetupArgs, options: &UpdateArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let plugins = paths.select(&options.ids)?;
    let mut rows = Vec::new();
    // One after the other: each shows its changes.
    for (id, plugin) in plugins {
        let (status, details) = update(args, options, &policy, (&id, &plugin)).await?;
        rows.push(PluginRow { id, plugin, status, details });
    }
    let table = TextTable::new(["PLUGIN", "STATUS", "LOCKED", "NEW"]);
    print_rows(args.printer, &rows, table, &paths.empty_note(), |row| {
        let cells = [&row.plugin.tag, &row.details].map(|tag| Cell::from(tag.as_deref().unwrap_or("-")));
        (Vec::from(cells), json!({ "before": row.plugin, "tag": row.details }))
    })
}

async fn update(
    args: &SetupArgs,
    options: &UpdateArgs,
    policy: &Policy,
    (id, plugin): (&PluginId, &LockedPlugin),
) -> Result<UpdateOutcome> {
    let newer = match find_newer(policy, plugin).await? {
        Ok(Some(newer)) => newer,
        Ok(None) => return Ok((PluginStatus::Current, None)),
        Err(error) => return Ok((PluginStatus::Failed(error), None)),
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
        dry_run: options.dry_run,
    };
    match install::install(args, &request).await {
        Ok(_) if options.dry_run => Ok((PluginStatus::Available, Some(newer))),
        Ok(_) => Ok((PluginStatus::Updated, Some(newer))),
        Err(error) => Ok(match InstallRefusal::from_error(error)? {
            InstallRefusal::Held(why) => (PluginStatus::Held(why), Some(newer)),
            InstallRefusal::Refused(why) => (PluginStatus::Failed(why), None),
        }),
    }
}

/// The tag of the newest compatible version, or the locked tag if it leads elsewhere now. The inner error
/// says why the registry does not answer.
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
