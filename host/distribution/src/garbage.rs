//! Blobs that no lock needs any more. Each lock that a command reads is known to the store, with what it named then:
//!
//! | path | holds |
//! |---|---|
//! | `locks/HEX` | the path of a lock, whose hash is `HEX`, and below it the digests of its blobs |
//!
//! A blob is garbage if neither a known lock nor a held update names it, and nothing stored or used it for [`GRACE`]. A lock
//! that is gone counts as long: version control may bring it back.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use toolbay_state::regular::read_regular_text;

use crate::digest::BlobDigest;
use crate::lock::{self, LockError, LockedPlugin, LockedPlugins};
use crate::store::{BlobStore, StoreError};

/// How long a blob stays that nothing needs. An `add` that is running has stored its blobs, and no lock names them yet.
pub const GRACE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How often the record of a lock that did not change is renewed.
const RENEWED_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Largest record of a lock in bytes.
const MAX_RECORD: u64 = 4 << 20;
/// Most known locks. Beyond that, nothing is removed.
const MAX_LOCKS: usize = 4096;

/// Why nothing was removed.
#[derive(Debug, thiserror::Error)]
pub enum GarbageError {
    /// A known lock cannot be read, so it is not known what it needs.
    #[error(transparent)]
    Lock(LockError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is or would be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    /// The blobs.
    pub removed: Vec<BlobDigest>,
    /// Their size in bytes.
    pub bytes: u64,
    /// The number of blobs that stay.
    pub kept: usize,
    /// The number of known locks.
    pub locks: usize,
}

/// Whether garbage is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GarbageMode {
    /// Garbage is removed.
    Remove,
    /// Garbage is only counted.
    Preview,
}

impl BlobStore {
    /// Remembers a lock and what it names. Blocks. A store that this process cannot write remembers nothing; only its owner
    /// can remove blobs from it.
    pub fn remember_lock(&self, lock: &Path, plugins: &LockedPlugins) {
        let Some(path) = lock.to_str().filter(|path| !path.contains('\n')) else { return };
        let record = self.locks().join(BlobDigest::of(path.as_bytes()).hex());
        let known = read_regular_text(&record, MAX_RECORD).ok();
        if known.is_none() && plugins.is_empty() {
            return;
        }
        let mut text = format!("{path}\n");
        for digest in digests(plugins.values()) {
            text.push_str(&digest.hex());
            text.push('\n');
        }
        let is_new = |age| age < RENEWED_EVERY;
        if known.as_deref() == Some(&*text) && age(&record).is_some_and(is_new) {
            return;
        }
        self.replace_record(&record, text.as_bytes()).ok();
    }

    /// Removes what neither a known lock nor one of the held updates needs. Blocks.
    ///
    /// # Errors
    /// A known lock cannot be read. Nothing is removed then.
    pub fn collect_garbage(&self, mode: GarbageMode, held: &[LockedPlugin]) -> Result<Garbage, GarbageError> {
        let (mut needed, locks) = self.needed(mode)?;
        needed.extend(digests(held.iter()));
        let mut garbage = Garbage { locks, ..Garbage::default() };
        for (path, digest) in self.blobs()? {
            let is_old = age(&path).is_some_and(|age| age >= GRACE);
            if !is_old || needed.contains(&digest) {
                garbage.kept += 1;
                continue;
            }
            let bytes = path.metadata().map(|meta| meta.len()).unwrap_or_default();
            if mode == GarbageMode::Remove && !self.remove_blob(&path).map_err(|error| self.failed(error))? {
                garbage.kept += 1;
                continue;
            }
            garbage.bytes += bytes;
            garbage.removed.push(digest);
        }
        garbage.removed.sort();
        Ok(garbage)
    }

    /// Removes a blob, unless another process began to use it meanwhile. Its name goes first: [`BlobStore::reuse`] looks at
    /// the name last.
    fn remove_blob(&self, path: &Path) -> io::Result<bool> {
        let aside = self.incoming().join(path.file_name().unwrap_or_default());
        std::fs::rename(path, &aside)?;
        if age(&aside).is_some_and(|age| age < GRACE) {
            std::fs::rename(&aside, path)?;
            return Ok(false);
        }
        std::fs::remove_file(&aside)?;
        Ok(true)
    }

