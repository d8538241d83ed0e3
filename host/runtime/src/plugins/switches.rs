//! What the operator switched off, on disk (`switches.json` in the host's folder of state).
//!
//! As with consents: whole or refused, and processes that write at once take turns.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_core::registry::Switches;

use crate::storage::private;

/// Grows when what is stored changes its meaning.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes: thousands of tools.
const MAX_BYTES: u64 = 4 << 20;

/// Switches in a folder.
#[derive(Debug, Clone)]
pub struct FileSwitches {
    dir: PathBuf,
    wait: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    switches: Switches,
}

impl FileSwitches {
    /// Keeps switches in this folder, which is made when the first one is set.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), wait: private::DEFAULT_STATE_WAIT }
    }

    /// Waits up to `limit` for other processes that write.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self { wait: limit, ..self }
    }

    /// The file, which may not be there yet.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.join("switches.json")
    }

    /// What is switched off. Blocks.
    ///
    /// # Errors
    /// Why the file can not be read. Who goes on without it has switched on what somebody switched off.
    pub fn load(&self) -> Result<Switches, String> {
        let file = self.file();
        if !self.dir.exists() {
            return Ok(Switches::default());
        }
        let Some(bytes) = private::read(&file, MAX_BYTES)? else { return Ok(Switches::default()) };
        let stored: Stored = private::parse_state(&file, &bytes, VERSION, "switch everything on")?;
        Ok(stored.switches)
    }

    /// Changes what is switched off, with no other writer between. Blocks.
    ///
    /// # Errors
    /// Why the file can not be read or written; it then is as it was. An error of `edit` is handed on.
    pub fn update<T, E: From<String>>(
        &self,
        edit: impl FnOnce(&mut Switches) -> Result<T, E>,
    ) -> Result<T, E> {
        private::make_dir(&self.dir)?;
        private::sweep_temporary(&self.dir);
        let _lock = private::lock(&self.dir.join("switches.lock"), self.wait)?;
        let mut stored = Stored { version: VERSION, switches: self.load()? };
        let value = edit(&mut stored.switches)?;
        let mut bytes = serde_json::to_vec_pretty(&stored).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("`{}` would have more than {MAX_BYTES} bytes", self.file().display()).into());
        }
        private::replace(&self.file(), &bytes)
            .map_err(|e| format!("`{}` can not be written: {e}", self.file().display()))?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(tool: &str, reason: &str) -> Switches {
        Switches { tools: [(tool.to_owned(), reason.to_owned())].into(), ..Switches::default() }
    }

    #[test]
    fn what_is_off_is_found_again_and_a_broken_file_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let kept = FileSwitches::new(dir.path().join("state"));
        assert_eq!(kept.load().unwrap(), Switches::default());
        kept.update(|switches| {
            *switches = off("p__a", "why");
            Ok::<_, String>(())
        })
        .unwrap();
        assert_eq!(kept.load().unwrap(), off("p__a", "why"));
        assert_eq!(kept.update(|_| Err::<(), _>("no".to_owned())), Err("no".to_owned()));
        assert_eq!(kept.load().unwrap(), off("p__a", "why"));
        for broken in [
            "",
            "{",
            r#"{"version":1}"#,
            r#"{"version":2,"switches":{}}"#,
            r#"{"version":1,"switches":{"x":1}}"#,
        ] {
            private::replace(&kept.file(), broken.as_bytes()).unwrap();
            assert!(kept.load().is_err(), "{broken}");
            assert!(kept.update(|_| Ok::<_, String>(())).is_err());
            assert_eq!(std::fs::read_to_string(kept.file()).unwrap(), broken, "nor written over");
        }
    }
}
