//! Remembers what the audit last recorded about each loaded plugin, so that a plugin gets one line per change instead
//! of one per start.
//!
//! The companion file has one line per record: the digest of its content and the plugin. The last line of a plugin
//! counts. The file is a cache: without it, plugins are recorded again.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use toolbay_core::audit::GrantRecord;
use toolbay_core::tool::canonical;
use toolbay_state::private;

use super::file::{open_sidecar, with_suffix};

/// Maximum size of the file, in bytes: thousands of plugins. A larger file is restarted.
const MAX_BYTES: u64 = 1 << 20;

/// The digests of the last records.
#[derive(Debug)]
pub(super) struct LoadedIndex {
    path: PathBuf,
    known: HashMap<String, String>,
    /// The inode and length of the file that `known` was read from.
    read: Option<(u64, u64)>,
}

/// The digest of a record's content.
pub(super) fn digest(record: &GrantRecord) -> String {
    canonical::sha256(&serde_json::to_value(record).unwrap_or_default()).to_string()
}

impl LoadedIndex {
    /// The path of an audit's index.
    pub(super) fn path_for(audit: &Path) -> PathBuf {
        with_suffix(audit, ".loaded")
    }

    pub(super) fn new(audit: &Path) -> Self {
        Self { path: Self::path_for(audit), known: HashMap::new(), read: None }
    }

    /// Whether the last record of the plugin had the same content.
    pub(super) fn contains(&mut self, plugin: &str, digest: &str) -> bool {
        self.refresh();
        self.known.get(plugin).is_some_and(|known| known == digest)
    }

    /// Stores the digest of a record. If that fails, the plugin is recorded again at the next start.
    pub(super) fn insert(&mut self, plugin: &str, digest: &str) {
        self.known.insert(plugin.to_owned(), digest.to_owned());
        let line = format!("{digest} {plugin}\n");
        let written = open_sidecar(&self.path).and_then(|mut file| {
            if file.metadata()?.len() > MAX_BYTES {
                file.set_len(0)?;
            }
            file.write_all(line.as_bytes())?;
            file.metadata()
        });
        match written {
            Ok(meta) => self.read = Some((meta.ino(), meta.len())),
            Err(error) => tracing::debug!(%error, "the index of recorded plugins could not be written"),
        }
    }

    /// Forgets all records, because their lines were removed.
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
