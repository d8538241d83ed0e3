//! What is done below one granted folder, by the handle that was opened at load.

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
use toolbay_policy::capability::reach;

use super::beneath::{self, Target};
use super::grants::{self, Access, Areas, Need, Root};
use super::quota::Meter;
use super::reads::Reader;
use crate::engine::bindings::host::files::{DirEntry, FileData, FileError, FileKind, FileStat};

/// Most bytes that one read returns; a larger file is read in parts.
const MAX_READ: u64 = 8 << 20;
/// Most bytes that are read on an async thread: about 100 microseconds.
#[cfg(target_os = "linux")]
const MAX_READ_NOW: u64 = 1 << 20;
/// Most entries that a listing returns.
const MAX_ENTRIES: usize = 10_000;
/// Entries of a folder after which it is looked whether the call still waits.
const LOOK_UP: usize = 256;
/// How often a path is tried anew whose links change while it is opened.
const MAX_TRIES: usize = 8;

/// One operation on one path, resolved to the granted folder above it.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(super) root: Arc<Root>,
    pub(super) areas: Arc<Areas>,
    pub(super) access: Access,
    pub(super) need: Need,
    /// The path is written as a folder's: `name/`.
    pub(super) folder: bool,
    pub(super) relative: PathBuf,
    /// As the guest wrote it.
    pub(super) written: String,
    pub(super) reader: Reader,
    pub(super) meter: Arc<Meter>,
    /// The granted folder it is in, if that was not there when the plugin was loaded.
    pub(super) absent: Option<PathBuf>,
}

/// Why an operation did not succeed, before it is told in the words of the contract.
enum Stop {
    System(Errno),
    Told(FileError),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<FileError> for Stop {
    fn from(error: FileError) -> Self {
        Self::Told(error)
    }
}

type Step<T> = Result<T, Stop>;

impl Operation {
    /// The path in the policy's words.
    fn full(&self, at: &Path) -> PathBuf {
        if at == Path::new(".") { self.root.path.clone() } else { self.root.path.join(at) }
    }

    /// The path behind all links.
    fn real(&self, at: &Path) -> PathBuf {
        if at == Path::new(".") { self.root.real.clone() } else { self.root.real.join(at) }
    }

    fn shown(&self) -> String {
        reach::shown(&self.written)
    }

    fn other<T>(&self, what: &str) -> Step<T> {
        Err(FileError::Other(format!("`{}` {what}", self.shown())).into())
    }

    fn denied<T>(&self, what: &str) -> Step<T> {
        Err(FileError::Denied(format!("`{}` {what}", self.shown())).into())
    }

    /// Does something at the path, behind its links. `act` answers `ELOOP` where a name of the path is a link; then
    /// the links are followed, and what they lead to has to be granted as well.
    fn at<T>(&self, last: bool, act: impl Fn(&Path) -> Step<T>) -> Result<T, FileError> {
        let mut at = self.relative.clone();
        let mut tries = 0..MAX_TRIES;
        let done = loop {
            match act(&at) {
                Err(Stop::System(Errno::LOOP)) if tries.next().is_some() => {}
                done => break done,
            }
            at = match beneath::resolve(self.root.fd(), &at, last) {
                Ok(Target::Inside(target, _))
                    if self.areas.hold(&self.full(&target), self.access, self.need) =>
                {
                    target
                }
                // Where it leads is not told.
                Ok(Target::Inside(..) | Target::Outside) => {
                    break self.denied("leads by a link to what is not granted");
                }
                Err(Errno::LOOP) => break self.other("has too many links"),
                Err(error) => break Err(error.into()),
            };
        };
        done.map_err(|stop| match stop {
            Stop::Told(error) => error,
            Stop::System(Errno::NOENT) => match &self.absent {
                Some(folder) if self.access == Access::Write && !self.root.has(folder) => {
                    FileError::Denied(grants::absent(&self.shown(), folder, self.access).text)
                }
                _ => FileError::NotFound,
            },
            Stop::System(Errno::LOOP) => FileError::Other(format!("`{}` keeps changing", self.shown())),
            Stop::System(error) => match std::io::Error::from(error) {
                error if error.kind() == ErrorKind::PermissionDenied => {
                    FileError::Denied(format!("`{}`: {error}", self.shown()))
                }
                error => FileError::Other(format!("`{}`: {error}", self.shown())),
            },
        })
    }

