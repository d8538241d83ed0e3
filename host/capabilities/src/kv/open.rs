//! The file of the store: its location, its permissions and its sharing between processes.
//!
//! In redb's multi-writer mode any number of processes can open the file. Write transactions exclude each other by
//! byte-range locks, which the system releases when a process dies. redb waits for a lock without a time-out, so the
//! waits are bounded here: a process that was stopped while it held a lock must not block the others forever.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    BackendError, Builder, ConcurrencyMode, Database, DatabaseError, Error, ReadableDatabase, StorageBackend,
    StorageError,
};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use toolbay_state::private;

use super::{header, tables};

/// The page cache of redb. Small next to the 64 MiB of a guest; the system caches the file, too.
const CACHE_BYTES: usize = 16 << 20;

const STORE_FILE: &str = "kv.redb";
/// Locked by a process that waits to write, so that a process that writes without pause gives way.
const WRITER_LOCK_FILE: &str = "kv.wanted";

/// The reason why the store cannot be used.
#[derive(Debug)]
pub(super) enum KvStoreError {
    /// Another process holds a lock.
    InUse,
    /// The disk is full or fails, or the file cannot be opened. That damages nothing.
    Io(String),
    /// The file or folder is damaged or has wrong permissions.
    Storage(String),
}

impl From<Error> for KvStoreError {
    fn from(error: Error) -> Self {
        match error {
            Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => Self::InUse,
            Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::InUse,
            // The system reports none of these: redb does, for content that is not there or makes no sense.
            Error::Io(error) if is_damage(error.kind()) => Self::Storage(format!("is damaged: {error}")),
            Error::Io(error) => Self::Io(error.to_string()),
            // A follow-up of an I/O error; the file is opened again.
            Error::PreviousIo => Self::Io(Error::PreviousIo.to_string()),
            other => Self::Storage(other.to_string()),
        }
    }
}

fn is_damage(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

impl KvStoreError {
    fn io(path: &Path, what: &str, error: &io::Error) -> Self {
        Self::Io(format!("`{}` {what}: {error}", path.display()))
    }

    fn storage(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Storage(format!("`{}` {problem}", path.display()))
    }
}

/// The open store.
#[derive(Debug)]
pub(super) struct OpenStore {
    pub(super) database: Database,
    file: Option<StoreFile>,
    wait: Duration,
}

#[derive(Debug)]
struct StoreFile {
    path: PathBuf,
    identity: (u64, u64),
    writer_lock: File,
}

/// Held by the next process to write.
#[derive(Debug)]
pub(super) struct WriterLock<'a>(Option<&'a File>);

impl Drop for WriterLock<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            file.unlock().ok();
        }
    }
}

