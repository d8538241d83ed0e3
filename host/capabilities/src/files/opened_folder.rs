//! A granted folder, by the handle that was opened at load, and what is opened below it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};

use super::beneath;
use super::grants::FileAccess;
use super::locks::{FileLocks, FileLocksByDevice};
use super::protected::{self, SharedProtectedPaths};

/// An opened folder.
#[derive(Debug)]
pub(crate) struct OpenedFolder {
    /// The folder as the policy names it.
    pub(crate) path: PathBuf,
    /// Its path with all links resolved.
    pub(super) real: PathBuf,
    pub(crate) dir: Dir,
    /// The flags of a non-blocking read from the page cache; `None` if the file system has no such read.
    pub(super) nonblocking_read: Option<ReadWriteFlags>,
    locks: Arc<FileLocksByDevice>,
    protected: SharedProtectedPaths,
}

impl OpenedFolder {
    /// A folder by its handle. `path` is its name in the policy.
    pub(super) fn new(
        path: &Path,
        dir: Dir,
        locks: Arc<FileLocksByDevice>,
        protected: SharedProtectedPaths,
    ) -> std::io::Result<Self> {
        let (real, nonblocking_read) = (real_path_of(&dir, path)?, nonblocking_read_flags(&dir));
        Ok(Self { path: path.to_path_buf(), real, dir, nonblocking_read, locks, protected })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens a path below the folder; `ELOOP` when a component is a link. The content of another mount is opened only
    /// if it is not protected under another name (`EACCES`).
    pub(super) fn open(&self, path: &Path, flags: OFlags, access: FileAccess) -> Result<OwnedFd, Errno> {
        match beneath::open_on_mount(self.fd(), path, flags) {
            // Few paths cross a mount, and reading the table of mounts takes as long as many opens.
            Err(Errno::XDEV) => {}
            done => return done,
        }
        let opened = beneath::open(self.fd(), path, flags)?;
        let writing = access == FileAccess::Write;
        match self.protected.covers_opened(opened.as_fd(), &self.path.join(path), writing)? {
            true => Err(Errno::ACCESS),
            false => Ok(opened),
        }
    }

    /// The status of a path; a final link is not followed.
    pub(super) fn stat(&self, path: &Path, access: FileAccess) -> Result<Stat, Errno> {
        if path == Path::new(".") {
            return rustix::fs::fstat(self.fd());
        }
        let (folder, name) = self.open_parent(path, access)?;
        rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens the parent folder of a path that is not the folder itself.
    pub(super) fn open_parent<'a>(
        &self,
        path: &'a Path,
        access: FileAccess,
    ) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let (parent, name) = beneath::split_parent(path)?;
        Ok((self.open(parent, beneath::PARENT_FLAGS, access)?, name))
    }

    /// Whether a path inside the folder exists.
    pub(super) fn contains(&self, path: &Path) -> bool {
        path.strip_prefix(&self.path).is_ok_and(|name| self.dir.symlink_metadata(name).is_ok())
    }

    /// Whether the folder equals `other` or lies below it, both by name and with links resolved: the name alone does
    /// not say where a handle leads.
    pub(super) fn is_inside(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) && self.real.starts_with(&other.real)
    }

    /// The locks of the file system of `folder`. Writers of one file hold its lock, whichever folder they reach it
    /// through, so the stale-write check and the replacement are one step. No lock is held while the device is queried.
    pub(super) fn locks_for(&self, folder: BorrowedFd<'_>) -> rustix::io::Result<Arc<FileLocks>> {
        let device = rustix::fs::fstat(folder)?.st_dev;
        let mut all = self.locks.lock();
        Ok(Arc::clone(all.entry(device).or_default()))
    }
}

/// The path of an opened folder with all links resolved.
fn real_path_of(dir: &Dir, folder: &Path) -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        // The path of the handle itself, not of what its name leads to by now.
        return protected::real_path(dir.as_fd()).or_else(|_| folder.canonicalize());
    }
    folder.canonicalize()
}

/// File systems on which opening never waits for a server or another process, and which can read without blocking or
/// hold everything in memory.
fn nonblocking_read_flags(dir: &Dir) -> Option<ReadWriteFlags> {
    #[cfg(target_os = "linux")]
    {
        // From `linux/magic.h`: ext2 to ext4, XFS, Btrfs, F2FS; then tmpfs.
        match rustix::fs::fstatfs(dir).ok()?.f_type {
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 => Some(ReadWriteFlags::NOWAIT),
            0x0102_1994 => Some(ReadWriteFlags::empty()),
            _ => None,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        None
    }
}
