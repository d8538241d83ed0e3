//! A machine-written JSON file in the host's folder of state. It is whole or refused: one that cannot be read, or of
//! another version, is never rewritten. Processes that write at once take turns by a lock beside it.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::storage::private;

/// A file of state that need not be there yet.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    dir: PathBuf,
    /// Its name without `.json`.
    name: &'static str,
    version: u32,
    max_bytes: u64,
    /// What removing it does, for the message about a damaged one.
    without: &'static str,
    wait: Duration,
}

impl StateFile {
    pub(crate) fn new(
        dir: PathBuf,
        name: &'static str,
        version: u32,
        max_bytes: u64,
        without: &'static str,
    ) -> Self {
        Self { dir, name, version, max_bytes, without, wait: private::DEFAULT_STATE_WAIT }
    }

    /// Waits up to `limit` for other processes that write.
    pub(crate) fn with_wait(self, limit: Duration) -> Self {
        Self { wait: limit, ..self }
    }

    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(self.name).with_extension("json")
    }

    /// What it holds; `None`: it is not there. Blocks.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        if !self.dir.exists() {
            return Ok(None);
        }
        let path = self.path();
        let Some(bytes) = private::read(&path, self.max_bytes)? else { return Ok(None) };
        private::parse_state(&path, &bytes, self.version, self.without).map(Some)
    }

    /// Replaces it. Blocks.
    ///
    /// # Errors
    /// Why it cannot be written; it then is as it was.
    pub(crate) fn store(&self, value: &impl Serialize) -> Result<(), String> {
        let path = self.path();
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        if bytes.len() as u64 > self.max_bytes {
            return Err(format!("`{}` would have more than {} bytes", path.display(), self.max_bytes));
        }
        private::replace(&path, &bytes).map_err(|e| format!("`{}` cannot be written: {e}", path.display()))
    }

    /// Holds back other writers, of this process and of others, until it is dropped. Makes the folder. Blocks.
    ///
    /// # Errors
    /// Why it cannot be locked.
    pub(crate) fn lock(&self) -> Result<File, String> {
        private::make_dir(&self.dir)?;
        private::sweep_temporary(&self.dir);
        private::lock(&self.dir.join(self.name).with_extension("lock"), self.wait)
    }
}
