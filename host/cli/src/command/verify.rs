//! `toolbay verify`: whether the store has what the lock names, and whether the signatures meet the rules of the policy.
//! With `--offline` it uses no network.

use anyhow::Result;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::LockedPlugin;
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{RegistryAccess, RegistryError};

use crate::installation::status::{PluginRow, PluginStatus, print_rows};
use crate::installation::verification::{self, VerifyProblem};
use crate::output::{CommandStatus, TextTable};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, SetupArgs};

pub(crate) async fn run(args: &SetupArgs, offline: bool) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let (policy, store) = (&policy, &paths.store);
    let check = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let mut problem = verification::check(policy, store, &plugin).await?;
        if problem.is_none() && !offline {
            problem = check_tag(policy, &plugin).await?;
        }
        let status = problem.map_or(PluginStatus::Verified, PluginStatus::Unverified);
        Ok::<_, anyhow::Error>(PluginRow { id, plugin, status, details: () })
    };
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let rows: Vec<_> = stream::iter(paths.read()?).map(check).buffered(parallel).try_collect().await?;
    let table = TextTable::new(["PLUGIN", "STATUS", "SIGNER", "SOURCE"]);
    print_rows(args.printer, &rows, table, &paths.empty_note(), |PluginRow { plugin, .. }| {
        let cells = vec![plugin.signer.to_string().into(), plugin.source.as_str().into()];
        (cells, json!({ "locked": plugin }))
    })
}

/// Asks the registry whether the tag still leads to the locked manifest.
async fn check_tag(policy: &Policy, plugin: &LockedPlugin) -> Result<Option<VerifyProblem>> {
    let Some(tag) = &plugin.tag else { return Ok(None) };
    let pinned = plugin.reference().map_err(anyhow::Error::msg)?;
    let reference = Reference { tag: Some(tag.clone()), digest: None, ..pinned };
    let client = locked::client(policy, &reference, RegistryAccess::Pull)?;
    match client.resolve().await {
        Ok(found) if found.digest == plugin.manifest => Ok(None),
        Ok(found) => {
            let why =
                format!("`{reference}` leads to {} now; the lock keeps {}", found.digest, plugin.manifest);
            Ok(Some(VerifyProblem::Moved(why)))
        }
        Err(RegistryError::NotFound(why)) => Ok(Some(VerifyProblem::Moved(why))),
        Err(error) => Ok(Some(VerifyProblem::Unknown(error.to_string()))),
    }
}
