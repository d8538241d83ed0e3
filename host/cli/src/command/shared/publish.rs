//! `toolbay shared publish`: the policy, the lock and the plugin directory of this machine, as the next epoch.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde_json::json;
use toolbay::{MAX_COMPONENT_BYTES, read_regular, read_regular_text};
use toolbay_distribution::lock;
use toolbay_shared::bundle::{Bundle, MAX_BUNDLE_BYTES};
use toolbay_shared::publication::{NewEpoch, Publication, PublishedEpoch};
use toolbay_state::digest::Digest;

use crate::output::{self, CommandStatus, count_noun, host_failure};
use crate::setup::locked::LockPaths;
use crate::setup::seen_epochs::{SeenEpochs, report_gap};
use crate::setup::shared::{
    connect, connection_error, durability, publication_error, storage_plan, warnings,
};
use crate::setup::shared_folder::{POLICY, SharedFolder};
use crate::setup::{self, PolicyFile, SetupArgs};

/// The files that come from this machine at each publication. The others are decisions, and stay.
const SOURCES: [&str; 2] = [POLICY, lock::FILE_NAME];

pub(crate) async fn run(args: &SetupArgs) -> Result<CommandStatus> {
    let source = PolicyFile::find(args)?;
    let Some(text) = source.text.clone() else {
        return Err(anyhow!("there is no policy to publish: name one with `--config FILE`"));
    };
    let policy = source.parse(&text)?;
    let connection = connect(args, "operator").await?;
    let publication =
        Publication::create(&connection, durability(&policy)).await.map_err(connection_error)?;
    let created = connection.create_storage(&storage_plan(&policy), durability(&policy)).await;
    created.map_err(connection_error)?;
    let current = publication.current().await.map_err(publication_error)?;
    let mut files = decisions(args, current.as_ref())?;
    files.insert(POLICY.to_owned(), text);
    let paths = LockPaths::find(args)?;
    if paths.lock.exists() {
        let text = read_regular_text(&paths.lock, MAX_BUNDLE_BYTES as u64);
        let text = text.with_context(|| format!("`{}`", paths.lock.display()))?;
        files.insert(lock::FILE_NAME.to_owned(), text);
        upload_locked(&paths, &publication).await?;
    }
    let plugins = upload_directory(&setup::plugin_folder(args)?, &publication).await?;
    let bundle = Bundle::new(files)?.with_plugins(plugins)?;
    let seen = SeenEpochs::new(args, connection.address())?;
    let gap = publication.gap(current.as_ref(), seen.highest()).await.map_err(host_failure)?;
    let NewEpoch { epoch, gap } = match current {
        // A store that is behind has servers that refuse every call, whatever it says.
        Some(current) if current.bundle == bundle && gap.is_none() => {
            NewEpoch { epoch: current.epoch, gap: None }
        }
        current => {
            let published = publication.publish(current.as_ref(), &bundle, seen.highest()).await;
            published.map_err(publication_error)?
        }
    };
    seen.record(epoch.number);
    report_gap(args.printer, gap);
    for warning in warnings(&connection, &policy).await? {
        args.printer.warning(&warning);
    }
    if args.printer.is_json() {
        return Ok(output::print_json(&json!({ "epoch": epoch.number, "digest": epoch.digest }))?);
    }
    let count = count_noun(bundle.plugins().len(), "plugin", "plugins");
    args.printer.note(&format!("epoch {} is published, with {count} of the directory", epoch.number));
    args.printer.help(&format!(
        "start servers with `toolbay serve --shared {} --replica NAME --http ADDR`",
        connection.address()
    ));
    Ok(CommandStatus::Success)
}

/// The decisions that are in force. The first publication takes those of this machine.
fn decisions(args: &SetupArgs, current: Option<&PublishedEpoch>) -> Result<BTreeMap<String, String>> {
    let mut files = match current {
        Some(current) => current.bundle.files().clone(),
        None => SharedFolder::new(setup::state_dir(args)?).read()?.files().clone(),
    };
    files.retain(|name, _| !SOURCES.contains(&name.as_str()));
    Ok(files)
}

/// Stores the components of the lock that the shared state does not have.
async fn upload_locked(paths: &LockPaths, publication: &Publication) -> Result<()> {
    for (id, plugin) in paths.read()? {
        let digest = plugin.layer.digest();
        if publication.has_component(&digest).await.map_err(publication_error)? {
            continue;
        }
        let most = usize::try_from(MAX_COMPONENT_BYTES).unwrap_or(usize::MAX);
        let bytes = paths.store.read(&plugin.layer, most);
        let bytes =
            bytes.with_context(|| format!("this machine does not have `{id}`: run `toolbay fetch`"))?;
        publication.put_component(&bytes).await.map_err(publication_error)?;
    }
    Ok(())
}

/// Stores the components of the plugin directory that the shared state does not have.
async fn upload_directory(dir: &Path, publication: &Publication) -> Result<BTreeMap<String, Digest>> {
    let mut plugins = BTreeMap::new();
    if !dir.exists() {
        return Ok(plugins);
    }
    let entries = std::fs::read_dir(dir).with_context(|| format!("`{}`", dir.display()))?;
    for entry in entries {
        let entry = entry.map_err(host_failure)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".wasm") || name.starts_with('.') {
            continue;
        }
        let bytes = read_regular(&entry.path(), MAX_COMPONENT_BYTES);
        let bytes = bytes.with_context(|| format!("`{}`", entry.path().display()))?;
        let digest = Digest::of(&bytes);
        if !publication.has_component(&digest).await.map_err(publication_error)? {
            publication.put_component(&bytes).await.map_err(publication_error)?;
        }
        plugins.insert(name, digest);
    }
    Ok(plugins)
}
