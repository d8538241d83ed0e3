//! Where plugin files come from: a folder, or a lock with its store. Both list files; a lock also says what is in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolbay_distribution::lock::{LockFile, LockedPlugin};
use toolbay_distribution::store::BlobStore;
use toolbay_policy::Policy;
use toolbay_policy::name::PluginId;

use crate::error::HostError;
use crate::plugins::loader::{Candidate, LockedComponent, candidates};

/// A source of plugin files.
#[derive(Debug, Clone)]
pub(crate) enum PluginLocation {
    /// The `.wasm` files of a folder.
    Folder(PathBuf),
    /// The components that a lock names.
    Lock {
        /// The lock.
        file: LockFile,
        /// The store with the components.
        store: BlobStore,
    },
}

impl PluginLocation {
    /// The folder or the lock.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Folder(path) => path,
            Self::Lock { file, .. } => file.path(),
        }
    }

    /// Whether both are the same folder or the same lock.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.changes_slowly() == other.changes_slowly() && self.path() == other.path()
    }

    /// The folders that change when the list of files or a file does.
    pub(crate) fn watched_folders(&self) -> Vec<PathBuf> {
        match self {
            Self::Folder(path) => vec![path.clone()],
            Self::Lock { file, store } => {
                let beside = file.path().parent().unwrap_or(Path::new("/"));
                vec![beside.to_path_buf(), store.blob_folder()]
            }
        }
    }

    /// Whether a file that is gone from the list may be about to come back. A lock is replaced at once.
    pub(crate) fn changes_slowly(&self) -> bool {
        matches!(self, Self::Folder(_))
    }

    /// Lists the files with their ids. A lock that does not exist is an error, as for a folder: version control removes
    /// and writes it again, and its plugins stay loaded meanwhile. Blocks.
    pub(crate) fn candidates(&self, policy: &Policy) -> Result<Vec<Candidate>, HostError> {
        match self {
            Self::Folder(path) => candidates(path, policy),
            Self::Lock { file, store } => {
                let plugins = file.read().map_err(HostError::Lock)?;
                let plugins = plugins.ok_or_else(|| HostError::LockGone(file.path().to_path_buf()))?;
                let candidate = |(id, plugin): (&PluginId, &LockedPlugin)| Candidate {
                    file: store.path(&plugin.layer).into(),
                    id: Ok(id.clone()),
                    may_have_manifest: false,
                    locked: Some(LockedComponent { origin: Arc::new(plugin.origin()), digest: plugin.layer }),
                };
                Ok(plugins.iter().map(candidate).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_gone_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let (file, store) = (dir.path().join("toolbay.lock"), BlobStore::new(dir.path().join("store")));
        let location = PluginLocation::Lock { file: LockFile::new(&file), store };
        let policy = Policy::deny_all(dir.path());
        assert!(matches!(location.candidates(&policy), Err(HostError::LockGone(gone)) if gone == file));
        std::fs::write(&file, "version = 1\n").unwrap();
        assert!(location.candidates(&policy).is_ok_and(|found| found.is_empty()));
    }
}
