//! File operations below one granted folder, through the handle that was opened at load.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use toolbay_policy::capability::path_rule;

use super::beneath::{LinkTarget, PathResolution};
use super::grants::{self, FileAccess, PathGrants, PathScope};
use super::opened_folder::OpenedFolder;
use super::quota::FileUsage;
use super::reads::ReadTracker;
use crate::bindings::host::files::{DirEntry, FileData, FileError, FileKind, FileStat};

/// Maximum number of bytes of one read; larger files are read in parts.
const MAX_READ: u64 = 8 << 20;
/// Maximum number of bytes read on an async thread: about 100 µs.
const MAX_CACHED_READ: u64 = 1 << 20;
/// Maximum number of entries of a listing.
const MAX_ENTRIES: usize = 10_000;
/// A listing checks for cancellation after this many entries.
const CANCELLATION_INTERVAL: usize = 256;
/// Retries of a path whose links change while it is opened.
const MAX_RETRIES: usize = 8;

/// An operation on one path, resolved to the granted folder above it.
#[derive(Debug)]
pub(crate) struct FileOperation {
    pub(super) root: Arc<OpenedFolder>,
    pub(super) path_grants: Arc<PathGrants>,
    pub(super) access: FileAccess,
    pub(super) scope: PathScope,
    /// Whether the guest wrote the path as a folder: `name/`.
    pub(super) expects_folder: bool,
    pub(super) relative: PathBuf,
    /// The path as the guest wrote it.
    pub(super) guest_path: String,
    pub(super) read_tracker: ReadTracker,
    pub(super) usage: Arc<FileUsage>,
    /// The granted folder of the path, if it did not exist at load.
    pub(super) missing_folder: Option<PathBuf>,
}

/// The error of an operation before its conversion to the contract.
enum OperationError {
    System(Errno),
    Guest(FileError),
}

impl From<Errno> for OperationError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<FileError> for OperationError {
    fn from(error: FileError) -> Self {
        Self::Guest(error)
    }
}

type OperationResult<T> = Result<T, OperationError>;

impl FileOperation {
    /// The path as the policy names it.
    fn policy_path(&self, at: &Path) -> PathBuf {
        if at == Path::new(".") { self.root.path.clone() } else { self.root.path.join(at) }
    }

    /// The path with all links resolved.
    fn real_path(&self, at: &Path) -> PathBuf {
        if at == Path::new(".") { self.root.real.clone() } else { self.root.real.join(at) }
    }

    fn shown(&self) -> String {
        path_rule::printable_path(&self.guest_path)
    }

    fn other_error<T>(&self, what: &str) -> OperationResult<T> {
        Err(FileError::Other(format!("`{}` {what}", self.shown())).into())
    }

    fn denied_error<T>(&self, what: &str) -> OperationResult<T> {
        Err(FileError::Denied(format!("`{}` {what}", self.shown())).into())
    }

    /// Runs `act` on the path with its links resolved. When `act` returns `ELOOP`, a component is a link: the links
    /// are resolved, and the target must be granted as well.
    fn with_resolved_path<T>(
        &self,
        last: bool,
        act: impl Fn(&Path) -> OperationResult<T>,
    ) -> Result<T, FileError> {
        let mut at = self.relative.clone();
        let mut tries = 0..MAX_RETRIES;
        let done = loop {
            match act(&at) {
                Err(OperationError::System(Errno::LOOP)) if tries.next().is_some() => {}
                done => break done,
            }
            at = match self.root.beneath().resolve(&at, last) {
                Ok(LinkTarget::Inside(target, _))
                    if self.path_grants.cover(&self.policy_path(&target), self.access, self.scope) =>
                {
                    target
                }
                // The target is not revealed.
                Ok(LinkTarget::Inside(..) | LinkTarget::Outside) => {
                    break self.denied_error("leads through a link to a path that is not granted");
                }
                Err(Errno::LOOP) => break self.other_error("has too many links"),
                Err(error) => break Err(error.into()),
            };
        };
        done.map_err(|stop| match stop {
            OperationError::Guest(error) => error,
            OperationError::System(Errno::NOENT) => match &self.missing_folder {
                Some(folder) if self.access == FileAccess::Write && !self.root.contains(folder) => {
                    FileError::Denied(grants::missing_folder_refusal(&self.shown(), folder, self.access).text)
                }
                _ => FileError::NotFound,
            },
            OperationError::System(Errno::LOOP) => {
                FileError::Other(format!("`{}` keeps changing", self.shown()))
            }
            OperationError::System(error) => match std::io::Error::from(error) {
                error if error.kind() == ErrorKind::PermissionDenied => {
                    FileError::Denied(format!("`{}`: {error}", self.shown()))
                }
                error => FileError::Other(format!("`{}`: {error}", self.shown())),
            },
        })
    }

