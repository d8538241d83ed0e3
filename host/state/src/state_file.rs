//! A machine-written JSON file in the state folder. A file that cannot be read or has another version is never
//! overwritten. A lock file serializes the processes that write.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::private;

/// A state file, which need not exist yet.
#[derive(Debug, Clone)]
pub struct StateFile {
    dir: PathBuf,
    /// The file name without `.json`.
    name: &'static str,
    version: u32,
    max_bytes: u64,
    /// The effect of removing the file, for the message about a damaged file.
    removal_effect: &'static str,
    wait: Duration,
}

impl StateFile {
    /// The file `name.json` in `dir`, of this format version and at most `max_bytes` long. The message about a damaged file
    /// says that its removal has `removal_effect`.
    #[must_use]
    pub fn new(
        dir: PathBuf,
        name: &'static str,
        version: u32,
        max_bytes: u64,
        removal_effect: &'static str,
    ) -> Self {
        Self { dir, name, version, max_bytes, removal_effect, wait: private::DEFAULT_STATE_WAIT }
    }

    /// Waits up to `limit` for other writers.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { wait: limit, ..self }
    }

    /// The folder of the file.
    #[must_use]
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// The path of the file, which may not exist.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(self.name).with_extension("json")
    }

    /// Reads the file. Returns `None` if it does not exist. Blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        if !self.dir.exists() {
            return Ok(None);
        }
        let path = self.path();
        let Some(bytes) = private::read(&path, self.max_bytes)? else { return Ok(None) };
        private::parse_state(&path, &bytes, self.version, self.removal_effect).map(Some)
    }

    /// Replaces the file. Blocks.
    ///
    /// # Errors
    /// The file cannot be written. The old file stays.
    pub fn store(&self, value: &impl Serialize) -> Result<(), String> {
        let path = self.path();
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        if bytes.len() as u64 > self.max_bytes {
            return Err(format!("`{}` would have more than {} bytes", path.display(), self.max_bytes));
        }
        private::replace(&path, &bytes).map_err(|e| format!("`{}` cannot be written: {e}", path.display()))
    }

    /// Locks the file against other writers in this and other processes, until the lock is dropped. Creates the folder.
    /// Blocks.
    ///
    /// # Errors
    /// The file cannot be locked.
    pub fn lock(&self) -> Result<File, String> {
        private::make_dir(&self.dir)?;
        private::sweep_temporary(&self.dir);
        private::lock(&self.dir.join(self.name).with_extension("lock"), self.wait)
    }
}