    /// What the path is, if that may be known.
    fn look(&self, at: &Path) -> Step<Stat> {
        let allowed = || self.areas.hold(&self.full(at), self.access, Need::Path);
        match beneath::look(self.root.fd(), at) {
            Ok(stat) if kind_of(&stat) == FileType::Symlink => Err(Errno::LOOP.into()),
            Ok(stat) if kind_of(&stat) == FileType::Directory || allowed() => Ok(stat),
            // Of what is granted only if it is a folder, it is not told whether it is there.
            Ok(_) | Err(Errno::NOENT) if !allowed() => self.denied("is not granted"),
            Ok(stat) => Ok(stat),
            Err(error) => Err(error.into()),
        }
    }

    fn must_be_file(&self, stat: &Stat) -> Step<()> {
        match kind_of(stat) {
            FileType::RegularFile if self.folder => self.other("is a file, and is written as a folder"),
            FileType::RegularFile => Ok(()),
            FileType::Directory => self.other("is a folder, not a file"),
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => self.other("is a special file"),
        }
    }

    /// Opens a regular file. Looked at before it is opened and again after: nothing else is ever opened to be read,
    /// unless it was swapped in between, and then nothing is waited for.
    fn open(&self, at: &Path) -> Step<(OwnedFd, Stat)> {
        self.must_be_file(&self.look(at)?)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = beneath::open(self.root.fd(), at, flags)?;
        let stat = rustix::fs::fstat(&file)?;
        self.must_be_file(&stat)?;
        Ok((file, stat))
    }

    pub(crate) fn read(&self, offset: u64, max_bytes: Option<u64>) -> Result<FileData, FileError> {
        self.at(true, |at| {
            let (file, stat) = self.open(at)?;
            let wanted = wanted(&stat, offset, max_bytes)?;
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
            Ok(self.saw(at, &stat, data))
        })
    }

    fn saw(&self, at: &Path, stat: &Stat, data: Vec<u8>) -> FileData {
        let stat = stat_of(stat);
        self.reader.saw(&self.real(at), Some(&stat.version));
        FileData { data, stat }
    }

