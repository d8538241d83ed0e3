//! `toolbay fetch`: downloads the components that the lock names and the store does not have. What a tag leads to now
//! does not matter: the lock has digests.

use anyhow::Result;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::LockedPlugin;
use toolbay_distribution::registry::{MAX_MANIFEST, RegistryAccess, RegistryError};
use toolbay_distribution::signature::MAX_BUNDLE;
use toolbay_distribution::store::BlobStore;

use crate::installation::status::{PluginRow, PluginStatus, print_rows};
use crate::output::{CommandStatus, TextTable, format, host_failure, run_blocking};
use crate::setup::locked::{self, LockPaths, MAX_PARALLEL};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, dry_run: bool) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let (policy, store) = (&policy, &paths.store);
    let fetch_one = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let status = fetch(policy, store, &id, &plugin, dry_run).await?;
        Ok::<_, anyhow::Error>(PluginRow { id, plugin, status, details: () })
    };
    // In the order of the lock.
    let rows: Vec<_> =
        stream::iter(paths.read()?).map(fetch_one).buffered(MAX_PARALLEL).try_collect().await?;
    let table = TextTable::new(["PLUGIN", "STATUS", "SIZE", "SOURCE"]);
    print_rows(args.printer, &rows, table, &paths.empty_note(), |PluginRow { plugin, .. }| {
        let cells = vec![format::size(plugin.size).into(), plugin.source.as_str().into()];
        (cells, json!({ "locked": plugin }))
    })
}

/// Whether the store has all blobs of a plugin. Blocks.
fn is_present(store: &BlobStore, plugin: &LockedPlugin) -> bool {
    let has = |digest, most| store.read(digest, most).is_some();
    store.verify(&plugin.layer, plugin.size)
        && has(&plugin.manifest, MAX_MANIFEST)
        && plugin.bundle.as_ref().is_none_or(|bundle| has(bundle, MAX_BUNDLE))
}

async fn fetch(
    policy: &Policy,
    store: &BlobStore,
    id: &PluginId,
    plugin: &LockedPlugin,
    dry_run: bool,
) -> Result<PluginStatus> {
    let (blobs, wanted) = (store.clone(), plugin.clone());
    if run_blocking(move || is_present(&blobs, &wanted)).await? {
        return Ok(PluginStatus::Present);
    }
    if dry_run {
        return Ok(PluginStatus::Missing);
    }
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let client = locked::client(policy, &reference, RegistryAccess::Pull)?;
    let fetched = async {
        let found = client.resolve().await?;
        if (&found.manifest.layer, found.manifest.size) != (&plugin.layer, plugin.size) {
            let why = "the lock names another component than its manifest; add the plugin again";
            return Err(RegistryError::Refused(why.to_owned()));
        }
        locked::fetch_layer(&client, (id.as_str(), plugin), store).await?;
        let bundle = match &plugin.bundle {
            Some(bundle) => Some(client.fetch_bundle(bundle).await?),
            None => None,
        };
        Ok([Some(found.bytes), bundle])
    };
    match fetched.await {
        Ok(documents) => {
            for document in documents.into_iter().flatten() {
                locked::store_bytes(store, document).await?;
            }
            Ok(PluginStatus::Fetched)
        }
        Err(error @ RegistryError::Storage(_)) => Err(host_failure(error)),
        Err(error) => Ok(PluginStatus::Failed(error.to_string())),
    }
}
