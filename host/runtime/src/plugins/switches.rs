//! Stores the tools and namespaces that the operator disabled (`switches.json` in the state folder).

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_core::registry::Switches;
use toolbay_state::state_file::StateFile;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// Maximum size of the file, in bytes: thousands of tools.
const MAX_BYTES: u64 = 4 << 20;

/// Switches in a state folder.
#[derive(Debug, Clone)]
pub struct FileSwitches(StateFile);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSwitches {
    version: u32,
    switches: Switches,
}

impl FileSwitches {
    /// Stores switches in this folder, which is created when the first switch is set.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(StateFile::new(dir.into(), "switches", VERSION, MAX_BYTES, "enable everything"))
    }

    /// Waits up to `limit` for other writers.
    #[must_use]
    pub fn with_wait(self, limit: Duration) -> Self {
        Self(self.0.with_wait(limit))
    }

    /// The path of the file, which may not exist yet.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.0.path()
    }

    /// Reads the switches. Blocks.
    ///
    /// # Errors
    /// The file cannot be read. Continuing without it would enable what the operator disabled.
    pub fn load(&self) -> Result<Switches, String> {
        let stored: Option<StoredSwitches> = self.0.load()?;
        Ok(stored.map(|stored| stored.switches).unwrap_or_default())
    }

    /// Changes the switches under a lock against other writers. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or written and stays unchanged, or `edit` fails.
    pub fn update<T, E: From<String>>(
        &self,
        edit: impl FnOnce(&mut Switches) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.0.lock()?;
        let mut stored = StoredSwitches { version: VERSION, switches: self.load()? };
        let value = edit(&mut stored.switches)?;
        self.0.store(&stored)?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_state::private;

    fn off(tool: &str, reason: &str) -> Switches {
        Switches { tools: [(tool.to_owned(), reason.to_owned())].into(), ..Switches::default() }
    }

    #[test]
    fn switches_are_restored_and_a_broken_file_is_an_error() {
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
