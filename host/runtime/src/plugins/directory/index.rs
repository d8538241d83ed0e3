//! The file digests of a plugin directory. While a file is unchanged, it is neither opened nor hashed.
//!
//! An entry is valid if the file's device, inode, mode, size, modification time and change time are the same as when
//! the file was read, to the nanosecond. As in git's index, the file must also have been unchanged for a while by then
//! (`file::Stamp::is_stable_since`). An entry only gives a digest; the code comes from the cache entry of this digest.
//!
//! | part | bytes |
//! |---|---|
//! | `MAGIC` and `FORMAT` | 8, 4 |
//! | [`StoredIndex`] in the encoding of `postcard` | … |
//! | SHA-256 of all this | 32 |

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toolbay_sandbox::compile::cache::{Cache, read_trusted, touch};
use toolbay_state::digest::Digest;
use toolbay_state::private;

use crate::plugins::file::Stamp;

const MAGIC: &[u8; 8] = b"toolbay\0";
/// Increased when the meaning of the stored data changes.
const FORMAT: u32 = 2;
/// Maximum size of an index, in bytes: as many files as a directory may have, with the longest names.
const MAX_INDEX: u64 = 8 << 20;

/// The stored form of an index.
#[derive(Serialize, Deserialize)]
struct StoredIndex<'a> {
    /// The path of the directory.
    #[serde(borrow)]
    dir: &'a [u8],
    #[serde(borrow)]
    files: Vec<StoredFile<'a>>,
}

#[derive(Serialize, Deserialize)]
struct StoredFile<'a> {
    name: &'a [u8],
    digest: [u8; 32],
    bytes: u64,
    stamp: Stamp,
}

/// The digest of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileDigest {
    /// The digest of the component, including its `plugin.toml`.
    pub(crate) digest: Digest,
    /// The size of the component in bytes.
    pub(crate) bytes: u64,
}

/// The file digests of one directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DirectoryIndex(BTreeMap<OsString, (Stamp, FileDigest)>);

impl DirectoryIndex {
    /// The index of a directory in the cache. If it cannot be used, logs a warning and returns an empty one, which the
    /// next write replaces.
    pub(crate) fn load(cache: &Cache, dir: &Path) -> Self {
        let dir = absolute(dir);
        let file = cache.index_file(&dir);
        let Some(bytes) = read_trusted(&file, MAX_INDEX) else { return Self::default() };
        match Self::parse(&bytes, &dir) {
            Ok(index) => {
                touch(&file);
                index
            }
            Err(problem) => {
                tracing::warn!(
                    file = %file.display(), directory = %dir.display(),
                    "the index of plugin files is not used because {problem}; every file is read"
                );
                Self::default()
            }
        }
    }

    /// Stores the index of a directory in the cache, if it changed.
    ///
    /// # Errors
    /// The disk is full or the folder is not writable. The next start then reads each file.
    pub(crate) fn store(&self, cache: &Cache, dir: &Path) -> Result<(), String> {
        let dir = absolute(dir);
        let file = cache.index_file(&dir);
        let bytes = self.to_bytes(&dir).map_err(|e| e.to_string())?;
        let is_stored = match private::read(&file, MAX_INDEX) {
            Ok(Some(stored)) => stored == bytes,
            Ok(None) => self.0.is_empty(),
            Err(_) => false,
        };
        if is_stored {
            return Ok(());
        }
        private::replace_unsynced(&file, &[&bytes]).map_err(|e| e.to_string())
    }

    /// The digest of a file, if its stamp is unchanged.
    pub(crate) fn get(&self, name: &OsStr, stamp: Option<Stamp>) -> Option<&FileDigest> {
        let (was, hashed) = self.0.get(name)?;
        (stamp == Some(*was)).then_some(hashed)
    }

    /// Records the digest of a file.
    pub(crate) fn insert(&mut self, name: OsString, stamp: Stamp, hashed: FileDigest) {
        self.0.insert(name, (stamp, hashed));
    }

    /// Encodes the index.
    ///
    /// # Errors
    /// Never fails at present: all parts can be encoded.
    fn to_bytes(&self, dir: &Path) -> Result<Vec<u8>, postcard::Error> {
        let mut files = Vec::with_capacity(self.0.len());
        for (name, (stamp, hashed)) in &self.0 {
            let (name, digest) = (name.as_bytes(), *hashed.digest.as_bytes());
            files.push(StoredFile { name, digest, bytes: hashed.bytes, stamp: *stamp });
        }
        let stored = StoredIndex { dir: dir.as_os_str().as_bytes(), files };
        let mut out = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
        out = postcard::to_extend(&stored, out)?;
        let sum = Digest::of(&out);
        out.extend(sum.as_bytes());
        Ok(out)
    }