    /// Returns the status of the path, if the tool may know it.
    fn stat_path(&self, at: &Path) -> OperationResult<Stat> {
        let allowed = || self.path_grants.cover(&self.policy_path(at), self.access, PathScope::Path);
        match self.root.stat(at, self.access) {
            Ok(stat) if kind_of(&stat) == FileType::Symlink => Err(Errno::LOOP.into()),
            Ok(stat) if kind_of(&stat) == FileType::Directory || allowed() => Ok(stat),
            // A path that is granted only as the parent of a grant may be a folder; for anything else, its existence
            // is not revealed.
            Ok(_) | Err(Errno::NOENT) if !allowed() => self.denied_error("is not granted"),
            Ok(stat) => Ok(stat),
            Err(error) => Err(error.into()),
        }
    }

    fn must_be_file(&self, stat: &Stat) -> OperationResult<()> {
        match kind_of(stat) {
            FileType::RegularFile if self.expects_folder => {
                self.other_error("is a file, but is written as a folder")
            }
            FileType::RegularFile => Ok(()),
            FileType::Directory => self.other_error("is a folder, not a file"),
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => self.other_error("is a special file"),
        }
    }

    /// Opens a regular file. Its type is checked before and after the open: another type is opened only if the path
    /// was swapped in between, and `O_NONBLOCK` then keeps the open from blocking.
    fn open_file(&self, at: &Path) -> OperationResult<(OwnedFd, Stat)> {
        self.must_be_file(&self.stat_path(at)?)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.root.open(at, flags, self.access)?;
        let stat = rustix::fs::fstat(&file)?;
        self.must_be_file(&stat)?;
        Ok((file, stat))
    }

    pub(crate) fn read(&self, offset: u64, max_bytes: Option<u64>) -> Result<FileData, FileError> {
        self.with_resolved_path(true, |at| {
            let (file, stat) = self.open_file(at)?;
            let wanted = read_length(&stat, offset, max_bytes)?;
            let mut data = Vec::with_capacity(wanted);
            while data.len() < wanted {
                let from = offset.saturating_add(data.len() as u64);
                match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut data), from) {
                    Ok(0) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            data.truncate(wanted);
            Ok(self.record_read(at, &stat, data))
        })
    }

    fn record_read(&self, at: &Path, stat: &Stat, data: Vec<u8>) -> FileData {
        let stat = to_file_stat(stat);
        self.read_tracker.record_read(&self.real_path(at), &stat.version);
        FileData { data, stat }
    }

    /// Reads from the page cache, by a path without links: takes microseconds and never blocks. `None`: use
    /// [`FileOperation::read`].
    pub(crate) fn try_read_cached(&self, offset: u64, max_bytes: Option<u64>) -> Option<FileData> {
        let reads = self.root.cached_reads?;
        let is_wanted = |stat: &Stat| self.must_be_file(stat).is_ok();
        let file = self.root.beneath().open_cached(&self.relative, is_wanted)?;
        let stat = rustix::fs::fstat(&file).ok()?;
        self.must_be_file(&stat).ok()?;
        let wanted =
            read_length(&stat, offset, max_bytes).ok().filter(|wanted| *wanted as u64 <= MAX_CACHED_READ)?;
        let mut data = vec![0; wanted];
        if wanted > 0 {
            reads.read(file.as_fd(), &mut data, offset)?;
        }
        Some(self.record_read(&self.relative, &stat, data))
    }

    pub(crate) fn stat(&self) -> Result<FileStat, FileError> {
        self.with_resolved_path(true, |at| {
            let stat = self.stat_path(at)?;
            if self.expects_folder && kind_of(&stat) != FileType::Directory {
                return self.other_error("is not a folder");
            }
            Ok(to_file_stat(&stat))
        })
    }

