//! macOS: no resolution by the kernel, no handles without access, no reads that do not block. Paths are resolved by this
//! process ([`super::beneath`]).

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// How a parent folder is opened: this needs permission to list it.
pub(super) const PARENT_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// `None`: every open gives access.
pub(super) const HANDLE_FLAGS: Option<OFlags> = None;

/// `None`: the kernel resolves no path below a folder.
pub(super) fn open(_: BorrowedFd<'_>, _: &Path, _: OFlags) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// `EXDEV`: the kernel does not tell whether a path crosses a mount.
pub(super) fn open_on_mount(_: BorrowedFd<'_>, _: &Path, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::XDEV)
}

/// `None`: the kernel resolves no path below a folder.
pub(super) fn open_inside(_: BorrowedFd<'_>, _: &Path, _: OFlags, _: Mode) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// `None`: a handle of a FIFO or device would be an open one.
pub(super) fn open_to_stat(_: BorrowedFd<'_>, _: &Path, _: OFlags) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// `None`: the kernel does not tell what it has in memory.
pub(super) fn open_cached(
    _: BorrowedFd<'_>,
    _: &Path,
    _: impl Fn(&rustix::fs::Stat) -> bool,
) -> Option<OwnedFd> {
    None
}

/// No file system has reads that do not block.
#[derive(Debug, Clone, Copy)]
pub(super) enum CachedReads {}

impl CachedReads {
    /// `None`.
    pub(super) fn of(_: BorrowedFd<'_>) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(super) fn read(self, _: BorrowedFd<'_>, _: &mut [u8], _: u64) -> Option<()> {
        match self {}
    }
}

/// `false`: no file system is an interface of the kernel. `/dev` is protected by its name.
pub(super) fn is_kernel_file(_: BorrowedFd<'_>) -> bool {
    false
}

/// The path of an open file, as the kernel knows it now: with its links resolved and its names as they are stored.
pub(super) fn real_path(file: BorrowedFd<'_>) -> std::io::Result<PathBuf> {
    let path = rustix::fs::getpath(file)?;
    Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
}

/// Appends at the end that the file has now. Data that others append in between is overwritten.
pub(super) fn append(file: &File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all_at(bytes, file.metadata()?.len())
}
