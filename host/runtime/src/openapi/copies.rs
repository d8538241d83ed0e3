//! Copies of fetched OpenAPI documents in the cache.
//!
//! As in the compile cache, copies that were not used for long are removed, then the least recently used until the rest
//! fits. A removed copy is fetched again.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use toolbay_sandbox::compile::cache::{CacheLimits, touch};
use toolbay_state::digest::Digest;
use toolbay_state::private;
use url::Url;

use super::document_text::{DocumentText, MAX_BYTES};

/// How the files of copies end.
const EXTENSION: &str = "openapi";
/// Maximum length of a copy's first line, in bytes.
const MAX_HEADER_BYTES: u64 = 8 << 10;

/// The folder of the copies, and their limits.
#[derive(Debug, Clone)]
pub(super) struct DocumentCopies {
    dir: PathBuf,
    limits: CacheLimits,
}

impl DocumentCopies {
    pub(super) fn new(dir: PathBuf, limits: CacheLimits) -> Self {
        Self { dir, limits }
    }

    /// The copy of the document with this URL, which need not exist.
    pub(super) fn copy_of(&self, url: &Url) -> DocumentCopy {
        let file = self.dir.join(format!("{}.{EXTENSION}", Digest::of(url.as_str().as_bytes())));
        DocumentCopy { copies: self.clone(), file, url: url.to_string() }
    }
}

/// The first line of a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CopyHeader {
    url: String,
    /// When the copy was fetched or last confirmed, in seconds since 1970.
    fetched: u64,
    /// The `ETag` of the content.
    pub(super) tag: Option<String>,
}

impl CopyHeader {
    /// The header of a document that was fetched now.
    pub(super) fn new(url: &Url, tag: Option<String>) -> Self {
        Self { url: url.to_string(), fetched: unix_seconds(), tag }
    }

    /// The header after the server confirmed the copy.
    pub(super) fn confirmed(self) -> Self {
        Self { fetched: unix_seconds(), ..self }
    }

    pub(super) fn age(&self) -> Duration {
        // A copy from the future counts as old.
        unix_seconds().checked_sub(self.fetched).map_or(Duration::MAX, Duration::from_secs)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A copy on disk, in a folder that only this user can write.
#[derive(Debug, Clone)]
pub(super) struct DocumentCopy {
    copies: DocumentCopies,
    file: PathBuf,
    url: String,
}

impl DocumentCopy {
    /// Reads the copy, if it exists and can be trusted. It then counts as used.
    pub(super) fn read(&self) -> Option<(CopyHeader, DocumentText)> {
        let dir = &self.copies.dir;
        if dir.exists()
            && let Err(problem) = private::check_dir(dir)
        {
            tracing::warn!("the copies of documents are not used: {problem}");
            return None;
        }
        let bytes = private::read(&self.file, MAX_BYTES + MAX_HEADER_BYTES)
            .inspect_err(|problem| tracing::warn!("the copy of a document is not used: {problem}"))
            .ok()??;
        let end = bytes.iter().position(|b| *b == b'\n')?;
        let (header, text) = bytes.split_at_checked(end + 1)?;
        let header: CopyHeader = serde_json::from_slice(header).ok()?;
        let text = DocumentText::new(text.to_vec(), None).ok()?;
        if header.url != self.url {
            return None;
        }
        touch(&self.file);
        Some((header, text))
    }

    /// Writes the copy, and removes others that exceed the limits.
    pub(super) fn write(&self, header: &CopyHeader, text: &DocumentText) -> Result<(), String> {
        private::make_dir(&self.copies.dir)?;
        let header = serde_json::to_string(header).map_err(|e| e.to_string())?;
        private::replace_unsynced(&self.file, &[header.as_bytes(), b"\n", text.as_received()])
            .map_err(|e| e.to_string())?;
        self.copies.limits.enforce_in(&self.copies.dir, EXTENSION);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_copy_beyond_the_limits_is_removed_and_one_in_use_stays() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("openapi");
        let copies = |bytes| DocumentCopies::new(folder.clone(), CacheLimits { bytes, age: 30 * DAY });
        let url = |name: &str| Url::parse(&format!("https://api.example/{name}")).unwrap();
        let write = |bytes: u64, name: &str| {
            let text = DocumentText::new(vec![b'x'; 1000], None).unwrap();
            copies(bytes).copy_of(&url(name)).write(&CopyHeader::new(&url(name), None), &text).unwrap();
        };
        let set_age = |name: &str, age: Duration| {
            let file = fs::File::open(copies(0).copy_of(&url(name)).file).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let stays =
            |names: &[&str]| names.iter().map(|name| copies(0).copy_of(&url(name)).file.exists()).collect();
        for (name, days) in [("expired", 40), ("oldest", 20), ("used", 25), ("fresh", 0)] {
            write(10_000, name);
            set_age(name, days * DAY);
        }
        fs::write(folder.join("notes.txt"), vec![0; 10_000]).unwrap();
        assert!(copies(10_000).copy_of(&url("used")).read().is_some());
        // Each copy has 1000 bytes and its first line.
        write(3500, "new");
        let kept: Vec<bool> = stays(&["expired", "oldest", "used", "fresh", "new"]);
        assert_eq!(kept, [false, false, true, true, true]);
        write(10, "larger than all");
        let kept: Vec<bool> = stays(&["used", "fresh", "new", "larger than all"]);
        assert_eq!(kept, [false; 4]);
        assert!(folder.join("notes.txt").exists());
    }
}