impl OpenStore {
    /// Opens the store in a folder and creates both if needed; without a folder, opens one in memory. Waits up to
    /// `wait` for each lock of another process.
    pub(super) fn new(dir: Option<&Path>, wait: Duration) -> Result<Self, KvStoreError> {
        let Some(dir) = dir else {
            let database =
                builder(ConcurrencyMode::ExclusiveWriter).create_with_backend(InMemoryBackend::new());
            let open = Self { database: database.map_err(Error::from)?, file: None, wait };
            open.prepare(Path::new("memory"))?;
            return Ok(open);
        };
        make_folder(dir)?;
        private::sweep_temporary(dir);
        let path = dir.join(STORE_FILE);
        if matches!(std::fs::symlink_metadata(&path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            create(&path, wait)?;
        }
        let writer_lock = open_file(&dir.join(WRITER_LOCK_FILE), MissingFile::Create)?;
        let opened = open_file(&path, MissingFile::Refuse)?;
        let examined = opened.metadata().and_then(|meta| Ok((meta, header::is_truncated(&opened)?)));
        let (meta, is_truncated) = examined.map_err(|e| KvStoreError::io(&path, "cannot be examined", &e))?;
        if is_truncated {
            return Err(KvStoreError::storage(
                &path,
                "is shorter than its content: another program truncated it",
            ));
        }
        drop(opened);
        let database = open_shared(&path, wait)?;
        let file = Some(StoreFile { path: path.clone(), identity: identity_of(&meta), writer_lock });
        let open = Self { database, file, wait };
        open.prepare(&path)?;
        Ok(open)
    }

    /// Creates a complete store at an unused path.
    pub(super) fn create_file(path: &Path, wait: Duration) -> Result<Self, KvStoreError> {
        drop(open_file(path, MissingFile::Create)?);
        let open = Self { database: open_shared(path, wait)?, file: None, wait };
        open.prepare(path)?;
        Ok(open)
    }

    /// Creates the tables of a new file, and refuses a file of another format version.
    fn prepare(&self, path: &Path) -> Result<(), KvStoreError> {
        let version = |open: &Self| {
            let read = open.database.begin_read().map_err(Error::from)?;
            Ok::<_, KvStoreError>(tables::version(&read)?)
        };
        if version(self)?.is_none() {
            let write = self.database.begin_write().map_err(Error::from)?;
            tables::create(&write)?;
            write.commit().map_err(Error::from)?;
        }
        let found = version(self)?.unwrap_or(0);
        tables::check_version(found).map_err(|problem| KvStoreError::storage(path, problem))
    }

    /// Whether the path still names the open file: writes to a removed file would be lost.
    pub(super) fn is_current_file(&self) -> bool {
        self.file.as_ref().is_none_or(|file| {
            std::fs::symlink_metadata(&file.path).is_ok_and(|now| identity_of(&now) == file.identity)
        })
    }

    /// Whether the store can be closed and opened again without loss.
    pub(super) fn is_on_disk(&self) -> bool {
        self.file.is_some()
    }

    /// Waits behind the processes that wait to write.
    pub(super) fn lock_writer(&self) -> Result<WriterLock<'_>, KvStoreError> {
        let Some(file) = &self.file else { return Ok(WriterLock(None)) };
        let attempt = || private::try_lock(&file.writer_lock).map_err(BackendError::from);
        wait_for_lock(self.wait, attempt).map_err(|error| KvStoreError::from(Error::from(error)))?;
        Ok(WriterLock(Some(&file.writer_lock)))
    }
}

fn builder(mode: ConcurrencyMode) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_concurrency_mode(mode);
    builder
}

/// Creates the store at a path. The file is complete before it gets its name, so a killed process leaves no partial
/// one. When several processes create it, the first one's file stays.
fn create(path: &Path, wait: Duration) -> Result<(), KvStoreError> {
    let temporary = private::temporary_path(path);
    let made = OpenStore::create_file(&temporary, wait).map(drop).and_then(|()| {
        match rustix::fs::renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(KvStoreError::storage(path, format!("cannot be created: {error}"))),
        }
    });
    std::fs::remove_file(&temporary).ok();
    made
}

fn open_shared(path: &Path, wait: Duration) -> Result<Database, KvStoreError> {
    let open = |mode| {
        let file = FileBackend::new(open_file(path, MissingFile::Refuse)?).map_err(Error::from)?;
        let backend = LockTimeoutBackend { file, wait };
        Ok::<_, KvStoreError>(builder(mode).create_with_backend(backend))
    };
    let end = Instant::now() + wait;
    let mut mode = ConcurrencyMode::MultiWriter;
    loop {
        match open(mode)? {
            Ok(database) => return Ok(database),
            // Another program has locked the whole file.
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            // Without byte-range locks, one process at a time can use the file.
            Err(DatabaseError::Storage(StorageError::Unsupported))
                if mode == ConcurrencyMode::MultiWriter =>
            {
                mode = ConcurrencyMode::ExclusiveWriter;
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(KvStoreError::InUse),
            Err(error) => {
                return Err(match KvStoreError::from(Error::from(error)) {
                    KvStoreError::InUse => KvStoreError::InUse,
                    KvStoreError::Io(problem) => {
                        KvStoreError::Io(format!("`{}` cannot be opened: {problem}", path.display()))
                    }
                    KvStoreError::Storage(problem) => {
                        KvStoreError::storage(path, format!("cannot be opened: {problem}"))
                    }
                });
            }
        }
    }
}

fn identity_of(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Creates the folder for this user only: others must not read or plant plugin state.
fn make_folder(dir: &Path) -> Result<(), KvStoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| KvStoreError::io(dir, "cannot be created", &e))?;
    let meta = std::fs::metadata(dir).map_err(|e| KvStoreError::io(dir, "cannot be examined", &e))?;
    check_ownership(&meta).map_err(|problem| KvStoreError::storage(dir, problem))
}

