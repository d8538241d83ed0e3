//! `toolbay verify`: whether the store has what the lock names, and whether the signatures meet the rules of the policy.
//! With `--offline` it uses no network.

use anyhow::Result;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use toolbay::{PluginId, Policy};
use toolbay_distribution::lock::{LockedPlugin, Signer};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{ComponentManifest, MAX_MANIFEST, RegistryAccess, RegistryError};
use toolbay_distribution::signature::{self, MAX_BUNDLE};
use toolbay_distribution::store::BlobStore;

use crate::CommandStatus;
use crate::command::args::{SetupArgs, VerifyArgs};
use crate::command::locked::{self, LockPaths};
use crate::command::setup;
use crate::command::trust::TrustDecision;
use crate::host_failure;
use crate::output::table::{Cell, TextTable};
use crate::output::{self, FAILURE, NAME, SUCCESS};

/// What is wrong with a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VerifyProblem {
    /// The store does not have it.
    Missing(String),
    /// The component differs from the lock.
    Damaged(String),
    /// Its signature does not meet the policy.
    Untrusted(String),
    /// Its tag leads elsewhere now.
    Moved(String),
    /// The registry did not say where its tag leads.
    Unknown(String),
}

impl VerifyProblem {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Missing(_) => "missing",
            Self::Damaged(_) => "damaged",
            Self::Untrusted(_) => "untrusted",
            Self::Moved(_) => "moved",
            Self::Unknown(_) => "unknown",
        }
    }

    pub(super) fn message(&self) -> &str {
        match self {
            Self::Missing(why)
            | Self::Damaged(why)
            | Self::Untrusted(why)
            | Self::Moved(why)
            | Self::Unknown(why) => why,
        }
    }
}

type VerifiedRow = (PluginId, LockedPlugin, Option<VerifyProblem>);

pub(crate) async fn run(args: &SetupArgs, asked: &VerifyArgs) -> Result<CommandStatus> {
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let (policy, store) = (&policy, &paths.store);
    let check = |(id, plugin): (PluginId, LockedPlugin)| async move {
        let mut problem = check(policy, store, &plugin).await?;
        if problem.is_none() && !asked.offline {
            problem = check_tag(policy, &plugin).await?;
        }
        Ok::<_, anyhow::Error>((id, plugin, problem))
    };
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let rows: Vec<VerifiedRow> =
        stream::iter(paths.read()?).map(check).buffered(parallel).try_collect().await?;
    if asked.json {
        let rows = rows.iter().map(|(id, plugin, problem)| {
            let (status, error) = (status(problem.as_ref()), problem.as_ref().map(VerifyProblem::message));
            json!({"plugin": id.as_str(), "locked": plugin, "status": status, "error": error})
        });
        output::print_json(&rows.collect::<Vec<_>>())?;
    } else {
        print(&rows, &paths)?;
    }
    let all_good = rows.iter().all(|(.., problem)| problem.is_none());
    Ok(if all_good { CommandStatus::Success } else { CommandStatus::Failed })
}

fn status(problem: Option<&VerifyProblem>) -> &'static str {
    problem.map_or("verified", VerifyProblem::word)
}

fn print(rows: &[VerifiedRow], paths: &LockPaths) -> Result<()> {
    let mut table = TextTable::new(["PLUGIN", "STATUS", "SIGNER", "SOURCE"]);
    for (id, plugin, problem) in rows {
        let style = if problem.is_some() { FAILURE } else { SUCCESS };
        table.push([
            Cell::styled(NAME, id.as_str()),
            Cell::styled(style, status(problem.as_ref())),
            plugin.signer.to_string().into(),
            plugin.source.as_str().into(),
        ]);
    }
    table.print()?;
    for (id, _, problem) in rows {
        problem.iter().for_each(|problem| output::print_error(&format!("`{id}`: {}", problem.message())));
    }
    if rows.is_empty() {
        output::print_note(&format!("`{}` names no plugins; `toolbay add` adds one", paths.lock.display()));
    }
    Ok(())
}

/// Checks what is on this machine.
pub(super) async fn check(
    policy: &Policy,
    store: &BlobStore,
    plugin: &LockedPlugin,
) -> Result<Option<VerifyProblem>> {
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let decision = TrustDecision::find(policy, &reference)?;
    let (store, plugin) = (store.clone(), plugin.clone());
    let checked = tokio::task::spawn_blocking(move || {
        check_content(&store, &plugin).and_then(|()| check_signature(&store, &plugin, &decision)).err()
    });
    checked.await.map_err(host_failure)
}

fn check_content(store: &BlobStore, plugin: &LockedPlugin) -> Result<(), VerifyProblem> {
    let missing =
        |what: &str| VerifyProblem::Missing(format!("the store has no {what}: `toolbay fetch` downloads it"));
    let damaged = |what: &str| {
        VerifyProblem::Damaged(format!("the {what} in the store is damaged: `toolbay fetch` replaces it"))
    };
    if !store.path(&plugin.layer).exists() {
        return Err(missing("component"));
    }
    if !store.verify(&plugin.layer, plugin.size) {
        return Err(damaged("component"));
    }
    if !store.path(&plugin.manifest).exists() {
        return Err(missing("manifest"));
    }
    let Some(manifest) = store.read(&plugin.manifest, MAX_MANIFEST) else { return Err(damaged("manifest")) };
    match ComponentManifest::parse(&manifest) {
        Ok(manifest) if (&manifest.layer, manifest.size) == (&plugin.layer, plugin.size) => Ok(()),
        Ok(_) => {
            let why = "the lock names another component than its manifest: add the plugin again";
            Err(VerifyProblem::Damaged(why.to_owned()))
        }
        Err(error) => Err(VerifyProblem::Damaged(error.to_string())),
    }
}

fn check_signature(
    store: &BlobStore,
    plugin: &LockedPlugin,
    decision: &TrustDecision,
) -> Result<(), VerifyProblem> {
    let untrusted = |why: String| Err(VerifyProblem::Untrusted(why));
    let (scope, signers) = match (decision, &plugin.signer) {
        (TrustDecision::Signed { scope, signers }, _) => (scope, signers),
        (TrustDecision::Digest, _) | (TrustDecision::NoRule, Signer::None) => return Ok(()),
        (TrustDecision::NoRule, Signer::Key(_) | Signer::Keyless { .. }) => {
            return untrusted(format!(
                "the lock says that {} signed it, and no `[[trust]]` rule of the policy covers it any more",
                plugin.signer
            ));
        }
    };
    let Some(bundle) = &plugin.bundle else {
        return untrusted(format!("it is not signed, and the policy's [[trust]] for `{scope}` requires it"));
    };
    if !store.path(bundle).exists() {
        let why = "the store has no signature of it: `toolbay fetch` downloads it";
        return Err(VerifyProblem::Missing(why.to_owned()));
    }
    let Some(bytes) = store.read(bundle, MAX_BUNDLE) else {
        let why = "its signature in the store is damaged: `toolbay fetch` replaces it";
        return Err(VerifyProblem::Damaged(why.to_owned()));
    };
    match signature::verify(&bytes, &plugin.manifest, signers) {
        Ok(verified) if verified.signer == plugin.signer => Ok(()),
        Ok(verified) => untrusted(format!(
            "the lock says that {} signed it, and its signature is by {}",
            plugin.signer, verified.signer
        )),
        Err(error) => untrusted(format!("its signature does not meet the [[trust]] for `{scope}`: {error}")),
    }
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
