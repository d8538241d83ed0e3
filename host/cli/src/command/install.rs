//! Installation of a plugin into the lock, by `add` and `update`. The reference is resolved once, to a digest. What that
//! digest names is verified, downloaded, loaded without running a tool, and compared with the locked version. Then the lock
//! pins it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use toolbay::{Host, PluginId, PluginInfo, Policy};
use toolbay_distribution::lock::{self, LockError, LockedPlugin, LockedPlugins, Signer};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{FoundSignature, RegistryAccess, RegistryClient};

use crate::command::args::{AddPluginArgs, SetupArgs};
use crate::command::locked::{self, LockPaths};
use crate::command::setup::{self, HostPurpose};
use crate::command::trust::TrustDecision;
use crate::command::version_diff::{DiffReport, PluginVersion};
use crate::host_failure;
use crate::output::error::CommandError;

/// The code of an error: the operator has to accept a change first.
pub(super) const CHANGED: &str = "changed";

/// A plugin that is in the lock, or would be.
pub(super) struct Installation {
    /// A host that has loaded it, without grants.
    pub(super) host: Host,
    pub(super) info: PluginInfo,
    pub(super) plugin: LockedPlugin,
    pub(super) paths: LockPaths,
}

/// A component in the registry, with its signature.
struct FoundPlugin {
    plugin: LockedPlugin,
    manifest: Vec<u8>,
    bundle: Option<Vec<u8>>,
}

/// Installs a plugin, unless the arguments say `--dry-run`.
pub(super) async fn install(args: &SetupArgs, asked: &AddPluginArgs) -> Result<Installation> {
    let reference: Reference = asked.reference.parse().map_err(anyhow::Error::msg)?;
    let id = plugin_id(asked, &reference)?;
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let plugins = setup::plugin_folder(args)?;
    check_free(&plugins, &id, &paths.read()?, None, asked.replace)?;
    let trust = TrustDecision::find(&policy, &reference)?;
    trust.check_flag(&reference, asked.unsigned)?;
    let client = locked::client(&policy, &reference, RegistryAccess::Pull)?;
    let found = find(&client, &reference, &trust).await?;
    let mut before = paths.read()?;
    check_free(&plugins, &id, &before, Some(&found.plugin), asked.replace)?;
    before.get(&id).map_or(Ok(()), |old| check_signer(asked, old, &found.plugin))?;
    let plugin = download(&client, &id, found, &paths).await?;
    let (host, info) = load(args, policy, (&id, &reference), &paths.store.path(&plugin.layer)).await?;
    if &*info.digest != plugin.layer.hex() {
        let why = format!("`{reference}` changed in the store while it was added");
        return Err(CommandError::new("not_loadable", why).with_help("add it again").into());
    }
    let replaced = before.remove(&id);
    if let Some(old) = replaced.as_ref().filter(|old| old.layer != plugin.layer) {
        let new = PluginVersion::of(&host, &info);
        check_changes(asked, &compare_with(args, &id, (old, &paths), &new).await?)?;
    }
    if !asked.dry_run {
        let change = LockChange { id, new: plugin.clone(), replaced, replace: asked.replace };
        change.apply(paths.lock.clone(), args.state_wait, plugins).await?;
    }
    Ok(Installation { host, info, plugin, paths })
}

fn plugin_id(asked: &AddPluginArgs, reference: &Reference) -> Result<PluginId> {
    match &asked.id {
        Some(id) => Ok(id.clone()),
        None => {
            let name = reference.repository.rsplit('/').next().unwrap_or_default();
            PluginId::new(name).with_context(|| format!("`{name}`: name another id with `--as ID`"))
        }
    }
}

/// Resolves a reference, and finds the signature that the policy requires.
async fn find(client: &RegistryClient, reference: &Reference, trust: &TrustDecision) -> Result<FoundPlugin> {
    let found = client.resolve().await.map_err(locked::registry_error)?;
    let signature = trust.verify(client, reference, &found.digest).await?;
    let (signer, bundle) = match signature {
        Some((signer, FoundSignature { digest, bytes })) => (signer, Some((digest, bytes))),
        None => (Signer::None, None),
    };
    let (bundle, bytes) = bundle.unzip();
    let plugin = LockedPlugin {
        source: reference.source(),
        tag: reference.tag.clone(),
        manifest: found.digest,
        layer: found.manifest.layer,
        size: found.manifest.size,
        signer,
        bundle,
    };
    Ok(FoundPlugin { plugin, manifest: found.bytes, bundle: bytes })
}

/// Downloads a component, and stores its manifest and signature.
async fn download(
    client: &RegistryClient,
    id: &PluginId,
    found: FoundPlugin,
    paths: &LockPaths,
) -> Result<LockedPlugin> {
    let FoundPlugin { plugin, manifest, bundle } = found;
    let fetched = locked::fetch_layer(client, (id.as_str(), &plugin), &paths.store).await;
    fetched.map_err(locked::registry_error)?;
    for document in [Some(manifest), bundle].into_iter().flatten() {
        locked::store_bytes(&paths.store, document).await?;
    }
    Ok(plugin)
}

/// Loads a component without running a tool.
async fn load(
    args: &SetupArgs,
    policy: Policy,
    (id, reference): (&PluginId, &Reference),
    file: &Path,
) -> Result<(Host, PluginInfo)> {
    let host = setup::host_for(args, policy, HostPurpose::Inspect)?;
    let loaded = host.load_file(id.clone(), file).await;
    loaded.map_err(|error| CommandError::new("not_loadable", format!("`{reference}` {error}")))?;
    let info = host.plugin(id.as_str()).context("the plugin was loaded and is gone")?;
    Ok((host, info))
}

