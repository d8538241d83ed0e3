//! The protected paths of a host, by name and by what a name leads to.
//!
//! A name is checked as text, and once more with all links resolved. A mount gives a protected path another name without a
//! link, so granted folders are also compared by file system and place ([`super::mounts`]): when they are opened, for all
//! mounts below them, and again for each file behind a mount.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use rustix::fs::Stat;
use rustix::io::Errno;
use toolbay_policy::capability::protected_paths::{ProtectedPaths, Protection};

use super::mounts::{FilePlace, MountTable};
use super::system;

/// The protected paths of a host, shared by all that check them.
#[derive(Debug, Clone, Default)]
pub struct SharedProtectedPaths(Arc<RwLock<ProtectedPaths>>);

/// The file that a name leads to: device and inode.
type FileIdentity = (rustix::fs::Dev, u64);

impl SharedProtectedPaths {
    /// The paths, also by the names that they have with all links resolved.
    pub fn new(protected: ProtectedPaths) -> Self {
        Self(Arc::new(RwLock::new(protected.with_aliases(canonicalize_existing))))
    }

    /// Protects a path from all later grants.
    pub fn protect(&self, path: &Path, from: Protection) {
        let mut protected = self.0.write();
        for name in std::path::absolute(path).ok().into_iter().chain(canonicalize_existing(path)) {
            protected.protect(name, from);
        }
    }

    /// The paths as they are now.
    pub fn read(&self) -> RwLockReadGuard<'_, ProtectedPaths> {
        self.0.read()
    }

    /// The paths below a folder at which mounts show protected paths, or interfaces of the kernel, under other names. The
    /// folder has no links.
    pub(super) fn other_names(&self, folder: &Path, writing: bool) -> Vec<PathBuf> {
        let mounts = MountTable::read();
        let protected = self.read();
        let places = places_of(&protected, &mounts, writing);
        let mut names = mounts.other_names(folder, &places);
        names.retain(|name| !protected.is_exempt(name));
        names
    }

    /// Whether an opened file is protected under another name: by its file system, its place there, or its inode. `path` is
    /// its name, without links.
    ///
    /// # Errors
    /// The system does not say what the file is.
    pub(super) fn covers_opened(
        &self,
        file: BorrowedFd<'_>,
        path: &Path,
        writing: bool,
    ) -> rustix::io::Result<bool> {
        let protected = self.read();
        if protected.is_exempt(path) {
            return Ok(false);
        }
        if protected_identities(&protected, writing).contains(&identity(&rustix::fs::fstat(file)?)) {
            return Ok(true);
        }
        if system::is_kernel_file(file) {
            return Ok(true);
        }
        // The name of the handle itself: what `path` leads to may have changed.
        // Without it (no `/proc`), nothing says that the file is not protected; a missing file would be another error.
        let real = system::real_path(file).map_err(|_| Errno::ACCESS)?;
        if protected.protected_ancestor(&real, writing).is_some() {
            return Ok(true);
        }
        let mounts = MountTable::read();
        let Some(place) = mounts.place(&real) else { return Ok(false) };
        let places = places_of(&protected, &mounts, writing);
        Ok(place.is_kernel() || places.iter().any(|one| place.is_in(one)))
    }

    /// Whether a protected path equals, contains or lies below `path` by name.
    pub fn overlaps_name(&self, path: &Path, writing: bool) -> bool {
        let protected = self.read();
        protected.protected_ancestor(path, writing).is_some()
            || protected.protected_below(path, writing).next().is_some()
    }

    /// Returns a protected path that equals, contains or lies below `path`, by name or with links resolved. A
    /// protected path below `path` that does not exist matters only to writers, which could create it.
    pub(crate) fn find_overlap(&self, path: &Path, writing: bool) -> Option<PathBuf> {
        let protected = self.read();
        let there = |path: &&Path| writing || path.symlink_metadata().is_ok();
        std::iter::once(path.to_path_buf()).chain(canonicalize_existing(path)).find_map(|path| {
            let below = || protected.protected_below(&path, writing).find(there).map(Path::to_path_buf);
            let by_name = protected.protected_ancestor(&path, writing).map(Path::to_path_buf).or_else(below);
            by_name.or_else(|| {
                let mounts = MountTable::read();
                let names = mounts.other_names(&path, &places_of(&protected, &mounts, writing));
                names.into_iter().find(|name| !protected.is_exempt(name))
            })
        })
    }
}

/// The places of the protected paths in their file systems. A path that is a whole file system counts only if it is not
/// that of the root folder: some sandboxes give all mounts one device.
fn places_of(protected: &ProtectedPaths, mounts: &MountTable, writing: bool) -> Vec<FilePlace> {
    let root = mounts.place(Path::new("/"));
    let places = protected.protected_below(Path::new("/"), writing).filter_map(|path| mounts.place(path));
    places.filter(|place| root.as_ref().is_none_or(|root| !root.is_in(place))).collect()
}

/// The identities of the protected paths that exist.
fn protected_identities(protected: &ProtectedPaths, writing: bool) -> HashSet<FileIdentity> {
    let paths = protected.protected_below(Path::new("/"), writing);
    paths.filter_map(|path| Some(identity(&rustix::fs::lstat(path).ok()?))).collect()
}

fn identity(stat: &Stat) -> FileIdentity {
    (stat.st_dev, stat.st_ino)
}

/// Resolves the links of a path; components that do not exist are kept as they are.
fn canonicalize_existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        let above = above.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { above } else { above.join(rest) })
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn an_opened_file_is_known_by_its_file_system_and_its_inode() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let (key, plain) = (at.join("key"), at.join("plain"));
        std::fs::write(&key, "k").unwrap();
        std::fs::write(&plain, "p").unwrap();
        let mut paths = ProtectedPaths::default();
        paths.protect(key.clone(), Protection::ReadAndWrite);
        let protected = SharedProtectedPaths::new(paths);
        let covers = |file: &Path, name: &str| {
            let file = std::fs::File::open(file).unwrap();
            protected.covers_opened(file.as_fd(), Path::new(name), false).unwrap()
        };
        assert!(covers(&key, "/granted/another name"));
        assert!(!covers(&plain, "/granted/another name"));
        if cfg!(target_os = "linux") {
            assert!(covers(Path::new("/proc/self/status"), "/granted/another name"));
        }
    }
}
