//! What the audit last said of each plugin that was loaded, so that a plugin has one line for each change and not one for
//! each start.
//!
//! A file beside the audit has a line for each such record, the digest of what it said and the plugin; the last line of a
//! plugin counts. It is a cache: without it, plugins are recorded once more.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toolbay_core::audit::GrantRecord;
use toolbay_core::tool::canonical;

use super::file::{beside, open_beside};
use crate::storage::private;

/// Largest file that is read, in bytes: thousands of plugins. A larger one is begun anew.
const MAX_BYTES: u64 = 1 << 20;

/// What was recorded of plugins.
#[derive(Debug)]
pub(super) struct LoadedIndex {
    path: PathBuf,
    known: HashMap<String, String>,
    /// The file that `known` was read from, and its length.
    read: Option<(u64, u64)>,
}

/// The digest of what a record says.
pub(super) fn digest(record: &GrantRecord) -> String {
    canonical::sha256(&serde_json::to_value(record).unwrap_or_default()).to_string()
}

impl LoadedIndex {
    /// The file of an audit's index.
    pub(super) fn path_of(audit: &Path) -> PathBuf {
        beside(audit, ".loaded")
    }

    pub(super) fn new(audit: &Path) -> Self {
        Self { path: Self::path_of(audit), known: HashMap::new(), read: None }
    }

    /// Whether the last record of the plugin said the same.
    pub(super) fn has(&mut self, plugin: &str, digest: &str) -> bool {
        self.refresh();
        self.known.get(plugin).is_some_and(|known| known == digest)
    }

    /// Keeps what was recorded. Where it cannot be kept, the plugin is recorded again at the next start.
    pub(super) fn keep(&mut self, plugin: &str, digest: &str) {
        self.known.insert(plugin.to_owned(), digest.to_owned());
        let line = format!("{digest} {plugin}\n");
        let kept = open_beside(&self.path).and_then(|mut file| {
            if file.metadata()?.len() > MAX_BYTES {
                file.set_len(0)?;
            }
            file.write_all(line.as_bytes())?;
            file.metadata()
        });
        match kept {
            Ok(meta) => self.read = Some((meta.ino(), meta.len())),
            Err(error) => tracing::debug!(%error, "what was recorded of a plugin is not kept"),
        }
    }

    /// Forgets everything: lines that said it are gone.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.read = None;
        drop(fs::remove_file(&self.path));
    }

    /// Reads the file if another process changed it.
    fn refresh(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|meta| (meta.ino(), meta.len()));
        if now == self.read {
            return;
        }
        let bytes = private::read(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        self.known = lines.map(|(digest, plugin)| (plugin.to_owned(), digest.to_owned())).collect();
        self.read = now;
    }
}
