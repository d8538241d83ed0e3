//! A granted folder, by the handle that was opened at load, and what is opened below it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;

use super::beneath::{self, Beneath, PathResolution};
use super::grants::FileAccess;
use super::locks::{FileLocks, FileLocksByDevice};
use super::protected::SharedProtectedPaths;
use super::system::{self, CachedReads};

/// An opened folder.
#[derive(Debug)]
pub(crate) struct OpenedFolder {
    /// The folder as the policy names it.
    pub(crate) path: PathBuf,
    /// Its path with all links resolved.
    pub(super) real: PathBuf,
    pub(crate) dir: Dir,
    /// `None` if the file system has no reads that do not block.
    pub(super) cached_reads: Option<CachedReads>,
    pub(crate) resolution: PathResolution,
    locks: Arc<FileLocksByDevice>,
    protected: SharedProtectedPaths,
}

impl OpenedFolder {
    /// A folder by its handle. `path` is its name in the policy.
    pub(super) fn new(
        path: &Path,
        (dir, resolution): (Dir, PathResolution),
        locks: Arc<FileLocksByDevice>,
        protected: SharedProtectedPaths,
    ) -> std::io::Result<Self> {
        // The path of the handle itself, not of what its name leads to by now.
        let real = system::real_path(dir.as_fd()).or_else(|_| path.canonicalize())?;
        let cached_reads = CachedReads::of(dir.as_fd());
        Ok(Self { path: path.to_path_buf(), real, dir, cached_reads, resolution, locks, protected })
    }

    /// What is below the folder.
    pub(super) fn beneath(&self) -> Beneath<'_> {
        Beneath::new(self.dir.as_fd(), self.resolution)
    }

    /// Opens a path below the folder; `ELOOP` when a component is a link. The content of another mount is opened only
    /// if it is not protected under another name (`EACCES`). A name in another spelling is not found.
    pub(super) fn open(&self, path: &Path, flags: OFlags, access: FileAccess) -> Result<OwnedFd, Errno> {
        self.open_for(path, path, flags, access)
    }

    /// [`Self::open`] on the way to `target`, which may be exempt while its folder is not.
    fn open_for(
        &self,
        target: &Path,
        path: &Path,
        flags: OFlags,
        access: FileAccess,
    ) -> Result<OwnedFd, Errno> {
        let below = self.beneath();
        match below.open_on_mount(path, flags) {
            // Few paths cross a mount, and reading the table of mounts takes as long as many opens.
            Err(Errno::XDEV) => {}
            done => return done,
        }
        let opened = below.open(path, flags)?;
        if !below.is_spelled_as_listed(path, opened.as_fd())? {
            return Err(Errno::NOENT);
        }
        let writing = access == FileAccess::Write;
        match self.protected.covers_opened(opened.as_fd(), &self.path.join(target), writing)? {
            true => Err(Errno::ACCESS),
            false => Ok(opened),
        }
    }

    /// The status of a path; a final link is not followed.
    pub(super) fn stat(&self, path: &Path, access: FileAccess) -> Result<Stat, Errno> {
        if path == Path::new(".") {
            return rustix::fs::fstat(&self.dir);
        }
        let (folder, name) = self.open_parent(path, access)?;
        // What has this name in another spelling only is not there.
        self.stat_entry(folder.as_fd(), name)?.ok_or(Errno::NOENT)
    }

    /// The status of an entry of a folder, without following a link; `None` if the file system finds it, but the folder
    /// lists it in another spelling.
    pub(super) fn stat_entry(&self, folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(self.beneath().is_listed(folder, name)?.then_some(stat))
    }

    /// Opens the parent folder of a path that is not the folder itself.
    pub(super) fn open_parent<'a>(
        &self,
        path: &'a Path,
        access: FileAccess,
    ) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let (parent, name) = beneath::split_parent(path)?;
        Ok((self.open_for(path, parent, self.beneath().parent_flags(), access)?, name))
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
