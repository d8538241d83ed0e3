//! What the operator switched off, on disk (`switches.json` in the host's folder of state).

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_core::registry::Switches;

use crate::storage::state_file::StateFile;

/// Grows when what is stored changes its meaning.
const VERSION: u32 = 1;
/// Largest file that is read, in bytes: thousands of tools.
const MAX_BYTES: u64 = 4 << 20;

/// Switches in a folder.
#[derive(Debug, Clone)]
pub struct FileSwitches(StateFile);

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
        Self(StateFile::new(dir.into(), "switches", VERSION, MAX_BYTES, "switch everything on"))
    }

    /// Waits up to `limit` for other processes that write.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self(self.0.with_wait(limit))
    }

    /// The file, which may not be there yet.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.0.path()
    }

    /// What is switched off. Blocks.
    ///
    /// # Errors
    /// Why the file cannot be read. Who goes on without it has switched on what somebody switched off.
    pub fn load(&self) -> Result<Switches, String> {
        let stored: Option<Stored> = self.0.load()?;
        Ok(stored.map(|stored| stored.switches).unwrap_or_default())
    }

    /// Changes what is switched off, with no other writer between. Blocks.
    ///
    /// # Errors
    /// Why the file cannot be read or written; it then is as it was. An error of `edit` is handed on.
    pub fn update<T, E: From<String>>(
        &self,
        edit: impl FnOnce(&mut Switches) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.0.lock()?;
        let mut stored = Stored { version: VERSION, switches: self.load()? };
        let value = edit(&mut stored.switches)?;
        self.0.store(&stored)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::private;

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