    /// Reads what is in memory already, by a path without links: takes microseconds and never waits. `None`: ask
    /// [`Operation::read`].
    #[cfg(target_os = "linux")]
    pub(crate) fn read_now(&self, offset: u64, max_bytes: Option<u64>) -> Option<FileData> {
        let how = self.root.now?;
        let look = beneath::open_cached(self.root.fd(), &self.relative, OFlags::PATH | OFlags::NOFOLLOW)?;
        self.must_be_file(&rustix::fs::fstat(&look).ok()?).ok()?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = beneath::open_cached(self.root.fd(), &self.relative, flags)?;
        let stat = rustix::fs::fstat(&file).ok()?;
        self.must_be_file(&stat).ok()?;
        let wanted = wanted(&stat, offset, max_bytes).ok().filter(|wanted| *wanted as u64 <= MAX_READ_NOW)?;
        let mut data = vec![0; wanted];
        if wanted > 0 {
            let mut parts = [std::io::IoSliceMut::new(&mut data)];
            let read = rustix::io::preadv2(&file, &mut parts, offset, how);
            read.ok().filter(|read| *read == wanted)?;
        }
        Some(self.saw(&self.relative, &stat, data))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read_now(&self, _: u64, _: Option<u64>) -> Option<FileData> {
        None
    }

    pub(crate) fn stat(&self) -> Result<FileStat, FileError> {
        self.at(true, |at| {
            let stat = self.look(at)?;
            if self.folder && kind_of(&stat) != FileType::Directory {
                return self.other("is no folder");
            }
            Ok(stat_of(&stat))
        })
    }

    /// Lists what may be known of a folder. A listing that nobody waits for any more ends.
    pub(crate) fn read_dir(&self, stop: &CancellationToken) -> Result<Vec<DirEntry>, FileError> {
        self.at(true, |at| {
            if kind_of(&self.look(at)?) != FileType::Directory {
                return self.other("is no folder");
            }
            let fd = beneath::open(self.root.fd(), at, OFlags::RDONLY | OFlags::DIRECTORY)?;
            let folder = self.full(at);
            let mut entries = Vec::new();
            for (n, entry) in rustix::fs::Dir::new(fd.try_clone().map_err(|_| Errno::MFILE)?)?.enumerate() {
                if n % LOOK_UP == 0 && stop.is_cancelled() {
                    return Err(Errno::CANCELED.into());
                }
                let entry = entry?;
                let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let Some(kind) = self.seen(fd.as_fd(), &folder.join(name), &entry) else { continue };
                if entries.len() == MAX_ENTRIES {
                    return Err(FileError::TooLarge(MAX_ENTRIES as u64).into());
                }
                // A name that is no text cannot be asked for: it is shown, and as nothing to open.
                let kind = if name.to_str().is_some() { kind } else { FileKind::Other };
                entries.push(DirEntry { name: name.to_string_lossy().into_owned(), kind });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        })
    }

    /// What kind an entry is; `None` if it is not to be seen.
    fn seen(&self, folder: BorrowedFd<'_>, path: &Path, entry: &rustix::fs::DirEntry) -> Option<FileKind> {
        let allowed = self.areas.hold(path, self.access, Need::Path);
        if !allowed && !self.areas.hold(path, self.access, Need::Below) {
            return None;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => {
                kind_of(&rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok()?)
            }
            kind => kind,
        };
        (allowed || kind == FileType::Directory).then_some(told(kind))
    }

    pub(crate) fn make_dir(&self) -> Result<(), FileError> {
        self.at(false, |at| {
            let (folder, name) = self.parent(at)?;
            match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => return Err(Errno::EXIST.into()),
                Err(Errno::NOENT) => self.meter.make().map_err(FileError::Denied)?,
                Err(error) => return Err(error.into()),
            }
            Ok(rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777))?)
        })
    }

    fn parent<'a>(&self, at: &'a Path) -> Step<(OwnedFd, &'a std::ffi::OsStr)> {
        if at == Path::new(".") {
            return self.denied("is the granted folder itself");
        }
        Ok(beneath::parent(self.root.fd(), at)?)
    }

    /// Removes a file, a link or an empty folder; not the granted folder itself.
    pub(crate) fn remove(&self) -> Result<(), FileError> {
        self.at(false, |at| {
            let (folder, name) = self.parent(at)?;
            let real = self.real(at);
            let turns = self.root.turns(folder.as_fd())?;
            let _turn = turns.of(&real);
            let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let flags = match kind_of(&stat) {
                FileType::Directory => AtFlags::REMOVEDIR,
                _ if self.folder => return self.other("is no folder"),
                _ => AtFlags::empty(),
            };
            rustix::fs::unlinkat(&folder, name, flags)?;
            self.reader.saw(&real, None);
            Ok(())
        })
    }

    /// Replaces a file's content in one step, unless it is not what the writer last saw.
    pub(crate) fn write(&self, data: &[u8], expected: Option<&str>) -> Result<FileStat, FileError> {
        self.at(true, |at| {
            if self.folder {
                return self.other("is written as a folder");
            }
            if at == Path::new(".") {
                return self.other("is a folder, not a file");
            }
            let (folder, name) = beneath::parent(self.root.fd(), at)?;
            let real = self.real(at);
            let turns = self.root.turns(folder.as_fd())?;
            let _turn = turns.of(&real);
            let old = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if kind_of(&stat) == FileType::Symlink => return self.through_link(at),
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            old.as_ref().map_or(Ok(()), |stat| self.must_be_file(stat))?;
            let version = old.as_ref().map(version_of);
            let fresh = match expected {
                Some(expected) => version.as_deref() == Some(expected),
                None => self.reader.is_fresh(&real, version.as_deref()),
            };
            if !fresh {
                return Err(FileError::Stale.into());
            }
            self.meter.write(data.len() as u64).map_err(FileError::Denied)?;
            if old.is_none() {
                self.meter.make().map_err(FileError::Denied)?;
            }
            let stat = stat_of(&replace(folder.as_fd(), name, data, old.as_ref())?);
            self.reader.saw(&real, Some(&stat.version));
            Ok(stat)
        })
    }

    /// A link to nothing would be made to something elsewhere than it looks.
    fn through_link<T>(&self, at: &Path) -> Step<T> {
        if let Target::Inside(target, true) = beneath::resolve(self.root.fd(), at, true)?
            && let Err(Errno::NOENT) = beneath::look(self.root.fd(), &target)
        {
            return self.denied("is a link to nothing");
        }
        Err(Errno::LOOP.into())
    }
}

