//! The file that an audit is written to, and the files beside it: opened without following links, written in one piece.
//!
//! Whoever has the file open holds a shared lock on it. Once the file has another name and nobody holds the lock, nobody
//! writes to it any more, and it can be packed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// How often a file is opened anew because another process renamed it meanwhile.
const OPEN_TRIES: u32 = 16;

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// Its last line has no end: a process was killed as it wrote, or the disk was full.
    pub(super) is_cut: bool,
    /// It is a file on a disk, not a device or a pipe.
    pub(super) is_regular: bool,
}

/// A path with something behind its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Opens options for a file of the audit: a link is not followed, and a FIFO that nobody reads is an error and no wait.
fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.mode(0o600).custom_flags(flags).open(path).map_err(|error| explain(path, error))
}

/// Says what to do about a link.
fn explain(path: &Path, error: io::Error) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::LOOP) {
        return error;
    }
    io::Error::new(
        ErrorKind::InvalidInput,
        format!(
            "`{}` is a symbolic link, and the audit follows none: remove the link, or give the file that it leads to \
             with --audit FILE",
            path.display()
        ),
    )
}

/// Refuses a link at one of these places before anything is written.
///
/// # Errors
/// Names the link and says what to do.
pub(super) fn refuse_links<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    for path in paths {
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
            return Err(explain(path, Errno::LOOP.into()));
        }
    }
    Ok(())
}

/// Opens a file to append lines to, and makes it, for this user only, if it is not there. A line without an end is
/// ended, if there is room. Should that line be another process's that is writing just now, that makes an empty line,
/// which readers skip.
pub(super) fn open(path: &Path) -> io::Result<Opened> {
    // Another process may rename the file between any two steps: then the file that has the name now is meant.
    for _ in 0..OPEN_TRIES {
        let is_other = fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_symlink());
        let mut options = OpenOptions::new();
        let file = open_with(options.read(!is_other).append(true).create(true), path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(Opened { file, is_cut: false, is_regular: false });
        }
        // The exclusive lock is held by who packs a file that was renamed.
        if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        if !fs::symlink_metadata(path).is_ok_and(|now| same_file(&now, &meta)) {
            continue;
        }
        let mut last = [b'\n'];
        if let Some(at) = meta.len().checked_sub(1) {
            file.read_exact_at(&mut last, at)?;
        }
        let is_cut = last != *b"\n" && write_once(&file, b"\n").ok() != Some(1);
        return Ok(Opened { file, is_cut, is_regular: true });
    }
    Err(io::Error::other("it is renamed again and again"))
}

/// Opens a file of the audit for reading.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let file = open_with(OpenOptions::new().read(true), path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` is not a file", path.display())))
}

/// Opens a file for what is kept beside the audit, and makes it if it is not there.
pub(super) fn open_beside(path: &Path) -> io::Result<File> {
    let file = open_with(OpenOptions::new().read(true).append(true).create(true), path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` is not a file", path.display())))
}

/// The lock under which files are renamed, packed and removed; `None` if another process has it.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_beside(&beside(path, ".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// One write, so that lines of several processes do not mix.
pub(super) fn write_once(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether an audit that cannot be opened now may be written later without anybody changing the command: the machine is
/// short of something. Everything else is a mistake in the place that was given.
pub(super) fn may_pass(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::NOSPC
                | Errno::DQUOT
                | Errno::FBIG
                | Errno::ROFS
                | Errno::IO
                | Errno::STALE
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
        )
    )
}

/// Refuses where the disk has no room left for anybody but its administrator.
pub(super) fn has_room(file: &File) -> io::Result<()> {
    let disk = rustix::fs::fstatvfs(file)?;
    // A file system that does not count its blocks says that it has none.
    if disk.f_blocks > 0 && disk.f_bavail == 0 { Err(Errno::NOSPC.into()) } else { Ok(()) }
}
