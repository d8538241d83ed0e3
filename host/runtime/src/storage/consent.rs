//! Consents on disk (`consents.json` in the state folder).
//!
//! While the file cannot be read, no plugin counts as agreed to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_policy::consent::{Consent, ConsentChange, ConsentStore};
use toolbay_policy::name::PluginId;
use toolbay_state::private;
use toolbay_state::state_file::StateFile;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// Maximum size of the file, in bytes: enough for thousands of plugins.
const MAX_BYTES: u64 = 16 << 20;

/// A consent store in a folder.
#[derive(Debug, Clone)]
pub struct FileConsents {
    file: StateFile,
    read_only: bool,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredConsents {
    version: u32,
    plugins: BTreeMap<String, Consent>,
}

impl FileConsents {
    /// Stores consents in this folder, which is created when the first consent is written.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let file = StateFile::new(dir.into(), "consents", VERSION, MAX_BYTES, "agree to each plugin again");
        Self { file, read_only: false }
    }

    /// Waits up to `limit` for other writers.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { file: self.file.with_wait(limit), ..self }
    }

    /// Uses the existing consents and records none, for commands that only inspect plugins.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// The consent for a plugin.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, plugin: &PluginId) -> Result<Option<Consent>, String> {
        self.load().map(|mut stored| stored.plugins.remove(plugin.as_str()))
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.file.path()
    }

    fn load(&self) -> Result<StoredConsents, String> {
        if self.file.dir().exists() {
            private::check_dir(self.file.dir())?;
        }
        let stored = self.file.load()?;
        Ok(stored.unwrap_or_else(|| StoredConsents { version: VERSION, plugins: BTreeMap::new() }))
    }
}

impl ConsentStore for FileConsents {
    fn update_all(
        &self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> Result<bool, String> {
        if plugins.is_empty() {
            return Ok(false);
        }
        // Most starts write nothing and need no lock, because the file is only ever replaced as a whole.
        if !self.load()?.apply(plugins, decide) || self.read_only {
            return Ok(false);
        }
        let _lock = self.file.lock()?;
        let mut stored = self.load()?;
        if !stored.apply(plugins, decide) {
            return Ok(false);
        }
        self.file.store(&stored).map(|()| true)
    }
}

impl StoredConsents {
    /// Applies the decision for each plugin. Returns whether a record changed.
    fn apply(
        &mut self,
        plugins: &[&PluginId],
        decide: &mut dyn FnMut(usize, Option<&Consent>) -> ConsentChange,
    ) -> bool {
        let mut changed = false;
        for (index, plugin) in plugins.iter().enumerate() {
            match decide(index, self.plugins.get(plugin.as_str())) {
                ConsentChange::Keep => continue,
                ConsentChange::Replace(consent) => {
                    drop(self.plugins.insert(plugin.as_str().to_owned(), consent));
                }
                ConsentChange::Remove => drop(self.plugins.remove(plugin.as_str())),
            }
            changed = true;
        }
        changed
    }
}