    /// What the known locks need, and their number. The records of those that are there are renewed.
    fn needed(&self, mode: GarbageMode) -> Result<(BTreeSet<BlobDigest>, usize), GarbageError> {
        let (mut needed, mut locks) = (BTreeSet::new(), 0);
        for record in self.entries(&self.locks())? {
            locks += 1;
            if locks > MAX_LOCKS {
                let many = io::Error::other(format!("it knows more than {MAX_LOCKS} locks"));
                return Err(self.failed(many).into());
            }
            let text = read_regular_text(&record, MAX_RECORD).map_err(|error| self.failed(error))?;
            let mut lines = text.lines();
            let path = PathBuf::from(lines.next().unwrap_or_default());
            match lock::read_existing(&path).map_err(GarbageError::Lock)? {
                Some(plugins) => {
                    if mode == GarbageMode::Remove {
                        let renewed =
                            File::open(&record).and_then(|file| file.set_modified(SystemTime::now()));
                        renewed.map_err(|error| self.failed(error))?;
                    }
                    needed.extend(digests(plugins.values()));
                }
                None if age(&record).is_some_and(|age| age >= GRACE) => {
                    locks -= 1;
                    if mode == GarbageMode::Remove {
                        std::fs::remove_file(&record).map_err(|error| self.failed(error))?;
                    }
                }
                None => needed.extend(lines.filter_map(BlobDigest::from_hex)),
            }
        }
        Ok((needed, locks))
    }

    /// All blobs. Other files are left alone.
    fn blobs(&self) -> Result<Vec<(PathBuf, BlobDigest)>, StoreError> {
        let blob = |path: PathBuf| {
            let digest = BlobDigest::from_hex(path.file_name()?.to_str()?)?;
            Some((path, digest))
        };
        Ok(self.entries(&self.blob_folder())?.into_iter().filter_map(blob).collect())
    }

    fn entries(&self, folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
        match std::fs::read_dir(folder) {
            Ok(entries) => {
                let paths = entries.map(|entry| entry.map(|entry| entry.path()));
                paths.collect::<io::Result<_>>().map_err(|error| self.failed(error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.failed(error)),
        }
    }
}

/// The blobs of plugins.
fn digests<'a>(plugins: impl Iterator<Item = &'a LockedPlugin>) -> BTreeSet<BlobDigest> {
    let of_plugin = |plugin: &LockedPlugin| [Some(plugin.layer), Some(plugin.manifest), plugin.bundle];
    plugins.flat_map(of_plugin).flatten().collect()
}

/// The time since a file was written or renewed.
fn age(path: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(path.metadata().ok()?.modified().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use toolbay_policy::name::PluginId;

    use super::*;
    use crate::lock::Signer;

    struct GarbageFixture {
        dir: tempfile::TempDir,
        store: BlobStore,
    }

    impl GarbageFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { store: BlobStore::new(dir.path().join("store")), dir }
        }

        /// Stores a plugin. Its blobs are old.
        fn plugin(&self, name: &str) -> LockedPlugin {
            let put = |part: &str| {
                let digest = self.store.put(format!("{part} of {name}").as_bytes()).unwrap();
                age_by(&self.store.path(&digest), GRACE);
                digest
            };
            LockedPlugin {
                source: format!("oci://registry.example/{name}"),
                tag: None,
                manifest: put("manifest"),
                layer: put("component"),
                size: 9,
                signer: Signer::Key(BlobDigest::of(b"key")),
                bundle: Some(put("bundle")),
                signed_at: None,
            }
        }

        /// Writes a lock, and remembers it.
        fn lock(&self, name: &str, plugins: &[&LockedPlugin]) -> PathBuf {
            let folder = self.dir.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join(lock::FILE_NAME);
            let id = |at: usize| PluginId::new(&format!("p{at}")).unwrap();
            let plugins: LockedPlugins =
                plugins.iter().enumerate().map(|(at, plugin)| (id(at), (*plugin).clone())).collect();
            std::fs::write(&file, lock::to_text(&plugins).unwrap()).unwrap();
            self.store.remember_lock(&file, &plugins);
            file
        }

        fn removed(&self, mode: GarbageMode) -> usize {
            self.store.collect_garbage(mode, &[]).unwrap().removed.len()
        }
    }