/// The behaviour of an open when the file is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingFile {
    Create,
    Refuse,
}

fn open_file(path: &Path, missing: MissingFile) -> Result<File, KvStoreError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(missing == MissingFile::Create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|e| KvStoreError::io(path, "cannot be opened", &e))?;
    let meta = file.metadata().map_err(|e| KvStoreError::io(path, "cannot be examined", &e))?;
    if !meta.is_file() {
        return Err(KvStoreError::storage(path, "is not a file"));
    }
    check_ownership(&meta).map_err(|problem| KvStoreError::storage(path, problem))?;
    Ok(file)
}

fn check_ownership(meta: &Metadata) -> Result<(), String> {
    private::check_trusted(meta).map_err(|problem| {
        format!("{problem}: only its owner may write to it (mode 0700 for the folder, 0600 for the file)")
    })
}

/// Retries until the lock is acquired or the time is up.
fn wait_for_lock(
    limit: Duration,
    attempt: impl FnMut() -> Result<bool, BackendError>,
) -> Result<(), BackendError> {
    if private::retry_until(limit, attempt)? {
        return Ok(());
    }
    Err(BackendError::Io(io::Error::new(io::ErrorKind::TimedOut, "another process holds the file")))
}

/// A file backend that waits for locks with a time-out.
#[derive(Debug)]
struct LockTimeoutBackend {
    file: FileBackend,
    wait: Duration,
}

impl StorageBackend for LockTimeoutBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }
    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }
    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        wait_for_lock(self.wait, || self.file.try_lock_range(start, end))
    }
    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        wait_for_lock(self.wait, || self.file.try_lock_shared_range(start, end))
    }
    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_file_is_not_opened_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(STORE_FILE);
        let open = || OpenStore::new(Some(dir.path()), Duration::from_secs(5));
        drop(open().unwrap());
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 5, 9, 31, 100, 4096, 8192, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
            let truncated = whole.get(..len).unwrap();
            std::fs::write(&path, truncated).unwrap();
            let refused = open().unwrap_err();
            assert!(
                matches!(&refused, KvStoreError::Storage(text) if text.contains("truncated")),
                "{refused:?}"
            );
            assert!(std::fs::read(&path).unwrap() == truncated, "{len} bytes");
        }
        std::fs::write(&path, &whole).unwrap();
        open().unwrap();
    }

    #[test]
    fn a_full_disk_is_not_reported_as_damage() {
        let full = || io::Error::from(rustix::io::Errno::NOSPC);
        for error in [Error::Io(full()), Error::PreviousIo] {
            assert!(matches!(KvStoreError::from(error), KvStoreError::Io(_)));
        }
        assert!(matches!(
            KvStoreError::io(Path::new("kv.redb"), "cannot be opened", &full()),
            KvStoreError::Io(_)
        ));
        assert!(matches!(KvStoreError::from(Error::Corrupted("x".to_owned())), KvStoreError::Storage(_)));
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput] {
            let damage = KvStoreError::from(Error::Io(kind.into()));
            assert!(matches!(&damage, KvStoreError::Storage(text) if text.contains("damaged")), "{damage:?}");
        }
    }
}
