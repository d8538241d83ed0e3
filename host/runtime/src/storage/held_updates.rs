//! Updates of locked plugins that wait for the operator (`updates.json` in the state folder). The lock keeps the old
//! version meanwhile, so the old one runs, also after a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_distribution::digest::BlobDigest;
use toolbay_distribution::lock::LockedPlugin;
use toolbay_policy::name::PluginId;
use toolbay_state::private;
use toolbay_state::state_file::StateFile;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// Maximum size of the file, in bytes: thousands of updates.
const MAX_BYTES: u64 = 4 << 20;

/// A version that waits for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldUpdate {
    /// The version, as it would be locked. Its blobs are in the store.
    pub plugin: LockedPlugin,
    /// The manifest of the locked version that it was compared with.
    pub replaces: BlobDigest,
    /// Why it waits, a sentence each.
    pub reasons: Vec<String>,
}

/// The held updates of a lock.
#[derive(Debug, Clone)]
pub struct HeldUpdates {
    file: StateFile,
    /// The path of the lock.
    lock: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredUpdates {
    version: u32,
    locks: BTreeMap<String, BTreeMap<String, HeldUpdate>>,
}

impl HeldUpdates {
    /// The updates for a lock, in this state folder. The folder is created when the first update is held.
    #[must_use]
    pub fn new(state: impl Into<PathBuf>, lock: &Path) -> Self {
        let file = StateFile::new(state.into(), "updates", VERSION, MAX_BYTES, "run `toolbay update` again");
        Self { file, lock: lock.to_string_lossy().into_owned() }
    }

    /// Waits up to `limit` for other writers.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { file: self.file.with_wait(limit), ..self }
    }

    /// All held updates, by plugin. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn all(&self) -> Result<BTreeMap<String, HeldUpdate>, String> {
        Ok(self.load()?.locks.remove(&self.lock).unwrap_or_default())
    }

    /// The versions that wait for any lock. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_all_locks(&self) -> Result<Vec<LockedPlugin>, String> {
        let updates = self.load()?.locks.into_values().flat_map(BTreeMap::into_values);
        Ok(updates.map(|update| update.plugin).collect())
    }

    /// The held update of a plugin. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, id: &PluginId) -> Result<Option<HeldUpdate>, String> {
        Ok(self.all()?.remove(id.as_str()))
    }

    /// Holds an update, or with `None` drops the held one. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn set(&self, id: &PluginId, update: Option<HeldUpdate>) -> Result<(), String> {
        if update.is_none() && self.get(id)?.is_none() {
            return Ok(());
        }
        let _lock = self.file.lock()?;
        let mut stored = self.load()?;
        let updates = stored.locks.entry(self.lock.clone()).or_default();
        match update {
            Some(update) => drop(updates.insert(id.as_str().to_owned(), update)),
            None => drop(updates.remove(id.as_str())),
        }
        stored.locks.retain(|_, updates| !updates.is_empty());
        self.file.store(&stored)
    }

    fn load(&self) -> Result<StoredUpdates, String> {
        if self.file.dir().exists() {
            private::check_dir(self.file.dir())?;
        }
        let stored = self.file.load()?;
        Ok(stored.unwrap_or_else(|| StoredUpdates { version: VERSION, locks: BTreeMap::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(tag: &str) -> HeldUpdate {
        let digest = || BlobDigest::of(tag.as_bytes());
        let plugin = LockedPlugin {
            source: "oci://registry.example/acme/text".to_owned(),
            tag: Some(tag.to_owned()),
            manifest: digest(),
            layer: digest(),
            size: 3,
            signer: toolbay_distribution::lock::Signer::None,
            bundle: None,
            signed_at: None,
        };
        HeldUpdate { plugin, replaces: digest(), reasons: vec!["it asks for more".to_owned()] }
    }

    #[test]
    fn each_lock_has_its_own_updates() {
        let dir = tempfile::tempdir().unwrap();
        let (state, id) = (dir.path().join("state"), PluginId::new("text").unwrap());
        let [one, other] = ["a", "b"].map(|lock| HeldUpdates::new(&state, Path::new(lock)));
        assert_eq!(one.get(&id), Ok(None));
        one.set(&id, None).unwrap();
        assert!(!state.exists(), "nothing is written for nothing");
        let held = update("1.1.0");
        one.set(&id, Some(held.clone())).unwrap();
        assert_eq!((one.get(&id), other.get(&id)), (Ok(Some(held.clone())), Ok(None)));
        let newer = update("1.2.0");
        one.set(&id, Some(newer.clone())).unwrap();
        other.set(&id, Some(held)).unwrap();
        assert_eq!(one.get(&id), Ok(Some(newer)));
        assert_eq!(one.of_all_locks().unwrap().len(), 2);
        one.set(&id, None).unwrap();
        assert_eq!((one.get(&id), other.all().unwrap().len()), (Ok(None), 1));
        let file = state.join("updates.json");
        std::fs::write(&file, r#"{"version": 2, "locks": {}}"#).unwrap();
        assert!(one.get(&id).is_err() && one.set(&id, Some(update("2"))).is_err());
        assert!(std::fs::read_to_string(file).unwrap().contains("2"), "it is not overwritten");
    }
}
