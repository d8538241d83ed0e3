//! Blobs on disk under their digests, shared by all projects of a user.
//!
//! | path | holds |
//! |---|---|
//! | `blobs/sha256/HEX` | a blob with this digest |
//! | `incoming/` | transfers that are not complete |
//! | `locks/HEX` | a lock that names blobs ([`garbage`](crate::garbage)) |
//!
//! A blob gets its name only when its size and digest are right, in one step. So a killed process leaves no half blob
//! under a name. The names are no proof for a reader: who runs a blob hashes it. Even so, the folders must be the user's
//! alone: somebody else could remove blobs, or fill the disk with them.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use toolbay_state::digest::Digest;

use crate::digest::BlobDigest;

/// Age from which an incomplete transfer is removed. A transfer ends after a quarter of an hour.
const ABANDONED_AGE: Duration = Duration::from_secs(24 * 3600);
/// Bytes that are hashed at once.
const BUFFER: usize = 128 << 10;

/// A store of blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobStore {
    root: PathBuf,
}

/// Why a blob was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The content is not what its digest and size promise.
    #[error("{0}")]
    Mismatch(String),
    /// The disk is full, or the folder cannot be written.
    #[error("`{path}` cannot be written: {error}", path = .path.display())]
    Io {
        /// The folder of the store.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another user can write a folder of the store.
    #[error("`{path}` {problem}: only its owner may write to it (mode 0700)", path = .path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl BlobStore {
    /// The store in a folder, which is created with the first blob.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder with the blobs.
    #[must_use]
    pub fn blob_folder(&self) -> PathBuf {
        self.root.join("blobs/sha256")
    }

    /// The path of a blob, which may not exist.
    #[must_use]
    pub fn path(&self, digest: &BlobDigest) -> PathBuf {
        self.blob_folder().join(digest.hex())
    }

    /// Whether the store has a blob with its right content. Reads it whole; blocks.
    #[must_use]
    pub fn verify(&self, digest: &BlobDigest, size: u64) -> bool {
        let hash = || -> io::Result<BlobDigest> {
            let (mut hasher, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
            let mut file = File::open(self.path(digest))?.take(size.saturating_add(1));
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(Digest::from(<[u8; 32]>::from(hasher.finalize())).into()),
                    read => hasher.update(buffer.get(..read).unwrap_or_default()),
                }
            }
        };
        hash().is_ok_and(|found| found == *digest)
    }

    /// Whether the store has a blob with its right content, which will be used. It counts as stored now, so that it is not
    /// garbage before a lock names it. Reads it whole; blocks.
    #[must_use]
    pub fn reuse(&self, digest: &BlobDigest, size: u64) -> bool {
        let path = self.path(digest);
        let touch = || File::open(&path)?.set_modified(SystemTime::now());
        // A collection of garbage takes the name before it looks at the time again.
        self.verify(digest, size) && touch().is_ok() && path.exists()
    }

    /// Reads a blob of at most `most` bytes; `None` if the store does not have it with its right content. Blocks.
    #[must_use]
    pub fn read(&self, digest: &BlobDigest, most: usize) -> Option<Vec<u8>> {
        let (mut bytes, file) = (Vec::new(), File::open(self.path(digest)).ok()?);
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        (BlobDigest::of(&bytes) == *digest).then_some(bytes)
    }

    /// Stores a blob that is in memory, unless the store has it. Blocks.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobDigest, StoreError> {
        let (digest, size) = (BlobDigest::of(bytes), bytes.len() as u64);
        if self.reuse(&digest, size) {
            return Ok(digest);
        }
        let mut writer = self.writer(size)?;
        writer.write(bytes)?;
        writer.commit(&digest)?;
        Ok(digest)
    }

    /// Starts to store a blob of `size` bytes. Blocks.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn writer(&self, size: u64) -> Result<BlobWriter, StoreError> {
        let file = self.new_file()?;
        Ok(BlobWriter { store: self.clone(), file, hasher: Sha256::new(), written: 0, size })
    }

    /// A file that gets its name later.
    fn new_file(&self) -> Result<NamedTempFile, StoreError> {
        let (blobs, incoming, locks) = (self.blob_folder(), self.incoming(), self.locks());
        for folder in [&blobs, &incoming, &locks] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| self.failed(error))?;
        }
        for folder in [&self.root, &self.root.join("blobs"), &blobs, &incoming, &locks] {
            self.check_folder(folder)?;
        }
        remove_abandoned(&incoming);
        NamedTempFile::new_in(&incoming).map_err(|error| self.failed(error))
    }

    /// The folder of transfers that are not complete.
    pub(crate) fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    /// The folder with the records of known locks.
    pub(crate) fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Replaces a record of a lock at once.
    pub(crate) fn replace_record(&self, path: &Path, content: &[u8]) -> Result<(), StoreError> {
        let mut file = self.new_file()?;
        file.write_all(content).map_err(|error| self.failed(error))?;
        file.persist(path).map(drop).map_err(|error| self.failed(error.error))
    }

    /// Checks that this user owns a folder, and nobody else can write it.
    fn check_folder(&self, folder: &Path) -> Result<(), StoreError> {
        let meta = std::fs::metadata(folder).map_err(|error| self.failed(error))?;
        let problem = if meta.uid() != rustix::process::geteuid().as_raw() {
            "belongs to another user"
        } else if meta.mode() & 0o022 != 0 {
            "can be written by others"
        } else {
            return Ok(());
        };
        Err(StoreError::Untrusted { path: folder.to_path_buf(), problem })
    }

    pub(crate) fn failed(&self, error: io::Error) -> StoreError {
        StoreError::Io { path: self.root.clone(), error }
    }
}