    /// Decodes an index.
    ///
    /// # Errors
    /// The reason why the index is invalid.
    fn parse(bytes: &[u8], dir: &Path) -> Result<Self, &'static str> {
        let (all, sum) = bytes.split_last_chunk::<32>().ok_or("it is truncated")?;
        let rest = all.strip_prefix(MAGIC).ok_or("it is not an index")?;
        let rest = rest.strip_prefix(&FORMAT.to_le_bytes()).ok_or("its format is unknown")?;
        if Digest::of(all).as_bytes() != sum {
            return Err("it is damaged");
        }
        let (stored, rest) =
            postcard::take_from_bytes::<StoredIndex<'_>>(rest).map_err(|_| "it is damaged")?;
        if stored.dir != dir.as_os_str().as_bytes() {
            return Err("it belongs to another directory");
        }
        if !rest.is_empty() {
            return Err("it is damaged");
        }
        let file = |file: StoredFile<'_>| {
            let hashed = FileDigest { digest: file.digest.into(), bytes: file.bytes };
            (OsString::from_vec(file.name.to_vec()), (file.stamp, hashed))
        };
        Ok(Self(stored.files.into_iter().map(file).collect()))
    }
}

fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolbay_state::digest::Digest;

    fn index() -> DirectoryIndex {
        let dir = tempfile::tempdir().unwrap();
        let mut index = DirectoryIndex::default();
        for (name, has_manifest) in [("a.wasm", false), ("b \u{e9}.wasm", true), ("c.wasm", false)] {
            let file = dir.path().join(name);
            std::fs::write(&file, name).unwrap();
            std::fs::write(file.with_extension("plugin.toml"), "").unwrap();
            let stamp = Stamp::from_component(&file, has_manifest).unwrap();
            index.insert(name.into(), stamp, FileDigest { digest: Digest::of(name.as_bytes()), bytes: 7 });
        }
        index
    }

    #[test]
    fn an_index_survives_a_round_trip() {
        let (index, dir) = (index(), Path::new("/plugins"));
        let bytes = index.to_bytes(dir).unwrap();
        assert_eq!(DirectoryIndex::parse(&bytes, dir), Ok(index));
        assert_eq!(
            DirectoryIndex::parse(&DirectoryIndex::default().to_bytes(dir).unwrap(), dir),
            Ok(DirectoryIndex::default())
        );
    }

    #[test]
    fn a_changed_index_is_refused() {
        let dir = Path::new("/plugins");
        let bytes = index().to_bytes(dir).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(DirectoryIndex::parse(&flipped, dir).is_err(), "byte {at}");
            assert!(DirectoryIndex::parse(&bytes[..at], dir).is_err(), "cut at {at}");
        }
        assert_eq!(
            DirectoryIndex::parse(&bytes, Path::new("/other")),
            Err("it belongs to another directory")
        );
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(DirectoryIndex::parse(&longer, dir), Err("it is damaged"));
    }

    #[test]
    fn invalid_content_with_a_valid_checksum_is_refused() {
        let dir = Path::new("/plugins");
        let index = index();
        let sound = index.to_bytes(dir).unwrap();
        let head = 12 + 1 + "/plugins".len();
        // A count beyond the files, a name beyond the end, and an invalid boolean.
        let stamp = postcard::to_allocvec(&index.0[OsStr::new("a.wasm")].0).unwrap();
        let has_manifest = head + 1 + 1 + "a.wasm".len() + 32 + stamp.len();
        for (at, byte) in [(head, 200), (head + 1, 255), (has_manifest, 2)] {
            let mut bad = sound[..sound.len() - 32].to_vec();
            bad[at] = byte;
            bad.extend(*Digest::of(&bad).as_bytes());
            assert_eq!(DirectoryIndex::parse(&bad, dir), Err("it is damaged"), "byte {at}");
        }
    }

    #[test]
    fn a_changed_file_is_not_found() {
        let index = index();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.wasm"), "a.wasm").unwrap();
        let other = Stamp::from_component(&dir.path().join("a.wasm"), false);
        assert_eq!(index.get("a.wasm".as_ref(), other), None);
        assert_eq!(index.get("a.wasm".as_ref(), None), None);
        let (was, hashed) = &index.0[OsStr::new("a.wasm")];
        assert_eq!(index.get("a.wasm".as_ref(), Some(*was)), Some(hashed));
        assert_eq!(index.get("c.wasm".as_ref(), Some(*was)), None);
    }
}
