//! The file of the store: where it is, who may touch it, how several processes share it.
//!
//! redb's multi-writer mode lets any number of processes have the file open; write transactions take turns by locks on
//! ranges of bytes, which the system releases when a process dies. redb waits for such a lock as long as it takes, so
//! the waits are bounded here: a process that was stopped while it held one must not stop the others for good.

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

use super::tables;
use crate::storage::private;

/// Memory for pages of the file. Small beside a guest's 64 MiB; the system caches the file too.
const CACHE_BYTES: usize = 16 << 20;

const FILE: &str = "kv.redb";
/// Locked by whoever waits to write, so that a process that writes without pause gives way.
const TURN: &str = "kv.wanted";

/// Why the store cannot be used now.
#[derive(Debug)]
pub(super) enum Problem {
    /// Another process holds it.
    InUse,
    /// The disk is full or fails, or the file may not be opened. Nothing is wrong with what is in it.
    Io(String),
    /// The file or the folder is not as it must be.
    Storage(String),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => Self::InUse,
            Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Self::InUse,
            Error::Io(error) => Self::Io(error.to_string()),
            // What came of an error of the disk; the file is opened again.
            Error::PreviousIo => Self::Io(Error::PreviousIo.to_string()),
            other => Self::Storage(other.to_string()),
        }
    }
}

impl Problem {
    fn io(path: &Path, what: &str, error: &io::Error) -> Self {
        Self::Io(format!("`{}` {what}: {error}", path.display()))
    }

    fn new(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Storage(format!("`{}` {problem}", path.display()))
    }
}

/// The store while it is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) database: Database,
    file: Option<OpenFile>,
    wait: Duration,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    identity: (u64, u64),
    turn: File,
}

/// Holds the right to be the next that writes.
#[derive(Debug)]
pub(super) struct Turn<'a>(Option<&'a File>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            file.unlock().ok();
        }
    }
}

impl Open {
    /// Opens the store below a folder, both made if they are not there; without a folder, one in memory. Waits up to
    /// `wait` for each lock of another process.
    pub(super) fn new(dir: Option<&Path>, wait: Duration) -> Result<Self, Problem> {
        let Some(dir) = dir else {
            let database =
                builder(ConcurrencyMode::ExclusiveWriter).create_with_backend(InMemoryBackend::new());
            let open = Self { database: database.map_err(Error::from)?, file: None, wait };
            open.prepare(Path::new("memory"))?;
            return Ok(open);
        };
        make_folder(dir)?;
        private::sweep_temporary(dir);
        let path = dir.join(FILE);
        if matches!(std::fs::symlink_metadata(&path), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            create(&path, wait)?;
        }
        let turn = open_file(&dir.join(TURN), Missing::Create)?;
        let meta = open_file(&path, Missing::Refuse)?.metadata().map_err(|e| Problem::new(&path, e))?;
        if meta.len() == 0 {
            return Err(Problem::new(&path, "is empty: something cut it off"));
        }
        let database = open_shared(&path, wait)?;
        let file = Some(OpenFile { path: path.clone(), identity: identity_of(&meta), turn });
        let open = Self { database, file, wait };
        open.prepare(&path)?;
        Ok(open)
    }

    /// Makes a complete store at a path where nothing is.
    pub(super) fn create_file(path: &Path, wait: Duration) -> Result<Self, Problem> {
        drop(open_file(path, Missing::Create)?);
        let open = Self { database: open_shared(path, wait)?, file: None, wait };
        open.prepare(path)?;
        Ok(open)
    }

    /// Makes the tables of a new file, and refuses one of another version.
    fn prepare(&self, path: &Path) -> Result<(), Problem> {
        let version = |open: &Self| {
            let read = open.database.begin_read().map_err(Error::from)?;
            Ok::<_, Problem>(tables::version(&read)?)
        };
        if version(self)?.is_none() {
            let write = self.database.begin_write().map_err(Error::from)?;
            tables::create(&write)?;
            write.commit().map_err(Error::from)?;
        }
        let found = version(self)?.unwrap_or(0);
        tables::check_version(found).map_err(|problem| Problem::new(path, problem))
    }

    /// Whether the file at the path is still the one that is open: what is written to a removed file is lost.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_none_or(|file| {
            std::fs::symlink_metadata(&file.path).is_ok_and(|now| identity_of(&now) == file.identity)
        })
    }

    /// Whether it can be closed and opened again without loss.
    pub(super) fn is_on_disk(&self) -> bool {
        self.file.is_some()
    }

    /// Waits behind the processes that wait to write.
    pub(super) fn take_turn(&self) -> Result<Turn<'_>, Problem> {
        let Some(file) = &self.file else { return Ok(Turn(None)) };
        let attempt = || private::try_lock(&file.turn).map_err(BackendError::from);
        wait(self.wait, attempt).map_err(|error| Problem::from(Error::from(error)))?;
        Ok(Turn(Some(&file.turn)))
    }
}

