//! The current audit file and its companion files: opened without following links, and written in single writes.
//!
//! A process that has the file open holds a shared lock on it. Once the file is renamed and no process holds the lock,
//! nobody writes to it any more, and it can be packed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// How often the file is opened again because another process renamed it.
const MAX_OPEN_ATTEMPTS: u32 = 16;

/// A file opened for appending.
#[derive(Debug)]
pub(super) struct AuditFile {
    pub(super) file: File,
    /// The last line is incomplete: a process was killed while it wrote, or the disk was full.
    pub(super) is_cut: bool,
    /// The file is on a disk, not a device or a pipe.
    pub(super) is_regular: bool,
}

/// Appends a suffix to a path's name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Opens an audit file without following a link. A FIFO without a reader is an error instead of a wait.
fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.mode(0o600).custom_flags(flags).open(path).map_err(|error| link_error(path, error))
}

/// Explains what to do about a link.
fn link_error(path: &Path, error: io::Error) -> io::Error {
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

/// Refuses links at these paths before anything is written.
///
/// # Errors
/// A path is a link. The message names it and says what to do.
pub(super) fn refuse_links<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    for path in paths {
        if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
            return Err(link_error(path, Errno::LOOP.into()));
        }
    }
    Ok(())
}

/// Opens a file for appending, and creates it for this user only if it does not exist. Ends an incomplete last line if
/// there is space. If another process was just writing that line, the result is an empty line, which readers skip.
pub(super) fn open(path: &Path) -> io::Result<AuditFile> {
    // Another process may rename the file between any two steps. The loop then opens the file that has the name now.
    for _ in 0..MAX_OPEN_ATTEMPTS {
        let is_other = fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_symlink());
        let mut options = OpenOptions::new();
        let file = open_with(options.read(!is_other).append(true).create(true), path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(AuditFile { file, is_cut: false, is_regular: false });
        }
        // A process that packs a renamed file holds the exclusive lock.
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
        return Ok(AuditFile { file, is_cut, is_regular: true });
    }
    Err(io::Error::other("it was renamed too often while it was opened"))
}

/// Opens a file of the audit for reading.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path)
}

/// Opens a companion file of the audit, and creates it if it does not exist.
pub(super) fn open_sidecar(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true).append(true).create(true), path)
}

fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_with(options, path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` is not a file", path.display())))
}

/// Locks the audit for renaming, packing and removing files. Returns `None` if another process holds the lock.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_sidecar(&with_suffix(path, ".lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Writes once, so that the lines of several processes do not mix.
pub(super) fn write_once(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether the audit may become writable without a change of the command, because the machine is out of a resource. All
/// other errors are mistakes in the path.
pub(super) fn is_transient(error: &io::Error) -> bool {
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

/// Fails if the disk has no space left for unprivileged users.
pub(super) fn check_space(file: &File) -> io::Result<()> {
    let disk = rustix::fs::fstatvfs(file)?;
    // File systems that do not count blocks report zero blocks in total.
    if disk.f_blocks > 0 && disk.f_bavail == 0 { Err(Errno::NOSPC.into()) } else { Ok(()) }
}
