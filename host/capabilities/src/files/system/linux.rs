//! Linux: resolution by `openat2` (5.6), handles without access (`O_PATH`), reads that do not block, the names of handles.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// How a parent folder is opened: without permission to list it.
pub(super) const PARENT_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);
/// How a handle without access is opened, whatever the path is.
pub(super) const HANDLE_FLAGS: Option<OFlags> = Some(OFlags::PATH);
/// Retries while other processes rename folders on the path.
const MAX_RACES: usize = 8;

/// Opens a path without links. Returns `None` if the kernel lacks `openat2` or a sandbox blocks it.
pub(super) fn open(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => None,
        done => Some(done),
    }
}

/// [`open`] for a path that crosses no mount: `EXDEV` if it does, or if that cannot be found out.
pub(super) fn open_on_mount(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => Err(Errno::XDEV),
        done => done,
    }
}

/// Opens a path and follows its links, which must not lead out (`EXDEV`). Returns `None` without `openat2`.
pub(super) fn open_inside(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Option<Result<OwnedFd, Errno>> {
    let on_mount = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let mut how = on_mount;
    // `EAGAIN`: a component was renamed meanwhile.
    for _ in 0..MAX_RACES {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, mode, how) {
            Err(Errno::AGAIN) => {}
            Err(Errno::XDEV) if how == on_mount => how = on_mount.difference(ResolveFlags::NO_XDEV),
            Err(Errno::NOSYS) => return None,
            Ok(opened) if how != on_mount && is_kernel_file(opened.as_fd()) => {
                return Some(Err(Errno::XDEV));
            }
            done => return Some(done),
        }
    }
    Some(Err(Errno::AGAIN))
}

/// A handle of a path, only to learn its type: whatever it is, nothing happens to it. Follows links as [`open_inside`].
pub(super) fn open_to_stat(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
) -> Option<Result<OwnedFd, Errno>> {
    open_inside(root, path, flags | OFlags::PATH, Mode::empty())
}

/// Reads a regular file only if that needs no link, no disk access and no other file system. `None`: read it otherwise.
pub(super) fn open_cached(
    root: BorrowedFd<'_>,
    path: &Path,
    is_wanted: impl Fn(&rustix::fs::Stat) -> bool,
) -> Option<OwnedFd> {
    let how =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    let open = |flags| rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), how).ok();
    let handle = open(OFlags::PATH | OFlags::NOFOLLOW)?;
    if !is_wanted(&rustix::fs::fstat(&handle).ok()?) {
        return None;
    }
    open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// A read from the page cache of a file system on which opening never waits for a server or another process, and which
/// can read without blocking or holds everything in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedReads(ReadWriteFlags);

impl CachedReads {
    /// The reads of this folder's file system, if it has them.
    pub(super) fn of(folder: BorrowedFd<'_>) -> Option<Self> {
        // From `linux/magic.h`: ext2 to ext4, XFS, Btrfs, F2FS; then tmpfs.
        match rustix::fs::fstatfs(folder).ok()?.f_type {
            0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 => Some(Self(ReadWriteFlags::NOWAIT)),
            0x0102_1994 => Some(Self(ReadWriteFlags::empty())),
            _ => None,
        }
    }

    /// Fills `data` from this position, or fails.
    pub(super) fn read(self, file: BorrowedFd<'_>, data: &mut [u8], from: u64) -> Option<()> {
        let wanted = data.len();
        let mut parts = [std::io::IoSliceMut::new(data)];
        let read = rustix::io::preadv2(file, &mut parts, from, self.0).ok()?;
        (read == wanted).then_some(())
    }
}

/// Whether an open file belongs to a file system that is an interface of the kernel, by the numbers of `linux/magic.h`.
pub(super) fn is_kernel_file(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| {
        matches!(
            found.f_type,
            // procfs, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, configfs
            0x9fa0 | 0x6265_6572 | 0x0027_e0eb | 0x6367_7270 | 0x6462_6720 | 0x7472_6163 | 0x7363_6673 | 0x6265_6570
            // bpf, devpts, efivarfs, pstore, selinuxfs, binfmt_misc, mqueue, nsfs, fusectl, autofs, binder
            | 0xcafe_4a11 | 0x1cd1 | 0xde5e_81e4 | 0x6165_676c | 0xf97c_ff8c | 0x4249_4e4d | 0x1980_0202
            | 0x6e73_6673 | 0x6573_5543 | 0x0187 | 0x6c6f_6f70
        )
    })
}

/// The path of an open file, as the kernel knows it now.
pub(super) fn real_path(file: BorrowedFd<'_>) -> std::io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Appends atomically, so that data appended by others meanwhile is kept.
pub(super) fn append(file: &File, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
