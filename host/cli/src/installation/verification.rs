//! Whether the store has what the lock names, and whether a signature meets the rules of the policy.

use anyhow::Result;
use toolbay::Policy;
use toolbay_distribution::lock::{LockedPlugin, Signer};
use toolbay_distribution::registry::{ComponentManifest, MAX_MANIFEST};
use toolbay_distribution::signature::{self, MAX_BUNDLE};
use toolbay_distribution::store::BlobStore;

use super::trust::TrustDecision;
use crate::output::run_blocking;

/// What is wrong with a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerifyProblem {
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
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Missing(_) => "missing",
            Self::Damaged(_) => "damaged",
            Self::Untrusted(_) => "untrusted",
            Self::Moved(_) => "moved",
            Self::Unknown(_) => "unknown",
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Missing(why)
            | Self::Damaged(why)
            | Self::Untrusted(why)
            | Self::Moved(why)
            | Self::Unknown(why) => why,
        }
    }
}

/// Checks what is on this machine.
pub(crate) async fn check(
    policy: &Policy,
    store: &BlobStore,
    plugin: &LockedPlugin,
) -> Result<Option<VerifyProblem>> {
    let reference = plugin.reference().map_err(anyhow::Error::msg)?;
    let decision = TrustDecision::find(policy, &reference)?;
    let (store, plugin) = (store.clone(), plugin.clone());
    let checked = run_blocking(move || {
        check_content(&store, &plugin).and_then(|()| check_signature(&store, &plugin, &decision)).err()
    });
    checked.await
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
