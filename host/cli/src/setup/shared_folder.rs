//! The folder with the files of an epoch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use toolbay::{MAX_COMPONENT_BYTES, read_regular, read_regular_text};
use toolbay_distribution::digest::BlobDigest;
use toolbay_distribution::lock;
use toolbay_distribution::store::BlobStore;
use toolbay_policy::Policy;
use toolbay_shared::bundle::{Bundle, FILES, MAX_BUNDLE_BYTES};
use toolbay_shared::protocol::epoch::Epoch;
use toolbay_shared::publication::Publication;
use toolbay_state::digest::Digest;
use toolbay_state::private;

use super::args::SetupArgs;
use super::locked;
use super::policy_file::PolicyFile;
use super::shared::publication_error;
use crate::output::{host_failure, run_blocking};

/// The policy of an epoch.
pub(crate) const POLICY: &str = "policy.toml";
/// The folder of the plugins.
const PLUGINS: &str = "plugins";
/// The file with the number and the digest of the epoch. It is written last.
const EPOCH: &str = "epoch.json";
/// The file that says up to which line the audit is forwarded.
const AUDIT: &str = "audit-position.json";
/// Largest file with an epoch, in bytes.
const MAX_EPOCH_BYTES: u64 = 4096;

/// A folder with the files of an epoch. Nobody else writes to it.
#[derive(Debug, Clone)]
pub(crate) struct SharedFolder {
    dir: PathBuf,
}

impl SharedFolder {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes the arguments of a command name the files.
    pub(crate) fn name_in(&self, args: &mut SetupArgs) {
        args.config = Some(self.dir.join(POLICY));
        args.plugins = Some(self.dir.join(PLUGINS));
        args.decisions_dir = Some(self.dir.clone());
    }

    /// The policy of the epoch.
    pub(crate) fn policy(&self) -> PathBuf {
        self.dir.join(POLICY)
    }

    /// The files as they are now, without the plugins.
    pub(crate) fn read(&self) -> Result<Bundle> {
        let mut files = Vec::new();
        for name in FILES {
            let path = self.dir.join(name);
            if path.exists() {
                let text = read_regular_text(&path, MAX_BUNDLE_BYTES as u64);
                let text = text.with_context(|| format!("`{}`", path.display()));
                files.push((name.to_owned(), text.map_err(host_failure)?));
            }
        }
        Bundle::new(files).map_err(host_failure)
    }

    /// Writes the files of a bundle, with the plugins.
    pub(crate) async fn write(&self, bundle: &Bundle, publication: &Publication) -> Result<()> {
        self.create()?;
        private::sweep_temporary(&self.dir);
        self.write_files(bundle, FILES)?;
        self.write_plugins(bundle, publication).await
    }

    /// Writes the policy and the decisions of a bundle. A policy that is wrong changes nothing.
    pub(crate) fn write_policy(&self, args: &SetupArgs, bundle: &Bundle) -> Result<Policy> {
        let text = bundle.file(POLICY).context("the epoch has no policy")?;
        let policy = PolicyFile::for_text(args, &self.policy(), text)?.parse(text)?;
        self.create()?;
        self.write_files(bundle, FILES.into_iter().filter(|name| *name != lock::FILE_NAME))?;
        Ok(policy)
    }

    /// Writes the lock and the plugin directory of a bundle. Components that this machine does not have come from the
    /// shared state.
    pub(crate) async fn write_plugins(&self, bundle: &Bundle, publication: &Publication) -> Result<()> {
        let store = locked::blob_store()?;
        let components = locked_components(bundle)?;
        for digest in components.iter().chain(bundle.plugins().values()) {
            fetch(&store, digest, publication).await?;
        }
        let (folder, bundle) = (self.clone(), bundle.clone());
        let written = run_blocking(move || {
            folder.write_files(&bundle, [lock::FILE_NAME])?;
            folder.write_directory(&bundle, &store)
        });
        written.await?.map_err(host_failure)
    }

    /// Creates the folders, for this user only.
    fn create(&self) -> Result<()> {
        private::make_dir(&self.dir.join(PLUGINS)).map_err(|error| host_failure(anyhow!(error)))
    }

    fn write_files(&self, bundle: &Bundle, names: impl IntoIterator<Item = &'static str>) -> Result<()> {
        for name in names {
            let path = self.dir.join(name);
            match bundle.file(name) {
                Some(text) => replace(&path, text.as_bytes())?,
                None if path.exists() => std::fs::remove_file(&path).map_err(host_failure)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Makes the plugin directory equal to that of a bundle.
    fn write_directory(&self, bundle: &Bundle, store: &BlobStore) -> Result<()> {
        let plugins = self.dir.join(PLUGINS);
        let most = usize::try_from(MAX_COMPONENT_BYTES).unwrap_or(usize::MAX);
        for (name, digest) in bundle.plugins() {
            let path = plugins.join(name);
            let has_it =
                read_regular(&path, MAX_COMPONENT_BYTES).is_ok_and(|bytes| Digest::of(&bytes) == *digest);
            if !has_it {
                let bytes = store.read(&BlobDigest::from(*digest), most);
                replace(&path, &bytes.with_context(|| format!("the component `{name}` is gone"))?)?;
            }
        }
        for entry in std::fs::read_dir(&plugins)? {
            let entry = entry?;
            if !bundle.plugins().contains_key(&*entry.file_name().to_string_lossy()) {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The epoch of the files; `None` if they are not complete.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        let text = read_regular_text(&self.dir.join(EPOCH), MAX_EPOCH_BYTES).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The file that says up to which line the audit is forwarded; `None` before the first one.
    pub(crate) fn audit_position(&self) -> Option<PathBuf> {
        Some(self.dir.join(AUDIT)).filter(|file| file.exists())
    }

    /// Records up to which line the audit is forwarded.
    pub(crate) fn set_audit_position(&self, position: &[u8]) -> Result<()> {
        replace(&self.dir.join(AUDIT), position)
    }

    /// Records the epoch of the files.
    pub(crate) fn set_epoch(&self, epoch: &Epoch) -> Result<()> {
        replace(&self.dir.join(EPOCH), &serde_json::to_vec(epoch)?)
    }
}

/// Replaces a file at once, readable by this user only.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let written = private::replace(path, content);
    written.with_context(|| format!("`{}` cannot be written", path.display())).map_err(host_failure)
}

/// The components that the lock of a bundle names.
fn locked_components(bundle: &Bundle) -> Result<BTreeSet<Digest>> {
    let Some(text) = bundle.file(lock::FILE_NAME) else { return Ok(BTreeSet::new()) };
    let plugins = lock::from_text(text).map_err(locked::lock_error)?;
    Ok(plugins.values().map(|plugin| plugin.layer.digest()).collect())
}

/// Gets a component, unless this machine has it.
async fn fetch(store: &BlobStore, digest: &Digest, publication: &Publication) -> Result<()> {
    let (blobs, named) = (store.clone(), BlobDigest::from(*digest));
    if run_blocking(move || blobs.reuse(&named, MAX_COMPONENT_BYTES)).await? {
        return Ok(());
    }
    let most = usize::try_from(MAX_COMPONENT_BYTES).unwrap_or(usize::MAX);
    let bytes = publication.component(digest, most).await.map_err(publication_error)?;
    locked::store_bytes(store, bytes).await
}