fn builder(mode: ConcurrencyMode) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_concurrency_mode(mode);
    builder
}

/// Makes the store at a path. Complete before it is there: a process that is killed leaves no half of one. Another
/// process may do the same; the first one's file stays.
fn create(path: &Path, wait: Duration) -> Result<(), Problem> {
    let temporary = private::temporary_beside(path);
    let made = Open::create_file(&temporary, wait).map(drop).and_then(|()| {
        match rustix::fs::renameat_with(CWD, &temporary, CWD, path, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(Problem::new(path, format!("cannot be made: {error}"))),
        }
    });
    std::fs::remove_file(&temporary).ok();
    made
}

fn open_shared(path: &Path, wait: Duration) -> Result<Database, Problem> {
    let open = |mode| {
        let file = FileBackend::new(open_file(path, Missing::Refuse)?).map_err(Error::from)?;
        let backend = Patient { file, wait };
        Ok::<_, Problem>(builder(mode).create_with_backend(backend))
    };
    let end = Instant::now() + wait;
    let mut mode = ConcurrencyMode::MultiWriter;
    loop {
        match open(mode)? {
            Ok(database) => return Ok(database),
            // Something else than this host has it, as a whole.
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            // The system has no locks on ranges: then one process at a time.
            Err(DatabaseError::Storage(StorageError::Unsupported))
                if mode == ConcurrencyMode::MultiWriter =>
            {
                mode = ConcurrencyMode::ExclusiveWriter;
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(Problem::InUse),
            Err(error) => {
                return Err(match Problem::from(Error::from(error)) {
                    Problem::InUse => Problem::InUse,
                    Problem::Io(problem) => {
                        Problem::Io(format!("`{}` cannot be opened: {problem}", path.display()))
                    }
                    Problem::Storage(problem) => Problem::new(path, format!("cannot be opened: {problem}")),
                });
            }
        }
    }
}

fn identity_of(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// The state of plugins is this user's alone: others must not read or plant it.
fn make_folder(dir: &Path) -> Result<(), Problem> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| Problem::io(dir, "cannot be made", &e))?;
    let meta = std::fs::metadata(dir).map_err(|e| Problem::io(dir, "cannot be looked at", &e))?;
    trusted(&meta).map_err(|problem| Problem::new(dir, problem))
}

/// What opening does where no file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Refuse,
}

fn open_file(path: &Path, missing: Missing) -> Result<File, Problem> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(missing == Missing::Create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|e| Problem::io(path, "cannot be opened", &e))?;
    let meta = file.metadata().map_err(|e| Problem::io(path, "cannot be looked at", &e))?;
    if !meta.is_file() {
        return Err(Problem::new(path, "is not a file"));
    }
    trusted(&meta).map_err(|problem| Problem::new(path, problem))?;
    Ok(file)
}

fn trusted(meta: &Metadata) -> Result<(), &'static str> {
    if meta.uid() != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if meta.mode() & 0o022 != 0 {
        Err("can be written by others: only its owner may (mode 0700 for the folder, 0600 for the file)")
    } else {
        Ok(())
    }
}

/// Tries until the lock is there or the time is up.
fn wait(limit: Duration, attempt: impl FnMut() -> Result<bool, BackendError>) -> Result<(), BackendError> {
    if private::wait(limit, attempt)? {
        return Ok(());
    }
    Err(BackendError::Io(io::Error::new(io::ErrorKind::TimedOut, "another process holds the file")))
}

/// A file whose locks are not waited for for ever.
#[derive(Debug)]
struct Patient {
    file: FileBackend,
    wait: Duration,
}

impl StorageBackend for Patient {
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
        wait(self.wait, || self.file.try_lock_range(start, end))
    }
    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        wait(self.wait, || self.file.try_lock_shared_range(start, end))
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
    fn a_full_disk_is_no_damage_to_the_file() {
        let full = || io::Error::from(rustix::io::Errno::NOSPC);
        for error in [Error::Io(full()), Error::PreviousIo] {
            assert!(matches!(Problem::from(error), Problem::Io(_)));
        }
        assert!(matches!(Problem::io(Path::new("kv.redb"), "cannot be opened", &full()), Problem::Io(_)));
        assert!(matches!(Problem::from(Error::Corrupted("x".to_owned())), Problem::Storage(_)));
    }
}