    /// Lists the visible entries of a folder. Stops when the call has ended.
    pub(crate) fn read_dir(&self, stop: &CancellationToken) -> Result<Vec<DirEntry>, FileError> {
        self.with_resolved_path(true, |at| {
            if kind_of(&self.stat_path(at)?) != FileType::Directory {
                return self.other_error("is not a folder");
            }
            let fd = self.root.open(at, OFlags::RDONLY | OFlags::DIRECTORY, self.access)?;
            let folder = self.policy_path(at);
            let mut entries = Vec::new();
            for (n, entry) in rustix::fs::Dir::new(fd.try_clone().map_err(|_| Errno::MFILE)?)?.enumerate() {
                if n % CANCELLATION_INTERVAL == 0 && stop.is_cancelled() {
                    return Err(Errno::CANCELED.into());
                }
                let entry = entry?;
                let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let Some(kind) = self.visible_kind(fd.as_fd(), &folder.join(name), &entry) else { continue };
                if entries.len() == MAX_ENTRIES {
                    return Err(FileError::TooLarge(MAX_ENTRIES as u64).into());
                }
                // A guest cannot pass a name that is not UTF-8, so the entry is listed as `other`.
                let kind = if name.to_str().is_some() { kind } else { FileKind::Other };
                entries.push(DirEntry { name: name.to_string_lossy().into_owned(), kind });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    /// Returns the kind of an entry; `None` if the tool may not see it.
    fn visible_kind(
        &self,
        folder: BorrowedFd<'_>,
        path: &Path,
        entry: &rustix::fs::DirEntry,
    ) -> Option<FileKind> {
        let allowed = self.path_grants.cover(path, self.access, PathScope::Path);
        if !allowed && !self.path_grants.cover(path, self.access, PathScope::Below) {
            return None;
        }
        let kind = match entry.file_type() {
            // Some file systems do not report it.
            FileType::Unknown => {
                kind_of(&rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?)
            }
            kind => kind,
        };
        (allowed || kind == FileType::Directory).then_some(to_file_kind(kind))
    }

    pub(crate) fn make_dir(&self) -> Result<(), FileError> {
        self.with_resolved_path(false, |at| {
            let (folder, name) = self.open_parent(at)?;
            match self.root.stat_entry(folder.as_fd(), name) {
                Ok(_) => return Err(Errno::EXIST.into()),
                Err(Errno::NOENT) => self.must_be_free_in_any_case(at)?,
                Err(error) => return Err(error.into()),
            }
            self.usage.count_entry().map_err(FileError::Denied)?;
            Ok(rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777))?)
        })
    }

    fn open_parent<'a>(&self, at: &'a Path) -> OperationResult<(OwnedFd, &'a std::ffi::OsStr)> {
        if at == Path::new(".") {
            return self.denied_error("is the granted folder itself");
        }
        Ok(self.root.open_parent(at, self.access)?)
    }

    /// Removes a file, a link or an empty folder, but not the granted folder itself.
    pub(crate) fn remove(&self) -> Result<(), FileError> {
        self.with_resolved_path(false, |at| {
            let (folder, name) = self.open_parent(at)?;
            let real = self.real_path(at);
            let locks = self.root.locks_for(folder.as_fd())?;
            let _lock = locks.lock(&real);
            let stat = self.root.stat_entry(folder.as_fd(), name)?.ok_or(Errno::NOENT)?;
            let flags = match kind_of(&stat) {
                FileType::Directory => AtFlags::REMOVEDIR,
                _ if self.expects_folder => return self.other_error("is not a folder"),
                _ => AtFlags::empty(),
            };
            rustix::fs::unlinkat(&folder, name, flags)?;
            self.read_tracker.record_write(&real, None);
            Ok(())
        })
    }

    /// Replaces a file atomically, unless it changed since the writer last read it.
    pub(crate) fn write(&self, data: &[u8], expected: Option<&str>) -> Result<FileStat, FileError> {
        self.with_resolved_path(true, |at| {
            if self.expects_folder {
                return self.other_error("is written as a folder");
            }
            if at == Path::new(".") {
                return self.other_error("is a folder, not a file");
            }
            let (folder, name) = self.root.open_parent(at, self.access)?;
            let real = self.real_path(at);
            let locks = self.root.locks_for(folder.as_fd())?;
            let _lock = locks.lock(&real);
            let old = match self.root.stat_entry(folder.as_fd(), name) {
                Ok(None) => return self.denied_error("exists in another spelling"),
                Ok(Some(stat)) if kind_of(&stat) == FileType::Symlink => {
                    return self.refuse_dangling_link(at);
                }
                Ok(stat) => stat,
                Err(Errno::NOENT) => {
                    self.must_be_free_in_any_case(at)?;
                    None
                }
                Err(error) => return Err(error.into()),
            };
            old.as_ref().map_or(Ok(()), |stat| self.must_be_file(stat))?;
            let version = old.as_ref().map(version_of);
            let fresh = match expected {
                Some(expected) => version.as_deref() == Some(expected),
                None => self.read_tracker.is_fresh(&real, version.as_deref()),
            };
            if !fresh {
                return Err(FileError::Stale.into());
            }
            self.usage.count_bytes(data.len() as u64).map_err(FileError::Denied)?;
            if old.is_none() {
                self.usage.count_entry().map_err(FileError::Denied)?;
            }
            let stat = to_file_stat(&replace(folder.as_fd(), name, data, old.as_ref())?);
            self.read_tracker.record_write(&real, Some(&stat.version));
            Ok(stat)
        })
    }

    /// Refuses to create an excluded or protected path in another case. The portable resolution is for file systems that
    /// ignore case.
    fn must_be_free_in_any_case(&self, at: &Path) -> OperationResult<()> {
        let is_free = self.root.resolution.available() == PathResolution::Kernel
            || self.path_grants.cover_in_any_case(&self.policy_path(at), self.access, self.scope);
        if is_free { Ok(()) } else { self.denied_error("is excluded in another spelling") }
    }

    /// Refuses a dangling link: a write would create a file elsewhere than the path says.
    fn refuse_dangling_link<T>(&self, at: &Path) -> OperationResult<T> {
        if let LinkTarget::Inside(target, true) = self.root.beneath().resolve(at, true)?
            && let Err(Errno::NOENT) = self.root.beneath().stat_no_follow(&target)
        {
            return self.denied_error("is a link to nothing");
        }
        Err(Errno::LOOP.into())
    }
}

/// Writes a temporary file and renames it over the target. A reader sees the old or the new content, never a part,
/// also after a power failure: the content is synced before the rename.
fn replace(
    folder: BorrowedFd<'_>,
    name: &std::ffi::OsStr,
    data: &[u8],
    old: Option<&Stat>,
) -> OperationResult<Stat> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = format!(".toolbay-{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut file = create_replacement(folder, &temporary, old)?;
    let mut write = || {
        file.write_all(data).map_err(errno)?;
        file.sync_data().map_err(errno)?;
        rustix::fs::renameat(folder, &temporary, folder, name)?;
        rustix::fs::fstat(&file)
    };
    let done = write();
    if done.is_err() {
        // Best effort: the first error says more.
        rustix::fs::unlinkat(folder, &temporary, AtFlags::empty()).ok();
    }
    Ok(done?)
}

/// Creates the replacement of `old` with its mode before it has content: users who cannot read the old file must not
/// read the new one either, not even when the host is killed half-way.
fn create_replacement(
    folder: BorrowedFd<'_>,
    name: &str,
    old: Option<&Stat>,
) -> OperationResult<std::fs::File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))?;
    if let Some(old) = old {
        // Without setuid and setgid.
        let done = rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777));
        if let Err(error) = done {
            rustix::fs::unlinkat(folder, name, AtFlags::empty()).ok();
            return Err(error.into());
        }
    }
    Ok(file.into())
}

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The number of bytes that a read returns.
fn read_length(stat: &Stat, offset: u64, max_bytes: Option<u64>) -> Result<usize, FileError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let left = size.saturating_sub(offset);
    if max_bytes.is_none() && left > MAX_READ {
        return Err(FileError::TooLarge(size));
    }
    Ok(usize::try_from(max_bytes.unwrap_or(MAX_READ).min(MAX_READ).min(left)).unwrap_or(0))
}