    fn age_by(path: &Path, age: Duration) {
        File::open(path).unwrap().set_modified(SystemTime::now() - age - Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn what_any_known_lock_needs_stays() {
        let fixture = GarbageFixture::new();
        assert_eq!(fixture.store.collect_garbage(GarbageMode::Remove, &[]).unwrap(), Garbage::default());
        let [one, two, both, none] = ["one", "two", "both", "none"].map(|name| fixture.plugin(name));
        fixture.lock("a", &[&one, &both]);
        let file = fixture.lock("b", &[&two, &both]);
        let preview = fixture.store.collect_garbage(GarbageMode::Preview, &[]).unwrap();
        assert_eq!((preview.removed.len(), preview.kept, preview.locks), (3, 9, 2));
        assert!(preview.bytes > 0 && fixture.store.path(&none.layer).exists());
        assert_eq!(fixture.removed(GarbageMode::Remove), 3);
        assert!(!fixture.store.path(&none.layer).exists());
        // The lock changes, as version control changes it, and nobody read it.
        std::fs::write(&file, "version = 1\n").unwrap();
        assert_eq!(fixture.removed(GarbageMode::Remove), 3);
        assert!(fixture.store.path(&both.layer).exists() && !fixture.store.path(&two.layer).exists());
    }

    #[test]
    fn what_is_young_or_was_used_again_stays() {
        let fixture = GarbageFixture::new();
        let plugin = fixture.plugin("one");
        fixture.store.put(b"young").unwrap();
        // An `add` finds the blob, and writes its lock later.
        assert!(fixture.store.reuse(&plugin.layer, 16));
        fixture.store.put(b"bundle of one").unwrap();
        let garbage = fixture.store.collect_garbage(GarbageMode::Remove, &[]).unwrap();
        assert_eq!((garbage.removed, garbage.kept), (vec![plugin.manifest], 3));
        // Only blobs are removed.
        let other = fixture.store.blob_folder().join("readme");
        std::fs::write(&other, "x").unwrap();
        age_by(&other, GRACE);
        assert_eq!(fixture.removed(GarbageMode::Remove), 0);
        assert!(other.exists());
    }

    #[test]
    fn a_lock_that_is_gone_counts_for_a_while() {
        let fixture = GarbageFixture::new();
        let plugin = fixture.plugin("one");
        let file = fixture.lock("a", &[&plugin]);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(fixture.removed(GarbageMode::Remove), 0);
        let record = std::fs::read_dir(fixture.store.locks()).unwrap().next().unwrap().unwrap().path();
        age_by(&record, GRACE);
        assert_eq!(fixture.removed(GarbageMode::Preview), 3);
        assert!(record.exists());
        assert_eq!(fixture.removed(GarbageMode::Remove), 3);
        assert!(!record.exists());
    }

    #[test]
    fn a_lock_that_was_there_at_the_last_collection_counts_from_then() {
        let fixture = GarbageFixture::new();
        let plugin = fixture.plugin("one");
        let file = fixture.lock("a", &[&plugin]);
        let record = std::fs::read_dir(fixture.store.locks()).unwrap().next().unwrap().unwrap().path();
        // No command read the lock for long. It is on a disk that is taken away then.
        age_by(&record, GRACE);
        assert_eq!(fixture.removed(GarbageMode::Remove), 0);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(fixture.removed(GarbageMode::Remove), 0);
    }

    #[test]
    fn what_a_held_update_needs_stays() {
        let fixture = GarbageFixture::new();
        let held = fixture.plugin("held");
        let kept = fixture.store.collect_garbage(GarbageMode::Remove, std::slice::from_ref(&held)).unwrap();
        assert_eq!((kept.removed.len(), kept.kept), (0, 3));
        assert_eq!(fixture.removed(GarbageMode::Remove), 3);
    }

    #[test]
    fn a_blob_that_is_used_while_it_is_removed_stays() {
        let fixture = GarbageFixture::new();
        let plugin = fixture.plugin("one");
        let path = fixture.store.path(&plugin.layer);
        // It was old when the collection looked, and is used now.
        assert!(fixture.store.reuse(&plugin.layer, 16));
        assert!(!fixture.store.remove_blob(&path).unwrap());
        assert!(fixture.store.verify(&plugin.layer, 16));
        age_by(&path, GRACE);
        assert!(fixture.store.remove_blob(&path).unwrap());
        assert!(!path.exists() && !fixture.store.reuse(&plugin.layer, 16));
    }

    #[test]
    fn a_lock_that_cannot_be_read_stops_it() {
        let fixture = GarbageFixture::new();
        let (plugin, other) = (fixture.plugin("one"), fixture.plugin("other"));
        let file = fixture.lock("a", &[&plugin]);
        std::fs::write(&file, "version = 1\n<<<<<<< ours\n").unwrap();
        let error = fixture.store.collect_garbage(GarbageMode::Remove, &[]).unwrap_err().to_string();
        assert!(error.contains("toolbay.lock`, line 2"), "{error}");
        assert!(fixture.store.path(&other.layer).exists());
    }

    #[test]
    fn a_record_is_renewed_and_follows_its_lock() {
        let fixture = GarbageFixture::new();
        let plugin = fixture.plugin("one");
        fixture.store.remember_lock(Path::new("/nowhere/toolbay.lock"), &LockedPlugins::new());
        let records = std::fs::read_dir(fixture.store.locks()).unwrap().count();
        assert_eq!(records, 0, "an empty lock needs no record");
        let file = fixture.lock("a", &[&plugin]);
        let record = std::fs::read_dir(fixture.store.locks()).unwrap().next().unwrap().unwrap().path();
        age_by(&record, RENEWED_EVERY);
        fixture.lock("a", &[&plugin]);
        assert!(age(&record).unwrap() < RENEWED_EVERY);
        // A lock without plugins needs nothing, also when it is gone.
        fixture.store.remember_lock(&file, &LockedPlugins::new());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(fixture.removed(GarbageMode::Remove), 3);
    }
}