/// Writes beside the target and renames over it: a reader sees the old content or the new, never a part, and so does
/// whoever comes after a power failure, for the content is on the disk before it gets its name.
fn replace(folder: BorrowedFd<'_>, name: &std::ffi::OsStr, data: &[u8], old: Option<&Stat>) -> Step<Stat> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = format!(".toolbay-{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut file = make(folder, &temporary, old)?;
    let mut write = || {
        file.write_all(data).map_err(errno)?;
        file.sync_data().map_err(errno)?;
        rustix::fs::renameat(folder, &temporary, folder, name)?;
        rustix::fs::fstat(&file)
    };
    let done = write();
    if done.is_err() {
        // What is left of a failed write is ours to remove; if even that fails, the first error says more.
        rustix::fs::unlinkat(folder, &temporary, AtFlags::empty()).ok();
    }
    Ok(done?)
}

/// Makes the file that is to take the place of `old`, with its mode before anything is in it: what others may not read
/// there they may not read here either, not even if the host is ended before it is done.
fn make(folder: BorrowedFd<'_>, name: &str, old: Option<&Stat>) -> Step<std::fs::File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))?;
    if let Some(old) = old {
        // Not what makes a program run as somebody else.
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

/// How many bytes a read is to return.
fn wanted(stat: &Stat, offset: u64, max_bytes: Option<u64>) -> Result<usize, FileError> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let left = size.saturating_sub(offset);
    if max_bytes.is_none() && left > MAX_READ {
        return Err(FileError::TooLarge(size));
    }
    Ok(usize::try_from(max_bytes.unwrap_or(MAX_READ).min(MAX_READ).min(left)).unwrap_or(0))
}

fn stat_of(stat: &Stat) -> FileStat {
    let modified = i128::from(stat.st_mtime) * 1000 + i128::from(stat.st_mtime_nsec) / 1_000_000;
    FileStat {
        kind: told(kind_of(stat)),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ms: u64::try_from(modified.max(0)).unwrap_or(u64::MAX),
        version: version_of(stat),
    }
}

/// Changes with every replacement (another inode) and every write in place (size and times). The time of the inode's
/// last change is in it, which nobody can set back as the time of the last write can be.
fn version_of(stat: &Stat) -> String {
    let mut out = String::with_capacity(80);
    // A `String` takes everything.
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

fn told(kind: FileType) -> FileKind {
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
    fn a_file_is_as_private_as_the_one_it_replaces_before_anything_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = std::fs::File::open(dir.path()).unwrap();
        for mode in [0o600, 0o640, 0o400, 0o755] {
            let old = dir.path().join("old");
            std::fs::write(&old, "private").unwrap();
            std::fs::set_permissions(&old, std::fs::Permissions::from_mode(mode)).unwrap();
            let stat = rustix::fs::stat(&old).unwrap();
            let file = make(folder.as_fd(), "new", Some(&stat)).unwrap_or_else(|_| panic!("{mode:o}"));
            let meta = file.metadata().unwrap();
            assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (mode, 0));
            std::fs::remove_file(&old).unwrap();
            std::fs::remove_file(dir.path().join("new")).unwrap();
        }
    }
}
