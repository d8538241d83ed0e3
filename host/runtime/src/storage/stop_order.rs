//! Stores whether the operator stopped all calls (`stop.json` in the state folder), so that a restart changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolbay_core::registry::MAX_REASON;
use toolbay_policy::excerpt::one_line;

use toolbay_state::state_file::StateFile;

/// Increased when the meaning of the stored data changes.
const VERSION: u32 = 1;
/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 16 << 10;

/// The operator's order to stop all calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopOrder {
    /// The reason, which callers see: one line, at most [`MAX_REASON`] characters.
    pub reason: String,
    /// The time (RFC 3339).
    pub since: String,
}

/// The stop order in a state folder.
#[derive(Debug, Clone)]
pub struct FileStopOrder(StateFile);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredStopOrder {
    version: u32,
    /// `None` after the operator allowed calls again.
    order: Option<StopOrder>,
}

impl FileStopOrder {
    /// Stores the order in this folder, which is created when calls are stopped.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self(StateFile::new(dir.into(), "stop", VERSION, MAX_BYTES, "allow calls again"))
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

    /// Reads the order; `None` if calls are not stopped. Blocks.
    ///
    /// # Errors
    /// The file cannot be read. Continuing without it would allow what the operator stopped.
    pub fn load(&self) -> Result<Option<StopOrder>, String> {
        let stored: Option<StoredStopOrder> = self.0.load()?;
        Ok(stored.and_then(|stored| stored.order))
    }

    /// Stops all calls for a reason, and returns the stored order. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stop(&self, reason: &str, since: String) -> Result<StopOrder, String> {
        let order = StopOrder { reason: one_line(reason.trim(), MAX_REASON), since };
        self.store(Some(order.clone()))?;
        Ok(order)
    }

    /// Allows calls again. Returns whether they were stopped. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(&self) -> Result<bool, String> {
        let was_stopped = self.load()?.is_some();
        if was_stopped {
            self.store(None)?;
        }
        Ok(was_stopped)
    }

    fn store(&self, order: Option<StopOrder>) -> Result<(), String> {
        let _lock = self.0.lock()?;
        self.0.store(&StoredStopOrder { version: VERSION, order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_state::private;

    #[test]
    fn an_order_is_stored_until_calls_are_allowed_again() {
        let dir = tempfile::tempdir().unwrap();
        let stored = FileStopOrder::new(dir.path().join("state"));
        assert!(stored.load().unwrap().is_none() && !stored.resume().unwrap());
        let order = stored.stop(" an\nincident ", "2026-11-26T22:00:00Z".to_owned()).unwrap();
        assert_eq!(order.reason, "an\\nincident");
        assert_eq!(stored.load().unwrap(), Some(order));
        assert!(stored.resume().unwrap() && stored.load().unwrap().is_none() && !stored.resume().unwrap());
        for broken in ["", "{", r#"{"version":2,"order":null}"#, r#"{"version":1,"order":{"reason":1}}"#] {
            private::replace(&stored.file(), broken.as_bytes()).unwrap();
            assert!(stored.load().is_err() && stored.resume().is_err(), "{broken}");
        }
    }
}