fn to_file_stat(stat: &Stat) -> FileStat {
    let modified = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
    FileStat {
        kind: to_file_kind(kind_of(stat)),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ms: u64::try_from(modified.max(0)).unwrap_or(u64::MAX),
        version: version_of(stat),
    }
}

/// The version of a file. It changes with every replacement (inode) and every write in place (size and times). It
/// includes the inode's change time, which cannot be set back like the modification time.
fn version_of(stat: &Stat) -> String {
    let mut out = String::with_capacity(80);
    // Writing to a `String` cannot fail.
    write!(
        out,
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    )
    .ok();
    out
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn to_file_kind(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_replacement_has_the_mode_of_the_old_file_before_it_has_content() {
        let dir = tempfile::tempdir().unwrap();
        let folder = std::fs::File::open(dir.path()).unwrap();
        for mode in [0o600, 0o640, 0o400, 0o755] {
            let old = dir.path().join("old");
            std::fs::write(&old, "private").unwrap();
            std::fs::set_permissions(&old, std::fs::Permissions::from_mode(mode)).unwrap();
            let stat = rustix::fs::stat(&old).unwrap();
            let file =
                create_replacement(folder.as_fd(), "new", Some(&stat)).unwrap_or_else(|_| panic!("{mode:o}"));
            let meta = file.metadata().unwrap();
            assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (mode, 0));
            std::fs::remove_file(&old).unwrap();
            std::fs::remove_file(dir.path().join("new")).unwrap();
        }
    }
}
