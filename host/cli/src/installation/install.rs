//! Installation of a plugin into the lock, by `add`, `update` and `import`. The reference is resolved once, to a
//! digest. Its content is verified, downloaded, loaded without running a tool, and compared with the locked version.
//! Then the lock pins it, or it is held for `grant`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use toolbay::{HeldUpdate, Host, PluginId, PluginInfo, Policy};
use toolbay_distribution::lock::{self, LockError, LockedPlugin, LockedPlugins, Signer};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{FoundSignature, RegistryAccess, RegistryClient};
use toolbay_distribution::signature::VerifiedSigner;
use toolbay_distribution::store::BlobStore;
use toolbay_distribution::version::TaggedVersion;

use crate::args::AddPluginArgs;
use crate::installation::trust::{self, TrustDecision};
use crate::installation::version_diff::{DiffReport, PluginVersion};
use crate::output::{CommandError, Printer, host_failure, run_blocking};
use crate::setup::locked::{self, LockPaths};
use crate::setup::{self, SetupArgs};

/// The code of an error: the version waits for `grant`.
const HELD: &str = "held";

/// Why a version was not locked.
pub(crate) enum InstallRefusal {
    /// The version waits for `grant`.
    Held(String),
    /// The version is refused.
    Refused(String),
}

impl InstallRefusal {
    /// The reason in an error of [`install`] or [`lock_version`]; the error itself if the host failed.
    pub(crate) fn from_error(error: anyhow::Error) -> Result<Self> {
        let error = error.downcast::<CommandError>()?;
        let why = error.message().to_owned();
        Ok(if error.code() == HELD { Self::Held(why) } else { Self::Refused(why) })
    }
}

/// A plugin that is in the lock, or would be.
pub(crate) struct Installation {
    /// A host that has loaded it, without grants.
    pub(crate) host: Host,
    pub(crate) info: PluginInfo,
    pub(crate) plugin: LockedPlugin,
    pub(crate) paths: LockPaths,
}

/// A component in the registry, with its signature.
struct FoundPlugin {
    plugin: LockedPlugin,
    manifest: Vec<u8>,
    bundle: Option<Vec<u8>>,
}

/// Installs a plugin, unless the arguments say `--dry-run`.
pub(crate) async fn install(args: &SetupArgs, options: &AddPluginArgs) -> Result<Installation> {
    let reference: Reference = options.reference.parse().map_err(anyhow::Error::msg)?;
    let id = plugin_id(options, &reference)?;
    let (paths, policy) = (LockPaths::find(args)?, setup::policy(args)?);
    let plugins = setup::plugin_folder(args)?;
    check_free(&plugins, &id, &paths.read()?, None, options.replace)?;
    let trust = TrustDecision::find(&policy, &reference)?;
    trust.check_flag(&reference, options.unsigned)?;
    let client = locked::client(&policy, &reference, RegistryAccess::Pull)?;
    let found = find(args.printer, &client, &reference, &trust).await?;
    check_free(&plugins, &id, &paths.read()?, Some(&found.plugin), options.replace)?;
    let plugin = download(&client, &id, found, &paths).await?;
    let store = paths.store.clone();
    lock_version(args, options, (policy, paths), StoredVersion { id, plugin, store }).await
}

/// A version whose blobs are in a store, and verified.
pub(crate) struct StoredVersion {
    pub(crate) id: PluginId,
    pub(crate) plugin: LockedPlugin,
    pub(crate) store: BlobStore,
}

/// Loads a version without running a tool, compares it with the locked one, and locks it, unless it is held.
pub(crate) async fn lock_version(
    args: &SetupArgs,
    options: &AddPluginArgs,
    (policy, paths): (Policy, LockPaths),
    version: StoredVersion,
) -> Result<Installation> {
    let StoredVersion { id, plugin, store } = version;
    let plugins = setup::plugin_folder(args)?;
    let mut before = paths.read()?;
    check_free(&plugins, &id, &before, Some(&plugin), options.replace)?;
    let replaced = before.remove(&id);
    replaced.as_ref().map_or(Ok(()), |old| check_signature_kept(options, old, &plugin))?;
    let (host, info) = load(args, policy, (&id, &options.reference), &store.path(&plugin.layer)).await?;
    if *info.digest != *plugin.layer.hex() {
        let why = format!("`{}` changed in the store while it was added", options.reference);
        return Err(CommandError::new("not_loadable", why).with_help("add it again").into());
    }
    if let Some(old) = &replaced {
        let new = NewVersion { plugin: &plugin, version: PluginVersion::of(&host, &info) };
        review(args, options, &id, (old, &paths), &new).await?;
    }
    if !options.dry_run {
        let change = LockChange { id, new: plugin.clone(), replaced, replace: options.replace };
        change.apply(args, &paths, plugins).await?;
    }
    Ok(Installation { host, info, plugin, paths })
}