/// Refuses a version that is not signed where the locked one is, and another signer unless the operator accepts that.
fn check_signer(asked: &AddPluginArgs, old: &LockedPlugin, new: &LockedPlugin) -> Result<()> {
    if old.signer == new.signer || old.signer == Signer::None {
        return Ok(());
    }
    let (reference, signer) = (&asked.reference, &old.signer);
    if new.signer == Signer::None {
        let why =
            format!("`{reference}` is added without a signature, and {signer} signed the locked version");
        let help = "to give the signature up, remove the plugin from the lock first";
        return Err(CommandError::new("signature_lost", why).with_help(help).into());
    }
    if asked.accept_changes {
        return Ok(());
    }
    let why = format!("`{reference}` is signed by {}, and the locked version by {signer}", new.signer);
    Err(CommandError::new(CHANGED, why).with_help("to accept the signer, write `--accept-changes`").into())
}

/// What a version changes, compared with the component of the locked one.
async fn compare_with(
    args: &SetupArgs,
    id: &PluginId,
    (old, paths): (&LockedPlugin, &LockPaths),
    new: &PluginVersion,
) -> Result<DiffReport> {
    let host = setup::host_for(args, setup::policy(args)?, HostPurpose::Inspect)?;
    let unusable = |why: &str| {
        let why = format!("the locked version of `{id}`, which the new one is compared with, {why}");
        CommandError::new("not_loadable", why).with_help("`toolbay fetch` downloads it")
    };
    let loaded = host.load_file(id.clone(), &paths.store.path(&old.layer)).await;
    loaded.map_err(|error| unusable(&error.to_string()))?;
    let info = host.plugin(id.as_str()).context("the plugin was loaded and is gone")?;
    if &*info.digest != old.layer.hex() {
        return Err(unusable("is damaged").into());
    }
    Ok(DiffReport::compare(&PluginVersion::of(&host, &info), new))
}

/// Refuses a version that asks for more, or says something else to a model, unless the operator accepts that.
fn check_changes(asked: &AddPluginArgs, changes: &DiffReport) -> Result<()> {
    if asked.accept_changes || !changes.needs_agreement() {
        return Ok(());
    }
    if !asked.json {
        changes.show()?;
    }
    let reference = &asked.reference;
    let why =
        format!("`{reference}` asks for more than the locked version, or describes its tools otherwise");
    Err(CommandError::new(CHANGED, why).with_help("to accept the changes, write `--accept-changes`").into())
}

/// What `add` writes.
struct LockChange {
    id: PluginId,
    new: LockedPlugin,
    /// The locked version that the new one was compared with.
    replaced: Option<LockedPlugin>,
    replace: bool,
}

impl LockChange {
    /// Writes the plugin into the lock, if its id is still free.
    async fn apply(self, file: PathBuf, wait: Duration, plugin_folder: PathBuf) -> Result<()> {
        let written = tokio::task::spawn_blocking(move || self.write(&file, wait, &plugin_folder));
        written.await.map_err(host_failure)?
    }

    /// Writes the plugin into the lock, if its id is still free. Blocks, also on other writers.
    fn write(self, file: &Path, wait: Duration, plugin_folder: &Path) -> Result<()> {
        locked::make_lock_folder(file)?;
        let edited = lock::update(file, wait, |plugins| -> Result<(), UpdateError> {
            let Self { id, new, replaced, replace } = self;
            check_free(plugin_folder, &id, plugins, Some(&new), replace)?;
            let now = plugins.get(&id);
            if now.is_some() && now != replaced.as_ref() && now != Some(&new) {
                let why = format!("another command changed `{id}` in the lock meanwhile");
                let error = CommandError::new("id_taken", why).with_help("run the command again");
                return Err(UpdateError(error.into()));
            }
            plugins.insert(id, new);
            Ok(())
        });
        edited.map_err(|UpdateError(error)| error)
    }
}

/// Why the lock was not updated.
struct UpdateError(anyhow::Error);

impl From<LockError> for UpdateError {
    fn from(error: LockError) -> Self {
        Self(locked::lock_error(error))
    }
}

impl From<anyhow::Error> for UpdateError {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

/// Checks that no other plugin has the id. `new` is the plugin, once it is known.
fn check_free(
    plugin_folder: &Path,
    id: &PluginId,
    locked: &LockedPlugins,
    new: Option<&LockedPlugin>,
    replace: bool,
) -> Result<()> {
    let taken = |why: String, help: &str| Err(CommandError::new("id_taken", why).with_help(help).into());
    let file = plugin_folder.join(format!("{id}.wasm"));
    if file.symlink_metadata().is_ok() {
        let why = format!("the plugin directory has a plugin `{id}`: `{}`", file.display());
        return taken(why, "give the new one another id with `--as ID`, or remove the file");
    }
    match (locked.get(id), new) {
        (Some(old), Some(new))
            if !replace && (&old.source, &old.manifest) != (&new.source, &new.manifest) =>
        {
            let why = format!("the lock has another `{id}`: {}@{}", old.source, old.manifest);
            taken(why, "to replace it, write `--replace`; to keep both, name an id with `--as ID`")
        }
        _ => Ok(()),
    }
}
