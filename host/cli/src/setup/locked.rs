//! The plugins of the lock: where the lock and its store are, and the clients of their registries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use toolbay::{Host, HostError, LoadReport, PluginId, Policy, RegistryHttp, registry_secret};
use toolbay_distribution::credentials::{CredentialFiles, CredentialSource};
use toolbay_distribution::lock::{self, LockError, LockErrorKind, LockedPlugin, LockedPlugins};
use toolbay_distribution::reference::Reference;
use toolbay_distribution::registry::{RegistryAccess, RegistryClient, RegistryError};
use toolbay_distribution::store::BlobStore;

use super::args::SetupArgs;
use super::paths::{current_dir, data_dir};
use super::policy_file::PolicyFile;
use crate::output::progress::TransferProgress;
use crate::output::{CommandError, host_failure, run_blocking};

/// Most plugins that are fetched or compared at once. Registries limit the requests of a client.
pub(crate) const MAX_PARALLEL: usize = 8;

/// The lock, beside the policy, and the store of this user.
#[derive(Debug, Clone)]
pub(crate) struct LockPaths {
    pub(crate) lock: PathBuf,
    pub(crate) store: BlobStore,
}

impl LockPaths {
    /// Finds both. They may not exist.
    pub(crate) fn find(args: &SetupArgs) -> Result<Self> {
        let policy = current_dir()?.join(PolicyFile::locate(args)?);
        Ok(Self { lock: policy.with_file_name(lock::FILE_NAME), store: blob_store()? })
    }

    /// The plugins of the lock with these ids; all if there are none.
    pub(crate) fn select(&self, ids: &[PluginId]) -> Result<LockedPlugins> {
        let mut plugins = self.read()?;
        if let Some(unknown) = ids.iter().find(|id| !plugins.contains_key(*id)) {
            let why = format!("`{}` has no plugin `{unknown}`", self.lock.display());
            return Err(CommandError::new("unknown_plugin", why)
                .with_help("`toolbay verify --offline` lists all")
                .into());
        }
        plugins.retain(|id, _| ids.is_empty() || ids.contains(id));
        Ok(plugins)
    }

    /// What a command says about a lock without plugins.
    pub(crate) fn empty_note(&self) -> String {
        format!("`{}` names no plugins; `toolbay add` adds one", self.lock.display())
    }

    /// Reads the lock. The store remembers what it names.
    pub(crate) fn read(&self) -> Result<LockedPlugins> {
        let plugins = lock::read(&self.lock).map_err(lock_error)?;
        self.store.remember_lock(&self.lock, &plugins);
        Ok(plugins)
    }
}

/// The store of this user.
pub(crate) fn blob_store() -> Result<BlobStore> {
    let data = data_dir().context("no data directory for plugins: set XDG_DATA_HOME or HOME")?;
    Ok(BlobStore::new(data.join("store")))
}

/// A lock that is wrong: exit code 2. One that cannot be written: exit code 3.
pub(crate) fn lock_error(error: LockError) -> anyhow::Error {
    match error.kind {
        LockErrorKind::Unusable => anyhow!(error).context("the lock cannot be used"),
        LockErrorKind::Unwritable => host_failure(error),
    }
}

/// Loads the plugins of the lock into a host.
pub(crate) async fn load(paths: &LockPaths, host: &Host) -> Result<LoadReport> {
    match host.load_lock(&paths.lock, &paths.store).await {
        Ok(report) => Ok(report),
        Err(HostError::Lock(error)) => Err(lock_error(error)),
        Err(error) => Err(host_failure(error)),
    }
}

/// A client for the registry of a reference, as the policy says. Downloads ask its mirror first.
pub(crate) fn client(
    policy: &Policy,
    reference: &Reference,
    access: RegistryAccess,
) -> Result<RegistryClient> {
    let client = own_client(policy, reference, access)?;
    match policy.registry(&reference.host).mirror {
        Some(mirror) if access == RegistryAccess::Pull => {
            let repository = mirror.repository(&reference.repository);
            let mirrored = Reference { host: mirror.host, repository, ..reference.clone() };
            Ok(client.with_mirror(own_client(policy, &mirrored, access)?))
        }
        _ => Ok(client),
    }
}

fn own_client(policy: &Policy, reference: &Reference, access: RegistryAccess) -> Result<RegistryClient> {
    let settings = policy.registry(&reference.host);
    let http = RegistryHttp::new(policy, &reference.host)?;
    let credentials: Arc<dyn CredentialSource> = match registry_secret(policy, &reference.host)? {
        Some(credentials) => Arc::new(credentials),
        None => Arc::new(credential_files()),
    };
    RegistryClient::new(reference, access, settings, Arc::new(http), credentials).map_err(registry_error)
}

/// The files that `docker login` and `podman login` write.
fn credential_files() -> CredentialFiles {
    let set =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = |below: &str| std::env::home_dir().map(|home| home.join(below));
    let containers = |dir: PathBuf| dir.join("containers/auth.json");
    let docker = set("DOCKER_CONFIG").or_else(|| home(".docker")).map(|dir| dir.join("config.json"));
    let configured = set("XDG_CONFIG_HOME").or_else(|| home(".config")).map(containers);
    let named = set("TOOLBAY_REGISTRY_AUTH_FILE");
    let all = [named, docker, set("REGISTRY_AUTH_FILE"), set("XDG_RUNTIME_DIR").map(containers), configured];
    CredentialFiles(all.into_iter().flatten().collect())
}

/// What a registry did not give: exit code 1, or 3 if the store cannot be written.
pub(crate) fn registry_error(error: RegistryError) -> anyhow::Error {
    let code = match &error {
        RegistryError::NotFound(_) => "not_found",
        RegistryError::Unauthorized(_) => "unauthorized",
        RegistryError::Refused(_) => "refused",
        RegistryError::Failed(_) => "registry_failed",
        RegistryError::Storage(_) => return host_failure(error),
    };
    CommandError::new(code, error.to_string()).into()
}

/// Downloads a component, with its progress on a terminal.
pub(crate) async fn fetch_layer(
    client: &RegistryClient,
    (name, plugin): (&str, &LockedPlugin),
    store: &BlobStore,
) -> Result<(), RegistryError> {
    let progress = TransferProgress::new(name, plugin.size);
    client.fetch_layer(&plugin.layer, plugin.size, store, &|done| progress.update(done)).await
}

/// Stores a blob.
pub(crate) async fn store_bytes(store: &BlobStore, bytes: Vec<u8>) -> Result<()> {
    let store = store.clone();
    run_blocking(move || store.put(&bytes)).await?.map(drop).map_err(host_failure)
}

/// The folder of a lock, which must exist.
pub(crate) fn make_lock_folder(lock: &Path) -> Result<()> {
    let folder = lock.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder).with_context(|| format!("`{}`", folder.display())).map_err(host_failure)
}