/// Removes what killed processes left.
fn remove_abandoned(incoming: &Path) {
    for entry in std::fs::read_dir(incoming).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED_AGE) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// A blob that is being written. Dropping it removes what was written.
#[derive(Debug)]
pub struct BlobWriter {
    store: BlobStore,
    file: NamedTempFile,
    hasher: Sha256,
    written: u64,
    size: u64,
}

impl BlobWriter {
    /// Appends bytes. Blocks.
    ///
    /// # Errors
    /// Fails if the blob becomes larger than its size, or the store cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        if self.written > self.size {
            return Err(StoreError::Mismatch(format!(
                "it has more than the {} bytes of its descriptor",
                self.size
            )));
        }
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(|error| self.store.failed(error))
    }

    /// Gives the blob its name, if size and digest are right. Blocks.
    ///
    /// # Errors
    /// Fails if the size or the digest differs, or the store cannot be written.
    pub fn commit(self, digest: &BlobDigest) -> Result<(), StoreError> {
        if self.written != self.size {
            let (written, size) = (self.written, self.size);
            return Err(StoreError::Mismatch(format!("it ended after {written} of {size} bytes")));
        }
        let found = BlobDigest::from(Digest::from(<[u8; 32]>::from(self.hasher.finalize())));
        if found != *digest {
            return Err(StoreError::Mismatch(format!("its digest is {found}")));
        }
        let (store, file) = (self.store, self.file);
        let synced = file.as_file().sync_all();
        let stored = synced.and_then(|()| file.persist(store.path(digest)).map_err(|error| error.error));
        let stored = stored.and_then(|_| File::open(store.blob_folder())?.sync_all());
        stored.map_err(|error| store.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_gets_its_name_only_with_the_right_size_and_digest() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path().join("store"));
        let digest = BlobDigest::of(b"abc");
        let entries =
            |folder: &str| std::fs::read_dir(dir.path().join("store").join(folder)).unwrap().count();
        for (bytes, size, part) in
            [(&b"ab"[..], 3, "after 2 of 3"), (b"abcd", 3, "more than"), (b"abd", 3, "digest")]
        {
            let mut writer = store.writer(size).unwrap();
            let stored = writer.write(bytes).and_then(|()| writer.commit(&digest));
            let error = stored.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!((entries("blobs/sha256"), entries("incoming")), (0, 0));
        }
        assert!(!store.verify(&digest, 3));
        assert_eq!(store.put(b"abc").unwrap(), digest);
        assert!(store.verify(&digest, 3));
        assert_eq!((store.read(&digest, 3), store.read(&digest, 2)), (Some(b"abc".to_vec()), None));
        // A blob that was changed on disk is replaced by the next transfer.
        std::fs::write(store.path(&digest), "abx").unwrap();
        assert!(!store.verify(&digest, 3) && store.read(&digest, 3).is_none());
        store.put(b"abc").unwrap();
        assert!(store.verify(&digest, 3));
    }

    #[test]
    fn a_store_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path().join("store"));
        store.put(b"a").unwrap();
        for folder in ["", "blobs", "blobs/sha256", "incoming", "locks"] {
            let folder = dir.path().join("store").join(folder);
            let set =
                |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            set(0o770);
            let error = store.put(b"b").unwrap_err().to_string();
            assert!(error.contains("can be written by others"), "{error}");
            set(0o755);
            store.put(b"c").unwrap();
        }
        assert!(!store.verify(&BlobDigest::of(b"b"), 1));
    }

    #[test]
    fn what_a_killed_process_left_is_removed_later() {
        let dir = tempfile::tempdir().unwrap();
        let store = BlobStore::new(dir.path());
        store.put(b"a").unwrap();
        let left = dir.path().join("incoming/.tmpleft");
        let file = File::create(&left).unwrap();
        store.put(b"b").unwrap();
        assert!(left.exists(), "its process may be running");
        file.set_modified(std::time::SystemTime::now() - 2 * ABANDONED_AGE).unwrap();
        store.put(b"c").unwrap();
        assert!(!left.exists());
    }
}