fn plugin_id(options: &AddPluginArgs, reference: &Reference) -> Result<PluginId> {
    match &options.id {
        Some(id) => Ok(id.clone()),
        None => {
            let name = reference.repository.rsplit('/').next().unwrap_or_default();
            PluginId::new(name).with_context(|| format!("`{name}`: name another id with `--as ID`"))
        }
    }
}

/// Resolves a reference, and finds the signature that the policy requires.
async fn find(
    printer: Printer,
    client: &RegistryClient,
    reference: &Reference,
    trust: &TrustDecision,
) -> Result<FoundPlugin> {
    let found = client.resolve().await.map_err(locked::registry_error)?;
    let signature = trust.verify(printer, client, reference, &found.digest).await?;
    let (verified, bundle) = signature.unzip();
    let unsigned = || VerifiedSigner { signer: Signer::None, signed_at: None };
    let VerifiedSigner { signer, signed_at } = verified.unwrap_or_else(unsigned);
    let (bundle, bytes) = bundle.map(|FoundSignature { digest, bytes }| (digest, bytes)).unzip();
    let plugin = LockedPlugin {
        source: reference.source(),
        tag: reference.tag.clone(),
        manifest: found.digest,
        layer: found.manifest.layer,
        size: found.manifest.size,
        signer,
        bundle,
        signed_at,
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
pub(crate) async fn load(
    args: &SetupArgs,
    policy: Policy,
    (id, reference): (&PluginId, &str),
    file: &Path,
) -> Result<(Host, PluginInfo)> {
    let loaded = setup::load_file(args, policy, id, file).await?;
    Ok(loaded.map_err(|problem| CommandError::new("not_loadable", format!("`{reference}` {problem}")))?)
}

/// Refuses a version that is not signed where the locked one is.
fn check_signature_kept(options: &AddPluginArgs, old: &LockedPlugin, new: &LockedPlugin) -> Result<()> {
    if old.signer == Signer::None || new.signer != Signer::None {
        return Ok(());
    }
    let (reference, signer) = (&options.reference, &old.signer);
    let why = format!("`{reference}` is added without a signature, and {signer} signed the locked version");
    let help = "to give the signature up, remove the plugin from the lock first";
    Err(CommandError::new("signature_lost", why).with_help(help).into())
}

/// Compares a version with the locked one. One that needs the operator's agreement is held, which is an error here.
async fn review(
    args: &SetupArgs,
    options: &AddPluginArgs,
    id: &PluginId,
    (old, paths): (&LockedPlugin, &LockPaths),
    new: &NewVersion<'_>,
) -> Result<()> {
    let change = VersionChange::compare(args, id, (old, paths), new).await?;
    if let (Some((before, after)), false) = (&change.downgrade, options.downgrade) {
        let why = format!("`{}` is version {after}, and the lock has {before}", options.reference);
        return Err(CommandError::new("downgrade", why).with_help("to go back, write `--downgrade`").into());
    }
    if change.reasons.is_empty() {
        return Ok(());
    }
    if !args.printer.is_json() {
        change.report.iter().try_for_each(DiffReport::show)?;
    }
    let why = format!("`{}` is held: {}", options.reference, change.reasons.join("; "));
    let mut help = format!("review and accept it with `toolbay grant {id}`");
    if options.dry_run {
        help.insert_str(0, "without `--dry-run`, ");
    } else {
        let (plugin, replaces) = (new.plugin.clone(), old.manifest);
        let held = HeldUpdate { plugin, replaces, reasons: change.reasons };
        setup::held_updates(args, &paths.lock)?.set(id, Some(held)).map_err(|e| host_failure(anyhow!(e)))?;
    }
    Err(CommandError::new(HELD, why).with_help(help).into())
}

/// A version that would replace the locked one.
pub(crate) struct NewVersion<'a> {
    pub(crate) plugin: &'a LockedPlugin,
    pub(crate) version: PluginVersion,
}

/// What a version changes.
pub(crate) struct VersionChange {
    /// The changes of the component; `None` if it is the same.
    pub(crate) report: Option<DiffReport>,
    /// Why the operator has to agree, a sentence each.
    pub(crate) reasons: Vec<String>,
    /// The locked version and the new one, if the new one is older.
    downgrade: Option<(String, String)>,
}

impl VersionChange {
    /// Compares a version with the locked one.
    pub(crate) async fn compare(
        args: &SetupArgs,
        id: &PluginId,
        (old, paths): (&LockedPlugin, &LockPaths),
        new: &NewVersion<'_>,
    ) -> Result<Self> {
        let NewVersion { plugin, version } = new;
        let mut reasons = Vec::new();
        let (policy, reference) = (setup::policy(args)?, plugin.reference().map_err(anyhow::Error::msg)?);
        let is_same = trust::is_same_signer(&policy, &reference, &old.signer, &plugin.signer);
        if !is_same && old.signer != Signer::None {
            reasons
                .push(format!("it is signed by {}, and the locked version by {}", plugin.signer, old.signer));
        }
        if (&old.source, &old.tag) == (&plugin.source, &plugin.tag) && old.manifest != plugin.manifest {
            reasons.push("its tag was published again with other content".to_owned());
        }
        if old.layer == plugin.layer {
            return Ok(Self { report: None, reasons, downgrade: None });
        }
        let before = locked_version(args, id, (old, paths)).await?;
        let report = DiffReport::compare(&before, version);
        reasons.extend(report.reasons());
        let tags = (old.tag.as_deref(), plugin.tag.as_deref());
        let declared = (before.version.as_deref(), version.version.as_deref());
        let downgrade = [declared, tags].into_iter().find_map(older_than);
        Ok(Self { report: Some(report), reasons, downgrade })
    }
}

/// Both versions, if the second one is older. A registry chooses its tags, but not what a signed component declares.
fn older_than((before, after): (Option<&str>, Option<&str>)) -> Option<(String, String)> {
    let (before, after) = (TaggedVersion::parse(before?)?, TaggedVersion::parse(after?)?);
    before.is_after(&after).then_some((before.tag, after.tag))
}

/// The locked version, from the store.
async fn locked_version(
    args: &SetupArgs,
    id: &PluginId,
    (locked, paths): (&LockedPlugin, &LockPaths),
) -> Result<PluginVersion> {
    let unusable = |why: &str| {
        let why = format!("the locked version of `{id}`, which the new one is compared with, {why}");
        CommandError::new("not_loadable", why).with_help("`toolbay fetch` downloads it")
    };
    let file = paths.store.path(&locked.layer);
    let loaded = setup::load_file(args, setup::policy(args)?, id, &file).await?;
    let (host, info) = loaded.map_err(|problem| unusable(&problem))?;
    if *info.digest != *locked.layer.hex() {
        return Err(unusable("is damaged").into());
    }
    Ok(PluginVersion::of(&host, &info))
}

/// A change of one plugin in the lock.
pub(crate) struct LockChange {
    pub(crate) id: PluginId,
    pub(crate) new: LockedPlugin,
    /// The locked version that the new one was compared with.
    pub(crate) replaced: Option<LockedPlugin>,
    pub(crate) replace: bool,
}

impl LockChange {
    /// Writes the plugin into the lock, if its id is still free. A held update of it is settled.
    pub(crate) async fn apply(
        self,
        args: &SetupArgs,
        paths: &LockPaths,
        plugin_folder: PathBuf,
    ) -> Result<()> {
        let held = setup::held_updates(args, &paths.lock)?;
        let (id, paths, wait) = (self.id.clone(), paths.clone(), args.state_wait);
        let written = run_blocking(move || {
            self.write(&paths.lock, wait, &plugin_folder)?;
            // The store learns what the lock names now.
            paths.read()?;
            held.set(&id, None).map_err(|error| host_failure(anyhow!(error)))
        });
        written.await?
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
